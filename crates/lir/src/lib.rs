//! LIR: the low-level intermediate representation, below `spile_ir` and above the code of a host.
//!
//! ```text
//! ir::Program ──select──► lir::Module ──┬─ repeat, allocate registers, emit ──► eBPF   (crates/ebpf)
//!                             ▲         ├─ machine code ──► a process without privileges (later)
//!                          library      └─ interp ──► tests
//! ```
//! Operations are those of eBPF on virtual registers of 64 bits. Operations that differ between
//! hosts have names: helpers, loops, the address of the per-CPU area, state, maps, constants.
//! No physical
//! register, no helper's number and no script appears here.
//!
//! In: functions from a builder or from text. Out: the same functions, checked, for a host. The
//! crate does no I/O and depends on nothing.
//!
//! | module | its one job |
//! |---|---|
//! | [`op`] | arithmetic, conditions, sizes, atomic operations: names and meaning |
//! | [`helpers`] | operations that a host performs for code, by name |
//! | [`func`] | modules, functions, blocks, instructions as data |
//! | [`builder`] | builds functions with expressions, variables and structured control flow |
//! | [`library`] | the functions that handlers call |
//! | [`repeat`] | turns loops into callbacks, as the kernel runs them |
//! | [`counted`] | turns inline loops into jumps back with a counter |
//! | [`simplify`] | removes code that a function does not need |
//! | [`cfg`] | predecessors, dominators, loops |
//! | [`text`] | writes the text form |
//! | [`reader`] | reads it |
//! | [`verify`] | checks the invariants, and the limits of a host |
//! | `interp` | runs functions in tests, with checked memory (feature `testgen`) |
//! | `mutate` | changes single operations, for tests of tests (feature `testgen`) |
//! | `testgen` | makes random modules for tests (feature `testgen`) |

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

pub mod builder;
pub mod cfg;
pub mod counted;
pub mod func;
pub mod helpers;
#[cfg(any(test, feature = "testgen"))]
#[path = "tests/interp.rs"]
pub mod interp;
pub mod library;
#[cfg(any(test, feature = "testgen"))]
#[path = "tests/mutate.rs"]
pub mod mutate;
pub mod op;
pub mod reader;
pub mod repeat;
pub mod simplify;
#[cfg(any(test, feature = "testgen"))]
#[path = "tests/testgen.rs"]
pub mod testgen;
pub mod text;
pub mod verify;

pub use func::{LirFunc, Module, Value};
