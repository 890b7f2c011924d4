//! Times in regions compared with programs' own measurements: marks, OpenMP's barriers with gcc's
//! library and LLVM's, and MPI's with OpenMPI and MPICH, with waits in the kernel and with polling.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use spile_profile::model::{ContextKind, Ns, Profile};

mod common;
use common::mpi::{mpi_program, ranks};
use common::regions::{adds_up, as_printed, close, include, of_name, record};
use common::{compiled, compiled_by};

static TIMES: LazyLock<PathBuf> =
    LazyLock::new(|| compiled("region-times", "region-times", &[&include()]));

fn times(arguments: &[&str]) -> (Profile, String) {
    record(&[&[TIMES.to_str().unwrap()], arguments].concat(), &[])
}

#[test]
fn wall_time_user_time_and_entries_are_recorded() {
    let (profile, printed) = times(&["plain"]);
    adds_up(&profile);
    as_printed(&profile, &printed);
    let row = |name: &str| {
        let id = profile.data.contexts.iter().find(|c| c.name == name);
        let id = id.expect(name).id;
        let row = profile.data.context_times.iter().find(|t| t.context == id);
        row.expect(name).clone()
    };
    // Five sleeps of 8 ms; the computation is in no call.
    let (work, nap) = (row("work"), row("nap"));
    assert!(nap.parts.blocked >= 40_000_000, "{nap:?}");
    assert!(nap.parts.user < nap.wall / 4, "{nap:?}");
    assert_eq!(work.parts.syscall_cpu, 0, "{work:?}");
    assert!(
        work.parts.user > 0 && work.parts.blocked < work.wall / 10,
        "{work:?}"
    );

    // A processor that computes for so long always has timer interrupts.
    assert!(work.parts.irq.count > 0, "{work:?}");

    // The library's own calls for counting are not calls of the program.
    let calls: Vec<&str> = profile.data.calls.iter().map(|c| c.call.as_str()).collect();
    for own in ["prctl", "ftruncate", "madvise"] {
        assert!(!calls.contains(&own), "{calls:?}");
    }
}

#[test]
fn entries_are_counted_exactly() {
    let (profile, _) = times(&["fast", "1000000"]);
    assert_eq!(of_name(&profile, "fast").0, 8_000_000);
    let threads = profile.data.context_times.iter();
    assert!(threads.clone().all(|t| t.entries == 1_000_000));
    assert_eq!(threads.count(), 8);
}

#[test]
fn many_threads_have_times() {
    let (profile, _) = times(&["fast", "10", "200"]);
    let threads = profile.data.context_times.iter();
    assert!(threads.clone().all(|t| t.entries == 10));
    assert_eq!(threads.count(), 200);
}

#[test]
fn a_killed_process_keeps_its_times() {
    let (profile, printed) = times(&["killed"]);
    adds_up(&profile);
    let (before, last) = printed.split_once("last ").expect("the last region");
    as_printed(&profile, before);
    // The last region has no end. It lasts at least as long as the program measured before it killed
    // itself.
    let measured: Ns = last.trim().strip_prefix("1 ").unwrap().parse().unwrap();
    let (entries, ns) = of_name(&profile, "last");
    assert_eq!(entries, 1);
    assert!(ns >= measured, "{ns}, and the program says {measured}");
}

#[test]
fn children_of_fork_have_times_of_their_own() {
    let (profile, _) = times(&["fork"]);
    adds_up(&profile);
    // The child continues in its parent's region, without entering it again.
    assert_eq!(of_name(&profile, "around").0, 1);
    let (entries, ns) = of_name(&profile, "child");
    assert_eq!(entries, 1);
    assert!(ns >= 10_000_000, "{ns}");
}

/// Nothing is left behind, even by a session that was killed, once another one has begun.
#[test]
fn folders_of_regions_are_removed() {
    let mine = |pid: &str| {
        let uid = rustix::process::geteuid().as_raw();
        let name = format!("spile-regions-{uid}-");
        let there = std::fs::read_dir("/dev/shm")
            .into_iter()
            .flatten()
            .flatten();
        let all = there.filter(|e| e.file_name().to_string_lossy().starts_with(&name));
        let of = |e: &std::fs::DirEntry| {
            let maps = format!("/proc/{pid}/environ");
            let text = std::fs::read(maps).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            text.contains(&*e.path().to_string_lossy())
        };
        all.filter(of).map(|e| e.path()).collect::<Vec<_>>()
    };
    let dir = tempfile::tempdir().unwrap();
    let pid_file = dir.path().join("pid");
    let script = format!(
        "echo $$ > {0}.new; mv {0}.new {0}; exec sleep 60",
        pid_file.display()
    );
    let mut session = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["profile", "--", "sh", "-c", &script])
        .spawn()
        .unwrap();
    while !pid_file.exists() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let pid = std::fs::read_to_string(&pid_file).unwrap();
    // (A process has no environment for a moment, while it executes a program.)
    let folders = loop {
        match mine(pid.trim()) {
            none if none.is_empty() => std::thread::sleep(std::time::Duration::from_millis(10)),
            some => break some,
        }
    };
    assert_eq!(folders.len(), 1);
    session.kill().unwrap();
    session.wait().unwrap();
    assert!(folders[0].exists());
    let killed = Command::new("kill").arg(pid.trim()).status().unwrap();
    assert!(killed.success());
    // It may hold the folder's lock only for its lifetime.
    record(&["true"], &[]);
    assert!(!folders[0].exists());
}

