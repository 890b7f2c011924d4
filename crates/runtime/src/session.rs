//! A session: everything from the loaded object to the last line of the loss report, on one thread.
//!
//! Order:
//!
//! 1. Programs are loaded and attached, with kernel handlers disabled.
//! 2. `begin` probes run.
//! 3. Kernel handlers are enabled. Markers with semaphores are attached last, because programs see
//!    that.
//! 4. The command of `-c` starts, and the event loop waits.
//! 5. At the end kernel handlers are disabled and detached, and their remaining records are
//!    printed. Another thread detaches tracepoints meanwhile.
//! 6. `end` probes run (after an error: `error` probes). Unless there was an error, unread globals
//!    print themselves.
//! 7. The loss report closes the session.
//!
//! Before any handler of the controller runs, all records that the kernel has sent are printed.
//! Output is therefore in the order of events.
//!
//! In: a loaded object, the controller's handlers, and a command or a process to follow. Out: an
//! [`Outcome`]. No text is made here; that is the job of [`crate::controller`] and [`crate::text`].
//!
//! | module | its one job |
//! |---|---|
//! | `prepare`, `arm` | the steps before handlers run, and before ordinary events can hit |
//! | [`events`] | the event sources of the loop |
//! | `serve` | what the loop does for each of them |
//! | `intake` | when records of the ring buffer are taken |

mod arm;
pub mod events;
pub(crate) mod intake;
pub(crate) mod prepare;
mod serve;

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use spile_cast::Cast;
use spile_ir::{Event, HandlerId, Program, ProgramFacts};
use spile_layout::{percpu, shared};

use crate::attach::staleness::Staleness;
use crate::controller::Controller;
use crate::error::Error;
use crate::host::{Backend, HostLosses, SessionHost, StartParams, Started};
use crate::io::child::WatchedProcess;
use crate::io::input::Input;
use crate::io::output::Output;
use crate::io::procfs::{self, ProcfsFiles};
use crate::io::prometheus::Server;
use crate::io::reader_wait::ReaderWait;
pub use crate::load::CompileFn;
use crate::machine::clock;
use crate::machine::end_requests::EndRequests;
use crate::machine::pid_namespace::PidMap;
use crate::machine::signals::Signals;
use crate::machine::timer::Timer;
use crate::options::SessionOptions;
use crate::report::cost::{self, CycleClock, HitStats};
use crate::report::losses::LossReport;
use crate::session::events::{EventLoop, EventSource};
use crate::session::prepare::{deferred_texts, files, follow};

/// Interval for polling the kernel's counters, which wake nobody.
const TICK: Duration = Duration::from_millis(100);
/// Interval for polling the word that `exit()` sets, if a kernel handler can set it: a handler
/// without output wakes nobody.
const EXIT_POLL: Duration = Duration::from_millis(10);
/// The result of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// 0, or 1 after an error or when the command failed.
    pub exit_code: i32,
    /// The end of the `-c` command, as `wait` reports it: exit status in bits 8 to 15, signal in
    /// bits 0 to 6. `None` without a command, or if it did not end by itself.
    pub status: Option<i32>,
    /// Losses and errors.
    pub losses: LossReport,
    /// Time from the request to end until everything was printed.
    pub teardown: Duration,
}

/// Records from the ring buffer, one after the other.
#[derive(Default)]
struct RecordBatch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl RecordBatch {
    /// The records in their order.
    fn records(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        let locations = starts.zip(&self.ends);
        locations.map(|(start, end)| &self.bytes[*start..*end])
    }
}

/// A session that is loaded and attached, but not running yet.
pub struct Session {
    /// The host of the kernel handlers, if there are any. It is dropped first, which detaches.
    backend: Option<Box<dyn Backend>>,
    probed: Staleness,
    batch: RecordBatch,
    controller: Controller,
    program: Rc<Program>,
    timers: Vec<(Timer, HandlerId)>,
    server: Option<Server>,
    input: Option<Input>,
    files: Option<ProcfsFiles>,
    watched: Option<WatchedProcess>,
    events: EventLoop,
    signals: Rc<Signals>,
    ends: Rc<EndRequests>,
    options: SessionOptions,
    cycles: CycleClock,
    kernel_exits: bool,
    /// Until this time handlers' output wakes nobody.
    rest: Option<Instant>,
    ended: bool,
    /// Whether a signal ended the session.
    interrupted: bool,
}

fn system(what: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |e| Error::System(what, e)
}

