//! Compilation of a program to an object: the BPF programs, and the handlers of each one.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use spile_ir::marks::{BodyId, Marks};
use spile_ir::{BodyFacts, Event, HandlerId, Inst, NrSet, Program, ProgramFacts, Ty};

use crate::attach::{self, AttachPlan, Group};
use crate::isa::asm::{Asm, Function};
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size};
use crate::layout::{
    Attach, CodeAttach, Layout, Object, ProgramInfo, RING, RecordKind, RecordShape, StackWords,
    SymbolicForm,
};
use crate::lower::event::counters;
use crate::lower::handler::entry::EntryState;
use crate::lower::{
    CTX, HandlerCodegen, NR, Pool, TMP, USER_TEXT, VERDICT, field_types, output_piece,
    reads_number, rethrown_fields, saved_max,
};
use crate::object::elf::{LICENSE, MapSpec, MapType, ObjectSpec, ProgramSpec};
use crate::plan::depth;
use crate::plan::{LayoutInputs, StateLayout};
use crate::programs::critical_section;
use crate::programs::dispatch::{self, HandlerSub};
use crate::programs::exec_notifier;
use crate::programs::process_tree;
use crate::regalloc::{self, Allocation};
use crate::target::Options;

/// A larger number of handlers in one program become subprograms.
const INLINE: usize = 4;
/// Handlers with more instruction slots are split into several programs: the kernel's verifier
/// follows a million instructions in one (`BPF_COMPLEXITY_LIMIT_INSNS`), and some of them more than
/// once.
const MOST_SLOTS: usize = 400_000;
/// Limit on the subprograms of a program (`BPF_MAX_SUBPROGS`, which counts the program itself).
const MOST_SUBPROGRAMS: usize = 255;
/// Limit on the subprograms for handlers: the kernel allows 256 in total.
const MAX_PARTS: usize = 192;
/// Bytes of a ring buffer for errors only: enough for a hundred, although the first one ends a
/// session by default. The kernel allocates the pages when the buffer is created (4 MB: 1.5 ms with
/// mapping).
const ERRORS_BYTES: u32 = 64 << 10;

/// The reason why a program cannot be compiled to BPF. Analysis refuses what kernel handlers cannot
/// do, with a better message; this error names what analysis missed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError {
    /// The handler's probe point; empty if the error concerns the whole script.
    pub handler: String,
    /// The position in the script.
    pub site: String,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot compile")?;
        if !self.handler.is_empty() {
            write!(f, " the handler of {}", self.handler)?;
        }
        write!(f, ": {}", self.reason)?;
        if !self.site.is_empty() {
            write!(f, ", near {}", self.site)?;
        }
        Ok(())
    }
}

impl std::error::Error for CompileError {}

fn program_error(reason: impl Into<String>) -> CompileError {
    CompileError {
        handler: String::new(),
        site: String::new(),
        reason: reason.into(),
    }
}

/// Compiles the kernel handlers of a program.
///
/// # Errors
/// An operation that kernel handlers do not have, or a limit that is exceeded; never a property of
/// the machine.
pub fn compile(program: &Program, options: &Options) -> Result<Object, CompileError> {
    let facts = Rc::new(ProgramFacts::of(program));
    compile_planned(program, &facts, options, |_| {})
}

