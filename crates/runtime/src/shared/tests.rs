//! Substitutes of what a host gives out, in memory of the test.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use spile_layout::{LargeLayout, Layout};

use crate::error::Error;
use crate::shared::kernel_state::{BoxedTable, KernelState};
use crate::shared::large_arrays::LargeElements;
use crate::shared::maps::{ByteTable, Entries};
use crate::shared::state::{HostMemory, StateMemory};

/// Memory of that many bytes, all zero.
fn memory(bytes: usize) -> HostMemory {
    let fd = memfd_create("test", MemfdFlags::CLOEXEC).expect("a descriptor");
    let bytes = bytes.next_multiple_of(rustix::param::page_size());
    ftruncate(&fd, bytes as u64).expect("memory");
    fd.into()
}

impl StateMemory {
    /// Memory of the right size, all zero.
    pub(crate) fn in_memory(layout: &Layout) -> Result<StateMemory, Error> {
        let bytes = StateMemory::size(layout);
        StateMemory::map(layout, &memory(bytes), bytes)
    }
}

impl KernelState {
    /// Memory of its own, without a host.
    pub(crate) fn in_memory(layout: &Layout, tables: Vec<Vec<BoxedTable>>) -> KernelState {
        let state = StateMemory::in_memory(layout).expect("a layout that fits");
        KernelState::with_tables(Rc::new(state), layout, tables)
    }
}

impl LargeElements {
    /// Elements of one generation, all zero.
    pub(crate) fn in_memory(large: &LargeLayout) -> LargeElements {
        LargeElements::new(memory(large.size() as usize), large, false)
    }
}

/// A table in plain memory.
#[derive(Debug, Default)]
pub(crate) struct PlainMap {
    /// The elements.
    pub(crate) elements: HashMap<Vec<u8>, Vec<u8>>,
    /// Limit on the number of elements.
    pub(crate) max: usize,
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