#[test]
fn barriers_of_openmp_are_timed_whether_they_sleep_or_poll() {
    let dir = tempfile::tempdir().unwrap();
    for compiler in ["gcc", "clang"] {
        let program = dir.path().join(compiler);
        compiled_by(compiler, "uneven", &program, &["-fopenmp"]);
        for policy in ["active", "passive"] {
            let variables = [("OMP_WAIT_POLICY", policy)];
            let (profile, printed) = record(&[program.to_str().unwrap()], &variables);
            adds_up(&profile);
            let own: Vec<Ns> = printed
                .split_whitespace()
                .map(|n| n.parse().unwrap())
                .collect();
            let (entries, ns) = of_name(&profile, "barrier");
            assert_eq!(entries, 8, "{compiler} {policy}");
            close(ns, own.iter().sum());
            let regions = profile.data.contexts.iter();
            let region = regions.filter(|c| c.kind == ContextKind::OmpRegion);
            let region: Vec<u32> = region.map(|c| c.id).collect();
            let rows = profile.data.context_times.iter();
            let rows = rows.filter(|t| region.contains(&t.context));
            assert_eq!(
                rows.clone().map(|t| t.entries).sum::<u64>(),
                8,
                "{compiler} {policy}"
            );
            // The second thread works thirty times as long.
            let least: HashMap<u32, Ns> = rows.map(|t| (t.tid, t.wall)).collect();
            assert!(least.values().any(|ns| *ns >= 600_000_000), "{least:?}");
            let run = spile_profile::Run::new(vec![profile.clone()]);
            let summary = run.summary();
            let critical = summary.critical().expect("two threads");
            let leader = profile.header.pid.expect("known");
            assert_ne!(critical.busiest.1, leader, "{compiler} {policy}");
        }
    }
}

/// The rank that computes or sleeps longest is the one that others wait for.
#[test]
fn barriers_of_mpi_name_the_rank_that_others_wait_for() {
    let dir = tempfile::tempdir().unwrap();
    for kind in ["openmpi", "mpich"] {
        let program = mpi_program(kind, dir.path(), "barriers", &[]);
        for (work, critical) in [
            (&["50", "400"][..], 1),
            (&["20", "s400"], 1),
            (&["s400", "20"], 0),
            (&["20", "60", "100", "400"], 3),
        ] {
            let (profiles, printed) = ranks(kind, &[], &program, work);
            for line in printed.lines() {
                let (rank, own) = line.split_once(' ').expect("a rank and its time");
                let profile = &profiles[rank.parse::<usize>().unwrap()];
                adds_up(profile);
                let (entries, ns) = of_name(profile, "MPI_Barrier");
                assert_eq!(entries, 3, "{kind} {work:?}");
                close(ns, own.parse().unwrap());
            }
            assert_eq!(printed.lines().count(), work.len(), "{printed}");
            critical_rank(profiles, critical);
        }
    }
}

#[track_caller]
fn critical_rank(profiles: Vec<Profile>, critical: usize) {
    let run = spile_profile::Run::new(profiles);
    let summary = run.summary();
    let found = summary.critical().expect("several ranks");
    let units = &summary.units;
    assert_eq!(found.title, format!("rank {critical}"), "{units:?}");
}

/// An MPI profiling tool (PMPI) measures the same calls and times, whether linked into the program
/// or a library; OpenMPI's ranks can yield their processor while they wait.
#[test]
fn calls_of_mpi_take_the_time_that_a_wrapper_measures() {
    let dir = tempfile::tempdir().unwrap();
    let wrapper = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/programs/pmpi.c");
    let two: &[&str] = &["20", "150"];
    let four: &[&str] = &["150", "10", "30", "60"];
    for (kind, launch, own, work) in [
        ("openmpi", &[][..], true, two),
        (
            "openmpi",
            &["--mca", "mpi_yield_when_idle", "1"],
            false,
            four,
        ),
        ("mpich", &[], false, two),
        ("mpich", &[], true, four),
    ] {
        let folder = dir.path().join(if own { "own" } else { "library" });
        std::fs::create_dir_all(&folder).unwrap();
        let program = if own {
            mpi_program(kind, &folder, "exchange", &[wrapper])
        } else {
            let library = mpi_program(kind, &folder, "pmpi", &["-shared", "-fPIC"]);
            mpi_program(
                kind,
                &folder,
                "exchange",
                &["-Wl,--no-as-needed", library.to_str().unwrap()],
            )
        };
        let (profiles, printed) = ranks(kind, launch, &program, work);
        for line in printed.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let profile = &profiles[words[0].parse::<usize>().unwrap()];
            let (entries, ns) = of_name(profile, words[1]);
            assert_eq!(entries.to_string(), words[2], "{kind}: {line}");
            // A rank that loses its processor between the tool's clock and the library's is not in
            // the call.
            let own: Ns = words[3].parse().unwrap();
            let ready: Ns = profile.data.threads.iter().map(|t| t.parts.runnable).sum();
            close(own.min(ns + ready).max(ns), own);
        }
        // Five functions.
        assert_eq!(printed.lines().count(), 5 * work.len(), "{printed}");
        profiles.iter().for_each(adds_up);
        let longest = (0..work.len()).max_by_key(|i| work[*i].parse::<u64>().unwrap());
        critical_rank(profiles, longest.expect("ranks"));
    }
}
