//! The eBPF instruction set.
//!
//! In: instructions with labels. Out: the kernel's eight bytes each, and text. Nothing here knows
//! of scripts, handlers or maps.
//!
//! | module | its one job |
//! |---|---|
//! | [`insn`] | the instructions as one table: encoder, decoder, text |
//! | [`asm`] | builds a function, resolves its labels |
//! | [`disasm`] | bytes back to text |
//! | `sequences` | virtual registers of sequences, and their allocation |
//! | [`helpers`] | the kernel's helpers and what each one takes |

pub mod asm;
pub mod disasm;
pub mod helpers;
pub mod insn;
pub mod sequences;
