//! Files that are generated when they are opened. A lease on a file (`F_SETLEASE`, see `fcntl(2)`)
//! makes the kernel block an opener and notify the owner, until the owner releases the lease.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::machine::signals::receive;

/// `struct f_owner_ex`: the receiver of notifications.
#[repr(C)]
struct SignalReceiver {
    kind: libc::c_int,
    id: libc::pid_t,
}

/// `F_SETOWN_EX`, with one thread as the owner.
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// A descriptor that becomes readable when somebody opens a file leased by this thread. The signal
/// stays blocked in the thread: its default action would end the process.
pub(super) fn notifications() -> io::Result<OwnedFd> {
    receive([libc::SIGIO]).map(|(fd, _)| fd)
}

/// Acknowledges the notifications.
pub(super) fn acknowledge(news: &OwnedFd) {
    let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
    while rustix::io::read(news, &mut info).is_ok_and(|n| n > 0) {}
}

/// Takes the lease of a file that nobody else has open, for this thread.
///
/// # Errors
/// The file is open elsewhere, or the file system has no leases.
pub(super) fn take(file: &OwnedFd) -> io::Result<()> {
    let owner = SignalReceiver {
        kind: F_OWNER_TID,
        id: rustix::thread::gettid().as_raw_nonzero().get(),
    };
    let fd = file.as_raw_fd();
    // SAFETY: the first call reads the structure, which lives; the second takes numbers.
    unsafe {
        check(libc::fcntl(fd, F_SETOWN_EX, &raw const owner))?;
        check(libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK))
    }
}

/// Whether somebody waits for the file, or waited until the kernel broke the lease.
pub(super) fn is_wanted(file: &OwnedFd) -> bool {
    // SAFETY: the call takes numbers.
    let lease = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) };
    lease != libc::F_WRLCK
}
