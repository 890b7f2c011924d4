//! The activity of a machine by processor, by interrupt and by process: the model. Each nanosecond
//! of a processor is in one part.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::model::Ns;

/// The account of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct System {
    /// The machine's name.
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// Begin of the first processor's account, in nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// The command that ran meanwhile.
    pub command: Vec<String>,
    /// Its wait status.
    pub status: Option<i32>,
    /// Processors, by number.
    pub cpus: Vec<Cpu>,
    /// Interrupts and soft interrupts, with a row for each processor.
    pub interrupts: Vec<Interrupt>,
    /// Processes that ran or waited for a processor, by id.
    pub processes: Vec<Process>,
    /// Functions that processors executed, by samples.
    pub functions: Vec<SystemFunction>,
    /// Losses by reason, worded to follow a number.
    pub lost: BTreeMap<String, u64>,
}

/// A processor's time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// Its number.
    pub cpu: u32,
    /// Length of its account.
    pub wall: Ns,
    /// Programs, outside the kernel.
    pub user: Ns,
    /// System calls, and threads of the kernel.
    pub system: Ns,
    /// Page faults of programs.
    pub faults: Ns,
    /// Handlers of interrupts.
    pub irq: Ns,
    /// Handlers of soft interrupts.
    pub softirq: Ns,
    /// Idle.
    pub idle: Ns,
    /// Threads whose events the kernel does not show, or whose begin was lost.
    pub unseen: Ns,
    /// Number of context switches.
    pub switches: u64,
    /// Number of threads that came from another processor.
    pub migrations: u64,
}

impl Cpu {
    /// Its parts with their names in tables.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, Ns); 7] {
        [
            ("user", self.user),
            ("system", self.system),
            ("faults", self.faults),
            ("irq", self.irq),
            ("softirq", self.softirq),
            ("idle", self.idle),
            ("unseen", self.unseen),
        ]
    }

    /// Wall time less all parts.
    #[must_use]
    pub fn residual(&self) -> i64 {
        let accounted: Ns = self.parts().iter().map(|(_, ns)| ns).sum();
        self.wall.wrapping_sub(accounted).cast_signed()
    }

    /// Adds another processor's account.
    pub fn add(&mut self, other: &Cpu) {
        self.wall += other.wall;
        self.user += other.user;
        self.system += other.system;
        self.faults += other.faults;
        self.irq += other.irq;
        self.softirq += other.softirq;
        self.idle += other.idle;
        self.unseen += other.unseen;
        self.switches += other.switches;
        self.migrations += other.migrations;
    }
}

/// The kind of an interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InterruptKind {
    /// A device's interrupt.
    Device,
    /// One of the processor's own: timers, and interprocessor interrupts.
    Vector,
    /// Work that an interrupt defers.
    Softirq,
}

/// An interrupt on a processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interrupt {
    /// Its kind.
    pub kind: InterruptKind,
    /// The device's name, or the kernel's name of the vector.
    pub name: String,
    /// The processor.
    pub cpu: u32,
    /// Number of interrupts.
    pub count: u64,
    /// Time in its handlers, without interrupts of these.
    pub ns: Ns,
    /// The longest time.
    pub max: Ns,
}

/// A function that a process executed in a part of its time. Samples divide the measured time of the part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SystemFunction {
    /// The process, see [`Process::pid`].
    pub pid: u32,
    /// The function; its address in hexadecimal if its file has no name for it.
    pub function: String,
    /// The file that has it; `None` for the kernel.
    pub file: Option<String>,
    /// The part of the process's time.
    pub part: ProcessPart,
    /// The system call, in this part.
    pub call: Option<String>,
    /// Number of samples.
    pub samples: u64,
    /// Its time.
    pub ns: Ns,
}

/// A part of a process's time on processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessPart {
    /// In the program.
    User,
    /// In a system call, or in a thread of the kernel.
    System,
    /// In a page fault.
    Faults,
    /// Taken by interrupts and soft interrupts.
    Interrupts,
}

/// A process's time, of all its threads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its parent's id.
    pub ppid: u32,
    /// Its name.
    pub name: String,
    /// Whether it is a kernel thread.
    pub kernel: bool,
    /// Time on a processor in the program.
    pub user: Ns,
    /// Time on a processor in system calls; for a kernel thread, all its time.
    pub system: Ns,
    /// Time in page faults.
    pub faults: Ns,
    /// Time on a processor whose events the kernel did not show.
    pub unseen: Ns,
    /// Time ready, but not on a processor.
    pub waiting: Ns,
    /// Number of times that its threads left a processor.
    pub switches: u64,
    /// Number of times that they moved to another one.
    pub migrations: u64,
    /// Number of interrupts that hit it.
    pub irq: u64,
    /// Time that these interrupts took from it.
    pub irq_ns: Ns,
    /// Number of soft interrupts that hit it.
    pub softirq: u64,
    /// Time that these soft interrupts took from it.
    pub softirq_ns: Ns,
}

impl Process {
    /// Its time in a part.
    #[must_use]
    pub fn part(&self, part: ProcessPart) -> Ns {
        match part {
            ProcessPart::User => self.user,
            ProcessPart::System => self.system,
            ProcessPart::Faults => self.faults,
            ProcessPart::Interrupts => self.irq_ns + self.softirq_ns,
        }
    }

    /// Its processor time without interrupts.
    #[must_use]
    pub fn cpu(&self) -> Ns {
        self.user + self.system + self.faults + self.unseen
    }
}

impl System {
    /// The sum of all processors.
    #[must_use]
    pub fn all(&self) -> Cpu {
        let mut sum = Cpu::default();
        for cpu in &self.cpus {
            sum.add(cpu);
        }
        sum
    }
}
