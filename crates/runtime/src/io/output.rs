//! The script's output: collected in memory and written in batches, never while a lock is held.
//! Output waits for a reader that pauses. A reader that is gone ends the session, and unwritten
//! lines are counted.

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags};

use crate::error::Error;
use crate::io::reader_wait::{ReaderWait, WaitResult};
use crate::io::recorder::{FrameStream, Recorder};
use crate::io::rows::{Row, RowSink};
use crate::io::series::{FileSeries, SeriesLimits};
use crate::shared::ring_record::FieldValue;

/// Bytes that trigger a write.
const BATCH: usize = 64 << 10;
/// A pipe with space accepts this many bytes without blocking (PIPE_BUF).
pub const PIECE: usize = 4096;
/// Limit on the bytes that a session collects while it ends; above it, the end waits for the
/// reader.
const KEPT: usize = 64 << 20;

/// The destination of output.
#[derive(Default)]
pub enum OutputTarget {
    /// Standard output.
    #[default]
    Stdout,
    /// A new file; `strftime` forms in its name are replaced by the local time. With limits, a series
    /// of files.
    File(String, Option<SeriesLimits>),
    /// Memory of at most this many bytes, until a client attaches; with the session's messages.
    Recorder(usize),
    /// Memory, for embedding and tests; see [`crate::Session::take_output`].
    Memory,
    /// A callback of the program that embeds spile, which gets the values of prints instead of text.
    Rows(RowSink),
}

/// The script's output, and the session's messages on standard error.
pub struct Output {
    collected: Vec<u8>,
    /// Takes rows; the text in `out` is its own.
    sink: Option<RowSink>,
    /// `None`: collected in memory, or for clients that attach.
    out: Option<Channel>,
    recorder: Option<Recorder>,
    /// Whether messages go where the output goes.
    together: bool,
    /// The files of `out`, if it is one.
    files: Option<FileSeries>,
    errors: Option<Channel>,
    reader_wait: Option<ReaderWait>,
    /// Whether the sink asked to end.
    enough: bool,
    /// Whether writing failed, other than by a reader that closed the pipe.
    failed: bool,
}

impl Output {
    /// Opens the destination. Without `reader_wait`, waits for readers are unlimited.
    pub fn open(target: OutputTarget, reader_wait: Option<ReaderWait>) -> Result<Output, Error> {
        let (mut sink, mut files, mut recorder) = (None, None, None);
        let stdout = || {
            rustix::stdio::stdout()
                .try_clone_to_owned()
                .map_err(|e| Error::Output("standard output".into(), e))
        };
        let out = match target {
            OutputTarget::Stdout => Some(stdout()?),
            OutputTarget::File(path, limits) => {
                let (series, file) = FileSeries::create(path, limits, || {
                    ReaderWait::pause(reader_wait.as_ref(), Duration::from_millis(10))
                })?;
                files = Some(series);
                Some(file)
            }
            OutputTarget::Recorder(limit) => {
                let socket = |e| Error::Output("the socket of this session".into(), e);
                recorder = Some(Recorder::new(limit).map_err(socket)?);
                None
            }
            OutputTarget::Memory => None,
            OutputTarget::Rows(to) => {
                sink = Some(to);
                Some(stdout()?)
            }
        };
        // With standard error closed there is no location for messages. A recorder has one of its own, and
        // would only keep the terminal, or the shell that waits for the end of this stream.
        let errors = match recorder {
            Some(_) => None,
            None => rustix::stdio::stderr().try_clone_to_owned().ok(),
        };
        Ok(Output {
            collected: Vec::new(),
            sink,
            out: out.map(Channel::new),
            files,
            recorder,
            together: false,
            errors: errors.map(Channel::new),
            reader_wait,
            enough: false,
            failed: false,
        })
    }

    /// Whether output is taken as rows.
    pub fn takes_rows(&self) -> bool {
        self.sink.is_some()
    }

    /// Passes a row to its taker, which adds to the output.
    pub fn row(&mut self, row: &Row<'_>) {
        let (Some(sink), Some(out)) = (&mut self.sink, &mut self.out) else {
            return;
        };
        if !self.enough {
            self.enough = sink(row, &mut out.pending).is_break();
        }
        if out.pending.len() >= BATCH {
            self.flush();
        }
    }

