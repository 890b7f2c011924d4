//! The trace as intervals: tests.

use super::*;
use crate::model::{BLOCKED, Context, REGION};

/// A thread's events: name, context, begin, end. Context 2 is within 1.
fn of(events: &[(&str, u32, Ns, Ns)]) -> Vec<(String, u32, Ns, Ns, usize)> {
    let event = |(call, context, start_ns, end_ns): &(&str, u32, Ns, Ns)| TimedEvent {
        tid: 1,
        call: (*call).to_owned(),
        context: *context,
        start_ns: *start_ns,
        end_ns: *end_ns,
        ..TimedEvent::default()
    };
    let mut profile = Profile {
        events: events.iter().map(event).collect(),
        ..Profile::default()
    };
    for (id, parent) in [(1, None), (2, Some(1)), (3, None)] {
        profile.data.contexts.push(Context {
            id,
            parent,
            ..Context::default()
        });
    }
    let lines = timelines(&profile);
    let spans = lines[&1].iter();
    let spans = spans.map(|s| {
        (
            s.event.call.clone(),
            s.event.context,
            s.start,
            s.end,
            s.depth,
        )
    });
    spans.collect()
}

#[track_caller]
fn same(events: &[(&str, u32, Ns, Ns)], wanted: &[(&str, u32, Ns, Ns, usize)]) {
    let wanted: Vec<_> = wanted
        .iter()
        .map(|w| (w.0.to_owned(), w.1, w.2, w.3, w.4))
        .collect();
    assert_eq!(of(events), wanted);
}

#[test]
fn calls_are_in_regions_and_waits_in_calls() {
    same(
        &[
            (REGION, 2, 20, 60),
            (REGION, 1, 10, 90),
            (BLOCKED, 2, 35, 40),
            ("futex", 2, 30, 50),
            ("write", 0, 95, 99),
        ],
        &[
            (REGION, 1, 10, 90, 0),
            (REGION, 2, 20, 60, 1),
            ("futex", 2, 30, 50, 2),
            (BLOCKED, 2, 35, 40, 2),
            ("write", 0, 95, 99, 0),
        ],
    );
}

#[test]
fn a_change_within_a_call_goes_to_its_edge() {
    // By its own clock the thread enters 2 at 3 ns after the call in 2 began, and goes back to
    // 1 before the call ends; then a call in 1 begins while it is in 2, and the next call is in
    // no region.
    same(
        &[
            ("a", 2, 20, 30),
            (REGION, 2, 23, 28),
            ("b", 1, 40, 50),
            (REGION, 2, 35, 42),
            (REGION, 1, 10, 63),
            ("c", 0, 60, 70),
        ],
        &[
            (REGION, 1, 10, 60, 0),
            (REGION, 2, 20, 30, 1),
            ("a", 2, 20, 30, 2),
            (REGION, 2, 35, 40, 1),
            ("b", 1, 40, 50, 1),
            ("c", 0, 60, 70, 0),
        ],
    );
    // From one region into another, within a time off the processor in the first.
    same(
        &[
            (REGION, 1, 10, 25),
            (REGION, 3, 25, 40),
            (BLOCKED, 1, 20, 30),
        ],
        &[
            (REGION, 1, 10, 30, 0),
            (BLOCKED, 1, 20, 30, 1),
            (REGION, 3, 30, 40, 0),
        ],
    );
}

#[test]
fn what_overlaps_is_cut() {
    same(
        &[
            ("a", 0, 10, 30),
            ("b", 0, 20, 40),
            (REGION, 1, 15, 50),
            (BLOCKED, 0, 5, 12),
        ],
        &[
            (BLOCKED, 0, 5, 12, 0),
            ("a", 0, 12, 30, 0),
            ("b", 0, 30, 40, 0),
            (REGION, 1, 40, 50, 0),
        ],
    );
}
