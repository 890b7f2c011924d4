//! Compares two sets of runs: what changed by more than the noise, the largest change first.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::events::number;
use super::places::{doing, name};
use super::table::{TextTable, clauses, escape, paragraph, section};
use super::units::{counted, percent, time};
use crate::answer::matters;
use crate::changes::{
    CONFIDENCE, Change, ChangedEvents, ChangedPlace, Differences, SetSummary, counted_by_all,
    differences,
};
use crate::model::Profile;
use crate::run::{Run, WITHIN};

/// Number of sentences at most.
const SENTENCES: usize = 3;

/// Differences between the recordings, which affect the cost, or the information in one of them.
pub fn notes(a: &[Run], b: &[Run]) -> Vec<String> {
    let mut notes = Vec::new();
    let asked = |runs: &[Run]| {
        let mut options: BTreeSet<&str> = BTreeSet::new();
        for profile in runs.iter().flat_map(|run| &run.profiles) {
            options.extend(profile.header.options.names());
            if profile.header.command.is_empty() && profile.header.pid.is_some() {
                options.insert("-p");
            }
        }
        match options.is_empty() {
            true => "no options".to_owned(),
            false => options.into_iter().collect::<Vec<_>>().join(" "),
        }
    };
    let kernels = |runs: &[Run]| properties(runs, |p| p.header.kernel.clone());
    let cpus = |runs: &[Run]| properties(runs, |p| p.header.cpus.to_string());
    for (what, a, b) in [
        ("options", asked(a), asked(b)),
        ("kernels", kernels(a), kernels(b)),
        ("numbers of processors", cpus(a), cpus(b)),
    ] {
        if a != b {
            notes.push(format!("recorded with different {what}: A {a}; B {b}"));
        }
    }
    let [in_a, in_b] = [a, b].map(counted_events);
    if in_a.len().max(in_b.len()) > counted_by_all([a, b]).len() {
        let names = |events: BTreeSet<&str>| match events.is_empty() {
            true => "none".to_owned(),
            false => events.into_iter().collect::<Vec<_>>().join(" "),
        };
        notes.push(format!(
            "only events that all recordings counted are compared: A {}; B {}",
            names(in_a),
            names(in_b)
        ));
    }
    for (set, runs) in [("A", a), ("B", b)] {
        let commands: BTreeSet<String> = runs.iter().map(command).collect();
        if commands.len() > 1 {
            let commands: Vec<String> = commands.into_iter().take(3).collect();
            notes.push(format!(
                "{set} has runs of different commands, such as {}",
                commands.join(", ")
            ));
        }
    }
    notes
}

/// The events that some recording counted.
fn counted_events(runs: &[Run]) -> BTreeSet<&str> {
    let profiles = runs.iter().flat_map(|run| &run.profiles);
    let counted = profiles.flat_map(|p| &p.header.options.counted);
    counted.map(|e| &*e.event).collect()
}

fn command(run: &Run) -> String {
    let first = run.profiles.first();
    first.map_or_else(String::new, |p| p.header.command_line())
}

/// Properties of recordings, without duplicates.
fn properties(runs: &[Run], property: impl Fn(&Profile) -> String) -> String {
    let profiles = runs.iter().flat_map(|run| &run.profiles);
    let values: BTreeSet<String> = profiles.map(property).collect();
    values.into_iter().collect::<Vec<_>>().join(", ")
}

/// The report of changes from the runs `a` to the runs `b`, in lines of at most `width` columns.
/// `top` limits the rows of tables.
pub fn diff(a: &[Run], b: &[Run], width: usize, top: usize) -> String {
    let differences = differences(a, b);
    let mut out = head(&differences, width);
    for note in notes(a, b) {
        out += &paragraph(&format!("NOTE: {note}"), "  ", width);
    }
    out += &sentences(&differences, width);
    out += &places(&differences, width, top);
    out += &unchanged(&differences, width);
    out += &parts(&differences, width);
    let calls = Rows::new("call", ["calls A", "calls B"], &time);
    out += &calls.changed("Calls", &differences.calls, width, top);
    let (title, heads) = match differences.regions_of_calls {
        true => ("Regions (their time in calls)", ["calls A", "calls B"]),
        false => ("Regions (their own time)", ["count A", "count B"]),
    };
    let regions = Rows::new("region", heads, &time);
    out += &regions.changed(title, &differences.regions, width, top);
    out += &events(&differences.events, width, top);
    for (name, set) in [("A", &differences.a), ("B", &differences.b)] {
        for (what, n) in &set.lost {
            let lost = format!("Lost in {name}: {n} {}", escape(what));
            out += &format!("\n{}", paragraph(&lost, "  ", width));
        }
    }
    out
}

