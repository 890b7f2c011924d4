//! Compilation of a program to an object: the BPF programs, and the handlers of each one.

mod program;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use spile_ir::intrinsics::Intrinsic;
use spile_ir::marks::{BodyId, Marks};
use spile_ir::{HostKind, Program, ProgramFacts, SiteId, Ty};
use spile_layout::{HandlerInfo, Layout, RecordKind, RecordShape, SymbolicForm};
use spile_lir::Module;

use self::program::ProgramCodegen;
use crate::attach::attachment::ProgramType;
use crate::attach::{self, AttachPlan, Group};
use crate::compiled::{Attach, Object, ProgramInfo, RING, can_follow};
use crate::error::{CompileError, LowerError, program_error};
use crate::lower::body_context::ObjectContext;
use crate::lower::event::counters::{self, CounterConfig};
use crate::lower::event::usermem::USER_TEXT;
use crate::lower::pool::Pool;
use crate::lower::syscalls::parts::tells_parts;
use crate::object::elf::{LICENSE, MapSpec, MapType, ObjectSpec, ProgramSpec};
use crate::plan::ObjectPlan;
use crate::plan::depth;
use crate::programs::{
    EXEC, FORK, critical_section, exec_notifier, forked_calls, process_tree, unfollowed,
};
use crate::regalloc::{self, Allocation, Unallocated};
use crate::target::Target;

/// Handlers with more instruction slots are split into several programs: the kernel's verifier
/// follows a million instructions in one (`BPF_COMPLEXITY_LIMIT_INSNS`), and some of them more than
/// once.
const MOST_SLOTS: usize = 400_000;
/// Limit on the subprograms of a program (`BPF_MAX_SUBPROGS`, which counts the program itself).
const MOST_SUBPROGRAMS: usize = 255;
/// Bytes of a ring buffer for errors only: enough for a hundred, although the first one ends a
/// session by default. The kernel allocates the pages when the buffer is created (4 MB: 1.5 ms with
/// mapping).
const ERRORS_BYTES: u32 = 64 << 10;

/// Compiles the kernel handlers of a program.
///
/// # Errors
/// An operation that kernel handlers do not have, or a limit that is exceeded; never a property of
/// the machine.
pub fn compile(program: &Program, options: &Target) -> Result<Object, CompileError> {
    let facts = Rc::new(ProgramFacts::new(program));
    compile_planned(program, &facts, options, |_, _| {})
}

/// Compiles as [`compile`] does, with the facts of the program; `planned` receives most maps and the
/// bytes of the state memory before the code is generated.
///
/// # Errors
/// The same as for [`compile`].
pub fn compile_planned(
    program: &Program,
    facts: &Rc<ProgramFacts>,
    options: &Target,
    planned: impl FnOnce(&[MapSpec], u32),
) -> Result<Object, CompileError> {
    let (program, idle) = attach::fexit_fusion::rewrite(program, options);
    let facts = match &program {
        Cow::Borrowed(_) => facts.clone(),
        Cow::Owned(program) => Rc::new(ProgramFacts::new(program)),
    };
    let program = &*program;
    let marks = Marks::new(program, &facts, &SymbolicForm::made_in_kernel);
    let allocs = allocate(program, &marks)?;
    let attach = AttachPlan::new(program, options, &idle);
    let frame = allocs.iter().flatten().map(|a| a.frame).max().unwrap_or(0);
    let plan =
        ObjectPlan::new(program, (facts, marks), options, frame, attach).map_err(program_error)?;
    let maps = plan.maps();
    planned(&maps, plan.bss_size());
    let mut code = Programs {
        program,
        options,
        plan: &plan,
        pool: Pool::new(options),
        programs: Vec::new(),
        infos: Vec::new(),
    };
    let counted = counters::counters(program);
    code.handlers(&allocs, &counted)?;
    code.own_programs()?;
    let object = code.object(maps, counted.len());
    let chain = depth::deepest(&object.spec);
    debug_assert!(chain.len() <= depth::MOST, "calls too deep: {chain:?}");
    debug_assert!(crate::object::link::link(&object.spec).is_ok());
    Ok(object)
}

