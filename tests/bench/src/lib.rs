//! The benchmark: the same jobs by spile and by the installed peers, interleaved in one run. Quote
//! medians and ratios; single times mean little on a shared machine.

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;

use spile_kernel::bpf;

mod calls;
mod floor;
mod keys;
mod markers;
mod nginx;
mod peers;
mod process;
mod profile;
mod stress;
mod system;

use crate::peers::{Armed, Tool, built, output};

pub use crate::peers::printed;

const ROUNDS: usize = 20;
const HIT_ROUNDS: usize = 10;
/// Number of runs of the workload in a round, and the calls of each: short runs, so that some fall
/// between the disturbances of a shared machine.
const RUNS: usize = 5;
const CALLS: u64 = 100_000;
/// Time limit for the workload of the exactness test.
const EXACT_LIMIT: Duration = Duration::from_secs(60);
pub(crate) const EXAMPLES: &str = "/usr/share/systemtap/examples";

/// Runs the named parts, or those that take seconds if none is named.
pub fn run(parts: &[String]) {
    let wants = |name: &str| parts.is_empty() || parts.iter().any(|p| p == name);
    if !built("spile").exists() {
        eprintln!(
            "build first: cargo build --release -p spile -p spile-workloads -p spile-bpf -p spile-kernel --bins --examples"
        );
        std::process::exit(1);
    }
    if wants("start") {
        start();
    }
    if wants("hits") {
        hits();
    }
    if wants("calls") {
        crate::calls::run();
    }
    if wants("exact") {
        exact();
    }
    if wants("stress") {
        crate::stress::run();
    }
    if wants("markers") {
        crate::markers::run();
    }
    if wants("keys") {
        crate::keys::run();
    }
    if wants("process") {
        crate::process::run();
    }
    // These take minutes, and need programs that few machines have.
    if parts.iter().any(|p| p == "nginx") {
        crate::nginx::run();
    }
    if parts.iter().any(|p| p == "profile") {
        crate::profile::run();
    }
    if parts.iter().any(|p| p == "samples") {
        crate::profile::samples();
    }
    if parts.iter().any(|p| p == "floor") {
        crate::floor::run();
        crate::profile::start_and_end();
    }
    if parts.iter().any(|p| p == "system") {
        crate::system::run();
    }
}

/// The bpftrace to compare with: that in `SPILE_BPFTRACE` (a command line), or the installed one.
fn bpftrace() -> Vec<String> {
    let text = std::env::var("SPILE_BPFTRACE").unwrap_or_else(|_| "bpftrace".into());
    text.split_whitespace().map(Into::into).collect()
}

pub(crate) fn spile(args: &[&str]) -> Tool {
    let path = built("spile").display().to_string();
    let mut argv = vec![path.as_str()];
    argv.extend(args);
    Tool::new("spile", &argv, "armed")
}

