//! Handlers that do not end by themselves: those that a request to end the session ended in the middle.

use std::rc::Rc;

use spile_ir::HandlerId;

use crate::controller::Controller;
use crate::machine::end_requests::EndRequests;

/// Number of checks after the first request to end, each after 1,000 statements: a handler that is
/// about to end by itself does so, and one without an end takes a second or a few.
const PATIENCE: u32 = 10_000;

/// The state of early ends.
#[derive(Default)]
pub(super) struct EarlyEnds {
    /// The requests that end a handler.
    ends: Option<Rc<EndRequests>>,
    /// Number of handlers that a request ended.
    stopped: u64,
    /// Number of checks after which the first request ends the running handler.
    patience: u32,
}

impl EarlyEnds {
    /// A handler begins.
    pub(super) fn begin(&mut self) {
        self.patience = PATIENCE;
    }

    /// Whether the running handler has to end.
    pub(super) fn must_stop(&mut self) -> bool {
        let Some(ends) = &self.ends else {
            return false;
        };
        let stop = ends.must_stop(&mut self.patience);
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
}
