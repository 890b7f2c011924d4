//! IR to eBPF: instruction table, selection, register allocation, maps, BTF, ELF writer,
//! disassembler. No I/O.
pub mod asm;
mod attach;
pub mod btf;
pub mod disasm;
pub mod elf;
pub mod helpers;
pub mod insn;
pub mod layout;

pub mod compile;
mod critical;
mod depth;
mod dispatch;
mod executed;
mod iterate;
mod lower;
pub mod plan;
pub mod regalloc;
pub mod regs;
pub mod tree;

pub use compile::{CompileError, Compiled, compile, compile_planned, generate};
