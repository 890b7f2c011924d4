//! Events: what makes handlers run.
//!
//! An event is a variant of [`Event`] and a row of the table `events!`: its text form, its executor, what its handlers
//! can use. Printer, reader and checks follow from the row. The types of its fields have their form in `form!`.

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use spile_cast::Cast;

use crate::form::{Form, Printer, form};
use crate::intrinsics::EventNeed;
use crate::program::types::Space;
use crate::token::{Reader, Res};

/// What runs handlers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executor {
    /// The kernel, as BPF programs.
    Kernel,
    /// The probed process itself, as machine code.
    Process,
    /// The controller, which interprets handlers.
    Controller,
}

impl Executor {
    /// All executors.
    pub const ALL: [Executor; 3] = [Executor::Kernel, Executor::Process, Executor::Controller];

    /// Its name, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Executor::Kernel => "kernel",
            Executor::Process => "process",
            Executor::Controller => "controller",
        }
    }
}

/// The host of a session: what runs its compiled handlers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HostKind {
    /// The kernel.
    #[default]
    Kernel,
    /// The target's processes.
    Process,
}

impl HostKind {
    /// Its executor.
    pub fn executor(self) -> Executor {
        match self {
            HostKind::Kernel => Executor::Kernel,
            HostKind::Process => Executor::Process,
        }
    }
}

/// A set of executors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExecutorSet(u8);

pub(crate) const K: ExecutorSet = ExecutorSet::of(&[Executor::Kernel]);
pub(crate) const P: ExecutorSet = ExecutorSet::of(&[Executor::Process]);
pub(crate) const C: ExecutorSet = ExecutorSet::of(&[Executor::Controller]);
pub(crate) const KC: ExecutorSet = ExecutorSet::of(&[Executor::Kernel, Executor::Controller]);
pub(crate) const KP: ExecutorSet = ExecutorSet::of(&[Executor::Kernel, Executor::Process]);
pub(crate) const KPC: ExecutorSet = ExecutorSet::of(&Executor::ALL);

impl ExecutorSet {
    /// The set of these executors.
    pub const fn of(executors: &[Executor]) -> ExecutorSet {
        match executors {
            [] => ExecutorSet(0),
            [first, rest @ ..] => ExecutorSet((1 << *first as u8) | ExecutorSet::of(rest).0),
        }
    }

    /// Whether an executor is in the set.
    pub const fn contains(self, executor: Executor) -> bool {
        self.0 & ExecutorSet::of(&[executor]).0 != 0
    }

    /// Whether an executor is in both sets.
    pub fn meets(self, other: ExecutorSet) -> bool {
        self.0 & other.0 != 0
    }
}

/// What makes a handler run. Handlers of the first group of variants run in the controller, the rest is
/// compiled and runs in the session's [`HostKind`].
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Start of the session; handlers run in ascending order of the number.
    Begin(i64),
    /// End of the session, in ascending order of the number.
    End(i64),
    /// End of a session by an error, in ascending order of the number.
    Error(i64),
    /// Never: the handler is checked and does not run.
    Never,
    /// Every `period_ns`, plus or minus a random part up to `randomize_ns`.
    Timer {
        /// Nanoseconds between two runs.
        period_ns: u64,
        /// Largest random deviation in nanoseconds.
        randomize_ns: u64,
    },
    /// A scrape of the Prometheus address.
    Prometheus,
    /// A line of standard input.
    InputLine,
    /// A character of standard input.
    InputChar,
    /// A file that the controller serves.
    Procfs(Procfs),
    /// Once for each process that exists when the session starts. That process is the current one
    /// of the handler.
    Present {
        /// Run for each thread except main threads, instead of for each process.
        threads: bool,
    },
    /// Never: the declaration names a perf event, which handlers read with `@perf`.
    Counter {
        /// The perf event's name.
        name: Arc<str>,
        /// `perf_event_attr.type`
        ty: u32,
        /// `perf_event_attr.config`
        config: u64,
    },

    /// A raw tracepoint, by the kernel's name without the subsystem.
    Tracepoint(Arc<str>),
    /// A tracepoint, as the trace event whose record the kernel has written.
    TraceEvent(TraceEvent),
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
        /// Sampling period or frequency.
        sample: SamplingRate,
        /// The processes whose events count.
        scope: PerfScope,
    },
    /// Locations in code of the kernel or of programs.
    Code(CodeProbe),
    /// Accesses to memory, caught by a debug register of the processor.
    Watch(Watch),
    /// Packets at a netfilter hook.
    Netfilter(Netfilter),
    /// Decisions of Linux security modules (LSM), by the name of the hook.
    Lsm(Arc<str>),
    /// A step in the life of a task, where the target's processes are the host. The kernel has tracepoints for it.
    Task(TaskEvent),
}

