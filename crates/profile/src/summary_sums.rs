//! The sums of a [`Summary`], profile by profile: those of one are added to those of the others, in any order. So the
//! profiles of a large run need not be in memory together.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::mem::take;

use crate::model::{Ns, Profile, Thread, TimePart};
use crate::regions::{self, Region, Waits};
use crate::run::{
    CallGroup, ContextIndex, Entity, NamedProcesses, Run, Sleeper, Summary, TimeSum, WITHIN, add,
    add_named, locations,
};
use crate::sleeping_threads::on_a_cpu;

/// A profile among those of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member<'a> {
    pub(crate) profile: &'a Profile,
    /// Its place in the order of ranks.
    pub(crate) number: usize,
    /// Number of profiles of the run.
    pub(crate) count: usize,
    /// Threads that are set apart.
    pub(crate) asleep: &'a HashSet<u32>,
}

impl Member<'_> {
    /// Whether imbalance is that of ranks, not of threads.
    pub(crate) fn ranks(&self) -> bool {
        self.count > 1
    }
}

/// A sum with times by unit. That of a profile among several has one time, which is its own.
pub(crate) trait UnitSums: Sized {
    /// The times by unit.
    fn per_unit(&mut self) -> &mut Vec<Ns>;

    /// Adds another sum, without the times by unit.
    fn join(&mut self, other: &Self);
}

/// Adds the sums of the profile of that number, of `count`.
pub(crate) fn join_named<G: UnitSums>(
    sums: &mut HashMap<String, G>,
    other: HashMap<String, G>,
    number: usize,
    count: usize,
) {
    for (name, mut group) in other {
        let times = take(group.per_unit());
        let sum = match sums.get_mut(&name) {
            Some(sum) => {
                sum.join(&group);
                sum
            }
            None => {
                *group.per_unit() = vec![0; if count > 1 { count } else { times.len() }];
                sums.entry(name).or_insert(group)
            }
        };
        let units = sum.per_unit().get_mut(number..).unwrap_or_default();
        for (sum, ns) in units.iter_mut().zip(times) {
            add(sum, ns);
        }
    }
}

/// The processes of a name, and the intervals in which they existed, in nanoseconds since 1970.
#[derive(Debug, Default)]
struct Program {
    sums: NamedProcesses,
    lives: Vec<(u128, u128)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SummarySums {
    /// Number of profiles of the run.
    count: usize,
    elapsed: Ns,
    total: TimeSum,
    /// By number of the profile, like the two below.
    ranks: Vec<(usize, Entity)>,
    threads: Vec<(usize, Vec<Entity>)>,
    asleep: Vec<(usize, Vec<Sleeper>)>,
    nodes: BTreeMap<String, Entity>,
    programs: BTreeMap<String, Program>,
    calls: HashMap<String, CallGroup>,
    regions: HashMap<String, CallGroup>,
    times: HashMap<String, Region>,
    /// Whether times in regions were counted.
    timed: bool,
    mpi: bool,
    lost: BTreeMap<String, u64>,
}

impl SummarySums {
    /// The summary of a run, without the threads that `asleep` gives for a profile.
    pub(crate) fn of_run(run: &Run, asleep: impl Fn(&Profile) -> HashSet<u32>) -> Summary {
        let count = run.profiles.len();
        let mut sums = SummarySums {
            count,
            ..SummarySums::default()
        };
        for (number, profile) in run.profiles.iter().enumerate() {
            let asleep = &asleep(profile);
            let member = Member {
                profile,
                number,
                count,
                asleep,
            };
            sums.join(SummarySums::of(&member), number);
        }
        sums.finish()
    }

    /// The sums of one profile.
    pub(crate) fn of(member: &Member<'_>) -> SummarySums {
        let profile = member.profile;
        let mut out = SummarySums {
            count: member.count,
            timed: !profile.data.context_times.is_empty(),
            lost: profile.data.lost.clone(),
            ..SummarySums::default()
        };
        out.units(member);
        out.asleep.push((member.number, sleepers(member)));
        out.programs(member);
        let units = match member.ranks() {
            true => 1,
            false => out.threads.iter().map(|(_, threads)| threads.len()).sum(),
        };
        out.calls(member, units);
        out.times = regions::regions(member, units);
        out
    }

