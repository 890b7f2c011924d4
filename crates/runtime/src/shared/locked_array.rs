//! An array while the controller holds its lock. Nobody else changes it in the meantime, so it is
//! fetched once, changed in memory, and written back at once. Each system call under a lock
//! lengthens it, hits system-call probes whose handlers need the same lock, and is a point where
//! the thread can be switched out.

use std::collections::{BTreeSet, HashMap};
use std::io;

use crate::shared::maps::{ByteTable, Entries};

/// An array is fetched as a whole if it may have at most this many elements for each one that was
/// requested.
const WORTH: usize = 64;

/// A table that can be held.
pub(crate) struct LockedTable {
    below: Box<dyn ByteTable>,
    holds: bool,
    /// Elements that were requested one by one while it is held.
    asked: usize,
    copy: Option<ArrayCopy>,
}

/// The content, and the changes that the table below does not have yet.
#[derive(Default)]
struct ArrayCopy {
    elements: HashMap<Vec<u8>, Vec<u8>>,
    emptied: bool,
    changed: BTreeSet<Vec<u8>>,
}

impl LockedTable {
    /// Wraps another table.
    pub(crate) fn new(below: Box<dyn ByteTable>) -> LockedTable {
        LockedTable {
            below,
            holds: false,
            asked: 0,
            copy: None,
        }
    }

    /// The copy; fetches it if there is none.
    fn fetched(&mut self) -> io::Result<&mut ArrayCopy> {
        let copy = match self.copy.take() {
            Some(copy) => copy,
            None => ArrayCopy {
                elements: self.below.entries()?.into_iter().collect(),
                ..ArrayCopy::default()
            },
        };
        Ok(self.copy.insert(copy))
    }

    /// The copy, if it exists or is worth fetching.
    fn for_one(&mut self) -> io::Result<Option<&mut ArrayCopy>> {
        if self.holds && self.copy.is_none() {
            self.asked += 1;
            if self.asked.saturating_mul(WORTH) >= self.below.capacity() {
                return self.fetched().map(Some);
            }
        }
        Ok(self.copy.as_mut())
    }
}

impl ByteTable for LockedTable {
    fn get(&mut self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        match self.for_one()? {
            Some(copy) => Ok(copy.elements.get(key).cloned()),
            None => self.below.get(key),
        }
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> io::Result<bool> {
        let most = self.below.capacity();
        let Some(copy) = self.for_one()? else {
            return self.below.set(key, value);
        };
        let fits = copy.elements.len() < most || copy.elements.contains_key(key);
        if fits {
            copy.elements.insert(key.to_vec(), value.to_vec());
            copy.changed.insert(key.to_vec());
        }
        Ok(fits)
    }

    fn remove(&mut self, key: &[u8]) -> io::Result<()> {
        let Some(copy) = self.for_one()? else {
            return self.below.remove(key);
        };
        if copy.elements.remove(key).is_some() {
            copy.changed.insert(key.to_vec());
        }
        Ok(())
    }

    fn entries(&mut self) -> io::Result<Entries> {
        if !self.holds {
            return self.below.entries();
        }
        let elements = &self.fetched()?.elements;
        Ok(elements
            .iter()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect())
    }

    fn drain(&mut self) -> io::Result<Entries> {
        let Some(copy) = &mut self.copy else {
            return self.below.drain();
        };
        copy.emptied = true;
        copy.changed.clear();
        Ok(copy.elements.drain().collect())
    }

    fn capacity(&self) -> usize {
        self.below.capacity()
    }

    fn begin_exclusive(&mut self) {
        (self.holds, self.asked) = (true, 0);
    }

    fn end_exclusive(&mut self) -> io::Result<()> {
        self.holds = false;
        let Some(mut copy) = self.copy.take() else {
            return Ok(());
        };
        if copy.emptied {
            self.below.drain()?;
        }
        let (mut gone, mut new) = (Vec::new(), Vec::new());
        for key in copy.changed {
            match copy.elements.remove(&key) {
                Some(value) => new.push((key, value)),
                None if copy.emptied => {}
                None => gone.push(key),
            }
        }
        // Removal comes first, because it makes space.
        self.below.remove_all(gone)?;
        match self.below.set_all(new)? {
            true => Ok(()),
            false => Err(io::Error::other("the map is full")),
        }
    }
}

#[cfg(test)]
mod tests;
