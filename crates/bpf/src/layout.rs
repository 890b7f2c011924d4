//! The contract of a compiled object with the loader and the controller: the place of everything in
//! the state memory, the maps of each global, and the event of each program.
//!
//! # Maps of an object
//! | name | what |
//! |---|---|
//! | `.bss` (one mmap-able array element) | the **state memory**, see [`Layout`] |
//! | `.rodata` | constant tables and strings |
//! | `out` | ring buffer of [`RingRecord`]s |
//! | `g_NAME_INDEX` | shared hash map of an array global |
//! | `threads` | hash map of the arrays that are fields of one record a thread, see [`ThreadField`]; behind [`ThreadSlots`] |
//! | `g_NAME_INDEX_0`, `.._1` | maps (one a generation) behind the cache of a per-CPU array global, see [`PerCpuArray`] |
//! | `copies_INDEX` (mmap-able array) | what the controller's critical section copied of an array, see [`critical`] |
//! | `s_NAME_INDEX` | array: copies of the elements that kernel handlers walk through, see `crates/bpf/src/plan/iterators.rs` |
//!
//! # State memory
//! ```text
//! 0                  shared area: session words, locks, shared scalars
//! shared_size        CPU 0's area: header, handler counters, caches, per-CPU scalars, frame
//! + cpu_stride       CPU 1's area ...
//! ```
//! All words are 64-bit, native byte order. The memory may be longer than its blocks.

pub mod critical;
mod place;
pub(crate) mod symbolic;

pub use place::{
    AggLayout, Colocation, GlobalLayout, GlobalPlace, PerCpuArray, ThreadField, ThreadSlots,
    ValueLayout,
};
pub(crate) use spile_lir::library::large::GOLDEN;
pub use spile_lir::library::large::LargeLayout;
pub use symbolic::SymbolicForm;

use spile_ir::{FormatId, GlobalId, HandlerId, SiteId, Ty};
pub use spile_lir::library::stacks::rows::{kernel_row, stack_words, symbol_row};
pub use spile_lir::library::unwind::{
    BEHIND, COPIED, EXACT, FILE_NAME, FILE_NAMES, VDSO, copy, row as unwind_row,
};

pub use crate::lower::lir_sources::LirSources;
use crate::object::elf::ObjectSpec;
use crate::target::TypedFunction;

/// Word offsets (in bytes) in the shared area that every object has.
pub mod shared {
    /// Nonzero while handlers may run; the loader sets it when the `begin` probes are done.
    pub const RUNNING: u32 = 0;
    /// Low bit: the generation that handlers write per-CPU deltas to.
    pub const GENERATION: u32 = 8;
    /// The result of `target()`, a process number.
    pub const TARGET: u32 = 16;
    /// Wall clock minus monotonic clock in nanoseconds; the controller updates it.
    pub const CLOCK_OFFSET: u32 = 24;
    /// Seconds west of UTC.
    pub const TZ_OFFSET: u32 = 32;
    /// 16 bytes: the zone's abbreviation.
    pub const TZ_NAME: u32 = 40;
    /// Set to 1 by `exit()`, and by an error when MAXERRORS is used up.
    pub const EXIT: u32 = 56;
    /// Number of errors so far in kernel handlers (atomic).
    pub const ERRORS: u32 = 64;
    /// The last insertion sequence number (atomic).
    pub const SEQ: u32 = 72;
    /// Address of the first `struct page`; 0 if the loader could not determine it.
    pub const PAGES: u32 = 80;
    /// Address of the kernel's direct map.
    pub const MEMORY: u32 = 88;
    /// 16 characters and a NUL: the word that marks a string for the controller to read; see
    /// [`super::RecordKind::Deferred`]. Empty if it reads none.
    pub const MARK: u32 = 96;
    /// Always 0, but unknown to the verifier, which would follow every path once for each known
    /// number.
    pub const ZERO: u32 = 120;
    /// Flags with which handlers send output: 0, or [`NO_WAKEUP`] while the controller rests.
    pub const WAKE: u32 = 128;
    /// New records do not wake the controller: `BPF_RB_NO_WAKEUP`.
    pub const NO_WAKEUP: u64 = 1;
    /// A record wakes the controller even while it rests: `BPF_RB_FORCE_WAKEUP`. For records that
    /// ask it to read memory that may soon be gone.
    pub(crate) const FORCE_WAKEUP: i32 = 2;
    /// Programs that processes of the target executed and in which they have no breakpoints, because
    /// the kernel took their perf events away (atomic).
    pub const UNFOLLOWED: u32 = 136;
    /// First free word. Locks and shared scalars follow; they change often, and start on a cache
    /// line of their own.
    pub const END: u32 = 192;
}