    /// Adds the sums of the profile of that number.
    pub(crate) fn join(&mut self, other: SummarySums, number: usize) {
        self.count = self.count.max(other.count);
        self.elapsed = self.elapsed.max(other.elapsed);
        self.total.join(&other.total);
        self.ranks.extend(other.ranks);
        self.threads.extend(other.threads);
        self.asleep.extend(other.asleep);
        for (host, node) in other.nodes {
            let sum = self.nodes.entry(host).or_insert_with(|| Entity {
                title: node.title.clone(),
                host: node.host.clone(),
                ..Entity::default()
            });
            sum.sum.join(&node.sum);
            sum.elapsed = sum.elapsed.max(node.elapsed);
            sum.busiest = sum.busiest.max(node.busiest);
        }
        for (name, program) in other.programs {
            let sum = self.programs.entry(name).or_default();
            add(&mut sum.sums.processes, program.sums.processes);
            add(&mut sum.sums.asleep, program.sums.asleep);
            add(&mut sum.sums.on_cpu, program.sums.on_cpu);
            sum.sums.sum.join(&program.sums.sum);
            sum.lives.extend(program.lives);
        }
        join_named(&mut self.calls, other.calls, number, self.count);
        join_named(&mut self.regions, other.regions, number, self.count);
        join_named(&mut self.times, other.times, number, self.count);
        self.timed |= other.timed;
        self.mpi |= other.mpi;
        add_named(&mut self.lost, &other.lost);
    }

    /// The summary of all profiles that were added.
    pub(crate) fn finish(mut self) -> Summary {
        self.ranks.sort_by_key(|(number, _)| *number);
        self.threads.sort_by_key(|(number, _)| *number);
        self.asleep.sort_by_key(|(number, _)| *number);
        let mut out = Summary {
            elapsed: self.elapsed,
            total: self.total,
            asleep: self.asleep.into_iter().flat_map(|(_, s)| s).collect(),
            ranks: self.count > 1,
            nodes: self.nodes.into_values().collect(),
            threads: self.threads.into_iter().flat_map(|(_, t)| t).collect(),
            programs: programs(self.programs, self.count),
            calls: sorted(self.calls),
            regions: sorted(self.regions),
            mpi: self.mpi,
            lost: self.lost,
            ..Summary::default()
        };
        out.asleep
            .sort_by_key(|s| std::cmp::Reverse(s.unit.sum.wall));
        out.units = match out.ranks {
            true => self.ranks.into_iter().map(|(_, rank)| rank).collect(),
            false => out.threads.clone(),
        };
        if self.timed {
            out.times = regions::sorted(self.times);
        }
        out
    }

    fn units(&mut self, member: &Member<'_>) {
        let profile = member.profile;
        let host = profile.header.host.as_str();
        let entity = |title| Entity {
            title,
            host: host.to_owned(),
            ..Entity::default()
        };
        let mut rank = entity(profile.title());
        let at_ns = profile.data.at_ns;
        let waits = Waits::new(profile);
        self.mpi = waits.mpi();
        let mut threads = Vec::new();
        let (mut first, mut last) = (u64::MAX, 0);
        for thread in &profile.data.threads {
            first = first.min(thread.started_ns);
            last = last.max(thread.ended_ns.unwrap_or(at_ns));
            if member.asleep.contains(&thread.tid) {
                continue;
            }
            let wall = thread.wall(at_ns);
            let mut unit = unit(member, thread);
            unit.busiest = (waits.work(thread, wall), thread.tid);
            rank.sum.add(thread, at_ns);
            let work = (waits.work_of_rank(thread, wall), thread.tid);
            rank.busiest = rank.busiest.max(work);
            rank.active = rank.active.max(unit.active);
            threads.push(unit);
        }
        rank.elapsed = if first == u64::MAX {
            at_ns
        } else {
            last.saturating_sub(first)
        };
        self.elapsed = rank.elapsed;
        self.total = rank.sum.clone();
        let node = Entity {
            elapsed: rank.elapsed,
            busiest: rank.busiest,
            sum: rank.sum.clone(),
            ..entity(host.to_owned())
        };
        self.nodes.insert(host.to_owned(), node);
        self.ranks.push((member.number, rank));
        threads.shrink_to_fit();
        self.threads.push((member.number, threads));
    }

    fn calls(&mut self, member: &Member<'_>, units: usize) {
        let contexts = ContextIndex::new(member.profile);
        let tids = locations(member.profile, member.asleep);
        let empty = |name: &str| CallGroup {
            name: name.to_owned(),
            per_unit: vec![0; units],
            ..CallGroup::default()
        };
        let mut names: HashMap<u32, String> = HashMap::new();
        for call in &member.profile.data.calls {
            if member.asleep.contains(&call.tid) {
                continue;
            }
            let unit = match member.ranks() {
                true => Some(0),
                false => tids.get(&call.tid).copied(),
            };
            let name = names.entry(call.context);
            let region = name.or_insert_with(|| contexts.path(call.context).join(WITHIN));
            for (groups, name, within) in [
                (&mut self.calls, &call.call, &*region),
                (&mut self.regions, &*region, &call.call),
            ] {
                if !groups.contains_key(name) {
                    groups.insert(name.clone(), empty(name));
                }
                if let Some(group) = groups.get_mut(name) {
                    group.add(call, unit, within);
                }
            }
        }
    }

