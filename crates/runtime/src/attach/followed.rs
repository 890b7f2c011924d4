//! Breakpoints in the memory of the target and its descendants only, which cost other programs
//! nothing.
//!
//! The kernel has two kinds of attachments to programs that are limited to processes. One limits a link
//! to the memory of one process, which its children do not have. The other limits a perf event of a
//! trace event to a task; such events can be inherited, so that a task has them from its first
//! instruction on, and keeps them when it calls `execve`. Here is the second kind:
//!
//! 1. A set of locations becomes one trace event of tracefs (`uprobe_events`), with a name of this session.
//! 2. One perf event holds the BPF program, which runs wherever the kernel lets a location of the set hit:
//!    in the memory of tasks that have a perf event of the trace event. It is the first, and of a task
//!    without memory.
//! 3. Another perf event for each task of the target is inherited by its threads and children. It never
//!    counts, so a switch of tasks does nothing for it. It asks for reads with samples, because the
//!    kernel exchanges the events of parent and child at a switch otherwise, with their limits.
//!
//! A trace event has one attach cookie, so each location has its cookie as an argument, which the program
//! reads from the kernel's description of the location. The argument also tells locations apart: an event can
//! have an instruction several times, with other arguments, where several functions end in it.
//!
//! Sets are large, because the kernel closes events one after the other, in 80 ms each, and each fork
//! copies them.
//!
//! A perf event of a task with the file in its memory makes the kernel look at the instructions.
//! The target does not run its program yet, so this process maps the file for that.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use spile_bpf::compiled::{FOLLOWED, Object, can_follow};
use spile_kernel::bpf::{BpfError, Command, Errno, perf_link};
use spile_kernel::machine::{self, Version};
use spile_kernel::mapping::{MapAccess, MappedPages};
use spile_kernel::perf::PerfEvent;
use spile_kernel::process;
use spile_kernel::tracepoints::Tracefs;

use crate::attach::arming::{Progress, close_all};
use crate::attach::site::AttachSite;
use crate::machine::parallel::in_parallel;

/// The first version in which inherited events can ask for reads with samples.
const SINCE: Version = Version::new(6, 13);
/// Limit on the locations of a set, by the time in which the kernel attaches to them.
const MOST_LOCATIONS: usize = 2048;
/// Limit on events that are closed in parallel.
const MOST_CLOSERS: usize = 64;
/// The start of the names of spile's groups of trace events; the rest is a process number.
const GROUP: &str = "spile_";

/// The attachments that follow the target's processes. Dropping it detaches.
pub(crate) struct Following {
    tracefs: Tracefs,
    /// The group of this session's trace events.
    group: String,
    /// The process to follow.
    target: u32,
    /// The task of the events that hold programs.
    holder: u32,
    /// Number of sets so far.
    sets: AtomicU32,
    made: Mutex<Made>,
}

#[derive(Default)]
struct Made {
    /// The sets' numbers and the identifiers of their trace events.
    sets: Vec<(u32, u64)>,
    /// Tasks whose children inherit the events.
    tasks: BTreeSet<u32>,
    events: Vec<PerfEvent>,
    /// Events of this process, by which the kernel looked at the instructions. They are closed together,
    /// because the kernel waits at each.
    checks: Vec<PerfEvent>,
    /// The first error that is not about an instruction.
    failure: Option<Errno>,
}

/// The programs of an object that can follow processes, if this kernel can and the programs find the
/// locations that are hit.
pub(crate) fn programs(object: &Object) -> Vec<String> {
    if machine::version() < SINCE || !object.follows {
        return Vec::new();
    }
    let followed = object
        .programs
        .iter()
        .filter(|info| info.attach.code().is_some_and(|(p, _)| can_follow(p)));
    followed.map(|info| info.name.clone()).collect()
}

impl Following {
    /// Follows a process and its existing descendants.
    ///
    /// # Errors
    /// If tracefs cannot be opened.
    pub(crate) fn new(target: u32) -> Result<Following, Errno> {
        let tracefs = Tracefs::open_writable().map_err(|e| e.errno)?;
        remove_abandoned(&tracefs);
        let mut made = Made::default();
        made.tasks.insert(target);
        Ok(Following {
            tracefs,
            group: format!("{GROUP}{}", std::process::id()),
            target,
            holder: without_memory().unwrap_or(target),
            sets: AtomicU32::new(0),
            made: Mutex::new(made),
        })
    }

