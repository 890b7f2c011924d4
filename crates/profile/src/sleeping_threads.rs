//! Threads that only sleep: helpers of libraries that wait for work all their life. Reports list
//! them separately, so that their waits do not hide those of working threads. A thread that waits for
//! locks or at barriers for a part of its time, as stacks of its waits show, is no such thread.

use std::collections::{HashMap, HashSet};

use spile_cast::Cast;

use crate::model::{Activity, Ns, Profile, ROOT, Sample, Thread, TimePart};
use crate::waits::{WaitKind, WaitKinds};

/// System calls that only wait: for a lock, a time, an event of a file, a signal, a child.
pub(crate) const WAITS: [&str; 22] = [
    "accept",
    "accept4",
    "clock_nanosleep",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "futex",
    "futex_wait",
    "futex_waitv",
    "nanosleep",
    "pause",
    "poll",
    "ppoll",
    "pselect6",
    "restart_syscall",
    "rt_sigsuspend",
    "rt_sigtimedwait",
    "select",
    "semop",
    "semtimedop",
    "wait4",
    "waitid",
];

/// Minimum share, in thousandths of the time not spent waiting for a processor, that a sleeping
/// thread was blocked in such calls or in an unfinished one.
const ASLEEP: u128 = 990;

/// Minimum share, in thousandths of that time, of waits for locks and at barriers by a thread that does not only sleep.
/// Helpers of a library take locks too.
const PARTNERS: u128 = 50;

/// Ids of the threads of a profile that only sleep: those blocked in waiting calls for 99 % of the
/// time that they did not wait for a processor, for longer than they waited for a processor, less than 5 % of it for
/// locks and at barriers, and in no region of the program. The thread with the most processor time is never one of them.
pub fn sleeping_threads(profile: &Profile) -> HashSet<u32> {
    let data = &profile.data;
    // By thread: all waits, and those for locks and at barriers.
    let mut waits: HashMap<u32, (Ns, Ns)> = HashMap::new();
    let for_threads = waits_for_threads(&data.samples);
    let mut in_regions: HashSet<u32> = data.context_times.iter().map(|row| row.tid).collect();
    for call in &data.calls {
        if call.context != ROOT {
            in_regions.insert(call.tid);
        }
        let parts = if WAITS.contains(&&*call.call) {
            call.parts()
        } else {
            call.open_parts()
        };
        let (for_threads, sampled) = for_threads
            .get(&(call.tid, &*call.call))
            .copied()
            .unwrap_or_default();
        let for_partners = (u128::from(parts.blocked) * u128::from(for_threads))
            .checked_div(sampled.into())
            .map_or(0, Cast::fit);
        let (all, partners) = waits.entry(call.tid).or_default();
        *all = all.saturating_add(parts.blocked);
        *partners = partners.saturating_add(for_partners);
    }
    // Of several threads with the most processor time, the first counts.
    let busiest = data.threads.iter().rev().max_by_key(|t| on_a_cpu(t));
    let busiest = busiest.map(|t| t.tid);
    let sleeps = |thread: &&Thread| {
        let ready = thread.parts.runnable;
        let rest = u128::from(thread.wall(data.at_ns).saturating_sub(ready));
        let (waits, for_partners) = waits.get(&thread.tid).copied().unwrap_or_default();
        rest > 0
            && u128::from(waits) * 1000 >= rest * ASLEEP
            && u128::from(for_partners) * 1000 < rest * PARTNERS
            && waits > ready
            && Some(thread.tid) != busiest
            && !in_regions.contains(&thread.tid)
    };
    data.threads.iter().filter(sleeps).map(|t| t.tid).collect()
}

/// The time of waits with a stack, by thread and call: for locks and at barriers, and all.
fn waits_for_threads(samples: &[Sample]) -> HashMap<(u32, &str), (Ns, Ns)> {
    let mut sums: HashMap<(u32, &str), (Ns, Ns)> = HashMap::new();
    let mut kinds = WaitKinds::default();
    for sample in samples.iter().filter(|s| s.activity == Activity::Blocked) {
        let (for_threads, all) = sums.entry((sample.tid, &sample.call)).or_default();
        let before = *all;
        *all = all.saturating_add(sample.ns);
        if kinds
            .of(&sample.frames)
            .is_some_and(WaitKind::is_for_partners)
        {
            *for_threads += *all - before;
        }
    }
    sums
}

