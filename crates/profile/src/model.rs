//! The model: one traced command (a rank, or a whole machine) and where the time of its threads
//! went.
//!
//! **Times** are nanoseconds. A *point* in time ([`Ns`] fields whose names end in `_ns`) counts from
//! the start of the recording, [`Header::started_unix_ns`], on a clock that is never set
//! (`CLOCK_MONOTONIC`), so files of one machine share an order as well as their starts do. What was
//! there before the recording has 0. Every other [`Ns`] is a duration.
//!
//! **Closure.** For a [`Thread`]: wall = user + syscall_cpu + blocked + runnable + faults +
//! interrupts + residual. Each nanosecond is in one of them at most.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Nanoseconds: a duration, or a point counted from the start of the recording.
pub type Ns = u64;

/// What [`Header::format`] is.
pub const FORMAT: &str = "spile-profile";
/// The version of the format that this crate writes, and the only one that it reads. New kinds of
/// rows and new fields with a default do not change it: readers pass over what they do not know.
pub const VERSION: u32 = 1;
/// The context of what is in no region ([`Context`]); it exists without a row of its own.
pub const ROOT: u32 = 0;

/// What was recorded, where and how: the first line of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// The same in all files of one run and in no other: the launcher's job number and step where
    /// there is one, else something of host, process and start.
    pub run: String,
    /// The machine's name, as `uname -n` says it: the node.
    pub host: String,
    /// The kernel's release.
    #[serde(default)]
    pub kernel: String,
    /// The processor's architecture, as `uname -m` says it.
    #[serde(default)]
    pub arch: String,
    /// Processors that were online.
    #[serde(default)]
    pub cpus: u32,
    /// The version of spile that wrote the file.
    #[serde(default)]
    pub spile: String,
    /// The command and its arguments; empty where a running process or a machine was recorded.
    #[serde(default)]
    pub command: Vec<String>,
    /// The command's first process, or the process that was attached to.
    #[serde(default)]
    pub pid: Option<u32>,
    /// The start of the recording, ns since 1970 (UTC): the origin of all points in time.
    pub started_unix_ns: u64,
    /// The command's place among those that a launcher started.
    #[serde(default)]
    pub rank: Option<Rank>,
    /// What was asked for.
    #[serde(default)]
    pub options: Options,
    /// Why regions are not told, where that was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regions_missing: Option<String>,
}

impl Default for Header {
    fn default() -> Header {
        Header {
            format: FORMAT.to_owned(),
            version: VERSION,
            run: String::new(),
            host: String::new(),
            kernel: String::new(),
            arch: String::new(),
            cpus: 0,
            spile: String::new(),
            command: Vec::new(),
            pid: None,
            started_unix_ns: 0,
            rank: None,
            options: Options::default(),
            regions_missing: None,
        }
    }
}

impl Header {
    /// Whether regions are told.
    #[must_use]
    pub fn has_regions(&self) -> bool {
        !self.options.no_regions && self.regions_missing.is_none()
    }

    /// The command as a shell takes it.
    pub fn command_line(&self) -> String {
        let words = || self.command.iter().map(String::as_str);
        // (No shell takes NUL, and no command can have it.)
        shlex::try_join(words()).unwrap_or_else(|_| self.command.join(" "))
    }
}

/// What a recording was asked to hold; an empty list of its kind means nothing was seen only where
/// the option is true.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// [`Stack`] rows.
    pub stacks: bool,
    /// [`Event`] rows.
    pub trace: bool,
    /// [`Call::histogram`].
    pub histograms: bool,
    /// [`Futex`] rows.
    pub futexes: bool,
    /// The whole machine, not a command and its descendants.
    pub system: bool,
    /// No library was loaded that tells regions.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_regions: bool,
}

impl Options {
    /// What was asked for, as the command line has it.
    pub fn names(&self) -> Vec<&'static str> {
        let all = [
            ("--stacks", self.stacks),
            ("--trace", self.trace),
            ("--latency", self.histograms),
            ("--futexes", self.futexes),
            ("--system", self.system),
            ("--no-regions", self.no_regions),
        ];
        let asked = all.into_iter().filter(|(_, asked)| *asked);
        asked.map(|(name, _)| name).collect()
    }
}

