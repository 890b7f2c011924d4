//! Call paths: the locations in the program where each thread's time was spent, as lists of locations
//! and as trees. Without samples they are those of system calls.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use crate::model::{
    CallTotals, Context, ContextKind, Frame, Ns, Profile, Stack, StackFrame, Thread, TimePart,
    thread_title,
};
use crate::run::{ContextIndex, Run, is_barrier, label, last};
use crate::samples;
use crate::waits::WaitKind;

/// Maximum number of frames of a path, counted from the call: the kernel's stacks have half as
/// many, and files can come from outside.
pub(crate) const DEEPEST: usize = 256;

/// Libraries whose functions are on the path of every system call; their lines carry no
/// information.
const LIBRARIES: [&str; 4] = ["libc.so", "libpthread", "ld-linux", "ld-musl"];

/// Those of OpenMP, on the path of its waits.
const OPENMP: [&str; 3] = ["libgomp", "libomp", "libiomp"];

/// A location on the way to a system call, with its file, line and module if known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PathLocation {
    /// Its kind.
    pub kind: LocationKind,
    /// Its name and place: that of a function's frame, shared with the stacks.
    pub frame: Frame,
}

impl Deref for PathLocation {
    type Target = StackFrame;

    fn deref(&self) -> &StackFrame {
        &self.frame
    }
}

/// The order of names.
impl Ord for PathLocation {
    fn cmp(&self, other: &PathLocation) -> Ordering {
        fn key(at: &PathLocation) -> impl Ord {
            (&at.function, at.kind, &at.file, at.line, &at.module)
        }
        // Paths mostly share their frames.
        match self.kind == other.kind && Arc::ptr_eq(&self.frame, &other.frame) {
            true => Ordering::Equal,
            false => key(self).cmp(&key(other)),
        }
    }
}

impl PartialOrd for PathLocation {
    fn partial_cmp(&self, other: &PathLocation) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PathLocation {
    /// A location of which only the name is known.
    pub fn new(name: impl Into<String>, kind: LocationKind) -> PathLocation {
        let frame = StackFrame {
            function: name.into(),
            ..StackFrame::default()
        };
        PathLocation {
            kind,
            frame: frame.into(),
        }
    }

    /// Its name in reports.
    pub fn name(&self) -> &str {
        &self.function
    }

    /// Its name in graphs; without a symbol, the address in its file.
    pub(crate) fn shown(&self) -> Cow<'_, str> {
        match (self.name(), &self.module) {
            ("", _) => "?".into(),
            (name, Some(module)) if name.starts_with("0x") => {
                format!("{}+{name}", last(module)).into()
            }
            (name, _) => name.into(),
        }
    }

    /// The last component of its file, and the line.
    pub(crate) fn file_and_line(&self) -> Option<String> {
        Some(format!("{}:{}", last(self.file.as_deref()?), self.line?))
    }
}

impl StackFrame {
    /// Whether it is in a library of the system or of OpenMP, whose functions say little.
    pub fn in_library(&self) -> bool {
        self.is_in(&LIBRARIES) || self.is_in(&OPENMP)
    }

    /// Its function, with the last component of its file and the line if they are known: "update (lock.c:21)".
    pub fn function_and_line(&self) -> String {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("{} ({}:{line})", self.function, last(file)),
            _ => self.function.clone(),
        }
    }

    fn is_in(&self, libraries: &[&str]) -> bool {
        let module = self.module.as_deref().unwrap_or_default();
        libraries.iter().any(|library| module.starts_with(library))
    }
}

/// The kind of a [`PathLocation`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LocationKind {
    /// A rank or process.
    Rank,
    /// A thread.
    Thread,
    /// A context: region, barrier, MPI call, mark.
    Region,
    /// A function of the program.
    Function,
    /// The system call.
    #[default]
    Call,
    /// A function of the kernel.
    Kernel,
    /// What a thread did there, where that is no function: it was blocked, for example.
    State,
}

impl LocationKind {
    /// Its name in formats that have types of locations.
    pub fn name(self) -> &'static str {
        match self {
            LocationKind::Rank => "rank",
            LocationKind::Thread => "thread",
            LocationKind::Region => "region",
            LocationKind::Function => "function",
            LocationKind::Call => "syscall",
            LocationKind::Kernel => "kernel",
            LocationKind::State => "state",
        }
    }
}

