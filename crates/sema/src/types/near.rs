//! The names that a misspelt variable could have meant.

use spile_ir::{Event, NrSet};
use spile_syntax::diag::Diagnostic;

use super::hir::{Tree, Unit, UnitKind};
use crate::facts::MachineFacts;
use crate::probe::list::call_vars;

/// Adds the most similar name that a unit could read to the diagnostic for `name`, if there is one.
pub(crate) fn with_similar_variable(
    d: Diagnostic,
    name: &str,
    tree: &Tree,
    unit: &Unit,
    facts: &dyn MachineFacts,
) -> Diagnostic {
    if let Some(why) = super::resolve::unavailable::reason_of_global(name) {
        return d.help(why);
    }
    let globals = tree.globals.iter().filter(|g| g.user);
    // Aliases assign to their variables.
    let assigned = unit.locals.iter().filter(|l| l.written || l.param);
    let of_calls = call_variables(unit, facts);
    let near = globals
        .map(|g| &*g.name)
        .chain(assigned.map(|l| &*l.name))
        .chain(of_calls.iter().map(|n| &**n));
    d.did_you_mean(name, near)
}

/// The variables of the first system call that a handler serves. No local stands for those that the
/// script does not mention.
fn call_variables(unit: &Unit, facts: &dyn MachineFacts) -> Vec<String> {
    let UnitKind::Handler { event, .. } = &unit.kind else {
        return Vec::new();
    };
    let (calls, ret) = match event {
        Event::SysEnter(NrSet::List(calls)) => (calls, false),
        Event::SysExit(NrSet::List(calls)) => (calls, true),
        _ => return Vec::new(),
    };
    let served = |nr: u32| calls.contains(&nr);
    let Some(call) = facts.syscalls().iter().find(|c| served(c.nr)) else {
        return Vec::new();
    };
    let plain = call_vars(call, ret).into_iter().map(|(name, _)| name);
    let texts = call.args.iter().filter(|a| a.has_text());
    plain
        .chain(texts.map(|a| format!("{}_str", a.name)))
        .collect()
}