/// Offsets of the words of [`stack_words`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackWords {
    /// Offset in the shared area.
    pub at: u32,
    /// The tracepoints, in order.
    pub points: Vec<String>,
    /// Whether kernel stacks are taken.
    pub kernel: bool,
    /// Whether user stacks are walked, and not only addresses looked up.
    pub rows: bool,
    /// Offset in the shared area of the last file number, if user stacks are taken.
    pub files: Option<u32>,
    /// Whether kernel handlers look up user symbols themselves.
    pub symbols: bool,
    /// Whether they look up positions in the source.
    pub lines: bool,
}

/// Bytes of the sequence number at the start of a value.
pub const SEQUENCE: u32 = 8;
/// The value that a handler writes into a lock. The controller's values have more than 32 bits.
pub(crate) const HELD: i32 = 1;
/// Bytes of the bits of the target's descendants, one bit for each possible process number
/// (`PID_MAX_LIMIT` of 64-bit kernels).
pub const TREE_BYTES: u32 = (4 << 20) / 8;
/// Map with rooms for copies of stacks, one for each CPU: a [`RecordKind::Copy`] each.
pub(crate) const COPIES_MAP: &str = "stack_copies";
/// In place of a file's first row: the file has no rows and will get none.
pub const NO_ROWS: u64 = 1 << 32;
/// Map of files by device and inode (64 bits each). The value: number, first row, number of rows.
pub const FILES_MAP: &str = "stack_files";
/// Map of unwind rows, see [`unwind_row`].
pub const ROWS_MAP: &str = "stack_rows";
/// Limit on the unwind rows of all files together.
pub const MAX_ROWS: u32 = 1 << 20;

/// The attach cookie of probes that follow the target's processes. A trace event has one attach cookie,
/// so each of its places has its own cookie as its first argument.
pub const FOLLOWED: u64 = u64::MAX;

/// Whether a probe can follow the target's processes: its breakpoints, and the counts of its
/// semaphores, are then in the memory of these only.
pub fn can_follow(probe: &spile_ir::CodeProbe) -> bool {
    let file = |s: &spile_ir::CodeSite| matches!(s.place, spile_ir::CodePlace::File { .. });
    probe.tree && probe.pid.is_none() && probe.sites.iter().all(file)
}

/// Map of the symbols of files, with the value's fields in [`symbol_row`].
pub const SYMBOLS_MAP: &str = "stack_symbols";
/// Map of rows of symbols, see [`symbol_row`].
pub const SYMBOL_ROWS_MAP: &str = "symbol_rows";
/// Map of names of symbols and files, see [`symbol_row`].
pub const NAMES_MAP: &str = "symbol_names";
/// Map of rows of line tables, see [`symbol_row`].
pub const LINE_ROWS_MAP: &str = "line_rows";
/// Map of the lines of the kernel and its modules, see [`kernel_row`]. The loader creates it in the
/// size that they need.
pub const KERNEL_LINES_MAP: &str = "kernel_lines";

