//! `spile profile` counts events by function and region (`--event`), and moves between processors, close to
//! their known numbers. The programs are `touches.c` and `moves.c` of `tests/programs`.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::process::Command;

use serde_json::Value;

mod common;
use common::compiled;
use common::regions::include;

/// Page faults of a round in `once`; `thrice` has three times as many.
const PAGES: u64 = 400;

/// Runs `spile profile`, and gives its standard error.
fn profile(options: &[&str], command: &[&str]) -> String {
    let spile = Command::new(env!("CARGO_BIN_EXE_spile"))
        .arg("profile")
        .args(options)
        .arg("--")
        .args(command)
        .output();
    String::from_utf8(spile.unwrap().stderr).unwrap()
}

/// Whether a place has that name; regions have their lines behind it.
fn is_named(found: &Value, name: &str) -> bool {
    let found = found.as_str().unwrap();
    found == name || found.starts_with(&format!("{name} ("))
}

/// The number of an event in the place of that name, and its samples.
fn number(places: &Value, key: &str, name: &str, event: &str) -> (u64, u64) {
    let places = places.as_array().unwrap().iter();
    let count = places
        .filter(|place| is_named(&place[key], name))
        .map(|place| &place["counts"][event]);
    let number = |count: &Value, key: &str| count[key].as_u64().unwrap();
    count.fold((0, 0), |sum, count| {
        (
            sum.0 + number(count, "events"),
            sum.1 + number(count, "samples"),
        )
    })
}

#[test]
fn page_faults_are_counted_by_function_and_region() {
    let program = compiled("touches", "touches", &["-g", &include()]);
    let rounds = 250;
    let command = [program.to_str().unwrap(), &rounds.to_string()];
    let list = "cpu-clock,page-faults,context-switches";
    let text = profile(&["--json", "--event", list], &command);
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let events = &report["events"];
    for (places, key) in [("functions", "function"), ("regions", "name")] {
        let of = |name| number(&events[places], key, name, "page-faults");
        let ((once, samples), (thrice, more)) = (of("once"), of("thrice"));
        // A sample for 101 faults, and some that hit while the processor had another event.
        let close = |n: u64, known: u64| n > known * 9 / 10 && n < known * 11 / 10;
        assert!(close(once, PAGES * rounds), "{once} {events}");
        assert!(close(thrice, 3 * PAGES * rounds), "{thrice} {events}");
        assert_eq!((once, thrice), (samples * 101, more * 101));
    }
    let all = &events["all"]["page-faults"];
    assert!(
        all["events"].as_u64() >= Some(4 * PAGES * rounds * 9 / 10),
        "{events}"
    );
    assert!(!events["all"]["context-switches"].is_null(), "{events}");
}

/// The change of a place in the comparison of two recordings.
fn change<'v>(rows: &'v Value, name: &str) -> &'v Value {
    let mut all = rows.as_array().unwrap().iter();
    all.find(|row| is_named(&row["name"], name))
        .unwrap_or_else(|| panic!("{name}: {rows}"))
}

/// The output of `spile diff`.
fn diff(args: &[&str]) -> String {
    let spile = Command::new(env!("CARGO_BIN_EXE_spile"))
        .arg("diff")
        .args(args)
        .output();
    String::from_utf8(spile.unwrap().stdout).unwrap()
}

