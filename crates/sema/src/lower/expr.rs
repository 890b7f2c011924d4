//! Expressions.

use spile_ir::{BinOp, BlockId, CmpOp, GlobalId, Inst, IntTy, Intrinsic, Reg, Term, Ty, UnOp, Val};
use spile_syntax::ast::Span;

use super::builder::Builder;
use crate::types::hir::*;
use crate::types::unify::Base;

/// An assignable location whose keys are evaluated.
enum AssignTarget {
    Local(Reg),
    Scalar(GlobalId, Ty),
    Elem(GlobalId, Vec<Val>, Ty),
}

impl Builder<'_, '_> {
    /// A global; `None` if it was removed as unused.
    pub(super) fn global(&self, g: GlobalIx) -> Option<GlobalId> {
        self.l.globals[g.0]
    }

    /// The zero value of the register's type: 0 or "".
    pub(super) fn zero(&mut self, r: Reg) -> Val {
        match self.body.regs[r.index()] {
            Ty::Long => Val::Imm(0),
            Ty::Str(_) => self.l.string(&[]),
        }
    }

    fn ty(&self, e: &HirExpr) -> Ty {
        self.l.widths.expr(self.unit, e)
    }

    fn is_str(&self, e: &HirExpr) -> bool {
        self.l.types.get(e.ty) == Some(Base::Str)
    }

    /// Evaluates an expression for its effect alone.
    pub(super) fn effect(&mut self, e: &HirExpr) {
        match &e.kind {
            HirExprKind::Assign { lvalue, op, rhs } => {
                self.assign(lvalue, *op, rhs, false, e.span);
            }
            HirExprKind::IncDec {
                lvalue,
                prefix,
                inc,
            } => {
                self.inc_dec(lvalue, *prefix, *inc, false, e.span);
            }
            HirExprKind::Logic { and, a, b } => {
                let (more, join) = (self.block(), self.block());
                let (then, els) = if *and { (more, join) } else { (join, more) };
                self.branch(a, then, els);
                self.switch_to_block(more);
                self.effect(b);
                self.jump(join);
            }
            HirExprKind::Ternary(c, a, b) => {
                self.alternatives(c, [a, b], |this, e| this.effect(e));
            }
            _ => {
                self.value(e);
            }
        }
    }

    /// The operands from left to right. A local that a later operand changes is copied first.
    pub(super) fn operands(&mut self, list: &[HirExpr]) -> Vec<Val> {
        let refs: Vec<&HirExpr> = list.iter().collect();
        self.operand_refs(&refs)
    }

    fn operand_refs(&mut self, list: &[&HirExpr]) -> Vec<Val> {
        let mut out = Vec::with_capacity(list.len());
        for (n, e) in list.iter().enumerate() {
            let v = self.value(e);
            out.push(self.keep_across(v, &list[n + 1..], e.span));
        }
        out
    }

    fn keep_across(&mut self, v: Val, later: &[&HirExpr], span: Span) -> Val {
        let Val::Reg(r) = v else { return v };
        let mut changed = false;
        for e in later {
            walk_expr(e, &mut |e| {
                changed |= e.changed_local().is_some_and(|l| l.0 == r.index());
            });
        }
        match changed {
            true => Val::Reg(self.copied(r, span)),
            false => v,
        }
    }

    pub(super) fn optional_operands(&mut self, keys: &[Option<HirExpr>]) -> Vec<Option<Val>> {
        let present: Vec<&HirExpr> = keys.iter().flatten().collect();
        let mut vals = self.operand_refs(&present).into_iter();
        keys.iter()
            .map(|k| k.as_ref().and_then(|_| vals.next()))
            .collect()
    }

    /// Two operands.
    fn two_operands(&mut self, a: &HirExpr, b: &HirExpr) -> (Val, Val) {
        let va = self.value(a);
        let va = self.keep_across(va, &[b], a.span);
        (va, self.value(b))
    }

