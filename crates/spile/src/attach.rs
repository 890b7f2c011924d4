//! Sessions in the background: `-F` starts one, `spile attach` shows its output, `spile stop` ends it.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use clap::Parser;
use spile_cast::Cast;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use spile_runtime::io::background::{self, Role};
use spile_runtime::io::output::{self, OutputTarget, PIECE};
use spile_runtime::io::recorder::{self, ATTACH, Found, FrameStream, Frames, STOP};
use spile_runtime::machine::signals::{Signal, Signals};

use crate::cli::Cli;
use crate::passes;
use crate::report::{Failure, fail, print_stderr, print_stdout};
use crate::stap;

/// Megabytes of output that a session keeps for a client, without -s.
const KEPT: u32 = 16;

/// Runs the session in the background; the result is the exit status of the process that the user
/// started.
pub(crate) fn start(cli: &Cli, color: bool) -> Result<u8, Failure> {
    let role = background::fork().map_err(|e| fail(format_args!("-F: {e}")))?;
    let armed = match role {
        Role::Parent(starting) => {
            // A session that failed has printed its error.
            let pid = starting.wait().ok_or(Failure::Reported)?;
            print_stdout(format_args!("{pid}\n"))?;
            return Ok(0);
        }
        Role::Session(armed) => armed,
    };
    passes::run(cli, color, |options| {
        if cli.output.is_none() {
            let megabytes = cli.buffer_mb.unwrap_or(KEPT) as usize;
            options.output = OutputTarget::Recorder(megabytes << 20);
        }
        options.background = Some(armed);
    })
}

/// The sessions in the background, of all users.
fn sessions() -> Result<Vec<Found>, Failure> {
    let path = "/proc/net/unix";
    let table = std::fs::read(path).map_err(|e| fail(format_args!("{path}: {e}")))?;
    Ok(recorder::sessions(&table))
}

/// The process of this user's session that `-m` gave a name; without `-m` the name is `spile_PID`. Its
/// PID names it, too.
pub(crate) fn session_called(name: &str) -> Result<u32, Failure> {
    let pids: Vec<u32> = sessions()?
        .iter()
        .filter(|s| s.same_user)
        .map(|s| s.pid)
        .collect();
    let number = name.strip_prefix("spile_").unwrap_or(name).parse().ok();
    let mut called = pids.iter().copied();
    match called.find(|pid| Some(*pid) == number || module_of(*pid).as_deref() == Some(name)) {
        Some(pid) => Ok(pid),
        None => Err(fail(format_args!(
            "no session in the background without -o is called {name}; `spile -F -m {name}` starts one, \
             `kill -INT` ends one with -o"
        ))),
    }
}

/// The name that `-m` gave the session of a process.
fn module_of(pid: u32) -> Option<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = line.strip_suffix(b"\0")?.split(|b| *b == 0);
    let words = words.map(|w| OsStr::from_bytes(w).to_owned());
    let options = stap::rewrite(words).ok()?.args;
    let path = Cli::try_parse_from(options).ok()?.module?;
    path.rsplit('/').next().map(str::to_owned)
}

/// The session of a process, or the only one of this user.
fn find(pid: Option<u32>) -> Result<Found, Failure> {
    let mut sessions = sessions()?;
    let Some(pid) = pid else {
        // Those of other users are nobody's business, whoever they are.
        sessions.retain(|s| s.same_user);
        return match sessions.pop() {
            None => Err(fail(
                "no session runs in the background; `spile -F` starts one",
            )),
            Some(one) if sessions.is_empty() => Ok(one),
            Some(last) => {
                let sessions = sessions.iter().chain([&last]);
                let sessions: Vec<String> = sessions.map(|s| s.pid.to_string()).collect();
                Err(fail(format_args!(
                    "several sessions run in the background, name one: {}",
                    sessions.join(" ")
                )))
            }
        };
    };
    match sessions.into_iter().find(|s| s.pid == pid) {
        Some(session) if session.same_user => Ok(session),
        Some(_) => Err(fail(format_args!(
            "the session of process {pid} belongs to another user"
        ))),
        None => Err(fail(format_args!(
            "process {pid} is no session in the background without -o; `kill -INT` ends one with -o"
        ))),
    }
}

/// A client of a session.
struct Client {
    session: Found,
    signals: Signals,
    frames: Frames,
    output: OwnedFd,
    errors: Option<OwnedFd>,
    /// Bytes that are printed, which the session does not know yet.
    printed: u32,
}

/// What follows a step of a client.
enum Next {
    GoOn,
    /// The client ends with this status.
    End(u8),
}

/// Reads the output of a session to its end, or until Ctrl-\. Ctrl-C ends the session, and the second one
/// the client. With `stops`, ends the session at once. The result is the session's exit status.
pub(crate) fn run(pid: Option<u32>, stops: bool) -> Result<u8, Failure> {
    let mut session = find(pid)?;
    let failed = |e: io::Error| failure(session.pid, &e);
    let signals = Signals::new().map_err(failed)?;
    let request = if stops { STOP } else { ATTACH };
    session.stream.write_all(&[request]).map_err(failed)?;
    // A descriptor that does not block, where there is one.
    let stream = |fd: BorrowedFd<'_>| -> io::Result<OwnedFd> {
        let fd = fd.try_clone_to_owned()?;
        Ok(output::unblocked_terminal(&fd).unwrap_or(fd))
    };
    let output = stream(io::stdout().as_fd()).map_err(failed)?;
    let mut client = Client {
        signals,
        frames: Frames::default(),
        output,
        errors: stream(io::stderr().as_fd()).ok(),
        printed: 0,
        session,
    };
    loop {
        if let Next::End(status) = client.step()? {
            return Ok(status);
        }
    }
}

