//! Intake of ring-buffer records: when they are taken, and their printing.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use spile_layout::shared;

use super::Session;

/// Limit on the records that are taken before other sources get their turn.
const ROUND: usize = 16_384;
/// How long new output does not wake the session after a small intake. Waking for every record
/// would take the processor from the observed programs, and each wake-up would cause events of its
/// own.
const REST: Duration = Duration::from_millis(5);
/// An intake of fewer bytes is followed by a rest.
const LITTLE: usize = 64 << 10;

impl Session {
    /// Prints the kernel's records, and rests if there were few or if the options say so. Records
    /// that ask the controller to read memory that may soon be gone wake it in any case.
    pub(super) fn consume_and_rest(&mut self) {
        if self.rest.take().is_some() {
            self.wake_for_records(true);
        }
        let (records, bytes) = self.consume();
        let rest = match self.options.rest {
            // (A round that was cut off has more to come.)
            Some(asked) if records < ROUND => Some(asked),
            _ => (bytes < LITTLE).then_some(REST),
        };
        if let Some(rest) = rest.filter(|_| records > 0) {
            self.wake_for_records(false);
            self.rest = Some(Instant::now() + rest);
        }
    }

    /// Sets whether output of handlers wakes the event loop.
    fn wake_for_records(&self, wake: bool) {
        if let Some(kernel) = self.controller.kernel() {
            let flags = if wake { 0 } else { shared::NO_WAKEUP };
            let word = kernel.state().shared(shared::WAKE);
            word.store(flags, Ordering::SeqCst);
        }
    }

    /// Prints the kernel's records so far; returns their number and their size in bytes.
    pub(super) fn consume(&mut self) -> (usize, usize) {
        let Some(backend) = &mut self.backend else {
            return (0, 0);
        };
        let mut batch = std::mem::take(&mut self.batch);
        // Bounded, so that a buffer that fills as fast as it is emptied does not delay signals.
        backend.take_records(ROUND, &mut |record| {
            batch.bytes.extend_from_slice(record);
            batch.ends.push(batch.bytes.len());
        });
        let taken = (batch.ends.len(), batch.bytes.len());
        // Comes before printing, because the processes continue in the meantime.
        if self.program.watches_programs() {
            for record in batch.records() {
                if let Some((pid, ns)) = self.controller.executed(record) {
                    self.watch_new(pid, ns);
                }
            }
        }
        if self.controller.deferred.is_some() {
            for record in batch.records() {
                self.controller.read_deferred(record);
            }
        }
        for record in batch.records() {
            self.controller.record(record);
        }
        // Reuses the memory.
        batch.bytes.clear();
        batch.ends.clear();
        self.batch = batch;
        if self.controller.kernel_errors_seen() {
            self.count_kernel();
        }
        taken
    }

    /// Prints all remaining records, at the end.
    pub(super) fn consume_all(&mut self) {
        let Some(kernel) = self.controller.kernel() else {
            return;
        };
        debug_assert!(!kernel.state().running());
        loop {
            let before = self.controller.records;
            self.consume();
            if self.controller.records == before {
                break;
            }
        }
    }
}
