//! How long output waits for a reader that pauses: until it reads again, or a second signal says that
//! nobody is to wait any longer. What wants the session to end interrupts the wait before that, so that
//! handlers are turned off; what was collected is written later.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::session::events::Signals;

/// What a wait ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Something can be written.
    Some,
    /// The session is to end first.
    Later,
}

/// What interrupts a wait for a reader.
pub struct Patience {
    signals: Rc<Signals>,
    /// Readable when the process ended with which the session ends.
    child: Option<OwnedFd>,
    /// When the session ends.
    pub deadline: Option<Instant>,
    /// The session runs, and whoever wants it to end is not to wait for a reader.
    pub hurry: bool,
}

impl Patience {
    /// Of a session that runs.
    pub fn new(signals: Rc<Signals>, child: Option<OwnedFd>) -> Patience {
        Patience {
            signals,
            child,
            deadline: None,
            hurry: true,
        }
    }

    /// Waits until a piece can be written without blocking; `may_keep`: what is to be written can be kept
    /// for later.
    ///
    /// # Errors
    /// [`io::ErrorKind::Interrupted`] where nobody wants to wait any longer.
    pub fn wait(
        patience: Option<&Patience>,
        to: BorrowedFd<'_>,
        may_keep: bool,
    ) -> io::Result<Room> {
        let mut fds = vec![PollFd::from_borrowed_fd(to, PollFlags::OUT)];
        let hurry = patience.filter(|p| p.hurry && may_keep);
        if let Some(p) = patience {
            fds.push(PollFd::new(&*p.signals, PollFlags::IN));
        }
        if let Some(child) = hurry.and_then(|p| p.child.as_ref()) {
            fds.push(PollFd::from_borrowed_fd(child.as_fd(), PollFlags::IN));
        }
        loop {
            let insists = patience.is_some_and(|p| p.signals.insists());
            let wants_end = hurry.is_some_and(|p| p.signals.wants_end());
            let left = hurry
                .and_then(|p| p.deadline)
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
                return Ok(Room::Some);
            }
            if let (Some(p), Some(true)) = (patience, ready.get(1))
                && p.signals.look()
            {
                continue;
            }
            if insists {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let over = left.is_some_and(|l| l.is_zero());
            if wants_end || over || ready.get(2) == Some(&true) {
                return Ok(Room::Later);
            }
        }
    }
}

fn timespec(d: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(d.subsec_nanos()),
    }
}
