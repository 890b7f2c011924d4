//! The target's processes as the host of handlers: machine code in memory that they share with this process. No privilege
//! is needed.
//!
//! In: an object that was compiled for processes, and the processes. Out: hooks in them that lead to the object's
//! handlers; the tables, the state memory and the records that these write.
//!
//! | module | its one job |
//! |---|---|
//! | `image` | the image of an object, and its tables for the controller |
//! | `places` | the functions to hook, and where a process has them |
//! | `semaphores` | raises the semaphores of markers |
//! | `wakeup` | tells the event loop that records wait |

mod image;
mod places;
mod semaphores;
mod wakeup;

use std::os::fd::BorrowedFd;
use std::rc::Rc;

use spile_bpf::compiled::{Object, RING};
use spile_inject::{Attached, FunctionHook, ProcessImage};
use spile_ir::Program;
use spile_native::ring::SharedRing;

use crate::attach::site::RefusedLocation;
use crate::error::Error;
use crate::host::{Backend, Host, HostLosses, SessionHost, StartParams, Started};
use crate::io::output;
use crate::machine::signals::Signals;
use crate::options::{SessionOptions, TargetProcess};
use crate::shared::init;
use crate::shared::kernel_state::KernelState;
use image::SharedImage;
use places::FileHook;
use semaphores::Semaphores;
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
        let image = Rc::new(SharedImage::new(object)?);
        let hooks = places::hooks(object, &image, how.program)?;
        how.probed.unchanged()?;
        let state = Rc::new(image.state(&object.layout)?);
        init::set_shared_words(&state, how.target);
        if let Some(deferred) = how.deferred {
            init::set_mark(&state, deferred.word());
        }
        let memory = KernelState::new(&*image, state, &object.layout)?;
        let ring = image.ring(RING);
        let wakeup = image.ring(RING).map(Wakeup::new).transpose();
        let mut backend = ProcessBackend {
            wakeup: wakeup.map_err(|e| Error::System("waiting for records", e))?,
            ring,
            image,
            hooks,
            attached: Vec::new(),
            semaphores: Vec::new(),
            kinds: Vec::new(),
            quiet: options.quiet,
        };
        if let TargetProcess::Pid(pid) = options.target {
            backend.enter(pid, spile_inject::attach)?;
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
    image: Rc<SharedImage>,
    hooks: Vec<FileHook>,
    attached: Vec<Attached>,
    semaphores: Vec<Semaphores>,
    ring: Option<SharedRing>,
    wakeup: Option<Wakeup>,
    /// What was attached, one line for each process.
    kinds: Vec<String>,
    quiet: bool,
}

fn semaphore_error(e: std::io::Error) -> Error {
    Error::System("the semaphores of markers", e)
}

/// How to get into a process.
type EnterFn = fn(u32, &ProcessImage<'_>, &[FunctionHook]) -> Result<Attached, spile_inject::Error>;

impl ProcessBackend {
    fn raise(&mut self) -> Result<(), Error> {
        let mut all = self.semaphores.iter_mut();
        all.try_for_each(Semaphores::raise).map_err(semaphore_error)
    }

    /// Hooks the places that a process has.
    fn enter(&mut self, pid: u32, enter: EnterFn) -> Result<(), Error> {
        let (hooks, mut refused) = places::in_process(pid, &self.hooks)?;
        let addresses: Vec<_> = hooks.iter().map(|(_, hook)| *hook).collect();
        if !addresses.is_empty() {
            let areas = self.image.areas();
            let attached = match enter(pid, &self.image.injected(&areas), &addresses) {
                Ok(attached) => attached,
                Err(spile_inject::Error::Refused(all)) => {
                    refused.extend(places::refused(&all, &hooks));
                    return self.report(pid, &refused);
                }
                Err(e) => return Err(Error::Enter(pid, e.to_string())),
            };
            let words = places::semaphores(&hooks, attached.refused());
            refused.extend(places::refused(attached.refused(), &hooks));
            let text = format!("process {pid}: {} places by jumps", attached.hooked());
            self.kinds.push(text);
            self.attached.push(attached);
            if !words.is_empty() {
                let opened = Semaphores::new(pid, words).map_err(semaphore_error)?;
                self.semaphores.push(opened);
            }
        }
        self.report(pid, &refused)
    }

    /// Warns of places that are left out. None at all is an error, unless all are optional.
    fn report(&self, pid: u32, refused: &[RefusedLocation]) -> Result<(), Error> {
        let is_wanted = self.attached.is_empty() && !places::are_optional(&self.hooks);
        if let (true, Some(first)) = (is_wanted, refused.first()) {
            let text = format!("{}: {}", first.location, first.why);
            return Err(Error::Enter(pid, text));
        }
        if !self.quiet {
            places::warnings(refused).for_each(|text| output::warn(&text));
        }
        Ok(())
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
        self.raise()?;
        Ok(None)
    }

    fn watch_command(&mut self, pid: u32) -> Result<(), Error> {
        if places::are_missing(pid, &self.hooks)? {
            let stood = spile_inject::run_to_entry(pid);
            stood.map_err(|e| Error::Enter(pid, e.to_string()))?;
        }
        self.enter(pid, spile_inject::attach_at_start)?;
        self.raise()
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
        self.semaphores.iter_mut().for_each(Semaphores::lower);
        for attached in self.attached.drain(..) {
            // A process that has ended, or cannot be stopped, has nothing that could be removed.
            let _ = attached.detach();
        }
        self.image.recover();
    }

    fn losses(&self) -> HostLosses {
        HostLosses {
            entries: self.image.skipped(),
            ..HostLosses::default()
        }
    }

    fn leak(self: Box<Self>) {
        std::mem::forget(self);
    }
}
