//! Compares two runs: increases and decreases of time in the second one.

use std::collections::{BTreeMap, BTreeSet};

use super::table::{TextTable, clauses, escape, paragraph};
use super::units::{percent, signed, time};
use crate::model::{Ns, Profile, TimePart, difference};
use crate::regions::Region;
use crate::run::{CallGroup, OUTSIDE, Run, Summary, WITHIN};

/// The compared values of calls or regions: time, and number of calls or entries.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ComparedValues {
    /// The time.
    pub ns: Ns,
    /// Number of calls or entries.
    pub count: u64,
}

/// Calls or regions of two runs by name, the largest difference first.
type ComparedPairs = Vec<(String, (ComparedValues, ComparedValues))>;

/// The differences between two runs.
#[derive(Debug)]
pub struct Differences {
    /// The first run, without setting sleeping threads apart.
    pub a: Summary,
    /// The second run, likewise.
    pub b: Summary,
    /// Differences between the recordings, in words.
    pub notes: Vec<String>,
    /// Calls.
    pub calls: ComparedPairs,
    /// Regions that both runs have: their own times and entries, or their times in calls if one run
    /// lacks these.
    pub regions: ComparedPairs,
}

/// Compares two runs.
pub fn differences(a: &Run, b: &Run) -> Differences {
    let notes = notes(a, b);
    let has_regions = |run: &Run| run.profiles.iter().any(|p| p.header.has_regions());
    let comparable = has_regions(a) == has_regions(b);
    // (A thread that only sleeps in one run may work a little in the other.)
    let (a, b) = (a.summary_of_all(), b.summary_of_all());
    let group = |g: &CallGroup| (g.name.clone(), g.time(), g.count);
    let region = |r: &Region| (r.name.clone(), r.exclusive, r.entries);
    let mut regions = match a.times.is_empty() || b.times.is_empty() {
        true => pairs(&a.regions, &b.regions, group),
        false => pairs(&a.times, &b.times, region),
    };
    if !comparable || regions.iter().all(|(name, _)| name == OUTSIDE) {
        regions.clear();
    }
    Differences {
        calls: pairs(&a.calls, &b.calls, group),
        regions,
        notes,
        a,
        b,
    }
}

/// The values of both runs by name; `values` gives a row's name, time and number.
fn pairs<T>(a: &[T], b: &[T], values: impl Fn(&T) -> (String, Ns, u64)) -> ComparedPairs {
    let mut by_name: BTreeMap<String, (ComparedValues, ComparedValues)> = BTreeMap::new();
    for (name, ns, count) in a.iter().map(&values) {
        by_name.entry(name).or_default().0 = ComparedValues { ns, count };
    }
    for (name, ns, count) in b.iter().map(&values) {
        by_name.entry(name).or_default().1 = ComparedValues { ns, count };
    }
    let mut by_name: ComparedPairs = by_name.into_iter().collect();
    by_name.sort_by_key(|(_, (a, b))| std::cmp::Reverse(b.ns.abs_diff(a.ns)));
    by_name
}

