//! What all code of an object shares: constants, subprograms, shapes of records.

use std::collections::{BTreeMap, HashMap};

use crate::isa::asm::Function;
use crate::layout::RecordShape;

/// Bytes of the run of zeros, and of spaces: a string's longest width.
pub(crate) const RUN: u32 = 4104;

/// The shared things, made when first asked for.
#[derive(Default)]
pub(crate) struct Pool {
    /// `.rodata`.
    pub rodata: Vec<u8>,
    constants: HashMap<Vec<u8>, u32>,
    tables: HashMap<(u32, u32), u32>,
    /// Subprograms by name.
    pub subs: BTreeMap<String, Function>,
    /// Shapes of records.
    pub records: Vec<RecordShape>,
    record_index: HashMap<String, u32>,
}

impl Pool {
    /// Offset of these bytes, padded with zeros to a multiple of 8, with at least one.
    pub fn constant(&mut self, bytes: &[u8]) -> u32 {
        if let Some(off) = self.constants.get(bytes) {
            return *off;
        }
        let off = self.append(bytes);
        self.constants.insert(bytes.to_vec(), off);
        off
    }

    fn append(&mut self, bytes: &[u8]) -> u32 {
        let off = self.rodata.len();
        self.rodata.extend_from_slice(bytes);
        let end = off + bytes.len() / 8 * 8 + 8;
        self.rodata.resize(end, 0);
        off as u32
    }

    /// Offset of [`RUN`] bytes of that value.
    pub fn run(&mut self, byte: u8) -> u32 {
        self.constant(&[byte; RUN as usize])
    }

    /// Offset of a table of strings, each in `width` bytes.
    pub fn table<'b>(
        &mut self,
        id: u32,
        width: u32,
        entries: impl Iterator<Item = &'b [u8]>,
    ) -> u32 {
        if let Some(off) = self.tables.get(&(id, width)) {
            return *off;
        }
        let mut bytes = Vec::new();
        for entry in entries {
            let end = bytes.len() + width as usize;
            bytes.extend(entry.iter().take(width as usize - 1));
            bytes.resize(end, 0);
        }
        let off = self.append(&bytes);
        self.tables.insert((id, width), off);
        off
    }

    /// Index of a shape, which is known by its text.
    pub fn record(&mut self, shape: RecordShape) -> u32 {
        let key = format!("{shape:?}");
        let next = self.records.len() as u32;
        *self.record_index.entry(key).or_insert_with(|| {
            self.records.push(shape);
            next
        })
    }

    /// Makes sure of a subprogram.
    pub fn sub(
        &mut self,
        name: &str,
        make: impl FnOnce(&mut Pool) -> Result<Function, String>,
    ) -> Result<(), String> {
        if !self.subs.contains_key(name) {
            let function = make(self)?;
            self.subs.insert(name.into(), function);
        }
        Ok(())
    }
}
