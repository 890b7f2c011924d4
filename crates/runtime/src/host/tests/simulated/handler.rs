//! Runs one handler in the interpreter, as the kernel runs its program: values go where the layout says, and
//! all output of a run is one record.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use spile_ir::interp::{self, Cell, Element, Env, Fault, Globals, ScriptError, Value};
use spile_ir::intrinsics::Intrinsic;
use spile_ir::stats::Stat;
use spile_ir::{FormatId, GlobalId, HandlerId, Program, Space, Stream};
use spile_layout::{
    ErrorKind, GlobalLocation, PerCpuArray, RecordKind, SEQUENCE, counters, shared,
};

use super::{Process, Tables};
use crate::controller::globals::{MarkTexts, SessionGlobals};
use crate::shared::kernel_state::KernelState;
use crate::shared::maps::ByteTable;
use crate::shared::ring_record::FieldValue;
use crate::shared::state::{StateMemory, cell_bytes, key_bytes, read_cell, word_of};

/// The handlers of a program, with the memory that they share with the controller.
pub(super) struct Handlers {
    globals: HandlerGlobals,
}

impl Handlers {
    /// `view` is memory that the controller has as well.
    pub(super) fn new(program: Rc<Program>, view: KernelState, tables: Tables) -> Handlers {
        let texts = MarkTexts::of_strings(program.limits.maxstringlen as usize);
        let session = SessionGlobals::new(program, Some(view), texts);
        Handlers {
            globals: HandlerGlobals { session, tables },
        }
    }

    /// The state memory.
    pub(super) fn state(&self) -> &StateMemory {
        self.globals.memory().state()
    }

    /// Runs a handler; returns its record, if it sends one.
    pub(super) fn run(&mut self, id: HandlerId, process: Process) -> Option<Vec<u8>> {
        let program = Rc::clone(&self.globals.session.program);
        let mut env = HandlerEnv {
            globals: &mut self.globals,
            id,
            process,
            record: Vec::new(),
        };
        if let Err(error) = interp::run(&program, id, &mut env) {
            env.error(&error);
        }
        let pieces = env.record;
        let memory = self.globals.memory();
        if let Some(info) = &memory.layout().handlers[id.index()] {
            let hits = memory.state().cpu(0, info.counters + counters::HITS);
            hits.fetch_add(1, Ordering::Relaxed);
        }
        (!pieces.is_empty()).then(|| {
            let mut record = id.0.to_ne_bytes().to_vec();
            record.extend((8 + pieces.len() as u32).to_ne_bytes());
            record.extend(pieces);
            record
        })
    }
}

/// The globals as handlers of the kernel see them: they add to per-CPU globals, and share the others.
struct HandlerGlobals {
    session: SessionGlobals,
    tables: Tables,
}

impl HandlerGlobals {
    fn memory(&self) -> &KernelState {
        self.session.kernel.as_ref().expect("a view of the memory")
    }

    fn location(&self, g: GlobalId) -> Option<GlobalLocation> {
        let layout = self.memory().layout().globals[g.index()].as_ref();
        layout.map(|l| l.location.clone())
    }

    fn generation(&self, double: bool) -> u32 {
        if double {
            self.memory().state().generation()
        } else {
            0
        }
    }

    /// Adds to a per-CPU global; `false` if it is none.
    fn add(&mut self, g: GlobalId, keys: &[Value], n: i64) -> Result<bool, Fault> {
        match self.location(g) {
            Some(GlobalLocation::PerCpuScalar {
                offset,
                gen_stride,
                value,
            }) => {
                let at = offset + self.generation(gen_stride > 0) * gen_stride;
                let state = self.memory().state();
                let sum = added(state.take(0, at, &value), n);
                for (i, word) in cell_bytes(&sum, &value).chunks_exact(8).enumerate() {
                    let word = u64::from_ne_bytes(word.try_into().expect("eight bytes"));
                    let to = state.cpu(0, at + 8 * i as u32);
                    to.store(word, Ordering::Relaxed);
                }
                Ok(true)
            }
            Some(GlobalLocation::PerCpuArray(array)) => self.add_element(g, &array, keys, n),
            _ => Ok(false),
        }
    }