macro_rules! events {
    ($($variant:ident $word:literal
        $(($item:ident))? $({ $($field:tt)* })? $(= { $($constant:tt)* })?,
        $executors:ident $kind:literal [$($need:ident)*];
    )*) => {
        form! { enum Event {
            $($variant $word $(($item))? $({ $($field)* })? $(= { $($constant)* })?),*
        } }

        impl Event {
            /// The executors that can run the event's handlers: the controller, or some hosts.
            pub fn executors(&self) -> ExecutorSet {
                #[allow(unreachable_patterns)]
                match self {
                    $(Event::$variant { .. } => $executors,)*
                }
            }

            /// The text of SystemTap's `probe_type()`, where the point does not decide it.
            pub fn kind(&self) -> &'static str {
                #[allow(unreachable_patterns)]
                match self {
                    $(Event::$variant { .. } => $kind,)*
                }
            }

            /// The properties that all events of this variant have.
            pub(crate) fn offers(&self) -> &'static [EventNeed] {
                #[allow(unreachable_patterns)]
                match self {
                    $(Event::$variant { .. } => &[$(EventNeed::$need),*],)*
                }
            }
        }
    };
}

events! {
    Begin "begin" (order), C "begin_end" [];
    End "end" (order), C "begin_end" [];
    Error "error" (order), C "begin_end" [];
    Never "never", C "begin_end" [];
    Timer "timer" { period_ns ",", randomize_ns }, C "hrtimer" [];
    Prometheus "prometheus", C "procfs" [];
    InputLine "input_line", C "procfs" [];
    InputChar "input_char", C "procfs" [];
    Procfs "procfs" (file), C "procfs" [];
    Present "present_processes" = { threads: false }, C "utrace" [];
    Present "present_threads" = { threads: true }, C "utrace" [];
    Counter "counter" { name ",", ty ",", config }, C "perf_event" [];
    Tracepoint "tracepoint" (name), K "kernel_tracepoint" [Argument];
    TraceEvent "trace_event" (event), K "kernel_tracepoint" [Record];
    SysEnter "sys_enter" (calls), KP "kernel_tracepoint" [CallArgument SystemCall SystemCallEntry];
    SysExit "sys_exit" (calls), KP "kernel_tracepoint" [CallArgument SystemCall SystemCallReturn CallReturn];
    Perf "perf" { ty ",", config ",", sample, scope }, KP "perf_event" [Argument Registers];
    Code "code" (probe), KP "kprobe" [Argument CallArgument CodeLocation Registers];
    Watch "watch" (watch), K "hardware_data_breakpoint" [Registers];
    Netfilter "netfilter" (hook), K "netfilter" [Argument Packet];
    Lsm "lsm" (name), K "kprobe" [Argument Decision];
    Task "task" (what), P "utrace" [];
}

form! {
    struct Procfs { write["read", "write"] path maxsize umask["umask"] }
    struct TraceEvent { system "," name "," id }
    struct Netfilter { pf "," hook "," priority }
    struct Watch { reads["write", "rw"] address length owner }
    struct CodeProbe { space ret["return"] pid["pid"] tree["tree"] optional_sites sites[","] }
    struct Exits { goroutines["goroutines"] shared["shared"] instructions["exit"] }
    struct Exit { offset distance }
}

form! {
    enum SamplingRate { Period "period" (n), Freq "freq" (n) }
    enum PerfScope { Target "target", Process "pid" (pid), All "" }
    enum TaskEvent {
        ProcessBegin "process_begin",
        ProcessEnd "process_end",
        ThreadBegin "thread_begin",
        ThreadEnd "thread_end",
    }
    enum WatchOwner { Process "pid" (pid), Program "of" (path), Kernel "" }
    enum OptionalSites { Group "some", All "optional", Single "" }
    enum NrSet { All "all", List "" (calls) }
    enum CodeLocation {
        Symbol "symbol" { module, name, offset },
        Address "address" (address),
        Traced "traced" (address),
        File "file" { path, offset },
    }
}

