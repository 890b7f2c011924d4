//! Exports, each read by the program that the format is for. Readers that are not packages of the
//! system are installed below the target directory at their first use.

mod browser;
mod firefox;
mod flame;
mod page;
mod samples;
#[path = "../testgen/mod.rs"]
mod testgen;
mod tools;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use spile_profile::export::{ExportFormat, FORMATS};
use spile_profile::run::ContextIndex;
use spile_profile::{BLOCKED, PREEMPTED, READY, Run, TimedEvent};
use tools::{output, tools};

/// Four ranks on two nodes.
fn four() -> Run {
    Run::new((0..4).map(|rank| testgen::example(rank, 4, 3)).collect())
}

/// Names that break formats; numbers up to the largest signed ones.
fn odd(seed: u64) -> Run {
    let mut profiles = Vec::new();
    for seed in [seed, seed + 1] {
        let mut profile = testgen::random(seed, 9);
        profile.data.at_ns %= 1 << 40;
        for thread in &mut profile.data.threads {
            thread.started_ns = 0;
            thread.ended_ns = None;
        }
        for call in &mut profile.data.calls {
            call.total %= 1 << 40;
            call.count %= 1 << 40;
            call.unfinished = call.unfinished.map(|ns| ns % (1 << 40));
        }
        for event in &mut profile.events {
            event.start_ns %= 1 << 40;
            event.end_ns = event.start_ns + event.end_ns % (1 << 20);
        }
        profiles.push(profile);
    }
    Run::new(profiles)
}

/// Writes an export to a folder; returns the folder or the path of the only file.
fn put(run: &Run, format: &str, folder: &Path) -> PathBuf {
    let format = ExportFormat::named(format).expect("a format");
    let files = format.export(run).expect("an export");
    for (name, bytes) in &files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, bytes).expect("a file");
    }
    match &files[..] {
        [(name, _)] if !format.folder => folder.join(name),
        _ => folder.to_owned(),
    }
}

/// The content that a format's reader found in an export.
fn check(run: &Run, format: &str) -> Value {
    let folder = tempfile::tempdir().expect("a folder");
    let path = put(run, format, folder.path());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers/check.py");
    let mut command = Command::new(&tools().python);
    command.args([script.as_path(), Path::new(format), &path]);
    if format == "speedscope" {
        command.arg(tools().speedscope.join("file-format-schema.json"));
    }
    serde_json::from_str(&output(&mut command)).expect("JSON")
}

/// Time by system call in the model.
fn by_call(run: &Run) -> BTreeMap<String, u64> {
    let calls = run.summary().calls;
    calls.iter().map(|c| (c.name.clone(), c.time())).collect()
}

/// Time by the names in traces: calls, and regions by the last component of their paths, up to
/// their location.
fn by_event(run: &Run) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for profile in &run.profiles {
        let contexts = ContextIndex::new(profile);
        for event in &profile.events {
            let name = match event.region() {
                true => contexts.path(event.context).pop().unwrap_or_default(),
                false => event.call.clone(),
            };
            let name = name.split(" (").next().unwrap_or_default().to_owned();
            *sums.entry(name).or_default() += event.end_ns - event.start_ns;
        }
    }
    sums
}

/// Asserts that the times are as expected, up to `slack`.
fn same(found: &Value, expected: &BTreeMap<String, u64>, slack: u64) {
    for (call, time) in expected {
        let got = found["exclusive"][call].as_u64().unwrap_or_default();
        assert!(got.abs_diff(*time) <= slack, "{call}: {got} for {time}");
    }
}

fn wall(run: &Run) -> u64 {
    run.summary().total.wall
}

#[test]
fn hatchet_reads_tau() {
    let run = four();
    let found = check(&run, "tau");
    // Rounded to microseconds at each point.
    let expected = by_call(&run);
    let us = expected
        .iter()
        .map(|(k, v)| (k.clone(), v / 1000))
        .collect();
    same(&found, &us, 60);
    let inclusive = found["inclusive"].as_u64().expect("a number");
    assert!(inclusive.abs_diff(wall(&run) / 1000) < 60, "{inclusive}");
    assert_eq!(found["lines"]["barrier of reduce"], 48, "{found}");
    for seed in 0..3 {
        check(&odd(seed), "tau");
    }
}

#[test]
fn hatchet_reads_hatchet() {
    for format in ["hatchet", "hatchet-literal"] {
        let run = four();
        let found = check(&run, format);
        same(&found, &by_call(&run), 0);
        assert_eq!(found["inclusive"], wall(&run));
        assert_eq!(found["lines"]["barrier of reduce (pi.c:48)"], 48, "{found}");
        for seed in 0..3 {
            check(&odd(seed), format);
        }
    }
}

