//! The constants, subprograms and record shapes that all code of an object shares.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use spile_cast::Cast;
use spile_ebpf::emit::{CpuBlocks, ObjectSymbols, emit, emit_all, emit_inline, symbol};
use spile_ebpf::isa::asm::AsmFunction;
use spile_ebpf::prebuilt::Blocks;
use spile_ebpf::prebuilt::template::{Template, numbers};
use spile_layout::RecordShape;
use spile_layout::plan::StateLayout;
use spile_lir::Module;
use spile_lir::func::ConstantData;
use spile_lir::library::routine::Routine;

use super::lir_sources::{LirSources, Source};
use crate::error::{LowerError, Res};
use crate::plan::cpu_blocks;
use crate::prebuilt;
use crate::target::Target;

/// Length in bytes of the runs of zeros and of spaces: the largest width of a string.
pub(crate) const RUN: u32 = 4104;

/// The rows of descriptors of system calls' arguments in `.rodata`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SyscallRows {
    /// Their offset.
    pub offset: u32,
    /// Rows by the numbers of calls.
    pub calls: u32,
    /// These and those for values of arguments.
    pub count: u32,
}

/// The shared items of an object, each created at its first use.
#[derive(Default)]
pub(crate) struct Pool {
    /// The content of `.rodata`.
    pub rodata: Vec<u8>,
    /// Offsets of constants. Comparing large ones takes less time than hashing them.
    constants: BTreeMap<Vec<u8>, u32>,
    tables: FxHashMap<(u32, u32), u32>,
    /// Subprograms by name.
    pub subs: BTreeMap<String, AsmFunction>,
    /// Shapes of ring-buffer records; the index is the record's number.
    pub records: Vec<RecordShape>,
    record_index: FxHashMap<String, u32>,
    /// The rows of system calls for their arguments' texts.
    pub syscall_rows: Option<SyscallRows>,
    /// The functions that are made from LIR.
    pub lir: LirSources,
    /// Code of functions that is inserted instead of calls, by name.
    inline: BTreeMap<String, AsmFunction>,
    pending: Vec<Pending>,
    /// Whether the kernel stops open loops itself.
    may_goto: bool,
}

/// Functions of a module that are not emitted yet: [`Pool::subs`] only has their names.
struct Pending {
    /// The module's location among the sources.
    source: usize,
    around: ObjectSymbols,
    /// Those that are global subprograms.
    global: FxHashSet<String>,
}

/// The request for a function of the run-time library that is the same for all callers.
pub(crate) fn common(name: &str) -> Res<Routine> {
    Routine::common(name).ok_or_else(|| LowerError::malformed(format!("the library has no {name}")))
}

