//! Placement: the operations that a handler may use where it runs. Operations that kernel handlers
//! cannot do are refused here, at their location in the script, and never left to the kernel's
//! verifier. Functions are checked for each handler that calls them.

use rustc_hash::FxHashSet;
use spile_ir::intrinsics::Intrinsic;
use spile_ir::{Event, Executor, HostKind, Space};
use spile_syntax::ast::Span;
use spile_syntax::diag::{Diagnostic, Diagnostics};

use crate::families::ONLY_KERNEL;
use crate::types::hir::*;
use crate::types::{absent, codes};

/// An operation that a handler uses and may not.
struct Finding {
    code: &'static str,
    span: Span,
    text: String,
    help: &'static str,
}

const MOVE_HISTOGRAM: &str = "print it here, `print(@hist_log(x))`, or make its text in `probe timer`, `probe end` or another probe that runs in user space";

const MOVE_TEXT: &str = "save the number in a global here, and convert it in `probe timer` or `probe end`, where it is printed";

/// Checks all handlers. `is_user` accepts the script's files, whose locations come first in messages.
///
/// A probe for new processes also has a handler for existing ones. If that handler uses an
/// operation that only new processes have, it does not run, with a warning.
pub fn check(
    tree: &mut Tree,
    host: HostKind,
    diags: &mut Diagnostics,
    is_user: &dyn Fn(Span) -> bool,
) {
    let mut seen = FxHashSet::default();
    let mut unfit = Vec::new();
    let recursive = recursive(tree);
    for (ix, u) in tree.units.iter().enumerate() {
        let UnitKind::Handler { event, point, .. } = &u.kind else {
            continue;
        };
        if matches!(event, Event::Never | Event::Counter { .. }) {
            continue;
        }
        let mut walk = BodyCheck {
            tree,
            host,
            event,
            point,
            chain: Vec::new(),
            open: Vec::new(),
            todo: Vec::new(),
            done: FxHashSet::default(),
            known: Vec::new(),
            recursive: &recursive,
            out: Vec::new(),
        };
        walk.body(&u.body);
        // An explicit stack instead of recursion: chains of calls can be long.
        while let Some(visit) = walk.todo.pop() {
            walk.visit(visit);
        }
        let present = matches!(event, Event::Present { .. });
        if present && !walk.out.is_empty() {
            unfit.push(ix);
            walk.out.truncate(1);
        }
        for (mut f, chain) in walk.out {
            if present {
                (f.code, f.help) = (codes::NOT_PRESENT, "");
                f.text = format!("existing processes are left out: {}", f.text);
            }
            let d = diagnostic(f, &chain, is_user);
            let span = d.primary.as_ref().map(|l| l.span).unwrap_or_default();
            if seen.insert((d.code, span, d.message.clone())) {
                diags.push(d);
            }
        }
    }
    for ix in unfit {
        let unit = &mut tree.units[ix];
        unit.body.clear();
        if let UnitKind::Handler { event, .. } = &mut unit.kind {
            *event = Event::Never;
        }
    }
}

/// The finding at the innermost location of the user's files; the calls on the way are secondary
/// locations.
fn diagnostic(f: Finding, chain: &[Span], is_user: &dyn Fn(Span) -> bool) -> Diagnostic {
    let mut locations: Vec<Span> = vec![f.span];
    locations.extend(chain.iter().rev());
    let primary = locations.iter().position(|s| is_user(*s)).unwrap_or(0);
    let make = match f.code {
        codes::NOT_PRESENT | codes::FAILS_HERE => Diagnostic::warning,
        _ => Diagnostic::error,
    };
    let mut d = make(f.code, f.text).at(locations[primary]);
    for caller in locations[primary + 1..].iter().filter(|s| is_user(**s)) {
        d = d.also(*caller, "called from here");
    }
    if f.help.is_empty() { d } else { d.help(f.help) }
}

