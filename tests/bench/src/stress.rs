//! The verifier-stress set: the largest handlers of scripts, generated and real, with the time
//! until they are armed and the instructions that the kernel loads and processes.

use std::fmt::Write;
use std::process::Command;
use std::time::Duration;

use spile_kernel::bpf::{self, ObjectKind};

use crate::peers::built;
use crate::{EXAMPLES, SAY, median, millis, named, spile};

/// Number of times that each script is armed.
const ROUNDS: usize = 5;
/// Time budget for arming a script of 1,000 lines.
const BUDGET: Duration = Duration::from_millis(100);

/// Arms each script and prints its cost.
pub(crate) fn run() {
    println!("\nverifier stress, {ROUNDS} rounds: least and median until armed");
    println!(
        "{:<28} {:>6} {:>6} {:>9} {:>10} {:>9} {:>9}  within {} ms",
        "",
        "lines",
        "progs",
        "insns",
        "followed",
        "least ms",
        "median",
        BUDGET.as_millis()
    );
    for (name, script) in [
        ("64 probes", probes(64)),
        ("1,000 lines", lines(1000)),
        ("1,000 lines, one handler", one_handler(1000)),
        ("deep nesting", nesting(24)),
        ("loops", loops(24)),
    ] {
        row(name, script.lines().count(), &["-e", &script]);
    }
    for (file, args) in [
        ("general/eventcount.stp", &["syscall.*"][..]),
        ("process/errsnoop.stp", &["1"]),
        ("process/schedtimes.stp", &[]),
        ("profiling/syscalllatency.stp", &[]),
        ("general/graphs.stp", &[]),
    ] {
        let path = format!("{EXAMPLES}/{file}");
        let Ok(text) = std::fs::read_to_string(&path) else {
            println!("{file:<28} not installed");
            continue;
        };
        let args: Vec<&str> = std::iter::once(path.as_str())
            .chain(args.iter().copied())
            .collect();
        row(file, text.lines().count(), &args);
    }
}

/// Arms one script several times and prints its line.
fn row(name: &str, lines: usize, args: &[&str]) {
    let all: Vec<&str> = args.iter().copied().chain(["-E", SAY]).collect();
    let tool = named(spile(&all), name);
    let mut times = Vec::new();
    let (mut programs, mut insns, mut followed) = (0, 0, 0);
    for round in 0..ROUNDS {
        let before = bpf::ids(ObjectKind::Prog).unwrap_or_default();
        let running = match tool.start() {
            Ok(running) => running,
            Err(e) => return println!("{name:<28} {e}: {}", compile_error(&all)),
        };
        times.push(millis(running.armed));
        if round == 0 {
            let loaded = bpf::programs().unwrap_or_default().into_iter();
            for info in loaded.filter(|info| !before.contains(&info.id)) {
                programs += 1;
                insns += info.insns;
                followed += info.verified_insns;
            }
        }
        running.stop();
    }
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    let verdict = if least <= millis(BUDGET) { "yes" } else { "NO" };
    println!(
        "{name:<28} {lines:>6} {programs:>6} {insns:>9} {followed:>10} {least:>9.1} {:>9.1}  {verdict}",
        median(times)
    );
}

/// spile's error for a script that it cannot compile.
fn compile_error(args: &[&str]) -> String {
    let output = Command::new(built("spile"))
        .args(["-p3"])
        .args(args)
        .output();
    let text = output.map_or_else(
        |e| e.to_string(),
        |o| String::from_utf8_lossy(&o.stderr).into(),
    );
    let lines = text.lines().filter(|l| !l.starts_with("warning"));
    lines.take(3).collect::<Vec<_>>().join(" ")
}

const HEAD: &str = "global count, bytes, seen, last, names, hits, slow\n";

/// Reads the globals of the handlers, so that no code is optimised away.
const TAIL: &str = "probe end {\n  foreach ([a, b] in count- limit 3) println(a, b, @count(count[a, b]))\n  \
     foreach (k in bytes) println(k, @sum(bytes[k]), @max(bytes[k]))\n  \
     foreach (t in seen) println(t, seen[t], last[t], names[t])\n  println(hits, slow)\n}\n";

/// Probe points with a number, a thread and a buffer or path; generated handlers use them in turn.
const POINTS: [&str; 16] = [
    "syscall.read",
    "syscall.write",
    "syscall.close",
    "syscall.lseek",
    "syscall.mmap2",
    "syscall.munmap",
    "syscall.ioctl",
    "syscall.pread",
    "syscall.pwrite",
    "syscall.dup",
    "syscall.dup2",
    "syscall.getpid",
    "syscall.kill",
    "syscall.fsync",
    "syscall.fcntl",
    "syscall.ftruncate",
];