    /// Appends bytes to the collected output. Where rows are taken, they are a row without a name.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.takes_rows() {
            let values = &[FieldValue::Str(bytes)];
            return self.row(&Row { name: "", values });
        }
        self.collected.extend_from_slice(bytes);
        if self.collected.len() >= BATCH && (self.out.is_some() || self.recorder.is_some()) {
            self.flush();
        }
    }

    /// Writes the collected output. If the session is ending and the reader pauses, the output
    /// stays collected until [`Output::wait_for_readers`].
    pub fn flush(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            return recorder.push(FrameStream::Output, &std::mem::take(&mut self.collected));
        }
        let Some(out) = &mut self.out else { return };
        let Some(files) = &self.files else {
            out.pending.append(&mut self.collected);
            return self.write();
        };
        let mut text = std::mem::take(&mut self.collected);
        // Without limits, there is space for all.
        let mut space = files.space_for(&text);
        while space < text.len() {
            self.write_to_file(text.drain(..space));
            self.next_file();
            let files = self.files.as_ref();
            space = files.map_or(text.len(), |f| f.space_for(&text));
        }
        self.write_to_file(text.drain(..));
    }

    fn write_to_file(&mut self, text: std::vec::Drain<'_, u8>) {
        if let (Some(out), Some(files)) = (&mut self.out, &mut self.files) {
            files.wrote(text.len());
            out.pending.extend(text);
            self.write();
        }
    }

    /// Goes on in the next file of `-o`, if the output is a file.
    pub fn next_file(&mut self) {
        let (Some(out), Some(files)) = (&mut self.out, &mut self.files) else {
            return;
        };
        match files.next() {
            Ok(fd) => out.replace(fd),
            Err(e) => {
                out.broken = true;
                self.failed = true;
                self.print_error(&format!("ERROR: {e}\n"));
            }
        }
    }

    fn write(&mut self) {
        let Some(out) = &mut self.out else { return };
        if let Err(e) = out.write(self.reader_wait.as_ref()) {
            // A reader that closes the pipe, as `head` does, is no failure.
            self.failed |= e.kind() != io::ErrorKind::BrokenPipe;
            if !matches!(
                e.kind(),
                io::ErrorKind::BrokenPipe | io::ErrorKind::Interrupted
            ) {
                self.print_error(&format!("ERROR: cannot write the output: {e}\n"));
            }
        }
    }

    /// Prints a message on standard error, without terminal control characters.
    pub fn print_error(&mut self, text: &str) {
        self.print_error_raw(&spile_plain::lines(text));
    }

    /// Prints text on standard error unchanged; ignores a closed standard error.
    pub fn print_error_raw(&mut self, text: &str) {
        if self.recorder.is_some() {
            self.flush();
        }
        if let Some(recorder) = &mut self.recorder {
            return recorder.push(FrameStream::Messages, text.as_bytes());
        }
        if self.together {
            return self.push(text.as_bytes());
        }
        if let Some(errors) = &mut self.errors {
            errors.pending.extend_from_slice(text.as_bytes());
            // A failure here cannot be reported anywhere.
            let _ = errors.write(self.reader_wait.as_ref());
        }
    }

    /// Writes later messages to the output: there is no terminal any more.
    pub fn join_messages(&mut self) {
        self.together = true;
        self.errors = None;
    }

    /// The memory of a session in the background.
    pub fn recorder(&mut self) -> Option<&mut Recorder> {
        self.recorder.as_mut()
    }

    /// A `WARNING:` line on standard error.
    pub fn warn(&mut self, text: &str) {
        self.print_error(&format!("WARNING: {text}\n"));
    }

    /// From here on the session has nothing left to do except waiting for readers.
    pub fn wait_for_readers(&mut self) {
        if let Some(reader_wait) = &mut self.reader_wait {
            reader_wait.interruptible = false;
        }
        self.flush();
        self.print_error("");
    }

    /// Whether the output has no reader any more.
    pub fn broken(&self) -> bool {
        self.enough || self.out.as_ref().is_some_and(|o| o.broken)
    }

    /// Whether output was lost because writing failed, for example on a full disk.
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// Number of lines that were not written for lack of a reader; a partly written line counts.
    pub fn unwritten(&self) -> u64 {
        let dropped = self.recorder.as_ref().map_or(0, Recorder::lost);
        let out = self.out.as_ref();
        dropped + out.map_or(0, |o| o.unwritten + u64::from(o.open_line))
    }

    /// The collected, unwritten output.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.collected)
    }
}

/// A descriptor, and the bytes to write to it.
struct Channel {
    fd: OwnedFd,
    pending: Vec<u8>,
    /// Whether it is a regular file, to which writing never waits for a reader.
    file: bool,
    broken: bool,
    /// Number of lines that were dropped since the channel broke.
    unwritten: u64,
    /// Whether the last dropped byte was inside of a line.
    open_line: bool,
}

impl Channel {
    fn new(fd: OwnedFd) -> Channel {
        let file = is_file(&fd);
        Channel {
            fd: unblocked_terminal(&fd).unwrap_or(fd),
            pending: Vec::new(),
            file,
            broken: false,
            unwritten: 0,
            open_line: false,
        }
    }

    /// Writes to another file from now on.
    fn replace(&mut self, fd: OwnedFd) {
        self.file = is_file(&fd);
        self.fd = fd;
    }

    /// Writes pending bytes. An error breaks the channel: pending and later bytes are dropped and
    /// counted.
    fn write(&mut self, reader_wait: Option<&ReaderWait>) -> io::Result<()> {
        let mut done = 0;
        let result = if self.broken {
            Ok(())
        } else {
            self.write_from(&mut done, reader_wait)
        };
        self.broken |= result.is_err();
        if self.broken {
            self.drop_from(done);
        } else {
            self.pending.drain(..done);
        }
        result
    }

