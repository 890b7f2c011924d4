//! A simulated host, for tests: events that a test writes down, tables in plain memory, handlers in the
//! interpreter of the IR, and faults on request. No kernel is asked and no privilege is needed, so a whole
//! session takes a millisecond.
//!
//! In: a script and its [`Event`]s. Out: a [`Run`] with what the session printed, its outcome, and what was
//! attached. Handlers store globals and send records where the layout ([`spile_layout::plan`]) says. Large arrays,
//! histograms and deferred strings are not simulated.
//!
//! | module | its one job |
//! |---|---|
//! | `script` | analyses a script and lays out its memory, on a made-up machine |
//! | `handler` | runs a handler: its globals, its intrinsics, its record |

mod handler;
mod script;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use rustix::event::{EventfdFlags, eventfd};
use spile_ir::{HandlerId, Program};
use spile_layout::critical::CriticalLayout;
use spile_layout::{GlobalLocation, Layout, percpu};

use crate::error::Error;
use crate::host::{Backend, Host, HostLosses, SessionHost, StartParams, Started};
use crate::io::output::OutputTarget;
use crate::machine::signals::Signals;
use crate::options::{ExternalSource, SessionOptions};
use crate::shared::grace::GracePeriod;
use crate::shared::kernel_state::KernelState;
use crate::shared::maps::{ByteTable, Entries, HostTables, SectionRunner};
use crate::shared::state::{HostMemory, StateMemory};
use crate::shared::tests::PlainMap;
use crate::{Outcome, Session};

/// Something that happens on the host.
#[derive(Clone)]
pub(super) enum Event {
    /// A hit of all handlers whose probe point contains the text, in a process.
    Hit(&'static str, Process),
    /// The controller gets to run: it takes the records so far.
    Read,
    /// The host loses hits: the first number at entries, the second at returns.
    Lose(u64, u64),
    /// Another handler runs on the processor, so hits are skipped.
    Reenter(u64),
}

/// The process of a hit.
#[derive(Clone, Copy)]
pub(super) struct Process {
    pub pid: i64,
    pub execname: &'static str,
}

/// The process of hits where it does not matter.
pub(super) const SHELL: Process = Process {
    pid: 77,
    execname: "sh",
};

/// What the host does wrong.
#[derive(Default)]
pub(super) struct Faults {
    /// The handler, by its number from 0 among the host's, that cannot be loaded.
    pub load: Option<usize>,
    /// The handler that cannot be attached.
    pub attach: Option<usize>,
    /// Whether what programs see cannot be attached.
    pub visible: bool,
    /// The bytes that the ring buffer holds, if fewer than usual.
    pub ring: Option<usize>,
}

/// What became of a session.
pub(super) struct Run {
    /// The session's end, or the reason why it did not start or run.
    pub ended: Result<Outcome, Error>,
    /// The script's output.
    pub out: String,
    /// Handlers that are still loaded or attached.
    pub left: usize,
    /// Hits that found handlers disabled.
    pub early: u64,
}

/// Runs a script to its end, which comes after the last event unless the script ends before.
pub(super) fn run(script: &str, events: &[Event], faults: Faults) -> Run {
    run_with(script, events, faults, SessionOptions::default())
}

/// Runs a script as [`run`] does, with options of the session.
pub(super) fn run_with(
    script: &str,
    events: &[Event],
    faults: Faults,
    options: SessionOptions,
) -> Run {
    let (program, layout) = script::compile(script);
    let left = Rc::new(Cell::new(0));
    let early = Rc::new(Cell::new(0));
    let over = Rc::new(wakeup());
    let host = SimulatedHost {
        program: Rc::new(program.clone()),
        layout,
        events: events.iter().cloned().collect(),
        faults,
        left: Rc::clone(&left),
        early: Rc::clone(&early),
        over: Rc::clone(&over),
    };
    let outside = ExternalSource {
        fd: over.try_clone().expect("a descriptor"),
        ready: Box::new(|| ControlFlow::Break(())),
    };
    let output = match options.output {
        OutputTarget::Stdout => OutputTarget::Memory,
        other => other,
    };
    let options = SessionOptions {
        outside: Some(outside),
        output,
        quiet: true,
        display_globals: true,
        ..options
    };
    let session = Session::new(program, Some(SessionHost(Box::new(host))), options);
    let (ended, out) = match session {
        Ok(mut session) => {
            let ended = session.run();
            (ended, session.take_output())
        }
        Err(why) => (Err(why), Vec::new()),
    };
    Run {
        ended,
        out: String::from_utf8(out).expect("UTF-8"),
        left: left.get(),
        early: early.get(),
    }
}

fn wakeup() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd")
}

