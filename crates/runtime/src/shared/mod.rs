//! Memory that BPF programs and the controller share.
//!
//! In: the layout ([`spile_layout`]), and the host's tables ([`maps::HostTables`]). Out:
//! typed values. Invariants: every access to memory that programs write is atomic; a global's lock
//! is held for a time that does not depend on the script, or not at all (see
//! `docs/concurrency.md`). No value is formatted here, and no handler runs.
//!
//! | module | its one job |
//! |---|---|
//! | [`state`] | the state memory: words, locks, counters of losses |
//! | [`maps`] | hash tables as key and value bytes; what a host gives out |
//! | [`large_arrays`], [`thread_records`] | arrays in memory of their own |
//! | [`locked_array`] | an array while the controller holds its lock |
//! | [`ring_record`] | parses records of the ring buffer |
//! | [`kernel_state`] | all of these as the kernel's half of a session |
//! | [`drain`], [`grace`] | collects per-CPU deltas; waits until no handler writes to them |
//! | [`critical_section`], [`realtime_guard`] | copies under locks, with interrupts off or at real-time priority |
//! | [`handler_effects`] | the globals and locks of each controller handler, computed once |
//! | `init`, `process_tree` | initial values that handlers read |

pub(crate) mod critical_section;
pub mod drain;
pub mod grace;
pub mod handler_effects;
pub(crate) mod init;
pub mod kernel_state;
pub mod large_arrays;
pub(crate) mod locked_array;
pub mod maps;
pub(crate) mod process_tree;
pub mod realtime_guard;
pub mod ring_record;
pub mod state;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod thread_records;
