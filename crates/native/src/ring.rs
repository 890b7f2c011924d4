//! The reader of a ring: records of threads in all processes, in the order in which they were claimed.
//!
//! How the ring works is in [`spile_lir::library::host`]. The reader has its own position, and believes no length that
//! passes the end of the ring.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::thread::futex;
use rustix::time::Timespec;
use spile_cast::Cast;
use spile_lir::library::host::ring_words as is;

use crate::memory::MappedImage;

/// Bytes of a header.
const HEADER: usize = 8;

/// Where a ring lies, as offsets of the image, and its reader's position.
#[derive(Debug, Clone)]
pub(crate) struct Space {
    pub(crate) words: usize,
    pub(crate) data: usize,
    /// A power of two.
    pub(crate) bytes: usize,
    pub(crate) position: Arc<AtomicU64>,
}

/// The reader of a ring.
pub struct SharedRing {
    memory: Arc<MappedImage>,
    is: Space,
    /// The bytes of the last record: other processes can write the ring's.
    record: Vec<u8>,
}

/// What is at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// Nothing.
    Free,
    /// A record of this thread that is not complete, and its space.
    Busy(u32, usize),
    /// A record, and its space.
    Record(usize, usize),
    /// Space without a record.
    Discarded(usize),
    /// What no writer of the library leaves.
    Damaged,
}

impl SharedRing {
    pub(crate) fn new(memory: Arc<MappedImage>, is: Space) -> SharedRing {
        SharedRing {
            memory,
            is,
            record: Vec::new(),
        }
    }

    /// A word of the ring. All places of it are within the image.
    fn own(&self, word: i16) -> Option<&AtomicU64> {
        self.memory
            .word(self.is.words + usize::from(word.unsigned_abs()))
    }

    /// Offset in the data.
    fn offset(&self, position: u64) -> usize {
        usize::try_from(position & (self.is.bytes as u64 - 8)).unwrap_or_default()
    }

    fn header(&self, position: u64) -> Option<&AtomicU64> {
        self.memory.word(self.is.data + self.offset(position))
    }

    /// The free word of the lap after that of a position.
    fn free_word(&self, position: u64) -> u64 {
        ((position >> self.is.bytes.ilog2()) + 1) << 32
    }

    fn entry(&self, position: u64) -> Entry {
        let Some(header) = self.header(position) else {
            return Entry::Damaged;
        };
        let header = header.load(Ordering::SeqCst);
        let [lower, thread] = [header, header >> 32].map(Cast::low32);
        let length = (lower & (is::DISCARDED - 1)) as usize;
        let space = HEADER + length.next_multiple_of(8);
        match lower {
            0 => Entry::Free,
            _ if space > self.is.bytes - self.offset(position) => Entry::Damaged,
            _ if lower & is::BUSY != 0 => Entry::Busy(thread, space),
            _ if lower & is::DISCARDED != 0 => Entry::Discarded(space),
            _ => Entry::Record(length, space),
        }
    }

    /// Passes at most `most` records to a function, and not more than the ring has space for; returns their number. An
    /// unfinished record holds up those behind it.
    pub fn consume(&mut self, most: usize, mut each: impl FnMut(&[u8])) -> usize {
        let (mut count, mut left) = (0, self.is.bytes);
        while count < most {
            let position = self.is.position.load(Ordering::Relaxed);
            let (length, space) = match self.entry(position) {
                Entry::Record(length, space) => (Some(length), space),
                Entry::Discarded(space) => (None, space),
                Entry::Free | Entry::Busy(..) | Entry::Damaged => break,
            };
            if space > left {
                break;
            }
            left -= space;
            if let Some(length) = length {
                let at = self.is.data + self.offset(position) + HEADER;
                self.record = self.memory.read(at, length).unwrap_or_default();
                each(&self.record);
                count += 1;
            }
            self.give_back(position, space);
        }
        count
    }

    /// Gives the space at the reader's position to the writers.
    fn give_back(&self, position: u64, space: usize) {
        let end = position.wrapping_add(space as u64);
        self.pass(position, end);
        let free = self.free_word(position);
        for at in (position..end).step_by(8) {
            if let Some(word) = self.header(at) {
                word.store(free, Ordering::Relaxed);
            }
        }
        self.is.position.store(end, Ordering::Relaxed);
        if let Some(consumer) = self.own(is::CONSUMER) {
            consumer.store(end, Ordering::Release);
        }
    }

    /// Moves the producer's position behind a record, if its writer has not done so.
    fn pass(&self, position: u64, end: u64) {
        if let Some(producer) = self.own(is::PRODUCER) {
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            let _ = producer.compare_exchange(position, end, order.0, order.1);
        }
    }

    /// Whether the memory has something that no writer leaves there. Nothing can be read behind it.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.entry(self.is.position.load(Ordering::Relaxed)) == Entry::Damaged
    }

    /// Whether a record can be taken.
    fn is_ready(&self) -> bool {
        let entry = self.entry(self.is.position.load(Ordering::Relaxed));
        matches!(entry, Entry::Record(..) | Entry::Discarded(_))
    }

    /// Waits for a record; whether there is one.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let reader = self.is.words + usize::from(is::READER.unsigned_abs());
        let (Some(word), Some(half)) = (self.memory.word(reader), self.memory.half(reader)) else {
            return Ok(false);
        };
        // Either a writer sees this, or we see its record.
        word.swap(1, Ordering::SeqCst);
        if !self.is_ready() {
            let timeout = Timespec::try_from(timeout).map_err(|_| io::ErrorKind::InvalidInput)?;
            let waited = futex::wait(half, futex::Flags::empty(), 1, Some(&timeout));
            use rustix::io::Errno;
            match waited {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
                Err(e) => return Err(e.into()),
            }
        }
        word.store(0, Ordering::Relaxed);
        Ok(self.is_ready())
    }

    /// Discards the unfinished records of threads that died; returns how many there were.
    pub(crate) fn recover_dead(&self, alive: impl Fn(u32) -> bool) -> usize {
        let mut position = self.is.position.load(Ordering::Relaxed);
        let end = position.wrapping_add(self.is.bytes as u64);
        let mut count = 0;
        while position != end {
            let space = match self.entry(position) {
                Entry::Busy(thread, space) => {
                    if !alive(thread) {
                        count += usize::from(self.discard(position, space));
                    }
                    space
                }
                Entry::Record(_, space) | Entry::Discarded(space) => space,
                Entry::Free | Entry::Damaged => break,
            };
            if end.wrapping_sub(position) < space as u64 {
                break;
            }
            position = position.wrapping_add(space as u64);
        }
        count
    }

    /// Makes an unfinished record one that is discarded.
    fn discard(&self, position: u64, space: usize) -> bool {
        let Some(header) = self.header(position) else {
            return false;
        };
        self.pass(position, position.wrapping_add(space as u64));
        let was = header.load(Ordering::Relaxed);
        let discarded = (space - HEADER) as u64 | u64::from(is::DISCARDED);
        let order = (Ordering::Release, Ordering::Relaxed);
        header
            .compare_exchange(was, discarded, order.0, order.1)
            .is_ok()
    }
}
