//! The run-time library: functions that handlers call, written once for all hosts.
//!
//! In: nothing. Out: a module of functions ([`module`]); the `contract` of each function names its
//! arguments, guarantees, requirements and cost. Tests compare each function with Rust on random
//! inputs
//! under the interpreter, without a kernel.
//!
//! | module | its functions |
//! |---|---|
//! | `strings` | compare, copy, length |
//! | `search` | find, replace, the next token: made for the widths of their slots |
//! | `decimal` | decimal text to floating-point numbers |
//! | `arithmetic` | division of numbers with signs |
//! | `numbers` | digits of numbers, numbers of digits |
//! | `quote` | escapes, with and without quotes |
//! | `regex` | regular expressions: matchers over the tables of automata |
//! | `unicode` | UTF-16 and UTF-32 to UTF-8 |
//! | `append` | strings, numbers and bytes at the end of a text, with C's widths, precisions and flags |
//! | `statistics` | variance, sums of squares, the buckets of a histogram |
//! | `eviction` | the oldest elements of an array that wraps |
//! | `heap` | the heap of an iteration's entries, in their order |
//! | `iterations` | iterations over elements: removal, copies for a `foreach` |
//! | `cmdline` | the current process's command line |
//! | `lock` | locks |
//! | `output` | the output buffer |
//! | `large` | additions to large arrays, and their memory |
//! | `defer` | reads of memory that are left to the controller |
//! | `area` | what functions are written with that work in the per-CPU area |
//! | `tables` | rows of tables in maps, for other modules |
//! | `stacks` | texts of stacks and addresses: symbols, files, lines |
//! | `mappings` | the mapping of the program at an address |
//! | `usermem` | memory of the program that is not mapped, from the page cache |
//! | `unwind` | unwinding of user stacks |
//! | `arguments` | arguments of system calls as text, a module of its own that knows the host's layout |
//! | `host` | what a process answers in place of the kernel: tables, the ring, reads, time |
//! | `routine` | the requests of hosts as values |
//!
//! A new function that is the same for all callers is a row of `FUNCTIONS`; one that has a layout is a
//! variant of [`routine::Routine`].
//!
//! # Why Rust and not text
//! `strings` was written in both forms first. The builder won:
//!
//! - *Reading*. Expressions, `ret_if`, loops and variables replace labels, arguments of jumps, and a
//!   name for each intermediate value. compare, copy and length have 75 lines in Rust and 101 as text.
//! - *Parameters*. A number of words to unroll, a table's name and a limit are Rust constants that
//!   callers and tests share. The text form would need a macro language.
//! - *Errors*. The Rust compiler finds a wrong name, a forgotten argument and a wrong number of
//!   arguments while one writes.
//!
//! The text form serves listings, tests of single instructions, and readers of the builder's
//! output.
//!
//! # Strings
//! A text fills its *slot*, a multiple of 8 bytes: zeros follow its bytes up to the end of the slot,
//! at least one. So code works on whole words and needs no length.

pub mod append;
mod area;
pub mod arguments;
mod arithmetic;
pub mod cmdline;
pub mod decimal;
pub mod defer;
pub mod eviction;
pub mod heap;
pub mod host;
pub mod iterations;
pub mod large;
pub mod lock;
pub mod mappings;
mod numbers;
pub mod output;
pub mod quote;
pub mod regex;
pub mod routine;
pub mod search;
pub mod stacks;
pub mod statistics;
mod strings;
mod tables;
pub mod unicode;
pub mod unwind;
pub mod usermem;

use std::sync::LazyLock;

use crate::func::{LirFunc, Module};

pub use numbers::hex_bytes;
pub use strings::{CHUNK, MAX_SLOT};

/// The bound of loops that end by themselves. Each host allows as many iterations.
pub const NO_BOUND: u32 = 1 << 23;

/// Bytes of a page.
const PAGE: i32 = spile_abi::PAGE.cast_signed();

/// Builds a function.
type BuildFunction = fn() -> LirFunc;

/// The functions that are the same for all callers, by name. None of them calls another one.
const FUNCTIONS: &[(&str, BuildFunction)] = &[
    ("compare", strings::compare),
    ("copy", strings::copy),
    ("length", strings::length),
    ("decimal", numbers::decimal),
    ("hex", numbers::hex),
    ("strtol", numbers::strtol),
    ("divide", arithmetic::divide),
    ("modulo", arithmetic::modulo),
    ("variance", statistics::variance),
    ("add_square", statistics::add_square),
    ("log_bucket", statistics::log_bucket),
    ("next_bucket", statistics::next_bucket),
    (regex::MATCH_AT, regex::match_at),
    (heap::ORDER, heap::order),
    (eviction::OLDEST, eviction::oldest),
    (eviction::DROP_OLD, eviction::drop_old),
];

/// The functions that are the same for all callers.
pub fn module() -> &'static Module {
    static MODULE: LazyLock<Module> = LazyLock::new(|| {
        FUNCTIONS
            .iter()
            .map(|(_, make)| make())
            .collect::<Vec<_>>()
            .into()
    });
    &MODULE
}

/// A module with one function of the library. Only this function is built.
pub fn only(name: &str) -> Option<Module> {
    let (_, make) = FUNCTIONS.iter().find(|(n, _)| *n == name)?;
    Some(Module::from(make()))
}
