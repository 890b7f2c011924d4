//! The components of a probe point: one by its name, and the argument of one.

use std::ops::RangeBounds;
use std::sync::Arc;

use spile_syntax::ast::{Component, Literal};
use spile_syntax::diag::{DiagResult, Diagnostic};

use crate::codes;
use crate::facts::{CodeFacts, FoundModule, ModuleQuery};

/// The first component of this name.
pub(crate) fn named<'c>(comps: &'c [Component], name: &str) -> Option<&'c Component> {
    comps.iter().find(|c| &*c.name == name)
}

/// The argument, if it is a string.
pub(crate) fn string_of(c: &Component) -> Option<Arc<str>> {
    match &c.arg {
        Some(Literal::Str(s)) => Some(String::from_utf8_lossy(s).into()),
        _ => None,
    }
}

/// The argument, if it is a number of this type.
pub(crate) fn number_of<N: TryFrom<i64>>(c: &Component) -> Option<N> {
    match c.arg {
        Some(Literal::Num(n)) => N::try_from(n).ok(),
        _ => None,
    }
}

/// The argument, which has to be a number in a range; `what` describes it.
pub(crate) fn number_in<N: TryFrom<i64> + PartialOrd>(
    c: &Component,
    range: impl RangeBounds<N>,
    what: &str,
) -> DiagResult<N> {
    let n = number_of(c).filter(|n| range.contains(n));
    n.ok_or_else(|| bad_argument(c, what))
}

/// The argument, which has to be a number above 0.
pub(crate) fn positive(c: &Component) -> DiagResult<u64> {
    number_in(c, 1.., "a number above 0")
}

/// The argument as the number of a process.
pub(crate) fn process_number(c: &Component) -> DiagResult<u32> {
    number_in(c, .., "the number of a process")
}

/// The error for an argument other than `what`.
pub(crate) fn bad_argument(c: &Component, what: &str) -> Box<Diagnostic> {
    let text = format!("`{}` needs {what}", c.name);
    Box::new(Diagnostic::error(codes::BAD_ARGUMENT, text).at(c.span))
}

/// The modules of a query that a component asks.
pub(crate) fn modules(
    facts: &dyn CodeFacts,
    query: &ModuleQuery,
    c: &Component,
) -> DiagResult<Vec<FoundModule>> {
    let modules = facts.modules(query);
    modules.map_err(|why| no_module(c, why))
}

/// The error for a component that names no module.
pub(crate) fn no_module(c: &Component, why: String) -> Box<Diagnostic> {
    Box::new(Diagnostic::error(codes::NO_MODULE, why).at(c.span))
}