    /// Divides the locations of a file into sets. A set has no location twice with the same cookie, which a
    /// trace event refuses; two probe points of a handler can mean one location.
    pub(crate) fn sets<'p>(sites: &[AttachSite<'p>]) -> Vec<Vec<AttachSite<'p>>> {
        let mut sets: Vec<Vec<AttachSite<'p>>> = Vec::new();
        let mut used: HashMap<(u64, u64), usize> = HashMap::new();
        for site in sites {
            let number = used.entry((site.offset(), site.cookie)).or_default();
            match sets.get_mut(*number) {
                Some(set) => set.push(*site),
                None => sets.push(vec![*site]),
            }
            *number += 1;
        }
        let parts = sets.iter().flat_map(|set| set.chunks(MOST_LOCATIONS));
        parts.map(<[_]>::to_vec).collect()
    }

    /// Whether locations are attached to.
    pub(crate) fn has_sets(&self) -> bool {
        !self.made().sets.is_empty()
    }

    /// The error because of which processes cannot be followed, if it is not about an instruction.
    pub(crate) fn failure(&self) -> Option<Errno> {
        self.made().failure
    }

    /// Attaches a program to a set of locations, or to none of them.
    ///
    /// # Errors
    /// `ENOTSUPP` if the kernel cannot probe one of the instructions. After any other error, which
    /// [`Following::failure`] has, all sets are refused.
    pub(crate) fn link(
        &self,
        sites: &[AttachSite<'_>],
        returns: bool,
        program: BorrowedFd<'_>,
    ) -> Result<OwnedFd, BpfError> {
        let command = Command::LinkCreate;
        let refused = |errno| BpfError::Call { command, errno };
        if self.failure().is_some() {
            return Err(refused(Errno::PERM));
        }
        let set = self.sets.fetch_add(1, Ordering::Relaxed);
        let linked = self.link_set(set, sites, returns, program);
        linked.map_err(|errno| {
            self.remove(set);
            if errno.raw_os_error() == ENOTSUPP {
                return refused(errno);
            }
            self.made().failure.get_or_insert(errno);
            refused(Errno::PERM)
        })
    }

    fn link_set(
        &self,
        set: u32,
        sites: &[AttachSite<'_>],
        returns: bool,
        program: BorrowedFd<'_>,
    ) -> Result<OwnedFd, Errno> {
        let path = sites[0].path().unwrap_or_default();
        let file = File::open(path).map_err(|e| io_number(&e))?;
        let id = self.define(set, sites, returns, &file)?;
        let opened = |e: spile_kernel::perf::PerfError| e.errno;
        let mapped = file_in_memory(&file);
        let check = PerfEvent::open_in(id, std::process::id(), false).map_err(opened)?;
        let holder = PerfEvent::open_in(id, self.holder, false).map_err(opened)?;
        self.made().checks.push(check);
        drop(mapped);
        let link = perf_link(program, holder.as_fd(), FOLLOWED).map_err(number)?;
        let tasks: Vec<u32> = self.made().tasks.iter().copied().collect();
        let events = self.inherited(id, &tasks)?;
        let mut made = self.made();
        made.events.extend(events);
        made.sets.push((set, id));
        Ok(link)
    }

    /// Defines a trace event, and returns its identifier. Tracefs gets the file by its descriptor,
    /// because it cannot read paths with white space or `#`.
    fn define(
        &self,
        set: u32,
        sites: &[AttachSite<'_>],
        returns: bool,
        file: &File,
    ) -> Result<u64, Errno> {
        let kind = if returns { 'r' } else { 'p' };
        let start = format!(
            "{kind}:{}/s{set} /proc/self/fd/{}",
            self.group,
            file.as_raw_fd()
        );
        let line = |site: &AttachSite<'_>| {
            let semaphore = match site.semaphore() {
                0 => String::new(),
                offset => format!("({offset:#x})"),
            };
            let (offset, cookie) = (site.offset(), site.cookie.cast_signed());
            format!("{start}:{offset:#x}{semaphore} cookie=\\{cookie}\n")
        };
        let text: String = sites.iter().map(line).collect();
        self.tracefs
            .append("uprobe_events", &text)
            .map_err(|e| io_number(&e))?;
        let id = self
            .tracefs
            .read(&format!("events/{}/s{set}/id", self.group));
        let id = id.map_err(|e| io_number(&e))?;
        id.trim().parse().map_err(|_| Errno::INVAL)
    }

    /// Events that tasks and their later children have; tasks that have ended need none.
    fn inherited(&self, id: u64, tasks: &[u32]) -> Result<Vec<PerfEvent>, Errno> {
        let opened = tasks.iter().map(|task| PerfEvent::open_in(id, *task, true));
        let running = opened.filter(|o| !matches!(o, Err(e) if e.errno == Errno::SRCH));
        running.map(|o| o.map_err(|e| e.errno)).collect()
    }

    /// Follows all tasks of the target and its descendants. Those that begin meanwhile inherit the
    /// events, or are found in the next round.
    ///
    /// # Errors
    /// See [`Following::link`].
    pub(crate) fn follow_all(&self) -> Result<(), Errno> {
        let checks = std::mem::take(&mut self.made().checks);
        in_parallel(checks, MOST_CLOSERS, drop);
        loop {
            let new: Vec<u32> = {
                let known = &self.made().tasks;
                let mut tasks = tasks_of(self.target);
                tasks.retain(|task| !known.contains(task));
                tasks
            };
            if new.is_empty() {
                return Ok(());
            }
            let sets = self.made().sets.clone();
            for (_, id) in sets {
                let events = self.inherited(id, &new)?;
                self.made().events.extend(events);
            }
            self.made().tasks.extend(new);
        }
    }

    /// Number of open events.
    pub(crate) fn open(&self) -> usize {
        let made = self.made();
        made.events.len() + made.checks.len()
    }

    /// Closes all events. Their programs are detached before, so nothing runs at the locations any more.
    pub(crate) fn close(&self, progress: &Progress) {
        let events = {
            let mut made = self.made();
            let checks = std::mem::take(&mut made.checks);
            made.events.drain(..).chain(checks).collect()
        };
        close_all::<PerfEvent>(events, MOST_CLOSERS, progress);
    }

    /// Removes a trace event. It has no perf event any more.
    fn remove(&self, set: u32) {
        // One that was not defined need not be removed.
        let _ = self
            .tracefs
            .append("uprobe_events", &format!("-:{}/s{set}\n", self.group));
    }

    fn made(&self) -> std::sync::MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.close(&Progress::new("detaching", "links", self.open()));
        for (set, _) in std::mem::take(&mut self.made().sets) {
            self.remove(set);
        }
    }
}

