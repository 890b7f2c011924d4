//! `union bpf_attr` as words at offsets, and the system call itself.

use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use spile_cast::Cast;

use super::error::{BpfError, Command};

const LEN: usize = 160;

/// A `union bpf_attr`: zero except for the fields that are set. The kernel accepts a longer one
/// than it knows, as long as the unknown part is zero.
///
/// It borrows all memory that it points to for `'a`.
#[repr(C, align(8))]
pub(super) struct Attr<'a> {
    bytes: [u8; LEN],
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> Attr<'a> {
    pub(super) fn new() -> Attr<'a> {
        Attr {
            bytes: [0; LEN],
            memory: PhantomData,
        }
    }

    pub(super) fn u32(mut self, offset: usize, value: u32) -> Self {
        self.bytes[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    pub(super) fn u64(mut self, offset: usize, value: u64) -> Self {
        self.bytes[offset..offset + 8].copy_from_slice(&value.to_ne_bytes());
        self
    }

    pub(super) fn fd(self, offset: usize, fd: BorrowedFd<'a>) -> Self {
        self.u32(offset, fd.as_raw_fd().cast_unsigned())
    }

    /// A pointer to memory that the kernel reads.
    pub(super) fn input<T>(self, offset: usize, memory: &'a [T]) -> Self {
        self.u64(offset, memory.as_ptr() as u64)
    }

    /// A pointer to memory that the kernel writes.
    pub(super) fn output<T>(self, offset: usize, memory: &'a mut [T]) -> Self {
        self.u64(offset, memory.as_mut_ptr() as u64)
    }

    /// A name of up to 15 bytes; characters that the kernel forbids become `_`.
    pub(super) fn name(mut self, offset: usize, name: &str) -> Self {
        for (slot, c) in self.bytes[offset..offset + 15].iter_mut().zip(name.bytes()) {
            *slot = if c.is_ascii_alphanumeric() || c == b'.' {
                c
            } else {
                b'_'
            };
        }
        self
    }

    pub(super) fn get(&self, offset: usize) -> u32 {
        self.bytes[offset..]
            .first_chunk()
            .map_or(0, |b| u32::from_ne_bytes(*b))
    }

    /// Issues the command.
    ///
    /// # Safety
    /// The lengths that the kernel takes for the memory set with [`Attr::input`]
    /// and [`Attr::output`] must not be above those of the slices.
    pub(super) unsafe fn call(&mut self, command: Command) -> Result<i32, BpfError> {
        /// Enough for signals; a kernel that always refuses must not hang us.
        const TRIES: u32 = 16;
        let mut tries = 0;
        loop {
            tries += 1;
            // SAFETY: `bytes` is valid for LEN bytes; what it points to is borrowed
            // for as long as `self`, and long enough by the caller's promise.
            let ret = unsafe {
                libc::syscall(libc::SYS_bpf, command as u32, self.bytes.as_mut_ptr(), LEN)
            };
            if ret >= 0 {
                return Ok(ret.fit::<i32>());
            }
            let errno = last_errno();
            // The verifier gives up with EAGAIN when a signal is pending.
            let again = command == Command::ProgLoad && errno == Errno::AGAIN;
            if tries == TRIES || (errno != Errno::INTR && !again) {
                return Err(BpfError::Call { command, errno });
            }
        }
    }

    /// Like [`Attr::call`], for commands that return a descriptor.
    ///
    /// # Safety
    /// As for [`Attr::call`]; the command must return a new descriptor.
    pub(super) unsafe fn open(&mut self, command: Command) -> Result<OwnedFd, BpfError> {
        // SAFETY: the caller's promise; a returned descriptor is ours.
        unsafe { self.call(command).map(|fd| OwnedFd::from_raw_fd(fd)) }
    }
}

/// The error number that the C library left in `errno`.
pub(crate) fn last_errno() -> Errno {
    let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    Errno::from_raw_os_error(code)
}
