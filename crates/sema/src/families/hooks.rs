//! `netfilter` and `lsm`: hooks in the kernel where BPF programs run, for each packet, and for each
//! decision of a security module.

use std::sync::Arc;

use spile_ir::{BinOp, Event, Netfilter};
use spile_syntax::ast::{Component, Literal};
use spile_syntax::diag::{DiagResult, Diagnostic};
use spile_syntax::pretty::point_text;

use super::kinds::PointMatch;
use crate::codes;
use crate::ctype::CTy;
use crate::facts::{Facts, LocOp, TypeFacts, VarKind, VarLocation};
use crate::probe::handler::{HandlerContext, HandlerKind, TargetSource, TargetVar};
use crate::probe::point::{bad_argument, named, number_of, string_of};

/// Protocol families (`linux/netfilter.h`), and whether BPF programs can attach there.
const FAMILIES: &[(&str, u32, bool)] = &[
    ("NFPROTO_IPV4", 2, true),
    ("PF_INET", 2, true),
    ("NFPROTO_IPV6", 10, true),
    ("PF_INET6", 10, true),
    ("NFPROTO_ARP", 3, false),
    ("NFPROTO_BRIDGE", 7, false),
    ("PF_BRIDGE", 7, false),
];

/// Hooks of both families, without `NF_INET_`, `NF_IP_` or `NF_IP6_`.
const HOOKS: &[&str] = &[
    "PRE_ROUTING",
    "LOCAL_IN",
    "FORWARD",
    "LOCAL_OUT",
    "POST_ROUTING",
];

/// Names of priorities, without `NF_IP_PRI_` or `NF_IP6_PRI_` (`linux/netfilter_ipv4.h`). The
/// kernel reserves the lowest and the highest value, so the first and the last are next to them.
const PRIORITIES: &[(&str, i32)] = &[
    ("FIRST", i32::MIN + 1),
    ("RAW_BEFORE_DEFRAG", -450),
    ("CONNTRACK_DEFRAG", -400),
    ("RAW", -300),
    ("SELINUX_FIRST", -225),
    ("CONNTRACK", -200),
    ("MANGLE", -150),
    ("NAT_DST", -100),
    ("FILTER", 0),
    ("SECURITY", 50),
    ("NAT_SRC", 100),
    ("SELINUX_LAST", 225),
    ("CONNTRACK_HELPER", 300),
    ("CONNTRACK_CONFIRM", i32::MAX - 1),
    ("LAST", i32::MAX - 1),
];

fn literal(c: &Component) -> Arc<str> {
    string_of(c).unwrap_or_default()
}

/// A netfilter hook.
pub(super) fn netfilter(facts: &dyn Facts, comps: &[Component]) -> DiagResult<Vec<PointMatch>> {
    let (Some(hook), Some(pf)) = (named(comps, "hook"), named(comps, "pf")) else {
        return Ok(Vec::new());
    };
    let location = Netfilter {
        pf: family(facts, pf)?,
        hook: hook_number(facts, hook)?,
        priority: named(comps, "priority").map_or(Ok(0), priority)?,
    };
    let event = Event::Netfilter(location);
    let point = point_text(comps);
    let ctx = context(literal(hook), packet(facts));
    Ok(vec![PointMatch::Event { event, point, ctx }])
}

/// The context of a hook with the arguments that the kernel passes.
fn context(name: Arc<str>, targets: Vec<TargetVar>) -> HandlerContext {
    HandlerContext {
        targets,
        name: Some(name),
        ..HandlerContext::empty(HandlerKind::Hook)
    }
}

/// The number that a text is, or that the kernel's types give a constant of this name.
fn constant(facts: &dyn TypeFacts, text: &str) -> Option<u32> {
    let number = text.parse().ok().or_else(|| facts.enum_constant(text));
    number.and_then(|n: i64| u32::try_from(n).ok())
}

fn family(facts: &dyn TypeFacts, c: &Component) -> DiagResult<u32> {
    let text = literal(c);
    let known = FAMILIES.iter().find(|(name, ..)| **name == *text);
    let by_name = known.map(|(_, number, attachable)| (*number, *attachable));
    let by_number = || {
        let number = constant(facts, &text)?;
        let attachable = FAMILIES
            .iter()
            .any(|(_, n, attachable)| *n == number && *attachable);
        Some((number, attachable))
    };
    match by_name.or_else(by_number) {
        Some((number, true)) => Ok(number),
        Some(_) => {
            let text = format!("programs cannot be attached to hooks of {text}");
            let d = Diagnostic::error(codes::BAD_ARGUMENT, text).at(c.span);
            let accepted =
                "the kernel accepts BPF programs only at hooks of NFPROTO_IPV4 and NFPROTO_IPV6";
            d.note(accepted).err()
        }
        None => Err(bad_argument(c, "\"NFPROTO_IPV4\" or \"NFPROTO_IPV6\"")),
    }
}

