//! The files of `procfs` probes, in a directory of the session.
//!
//! A file that is only read is a regular one, empty and leased (`lease.rs`): the kernel holds whoever
//! opens it until the session has put another file in its place, run the handler, written the text and
//! given the lease back. So each reader has a whole text that was made after it came, however slowly it reads
//! and however many come; those that come at the same moment have the same one.
//!
//! Files that are written to are named pipes, and so are all where the file system has no leases. A
//! pipe has one stream for all who have it open: as soon as a reader has come (inotify tells), a new
//! pipe takes the place under the name, and the old one is his. The session holds the pipe's other end, so
//! that opening it does not wait.
//!
//! | pipe | held | a reader, a writer |
//! |---|---|---|
//! | read | both ends | gets what the handler sets, then the end |
//! | write | both ends | each line is one hit; what is left when it closes, too |
//! | read and write | the writing end | a writer waits for up to [`WINDOW`]: then a new pipe takes the place, and the old one is read. Held open for both, the next reader would take what was written |
//!
//! Who looked a name up before another pipe took the place can open the old one later: an old pipe is
//! kept for a window more, and looked at once more for readers. Several readers of one pipe get their texts
//! one after the other, which each has a little time to take: on a busy machine one can take another's.
//!
//! Nothing here waits long for anybody: what nobody reads stays in the pipe, which holds it all.

use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, inotify};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use spile_ir::{Event, HandlerId, Program};

use crate::controller::Controller;
pub use directory::sweep;
use directory::{Directory, NEW, Place};

mod directory;
mod lease;
mod readers;

/// How often files that are read and written let writers in.
const WINDOW: Duration = Duration::from_millis(50);
/// Longest line that is one hit; what SystemTap's text can hold at most.
const MOST_LINE: usize = 4096;
/// Bytes taken from a pipe before others have their turn.
const ROUND: usize = 1 << 16;
/// Pipes that writers hold open, which no longer have a name.
const MOST_OLD: usize = 256;
/// How long several readers of one pipe have for the part of one of them.
const PATIENCE: Duration = Duration::from_millis(20);
/// Tries to have a new file for oneself.
const TRIES: usize = 10;

/// A file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Its path in the directory.
    pub path: Arc<str>,
    /// It has probes for readers.
    pub read: bool,
    /// It has probes for writers.
    pub write: bool,
    /// Its permissions.
    pub mode: u16,
}

/// What a file wants.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    /// The text for a reader of this file.
    Read(Arc<str>),
    /// A text was written to it.
    Write(Arc<str>, Vec<u8>),
}

/// Runs the handlers that a request means; gives what they made of `$value`.
pub fn answer(controller: &mut Controller, program: &Program, request: Request) -> Vec<u8> {
    let (path, text, write) = match request {
        Request::Read(path) => (path, Vec::new(), false),
        Request::Write(path, text) => (path, text, true),
    };
    let mine = program.handlers.iter().enumerate().filter_map(|(i, h)| {
        let file = match &h.event {
            Event::Procfs(file) if file.path == path && file.write == write => file,
            _ => return None,
        };
        Some((HandlerId(i as u32), file.maxsize))
    });
    let mine: Vec<(HandlerId, u32)> = mine.collect();
    let most = mine.iter().map(|(_, most)| *most).max();
    controller.set_value(text, most.unwrap_or(0) as usize);
    for (id, _) in mine {
        if !controller.exit_wanted() {
            controller.run(id);
        }
    }
    controller.take_value()
}

/// What the session's end of a pipe is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Readers, who wait; a leased file and no pipe.
    Lease,
    /// Readers; both ends.
    Serve,
    /// Writers; both ends.
    Collect,
    /// Readers, and writers wait; the writing end.
    Both,
    /// Writers that came while it had a name; the reading end.
    Drain,
}

struct Pipe {
    file: usize,
    kind: Kind,
    fd: OwnedFd,
    watch: Option<i32>,
    /// The start of a line.
    line: Vec<u8>,
    /// Somebody opened it.
    opened: bool,
    /// A writer closed it.
    closed: bool,
    /// It has had no name for a window.
    late: bool,
}

