//! Intervals of regions for time lines, made from the changes that the library in the program
//! records.

use spile_profile::model::{Context, Ns, REGION, ROOT, TimedEvent};

use super::super::changes::Change;
use super::builder::ProfileBuilder;
use crate::rows::Fields;

/// Maximum depth of nested regions on a time line.
const DEEPEST: usize = 256;

/// The regions that a thread is in, the outermost first, each with its beginning.
#[derive(Debug, Default)]
pub(super) struct OpenRegions {
    open: Vec<(u32, Ns)>,
    /// The time of the last change, and whether there was one.
    last: Ns,
    begun: bool,
}

/// Maximum number of bytes of changes that stay uninterpreted.
const RAW: usize = 16 << 20;

/// An interval: context, beginning, end.
type Interval = (u32, Ns, Ns);

impl OpenRegions {
    /// The thread changes to a context. Intervals that end are added to `out`, inner ones
    /// first.
    fn change(&mut self, to: u32, change: Change, contexts: &[Context], out: &mut Vec<Interval>) {
        let time = change.time.max(self.last);
        let is_around = |outer: u32| chain(contexts, to).any(|c| c == outer);
        if change.after_lost {
            // The changes in between are lost: the regions that the thread can still be in go on.
            let before = std::mem::take(&mut self.open);
            out.extend(before.iter().rev().map(|(c, from)| (*c, *from, self.last)));
            let still = before
                .into_iter()
                .filter(|(c, _)| is_around(*c) && !(change.entered && *c == to));
            self.open.extend(still.map(|(c, _)| (c, time)));
        }
        while let Some((top, from)) = self.open.last().copied() {
            let goes_on = if top == to {
                !change.entered
            } else {
                is_around(top)
            };
            if goes_on && self.open.len() < DEEPEST {
                break;
            }
            out.push((top, from, time));
            self.open.pop();
        }
        if to != ROOT && self.open.last().is_none_or(|(top, _)| *top != to) {
            // A forked child begins in the middle of its parent's regions.
            if !self.begun && !change.entered {
                let mut outer: Vec<_> = chain(contexts, to).skip(1).map(|c| (c, time)).collect();
                outer.reverse();
                self.open.extend(outer);
            }
            self.open.push((to, time));
        }
        self.begun = true;
        self.last = time;
    }

    /// Ends all regions that the thread is in, or the recording does.
    fn end(&mut self, time: Ns, out: &mut Vec<Interval>) {
        let time = time.max(self.last);
        out.extend(self.open.drain(..).rev().map(|(c, from)| (c, from, time)));
    }
}

/// A context and those around it, the innermost first.
fn chain(contexts: &[Context], context: u32) -> impl Iterator<Item = u32> {
    // Numbers are indexes plus 1. The walk ends even if a context announces itself as its own
    // ancestor.
    let above = |id: &u32| {
        let context = contexts.get(*id as usize - 1)?;
        context.parent.filter(|p| *p != ROOT)
    };
    let first = Some(context).filter(|id| *id != ROOT);
    std::iter::successors(first, above).take(DEEPEST)
}

impl ProfileBuilder {
    /// A thread wakes another one.
    pub(super) fn wakeup(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let (woken, waker) = (f.integer()?, f.integer()?);
        let thread = self.thread(waker);
        let waker = self.snapshot.threads.get(thread)?.tid;
        let when = self.since(f.integer()?);
        self.wakeups.insert(woken, (waker, when));
        Some(())
    }

    /// Handles a `changes` row: a thread has new changes.
    pub(super) fn changes(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let thread = self.thread(f.integer()?);
        if let Some(nth) = self.counting.get(&thread).copied() {
            self.fetch(nth);
            self.make_space();
        }
        Some(())
    }

    /// A thread has ended or executes another program: no more changes come from its location.
    pub(super) fn changes_end(&mut self, thread: usize, time: Ns) {
        let Some(nth) = self.counting.remove(&thread) else {
            return;
        };
        self.fetch(nth);
        let location = &mut self.counts[nth];
        location.until = Some(time);
        if let (true, Some(folder)) = (self.trace, &self.folder) {
            location.ring.release(folder, location.file);
        }
        self.make_space();
    }

