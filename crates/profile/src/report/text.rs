//! The summary: five lines about the time, then tables.

use std::collections::HashSet;

use super::events::events;
use super::latency::latency;
use super::objects::objects;
use super::peers;
use super::placement::{migrations, remote_memory};
use super::places::{places, sentences, uneven};
use super::quiet::quiet;
use super::table::{TextTable, clauses, escape, paragraph, section, shorten};
use super::tables::{groups, programs, sleepers, threads, times, units};
use super::units::{counted, percent, signed, time};
use super::view::View;
use crate::answer::{Finding, matters};
use crate::merge::MergedRun;
use crate::model::{Header, Ns, RecorderCost, TimePart};
use crate::run::{CallGroup, ContextIndex, Entity, NamedProcesses, OUTSIDE, Run, Summary};

/// The summary of a run.
pub fn text(run: &Run, view: &View) -> String {
    text_of(&MergedRun::of(run, Some(view)), view)
}

/// The summary of a run that was merged for this view.
pub fn text_of(merged: &MergedRun, view: &View) -> String {
    let (width, top) = (view.width, view.top);
    let (run, summary, functions) = (&merged.run, &merged.summary, &merged.functions);
    let mut out = head(merged, functions, width);
    let found = merged.places.as_ref().unwrap_or(functions);
    out += &places(found, summary, view.by, width, top);
    out += &quiet(&merged.quiet, width, top);
    out += &objects(functions, summary, &view.objects, width, top);
    out += &events(&merged.events, width, top);
    out += &parts(summary, width);
    if summary.threads.is_empty() && summary.calls.is_empty() {
        out = shorten(out.lines().next().unwrap_or_default(), width) + "\nnothing was recorded\n";
    }
    out += &groups("Calls", "call", &summary.calls, summary, width, top);
    if summary.times.iter().any(|r| r.name != OUTSIDE) {
        out += &times(summary, width, top);
    } else if summary.regions.iter().any(|r| r.name != OUTSIDE) {
        out += &groups("Regions", "region", &summary.regions, summary, width, top);
    }
    out += &peers::tables(&merged.peers, summary.ranks, width, top);
    out += &merged.call_paths.text(summary, width, top);
    out += &latency(&summary.calls, width, top);
    out += &futexes(run, width, top);
    if summary.nodes.len() > 1 {
        out += &units("Nodes", &summary.nodes, width, usize::MAX);
    }
    if summary.ranks {
        out += &units("Ranks", &summary.units, width, top);
    }
    if let Some(said) = failed(run) {
        out += &format!("\n{}", paragraph(&said, "  ", width));
    }
    if !summary.programs.is_empty() {
        out += &programs(&summary.programs, width, top);
    }
    out += &threads(&summary.threads, width, top);
    out += &sleepers(summary, width, top);
    out += &migrations(summary, width);
    out += &remote_memory(summary, width);
    out += &errors(&summary.calls, width, top);
    out += &merged.unfinished.text(summary, width, top);
    out += &missing(run, width);
    out += &recorders(run, width);
    out += &lost(summary, width);
    out
}

/// The ranks that ended without success, the first to end first: others often end because of it.
pub fn failed(run: &Run) -> Option<String> {
    const MOST: usize = 8;
    let mut failed: Vec<_> = run
        .profiles
        .iter()
        .filter_map(|profile| {
            let (rank, end) = (profile.header.rank.as_ref()?, profile.end.as_ref()?);
            let status = end.status.filter(|status| *status != 0)?;
            let when = profile.header.started_unix_ns.saturating_add(end.at_ns);
            Some((when, rank.rank, end.at_ns, status))
        })
        .collect();
    if failed.is_empty() {
        return None;
    }
    failed.sort_unstable();
    let each = failed.iter().take(MOST).map(|(_, rank, after, status)| {
        let how = match status & 0x7f {
            0 => format!("with status {}", status >> 8 & 0xff),
            signal => format!("by signal {signal}"),
        };
        format!("rank {rank} {how} after {}", time(*after))
    });
    let mut ranks: Vec<String> = each.collect();
    if failed.len() > MOST {
        ranks.push(format!("and {} more", failed.len() - MOST));
    }
    Some(format!(
        "Failed, the first to end first: {}",
        ranks.join(", ")
    ))
}