/// The durations, and the time of all threads.
fn head(differences: &Differences, width: usize) -> String {
    let Differences { a, b, .. } = differences;
    let several = |set: &SetSummary| match set.runs {
        1 => String::new(),
        runs => format!(" ({})", counted(runs as u64, "run")),
    };
    let whole = differences.wall.a.amount.max(differences.wall.b.amount);
    let from_to = |change: &Change| {
        let mut in_brackets = Vec::new();
        // A percentage of next to nothing says nothing.
        let (a, b) = (change.a.amount, change.b.amount);
        if a > 0 && matters(a.max(b), whole.min(differences.elapsed.a.amount)) {
            let sign = if b >= a { "+" } else { "" };
            let share = percent(b as f64 - a as f64, a as f64);
            in_brackets.push(format!("{sign}{share}"));
        }
        in_brackets.extend(change.noise.map(|noise| format!("noise {}", time(noise))));
        let brackets = match in_brackets.is_empty() {
            true => String::new(),
            false => format!(" ({})", in_brackets.join(", ")),
        };
        format!("{} -> {}{brackets}", time(a), time(b))
    };
    let mut out = clauses(
        &format!("A{} -> B{}: ", several(a), several(b)),
        &[
            format!("run {}", from_to(&differences.elapsed)),
            format!("threads {} -> {}", a.total.threads, b.total.threads),
        ],
        width,
    );
    out += &clauses(
        "Threads' time ",
        &[
            from_to(&differences.wall),
            format!("in calls {}", from_to(&differences.in_calls)),
        ],
        width,
    );
    out
}

/// A sentence for each large change.
fn sentences(differences: &Differences, width: usize) -> String {
    let whole = differences.wall.a.amount.max(differences.wall.b.amount);
    let places = changed(&differences.places);
    let large = places.filter(|p| matters(p.change.size(), whole));
    let sentence = |place: &ChangedPlace| {
        let text = format!(
            "{} ({} -> {}): {}",
            signed(&place.change, &time),
            time(place.change.a.amount),
            time(place.change.b.amount),
            place.place.sentence()
        );
        paragraph(&text, "  ", width)
    };
    large.take(SENTENCES).map(sentence).collect()
}

fn changed(places: &[ChangedPlace]) -> impl Iterator<Item = &ChangedPlace> {
    places.iter().filter(|p| p.change.changed)
}

/// The table of places that changed.
fn places(differences: &Differences, width: usize, top: usize) -> String {
    let mut table = TextTable::new(&[
        ("place", 0),
        ("A", 0),
        ("B", 0),
        ("change", 0),
        ("noise", 1),
        ("doing", 2),
        ("line", 3),
        ("called by", 4),
    ]);
    for ChangedPlace { place, change } in changed(&differences.places).take(top) {
        let dash = || "-".to_owned();
        let [a, b, size, noise] = cells(change, &time);
        let line = place
            .location
            .clone()
            .filter(|_| !place.function.is_empty());
        table.rows.push(vec![
            name(place),
            a,
            b,
            size,
            noise,
            doing(place),
            line.unwrap_or_else(dash),
            place.caller.clone().unwrap_or_else(dash),
        ]);
    }
    let left = changed(&differences.places).count().saturating_sub(top);
    section("Changes", &table, width, left)
}

/// How many places did not change, and what the noise is.
fn unchanged(differences: &Differences, width: usize) -> String {
    let Differences { a, b, places, .. } = differences;
    let all = places.len();
    let same = all - changed(places).count();
    let least = match differences.least {
        0 => String::new(),
        least => format!(", or changed by less than {}", time(least)),
    };
    let within = format!(
        "{same} of {} stayed within the noise{least}.",
        counted(all as u64, "place")
    );
    let noise = match (a.runs, b.runs, a.samples, b.samples) {
        (0, ..) | (_, 0, ..) => String::new(),
        (1, 1, 0, 0) => {
            "With one run on each side and no samples the noise is not known: times vary from run \
                         to run. Several runs show it (spile profile -r 10 -o DIR)."
                .to_owned()
        }
        (1, 1, in_a, in_b) => format!(
            "The noise is the error of sampling, from {in_a} and {in_b} samples, with {CONFIDENCE} % confidence. \
             Measured times (-) have none, but vary from run to run, which several runs show \
             (spile profile -r 10 -o DIR)."
        ),
        (in_a, in_b, ..) => format!(
            "The noise follows from the spread of {in_a} and {in_b} runs, with {CONFIDENCE} % confidence."
        ),
    };
    format!(
        "\n{}{}",
        paragraph(&within, "  ", width),
        match noise.is_empty() {
            true => noise,
            false => paragraph(&noise, "  ", width),
        }
    )
}

