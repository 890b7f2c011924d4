//! The time line of the page: lanes of a thread, each with consecutive events. Events that are too
//! many for a browser are replaced by sums over short times, so that every lane's shares are
//! complete.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Value, json};
use spile_cast::Cast;

use crate::model::{Activity, BLOCKED, Ns, Profile, READY, Thread, thread_title};
use crate::run::{ContextIndex, Run, WITHIN, label};
use crate::timeline::{TimeSpan, timelines};
use crate::waits::{WaitKind, WaitKinds};

/// Maximum number of events of a page, the longest ones: a browser can hold some hundred thousand.
const EVENTS: usize = 200_000;
/// Maximum number of sums for the other events, over all lanes; and the number of intervals that a
/// lane is divided into for them.
const SUMS: usize = 400_000;
const TIMES: (usize, usize) = (64, 4096);
/// Maximum number of threads, the most active ones, and of region lanes of a thread; the deepest
/// lane also shows deeper regions.
const THREADS: usize = 300;
const DEEPEST: usize = 6;
/// Number of reasons to be off the processor. Outside of calls, this is added to them.
const OFF: usize = 4;
/// The last of them: blocked for a lock.
const LOCK: usize = 3;

/// The content of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LaneKind {
    /// Regions at this depth.
    Region(usize),
    /// System calls, and the program in between.
    Call,
    /// Times off the processor.
    Off,
}

/// An event of a lane.
struct LaneEvent {
    lane: usize,
    /// Index of its name among those of its kind.
    name: usize,
    /// Index of its region.
    within: usize,
    start: Ns,
    length: Ns,
    /// Its return value; for a time off the processor, the index of the waker. `None` for an
    /// unfinished event, one that returns nothing, and an unknown waker.
    result: Option<i64>,
    open: bool,
}

/// Assigns indexes to names, and sums up their times.
#[derive(Default)]
struct NameIndex {
    numbers: HashMap<String, usize>,
    names: Vec<String>,
    times: Vec<Ns>,
}

impl NameIndex {
    fn number(&mut self, name: String, ns: Ns) -> usize {
        let number = *self.numbers.entry(name).or_insert_with_key(|name| {
            self.names.push(name.clone());
            self.times.push(0);
            self.names.len() - 1
        });
        self.times[number] = self.times[number].saturating_add(ns);
        number
    }

    /// The names, the longest time first; and the new position of each index.
    fn sorted(&self) -> (Vec<&str>, Vec<usize>) {
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        order.sort_by_key(|n| (std::cmp::Reverse(self.times[*n]), &self.names[*n]));
        let mut locations = vec![0; order.len()];
        for (location, number) in order.iter().enumerate() {
            locations[*number] = location;
        }
        (order.iter().map(|n| &*self.names[*n]).collect(), locations)
    }
}

/// The index of a thread's profile, and the thread's id.
type ThreadKey = (usize, u32);

/// A thread on the page.
struct ThreadLane<'a> {
    key: ThreadKey,
    title: String,
    profile: &'a Profile,
    thread: Option<&'a Thread>,
    spans: Vec<TimeSpan<'a>>,
}

/// The threads with events, the most active ones if there are too many; and the number left out.
fn lines(run: &Run) -> (Vec<ThreadLane<'_>>, usize) {
    let several = run.profiles.len() > 1;
    let mut lines = Vec::new();
    for (number, profile) in run.profiles.iter().enumerate() {
        for (tid, spans) in timelines(profile) {
            if spans.is_empty() {
                continue;
            }
            let thread = profile.data.threads.iter().find(|t| t.tid == tid);
            let mut title = thread_title(tid, thread);
            if several {
                title = format!("{}: {title}", profile.title());
            }
            lines.push(ThreadLane {
                key: (number, tid),
                title,
                profile,
                thread,
                spans,
            });
        }
    }
    lines.sort_by_key(|line| {
        let rank = line.profile.header.rank.as_ref().map(|r| r.rank);
        (rank, line.key.1)
    });
    let left_out = lines.len().saturating_sub(THREADS);
    if left_out > 0 {
        let mut most: Vec<usize> = (0..lines.len()).collect();
        most.sort_by_key(|n| std::cmp::Reverse(lines[*n].spans.len()));
        let mut shown = vec![false; lines.len()];
        most.iter().take(THREADS).for_each(|n| shown[*n] = true);
        let mut shown = shown.into_iter();
        lines.retain(|_| shown.next().unwrap_or(false));
    }
    (lines, left_out)
}

