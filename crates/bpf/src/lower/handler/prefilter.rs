//! The leading tests of a handler, which run before everything else.

use spile_ebpf::isa::asm::{ARGUMENTS, CallArg, Label};
use spile_ebpf::isa::insn::Reg::R10;
use spile_ebpf::isa::insn::Size;
use spile_ir::storage::Storage;
use spile_ir::{BlockId, Event, Inst, NrSet, Term, Ty, Val, intrinsics::Intrinsic};
use spile_layout::GlobalLocation;

use crate::attach::attachment::Hook;
use crate::error::Res;
use crate::lower::body_context::{BodyContext, PrefilterSplit, PrefilterTest, for_each_read};
use crate::lower::codegen::HandlerCodegen;
use crate::lower::handler::entry::EntryState;
use crate::lower::slots::{TASK, passed};
use crate::lower::syscalls::{of_number, reads_number};
use crate::regalloc::Location;

/// Numbers that the leading tests can pass on to the rest: the argument registers that are left.
const MAX_CARRIED: usize = 3;

impl PrefilterSplit {
    /// Whether the tests pass the current task on: they have it, the rest uses it, and an argument
    /// register is left.
    pub(crate) fn passes_task(&self, known: EntryState) -> bool {
        let arguments = 1 + usize::from(known.number) + self.carried.len();
        self.rest_task && (self.tests_task || known.task) && arguments < ARGUMENTS.len()
    }
}

