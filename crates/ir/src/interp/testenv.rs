//! An environment for tests: globals in memory, collected output, and numbers that depend only on
//! the calls.

use super::{Element, Env, Fault, ForeachWalk, MemGlobals, Value};
use crate::intrinsics::{Intrinsic, ValueKind};
use crate::stats::Stat;
use crate::*;

/// The test environment.
#[derive(Debug, Clone)]
pub struct TestEnv {
    /// The globals.
    pub globals: MemGlobals,
    /// All output. Output to streams other than the script's own is marked `<warn>` and `<system>`.
    pub out: Vec<u8>,
    /// Number of strings that were cut.
    pub cuts: u64,
    /// Whether `exit()` was called.
    pub exited: bool,
    /// Results of intrinsics that replace the made-up ones.
    pub answers: Vec<(Intrinsic, Value)>,
}

impl TestEnv {
    /// An environment with the program's globals.
    pub fn new(program: &Program) -> TestEnv {
        TestEnv {
            globals: MemGlobals::new(&program.globals),
            out: Vec::new(),
            cuts: 0,
            exited: false,
            answers: Vec::new(),
        }
    }
}

impl Env for TestEnv {
    fn gload(&mut self, g: GlobalId) -> Result<Value, Fault> {
        self.globals.gload(g)
    }
    fn gstore(&mut self, g: GlobalId, v: Value) -> Result<(), Fault> {
        self.globals.gstore(g, v)
    }
    fn gadd(&mut self, g: GlobalId, v: i64) -> Result<i64, Fault> {
        self.globals.gadd(g, v)
    }
    fn aget(&mut self, g: GlobalId, keys: &[Value]) -> Result<Value, Fault> {
        self.globals.aget(g, keys)
    }
    fn aset(&mut self, g: GlobalId, keys: &[Value], v: Value) -> Result<(), Fault> {
        self.globals.aset(g, keys, v)
    }
    fn aadd(&mut self, g: GlobalId, keys: &[Value], v: i64) -> Result<i64, Fault> {
        self.globals.aadd(g, keys, v)
    }
    fn ahas(&mut self, g: GlobalId, keys: &[Option<Value>]) -> Result<bool, Fault> {
        self.globals.ahas(g, keys)
    }
    fn adel(&mut self, g: GlobalId, keys: &[Option<Value>]) -> Result<(), Fault> {
        self.globals.adel(g, keys)
    }
    fn gclear(&mut self, g: GlobalId) -> Result<(), Fault> {
        self.globals.gclear(g)
    }
    fn stat_add(&mut self, g: GlobalId, keys: &[Value], v: i64) -> Result<(), Fault> {
        self.globals.stat_add(g, keys, v)
    }
    fn stat_get(&mut self, g: GlobalId, keys: &[Value]) -> Result<Option<Stat>, Fault> {
        self.globals.stat_get(g, keys)
    }
    fn elements(&mut self, g: GlobalId, slice: &[Option<Value>]) -> Result<Vec<Element>, Fault> {
        self.globals.elements(g, slice)
    }
    fn walk(
        &mut self,
        g: GlobalId,
        slice: &[Option<Value>],
        sort: Option<SortSpec>,
        limit: Option<usize>,
    ) -> Result<ForeachWalk, Fault> {
        self.globals.walk(g, slice, sort, limit)
    }

    fn intrinsic(&mut self, f: Intrinsic, args: &[Value]) -> Result<Value, Fault> {
        if f == Intrinsic::Exit {
            self.exited = true;
        }
        if let Some((_, v)) = self.answers.iter().find(|(a, _)| *a == f) {
            return Ok(v.clone());
        }
        if f.info().fails && args.first().is_some_and(|a| a.as_long() == 0) {
            return Err("read fault at 0x0".into());
        }
        let arg = args.first().map_or(0, Value::as_long);
        Ok(match f.info().ret {
            Some(ValueKind::Str) => Value::from(format!("{}:{arg}", f.info().name).as_str()),
            _ => Value::Long((f as i64 * 1000).wrapping_add(arg)),
        })
    }

    fn read_memory(&mut self, _: Space, addr: u64, buf: &mut [u8]) -> Result<(), Fault> {
        if addr < 4096 {
            return Err(format!("read fault at 0x{addr:x}").into());
        }
        for (i, b) in buf.iter_mut().enumerate() {
            *b = (addr.wrapping_add(i as u64) % 251) as u8;
        }
        Ok(())
    }

    fn print(&mut self, stream: Stream, text: &[u8]) {
        self.out.extend_from_slice(match stream {
            Stream::Out => b"",
            Stream::Warn => b"<warn>",
            Stream::System => b"<system>",
        });
        self.out.extend_from_slice(text);
    }

    fn truncated(&mut self) {
        self.cuts += 1;
    }
}
