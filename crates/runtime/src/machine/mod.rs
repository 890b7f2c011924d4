//! What the machine tells a session.
//!
//! In: `/proc`, system calls, and small BPF programs of the session's own. Out: numbers. Nothing here
//! knows of scripts.
//!
//! | module | its one job |
//! |---|---|
//! | [`clock`] | clocks and the time zone |
//! | [`pid_namespace`] | numbers of processes, inside and outside of spile's namespace |
//! | [`existing_tasks`] | processes and threads that exist when a session starts |
//! | [`kernel_memory`] | reads kernel memory for controller handlers |
//! | [`direct_map`] | where the kernel's mapping of all memory begins |

pub mod clock;
pub mod direct_map;
pub(crate) mod existing_tasks;
pub mod kernel_memory;
pub mod pid_namespace;
