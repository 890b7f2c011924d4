//! IR to eBPF: instruction table, selection, register allocation, maps, BTF, ELF writer,
//! disassembler. No I/O.
mod alike;
pub mod asm;
mod at_return;
pub mod btf;
pub mod disasm;
pub mod elf;
pub mod helpers;
pub mod insn;
pub mod layout;

pub mod compile;
mod depth;
mod dispatch;
mod executed;
mod iterate;
mod lower;
mod means;
pub mod plan;
pub mod regalloc;
pub mod regs;
pub mod tree;

pub use compile::{CompileError, Compiled, compile, compile_planned, generate};
