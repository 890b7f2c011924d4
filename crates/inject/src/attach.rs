//! Attaches hooks to a process, and detaches them.

use std::cell::Cell;
use std::collections::HashSet;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, memfd_create};
use spile_cast::Cast;

use crate::displaced::{self, HookedPlaces};
use crate::error::{Error, Refusal};
use crate::image::{FunctionHook, ProcessImage};
use crate::mapped::Mapper;
use crate::place::{ENTRY_FILE, Place};
use crate::process::{Mapping, Memory, ProcessFacts, Status, mappings, traced_by};
use crate::processor::relocate::{self, Moves};
use crate::processor::{entry, find, frames};
use crate::ptrace;
use crate::remote::{self, Remote};
use crate::threads::Stopped;

/// Room for the entry code of a place with one hook, and for the routine that finds a record.
const ENTRY: u64 = 1024;
const FIND: u64 = 2048;
const ALIGNED: u64 = 16;

/// How often and how long to wait for threads to leave entry code.
const TRIES: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);

/// How often to look for children that were forked meanwhile.
const ROUNDS: usize = 10;

/// A place in a process, and what it has instead of its first instructions.
#[derive(Debug, Clone)]
struct Patch {
    at: u64,
    before: Vec<u8>,
    after: Vec<u8>,
    moves: Moves,
}

/// Places within reach of one mapping of the image. A program and its libraries are often further apart than a jump
/// reaches.
#[derive(Debug, Clone)]
struct Group {
    place: Place,
    /// The file of the entry code, by its inode.
    code: u64,
    patches: Vec<Patch>,
    /// Number of places.
    places: usize,
}

/// A process with hooks. They stay when this is dropped: only [`Attached::detach`] removes them.
#[derive(Debug, Clone)]
pub struct Attached {
    pid: u32,
    groups: Vec<Group>,
    refused: Vec<(u64, Refusal)>,
    stopped: Duration,
}

impl Attached {
    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Number of places that are hooked.
    #[must_use]
    pub fn hooked(&self) -> usize {
        self.groups.iter().map(|group| group.places).sum()
    }

    /// The places that are not, with the reasons.
    #[must_use]
    pub fn refused(&self) -> &[(u64, Refusal)] {
        &self.refused
    }

    /// An address of the image in the process.
    #[must_use]
    pub fn image(&self) -> u64 {
        self.groups.first().map_or(0, |group| group.place.image)
    }

    /// How long all threads stood at once. One stood longer, to map the image.
    #[must_use]
    pub fn stopped(&self) -> Duration {
        self.stopped
    }

    /// Removes the hooks and the image, unless the process runs another program by now; and from the children that it forked,
    /// except for `others`, as far as they can be traced. Returns how long all threads of the process stood at once at most.
    ///
    /// # Errors
    /// The process has ended, or cannot be traced; a thread stays in a handler; or somebody else changed a place, such as a
    /// debugger, so that what is mapped has to stay.
    pub fn detach(mut self, others: &[u32]) -> Result<Duration, Error> {
        let left = self.leave().map_err(|e| unless_ended(self.pid, e));
        let mut seen: HashSet<u32> = others.iter().copied().collect();
        seen.insert(self.pid);
        // Those that were forked meanwhile have the hooks, too.
        for _ in 0..ROUNDS {
            let copies = spile_kernel::process::all().into_iter();
            let copies = copies.filter(|pid| !seen.contains(pid) && self.is_in(*pid));
            let copies: Vec<u32> = copies.collect();
            if copies.is_empty() {
                break;
            }
            for pid in copies {
                seen.insert(pid);
                self.pid = pid;
                let _ = self.leave();
            }
        }
        left
    }

    /// The same hooks in a child that the process has forked.
    #[must_use]
    pub fn forked(&self, pid: u32) -> Attached {
        Attached {
            pid,
            ..self.clone()
        }
    }

    /// Whether a process has the entry code, because it is this one or was forked from it.
    #[must_use]
    pub fn is_in(&self, pid: u32) -> bool {
        mappings(pid).is_ok_and(|maps| maps.iter().any(|map| self.is_ours(map)))
    }