#[test]
fn speedscope_matches_its_schema() {
    let run = four();
    same(&check(&run, "speedscope"), &by_call(&run), 0);
    for seed in 0..3 {
        check(&odd(seed), "speedscope");
    }
}

#[test]
fn libotf2_reads_otf2() {
    let run = four();
    let found = check(&run, "otf2");
    same(&found, &by_event(&run), 0);
    assert_eq!(found["locations"].as_object().map(|l| l.len()), Some(12));
    let first = run.profiles[0].events.iter().filter(|e| e.tid == 4000);
    assert_eq!(
        found["locations"]["node1/rank 0/4000 pi"],
        first.count() * 2
    );
    assert!(
        found["regions"]["futex pi.c:48"].as_u64() > Some(0),
        "{found}"
    );
    // The kinds of regions, and the calls within them.
    for (name, what) in [
        ("MPI_Allreduce", "MPI COLL_ALL2ALL"),
        ("parallel reduce", "OPENMP PARALLEL"),
        ("barrier of reduce", "OPENMP BARRIER"),
        ("poll", "USER FUNCTION"),
    ] {
        assert_eq!(found["kinds"][name], what, "{found}");
    }
    // (Twelve threads with at most twelve calls each; one of each rank calls MPI.)
    for (within, count) in [
        ("MPI_Allreduce > poll", 4 * 9),
        ("parallel reduce > barrier of reduce > futex", 12 * 12),
        ("parallel main > barrier of main > futex", 12 * 12),
        ("read", 4 * 12),
    ] {
        assert_eq!(found["paths"][within], count, "{within}: {found}");
    }
    for seed in 0..3 {
        check(&odd(seed), "otf2");
    }
}

#[test]
fn libotf2_reads_a_long_trace() {
    // More than a chunk of events, and of definitions.
    let mut profile = testgen::example(0, 1, 1);
    let event = profile.events[0].clone();
    profile.events = (0..60_000)
        .map(|i| {
            let mut event = event.clone();
            event.start_ns = i * 10;
            event.end_ns = i * 10 + 7;
            if i < 30_000 {
                event.call = format!("{i:0200}");
            }
            event
        })
        .collect();
    let run = Run::new(vec![profile]);
    let found = check(&run, "otf2");
    assert_eq!(found["events"], 120_000);
    same(&found, &by_event(&run), 0);
}

#[test]
fn times_off_a_processor_are_within_their_calls() {
    let mut profile = testgen::example(0, 1, 1);
    let calls = profile.events.clone();
    profile.events.clear();
    for call in calls.into_iter().filter(|e| !e.region()) {
        // Consecutive times within a call up to its end, and times outside of calls.
        let length = (call.end_ns - call.start_ns) / 4;
        for (name, start) in [
            (BLOCKED, call.start_ns + length),
            (READY, call.start_ns + length + length.min(100_000)),
            (PREEMPTED, call.end_ns - length),
            (PREEMPTED, call.end_ns),
        ] {
            profile.events.push(TimedEvent {
                call: name.to_owned(),
                start_ns: start,
                end_ns: start + length.min(100_000),
                ..call.clone()
            });
        }
        profile.events.push(call);
    }
    let run = Run::new(vec![profile]);
    for (format, slack) in [("otf2", 0), ("chrome", 2000)] {
        let found = check(&run, format);
        same(&found, &by_event(&run), slack);
    }
}

#[test]
fn unfinished_events_end_with_the_trace() {
    let mut profile = testgen::example(0, 1, 1);
    let last = profile.events.iter().map(|e| e.end_ns).max();
    let first = last.unwrap_or(0) + 1000;
    profile.events = vec![
        TimedEvent {
            tid: profile.data.threads[0].tid,
            call: "futex".to_owned(),
            start_ns: first,
            end_ns: first + 5000,
            open: true,
            ..TimedEvent::default()
        };
        2
    ];
    profile.events[1].call = BLOCKED.to_owned();
    profile.events[1].start_ns += 1000;
    let run = Run::new(vec![profile]);
    let found = check(&run, "otf2");
    assert_eq!(found["exclusive"]["futex (unfinished)"], 5000, "{found}");
    let off = &found["exclusive"]["(blocked) (unfinished)"];
    assert_eq!(off, 4000, "{found}");
    let found = check(&run, "chrome");
    assert_eq!(found["exclusive"]["futex"], 5000, "{found}");
    assert_eq!(found["unfinished"], 2, "{found}");
}