    /// Makes intervals of all changes so far.
    pub(super) fn take_changes(&mut self) {
        for nth in 0..self.counts.len() {
            if self.counts[nth].until.is_none() {
                self.fetch(nth);
            }
            self.make_intervals(nth, false);
        }
        self.raw = self
            .counts
            .iter()
            .map(|location| location.ring.bytes())
            .sum();
    }

    /// The recording ends: intervals in progress are marked as open.
    pub(super) fn intervals_stay_open(&mut self) {
        for nth in 0..self.counts.len() {
            let location = &self.counts[nth];
            let Some(thread) = self.snapshot.threads.get(location.thread) else {
                continue;
            };
            if location.until.is_none() {
                let (end, open) = match thread.ended_ns {
                    Some(ended) => (ended, false),
                    None => (self.snapshot.at_ns, true),
                };
                self.fetch(nth);
                self.make_intervals(nth, true);
                self.intervals_end(nth, end, open);
            } else {
                self.make_intervals(nth, true);
            }
        }
    }

    /// Takes the changes that a thread has recorded.
    fn fetch(&mut self, nth: usize) {
        let (true, Some(folder)) = (self.trace, &self.folder) else {
            return;
        };
        let location = &mut self.counts[nth];
        let before = location.ring.bytes();
        let taken = location.ring.take(folder, (location.file, location.chunk));
        location.unread = taken.is_err();
        self.raw += location.ring.bytes() - before;
    }

    /// Changes stay uninterpreted until there are many, or until an account comes: a short program
    /// has ended by then.
    fn make_space(&mut self) {
        if self.raw > RAW {
            self.take_changes();
        }
    }

    /// Makes intervals of the changes taken. `unannounced`: including regions that were not announced.
    fn make_intervals(&mut self, nth: usize, unannounced: bool) {
        let (Some(location), Some(folder)) = (self.counts.get_mut(nth), &self.folder) else {
            return;
        };
        let Some(pid) = self.snapshot.threads.get(location.thread).map(|t| t.pid) else {
            return;
        };
        let (program, contexts, until) = (location.program, &self.contexts, location.until);
        // Contexts by region number; 0 where not looked up yet.
        let mut ids: Vec<u32> = Vec::new();
        let id_of = |n: u32| {
            let n = n as usize;
            if ids.len() <= n {
                ids.resize(n + 1, ROOT);
            }
            if ids[n] == ROOT {
                let id = contexts.get(&(pid, program | n as u64));
                ids[n] = id.copied().unwrap_or(ROOT);
            }
            ids[n] != ROOT || unannounced || until.is_some()
        };
        let changes = location.ring.changes(folder, id_of);
        let mut inside = std::mem::take(&mut location.inside);
        let mut out = Vec::new();
        for mut change in changes {
            let to = match ids.get(change.number as usize).copied() {
                _ if change.number == 0 => ROOT,
                Some(id) if id != ROOT => id,
                _ => self.context(pid, program | u64::from(change.number)),
            };
            change.time = change
                .time
                .saturating_sub(self.origin.max(0).cast_unsigned());
            inside.change(to, change, &self.snapshot.contexts, &mut out);
        }
        if let Some(until) = until {
            inside.end(until, &mut out);
        }
        self.counts[nth].inside = inside;
        self.intervals(nth, out, false);
    }

    fn intervals_end(&mut self, nth: usize, end: Ns, open: bool) {
        let mut out = Vec::new();
        self.counts[nth].inside.end(end, &mut out);
        self.intervals(nth, out, open);
    }