    /// The files of entry code, by their inodes.
    pub fn files(&self) -> impl Iterator<Item = u64> {
        self.groups.iter().map(|group| group.code)
    }

    fn is_ours(&self, map: &Mapping) -> bool {
        let mut groups = self.groups.iter();
        groups.any(|group| map.start == group.place.code && map.inode == group.code)
    }

    /// Hooks more places, such as those of libraries that were not there before. `start`: the process is a child that
    /// the calling thread traces, and that stands ([`attach_at_start`]).
    ///
    /// # Errors
    /// See [`attach`].
    pub fn extend(
        &mut self,
        image: &ProcessImage,
        hooks: &[FunctionHook],
        start: bool,
    ) -> Result<(), Error> {
        let more = enter(self.pid, image, hooks, start)?;
        self.groups.extend(more.groups);
        self.refused.extend(more.refused);
        Ok(())
    }

    fn patches(&self) -> impl Iterator<Item = &Patch> {
        self.groups.iter().flat_map(|group| &group.patches)
    }

    /// Forgets the hooks in a range of memory, if they are no more there: other code was mapped. Returns whether there were
    /// any.
    pub fn forget_lost(&mut self, range: Range<u64>) -> bool {
        let here = |patch: &&Patch| range.contains(&patch.at);
        let Some(first) = self.patches().find(here) else {
            return false;
        };
        let memory = Memory::open(self.pid);
        let now = memory.map(|memory| memory.read(first.at, first.after.len() as u64));
        if now.is_ok_and(|now| now == first.after) {
            return false;
        }
        for group in &mut self.groups {
            group.patches.retain(|patch| !range.contains(&patch.at));
        }
        true
    }

    fn places(&self) -> impl Iterator<Item = &Place> + Clone {
        self.groups.iter().map(|group| &group.place)
    }

    fn leave(&self) -> Result<Duration, Error> {
        let maps = mappings(self.pid)?;
        if !maps.iter().any(|map| self.is_ours(map)) {
            // It runs another program.
            return Ok(Duration::ZERO);
        }
        let memory = Memory::open(self.pid)?;
        let at = remote::instruction(&outside(self.places(), maps), &memory)?;
        let mut longest = Duration::ZERO;
        let mut inside = None;
        for _ in 0..TRIES {
            let (took, found) = tracer(self.pid, || self.restore(&memory))?;
            longest = longest.max(took);
            inside = found;
            if inside.is_none() {
                // Nobody can come back there.
                tracer(self.pid, || self.unmap(&memory, at))?;
                return Ok(longest);
            }
            std::thread::sleep(PAUSE);
        }
        Err(Error::Lingering(inside.unwrap_or(self.pid)))
    }

    /// Takes the jumps back while all threads stand. Returns how long, and a thread that is inside.
    fn restore(&self, memory: &Memory) -> Result<(Duration, Option<u32>), Error> {
        let since = Instant::now();
        let mut threads = Stopped::one(self.pid)?;
        threads.stop_all(self.pid)?;
        let mut foreign = None;
        for patch in self.patches() {
            match memory.read(patch.at, patch.before.len() as u64) {
                bytes if bytes == patch.after => memory.write(patch.at, &patch.before)?,
                bytes if bytes == patch.before => {}
                // It was unmapped.
                bytes if bytes.is_empty() => {}
                _ => foreign = Some(patch.at),
            }
        }
        // Somebody else's bytes stay, and may lead to ours later.
        if let Some(at) = foreign {
            return Err(Error::Changed(at));
        }
        let inside = self.inside(&threads, memory)?;
        Ok((since.elapsed(), inside))
    }