/// Compiles as [`compile`] does, with the facts of the program; `planned` receives most maps before the
/// code is generated.
///
/// # Errors
/// The same as for [`compile`].
pub fn compile_planned(
    program: &Program,
    facts: &Rc<ProgramFacts>,
    options: &Options,
    planned: impl FnOnce(&[MapSpec]),
) -> Result<Object, CompileError> {
    let (program, idle) = attach::fexit_fusion::rewrite(program, options);
    let facts = match &program {
        Cow::Borrowed(_) => facts.clone(),
        Cow::Owned(program) => Rc::new(ProgramFacts::of(program)),
    };
    let program = &*program;
    let mut allocs: Vec<Option<Allocation>> = Vec::new();
    let mut needs = LayoutInputs {
        marks: Marks::of(program, &facts, &SymbolicForm::made_in_kernel),
        attach: AttachPlan::new(program, options, &idle),
        ..LayoutInputs::default()
    };
    for handler in &program.handlers {
        if !handler.event.in_kernel() {
            allocs.push(None);
            continue;
        }
        let alloc = regalloc::allocate(&handler.body)
            .ok_or_else(|| program_error(format!("{}: a malformed body", handler.point)))?;
        if let Some(site) = needs.marks.unfit(BodyId::Handler(allocs.len())) {
            let site = program.sites.get(site.index());
            return Err(CompileError {
                handler: handler.point.to_string(),
                site: site.map(|s| s.near.to_string()).unwrap_or_default(),
                reason: "the kernel's stack with places in the source and `usymoffset` become text when \
                         they are printed: in a kernel handler they can be printed, joined, saved, and be a \
                         key, and not be looked into; `sprint_backtrace`, `symfileline` and `usymdata` can"
                    .into(),
            });
        }
        needs.frame = needs.frame.max(alloc.frame);
        needs.saved = needs.saved.max(saved_max(&handler.body));
        allocs.push(Some(alloc));
    }
    needs.piece = largest_piece(program);
    let plan = StateLayout::new(program, facts, options, needs).map_err(program_error)?;
    planned(&plan.maps);
    let mut pool = Pool::default();
    let mut programs = Vec::new();
    let mut infos = Vec::new();
    let counted = counters::counters(program);
    let mut groups = plan.attach.groups.clone();
    if !counted.is_empty() {
        groups.push(Group {
            attach: Attach::Switch(counted.clone()),
            handlers: Vec::new(),
        });
    }
    let unit = ProgramBuilder {
        program,
        options,
        plan: &plan,
        allocs: &allocs,
    };
    let mut groups = VecDeque::from(groups);
    while let Some(Group { attach, handlers }) = groups.pop_front() {
        let name = format!("p{}_{}", programs.len(), attach::identifier(&attach));
        let mut busy = handlers.clone();
        busy.retain(|id| options.timing || !attach::dedup::does_nothing(program, *id));
        let function = match &attach {
            Attach::Switch(all) => {
                counters::switch_handler(&name, all.len()).map_err(program_error)?
            }
            _ => unit.program(&name, &attach, &busy, &mut pool)?,
        };
        let (slots, subs) = depth::size(&function, &pool.subs);
        let much = slots > MOST_SLOTS || subs > MOST_SUBPROGRAMS;
        if much && handlers.len() > 1 && can_split(&attach) {
            // PrefilterSplit programs run one after the other, as the handlers would in one
            // program.
            let parts: Vec<_> = handlers.iter().map(|id| format!("h{}", id.0)).collect();
            pool.subs.retain(|name, _| !parts.contains(name));
            for handlers in handlers.rchunks(handlers.len().div_ceil(2)) {
                groups.push_front(Group {
                    attach: attach.clone(),
                    handlers: handlers.to_vec(),
                });
            }
            continue;
        }
        let section = attach.program_type().section;
        programs.push(ProgramSpec { section, function });
        infos.push(ProgramInfo {
            idle: busy.is_empty() && !handlers.is_empty(),
            name,
            attach,
            handlers,
        });
    }
    if let Some(at) = plan.tree {
        let (spec, info) =
            process_tree::fork_tracker(at, &options.offsets).map_err(program_error)?;
        // Attached before all other programs.
        programs.insert(0, spec);
        infos.insert(0, info);
    }
    if program.watches_programs() {
        let shape = pool.record(RecordShape {
            what: RecordKind::Executed,
            fields: vec![Ty::Long; 2],
            words: 0,
        });
        let (spec, info) = exec_notifier::emit(&plan, shape).map_err(program_error)?;
        // Attached before the search for existing processes.
        programs.insert(0, spec);
        infos.insert(0, info);
    }
    if let Some(critical) = &plan.critical {
        let (spec, info, subs) =
            critical_section::program(critical, &plan, options.features.interrupts)
                .map_err(program_error)?;
        programs.push(spec);
        infos.push(info);
        let named = subs.into_iter().map(|s| (s.name.clone(), s));
        pool.subs.extend(named);
    }
    // If no handler prints, only errors are sent.
    let error = |r: &RecordShape| {
        matches!(
            r.what,
            RecordKind::Error { .. } | RecordKind::Rethrown { .. } | RecordKind::Executed
        )
    };
    let ring = if pool.records.iter().all(error) {
        options.ring_bytes.min(ERRORS_BYTES)
    } else {
        options.ring_bytes
    };
    let mut maps = plan.maps.clone();
    maps.extend(counters::maps(counted.len(), options.cpus));
    maps.push(MapSpec {
        name: RING.into(),
        ty: MapType::Ringbuf,
        key_size: 0,
        value_size: 0,
        max_entries: ring,
        flags: 0,
    });
    let layout = Layout {
        shared_size: plan.shared_size,
        cpu_stride: plan.stride,
        cpus: options.cpus,
        globals: plan.globals.clone(),
        handlers: plan.handlers.clone(),
        programs: infos,
        records: pool.records,
        stacks: plan.stacks.as_ref().map(|room| StackWords {
            at: room.words,
            points: room.points.clone(),
            kernel: room.kernel,
            rows: room.rows,
            files: room.user.map(|_| room.next_file),
            symbols: room.names,
            lines: room.lines,
        }),
        tree: plan.tree,
        pages: pool.subs.contains_key(USER_TEXT),
        critical: plan.critical.clone(),
    };
    let spec = ObjectSpec {
        maps,
        bss_size: plan.bss_size(options),
        rodata: pool.rodata,
        programs,
        subprograms: pool.subs.into_values().collect(),
        license: LICENSE.into(),
    };
    let chain = depth::deepest(&spec);
    debug_assert!(chain.len() <= depth::MOST, "calls too deep: {chain:?}");
    debug_assert!(crate::object::link::link(&spec).is_ok());
    Ok(Object { spec, layout })
}