/// The files of a session. They are removed when this is dropped.
pub struct Files {
    specs: Vec<Spec>,
    places: Vec<Place>,
    /// In the order of the files.
    pipes: Vec<Pipe>,
    old: Vec<Pipe>,
    notify: OwnedFd,
    /// News of leased files, where there can be some.
    leases: Option<OwnedFd>,
    /// Where a file is both read and written.
    timer: Option<OwnedFd>,
    directory: Directory,
}

impl Files {
    /// Makes them, in a directory of that name.
    ///
    /// # Errors
    /// The path, and why not.
    pub fn new(name: &str, specs: Vec<Spec>) -> Result<Files, (String, io::Error)> {
        let mut directory = Directory::new(name)?;
        let path = directory.path().to_owned();
        let fail = |e: io::Error| (path.clone(), e);
        let places: Result<Vec<Place>, _> = specs
            .iter()
            .map(|spec| {
                let place = directory.place(&spec.path);
                place.map_err(|e| (format!("{path}/{}", spec.path), e))
            })
            .collect();
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let mut files = Files {
            places: places?,
            pipes: Vec::new(),
            old: Vec::new(),
            notify: inotify::init(flags).map_err(|e| fail(e.into()))?,
            leases: None,
            timer: None,
            directory,
            specs,
        };
        if files.specs.iter().any(|s| s.read && !s.write) {
            files.leases = lease::news().ok();
        }
        if files.specs.iter().any(|s| s.read && s.write) {
            files.timer = Some(window().map_err(|e| fail(e.into()))?);
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

    /// What to wait for: the pipes of writers, and news of others.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let collects = |p: &&Pipe| p.kind == Kind::Collect;
        let pipes = self.pipes.iter().filter(collects).map(|p| p.fd.as_fd());
        let others = self.timer.iter().chain(&self.leases).map(AsFd::as_fd);
        pipes.chain(others).chain([self.notify.as_fd()])
    }

    /// Does what there is to do; `answer` runs handlers.
    pub fn serve(&mut self, answer: &mut dyn FnMut(Request) -> Vec<u8>) -> io::Result<()> {
        self.notices();
        // What was written before a reader came is seen before his text is made.
        self.written(answer);
        for file in 0..self.pipes.len() {
            if self.pipes[file].opened && self.pipes[file].kind != Kind::Collect {
                let old = self.replace(file)?;
                self.read(old, answer);
            }
        }
        self.serve_leased(answer)?;
        if self.timer.as_ref().is_some_and(expired) {
            self.let_writers_in(answer)?;
        }
        Ok(())
    }

    /// Makes the texts of leased files that somebody waits for, and lets them in.
    fn serve_leased(&mut self, answer: &mut dyn FnMut(Request) -> Vec<u8>) -> io::Result<()> {
        let Some(news) = &self.leases else {
            return Ok(());
        };
        // Before the look at the files: who comes behind it is news.
        lease::heard(news);
        for file in 0..self.pipes.len() {
            let pipe = &self.pipes[file];
            if pipe.kind != Kind::Lease || !lease::wanted(&pipe.fd) {
                continue;
            }
            let old = self.replace(file)?;
            let path = self.specs[file].path.clone();
            let text = answer(Request::Read(path.clone()));
            // The lease goes with the descriptor.
            if let Err(e) = std::fs::File::from(old.fd).write_all(&text) {
                crate::io::output::warn(&format!("writing to the file {path}: {e}"));
            }
        }
        Ok(())
    }

    /// A leased file under the file's name; none where that cannot be.
    fn make_leased(&self, file: usize) -> Option<Pipe> {
        self.leases.as_ref()?;
        let (spec, place) = (&self.specs[file], &self.places[file]);
        let dir = place.directory.as_fd();
        for _ in 0..TRIES {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(dir, NEW, flags, Mode::RUSR | Mode::WUSR).ok()?;
            // Somebody else may look at what is new in the directory.
            let leased = lease::take(&fd).is_ok();
            let mode = Mode::from_bits_truncate(spec.mode.into());
            if leased
                && directory::mark(&fd).is_ok()
                && rustix::fs::fchmod(&fd, mode).is_ok()
                && rustix::fs::renameat(dir, NEW, dir, &*place.name).is_ok()
            {
                return Some(Pipe::new(file, Kind::Lease, fd, None));
            }
            rustix::fs::unlinkat(dir, NEW, rustix::fs::AtFlags::empty()).ok()?;
        }
        None
    }

    /// A pipe or a leased file under the file's name; one that was there before loses it.
    fn make(&self, file: usize) -> Result<Pipe, Errno> {
        let (spec, place) = (&self.specs[file], &self.places[file]);
        if spec.read
            && !spec.write
            && let Some(leased) = self.make_leased(file)
        {
            return Ok(leased);
        }
        let kind = match (spec.read, spec.write) {
            (true, true) => Kind::Both,
            (true, false) => Kind::Serve,
            _ => Kind::Collect,
        };
        let dir = place.directory.as_fd();
        rustix::fs::mkfifoat(dir, NEW, Mode::RUSR | Mode::WUSR)?;
        let flags = OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let open = |access| rustix::fs::openat(dir, NEW, flags | access, Mode::empty());
        let both = open(OFlags::RDWR)?;
        let fd = match kind {
            Kind::Both => open(OFlags::WRONLY)?,
            _ => both.try_clone().map_err(|_| Errno::MFILE)?,
        };
        drop(both);
        rustix::fs::fchmod(&fd, Mode::from_bits_truncate(spec.mode.into()))?;
        let news = inotify::WatchFlags::OPEN | inotify::WatchFlags::CLOSE_WRITE;
        let watch = inotify::add_watch(&self.notify, own_path(&fd), news)?;
        rustix::fs::renameat(dir, NEW, dir, &*place.name)?;
        Ok(Pipe::new(file, kind, fd, Some(watch)))
    }

    /// Puts a new pipe in the place of a file's; gives the old one.
    fn replace(&mut self, file: usize) -> io::Result<Pipe> {
        let new = self.make(file)?;
        Ok(std::mem::replace(&mut self.pipes[file], new))
    }

    /// Takes note of who opened and closed what.
    fn notices(&mut self) {
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.notify, &mut room);
        while let Ok(event) = reader.next() {
            let (watch, what) = (event.wd(), event.events());
            let pipes = self.pipes.iter_mut().chain(&mut self.old);
            for pipe in pipes.filter(|p| p.watch == Some(watch)) {
                pipe.opened |= what.contains(inotify::ReadFlags::OPEN);
                pipe.closed |= what.contains(inotify::ReadFlags::CLOSE_WRITE);
            }
        }
    }

