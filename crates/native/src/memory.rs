//! The areas of an image, and an image that is mapped here. Hostile processes write it at any time, so that it is words
//! that are read and written as atomics, with checked places.

use std::ffi::c_void;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use spile_layout::ThreadRecord;

/// What a process may do with an area. All but `Write` is mapped privately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// Read and execute.
    Execute,
    /// Read.
    Read,
    /// Read and write, shared.
    Write,
}

/// A part of the file, in whole pages. Its offset in the file is that in memory, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// Offset of the first byte.
    pub offset: usize,
    /// Bytes.
    pub bytes: usize,
    /// What processes may do with it.
    pub protection: Protection,
}

/// An image that is mapped in this process.
pub(crate) struct MappedImage {
    start: NonNull<u8>,
    bytes: usize,
    /// Where the memory that can be written begins.
    shared: usize,
}

// SAFETY: the mapping is owned by this value alone, and is accessed through atomics only.
unsafe impl Send for MappedImage {}
// SAFETY: see above.
unsafe impl Sync for MappedImage {}

/// What a process may do with an area.
fn protection(of: Protection) -> (ProtFlags, MapFlags) {
    match of {
        Protection::Execute => (ProtFlags::READ | ProtFlags::EXEC, MapFlags::PRIVATE),
        Protection::Read => (ProtFlags::READ, MapFlags::PRIVATE),
        Protection::Write => (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED),
    }
}

impl MappedImage {
    /// Maps the areas of an image, one behind the other.
    pub(crate) fn new(file: BorrowedFd<'_>, areas: &[Area; 3]) -> io::Result<MappedImage> {
        let bytes = areas.iter().map(|area| area.bytes).sum();
        let none = ProtFlags::empty();
        // SAFETY: the kernel chooses the address.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, none, MapFlags::PRIVATE) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::Other)?;
        let [.., shared] = areas;
        let image = MappedImage {
            start,
            bytes,
            shared: shared.offset,
        };
        for area in areas {
            let (access, flags) = protection(area.protection);
            let flags = flags | MapFlags::FIXED;
            // SAFETY: the area is a part of the reservation, which nobody uses yet.
            unsafe {
                let at: *mut c_void = start.as_ptr().add(area.offset).cast();
                mmap(at, area.bytes, access, flags, file, area.offset as u64)?;
            }
        }
        Ok(image)
    }

    /// The address of the first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The word at an offset, if it can be written and is aligned.
    pub(crate) fn word(&self, at: usize) -> Option<&AtomicU64> {
        let fits = at >= self.shared && at.is_multiple_of(8) && at.checked_add(8)? <= self.bytes;
        // SAFETY: the word is within the mapping, aligned, and accessed as an atomic one only.
        fits.then(|| unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) })
    }

    /// The lower half of the word at an offset.
    pub(crate) fn half(&self, at: usize) -> Option<&AtomicU32> {
        let word = self.word(at)?;
        // SAFETY: the word is valid as long as self, and processors with other orders of bytes have no images.
        Some(unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) })
    }

    /// The upper half of the word at an offset.
    pub(crate) fn upper_half(&self, at: usize) -> Option<&AtomicU32> {
        let word = self.word(at)?;
        // SAFETY: as above; the half is within the word.
        Some(unsafe { AtomicU32::from_ptr(word.as_ptr().cast::<u32>().add(1)) })
    }

    /// Bytes from an offset that is a multiple of 8.
    pub(crate) fn read(&self, at: usize, bytes: usize) -> Option<Vec<u8>> {
        let mut all = Vec::with_capacity(bytes.next_multiple_of(8));
        for offset in (0..bytes).step_by(8) {
            let word = self.word(at.checked_add(offset)?)?;
            all.extend(word.load(Ordering::Relaxed).to_ne_bytes());
        }
        all.truncate(bytes);
        Some(all)
    }

    /// Writes bytes from an offset that is a multiple of 8, and zeros up to the next multiple of 8.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) -> Option<()> {
        for (offset, chunk) in (0..).step_by(8).zip(bytes.chunks(8)) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let to = self.word(at.checked_add(offset)?)?;
            to.store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
        Some(())
    }
}

/// The bytes of a thread's record.
const RECORD: usize = size_of::<ThreadRecord>();

impl MappedImage {
    /// A thread's record.
    pub(crate) fn record(&self, at: usize) -> Option<ThreadRecord> {
        let bytes: [u8; RECORD] = self.read(at, RECORD)?.try_into().ok()?;
        // SAFETY: a record consists of numbers, which have any bits.
        Some(unsafe { std::mem::transmute::<[u8; RECORD], ThreadRecord>(bytes) })
    }

    /// Writes a thread's record.
    pub(crate) fn set_record(&self, at: usize, record: &ThreadRecord) -> Option<()> {
        // SAFETY: the numbers of a record fill all of its bytes.
        let bytes = unsafe { std::mem::transmute::<ThreadRecord, [u8; RECORD]>(*record) };
        self.write(at, &bytes)
    }
}

impl Drop for MappedImage {
    fn drop(&mut self) {
        // SAFETY: address and length are what `mmap` gave, and no reference outlives self.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
