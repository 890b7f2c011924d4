//! Requests to end a session: signals, the end of `-T`, the end of the command. The first request
//! ends the session; the second, always a signal, ends what the session still does.

use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::session::events::Signals;

/// The sources of requests to end a session.
pub struct EndRequests {
    /// The session's signals.
    pub(crate) signals: Rc<Signals>,
    /// Readable after the end of the process that ends the session.
    pub(crate) child: Option<OwnedFd>,
    /// The time at which the session ends.
    pub(crate) deadline: Cell<Option<Instant>>,
    /// Whether the session is ending, so that only a second request matters.
    ending: Cell<bool>,
}

impl EndRequests {
    /// The sources of a running session.
    pub fn new(signals: Rc<Signals>, child: Option<OwnedFd>) -> EndRequests {
        EndRequests {
            signals,
            child,
            deadline: Cell::new(None),
            ending: Cell::new(false),
        }
    }

    /// The session ends from now on.
    pub(crate) fn begin_end(&self) {
        self.ending.set(true);
    }

    /// Whether a handler that has run for long has to stop. One that is `bounded` ends by itself, and
    /// completes what it has begun unless there is a second request. So does what runs while the
    /// session ends.
    pub(crate) fn must_stop(&self, bounded: bool) -> bool {
        self.signals.poll();
        if !self.signals.end_requested() && (self.is_late() || self.child_ended()) {
            self.signals.request_end();
        }
        match bounded || self.ending.get() {
            true => self.signals.end_requested_twice(),
            false => self.signals.end_requested(),
        }
    }

    fn is_late(&self) -> bool {
        self.deadline.get().is_some_and(|d| Instant::now() >= d)
    }

    fn child_ended(&self) -> bool {
        let Some(child) = &self.child else {
            return false;
        };
        let mut fds = [PollFd::from_borrowed_fd(child.as_fd(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_end_of_the_time_is_a_first_request() {
        let signals = Rc::new(Signals::new().expect("signals"));
        let ends = EndRequests::new(Rc::clone(&signals), None);
        assert!(!ends.must_stop(false));
        ends.deadline
            .set(Some(Instant::now() + Duration::from_secs(3600)));
        assert!(!ends.must_stop(false));
        ends.deadline.set(Some(Instant::now()));
        assert!(ends.must_stop(false));
        // A handler that ends by itself waits for a second one.
        assert!(!ends.must_stop(true));
        // So does what runs while the session ends.
        ends.begin_end();
        assert!(!ends.must_stop(false));
        assert!(signals.end_requested() && !signals.end_requested_twice());
    }

    #[test]
    fn the_end_of_the_command_is_a_first_request() {
        let signals = Rc::new(Signals::new().expect("signals"));
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let ends = EndRequests::new(signals, Some(reader));
        assert!(!ends.must_stop(false));
        drop(writer);
        // A pipe without writers reports a hang-up, as the descriptor of a process does its end.
        assert!(ends.must_stop(false));
    }
}
