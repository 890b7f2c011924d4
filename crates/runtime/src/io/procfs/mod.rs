//! The files of `procfs` probes, in a directory of the session.
//!
//! In: the paths of a script's files, and their readers and writers. Out: events for the session's
//! loop, and texts for readers. Handlers run elsewhere, between the two.
//!
//! A read-only file is a regular file, empty and leased (`lease.rs`). The kernel blocks an opener
//! until the session has put a new file instead, run the handler, written the text and
//! released the lease. Each reader therefore gets a whole text that was made after it came, at any
//! speed and with any number of readers; readers that come at the same moment get the same text.
//!
//! Writable files are named pipes, and so are all files if the file system has no leases. A pipe
//! has one stream for all processes that have it open. As soon as a reader has come (inotify
//! reports it), a new pipe replaces it under the name, and the old one belongs to the reader. The
//! session holds the pipe's other end, so that opening it does not block.
//!
//! | pipe | held | a reader, a writer |
//! |---|---|---|
//! | read | both ends | gets the handler's text, then the end |
//! | write | both ends | each line is one hit; the rest at the close, too |
//! | read and write | the writing end | a writer waits for up to [`WINDOW`]: then a new pipe replaces the file, and the old one is read. Held open for both, the next reader would take the written data |
//!
//! A process that resolved the name before the replacement can open the old pipe later. An old pipe
//! is therefore kept for another window, and checked for readers once more. Several readers of one
//! pipe get their texts one after the other, each with a little time to read; on a busy machine one
//! can take another's.
//!
//! Nothing here waits long: unread data stays in the pipe, which is large enough for it.

use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, inotify};
use rustix::io::Errno;
use spile_cast::Cast;

pub use directory::remove_abandoned;
use directory::{Directory, FileLocation, NEW};

use crate::machine::timer::Timer;

mod directory;
mod lease;
mod readers;

/// Interval at which files that are read and written accept writers.
const WINDOW: Duration = Duration::from_millis(50);
/// Limit on a line that is one hit: the limit of SystemTap's strings.
const MOST_LINE: usize = 4096;
/// Bytes to take from a pipe before other pipes get their turn.
const ROUND: usize = 1 << 16;
/// Limit on unnamed pipes that writers hold open.
const MOST_OLD: usize = 256;
/// Time for several readers of one pipe to read one text.
const PATIENCE: Duration = Duration::from_millis(20);
/// Attempts to create a file that nobody else has open.
const TRIES: usize = 10;

/// A file to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSpec {
    /// Its path in the directory.
    pub path: Arc<str>,
    /// Whether it has probes for readers.
    pub read: bool,
    /// Whether it has probes for writers.
    pub write: bool,
    /// Its permissions.
    pub mode: u16,
}

/// A request to a file's handlers.
#[derive(Debug, PartialEq, Eq)]
pub enum FileRequest {
    /// The text for a reader of this file.
    Read(Arc<str>),
    /// A text was written to it.
    Write(Arc<str>, Vec<u8>),
}

/// The use of the session's end of a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PipeUse {
    /// Waiting readers; a leased file rather than a pipe.
    Lease,
    /// Readers; holds both ends.
    Serve,
    /// Writers; holds both ends.
    Collect,
    /// Readers and waiting writers; holds the writing end.
    Both,
    /// Writers that opened it while it had a name; holds the reading end.
    Drain,
}

struct Pipe {
    file: usize,
    kind: PipeUse,
    fd: OwnedFd,
    watch: Option<i32>,
    /// The start of an incomplete line.
    line: Vec<u8>,
    /// Whether it was opened.
    opened: bool,
    /// Whether a writer closed it.
    closed: bool,
    /// Whether it has been without a name for a window.
    late: bool,
}

/// The files of a session, removed when this is dropped.
pub struct ProcfsFiles {
    specs: Vec<FileSpec>,
    locations: Vec<FileLocation>,
    /// The current pipes, in the order of the files.
    pipes: Vec<Pipe>,
    old: Vec<Pipe>,
    notify: OwnedFd,
    /// Notifications of leased files, if leases are available.
    leases: Option<OwnedFd>,
    /// The timer for files that are both read and written.
    timer: Option<Timer>,
    directory: Directory,
}

