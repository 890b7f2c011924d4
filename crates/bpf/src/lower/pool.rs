//! The constants, subprograms and record shapes that all code of an object shares.

use std::collections::{BTreeMap, HashMap};

use spile_lir::{Module, library};

use crate::emit::{CpuBlocks, Surroundings, emit};
use crate::isa::asm::Function;
use crate::layout::RecordShape;
use crate::plan::StateLayout;

/// Length in bytes of the runs of zeros and of spaces: the largest width of a string.
pub(crate) const RUN: u32 = 4104;

/// The shared items of an object, each created at its first use.
#[derive(Default)]
pub(crate) struct Pool {
    /// The content of `.rodata`.
    pub rodata: Vec<u8>,
    constants: HashMap<Vec<u8>, u32>,
    tables: HashMap<(u32, u32), u32>,
    /// Subprograms by name.
    pub subs: BTreeMap<String, Function>,
    /// Shapes of ring-buffer records; the index is the record's number.
    pub records: Vec<RecordShape>,
    record_index: HashMap<String, u32>,
    /// The functions that are made from LIR.
    pub lir: Module,
}

impl Pool {
    /// Offset in `.rodata` of these bytes, padded with zeros to a multiple of 8, with at least one
    /// zero.
    pub(crate) fn constant(&mut self, bytes: &[u8]) -> u32 {
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

    /// Offset in `.rodata` of [`RUN`] bytes of value `byte`.
    pub(crate) fn byte_run(&mut self, byte: u8) -> u32 {
        self.constant(&[byte; RUN as usize])
    }

    /// Offset in `.rodata` of a table of strings, each `width` bytes long.
    pub(crate) fn table<'b>(
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

    /// Index of a record shape. Equal shapes share an index.
    pub(crate) fn record(&mut self, shape: RecordShape) -> u32 {
        let key = format!("{shape:?}");
        let next = self.records.len() as u32;
        *self.record_index.entry(key).or_insert_with(|| {
            self.records.push(shape);
            next
        })
    }

    /// Defines a function of the run-time library that is the same for all callers.
    pub(crate) fn library(&mut self, name: &str) -> Result<(), String> {
        if self.subs.contains_key(name) {
            return Ok(());
        }
        let module = library::only(name).ok_or_else(|| format!("the library has no {name}"))?;
        self.made(module).map(drop)
    }

    /// Defines the only function of a module of LIR, those of its loops, and its constants, unless the
    /// object has it; returns its name.
    pub(crate) fn made(&mut self, module: Module) -> Result<String, String> {
        let name = module.funcs.first().map(|f| f.name.clone());
        let name = name.ok_or("a module without a function")?;
        if self.subs.contains_key(&name) {
            return Ok(name);
        }
        self.define(module, None)?;
        Ok(name)
    }

    fn define(&mut self, module: Module, cpu_blocks: Option<CpuBlocks>) -> Result<(), String> {
        let data = module.data.iter();
        let around = Surroundings {
            data: data
                .map(|d| (d.name.clone(), self.constant(&d.bytes)))
                .collect(),
            cpu_blocks,
        };
        let functions = emit(&module, &around).map_err(|e| e.to_string())?;
        for data in module.data {
            if self.lir.data(&data.name).is_none() {
                self.lir.data.push(data);
            }
        }
        for declared in module.externs {
            if !self.lir.externs.contains(&declared) {
                self.lir.externs.push(declared);
            }
        }
        self.lir.funcs.extend(module.funcs);
        for function in functions {
            self.subs.insert(function.name.clone(), function);
        }
        Ok(())
    }

    /// Defines the functions of a module as global subprograms, which find the processor's block
    /// themselves, and the steps of their loops.
    pub(crate) fn global_functions(
        &mut self,
        module: Module,
        plan: &StateLayout,
    ) -> Result<(), String> {
        let names: Vec<String> = module.funcs.iter().map(|f| f.name.clone()).collect();
        self.define(module, Some(plan.cpu_blocks()))?;
        for name in names {
            if let Some(function) = self.subs.get_mut(&name) {
                function.separate = true;
            }
        }
        Ok(())
    }

    /// Defines the subprogram `name` unless the object has it.
    pub(crate) fn sub(
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
