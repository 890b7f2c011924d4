//! The state that rows build up.

use std::collections::{BTreeMap, HashMap};

use spile_cast::Cast;
use spile_profile::SharedFrames;
use spile_profile::model::{CallParts, CountedEvent, Ns, Process, Snapshot, TimedEvent};

use super::super::times::CountFolder;
use super::counts::CountLocation;
use super::functions::InterpreterStacks;
use super::locations::FrameLines;
use super::lock_sites::LockSites;
use crate::rows::Fields;

/// Number of bits of a thread's key that hold its id: the kernel's largest id is 4,194,304.
pub(super) const TID_BITS: u32 = 22;
/// Added to the id of a thread for each earlier thread that had it.
pub(super) const REUSED: u32 = 10_000_000;

/// What samples say a thread was doing: the thread by its index, its region, its activity as the script numbers it, and
/// the call.
pub(super) type SampledActivity = (usize, u64, i64, String);

/// The state that the rows so far built up.
#[derive(Debug, Default)]
pub(crate) struct ProfileBuilder {
    /// For living threads, by their index: how often they had moved to another processor before.
    pub(super) moved_before: HashMap<usize, u64>,
    /// The events whose samples are only counted.
    pub(crate) counted: Vec<CountedEvent>,
    /// The functions of interpreters in stacks.
    pub(super) functions: InterpreterStacks,
    pub(super) lock_sites: LockSites,
    /// Samples with a place, in this account.
    pub(super) placed: HashMap<SampledActivity, u64>,
    /// Samples without a place, because the table of places was full.
    pub(super) unplaced: u64,
    /// The monotonic clock at the beginning: the origin of all times.
    pub(super) origin: i64,
    /// Processor time of this process at the beginning.
    pub(super) used_before: Ns,
    /// The clock of the day at the beginning, in nanoseconds since 1970.
    pub(crate) started_unix_ns: u64,
    pub(super) snapshot: Snapshot,
    /// Indexes into `snapshot.threads` by the thread's key, and of calls by thread, region and
    /// name.
    pub(super) threads: HashMap<i64, usize>,
    pub(super) calls: HashMap<(u32, u32, String), usize>,
    /// Indexes into `snapshot.context_times` by thread and region.
    pub(super) in_contexts: HashMap<(u32, u32), usize>,
    /// The locations where threads count their times in regions.
    pub(super) counts: Vec<CountLocation>,
    /// Indexes into `counts`, by the index of the thread that still counts there.
    pub(super) counting: HashMap<usize, usize>,
    /// Bytes of changes of regions that were not made intervals yet.
    pub(super) raw: usize,
    pub(super) processes: BTreeMap<u32, Process>,
    /// Contexts by process and by number there.
    pub(super) contexts: HashMap<(u32, u64), u32>,
    /// The ranks that calls of MPI are for, by process and number there: the number of the call's region, and
    /// the ranks.
    pub(super) peers: HashMap<(u32, u64), (u64, Vec<u32>)>,
    /// By thread id: the number of earlier threads that had it.
    pub(super) earlier_threads: HashMap<u32, u32>,
    /// When processes entered the recorded control group.
    pub(super) entered: HashMap<u32, Ns>,
    /// By former thread id: when a thread took its leader's id.
    pub(super) renamed: HashMap<u32, Ns>,
    pub(super) open: Vec<LiveThread>,
    /// Calls that the end of their thread cut short.
    pub(super) cuts: Vec<SingleCall>,
    /// Calls that a thread makes once, each in a row of its own.
    pub(super) single_calls: Vec<SingleCall>,
    /// The file name of the library that reports regions.
    pub(super) library: Option<String>,
    /// The frames of all stacks, and by the line that a row has.
    pub(super) shared: SharedFrames,
    pub(super) lines: FrameLines,
    /// Indexes into `snapshot.futexes` by process, address and region.
    pub(super) futexes: HashMap<(u32, u64, u32), usize>,
    /// Whether a trace is recorded.
    pub(super) trace: bool,
    /// The trace since it was last taken.
    pub(crate) events: Vec<TimedEvent>,
    /// By the key of a thread that was woken: the thread that woke it, and when.
    pub(super) wakeups: HashMap<i64, (u32, Ns)>,
    pub(super) malformed: u64,
    pub(super) first: Option<u32>,
    /// The folder with the files in which programs count their times in regions.
    pub(crate) folder: Option<CountFolder>,
    /// Gives the identity of a live thread without `start`, by its id.
    pub(super) identify: Option<fn(u32) -> Option<ThreadIdentity>>,
    /// The process that is known to have ended.
    pub(super) ended_process: Option<u32>,
    /// Whether the current account is the last.
    pub(crate) ended: bool,
    /// Whether the account is complete: the next row of sums begins another.
    pub(super) complete: bool,
}

/// The identity of a thread, from another source than rows.
#[derive(Debug)]
pub(crate) struct ThreadIdentity {
    /// Process id.
    pub pid: u32,
    /// Process id of the parent.
    pub ppid: u32,
    /// The thread's name.
    pub name: String,
    /// The name of its process, which is that of the process's first thread.
    pub process: String,
}

/// The thread, by its index, and the region that times belong to.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeOwner {
    pub(super) thread: usize,
    pub(super) region: u64,
}

/// A thread that was alive when the recording ended.
#[derive(Debug)]
pub(super) struct LiveThread {
    pub(super) owner: TimeOwner,
    pub(super) state: i64,
    pub(super) call: String,
    pub(super) total: Ns,
    pub(super) waited: Ns,
    pub(super) off: Ns,
    pub(super) taken: Ns,
    pub(super) ready: bool,
}

/// One call of a thread.
#[derive(Debug)]
pub(super) struct SingleCall {
    pub(super) owner: TimeOwner,
    pub(super) name: String,
    pub(super) total: Ns,
    pub(super) parts: CallParts,
}

/// The parts of calls that took `total` together: the next fields are the time off a processor or
/// taken, ready, and taken.
pub(super) fn call_parts(total: Ns, f: &mut Fields<'_>) -> Option<CallParts> {
    let [off, runnable, taken] = [f.ns()?, f.ns()?, f.ns()?];
    Some(CallParts {
        cpu: total.saturating_sub(off),
        blocked: off.saturating_sub(runnable).saturating_sub(taken),
        runnable,
        taken,
    })
}

/// Processor time of this process.
pub(super) fn own_cpu_time() -> Ns {
    spile_kernel::machine::clock_ns(rustix::time::ClockId::ProcessCPUTime).cast_unsigned()
}

/// Whether a region's number marks a system call of the library that reports regions.
pub(super) fn is_own(number: u64) -> bool {
    number.low32() == u32::MAX
}
