//! The time between two snapshots.

use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};

use spile_cast::Cast;
use spile_profile::model::{
    Activity, CallTotals, Frame, Header, Ns, Profile, ROOT, Sample, Snapshot, Thread, TimeParts,
    Times,
};

/// What a sample stands for: rows with the same one are one row.
type SampleKey<'s> = (
    u32,
    Activity,
    &'s str,
    Option<u64>,
    &'s Option<String>,
    [SharedStack<'s>; 2],
);

/// A stack of frames that are shared by all snapshots of a recording: equal ones have the same addresses, which takes
/// less time to see than to compare names.
#[derive(Debug, Clone, Copy)]
struct SharedStack<'s>(&'s [Frame]);

impl PartialEq for SharedStack<'_> {
    fn eq(&self, other: &SharedStack<'_>) -> bool {
        let same = self.0.iter().zip(other.0).all(|(a, b)| Frame::ptr_eq(a, b));
        self.0.len() == other.0.len() && same
    }
}

impl Eq for SharedStack<'_> {}

impl Hash for SharedStack<'_> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0
            .iter()
            .for_each(|frame| Frame::as_ptr(frame).hash(hasher));
    }
}

/// The profile of the time between two snapshots. The parts of each thread's time add up to it. Regions are left out.
pub(super) fn between(header: &Header, before: &Snapshot, after: &Snapshot) -> Profile {
    let mut data = Snapshot {
        at_ns: after.at_ns.saturating_sub(before.at_ns),
        ..Snapshot::default()
    };
    let earlier: HashMap<u32, &Thread> = before.threads.iter().map(|t| (t.tid, t)).collect();
    for thread in &after.threads {
        if thread.ended_ns.is_none_or(|end| end > before.at_ns) {
            let parts = earlier.get(&thread.tid).map(|t| t.parts);
            data.threads.push(Thread {
                started_ns: thread.started_ns.saturating_sub(before.at_ns),
                ended_ns: thread.ended_ns.map(|end| end.saturating_sub(before.at_ns)),
                parts: parts_between(&parts.unwrap_or_default(), &thread.parts),
                name: thread.name.clone(),
                ..*thread
            });
        }
    }
    let live: HashSet<u32> = data.threads.iter().map(|t| t.tid).collect();
    data.calls = calls(before, after, &live);
    limit(&mut data);
    data.samples = samples(before, after, &live, data.at_ns);
    Profile {
        header: header.clone(),
        data,
        ..Profile::default()
    }
}

/// The difference of parts. What an activity was taken for before it ended can differ from what it was: then a part
/// became less, and others gained too much.
fn parts_between(before: &TimeParts, after: &TimeParts) -> TimeParts {
    let mut after = *after;
    let mut missing: Ns = 0;
    let mut less = |before: Ns, after: &mut Ns| {
        missing += before.saturating_sub(*after);
        *after = after.saturating_sub(before);
    };
    less(before.user, &mut after.user);
    less(before.syscall_cpu, &mut after.syscall_cpu);
    less(before.blocked, &mut after.blocked);
    less(before.runnable, &mut after.runnable);
    let times = |before: &Times, after: &mut Times| {
        after.count = after.count.saturating_sub(before.count);
        after.ns = after.ns.saturating_sub(before.ns);
    };
    times(&before.fault_minor, &mut after.fault_minor);
    times(&before.fault_major, &mut after.fault_major);
    times(&before.irq, &mut after.irq);
    times(&before.softirq, &mut after.softirq);
    while missing > 0 {
        let parts = [
            &mut after.user,
            &mut after.syscall_cpu,
            &mut after.blocked,
            &mut after.runnable,
        ];
        let Some(part) = parts.into_iter().max().filter(|ns| **ns > 0) else {
            break;
        };
        let taken = missing.min(*part);
        *part -= taken;
        missing -= taken;
    }
    after
}

/// The differences of calls, by thread and call.
fn calls(before: &Snapshot, after: &Snapshot, live: &HashSet<u32>) -> Vec<CallTotals> {
    let sums = |snapshot: &Snapshot| {
        let mut sums: HashMap<(u32, String), CallTotals> = HashMap::new();
        for call in snapshot.calls.iter().filter(|c| live.contains(&c.tid)) {
            let parts = call.parts();
            let sum = sums.entry((call.tid, call.call.clone())).or_default();
            sum.count += call.count;
            sum.total += parts.sum();
            sum.cpu += parts.cpu;
            sum.blocked += parts.blocked;
            sum.runnable += parts.runnable;
        }
        sums
    };
    let earlier = sums(before);
    let difference = |((tid, call), sum): ((u32, String), CallTotals)| {
        let none = CallTotals::default();
        let before = earlier.get(&(tid, call.clone())).unwrap_or(&none);
        let less = |of: fn(&CallTotals) -> u64| of(&sum).saturating_sub(of(before));
        let (cpu, blocked) = (less(|c| c.cpu), less(|c| c.blocked));
        let runnable = less(|c| c.runnable);
        CallTotals {
            tid,
            context: ROOT,
            call,
            count: less(|c| c.count),
            total: less(|c| c.total).max(cpu + blocked + runnable),
            cpu,
            blocked,
            runnable,
            ..CallTotals::default()
        }
    };
    let sums = sums(after).into_iter().map(difference);
    sums.filter(|c| c.total > 0).collect()
}

