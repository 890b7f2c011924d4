//! Two runs side by side: what takes more time in the second, and what less.

use std::collections::BTreeMap;

use super::table::{Table, clauses, clean};
use super::{percent, signed, time};
use crate::model::{Ns, Part};
use crate::run::{Group, OUTSIDE, Run, WITHIN};

/// What is compared of calls or regions: time and number of calls.
#[derive(Default, Clone, Copy)]
struct Side {
    ns: Ns,
    count: u64,
}

/// The differences from `a` to `b`, in lines of `width` columns at most, the largest first. `top`
/// limits the rows of tables.
pub fn diff(a: &Run, b: &Run, width: usize, top: usize) -> String {
    // (A thread that only sleeps in one run may do a little more in the other.)
    let (a, b) = (a.summary_of_all(), b.summary_of_all());
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
    out += &clauses(
        "Threads' time ",
        &[
            change(a.all.wall, b.all.wall),
            format!("in calls {}", change(a.in_calls(), b.in_calls())),
        ],
        width,
    );
    let calls = pairs(&a.calls, &b.calls);
    let mut order: Vec<_> = calls.iter().collect();
    order.sort_by_key(|(name, (a, b))| (std::cmp::Reverse(b.ns.abs_diff(a.ns)), *name));
    let most = order.iter().take(5).filter(|(_, (a, b))| a.ns != b.ns);
    let most: Vec<String> = most
        .map(|(name, (a, b))| format!("{name} {}", plus(a.ns, b.ns)))
        .collect();
    out += &clauses(
        "Most change: ",
        if most.is_empty() { &[] } else { &most },
        width,
    );

    let side = |ns| Side { ns, count: 0 };
    let mut parts: Vec<(&str, (Side, Side))> = Part::ALL
        .iter()
        .map(|p| (p.name(), (side(a.all.part(*p)), side(b.all.part(*p)))))
        .collect();
    parts.push(("wall time", (side(a.all.wall), side(b.all.wall))));
    let rows = parts.iter().map(|(name, sides)| (*name, *sides));
    out += &table("Where the time went", "threads' time", rows, width);
    let rows = order.iter().take(top).map(|(n, s)| (n.as_str(), **s));
    out += &table("Calls", "call", rows, width);
    let regions = pairs(&a.regions, &b.regions);
    if regions.keys().any(|name| name != OUTSIDE) {
        let mut order: Vec<_> = regions.iter().collect();
        order.sort_by_key(|(name, (a, b))| (std::cmp::Reverse(b.ns.abs_diff(a.ns)), *name));
        let rows = order.iter().take(top).map(|(n, s)| (n.as_str(), **s));
        out += &table("Regions", "region", rows, width);
    }
    for (name, lost) in [("A", &a.lost), ("B", &b.lost)] {
        for (what, n) in lost {
            out += &format!("\nLost in {name}: {n} {}\n", clean(what));
        }
    }
    out
}

fn pairs(a: &[Group], b: &[Group]) -> BTreeMap<String, (Side, Side)> {
    let mut all: BTreeMap<String, (Side, Side)> = BTreeMap::new();
    let side = |group: &Group| Side {
        ns: group.time(),
        count: group.count,
    };
    for group in a {
        all.entry(group.name.clone()).or_default().0 = side(group);
    }
    for group in b {
        all.entry(group.name.clone()).or_default().1 = side(group);
    }
    all
}

fn table<'a>(
    title: &str,
    what: &'static str,
    rows: impl Iterator<Item = (&'a str, (Side, Side))>,
    width: usize,
) -> String {
    let mut table = Table::new(&[
        (what, 0),
        ("A", 0),
        ("B", 0),
        ("change", 0),
        ("relative", 1),
        ("calls A", 2),
        ("calls B", 2),
    ]);
    table.narrow = 32;
    for (name, (a, b)) in rows {
        table.rows.push(vec![
            name.rsplit(WITHIN).next().unwrap_or_default().to_owned(),
            time(a.ns),
            time(b.ns),
            plus(a.ns, b.ns),
            relative(a.ns, b.ns),
            a.count.to_string(),
            b.count.to_string(),
        ]);
    }
    format!("\n{title}\n{}", table.render(width))
}

/// The difference, with its sign.
fn plus(a: Ns, b: Ns) -> String {
    let difference = i128::from(b) - i128::from(a);
    let sign = if difference > 0 { "+" } else { "" };
    let difference = difference.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
    format!("{sign}{}", signed(difference))
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