fn signal(fd: &OwnedFd) {
    rustix::io::write(fd, &1u64.to_ne_bytes()).expect("an eventfd with a free count");
}

/// A host that runs a script's events.
struct SimulatedHost {
    program: Rc<Program>,
    layout: Layout,
    events: VecDeque<Event>,
    faults: Faults,
    left: Rc<Cell<usize>>,
    early: Rc<Cell<u64>>,
    /// Readable after the last event.
    over: Rc<OwnedFd>,
}

/// A loaded or attached handler.
struct Resource(Rc<Cell<usize>>);

impl Resource {
    fn new(left: &Rc<Cell<usize>>) -> Resource {
        left.set(left.get() + 1);
        Resource(Rc::clone(left))
    }
}

impl Drop for Resource {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A table that the controller and handlers share.
#[derive(Clone)]
struct SharedTable(Rc<RefCell<PlainMap>>);

impl ByteTable for SharedTable {
    fn get(&mut self, key: &[u8]) -> std::io::Result<Option<Vec<u8>>> {
        self.0.borrow_mut().get(key)
    }
    fn set(&mut self, key: &[u8], value: &[u8]) -> std::io::Result<bool> {
        self.0.borrow_mut().set(key, value)
    }
    fn remove(&mut self, key: &[u8]) -> std::io::Result<()> {
        self.0.borrow_mut().remove(key)
    }
    fn entries(&mut self) -> std::io::Result<Entries> {
        self.0.borrow_mut().entries()
    }
    fn drain(&mut self) -> std::io::Result<Entries> {
        self.0.borrow_mut().drain()
    }
    fn capacity(&self) -> usize {
        self.0.borrow().capacity()
    }
}

/// The tables of a layout, by the names of their maps.
#[derive(Clone, Default)]
struct Tables(HashMap<String, SharedTable>);

impl Tables {
    fn new(layout: &Layout) -> Tables {
        let mut tables = Tables::default();
        for global in layout.globals.iter().flatten() {
            let (maps, max) = match &global.location {
                GlobalLocation::Hash { map, max, .. } => (std::slice::from_ref(map), *max),
                GlobalLocation::PerCpuArray(array) => (&array.maps[..], array.max),
                _ => continue,
            };
            for map in maps {
                let plain = PlainMap {
                    max: max as usize,
                    ..PlainMap::default()
                };
                let table = SharedTable(Rc::new(RefCell::new(plain)));
                tables.0.entry(map.clone()).or_insert(table);
            }
        }
        tables
    }
}

impl HostTables for Tables {
    fn table(&self, name: &str) -> Result<Box<dyn ByteTable>, Error> {
        Ok(Box::new(self.0[name].clone()))
    }

    fn memory(&self, name: &str) -> Result<HostMemory, Error> {
        panic!("large arrays are not simulated: {name}");
    }

    fn critical_section(&self, _: &CriticalLayout) -> Result<Option<SectionRunner>, Error> {
        Ok(None)
    }

