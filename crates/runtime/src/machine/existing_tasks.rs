//! Existing tasks: processes and threads that run when a session starts, from the kernel's own
//! lists, and the properties of the one that a handler runs for.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use spile_cast::Cast;
use spile_ir::intrinsics::TaskNumber;
use spile_kernel::btf::Btf;
use spile_kernel::process;

use crate::machine::kernel_memory::KernelMemory;
use crate::machine::pid_namespace::PidMap;

/// Flags of a task (`linux/sched.h`): it is exiting (`PF_EXITING`); it is a kernel thread
/// (`PF_KTHREAD`).
const EXITING: u64 = 0x4;
const KERNEL: u64 = 0x20_0000;
/// Limit on the tasks to look at: the kernel's own limit.
const MOST: usize = 4 << 20;
/// Number of passes through the list if exiting tasks lead out of it.
const ROUNDS: usize = 5;

/// Offsets in the kernel's structures.
#[derive(Debug, Clone)]
struct TaskOffsets {
    tasks: u64,
    flags: u64,
    pid: u64,
    tgid: u64,
    start: u64,
    leader: u64,
    signal: u64,
    threads: u64,
    thread: u64,
    comm: u64,
    real_parent: u64,
    cred: u64,
    ids: [u64; 4],
    pids: u64,
    nr: u64,
    group: u64,
    session: u64,
    mm: u64,
    task_size: u64,
    user_ns: u64,
    level: u64,
}

impl TaskOffsets {
    fn new() -> Option<TaskOffsets> {
        let btf = Btf::vmlinux().ok()?;
        let offset = |structure, member| btf.offset_of(structure, member);
        let task = |name| offset("task_struct", name);
        let cred = |name| offset("cred", name);
        let kind = |name| u64::try_from(btf.constant("pid_type", name)?).ok();
        Some(TaskOffsets {
            tasks: task("tasks")?,
            flags: task("flags")?,
            pid: task("pid")?,
            tgid: task("tgid")?,
            start: task("start_boottime")?,
            leader: task("group_leader")?,
            signal: task("signal")?,
            threads: offset("signal_struct", "thread_head")?,
            thread: task("thread_node")?,
            comm: task("comm")?,
            real_parent: task("real_parent")?,
            cred: task("cred")?,
            ids: [cred("uid")?, cred("euid")?, cred("gid")?, cred("egid")?],
            pids: offset("signal_struct", "pids")?,
            nr: offset("pid", "numbers")? + offset("upid", "nr")?,
            group: 8 * kind("PIDTYPE_PGID")?,
            session: 8 * kind("PIDTYPE_SID")?,
            mm: task("mm")?,
            task_size: offset("mm_struct", "task_size")?,
            user_ns: cred("user_ns")?,
            level: offset("user_namespace", "level")?,
        })
    }
}

/// A process or thread, with machine-wide numbers.
#[derive(Debug)]
pub(crate) struct ExistingTask {
    /// Address of its `task_struct`.
    pub address: u64,
    /// Number of its process.
    pub pid: u32,
    /// Its own number.
    pub tid: u32,
    /// When it started, in nanoseconds after boot.
    started: u64,
    /// Number of its process in `/proc`.
    inside: u32,
    offsets: TaskOffsets,
    memory: Option<File>,
}

/// All tasks older than `before` (nanoseconds after boot), each process before its other threads,
/// which are included with `threads`. `None` if kernel memory cannot be read.
pub(crate) fn all(threads: bool, before: u64) -> Option<Vec<ExistingTask>> {
    let offsets = TaskOffsets::new()?;
    let memory = KernelMemory::open().ok()?;
    let numbers = PidMap::now();
    let tasks = TaskList {
        o: &offsets,
        memory: &memory,
    };
    let mut processes: HashSet<u32> = process::all().into_iter().collect();
    let mut leaders = None;
    for _ in 0..ROUNDS {
        leaders = tasks.processes().or(leaders);
        processes.retain(|pid| process::exists(*pid));
        // A task that exits in the meantime can lead out of the list.
        let seen: HashSet<u32> = leaders.iter().flatten().map(|t| t.1).collect();
        if processes
            .iter()
            .all(|pid| seen.contains(&numbers.to_machine(*pid)))
        {
            break;
        }
    }
    let mut existing = Vec::new();
    for (address, pid) in leaders? {
        let mut ids = vec![address];
        if threads {
            ids.extend(tasks.threads(address));
        }
        for address in ids {
            let Some((tid, started)) = tasks.live_task(address) else {
                continue;
            };
            if started < before {
                existing.push(ExistingTask {
                    address,
                    pid,
                    tid,
                    started,
                    inside: numbers.to_namespace(pid),
                    offsets: offsets.clone(),
                    memory: None,
                });
            }
        }
    }
    Some(existing)
}

struct TaskList<'a> {
    o: &'a TaskOffsets,
    memory: &'a KernelMemory,
}