    /// Branches on a condition, without computing it as a number where possible.
    pub(super) fn branch(&mut self, cond: &HirExpr, then: BlockId, els: BlockId) {
        match &cond.kind {
            HirExprKind::Logic { and, a, b } => {
                let more = self.block();
                if *and {
                    self.branch(a, more, els)
                } else {
                    self.branch(a, then, more)
                }
                self.switch_to_block(more);
                self.branch(b, then, els);
            }
            HirExprKind::Un(UnOp::Not, a) => self.branch(a, els, then),
            _ => {
                let cond = self.value(cond);
                self.end(Term::Branch { cond, then, els });
            }
        }
    }

    /// The value of an expression.
    pub(super) fn value(&mut self, e: &HirExpr) -> Val {
        match &e.kind {
            HirExprKind::Num(n) => Val::Imm(*n),
            HirExprKind::Str(s) => self.l.string(s),
            HirExprKind::Read(LValue::Local(l)) => Val::Reg(self.local(*l)),
            HirExprKind::ProbeName { function } => self.probe_name(*function, e.span),
            HirExprKind::Assign { lvalue, op, rhs } => self.assign(lvalue, *op, rhs, true, e.span),
            HirExprKind::IncDec {
                lvalue,
                prefix,
                inc,
            } => self.inc_dec(lvalue, *prefix, *inc, true, e.span),
            HirExprKind::Raise(m) => {
                let msg = self.value(m);
                self.emit(Inst::Raise { msg }, e.span);
                match self.is_str(e) {
                    true => self.l.string(b""),
                    false => Val::Imm(0),
                }
            }
            HirExprKind::StatAdd { lvalue, rhs } => {
                let Some((g, keys, val)) = self.element_and(lvalue, rhs) else {
                    return Val::Imm(0);
                };
                self.emit(Inst::StatAdd { g, keys, val }, e.span);
                val
            }
            HirExprKind::Print {
                stream,
                to_string: false,
                form,
                args,
            } => {
                self.print(*stream, form, args, e.span);
                Val::Imm(0)
            }
            HirExprKind::PrintHist {
                lvalue,
                newline,
                to_string: false,
            } => {
                self.print_hist(None, lvalue, *newline, e.span);
                Val::Imm(0)
            }
            HirExprKind::Call { func, args } if self.l.result(*func).is_none() => {
                self.call(None, *func, args, e.span);
                Val::Imm(0)
            }
            HirExprKind::Intr { f, args } if f.info().ret.is_none() => {
                let args = self.operands(args);
                self.intrinsic(None, *f, args, e.span);
                Val::Imm(0)
            }
            _ => {
                let ty = self.ty(e);
                let dst = self.reg(ty);
                self.value_to(dst, e);
                Val::Reg(dst)
            }
        }
    }

    fn call(&mut self, dst: Option<Reg>, func: UnitIx, args: &[HirExpr], span: Span) {
        let mut args = self.operands(args);
        args.extend(self.hidden_args(func, span));
        let func = self.l.func_id(func);
        self.emit(Inst::Call { dst, func, args }, span);
    }

    /// `pp()` and similar functions for a function that takes them as hidden parameters.
    pub(super) fn hidden_args(&mut self, func: UnitIx, span: Span) -> Vec<Val> {
        let wanted = self.l.names[func.0];
        NameFunction::ALL
            .into_iter()
            .filter(|function| wanted[*function as usize])
            .map(|function| self.probe_name(function, span))
            .collect()
    }

    fn probe_name(&mut self, function: NameFunction, span: Span) -> Val {
        let unit = &self.source().kind;
        if let UnitKind::Func { .. } = unit {
            return match self.names[function as usize] {
                Some(r) => Val::Reg(r),
                None => self.l.string(&[]),
            };
        }
        if let (NameFunction::Kind, UnitKind::Handler { event, point, .. }) = (function, unit) {
            let kind = event_kind(event, point);
            return self.l.string(kind.as_bytes());
        }
        if function == NameFunction::Interrupted && unit.interrupts() {
            let max = self.l.program.limits.maxstringlen as usize;
            let dst = self.reg(Ty::str_for_len(max));
            self.intrinsic(Some(dst), Intrinsic::Interrupted, Vec::new(), span);
            return Val::Reg(dst);
        }
        let names = unit.names(function);
        let longest = match names {
            [] => return self.l.string(&[]),
            [one] => {
                let one = one.clone();
                return self.l.string(one.as_bytes());
            }
            _ => unit.longest_name(function),
        };
        let max = self.l.program.limits.maxstringlen as usize;
        let table = self.l.name_table(self.unit, function);
        let idx = self.long();
        self.intrinsic(Some(idx), Intrinsic::CtxSite, Vec::new(), span);
        let dst = self.reg(Ty::str_for_len(longest.min(max)));
        let idx = Val::Reg(idx);
        self.emit(Inst::TableGet { dst, table, idx }, span);
        Val::Reg(dst)
    }

