//! What the loader and the controller must know about a compiled object: where everything is
//! in the state memory, which maps hold which global, and which program serves which event.
//!
//! # Maps of an object
//! | name | what |
//! |---|---|
//! | `.bss` (one mmap-able array element) | the **state memory**, see [`Layout`] |
//! | `.rodata` | constant tables and strings |
//! | `out` | ring buffer of [`Record`]s |
//! | `g_NAME_INDEX` | shared hash map of an array global |
//! | `threads` | hash map of the arrays that are fields of one record a thread, see [`Field`]; behind [`Front`] |
//! | `g_NAME_INDEX_0`, `.._1` | maps (one a generation) behind the cache of a per-CPU array global, see [`PerCpuArray`] |
//! | `copies_INDEX` (mmap-able array) | what the controller's critical section copied of an array, see [`critical`] |
//! | `s_NAME_INDEX` | array: copies of the elements that kernel handlers walk through, see `crates/bpf/src/plan/iterators.rs` |
//!
//! # State memory
//! ```text
//! 0                  shared block: session words, locks, shared scalars
//! shared_size        CPU 0's block: header, handler counters, caches, per-CPU scalars, frame
//! + cpu_stride       CPU 1's block ...
//! ```
//! All words are 64-bit, native byte order. The memory may be longer than its blocks.

pub mod critical;
mod large;
mod place;
mod rows;
mod symbolic;

pub use large::{GOLDEN, Large};
pub use place::{AggLayout, Beside, Field, Front, GlobalLayout, PerCpuArray, Place, ValueLayout};
pub use rows::{kernel_row, symbol_row, unwind_row};
pub use symbolic::Symbolic;

use spile_ir::{FormatId, GlobalId, HandlerId, SiteId, Ty};

use crate::object::elf::ObjectSpec;
use crate::target::Typed;

/// Word offsets (in bytes) in the shared block that every object has.
pub mod shared {
    /// Not 0 while handlers may run; the loader sets it when the `begin` probes are done.
    pub const RUNNING: u32 = 0;
    /// Low bit: the generation that handlers write per-CPU deltas to.
    pub const GENERATION: u32 = 8;
    /// The pid that `target()` gives.
    pub const TARGET: u32 = 16;
    /// Wall clock minus monotonic clock, nanoseconds; the controller keeps it right.
    pub const CLOCK_OFFSET: u32 = 24;
    /// Seconds west of UTC.
    pub const TZ_OFFSET: u32 = 32;
    /// 16 bytes: the zone's abbreviation.
    pub const TZ_NAME: u32 = 40;
    /// Set to 1 by `exit()`, and by an error when MAXERRORS is used up.
    pub const EXIT: u32 = 56;
    /// Errors so far in kernel handlers (atomic).
    pub const ERRORS: u32 = 64;
    /// The last insertion sequence that was given out (atomic).
    pub const SEQ: u32 = 72;
    /// Address of the first `struct page`; 0 where the loader could not find it out.
    pub const PAGES: u32 = 80;
    /// Address of the kernel's mapping of all memory.
    pub const MEMORY: u32 = 88;
    /// 16 characters and a NUL: the word that marks a string which the controller reads; see
    /// [`super::RecordWhat::Deferred`]. Empty where it reads none.
    pub const MARK: u32 = 96;
    /// Always 0, which the verifier does not know: it follows the ways that a program can go once for
    /// each number that it knows.
    pub const ZERO: u32 = 120;
    /// The flags by which handlers send what is printed: 0, or [`NO_WAKEUP`] while the controller rests.
    pub const WAKE: u32 = 128;
    /// New records wake nobody: `BPF_RB_NO_WAKEUP`.
    pub const NO_WAKEUP: u64 = 1;
    /// A record wakes the controller even while it rests: `BPF_RB_FORCE_WAKEUP`. Those that ask it to read
    /// what may be gone soon.
    pub const FORCE_WAKEUP: i32 = 2;
    /// First free word: locks and shared scalars follow, which change often, on a cache line of their own.
    pub const END: u32 = 192;
}

/// Word offsets (in bytes) from [`Layout::stacks`] in the shared block: address ranges, each the
/// first address and the one behind the last, that are left out of stacks of the kernel. The
/// loader sets them before anything is attached; zeros leave nothing out.
pub mod stack_words {
    /// The functions `bpf_trace_runN`: what stands in front of their frame is the probe's own.
    pub const RUN: u32 = 0;
    /// One behind the other, what belongs to each of [`super::StackWords::points`].
    pub const POINTS: u32 = 16;
    /// Ranges of a tracepoint: `__bpf_trace_NAME`, `__traceiter_NAME`.
    pub const PAIRS: usize = 2;
    /// Bytes that a tracepoint takes.
    pub const POINT: u32 = 16 * PAIRS as u32;
}