/// Word offsets (in bytes) in each per-CPU area that every object has.
pub mod percpu {
    /// Nonzero while a handler runs on this CPU; in some objects its number plus one. All bits are
    /// set in the controller's critical section.
    pub const BUSY: u32 = 0;
    /// Hits turned away because a handler was running on this CPU.
    pub const SKIP_REENTRANT: u32 = 8;
    /// Hits turned away because a lock could not be taken.
    pub const SKIP_LOCK: u32 = 16;
    /// Ring-buffer records that did not fit.
    pub const LOST_OUTPUT: u32 = 24;
    /// Strings truncated to their limit.
    pub const TRUNCATED: u32 = 32;
    /// Updates that failed because the kernel had no memory.
    pub const NO_MEMORY: u32 = 40;
    /// Strings of user memory whose read was deferred to the controller.
    pub(crate) const DEFERRED: u32 = 48;
    /// User frames that were found by frame pointers, because the rows of their file were not
    /// loaded.
    pub const GUESSED: u32 = 56;
    /// Stacks deeper than MAXBACKTRACE.
    pub const CUT_STACKS: u32 = 64;
    /// Hits that the controller's own actions caused while it held a lock that they needed.
    pub const SKIP_OWN: u32 = 72;
    /// The same for events of interrupts and task switches, some of which are not the controller's
    /// own.
    pub const SKIP_HELD: u32 = 80;
    /// Symbols that handlers looked up in files whose symbols were not loaded.
    pub const UNNAMED: u32 = 88;
    /// First free word: handler counters follow.
    pub const END: u32 = 96;
}

/// Counters of one handler in each per-CPU area, as word offsets from its [`HandlerInfo::counters`].
/// `TIME_*` are used only with [`crate::target::Target::timing`].
pub mod counters {
    /// Hits that ran (not the ones turned away).
    pub const HITS: u32 = 0;
    /// Sum of run times, nanoseconds.
    pub const TIME_SUM: u32 = 8;
    /// Shortest run time, nanoseconds; 0 without hits.
    pub const TIME_MIN: u32 = 16;
    /// Longest run time, nanoseconds.
    pub const TIME_MAX: u32 = 24;
    /// Sum of squares of run times.
    pub const TIME_SQ: u32 = 32;
    /// Bytes of a handler's counters.
    pub const SIZE: u32 = 40;
}

/// A compiled script.
#[derive(Debug)]
pub struct Object {
    /// Maps, data, code.
    pub spec: ObjectSpec,
    /// The layout of the state memory and the maps.
    pub layout: Layout,
    /// The functions that are made from LIR.
    pub lir: LirSources,
}

/// The contract between object, loader and controller. The default has no globals, handlers or
/// programs.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// Bytes of the shared area.
    pub shared_size: u32,
    /// Bytes from one per-CPU area to the next.
    pub cpu_stride: u32,
    /// Number of per-CPU areas.
    pub cpus: u32,
    /// For each global, in the program's order, its place; `None` if only the controller has it.
    pub globals: Vec<Option<GlobalLayout>>,
    /// For each handler, in the program's order, its counters; `None` for controller handlers.
    pub handlers: Vec<Option<HandlerInfo>>,
    /// The programs to attach.
    pub programs: Vec<ProgramInfo>,
    /// Shapes of [`RingRecord`]s that carry output.
    pub records: Vec<RecordShape>,
    /// Offsets of the words for kernel stacks, if a handler takes one.
    pub stacks: Option<StackWords>,
    /// Offset in the shared area of the bits of [`crate::programs::process_tree`], if descendants
    /// are followed.
    pub tree: Option<u32>,
    /// Offset in each per-CPU area of the number of changes to processes, if handlers make any.
    pub acts: Option<u32>,
    /// Offset in each per-CPU area of the number of sums of statistics that passed 64 bits, if any is kept.
    pub wraps: Option<u32>,
    /// The same of the times that values of entries (`@entry`) were dropped for newer ones, if there are any.
    pub evictions: Option<u32>,
    /// Whether handlers look up pages of files, or places in memory, which needs the words
    /// [`shared::PAGES`] and [`shared::MEMORY`].
    pub pages: bool,
    /// Whether programs find the place that was hit in a trace event, so that they can follow the
    /// target's processes.
    pub follows: bool,
    /// The globals that the controller's critical section copies, if there is one.
    pub critical: Option<critical::CriticalLayout>,
}

