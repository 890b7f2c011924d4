//! Facts about a body, computed once for each handler before its code is generated.

use std::cell::OnceCell;
use std::ops::Deref;

use spile_ir::{
    Block, BlockId, Body, BodyFacts, Event, GlobalId, HandlerId, Inst, Program, Space, Val,
};
use spile_layout::{ErrorKind, GlobalLocation, Quote};

use super::data::thread_record_facts::{FieldRef, RecordFacts};
use super::event::deferred_modes;
use super::event::task_fields::TaskFields;
use super::handler::error_kinds;

use crate::error::Res;
use crate::plan::ObjectPlan;
use crate::regalloc::Allocation;
use crate::regalloc::numbers::Numbers;
use crate::target::Target;

/// What all bodies of an object share.
#[derive(Clone, Copy)]
pub(crate) struct ObjectContext<'a> {
    pub program: &'a Program,
    pub options: &'a Target,
    pub plan: &'a ObjectPlan,
    /// Whether the numbers of system calls can be those of parts: see [`tells_parts`].
    ///
    /// [`tells_parts`]: super::syscalls::parts::tells_parts
    pub tells_parts: bool,
}

/// A body, with the facts that the generators of its functions ask for. It has the fields of its
/// [`ObjectContext`].
pub(crate) struct BodyContext<'a> {
    pub object: ObjectContext<'a>,
    pub handler: HandlerId,
    pub body: &'a Body,
    /// Summary of what the body contains.
    pub facts: &'a BodyFacts,
    /// The location of each register.
    pub alloc: &'a Allocation,
    /// The number of reads of each register.
    pub uses: Vec<u32>,
    /// Whether each register has several definitions.
    pub several: Vec<bool>,
    /// Whether the handler has to count statements for MAXACTION.
    pub ticking: bool,
    deferred: OnceCell<Vec<Option<Quote>>>,
    records: OnceCell<RecordFacts>,
    task_fields: OnceCell<TaskFields>,
    pub(crate) numbers: OnceCell<Option<Numbers>>,
    error_kinds: OnceCell<Vec<ErrorKind>>,
    pub(crate) leading_tests: OnceCell<Vec<PrefilterTest>>,
    pub(crate) split: OnceCell<Option<PrefilterSplit>>,
}

/// A handler cut in two. The leading tests stay in the program, which then needs no callee-saved
/// registers; the rest is a subprogram.
///
/// Measured on 6.18 (AMD, return thunks) for `if (pid() != target()) next`, compared with an empty
/// program: 17 ns with the rest in the same function, 5 to 10 ns with a subprogram. One helper call
/// accounts for 5 to 7 of these.
#[derive(Debug)]
pub(crate) struct PrefilterSplit {
    /// The block that the subprogram begins with.
    pub first: BlockId,
    /// Registers that the tests write and the rest reads.
    pub carried: Vec<spile_ir::Reg>,
    /// Whether the tests read the system call's number.
    pub asks: bool,
    /// Whether the tests use the current task.
    pub tests_task: bool,
    /// Whether the rest uses the current task.
    pub rest_task: bool,
}

/// One leading test.
#[derive(Debug)]
pub(crate) struct PrefilterTest {
    pub block: BlockId,
    pub go_on: BlockId,
    /// The branch target that ends the handler.
    pub end: BlockId,
}

impl<'a> Deref for BodyContext<'a> {
    type Target = ObjectContext<'a>;

    fn deref(&self) -> &ObjectContext<'a> {
        &self.object
    }
}

