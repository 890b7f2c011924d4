//! The target's processes: those that have handlers, and what their handlers share.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use spile_kernel::process::of_thread;

use super::calls::CallHooks;
use super::event_programs::EventPrograms;
use super::image::SharedImage;
use super::places::{self, FileHook};
use super::target::Target;
use crate::error::Error;
use crate::io::output;

/// The target's processes, and what is hooked in them.
pub(super) struct Targets {
    pub(super) image: SharedImage,
    pub(super) hooks: Vec<FileHook>,
    pub(super) calls: CallHooks,
    pub(super) events: EventPrograms,
    pub(super) quiet: bool,
    pub(super) entered: Mutex<Entered>,
}

/// The processes that have handlers.
#[derive(Default)]
pub(super) struct Entered {
    /// The newest last: a process that executes another program has several.
    targets: Vec<Target>,
    /// Beyond this number of them, some may have ended.
    enough: usize,
    /// Whether markers may be told that somebody listens.
    raised: bool,
    /// Indexes of the hooks in files that some process had.
    seen: BTreeSet<usize>,
    /// What was warned of: programs are executed often.
    warned: HashSet<String>,
}

impl Entered {
    /// Forgets processes that have ended, now and then: a build executes thousands of programs. What a process had before
    /// it executed another program stays as long as its children have it.
    fn prune(&mut self) {
        if self.targets.len() > self.enough {
            let files = spile_inject::entry_files();
            self.targets.retain_mut(|target| {
                let is_alive = target.is_alive(&files);
                if !is_alive {
                    target.forget();
                }
                is_alive
            });
            self.enough = 2 * self.targets.len() + FEW;
        }
    }
}

/// So many processes are kept without a look at whether they are still there.
const FEW: usize = 32;

impl Targets {
    pub(super) fn entered(&self) -> MutexGuard<'_, Entered> {
        self.entered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn warn(&self, entered: &mut Entered, texts: impl Iterator<Item = String>) {
        for text in texts {
            if !self.quiet && entered.warned.insert(text.clone()) {
                output::warn(&text);
            }
        }
    }

    /// Keeps a process in which all is hooked, and warns of places that are left out.
    pub(super) fn add(&self, mut target: Target) -> Result<(), Error> {
        let refused = target.take_refused();
        let mut entered = self.entered();
        entered.seen.extend(target.seen());
        if entered.raised {
            target.raise()?;
        }
        entered.targets.push(target);
        entered.prune();
        self.warn(&mut entered, places::warnings(&refused));
        Ok(())
    }

    /// Hooks the places in code that the process of a thread has mapped.
    pub(super) fn mapped(&self, thread: u32) -> Result<(), Error> {
        let pid = of_thread(thread).unwrap_or(thread);
        let mut target = {
            let mut entered = self.entered();
            let known = entered
                .targets
                .iter()
                .rposition(|target| target.pid() == pid);
            let forked = |all: &[Target]| all.iter().rev().find_map(|target| target.forked(pid));
            match known {
                Some(known) => entered.targets.remove(known),
                None => forked(&entered.targets).unwrap_or_else(|| Target::new(pid)),
            }
        };
        let result = target.enter(self, false);
        result.and(self.add(target))
    }

    pub(super) fn raise(&self) -> Result<(), Error> {
        let mut entered = self.entered();
        entered.raised = true;
        entered.targets.iter_mut().try_for_each(Target::raise)
    }

    /// Takes all hooks back.
    pub(super) fn leave(&self) {
        let mut entered = self.entered();
        let all: Vec<u32> = entered.targets.iter().map(Target::pid).collect();
        let mut targets = std::mem::take(&mut entered.targets);
        targets.iter_mut().for_each(|target| target.leave(&all));
        let missing = places::missing(&self.hooks, &entered.seen);
        // Once is enough, whatever ends the session again.
        entered.seen.extend(0..self.hooks.len());
        self.warn(&mut entered, places::warnings(&missing));
        self.image.recover();
    }
}