/// Whether a command stops at its `execve`.
fn stops(program: &Program, host: &Option<SessionHost<'_>>) -> bool {
    let of_host = host.as_ref().is_some_and(|host| host.0.stops_command());
    of_host || program.watches_programs()
}

/// The descriptor whose end ends the session: that of the command, or of the process if so asked.
fn ending(
    watched: Option<&WatchedProcess>,
    options: &SessionOptions,
) -> Result<Option<OwnedFd>, Error> {
    let ends = watched.filter(|w| w.is_child() || options.ends_with_process);
    let ends = ends.map(|w| w.as_fd().try_clone_to_owned());
    ends.transpose().map_err(system("the command"))
}

impl Session {
    /// Loads and attaches everything; no handler runs yet. `host` is `None` for a program without
    /// kernel handlers.
    pub fn new(
        program: Program,
        host: Option<SessionHost<'_>>,
        mut options: SessionOptions,
    ) -> Result<Session, Error> {
        let cycles = CycleClock::start();
        let program = Rc::new(program);
        let signals = Rc::new(Signals::new().map_err(system("blocking signals"))?);
        let events = EventLoop::new()?;
        let suspended_child = options.suspended_child.take();
        let watched = follow(&options.target, suspended_child, stops(&program, &host))?;
        let number = |w: &WatchedProcess| PidMap::now().to_machine(w.pid().unsigned_abs());
        let target = watched.as_ref().map_or(0, |w| i64::from(number(w)));
        let facts = options.facts.take();
        let facts = facts.unwrap_or_else(|| Rc::new(ProgramFacts::new(&program)));
        let deferred = deferred_texts(host.is_some(), &facts);
        let probed = Staleness::new(&program, &options.looked_at);
        let how = StartParams {
            program: &program,
            target,
            deferred: deferred.as_ref(),
            probed: &probed,
            signals: &signals,
        };
        let started = host
            .map(|host| host.0.start(how, &mut options))
            .transpose()?;
        let (backend, memory, user_files) = match started {
            Some(Started {
                backend,
                memory,
                user_files,
            }) => (Some(backend), Some(memory), user_files),
            None => (None, None, None),
        };
        let ends = ending(watched.as_ref(), &options)?;
        let ends = Rc::new(EndRequests::new(Rc::clone(&signals), ends));
        let reader_wait = ReaderWait::new(Rc::clone(&ends));
        let out = Output::open(std::mem::take(&mut options.output), Some(reader_wait))?;
        let mut controller = Controller::new(
            Rc::clone(&program),
            &facts,
            memory,
            out,
            target,
            options.quiet,
        );
        controller.commands.hold();
        controller.stops_with(Rc::clone(&ends));
        controller.silent_errors = options.suppress_errors;
        controller.silent_overflows = options.suppress_overflows;
        if let Some(deferred) = &deferred {
            controller.set_mark(*deferred.word(), user_files, options.whole_keys);
        }
        controller.deferred = deferred;
        let kernel_exits = backend.is_some() && facts.kernel_exits();
        let mut session = Session {
            backend,
            probed,
            batch: RecordBatch::default(),
            controller,
            program,
            timers: Vec::new(),
            server: None,
            input: None,
            files: None,
            watched,
            events,
            signals,
            ends,
            options,
            cycles,
            kernel_exits,
            rest: None,
            ended: false,
            interrupted: false,
        };
        session.open_sources()?;
        Ok(session)
    }

    /// The attach kind of each probe in code, one line each.
    pub fn attach_kinds(&self) -> &[String] {
        self.backend.as_ref().map_or(&[], |b| b.attach_kinds())
    }