/// The time line; null without a trace.
pub(super) fn trace(run: &Run) -> Value {
    let (lines, threads_left_out) = lines(run);
    let mut trace = Trace {
        begin: Ns::MAX,
        ..Trace::default()
    };
    let origin = run.origin();
    for line in &lines {
        let shift = line.profile.header.started_unix_ns - origin;
        trace.add_thread(line, shift);
    }
    if trace.pieces.is_empty() {
        return Value::Null;
    }
    let wakers = wakers(run, &trace);
    let (call_names, call_locations) = trace.calls.sorted();
    let (region_names, region_locations) = trace.regions.sorted();
    let (mut lanes, mut pieces) = (trace.lanes, trace.pieces);
    for piece in &mut pieces {
        piece.name = match lanes[piece.lane]["kind"].as_str() {
            Some("call") => call_locations[piece.name],
            Some("region") => region_locations[piece.name],
            _ => piece.name,
        };
    }
    let times = (SUMS / lanes.len().max(1)).clamp(TIMES.0, TIMES.1);
    // Files can contain any numbers.
    let begin = trace.begin.min(Ns::MAX - 1);
    let span = (begin, trace.end.max(begin + 1));
    let left_out = sums(&mut lanes, &mut pieces, span, times);
    events(&mut lanes, &pieces);
    json!({
        "begin": span.0, "end": span.1, "times": times, "lanes": lanes,
        "wakers": wakers, "calls": call_names, "regions": region_names, "paths": trace.paths.names,
        "leftOut": left_out, "shown": pieces.len(), "threadsLeftOut": threads_left_out,
    })
}

/// The wakers by index, each as the lane of its calls, or as its title if the page does not show it.
fn wakers(run: &Run, trace: &Trace) -> Vec<Value> {
    let mut wakers: Vec<_> = trace.wakers.iter().collect();
    wakers.sort_by_key(|(_, number)| **number);
    let waker = |((file, tid), _): (&ThreadKey, &usize)| match trace.call_lanes.get(&(*file, *tid))
    {
        Some(lane) => json!(lane),
        None => {
            let mut threads = run.profiles[*file].data.threads.iter();
            thread_title(*tid, threads.find(|t| t.tid == *tid)).into()
        }
    };
    wakers.into_iter().map(waker).collect()
}

/// The lanes of all threads and their events, before the page's limits.
#[derive(Default)]
struct Trace {
    lanes: Vec<Value>,
    pieces: Vec<LaneEvent>,
    calls: NameIndex,
    regions: NameIndex,
    paths: NameIndex,
    /// The lane of each thread's calls, and the index of each waker.
    call_lanes: HashMap<ThreadKey, usize>,
    wakers: HashMap<ThreadKey, usize>,
    begin: Ns,
    end: Ns,
}

impl Trace {
    /// Adds a thread, whose times are `shift` before those of the page.
    fn add_thread(&mut self, line: &ThreadLane<'_>, shift: Ns) {
        let lane_of = self.add_lanes(line, shift);
        self.call_lanes.insert(line.key, lane_of[&LaneKind::Call]);
        let contexts = ContextIndex::new(line.profile);
        let locks = calls_for_locks(line);
        let (mut last_off, mut last_call) = (0, (0, ""));
        for span in &line.spans {
            let event = span.event;
            let length = span.end - span.start;
            let (kind, name) = if event.region() {
                if span.depth >= DEEPEST {
                    continue;
                }
                let name = label(event.context, contexts.row(event.context));
                let name = self.regions.number(name, length);
                (LaneKind::Region(span.depth), name)
            } else if event.is_off_cpu() {
                // (In damaged files they can overlap.)
                if span.start < last_off {
                    continue;
                }
                last_off = span.end;
                let name = match &*event.call {
                    BLOCKED if locks.contains(last_call.1) => LOCK,
                    BLOCKED => 0,
                    READY => 1,
                    _ => 2,
                };
                let outside = if span.start < last_call.0 { 0 } else { OFF };
                (LaneKind::Off, name + outside)
            } else {
                last_call = last_call.max((span.end, &event.call));
                let name = self.calls.number(event.call.clone(), length);
                (LaneKind::Call, name)
            };
            let path = contexts.path(event.context).join(WITHIN);
            let result = match kind {
                LaneKind::Call => Some(event.ret),
                LaneKind::Off => event.waker.map(|tid| self.waker((line.key.0, tid))),
                LaneKind::Region(_) => None,
            };
            self.pieces.push(LaneEvent {
                lane: lane_of[&kind],
                name,
                within: self.paths.number(path, 0),
                start: span.start.saturating_add(shift),
                length,
                result: result.filter(|_| !event.open),
                open: event.open,
            });
        }
    }