impl TaskList<'_> {
    fn read_u32(&self, address: u64) -> Option<u32> {
        self.memory.word(address).map(|word| word.low32())
    }

    /// The first thread of each process, with its number.
    fn processes(&self) -> Option<Vec<(u64, u32)>> {
        let this_process = self.memory.current_task().ok()?;
        let this_process = self.memory.word(this_process + self.o.leader)?;
        let mut leaders = Vec::new();
        let mut task = this_process;
        for _ in 0..MOST {
            leaders.push((task, self.read_u32(task + self.o.tgid)?));
            let next = self.memory.word(task + self.o.tasks)?;
            task = next.wrapping_sub(self.o.tasks);
            if task == this_process {
                return Some(leaders);
            }
        }
        None
    }

    /// The other threads of a process, as far as the list can be followed.
    fn threads(&self, leader: u64) -> Vec<u64> {
        let mut tasks = Vec::new();
        let Some(signal) = self.memory.word(leader + self.o.signal) else {
            return tasks;
        };
        let head = signal + self.o.threads;
        let mut node = head;
        while let Some(next) = self.memory.word(node)
            && next != head
            && tasks.len() < MOST
        {
            node = next;
            tasks.push(node.wrapping_sub(self.o.thread));
        }
        tasks.retain(|task| *task != leader);
        tasks
    }

    /// Number and start time of a user task that is not exiting.
    fn live_task(&self, task: u64) -> Option<(u32, u64)> {
        let flags = self.memory.word(task + self.o.flags)?;
        let tid = self.read_u32(task + self.o.pid)?;
        let alive = flags & (EXITING | KERNEL) == 0 && tid != 0;
        alive
            .then(|| Some((tid, self.memory.word(task + self.o.start)?)))
            .flatten()
    }
}

/// Reads a word of kernel memory; `None` if it cannot be read.
pub(crate) type ReadWord<'a> = &'a mut dyn FnMut(u64) -> Option<u64>;

impl ExistingTask {
    /// Whether the task still exists.
    pub(crate) fn still_exists(&self, word: ReadWord<'_>) -> bool {
        let o = &self.offsets;
        let tid = word(self.address + o.pid).map(|w| w.low32());
        tid == Some(self.tid) && word(self.address + o.start) == Some(self.started)
    }

    /// Address of the task's name.
    pub(crate) fn comm(&self) -> u64 {
        self.address + self.offsets.comm
    }

    /// A number of the task; `None` if it cannot be read.
    pub(crate) fn number(&self, which: TaskNumber, word: ReadWord<'_>) -> Option<i64> {
        let o = &self.offsets;
        let [uid, euid, gid, egid] = o.ids;
        // Pointers to follow, then the number.
        let path: &[u64] = match which {
            TaskNumber::TaskSpace => {
                let mm = word(self.address + o.mm)?;
                return Some(word(mm + o.task_size)?.cast_signed());
            }
            TaskNumber::UserNsLevel => &[o.cred, o.user_ns, o.level],
            TaskNumber::Pid => return Some(self.pid.into()),
            TaskNumber::Tid => return Some(self.tid.into()),
            TaskNumber::Ppid => &[o.real_parent, o.tgid],
            TaskNumber::Pgrp => &[o.signal, o.pids + o.group, o.nr],
            TaskNumber::Sid => &[o.signal, o.pids + o.session, o.nr],
            TaskNumber::Uid => &[o.cred, uid],
            TaskNumber::Euid => &[o.cred, euid],
            TaskNumber::Gid => &[o.cred, gid],
            TaskNumber::Egid => &[o.cred, egid],
            TaskNumber::ExeDevice | TaskNumber::ExeInode => return None,
        };
        let last = path
            .iter()
            .try_fold(self.address, |address, off| word(address + off))?;
        Some(i64::from(last.low32()))
    }

    /// The command line, with arguments joined by spaces.
    pub(crate) fn command_line(&self) -> Vec<u8> {
        crate::machine::names::command_line(&self.inside.to_string())
    }

    /// Fills a buffer from the task's memory; false if that cannot be read.
    pub(crate) fn read(&mut self, addr: u64, buf: &mut [u8]) -> bool {
        if self.memory.is_none() {
            self.memory = File::open(format!("/proc/{}/mem", self.inside)).ok();
        }
        let memory = self.memory.as_ref();
        memory.is_some_and(|m| m.read_exact_at(buf, addr).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_and_its_threads_are_listed() {
        let other = std::thread::spawn(std::thread::park);
        let Some(mut tasks) = all(true, u64::MAX) else {
            spile_testing::skip!("kernel memory cannot be read");
        };
        // These are machine-wide numbers; in the initial namespace the process has the same ones.
        let numbers = PidMap::now();
        let here = numbers.to_machine(std::process::id());
        tasks.retain(|t| t.pid == here);
        assert!(tasks.len() >= 2, "{tasks:?}");
        assert_eq!((tasks[0].tid, tasks[1].pid), (here, here));
        assert!(tasks[1..].iter().all(|t| t.tid != here));
        let memory = KernelMemory::open().expect("it was opened before");
        let mut word = |at| memory.word(at);
        let first = &mut tasks[0];
        assert!(first.still_exists(&mut word));
        let outside = |pid: Option<rustix::process::Pid>| {
            pid.map_or(0, |p| {
                numbers
                    .to_machine(p.as_raw_nonzero().get().cast_unsigned())
                    .into()
            })
        };
        let parent: i64 = outside(rustix::process::getppid());
        assert_eq!(first.number(TaskNumber::Ppid, &mut word), Some(parent));
        let group = outside(Some(rustix::process::getpgrp()));
        assert_eq!(first.number(TaskNumber::Pgrp, &mut word), Some(group));
        let mut text = [0; 4];
        assert!(first.read(b"text".as_ptr() as u64, &mut text) && text == *b"text");
        assert!(!first.read(8, &mut text));
        let program = std::env::args().next().unwrap();
        assert!(first.command_line().starts_with(program.as_bytes()));
        assert!(all(false, 0).is_some_and(|none| none.is_empty()));
        other.thread().unpark();
        other.join().expect("a thread ends");
    }
}