    /// Opens the event sources of the loop.
    fn open_sources(&mut self) -> Result<(), Error> {
        self.events.add(&*self.signals, EventSource::Signal)?;
        if let Some(fd) = self.backend.as_ref().and_then(|b| b.readiness()) {
            self.events.add(fd, EventSource::Ring)?;
        }
        if let Some(watched) = self.ending_process() {
            self.events.add(watched, EventSource::Child)?;
        }
        for (id, handler) in handlers(&self.program) {
            if let Event::Timer {
                period_ns,
                randomize_ns,
            } = handler.event
            {
                let timer = Timer::new(period_ns, randomize_ns).map_err(system("a timer"))?;
                let index = self.timers.len().fit::<u32>();
                self.events.add(&timer, EventSource::Timer(index))?;
                self.timers.push((timer, id));
            }
        }
        if self.has_event(|e| matches!(e, Event::InputLine | Event::InputChar)) {
            let echo = self.has_event(|e| *e == Event::InputLine);
            let mut input = Input::default();
            if self.has_event(|e| *e == Event::InputChar) {
                input.characters(echo);
            }
            // epoll refuses regular files, which are always ready.
            input.always_ready = self.events.add(Input::fd(), EventSource::Stdin).is_err();
            self.input = Some(input);
        }
        if let Some(outside) = &self.options.outside {
            self.events.add(&outside.fd, EventSource::Outside)?;
        }
        if let Some(fd) = self.controller.read_files() {
            // The duplicate stays registered while the original is open.
            self.events.add(&fd, EventSource::Tables)?;
        }
        if let Some(recorder) = self.controller.out.recorder() {
            self.events.add(&*recorder, EventSource::Clients)?;
        }
        let specs = files(&self.program);
        if !specs.is_empty() {
            let files = ProcfsFiles::new(&self.options.name, specs)
                .map_err(|(path, e)| Error::Directory(path, e))?;
            for fd in files.descriptors() {
                self.events.add(fd, EventSource::Files)?;
            }
            self.files = Some(files);
        }
        if let Some(addr) = self.options.prometheus.clone() {
            let server = Server::bind(&addr).map_err(|e| Error::Listen(addr, e))?;
            self.events.add(server.listener(), EventSource::Listener)?;
            self.server = Some(server);
        }
        Ok(())
    }

    /// The address that serves metrics, if any.
    pub fn prometheus_addr(&self) -> Option<std::net::SocketAddr> {
        self.server.as_ref()?.local_addr().ok()
    }

    /// The directory of the `procfs` files, if there are any.
    pub fn files_path(&self) -> Option<&str> {
        self.files.as_ref().map(ProcfsFiles::path)
    }

    /// The output to [`output::OutputTarget::Memory`] so far.
    pub fn take_output(&mut self) -> Vec<u8> {
        self.controller.out.take()
    }

    /// Runs the session to its end. In the background, also waits until a client has read the output,
    /// unless there was a request to end.
    pub fn run(&mut self) -> Result<Outcome, Error> {
        let result = self.run_to_end();
        let Some(mut background) = self.options.background.take() else {
            return result;
        };
        match &result {
            Ok(_) => background.announce(),
            // The parent is still there, and the message goes to its terminal.
            Err(_) if !background.is_announced() => return result,
            Err(e) => self.controller.out.print_error(&format!("ERROR: {e}\n")),
        }
        self.controller.out.flush();
        let status = result.as_ref().map_or(1, |outcome| outcome.exit_code);
        if let Some(recorder) = self.controller.out.recorder() {
            // A signal ends the wait; nobody has to be told.
            let _ = recorder.hand_over(status.low8(), self.interrupted, &self.signals);
        }
        result
    }

    fn run_to_end(&mut self) -> Result<Outcome, Error> {
        let deadline = self.options.timeout.map(|t| Instant::now() + t);
        self.ends.deadline.set(deadline);
        self.run_sorted(|e| match e {
            Event::Begin(order) => Some(*order),
            _ => None,
        });
        if !self.is_over() {
            self.arm()?;
            self.wait()?;
        }
        self.finish()
    }

    /// The event loop.
    fn wait(&mut self) -> Result<(), Error> {
        let deadline = self.options.timeout.map(|t| Instant::now() + t);
        self.ends.deadline.set(deadline);
        let mut next_tick = Instant::now() + TICK;
        while !self.is_over() {
            self.controller.out.flush();
            if self.signals.has_pending() {
                self.serve(EventSource::Signal)?;
                continue;
            }
            let now = Instant::now();
            if self.controller.out.broken() || deadline.is_some_and(|d| now >= d) {
                self.signals.request_end();
                break;
            }
            if now >= next_tick {
                self.poll_words();
                next_tick = now + TICK;
                continue;
            }
            let expiry = self.server.as_mut().and_then(Server::expire);
            let tick = self.backend.is_some().then_some(next_tick);
            let poll = self.kernel_exits.then_some(now + EXIT_POLL);
            if self.rest.is_some_and(|end| now >= end) {
                self.consume_and_rest();
                continue;
            }
            let until = [deadline, expiry, tick, poll, self.rest]
                .into_iter()
                .flatten()
                .min();
            let mut timeout = until.map(|t| t.saturating_duration_since(now));
            if self
                .input
                .as_ref()
                .is_some_and(|i| i.always_ready && !i.ended)
            {
                timeout = Some(Duration::ZERO);
                self.stdin();
            }
            for source in self.events.wait(timeout)? {
                if self.is_over() {
                    break;
                }
                self.serve(source)?;
            }
        }
        Ok(())
    }

