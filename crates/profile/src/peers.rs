//! Calls of MPI by the ranks that they are for: with whom each rank spends its time in them, and who is waited for most.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::answer::matters;
use crate::model::{ContextKind, Ns, thread_title};
use crate::run::{ContextIndex, WITHIN, add, add_to};
use crate::summary_sums::Member;

/// Number of rows of each profile: a rank can have as many as there are other ranks, for each of its calls.
const MOST: usize = 100;

/// Number of ranks of a call that texts name.
const NAMED: usize = 4;

/// The calls of a rank, or of a thread, at one place for the same ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCalls {
    /// The rank that calls, or the thread if the ranks are in one profile.
    pub unit: String,
    /// The region of the calls, with the outer ones.
    pub region: String,
    /// The ranks that they are for; empty if they are not known.
    pub ranks: Vec<u32>,
    /// Number of calls that ended.
    pub calls: u64,
    /// Their time.
    pub ns: Ns,
    /// The whole time of the unit's threads that call MPI.
    pub whole: Ns,
}

impl PeerCalls {
    /// The region without the outer ones.
    pub(crate) fn short(&self) -> &str {
        self.region.rsplit(WITHIN).next().unwrap_or_default()
    }

    /// The ranks, after the word for what the call does with them: "from rank 1".
    pub(crate) fn peers(&self) -> String {
        let named = self.ranks.iter().take(NAMED).map(u32::to_string);
        let named: Vec<String> = named.collect();
        let ranks = match (&named[..], self.ranks.len().saturating_sub(NAMED)) {
            ([], _) => return "not known".to_owned(),
            ([one], _) => format!("rank {one}"),
            (_, 0) => format!("ranks {}", named.join(", ")),
            (_, more) => format!("ranks {} and {more} more", named.join(", ")),
        };
        let name = self.short().to_lowercase();
        let word = match (name.contains("send"), name.contains("recv")) {
            (true, true) => "with",
            (true, false) => "to",
            (false, true) => "from",
            _ if name.contains("probe") => "from",
            _ => "for",
        };
        format!("{word} {ranks}")
    }

    /// What the unit did, as the end of a sentence.
    pub(crate) fn sentence(&self) -> String {
        format!("in {}, {}", quoted(self.short()), self.peers())
    }
}

/// The label of a call with its name in quotes.
fn quoted(label: &str) -> String {
    match label.split_once(" (") {
        Some((name, location)) => format!("`{name}` ({location}"),
        None => format!("`{label}`"),
    }
}

/// A rank that calls of others are for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AwaitedRank {
    /// Its number.
    pub rank: u32,
    /// The time of calls that are for it only.
    pub ns: Ns,
    /// The time of calls that are for other ranks, too.
    pub with_others: Ns,
    /// Number of units that call.
    pub units: u64,
    /// The time for it only by call, with its location.
    pub calls: BTreeMap<String, Ns>,
}

impl AwaitedRank {
    /// The call with most of the time.
    pub(crate) fn longest_call(&self) -> Option<&str> {
        let longest = self.calls.iter().max_by_key(|(_, ns)| **ns);
        longest.map(|(call, _)| &**call)
    }

    /// Who is waited for, as the end of a sentence.
    pub(crate) fn sentence(&self) -> String {
        let most = self.longest_call().map(quoted).unwrap_or_default();
        format!("in calls of MPI for rank {}, the most in {most}", self.rank)
    }
}

/// The calls of MPI of a run for other ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peers {
    /// The calls, the longest time first.
    pub calls: Vec<PeerCalls>,
    /// Number and time of rows that are left out.
    pub left_out: (u64, Ns),
    /// The ranks, those with the longest time first.
    pub ranks: Vec<AwaitedRank>,
    /// Number of units.
    pub units: u64,
    /// The whole time of their threads that call MPI.
    pub whole: Ns,
}

impl Peers {
    /// The ranks that are waited for with 5 % of the whole time or more.
    pub(crate) fn largest(&self) -> impl Iterator<Item = &AwaitedRank> {
        self.ranks.iter().filter(|r| matters(r.ns, self.whole))
    }
}

/// The sums of some profiles. Those of one are added to those of the others, in any order.
#[derive(Debug, Default)]
pub(crate) struct PeerSums {
    /// With the number of their profile.
    calls: Vec<(usize, PeerCalls)>,
    left_out: (u64, Ns),
    ranks: BTreeMap<u32, AwaitedRank>,
    units: u64,
    whole: Ns,
}

/// A unit: its title, its whole time, and its calls by region and ranks.
#[derive(Debug, Default)]
struct Unit {
    title: String,
    whole: Ns,
    calls: BTreeMap<(String, Vec<u32>), (u64, Ns)>,
}

