//! One body under construction: registers, blocks, the current block.

use spile_cast::Cast;
use spile_ir::{BinOp, Block, BlockId, Body, Inst, Intrinsic, Reg, SiteId, Term, Ty, Val};
use spile_syntax::ast::Span;

use super::Lower;
use crate::types::hir::{HirStmtKind, LocalIx, NameFunction, Unit, UnitIx, UnitKind, walk_stmts};

/// The body of one unit under construction.
pub(super) struct Builder<'l, 'a> {
    pub(super) l: &'l mut Lower<'a>,
    pub(super) unit: UnitIx,
    pub(super) body: Body,
    current: BlockId,
    pub(super) catch: Option<BlockId>,
    /// Targets of `break` and `continue`.
    pub(super) loops: Vec<(BlockId, BlockId)>,
    /// Hidden parameters for `pp()` and similar functions.
    pub(super) names: [Option<Reg>; NameFunction::COUNT],
    /// Copies of the original arguments, for `next`.
    pub(super) saved: Vec<Reg>,
    /// The `Tick` that further statements of this block add to.
    tick: Option<(BlockId, usize)>,
}

impl<'l, 'a> Builder<'l, 'a> {
    pub(super) fn new(l: &'l mut Lower<'a>, unit: UnitIx) -> Self {
        let u = &l.tree.units[unit.0];
        let mut regs: Vec<Ty> = (0..u.locals.len())
            .map(|n| l.widths.local(unit, LocalIx(n)))
            .collect();
        let mut names = [None; NameFunction::COUNT];
        if let UnitKind::Func { .. } = u.kind {
            for (n, wanted) in l.names[unit.0].iter().enumerate() {
                if *wanted {
                    names[n] = Some(Reg(regs.len().fit()));
                    regs.push(Ty::str_for_len(l.widths.probe_name(NameFunction::ALL[n])));
                }
            }
        }
        let body = Body {
            regs,
            blocks: Vec::new(),
            iters: 0,
        };
        let mut b = Builder {
            l,
            unit,
            body,
            current: BlockId(0),
            catch: None,
            loops: Vec::new(),
            names,
            saved: Vec::new(),
            tick: None,
        };
        b.current = b.block();
        b
    }

