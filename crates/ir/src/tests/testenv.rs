//! An environment for tests: globals in memory, collected output, and numbers that depend only on
//! the calls.

use super::{Env, Fault, MemGlobals, Value};
use crate::intrinsics::{Intrinsic, ValueKind};
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
    type Globals = MemGlobals;

    fn globals(&mut self) -> &mut MemGlobals {
        &mut self.globals
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
            Stream::NextFile => b"<next file>",
        });
        self.out.extend_from_slice(text);
    }

    fn truncated(&mut self) {
        self.cuts += 1;
    }
}
