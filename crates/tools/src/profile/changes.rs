//! Changes of regions, which the library in the program writes for time lines to rings next to its
//! counts (docs/profile-context.md has their layout).

use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::FallocateFlags;
use spile_cast::Cast;
use spile_profile::model::Ns;

use super::times::{CELL, CELLS, CHUNK, CountFolder, HEAD, word, words};

/// Number of chunks of a thread's ring.
const RING: usize = 16;
/// Offset of the ring's words in a thread's first chunk.
const WRITTEN: u64 = 32;
const TAKEN: u64 = 48;
/// Offset in a chunk of the word that names the next chunk.
const NEXT: u64 = 16;
/// Flags of a change, next to the region's number.
const ENTERED: u64 = 1 << 32;
const AFTER_LOST: u64 = 1 << 33;

/// A change of region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    /// The region's number, 0 for none.
    pub number: u32,
    /// The region was entered; otherwise the thread came back to it.
    pub entered: bool,
    /// Changes before it were lost because the ring was full.
    pub after_lost: bool,
    /// Time on the monotonic clock.
    pub time: Ns,
}

/// A thread's ring.
#[derive(Debug, Default)]
pub(super) struct ChangeRing {
    /// Number of changes taken.
    taken: u64,
    /// Number of changes lost because the ring was full.
    pub lost: u64,
    /// Indexes of the known chunks.
    chunks: Vec<u64>,
    /// The changes taken, as the library wrote them.
    raw: Vec<u8>,
}

impl ChangeRing {
    /// Takes the changes that the library wrote since the last time, without interpreting them: the
    /// program may need the processor. `file` and `location` are as in [`CountFolder::read`].
    ///
    /// # Errors
    /// When the file does not exist, or is not one of the library's.
    pub(super) fn take(
        &mut self,
        folder: &CountFolder,
        (file, location): (u64, u64),
    ) -> io::Result<()> {
        let wrong = || io::Error::from(io::ErrorKind::InvalidData);
        let file = folder.open(file, true)?;
        let head = location.checked_mul(CHUNK).ok_or_else(wrong)?;
        let [written, lost, _, first] = words(&file, head + WRITTEN)?;
        self.lost = lost;
        let count = written.checked_sub(self.taken).ok_or_else(wrong)?;
        if count > RING as u64 * CELLS {
            return Err(wrong());
        }
        while self.taken < written {
            let nth = (self.taken / CELLS) as usize % RING;
            while self.chunks.len() <= nth {
                let next = match self.chunks.last() {
                    None => first,
                    Some(last) => words::<1>(&file, last * CHUNK + NEXT)?[0],
                };
                let end = next.checked_mul(CHUNK).ok_or_else(wrong)?;
                end.checked_sub(CHUNK).ok_or_else(wrong)?;
                self.chunks.push(next - 1);
            }
            let from = self.taken % CELLS;
            let length = (CELLS - from).min(written - self.taken);
            let have = self.raw.len();
            self.raw.resize(have + (length * CELL).fit::<usize>(), 0);
            let offset = self.chunks[nth] * CHUNK + HEAD + from * CELL;
            if let Err(error) = file.read_exact_at(&mut self.raw[have..], offset) {
                self.raw.truncate(have);
                return Err(error);
            }
            self.taken += length;
        }
        file.write_all_at(&self.taken.to_le_bytes(), head + TAKEN)?;
        folder.clock.mark();
        Ok(())
    }

    /// Number of bytes taken and not yet interpreted.
    pub(super) fn bytes(&self) -> usize {
        self.raw.len()
    }

    /// The changes taken, up to the first whose region is not yet `known`.
    pub(super) fn changes(
        &mut self,
        folder: &CountFolder,
        mut known: impl FnMut(u32) -> bool,
    ) -> Vec<Change> {
        if self.raw.is_empty() {
            return Vec::new();
        }
        let line = folder.clock.line();
        let change = |cell: &[u8]| {
            let (bits, ticks) = (word(cell), word(&cell[8..]));
            Change {
                number: u32::from(bits.low16()),
                entered: bits & ENTERED != 0,
                after_lost: bits & AFTER_LOST != 0,
                time: line.monotonic_ns(ticks),
            }
        };
        let cells = self.raw.chunks_exact(CELL.fit::<usize>()).map(change);
        let out: Vec<Change> = cells
            .take_while(|c| c.number == 0 || known(c.number))
            .collect();
        self.raw.drain(..out.len() * CELL.fit::<usize>());
        if self.raw.is_empty() {
            // Frees the memory that many changes took.
            self.raw = Vec::new();
        }
        out
    }