/// Limits the times of calls to the parts of their threads. They differ where a part became less.
fn limit(data: &mut Snapshot) {
    let mut sums: HashMap<u32, [Ns; 3]> = HashMap::new();
    for call in &data.calls {
        let sum = sums.entry(call.tid).or_default();
        for (sum, ns) in sum.iter_mut().zip([call.cpu, call.blocked, call.runnable]) {
            *sum += ns;
        }
    }
    let of = |t: &Thread| [t.parts.syscall_cpu, t.parts.blocked, t.parts.runnable];
    let threads: HashMap<u32, [Ns; 3]> = data.threads.iter().map(|t| (t.tid, of(t))).collect();
    for call in &mut data.calls {
        let (Some(most), Some(sums)) = (threads.get(&call.tid), sums.get(&call.tid)) else {
            continue;
        };
        let parts = [&mut call.cpu, &mut call.blocked, &mut call.runnable];
        for ((ns, most), sum) in parts.into_iter().zip(most).zip(sums) {
            if sum > most {
                *ns = (u128::from(*ns) * u128::from(*most) / u128::from(*sum)).fit();
            }
        }
    }
}

/// The differences of samples and of waits.
fn samples(before: &Snapshot, after: &Snapshot, live: &HashSet<u32>, length: Ns) -> Vec<Sample> {
    fn key(sample: &Sample) -> SampleKey<'_> {
        (
            sample.tid,
            sample.activity,
            &sample.call,
            sample.futex,
            &sample.object,
            [SharedStack(&sample.kernel), SharedStack(&sample.frames)],
        )
    }
    let of = |sample: &&Sample| live.contains(&sample.tid);
    let mut earlier: HashMap<SampleKey<'_>, (u64, Ns)> = HashMap::new();
    for sample in before.samples.iter().filter(of) {
        let sum = earlier.entry(key(sample)).or_default();
        sum.0 += sample.count;
        sum.1 += sample.ns;
    }
    let mut out = Vec::new();
    for sample in after.samples.iter().filter(of) {
        // A row of several contexts takes what is left of the sum.
        let mut none = (0, 0);
        let sum = earlier.get_mut(&key(sample)).unwrap_or(&mut none);
        let (count, ns) = (sum.0.min(sample.count), sum.1.min(sample.ns));
        (sum.0, sum.1) = (sum.0 - count, sum.1 - ns);
        let (count, ns) = (sample.count - count, sample.ns - ns);
        if count > 0 || ns > 0 {
            out.push(Sample {
                context: ROOT,
                count,
                // A wait that ended can have begun before.
                ns: ns.min(length),
                ..sample.clone()
            });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(at_ns: Ns, threads: Vec<Thread>) -> Snapshot {
        Snapshot {
            at_ns,
            threads,
            ..Snapshot::default()
        }
    }

    fn thread(tid: u32, user: Ns, kernel: Ns, blocked: Ns) -> Thread {
        Thread {
            tid,
            pid: 7,
            parts: TimeParts {
                user,
                syscall_cpu: kernel,
                blocked,
                ..TimeParts::default()
            },
            ..Thread::default()
        }
    }

    fn call(tid: u32, context: u32, cpu: Ns, blocked: Ns) -> CallTotals {
        CallTotals {
            tid,
            context,
            call: "read".into(),
            count: 1,
            total: cpu + blocked,
            cpu,
            blocked,
            ..CallTotals::default()
        }
    }

    fn sample(tid: u32, context: u32, count: u64) -> Sample {
        Sample {
            tid,
            context,
            count,
            ..Sample::default()
        }
    }

    #[test]
    fn the_time_of_each_thread_closes() {
        let before = snapshot(1000, vec![thread(7, 600, 300, 100), thread(8, 0, 0, 1000)]);
        let mut ended = thread(8, 0, 0, 1400);
        ended.ended_ns = Some(1400);
        let mut new = thread(9, 100, 0, 0);
        new.started_ns = 2900;
        // What had been the program's time so far was that of a call.
        let changed = thread(7, 500, 1900, 600);
        let after = snapshot(3000, vec![changed, ended, new]);
        let profile = between(&Header::default(), &before, &after);
        let data = &profile.data;
        assert_eq!((data.at_ns, data.threads.len()), (2000, 3));
        for thread in &data.threads {
            assert_eq!(thread.residual(data.at_ns), 0, "{thread:?}");
        }
        assert_eq!(data.threads[0].parts.user, 0);
        assert_eq!(data.threads[0].parts.blocked, 500);
        let wall = |i: usize| data.threads[i].wall(data.at_ns);
        assert_eq!((wall(0), wall(1), wall(2)), (2000, 400, 100));
        // A thread that had ended before is not in the next interval.
        let next = between(&Header::default(), &after, &after);
        assert_eq!(next.data.threads.len(), 2);
    }

    #[test]
    fn calls_and_samples_are_differences_of_all_contexts() {
        let mut before = snapshot(1000, vec![thread(7, 0, 400, 600)]);
        before.calls = vec![call(7, 0, 300, 500), call(7, 3, 100, 100)];
        before.samples = vec![sample(7, 0, 5), sample(7, 3, 2)];
        let mut after = snapshot(2000, vec![thread(7, 0, 900, 1100)]);
        after.calls = vec![call(7, 3, 600, 900), call(7, 0, 300, 500), call(6, 0, 9, 9)];
        after.samples = vec![sample(7, 0, 6), sample(7, 3, 9), sample(6, 0, 1)];
        let data = between(&Header::default(), &before, &after).data;
        // A part of the thread limits its calls: 800 ns blocked in calls are more than 500.
        let calls = &data.calls;
        assert_eq!((calls.len(), calls[0].cpu, calls[0].blocked), (1, 500, 500));
        let samples: u64 = data.samples.iter().map(|s| s.count).sum();
        assert_eq!(samples, 8);
        assert!(data.samples.iter().all(|s| s.context == ROOT));
    }
}
