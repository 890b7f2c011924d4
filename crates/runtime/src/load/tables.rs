//! The maps of a loaded object as the controller's tables, and its critical section.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use spile_bpf::compiled::CRITICAL_PROGRAM;
use spile_kernel::bpf::{BpfError, Errno, Map, test_run};
use spile_kernel::machine::online_cpus;
use spile_layout::critical::CriticalLayout;

use crate::error::{Error, to_io_error};
use crate::load::LoadedObject;
use crate::shared::grace::GracePeriod;
use crate::shared::maps::{ByteTable, Entries, HostTables, SectionRunner};
use crate::shared::state::HostMemory;

impl HostTables for LoadedObject {
    fn table(&self, name: &str) -> Result<Box<dyn ByteTable>, Error> {
        let map = KernelMap::new(self.map_fd(name)?);
        Ok(Box::new(
            map.map_err(|e| Error::System("opening a map", e))?,
        ))
    }

    fn memory(&self, name: &str) -> Result<HostMemory, Error> {
        self.map_fd(name).map(HostMemory::from)
    }

    fn critical_section(&self, layout: &CriticalLayout) -> Result<Option<SectionRunner>, Error> {
        let Some(program) = self.programs.get(CRITICAL_PROGRAM) else {
            return Ok(None);
        };
        let program = program.try_clone();
        let critical = CriticalProgram {
            program: program.map_err(|e| Error::System("duplicating a program", e))?,
            interrupts_off: layout.interrupts_off,
            cpus: online_cpus(),
        };
        Ok(Some(Box::new(move |turn, request| {
            critical.run(turn, request)
        })))
    }

    fn grace_period(&self) -> GracePeriod {
        GracePeriod::choose()
    }
}

/// The program of the critical section.
struct CriticalProgram {
    program: OwnedFd,
    /// Whether it turns interrupts off itself.
    interrupts_off: bool,
    cpus: Vec<u32>,
}

impl CriticalProgram {
    /// Has the kernel run the program once, on another processor if necessary; returns its answer.
    fn run(&self, turn: usize, request: &mut [u64]) -> Option<i32> {
        let cpu = match self.interrupts_off {
            true => None,
            false => self.other_processor(turn),
        };
        match test_run(self.program.as_fd(), request, cpu) {
            Ok(result) => Some(result.retval.cast_signed()),
            // The other processor went offline.
            Err(e) if e.errno() == Some(Errno::NXIO) => Some(0),
            Err(_) => None,
        }
    }

    /// The processor after this one, or a later one. If this thread moves there before the kernel
    /// compares, the program runs with interrupts on: still correct, but a handler may have to
    /// wait.
    fn other_processor(&self, turn: usize) -> Option<u32> {
        // SAFETY: the call has no preconditions.
        let this_processor = unsafe { libc::sched_getcpu() };
        let others = self
            .cpus
            .iter()
            .filter(|c| i64::from(**c) != i64::from(this_processor));
        let others: Vec<u32> = others.copied().collect();
        let next = others
            .iter()
            .position(|c| i64::from(*c) > i64::from(this_processor));
        others
            .get((next.unwrap_or(0) + turn) % others.len().max(1))
            .copied()
    }
}

/// A map of the kernel.
pub struct KernelMap {
    map: Map<OwnedFd>,
    /// Buffers for a batch of keys and values, reused from one batch to the next, so that no memory
    /// is allocated while locks are held.
    batch: (Vec<u8>, Vec<u8>),
}

/// Limits on the elements and bytes of one batch, which bound the memory for a large array.
const BATCH: usize = 4096;
/// Elements of the first batch: most tables have few, and the memory of a large batch costs more than they do.
const FIRST_BATCH: usize = 64;
const BATCH_BYTES: usize = 2 << 20;

impl KernelMap {
    /// The map behind a descriptor.
    pub fn new(fd: OwnedFd) -> io::Result<KernelMap> {
        Ok(KernelMap {
            map: Map::new(fd).map_err(to_io_error)?,
            batch: Default::default(),
        })
    }

    /// Fetches all elements in batches; removes them if `delete` is set.
    fn fetch(&mut self, delete: bool) -> io::Result<Entries> {
        let (key_len, value_len) = (self.map.key_len(), self.map.value_len());
        let most = self.map.info().max_entries as usize;
        let largest = (BATCH_BYTES / (key_len + value_len).max(1)).clamp(FIRST_BATCH, BATCH);
        // A whole bucket must fit; ENOSPC asks for a larger buffer.
        let mut size = FIRST_BATCH;
        let (mut entries, mut cursor) = (Vec::new(), Vec::new());
        loop {
            let (keys, values) = &mut self.batch;
            keys.resize(size * key_len, 0);
            values.resize(size * value_len, 0);
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
                    size = largest.max(size);
                }
                Err(e) if is_errno(&e, Errno::NOSPC) && size <= most.max(FIRST_BATCH) => size *= 2,
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
        let is_present = self.map.lookup(key, &mut value).map_err(to_io_error)?;
        Ok(is_present.then_some(value))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::state::word_of;
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
