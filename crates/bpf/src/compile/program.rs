//! The code of a BPF program: its handlers one after the other, or a dispatch to their subprograms.

use spile_cast::Cast;
use spile_ebpf::isa::asm::{ARGUMENTS, Asm, AsmFunction, Label};
use spile_ebpf::isa::insn::Reg::R10;
use spile_ebpf::isa::insn::{AluOp, Cond, Size};
use spile_ir::{BodyFacts, Event, HandlerId, NrSet, Program};

use crate::attach;
use crate::attach::attachment::RAW_SYSCALLS;
use crate::compiled::{Attach, CodeAttach};
use crate::error::{CompileError, Res, program_error};
use crate::lower::body_context::{BodyContext, ObjectContext};
use crate::lower::codegen::HandlerCodegen;
use crate::lower::handler::entry::EntryState;
use crate::lower::pool::Pool;
use crate::lower::slots::{CTX, TMP, VERDICT, passed};
use crate::lower::syscalls::parts::on_stack;
use crate::lower::syscalls::{reads_number, unlinked_number};
use crate::plan::ObjectPlan;
use crate::programs::dispatch::{self, HandlerSub};
use crate::programs::process_tree;
use crate::regalloc::Allocation;
use crate::target::Target;

/// A larger number of handlers in one program become subprograms.
const INLINE: usize = 4;
/// Limit on the subprograms for handlers: the kernel allows 256 in total.
const MAX_PARTS: usize = 192;

/// The input of the programs of an object.
pub(super) struct ProgramCodegen<'a> {
    program: &'a Program,
    options: &'a Target,
    plan: &'a ObjectPlan,
    /// For each handler of the kernel, its body.
    bodies: Vec<Option<BodyContext<'a>>>,
}

/// Stores the first parameters of a function: the context, and the system call's number.
fn store_parameters(asm: &mut Asm, number: bool) {
    for (slot, parameter) in passed(number).zip(ARGUMENTS) {
        asm.store(Size::DW, R10, slot, parameter);
    }
}

impl<'a> ProgramCodegen<'a> {
    pub(super) fn new(object: ObjectContext<'a>, allocs: &'a [Option<Allocation>]) -> Self {
        let body = |(i, alloc): (usize, &'a Option<Allocation>)| {
            let alloc = alloc.as_ref()?;
            Some(BodyContext::new(object, HandlerId(i.fit()), alloc))
        };
        ProgramCodegen {
            program: object.program,
            options: object.options,
            plan: object.plan,
            bodies: allocs.iter().enumerate().map(body).collect(),
        }
    }

    /// The code of a program with these handlers.
    pub(super) fn program(
        &self,
        name: &str,
        attach: &Attach,
        handlers: &[HandlerId],
        pool: &mut Pool,
    ) -> Result<AsmFunction, CompileError> {
        let mut asm = Asm::new(name, &["ctx"]);
        store_parameters(&mut asm, false);
        let out = asm.label();
        if let (Some((probe, _)), Some(table)) = (attach.code(), self.plan.layout.tree)
            && probe.tree
        {
            process_tree::only_within(&mut asm, table, out);
        }
        let entry_state = self.entry_state(&mut asm, attach, handlers, pool)?;
        let mut facts = handlers.iter().map(|id| self.plan.facts.handler(*id));
        let decided = facts.any(BodyFacts::sets_verdict);
        let go_on = match attach {
            Attach::Hook(hook) => hook.go_on,
            _ => 0,
        };
        let session = self.options.features.kprobe_session;
        if let (Some((_, CodeAttach::Session)), Some(session)) = (attach.code(), session) {
            self.session(&mut asm, session.is_return, handlers, out, pool)?;
        } else if decided {
            // Each handler acts as a hook of its own: a packet that one drops does not reach the
            // next.
            for id in handlers {
                asm.store(Size::DW, R10, VERDICT, go_on);
                self.emit_inline(&mut asm, *id, entry_state, pool)?;
                let verdict = asm.word(R10, VERDICT);
                asm.jump_if(Cond::Ne, verdict, go_on, out);
            }
        } else {
            self.emit_handlers(&mut asm, handlers, entry_state, pool)?;
        }
        asm.bind(out);
        // The program's verdict: packets are accepted, and nothing is forbidden.
        if decided {
            let verdict = asm.word(R10, VERDICT);
            if go_on == 1 {
                asm.alu(AluOp::And, verdict, 1);
            } else {
                // The verifier wants to see the range of error numbers.
                let [allow, done] = [asm.label(), asm.label()];
                asm.jump_if(Cond::Sgt, verdict, 0, allow);
                asm.jump_if(Cond::Sge, verdict, spile_layout::LOWEST_ERROR, done);
                asm.bind(allow);
                asm.mov(verdict, 0);
                asm.bind(done);
            }
            asm.ret(verdict);
        } else {
            asm.ret(go_on);
        }
        asm.finish().map_err(program_error)
    }

