//! Checks that need everything resolved: deferred constraints, undecided types, calls without a
//! value, and statistics used as values.

use spile_syntax::ast::Span;
use spile_syntax::diag::Diagnostic;

use super::Resolver;
use crate::types::codes;
use crate::types::hir::*;
use crate::types::near::with_similar_variable;
use crate::types::unify::Base;

/// The way out where nothing decides a type.
const ASSIGN: &str = "assign a value to it, or use it where only one type fits";

/// The error for something whose type nothing decides.
fn without_type(span: Span, what: &str, assigned: bool) -> Diagnostic {
    let text = format!("unresolved type of {what}");
    let d = Diagnostic::error(codes::UNRESOLVED_TYPE, text);
    match assigned {
        true => d.label(span, "a number or a string?"),
        false => d.label(span, "never assigned: a number or a string?"),
    }
}

impl Resolver<'_> {
    pub(super) fn finish(&mut self) {
        for (var, elem, span) in std::mem::take(&mut self.foreach_values) {
            match self.types.get(elem) {
                Some(Base::Stats) => self.set_type(var, Base::Long, span),
                _ => self.unify(var, elem, span),
            }
        }
        for (unit, span) in std::mem::take(&mut self.value_calls) {
            let u = &mut self.tree.units[unit.0];
            let UnitKind::Func {
                has_value: has_value @ false,
                ret,
                ..
            } = &mut u.kind
            else {
                continue;
            };
            // Where the use decides the type, the value is 0 or "", as in SystemTap.
            if self.types.get(*ret).is_some() {
                *has_value = true;
                continue;
            }
            let text = format!("function `{}` returns no value", u.name);
            let d = Diagnostic::error(codes::NO_VALUE, text).at(span);
            let d = if u.user {
                d.also(u.span, "defined here")
            } else {
                d
            };
            self.report(d);
        }
        // After other errors, undecided types are only consequences.
        if !self.diags.has_errors() {
            self.unresolved();
        }
        if !self.diags.has_errors() {
            self.statistics_as_values();
        }
        self.rules();
    }

    fn unresolved(&mut self) {
        let mut missing: Vec<(Span, String, bool)> = Vec::new();
        let mut misspelt: Vec<Diagnostic> = Vec::new();
        for g in self.tree.globals.iter().filter(|g| g.read || g.written) {
            let types = g.keys.iter().flatten().chain([&g.value]);
            let open = types.into_iter().any(|t| self.types.get(*t).is_none());
            if open && g.read {
                missing.push((g.span, format!("global variable `{}`", g.name), g.written));
            }
        }
        for u in &self.tree.units {
            for l in &u.locals {
                if !l.read || self.types.get(l.ty).is_some() {
                    continue;
                }
                let set = l.param || l.written;
                let what = if l.param { "parameter" } else { "variable" };
                let what = format!("{what} `{}`", l.name);
                if set {
                    missing.push((l.span, what, set));
                    continue;
                }
                let d = without_type(l.span, &what, set);
                let near = with_similar_variable(d.clone(), &l.name, &self.tree, u, self.facts);
                misspelt.push(match near.help.is_empty() {
                    true => d.help(ASSIGN),
                    false => near,
                });
            }
            if let UnitKind::Func {
                ret,
                has_value: true,
                ..
            } = u.kind
                && self.types.get(ret).is_none()
            {
                missing.push((u.span, format!("result of `{}`", u.name), true));
            }
        }
        for (span, what, assigned) in missing {
            self.report(without_type(span, &what, assigned).help(ASSIGN));
        }
        misspelt.into_iter().for_each(|d| self.report(d));
    }

    /// Reports statistics in other uses than adding, extractors, `foreach` and `delete`.
    fn statistics_as_values(&mut self) {
        let mut uses: Vec<(Span, String)> = Vec::new();
        for u in &self.tree.units {
            walk_exprs(&u.body, &mut |e| {
                let lvalue = match &e.kind {
                    HirExprKind::Read(p) | HirExprKind::Assign { lvalue: p, .. } => p,
                    _ => return,
                };
                if self.types.get(e.ty) == Some(Base::Stats) {
                    let name = match lvalue {
                        LValue::Local(ix) => &u.locals[ix.0].name,
                        LValue::Scalar(g) | LValue::Elem(g, _) => &self.tree.globals[g.0].name,
                    };
                    uses.push((e.span, name.to_string()));
                }
            });
        }
        for (span, name) in uses {
            self.report(
                Diagnostic::error(
                    codes::NOT_A_STATISTIC,
                    format!("`{name}` is a statistic, which has no value of its own"),
                )
                .at(span)
                .help(format!(
                    "read it with an extractor: `@count({name})`, `@sum({name})`"
                )),
            );
        }
    }
}