/// Allocates the registers of the kernel's handlers, and refuses texts with symbols that a handler
/// looks into.
fn allocate(program: &Program, marks: &Marks) -> Result<Vec<Option<Allocation>>, CompileError> {
    let mut bodies = Vec::new();
    for (i, handler) in program.handlers.iter().enumerate() {
        if !handler.event.is_compiled() {
            bodies.push(None);
            continue;
        }
        let refused = |site: Option<SiteId>, reason: LowerError| {
            let site = site.and_then(|s| program.sites.get(s.index()));
            CompileError {
                handler: handler.point.to_string(),
                site: site.map(|s| s.near.to_string()).unwrap_or_default(),
                reason,
            }
        };
        if let Some(site) = marks.unrenderable(BodyId::Handler(i)) {
            let reason = "the kernel's stack with locations in the source, `usymoffset` and texts of floating-point \
                          numbers (`$x$`) become text when they are printed: in a kernel handler they can be \
                          printed, joined, saved, and be a key, and not be looked into; `sprint_backtrace`, \
                          `symfileline`, `usymdata` and `fp_to_string` can";
            return Err(refused(Some(site), LowerError::unsupported(reason)));
        }
        let body = Unallocated::new(&handler.body);
        let body = body.ok_or_else(|| refused(None, "a malformed body".into()))?;
        bodies.push(Some(body));
    }
    Ok(regalloc::allocate_all(bodies))
}

/// The programs of an object, as they are made.
struct Programs<'a> {
    program: &'a Program,
    options: &'a Target,
    plan: &'a ObjectPlan,
    pool: Pool,
    programs: Vec<ProgramSpec>,
    infos: Vec<ProgramInfo>,
}

