//! The trace as time lines: the nested events of each thread.
//!
//! A thread is in regions, in one call at a time, and off its processor within a call or outside of
//! calls. Times of regions come from the program's own clock, all others from the kernel's, so they
//! can differ by some nanoseconds. Each call names the region in which it was made. A region's
//! begin or end that lies within a call by its times is moved to the call's begin or end.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use crate::model::{Ns, Profile, ROOT, TimedEvent};
use crate::run::ContextIndex;

/// An event on a time line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeSpan<'a> {
    /// The event, whose own times may differ slightly.
    pub event: &'a TimedEvent,
    /// Its beginning.
    pub start: Ns,
    /// Its end: not before its begin, and not after that of the enclosing event.
    pub end: Ns,
    /// Number of enclosing regions.
    pub depth: usize,
}

/// The spans of each thread, by thread id, in the order of their begins, each before the spans in
/// it. Threads without events are included.
pub fn timelines(profile: &Profile) -> BTreeMap<u32, Vec<TimeSpan<'_>>> {
    let contexts = ContextIndex::new(profile);
    let mut depths: HashMap<u32, usize> = HashMap::new();
    let mut threads: BTreeMap<u32, Vec<TimeSpan>> = BTreeMap::new();
    for thread in &profile.data.threads {
        threads.entry(thread.tid).or_default();
    }
    for event in &profile.events {
        let depth = match event.region() {
            // (For the order of regions that begin and end together.)
            true => *depths
                .entry(event.context)
                .or_insert_with(|| contexts.chain(event.context).len()),
            false => usize::MAX - usize::from(!event.is_off_cpu()),
        };
        threads.entry(event.tid).or_default().push(TimeSpan {
            event,
            start: event.start_ns,
            end: event.end_ns.max(event.start_ns),
            depth,
        });
    }
    for spans in threads.values_mut() {
        spans.sort_by_key(order);
        align(spans);
        spans.sort_by_key(order);
        nest(spans);
    }
    threads
}

/// An event comes before those that it contains.
fn order(span: &TimeSpan<'_>) -> (Ns, Reverse<Ns>, usize) {
    (span.start, Reverse(span.end), span.depth)
}

/// Moves begins and ends of regions that lie within calls.
fn align(spans: &mut [TimeSpan<'_>]) {
    // Times at which the thread changes regions, with the new region.
    let mut changes: Vec<(Ns, u32)> = Vec::new();
    let mut inside: Vec<(Ns, u32)> = Vec::new();
    for region in spans.iter().filter(|s| s.event.region()) {
        leave_regions(&mut inside, &mut changes, region.start);
        inside.push((region.end, region.event.context));
        changes.push((region.start, region.event.context));
    }
    leave_regions(&mut inside, &mut changes, Ns::MAX);

    let mut moved: HashMap<Ns, Ns> = HashMap::new();
    // No change can be in the middle of these.
    let blocks = spans.iter().filter(|s| !s.event.region());
    let mut blocks = blocks.map(|s| (s.start, s.end, s.event.context)).peekable();
    let (mut before, mut last) = (ROOT, 0);
    let mut next = changes.iter().peekable();
    while let Some((time, to)) = next.next() {
        let mut after = *to;
        while let Some((_, to)) = next.next_if(|(t, _)| t == time) {
            after = *to;
        }
        while blocks.next_if(|(_, end, _)| end <= time).is_some() {}
        let mut to = *time;
        if let Some((start, end, context)) = blocks.peek().copied()
            && start < *time
        {
            let nearer = time - start < end - time;
            let early = context != before && (context == after || nearer);
            to = if early { start } else { end };
        }
        to = to.max(last);
        if to != *time {
            moved.insert(*time, to);
        }
        (before, last) = (after, to);
    }
    for span in spans.iter_mut().filter(|s| s.event.region()) {
        let to = |time: Ns| moved.get(&time).copied().unwrap_or(time);
        (span.start, span.end) = (to(span.start), to(span.end));
        span.end = span.end.max(span.start);
    }
}

/// Leaves the regions that end by then.
fn leave_regions(inside: &mut Vec<(Ns, u32)>, changes: &mut Vec<(Ns, u32)>, by: Ns) {
    while let Some((end, _)) = inside.pop_if(|(end, _)| *end <= by) {
        let around = inside.last().map_or(ROOT, |(_, context)| *context);
        changes.push((end, around));
    }
}

/// Cuts events that partly overlap others, as in damaged files.
fn nest(spans: &mut [TimeSpan<'_>]) {
    let mut open: Vec<(Ns, &TimedEvent)> = Vec::new();
    let mut clock = 0;
    for span in spans.iter_mut() {
        let mut start = span.start.max(clock);
        // Only times off the processor can be within a call.
        while let Some((end, _)) =
            open.pop_if(|(end, over)| *end <= start || !over.region() && !span.event.is_off_cpu())
        {
            start = start.max(end);
        }
        let mut end = span.end.max(start);
        if let Some((within, _)) = open.last() {
            end = end.min(*within);
        }
        span.depth = open.iter().filter(|(_, over)| over.region()).count();
        open.push((end, span.event));
        (span.start, span.end, clock) = (start, end, start);
    }
}

#[cfg(test)]
mod tests;