    /// A thread that will go on in what we mapped. Those in a copy of an instruction are moved to the instruction.
    fn inside(&self, threads: &Stopped, memory: &Memory) -> Result<Option<u32>, Error> {
        let maps = mappings(self.pid)?;
        let mut inside = None;
        for tid in &threads.tids {
            let top = |at| self.places().find_map(|place| place.top(at));
            for (which, address) in frames::resumes(*tid, &maps, memory, top)? {
                if !self.places().any(|place| place.contains(address)) {
                    continue;
                }
                let mut moves = self.patches().flat_map(|patch| &patch.moves);
                match moves.find(|(_, copy)| *copy == address) {
                    Some((from, _)) => frames::move_to(*tid, memory, which, *from)?,
                    None => inside = Some(*tid),
                }
            }
        }
        Ok(inside)
    }

    fn unmap(&self, memory: &Memory, at: u64) -> Result<(), Error> {
        let threads = Stopped::one(self.pid)?;
        let remote = Remote::new(threads.tids[0], threads.seized)?;
        for place in self.places() {
            let mapper = Mapper {
                pid: self.pid,
                remote: &remote,
                at,
                memory,
                place: *place,
            };
            mapper.unmap()?;
        }
        remote.finish()
    }
}

/// The files of entry code that any process has in its memory, by their inodes.
#[must_use]
pub fn entry_files() -> HashSet<u64> {
    let maps = spile_kernel::process::all()
        .into_iter()
        .filter_map(|pid| mappings(pid).ok());
    let ours = maps.flatten().filter(|map| map.path.contains(ENTRY_FILE));
    ours.map(|map| map.inode).collect()
}

/// Runs in a thread of its own, whose end lets go what it traces: all threads at once, whatever happened. One by one would
/// take long, because each that runs on takes the processor.
fn tracer<T: Send>(pid: u32, work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    let work = || {
        ptrace::run_promptly();
        // SAFETY: a number.
        (unsafe { libc::gettid() }.cast_unsigned(), work())
    };
    let (tid, result) = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, work);
        let thread = thread.map_err(|e| Error::System("start a thread", e))?;
        let joined = thread.join();
        Ok(joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    // The kernel lets go a moment after the thread can be joined.
    while traced_by(pid, tid) {
        std::thread::sleep(Duration::from_micros(20));
    }
    result
}

/// An error, or the end of the process, which makes anything fail.
fn unless_ended(pid: u32, error: Error) -> Error {
    match mappings(pid) {
        Err(Error::Ended) => Error::Ended,
        _ => error,
    }
}

/// The mappings that are not ours.
fn outside<'p>(
    places: impl Iterator<Item = &'p Place> + Clone,
    maps: Vec<Mapping>,
) -> Vec<Mapping> {
    let is_ours = |m: &Mapping| places.clone().any(|place| place.contains(m.start));
    maps.into_iter().filter(|m| !is_ours(m)).collect()
}

/// Hooks functions of a running process.
///
/// # Errors
/// It cannot be traced, has no room, or no function can be hooked. It then runs on as before.
pub fn attach(pid: u32, image: &ProcessImage, hooks: &[FunctionHook]) -> Result<Attached, Error> {
    enter(pid, image, hooks, false)
}

/// Hooks functions of a child that the calling thread traces, and that stands behind its `execve`. It still stands there
/// afterwards.
///
/// # Errors
/// See [`attach`].
pub fn attach_at_start(
    pid: u32,
    image: &ProcessImage,
    hooks: &[FunctionHook],
) -> Result<Attached, Error> {
    enter(pid, image, hooks, true)
}

fn enter(
    pid: u32,
    image: &ProcessImage,
    hooks: &[FunctionHook],
    start: bool,
) -> Result<Attached, Error> {
    let plan = Plan::new(pid, image, hooks).map_err(|e| unless_ended(pid, e))?;
    let stopped = match start {
        true => Stopped::at_start(pid).and_then(|threads| plan.carry_out(image, threads)),
        false => tracer(pid, || plan.carry_out(image, Stopped::one(pid)?)),
    };
    let stopped = stopped.map_err(|e| unless_ended(pid, e))?;
    Ok(plan.attached(stopped))
}

/// All that can be known before the threads stop.
struct Plan {
    pid: u32,
    memory: Memory,
    /// The address of an instruction that calls the kernel.
    call: u64,
    /// With the file of each one's entry code.
    groups: Vec<(Group, OwnedFd)>,
    refused: Vec<(u64, Refusal)>,
}

