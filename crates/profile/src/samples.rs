//! The whole time of threads by place: the measured time of each activity, divided by samples.
//!
//! In: a profile with [`Sample`] rows. Out: paths whose times add up to the measured parts of each
//! thread's time. Time in an activity without samples stays at the region or call itself.

use std::collections::{BTreeMap, HashMap, HashSet};

use spile_cast::Cast;

use crate::model::{
    Activity, CallTotals, Frame, Ns, Process, Profile, ROOT, Sample, Stack, Thread, TimePart,
};
use crate::paths::{LocationKind, Locations, PathSample, functions};
use crate::waits::{WaitKind, WaitKinds};

/// The samples of one activity of a thread in a context: those of a call have its name.
type Key<'a> = (Activity, u32, &'a str);

/// The samples of a thread that no time was divided by yet.
type ThreadSamples<'a> = BTreeMap<Key<'a>, Vec<Samples<'a>>>;

/// A row of samples, or of calls with their stack.
#[derive(Clone, Copy)]
struct Samples<'a> {
    context: u32,
    futex: Option<u64>,
    object: Option<&'a String>,
    kernel: &'a [Frame],
    frames: &'a [Frame],
    count: u64,
    ns: Ns,
}

impl<'a> From<&'a Sample> for Samples<'a> {
    fn from(row: &'a Sample) -> Samples<'a> {
        Samples {
            context: row.context,
            futex: row.futex,
            object: row.object.as_ref(),
            kernel: &row.kernel,
            frames: &row.frames,
            count: row.count,
            ns: row.ns,
        }
    }
}

impl<'a> From<&'a Stack> for Samples<'a> {
    fn from(row: &'a Stack) -> Samples<'a> {
        Samples {
            context: row.context,
            futex: None,
            object: None,
            kernel: &[],
            frames: &row.frames,
            count: row.count,
            ns: row.ns,
        }
    }
}

/// The paths of threads, by their ids. Without samples, the times blocked in calls are divided by the
/// stacks of these calls, if these were recorded.
pub(crate) fn paths(profile: &Profile) -> HashMap<u32, Vec<PathSample>> {
    let data = &profile.data;
    let mut attribution = Attribution {
        locations: Locations::new(profile),
        samples: by_thread(profile),
        waits: WaitKinds::default(),
        children: children(profile),
        paths: HashMap::new(),
    };
    let mut blocked: HashMap<u32, Ns> = HashMap::new();
    for call in &data.calls {
        let sum = blocked.entry(call.tid).or_default();
        *sum = sum.saturating_add(call.parts().blocked);
        attribution.call(call);
    }
    let mut contexts: HashMap<u32, Vec<(u32, Ns)>> = HashMap::new();
    for time in &data.context_times {
        let times = contexts.entry(time.tid).or_default();
        times.push((time.context, time.parts.user));
    }
    for thread in &data.threads {
        let contexts = contexts.remove(&thread.tid).unwrap_or_default();
        let blocked = blocked.get(&thread.tid).copied().unwrap_or(0);
        attribution.outside(thread, &contexts, blocked);
    }
    attribution.paths
}

/// The names of the child processes that ended most of the waits of threads, by the threads' ids.
fn children(profile: &Profile) -> HashMap<u32, &str> {
    let data = &profile.data;
    let processes: HashMap<u32, u32> = data.threads.iter().map(|t| (t.tid, t.pid)).collect();
    let rows: HashMap<u32, &Process> = data.processes.iter().map(|p| (p.pid, p)).collect();
    let mut longest: HashMap<u32, (Ns, &str)> = HashMap::new();
    for row in &data.wakers {
        let child = row.waker.and_then(|tid| rows.get(processes.get(&tid)?));
        let Some(child) = child.filter(|c| processes.get(&row.tid) == Some(&c.ppid)) else {
            continue;
        };
        let known = longest.entry(row.tid).or_default();
        *known = (*known).max((row.ns, &child.comm));
    }
    let names = longest.into_iter();
    names.map(|(tid, (_, name))| (tid, name)).collect()
}

