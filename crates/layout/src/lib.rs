//! The layout of a compiled script: what its handlers and the controller share, whichever host runs the
//! handlers. [`plan`] decides it, the host makes the memory and the tables, and the controller reads and
//! writes them. How a host loads and attaches handlers is not part of it (for the kernel: `spile_bpf::compiled`).
//!
//! In: a program of the IR, and what its host can do. Out: a [`plan::StateLayout`] with the [`Layout`], and the
//! forms of words, tables and records. The crate has no
//! code of a host and does no I/O.
//!
//! | module | its one job |
//! |---|---|
//! | `words` | the words at fixed offsets of the state memory ([`shared`], [`percpu`], [`counters`]) |
//! | `location` | the locations of globals |
//! | [`plan`] | lays out a program |
//! | [`fields`] | the fields of output records |
//! | `tables` | tables that the controller fills in for handlers |
//! | `records` | what handlers send: output, errors, requests |
//! | `symbolic` | forms of texts in records and strings that only the controller can render |
//! | [`thread_record`] | the threads of processes, where these are the host |
//! | [`critical`] | consistent copies of globals for the controller |
//!
//! # Tables
//! | name | what |
//! |---|---|
//! | `g_NAME_INDEX` | shared hash table of an array global |
//! | `threads` | hash table of the arrays that are fields of one record a thread, see [`ThreadField`]; behind [`ThreadSlots`] |
//! | `g_NAME_INDEX_0`, `.._1` | tables (one a generation) behind the cache of a per-CPU array global, see [`PerCpuArray`] |
//! | `copies_INDEX` | what the controller's critical section copied of an array, see [`critical`] |
//! | [`FILES_MAP`] and others | files, symbols and lines for stacks |
//!
//! # State memory
//! ```text
//! 0                  shared area: session words, locks, shared scalars
//! shared_size        CPU 0's area: header, handler counters, caches, per-CPU scalars, frame
//! + cpu_stride       CPU 1's area ...
//! ```
//! All words are 64-bit, native byte order. The memory may be longer than its blocks.

pub mod critical;
pub mod fields;
mod location;
pub mod plan;
mod records;
mod symbolic;
mod tables;
pub mod thread_record;
mod words;

use spile_ir::HandlerId;
pub use spile_lir::library::large::{GOLDEN, LargeLayout};

pub use location::*;
pub use records::*;
pub use symbolic::{SymbolicForm, takes_kernel_stack};
pub use tables::*;
pub use thread_record::*;
pub use words::*;

/// What a host keeps for a script. The default has no globals and no handlers.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// Bytes of the shared area.
    pub shared_size: u32,
    /// Bytes from one per-CPU area to the next.
    pub cpu_stride: u32,
    /// Number of per-CPU areas.
    pub cpus: u32,
    /// For each global, in the program's order, its location; `None` if only the controller has it.
    pub globals: Vec<Option<GlobalLayout>>,
    /// For each handler, in the program's order, its counters; `None` for controller handlers.
    pub handlers: Vec<Option<HandlerInfo>>,
    /// Shapes of [`RingRecord`]s that carry output.
    pub records: Vec<RecordShape>,
    /// Offsets of the words for kernel stacks, if a handler takes one.
    pub stacks: Option<StackWords>,
    /// Offset in the shared area of the bits of the target's descendants ([`TREE_BYTES`]), if they are
    /// followed.
    pub tree: Option<u32>,
    /// Offset in each per-CPU area of the number of changes to processes, if handlers make any.
    pub acts: Option<u32>,
    /// Offset in each per-CPU area of the number of sums of statistics that passed 64 bits, if any is kept.
    pub wraps: Option<u32>,
    /// The same of the times that values of entries (`@entry`) were dropped for newer ones, if there are any.
    pub evictions: Option<u32>,
    /// Whether handlers look up pages of files, or locations in memory, which needs the words
    /// [`shared::PAGES`] and [`shared::MEMORY`].
    pub pages: bool,
    /// The globals that the controller's critical section copies, if there is one.
    pub critical: Option<critical::CriticalLayout>,
}

impl Layout {
    /// Names of other tracepoints whose hits a handler's counters count.
    pub fn others(&self, handler: HandlerId) -> &[String] {
        let info = self.handlers.get(handler.index()).and_then(Option::as_ref);
        info.map_or(&[], |info| &info.others)
    }

    /// Whether there is a statistic that keeps a sum in the form in which handlers read it.
    pub fn handlers_read_sums(&self) -> bool {
        self.globals.iter().flatten().any(|g| match &g.location {
            GlobalLocation::Stats { agg, .. }
            | GlobalLocation::Hash {
                value: ValueLayout::Stats(agg),
                ..
            } => agg.sum.is_some(),
            _ => false,
        })
    }
}

/// A handler that the host runs.
#[derive(Debug, Clone)]
pub struct HandlerInfo {
    /// Id in the program.
    pub id: HandlerId,
    /// Offset of the handler's counters in each per-CPU area.
    pub counters: u32,
    /// Names of other tracepoints whose hits its counters count, because they share its code.
    pub others: Vec<String>,
}
