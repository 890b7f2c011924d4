//! The cost of `spile profile` for parallel programs, and its losses: workloads plain and under
//! each tool in turns, the cost of its start and end, and known numbers of calls and threads. One
//! of the tools has empty handlers: its cost is the kernel's own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use spile_profile::file::read_path;
use spile_profile::model::Profile;

use crate::floor::empty_handlers;
use crate::peers::{Tool, built, output};
use crate::{bpftrace_tool, median, millis, report};

/// Default number of rounds; `SPILE_ROUNDS` overrides it. With 0, calls and threads are only
/// counted.
const ROUNDS: usize = 10;
/// Seconds of 32 threads at full rate; `SPILE_SECONDS` overrides it.
const SECONDS: usize = 60;
/// Number of calls and threads to be counted.
const CALLS: u64 = 1_000_000;
const THREADS: u64 = 10_000;
/// Time limit of a workload under a tool.
const LIMIT: Duration = Duration::from_secs(300);
/// Sums by thread and call, as a user of bpftrace would write them.
const BPFTRACE: &str = "tracepoint:raw_syscalls:sys_enter /pid == cpid/ { @since[tid] = nsecs; @nr[tid] = args->id; } \
     tracepoint:raw_syscalls:sys_exit /@since[tid]/ { @time[tid, @nr[tid]] = sum(nsecs - @since[tid]); \
     @calls[@nr[tid]] = count(); delete(@since[tid]); } END { clear(@since); clear(@nr); }";

/// Tools that stop the program at each call run one of this number of calls, and their time is
/// multiplied by it. With all calls, strace takes two minutes for a round.
const FEWER: u64 = 100;

/// The recorder with `--trace`, which counts the same calls as without.
const TRACE: &str = "spile profile --trace";

/// The recorder without samples and stacks of waits.
const NO_SAMPLES: &str = "spile profile --no-samples";

/// Empty handlers at the events of `spile profile`, which record nothing.
const EMPTY: &str = "empty handlers";

/// A program with its arguments.
struct Workload {
    name: &'static str,
    program: PathBuf,
    args: &'static [&'static str],
    /// The arguments for one of [`FEWER`] calls, for tools that stop the program at each.
    fewer: Option<&'static [&'static str]>,
    /// The launcher of ranks, with its arguments; empty without ranks.
    launcher: &'static [&'static str],
}

/// Implementations of MPI: name, compiler, and launcher with its arguments.
const MPI: [(&str, &str, &[&str]); 2] = [
    (
        "OpenMPI, 2 ranks",
        "mpicc.openmpi",
        &[
            "mpirun.openmpi",
            "--allow-run-as-root",
            "--oversubscribe",
            "-n",
            "2",
        ],
    ),
    (
        "MPICH, 2 ranks",
        "mpicc.mpich",
        &["mpirun.mpich", "-n", "2"],
    ),
];

/// A tool to run a command under.
struct MeasuredTool {
    name: &'static str,
    tool: Tool,
    /// Whether the command is passed as a single argument.
    one_word: bool,
    /// Whether it stops the program at each call.
    stops: bool,
}

/// The times of a run, in milliseconds.
#[derive(Clone, Copy)]
struct RunTimes {
    /// Time of the main part, as the program reports it.
    main: f64,
    whole: f64,
}

/// Programs that compute, plain, sampled by perf, and recorded with and without samples.
pub(crate) fn samples() {
    let (Some(pi), Some(ray)) = (
        compiled("profile-pi", "-fopenmp"),
        compiled("profile-ray", "-pthread"),
    ) else {
        return eprintln!("profile: no C compiler with OpenMP");
    };
    let mut tools = measured_tools();
    tools.retain(|tool| {
        ["plain", "spile profile", NO_SAMPLES, "perf record -g -F 99"].contains(&tool.name)
    });
    let rounds = env_number("SPILE_ROUNDS", ROUNDS);
    let [many, regions, rays] = computing(pi, ray);
    let eight = Workload {
        name: "ray tracer, 8 threads",
        args: &["1200", "8"],
        ..rays
    };
    for workload in [many, regions, eight] {
        compare(&workload, &tools, rounds);
    }
}

