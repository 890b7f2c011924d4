//! The report as one page for a browser: bars by thread, a time line of the trace, a flame graph,
//! sortable tables. The page contains its styles, its program (`html/page.js`, `html/timeline.js`)
//! and the data, and loads nothing from elsewhere.

mod timeline;

use serde_json::{Value, json};

use crate::model::{Ns, TimePart};
use crate::paths::{Node, PathPlace, threads};
use crate::regions::Region;
use crate::report::{failed, head};
use crate::run::{CallGroup, ContextIndex, Entity, Program, Run, Summary, TimeSum, WITHIN};

/// Width of the lines at the top, in columns.
const COLUMNS: usize = 120;

/// The page.
pub fn html(run: &Run) -> String {
    let summary = run.summary();
    let data = json!({
        "head": head(run, &summary, COLUMNS),
        "parts": TimePart::ALL.map(|p| json!({ "name": p.name(), "short": p.short() })),
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
        "trace": timeline::trace(run),
        "failed": failed(run),
        "missing": run.regions_missing(),
        "lost": summary.lost,
    });
    // Within a script element no text may look like its end.
    let data = data.to_string().replace('<', "\\u003c");
    let title = run.profiles.first().map(|p| p.header.command_line());
    let parts = [
        ("@TITLE@", escape(&title.unwrap_or_default())),
        ("@STYLE@", include_str!("html/page.css").to_owned()),
        ("@DATA@", data),
        (
            "@PROGRAM@",
            include_str!("html/timeline.js").to_owned() + include_str!("html/page.js"),
        ),
    ];
    // One pass, because the inserted text may contain such words.
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

fn units(units: &[Entity]) -> Value {
    units_of(units).into()
}

fn units_of(units: &[Entity]) -> Vec<Value> {
    let unit = |u: &Entity| {
        let TimeSum {
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

/// Times in regions, if they were counted.
fn times(summary: &Summary) -> Value {
    let region = |r: &Region| {
        json!({
            "name": r.name, "entries": r.entries, "time": r.inclusive, "own": r.exclusive,
            "share": share(r.exclusive, summary.all.wall),
            "parts": r.parts.times(), "residual": r.residual(), "imbalance": r.imbalance(),
            "mostly": r.mostly(),
        })
    };
    summary.times.iter().map(region).collect()
}

fn groups(summary: &Summary, groups: &[CallGroup]) -> Value {
    let all = summary.in_calls();
    let group = |g: &CallGroup| {
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
        let contexts = ContextIndex::new(profile);
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

/// A tree for each thread, without the time outside of calls.
fn trees(run: &Run) -> Value {
    let mut out = Vec::new();
    for profile in &run.profiles {
        for thread in threads(profile) {
            let mut title = thread.title();
            if run.profiles.len() > 1 {
                title = format!("{}: {title}", profile.title());
            }
            let tree = Node::from_samples(PathPlace::default(), &thread.samples);
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
