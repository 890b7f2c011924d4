//! Records of the ring buffer: when they are taken, and that they are printed.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use spile_bpf::layout::shared;

use super::Session;

/// Records taken from the ring buffer before anything else has its turn.
const ROUND: usize = 16_384;
/// How long handlers that print wake nobody after some records were taken. A session that was woken for each
/// would take the processor from what it watches, and each time make events of its own.
const REST: Duration = Duration::from_millis(5);
/// A round that takes fewer bytes is followed by a rest.
const LITTLE: usize = 64 << 10;

impl Session {
    /// Prints what the kernel sent, and rests if that was little. Records that ask the controller to read what
    /// may be gone soon wake it all the same.
    pub(super) fn consume_and_rest(&mut self) {
        if self.rest.take().is_some() {
            self.wake_for_records(true);
        }
        let bytes = self.consume();
        if (1..LITTLE).contains(&bytes) {
            self.wake_for_records(false);
            self.rest = Some(Instant::now() + REST);
        }
    }

    /// Whether what handlers print wakes the event loop.
    fn wake_for_records(&self, wake: bool) {
        if let Some(kernel) = self.controller.kernel() {
            let flags = if wake { 0 } else { shared::NO_WAKEUP };
            let word = kernel.state().shared(shared::WAKE);
            word.store(flags, Ordering::SeqCst);
        }
    }

    /// Prints what the kernel sent so far; how many bytes that was.
    pub(super) fn consume(&mut self) -> usize {
        let Some(ring) = &mut self.ring else {
            return 0;
        };
        let mut batch = std::mem::take(&mut self.batch);
        // A buffer that fills as fast as it is emptied must not keep signals from being seen.
        ring.consume(ROUND, |record| {
            batch.bytes.extend_from_slice(record);
            batch.ends.push(batch.bytes.len());
        });
        let bytes = batch.bytes.len();
        let mut at = 0;
        // Before anything is printed: the processes go on meanwhile.
        if self.program.watches_programs() {
            for end in &batch.ends {
                if let Some((pid, ns)) = self.controller.executed(&batch.bytes[at..*end]) {
                    self.watch_new(pid, ns);
                }
                at = *end;
            }
            at = 0;
        }
        if self.controller.deferred.is_some() {
            for end in &batch.ends {
                self.controller.read_deferred(&batch.bytes[at..*end]);
                at = *end;
            }
            at = 0;
        }
        for end in &batch.ends {
            self.controller.record(&batch.bytes[at..*end]);
            at = *end;
        }
        // Its memory is used again.
        batch.bytes.clear();
        batch.ends.clear();
        self.batch = batch;
        if self.controller.kernel_errors_seen() {
            self.count_kernel();
        }
        bytes
    }

    /// Prints everything that the kernel sent, at the end.
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
