//! Variables that SystemTap's alias sets and this library's does not. Reading one is an error;
//! without it the variable would silently be 0 or "".

use spile_syntax::ast::{Expr, ExprKind, Name, Span};
use spile_syntax::diag::{Diagnostic, Diagnostics};
use spile_syntax::visit::{Visitor, walk_expr};

use super::mentions::Mentions;
use super::resolve::{AliasLayer, ResolvedPoint};
use crate::codes;
use crate::library::Library;
use spile_glob::is_pattern;

/// Reports reads of missing variables of the aliases that a point went through.
pub(crate) fn aliases(lib: &Library, layer: &AliasLayer, m: &Mentions, diags: &mut Diagnostics) {
    for ix in &layer.stack {
        let alias = lib.alias_entry(*ix);
        if !alias.user {
            report(lib, layer, &alias.name, m, diags);
        }
    }
}

/// Reports reads of missing variables of system calls, by the call's own name or another.
pub(crate) fn calls(
    lib: &Library,
    resolved: &ResolvedPoint,
    names: &[&str],
    ret: bool,
    m: &Mentions,
    diags: &mut Diagnostics,
) {
    // Usually there are none, and a point may match all calls.
    if !m
        .reads
        .iter()
        .any(|name| lib.missing().lacks_call_variable(name))
    {
        return;
    }
    let end = if ret { ".return" } else { "" };
    if !is_pattern(&resolved.point) {
        return report(lib, &resolved.layer, &resolved.point, m, diags);
    }
    for name in names {
        let alias = format!("{}.{name}{end}", resolved.family);
        report(lib, &resolved.layer, &alias, m, diags);
    }
}

fn report(lib: &Library, layer: &AliasLayer, alias: &str, m: &Mentions, diags: &mut Diagnostics) {
    let mut names: Vec<(&Name, &str)> = (m.reads.iter())
        .filter(|name| !m.writes.contains(*name))
        .filter_map(|name| Some((name, lib.missing().lacks(alias, name)?)))
        .collect();
    names.sort();
    for (name, why) in names {
        let text = format!("`{name}` of `{alias}` is not available");
        // Handlers of calls of both tables can come from one point.
        if diags.iter().any(|d| d.message == text) {
            continue;
        }
        let mut read = FirstRead { name, span: None };
        let parts = layer.parts.iter().filter(|p| lib.is_user(p.file));
        parts.for_each(|p| read.block(&p.body));
        let conditions = layer.conditions.iter().filter(|(_, f)| lib.is_user(*f));
        conditions.for_each(|(c, _)| read.expr(c));
        let Some(span) = read.span else { continue };
        diags.push(
            Diagnostic::error(codes::NOT_SET, text)
                .label(
                    span,
                    "SystemTap sets it, and here it would always be 0 or \"\"",
                )
                .note(why)
                .help(format!("`-L '{alias}'` shows the available variables")),
        );
    }
}

/// The first read of a variable.
struct FirstRead<'a> {
    name: &'a Name,
    span: Option<Span>,
}

impl Visitor for FirstRead<'_> {
    fn expr(&mut self, e: &Expr) {
        if self.span.is_none() && matches!(&e.kind, ExprKind::Var(name) if name == self.name) {
            self.span = Some(e.span);
        }
        walk_expr(self, e);
    }
}
