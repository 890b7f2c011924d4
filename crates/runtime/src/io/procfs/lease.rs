//! Files that are made when somebody opens them: a lease on a file has the kernel hold whoever opens
//! it, and tell its owner, until that gives the lease back (`F_SETLEASE`, see `fcntl(2)`).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `struct f_owner_ex`: whom the kernel tells.
#[repr(C)]
struct Owner {
    kind: libc::c_int,
    id: libc::pid_t,
}

/// `F_SETOWN_EX`, and one thread as the owner.
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

fn done(result: libc::c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// What becomes readable when somebody opens a file whose lease this thread has. The signal stays
/// blocked in it: by default it would end the process.
pub fn news() -> io::Result<OwnedFd> {
    // SAFETY: a signal set is plain data that the calls fill; the descriptor is new and nobody
    // else's.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGIO);
        if libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        done(fd)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Takes note of them.
pub fn heard(news: &OwnedFd) {
    let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
    while rustix::io::read(news, &mut info).is_ok_and(|n| n > 0) {}
}

/// Takes the lease of a file that nobody else has open, for this thread.
///
/// # Errors
/// Somebody has it open, or the file system has no leases.
pub fn take(file: &OwnedFd) -> io::Result<()> {
    let owner = Owner {
        kind: F_OWNER_TID,
        id: rustix::thread::gettid().as_raw_nonzero().get(),
    };
    let fd = file.as_raw_fd();
    // SAFETY: the first call reads the structure, which lives; the second takes numbers.
    unsafe {
        done(libc::fcntl(fd, F_SETOWN_EX, &raw const owner))?;
        done(libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK))
    }
}

/// Whether somebody waits for the file, or waited until the kernel took the lease away.
pub fn wanted(file: &OwnedFd) -> bool {
    // SAFETY: the call takes numbers.
    let lease = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) };
    lease != libc::F_WRLCK
}
