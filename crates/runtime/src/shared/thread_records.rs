//! Thread records, most of them in the shared area (see [`ThreadSlots`]), as one table. No kernel
//! handler accesses them in the meantime.

use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use spile_layout::ThreadSlots;

use crate::shared::maps::{ByteTable, Entries};
use crate::shared::state::{StateMemory, word_of};

/// The table of thread records.
pub(crate) struct ThreadRecords {
    front: ThreadSlots,
    state: Rc<StateMemory>,
    /// Records of threads whose slot another thread occupies.
    map: Box<dyn ByteTable>,
}

impl ThreadRecords {
    /// The records in the shared area and in a map.
    pub(crate) fn new(
        front: ThreadSlots,
        state: Rc<StateMemory>,
        map: Box<dyn ByteTable>,
    ) -> ThreadRecords {
        ThreadRecords { front, state, map }
    }

    /// Bytes of a record.
    fn bytes(&self) -> u32 {
        self.front.stride - 8
    }

    fn owner(&self, slot: u32) -> &AtomicU64 {
        self.state.shared(slot + self.bytes())
    }

    /// The slot of a thread, if its record is in it.
    fn slot(&self, key: &[u8]) -> Option<u32> {
        let thread = word_of(key, 0);
        let slot = self.front.slot(thread);
        let owner = self.owner(slot).load(Ordering::Acquire);
        (owner == ThreadSlots::owner(thread)).then_some(slot)
    }

    fn read(&self, slot: u32) -> Vec<u8> {
        let words = (0..self.bytes()).step_by(8);
        let word = |offset| self.state.shared(slot + offset).load(Ordering::Relaxed);
        words
            .flat_map(|offset| word(offset).to_ne_bytes())
            .collect()
    }

    fn write(&self, slot: u32, record: &[u8]) {
        for offset in (0..self.bytes()).step_by(8) {
            let word = self.state.shared(slot + offset);
            word.store(word_of(record, offset), Ordering::Relaxed);
        }
    }

    fn overflow_count(&self) -> &AtomicU64 {
        self.state.shared(self.front.spilt)
    }
}

impl ByteTable for ThreadRecords {
    fn get(&mut self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        match self.slot(key) {
            Some(slot) => Ok(Some(self.read(slot))),
            None if self.overflow_count().load(Ordering::Acquire) == 0 => Ok(None),
            None => self.map.get(key),
        }
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> io::Result<bool> {
        if let Some(slot) = self.slot(key) {
            self.write(slot, value);
            return Ok(true);
        }
        let thread = word_of(key, 0);
        let slot = self.front.slot(thread);
        let is_present = self.get(key)?.is_some();
        if !is_present && self.owner(slot).load(Ordering::Acquire) == 0 {
            self.write(slot, value);
            self.owner(slot)
                .store(ThreadSlots::owner(thread), Ordering::Release);
            return Ok(true);
        }
        let fits = self.map.set(key, value)?;
        if fits && !is_present {
            self.overflow_count().fetch_add(1, Ordering::AcqRel);
        }
        Ok(fits)
    }

    fn remove(&mut self, key: &[u8]) -> io::Result<()> {
        if let Some(slot) = self.slot(key) {
            self.write(slot, &[]);
            self.owner(slot).store(0, Ordering::Release);
        } else if self.get(key)?.is_some() {
            self.map.remove(key)?;
            self.overflow_count().fetch_sub(1, Ordering::AcqRel);
        }
        Ok(())
    }

    fn entries(&mut self) -> io::Result<Entries> {
        let slots = (0..self.front.slots).map(|n| self.front.offset + n * self.front.stride);
        let mut entries: Entries = slots
            .filter_map(|slot| {
                let thread = self.owner(slot).load(Ordering::Acquire).checked_sub(1)?;
                Some((thread.to_ne_bytes().to_vec(), self.read(slot)))
            })
            .collect();
        if self.overflow_count().load(Ordering::Acquire) > 0 {
            entries.extend(self.map.entries()?);
        }
        Ok(entries)
    }

    fn capacity(&self) -> usize {
        self.map.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::tests::PlainMap;
    use spile_layout::{Layout, shared};

    fn records() -> ThreadRecords {
        let front = ThreadSlots {
            offset: shared::END + 64,
            slots: 4,
            stride: 24,
            spilt: shared::END,
            lent: 0,
        };
        let layout = Layout {
            shared_size: shared::END + 256,
            cpu_stride: 2048,
            cpus: 2,
            ..Layout::default()
        };
        let map = Box::new(PlainMap {
            max: 2,
            ..PlainMap::default()
        });
        let state = StateMemory::in_memory(&layout).expect("a layout that fits");
        ThreadRecords::new(front, Rc::new(state), map)
    }

    #[test]
    fn threads_with_the_same_slot_have_records_of_their_own() {
        let mut all = records();
        let key = |n: u64| n.to_ne_bytes();
        let record = |n: u64| [n.to_ne_bytes(), (10 * n).to_ne_bytes()].concat();
        // Threads 1, 5, 9 and 13 have the same slot, and the map has space for two; 0 has a slot of
        // its own.
        for n in [0, 1, 5, 9] {
            assert!(all.set(&key(n), &record(n)).unwrap());
        }
        assert!(!all.set(&key(13), &record(13)).unwrap());
        for n in [0, 1, 5, 9] {
            assert_eq!(all.get(&key(n)).unwrap(), Some(record(n)));
        }
        assert_eq!(all.get(&key(13)).unwrap(), None);
        // The slot is free, but the record of thread 5 stays in the map.
        all.remove(&key(1)).unwrap();
        all.set(&key(5), &record(6)).unwrap();
        assert_eq!(all.get(&key(5)).unwrap(), Some(record(6)));
        assert!(all.set(&key(13), &record(13)).unwrap());
        let mut found: Vec<u64> = all
            .entries()
            .unwrap()
            .iter()
            .map(|(k, _)| word_of(k, 0))
            .collect();
        found.sort_unstable();
        assert_eq!(found, [0, 5, 9, 13]);
        assert_eq!(all.drain().unwrap().len(), 4);
        assert!(all.entries().unwrap().is_empty());
        assert_eq!(all.overflow_count().load(Ordering::Relaxed), 0);
    }
}
