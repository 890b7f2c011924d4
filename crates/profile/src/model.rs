//! The model: one traced command (a rank, or a whole machine), and the time of its threads.
//!
//! **Times** are in nanoseconds. A *point* in time ([`Ns`] fields whose names end in `_ns`) counts
//! from the start of the recording, [`Header::started_unix_ns`], on a clock that is never set
//! (`CLOCK_MONOTONIC`), so points in files of one machine can be ordered by the files' starts.
//! Points before the recording are 0. Every other [`Ns`] is a duration.
//!
//! **Closure.** For a [`Thread`]: wall = user + syscall_cpu + blocked + runnable + faults +
//! interrupts + residual. Each nanosecond is in at most one of them.

mod ends;
mod header;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use self::ends::{BothEnds, Wait};
pub use self::header::{CountedEvent, Header, Launcher, Options, Rank, SampleRate};
use serde::{Deserialize, Serialize};

use crate::interpreter::Interpreter;

pub use crate::time::*;

/// The value of [`Header::format`].
pub const FORMAT: &str = "spile-profile";
/// The version of the format that this crate writes, and the only one that it reads. New kinds of
/// rows, and new fields with a default, do not change it: readers skip them.
pub const VERSION: u32 = 1;
/// The context outside all regions ([`Context`]); it exists without a row of its own.
pub const ROOT: u32 = 0;

/// A process. One that executes another program stays one process; the row has its last state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its id in the recorder's PID namespace.
    pub pid: u32,
    /// The id of its parent when it was first seen.
    #[serde(default)]
    pub ppid: u32,
    /// Its name, at most 15 bytes.
    #[serde(default)]
    pub comm: String,
    /// The path of its program, if known.
    #[serde(default)]
    pub exe: String,
    /// Whether its program is linked statically, so that no region library was loaded into it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub linked_statically: bool,
    /// Its start; 0 if it existed before.
    #[serde(default)]
    pub started_ns: Ns,
    /// Its end; `None` while it runs.
    #[serde(default)]
    pub ended_ns: Option<Ns>,
    /// Its wait status: exit status in bits 8 to 15, signal in bits 0 to 6.
    #[serde(default)]
    pub status: Option<i32>,
}

/// Pages of memory that a thread used, one or more times, by the node that had them (NUMA).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePages {
    /// Pages on the node of the thread's processor.
    pub local: u64,
    /// Pages on other nodes.
    pub remote: u64,
}

/// A thread, and the parts of its time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its id. A thread that executes a program takes its leader's id; it stays one row, with its
    /// first id. If the kernel assigns an id again, the account goes on.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Its name when it was last seen.
    #[serde(default)]
    pub name: String,
    /// Begin of its account: its start, or 0 if it existed before.
    #[serde(default)]
    pub started_ns: Ns,
    /// Its end; `None` while it runs, and its account then extends to the snapshot.
    #[serde(default)]
    pub ended_ns: Option<Ns>,
    /// How often it moved to another processor; `None` if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrations: Option<u64>,
    /// Pages that it used, as NUMA balancing found; `None` if the kernel does not balance, or found none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_pages: Option<NodePages>,
    /// The parts of its time.
    #[serde(flatten)]
    pub parts: TimeParts,
}

impl Thread {
    /// The length of its account, in a snapshot taken at `at_ns`.
    pub fn wall(&self, at_ns: Ns) -> Ns {
        self.ended_ns
            .unwrap_or(at_ns)
            .saturating_sub(self.started_ns)
    }

    /// The known part of its time: the sum of all parts except the residual.
    pub fn accounted(&self) -> Ns {
        self.parts.sum()
    }

    /// Wall time in no part; negative where parts overlap.
    pub fn residual(&self, at_ns: Ns) -> i64 {
        difference(self.wall(at_ns), self.accounted())
    }
}

/// The title of a thread, for example "4001 pi"; only its id if it has no name or no row.
pub(crate) fn thread_title(tid: u32, thread: Option<&Thread>) -> String {
    let name = thread.map_or("", |t| &t.name);
    format!("{tid} {name}").trim_end().to_owned()
}

/// A region of the program that time belongs to: a parallel region, a barrier, an MPI call, or a
/// region that the program marked. [`ROOT`] stands for time outside of regions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// Its number in this file, never 0.
    pub id: u32,
    /// The enclosing context; `None` directly within [`ROOT`].
    #[serde(default)]
    pub parent: Option<u32>,
    /// Its kind.
    pub kind: ContextKind,
    /// Its name: the function, the MPI call, the mark's text.
    #[serde(default)]
    pub name: String,
    /// The source file from debugging information.
    #[serde(default)]
    pub file: Option<String>,
    /// The source line, from 1.
    #[serde(default)]
    pub line: Option<u32>,
    /// The program or library that contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Its address there, as symbols have it and `addr2line` takes it; without a module, in the
    /// process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
}