    /// Runs handlers for what was written.
    fn written(&mut self, answer: &mut dyn FnMut(Request) -> Vec<u8>) {
        let mut ended = Vec::new();
        let pipes = self.pipes.iter_mut().chain(&mut self.old).enumerate();
        for (at, pipe) in pipes.filter(|(_, p)| matches!(p.kind, Kind::Collect | Kind::Drain)) {
            let (texts, end) = pipe.texts();
            for text in texts {
                answer(Request::Write(self.specs[pipe.file].path.clone(), text));
            }
            // Others never end: the session itself could write to them.
            if let (true, Some(old)) = (end && pipe.late, at.checked_sub(self.specs.len())) {
                ended.push(old);
            }
        }
        for at in ended.into_iter().rev() {
            let old = self.old.remove(at);
            // Where it cannot be opened, nobody waits in it.
            if let Ok(pipe) = old.turned()
                && pipe.kind == Kind::Both
            {
                self.read(pipe, answer);
            }
        }
    }

    /// Gives the readers of a pipe without a name their texts.
    fn read(&mut self, pipe: Pipe, answer: &mut dyn FnMut(Request) -> Vec<u8>) {
        self.forget(&pipe);
        let count = readers::count(&pipe.fd).max(1);
        if count > 1 {
            // Those who wait longest get theirs first: let all of them wait.
            std::thread::sleep(PATIENCE / 4);
        }
        for n in 0..count {
            if n > 0 {
                drained(&pipe.fd);
            }
            let text = answer(Request::Read(self.specs[pipe.file].path.clone()));
            if text.len() > ROUND {
                // Where that is refused, the reader gets what fits.
                let _ = rustix::pipe::fcntl_setpipe_size(&pipe.fd, text.len());
            }
            // A reader that has gone gets nothing.
            let _ = rustix::io::write(&pipe.fd, &text);
        }
    }