/// The parts of the threads' time.
fn parts(differences: &Differences, width: usize) -> String {
    let parts = differences.parts.iter();
    let parts = parts.map(|(part, change)| (part.name(), change));
    let mut table = TextTable::new(&[
        ("threads' time", 0),
        ("A", 0),
        ("B", 0),
        ("change", 0),
        ("noise", 1),
    ]);
    for (name, change) in parts.chain([("wall time", &differences.wall)]) {
        if change.a.amount > 0 || change.b.amount > 0 {
            let mut row = vec![name.to_owned()];
            row.extend(cells(change, &time));
            table.rows.push(row);
        }
    }
    section("Where the time went", &table, width, 0)
}

/// The events of the whole run, and the functions and regions whose events changed.
fn events(events: &[ChangedEvents], width: usize, top: usize) -> String {
    let samples = ["samples A", "samples B"];
    let mut all = Rows::new("event", samples, &time).table();
    let mut out = String::new();
    for row in events {
        let shown = |events| number(&row.event, events);
        let rows = |first| Rows::new(first, samples, &shown);
        if row.all.a.amount > 0 || row.all.b.amount > 0 {
            all.rows.push(rows("event").row(&row.event, &row.all));
        }
        for (by, places) in [("function", &row.functions), ("region", &row.regions)] {
            let title = format!("{} by {by}", row.event);
            out += &rows(by).changed(&title, places, width, top);
        }
    }
    section("Events", &all, width, 0) + &out
}

/// A table of changes.
struct Rows<'a> {
    /// The heads of the first and of the last columns.
    first: &'static str,
    counts: [&'static str; 2],
    /// Amounts as texts.
    shown: &'a dyn Fn(u64) -> String,
}

impl<'a> Rows<'a> {
    fn new(
        first: &'static str,
        counts: [&'static str; 2],
        shown: &'a dyn Fn(u64) -> String,
    ) -> Self {
        Rows {
            first,
            counts,
            shown,
        }
    }

    fn table(&self) -> TextTable {
        let [in_a, in_b] = self.counts;
        let mut table = TextTable::new(&[
            (self.first, 0),
            ("A", 0),
            ("B", 0),
            ("change", 0),
            ("noise", 1),
            (in_a, 2),
            (in_b, 2),
        ]);
        table.narrow = 24;
        table
    }

    fn row(&self, name: &str, change: &Change) -> Vec<String> {
        let short = name.rsplit(WITHIN).next().unwrap_or_default();
        let mut row = vec![short.to_owned()];
        row.extend(cells(change, self.shown));
        row.push(change.a.count.to_string());
        row.push(change.b.count.to_string());
        row
    }

    /// The rows that changed.
    fn changed(&self, title: &str, rows: &[(String, Change)], width: usize, top: usize) -> String {
        let changed = || rows.iter().filter(|(_, change)| change.changed);
        let mut table = self.table();
        let shown = changed().take(top);
        table.rows = shown.map(|(name, change)| self.row(name, change)).collect();
        section(title, &table, width, changed().count().saturating_sub(top))
    }
}

/// Both amounts, the difference and the noise.
fn cells(change: &Change, shown: &dyn Fn(u64) -> String) -> [String; 4] {
    [
        shown(change.a.amount),
        shown(change.b.amount),
        signed(change, shown),
        change.noise.map_or_else(|| "-".to_owned(), shown),
    ]
}

/// The difference with its sign.
fn signed(change: &Change, shown: &dyn Fn(u64) -> String) -> String {
    let sign = match change.b.amount.cmp(&change.a.amount) {
        Ordering::Greater => "+",
        Ordering::Equal => "",
        Ordering::Less => "-",
    };
    format!("{sign}{}", shown(change.size()))
}
