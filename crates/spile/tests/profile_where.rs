//! `spile profile` says where time went: its figures are those of the programs' own clocks. The program is
//! `where.c` of `tests/programs`.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use serde_json::Value;

mod common;
use common::compiled;

/// The program, compiled once.
static WHERE: LazyLock<PathBuf> = LazyLock::new(|| compiled("where", "where", &["-g"]));

/// The program's run: the integers that it prints, and the places of the report.
struct Report {
    printed: Vec<u64>,
    places: Vec<Value>,
}

fn profile(args: &[&str]) -> Report {
    recorded(&[&["--", WHERE.to_str().unwrap()], args].concat())
}

fn recorded(args: &[&str]) -> Report {
    recorded_by(
        Command::new(env!("CARGO_BIN_EXE_spile"))
            .args(["profile", "--json", "--no-regions"])
            .args(args),
    )
}

fn recorded_by(spile: &mut Command) -> Report {
    let output = spile.output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    // The report goes to standard error, where the command writes nothing.
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    Report {
        printed: printed
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect(),
        places: report["places"].as_array().unwrap().clone(),
    }
}

/// The largest places.
impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let places = self.places.iter().take(5);
        places
            .into_iter()
            .try_for_each(|place| writeln!(f, "{place}"))
    }
}

impl Report {
    /// The time of the places with these fields.
    fn time(&self, fields: &[(&str, &str)]) -> u64 {
        let is = |place: &&Value| fields.iter().all(|(name, value)| place[name] == *value);
        let places = self.places.iter().filter(is);
        places.map(|place| place["time"].as_u64().unwrap()).sum()
    }

    /// Asserts that a time is that of the program's clock within this many percent.
    #[track_caller]
    fn agrees(&self, time: u64, clock: u64, percent: u64) {
        assert!(
            time.abs_diff(clock) * 100 <= clock * percent,
            "{time} of {clock}: {self}"
        );
    }

    /// Asserts that a time is that of waits by the program's clock, which also counts for how long the
    /// program's threads waited for a processor then.
    #[track_caller]
    fn waited(&self, time: u64, clock: u64) {
        let ready = self.time(&[("part", "runnable")]);
        assert!(time <= clock + clock / 20, "{time} of {clock}: {self}");
        assert!(
            time + ready >= clock - clock / 20,
            "{time} of {clock}: {self}"
        );
    }
}

#[test]
fn functions_have_their_share_of_the_processor() {
    let report = profile(&["functions"]);
    let running = |name| report.time(&[("function", name), ("part", "user")]);
    let (crunch, nibble) = (running("crunch"), running("nibble"));
    // 297 samples in 3 s, a fifth of them in `nibble`: 4 standard deviations are 28 samples.
    report.agrees(crunch, report.printed[0], 14);
    report.agrees(nibble, report.printed[1], 50);
    // Samples divide the measured time, and do not add to it.
    report.agrees(crunch + nibble, report.printed[0] + report.printed[1], 6);
}

