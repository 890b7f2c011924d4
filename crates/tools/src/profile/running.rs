//! Recordings of what already runs: a process with its descendants, a control group, a container.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use spile_kernel::process;
use spile_plain::messages::{Failure, fail};
use spile_profile::model::{Activity, BothEnds, Header, Sample, Snapshot, Wait};
use spile_runtime::TargetProcess;

use super::waiting::WaitingThread;
use super::{regions, waiting};
use crate::groups::{self, Group};
use crate::system::marks::run_on_thread;
use crate::{Passes, ToolRun, add_losses};

/// How often the processes of a control group are looked for. It is over when there are none twice.
const LOOKS: Duration = Duration::from_millis(500);
/// Number of processes of a control group at most whose waiting threads are looked at, at both ends: each takes a
/// session of its own.
const LOOKED_AT: usize = 16;

/// What runs and is recorded.
#[derive(Debug)]
pub(super) struct Running {
    what: What,
    /// Its processes when the recording begins.
    before: RefCell<BTreeSet<u32>>,
    /// Its threads that wait in calls then.
    waited_before: RefCell<Vec<WaitingThread>>,
}

#[derive(Debug)]
enum What {
    /// A process, and its descendants.
    Process(u32),
    /// The processes of a control group: its name in reports, and the group.
    Group(String, Group),
}

impl Running {
    /// What the values of -p, --cgroup and --container ask for; `None` if it is a command.
    pub(super) fn of(
        pid: Option<u32>,
        cgroup: Option<&str>,
        container: Option<&str>,
    ) -> Result<Option<Running>, Failure> {
        let group = |kind, name: &str, group| What::Group(format!("{kind} {name}"), group);
        let what = match (pid, cgroup, container) {
            (Some(pid), ..) => {
                if !Path::new(&format!("/proc/{pid}")).exists() {
                    return Err(fail(format_args!("there is no process {pid}")));
                }
                What::Process(pid)
            }
            (_, Some(name), _) => group("cgroup", name, groups::cgroup(name)?),
            (.., Some(name)) => group("container", name, groups::container(name)?),
            _ => return Ok(None),
        };
        let before = RefCell::new(what.processes());
        Ok(Some(Running {
            what,
            before,
            waited_before: RefCell::default(),
        }))
    }

    /// Its processes now.
    pub(super) fn processes(&self) -> BTreeSet<u32> {
        self.what.processes()
    }

