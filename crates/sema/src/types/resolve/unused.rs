//! Statements of the script that only compute values which nobody uses. They are left out before
//! names and types are looked at, as SystemTap's optimiser does: what a script does not need
//! cannot fail. The library's own statements are looked at once and for all by tests, and what its
//! aliases compute in vain is removed later ([`crate::types::dead_stores`]).

use rustc_hash::{FxHashMap, FxHashSet};
use spile_syntax::ast::{Expr, ExprKind, Name, Span, Stmt, StmtBlock, StmtKind, UnOp};
use spile_syntax::visit::{self, Visitor};

/// Maximum number of rounds; each finds statements that the one before made useless.
const ROUNDS: usize = 16;

/// The statements and expressions that are left out, by the addresses of their nodes. A statement can
/// begin with an expression and have its address, so there are two sets.
#[derive(Default)]
pub(super) struct Unused {
    stmts: FxHashSet<usize>,
    exprs: FxHashSet<usize>,
    /// How often expressions that stay read each variable.
    reads: FxHashMap<Name, usize>,
    /// Reads are taken away, not added.
    leaving: bool,
}

fn address<T>(node: &T) -> usize {
    std::ptr::from_ref(node).addr()
}

/// Finds what is left out of the bodies of one handler or function. `bodies` share their local
/// variables; those of the library (`false`) only read them. `is_local` accepts local variables.
///
/// Reads are counted once. What is left out takes its reads away, so that what only served it is found
/// next: mostly in the same round, which goes from the last statement to the first.
pub(super) fn find(bodies: &[(&StmtBlock, bool)], is_local: &dyn Fn(&Name) -> bool) -> Unused {
    let mut unused = Unused::default();
    for (body, _) in bodies {
        unused.block(body);
    }
    unused.leaving = true;
    for _ in 0..ROUNDS {
        let before = unused.len();
        for (body, _) in bodies.iter().filter(|b| b.1) {
            unused.mark_all(&body.stmts, is_local);
        }
        if unused.len() == before {
            break;
        }
    }
    unused
}

impl Unused {
    fn len(&self) -> usize {
        self.stmts.len() + self.exprs.len()
    }

    /// Whether a statement is left out.
    pub(super) fn has_stmt(&self, s: &Stmt) -> bool {
        self.stmts.contains(&address(s))
    }

    /// Whether an expression that is used as a statement is left out.
    pub(super) fn has_expr(&self, e: &Expr) -> bool {
        self.exprs.contains(&address(e))
    }

    fn mark_all(&mut self, stmts: &[Stmt], is_local: &dyn Fn(&Name) -> bool) {
        for s in stmts.iter().rev() {
            self.mark(s, is_local);
        }
    }

    /// Marks what is useless in a statement.
    fn mark(&mut self, s: &Stmt, is_local: &dyn Fn(&Name) -> bool) {
        if self.has_stmt(s) {
            return;
        }
        match &s.kind {
            StmtKind::Expr(e) => self.mark_expr(e, is_local),
            StmtKind::Block(b) => self.mark_all(&b.stmts, is_local),
            StmtKind::If { cond, then, els } => {
                els.iter().for_each(|s| self.mark(s, is_local));
                self.mark(then, is_local);
                let empty = self.is_empty(then) && els.iter().all(|s| self.is_empty(s));
                if empty && is_pure(cond) {
                    self.leave_out(s);
                }
            }
            StmtKind::While { body, .. } => self.mark(body, is_local),
            StmtKind::For {
                init, step, body, ..
            } => {
                self.mark(body, is_local);
                let outside = [step, init].into_iter().flatten();
                outside.for_each(|e| self.mark_expr(e, is_local));
            }
            StmtKind::Foreach(f) => {
                self.mark(&f.body, is_local);
                if self.is_empty(&f.body) && f.limit.iter().all(is_pure) && f.slice.is_none() {
                    self.leave_out(s);
                }
            }
            StmtKind::Try { body, handler, .. } => {
                self.mark_all(&handler.stmts, is_local);
                self.mark_all(&body.stmts, is_local);
            }
            _ => {}
        }
    }

    fn mark_expr(&mut self, e: &Expr, is_local: &dyn Fn(&Name) -> bool) {
        if !self.has_expr(e) && self.is_useless(e, is_local) {
            self.discarded(e);
            self.exprs.insert(address(e));
        }
    }