/// A command's place among those that a launcher of parallel programs started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rank {
    /// Counted from 0 over the whole job.
    pub rank: u32,
    /// How many there are in the job, where the launcher says it.
    #[serde(default)]
    pub size: Option<u32>,
    /// Counted from 0 on this node.
    #[serde(default)]
    pub local_rank: Option<u32>,
    /// How many there are on this node.
    #[serde(default)]
    pub local_size: Option<u32>,
    /// Whose variables said so.
    pub launcher: Launcher,
    /// The scheduler's or launcher's number of the job, with its step.
    #[serde(default)]
    pub job: Option<String>,
}

/// A launcher of parallel programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Launcher {
    /// `OMPI_COMM_WORLD_RANK`.
    OpenMpi,
    /// `PMIX_RANK`.
    Pmix,
    /// `PMI_RANK`.
    Mpich,
    /// `SLURM_PROCID`.
    Slurm,
}

/// A process. One that executes another program stays one process; the row has what it was last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number, in the recorder's PID namespace.
    pub pid: u32,
    /// Its parent's number when it was first seen.
    #[serde(default)]
    pub ppid: u32,
    /// Its name, of 15 bytes at most.
    #[serde(default)]
    pub comm: String,
    /// The path of its program, where it is known.
    #[serde(default)]
    pub exe: String,
    /// Its start; 0 if it was there before.
    #[serde(default)]
    pub started_ns: Ns,
    /// Its end; none while it runs.
    #[serde(default)]
    pub ended_ns: Option<Ns>,
    /// What it ended with, as `wait` gives it: exit status in bits 8 to 15, signal in bits 0 to 6.
    #[serde(default)]
    pub status: Option<i32>,
}

/// A number of things and the time that they took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// Their time together.
    pub ns: Ns,
}

/// A thread, and where its time went.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its number. A thread that executes a program takes its leader's number; it stays one row,
    /// with the number that it had first. Where the kernel gives a number again, the account goes on.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Its name when it was last seen.
    #[serde(default)]
    pub name: String,
    /// Where its account begins: its start, or 0 if it was there before.
    #[serde(default)]
    pub started_ns: Ns,
    /// Its end; none while it runs, and its account goes to the snapshot then.
    #[serde(default)]
    pub ended_ns: Option<Ns>,
    /// Where its time went.
    #[serde(flatten)]
    pub parts: Parts,
}

impl Thread {
    /// The length of its account, in a snapshot taken at `at_ns`.
    pub fn wall(&self, at_ns: Ns) -> Ns {
        self.ended_ns
            .unwrap_or(at_ns)
            .saturating_sub(self.started_ns)
    }

    /// What is known of its time: the sum of all parts but the residual.
    pub fn known(&self) -> Ns {
        self.parts.sum()
    }

    /// Wall time that is in no part, below 0 where parts overlap.
    pub fn residual(&self, at_ns: Ns) -> i64 {
        let difference = i128::from(self.wall(at_ns)) - i128::from(self.known());
        difference.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

/// What time on and off a processor went to; each nanosecond is in one part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Parts {
    /// On a processor in user mode, interrupts left out.
    pub user: Ns,
    /// On a processor inside system calls, faults and interrupts left out.
    pub syscall_cpu: Ns,
    /// Asleep inside system calls; or stopped, by a signal or a debugger, which can be outside of them.
    pub blocked: Ns,
    /// Ready and not on a processor: preempted, or woken and waiting for its turn.
    pub runnable: Ns,
    /// Page faults served from memory.
    pub fault_minor: Times,
    /// Page faults that waited for a device.
    pub fault_major: Times,
    /// Interrupts that hit while it was on a processor.
    pub irq: Times,
    /// Soft interrupts that ran on its time.
    pub softirq: Times,
}

impl Parts {
    /// The time of each part, in the order of [`Part::ALL`].
    pub fn times(&self) -> [Ns; 8] {
        Part::ALL.map(|part| part.of(self))
    }

    /// All parts together.
    pub fn sum(&self) -> Ns {
        self.times().into_iter().fold(0, Ns::saturating_add)
    }
}

/// A part of a thread's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// [`Parts::user`].
    User,
    /// [`Parts::syscall_cpu`].
    SyscallCpu,
    /// [`Parts::blocked`].
    Blocked,
    /// [`Parts::runnable`].
    Runnable,
    /// [`Parts::fault_minor`].
    FaultMinor,
    /// [`Parts::fault_major`].
    FaultMajor,
    /// [`Parts::irq`].
    Irq,
    /// [`Parts::softirq`].
    Softirq,
}

