//! A session: load, attach, consume, print, run controller handlers, count losses, tear down.
//!
//! In: a compiled [`Object`](spile_bpf::layout::Object), the IR of the controller's handlers, and
//! [`Options`]. Out: the script's output, and an [`Outcome`] with its [`Account`]. Invariants:
//! everything lives in descriptors of this process, so nothing stays behind however it ends; every
//! loss is counted. Nothing here parses scripts or generates code.
//!
//! | module | its one job |
//! |---|---|
//! | [`session`] | the whole run: its options, event loop, account and reports |
//! | `backend` | the host of handlers as a session sees it: the kernel, or a simulated one |
//! | [`load`] | loads maps and programs into the kernel |
//! | `attach` | attaches programs to code and perf events |
//! | [`controller`] | runs the controller's handlers, on its own globals and the kernel's |
//! | [`shared`] | memory that programs and the controller share |
//! | [`machine`] | clocks, processes and kernel memory |
//! | [`text`] | texts that only the controller can make: stacks, symbols, user memory |
//! | [`io`] | output, input, child processes, `procfs` files, scrapes |
//! | `simulated` | a host without a kernel, for tests |
//! | [`error`] | errors of starting and running a session |

#[cfg(test)]
#[macro_use]
extern crate spile_testing;
#[cfg(test)]
spile_testing::main!();

pub(crate) mod attach;
pub(crate) mod backend;
pub mod controller;
pub mod error;
pub mod io;
pub mod load;
pub mod machine;
pub mod session;
pub mod shared;
#[cfg(test)]
mod simulated;
pub mod text;

pub use attach::staleness::FileState;
pub use error::Error;
pub use session::account::Account;
pub use session::{ExternalSource, Options, Outcome, Session, TargetProcess};
