//! What a machine did for a while, by processor, by interrupt and by process: the model. Each
//! nanosecond of a processor is in one part.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::model::Ns;

/// The account of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct System {
    /// The machine's name.
    pub host: String,
    /// Its kernel's release.
    pub kernel: String,
    /// When the first processor's account began, since 1970.
    pub started_unix_ns: u64,
    /// The command that ran meanwhile.
    pub command: Vec<String>,
    /// What it ended with, as `wait` gives it.
    pub status: Option<i32>,
    /// Processors, by number.
    pub cpus: Vec<Cpu>,
    /// Interrupts and soft interrupts, each on each processor.
    pub interrupts: Vec<Interrupt>,
    /// Processes that ran or were waiting, by number.
    pub processes: Vec<Process>,
    /// What was lost, by reason in words that can follow a number.
    pub lost: BTreeMap<String, u64>,
}

/// A processor's time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// Its number.
    pub cpu: u32,
    /// How long its account is.
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
    /// Nothing ran.
    pub idle: Ns,
    /// A thread ran whose events the kernel does not show, or whose beginning was lost.
    pub unseen: Ns,
    /// Changes from a thread to another.
    pub switches: u64,
    /// Threads that came from another processor.
    pub migrations: u64,
}

impl Cpu {
    /// Its parts, as tables name them.
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
        let known: Ns = self.parts().iter().map(|(_, ns)| ns).sum();
        self.wall.wrapping_sub(known) as i64
    }

    /// Adds another's account.
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

/// What kind of interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A device's handler.
    Device,
    /// One of the processor's own: timers, and what processors send each other.
    Vector,
    /// Work that an interrupt leaves behind.
    Softirq,
}

/// An interrupt on a processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interrupt {
    /// Which kind.
    pub kind: Kind,
    /// The device's or the kernel's name for it.
    pub name: String,
    /// The processor.
    pub cpu: u32,
    /// How many.
    pub count: u64,
    /// In its handlers, without what interrupted these.
    pub ns: Ns,
    /// The longest.
    pub max: Ns,
}

/// A process's time, of all its threads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its parent's.
    pub ppid: u32,
    /// Its name.
    pub name: String,
    /// It is a thread of the kernel.
    pub kernel: bool,
    /// On a processor in the program.
    pub user: Ns,
    /// On a processor in system calls; a thread of the kernel always is.
    pub system: Ns,
    /// In page faults.
    pub faults: Ns,
    /// It ran, and the kernel did not show what it did.
    pub unseen: Ns,
    /// Ready, but not on a processor.
    pub waiting: Ns,
    /// How often its threads left a processor.
    pub switches: u64,
    /// How often they came to another.
    pub migrations: u64,
    /// Interrupts that hit it, and the time that they took from it.
    pub irq: u64,
    /// The same.
    pub irq_ns: Ns,
    /// Soft interrupts that hit it.
    pub softirq: u64,
    /// The same.
    pub softirq_ns: Ns,
}

impl Process {
    /// Its time on processors, without interrupts.
    #[must_use]
    pub fn cpu(&self) -> Ns {
        self.user + self.system + self.faults + self.unseen
    }
}

impl System {
    /// All processors as one.
    #[must_use]
    pub fn all(&self) -> Cpu {
        let mut all = Cpu::default();
        for cpu in &self.cpus {
            all.add(cpu);
        }
        all
    }
}