pub(crate) const SAY: &str = "probe begin { println(\"armed\") }";

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(crate) fn millis(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

pub(crate) fn named(mut tool: Tool, name: &str) -> Tool {
    tool.name = name.into();
    tool
}

pub(crate) fn bpftrace_tool(name: &str, program: &str) -> Tool {
    let mut argv = bpftrace();
    argv.push("-e".into());
    argv.push(format!("BEGIN {{ printf(\"armed\\n\"); }} {program}"));
    Tool {
        name: name.into(),
        argv,
        armed: Armed::Line("armed"),
    }
}

fn start() {
    let errno = format!("{EXAMPLES}/profiling/errno.stp");
    let tools = [
        named(spile(&[&errno, "-E", SAY]), "spile errno.stp"),
        named(
            spile(&["-e", "probe syscall.* { println(name) }", "-E", SAY]),
            "spile syscall.*",
        ),
        named(
            spile(&[
                "-e",
                "global c probe syscall.* { c[name, argstr] <<< 1 } probe end { foreach ([n,a] in c) n }",
                "-E",
                SAY,
            ]),
            "spile syscall.* argstr",
        ),
        bpftrace_tool(
            "bpftrace, one tracepoint",
            "tracepoint:raw_syscalls:sys_exit /args->ret < 0/ { @[pid, comm, args->ret] = count(); }",
        ),
    ];
    println!("start-up, {ROUNDS} rounds: medians");
    println!(
        "{:<26} {:>10} {:>10} {:>10} {:>8}",
        "", "armed ms", "down ms", "peak MB", "ratio"
    );
    let mut problems = Vec::new();
    let mut rows: Vec<(Vec<f64>, Vec<f64>, u64)> = vec![Default::default(); tools.len()];
    for _ in 0..ROUNDS {
        for (tool, row) in tools.iter().zip(&mut rows) {
            if !tool.installed() {
                continue;
            }
            match tool.start() {
                Ok(running) => {
                    row.0.push(millis(running.armed));
                    std::thread::sleep(Duration::from_millis(20));
                    let cost = running.stop();
                    row.1.push(millis(cost.tear_down));
                    row.2 = row.2.max(cost.peak_kb);
                }
                Err(e) => problems.push(e),
            }
        }
    }
    report(problems);
    let first = median(rows[0].0.clone());
    for (tool, (armed, down, peak)) in tools.iter().zip(rows) {
        if armed.is_empty() {
            let why = if tool.installed() {
                "did not start"
            } else {
                "not installed"
            };
            println!("{:<26} {why}", tool.name);
            continue;
        }
        let armed = median(armed);
        println!(
            "{:<26} {:>10.1} {:>10.1} {:>10.1} {:>7.1}x",
            tool.name,
            armed,
            median(down),
            peak as f64 / 1024.0,
            armed / first
        );
    }
}

/// Prints each problem once.
pub(crate) fn report(mut problems: Vec<String>) {
    problems.sort();
    problems.dedup();
    problems.iter().for_each(|p| eprintln!("{p}"));
}

/// Nanoseconds of one getppid, pinned to the last processor: the minimum of some runs.
fn call_ns() -> f64 {
    let last = std::thread::available_parallelism().map_or(0, |n| n.get() - 1);
    let run = || {
        let out = Command::new("taskset")
            .args(["-c", &last.to_string()])
            .arg(built("load"))
            .args(["calls", "1", &CALLS.to_string()])
            .output()
            .expect("taskset (util-linux) runs the workload");
        let text = String::from_utf8_lossy(&out.stderr);
        let word = text.split_whitespace().next().and_then(|n| n.parse().ok());
        word.unwrap_or(f64::INFINITY)
    };
    (0..RUNS).map(|_| run()).fold(f64::INFINITY, f64::min)
}

/// An empty BPF program on the raw tracepoint: the kernel's own cost.
pub(crate) struct Empty {
    _link: std::os::fd::OwnedFd,
}

fn hits() {
    let count = "probe end { foreach (k in s) n += @count(s[k]) }";
    let by_name =
        format!("global s, n probe kernel.trace(\"sys_enter\") {{ s[execname()] <<< 1 }} {count}");
    let by_inc = "global s, n probe kernel.trace(\"sys_enter\") { s[execname()]++ } probe end { foreach (k in s) n += s[k] }";
    let other = "global s, n probe kernel.trace(\"sys_enter\") { if (pid() != target()) next; s[execname()] <<< 1 } probe end { foreach (k in s) n += @count(s[k]) }";
    let any = "global s, n probe syscall_any { s[name] <<< 1 } probe end { foreach (k in s) n += @count(s[k]) }";
    let tools = [
        named(
            spile(&["-e", &by_name, "-E", SAY]),
            "spile [execname()] <<< 1",
        ),
        named(spile(&["-e", by_inc, "-E", SAY]), "spile [execname()]++"),
        named(
            spile(&["-e", other, "-E", SAY, "-x", "1"]),
            "spile -x another pid",
        ),
        named(spile(&["-e", any, "-E", SAY]), "spile syscall_any [name]"),
        bpftrace_tool(
            "bpftrace [comm] count()",
            "tracepoint:raw_syscalls:sys_enter { @[comm] = count(); }",
        ),
        bpftrace_tool(
            "bpftrace [comm]++",
            "tracepoint:raw_syscalls:sys_enter { @[comm]++; }",
        ),
        Tool {
            name: "libbpf-tools syscount".into(),
            argv: vec!["syscount".into()],
            armed: Armed::After(Duration::from_millis(700)),
        },
        Tool {
            name: "libbpf-tools syscount -p 1".into(),
            argv: vec!["syscount".into(), "-p".into(), "1".into()],
            armed: Armed::After(Duration::from_millis(700)),
        },
    ];
    let mut problems = Vec::new();
    let mut rows: Vec<Vec<f64>> = vec![Vec::new(); tools.len() + 2];
    for _ in 0..HIT_ROUNDS {
        rows[0].push(call_ns());
        {
            let _empty = Empty::attach();
            rows[1].push(call_ns());
        }
        for (tool, row) in tools.iter().zip(&mut rows[2..]) {
            if !tool.installed() {
                continue;
            }
            match tool.start() {
                Ok(running) => {
                    row.push(call_ns());
                    running.stop();
                }
                Err(e) => problems.push(e),
            }
        }
    }
    report(problems);
    let least = |v: &[f64]| v.iter().copied().fold(f64::INFINITY, f64::min);
    let floor = least(&rows[1]);
    println!(
        "\na hit on sys_enter, least and median of {HIT_ROUNDS} rounds of {RUNS} x {CALLS} getppid calls, ns"
    );
    println!(
        "{:<28} {:>8} {:>8} {:>16} {:>8}",
        "", "least", "median", "over empty BPF", "ratio"
    );
    let unit = least(&rows[2]) - floor;
    let names = ["untraced", "an empty BPF program"].map(String::from);
    let names = names.into_iter().chain(tools.into_iter().map(|t| t.name));
    for (name, row) in names.zip(rows) {
        if row.is_empty() {
            println!("{name:<28} not installed, or did not start");
            continue;
        }
        println!(
            "{name:<28} {:>8.1} {:>8.1} {:>+16.1} {:>7.1}x",
            least(&row),
            median(row.clone()),
            least(&row) - floor,
            (least(&row) - floor) / unit
        );
    }
}

impl Empty {
    pub(crate) fn attach() -> Option<Empty> {
        let spec = bpf::ProgSpec {
            ty: bpf::prog_type::RAW_TRACEPOINT,
            insns: &[bpf::insn(0xb7, 0, 0, 0, 0), bpf::insn(0x95, 0, 0, 0, 0)],
            name: "empty",
            ..bpf::ProgSpec::default()
        };
        let link = bpf::load(&spec)
            .and_then(|prog| bpf::raw_tracepoint_open(Some("sys_enter"), prog.as_fd()));
        match link {
            Ok(link) => Some(Empty { _link: link }),
            Err(e) => {
                eprintln!("no empty program: {e}");
                None
            }
        }
    }
}

/// Checks that a million calls in each of 4 threads are all counted.
fn exact() {
    println!("\nexactness: what is counted of 4 threads of 1,000,000 calls");
    let load = format!("{} calls 4 1000000", built("load").display());
    for (name, script) in [
        (
            "spile <<<",
            "global s probe syscall.getppid { if (pid() == target()) s[execname()] <<< 1 } probe end { foreach (k in s) println(@count(s[k])) }",
        ),
        (
            "spile ++",
            "global s probe syscall.getppid { if (pid() == target()) s[execname()]++ } probe end { foreach (k in s) println(s[k]) }",
        ),
        (
            "spile <<<, cleared each 100 ms",
            "global s, n function add() { foreach (k in s) n += @count(s[k]); delete s } probe syscall.getppid { if (pid() == target()) s[execname()] <<< 1 } probe timer.ms(100) { add() } probe end { add(); println(n) }",
        ),
    ] {
        let mut command = Command::new(built("spile"));
        command.args(["-e", script, "-c", &load]);
        println!("{name:<32} {}", last_line(&output(command, EXACT_LIMIT)));
    }
    for (name, action) in [
        ("bpftrace count()", "@[comm] = count();"),
        ("bpftrace ++", "@[comm]++;"),
    ] {
        let program =
            format!("tracepoint:syscalls:sys_enter_getppid /comm == \"load\"/ {{ {action} }}");
        let tool = bpftrace_tool(name, &program);
        if !tool.installed() {
            println!("{name:<32} not installed");
            continue;
        }
        match tool.start() {
            Ok(running) => {
                let mut command = Command::new(built("load"));
                command.args(["calls", "4", "1000000"]);
                output(command, EXACT_LIMIT);
                println!("{name:<32} {}", last_line(&running.stop().output));
            }
            Err(e) => println!("{name:<32} {e}"),
        }
    }
}

fn last_line(text: &str) -> &str {
    text.trim().lines().last().unwrap_or("nothing printed")
}
