//! The system calls of x86-64 and of i386 programs (compat), as data.
//!
//! `data/syscalls.tsv` has numbers, names, arguments and their form in `argstr`; `data/flags.tsv`
//! has the names of flags. `data/structures.tsv` has structures that arguments point to,
//! `data/variants.tsv` arguments whose form depends on the value of another one, and `data/variables.tsv`
//! the variables besides the arguments. The build script reads these files (`parse.rs`) and writes
//! them as Rust (`source.rs`), so that a start reads none of them. Only the variables are read at their first query.
//!
//! An argument has two names: the tapset's (`syscall.openat` has `dfd`) and the kernel's own
//! parameter (for `$`-variables). Names derived from the tapset's, such as `flags_str`, follow one
//! rule: see [`Arg::form`].

mod model;
mod tables;
mod variables;

pub use model::{
    Abi, Arg, ArgForm, ArgKind, Base, Case, Field, FieldKind, Flag, FlagTable, IPC, ResultForm,
    SOCKETCALL, Structure, StructureText, Syscall, Variants,
};
pub use variables::{Variable, variables};

/// The highest number of the kernel's own tables.
pub const MAX_NR: u32 = 469;

/// All calls of a table, in the order of numbers.
#[must_use]
pub fn all(abi: Abi) -> &'static [Syscall] {
    match abi {
        Abi::X86_64 => tables::X86_64_CALLS,
        Abi::I386 => tables::I386_CALLS,
    }
}

/// The call of that number; `None` for numbers without one.
#[must_use]
pub fn by_nr(abi: Abi, nr: u32) -> Option<&'static Syscall> {
    let calls = all(abi);
    let at = calls.binary_search_by_key(&nr, |call| call.nr).ok()?;
    calls.get(at)
}

/// The calls that `syscall.NAME` selects (see [`Syscall::is_called`]): more than one where the
/// tapset joins several, such as `stat` and `stat64` of i386.
pub fn by_name(abi: Abi, name: &str) -> impl Iterator<Item = &'static Syscall> {
    all(abi).iter().filter(move |call| call.is_called(name))
}

/// A table of flags by its name.
#[must_use]
pub fn flag_table(name: &str) -> Option<&'static FlagTable> {
    let tables = tables::FLAGS;
    let at = tables
        .binary_search_by_key(&name, |table| table.name)
        .ok()?;
    tables.get(at)
}

/// The forms of a call's arguments that depend on a value; `None` if all are fixed.
#[must_use]
pub fn variants(call: &Syscall) -> Option<&'static Variants> {
    let all = match call.abi {
        Abi::X86_64 => tables::X86_64_VARIANTS,
        Abi::I386 => tables::I386_VARIANTS,
    };
    let at = all.binary_search_by_key(&call.nr, |(nr, _)| *nr).ok()?;
    all.get(at).map(|(_, variants)| variants)
}

#[cfg(test)]
mod tests;
