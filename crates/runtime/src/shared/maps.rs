//! The hash maps of array globals, as key and value bytes. [`ByteTable`] is the interface for the
//! rest of the runtime: a kernel map, or plain memory in tests.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

use spile_kernel::bpf::{BpfError, Errno, Map};
use spile_layout::ThreadField;

use crate::error::to_io_error;
use crate::shared::state::word_of;

/// Elements as byte strings. The value of a per-CPU map has one value for each possible CPU, one
/// after the other, each padded to a multiple of 8 bytes.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// A hash map from byte strings to byte strings.
pub trait ByteTable {
    /// The value of a key.
    fn get(&mut self, key: &[u8]) -> io::Result<Option<Vec<u8>>>;
    /// Sets a value; `Ok(false)` if the map is full.
    fn set(&mut self, key: &[u8], value: &[u8]) -> io::Result<bool>;
    /// Removes a key; no error if it is absent.
    fn remove(&mut self, key: &[u8]) -> io::Result<()>;
    /// All current elements.
    fn entries(&mut self) -> io::Result<Entries>;
    /// Removes and returns all elements.
    fn drain(&mut self) -> io::Result<Entries> {
        let entries = self.entries()?;
        for (key, _) in &entries {
            self.remove(key)?;
        }
        Ok(entries)
    }
    /// Limit on the number of elements.
    fn capacity(&self) -> usize;
    /// Removes keys.
    fn remove_all(&mut self, keys: Vec<Vec<u8>>) -> io::Result<()> {
        keys.iter().try_for_each(|key| self.remove(key))
    }
    /// Sets values; `Ok(false)` if the map is full.
    fn set_all(&mut self, entries: Entries) -> io::Result<bool> {
        for (key, value) in entries {
            if !self.set(&key, &value)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
    /// From here on the caller is the only user, so that accesses may be buffered.
    fn begin_exclusive(&mut self) {}
    /// Ends [`ByteTable::begin_exclusive`]: writes all changes back.
    fn end_exclusive(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A map of the kernel.
pub struct KernelMap {
    map: Map<OwnedFd>,
    /// Buffers for a batch of keys and values, reused from one batch to the next, so that no memory
    /// is allocated while locks are held.
    room: (Vec<u8>, Vec<u8>),
}

/// Limits on the elements and bytes of one batch, which bound the memory for a large array.
const BATCH: usize = 4096;
const BATCH_BYTES: usize = 2 << 20;

impl KernelMap {
    /// The map behind a descriptor.
    pub fn new(fd: OwnedFd) -> io::Result<KernelMap> {
        Ok(KernelMap {
            map: Map::new(fd).map_err(to_io_error)?,
            room: Default::default(),
        })
    }

    /// Fetches all elements in batches; removes them if `delete` is set.
    fn fetch(&mut self, delete: bool) -> io::Result<Entries> {
        let (key_len, value_len) = (self.map.key_len(), self.map.value_len());
        let most = self.map.info().max_entries as usize;
        // A whole bucket must fit; ENOSPC asks for a larger buffer.
        let mut room = most.clamp(
            64,
            (BATCH_BYTES / (key_len + value_len).max(1)).clamp(64, BATCH),
        );
        let (mut entries, mut cursor) = (Vec::new(), Vec::new());
        loop {
            let (keys, values) = &mut self.room;
            keys.resize(room * key_len, 0);
            values.resize(room * value_len, 0);
            match self.map.batch(&mut cursor, keys, values, delete) {
                Ok(batch) => {
                    let pairs = keys
                        .chunks_exact(key_len)
                        .zip(values.chunks_exact(value_len));
                    let pairs = pairs.take(batch.count);
                    entries.extend(pairs.map(|(k, v)| (k.to_vec(), v.to_vec())));
                    if batch.done {
                        return Ok(entries);
                    }
                }
                Err(e) if is_errno(&e, Errno::NOSPC) && room <= most.max(64) => room *= 2,
                Err(e) => return Err(to_io_error(e)),
            }
        }
    }
}

/// Whether the error has this number.
fn is_errno(e: &BpfError, number: Errno) -> bool {
    matches!(e, BpfError::Call { errno, .. } if *errno == number)
}

impl ByteTable for KernelMap {
    fn get(&mut self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let mut value = vec![0u8; self.map.value_len()];
        let found = self.map.lookup(key, &mut value).map_err(to_io_error)?;
        Ok(found.then_some(value))
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> io::Result<bool> {
        match self.map.update(key, value, 0) {
            Ok(()) => Ok(true),
            Err(e) if is_errno(&e, Errno::TOOBIG) => Ok(false),
            Err(e) => Err(to_io_error(e)),
        }
    }

    fn remove(&mut self, key: &[u8]) -> io::Result<()> {
        self.map.delete(key).map(drop).map_err(to_io_error)
    }

    fn entries(&mut self) -> io::Result<Entries> {
        self.fetch(false)
    }

    fn drain(&mut self) -> io::Result<Entries> {
        self.fetch(true)
    }

    fn capacity(&self) -> usize {
        self.map.info().max_entries as usize
    }

    fn remove_all(&mut self, mut keys: Vec<Vec<u8>>) -> io::Result<()> {
        while !keys.is_empty() {
            let batch = self.map.delete_batch(&keys.concat()).map_err(to_io_error)?;
            // An absent key ends the batch.
            let done = match batch.done {
                true => keys.len(),
                false => (batch.count + 1).min(keys.len()),
            };
            keys.drain(..done);
        }
        Ok(())
    }

    fn set_all(&mut self, entries: Entries) -> io::Result<bool> {
        if entries.is_empty() {
            return Ok(true);
        }
        let (keys, values): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
        match self.map.update_batch(&keys.concat(), &values.concat()) {
            Ok(()) => Ok(true),
            Err(e) if is_errno(&e, Errno::TOOBIG) => Ok(false),
            Err(e) => Err(to_io_error(e)),
        }
    }
}

/// An array that is a field of thread records, as a table. No kernel handler accesses it in the
/// meantime.
pub struct FieldTable {
    /// The records.
    pub records: Box<dyn ByteTable>,
    /// The field.
    pub field: ThreadField,
}

impl FieldTable {
    fn presence_bit(&self) -> u64 {
        1 << self.field.bit
    }

    /// The field's value, if it is present in the record.
    fn field_value(&self, record: &[u8]) -> Option<Vec<u8>> {
        let at = self.field.at as usize;
        let there = word_of(record, 0) & self.presence_bit() != 0;
        record.get(at..at + 8).filter(|_| there).map(<[u8]>::to_vec)
    }

    /// The record with the field replaced; `None` if no field is left.
    fn with_field(&self, record: Option<Vec<u8>>, value: Option<&[u8]>) -> Option<Vec<u8>> {
        let mut record = record.unwrap_or_else(|| vec![0; self.field.record as usize]);
        let there = word_of(&record, 0);
        let there = match value {
            Some(_) => there | self.presence_bit(),
            None => there & !self.presence_bit(),
        };
        let at = self.field.at as usize;
        record.get_mut(..8)?.copy_from_slice(&there.to_ne_bytes());
        let word = record.get_mut(at..at + 8)?;
        match value.filter(|v| v.len() == 8) {
            Some(value) => word.copy_from_slice(value),
            None => word.fill(0),
        }
        (there != 0).then_some(record)
    }
}

impl ByteTable for FieldTable {
    fn get(&mut self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        Ok(self
            .records
            .get(key)?
            .and_then(|record| self.field_value(&record)))
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> io::Result<bool> {
        let record = self.records.get(key)?;
        match self.with_field(record, Some(value)) {
            Some(record) => self.records.set(key, &record),
            None => Ok(true),
        }
    }

    fn remove(&mut self, key: &[u8]) -> io::Result<()> {
        let Some(record) = self.records.get(key)? else {
            return Ok(());
        };
        match self.with_field(Some(record), None) {
            Some(record) => self.records.set(key, &record).map(drop),
            None => self.records.remove(key),
        }
    }

    fn entries(&mut self) -> io::Result<Entries> {
        let records = self.records.entries()?.into_iter();
        Ok(records
            .filter_map(|(key, record)| Some((key, self.field_value(&record)?)))
            .collect())
    }

    fn capacity(&self) -> usize {
        self.records.capacity()
    }
}

/// A table in plain memory, for programs without kernel handlers and for tests.
#[derive(Debug, Default)]
pub struct PlainMap {
    /// The elements.
    pub elements: HashMap<Vec<u8>, Vec<u8>>,
    /// Limit on the number of elements.
    pub max: usize,
}

impl ByteTable for PlainMap {
    fn get(&mut self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        Ok(self.elements.get(key).cloned())
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> io::Result<bool> {
        let fits = self.elements.contains_key(key) || self.elements.len() < self.max;
        if fits {
            self.elements.insert(key.to_vec(), value.to_vec());
        }
        Ok(fits)
    }

    fn remove(&mut self, key: &[u8]) -> io::Result<()> {
        self.elements.remove(key);
        Ok(())
    }

    fn entries(&mut self) -> io::Result<Entries> {
        Ok(self
            .elements
            .iter()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect())
    }

    fn drain(&mut self) -> io::Result<Entries> {
        Ok(self.elements.drain().collect())
    }

    fn capacity(&self) -> usize {
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spile_kernel::bpf::{MapAttr, map_create, map_type};
    use spile_kernel::machine::possible_cpus;

    /// Creates a map; the test is skipped if BPF is not allowed.
    fn new(ty: u32, value_size: u32, max_entries: u32) -> KernelMap {
        /// `BPF_F_NO_PREALLOC`
        const NO_PREALLOC: u32 = 1;
        let flags = NO_PREALLOC;
        let spec = MapAttr {
            ty,
            key_size: 8,
            value_size,
            max_entries,
            flags,
            name: "test",
            types: None,
        };
        match map_create(&spec) {
            Ok(fd) => KernelMap::new(fd).unwrap(),
            Err(e) => spile_testing::skip(e),
        }
    }

    #[test]
    fn fields_share_records() {
        let records = || -> Box<dyn ByteTable> {
            Box::new(PlainMap {
                max: 2,
                ..PlainMap::default()
            })
        };
        let field = |bit: u32| ThreadField {
            at: 8 + 8 * bit,
            bit,
            record: 24,
            front: None,
        };
        let mut first = FieldTable {
            records: records(),
            field: field(0),
        };
        let word = |n: u64| n.to_ne_bytes().to_vec();
        assert!(first.set(&word(1), &word(0)).unwrap());
        assert_eq!(first.get(&word(1)).unwrap(), Some(word(0)));
        // Another field of the same records.
        let mut second = FieldTable {
            records: first.records,
            field: field(1),
        };
        assert_eq!(second.get(&word(1)).unwrap(), None);
        assert!(second.entries().unwrap().is_empty());
        assert!(second.set(&word(1), &word(5)).unwrap());
        assert!(second.set(&word(2), &word(6)).unwrap());
        assert!(!second.set(&word(3), &word(7)).unwrap());
        assert_eq!(second.entries().unwrap().len(), 2);
        assert_eq!(second.drain().unwrap().len(), 2);
        // A record without fields is deleted, one with another field is not.
        assert_eq!(second.records.entries().unwrap().len(), 1);
        second.field = field(0);
        second.remove(&word(1)).unwrap();
        second.remove(&word(9)).unwrap();
        assert!(second.records.entries().unwrap().is_empty());
    }

    #[test]
    fn elements_come_and_go() {
        let mut map = new(map_type::HASH, 16, 10_000);
        let value = |i: u64| [i.to_ne_bytes(), (i * 2).to_ne_bytes()].concat();
        for i in 0..10_000u64 {
            assert!(map.set(&i.to_ne_bytes(), &value(i)).unwrap());
        }
        assert!(!map.set(&10_000u64.to_ne_bytes(), &value(1)).unwrap());
        assert_eq!(map.get(&7u64.to_ne_bytes()).unwrap(), Some(value(7)));
        map.remove(&7u64.to_ne_bytes()).unwrap();
        map.remove(&7u64.to_ne_bytes()).unwrap();
        assert_eq!(map.get(&7u64.to_ne_bytes()).unwrap(), None);
        assert!(map.get(b"short").is_err());
        let mut all = map.entries().unwrap();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 9_999);
        assert_eq!(map.drain().unwrap().len(), 9_999);
        assert!(map.entries().unwrap().is_empty());
    }

    #[test]
    fn entries_are_set_and_read_in_batches() {
        let mut map = new(map_type::HASH, 8, 100);
        let key = |i: u64| i.to_ne_bytes().to_vec();
        let entries = |range: std::ops::Range<u64>| range.map(|i| (key(i), key(2 * i))).collect();
        assert_eq!(map.capacity(), 100);
        assert!(map.set_all(entries(0..60)).unwrap());
        assert!(map.set_all(entries(50..100)).unwrap());
        assert!(!map.set_all(entries(100..101)).unwrap());
        assert!(map.set_all(Vec::new()).unwrap());
        // Absent keys, first, last and in between, do not end the removal.
        let gone = [200, 7, 201, 202, 8, 9, 203];
        map.remove_all(gone.map(key).to_vec()).unwrap();
        map.remove_all(Vec::new()).unwrap();
        let mut left = map.entries().unwrap();
        left.sort_by_key(|(k, _)| word_of(k, 0));
        let expected: Entries = (0..100)
            .filter(|i| !gone.contains(i))
            .map(|i| (key(i), key(2 * i)))
            .collect();
        assert_eq!(left, expected);
    }

    #[test]
    fn per_cpu_maps_give_all_copies() {
        let mut map = new(map_type::PERCPU_HASH, 12, 300);
        let copies = possible_cpus().len() * 16;
        for i in 0..300u64 {
            assert!(map.set(&i.to_ne_bytes(), &vec![i as u8; copies]).unwrap());
        }
        let all = map.drain().unwrap();
        assert_eq!(all.len(), 300);
        assert!(all.iter().all(|(_, v)| v.len() == copies));
        assert!(map.drain().unwrap().is_empty());
    }
}