/// The samples by thread and activity. Where the stacks of all calls were recorded, they replace the
/// samples that were taken in these calls.
fn by_thread(profile: &Profile) -> HashMap<u32, ThreadSamples<'_>> {
    let data = &profile.data;
    let mut out: HashMap<u32, ThreadSamples<'_>> = HashMap::new();
    let mut add = |tid: u32, key, row| {
        let samples = out.entry(tid).or_default();
        samples.entry(key).or_default().push(row);
    };
    let mut exact: HashSet<(u32, Key<'_>)> = HashSet::new();
    for stack in &data.stacks {
        let key = (Activity::Call, stack.context, &*stack.call);
        exact.insert((stack.tid, key));
        add(stack.tid, key, stack.into());
        if profile.header.options.samples.is_none() {
            let key = (Activity::Blocked, stack.context, &*stack.call);
            add(stack.tid, key, stack.into());
        }
    }
    for sample in &data.samples {
        let key = (sample.activity, sample.context, &*sample.call);
        if !exact.contains(&(sample.tid, key)) {
            add(sample.tid, key, sample.into());
        }
    }
    out
}

/// The state of [`paths`].
struct Attribution<'a> {
    locations: Locations<'a>,
    samples: HashMap<u32, ThreadSamples<'a>>,
    waits: WaitKinds,
    /// The child that ended most of a thread's waits, by the thread's id.
    children: HashMap<u32, &'a str>,
    paths: HashMap<u32, Vec<PathSample>>,
}

/// A measured time of a thread.
#[derive(Clone, Copy)]
struct Measured<'c> {
    tid: u32,
    context: u32,
    part: TimePart,
    /// The system call; empty outside of calls.
    call: &'c str,
    /// Number of calls.
    count: u64,
    ns: Ns,
}

impl<'a> Attribution<'a> {
    /// Divides the time of a thread's calls of one name in a context.
    fn call(&mut self, call: &'a CallTotals) {
        let parts = call.parts();
        let open = u64::from(call.unfinished.is_some());
        let mut count = call.count.saturating_add(open);
        for (activity, part, ns) in [
            (Activity::Call, TimePart::SyscallCpu, parts.cpu),
            (Activity::Blocked, TimePart::Blocked, parts.blocked),
        ] {
            let samples = self.of_context(call.tid, (activity, call.context, &*call.call));
            // Calls count even if they took no time.
            if ns == 0 && (part == TimePart::Blocked || parts.blocked > 0) {
                continue;
            }
            let mut time = Measured {
                tid: call.tid,
                context: call.context,
                part,
                call: &call.call,
                // Each call counts once.
                count: std::mem::take(&mut count),
                ns,
            };
            let unseen = without_stack(call, &time, &samples);
            time.ns -= unseen;
            self.divide(time, &samples);
            (time.count, time.ns) = (0, unseen);
            self.divide(time, &[]);
        }
    }

    /// Divides a thread's time outside of calls. `contexts`: its time in user mode in each;
    /// `blocked`: its time blocked in calls.
    fn outside(&mut self, thread: &Thread, contexts: &[(u32, Ns)], blocked: Ns) {
        let parts = &thread.parts;
        let mut time = Measured {
            tid: thread.tid,
            context: ROOT,
            part: TimePart::User,
            call: "",
            count: 0,
            ns: 0,
        };
        let mut rest = parts.user;
        for (context, ns) in contexts {
            (time.context, time.ns) = (*context, rest.min(*ns));
            rest -= time.ns;
            let samples = self.of_context(thread.tid, (Activity::User, *context, ""));
            self.divide(time, &samples);
        }
        time.context = ROOT;
        let in_user = self.take(thread.tid, Activity::User);
        let in_faults = self.take(thread.tid, Activity::Fault);
        // Outside of calls, threads wait in page faults, and have stacks of these waits, or are stopped.
        let waits = self.of_context(thread.tid, (Activity::Blocked, ROOT, ""));
        let blocked = parts.blocked.saturating_sub(blocked);
        let in_waits = waits
            .iter()
            .fold(0, |sum: Ns, wait| sum.saturating_add(wait.ns));
        let in_waits = in_waits.min(blocked);
        for (part, ns, samples) in [
            (TimePart::User, rest, &in_user[..]),
            (TimePart::FaultMinor, parts.fault_minor.ns, &in_faults),
            (TimePart::FaultMajor, parts.fault_major.ns, &in_faults),
            (TimePart::Irq, parts.irq.ns, &[]),
            (TimePart::Softirq, parts.softirq.ns, &[]),
            (TimePart::Runnable, parts.runnable, &[]),
            (TimePart::Blocked, in_waits, &waits),
            (TimePart::Blocked, blocked - in_waits, &[]),
        ] {
            self.divide(Measured { part, ns, ..time }, samples);
        }
    }