impl Plan {
    fn new(pid: u32, image: &ProcessImage, hooks: &[FunctionHook]) -> Result<Plan, Error> {
        let (status, own) = (Status::read(pid), Status::read(std::process::id()));
        match (status, own) {
            (Err(_), _) => return Err(Error::Ended),
            (Ok(status), _) if status.zombie => return Err(Error::Ended),
            (Ok(status), Ok(own)) if status.filtered_more_than(&own) => {
                return Err(Error::Filtered);
            }
            (Ok(_), _) => {}
        }
        let memory = Memory::open(pid)?;
        let maps = mappings(pid)?;
        let call = remote::instruction(&maps, &memory)?;
        let facts = ProcessFacts::read(pid, &maps, image.clock);
        let mut refused = Vec::new();
        let places = displaced::displaced(&memory, &maps, hooks, &mut refused);
        let groups = grouped(places, (&maps, facts), image, &mut refused)?;
        if groups.is_empty() {
            return Err(Error::Refused(refused));
        }
        Ok(Plan {
            pid,
            memory,
            call,
            groups,
            refused,
        })
    }

    /// Maps all by one stopped thread, then writes the jumps while all stand: all, or nothing. Returns how long all stood.
    fn carry_out(&self, image: &ProcessImage, mut threads: Stopped) -> Result<Duration, Error> {
        self.map(&threads, image)?;
        let since = Instant::now();
        let written = threads
            .stop_all(self.pid)
            .and_then(|()| self.write(&threads));
        if let Err(error) = written {
            for patch in self.patches() {
                // It had these bytes before.
                let _ = self.memory.write(patch.at, &patch.before);
            }
            let _ = self.with_one(&threads, |mapper, _| mapper.unmap());
            return Err(error);
        }
        Ok(since.elapsed())
    }

    fn patches(&self) -> impl Iterator<Item = &Patch> {
        self.groups.iter().flat_map(|(group, _)| &group.patches)
    }

    /// Does something for each group by system calls of the first thread.
    fn with_one(
        &self,
        threads: &Stopped,
        work: impl Fn(&Mapper, &OwnedFd) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let remote = Remote::new(threads.tids[0], threads.seized)?;
        let mut all = self.groups.iter();
        let result = all.try_for_each(|(group, code)| {
            let mapper = Mapper {
                pid: self.pid,
                remote: &remote,
                at: self.call,
                memory: &self.memory,
                place: group.place,
            };
            work(&mapper, code)
        });
        result.and(remote.finish())
    }

    fn map(&self, threads: &Stopped, image: &ProcessImage) -> Result<(), Error> {
        let mapped = Cell::new(0);
        let result = self.with_one(threads, |mapper, code| {
            mapper.map(image, code.as_fd())?;
            mapped.set(mapped.get() + 1);
            Ok(())
        });
        if result.is_err() {
            let left = Cell::new(mapped.get());
            let _ = self.with_one(threads, |mapper, _| match left.get() {
                0 => Ok(()),
                n => {
                    left.set(n - 1);
                    mapper.unmap()
                }
            });
        }
        result
    }

    /// Writes the jumps, and moves threads from instructions that are no more to their copies.
    fn write(&self, threads: &Stopped) -> Result<(), Error> {
        let maps = mappings(self.pid)?;
        let mut moved = Vec::new();
        for tid in &threads.tids {
            for (which, address) in frames::resumes(*tid, &maps, &self.memory, |_| None)? {
                let mut moves = self.patches().flat_map(|p| &p.moves);
                let to = moves.find(|(from, _)| *from == address);
                moved.extend(to.map(|(_, to)| (*tid, which, *to)));
            }
        }
        for patch in self.patches() {
            if self.memory.read(patch.at, patch.before.len() as u64) != patch.before {
                return Err(Error::Changed(patch.at));
            }
        }
        self.patches()
            .try_for_each(|p| self.memory.write(p.at, &p.after))?;
        moved
            .into_iter()
            .try_for_each(|(tid, which, to)| frames::move_to(tid, &self.memory, which, to))
    }

