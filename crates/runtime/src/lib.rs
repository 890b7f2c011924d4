//! A session: load, attach, consume, print, run controller handlers, count losses, tear down.
//!
//! In: the IR of a program, its handlers in the form of their [`SessionHost`], and
//! [`SessionOptions`]. Out: the script's output, and an [`Outcome`] with its [`LossReport`]. Invariants:
//! everything lives in descriptors of this process, so nothing stays behind however it ends; every
//! loss is counted. Nothing here parses scripts or generates code.
//!
//! The modules are layers: each one imports only from those above it in this table, which a test holds.
//!
//! | module | its one job |
//! |---|---|
//! | [`error`] | errors of starting and running a session |
//! | [`machine`] | clocks, processes, signals, kernel memory |
//! | [`shared`] | memory that handlers and the controller share |
//! | `attach` | attaches programs to code and perf events |
//! | [`text`] | texts that only the controller can make: stacks, symbols, user memory |
//! | [`load`] | loads maps and programs into the kernel |
//! | [`io`] | output, input, child processes, `procfs` files, scrapes |
//! | [`report`] | counts of losses, and the cost of each probe |
//! | [`controller`] | runs the controller's handlers, on its own globals and the kernel's |
//! | [`options`] | the options of a session |
//! | `host` | what runs kernel handlers: the kernel, or a simulated one in tests |
//! | [`session`] | the whole run: its event loop, from the start to the reports |

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

#[cfg(test)]
#[macro_use]
extern crate spile_testing;
#[cfg(test)]
spile_testing::main!();

pub(crate) mod attach;
pub mod controller;
pub mod error;
pub(crate) mod host;
pub mod io;
pub mod load;
pub mod machine;
pub mod options;
pub mod report;
pub mod session;
pub mod shared;
pub mod text;

pub use attach::staleness::FileState;
pub use error::Error;
pub use host::SessionHost;
pub use options::{ExternalSource, OnArmed, SessionOptions, TargetProcess};
pub use report::losses::LossReport;
pub use session::{Outcome, Session};
