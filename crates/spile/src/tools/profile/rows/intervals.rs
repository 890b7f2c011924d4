//! Intervals of regions, for time lines: made of the changes that the library in the program writes down.

use spile_profile::model::{Context, Event, Ns, REGION, ROOT};

use super::super::changes::Change;
use super::{Fields, Rows};

/// Regions within each other that a time line shows.
const DEEPEST: usize = 256;

/// The regions that a thread is in, the outermost first, each with its beginning.
#[derive(Debug, Default)]
pub struct Inside {
    open: Vec<(u32, Ns)>,
    /// The last change, and whether there was one.
    last: Ns,
    begun: bool,
}

/// An interval: context, beginning, end.
type Interval = (u32, Ns, Ns);

impl Inside {
    /// The thread changes to a context at `at`. Intervals that end are added to `out`, what is within others
    /// before them.
    fn change(&mut self, to: u32, change: Change, contexts: &[Context], out: &mut Vec<Interval>) {
        let at = change.at.max(self.last);
        let around = chain(contexts, to);
        if change.after_lost {
            // What was left and entered meanwhile is not known: what it can still be in goes on.
            let before = std::mem::take(&mut self.open);
            out.extend(before.iter().rev().map(|(c, from)| (*c, *from, self.last)));
            let still = before
                .into_iter()
                .filter(|(c, _)| around.contains(c) && !(change.entered && *c == to));
            self.open.extend(still.map(|(c, _)| (c, at)));
        }
        while let Some((top, from)) = self.open.last().copied() {
            let goes_on = if top == to {
                !change.entered
            } else {
                around.contains(&top)
            };
            if goes_on && self.open.len() < DEEPEST {
                break;
            }
            out.push((top, from, at));
            self.open.pop();
        }
        if to != ROOT && self.open.last().is_none_or(|(top, _)| *top != to) {
            // A child of fork begins in the middle of its parent's.
            if !self.begun && !change.entered {
                let outer = around.iter().rev().take(DEEPEST).filter(|c| **c != to);
                self.open.extend(outer.map(|c| (*c, at)));
            }
            self.open.push((to, at));
        }
        self.begun = true;
        self.last = at;
    }

    /// Whatever it is in ends, or the recording does.
    fn end(&mut self, at: Ns, out: &mut Vec<Interval>) {
        let at = at.max(self.last);
        out.extend(self.open.drain(..).rev().map(|(c, from)| (c, from, at)));
    }
}

/// A context and what is around it, the innermost first.
fn chain(contexts: &[Context], of: u32) -> Vec<u32> {
    // Numbers are places, from 1 on. What announces itself as its own ancestor has an end, too.
    let above = |id: &u32| {
        contexts
            .get(*id as usize - 1)?
            .parent
            .filter(|p| *p != ROOT)
    };
    let first = Some(of).filter(|id| *id != ROOT);
    std::iter::successors(first, above).take(DEEPEST).collect()
}

impl Rows {
    /// A thread has changes to be taken.
    pub(super) fn changes(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let thread = self.place(f.number()?);
        self.take_changes(Some(thread), false);
        Some(())
    }

    /// Takes the changes of a thread, or of all. `all`: also of regions that nobody announced.
    pub(super) fn take_changes(&mut self, thread: Option<usize>, all: bool) {
        if !self.trace {
            return;
        }
        for nth in 0..self.counts.len() {
            let place = &mut self.counts[nth];
            if !place.done && thread.is_none_or(|t| t == place.thread) {
                self.take_changes_at(nth, all);
            }
        }
    }

    /// A thread has ended, or executes another program: no more changes come from where it counted.
    pub(super) fn changes_end(&mut self, thread: usize, at: Ns) {
        for nth in 0..self.counts.len() {
            if self.counts[nth].done || self.counts[nth].thread != thread {
                continue;
            }
            self.counts[nth].done = true;
            self.counts[nth].until = Some(at);
            if self.trace {
                self.take_changes_at(nth, true);
                self.intervals_end(nth, at, false);
                let place = &mut self.counts[nth];
                if let Some(folder) = &self.folder {
                    place.ring.release(folder, place.file);
                }
            }
        }
    }

    /// The recording ends at `at`: what goes on is open.
    pub(super) fn intervals_stay_open(&mut self) {
        self.take_changes(None, true);
        for nth in 0..self.counts.len() {
            let place = &self.counts[nth];
            let Some(thread) = self.snapshot.threads.get(place.thread) else {
                continue;
            };
            if !place.done {
                let (at, open) = match thread.ended_ns {
                    Some(ended) => (ended, false),
                    None => (self.snapshot.at_ns, true),
                };
                self.intervals_end(nth, at, open);
            }
        }
    }

