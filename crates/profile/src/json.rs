//! The summary of a run, and the difference of two runs, as JSON: the content of the text reports
//! in whole nanoseconds without rounding. `docs/profile-format.md` describes the fields.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::answer::Finding;
use crate::changes::{CONFIDENCE, Change, ComparedValues, SetSummary, differences};
use crate::event_counts::{CountedEvents, EventPlace};
use crate::imbalance::Imbalance;
use crate::merge::MergedRun;
use crate::model::{CallParts, Ns, TimePart};
use crate::peers::Peers;
use crate::quiet::QuietThread;
use crate::report::notes;
use crate::run::{CallGroup, ContextIndex, Entity, NamedProcesses, Run, Sleeper, TimeSum};
use crate::waits::WaitKind;

/// The version of both objects. New fields do not change it.
const VERSION: u32 = 1;

/// A run as one line.
pub fn json(run: &Run) -> String {
    json_of(&MergedRun::of(run, None))
}

/// A run that was merged, as one line.
pub fn json_of(merged: &MergedRun) -> String {
    // Writing to memory cannot fail.
    serde_json::to_string(&report(merged, &merged.functions)).unwrap_or_default() + "\n"
}

/// The report of a run, in the order of names. Rows are made one by one: there are as many as threads.
#[derive(Serialize)]
pub(crate) struct ReportRows<'a> {
    all: Value,
    #[serde(serialize_with = "sleepers")]
    asleep: &'a [Sleeper],
    calls: Vec<Value>,
    calls_by_region: Vec<Value>,
    command: Option<&'a [String]>,
    critical: Option<Value>,
    elapsed: Ns,
    events: Value,
    format: &'static str,
    futexes: Vec<Value>,
    imbalances: Vec<Value>,
    lost: &'a BTreeMap<String, u64>,
    max_by_mean: Option<f64>,
    #[serde(serialize_with = "units")]
    nodes: &'a [Entity],
    peers: Value,
    places: Vec<Value>,
    programs: Vec<Value>,
    quiet: Vec<Value>,
    #[serde(serialize_with = "units")]
    ranks: &'a [Entity],
    recorder: Value,
    recordings: Vec<Value>,
    regions: Vec<Value>,
    run: Option<&'a str>,
    #[serde(serialize_with = "threads")]
    threads: &'a [Entity],
    version: u32,
}

/// The report of a run with these places, which the page for browsers shows too.
pub(crate) fn report<'a>(merged: &'a MergedRun, findings: &[Finding]) -> ReportRows<'a> {
    let (run, summary) = (&merged.run, &merged.summary);
    let header = run.profiles.first().map(|p| &p.header);
    let critical = summary.critical().map(|unit| {
        json!({
            "title": unit.title, "host": unit.host, "work": unit.busiest.0, "thread": unit.busiest.1,
        })
    });
    let recorder = run.recorder();
    let times = summary.times.iter().map(|r| {
        json!({
            "name": r.name, "entries": r.entries, "inclusive": r.inclusive, "exclusive": r.exclusive,
            "parts": parts(&r.parts.times()), "residual": r.residual(),
            "max_by_mean": r.imbalance(), "calls": r.calls,
        })
    });
    ReportRows {
        all: sum(&summary.total),
        asleep: &summary.asleep,
        calls: groups(&summary.calls),
        calls_by_region: groups(&summary.regions),
        command: header.map(|h| &h.command[..]),
        critical,
        elapsed: summary.elapsed,
        events: events(&merged.events),
        format: "spile-report",
        futexes: futexes(run),
        imbalances: merged.imbalances.iter().map(imbalance).collect(),
        lost: &summary.lost,
        max_by_mean: summary.imbalance().filter(|_| !summary.are_unrelated()),
        nodes: &summary.nodes,
        peers: peers(&merged.peers),
        places: findings.iter().map(place).collect(),
        programs: summary.programs.iter().map(program).collect(),
        quiet: merged.quiet.iter().map(quiet).collect(),
        ranks: if summary.ranks { &summary.units } else { &[] },
        recorder: json!({ "cpu": recorder.cpu, "displaced": recorder.displaced }),
        recordings: run.profiles.iter().map(recording).collect(),
        regions: times.collect(),
        run: header.map(|h| &*h.run),
        threads: &summary.threads,
        version: VERSION,
    }
}

fn units<S: Serializer>(units: &[Entity], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(units.iter().map(|u| unit(u, true)))
}

fn threads<S: Serializer>(units: &[Entity], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(units.iter().map(|u| unit(u, false)))
}

