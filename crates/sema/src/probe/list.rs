//! Listings of probe points, aliases and functions: `-l`, `-L`, `--dump-probe-types`,
//! `--dump-probe-aliases`, `--dump-functions`.

use std::collections::{BTreeMap, BTreeSet};

use spile_syntax::ast::{
    AtOp, Expr, ExprKind, FileId, Function, ProbePoint, Span, Stmt, StmtKind, TypeName,
};
use spile_syntax::diag::Diagnostics;
use spile_syntax::pretty;
use spile_syntax::visit::{Visitor, walk_expr, walk_stmt};
use spile_syscalls::Syscall;

use super::context::{self, PlainBinding};
use super::handler::{HandlerPart, TargetVar};
use super::mentions::Mentions;
use super::resolve::{PointSearch, ResolvedPoint};
use crate::ctype::CTy;
use crate::facts::{COUNT_OF, Facts, VarLocation};
use crate::families::{
    ArgSpec, CodeMatch, ComponentName, ComponentSpec, FAMILIES, Family, MatchedLocation, PointMatch,
};
use crate::library::{AliasEntry, Library, PointEntry};

/// A probe point of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListedPoint {
    /// The point.
    pub point: String,
    /// Plain variables that its handlers can read, with `long` or `string`.
    pub vars: Vec<(String, &'static str)>,
    /// `$` variables with their C types.
    pub targets: Vec<(String, String)>,
}

impl ListedPoint {
    /// The line of `-L`.
    pub fn long_line(&self) -> String {
        let mut line = self.point.clone();
        for (name, ty) in &self.vars {
            line.push_str(&format!(" {name}:{ty}"));
        }
        for (name, ty) in &self.targets {
            line.push_str(&format!(" ${name}:{ty}"));
        }
        line
    }
}

/// The points that `points` match, sorted and without duplicates. Errors go to `diags`. Variables
/// of locations in code are listed only if `variables` is set: there may be tens of thousands of
/// locations.
pub fn list(
    lib: &Library,
    facts: &dyn Facts,
    points: &[ProbePoint],
    variables: bool,
    diags: &mut Diagnostics,
) -> Vec<ListedPoint> {
    let mut listed_points = Vec::new();
    for p in points {
        let entry = PointEntry {
            point: p.clone(),
            condition: None,
        };
        let mut search = PointSearch::new(lib, facts);
        // The part has no statements: listings use only the bodies of aliases.
        let part = HandlerPart {
            body: Default::default(),
            file: p.span.file,
        };
        for d in search.probe(&[entry], &part) {
            diags.push(d);
        }
        for resolved in std::mem::take(&mut search.points) {
            listed_points.append(&mut listed(lib, facts, &resolved, variables, p.span));
        }
    }
    // Of equal points the first stays.
    listed_points.sort_by(|a, b| a.point.cmp(&b.point));
    listed_points.dedup_by(|later, first| later.point == first.point);
    listed_points
}

fn listed(
    lib: &Library,
    facts: &dyn Facts,
    resolved: &ResolvedPoint,
    variables: bool,
    span: Span,
) -> Vec<ListedPoint> {
    let mut vars = BTreeMap::new();
    for part in &resolved.layer.parts {
        AssignedLocals {
            lib,
            file: part.file,
            vars: &mut vars,
        }
        .block(&part.body);
    }
    let lister = Lister {
        facts,
        resolved,
        alias_vars: vars.into_iter().collect(),
    };
    match &resolved.hit {
        PointMatch::Event { point, ctx, .. } => {
            let value = || ("value".to_owned(), "string".to_owned());
            let mut targets = lister.spelled(&ctx.targets);
            targets.extend(ctx.kind.has_value().then(value));
            vec![lister.line(point.clone(), Vec::new(), targets)]
        }
        PointMatch::Trace { name, system } => {
            let system = system.clone().or_else(|| facts.tracepoint_system(name));
            let mut targets = context::tracepoint_arguments(facts, name);
            let record = variables.then(|| facts.trace_record(name, system.as_deref()));
            let fields = record.flatten().map(|r| context::record_fields(&r));
            let fields = fields.into_iter().flatten();
            let new = |f: &TargetVar| !targets.iter().any(|t| t.name == f.name);
            let fields: Vec<TargetVar> = fields.filter(new).collect();
            targets.extend(fields);
            let system = system.as_deref().map_or(String::new(), |s| format!("{s}:"));
            let point = format!("kernel.trace(\"{system}{name}\")");
            vec![lister.line(point, Vec::new(), lister.spelled(&targets))]
        }
        PointMatch::Code(hit) => (hit.locations.iter())
            .map(|location| lister.location(hit, location, variables))
            .collect(),
        PointMatch::SyscallAny { ret } => vec![lister.any_syscall(*ret, span)],
        PointMatch::Syscalls { calls, ret } => {
            let table = facts.syscalls();
            let calls = calls.iter().filter_map(|i| table.get(*i));
            calls.map(|call| lister.syscall(call, *ret)).collect()
        }
    }
}

