//! The work while the machine is recorded, on a thread of its own next to the session: a mark on
//! each processor, the command or the duration, and a mark on each processor again.

use std::io::{PipeReader, PipeWriter, Read};
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use spile_kernel::process::{mark, with_all_signals};
use spile_kernel::resources::error_text;
use spile_runtime::{ExternalSource, OnArmed};

use spile_plain::messages::print_stderr;

/// The option of `prctl` that the scripts recognise as a mark.
const MARK: i32 = 0x5350_4c33;

/// Marks the beginning, or the end, on the processor that this thread runs on.
pub(super) fn mark_here(begins: bool) {
    mark(MARK, begins.into(), token());
}

/// A number that distinguishes a session's marks from others': its process id.
pub(super) fn token() -> u64 {
    std::process::id().into()
}

/// The duration of the recording.
pub(super) struct Work {
    /// Record until it ends; empty: until the duration is over.
    pub command: Vec<String>,
    /// Maximum duration.
    pub duration: Option<Duration>,
}

/// The result of the work.
#[derive(Default)]
pub(super) struct WorkOutcome {
    /// The command's wait status.
    pub status: Option<i32>,
    /// Processors that could not be marked.
    pub unreached: Vec<u32>,
    /// Why the command could not be run.
    pub wrong: Option<String>,
}

/// [`WorkOutcome`], shared with another thread.
#[derive(Clone, Default)]
pub(super) struct SharedOutcome(Arc<Mutex<WorkOutcome>>);

impl SharedOutcome {
    /// Changes the value.
    pub(super) fn with(&self, change: impl FnOnce(&mut WorkOutcome)) {
        change(&mut self.0.lock().unwrap_or_else(|e| e.into_inner()));
    }

    /// The value so far.
    pub(super) fn take(&self) -> WorkOutcome {
        std::mem::take(&mut self.0.lock().unwrap_or_else(|e| e.into_inner()))
    }
}

/// Prepares the work: the callback that begins it when the probes are armed, and the event source
/// that ends the session when it is done.
pub(super) fn begin(
    cpus: Vec<u32>,
    work: Work,
) -> std::io::Result<(OnArmed, ExternalSource, SharedOutcome)> {
    let outcome = SharedOutcome::default();
    let shared = outcome.clone();
    let (armed, outside) = run_on_thread(move || {
        on_each(&cpus, true, &shared);
        work.run(&shared);
        on_each(&cpus, false, &shared);
    })?;
    Ok((armed, outside, outcome))
}

/// Runs a closure on a thread of its own once the probes are armed, and then ends the session.
pub(crate) fn run_on_thread(
    run: impl FnOnce() + Send + 'static,
) -> std::io::Result<(OnArmed, ExternalSource)> {
    let (mut reader, writer): (PipeReader, PipeWriter) = std::io::pipe()?;
    let fd = reader.try_clone()?.into();
    let armed: OnArmed = Box::new(move |_| {
        let work = move || {
            run();
            drop(writer);
        };
        if let Err(e) = std::thread::Builder::new().spawn(work) {
            // Closing the pipe ends the session.
            print_stderr(format_args!(
                "ERROR: no thread can be created: {}\n",
                error_text(&e)
            ));
        }
    });
    let ready = Box::new(move || {
        // Nothing is ever written: the end of file ends the session.
        let _ = reader.read(&mut [0]);
        ControlFlow::Break(())
    });
    Ok((armed, ExternalSource { fd, ready }))
}

/// A set of one processor; `None` beyond the size of the kernel's sets.
pub(super) fn cpu_set(cpu: u32) -> Option<CpuSet> {
    let mut set = CpuSet::new();
    let cpu = usize::try_from(cpu).ok()?;
    (cpu < CpuSet::MAX_CPU).then(|| set.set(cpu))?;
    Some(set)
}

/// Marks each processor, then restores the thread's affinity.
fn on_each(cpus: &[u32], begins: bool, told: &SharedOutcome) {
    let before = sched_getaffinity(None);
    for cpu in cpus {
        match cpu_set(*cpu).map(|set| sched_setaffinity(None, &set)) {
            Some(Ok(())) => mark_here(begins),
            _ if !begins => {}
            _ => told.with(|t| t.unreached.push(*cpu)),
        }
    }
    if let Ok(before) = before {
        // This affinity was set before.
        let _ = sched_setaffinity(None, &before);
    }
}

impl Work {
    fn run(&self, told: &SharedOutcome) {
        let Some((program, args)) = self.command.split_first() else {
            match self.duration {
                Some(duration) => std::thread::sleep(duration),
                // Until Ctrl-C, which ends the session.
                None => loop {
                    std::thread::park();
                },
            }
            return;
        };
        let mut command = Command::new(program);
        let spawned = with_all_signals(command.args(args)).spawn();
        let ended = spawned.and_then(|mut child| {
            if let Some(duration) = self.duration {
                limit(&child, duration);
            }
            child.wait()
        });
        match ended {
            Ok(status) => told.with(|t| t.status = Some(status.into_raw())),
            Err(e) => told.with(|t| t.wrong = Some(format!("{program}: {e}"))),
        }
    }
}

/// Waits for a command, and terminates it after that time.
fn limit(child: &Child, duration: Duration) {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
        return;
    };
    let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else {
        return;
    };
    let timeout = Timespec {
        tv_sec: duration.as_secs().cast_signed(),
        tv_nsec: duration.subsec_nanos().into(),
    };
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    if poll(&mut fds, Some(&timeout)) == Ok(0) {
        // It may just have ended.
        let _ = kill_process(pid, Signal::TERM);
    }
}
