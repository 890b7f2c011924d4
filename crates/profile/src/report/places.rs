//! Where threads spent their time: the first sentences of the report, and the table of places.

use super::table::{TextTable, paragraph, section};
use super::units::{counted, percent, time};
use crate::answer::{By, Finding, idle, largest};
use crate::imbalance::Imbalance;
use crate::model::TimePart;
use crate::run::{OUTSIDE, Summary};

/// Number of sentences at most.
pub(super) const SENTENCES: usize = 5;

/// A sentence for each place with 5 % of the whole time or more.
pub(super) fn sentences(findings: &[Finding], summary: &Summary, width: usize) -> String {
    let whole = summary.total.wall;
    let threads = summary.threads.len() as u64;
    let some = largest(findings, whole).take(SENTENCES);
    let sentence = |f: &Finding| {
        let share = percent(f.ns as f64, whole as f64);
        let of_threads = match (f.threads, threads) {
            (_, 0 | 1) => String::new(),
            (some, all) if some == all => format!(" of {}", counted(all, "thread")),
            (some, _) => format!(", in {}", counted(some, "thread")),
        };
        let text = format!("{share} of {}{of_threads}: {}", time(whole), f.sentence());
        paragraph(&text, "  ", width)
    };
    let mut text: String = some.map(sentence).collect();
    if let Some(idle) = idle(findings, whole) {
        let share = percent(idle as f64, whole as f64);
        let sentence = format!(
            "{share} of {}: idle, waiting for work or for events",
            time(whole)
        );
        text += &paragraph(&sentence, "  ", width);
    }
    text
}

/// A sentence for each imbalance that costs 5 % of the whole time or more.
pub(super) fn uneven(imbalances: &[Imbalance], width: usize) -> String {
    let sentence = |i: &Imbalance| {
        let share = percent(i.cost as f64, i.whole as f64);
        let of = match i.ranks {
            true => format!(" of {}", counted(i.units as u64, "rank")),
            false => String::new(),
        };
        let text = format!("{share} of {}{of}: {}", time(i.whole), i.sentence());
        paragraph(&text, "  ", width)
    };
    imbalances.iter().take(SENTENCES).map(sentence).collect()
}

/// The table of places.
pub(super) fn places(
    findings: &[Finding],
    summary: &Summary,
    by: By,
    width: usize,
    top: usize,
) -> String {
    let mut table = TextTable::new(&[
        (by.name(), 0),
        ("time", 0),
        ("share", 0),
        ("threads", 4),
        ("doing", 2),
        ("line", 1),
        ("of", 3),
        ("released by", 5),
        ("called by", 6),
    ]);
    let several = summary.threads.len() > 1;
    for f in findings.iter().take(top) {
        let dash = || "-".to_owned();
        table.rows.push(vec![
            match (by, &*f.function, &f.location) {
                (By::Function, ..) | (_, "", Some(_)) => name(f),
                (By::Region, "", None) => OUTSIDE.to_owned(),
                (_, "", None) => "(not known)".to_owned(),
                (_, name, _) => name.to_owned(),
            },
            time(f.ns),
            percent(f.ns as f64, summary.total.wall as f64),
            if several {
                f.threads.to_string()
            } else {
                dash()
            },
            doing(f),
            match &*f.function {
                "" => dash(),
                _ => f.location.clone().unwrap_or_else(dash),
            },
            f.object.clone().unwrap_or_else(dash),
            f.holder.clone().unwrap_or_else(dash),
            f.caller.clone().unwrap_or_else(dash),
        ]);
    }
    section("Places", &table, width, findings.len().saturating_sub(top))
}

/// The name of a place.
pub(super) fn name(finding: &Finding) -> String {
    match (&*finding.function, &finding.location) {
        ("", None) => "-".to_owned(),
        ("", Some(module)) => format!("{module} (no symbols)"),
        (name, _) => name.to_owned(),
    }
}

/// What threads did in a place, in a word or two.
pub(super) fn doing(finding: &Finding) -> String {
    match (finding.part, &finding.call) {
        _ if finding.is_lock() => "lock".to_owned(),
        (TimePart::Blocked, _) if finding.is_barrier() => "barrier".to_owned(),
        _ if finding.is_barrier() => "barrier (on CPU)".to_owned(),
        (TimePart::User, _) if finding.is_mpi() => "MPI (on CPU)".to_owned(),
        (TimePart::User, _) => "running".to_owned(),
        (TimePart::SyscallCpu, Some(call)) => call.clone(),
        (TimePart::Blocked, Some(call)) => {
            let what = finding.own_wait().map_or(&**call, |kind| kind.name());
            format!("wait: {what}")
        }
        _ if finding.is_fault() => "wait: page fault".to_owned(),
        (part, _) => part.brief().to_owned(),
    }
}
