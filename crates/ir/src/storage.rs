//! How each global is stored, decided once for all handlers from how they use it.
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
//! 1. A shared global that no running handler writes needs no lock, unless a kernel handler
//!    walks through it (`foreach`): what it copies for that belongs to who holds the lock.
//! 2. Arrays in which running handlers touch only elements of their own need none: every access
//!    has as its first key the current thread's id, or in handlers of `sched_switch` that of the
//!    thread which the processor goes on with; or every access has the processor's number. One
//!    thread and one processor run one handler at a time, so no two ever touch the same element.
//!    The idle threads of all CPUs share the id 0, so in events that can hit them the id must have
//!    been tested not to be 0. (Not wrapping arrays: there, others evict elements.) Values of entries
//!    for handlers of returns (`@entry`) are kept by call. Their arrays do wrap, but what is evicted is
//!    thousands of calls old, and who takes an element asks afterwards whether it was still there.
//! 3. Of the shared globals that are left and that some running handler writes, a handler that
//!    touches at most one, by one instruction outside loops which is atomic in itself, needs
//!    no lock. Any other handler needs the locks of all of them that it touches, and so do
//!    then all others that touch these.
//!
//! A global that would be per-CPU but that a kernel handler and a running controller handler
//! both touch together with one locked global is shared and locked too: deltas are drained
//! before locks are taken, so the two would not be of one moment.
//!
//! Atomic in themselves are: on a number, every operation; on an array of numbers that does
//! not wrap and that no running handler deletes from: additions, reads and stores by kernel
//! handlers where no running handler of the controller changes it, and stores where running
//! handlers do nothing else. (A store in the kernel changes the element in place; the controller's
//! replace it. The kernel gives the memory of a replaced or deleted element to another key at
//! once, so anything that looks at an element could see another one.)
//!
//! # Records
//! Arrays by thread's id that are each thread's own, and that nothing walks through, can be kept
//! as fields of one record a thread: one look-up finds them all ([`records`]). As no other thread
//! touches a record, it needs no lock either.
//!
//! # Elements side by side
//! Where kernel handlers add to a statistic of a per-CPU array only when they have just added to another
//! such array by the same key, its elements can lie beside that one's: found with them, in one map
//! ([`beside`]). It has no key that the other lacks, so there is room for all.

/// The storage class of a global.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Storage {
    /// Memory of the controller.
    #[default]
    Controller,
    /// One copy for the kernel and the controller.
    Shared {
        /// Handlers that touch it must hold its lock: some handler does more to it than one
        /// atomic step. Never set where only controller start-up (`begin`) writes.
        lock: bool,
    },
    /// Per-CPU deltas in the kernel, the sum in the controller.
    PerCpu {
        /// Two generations, because the controller reads it while handlers run; with one it
        /// is read only after all kernel programs are detached.
        double: bool,
    },
}

mod beside;
mod classify;
mod owned;
mod taken;

pub use beside::beside;
pub use classify::{Explanation, Line, classify, records};
pub use owned::Threads;
pub use taken::{takes, touched};