/// Where the words of [`stack_words`] are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackWords {
    /// Offset in the shared block.
    pub at: u32,
    /// The tracepoints, in order.
    pub points: Vec<String>,
    /// Whether stacks of the kernel are taken.
    pub kernel: bool,
    /// Whether stacks of programs are walked, and no addresses only looked up.
    pub rows: bool,
    /// Offset in the shared block of the last number that a file got, where stacks of programs
    /// are taken.
    pub files: Option<u32>,
    /// Whether kernel handlers look symbols of programs up themselves.
    pub symbols: bool,
    /// Whether they look places in the source up.
    pub lines: bool,
}

/// The file number of the kernel's own code in programs (vDSO).
pub const VDSO: u32 = 0xffff;
/// What stands for the file of a frame where the controller knows all frames from there on, by the number
/// of a copy of the stack in place of the offset.
pub const COPIED: u32 = 0xfffe;
/// Map of rooms for copies of stacks, one a CPU: a [`RecordWhat::Copy`] each.
pub const COPIES_MAP: &str = "stack_copies";
/// Fields of a copy: number, process, then of the frame that was found last the address, the address to
/// look up, stack pointer and frame pointer; how many pages of the stack follow, from the beginning of
/// the stack pointer's; and how many mappings of code behind [`COPY_PAGES`], four words each: beginning,
/// end, what makes an address an offset in the file, the file's number.
pub const COPY_FIELDS: usize = 8;
/// Most mappings in a copy.
pub const COPY_MAPPINGS: usize = 128;
/// Most pages of a copy.
pub const COPY_PAGES: usize = 8;
/// In place of a file's first row: it has none, and none will come.
pub const NO_ROWS: u64 = 1 << 32;
/// In a place's offset: the address is in memory that lies right behind a mapping of the file.
pub const BEHIND: u64 = 1 << 63;
/// In a place's offset: the frame was interrupted there by a signal, or a signal's frame returns there;
/// it is not behind a call.
pub const EXACT: u64 = 1 << 62;
/// Most names of a file's path in a [`RecordWhat::File`], and bytes of each.
pub const FILE_NAMES: usize = 12;
/// See [`FILE_NAMES`].
pub const FILE_NAME: usize = 64;
/// Map of files by device and inode (64 bits each); the value: number, first row, rows.
pub const FILES_MAP: &str = "stack_files";
/// Map of unwind rows, see [`unwind_row`].
pub const ROWS_MAP: &str = "stack_rows";
/// Unwind rows of all files together.
pub const MAX_ROWS: u32 = 1 << 20;

/// Map of the symbols of files: the value has fields as [`symbol_row`] says.
pub const SYMBOLS_MAP: &str = "stack_symbols";
/// Map of rows of symbols, see [`symbol_row`].
pub const SYMBOL_ROWS_MAP: &str = "symbol_rows";
/// Map of names of symbols and files, see [`symbol_row`].
pub const NAMES_MAP: &str = "symbol_names";
/// Map of rows of line tables, see [`symbol_row`].
pub const LINE_ROWS_MAP: &str = "line_rows";
/// Map of the lines of the kernel and its modules, see [`kernel_row`]. The loader makes it as large as they
/// need.
pub const KERNEL_LINES_MAP: &str = "kernel_lines";

/// Word offsets (in bytes) in each CPU's block that every object has.
pub mod percpu {
    /// Not 0 while a handler runs on this CPU; in some objects its number plus one. All bits in the
    /// controller's critical section.
    pub const BUSY: u32 = 0;
    /// Hits turned away because a handler ran on this CPU already.
    pub const SKIP_REENTRANT: u32 = 8;
    /// Hits turned away because a lock could not be had.
    pub const SKIP_LOCK: u32 = 16;
    /// Ring-buffer records that did not fit.
    pub const LOST_OUTPUT: u32 = 24;
    /// Strings cut to their limit.
    pub const TRUNCATED: u32 = 32;
    /// Updates that the kernel refused for want of memory.
    pub const NO_MEMORY: u32 = 40;
    /// Strings of user memory that were left to the controller.
    pub const DEFERRED: u32 = 48;
    /// Frames of programs that were found by frame pointers, because the rows of their file
    /// were not loaded.
    pub const GUESSED: u32 = 56;
    /// Stacks that were deeper than MAXBACKTRACE.
    pub const CUT_STACKS: u32 = 64;
    /// Hits that the controller's own actions caused, while it held a lock that they wanted.
    pub const SKIP_OWN: u32 = 72;
    /// The same of events that interrupts and switches of tasks bring: some are others'.
    pub const SKIP_HELD: u32 = 80;
    /// Symbols that handlers looked up in files whose symbols were not there.
    pub const UNNAMED: u32 = 88;
    /// First free word: handler counters follow.
    pub const END: u32 = 96;
}

