//! The processes that a session follows: the command of `-c`, forked but held until the probes are
//! armed, and the process of `-x`. Both are watched through a process descriptor.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use spile_kernel::process::restore_for_command;

/// A process whose end ends the session.
pub struct WatchedProcess {
    pid: Pid,
    pidfd: OwnedFd,
    /// For a child of ours: the pipe that releases its command with a byte.
    gate: Option<OwnedFd>,
    child: bool,
    /// Whether it stops after its `execve`, until [`WatchedProcess::go_on`].
    traced: bool,
}

/// Bytes at a child's gate: run the command, or stop after the `execve`.
const RUN: u8 = b'!';
const TRACED: u8 = b't';

/// Unquoted characters that are special in a shell.
const SHELL: &[char] = &[
    '$', '`', '|', '&', ';', '<', '>', '(', ')', '{', '}', '*', '?', '[', ']', '~', '#', '!', '\n',
];
/// Characters that are special in double quotes.
const IN_QUOTES: &[char] = &['$', '`'];

/// Whether a command is more than a list of words and quoted words.
fn needs_shell(command: &str) -> bool {
    let mut quote = None;
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(q), c) if c == q => quote = None,
            (None | Some('"'), '\\') => _ = chars.next(),
            (None, c) if SHELL.contains(&c) => return true,
            (Some('"'), c) if IN_QUOTES.contains(&c) => return true,
            _ => {}
        }
    }
    false
}

/// The program and its arguments: the words of the command, or a shell if the command needs one.
fn shell_words(command: &str) -> Vec<String> {
    match shlex::split(command) {
        // `NAME=VALUE command` also needs the shell.
        Some(words) if words.first().is_some_and(|w| !w.contains('=')) && !needs_shell(command) => {
            words
        }
        _ => shell(command),
    }
}

/// The arguments of a shell that runs the command.
fn shell(command: &str) -> Vec<String> {
    vec!["/bin/sh".into(), "-c".into(), command.into()]
}

fn c_strings(words: Vec<String>) -> io::Result<Vec<CString>> {
    let nul = |_| io::Error::other("the command contains a NUL byte");
    words
        .into_iter()
        .map(|w| CString::new(w).map_err(nul))
        .collect()
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings
        .iter()
        .map(|s| s.as_ptr())
        .chain([std::ptr::null()])
        .collect()
}

impl WatchedProcess {
    /// Forks a child that waits to become `command`. An early fork shares less memory, every page
    /// of which is copied when this process writes to it.
    pub fn start(command: &str) -> io::Result<WatchedProcess> {
        // If the first word is no program, it may be a shell builtin: the shell is the second
        // attempt.
        let (args, shell) = (c_strings(shell_words(command))?, c_strings(shell(command))?);
        let (argv, fallback) = (pointers(&args), pointers(&shell));
        let (wait, gate) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        // SAFETY: the child calls nothing but functions that are safe after a fork
        // (async-signal-safe ones, on memory that was made before), and then becomes another
        // program or ends.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let pipe = [wait.as_raw_fd(), gate.as_raw_fd()];
                // SAFETY: as above; both lists are NULL-terminated and their strings alive.
                unsafe { become_command(pipe, [&argv, &fallback]) }
            }
            _ => {
                let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::Other)?;
                WatchedProcess::watch(pid, Some(gate))
            }
        }
    }

    /// Follows a running process.
    pub fn follow(pid: i32) -> io::Result<WatchedProcess> {
        let none = || io::Error::from_raw_os_error(libc::ESRCH);
        let pid = Some(pid)
            .filter(|p| *p > 0)
            .and_then(Pid::from_raw)
            .ok_or_else(none)?;
        WatchedProcess::watch(pid, None)
    }

    fn watch(pid: Pid, gate: Option<OwnedFd>) -> io::Result<WatchedProcess> {
        Ok(WatchedProcess {
            pid,
            pidfd: rustix::process::pidfd_open(pid, PidfdFlags::empty())?,
            child: gate.is_some(),
            gate,
            traced: false,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Sets whether a waiting command stops before the first instruction of its program. Only this
    /// thread, which started the command, can then let it continue.
    pub fn traced(mut self, traced: bool) -> WatchedProcess {
        self.traced = traced;
        self
    }

    /// Lets the command run.
    pub fn release(&mut self) {
        if let Some(gate) = self.gate.take() {
            let word = if self.traced { TRACED } else { RUN };
            // The status reports a child that died in the meantime.
            let _ = rustix::io::write(&gate, &[word]);
        }
    }

    /// Waits until a traced command stops at its program's first instruction. False if it cannot
    /// stop, or has ended.
    pub fn wait_for_exec_stop(&self) -> bool {
        if !self.traced || !self.released() {
            return false;
        }
        let flags = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        let wait = || rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), flags);
        let status = rustix::io::retry_on_intr(wait).ok().flatten();
        status.is_some_and(|s| s.exit_status().is_none() && s.terminating_signal().is_none())
    }

    /// Lets a stopped command run, and detaches from it.
    pub fn resume(&mut self) {
        if !std::mem::take(&mut self.traced) {
            return;
        }
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: the request reads and writes no memory of this process. That a command has
        // ended shows in its status.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.pid(), none, none) };
    }

    /// Whether the command was released.
    pub fn released(&self) -> bool {
        self.gate.is_none()
    }

    /// The exit status; `None` while the process runs. A process that is not our child counts as
    /// successful.
    pub fn ended(&self) -> Option<ExitStatus> {
        if !self.child {
            return Some(ExitStatus::from_raw(0));
        }
        let flags = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), flags).ok()??;
        let raw = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => (code & 0xff) << 8,
            (None, Some(signal)) => signal & 0x7f,
            (None, None) => 0,
        };
        Some(ExitStatus::from_raw(raw))
    }

    /// Whether the process is a command of ours.
    pub fn is_child(&self) -> bool {
        self.child
    }

    /// Kills a command, which stands at its `execve`: the session cannot start.
    pub fn kill(&self) {
        // It may have ended.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Kills a command that was never released, or asks a running one to end; reaps it if it has
    /// ended.
    pub fn stop(&mut self) {
        if !self.child {
            return;
        }
        let (signal, wait) = match self.released() {
            true => (Signal::TERM, WaitIdOptions::NOHANG),
            false => (Signal::KILL, WaitIdOptions::empty()),
        };
        if self.ended().is_none() {
            // A process that has ended needs no signal.
            let _ = rustix::process::pidfd_send_signal(&self.pidfd, signal);
        }
        let id = WaitId::PidFd(self.pidfd.as_fd());
        let _ = rustix::process::waitid(id, WaitIdOptions::EXITED | wait);
    }
}

