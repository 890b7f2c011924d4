//! Helpers that the tests of times in regions share: recordings, and programs' own measurements.

use std::process::{Command, Output};

use spile_profile::file::read_path;
use spile_profile::model::{Ns, Profile};

/// The directory of headers for programs.
pub(crate) fn include() -> String {
    format!("-I{}/../../include", env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command under `spile profile`; returns the profile and the output.
pub(crate) fn record(command: &[&str], variables: &[(&str, &str)]) -> (Profile, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.spile");
    let output: Output = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["profile", "-o", file.to_str().unwrap(), "--"])
        .args(command)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let read = read_path(&file).unwrap_or_else(|e| panic!("{e:?}: {said}"));
    assert!(read.notes.is_empty(), "{said}");
    (
        read.profile,
        String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

/// Entries and wall time of the regions of that name, over all threads.
pub(crate) fn of_name(profile: &Profile, name: &str) -> (u64, Ns) {
    let data = &profile.data;
    let named = |id: u32| data.contexts.iter().any(|c| c.id == id && c.name == name);
    let rows = data.context_times.iter().filter(|t| named(t.context));
    rows.fold((0, 0), |(n, ns), t| (n + t.entries, ns + t.wall))
}

/// Asserts that each thread's time in regions is a part of its time, and adds up to its parts.
#[track_caller]
pub(crate) fn adds_up(profile: &Profile) {
    for time in &profile.data.context_times {
        let parts = time.parts.sum();
        // (Clocks are read some nanoseconds apart at each end.)
        let apart = 1_000_000 + time.wall / 100;
        assert!(parts.abs_diff(time.wall) <= apart, "{parts}: {time:?}");
    }
    for thread in &profile.data.threads {
        let own = profile.data.context_times.iter();
        let inside: Ns = own.filter(|t| t.tid == thread.tid).map(|t| t.wall).sum();
        let wall = thread.wall(profile.data.at_ns);
        assert!(inside <= wall + 1_000_000, "{inside} of {wall}");
    }
}

/// The program's own measurement includes the work around the region's changes. Other processes can be
/// scheduled there, and between the program's clock and the change to a region inside.
#[track_caller]
pub(crate) fn close(ours: Ns, own: Ns) {
    let most = own + own / 50 + 20_000_000;
    let least = (own - own / 4).saturating_sub(80_000_000);
    assert!(
        (least..=most).contains(&ours),
        "{ours}, and the program says {own}"
    );
}

/// Compares with lines of name, entries and nanoseconds.
#[track_caller]
pub(crate) fn as_printed(profile: &Profile, printed: &str) {
    assert!(!printed.is_empty());
    for line in printed.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let (entries, ns) = of_name(profile, words[0]);
        assert_eq!(entries, words[1].parse::<u64>().unwrap(), "{line}");
        close(ns, words[2].parse().unwrap());
    }
}