/// The functions that can call themselves, directly or through others.
fn recursive(tree: &Tree) -> FxHashSet<UnitIx> {
    let callees = callees(tree);
    let mut recursive = FxHashSet::default();
    for n in 0..callees.len() {
        let (mut seen, mut stack) = (FxHashSet::default(), callees[n].clone());
        while let Some(f) = stack.pop() {
            if f.0 == n {
                recursive.insert(f);
                break;
            }
            if seen.insert(f) {
                stack.extend(&callees[f.0]);
            }
        }
    }
    recursive
}

/// A function to check, and the calls that lead to it.
struct FunctionVisit {
    func: UnitIx,
    const_args: Vec<Option<i64>>,
    chain: Vec<Span>,
    open: Vec<UnitIx>,
}

struct BodyCheck<'a> {
    tree: &'a Tree,
    host: HostKind,
    event: &'a Event,
    point: &'a str,
    /// Calls that lead to the current function.
    chain: Vec<Span>,
    /// Functions on the current path.
    open: Vec<UnitIx>,
    /// Functions still to check.
    todo: Vec<FunctionVisit>,
    /// Functions that were checked, with the constant values of their parameters.
    done: FxHashSet<(UnitIx, Vec<Option<i64>>)>,
    /// The constant values of the current function's parameters.
    known: Vec<Option<i64>>,
    /// Functions that can call themselves: one copy of their code serves all calls.
    recursive: &'a FxHashSet<UnitIx>,
    out: Vec<(Finding, Vec<Span>)>,
}