/// The time of one thread in one context itself; inner contexts have rows of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextTime {
    /// The thread.
    pub tid: u32,
    /// The context, not [`ROOT`].
    pub context: u32,
    /// Number of times that the thread entered it.
    #[serde(default)]
    pub entries: u64,
    /// Time in the context by the thread's own clock.
    #[serde(default)]
    pub wall: Ns,
    /// The parts of that time. `user` is the time in no other part.
    #[serde(flatten)]
    pub parts: TimeParts,
    /// The time of a call of MPI for other ranks, as far as these are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerTime>,
}

/// The time of a thread's calls of MPI at one place for the same ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerTime {
    /// The ranks in `MPI_COMM_WORLD`, in their order.
    pub ranks: Vec<u32>,
    /// Number of calls that ended.
    #[serde(default)]
    pub calls: u64,
    /// Their time, and that of the current one.
    #[serde(default)]
    pub wall: Ns,
}

/// The kind of a [`Context`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextKind {
    /// Outside of all regions.
    #[default]
    Root,
    /// An OpenMP parallel region.
    OmpRegion,
    /// A barrier of OpenMP, including the one at a region's end.
    OmpBarrier,
    /// An explicit task of OpenMP.
    OmpTask,
    /// A call of the MPI library.
    Mpi,
    /// A region that the program marked. Unknown kinds of later releases are read as this.
    #[serde(other)]
    Mark,
}

/// The calls of one name by one thread in one context.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallTotals {
    /// The thread.
    pub tid: u32,
    /// The context: [`ROOT`], or the id of a row.
    #[serde(default)]
    pub context: u32,
    /// The system call's name in the kernel's table, such as "futex"; digits if the table has none.
    pub call: String,
    /// Number of finished calls. The unfinished one counts only in `unfinished`.
    pub count: u64,
    /// Total time from entry to exit.
    #[serde(default)]
    pub total: Ns,
    /// The shortest time; 0 if there is none.
    #[serde(default)]
    pub min: Ns,
    /// The longest time.
    #[serde(default)]
    pub max: Ns,
    /// Part of `total`: on a processor.
    #[serde(default)]
    pub cpu: Ns,
    /// Part of `total`: asleep.
    #[serde(default)]
    pub blocked: Ns,
    /// Part of `total`: ready and not on a processor.
    #[serde(default)]
    pub runnable: Ns,
    /// Bytes moved, by calls that return a number of bytes.
    #[serde(default)]
    pub bytes: u64,
    /// Failures by name ("EAGAIN").
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, u64>,
    /// Calls by duration: entry i counts those of at least 2^i ns and less than 2^(i+1); entry 0
    /// also those of 0 ns. Without trailing zeros, at most 64 entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram: Option<Vec<u64>>,
    /// The time so far of an unfinished call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<Ns>,
    /// The parts of that time. Files of earlier builds lack it; then it counts as a wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished_parts: Option<CallParts>,
}

impl CallTotals {
    /// The time of all calls, including the unfinished one's so far.
    pub fn time(&self) -> Ns {
        self.total.saturating_add(self.unfinished.unwrap_or(0))
    }

    /// The parts of the unfinished call's time so far.
    pub fn open_parts(&self) -> CallParts {
        let time = self.time() - self.total;
        let waits = CallParts {
            blocked: time,
            ..CallParts::default()
        };
        self.unfinished_parts.unwrap_or(waits).limited_to(time)
    }

    /// The parts of [`CallTotals::time`]. They add up to it, whatever the file says.
    pub fn parts(&self) -> CallParts {
        let ended = CallParts {
            cpu: self.cpu,
            blocked: self.blocked,
            runnable: self.runnable,
            taken: 0,
        };
        let mut sum = ended.limited_to(self.total);
        sum.add(&self.open_parts());
        sum
    }

    /// Turns the unfinished call into a finished one.
    pub fn end(&mut self) {
        let Some(time) = self.unfinished.take() else {
            return;
        };
        let parts = self
            .unfinished_parts
            .take()
            .unwrap_or_default()
            .limited_to(time);
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

    /// Number of failed calls.
    pub fn failures(&self) -> u64 {
        self.errors.values().fold(0, |a, b| a.saturating_add(*b))
    }
}

/// The parts of the time of calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallParts {
    /// On a processor, without faults and interrupts.
    pub cpu: Ns,
    /// Asleep.
    pub blocked: Ns,
    /// Ready and not on a processor.
    pub runnable: Ns,
    /// Time taken by page faults and interrupts.
    pub taken: Ns,
}

