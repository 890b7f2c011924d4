//! Walks over the syntax tree.
//!
//! Implement [`Visitor`] and override the methods of interest; an overridden method calls the
//! `walk_` function of the same name to visit the children. For the simplest cases there are
//! [`each_expr`] and [`each_child`].

use crate::ast::*;

/// Methods called for every node, parents before children, in source order.
pub trait Visitor {
    /// A statement.
    fn stmt(&mut self, s: &Stmt) {
        walk_stmt(self, s);
    }

    /// An expression.
    fn expr(&mut self, e: &Expr) {
        walk_expr(self, e);
    }

    /// A block.
    fn block(&mut self, b: &StmtBlock) {
        walk_block(self, b);
    }

    /// A probe point.
    fn probe_point(&mut self, p: &ProbePoint) {
        walk_probe_point(self, p);
    }
}

/// Visits the items of a file.
pub fn walk_file<V: Visitor + ?Sized>(v: &mut V, file: &File) {
    for item in &file.items {
        walk_item(v, item);
    }
}

/// Visits the points and blocks of an item.
pub fn walk_item<V: Visitor + ?Sized>(v: &mut V, item: &Item) {
    match item {
        Item::Probe(p) => {
            p.points.iter().for_each(|p| v.probe_point(p));
            v.block(&p.body);
        }
        Item::Alias(a) => {
            a.points.iter().for_each(|p| v.probe_point(p));
            v.block(&a.body);
            a.second.iter().for_each(|b| v.block(b));
        }
        Item::Function(Function {
            body: FnBody::Block(b),
            ..
        }) => v.block(b),
        Item::Function(_) | Item::Global(_) | Item::Embedded(_) => {}
    }
}

/// Visits the condition of a probe point.
pub fn walk_probe_point<V: Visitor + ?Sized>(v: &mut V, p: &ProbePoint) {
    p.condition.iter().for_each(|c| v.expr(c));
}

/// Visits the statements of a block.
pub fn walk_block<V: Visitor + ?Sized>(v: &mut V, b: &StmtBlock) {
    b.stmts.iter().for_each(|s| v.stmt(s));
}

/// Visits the children of a statement.
pub fn walk_stmt<V: Visitor + ?Sized>(v: &mut V, s: &Stmt) {
    match &s.kind {
        StmtKind::Empty
        | StmtKind::Break
        | StmtKind::Continue
        | StmtKind::Next
        | StmtKind::Embedded(_) => {}
        StmtKind::Expr(e) | StmtKind::Delete(e) => v.expr(e),
        StmtKind::Return(e) => e.iter().for_each(|e| v.expr(e)),
        StmtKind::Block(b) => v.block(b),
        StmtKind::If { cond, then, els } => {
            v.expr(cond);
            v.stmt(then);
            els.iter().for_each(|s| v.stmt(s));
        }
        StmtKind::While { cond, body } => {
            v.expr(cond);
            v.stmt(body);
        }
        StmtKind::For {
            init,
            cond,
            step,
            body,
        } => {
            [init, cond, step]
                .into_iter()
                .flatten()
                .for_each(|e| v.expr(e));
            v.stmt(body);
        }
        StmtKind::Foreach(f) => {
            if let ForeachOver::Hist(e) = &f.over {
                v.expr(e);
            }
            f.slice.iter().flatten().for_each(|k| walk_key(v, k));
            f.limit.iter().for_each(|e| v.expr(e));
            v.stmt(&f.body);
        }
        StmtKind::Try { body, handler, .. } => {
            v.block(body);
            v.block(handler);
        }
    }
}

fn walk_key<V: Visitor + ?Sized>(v: &mut V, k: &Key) {
    if let Key::Expr(e) = k {
        v.expr(e);
    }
}

/// Visits the children of an expression.
pub fn walk_expr<V: Visitor + ?Sized>(v: &mut V, e: &Expr) {
    each_child(e, |c| v.expr(c));
}

/// Calls `f` for each direct operand of an expression, in source order.
pub fn each_child<'a>(e: &'a Expr, mut f: impl FnMut(&'a Expr)) {
    fn keys<'a>(keys: &'a [Key], f: &mut impl FnMut(&'a Expr)) {
        for k in keys {
            if let Key::Expr(e) = k {
                f(e);
            }
        }
    }
    fn indices<'a>(access: &'a [Access], f: &mut impl FnMut(&'a Expr)) {
        for a in access {
            if let Access::Index(e) = a {
                f(e);
            }
        }
    }
    match &e.kind {
        ExprKind::Num(_) | ExprKind::Str(_) | ExprKind::Var(_) | ExprKind::Embedded(_) => {}
        ExprKind::Index { base, keys: k } => {
            f(base);
            keys(k, &mut f);
        }
        ExprKind::In { keys: k, .. } => keys(k, &mut f),
        ExprKind::Call { args, .. } | ExprKind::Print { args, .. } => args.iter().for_each(f),
        ExprKind::Unary(_, e)
        | ExprKind::IncDec { target: e, .. }
        | ExprKind::Match { subject: e, .. }
        | ExprKind::Stat { arg: e, .. }
        | ExprKind::Hist { arg: e, .. } => f(e),
        ExprKind::Binary(_, l, r)
        | ExprKind::Assign { lhs: l, rhs: r, .. }
        | ExprKind::StatAdd { lhs: l, rhs: r } => {
            f(l);
            f(r);
        }
        ExprKind::Ternary(c, a, b) => {
            f(c);
            f(a);
            f(b);
        }
        ExprKind::Target { access, .. } => indices(access, &mut f),
        ExprKind::At { args, access, .. } => {
            args.iter().for_each(&mut f);
            indices(access, &mut f);
        }
        ExprKind::Arrow { base, access, .. } => {
            f(base);
            indices(access, &mut f);
        }
    }
}

struct EachExpr<F>(F);

impl<F: FnMut(&Expr)> Visitor for EachExpr<F> {
    fn expr(&mut self, e: &Expr) {
        (self.0)(e);
        walk_expr(self, e);
    }
}

/// Calls `f` for every expression in a block, parents first.
pub fn each_expr(b: &StmtBlock, f: impl FnMut(&Expr)) {
    EachExpr(f).block(b);
}

/// Calls `f` for every statement in a block, outer ones first.
pub fn each_stmt(b: &StmtBlock, f: impl FnMut(&Stmt)) {
    struct EachStmt<F>(F);
    impl<F: FnMut(&Stmt)> Visitor for EachStmt<F> {
        fn stmt(&mut self, s: &Stmt) {
            (self.0)(s);
            walk_stmt(self, s);
        }

        fn expr(&mut self, _: &Expr) {}
    }
    EachStmt(f).block(b);
}

/// Calls `f` for an expression and every expression in it, parents first.
pub fn each_expr_in(e: &Expr, f: impl FnMut(&Expr)) {
    EachExpr(f).expr(e);
}
