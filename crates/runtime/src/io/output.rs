//! Where the script's output goes: collected in memory and written in batches, never while a
//! lock is held. A reader that pauses is waited for. A reader that went away ends the session, and what
//! could not be written is counted.

use std::fs::File;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};

use crate::error::Error;
use crate::io::patience::{Patience, Room};
use crate::machine::clock;

/// Bytes collected before they are written in any case.
const BATCH: usize = 64 << 10;
/// A pipe with room takes this many bytes without blocking (PIPE_BUF).
const PIECE: usize = 4096;
/// Bytes that are kept at most for a session that is about to end; then its end waits for the reader.
const KEPT: usize = 64 << 20;

/// Takes output as it is written, any number of lines or parts of them at a time. What it adds to the second
/// argument goes to standard output. `Break` says that no more is wanted, which ends the session.
pub type Sink = Box<dyn FnMut(&[u8], &mut Vec<u8>) -> ControlFlow<()>>;

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

/// The script's output, and the session's messages on standard error.
pub struct Output {
    collected: Vec<u8>,
    sink: Option<Sink>,
    /// `None`: kept in memory.
    out: Option<Channel>,
    errors: Option<Channel>,
    patience: Option<Patience>,
    /// The sink wants no more.
    enough: bool,
    /// It broke in another way than by a reader that had enough.
    failed: bool,
}

impl Output {
    /// Opens it; without patience a reader is waited for without end.
    pub fn open(target: Target, patience: Option<Patience>) -> Result<Output, Error> {
        let mut sink = None;
        let stdout = || {
            rustix::stdio::stdout()
                .try_clone_to_owned()
                .map_err(|e| Error::Output("standard output".into(), e))
        };
        let out = match target {
            Target::Stdout => Some(stdout()?),
            Target::File(path) => {
                let path = clock::strftime(&path).map_err(|e| Error::Output(path.clone(), e))?;
                let file = File::create(&path).map_err(|e| Error::Output(path, e))?;
                Some(file.into())
            }
            Target::Memory => None,
            Target::Sink(to) => {
                sink = Some(to);
                Some(stdout()?)
            }
        };
        // Where it is closed nobody can be told.
        let errors = rustix::stdio::stderr().try_clone_to_owned().ok();
        Ok(Output {
            collected: Vec::new(),
            sink,
            out: out.map(Channel::new),
            errors: errors.map(Channel::new),
            patience,
            enough: false,
            failed: false,
        })
    }

    /// Collects bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.collected.extend_from_slice(bytes);
        if self.collected.len() >= BATCH && self.out.is_some() {
            self.flush();
        }
    }

    /// Writes what was collected. Where the session is about to end and the reader pauses it stays
    /// collected, until [`Output::wait_for_readers`].
    pub fn flush(&mut self) {
        let Some(out) = &mut self.out else { return };
        match &mut self.sink {
            Some(_) if self.enough => self.collected.clear(),
            Some(sink) if !self.collected.is_empty() => {
                self.enough = sink(&self.collected, &mut out.pending).is_break();
                self.collected.clear();
            }
            Some(_) => {}
            None => out.pending.append(&mut self.collected),
        }
        if let Err(e) = out.write(self.patience.as_ref()) {
            // A reader that has enough, as `head` does, is no failure.
            self.failed |= e.kind() != io::ErrorKind::BrokenPipe;
            if !matches!(
                e.kind(),
                io::ErrorKind::BrokenPipe | io::ErrorKind::Interrupted
            ) {
                self.complain(&format!("ERROR: cannot write the output: {e}\n"));
            }
        }
    }

    /// Text on standard error, with nothing in it that acts on a terminal.
    pub fn complain(&mut self, text: &str) {
        self.complain_raw(&spile_plain::lines(text));
    }

    /// Text on standard error as it is; nothing is done about it where that is closed.
    pub fn complain_raw(&mut self, text: &str) {
        if let Some(errors) = &mut self.errors {
            errors.pending.extend_from_slice(text.as_bytes());
            // There is nobody else to tell.
            let _ = errors.write(self.patience.as_ref());
        }
    }

    /// A `WARNING:` line on standard error.
    pub fn warn(&mut self, text: &str) {
        self.complain(&format!("WARNING: {text}\n"));
    }

    /// What interrupts a wait for a reader.
    pub fn patience(&mut self) -> Option<&mut Patience> {
        self.patience.as_mut()
    }

    /// From here on nothing is left to do but to wait for readers.
    pub fn wait_for_readers(&mut self) {
        if let Some(patience) = &mut self.patience {
            patience.hurry = false;
        }
        self.flush();
        self.complain("");
    }

    /// Whether nobody takes the output any more.
    pub fn broken(&self) -> bool {
        self.enough || self.out.as_ref().is_some_and(|o| o.broken)
    }

    /// Whether output was lost because it could not be written, as on a full disk.
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// Lines that were not written because nobody takes them any more; the rest of a line that was begun
    /// is one.
    pub fn unwritten(&self) -> u64 {
        self.out
            .as_ref()
            .map_or(0, |o| o.unwritten + u64::from(o.open_line))
    }

    /// What was collected and not written.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.collected)
    }
}

