//! Several profiles of one run as one: sums by rank, node, thread, call and region; their
//! imbalance; the rank that the others wait for.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::model::{
    CallParts, CallTotals, Context, ContextKind, NodePages, Ns, Profile, ROOT, RecorderCost,
    Thread, TimePart,
};
use crate::regions::Region;
use crate::sleeping_threads::sleeping_threads;
use crate::summary_sums::{SummarySums, UnitSums};

/// The profiles of one run. Those of ranks are in the order of ranks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Run {
    /// One profile for each file.
    pub profiles: Vec<Profile>,
}

/// The sum of the time of some threads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TimeSum {
    /// Number of threads.
    pub threads: u64,
    /// Sum of their wall times.
    pub wall: Ns,
    /// Its parts, in the order of [`TimePart::ALL`].
    pub parts: [Ns; 8],
    /// Wall time in no part.
    pub residual: i64,
}

impl TimeSum {
    /// Adds the time of a thread.
    pub(crate) fn add(&mut self, thread: &Thread, at_ns: Ns) {
        self.threads += 1;
        add(&mut self.wall, thread.wall(at_ns));
        for (sum, part) in self.parts.iter_mut().zip(TimePart::ALL) {
            add(sum, part.time_in(&thread.parts));
        }
        self.residual = self.residual.saturating_add(thread.residual(at_ns));
    }

    /// Adds the time of other threads.
    pub(crate) fn join(&mut self, other: &TimeSum) {
        self.threads += other.threads;
        add(&mut self.wall, other.wall);
        for (sum, ns) in self.parts.iter_mut().zip(other.parts) {
            add(sum, ns);
        }
        self.residual = self.residual.saturating_add(other.residual);
    }

    /// The time of one part.
    pub fn part(&self, part: TimePart) -> Ns {
        self.parts[part as usize]
    }
}

/// A rank, a node or a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entity {
    /// The title: "rank 3", "node1", "4001 pi".
    pub title: String,
    /// The machine.
    pub host: String,
    /// From the start of its first thread to the end of its last.
    pub elapsed: Ns,
    /// The sum of its threads' time.
    pub sum: TimeSum,
    /// The work time ([`crate::regions::Waits`]) of its busiest thread, and that thread's id.
    pub busiest: (Ns, u32),
    /// The longest time that one of its threads was not blocked.
    pub active: Ns,
    /// Of a thread, see [`Thread::migrations`].
    pub migrations: Option<u64>,
    /// Of a thread, see [`Thread::node_pages`].
    pub node_pages: Option<NodePages>,
}

/// A group of calls with the same name or region.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallGroup {
    /// The name of the call or the region.
    pub name: String,
    /// Number of finished calls.
    pub count: u64,
    /// Their total time.
    pub total: Ns,
    /// The parts of [`CallGroup::time`], including unfinished calls.
    pub parts: CallParts,
    /// The shortest time.
    pub min: Ns,
    /// The longest time.
    pub max: Ns,
    /// Bytes moved.
    pub bytes: u64,
    /// Failures by name.
    pub errors: BTreeMap<String, u64>,
    /// As [`CallTotals::histogram`]; empty without one.
    pub histogram: Vec<u64>,
    /// Number of unfinished calls, and their time so far.
    pub unfinished: (u64, Ns),
    /// The time in each of [`Summary::units`].
    pub per_unit: Vec<Ns>,
    /// For a region, its time by call; for a call, its time by region.
    pub within: BTreeMap<String, Ns>,
}

impl CallGroup {
    /// Total time, including unfinished calls.
    pub fn time(&self) -> Ns {
        self.total.saturating_add(self.unfinished.1)
    }

    /// The longest time of a unit divided by the mean: 1 is even, the number of units is the worst.
    /// `None` where there is no time, or only one unit.
    pub fn imbalance(&self) -> Option<f64> {
        imbalance(&self.per_unit)
    }

    /// The name; for a region, without the enclosing regions.
    pub fn short(&self) -> &str {
        self.name.rsplit(WITHIN).next().unwrap_or_default()
    }

    /// Mean time of the finished calls.
    pub fn mean(&self) -> Ns {
        self.total.checked_div(self.count).unwrap_or(0)
    }

    /// Failures of all names.
    pub fn failures(&self) -> u64 {
        self.errors.values().fold(0, |a, b| a.saturating_add(*b))
    }

    /// The call or region with most of its time.
    pub fn longest_call(&self) -> &str {
        let longest = self.within.iter().max_by_key(|(_, ns)| **ns);
        longest.map_or("", |(name, _)| name)
    }

