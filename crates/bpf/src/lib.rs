//! IR to eBPF. No I/O: an object can be compiled elsewhere than where it runs.
//!
//! ```text
//! ir::Program ──attach──► AttachPlan ──plan──► Plan (what lies where) ──lower──► functions ──► Object
//!                   regalloc: registers of each handler ──────────────┘   programs ──┘    │
//!                                                             object::link (memory), object::elf (file)
//! ```
//!
//! In: an optimised and verified [`spile_ir::Program`], and [`crate::target::Options`] that say what the kernel
//! can do. Out: a [`layout::Object`]. Invariants: the loader and the controller know only what [`layout`]
//! says; the two forms of an object hold the same instructions.
//!
//! | module | its one job |
//! |---|---|
//! | [`compile`] | which programs there are, and which handlers each one has |
//! | `attach` | how each handler is attached, decided once |
//! | [`plan`] | where everything lives: shared memory, maps, stack slots |
//! | [`regalloc`] | where each register of a handler lives |
//! | `lower` | instruction selection, one handler at a time |
//! | [`programs`] | programs of spile's own |
//! | [`isa`] | instructions, assembler, disassembler |
//! | [`object`] | BTF, linker, ELF writer |
//! | [`target`] | what the compiler is told of the machine |
//! | [`layout`] | the contract with the loader and the controller |
mod attach;
pub mod compile;
pub mod isa;
pub mod layout;
mod lower;
pub mod object;
pub mod plan;
pub mod programs;
pub mod regalloc;
pub mod target;

pub use compile::{CompileError, compile, compile_planned};
pub use object::program_type::ProgramType;