/// The time of one thread on one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathSample {
    /// From the outermost region to the innermost location.
    pub path: Vec<PathLocation>,
    /// The part of the thread's time. `None` without samples: then it is the time of whole calls,
    /// or that of a region outside of calls.
    pub part: Option<TimePart>,
    /// What the thread waited for there: at a barrier and in MPI also on the processor.
    pub wait: Option<WaitKind>,
    /// The address of the futex that the thread waited for.
    pub futex: Option<u64>,
    /// What it waited for, see [`crate::model::Sample::object`].
    pub object: Option<String>,
    /// Number of calls, including the unfinished one; entries of a region; samples elsewhere.
    pub count: u64,
    /// Total time.
    pub ns: Ns,
}

impl PathSample {
    /// The innermost region.
    pub(crate) fn region(&self) -> Option<String> {
        let mut regions = self
            .path
            .iter()
            .rev()
            .filter(|at| at.kind == LocationKind::Region);
        regions.next().map(|at| at.name().to_owned())
    }

    /// The program or library of the innermost function outside of the system's libraries.
    pub(crate) fn inner_module(&self) -> Option<String> {
        let mut path = self.path.iter().rev();
        let inner = path.find(|at| at.kind == LocationKind::Function && !at.is_in(&LIBRARIES))?;
        inner.module.clone()
    }

    /// Whether the sample is of calls.
    pub fn is_call(&self) -> bool {
        self.path.iter().any(|at| at.kind == LocationKind::Call)
    }
}

/// A thread's time by path.
#[derive(Debug, Clone)]
pub struct ThreadPaths<'a> {
    /// The thread; `None` if the profile has calls of a thread without a row.
    pub thread: Option<&'a Thread>,
    /// Its id.
    pub tid: u32,
    /// Paths in the order of names, without duplicates.
    pub samples: Vec<PathSample>,
}

impl ThreadPaths<'_> {
    /// The title, for example "4001 pi".
    pub fn title(&self) -> String {
        thread_title(self.tid, self.thread)
    }

    /// The wall time; that of the calls if it is longer or the only one.
    pub fn wall(&self, at_ns: Ns) -> Ns {
        let calls = self.samples.iter().map(|s| s.ns);
        let calls = calls.fold(0, Ns::saturating_add);
        self.thread.map_or(0, |t| t.wall(at_ns)).max(calls)
    }
}

/// The paths of all threads of a profile, in the order of their numbers: of all their time if they
/// were sampled, otherwise of their calls.
pub fn threads(profile: &Profile) -> Vec<ThreadPaths<'_>> {
    let paths = match profile.header.options.samples {
        Some(_) => samples::paths(profile),
        None => of_calls(profile),
    };
    by_thread(profile, paths)
}

/// The paths of all time of all threads, sampled or not, in the order of their numbers. Without samples,
/// the times blocked in calls are divided by the stacks of these calls, if these were recorded.
pub(crate) fn of_all_time(profile: &Profile) -> Vec<ThreadPaths<'_>> {
    by_thread(profile, samples::paths(profile))
}

/// The paths of the calls of all threads, in the order of their numbers.
pub fn calls(profile: &Profile) -> Vec<ThreadPaths<'_>> {
    by_thread(profile, of_calls(profile))
}

fn by_thread(profile: &Profile, mut paths: HashMap<u32, Vec<PathSample>>) -> Vec<ThreadPaths<'_>> {
    let threads = &profile.data.threads;
    let rows: HashMap<u32, &Thread> = threads.iter().map(|t| (t.tid, t)).collect();
    let mut tids: Vec<u32> = rows.keys().chain(paths.keys()).copied().collect();
    tids.sort_unstable();
    tids.dedup();
    let paths_of = |tid: u32| ThreadPaths {
        thread: rows.get(&tid).copied(),
        tid,
        samples: merged(paths.remove(&tid).unwrap_or_default()),
    };
    tids.into_iter().map(paths_of).collect()
}