    /// Takes the samples of an activity in a context.
    fn of_context(&mut self, tid: u32, key: Key<'a>) -> Vec<Samples<'a>> {
        let samples = self.samples.get_mut(&tid).and_then(|s| s.remove(&key));
        samples.unwrap_or_default()
    }

    /// Takes the samples of an activity that are left, of all contexts and calls.
    fn take(&mut self, tid: u32, activity: Activity) -> Vec<Samples<'a>> {
        let Some(samples) = self.samples.get_mut(&tid) else {
            return Vec::new();
        };
        let taken = samples.extract_if(.., |key, _| key.0 == activity);
        taken.flat_map(|(_, samples)| samples).collect()
    }

    /// Divides a time by samples.
    fn divide(&mut self, time: Measured<'a>, samples: &[Samples<'_>]) {
        if time.ns == 0 && time.count == 0 {
            return;
        }
        let call = (!time.call.is_empty()).then(|| self.locations.call(time.call));
        let named = matches!(time.part, TimePart::User | TimePart::SyscallCpu);
        let mut paths = Vec::with_capacity(samples.len().max(1));
        let weights: Vec<u64> = samples.iter().map(weight).collect();
        if weights.iter().all(|w| *w == 0) {
            let mut path = self.locations.region(time.context).to_vec();
            let nameless = !named || call.is_none() && path.is_empty();
            path.extend(call);
            path.extend(nameless.then(|| self.locations.state(time.part)));
            paths.push(PathSample {
                path,
                part: Some(time.part),
                wait: self.wait(&time, time.context, &[]),
                futex: None,
                object: self.child(&time),
                count: time.count,
                ns: time.ns,
            });
            self.paths.entry(time.tid).or_default().append(&mut paths);
            return;
        }
        let counts = shares(time.count, &weights);
        let times = shares(time.ns, &weights);
        for ((sample, ns), count) in samples.iter().zip(times).zip(counts) {
            let regions = self.locations.region(sample.context);
            let length = regions.len() + sample.frames.len() + sample.kernel.len() + 2;
            let mut path = Vec::with_capacity(length);
            path.extend_from_slice(regions);
            path.extend(functions(sample.frames, LocationKind::Function));
            path.extend(call.clone());
            path.extend(functions(sample.kernel, LocationKind::Kernel));
            let nameless = !named || path.is_empty();
            path.extend(nameless.then(|| self.locations.state(time.part)));
            let wait = self.wait(&time, sample.context, sample.frames);
            let object = sample.object.map(|name| match wait {
                Some(WaitKind::Condition) => variable_of_condition(name),
                _ => name,
            });
            paths.push(PathSample {
                path,
                part: Some(time.part),
                wait,
                futex: sample.futex,
                object: object.map(str::to_owned).or_else(|| self.child(&time)),
                count: if call.is_some() { count } else { sample.count },
                ns,
            });
        }
        self.paths.entry(time.tid).or_default().append(&mut paths);
    }

    /// What a thread with these frames waits for in a context. In barriers and in MPI only the
    /// libraries wait, asleep or not.
    fn wait(&mut self, time: &Measured<'_>, context: u32, frames: &[Frame]) -> Option<WaitKind> {
        let kind = match time.part {
            TimePart::Blocked | TimePart::User | TimePart::SyscallCpu => self.waits.of(frames),
            _ => return None,
        };
        let blocked = time.part == TimePart::Blocked;
        let kind = kind.filter(|kind| blocked || *kind == WaitKind::Barrier);
        let kind = kind.or_else(|| match self.locations.wait(context)? {
            WaitKind::Barrier if frames.first().is_some_and(|frame| !frame.in_library()) => None,
            kind => Some(kind),
        });
        kind.or_else(|| WaitKind::of_call(time.call).filter(|_| blocked))
    }

    /// The name of the child that a thread waited for, if it did.
    fn child(&self, time: &Measured<'_>) -> Option<String> {
        let waits =
            time.part == TimePart::Blocked && WaitKind::of_call(time.call) == Some(WaitKind::Child);
        waits
            .then(|| self.children.get(&time.tid))
            .flatten()
            .map(|name| (*name).to_owned())
    }
}