impl Layout {
    /// The other tracepoints that share the program of a handler.
    pub fn others(&self, handler: HandlerId) -> &[String] {
        let of = |p: &&ProgramInfo| p.handlers.contains(&handler);
        match self.programs.iter().find(of).map(|p| &p.attach) {
            Some(Attach::RawTracepoint(names)) => names.get(1..).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Whether there is a statistic that keeps a sum in the form in which handlers read it.
    pub fn handlers_read_sums(&self) -> bool {
        self.globals.iter().flatten().any(|g| match &g.place {
            GlobalPlace::Stats { agg, .. }
            | GlobalPlace::Hash {
                value: ValueLayout::Stats(agg),
                ..
            } => agg.sum.is_some(),
            _ => false,
        })
    }
}

/// A kernel handler.
#[derive(Debug, Clone)]
pub struct HandlerInfo {
    /// Id in the program.
    pub id: HandlerId,
    /// Offset of the handler's counters in each per-CPU area.
    pub counters: u32,
}

/// One BPF program.
#[derive(Debug, Clone)]
pub struct ProgramInfo {
    /// Name in the ELF file.
    pub name: String,
    /// The attachment.
    pub attach: Attach,
    /// The handlers in it, in running order.
    pub handlers: Vec<HandlerId>,
    /// Whether the handlers do nothing, so that the program need not run.
    pub idle: bool,
}

pub use spile_abi::PAGE;

/// The ring buffer in which handlers send [`RingRecord`]s.
pub const RING: &str = "out";

/// Name of the map with the perf events of counter `n`.
pub fn counter_map(n: usize) -> String {
    format!("counter{n}")
}

/// The event that a program is attached to.
#[derive(Debug, Clone, PartialEq)]
pub enum Attach {
    /// Raw tracepoints: usually one, or several with the same handlers' code. The program's
    /// handlers are those of the first tracepoint, and count the hits of all.
    RawTracepoint(Vec<String>),
    /// A trace event.
    TraceEvent(spile_ir::TraceEvent),
    /// Perf events: one, or several that hit the same program.
    Perf {
        /// `perf_event_attr.type`
        ty: u32,
        /// `perf_event_attr.config` of each
        configs: Vec<u64>,
        /// The sampling period or frequency.
        sample: spile_ir::Sample,
        /// The tasks whose events count.
        of: spile_ir::PerfScope,
    },
    /// Packets at a hook of the network.
    Netfilter(spile_ir::Netfilter),
    /// Decisions of security modules, by the hook's name.
    Lsm(String),
    /// Every task switch. First the perf events of these types and configs are stored in the maps
    /// of their numbers (see [`counter_map`]), with an entry for each CPU.
    Switch(Vec<(u32, u64)>),
    /// Places in code. The attach cookie of each place is its number.
    Code {
        /// The places.
        probe: spile_ir::CodeProbe,
        /// The attach kind.
        by: CodeAttach,
    },
    /// Accesses to memory.
    Watch(spile_ir::Watch),
    /// No event: the controller runs the program.
    OnDemand,
}

impl Attach {
    /// Whether one program serves both attachments; places that are optional for one may be
    /// required for the other.
    pub(crate) fn same_place(&self, other: &Attach) -> bool {
        match (self, other) {
            (
                Attach::Code { probe: a, by },
                Attach::Code {
                    probe: b,
                    by: other,
                },
            ) => {
                let of = |p: &spile_ir::CodeProbe| (p.space, p.ret, p.pid, p.tree);
                by == other && of(a) == of(b) && a.sites == b.sites
            }
            _ => self == other,
        }
    }

    /// Keeps a place optional only if it is optional for both.
    pub(crate) fn no_more_lenient_than(&mut self, other: &Attach) {
        if let (Attach::Code { probe, .. }, Attach::Code { probe: other, .. }) = (self, other) {
            probe.optional_sites = probe.optional_sites.min(other.optional_sites);
        }
    }
}

/// The attach kind of probes in code, which determines the program type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeAttach {
    /// One link for all places of a file (uprobe.multi), or of the kernel (kprobe.multi).
    Multi,
    /// One link for functions of the kernel and their returns (kprobe.session).
    Session,
    /// A perf event for each place.
    Single,
    /// One place by fentry or fexit, the kinds with the smallest cost of a hit. Such programs see
    /// arguments and the result, but no registers.
    Trampoline(TypedFunction),
}

/// The shape of an output record: one piece of a ring-buffer record.
#[derive(Debug, Clone)]
pub struct RecordShape {
    /// The format, or the kind of message.
    pub what: RecordKind,
    /// Types of the fields in order. A number takes 8 bytes; a string takes 8 bytes of length
    /// (without the NUL), then its bytes, padded with arbitrary bytes to a multiple of 8.
    pub fields: Vec<Ty>,
    /// Number of words behind the fields: the buckets of a histogram.
    pub words: u32,
}

/// The meaning of an output record.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordKind {
    /// `print`: render the format with the fields.
    Print {
        /// Where the text goes.
        stream: spile_ir::Stream,
        /// The format to render.
        fmt: FormatId,
    },
    /// A string of user memory for the controller to read. Eight numbers: the read's number; the
    /// address; the largest length; a [`Quote`]; and the process, as the address of its
    /// `task_struct`, thread id, `start_boottime` and `self_exec_id`. In later records of the same
    /// CPU a mark stands for the string: the word at [`shared::MARK`], the read's number in hex and
    /// a semicolon.
    Deferred,
    /// A file that a stack walk met for the first time. Six numbers: the file's number, a process
    /// that has it mapped, start and end of the mapping, device, inode. Then [`FILE_NAMES`] times
    /// [`FILE_NAME`] bytes: the names of its path, innermost first, NUL-terminated; an empty name
    /// ends them.
    File,
    /// A process called `execve`. Two numbers: the process, and the time on the monotonic clock.
    Executed,
    /// The rest of a user stack that a handler could not walk: its words are pages.
    Copy,
    /// `print(@hist_log(x))`: the words are the buckets of this histogram.
    Hist(spile_ir::Hist),
    /// An uncaught error; for its fields see [`ErrorKind`].
    Error {
        /// The kind of error.
        kind: ErrorKind,
        /// The position in the script.
        site: SiteId,
        /// The handler that failed.
        handler: HandlerId,
    },
    /// An uncaught error that passed through calls. Fields: index into `kinds`, site, number of
    /// callers, [`spile_ir::MAX_CALLERS`] of them (innermost first), the kind's number, the kind's
    /// text.
    Rethrown {
        /// The kinds that the error can have.
        kinds: Vec<ErrorKind>,
        /// The handler that failed.
        handler: HandlerId,
    },
}

