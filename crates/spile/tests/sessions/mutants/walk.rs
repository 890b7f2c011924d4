//! Mutable walks over a syntax tree: over expressions that are values, and over blocks.

use spile_syntax::ast::*;

/// The role of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Its value is used.
    Value,
    /// A statement: only its effect counts.
    Effect,
    /// The condition of a probe point, which can use only globals.
    Condition,
}

/// Called for each expression with its role and the item's index; true ends the walk.
pub(super) type OnExpr<'f> = dyn FnMut(&mut Expr, Role, usize) -> bool + 'f;
/// Called for each block with the item's index and whether it is in a loop; true ends the walk.
pub(super) type OnBlock<'f> = dyn FnMut(&mut StmtBlock, usize, bool) -> bool + 'f;

/// All expressions of a script, parents first, except assigned locations, formats and required
/// literals.
pub(super) fn exprs(file: &mut File, f: &mut OnExpr<'_>) -> bool {
    file.items.iter_mut().enumerate().any(|(unit, item)| {
        let mut walk = Exprs { f, unit };
        match item {
            Item::Probe(p) => {
                let mut conditions = p.points.iter_mut().filter_map(|p| p.condition.as_mut());
                conditions.any(|c| walk.expr(c, Role::Condition)) || walk.block(&mut p.body)
            }
            Item::Function(Function {
                body: FnBody::Block(b),
                ..
            }) => walk.block(b),
            _ => false,
        }
    })
}

struct Exprs<'a, 'f> {
    f: &'a mut OnExpr<'f>,
    unit: usize,
}

impl Exprs<'_, '_> {
    fn block(&mut self, b: &mut StmtBlock) -> bool {
        b.stmts.iter_mut().any(|s| self.stmt(s))
    }

    fn stmt(&mut self, s: &mut Stmt) -> bool {
        match &mut s.kind {
            StmtKind::Expr(e) => self.expr(e, Role::Effect),
            StmtKind::Return(Some(e)) => self.value(e),
            StmtKind::Delete(e) => self.location(e),
            StmtKind::Block(b) => self.block(b),
            StmtKind::If { cond, then, els } => {
                self.value(cond) || self.stmt(then) || els.iter_mut().any(|s| self.stmt(s))
            }
            StmtKind::While { cond, body } => self.value(cond) || self.stmt(body),
            StmtKind::For {
                init,
                cond,
                step,
                body,
            } => {
                init.iter_mut().any(|e| self.expr(e, Role::Effect))
                    || cond.iter_mut().any(|e| self.value(e))
                    || step.iter_mut().any(|e| self.expr(e, Role::Effect))
                    || self.stmt(body)
            }
            StmtKind::Foreach(f) => {
                if let Some(slice) = &mut f.slice
                    && self.keys(slice)
                {
                    return true;
                }
                f.limit.iter_mut().any(|e| self.value(e)) || self.stmt(&mut f.body)
            }
            StmtKind::Try { body, handler, .. } => self.block(body) || self.block(handler),
            _ => false,
        }
    }

    fn value(&mut self, e: &mut Expr) -> bool {
        self.expr(e, Role::Value)
    }

    fn keys(&mut self, keys: &mut [Key]) -> bool {
        keys.iter_mut().any(|k| match k {
            Key::Expr(e) => self.value(e),
            Key::Any(_) => false,
        })
    }

    /// Keys of locations that are assigned, deleted or used by extractors.
    fn location(&mut self, e: &mut Expr) -> bool {
        match &mut e.kind {
            ExprKind::Index { keys, .. } => self.keys(keys),
            ExprKind::Hist { arg, .. } => self.location(arg),
            _ => false,
        }
    }

    fn expr(&mut self, e: &mut Expr, role: Role) -> bool {
        if (self.f)(e, role, self.unit) {
            return true;
        }
        match &mut e.kind {
            ExprKind::Index { base, keys } => self.location(base) || self.keys(keys),
            ExprKind::In { keys, .. } => self.keys(keys),
            ExprKind::Call { args, .. } => args.iter_mut().any(|a| self.value(a)),
            ExprKind::Print { op, args } => {
                let fixed = usize::from(op.format || op.delim);
                let hist = |a: &Expr| matches!(a.kind, ExprKind::Hist { .. });
                let mut args = args.iter_mut().skip(fixed);
                args.any(|a| {
                    if hist(a) {
                        self.location(a)
                    } else {
                        self.value(a)
                    }
                })
            }
            ExprKind::Unary(_, a) | ExprKind::Match { subject: a, .. } => self.value(a),
            ExprKind::Stat { arg, .. } | ExprKind::Hist { arg, .. } => self.location(arg),
            ExprKind::IncDec { target, .. } => self.location(target),
            ExprKind::Binary(_, a, b) => self.value(a) || self.value(b),
            ExprKind::Assign { lhs, rhs, .. } | ExprKind::StatAdd { lhs, rhs } => {
                self.location(lhs) || self.value(rhs)
            }
            ExprKind::Ternary(c, a, b) => self.value(c) || self.value(a) || self.value(b),
            _ => false,
        }
    }
}

/// All blocks of probes and functions, outer ones first.
pub(super) fn blocks(file: &mut File, f: &mut OnBlock<'_>) -> bool {
    file.items
        .iter_mut()
        .enumerate()
        .any(|(unit, item)| match item {
            Item::Probe(p) => block(&mut p.body, f, unit, false),
            Item::Function(Function {
                body: FnBody::Block(b),
                ..
            }) => block(b, f, unit, false),
            _ => false,
        })
}

fn block(b: &mut StmtBlock, f: &mut OnBlock<'_>, unit: usize, looped: bool) -> bool {
    f(b, unit, looped) || b.stmts.iter_mut().any(|s| stmt(s, f, unit, looped))
}

fn stmt(s: &mut Stmt, f: &mut OnBlock<'_>, unit: usize, looped: bool) -> bool {
    match &mut s.kind {
        StmtKind::Block(b) => block(b, f, unit, looped),
        StmtKind::If { then, els, .. } => {
            stmt(then, f, unit, looped) || els.iter_mut().any(|s| stmt(s, f, unit, looped))
        }
        StmtKind::While { body, .. } | StmtKind::For { body, .. } => stmt(body, f, unit, true),
        StmtKind::Foreach(each) => stmt(&mut each.body, f, unit, true),
        StmtKind::Try { body, handler, .. } => {
            block(body, f, unit, looped) || block(handler, f, unit, looped)
        }
        _ => false,
    }
}

/// Calls `f` for each `foreach` of a script; true ends the walk.
pub(super) fn foreachs(file: &mut File, f: &mut dyn FnMut(&mut Foreach) -> bool) -> bool {
    fn within(s: &mut Stmt, f: &mut dyn FnMut(&mut Foreach) -> bool) -> bool {
        match &mut s.kind {
            // A block has its own list, which `blocks` visits.
            StmtKind::If { then, els, .. } => {
                within(then, f) || els.iter_mut().any(|s| within(s, f))
            }
            StmtKind::While { body, .. } | StmtKind::For { body, .. } => within(body, f),
            StmtKind::Foreach(each) => f(each) || within(&mut each.body, f),
            _ => false,
        }
    }
    blocks(file, &mut |b, _, _| {
        b.stmts.iter_mut().any(|s| within(s, f))
    })
}