impl BodyContext<'_> {
    /// Counts the instructions of these blocks that use the current task.
    pub(crate) fn task_wanted(&self, order: &[BlockId]) -> usize {
        let insts = order
            .iter()
            .flat_map(|b| &self.body.blocks[b.index()].insts);
        let wants = |i: &Inst| match i {
            Inst::Intr { f, .. } => f.info().task,
            i => self.task_field(i).is_some(),
        };
        insts.filter(|(i, _)| wants(i)).count()
    }

    /// Whether to compute the system call's number at its only use. At exits this takes a helper
    /// call. Valid only if this handler is the only one of its program.
    pub(crate) fn reads_number_late(&self) -> bool {
        let event = self.event();
        let mut asking = self.body.insts().filter_map(|i| match i {
            Inst::Intr { f, .. } if of_number(*f) => Some(*f),
            _ => None,
        });
        matches!(event, Event::SysExit(NrSet::All))
            && self.alloc.resume.is_empty()
            && asking.next() == Some(Intrinsic::SysNr)
            && asking.next().is_none()
    }

    /// Finds the cut behind the leading tests, if there is one.
    pub(crate) fn split(&self) -> Option<&PrefilterSplit> {
        self.split.get_or_init(|| self.find_split()).as_ref()
    }

    fn find_split(&self) -> Option<PrefilterSplit> {
        // The text of a call's arguments takes six nested calls, and a loop's steps one: the kernel allows no more.
        let is_text = |i: &Inst| {
            let texts = [Intrinsic::SysArgstr, Intrinsic::SysArgtext];
            matches!(i, Inst::Intr { f, .. } if texts.contains(f))
        };
        let deep = !self.alloc.resume.is_empty() && self.body.insts().any(is_text);
        if deep || self.facts.sets_verdict() {
            return None;
        }
        let path = self.leading_tests();
        let first = path.last()?.go_on;
        let mut read = vec![false; self.body.regs.len()];
        for b in self.reachable(first) {
            for_each_read(&self.body.blocks[b.index()], |r| read[r.index()] = true);
        }
        let mut carried: Vec<spile_ir::Reg> = path
            .iter()
            .flat_map(|step| &self.body.blocks[step.block.index()].insts)
            .filter_map(|(i, _)| i.dst())
            .filter(|r| read[r.index()])
            .collect();
        carried.sort_unstable_by_key(|r| r.index());
        carried.dedup();
        let asks = path
            .iter()
            .any(|step| reads_number(&self.body.blocks[step.block.index()]));
        let tests: Vec<BlockId> = path.iter().map(|step| step.block).collect();
        let tests_task = self.task_wanted(&tests) > 0;
        let rest_task = self.task_wanted(&self.reachable(first)) > 0;
        (carried.len() <= MAX_CARRIED).then_some(PrefilterSplit {
            first,
            carried,
            asks,
            tests_task,
            rest_task,
        })
    }

    /// The leading tests, in order.
    pub(crate) fn leading_tests(&self) -> &[PrefilterTest] {
        self.leading_tests.get_or_init(|| self.find_leading_tests())
    }

    fn find_leading_tests(&self) -> Vec<PrefilterTest> {
        let mut path = Vec::new();
        let mut id = BlockId(0);
        let predecessors = self.body.predecessors();
        // No test can move before the entry if the entry block is part of a loop.
        if self.options.timing || !predecessors[BlockId(0)].is_empty() {
            return path;
        }
        loop {
            let block = &self.body.blocks[id.index()];
            let Term::Branch { then, els, .. } = block.term else {
                break;
            };
            let plain = |b: BlockId| {
                let block = &self.body.blocks[b.index()];
                let nothing = |i: &Inst| matches!(i, Inst::Tick { .. });
                matches!(block.term, Term::Ret(_)) && block.insts.iter().all(|(i, _)| nothing(i))
            };
            let (go_on, end) = match (plain(then), plain(els)) {
                (true, false) => (els, then),
                (false, true) => (then, els),
                _ => break,
            };
            let joins = predecessors[go_on].len() > 1;
            // A step of a resumable loop finds only values in the frame.
            let lost = !self.alloc.resume.is_empty() && self.alloc.has_live_in[go_on.index()];
            if joins || lost || !self.prefilter_block(block) {
                break;
            }
            path.push(PrefilterTest {
                block: id,
                go_on,
                end,
            });
            id = go_on;
        }
        path
    }

    /// Whether a block can run before entry: it computes only numbers and cannot fail.
    fn prefilter_block(&self, block: &spile_ir::Block) -> bool {
        let low = |r: spile_ir::Reg| !matches!(self.alloc.locations[r.index()], Location::Frame(_));
        // An argument of a hook becomes a number by way of the per-CPU area, which is not there yet.
        let event = self.event();
        let hook = Hook::of(event).is_some();
        let inst = |i: &Inst| {
            let mut ok = i.dst().is_none_or(low);
            i.for_each_use(|v| {
                ok &= match v {
                    Val::Reg(r) => low(r) && self.body.regs[r.index()] == Ty::Long,
                    Val::Imm(_) => true,
                    Val::Str(_) => false,
                }
            });
            ok && match i {
                Inst::Copy { .. } | Inst::Un { .. } => true,
                Inst::Bin { .. } => !i.fallible(self.program),
                Inst::Tick { .. } => !self.ticking,
                Inst::GLoad { g, .. } => matches!(
                    self.program.globals.get(g.index()).map(|g| g.storage),
                    Some(Storage::Shared { lock: false })
                ),
                Inst::Intr { f, .. } => f.info().early && !(hook && *f == Intrinsic::CtxArg),
                _ => false,
            }
        };
        let mut ok = block.insts.iter().all(|(i, _)| inst(i));
        block
            .term
            .for_each_use(|v| ok &= matches!(v, Val::Reg(r) if low(r)));
        ok
    }

    /// The blocks that are reachable from `first`, in order.
    pub(super) fn reachable(&self, first: BlockId) -> Vec<BlockId> {
        let mut seen = vec![false; self.body.blocks.len()];
        let mut todo = vec![first];
        while let Some(b) = todo.pop() {
            if !std::mem::replace(&mut seen[b.index()], true) {
                let block = &self.body.blocks[b.index()];
                block.term.for_each_target(|t| todo.push(t));
                // A catch block without predecessors must not be emitted: the verifier refuses
                // unreachable code.
                if block.insts.iter().any(|(i, _)| self.jumps_to_catch(i)) {
                    todo.extend(block.catch);
                }
            }
        }
        self.alloc
            .order
            .iter()
            .copied()
            .filter(|b| seen[b.index()])
            .collect()
    }

    /// Whether the code of an instruction can jump to the catch block of its block.
    pub(crate) fn jumps_to_catch(&self, inst: &Inst) -> bool {
        match inst {
            Inst::Tick { n } => self.ticking && *n > 0,
            Inst::ASet { g, .. } | Inst::AAdd { g, .. } | Inst::StatAdd { g, .. } => {
                inst.fallible(self.program)
                    && self.location(*g).is_ok_and(|location| match location {
                        GlobalLocation::Hash { .. } => true,
                        // Co-located elements share the slot of their host's elements.
                        GlobalLocation::PerCpuArray(array) => array.colocated.host.is_none(),
                        _ => false,
                    })
            }
            Inst::Call { .. } => false,
            Inst::Load { .. } if self.task_field(inst).is_some() => false,
            _ => inst.fallible(self.program),
        }
    }
}

