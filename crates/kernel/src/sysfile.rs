//! Bytes of a system file: mapped where the kernel allows it, else owned.

use std::fs::File;
use std::io::Read;
use std::ops::Deref;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Read-only bytes, mapped or owned.
pub(crate) enum Blob {
    Owned(Vec<u8>),
    Mapped(Mapping),
}

impl Blob {
    /// Maps `len` bytes of a file; `None` where its file system cannot map it.
    pub(crate) fn map(file: &File, len: usize) -> Option<Blob> {
        if len == 0 {
            return None;
        }
        // SAFETY: no address is asked for, so no memory in use is replaced. The
        // mapping is private and read-only; see `Mapping` for its lifetime.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ,
                MapFlags::PRIVATE,
                file,
                0,
            )
        };
        let start = NonNull::new(start.ok()?.cast())?;
        Some(Blob::Mapped(Mapping { start, len }))
    }
}

impl From<Vec<u8>> for Blob {
    fn from(bytes: Vec<u8>) -> Blob {
        Blob::Owned(bytes)
    }
}

impl Deref for Blob {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Blob::Owned(bytes) => bytes,
            // SAFETY: the mapping has `len` readable bytes until it is dropped,
            // and nobody writes them: the kernel's BTF never changes.
            Blob::Mapped(m) => unsafe { std::slice::from_raw_parts(m.start.as_ptr(), m.len) },
        }
    }
}

/// A mapping of our own, unmapped when dropped.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is read-only and owned by this value alone.
unsafe impl Send for Mapping {}
// SAFETY: see above; shared reads of memory that never changes.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `start` and `len` are what `mmap` gave; no slice outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Reads a file of `/proc` or `/sys` whole, in large pieces: such files report no size, and each
/// read costs the kernel some work.
pub(crate) fn read_fully(path: &str) -> std::io::Result<Vec<u8>> {
    read_whole(File::open(path)?)
}

/// Reads an open file whole, in large pieces.
pub(crate) fn read_whole(mut file: File) -> std::io::Result<Vec<u8>> {
    const PIECE: usize = 1 << 20;
    let mut bytes = Vec::new();
    let mut len = 0;
    loop {
        if bytes.len() - len < PIECE / 4 {
            bytes.resize(bytes.len() + PIECE, 0);
        }
        match file.read(&mut bytes[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(len);
    bytes.shrink_to_fit();
    Ok(bytes)
}