/// The sites of a probe. A number that is the index is left out.
impl Form for Vec<CodeSite> {
    fn print(&self, words: &[&str], p: &mut Printer<'_, '_>) -> std::fmt::Result {
        self.iter().zip(0..).try_for_each(|(site, index)| {
            words.iter().try_for_each(|w| p.word(w))?;
            site.location.print(&[], p)?;
            site.semaphore.print(&["semaphore"], p)?;
            let number = Some(site.number).filter(|n| *n != index);
            number.print(&["number"], p)?;
            site.exits.iter().try_for_each(|e| e.print(&[], p))
        })
    }

    fn read(words: &[&str], r: &mut Reader) -> Res<Vec<CodeSite>> {
        let mut sites = Vec::new();
        while bool::read(words, r)? {
            sites.push(CodeSite {
                location: Form::read(&[], r)?,
                semaphore: Form::read(&["semaphore"], r)?,
                number: Option::read(&["number"], r)?.unwrap_or(sites.len().fit::<u32>()),
                exits: Some(Exits::read(&[], r)?)
                    .filter(|e| *e != Exits::default())
                    .map(Arc::new),
            });
        }
        Ok(sites)
    }
}

impl Display for Event {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.print(&["(", ")"], &mut Printer::new(f))
    }
}

impl Event {
    /// Whether its handlers are compiled, for the session's host; the controller interprets all others.
    pub fn is_compiled(&self) -> bool {
        !self.executors().contains(Executor::Controller)
    }

    /// The executor of its handlers in a session of this host.
    pub fn executor(&self, host: HostKind) -> Executor {
        match self.is_compiled() {
            true => host.executor(),
            false => Executor::Controller,
        }
    }

    /// Whether the event is a location in a program's code.
    pub fn in_user_code(&self) -> bool {
        matches!(self, Event::Code(probe) if probe.space == Space::User)
    }
}

/// A procfs file. Its read handler sets the text that readers get; its write handler gets the text
/// written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Procfs {
    /// Its path in the session's directory.
    pub path: Arc<str>,
    /// The handler runs at writes; otherwise at reads.
    pub write: bool,
    /// Maximum number of bytes that a reader gets.
    pub maxsize: u32,
    /// Permission bits that the file's mode lacks. With `None` only the owner has access.
    pub umask: Option<u16>,
}

/// A trace event of tracefs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceEvent {
    /// Its subsystem.
    pub system: Arc<str>,
    /// Its name, which is that of the tracepoint.
    pub name: Arc<str>,
    /// Its number: `perf_event_attr.config`.
    pub id: u64,
}

/// A netfilter hook in the session's network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Netfilter {
    /// Protocol family: `NFPROTO_IPV4`, `NFPROTO_IPV6`.
    pub pf: u32,
    /// Number of the hook within the family.
    pub hook: u32,
    /// Priority; hooks with lower ones run first.
    pub priority: i32,
}

/// A step in the life of a task of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskEvent {
    /// A process begins, by fork or by executing a program.
    ProcessBegin,
    /// The last thread of a process ends.
    ProcessEnd,
    /// A thread begins that is not its process's first one.
    ThreadBegin,
    /// Such a thread ends.
    ThreadEnd,
}

impl TaskEvent {
    /// All steps.
    pub const ALL: [TaskEvent; 4] = [
        TaskEvent::ProcessBegin,
        TaskEvent::ProcessEnd,
        TaskEvent::ThreadBegin,
        TaskEvent::ThreadEnd,
    ];

    /// Its name, as in the text form.
    pub fn name(self) -> &'static str {
        match self {
            TaskEvent::ProcessBegin => "process_begin",
            TaskEvent::ProcessEnd => "process_end",
            TaskEvent::ThreadBegin => "thread_begin",
            TaskEvent::ThreadEnd => "thread_end",
        }
    }
}

/// The processes whose events a perf event counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PerfScope {
    /// All processes, on every CPU.
    All,
    /// The session's target and its descendants.
    Target,
    /// This process and its later children.
    Process(u32),
}