/// Missing information, with the reason.
fn missing(run: &Run, width: usize) -> String {
    let whys = run.regions_missing().into_iter();
    let whys = whys.map(|why| paragraph(&format!("Not reported: {why}"), "  ", width));
    whys.fold(String::new(), |out, why| format!("{out}\n{why}"))
}

/// The cost of the recordings themselves.
fn recorders(run: &Run, width: usize) -> String {
    let RecorderCost { cpu, displaced } = run.recorder();
    if cpu == 0 {
        return String::new();
    }
    let said = format!(
        "spile itself used {} of processor time while it recorded; threads that could have run made \
         space for it {}",
        time(cpu),
        counted(displaced, "time"),
    );
    format!("\n{}", paragraph(&said, "  ", width))
}

/// The first lines: the recorded command, where most of its time went, the parts of its time, the calls and
/// regions with most of it, and the rank that the others wait for.
pub(crate) fn head(merged: &MergedRun, findings: &[Finding], width: usize) -> String {
    let summary = &merged.summary;
    let mut out = command_line(&merged.run, summary, width);
    out += &sentences(findings, summary, width);
    out += &uneven(&merged.imbalances, width);
    out += &peers::sentences(&merged.peers, summary.ranks, width);
    out += &time_line(summary, width);
    out += &calls_line(summary, width);
    out += &regions_line(summary, width);
    if summary.are_unrelated() {
        out += &by_program(summary, width);
    }
    out += &critical_line(summary, width);
    out
}

/// The recorded command, and the size of its run.
fn command_line(run: &Run, summary: &Summary, width: usize) -> String {
    let header = run.profiles.first().map(|p| &p.header);
    let command = header.map(Header::command_line).unwrap_or_default();
    let subject = match (command.is_empty(), run.profiles.len()) {
        (_, 0) => "no profiles".to_owned(),
        (false, _) => command,
        (true, 1) => format!(
            "{} on {}",
            run.profiles[0].title(),
            run.profiles[0].header.host
        ),
        (true, n) => counted(n as u64, "profile"),
    };
    let mut facts = vec![time(summary.elapsed)];
    if summary.ranks {
        let programs = run.profiles.iter().map(|p| p.header.command.first());
        let ranks = counted(summary.units.len() as u64, "rank");
        facts.push(match programs.collect::<HashSet<_>>().len() {
            0 | 1 => ranks,
            n => format!("{ranks} of {n} programs"),
        });
        facts.push(counted(summary.nodes.len() as u64, "node"));
    }
    let asleep = summary.asleep.len() as u64;
    let threads = counted(summary.threads.len() as u64 + asleep, "thread");
    facts.push(match asleep {
        0 => threads,
        n => format!(
            "{threads} ({n} only sleep{})",
            if n == 1 { "s" } else { "" }
        ),
    });
    facts.extend(header.map(|h| format!("run {}", h.run)));
    // The facts are more important than the end of a long command.
    let width_left = width.saturating_sub(facts[..facts.len().min(4)].join(", ").len() + 2);
    let subject = shorten(&escape(&subject), width_left.max(20));
    clauses(&format!("{subject}: "), &facts, width)
}

/// The parts of the threads' time, the largest first.
fn time_line(summary: &Summary, width: usize) -> String {
    let wall = summary.total.wall as f64;
    let mut parts = TimePart::ALL.map(|part| (summary.total.part(part), part));
    parts.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    let parts = parts.iter().filter(|(ns, _)| *ns > 0);
    let parts = parts.map(|(ns, part)| format!("{} {}", percent(*ns as f64, wall), part.brief()));
    let start = format!("Threads' time {}: ", time(summary.total.wall));
    clauses(&start, &parts.collect::<Vec<_>>(), width)
}

