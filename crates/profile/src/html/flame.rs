//! The flame graph of the page: one tree of the paths of all threads, and the time of each thread at
//! its nodes. So the page can merge any threads without a look at names.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::frames::ByFrame;
use crate::model::{Ns, TimePart};
use crate::paths::{LocationKind, PathLocation, PathSample, of_all_time};
use crate::run::{Run, last};
use crate::sleeping_threads::sleeping_threads;
use crate::waits::WaitKind;

/// Maximum number of paths of all threads together. Shorter ones are merged.
const PATHS: usize = 300_000;

/// What a thread did: each state has one colour on the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    User,
    Kernel,
    Taken,
    Ready,
    Lock,
    Blocked,
    Idle,
    /// Time in no part.
    Residual,
}

impl State {
    /// All of them, in the order of their numbers, with their names on the page.
    const NAMES: [&str; 8] = [
        "running: program",
        "running: kernel",
        "faults, interrupts",
        "waiting for a CPU",
        "waiting for a lock",
        "blocked",
        "idle",
        "not accounted for",
    ];

    /// The state of a part of the time.
    fn new(part: TimePart, wait: Option<WaitKind>) -> State {
        match part {
            TimePart::User => State::User,
            TimePart::SyscallCpu => State::Kernel,
            TimePart::Blocked if wait == Some(WaitKind::Lock) => State::Lock,
            TimePart::Blocked if wait.is_some_and(WaitKind::is_idle) => State::Idle,
            TimePart::Blocked => State::Blocked,
            TimePart::Runnable => State::Ready,
            TimePart::FaultMinor | TimePart::FaultMajor | TimePart::Irq | TimePart::Softirq => {
                State::Taken
            }
        }
    }

    fn of(sample: &PathSample) -> State {
        State::new(sample.part.unwrap_or(TimePart::User), sample.wait)
    }
}

/// The time of a thread at a node itself.
struct NodeTime {
    thread: usize,
    node: usize,
    state: State,
    ns: Ns,
    count: u64,
}

/// A location on the page: all lines of a function are one.
#[derive(Debug, PartialEq, Eq, Hash, Clone)]
struct Frame {
    name: String,
    kind: LocationKind,
    module: Option<String>,
}

/// The tree and its locations.
#[derive(Default)]
struct Tree {
    /// The parent and the frame of each node; the first node is the root.
    nodes: Vec<(usize, usize)>,
    children: HashMap<(usize, usize), usize>,
    frames: Vec<Frame>,
    frame_indexes: HashMap<Frame, usize>,
    /// The frame of each location, its line, and the time there.
    locations: Vec<(usize, Option<String>, Ns)>,
    location_indexes: HashMap<PathLocation, usize>,
    /// The same by kind and frame, for most paths share their frames.
    indexes_by_frame: [ByFrame<usize>; 7],
}

impl Tree {
    /// The node of a path.
    fn node(&mut self, path: &[PathLocation], ns: Ns) -> usize {
        let mut node = 0;
        for at in path {
            let location = self.location(at);
            let (frame, _, time) = &mut self.locations[location];
            *time = time.saturating_add(ns);
            let key = (node, *frame);
            node = *self.children.entry(key).or_insert_with(|| {
                self.nodes.push(key);
                self.nodes.len() - 1
            });
        }
        node
    }

    fn location(&mut self, at: &PathLocation) -> usize {
        let mut indexes = std::mem::take(&mut self.indexes_by_frame[at.kind as usize]);
        let index = indexes.get(&at.frame, |_| self.location_by_names(at));
        self.indexes_by_frame[at.kind as usize] = indexes;
        index
    }

    fn location_by_names(&mut self, at: &PathLocation) -> usize {
        if let Some(index) = self.location_indexes.get(at) {
            return *index;
        }
        let frame = Frame {
            name: at.shown().into_owned(),
            kind: at.kind,
            module: at.module.as_deref().map(|module| last(module).to_owned()),
        };
        let file = at.file.as_deref().map(last);
        let line = match (file, at.line) {
            (Some(file), Some(line)) => Some(format!("{file}:{line}")),
            (file, _) => file.map(str::to_owned),
        };
        let frame = *self.frame_indexes.entry(frame).or_insert_with_key(|frame| {
            self.frames.push(frame.clone());
            self.frames.len() - 1
        });
        self.locations.push((frame, line, 0));
        let index = self.locations.len() - 1;
        self.location_indexes.insert(at.clone(), index);
        index
    }