/// Counters of one handler in each CPU's block, as word offsets from its
/// [`HandlerInfo::counters`]. `TIME_*` only with [`crate::target::Options::timing`].
pub mod counters {
    /// Hits that ran (not the ones turned away).
    pub const HITS: u32 = 0;
    /// Sum of run times, nanoseconds.
    pub const TIME_SUM: u32 = 8;
    /// Shortest, nanoseconds; 0 with no hits.
    pub const TIME_MIN: u32 = 16;
    /// Longest, nanoseconds.
    pub const TIME_MAX: u32 = 24;
    /// Sum of squares of run times.
    pub const TIME_SQ: u32 = 32;
    /// Bytes a handler takes.
    pub const SIZE: u32 = 40;
}

/// A compiled script.
#[derive(Debug)]
pub struct Object {
    /// Maps, data, code.
    pub spec: ObjectSpec,
    /// Where everything is.
    pub layout: Layout,
}

/// Where things are.
#[derive(Debug, Clone)]
pub struct Layout {
    /// Bytes of the shared block.
    pub shared_size: u32,
    /// Bytes from one CPU's block to the next.
    pub cpu_stride: u32,
    /// CPU blocks.
    pub cpus: u32,
    /// Per global, in the program's order; `None` for the ones that only the controller has.
    pub globals: Vec<Option<GlobalLayout>>,
    /// Per handler, in the program's order; `None` for controller handlers.
    pub handlers: Vec<Option<HandlerInfo>>,
    /// The programs to attach.
    pub programs: Vec<ProgramInfo>,
    /// Shapes of [`Record`]s that carry output.
    pub records: Vec<RecordShape>,
    /// Where the words for stacks of the kernel are, if a handler takes one.
    pub stacks: Option<StackWords>,
    /// Offset in the shared block of the bits of [`crate::programs::process_tree`], where processes are followed.
    pub tree: Option<u32>,
    /// Handlers look pages of files up, for which the words [`shared::PAGES`] and [`shared::MEMORY`]
    /// are needed.
    pub pages: bool,
    /// What the controller copies and takes in its critical section, where it has one.
    pub critical: Option<critical::Critical>,
}

impl Layout {
    /// The tracepoints at which the program of a handler is attached beside the handler's own.
    pub fn others(&self, handler: HandlerId) -> &[String] {
        let of = |p: &&ProgramInfo| p.handlers.contains(&handler);
        match self.programs.iter().find(of).map(|p| &p.attach) {
            Some(Attach::RawTracepoint(names)) => names.get(1..).unwrap_or_default(),
            _ => &[],
        }
    }
}

/// A kernel handler.
#[derive(Debug, Clone)]
pub struct HandlerInfo {
    /// Its id in the program.
    pub id: HandlerId,
    /// Offset of its counters in each CPU's block.
    pub counters: u32,
}

/// One BPF program.
#[derive(Debug, Clone)]
pub struct ProgramInfo {
    /// Name in the ELF file.
    pub name: String,
    /// What it is attached to.
    pub attach: Attach,
    /// The handlers in it, in running order.
    pub handlers: Vec<HandlerId>,
    /// They do nothing: it does not matter whether it runs.
    pub idle: bool,
}

/// Bytes of the smallest page of any machine: memory is there up to a multiple of it, or not. What looks
/// into pages itself is made for x86-64, whose pages all have this size.
pub const PAGE: u32 = 4096;

/// The ring buffer in which handlers send [`Record`]s.
pub const RING: &str = "out";

/// The map that has the perf events of counter `n`.
pub fn counter_map(n: usize) -> String {
    format!("counter{n}")
}