/// Processor time of a thread.
pub(crate) fn on_a_cpu(thread: &Thread) -> Ns {
    let on = TimePart::ALL.iter().filter(|part| part.on_a_cpu());
    on.fold(0, |sum, part| {
        sum.saturating_add(part.time_in(&thread.parts))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CallParts, CallTotals, Frame, StackFrame, TimeParts};

    /// Of a second of waits, as their stacks say, so much is for a lock.
    fn lock_waits(tid: u32, ms: Ns) -> [Sample; 2] {
        [("pthread_cond_wait", 1000 - ms), ("__lll_lock_wait", ms)].map(|(function, ms)| Sample {
            tid,
            activity: Activity::Blocked,
            call: "futex".to_owned(),
            frames: vec![Frame::new(StackFrame {
                function: function.to_owned(),
                ..StackFrame::default()
            })],
            ns: ms * 1_000_000,
            ..Sample::default()
        })
    }

    #[test]
    fn threads_that_wait_for_locks_do_not_only_sleep() {
        let mut profile = Profile::default();
        thread(&mut profile, 1, 500_000, waited("futex", 500_000));
        for (tid, ms) in [(2, 0), (3, 40), (4, 60)] {
            thread(&mut profile, tid, 0, waited("futex", 1_000_000));
            profile.data.samples.extend(lock_waits(tid, ms));
        }
        assert_eq!(sleeping_threads(&profile), HashSet::from([2, 3]));
    }

    /// A thread that was in the program for `user` ns, and for the rest of 1,000,000 ns in calls.
    fn thread(profile: &mut Profile, tid: u32, user: Ns, call: CallTotals) {
        profile.data.at_ns = 1_000_000;
        let parts = call.parts();
        let mut row = Thread {
            tid,
            pid: 1,
            parts: TimeParts {
                user,
                ..TimeParts::default()
            },
            ..Thread::default()
        };
        parts.add_to(&mut row.parts);
        profile.data.threads.push(row);
        profile.data.calls.push(CallTotals { tid, ..call });
    }

    fn waited(call: &str, blocked: Ns) -> CallTotals {
        CallTotals {
            call: call.to_owned(),
            count: 9,
            total: blocked,
            blocked,
            ..CallTotals::default()
        }
    }

    #[test]
    fn threads_that_only_sleep_are_recognised() {
        let mut profile = Profile::default();
        thread(&mut profile, 1, 500_000, waited("futex", 500_000));
        thread(&mut profile, 2, 5_000, waited("futex", 995_000));
        thread(&mut profile, 3, 20_000, waited("futex", 980_000));
        // Ready for a while, and for most of the time.
        for (tid, ready, blocked) in [(7, 400_000, 597_000), (8, 600_000, 397_000)] {
            let call = CallTotals {
                total: 997_000,
                runnable: ready,
                ..waited("poll", blocked)
            };
            thread(&mut profile, tid, 3_000, call);
        }
        // Waiting for a disk counts as work.
        thread(&mut profile, 4, 5_000, waited("fsync", 995_000));
        // An unfinished call counts as a wait.
        let open = CallTotals {
            call: "read".to_owned(),
            unfinished: Some(999_000),
            unfinished_parts: Some(CallParts {
                blocked: 999_000,
                ..CallParts::default()
            }),
            ..CallTotals::default()
        };
        thread(&mut profile, 5, 1_000, open);
        // It waits in a region of the program.
        let in_region = CallTotals {
            context: 1,
            ..waited("futex", 995_000)
        };
        thread(&mut profile, 6, 5_000, in_region);
        assert_eq!(sleeping_threads(&profile), HashSet::from([2, 5, 7]));
        // If all threads sleep, one is left.
        profile.data.threads.retain(|t| [2, 5].contains(&t.tid));
        assert_eq!(sleeping_threads(&profile), HashSet::from([5]));
        assert_eq!(sleeping_threads(&Profile::default()), HashSet::new());
    }
}