/// The first groups, with their shares of the time in calls.
fn shares_of_calls(groups: &[CallGroup], summary: &Summary) -> Vec<String> {
    let some = groups.iter().take(5).map(|g| {
        let share = percent(g.time() as f64, summary.in_calls() as f64);
        format!("{} {share} ({})", g.short(), time(g.time()))
    });
    some.collect()
}

/// The calls with most of the time, if calls are a share of the whole that matters.
fn calls_line(summary: &Summary, width: usize) -> String {
    match summary.in_calls() {
        0 => "No time in system calls\n".to_owned(),
        ns if !matters(ns, summary.total.wall) => String::new(),
        ns => {
            let start = format!("Of {} in calls: ", time(ns));
            clauses(&start, &shares_of_calls(&summary.calls, summary), width)
        }
    }
}

/// The regions with most of the time; without their times, those with most of the time in calls.
fn regions_line(summary: &Summary, width: usize) -> String {
    let shares = if summary.times.iter().any(|r| r.name != OUTSIDE) {
        let some = summary.times.iter().take(5).map(|r| {
            let share = percent(r.exclusive as f64, summary.total.wall as f64);
            format!("{} {share} ({})", r.short(), time(r.exclusive))
        });
        some.collect()
    } else if summary.regions.iter().any(|r| r.name != OUTSIDE) {
        shares_of_calls(&summary.regions, summary)
    } else {
        return String::new();
    };
    clauses("By region: ", &shares, width)
}

/// The rank or process that the others wait for.
fn critical_line(summary: &Summary, width: usize) -> String {
    let Some(unit) = summary.critical() else {
        return String::new();
    };
    let mut clause = vec![
        unit.title.clone(),
        match summary.mpi && summary.ranks {
            true => format!("{} outside of MPI calls", time(unit.busiest.0)),
            false => format!("{} at work", time(unit.busiest.0)),
        },
    ];
    clause.extend(
        summary
            .imbalance()
            .map(|i| format!("{i:.2} times the mean")),
    );
    if summary.ranks {
        clause.push(format!("thread {}", unit.busiest.1));
        clause.push(format!("on {}", unit.host));
    }
    clauses("Critical: ", &clause, width)
}

/// The programs that used the processors.
fn by_program(summary: &Summary, width: usize) -> String {
    let used = |p: &NamedProcesses| p.on_cpu;
    let total = summary
        .programs
        .iter()
        .map(used)
        .fold(0, Ns::saturating_add);
    let mut order: Vec<&NamedProcesses> = summary.programs.iter().collect();
    order.sort_by_key(|p| std::cmp::Reverse(used(p)));
    let some = order.iter().take(5).map(|p| {
        let share = percent(used(p) as f64, total as f64);
        let processes = match p.processes {
            1 => String::new(),
            n => format!(" ({n} processes)"),
        };
        format!("{} {share}{processes}", p.name)
    });
    let start = format!("Of {} on a CPU: ", time(total));
    clauses(&start, &some.collect::<Vec<_>>(), width)
}

fn parts(summary: &Summary, width: usize) -> String {
    let mut table = TextTable::new(&[
        ("threads' time", 0),
        ("time", 0),
        ("share", 0),
        ("most", 2),
        ("of", 3),
    ]);
    let total = &summary.total;
    if total.threads == 0 {
        return String::new();
    }
    for part in TimePart::ALL {
        let time_of = |u: &Entity| u.sum.part(part);
        let most = summary.units.iter().max_by_key(|u| time_of(u));
        let most = most.filter(|u| summary.units.len() > 1 && time_of(u) > 0);
        table.rows.push(vec![
            part.name().to_owned(),
            time(total.part(part)),
            percent(total.part(part) as f64, total.wall as f64),
            most.map_or("-".to_owned(), |u| time(time_of(u))),
            most.map_or("-".to_owned(), |u| u.title.clone()),
        ]);
    }
    let last = [
        ("residual", signed(total.residual), total.residual as f64),
        ("wall time", time(total.wall), total.wall as f64),
    ];
    for (name, text, ns) in last {
        let share = percent(ns, total.wall as f64);
        let dash = || "-".to_owned();
        table
            .rows
            .push(vec![name.to_owned(), text, share, dash(), dash()]);
    }
    section("Where the time went", &table, width, 0)
}