impl Programs<'_> {
    /// The programs of the handlers, and the switch of the counters.
    fn handlers(
        &mut self,
        allocs: &[Option<Allocation>],
        counted: &[CounterConfig],
    ) -> Result<(), CompileError> {
        let mut groups = VecDeque::from(self.plan.attach.groups.clone());
        if !counted.is_empty() {
            groups.push_back(Group {
                attach: Attach::Switch(counted.to_vec()),
                handlers: Vec::new(),
            });
        }
        let object = ObjectContext {
            tells_parts: tells_parts(self.program, self.options),
            program: self.program,
            options: self.options,
            plan: self.plan,
        };
        let codegen = ProgramCodegen::new(object, allocs);
        while let Some(Group { attach, handlers }) = groups.pop_front() {
            let ProgramType { name, section, .. } = attach.program_type();
            let name = format!("p{}_{name}", self.programs.len());
            let mut busy = handlers.clone();
            busy.retain(|id| {
                self.options.timing || !attach::dedup::does_nothing(self.program, *id)
            });
            let function = match &attach {
                Attach::Switch(events) => {
                    let module = Module::from(counters::switch_handler(&name, events.len()));
                    let none = FxHashMap::default();
                    let function = self.pool.program(module, self.plan, none);
                    function.map_err(program_error)?
                }
                _ => codegen.program(&name, &attach, &busy, &mut self.pool)?,
            };
            self.pool.emit_pending().map_err(program_error)?;
            let (slots, subs) = depth::size(&function, &self.pool.subs);
            let much = slots > MOST_SLOTS || subs > MOST_SUBPROGRAMS;
            let several = handlers.len() > 1 && can_split(&attach);
            if several && (much || depth::is_too_deep(&function, &self.pool.subs)) {
                // The programs run one after the other, as the handlers would in one program.
                let parts: Vec<_> = handlers.iter().map(|id| format!("h{}", id.0)).collect();
                self.pool.subs.retain(|name, _| !parts.contains(name));
                for handlers in handlers.rchunks(handlers.len().div_ceil(2)) {
                    groups.push_front(Group {
                        attach: attach.clone(),
                        handlers: handlers.to_vec(),
                    });
                }
                continue;
            }
            self.programs.push(ProgramSpec { section, function });
            self.infos.push(ProgramInfo {
                idle: busy.is_empty() && !handlers.is_empty(),
                name,
                attach,
                handlers,
            });
        }
        Ok(())
    }

    /// The programs of spile's own. Only the kernel has them: a session that is in its target's processes sees their
    /// forks and executions itself.
    fn own_programs(&mut self) -> Result<(), CompileError> {
        if self.options.host == HostKind::Process {
            return Ok(());
        }
        let at_tracepoint = |name: &str| Attach::RawTracepoint(vec![name.into()]);
        if let Some(table) = self.plan.layout.tree {
            let tracker = process_tree::fork_tracker(table, &self.options.offsets);
            let module = Module::from(tracker.map_err(program_error)?);
            self.own_program(at_tracepoint(FORK), module)?;
            let offsets = &self.options.offsets;
            let events = offsets.uprobe.and(offsets.task_perf_events);
            let follows = |p: &ProgramInfo| p.attach.code().is_some_and(|(p, _)| can_follow(p));
            if let Some(events) = events.filter(|_| self.infos.iter().any(follows)) {
                let module = Module::from(unfollowed::program(table, events));
                self.own_program(at_tracepoint(EXEC), module)?;
            }
        }
        if self.program.watches_programs() {
            let shape = self
                .pool
                .record(RecordShape::new(RecordKind::Executed, vec![Ty::Long; 2]));
            let module = Module::from(exec_notifier::program(shape));
            self.own_program(at_tracepoint(EXEC), module)?;
        }
        let calls = forked_calls::maps(self.program, &self.plan.layout.globals);
        let Target {
            offsets, features, ..
        } = self.options;
        if let Some(module) = forked_calls::module(&calls, offsets, features) {
            self.own_program(at_tracepoint(FORK), module)?;
        }
        if let Some(critical) = &self.plan.layout.critical {
            self.own_program(Attach::OnDemand, critical_section::module(critical))?;
        }
        Ok(())
    }

    /// Adds a program of spile's own, the first function of its module. Those at tracepoints are attached
    /// before all others, and before the search for existing processes.
    fn own_program(&mut self, attach: Attach, module: Module) -> Result<(), CompileError> {
        let location = match attach {
            Attach::OnDemand => self.programs.len(),
            _ => 0,
        };
        let interrupts = self.options.features.interrupts.iter();
        let kfuncs = interrupts.flat_map(|k| {
            let functions = [
                (critical_section::SAVE, k.save),
                (critical_section::RESTORE, k.restore),
            ];
            functions.map(|(name, id)| (name.to_owned(), id))
        });
        let function = self.pool.program(module, self.plan, kfuncs.collect());
        let spec = ProgramSpec {
            section: attach.program_type().section,
            function: function.map_err(program_error)?,
        };
        let info = ProgramInfo {
            name: spec.function.name.clone(),
            attach,
            handlers: Vec::new(),
            idle: false,
        };
        self.programs.insert(location, spec);
        self.infos.insert(location, info);
        Ok(())
    }

    /// Adds the maps of `counted` counters and the ring buffer to those of the plan.
    fn add_maps(&self, maps: &mut Vec<MapSpec>, counted: usize) {
        // If no handler prints, only errors are sent.
        let error = |r: &RecordShape| {
            matches!(
                r.what,
                RecordKind::Error { .. } | RecordKind::Rethrown { .. } | RecordKind::Executed
            )
        };
        let ring = if self.pool.records.iter().all(error) {
            self.options.ring_bytes.min(ERRORS_BYTES)
        } else {
            self.options.ring_bytes
        };
        maps.extend(counters::maps(counted, self.options.cpus));
        maps.push(MapSpec {
            name: RING.into(),
            ty: MapType::Ringbuf,
            key_size: 0,
            value_size: 0,
            max_entries: ring,
            flags: 0,
        });
    }

    /// The object and its layout.
    fn object(self, mut maps: Vec<MapSpec>, counted: usize) -> Object {
        self.add_maps(&mut maps, counted);
        let (plan, pool) = (self.plan, self.pool);
        let layout = Layout {
            handlers: handlers(plan, &self.infos),
            records: pool.records,
            pages: pool.subs.contains_key(USER_TEXT)
                || (plan.facts.kernel_handlers())
                    .any(|f| f.uses(Intrinsic::DirectMap) || f.uses(Intrinsic::PageArray)),
            ..plan.layout.clone()
        };
        let spec = ObjectSpec {
            maps,
            bss_size: plan.bss_size(),
            rodata: pool.rodata,
            programs: self.programs,
            subprograms: pool.subs.into_values().collect(),
            license: LICENSE.into(),
        };
        Object {
            spec,
            layout,
            programs: self.infos,
            follows: self.options.offsets.uprobe.is_some(),
            lir: pool.lir,
        }
    }
}

/// The handlers, each with the other tracepoints that share its program.
fn handlers(plan: &ObjectPlan, infos: &[ProgramInfo]) -> Vec<Option<HandlerInfo>> {
    let mut handlers = plan.layout.handlers.clone();
    for info in infos {
        if let Attach::RawTracepoint(names) = &info.attach {
            for id in &info.handlers {
                if let Some(Some(handler)) = handlers.get_mut(id.index()) {
                    handler.others = names.iter().skip(1).cloned().collect();
                }
            }
        }
    }
    handlers
}

/// Whether several programs can share this attachment, each with some of the handlers.
fn can_split(attach: &Attach) -> bool {
    matches!(attach, Attach::RawTracepoint(_) | Attach::TraceEvent(_))
}