    fn leave_out(&mut self, s: &Stmt) {
        self.stmt(s);
        self.stmts.insert(address(s));
    }

    fn is_useless(&self, e: &Expr, is_local: &dyn Fn(&Name) -> bool) -> bool {
        match changed(e) {
            Some(c) => {
                let free = !self.is_read(c.name) && is_local(c.name);
                free && c.value.is_none_or(|v| self.is_useless(v, is_local))
            }
            None => is_pure(e),
        }
    }

    fn is_read(&self, name: &Name) -> bool {
        self.reads.get(name).is_some_and(|n| *n > 0)
    }

    fn is_empty(&self, s: &Stmt) -> bool {
        match &s.kind {
            StmtKind::Empty => true,
            StmtKind::Block(b) => b.stmts.iter().all(|s| self.is_empty(s)),
            StmtKind::Expr(e) => self.has_expr(e),
            _ => self.has_stmt(s),
        }
    }

    /// Notes the reads of an expression whose value is not used: a variable that it changes is not
    /// read for that.
    fn discarded(&mut self, e: &Expr) {
        if self.has_expr(e) {
            return;
        }
        match changed(e) {
            Some(c) => c.value.iter().for_each(|v| self.expr(v)),
            None => self.expr(e),
        }
    }
}

impl Visitor for Unused {
    fn stmt(&mut self, s: &Stmt) {
        if self.has_stmt(s) {
            return;
        }
        match &s.kind {
            StmtKind::Expr(e) => self.discarded(e),
            StmtKind::For {
                init,
                cond,
                step,
                body,
            } => {
                let outside = [init, step].into_iter().flatten();
                outside.for_each(|e| self.discarded(e));
                cond.iter().for_each(|e| self.expr(e));
                self.stmt(body);
            }
            _ => visit::walk_stmt(self, s),
        }
    }

    fn expr(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Var(name) => {
                let count = self.reads.entry(name.clone()).or_default();
                *count = match self.leaving {
                    true => count.saturating_sub(1),
                    false => *count + 1,
                };
            }
            // Adding to a statistic does not read it.
            ExprKind::StatAdd { lhs, rhs } if matches!(lhs.kind, ExprKind::Var(_)) => {
                self.expr(rhs);
                return;
            }
            _ => {}
        }
        visit::walk_expr(self, e);
    }
}

/// The variable that an expression changes.
pub(super) struct Change<'a> {
    pub(super) name: &'a Name,
    /// Its location.
    pub(super) span: Span,
    /// The value that it gets, unless that is its own and one more or less.
    pub(super) value: Option<&'a Expr>,
}

/// The change of a variable that an expression is.
pub(super) fn changed(e: &Expr) -> Option<Change<'_>> {
    let (target, value) = match &e.kind {
        ExprKind::Assign { lhs, rhs, .. } | ExprKind::StatAdd { lhs, rhs } => (lhs, Some(&**rhs)),
        ExprKind::IncDec { target, .. } => (target, None),
        _ => return None,
    };
    match &target.kind {
        ExprKind::Var(name) => Some(Change {
            name,
            span: target.span,
            value,
        }),
        _ => None,
    }
}

/// Whether an expression does nothing but compute a value. What a function does is not known yet.
fn is_pure(e: &Expr) -> bool {
    let node_is_pure = match &e.kind {
        ExprKind::Assign { .. }
        | ExprKind::StatAdd { .. }
        | ExprKind::IncDec { .. }
        | ExprKind::Call { .. }
        | ExprKind::Embedded(_)
        // `matched()` can read it.
        | ExprKind::Match { .. }
        // Says that the name is an array.
        | ExprKind::In { .. } => false,
        ExprKind::Print { op, .. } => op.to_string,
        // Its operand only serves its value.
        ExprKind::At { op: spile_syntax::ast::AtOp::Entry, .. } => return true,
        _ => true,
    };
    let mut pure = node_is_pure;
    if node_is_pure {
        visit::each_child(e, |c| pure &= is_pure(c));
    }
    pure
}

/// Whether a warning tells of a useless expression: a number alone is what a macro left.
pub(super) fn is_notable(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Num(_) => false,
        ExprKind::Unary(UnOp::Neg, e) => is_notable(e),
        _ => true,
    }
}