    /// Adds to an element, in the map behind the cache.
    fn add_element(
        &mut self,
        g: GlobalId,
        array: &PerCpuArray,
        keys: &[Value],
        n: i64,
    ) -> Result<bool, Fault> {
        assert!(array.large.is_none(), "large arrays are not simulated");
        let host = match array.colocated.host.map(|host| self.location(host)) {
            Some(Some(GlobalLocation::PerCpuArray(host))) => host,
            _ => array.clone(),
        };
        let generation = self.generation(host.double());
        let key = key_bytes(&array.keys, keys);
        let table = self.tables.0.get_mut(&host.maps[generation as usize]);
        let table = table.expect("a table for each map");
        let begin = if host.wraps { SEQUENCE as usize } else { 0 };
        let size = host.colocated.size.max(8) as usize;
        let old = table.get(&key).expect("plain memory");
        let mut bytes = old.unwrap_or_else(|| vec![0; begin + size]);
        let at = begin + array.colocated.offset as usize;
        let sum = added(read_cell(&array.value, |o| word_of(&bytes[at..], o)), n);
        let new = cell_bytes(&sum, &array.value);
        bytes[at..at + new.len()].copy_from_slice(&new);
        if !table.set(&key, &bytes).expect("plain memory") {
            let global = &self.session.program.globals[g.index()];
            return Err(interp::overflow(global).into());
        }
        if let Some(at) = host.spilt {
            let spilt = self.memory().state().cpu(0, at + 8 * generation);
            spilt.store(1, Ordering::Relaxed);
        }
        Ok(true)
    }
}

/// The value after an addition.
fn added(cell: Cell, n: i64) -> Cell {
    match cell {
        Cell::Scalar(v) => Cell::Scalar(Value::Long(v.as_long().wrapping_add(n))),
        Cell::Stats(mut stat) => {
            stat.add(None, n);
            Cell::Stats(stat)
        }
    }
}

impl Globals for HandlerGlobals {
    fn gload(&mut self, g: GlobalId) -> Result<Value, Fault> {
        self.session.gload(g)
    }
    fn gstore(&mut self, g: GlobalId, v: Value) -> Result<(), Fault> {
        self.session.gstore(g, v)
    }
    fn gadd(&mut self, g: GlobalId, v: i64) -> Result<i64, Fault> {
        match self.add(g, &[], v)? {
            true => Ok(0),
            false => self.session.gadd(g, v),
        }
    }
    fn aget(&mut self, g: GlobalId, keys: &[Value]) -> Result<Value, Fault> {
        self.session.aget(g, keys)
    }
    fn aset(&mut self, g: GlobalId, keys: &[Value], v: Value) -> Result<(), Fault> {
        self.session.aset(g, keys, v)
    }
    fn aadd(&mut self, g: GlobalId, keys: &[Value], v: i64) -> Result<i64, Fault> {
        match self.add(g, keys, v)? {
            true => Ok(0),
            false => self.session.aadd(g, keys, v),
        }
    }
    fn ahas(&mut self, g: GlobalId, keys: &[Option<Value>]) -> Result<bool, Fault> {
        self.session.ahas(g, keys)
    }
    fn adel(&mut self, g: GlobalId, keys: &[Option<Value>]) -> Result<(), Fault> {
        self.session.adel(g, keys)
    }
    fn gclear(&mut self, g: GlobalId) -> Result<(), Fault> {
        self.session.gclear(g)
    }
    fn stat_add(&mut self, g: GlobalId, keys: &[Value], v: i64) -> Result<(), Fault> {
        match self.add(g, keys, v)? {
            true => Ok(()),
            false => self.session.stat_add(g, keys, v),
        }
    }
    fn stat_get(&mut self, g: GlobalId, keys: &[Value]) -> Result<Option<Stat>, Fault> {
        self.session.stat_get(g, keys)
    }
    fn elements(&mut self, g: GlobalId, slice: &[Option<Value>]) -> Result<Vec<Element>, Fault> {
        self.session.elements(g, slice)
    }
}

