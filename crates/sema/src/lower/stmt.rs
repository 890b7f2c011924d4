//! Statements.

use spile_ir::{BinOp, BlockId, CmpOp, Inst, IterId, Reg, Term, Ty, Val};
use spile_syntax::ast::Span;

use super::builder::Builder;
use crate::types::hir::*;

/// Whether statements count against MAXACTION on every path. A `try` catches the MAXACTION error
/// raised in it, so its `catch` has to count as well.
fn counts_actions(list: &[HirStmt]) -> bool {
    list.iter().any(|s| match &s.kind {
        HirStmtKind::Block(list) => counts_actions(list),
        HirStmtKind::Try { body, handler, .. } => counts_actions(body) && counts_actions(handler),
        _ => true,
    })
}

impl Builder<'_, '_> {
    pub(super) fn stmts(&mut self, list: &[HirStmt]) {
        for s in list {
            self.stmt(s);
        }
    }

    fn stmt(&mut self, s: &HirStmt) {
        if !matches!(s.kind, HirStmtKind::Block(_) | HirStmtKind::Try { .. }) {
            self.tick(s.span);
        }
        match &s.kind {
            HirStmtKind::Expr(e) => self.effect(e),
            HirStmtKind::Block(b) => self.stmts(b),
            HirStmtKind::If { cond, then, els } => self.if_stmt(cond, then, els),
            HirStmtKind::Loop { cond, step, body } => {
                self.loop_stmt(cond.as_ref(), step.as_ref(), body, s.span);
            }
            HirStmtKind::Foreach(f) => self.foreach(f, s.span),
            HirStmtKind::Break => self.leave_loop(|(done, _)| done),
            HirStmtKind::Continue => self.leave_loop(|(_, next)| next),
            HirStmtKind::Return(e) => {
                let v = e.as_ref().map(|e| self.value(e));
                let v = match (v, self.l.result(self.unit)) {
                    (v, Some(_)) => Some(v.unwrap_or_else(|| self.default_result())),
                    (_, None) => None,
                };
                self.terminate(Term::Ret(v));
            }
            HirStmtKind::Next => self.next(s.span),
            HirStmtKind::Try { body, var, handler } => self.try_stmt(body, *var, handler, s.span),
            HirStmtKind::DeleteLocal(ix) => {
                let dst = self.local(*ix);
                let src = self.zero(dst);
                self.emit(Inst::Copy { dst, src }, s.span);
            }
            HirStmtKind::DeleteAll(g) => {
                if let Some(g) = self.global(*g) {
                    self.emit(Inst::GClear { g }, s.span);
                }
            }
            HirStmtKind::DeleteElem(g, keys) => {
                if let Some(g) = self.global(*g) {
                    let keys = self.optional_operands(keys);
                    self.emit(Inst::ADel { g, keys }, s.span);
                }
            }
        }
    }

    fn leave_loop(&mut self, pick: impl Fn((BlockId, BlockId)) -> BlockId) {
        if let Some(targets) = self.loops.last().copied() {
            self.terminate(Term::Jump(pick(targets)));
        }
    }

    fn if_stmt(&mut self, cond: &HirExpr, then: &[HirStmt], els: &[HirStmt]) {
        let then_b = self.block();
        let els_b = (!els.is_empty()).then(|| self.block());
        let join = self.block();
        self.branch(cond, then_b, els_b.unwrap_or(join));
        self.switch_to_block(then_b);
        self.stmts(then);
        self.end(Term::Jump(join));
        if let Some(b) = els_b {
            self.switch_to_block(b);
            self.stmts(els);
            self.end(Term::Jump(join));
        }
        self.switch_to_block(join);
    }

    fn loop_stmt(
        &mut self,
        cond: Option<&HirExpr>,
        step: Option<&HirExpr>,
        body: &[HirStmt],
        span: Span,
    ) {
        let head = self.block();
        let body_b = self.block();
        let next = if step.is_some() { self.block() } else { head };
        let done = self.block();
        self.jump(head);
        // Each round counts: its statements, or the loop where there are none.
        if !counts_actions(body) {
            self.tick(span);
        }
        match cond {
            Some(c) => self.branch(c, body_b, done),
            None => self.end(Term::Jump(body_b)),
        }
        self.switch_to_block(body_b);
        self.loops.push((done, next));
        self.stmts(body);
        self.loops.pop();
        self.end(Term::Jump(next));
        if let Some(e) = step {
            self.switch_to_block(next);
            self.effect(e);
            self.end(Term::Jump(head));
        }
        self.switch_to_block(done);
    }

