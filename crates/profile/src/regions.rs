//! Times in regions: sums by region path, and the time that each thread did not wait for others.

use std::collections::{BTreeMap, HashMap};

use crate::model::{ContextKind, Ns, Profile, ROOT, Thread, TimePart, TimeParts, difference};
use crate::run::{ContextIndex, WITHIN, add_named, add_to, imbalance, locations};
use crate::summary_sums::{Member, UnitSums, join_named};

/// A region with its path: the time of all threads in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Region {
    /// Labels from the outermost region to this one.
    pub name: String,
    /// Number of entries by threads.
    pub entries: u64,
    /// Wall time in it, including inner regions.
    pub inclusive: Ns,
    /// Wall time in it, excluding inner regions.
    pub exclusive: Ns,
    /// The parts of its exclusive time.
    pub parts: TimeParts,
    /// Its exclusive time in each of [`crate::run::Summary::units`].
    pub per_unit: Vec<Ns>,
    /// Its time in system calls, by name.
    pub calls: BTreeMap<String, Ns>,
}

impl Region {
    /// Its exclusive time in no part; negative where parts overlap.
    pub fn residual(&self) -> i64 {
        difference(self.exclusive, self.parts.sum())
    }

    /// The longest time of a unit divided by the mean, as in [`crate::run::CallGroup::imbalance`].
    pub fn imbalance(&self) -> Option<f64> {
        imbalance(&self.per_unit)
    }

    /// The name without the enclosing regions.
    pub fn short(&self) -> &str {
        self.name.rsplit(WITHIN).next().unwrap_or_default()
    }

    /// The system call with most of the time; "" for none.
    pub fn longest_call(&self) -> &str {
        let longest = self.calls.iter().max_by_key(|(_, ns)| **ns);
        longest.map_or("", |(name, _)| name)
    }
}

impl UnitSums for Region {
    fn per_unit(&mut self) -> &mut Vec<Ns> {
        &mut self.per_unit
    }

    fn join(&mut self, other: &Region) {
        self.entries = self.entries.saturating_add(other.entries);
        self.exclusive = self.exclusive.saturating_add(other.exclusive);
        self.parts.add(&other.parts);
        add_named(&mut self.calls, &other.calls);
    }
}

/// The times of a profile in regions, by name, without the inclusive times, and the time outside of all. `units`
/// is the number of units: threads for a single profile, otherwise 1.
pub(crate) fn regions(member: &Member<'_>, units: usize) -> HashMap<String, Region> {
    let (profile, asleep) = (member.profile, member.asleep);
    let mut regions: HashMap<u32, Region> = HashMap::new();
    let contexts = ContextIndex::new(profile);
    let locations = locations(profile, asleep);
    let unit = |tid: u32| match member.ranks() {
        true => Some(0),
        false => locations.get(&tid).copied(),
    };
    let mut add = |tid: u32, context: u32, entries: u64, wall: Ns, parts: &TimeParts| {
        let region = regions.entry(context).or_insert_with(|| Region {
            name: contexts.path(context).join(WITHIN),
            per_unit: vec![0; units],
            ..Region::default()
        });
        region.entries = region.entries.saturating_add(entries);
        region.exclusive = region.exclusive.saturating_add(wall);
        region.parts.add(parts);
        if let Some(sum) = unit(tid).and_then(|u| region.per_unit.get_mut(u)) {
            *sum = sum.saturating_add(wall);
        }
    };
    let mut rest: HashMap<u32, (Ns, TimeParts)> = HashMap::new();
    let threads = profile.data.threads.iter();
    for thread in threads.filter(|t| !asleep.contains(&t.tid)) {
        let wall = thread.wall(profile.data.at_ns);
        rest.insert(thread.tid, (wall, thread.parts));
    }
    for time in &profile.data.context_times {
        add(time.tid, time.context, time.entries, time.wall, &time.parts);
        if let Some((wall, parts)) = rest.get_mut(&time.tid) {
            *wall = wall.saturating_sub(time.wall);
            parts.subtract(&time.parts);
        }
    }
    for (tid, (wall, parts)) in rest {
        add(tid, ROOT, 0, wall, &parts);
    }
    let calls = profile.data.calls.iter();
    for call in calls.filter(|c| !asleep.contains(&c.tid)) {
        if let Some(region) = regions.get_mut(&call.context) {
            add_to(&mut region.calls, &call.call, call.time());
        }
    }
    let mut named: HashMap<String, Region> = HashMap::new();
    // Contexts can have the same name.
    for region in regions.into_values() {
        let one = HashMap::from([(region.name.clone(), region)]);
        join_named(&mut named, one, 0, 1);
    }
    named
}