/// A run of a handler.
struct HandlerEnv<'h> {
    globals: &'h mut HandlerGlobals,
    id: HandlerId,
    process: Process,
    /// The pieces of its record.
    record: Vec<u8>,
}

impl HandlerEnv<'_> {
    /// Appends a piece of the record's first shape that fits.
    fn send(&mut self, fields: &[FieldValue<'_>], fits: impl Fn(&RecordKind) -> bool) {
        let shapes = &self.globals.memory().layout().records;
        let shape = shapes.iter().position(|shape| fits(&shape.what));
        let shape = shape.expect("a shape for what the handler sends") as u64;
        self.record.extend(shape.to_ne_bytes());
        for field in fields {
            match field {
                FieldValue::Long(n) => self.record.extend(n.to_ne_bytes()),
                FieldValue::Str(text) => {
                    self.record.extend((text.len() as u64).to_ne_bytes());
                    self.record.extend(*text);
                    let padded = self.record.len().next_multiple_of(8);
                    self.record.resize(padded, b'x');
                }
            }
        }
    }

    /// Sends an error that no `catch` of the handler took.
    fn error(&mut self, error: &ScriptError) {
        let program = Rc::clone(&self.globals.session.program);
        let wanted = RecordKind::Error {
            kind: ErrorKind::Raised,
            site: error.site,
            handler: self.id,
        };
        let text = error.message.message().to_vec();
        self.send(&[FieldValue::Str(&text)], |what| *what == wanted);
        let state = self.globals.memory().state();
        let errors = state.shared(shared::ERRORS).fetch_add(1, Ordering::Relaxed) + 1;
        if errors > program.limits.maxerrors {
            state.shared(shared::EXIT).store(1, Ordering::Release);
        }
    }
}

impl Env for HandlerEnv<'_> {
    type Globals = HandlerGlobals;

    fn globals(&mut self) -> &mut HandlerGlobals {
        self.globals
    }

    fn intrinsic(&mut self, f: Intrinsic, _: &[Value]) -> Result<Value, Fault> {
        Ok(match f {
            Intrinsic::Pid | Intrinsic::Tid => Value::Long(self.process.pid),
            Intrinsic::Execname => Value::from(self.process.execname.as_bytes()),
            Intrinsic::Exit => {
                let state = self.globals.memory().state();
                state.shared(shared::EXIT).store(1, Ordering::Release);
                Value::Long(0)
            }
            other => panic!("{} is not simulated", other.info().name),
        })
    }

    fn read_memory(&mut self, _: Space, addr: u64, _: &mut [u8]) -> Result<(), Fault> {
        Err(format!("read fault at {addr:#x}").into())
    }

    fn print_values(&mut self, to: Stream, format: FormatId, values: &[Value]) -> bool {
        let fields: Vec<FieldValue<'_>> = values
            .iter()
            .map(|value| match value {
                Value::Long(n) => FieldValue::Long(*n),
                Value::Str(text) => FieldValue::Str(text),
            })
            .collect();
        let wanted = RecordKind::Print {
            stream: to,
            fmt: format,
        };
        self.send(&fields, |what| *what == wanted);
        true
    }

    fn print(&mut self, _: Stream, _: &[u8]) {
        panic!("texts that a handler makes itself are not simulated");
    }

    fn truncated(&mut self) {
        let state = self.globals.memory().state();
        let cut = state.cpu(0, spile_layout::percpu::TRUNCATED);
        cut.fetch_add(1, Ordering::Relaxed);
    }
}
