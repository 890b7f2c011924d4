//! Lifetimes of threads and processes in the account: their identity, beginning and end.

use spile_cast::Cast;
use spile_profile::model::{Process, Thread};

use super::builder::{ProfileBuilder, REUSED, TID_BITS};
use crate::profile::regions;
use crate::rows::Fields;

/// The thread id in a key.
fn tid_of_key(key: i64) -> u32 {
    (key & ((1 << TID_BITS) - 1)).fit::<u32>()
}

impl ProfileBuilder {
    /// The index of the thread of a key, which is added if it is new.
    pub(super) fn thread(&mut self, key: i64) -> usize {
        let (index, new) = self.thread_index(key);
        if new {
            self.look_up(index, tid_of_key(key));
        }
        index
    }

    /// Sets the process and the name of a thread that no row identifies.
    pub(super) fn look_up(&mut self, index: usize, tid: u32) {
        if let Some(who) = self.identify.and_then(|who| who(tid)) {
            self.set_identity(index, who.pid, who.ppid, who.name);
            self.name_process(who.pid, who.process);
        }
    }

    /// Asks again for the names of threads that still run: a program can rename them.
    pub(super) fn read_names_again(&mut self) {
        let Some(identify) = self.identify else {
            return;
        };
        let threads = self.snapshot.threads.iter_mut();
        let mut processes = Vec::new();
        for thread in threads.filter(|t| t.ended_ns.is_none()) {
            let who = identify(thread.tid % REUSED).filter(|who| who.pid == thread.pid);
            if let Some(who) = who {
                thread.name = who.name;
                processes.push((who.pid, who.process));
            }
        }
        for (pid, name) in processes {
            self.name_process(pid, name);
        }
    }

    fn name_process(&mut self, pid: u32, name: String) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.comm = name;
        }
    }

    /// The index of the thread of a key, and whether it is new.
    fn thread_index(&mut self, key: i64) -> (usize, bool) {
        if let Some(index) = self.threads.get(&key) {
            return (*index, false);
        }
        let tid = tid_of_key(key);
        let used = self.earlier_threads.entry(tid).or_insert(0);
        self.snapshot.threads.push(Thread {
            tid: tid.saturating_add(used.saturating_mul(REUSED)),
            started_ns: (key >> TID_BITS).max(0).cast_unsigned() * 1024,
            ..Thread::default()
        });
        *used += 1;
        let index = self.snapshot.threads.len() - 1;
        self.threads.insert(key, index);
        (index, true)
    }

    /// Sets the process and the name of a thread.
    fn set_identity(&mut self, index: usize, pid: u32, ppid: u32, name: String) {
        let Some(thread) = self.snapshot.threads.get_mut(index) else {
            return;
        };
        thread.pid = pid;
        thread.name.clone_from(&name);
        // The thread is older than that if its process entered the recorded control group later.
        let entered = self.entered.get(&pid).copied().unwrap_or(0);
        thread.started_ns = thread.started_ns.max(entered);
        let (started_ns, leads) = (thread.started_ns, thread.tid % REUSED == pid);
        let process = self.processes.entry(pid).or_insert_with(|| Process {
            pid,
            ppid,
            comm: name.clone(),
            started_ns,
            ..Process::default()
        });
        // Another thread's name stands in for the leader's until that is known.
        if leads {
            process.comm = name;
        }
    }

    pub(super) fn starts(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let key: i64 = f.integer()?;
        let (pid, ppid): (u32, u32) = (f.integer()?, f.integer()?);
        let name = f.string()?.into_owned();
        let (index, _) = self.thread_index(key);
        self.set_identity(index, pid, ppid, name);
        Some(())
    }

    /// The processes that entered the recorded control group.
    pub(crate) fn entered_processes(&self) -> impl Iterator<Item = u32> {
        self.entered.keys().copied()
    }

    /// Takes a process that entered the recorded control group: its times begin there.
    pub(super) fn enters(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let pid: u32 = f.integer()?;
        let when = f.integer().map(|when| self.since(when))?;
        self.entered.insert(pid, when);
        let threads = self.snapshot.threads.iter_mut();
        for thread in threads.filter(|t| t.pid == pid && t.ended_ns.is_none()) {
            thread.started_ns = thread.started_ns.max(when);
        }
        if let Some(process) = self.processes.get_mut(&pid) {
            process.started_ns = process.started_ns.max(when);
        }
        Some(())
    }

    pub(super) fn executes(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let (key, first): (i64, u8) = (f.integer()?, f.integer()?);
        let time = f.integer().map(|when| self.since(when))?;
        let (pid, ppid): (u32, u32) = (f.integer()?, f.integer()?);
        let (before, linked_statically): (u32, bool) = (f.integer()?, f.flag()?);
        let name = f.string()?.into_owned();
        self.first.get_or_insert(pid);
        let (index, new) = self.thread_index(key);
        self.changes_end(index, time);
        let thread = self.snapshot.threads.get_mut(index)?;
        // A leader that had ended is known, though its times begin again.
        if new && first != 0 {
            thread.started_ns = time;
        } else if let Some(ended) = thread.ended_ns.take() {
            // Its leader had ended. The time in between belongs to the thread that executes.
            thread.started_ns += time.saturating_sub(ended);
        }
        if before != thread.tid % REUSED {
            self.renamed.insert(before, time);
        }
        self.set_identity(index, pid, ppid, name.clone());
        let process = self.processes.get_mut(&pid)?;
        process.comm = name;
        process.linked_statically = linked_statically && regions::may_have_any(pid);
        process.ended_ns = None;
        process.status = None;
        Some(())
    }

    pub(super) fn exits(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let (key, when): (i64, i64) = (f.integer()?, f.integer()?);
        let (pid, ppid): (u32, u32) = (f.integer()?, f.integer()?);
        let status: i32 = f.integer()?;
        let name = f.string()?.into_owned();
        let call = f.string()?;
        let time = self.since(when);
        let (index, _) = self.thread_index(key);
        self.set_identity(index, pid, ppid, name);
        if call != "-" {
            self.single_call(index, &call, f)?;
        }
        self.changes_end(index, time);
        let thread = self.snapshot.threads.get_mut(index)?;
        thread.ended_ns = Some(time);
        let leads = thread.tid % REUSED == pid;
        let process = self.processes.get_mut(&pid)?;
        if leads {
            process.status = Some(status);
        }
        // The end of its last thread is the end of the process.
        process.ended_ns = process.ended_ns.max(Some(time));
        Some(())
    }
}
