//! Waiting for a reader that pauses: until it reads again, or until a second signal cancels the
//! wait. A request to end the session interrupts the wait earlier, so that handlers are disabled;
//! the collected output is written later.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use crate::machine::clock::timespec;
use crate::machine::end_requests::EndRequests;

/// The result of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitResult {
    /// The destination has space.
    Some,
    /// The session has to end first.
    Later,
}

/// The conditions that interrupt a wait for a reader.
pub struct ReaderWait {
    ends: Rc<EndRequests>,
    /// Whether the session is running, so that a request to end interrupts a wait.
    pub interruptible: bool,
}

impl ReaderWait {
    /// The conditions of a running session.
    pub fn new(ends: Rc<EndRequests>) -> ReaderWait {
        ReaderWait {
            ends,
            interruptible: true,
        }
    }

    /// Passes some time, for a reader that is not there yet.
    ///
    /// # Errors
    /// [`io::ErrorKind::Interrupted`] if a signal ends the session.
    pub fn pause(reader_wait: Option<&ReaderWait>, time: Duration) -> io::Result<()> {
        let Some(p) = reader_wait else {
            std::thread::sleep(time);
            return Ok(());
        };
        let mut fds = [PollFd::new(&*p.ends.signals, PollFlags::IN)];
        // An interruption is as good as the time.
        let _ = poll(&mut fds, Some(&timespec(time)));
        p.ends.signals.poll();
        match p.ends.signals.end_requested() {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => Ok(()),
        }
    }

    /// Waits until a piece can be written without blocking. With `may_keep` the bytes can be
    /// written later.
    ///
    /// # Errors
    /// [`io::ErrorKind::Interrupted`] if a second signal cancelled the wait.
    pub fn until_writable(
        reader_wait: Option<&ReaderWait>,
        to: BorrowedFd<'_>,
        may_keep: bool,
    ) -> io::Result<WaitResult> {
        let mut fds = vec![PollFd::from_borrowed_fd(to, PollFlags::OUT)];
        let interruptible = reader_wait.filter(|p| p.interruptible && may_keep);
        if let Some(p) = reader_wait {
            fds.push(PollFd::new(&*p.ends.signals, PollFlags::IN));
        }
        if let Some(child) = interruptible.and_then(|p| p.ends.child.as_ref()) {
            fds.push(PollFd::from_borrowed_fd(child.as_fd(), PollFlags::IN));
        }
        loop {
            let insists = reader_wait.is_some_and(|p| p.ends.signals.end_requested_twice());
            let wants_end = interruptible.is_some_and(|p| p.ends.signals.end_requested());
            let left = interruptible
                .and_then(|p| p.ends.deadline.get())
                .map(|d| d.saturating_duration_since(Instant::now()));
            let time = if insists || wants_end {
                Some(Duration::ZERO)
            } else {
                left
            };
            let timeout = time.map(timespec);
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if ready[0] {
                return Ok(WaitResult::Some);
            }
            if let (Some(p), Some(true)) = (reader_wait, ready.get(1))
                && p.ends.signals.poll()
            {
                continue;
            }
            if insists {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let over = left.is_some_and(|l| l.is_zero());
            if wants_end || over || ready.get(2) == Some(&true) {
                return Ok(WaitResult::Later);
            }
        }
    }
}
