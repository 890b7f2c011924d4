//! A session that leaves the terminal (`-F`): a child process runs it, and the parent waits until its
//! probes are armed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};

/// Which of two processes this is.
pub enum Role {
    /// The process that the user started.
    Parent(Starting),
    /// The process that runs the session.
    Session(Armed),
}

/// A session that starts in the background.
pub struct Starting {
    pid: i32,
    armed: OwnedFd,
}

/// Tells the parent that the probes are armed.
pub struct Armed(Option<OwnedFd>);

/// Divides the process in two. The session gets a process group and a session of the terminal of its own,
/// so that keys of the terminal do not reach it. This has to run before there are threads: the child has none
/// of them.
///
/// # Errors
/// Those of the system calls.
pub fn fork() -> io::Result<Role> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: this process has one thread, so the child's memory is whole.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            rustix::process::setsid()?;
            Ok(Role::Session(Armed(Some(write))))
        }
        pid => Ok(Role::Parent(Starting { pid, armed: read })),
    }
}

impl Starting {
    /// Waits until the probes are armed, and gives the session's process. `None` if it failed before:
    /// it has said why.
    pub fn wait(self) -> Option<i32> {
        let mut byte = [0];
        let read = File::from(self.armed).read_exact(&mut byte);
        read.is_ok().then_some(self.pid)
    }
}

impl Armed {
    /// Whether [`Armed::announce`] was called.
    pub fn is_announced(&self) -> bool {
        self.0.is_none()
    }

    /// Lets the parent end, and leaves the streams of the terminal. Does nothing from the second time
    /// on.
    pub fn announce(&mut self) {
        let Some(to) = self.0.take() else { return };
        if let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty()) {
            // Where they stay, they only keep the terminal open.
            let _ = rustix::stdio::dup2_stdin(&null);
            let _ = rustix::stdio::dup2_stdout(&null);
            let _ = rustix::stdio::dup2_stderr(&null);
        }
        // A parent that is gone needs no answer.
        let _ = File::from(to).write_all(b"!");
    }
}
