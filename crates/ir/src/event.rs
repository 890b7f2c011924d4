//! What makes handlers run.

use std::sync::Arc;

use crate::program::Space;

/// What makes a handler run. The first group runs in the controller, the rest in the kernel.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// At the start, in ascending order.
    Begin(i64),
    /// At the end, in ascending order.
    End(i64),
    /// At the end, when an error ended the session.
    Error(i64),
    /// Never: checked and not run.
    Never,
    /// Every `period_ns`, plus or minus a random part up to `randomize_ns`.
    Timer {
        /// Nanoseconds between two runs.
        period_ns: u64,
        /// Largest random deviation in nanoseconds.
        randomize_ns: u64,
    },
    /// A scrape of the metrics address.
    Prometheus,
    /// A line of standard input.
    InputLine,
    /// A character of standard input.
    InputChar,
    /// A file that the controller serves.
    Procfs(Procfs),
    /// Once for each process that is there when the session starts; that process is the current
    /// one for the handler.
    Present {
        /// For each thread but the first of each, and not for processes.
        threads: bool,
    },
    /// Never: a perf event that handlers count with (`@perf`) has a name.
    Counter {
        /// Its name.
        name: Arc<str>,
        /// `perf_event_attr.type`
        ty: u32,
        /// `perf_event_attr.config`
        config: u64,
    },

    /// A raw tracepoint, by the kernel's name without its system.
    Tracepoint(Arc<str>),
    /// Entry to a system call.
    SysEnter(NrSet),
    /// Return from a system call.
    SysExit(NrSet),
    /// A perf event.
    Perf {
        /// `perf_event_attr.type`
        ty: u32,
        /// `perf_event_attr.config`
        config: u64,
        /// Events between two hits, or hits a second.
        sample: Sample,
        /// Whose events count.
        of: PerfOf,
    },
    /// Places in code of the kernel or of programs.
    Code(CodeProbe),
    /// Accesses to memory, by a debug register of the processor.
    Watch(Watch),
    /// Packets at a hook of the network.
    Netfilter(Netfilter),
    /// Decisions of security modules, by the name of the hook.
    Lsm(Arc<str>),
}

impl Event {
    /// Whether the handler runs in the kernel.
    pub fn in_kernel(&self) -> bool {
        matches!(
            self,
            Event::Tracepoint(_)
                | Event::SysEnter(_)
                | Event::SysExit(_)
                | Event::Perf { .. }
                | Event::Code(_)
                | Event::Watch(_)
                | Event::Netfilter(_)
                | Event::Lsm(_)
        )
    }

    /// Whether it is at code, and the code is a program's.
    pub fn in_user_code(&self) -> bool {
        matches!(self, Event::Code(probe) if probe.space == Space::User)
    }
}

/// A file whose readers get what a handler sets, or whose writers make it run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Procfs {
    /// Its path in the session's directory.
    pub path: Arc<str>,
    /// Runs for what is written; otherwise for each reader.
    pub write: bool,
    /// Most bytes that a reader gets.
    pub maxsize: u32,
    /// Permissions that its mode lacks; none: it is its owner's alone.
    pub umask: Option<u16>,
}

/// A hook of the network, in the session's network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Netfilter {
    /// Protocol family: `NFPROTO_IPV4`, `NFPROTO_IPV6`.
    pub pf: u32,
    /// Which hook of it.
    pub hook: u32,
    /// Lower ones run first.
    pub priority: i32,
}

/// Whose events a perf event counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PerfOf {
    /// Everybody's, on every CPU.
    All,
    /// Those of the session's target and its later children.
    Target,
    /// Those of this process and its later children.
    Process(u32),
}

/// Whose memory is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchOf {
    /// The kernel's.
    Kernel,
    /// That of this process, and its later children.
    Process(u32),
    /// That of each process that runs this program.
    Program(Arc<str>),
}

/// Memory that is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    /// Its address: in the kernel, or in the process; for a program, counted from where the first
    /// byte of its file is.
    pub address: u64,
    /// Bytes: 1, 2, 4 or 8, and the address a multiple.
    pub length: u8,
    /// Reads as well as writes.
    pub reads: bool,
    /// Whose memory it is.
    pub of: WatchOf,
}

/// Places in code whose hits one handler serves. The intrinsic `ctx_site` gives the number of
/// the place that was hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeProbe {
    /// Whose code it is; addresses in the handler's variables mean this memory.
    pub space: Space,
    /// Runs when the function that begins at the place returns, and not at the place.
    pub ret: bool,
    /// Only in this process.
    pub pid: Option<u32>,
    /// Only in the session's target and its descendants.
    pub tree: bool,
    /// Which places may be left out because they cannot be probed.
    pub leave_out: LeaveOut,
    /// The places.
    pub sites: Vec<CodeSite>,
}

/// Which places of a probe may be left out, when the kernel refuses them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum LeaveOut {
    /// A handler without any is an error.
    #[default]
    Few,
    /// It is one of a pattern's handlers: an error where all of them have none.
    Some,
    /// The point is optional.
    All,
}

/// One place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeSite {
    /// Where.
    pub place: CodePlace,
    /// Offset in the file of the marker's semaphore, which is more than 0 while the marker is
    /// probed; 0 for none.
    pub semaphore: u64,
    /// What `ctx_site` gives there. Handlers of one probe share tables by this number, so it need
    /// not be the index.
    pub number: u32,
    /// Of a return: the instructions that are probed, where it is not left to the kernel to put
    /// itself in place of the return address.
    pub exits: Option<Arc<Exits>>,
}

/// The instructions by which a function returns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Exits {
    /// Where they are.
    pub at: Vec<Exit>,
    /// Calls are those of goroutines, which change threads, and whose stacks move.
    pub goroutines: bool,
}

/// A return instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Exit {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Bytes from the function's first instruction in memory.
    pub distance: i32,
}

impl CodeProbe {
    /// Whether it is at the instructions by which functions return. Probes at returns are either
    /// all of this kind or none of them.
    pub fn at_exits(&self) -> bool {
        self.ret && self.sites.iter().any(|s| s.exits.is_some())
    }

    /// Whether calls of its functions are those of goroutines.
    pub fn of_goroutines(&self) -> bool {
        let mut exits = self.sites.iter().filter_map(|s| s.exits.as_deref());
        exits.any(|e| e.goroutines)
    }
}

/// Where code is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodePlace {
    /// A function of the kernel.
    Symbol {
        /// The module that has it; none for the kernel itself.
        module: Option<Arc<str>>,
        /// Its name.
        name: Arc<str>,
        /// Bytes from its start.
        offset: u64,
    },
    /// An address in the running kernel.
    Address(u64),
    /// The same, where a function begins that ftrace can trace.
    Traced(u64),
    /// An instruction in a program or a library.
    File {
        /// The ELF file.
        path: Arc<str>,
        /// Bytes from the start of the file (not an address).
        offset: u64,
    },
}

/// How often a perf event hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sample {
    /// Every so many events.
    Period(u64),
    /// So many times a second.
    Freq(u64),
}

/// Which system calls a handler serves. Numbers: the native table's number, or
/// [`NrSet::COMPAT`] plus the 32-bit table's number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NrSet {
    /// All, also unknown numbers.
    All,
    /// These, ascending.
    List(Vec<u32>),
}

impl NrSet {
    /// Offset of the 32-bit table's numbers.
    pub const COMPAT: u32 = 1024;
}
