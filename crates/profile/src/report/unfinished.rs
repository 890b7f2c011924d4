//! Calls that did not end.

use std::collections::HashMap;

use super::table::{TextTable, section};
use super::units::time;
use crate::model::Ns;
use crate::run::{CallGroup, Summary};
use crate::summary_sums::Member;

/// The longest unfinished call of each name, without those of threads that only sleep, which are listed there. Those
/// of one profile are added to those of the others, in any order.
#[derive(Debug, Default)]
pub(crate) struct UnfinishedCalls(HashMap<String, Longest>);

/// The time of a call. Of equal ones, that of the last profile counts.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Longest {
    ns: Ns,
    number: usize,
    thread: String,
}

impl UnfinishedCalls {
    /// The calls of a profile.
    pub(crate) fn of(member: &Member<'_>) -> UnfinishedCalls {
        let (profile, number) = (member.profile, member.number);
        let mut longest: HashMap<&str, (Ns, u32)> = HashMap::new();
        for call in &profile.data.calls {
            let Some(ns) = call
                .unfinished
                .filter(|_| !member.asleep.contains(&call.tid))
            else {
                continue;
            };
            let most = longest.entry(&call.call).or_default();
            if ns >= most.0 {
                *most = (ns, call.tid);
            }
        }
        let row = |(name, (ns, tid)): (&str, (Ns, u32))| {
            let thread = match member.ranks() {
                true => format!("{tid} of {}", profile.title()),
                false => tid.to_string(),
            };
            (name.to_owned(), Longest { ns, number, thread })
        };
        UnfinishedCalls(longest.into_iter().map(row).collect())
    }

    /// Adds those of another profile.
    pub(crate) fn join(&mut self, other: UnfinishedCalls) {
        for (name, call) in other.0 {
            let most = self.0.entry(name).or_default();
            if call > *most {
                *most = call;
            }
        }
    }

    /// The table.
    pub(super) fn text(&self, summary: &Summary, width: usize, top: usize) -> String {
        let mut groups: Vec<&CallGroup> = summary.calls.iter().collect();
        groups.retain(|g| g.unfinished.0 > 0);
        groups.sort_by_key(|g| std::cmp::Reverse(g.unfinished.1));
        let mut table = TextTable::new(&[
            ("unfinished call", 0),
            ("calls", 0),
            ("so far", 0),
            ("longest", 1),
            ("in thread", 2),
        ]);
        for group in groups.iter().take(top) {
            let longest = self.0.get(&group.name);
            table.rows.push(vec![
                group.name.clone(),
                group.unfinished.0.to_string(),
                time(group.unfinished.1),
                time(longest.map_or(0, |l| l.ns)),
                longest.map_or_else(String::new, |l| l.thread.clone()),
            ]);
        }
        let left = groups.len().saturating_sub(top);
        section("Calls that did not end", &table, width, left)
    }
}