/// A descriptor, and what is to be written to it.
struct Channel {
    fd: OwnedFd,
    pending: Vec<u8>,
    /// A regular file: writing to it never waits for a reader.
    file: bool,
    broken: bool,
    /// Lines that were dropped since it broke.
    unwritten: u64,
    /// The last byte that was dropped ends no line.
    open_line: bool,
}

impl Channel {
    fn new(fd: OwnedFd) -> Channel {
        let kind = rustix::fs::fstat(&fd).map(|s| FileType::from_raw_mode(s.st_mode));
        Channel {
            fd: unblocked_terminal(&fd).unwrap_or(fd),
            pending: Vec::new(),
            file: kind.is_ok_and(FileType::is_file),
            broken: false,
            unwritten: 0,
            open_line: false,
        }
    }

    /// Writes what is pending. An error breaks it: what is pending then and later is dropped, and counted.
    fn write(&mut self, patience: Option<&Patience>) -> io::Result<()> {
        let mut done = 0;
        let result = if self.broken {
            Ok(())
        } else {
            self.write_from(&mut done, patience)
        };
        self.broken |= result.is_err();
        if self.broken {
            self.drop_from(done);
        } else {
            self.pending.drain(..done);
        }
        result
    }

    fn write_from(&self, done: &mut usize, patience: Option<&Patience>) -> io::Result<()> {
        while *done < self.pending.len() {
            let rest = &self.pending[*done..];
            let most = match self.file {
                true => rest.len(),
                false => match Patience::wait(patience, self.fd.as_fd(), rest.len() < KEPT)? {
                    Room::Some => rest.len().min(PIECE),
                    Room::Later => return Ok(()),
                },
            };
            match rustix::io::write(&self.fd, &rest[..most]) {
                Ok(n) => *done += n,
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn drop_from(&mut self, at: usize) {
        let lost = &self.pending[at..];
        self.unwritten += lost.iter().filter(|b| **b == b'\n').count() as u64;
        self.open_line = lost.last().map_or(self.open_line, |b| *b != b'\n');
        self.pending.clear();
    }
}

/// A terminal that says that it has room can still keep a writer of more than that waiting, where signals do
/// not reach it. Opened anew it does not, and nobody else's descriptor changes.
fn unblocked_terminal(fd: &OwnedFd) -> Option<OwnedFd> {
    if !rustix::termios::isatty(fd) {
        return None;
    }
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

/// A `WARNING:` line on standard error, where there is no session.
pub fn warn(text: &str) {
    // Where it is closed nobody can be told.
    let _ = io::stderr()
        .lock()
        .write_all(format!("WARNING: {text}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;
    use std::time::{Duration, Instant};

    use crate::session::events::Signals;

    fn pipe() -> (OwnedFd, OwnedFd) {
        rustix::pipe::pipe().unwrap()
    }

    fn output(to: OwnedFd, patience: Option<Patience>) -> Output {
        Output {
            out: Some(Channel::new(to)),
            ..Output::open(Target::Memory, patience).unwrap()
        }
    }

    fn interrupt() {
        // SAFETY: the signal is blocked in this thread by the `Signals` of the test.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGINT) };
    }

    /// Everything that comes, in a thread that begins when it is told to.
    fn slow_reader(
        from: OwnedFd,
    ) -> (
        std::sync::mpsc::Sender<()>,
        std::thread::JoinHandle<Vec<u8>>,
    ) {
        let (begin, wait) = std::sync::mpsc::channel();
        let read = std::thread::spawn(move || {
            let _ = wait.recv();
            let mut all = Vec::new();
            io::Read::read_to_end(&mut File::from(from), &mut all).unwrap();
            all
        });
        (begin, read)
    }

    #[test]
    fn broken_pipes_are_noted_and_what_they_lose_is_counted() {
        let (r, w) = pipe();
        let mut out = output(w, None);
        out.push(b"hello\n");
        out.flush();
        assert!(!out.broken());
        drop(r);
        out.push(b"x\ny\nz");
        out.flush();
        assert!(out.broken() && !out.failed());
        assert_eq!(out.unwritten(), 3);
        out.push(b"z\n");
        out.flush();
        assert_eq!(out.unwritten(), 3);
    }

    #[test]
    fn a_session_that_ends_waits_for_its_reader() {
        let (r, w) = pipe();
        let signals = Rc::new(Signals::new().unwrap());
        let mut out = output(w, Some(Patience::new(Rc::clone(&signals), None)));
        let (begin, read) = slow_reader(r);
        let line = [b'x'; 99];
        let mut made = Vec::new();
        interrupt();
        // The pipe takes a part of it, and the session goes on to its end.
        for _ in 0..20_000 {
            let line = [&line[..], b"\n"].concat();
            out.push(&line);
            made.extend(line);
        }
        assert!(!out.broken());
        assert!(signals.wants_end());
        begin.send(()).unwrap();
        out.wait_for_readers();
        assert_eq!(
            (out.broken(), out.failed(), out.unwritten()),
            (false, false, 0)
        );
        drop(out);
        assert!(read.join().unwrap() == made);
    }

    #[test]
    fn a_deadline_and_a_child_do_not_wait_for_a_reader() {
        let (_r, w) = pipe();
        let signals = Rc::new(Signals::new().unwrap());
        let mut out = output(w, Some(Patience::new(Rc::clone(&signals), None)));
        out.patience().unwrap().deadline = Some(Instant::now() + Duration::from_millis(1));
        out.push(&vec![b'x'; 1 << 20]);
        assert!(!out.broken());
        let (_r, w) = pipe();
        let (ended, child) = pipe();
        rustix::io::write(&child, b"!").unwrap();
        let mut out = output(w, Some(Patience::new(signals, Some(ended))));
        out.push(&vec![b'x'; 1 << 20]);
        assert!(!out.broken());
    }

    #[test]
    fn a_second_signal_ends_the_wait_for_a_stalled_reader() {
        let (r, w) = pipe();
        let signals = Rc::new(Signals::new().unwrap());
        let mut out = output(w, Some(Patience::new(Rc::clone(&signals), None)));
        interrupt();
        out.push(&b"line\n".repeat(100_000));
        assert!(!out.broken());
        // One that came with the first is the same wish.
        std::thread::sleep(2 * crate::session::events::SAME_WISH);
        interrupt();
        out.wait_for_readers();
        assert!(out.broken() && out.failed());
        let unwritten = out.unwritten();
        drop(out);
        let mut got = Vec::new();
        io::Read::read_to_end(&mut File::from(r), &mut got).unwrap();
        let lines = got.iter().filter(|b| **b == b'\n').count() as u64;
        assert!(unwritten > 0);
        assert_eq!(lines + unwritten, 100_000);
    }

    #[test]
    fn sinks_make_output() {
        let (r, w) = pipe();
        let mut out = output(w, None);
        out.sink = Some(Box::new(|bytes, to| {
            to.extend(bytes.to_ascii_uppercase());
            ControlFlow::Continue(())
        }));
        out.push(b"row\n");
        out.flush();
        drop(out);
        let mut got = Vec::new();
        io::Read::read_to_end(&mut File::from(r), &mut got).unwrap();
        assert_eq!(got, b"ROW\n");
    }
}