/// Differences between the recordings, which affect the cost, or the information in one of them.
fn notes(a: &Run, b: &Run) -> Vec<String> {
    let mut notes = Vec::new();
    let asked = |run: &Run| {
        let mut options: BTreeSet<&str> = BTreeSet::new();
        for profile in &run.profiles {
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
    let kernels = |run: &Run| properties(run, |p| p.header.kernel.clone());
    let cpus = |run: &Run| properties(run, |p| p.header.cpus.to_string());
    for (what, a, b) in [
        ("options", asked(a), asked(b)),
        ("kernels", kernels(a), kernels(b)),
        ("numbers of processors", cpus(a), cpus(b)),
    ] {
        if a != b {
            notes.push(format!("recorded with different {what}: A {a}; B {b}"));
        }
    }
    notes
}

/// Properties of a run's recordings, without duplicates.
fn properties(run: &Run, property: impl Fn(&Profile) -> String) -> String {
    let values: BTreeSet<String> = run.profiles.iter().map(property).collect();
    values.into_iter().collect::<Vec<_>>().join(", ")
}

/// The report of differences from `a` to `b`, in lines of at most `width` columns, the largest
/// first. `top` limits the rows of tables.
pub fn diff(a: &Run, b: &Run, width: usize, top: usize) -> String {
    let differences = differences(a, b);
    let (a, b) = (&differences.a, &differences.b);
    let change = |a: Ns, b: Ns| {
        let sign = if b >= a { "+" } else { "-" };
        format!(
            "{} -> {} ({sign}{})",
            time(a),
            time(b),
            relative(a, b).trim_start_matches(['+', '-'])
        )
    };
    let mut out = clauses(
        "A -> B: ",
        &[
            format!("run {}", change(a.elapsed, b.elapsed)),
            format!("threads {} -> {}", a.threads.len(), b.threads.len()),
        ],
        width,
    );
    for note in &differences.notes {
        out += &paragraph(&format!("NOTE: {note}"), "  ", width);
    }
    out += &clauses(
        "Threads' time ",
        &[
            change(a.total.wall, b.total.wall),
            format!("in calls {}", change(a.in_calls(), b.in_calls())),
        ],
        width,
    );
    let most = differences.calls.iter().take(5);
    let most: Vec<String> = most
        .filter(|(_, (a, b))| a.ns != b.ns)
        .map(|(name, (a, b))| format!("{name} {}", signed_difference(a.ns, b.ns)))
        .collect();
    out += &clauses("Most change: ", &most, width);

    let side = |ns| ComparedValues { ns, count: 0 };
    let parts = TimePart::ALL.map(|p| (p.name(), a.total.part(p), b.total.part(p)));
    let parts = parts
        .into_iter()
        .chain([("wall time", a.total.wall, b.total.wall)]);
    let rows: ComparedPairs = parts
        .map(|(name, a, b)| (name.to_owned(), (side(a), side(b))))
        .collect();
    let time_heads = ["threads' time", "calls A", "calls B"];
    out += &table("Where the time went", time_heads, &rows, width);
    let call_heads = ["call", "calls A", "calls B"];
    out += &table("Calls", call_heads, first(&differences.calls, top), width);
    if !differences.regions.is_empty() {
        let (title, heads) = match a.times.is_empty() || b.times.is_empty() {
            true => (
                "Regions (their time in calls)",
                ["region", "calls A", "calls B"],
            ),
            false => ("Regions (their own time)", ["region", "count A", "count B"]),
        };
        out += &table(title, heads, first(&differences.regions, top), width);
    }
    for (name, lost) in [("A", &a.lost), ("B", &b.lost)] {
        for (what, n) in lost {
            out += &format!("\nLost in {name}: {n} {}\n", escape(what));
        }
    }
    out
}

fn first<T>(rows: &[T], top: usize) -> &[T] {
    &rows[..rows.len().min(top)]
}

/// A table, with the heads of the names and of both counts.
fn table(
    title: &str,
    [name, count_a, count_b]: [&'static str; 3],
    rows: &[(String, (ComparedValues, ComparedValues))],
    width: usize,
) -> String {
    let mut table = TextTable::new(&[
        (name, 0),
        ("A", 0),
        ("B", 0),
        ("change", 0),
        ("relative", 1),
        (count_a, 2),
        (count_b, 2),
    ]);
    table.narrow = 24;
    for (name, (a, b)) in rows {
        table.rows.push(vec![
            name.rsplit(WITHIN).next().unwrap_or_default().to_owned(),
            time(a.ns),
            time(b.ns),
            signed_difference(a.ns, b.ns),
            relative(a.ns, b.ns),
            a.count.to_string(),
            b.count.to_string(),
        ]);
    }
    format!("\n{title}\n{}", table.render(width))
}

/// The difference with its sign.
fn signed_difference(a: Ns, b: Ns) -> String {
    let sign = if b > a { "+" } else { "" };
    format!("{sign}{}", signed(difference(b, a)))
}

fn relative(a: Ns, b: Ns) -> String {
    match (a, b) {
        (0, 0) => "-".to_owned(),
        (0, _) => "new".to_owned(),
        (_, 0) => "gone".to_owned(),
        (a, b) => {
            let sign = if b >= a { "+" } else { "" };
            format!("{sign}{}", percent(b as f64 - a as f64, a as f64))
        }
    }
}
