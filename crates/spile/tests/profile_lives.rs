//! Samples of programs and threads that come and go have the shares of the program's own clocks. The program is
//! `where-lives.c` of `tests/programs`.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use spile_profile::answer::{Finding, findings_of_all};
use spile_profile::{Activity, Profile, Run, TimePart};

mod common;
use common::compiled;

/// The program, and one with another name. Without debugging information, places have the program.
static LIVES: LazyLock<PathBuf> = LazyLock::new(|| compiled("where-lives", "where-lives", &[]));
static EXECUTED: LazyLock<PathBuf> = LazyLock::new(|| compiled("where-lives", "executed", &[]));

/// Samples a second: enough for small errors of sampling.
const FREQUENCY: u64 = 499;

/// What the program printed, and its profile.
fn recorded(args: &[&str]) -> ([u64; 2], Profile) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lives.spile");
    let output = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args([
            "profile",
            "--no-regions",
            "--freq",
            &FREQUENCY.to_string(),
            "-o",
        ])
        .arg(&file)
        .arg("--")
        .arg(&*LIVES)
        .args(args)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let mut printed = printed.split_whitespace().map(|n| n.parse().unwrap());
    let profile = spile_profile::file::read_path(&file).unwrap().profile;
    ([0, 1].map(|_| printed.next().unwrap()), profile)
}

/// The places where a function ran in the program.
fn running(profile: &Profile, function: &str) -> Vec<Finding> {
    let mut found = findings_of_all(&Run::new(vec![profile.clone()]));
    found.retain(|f| f.part == TimePart::User && f.function == function);
    found
}

/// The time in a function.
fn time(profile: &Profile, function: &str) -> u64 {
    running(profile, function).iter().map(|f| f.ns).sum()
}

/// Asserts that a time is that of a clock within this many percent.
#[track_caller]
fn agrees(time: u64, clock: u64, percent: u64) {
    assert!(
        time.abs_diff(clock) * 100 <= clock * percent,
        "{time} of {clock}"
    );
}

#[test]
fn programs_before_and_after_exec_have_their_functions() {
    let ([before, after], profile) = recorded(&["exec", EXECUTED.to_str().unwrap()]);
    // 300 and 600 samples: 4 standard deviations are 57 samples.
    for (function, clock, program) in [
        ("before", before, "where-lives"),
        ("after", after, "executed"),
    ] {
        agrees(time(&profile, function), clock, 22);
        let places = running(&profile, function);
        let program = |place: &Finding| place.location.as_deref() == Some(program);
        assert!(places.iter().all(program), "{places:?}");
    }
    let both = time(&profile, "before") + time(&profile, "after");
    agrees(both, before + after, 8);
}

#[test]
fn parents_and_children_have_their_functions() {
    let ([parent, child], profile) = recorded(&["fork"]);
    // The parent has another function before, in a sixth of its 300 samples: 4 standard deviations are 26.
    agrees(time(&profile, "of_parent"), parent, 15);
    agrees(time(&profile, "of_child"), child, 8);
    let processes = profile.data.processes.len();
    assert_eq!(processes, 2, "{:?}", profile.data.processes);
}

#[test]
fn a_thousand_threads_share_two_functions() {
    let ([common, rare], profile) = recorded(&["threads"]);
    assert!(profile.data.threads.len() > 1000);
    let (in_common, in_rare) = (time(&profile, "common"), time(&profile, "rare"));
    // About 630 of the threads are sampled, whose share in `rare` has a standard deviation of 1.1 %.
    let share = |part: u64, other: u64| part * 1000 / (part + other);
    let (found, clock) = (share(in_rare, in_common), share(rare, common));
    assert!(
        found.abs_diff(clock) <= 50,
        "{found} of {clock} thousandths"
    );
    // A thread without a sample has its time in no function; no time is counted twice.
    assert!(in_common + in_rare <= (common + rare) * 110 / 100);
    assert!(in_common + in_rare >= (common + rare) / 3);
}

#[test]
fn threads_that_live_for_a_millisecond_are_sampled() {
    let ([clock, _], profile) = recorded(&["brief"]);
    assert!(profile.data.threads.len() > 1500);
    let samples = profile.data.samples.iter();
    let brief = samples
        .filter(|s| s.activity == Activity::User && s.frames.iter().any(|f| f.function == "brief"));
    let brief: u64 = brief.map(|s| s.count).sum();
    // 750 samples: 5 standard deviations are 18 %.
    agrees(brief * 1_000_000_000 / FREQUENCY, clock, 20);
}
