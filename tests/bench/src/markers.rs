//! The cost of markers, measured as in the first paper on SystemTap's markers: bytes of code, a
//! dormant marker compared with none, and an active one compared with a breakpoint on an ordinary
//! instruction.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::peers::Tool;
use crate::{SAY, bpftrace_tool, median, named, report, spile};

const ROUNDS: usize = 3;
/// Calls of the function with and without a dormant marker, in each of the workload's runs.
const DORMANT_CALLS: &str = "100000";
/// Calls that enter the kernel.
const ACTIVE_CALLS: &str = "200";

/// Builds the workload; `None` without a C compiler.
pub(crate) fn workload() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = crate::peers::built("bench-markers");
    let built = Command::new("cc")
        .args(["-O2", "-g", "-I"])
        .arg(root.join("../../include"))
        .arg(root.join("programs/markers.c"))
        .arg("-o")
        .arg(&program)
        .status();
    built.is_ok_and(|s| s.success()).then_some(program)
}

/// Builds the workload and measures.
pub(crate) fn run() {
    let Some(program) = workload() else {
        return eprintln!("markers: no C compiler");
    };
    bytes(&program);
    dormant(&program);
    active(&program);
}

/// Minimum nanoseconds of a call, as the workload reports them.
fn call_ns(program: &Path, mode: &str, calls: &str) -> f64 {
    let last = std::thread::available_parallelism().map_or(0, |n| n.get() - 1);
    let out = Command::new("taskset")
        .args(["-c", &last.to_string()])
        .arg(program)
        .args([mode, calls])
        .output()
        .expect("taskset (util-linux) runs the workload");
    let text = String::from_utf8_lossy(&out.stdout);
    let word = text.split_whitespace().next().and_then(|n| n.parse().ok());
    word.unwrap_or(f64::INFINITY)
}

fn bytes(program: &PathBuf) {
    let text = |tool: &str, option: &str| {
        let out = Command::new(tool)
            .args([option, "-W"])
            .arg(program)
            .output();
        out.map_or(String::new(), |o| {
            String::from_utf8_lossy(&o.stdout).into_owned()
        })
    };
    let symbols = text("readelf", "-s");
    let size = |name: &str| -> u64 {
        let mut lines = symbols
            .lines()
            .map(|l| l.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|w| w.last() == Some(&name));
        line.and_then(|w| w.get(2)?.parse().ok()).unwrap_or(0)
    };
    let sections = text("readelf", "-S");
    let note = sections.lines().find(|l| l.contains(".note.stapsdt"));
    let note = note.and_then(|l| {
        let words: Vec<_> = l.split_whitespace().collect();
        let at = words.iter().position(|w| *w == "NOTE")?;
        u64::from_str_radix(words.get(at + 3)?, 16).ok()
    });
    println!("\na marker with two arguments, bytes");
    println!("{:<52} {:>6}", "in the function's way", 5);
    let more = size("marked").saturating_sub(size("plain"));
    println!(
        "{:<52} {more:>6}",
        "of the function in all, with what is never reached"
    );
    println!(
        "{:<52} {:>6}",
        "of notes, in the file only",
        note.unwrap_or(0)
    );
}

fn dormant(program: &Path) {
    let mut rows: [Vec<f64>; 2] = Default::default();
    for _ in 0..ROUNDS {
        for (row, mode) in rows.iter_mut().zip(["plain", "dormant"]) {
            row.push(call_ns(program, mode, DORMANT_CALLS));
        }
    }
    println!("\na call of a function, least and median of {ROUNDS} rounds, ns");
    for (row, name) in rows
        .iter()
        .zip(["without a marker", "with a dormant marker"])
    {
        println!(
            "{name:<40} {:>9.3} {:>9.3}",
            least(row),
            median(row.clone())
        );
    }
}

pub(crate) fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn active(program: &Path) {
    let path = program.display();
    let mark = |handler: &str, rest: &str| {
        let script = format!("{rest} probe process(\"{path}\").mark(\"hit\") {{ {handler} }}");
        spile(&["-e", &script, "-E", SAY])
    };
    let count = "global s probe end { println(@count(s)) }";
    let instruction =
        format!("{count} probe process(\"{path}\").function(\"plain\") {{ s <<< 1 }}");
    let usdt = |action: &str| format!("usdt:{path}:bench:hit {{ {action} }}");
    // The program has a marker, except for the breakpoint.
    let tools: [(Tool, &str); 8] = [
        (named(mark("next", ""), "spile, marker, empty"), "marked"),
        (
            named(mark("s <<< 1", count), "spile, marker, s <<< 1"),
            "marked",
        ),
        (
            named(mark("s <<< $arg1", count), "spile, marker, s <<< $arg1"),
            "marked",
        ),
        (
            named(
                spile(&["-e", &instruction, "-E", SAY]),
                "spile, breakpoint, s <<< 1",
            ),
            "plain",
        ),
        (
            bpftrace_tool("bpftrace, marker, empty", &usdt("")),
            "marked",
        ),
        (
            bpftrace_tool("bpftrace, marker, count()", &usdt("@ = count();")),
            "marked",
        ),
        (
            bpftrace_tool("bpftrace, marker, stats(arg0)", &usdt("@ = stats(arg0);")),
            "marked",
        ),
        (
            bpftrace_tool(
                "bpftrace, breakpoint, count()",
                &format!("uprobe:{path}:plain {{ @ = count(); }}"),
            ),
            "plain",
        ),
    ];
    let mut problems = Vec::new();
    let mut rows: Vec<Vec<f64>> = vec![Vec::new(); tools.len()];
    for _ in 0..ROUNDS {
        for ((tool, mode), row) in tools.iter().zip(&mut rows) {
            if !tool.installed() {
                continue;
            }
            match tool.start() {
                Ok(running) => {
                    // bpftrace prints its line before its other probes are armed.
                    std::thread::sleep(std::time::Duration::from_millis(300));
                    row.push(call_ns(program, mode, ACTIVE_CALLS));
                    running.stop();
                }
                Err(e) => problems.push(e),
            }
        }
    }
    report(problems);
    let unit = least(&rows[0]);
    println!("\na call with an active probe, least and median of {ROUNDS} rounds, ns");
    for ((tool, _), row) in tools.iter().zip(&rows) {
        if row.is_empty() {
            println!("{:<32} not installed, or did not start", tool.name);
            continue;
        }
        let (low, mid) = (least(row), median(row.clone()));
        println!(
            "{:<32} {low:>9.1} {mid:>9.1} {:>7.2}x",
            tool.name,
            low / unit
        );
    }
}
