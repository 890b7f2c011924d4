//! The account at this moment, including what threads are in the middle of.
//!
//! Rows have the activities that ended. The rest of a live thread's time is that of its current one: a call, or the
//! program itself. Its parts come from `/proc`: how long the thread ran, and how long it was ready.

use std::collections::HashMap;

use spile_profile::model::{
    Activity, CallParts, CallTotals, Ns, ROOT, Sample, Snapshot, Thread, TimeParts,
};

use super::builder::{ProfileBuilder, REUSED};

/// For how long the kernel's times of a running thread can be out of date: some ticks.
const STALE: Ns = 20_000_000;

/// What a thread does now, as `/proc` shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ThreadNow {
    /// Whether it runs, or is ready to.
    pub(crate) runs: bool,
    /// Its time on a processor, and its time ready without one, since its start.
    pub(crate) ran: Ns,
    pub(crate) ready: Ns,
    /// The call in which it waits, and what it waits for.
    pub(crate) call: Option<WaitNow>,
}

/// A wait that has not ended, see [`Sample`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WaitNow {
    pub(crate) call: String,
    pub(crate) futex: Option<u64>,
    pub(crate) object: Option<String>,
}

/// What threads do now, by their numbers.
pub(crate) type ThreadsNow = HashMap<u32, ThreadNow>;

/// The times of threads at the last look.
#[derive(Debug, Default)]
pub(crate) struct ThreadTimes(HashMap<u32, ThreadTime>);

/// The times of a thread: by the kernel, and as the account had them.
#[derive(Debug, Clone, Copy, Default)]
struct ThreadTime {
    ran: Ns,
    ready: Ns,
    counted: CallParts,
}

impl ThreadTimes {
    /// Notes the times of a thread before the recording.
    pub(crate) fn before(&mut self, tid: u32, now: &ThreadNow) {
        self.0.insert(
            tid,
            ThreadTime {
                ran: now.ran,
                ready: now.ready,
                ..ThreadTime::default()
            },
        );
    }

    /// The parts of a thread's current activity, which takes `rest` so far. `new`: the thread began in the recording.
    fn open_parts(&mut self, thread: &Thread, now: &ThreadNow, rest: Ns, new: bool) -> CallParts {
        let ended = CallParts {
            cpu: on_cpu(&thread.parts),
            blocked: thread.parts.blocked,
            runnable: thread.parts.runnable,
            taken: 0,
        };
        let known = self.0.get(&thread.tid).copied();
        let last = known.unwrap_or(match new {
            true => ThreadTime::default(),
            // The kernel's times of an older thread at the beginning are not known.
            false => ThreadTime {
                ran: now.ran,
                ready: now.ready,
                counted: ended,
            },
        });
        // What the kernel added since then, and what the account had more than it has now.
        let open = |added: Ns, counted: Ns, ended: Ns| (counted + added).saturating_sub(ended);
        let ready = now.ready.saturating_sub(last.ready);
        let runnable = open(ready, last.counted.runnable, ended.runnable).min(rest);
        let ran = now.ran.saturating_sub(last.ran);
        let cpu = open(ran, last.counted.cpu, ended.cpu).min(rest - runnable);
        let unknown = rest - runnable - cpu;
        let mut parts = CallParts {
            cpu,
            blocked: unknown,
            runnable,
            taken: 0,
        };
        if now.runs {
            // It was not blocked since the last look, or the account would have it: the kernel adds the time on a
            // processor at ticks, and the time without one when that is over.
            parts.blocked = open(0, last.counted.blocked, ended.blocked).min(unknown);
            let late = unknown - parts.blocked;
            match late <= STALE || known.is_none() && !new {
                true => parts.cpu += late,
                false => parts.runnable += late,
            }
        }
        let mut counted = ended;
        counted.add(&parts);
        self.0.insert(
            thread.tid,
            ThreadTime {
                ran: now.ran,
                ready: now.ready,
                counted,
            },
        );
        parts
    }
}

/// Time on a processor: in the program, in calls, in faults and in interrupts.
pub(crate) fn on_cpu(parts: &TimeParts) -> Ns {
    let faults = parts.fault_minor.ns + parts.fault_major.ns;
    parts.user + parts.syscall_cpu + faults + parts.irq.ns + parts.softirq.ns
}

