//! The report as one page for a browser: bars by thread, a time line of the trace, a flame graph,
//! tables that sort. The page has its styles, its program (`html/page.js`) and the numbers in it, and
//! asks for nothing from elsewhere.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::model::{Ns, Part};
use crate::paths::{Node, Place, threads};
use crate::regions::Region;
use crate::report::head;
use crate::run::{Contexts, Group, Program, Run, Sum, Summary, Unit, WITHIN};

/// Events of a page at most, the longest: a browser holds some hundred thousand.
const EVENTS: usize = 200_000;

/// Width of the lines at the top.
const COLUMNS: usize = 120;

/// The page.
pub fn html(run: &Run) -> String {
    let summary = run.summary();
    let data = json!({
        "head": head(run, &summary, COLUMNS),
        "parts": Part::ALL.map(|p| json!({ "name": p.name(), "short": p.short() })),
        "ranks": if summary.ranks { units(&summary.units) } else { json!([]) },
        "nodes": if summary.nodes.len() > 1 { units(&summary.nodes) } else { json!([]) },
        "programs": programs(&summary.programs),
        "asleep": sleepers(&summary),
        "threads": units(&summary.threads),
        "calls": groups(&summary, &summary.calls),
        "regions": groups(&summary, &summary.regions),
        "times": times(&summary),
        "trees": trees(run),
        "futexes": futexes(run),
        "trace": trace(run),
        "lost": summary.lost,
    });
    // Within a script element nothing may look like its end.
    let data = data.to_string().replace('<', "\\u003c");
    let title = run.profiles.first().map(|p| p.header.command.join(" "));
    let parts = [
        ("@TITLE@", escape(&title.unwrap_or_default())),
        ("@STYLE@", include_str!("html/page.css").to_owned()),
        ("@DATA@", data),
        ("@PROGRAM@", include_str!("html/page.js").to_owned()),
    ];
    // One pass: what is put in may have such words in it.
    let mut page = String::new();
    let mut rest = include_str!("html/page.html");
    for (mark, text) in &parts {
        let (before, behind) = rest.split_once(mark).unwrap_or((rest, ""));
        page += before;
        page += text;
        rest = behind;
    }
    page + rest
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

fn units(units: &[Unit]) -> Value {
    units_of(units).into()
}

fn units_of(units: &[Unit]) -> Vec<Value> {
    let unit = |u: &Unit| {
        let Sum {
            threads,
            wall,
            parts,
            residual,
        } = &u.sum;
        json!({
            "title": u.title, "host": u.host, "threads": threads, "wall": wall,
            "parts": parts, "residual": residual, "elapsed": u.elapsed,
        })
    };
    units.iter().map(unit).collect()
}

fn programs(programs: &[Program]) -> Value {
    let program = |p: &Program| {
        json!({
            "title": p.name, "processes": p.processes, "elapsed": p.wall, "threads": p.sum.threads,
            "wall": p.sum.wall, "parts": p.sum.parts, "residual": p.sum.residual, "asleep": p.asleep,
        })
    };
    programs.iter().map(program).collect()
}

fn sleepers(summary: &Summary) -> Value {
    let units = summary.asleep.iter().map(|s| s.unit.clone());
    let mut rows = units_of(&units.collect::<Vec<_>>());
    for (row, sleeper) in rows.iter_mut().zip(&summary.asleep) {
        row["calls"] = json!(sleeper.calls);
        row["mostly"] = json!(sleeper.mostly);
    }
    rows.into()
}

/// Times in regions, where they were counted.
fn times(summary: &Summary) -> Value {
    let region = |r: &Region| {
        json!({
            "name": r.name, "entries": r.entries, "time": r.inclusive, "own": r.exclusive,
            "share": share(r.exclusive, summary.all.wall),
            "parts": Part::ALL.map(|p| p.of(&r.parts)), "residual": r.residual(), "imbalance": r.imbalance(),
            "mostly": r.mostly(),
        })
    };
    summary.times.iter().map(region).collect()
}

fn groups(summary: &Summary, groups: &[Group]) -> Value {
    let all = summary.in_calls();
    let group = |g: &Group| {
        json!({
            "name": g.name, "time": g.time(), "share": share(g.time(), all), "count": g.count,
            "failed": g.failures(), "cpu": g.parts.cpu, "blocked": g.parts.blocked,
            "runnable": g.parts.runnable, "taken": g.parts.taken, "mean": g.mean(),
            "max": g.max, "bytes": g.bytes, "imbalance": g.imbalance(), "mostly": g.mostly(),
            "errors": g.errors, "unfinished": g.unfinished.0, "histogram": g.histogram,
        })
    };
    groups.iter().map(group).collect()
}

fn share(part: Ns, all: Ns) -> Option<f64> {
    (all > 0).then(|| part as f64 / all as f64)
}

/// Futexes, the longest waits first.
fn futexes(run: &Run) -> Value {
    let mut all = Vec::new();
    for profile in &run.profiles {
        let contexts = Contexts::new(profile);
        for futex in &profile.data.futexes {
            let address = || format!("{:#x}", futex.address);
            let wakes = futex.wakes.iter();
            let wakes = wakes.map(|w| format!("{} wakes {}: {}", w.waker, w.woken, w.count));
            let row = json!({
                "name": futex.name.clone().unwrap_or_else(address),
                "process": format!("{} {}", profile.title(), futex.pid),
                "waits": futex.waits, "time": futex.ns, "max": futex.max,
                "mean": futex.ns.checked_div(futex.waits),
                "wakes": wakes.collect::<Vec<_>>().join(", "),
                "region": contexts.path(futex.context).join(WITHIN),
            });
            all.push((futex.ns, row));
        }
    }
    all.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    all.into_iter().map(|(_, row)| row).collect()
}

/// A tree a thread, without the time outside of calls.
fn trees(run: &Run) -> Value {
    let mut out = Vec::new();
    for profile in &run.profiles {
        for thread in threads(profile) {
            let mut title = thread.title();
            if run.profiles.len() > 1 {
                title = format!("{}: {title}", profile.title());
            }
            let tree = Node::of(Place::default(), &thread.samples);
            out.push(json!({ "title": title, "tree": node(&tree) }));
        }
    }
    out.into()
}

fn node(node: &Node) -> Value {
    let place = &node.place;
    let module = place.module.clone().or(place.file.clone());
    json!({
        "n": place.name, "k": place.kind.name(), "m": module, "t": node.inclusive,
        "c": node.count, "ch": node.children.iter().map(self::node).collect::<Vec<_>>(),
    })
}

/// Numbers names.
#[derive(Default)]
struct Names {
    numbers: HashMap<String, usize>,
    names: Vec<String>,
}

impl Names {
    fn number(&mut self, name: String) -> usize {
        *self.numbers.entry(name).or_insert_with_key(|name| {
            self.names.push(name.clone());
            self.names.len() - 1
        })
    }
}

/// Events as `[row, call, region, start, length, result]`; of those that had not ended there is no result.
fn trace(run: &Run) -> Value {
    let origin = run.origin();
    let mut all = Vec::new();
    for profile in &run.profiles {
        all.extend(profile.events.iter().map(|e| (profile, e)));
    }
    if all.is_empty() {
        return Value::Null;
    }
    let left_out = all.len().saturating_sub(EVENTS);
    if left_out > 0 {
        all.sort_by_key(|(_, e)| std::cmp::Reverse(e.end_ns.saturating_sub(e.start_ns)));
        all.truncate(EVENTS);
    }
    // What is drawn later is on top: what is within others.
    all.sort_by_key(|(_, e)| (e.start_ns, std::cmp::Reverse(e.end_ns)));
    let contexts: HashMap<*const _, _> = run
        .profiles
        .iter()
        .map(|p| (std::ptr::from_ref(p), Contexts::new(p)))
        .collect();
    let (mut rows, mut calls, mut regions) = (Names::default(), Names::default(), Names::default());
    let several = run.profiles.len() > 1;
    let mut events = Vec::new();
    all.sort_by_key(|(p, e)| (p.header.rank.as_ref().map(|r| r.rank), e.tid, e.start_ns));
    for (profile, event) in all {
        let start = event
            .start_ns
            .saturating_add(profile.header.started_unix_ns - origin);
        let title = match several {
            true => format!("{}: {}", profile.title(), event.tid),
            false => event.tid.to_string(),
        };
        let path = contexts[&std::ptr::from_ref(profile)].path(event.context);
        events.push(json!([
            rows.number(title),
            calls.number(event.call.clone()),
            regions.number(path.join(crate::run::WITHIN)),
            start,
            event.end_ns.saturating_sub(event.start_ns),
            (!event.open).then_some(event.ret),
        ]));
    }
    json!({
        "rows": rows.names, "calls": calls.names, "regions": regions.names,
        "events": events, "leftOut": left_out,
    })
}