/// The variable of a condition by that of a futex in it: glibc's conditions have two, at offsets that depend on the
/// version, and 48 bytes.
fn variable_of_condition(futex: &str) -> &str {
    match futex.rsplit_once("+0x") {
        Some((name, offset)) if u64::from_str_radix(offset, 16).is_ok_and(|at| at < 48) => name,
        _ => futex,
    }
}

/// The time of short waits of a thread that may have no stack in their own call.
const SHORT_WAITS: Ns = 2_000_000;

/// The part of the time blocked in a call that belongs to no stack: the unfinished wait, if it has none, and waits whose
/// stacks found the table of places full. Other stacks say nothing about it. Waits of less than a millisecond have stacks
/// together with other calls, so a small rest is theirs.
fn without_stack(call: &CallTotals, time: &Measured<'_>, samples: &[Samples<'_>]) -> Ns {
    let with_stack = samples
        .iter()
        .fold(0, |sum: Ns, s| sum.saturating_add(s.ns));
    if time.part != TimePart::Blocked || with_stack == 0 {
        return 0;
    }
    let rest = time.ns.saturating_sub(with_stack);
    if rest > time.ns / 20 + SHORT_WAITS {
        rest
    } else {
        rest.min(call.open_parts().blocked)
    }
}

/// What a sample stands for, in proportion to others of its activity: measured time if it has one.
fn weight(sample: &Samples<'_>) -> u64 {
    match sample.ns {
        0 => sample.count,
        measured => measured,
    }
}

/// Divides a number in proportion to weights, not all of them 0. The shares add up to it.
fn shares(number: u64, weights: &[u64]) -> Vec<u64> {
    let whole: u128 = weights.iter().map(|w| u128::from(*w)).sum();
    // Files can contain any numbers.
    let shift = (u128::BITS - whole.leading_zeros()).saturating_sub(u64::BITS);
    let (mut below, mut given) = (0u128, 0);
    let share = |weight: &u64| {
        below += u128::from(*weight);
        let until: u64 = (u128::from(number) * (below >> shift) / (whole >> shift)).fit();
        until - std::mem::replace(&mut given, until)
    };
    weights.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_has_the_name_of_its_variable() {
        for (futex, name) in [
            ("ready+0x28", "ready"),
            ("ready", "ready"),
            ("pool+0x68", "pool+0x68"),
            ("a+0xz", "a+0xz"),
        ] {
            assert_eq!(variable_of_condition(futex), name);
        }
    }

    #[test]
    fn shares_add_up() {
        assert_eq!(shares(10, &[1, 1, 1]), [3, 3, 4]);
        assert_eq!(shares(7, &[0, 5, 0]), [0, 7, 0]);
        assert_eq!(shares(0, &[1, 2]), [0, 0]);
        assert_eq!(
            shares(u64::MAX, &[u64::MAX, u64::MAX]).iter().sum::<u64>(),
            u64::MAX
        );
    }
}
