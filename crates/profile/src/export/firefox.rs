//! The Firefox profiler's own format (`src/types/profile.ts` of github.com/firefox-devtools/profiler),
//! in a version that its readers upgrade. Times are in milliseconds with decimals, from the start of
//! the first profile.
//!
//! A sample is the time of a path. The samples of a thread follow each other from its start, so a
//! stack chart is as wide as the thread's time; their order is that of paths, not that of events.
//! Events of a trace are markers, which stand where they happened.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::files::ExportFiles;
use super::table::Table;
use crate::model::{BLOCKED, Ns, PREEMPTED, Profile, READY, ROOT, Thread, TimePart, thread_title};
use crate::paths::{LocationKind, PathLocation, PathSample, ThreadPaths, threads};
use crate::run::{ContextIndex, Run, label};
use crate::timeline::{TimeSpan, timelines};

/// The version of the format, `preprocessedProfileVersion`: the first with tables that all threads
/// share.
const VERSION: u32 = 60;
/// The first category, whose colour marks it as that of everything else.
const OTHER: (&str, &str) = ("other", "grey");
/// The colours of the categories after it, one for each of [`TimePart::ALL`]: those of the page.
const COLORS: [&str; 8] = [
    "orange",
    "red",
    "lightblue",
    "green",
    "yellow",
    "yellow",
    "yellow",
    "yellow",
];
/// The categories of markers that stand for several parts: calls and regions.
const MARKERS: [(&str, &str); 2] = [("system calls", "red"), ("regions", "grey")];
/// Type of a marker that is an interval.
const INTERVAL: u32 = 1;

/// The number of a part's category.
fn category(part: TimePart) -> usize {
    let number = TimePart::ALL.iter().position(|p| *p == part);
    number.map_or(0, |number| number + 1)
}

/// One JSON object.
pub(super) fn export(run: &Run) -> ExportFiles {
    let mut tables = Tables::default();
    let origin = run.origin();
    let mut out = Vec::new();
    for (number, profile) in run.profiles.iter().enumerate() {
        let mut lines = timelines(profile);
        for thread in threads(profile) {
            let process = Process {
                profile,
                number,
                of: run.profiles.len(),
                shift: profile.header.started_unix_ns - origin,
            };
            let spans = lines.remove(&thread.tid).unwrap_or_default();
            out.push(tables.thread(process, &thread, &spans));
        }
    }
    let value = json!({
        "meta": meta(run),
        "libs": [],
        "shared": tables.finish(),
        "threads": out,
    });
    super::files::json("profile.firefox.json", &value)
}

fn ms(ns: Ns) -> f64 {
    ns as f64 / 1e6
}

fn meta(run: &Run) -> Value {
    let header = run.profiles.first().map(|p| &p.header);
    let command = header.and_then(|h| h.command.first());
    let program = command.and_then(|c| c.rsplit('/').next());
    let sampling = header.and_then(|h| h.options.samples.as_ref());
    let end = |p: &Profile| {
        let ends = p
            .data
            .threads
            .iter()
            .map(|t| t.ended_ns.unwrap_or(p.data.at_ns));
        let shift = p.header.started_unix_ns - run.origin();
        ends.max().unwrap_or(p.data.at_ns).saturating_add(shift)
    };
    let ends = run.profiles.iter().map(end);
    let color = |(part, color): (TimePart, &'static str)| (part.name(), color);
    let categories = [OTHER]
        .into_iter()
        .chain(TimePart::ALL.into_iter().zip(COLORS).map(color))
        .chain(MARKERS);
    let category =
        |(name, color)| json!({ "name": name, "color": color, "subcategories": ["Other"] });
    let field = |key, label, format| json!({ "key": key, "label": label, "format": format });
    let fields = [
        field("ret", "Result", "integer"),
        field("region", "Region", "string"),
        field("unfinished", "Unfinished", "string"),
        field("waker", "Woken by", "string"),
    ];
    let schema = |name, details| {
        json!({
            "name": name, "display": ["marker-chart", "marker-table"], "tableLabel": details, "fields": fields,
        })
    };
    json!({
        "interval": sampling.map_or(1.0, |s| 1000.0 / f64::from(s.hz.max(1))),
        "startTime": ms(run.origin()),
        "profilingStartTime": 0,
        "profilingEndTime": ends.max().map(ms),
        "processType": 0,
        "product": program.unwrap_or("spile"),
        "arguments": header.map(|h| h.command_line()),
        "importedFrom": concat!("spile ", env!("CARGO_PKG_VERSION")),
        "oscpu": header.map(|h| format!("Linux {} {}", h.kernel, h.arch)),
        "logicalCPUs": header.map(|h| h.cpus),
        "stackwalk": 1,
        "version": 30,
        "preprocessedProfileVersion": VERSION,
        "symbolicated": true,
        "usesOnlyOneStackType": true,
        "sourceCodeIsNotOnSearchfox": true,
        "keepProfileThreadOrder": true,
        "sampleUnits": { "time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns" },
        "categories": categories.map(category).collect::<Vec<_>>(),
        "markerSchema": [
            schema("call", "= {marker.data.ret} {marker.data.region}"),
            schema("event", "{marker.data.waker} {marker.data.region}"),
        ],
    })
}

/// A profile and its place in the run.
#[derive(Clone, Copy)]
struct Process<'a> {
    profile: &'a Profile,
    number: usize,
    of: usize,
    /// Time between the run's origin and its own.
    shift: Ns,
}

