//! Imbalance: who the others wait for, and in which region. Ranks wait for each other in calls of MPI, and threads of a
//! team in waits of OpenMP; the rest of their time in regions is work.
//!
//! The cost of a region is how much less the other units worked there than the one that worked longest, as far as they
//! waited: `sum of min(longest - work, waits)`. Work that others make up for elsewhere costs nothing, because nobody
//! waits. Each wait counts for one region, the one with the largest difference first.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::answer::matters;
use crate::model::{ContextKind, Ns, Profile, ROOT, thread_title};
use crate::run::{ContextIndex, OUTSIDE, Run, WITHIN};
use crate::sleeping_threads::sleeping_threads;
use crate::summary_sums::Member;

/// A region in which one unit worked longer than the others, which waited for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imbalance {
    /// The region, with the outer ones.
    pub region: String,
    /// The rank or thread that worked longest.
    pub unit: String,
    /// Whether it is a rank.
    pub ranks: bool,
    /// Number of ranks, or of threads of its team.
    pub units: usize,
    /// Its time there.
    pub longest: Ns,
    /// The mean time of the units there.
    pub mean: Ns,
    /// How long the others waited for it; of threads, in all ranks.
    pub cost: Ns,
    /// The whole time of the ranks' threads that call MPI, or of all threads.
    pub whole: Ns,
}

impl Imbalance {
    /// The longest time divided by the mean.
    pub fn max_by_mean(&self) -> f64 {
        self.longest as f64 / (self.mean.max(1)) as f64
    }

    /// What the others did, as the end of a sentence.
    pub fn sentence(&self) -> String {
        let label = self.region.rsplit(WITHIN).next().unwrap_or_default();
        let place = match label.split_once(" (") {
            _ if label == OUTSIDE => label.to_owned(),
            Some((name, location)) => format!("in `{name}` ({location}"),
            None => format!("in `{label}`"),
        };
        let kind = if self.ranks { "" } else { "thread " };
        format!(
            "waiting for {kind}{}, which takes {:.2} times the mean {place}",
            self.unit,
            self.max_by_mean(),
        )
    }
}

/// The work of some units by region, and their waits.
#[derive(Debug, Default)]
struct Units {
    /// By region, the work of each.
    work: BTreeMap<String, Vec<Ns>>,
    waits: Vec<Ns>,
}

impl Units {
    fn new(count: usize) -> Units {
        Units {
            work: BTreeMap::new(),
            waits: vec![0; count],
        }
    }

    fn add_work(&mut self, region: String, unit: usize, ns: Ns) {
        let count = self.waits.len();
        let work = self.work.entry(region).or_insert_with(|| vec![0; count]);
        work[unit] = work[unit].saturating_add(ns);
    }

    fn add_wait(&mut self, unit: usize, ns: Ns) {
        self.waits[unit] = self.waits[unit].saturating_add(ns);
    }

    /// By region: the unit that worked longest, its time, the mean, and the cost.
    fn costs(mut self) -> Vec<(String, usize, [Ns; 3])> {
        let longest = |work: &[Ns]| work.iter().copied().max().unwrap_or(0);
        let less = |work: &[Ns]| -> u128 {
            let longest = longest(work);
            work.iter().map(|ns| u128::from(longest - ns)).sum()
        };
        let mut regions: Vec<(String, Vec<Ns>)> = self.work.into_iter().collect();
        regions.sort_by_key(|(_, work)| std::cmp::Reverse(less(work)));
        let cost = |(region, work): (String, Vec<Ns>)| {
            let longest = longest(&work);
            let mut cost: Ns = 0;
            for (ns, wait) in work.iter().zip(&mut self.waits) {
                let waited = (longest - ns).min(*wait);
                *wait -= waited;
                cost = cost.saturating_add(waited);
            }
            let unit = work.iter().position(|ns| *ns == longest).unwrap_or(0);
            let sum: u128 = work.iter().map(|ns| u128::from(*ns)).sum();
            let mean = sum / (work.len().max(1) as u128);
            (
                region,
                unit,
                [longest, mean.try_into().unwrap_or(Ns::MAX), cost],
            )
        };
        regions.into_iter().map(cost).collect()
    }
}

