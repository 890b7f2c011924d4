//! Statements.

use spile_ir::{SortKey, SortSpec};
use spile_syntax::ast::{self, Key, Span};
use spile_syntax::diag::Diagnostic;

use super::entry::set;
use super::{Resolver, VarMeaning, unused};
use crate::types::codes;
use crate::types::dead_stores::RemovedStmt;
use crate::types::hir::*;
use crate::types::unify::{Base, TyVar};

impl Resolver<'_> {
    /// Resolves a block's statements; dead branches are dropped.
    pub(super) fn block(&mut self, b: &ast::StmtBlock) -> Vec<HirStmt> {
        let mut out = Vec::new();
        for s in &b.stmts {
            self.stmt(s, &mut out);
        }
        out
    }

    fn nested(&mut self, s: &ast::Stmt) -> Vec<HirStmt> {
        let mut out = Vec::new();
        self.stmt(s, &mut out);
        out
    }

    fn in_loop(&mut self, s: &ast::Stmt) -> Vec<HirStmt> {
        self.cur.loops += 1;
        let out = self.nested(s);
        self.cur.loops -= 1;
        out
    }

    /// Whether an expression that is used as a statement is left out, which a warning tells.
    fn leave_out(&mut self, e: &ast::Expr) -> bool {
        if !self.cur.unused.has_expr(e) {
            return false;
        }
        match unused::changed(e) {
            Some(change) => {
                // A variable that is assigned and never read has its own warning.
                let ix = self.local(change.name, change.span);
                self.cur.locals[ix.0].written = true;
                let what = match change.value {
                    Some(_) => "assignment to",
                    None => "change of",
                };
                let what = format!("{what} `{}`", change.name);
                self.removed.push(RemovedStmt { what, span: e.span });
            }
            None if unused::is_notable(e) => self.warn_no_effect(e.span),
            None => {}
        }
        true
    }

    /// Notes a statement that is left out with all that is in it.
    fn leave_out_stmt(&mut self, s: &ast::Stmt) {
        let what = match &s.kind {
            ast::StmtKind::Expr(e) => {
                self.leave_out(e);
                return;
            }
            ast::StmtKind::Block(b) => return b.stmts.iter().for_each(|s| self.leave_out_stmt(s)),
            ast::StmtKind::If { then, els, .. } => {
                self.leave_out_stmt(then);
                els.iter().for_each(|s| self.leave_out_stmt(s));
                "empty `if`"
            }
            ast::StmtKind::Foreach(f) => {
                self.leave_out_stmt(&f.body);
                "empty `foreach`"
            }
            _ => return,
        };
        let (what, span) = (what.into(), s.span);
        self.removed.push(RemovedStmt { what, span });
    }

    fn stmt(&mut self, s: &ast::Stmt, out: &mut Vec<HirStmt>) {
        if self.cur.unused.has_stmt(s) {
            return self.leave_out_stmt(s);
        }
        let kind = match &s.kind {
            ast::StmtKind::Empty => return,
            ast::StmtKind::Expr(e) if self.leave_out(e) => return,
            ast::StmtKind::Expr(e) => {
                let e = self.effect(e);
                self.warn_without_effect(&e);
                HirStmtKind::Expr(e)
            }
            ast::StmtKind::Block(b) => HirStmtKind::Block(self.block(b)),
            ast::StmtKind::If { cond, then, els } => {
                match self.if_stmt(cond, then, els.as_deref()) {
                    Some(kind) => kind,
                    None => return,
                }
            }
            ast::StmtKind::While { cond, body } => HirStmtKind::Loop {
                cond: Some(self.integer(cond)),
                step: None,
                body: self.in_loop(body),
            },
            ast::StmtKind::For {
                init,
                cond,
                step,
                body,
            } => {
                if let Some(e) = init.as_ref().filter(|e| !self.leave_out(e)) {
                    let e = self.effect(e);
                    out.push(HirStmt {
                        span: e.span,
                        kind: HirStmtKind::Expr(e),
                    });
                }
                let cond = cond.as_ref().map(|c| self.integer(c));
                let body = self.in_loop(body);
                let step = step.as_ref().filter(|e| !self.leave_out(e));
                let step = step.map(|e| self.effect(e));
                HirStmtKind::Loop { cond, step, body }
            }
            ast::StmtKind::Foreach(f) => match self.foreach(f, s.span) {
                Some(kind) => kind,
                None => return,
            },
            ast::StmtKind::Break if self.within_loop("break", s.span) => HirStmtKind::Break,
            ast::StmtKind::Continue if self.within_loop("continue", s.span) => {
                HirStmtKind::Continue
            }
            ast::StmtKind::Break | ast::StmtKind::Continue => return,
            ast::StmtKind::Return(e) => match self.return_stmt(e.as_ref()) {
                Some(kind) => kind,
                None => return,
            },
            ast::StmtKind::Next => HirStmtKind::Next,
            ast::StmtKind::Try { body, var, handler } => {
                let body = self.block(body);
                let mut pre = Vec::new();
                let var = var.as_ref().map(|v| self.receiver(v, Base::Str, &mut pre));
                pre.extend(self.block(handler));
                HirStmtKind::Try {
                    body,
                    var,
                    handler: pre,
                }
            }
            ast::StmtKind::Delete(e) => match self.delete(e) {
                Some(kind) => kind,
                None => return,
            },
            ast::StmtKind::Embedded(e) => {
                self.embedded(e);
                return;
            }
        };
        out.push(HirStmt { kind, span: s.span });
    }

    /// Whether a statement is within a loop. Otherwise it reports an error.
    fn within_loop(&mut self, word: &str, span: Span) -> bool {
        if self.cur.loops == 0 {
            let text = format!("`{word}` outside a loop");
            self.error(codes::OUTSIDE_LOOP, span, text);
        }
        self.cur.loops > 0
    }

    /// An `if`. With a constant condition only the live branch remains.
    fn if_stmt(
        &mut self,
        cond: &ast::Expr,
        then: &ast::Stmt,
        els: Option<&ast::Stmt>,
    ) -> Option<HirStmtKind> {
        let cond = self.integer(cond);
        Some(match (&cond.kind, els) {
            (HirExprKind::Num(0), None) => return None,
            (HirExprKind::Num(0), Some(e)) => HirStmtKind::Block(self.nested(e)),
            (HirExprKind::Num(_), _) => HirStmtKind::Block(self.nested(then)),
            _ => {
                let then = self.nested(then);
                let els = els.map(|e| self.nested(e)).unwrap_or_default();
                HirStmtKind::If { cond, then, els }
            }
        })
    }

    fn return_stmt(&mut self, e: Option<&ast::Expr>) -> Option<HirStmtKind> {
        // The parser has refused it outside a function.
        let ret = self.cur.ret?;
        Some(HirStmtKind::Return(e.map(|e| {
            let (v, cty) = self.typed_expr(e);
            self.unify(v.ty, ret, v.span);
            self.cur.has_value = true;
            let mut origins = std::mem::take(&mut self.cur.results);
            self.origins(&v, cty, &mut origins);
            self.cur.results = origins;
            v
        })))
    }

    fn warn_without_effect(&mut self, e: &HirExpr) {
        if self.cur.tapset || matches!(e.kind, HirExprKind::Num(_)) {
            return;
        }
        let effect = any_expr(e, |e| match &e.kind {
            HirExprKind::Call { .. }
            | HirExprKind::Raise(_)
            | HirExprKind::Assign { .. }
            | HirExprKind::IncDec { .. }
            | HirExprKind::StatAdd { .. } => true,
            HirExprKind::Intr { f, .. } => !f.info().pure_,
            HirExprKind::Print { to_string, .. } | HirExprKind::PrintHist { to_string, .. } => {
                !to_string
            }
            _ => false,
        });
        if !effect {
            self.warn_no_effect(e.span);
        }
    }

    fn warn_no_effect(&mut self, span: Span) {
        let d = Diagnostic::warning(codes::NO_EFFECT, "this statement has no effect");
        self.report(d.at(span));
    }

    /// The local that a construct stores into. For a global of that name, an assignment is added to
    /// `pre`.
    fn receiver(&mut self, v: &ast::Ident, base: Base, pre: &mut Vec<HirStmt>) -> LocalIx {
        let ix = self.receiver_any(v, pre);
        let ty = self.cur.locals[ix.0].ty;
        self.set_type(ty, base, v.span);
        ix
    }

    fn receiver_any(&mut self, v: &ast::Ident, pre: &mut Vec<HirStmt>) -> LocalIx {
        match self.var(&v.name, v.span) {
            VarMeaning::Local(ix) => {
                self.cur.locals[ix.0].written = true;
                self.cur.locals[ix.0].bound = true;
                ix
            }
            VarMeaning::Global(g) => {
                let ix = self.bound_local(&format!("{}@foreach", v.name).into(), v.span);
                let ty = self.cur.locals[ix.0].ty;
                self.global_keys(g, 0, v.span);
                self.tree.globals[g.0].written = true;
                let gty = self.tree.globals[g.0].value;
                self.unify(ty, gty, v.span);
                let read = LValue::Local(ix).read(ty, v.span);
                pre.push(set(LValue::Scalar(g), read, ty, v.span));
                ix
            }
        }
    }

    fn foreach(&mut self, f: &ast::Foreach, span: Span) -> Option<HirStmtKind> {
        let (global, hist, name_span) = match &f.over {
            ast::ForeachOver::Array(id) => (self.array(&id.name, id.span)?, None, id.span),
            ast::ForeachOver::Hist(e) => {
                let lvalue = self.histogram(e)?;
                let (g, keys) = lvalue.global()?;
                (g, Some(keys.to_vec()), e.span)
            }
        };
        let mut pre = Vec::new();
        let slice = match &f.slice {
            None => Vec::new(),
            Some(keys) => {
                let types = self.global_keys(global, keys.len(), name_span)?;
                self.keys(keys, &types)
            }
        };
        let keys = f.keys.iter().map(|k| self.receiver_any(k, &mut pre));
        let keys: Vec<LocalIx> = keys.collect();
        let keys_at = f.keys.first().map_or(span, |k| k.span);
        let key_types = match hist {
            None => self.global_keys(global, keys.len(), keys_at)?,
            Some(_) => vec![self.types.fresh_of(Base::Long, name_span)],
        };
        if keys.len() != key_types.len() {
            let text = "a histogram has one key, the number of the bucket";
            return self.refuse(codes::FOREACH_KEYS, name_span, text);
        }
        for (k, (ix, want)) in f.keys.iter().zip(keys.iter().zip(&key_types)) {
            self.unify(self.cur.locals[ix.0].ty, *want, k.span);
        }
        let value = f.value.as_ref().map(|v| {
            let ix = self.receiver_any(v, &mut pre);
            let ty = self.cur.locals[ix.0].ty;
            if hist.is_some() {
                self.set_type(ty, Base::Long, v.span);
            } else {
                let gty = self.tree.globals[global.0].value;
                self.foreach_values.push((ty, gty, v.span));
            }
            ix
        });
        self.tree.globals[global.0].read = true;
        let sort = match (&f.sort, &hist) {
            (Some(s), Some(_)) => {
                self.bucket_order(s);
                None
            }
            (Some(s), None) => self.sort(s, global, key_types.len()),
            (None, _) => None,
        };
        let limit = f.limit.as_ref().map(|e| self.integer(e));
        pre.extend(self.in_loop(&f.body));
        Some(HirStmtKind::Foreach(Box::new(HirForeach {
            keys,
            value,
            global,
            hist,
            slice,
            sort,
            limit,
            body: pre,
        })))
    }

    /// Buckets come in the order of their numbers, so only `b+` says something true.
    fn bucket_order(&mut self, s: &ast::Sort) {
        if s.by == ast::SortBy::Key(0) && !s.descending {
            return;
        }
        let text = "the buckets of a histogram come in ascending order, and cannot be sorted";
        let d = Diagnostic::error(codes::BAD_OPERAND, text).at(s.span);
        self.report(d.help(
            "store the counts in an array, `a[b] = @hist_log(s)[b]`, and sort that: `foreach (b in a-)`",
        ));
    }

    fn sort(&mut self, s: &ast::Sort, g: GlobalIx, keys: usize) -> Option<SortSpec> {
        let by = match s.by {
            ast::SortBy::Key(n) if (n as usize) >= keys => return None,
            ast::SortBy::Key(n) => SortKey::Key(n),
            ast::SortBy::Value => SortKey::Value,
            ast::SortBy::Stat(op) => {
                let ty = self.tree.globals[g.0].value;
                self.set_type(ty, Base::Stats, s.span);
                SortKey::Stat(self.extract(g, op))
            }
        };
        let descending = s.descending;
        Some(SortSpec { by, descending })
    }

    fn delete(&mut self, e: &ast::Expr) -> Option<HirStmtKind> {
        match &e.kind {
            ast::ExprKind::Var(name) => match self.var(name, e.span) {
                VarMeaning::Local(ix) => {
                    self.cur.locals[ix.0].written = true;
                    Some(HirStmtKind::DeleteLocal(ix))
                }
                VarMeaning::Global(g) => Some(HirStmtKind::DeleteAll(g)),
            },
            ast::ExprKind::Index { base, keys } => {
                let ast::ExprKind::Var(name) = &base.kind else {
                    return self.cannot_delete(e.span);
                };
                let g = self.array(name, base.span)?;
                let types = self.global_keys(g, keys.len(), e.span)?;
                let keys = self.keys(keys, &types);
                if keys.iter().all(Option::is_none) {
                    return Some(HirStmtKind::DeleteAll(g));
                }
                Some(HirStmtKind::DeleteElem(g, keys))
            }
            _ => self.cannot_delete(e.span),
        }
    }

    fn cannot_delete(&mut self, span: Span) -> Option<HirStmtKind> {
        let text = "only variables, arrays and their elements can be deleted";
        self.refuse(codes::BAD_OPERAND, span, text)
    }

    /// The indexes of an element or a slice.
    pub(super) fn keys(&mut self, keys: &[Key], types: &[TyVar]) -> Vec<Option<HirExpr>> {
        let key = |(k, ty): (&Key, &TyVar)| match k {
            Key::Any(_) => None,
            Key::Expr(e) => {
                let v = self.expr(e);
                self.unify(v.ty, *ty, v.span);
                Some(v)
            }
        };
        keys.iter().zip(types).map(key).collect()
    }
}