/// Makes the lines of one resolved point.
struct Lister<'a> {
    facts: &'a dyn Facts,
    resolved: &'a ResolvedPoint,
    /// The variables that the aliases set.
    alias_vars: Vec<(String, &'static str)>,
}

impl Lister<'_> {
    /// A line; the alias's name goes before the point's, and its variables come last.
    fn line(
        &self,
        point: String,
        mut vars: Vec<(String, &'static str)>,
        targets: Vec<(String, String)>,
    ) -> ListedPoint {
        vars.extend_from_slice(&self.alias_vars);
        let alias = self.resolved.layer.alias.as_deref();
        ListedPoint {
            point: alias.map_or(point, str::to_owned),
            vars,
            targets,
        }
    }

    /// The `$` variables with their C types.
    fn spelled(&self, targets: &[TargetVar]) -> Vec<(String, String)> {
        targets
            .iter()
            .map(|t| (t.name.to_string(), t.ty.spell(self.facts)))
            .collect()
    }

    fn location(
        &self,
        hit: &CodeMatch,
        location: &MatchedLocation,
        variables: bool,
    ) -> ListedPoint {
        let (facts, module) = (self.facts, &location.module.module);
        let listed = match variables {
            true => facts
                .location_variables(module, location.location.id, hit.ret)
                .or_else(|_| facts.location_locals(module, &location.location, hit.ret)),
            false => Ok(Vec::new()),
        };
        let listed = listed.unwrap_or_default();
        let present = listed
            .iter()
            .filter(|v| !matches!(v.loc, VarLocation::Absent(_)) && !v.name.starts_with(COUNT_OF));
        let spelled = present.map(|v| (v.name.to_string(), CTy::id(v.ty).spell(self.facts)));
        self.line(hit.point(location), Vec::new(), spelled.collect())
    }

    fn any_syscall(&self, ret: bool, span: Span) -> ListedPoint {
        let mut m = Mentions::default();
        let names = ["name", "syscall_nr", "retval", "retstr", "errno", "argstr"];
        m.reads.extend(names.map(Into::into));
        let ctx = context::syscall_any(&m, ret, self.resolved.layer.shown.is_some(), span);
        let text = |n: &str| matches!(n, "name" | "retstr" | "argstr");
        let ty = |n: &str| if text(n) { "string" } else { "long" };
        let vars = ctx.vars.iter().map(|v| (v.name.to_string(), ty(&v.name)));
        let (point, targets) = (self.resolved.point.clone(), self.spelled(&ctx.targets));
        self.line(point, vars.collect(), targets)
    }

    fn syscall(&self, call: &Syscall, ret: bool) -> ListedPoint {
        let end = if ret { ".return" } else { "" };
        let point = format!("{}.{}{end}", self.resolved.family, call.probe);
        let targets = context::call_targets(call, ret, |_| true);
        self.line(point, call_vars(call, ret), self.spelled(&targets))
    }
}

/// The plain variables of a system call.
pub(crate) fn call_vars(call: &Syscall, ret: bool) -> Vec<(String, &'static str)> {
    let fixed: &[(&str, &str)] = match ret {
        true => &[
            ("name", "string"),
            ("retval", "long"),
            ("retstr", "string"),
            ("errno", "long"),
        ],
        false => &[("name", "string"), ("argstr", "string")],
    };
    let arguments = call.args.iter().filter_map(|a| {
        Some(match context::bind(call, a.name, ret) {
            PlainBinding::Quoted(_) | PlainBinding::Unquoted(_) => (a.name, "string"),
            PlainBinding::Value(..) => (a.name, "long"),
            _ => return None,
        })
    });
    let others = call.variables.iter().filter(|v| ret || !v.at_return);
    let others = others.filter(|v| !(ret && context::bind(call, v.name, ret).of_entry()));
    let others = others.map(|v| (v.name, if v.text { "string" } else { "long" }));
    let vars = fixed.iter().copied().chain(arguments).chain(others);
    vars.map(|(name, ty)| (name.to_owned(), ty)).collect()
}

/// Collects the local variables that the body of an alias sets.
struct AssignedLocals<'a> {
    lib: &'a Library,
    file: FileId,
    vars: &'a mut BTreeMap<String, &'static str>,
}