    /// Adds a row of calls of a unit, which belongs to `within`.
    pub(crate) fn add(&mut self, call: &CallTotals, unit: Option<usize>, within: &str) {
        self.add_times(self.count == 0, (call.count > 0).then_some(call.min));
        self.max = self.max.max(call.max);
        add(&mut self.count, call.count);
        add(&mut self.total, call.total);
        self.parts.add(&call.parts());
        add(&mut self.bytes, call.bytes);
        add_named(&mut self.errors, &call.errors);
        self.add_histogram(call.histogram.as_deref().unwrap_or(&[]));
        if let Some(ns) = call.unfinished {
            add(&mut self.unfinished.0, 1);
            add(&mut self.unfinished.1, ns);
        }
        if let Some(sum) = unit.and_then(|u| self.per_unit.get_mut(u)) {
            add(sum, call.time());
        }
        add_to(&mut self.within, within, call.time());
    }

    fn add_times(&mut self, first: bool, min: Option<Ns>) {
        if let Some(min) = min {
            self.min = if first { min } else { self.min.min(min) };
        }
    }

    fn add_histogram(&mut self, histogram: &[u64]) {
        if histogram.len() > self.histogram.len() {
            self.histogram.resize(histogram.len(), 0);
        }
        for (sum, n) in self.histogram.iter_mut().zip(histogram) {
            add(sum, *n);
        }
    }
}

impl UnitSums for CallGroup {
    fn per_unit(&mut self) -> &mut Vec<Ns> {
        &mut self.per_unit
    }

    fn join(&mut self, other: &CallGroup) {
        self.add_times(self.count == 0, (other.count > 0).then_some(other.min));
        self.max = self.max.max(other.max);
        add(&mut self.count, other.count);
        add(&mut self.total, other.total);
        self.parts.add(&other.parts);
        add(&mut self.bytes, other.bytes);
        add_named(&mut self.errors, &other.errors);
        self.add_histogram(&other.histogram);
        add(&mut self.unfinished.0, other.unfinished.0);
        add(&mut self.unfinished.1, other.unfinished.1);
        add_named(&mut self.within, &other.within);
    }
}

/// The maximum divided by the mean.
pub(crate) fn imbalance(times: &[Ns]) -> Option<f64> {
    let sum: f64 = times.iter().map(|ns| *ns as f64).sum();
    let most = times.iter().max().map_or(0.0, |ns| *ns as f64);
    (times.len() > 1 && sum > 0.0).then(|| most * times.len() as f64 / sum)
}

/// The processes of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamedProcesses {
    /// The name.
    pub name: String,
    /// Number of processes.
    pub processes: u64,
    /// Time during which at least one existed.
    pub wall: Ns,
    /// The sum of their threads' time.
    pub sum: TimeSum,
    /// Total wall time of the threads that only sleep.
    pub asleep: Ns,
    /// Processor time of all threads, including those that only sleep.
    pub on_cpu: Ns,
}

/// A thread that only sleeps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sleeper {
    /// The thread.
    pub unit: Entity,
    /// Number of its calls, including unfinished ones.
    pub calls: u64,
    /// The call with most of its time.
    pub mostly: String,
}

/// The content of reports about a run. Threads that only sleep ([`crate::sleeping_threads`]) are left out,
/// except in [`Summary::asleep`] and where noted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// The longest [`Entity::elapsed`] of a rank.
    pub elapsed: Ns,
    /// The sum of all threads except those that only sleep.
    pub total: TimeSum,
    /// Threads that only sleep, the longest-lived first.
    pub asleep: Vec<Sleeper>,
    /// The units of imbalance: ranks, or threads if there is only one profile.
    pub units: Vec<Entity>,
    /// Whether [`Summary::units`] are ranks.
    pub ranks: bool,
    /// By machine, in the order of names.
    pub nodes: Vec<Entity>,
    /// The threads; with several profiles their titles name the rank.
    pub threads: Vec<Entity>,
    /// Processes by name, if there are several processes (more than ranks, or of several names);
    /// most work first. All processes are included.
    pub programs: Vec<NamedProcesses>,
    /// Calls by name, the longest time first.
    pub calls: Vec<CallGroup>,
    /// Calls by region path, the longest time first, including calls outside of regions.
    pub regions: Vec<CallGroup>,
    /// Times in regions; empty where no times were counted.
    pub times: Vec<Region>,
    /// Whether work is the time outside of MPI calls.
    pub mpi: bool,
    /// Losses by reason.
    pub lost: BTreeMap<String, u64>,
}

impl Run {
    /// A run from its profiles.
    pub fn new(profiles: Vec<Profile>) -> Run {
        Run { profiles }
    }

    /// The start of the first recording in nanoseconds since 1970.
    pub fn origin(&self) -> u64 {
        let starts = self.profiles.iter().map(|p| p.header.started_unix_ns);
        starts.min().unwrap_or(0)
    }