/// Programs of OpenMP and of threads that compute.
fn computing(pi: PathBuf, ray: PathBuf) -> [Workload; 3] {
    let workload = |name, program, args| Workload {
        name,
        program,
        args,
        fewer: None,
        launcher: &[],
    };
    [
        workload("pi, 32 threads, 1 region", pi.clone(), &["32", "1"]),
        workload("pi, 8 threads, 400 regions", pi, &["8", "400"]),
        workload("ray tracer, 2 threads", ray, &[]),
    ]
}

/// Builds the workloads and measures.
pub(crate) fn run() {
    let (Some(pi), Some(ray), Some(short), Some(lives)) = (
        compiled("profile-pi", "-fopenmp"),
        compiled("profile-ray", "-pthread"),
        compiled("profile-calls", "-pthread"),
        compiled("lives", "-pthread"),
    ) else {
        return eprintln!("profile: no C compiler with OpenMP");
    };
    trace_files();
    let tools = measured_tools();
    let rounds = env_number("SPILE_ROUNDS", ROUNDS);
    if rounds > 0 {
        programs(&tools, [pi, ray, short], rounds);
    }
    crate::floor::run();
    memory();
    calls(&tools, &lives);
    threads(&lives);
    rate(&lives);
}

/// The workloads under all tools, and the tools' cost for a command that does nothing.
fn programs(tools: &[MeasuredTool], [pi, ray, short]: [PathBuf; 3], rounds: usize) {
    println!(
        "programs under tools, {rounds} rounds in turns: medians in ms, and over the median of plain;"
    );
    println!("in brackets the middle half of the ratios of main() to plain, round by round\n");
    let short = |name, args, fewer| Workload {
        name,
        program: short.clone(),
        args,
        fewer,
        launcher: &[],
    };
    let mut all = Vec::from(computing(pi, ray));
    all.extend([
        short(
            "a byte read and written, 500,000",
            &["bytes", "500000"],
            Some(&["bytes", "5000"]),
        ),
        short("fork, exit and wait, 2,000", &["forks", "2000"], None),
        short("page faults, 100,000", &["faults", "100000"], None),
    ]);
    for (name, compiler, launcher) in MPI {
        match compiled_by(compiler, "profile-mpi", "-O2") {
            Some(program) => all.push(Workload {
                name,
                program,
                args: &["50", "2000"],
                fewer: None,
                launcher,
            }),
            None => println!("  {name}: no {compiler}"),
        }
    }
    for workload in all {
        compare(&workload, tools, rounds);
    }
    ends(tools, rounds);
}

/// A number from an environment variable, or `otherwise`.
pub(crate) fn env_number(variable: &str, otherwise: usize) -> usize {
    let text = std::env::var(variable).ok();
    text.and_then(|n| n.parse().ok()).unwrap_or(otherwise)
}

/// Compiles a file of `tests/programs`.
pub(crate) fn compiled(name: &str, option: &str) -> Option<PathBuf> {
    compiled_by("cc", name, option)
}

fn compiled_by(compiler: &str, name: &str, option: &str) -> Option<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../programs");
    let program = built(&format!("bench-{name}-{compiler}"));
    let done = Command::new(compiler)
        .args(["-O2", option])
        .arg(sources.join(name).with_extension("c"))
        .arg("-o")
        .arg(&program)
        .arg("-lm")
        .status();
    done.is_ok_and(|s| s.success()).then_some(program)
}

/// Mounts tracefs for this process and its children if it is not mounted: peers need it, and all
/// tools are to run alike.
pub(crate) fn trace_files() {
    if Path::new("/sys/kernel/tracing/events").exists() {
        return;
    }
    // SAFETY: plain system calls with texts that live; this process has one thread.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                c"none".as_ptr(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) == 0
            && [
                (c"tracefs", c"/sys/kernel/tracing"),
                (c"debugfs", c"/sys/kernel/debug"),
            ]
            .iter()
            .all(|(kind, location)| {
                libc::mount(
                    c"none".as_ptr(),
                    location.as_ptr(),
                    kind.as_ptr(),
                    0,
                    std::ptr::null(),
                ) == 0
            })
    };
    if !done {
        eprintln!(
            "the kernel's trace files: {}",
            std::io::Error::last_os_error()
        );
    }
}

