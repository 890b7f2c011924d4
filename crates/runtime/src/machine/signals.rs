//! The signals that a session handles, as events.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// The signals that a session handles.
const SIGNALS: [libc::c_int; 7] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGCHLD,
    libc::SIGWINCH,
    libc::SIGUSR2,
];

/// Whether a signal is ignored, as SIGHUP is under `nohup`.
fn ignored(signal: libc::c_int) -> bool {
    // SAFETY: the structure is plain data that the call fills; nothing is changed.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// The signals that a session receives as events; blocked while this value lives.
pub struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
    /// Signals that were read but not handled yet.
    pending: RefCell<VecDeque<Signal>>,
    /// The time of the first request to end, and whether there was a second one.
    end: Cell<Option<(Instant, bool)>>,
}

/// Two signals within this time are one request: `timeout` sends one to the process and one to its
/// group.
pub const SAME_WISH: Duration = Duration::from_millis(100);

/// Blocks signals in this thread, and receives them by a descriptor, which does not block; returns the signals
/// that were blocked before, too.
pub(crate) fn receive(
    signals: impl IntoIterator<Item = libc::c_int>,
) -> io::Result<(OwnedFd, libc::sigset_t)> {
    // SAFETY: a signal set is plain data that the calls fill, and both sets are alive; the descriptor is new and
    // owned by nobody else.
    unsafe {
        let (mut set, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, signal);
        }
        if libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) != 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            let e = io::Error::last_os_error();
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
            return Err(e);
        }
        Ok((OwnedFd::from_raw_fd(fd), before))
    }
}

/// A signal that a session handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// A request to end the session.
    End,
    /// A child ended.
    Child,
    /// The terminal's size changed.
    Size,
    /// A request to end the session, by Ctrl-\ of the terminal; a client leaves the session instead.
    Leave,
    /// A request to continue the output in another file.
    NextFile,
}

impl Signals {
    /// Blocks the signals in this thread, and receives them as events from now on.
    pub fn new() -> io::Result<Signals> {
        let handled = |signal: &libc::c_int| *signal != libc::SIGHUP || !ignored(*signal);
        let (fd, before) = receive(SIGNALS.into_iter().filter(handled))?;
        Ok(Signals {
            fd,
            before,
            pending: RefCell::default(),
            end: Cell::default(),
        })
    }

    /// Reads pending signals, and saves them for [`Signals::next`]. Returns whether there were any.
    pub fn poll(&self) -> bool {
        let mut any = false;
        while let Some(signal) = self.read() {
            any = true;
            self.pending.borrow_mut().push_back(signal);
        }
        any
    }

    /// Whether there are signals that were read but not handled.
    pub fn has_pending(&self) -> bool {
        !self.pending.borrow().is_empty()
    }

    /// Whether there was a request to end the session.
    pub fn end_requested(&self) -> bool {
        self.end.get().is_some()
    }

    /// Notes a request to end the session that is no signal.
    pub fn request_end(&self) {
        if self.end.get().is_none() {
            self.end.set(Some((Instant::now(), false)));
        }
    }

    /// Whether there was a second request to end the session.
    pub fn end_requested_twice(&self) -> bool {
        self.end.get().is_some_and(|(_, again)| again)
    }

    /// The next signal to handle.
    pub fn next(&self) -> Option<Signal> {
        let seen = self.pending.borrow_mut().pop_front();
        seen.or_else(|| self.read())
    }

    fn read(&self) -> Option<Signal> {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.fd, &mut info) {
            Ok(n) if n == info.len() => {}
            _ => return None,
        }
        let number = u32::from_ne_bytes(*info.first_chunk().unwrap_or(&[0; 4]));
        Some(match number.cast_signed() {
            libc::SIGCHLD => Signal::Child,
            libc::SIGWINCH => Signal::Size,
            libc::SIGUSR2 => Signal::NextFile,
            number => {
                let now = Instant::now();
                self.end.set(Some(match self.end.get() {
                    None => (now, false),
                    Some((first, again)) => (first, again || now - first > SAME_WISH),
                }));
                match number {
                    libc::SIGQUIT => Signal::Leave,
                    _ => Signal::End,
                }
            }
        })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: `before` is what the kernel gave.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            );
        }
    }
}