impl PeerSums {
    /// The calls of one profile.
    pub(crate) fn of(member: &Member<'_>) -> PeerSums {
        let mut out = PeerSums::default();
        for unit in units(member).into_values() {
            out.add_unit(unit, member.number);
        }
        // The others would all be kept until the end.
        out.calls.sort_by(order);
        for (_, row) in out.calls.drain(MOST.min(out.calls.len())..) {
            add(&mut out.left_out.0, 1);
            add(&mut out.left_out.1, row.ns);
        }
        out
    }

    fn add_unit(&mut self, unit: Unit, number: usize) {
        if unit.whole == 0 {
            return;
        }
        self.units += 1;
        add(&mut self.whole, unit.whole);
        let mut awaited = HashSet::new();
        for ((region, ranks), (calls, ns)) in unit.calls {
            let row = PeerCalls {
                unit: unit.title.clone(),
                region,
                ranks,
                calls,
                ns,
                whole: unit.whole,
            };
            for rank in &row.ranks {
                let of_rank = self.ranks.entry(*rank).or_default();
                of_rank.rank = *rank;
                of_rank.units += u64::from(awaited.insert(*rank));
                if row.ranks.len() > 1 {
                    add(&mut of_rank.with_others, ns);
                } else {
                    add(&mut of_rank.ns, ns);
                    add_to(&mut of_rank.calls, row.short(), ns);
                }
            }
            self.calls.push((number, row));
        }
    }

    /// Adds the sums of another profile.
    pub(crate) fn join(&mut self, other: PeerSums) {
        self.calls.extend(other.calls);
        add(&mut self.left_out.0, other.left_out.0);
        add(&mut self.left_out.1, other.left_out.1);
        self.units += other.units;
        add(&mut self.whole, other.whole);
        for (rank, other) in other.ranks {
            let sum = self.ranks.entry(rank).or_default();
            sum.rank = rank;
            add(&mut sum.ns, other.ns);
            add(&mut sum.with_others, other.with_others);
            sum.units += other.units;
            for (call, ns) in other.calls {
                add_to(&mut sum.calls, &call, ns);
            }
        }
    }

    /// What reports show.
    pub(crate) fn finish(mut self) -> Peers {
        self.calls.sort_by(order);
        let mut ranks: Vec<AwaitedRank> = self.ranks.into_values().collect();
        ranks.sort_by_key(|r| (std::cmp::Reverse((r.ns, r.with_others)), r.rank));
        Peers {
            calls: self.calls.into_iter().map(|(_, row)| row).collect(),
            left_out: self.left_out,
            ranks,
            units: self.units,
            whole: self.whole,
        }
    }
}

/// The longest time first, and the same order whichever profile was added first.
fn order(a: &(usize, PeerCalls), b: &(usize, PeerCalls)) -> std::cmp::Ordering {
    let key = |(number, row): &(usize, PeerCalls)| {
        (
            std::cmp::Reverse(row.ns),
            *number,
            row.unit.clone(),
            row.region.clone(),
            row.ranks.clone(),
        )
    };
    key(a).cmp(&key(b))
}

/// The units of a profile: the rank, or by number the threads that call MPI.
fn units(member: &Member<'_>) -> BTreeMap<u32, Unit> {
    let profile = member.profile;
    let contexts = ContextIndex::new(profile);
    let threads = profile.data.threads.iter();
    let threads: HashMap<u32, _> = threads.map(|t| (t.tid, t)).collect();
    let mut units: BTreeMap<u32, Unit> = BTreeMap::new();
    let mut seen = HashSet::new();
    let times = profile.data.context_times.iter();
    for time in times.filter(|t| !member.asleep.contains(&t.tid)) {
        let is_call = |c: &crate::model::Context| c.kind == ContextKind::Mpi;
        if !contexts.row(time.context).is_some_and(is_call) {
            continue;
        }
        let thread = threads.get(&time.tid).copied();
        let unit = units.entry(if member.ranks() { 0 } else { time.tid });
        let unit = unit.or_insert_with(|| Unit {
            title: match member.ranks() {
                true => profile.title(),
                false => thread_title(time.tid, thread),
            },
            ..Unit::default()
        });
        if seen.insert(time.tid) {
            add(
                &mut unit.whole,
                thread.map_or(0, |t| t.wall(profile.data.at_ns)),
            );
        }
        if time.peers.is_empty() {
            continue;
        }
        let region = contexts.path(time.context).join(WITHIN);
        let (mut calls, mut rest) = (time.entries, time.wall);
        let mut add_calls = |ranks: &[u32], calls: u64, ns: Ns| {
            let sum = unit.calls.entry((region.clone(), ranks.to_vec()));
            let sum = sum.or_default();
            add(&mut sum.0, calls);
            add(&mut sum.1, ns);
        };
        for peers in &time.peers {
            add_calls(&peers.ranks, peers.calls, peers.wall);
            calls = calls.saturating_sub(peers.calls);
            rest = rest.saturating_sub(peers.wall);
        }
        // Less comes from rounding.
        if rest > time.wall / 1000 {
            add_calls(&[], calls, rest);
        }
    }
    units
}
