//! Handlers that do not end by themselves: those that a request to end the session ended in the
//! middle, and kernel handlers that reached the kernel's bounds.

use std::rc::Rc;

use spile_ir::HandlerId;

use crate::controller::{Controller, message};
use crate::session::end_requests::EndRequests;

/// What still bounds a kernel handler, and the way out.
const KERNEL_BOUNDS: &str = "--suppress-time-limits lifts MAXACTION, but the kernel runs no \
    handler without an end: there a hit is limited to 8,388,608 rounds of loops; begin, end and \
    timer probes, which run outside of the kernel, have no limit";

/// The state of early ends.
#[derive(Default)]
pub(super) struct EarlyEnds {
    /// The requests that end a handler.
    ends: Option<Rc<EndRequests>>,
    /// Number of handlers that a request ended.
    stopped: u64,
    /// Whether the user was told what bounds kernel handlers without limits.
    bounds_told: bool,
}

impl EarlyEnds {
    /// Whether the running handler has to end.
    pub(super) fn must_stop(&mut self) -> bool {
        let stop = self.ends.as_ref().is_some_and(|ends| ends.must_stop());
        self.stopped += u64::from(stop);
        stop
    }
}

impl Controller {
    /// Ends handlers that run for long once the session is to end.
    pub(crate) fn stops_with(&mut self, ends: Rc<EndRequests>) {
        self.env.early.ends = Some(ends);
    }

    /// Number of handlers that a request to end the session has ended.
    pub(crate) fn stopped(&self) -> u64 {
        self.env.early.stopped
    }

    /// Says that a handler was ended, if more were ended than `before`.
    pub(super) fn warn_of_stop(&mut self, before: u64, id: HandlerId) {
        if self.stopped() == before || self.quiet {
            return;
        }
        let point = &self.env.globals.program.handlers[id.index()].point;
        let text = format!("probe {point} was ended before its last statement: the session ends");
        self.out.flush();
        self.out.warn(&text);
    }

    /// Says once what bounds a kernel handler although its limits are lifted.
    pub(super) fn warn_of_bounds(&mut self, error: &str) {
        let lifted = self.env.globals.program.limits.maxaction == u64::MAX;
        if error == message::MAXACTION && lifted && !self.env.early.bounds_told && !self.quiet {
            self.env.early.bounds_told = true;
            self.out.warn(KERNEL_BOUNDS);
        }
    }
}