impl CallParts {
    /// The sum of all parts.
    pub fn sum(&self) -> Ns {
        [self.blocked, self.runnable, self.taken]
            .iter()
            .fold(self.cpu, |sum, ns| sum.saturating_add(*ns))
    }

    /// Adds other parts.
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

    /// The parts of calls of this duration: time in no other part counts as taken, and no part
    /// exceeds the rest that earlier parts leave.
    #[must_use]
    pub fn limited_to(self, time: Ns) -> CallParts {
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

    /// Adds the parts to those of a thread's or a region's time, except faults and interrupts,
    /// which have counters of their own there.
    pub fn add_to(&self, parts: &mut TimeParts) {
        for (sum, ns) in [
            (&mut parts.syscall_cpu, self.cpu),
            (&mut parts.blocked, self.blocked),
            (&mut parts.runnable, self.runnable),
        ] {
            *sum = sum.saturating_add(ns);
        }
    }
}

/// A frame that all stacks with the same one share, because large recordings have millions.
pub type Frame = Arc<StackFrame>;

/// A location in a program.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StackFrame {
    /// The function, or the address in hexadecimal digits if it has no name.
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

impl StackFrame {
    /// The interpreter whose program or library has the function.
    pub fn interpreter(&self) -> Option<Interpreter> {
        let module = self.module.as_deref()?;
        Interpreter::of_module(module.rsplit('/').next()?)
    }
}

/// A call path by which a thread made calls of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// The thread.
    pub tid: u32,
    /// The context.
    #[serde(default)]
    pub context: u32,
    /// The system call.
    pub call: String,
    /// Frames, from the caller of the system call to `main`.
    pub frames: Vec<Frame>,
    /// Number of calls.
    pub count: u64,
    /// Their total time, from entry to exit.
    pub ns: Ns,
}

/// Samples of a thread that has done the same in the same place, or the time that it was blocked there.
///
/// Reports divide the measured time of each [`Activity`] by the samples: a place with a third of a
/// thread's samples in user mode has a third of its time there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The thread.
    pub tid: u32,
    /// The context.
    #[serde(default)]
    pub context: u32,
    /// Its activity.
    pub activity: Activity,
    /// The system call; empty in other activities.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub call: String,
    /// The address of the futex that it waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub futex: Option<u64>,
    /// What it waited for: the variable with the futex, the path of a file, the other side of a
    /// socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Frames in the kernel, the innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel: Vec<Frame>,
    /// Frames of the program, from the innermost to `main`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<Frame>,
    /// Number of samples; of stacks of blocked calls.
    pub count: u64,
    /// The measured time of blocked calls; 0 of samples.
    #[serde(default)]
    pub ns: Ns,
}

/// Samples of an event of [`Options::counted`] in one place. Each stands for as many events as the event's
/// period.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventCount {
    /// The thread.
    pub tid: u32,
    /// The context.
    #[serde(default)]
    pub context: u32,
    /// The event's name.
    pub event: String,
    /// Frames in the kernel, the innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel: Vec<Frame>,
    /// Frames of the program, from the innermost to `main`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<Frame>,
    /// Number of samples.
    pub samples: u64,
}

/// Who woke a thread that had been blocked for a millisecond or more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waker {
    /// The thread that was blocked.
    pub tid: u32,
    /// The thread that woke it, if it is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waker: Option<u32>,
    /// The name of the thread that ran then, if it is not recorded: an interrupt can have come there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub program: String,
    /// The address of the futex that the waker's call was about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub futex: Option<u64>,
    /// The waker's frames, from the innermost to `main`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<Frame>,
    /// Number of times.
    pub count: u64,
    /// For how long the thread had been blocked.
    pub ns: Ns,
}

/// What a thread did when it was sampled.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// It ran in user mode.
    #[default]
    User,
    /// It ran in a system call.
    Call,
    /// It ran in a page fault.
    Fault,
    /// It was blocked in a system call.
    Blocked,
}

/// A futex (a word in memory that threads wait for) in one context.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Futex {
    /// The process that the address belongs to.
    pub pid: u32,
    /// The word's address.
    pub address: u64,
    /// The context of the waiting threads.
    #[serde(default)]
    pub context: u32,
    /// The variable at the address, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Number of finished waits.
    pub waits: u64,
    /// Their total time.
    pub ns: Ns,
    /// The longest time.
    #[serde(default)]
    pub max: Ns,
    /// The wakers, with the threads that they woke.
    #[serde(default)]
    pub wakes: Vec<Wake>,
}