    fn foreach(&mut self, f: &HirForeach, span: Span) {
        let Some(g) = self.global(f.global) else {
            return;
        };
        let it = IterId(self.body.iters);
        self.body.iters += 1;
        // The number of rounds left in a walk over buckets with a limit.
        let mut left = None;
        match &f.hist {
            Some(keys) => {
                let keys = self.operands(keys);
                self.emit(Inst::IterHist { it, g, keys }, span);
                if let Some(e) = &f.limit {
                    let (src, dst) = (self.value(e), self.long());
                    self.emit(Inst::Copy { dst, src }, span);
                    left = Some(dst);
                }
            }
            None => {
                let slice = self.optional_operands(&f.slice);
                let limit = f.limit.as_ref().map(|e| self.value(e));
                let sort = f.sort;
                let inst = Inst::IterNew {
                    it,
                    g,
                    slice,
                    sort,
                    limit,
                };
                self.emit(inst, span);
            }
        }
        let head = self.block();
        let body = self.block();
        let done = self.block();
        self.jump(head);
        if let Some(left) = left {
            self.count_down(left, done, span);
        }
        let keys = f.keys.iter().map(|k| self.local(*k)).collect();
        let value = f.value.map(|v| self.local(v));
        self.end(Term::IterNext {
            it,
            keys,
            value,
            body,
            done,
        });
        self.switch_to_block(body);
        self.tick(span);
        self.loops.push((done, head));
        self.stmts(&f.body);
        self.loops.pop();
        self.end(Term::Jump(head));
        self.switch_to_block(done);
    }

    /// Goes on with one round less, or to `done` if none is left.
    fn count_down(&mut self, left: Reg, done: BlockId, span: Span) {
        let more = self.block();
        let some = self.long();
        self.binary(some, BinOp::Gt, Val::Reg(left), Val::Imm(0), span);
        self.end(Term::Branch {
            cond: Val::Reg(some),
            then: more,
            els: done,
        });
        self.switch_to_block(more);
        self.binary(left, BinOp::Sub, Val::Reg(left), Val::Imm(1), span);
    }

    fn try_stmt(
        &mut self,
        body: &[HirStmt],
        var: Option<LocalIx>,
        handler: &[HirStmt],
        span: Span,
    ) {
        let join = self.block();
        let catch = self.block();
        let outer = self.catch.replace(catch);
        let inner = self.block();
        self.jump(inner);
        self.stmts(body);
        self.end(Term::Jump(join));
        self.catch = outer;
        self.switch_to_block(catch);
        if self.l.tree.aborts {
            let (aborted, caught) = self.split_abort(span);
            self.switch_to_block(aborted);
            let msg = self.l.string(ABORT);
            self.emit(Inst::Raise { msg }, span);
            self.end(Term::Jump(join));
            self.switch_to_block(caught);
        }
        if let Some(v) = var {
            let dst = self.local(v);
            self.emit(Inst::CatchMsg { dst }, span);
        }
        self.stmts(handler);
        self.end(Term::Jump(join));
        self.switch_to_block(join);
    }

    /// The statements of a handler; `abort()` leaves it without an error.
    pub(super) fn handler_stmts(&mut self, body: &[HirStmt], span: Span) {
        if !self.l.tree.aborts {
            self.stmts(body);
            return self.end(Term::Ret(None));
        }
        let catch = self.block();
        self.catch = Some(catch);
        let inner = self.block();
        self.jump(inner);
        self.stmts(body);
        self.end(Term::Ret(None));
        self.catch = None;
        self.switch_to_block(catch);
        let (aborted, failed) = self.split_abort(span);
        self.switch_to_block(aborted);
        self.end(Term::Ret(None));
        self.switch_to_block(failed);
        // A hidden call has no site, so no message names it as a caller.
        let nowhere = self.l.sites.unnamed_site();
        self.emit_at(Inst::Rethrow, nowhere);
        self.end(Term::Ret(None));
    }

    /// In a catch block: the blocks for `abort()`, and for other errors.
    fn split_abort(&mut self, span: Span) -> (BlockId, BlockId) {
        let most = self.l.program.limits.maxstringlen as usize;
        let (message, same) = (self.reg(Ty::str_for_len(most)), self.long());
        self.emit(Inst::CatchMsg { dst: message }, span);
        let b = self.l.string(ABORT);
        let test = Inst::StrCmp {
            dst: same,
            op: CmpOp::Eq,
            a: Val::Reg(message),
            b,
        };
        self.emit(test, span);
        let (aborted, other) = (self.block(), self.block());
        self.end(Term::Branch {
            cond: Val::Reg(same),
            then: aborted,
            els: other,
        });
        (aborted, other)
    }

    /// `next`: ends a handler; in a function, goes on with the function's next body.
    fn next(&mut self, span: Span) {
        let UnitKind::Func { next_alt, .. } = self.source().kind else {
            return self.terminate(Term::Ret(None));
        };
        match next_alt {
            Some(alt) => {
                let mut args: Vec<Val> = self.saved.iter().map(|r| Val::Reg(*r)).collect();
                args.extend(self.hidden_args(alt, span));
                let dst = self.l.result(alt).map(|ty| self.reg(ty));
                let func = self.l.func_id(alt);
                self.emit(Inst::Call { dst, func, args }, span);
                let v = match (dst, self.l.result(self.unit)) {
                    (_, None) => None,
                    (Some(r), Some(_)) => Some(Val::Reg(r)),
                    (None, Some(_)) => Some(self.default_result()),
                };
                self.terminate(Term::Ret(v));
            }
            None => {
                let msg = self.l.string(b"all functions exhausted");
                self.emit(Inst::Raise { msg }, span);
                let v = self.l.result(self.unit).map(|_| self.default_result());
                self.terminate(Term::Ret(v));
            }
        }
    }

    fn default_result(&mut self) -> Val {
        match self.l.result(self.unit) {
            Some(spile_ir::Ty::Str(_)) => self.l.string(&[]),
            _ => Val::Imm(0),
        }
    }
}