    /// Evaluates into a register. An operand may be that register itself, so it is written last.
    fn value_to(&mut self, dst: Reg, e: &HirExpr) {
        match &e.kind {
            HirExprKind::Read(p @ (LValue::Scalar(_) | LValue::Elem(..))) => {
                let Some(t) = self.target(p) else { return };
                self.read(dst, &t, e.span);
            }
            HirExprKind::Call { func, args } if self.l.result(*func).is_some() => {
                self.call(Some(dst), *func, args, e.span);
            }
            HirExprKind::Intr { f, args } if f.info().ret.is_some() => {
                let args = self.operands(args);
                self.intrinsic(Some(dst), *f, args, e.span);
            }
            HirExprKind::Table { table, idx } => {
                let idx = self.value(idx);
                let table = self.l.table(*table);
                self.emit(Inst::TableGet { dst, table, idx }, e.span);
            }
            HirExprKind::Match { re, string } => {
                let text = self.value(string);
                let Some((re, keep)) = self.l.regex(*re) else {
                    return;
                };
                let inst = Inst::Regex {
                    dst,
                    re,
                    text,
                    keep,
                };
                self.emit(inst, e.span);
            }
            HirExprKind::Un(..)
            | HirExprKind::Bin(..)
            | HirExprKind::Cmp(..)
            | HirExprKind::Concat(..) => self.operation_to(dst, e),
            HirExprKind::Logic { .. } | HirExprKind::Ternary(..) => self.choice_to(dst, e),
            HirExprKind::In { .. } | HirExprKind::Stat { .. } | HirExprKind::HistGet { .. } => {
                self.element_to(dst, e);
            }
            HirExprKind::Load {
                space,
                addr,
                size,
                signed,
            } => {
                let inst = Inst::Load {
                    dst,
                    space: *space,
                    ty: IntTy {
                        size: *size,
                        signed: *signed,
                    },
                    addr: self.value(addr),
                };
                self.emit(inst, e.span);
            }
            HirExprKind::Print {
                to_string: true,
                form,
                args,
                ..
            } => {
                self.sprint(dst, form, args, e.span);
            }
            HirExprKind::PrintHist {
                lvalue,
                newline,
                to_string: true,
            } => self.print_hist(Some(dst), lvalue, *newline, e.span),
            // The cases that `value` handles without a register of its own.
            _ => {
                let src = self.value(e);
                self.emit(Inst::Copy { dst, src }, e.span);
            }
        }
    }

    /// The result of an operator whose operands are always evaluated.
    fn operation_to(&mut self, dst: Reg, e: &HirExpr) {
        match &e.kind {
            HirExprKind::Un(op, a) => {
                let a = self.value(a);
                self.emit(Inst::Un { dst, op: *op, a }, e.span);
            }
            HirExprKind::Bin(op, x, y) => {
                let (a, b) = self.two_operands(x, y);
                let site = self.l.sites.between(x.span, y.span, e.span);
                self.emit_at(Inst::Bin { dst, op: *op, a, b }, site);
            }
            HirExprKind::Cmp(op, x, y) => {
                let strings = self.is_str(x);
                let (a, b) = self.two_operands(x, y);
                match strings {
                    true => self.emit(Inst::StrCmp { dst, op: *op, a, b }, e.span),
                    false => self.binary(dst, number_cmp(*op), a, b, e.span),
                }
            }
            HirExprKind::Concat(x, y) => {
                let (a, b) = self.two_operands(x, y);
                self.emit(Inst::Concat { dst, a, b }, e.span);
            }
            _ => {}
        }
    }

