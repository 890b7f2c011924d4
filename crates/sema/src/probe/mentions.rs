//! The names that the bodies of a handler mention: only these are computed.

use rustc_hash::{FxHashMap, FxHashSet};
use spile_syntax::ast::{
    Expr, ExprKind, FileId, FnBody, Foreach, ForeachOver, Function, Name, Stmt, StmtKind,
};
use spile_syntax::visit::{Visitor, walk_expr, walk_stmt};

use super::handler::HandlerPart;
use crate::library::Library;

/// Names in the bodies of one handler.
#[derive(Debug, Default)]
pub(crate) struct Mentions {
    /// Plain variables that are read and are not globals.
    pub reads: FxHashSet<Name>,
    /// Plain variables that are written and are not globals.
    pub writes: FxHashSet<Name>,
    /// `$` variables, without the `$`.
    pub targets: FxHashSet<Box<str>>,
    /// `$$vars`, `$$parms` or the like, which need all arguments.
    pub all_targets: bool,
    /// `pp()` or a similar function, which need a handler for each point.
    pub point: bool,
    /// C types are named or walked through; their meaning depends on the module.
    pub types: bool,
    /// The subsystem of a tracepoint is visible: `$$system`, or in the text of `pp()`.
    pub system: bool,
}

/// Functions whose result depends on the probe point.
const POINT_FUNCTIONS: &[&str] = &["pp", "pn", "ppfunc", "probefunc", "probemod"];

/// The functions of [`POINT_FUNCTIONS`], and those among `functions` that call one of them.
pub(crate) fn point_functions<'a>(
    functions: impl Iterator<Item = &'a Function>,
) -> FxHashSet<Name> {
    let mut callers: FxHashMap<Name, Vec<Name>> = FxHashMap::default();
    for f in functions {
        let mut calls = CalledNames(FxHashSet::default());
        if let FnBody::Block(b) = &f.body {
            calls.block(b);
        }
        for callee in calls.0 {
            callers.entry(callee).or_default().push(f.name.name.clone());
        }
    }
    let mut functions_of_point: FxHashSet<Name> = FxHashSet::default();
    let mut todo: Vec<Name> = POINT_FUNCTIONS.iter().map(|n| Name::from(*n)).collect();
    while let Some(name) = todo.pop() {
        todo.extend(callers.remove(&name).into_iter().flatten());
        functions_of_point.insert(name);
    }
    functions_of_point
}

/// Names of the functions that are called.
struct CalledNames(FxHashSet<Name>);

impl Visitor for CalledNames {
    fn expr(&mut self, e: &Expr) {
        if let ExprKind::Call { name, .. } = &e.kind {
            self.0.insert(name.name.clone());
        }
        walk_expr(self, e);
    }
}

struct MentionCollector<'a> {
    lib: &'a Library,
    file: FileId,
    out: &'a mut Mentions,
}

impl Mentions {
    /// Adds the names of a part.
    pub(crate) fn part(&mut self, lib: &Library, part: &HandlerPart) {
        MentionCollector {
            lib,
            file: part.file,
            out: self,
        }
        .block(&part.body);
    }

    /// Adds the names of a condition.
    pub(crate) fn condition(&mut self, lib: &Library, e: &Expr, file: FileId) {
        MentionCollector {
            lib,
            file,
            out: self,
        }
        .expr(e);
    }
}

impl MentionCollector<'_> {
    fn read(&mut self, name: &Name) {
        if !self.out.reads.contains(name) && self.lib.global(name, self.file).is_none() {
            self.out.reads.insert(name.clone());
        }
    }

    fn write(&mut self, name: &Name) {
        if !self.out.writes.contains(name) && self.lib.global(name, self.file).is_none() {
            self.out.writes.insert(name.clone());
        }
    }
}

impl Visitor for MentionCollector<'_> {
    fn expr(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Var(name) => self.read(name),
            ExprKind::Assign { op: None, lhs, rhs } => {
                if let ExprKind::Var(name) = &lhs.kind {
                    self.write(name);
                    return self.expr(rhs);
                }
            }
            ExprKind::Assign {
                op: Some(_), lhs, ..
            }
            | ExprKind::IncDec { target: lhs, .. } => {
                if let ExprKind::Var(name) = &lhs.kind {
                    self.write(name);
                }
            }
            ExprKind::Call { name, .. } => {
                let point = self.lib.shows_point(&name.name);
                self.out.point |= point;
                self.out.system |= point;
            }
            ExprKind::At { .. } | ExprKind::Arrow { .. } => self.out.types = true,
            ExprKind::Target { name, .. } => {
                if let Some(group) = name.strip_prefix("$$") {
                    self.out.all_targets |= !matches!(group, "name" | "system" | "provider");
                    self.out.point |= group == "name";
                    self.out.system |= matches!(group, "system" | "provider");
                } else {
                    self.out.targets.insert(name.trim_start_matches('$').into());
                }
            }
            _ => {}
        }
        walk_expr(self, e);
    }

    fn stmt(&mut self, s: &Stmt) {
        match &s.kind {
            StmtKind::Foreach(f) => self.foreach(f),
            StmtKind::Try { var: Some(v), .. } => self.write(&v.name),
            _ => {}
        }
        walk_stmt(self, s);
    }
}

impl MentionCollector<'_> {
    fn foreach(&mut self, f: &Foreach) {
        for v in f.keys.iter().chain(&f.value) {
            self.write(&v.name);
        }
        if let ForeachOver::Array(a) = &f.over {
            self.read(&a.name);
        }
    }
}
