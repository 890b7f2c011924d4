//! Who threads are whose handlers run here: records like those that entry code makes in a process, but private, so that
//! nobody else can write them.

use std::collections::HashMap;
use std::fs;

use spile_inject::ProcessFacts;
use spile_kernel::perf_stream::TaskNumbers;
use spile_layout::{HIT_REGISTERS, THREAD_SLOTS, ThreadRecord};

/// The record whose area these handlers use. No thread gets it.
pub(super) const OWN_SLOT: u32 = THREAD_SLOTS - 1;

/// Words of the largest context, and of the registers at the top of a record's stack.
const CONTEXT: usize = 32;
const REGISTERS: usize = 22;
const _: () = assert!(HIT_REGISTERS == 8 * REGISTERS as u64);

/// What is known of threads.
#[derive(Default)]
pub(super) struct Identities {
    names: HashMap<u32, [u8; 16]>,
    processes: HashMap<u32, Process>,
    random: u64,
}

/// What the threads of a process share.
#[derive(Clone, Copy, Default)]
struct Process {
    ppid: u32,
    uid: [u32; 2],
    gid: [u32; 2],
    pgrp: u32,
    session: u32,
    facts: ProcessFacts,
}

impl Process {
    /// From `/proc`; `None` if it has ended.
    fn read(pid: u32) -> Option<Process> {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let words = line.unwrap_or_default().split_whitespace();
            let mut words = words.map(|word| word.parse().unwrap_or(0));
            [0; 2].map(|_: u32| words.next().unwrap_or(0))
        };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, behind) = stat.rsplit_once(')')?;
        let field = |n: usize| {
            let field = behind.split_whitespace().nth(n);
            field.and_then(|field| field.parse().ok()).unwrap_or(0)
        };
        Some(Process {
            ppid: field(1),
            uid: line("Uid:"),
            gid: line("Gid:"),
            pgrp: field(2),
            session: field(3),
            facts: ProcessFacts::of(pid),
        })
    }
}

/// The name of a thread.
fn name(process: u32, thread: u32) -> [u8; 16] {
    let text = fs::read(format!("/proc/{process}/task/{thread}/comm")).unwrap_or_default();
    let mut name = [0; 16];
    let text = text.trim_ascii_end();
    let length = text.len().min(15);
    name[..length].copy_from_slice(&text[..length]);
    name
}

impl Identities {
    /// A thread begins: it has the name of the one that made it, and its process what its parent had.
    pub(super) fn begin(&mut self, task: &TaskNumbers) {
        let name = self.name(task.parent, task.parent);
        self.names.insert(task.thread, name);
        if task.process != task.parent {
            let parent = self.process(task.parent);
            self.processes.insert(
                task.process,
                Process {
                    ppid: task.parent,
                    ..parent
                },
            );
        }
    }

    /// A thread has another name.
    pub(super) fn rename(&mut self, process: u32, thread: u32, name: [u8; 16], executed: bool) {
        self.names.insert(thread, name);
        if executed {
            let new = Process::read(process);
            self.processes.extend(new.map(|new| (process, new)));
        }
    }

    /// A process has ended.
    pub(super) fn forget(&mut self, process: u32) {
        self.processes.remove(&process);
        self.names.remove(&process);
    }

    fn name(&mut self, process: u32, thread: u32) -> [u8; 16] {
        let known = self.names.entry(thread);
        *known.or_insert_with(|| name(process, thread))
    }

    fn process(&mut self, pid: u32) -> Process {
        let known = self.processes.entry(pid);
        *known.or_insert_with(|| Process::read(pid).unwrap_or_default())
    }

    /// Runs something with the record of a thread, and with a context.
    pub(super) fn run_as(
        &mut self,
        process: u32,
        thread: u32,
        context: &[u64],
        run: impl FnOnce(&mut ThreadRecord, &mut [u64]),
    ) {
        let of = self.process(process);
        let comm = self.name(process, thread);
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d) | 1;
        let mut words = [0; CONTEXT];
        let length = context.len().min(CONTEXT);
        words[..length].copy_from_slice(&context[..length]);
        let mut registers = [0u64; REGISTERS];
        let length = context.len().min(REGISTERS);
        registers[..length].copy_from_slice(&context[..length]);
        let number = thread;
        let mut record = ThreadRecord {
            owner: u64::MAX,
            stack: registers.as_ptr_range().end.addr() as u64,
            proof: (&raw const number).addr() as u64,
            slot: OWN_SLOT,
            ppid: of.ppid,
            tid: thread,
            tgid: process,
            uid: of.uid[0],
            gid: of.gid[0],
            euid: of.uid[1],
            egid: of.gid[1],
            pgrp: of.pgrp,
            session: of.session,
            comm,
            random: self.random.wrapping_add(thread.into()) | 1,
            task_size: of.facts.task_size,
            arguments: of.facts.arguments,
            program: of.facts.program,
            ..ThreadRecord::default()
        };
        record.own = (&raw const record).addr() as u64;
        run(&mut record, &mut words);
        self.random = record.random;
    }
}
