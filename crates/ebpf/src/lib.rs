//! LIR to eBPF: the kernel as a host of the low-level code.
//!
//! ```text
//! lir::Module ──emit──► functions of instructions ──► the kernel's bytes, text
//!                 requests ──prebuilt──► templates of the run-time library, for the build
//! ```
//! In: modules of LIR, or instructions with labels and virtual registers. Out: functions. Nothing here knows of
//! scripts, handlers or globals.
//!
//! | module | its one job |
//! |---|---|
//! | [`isa`] | instructions, assembler, disassembler, the kernel's helpers |
//! | [`emit`] | registers and instructions for functions of LIR |
//! | [`prebuilt`] | code of the run-time library with numbers that are filled in later |

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

pub mod emit;
pub mod isa;
pub mod prebuilt;