    /// The index of a waker.
    fn waker(&mut self, thread: ThreadKey) -> i64 {
        let next = self.wakers.len();
        (*self.wakers.entry(thread).or_insert(next)).fit()
    }

    /// Adds the empty lanes of a thread: those of its regions by depth, of calls, and of times off
    /// the processor. Gives the index of each.
    fn add_lanes(&mut self, line: &ThreadLane<'_>, shift: Ns) -> BTreeMap<LaneKind, usize> {
        let deepest = line.spans.iter().filter(|s| s.event.region());
        let deepest = deepest.map(|s| s.depth.min(DEEPEST - 1) + 1).max();
        let kinds = (0..deepest.unwrap_or(0)).map(LaneKind::Region);
        let (from, to) = thread_times(line);
        let (from, to) = (from.saturating_add(shift), to.saturating_add(shift));
        let mut lane_of = BTreeMap::new();
        for kind in kinds.chain([LaneKind::Call, LaneKind::Off]) {
            lane_of.insert(kind, self.lanes.len());
            self.lanes.push(json!({
                "title": if kind == LaneKind::Call { &line.title } else { "" },
                "kind": match kind {
                    LaneKind::Region(_) => "region",
                    LaneKind::Call => "call",
                    LaneKind::Off => "off",
                },
                "from": from, "to": to,
            }));
        }
        (self.begin, self.end) = (self.begin.min(from), self.end.max(to));
        lane_of
    }
}

/// Names of the calls in which a thread mostly waited for locks, as the stacks of its waits show.
fn calls_for_locks<'a>(line: &ThreadLane<'a>) -> HashSet<&'a str> {
    let mut sums: HashMap<&str, (u128, u128)> = HashMap::new();
    let mut kinds = WaitKinds::default();
    let samples = line.profile.data.samples.iter();
    for sample in samples.filter(|s| s.tid == line.key.1 && s.activity == Activity::Blocked) {
        let (locks, all) = sums.entry(&sample.call).or_default();
        *all += u128::from(sample.ns);
        if kinds.of(&sample.frames) == Some(WaitKind::Lock) {
            *locks += u128::from(sample.ns);
        }
    }
    let mostly = sums
        .into_iter()
        .filter(|(_, (locks, all))| locks * 2 > *all);
    mostly.map(|(call, _)| call).collect()
}

/// The begin and end of the thread, as far as they are known.
fn thread_times(line: &ThreadLane<'_>) -> (Ns, Ns) {
    let first = line.spans.first().map_or(0, |s| s.start);
    let last = line.spans.iter().map(|s| s.end).max().unwrap_or(first);
    let Some(thread) = line.thread else {
        return (first, last);
    };
    let end = thread.ended_ns.unwrap_or(line.profile.data.at_ns);
    (thread.started_ns.min(first), end.max(last))
}

