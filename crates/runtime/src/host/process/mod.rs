//! The target's processes as the host of handlers: machine code in memory that they share with this process. No privilege
//! is needed.
//!
//! In: an object that was compiled for processes, and the processes. Out: hooks in them that lead to the object's
//! handlers; the tables, the state memory and the records that these write.
//!
//! | module | its one job |
//! |---|---|
//! | `follow` | follows processes into the programs that they execute |
//! | `image` | the image of an object, and its tables for the controller |
//! | `calls` | where a process calls the kernel |
//! | `places` | the functions to hook, and where a process has them |
//! | `semaphores` | raises the semaphores of markers |
//! | `target` | a process, and what is hooked in it |
//! | `wakeup` | tells the event loop that records wait |

mod calls;
mod follow;
mod image;
mod places;
mod semaphores;
mod target;
mod wakeup;

use std::collections::{BTreeSet, HashSet};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spile_bpf::compiled::{Object, RING};
use spile_ir::Program;
use spile_kernel::process::of_thread;
use spile_native::ring::SharedRing;

use crate::error::Error;
use crate::host::{Backend, Host, HostLosses, SessionHost, StartParams, Started};
use crate::io::output;
use crate::machine::signals::Signals;
use crate::options::{SessionOptions, TargetProcess};
use crate::shared::init;
use crate::shared::kernel_state::KernelState;
use calls::CallHooks;
use follow::Follower;
use image::SharedImage;
use places::FileHook;
use target::Target;
use wakeup::Wakeup;

/// The processes that a session follows, and the object that they are to run.
struct ProcessHost<'o>(&'o Object);

impl<'o> SessionHost<'o> {
    /// The target's processes, which run an object that was compiled for them.
    pub fn process(object: &'o Object) -> SessionHost<'o> {
        SessionHost(Box::new(ProcessHost(object)))
    }
}

impl Host for ProcessHost<'_> {
    fn stops_command(&self) -> bool {
        true
    }

    fn start(
        self: Box<Self>,
        how: StartParams<'_>,
        options: &mut SessionOptions,
    ) -> Result<Started, Error> {
        let ProcessHost(object) = *self;
        let image = SharedImage::new(object)?;
        let (hooks, calls) = places::hooks(object, &image, how.program)?;
        how.probed.unchanged()?;
        let state = Rc::new(image.state(&object.layout)?);
        init::set_shared_words(&state, how.target);
        if let Some(deferred) = how.deferred {
            init::set_mark(&state, deferred.word());
        }
        let memory = KernelState::new(&image, state, &object.layout)?;
        let ring = image.ring(RING);
        let wakeup = image.ring(RING).map(Wakeup::new).transpose();
        let targets = Arc::new(Targets {
            image,
            hooks,
            calls,
            quiet: options.quiet,
            entered: Mutex::default(),
        });
        let mut backend = ProcessBackend {
            wakeup: wakeup.map_err(|e| Error::System("waiting for records", e))?,
            ring,
            follower: Follower::new(&targets),
            targets,
            kinds: Vec::new(),
        };
        if let TargetProcess::Pid(pid) = options.target {
            let mut target = Target::new(pid);
            target.enter(&backend.targets, false)?;
            backend.entered(target)?;
        }
        Ok(Started {
            backend: Box::new(backend),
            memory,
            user_files: None,
        })
    }
}

/// The target's processes, and what is hooked in them.
struct Targets {
    image: SharedImage,
    hooks: Vec<FileHook>,
    calls: CallHooks,
    quiet: bool,
    entered: Mutex<Entered>,
}

/// The processes that have handlers.
#[derive(Default)]
struct Entered {
    /// The newest last: a process that executes another program has several.
    targets: Vec<Target>,
    /// Beyond this number of them, some may have ended.
    enough: usize,
    /// Whether markers may be told that somebody listens.
    raised: bool,
    /// Indexes of the hooks in files that some process had.
    seen: BTreeSet<usize>,
    /// What was warned of: programs are executed often.
    warned: HashSet<String>,
}

impl Entered {
    /// Forgets processes that have ended, now and then: a build executes thousands of programs. What a process had before
    /// it executed another program stays as long as its children have it.
    fn prune(&mut self) {
        if self.targets.len() > self.enough {
            let files = spile_inject::entry_files();
            self.targets.retain_mut(|target| {
                let is_alive = target.is_alive(&files);
                if !is_alive {
                    target.forget();
                }
                is_alive
            });
            self.enough = 2 * self.targets.len() + FEW;
        }
    }
}

/// So many processes are kept without a look at whether they are still there.
const FEW: usize = 32;

