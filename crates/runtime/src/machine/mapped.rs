//! Files that this process maps so that the kernel checks locations in them.

use std::fs::File;
use std::os::fd::AsRawFd;

/// A file in the memory of this process. Nothing reads it there.
pub(crate) struct MappedFile {
    start: *mut libc::c_void,
    length: usize,
}

impl MappedFile {
    /// Maps a whole file; `None` if it cannot be mapped.
    pub(crate) fn of(file: &File) -> Option<MappedFile> {
        let length = usize::try_from(file.metadata().ok()?.len()).ok()?;
        // SAFETY: the kernel chooses a free address, and nothing reads the memory.
        let start = unsafe {
            let (read, private) = (libc::PROT_READ, libc::MAP_PRIVATE);
            libc::mmap(
                std::ptr::null_mut(),
                length,
                read,
                private,
                file.as_raw_fd(),
                0,
            )
        };
        (start != libc::MAP_FAILED).then_some(MappedFile { start, length })
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: the range is the one that was mapped, and nothing refers to it.
        unsafe { libc::munmap(self.start, self.length) };
    }
}