    /// Polls the words whose changes wake nobody.
    fn poll_words(&mut self) {
        self.consume();
        if let Some(kernel) = self.controller.kernel() {
            let state = kernel.state();
            let offset = clock::offset_ns().cast_unsigned();
            state
                .shared(shared::CLOCK_OFFSET)
                .store(offset, Ordering::Relaxed);
        }
        self.count_kernel();
        self.check_skipped();
        if let Some(text) = self.probed.check_next() {
            self.warn(&text);
        }
    }

    /// Prints a warning, unless warnings are suppressed.
    fn warn(&mut self, text: &str) {
        if !self.options.quiet {
            self.controller.out.warn(text);
        }
    }

    /// The process whose end ends the session.
    fn ending_process(&self) -> Option<&WatchedProcess> {
        self.watched
            .as_ref()
            .filter(|w| w.is_child() || self.options.ends_with_process)
    }

    /// Whether the session has to end.
    fn is_over(&self) -> bool {
        self.ended
            || self.controller.stopped() > 0
            || self.controller.exit_wanted()
            || self.controller.out.broken()
    }

    fn has_event(&self, wanted: impl Fn(&Event) -> bool) -> bool {
        self.program.handlers.iter().any(|h| wanted(&h.event))
    }

    fn ids(&self, wanted: impl Fn(&Event) -> bool) -> Vec<HandlerId> {
        handlers(&self.program)
            .filter(|(_, h)| wanted(&h.event))
            .map(|(id, _)| id)
            .collect()
    }

    /// Runs handlers in ascending order of a number; equal numbers in script order. A request to
    /// end skips later handlers only while the session starts.
    fn run_sorted(&mut self, order: impl Fn(&Event) -> Option<i64>) {
        let mut ids: Vec<_> = handlers(&self.program)
            .filter_map(|(id, h)| Some((order(&h.event)?, id)))
            .collect();
        ids.sort();
        for (_, id) in ids {
            if self.is_over() && !self.ended {
                break;
            }
            self.controller.out.flush();
            self.controller.run(id);
        }
    }

    /// Adds the kernel's counters to the loss report.
    fn count_kernel(&mut self) {
        let Some(kernel) = self.controller.kernel() else {
            return;
        };
        let (state, acts) = (kernel.state_memory(), kernel.layout().acts);
        let unfinished = self.controller.unfinished_stacks();
        let (no_rows, no_tables) = self.controller.files_without_space();
        let bad_names = self.controller.bad_names();
        let losses = &mut self.controller.losses;
        (losses.no_rows, losses.no_tables) = (no_rows, no_tables);
        losses.bad_names = bad_names;
        losses.acts = acts.map_or(0, |offset| state.sum(offset));
        losses.guessed = state.sum(percpu::GUESSED) + unfinished;
        let skipped = &mut losses.skipped;
        for (count, offset) in [
            (&mut losses.lost_output, percpu::LOST_OUTPUT),
            (&mut losses.cut_stacks, percpu::CUT_STACKS),
            (&mut losses.unknown_symbols, percpu::UNNAMED),
            (&mut skipped.reentrancy, percpu::SKIP_REENTRANT),
            (&mut skipped.lock, percpu::SKIP_LOCK),
            (&mut skipped.own_actions, percpu::SKIP_OWN),
            (&mut skipped.held, percpu::SKIP_HELD),
            (&mut skipped.no_memory, percpu::NO_MEMORY),
        ] {
            *count = state.sum(offset);
        }
        let errors = state.shared(shared::ERRORS).load(Ordering::Relaxed);
        let cut = state.sum(percpu::TRUNCATED);
        self.controller.set_kernel_counts(errors, cut);
    }

    /// Ends the session with an error if too many hits were skipped.
    fn check_skipped(&mut self) {
        let limits = &self.program.limits;
        if !self.controller.failed && self.controller.losses.too_many_skipped(limits) {
            self.controller.fatal(
                "Skipped too many probes, check MAXSKIPPED or try again with -t for more \
                 details.",
            );
        }
    }