    fn intervals(&mut self, nth: usize, intervals: Vec<Interval>, open: bool) {
        let thread = self.snapshot.threads.get(self.counts[nth].thread);
        let Some(tid) = thread.map(|t| t.tid) else {
            return;
        };
        let event = |(context, start_ns, end_ns)| TimedEvent {
            tid,
            context,
            call: REGION.to_owned(),
            start_ns,
            end_ns,
            open,
            ..TimedEvent::default()
        };
        self.events.extend(intervals.into_iter().map(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contexts by their parents: 1, 2 in 1, 3 in 2, 4 in 1, 5.
    fn contexts() -> Vec<Context> {
        let parents = [None, Some(1), Some(2), Some(1), None];
        let with = |(location, parent)| Context {
            id: location as u32 + 1,
            parent,
            ..Context::default()
        };
        parents.into_iter().enumerate().map(with).collect()
    }

    /// Changes at times 1, 2, 3 and on: negative where the thread comes back to the region.
    fn of(changes: &[i32]) -> Vec<Interval> {
        let (mut inside, mut out) = (OpenRegions::default(), Vec::new());
        for (n, to) in changes.iter().enumerate() {
            let change = Change {
                number: to.unsigned_abs(),
                entered: *to > 0,
                after_lost: false,
                time: n as Ns + 1,
            };
            inside.change(to.unsigned_abs(), change, &contexts(), &mut out);
        }
        inside.end(100, &mut out);
        out
    }

    #[test]
    fn nested_regions_are_intervals() {
        let wanted = [(3, 3, 4), (2, 2, 5), (4, 6, 7), (1, 1, 8)];
        assert_eq!(of(&[1, 2, 3, -2, -1, 4, -1, 0]), wanted);
    }

    #[test]
    fn each_entry_is_an_interval() {
        // The pattern of threads of libgomp: the region, its barrier, the region again. And
        // recursion.
        assert_eq!(
            of(&[1, 2, 1, 2, 0]),
            [(2, 2, 3), (1, 1, 3), (2, 4, 5), (1, 3, 5)]
        );
        assert_eq!(of(&[1, 1, -1, 0]), [(1, 1, 2), (1, 2, 4)]);
    }

    #[test]
    fn tasks_interrupt_waits() {
        assert_eq!(
            of(&[1, 2, 4, -2, -1, 0]),
            [(2, 2, 3), (4, 3, 4), (2, 4, 5), (1, 1, 6)]
        );
        // A region that belongs elsewhere.
        assert_eq!(of(&[1, 5, -1, 0]), [(1, 1, 2), (5, 2, 3), (1, 3, 4)]);
    }

    #[test]
    fn a_child_of_fork_begins_within_its_parent_s_regions() {
        assert_eq!(of(&[-3, -2, 0]), [(3, 1, 2), (2, 1, 3), (1, 1, 3)]);
        // A thread of OpenMP is not in the regions around the one that it enters.
        assert_eq!(of(&[3, 0]), [(3, 1, 2)]);
        assert_eq!(of(&[5, 0, -2]), [(5, 1, 2), (2, 3, 100)]);
    }

    #[test]
    fn regions_with_lost_changes_stay_open() {
        let (mut inside, mut out) = (OpenRegions::default(), Vec::new());
        let changes = [(1, false, 1), (2, false, 2), (3, true, 10), (1, true, 20)];
        for (to, after_lost, at) in changes {
            let change = Change {
                number: to,
                entered: true,
                after_lost,
                time: at,
            };
            inside.change(to, change, &contexts(), &mut out);
        }
        inside.end(30, &mut out);
        let wanted = [
            (2, 2, 2),
            (1, 1, 2),
            (3, 10, 10),
            (2, 10, 10),
            (1, 10, 10),
            (1, 20, 30),
        ];
        assert_eq!(out, wanted);
    }

    #[test]
    fn cyclic_contexts_end() {
        let mut around = contexts();
        around[0].parent = Some(3);
        let (mut inside, mut out) = (OpenRegions::default(), Vec::new());
        for at in 0..10_000 {
            let change = Change {
                number: 0,
                entered: true,
                after_lost: false,
                time: at,
            };
            inside.change(at as u32 % 3 + 1, change, &around, &mut out);
            assert!(inside.open.len() <= DEEPEST);
        }
    }
}
