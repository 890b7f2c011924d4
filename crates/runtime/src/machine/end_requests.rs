//! Requests to end a session: signals, the end of `-T`, the end of the command. The first request
//! ends the session; the second, always a signal, ends what the session still does.

use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::machine::signals::Signals;

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

    /// Whether a handler has to stop that has run for long: at once after a second request; after
    /// the first one when it has been asked `patience` times, which count down. So a handler that
    /// ends by itself completes what it has begun, as moving the elements of an array. What runs
    /// while the session ends goes on until the second.
    pub(crate) fn must_stop(&self, patience: &mut u32) -> bool {
        self.signals.poll();
        if !self.signals.end_requested() && (self.is_late() || self.child_ended()) {
            self.signals.request_end();
        }
        if self.signals.end_requested_twice() {
            return true;
        }
        if self.ending.get() || !self.signals.end_requested() {
            return false;
        }
        *patience = patience.saturating_sub(1);
        *patience == 0
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
        let patience = &mut 2;
        assert!(!ends.must_stop(patience));
        ends.deadline
            .set(Some(Instant::now() + Duration::from_secs(3600)));
        assert!(!ends.must_stop(patience));
        ends.deadline.set(Some(Instant::now()));
        // A handler that is about to end completes.
        assert!(!ends.must_stop(patience) && *patience == 1);
        assert!(ends.must_stop(patience));
        // What runs while the session ends waits for a second one.
        ends.begin_end();
        assert!(!ends.must_stop(&mut 1));
        assert!(signals.end_requested() && !signals.end_requested_twice());
    }

    #[test]
    fn the_end_of_the_command_is_a_first_request() {
        let signals = Rc::new(Signals::new().expect("signals"));
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let ends = EndRequests::new(signals, Some(reader));
        assert!(!ends.must_stop(&mut 1));
        drop(writer);
        // A pipe without writers reports a hang-up, as the descriptor of a process does its end.
        assert!(ends.must_stop(&mut 1));
    }
}