impl Pool {
    /// An empty one for a kernel.
    pub(crate) fn new(options: &Target) -> Pool {
        Pool {
            may_goto: options.features.may_goto,
            ..Pool::default()
        }
    }

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
        off.fit::<u32>()
    }

    /// Offset in `.rodata` of [`RUN`] bytes of value `byte`.
    pub(crate) fn byte_run(&mut self, byte: u8) -> u32 {
        self.constant(&[byte; RUN as usize])
    }

    /// Offset in `.rodata` of this number of zero bytes.
    pub(crate) fn zeros(&mut self, bytes: u32) -> u32 {
        match bytes <= RUN {
            true => self.byte_run(0),
            false => self.constant(&vec![0; bytes as usize]),
        }
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
        let next = self.records.len().fit::<u32>();
        *self.record_index.entry(key).or_insert_with(|| {
            self.records.push(shape);
            next
        })
    }

    /// Defines a function of the run-time library that is the same for all callers.
    pub(crate) fn library(&mut self, name: &str) -> Res {
        self.routine(name, None, |_| common(name))
    }

    /// The code of a function of the run-time library, for [`Asm::insert`].
    ///
    /// [`Asm::insert`]: spile_ebpf::isa::asm::Asm::insert
    pub(crate) fn inline(&mut self, name: &str) -> Res<&AsmFunction> {
        if !self.inline.contains_key(name) {
            let module = common(name)?.module(&[]);
            let func = module.funcs.first().ok_or("a module without a function")?;
            let code = emit_inline(func)?;
            self.inline.insert(name.into(), code);
        }
        Ok(&self.inline[name])
    }

    /// [`Pool::routine_with`] no data.
    pub(crate) fn routine(
        &mut self,
        name: &str,
        plan: Option<&StateLayout>,
        make: impl FnOnce(&mut Pool) -> Res<Routine>,
    ) -> Res {
        self.routine_with(name, plan, |pool| Ok((make(pool)?, Vec::new())))
    }

    /// Defines the functions of a request to the run-time library, unless the object has the function
    /// `name` of them. With a plan, they find the per-CPU area themselves and are global
    /// subprograms; the steps of their loops and callbacks cannot be global. The request comes with
    /// the constants that only the caller has.
    pub(crate) fn routine_with(
        &mut self,
        name: &str,
        plan: Option<&StateLayout>,
        make: impl FnOnce(&mut Pool) -> Res<(Routine, Vec<ConstantData>)>,
    ) -> Res {
        if self.subs.contains_key(name) {
            return Ok(());
        }
        let (routine, given) = make(self)?;
        let blocks = plan.map(cpu_blocks);
        match prebuilt::find(&routine, blocks) {
            Some(template) => self.link(template, routine, given, blocks),
            None => {
                self.define(routine.module(&given), blocks);
                Ok(())
            }
        }
    }

    /// Takes the code of a request from its template.
    fn link(
        &mut self,
        template: &'static Template,
        mut routine: Routine,
        given: Vec<ConstantData>,
        blocks: Option<CpuBlocks>,
    ) -> Res {
        let constant = |(name, bytes): &(&'static str, &'static [u8])| {
            let replaced = given.iter().find(|d| d.name == *name);
            let off = self.constant(replaced.map_or(bytes, |d| &d.bytes));
            ((*name).to_owned(), off)
        };
        let data: Vec<(String, u32)> = template.data.iter().map(constant).collect();
        let offsets = data.iter().map(|(_, off)| *off);
        let used = blocks.filter(|_| template.blocks != Blocks::None);
        let numbers = numbers(&mut routine, used, offsets);
        let functions = template.link(&numbers, routine.name().map(|n| &**n));
        let functions = functions.map_err(LowerError::malformed)?;
        if cfg!(debug_assertions) {
            let around = ObjectSymbols {
                data: data.into_iter().collect(),
                cpu_blocks: blocks,
                ..ObjectSymbols::default()
            };
            let emitted = emit(&routine.module(&given), &around)?;
            assert_eq!(functions, emitted, "the template of {routine:?}");
        }
        for (mut function, code) in functions.into_iter().zip(template.functions) {
            function.separate = blocks.is_some() && code.callable;
            self.subs.insert(function.name.clone(), function);
        }
        self.lir.0.push(Source::Routine(routine, given));
        Ok(())
    }

    /// Defines the only function of a module of LIR, those of its loops, and its constants, unless the
    /// object has it; returns its name.
    pub(crate) fn define_module(&mut self, module: Module) -> Res<String> {
        let name = module.funcs.first().map(|f| f.name.clone());
        let name = name.ok_or("a module without a function")?;
        if !self.subs.contains_key(&name) {
            self.define(module, None);
        }
        Ok(name)
    }

    /// Adds the functions of a module, if the object has no subprogram `name` yet. With the plan of the
    /// state they may use the areas of CPUs, and the verifier checks them by themselves.
    pub(crate) fn define_once(
        &mut self,
        name: &str,
        plan: Option<&StateLayout>,
        make: impl FnOnce() -> Module,
    ) -> Res {
        if !self.subs.contains_key(name) {
            let module = make();
            debug_assert!(module.func(name).is_some(), "{name}");
            self.define(module, plan.map(cpu_blocks));
        }
        Ok(())
    }

    /// The code of a program, which is the first function of a module with functions of the kernel that it
    /// may call. The module's other functions become subprograms.
    pub(crate) fn program(
        &mut self,
        module: Module,
        plan: &StateLayout,
        kfuncs: FxHashMap<String, u32>,
    ) -> Res<AsmFunction> {
        let around = ObjectSymbols {
            cpu_blocks: Some(cpu_blocks(plan)),
            kfuncs,
            may_goto: self.may_goto,
            ..ObjectSymbols::default()
        };
        let mut functions = emit(&module, &around)?;
        self.lir.0.push(Source::Module(module));
        let program = functions.drain(..1).next();
        let named = functions.into_iter().map(|f| (f.name.clone(), f));
        self.subs.extend(named);
        program.ok_or_else(|| "a module without a function".into())
    }

    /// Defines the functions of a module. With the processors' blocks they are global subprograms.
    fn define(&mut self, module: Module, cpu_blocks: Option<CpuBlocks>) {
        let data = module.data.iter();
        let around = ObjectSymbols {
            data: data
                .map(|d| (d.name.clone(), self.constant(&d.bytes)))
                .collect(),
            cpu_blocks,
            may_goto: self.may_goto,
            ..ObjectSymbols::default()
        };
        let mut global = FxHashSet::default();
        for func in &module.funcs {
            let name = symbol(&func.name);
            let declared = AsmFunction {
                name: name.clone(),
                ..AsmFunction::default()
            };
            // A callback of a helper cannot be global.
            if cpu_blocks.is_some() && !module.callbacks().any(|callback| callback == func.name) {
                global.insert(name.clone());
            }
            self.subs.insert(name, declared);
        }
        self.pending.push(Pending {
            source: self.lir.0.len(),
            around,
            global,
        });
        self.lir.0.push(Source::Module(module));
    }

    /// Emits the functions that were defined since the last time: together, as processors share them.
    pub(crate) fn emit_pending(&mut self) -> Res {
        let pending = std::mem::take(&mut self.pending);
        let functions = |p: &Pending| match &self.lir.0[p.source] {
            Source::Module(module) => &module.funcs[..],
            Source::Routine(..) => &[],
        };
        let jobs: Vec<_> = pending
            .iter()
            .flat_map(|p| functions(p).iter().map(|f| (f, &p.around)))
            .collect();
        for mut function in emit_all(&jobs)? {
            function.separate = pending.iter().any(|p| p.global.contains(&function.name));
            self.subs.insert(function.name.clone(), function);
        }
        Ok(())
    }
}
