//! The event's context, the current task and the machine.
//!
//! In: intrinsics that ask about the event or the machine. Out: code that reads the context,
//! registers or the kernel's memory. A handler that may not ask has been refused by analysis.
//! Arguments of system calls as text are in [`crate::lower::syscalls`].
//!
//! | file | what it lowers |
//! |---|---|
//! | `intrinsics` | the dispatch of intrinsics; time |
//! | `code` | registers, arguments and results at probed code |
//! | `context`, `task_fields` | the interrupted code, the current task |
//! | `counters` | perf events counted for each thread |
//! | `stacks`, `unwind` | stacks of the kernel and of programs |
//! | `usermem`, `deferred`, `deferred_modes` | user memory that is not resident |

mod acts;
pub(crate) mod code;
pub(crate) mod context;
pub(crate) mod counters;
pub(crate) mod deferred;
pub(crate) mod deferred_modes;
pub(crate) mod intrinsics;
pub(crate) mod stacks;
pub(crate) mod task_fields;
pub(crate) mod unwind;
pub(crate) mod usermem;
