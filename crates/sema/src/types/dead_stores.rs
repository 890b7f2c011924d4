//! Removes assignments to local variables that nobody reads, where computing the value has no
//! effect. Library aliases set a dozen variables of which a script reads two; the others must cost
//! nothing and must not fail. Also warns about unused variables and functions of the script.

use rustc_hash::FxHashSet;
use spile_syntax::ast::Span;
use spile_syntax::diag::{Diagnostic, Diagnostics};

use super::codes;
use super::hir::*;
use super::near::with_similar_variable;
use crate::facts::MachineFacts;

/// Maximum number of rounds; each finds assignments that the one before made dead.
const ROUNDS: usize = 16;
/// Number of warnings from which on similar names are not searched, which takes long.
const SUGGESTIONS: usize = 50;

/// For each unit, whether running it has an effect (or may not end).
pub(super) fn effects(tree: &Tree) -> Vec<bool> {
    let mut out = vec![false; tree.units.len()];
    loop {
        let mut changed = false;
        // Callers stand before callees, so going backwards decides most units in one round.
        for (i, u) in tree.units.iter().enumerate().rev() {
            if out[i] {
                continue;
            }
            let mut effect = false;
            walk_stmts(&u.body, &mut |s| {
                effect |= matches!(
                    s.kind,
                    HirStmtKind::Loop { .. }
                        | HirStmtKind::DeleteAll(_)
                        | HirStmtKind::DeleteElem(..)
                        | HirStmtKind::Next
                );
                own_exprs(s, &mut |e| effect |= expr_effect(e, &out, true));
            });
            if effect {
                out[i] = true;
                changed = true;
            }
        }
        if !changed {
            return out;
        }
    }
}

/// Whether evaluating an expression has an effect other than failing. With `locals_free`,
/// assignments to local variables do not count.
fn expr_effect(e: &HirExpr, units: &[bool], locals_free: bool) -> bool {
    any_expr(e, |e| match &e.kind {
        HirExprKind::Call { func, .. } => units[func.0],
        HirExprKind::Intr { f, .. } => f.info().effect,
        HirExprKind::Print { to_string, .. } | HirExprKind::PrintHist { to_string, .. } => {
            !to_string
        }
        HirExprKind::Raise(_) | HirExprKind::StatAdd { .. } => true,
        // `matched()` can read it.
        HirExprKind::Match { .. } => true,
        HirExprKind::Assign { lvalue, .. } | HirExprKind::IncDec { lvalue, .. } => {
            !(locals_free && matches!(lvalue, LValue::Local(_)))
        }
        _ => false,
    })
}

/// A statement that was removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedStmt {
    /// A description for messages.
    pub what: String,
    /// Its location.
    pub span: Span,
}

/// Removes dead assignments in all units, to a fixpoint. Returns the removed statements.
pub fn prune(tree: &mut Tree) -> Vec<RemovedStmt> {
    let effects = effects(tree);
    let mut removed = Vec::new();
    for u in &mut tree.units {
        for _ in 0..ROUNDS {
            let mut read = FxHashSet::default();
            reads(&u.body, &mut read);
            let before = count(&u.body);
            let mut gone = |what: &str, ix: Option<LocalIx>, span| {
                let what = match ix {
                    Some(ix) => format!("{what} `{}`", u.locals[ix.0].name),
                    None => what.to_owned(),
                };
                removed.push(RemovedStmt { what, span });
            };
            remove_dead(&mut u.body, &read, &effects, &mut gone);
            if count(&u.body) == before {
                break;
            }
        }
    }
    removed
}

/// Called for each removed statement, with a description, the variable and the location.
type OnRemoved<'a> = &'a mut dyn FnMut(&str, Option<LocalIx>, Span);

fn count(body: &[HirStmt]) -> usize {
    let mut n = 0;
    walk_stmts(body, &mut |_| n += 1);
    n
}

/// The locals whose value is used. A compound assignment reads its own target; used as a statement,
/// it alone keeps nothing alive.
fn reads(body: &[HirStmt], out: &mut FxHashSet<LocalIx>) {
    walk_stmts(body, &mut |s| {
        let outer = match &s.kind {
            HirStmtKind::Expr(e) => Some(std::ptr::from_ref(e)),
            _ => None,
        };
        own_exprs(s, &mut |root| {
            walk_expr(root, &mut |e| {
                let discarded = outer == Some(std::ptr::from_ref(e));
                out.extend(match e.kind {
                    HirExprKind::Read(LValue::Local(ix)) => Some(ix),
                    _ => e.changed_local().filter(|_| !discarded),
                });
            });
        });
    });
}