impl Part {
    /// All of them, in the order of reports.
    pub const ALL: [Part; 8] = [
        Part::User,
        Part::SyscallCpu,
        Part::Blocked,
        Part::Runnable,
        Part::FaultMinor,
        Part::FaultMajor,
        Part::Irq,
        Part::Softirq,
    ];

    /// Whether the thread was on a processor in this part.
    pub fn on_a_cpu(self) -> bool {
        !matches!(self, Part::Blocked | Part::Runnable)
    }

    /// Its time.
    pub fn of(self, parts: &Parts) -> Ns {
        match self {
            Part::User => parts.user,
            Part::SyscallCpu => parts.syscall_cpu,
            Part::Blocked => parts.blocked,
            Part::Runnable => parts.runnable,
            Part::FaultMinor => parts.fault_minor.ns,
            Part::FaultMajor => parts.fault_major.ns,
            Part::Irq => parts.irq.ns,
            Part::Softirq => parts.softirq.ns,
        }
    }

    /// What reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Part::User => "user code",
            Part::SyscallCpu => "system calls on a CPU",
            Part::Blocked => "blocked",
            Part::Runnable => "waiting for a CPU",
            Part::FaultMinor => "minor page faults",
            Part::FaultMajor => "major page faults",
            Part::Irq => "interrupts",
            Part::Softirq => "soft interrupts",
        }
    }

    /// The head of its column in tables.
    pub fn short(self) -> &'static str {
        match self {
            Part::User => "user",
            Part::SyscallCpu => "sys cpu",
            Part::Blocked => "blocked",
            Part::Runnable => "runnable",
            Part::FaultMinor => "minflt",
            Part::FaultMajor => "majflt",
            Part::Irq => "irq",
            Part::Softirq => "softirq",
        }
    }
}

/// A part of the program that time belongs to: a parallel region, a barrier, an MPI call, what the
/// program marked. [`ROOT`] is what is in none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// Its number in this file, not 0.
    pub id: u32,
    /// What it is within; none within [`ROOT`].
    #[serde(default)]
    pub parent: Option<u32>,
    /// What it is.
    pub kind: ContextKind,
    /// Its name: the function, the MPI call, the mark's text.
    #[serde(default)]
    pub name: String,
    /// The source file, as debugging information has it.
    #[serde(default)]
    pub file: Option<String>,
    /// The source line, from 1.
    #[serde(default)]
    pub line: Option<u32>,
    /// The program or library that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Its address there, as symbols have it and `addr2line` takes it; without a module in the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
}

/// What one thread did in one context itself; what it did in contexts within has rows of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextTime {
    /// The thread.
    pub tid: u32,
    /// The context, not [`ROOT`].
    pub context: u32,
    /// How often the thread entered it.
    #[serde(default)]
    pub entries: u64,
    /// The time that the thread was in it, by the thread's own clock.
    #[serde(default)]
    pub wall: Ns,
    /// Where that time went. `user` is what is in no other part.
    #[serde(flatten)]
    pub parts: Parts,
}

/// What a [`Context`] is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextKind {
    /// Outside of everything.
    #[default]
    Root,
    /// An OpenMP parallel region.
    OmpRegion,
    /// A barrier of OpenMP, also the one at a region's end.
    OmpBarrier,
    /// An explicit task of OpenMP.
    OmpTask,
    /// A call of the MPI library.
    Mpi,
    /// What the program marked by itself; what a later release calls otherwise is read as this.
    #[serde(other)]
    Mark,
}

/// The calls of one thread of one name in one context.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The thread.
    pub tid: u32,
    /// The context, [`ROOT`] or that of a row.
    #[serde(default)]
    pub context: u32,
    /// The system call as the kernel's table names it, "futex"; a number in digits where the table
    /// has none.
    pub call: String,
    /// Calls that ended. The unfinished one is in nothing but `unfinished`.
    pub count: u64,
    /// From entry to exit, all of them together.
    #[serde(default)]
    pub total: Ns,
    /// The shortest; 0 if there is none.
    #[serde(default)]
    pub min: Ns,
    /// The longest.
    #[serde(default)]
    pub max: Ns,
    /// Of `total`: on a processor.
    #[serde(default)]
    pub cpu: Ns,
    /// Of `total`: asleep.
    #[serde(default)]
    pub blocked: Ns,
    /// Of `total`: ready and not on a processor.
    #[serde(default)]
    pub runnable: Ns,
    /// Bytes moved, by calls that return a number of bytes.
    #[serde(default)]
    pub bytes: u64,
    /// Failures by name ("EAGAIN").
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, u64>,
    /// How many took 2^i ns or longer, and less than 2^(i+1), at place i; place 0 has those of 0
    /// ns too. As long as it has to be, 64 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram: Option<Vec<u64>>,
    /// A call that did not end: its time so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<Ns>,
    /// Where that time went; none in files of earlier builds: it is taken for a wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished_parts: Option<CallParts>,
}