impl<'a> BodyContext<'a> {
    /// The body of a handler.
    pub(crate) fn new(
        object: ObjectContext<'a>,
        handler: HandlerId,
        alloc: &'a Allocation,
    ) -> BodyContext<'a> {
        let body = &object.program.handlers[handler.index()].body;
        BodyContext::for_body(
            object,
            handler,
            body,
            object.plan.facts.handler(handler),
            alloc,
        )
    }

    /// Any body.
    pub(crate) fn for_body(
        object: ObjectContext<'a>,
        handler: HandlerId,
        body: &'a Body,
        facts: &'a BodyFacts,
        alloc: &'a Allocation,
    ) -> BodyContext<'a> {
        BodyContext {
            object,
            handler,
            body,
            facts,
            alloc,
            uses: uses(body, alloc),
            several: has_several_definitions(body),
            ticking: !alloc.resume.is_empty()
                || longest_path(body, alloc) > object.program.limits.maxaction,
            deferred: OnceCell::new(),
            records: OnceCell::new(),
            task_fields: OnceCell::new(),
            numbers: OnceCell::new(),
            error_kinds: OnceCell::new(),
            leading_tests: OnceCell::new(),
            split: OnceCell::new(),
        }
    }

    /// The event of the handler.
    pub(crate) fn event(&self) -> &'a Event {
        &self.object.program.handlers[self.handler.index()].event
    }

    /// The location of a global, unless only the controller has it.
    pub(crate) fn location_of(&self, g: GlobalId) -> Option<&GlobalLocation> {
        let layout = self.plan.layout.globals.get(g.index())?;
        layout.as_ref().map(|layout| &layout.location)
    }

    /// The location of a global.
    pub(crate) fn location(&self, g: GlobalId) -> Res<GlobalLocation> {
        let location = self.location_of(g).cloned();
        location.ok_or_else(|| "a global that only the controller has".into())
    }

    /// The array's field in the thread record, if it has one.
    pub(crate) fn field(&self, g: GlobalId) -> Res<Option<FieldRef>> {
        FieldRef::for_global(g, self.location(g)?)
    }

    /// The body's accesses to thread records.
    pub(crate) fn records(&self) -> &RecordFacts {
        let is = |g: GlobalId| matches!(self.field(g), Ok(Some(_)));
        self.records.get_or_init(|| RecordFacts::new(self.body, is))
    }

    /// How the controller writes the text of a register, if it may read the text later.
    pub(crate) fn deferred(&self, dst: spile_ir::Reg) -> Option<Quote> {
        let output_uses = || deferred_modes::output_uses(self.program, self.body);
        let deferred = self.deferred.get_or_init(output_uses);
        deferred.get(dst.index()).copied().flatten()
    }

    fn task_fields(&self) -> &TaskFields {
        self.task_fields.get_or_init(|| {
            let numbers = &self.options.offsets.task_numbers;
            TaskFields::new(self.body, &self.several, numbers)
        })
    }

    /// The offset of the field that an instruction reads, if it reads one of the current task's.
    pub(crate) fn task_field(&self, inst: &Inst) -> Option<i16> {
        match inst {
            Inst::Load {
                space: Space::Kernel,
                addr: Val::Reg(r),
                ..
            } => self.task_fields().offsets.get(r).copied(),
            _ => None,
        }
    }

    /// Whether an instruction is folded into loads of fields, so that its result is unused.
    pub(crate) fn is_folded(&self, inst: &Inst) -> bool {
        matches!(inst, Inst::Bin { .. } | Inst::Intr { .. })
            && inst
                .dst()
                .is_some_and(|dst| self.task_fields().folded.get(dst.index()) == Some(&true))
    }

    /// The error kinds that can reach a catch block, in the order of their first instructions.
    pub(crate) fn error_kinds(&self) -> &[ErrorKind] {
        self.error_kinds.get_or_init(|| {
            let mut kinds = Vec::new();
            let guarded = self.body.blocks.iter().filter(|b| b.catch.is_some());
            if self.ticking {
                kinds.push(ErrorKind::MaxAction);
            }
            for (inst, _) in guarded.flat_map(|b| &b.insts) {
                for kind in error_kinds::kinds(inst, self.program) {
                    if !kinds.contains(&kind) {
                        kinds.push(kind);
                    }
                }
            }
            kinds
        })
    }
}

/// The number of reads of each register in the blocks of the allocation.
fn uses(body: &Body, alloc: &Allocation) -> Vec<u32> {
    let mut uses = vec![0; body.regs.len()];
    for block in &alloc.order {
        for_each_read(&body.blocks[block.index()], |r| uses[r.index()] += 1);
    }
    uses
}

/// Calls `f` for each register that a block reads, as often as it does.
pub(crate) fn for_each_read(block: &Block, mut f: impl FnMut(spile_ir::Reg)) {
    let mut read = |v: Val| {
        if let Val::Reg(r) = v {
            f(r);
        }
    };
    block
        .insts
        .iter()
        .for_each(|(i, _)| i.for_each_use(&mut read));
    block.term.for_each_use(read);
}

/// For each register, whether it has several definitions.
fn has_several_definitions(body: &Body) -> Vec<bool> {
    let mut times = vec![0u32; body.regs.len()];
    let mut write = |r: spile_ir::Reg| times[r.index()] += 1;
    for block in &body.blocks {
        block
            .insts
            .iter()
            .filter_map(|(i, _)| i.dst())
            .for_each(&mut write);
        block.term.for_each_dst(&mut write);
    }
    times.into_iter().map(|n| n > 1).collect()
}

/// The number of statements on the longest path through a body without loops.
fn longest_path(body: &Body, alloc: &Allocation) -> u64 {
    let mut sum = vec![0u64; body.blocks.len()];
    let mut longest = 0;
    for id in &alloc.order {
        let block = &body.blocks[id.index()];
        let ticks = block.insts.iter().map(|(i, _)| match i {
            Inst::Tick { n } => u64::from(*n),
            _ => 0,
        });
        let total = sum[id.index()].saturating_add(ticks.sum());
        longest = longest.max(total);
        for next in block.successors() {
            sum[next.index()] = sum[next.index()].max(total);
        }
    }
    longest
}