/// The owner of watched memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchOwner {
    /// The kernel.
    Kernel,
    /// This process and its later children.
    Process(u32),
    /// Each process that runs this program.
    Program(Arc<str>),
}

/// A range of memory that is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    /// Start address: in the kernel or in the process. For a program, the offset from the address
    /// that the first byte of its file is mapped to.
    pub address: u64,
    /// Length in bytes: 1, 2, 4 or 8. The address is a multiple of it.
    pub length: u8,
    /// Reads hit too, not only writes.
    pub reads: bool,
    /// The owner of the memory.
    pub owner: WatchOwner,
}

/// Locations in code that one handler serves. The intrinsic `ctx_site` gives the number of the location
/// that was hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeProbe {
    /// The address space of the code, and of addresses in the handler's variables.
    pub space: Space,
    /// The handler runs when the function that begins at the location returns, instead of at the
    /// location.
    pub ret: bool,
    /// Hits count only in this process.
    pub pid: Option<u32>,
    /// Hits count only in the session's target and its descendants.
    pub tree: bool,
    /// The locations that may be left out because they cannot be probed.
    pub optional_sites: OptionalSites,
    /// The locations.
    pub sites: Vec<CodeSite>,
}

/// The locations of a probe that may be left out when the kernel refuses them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum OptionalSites {
    /// Single locations; a handler that is left with none is an error.
    #[default]
    Single,
    /// All of a handler's locations, if it is one of the handlers of a point with several locations: an error only where all
    /// of these have none.
    Group,
    /// All locations: the probe point is optional.
    All,
}

/// A location in code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeSite {
    /// Where the code is.
    pub location: CodeLocation,
    /// File offset of the marker's semaphore, which the kernel raises while the marker is probed; 0
    /// for none.
    pub semaphore: u64,
    /// The value of `ctx_site` at this location. Handlers of one probe share tables by this number, so
    /// it need not be the index.
    pub number: u32,
    /// For a return: the return instructions to probe; `None` leaves the return to the kernel,
    /// which replaces the return address (uretprobe).
    pub exits: Option<Arc<Exits>>,
}

/// The instructions by which a function returns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Exits {
    /// The return instructions.
    pub instructions: Vec<Exit>,
    /// The function is called by goroutines, which change threads and whose stacks move.
    pub goroutines: bool,
    /// Some of the instructions belong to functions that it jumps to (tail calls), so a hit is a
    /// return of this function only if its entry was seen with the same stack.
    pub shared: bool,
}

/// A return instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Exit {
    /// Offset in the file.
    pub offset: u64,
    /// Distance in bytes from the function's first instruction in memory.
    pub distance: i32,
}

impl CodeProbe {
    /// Whether the probe is at return instructions. Probes at returns are either all of this kind
    /// or none of them.
    pub fn at_exits(&self) -> bool {
        self.ret && self.sites.iter().any(|s| s.exits.is_some())
    }

    /// Whether goroutines call its functions.
    pub fn of_goroutines(&self) -> bool {
        let mut exits = self.sites.iter().filter_map(|s| s.exits.as_deref());
        exits.any(|e| e.goroutines)
    }

    /// Whether return instructions of its functions are exits of other functions too.
    pub fn shares_exits(&self) -> bool {
        let mut exits = self.sites.iter().filter_map(|s| s.exits.as_deref());
        self.ret && exits.any(|e| e.shared)
    }
}

/// The location of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeLocation {
    /// A function of the kernel.
    Symbol {
        /// The function's module; `None` for the kernel itself.
        module: Option<Arc<str>>,
        /// The function's name.
        name: Arc<str>,
        /// Offset from its start in bytes.
        offset: u64,
    },
    /// An address in the running kernel.
    Address(u64),
    /// An address in the running kernel where a function begins that ftrace can trace.
    Traced(u64),
    /// An instruction in a program or a library.
    File {
        /// The ELF file.
        path: Arc<str>,
        /// Offset in the file (not an address).
        offset: u64,
    },
}

/// The sampling rate of a perf event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SamplingRate {
    /// One hit for this number of events.
    Period(u64),
    /// This number of hits a second.
    Freq(u64),
}