fn sleepers<S: Serializer>(sleepers: &[Sleeper], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(sleepers.iter().map(|s| {
        let mut row = unit(&s.unit, false);
        row.insert("calls".to_owned(), s.calls.into());
        row.insert("mostly_in".to_owned(), s.mostly.clone().into());
        row
    }))
}

/// The differences between two sets of runs as one line.
pub fn json_diff(a: &[Run], b: &[Run]) -> String {
    let differences = differences(a, b);
    // The changes of amounts and numbers with these names.
    let sides = |change: &Change, [amount, count]: [&str; 2]| {
        let side = |values: ComparedValues| json!({ amount: values.amount, count: values.count });
        json!({
            "a": side(change.a), "b": side(change.b), "noise": change.noise, "changed": change.changed,
        })
    };
    let rows = |rows: &[(String, Change)], names: [&str; 2]| -> Vec<Value> {
        let row = rows.iter().map(|(name, change)| {
            let mut row = sides(change, names);
            row["name"] = name.clone().into();
            row
        });
        row.collect()
    };
    let times = ["time", "count"];
    let events = differences.events.iter().map(|row| {
        let events = ["events", "samples"];
        let changes = json!({
            "least": row.least, "all": sides(&row.all, events), "functions": rows(&row.functions, events),
            "regions": rows(&row.regions, events),
        });
        (row.event.clone(), changes)
    });
    let places = differences.places.iter().map(|row| {
        let mut place = place(&row.place);
        let mut change = sides(&row.change, times);
        for side in ["a", "b"] {
            change[side] = json!({ "time": change[side]["time"] });
        }
        for key in [
            "part",
            "call",
            "function",
            "location",
            "caller",
            "lock",
            "barrier",
            "mpi",
            "waits_for",
        ] {
            change[key] = place[key].take();
        }
        change
    });
    let side = |set: &SetSummary, runs: &[Run]| {
        let first = runs.first().and_then(|run| run.profiles.first());
        let ids = runs.iter().flat_map(|run| run.profiles.first());
        json!({
            "run": first.map(|p| &p.header.run),
            "runs": ids.map(|p| &p.header.run).collect::<Vec<_>>(),
            "command": first.map(|p| &p.header.command),
            "elapsed": set.elapsed,
            "all": sum(&set.total),
            "samples": set.samples,
            "lost": set.lost,
        })
    };
    let out = json!({
        "format": "spile-diff",
        "version": VERSION,
        "a": side(&differences.a, a),
        "b": side(&differences.b, b),
        "confidence": CONFIDENCE,
        "least": differences.least,
        "notes": notes(a, b),
        "places": places.collect::<Vec<_>>(),
        "calls": rows(&differences.calls, times),
        "regions": rows(&differences.regions, times),
        "events": events.collect::<Map<String, Value>>(),
    });
    out.to_string() + "\n"
}

fn recording(profile: &crate::Profile) -> Value {
    let header = &profile.header;
    let left = profile
        .data
        .processes
        .iter()
        .filter(|p| p.ended_ns.is_none());
    json!({
        "title": profile.title(), "host": header.host, "kernel": header.kernel, "pid": header.pid,
        "rank": header.rank.as_ref().map(|r| r.rank), "started_unix_ns": header.started_unix_ns,
        "options": header.options, "regions_missing": profile.regions_missing(), "whole": profile.end.is_some(),
        "status": profile.end.as_ref().and_then(|e| e.status),
        "running": left.map(|p| json!({ "pid": p.pid, "name": p.comm })).collect::<Vec<_>>(),
    })
}

/// A place of [`findings`].
fn place(finding: &Finding) -> Value {
    json!({
        "part": finding.part.key(), "call": finding.call, "function": finding.function,
        "location": finding.location, "caller": finding.caller, "lock": finding.is_lock(),
        "barrier": finding.is_barrier(), "mpi": finding.is_mpi(), "waits_for": finding.wait.map(WaitKind::name), "object": finding.object, "released_by": finding.holder, "time": finding.ns,
        "threads": finding.threads,
    })
}

/// The counted events, each place with its numbers by event.
fn events(events: &CountedEvents) -> Value {
    let counts = |counts: &[_]| -> Map<String, Value> {
        let pairs = events.events.iter().zip(counts);
        let count = |(name, count): (&String, &crate::event_counts::Estimate)| {
            let count = json!({ "events": count.events, "samples": count.samples });
            (name.clone(), count)
        };
        pairs.map(count).collect()
    };
    let place = |place: &EventPlace, key: &str| {
        let mut row = json!({ "counts": counts(&place.counts) });
        row[key] = place.name.clone().into();
        if key == "function" {
            row["location"] = place.location.clone().into();
        }
        row
    };
    let functions = events.functions.iter().map(|p| place(p, "function"));
    let regions = events.regions.iter().map(|p| place(p, "name"));
    json!({
        "all": counts(&events.all),
        "functions": functions.collect::<Vec<_>>(),
        "regions": regions.collect::<Vec<_>>(),
    })
}

