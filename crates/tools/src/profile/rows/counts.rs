//! Times in regions: joins the counts of the library in the program with the kernel's events.

use std::collections::{HashMap, HashSet};

use spile_cast::Cast;
use spile_profile::model::{Ns, PeerTime, Snapshot};

use super::super::changes::ChangeRing;
use super::super::times::CountFolder;
use super::builder::ProfileBuilder;
use super::intervals::OpenRegions;
use crate::add_losses;
use crate::rows::Fields;

/// The location where a thread counts.
#[derive(Debug, Default)]
pub(super) struct CountLocation {
    /// Its index among the threads.
    pub(super) thread: usize,
    /// The bits of its program in region numbers.
    pub(super) program: u64,
    /// The name of the file, and the thread's first chunk there.
    pub(super) file: u64,
    pub(super) chunk: u64,
    /// When the thread ended or executed another program, after which no counts come.
    pub(super) until: Option<Ns>,
    /// The recorded changes, the regions that the thread is in by them, and whether they could be
    /// read.
    pub(super) ring: ChangeRing,
    pub(super) inside: OpenRegions,
    pub(super) unread: bool,
}

impl ProfileBuilder {
    pub(super) fn counts(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let thread = self.thread(f.integer()?);
        let location = CountLocation {
            thread,
            program: f.integer()?,
            file: f.integer::<i64>()?.cast_unsigned(),
            chunk: f.integer()?,
            ..CountLocation::default()
        };
        self.counting.insert(thread, self.counts.len());
        self.counts.push(location);
        Some(())
    }

    /// Completes the rows of times in contexts: entries and wall time come from the library, and
    /// time that no event explains is the program's own code. Rows of threads without counts are
    /// removed.
    pub(super) fn count(&self, snapshot: &mut Snapshot) {
        let mut rows: HashMap<(u32, u32), _> = std::mem::take(&mut snapshot.context_times)
            .into_iter()
            .map(|row| ((row.tid, row.context), row))
            .collect();
        // One more than the largest region number of each program.
        let mut ends: HashMap<(u32, u64), u32> = HashMap::new();
        for (pid, number) in self.contexts.keys().chain(self.peers.keys()) {
            let end = ends.entry((*pid, number >> 32)).or_default();
            *end = (*end).max(number.low32().saturating_add(1));
        }
        let mut peers = Vec::new();
        // Some were counted only in part.
        let mut failed = HashSet::new();
        for location in &self.counts {
            let Some(thread) = snapshot.threads.get(location.thread) else {
                continue;
            };
            let (tid, pid) = (thread.tid, thread.pid);
            let until = location.until.or(thread.ended_ns).unwrap_or(snapshot.at_ns)
                + self.origin.max(0).cast_unsigned();
            let number = |n: u32| location.program | u64::from(n);
            let end = ends.get(&(pid, location.program >> 32)).copied();
            let read = |folder: &CountFolder| {
                let (file, chunk) = (location.file, location.chunk);
                folder.read(file, chunk, end.unwrap_or(0), until).ok()
            };
            let Some(counted) = self.folder.as_ref().and_then(read) else {
                failed.insert(location.thread);
                continue;
            };
            for (n, entries, wall) in counted.regions {
                if let Some((region, ranks)) = self.peers.get(&(pid, number(n))) {
                    let ranks = ranks.clone();
                    let calls = PeerTime {
                        ranks,
                        calls: entries,
                        wall,
                    };
                    peers.push((tid, self.contexts.get(&(pid, *region)).copied(), calls));
                    continue;
                }
                let Some(context) = self.contexts.get(&(pid, number(n))).copied() else {
                    continue;
                };
                let mut row = rows.remove(&(tid, context)).unwrap_or_default();
                (row.tid, row.context) = (tid, context);
                row.entries += entries;
                row.wall += wall;
                row.parts.user = row.wall.saturating_sub(row.parts.sum() - row.parts.user);
                snapshot.context_times.push(row);
            }
        }
        snapshot
            .context_times
            .sort_by_key(|row| (row.tid, row.context));
        add_peers(snapshot, peers);
        self.add_lost_counts(snapshot, failed.len() as u64);
    }

    /// Counts threads that could not be counted (`failed` of them), and changes that were lost.
    fn add_lost_counts(&self, snapshot: &mut Snapshot, failed: u64) {
        let lost = self.counts.iter().map(|location| location.ring.lost);
        let unread = self.counts.iter().filter(|location| location.unread);
        let counts = [
            (
                failed,
                "threads without times in regions: there was no space for their files, or the files are gone",
            ),
            (
                self.folder.as_ref().map_or(0, |f| f.is_distrusted().into()),
                "change of the kernel's clock: the processors' counters differ, and times in regions come from them",
            ),
            (
                unread.count() as u64,
                "threads whose changes of regions could not be read",
            ),
            (
                lost.fold(0, u64::saturating_add),
                "changes of regions in the time line: they came faster than spile read them",
            ),
        ];
        add_losses(&mut snapshot.lost, counts);
    }
}

/// Adds the times of calls for other ranks, each with its thread and context, to the rows of their contexts, which are
/// in order.
fn add_peers(snapshot: &mut Snapshot, peers: Vec<(u32, Option<u32>, PeerTime)>) {
    let rows = &mut snapshot.context_times;
    for (tid, context, times) in peers {
        let row = rows.binary_search_by_key(&(tid, context), |row| (row.tid, Some(row.context)));
        if let Ok(index) = row {
            rows[index].peers.push(times);
        }
    }
}