impl ProcfsFiles {
    /// Creates the files in a directory of that name.
    ///
    /// # Errors
    /// The path, and the reason.
    pub fn new(name: &str, specs: Vec<FileSpec>) -> Result<ProcfsFiles, (String, io::Error)> {
        let mut directory = Directory::new(name)?;
        let path = directory.path().to_owned();
        let fail = |e: io::Error| (path.clone(), e);
        let locations: Result<Vec<FileLocation>, _> = specs
            .iter()
            .map(|spec| {
                let location = directory.location(&spec.path);
                location.map_err(|e| (format!("{path}/{}", spec.path), e))
            })
            .collect();
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let mut files = ProcfsFiles {
            locations: locations?,
            pipes: Vec::new(),
            old: Vec::new(),
            notify: inotify::init(flags).map_err(|e| fail(e.into()))?,
            leases: None,
            timer: None,
            directory,
            specs,
        };
        if files.specs.iter().any(|s| s.read && !s.write) {
            files.leases = lease::notifications().ok();
        }
        if files.specs.iter().any(|s| s.read && s.write) {
            files.timer = Some(window().map_err(fail)?);
        }
        for file in 0..files.specs.len() {
            let pipe = files.make(file).map_err(|e| fail(e.into()))?;
            files.pipes.push(pipe);
        }
        Ok(files)
    }

    /// The directory's path.
    pub fn path(&self) -> &str {
        self.directory.path()
    }