/// The kernel's own `ENOTSUPP`.
const ENOTSUPP: i32 = 524;

fn number(e: BpfError) -> Errno {
    e.errno().unwrap_or(Errno::INVAL)
}

fn io_number(e: &std::io::Error) -> Errno {
    Errno::from_io_error(e).unwrap_or(Errno::INVAL)
}

/// A file in the memory of this process, so that the kernel checks locations in it. Nothing reads it there.
fn file_in_memory(file: &File) -> Option<MappedPages> {
    let bytes = usize::try_from(file.metadata().ok()?.len()).ok()?;
    MappedPages::new(file, 0, bytes, MapAccess::Private).ok()
}

/// A task without memory, in which an event can hold a program before locations hit in the target: a
/// process that waits for its semaphore hits as soon as it is raised. In a PID namespace there is none.
fn without_memory() -> Option<u32> {
    const PARENT_OF_THREADS: u32 = 2;
    let stat = process::stat(PARENT_OF_THREADS)?;
    (stat.comm == "kthreadd").then_some(PARENT_OF_THREADS)
}

/// The threads of a process and of its descendants.
fn tasks_of(target: u32) -> Vec<u32> {
    let processes = process::descendants(target, |_| {});
    processes.into_iter().flat_map(process::threads).collect()
}

/// Removes trace events of sessions that were killed. They have no perf events and cost nothing.
fn remove_abandoned(tracefs: &Tracefs) {
    for system in tracefs.systems().unwrap_or_default() {
        let Some(pid) = system.strip_prefix(GROUP).and_then(|n| n.parse().ok()) else {
            continue;
        };
        if process::exists(pid) {
            continue;
        }
        for event in tracefs.events(&system, "*").unwrap_or_default() {
            let _ = tracefs.append("uprobe_events", &format!("-:{system}/{event}\n"));
        }
    }
}