/// Whether several programs can share this attachment, each with some of the handlers.
fn can_split(attach: &Attach) -> bool {
    matches!(attach, Attach::RawTracepoint(_) | Attach::TraceEvent { .. })
}

/// Bytes of the largest output record.
fn largest_piece(program: &Program) -> u32 {
    let max = Ty::str_for_len(program.limits.maxstringlen as usize);
    let mut largest = output_piece(&rethrown_fields(max), 0);
    for handler in program.kernel_handlers() {
        for inst in handler.body.insts() {
            let piece = match inst {
                Inst::Print { args, fmt, .. } => {
                    let types = |a| program.type_of(&handler.body, a).unwrap_or(max);
                    output_piece(&field_types(program, *fmt, args, types), 0)
                }
                Inst::PrintHist { g, .. } => {
                    let spec = program.globals.get(g.index()).and_then(|g| g.kind.stats());
                    let hist = spec.and_then(|s| s.hist);
                    output_piece(&[], hist.map_or(0, |h| h.buckets()))
                }
                _ => continue,
            };
            largest = largest.max(piece);
        }
    }
    largest
}

/// The input of a BPF program.
struct ProgramBuilder<'a> {
    program: &'a Program,
    options: &'a Options,
    plan: &'a StateLayout,
    allocs: &'a [Option<Allocation>],
}