    /// The descriptors to wait for: pipes of writers, and notifications.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let collects = |p: &&Pipe| p.kind == PipeUse::Collect;
        let pipes = self.pipes.iter().filter(collects).map(|p| p.fd.as_fd());
        let others = self
            .timer
            .iter()
            .map(AsFd::as_fd)
            .chain(self.leases.iter().map(AsFd::as_fd));
        pipes.chain(others).chain([self.notify.as_fd()])
    }

    /// Handles all pending requests; `answer` runs handlers.
    pub fn serve(&mut self, answer: &mut dyn FnMut(FileRequest) -> Vec<u8>) -> io::Result<()> {
        self.notices();
        // Data that was written before a reader came is handled before the reader's text is made.
        self.written(answer);
        for file in 0..self.pipes.len() {
            if self.pipes[file].opened && self.pipes[file].kind != PipeUse::Collect {
                let old = self.replace(file)?;
                self.read(old, answer);
            }
        }
        self.serve_leased(answer)?;
        if matches!(
            self.timer.as_ref().map(|t| t.acknowledge(0)),
            Some(Ok(true))
        ) {
            self.let_writers_in(answer)?;
        }
        Ok(())
    }

    /// Makes the texts of leased files with waiting readers, and releases the readers.
    fn serve_leased(&mut self, answer: &mut dyn FnMut(FileRequest) -> Vec<u8>) -> io::Result<()> {
        let Some(news) = &self.leases else {
            return Ok(());
        };
        // Before the check of the files: a later reader causes a new notification.
        lease::acknowledge(news);
        for file in 0..self.pipes.len() {
            let pipe = &self.pipes[file];
            if pipe.kind != PipeUse::Lease || !lease::is_wanted(&pipe.fd) {
                continue;
            }
            let old = self.replace(file)?;
            let path = self.specs[file].path.clone();
            let text = answer(FileRequest::Read(path.clone()));
            // Closing the descriptor releases the lease.
            if let Err(e) = std::fs::File::from(old.fd).write_all(&text) {
                crate::io::output::warn(&format!("writing to the file {path}: {e}"));
            }
        }
        Ok(())
    }

    /// Puts a leased file under the file's name; `None` if leases are not available.
    fn make_leased(&self, file: usize) -> Option<Pipe> {
        self.leases.as_ref()?;
        let (spec, location) = (&self.specs[file], &self.locations[file]);
        let dir = location.directory.as_fd();
        for _ in 0..TRIES {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(dir, NEW, flags, Mode::RUSR | Mode::WUSR).ok()?;
            // Another process may have opened the new file in the directory.
            let leased = lease::take(&fd).is_ok();
            let mode = Mode::from_bits_truncate(spec.mode.into());
            if leased
                && directory::mark(&fd).is_ok()
                && rustix::fs::fchmod(&fd, mode).is_ok()
                && rustix::fs::renameat(dir, NEW, dir, &*location.name).is_ok()
            {
                return Some(Pipe::new(file, PipeUse::Lease, fd, None));
            }
            rustix::fs::unlinkat(dir, NEW, rustix::fs::AtFlags::empty()).ok()?;
        }
        None
    }

    /// Puts a pipe or a leased file under the file's name, instead of a previous one.
    fn make(&self, file: usize) -> Result<Pipe, Errno> {
        let (spec, location) = (&self.specs[file], &self.locations[file]);
        if spec.read
            && !spec.write
            && let Some(leased) = self.make_leased(file)
        {
            return Ok(leased);
        }
        let kind = match (spec.read, spec.write) {
            (true, true) => PipeUse::Both,
            (true, false) => PipeUse::Serve,
            _ => PipeUse::Collect,
        };
        let dir = location.directory.as_fd();
        rustix::fs::mkfifoat(dir, NEW, Mode::RUSR | Mode::WUSR)?;
        let flags = OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let open = |access| rustix::fs::openat(dir, NEW, flags | access, Mode::empty());
        let both = open(OFlags::RDWR)?;
        let fd = match kind {
            PipeUse::Both => open(OFlags::WRONLY)?,
            _ => both.try_clone().map_err(|_| Errno::MFILE)?,
        };
        drop(both);
        rustix::fs::fchmod(&fd, Mode::from_bits_truncate(spec.mode.into()))?;
        let news = inotify::WatchFlags::OPEN | inotify::WatchFlags::CLOSE_WRITE;
        let watch = inotify::add_watch(&self.notify, own_path(&fd), news)?;
        rustix::fs::renameat(dir, NEW, dir, &*location.name)?;
        Ok(Pipe::new(file, kind, fd, Some(watch)))
    }

    /// Puts a new pipe instead of the file's; returns the old one.
    fn replace(&mut self, file: usize) -> io::Result<Pipe> {
        let new = self.make(file)?;
        Ok(std::mem::replace(&mut self.pipes[file], new))
    }

    /// Handles notifications of opened and closed pipes.
    fn notices(&mut self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.notify, &mut buffer);
        while let Ok(event) = reader.next() {
            let (watch, events) = (event.wd(), event.events());
            let pipes = self.pipes.iter_mut().chain(&mut self.old);
            for pipe in pipes.filter(|p| p.watch == Some(watch)) {
                pipe.opened |= events.contains(inotify::ReadFlags::OPEN);
                pipe.closed |= events.contains(inotify::ReadFlags::CLOSE_WRITE);
            }
        }
    }

    /// Runs handlers for written data.
    fn written(&mut self, answer: &mut dyn FnMut(FileRequest) -> Vec<u8>) {
        let mut ended = Vec::new();
        let pipes = self.pipes.iter_mut().chain(&mut self.old).enumerate();
        for (index, pipe) in
            pipes.filter(|(_, p)| matches!(p.kind, PipeUse::Collect | PipeUse::Drain))
        {
            let (texts, end) = pipe.read_texts();
            for text in texts {
                answer(FileRequest::Write(self.specs[pipe.file].path.clone(), text));
            }
            // Named pipes never end: the session itself could write to them.
            if let (true, Some(old)) = (end && pipe.late, index.checked_sub(self.specs.len())) {
                ended.push(old);
            }
        }
        for index in ended.into_iter().rev() {
            let old = self.old.remove(index);
            // If it cannot be opened, nobody waits for it.
            if let Ok(pipe) = old.reopened()
                && pipe.kind == PipeUse::Both
            {
                self.read(pipe, answer);
            }
        }
    }

    /// Writes their texts to the readers of an unnamed pipe.
    fn read(&mut self, pipe: Pipe, answer: &mut dyn FnMut(FileRequest) -> Vec<u8>) {
        self.forget(&pipe);
        let count = readers::count(&pipe.fd).max(1);
        if count > 1 {
            // The reader that waits longest is served first, so let all of them wait.
            std::thread::sleep(PATIENCE / 4);
        }
        for n in 0..count {
            if n > 0 {
                wait_until_empty(&pipe.fd);
            }
            let text = answer(FileRequest::Read(self.specs[pipe.file].path.clone()));
            if text.len() > ROUND {
                // If that is refused, the reader gets the part that fits.
                let _ = rustix::pipe::fcntl_setpipe_size(&pipe.fd, text.len());
            }
            // A reader that is gone gets nothing.
            let _ = rustix::io::write(&pipe.fd, &text);
        }
    }

    /// Reads from writers that wait because their file is also read.
    fn let_writers_in(&mut self, answer: &mut dyn FnMut(FileRequest) -> Vec<u8>) -> io::Result<()> {
        self.old.iter_mut().for_each(|pipe| pipe.late = true);
        for file in 0..self.pipes.len() {
            if self.pipes[file].kind != PipeUse::Both || self.old.len() >= MOST_OLD {
                continue;
            }
            let old = self.replace(file)?;
            self.old.push(old);
            self.notices();
            let Some(mut old) = self.old.pop() else {
                continue;
            };
            if old.opened {
                self.read(old, answer);
                continue;
            }
            self.forget(&old);
            old.watch = None;
            // The pipe can have a reader whose notification is still to come.
            let old = old.reopened()?;
            match old.kind {
                PipeUse::Both => self.read(old, answer),
                _ => self.old.push(old),
            }
        }
        self.written(answer);
        Ok(())
    }

    fn forget(&self, pipe: &Pipe) {
        if let Some(watch) = pipe.watch {
            // The watch ends with the pipe in any case.
            let _ = inotify::remove_watch(&self.notify, watch);
        }
    }
}

