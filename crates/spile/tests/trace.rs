//! `spile profile --trace` on the live kernel: the trace has each call that the account counts, and
//! what reads traces reads it. The program is `tests/programs/lives.c`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use spile_profile::file::read_path;
use spile_profile::model::{BLOCKED, Event, Profile, READY};

mod common;
use common::compiled;

// (Here no reader of npm is used.)
#[allow(dead_code)]
#[path = "../../profile/tests/readers/tools.rs"]
mod tools;

fn spile(args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(args)
        .output();
    output.unwrap()
}

/// The calls of the trace are those of the account, one by one.
#[track_caller]
fn complete(profile: &Profile) {
    let mut wanted: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for call in &profile.data.calls {
        let sum = wanted.entry((call.tid, call.call.clone())).or_default();
        sum.0 += call.count;
        sum.1 += call.total;
    }
    wanted.retain(|_, (count, _)| *count > 0);
    let open: Vec<_> = profile.events.iter().filter(|e| e.open).collect();
    for call in &profile.data.calls {
        let same = |e: &&&Event| e.tid == call.tid && e.call == call.call;
        let time = open.iter().find(same).map(|e| e.end_ns - e.start_ns);
        assert_eq!(time, call.unfinished, "{call:?} in {open:?}");
    }
    let mut found: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for event in profile.events.iter().filter(|e| !e.off() && !e.open) {
        let sum = found.entry((event.tid, event.call.clone())).or_default();
        sum.0 += 1;
        sum.1 += event.end_ns - event.start_ns;
    }
    let keys = found.keys().chain(wanted.keys());
    let wrong = keys.filter(|k| found.get(k) != wanted.get(k));
    let wrong: Vec<_> = wrong
        .map(|k| (k, found.get(k), wanted.get(k)))
        .take(9)
        .collect();
    assert!(wrong.is_empty(), "(call, (trace, account)): {wrong:?}");
    // Off its processor a thread is within one call, or outside of all.
    for thread in &profile.data.threads {
        let events = profile.events.iter().filter(|e| e.tid == thread.tid);
        let (off, mut calls): (Vec<_>, Vec<_>) = events.partition(|e| e.off());
        calls.sort_by_key(|e| e.start_ns);
        assert!(calls.windows(2).all(|w| w[0].end_ns <= w[1].start_ns));
        for span in off {
            let next = calls.partition_point(|c| c.end_ns <= span.start_ns);
            let inside = calls.get(next).is_none_or(|call| {
                span.end_ns <= call.start_ns
                    || call.start_ns <= span.start_ns && span.end_ns <= call.end_ns
            });
            assert!(inside, "{span:?} in {:?}", calls.get(next));
        }
    }
}

#[test]
fn each_call_is_there_and_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.spile");
    let file = file.to_str().unwrap();
    let lives = compiled("lives", "lives-trace", &[]);
    let lives = lives.to_str().unwrap();
    let output = spile(&[
        "profile", "--trace", "-o", file, "--", lives, "threads", "200",
    ]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let read = read_path(Path::new(file)).unwrap();
    assert!(read.notes.is_empty(), "{:?}", read.notes);
    let profile = read.profile;
    assert!(profile.header.options.trace);
    assert!(
        profile.data.lost.keys().all(|k| !k.starts_with("rows")),
        "{said}"
    );
    complete(&profile);
    // Who waits for something is ready before it runs again.
    for what in [BLOCKED, READY] {
        assert!(profile.events.iter().any(|e| e.call == what), "{what}");
    }

    // What others make of it.
    let out = dir.path().join("otf2");
    let out = out.to_str().unwrap();
    let chrome = dir.path().join("trace.json");
    let chrome = chrome.to_str().unwrap();
    let page = dir.path().join("page.html");
    for (args, format, path) in [
        (["report", "--export", "otf2", "-o", out, file], "otf2", out),
        (
            ["report", "--export", "chrome", "-o", chrome, file],
            "chrome",
            chrome,
        ),
    ] {
        let output = spile(&args);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("../profile/tests/readers/check.py");
        let mut command = Command::new(&tools::tools().python);
        command.arg(check).args([format, path]);
        let found: serde_json::Value = serde_json::from_str(&tools::output(&mut command)).unwrap();
        let of = |call: &str| -> u64 {
            let events = profile.events.iter().filter(|e| e.call == call);
            events.map(|e| e.end_ns - e.start_ns).sum()
        };
        let clone = profile.events.iter().find(|e| e.call.starts_with("clone"));
        for call in ["getppid", "exit", &clone.unwrap().call] {
            let got = found["exclusive"][call].as_u64().unwrap_or_default();
            // Each event's time is rounded in microseconds with decimals.
            assert!(got.abs_diff(of(call)) <= 1000, "{format} {call}: {got}");
        }
    }
    let html = page.to_str().unwrap();
    assert!(spile(&["report", "--html", html, file]).status.success());
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.contains("\"events\":[[") && html.contains("(blocked)"));
}

#[test]
fn what_had_not_ended_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.spile");
    let file = file.to_str().unwrap();
    let lives = compiled("lives", "lives-open", &[]);
    let lives = lives.to_str().unwrap();
    let of = |args: &[&str]| {
        let output = spile(&[&["profile", "--trace", "-o", file], args].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let profile = read_path(Path::new(file)).unwrap().profile;
        complete(&profile);
        let open = profile.events.iter().filter(|e| e.open).cloned();
        (open.collect::<Vec<_>>(), profile)
    };
    // A thread that becomes its leader never leaves its call under its own number.
    let (open, profile) = of(&["--", lives, "exec-thread"]);
    let mut calls: Vec<&str> = open.iter().map(|e| &*e.call).collect();
    calls.sort_unstable();
    // The two that wait are killed where they are.
    assert_eq!(calls, ["execve", "pause", "pause"], "{open:?}");
    for event in &open {
        let thread = profile.data.threads.iter().find(|t| t.tid == event.tid);
        let ended = thread.unwrap().ended_ns.unwrap();
        match &*event.call {
            "execve" => assert_eq!(ended, event.end_ns),
            _ => assert!(ended >= event.end_ns, "{event:?}"),
        }
    }
    // What waits when the recording ends is off its processor in the call.
    let (open, profile) = of(&["-d", "0.5", "--", lives, "wait"]);
    let mut calls: Vec<&str> = open.iter().map(|e| &*e.call).collect();
    calls.sort_unstable();
    assert_eq!(calls, [BLOCKED, BLOCKED, "pause", "pause"], "{open:?}");
    assert!(open.iter().all(|e| e.end_ns == profile.data.at_ns));
}

#[test]
fn a_trace_wants_a_file() {
    let output = spile(&["profile", "--trace", "--", "true"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--trace writes to a file"), "{said}");
}