    /// A value that depends on a branch.
    fn choice_to(&mut self, dst: Reg, e: &HirExpr) {
        match &e.kind {
            HirExprKind::Logic { .. } => self.alternatives(e, [1, 0], |this, n| {
                let src = Val::Imm(n);
                this.emit(Inst::Copy { dst, src }, e.span);
            }),
            HirExprKind::Ternary(c, x, y) => {
                self.alternatives(c, [x, y], |this, v| this.value_to(dst, v));
            }
            _ => {}
        }
    }

    /// Lowers the first of two alternatives where a condition holds, else the second one.
    fn alternatives<T>(
        &mut self,
        cond: &HirExpr,
        [yes, no]: [T; 2],
        mut lower: impl FnMut(&mut Self, T),
    ) {
        let (then, els, join) = (self.block(), self.block(), self.block());
        self.branch(cond, then, els);
        for (block, alternative) in [(then, yes), (els, no)] {
            self.switch_to_block(block);
            lower(self, alternative);
            self.end(Term::Jump(join));
        }
        self.switch_to_block(join);
    }

    /// The global and the keys of a statistic; `None` if it was removed as unused.
    pub(super) fn statistic(&mut self, lvalue: &LValue) -> Option<(GlobalId, Vec<Val>)> {
        let (g, keys) = lvalue.global()?;
        Some((self.global(g)?, self.operands(keys)))
    }

    /// The global and the keys of a statistic, and an operand that is evaluated after the keys.
    fn element_and(&mut self, lvalue: &LValue, e: &HirExpr) -> Option<(GlobalId, Vec<Val>, Val)> {
        let (g, keys) = lvalue.global()?;
        let g = self.global(g)?;
        let list: Vec<&HirExpr> = keys.iter().chain([e]).collect();
        let mut keys = self.operand_refs(&list);
        let last = keys.pop()?;
        Some((g, keys, last))
    }

    /// A read of an array or a statistic.
    fn element_to(&mut self, dst: Reg, e: &HirExpr) {
        match &e.kind {
            HirExprKind::In { g, keys } => {
                let Some(g) = self.global(*g) else { return };
                let keys = self.optional_operands(keys);
                self.emit(Inst::AHas { dst, g, keys }, e.span);
            }
            HirExprKind::Stat {
                lvalue,
                what,
                shift,
            } => {
                let Some((g, keys)) = self.statistic(lvalue) else {
                    return;
                };
                let (what, shift) = (*what, *shift);
                let inst = Inst::StatGet {
                    dst,
                    g,
                    keys,
                    what,
                    shift,
                };
                self.emit(inst, e.span);
            }
            HirExprKind::HistGet { lvalue, idx } => {
                if let Some((g, keys, idx)) = self.element_and(lvalue, idx) {
                    self.emit(Inst::HistGet { dst, g, keys, idx }, e.span);
                }
            }
            _ => {}
        }
    }

    fn target(&mut self, p: &LValue) -> Option<AssignTarget> {
        let ty = |g: GlobalIx| self.l.widths.value(g);
        Some(match p {
            LValue::Local(l) => AssignTarget::Local(self.local(*l)),
            LValue::Scalar(g) => AssignTarget::Scalar(self.global(*g)?, ty(*g)),
            LValue::Elem(g, keys) => {
                let (id, ty) = (self.global(*g)?, ty(*g));
                AssignTarget::Elem(id, self.operands(keys), ty)
            }
        })
    }

    fn read(&mut self, dst: Reg, t: &AssignTarget, span: Span) {
        let inst = match t {
            AssignTarget::Local(r) => Inst::Copy {
                dst,
                src: Val::Reg(*r),
            },
            AssignTarget::Scalar(g, _) => Inst::GLoad { dst, g: *g },
            AssignTarget::Elem(g, keys, _) => Inst::AGet {
                dst,
                g: *g,
                keys: keys.clone(),
            },
        };
        self.emit(inst, span);
    }

    fn write(&mut self, t: &AssignTarget, val: Val, span: Span) {
        let inst = match t {
            AssignTarget::Local(r) => Inst::Copy { dst: *r, src: val },
            AssignTarget::Scalar(g, _) => Inst::GStore { g: *g, val },
            AssignTarget::Elem(g, keys, _) => Inst::ASet {
                g: *g,
                keys: keys.clone(),
                val,
            },
        };
        self.emit(inst, span);
    }