    /// Name, kind, module and line of each frame; the line is that with most of its time.
    fn frames(&self) -> Vec<Value> {
        let mut lines: Vec<Option<(Ns, &str)>> = vec![None; self.frames.len()];
        for (frame, line, ns) in &self.locations {
            let line = line.as_deref().map(|line| (*ns, line));
            lines[*frame] = lines[*frame].max(line);
        }
        let frames = self.frames.iter().zip(lines);
        let frame = frames
            .map(|(f, line)| json!([f.name, f.kind.name(), f.module, line.map(|(_, line)| line)]));
        frame.collect()
    }
}

/// The locations of a sample on the page: a colour stands for its state, which has a frame only where
/// there is no other.
fn locations(sample: &PathSample) -> &[PathLocation] {
    match sample.path.split_last() {
        Some((state, rest)) if state.kind == LocationKind::State && !rest.is_empty() => rest,
        _ => &sample.path,
    }
}

/// The graph as the page has it, without a value for each number.
#[derive(Serialize)]
pub(super) struct Flame {
    states: [&'static str; 8],
    threads: Vec<FlameThread>,
    frames: Vec<Value>,
    /// The parent of each node, and its frame.
    parents: Vec<usize>,
    at: Vec<usize>,
    merged: usize,
}

/// A thread, with four numbers for each node where it has time: the node, the state, the time, the
/// count.
#[derive(Serialize)]
struct FlameThread {
    title: String,
    asleep: bool,
    times: Vec<u64>,
}

/// The whole time of all threads.
pub(super) fn flame(run: &Run) -> Flame {
    let mut tree = Tree {
        nodes: vec![(0, 0)],
        frames: vec![Frame {
            name: String::new(),
            kind: LocationKind::Rank,
            module: None,
        }],
        ..Tree::default()
    };
    let mut threads = Vec::new();
    let mut times = Vec::new();
    for profile in &run.profiles {
        let asleep = sleeping_threads(profile);
        for thread in of_all_time(profile) {
            let title = match run.profiles.len() {
                0 | 1 => thread.title(),
                _ => format!("{}: {}", profile.title(), thread.title()),
            };
            let mut rest = thread.wall(profile.data.at_ns);
            for sample in thread.samples.iter().filter(|s| s.ns > 0) {
                times.push(NodeTime {
                    thread: threads.len(),
                    node: tree.node(locations(sample), sample.ns),
                    state: State::of(sample),
                    ns: sample.ns,
                    count: sample.count,
                });
                rest = rest.saturating_sub(sample.ns);
            }
            if rest > 0 {
                times.push(NodeTime {
                    thread: threads.len(),
                    node: tree.node(&[pseudo("(not accounted for)")], rest),
                    state: State::Residual,
                    ns: rest,
                    count: 0,
                });
            }
            threads.push(FlameThread {
                title,
                asleep: asleep.contains(&thread.tid),
                times: Vec::new(),
            });
        }
    }
    let merged = merge_short(&mut tree, &mut times);
    for time in &times {
        let row = [time.node as u64, time.state as u64, time.ns, time.count];
        threads[time.thread].times.extend(row);
    }
    let frames = tree.frames();
    let (parents, at) = tree.nodes.into_iter().unzip();
    Flame {
        states: State::NAMES,
        threads,
        frames,
        parents,
        at,
        merged,
    }
}

/// A frame that is no place.
fn pseudo(name: &str) -> PathLocation {
    PathLocation::new(name, LocationKind::State)
}

/// Moves the shortest times, if there are too many, to a node of their own; and gives their number.
fn merge_short(tree: &mut Tree, times: &mut Vec<NodeTime>) -> usize {
    if times.len() <= PATHS {
        return 0;
    }
    times.sort_by_key(|time| std::cmp::Reverse(time.ns));
    let short = times.split_off(PATHS);
    let node = tree.node(&[pseudo("(short paths)")], 0);
    let mut sums: HashMap<(usize, usize), NodeTime> = HashMap::new();
    for time in &short {
        let key = (time.thread, time.state as usize);
        let sum = sums.entry(key).or_insert(NodeTime {
            node,
            ns: 0,
            count: 0,
            ..*time
        });
        sum.ns = sum.ns.saturating_add(time.ns);
        sum.count = sum.count.saturating_add(time.count);
    }
    times.extend(sums.into_values());
    times.sort_by_key(|time| (time.thread, time.node, time.state as usize));
    short.len()
}