    fn grace_period(&self) -> GracePeriod {
        GracePeriod::Visit
    }
}

impl Host for SimulatedHost {
    fn start(
        self: Box<Self>,
        how: StartParams<'_>,
        _: &mut SessionOptions,
    ) -> Result<Started, Error> {
        let layout = &self.layout;
        let handlers = || layout.handlers.iter().flatten().enumerate();
        let mut resources = Vec::new();
        for (n, handler) in handlers() {
            if self.faults.load == Some(n) {
                let why = format!("handler {} is refused", handler.id.0);
                return Err(Error::Internal(why));
            }
            resources.push(Resource::new(&self.left));
        }
        for (n, _) in handlers() {
            if self.faults.attach == Some(n) {
                let why = std::io::Error::from_raw_os_error(libc::ENOENT);
                return Err(Error::Attach("a location".into(), why));
            }
            resources.push(Resource::new(&self.left));
        }
        let state = StateMemory::in_memory(layout).expect("a layout that fits");
        crate::shared::init::set_shared_words(&state, how.target);
        let tables = Tables::new(layout);
        let memory = KernelState::new(&tables, Rc::new(state), layout)?;
        let view = KernelState::new(&tables, memory.state_memory(), layout)?;
        let ready = wakeup();
        signal(&ready);
        let backend = SimulatedBackend {
            handlers: handler::Handlers::new(Rc::clone(&self.program), view, tables),
            program: self.program,
            ring: self.faults.ring.unwrap_or(usize::MAX),
            visible: self.faults.visible,
            events: self.events,
            losses: HostLosses::default(),
            resources,
            ready,
            over: self.over,
            early: self.early,
        };
        Ok(Started {
            backend: Box::new(backend),
            memory,
            user_files: None,
        })
    }
}

/// The attachments and events of a simulated host.
struct SimulatedBackend {
    program: Rc<Program>,
    handlers: handler::Handlers,
    events: VecDeque<Event>,
    /// Bytes of the ring buffer.
    ring: usize,
    visible: bool,
    losses: HostLosses,
    resources: Vec<Resource>,
    ready: OwnedFd,
    over: Rc<OwnedFd>,
    early: Rc<Cell<u64>>,
}

impl SimulatedBackend {
    /// Runs the handlers of a hit; their records go into the ring buffer, or are lost.
    fn hit(&mut self, point: &str, process: Process, ring: &mut VecDeque<Vec<u8>>) {
        let hit: Vec<HandlerId> = (0..self.program.handlers.len() as u32)
            .map(HandlerId)
            .filter(|id| self.program.handlers[id.index()].event.is_compiled())
            .filter(|id| self.program.handlers[id.index()].point.contains(point))
            .collect();
        assert!(!hit.is_empty(), "no handler at {point}");
        for id in hit {
            if !self.handlers.state().running() {
                self.early.set(self.early.get() + 1);
                continue;
            }
            let Some(record) = self.handlers.run(id, process) else {
                continue;
            };
            let used: usize = ring.iter().map(Vec::len).sum();
            if used + record.len() > self.ring {
                self.handlers.add(percpu::LOST_OUTPUT, 1);
            } else {
                ring.push_back(record);
            }
        }
    }
}

impl Backend for SimulatedBackend {
    fn attach_kinds(&self) -> &[String] {
        &[]
    }

    fn attach_visible(&mut self, _: &Program, _: &Rc<Signals>) -> Result<Option<String>, Error> {
        match self.visible {
            true => Err(Error::Internal("markers are refused".into())),
            false => Ok(None),
        }
    }

    fn watch_command(&mut self, _: u32) -> Result<(), Error> {
        Ok(())
    }

    fn watch_executed(&mut self, _: u32, _: u64) -> Result<(), Error> {
        Ok(())
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ready.as_fd())
    }

    fn take_records(&mut self, _: usize, take: &mut dyn FnMut(&[u8])) {
        let mut ring = VecDeque::new();
        if !self.handlers.state().running() && !self.resources.is_empty() {
            // Events wait until handlers are enabled.
            return;
        }
        while let Some(event) = self.events.pop_front() {
            match event {
                Event::Hit(point, process) => self.hit(point, process, &mut ring),
                Event::Read => break,
                Event::Lose(entries, returns) => {
                    self.losses.entries += entries;
                    self.losses.returns += returns;
                }
                Event::Reenter(hits) => self.handlers.add(percpu::SKIP_REENTRANT, hits),
            }
        }
        if self.events.is_empty() {
            let _ = rustix::io::read(&self.ready, &mut [0; 8]);
            signal(&self.over);
        }
        for record in ring {
            take(&record);
        }
    }

    fn detach(&mut self) {
        self.resources.clear();
    }

    fn losses(&self) -> HostLosses {
        self.losses
    }

    fn leak(self: Box<Self>) {}
}

impl handler::Handlers {
    /// Adds to a counter of the first processor.
    fn add(&self, at: u32, n: u64) {
        self.state().cpu(0, at).fetch_add(n, Ordering::Relaxed);
    }
}
