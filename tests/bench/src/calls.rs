//! `cargo xtask bench calls`: the cost of a line of text for every system call of a command, with spile,
//! `strace -f` and `perf trace` in turns. The figure is the command's own time, divided by its time untraced.

use std::process::{Command, Stdio};
use std::time::Instant;

use crate::peers::built;
use crate::{median, millis};

const ROUNDS: usize = 5;
/// Calls of the command: reads and writes of one byte.
const COUNT: usize = 20_000;
const SCRIPT: &str = r#"global args
probe syscall.* { if (pid() == target()) args[tid()] = argstr }
probe syscall.*.return { if (pid() == target()) printf("%s(%s) = %s\n", name, args[tid()], retstr) }"#;

/// The traced command. It reports its own time, which excludes the start and end of the tracer.
fn workload() -> String {
    format!("dd if=/dev/zero of=/dev/null bs=1 count={COUNT}")
}

/// The seconds that dd reports, found in the whole output of the tracer.
fn seconds(text: &str) -> Option<f64> {
    let line = text.lines().find(|l| l.contains(" copied, "))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|w| *w == "s,")?;
    words.get(at.checked_sub(1)?)?.parse().ok()
}

/// Runs a tool once; returns the milliseconds that dd reports, and those of the whole run.
fn once(argv: &[String]) -> Option<(f64, f64)> {
    let start = Instant::now();
    let out = Command::new(&argv[0])
        .args(&argv[1..])
        .env("LC_ALL", "C")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .ok()?;
    let whole = millis(start.elapsed());
    let text = String::from_utf8_lossy(&out.stderr);
    Some((seconds(&text)? * 1e3, whole))
}

/// Runs the benchmark.
pub(crate) fn run() {
    let workload = workload();
    let words = |text: &str| -> Vec<String> { text.split(' ').map(Into::into).collect() };
    let command = words(&workload);
    let with = |head: &[&str]| -> Vec<String> {
        let head = head.iter().map(|w| (*w).to_owned());
        head.chain(command.iter().cloned()).collect()
    };
    let spile = built("spile").display().to_string();
    let spile = [&spile, "-o", "/dev/null", "-e", SCRIPT, "-c", &workload];
    let tools = [
        ("alone", command.clone()),
        ("spile", spile.map(str::to_owned).to_vec()),
        ("strace -f", with(&["strace", "-f", "-o", "/dev/null"])),
        (
            "perf trace",
            with(&["perf", "trace", "-o", "/dev/null", "--"]),
        ),
    ];
    let mut times = vec![(Vec::new(), Vec::new()); tools.len()];
    for _ in 0..ROUNDS {
        for ((_, argv), row) in tools.iter().zip(&mut times) {
            if let Some((inner, whole)) = once(argv) {
                row.0.push(inner);
                row.1.push(whole);
            }
        }
    }
    println!(
        "\nall system calls as text, {ROUNDS} rounds of {} calls: medians",
        2 * COUNT
    );
    println!(
        "{:<12} {:>12} {:>10} {:>14}",
        "", "command ms", "ratio", "with start ms"
    );
    let alone = median(times[0].0.clone());
    for ((name, _), (inner, whole)) in tools.iter().zip(times) {
        if inner.is_empty() {
            println!("{name:<12} not installed, or did not run");
            continue;
        }
        let inner = median(inner);
        println!(
            "{name:<12} {inner:>12.1} {:>9.1}x {:>14.1}",
            inner / alone,
            median(whole)
        );
    }
}
