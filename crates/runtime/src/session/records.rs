//! Records of the ring buffer: when they are taken, and that they are printed.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::{Session, system};
use crate::error::Error;
use crate::events::Source;

/// Records taken from the ring buffer before anything else has its turn.
const ROUND: usize = 16_384;
/// How long the kernel wakes nobody for new records after some were taken. A session that was woken for each
/// would take the processor from what it watches, and each time make events of its own.
const REST: Duration = Duration::from_millis(5);
/// A round that takes fewer bytes is followed by a rest.
const LITTLE: usize = 64 << 10;

impl Session {
    /// Prints what the kernel sent, and rests if that was little.
    pub(super) fn consume_and_rest(&mut self) -> Result<(), Error> {
        if self.rest.take().is_some() {
            self.wake_for_records(true)?;
        }
        let bytes = self.consume();
        // What the controller reads in processes may be gone soon.
        let urgent = self.program.watches_programs() || self.controller.deferred.is_some();
        if !urgent && (1..LITTLE).contains(&bytes) {
            self.wake_for_records(false)?;
            self.rest = Some(Instant::now() + REST);
        }
        Ok(())
    }

    /// Whether new records wake the event loop.
    fn wake_for_records(&mut self, wake: bool) -> Result<(), Error> {
        let Some(ring) = &self.ring else {
            return Ok(());
        };
        // SAFETY: the descriptor belongs to `ring`, which lives as long as this use.
        let fd = unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) };
        let changed = self.events.listen(fd, Source::Ring, wake);
        changed.map_err(system("waiting for events"))
    }

    /// Prints what the kernel sent so far; how many bytes that was.
    pub(super) fn consume(&mut self) -> usize {
        let Some(ring) = &self.ring else { return 0 };
        // A buffer that fills as fast as it is emptied must not keep signals from being seen.
        let got = ring.consume_raw_n(ROUND);
        if got <= 0 {
            return 0;
        }
        let batch = self.batch.take();
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
        let mut empty = batch;
        empty.bytes.clear();
        empty.ends.clear();
        self.batch.replace(empty);
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
