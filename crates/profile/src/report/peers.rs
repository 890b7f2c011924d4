//! Calls of MPI by the ranks that they are for: sentences and tables.

use super::places::SENTENCES;
use super::table::{TextTable, paragraph, section};
use super::units::{counted, percent, time};
use crate::answer::matters;
use crate::peers::Peers;

/// A sentence for each rank that is waited for with 5 % of the time or more; for a single unit, for each call.
/// `ranks`: the units are ranks.
pub(super) fn sentences(peers: &Peers, ranks: bool, width: usize) -> String {
    let share = |ns| percent(ns as f64, peers.whole as f64);
    let whole = time(peers.whole);
    let sentences: Vec<String> = if peers.units > 1 {
        let of = counted(peers.units, if ranks { "rank" } else { "thread" });
        let some = peers.largest();
        some.map(|r| format!("{} of {whole} of {of}: {}", share(r.ns), r.sentence()))
            .collect()
    } else {
        let known = peers.calls.iter().filter(|c| !c.ranks.is_empty());
        let some = known.filter(|c| matters(c.ns, peers.whole));
        some.map(|c| format!("{} of {whole}: {}", share(c.ns), c.sentence()))
            .collect()
    };
    let some = sentences.iter().take(SENTENCES);
    some.map(|text| paragraph(text, "  ", width)).collect()
}

/// The calls of each rank, and the ranks that are waited for.
pub(super) fn tables(peers: &Peers, ranks: bool, width: usize, top: usize) -> String {
    let mut table = TextTable::new(&[
        ("call", 0),
        ("for", 0),
        ("time", 0),
        ("share", 1),
        ("calls", 3),
        ("of", 2),
    ]);
    for row in peers.calls.iter().take(top) {
        table.rows.push(vec![
            row.short().to_owned(),
            row.peers(),
            time(row.ns),
            percent(row.ns as f64, row.whole as f64),
            row.calls.to_string(),
            row.unit.clone(),
        ]);
    }
    let more = peers.calls.len().saturating_sub(top);
    let left_out = usize::try_from(peers.left_out.0).unwrap_or(usize::MAX);
    let more = more.saturating_add(left_out);
    let mut out = section("Calls of MPI for other ranks", &table, width, more);
    if peers.units < 2 {
        return out;
    }
    let mut table = TextTable::new(&[
        ("rank", 0),
        ("time", 0),
        ("share", 0),
        ("with others", 2),
        (if ranks { "ranks" } else { "threads" }, 3),
        ("the most in", 1),
    ]);
    for rank in peers.ranks.iter().take(top) {
        table.rows.push(vec![
            rank.rank.to_string(),
            time(rank.ns),
            percent(rank.ns as f64, peers.whole as f64),
            time(rank.with_others),
            rank.units.to_string(),
            rank.longest_call().unwrap_or("-").to_owned(),
        ]);
    }
    let more = peers.ranks.len().saturating_sub(top);
    out += &section("Ranks that calls of MPI are for", &table, width, more);
    out
}
