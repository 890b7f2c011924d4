//! Rules on whole programs about changes: a `foreach` neither modifies its array nor calls a function
//! that does; the condition of a probe point modifies nothing; only guru mode changes processes.

use std::cell::LazyCell;

use rustc_hash::FxHashSet;
use spile_glob::matches_point;
use spile_syntax::ast::{self, Span};
use spile_syntax::diag::Diagnostic;
use spile_syntax::visit::each_expr_in as each_expr;

use super::Resolver;
use super::write::CHANGES;
use crate::types::codes;
use crate::types::hir::*;

/// Functions that need guru mode in SystemTap without changing anything: scripts that work here work there.
const RESERVED: &[&str] = &[
    "task_ns_pid",
    "task_ns_tid",
    "task_ns_uid",
    "task_ns_euid",
    "task_ns_gid",
    "task_ns_egid",
];

impl Resolver<'_> {
    /// Checks that the condition of a probe point reads global variables and nothing else, since it
    /// is no part of a handler. Files of the library may call functions.
    pub(super) fn check_condition(&mut self, cond: &ast::Expr) {
        let mut names = Vec::new();
        if !self.is_user(self.cur.file) {
            return;
        }
        each_expr(cond, &mut |e: &ast::Expr| match &e.kind {
            ast::ExprKind::Var(name) => names.push((name.clone(), e.span, false)),
            ast::ExprKind::Call { name, .. } => names.push((name.name.clone(), e.span, true)),
            _ => {}
        });
        for (name, span, call) in names {
            let text = match call {
                true => format!("the condition of a probe point must not call `{name}`"),
                false if self.find_global(&name).is_none() => {
                    format!("`{name}` in the condition of a probe point is no global variable")
                }
                false => continue,
            };
            self.report(
                Diagnostic::error(codes::CONDITION_READS, text)
                    .at(span)
                    .help("test it inside of the handler: `if (!(...)) next`"),
            );
        }
    }

    pub(super) fn rules(&mut self) {
        let violations = check(&self.tree, &std::mem::take(&mut self.conditions));
        violations.into_iter().for_each(|d| self.report(d));
        if !self.options.guru {
            self.changes_of_processes();
            self.absolute_addresses();
        }
    }

    /// Reports probes at addresses of the kernel that the script vouches for.
    fn absolute_addresses(&mut self) {
        let lib = self.lib;
        let user_files = lib.file_ids().filter(|(_, user)| *user);
        let probes = user_files.flat_map(|(file, _)| lib.probes(file));
        let aliases = lib.user_aliases();
        let points = probes
            .flat_map(|p| &p.points)
            .chain(aliases.flat_map(|(_, a)| &a.body.points));
        let of_kernel = |c: &ast::Component| matches!(&*c.name, "kernel" | "module" | "kprobe");
        for entry in points {
            let comps = &entry.point.components;
            let absolute = comps.iter().find(|c| matches_point(&c.name, "absolute"));
            if let Some(absolute) = absolute.filter(|_| comps.first().is_some_and(of_kernel)) {
                let text = "a probe at an absolute address of the kernel";
                self.needs_guru(text, "probe any address", absolute.span);
            }
        }
    }

    /// Reports calls of built-in functions that change a process, or that SystemTap reserves as well, in
    /// text that is not built-in itself.
    fn changes_of_processes(&mut self) {
        let changing = reaching(&self.tree, Unit::changes_process);
        let reserved = |func: UnitIx| RESERVED.contains(&&*self.tree.units[func.0].name);
        let mut calls = Vec::new();
        for unit in &self.tree.units {
            walk_exprs(&unit.body, &mut |e| {
                if let HirExprKind::Call { func, .. } = &e.kind
                    && (changing[func.0] || reserved(*func))
                    && self.tree.units[func.0].span.file.is_built_in()
                    && !e.span.file.is_built_in()
                {
                    calls.push((
                        self.tree.units[func.0].name.clone(),
                        changing[func.0],
                        e.span,
                    ));
                }
            });
        }
        for (name, changes, span) in calls {
            let (does, what_for) = match changes {
                true => ("changes a process", CHANGES),
                false => (
                    "reads at an address that the script makes up",
                    "ask about any task",
                ),
            };
            self.needs_guru(&format!("`{name}` {does}"), what_for, span);
        }
    }
}