impl Process<'_> {
    /// A process id, which must be unique in a run of several machines.
    fn id(&self, pid: u32) -> String {
        match self.of {
            1 => pid.to_string(),
            _ => format!("{pid}.{}", self.number),
        }
    }
}

/// The tables that threads share.
#[derive(Default)]
struct Tables {
    strings: Table<String>,
    files: Table<String>,
    binaries: Table<String>,
    /// Numbers of the name, the file and the binary.
    functions: Table<(usize, Option<usize>, Option<usize>)>,
    locations: Table<PathLocation>,
    /// Numbers of the location and the category.
    frames: Table<(usize, usize)>,
    /// Numbers of the caller's stack and the frame.
    stacks: Table<(Option<usize>, usize)>,
}

impl Tables {
    fn thread(&mut self, process: Process, thread: &ThreadPaths, spans: &[TimeSpan]) -> Value {
        let data = &process.profile.data;
        let row = thread.thread;
        let pid = row.map_or(thread.tid, |t| t.pid);
        let start = process
            .shift
            .saturating_add(row.map_or(0, |t| t.started_ns));
        let end = row.and_then(|t| t.ended_ns).unwrap_or(data.at_ns);
        let end = process.shift.saturating_add(end);
        let comm = data.processes.iter().find(|p| p.pid == pid);
        let name = match process.of {
            1 => comm.map_or_else(|| process.profile.title(), |p| p.comm.clone()),
            _ => format!(
                "{} on {}",
                process.profile.title(),
                process.profile.header.host
            ),
        };
        json!({
            "processType": "default",
            "processName": name,
            "processStartupTime": ms(process.shift),
            "processShutdownTime": null,
            "registerTime": ms(start),
            "unregisterTime": ms(end),
            "pausedRanges": [],
            "name": thread.title(),
            "isMainThread": pid == thread.tid,
            "pid": process.id(pid),
            "tid": thread.tid,
            "samples": self.samples(&thread.samples, start),
            "markers": self.markers(process, spans),
        })
    }