    /// The unit.
    pub(super) fn source(&self) -> &'a Unit {
        &self.l.tree.units[self.unit.0]
    }

    /// Registers of the parameters, the hidden ones last.
    pub(super) fn params(&self) -> Vec<Reg> {
        match &self.source().kind {
            UnitKind::Func { params, .. } => params
                .iter()
                .map(|p| Reg(p.0.fit()))
                .chain(self.names.iter().flatten().copied())
                .collect(),
            UnitKind::Handler { .. } => Vec::new(),
        }
    }

    /// Copies the arguments for a `next` that passes them on.
    pub(super) fn save_arguments(&mut self) {
        let UnitKind::Func {
            next_alt: Some(_),
            params,
            ..
        } = &self.source().kind
        else {
            return;
        };
        let mut has_next = false;
        walk_stmts(&self.source().body, &mut |s| {
            has_next |= matches!(s.kind, HirStmtKind::Next)
        });
        if !has_next {
            return;
        }
        let span = self.source().span;
        for p in params {
            let from = Reg(p.0.fit());
            let copy = self.copied(from, span);
            self.saved.push(copy);
        }
    }

    pub(super) fn reg(&mut self, ty: Ty) -> Reg {
        self.body.regs.push(ty);
        Reg(self.body.regs.len().fit::<u32>() - 1)
    }

    pub(super) fn long(&mut self) -> Reg {
        self.reg(Ty::Long)
    }

    /// A register with a copy of another one.
    pub(super) fn copied(&mut self, from: Reg, span: Span) -> Reg {
        let (dst, src) = (self.reg(self.body.regs[from.index()]), Val::Reg(from));
        self.emit(Inst::Copy { dst, src }, span);
        dst
    }

    /// Emits `dst = a op b`.
    pub(super) fn binary(&mut self, dst: Reg, op: BinOp, a: Val, b: Val, span: Span) {
        self.emit(Inst::Bin { dst, op, a, b }, span);
    }

    pub(super) fn intrinsic(&mut self, dst: Option<Reg>, f: Intrinsic, args: Vec<Val>, span: Span) {
        self.emit(Inst::Intr { dst, f, args }, span);
    }

    pub(super) fn local(&self, l: LocalIx) -> Reg {
        Reg(l.0.fit())
    }

    /// A new block in the current `try`.
    pub(super) fn block(&mut self) -> BlockId {
        self.body.blocks.push(Block {
            insts: Vec::new(),
            term: Term::Ret(None),
            catch: self.catch,
        });
        BlockId(self.body.blocks.len().fit::<u32>() - 1)
    }

    /// Makes `b` the current block.
    pub(super) fn switch_to_block(&mut self, b: BlockId) {
        self.current = b;
    }

    /// Ends the current block.
    pub(super) fn end(&mut self, term: Term) {
        self.body.blocks[self.current.index()].term = term;
    }

    /// Ends the current block with a jump to `to`, which becomes the current one.
    pub(super) fn jump(&mut self, to: BlockId) {
        self.end(Term::Jump(to));
        self.switch_to_block(to);
    }

    /// Ends the current block; code that follows is unreachable and goes into a new block.
    pub(super) fn terminate(&mut self, term: Term) {
        self.end(term);
        let dead = self.block();
        self.switch_to_block(dead);
    }

    pub(super) fn emit(&mut self, inst: Inst, span: Span) {
        let site = self.l.sites.at(span);
        self.emit_at(inst, site);
    }

    pub(super) fn emit_at(&mut self, inst: Inst, site: SiteId) {
        // A `try` of the library gives the replacement for unreadable memory itself.
        let raises = self.source().user || self.catch.is_none();
        match inst.dst() {
            Some(dst) if self.l.how.faults_are_nothing && raises && inst.reads_memory() => {
                self.emit_or_zero(dst, inst, site);
            }
            _ => self.push(inst, site),
        }
    }

    fn push(&mut self, inst: Inst, site: SiteId) {
        self.body.blocks[self.current.index()]
            .insts
            .push((inst, site));
    }

    /// An instruction that gives 0 or "" if it fails.
    fn emit_or_zero(&mut self, dst: Reg, inst: Inst, site: SiteId) {
        let src = self.zero(dst);
        let (failed, join) = (self.block(), self.block());
        let outer = self.catch.replace(failed);
        let inner = self.block();
        self.catch = outer;
        self.jump(inner);
        self.push(inst, site);
        self.end(Term::Jump(join));
        self.switch_to_block(failed);
        self.push(Inst::Copy { dst, src }, site);
        self.jump(join);
    }

    /// Counts one statement.
    pub(super) fn tick(&mut self, span: Span) {
        if let Some((block, n)) = self.tick
            && block == self.current
            && let Some((Inst::Tick { n }, _)) = self.body.blocks[block.index()].insts.get_mut(n)
        {
            *n += 1;
            return;
        }
        self.tick = Some((
            self.current,
            self.body.blocks[self.current.index()].insts.len(),
        ));
        self.emit(Inst::Tick { n: 1 }, span);
    }

    /// The finished body, without unreachable blocks.
    pub(super) fn finish(mut self) -> Body {
        let count = self.body.blocks.len();
        let mut order = vec![None; count];
        let mut stack = vec![BlockId(0)];
        while let Some(b) = stack.pop() {
            if order[b.index()].replace(BlockId(0)).is_some() {
                continue;
            }
            let block = &self.body.blocks[b.index()];
            stack.extend(block.successors());
        }
        for (new, slot) in order.iter_mut().flatten().enumerate() {
            *slot = BlockId(new.fit());
        }
        let old = std::mem::take(&mut self.body.blocks);
        for (block, kept) in old.into_iter().zip(&order) {
            if kept.is_some() {
                self.body.blocks.push(block);
            }
        }
        let new_id = |b: BlockId| order[b.index()].unwrap_or(BlockId(0));
        for block in &mut self.body.blocks {
            block.term.targets_mut(|s| *s = new_id(*s));
            block.catch = block.catch.map(new_id);
        }
        self.body
    }
}
