//! Times, and the parts of a thread's time.

use serde::{Deserialize, Serialize};
use spile_cast::Cast;

/// Nanoseconds: a duration, or a point counted from the start of the recording.
pub type Ns = u64;

/// `a - b`; the nearest number if the difference has no 64-bit one.
pub fn difference(a: Ns, b: Ns) -> i64 {
    let difference = i128::from(a) - i128::from(b);
    difference.clamp(i64::MIN.into(), i64::MAX.into()).fit()
}

/// A number of events, and their time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Times {
    /// Number of events.
    pub count: u64,
    /// Total time.
    pub ns: Ns,
}

/// The parts of time on and off a processor; each nanosecond is in one part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeParts {
    /// On a processor in user mode, without interrupts.
    pub user: Ns,
    /// On a processor inside system calls, without faults and interrupts.
    pub syscall_cpu: Ns,
    /// Asleep inside system calls and page faults; or stopped by a signal or a debugger, possibly
    /// outside of calls.
    pub blocked: Ns,
    /// Ready and not on a processor: preempted, or woken and waiting for its turn.
    pub runnable: Ns,
    /// Page faults served from memory.
    pub fault_minor: Times,
    /// Page faults that the kernel could not serve from memory, without the wait for a device.
    pub fault_major: Times,
    /// Interrupts that hit while it was on a processor.
    pub irq: Times,
    /// Soft interrupts that ran on its time.
    pub softirq: Times,
}

impl TimeParts {
    /// The time of each part, in the order of [`TimePart::ALL`].
    pub fn times(&self) -> [Ns; 8] {
        TimePart::ALL.map(|part| part.time_in(self))
    }

    /// All parts together.
    pub fn sum(&self) -> Ns {
        self.times().into_iter().fold(0, Ns::saturating_add)
    }
}

/// A part of a thread's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimePart {
    /// [`TimeParts::user`].
    User,
    /// [`TimeParts::syscall_cpu`].
    SyscallCpu,
    /// [`TimeParts::blocked`].
    Blocked,
    /// [`TimeParts::runnable`].
    Runnable,
    /// [`TimeParts::fault_minor`].
    FaultMinor,
    /// [`TimeParts::fault_major`].
    FaultMajor,
    /// [`TimeParts::irq`].
    Irq,
    /// [`TimeParts::softirq`].
    Softirq,
}

impl TimePart {
    /// All of them, in the order of reports and of their numbers.
    pub const ALL: [TimePart; 8] = [
        TimePart::User,
        TimePart::SyscallCpu,
        TimePart::Blocked,
        TimePart::Runnable,
        TimePart::FaultMinor,
        TimePart::FaultMajor,
        TimePart::Irq,
        TimePart::Softirq,
    ];

    /// Whether the thread was on a processor in this part.
    pub fn on_a_cpu(self) -> bool {
        !matches!(self, TimePart::Blocked | TimePart::Runnable)
    }

    /// The time of this part.
    pub fn time_in(self, parts: &TimeParts) -> Ns {
        match self {
            TimePart::User => parts.user,
            TimePart::SyscallCpu => parts.syscall_cpu,
            TimePart::Blocked => parts.blocked,
            TimePart::Runnable => parts.runnable,
            TimePart::FaultMinor => parts.fault_minor.ns,
            TimePart::FaultMajor => parts.fault_major.ns,
            TimePart::Irq => parts.irq.ns,
            TimePart::Softirq => parts.softirq.ns,
        }
    }

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        self.names()[0]
    }

    /// Its name in a line of all parts.
    pub(crate) fn brief(self) -> &'static str {
        self.names()[1]
    }

    /// Its column title in tables.
    pub fn short(self) -> &'static str {
        self.names()[2]
    }

    /// Its field in JSON.
    pub(crate) fn key(self) -> &'static str {
        self.names()[3]
    }

    fn names(self) -> [&'static str; 4] {
        match self {
            TimePart::User => ["user code", "user", "user", "user"],
            TimePart::SyscallCpu => [
                "system calls on a CPU",
                "calls on CPU",
                "sys cpu",
                "syscall_cpu",
            ],
            TimePart::Blocked => ["blocked", "blocked", "blocked", "blocked"],
            TimePart::Runnable => [
                "waiting for a CPU",
                "waiting for CPU",
                "runnable",
                "runnable",
            ],
            TimePart::FaultMinor => ["minor page faults", "minor faults", "minflt", "fault_minor"],
            TimePart::FaultMajor => ["major page faults", "major faults", "majflt", "fault_major"],
            TimePart::Irq => ["interrupts", "interrupts", "irq", "irq"],
            TimePart::Softirq => ["soft interrupts", "softirqs", "softirq", "softirq"],
        }
    }
}
