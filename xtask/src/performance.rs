//! `cargo xtask performance`: runs parts of the benchmark with the release build, as root, and
//! writes their output to `docs/performance.md`, with the version, the machine and the date. All
//! figures of the document thus come from one run.

use std::fmt::Write as _;
use std::process::{Command, ExitCode};

use spile_bench::printed;

/// Parts of the benchmark: an introduction for the reader, and the name.
const PARTS: [(&str, &str, &str); 5] = [
    (
        "Start-up, tear-down and memory",
        "start",
        "From `exec` to the first line of a `begin` probe, when all probes are attached; from SIGINT to the end of \
         the process; and the largest resident memory.",
    ),
    (
        "A hit",
        "hits",
        "What a system call takes more when a handler runs at its entry. An empty BPF program is the floor: the \
         kernel's own cost of calling one.",
    ),
    (
        "Every system call as a line",
        "calls",
        "All system calls of a command with arguments and results, as strace prints them. The command's own time, \
         and with the start and end of the tool.",
    ),
    (
        "Exact counts",
        "exact",
        "Four threads make a known number of calls; each tool counts them.",
    ),
    (
        "Large scripts",
        "stress",
        "Scripts that take the kernel's verifier a long time.",
    ),
];

const HEAD: &str = "\
# Performance

This document is written by `cargo xtask performance`; do not edit it. All figures are of one run. A shared
machine disturbs single times, so compare ratios between tools of one run, and not times of two runs. Costs of
`spile profile` are in [profile.md](profile.md#what-it-costs).

";

/// Runs the benchmark and writes the document.
pub(crate) fn run() -> ExitCode {
    let mut text = HEAD.to_owned();
    let _ = writeln!(
        text,
        "| version | machine | kernel | date |\n|---|---|---|---|\n| {} | {} | {} | {} |",
        first_line_of("git", &["describe", "--always", "--tags"]),
        machine(),
        first_line_of("uname", &["-sr"]),
        first_line_of("date", &["+%Y-%m-%d"]),
    );
    for (title, part, about) in PARTS {
        let Some(figures) = bench(part) else {
            eprintln!("the benchmark's part {part} failed");
            return ExitCode::FAILURE;
        };
        let _ = writeln!(
            text,
            "\n## {title}\n\n{about} (`cargo xtask bench {part}`)\n\n```text\n{}\n```",
            figures.trim_end()
        );
    }
    match std::fs::write("docs/performance.md", text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("docs/performance.md: {e}");
            ExitCode::FAILURE
        }
    }
}

/// The output of a part of the benchmark. It runs in a process of its own, as a user runs it.
fn bench(part: &str) -> Option<String> {
    let executable = std::env::current_exe().ok()?;
    printed(Command::new(executable).args(["bench", part]))
}

/// The first line of a command's output, or "unknown".
fn first_line_of(program: &str, args: &[&str]) -> String {
    let text = printed(Command::new(program).args(args)).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

/// The name and number of the processors.
fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text
        .lines()
        .find_map(|l| l.strip_prefix("model name"))
        .and_then(|l| l.split_once(": "))
        .map_or("unknown", |(_, name)| name.trim());
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let guest = if text.contains(" hypervisor") {
        ", a virtual machine"
    } else {
        ""
    };
    format!("{count} processors, {name}{guest}")
}