    /// Does everything from the request to end to the outcome.
    fn finish(&mut self) -> Result<Outcome, Error> {
        let since = Instant::now();
        self.ends.begin_end();
        // A handler that a signal ended has left the signal.
        self.serve(EventSource::Signal)?;
        // If `begin` ended the session, the commands have not started.
        self.controller.start_commands();
        if let Some(backend) = &mut self.backend {
            backend.settle();
        }
        if let Some(kernel) = self.controller.kernel() {
            kernel.state().set_running(false);
        }
        if let Some(backend) = &mut self.backend {
            backend.detach();
            self.controller.losses.unfollowed = backend.losses().unfollowed;
        }
        self.controller.out.wait_for_readers();
        // Announces files that keys refer to, before the keys become text.
        self.consume_all();
        self.controller.final_drain();
        self.consume_all();
        self.count_kernel();
        self.check_skipped();
        self.timers.clear();
        self.files = None;
        procfs::remove_abandoned();
        self.input = None;
        // From here on `exit()` has no effect.
        self.ended = true;
        let failed = self.controller.failed;
        self.run_sorted(|e| match e {
            Event::Error(order) if failed => Some(*order),
            Event::End(order) if !failed => Some(*order),
            _ => None,
        });
        // SystemTap prints them in an `end` probe, and such probes do not run after an error.
        if self.options.display_globals && !self.controller.failed {
            self.controller.display_globals();
        }
        self.controller.out.wait_for_readers();
        self.controller.sum_up();
        let errors = self.controller.losses.errors > 0 && !self.options.suppress_errors;
        let failed = self.controller.failed || errors;
        let status = self
            .watched
            .as_ref()
            .filter(|w| w.is_child())
            .and_then(WatchedProcess::ended);
        let mut exit_code = i32::from(failed || self.controller.out.failed());
        if let Some(warning) = self.child_failed() {
            exit_code = 1;
            self.warn(&warning);
        }
        for text in self.probed.check_all() {
            self.warn(&text);
        }
        self.report_losses();
        let losses = self.controller.losses.clone();
        Ok(Outcome {
            exit_code,
            status: status.map(ExitStatusExt::into_raw),
            losses,
            teardown: since.elapsed(),
        })
    }

    /// Drops a finished session whose process is about to end. The process's end detaches what is
    /// still attached, and frees maps, programs and the script faster than dropping them one by one.
    pub fn leak(mut self) {
        if let Some(backend) = self.backend.take() {
            backend.leak();
        }
        std::mem::forget((self.controller.take_kernel(), Rc::clone(&self.program)));
    }

    /// The failure of the `-c` command, if it failed.
    fn child_failed(&mut self) -> Option<String> {
        let watched = self.watched.as_mut()?;
        let ended = watched.ended();
        watched.stop();
        // Ctrl-C also reaches the command, which is no failure.
        let status = ended.filter(|s| !s.success() && !self.interrupted)?;
        Some(match (status.code(), status.signal()) {
            (Some(code), _) => format!("Child process exited with status {code}"),
            (None, signal) => {
                format!("Child process exited with signal {}", signal.unwrap_or(0))
            }
        })
    }

    /// Completes the loss report and prints it.
    fn report_losses(&mut self) {
        self.controller.losses.unwritten = self.controller.out.unwritten();
        if let Some(backend) = &self.backend {
            let HostLosses {
                entries, returns, ..
            } = backend.losses();
            let skipped = &mut self.controller.losses.skipped;
            (skipped.kernel_recursion, skipped.missed_returns) = (entries, returns);
        }
        if !self.options.quiet {
            let text = self.controller.losses.text(self.options.timing);
            self.controller.out.print_error(&text);
        }
        if self.options.timing {
            let hits = self.hits();
            let layout = self.controller.kernel().map(|k| k.layout());
            let text = cost::text(
                &self.program,
                &hits,
                self.cycles.per_ns(),
                &self.controller.losses,
                layout,
            );
            self.controller.out.print_error(&text);
        }
    }

    /// The hits of every handler so far.
    pub fn hits(&self) -> Vec<HitStats> {
        let mut hits = self.controller.hits.clone();
        if let Some(kernel) = self.controller.kernel() {
            for (i, info) in kernel.layout().handlers.iter().enumerate() {
                if let (Some(info), Some(h)) = (info, hits.get_mut(i)) {
                    *h = HitStats::of_kernel(kernel.state(), info.counters, self.options.timing);
                }
            }
        }
        hits
    }
}

/// The handlers with their ids.
fn handlers(program: &Program) -> impl Iterator<Item = (HandlerId, &spile_ir::Handler)> {
    program
        .handlers
        .iter()
        .enumerate()
        .map(|(i, h)| (HandlerId(i.fit()), h))
}
