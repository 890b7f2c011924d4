//! A session: load, attach, consume, print, run controller handlers, count what was lost,
//! tear down.
//!
//! | module | its one job |
//! |---|---|
//! | [`session`], `options` | the whole run, and the event loop; how it is to run |
//! | [`controller`] | controller handlers, and what kernel handlers sent |
//! | [`globals`] | operations on globals, by storage class |
//! | [`kernel_side`], [`drain`], [`elements`], [`grace`], [`needs`], [`urgent`], `critical` | locks and per-CPU deltas |
//! | [`state`], [`maps`], [`record`] | state memory, hash maps and records as typed values |
//! | [`load`], `object`, `code`, `probed` | attaching; maps and programs into the kernel (`side_by_side`: by several threads; [`tables`]: maps ahead); files that change meanwhile |
//! | `tree`, `words`, [`namespaces`] | what kernel handlers read of the session: the target's processes, clock, zone |
//! | [`account`], [`report`], [`message`], [`display`] | what is told at the end, and errors |
//! | [`events`], [`child`], [`input`], [`output`], `patience`, [`prometheus`] | the outside world |
//! | [`host`], `present`, [`kmem`], [`clock`] | intrinsics of controller handlers; processes that are there already |
pub mod account;
pub mod child;
pub mod clock;
mod code;
pub mod commands;
pub mod controller;
mod critical;
pub mod deferred;
pub mod display;
pub mod drain;
pub mod elements;
pub mod error;
pub mod events;
pub mod globals;
pub mod grace;
mod held;
pub mod host;
pub mod input;
pub mod kernel_files;
pub mod kernel_side;
pub mod kmem;
pub mod load;
pub mod maps;
pub mod message;
pub mod namespaces;
pub mod needs;
mod object;
mod options;
pub mod output;
pub mod pages;
mod patience;
mod perf;
mod prepare;
mod present;
mod probed;
pub mod procfs;
pub mod prometheus;
pub mod record;
mod records;
pub mod report;
pub mod session;
mod side_by_side;
pub mod state;
pub mod symbolic;
pub mod tables;
mod tree;
pub mod urgent;
pub mod user_files;
mod words;

pub use account::Account;
pub use error::Error;
pub use probed::FileState;
pub use session::{Options, Outcome, Outside, Session, Target};
