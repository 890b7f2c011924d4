//! Probe points: from the points in a script to handlers with their events.
//!
//! In: probe points as written, the library's aliases, [`crate::facts::Facts`]. Out:
//! [`ProbeHandler`]s: an event, the bodies that run at it, and the meaning of names there.
//! Invariant: a point that matches nothing is an error, unless `?` or `!` allow it. Bodies are only
//! searched for names; their types are the work of [`crate::types`].
//!
//! | file | what |
//! |---|---|
//! | `handler` | the outcome: event, bodies, context |
//! | `resolve` | aliases, families, wildcards, `?`, `!`, `if` |
//! | `point` | components of a point: by name, and their arguments |
//! | `renamed` | names that the kernel no longer has |
//! | `mentions` | the names that the bodies use |
//! | `missing` | names that only SystemTap's aliases set |
//! | `context` | the meaning of names at an event |
//! | `process` | events of processes |
//! | `code` | locations in code to handlers |
//! | `expand` | events to handlers; grouping of system calls |
//! | `list` | listings: `-l`, `-L`, `--dump-probe-*` |

pub(crate) mod code;
pub(crate) mod context;
pub mod expand;
pub mod handler;
pub mod list;
pub(crate) mod mentions;
pub(crate) mod missing;
pub(crate) mod point;
pub(crate) mod process;
mod renamed;
pub(crate) mod resolve;

pub use expand::{PROBE_NAME_TABLE, resolve_file, resolve_script, syscall_table};
pub use handler::{
    HandlerContext, HandlerKind, HandlerPart, PlainVar, ProbeHandler, SiteNames, TargetSource,
    TargetVar,
};
