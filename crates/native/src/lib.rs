//! Machine code from compiled handlers: a process as a host beside the kernel.
//!
//! ```text
//! functions of eBPF ──translate──► Code: machine code, positions, references
//!                                  ──link──► the bytes for one address of one process
//! ```
//! In: the functions that the compiler hands to the loader. Out: code with the same results. It is position-independent,
//! calls no library, and reaches the host (its state, tables and helpers) within 2 GB of itself, so that the code of one
//! session serves all processes that map it. What the host is, and how code gets into a process, is not decided here.
//!
//! | module | its one job |
//! |---|---|
//! | [`code`] | machine code with references, and their places |
//! | `instructions` | what single instructions do |
//! | [`translate`] | functions of eBPF as Cranelift's functions, and those as code |

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

pub mod code;
mod instructions;
pub mod translate;
