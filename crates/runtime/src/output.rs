//! Where the script's output goes: collected in memory and written in batches, never while a
//! lock is held. A reader that went away ends the session; one that stalls can be interrupted.

use std::fs::File;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::clock;
use crate::error::Error;

/// Bytes collected before they are written in any case.
const BATCH: usize = 64 << 10;
/// A pipe with room takes this many bytes without blocking (PIPE_BUF).
const PIECE: usize = 4096;
/// How long a stalled reader is still waited for once somebody wants the session to end.
const GRACE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 500_000_000,
};

/// Takes output as it is written, any number of lines or parts of them at a time; `Break` says that
/// no more is wanted, which ends the session.
pub type Sink = Box<dyn FnMut(&[u8]) -> ControlFlow<()>>;

/// Where output goes.
#[derive(Default)]
pub enum Target {
    /// Standard output.
    #[default]
    Stdout,
    /// A file, made anew; `strftime` forms in its name are replaced, in local time.
    File(String),
    /// A descriptor-like sink for embedding and tests: kept in memory, see
    /// [`crate::Session::take_output`].
    Memory,
    /// A function of the program that spile is part of: the tools read rows there.
    Sink(Sink),
}

/// The script's output.
pub struct Output {
    buffer: Vec<u8>,
    to: Option<OwnedFd>,
    sink: Option<Sink>,
    /// Readable when a signal wants the session to end.
    interrupt: Option<OwnedFd>,
    /// A regular file: writing to it never waits for a reader.
    file: bool,
    broken: bool,
    /// It broke in another way than by a reader that had enough.
    failed: bool,
}

impl Output {
    /// Opens it.
    pub fn open(target: Target, interrupt: Option<OwnedFd>) -> Result<Output, Error> {
        let mut sink = None;
        let to = match target {
            Target::Stdout => Some(
                rustix::stdio::stdout()
                    .try_clone_to_owned()
                    .map_err(|e| Error::Output("standard output".into(), e))?,
            ),
            Target::File(path) => {
                let path = clock::strftime(&path).map_err(|e| Error::Output(path.clone(), e))?;
                let file = File::create(&path).map_err(|e| Error::Output(path, e))?;
                Some(file.into())
            }
            Target::Memory => None,
            Target::Sink(to) => {
                sink = Some(to);
                None
            }
        };
        let stat = to.as_ref().and_then(|fd| rustix::fs::fstat(fd).ok());
        let file = stat.is_some_and(|s| rustix::fs::FileType::from_raw_mode(s.st_mode).is_file());
        Ok(Output {
            buffer: Vec::new(),
            to,
            sink,
            interrupt,
            file,
            broken: false,
            failed: false,
        })
    }

    /// Collects bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if !self.broken {
            self.buffer.extend_from_slice(bytes);
        }
        if self.buffer.len() >= BATCH && (self.to.is_some() || self.sink.is_some()) {
            self.flush();
        }
    }

    /// Writes what was collected.
    pub fn flush(&mut self) {
        if let Some(sink) = &mut self.sink {
            let text = std::mem::take(&mut self.buffer);
            self.broken |= !text.is_empty() && sink(&text).is_break();
            return;
        }
        let Some(to) = &self.to else { return };
        let mut rest = &self.buffer[..];
        while !rest.is_empty() && !self.broken {
            let interrupt = self.interrupt.as_ref().map(AsFd::as_fd);
            let (ready, most) = match self.file {
                true => (Ok(()), rest.len()),
                false => (wait(to.as_fd(), interrupt), rest.len().min(PIECE)),
            };
            let done = ready.and_then(|()| Ok(rustix::io::write(to, &rest[..most])?));
            match done {
                Ok(n) => rest = &rest[n..],
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                    ) => {}
                Err(e) => {
                    if e.kind() != io::ErrorKind::BrokenPipe {
                        complain(&format!("ERROR: cannot write the output: {e}\n"));
                        self.failed = true;
                    }
                    self.broken = true;
                }
            }
        }
        self.buffer.clear();
    }

    /// Whether nobody takes the output any more.
    pub fn broken(&self) -> bool {
        self.broken
    }

    /// Whether output was lost because it could not be written, as on a full disk.
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// What was collected and not written.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }
}

/// Waits until a piece can be written without blocking.
fn wait(to: BorrowedFd<'_>, interrupt: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut fds = vec![PollFd::from_borrowed_fd(to, PollFlags::OUT)];
    fds.extend(interrupt.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
    match poll(&mut fds, None) {
        Ok(_) if !fds[0].revents().is_empty() => return Ok(()),
        Ok(_) => {}
        Err(e) => return Err(e.into()),
    }
    fds.truncate(1);
    match poll(&mut fds, Some(&GRACE))? {
        0 => Err(io::Error::new(io::ErrorKind::TimedOut, "the reader stalls")),
        _ => Ok(()),
    }
}

/// A `WARNING:` line on standard error.
pub fn warn(text: &str) {
    complain(&format!("WARNING: {text}\n"));
}

/// Text on standard error; nothing is done about it where that is closed.
pub fn complain(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe() -> (OwnedFd, OwnedFd) {
        rustix::pipe::pipe().unwrap()
    }

    #[test]
    fn broken_pipes_are_noted() {
        let (r, w) = pipe();
        let mut out = Output {
            buffer: Vec::new(),
            to: Some(w),
            sink: None,
            interrupt: None,
            file: false,
            broken: false,
            failed: false,
        };
        out.push(b"hello");
        out.flush();
        assert!(!out.broken());
        drop(r);
        out.push(b"x");
        out.flush();
        assert!(out.broken());
    }

    #[test]
    fn a_stalled_reader_can_be_interrupted() {
        let (_r, w) = pipe();
        let (interrupt, signal) = pipe();
        rustix::io::write(&signal, b"!").unwrap();
        let mut out = Output {
            buffer: Vec::new(),
            to: Some(w),
            sink: None,
            interrupt: Some(interrupt),
            file: false,
            broken: false,
            failed: false,
        };
        out.push(&vec![b'x'; 1 << 20]);
        out.flush();
        assert!(out.broken());
    }
}
