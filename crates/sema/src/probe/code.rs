//! From locations in code to handlers. Locations share a handler if all variables that the bodies mention
//! have the same type and location there.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use spile_ir::{CodeLocation, CodeProbe, CodeSite, Event, OptionalSites, Space};

use spile_syntax::ast::{Expr, ExprKind, Pretty, Span};

use super::handler::{HandlerContext, HandlerKind, SiteNames, TargetSource, TargetVar};
use super::mentions::Mentions;
use crate::ctype::CTy;
use crate::facts::{COUNT_OF, CTypeId, Facts, LocOp, ProbeModule, VarKind, VarLocation, Variable};
use crate::families::{CodeMatch, MatchedLocation};

/// Locations that share a handler.
pub(crate) struct LocationGroup<'h> {
    /// The locations.
    pub sites: Vec<&'h MatchedLocation>,
    /// The number of each location among all locations of the point.
    numbers: Vec<u32>,
    pid: Option<u32>,
    targets: Vec<TargetVar>,
    module: Option<ProbeModule>,
    missing: Option<Arc<str>>,
    names: Option<Arc<SiteNames>>,
    provider: Option<Arc<str>>,
    callers: Option<Arc<VarLocation>>,
}

/// The properties that are equal within a group.
#[derive(PartialEq, Eq, Hash)]
struct LocationGroupKey<'h> {
    pid: Option<u32>,
    module: Option<&'h ProbeModule>,
    variables: Vec<Mentioned>,
    /// The provider of a marker, where it is visible.
    provider: Option<Arc<str>>,
    /// Whether it is a kernel function that is attached through ftrace with all others.
    at_once: bool,
    /// `Some` at return instructions: whether goroutines call the function, and whether it shares
    /// exits with others.
    exits: Option<(bool, bool)>,
    /// The test of a callee's callers.
    callers: Option<Arc<VarLocation>>,
}

/// A variable that the bodies mention, as it is at a location.
#[derive(PartialEq, Eq, Hash)]
struct Mentioned {
    name: Arc<str>,
    ty: CTypeId,
    kind: VarKind,
    loc: Arc<VarLocation>,
}

/// Whether a location is attached together with others, as kernel functions are through ftrace.
pub(crate) fn at_once(location: &CodeLocation) -> bool {
    matches!(
        location,
        CodeLocation::Symbol { offset: 0, .. } | CodeLocation::Traced(_)
    )
}

/// Groups the locations by the meaning of the bodies, in the order of their first location.
pub(crate) fn groups<'h>(
    facts: &dyn Facts,
    hit: &'h CodeMatch,
    m: &Mentions,
) -> Vec<LocationGroup<'h>> {
    let wanted = m.all_targets || !m.targets.is_empty();
    let mut order: FxHashMap<LocationGroupKey<'h>, usize> = FxHashMap::default();
    let mut list: Vec<LocationGroup<'h>> = Vec::new();
    // One table for all groups: locations that differ only by name share a handler.
    let names = m.point.then(|| {
        let locations = hit.locations.iter();
        Arc::new(SiteNames::new(
            locations.clone().map(|f| hit.point(f).into()).collect(),
            locations.map(|f| f.location.name.clone()).collect(),
        ))
    });
    for (number, matched) in (0..).zip(&hit.locations) {
        let module = &matched.module.module;
        let (variables, missing) = match wanted {
            true => variables_of(facts, hit, matched, m),
            false => (Vec::new(), None),
        };
        // A message about one location names the variables that exist.
        let exists = |t: &str| variables.iter().any(|v| *v.name == *t);
        let strange = hit.locations.len() == 1 && m.targets.iter().any(|t| !exists(t));
        let keeps_all = m.all_targets || strange;
        let mentioned = |v: &Variable| keeps_all || m.targets.contains(own_name(&v.name));
        let variables: Vec<_> = variables
            .into_iter()
            .filter(mentioned)
            .map(|v| Mentioned {
                name: v.name,
                ty: v.ty,
                kind: v.kind,
                loc: Arc::new(v.loc),
            })
            .collect();
        let key = LocationGroupKey {
            pid: matched.module.pid,
            module: (wanted || m.types).then_some(module),
            provider: matched.location.provider.clone().filter(|_| m.system),
            at_once: at_once(&matched.location.location),
            exits: matched
                .location
                .exits
                .as_ref()
                .map(|e| (e.goroutines, e.shared)),
            callers: matched.location.callers.clone(),
            variables,
        };
        let index = *order.entry(key).or_insert_with_key(|key| {
            list.push(LocationGroup {
                sites: Vec::new(),
                numbers: Vec::new(),
                pid: key.pid,
                targets: key.variables.iter().map(target).collect(),
                module: key.module.cloned(),
                missing,
                names: names.clone(),
                provider: key.provider.clone(),
                callers: key.callers.clone(),
            });
            list.len() - 1
        });
        list[index].sites.push(matched);
        list[index].numbers.push(number);
    }
    list
}