    /// The total cost of the recordings themselves.
    pub fn recorder(&self) -> RecorderCost {
        let costs = self.profiles.iter().map(|p| p.data.recorder);
        costs.fold(RecorderCost::default(), |sum, r| RecorderCost {
            cpu: sum.cpu.saturating_add(r.cpu),
            displaced: sum.displaced.saturating_add(r.displaced),
        })
    }

    /// The reasons why regions are missing, if the options did not exclude them and the programs
    /// are likely to have some; without duplicates.
    pub fn regions_missing(&self) -> Vec<String> {
        let profiles = self.profiles.iter();
        let profiles = profiles.filter(|p| !p.header.regions_unlikely);
        let reasons: BTreeSet<String> = profiles.filter_map(Profile::regions_missing).collect();
        reasons.into_iter().collect()
    }

    /// Sums up the run; threads that only sleep are set apart.
    pub fn summary(&self) -> Summary {
        SummarySums::of_run(self, sleeping_threads)
    }

    /// Sums up all threads alike.
    pub fn summary_of_all(&self) -> Summary {
        SummarySums::of_run(self, |_| HashSet::new())
    }
}

/// Indexes of threads among those of a profile that do not only sleep.
pub(crate) fn locations(profile: &Profile, asleep: &HashSet<u32>) -> HashMap<u32, usize> {
    let threads = profile.data.threads.iter();
    let awake = threads.filter(|t| !asleep.contains(&t.tid));
    awake.enumerate().map(|(i, t)| (t.tid, i)).collect()
}

impl Summary {
    /// The unit that the others wait for: the one whose thread worked longest. Of units that differ
    /// by less than a twentieth it is the one that was blocked least, because units also wait for
    /// each other by other means than MPI and OpenMP. `None` if there is only one, or they are of
    /// different programs.
    pub fn critical(&self) -> Option<&Entity> {
        let longest = self.units.iter().map(|u| u.busiest.0).max().unwrap_or(0);
        let equal = |u: &&Entity| u.busiest.0 >= longest - longest / 20;
        // The first one of equal ones.
        let units = self.units.iter().rev().filter(equal);
        let unit = units.max_by_key(|u| u.active);
        unit.filter(|_| self.units.len() > 1 && longest > 0 && !self.are_unrelated())
    }

    /// Whether these are different programs, not known to be parts of one: then the imbalance of
    /// their threads means nothing.
    pub fn are_unrelated(&self) -> bool {
        !self.ranks && self.programs.len() > 1 && self.times.is_empty()
    }

    /// The most work of a unit divided by the mean, as in [`CallGroup::imbalance`].
    pub fn imbalance(&self) -> Option<f64> {
        let work: Vec<_> = self.units.iter().map(|u| u.busiest.0).collect();
        imbalance(&work)
    }

    /// Total time in calls.
    pub fn in_calls(&self) -> Ns {
        self.calls.iter().fold(0, |a, c| a.saturating_add(c.time()))
    }
}

/// Maximum depth of nested contexts; outer ones beyond it are ignored.
const DEEPEST: usize = 64;

/// Contexts of a profile by id.
#[derive(Debug)]
pub struct ContextIndex<'a>(HashMap<u32, &'a Context>);

impl<'a> ContextIndex<'a> {
    /// Indexes the contexts of a profile.
    pub fn new(profile: &'a Profile) -> ContextIndex<'a> {
        ContextIndex(profile.data.contexts.iter().map(|c| (c.id, c)).collect())
    }

    /// The row of that id.
    pub fn row(&self, id: u32) -> Option<&'a Context> {
        self.0.get(&id).copied()
    }

    /// Ids from the outermost context to that one, without [`ROOT`], with their rows.
    pub fn chain(&self, id: u32) -> Vec<(u32, Option<&'a Context>)> {
        let mut chain = Vec::new();
        // Rows come from outside and may form cycles.
        let mut seen = HashSet::new();
        let mut next = Some(id);
        while let Some(id) = next.filter(|id| *id != ROOT && seen.insert(*id)) {
            if chain.len() == DEEPEST {
                break;
            }
            let row = self.row(id);
            chain.push((id, row));
            next = row.and_then(|c| c.parent);
        }
        chain.reverse();
        chain
    }

    /// Labels from the outermost context to the one with that id; [`OUTSIDE`] for none.
    pub fn path(&self, id: u32) -> Vec<String> {
        let chain = self.chain(id).into_iter();
        let mut path: Vec<_> = chain.map(|(id, row)| label(id, row)).collect();
        if path.is_empty() {
            path.push(OUTSIDE.to_owned());
        }
        path
    }
}

/// The separator between the labels of a region and of an inner region.
pub const WITHIN: &str = " > ";

