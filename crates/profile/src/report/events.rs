//! The numbers of counted events: a line for the run, tables by function and by region.

use super::table::{TextTable, paragraph, section};
use super::units::{counted, time};
use crate::event_counts::{CountedEvents, EventPlace};
use crate::run::WITHIN;

/// Maximum number of columns of events; a recording has no more.
const HEADS: usize = 6;
/// The priority for dropping the ratio of two events, before any event.
const DROP_RATIO: u8 = 6;

/// The tables; empty if no event was counted.
pub(super) fn events(events: &CountedEvents, width: usize, top: usize) -> String {
    if events.events.is_empty() {
        return String::new();
    }
    let mut all: Vec<String> = Vec::new();
    for (name, count) in events.events.iter().zip(&events.all) {
        all.push(format!(
            "{name} {} (from {})",
            number(name, count.events),
            counted(count.samples, "sample")
        ));
    }
    if let Some(ratio) = events.instructions_per_cycle(&events.all) {
        all.push(format!("{ratio:.2} instructions a cycle"));
    }
    let said = format!("Estimated events: {}", all.join(", "));
    let mut out = format!("\n{}", paragraph(&said, "  ", width));
    out += &table("Events", "function", &events.functions, events, width, top);
    if events.has_regions() {
        out += &table(
            "Events by region",
            "region",
            &events.regions,
            events,
            width,
            top,
        );
    }
    out
}

fn table(
    title: &str,
    first: &'static str,
    places: &[EventPlace],
    events: &CountedEvents,
    width: usize,
    top: usize,
) -> String {
    let mut table = TextTable::new(&[(first, 0)]);
    // The line above has the numbers of all events.
    for (event, drop) in events.events.iter().take(HEADS).zip(0..) {
        table.add(event.clone(), drop);
    }
    table.add("IPC".to_owned(), DROP_RATIO);
    table.add("line".to_owned(), DROP_RATIO + 1);
    for place in places.iter().take(top) {
        let dash = || "-".to_owned();
        let shown = place.shown();
        let mut row = vec![shown.rsplit(WITHIN).next().unwrap_or_default().to_owned()];
        let counts = events.events.iter().zip(&place.counts).take(HEADS);
        row.extend(counts.map(|(name, count)| match count.samples {
            0 => dash(),
            _ => number(name, count.events),
        }));
        let ratio = events.instructions_per_cycle(&place.counts);
        row.push(ratio.map_or_else(dash, |ratio| format!("{ratio:.2}")));
        row.push(match &*place.name {
            "" => dash(),
            _ => place.location.clone().unwrap_or_else(dash),
        });
        table.rows.push(row);
    }
    section(title, &table, width, places.len().saturating_sub(top))
}

/// A number of events in at most four figures.
pub(super) fn number(event: &str, events: u64) -> String {
    if event == "cpu-clock" {
        return time(events);
    }
    const UNITS: [(u64, &str); 3] = [(1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k")];
    let unit = UNITS.iter().find(|(least, _)| events >= *least);
    match unit {
        None => events.to_string(),
        Some((_, name @ "k")) => format!("{:.1}{name}", events as f64 / 1e3),
        Some((unit, name)) => format!("{:.2}{name}", events as f64 / *unit as f64),
    }
}