impl ProgramBuilder<'_> {
    fn program(
        &self,
        name: &str,
        attach: &Attach,
        handlers: &[HandlerId],
        pool: &mut Pool,
    ) -> Result<Function, CompileError> {
        let mut asm = Asm::new(name, &["ctx"]);
        asm.store(Size::DW, R10, CTX, R1);
        let out = asm.label();
        if let (Attach::Code { probe, .. }, Some(at)) = (attach, self.plan.tree)
            && probe.tree
        {
            process_tree::only_within(&mut asm, at, out);
        }
        let mut number = self.number_needed(attach, handlers);
        let mut asked = false;
        if let (true, [only]) = (number, handlers) {
            asked = self.with_codegen(&mut asm, *only, pool, |g| Ok(g.reads_number_late()))?;
            number &= !asked;
        }
        let mut known = EntryState {
            number,
            asked,
            ..EntryState::default()
        };
        if let (true, Some(first)) = (number, handlers.first()) {
            let event = &self.program.handlers[first.index()].event;
            let entry = matches!(event, Event::SysEnter(_));
            let any = matches!(
                event,
                Event::SysEnter(NrSet::All) | Event::SysExit(NrSet::All)
            );
            known = self.with_codegen(&mut asm, *first, pool, |g| {
                // Hits that the tests turn away need no number, unless another handler needs it.
                let late = any && handlers.len() == 1 && g.split().is_some_and(|s| !s.asks);
                match late {
                    true => g.save_task(),
                    false => g.store_number(entry)?,
                }
                let task = g.task_saved;
                Ok(EntryState {
                    number,
                    late,
                    task,
                    asked,
                })
            })?;
        }
        let mut facts = handlers.iter().map(|id| self.plan.facts.handler(*id));
        let decided = facts.any(BodyFacts::decides);
        let session = self.options.features.kprobe_session;
        if let (Attach::Code { by, .. }, Some(session)) = (attach, session)
            && *by == CodeAttach::Session
        {
            let returns = asm.label();
            let (after, before): (Vec<_>, Vec<_>) = handlers
                .iter()
                .partition(|id| attach::kind::at_return(self.program, **id));
            // Since 7.0 the argument is the context itself.
            asm.load(Size::DW, R1, R10, CTX);
            asm.call_kfunc(session.is_return);
            asm.alu(AluOp::And, R0, 1);
            asm.jump_if(Cond::Ne, R0, 0, returns);
            self.emit_handlers(&mut asm, &before, EntryState::default(), pool)?;
            asm.jump(out);
            asm.bind(returns);
            self.emit_handlers(&mut asm, &after, EntryState::default(), pool)?;
        } else if decided {
            // Each handler acts as a hook of its own: a packet that one drops does not reach the
            // next.
            for id in handlers {
                asm.store(Size::DW, R10, VERDICT, 1);
                self.emit_inline(&mut asm, *id, known, pool)?;
                asm.load(Size::DW, R1, R10, VERDICT);
                asm.jump_if(Cond::Eq, R1, 0, out);
            }
        } else {
            self.emit_handlers(&mut asm, handlers, known, pool)?;
        }
        asm.bind(out);
        // The program's verdict: packets are accepted (NF_ACCEPT), and nothing is forbidden.
        if decided {
            asm.load(Size::DW, R0, R10, VERDICT);
            asm.alu(AluOp::And, R0, 1);
        } else {
            asm.mov(R0, i32::from(matches!(attach, Attach::Netfilter(_))));
        }
        asm.exit();
        asm.finish().map_err(|e| program_error(e.to_string()))
    }

    /// Emits handlers one after the other.
    fn emit_handlers(
        &self,
        asm: &mut Asm,
        handlers: &[HandlerId],
        known: EntryState,
        pool: &mut Pool,
    ) -> Result<(), CompileError> {
        if handlers.len() <= INLINE {
            for id in handlers {
                self.emit_inline(asm, *id, known, pool)?;
            }
            return Ok(());
        }
        let number = known.number;
        let parts = self.group_into_subs(handlers);
        for part in &parts {
            let function = self.handler_sub(part, number, pool)?;
            pool.subs.insert(part.name.clone(), function);
        }
        for run in dispatch::runs(&parts) {
            if let [part] = run
                && let Some(set) = part.many()
            {
                // One bit of a table replaces ten comparisons of the search tree.
                let end = asm.label();
                self.with_codegen(asm, part.handlers[0], pool, |g| {
                    g.dispatch(&set, end);
                    Ok(())
                })?;
                part.emit_call(asm, number);
                asm.bind(end);
                continue;
            }
            dispatch::emit(asm, run, number);
        }
        Ok(())
    }

    /// Emits a handler in the program itself, or only its leading tests.
    fn emit_inline(
        &self,
        asm: &mut Asm,
        id: HandlerId,
        known: EntryState,
        pool: &mut Pool,
    ) -> Result<(), CompileError> {
        let (out, number) = (asm.label(), known.number);
        let Some(split) = self.with_codegen(asm, id, pool, |g| Ok(g.split()))? else {
            self.with_codegen(asm, id, pool, |g| {
                g.task_saved = known.task;
                g.late_number = known.asked;
                g.handler(out, false)
            })?;
            asm.bind(out);
            return Ok(());
        };
        let name = format!("h{}", id.0);
        let mut params = vec!["ctx"];
        params.extend(number.then_some("nr"));
        params.extend(["a", "b", "c"].iter().take(split.carried.len()));
        params.extend(split.task.then_some("task"));
        let mut sub = Asm::new(&name, &params);
        sub.store(Size::DW, R10, CTX, R1);
        if number {
            sub.store(Size::DW, R10, NR, R2);
        }
        let end = sub.label();
        self.with_codegen(&mut sub, id, pool, |g| {
            g.late_number = known.asked;
            g.body_sub(&split, number, end)
        })?;
        sub.bind(end);
        sub.mov(R0, 0);
        sub.exit();
        let function = sub.finish().map_err(|e| program_error(e.to_string()))?;
        pool.subs.insert(name.clone(), function);
        let alloc = self.alloc(id)?.on_stack([TMP[2], TMP[3], TMP[4]]);
        self.with_alloc(asm, id, &alloc, pool, |g| {
            g.task_saved = known.task;
            g.late_number = known.asked;
            g.prefilter(&split, known, &name, out)
        })?;
        asm.bind(out);
        Ok(())
    }

    /// Groups the handlers into as many subprograms as the kernel allows.
    fn group_into_subs(&self, handlers: &[HandlerId]) -> Vec<HandlerSub> {
        let size = handlers.len().div_ceil(MAX_PARTS);
        let numbers = |id: &HandlerId| match &self.program.handlers[id.index()].event {
            Event::SysEnter(NrSet::List(list)) | Event::SysExit(NrSet::List(list)) => {
                Some(list.clone())
            }
            _ => None,
        };
        let part = |ids: &[HandlerId]| {
            let lists: Option<Vec<Vec<u32>>> = ids.iter().map(numbers).collect();
            HandlerSub {
                name: format!("h{}", ids[0].0),
                handlers: ids.to_vec(),
                numbers: lists.map(|l| l.into_iter().flatten().collect()),
            }
        };
        let parts = handlers.chunks(size.max(1)).map(part);
        // Handlers without any system call are unreachable.
        parts
            .filter(|p| p.numbers.as_ref().is_none_or(|n| !n.is_empty()))
            .collect()
    }

    /// Emits handlers as a subprogram, whose parameters are the context and the system call's
    /// number.
    fn handler_sub(
        &self,
        part: &HandlerSub,
        number: bool,
        pool: &mut Pool,
    ) -> Result<Function, CompileError> {
        let params: &[&'static str] = if number { &["ctx", "nr"] } else { &["ctx"] };
        let mut asm = Asm::new(&part.name, params);
        asm.store(Size::DW, R10, CTX, R1);
        if number {
            asm.store(Size::DW, R10, NR, R2);
        }
        let known = part.handlers.len() == 1;
        for id in &part.handlers {
            let out = asm.label();
            self.with_codegen(&mut asm, *id, pool, |g| g.handler(out, known))?;
            asm.bind(out);
        }
        asm.mov(R0, 0);
        asm.exit();
        asm.finish().map_err(|e| program_error(e.to_string()))
    }

    /// Whether some handler uses the system call's number.
    fn number_needed(&self, attach: &Attach, handlers: &[HandlerId]) -> bool {
        let calls = match attach {
            Attach::RawTracepoint(names) => {
                names.iter().any(|p| p == "sys_enter" || p == "sys_exit")
            }
            attach => matches!(attach, Attach::TraceEvent { .. }),
        };
        if !calls {
            return false;
        }
        handlers.iter().any(|id| {
            let handler = &self.program.handlers[id.index()];
            let list = matches!(
                &handler.event,
                Event::SysEnter(NrSet::List(_)) | Event::SysExit(NrSet::List(_))
            );
            list || handler.body.blocks.iter().any(reads_number)
        })
    }

    fn alloc(&self, id: HandlerId) -> Result<&Allocation, CompileError> {
        match self.allocs.get(id.index()) {
            Some(Some(alloc)) => Ok(alloc),
            _ => Err(program_error("a handler without registers")),
        }
    }

    /// Runs a step with a code generator for a handler; adds the position to errors.
    fn with_codegen<T>(
        &self,
        asm: &mut Asm,
        id: HandlerId,
        pool: &mut Pool,
        step: impl FnOnce(&mut HandlerCodegen<'_>) -> Result<T, String>,
    ) -> Result<T, CompileError> {
        self.with_alloc(asm, id, self.alloc(id)?, pool, step)
    }

    fn with_alloc<T>(
        &self,
        asm: &mut Asm,
        id: HandlerId,
        alloc: &Allocation,
        pool: &mut Pool,
        step: impl FnOnce(&mut HandlerCodegen<'_>) -> Result<T, String>,
    ) -> Result<T, CompileError> {
        let handler = &self.program.handlers[id.index()];
        let mut generator =
            HandlerCodegen::new(asm, self.program, self.options, self.plan, pool, id, alloc);
        step(&mut generator).map_err(|reason| {
            let site = self.program.sites.get(generator.site.index());
            CompileError {
                handler: handler.point.to_string(),
                site: site.map(|s| s.near.to_string()).unwrap_or_default(),
                reason,
            }
        })
    }
}
