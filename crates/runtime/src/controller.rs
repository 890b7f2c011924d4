//! Runs controller handlers with the interpreter, and turns kernel handlers' records into output
//! and errors.
//!
//! A handler holds the locks of the globals that it shares with kernel handlers from its first
//! statement to its last. Its output is collected, and delivered after the locks are released.
//!
//! In: the IR of handlers, records of the ring buffer. Out: text for the output, errors, counts of
//! losses. Nothing here waits: the session's loop calls it.
//!
//! | module | its one job |
//! |---|---|
//! | `records` | records of the ring buffer: output, errors, requests |
//! | `early_end` | handlers that were ended before their last statement |
//! | `way_out` | limits that handlers reach, and how to raise them |
//! | `env` | the interpreter's environment: globals, host and kernel |
//! | [`globals`] | operations on globals, by storage class |
//! | `locks`, `deltas` | locks while a handler runs; the last per-CPU deltas |
//! | [`host`] | intrinsics that ask the machine |
//! | [`display`], [`message`] | unread globals at the end; texts of run-time errors |

mod deltas;
pub mod display;
mod early_end;
mod env;
pub mod globals;
pub mod host;
mod locks;
pub mod message;
mod records;
mod way_out;

use early_end::EarlyEnds;
use env::{ControllerEnv, Printed};
use spile_cast::Cast;

use std::borrow::Cow;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;

use spile_ir::interp::{ScriptError, is_overflow};
use spile_ir::marks::Marks;
use spile_ir::{HandlerId, Program, ProgramFacts, Stream};
use spile_layout::{RecordShape, SymbolicForm};

use crate::controller::globals::{MarkTexts, SessionGlobals};
use crate::controller::host::ControllerHost;
use crate::io::commands::Commands;
use crate::io::output::Output;
use crate::io::rows::{self, Row};
use crate::machine::existing_tasks::ExistingTask;
use crate::report::cost::HitStats;
use crate::report::losses::LossReport;
use crate::shared::handler_effects::HandlerEffects;
use crate::shared::kernel_state::KernelState;
use crate::shared::ring_record::FieldValue;
use crate::text::deferred::DeferredTexts;
use crate::text::symbolic::Symbolizer;
use crate::text::user_files::UserFiles;

/// The controller's handlers and all state that they access.
pub struct Controller {
    env: ControllerEnv,
    needs: Vec<HandlerEffects>,
    /// The script's output.
    pub out: Output,
    /// Errors and losses so far.
    pub losses: LossReport,
    /// The hits of each controller handler.
    pub hits: Vec<HitStats>,
    /// Whether an error ends the session.
    pub failed: bool,
    /// Number of records from the ring buffer so far.
    pub records: u64,
    /// Deferred strings of kernel handlers, if there can be any.
    pub deferred: Option<DeferredTexts>,
    /// Whether an error record came since the kernel's counters were last read.
    errors_seen: bool,
    controller_errors: u64,
    kernel_errors: u64,
    kernel_truncated: u64,
    quiet: bool,
    /// Shapes of output records.
    shapes: Rc<[RecordShape]>,
    /// The names of rows by format, where prints are taken as rows.
    row_names: Vec<Box<str>>,
    /// The commands of `system()`.
    pub commands: Commands,
    /// Whether errors of handlers are only counted, not printed.
    pub silent_errors: bool,
    /// Whether the same holds for full arrays.
    pub silent_overflows: bool,
}

impl Controller {
    /// For a program and its loaded object.
    pub fn new(
        program: Rc<Program>,
        facts: &ProgramFacts,
        kernel: Option<KernelState>,
        out: Output,
        target: i64,
        quiet: bool,
    ) -> Controller {
        if let Some(kernel) = &kernel {
            kernel.initialise(&program);
        }
        let shapes = kernel
            .as_ref()
            .map_or(&[][..], |k| &k.layout().records)
            .into();
        let mut texts = MarkTexts::of_strings(program.limits.maxstringlen as usize);
        if kernel.is_some() {
            let marks = Marks::new(&program, facts, &SymbolicForm::made_in_kernel);
            texts.register(&program, &marks);
        }
        let mut needs = crate::shared::handler_effects::of_program(
            &program,
            kernel.as_ref().map(KernelState::layout),
        );
        for needs in &mut needs {
            // Putting globals back would replace the marks in them by texts.
            if needs.taken.iter().any(|g| texts.marks(*g)) {
                (needs.copies, needs.taken) = (false, Vec::new());
            }
        }
        let row_names = match out.takes_rows() {
            true => rows::names(&program),
            false => Vec::new(),
        };
        Controller {
            shapes,
            row_names,
            needs,
            hits: vec![HitStats::default(); program.handlers.len()],
            env: ControllerEnv {
                globals: SessionGlobals::new(program, kernel, texts),
                host: ControllerHost::new(target),
                printed: Vec::new(),
                rows: out.takes_rows(),
                scraping: false,
                truncated: 0,
                early: EarlyEnds::default(),
                ways_out_told: Default::default(),
            },
            out,
            losses: LossReport::default(),
            failed: false,
            records: 0,
            deferred: None,
            errors_seen: false,
            controller_errors: 0,
            kernel_errors: 0,
            kernel_truncated: 0,
            quiet,
            commands: Commands::default(),
            silent_errors: false,
            silent_overflows: false,
        }
    }