/// The label of time outside of regions.
pub const OUTSIDE: &str = "outside of regions";

/// The library's names of the waits of OpenMP (docs/profile-context.md).
const WAITS: [&str; 14] = [
    "atomic",
    "barrier",
    "copyprivate",
    "critical",
    "implicit barrier",
    "ordered",
    "reduction",
    "task",
    "taskgroup",
    "taskloop",
    "taskwait",
    "teams barrier",
    "single",
    "wait",
];

/// The name of a region without its location: "barrier of main", "taskwait".
pub fn region_name(id: u32, context: Option<&Context>) -> String {
    let Some(context) = context else {
        return format!("context {id}");
    };
    let kind = match context.kind {
        // Without symbols, its name is its kind.
        ContextKind::OmpRegion if context.name == "parallel" => "",
        ContextKind::OmpTask if context.name == "task" => "",
        ContextKind::OmpRegion => "parallel ",
        // A wait for anything but a region's end has a name of its own.
        ContextKind::OmpBarrier if WAITS.contains(&&*context.name) => "",
        ContextKind::OmpBarrier => "barrier of ",
        ContextKind::OmpTask => "task ",
        ContextKind::Root | ContextKind::Mpi | ContextKind::Mark => "",
    };
    format!("{kind}{}", context.name)
}

/// Whether a region is a barrier of OpenMP, and no other of its waits.
pub(crate) fn is_barrier(context: &Context) -> bool {
    let name = &*context.name;
    context.kind == ContextKind::OmpBarrier && (name.contains("barrier") || !WAITS.contains(&name))
}

/// The function in the label of a parallel region, if it has a name.
pub(crate) fn function_of_parallel(label: &str) -> Option<&str> {
    let function = label.strip_prefix("parallel ")?.split(" (").next()?;
    (!function.starts_with('(')).then_some(function)
}

/// The label of a region with the last component of its file: "barrier of main (pi.c:21)",
/// "taskwait (libpi.so+0x1234)".
pub fn label(id: u32, context: Option<&Context>) -> String {
    let mut text = region_name(id, context);
    if let Some(location) = context.and_then(location_of) {
        text += &format!(" ({location})");
    }
    text
}

/// The location of a region: in the source, or in the program where lines are unknown.
fn location_of(context: &Context) -> Option<String> {
    let file = context.file.as_deref().map(last);
    match (
        file,
        context.line,
        context.module.as_deref(),
        context.address,
    ) {
        (Some(file), Some(line), ..) => Some(format!("{file}:{line}")),
        (_, _, Some(module), Some(address)) => Some(format!("{}+{address:#x}", last(module))),
        (Some(file), ..) => Some(file.to_owned()),
        (None, _, Some(module), None) => Some(last(module).to_owned()),
        (None, _, None, Some(address)) => Some(format!("{address:#x}")),
        (None, _, None, None) => None,
    }
}

/// The last component of a path.
pub(crate) fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Files can contain any numbers, so sums saturate.
pub(crate) fn add(sum: &mut u64, n: u64) {
    *sum = sum.saturating_add(n);
}

/// Adds to the number of that name.
pub(crate) fn add_to(sums: &mut BTreeMap<String, u64>, name: &str, n: u64) {
    match sums.get_mut(name) {
        Some(sum) => add(sum, n),
        None => {
            sums.insert(name.to_owned(), n);
        }
    }
}

/// Adds numbers by name.
pub(crate) fn add_named(sums: &mut BTreeMap<String, u64>, other: &BTreeMap<String, u64>) {
    for (name, n) in other {
        add_to(sums, name, *n);
    }
}

impl Profile {
    /// Why regions of the command, or of some of its programs, are missing; `None` if none are, or
    /// if the options excluded them.
    pub fn regions_missing(&self) -> Option<String> {
        /// Number of programs that are named.
        const MOST: usize = 5;
        let header = &self.header;
        if header.options.no_regions || header.regions_missing.is_some() {
            return header.regions_missing.clone();
        }
        let processes = self.data.processes.iter().filter(|p| p.linked_statically);
        let mut programs: BTreeMap<&str, u32> = BTreeMap::new();
        for process in processes {
            programs.entry(&process.comm).or_insert(process.pid);
        }
        let named = programs.iter().take(MOST);
        let mut named: Vec<String> = named
            .map(|(name, pid)| format!("{name} (process {pid})"))
            .collect();
        if programs.len() > MOST {
            named.push(format!("{} more programs", programs.len() - MOST));
        }
        let is = match named.len() {
            0 => return None,
            1 => "it is",
            _ => "they are",
        };
        Some(format!(
            "regions of OpenMP, calls of MPI, named regions of {}: {is} linked statically, so no library can be \
             loaded; link without -static",
            named.join(", ")
        ))
    }
}
