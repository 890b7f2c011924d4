//! The kernel's own cost of the events that `spile profile` records: a program runs plain, with empty
//! handlers at these events, and with the recorder.

use std::path::Path;
use std::time::Duration;

use crate::peers::{Tool, built, output};
use crate::profile::{compiled, env_number};
use crate::{median, report};

/// Default number of rounds; `SPILE_ROUNDS` overrides it.
const ROUNDS: usize = 10;
/// Time limit of a run.
const LIMIT: Duration = Duration::from_secs(120);
/// The recorder's script.
const SCRIPT: &str = include_str!("../../../tools/profile.stp");

/// A row of the table.
struct Row {
    name: &'static str,
    program: Program,
    args: [&'static str; 2],
    /// Number of events in a run.
    events: f64,
}

/// The programs that have the events.
#[derive(Clone, Copy)]
enum Program {
    Calls,
    Pi,
}

const fn row(name: &'static str, program: Program, args: [&'static str; 2], events: f64) -> Row {
    Row {
        name,
        program,
        args,
        events,
    }
}

/// The events, and a whole parallel program with many of them.
const ROWS: [Row; 5] = [
    row(
        "a system call (`getppid`)",
        Program::Calls,
        ["calls", "1000000"],
        1e6,
    ),
    row(
        "a switch, with a read and a write",
        Program::Calls,
        ["switches", "50000"],
        1e5,
    ),
    row("a page fault", Program::Calls, ["faults", "100000"], 1e5),
    row(
        "`fork`, `_exit` and `waitpid`",
        Program::Calls,
        ["forks", "2000"],
        2e3,
    ),
    row("pi, 8 threads, 400 regions", Program::Pi, ["8", "400"], 1.0),
];

/// A script with empty handlers at the probe points that the recorder always uses.
pub(crate) fn empty_script() -> String {
    let mut script = String::new();
    for probe in format!("\n{SCRIPT}").split("\nprobe ").skip(1) {
        let points = probe.split('{').next().unwrap_or_default().trim();
        let own = ["begin", "end", "timer"];
        if points.contains(" if (") || own.iter().any(|own| points.starts_with(own)) {
            continue;
        }
        script += &format!("probe {points} {{}}\n");
    }
    script
}

/// `spile` with [`empty_script`]; the command is its next argument.
pub(crate) fn empty_handlers() -> Tool {
    let spile = built("spile").display().to_string();
    Tool::new("empty handlers", &[&spile, "-e", &empty_script(), "-c"], "")
}

/// Runs the program; returns its processor time with its children, in nanoseconds for each event.
fn event_ns(before: &[String], command: &[&str], events: f64) -> Result<f64, String> {
    let mut argv: Vec<String> = before.to_vec();
    match before.last().map(String::as_str) {
        Some("-c") => argv.push(command.join(" ")),
        _ => argv.extend(command.iter().map(ToString::to_string)),
    }
    let mut run = std::process::Command::new(&argv[0]);
    run.args(&argv[1..]).env("OMP_WAIT_POLICY", "passive");
    let text = output(run, LIMIT);
    let seconds = text.lines().find_map(|l| l.strip_prefix("cpu "));
    let seconds: Option<f64> = seconds.and_then(|text| text.parse().ok());
    let seconds = seconds.ok_or_else(|| format!("{} does not run here", argv[..2].join(" ")))?;
    Ok(seconds * 1e9 / events)
}

/// Measures each event plain, with empty handlers and under `spile profile`, in turns.
pub(crate) fn run() {
    let programs = (
        compiled("profile-calls", "-pthread"),
        compiled("profile-pi", "-fopenmp"),
    );
    match programs {
        (Some(calls), Some(pi)) => table(&calls, &pi),
        _ => eprintln!("floor: no C compiler with OpenMP"),
    }
}

fn table(calls: &Path, pi: &Path) {
    let rounds = env_number("SPILE_ROUNDS", ROUNDS);
    let spile = built("spile").display().to_string();
    let ways: [Vec<String>; 3] = [
        vec!["/usr/bin/env".into()],
        empty_handlers().argv,
        [&*spile, "profile", "--"].map(String::from).to_vec(),
    ];
    println!(
        "processor time of an event, {rounds} rounds in turns: medians, and the least in brackets\n"
    );
    println!(
        "{:<36} {:>18} {:>20} {:>20}",
        "", "plain, ns", "empty handlers", "spile profile"
    );
    for row in ROWS {
        let program = match row.program {
            Program::Calls => calls,
            Program::Pi => pi,
        };
        let program = program.display().to_string();
        let command = [&*program, row.args[0], row.args[1]];
        let mut times: [Vec<f64>; 3] = Default::default();
        let mut problems = Vec::new();
        for _ in 0..rounds {
            for (way, times) in ways.iter().zip(&mut times) {
                match event_ns(way, &command, row.events) {
                    Ok(time) => times.push(time),
                    Err(why) => problems.push(why),
                }
            }
        }
        report(problems);
        let least = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
        let [plain, empty, ours] = times.map(|times| (median(times.clone()), least(&times)));
        let over =
            |(middle, low): (f64, f64)| format!("{:+.0} ({:+.0})", middle - plain.0, low - plain.1);
        let plain_text = format!("{:.0} ({:.0})", plain.0, plain.1);
        println!(
            "{:<36} {plain_text:>18} {:>20} {:>20}",
            row.name,
            over(empty),
            over(ours)
        );
    }
    println!();
}

#[cfg(test)]
mod tests {
    use super::empty_script;

    #[test]
    fn the_empty_script_has_the_events_of_the_recorder() {
        let script = empty_script();
        for point in [
            "probe syscall_any {}",
            "probe syscall_any.return {}",
            "probe scheduler.ctxswitch {}",
            "kernel.trace(\"sched_process_exec\")",
            "kernel.trace(\"exceptions:page_fault_user\")?",
            "perf.sw.minor_faults.sample(1), perf.sw.major_faults.sample(1) {}",
            "kernel.trace(\"irq:softirq_exit\") {}",
        ] {
            assert!(script.contains(point), "{point}: {script}");
        }
        for own in ["probe timer", "futex", "probe begin", "probe end", "@"] {
            assert!(!script.contains(own), "{own}: {script}");
        }
        assert!(script.lines().all(|line| !line.contains("//")));
    }
}