fn hook_number(facts: &dyn TypeFacts, c: &Component) -> DiagResult<u32> {
    let text = literal(c);
    let prefixes = ["NF_INET_", "NF_IP_", "NF_IP6_"];
    let short = prefixes.iter().find_map(|p| text.strip_prefix(p));
    let index = short.and_then(|short| HOOKS.iter().position(|h| *h == short));
    let number = index.and_then(|index| u32::try_from(index).ok());
    let by_number = || constant(facts, &text).filter(|n| (*n as usize) < HOOKS.len());
    number.or_else(by_number).ok_or_else(|| {
        let names: Vec<String> = HOOKS.iter().map(|h| format!("NF_INET_{h}")).collect();
        let d = bad_argument(c, "the name of a hook");
        let d = d.did_you_mean(&text, names.iter().map(String::as_str));
        Box::new(d.note(format!("there are {}", names.join(", "))))
    })
}

fn priority(c: &Component) -> DiagResult<i32> {
    let text = literal(c);
    let short = ["NF_IP_PRI_", "NF_IP6_PRI_"]
        .iter()
        .find_map(|p| text.strip_prefix(p));
    let by_name = short.and_then(|short| PRIORITIES.iter().find(|(name, _)| *name == short));
    let number = match (by_name, &c.arg) {
        (Some((_, n)), _) => Some(*n),
        (None, Some(Literal::Num(_))) => number_of(c),
        (None, _) => text.parse().ok(),
    };
    let number = number.filter(|n| *n != i32::MIN && *n != i32::MAX);
    number.ok_or_else(|| bad_argument(c, "a number of 32 bits, or a name such as NF_IP_PRI_FILTER"))
}

fn target(name: &str, ops: Vec<LocOp>, ty: CTy) -> TargetVar {
    let source = match ops[..] {
        [LocOp::Arg(n)] => TargetSource::CtxArg(n),
        _ => TargetSource::Loc(Arc::new(VarLocation::Value(ops))),
    };
    TargetVar::parameter(name.into(), source, ty)
}

/// The variables of a packet at a hook: the context is a `struct bpf_nf_ctx`, the hook's state
/// and the packet.
fn packet(facts: &dyn TypeFacts) -> Vec<TargetVar> {
    const STATE: u8 = 0;
    const SKB: u8 = 1;
    let pointer = |name: &str| {
        let id = facts.type_by_name(name);
        id.map_or(CTy::int(8, false), |id| CTy::id(id).pointer())
    };
    let verdict = TargetVar::parameter("verdict".into(), TargetSource::Verdict, CTy::int(4, true));
    let mut targets = vec![
        target("skb", vec![LocOp::Arg(SKB)], pointer("sk_buff")),
        target("state", vec![LocOp::Arg(STATE)], pointer("nf_hook_state")),
        TargetVar {
            kind: VarKind::Local,
            ..verdict
        },
    ];
    let members = [
        ("hook", "hooknum"),
        ("pf", "pf"),
        ("in", "in"),
        ("out", "out"),
    ];
    let state = facts.type_by_name("nf_hook_state");
    for (member, name) in members {
        let Some(m) = state.and_then(|id| facts.member(id, member)) else {
            continue;
        };
        let size = if matches!(name, "in" | "out") { 8 } else { 1 };
        let ops = vec![
            LocOp::Arg(STATE),
            LocOp::Const(i64::from(m.bit_offset / 8)),
            LocOp::Bin(BinOp::Add),
            LocOp::Load {
                size,
                signed: false,
            },
        ];
        targets.push(target(name, ops, CTy::id(m.ty)));
    }
    targets
}

/// Hooks of security modules.
pub(super) fn lsm(facts: &dyn Facts, comps: &[Component]) -> DiagResult<Vec<PointMatch>> {
    let Some((c, before)) = comps.split_last() else {
        return Ok(Vec::new());
    };
    let family = match before.is_empty() {
        true => "lsm",
        false => "kernel.lsm",
    };
    let pattern = literal(c);
    let hooks = facts.lsm_hooks(&pattern);
    if hooks.is_empty() {
        let text = format!("the kernel has no LSM hook `{pattern}` that programs can attach to");
        let d = Diagnostic::error(codes::NO_LOCATION, text).at(c.span);
        return super::no_such_name(d, &pattern, &pattern, |start| facts.lsm_hooks(start));
    }
    let hit = |name: Arc<str>| {
        let hook = facts.lsm_hook(&name);
        let decides = hook.as_ref().is_some_and(|h| h.decides);
        let mut targets = TargetVar::arguments(hook.map(|h| h.args).unwrap_or_default());
        if decides {
            let (source, ty) = (TargetSource::Decision, CTy::int(4, true));
            targets.push(TargetVar {
                kind: VarKind::Return,
                ..TargetVar::parameter("return".into(), source, ty)
            });
        }
        PointMatch::Event {
            event: Event::Lsm(name.clone()),
            point: format!("{family}(\"{name}\")"),
            ctx: context(name, targets),
        }
    };
    Ok(hooks.into_iter().map(hit).collect())
}
