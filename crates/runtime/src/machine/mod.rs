//! What a session needs to know about the machine.
//!
//! In: `/proc`, system calls, and small BPF programs of the session's own. Out: numbers. Nothing
//! here depends on scripts.
//!
//! | module | its one job |
//! |---|---|
//! | [`clock`], [`timer`] | clocks and the time zone; timers |
//! | [`pid_namespace`] | process numbers inside and outside of spile's namespace |
//! | [`existing_tasks`] | processes and threads that exist when a session starts |
//! | [`kernel_memory`] | reads kernel memory for controller handlers |
//! | [`direct_map`] | the address of the kernel's direct map |
//! | `names` | names of kernel addresses, and command lines |
//! | [`signals`], `end_requests` | signals as events; requests to end the session |
//! | `parallel` | runs slow system calls and computations in several threads |

pub mod clock;
pub mod direct_map;
pub mod end_requests;
pub(crate) mod existing_tasks;
pub mod kernel_memory;
pub(crate) mod names;
pub(crate) mod parallel;
pub mod pid_namespace;
pub mod signals;
pub mod timer;
