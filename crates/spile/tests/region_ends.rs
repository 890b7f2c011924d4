//! Regions that end in unusual ways or never, and times that find no space.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use spile_profile::file::read_path;
use spile_profile::model::{Ns, Profile};

mod common;
use common::compiled;
use common::regions::{adds_up, as_printed, close, include, of_name, record};

static ENDS: LazyLock<PathBuf> =
    LazyLock::new(|| compiled("region-ends", "region-ends", &[&include(), "-g"]));

fn ends(arguments: &[&str]) -> (Profile, String) {
    record(&[&[ENDS.to_str().unwrap()], arguments].concat(), &[])
}

/// Number of threads whose times found no space.
fn without_space(profile: &Profile) -> u64 {
    let lost = profile.data.lost.iter();
    let of_regions = lost.filter(|(what, _)| what.starts_with("threads without times in regions"));
    of_regions.map(|(_, n)| n).sum()
}

/// Threads and processes that end in a region, or go on as another program: the region has its time
/// until then. Children that share the parent's memory change nothing.
#[test]
fn regions_that_nothing_ends_stay_open() {
    for what in ["thread", "exit", "exec", "others", "spawn", "unpaired"] {
        let (profile, printed) = ends(&[what]);
        assert_eq!(printed.lines().count(), 1, "{printed}");
        adds_up(&profile);
        let (entries, ns) = of_name(&profile, what);
        let words: Vec<&str> = printed.trim().split(' ').collect();
        assert_eq!([what, &entries.to_string()], words[..2]);
        // The region continues after the program's measurement, but does not include the 40 ms and
        // more that are computed elsewhere.
        let threads = profile.data.threads.iter();
        let all: Ns = threads.map(|t| t.wall(profile.data.at_ns)).sum();
        assert!(
            what == "exit" || all >= ns + 40_000_000,
            "{what}: {ns} of {all}"
        );
        let own: Ns = words[2].parse().unwrap();
        assert!(ns > own / 2, "{what}: {ns}, and the program says {own}");
        assert_eq!(without_space(&profile), 0);
    }
}

/// A child unknown to the library counts for itself, and leaves its parent's times unchanged.
#[test]
fn forks_without_the_library_s_handlers_are_followed() {
    let (profile, printed) = ends(&["fork"]);
    adds_up(&profile);
    as_printed(&profile, &printed);
    assert_eq!(of_name(&profile, "child").0, 1000);
    // Its announcements are not calls of the program.
    let calls: Vec<&str> = profile.data.calls.iter().map(|c| c.call.as_str()).collect();
    assert!(!calls.contains(&"prctl"), "{calls:?}");
}

/// Handlers of forks enter regions, and the first region of the program is in one of them. The C
/// library may hold the lock of the list of handlers meanwhile.
#[test]
fn regions_within_handlers_of_forks_are_entered() {
    for (program, lock) in [("forks", "-DFREE"), ("forks-locked", "-DLOCKED")] {
        let options = [&*include(), "-pthread", "-rdynamic", lock];
        let program = compiled("region-forks", program, &options);
        let (profile, printed) = record(&["timeout", "60", program.to_str().unwrap()], &[]);
        assert_eq!(printed.lines().count(), 3, "{lock}: it hangs");
        for line in printed.lines() {
            let (name, entries) = line.split_once(' ').unwrap();
            let found = of_name(&profile, name).0;
            assert_eq!(found, entries.parse::<u64>().unwrap(), "{lock}: {line}");
        }
        assert_eq!(without_space(&profile), 0);
    }
}

/// Regions that are blocks end when the stack is unwound past them, and so do inner regions.
#[test]
fn blocks_end_however_they_are_left() {
    let (profile, printed) = ends(&["jump"]);
    adds_up(&profile);
    as_printed(&profile, &printed);
    assert_eq!((of_name(&profile, "block").0, depth(&profile)), (50, 3));

    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/region-throws.cc");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("region-throws");
    let done = Command::new("c++")
        .args(["-O1", "-Wall", "-Werror", &include(), "-o"])
        .args([&program, &source])
        .status();
    assert!(done.unwrap().success());
    let (profile, printed) = record(&[program.to_str().unwrap()], &[]);
    let names = ["around", "block", "begun"];
    let (entries, ns) = names
        .iter()
        .map(|name| of_name(&profile, name))
        .fold((0, 0), |(n, ns), one| (n + one.0, ns + one.1));
    assert_eq!((entries, depth(&profile)), (150, 3));
    close(ns, printed.trim().parse().unwrap());
}

/// Maximum depth of nested regions.
fn depth(profile: &Profile) -> usize {
    let contexts = &profile.data.contexts;
    let of = |id: u32| contexts.iter().find(|c| c.id == id);
    let chain = |id: u32| std::iter::successors(of(id), |c| c.parent.and_then(of));
    let named = |id: u32| chain(id).filter(|c| !c.name.is_empty()).count();
    contexts.iter().map(|c| named(c.id)).max().unwrap_or(0)
}

/// A folder that is full, missing or read-only: the program does not notice, and the account has
/// the threads.
#[test]
fn a_folder_without_space_does_not_disturb_the_program() {
    let program = ENDS.to_str().unwrap();
    for prepare in [
        "rm -r $SPILE_REGIONS;",
        "mount --bind $SPILE_REGIONS $SPILE_REGIONS; mount -o remount,bind,ro $SPILE_REGIONS;",
        "mount -t tmpfs -o size=4k none $SPILE_REGIONS;",
        "SPILE_REGIONS=/nowhere",
        "ulimit -v 8000000;",
    ] {
        let command = format!("{prepare} {program} many 300");
        let (profile, _) = record(&["unshare", "-m", "sh", "-c", &command], &[]);
        assert_eq!(profile.end.as_ref().unwrap().status, Some(0), "{prepare}");
        assert_eq!(without_space(&profile), 8, "{prepare}");
    }
}

/// If only part of the memory is available, some threads and regions are counted.
#[test]
fn a_folder_that_becomes_full_does_not_disturb_the_program() {
    let spile = env!("CARGO_BIN_EXE_spile");
    let program = ENDS.display();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.spile");
    // Eight threads, each of which needs two pages first and then 17 more.
    for size in ["40k", "160k", "400k"] {
        let command = format!(
            "mount -t tmpfs -o size={size} none /dev/shm && {spile} profile -o {} -- {program} many 300",
            file.display()
        );
        let done = Command::new("unshare")
            .args(["-m", "sh", "-c", &command])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{size}: {said}");
        let profile = read_path(&file).unwrap().profile;
        assert!((1..=8).contains(&without_space(&profile)), "{size}: {said}");
        let of_threads = |t: &&spile_profile::model::ContextTime| t.entries > 0;
        let rows = profile.data.context_times.iter().filter(of_threads);
        assert!(rows.clone().all(|t| t.entries == 1), "{size}");
    }
}

/// More regions than a thread's first part has cells for, and than its first chunk.
#[test]
fn many_regions_are_counted_exactly() {
    for n in [252, 253, 5000] {
        let (profile, _) = ends(&["many", &n.to_string()]);
        assert_eq!(without_space(&profile), 0);
        let rows = profile.data.context_times.iter();
        assert!(rows.clone().all(|t| t.entries == 1));
        assert_eq!(rows.count(), 8 * n);
    }
}