/// The plain run and the tools.
fn measured_tools() -> Vec<MeasuredTool> {
    let tool_of = |name, argv: &[&str]| MeasuredTool {
        name,
        tool: Tool::new(name, argv, ""),
        one_word: false,
        stops: false,
    };
    let stopping = |name, argv: &[&str]| MeasuredTool {
        stops: true,
        ..tool_of(name, argv)
    };
    let spile = built("spile").display().to_string();
    // A file for one process, a folder for ranks.
    let recording = built("bench-trace.spile").display().to_string();
    let samples = built("bench-samples.data").display().to_string();
    let mut bpftrace = bpftrace_tool("bpftrace", "");
    bpftrace.argv.pop();
    bpftrace.argv.extend([BPFTRACE, "-c"].map(String::from));
    vec![
        tool_of("plain", &["/usr/bin/env"]),
        tool_of("spile profile", &[&spile, "profile", "--"]),
        tool_of(NO_SAMPLES, &[&spile, "profile", "--no-samples", "--"]),
        tool_of(
            "perf record -g -F 99",
            &[
                "perf", "record", "-q", "-g", "-F", "99", "-o", &samples, "--",
            ],
        ),
        tool_of(
            TRACE,
            &[&spile, "profile", "--trace", "-o", &recording, "--"],
        ),
        MeasuredTool {
            name: EMPTY,
            tool: empty_handlers(),
            one_word: true,
            stops: false,
        },
        stopping("strace -f -c", &["strace", "-f", "-c"]),
        stopping("perf trace -s", &["perf", "trace", "-s", "--"]),
        MeasuredTool {
            name: "bpftrace, thread and call",
            tool: bpftrace,
            one_word: true,
            stops: false,
        },
    ]
}

impl MeasuredTool {
    /// The command that runs a program under this tool.
    fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(&self.tool.argv[0]);
        command.args(&self.tool.argv[1..]);
        let program = program.display().to_string();
        if self.one_word {
            command.arg([&[&*program], args].concat().join(" "));
        } else {
            command.arg(program).args(args);
        }
        command.env("OMP_WAIT_POLICY", "passive");
        command
    }

    /// The command that runs a workload under this tool, as ranks if it has a launcher.
    fn launched(&self, workload: &Workload) -> Command {
        let fewer = workload.fewer.filter(|_| self.stops);
        let command = self.command(&workload.program, fewer.unwrap_or(workload.args));
        let Some((launcher, args)) = workload.launcher.split_first() else {
            return command;
        };
        let mut all = Command::new(launcher);
        all.args(args).arg(command.get_program());
        all.args(command.get_args());
        all
    }

    /// Runs a workload and measures it.
    fn measure(&self, workload: &Workload) -> Result<RunTimes, String> {
        let recording = built("bench-trace.spile");
        let _ = std::fs::remove_file(&recording);
        let _ = std::fs::remove_dir_all(&recording);
        // Ranks write their profiles below the current folder.
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let mut command = self.launched(workload);
        command.current_dir(&folder);
        let begin = Instant::now();
        let text = output(command, LIMIT);
        let whole = millis(begin.elapsed());
        let main = text
            .lines()
            .find_map(|l| l.strip_prefix("main ")?.parse().ok());
        let main: f64 = main.ok_or_else(|| format!("{} does not run here", self.name))?;
        let main = main * 1e3;
        let times = self.times(workload) as f64;
        Ok(RunTimes {
            main: main * times,
            whole: whole + main * (times - 1.0),
        })
    }

    /// The factor for the time of main(), because the tool ran fewer calls.
    fn times(&self, workload: &Workload) -> u64 {
        match workload.fewer {
            Some(_) if self.stops => FEWER,
            _ => 1,
        }
    }
}