    /// Samples one after another, and an empty one that ends the last.
    fn samples(&mut self, samples: &[PathSample], start: Ns) -> Value {
        let mut time = start;
        let (mut times, mut stacks, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        // The processor time up to each sample, since the one before.
        let mut cpu = vec![0];
        for sample in samples {
            times.push(ms(time));
            stacks.push(self.stack(sample));
            weights.push(ms(sample.ns));
            cpu.push(match sample.part {
                Some(part) if !part.on_a_cpu() => 0,
                _ => sample.ns,
            });
            time = time.saturating_add(sample.ns);
        }
        times.push(ms(time));
        stacks.push(None);
        weights.push(0.0);
        json!({
            "length": times.len(),
            "time": times,
            "stack": stacks,
            "weight": weights,
            "weightType": "tracing-ms",
            "threadCPUDelta": cpu,
        })
    }

    fn stack(&mut self, sample: &PathSample) -> Option<usize> {
        let mut stack = None;
        for (number, location) in sample.path.iter().enumerate() {
            let is_last = number + 1 == sample.path.len();
            let category = match (sample.part, location.kind) {
                (None, _) => 0,
                (Some(part), _) if is_last => category(part),
                (_, LocationKind::Function) => category(TimePart::User),
                (_, LocationKind::Call | LocationKind::Kernel) => category(TimePart::SyscallCpu),
                _ => 0,
            };
            let location = self.locations.number(location);
            let frame = self.frames.number(&(location, category));
            stack = Some(self.stacks.number(&(stack, frame)));
        }
        stack
    }

    fn markers(&mut self, process: Process, spans: &[TimeSpan]) -> Value {
        let contexts = ContextIndex::new(process.profile);
        let threads = process.profile.data.threads.iter();
        let thread_of: HashMap<u32, &Thread> = threads.map(|t| (t.tid, t)).collect();
        let at = |ns: Ns| ms(ns.saturating_add(process.shift));
        let (mut names, mut categories, mut data) = (Vec::new(), Vec::new(), Vec::new());
        for span in spans {
            let event = span.event;
            let name = match event.region() {
                true => label(event.context, contexts.row(event.context)),
                false => event.call.clone(),
            };
            names.push(self.strings.number(&name));
            // A call is in several states, which are the samples'.
            categories.push(match &*event.call {
                BLOCKED => category(TimePart::Blocked),
                READY | PREEMPTED => category(TimePart::Runnable),
                _ => 1 + COLORS.len() + usize::from(event.region()),
            });
            let mut fields = json!({ "type": "event" });
            if !event.open && !event.region() && !event.is_off_cpu() {
                fields = json!({ "type": "call", "ret": event.ret });
            }
            let region = contexts.path(event.context).join(crate::run::WITHIN);
            if !event.region() && event.context != ROOT {
                fields["region"] = region.into();
            }
            if let Some(waker) = event.waker {
                fields["waker"] = thread_title(waker, thread_of.get(&waker).copied()).into();
            }
            if event.open {
                fields["unfinished"] = "yes".into();
            }
            data.push(fields);
        }
        json!({
            "length": spans.len(),
            "name": names,
            "startTime": spans.iter().map(|s| at(s.start)).collect::<Vec<_>>(),
            "endTime": spans.iter().map(|s| at(s.end)).collect::<Vec<_>>(),
            "phase": vec![INTERVAL; spans.len()],
            "category": categories,
            "data": data,
        })
    }

    /// The tables as columns.
    fn finish(mut self) -> Value {
        let frames = &self.frames.values;
        let locations = &self.locations.values;
        let mut function_of = Vec::new();
        for location in locations {
            let name = self.strings.number(&location.shown().into_owned());
            let file = location.file.as_deref().map(|file| self.files.number(file));
            let binary = location.binary().map(|file| self.binaries.number(&*file));
            function_of.push(self.functions.number(&(name, file, binary)));
        }
        let mut texts = |table: Table<String>| {
            let values = table.values.iter();
            values
                .map(|text| self.strings.number(text))
                .collect::<Vec<_>>()
        };
        let (files, binaries) = (texts(self.files), texts(self.binaries));
        let (functions, stacks) = (&self.functions.values, &self.stacks.values);
        let none = |length: usize| vec![Value::Null; length];
        json!({
            "stringArray": self.strings.values,
            "sources": {
                "length": files.len(),
                "uuid": none(files.len()),
                "filename": files,
            },
            "resourceTable": {
                "length": binaries.len(),
                "lib": none(binaries.len()),
                "host": none(binaries.len()),
                // The type of libraries.
                "type": vec![1; binaries.len()],
                "name": binaries,
            },
            "nativeSymbols": {
                "length": 0, "libIndex": [], "address": [], "name": [], "functionSize": [],
            },
            "funcTable": {
                "length": functions.len(),
                "name": functions.iter().map(|f| f.0).collect::<Vec<_>>(),
                "source": functions.iter().map(|f| f.1).collect::<Vec<_>>(),
                "resource": functions.iter().map(|f| f.2.map_or(json!(-1), Value::from)).collect::<Vec<_>>(),
                "isJS": vec![false; functions.len()],
                "relevantForJS": vec![false; functions.len()],
                "lineNumber": none(functions.len()),
                "columnNumber": none(functions.len()),
            },
            "frameTable": {
                "length": frames.len(),
                "func": frames.iter().map(|f| function_of[f.0]).collect::<Vec<_>>(),
                "category": frames.iter().map(|f| f.1).collect::<Vec<_>>(),
                "line": frames.iter().map(|f| locations[f.0].line).collect::<Vec<_>>(),
                "address": vec![-1; frames.len()],
                "inlineDepth": vec![0; frames.len()],
                "subcategory": vec![0; frames.len()],
                "nativeSymbol": none(frames.len()),
                "innerWindowID": none(frames.len()),
                "column": none(frames.len()),
            },
            "stackTable": {
                "length": stacks.len(),
                "prefix": stacks.iter().map(|s| s.0).collect::<Vec<_>>(),
                "frame": stacks.iter().map(|s| s.1).collect::<Vec<_>>(),
            },
        })
    }
}