/// In the quoting field of a deferred read, the bits from this one on hold the number plus one of
/// the constant to print if the memory cannot be read; 0 for none.
pub const SUBSTITUTE_SHIFT: u32 = 8;

/// How a string of user memory is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quote {
    /// Unchanged.
    No,
    /// Unprintable bytes escaped.
    Escaped,
    /// Escaped and in quotes.
    Quoted,
}

/// The lowest error number (`MAX_ERRNO`), negated.
pub(crate) const LOWEST_ERROR: i32 = -4095;

/// The message of [`ErrorKind::Decision`].
pub const DECISION: &str =
    "a decision is 0 (allowed) or a negative error number down to -4095 (denied)";

/// Errors of kernel handlers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// `division by 0`
    DivisionByZero,
    /// `empty aggregate`
    EmptyAggregate,
    /// `Array overflow, check MAXMAPENTRIES`; for aggregates `aggregation overflow in X`
    Overflow(GlobalId),
    /// `histogram index out of range`
    HistIndex,
    /// `read fault at 0x...`: one field, the address
    ReadFault,
    /// `kernel string copy fault at 0x...`: one field, the address
    KernelStrFault,
    /// `user string copy fault at 0x...`: one field, the address
    UserStrFault,
    /// `error("...")`: one field, the text
    Raised,
    /// `MAXACTION exceeded`
    MaxAction,
    /// `MAXNESTING exceeded`
    MaxNesting,
    /// `the counter cannot be read`
    Counter,
    /// `a packet can be dropped (0) or accepted (1)`
    Verdict,
    /// A decision that the kernel does not take.
    Decision,
    /// `write fault at 0x...`: one field, the address
    WriteFault,
    /// `the signal cannot be sent`
    Signal,
}

/// # A record in the ring buffer
/// One record holds all that one run of a handler sent:
/// ```text
/// u32 handler id | u32 bytes in use (this header included) | pieces...
/// piece: u64 index into Layout::records | fields
/// ```
/// A record can be longer than its pieces; readers stop at "bytes in use".
pub struct RingRecord;
