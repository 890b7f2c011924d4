//! Tables add up: the parts of each row to its time, and rows to their totals.

mod testgen;

use proptest::prelude::*;
use spile_profile::Run;
use spile_profile::model::{
    CallParts, CallTotals, Process, Profile, ROOT, Thread, TimePart, TimeParts,
};
use spile_profile::run::{OUTSIDE, Summary};

/// Limits the numbers so that they can be added up.
fn modest(mut profile: Profile) -> Profile {
    let small = |n: &mut u64| *n %= 1 << 40;
    let data = &mut profile.data;
    small(&mut data.at_ns);
    // Thread ids are unique.
    for thread in &mut data.threads {
        small(&mut thread.started_ns);
        thread.ended_ns.iter_mut().for_each(small);
        small(&mut thread.parts.user);
        small(&mut thread.parts.blocked);
    }
    for row in &mut data.context_times {
        [&mut row.wall, &mut row.parts.user, &mut row.parts.runnable]
            .into_iter()
            .for_each(small);
    }
    let threads = data.threads.len() as u32;
    for call in &mut data.calls {
        [&mut call.count, &mut call.total]
            .into_iter()
            .for_each(small);
        call.unfinished.iter_mut().for_each(small);
        // Parts that exceed the whole, and none at all.
        call.cpu = call.total / (u64::from(call.tid) + 1);
        call.blocked = call.total / 2;
        call.runnable = call.total / 3;
        call.unfinished_parts = (call.tid % 2 == 0).then_some(CallParts {
            cpu: call.total,
            blocked: 7,
            ..CallParts::default()
        });
        call.tid %= threads.max(1);
    }
    profile
}

/// A thread that waits for its whole life, and one that does not.
fn sleepers(profile: &mut Profile, n: u32) {
    let data = &mut profile.data;
    for tid in (1_000_000..).take(n as usize) {
        let wall = 1_000_000 + u64::from(tid % 7);
        let works = tid % 3 == 0;
        data.threads.push(Thread {
            tid,
            pid: tid,
            started_ns: 5,
            ended_ns: Some(5 + wall),
            parts: TimeParts {
                user: if works { wall / 2 } else { 0 },
                blocked: if works { wall - wall / 2 } else { wall },
                ..TimeParts::default()
            },
            ..Thread::default()
        });
        data.calls.push(CallTotals {
            tid,
            call: "futex".to_owned(),
            unfinished: Some(if works { wall - wall / 2 } else { wall }),
            ..CallTotals::default()
        });
        data.processes.push(Process {
            pid: tid,
            comm: format!("p{}", tid % 4),
            ..Process::default()
        });
    }
}

#[track_caller]
fn adds_up(run: &Run, summary: &Summary) {
    // Threads set apart are the rest.
    let asleep: u64 = summary.asleep.iter().map(|s| s.unit.sum.wall).sum();
    let walls = |p: &Profile| {
        p.data
            .threads
            .iter()
            .map(|t| t.wall(p.data.at_ns))
            .sum::<u64>()
    };
    let wall: u64 = run.profiles.iter().map(walls).sum();
    assert_eq!(summary.total.wall + asleep, wall);
    // Rows of threads, ranks, nodes, programs.
    let sums = || {
        let units = summary.units.iter().chain(&summary.nodes);
        let units = units.chain(&summary.threads).map(|u| &u.sum);
        units.chain(summary.programs.iter().map(|p| &p.sum))
    };
    for sum in sums().chain([&summary.total]) {
        let parts: i128 = sum.parts.iter().map(|ns| i128::from(*ns)).sum();
        assert_eq!(parts + i128::from(sum.residual), i128::from(sum.wall));
    }
    // Tables, and the totals that they divide.
    let by_unit: u64 = summary.units.iter().map(|u| u.sum.wall).sum();
    let by_node: u64 = summary.nodes.iter().map(|u| u.sum.wall).sum();
    let by_thread: u64 = summary.threads.iter().map(|u| u.sum.wall).sum();
    assert_eq!([by_unit, by_node, by_thread], [summary.total.wall; 3]);
    if !summary.programs.is_empty() {
        let by_program: u64 = summary.programs.iter().map(|p| p.sum.wall).sum();
        assert_eq!(by_program, summary.total.wall);
        let asleep_too: u64 = summary.programs.iter().map(|p| p.asleep).sum();
        assert_eq!(asleep_too, asleep);
    }
    for part in TimePart::ALL {
        let of: u64 = summary.units.iter().map(|u| u.sum.part(part)).sum();
        assert_eq!(of, summary.total.part(part));
    }
    // Calls by name and by region.
    for group in summary.calls.iter().chain(&summary.regions) {
        assert_eq!(group.parts.sum(), group.time(), "{group:?}");
        assert_eq!(group.within.values().sum::<u64>(), group.time());
    }
    let by_region: u64 = summary.regions.iter().map(|g| g.time()).sum();
    assert_eq!(by_region, summary.in_calls());
    let calls = run.profiles.iter().flat_map(|p| &p.data.calls);
    let calls: u64 = calls.map(CallTotals::time).sum();
    let all = run.summary_of_all();
    assert_eq!(all.in_calls(), calls);
    assert!(summary.in_calls() <= calls);
    // Times in regions.
    for region in &summary.times {
        let parts = i128::from(region.parts.sum()) + i128::from(region.residual());
        assert_eq!(parts, i128::from(region.exclusive), "{region:?}");
        assert!(region.inclusive >= region.exclusive);
        let group = summary.regions.iter().find(|g| g.name == region.name);
        let calls = group.map_or(0, |g| g.time());
        assert!(region.calls.values().sum::<u64>() <= calls, "{region:?}");
    }
}

