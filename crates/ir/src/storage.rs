//! Storage classes: how each global is stored, decided once for all handlers from their uses.
//!
//! | class | what | kernel | controller |
//! |---|---|---|---|
//! | [`Storage::Controller`] | only controller handlers touch it | - | plain memory |
//! | [`Storage::Shared`] | kernel handlers read it, or store to it | word(s) in the state memory; arrays: a hash map | the same memory, the same map |
//! | [`Storage::PerCpu`] | kernel handlers only add to it (`<<<`, `++`, `+=` whose value nobody uses) and only the controller reads, stores or deletes | per-CPU deltas | base value plus all deltas drained so far |
//!
//! For `PerCpu` the controller owns the value and the kernel only the deltas since the last
//! drain. Draining flips the generation, waits until no handler runs in the old one, and adds
//! the old one's deltas to the base. So nothing is lost when a handler prints and clears.
//!
//! # When a lock is needed
//! A handler is atomic over the globals that it touches. "Running" handlers are those that can
//! run at the same time as others: kernel handlers, and the controller's timers, scrapes and
//! input. `begin` runs before anything is armed, `end` and `error` after all is detached.
//!
//! 1. A shared global that no running handler writes needs no lock, unless a kernel handler iterates over
//!    it (`foreach`): the copies of its elements belong to the holder of the lock.
//! 2. Arrays in which running handlers touch only elements of their own need none. Either every
//!    access has as its first key the current thread's id, or in handlers of `sched_switch` the id
//!    of the thread that the processor switches to; or every access has the processor's number. One
//!    thread and one processor run one handler at a time, so no two ever touch the same element.
//!    The idle threads of all CPUs share the id 0, so in events that can hit them a test must have
//!    excluded 0. (Wrapping arrays are excluded: there, others evict elements.) Values from entries
//!    for handlers of returns (`@entry`) are stored by call. Their arrays do wrap, but evicted
//!    elements are thousands of calls old, and a handler that takes an element checks afterwards
//!    that it existed.
//! 3. The remaining shared globals have locks if a running handler writes them. A handler takes no lock
//!    if it touches at most one such global, by one instruction outside loops that is atomic in itself.
//!    Any other handler locks every such global that it touches. A global that one handler locks is
//!    locked by all handlers that touch it.
//!
//! A global that could be per-CPU is shared and locked if a kernel handler and a running controller
//! handler both touch it together with one locked global. Deltas are drained before locks are
//! taken, so the two values would be of different moments.
//!
//! These accesses are atomic in themselves: on a number, every operation; on an array of numbers
//! that does not wrap and from which no running handler deletes: additions, reads and stores by
//! kernel handlers if no running controller handler changes it, and stores if running handlers do
//! nothing else. (A store in the kernel changes the element in place; a store of the controller
//! replaces it. The kernel reuses the memory of a replaced or deleted element for another key at
//! once, so code that reads an element could see another one.)
//!
//! # Thread records
//! Arrays with the thread's id as key, of which each thread touches only its own elements and
//! over which no handler iterates, can be fields of one record for each thread: one look-up finds all of
//! them ([`thread_records`]). As no other thread touches a record, it needs no lock either.
//!
//! # Co-located elements
//! Kernel handlers may add to a statistic of a per-CPU array only when they have just added to
//! another such array by the same key. Then its elements can be co-located with the other one's:
//! found with them, in one map ([`colocated`]). It has no key that the other lacks, so there is
//! space for all.

pub(crate) mod class;
mod classify;
mod colocated;
mod taken;
mod thread_ownership;

pub use class::Storage;
pub use classify::{Explanation, GlobalExplanation, classify, thread_records};
pub use colocated::colocated;
pub use taken::{access_sets, takes};
pub use thread_ownership::ThreadIdRegs;
