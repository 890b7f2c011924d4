//! Blocks, jumps, and the dispatch of instructions to the modules that lower them.

use spile_ebpf::isa::asm::SourceLine;
use spile_ebpf::isa::insn::{Cond, Reg, Src};
use spile_ebpf::isa::sequences::{CALLER_SAVED, RegMask, set_of};
use spile_ir::{BinOp, Block, BlockId, Inst, SiteId, Term, Ty, Val};

use super::codegen::HandlerCodegen;
use super::operand::condition;
use super::out_of_line::OutOfLine;
use crate::error::{LowerError, Res};
use crate::regalloc::Location;

impl HandlerCodegen<'_> {
    /// Emits these blocks, in that order.
    pub(crate) fn blocks(&mut self, order: &[BlockId]) -> Res {
        for (i, id) in order.iter().enumerate() {
            let label = self.labels[id.index()];
            self.asm.bind(label);
            let block = &self.body.blocks[id.index()];
            self.catch = block.catch;
            self.cur_block = *id;
            self.begin_block_facts();
            self.block(block, order.get(i + 1).copied())?;
        }
        self.asm.begin_sequence(CALLER_SAVED);
        Ok(())
    }

    pub(super) fn block(&mut self, block: &Block, next: Option<BlockId>) -> Res {
        let fused = self.ctx.fused(block);
        let n = block.insts.len() - usize::from(fused);
        for i in 0..n {
            self.take_temps(i);
            self.begin_sequence(block.insts[i].0.dst());
            let first = self.asm.count();
            self.inst_of(block, i)?;
            debug_assert!(self.leaves_numbers(block, i, first), "{:?}", block.insts[i]);
        }
        self.take_temps(block.insts.len());
        self.begin_sequence(None);
        self.end(block, fused, next)?;
        self.temps = None;
        Ok(())
    }

    /// Begins a sequence, unless the code is a subprogram's, which is one sequence.
    fn next_sequence_of_body(&mut self) {
        if !self.in_subprogram {
            self.asm.begin_sequence(CALLER_SAVED);
        }
    }

    /// Begins the sequence of an instruction, with the registers that it may change.
    fn begin_sequence(&mut self, dst: Option<spile_ir::Reg>) {
        match self.temps {
            None => self.asm.begin_sequence(CALLER_SAVED),
            Some(temps) => self.asm.begin_sequence_for(temps, self.own_register(dst)),
        };
    }

    /// The register that has a number, as a set.
    fn own_register(&self, dst: Option<spile_ir::Reg>) -> RegMask {
        match dst.map(|dst| self.location(dst)) {
            Some(Location::Reg(reg)) => set_of(reg),
            _ => 0,
        }
    }

    /// Sets the temporary registers for an instruction of the current block.
    fn take_temps(&mut self, i: usize) {
        let numbers = self.numbers.map(|n| &n.temps[self.cur_block.index()]);
        self.temps = numbers.and_then(|temps| temps[i]);
    }

    /// Whether the code of an instruction, from this location on, changes only the registers that it may
    /// change.
    fn leaves_numbers(&self, block: &Block, i: usize, first: usize) -> bool {
        let Some(temps) = self.temps else {
            return true;
        };
        let may = temps | self.own_register(block.insts[i].0.dst());
        self.asm.changed_since(first) & !may == 0
    }

    /// Emits an instruction of a block.
    fn inst_of(&mut self, block: &Block, i: usize) -> Res {
        let (inst, site) = &block.insts[i];
        self.site = *site;
        self.line(*site);
        self.current = inst.global();
        self.inst(inst)
    }

    /// Emits the end of a block. If it is fused, the last instruction is part of it.
    fn end(&mut self, block: &Block, fused: bool, next: Option<BlockId>) -> Res {
        match &block.term {
            Term::Jump(to) => {
                self.branch_to(*to, next);
                Ok(())
            }
            Term::Branch { then, els, .. } if fused => match block.insts.last() {
                Some((inst, _)) => self.fused_branch(inst, *then, *els, next),
                None => Err("a block without a comparison".into()),
            },
            Term::Branch { cond, then, els } => {
                // A constant condition is tested too: both targets must stay reachable for the
                // verifier.
                let cond = self.number_in_reg(*cond)?;
                self.branch(Cond::Ne, cond, Src::Imm(0), (*then, *els), next);
                Ok(())
            }
            Term::Ret(_) | Term::EndHandler => {
                self.asm.jump(self.done);
                Ok(())
            }
            Term::IterNext {
                it,
                keys,
                value,
                body,
                done,
            } => self.iter_term(*it, keys, *value, (*body, *done), next),
        }
    }

    /// Attributes the following instructions to this position in the script.
    pub(super) fn line(&mut self, site: SiteId) {
        if !self.options.lines {
            return;
        }
        let Some(near) = self.program.trace(site, &[]).first().map(|s| &s.near) else {
            return;
        };
        // The text has the form `identifier 'x' at script.stp:3:4`, and older kernels show only
        // that much.
        let mut parts = near.rsplitn(3, ':');
        let mut number = || parts.next().and_then(|n| n.parse().ok()).unwrap_or(0);
        let (column, line) = (number(), number());
        let location = parts.next().unwrap_or_default();
        if line == 0 {
            return;
        }
        let file = location
            .rsplit_once(" at ")
            .map_or(location, |(_, file)| file);
        self.asm.source_line(&SourceLine {
            file: file.into(),
            text: near.clone(),
            line,
            column,
        });
    }

    pub(super) fn branch_to(&mut self, to: BlockId, next: Option<BlockId>) {
        if Some(to) != next {
            let label = self.branch_target(to);
            self.asm.jump(label);
        }
    }

    /// Jumps to the first block if the condition holds, else to the second.
    fn branch(
        &mut self,
        cond: Cond,
        a: Reg,
        b: Src,
        (then, els): (BlockId, BlockId),
        next: Option<BlockId>,
    ) {
        match cond.inverse() {
            Some(inverse) if Some(then) == next => {
                let label = self.branch_target(els);
                self.asm.jump_if(inverse, a, b, label);
            }
            _ => {
                let label = self.branch_target(then);
                self.asm.jump_if(cond, a, b, label);
                self.branch_to(els, next);
            }
        }
    }

    fn fused_branch(
        &mut self,
        inst: &Inst,
        then: BlockId,
        els: BlockId,
        next: Option<BlockId>,
    ) -> Res {
        match inst {
            Inst::Bin { op, a, b, .. } => {
                let cond = condition(*op).ok_or("not a comparison")?;
                let (a, b) = (self.number_in_reg(*a)?, self.number(*b)?);
                self.branch(cond, a, b, (then, els), next);
            }
            Inst::Un { a, .. } => {
                let a = self.number_in_reg(*a)?;
                self.branch(Cond::Eq, a, Src::Imm(0), (then, els), next);
            }
            Inst::StrCmp { op, a, b, .. } => {
                let (a, b) = (self.text(*a)?, self.text(*b)?);
                let (yes, no) = (self.branch_target(then), self.branch_target(els));
                self.compare_texts(*op, &a, &b, yes, no)?;
            }
            _ => return Err("not a comparison".into()),
        }
        Ok(())
    }

    /// Emits one instruction.
    fn inst(&mut self, inst: &Inst) -> Res {
        if self.ctx.is_folded(inst) {
            return Ok(());
        }
        match inst {
            Inst::Copy { dst, src } => self.copy(*dst, *src),
            Inst::Un { dst, op, a } => self.unary(*dst, *op, *a),
            Inst::Bin {
                dst,
                op: op @ (BinOp::Div | BinOp::Mod),
                a,
                b,
            } => self.divide(*dst, *op, *a, *b),
            Inst::Bin { dst, op, a, b } => self.binary(*dst, *op, *a, *b),
            Inst::StrCmp { dst, op, a, b } => self.str_cmp(*dst, *op, *a, *b),
            Inst::Concat { dst, a, b } => self.concat(*dst, *a, *b),
            Inst::TableGet { dst, table, idx } => self.table_get(*dst, *table, *idx),
            Inst::Regex {
                dst,
                re,
                text,
                keep,
            } => self.regex(*dst, *re, *text, *keep),
            Inst::Sprint { dst, fmt, args } => self.sprint(*dst, *fmt, args),
            Inst::Print { stream, fmt, args } => self.print(*stream, *fmt, args),
            Inst::Intr { dst, f, args } => self.intrinsic(*dst, *f, args),
            Inst::GLoad { dst, g } => self.global_load(*dst, *g),
            Inst::GStore { g, val } => self.global_store(*g, *val),
            Inst::GAdd { g, val, old } => self.global_add(*g, *val, *old),
            Inst::GClear { g } => self.global_clear(*g),
            Inst::AGet { dst, g, keys } => self.array_get(*dst, *g, keys),
            Inst::ASet { g, keys, val } => self.array_set(*g, keys, *val),
            Inst::AAdd { g, keys, val, old } => self.array_add(*g, keys, *val, *old),
            Inst::AHas { dst, g, keys } => self.array_has(*dst, *g, keys),
            Inst::ADel { g, keys } => self.array_delete(*g, keys),
            Inst::StatAdd { g, keys, val } => self.stat_add(*g, keys, *val),
            Inst::StatGet {
                dst, g, keys, what, ..
            } => self.stat_get(*dst, *g, keys, *what),
            Inst::Load {
                dst,
                space,
                ty,
                addr,
            } => match self.ctx.task_field(inst) {
                Some(offset) => self.task_field_load(*dst, offset, *ty),
                None => self.memory_load(*dst, *space, *addr, *ty),
            },
            Inst::Raise { msg } => self.raise(*msg),
            Inst::CatchMsg { dst } => self.catch_msg(*dst),
            Inst::Tick { n } => self.tick(*n),
            Inst::Enter | Inst::Leave | Inst::Save { .. } | Inst::Restore { .. } => {
                self.activation(inst)
            }
            Inst::Rethrow => self.rethrow(),
            Inst::PrintHist { dst: None, g, keys } => self.print_hist(*g, keys),
            Inst::PrintHist { .. } => Err(LowerError::unsupported(
                "the text of a histogram in a kernel handler",
            )),
            Inst::HistGet { dst, g, keys, idx } => self.hist_get(*dst, *g, keys, *idx),
            Inst::IterNew {
                it,
                g,
                slice,
                limit,
                ..
            } => self.iter_new(*it, *g, slice, *limit),
            Inst::IterHist { it, g, keys } => self.iter_hist(*it, *g, keys),
            Inst::Call { .. } => Err("a call that is not flattened".into()),
        }
    }

    pub(super) fn copy(&mut self, dst: spile_ir::Reg, src: Val) -> Res {
        if self.ty(src)? == Ty::Long {
            return self.copy_number(dst, src);
        }
        let text = self.text(src)?;
        match self.slot(dst)? {
            Some((off, width)) => self.copy_text(off, width, &text),
            None => Ok(()),
        }
    }

    fn copy_number(&mut self, dst: spile_ir::Reg, src: Val) -> Res {
        // Paths with different constants would stay separate for the verifier. It does not track words
        // of the frame.
        let several = self.plan.outlining.is_large()
            && self.record_state.is_some()
            && self.ctx.several.get(dst.index()) == Some(&true);
        if let (Val::Imm(n), true) = (src, several) {
            let tracked = match self.location(dst) {
                Location::Reg(reg) => Some(reg),
                Location::Stack(_) => Some(self.asm.new_reg()),
                Location::Frame(_) | Location::None => None,
            };
            if let Some(reg) = tracked {
                self.asm.imm(reg, n);
                self.forget_bounds(reg);
                return self.def_int(dst, reg);
            }
        }
        if let Location::Reg(reg) = self.location(dst) {
            return self.use_in(src, reg);
        }
        let src = self.number(src)?;
        self.def_int(dst, src)
    }

    /// Emits the out-of-line code, in front of the function's end.
    pub(crate) fn emit_out_of_line(&mut self) -> Res {
        while let Some(out_of_line) = self.out_of_line.pop() {
            self.next_sequence_of_body();
            match out_of_line {
                OutOfLine::Fail(fail) => self.emit_fail(fail)?,
                OutOfLine::Miss(miss) => self.emit_miss(miss)?,
                OutOfLine::Wrap(test) => self.emit_wrap_test(&test)?,
                OutOfLine::BackEdge(back) => self.emit_back_edge(back),
            }
        }
        self.next_sequence_of_body();
        self.emit_error_tails();
        Ok(())
    }
}
