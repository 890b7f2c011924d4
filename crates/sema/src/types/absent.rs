//! Operations of controller handlers that need the event of a kernel handler. They are compiled, as in
//! SystemTap, and fail when they run: each becomes an error that `catch` can catch.
//!
//! Functions that kernel handlers also call are copied for the controller's.

use rustc_hash::FxHashMap;
use spile_ir::Event;
use spile_ir::intrinsics::{EventNeed, Intrinsic};

use super::hir::*;

/// What an intrinsic needs and a controller handler lacks, for messages.
pub fn missing(f: Intrinsic) -> &'static str {
    let need = f.info().need;
    need.map_or("current kernel event", EventNeed::name)
}

/// Replaces the operations that controller handlers lack.
pub fn replace(tree: &mut Tree) {
    let mut copies = Copies {
        lacking: lacking(tree),
        made: FxHashMap::default(),
    };
    for ix in 0..tree.units.len() {
        if runs_without_event(&tree.units[ix]) && copies.lacking[ix] {
            copies.rewrite(tree, ix);
        }
    }
}

fn runs_without_event(u: &Unit) -> bool {
    let UnitKind::Handler { event, .. } = &u.kind else {
        return false;
    };
    let other = matches!(
        event,
        Event::Present { .. } | Event::Never | Event::Counter { .. }
    );
    !event.is_compiled() && !other
}

/// For each unit, whether it or a function that it calls has an operation that no handler of the
/// controller has.
fn lacking(tree: &Tree) -> Vec<bool> {
    let absent = |e: &HirExpr| matches!(&e.kind, HirExprKind::Intr { f, .. } if is_absent(*f));
    reaching(tree, |u| any_expr_in(&u.body, absent))
}

fn is_absent(f: Intrinsic) -> bool {
    !f.is_available(&Event::Begin(0))
}

struct Copies {
    lacking: Vec<bool>,
    /// The copies of functions, by the number of the original.
    made: FxHashMap<UnitIx, UnitIx>,
}

impl Copies {
    /// Rewrites a handler, and the copies of all functions that it calls.
    fn rewrite(&mut self, tree: &mut Tree, handler: usize) {
        let mut todo = vec![handler];
        while let Some(unit) = todo.pop() {
            let mut body = std::mem::take(&mut tree.units[unit].body);
            for s in &mut body {
                stmt_exprs_mut(s, &mut |e| self.expr(e, tree, &mut todo));
            }
            tree.units[unit].body = body;
            if let Some(next) = tree.units[unit].next_alternative() {
                let next = self.copy(next, tree, &mut todo);
                if let UnitKind::Func { next_alt, .. } = &mut tree.units[unit].kind {
                    *next_alt = Some(next);
                }
            }
        }
    }

    fn expr(&mut self, e: &mut HirExpr, tree: &mut Tree, todo: &mut Vec<usize>) {
        children_mut(e, &mut |c| self.expr(c, tree, todo));
        match &mut e.kind {
            HirExprKind::Call { func, .. } => *func = self.copy(*func, tree, todo),
            HirExprKind::Intr { f, .. } if is_absent(*f) => {
                let text = format!("there is no {} here", missing(*f));
                let text = HirExpr {
                    kind: HirExprKind::Str(text.into_bytes().into()),
                    ..*e
                };
                e.kind = HirExprKind::Raise(Box::new(text));
            }
            _ => {}
        }
    }

    /// The function that the controller calls instead of this one.
    fn copy(&mut self, func: UnitIx, tree: &mut Tree, todo: &mut Vec<usize>) -> UnitIx {
        if !self.lacking.get(func.0).is_some_and(|l| *l) {
            return func;
        }
        if let Some(made) = self.made.get(&func) {
            return *made;
        }
        // Originals are never rewritten, so that this one is whole.
        let made = UnitIx(tree.units.len());
        tree.units.push(tree.units[func.0].clone());
        self.made.insert(func, made);
        todo.push(made.0);
        made
    }
}
