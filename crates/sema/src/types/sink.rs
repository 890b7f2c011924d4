//! Moves the values of predefined variables to their uses. A library alias sets its variables
//! before the script's body runs. Most bodies start with a test that rejects most hits, so
//! computing a name or reading a structure first would be most of the cost.
//!
//! An assignment at the top of a kernel handler moves to the single read of its variable, if it has
//! no effect and nothing it depends on can change in between. Cheap numbers move to all reads; the
//! optimiser merges them again where that pays. Other values with several reads move in front of
//! the first statement that reads them, after the tests before it.

use rustc_hash::{FxHashMap, FxHashSet};
use spile_ir::intrinsics::{Intrinsic, ResultLen};

use super::dead_stores::effects;
use super::hir::*;

/// Size of the largest expression that is duplicated.
const CHEAP: usize = 6;

/// Size of the largest expression that moves: moved values nest inside one another.
const LARGEST: usize = 64;
/// Maximum number of assignments at the top that are considered.
const PREFIX: usize = 256;

/// How a handler uses a local.
#[derive(Clone, Copy, Default)]
struct LocalUse {
    reads: usize,
    writes: usize,
    in_loop: bool,
}

/// Moves all values that can move, in all kernel handlers.
pub fn sink(tree: &mut Tree) {
    // In guru mode a value may be read before the script changes it.
    if tree.units.iter().any(Unit::changes_process) {
        return;
    }
    let effects = effects(tree);
    // A function is steady when all functions that it calls are.
    let mut quiet: Vec<bool> = tree
        .units
        .iter()
        .zip(&effects)
        .map(|(u, effect)| !effect && is_deterministic(u))
        .collect();
    loop {
        let next: Vec<bool> = (0..quiet.len())
            .map(|n| quiet[n] && calls_only(&tree.units[n], &quiet))
            .collect();
        if next == quiet {
            break;
        }
        quiet = next;
    }
    let in_kernel = |u: &&mut Unit| u.is_compiled();
    for u in tree.units.iter_mut().filter(in_kernel) {
        handler(&mut u.body, &quiet);
    }
}

fn calls_only(u: &Unit, quiet: &[bool]) -> bool {
    let loud = |e: &HirExpr| matches!(e.kind, HirExprKind::Call { func, .. } if !quiet[func.0]);
    !any_expr_in(&u.body, loud)
}

/// Whether a function returns the same for the same arguments within one run of a handler.
fn is_deterministic(u: &Unit) -> bool {
    !any_expr_in(&u.body, |e| !steady_node(e, true))
}

fn steady_node(e: &HirExpr, locals: bool) -> bool {
    match &e.kind {
        HirExprKind::Intr { f, .. } => {
            use Intrinsic::{KernelStr, SysArgstr, SysArgtext};
            f.info().pure_ || matches!(f, KernelStr | SysArgstr | SysArgtext)
        }
        HirExprKind::Read(LValue::Local(_))
        | HirExprKind::Num(_)
        | HirExprKind::Str(_)
        | HirExprKind::ProbeName { .. }
        | HirExprKind::Call { .. }
        | HirExprKind::Table { .. }
        | HirExprKind::Un(..)
        | HirExprKind::Bin(..)
        | HirExprKind::Cmp(..)
        | HirExprKind::Concat(..)
        | HirExprKind::Logic { .. }
        | HirExprKind::Ternary(..)
        | HirExprKind::Load { .. }
        | HirExprKind::Print {
            to_string: true, ..
        } => true,
        HirExprKind::Assign { lvalue, .. } | HirExprKind::IncDec { lvalue, .. } => {
            locals && matches!(lvalue, LValue::Local(_))
        }
        _ => false,
    }
}

fn handler(body: &mut Vec<HirStmt>, quiet: &[bool]) {
    flatten(body);
    let mut index = 0;
    // Locals whose only assignment stands before `index`.
    let mut settled = FxHashSet::default();
    for _ in 0..PREFIX {
        if index >= body.len() {
            break;
        }
        // `@entry` deletes its elements ahead of everything; moved values read no globals.
        if let HirStmtKind::DeleteElem(..) = body[index].kind {
            index += 1;
            continue;
        }
        let HirStmtKind::Expr(HirExpr {
            kind:
                HirExprKind::Assign {
                    lvalue: LValue::Local(l),
                    op: None,
                    rhs,
                },
            ..
        }) = &body[index].kind
        else {
            break;
        };
        let (l, rhs) = (*l, (**rhs).clone());
        let uses = uses(body);
        match motion(l, &rhs, &uses, &settled, quiet) {
            Motion::IntoReads => {
                body.remove(index);
                for s in body.iter_mut().skip(index) {
                    stmt_exprs_mut(s, &mut |e| replace(e, l, &rhs));
                }
            }
            Motion::Down if let Some(reader) = reader_behind_tests(&body[index + 1..], l) => {
                body[index..=index + reader].rotate_left(1);
            }
            _ => {
                settled.insert(l);
                index += 1;
            }
        }
    }
}