/// Samples with the same path as one, in the order of paths.
fn merged(mut samples: Vec<PathSample>) -> Vec<PathSample> {
    samples.sort_by(|a, b| (&a.path, &a.object, a.futex).cmp(&(&b.path, &b.object, b.futex)));
    samples.dedup_by(|next, sum| {
        let same = next.path == sum.path && next.object == sum.object && next.futex == sum.futex;
        if same {
            sum.count = sum.count.saturating_add(next.count);
            sum.ns = sum.ns.saturating_add(next.ns);
        }
        same
    });
    samples
}

/// The paths of system calls, by their threads' ids.
fn of_calls(profile: &Profile) -> HashMap<u32, Vec<PathSample>> {
    let mut locations = Locations::new(profile);
    let data = &profile.data;
    let mut stacks: HashMap<(u32, u32, &str), Vec<&Stack>> = HashMap::new();
    for stack in &data.stacks {
        let key = (stack.tid, stack.context, stack.call.as_str());
        stacks.entry(key).or_default().push(stack);
    }
    let mut by_thread: HashMap<u32, Vec<PathSample>> = HashMap::new();
    let mut add = |tid: u32, path: Vec<PathLocation>, count: u64, ns: Ns| {
        let sample = PathSample {
            path,
            part: None,
            wait: None,
            futex: None,
            object: None,
            count,
            ns,
        };
        by_thread.entry(tid).or_default().push(sample);
    };
    let mut in_calls: HashMap<(u32, u32), Ns> = HashMap::new();
    for call in &data.calls {
        let sum = in_calls.entry((call.tid, call.context)).or_default();
        *sum = sum.saturating_add(call.time());
        let key = (call.tid, call.context, call.call.as_str());
        // Of two rows with one key the first has the stacks.
        let stacks = stacks.remove(&key).unwrap_or_default();
        for (path, count, ns) in split(call, &stacks, &mut locations) {
            add(call.tid, path, count, ns);
        }
    }
    // Time of a region outside of its calls ends at the region itself.
    for time in &data.context_times {
        let calls = in_calls.get(&(time.tid, time.context)).copied();
        let path = locations.region(time.context).to_vec();
        if !path.is_empty() {
            let outside_calls = time.wall.saturating_sub(calls.unwrap_or(0));
            add(time.tid, path, time.entries, outside_calls);
        }
    }
    by_thread
}

/// Splits a row of calls into a path for each stack, and one for calls without a stack.
fn split<'a>(
    call: &'a CallTotals,
    stacks: &[&Stack],
    locations: &mut Locations<'a>,
) -> Vec<(Vec<PathLocation>, u64, Ns)> {
    let start = locations.region(call.context).to_vec();
    let end = locations.call(&call.call);
    let mut out = Vec::new();
    let unfinished = u64::from(call.unfinished.is_some());
    let mut rest = (call.count.saturating_add(unfinished), call.time());
    for stack in stacks {
        let mut path = start.clone();
        path.extend(functions(&stack.frames, LocationKind::Function));
        path.push(end.clone());
        let (count, ns) = (stack.count.min(rest.0), stack.ns.min(rest.1));
        rest = (rest.0 - count, rest.1 - ns);
        out.push((path, count, ns));
    }
    if rest != (0, 0) || out.is_empty() {
        let mut path = start;
        path.push(end);
        out.push((path, rest.0, rest.1));
    }
    out
}

/// The location of a frame in the program or the kernel.
pub(crate) fn function(frame: &Frame, kind: LocationKind) -> PathLocation {
    PathLocation {
        kind,
        frame: Arc::clone(frame),
    }
}

/// The locations of frames, from the outermost.
pub(crate) fn functions(
    frames: &[Frame],
    kind: LocationKind,
) -> impl Iterator<Item = PathLocation> {
    let frames = &frames[..frames.len().min(DEEPEST)];
    frames.iter().rev().map(move |f| function(f, kind))
}

/// The locations in a profile that are no functions. Each is made once, because most paths have some.
pub(crate) struct Locations<'a> {
    contexts: ContextIndex<'a>,
    regions: HashMap<u32, Vec<PathLocation>>,
    calls: HashMap<&'a str, PathLocation>,
    states: [PathLocation; 8],
}

