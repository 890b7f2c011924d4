//! Runs the same program in the interpreter.

use spile_ir::interp::{
    self, Cell, Element, Env, Fault, Globals, MemGlobals, Value, testenv::TestEnv,
};
use spile_ir::intrinsics::Intrinsic;
use spile_ir::stats::Stat;
use spile_ir::{GlobalId, GlobalKind, HandlerId, Program, Space, Stream};

use crate::machine::{Contents, Outcome, overflow};

/// The prefix of a stream's output in tests.
pub(crate) fn mark(stream: Stream) -> &'static [u8] {
    match stream {
        Stream::Out => b"",
        Stream::Warn => b"<warn>",
        Stream::System => b"<system>",
        Stream::NextFile => b"<next file>",
    }
}

/// The test environment, with the names of globals in messages and the event's arguments.
pub(crate) struct World<'p> {
    program: &'p Program,
    pub env: TestEnv,
    args: Vec<u64>,
    outcome: Outcome,
    pub globals: NamedGlobals<'p>,
}

impl<'p> World<'p> {
    pub(crate) fn new(program: &'p Program) -> World<'p> {
        World {
            program,
            env: TestEnv::new(program),
            args: Vec::new(),
            outcome: Outcome::default(),
            globals: NamedGlobals {
                program,
                mem: MemGlobals::new(&program.globals),
                failed: 0,
            },
        }
    }

    /// Runs all handlers in order, as one event does.
    pub(crate) fn run(&mut self, args: &[u64]) {
        self.args = args.to_vec();
        let program = self.program;
        for h in 0..program.handlers.len() {
            if let Err(e) = interp::run(program, HandlerId(h as u32), self) {
                let message = String::from_utf8_lossy(e.message.message()).into_owned();
                self.outcome.errors.push((message, e.site));
                let mut callers = e.callers;
                callers.truncate(spile_ir::MAX_CALLERS);
                self.outcome.callers.push(callers);
            }
        }
    }

    /// Everything so far.
    pub(crate) fn outcome(mut self) -> Outcome {
        self.outcome.out = String::from_utf8_lossy(&self.env.out).into_owned();
        self.outcome.cuts = self.env.cuts;
        for (i, global) in self.program.globals.iter().enumerate() {
            let g = GlobalId(i as u32);
            let globals = &mut self.globals.mem;
            let contents = match &global.kind {
                GlobalKind::Scalar(_) => {
                    Contents::One(Cell::Scalar(globals.gload(g).expect("scalar")))
                }
                GlobalKind::Stats(spec) => {
                    let stat = globals.stat_get(g, &[]).expect("statistic");
                    Contents::One(Cell::Stats(stat.unwrap_or_else(|| Stat::new(spec))))
                }
                GlobalKind::Array { .. } => Contents::Elements(
                    globals
                        .elements(g, &[])
                        .expect("array")
                        .into_iter()
                        .map(|e| (e.keys.to_vec(), e.cell))
                        .collect(),
                ),
            };
            self.outcome.globals.push(Some(contents));
        }
        self.outcome
    }
}

/// Globals in memory, with their names in messages.
pub(crate) struct NamedGlobals<'p> {
    program: &'p Program,
    pub mem: MemGlobals,
    /// Failed stores: they truncated the value here, but not in the kernel.
    pub failed: u64,
}

impl Globals for NamedGlobals<'_> {
    fn gload(&mut self, g: GlobalId) -> Result<Value, Fault> {
        self.mem.gload(g)
    }
    fn gstore(&mut self, g: GlobalId, v: Value) -> Result<(), Fault> {
        self.mem.gstore(g, v)
    }
    fn gadd(&mut self, g: GlobalId, v: i64) -> Result<i64, Fault> {
        self.mem.gadd(g, v)
    }
    fn aget(&mut self, g: GlobalId, keys: &[Value]) -> Result<Value, Fault> {
        self.mem.aget(g, keys)
    }
    fn aset(&mut self, g: GlobalId, keys: &[Value], v: Value) -> Result<(), Fault> {
        self.failed += 1;
        self.mem.aset(g, keys, v)?;
        self.failed -= 1;
        Ok(())
    }
    fn aadd(&mut self, g: GlobalId, keys: &[Value], v: i64) -> Result<i64, Fault> {
        self.mem.aadd(g, keys, v)
    }
    fn ahas(&mut self, g: GlobalId, keys: &[Option<Value>]) -> Result<bool, Fault> {
        self.mem.ahas(g, keys)
    }
    fn adel(&mut self, g: GlobalId, keys: &[Option<Value>]) -> Result<(), Fault> {
        self.mem.adel(g, keys)
    }
    fn gclear(&mut self, g: GlobalId) -> Result<(), Fault> {
        self.mem.gclear(g)
    }
    fn stat_add(&mut self, g: GlobalId, keys: &[Value], v: i64) -> Result<(), Fault> {
        let full = |_| overflow(self.program, g).into();
        self.mem.stat_add(g, keys, v).map_err(full)
    }
    fn stat_get(&mut self, g: GlobalId, keys: &[Value]) -> Result<Option<Stat>, Fault> {
        self.mem.stat_get(g, keys)
    }
    fn elements(&mut self, g: GlobalId, slice: &[Option<Value>]) -> Result<Vec<Element>, Fault> {
        self.mem.elements(g, slice)
    }
}

impl<'p> Env for World<'p> {
    type Globals = NamedGlobals<'p>;

    fn globals(&mut self) -> &mut NamedGlobals<'p> {
        &mut self.globals
    }
    fn intrinsic(&mut self, f: Intrinsic, args: &[Value]) -> Result<Value, Fault> {
        if f == Intrinsic::CtxArg {
            let n = args.first().map_or(0, Value::as_long) as usize;
            return Ok(Value::Long(self.args.get(n).copied().unwrap_or(0) as i64));
        }
        self.env.intrinsic(f, args)
    }
    fn read_memory(&mut self, space: Space, addr: u64, buf: &mut [u8]) -> Result<(), Fault> {
        self.env.read_memory(space, addr, buf)
    }
    fn print(&mut self, stream: Stream, text: &[u8]) {
        self.env.print(stream, text);
    }
    fn truncated(&mut self) {
        self.env.truncated();
    }
}