    fn take_changes_at(&mut self, nth: usize, all: bool) {
        let (Some(place), Some(folder)) = (self.counts.get_mut(nth), &self.folder) else {
            return;
        };
        let Some(pid) = self.snapshot.threads.get(place.thread).map(|t| t.pid) else {
            return;
        };
        let (program, contexts) = (place.program, &self.contexts);
        let known = |n: u32| all || contexts.contains_key(&(pid, program | u64::from(n)));
        let taken = place.ring.take(folder, (place.file, place.chunk), known);
        place.unread = taken.is_err();
        let mut inside = std::mem::take(&mut place.inside);
        let mut out = Vec::new();
        for mut change in taken.unwrap_or_default() {
            let to = match change.number {
                0 => ROOT,
                n => self.context(pid, program | u64::from(n)),
            };
            change.at = change.at.saturating_sub(self.origin.max(0) as Ns);
            inside.change(to, change, &self.snapshot.contexts, &mut out);
        }
        self.counts[nth].inside = inside;
        self.intervals(nth, out, false);
    }

    fn intervals_end(&mut self, nth: usize, at: Ns, open: bool) {
        let mut out = Vec::new();
        self.counts[nth].inside.end(at, &mut out);
        self.intervals(nth, out, open);
    }

    fn intervals(&mut self, nth: usize, intervals: Vec<Interval>, open: bool) {
        let thread = self.snapshot.threads.get(self.counts[nth].thread);
        let Some(tid) = thread.map(|t| t.tid) else {
            return;
        };
        let event = |(context, start_ns, end_ns)| Event {
            tid,
            context,
            call: REGION.to_owned(),
            start_ns,
            end_ns,
            ret: 0,
            open,
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
        let with = |(place, parent)| Context {
            id: place as u32 + 1,
            parent,
            ..Context::default()
        };
        parents.into_iter().enumerate().map(with).collect()
    }

    /// Changes at 1, 2, 3 ...: below 0 where the thread goes back to the region.
    fn of(changes: &[i32]) -> Vec<Interval> {
        let (mut inside, mut out) = (Inside::default(), Vec::new());
        for (n, to) in changes.iter().enumerate() {
            let change = Change {
                number: to.unsigned_abs(),
                entered: *to > 0,
                after_lost: false,
                at: n as Ns + 1,
            };
            inside.change(to.unsigned_abs(), change, &contexts(), &mut out);
        }
        inside.end(100, &mut out);
        out
    }

    #[test]
    fn regions_within_each_other() {
        let wanted = [(3, 3, 4), (2, 2, 5), (4, 6, 7), (1, 1, 8)];
        assert_eq!(of(&[1, 2, 3, -2, -1, 4, -1, 0]), wanted);
    }

    #[test]
    fn each_entry_is_an_interval() {
        // As threads of libgomp: the region, its barrier, the region again. And recursion.
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
        // One that belongs elsewhere.
        assert_eq!(of(&[1, 5, -1, 0]), [(1, 1, 2), (5, 2, 3), (1, 3, 4)]);
    }

    #[test]
    fn a_child_of_fork_begins_within() {
        assert_eq!(of(&[-3, -2, 0]), [(3, 1, 2), (2, 1, 3), (1, 1, 3)]);
        // A thread of OpenMP is not in what is around the region that it enters.
        assert_eq!(of(&[3, 0]), [(3, 1, 2)]);
        assert_eq!(of(&[5, 0, -2]), [(5, 1, 2), (2, 3, 100)]);
    }

    #[test]
    fn what_was_lost_is_left_open() {
        let (mut inside, mut out) = (Inside::default(), Vec::new());
        let changes = [(1, false, 1), (2, false, 2), (3, true, 10), (1, true, 20)];
        for (to, after_lost, at) in changes {
            let change = Change {
                number: to,
                entered: true,
                after_lost,
                at,
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
    fn circles_have_an_end() {
        let mut around = contexts();
        around[0].parent = Some(3);
        let (mut inside, mut out) = (Inside::default(), Vec::new());
        for at in 0..10_000 {
            let change = Change {
                number: 0,
                entered: true,
                after_lost: false,
                at,
            };
            inside.change(at as u32 % 3 + 1, change, &around, &mut out);
            assert!(inside.open.len() <= DEEPEST);
        }
    }
}