/// A thread that woke another from a [`Futex`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wake {
    /// The thread that woke.
    pub waker: u32,
    /// The thread that was woken.
    pub woken: u32,
    /// Number of times.
    pub count: u64,
    /// Total time that the woken thread had waited.
    #[serde(default)]
    pub ns: Ns,
}

/// A call, a time off the processor or a time in a region, in recordings with a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedEvent {
    /// The thread.
    pub tid: u32,
    /// The context.
    #[serde(default)]
    pub context: u32,
    /// The system call, or [`BLOCKED`], [`READY`] or [`PREEMPTED`], or [`REGION`].
    pub call: String,
    /// Its begin.
    pub start_ns: Ns,
    /// Its end, not before the begin.
    pub end_ns: Ns,
    /// The return value, negative for errors.
    #[serde(default)]
    pub ret: i64,
    /// It is unfinished: `end_ns` is the end of the recording, or of the thread's account.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// For [`BLOCKED`], the thread that ended the wait. `None` if that was an interrupt or a thread
    /// that was not recorded, and in recordings before this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waker: Option<u32>,
}

/// Name of an event in which a thread was off its processor because it waited for something. The
/// event lies within the waiting call.
pub const BLOCKED: &str = "(blocked)";
/// Name of the event after it: the thread was ready, and waited for a processor.
pub const READY: &str = "(ready)";
/// Name of an event in which a thread was off its processor although it was ready.
pub const PREEMPTED: &str = "(preempted)";

/// Name of an event that is a thread's time in its context, a region that it entered or came back
/// to. It contains those of inner regions, and the calls made there.
pub const REGION: &str = "(region)";

impl TimedEvent {
    /// Whether it is a time in a region.
    #[must_use]
    pub fn region(&self) -> bool {
        self.call == REGION
    }

    /// Whether it is a time off the processor, and not a call.
    #[must_use]
    pub fn is_off_cpu(&self) -> bool {
        [BLOCKED, READY, PREEMPTED].contains(&&*self.call)
    }
}

/// The account at one point in time, from the start of the recording on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// The time of the account.
    pub at_ns: Ns,
    /// Processes, including those that ended.
    pub processes: Vec<Process>,
    /// Threads, including those that ended.
    pub threads: Vec<Thread>,
    /// Contexts except [`ROOT`], parents before children.
    pub contexts: Vec<Context>,
    /// Calls; one row for each thread, context and name.
    pub calls: Vec<CallTotals>,
    /// Times in contexts; one row for each thread and context. Empty where no library counted them.
    pub context_times: Vec<ContextTime>,
    /// Stacks.
    pub stacks: Vec<Stack>,
    /// Samples of running threads and the times of blocked ones, by place.
    pub samples: Vec<Sample>,
    /// Samples of counted events.
    pub event_counts: Vec<EventCount>,
    /// Who woke threads from long waits.
    pub wakers: Vec<Waker>,
    /// Futexes.
    pub futexes: Vec<Futex>,
    /// What threads of a process that existed before waited for at both ends.
    pub ends: Vec<BothEnds>,
    /// The effect of the recording itself.
    pub recorder: RecorderCost,
    /// Losses by reason, worded to follow a number ("events: the buffer was full"); zeros are left
    /// out.
    pub lost: BTreeMap<String, u64>,
}

/// The effect of the recording process on the machine. Handlers run in the recorded threads, and
/// their time counts there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecorderCost {
    /// Its processor time.
    pub cpu: Ns,
    /// Number of times that it displaced a ready recorded thread from a processor.
    pub displaced: u64,
}

/// The end of a recording: the last line of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingEnd {
    /// The time of the end.
    pub at_ns: Ns,
    /// The command's wait status, as [`Process::status`]; `None` if it still runs or there was no
    /// command.
    #[serde(default)]
    pub status: Option<i32>,
}

/// The content of one file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    /// The first line.
    pub header: Header,
    /// The last account.
    pub data: Snapshot,
    /// The trace in the order of the file, that of the calls' ends within each thread.
    pub events: Vec<TimedEvent>,
    /// The end; `None` if the file was cut short, or the recording goes on.
    pub end: Option<RecordingEnd>,
}

impl Profile {
    /// Its title in reports: the rank, or the command's process.
    pub fn title(&self) -> String {
        match (&self.header.rank, self.header.pid) {
            (Some(rank), _) => format!("rank {}", rank.rank),
            (None, Some(pid)) => format!("pid {pid}"),
            (None, None) => self
                .header
                .group
                .clone()
                .unwrap_or_else(|| self.header.host.clone()),
        }
    }
}