impl AssignedLocals<'_> {
    /// `string` where the expression implies it, otherwise `long`.
    fn ty(&self, e: &Expr) -> &'static str {
        use spile_ir::intrinsics::{Intrinsic, ValueKind};
        let string = match &e.kind {
            ExprKind::Str(_) => true,
            ExprKind::Binary(op, ..) => *op == spile_syntax::ast::BinOp::Concat,
            ExprKind::Print { op, .. } => op.to_string,
            ExprKind::Ternary(_, a, _) => return self.ty(a),
            // The value of an expression at the entry.
            ExprKind::At {
                op: AtOp::Entry,
                args,
                ..
            } => return args.first().map_or("long", |e| self.ty(e)),
            ExprKind::Target { name, .. } => name.starts_with("$$"),
            ExprKind::Call { name, args } => {
                let intrinsic = name.name.strip_prefix("__");
                let gives =
                    |f: &Function| f.params.len() == args.len() && f.ret == Some(TypeName::String);
                match intrinsic.and_then(Intrinsic::by_name) {
                    Some(i) => i.info().ret == Some(ValueKind::Str),
                    None => {
                        let functions = self.lib.functions(&name.name, self.file);
                        functions.iter().any(|(_, f)| gives(f))
                    }
                }
            }
            ExprKind::Var(name) => return self.vars.get(&**name).copied().unwrap_or("long"),
            _ => false,
        };
        if string { "string" } else { "long" }
    }
}

impl Visitor for AssignedLocals<'_> {
    fn expr(&mut self, e: &Expr) {
        if let ExprKind::Assign { lhs, rhs, .. } = &e.kind
            && let ExprKind::Var(name) = &lhs.kind
            && !name.starts_with("__")
            && self.lib.global(name, self.file).is_none()
        {
            let ty = self.ty(rhs);
            self.vars.entry(name.to_string()).or_insert(ty);
        }
        walk_expr(self, e);
    }

    fn stmt(&mut self, s: &Stmt) {
        if !matches!(s.kind, StmtKind::Embedded(_)) {
            walk_stmt(self, s);
        }
    }
}

/// The lines of `--dump-probe-types`.
pub fn probe_types() -> Vec<String> {
    let lines: BTreeSet<String> = FAMILIES.iter().map(|f| f.text()).collect();
    lines.into_iter().collect()
}

/// The lines of `--dump-probe-types` with every way to write a point, and the types of its
/// literals.
pub fn typed_probe_types() -> Vec<String> {
    let lines: BTreeSet<String> = FAMILIES.iter().flat_map(Family::typed_points).collect();
    lines.into_iter().collect()
}

/// The lines of `--dump-probe-aliases`: `name = point, point`.
pub fn probe_aliases(lib: &Library) -> Vec<String> {
    let shown = lib.aliases().filter(|(_, a)| !a.name.starts_with('_'));
    let line = |a: &AliasEntry| {
        let points = a.body.points.iter();
        let points: Vec<String> = points.map(|p| pretty::probe_point(&p.point)).collect();
        format!("{} = {}", a.name, points.join(", "))
    };
    let mut lines: Vec<String> = shown.map(|(_, a)| line(a)).collect();
    lines.sort();
    lines
}

/// The lines of `--dump-functions`: `name:type (parameter:type, ...)`.
pub fn functions(lib: &Library) -> Vec<String> {
    let shown = |f: &Function| !f.name.name.starts_with('_');
    let functions = lib.all_functions();
    functions
        .iter()
        .filter(|(_, f)| shown(f))
        .map(|(_, f)| signature(f))
        .collect()
}

/// A function as listings show it.
pub fn signature(f: &Function) -> String {
    let ty = |t: Option<TypeName>| match t {
        Some(TypeName::Long) => ":long",
        Some(TypeName::String) => ":string",
        None => "",
    };
    let params: Vec<String> = f
        .params
        .iter()
        .map(|(name, t)| format!("{}{}", name.name, ty(*t)))
        .collect();
    format!("{}{} ({})", f.name.name, ty(f.ret), params.join(", "))
}

/// The points of the built-in families that need no argument, by dotted name.
pub fn family_points(facts: &dyn Facts) -> Vec<String> {
    let mut points = Vec::new();
    for f in FAMILIES {
        let needs = |c: &ComponentSpec| matches!(c.1, ArgSpec::Num | ArgSpec::Str);
        if f.comps.iter().any(needs) {
            continue;
        }
        let mut list = vec![String::new()];
        for c in f.comps {
            let names: Vec<String> = match c.0 {
                ComponentName::Is(w) => vec![w.to_owned()],
                ComponentName::Syscall => {
                    let calls = facts.syscalls().iter();
                    calls.map(|s| s.probe.to_owned()).collect()
                }
                ComponentName::PerfEvent => {
                    let before = list.first().and_then(|p| p.rsplit('.').next());
                    let events = facts.perf_events().into_iter();
                    let events = events.filter(|e| Some(e.group) == before);
                    events.map(|e| e.name.to_string()).collect()
                }
            };
            list = list
                .iter()
                .flat_map(|head| {
                    let dot = if head.is_empty() { "" } else { "." };
                    names.iter().map(move |n| format!("{head}{dot}{n}"))
                })
                .collect();
        }
        points.append(&mut list);
    }
    points.sort_unstable();
    points.dedup();
    points
}