/// A row of [`imbalances`].
fn imbalance(row: &Imbalance) -> Value {
    json!({
        "region": row.region, "title": row.unit, "of": if row.ranks { "ranks" } else { "threads" },
        "units": row.units, "longest": row.longest, "mean": row.mean,
        "max_by_mean": row.max_by_mean(), "time": row.cost, "whole": row.whole,
    })
}

/// Calls of MPI by the ranks that they are for.
fn peers(peers: &Peers) -> Value {
    let calls = peers.calls.iter().map(|c| {
        json!({
            "title": c.unit, "region": c.region, "ranks": c.ranks, "calls": c.calls, "time": c.ns, "whole": c.whole,
        })
    });
    let ranks = peers.ranks.iter().map(|r| {
        json!({
            "rank": r.rank, "time": r.ns, "with_others": r.with_others, "units": r.units, "calls": r.calls,
        })
    });
    json!({
        "calls": calls.collect::<Vec<_>>(), "ranks": ranks.collect::<Vec<_>>(), "whole": peers.whole,
        "left_out": { "count": peers.left_out.0, "time": peers.left_out.1 },
    })
}

/// Times in the order of [`TimePart::ALL`].
fn parts(times: &[Ns; 8]) -> Value {
    let parts = TimePart::ALL.iter().zip(times);
    let fields = parts.map(|(part, ns)| (part.key().to_owned(), Value::from(*ns)));
    Value::Object(fields.collect())
}

fn sum(sum: &TimeSum) -> Value {
    json!({
        "threads": sum.threads, "time": sum.wall, "parts": parts(&sum.parts),
        "residual": sum.residual,
    })
}

/// A row. For several threads it has the wall time too, which differs from the sum of the parts.
fn unit(unit: &Entity, several: bool) -> Map<String, Value> {
    let mut row = Map::new();
    row.insert("title".to_owned(), unit.title.clone().into());
    row.insert("host".to_owned(), unit.host.clone().into());
    if several {
        row.insert("wall".to_owned(), unit.elapsed.into());
    }
    if let Value::Object(sums) = sum(&unit.sum) {
        row.extend(sums);
    }
    if !several {
        row.insert("migrations".to_owned(), unit.migrations.into());
        row.insert("node_pages".to_owned(), json!(unit.node_pages));
        row.remove("threads");
    }
    row
}

fn program(program: &NamedProcesses) -> Value {
    let mut row = sum(&program.sum);
    row["name"] = program.name.clone().into();
    row["processes"] = program.processes.into();
    row["wall"] = program.wall.into();
    row["asleep"] = program.asleep.into();
    row["on_cpu"] = program.on_cpu.into();
    row
}

fn groups(groups: &[CallGroup]) -> Vec<Value> {
    let group = |g: &CallGroup| {
        let CallParts {
            cpu,
            blocked,
            runnable,
            taken,
        } = g.parts;
        json!({
            "name": g.name, "time": g.time(), "cpu": cpu, "blocked": blocked, "runnable": runnable,
            "taken": taken, "count": g.count, "min": g.min, "max": g.max, "bytes": g.bytes,
            "errors": g.errors, "max_by_mean": g.imbalance(), "within": g.within,
            "unfinished": { "count": g.unfinished.0, "time": g.unfinished.1 },
            "histogram": g.histogram,
        })
    };
    groups.iter().map(group).collect()
}

/// A thread that hardly ran.
fn quiet(thread: &QuietThread) -> Value {
    json!({
        "title": thread.title, "thread": thread.tid, "stillness": thread.stillness.key(), "calls": thread.calls,
        "begin": thread.ends.begin, "end": thread.ends.end,
    })
}

fn futexes(run: &Run) -> Vec<Value> {
    let mut rows = Vec::new();
    for profile in &run.profiles {
        let contexts = ContextIndex::new(profile);
        for futex in &profile.data.futexes {
            rows.push(json!({
                "recording": profile.title(), "pid": futex.pid, "address": futex.address,
                "name": futex.name, "region": contexts.path(futex.context), "waits": futex.waits,
                "time": futex.ns, "max": futex.max, "wakes": futex.wakes,
            }));
        }
    }
    rows
}
