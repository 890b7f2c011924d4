//! `spile profile --system` on the live kernel: the time of every processor adds up, and its counts
//! agree with the kernel's. The program is `tests/programs/lives.c`.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::process::Command;

use serde_json::Value;

mod common;
use common::{compiled, profile};

/// All numbers of a line of `/proc/interrupts`, `/proc/softirqs` or `/proc/stat`.
fn counts(text: &str, line: &str) -> u64 {
    let found = text.lines().find_map(|l| l.trim().strip_prefix(line));
    let numbers = found.unwrap_or_default().split_whitespace();
    numbers.map_while(|n| n.parse::<u64>().ok()).sum()
}

fn sum(rows: &Value, key: &str, wanted: impl Fn(&Value) -> bool) -> u64 {
    let rows = rows.as_array().unwrap().iter().filter(|r| wanted(r));
    rows.map(|r| r[key].as_u64().unwrap()).sum()
}

const FILES: [&str; 3] = ["interrupts", "softirqs", "stat"];

#[test]
fn a_machine_adds_up() {
    let dir = tempfile::tempdir().unwrap();
    let lives = compiled("lives", "lives-system", &[]);
    let at = |name: &str| dir.path().join(name).display().to_string();
    let copy = |to: &str| -> String {
        let copies = FILES.map(|f| format!("cat /proc/{f} > {}; ", at(&format!("{f}.{to}"))));
        copies.concat()
    };
    // The kernel's counts before and after the load, within the recording.
    let script = format!(
        "{}i=0; while [ $i -lt 20 ]; do {} calls 100000; i=$((i+1)); done; {}exit 3",
        copy("before"),
        lives.display(),
        copy("after")
    );
    let outer: Vec<String> = FILES
        .iter()
        .map(|f| std::fs::read_to_string(format!("/proc/{f}")).unwrap())
        .collect();
    let output = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["profile", "--system", "--json", "--", "sh", "-c", &script])
        .output()
        .unwrap();
    let after: Vec<String> = FILES
        .iter()
        .map(|f| std::fs::read_to_string(format!("/proc/{f}")).unwrap())
        .collect();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    let text = String::from_utf8_lossy(&output.stdout);
    let json = text.lines().find(|l| l.starts_with('{'));
    let system: Value = serde_json::from_str(json.expect(&said)).unwrap();

    // Each nanosecond of each processor is in one part.
    let cpus = system["cpus"].as_array().unwrap();
    assert!(!cpus.is_empty());
    let parts = [
        "user", "system", "faults", "irq", "softirq", "idle", "unseen",
    ];
    for cpu in cpus {
        let accounted: u64 = parts.iter().map(|p| cpu[p].as_u64().unwrap()).sum();
        let wall = cpu["wall"].as_u64().unwrap();
        assert!(accounted.abs_diff(wall) <= wall / 100, "{cpu}");
    }
    // And in one process, if one ran.
    let processes = &system["processes"];
    for part in ["user", "system", "faults"] {
        let of_cpus = sum(&system["cpus"], part, |_| true);
        assert_eq!(sum(processes, part, |_| true), of_cpus, "{part}");
    }
    let ours = |p: &Value| p["name"] == "lives-system";
    assert_eq!(
        processes
            .as_array()
            .unwrap()
            .iter()
            .filter(|p| ours(p))
            .count(),
        20,
        "{said}"
    );
    let user = sum(processes, "user", ours);
    let calls = sum(processes, "system", ours);
    assert!(user > 0 && calls > 0);
    assert!(user + calls <= sum(&system["cpus"], "wall", |_| true));

    // Its count lies between the kernel's counts within and around it, less reported losses and
    // hits on threads that are not shown.
    let interrupts = &system["interrupts"];
    let lost: u64 = system["lost"]
        .as_object()
        .unwrap()
        .values()
        .map(|n| n.as_u64().unwrap())
        .sum();
    let named = |name: &'static str| move |i: &Value| i["name"] == name;
    for (file, line, counted) in [
        (0, "LOC:", sum(interrupts, "count", named("local timer"))),
        (0, "RES:", sum(interrupts, "count", named("rescheduling"))),
        (1, "SCHED:", sum(interrupts, "count", named("SCHED"))),
        (1, "RCU:", sum(interrupts, "count", named("RCU"))),
        (2, "ctxt", sum(&system["cpus"], "switches", |_| true)),
    ] {
        let around = counts(&after[file], line) - counts(&outer[file], line);
        let [from, to] = ["before", "after"].map(|w| {
            let text = std::fs::read_to_string(at(&format!("{}.{w}", FILES[file]))).unwrap();
            counts(&text, line)
        });
        assert!(counted <= around, "{line} {counted} of {around}");
        let least = (to - from).saturating_sub(lost) * 8 / 10;
        assert!(
            counted >= least,
            "{line} {counted}, the kernel {}",
            to - from
        );
    }
}

/// Functions have their share of the processors, of the whole machine's.
#[test]
fn functions_divide_the_time_of_processes() {
    let program = compiled("shares/shares", "shares-system", &[]);
    let output = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["profile", "--system", "--json", "--freq", "499", "--"])
        .args([program.to_str().unwrap(), "2"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    let (own, json) = text.split_once('\n').expect(&said);
    let own: f64 = own.parse().expect(&text);
    let system: Value = serde_json::from_str(json).unwrap();
    let process = |p: &Value| p["name"] == "shares-system";
    let processes = system["processes"].as_array().unwrap();
    let pid = &processes.iter().find(|p| process(p)).expect(&said)["pid"];
    let of = |name: &str| {
        let is = |f: &Value| {
            f["pid"] == *pid && f["part"] == "user" && name.is_empty() | (f["function"] == *name)
        };
        sum(&system["functions"], "ns", is)
    };
    let user = sum(&system["processes"], "user", process);
    assert!(of("").abs_diff(user) <= user / 1000, "{} of {user}", of(""));
    let (heavy, light) = (of("heavy"), of("light"));
    // Some 1,000 samples: four standard deviations of a share of 75 %.
    let share = heavy as f64 / (heavy + light) as f64;
    assert!((share - own).abs() < 0.055, "{share} of {own}");
}

#[test]
fn the_report_is_printed_and_bad_commands_are_refused() {
    let run = |args: &[&str]| profile("--system", args);
    let (code, out, err) = run(&["-d", "0.2"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    for word in ["processor", "residual", "Interrupts", "Processes", "spile"] {
        assert!(out.contains(word), "{out}");
    }
    assert!(out.lines().all(|l| l.chars().count() <= 80), "{out}");
    // The command's time limit is over.
    let (code, out, err) = run(&["-d", "0.2", "--", "sleep", "1000"]);
    assert_eq!((code, out.as_str()), (Some(128 + 15), ""), "{err}");
    let (code, _, err) = run(&["--", "no-such-program"]);
    assert_eq!(code, Some(1));
    assert!(
        err.contains("no-such-program: there is no such program"),
        "{err}"
    );
    let (code, out, _) = run(&["--print-script"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("probe scheduler.ctxswitch"));
}
