//! What reports show of a run, profile by profile: each is read, added and dropped. So the memory for a report
//! depends on its size, and not on the number of profiles.

use std::collections::HashSet;

use crate::answer::{By, Finding, Places};
use crate::event_counts::{CountedEvents, EventSums};
use crate::imbalance::{Imbalance, Imbalances};
use crate::model::{Profile, Snapshot};
use crate::paths;
use crate::peers::{PeerSums, Peers};
use crate::quiet::{QuietThread, quiet_threads};
use crate::report::callpaths::CallPaths;
use crate::report::unfinished::UnfinishedCalls;
use crate::report::view::View;
use crate::run::{Run, Summary};
use crate::sleeping_threads::sleeping_threads;
use crate::summary_sums::{Member, SummarySums};

/// What reports show of a run.
#[derive(Debug, Default)]
pub struct MergedRun {
    /// The profiles, with the few rows that reports show one by one.
    pub run: Run,
    /// The sums.
    pub summary: Summary,
    /// The places by function.
    pub functions: Vec<Finding>,
    /// The places as a view has them, if not by function.
    pub(crate) places: Option<Vec<Finding>>,
    /// Who the others wait for.
    pub imbalances: Vec<Imbalance>,
    /// The ranks that calls of MPI are for.
    pub peers: Peers,
    /// The counted events.
    pub events: CountedEvents,
    /// Threads that hardly ran, by recording.
    pub(crate) quiet: Vec<QuietThread>,
    /// For texts, call paths and calls that did not end.
    pub(crate) call_paths: CallPaths,
    pub(crate) unfinished: UnfinishedCalls,
}

impl MergedRun {
    /// Merges the profiles of a run for a report as text, or as JSON without a view.
    pub fn of(run: &Run, view: Option<&View>) -> MergedRun {
        let count = run.profiles.len();
        let mut merger = Merger::new(count);
        for (number, profile) in run.profiles.iter().enumerate() {
            merger.add(Part::new(profile, number, count, view));
        }
        merger.finish()
    }
}

/// What one profile adds to a report.
#[derive(Debug)]
pub(crate) struct Part {
    number: usize,
    profile: Profile,
    summary: SummarySums,
    functions: Places,
    places: Option<Places>,
    imbalances: Imbalances,
    peers: PeerSums,
    events: EventSums,
    quiet: Vec<QuietThread>,
    call_paths: CallPaths,
    unfinished: UnfinishedCalls,
}

impl Part {
    /// The part of the profile of that number, among `count`.
    pub(crate) fn new(profile: &Profile, number: usize, count: usize, view: Option<&View>) -> Part {
        let asleep: &HashSet<u32> = &sleeping_threads(profile);
        let member = Member {
            profile,
            number,
            count,
            asleep,
        };
        let sampled = profile.header.options.samples.is_some();
        let threads = if sampled {
            paths::threads(profile)
        } else {
            Vec::new()
        };
        let by = view.map(|view| view.by).filter(|by| *by != By::Function);
        Part {
            number,
            profile: shown_rows(profile),
            summary: SummarySums::of(&member),
            functions: Places::of(profile, &threads, asleep, By::Function),
            places: by.map(|by| Places::of(profile, &threads, asleep, by)),
            imbalances: Imbalances::of(&member),
            peers: PeerSums::of(&member),
            events: EventSums::of(profile),
            quiet: quiet_threads(profile, member.ranks()),
            call_paths: view.map_or_else(CallPaths::default, |v| CallPaths::of(&member, v)),
            unfinished: view
                .map_or_else(UnfinishedCalls::default, |_| UnfinishedCalls::of(&member)),
        }
    }
}

/// A profile with the rows that reports show one by one.
fn shown_rows(profile: &Profile) -> Profile {
    let data = &profile.data;
    let contexts = if data.futexes.is_empty() {
        &[][..]
    } else {
        &data.contexts
    };
    let processes = data.processes.iter();
    let processes = processes.filter(|p| p.ended_ns.is_none() || p.linked_statically);
    Profile {
        header: profile.header.clone(),
        data: Snapshot {
            at_ns: data.at_ns,
            processes: processes.cloned().collect(),
            contexts: contexts.to_vec(),
            futexes: data.futexes.clone(),
            recorder: data.recorder,
            ..Snapshot::default()
        },
        events: Vec::new(),
        end: profile.end.clone(),
    }
}

/// Adds up the parts of a run, in any order.
#[derive(Debug, Default)]
pub(crate) struct Merger {
    count: usize,
    profiles: Vec<(usize, Profile)>,
    summary: SummarySums,
    functions: Places,
    places: Option<Places>,
    imbalances: Imbalances,
    peers: PeerSums,
    events: EventSums,
    quiet: Vec<(usize, Vec<QuietThread>)>,
    call_paths: CallPaths,
    unfinished: UnfinishedCalls,
}

impl Merger {
    /// A run of `count` profiles.
    pub(crate) fn new(count: usize) -> Merger {
        Merger {
            count,
            ..Merger::default()
        }
    }

    /// Adds a part.
    pub(crate) fn add(&mut self, part: Part) {
        let number = part.number;
        self.profiles.push((number, part.profile));
        self.summary.join(part.summary, number);
        self.functions.join(part.functions);
        if let Some(places) = part.places {
            self.places.get_or_insert_default().join(places);
        }
        self.imbalances.join(part.imbalances, number, self.count);
        self.peers.join(part.peers);
        self.events.join(part.events);
        self.quiet.push((number, part.quiet));
        self.call_paths.join(part.call_paths);
        self.unfinished.join(part.unfinished);
    }

    /// What a report shows.
    pub(crate) fn finish(mut self) -> MergedRun {
        self.profiles.sort_by_key(|(number, _)| *number);
        self.quiet.sort_by_key(|(number, _)| *number);
        let profiles = self.profiles.into_iter();
        let run = Run::new(profiles.map(|(_, profile)| profile).collect());
        MergedRun {
            imbalances: self.imbalances.finish(&run),
            peers: self.peers.finish(),
            events: self.events.finish(&run),
            run,
            summary: self.summary.finish(),
            functions: self.functions.finish(),
            places: self.places.map(Places::finish),
            quiet: self
                .quiet
                .into_iter()
                .flat_map(|(_, quiet)| quiet)
                .collect(),
            call_paths: self.call_paths,
            unfinished: self.unfinished,
        }
    }
}
