//! `perf.*` and `timer.profile`: perf events by number or name, of all processes or one, that
//! sample or only count.

use std::sync::Arc;

use spile_ir::{Event, HostKind, PerfScope, SamplingRate};
use spile_syntax::ast::{Component, Literal};
use spile_syntax::diag::{DiagResult, Diagnostic};
use spile_syntax::pretty::point_text;

use super::kinds::PointMatch;
use crate::codes;
use crate::ctype::CTy;
use crate::facts::{Facts, ModuleQuery};
use crate::probe::handler::{HandlerContext, HandlerKind, TargetSource, TargetVar};
use crate::probe::point::{bad_argument, modules, number_in, number_of, positive, string_of};
use spile_glob::matches_point;

/// PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK.
pub(super) fn cpu_clock(facts: &dyn Facts, hz: u64) -> Event {
    Event::Perf {
        ty: 1,
        config: 0,
        sample: SamplingRate::Freq(hz),
        scope: match facts.host() {
            HostKind::Kernel => PerfScope::All,
            HostKind::Process => PerfScope::Target,
        },
    }
}

/// The components after the event's name.
struct PerfOptions {
    sample: SamplingRate,
    scope: PerfScope,
    counter: Option<Arc<str>>,
    program: Option<Arc<str>>,
}

fn parse_options(facts: &dyn Facts, comps: &[Component]) -> DiagResult<PerfOptions> {
    let mut rest = PerfOptions {
        // SystemTap's default is one hit a million events.
        sample: SamplingRate::Period(1_000_000),
        scope: PerfScope::All,
        counter: None,
        program: None,
    };
    for c in comps.get(3..).unwrap_or_default() {
        match &*c.name {
            "sample" => rest.sample = SamplingRate::Period(positive(c)?),
            "hz" => rest.sample = SamplingRate::Freq(positive(c)?),
            "process" => {
                rest.scope = counted_processes(facts, c)?;
                rest.program = string_of(c);
            }
            "counter" => rest.counter = Some(text(c)?),
            _ => {}
        }
    }
    Ok(rest)
}

fn text(c: &Component) -> DiagResult<Arc<str>> {
    let text = string_of(c).filter(|s| !s.is_empty());
    text.ok_or_else(|| bad_argument(c, "a name"))
}

/// The processes whose events count. For a program, started now or later, a test in front of the
/// handler selects them.
fn counted_processes(facts: &dyn Facts, c: &Component) -> DiagResult<PerfScope> {
    match &c.arg {
        None => {
            modules(facts, &ModuleQuery::Target, c)?;
            Ok(PerfScope::Target)
        }
        Some(Literal::Num(_)) => Ok(PerfScope::Process(in_u32(c)?)),
        Some(Literal::Str(_)) => Ok(PerfScope::All),
    }
}

fn in_u32(c: &Component) -> DiagResult<u32> {
    number_in(c, .., "a number of 32 bits")
}

/// The component that names a program, if any.
pub(crate) fn program(comps: &[Component]) -> Option<&Component> {
    let counts = comps.iter().any(|c| &*c.name == "counter");
    comps
        .iter()
        .find(|c| &*c.name == "process" && matches!(c.arg, Some(Literal::Str(_))) && !counts)
}

/// An event by its numbers.
pub(super) fn resolve_raw(facts: &dyn Facts, comps: &[Component]) -> DiagResult<Vec<PointMatch>> {
    let (ty, config) = (comps.get(1), comps.get(2));
    let ty = ty.map_or(Ok(0), in_u32)?;
    let config = config.and_then(number_of::<i64>).unwrap_or(0);
    let options = parse_options(facts, comps)?;
    let point = point_text(comps);
    Ok(vec![perf_match(ty, config.cast_unsigned(), options, point)])
}

/// Events by name.
pub(super) fn resolve_named(facts: &dyn Facts, comps: &[Component]) -> DiagResult<Vec<PointMatch>> {
    let (Some(group), Some(name)) = (comps.get(1), comps.get(2)) else {
        return Ok(Vec::new());
    };
    let events = facts.perf_events();
    let in_group = || {
        events
            .iter()
            .filter(|e| matches_point(&group.name, e.group))
    };
    let mut hits = Vec::new();
    for e in in_group().filter(|e| matches_point(&name.name, &e.name)) {
        let mut point = format!("perf.{}.{}", e.group, e.name);
        if let Some(more @ [_, ..]) = comps.get(3..) {
            point = format!("{point}.{}", point_text(more));
        }
        let options = parse_options(facts, comps)?;
        hits.push(perf_match(e.ty, e.config, options, point));
    }
    if hits.is_empty() {
        let text = format!("there is no perf event `{}`", point_text(comps));
        let d = Diagnostic::error(codes::NO_PERF_EVENT, text).at(name.span);
        let near = in_group().map(|e| &*e.name);
        return d.did_you_mean(&name.name, near).err();
    }
    Ok(hits)
}

/// The variables of a sample, by the names of `struct bpf_perf_event_data`.
fn sample_variables() -> Vec<TargetVar> {
    let variable = |(name, n): (&str, u8)| {
        TargetVar::parameter(name.into(), TargetSource::CtxArg(n), CTy::LONG)
    };
    [("sample_period", 0), ("addr", 1)].map(variable).into()
}

fn perf_match(ty: u32, config: u64, rest: PerfOptions, point: String) -> PointMatch {
    let Some(name) = rest.counter else {
        let event = Event::Perf {
            ty,
            config,
            sample: rest.sample,
            scope: rest.scope,
        };
        let ctx = HandlerContext {
            targets: sample_variables(),
            ..HandlerContext::empty(HandlerKind::Perf)
        };
        return PointMatch::Event { event, point, ctx };
    };
    // The name of the program whose events the counter counts.
    let ctx = HandlerContext {
        name: rest.program,
        ..HandlerContext::empty(HandlerKind::Controller)
    };
    let event = Event::Counter { name, ty, config };
    PointMatch::Event { event, point, ctx }
}
