//! The tables of an image for the controller. Other processes write them at any time, whatever they like: each index
//! that is read is checked, and each walk ends.
//!
//! How tables work is in [`spile_lir::library::host`]; this is the same in Rust.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use spile_cast::Cast;
use spile_lir::library::host::{hash_of, words};

use crate::memory::MappedImage;

/// Attempts to lock a table, each of which gives the processor to others.
const ATTEMPTS: u32 = 1 << 16;
/// The upper half of the controller's name in a lock: no record has this number.
const CONTROLLER: u64 = 0xffff_ffff << 32;

/// Where the elements of a table lie. Offsets are those of the image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elements {
    pub(crate) entries: usize,
    pub(crate) key: usize,
    /// Bytes of a value, or of all its copies.
    pub(crate) value: usize,
    /// Bytes of a copy, if each record has its own; otherwise 0.
    pub(crate) own: usize,
    pub(crate) stride: usize,
    pub(crate) words: usize,
    pub(crate) cells: usize,
    /// The number of cells, less one.
    pub(crate) mask: usize,
    /// The first element.
    pub(crate) first: usize,
    pub(crate) hash: bool,
}

/// A hash table or an array.
pub struct Table {
    memory: Arc<MappedImage>,
    is: Elements,
}

/// The lock of a table, held.
struct Held<'t>(&'t AtomicU64);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// What a search found.
struct Found {
    /// The cell, and the element's number.
    at: Option<(usize, usize)>,
    /// The first cell that can take the key.
    free: Option<usize>,
    tag: u64,
}

/// The memory is smaller than the table: a mistake of this crate.
fn outside() -> io::Error {
    io::Error::other("a table lies outside of its memory")
}

impl Table {
    pub(crate) fn new(memory: Arc<MappedImage>, is: Elements) -> Table {
        Table { memory, is }
    }