    /// Frees the ring's memory after the thread has ended.
    pub(super) fn release(&self, folder: &CountFolder, file: u64) {
        let Ok(file) = folder.open(file, true) else {
            return;
        };
        for location in &self.chunks {
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Where the file system cannot punch holes, the memory is freed with the folder.
            let _ = rustix::fs::fallocate(&file, how, location * CHUNK, CHUNK);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    struct Library {
        folder: CountFolder,
        file: File,
        start: u64,
    }

    impl Library {
        /// A file with space for a first chunk and, from location 2 on, a ring.
        fn new() -> Library {
            let folder = CountFolder::new(true).expect("a folder");
            let file = File::create(folder.path_of(5)).expect("made");
            file.set_len((RING as u64 + 2) * CHUNK).expect("sparse");
            let start = folder.clock.start().unwrap_or_default().0;
            let library = Library {
                folder,
                file,
                start,
            };
            library.put(CHUNK + 56, 3);
            for location in 2..RING as u64 + 1 {
                library.put(location * CHUNK + NEXT, location + 2);
            }
            library
        }

        fn put(&self, at: u64, word: u64) {
            self.file
                .write_all_at(&word.to_le_bytes(), at)
                .expect("written");
        }

        fn change(&self, nth: u64, what: u64) {
            let at = (2 + nth / CELLS % RING as u64) * CHUNK + HEAD + nth % CELLS * CELL;
            self.put(at, what);
            self.put(at + 8, self.start + nth);
            self.put(CHUNK + WRITTEN, nth + 1);
        }
    }

    #[test]
    fn changes_are_taken_once_over_the_ring_s_end() {
        let library = Library::new();
        let mut ring = ChangeRing::default();
        let all = RING as u64 * CELLS;
        let mut found = 0;
        for nth in 0..all + 10 {
            library.change(nth, (nth % 7) | ((nth + 1) % 2 * ENTERED));
            if nth % 5000 == 4999 || nth == all + 9 {
                ring.take(&library.folder, (5, 1)).expect("there");
                let changes = ring.changes(&library.folder, |_| true);
                for change in changes {
                    assert_eq!(u64::from(change.number), found % 7);
                    assert_eq!(change.entered, found.is_multiple_of(2));
                    found += 1;
                }
                assert_eq!(found, nth + 1);
            }
        }
        library.put(CHUNK + WRITTEN + 8, 4);
        ring.take(&library.folder, (5, 1)).expect("there");
        assert_eq!(ring.bytes(), 0);
        assert_eq!(ring.lost, 4);
        ring.release(&library.folder, 5);
    }

    #[test]
    fn what_is_not_announced_yet_waits() {
        let library = Library::new();
        let mut ring = ChangeRing::default();
        for (nth, number) in [1, 2, 9, 0].into_iter().enumerate() {
            library.change(nth as u64, number);
        }
        let mut take = |known: fn(u32) -> bool| {
            ring.take(&library.folder, (5, 1)).expect("there");
            let changes = ring.changes(&library.folder, known);
            changes.iter().map(|c| c.number).collect::<Vec<_>>()
        };
        assert_eq!(take(|n| n < 9), [1, 2]);
        assert!(take(|n| n < 9).is_empty());
        assert_eq!(take(|_| true), [9, 0]);
    }

    #[test]
    fn damage_is_an_error() {
        let library = Library::new();
        let take = |location| ChangeRing::default().take(&library.folder, (5, location));
        library.put(CHUNK + WRITTEN, RING as u64 * CELLS + 1);
        assert!(take(1).is_err());
        library.put(CHUNK + WRITTEN, 1);
        for chunk in [0, u64::MAX, 1 << 60, 40] {
            library.put(CHUNK + 56, chunk);
            assert!(take(1).is_err(), "{chunk}");
        }
        for location in [u64::MAX, 1 << 60, 40] {
            assert!(take(location).is_err(), "{location}");
        }
    }
}