impl Call {
    /// The time of all calls, the unfinished one's so far too.
    pub fn time(&self) -> Ns {
        self.total.saturating_add(self.unfinished.unwrap_or(0))
    }

    /// Where the unfinished call's time went, so far.
    pub fn open_parts(&self) -> CallParts {
        let time = self.time() - self.total;
        let waits = CallParts {
            blocked: time,
            ..CallParts::default()
        };
        self.unfinished_parts.unwrap_or(waits).of(time)
    }

    /// Where [`Call::time`] went. Whatever a file says, the parts together are that.
    pub fn parts(&self) -> CallParts {
        let ended = CallParts {
            cpu: self.cpu,
            blocked: self.blocked,
            runnable: self.runnable,
            taken: 0,
        };
        let mut sum = ended.of(self.total);
        sum.add(&self.open_parts());
        sum
    }

    /// The unfinished call has come to its end.
    pub fn end(&mut self) {
        let Some(time) = self.unfinished.take() else {
            return;
        };
        let parts = self.unfinished_parts.take().unwrap_or_default().of(time);
        self.min = if self.count == 0 {
            time
        } else {
            self.min.min(time)
        };
        self.max = self.max.max(time);
        self.count = self.count.saturating_add(1);
        self.total = self.total.saturating_add(time);
        self.cpu = self.cpu.saturating_add(parts.cpu);
        self.blocked = self.blocked.saturating_add(parts.blocked);
        self.runnable = self.runnable.saturating_add(parts.runnable);
    }

    /// How many calls failed.
    pub fn failures(&self) -> u64 {
        self.errors.values().fold(0, |a, b| a.saturating_add(*b))
    }
}

/// Where the time of calls went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallParts {
    /// On a processor, without what is below.
    pub cpu: Ns,
    /// Asleep.
    pub blocked: Ns,
    /// Ready and not on a processor.
    pub runnable: Ns,
    /// What page faults and interrupts took.
    pub taken: Ns,
}

impl CallParts {
    /// All of them together.
    pub fn sum(&self) -> Ns {
        [self.blocked, self.runnable, self.taken]
            .iter()
            .fold(self.cpu, |sum, ns| sum.saturating_add(*ns))
    }

    /// Adds another's.
    pub fn add(&mut self, other: &CallParts) {
        for (sum, ns) in [
            (&mut self.cpu, other.cpu),
            (&mut self.blocked, other.blocked),
            (&mut self.runnable, other.runnable),
            (&mut self.taken, other.taken),
        ] {
            *sum = sum.saturating_add(ns);
        }
    }

    /// The same of calls that took so long: what is in no other part was taken, and no part is longer
    /// than what the parts before it leave.
    #[must_use]
    pub fn of(self, time: Ns) -> CallParts {
        let cpu = self.cpu.min(time);
        let blocked = self.blocked.min(time - cpu);
        let runnable = self.runnable.min(time - cpu - blocked);
        CallParts {
            cpu,
            blocked,
            runnable,
            taken: time - cpu - blocked - runnable,
        }
    }

    /// Adds them to the parts of a thread's or a region's time, but what faults and interrupts took: these
    /// have numbers of their own there.
    pub fn add_to(&self, parts: &mut Parts) {
        for (sum, ns) in [
            (&mut parts.syscall_cpu, self.cpu),
            (&mut parts.blocked, self.blocked),
            (&mut parts.runnable, self.runnable),
        ] {
            *sum = sum.saturating_add(ns);
        }
    }
}

/// A place in a program.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// The function, or the address in hexadecimal digits where there is no name.
    pub function: String,
    /// The program or library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The source file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The source line, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// Where in the program a thread made calls of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// The thread.
    pub tid: u32,
    /// The context.
    #[serde(default)]
    pub context: u32,
    /// The system call.
    pub call: String,
    /// The caller of the system call first, `main` at the end.
    pub frames: Vec<Frame>,
    /// How many calls.
    pub count: u64,
    /// Their time, from entry to exit.
    pub ns: Ns,
}