    fn attached(self, stopped: Duration) -> Attached {
        Attached {
            pid: self.pid,
            groups: self.groups.into_iter().map(|(group, _)| group).collect(),
            refused: self.refused,
            stopped,
        }
    }
}

/// The places in groups, each within reach of its own mapping of the image, with the files of their entry code.
fn grouped(
    mut left: Vec<HookedPlaces<'_>>,
    (maps, facts): (&[Mapping], ProcessFacts),
    image: &ProcessImage,
    refused: &mut Vec<(u64, Refusal)>,
) -> Result<Vec<(Group, OwnedFd)>, Error> {
    let mut maps = maps.to_vec();
    let mut groups = Vec::new();
    while !left.is_empty() {
        let functions: Vec<u64> = left.iter().map(|site| site.displaced.at).collect();
        let hooks: usize = left.iter().map(HookedPlaces::count).sum();
        let length = FIND + ENTRY * hooks as u64;
        let found = Place::find(&maps, image, length, &functions, facts);
        let place = match found {
            Err(_) if !groups.is_empty() => break,
            found => found?,
        };
        let (near, far) = left
            .into_iter()
            .partition(|site| place.reaches(site.displaced.at));
        left = far;
        let before = left.len();
        let (code, patches, places) = assemble(&place, near, refused)?;
        if !patches.is_empty() {
            let code =
                sealed(&code).map_err(|e| Error::System("make a file in memory", e.into()))?;
            maps.push(place.mapping());
            maps.sort_by_key(|m| m.start);
            let about = fstat(&code).map_err(|e| Error::System("look at a file", e.into()))?;
            let group = Group {
                place,
                code: about.st_ino,
                patches,
                places,
            };
            groups.push((group, code));
        } else if before == functions.len() {
            break;
        }
    }
    let far = left.iter().flat_map(HookedPlaces::addresses);
    refused.extend(far.map(|at| (at, Refusal::Far)));
    Ok(groups)
}

/// Entry code of all hooks, the jumps to it, and the number of places.
fn assemble(
    place: &Place,
    sites: Vec<HookedPlaces<'_>>,
    refused: &mut Vec<(u64, Refusal)>,
) -> Result<(Vec<u8>, Vec<Patch>, usize), Error> {
    let mut code = find::find(place, place.code).map_err(unwritten)?;
    let mut patches = Vec::new();
    let mut places = 0;
    for HookedPlaces { displaced, hooks } in sites {
        code.resize(code.len().next_multiple_of(ALIGNED.fit()), relocate::INT3);
        let at = place.code + code.len() as u64;
        let mut failed = None;
        let entry = |handled, at| {
            let here = hooks.iter().filter(|(place, _)| *place == handled);
            let here: Vec<&FunctionHook> = here.map(|(_, hook)| *hook).collect();
            let entry = entry::entry(place, &here, at, place.code);
            entry.map_err(|error| {
                failed = Some(unwritten(error));
                Refusal::Immovable
            })
        };
        let copied = displaced.around(at, entry);
        if let Some(error) = failed {
            return Err(error);
        }
        match copied {
            Err(why) => refused.extend(hooks.iter().map(|(_, hook)| (hook.place(), why))),
            Ok(copied) => {
                code.extend(copied.code);
                places += displaced.places().len();
                patches.push(Patch {
                    at: displaced.at,
                    before: displaced.bytes.clone(),
                    after: displaced.jump(at),
                    moves: copied.moves,
                });
            }
        }
    }
    match code.len() as u64 <= place.image - place.code {
        true => Ok((code, patches, places)),
        false => Err(Error::NoRoom),
    }
}

fn unwritten(error: impl std::fmt::Display) -> Error {
    Error::System("write entry code", std::io::Error::other(error.to_string()))
}

/// A file in memory that nobody can change any more.
fn sealed(bytes: &[u8]) -> rustix::io::Result<OwnedFd> {
    let file = memfd_create(ENTRY_FILE, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        rest = &rest[rustix::io::write(&file, rest)?..];
    }
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    Ok(file)
}
