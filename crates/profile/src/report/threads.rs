//! The table of the STaKTAU paper: for each thread its calls and their time in nanoseconds.

use std::collections::BTreeMap;

use super::table::escape;
use crate::model::{CallTotals, Ns};
use crate::run::Run;

/// For each thread of each profile `----- TID n -----`, then `call | time` for each call, the
/// longest time first, and the total. An unfinished call has a line of its own. Threads without
/// calls are listed too.
pub fn threads(run: &Run) -> String {
    let mut out = String::new();
    for profile in &run.profiles {
        if run.profiles.len() > 1 {
            let host = escape(&profile.header.host);
            out += &format!("===== {} on {host} =====\n", escape(&profile.title()));
        }
        let mut by_thread: BTreeMap<u32, Vec<&CallTotals>> = BTreeMap::new();
        for thread in &profile.data.threads {
            by_thread.entry(thread.tid).or_default();
        }
        for call in &profile.data.calls {
            by_thread.entry(call.tid).or_default().push(call);
        }
        for (tid, calls) in by_thread {
            out += &thread(tid, &calls);
        }
    }
    out
}

fn thread(tid: u32, calls: &[&CallTotals]) -> String {
    let mut rows: Vec<(Ns, String)> = Vec::new();
    let mut add = |name: String, ns: Ns| match rows.iter_mut().find(|(_, n)| *n == name) {
        Some((sum, _)) => *sum = sum.saturating_add(ns),
        None => rows.push((ns, name)),
    };
    for call in calls {
        let name = escape(&call.call);
        if let Some(ns) = call.unfinished {
            add(format!("{name} (unfinished)"), ns);
        }
        if call.count > 0 {
            add(name, call.total);
        }
    }
    rows.sort_by(|a, b| (b.0, &a.1).cmp(&(a.0, &b.1)));
    let total = rows.iter().fold(0u64, |a, (ns, _)| a.saturating_add(*ns));
    let mut out = format!("----- TID {tid} -----\ncall | time\n");
    for (ns, name) in rows {
        out += &format!("{name} | {ns}\n");
    }
    out + &format!("total | {total}\n\n")
}