/// Replaces the shortest events, if there are too many, by sums `[time, name, ns]` in their lanes.
fn sums(
    lanes: &mut [Value],
    pieces: &mut Vec<LaneEvent>,
    (begin, end): (Ns, Ns),
    times: usize,
) -> usize {
    let left_out = pieces.len().saturating_sub(EVENTS);
    if left_out == 0 {
        return 0;
    }
    pieces.sort_by_key(|p| std::cmp::Reverse(p.length));
    let mut by_interval: BTreeMap<(usize, usize, usize), u64> = BTreeMap::new();
    let times = times as u128;
    let whole = u128::from(end - begin);
    // The first nanosecond of an interval.
    let edge = |n: u128| (n * whole).div_ceil(times).fit::<u64>() + begin;
    for piece in pieces.drain(EVENTS..) {
        let (mut current, stop) = (piece.start, piece.start.saturating_add(piece.length));
        while current < stop {
            let n = u128::from(current - begin) * times / whole;
            let next = edge(n + 1).clamp(current + 1, stop);
            *by_interval
                .entry((piece.lane, n as usize, piece.name))
                .or_default() += next - current;
            current = next;
        }
    }
    let mut of_lane: BTreeMap<usize, Vec<Value>> = BTreeMap::new();
    for ((lane, time, name), ns) in by_interval {
        of_lane
            .entry(lane)
            .or_default()
            .push(json!([time, name, ns]));
    }
    for (lane, sums) in of_lane {
        lanes[lane]["sums"] = sums.into();
    }
    left_out
}

/// Puts the events into their lanes, each as `[name, region, start, length, result]`. The result is
/// false for an unfinished event, the index of the waker for a time off the processor, and missing for
/// an event without either.
fn events(lanes: &mut [Value], pieces: &[LaneEvent]) {
    let mut of_lane: Vec<Vec<&LaneEvent>> = lanes.iter().map(|_| Vec::new()).collect();
    for piece in pieces {
        of_lane[piece.lane].push(piece);
    }
    for (lane, mut pieces) in lanes.iter_mut().zip(of_lane) {
        pieces.sort_by_key(|p| p.start);
        let event = |p: &&LaneEvent| match (p.open, p.result) {
            (true, _) => json!([p.name, p.within, p.start, p.length, false]),
            (false, Some(result)) => json!([p.name, p.within, p.start, p.length, result]),
            (false, None) => json!([p.name, p.within, p.start, p.length]),
        };
        lane["events"] = pieces.iter().map(event).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TimedEvent;

    /// A profile in which the first thread waits for the others in turn.
    fn waits(tids: &[u32]) -> Profile {
        let mut profile = Profile::default();
        for (start_ns, tid) in (0..).step_by(100).zip(tids) {
            profile.data.threads.push(Thread {
                tid: *tid,
                name: "app".to_owned(),
                ..Thread::default()
            });
            let call = TimedEvent {
                tid: tids[0],
                call: "futex".to_owned(),
                start_ns,
                end_ns: start_ns + 50,
                ret: -4,
                ..TimedEvent::default()
            };
            profile.events.push(TimedEvent {
                call: BLOCKED.to_owned(),
                waker: (start_ns > 0).then_some(*tid),
                open: *tid == 9,
                ..call.clone()
            });
            profile.events.push(call);
        }
        profile
    }

    #[test]
    fn waits_name_their_wakers() {
        let mut second = waits(&[1, 2, 3, 2, 9]);
        // It has a lane on the page.
        second.events.push(TimedEvent {
            tid: 2,
            call: "read".to_owned(),
            ..TimedEvent::default()
        });
        let trace = trace(&Run::new(vec![waits(&[1, 2]), second]));
        let kinds = trace["lanes"].as_array().expect("a list").iter();
        let kinds: Vec<_> = kinds.map(|l| l["kind"].as_str()).collect();
        assert_eq!(kinds, [Some("call"), Some("off")].repeat(3));
        let off = |lane: usize| &trace["lanes"][lane]["events"];
        assert_eq!(*off(1), json!([[0, 0, 0, 50], [0, 0, 100, 50, 0]]));
        let wanted = json!([
            [0, 0, 0, 50],
            [0, 0, 100, 50, 1],
            [0, 0, 200, 50, 2],
            [0, 0, 300, 50, 1],
            [0, 0, 400, 50, false],
        ]);
        assert_eq!(*off(3), wanted);
        // Threads of the same number in two files are different ones.
        assert_eq!(trace["wakers"], json!(["2 app", 4, "3 app", "9 app"]));
        assert_eq!(trace["lanes"][0]["events"][0], json!([0, 0, 0, 50, -4]));
    }
}
