//! All threads of a process, stopped.

use crate::error::Error;
use crate::process::{Status, refusal, threads};
use crate::ptrace::{self, Stop};

/// Stopped threads. Those that were running run on when the thread ends that stopped them.
#[derive(Debug)]
pub(crate) struct Stopped {
    /// At least one.
    pub(crate) tids: Vec<u32>,
    /// Whether they were running: a command that waits at its start stays stopped.
    pub(crate) seized: bool,
}

impl Stopped {
    /// Stops one thread.
    pub(crate) fn one(pid: u32) -> Result<Stopped, Error> {
        let mut one = Stopped {
            tids: Vec::new(),
            seized: true,
        };
        for tid in threads(pid)? {
            if seize(pid, tid)? {
                one.tids.push(tid);
                match settle(tid) {
                    Err(Error::Ended) if tid != pid => one.tids.clear(),
                    result => return result.map(|()| one),
                }
            }
        }
        Err(Error::Ended)
    }

    /// Stops the other threads as well.
    pub(crate) fn stop_all(&mut self, pid: u32) -> Result<(), Error> {
        let mut gone = Vec::new();
        // A thread that still runs can start others.
        while self.seized {
            let before = self.tids.len();
            let seen = threads(pid)?;
            let new = seen
                .into_iter()
                .filter(|t| !self.tids.contains(t) && !gone.contains(t));
            for tid in new.collect::<Vec<u32>>() {
                match seize(pid, tid)? {
                    true => self.tids.push(tid),
                    false => gone.push(tid),
                }
            }
            if self.tids.len() == before {
                return Ok(());
            }
            let mut ended = Vec::new();
            for tid in &self.tids[before..] {
                match settle(*tid) {
                    Err(Error::Ended) if *tid != pid => ended.push(*tid),
                    result => result?,
                }
            }
            self.tids.retain(|t| !ended.contains(t));
            gone.extend(ended);
        }
        Ok(())
    }

    /// A child of this thread that stands at its start.
    pub(crate) fn at_start(pid: u32) -> Result<Stopped, Error> {
        ptrace::tell_calls(pid).map_err(Error::system("trace the command"))?;
        Ok(Stopped {
            tids: vec![pid],
            seized: false,
        })
    }
}

/// Seizes a thread and asks it to stop. False if it has ended.
pub(crate) fn seize(pid: u32, tid: u32) -> Result<bool, Error> {
    let result = ptrace::seize(tid).and_then(|()| ptrace::interrupt(tid));
    let Err(error) = result else {
        return Ok(true);
    };
    match error.raw_os_error() {
        Some(libc::ESRCH) => Ok(false),
        // A first thread that ended before the others.
        Some(libc::EPERM) if Status::read(tid).is_ok_and(|s| s.zombie) => Ok(false),
        Some(libc::EPERM) => Err(refusal(pid)),
        _ => Err(Error::System("trace the process", error)),
    }
}

/// Waits until a thread has stopped because it was asked to.
pub(crate) fn settle(tid: u32) -> Result<(), Error> {
    loop {
        let signal = match ptrace::wait(tid)? {
            Stop::Asked => return Ok(()),
            // It was about to get one: its handler's first instruction is where it will stop.
            Stop::Signal(signal) => signal,
            Stop::Call => 0,
        };
        ptrace::go_on(tid, signal).map_err(Error::system("trace the process"))?;
    }
}
