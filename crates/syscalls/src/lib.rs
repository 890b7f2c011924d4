//! The system calls of each processor, and of 32-bit programs there, as data.
//!
//! `data/syscalls.tsv` has numbers, names, arguments and their form in `argstr`; `data/flags.tsv`
//! has the names of flags, with the values that differ by processor. `data/structures.tsv` has structures that arguments point to,
//! `data/variants.tsv` arguments whose form depends on the value of another one, and `data/variables.tsv`
//! the variables besides the arguments. The build script reads these files (`parse.rs`) and writes
//! them as Rust (`source.rs`), so that a start reads none of them.
//!
//! An argument has two names: the tapset's (`syscall.openat` has `dfd`) and the kernel's own
//! parameter (for `$`-variables). Names derived from the tapset's, such as `flags_str`, follow one
//! rule: see [`SyscallArg::form`].

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

#[cfg(test)]
#[macro_use]
extern crate spile_testing;
#[cfg(test)]
spile_testing::main!();

#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod model;
mod tables;

use spile_abi::{Abi, HOST};

pub use model::{
    ArgForm, ArgKind, ArgValueKind, ArgVariants, Case, FieldKind, Flag, FlagTable, NumberBase,
    ResultForm, Structure, StructureField, StructureText, Syscall, SyscallArg, SyscallVariable,
};

/// The system calls of a processor in the order of numbers: native ones, then those of 32-bit programs.
#[must_use]
pub fn of(abi: &Abi) -> &'static [Syscall] {
    let mut tables = tables::CALLS.iter();
    let table = tables.find(|(name, _)| *name == abi.name);
    table.map_or(&[], |(_, calls)| calls)
}

/// The call of this machine with that number, as in [`spile_ir::NrSet`].
#[must_use]
pub fn by_nr(nr: u32) -> Option<&'static Syscall> {
    let calls = of(HOST);
    let index = calls.binary_search_by_key(&nr, |call| call.nr).ok()?;
    calls.get(index)
}

/// A table of this machine's flags by its name.
#[must_use]
pub fn flag_table(name: &str) -> Option<&'static FlagTable> {
    flag_table_of(HOST, name)
}

/// A processor's table of flags by its name.
#[must_use]
pub fn flag_table_of(abi: &Abi, name: &str) -> Option<&'static FlagTable> {
    let table = |name: &str| {
        let index = tables::FLAGS.binary_search_by_key(&name, |table| table.name);
        tables::FLAGS.get(index.ok()?)
    };
    table(&format!("{name}@{}", abi.name)).or_else(|| table(name))
}

#[cfg(test)]
mod tests;