/// What a program is attached to.
#[derive(Debug, Clone, PartialEq)]
pub enum Attach {
    /// Raw tracepoints: one as a rule, or several where the same is done at all. The program's handlers
    /// are those of the first, and hits at the others count as theirs.
    RawTracepoint(Vec<String>),
    /// A trace event of the system `raw_syscalls`.
    TraceEvent {
        /// Its name.
        name: &'static str,
        /// Its number in tracefs.
        id: u64,
    },
    /// Perf events: one, or several that hit the same program.
    Perf {
        /// `perf_event_attr.type`
        ty: u32,
        /// `perf_event_attr.config` of each
        configs: Vec<u64>,
        /// How often it hits.
        sample: spile_ir::Sample,
        /// Whose events count.
        of: spile_ir::PerfOf,
    },
    /// Packets at a hook of the network.
    Netfilter(spile_ir::Netfilter),
    /// Decisions of security modules, by the hook's name.
    Lsm(String),
    /// Every switch of tasks. First the perf events of these types and configs are put into
    /// the maps of their numbers (see [`counter_map`]), an entry for each CPU.
    Switch(Vec<(u32, u64)>),
    /// Places in code. The attach cookie of each is its number.
    Code {
        /// The places.
        probe: spile_ir::CodeProbe,
        /// By which means.
        by: CodeAttach,
    },
    /// Accesses to memory.
    Watch(spile_ir::Watch),
    /// Nothing: the controller has it run.
    OnDemand,
}

impl Attach {
    /// Whether one program serves both. What may be left out for one need not be for the other.
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

    /// What may be left out may be for both.
    pub(crate) fn no_more_lenient_than(&mut self, other: &Attach) {
        if let (Attach::Code { probe, .. }, Attach::Code { probe: other, .. }) = (self, other) {
            probe.leave_out = probe.leave_out.min(other.leave_out);
        }
    }
}

/// How a program gets to code; the kind of program depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeAttach {
    /// One link for all places of a file (uprobe.multi), or of the kernel (kprobe.multi).
    Multi,
    /// One link for functions of the kernel and their returns (kprobe.session).
    Session,
    /// A perf event for each place.
    Single,
    /// The one place by fentry or fexit, which cost the least at each hit. Such programs see
    /// arguments and the result, and no registers.
    Trampoline(Typed),
}

/// What one piece of output in a record holds.
#[derive(Debug, Clone)]
pub struct RecordShape {
    /// Format, or the kind of message.
    pub what: RecordWhat,
    /// Fields in order; a number takes 8 bytes; a string takes 8 bytes of length (without the
    /// NUL) and then its bytes padded with anything to a multiple of 8.
    pub fields: Vec<Ty>,
    /// Plain words behind the fields: the buckets of a histogram.
    pub words: u32,
}

/// The meaning of a piece of output.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordWhat {
    /// `print`: render the format with the fields.
    Print {
        /// Where the text goes.
        stream: spile_ir::Stream,
        /// What is rendered.
        fmt: FormatId,
    },
    /// A string of user memory for the controller to read; eight numbers: which one it is, its
    /// address, most bytes, a [`Quote`], then whose it is: address of the `task_struct`, thread
    /// id, `start_boottime`, `self_exec_id`. In later records of the same CPU the word at
    /// [`shared::MARK`], the first number in hex and a semicolon stand for it.
    Deferred,
    /// A file that is met in a stack for the first time; six numbers: its number, a process that
    /// has it mapped, where the mapping begins and ends, device, inode; then [`FILE_NAMES`]
    /// times [`FILE_NAME`] bytes, the names that lead to it, innermost first, NUL-terminated;
    /// an empty one ends them.
    File,
    /// A process became a program; two numbers: its number, and when, by the monotonic clock.
    Executed,
    /// The rest of a program's stack, which a handler could not walk: its words are pages.
    Copy,
    /// `print(@hist_log(x))`: draw the words, the buckets of this histogram.
    Hist(spile_ir::Hist),
    /// An error that nothing caught; fields: see [`ErrorKind`].
    Error {
        /// What went wrong.
        kind: ErrorKind,
        /// Where.
        site: SiteId,
        /// In which handler.
        handler: HandlerId,
    },
    /// The same for an error that passed through calls. Fields: index into `kinds`, site, number
    /// of callers, [`spile_ir::MAX_CALLERS`] of them (innermost first), the kind's number, the
    /// kind's text.
    Rethrown {
        /// The kinds it may be.
        kinds: Vec<ErrorKind>,
        /// In which handler.
        handler: HandlerId,
    },
}

/// In the field of a deferred read that says how it is written: above this many bits stands the
/// number, plus one, of the constant that is written where it cannot be read; 0 for none.
pub const SUBSTITUTE_SHIFT: u32 = 8;

/// How a string of user memory is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quote {
    /// As it is.
    No,
    /// Unprintable bytes escaped.
    Escaped,
    /// Escaped and in quotes.
    Quoted,
}

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
}

/// # A record in the ring buffer
/// One record holds all that one run of a handler sent:
/// ```text
/// u32 handler id | u32 bytes in use (this header included) | pieces...
/// piece: u64 index into Layout::records | fields
/// ```
/// A record can be longer than its pieces; readers stop at "bytes in use".
pub struct Record;