impl Drop for WatchedProcess {
    fn drop(&mut self) {
        if !self.released() {
            self.stop();
        }
    }
}

impl AsFd for WatchedProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// In the child: waits for the gate, then runs the command.
///
/// # Safety
/// Only for a freshly forked child; the attempts are NULL-terminated and alive.
unsafe fn become_command([wait, gate]: [i32; 2], tries: [&[*const libc::c_char]; 2]) -> ! {
    // SAFETY: all of these are async-signal-safe, and the memory is alive and ours.
    unsafe {
        libc::close(gate);
        let mut byte = 0u8;
        let got = loop {
            let got = libc::read(wait, (&raw mut byte).cast(), 1);
            if got >= 0 || *libc::__errno_location() != libc::EINTR {
                break got;
            }
        };
        // The pipe ends without a byte if the session ends before the probes are armed.
        if got != 1 {
            libc::_exit(127);
        }
        let _ = restore_for_command();
        if byte == TRACED {
            let none = std::ptr::null_mut::<libc::c_void>();
            libc::ptrace(libc::PTRACE_TRACEME, 0, none, none);
        }
        for argv in tries {
            libc::execvp(argv[0], argv.as_ptr());
        }
        libc::_exit(127)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(watched: &WatchedProcess) -> ExitStatus {
        for _ in 0..60_000 {
            if let Some(status) = watched.ended() {
                return status;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("the command did not end");
    }

    #[test]
    fn traced_commands_stand_at_their_first_instruction() {
        let mut child = WatchedProcess::start("sh -c 'exit 7'")
            .unwrap()
            .traced(true);
        assert!(!child.wait_for_exec_stop());
        child.release();
        assert!(child.wait_for_exec_stop());
        child.resume();
        assert!(!child.wait_for_exec_stop());
        assert_eq!(wait(&child).code(), Some(7));
        child.stop();
        let mut child = WatchedProcess::start("/nonexistent/program")
            .unwrap()
            .traced(true);
        child.release();
        // The shell is the second attempt.
        assert!(child.wait_for_exec_stop());
        child.resume();
        assert_eq!(wait(&child).code(), Some(127));
        child.stop();
    }

    #[test]
    fn commands_wait_for_the_gate() {
        let mut child = WatchedProcess::start("sh -c exit").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(child.ended().is_none());
        child.release();
        assert_eq!(wait(&child).code(), Some(0));
        child.stop();
    }

    #[test]
    fn how_commands_end() {
        for (command, code, signal) in [
            ("exit 3", Some(3), None),
            ("sh -c 'exit 4'", Some(4), None),
            ("kill -9 $$", None, Some(9)),
            ("/no/such/program", Some(127), None),
        ] {
            let mut child = WatchedProcess::start(command).unwrap();
            child.release();
            let status = wait(&child);
            assert_eq!(
                (status.code(), status.signal()),
                (code, signal),
                "{command}"
            );
            child.stop();
        }
    }

    #[test]
    fn held_back_commands_can_be_stopped() {
        let mut child = WatchedProcess::start("sleep 100").unwrap();
        child.stop();
        assert!(WatchedProcess::follow(child.pid()).is_err());
        let child = WatchedProcess::start("sleep 100").unwrap();
        let pid = child.pid();
        drop(child);
        assert!(WatchedProcess::follow(pid).is_err());
    }

    #[test]
    fn only_existing_processes_are_followed() {
        assert!(WatchedProcess::follow(0).is_err());
        assert!(WatchedProcess::follow(-1).is_err());
        assert_eq!(WatchedProcess::follow(1).unwrap().pid(), 1);
    }

    #[test]
    fn commands_are_split_or_given_to_a_shell() {
        assert_eq!(shell_words("ls  -l /"), ["ls", "-l", "/"]);
        assert_eq!(shell_words("a | b"), ["/bin/sh", "-c", "a | b"]);
        assert_eq!(shell_words(" ")[0], "/bin/sh");
        assert_eq!(
            shell_words("sh -c 'a; b' \"c d\""),
            ["sh", "-c", "a; b", "c d"]
        );
        assert_eq!(shell_words("dd if=/dev/zero"), ["dd", "if=/dev/zero"]);
        for shell in ["A=1 b", "echo \"$A\"", "a 'b", "echo *"] {
            assert_eq!(shell_words(shell), ["/bin/sh", "-c", shell]);
        }
    }
}