impl Drop for ProcfsFiles {
    fn drop(&mut self) {
        self.directory.remove(&self.locations);
    }
}

impl Pipe {
    fn new(file: usize, kind: PipeUse, fd: OwnedFd, watch: Option<i32>) -> Pipe {
        Pipe {
            file,
            kind,
            fd,
            watch,
            line: Vec::new(),
            opened: false,
            closed: false,
            late: false,
        }
    }

    /// Reopens the pipe for its current users: the writing end if it has a reader, otherwise the
    /// reading end. In between the session holds no end, so a reader that comes waits.
    fn reopened(self) -> io::Result<Pipe> {
        let flags = OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open =
            |fd: &OwnedFd, access| rustix::fs::open(own_path(fd), flags | access, Mode::empty());
        let location = open(&self.fd, OFlags::PATH)?;
        let reads = match self.kind {
            PipeUse::Drain => None,
            // A non-blocking open of the writing end succeeds only if there is a reader.
            _ => open(&location, OFlags::WRONLY).ok(),
        };
        drop(self.fd);
        let (kind, fd) = match reads.or_else(|| open(&location, OFlags::WRONLY).ok()) {
            Some(fd) => (PipeUse::Both, fd),
            None => (PipeUse::Drain, open(&location, OFlags::RDONLY)?),
        };
        Ok(Pipe { kind, fd, ..self })
    }

    /// The complete texts, and whether more can come.
    fn read_texts(&mut self) -> (Vec<Vec<u8>>, bool) {
        let mut texts = Vec::new();
        let mut end = false;
        let mut taken = 0;
        let mut chunk = [0; MOST_LINE];
        while taken < ROUND {
            match rustix::io::read(&self.fd, &mut chunk) {
                Ok(0) => {
                    end = true;
                    break;
                }
                Ok(n) => {
                    taken += n;
                    split(&mut self.line, &chunk[..n], &mut texts);
                }
                Err(_) => break,
            }
        }
        let closed = std::mem::take(&mut self.closed);
        if (end || closed) && !self.line.is_empty() {
            texts.push(std::mem::take(&mut self.line));
        }
        (texts, end)
    }
}

/// Appends bytes to the incomplete line; moves whole lines to `texts`.
fn split(line: &mut Vec<u8>, bytes: &[u8], texts: &mut Vec<Vec<u8>>) {
    for &b in bytes {
        line.push(b);
        if b == b'\n' || line.len() == MOST_LINE {
            texts.push(std::mem::take(line));
        }
    }
}

/// The path by which this process can reopen a descriptor.
fn own_path(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Waits a little until a pipe is empty.
fn wait_until_empty(fd: &OwnedFd) {
    for _ in 0..PATIENCE.as_millis() {
        if rustix::io::ioctl_fionread(fd).map_or(true, |n| n == 0) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A timer that fires at each window.
fn window() -> io::Result<Timer> {
    let timer = Timer::new(WINDOW.as_nanos().fit(), 0)?;
    timer.start(0)?;
    Ok(timer)
}

#[cfg(test)]
mod tests;