impl HandlerCodegen<'_> {
    /// Emits the leading tests and the call of the subprogram with the carried numbers.
    pub(crate) fn prefilter(
        &mut self,
        split: &PrefilterSplit,
        known: EntryState,
        sub: &str,
        out: Label,
    ) -> Res {
        let event = self.event();
        if let Event::SysEnter(set) | Event::SysExit(set) = event {
            self.dispatch(set, out);
        }
        let entry = matches!(event, Event::SysEnter(_));
        self.prepare()?;
        let passes_task = split.passes_task(known);
        let tests: Vec<BlockId> = self.ctx.leading_tests().iter().map(|t| t.block).collect();
        if passes_task || self.ctx.task_wanted(&tests) > 1 {
            self.save_task();
        }
        self.prefix(out)?;
        if known.late {
            self.store_number(entry)?;
        }
        let number = known.number;
        let slots = passed(number).map(|slot| self.asm.word(R10, slot).into());
        let mut args: Vec<CallArg> = slots.collect();
        for r in &split.carried {
            args.push(self.number(Val::Reg(*r))?.into());
        }
        if passes_task {
            args.push(self.asm.word(R10, TASK).into());
        }
        self.asm.call_sub_with(sub, &args);
        Ok(())
    }

    /// Emits the subprogram behind the tests.
    pub(crate) fn body_sub(
        &mut self,
        split: &PrefilterSplit,
        known: EntryState,
        out: Label,
    ) -> Res {
        self.prepare()?;
        let mut from = ARGUMENTS.into_iter().skip(1 + usize::from(known.number));
        for (r, reg) in split.carried.iter().zip(&mut from) {
            self.def_int(*r, reg)?;
        }
        if let (true, Some(reg)) = (split.passes_task(known), from.next()) {
            self.asm.store(Size::DW, R10, TASK, reg);
            self.task_saved = true;
        }
        self.emit_from(split.first, out)
    }

    /// Emits the leading tests before everything else, so that a hit that they turn away costs next
    /// to nothing. Only tests of numbers that decide whether the handler does anything qualify.
    /// Returns the block to continue with.
    pub(super) fn prefix(&mut self, out: Label) -> Res<BlockId> {
        let mut first = BlockId(0);
        for PrefilterTest { block, go_on, end } in self.ctx.leading_tests() {
            let (id, go_on, end) = (*block, *go_on, *end);
            // A failed test leaves the handler, not the block.
            let label = std::mem::replace(&mut self.labels[end.index()], out);
            let entry = self.labels[id.index()];
            self.asm.bind(entry);
            self.cur_block = id;
            self.block(&self.body.blocks[id.index()], Some(go_on))?;
            self.labels[end.index()] = label;
            let next = self.labels[go_on.index()];
            self.asm.bind(next);
            first = go_on;
        }
        Ok(first)
    }
}
