//! The bytes of a file, mapped instead of read, so that only pages in use cost memory; and files that are
//! written as a whole.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use spile_cast::Cast;

/// A file mapped for reading.
pub(crate) struct MappedFile {
    start: NonNull<u8>,
    len: usize,
    /// Time of the last change in nanoseconds.
    changed: i128,
}

// SAFETY: the mapping is private and never written through.
unsafe impl Send for MappedFile {}
// SAFETY: see above.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// Maps a regular file that is not empty.
    pub(crate) fn open(path: &Path) -> io::Result<MappedFile> {
        // Opening a FIFO waits for its other end, and opening a device can have effects.
        if !path.metadata()?.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        let file = File::open(path)?;
        let meta = file.metadata()?;
        let len = usize::try_from(meta.len()).map_err(io::Error::other)?;
        if len == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "empty file"));
        }
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ,
                MapFlags::PRIVATE,
                &file,
                0,
            )?
        };
        let start = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        let changed = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
        Ok(MappedFile {
            start,
            len,
            changed,
        })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping lives as long as self and is not written.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// Releases the memory of the pages wholly inside a part of the mapping. Later accesses read
    /// them from the file again.
    fn release(&self, part: &[u8]) {
        let page = rustix::param::page_size();
        let base = self.start.as_ptr() as usize;
        let from = (part.as_ptr() as usize).next_multiple_of(page);
        let to = (part.as_ptr() as usize + part.len()) / page * page;
        if from >= to || from < base || to > base + self.len {
            return;
        }
        // SAFETY: whole pages inside the mapping; private and clean, so the file's bytes come
        // back on the next access.
        let _ = unsafe { madvise(from as *mut _, to - from, Advice::LinuxDontNeed) };
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: made by mmap with this length, unmapped once.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Writes a file so that others see all of it or nothing, whatever happens meanwhile.
pub(crate) fn write_whole(
    path: &Path,
    put: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let part = path.with_extension(format!("part{}", std::process::id()));
    let written = (|| {
        let mut file = BufWriter::new(File::create(&part)?);
        put(&mut file)?;
        file.into_inner()?;
        fs::rename(&part, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

/// Bytes that do not move while this value lives.
pub(crate) enum Blob {
    /// A mapped file.
    Map(MappedFile),
    /// Bytes in memory (decompressed).
    Heap(Vec<u8>),
}

impl Blob {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Blob::Map(m) => m.bytes(),
            Blob::Heap(v) => v,
        }
    }

    /// Size, and time of the last change: numbers that differ once a file was written anew.
    pub(crate) fn state(&self) -> [u64; 2] {
        match self {
            Blob::Map(m) => [m.len as u64, m.changed.low64()],
            Blob::Heap(v) => [v.len() as u64, 0],
        }
    }

    /// Releases the memory of a part that is not needed for now.
    pub(crate) fn release(&self, part: &[u8]) {
        if let Blob::Map(m) = self {
            m.release(part);
        }
    }

    /// The bytes without their lifetime.
    ///
    /// # Safety
    /// The slice must not be used after this value is dropped or changed.
    pub(crate) unsafe fn forever(&self) -> &'static [u8] {
        let bytes = self.bytes();
        // SAFETY: the caller promises; the bytes have a stable address.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) }
    }
}