    /// Puts the values on the stack that the handlers share.
    fn entry_state(
        &self,
        asm: &mut Asm,
        attach: &Attach,
        handlers: &[HandlerId],
        pool: &mut Pool,
    ) -> Result<EntryState, CompileError> {
        let needed = self.number_needed(attach, handlers);
        let (true, Some(first)) = (needed, handlers.first()) else {
            return Ok(EntryState::default());
        };
        let body = self.body(*first)?;
        if handlers.len() == 1 && body.reads_number_late() {
            return Ok(EntryState {
                asked: true,
                ..EntryState::default()
            });
        }
        let event = &self.program.handlers[first.index()].event;
        let entry = matches!(event, Event::SysEnter(_));
        let any = matches!(
            event,
            Event::SysEnter(NrSet::All) | Event::SysExit(NrSet::All)
        );
        // Hits that the tests turn away need no number, unless another handler needs it.
        let late = any && handlers.len() == 1 && body.split().is_some_and(|s| !s.asks);
        self.with_codegen(asm, body, pool, |g| {
            match late {
                true => g.save_task(),
                false => g.store_number(entry)?,
            }
            Ok(EntryState {
                number: true,
                late,
                task: g.task_saved,
                asked: false,
            })
        })
    }

    /// The handlers of a session: those at the entry, and those at the return.
    fn session(
        &self,
        asm: &mut Asm,
        is_return: u32,
        handlers: &[HandlerId],
        out: Label,
        pool: &mut Pool,
    ) -> Result<(), CompileError> {
        let returns = asm.label();
        let (after, before): (Vec<_>, Vec<_>) = handlers
            .iter()
            .partition(|id| attach::kind::at_return(self.program, **id));
        // Since 7.0 the argument is the context itself.
        let context = asm.word(R10, CTX);
        let at_return = asm.call_kfunc_with(is_return, &[context.into()]);
        asm.alu(AluOp::And, at_return, 1);
        asm.jump_if(Cond::Ne, at_return, 0, returns);
        self.emit_handlers(asm, &before, EntryState::default(), pool)?;
        asm.jump(out);
        asm.bind(returns);
        self.emit_handlers(asm, &after, EntryState::default(), pool)
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
                self.with_codegen(asm, self.body(part.handlers[0])?, pool, |g| {
                    let number = unlinked_number(g.asm);
                    g.dispatch_number(number, &set, end);
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
        let (out, number, body) = (asm.label(), known.number, self.body(id)?);
        let Some(split) = body.split() else {
            self.with_codegen(asm, body, pool, |g| {
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
        params.extend(split.passes_task(known).then_some("task"));
        let mut sub = Asm::new(&name, &params);
        store_parameters(&mut sub, number);
        let end = sub.label();
        self.with_codegen(&mut sub, body, pool, |g| {
            g.late_number = known.asked;
            g.body_sub(split, known, end)
        })?;
        sub.bind(end);
        sub.ret(0);
        let function = sub.finish().map_err(program_error)?;
        pool.subs.insert(name.clone(), function);
        let locations = body.alloc.on_stack([TMP[2], TMP[3], TMP[4]]);
        self.with_codegen(asm, body, pool, |g| {
            g.locations = &locations;
            g.asm.set_spill_words(&TMP[..2]);
            g.task_saved = known.task;
            g.late_number = known.asked;
            g.prefilter(split, known, &name, out)
        })?;
        asm.bind(out);
        Ok(())
    }

    /// Groups the handlers into as many subprograms as the kernel allows.
    fn group_into_subs(&self, handlers: &[HandlerId]) -> Vec<HandlerSub> {
        let size = handlers.len().div_ceil(MAX_PARTS);
        let numbers = |id: &HandlerId| match &self.program.handlers[id.index()].event {
            Event::SysEnter(NrSet::List(list)) | Event::SysExit(NrSet::List(list)) => {
                Some(list.iter().map(|nr| on_stack(*nr)).collect())
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
    ) -> Result<AsmFunction, CompileError> {
        let params: &[&'static str] = if number { &["ctx", "nr"] } else { &["ctx"] };
        let mut asm = Asm::new(&part.name, params);
        store_parameters(&mut asm, number);
        let single = part.handlers.len() == 1;
        for id in &part.handlers {
            let out = asm.label();
            self.with_codegen(&mut asm, self.body(*id)?, pool, |g| g.handler(out, single))?;
            asm.bind(out);
        }
        asm.ret(0);
        asm.finish().map_err(program_error)
    }

    /// Whether some handler uses the system call's number.
    fn number_needed(&self, attach: &Attach, handlers: &[HandlerId]) -> bool {
        let calls = match attach {
            Attach::RawTracepoint(names) => {
                names.iter().any(|p| p == "sys_enter" || p == "sys_exit")
            }
            Attach::TraceEvent(event) => *event.system == *RAW_SYSCALLS,
            _ => false,
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

    fn body(&self, id: HandlerId) -> Result<&BodyContext<'a>, CompileError> {
        let body = self.bodies.get(id.index()).and_then(Option::as_ref);
        body.ok_or_else(|| program_error("a handler without registers"))
    }

    /// Runs a step with a code generator for a handler's function; adds the position to errors.
    fn with_codegen<'b, T>(
        &self,
        asm: &'b mut Asm,
        body: &'b BodyContext<'b>,
        pool: &'b mut Pool,
        step: impl FnOnce(&mut HandlerCodegen<'b>) -> Res<T>,
    ) -> Result<T, CompileError> {
        let mut generator = HandlerCodegen::new(asm, pool, body);
        step(&mut generator).map_err(|reason| {
            let handler = &self.program.handlers[body.handler.index()];
            let site = self.program.sites.get(generator.site.index());
            CompileError {
                handler: handler.point.to_string(),
                site: site.map(|s| s.near.to_string()).unwrap_or_default(),
                reason,
            }
        })
    }
}