/// Number of statements in front of the first that reads a local; `None` where all of them are
/// assignments, whose order does not matter.
fn reader_behind_tests(body: &[HirStmt], l: LocalIx) -> Option<usize> {
    let reads = |s: &HirStmt| {
        let uses = uses(std::slice::from_ref(s));
        uses.get(&l).is_some_and(|u| u.reads > 0)
    };
    let reader = body.iter().position(reads)?;
    let assign = |e: &HirExpr| matches!(e.kind, HirExprKind::Assign { .. });
    let assigns = |s: &HirStmt| match &s.kind {
        HirStmtKind::Expr(e) => assign(e) && e.changed_local().is_some(),
        _ => false,
    };
    (!body[..reader].iter().all(assigns)).then_some(reader)
}

/// Flattens blocks at the top, such as bodies of aliases, into their statements.
fn flatten(body: &mut Vec<HirStmt>) {
    while let Some(index) = body
        .iter()
        .position(|s| matches!(s.kind, HirStmtKind::Block(_)))
    {
        if let HirStmtKind::Block(inner) =
            std::mem::replace(&mut body[index].kind, HirStmtKind::Block(Vec::new()))
        {
            body.splice(index..=index, inner);
        }
    }
}

/// The new location of an assignment.
enum Motion {
    /// It stays.
    None,
    /// In front of the first statement that reads it.
    Down,
    /// Its value replaces the local.
    IntoReads,
}

fn motion(
    l: LocalIx,
    rhs: &HirExpr,
    uses: &FxHashMap<LocalIx, LocalUse>,
    settled: &FxHashSet<LocalIx>,
    quiet: &[bool],
) -> Motion {
    let use_of = |l: &LocalIx| uses.get(l).copied().unwrap_or_default();
    let own_use = use_of(&l);
    if own_use.writes != 1 {
        return Motion::None;
    }
    let (mut ok, mut size, mut pure_only) = (true, 0, true);
    walk_expr(rhs, &mut |e| {
        size += 1;
        ok &= steady_node(e, false);
        match &e.kind {
            HirExprKind::Call { func, .. } => {
                ok &= quiet[func.0];
                pure_only = false;
            }
            // The variables that it depends on must not change on the way.
            HirExprKind::Read(LValue::Local(from)) => {
                let writes = use_of(from).writes;
                ok &= writes == 0 || (writes == 1 && settled.contains(from));
            }
            HirExprKind::Intr { f, .. } => {
                let fixed = matches!(f.info().len, ResultLen::AtMost(_));
                pure_only &= f.info().pure_ && !fixed;
            }
            HirExprKind::Num(_) | HirExprKind::Bin(..) | HirExprKind::Un(..) => {}
            _ => pure_only = false,
        }
    });
    let repeats = own_use.reads == 1 || (pure_only && size <= CHEAP);
    match ok {
        false => Motion::None,
        true if repeats && size <= LARGEST && !own_use.in_loop => Motion::IntoReads,
        true => Motion::Down,
    }
}

fn uses(body: &[HirStmt]) -> FxHashMap<LocalIx, LocalUse> {
    let mut out: FxHashMap<LocalIx, LocalUse> = FxHashMap::default();
    count(body, false, &mut out);
    out
}

fn count(body: &[HirStmt], in_loop: bool, out: &mut FxHashMap<LocalIx, LocalUse>) {
    for s in body {
        let inner_loop =
            in_loop || matches!(s.kind, HirStmtKind::Loop { .. } | HirStmtKind::Foreach(_));
        own_exprs(s, &mut |root| {
            walk_expr(root, &mut |e| {
                let mut note = |l: LocalIx, read: usize, write: usize| {
                    let u = out.entry(l).or_default();
                    u.reads += read;
                    u.writes += write;
                    u.in_loop |= inner_loop;
                };
                match &e.kind {
                    HirExprKind::Read(LValue::Local(l)) => note(*l, 1, 0),
                    kind => {
                        let plain = matches!(kind, HirExprKind::Assign { op: None, .. });
                        if let Some(l) = e.changed_local() {
                            note(l, usize::from(!plain), 1);
                        }
                    }
                }
            });
        });
        let mut bound = |l: LocalIx| out.entry(l).or_default().writes += 1;
        match &s.kind {
            HirStmtKind::DeleteLocal(l) => bound(*l),
            HirStmtKind::Foreach(f) => f.keys.iter().chain(&f.value).for_each(|l| bound(*l)),
            HirStmtKind::Try { var: Some(l), .. } => bound(*l),
            _ => {}
        }
        inner_blocks(s, &mut |b| count(b, inner_loop, out));
    }
}

fn replace(e: &mut HirExpr, l: LocalIx, with: &HirExpr) {
    if matches!(e.kind, HirExprKind::Read(LValue::Local(r)) if r == l) {
        e.kind = with.kind.clone();
        return;
    }
    children_mut(e, &mut |c| replace(c, l, with));
}
