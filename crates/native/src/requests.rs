//! Requests of threads that wait for an answer.

use std::io;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex;
use rustix::time::Timespec;
use spile_layout::ThreadRecord;

use crate::memory::MappedImage;

/// The requests in the records of an image: a thread is about to execute another program, or has mapped code.
pub struct Requests {
    memory: Arc<MappedImage>,
    /// Offsets of the records. The last one counts requests.
    records: Vec<usize>,
}

/// Offset of a record's request, and of the number of requests in the next half of that word.
const REQUEST: usize = offset_of!(ThreadRecord, request);
const _: () = assert!(offset_of!(ThreadRecord, requests) == REQUEST + 4);

/// A thread that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Number of its record.
    pub record: usize,
    /// Its number.
    pub thread: u32,
    /// Whether it has mapped code. Otherwise it is about to execute another program.
    pub has_mapped: bool,
}

impl Requests {
    pub(crate) fn new(memory: Arc<MappedImage>, records: Vec<usize>) -> Requests {
        Requests { memory, records }
    }

    fn word(&self, record: usize) -> Option<&AtomicU32> {
        self.memory.half(self.records.get(record)? + REQUEST)
    }

    fn count(&self) -> Option<&AtomicU32> {
        self.memory.upper_half(self.records.last()? + REQUEST)
    }

    /// The number of requests so far. Threads that have requests wait again, if they did not.
    #[must_use]
    pub fn seen(&self) -> u32 {
        let there = !ThreadRecord::UNANSWERED;
        let before = self
            .count()
            .map_or(0, |count| count.fetch_and(there, Ordering::AcqRel));
        before & there
    }

    /// Waits until there are others than `seen`.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn wait(&self, seen: u32, timeout: Duration) -> io::Result<()> {
        use rustix::io::Errno;
        let Some(count) = self.count() else {
            return Ok(());
        };
        let timeout = Timespec::try_from(timeout).map_err(|_| io::ErrorKind::InvalidInput)?;
        match futex::wait(count, futex::Flags::empty(), seen, Some(&timeout)) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Ends a [`Requests::wait`], without a request.
    pub fn interrupt(&self) {
        if let Some(count) = self.count() {
            count.fetch_add(1, Ordering::Release);
            // Nobody may wait.
            let _ = futex::wake(count, futex::Flags::empty(), u32::MAX);
        }
    }

    /// The requests.
    pub fn waiting(&self) -> impl Iterator<Item = Request> + '_ {
        let records = 0..self.records.len();
        records.filter_map(|record| {
            let word = self.word(record)?.load(Ordering::Acquire);
            (word != 0).then_some(Request {
                record,
                thread: word & !ThreadRecord::MAPPED,
                has_mapped: word & ThreadRecord::MAPPED != 0,
            })
        })
    }

    /// Lets the thread of a record go on. False if it did not wait so long.
    pub fn release(&self, record: usize) -> bool {
        let Some(word) = self.word(record) else {
            return false;
        };
        let waited = word.swap(0, Ordering::AcqRel) != 0;
        // Nobody may wait.
        let _ = futex::wake(word, futex::Flags::empty(), u32::MAX);
        waited
    }
}
