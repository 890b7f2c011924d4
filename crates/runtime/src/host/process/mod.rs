//! The target's processes as the host of handlers: machine code in memory that they share with this process. No privilege
//! is needed.
//!
//! In: an object that was compiled for processes, and the processes. Out: hooks in them that lead to the object's
//! handlers; the tables, the state memory and the records that these write.
//!
//! | module | its one job |
//! |---|---|
//! | `event_programs` | the programs of events that a process does not see itself |
//! | `events` | runs them |
//! | `identity` | who the threads of these events are |
//! | `follow` | follows processes into the programs that they execute |
//! | `image` | the image of an object, and its tables for the controller |
//! | `calls` | where a process calls the kernel |
//! | `places` | the functions to hook, and where a process has them |
//! | `semaphores` | raises the semaphores of markers |
//! | `target` | a process, and what is hooked in it |
//! | `targets` | all of them |
//! | `wakeup` | tells the event loop that records wait |

mod calls;
mod event_programs;
mod events;
mod follow;
mod identity;
mod image;
mod places;
mod semaphores;
mod target;
mod targets;
mod wakeup;

use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use spile_bpf::compiled::{Object, RING};
use spile_ir::Program;
use spile_native::ring::SharedRing;

use crate::error::Error;
use crate::host::{Backend, Host, HostLosses, SessionHost, StartParams, Started};
use crate::machine::signals::Signals;
use crate::options::{SessionOptions, TargetProcess};
use crate::shared::init;
use crate::shared::kernel_state::KernelState;
use events::EventRunner;
use follow::Follower;
use image::SharedImage;
use target::Target;
use targets::Targets;
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
        let (hooks, calls, events) = places::hooks(object, &image, how.program)?;
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
            events,
            quiet: options.quiet,
            entered: Mutex::default(),
        });
        let mut backend = ProcessBackend {
            wakeup: wakeup.map_err(|e| Error::System("waiting for records", e))?,
            ring,
            follower: Follower::new(&targets),
            targets,
            events: None,
            lost: 0,
            kinds: Vec::new(),
        };
        backend.targets.image.reserve(identity::OWN_SLOT);
        if let TargetProcess::Pid(pid) = options.target {
            let mut target = Target::new(pid);
            target.enter(&backend.targets, false)?;
            backend.entered(target)?;
            backend.events = EventRunner::new(&backend.targets, pid, false)?;
        }
        Ok(Started {
            backend: Box::new(backend),
            memory,
            user_files: None,
        })
    }
}

/// The processes with the object in them.
struct ProcessBackend {
    targets: Arc<Targets>,
    follower: Option<Follower>,
    events: Option<EventRunner>,
    ring: Option<SharedRing>,
    wakeup: Option<Wakeup>,
    /// Events that were lost, as far as their runner is no more.
    lost: u64,
    /// What was attached at the start.
    kinds: Vec<String>,
}

impl ProcessBackend {
    /// Keeps the first process. An error if all of its places were refused.
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
        self.events = EventRunner::new(&self.targets, pid, true)?;
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
        self.settle();
        self.targets.leave();
    }

    fn settle(&mut self) {
        self.lost += self.events.take().map_or(0, |events| events.finish());
    }

    fn losses(&self) -> HostLosses {
        HostLosses {
            entries: self.targets.image.skipped()
                + self.lost
                + self.events.as_ref().map_or(0, EventRunner::lost),
            ..HostLosses::default()
        }
    }

    fn leak(self: Box<Self>) {
        std::mem::forget(self);
    }
}
