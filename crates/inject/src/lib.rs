//! Gets code into a process as an ordinary user, and hooks functions of it. It knows nothing of scripts.
//!
//! ```text
//! an image: areas of a file in memory   ──┐
//! hooks: function ► handler, cookie     ──┴─► attach ─► Attached ─► detach
//! ```
//! In: an [`ProcessImage`] of code and data, which several processes may share, and the places that lead there ([`FunctionHook`]).
//! Out: a process that runs with the first instructions of its functions replaced by jumps; and later without.
//!
//! What happens at a hit: the jump goes to the function's *entry code*, which spile writes for each process. It keeps
//! all registers and flags, finds the record of the thread, and calls the handler with `rdi` = the registers as `struct
//! pt_regs` and `r15` = the record, on the record's own stack. Then it runs a copy of the instructions that the jump
//! replaced, and jumps back. A hit within a handler is skipped and counted. A thread that finds no free record takes
//! turns with others at the overflow record. A child of `fork` has all this, too, and shares the image;
//! detaching from its parent takes its hooks as well. A program that the process executes has nothing: a thread can ask to be
//! followed there ([`follow()`]).
//!
//! A jump reaches 2 GB. Where a program and its libraries are further apart, each has a mapping of the image near it.
//!
//! What it does not do: a function that begins with a call, or that other code jumps into, is refused. A record keeps the name and the ids of its thread's first hit. Without
//! [`ProcessImage::exact`] a child of `vfork` has its parent's record until its `execve`. A handler that a signal's handler
//! left by `siglongjmp` keeps its record busy, so that later hits of the thread are skipped, and counted as such.
//!
//! | module | its one job |
//! |---|---|
//! | `error` | why a process cannot be entered, why a place cannot be hooked |
//! | `image` | what is put into a process |
//! | `process` | what `/proc` says of a process: state, mappings, memory |
//! | `ptrace` | requests and stops of single threads |
//! | `threads` | all threads of a process, stopped |
//! | `remote` | system calls of another process |
//! | `place` | where in its memory the image goes |
//! | `mapped` | maps the image there |
//! | `processor` | instructions, registers and frames |
//! | `displaced` | what the jumps to places replace |
//! | `attach` | attaches and detaches |
//! | `follow` | follows a thread into the program that it executes |
//! | `sites` | where a process calls the kernel |

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

mod attach;
mod displaced;
mod error;
mod follow;
mod image;
mod mapped;
mod place;
mod process;
mod processor;
mod ptrace;
mod remote;
mod sites;
mod threads;

pub use attach::{Attached, attach, attach_at_start, entry_files};
pub use error::{Error, Refusal};
pub use follow::follow;
pub use image::{
    AreaAccess, CallNumber, FunctionHook, ImageArea, PlaceKind, ProcessImage, RecordSlots,
};
pub use process::ProcessFacts;
pub use processor::registers::{PtRegs, registers_of_sample, sampled_registers};
pub use processor::sites::{CallSite, Fate};
pub use sites::call_sites;