impl<'a> Locations<'a> {
    pub(crate) fn new(profile: &'a Profile) -> Locations<'a> {
        let state =
            |part: TimePart| PathLocation::new(format!("({})", part.name()), LocationKind::State);
        Locations {
            contexts: ContextIndex::new(profile),
            regions: HashMap::new(),
            calls: HashMap::new(),
            states: TimePart::ALL.map(state),
        }
    }

    /// The regions around this context, and its own; none outside of regions.
    pub(crate) fn region(&mut self, id: u32) -> &[PathLocation] {
        let regions = self.regions.entry(id);
        regions.or_insert_with(|| self.contexts.locations(id))
    }

    /// What threads wait for in a context of this id.
    pub(crate) fn wait(&self, id: u32) -> Option<WaitKind> {
        match self.contexts.row(id)? {
            row if row.kind == ContextKind::Mpi => Some(WaitKind::Mpi),
            row => is_barrier(row).then_some(WaitKind::Barrier),
        }
    }

    /// The system call of that name.
    pub(crate) fn call(&mut self, name: &'a str) -> PathLocation {
        let call = self.calls.entry(name);
        call.or_insert_with(|| PathLocation::new(name, LocationKind::Call))
            .clone()
    }

    /// The last location of a path whose time has no name in the program.
    pub(crate) fn state(&self, part: TimePart) -> PathLocation {
        self.states[part as usize].clone()
    }
}

impl ContextIndex<'_> {
    /// Like [`ContextIndex::path`]; empty outside of regions.
    fn locations(&self, id: u32) -> Vec<PathLocation> {
        let location = |(id, row): (u32, Option<&Context>)| {
            let frame = StackFrame {
                function: label(id, row),
                file: row.and_then(|r| r.file.clone()),
                line: row.and_then(|r| r.line),
                module: row.and_then(|r| Some(last(r.module.as_deref()?).to_owned())),
            };
            function(&frame.into(), LocationKind::Region)
        };
        self.chain(id).into_iter().map(location).collect()
    }
}

/// A location and its children.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// The location.
    pub location: PathLocation,
    /// Number of calls at this location, which is the call or ends their path.
    pub count: u64,
    /// Time at this location itself.
    pub exclusive: Ns,
    /// Time including all descendants.
    pub inclusive: Ns,
    /// The children, in the order of names.
    pub children: Vec<Node>,
}

impl Node {
    /// A tree of the samples of a thread, under a root of its own.
    pub fn from_samples(root: PathLocation, samples: &[PathSample]) -> Node {
        let mut node = Node {
            location: root,
            ..Node::default()
        };
        for sample in samples {
            node.add(&sample.path, sample.count, sample.ns);
        }
        node
    }

    fn add(&mut self, path: &[PathLocation], count: u64, ns: Ns) {
        self.inclusive = self.inclusive.saturating_add(ns);
        let Some((first, rest)) = path.split_first() else {
            self.count = self.count.saturating_add(count);
            self.exclusive = self.exclusive.saturating_add(ns);
            return;
        };
        let index = match self.children.binary_search_by(|c| c.location.cmp(first)) {
            Ok(index) => index,
            Err(index) => {
                let child = Node {
                    location: first.clone(),
                    ..Node::default()
                };
                self.children.insert(index, child);
                index
            }
        };
        let child = &mut self.children[index];
        if child.location.kind == LocationKind::Call && !rest.is_empty() {
            child.count = child.count.saturating_add(count);
            child.add(rest, 0, ns);
        } else {
            child.add(rest, count, ns);
        }
    }

    /// Raises the inclusive time to `ns`, which adds the time outside of all calls.
    fn fill(&mut self, ns: Ns) {
        if let Some(more) = ns.checked_sub(self.inclusive) {
            self.inclusive = ns;
            self.exclusive = self.exclusive.saturating_add(more);
        }
    }
}

/// A tree for each profile: the rank, its threads with their wall time, their calls.
pub fn trees(run: &Run) -> Vec<Node> {
    let tree = |profile: &Profile| {
        let mut root = Node {
            location: PathLocation::new(profile.title(), LocationKind::Rank),
            ..Node::default()
        };
        for thread in threads(profile) {
            let mut node = Node::from_samples(
                PathLocation::new(thread.title(), LocationKind::Thread),
                &thread.samples,
            );
            node.fill(thread.wall(profile.data.at_ns));
            node.count = 1;
            root.inclusive = root.inclusive.saturating_add(node.inclusive);
            root.children.push(node);
        }
        root
    };
    run.profiles.iter().map(tree).collect()
}