#[test]
fn the_example_adds_up() {
    for ranks in [1, 4] {
        let run = Run::new((0..ranks).map(|r| testgen::example(r, ranks, 4)).collect());
        let summary = run.summary();
        adds_up(&run, &summary);
        let own: u64 = summary.times.iter().map(|r| r.exclusive).sum();
        assert_eq!(own, summary.total.wall);
        let in_regions: u64 = summary.times.iter().flat_map(|r| r.calls.values()).sum();
        assert_eq!(in_regions, summary.in_calls());
        // Calls account for all processor time in the kernel, and all waits there.
        let sum =
            |of: fn(&CallParts) -> u64| summary.calls.iter().map(|g| of(&g.parts)).sum::<u64>();
        assert_eq!(sum(|p| p.cpu), summary.total.part(TimePart::SyscallCpu));
        assert_eq!(sum(|p| p.blocked), summary.total.part(TimePart::Blocked));
        assert!(summary.times.iter().any(|r| r.name == OUTSIDE));
    }
}

#[test]
fn a_ranks_wall_is_the_runs() {
    let run = Run::new((0..2).map(|r| testgen::example(r, 2, 4)).collect());
    let summary = run.summary();
    for (unit, profile) in summary.units.iter().zip(&run.profiles) {
        let at_ns = profile.data.at_ns;
        let threads = &profile.data.threads;
        let first = threads.iter().map(|t| t.started_ns).min().unwrap();
        let last = threads.iter().map(|t| t.ended_ns.unwrap_or(at_ns)).max();
        assert_eq!(unit.elapsed, last.unwrap() - first);
        assert!(unit.sum.wall > 3 * unit.elapsed);
    }
}

#[test]
fn processes_of_one_name_are_one_row() {
    let mut profile = Profile::default();
    profile.data.at_ns = 1_000;
    // Two that overlap and one later, of one name; one of another.
    for (pid, name, start, end) in [
        (1, "cc", 0, 100),
        (2, "cc", 50, 200),
        (3, "cc", 500, 600),
        (4, "make", 0, 1_000),
    ] {
        profile.data.processes.push(Process {
            pid,
            comm: name.to_owned(),
            ..Process::default()
        });
        profile.data.threads.push(Thread {
            tid: pid,
            pid,
            started_ns: start,
            ended_ns: Some(end),
            parts: TimeParts {
                user: if pid == 4 { 10 } else { end - start },
                blocked: if pid == 4 { 990 } else { 0 },
                ..TimeParts::default()
            },
            ..Thread::default()
        });
    }
    profile.data.calls.push(CallTotals {
        tid: 4,
        context: ROOT,
        call: "wait4".to_owned(),
        count: 3,
        total: 990,
        blocked: 990,
        ..CallTotals::default()
    });
    let summary = Run::new(vec![profile]).summary();
    let rows = summary.programs.iter().map(|p| {
        let user = p.sum.part(TimePart::User);
        (&*p.name, p.processes, p.wall, p.sum.wall, user, p.asleep)
    });
    assert_eq!(
        rows.collect::<Vec<_>>(),
        [("cc", 3, 300, 350, 350, 0), ("make", 1, 1_000, 0, 0, 1_000)]
    );
    assert!(summary.are_unrelated() && summary.critical().is_none());
}

proptest! {
    #[test]
    fn any_recording_adds_up(seeds in prop::collection::vec(any::<u64>(), 0..4), n in 0u32..6) {
        let mut profiles: Vec<_> = seeds.iter().map(|s| modest(testgen::random(*s, 9))).collect();
        profiles.iter_mut().for_each(|p| sleepers(p, n));
        let run = Run::new(profiles);
        adds_up(&run, &run.summary());
        adds_up(&run, &run.summary_of_all());
    }
}