impl ProfileBuilder {
    /// The account with what threads did when it began. `listed` are threads of processes that existed before, with
    /// or without events.
    pub(crate) fn now(
        &self,
        times: &mut ThreadTimes,
        listed: &[(u32, u32)],
        at_work: &ThreadsNow,
    ) -> Snapshot {
        let mut data = self.snapshot();
        let silent = listed
            .iter()
            .filter(|(_, tid)| !self.earlier_threads.contains_key(tid));
        for (pid, tid) in silent {
            let name = self.identify.and_then(|who| who(*tid)).map(|who| who.name);
            data.threads.push(Thread {
                tid: *tid,
                pid: *pid,
                name: name.unwrap_or_default(),
                started_ns: self.entered.get(pid).copied().unwrap_or(0),
                ..Thread::default()
            });
        }
        let at = data.at_ns;
        let named = data.samples.iter();
        let named = named.filter_map(|s| Some((s.futex?, s.object.clone()?)));
        let variables: HashMap<u64, String> = named.collect();
        let mut calls: HashMap<(u32, String), usize> = HashMap::new();
        for (index, call) in data.calls.iter().enumerate() {
            calls.insert((call.tid, call.call.clone()), index);
        }
        for thread in data.threads.iter_mut().filter(|t| t.ended_ns.is_none()) {
            let rest = thread.wall(at).saturating_sub(thread.accounted());
            let Some(now) = at_work.get(&(thread.tid % REUSED)) else {
                continue;
            };
            let new = thread.started_ns > 0 && !self.entered.contains_key(&thread.pid);
            let open = times.open_parts(thread, now, rest, new);
            let Some(wait) = now.call.as_ref().filter(|_| !now.runs) else {
                thread.parts.user += open.cpu;
                thread.parts.blocked += open.blocked;
                thread.parts.runnable += open.runnable;
                continue;
            };
            open.add_to(&mut thread.parts);
            let key = (thread.tid, wait.call.clone());
            let index = *calls.entry(key).or_insert_with(|| {
                data.calls.push(CallTotals {
                    tid: thread.tid,
                    context: ROOT,
                    call: wait.call.clone(),
                    ..CallTotals::default()
                });
                data.calls.len() - 1
            });
            let call = &mut data.calls[index];
            call.total += rest;
            call.cpu += open.cpu;
            call.blocked += open.blocked;
            call.runnable += open.runnable;
            let variable = wait.futex.and_then(|futex| variables.get(&futex));
            let object = wait.object.as_ref().or(variable).cloned();
            if wait.futex.is_some() || object.is_some() {
                data.samples.push(Sample {
                    tid: thread.tid,
                    activity: Activity::Blocked,
                    call: wait.call.clone(),
                    futex: wait.futex,
                    object,
                    ns: open.blocked,
                    ..Sample::default()
                });
            }
        }
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Ns = 1_000_000;

    fn now(runs: bool, ran: Ns, ready: Ns) -> ThreadNow {
        ThreadNow {
            runs,
            ran,
            ready,
            call: None,
        }
    }

    fn parts(cpu: Ns, blocked: Ns, runnable: Ns) -> CallParts {
        CallParts {
            cpu,
            blocked,
            runnable,
            taken: 0,
        }
    }

    #[test]
    fn the_rest_of_a_threads_time_has_the_kernels_parts() {
        let mut times = ThreadTimes::default();
        let mut thread = Thread {
            tid: 7,
            ..Thread::default()
        };
        times.before(7, &now(false, 500, 90));
        // It sleeps, after it ran for 100 ns and was ready for 10.
        let open = times.open_parts(&thread, &now(false, 600, 100), 1000, false);
        assert_eq!(open, parts(100, 890, 10));
        // The same sleep goes on.
        let open = times.open_parts(&thread, &now(false, 600, 100), 3000, false);
        assert_eq!(open, parts(100, 2890, 10));
        // It has just woken: the sleep is no time on a processor.
        let open = times.open_parts(&thread, &now(true, 600, 100), 3005, false);
        assert_eq!(open, parts(105, 2890, 10));
        // The sleep is in the account now, and the thread waits for a processor for long.
        (thread.parts.syscall_cpu, thread.parts.blocked) = (105, 2900);
        thread.parts.runnable = 10;
        let open = times.open_parts(&thread, &now(true, 650, 100), 50 * MS, false);
        assert_eq!(open, parts(50, 0, 50 * MS - 50));
    }

    #[test]
    fn running_threads_without_a_history_run() {
        let mut times = ThreadTimes::default();
        let thread = Thread {
            tid: 7,
            ..Thread::default()
        };
        let open = times.open_parts(&thread, &now(true, 9 * MS, MS), 100 * MS, false);
        assert_eq!(open, parts(100 * MS, 0, 0));
        let new = Thread {
            tid: 8,
            started_ns: 5,
            ..Thread::default()
        };
        let open = times.open_parts(&new, &now(true, 60 * MS, 39 * MS), 100 * MS, true);
        assert_eq!(open, parts(61 * MS, 0, 39 * MS));
    }
}