/// Stacks that differ only in their outer functions stay apart, however long their text is.
#[test]
fn stacks_are_whole() {
    let program = compiled("where-deep", "where-deep", &["-g"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("deep.spile");
    let spile = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spile"));
        let output = command.args(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let file = file.to_str().unwrap();
    let program = program.to_str().unwrap();
    let printed = spile(&["profile", "--no-regions", "-o", file, "--", program]);
    let clocks: Vec<u64> = printed
        .split_whitespace()
        .map(|n| n.parse().unwrap())
        .collect();
    let folded = spile(&["report", file, "--export", "folded"]);
    let computing = folded.lines().filter(|line| line.contains(";crunch"));
    let mut times = [0; 2];
    for line in computing {
        let (path, ns) = line.rsplit_once(' ').unwrap();
        let side = ["left", "right"].map(|name| path.split(';').any(|f| f == name));
        let of = side
            .iter()
            .position(|is| *is)
            .unwrap_or_else(|| panic!("{folded}"));
        times[of] += ns.parse::<u64>().unwrap();
    }
    // 119 samples, 30 of them below `right`: 4 standard deviations are 19 samples.
    for (time, clock) in times.into_iter().zip(clocks) {
        assert!(
            time.abs_diff(clock) <= 200_000_000,
            "{time} of {clock}: {folded}"
        );
    }
}

#[test]
fn locks_have_their_waits_and_who_released_them() {
    let report = profile(&["lock"]);
    let lock = [
        ("object", "big_lock"),
        ("part", "blocked"),
        ("function", "update_index"),
    ];
    report.waited(report.time(&lock), report.printed[0]);
    let place = report
        .places
        .iter()
        .find(|p| p["object"] == "big_lock")
        .unwrap();
    assert_eq!(place["lock"], true, "{place}");
    let released = place["released_by"].as_str().unwrap();
    assert!(
        released.starts_with("`update_index` (where.c:"),
        "{released}"
    );
}

/// Threads that wait at a barrier of OpenMP do so asleep or spinning, as the policy says.
#[test]
fn barriers_have_their_waits_and_who_reached_them() {
    let program = compiled("uneven", "uneven", &["-g", "-fopenmp"]);
    for (policy, part) in [("passive", "blocked"), ("active", "user")] {
        let mut spile = Command::new(env!("CARGO_BIN_EXE_spile"));
        spile.args(["profile", "--json", "--"]).arg(&program);
        let report = recorded_by(spile.env("OMP_WAIT_POLICY", policy));
        let at = |place: &&Value| place["barrier"] == true && place["part"] == part;
        let Some(place) = report.places.iter().find(at) else {
            panic!("{policy}: {report}");
        };
        assert_eq!(place["function"], "main._omp_fn.0", "{place}");
        let line = place["location"].as_str().unwrap();
        assert!(line.starts_with("uneven.c:"), "{place}");
        let time = report.places.iter().filter(at);
        let time: u64 = time.map(|place| place["time"].as_u64().unwrap()).sum();
        // On a processor a sample stands for 10 ms.
        let clock: u64 = report.printed.iter().sum();
        let ready = report.time(&[("part", "runnable")]);
        assert!(
            time <= clock + clock / 4,
            "{policy}: {time} of {clock}: {report}"
        );
        assert!(
            time + ready >= clock - clock / 4,
            "{policy}: {time} of {clock}: {report}"
        );
    }
}

#[test]
fn waits_in_page_faults_have_their_place_and_file() {
    let report = profile(&["faults"]);
    let faults = [
        ("object", "/memfd:pages"),
        ("part", "blocked"),
        ("function", "touch"),
    ];
    report.waited(report.time(&faults), report.printed[0]);
}

#[test]
fn waits_have_their_pipe_peer_and_file() {
    let report = profile(&["pipe"]);
    let pipe = [
        ("object", "a pipe"),
        ("call", "read"),
        ("function", "receive"),
    ];
    report.waited(report.time(&pipe), report.printed[0]);

    let report = profile(&["peer"]);
    let peer = format!("127.0.0.1:{}", report.printed[1]);
    let peer = [
        ("object", &*peer),
        ("call", "read"),
        ("function", "receive"),
    ];
    report.waited(report.time(&peer), report.printed[0]);

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lock");
    let file = file.to_str().unwrap();
    let report = profile(&["file", file]);
    let flock = [("object", file), ("call", "flock"), ("function", "main")];
    report.waited(report.time(&flock), report.printed[0]);
}

#[test]
fn waits_say_what_for_and_who_ended_them() {
    let program = compiled("where-waits", "where-waits", &["-g", "-pthread"]);
    let report = recorded(&["--lock-sites", "--", program.to_str().unwrap()]);
    let kinds = [
        ("nap", "timer", None, None),
        ("hatch", "child", Some("sleep"), None),
        ("gather", "thread", None, None),
        (
            "take",
            "condition",
            Some("ready"),
            Some("`give` (where-waits.c:"),
        ),
        (
            "draw",
            "semaphore",
            Some("stock"),
            Some("`fill` (where-waits.c:"),
        ),
        (
            "stay",
            "semaphore",
            Some("made in stay (where-waits.c:"),
            None,
        ),
    ];
    for ((function, kind, object, ended_by), clock) in kinds.into_iter().zip(&report.printed) {
        let wait = [("function", function), ("waits_for", kind)];
        // The thread that naps while the first waits for its end only sleeps, and is left out.
        report.waited(report.time(&wait), *clock);
        let is = |p: &&Value| wait.iter().all(|(name, value)| p[name] == *value);
        let place = report.places.iter().find(is).unwrap();
        for (field, start) in [("object", object), ("released_by", ended_by)] {
            let text = place[field].as_str();
            assert_eq!(text.is_some(), start.is_some(), "{place}");
            assert!(
                text.unwrap_or_default()
                    .starts_with(start.unwrap_or_default()),
                "{place}"
            );
        }
    }
}

/// Records a process that waits, after it has printed a line. Its number, and the report.
fn attached(what: &str, seconds: &str) -> (String, Value) {
    let mut child = Command::new(&*WHERE)
        .arg(what)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    let pid = child.id().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["profile", "--json", "-d", seconds, "-p", &pid])
        .output()
        .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let report = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    (pid, report)
}

#[test]
fn a_hung_process_has_the_stacks_of_its_waits() {
    let (pid, report) = attached("hung", "0.5");
    let places = report["places"].as_array().unwrap().clone();
    let report = Report {
        printed: Vec::new(),
        places,
    };
    let waits = |fields: &[(&str, &str)]| report.time(&[fields, &[("part", "blocked")]].concat());
    let pipe = waits(&[
        ("object", "a pipe"),
        ("call", "read"),
        ("function", "receive"),
    ]);
    let lock = format!("config_lock (held by thread {pid})");
    let lock = waits(&[("object", &lock), ("call", "futex"), ("function", "reload")]);
    assert!(pipe >= 400_000_000 && lock >= 400_000_000, "{report}");
}

/// Two threads wait for each other's locks; the first thread sleeps again and again.
#[test]
fn threads_of_a_deadlock_waited_at_both_ends() {
    let (pid, report) = attached("deadlock", "1");
    let quiet = report["quiet"].as_array().unwrap();
    let first: u64 = pid.parse().unwrap();
    let locked = quiet.iter().filter(|t| t["thread"] != first);
    assert_eq!(locked.count(), 2, "{report}");
    for thread in quiet {
        let (begin, end) = (&thread["begin"], &thread["end"]);
        let functions = end["frames"].as_array().unwrap().iter();
        let functions: Vec<&str> = functions.filter_map(|f| f["function"].as_str()).collect();
        if thread["thread"] == first {
            // It may have been between two sleeps at one of the ends.
            assert!(
                ["same_place", "moved"].contains(&thread["stillness"].as_str().unwrap()),
                "{thread}"
            );
            assert!(thread["calls"].as_u64() > Some(1), "{thread}");
            continue;
        }
        assert_eq!(thread["stillness"], "one_wait", "{thread}");
        assert_eq!(begin, end);
        assert!(functions.contains(&"update"), "{thread}");
        let held = end["object"].as_str().unwrap();
        let tids = quiet.iter().map(|t| t["thread"].to_string());
        let own = thread["thread"].to_string();
        let other = tids.into_iter().find(|tid| ![&pid, &own].contains(&tid));
        let other = other.unwrap();
        assert!(
            held.contains("_lock (held by thread ") && held.contains(&other),
            "{thread}"
        );
    }
}
