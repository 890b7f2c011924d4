//! Expressions, except calls, prints and target variables, which have files of their own.

use spile_cast::Cast;
use spile_ir::intrinsics::Intrinsic;
use spile_ir::{BinOp, CmpOp, Extract, Hist, UnOp};
use spile_syntax::ast::{self, Key, Span, StatOp};
use spile_syntax::diag::Diagnostic;

use super::autocast::{known, same};
use super::operators::num_op;
use super::{Resolver, VarMeaning};
use crate::ctype::CTy;
use crate::types::codes;
use crate::types::hir::*;
use crate::types::unify::{Base, TyVar};

/// Comparison operators.
fn cmp_op(op: ast::BinOp) -> Option<CmpOp> {
    Some(match op {
        ast::BinOp::Lt => CmpOp::Lt,
        ast::BinOp::Le => CmpOp::Le,
        ast::BinOp::Gt => CmpOp::Gt,
        ast::BinOp::Ge => CmpOp::Ge,
        ast::BinOp::Eq => CmpOp::Eq,
        ast::BinOp::Ne => CmpOp::Ne,
        _ => return None,
    })
}

impl Resolver<'_> {
    /// An expression whose value is used.
    pub(super) fn expr(&mut self, e: &ast::Expr) -> HirExpr {
        self.typed_expr(e).0
    }

    /// An expression used as a statement, where a call without a value is allowed.
    pub(super) fn effect(&mut self, e: &ast::Expr) -> HirExpr {
        match &e.kind {
            ast::ExprKind::Call { name, args } => {
                let call = self.call(name, args, e.span, false);
                call.unwrap_or_else(|| self.bad(e.span))
            }
            ast::ExprKind::Print { op, args } => {
                let print = self.print(*op, args, e.span);
                print.unwrap_or_else(|| self.bad(e.span))
            }
            ast::ExprKind::Ternary(c, a, b) => {
                let c = self.integer(c);
                if let HirExprKind::Num(n) = c.kind {
                    return self.effect(if n != 0 { a } else { b });
                }
                let (a, b) = (self.effect(a), self.effect(b));
                let kind = HirExprKind::Ternary(Box::new(c), Box::new(a), Box::new(b));
                let (ty, span) = (self.types.fresh(), e.span);
                HirExpr { kind, ty, span }
            }
            _ => {
                self.cur.discard = true;
                self.expr(e)
            }
        }
    }

    /// An expression whose type is an integer.
    pub(super) fn integer(&mut self, e: &ast::Expr) -> HirExpr {
        let v = self.expr(e);
        self.set_type(v.ty, Base::Long, v.span);
        v
    }

    /// An expression whose type is a string.
    pub(super) fn string(&mut self, e: &ast::Expr) -> HirExpr {
        let v = self.expr(e);
        self.set_type(v.ty, Base::Str, v.span);
        v
    }

    /// A node that is an integer.
    pub(super) fn int(&mut self, kind: HirExprKind, span: Span) -> HirExpr {
        let ty = self.types.fresh_of(Base::Long, span);
        HirExpr { kind, ty, span }
    }

    /// A node that is a string.
    pub(super) fn str(&mut self, kind: HirExprKind, span: Span) -> HirExpr {
        let ty = self.types.fresh_of(Base::Str, span);
        HirExpr { kind, ty, span }
    }

    /// An integer that is known.
    pub(super) fn imm(&mut self, n: i64, span: Span) -> HirExpr {
        self.int(HirExprKind::Num(n), span)
    }

    /// A string that is known.
    pub(super) fn string_imm(&mut self, string: &[u8], span: Span) -> HirExpr {
        self.str(HirExprKind::Str(string.into()), span)
    }

    /// `a op b`
    pub(super) fn bin(&mut self, op: BinOp, a: HirExpr, b: HirExpr, span: Span) -> HirExpr {
        self.int(HirExprKind::Bin(op, Box::new(a), Box::new(b)), span)
    }

    /// `condition ? yes : no`, with the type of the first alternative.
    pub(super) fn choose(&mut self, cond: HirExpr, [yes, no]: [HirExpr; 2], span: Span) -> HirExpr {
        let ty = yes.ty;
        let kind = HirExprKind::Ternary(Box::new(cond), Box::new(yes), Box::new(no));
        HirExpr { kind, ty, span }
    }

    /// An intrinsic whose result is a number, or that has none.
    pub(super) fn intr(&mut self, f: Intrinsic, args: Vec<HirExpr>, span: Span) -> HirExpr {
        self.int(HirExprKind::Intr { f, args }, span)
    }

    /// The stand-in for an expression with an error.
    pub(super) fn bad(&mut self, span: Span) -> HirExpr {
        let (kind, ty) = (HirExprKind::Num(0), self.types.fresh());
        HirExpr { kind, ty, span }
    }

    /// An expression and its C type where it has one.
    pub(super) fn typed_expr(&mut self, e: &ast::Expr) -> (HirExpr, Option<CTy>) {
        let span = e.span;
        // True while the outermost expression is discarded.
        let used = !std::mem::take(&mut self.cur.discard);
        let plain = match &e.kind {
            ast::ExprKind::Num(n) => Some(self.imm(*n, span)),
            ast::ExprKind::Str(s) => Some(self.str(HirExprKind::Str(s.clone()), span)),
            ast::ExprKind::Var(name) => return self.read_var(name, span),
            ast::ExprKind::Index { base, keys } => self.index(base, keys, span),
            ast::ExprKind::Call { name, args } => self.call(name, args, span, true),
            ast::ExprKind::Unary(op, a) => Some(self.unary(*op, a, span)),
            ast::ExprKind::Binary(op, a, b) => Some(self.binary(*op, a, b, span)),
            ast::ExprKind::Ternary(c, a, b) => return self.ternary(c, a, b, span),
            ast::ExprKind::Assign { op, lhs, rhs } => {
                return self.assign(*op, lhs, rhs, span, used);
            }
            ast::ExprKind::StatAdd { lhs, rhs } => self.stat_add(lhs, rhs, span),
            ast::ExprKind::IncDec {
                prefix,
                inc,
                target,
            } => self.inc_dec(target, (*prefix, *inc), span, used),
            ast::ExprKind::In { keys, array } => self.membership(keys, array, span),
            ast::ExprKind::Match {
                negated,
                subject,
                pattern,
                pattern_span,
            } => {
                let string = Box::new(self.string(subject));
                let re = self.tree.regexes.len();
                self.tree.regexes.push(ScriptRegex {
                    pattern: pattern.clone(),
                    span: *pattern_span,
                    compiled: None,
                });
                let matched = self.int(HirExprKind::Match { re, string }, span);
                Some(match negated {
                    false => matched,
                    true => self.int(HirExprKind::Un(UnOp::Not, Box::new(matched)), span),
                })
            }
            ast::ExprKind::Stat { op, arg, params } => self.stat(*op, arg, params, span),
            ast::ExprKind::Hist { .. } => {
                let text = "a histogram has no value of its own";
                let d = Diagnostic::error(codes::NO_VALUE, text).at(span);
                let help = "print it, `print(@hist_log(x))`, or read a bucket, `@hist_log(x)[i]`";
                self.report(d.help(help));
                None
            }
            ast::ExprKind::Print { op, args } => self.print(*op, args, span),
            ast::ExprKind::Target { .. }
            | ast::ExprKind::At { .. }
            | ast::ExprKind::Arrow { .. } => match self.target_expr(e) {
                Some(typed) => return typed,
                None => None,
            },
            ast::ExprKind::Embedded(c) => {
                self.embedded(c);
                None
            }
        };
        (plain.unwrap_or_else(|| self.bad(span)), None)
    }

    /// `x++` and similar operators.
    fn inc_dec(
        &mut self,
        target: &ast::Expr,
        (prefix, inc): (bool, bool),
        span: Span,
        used: bool,
    ) -> Option<HirExpr> {
        let one = ast::Expr {
            kind: ast::ExprKind::Num(1),
            span: target.span,
        };
        let op = match inc {
            true => ast::BinOp::Add,
            false => ast::BinOp::Sub,
        };
        if let Some(set) = self.set_memory(Some(op), target, &one, (span, used)) {
            return Some(set);
        }
        let (lvalue, ty) = self.lvalue(target, true, used)?;
        self.set_type(ty, Base::Long, target.span);
        let kind = HirExprKind::IncDec {
            lvalue,
            prefix,
            inc,
        };
        Some(self.int(kind, span))
    }

    fn read_var(&mut self, name: &ast::Name, span: Span) -> (HirExpr, Option<CTy>) {
        match self.var(name, span) {
            VarMeaning::Local(ix) => {
                let l = &mut self.cur.locals[ix.0];
                l.read = true;
                let e = LValue::Local(ix).read(l.ty, span);
                let cty = self.cur.ctypes.get(&ix).and_then(|o| known(o, self.facts));
                (e, cty)
            }
            VarMeaning::Global(g) => {
                if self.global_keys(g, 0, span).is_none() {
                    return (self.bad(span), None);
                }
                self.tree.globals[g.0].read = true;
                let ty = self.tree.globals[g.0].value;
                (LValue::Scalar(g).read(ty, span), None)
            }
        }
    }

    fn index(&mut self, base: &ast::Expr, keys: &[Key], span: Span) -> Option<HirExpr> {
        if let ast::ExprKind::Hist { .. } = base.kind {
            let [Key::Expr(idx)] = keys else {
                let text = "a histogram has one index, the number of the bucket";
                return self.refuse(codes::INDEX_COUNT, span, text);
            };
            let lvalue = self.histogram(base)?;
            let idx = Box::new(self.integer(idx));
            return Some(self.int(HirExprKind::HistGet { lvalue, idx }, span));
        }
        let (lvalue, ty) = self.element(base, keys, span)?;
        if let Some((g, _)) = lvalue.global() {
            self.tree.globals[g.0].read = true;
        }
        Some(lvalue.read(ty, span))
    }

    /// `a[k]` as an assignable lvalue.
    fn element(&mut self, base: &ast::Expr, keys: &[Key], span: Span) -> Option<(LValue, TyVar)> {
        let ast::ExprKind::Var(name) = &base.kind else {
            let text = "only arrays and histograms can be indexed";
            return self.refuse(codes::BAD_OPERAND, span, text);
        };
        let g = self.array(name, base.span)?;
        let types = self.global_keys(g, keys.len(), span)?;
        let keys = self.keys(keys, &types).into_iter();
        let keys = keys.collect::<Option<Vec<_>>>()?;
        Some((LValue::Elem(g, keys), self.tree.globals[g.0].value))
    }

    /// The operand of an assignment (`written`) or of a read before it (`read`).
    fn lvalue(&mut self, e: &ast::Expr, written: bool, read: bool) -> Option<(LValue, TyVar)> {
        match &e.kind {
            ast::ExprKind::Var(name) => match self.var(name, e.span) {
                VarMeaning::Local(ix) => {
                    let l = &mut self.cur.locals[ix.0];
                    l.written |= written;
                    l.read |= read;
                    Some((LValue::Local(ix), l.ty))
                }
                VarMeaning::Global(g) => {
                    self.global_keys(g, 0, e.span)?;
                    self.touch(g, written, read);
                    Some((LValue::Scalar(g), self.tree.globals[g.0].value))
                }
            },
            ast::ExprKind::Index { base, keys } => {
                let (lvalue, ty) = self.element(base, keys, e.span)?;
                if let Some((g, _)) = lvalue.global() {
                    self.touch(g, written, read);
                }
                Some((lvalue, ty))
            }
            _ => {
                self.report_unwritable(e);
                None
            }
        }
    }

    pub(super) fn report_unwritable(&mut self, e: &ast::Expr) {
        let d = match e.kind {
            ast::ExprKind::Target { .. }
            | ast::ExprKind::At { .. }
            | ast::ExprKind::Arrow { .. } => {
                let text = "the kernel's variables cannot be written";
                let d = Diagnostic::error(codes::NOT_SUPPORTED, text);
                d.note("eBPF programs only read kernel memory")
            }
            _ => Diagnostic::error(codes::BAD_OPERAND, "this cannot be assigned to"),
        };
        self.report(d.at(e.span));
    }

    /// Notes a use of a global. A compound assignment whose value is unused does not count as a
    /// read: a counter that nothing else reads is displayed at the end.
    fn touch(&mut self, g: GlobalIx, written: bool, read: bool) {
        self.tree.globals[g.0].written |= written;
        self.tree.globals[g.0].read |= read;
    }

    fn unary(&mut self, op: ast::UnOp, a: &ast::Expr, span: Span) -> HirExpr {
        let a = self.integer(a);
        let folded = match (op, &a.kind) {
            (ast::UnOp::Plus, _) => return a,
            (ast::UnOp::Neg, HirExprKind::Num(n)) => Some(n.wrapping_neg()),
            (ast::UnOp::Not, HirExprKind::Num(n)) => Some(i64::from(*n == 0)),
            (ast::UnOp::BitNot, HirExprKind::Num(n)) => Some(!n),
            _ => None,
        };
        if let Some(n) = folded {
            return self.imm(n, span);
        }
        let op = match op {
            ast::UnOp::Neg | ast::UnOp::Plus => UnOp::Neg,
            ast::UnOp::Not => UnOp::Not,
            ast::UnOp::BitNot => UnOp::BitNot,
        };
        self.int(HirExprKind::Un(op, Box::new(a)), span)
    }

    fn binary(&mut self, op: ast::BinOp, a: &ast::Expr, b: &ast::Expr, span: Span) -> HirExpr {
        if let ast::BinOp::LogAnd | ast::BinOp::LogOr = op {
            return self.logic(op == ast::BinOp::LogAnd, a, b, span);
        }
        if op == ast::BinOp::Concat {
            let (a, b) = (self.string(a), self.string(b));
            if let (HirExprKind::Str(x), HirExprKind::Str(y)) = (&a.kind, &b.kind) {
                let joined: Vec<u8> = x.iter().chain(y.iter()).copied().collect();
                return self.str(HirExprKind::Str(joined.into()), span);
            }
            return self.str(HirExprKind::Concat(Box::new(a), Box::new(b)), span);
        }
        if let Some(op) = cmp_op(op) {
            let (a, b) = (self.expr(a), self.expr(b));
            self.unify(b.ty, a.ty, b.span);
            let kind = match fold_cmp(op, &a.kind, &b.kind) {
                Some(v) => HirExprKind::Num(i64::from(v)),
                None => HirExprKind::Cmp(op, Box::new(a), Box::new(b)),
            };
            return self.int(kind, span);
        }
        let (a, b) = (self.integer(a), self.integer(b));
        // `num_op` knows every remaining operator.
        let op = num_op(op).unwrap_or(BinOp::Add);
        let kind = match (&a.kind, &b.kind) {
            (HirExprKind::Num(x), HirExprKind::Num(y)) => op.eval(*x, *y).map(HirExprKind::Num),
            _ => None,
        };
        let kind = kind.unwrap_or_else(|| HirExprKind::Bin(op, Box::new(a), Box::new(b)));
        self.int(kind, span)
    }

    fn logic(&mut self, and: bool, a: &ast::Expr, b: &ast::Expr, span: Span) -> HirExpr {
        let a = self.integer(a);
        if let HirExprKind::Num(n) = a.kind {
            // The right side of `0 && x` and `1 || x` is dead, and not resolved.
            if (n == 0) == and {
                return self.imm(i64::from(!and), span);
            }
            let b = self.integer(b);
            if let HirExprKind::Num(n) = b.kind {
                return self.imm(i64::from(n != 0), span);
            }
            let zero = Box::new(self.imm(0, span));
            return self.int(HirExprKind::Cmp(CmpOp::Ne, Box::new(b), zero), span);
        }
        let (a, b) = (Box::new(a), Box::new(self.integer(b)));
        self.int(HirExprKind::Logic { and, a, b }, span)
    }

    fn ternary(
        &mut self,
        c: &ast::Expr,
        a: &ast::Expr,
        b: &ast::Expr,
        span: Span,
    ) -> (HirExpr, Option<CTy>) {
        let c = self.integer(c);
        if let HirExprKind::Num(n) = c.kind {
            return self.typed_expr(if n != 0 { a } else { b });
        }
        let ((a, ct), (b, cb)) = (self.typed_expr(a), self.typed_expr(b));
        self.unify(b.ty, a.ty, b.span);
        let cty = match (ct, cb) {
            (Some(a), Some(b)) if !same(a, b, self.facts) => None,
            _ => ct.or(cb),
        };
        (self.choose(c, [a, b], span), cty)
    }

    fn assign(
        &mut self,
        op: Option<ast::BinOp>,
        lhs: &ast::Expr,
        rhs: &ast::Expr,
        span: Span,
        used: bool,
    ) -> (HirExpr, Option<CTy>) {
        let setters = [Self::set_value, Self::set_verdict, Self::set_memory];
        for setter in setters {
            if let Some(set) = setter(self, op, lhs, rhs, (span, used)) {
                return (set, None);
            }
        }
        let Some((lvalue, ty)) = self.lvalue(lhs, true, op.is_some() && used) else {
            self.expr(rhs);
            return (self.bad(span), None);
        };
        let (rhs, cty) = self.typed_expr(rhs);
        self.unify(rhs.ty, ty, rhs.span);
        let op = match op {
            None => None,
            Some(ast::BinOp::Concat) => {
                self.set_type(ty, Base::Str, span);
                Some(AssignOp::Concat)
            }
            Some(op) => {
                self.set_type(ty, Base::Long, span);
                num_op(op).map(AssignOp::Num)
            }
        };
        if op.is_none() {
            self.note_origins(&lvalue, &rhs, cty);
        }
        let rhs = Box::new(rhs);
        let kind = HirExprKind::Assign { lvalue, op, rhs };
        (HirExpr { kind, ty, span }, cty)
    }

    fn stat_add(&mut self, lhs: &ast::Expr, rhs: &ast::Expr, span: Span) -> Option<HirExpr> {
        let lvalue = self.lvalue(lhs, true, false);
        let rhs = Box::new(self.integer(rhs));
        let (lvalue, ty) = lvalue?;
        if let LValue::Local(_) = lvalue {
            return self.not_statistic(lhs);
        }
        self.set_type(ty, Base::Stats, lhs.span);
        Some(self.int(HirExprKind::StatAdd { lvalue, rhs }, span))
    }

    fn not_statistic<T>(&mut self, e: &ast::Expr) -> Option<T> {
        let text = "a statistic has to be a global variable";
        let d = Diagnostic::error(codes::NOT_A_STATISTIC, text);
        self.report(d.label(e.span, "not declared `global`"));
        None
    }

    fn membership(&mut self, keys: &[Key], array: &ast::Ident, span: Span) -> Option<HirExpr> {
        let g = self.array(&array.name, array.span)?;
        let types = self.global_keys(g, keys.len(), span)?;
        self.tree.globals[g.0].read = true;
        let keys = self.keys(keys, &types);
        Some(self.int(HirExprKind::In { g, keys }, span))
    }

    /// The operand of an extractor such as `@count(...)`.
    fn stat_location(&mut self, arg: &ast::Expr) -> Option<(LValue, GlobalIx)> {
        use ast::ExprKind::{Index, Var};
        if !matches!(arg.kind, Var(_) | Index { .. }) {
            let text = "an extractor reads a statistic, which is a global variable";
            let d = Diagnostic::error(codes::NOT_A_STATISTIC, text).label(arg.span, "no variable");
            self.report(d.help("declare `global s`, and add values to it by `s <<< value`"));
            return None;
        }
        let (lvalue, ty) = self.lvalue(arg, false, false)?;
        let Some((g, _)) = lvalue.global() else {
            return self.not_statistic(arg);
        };
        self.set_type(ty, Base::Stats, arg.span);
        self.tree.globals[g.0].read = true;
        Some((lvalue, g))
    }

    /// Notes an extractor that the script applies to a statistic.
    pub(super) fn extract(&mut self, g: GlobalIx, op: StatOp) -> Extract {
        let s = &mut self.tree.globals[g.0].stats;
        let variance = op == StatOp::Variance;
        s.variance |= variance;
        s.sum |= variance || matches!(op, StatOp::Sum | StatOp::Avg);
        // For the variance they show whether the sum passed 64 bits.
        s.min |= variance || op == StatOp::Min;
        s.max |= variance || op == StatOp::Max;
        match op {
            StatOp::Count => Extract::Count,
            StatOp::Sum => Extract::Sum,
            StatOp::Avg => Extract::Avg,
            StatOp::Min => Extract::Min,
            StatOp::Max => Extract::Max,
            StatOp::Variance => Extract::Variance,
        }
    }

    fn stat(&mut self, op: StatOp, arg: &ast::Expr, params: &[i64], span: Span) -> Option<HirExpr> {
        let (lvalue, g) = self.stat_location(arg)?;
        let shift = params.first().copied().unwrap_or(0);
        if !(0..=62).contains(&shift) {
            let text = "the shift of `@variance` is 0 to 62";
            self.error(codes::BAD_OPERAND, span, text);
        }
        let kind = HirExprKind::Stat {
            lvalue,
            what: self.extract(g, op),
            shift: shift.clamp(0, 62).fit(),
        };
        Some(self.int(kind, span))
    }

    /// The statistic in `@hist_log(x)`, whose histogram is noted.
    pub(super) fn histogram(&mut self, e: &ast::Expr) -> Option<LValue> {
        let ast::ExprKind::Hist { kind, arg } = &e.kind else {
            return self.refuse(codes::BAD_OPERAND, e.span, "a histogram is needed here");
        };
        let (lvalue, g) = self.stat_location(arg)?;
        let hist = match *kind {
            ast::HistKind::Log => Hist::Log,
            ast::HistKind::Linear { low, high, step } => {
                let range = i128::from(high) - i128::from(low);
                if step <= 0 || range <= 0 || range / i128::from(step) > 4093 {
                    let text = "`@hist_linear` needs low < high, a step above 0, and at most 4,093 buckets";
                    let d = Diagnostic::error(codes::BAD_OPERAND, text).at(e.span);
                    let step = range / 4093 + 1;
                    self.report(d.help(format!(
                        "`@hist_linear(s, LOW, HIGH, {})` is the finest of such a range; `@hist_log` has any",
                        step.max(1)
                    )));
                    return None;
                }
                Hist::Linear { low, high, step }
            }
        };
        let global = &mut self.tree.globals[g.0];
        match global.stats.hist {
            Some(other) if other != hist => {
                let (name, before) = (global.name.clone(), global.hist_at);
                let text = format!("`{name}` is used with two different histograms");
                let d = Diagnostic::error(codes::HISTOGRAM_CONFLICT, text).at(e.span);
                let d = d.also(before, "the other one");
                self.report(d.help("use a second statistic for the second histogram"));
                None
            }
            _ => {
                global.stats.hist = Some(hist);
                global.hist_at = e.span;
                Some(lvalue)
            }
        }
    }
}

/// The result of comparing two literals.
fn fold_cmp(op: CmpOp, a: &HirExprKind, b: &HirExprKind) -> Option<bool> {
    let ord = match (a, b) {
        (HirExprKind::Num(a), HirExprKind::Num(b)) => a.cmp(b),
        (HirExprKind::Str(a), HirExprKind::Str(b)) => a.cmp(b),
        _ => return None,
    };
    Some(match op {
        CmpOp::Eq => ord.is_eq(),
        CmpOp::Ne => ord.is_ne(),
        CmpOp::Lt => ord.is_lt(),
        CmpOp::Le => ord.is_le(),
        CmpOp::Gt => ord.is_gt(),
        CmpOp::Ge => ord.is_ge(),
    })
}