    /// Whether it is a control group without processes.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.what, What::Group(..)) && self.what.processes().is_empty()
    }

    /// The threads of its processes now, each with its process. Only processes of the recording count: those that it
    /// had before, and `entered`.
    pub(super) fn threads(&self, entered: impl Iterator<Item = u32>) -> Vec<(u32, u32)> {
        let mut recorded = self.before.borrow().clone();
        recorded.extend(entered);
        let threads = |pid| {
            let threads = process::threads(pid).into_iter();
            threads.map(move |tid| (pid, tid))
        };
        let now = self.what.processes();
        let processes = now.intersection(&recorded);
        processes.copied().flat_map(threads).collect()
    }

    /// Makes it what the script records. Why its regions are missing goes to the header.
    pub(super) fn prepare(
        self: &Rc<Running>,
        no_regions: bool,
        header: &mut Header,
        tool: &mut ToolRun,
    ) -> Result<(), Failure> {
        tool.set("attach", 1);
        if !no_regions {
            let before = self.before.borrow();
            let missing = before.iter().copied().map(regions::missing);
            // That of a process that uses a library with regions, if there is one.
            let missing = missing.max_by_key(|(_, likely)| *likely);
            header.regions_unlikely = missing.as_ref().is_none_or(|(_, likely)| !likely);
            header.regions_missing = missing.map(|(why, _)| why);
        }
        match &self.what {
            What::Process(pid) => tool.target = TargetProcess::Pid(*pid),
            What::Group(name, group) => {
                header.group = Some(name.clone());
                tool.set("group", group.id);
                tool.set("tree", group.tree);
                tool.group = Some(group.folder.clone());
                let group = group.clone();
                let (armed, outside) = run_on_thread(move || until_empty(&group))
                    .map_err(|e| fail(format_args!("a pipe: {e}")))?;
                tool.armed = Some(armed);
                tool.outside = Some(outside);
            }
        }
        let (running, then) = (Rc::clone(self), tool.armed.take());
        tool.armed = Some(Box::new(move |kinds| {
            // Some may have begun since the options were read.
            *running.before.borrow_mut() = running.what.processes();
            if let Some(then) = then {
                then(kinds);
            }
        }));
        Ok(())
    }

    /// Looks at the threads that wait in calls before the recording begins.
    pub(super) fn look(&self, passes: Passes<'_>) {
        let (waiting, _) = self.waiting(passes);
        *self.waited_before.borrow_mut() = waiting;
    }

    /// Adds the stacks of threads that wait in calls, and what they waited for before the recording.
    pub(super) fn add_waiting(&self, data: &mut Snapshot, passes: Passes<'_>) {
        let (waiting, missing) = self.waiting(passes);
        let mut ends: BTreeMap<u32, BothEnds> = BTreeMap::new();
        for thread in self.waited_before.take() {
            ends.entry(thread.tid).or_default().begin = Some(wait(&thread));
        }
        for thread in &waiting {
            ends.entry(thread.tid).or_default().end = Some(wait(thread));
        }
        // Threads that began or ended meanwhile have only one end.
        let lives: HashSet<u32> = data
            .threads
            .iter()
            .filter(|t| t.started_ns == 0 && t.ended_ns.is_none())
            .map(|t| t.tid)
            .collect();
        let both = ends.into_iter().filter(|(tid, _)| lives.contains(tid));
        data.ends = both.map(|(tid, ends)| BothEnds { tid, ..ends }).collect();
        add_waiting(data, waiting);
        let what = "looks at the threads of a process that still waited: their stacks are missing";
        add_losses(&mut data.lost, [(missing as u64, what)]);
    }

    /// The threads that wait in calls now, and the number of processes that could not be looked at.
    fn waiting(&self, passes: Passes<'_>) -> (Vec<WaitingThread>, usize) {
        let processes = match &self.what {
            What::Process(pid) => BTreeSet::from([*pid]),
            What::Group(_, group) => group.processes(),
        };
        let mut missing = processes.len().saturating_sub(LOOKED_AT);
        let mut threads = Vec::new();
        for pid in processes.into_iter().take(LOOKED_AT) {
            match waiting::threads(pid, passes) {
                Ok(waiting) => threads.extend(waiting),
                // The recording itself is whole.
                Err(_) => missing += 1,
            }
        }
        (threads, missing)
    }
}

impl What {
    /// Its processes now, without this one.
    fn processes(&self) -> BTreeSet<u32> {
        let mut all = match self {
            What::Process(pid) => process::descendants(*pid, |_| {}),
            What::Group(_, group) => group.processes(),
        };
        all.remove(&std::process::id());
        all
    }
}

/// Returns when a control group has no processes any more.
fn until_empty(group: &Group) {
    let mut empty = 0;
    while empty < 2 {
        std::thread::sleep(LOOKS);
        empty = match group.processes().is_empty() {
            true => empty + 1,
            false => 0,
        };
    }
}

/// What a thread waits for.
fn wait(thread: &WaitingThread) -> Wait {
    let frames = thread.frames.iter();
    Wait {
        call: thread.call.to_owned(),
        object: thread.object.clone(),
        frames: frames.map(|frame| frame.clone().into()).collect(),
    }
}

/// Adds the stacks of threads whose calls had not ended.
fn add_waiting(data: &mut Snapshot, waiting: Vec<WaitingThread>) {
    for thread in waiting {
        let mut calls = data.calls.iter();
        let call = calls
            .find(|c| (c.tid, &*c.call) == (thread.tid, thread.call) && c.unfinished.is_some());
        let Some(call) = call else { continue };
        data.samples.push(Sample {
            tid: thread.tid,
            context: call.context,
            activity: Activity::Blocked,
            call: thread.call.to_owned(),
            futex: thread.futex,
            object: thread.object,
            frames: thread.frames.into_iter().map(Into::into).collect(),
            count: 1,
            ns: call.open_parts().blocked,
            ..Sample::default()
        });
    }
}