/// The variables at a location, and the reason if some of them are unknown. Local variables of blocks are looked up
/// only if a body mentions a name that is not in scope.
fn variables_of(
    facts: &dyn Facts,
    hit: &CodeMatch,
    matched: &MatchedLocation,
    m: &Mentions,
) -> (Vec<Variable>, Option<Arc<str>>) {
    let module = &matched.module.module;
    let in_scope = facts.location_variables(module, matched.location.id, hit.ret);
    let (mut variables, mut missing): (Vec<Variable>, Option<Arc<str>>) = match in_scope {
        Ok(variables) => (variables, None),
        Err(why) => (Vec::new(), Some(why.into())),
    };
    let named = |t: &str| variables.iter().any(|v| *v.name == *t);
    if m.all_targets || m.targets.iter().any(|t| !named(t)) {
        match facts.location_locals(module, &matched.location, hit.ret) {
            Ok(more) => {
                let names: Vec<_> = variables.iter().map(|v| v.name.clone()).collect();
                let more = more.into_iter().filter(|v| !names.contains(&v.name));
                variables.extend(more);
            }
            Err(why) => missing = missing.or(Some(why.into())),
        }
    }
    (variables, missing)
}

/// The name of a variable, or of the one whose type a hidden variable counts.
fn own_name(name: &str) -> &str {
    name.strip_prefix(COUNT_OF).unwrap_or(name)
}

fn target(variable: &Mentioned) -> TargetVar {
    let source = match &*variable.loc {
        VarLocation::Value(ops) if let [LocOp::Arg(n)] = ops[..] => TargetSource::CtxArg(n),
        _ => TargetSource::Loc(variable.loc.clone()),
    };
    TargetVar {
        name: variable.name.clone(),
        source,
        ty: CTy::id(variable.ty),
        kind: variable.kind,
    }
}

/// The name of the `$` variable that tests a callee's callers. No script can write it.
const CALLERS: &str = "(callers)";

impl LocationGroup<'_> {
    /// The condition that the point itself sets: the callers of a callee.
    pub(crate) fn condition(&self, span: Span) -> Option<Expr> {
        self.callers.as_ref()?;
        let kind = ExprKind::Target {
            name: format!("${CALLERS}").into(),
            access: Vec::new(),
            addr_of: false,
            pretty: Pretty::None,
        };
        Some(Expr { kind, span })
    }
}

/// The event of a group.
pub(crate) fn event(hit: &CodeMatch, group: &LocationGroup<'_>, optional: bool) -> Event {
    let site = |(matched, number): (&&MatchedLocation, &u32)| CodeSite {
        location: matched.location.location.clone(),
        semaphore: matched.location.semaphore,
        number: *number,
        exits: matched.location.exits.clone(),
    };
    Event::Code(CodeProbe {
        space: hit.space,
        ret: hit.ret,
        pid: group.pid,
        tree: hit.tree,
        optional_sites: match hit.several {
            _ if optional => OptionalSites::All,
            true => OptionalSites::Group,
            false => OptionalSites::Single,
        },
        sites: group.sites.iter().zip(&group.numbers).map(site).collect(),
    })
}

/// The context of a group.
pub(crate) fn context(hit: &CodeMatch, group: LocationGroup<'_>) -> HandlerContext {
    let single = match *group.sites {
        [one] => Some(&one.location),
        _ => None,
    };
    let mut targets = group.targets;
    targets.extend(group.callers.map(|loc| TargetVar {
        name: CALLERS.into(),
        source: TargetSource::Loc(loc),
        ty: CTy::LONG,
        kind: VarKind::Global,
    }));
    let addresses = group.sites.iter().map(|f| f.location.address);
    let addresses = group.numbers.iter().copied().zip(addresses).collect();
    HandlerContext {
        targets,
        addresses,
        name: single.map(|p| p.name.clone()),
        system: group.provider,
        sites: group.names,
        module: group.module,
        missing: group.missing,
        ..HandlerContext::empty(match hit.space {
            Space::User => HandlerKind::UserCode,
            Space::Kernel => HandlerKind::KernelCode,
        })
    }
}
