//! Globals, arrays, aggregates and `foreach`.
//!
//! In: operations on globals, whose locations the plan has chosen. Out: code that reads and changes
//! these locations. Invariant: a lost update is counted. Locks are taken at the handler's entry, not
//! here; deltas are collected by the controller.
//!
//! | file | what it lowers |
//! |---|---|
//! | `globals` | scalars, and arrays in hash maps |
//! | `thread_record`, `thread_record_slots`, `thread_record_facts` | arrays that are fields of thread records, the search for a record, and what a body does with records |
//! | `colocated` | elements that are co-located with those of another array |
//! | `large` | elements of large arrays |
//! | `aggregates` | additions to statistics, and per-CPU deltas with their caches |
//! | `extract` | reading statistics |
//! | `iterate` | `foreach`, ordered by key or value |

pub(crate) mod aggregates;
pub(crate) mod colocated;
pub(crate) mod extract;
pub(crate) mod globals;
pub(crate) mod iterate;
pub(crate) mod large;
pub(crate) mod thread_record;
pub(crate) mod thread_record_facts;
pub(crate) mod thread_record_slots;