/// A workload under all tools.
fn compare(workload: &Workload, tools: &[MeasuredTool], rounds: usize) {
    let mut rows: Vec<Vec<RunTimes>> = vec![Vec::new(); tools.len()];
    let mut problems = Vec::new();
    // A first run reads the program from the disk.
    let _ = tools[0].measure(workload);
    for _ in 0..rounds {
        for (tool, row) in tools.iter().zip(&mut rows) {
            if tool.tool.installed() {
                match tool.measure(workload) {
                    Ok(took) => row.push(took),
                    Err(e) => problems.push(e),
                }
            }
        }
    }
    report(problems);
    println!(
        "{:<28} {:>9} {:>7} {:>16} {:>9} {:>7}",
        workload.name, "main()", "ratio", "", "command", "ratio"
    );
    let middle = |row: &[RunTimes], of: fn(&RunTimes) -> f64| median(row.iter().map(of).collect());
    let plain = (middle(&rows[0], |t| t.main), middle(&rows[0], |t| t.whole));
    for (tool, row) in tools.iter().zip(&rows) {
        if row.is_empty() {
            println!("  {:<26} not installed, or does not run here", tool.name);
            continue;
        }
        let (main, whole) = (middle(row, |t| t.main), middle(row, |t| t.whole));
        let mut ratios: Vec<f64> = row
            .iter()
            .zip(&rows[0])
            .map(|(t, p)| t.main / p.main)
            .collect();
        ratios.sort_by(f64::total_cmp);
        let quarter = ratios.len() / 4;
        let range = format!(
            "({:.2} - {:.2})",
            ratios[quarter],
            ratios[ratios.len() - 1 - quarter]
        );
        let note = match tool.times(workload) {
            1 => String::new(),
            n => format!("  (1 of {n} calls, main() multiplied)"),
        };
        println!(
            "  {:<26} {main:>9.1} {:>7.2} {range:>16} {whole:>9.1} {:>7.2}{note}",
            tool.name,
            main / plain.0,
            whole / plain.1
        );
    }
    println!();
}

/// The start and end of the recorder, and of a session with its events and empty handlers.
pub(crate) fn start_and_end() {
    let mut tools = measured_tools();
    tools.retain(|tool| ["plain", "spile profile", NO_SAMPLES, EMPTY].contains(&tool.name));
    ends(&tools, env_number("SPILE_ROUNDS", ROUNDS));
}

/// The cost of start and end of each tool.
fn ends(tools: &[MeasuredTool], rounds: usize) {
    let mut rows: Vec<Vec<f64>> = vec![Vec::new(); tools.len()];
    for _ in 0..2 * rounds {
        for (tool, row) in tools.iter().zip(&mut rows) {
            if !tool.tool.installed() {
                continue;
            }
            let mut command = tool.command(Path::new("/bin/true"), &[]);
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let begin = Instant::now();
            if command.status().is_ok_and(|s| s.success()) {
                row.push(millis(begin.elapsed()));
            }
        }
    }
    println!(
        "`true`, {} rounds: least and median in ms, and over plain",
        2 * rounds
    );
    let least = |row: &[f64]| row.iter().copied().fold(f64::INFINITY, f64::min);
    let plain = (least(&rows[0]), median(rows[0].clone()));
    for (tool, row) in tools.iter().zip(&rows).filter(|(_, row)| !row.is_empty()) {
        let (low, middle) = (least(row), median(row.clone()));
        println!(
            "  {:<26} {low:>9.1} {middle:>9.1} {:>+9.1} {:>+9.1}",
            tool.name,
            low - plain.0,
            middle - plain.1
        );
    }
    println!();
}