    /// Reads what writers of files have to say who are waiting because the files are read too.
    fn let_writers_in(&mut self, answer: &mut dyn FnMut(Request) -> Vec<u8>) -> io::Result<()> {
        self.old.iter_mut().for_each(|pipe| pipe.late = true);
        for file in 0..self.pipes.len() {
            if self.pipes[file].kind != Kind::Both || self.old.len() >= MOST_OLD {
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
            // A reader can be in it whose news is still to come.
            let old = old.turned()?;
            match old.kind {
                Kind::Both => self.read(old, answer),
                _ => self.old.push(old),
            }
        }
        self.written(answer);
        Ok(())
    }

    fn forget(&self, pipe: &Pipe) {
        if let Some(watch) = pipe.watch {
            // It goes with the pipe in any case.
            let _ = inotify::remove_watch(&self.notify, watch);
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.directory.remove(&self.places);
    }
}

impl Pipe {
    fn new(file: usize, kind: Kind, fd: OwnedFd, watch: Option<i32>) -> Pipe {
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

    /// The pipe with the writing end where somebody reads, else with the reading end. Between the
    /// two, and where the session had the reading end, it holds none: a reader who comes waits.
    fn turned(self) -> io::Result<Pipe> {
        let flags = OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open =
            |fd: &OwnedFd, access| rustix::fs::open(own_path(fd), flags | access, Mode::empty());
        let place = open(&self.fd, OFlags::PATH)?;
        let reads = match self.kind {
            Kind::Drain => None,
            // Opened without waiting, the writing end is had only where there is a reader.
            _ => open(&place, OFlags::WRONLY).ok(),
        };
        drop(self.fd);
        let (kind, fd) = match reads.or_else(|| open(&place, OFlags::WRONLY).ok()) {
            Some(fd) => (Kind::Both, fd),
            None => (Kind::Drain, open(&place, OFlags::RDONLY)?),
        };
        Ok(Pipe { kind, fd, ..self })
    }

    /// The texts that are complete, and whether nothing more can come.
    fn texts(&mut self) -> (Vec<Vec<u8>>, bool) {
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

/// Adds bytes to the start of a line; whole lines go to `texts`.
fn split(line: &mut Vec<u8>, bytes: &[u8], texts: &mut Vec<Vec<u8>>) {
    for &b in bytes {
        line.push(b);
        if b == b'\n' || line.len() == MOST_LINE {
            texts.push(std::mem::take(line));
        }
    }
}

/// The name by which this process finds an open file again.
fn own_path(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Waits a little until a pipe is empty.
fn drained(fd: &OwnedFd) {
    for _ in 0..PATIENCE.as_millis() {
        if rustix::io::ioctl_fionread(fd).map_or(true, |n| n == 0) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn window() -> Result<OwnedFd, Errno> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let every = Timespec {
        tv_sec: 0,
        tv_nsec: WINDOW.subsec_nanos().into(),
    };
    let spec = Itimerspec {
        it_interval: every,
        it_value: every,
    };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &spec)?;
    Ok(timer)
}

fn expired(timer: &OwnedFd) -> bool {
    rustix::io::read(timer, &mut [0; 8]).is_ok()
}

#[cfg(test)]
mod tests;
