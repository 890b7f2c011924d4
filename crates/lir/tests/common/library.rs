//! Runs functions of the library under the interpreter, as they are written and with their loops as
//! callbacks.

// Each test program uses some of it.
#![allow(dead_code)]

use std::cell::RefCell;

use proptest::collection::vec;
use proptest::prelude::*;
use spile_lir::Module;
use spile_lir::func::MemoryPlace;
use spile_lir::helpers::Helper;
use spile_lir::interp::{Fault, Host, Machine, Memory, RegionKind};
use spile_lir::repeat::outline;
use spile_lir::verify::verify;

/// An argument: a number, or the address of these bytes.
#[derive(Clone)]
pub(crate) enum Arg {
    Number(u64),
    Memory(Vec<u8>),
}

pub(crate) fn number(n: usize) -> Arg {
    Arg::Number(n as u64)
}

/// A module as it is written, and with its loops as callbacks.
pub(crate) struct Forms([Module; 2]);

impl Forms {
    pub(crate) fn new(module: &Module) -> Forms {
        let mut outlined = module.clone();
        verify(module).unwrap_or_else(|e| panic!("{e}\n{module}"));
        outline(&mut outlined).unwrap_or_else(|e| panic!("{e}"));
        verify(&outlined).unwrap_or_else(|e| panic!("{e}\n{outlined}"));
        Forms([module.clone(), outlined])
    }

    pub(crate) fn modules(&self) -> &[Module] {
        &self.0
    }

    /// Runs a function in both forms, which must agree; gives the result and the memory afterwards.
    pub(crate) fn run(&self, name: &str, args: &[Arg]) -> (u64, Vec<Vec<u8>>) {
        let [a, b] = self.0.each_ref().map(|module| run_in(module, name, args));
        assert_eq!(a, b, "{name}: loops and callbacks");
        a
    }
}

/// Runs a function; gives the result and the memory afterwards.
pub(crate) fn run_in(module: &Module, name: &str, args: &[Arg]) -> (u64, Vec<Vec<u8>>) {
    let mut machine = Machine::new(module, 3_000_000);
    let mut numbers = Vec::new();
    for arg in args {
        numbers.push(match arg {
            Arg::Number(n) => *n,
            Arg::Memory(bytes) => machine.memory.add(bytes.clone(), RegionKind::Memory),
        });
    }
    let result = machine.run(name, &numbers, &mut Reads);
    let result = result.unwrap_or_else(|e| panic!("{name}: {e}\n{module}"));
    let memory = numbers.iter().filter_map(|n| machine.memory.region(*n));
    (result, memory.map(<[u8]>::to_vec).collect())
}

thread_local! {
    /// The maps and keys of removed elements.
    pub(crate) static REMOVED: RefCell<Vec<[u64; 2]>> = const { RefCell::new(Vec::new()) };
}

/// A host whose helpers read the memory of the run.
pub(crate) struct Reads;

impl Host for Reads {
    fn helper(&mut self, memory: &mut Memory, helper: Helper, args: &[u64]) -> Result<u64, Fault> {
        if let (Helper::MapDelete, [map, key]) = (helper, args) {
            REMOVED.with_borrow_mut(|all| all.push([*map, *key]));
            return Ok(0);
        }
        let [to, size, from] = *args else {
            return Err(Fault::Helper(helper.name().into()));
        };
        let fault = (-14i64).cast_unsigned();
        let text = matches!(helper, Helper::ReadText | Helper::ReadUserText);
        if !text {
            let bytes = memory.read(from, size as usize).map(<[u8]>::to_vec);
            let result = if bytes.is_ok() { 0 } else { fault };
            memory.write(to, &bytes.unwrap_or_else(|_| vec![0; size as usize]))?;
            return Ok(result);
        }
        let mut bytes = Vec::new();
        for at in from..from + size.saturating_sub(1) {
            match memory.read(at, 1).map(|b| b[0]) {
                Ok(0) => break,
                Ok(byte) => bytes.push(byte),
                Err(_) => return Ok(fault),
            }
        }
        bytes.push(0);
        memory.write(to, &bytes)?;
        Ok(bytes.len() as u64)
    }

    fn place(&mut self, _: &MemoryPlace) -> Option<u64> {
        None
    }
}

/// A text in a slot of at least that many bytes.
pub(crate) fn slot(text: &[u8], least: usize) -> Vec<u8> {
    let mut bytes = text.to_vec();
    bytes.resize((text.len() / 8 * 8 + 8).max(least), 0);
    bytes
}

/// Texts of some letters only, so that many of them have common beginnings and parts; sometimes of
/// all bytes but NUL.
pub(crate) fn text(most: usize) -> impl Strategy<Value = Vec<u8>> {
    let few = vec(
        prop_oneof![4 => Just(b'a'), 1 => Just(b'b'), 1 => Just(0xff), 1 => Just(1)],
        0..most,
    );
    prop_oneof![3 => few, 1 => vec(1..=255u8, 0..most)]
}
