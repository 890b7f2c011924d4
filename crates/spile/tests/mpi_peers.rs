//! Calls of MPI by the ranks that they are for, compared with programs' own measurements: C and Fortran, OpenMPI and MPICH.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::collections::HashMap;

use spile_profile::Run;
use spile_profile::json::json;
use spile_profile::model::{Ns, Profile};
use spile_profile::report::{View, text};

mod common;
use common::mpi::{mpi_program, ranks};
use common::regions::{adds_up, close, of_name, record};

/// Calls and time by the name of a call and its ranks, with the rest of the call's as ranks "?".
fn by_peers(profile: &Profile) -> HashMap<(String, String), (u64, Ns)> {
    let data = &profile.data;
    let mut sums: HashMap<(String, String), (u64, Ns)> = HashMap::new();
    for time in &data.context_times {
        let context = data.contexts.iter().find(|c| c.id == time.context);
        let name = &context.expect("announced").name;
        let mut rest = (time.entries, time.wall);
        for peers in &time.peers {
            let named: Vec<String> = peers.ranks.iter().map(u32::to_string).collect();
            let sum = sums.entry((name.clone(), named.join(","))).or_default();
            *sum = (sum.0 + peers.calls, sum.1 + peers.wall);
            rest = (rest.0 - peers.calls, rest.1.saturating_sub(peers.wall));
        }
        let sum = sums.entry((name.clone(), "?".to_owned())).or_default();
        *sum = (sum.0 + rest.0, sum.1 + rest.1);
    }
    sums
}

/// Compares with lines of call, ranks, number of calls and nanoseconds.
#[track_caller]
fn as_printed(kind: &str, profile: &Profile, printed: &str) {
    let sums = by_peers(profile);
    let ready: Ns = profile.data.threads.iter().map(|t| t.parts.runnable).sum();
    for line in printed.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let key = (words[0].to_owned(), words[1].to_owned());
        let (calls, ns) = sums.get(&key).copied().unwrap_or_default();
        assert_eq!(calls.to_string(), words[2], "{kind}: {line}: {sums:?}");
        // A rank that loses its processor between its clock and the library's is not in the call.
        let own: Ns = words[3].parse().unwrap();
        close(own.min(ns + ready).max(ns), own);
    }
    adds_up(profile);
}

#[test]
fn calls_are_for_the_ranks_of_arguments_requests_and_statuses() {
    let dir = tempfile::tempdir().unwrap();
    for kind in ["openmpi", "mpich"] {
        for (source, count, lines) in [("mpi-peers", 3, 15), ("mpi-peers.f90", 2, 5)] {
            let program = mpi_program(kind, dir.path(), source, &[]);
            let (profiles, printed) = ranks(kind, &[], &program, &["all"; 3][..count]);
            as_printed(kind, &profiles[0], &printed);
            // In C, the last MPI_Waitany ends with one request or the other.
            assert!(
                (lines..=lines + 1).contains(&printed.lines().count()),
                "{printed}"
            );
        }
    }
}

#[test]
fn the_rank_that_all_wait_for_is_named() {
    let dir = tempfile::tempdir().unwrap();
    for kind in ["openmpi", "mpich"] {
        let program = mpi_program(kind, dir.path(), "mpi-peers", &[]);
        let (profiles, _) = ranks(kind, &[], &program, &["star"; 4]);
        let received: Ns = profiles.iter().map(|p| of_name(p, "MPI_Recv").1).sum();
        let run = Run::new(profiles);
        let report: serde_json::Value = serde_json::from_str(&json(&run)).unwrap();
        let peers = &report["peers"];
        let first = &peers["ranks"][0];
        assert_eq!((&first["rank"], &first["units"]), (&3.into(), &3.into()));
        assert_eq!(first["time"].as_u64(), Some(received), "{peers}");
        let calls = peers["calls"].as_array().unwrap().iter();
        let from = calls.filter(|c| c["ranks"] == serde_json::json!([3]));
        let mut titles: Vec<_> = from.map(|c| c["title"].as_str().unwrap()).collect();
        titles.sort_unstable();
        assert_eq!(titles, ["rank 0", "rank 1", "rank 2"]);
        let report = text(&run, &View::new(200, 50));
        let said = " of 4 ranks: in calls of MPI for rank 3, the most in `MPI_Recv` (mpi-peers.c:";
        assert!(report.contains(said), "{report}");
        assert!(report.contains("  from rank 3  "), "{report}");
    }
}

/// The current call is for the ranks that are known before it ends.
#[test]
fn a_call_that_never_ends_is_for_its_rank() {
    let dir = tempfile::tempdir().unwrap();
    for kind in ["openmpi", "mpich"] {
        let program = mpi_program(kind, dir.path(), "mpi-peers", &[]);
        let (profile, _) = record(&[program.to_str().unwrap(), "hang"], &[]);
        let (entries, ns) = of_name(&profile, "MPI_Recv");
        let key = ("MPI_Recv".to_owned(), "0".to_owned());
        let found = by_peers(&profile).get(&key).copied();
        assert_eq!((entries, found), (1, Some((0, ns))), "{kind}");
        assert!(ns > 0);
    }
}
