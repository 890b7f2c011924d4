//! Calls of MPI by the ranks that they are for: known answers.

use spile_profile::file::{Writer, read};
use spile_profile::json::json;
use spile_profile::model::*;
use spile_profile::report::{View, text};
use spile_profile::{Profile, Run};

const S: Ns = 1_000_000_000;

/// A rank with one thread of 10 s that is in calls: the name, the ranks, and the seconds. A row without
/// ranks has no peers.
fn rank(number: u32, calls: &[(&str, &[u32], Ns)]) -> Profile {
    let mut profile = Profile::default();
    profile.header.rank = Some(Rank {
        rank: number,
        size: None,
        local_rank: None,
        local_size: None,
        launcher: Launcher::Mpich,
        job: None,
    });
    let data = &mut profile.data;
    data.at_ns = 10 * S;
    data.threads.push(Thread {
        tid: 1,
        pid: 1,
        ..Thread::default()
    });
    for (id, (name, ranks, seconds)) in (1..).zip(calls) {
        data.contexts.push(Context {
            id,
            kind: ContextKind::Mpi,
            name: (*name).to_owned(),
            file: Some("halo.c".to_owned()),
            line: Some(7),
            ..Context::default()
        });
        let peers = PeerTime {
            ranks: ranks.to_vec(),
            calls: 3,
            wall: seconds * S,
        };
        data.context_times.push(ContextTime {
            tid: 1,
            context: id,
            entries: 4,
            wall: seconds * S,
            peers: if ranks.is_empty() {
                Vec::new()
            } else {
                vec![peers]
            },
            ..ContextTime::default()
        });
    }
    profile
}

/// A line with single spaces.
fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_rank_that_is_waited_for_most_comes_first() {
    let run = Run::new(vec![
        rank(0, &[("MPI_Recv", &[2], 4), ("MPI_Waitall", &[1, 2], 3)]),
        rank(1, &[("MPI_Wait", &[2], 5), ("MPI_Ssend", &[0], 1)]),
        rank(
            2,
            &[
                ("MPI_Barrier", &[], 1),
                ("MPI_Sendrecv", &[0, 1], 1),
                ("MPI_Testall", &[3, 4, 5, 6, 7, 8], 2),
            ],
        ),
    ]);
    let report: serde_json::Value = serde_json::from_str(&json(&run)).expect("JSON");
    let peers = &report["peers"];
    let expected = serde_json::json!([
        {
            "rank": 2, "time": 9 * S, "with_others": 3 * S, "units": 2,
            "calls": { "MPI_Recv (halo.c:7)": 4 * S, "MPI_Wait (halo.c:7)": 5 * S },
        },
        {
            "rank": 0, "time": S, "with_others": S, "units": 2,
            "calls": { "MPI_Ssend (halo.c:7)": S },
        },
        { "rank": 1, "time": 0, "with_others": 4 * S, "units": 2, "calls": {} },
    ]);
    let ranks = peers["ranks"].as_array().expect("rows");
    assert_eq!(ranks[..3], expected.as_array().expect("rows")[..]);
    assert_eq!(peers["whole"], 30 * S);
    assert_eq!(
        peers["calls"][0],
        serde_json::json!({
            "title": "rank 1", "region": "MPI_Wait (halo.c:7)", "ranks": [2], "calls": 3, "time": 5 * S,
            "whole": 10 * S,
        })
    );
    let said = text(&run, &View::new(100, 9));
    let sentence =
        "30.0% of 30.0 s of 3 ranks: in calls of MPI for rank 2, the most in `MPI_Wait` (halo.c:7)";
    assert!(said.contains(sentence), "{said}");
    // One of 30 s does not matter.
    assert!(!said.contains("for rank 0, the most"), "{said}");
    let rows: Vec<String> = said.lines().map(words).collect();
    for row in [
        "MPI_Recv (halo.c:7) from rank 2 4.00 s 40.0% 3 rank 0",
        "MPI_Waitall (halo.c:7) for ranks 1, 2 3.00 s 30.0% 3 rank 0",
        "MPI_Ssend (halo.c:7) to rank 0 1.00 s 10.0% 3 rank 1",
        "MPI_Sendrecv (halo.c:7) with ranks 0, 1 1.00 s 10.0% 3 rank 2",
        "MPI_Testall (halo.c:7) for ranks 3, 4, 5, 6 and 2 more 2.00 s 20.0% 3 rank 2",
        "2 9.00 s 30.0% 3.00 s 2 MPI_Wait (halo.c:7)",
    ] {
        assert!(rows.iter().any(|r| r == row), "{said}");
    }
}

#[test]
fn a_single_rank_says_for_whom_it_calls() {
    let mut profile = rank(0, &[("MPI_Recv", &[2], 4), ("MPI_Wait", &[1], 2)]);
    // A second of the last call is for ranks that are not known.
    profile.data.context_times[1].wall = 3 * S;
    let run = Run::new(vec![profile]);
    let said = text(&run, &View::new(100, 9));
    let said: Vec<String> = said.lines().map(words).collect();
    let said = said.join("\n");
    for part in [
        "40.0% of 10.0 s: in `MPI_Recv` (halo.c:7), from rank 2\n",
        "20.0% of 10.0 s: in `MPI_Wait` (halo.c:7), for rank 1\n",
        "MPI_Wait (halo.c:7) not known 1.00 s 10.0%",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert!(!said.contains("Ranks that calls"), "{said}");
}

/// A rank that receives from many others has its largest rows only, but each rank's whole sum.
#[test]
fn rows_of_a_rank_are_bounded() {
    let mut profile = rank(0, &[("MPI_Recv", &[1], 1)]);
    let peer = |rank: u32| PeerTime {
        ranks: vec![rank],
        calls: 1,
        wall: Ns::from(rank),
    };
    profile.data.context_times[0].peers = (1..=1000).map(peer).collect();
    let report = json(&Run::new(vec![profile.clone(), rank(1, &[])]));
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let peers = &report["peers"];
    // The first is the time that is for no known rank.
    let calls = peers["calls"].as_array().expect("rows");
    assert_eq!((calls.len(), &calls[1]["ranks"][0]), (100, &1000.into()));
    let shown: Ns = calls.iter().filter_map(|row| row["time"].as_u64()).sum();
    assert_eq!(peers["left_out"]["count"], 901);
    assert_eq!(peers["left_out"]["time"], S - shown);
    assert_eq!(peers["ranks"].as_array().expect("rows").len(), 1000);
}

/// Recordings of earlier releases have no peers.
#[test]
fn rows_without_peers_are_read() {
    let profile = rank(0, &[("MPI_Recv", &[], 4)]);
    let mut writer = Writer::new(Vec::new(), &profile.header).expect("a header");
    writer.snapshot(&profile.data).expect("an account");
    let file = writer.end(&RecordingEnd::default()).expect("an end");
    assert!(!String::from_utf8_lossy(&file).contains("peers"));
    let found = read(&file[..]).expect("a profile");
    assert_eq!((found.notes.len(), &found.profile.data), (0, &profile.data));
    let said = text(&Run::new(vec![found.profile]), &View::new(100, 9));
    assert!(!said.contains("Calls of MPI for other ranks"), "{said}");
}