    fn write_from(&self, done: &mut usize, reader_wait: Option<&ReaderWait>) -> io::Result<()> {
        while *done < self.pending.len() {
            let rest = &self.pending[*done..];
            let most = match self.file {
                true => rest.len(),
                false => {
                    match ReaderWait::until_writable(
                        reader_wait,
                        self.fd.as_fd(),
                        rest.len() < KEPT,
                    )? {
                        WaitResult::Some => rest.len().min(PIECE),
                        WaitResult::Later => return Ok(()),
                    }
                }
            };
            match rustix::io::write(&self.fd, &rest[..most]) {
                Ok(n) => *done += n,
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn drop_from(&mut self, written: usize) {
        let lost = &self.pending[written..];
        self.unwritten += lost.iter().filter(|b| **b == b'\n').count() as u64;
        self.open_line = lost.last().map_or(self.open_line, |b| *b != b'\n');
        self.pending.clear();
    }
}

fn is_file(fd: &OwnedFd) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|s| FileType::from_raw_mode(s.st_mode).is_file())
}

/// A descriptor of a terminal that never blocks; `None` for anything else. A terminal that reports space can still block a larger write, and signals do not interrupt it. A
/// new non-blocking descriptor avoids that without changing those of other processes.
pub fn unblocked_terminal(fd: &OwnedFd) -> Option<OwnedFd> {
    if !rustix::termios::isatty(fd) {
        return None;
    }
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

/// Prints a `WARNING:` line on standard error, outside of a session.
pub fn warn(text: &str) {
    // A failure here cannot be reported anywhere.
    let _ = io::stderr()
        .lock()
        .write_all(format!("WARNING: {text}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::rc::Rc;
    use std::time::{Duration, Instant};

    use crate::machine::end_requests::EndRequests;
    use crate::machine::signals::Signals;

    /// A wait that these signals and the end of a child interrupt.
    fn waits(signals: &Rc<Signals>, child: Option<OwnedFd>) -> ReaderWait {
        ReaderWait::new(Rc::new(EndRequests::new(Rc::clone(signals), child)))
    }

    fn pipe() -> (OwnedFd, OwnedFd) {
        rustix::pipe::pipe().unwrap()
    }

    fn output(to: OwnedFd, reader_wait: Option<ReaderWait>) -> Output {
        Output {
            out: Some(Channel::new(to)),
            ..Output::open(OutputTarget::Memory, reader_wait).unwrap()
        }
    }

    fn interrupt() {
        // SAFETY: the signal is blocked in this thread by the `Signals` of the test.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGINT) };
    }

    /// Reads everything, in a thread that starts on a signal of the test.
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
        let mut out = output(w, Some(waits(&signals, None)));
        let (begin, read) = slow_reader(r);
        let line = [b'x'; 99];
        let mut made = Vec::new();
        interrupt();
        // The pipe accepts a part, and the session continues to its end.
        for _ in 0..20_000 {
            let line = [&line[..], b"\n"].concat();
            out.push(&line);
            made.extend(line);
        }
        assert!(!out.broken());
        assert!(signals.end_requested());
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
        let ends = Rc::new(EndRequests::new(Rc::clone(&signals), None));
        ends.deadline
            .set(Some(Instant::now() + Duration::from_millis(1)));
        let mut out = output(w, Some(ReaderWait::new(ends)));
        out.push(&vec![b'x'; 1 << 20]);
        assert!(!out.broken());
        let (_r, w) = pipe();
        let (ended, child) = pipe();
        rustix::io::write(&child, b"!").unwrap();
        let mut out = output(w, Some(waits(&signals, Some(ended))));
        out.push(&vec![b'x'; 1 << 20]);
        assert!(!out.broken());
    }

    #[test]
    fn a_second_signal_ends_the_wait_for_a_stalled_reader() {
        let (r, w) = pipe();
        let signals = Rc::new(Signals::new().unwrap());
        let mut out = output(w, Some(waits(&signals, None)));
        interrupt();
        out.push(&b"line\n".repeat(100_000));
        assert!(!out.broken());
        // A signal that comes with the first one counts as the same request.
        std::thread::sleep(2 * crate::machine::signals::SAME_WISH);
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
    fn takers_of_rows_make_output_until_they_have_enough() {
        let (r, w) = pipe();
        let mut out = output(w, None);
        out.sink = Some(Box::new(|row, to| {
            to.extend(row.name.to_ascii_uppercase().into_bytes());
            match row.values {
                [FieldValue::Long(1)] => std::ops::ControlFlow::Break(()),
                [FieldValue::Str(text)] => {
                    to.extend_from_slice(text);
                    std::ops::ControlFlow::Continue(())
                }
                _ => std::ops::ControlFlow::Continue(()),
            }
        }));
        out.push(b"text ");
        for n in 0..3 {
            let values = &[FieldValue::Long(n)];
            out.row(&Row {
                name: "row\n",
                values,
            });
        }
        assert!(out.broken());
        out.flush();
        drop(out);
        let mut got = Vec::new();
        io::Read::read_to_end(&mut File::from(r), &mut got).unwrap();
        assert_eq!(got, b"text ROW\nROW\n");
    }
}