fn failure(pid: u32, e: &io::Error) -> Failure {
    fail(format_args!("the session of process {pid}: {e}"))
}

impl Client {
    fn failed(&self, e: impl Into<io::Error>) -> Failure {
        failure(self.session.pid, &e.into())
    }

    /// Prints a frame, or waits for one.
    fn step(&mut self) -> Result<Next, Failure> {
        match self.frames.next_frame().map_err(|e| self.failed(e))? {
            Some((FrameStream::End, status)) => {
                return Ok(Next::End(status.first().copied().unwrap_or(1)));
            }
            Some((stream, bytes)) => return self.print(stream, &bytes),
            None => {}
        }
        if let end @ Next::End(_) = self.wait(None)? {
            return Ok(end);
        }
        match self.frames.fill(&mut self.session.stream) {
            Ok(true) => Ok(Next::GoOn),
            Ok(false) => Err(self.failed(io::Error::other(
                "it ended without a word, or `spile stop` took the rest of its output",
            ))),
            Err(e) => Err(self.failed(e)),
        }
    }

    /// Prints a frame's contents, and acknowledges each part.
    fn print(&mut self, stream: FrameStream, mut bytes: &[u8]) -> Result<Next, Failure> {
        let messages = stream == FrameStream::Messages;
        while !bytes.is_empty() {
            if let end @ Next::End(_) = self.wait(Some(stream))? {
                return Ok(end);
            }
            let to = match (messages, &self.errors) {
                (false, _) => &self.output,
                (true, Some(errors)) => errors,
                // Messages have no other location.
                (true, None) => return Ok(self.acknowledge(bytes.len())),
            };
            let piece = &bytes[..bytes.len().min(PIECE)];
            let done = match rustix::io::write(to, piece) {
                Ok(n) => n,
                Err(Errno::INTR | Errno::AGAIN) => 0,
                Err(_) if messages => piece.len(),
                // A reader that closes the pipe, as `head` does, is no failure.
                Err(Errno::PIPE) => return Ok(self.leave()),
                Err(e) => return Err(fail(format_args!("cannot write the output: {e}"))),
            };
            self.acknowledge(done);
            bytes = &bytes[done..];
        }
        Ok(Next::GoOn)
    }

    /// Reports to the session the number of bytes that were printed since the last report.
    fn acknowledge(&mut self, bytes: usize) -> Next {
        self.printed += bytes.fit::<u32>();
        if self.printed > 0 && recorder::acknowledge(&self.session.stream, self.printed) {
            self.printed = 0;
        }
        Next::GoOn
    }

    /// Waits until a stream takes bytes, or without one until the session has sent some.
    fn wait(&mut self, to: Option<FrameStream>) -> Result<Next, Failure> {
        loop {
            let late = match self.printed {
                0 => PollFlags::empty(),
                _ => PollFlags::OUT,
            };
            let other = match to {
                Some(FrameStream::Messages) => self.errors.as_ref(),
                Some(_) => Some(&self.output),
                None => None,
            };
            let session = match to {
                Some(_) => late,
                None => late | PollFlags::IN,
            };
            let mut fds = vec![
                PollFd::new(&self.session.stream, session),
                PollFd::new(&self.signals, PollFlags::IN),
            ];
            fds.extend(other.map(|fd| PollFd::new(fd, PollFlags::OUT)));
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(self.failed(e)),
            }
            let writable = PollFlags::OUT;
            let ready = match (to, fds.get(2)) {
                (None, _) => !(fds[0].revents() - writable).is_empty(),
                (Some(_), Some(other)) => !other.revents().is_empty(),
                (Some(_), None) => true,
            };
            self.acknowledge(0);
            if let end @ Next::End(_) = self.take_signals()? {
                return Ok(end);
            }
            if ready {
                return Ok(Next::GoOn);
            }
        }
    }

    fn take_signals(&mut self) -> Result<Next, Failure> {
        while let Some(signal) = self.signals.next() {
            match signal {
                Signal::Leave => return Ok(self.leave()),
                Signal::End if self.signals.end_requested_twice() => {
                    return Err(Failure::Reported);
                }
                Signal::End => {
                    let asked = self.session.stream.write_all(&[STOP]);
                    asked.map_err(|e| self.failed(e))?;
                }
                Signal::Child | Signal::Size | Signal::NextFile => {}
            }
        }
        Ok(Next::GoOn)
    }

    /// Leaves the session: what is not printed stays there.
    fn leave(&self) -> Next {
        let pid = self.session.pid;
        print_stderr(format_args!(
            "the session goes on; `spile attach {pid}` continues its output\n"
        ));
        Next::End(0)
    }
}