    /// The kernel's half of the session.
    pub fn kernel(&self) -> Option<&KernelState> {
        self.env.globals.kernel.as_ref()
    }

    /// A random number.
    pub fn random(&mut self) -> u64 {
        self.env.host.random()
    }

    /// Sets the text for the next input probe.
    pub fn set_input(&mut self, text: Vec<u8>) {
        self.env.host.input = text;
    }

    /// Sets `$value` before the handlers of a file run, and its largest length; 0 means the length
    /// of a string.
    pub fn set_value(&mut self, text: Vec<u8>, most: usize) {
        let longest = self.env.globals.program.limits.maxstringlen as usize;
        self.env.host.value = (text, most.max(longest));
    }

    /// The resulting `$value`.
    pub fn take_value(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.env.host.value.0)
    }

    /// Whether a handler, here or in the kernel, called `exit()`.
    pub fn exit_wanted(&self) -> bool {
        self.failed || self.env.host.exit || self.kernel().is_some_and(|k| k.state().exit_wanted())
    }

    /// Runs a handler.
    pub fn run(&mut self, id: HandlerId) {
        let before = self.stopped();
        let result = self.run_collecting(id);
        self.deliver();
        self.warn_of_stop(before, id);
        if let Err(error) = result {
            self.script_error(&error, id);
        }
    }

    /// Runs a handler for an existing process, and returns the process; `None` if it has ended.
    pub(crate) fn run_for(&mut self, id: HandlerId, task: ExistingTask) -> Option<ExistingTask> {
        let host = &mut self.env.host;
        if !task.still_exists(&mut |address| host.kernel_word(address)) {
            return None;
        }
        host.task = Some(task);
        self.run(id);
        self.env.host.task.take()
    }

    /// The result of `target()`, if there is a target.
    pub fn target(&self) -> Option<i64> {
        Some(self.env.host.target).filter(|pid| *pid != 0)
    }

    /// Runs handlers and returns their output instead of printing it; `None` after an error,
    /// because partial output would be taken for the whole.
    pub fn capture(&mut self, ids: &[HandlerId]) -> Option<Vec<u8>> {
        let rows = std::mem::take(&mut self.env.rows);
        self.env.scraping = true;
        let mut failed = None;
        for id in ids {
            if self.exit_wanted() {
                break;
            }
            if let Err(error) = self.run_collecting(*id) {
                failed = Some((error, *id));
                break;
            }
        }
        self.env.scraping = false;
        self.env.rows = rows;
        let mut body = Vec::new();
        self.env.printed.retain_mut(|printed| match printed {
            Printed::Text(Stream::Out, text) => {
                body.append(text);
                false
            }
            _ => true,
        });
        self.deliver();
        if let Some((error, id)) = failed {
            self.script_error(&error, id);
            return None;
        }
        Some(body)
    }

    /// Runs a handler; its output stays collected.
    fn run_collecting(&mut self, id: HandlerId) -> Result<(), ScriptError> {
        self.env.early.begin();
        let Some(needs) = self.needs.get(id.index()).cloned() else {
            return Ok(());
        };
        if needs.drain {
            let drained = self.env.globals.drain();
            self.report_unstored(drained);
        }
        self.env.globals.texts.begin();
        // A handler that works on copies does not block kernel handlers while it runs.
        let (mut urgent, mut copied) = (None, Ok(()));
        if needs.copies {
            let Some(values) = self.copies(&needs) else {
                return Ok(());
            };
            copied = values.and_then(|values| self.env.globals.copy(values));
        } else {
            let Some(held) = self.lock(&needs) else {
                return Ok(());
            };
            urgent = held;
        }
        let since = Instant::now();
        let program = Rc::clone(&self.env.globals.program);
        let failed = |message| ScriptError {
            message,
            site: program.handlers[id.index()].site,
            callers: Vec::new(),
        };
        let mut result = match copied {
            Ok(()) => spile_ir::interp::run(&program, id, &mut self.env),
            Err(message) => Err(failed(message)),
        };
        let ns = since.elapsed().as_nanos().fit::<u64>();
        let left = self.env.globals.unemptied(&needs);
        let written = match needs.copies {
            false => self.unlock(&needs, urgent),
            true if left.is_empty() => Ok(()),
            true => self.put_back(&needs, &left),
        };
        result = result.and(written.map_err(failed));
        self.env.globals.drop_copies();
        if let Some(hits) = self.hits.get_mut(id.index()) {
            hits.add(ns);
        }
        result
    }

    /// Writes a handler's output.
    fn deliver(&mut self) {
        for printed in std::mem::take(&mut self.env.printed) {
            match printed {
                Printed::Text(stream, text) => self.write(stream, &text),
                Printed::Rows(rows) => rows.each(|format, values| self.row(format, values)),
            }
        }
    }

    /// Passes a row on, with the texts that its marks stand for.
    fn row(&mut self, format: usize, values: &[FieldValue<'_>]) {
        let Some(name) = self.row_names.get(format) else {
            self.losses.malformed += 1;
            return;
        };
        let symbolic = &self.env.globals.texts.symbolic;
        let texts: Vec<Cow<'_, [u8]>> = values
            .iter()
            .map(|value| match (value, &self.deferred) {
                (FieldValue::Long(_), _) => Cow::Borrowed(&[][..]),
                (FieldValue::Str(text), None) => symbolic.render(text),
                (FieldValue::Str(text), Some(deferred)) => match deferred.render(text) {
                    Cow::Borrowed(text) => symbolic.render(text),
                    Cow::Owned(text) => symbolic.render(&text).into_owned().into(),
                },
            })
            .collect();
        let values: Vec<FieldValue<'_>> = values
            .iter()
            .zip(&texts)
            .map(|(value, text)| match value {
                FieldValue::Long(n) => FieldValue::Long(*n),
                FieldValue::Str(_) => FieldValue::Str(text),
            })
            .collect();
        let values = &values[..];
        self.out.row(&Row { name, values });
    }

    /// Sets the word that marks symbolic texts, the known user files, and whether keys are whole texts.
    pub fn set_mark(
        &mut self,
        word: [u8; crate::text::deferred::WORD],
        files: Option<UserFiles>,
        whole_keys: bool,
    ) {
        let limits = &self.env.globals.program.limits;
        let most = (limits.maxstringlen as usize, limits.maxbacktrace as usize);
        let mut symbolizer = Symbolizer::new(word, most, files);
        symbolizer.whole_keys = whole_keys;
        self.env.globals.texts.symbolic = symbolizer;
    }

    fn write(&mut self, stream: Stream, text: &[u8]) {
        let text = &*self.env.globals.texts.symbolic.render(text).into_owned();
        match stream {
            Stream::Out => self.out.push(text),
            Stream::Warn => {
                let text = String::from_utf8_lossy(text);
                self.warn(text.trim_end_matches('\n'));
            }
            Stream::System => self.system(text),
            Stream::NextFile => {
                self.out.flush();
                self.out.next_file();
            }
        }
    }

    fn warn(&mut self, text: &str) {
        if !self.quiet {
            // Both often go to the same terminal: keep the order.
            self.out.flush();
            // As in SystemTap, a script's text is printed unchanged.
            self.out.print_error_raw(&format!("WARNING: {text}\n"));
        }
    }

    /// Runs a command in the background.
    fn system(&mut self, command: &[u8]) {
        self.out.flush();
        if let Err(e) = self.commands.run(command) {
            let command = String::from_utf8_lossy(command);
            self.warn(&format!("cannot run {command}: {e}"));
        }
    }

    /// Runs the held commands; later commands start at once.
    pub fn start_commands(&mut self) {
        for command in self.commands.release() {
            self.system(&command);
        }
    }

    /// A descriptor that is readable when tables of files are ready for handlers.
    pub fn read_files(&self) -> Option<OwnedFd> {
        self.env.globals.texts.symbolic.ready()
    }

    /// Installs those tables.
    pub fn take_read_files(&self) {
        self.env.globals.texts.symbolic.take_read();
    }

    /// Number of user stacks that could not be completed.
    pub fn unfinished_stacks(&self) -> u64 {
        self.env.globals.texts.symbolic.unfinished()
    }

    /// Numbers of user files whose unwind rows, and whose symbols or lines, did not fit.
    pub fn files_without_space(&self) -> (u64, u64) {
        self.env.globals.texts.symbolic.files_without_space()
    }

    /// Number of lines with names of generated code that could not be read.
    pub fn bad_names(&self) -> u64 {
        self.env.globals.texts.symbolic.bad_names()
    }

    /// Whether error records came since the last call.
    pub fn kernel_errors_seen(&mut self) -> bool {
        std::mem::take(&mut self.errors_seen)
    }

    /// Takes over the kernel's counts of errors and truncated strings.
    pub fn set_kernel_counts(&mut self, errors: u64, truncated: u64) {
        self.kernel_errors = errors;
        self.kernel_truncated = truncated;
        self.sum_up();
    }

    /// Sums the counts of both halves; too many errors end the session.
    pub fn sum_up(&mut self) {
        self.losses.errors = self.controller_errors + self.kernel_errors;
        let cut = self.env.truncated + self.env.globals.texts.symbolic.cut_keys();
        self.losses.truncated = self.kernel_truncated + cut;
        self.env.globals.count_losses(&mut self.losses);
        self.failed |= self
            .losses
            .too_many_errors(&self.env.globals.program.limits);
    }

    /// Whether an error is only counted.
    fn is_silent(&self, message: &str) -> bool {
        self.silent_errors || self.silent_overflows && is_overflow(message)
    }

    fn script_error(&mut self, error: &ScriptError, handler: HandlerId) {
        let message = String::from_utf8_lossy(error.message.message());
        let (probe, program) = ((Some(handler), &[][..]), &self.env.globals.program);
        let line = message::error_line(&message, error.site, &error.callers, probe, program);
        if self.is_silent(&message) {
            self.controller_errors += 1;
            self.sum_up();
        } else {
            self.error_line(&line);
            self.say_way_out(&message, error.site, handler);
        }
    }

    fn error_line(&mut self, line: &str) {
        self.out.flush();
        self.out.print_error(line);
        self.controller_errors += 1;
        self.sum_up();
    }

    /// Reports an error that belongs to no handler and ends the session.
    pub fn fatal(&mut self, text: &str) {
        self.error_line(&format!("ERROR: {text}\n"));
        self.failed = true;
    }

    /// Prints the globals that no handler reads.
    pub fn display_globals(&mut self) {
        let text = crate::controller::display::text(&mut self.env.globals);
        self.out.push(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spile_ir::fmt::{Format, Piece as FmtPiece};
    use spile_ir::storage::Storage;
    use spile_ir::{
        Block, Body, Event, FormatId, Global, GlobalId, GlobalKind, Handler, Inst, Site, SiteId,
        Term, Ty,
    };
    use spile_layout::{GlobalLayout, GlobalLocation, Layout, RecordKind, shared};
    use std::sync::atomic::Ordering;

    /// One locked shared number that the handler sets, and a format without conversions.
    fn program() -> Program {
        let store = Inst::GStore {
            g: GlobalId(0),
            val: spile_ir::Val::Imm(5),
        };
        let block = Block {
            insts: vec![(store, SiteId(0))],
            term: Term::Ret(None),
            catch: None,
        };
        Program {
            globals: vec![Global {
                name: "x".into(),
                kind: GlobalKind::Scalar(Ty::Long),
                init: None,
                storage: Storage::Shared { lock: true },
                display: true,
                site: SiteId(0),
            }],
            handlers: vec![Handler {
                point: "timer.s(1)".into(),
                points: 1,
                event: Event::Timer {
                    period_ns: 1,
                    randomize_ns: 0,
                },
                body: Body {
                    blocks: vec![block],
                    ..Body::default()
                },
                site: SiteId(0),
            }],
            formats: vec![Format {
                pieces: vec![FmtPiece::Lit(b"hit\n"[..].into())],
            }],
            sites: vec![Site::default()],
            ..Program::default()
        }
    }

    fn controller() -> Controller {
        controller_of(program())
    }

    fn controller_of(program: Program) -> Controller {
        let print = RecordKind::Print {
            stream: Stream::Out,
            fmt: FormatId(0),
        };
        let bad = RecordKind::Print {
            stream: Stream::Out,
            fmt: FormatId(9),
        };
        let error = RecordKind::Error {
            kind: spile_layout::ErrorKind::DivisionByZero,
            site: SiteId(0),
            handler: HandlerId(0),
        };
        let shape = |what| RecordShape {
            what,
            fields: vec![],
            words: 0,
        };
        let layout = Layout {
            shared_size: 256,
            cpu_stride: 128,
            cpus: 1,
            globals: vec![Some(GlobalLayout {
                lock: Some(128),
                location: GlobalLocation::Scalar {
                    offset: 136,
                    ty: Ty::Long,
                },
            })],
            handlers: vec![None],
            records: vec![shape(print), shape(error), shape(bad)],
            ..Layout::default()
        };
        let kernel = KernelState::in_memory(&layout, vec![vec![]]);
        let out = Output::open(crate::io::output::OutputTarget::Memory, None).unwrap();
        let facts = ProgramFacts::new(&program);
        Controller::new(Rc::new(program), &facts, Some(kernel), out, 0, true)
    }

    fn record(shapes: &[u64]) -> Vec<u8> {
        let mut bytes = 0u32.to_ne_bytes().to_vec();
        bytes.extend((8 + 8 * shapes.len() as u32).to_ne_bytes());
        bytes.extend(shapes.iter().flat_map(|s| s.to_ne_bytes()));
        bytes
    }

    #[test]
    fn records_become_output_and_errors() {
        let mut c = controller();
        c.record(&record(&[0, 0]));
        c.record(&record(&[]));
        assert!(!c.kernel_errors_seen());
        c.record(&record(&[0, 1]));
        assert!(c.kernel_errors_seen() && !c.kernel_errors_seen());
        assert_eq!((c.records, c.losses.malformed), (3, 0));
        c.record(&record(&[7]));
        c.record(&record(&[2]));
        c.record(b"x");
        assert_eq!(c.losses.malformed, 3);
        assert_eq!(c.out.take(), b"hit\nhit\nhit\n");
        c.set_kernel_counts(1, 4);
        assert!(c.failed && c.losses.errors == 1 && c.losses.truncated == 4);
    }

    #[test]
    fn a_lock_that_cannot_be_had_skips_the_handler() {
        let mut c = controller();
        let word = |c: &Controller, at| {
            c.kernel()
                .unwrap()
                .state()
                .shared(at)
                .load(Ordering::Relaxed)
        };
        c.kernel()
            .unwrap()
            .state()
            .shared(128)
            .store(1, Ordering::Relaxed);
        c.run(HandlerId(0));
        assert_eq!((word(&c, 136), c.losses.skipped_total()), (0, 1));
        c.kernel()
            .unwrap()
            .state()
            .shared(128)
            .store(0, Ordering::Relaxed);
        c.run(HandlerId(0));
        assert_eq!((word(&c, 136), word(&c, 128)), (5, 0));
        assert_eq!(c.hits[0].count, 1);
        assert!(!c.exit_wanted());
        c.kernel()
            .unwrap()
            .state()
            .shared(shared::EXIT)
            .store(1, Ordering::Relaxed);
        assert!(c.exit_wanted());
        c.display_globals();
        assert_eq!(c.out.take(), b"x=5\n");
    }

    #[test]
    fn what_is_taken_comes_back_after_an_error() {
        let x = |c: &Controller| {
            c.kernel()
                .unwrap()
                .state()
                .shared(136)
                .load(Ordering::Relaxed)
        };
        let store = Inst::GStore {
            g: GlobalId(0),
            val: spile_ir::Val::Imm(0),
        };
        // A division by 0.
        let fail = Inst::Bin {
            op: spile_ir::BinOp::Div,
            dst: spile_ir::Reg(0),
            a: spile_ir::Val::Imm(1),
            b: spile_ir::Val::Imm(0),
        };
        for fails in [false, true] {
            let mut program = program();
            let body = &mut program.handlers[0].body;
            body.regs = vec![Ty::Long];
            let insts = &mut body.blocks[0].insts;
            insts[0].0 = store.clone();
            if fails {
                insts.insert(0, (fail.clone(), SiteId(0)));
            }
            let mut c = controller_of(program);
            assert!(c.needs[0].copies && c.needs[0].taken == [GlobalId(0)]);
            c.kernel()
                .unwrap()
                .state()
                .shared(136)
                .store(7, Ordering::Relaxed);
            c.run(HandlerId(0));
            assert_eq!(x(&c), if fails { 7 } else { 0 });
            assert_eq!(c.losses.errors, u64::from(fails));
        }
    }
}
