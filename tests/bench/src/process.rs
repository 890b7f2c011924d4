//! Handlers in the process beside those in the kernel: what a hit adds to a call, and what a session takes from start to end.

use std::process::Command;
use std::time::Instant;

use crate::peers::built;
use crate::{markers, median, millis};

/// Default number of rounds; `SPILE_ROUNDS` overrides it.
const ROUNDS: usize = 10;

/// Calls in each of the workload's runs: the kernel's hits take a microsecond.
const CALLS: [&str; 2] = ["20000", "200"];

/// What a hit does: its name, the workload's function, and the script. `PATH` is the program.
const EVENTS: &[(&str, &str, &str)] = &[
    (
        "marker, counted",
        "marked",
        "probe process(\"PATH\").mark(\"hit\") { s <<< 1 }",
    ),
    (
        "marker, two arguments",
        "marked",
        "probe process(\"PATH\").mark(\"hit\") { s <<< $arg1 + $arg2 }",
    ),
    (
        "function, counted",
        "plain",
        "probe process(\"PATH\").function(\"plain\") { s <<< 1 }",
    ),
    (
        "function, [execname()] <<< 1",
        "plain",
        "global n probe process(\"PATH\").function(\"plain\") { n[execname()] <<< 1; s <<< 1 }",
    ),
    (
        "function, entry to return, histogram",
        "plain",
        "global t probe process(\"PATH\").function(\"plain\") { t[tid()] = gettimeofday_ns() } \
         probe process(\"PATH\").function(\"plain\").return { s <<< gettimeofday_ns() - t[tid()] }",
    ),
    (
        "system call, counted",
        "called",
        "probe syscall.getppid { s <<< 1 }",
    ),
    (
        "system call, counted by name",
        "called",
        "global n probe syscall_any { n[name] <<< 1; s <<< 1 }",
    ),
    (
        "system call, [execname()] <<< 1",
        "called",
        "global n probe syscall.getppid { n[execname()] <<< 1; s <<< 1 }",
    ),
    (
        "system call, entry to return, histogram",
        "called",
        "global t probe syscall.getppid { t[tid()] = gettimeofday_ns() } \
         probe syscall.getppid.return { s <<< gettimeofday_ns() - t[tid()] }",
    ),
];

/// The end of each script: without a hit, the figures are worth nothing.
const SUM: &str = "global s probe end { if (!@count(s)) error(\"no hit\") }";

/// Measures.
pub(crate) fn run() {
    let Some(program) = markers::workload() else {
        return eprintln!("process: no C compiler");
    };
    let rounds = crate::profile::env_number("SPILE_ROUNDS", ROUNDS);
    println!("\nwhat a hit adds to a call, least and median of {rounds} rounds, ns");
    println!("{:<40} {:>20} {:>20}", "", "process", "kernel");
    let path = program.display().to_string();
    for (name, mode, script) in EVENTS {
        let script = format!("{SUM} {}", script.replace("PATH", &path));
        let mut rows: [Vec<f64>; 2] = Default::default();
        for _ in 0..rounds {
            let plain = workload(&[], &path, mode, CALLS[0]);
            for ((row, runtime), calls) in rows.iter_mut().zip(["process", "kernel"]).zip(CALLS) {
                let with = [&format!("--runtime={runtime}"), "-e", &script];
                row.push(workload(&with, &path, mode, calls) - plain);
            }
        }
        let [process, kernel] =
            rows.map(|row| format!("{:>9.1} {:>9.1}", markers::least(&row), median(row)));
        println!("{name:<40} {process:>20} {kernel:>20}");
    }
    println!(
        "\na session around a short command, from start to end, median of {rounds} rounds, ms"
    );
    for runtime in ["process", "kernel"] {
        let script = format!("global n probe process(\"{path}\").function(\"main\") {{ n++ }}");
        let times = (0..rounds).map(|_| {
            let start = Instant::now();
            let command = format!("{path} plain 1");
            spile(&[
                &format!("--runtime={runtime}"),
                "-e",
                &script,
                "-c",
                &command,
            ]);
            millis(start.elapsed())
        });
        println!("{runtime:<40} {:>9.1}", median(times.collect()));
    }
}

/// What the workload reports: the least nanoseconds of a call, plain or under spile with these options.
fn workload(options: &[&str], path: &str, mode: &str, calls: &str) -> f64 {
    let command = format!("{path} {mode} {calls}");
    let text = match options {
        [] => {
            let out = Command::new(path).args([mode, calls]).output();
            String::from_utf8_lossy(&out.expect("the workload runs").stdout).into_owned()
        }
        _ => spile(&[options, &["-c", &command]].concat()),
    };
    let number = text.split_whitespace().next().and_then(|n| n.parse().ok());
    number.unwrap_or(f64::INFINITY)
}

/// The output of spile.
fn spile(args: &[&str]) -> String {
    let out = Command::new(built("spile")).args(args).output();
    let out = out.expect("spile runs");
    if !out.status.success() {
        eprintln!("process: {}", String::from_utf8_lossy(&out.stderr));
    }
    String::from_utf8_lossy(&out.stdout).into_owned()
}
