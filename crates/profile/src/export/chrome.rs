//! Trace events as JSON for Perfetto and Chromium. Times are in microseconds with three decimals,
//! from the start of the first profile.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::files::ExportFiles;
use crate::model::{ContextKind, thread_title};
use crate::run::{ContextIndex, OUTSIDE, Run, label};
use crate::timeline::timelines;

/// Each profile is a process and each thread a thread. Events of kind `X` are calls, times off a
/// processor, and times in regions. A flow, of kinds `s` and `f`, leads from the thread that ended a
/// wait to the one that waited.
pub(super) fn export(run: &Run) -> ExportFiles {
    let origin = run.origin();
    let mut events = Vec::new();
    for (number, profile) in run.profiles.iter().enumerate() {
        let contexts = ContextIndex::new(profile);
        let shift = profile.header.started_unix_ns - origin;
        let us = |ns: u64| ns.saturating_add(shift) as f64 / 1e3;
        let title = format!("{} on {}", profile.title(), profile.header.host);
        events.push(named("process_name", number, 0, &title));
        for thread in &profile.data.threads {
            let title = thread_title(thread.tid, Some(thread));
            events.push(named("thread_name", number, thread.tid, &title));
        }
        for (tid, spans) in timelines(profile) {
            let starts: HashSet<u64> = spans.iter().map(|span| span.start).collect();
            for span in spans {
                let event = span.event;
                // Readers add the beginning and the duration. A sum of decimals can be past the beginning of what
                // follows at once, which would then be within this event.
                let followed = starts.contains(&span.end) && span.end > span.start;
                let end = span.end - u64::from(followed);
                let mut args = match event.open || event.region() || event.is_off_cpu() {
                    true => json!({}),
                    false => json!({ "ret": event.ret }),
                };
                // A region is within the events of the outer ones.
                let region = contexts.path(event.context).join(crate::run::WITHIN);
                if region != OUTSIDE && !event.region() {
                    args["region"] = region.into();
                }
                let row = contexts.row(event.context);
                let mut kind = match row.map(|c| c.kind) {
                    _ if event.is_off_cpu() => "off-cpu",
                    _ if !event.region() => "syscall",
                    Some(ContextKind::Mpi) => "mpi",
                    Some(
                        ContextKind::OmpRegion | ContextKind::OmpBarrier | ContextKind::OmpTask,
                    ) => "openmp",
                    Some(ContextKind::Mark | ContextKind::Root) | None => "user",
                }
                .to_owned();
                if event.open {
                    // (Categories are separated by commas.)
                    kind += ",unfinished";
                    args["unfinished"] = true.into();
                }
                let name = match event.region() {
                    true => label(event.context, row),
                    false => event.call.clone(),
                };
                events.push(json!({
                    "name": name,
                    "cat": kind,
                    "ph": "X",
                    "pid": number,
                    "tid": tid,
                    "ts": us(span.start),
                    "dur": (end - span.start) as f64 / 1e3,
                    "args": args,
                }));
                if let Some(waker) = event.waker {
                    // Both ends are in calls: the waker's, and the one that waited.
                    let id = events.len();
                    let mut end = |what: &str, tid: u32| {
                        events.push(json!({
                            "name": "wakeup", "cat": "wakeup", "ph": what, "bp": "e", "id": id,
                            "pid": number, "tid": tid, "ts": us(span.end),
                        }));
                    };
                    end("s", waker);
                    end("f", tid);
                }
            }
        }
    }
    let value = json!({ "traceEvents": events, "displayTimeUnit": "ns" });
    super::files::json("trace.json", &value)
}

fn named(what: &str, pid: usize, tid: u32, name: &str) -> Value {
    json!({ "name": what, "ph": "M", "pid": pid, "tid": tid, "args": { "name": name } })
}