/// Only `thrice` has more page faults in B, by 40 %.
#[test]
fn places_whose_events_changed_are_found() {
    let program = compiled("touches", "touches-changed", &["-g", &include()]);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let record = |name: &str, others: &str, list: &str, runs: &[&str]| {
        let to = path(name);
        let options = [runs, &["--event", list, "-o", &to]].concat();
        profile(&options, &[program.to_str().unwrap(), "100", others]);
        to
    };
    let list = "cpu-clock,page-faults,context-switches";
    for (set, runs) in [("one", [].as_slice()), ("set", &["-r", "3"])] {
        let a = record(&format!("{set}-a"), "100", list, runs);
        let b = record(&format!("{set}-b"), "140", list, runs);
        let text = diff(&["--json", &a, &b]);
        let compared: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let faults = &compared["events"]["page-faults"];
        for places in ["functions", "regions"] {
            let (once, thrice) = (
                change(&faults[places], "once"),
                change(&faults[places], "thrice"),
            );
            let close = |side: &Value, rounds: u64| {
                let events = side["events"].as_u64().unwrap();
                events.abs_diff(3 * PAGES * rounds) < 3 * PAGES * rounds / 10
            };
            assert!(
                close(&thrice["a"], 100) && close(&thrice["b"], 140),
                "{thrice}"
            );
            assert_eq!(
                (&thrice["changed"], &once["changed"]),
                (&true.into(), &false.into()),
                "{faults}"
            );
            assert!(thrice["noise"].as_u64() > Some(0), "{thrice}");
        }
        assert_eq!(faults["all"]["changed"], true, "{faults}");
        let text = diff(&[&a, &b]);
        let (_, by_function) = text.split_once("page-faults by function\n").expect(&text);
        let (table, _) = by_function.split_once("\n\n").expect(&text);
        assert!(
            table.contains("\nthrice ") && !table.contains("\nonce"),
            "{text}"
        );
        let page = path("page.html");
        diff(&["--html", &page, &a, &b]);
        assert!(
            std::fs::read_to_string(page)
                .unwrap()
                .contains("page-faults by region")
        );
    }
    // Events that one side lacks are not compared.
    let (a, c) = (
        path("one-a"),
        record("c", "100", "cpu-clock,page-faults", &[]),
    );
    let text = diff(&[&a, &c]).replace("\n  ", " ");
    let note = "NOTE: only events that all recordings counted are compared: A context-switches page-faults; B page-faults";
    assert!(text.contains(note), "{text}");
    assert!(!text.contains("context-switches by"), "{text}");
}

#[test]
fn samples_at_page_faults_hit_all_places_in_proportion() {
    let program = compiled("touches", "touches-alone", &["-g", &include()]);
    let command = [program.to_str().unwrap(), "100"];
    let text = profile(&["--json", "--event", "page-faults"], &command);
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let places = report["places"].as_array().unwrap().iter();
    let time = |name: &str| {
        let some = places
            .clone()
            .filter(|p| p["function"] == name && p["part"] == "fault_minor");
        some.map(|p| p["time"].as_u64().unwrap()).sum::<u64>() as f64
    };
    let ratio = time("thrice") / time("once");
    assert!((2.0..4.5).contains(&ratio), "{ratio} {text}");
    // No event is counted apart.
    assert_eq!(report["events"]["all"], serde_json::json!({}));
}

#[test]
fn moves_between_processors_are_counted() {
    let program = compiled("moves", "moves", &[]);
    let text = profile(&["--json"], &[program.to_str().unwrap(), "2000"]);
    let Ok(report) = serde_json::from_str::<Value>(&text) else {
        panic!("{text}");
    };
    // With one processor there is nothing to count.
    if report["recordings"][0]["status"] == 77 << 8 {
        return;
    }
    // The scheduler can move the thread before it binds itself, or the first call does.
    let moves = report["threads"][0]["migrations"].as_u64();
    assert!((2000..2010).contains(&moves.unwrap()), "{report}");
    let text = profile(&[], &[program.to_str().unwrap(), "2000"]);
    assert!(
        text.contains("Threads moved to another processor 20"),
        "{text}"
    );
}

#[test]
fn lists_that_cannot_be_counted_are_refused() {
    for (list, says) in [
        (
            "page-faults,page-fauts",
            "a similar value exists: 'page-faults'",
        ),
        ("page-faults,page-faults", "--event has page-faults twice"),
        (
            "cpu-clock,page-faults,minor-faults,major-faults,context-switches,cpu-migrations",
            "--event takes 5 events at most",
        ),
    ] {
        let text = profile(&["--event", list], &["true"]);
        assert!(text.contains(says), "{text}");
    }
}
