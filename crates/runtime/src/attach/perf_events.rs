//! Opens perf events with programs attached: on every CPU, or in all threads of a process.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use spile_ir::{PerfScope, SamplingRate, WatchOwner};
use spile_kernel::bpf::{Errno, Map, perf_link};
use spile_kernel::machine::{monotonic_ns, online_cpus};
use spile_kernel::perf::{
    EventSpec, PerfError, PerfEvent, PerfTarget, Sampling, TYPE_HARDWARE, TYPE_HW_CACHE,
    TYPE_SOFTWARE, TYPE_TRACEPOINT, Watchpoint,
};
use spile_kernel::process::{exists, running, start_of};

use crate::attach::links::Links;
use crate::error::Error;

/// The process whose events count; `None` for all processes.
pub(crate) fn tasks(scope: PerfScope, target: Option<u32>) -> Option<u32> {
    match scope {
        PerfScope::All => None,
        // Analysis ensures that there is a target.
        PerfScope::Target => target,
        PerfScope::Process(pid) => Some(pid),
    }
}

/// Whether closing such an event makes the kernel wait for a grace period. It does for trace events
/// and probes in code; events before tracepoints in `enum perf_type_id`, cache events and raw
/// events are only taken off their processor.
pub(crate) fn close_blocks(event: EventSpec) -> bool {
    const RAW: u32 = 4;
    !matches!(
        event.ty,
        TYPE_HARDWARE | TYPE_SOFTWARE | TYPE_HW_CACHE | RAW
    )
}

/// Opens an event that calls a program.
pub(crate) fn sample(
    event: EventSpec,
    sample: SamplingRate,
    process: Option<u32>,
    program: BorrowedFd<'_>,
    links: &mut Vec<PerfEvent>,
) -> Result<(), Error> {
    let sampling = match sample {
        SamplingRate::Period(n) => Sampling::Period(n),
        SamplingRate::Freq(n) => Sampling::Frequency(n),
    };
    open_everywhere(process, links, |target| {
        let opened = PerfEvent::open(event, target, sampling)?;
        started(opened, program)
    })
    .map_err(|errno| open_error(event, errno))
}

/// Attaches a program to a trace event by its number in tracefs: on all CPUs, whichever CPU the
/// perf event is for, and even if it does not count.
pub(crate) fn trace_event(
    id: u64,
    program: BorrowedFd<'_>,
) -> std::io::Result<(PerfEvent, OwnedFd)> {
    let event = EventSpec {
        ty: TYPE_TRACEPOINT,
        config: id,
    };
    let cpu = online_cpus().first().copied().unwrap_or(0);
    let event = PerfEvent::open(event, PerfTarget::Cpu(cpu), Sampling::Count)
        .map_err(|e| std::io::Error::from(e.errno))?;
    let link = perf_link(program, event.as_fd(), 0).map_err(crate::attach::site::location_error)?;
    Ok((event, link))
}

/// Opens a counting event on every CPU, and stores it in a map for programs.
pub(crate) fn count(
    event: EventSpec,
    map: OwnedFd,
    links: &mut Vec<PerfEvent>,
) -> Result<(), Error> {
    let wrong = |e| Error::attach(name(event), e);
    let map = Map::new(map).map_err(wrong)?;
    for cpu in online_cpus() {
        let opened =
            PerfEvent::open(event, PerfTarget::Cpu(cpu), Sampling::Count).and_then(|opened| {
                opened.enable()?;
                Ok(opened)
            });
        match opened {
            Ok(opened) => {
                let fd = opened.as_fd().as_raw_fd();
                map.update(&cpu.to_ne_bytes(), &fd.to_ne_bytes(), 0)
                    .map_err(wrong)?;
                links.push(opened);
            }
            // The CPU went offline in the meantime.
            Err(e) if e.errno == Errno::NODEV => {}
            Err(e) => return Err(open_error(event, e.errno)),
        }
    }
    Ok(())
}

/// Watchpoints in processes that run a program, by process. They end with the process's program;
/// its children inherit them.
#[derive(Default)]
pub(crate) struct ProcessWatchpoints(HashMap<u32, Watchpoints>);

/// With more processes than this, the watchpoints of ended processes are closed. Their surviving
/// children are watched until then: there is no way to know whether any exist.
const MOST: usize = 256;

/// The watchpoints of one process.
struct Watchpoints {
    /// All of them were opened after this time on the monotonic clock.
    since: u64,
    events: Vec<PerfEvent>,
}

