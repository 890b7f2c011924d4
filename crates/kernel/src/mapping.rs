//! Memory that is mapped from a descriptor.

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// How memory is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapAccess {
    /// Read only, and private to this process.
    Private,
    /// Read only, shared with those who write it.
    Read,
    /// Read and written, shared.
    Write,
}

/// Mapped memory, unmapped when dropped. It gives out its address only: who reads it knows who else writes it.
#[derive(Debug)]
pub struct MappedPages {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is owned by this value alone, and its address can be used from any thread.
unsafe impl Send for MappedPages {}
// SAFETY: see above; a shared reference gives out the address only.
unsafe impl Sync for MappedPages {}

impl MappedPages {
    /// Maps a number of bytes from an offset on, which is a multiple of the page size.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn new(fd: impl AsFd, from: u64, bytes: usize, access: MapAccess) -> io::Result<Self> {
        let (prot, flags) = match access {
            MapAccess::Private => (ProtFlags::READ, MapFlags::PRIVATE),
            MapAccess::Read => (ProtFlags::READ, MapFlags::SHARED),
            MapAccess::Write => (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED),
        };
        // SAFETY: no address is asked for, so no memory in use is replaced.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, prot, flags, fd, from) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::Other)?;
        Ok(MappedPages { start, bytes })
    }

    /// The first byte, valid as long as this value.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Number of bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for MappedPages {
    fn drop(&mut self) {
        // SAFETY: address and length are what `mmap` gave, and no reference outlives self.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
