//! The kernel as the host of handlers: loads and attaches an object, and is the session's [`Backend`].

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use spile_bpf::compiled::Object;
use spile_ir::{CodeLocation, Event, Program};
use spile_kernel::bpf::Ring;
use spile_kernel::cgroup;
use spile_layout::{Layout, StackWords};

use crate::attach::links::{Detaching, Links};
use crate::attach::site;
use crate::error::Error;
use crate::host::{Backend, Host, HostLosses, SessionHost, StartParams, Started};
use crate::io::output;
use crate::load::{self, LoadedObject};
use crate::machine::pid_namespace::PidMap;
use crate::machine::signals::Signals;
use crate::options::{SessionOptions, TargetProcess};
use crate::shared::kernel_state::KernelState;
use crate::shared::state::StateMemory;
use crate::shared::{init, process_tree};
use crate::text::deferred::DeferredTexts;
use crate::text::symbolic;
use crate::text::user_files::UserFiles;

/// The kernel of this machine, and the object that it is to run.
struct KernelHost<'o>(&'o Object);

impl<'o> SessionHost<'o> {
    /// The kernel of this machine, which runs an object.
    pub fn kernel(object: &'o Object) -> SessionHost<'o> {
        SessionHost(Box::new(KernelHost(object)))
    }
}

impl Host for KernelHost<'_> {
    fn start(
        self: Box<Self>,
        how: StartParams<'_>,
        options: &mut SessionOptions,
    ) -> Result<Started, Error> {
        let KernelHost(object) = *self;
        let StartParams {
            program,
            target,
            deferred,
            probed,
            signals,
        } = how;
        let initialise = |state: &StateMemory| {
            initialise(state, &object.layout, target, deferred);
        };
        let pid = u32::try_from(target).ok().filter(|pid| *pid > 0);
        let (ahead, fallback) = (options.ahead.take(), options.fallback.take());
        let with_lines = options.with_lines.take();
        let ((loaded, state, links), plain) = LoadedObject::start_any(
            object,
            program,
            pid,
            (ahead, fallback),
            initialise,
            Some(signals),
        )
        .map_err(|e| load::with_script_line(e, program, with_lines))?;
        let tree = object.layout.tree;
        let object = plain.as_ref().unwrap_or(object);
        probed.unchanged()?;
        if let (Some(offset), TargetProcess::Pid(pid)) = (tree, &options.target) {
            process_tree::mark_descendants(&state, offset, *pid);
        }
        let user_files = user_files(&loaded, &state, &object.layout, program, options)?;
        if let (false, Some(text)) = (options.quiet, site::refusal_warning(links.refused())) {
            output::warn(&text);
        }
        let ring = loaded.ring()?;
        let memory = KernelState::new(&loaded, Rc::new(state), &object.layout)?;
        let backend = KernelBackend {
            links,
            detaching: None,
            losses: HostLosses::default(),
            state: memory.state_memory(),
            ring,
            loaded,
        };
        Ok(Started {
            backend: Box::new(backend),
            memory,
            user_files,
        })
    }
}

/// An object in the kernel.
struct KernelBackend {
    // Fields are dropped in this order: programs are detached first.
    links: Links,
    /// Attachments that are being released while the session ends.
    detaching: Option<Detaching>,
    /// Losses of links that are detached.
    losses: HostLosses,
    state: Rc<StateMemory>,
    ring: Option<Ring>,
    loaded: LoadedObject,
}

impl Backend for KernelBackend {
    fn attach_kinds(&self) -> &[String] {
        self.links.attach_kinds()
    }

    fn attach_visible(
        &mut self,
        program: &Program,
        signals: &Rc<Signals>,
    ) -> Result<Option<String>, Error> {
        if !self.loaded.raises_semaphores() {
            return Ok(None);
        }
        let before = self.links.refused().len();
        self.loaded
            .attach_raising(program, &mut self.links, signals)?;
        Ok(site::refusal_warning(&self.links.refused()[before..]))
    }

    fn watch_command(&mut self, pid: u32) -> Result<(), Error> {
        self.loaded.watch_in(pid, &mut self.links)
    }

    fn watch_executed(&mut self, pid: u32, ns: u64) -> Result<(), Error> {
        let pid = PidMap::now().to_namespace(pid);
        match self.links.processes.executed(pid, ns) {
            true => self.loaded.watch_in(pid, &mut self.links),
            false => Ok(()),
        }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.ring.as_ref().map(AsFd::as_fd)
    }

    fn take_records(&mut self, most: usize, take: &mut dyn FnMut(&[u8])) {
        if let Some(ring) = &mut self.ring {
            ring.consume(most, take);
        }
    }

    fn detach(&mut self) {
        let links = std::mem::take(&mut self.links);
        let (entries, returns) = links.missed();
        self.losses = HostLosses {
            entries,
            returns,
            unfollowed: links.unfollowed(&self.state),
        };
        self.detaching = Some(links.detach());
    }

    fn losses(&self) -> HostLosses {
        let mut losses = self.losses;
        losses.entries += self.loaded.kernel_misses();
        losses
    }

    fn leak(self: Box<Self>) {
        std::mem::forget(self);
    }
}

/// The user files, if user stacks are taken. If stacks are unwound, they include the files that are
/// probed or followed.
fn user_files(
    loaded: &LoadedObject,
    state: &StateMemory,
    layout: &Layout,
    program: &Program,
    options: &SessionOptions,
) -> Result<Option<UserFiles>, Error> {
    let Some(stacks) = &layout.stacks else {
        return Ok(None);
    };
    let Some(next) = stacks.files else {
        return Ok(None);
    };
    let Some(mut files) = UserFiles::new(loaded, stacks)? else {
        return Ok(None);
    };
    // Other files are announced when a stack contains them.
    if !stacks.rows && !stacks.symbols {
        return Ok(Some(files));
    }
    let mut paths = options.objects.clone();
    for handler in &program.handlers {
        if let Event::Code(probe) = &handler.event {
            paths.extend(probe.sites.iter().filter_map(|s| match &s.location {
                CodeLocation::File { path, .. } => Some(PathBuf::from(&**path)),
                _ => None,
            }));
        }
    }
    match &options.target {
        TargetProcess::Pid(pid) => paths.extend(crate::text::user_files::mapped_files(*pid)),
        TargetProcess::Command(command) => {
            paths.extend(crate::text::user_files::programs_of(command))
        }
        TargetProcess::None => {}
    }
    for pid in options.group.iter().flat_map(|g| cgroup::processes(g)) {
        paths.extend(crate::text::user_files::mapped_files(pid));
    }
    paths.sort();
    paths.dedup();
    files.preload(paths, &mut || {
        state.shared(next).fetch_add(1, Ordering::Relaxed) + 1
    });
    Ok(Some(files))
}

/// Fills the state memory before a program runs.
fn initialise(state: &StateMemory, layout: &Layout, target: i64, deferred: Option<&DeferredTexts>) {
    init::set_shared_words(state, target);
    if let (Some(offset), Ok(pid @ 1..)) = (layout.tree, u32::try_from(target)) {
        process_tree::insert(state, offset, pid);
    }
    // The kernel's symbols take 90 ms to read.
    let ranges = |words: &&StackWords| words.kernel && !words.points.is_empty();
    if let Some(words) = layout.stacks.as_ref().filter(ranges) {
        symbolic::set_stack_words(state, words);
    }
    if layout.pages {
        init::set_page_words(state);
    }
    if let Some(deferred) = deferred {
        init::set_mark(state, deferred.word());
    }
}
