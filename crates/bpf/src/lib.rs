//! IR to eBPF. No I/O: an object can be compiled on another machine than the one it runs on.
//!
//! ```text
//! ir::Program ──attach──► AttachPlan ──plan──► ObjectPlan (layout, maps) ──lower──► functions ──► Object
//!                   regalloc: locations of registers ────────────────┘   programs ──┘    │
//!                                                             object::link (memory), object::elf (file)
//! ```
//!
//! In: an optimised and verified [`spile_ir::Program`], and [`crate::target::Target`] with the
//! features of the kernel. Out: a [`compiled::Object`]. Invariants: the loader depends only on [`compiled`] and
//! [`object`], the controller only on [`spile_layout`]; the two forms of an object hold the same instructions.
//!
//! | module | its one job |
//! |---|---|
//! | `compile` | the BPF programs, and the handlers of each one |
//! | `error` | why a program cannot be compiled |
//! | `attach` | the attach kind of each handler, decided once |
//! | `plan` | the layout for the kernel, and the operations that handlers share |
//! | `regalloc` | the location of each register of a handler |
//! | `lower` | instruction selection, one handler at a time |
//! | `prebuilt` | code of the run-time library from the build |
//! | `programs` | programs of spile's own |
//! | [`object`] | BTF, linker, ELF writer |
//! | [`target`] | the target machine, as values |
//! | [`compiled`] | the contract with the loader |

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

mod attach;
mod compile;
pub mod compiled;
mod error;
mod lower;
pub mod object;
mod plan;
mod prebuilt;
mod programs;
mod regalloc;
pub mod target;

pub use attach::attachment::ProgramType;
pub use compile::{compile, compile_planned};
pub use error::{CompileError, LowerError};