/// Regions with their inclusive times, the longest exclusive time first.
pub(crate) fn sorted(regions: HashMap<String, Region>) -> Vec<Region> {
    let mut regions: Vec<Region> = regions.into_values().collect();
    regions.sort_by(|a, b| (b.exclusive, &a.name).cmp(&(a.exclusive, &b.name)));
    include(&mut regions);
    regions
}

/// Adds inner regions to the inclusive times.
fn include(regions: &mut [Region]) {
    let mut inclusive: HashMap<String, Ns> = HashMap::new();
    for region in regions.iter() {
        // Each enclosing region, and the region itself: its name is a prefix of the inner ones'.
        let ends = region.name.match_indices(WITHIN).map(|(end, _)| end);
        for end in ends.chain([region.name.len()]) {
            let sum = inclusive.entry(region.name[..end].to_owned()).or_default();
            *sum = sum.saturating_add(region.exclusive);
        }
    }
    for region in regions {
        region.inclusive = inclusive.get(&region.name).copied().unwrap_or(0);
    }
}

impl TimeParts {
    fn change_each(&mut self, other: &TimeParts, change: impl Fn(u64, u64) -> u64) {
        for (to, from) in [
            (&mut self.user, other.user),
            (&mut self.syscall_cpu, other.syscall_cpu),
            (&mut self.blocked, other.blocked),
            (&mut self.runnable, other.runnable),
            (&mut self.fault_minor.count, other.fault_minor.count),
            (&mut self.fault_minor.ns, other.fault_minor.ns),
            (&mut self.fault_major.count, other.fault_major.count),
            (&mut self.fault_major.ns, other.fault_major.ns),
            (&mut self.irq.count, other.irq.count),
            (&mut self.irq.ns, other.irq.ns),
            (&mut self.softirq.count, other.softirq.count),
            (&mut self.softirq.ns, other.softirq.ns),
        ] {
            *to = change(*to, from);
        }
    }

    /// Adds other parts.
    pub fn add(&mut self, other: &TimeParts) {
        self.change_each(other, u64::saturating_add);
    }

    /// Subtracts other parts.
    pub fn subtract(&mut self, other: &TimeParts) {
        self.change_each(other, u64::saturating_sub);
    }
}

/// The time that the threads of a profile waited for others.
#[derive(Debug, Default)]
pub struct Waits {
    /// By thread: time in MPI calls, and waiting for threads of OpenMP. Threads without either have
    /// no entry.
    waits: HashMap<u32, (Ns, Ns)>,
    /// Whether any thread called MPI.
    mpi: bool,
}

impl Waits {
    /// Sums up the waits of a profile.
    pub fn new(profile: &Profile) -> Waits {
        let contexts = ContextIndex::new(profile);
        let mut out = Waits::default();
        for time in &profile.data.context_times {
            let chain = contexts.chain(time.context);
            let kinds = || chain.iter().filter_map(|(_, row)| Some(row.as_ref()?.kind));
            let is = |kind| kinds().any(|k| k == kind);
            let parallel = |k| !matches!(k, ContextKind::Mark | ContextKind::Root);
            if !kinds().any(parallel) {
                continue;
            }
            let (mpi, openmp) = out.waits.entry(time.tid).or_default();
            // The innermost region counts: a task that runs while its thread waits is work.
            if is(ContextKind::Mpi) {
                *mpi = mpi.saturating_add(time.wall);
                out.mpi = true;
            } else if is(ContextKind::OmpBarrier) {
                *openmp = openmp.saturating_add(time.wall);
            }
        }
        out
    }

    /// Whether threads called MPI, so that time outside of its calls is work.
    pub fn mpi(&self) -> bool {
        self.mpi
    }

    /// The work time of a thread with this wall time. For threads of MPI or OpenMP it is the time
    /// not spent waiting there, because others wait meanwhile, whatever the thread does. For other
    /// threads it is the time not blocked.
    pub fn work(&self, thread: &Thread, wall: Ns) -> Ns {
        match self.waits.get(&thread.tid) {
            Some((mpi, openmp)) => wall.saturating_sub(*mpi).saturating_sub(*openmp),
            None => wall.saturating_sub(TimePart::Blocked.time_in(&thread.parts)),
        }
    }

    /// The work time of a thread for its rank. For a thread that calls MPI it is the time outside
    /// of these calls, including waits for threads of its own rank.
    pub fn work_of_rank(&self, thread: &Thread, wall: Ns) -> Ns {
        match self.waits.get(&thread.tid) {
            Some((mpi, _)) if self.mpi && *mpi > 0 => wall.saturating_sub(*mpi),
            _ if self.mpi => 0,
            _ => self.work(thread, wall),
        }
    }
}
