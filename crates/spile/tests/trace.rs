//! `spile profile --trace` on the live kernel: the trace has each call that the account counts, and
//! readers of traces can read it. The program is `tests/programs/lives.c`.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::{Command, Output};

use spile_profile::file::read_path;
use spile_profile::model::{BLOCKED, ContextKind, Ns, Profile, READY, TimedEvent};
use spile_profile::timeline::{TimeSpan, timelines};

mod common;
use common::{compiled, compiled_by};

// (This test uses no reader from npm.)
#[allow(dead_code)]
#[path = "../../profile/tests/readers/tools.rs"]
mod tools;

fn spile(args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(args)
        .output();
    output.unwrap()
}

/// Asserts that the calls of the trace are those of the account, one by one.
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
        let same = |e: &&&TimedEvent| e.tid == call.tid && e.call == call.call;
        let time = open.iter().find(same).map(|e| e.end_ns - e.start_ns);
        assert_eq!(time, call.unfinished, "{call:?} in {open:?}");
    }
    let mut found: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    let calls = profile.events.iter();
    for event in calls.filter(|e| !e.is_off_cpu() && !e.region() && !e.open) {
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
    // A time off the processor is within one call, or outside of all.
    for thread in &profile.data.threads {
        let events = profile.events.iter();
        let events = events.filter(|e| e.tid == thread.tid && !e.region());
        let (off, mut calls): (Vec<_>, Vec<_>) = events.partition(|e| e.is_off_cpu());
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
fn each_call_is_recorded_and_read_back() {
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
    // A thread that waited is ready before it runs again.
    for what in [BLOCKED, READY] {
        assert!(profile.events.iter().any(|e| e.call == what), "{what}");
    }

    // The readers' view.
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
    assert!(html.contains("\"events\":[[") && html.contains("\"kind\":\"off\""));
}

#[test]
fn unfinished_calls_are_recorded() {
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
    // A thread that becomes its leader never leaves its call under its own id.
    let (open, profile) = of(&["--", lives, "exec-thread"]);
    let mut calls: Vec<&str> = open.iter().map(|e| &*e.call).collect();
    calls.sort_unstable();
    // The two waiting threads are killed in their calls.
    assert_eq!(calls, ["execve", "pause", "pause"], "{open:?}");
    for event in &open {
        let thread = profile.data.threads.iter().find(|t| t.tid == event.tid);
        let ended = thread.unwrap().ended_ns.unwrap();
        match &*event.call {
            "execve" => assert_eq!(ended, event.end_ns),
            _ => assert!(ended >= event.end_ns, "{event:?}"),
        }
    }
    // A thread that waits when the recording ends is off its processor in the call.
    let (open, profile) = of(&["-d", "0.5", "--", lives, "wait"]);
    let mut calls: Vec<&str> = open.iter().map(|e| &*e.call).collect();
    calls.sort_unstable();
    assert_eq!(calls, [BLOCKED, BLOCKED, "pause", "pause"], "{open:?}");
    assert!(open.iter().all(|e| e.end_ns == profile.data.at_ns));
}

/// Runs a command with a trace.
#[track_caller]
fn traced(command: &[&str]) -> Profile {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.spile");
    let options = ["profile", "--trace", "-o", file.to_str().unwrap(), "--"];
    let output = spile(&[&options, command].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    let read = read_path(&file).unwrap_or_else(|e| panic!("{e:?}: {said}"));
    assert!(read.notes.is_empty(), "{said}");
    read.profile
}

/// Number of lost changes of regions.
fn changes_lost(profile: &Profile) -> u64 {
    let lost = profile.data.lost.iter();
    let lost = lost.filter(|(what, _)| what.starts_with("changes of regions"));
    lost.map(|(_, n)| n).sum()
}

/// Asserts that the intervals of each thread and region are those that the library counted: as many
/// as entries, and with the exclusive time. Each call is in the region in which it was made.
#[track_caller]
fn intervals_are_those_of_the_account(profile: &Profile) {
    let regions = |tid: u32| -> Vec<&TimedEvent> {
        let all = profile.events.iter();
        all.filter(|e| e.tid == tid && e.region())
            .take(20)
            .collect()
    };
    let mut found: HashMap<(u32, u32), (u64, Ns)> = HashMap::new();
    for (tid, spans) in timelines(profile) {
        let mut inside: Vec<&TimedEvent> = Vec::new();
        for span in spans {
            while inside.pop_if(|e| e.end_ns <= span.event.start_ns).is_some() {}
            if !span.event.region() {
                let around = span.event.context;
                let within = found.keys().any(|(t, c)| (*t, *c) == (tid, around));
                // (Another process can be scheduled between the clock reading and the write of the
                // word.)
                assert!(around == 0 || within, "{span:?} in {:?}", regions(tid));
                continue;
            }
            let length = span.event.end_ns - span.event.start_ns;
            let own = found.entry((tid, span.event.context)).or_default();
            (own.0, own.1) = (own.0 + 1, own.1 + length);
            if let Some(outer) = inside.last() {
                assert!(span.event.end_ns <= outer.end_ns, "{span:?} in {outer:?}");
                found.get_mut(&(tid, outer.context)).unwrap().1 -= length;
            }
            inside.push(span.event);
        }
    }
    assert!(!found.is_empty());
    for time in &profile.data.context_times {
        let (count, ns) = found[&(time.tid, time.context)];
        // (A forked child did not enter the regions that it begins in.)
        assert!(
            count == time.entries || time.entries == 0,
            "{count}: {time:?}"
        );
        let apart = 20_000 + time.wall / 500;
        assert!(ns.abs_diff(time.wall) <= apart, "{ns}: {time:?}");
    }
    assert_eq!(found.len(), profile.data.context_times.len());
}

/// The names of the regions around each call of a name, the outermost first.
fn around(profile: &Profile, call: &str) -> Vec<Vec<String>> {
    let name = |id: u32| {
        let row = profile.data.contexts.iter().find(|c| c.id == id);
        row.map_or("?", |c| c.name.as_str()).to_owned()
    };
    let mut out = Vec::new();
    for spans in timelines(profile).into_values() {
        let mut inside = Vec::new();
        for span in spans {
            inside.retain(|(_, end)| *end > span.start);
            if span.event.region() {
                inside.push((name(span.event.context), span.end));
            } else if span.event.call == call {
                out.push(inside.iter().map(|(name, _)| name.clone()).collect());
            }
        }
    }
    out
}

/// A time in which a thread was blocked, with the thread and the name of the call around it.
type Wait<'a> = (u32, &'a str, TimeSpan<'a>);

/// The calls of a trace, and the waits.
fn calls_and_waits(profile: &Profile) -> (Vec<Wait<'_>>, Vec<Wait<'_>>) {
    let (mut calls, mut waits) = (Vec::new(), Vec::new());
    for (tid, spans) in timelines(profile) {
        let mut around = ("", 0);
        for span in spans {
            match span.event.call.as_str() {
                BLOCKED if span.end <= around.1 => waits.push((tid, around.0, span)),
                call if !span.event.is_off_cpu() => {
                    around = (call, span.end);
                    calls.push((tid, call, span));
                }
                _ => {}
            }
        }
    }
    (calls, waits)
}

#[test]
fn the_waker_of_each_wait_is_known() {
    let program = compiled("where", "where-trace", &[]);
    let profile = traced(&[program.to_str().unwrap(), "lock"]);
    let (calls, waits) = calls_and_waits(&profile);
    let leader = profile.header.pid.unwrap();
    let of = |name: &str, by_leader: bool| -> Vec<&Wait> {
        let all = waits.iter();
        all.filter(|(tid, call, _)| *call == name && (*tid == leader) == by_leader)
            .collect()
    };
    // Three threads take a lock twenty times each, and sleep with it for 10 ms: each time the two others wait.
    let locks = of("futex", false);
    assert!(locks.len() >= 40, "{waits:?}");
    // (The clocks of two processors can differ.)
    const APART: Ns = 1_000_000;
    let mut after_sleep = 0;
    for (tid, _, wait) in &locks {
        let waker = wait.event.waker.unwrap_or_default();
        assert!(waker != *tid && waker != leader, "{wait:?} in {waits:?}");
        let overlaps = |call: &TimeSpan| call.start < wait.end + APART && call.end > wait.start;
        let woke = |(tid, call, span): &Wait| *tid == waker && *call == "futex" && overlaps(span);
        assert!(calls.iter().any(woke), "{wait:?} in {calls:?}");
        let slept = |(tid, call, sleep): &Wait| {
            let within = wait.start < sleep.end && sleep.end < wait.end + APART;
            *tid == waker && *call == "clock_nanosleep" && within
        };
        after_sleep += usize::from(waits.iter().any(slept));
    }
    assert!(after_sleep * 2 > locks.len(), "{after_sleep}: {waits:?}");
    // The end of a thread wakes the one that joins it.
    for (_, _, wait) in of("futex", true) {
        assert!(wait.event.waker.is_some_and(|w| w != leader), "{wait:?}");
    }
    // Timers end sleeps.
    let sleeps = of("clock_nanosleep", false);
    let by_none = sleeps.iter().filter(|(_, _, w)| w.event.waker.is_none());
    assert!(by_none.count() * 10 >= sleeps.len() * 9, "{sleeps:?}");
}

#[test]
fn regions_are_intervals() {
    let include = format!("-I{}/../../include", env!("CARGO_MANIFEST_DIR"));
    let times = compiled("region-times", "region-times-trace", &[&include]);
    let times = times.to_str().unwrap();
    // Those of a killed process as well.
    for (what, intervals) in [("plain", 10), ("killed", 11)] {
        let profile = traced(&[times, what]);
        intervals_are_those_of_the_account(&profile);
        complete(&profile);
        let regions = profile.events.iter().filter(|e| e.region());
        assert_eq!(regions.count(), intervals, "{what}");
        // Five sleeps, each in the region around it.
        let sleeps = around(&profile, "clock_nanosleep");
        assert_eq!(sleeps, vec![["work", "nap"]; 5], "{what}");
        assert_eq!(changes_lost(&profile), 0);
    }
    let profile = traced(&[times, "fork"]);
    intervals_are_those_of_the_account(&profile);
    let waits = around(&profile, "wait4");
    assert_eq!(waits, [["around"]]);
    // More changes than the ring holds: lost ones are counted, and the others are consistent.
    let profile = traced(&[times, "fast", "100000"]);
    let entries: u64 = profile.data.context_times.iter().map(|t| t.entries).sum();
    assert_eq!(entries, 800_000);
    let intervals = profile.events.iter().filter(|e| e.region()).count() as u64;
    assert!(intervals > 0 && intervals <= entries, "{intervals}");
    assert!(
        intervals == entries || changes_lost(&profile) > 0,
        "{intervals}"
    );
}

#[test]
fn barriers_of_openmp_are_intervals() {
    let dir = tempfile::tempdir().unwrap();
    for compiler in ["gcc", "clang"] {
        let program = dir.path().join(compiler);
        compiled_by(compiler, "profile-pi", &program, &["-fopenmp"]);
        let profile = traced(&[program.to_str().unwrap(), "2", "20"]);
        intervals_are_those_of_the_account(&profile);
        let named = |kind| {
            let rows = profile.data.contexts.iter().filter(move |c| c.kind == kind);
            let ids: Vec<u32> = rows.map(|c| c.id).collect();
            let all = profile.events.iter().filter(|e| e.region());
            all.filter(|e| ids.contains(&e.context)).count()
        };
        // Two threads in twenty regions.
        assert_eq!(named(ContextKind::OmpRegion), 40, "{compiler}");
        assert!(named(ContextKind::OmpBarrier) >= 40, "{compiler}");
    }
}

#[test]
fn calls_of_mpi_are_intervals() {
    let dir = tempfile::tempdir().unwrap();
    for kind in ["openmpi", "mpich"] {
        let program = dir.path().join(kind);
        compiled_by(&format!("mpicc.{kind}"), "barriers", &program, &[]);
        let folder = dir.path().join(format!("{kind}.d"));
        let mut command = Command::new(format!("mpirun.{kind}"));
        if kind == "openmpi" {
            command.args(["--allow-run-as-root", "--oversubscribe"]);
        }
        command.args(["-n", "2", env!("CARGO_BIN_EXE_spile"), "profile"]);
        command.args(["--trace", "-o"]).arg(&folder).arg("--");
        let output = command.arg(&program).args(["20", "60"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{kind}: {said}");
        for file in std::fs::read_dir(&folder).unwrap().flatten() {
            intervals_are_those_of_the_account(&read_path(&file.path()).unwrap().profile);
        }
        let archive = dir.path().join(format!("{kind}.otf2"));
        let (archive, folder) = (archive.to_str().unwrap(), folder.to_str().unwrap());
        let output = spile(&["report", "--export", "otf2", "-o", archive, folder]);
        assert!(output.status.success(), "{output:?}");
        let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("../profile/tests/readers/check.py");
        let mut command = Command::new(&tools::tools().python);
        command.arg(check).args(["otf2", archive]);
        let found: serde_json::Value = serde_json::from_str(&tools::output(&mut command)).unwrap();
        assert_eq!(found["kinds"]["MPI_Barrier"], "MPI BARRIER");
        assert_eq!(found["paths"]["MPI_Barrier"], 6, "{found}");
        // It makes other calls while it waits.
        let inside = found["paths"].as_object().unwrap().keys();
        assert!(inside.filter(|p| p.starts_with("MPI_Barrier > ")).count() > 0);
    }
}

#[test]
fn a_trace_wants_a_file() {
    let output = spile(&["profile", "--trace", "--", "true"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--trace needs a file"), "{said}");
}