fn check(tree: &Tree, conditions: &[HirExpr]) -> Vec<Diagnostic> {
    // Most scripts have few loops over arrays and no conditions, and each of these is a walk of the tree.
    let modified =
        LazyCell::new(|| -> Vec<_> { tree.units.iter().map(|u| modified(&u.body)).collect() });
    let writes = LazyCell::new(|| reaching(tree, modifies_global));
    let mut out = Vec::new();
    for u in &tree.units {
        walk_stmts(&u.body, &mut |s| {
            if let HirStmtKind::Foreach(f) = &s.kind {
                foreach(tree, f, &modified, &mut out);
            }
        });
    }
    for c in conditions {
        walk_expr(c, &mut |e| {
            let (code, text) = match &e.kind {
                HirExprKind::Assign { .. }
                | HirExprKind::IncDec { .. }
                | HirExprKind::StatAdd { .. } => (
                    codes::CONDITION_CHANGES,
                    "the condition of a probe point must not modify a variable".to_owned(),
                ),
                HirExprKind::Call { func, .. } if writes[func.0] => (
                    codes::CONDITION_CHANGES,
                    format!(
                        "`{}` modifies a global variable, which the condition of a probe point \
                         must not do",
                        tree.units[func.0].name
                    ),
                ),
                _ => return,
            };
            let help = "test it inside of the handler: `if (...) next`";
            out.push(Diagnostic::error(code, text).at(e.span).help(help));
        });
    }
    out
}

/// The arrays and statistics that a body modifies directly.
fn modified(body: &[HirStmt]) -> FxHashSet<GlobalIx> {
    let mut out = FxHashSet::default();
    changes(body, &mut |g, scalar, _| {
        if !scalar {
            out.insert(g);
        }
    });
    walk_exprs(body, &mut |e| {
        if let HirExprKind::StatAdd { lvalue, .. } = &e.kind {
            out.extend(lvalue.global().map(|(g, _)| g));
        }
    });
    out
}

/// Calls `f` for each change of a global variable, with the global, whether it is used as a scalar,
/// and the location.
fn changes(body: &[HirStmt], f: &mut dyn FnMut(GlobalIx, bool, Span)) {
    walk_stmts(body, &mut |s| {
        if let HirStmtKind::DeleteElem(g, _) = &s.kind {
            f(*g, false, s.span);
        }
    });
    walk_exprs(body, &mut |e| {
        if let HirExprKind::Assign { lvalue, .. }
        | HirExprKind::IncDec { lvalue, .. }
        | HirExprKind::StatAdd { lvalue, .. } = &e.kind
            && let Some((g, _)) = lvalue.global()
        {
            f(g, matches!(lvalue, LValue::Scalar(_)), e.span);
        }
    });
}

fn foreach(
    tree: &Tree,
    f: &HirForeach,
    modified: &[FxHashSet<GlobalIx>],
    out: &mut Vec<Diagnostic>,
) {
    let name = &tree.globals[f.global.0].name;
    let help = "collect the keys in another array, and change this one after the loop";
    changes(&f.body, &mut |g, scalar, span| {
        if g == f.global && !scalar {
            let text = format!("variable `{name}` modified during `foreach` iteration");
            let d = Diagnostic::error(codes::FOREACH_CHANGES, text).at(span);
            out.push(d.help(help));
        }
    });
    walk_exprs(&f.body, &mut |e| {
        let HirExprKind::Call { func, .. } = &e.kind else {
            return;
        };
        // All bodies that `next` can go on with.
        let mut next = Some(*func);
        while let Some(unit) = next {
            if modified[unit.0].contains(&f.global) {
                let text =
                    format!("function call modifies variable `{name}` during `foreach` iteration");
                let d = Diagnostic::error(codes::FOREACH_CHANGES, text).at(e.span);
                out.push(d.help(help));
                break;
            }
            next = tree.units[unit.0].next_alternative();
        }
    });
}

/// Whether a unit itself modifies a global variable.
fn modifies_global(unit: &Unit) -> bool {
    let mut modifies = false;
    changes(&unit.body, &mut |_, _, _| modifies = true);
    walk_stmts(&unit.body, &mut |s| {
        modifies |= matches!(s.kind, HirStmtKind::DeleteAll(_));
    });
    modifies
}