/// What a thread does in a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Work,
    /// It waits for other ranks.
    Mpi,
    /// It waits for threads of its team.
    Team,
}

/// A context: its region, without waits of OpenMP; what threads do there; the parallel region around it.
#[derive(Debug, Clone)]
struct Place {
    region: String,
    does: Does,
    team: Option<String>,
}

fn place(contexts: &ContextIndex<'_>, id: u32) -> Place {
    let rows = contexts.chain(id);
    let mut path = contexts.path(id);
    let kinds: Vec<ContextKind> = (rows.iter())
        .map(|(_, row)| row.map_or(ContextKind::Mark, |row| row.kind))
        .collect();
    let does = if kinds.contains(&ContextKind::Mpi) {
        Does::Mpi
    } else if kinds.last() == Some(&ContextKind::OmpBarrier) {
        path.pop();
        Does::Team
    } else {
        Does::Work
    };
    let team = kinds.iter().position(|k| *k == ContextKind::OmpRegion);
    Place {
        region: match path.is_empty() {
            true => OUTSIDE.to_owned(),
            false => path.join(WITHIN),
        },
        does,
        team: team.map(|depth| path[..=depth].join(WITHIN)),
    }
}

/// The places of a profile's contexts.
fn contexts_of(profile: &Profile) -> HashMap<u32, Place> {
    let contexts = ContextIndex::new(profile);
    let rows = profile.data.context_times.iter();
    let ids: HashSet<u32> = rows.map(|row| row.context).chain([ROOT]).collect();
    ids.into_iter()
        .map(|id| (id, place(&contexts, id)))
        .collect()
}

/// The imbalances that cost 5 % of the whole time or more, the largest cost first.
pub fn imbalances(run: &Run) -> Vec<Imbalance> {
    let count = run.profiles.len();
    let mut sums = Imbalances::default();
    for (number, profile) in run.profiles.iter().enumerate() {
        let member = Member {
            profile,
            number,
            count,
            asleep: &sleeping_threads(profile),
        };
        sums.join(Imbalances::of(&member), number, count);
    }
    sums.finish(run)
}

/// The times of some profiles from which their imbalances follow. Those of one are added to those of the
/// others, in any order.
#[derive(Debug, Default)]
pub(crate) struct Imbalances {
    /// The work and the waits of ranks: of their threads that call MPI, with their waits for threads of their own
    /// rank. A single profile is unit 0.
    ranks: Units,
    /// The time of the ranks' threads that call MPI, and of all threads.
    in_mpi: Ns,
    whole: Ns,
    /// By parallel region, the cost in all ranks, and the imbalance with the largest one, of the profile of that
    /// number.
    teams: BTreeMap<String, (Ns, usize, Imbalance)>,
}

impl Imbalances {
    /// The times of one profile.
    pub(crate) fn of(member: &Member<'_>) -> Imbalances {
        let mut out = Imbalances {
            ranks: Units::new(1),
            ..Imbalances::default()
        };
        let profile = member.profile;
        let threads = profile.data.threads.iter();
        for thread in threads.filter(|t| !member.asleep.contains(&t.tid)) {
            out.whole = out.whole.saturating_add(thread.wall(profile.data.at_ns));
        }
        if profile.data.context_times.is_empty() {
            return out;
        }
        if member.ranks() {
            out.of_rank(profile);
        }
        for imbalance in of_teams(member) {
            out.team(imbalance, member.number);
        }
        out
    }

    /// Adds the times of the profile of that number, of `count`.
    pub(crate) fn join(&mut self, other: Imbalances, number: usize, count: usize) {
        self.ranks.waits.resize(count, 0);
        for (region, work) in other.ranks.work {
            for ns in work {
                self.ranks.add_work(region.clone(), number, ns);
            }
        }
        for ns in other.ranks.waits {
            self.ranks.add_wait(number, ns);
        }
        self.in_mpi = self.in_mpi.saturating_add(other.in_mpi);
        self.whole = self.whole.saturating_add(other.whole);
        for (cost, number, imbalance) in other.teams.into_values() {
            self.team(Imbalance { cost, ..imbalance }, number);
        }
    }