    fn assign(
        &mut self,
        lvalue: &LValue,
        op: Option<AssignOp>,
        rhs: &HirExpr,
        used: bool,
        span: Span,
    ) -> Val {
        if let (LValue::Local(l), None) = (lvalue, op) {
            let dst = self.local(*l);
            self.value_to(dst, rhs);
            return Val::Reg(dst);
        }
        // Keys first, then the right side, which may change the variables that a key was computed
        // from.
        let Some(mut t) = self.target(lvalue) else {
            return self.value(rhs);
        };
        if let AssignTarget::Elem(_, keys, _) = &mut t {
            for k in keys.iter_mut() {
                *k = self.keep_across(*k, &[rhs], span);
            }
        }
        let val = self.value(rhs);
        let local = matches!(t, AssignTarget::Local(_));
        match op {
            None => {
                self.write(&t, val, span);
                val
            }
            Some(AssignOp::Num(BinOp::Add)) if !local => self.add(&t, val, used, span).0,
            Some(AssignOp::Num(BinOp::Sub)) if !local => {
                let neg = self.negated(val, span);
                self.add(&t, neg, used, span).0
            }
            Some(op) => self.update(&t, op, val, span),
        }
    }

    fn negated(&mut self, val: Val, span: Span) -> Val {
        match val {
            Val::Imm(n) => Val::Imm(n.wrapping_neg()),
            a => {
                let (dst, op) = (self.long(), UnOp::Neg);
                self.emit(Inst::Un { dst, op, a }, span);
                Val::Reg(dst)
            }
        }
    }

    /// Adds to a global; returns the values after and before.
    fn add(&mut self, t: &AssignTarget, val: Val, used: bool, span: Span) -> (Val, Val) {
        let old = used.then(|| self.long());
        match t {
            AssignTarget::Scalar(g, _) => self.emit(Inst::GAdd { g: *g, val, old }, span),
            AssignTarget::Elem(g, keys, _) => {
                let (g, keys) = (*g, keys.clone());
                self.emit(Inst::AAdd { g, keys, val, old }, span);
            }
            AssignTarget::Local(_) => {}
        }
        let Some(old) = old else {
            return (Val::Imm(0), Val::Imm(0));
        };
        let dst = self.long();
        self.binary(dst, BinOp::Add, Val::Reg(old), val, span);
        (Val::Reg(dst), Val::Reg(old))
    }

    /// Reads, computes and writes back.
    fn update(&mut self, t: &AssignTarget, op: AssignOp, val: Val, span: Span) -> Val {
        let (current, dst) = match t {
            AssignTarget::Local(r) => (*r, *r),
            AssignTarget::Scalar(_, ty) | AssignTarget::Elem(_, _, ty) => {
                let current = self.reg(*ty);
                self.read(current, t, span);
                (current, self.reg(*ty))
            }
        };
        let a = Val::Reg(current);
        match op {
            AssignOp::Num(op) => self.binary(dst, op, a, val, span),
            AssignOp::Concat => self.emit(Inst::Concat { dst, a, b: val }, span),
        }
        if !matches!(t, AssignTarget::Local(_)) {
            self.write(t, Val::Reg(dst), span);
        }
        Val::Reg(dst)
    }

    fn inc_dec(&mut self, lvalue: &LValue, prefix: bool, inc: bool, used: bool, span: Span) -> Val {
        let Some(t) = self.target(lvalue) else {
            return Val::Imm(0);
        };
        let by = Val::Imm(if inc { 1 } else { -1 });
        let AssignTarget::Local(r) = t else {
            let (after, before) = self.add(&t, by, used, span);
            return if prefix { after } else { before };
        };
        let before = (used && !prefix).then(|| self.copied(r, span));
        self.binary(r, BinOp::Add, Val::Reg(r), by, span);
        Val::Reg(before.unwrap_or(r))
    }
}

fn number_cmp(op: CmpOp) -> BinOp {
    match op {
        CmpOp::Eq => BinOp::Eq,
        CmpOp::Ne => BinOp::Ne,
        CmpOp::Lt => BinOp::Lt,
        CmpOp::Le => BinOp::Le,
        CmpOp::Gt => BinOp::Gt,
        CmpOp::Ge => BinOp::Ge,
    }
}