/// A futex, a word that threads wait for, in one context.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Futex {
    /// The process whose address it is.
    pub pid: u32,
    /// Where the word is.
    pub address: u64,
    /// The context of those who waited.
    #[serde(default)]
    pub context: u32,
    /// The variable there, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Waits that ended.
    pub waits: u64,
    /// Their time.
    pub ns: Ns,
    /// The longest.
    #[serde(default)]
    pub max: Ns,
    /// Who woke whom.
    #[serde(default)]
    pub wakes: Vec<Wake>,
}

/// One thread that woke another from a [`Futex`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wake {
    /// The thread that woke.
    pub waker: u32,
    /// The thread that was woken.
    pub woken: u32,
    /// How often.
    pub count: u64,
    /// How long the woken one had waited.
    #[serde(default)]
    pub ns: Ns,
}

/// One call, one time off a processor or one time in a region, in recordings with a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The thread.
    pub tid: u32,
    /// The context.
    #[serde(default)]
    pub context: u32,
    /// The system call, or [`BLOCKED`], [`READY`] or [`PREEMPTED`], or [`REGION`].
    pub call: String,
    /// Its entry.
    pub start_ns: Ns,
    /// Its exit, not before the entry.
    pub end_ns: Ns,
    /// What it returned, errors below 0.
    #[serde(default)]
    pub ret: i64,
    /// It had not ended: `end_ns` is the end of the recording, or of the thread's account.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
}

/// What an event is called in which a thread was off its processor because it waited for something. It is
/// within the call that it waited in.
pub const BLOCKED: &str = "(blocked)";
/// What follows it: the thread could run, and waited for a processor.
pub const READY: &str = "(ready)";
/// A thread was off its processor though it could have run.
pub const PREEMPTED: &str = "(preempted)";

/// What an event is called that is a thread's time in its context, a region that it entered or came back to.
/// It holds those of regions within, and the calls that were made there.
pub const REGION: &str = "(region)";

impl Event {
    /// Whether it is a time in a region.
    #[must_use]
    pub fn region(&self) -> bool {
        self.call == REGION
    }

    /// Whether the thread was off its processor, and this is no call.
    #[must_use]
    pub fn off(&self) -> bool {
        [BLOCKED, READY, PREEMPTED].contains(&&*self.call)
    }
}

/// The account at one point in time, from the start of the recording on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// When it was taken.
    pub at_ns: Ns,
    /// Processes, those that ended too.
    pub processes: Vec<Process>,
    /// Threads, those that ended too.
    pub threads: Vec<Thread>,
    /// Contexts but [`ROOT`], parents before what is within.
    pub contexts: Vec<Context>,
    /// Calls by thread, context and name, each once.
    pub calls: Vec<Call>,
    /// Times in contexts by thread and context, each once; none where no library counted them.
    pub context_times: Vec<ContextTime>,
    /// Stacks.
    pub stacks: Vec<Stack>,
    /// Futexes.
    pub futexes: Vec<Futex>,
    /// What the recording itself did.
    pub recorder: Recorder,
    /// What was lost, by reason in words that can follow a number ("events: the buffer was full");
    /// what is 0 is left out.
    pub lost: BTreeMap<String, u64>,
}

/// What the process that records did to the machine meanwhile. Handlers run in the threads that they record,
/// and their time counts there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recorder {
    /// Its processor time.
    pub cpu: Ns,
    /// How often a recorded thread that could have run made room for it.
    pub displaced: u64,
}

/// How a recording ended: the last line of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// When.
    pub at_ns: Ns,
    /// What the command ended with, as [`Process::status`]; none if it runs on or there was none.
    #[serde(default)]
    pub status: Option<i32>,
}

/// What one file holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    /// What was recorded.
    pub header: Header,
    /// The last account.
    pub data: Snapshot,
    /// The trace, in the order of the file: that of the calls' ends, thread by thread.
    pub events: Vec<Event>,
    /// The end; none if the file was cut short, or the recording goes on.
    pub end: Option<End>,
}

impl Profile {
    /// What it is called in reports: the rank, or the command's process.
    pub fn title(&self) -> String {
        match (&self.header.rank, self.header.pid) {
            (Some(rank), _) => format!("rank {}", rank.rank),
            (None, Some(pid)) => format!("pid {pid}"),
            (None, None) => self.header.host.clone(),
        }
    }
}