    /// Adds an imbalance of threads in the profile of that number. Of equal ones the last counts.
    fn team(&mut self, imbalance: Imbalance, number: usize) {
        let cost = imbalance.cost;
        let Some(sum) = self.teams.get_mut(&imbalance.region) else {
            let region = imbalance.region.clone();
            self.teams.insert(region, (cost, number, imbalance));
            return;
        };
        sum.0 = sum.0.saturating_add(cost);
        if (cost, number) >= (sum.2.cost, sum.1) {
            (sum.1, sum.2) = (number, imbalance);
        }
    }

    /// The imbalances of the run of all profiles that were added.
    pub(crate) fn finish(self, run: &Run) -> Vec<Imbalance> {
        let count = run.profiles.len();
        let row = |(region, unit, [longest, mean, cost]): (String, usize, [Ns; 3])| Imbalance {
            region,
            unit: run.profiles[unit].title(),
            ranks: true,
            units: count,
            longest,
            mean,
            cost,
            whole: self.in_mpi,
        };
        let ranks = self.ranks.costs().into_iter().filter(|_| count > 1);
        let mut found: Vec<Imbalance> = ranks.map(row).collect();
        let teams = self.teams.into_values();
        found.extend(teams.map(|(cost, _, imbalance)| Imbalance {
            cost,
            whole: self.whole,
            ..imbalance
        }));
        found.retain(|i| i.cost > 0 && matters(i.cost, i.whole));
        found.sort_by(|a, b| (b.cost, &a.region).cmp(&(a.cost, &b.region)));
        found
    }

    /// The work and the waits of a rank.
    fn of_rank(&mut self, profile: &Profile) {
        let places = contexts_of(profile);
        let times = || profile.data.context_times.iter();
        let mpi = times().filter(|time| places[&time.context].does == Does::Mpi);
        let mpi: HashSet<u32> = mpi.map(|time| time.tid).collect();
        let mut outside: HashMap<u32, Ns> = HashMap::new();
        for thread in profile.data.threads.iter().filter(|t| mpi.contains(&t.tid)) {
            let wall = thread.wall(profile.data.at_ns);
            self.in_mpi = self.in_mpi.saturating_add(wall);
            outside.insert(thread.tid, wall);
        }
        for time in times().filter(|time| mpi.contains(&time.tid)) {
            let place = &places[&time.context];
            match place.does {
                Does::Mpi => self.ranks.add_wait(0, time.wall),
                Does::Work | Does::Team => {
                    self.ranks.add_work(place.region.clone(), 0, time.wall);
                }
            }
            if let Some(rest) = outside.get_mut(&time.tid) {
                *rest = rest.saturating_sub(time.wall);
            }
        }
        for rest in outside.into_values() {
            self.ranks.add_work(OUTSIDE.to_owned(), 0, rest);
        }
    }
}

/// The imbalances of the threads of a profile, without the whole time.
fn of_teams(member: &Member<'_>) -> Vec<Imbalance> {
    let profile = member.profile;
    let places = contexts_of(profile);
    let rows = profile.data.context_times.iter();
    let mut teams: BTreeMap<&str, Vec<(u32, &Place, Ns)>> = BTreeMap::new();
    for row in rows {
        let place = &places[&row.context];
        if let Some(team) = &place.team {
            teams
                .entry(team)
                .or_default()
                .push((row.tid, place, row.wall));
        }
    }
    let mut found = Vec::new();
    for rows in teams.into_values() {
        let mut tids: Vec<u32> = rows.iter().map(|(tid, ..)| *tid).collect();
        tids.sort_unstable();
        tids.dedup();
        let mut units = Units::new(tids.len());
        for (tid, place, wall) in rows {
            let unit = tids.binary_search(&tid).unwrap_or(0);
            match place.does {
                Does::Team => units.add_wait(unit, wall),
                Does::Work => units.add_work(place.region.clone(), unit, wall),
                Does::Mpi => {}
            }
        }
        for (region, unit, [longest, mean, cost]) in units.costs() {
            let thread = profile.data.threads.iter().find(|t| t.tid == tids[unit]);
            let title = thread_title(tids[unit], thread);
            let unit = match member.ranks() {
                false => title,
                true => format!("{title} of {}", profile.title()),
            };
            found.push(Imbalance {
                region,
                unit,
                ranks: false,
                units: tids.len(),
                longest,
                mean,
                cost,
                whole: 0,
            });
        }
    }
    found
}
