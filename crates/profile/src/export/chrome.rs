//! Trace events as JSON, which Perfetto and Chromium show. Times are microseconds with three
//! decimals, from the start of the first profile.

use serde_json::{Value, json};

use super::Files;
use crate::run::{Contexts, OUTSIDE, Run};

/// A process a profile, a thread a thread, an event of kind `X` a call.
pub fn export(run: &Run) -> Files {
    let origin = run.origin();
    let mut events = Vec::new();
    for (number, profile) in run.profiles.iter().enumerate() {
        let contexts = Contexts::new(profile);
        let shift = profile.header.started_unix_ns - origin;
        let us = |ns: u64| json!(ns.saturating_add(shift) as f64 / 1e3);
        let title = format!("{} on {}", profile.title(), profile.header.host);
        events.push(named("process_name", number, 0, &title));
        for thread in &profile.data.threads {
            let title = format!("{} {}", thread.tid, thread.name);
            events.push(named("thread_name", number, thread.tid, title.trim_end()));
        }
        for event in &profile.events {
            let mut args = match event.open {
                true => json!({}),
                false => json!({ "ret": event.ret }),
            };
            let region = contexts.path(event.context).join(crate::run::WITHIN);
            if region != OUTSIDE {
                args["region"] = region.into();
            }
            let mut kind = if event.off() { "off-cpu" } else { "syscall" }.to_owned();
            if event.open {
                // (Categories are separated by commas.)
                kind += ",unfinished";
                args["unfinished"] = true.into();
            }
            events.push(json!({
                "name": event.call,
                "cat": kind,
                "ph": "X",
                "pid": number,
                "tid": event.tid,
                "ts": us(event.start_ns),
                "dur": event.end_ns.saturating_sub(event.start_ns) as f64 / 1e3,
                "args": args,
            }));
        }
    }
    let value = json!({ "traceEvents": events, "displayTimeUnit": "ns" });
    super::json("trace.json", &value)
}

fn named(what: &str, pid: usize, tid: u32, name: &str) -> Value {
    json!({ "name": what, "ph": "M", "pid": pid, "tid": tid, "args": { "name": name } })
}