    fn programs(&mut self, member: &Member<'_>) {
        let profile = member.profile;
        let processes = profile.data.processes.iter();
        let names: HashMap<u32, &str> = processes.map(|p| (p.pid, p.comm.as_str())).collect();
        let at_ns = profile.data.at_ns;
        let before = u128::from(profile.header.started_unix_ns);
        let mut programs: BTreeMap<&str, (Program, HashSet<u32>)> = BTreeMap::new();
        for thread in &profile.data.threads {
            let name = names.get(&thread.pid).copied().unwrap_or(&thread.name);
            let (program, processes) = programs.entry(name).or_default();
            add(&mut program.sums.on_cpu, on_a_cpu(thread));
            if member.asleep.contains(&thread.tid) {
                add(&mut program.sums.asleep, thread.wall(at_ns));
            } else {
                program.sums.sum.add(thread, at_ns);
            }
            processes.insert(thread.pid);
            let start = u128::from(thread.started_ns) + before;
            let life = (start, start + u128::from(thread.wall(at_ns)));
            program.lives.push(life);
        }
        for (name, (mut program, processes)) in programs {
            program.sums.processes = processes.len() as u64;
            program.lives = union(program.lives);
            self.programs.insert(name.to_owned(), program);
        }
    }
}

/// A thread, without the units that wait for it.
fn unit(member: &Member<'_>, thread: &Thread) -> Entity {
    let profile = member.profile;
    let at_ns = profile.data.at_ns;
    let wall = thread.wall(at_ns);
    let rank = match member.ranks() {
        false => String::new(),
        true => format!("{}: ", profile.title()),
    };
    let mut unit = Entity {
        title: format!("{rank}{} {}", thread.tid, thread.name),
        host: profile.header.host.clone(),
        elapsed: wall,
        active: wall.saturating_sub(thread.parts.blocked),
        migrations: thread.migrations,
        node_pages: thread.node_pages,
        ..Entity::default()
    };
    unit.sum.add(thread, at_ns);
    unit
}

/// Threads that only sleep.
fn sleepers(member: &Member<'_>) -> Vec<Sleeper> {
    let data = &member.profile.data;
    let mut calls: HashMap<u32, (u64, Ns, &str)> = HashMap::new();
    let of_sleepers = data.calls.iter();
    for call in of_sleepers.filter(|c| member.asleep.contains(&c.tid)) {
        let (count, most, name) = calls.entry(call.tid).or_default();
        add(count, call.count);
        add(count, u64::from(call.unfinished.is_some()));
        if call.time() >= *most {
            (*most, *name) = (call.time(), &call.call);
        }
    }
    let threads = data.threads.iter();
    let sleepers = threads.filter(|t| member.asleep.contains(&t.tid));
    let sleeper = |thread: &Thread| {
        let (calls, _, mostly) = calls.get(&thread.tid).copied().unwrap_or_default();
        Sleeper {
            unit: unit(member, thread),
            calls,
            mostly: mostly.to_owned(),
        }
    };
    sleepers.map(sleeper).collect()
}

/// Processes by name, the longest time not blocked first; empty if each of `count` profiles has only one.
fn programs(programs: BTreeMap<String, Program>, count: usize) -> Vec<NamedProcesses> {
    let processes: u64 = programs.values().map(|p| p.sums.processes).sum();
    let several = programs.len() > 1 || processes > count as u64;
    let programs = programs.into_iter().filter(|_| several);
    let mut named: Vec<NamedProcesses> = programs
        .map(|(name, program)| NamedProcesses {
            name,
            wall: length(&union(program.lives)),
            ..program.sums
        })
        .collect();
    let work = |p: &NamedProcesses| p.sum.wall.saturating_sub(p.sum.part(TimePart::Blocked));
    named.sort_by_key(|p| (std::cmp::Reverse(work(p)), std::cmp::Reverse(p.wall)));
    named
}

/// The union of intervals, as intervals that do not overlap.
fn union(mut lives: Vec<(u128, u128)>) -> Vec<(u128, u128)> {
    lives.sort_unstable();
    lives.dedup_by(|next, life| {
        let joined = next.0 <= life.1;
        if joined {
            life.1 = life.1.max(next.1);
        }
        joined
    });
    lives.shrink_to_fit();
    lives
}

/// The length of intervals that do not overlap.
fn length(lives: &[(u128, u128)]) -> Ns {
    let sum = lives.iter().map(|(start, end)| end - start).sum::<u128>();
    Ns::try_from(sum).unwrap_or(Ns::MAX)
}

fn sorted(groups: HashMap<String, CallGroup>) -> Vec<CallGroup> {
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by(|a, b| (b.time(), &a.name).cmp(&(a.time(), &b.name)));
    groups
}