impl BodyCheck<'_> {
    fn report(&mut self, code: &'static str, span: Span, text: String, help: &'static str) {
        let finding = Finding {
            code,
            span,
            text,
            help,
        };
        self.out.push((finding, self.chain.clone()));
    }

    fn body(&mut self, body: &[HirStmt]) {
        let compiled = self.event.is_compiled();
        let mut exprs = Vec::new();
        walk_exprs(body, &mut |e| exprs.push(e));
        let assigned = exprs.iter().filter_map(|e| e.changed_local()).collect();
        for e in exprs {
            match &e.kind {
                HirExprKind::Call { func, args } => {
                    let constants = args.iter().map(|a| self.constant(a, &assigned)).collect();
                    self.call(*func, constants, e.span);
                }
                HirExprKind::Intr { f, args } => {
                    self.intrinsic(*f, e.span);
                    if compiled {
                        self.constant_operand(*f, args, &assigned, e.span);
                    }
                }
                HirExprKind::Load {
                    space: Space::Kernel,
                    ..
                } if compiled && self.host == HostKind::Process => {
                    self.only_kernel(
                        e.span,
                        "a process does not reach the kernel's memory".into(),
                    );
                }
                HirExprKind::PrintHist {
                    to_string: true, ..
                } if compiled => {
                    let text = "a kernel handler cannot make the text of a histogram".into();
                    self.report(codes::KERNEL_UNAVAILABLE, e.span, text, MOVE_HISTOGRAM);
                }
                _ => {}
            }
        }
    }

    /// The warning of an operation that a controller handler lacks.
    fn fails_here(&mut self, f: Intrinsic, span: Span) {
        let what = absent::missing(f);
        let text = format!(
            "there is no {what} in `probe {}`: this fails when it runs",
            self.point
        );
        let help = "this handler runs in user space, outside any kernel event";
        self.report(codes::FAILS_HERE, span, text, help);
    }

    fn call(&mut self, func: UnitIx, mut known: Vec<Option<i64>>, span: Span) {
        if self.recursive.contains(&func) {
            known.fill(None);
        }
        if !self.open.contains(&func) && self.done.insert((func, known.clone())) {
            let (mut chain, mut open) = (self.chain.clone(), self.open.clone());
            chain.push(span);
            open.push(func);
            self.todo.push(FunctionVisit {
                func,
                const_args: known,
                chain,
                open,
            });
        }
    }

    fn visit(&mut self, visit: FunctionVisit) {
        (self.known, self.chain, self.open) = (visit.const_args, visit.chain, visit.open);
        let u = &self.tree.units[visit.func.0];
        self.body(&u.body);
        if let Some(alt) = u.next_alternative() {
            self.call(alt, self.known.clone(), u.span);
        }
    }

    /// The constant value of an argument.
    fn constant(&self, e: &HirExpr, assigned: &FxHashSet<LocalIx>) -> Option<i64> {
        match &e.kind {
            HirExprKind::Num(n) => Some(*n),
            HirExprKind::Read(LValue::Local(l)) if !assigned.contains(l) => {
                self.known.get(l.0).copied().flatten()
            }
            _ => None,
        }
    }

    /// Checks that operands in the generated code are constants, and in range.
    fn constant_operand(
        &mut self,
        f: Intrinsic,
        args: &[HirExpr],
        assigned: &FxHashSet<LocalIx>,
        span: Span,
    ) {
        let Some(range) = &f.info().constant else {
            return;
        };
        let value = args.first().and_then(|a| self.constant(a, assigned));
        if value.is_some_and(|v| range.contains(&v)) {
            return;
        }
        let text = match value {
            Some(v) => format!(
                "the number of an argument is {v} and has to be {} to {}",
                range.start(),
                range.end()
            ),
            None => "the number of an argument has to be a constant in a kernel handler".into(),
        };
        self.report(codes::KERNEL_CONSTANT, span, text, "");
    }

    /// The library function that the script calls, for messages.
    fn library_function(&self) -> Option<&str> {
        let open = self.open.iter().map(|u| &self.tree.units[u.0]);
        open.into_iter().find(|u| !u.user).map(|u| &*u.name)
    }

    /// The error of an operation that only the kernel has: of the library function that the script calls, or else
    /// this text.
    fn only_kernel(&mut self, span: Span, text: String) {
        let function = self.library_function();
        let of_function = function.map(|f| format!("`{f}()` is only available in the kernel"));
        let text = of_function.unwrap_or(text);
        self.report(codes::ONLY_KERNEL, span, text, ONLY_KERNEL);
    }

    fn intrinsic(&mut self, f: Intrinsic, span: Span) {
        let info = f.info();
        let executor = self.event.executor(self.host);
        if executor == Executor::Controller {
            if !f.is_available(self.event) {
                self.fails_here(f, span);
            }
            return;
        }
        if !info.executors.contains(executor) {
            if self.host == HostKind::Process && info.executors.contains(Executor::Kernel) {
                let text = format!("`{}` is only available in the kernel", info.name);
                return self.only_kernel(span, text);
            }
            let name = self.library_function().unwrap_or(info.name);
            let text = format!("`{name}` is not available in a {} handler", executor.name());
            self.report(codes::KERNEL_UNAVAILABLE, span, text, MOVE_TEXT);
            return;
        }
        if let Some(need) = info.need
            && !need.is_met(self.event)
        {
            let text = format!("there is no {} in `probe {}`", need.name(), self.point);
            self.report(codes::NO_EVENT, span, text, "");
        }
    }
}

/// The maximum nesting of calls that any handler can reach, and whether a function calls itself
/// (which then counts once).
pub fn nesting(tree: &Tree) -> (u32, bool) {
    let calls = callees(tree);
    let (mut deepest, mut recursive) = (0, false);
    let mut depth: Vec<Option<u32>> = vec![None; calls.len()];
    let mut open = vec![false; calls.len()];
    for root in 0..calls.len() {
        // An explicit stack instead of recursion: chains of calls can be long.
        let mut stack = vec![(root, 0)];
        while let Some((unit, next)) = stack.pop() {
            if next == 0 && (depth[unit].is_some() || open[unit]) {
                recursive |= open[unit];
                continue;
            }
            open[unit] = true;
            if let Some(callee) = calls[unit].get(next) {
                stack.push((unit, next + 1));
                stack.push((callee.0, 0));
                continue;
            }
            let below = calls[unit].iter().filter_map(|c| depth[c.0]).max();
            let height = below.unwrap_or(0)
                + u32::from(matches!(tree.units[unit].kind, UnitKind::Func { .. }));
            depth[unit] = Some(height);
            open[unit] = false;
            deepest = deepest.max(height);
        }
    }
    (deepest, recursive)
}
