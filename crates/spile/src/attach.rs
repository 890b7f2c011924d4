//! Sessions in the background: `-F` starts one, `spile attach` shows its output, `spile stop` ends it.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, poll};

use spile_runtime::io::background::{self, Role};
use spile_runtime::io::output::OutputTarget;
use spile_runtime::io::recorder::{self, ATTACH, STOP, Stream};
use spile_runtime::session::events::{Signal, Signals};

use crate::cli::Cli;
use crate::passes;
use crate::report::{Failure, fail, print_stderr, print_stdout};

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

/// The session of a process, or the only one there is.
fn find(pid: Option<u32>) -> Result<u32, Failure> {
    if let Some(pid) = pid {
        return Ok(pid);
    }
    let path = "/proc/net/unix";
    let table = std::fs::read_to_string(path).map_err(|e| fail(format_args!("{path}: {e}")))?;
    match recorder::sessions(&table)[..] {
        [pid] => Ok(pid),
        [] => Err(fail(
            "no session runs in the background; `spile -F` starts one",
        )),
        ref several => {
            let all: Vec<String> = several.iter().map(u32::to_string).collect();
            Err(fail(format_args!(
                "several sessions run in the background, name one: {}",
                all.join(" ")
            )))
        }
    }
}

/// Reads the output of a session to its end, or until Ctrl-\. Ctrl-C ends the session. With `stops`, ends
/// it at once. The result is the session's exit status.
pub(crate) fn run(pid: Option<u32>, stops: bool) -> Result<u8, Failure> {
    let pid = find(pid)?;
    let failed = |e: io::Error| match e.kind() {
        io::ErrorKind::ConnectionRefused => fail(format_args!(
            "process {pid} is no session in the background without -o; `kill -INT` ends one with -o"
        )),
        _ => fail(format_args!("the session of process {pid}: {e}")),
    };
    let signals = Signals::new().map_err(failed)?;
    let mut session = recorder::connect(pid).map_err(failed)?;
    let request = if stops { STOP } else { ATTACH };
    session.write_all(&[request]).map_err(failed)?;
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(session.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(failed(e.into())),
        }
        let ready = !fds[0].revents().is_empty();
        while let Some(signal) = signals.next() {
            match signal {
                Signal::Leave => {
                    print_stderr(format_args!(
                        "the session goes on; `spile attach {pid}` continues its output\n"
                    ));
                    return Ok(0);
                }
                Signal::End if signals.end_requested_twice() => return Err(Failure::Reported),
                Signal::End => session.write_all(&[STOP]).map_err(failed)?,
                Signal::Child | Signal::Size | Signal::NextFile => {}
            }
        }
        if ready && let Some(status) = show(&mut session).map_err(failed)? {
            return Ok(status);
        }
    }
}

/// Shows a frame; the exit status at the end.
fn show(session: &mut UnixStream) -> io::Result<Option<u8>> {
    match recorder::read_frame(session)? {
        Some((Stream::Output, bytes)) => {
            let mut out = io::stdout().lock();
            out.write_all(&bytes)?;
            out.flush()?;
            Ok(None)
        }
        Some((Stream::Messages, bytes)) => {
            // Messages have no other place.
            let _ = io::stderr().write_all(&bytes);
            Ok(None)
        }
        Some((Stream::End, status)) => Ok(Some(status.first().copied().unwrap_or(1))),
        None => Err(io::Error::other("it ended without a word")),
    }
}
