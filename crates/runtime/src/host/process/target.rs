//! A process of the session's target: what is hooked in it.

use std::collections::{BTreeSet, HashSet};
use std::io;

use spile_inject::{Attached, FunctionHook, Refusal};
use spile_kernel::process::{Mapping, mappings};

use super::calls::CallPlaces;
use super::places::{self, PlacedHook};
use super::semaphores::Semaphores;
use super::targets::Targets;
use crate::attach::site::RefusedLocation;
use crate::error::Error;

/// A process.
pub(super) struct Target {
    pid: u32,
    /// `None` while nothing is hooked.
    attached: Option<Attached>,
    semaphores: Vec<Semaphores>,
    /// The mappings whose places are hooked: the first address, and the file's inode.
    mapped: BTreeSet<(u64, u64)>,
    /// Indexes of the hooks in files that the process has.
    seen: BTreeSet<usize>,
    refused: Vec<RefusedLocation>,
}

impl Target {
    pub(super) fn new(pid: u32) -> Target {
        Target {
            pid,
            attached: None,
            semaphores: Vec::new(),
            mapped: BTreeSet::new(),
            seen: BTreeSet::new(),
            refused: Vec::new(),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Number of places that are hooked.
    pub(super) fn hooked(&self) -> usize {
        self.attached.as_ref().map_or(0, Attached::hooked)
    }

    fn error(&self, why: impl ToString) -> Error {
        Error::Enter(self.pid, why.to_string())
    }

    /// A child that a process has forked, if it was from this one: it has the same hooks.
    pub(super) fn forked(&self, pid: u32) -> Option<Target> {
        let attached = self.attached.as_ref().filter(|all| all.is_in(pid))?;
        let mut child = Target::new(pid);
        child.attached = Some(attached.forked(pid));
        child.mapped.clone_from(&self.mapped);
        child.seen.clone_from(&self.seen);
        Some(child)
    }

    /// Hooks the places in mappings that are new. `start`: the process stands and is traced by this thread.
    pub(super) fn enter(&mut self, targets: &Targets, start: bool) -> Result<(), Error> {
        let maps = mappings(self.pid).map_err(|e| Error::NoProcess(self.pid, e))?;
        let is_ours = |map: &Mapping| map.path.starts_with("/memfd:spile");
        let is_code = |map: &Mapping| map.executable && map.path.starts_with('/') && !is_ours(map);
        let new = maps.into_iter().filter(is_code);
        let new: Vec<Mapping> = new.filter(|map| self.is_new(map)).collect();
        let (placed, refused) = places::in_maps(self.pid, &targets.hooks, &new, &mut self.seen);
        self.refused.extend(refused);
        let calls = new.iter().map(|map| targets.calls.places(self.pid, map));
        let calls: Vec<CallPlaces> = calls.collect::<Result<_, _>>()?;
        let hooks = placed.iter().map(|(_, hook)| *hook);
        let hooks: Vec<FunctionHook> = hooks
            .chain(calls.iter().flat_map(|calls| calls.hooks.iter().copied()))
            .collect();
        if hooks.is_empty() {
            return Ok(());
        }
        let refused = self.hook(targets, &hooks, start)?;
        self.refused.extend(places::refused(&refused, &placed));
        let calls = calls.iter().flat_map(|calls| calls.refused(&refused));
        self.refused.extend(calls);
        self.semaphores_of(&placed, &refused)
    }

    /// Whether a mapping has no hooks yet: it is new, or a library was unloaded and came back to the same address.
    fn is_new(&mut self, map: &Mapping) -> bool {
        let is_other = self.mapped.insert((map.start, map.inode));
        let attached = self.attached.as_mut();
        attached.is_some_and(|all| all.forget_lost(map.start..map.end)) || is_other
    }

    /// Hooks places. Returns those that cannot be hooked.
    fn hook(
        &mut self,
        targets: &Targets,
        hooks: &[FunctionHook],
        start: bool,
    ) -> Result<Vec<(u64, Refusal)>, Error> {
        let areas = targets.image.areas();
        let image = targets.image.injected(&areas);
        let before = self.attached.as_ref().map_or(0, |a| a.refused().len());
        let result = match &mut self.attached {
            Some(attached) => attached.extend(&image, hooks, start),
            None => {
                let enter = match start {
                    true => spile_inject::attach_at_start,
                    false => spile_inject::attach,
                };
                enter(self.pid, &image, hooks).map(|attached| self.attached = Some(attached))
            }
        };
        match result {
            Ok(()) => Ok(self
                .attached
                .iter()
                .flat_map(|a| &a.refused()[before..])
                .copied()
                .collect()),
            Err(spile_inject::Error::Refused(all)) => Ok(all),
            Err(e) => Err(self.error(e)),
        }
    }

    fn semaphores_of(
        &mut self,
        placed: &[PlacedHook<'_>],
        refused: &[(u64, Refusal)],
    ) -> Result<(), Error> {
        let words = places::semaphores(placed, refused);
        if !words.is_empty() {
            let opened = Semaphores::new(self.pid, words).map_err(semaphore_error)?;
            self.semaphores.push(opened);
        }
        Ok(())
    }

    /// The places that are left out, once.
    pub(super) fn take_refused(&mut self) -> Vec<RefusedLocation> {
        std::mem::take(&mut self.refused)
    }

    /// The first place that is left out, if all are.
    pub(super) fn all_refused(&self) -> Option<&RefusedLocation> {
        self.refused.first().filter(|_| self.hooked() == 0)
    }

    /// Indexes of the hooks in files that the process has.
    pub(super) fn seen(&self) -> impl Iterator<Item = usize> {
        self.seen.iter().copied()
    }

    /// Tells markers that somebody listens.
    pub(super) fn raise(&mut self) -> Result<(), Error> {
        let mut all = self.semaphores.iter_mut();
        all.try_for_each(Semaphores::raise).map_err(semaphore_error)
    }

    /// Whether some process has the hooks: entry code is in these files.
    pub(super) fn is_alive(&self, files: &HashSet<u64>) -> bool {
        let mut attached = self.attached.iter();
        attached.any(|attached| attached.files().any(|file| files.contains(&file)))
    }

    /// Nothing is left to be taken back.
    pub(super) fn forget(&mut self) {
        self.attached = None;
    }

    /// Takes all hooks back, also from children that have no target of their own.
    pub(super) fn leave(&mut self, others: &[u32]) {
        self.semaphores.iter_mut().for_each(Semaphores::lower);
        if let Some(attached) = self.attached.take() {
            // A process that has ended, or cannot be stopped, has nothing that could be removed.
            let _ = attached.detach(others);
        }
    }
}

/// However the session ends, the process has no hooks afterwards.
impl Drop for Target {
    fn drop(&mut self) {
        self.leave(&[]);
    }
}

fn semaphore_error(e: io::Error) -> Error {
    Error::System("the semaphores of markers", e)
}