/// Statement number `n` of a handler, one or a few lines, in the forms of real scripts.
fn statement(n: usize, depth: usize) -> String {
    let pad = "  ".repeat(depth);
    match n % 10 {
        0 => format!("{pad}count[execname(), {}] <<< 1\n", n % 7),
        1 => format!("{pad}x = (tid() * {} + pid()) % {}\n", n + 3, n % 90 + 7),
        2 => format!("{pad}bytes[execname()] <<< x + {n}\n"),
        3 => format!("{pad}if (x > {}) slow++\n{pad}else hits++\n", n * 3),
        4 => format!("{pad}seen[tid() * 8 + {}] += x\n", n % 5),
        5 => format!("{pad}s = sprintf(\"%s:%d:%x\", execname(), x, {n})\n"),
        6 => format!("{pad}if (s == \"none{n}\") printf(\"%s %d %d\\n\", s, x, tid())\n"),
        7 => format!("{pad}last[tid()] = gettimeofday_us() - {n}\n"),
        8 => format!("{pad}try {{ x = x / (y - {n}) }} catch {{ x = {n} }}\n"),
        _ => format!(
            "{pad}if (tid() in seen) names[tid()] = execname() . \"-{}\"\n",
            n % 3
        ),
    }
}

/// `number` probes of eight statements each.
fn probes(number: usize) -> String {
    let mut text = HEAD.to_string();
    for n in 0..number {
        let point = POINTS[n % POINTS.len()];
        let ret = if n / POINTS.len() % 2 == 1 {
            ".return"
        } else {
            ""
        };
        let _ = writeln!(text, "probe {point}{ret} {{\n  if (pid() == {n}) next");
        (0..8).for_each(|i| text += &statement(n * 3 + i, 1));
        text += "}\n";
    }
    text + TAIL
}

/// `number` lines: functions, and handlers of twenty statements.
fn lines(number: usize) -> String {
    let mut text = HEAD.to_string();
    for n in 0..number / 100 {
        let _ = writeln!(
            text,
            "function scale{n}:long(v:long, by:long) {{\n  if (v < 0) return -v * by\n  \
             if (v > 1000000) return v / {}\n  return v * by + {n}\n}}",
            n + 2
        );
    }
    let mut n = 0;
    while text.lines().count() + TAIL.lines().count() + 24 < number {
        let point = POINTS[n % POINTS.len()];
        let ret = if n / POINTS.len() % 2 == 1 {
            ".return"
        } else {
            ""
        };
        let _ = writeln!(text, "probe {point}{ret} {{\n  if (pid() == {n}) next");
        (0..17).for_each(|i| text += &statement(n * 7 + i, 1));
        let _ = writeln!(text, "  hits += scale{}(x, {n})\n}}", n % (number / 100));
        n += 1;
    }
    text + TAIL
}

/// `number` lines in one handler.
fn one_handler(number: usize) -> String {
    let mut text = HEAD.to_string() + "probe syscall.read {\n  if (pid() == 1) next\n";
    let mut n = 0;
    while text.lines().count() + TAIL.lines().count() + 2 < number {
        text += &statement(n, 1);
        n += 1;
    }
    text + "}\n" + TAIL
}

/// Number of functions that call each other, each calling the previous one twice.
const CALLS: usize = 8;

/// Nested conditions, expressions and calls.
fn nesting(depth: usize) -> String {
    let mut text = HEAD.to_string() + "function f0:long(v:long) { return v + 1 }\n";
    for n in 1..=CALLS {
        let _ = writeln!(
            text,
            "function f{n}:long(v:long) {{ if (v & {}) return f{}(v + {n}) * 2; return f{}(v) }}",
            n,
            n - 1,
            n - 1
        );
    }
    text += "probe syscall.read {\n  x = tid()\n  y = pid()\n";
    for n in 1..=depth {
        let pad = "  ".repeat(n);
        let _ = writeln!(
            text,
            "{pad}if ((x >> {n}) & 1) {{ x += {n}; hits++ }} else {{"
        );
        text += &statement(n, n + 1);
    }
    for n in (1..=depth).rev() {
        let _ = writeln!(text, "{}}}", "  ".repeat(n));
    }
    let sum = (1..=depth).fold("x".to_string(), |e, n| format!("({e} * {n} + (y ^ {n}))"));
    let text_of = (1..=depth / 2).fold("execname()".to_string(), |e, n| {
        format!("substr(({e} . \"-{n}\"), 0, 20)")
    });
    let _ = writeln!(
        text,
        "  slow += {sum}\n  names[tid()] = {text_of}\n  hits += f{CALLS}(x)\n}}"
    );
    text + TAIL
}

/// Nested loops with the statements of real handlers.
fn loops(number: usize) -> String {
    let mut text = HEAD.to_string();
    for n in 0..number / 4 {
        let point = POINTS[n % POINTS.len()];
        let _ = writeln!(text, "probe {point} {{\n  if (pid() == {n}) next");
        for i in 0..4 {
            let _ = writeln!(text, "  for (i = 0; i < {}; i++) {{", i + 3);
            (0..4).for_each(|s| text += &statement(n * 5 + i + s, 2));
            let _ = writeln!(
                text,
                "    j = i\n    while (j > 0) {{ j--; x += j * {i}; if (x > 1000) break }}\n  }}"
            );
        }
        text += "}\n";
    }
    text + TAIL
}