fn errors(calls: &[CallGroup], width: usize, top: usize) -> String {
    let mut failures: Vec<(&str, &str, u64, u64)> = Vec::new();
    for call in calls {
        let errors = call.errors.iter();
        failures.extend(errors.map(|(e, n)| (&*call.name, &**e, *n, call.count)));
    }
    failures.sort_by_key(|(.., n, _)| std::cmp::Reverse(*n));
    let mut table = TextTable::new(&[
        ("failed calls", 0),
        ("error", 0),
        ("failed", 0),
        ("of calls", 1),
    ]);
    for (call, error, n, count) in failures.iter().take(top) {
        table.rows.push(vec![
            (*call).to_owned(),
            (*error).to_owned(),
            n.to_string(),
            percent(*n as f64, *count as f64),
        ]);
    }
    section(
        "Failures",
        &table,
        width,
        failures.len().saturating_sub(top),
    )
}

fn futexes(run: &Run, width: usize, top: usize) -> String {
    let mut futexes = Vec::new();
    for profile in &run.profiles {
        futexes.extend(profile.data.futexes.iter().map(|f| (profile, f)));
    }
    futexes.sort_by_key(|(_, f)| std::cmp::Reverse(f.ns));
    let mut table = TextTable::new(&[
        ("futex", 0),
        ("waits", 0),
        ("time", 0),
        ("max", 1),
        ("woken by (thread: times)", 2),
        ("of", 3),
        ("waits in", 4),
    ]);
    table.narrow = 24;
    let first = futexes.first().map(|(p, f)| (p.header.rank.clone(), f.pid));
    let several = futexes
        .iter()
        .any(|(p, f)| Some((p.header.rank.clone(), f.pid)) != first);
    for (profile, futex) in futexes.iter().take(top) {
        let path = ContextIndex::new(profile).path(futex.context);
        let region = path.last().filter(|r| *r != OUTSIDE);
        let address = format!("{:#x}", futex.address);
        let name = futex.name.as_ref().unwrap_or(&address);
        let mut wakes = futex.wakes.clone();
        wakes.sort_by_key(|w| std::cmp::Reverse(w.count));
        let mut by: Vec<(u32, u64)> = Vec::new();
        for wake in &wakes {
            match by.iter_mut().find(|(waker, _)| *waker == wake.waker) {
                Some((_, n)) => *n = n.saturating_add(wake.count),
                None => by.push((wake.waker, wake.count)),
            }
        }
        let by = by.iter().take(3).map(|(waker, n)| format!("{waker}: {n}"));
        let owner = match &profile.header.rank {
            _ if !several => "-".to_owned(),
            Some(rank) => format!("rank {}", rank.rank),
            None => format!("pid {}", futex.pid),
        };
        table.rows.push(vec![
            name.clone(),
            futex.waits.to_string(),
            time(futex.ns),
            time(futex.max),
            by.collect::<Vec<_>>().join(", "),
            owner,
            region.map_or("-".to_owned(), Clone::clone),
        ]);
    }
    section("Futexes", &table, width, futexes.len().saturating_sub(top))
}

fn lost(summary: &Summary, width: usize) -> String {
    let mut out = String::new();
    for (what, n) in &summary.lost {
        if out.is_empty() {
            out.push('\n');
        }
        out += &paragraph(&format!("Lost: {n} {what}"), "  ", width);
    }
    out
}