impl ProcessWatchpoints {
    /// Whether to open watchpoints for a process that called `execve` at this time.
    pub(crate) fn executed(&mut self, pid: u32, ns: u64) -> bool {
        if self.0.get(&pid).is_some_and(|w| w.since > ns) {
            return false;
        }
        self.0.remove(&pid);
        if self.0.len() > MOST {
            self.0.retain(|pid, _| exists(*pid));
        }
        true
    }
}

/// Watches memory of the kernel, of one process, or of all processes that run a program.
pub(crate) fn watch(
    watch: &spile_ir::Watch,
    program: BorrowedFd<'_>,
    links: &mut Links,
) -> Result<(), Error> {
    let process = match &watch.owner {
        WatchOwner::Kernel => None,
        WatchOwner::Process(pid) => Some(*pid),
        WatchOwner::Program(path) => {
            return watch_program(watch, path, None, program, &mut links.processes);
        }
    };
    let done = watch_at(watch, watch.address, process, program, &mut links.events);
    done.map_err(|errno| watch_error(watch, watch.address, errno))
}

/// Watches memory of the processes that run a program, or of only one of them.
pub(crate) fn watch_program(
    watch: &spile_ir::Watch,
    path: &str,
    only: Option<u32>,
    program: BorrowedFd<'_>,
    processes: &mut ProcessWatchpoints,
) -> Result<(), Error> {
    let (path, since) = (Path::new(path), monotonic_ns().unsigned_abs());
    let wanted = match only {
        Some(pid) => start_of(path, pid)
            .map(|start| (pid, start))
            .into_iter()
            .collect(),
        None => running(path),
    };
    for (pid, start) in wanted {
        let address = start.wrapping_add(watch.address);
        let entry = processes.0.entry(pid);
        let watches = entry.or_insert(Watchpoints {
            since,
            events: Vec::new(),
        });
        match watch_at(watch, address, Some(pid), program, &mut watches.events) {
            // The process ended in the meantime.
            Err(Errno::SRCH) => {}
            done => done.map_err(|errno| watch_error(watch, address, errno))?,
        }
    }
    Ok(())
}

fn watch_at(
    watch: &spile_ir::Watch,
    address: u64,
    process: Option<u32>,
    program: BorrowedFd<'_>,
    links: &mut Vec<PerfEvent>,
) -> Result<(), Errno> {
    let memory = Watchpoint {
        address,
        length: watch.length,
        reads: watch.reads,
    };
    open_everywhere(process, links, |target| {
        started(PerfEvent::open_watch(&memory, target)?, program)
    })
}

fn watch_error(watch: &spile_ir::Watch, address: u64, errno: Errno) -> Error {
    let memory = format!("{} bytes of memory at {address:#x}", watch.length);
    Error::Attach(memory, errno.into())
}

fn name(event: EventSpec) -> String {
    format!("perf event of type {} config {}", event.ty, event.config)
}

/// The meaning of a failure to open an event.
fn open_error(event: EventSpec, errno: Errno) -> Error {
    let missing = matches!(errno, Errno::NOENT | Errno::OPNOTSUPP | Errno::NODEV);
    match missing && event.ty != TYPE_SOFTWARE {
        true => Error::NoCounter(name(event)),
        false => Error::Attach(name(event), errno.into()),
    }
}

/// Calls `open` for every online CPU, or for all threads of a process.
fn open_everywhere(
    process: Option<u32>,
    links: &mut Vec<PerfEvent>,
    open: impl Fn(PerfTarget) -> Result<PerfEvent, PerfError>,
) -> Result<(), Errno> {
    let Some(pid) = process else {
        for cpu in online_cpus() {
            match open(PerfTarget::Cpu(cpu)) {
                Ok(opened) => links.push(opened),
                // The CPU went offline in the meantime.
                Err(e) if e.errno == Errno::NODEV && !links.is_empty() => {}
                Err(e) => return Err(e.errno),
            }
        }
        return Ok(());
    };
    let threads = spile_kernel::process::threads(pid);
    if threads.is_empty() {
        return Err(Errno::SRCH);
    }
    for tid in threads {
        match open(PerfTarget::Task(tid)) {
            Ok(opened) => links.push(opened),
            // The thread ended in the meantime.
            Err(e) if e.errno == Errno::SRCH && tid != pid => {}
            Err(e) => return Err(e.errno),
        }
    }
    Ok(())
}

fn started(opened: PerfEvent, program: BorrowedFd<'_>) -> Result<PerfEvent, PerfError> {
    opened.set_bpf(program)?;
    opened.enable()?;
    Ok(opened)
}
