//! Attaches loaded programs to their events.
//!
//! In: loaded programs, and resolved locations in files. Out: links, which detach when they are
//! dropped. Raw tracepoints and machine-wide perf events are attached by [`crate::load`] itself,
//! with one system call each. Nothing here reads debugging information: locations are offsets.
//!
//! | module | its one job |
//! |---|---|
//! | `arming` | progress of work on many locations, and its early end |
//! | `code` | uprobes, kprobes, fentry and fexit, with one link for many locations where the kernel supports it |
//! | `followed` | breakpoints in the memory of the target's processes only |
//! | `links` | the attachments |
//! | `perf_events` | opens perf events and attaches programs to them |
//! | `site` | locations to attach to, and those that the kernel refused |
//! | `staleness` | whether a file has changed since its locations were resolved |
//! | `summary` | how programs are attached, for `-v` |

pub(crate) mod arming;
pub(crate) mod code;
pub(crate) mod followed;
pub(crate) mod links;
pub(crate) mod perf_events;
pub(crate) mod site;
pub(crate) mod staleness;
pub(crate) mod summary;