/// The system calls that a handler serves. Numbers are those of the native table, or
/// [`NrSet::COMPAT`] plus those of the 32-bit table.
///
/// In 32-bit programs `socketcall` and `ipc` stand for many calls, by their first argument. Such a *part* has
/// a number of its own, from [`NrSet::PARTS`] on: a handler with that number sees the call for which the part
/// stands. A handler with [`NrSet::WHOLE`] plus that number sees `socketcall` or `ipc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NrSet {
    /// All calls, including unknown numbers.
    All,
    /// These calls, in ascending order.
    List(Vec<u32>),
}

impl NrSet {
    /// Offset of the 32-bit table's numbers in a set.
    pub const COMPAT: u32 = 1024;
    /// The first number of a part of `socketcall`.
    pub const PARTS: u32 = NrSet::COMPAT + 512;
    /// The first number of a part of `ipc`.
    pub const IPC_PARTS: u32 = NrSet::PARTS + 32;
    /// Added to the number of a part of which the whole is meant.
    pub const WHOLE: u32 = 64;
    /// `socketcall`.
    pub const SOCKETCALL: u32 = NrSet::COMPAT + 102;
    /// `ipc`.
    pub const IPC: u32 = NrSet::COMPAT + 117;

    /// The call that a part belongs to.
    pub fn whole(nr: u32) -> Option<u32> {
        match nr.checked_sub(NrSet::PARTS)? {
            0..32 => Some(NrSet::SOCKETCALL),
            32..64 => Some(NrSet::IPC),
            _ => None,
        }
    }

    /// The parts that a handler of this set sees as such; `None` if it serves all calls.
    pub fn parts(&self) -> Option<impl Iterator<Item = u32>> {
        match self {
            NrSet::All => None,
            NrSet::List(list) => {
                let numbers = list.iter().copied();
                Some(numbers.filter(|nr| NrSet::whole(*nr).is_some()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::reader::read;

    /// A text of each event, and of each form of its parts.
    const TEXTS: &[&str] = &[
        "begin(-5)",
        "end(0)",
        "error(7)",
        "never",
        "timer(1000, 5)",
        "prometheus",
        "input_line",
        "input_char",
        "procfs(read \"a\\\"b\" 4096)",
        "procfs(write \"\" 0 umask 0)",
        "present_processes",
        "present_threads",
        "counter(\"c\", 1, 18446744073709551615)",
        "tracepoint(\"sched_switch\")",
        "trace_event(\"sched\", \"sched_switch\", 314)",
        "sys_enter(all)",
        "sys_enter()",
        "sys_exit(0, 1, 1030)",
        "perf(1, 0, freq 1000)",
        "perf(0, 5, period 100000 target)",
        "perf(0, 5, period 100000 pid 12)",
        "watch(rw 18446744071579131904 8)",
        "watch(write 4096 4 pid 12)",
        "watch(write 16400 8 of \"/bin/a\")",
        "netfilter(2, 1, -2147483647)",
        "lsm(\"file_open\")",
        "task(process_begin)",
        "task(thread_end)",
        "code(kernel)",
        "code(kernel return pid 3 tree some, symbol \"\" \"f\" 0, symbol \"ext4\" \"g\" 4 number 7)",
        "code(kernel optional, address 4096, traced 8192)",
        "code(user, file \"/bin/a\" 64 semaphore 5)",
        "code(user return, file \"/bin/a\" 64 number 1 goroutines shared exit 70 -6 exit 80 16)",
    ];

    #[test]
    fn texts_of_events_are_read_and_printed() {
        for text in TEXTS {
            let handler =
                |event: &str| format!("handler \"p\" points 1 {event} @0 {{\n  b0:\n    ret\n}}\n");
            let program = read(&handler(text)).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(program.to_string(), handler(text));
        }
    }

    #[test]
    fn errors_name_what_is_expected() {
        for (event, expected) in [
            ("perf(1, 0, always 5)", "one of [\"period\", \"freq\"]"),
            ("watch(read 0 8)", "`write` or `rw`"),
            ("lsm(5)", "a string"),
            ("netfilter(2 1, 0)", "`,`"),
            ("begin(0 5)", "`)`"),
        ] {
            let error = read(&format!("handler \"p\" points 1 {event} @0 {{ b0: ret }}"));
            let message = error.expect_err(event).message;
            assert!(
                message.starts_with(&format!("expected {expected}, ")),
                "{event}: {message}"
            );
        }
    }
}
