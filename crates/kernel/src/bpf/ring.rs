//! The reader of a ring buffer (`BPF_MAP_TYPE_RINGBUF`): records of programs on all processors, in
//! the order in which they were reserved.
//!
//! The kernel's pages come in this order: one with the consumer position, which we write; one with
//! the producer position; the data, mapped twice in a row, so that a record that wraps around the
//! end is contiguous. A record is a length word, a word that is the kernel's own, and the bytes,
//! padded to 8.
//!
//! Source of facts: `kernel/bpf/ringbuf.c`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use spile_cast::Cast;

use crate::mapping::{MapAccess, MappedPages};

/// Set in a record's length until its writer submits it.
const BUSY: u32 = 1 << 31;
/// Set in the length of a record that its writer discarded.
const DISCARDED: u32 = 1 << 30;
/// Length of a record's header in bytes.
const HEADER: u64 = 8;

/// A mapped ring buffer. Its descriptor can be polled: it is readable while there are records.
pub struct Ring {
    map: OwnedFd,
    /// The page with the consumer position.
    reader: MappedPages,
    /// The page with the producer position, and the data twice.
    writers: MappedPages,
    page: usize,
    /// Size of the buffer in bytes, a power of two.
    size: u64,
}

impl Ring {
    /// Maps the ring buffer of `size` bytes behind a descriptor.
    ///
    /// # Errors
    /// Those of `mmap`; `InvalidInput` if the kernel does not allow that size for ring buffers.
    pub fn new(map: OwnedFd, size: u32) -> io::Result<Ring> {
        let page = rustix::param::page_size();
        let bytes = size as usize;
        if !size.is_power_of_two() || !bytes.is_multiple_of(page) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let reader = MappedPages::new(&map, 0, page, MapAccess::Write)?;
        let writers = MappedPages::new(&map, page as u64, page + 2 * bytes, MapAccess::Read)?;
        Ok(Ring {
            map,
            reader,
            writers,
            page,
            size: u64::from(size),
        })
    }

    /// Passes at most `most` records to a function; returns their number. An unfinished record
    /// holds up those after it.
    pub fn consume(&mut self, most: usize, mut each: impl FnMut(&[u8])) -> usize {
        let (reader, writers) = (position(&self.reader), position(&self.writers));
        let mut position = reader.load(Ordering::Relaxed);
        let mut end = acquire(writers);
        let mut count = 0;
        let mut told = false;
        while count < most {
            let Some(record) = self.record(position, end) else {
                if told {
                    break;
                }
                // A writer wakes us only where it sees that all before its record was read. So it
                // sees our position, or we see its record now.
                fence(Ordering::SeqCst);
                told = true;
                end = acquire(writers);
                continue;
            };
            if let RingEntry::Bytes(bytes) = record {
                each(bytes);
                count += 1;
            }
            position += HEADER + record.len().next_multiple_of(8);
            // From here on a writer can reuse its space.
            reader.store(position, Ordering::Release);
            told = false;
        }
        count
    }

    /// The record at a position; `None` at the end, and while its writer has not finished.
    fn record(&self, position: u64, end: u64) -> Option<RingEntry<'_>> {
        if position >= end {
            return None;
        }
        let offset = self.page + (position & (self.size - 1)).fit::<usize>();
        // SAFETY: an offset below `size` into the data, which are mapped twice from `page` on;
        // positions are multiples of 8. Kernel and reader use the word as an atomic one.
        let word = unsafe { AtomicU32::from_ptr(self.writers.start().add(offset).as_ptr().cast()) };
        let word = word.load(Ordering::Relaxed);
        // With the kernel's exchange: whoever sees the record complete sees its bytes.
        fence(Ordering::Acquire);
        let len = u64::from(word & !(BUSY | DISCARDED));
        // The second condition holds for everything that the kernel writes.
        if word & BUSY != 0 || HEADER + len.next_multiple_of(8) > (end - position).min(self.size) {
            return None;
        }
        if word & DISCARDED != 0 {
            return Some(RingEntry::Discarded(len));
        }
        // SAFETY: offset and length are each below `size`, and the data are mapped twice. A
        // complete record is not written until the reader's position is behind it, and that is
        // moved only after the borrow ends.
        let bytes = unsafe {
            let first = self.writers.start().add(offset + HEADER.fit::<usize>());
            std::slice::from_raw_parts(first.as_ptr(), len.fit::<usize>())
        };
        Some(RingEntry::Bytes(bytes))
    }
}

/// Loads a position that we cannot write with what was written before it. Of memory that is only
/// read, Rust defines relaxed loads alone; the fence does what an acquiring load would.
fn acquire(position: &AtomicU64) -> u64 {
    let value = position.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    value
}

/// The position in the first word of mapped memory.
fn position(pages: &MappedPages) -> &AtomicU64 {
    // SAFETY: the mapping is at least a page long, and lives as long as the reference. Kernel and reader use the
    // word as an atomic one; what is not writable is only loaded here.
    unsafe { AtomicU64::from_ptr(pages.start().as_ptr().cast()) }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

enum RingEntry<'r> {
    Bytes(&'r [u8]),
    /// A discarded record, with its length in bytes.
    Discarded(u64),
}

impl RingEntry<'_> {
    fn len(&self) -> u64 {
        match self {
            RingEntry::Bytes(bytes) => bytes.len() as u64,
            RingEntry::Discarded(len) => *len,
        }
    }
}