fn semaphore_error(e: std::io::Error) -> Error {
    Error::System("the semaphores of markers", e)
}

impl Targets {
    fn entered(&self) -> MutexGuard<'_, Entered> {
        self.entered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn warn(&self, entered: &mut Entered, texts: impl Iterator<Item = String>) {
        for text in texts {
            if !self.quiet && entered.warned.insert(text.clone()) {
                output::warn(&text);
            }
        }
    }

    /// Keeps a process in which all is hooked, and warns of places that are left out.
    fn add(&self, mut target: Target) -> Result<(), Error> {
        let refused = target.take_refused();
        let mut entered = self.entered();
        entered.seen.extend(target.seen());
        if entered.raised {
            target.raise()?;
        }
        entered.targets.push(target);
        entered.prune();
        self.warn(&mut entered, places::warnings(&refused));
        Ok(())
    }

    /// Hooks the places in code that the process of a thread has mapped.
    fn mapped(&self, thread: u32) -> Result<(), Error> {
        let pid = of_thread(thread).unwrap_or(thread);
        let mut target = {
            let mut entered = self.entered();
            let known = entered
                .targets
                .iter()
                .rposition(|target| target.pid() == pid);
            let forked = |all: &[Target]| all.iter().rev().find_map(|target| target.forked(pid));
            match known {
                Some(known) => entered.targets.remove(known),
                None => forked(&entered.targets).unwrap_or_else(|| Target::new(pid)),
            }
        };
        let result = target.enter(self, false);
        result.and(self.add(target))
    }

    fn raise(&self) -> Result<(), Error> {
        let mut entered = self.entered();
        entered.raised = true;
        entered.targets.iter_mut().try_for_each(Target::raise)
    }

    /// Takes all hooks back.
    fn leave(&self) {
        let mut entered = self.entered();
        let all: Vec<u32> = entered.targets.iter().map(Target::pid).collect();
        let mut targets = std::mem::take(&mut entered.targets);
        targets.iter_mut().for_each(|target| target.leave(&all));
        let missing = places::missing(&self.hooks, &entered.seen);
        // Once is enough, whatever ends the session again.
        entered.seen.extend(0..self.hooks.len());
        self.warn(&mut entered, places::warnings(&missing));
        self.image.recover();
    }
}

/// The processes with the object in them.
struct ProcessBackend {
    targets: Arc<Targets>,
    follower: Option<Follower>,
    ring: Option<SharedRing>,
    wakeup: Option<Wakeup>,
    /// What was attached at the start.
    kinds: Vec<String>,
}

impl ProcessBackend {
    /// Keeps the first process. That nothing is hooked in it is an error, unless a file may be one of those that it
    /// executes later.
    fn entered(&mut self, target: Target) -> Result<(), Error> {
        let (pid, hooked) = (target.pid(), target.hooked());
        if let Some(first) = target.all_refused() {
            let text = format!("{}: {}", first.location, first.why);
            return Err(Error::Enter(pid, text));
        }
        if hooked > 0 {
            self.kinds
                .push(format!("process {pid}: {hooked} places by jumps"));
        }
        self.targets.add(target)
    }
}

/// Whatever ends the session, the processes have no hooks afterwards.
impl Drop for ProcessBackend {
    fn drop(&mut self) {
        self.detach();
    }
}

impl Backend for ProcessBackend {
    fn attach_kinds(&self) -> &[String] {
        &self.kinds
    }

    fn attach_visible(&mut self, _: &Program, _: &Rc<Signals>) -> Result<Option<String>, Error> {
        self.targets.raise()?;
        Ok(None)
    }

    fn watch_command(&mut self, pid: u32) -> Result<(), Error> {
        let mut target = Target::new(pid);
        target.enter(&self.targets, true)?;
        self.entered(target)?;
        self.targets.raise()
    }

    fn watch_executed(&mut self, _: u32, _: u64) -> Result<(), Error> {
        Ok(())
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.wakeup.as_ref().map(Wakeup::readiness)
    }

    fn take_records(&mut self, most: usize, take: &mut dyn FnMut(&[u8])) {
        let Some(ring) = &mut self.ring else { return };
        let taken = ring.consume(most, take);
        if let Some(wakeup) = self.wakeup.as_ref().filter(|_| taken < most) {
            wakeup.taken();
        }
    }

    fn detach(&mut self) {
        self.follower = None;
        self.targets.leave();
    }

    fn losses(&self) -> HostLosses {
        HostLosses {
            entries: self.targets.image.skipped(),
            ..HostLosses::default()
        }
    }

    fn leak(self: Box<Self>) {
        std::mem::forget(self);
    }
}
