//! Attaches hooks to a process, and detaches them.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use spile_cast::Cast;

use crate::error::{Error, Refusal};
use crate::image::{FunctionHook, ProcessImage};
use crate::mapped::Mapper;
use crate::place::Place;
use crate::process::{Mapping, Memory, ProcessFacts, Status, mappings, traced_by};
use crate::processor::relocate::{self, Displaced, FunctionPlace, Moves};
use crate::processor::{entry, find, frames};
use crate::ptrace;
use crate::remote::{self, Remote};
use crate::threads::Stopped;

/// Room for the entry code of a hook, and for the routine that finds a record.
const ENTRY: u64 = 640;
/// A further handler of a place adds at most this.
const CALL: u64 = 32;
const FIND: u64 = 2048;
const ALIGNED: u64 = 16;
/// The name of the file with entry code, which the process's mappings show.
const ENTRY_FILE: &str = "spile-entry";

/// How often and how long to wait for threads to leave entry code.
const TRIES: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);

/// A place in a process, and what it has instead of its first instructions.
#[derive(Debug)]
struct Patch {
    at: u64,
    before: Vec<u8>,
    after: Vec<u8>,
    moves: Moves,
}

/// A process with hooks. They stay when this is dropped: only [`Attached::detach`] removes them.
#[derive(Debug)]
pub struct Attached {
    pid: u32,
    place: Place,
    patches: Vec<Patch>,
    refused: Vec<(u64, Refusal)>,
    stopped: Duration,
}

impl Attached {
    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Number of functions that are hooked.
    #[must_use]
    pub fn hooked(&self) -> usize {
        self.patches.len()
    }

    /// The functions that are not, with the reasons.
    #[must_use]
    pub fn refused(&self) -> &[(u64, Refusal)] {
        &self.refused
    }

    /// The address of the image in the process.
    #[must_use]
    pub fn image(&self) -> u64 {
        self.place.image
    }

    /// How long all threads stood at once. One stood longer, to map the image.
    #[must_use]
    pub fn stopped(&self) -> Duration {
        self.stopped
    }

    /// Removes the hooks and the image, unless the process runs another program by now. Returns how long all threads stood at
    /// once at most.
    ///
    /// # Errors
    /// The process has ended, or cannot be traced; a thread stays in a handler; or somebody else changed a place, such as a
    /// debugger, so that what is mapped has to stay.
    pub fn detach(self) -> Result<Duration, Error> {
        self.leave().map_err(|e| unless_ended(self.pid, e))
    }

