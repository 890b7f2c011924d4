//! Attaches loaded programs to their events.
//!
//! In: programs that the kernel has accepted, and places in files that were resolved before. Out: links,
//! whose end detaches. Raw tracepoints and perf events of the machine are attached by [`crate::load`]
//! itself, by one call of the kernel each. Nothing here reads debugging information: places are offsets.
//!
//! | module | its one job |
//! |---|---|
//! | `code` | uprobes, kprobes, fentry and fexit, by one link for many places where the kernel can |
//! | `perf_events` | opens perf events and puts programs on them |
//! | `staleness` | whether a file is still the one that its places were resolved in |

pub(crate) mod code;
pub(crate) mod perf_events;
pub(crate) mod staleness;
