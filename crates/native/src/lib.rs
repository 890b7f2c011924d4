//! Machine code from compiled handlers: a process as a host beside the kernel.
//!
//! ```text
//! functions of eBPF ──translate──► machine code, positions, references ──link──► the text of an image
//! maps, .bss, .rodata ─────────────────────────────────────────────────────────► the rest of the image
//! ```
//! In: what the compiler hands to the loader. Out: one file that any process can map at any address, whose functions
//! have the results that programs have in the kernel. They call no C library, allocate nothing, and use general
//! registers only. Helpers are functions of the image, from the run-time library ([`spile_lir::library::host`]). How an
//! image gets into a process, and what calls its functions, is not decided here.
//!
//! | module | its one job |
//! |---|---|
//! | [`image`] | the file: text, constants, state, tables, records of threads |
//! | [`table`] | hash tables and arrays, for the controller |
//! | [`ring`] | the reader of records |
//! | [`requests`] | threads that wait for an answer |
//! | [`thread`] | the record of a thread |
//! | [`processor`] | how a handler is entered, system calls |
//! | [`memory`] | the areas of an image; one that is mapped, as atomic words |
//! | [`code`] | machine code with references, and their places |
//! | [`translate`] | functions of eBPF as Cranelift's functions, and those as code |
//! | `instructions` | what single instructions do |
//! | `library` | helpers as functions, primitives as instructions |

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

pub mod code;
pub mod image;
mod instructions;
mod library;
pub mod memory;
pub mod processor;
pub mod requests;
pub mod ring;
pub mod table;
pub mod thread;
pub mod translate;