/// Prints the memory of the recorder and of its maps in the kernel, while a command sleeps.
fn memory() {
    let mut command = Command::new(built("spile"));
    command.args(["profile", "--", "sleep", "3"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else {
        return println!("spile profile does not run here");
    };
    std::thread::sleep(Duration::from_secs(2));
    let of = PathBuf::from(format!("/proc/{}", child.id()));
    let number = |text: &str, name: &str| {
        let value = text.lines().find_map(|l| l.strip_prefix(name))?;
        value.split_whitespace().next()?.parse::<u64>().ok()
    };
    let status = std::fs::read_to_string(of.join("status")).unwrap_or_default();
    let peak = number(&status, "VmHWM:").unwrap_or_default();
    // By number, because several descriptors may refer to one map.
    let mut maps = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(of.join("fdinfo")).into_iter().flatten() {
        let Ok(entry) = entry else { continue };
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        if let Some(map) = number(&text, "map_id:") {
            maps.insert(map, number(&text, "memlock:").unwrap_or_default());
        }
    }
    println!(
        "memory: the recorder {} KB at most, its maps in the kernel {} KB ({} maps)\n",
        peak,
        maps.values().sum::<u64>() / 1024,
        maps.len()
    );
    let _ = child.wait();
}

/// Runs a command under `spile profile`; returns its profile, and the command's output.
fn profile(program: &Path, args: &[&str]) -> Option<(Profile, String)> {
    let dir = tempfile::tempdir().ok()?;
    let file = dir.path().join("bench.spile");
    let mut command = Command::new(built("spile"));
    command.args(["profile", "-o"]).arg(&file).arg("--");
    command.arg(program).args(args);
    let said = output(command, LIMIT);
    Some((read_path(&file).ok()?.profile, said))
}

fn getppid(profile: &Profile) -> u64 {
    let calls = profile.data.calls.iter();
    let calls = calls.filter(|c| c.call == "getppid");
    calls.map(|c| c.count).sum()
}

/// Losses, and the largest residual of a thread of at least a millisecond.
fn account(profile: &Profile) {
    let at = profile.data.at_ns;
    let shares = profile
        .data
        .threads
        .iter()
        .map(|t| (t.residual(at), t.wall(at)));
    let shares = shares.filter(|(_, wall)| *wall >= 1_000_000);
    let worst = shares.map(|(r, wall)| r.unsigned_abs() as f64 / wall as f64);
    println!(
        "    largest residual {:.3}%",
        100.0 * worst.fold(0.0, f64::max)
    );
    if profile.data.lost.is_empty() {
        println!("    nothing lost");
    }
    for (what, count) in &profile.data.lost {
        println!("    lost: {count} {what}");
    }
}

/// A known number of calls under each tool.
fn calls(tools: &[MeasuredTool], lives: &Path) {
    println!("counted calls of getppid in one thread");
    for tool in &tools[1..] {
        if [TRACE, EMPTY].contains(&tool.name) {
            continue;
        }
        let made = if tool.stops { CALLS / FEWER } else { CALLS };
        let count = made.to_string();
        let args = ["calls", &count];
        if !tool.tool.installed() {
            println!("  {:<26} not installed", tool.name);
            continue;
        }
        if tool.name == "spile profile" {
            match profile(lives, &args) {
                Some((profile, _)) => {
                    println!("  {:<26} {} of {made}", tool.name, getppid(&profile));
                    account(&profile);
                }
                None => println!("  {:<26} does not run here", tool.name),
            }
            continue;
        }
        // Their tables go to standard error.
        let mut all = Command::new("sh");
        let command = tool.command(lives, &args);
        all.args(["-c", "exec \"$@\" 2>&1", "sh"])
            .arg(command.get_program());
        all.args(command.get_args());
        let text = output(all, LIMIT);
        match counted(&text) {
            Some(n) => println!("  {:<26} {n} of {made}", tool.name),
            None => println!("  {:<26} does not run here", tool.name),
        }
    }
    println!();
}

/// The number of getppid calls in a peer's table: strace has calls in the fourth column, perf in
/// the second, bpftrace after the call's number.
fn counted(text: &str) -> Option<u64> {
    let bpftrace = format!("@calls[{}]:", libc::SYS_getppid);
    text.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [first, count] if first == bpftrace => count.parse().ok(),
            ["getppid", count, ..] => count.parse().ok(),
            [_, _, _, count, .., "getppid"] => count.parse().ok(),
            _ => None,
        }
    })
}

/// Threads that start and end.
fn threads(lives: &Path) {
    println!("{THREADS} short-lived threads, and the thread that creates them");
    match profile(lives, &["threads", &THREADS.to_string()]) {
        Some((profile, _)) => {
            let all = profile.data.threads.len();
            let ended = profile.data.threads.iter().filter(|t| t.ended_ns.is_some());
            println!(
                "  {all} threads, {} seen to end, {} calls of getppid",
                ended.count(),
                getppid(&profile)
            );
            account(&profile);
        }
        None => println!("  spile profile does not run here"),
    }
    println!();
}

/// Many threads at full rate.
fn rate(lives: &Path) {
    let seconds = env_number("SPILE_SECONDS", SECONDS);
    println!("32 threads at full rate for {seconds} s");
    match profile(lives, &["rate", &seconds.to_string()]) {
        Some((profile, said)) => {
            println!("  made {}", said.trim());
            println!("  seen {} calls", getppid(&profile));
            account(&profile);
        }
        None => println!("  spile profile does not run here"),
    }
}