    /// Limit on the number of elements.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.is.entries
    }

    fn word(&self, at: usize) -> io::Result<&AtomicU64> {
        self.memory.word(at).ok_or_else(outside)
    }

    /// A word of the table.
    fn own(&self, word: i16) -> io::Result<&AtomicU64> {
        self.word(self.is.words + word.unsigned_abs() as usize)
    }

    fn cell(&self, position: usize) -> io::Result<&AtomicU64> {
        self.word(self.is.cells + 8 * (position & self.is.mask))
    }

    /// The number in a cell, if it has one.
    fn number(&self, cell: u64) -> Option<usize> {
        let number = usize::try_from(cell & u64::from(u32::MAX)).ok()?;
        (1..=self.is.entries).contains(&number).then_some(number)
    }

    /// Offset of an element's link. Numbers begin with 1.
    fn element(&self, number: usize) -> usize {
        self.is.first + self.is.stride * (number - 1)
    }

    fn key(&self, number: usize) -> io::Result<Vec<u8>> {
        let at = self.element(number) + 8;
        self.memory.read(at, self.is.key).ok_or_else(outside)
    }

    fn value_offset(&self, number: usize) -> usize {
        self.element(number) + 8 + self.is.key
    }

    fn value(&self, number: usize) -> io::Result<Vec<u8>> {
        let at = self.value_offset(number);
        self.memory.read(at, self.is.value).ok_or_else(outside)
    }

    /// Offset of an array's element.
    fn array_element(&self, key: &[u8]) -> Option<usize> {
        let index = u32::from_ne_bytes(key.try_into().ok()?) as usize;
        (index < self.is.entries).then(|| self.is.first + index * self.is.stride)
    }

    /// The key, if it has the table's length.
    fn checked<'k>(&self, key: &'k [u8]) -> io::Result<&'k [u8]> {
        match key.len() == self.is.key {
            true => Ok(key),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn search(&self, key: &[u8]) -> io::Result<Found> {
        let (chunks, _) = self.checked(key)?.as_chunks::<8>();
        let hash = hash_of(chunks.iter().map(|chunk| u64::from_ne_bytes(*chunk)));
        let tag = hash & !u64::from(u32::MAX);
        let (mut at, mut free) = (None, None);
        // The low bits of the hash are those of the first cell's position.
        let first = usize::try_from(hash & self.is.mask as u64).unwrap_or_default();
        for position in first..=first + self.is.mask {
            let cell = self.cell(position)?.load(Ordering::Acquire);
            if matches!(cell, 0 | words::REMOVED) {
                free = free.or(Some(position));
            }
            if cell == 0 {
                break;
            }
            if let Some(number) = self.number(cell)
                && cell & !u64::from(u32::MAX) == tag
                && self.key(number)? == key
            {
                at = Some((position, number));
                break;
            }
        }
        Ok(Found { at, free, tag })
    }

    fn lock(&self) -> io::Result<Held<'_>> {
        let word = self.own(words::LOCK)?;
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let owner = CONTROLLER | u64::from(thread.unsigned_abs());
        for _ in 0..ATTEMPTS {
            let order = (Ordering::Acquire, Ordering::Relaxed);
            if word.compare_exchange(0, owner, order.0, order.1).is_ok() {
                return Ok(Held(word));
            }
            rustix::thread::sched_yield();
        }
        Err(io::Error::new(
            io::ErrorKind::WouldBlock,
            "the table stays locked",
        ))
    }

    /// The value of a key.
    ///
    /// # Errors
    /// The key has another length.
    pub fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        if !self.is.hash {
            let at = self.array_element(key);
            return Ok(at.and_then(|at| self.memory.read(at, self.is.value)));
        }
        let found = self.search(key)?;
        found.at.map(|(_, number)| self.value(number)).transpose()
    }

    /// Sets a value; `Ok(false)` if the table is full.
    ///
    /// # Errors
    /// The key or the value has another length, or the table stays locked.
    pub fn set(&self, key: &[u8], value: &[u8]) -> io::Result<bool> {
        if value.len() != self.is.value {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let write = |at, bytes| self.memory.write(at, bytes).ok_or_else(outside);
        if !self.is.hash {
            let at = self.array_element(key);
            return at.map_or(Ok(false), |at| write(at, value).map(|()| true));
        }
        let _held = self.lock()?;
        let found = self.search(key)?;
        if let Some((_, number)) = found.at {
            write(self.value_offset(number), value)?;
            return Ok(true);
        }
        let (Some(cell), Some(number)) = (found.free, self.take()?) else {
            return Ok(false);
        };
        write(self.element(number) + 8, key)?;
        write(self.value_offset(number), value)?;
        let content = found.tag | number as u64;
        self.cell(cell)?.store(content, Ordering::Release);
        self.own(words::LIVE)?.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// The number of an element that nobody uses.
    fn take(&self) -> io::Result<Option<usize>> {
        let given = self.own(words::GIVEN)?;
        let new = given.load(Ordering::Relaxed).wrapping_add(1);
        if let Some(number) = self.number(new).filter(|n| *n as u64 == new) {
            given.store(new, Ordering::Relaxed);
            return Ok(Some(number));
        }
        let first = self.own(words::FREE_FIRST)?;
        let Some(number) = self.number(first.load(Ordering::Relaxed)) else {
            return Ok(None);
        };
        let next = self.word(self.element(number))?.load(Ordering::Relaxed);
        first.store(next, Ordering::Relaxed);
        if next == 0 {
            self.own(words::FREE_LAST)?.store(0, Ordering::Relaxed);
        }
        Ok(Some(number))
    }

    /// Gives an element back, behind the others.
    fn give(&self, number: usize) -> io::Result<()> {
        let name = number as u64;
        self.word(self.element(number))?.store(0, Ordering::Relaxed);
        let last = self.own(words::FREE_LAST)?;
        match self.number(last.load(Ordering::Relaxed)) {
            Some(before) => self.word(self.element(before))?,
            None => self.own(words::FREE_FIRST)?,
        }
        .store(name, Ordering::Relaxed);
        last.store(name, Ordering::Relaxed);
        self.own(words::LIVE)?.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    /// Removes a key; no error if it is absent.
    ///
    /// # Errors
    /// The key has another length, the table stays locked, or it is an array.
    pub fn remove(&self, key: &[u8]) -> io::Result<()> {
        if !self.is.hash {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let _held = self.lock()?;
        let Some((position, number)) = self.search(key)?.at else {
            return Ok(());
        };
        if self.cell(position + 1)?.load(Ordering::Acquire) == 0 {
            // This one and those in front of it that had elements are empty now, from the last one on.
            for before in 0..=self.is.mask {
                let cell = self.cell(position.wrapping_sub(before))?;
                if before > 0 && cell.load(Ordering::Acquire) != words::REMOVED {
                    break;
                }
                cell.store(0, Ordering::Release);
            }
        } else {
            self.cell(position)?
                .store(words::REMOVED, Ordering::Release);
        }
        self.give(number)
    }

    /// All current elements. What comes or goes meanwhile is among them or not.
    ///
    /// # Errors
    /// None that this interface shows.
    pub fn entries(&self) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        if !self.is.hash {
            let index = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_ne_bytes().to_vec();
            let all = (0..self.is.entries).map(|n| {
                let at = self.is.first + n * self.is.stride;
                let value = self.memory.read(at, self.is.value).ok_or_else(outside)?;
                Ok((index(n), value))
            });
            return all.collect();
        }
        let mut seen = vec![false; self.is.entries + 1];
        let mut all = Vec::new();
        for position in 0..=self.is.mask {
            let cell = self.cell(position)?;
            let content = cell.load(Ordering::Acquire);
            let Some(number) = self.number(content) else {
                continue;
            };
            let entry = (self.key(number)?, self.value(number)?);
            // An element that was given back meanwhile may be half of another one.
            std::sync::atomic::fence(Ordering::Acquire);
            if cell.load(Ordering::Relaxed) == content
                && !std::mem::replace(&mut seen[number], true)
            {
                all.push(entry);
            }
        }
        Ok(all)
    }

    /// Removes and returns all elements.
    ///
    /// # Errors
    /// Those of [`Table::remove`].
    pub fn drain(&self) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let entries = self.entries()?;
        for (key, _) in &entries {
            self.remove(key)?;
        }
        Ok(entries)
    }

    /// Releases the lock of a thread that died, after what it left behind is in order; whether there was one.
    pub(crate) fn recover_dead(&self, alive: impl Fn(u32) -> bool) -> bool {
        self.try_recover(alive).unwrap_or(false)
    }

    fn try_recover(&self, alive: impl Fn(u32) -> bool) -> io::Result<bool> {
        if !self.is.hash {
            return Ok(false);
        }
        let word = self.own(words::LOCK)?;
        let owner = word.load(Ordering::Acquire);
        if owner == 0 || alive(owner.low32()) {
            return Ok(false);
        }
        // The lock stays held: its owner does not release it any more.
        let held = Held(word);
        let mut used = vec![false; self.is.entries + 1];
        for position in 0..=self.is.mask {
            let cell = self.cell(position)?;
            let content = cell.load(Ordering::Acquire);
            match self.number(content) {
                Some(number) if !used[number] => used[number] = true,
                None if matches!(content, 0 | words::REMOVED) => {}
                // Nothing that the library writes.
                _ => cell.store(words::REMOVED, Ordering::Release),
            }
        }
        let last = used.iter().rposition(|used| *used).unwrap_or(0);
        let given = self.own(words::GIVEN)?.load(Ordering::Relaxed);
        let given = self.number(given).map_or(last, |given| given.max(last));
        let live = used.iter().filter(|used| **used).count();
        for (word, value) in [
            (words::GIVEN, given),
            (words::FREE_FIRST, 0),
            (words::FREE_LAST, 0),
        ] {
            self.own(word)?.store(value as u64, Ordering::Relaxed);
        }
        for number in (1..=given).filter(|number| !used[*number]) {
            self.give(number)?;
        }
        // Giving back counts down.
        self.own(words::LIVE)?.store(live as u64, Ordering::Relaxed);
        drop(held);
        Ok(true)
    }
}
