//! IR to eBPF: instruction table, selection, register allocation, maps, BTF, linker, ELF writer,
//! disassembler. No I/O.
pub mod asm;
mod attach;
pub mod btf;
mod debug_info;
pub mod disasm;
pub mod elf;
pub mod helpers;
pub mod insn;
pub mod layout;
pub mod link;

pub mod compile;
mod critical;
mod depth;
mod dispatch;
mod executed;
mod iterate;
mod lower;
pub mod plan;
mod program_type;
pub mod regalloc;
pub mod regs;
pub mod tree;

pub use compile::{CompileError, compile, compile_planned};
pub use program_type::ProgramType;
