//! Imbalance of ranks and of threads: known answers.

use spile_profile::imbalance::{Imbalance, imbalances};
use spile_profile::json::json;
use spile_profile::model::*;
use spile_profile::report::{View, text};
use spile_profile::{Profile, Run};

const S: Ns = 1_000_000_000;

/// The contexts: `solve` and `write` of the program, a call of MPI, a parallel region with its barrier and a task.
fn contexts() -> Vec<Context> {
    let context = |id, parent, kind, name: &str| Context {
        id,
        parent,
        kind,
        name: name.to_owned(),
        file: Some("heat.c".to_owned()),
        line: Some(id * 10),
        ..Context::default()
    };
    vec![
        context(1, None, ContextKind::Mark, "solve"),
        context(2, None, ContextKind::Mark, "write"),
        context(3, None, ContextKind::Mpi, "MPI_Allreduce"),
        context(4, None, ContextKind::OmpRegion, "sweep"),
        context(5, Some(4), ContextKind::OmpBarrier, "implicit barrier"),
        context(6, Some(1), ContextKind::Mpi, "MPI_Send"),
    ]
}

/// A recording of 10 s. Each thread has its seconds in contexts, and the rest outside.
fn profile(rank: Option<u32>, threads: &[&[(u32, Ns)]]) -> Profile {
    let mut profile = Profile::default();
    profile.header.rank = rank.map(|rank| Rank {
        rank,
        size: None,
        local_rank: None,
        local_size: None,
        launcher: Launcher::OpenMpi,
        job: None,
    });
    profile.data.at_ns = 10 * S;
    profile.data.contexts = contexts();
    for (tid, times) in (1..).zip(threads) {
        profile.data.threads.push(Thread {
            tid,
            pid: 1,
            name: "heat".to_owned(),
            parts: TimeParts {
                user: 10 * S,
                ..TimeParts::default()
            },
            ..Thread::default()
        });
        for (context, seconds) in *times {
            profile.data.context_times.push(ContextTime {
                tid,
                context: *context,
                entries: 1,
                wall: seconds * S,
                ..ContextTime::default()
            });
        }
    }
    profile
}

/// Ranks with one thread each.
fn ranks(times: &[&[(u32, Ns)]]) -> Run {
    let rank = |(rank, times): (u32, &&[(u32, Ns)])| profile(Some(rank), &[*times]);
    Run::new((0..).zip(times).map(rank).collect())
}

#[test]
fn a_rank_that_the_others_wait_for_is_named() {
    // Three ranks work for 3 s and wait for 6 s, the last works for 9 s.
    let even: &[_] = &[(1, 3), (3, 6)];
    let run = ranks(&[even, even, even, &[(1, 9), (3, 0)]]);
    let expected = [Imbalance {
        region: "solve (heat.c:10)".to_owned(),
        unit: "rank 3".to_owned(),
        ranks: true,
        units: 4,
        longest: 9 * S,
        mean: 4_500_000_000,
        cost: 18 * S,
        whole: 40 * S,
    }];
    assert_eq!(imbalances(&run), expected);
    let said = "45.0% of 40.0 s of 4 ranks: waiting for rank 3, which takes 2.00 times the mean in `solve` (heat.c:10)";
    assert!(text(&run, &View::new(200, 5)).contains(said));
    let report: serde_json::Value = serde_json::from_str(&json(&run)).expect("JSON");
    let row = &report["imbalances"][0];
    assert_eq!(row["title"], "rank 3");
    assert_eq!(
        (row["time"].as_u64(), row["whole"].as_u64()),
        (Some(18 * S), Some(40 * S))
    );
    assert_eq!(row["max_by_mean"], 2.0);
}

#[test]
fn work_that_nobody_waits_for_costs_nothing() {
    // Each rank has work of its own, of the same length.
    let run = ranks(&[&[(1, 8), (3, 0)], &[(2, 8), (3, 0)]]);
    assert_eq!(imbalances(&run), []);
    // The second waits for half a second only, 2.5 % of 20 s.
    let waits = |ns| {
        let mut run = ranks(&[&[(1, 8), (3, 0)], &[(1, 4), (3, 1)]]);
        run.profiles[1].data.context_times[1].wall = ns;
        imbalances(&run)
    };
    assert_eq!(waits(S / 2), []);
    // 5 % matter.
    assert_eq!(waits(S)[0].cost, S);
}

#[test]
fn waits_count_for_one_region() {
    // The first is 5 s longer in `solve` and 2 s longer in `write`; the second waits for 6 s.
    let run = ranks(&[&[(1, 6), (2, 3), (3, 0)], &[(1, 1), (2, 1), (6, 6)]]);
    let found = imbalances(&run);
    let costs: Vec<_> = found.iter().map(|i| (&*i.region, i.cost)).collect();
    assert_eq!(
        costs,
        [("solve (heat.c:10)", 5 * S), ("write (heat.c:20)", S)]
    );
}

#[test]
fn a_thread_that_its_team_waits_for_is_named() {
    let even: &[_] = &[(4, 2), (5, 4)];
    let team = [even, &[(4, 6), (5, 0)], even];
    let found = imbalances(&Run::new(vec![profile(None, &team)]));
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].cost, found[0].whole), (8 * S, 30 * S));
    assert_eq!(
        found[0].sentence(),
        "waiting for thread 2 heat, which takes 1.80 times the mean in `parallel sweep` (heat.c:40)"
    );
    // Threads of other ranks add up; none waits for a rank.
    let two = [profile(Some(0), &team), profile(Some(1), &team)];
    let found = imbalances(&Run::new(two.to_vec()));
    assert_eq!((found[0].cost, found[0].whole), (16 * S, 60 * S));
    assert!(found[0].unit.starts_with("2 heat of rank "), "{found:?}");
    // An even team.
    let team = [even, even];
    assert_eq!(imbalances(&Run::new(vec![profile(None, &team)])), []);
}
