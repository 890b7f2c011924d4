//! The hash tables of array globals, as key and value bytes. [`ByteTable`] is the interface for the
//! rest of the runtime. [`HostTables`] is what a host gives out: a kernel gives its maps, a simulated host plain memory.

use std::io;

use spile_layout::ThreadField;
use spile_layout::critical::CriticalLayout;

use crate::error::Error;
use crate::shared::grace::GracePeriod;
use crate::shared::state::{HostMemory, word_of};

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

/// Tables, memory and code of a started program, by which the controller reads what handlers write.
pub trait HostTables {
    /// A hash table of the layout.
    ///
    /// # Errors
    /// There is no such table, or this process has no descriptor left.
    fn table(&self, name: &str) -> Result<Box<dyn ByteTable>, Error>;

    /// The elements of an array of the layout.
    ///
    /// # Errors
    /// The same as for [`HostTables::table`].
    fn memory(&self, name: &str) -> Result<HostMemory, Error>;

    /// The controller's critical section; `None` if the host refused it.
    ///
    /// # Errors
    /// This process has no descriptor left.
    fn critical_section(&self, layout: &CriticalLayout) -> Result<Option<SectionRunner>, Error>;

    /// How to wait for handlers that are running.
    fn grace_period(&self) -> GracePeriod;
}

/// Has the host run the critical section once. The parameters are the number of attempts so far and the request
/// ([`spile_layout::critical::request`]); the result is its answer, or `None` where it never runs.
pub type SectionRunner = Box<dyn Fn(usize, &mut [u64]) -> Option<i32>>;

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
        let offset = self.field.offset as usize;
        let is_present = word_of(record, 0) & self.presence_bit() != 0;
        record
            .get(offset..offset + 8)
            .filter(|_| is_present)
            .map(<[u8]>::to_vec)
    }

    /// The record with the field replaced; `None` if no field is left.
    fn with_field(&self, record: Option<Vec<u8>>, value: Option<&[u8]>) -> Option<Vec<u8>> {
        let mut record = record.unwrap_or_else(|| vec![0; self.field.record as usize]);
        let presence = word_of(&record, 0);
        let presence = match value {
            Some(_) => presence | self.presence_bit(),
            None => presence & !self.presence_bit(),
        };
        let offset = self.field.offset as usize;
        record
            .get_mut(..8)?
            .copy_from_slice(&presence.to_ne_bytes());
        let word = record.get_mut(offset..offset + 8)?;
        match value.filter(|v| v.len() == 8) {
            Some(value) => word.copy_from_slice(value),
            None => word.fill(0),
        }
        (presence != 0).then_some(record)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::tests::PlainMap;

    #[test]
    fn fields_share_records() {
        let records = || -> Box<dyn ByteTable> {
            Box::new(PlainMap {
                max: 2,
                ..PlainMap::default()
            })
        };
        let field = |bit: u32| ThreadField {
            offset: 8 + 8 * bit,
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
}