    fn leave(&self) -> Result<Duration, Error> {
        let maps = mappings(self.pid)?;
        let ours = |m: &Mapping| m.start == self.place.code && m.name.contains(ENTRY_FILE);
        if !maps.iter().any(ours) {
            // It runs another program.
            return Ok(Duration::ZERO);
        }
        let memory = Memory::open(self.pid)?;
        let at = remote::instruction(&outside(&self.place, maps), &memory)?;
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
        for patch in &self.patches {
            match memory.read(patch.at, patch.before.len() as u64) {
                bytes if bytes == patch.after => memory.write(patch.at, &patch.before)?,
                bytes if bytes == patch.before => {}
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

    /// A thread that will go on in what we mapped.
    fn inside(&self, threads: &Stopped, memory: &Memory) -> Result<Option<u32>, Error> {
        let maps = mappings(self.pid)?;
        for tid in &threads.tids {
            let all = frames::resumes(*tid, &maps, memory, |a| self.place.top(a))?;
            if all.iter().any(|(_, address)| self.place.contains(*address)) {
                return Ok(Some(*tid));
            }
        }
        Ok(None)
    }

    fn unmap(&self, memory: &Memory, at: u64) -> Result<(), Error> {
        let threads = Stopped::one(self.pid)?;
        let remote = Remote::new(threads.tids[0], threads.seized)?;
        let mapper = Mapper {
            pid: self.pid,
            remote: &remote,
            at,
            memory,
            place: self.place,
        };
        mapper.unmap()?;
        remote.finish()
    }
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
fn outside(place: &Place, maps: Vec<Mapping>) -> Vec<Mapping> {
    maps.into_iter()
        .filter(|m| !place.contains(m.start))
        .collect()
}

/// Hooks functions of a running process.
///
/// # Errors
/// It cannot be traced, has no room, or no function can be hooked. It then runs on as before.
pub fn attach(pid: u32, image: &ProcessImage, hooks: &[FunctionHook]) -> Result<Attached, Error> {
    let plan = Plan::new(pid, image, hooks).map_err(|e| unless_ended(pid, e))?;
    let stopped = tracer(pid, || plan.carry_out(image, Stopped::one(pid)?));
    let stopped = stopped.map_err(|e| unless_ended(pid, e))?;
    Ok(plan.attached(stopped))
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
    let plan = Plan::new(pid, image, hooks).map_err(|e| unless_ended(pid, e))?;
    let stopped = Stopped::at_start(pid).and_then(|threads| plan.carry_out(image, threads));
    let stopped = stopped.map_err(|e| unless_ended(pid, e))?;
    Ok(plan.attached(stopped))
}

/// All that can be known before the threads stop.
struct Plan {
    pid: u32,
    memory: Memory,
    /// The address of an instruction that calls the kernel.
    call: u64,
    place: Place,
    patches: Vec<Patch>,
    refused: Vec<(u64, Refusal)>,
    code: OwnedFd,
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
        let mut refused = Vec::new();
        let displaced = displaced(&memory, &maps, hooks, &mut refused);
        let functions: Vec<u64> = displaced.iter().map(|(_, d)| d.at).collect();
        if functions.is_empty() {
            return Err(Error::Refused(refused));
        }
        let length = FIND + ENTRY * functions.len() as u64 + CALL * hooks.len() as u64;
        let facts = ProcessFacts::read(pid, &maps, image.clock);
        let place = Place::find(&maps, image, length, &functions, facts)?;
        let (code, patches) = assemble(&place, &displaced, &mut refused)?;
        if patches.is_empty() {
            return Err(Error::Refused(refused));
        }
        Ok(Plan {
            pid,
            memory,
            call,
            place,
            patches,
            refused,
            code: sealed(&code).map_err(|e| Error::System("make a file in memory", e.into()))?,
        })
    }

    /// Maps all by one stopped thread, then writes the jumps while all stand: all, or nothing. Returns how long all stood.
    fn carry_out(&self, image: &ProcessImage, mut threads: Stopped) -> Result<Duration, Error> {
        let with_one = |threads: &Stopped, work: &dyn Fn(&Mapper) -> Result<(), Error>| {
            let remote = Remote::new(threads.tids[0], threads.seized)?;
            let result = work(&Mapper {
                pid: self.pid,
                remote: &remote,
                at: self.call,
                memory: &self.memory,
                place: self.place,
            });
            result.and(remote.finish())
        };
        with_one(&threads, &|mapper| mapper.map(image, self.code.as_fd()))?;
        let since = Instant::now();
        let written = threads
            .stop_all(self.pid)
            .and_then(|()| self.write(&threads));
        if let Err(error) = written {
            for patch in &self.patches {
                // It had these bytes before.
                let _ = self.memory.write(patch.at, &patch.before);
            }
            let _ = with_one(&threads, &|mapper| mapper.unmap());
            return Err(error);
        }
        Ok(since.elapsed())
    }

    /// Writes the jumps, and moves threads from instructions that are no more to their copies.
    fn write(&self, threads: &Stopped) -> Result<(), Error> {
        let maps = mappings(self.pid)?;
        let mut moved = Vec::new();
        for tid in &threads.tids {
            for (which, address) in frames::resumes(*tid, &maps, &self.memory, |_| None)? {
                let to = self
                    .patches
                    .iter()
                    .flat_map(|p| &p.moves)
                    .find(|(from, _)| *from == address);
                moved.extend(to.map(|(_, to)| (*tid, which, *to)));
            }
        }
        for patch in &self.patches {
            if self.memory.read(patch.at, patch.before.len() as u64) != patch.before {
                return Err(Error::Changed(patch.at));
            }
        }
        self.patches
            .iter()
            .try_for_each(|p| self.memory.write(p.at, &p.after))?;
        moved
            .into_iter()
            .try_for_each(|(tid, which, to)| frames::move_to(tid, &self.memory, which, to))
    }

    fn attached(self, stopped: Duration) -> Attached {
        Attached {
            pid: self.pid,
            place: self.place,
            patches: self.patches,
            refused: self.refused,
            stopped,
        }
    }
}

/// The hooks of a place, and what a jump replaces there.
type PlaceHooks<'h> = (Vec<&'h FunctionHook>, Displaced);

/// What jumps replace in the functions that can be hooked.
fn displaced<'h>(
    memory: &Memory,
    maps: &[Mapping],
    hooks: &'h [FunctionHook],
    refused: &mut Vec<(u64, Refusal)>,
) -> Vec<PlaceHooks<'h>> {
    let mut all: Vec<PlaceHooks<'_>> = Vec::new();
    let mut sorted: Vec<&FunctionHook> = hooks.iter().collect();
    sorted.sort_by_key(|h| h.place());
    for group in sorted.chunk_by(|a, b| a.place() == b.place()) {
        let first = group[0];
        let length = (first.size.max(first.offset + relocate::SHORT)).min(relocate::READ);
        let code = memory.read(first.address, length);
        let place = FunctionPlace {
            address: first.address,
            size: first.size,
            offset: first.offset,
        };
        match relocate::displaced(place, &code, &|at, n| memory.read(at, n)) {
            Ok(found) if all.last().is_some_and(|(_, d)| d.end() > found.at) => {
                refused.push((first.place(), Refusal::Overlap));
            }
            Ok(found) => all.push((group.to_vec(), found)),
            Err(why) => refused.push((first.place(), why)),
        }
    }
    for mapping in maps.iter().filter(|m| m.executable && m.readable) {
        let here = |at: u64| (mapping.start..mapping.end).contains(&at);
        let inner = all
            .iter()
            .filter(|(_, d)| here(d.at))
            .map(|(_, d)| d.inner.clone());
        let inner: Vec<Range<u64>> = inner.collect();
        if inner.is_empty() {
            continue;
        }
        let code = memory.read(mapping.start, mapping.end - mapping.start);
        let mut jumped = relocate::jumped_into(&code, mapping.start, &inner).into_iter();
        all.retain(|(hooks, displaced)| {
            let keep = !here(displaced.at) || jumped.next() == Some(false);
            if !keep {
                refused.push((hooks[0].place(), Refusal::JumpedTo));
            }
            keep
        });
    }
    all
}

/// Entry code of all hooks, and the jumps to it.
fn assemble(
    place: &Place,
    displaced: &[PlaceHooks<'_>],
    refused: &mut Vec<(u64, Refusal)>,
) -> Result<(Vec<u8>, Vec<Patch>), Error> {
    let mut code = find::find(place, place.code).map_err(unwritten)?;
    let mut patches = Vec::new();
    for (hooks, displaced) in displaced {
        code.resize(code.len().next_multiple_of(ALIGNED.fit()), relocate::INT3);
        let at = place.code + code.len() as u64;
        let mut failed = None;
        let entry = |at| {
            let entry = entry::entry(place, hooks, at, place.code);
            entry.map_err(|error| {
                failed = Some(unwritten(error));
                Refusal::Immovable
            })
        };
        let copied = match place.reaches(displaced.at) {
            true => displaced.around(at, entry),
            false => Err(Refusal::Far),
        };
        if let Some(error) = failed {
            return Err(error);
        }
        match copied {
            Err(why) => refused.push((hooks[0].place(), why)),
            Ok(copied) => {
                code.extend(copied.code);
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
        true => Ok((code, patches)),
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