#[test]
fn wakeups_lead_from_thread_to_thread() {
    let mut profile = testgen::example(0, 1, 2);
    let [waker, woken] = [0, 1].map(|n: usize| profile.data.threads[n].tid);
    let call = |tid, call: &str, waker| TimedEvent {
        tid,
        call: call.to_owned(),
        start_ns: 1_000,
        end_ns: 2_000,
        waker,
        ..TimedEvent::default()
    };
    profile.events = vec![
        call(waker, "futex", None),
        call(woken, "futex", None),
        call(woken, BLOCKED, Some(waker)),
        call(waker, BLOCKED, None),
    ];
    let run = Run::new(vec![profile]);
    let found = check(&run, "chrome");
    assert_eq!(found["wakeups"], serde_json::json!([[waker, woken]]));
    let (_, bytes) = file(&run, "firefox");
    let value: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
    let wakers = |thread: usize| {
        let markers = value["threads"][thread]["markers"]["data"].as_array();
        let named = |data: &serde_json::Value| Some(data.get("waker")?.as_str()?.to_owned());
        markers
            .expect("markers")
            .iter()
            .filter_map(named)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (wakers(0), wakers(1)),
        (vec![], vec![format!("{waker} pi")])
    );
}

#[test]
fn chrome_matches_its_description() {
    let run = four();
    let found = check(&run, "chrome");
    same(&found, &by_event(&run), 100);
    assert!(found["names"].to_string().contains("rank 3 on node2"));
    for (within, count) in [
        ("MPI_Allreduce > poll", 4 * 9),
        (
            "parallel reduce (pi.c:48) > barrier of reduce (pi.c:48) > futex",
            12 * 12,
        ),
    ] {
        assert_eq!(found["paths"][within], count, "{within}: {found}");
    }
    assert_eq!(found["kinds"]["mpi"], 36);
    assert_eq!(found["kinds"]["openmp"], 2 * 144 + 2 * 12);
    for seed in 0..3 {
        check(&odd(seed), "chrome");
    }
}

/// The output of `go tool pprof` for a run.
fn pprof(run: &Run, options: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = put(run, "pprof", folder.path());
    let mut command = Command::new("go");
    command.args(["tool", "pprof"]).args(options).arg(path);
    // Without the user's settings, and without a search for binaries.
    command.env("PPROF_TMPDIR", folder.path());
    output(&mut command)
}

#[test]
fn go_reads_pprof() {
    let run = four();
    let all = [
        "-top",
        "-unit=ns",
        "-nodecount=0",
        "-nodefraction=0",
        "-edgefraction=0",
    ];
    let text = pprof(&run, &all);
    for (call, time) in by_call(&run) {
        let line = text.lines().find(|l| l.ends_with(&format!("  {call}")));
        let line = line.unwrap_or_else(|| panic!("{call} in {text}"));
        let flat = line.split_whitespace().next().unwrap_or_default();
        assert_eq!(flat, format!("{time}ns"), "{line}");
    }
    let of_one = pprof(
        &run,
        &[
            "-top",
            "-nodefraction=0",
            "-tagfocus=rank=rank 3",
            "-sample_index=calls",
        ],
    );
    let calls = &run.profiles[3].data.calls;
    let count: u64 = calls
        .iter()
        .map(|c| c.count + u64::from(c.unfinished.is_some()))
        .sum();
    assert!(
        of_one.contains(&format!("Showing nodes accounting for {count}, ")),
        "{of_one}"
    );
    for seed in 0..3 {
        pprof(&odd(seed), &["-top"]);
    }
}

/// The single file of a format.
fn file(run: &Run, format: &str) -> (String, Vec<u8>) {
    let format = ExportFormat::named(format).expect("a format");
    format.export(run).expect("an export").remove(0)
}

#[test]
fn speedscope_reads_folded() {
    let run = four();
    let (name, bytes) = file(&run, "folded");
    let shown = browser::speedscope(&name, &bytes);
    for (call, time) in by_call(&run) {
        let row = shown.iter().find(|(name, _)| *name == call);
        let (_, own) = row.unwrap_or_else(|| panic!("{call} in {shown:?}"));
        assert_eq!(own.replace(',', ""), time.to_string(), "{call}");
    }
    let (name, bytes) = file(&odd(1), "folded");
    assert!(browser::speedscope(&name, &bytes).len() > 1);
}

#[test]
fn speedscope_reads_speedscope_and_chrome() {
    let run = four();
    for format in ["speedscope", "chrome"] {
        let (name, bytes) = file(&run, format);
        let shown = browser::speedscope(&name, &bytes);
        // For several threads it first shows a list of times and titles.
        for rank in run.profiles.iter().map(spile_profile::Profile::title) {
            let of_rank = |text: &str| text.starts_with(&rank);
            let rows = shown.iter().filter(|(_, title)| of_rank(title));
            assert_eq!(rows.count(), 3, "{format}: {rank} in {shown:?}");
        }
    }
}

#[test]
fn traces_need_a_trace() {
    let mut run = four();
    for profile in &mut run.profiles {
        profile.events.clear();
    }
    for format in &FORMATS {
        assert_eq!(
            format.export(&run).is_err(),
            format.trace,
            "{}",
            format.name
        );
        assert!(format.trace || format.export(&Run::default()).is_ok());
    }
}