fn remove_dead(
    body: &mut Vec<HirStmt>,
    read: &FxHashSet<LocalIx>,
    effects: &[bool],
    gone: OnRemoved,
) {
    body.retain_mut(|s| {
        let dead = match &mut s.kind {
            HirStmtKind::Expr(e) => match (e.changed_local(), &e.kind) {
                (Some(ix), _) if read.contains(&ix) => None,
                (Some(ix), HirExprKind::Assign { rhs, .. }) => {
                    (!expr_effect(rhs, effects, false)).then_some(("assignment to", Some(ix)))
                }
                (Some(ix), _) => Some(("change of", Some(ix))),
                (None, _) => None,
            },
            HirStmtKind::DeleteLocal(ix) => {
                (!read.contains(ix)).then_some(("delete of", Some(*ix)))
            }
            HirStmtKind::Block(b) => {
                let nonempty = !b.is_empty();
                remove_dead(b, read, effects, gone);
                if b.is_empty() && !nonempty {
                    return false;
                }
                b.is_empty().then_some(("block", None))
            }
            HirStmtKind::Loop { body, .. } => {
                remove_dead(body, read, effects, gone);
                None
            }
            HirStmtKind::Foreach(f) => {
                remove_dead(&mut f.body, read, effects, gone);
                None
            }
            HirStmtKind::If { cond, then, els } => {
                let nonempty = !then.is_empty() || !els.is_empty();
                remove_dead(then, read, effects, gone);
                remove_dead(els, read, effects, gone);
                // An `if` that became empty is part of the removal.
                let empty = nonempty && then.is_empty() && els.is_empty();
                (empty && !expr_effect(cond, effects, false)).then_some(("empty `if`", None))
            }
            HirStmtKind::Try { body, handler, .. } => {
                remove_dead(body, read, effects, gone);
                remove_dead(handler, read, effects, gone);
                None
            }
            _ => None,
        };
        if let Some((what, ix)) = dead {
            gone(what, ix, s.span);
        }
        dead.is_none()
    });
}

/// Warns about unused variables and functions of the script. Must run before [`prune`]. `is_user`
/// accepts the script's files.
pub fn warn(
    tree: &Tree,
    facts: &dyn MachineFacts,
    diags: &mut Diagnostics,
    is_user: &dyn Fn(Span) -> bool,
) {
    let mut seen = FxHashSet::default();
    let mut list = Vec::new();
    for u in &tree.units {
        for l in u.locals.iter().filter(|l| !l.param && is_user(l.span)) {
            let (code, lack) = match (l.read, l.written) {
                (true, false) => (codes::NEVER_ASSIGNED, "assigned"),
                (false, true) if !l.bound => (codes::UNUSED_VARIABLE, "read"),
                _ => continue,
            };
            if seen.insert((code, l.span)) {
                let text = format!("local variable `{}` is never {lack}", l.name);
                let d = Diagnostic::warning(code, text).at(l.span);
                list.push(match list.len() >= SUGGESTIONS {
                    true => d,
                    false => with_similar_variable(d, &l.name, tree, u, facts),
                });
            }
        }
    }
    let unused = |g: &&HirGlobal| g.user && !g.read && !g.written;
    for g in tree.globals.iter().filter(unused) {
        let text = format!("global variable `{}` is never used", g.name);
        list.push(Diagnostic::warning(codes::UNUSED_VARIABLE, text).at(g.span));
    }
    let unset = |g: &&HirGlobal| g.user && g.read && !g.written && g.init.is_none();
    for g in tree.globals.iter().filter(unset) {
        let text = format!("global variable `{}` is never assigned", g.name);
        let d = Diagnostic::warning(codes::NEVER_ASSIGNED, text).at(g.span);
        let near = tree.globals.iter().filter(|o| o.user && o.written);
        list.push(d.did_you_mean(&g.name, near.map(|o| &*o.name)));
    }
    // Warnings come in the order of the script.
    list.sort_by_key(|d| d.primary.as_ref().map(|l| (l.span.file, l.span.start)));
    list.into_iter().for_each(|d| diags.push(d));
}
