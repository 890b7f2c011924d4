//! From [`ResolvedPoint`] events to [`ProbeHandler`]s.
//!
//! System calls that one point matches share a handler where the bodies mean the same: all
//! variables that they mention stand for the same argument of the same kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use spile_cast::Cast;
use spile_ir::{Event, NrSet};
use spile_syntax::ast::{BinOp, Expr, FileId, LiteralBytes, Name, Span};
use spile_syntax::diag::{Diagnostic, Diagnostics};
use spile_syscalls::Syscall;

use super::code;
use super::context::{self, BoundCall, ExprBuilder, PlainBinding};
use super::handler::{HandlerContext, HandlerKind, PlainVar, ProbeHandler};
use super::mentions::Mentions;
use super::missing;
use super::resolve::{PointSearch, ResolvedPoint};
use crate::codes;
use crate::facts::Facts;
use crate::families::{CodeMatch, PointMatch};
use crate::library::Library;

/// The name of the constant table from numbers as in [`NrSet`] to the names that probe points use.
/// Handlers of several system calls read `name` from it.
pub const PROBE_NAME_TABLE: &str = "syscall_probe";

/// Entries of a table of system call names, by numbers as in [`NrSet`]: the kernel's names
/// (`syscall`), or those of [`PROBE_NAME_TABLE`]. `None` for any other table.
pub fn syscall_table(facts: &dyn Facts, table: &str) -> Option<Vec<LiteralBytes>> {
    let name = match table {
        PROBE_NAME_TABLE => |c: &Syscall| c.probe.as_bytes().into(),
        "syscall" => |c: &Syscall| c.name.as_bytes().into(),
        _ => return None,
    };
    let calls = facts.syscalls();
    let len = calls.iter().map(|c| c.nr as usize + 1).max();
    let len = len.unwrap_or(0).min(1 << 16);
    let mut table: Vec<LiteralBytes> = vec![LiteralBytes::from(&b""[..]); len];
    for c in calls {
        if let Some(slot) = table.get_mut(c.nr as usize) {
            *slot = name(c);
        }
    }
    Some(table)
}

/// Resolves all probes of the user's files, in the order of the files and within them. Errors go to
/// `diags`; a script without any probe is one.
pub fn resolve_script(
    lib: &Library,
    facts: &dyn Facts,
    diags: &mut Diagnostics,
) -> Vec<ProbeHandler> {
    let mut derived = Vec::new();
    let mut unmatched = Vec::new();
    for (file, user) in lib.file_ids() {
        if user {
            let (handlers, without) = resolve_probes(lib, facts, file, diags);
            derived.extend(handlers);
            unmatched.extend(without);
        }
    }
    if derived.is_empty() && !diags.has_errors() {
        diags.push(no_probes(unmatched));
    }
    derived
}

/// The error of a script without an event; `unmatched` are its optional points.
fn no_probes(mut unmatched: Vec<String>) -> Diagnostic {
    const SHOWN: usize = 8;
    let d = Diagnostic::error(codes::NO_PROBES, "the script has no probe to run");
    unmatched.sort();
    unmatched.dedup();
    if unmatched.is_empty() {
        return d.help("write one: `probe begin { println(\"hello\") exit() }`");
    }
    let more = unmatched.len().saturating_sub(SHOWN);
    let mut names: Vec<String> = unmatched.iter().map(|p| format!("`{p}`")).collect();
    names.truncate(SHOWN);
    if more > 0 {
        names.push(format!("{more} others"));
    }
    let names = names.join(", ");
    d.note(format!("these optional points match nothing: {names}"))
        .help("without its `?` or `!`, a point says why it does not exist")
}

/// Resolves the probes of one file; for a library file, when one of its items is first used.
pub fn resolve_file(
    lib: &Library,
    facts: &dyn Facts,
    file: FileId,
    diags: &mut Diagnostics,
) -> Vec<ProbeHandler> {
    resolve_probes(lib, facts, file, diags).0
}

/// As [`resolve_file`], with the optional points that match nothing.
fn resolve_probes(
    lib: &Library,
    facts: &dyn Facts,
    file: FileId,
    diags: &mut Diagnostics,
) -> (Vec<ProbeHandler>, Vec<String>) {
    let mut derived = Vec::new();
    let mut unmatched = Vec::new();
    for probe in lib.probes(file) {
        let mut search = PointSearch::new(lib, facts);
        for d in search.probe_of_any_release(&probe.points, &probe.part) {
            diags.push(d);
        }
        for d in search.warnings {
            // One of these speaks for all libraries.
            let again = |known: &Diagnostic| d.code == codes::ALL_PROCESSES && known.code == d.code;
            if !diags.iter().any(again) {
                diags.push(d);
            }
        }
        for resolved in search.points {
            derive(lib, facts, resolved, &mut derived, diags);
        }
        unmatched.append(&mut search.unmatched);
    }
    (derived, unmatched)
}

fn derive(
    lib: &Library,
    facts: &dyn Facts,
    resolved: ResolvedPoint,
    out: &mut Vec<ProbeHandler>,
    diags: &mut Diagnostics,
) {
    let layer = &resolved.layer;
    let mut mentions = Mentions::default();
    layer.parts.iter().for_each(|p| mentions.part(lib, p));
    let conditions = layer.conditions.iter();
    conditions.for_each(|(c, file)| mentions.condition(lib, c, *file));
    missing::aliases(lib, layer, &mentions, diags);
    let mut derivation = Derivation {
        lib,
        facts,
        resolved: &resolved,
        mentions,
        out,
    };
    match &resolved.hit {
        PointMatch::Event { event, point, ctx } => {
            derivation.push(event.clone(), point.clone(), ctx.clone(), 1);
        }
        PointMatch::Trace { name, system } => derivation.tracepoint(name, system.as_ref()),
        PointMatch::SyscallAny { ret } => derivation.any_syscall(*ret),
        PointMatch::Syscalls { calls, ret } => derivation.syscalls(calls, *ret, diags),
        PointMatch::Code(hit) => derivation.code(hit),
    }
}

/// Makes the handlers of one resolved point.
struct Derivation<'a> {
    lib: &'a Library,
    facts: &'a dyn Facts,
    resolved: &'a ResolvedPoint,
    /// The names in the bodies and conditions.
    mentions: Mentions,
    out: &'a mut Vec<ProbeHandler>,
}

impl Derivation<'_> {
    /// Adds a handler that serves this number of points. `shown` is its point.
    fn push(&mut self, event: Event, shown: String, ctx: HandlerContext, points: u32) {
        let layer = &self.resolved.layer;
        let pattern = layer.shown.clone();
        self.out.push(ProbeHandler {
            event,
            name: layer.alias.clone().unwrap_or_else(|| shown.as_str().into()),
            pattern: pattern.unwrap_or_else(|| self.resolved.point.as_str().into()),
            point: layer.shown.clone().unwrap_or_else(|| shown.into()),
            conditions: layer.conditions.clone(),
            parts: layer.parts.clone(),
            ctx,
            span: layer.span,
            points,
        });
    }

    fn tracepoint(&mut self, name: &Arc<str>, system: Option<&Arc<str>>) {
        let m = &self.mentions;
        let asked = || m.system.then(|| self.facts.tracepoint_system(name))?;
        let system = system.cloned().or_else(asked);
        let shown = match &system {
            Some(s) => format!("kernel.trace(\"{s}:{name}\")"),
            None => format!("kernel.trace(\"{name}\")"),
        };
        let (event, ctx) = context::tracepoint(self.facts, name, system, m);
        self.push(event, shown, ctx, 1);
    }

    fn any_syscall(&mut self, ret: bool) {
        let layer = &self.resolved.layer;
        let ctx = context::syscall_any(&self.mentions, ret, layer.shown.is_some(), layer.span);
        let event = syscall_event(NrSet::All, ret);
        self.push(event, self.resolved.point.clone(), ctx, 1);
    }

    fn syscalls(&mut self, calls: &[usize], ret: bool, diags: &mut Diagnostics) {
        let (resolved, span) = (self.resolved, self.resolved.layer.span);
        let family = &resolved.family;
        for group in groups(self.facts, calls, &self.mentions, ret) {
            report_text_only(&group, &self.mentions, ret, span, diags);
            missing::calls(self.lib, resolved, &group.names, ret, &self.mentions, diags);
            let shown = match &*group.names {
                [one] if ret => format!("{family}.{one}.return"),
                [one] => format!("{family}.{one}"),
                _ => resolved.point.clone(),
            };
            let ctx = group_context(&group, &self.mentions, ret, span);
            let event = syscall_event(NrSet::List(group.nrs), ret);
            self.push(event, shown, ctx, group.names.len().fit::<u32>());
        }
    }

    fn code(&mut self, hit: &CodeMatch) {
        for group in code::groups(self.facts, hit, &self.mentions) {
            let locations = &group.sites;
            let shown = match **locations {
                [one] => hit.point(one),
                _ => self.resolved.point.clone(),
            };
            let points = locations.len().fit::<u32>();
            let layer = &self.resolved.layer;
            let event = code::event(hit, &group, layer.lenient);
            let caller_test = group.condition(layer.span);
            self.push(event, shown, code::context(hit, group), points);
            let file = layer.parts.first().map(|part| part.file);
            if let (Some(caller_test), Some(file), Some(handler)) =
                (caller_test, file, self.out.last_mut())
            {
                handler.conditions.insert(0, (Arc::new(caller_test), file));
            }
        }
    }
}

/// The event of system calls.
fn syscall_event(nrs: NrSet, ret: bool) -> Event {
    match ret {
        true => Event::SysExit(nrs),
        false => Event::SysEnter(nrs),
    }
}

/// System calls that share a handler.
struct SyscallGroup<'a> {
    /// One of them.
    first: &'a Syscall,
    /// Their numbers, ascending.
    nrs: Vec<u32>,
    /// Their names in probe points, sorted.
    names: Vec<&'static str>,
    /// Whether the kernel's own names are the same.
    own_names: bool,
    /// Those that have the name of another call if an argument is 0.
    bare: Vec<BareName>,
    /// The mentioned variables, with their meaning.
    binds: Vec<(Name, PlainBinding)>,
}

/// A call that has the name of another one if an argument is 0: `signalfd4` without flags.
struct BareName {
    /// The number of the call.
    nr: u32,
    /// The word of the argument, an `int`.
    word: u8,
    /// The number of the other call.
    other: u32,
    /// Its name.
    name: &'static str,
}

impl BareName {
    fn of(call: &Syscall, calls: &[Syscall]) -> Option<BareName> {
        let word = call.bare?;
        let other = calls
            .iter()
            .find(|c| c.name == call.point && c.is_compat() == call.is_compat())?;
        Some(BareName {
            nr: call.nr,
            word,
            other: other.nr,
            name: other.probe,
        })
    }
}

/// Maximum number of calls that are looked up one by one.
const FEW: usize = 8;

/// Variables that all system calls have; an argument of the same name is not a variable.
const FIXED: &[&str] = &["name", "argstr", "retval", "retstr", "errno"];

/// The properties that are equal within a group.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct SyscallGroupKey {
    binds: Vec<String>,
    point: &'static str,
}

/// Groups the calls by the meaning of the bodies, in the order of their first call.
fn groups<'a>(
    facts: &'a dyn Facts,
    calls: &[usize],
    m: &Mentions,
    ret: bool,
) -> Vec<SyscallGroup<'a>> {
    let syscalls = facts.syscalls();
    // On return the arguments are an addition to SystemTap's variables, so a script's own variable
    // of the same name comes first.
    let assigned = |n: &Name| ret && m.writes.contains(n);
    let fixed = |n: &Name| FIXED.contains(&&**n);
    let mut reads: Vec<&Name> = m
        .reads
        .iter()
        .filter(|n| !assigned(n) && !fixed(n))
        .collect();
    reads.sort();
    let mut targets: Vec<&str> = m.targets.iter().map(|t| &**t).collect();
    targets.sort_unstable();
    let natives = || syscalls.iter().filter(|c| !c.is_compat());
    // For a few calls a table costs more than it saves.
    let table: Option<FxHashMap<&str, &Syscall>> =
        (calls.len() > FEW).then(|| natives().map(|c| (c.probe, c)).collect());
    let native = |probe: &str| match &table {
        Some(table) => table.get(probe).copied(),
        None => natives().find(|c| c.probe == probe),
    };
    let mut order: BTreeMap<SyscallGroupKey, usize> = BTreeMap::new();
    let mut list: Vec<SyscallGroup<'a>> = Vec::new();
    for call in calls.iter().filter_map(|i| syscalls.get(*i)) {
        let like = call.is_compat().then(|| native(call.probe)).flatten();
        let meaning = BoundCall { call, native: like };
        let binds: Vec<(Name, PlainBinding)> = reads
            .iter()
            .map(|n| ((*n).clone(), meaning.bind(n, ret)))
            .collect();
        let key = SyscallGroupKey {
            binds: key_text(meaning, &binds, &targets, m.all_targets),
            point: if m.point { call.probe } else { "" },
        };
        let index = *order.entry(key).or_insert(list.len());
        if index == list.len() {
            list.push(SyscallGroup {
                first: call,
                nrs: Vec::new(),
                names: Vec::new(),
                own_names: true,
                bare: Vec::new(),
                binds,
            });
        }
        let group = &mut list[index];
        group.nrs.push(call.nr);
        if [NrSet::SOCKETCALL, NrSet::IPC].contains(&call.nr) {
            group.nrs.extend(unselected_parts(syscalls, calls, call.nr));
        }
        let bare = BareName::of(call, syscalls);
        group.own_names &= call.name == call.probe && bare.is_none();
        group.bare.extend(bare);
        group.names.push(call.probe);
    }
    for g in &mut list {
        g.nrs.sort_unstable();
        g.nrs.dedup();
        g.names.sort_unstable();
        g.names.dedup();
    }
    list
}

/// What a handler of `socketcall` or `ipc` hits besides it: the parts of which the point does not select the call
/// that they stand for. So a hit counts once for each point.
fn unselected_parts(
    calls: &[Syscall],
    selected: &[usize],
    whole: u32,
) -> impl Iterator<Item = u32> {
    let parts = calls.iter().enumerate();
    let parts = parts.filter(move |(_, call)| NrSet::whole(call.nr) == Some(whole));
    let others = parts.filter(|(i, _)| !selected.contains(i));
    others.map(|(_, call)| call.nr + NrSet::WHOLE)
}

fn key_text(
    meaning: BoundCall<'_>,
    binds: &[(Name, PlainBinding)],
    targets: &[&str],
    all_targets: bool,
) -> Vec<String> {
    let bound = binds
        .iter()
        .filter(|(_, b)| *b != PlainBinding::Absent)
        .map(|b| format!("{b:?}"));
    let args = meaning
        .call
        .args
        .iter()
        .filter(|a| all_targets || targets.contains(&a.kernel_name))
        .map(|a| format!("${}:{}:{:?}", a.kernel_name, a.word, meaning.kind(a)));
    bound.chain(args).collect()
}

/// The variable `name` of a group's calls.
fn call_name(g: &SyscallGroup<'_>, single: Option<&'static str>, make: &ExprBuilder) -> Expr {
    if let Some(one) = single {
        let other = g.bare.first().map(|b| (b.word, b.name));
        return other.map_or(make.string(one), |(word, name)| {
            make.unless_zero(word, make.string(one), make.string(name))
        });
    }
    if g.own_names {
        return make.call("__sys_name", Vec::new());
    }
    let nr = || make.call("__sys_nr", Vec::new());
    let number = g.bare.iter().fold(nr(), |otherwise, b| {
        let named = make.unless_zero(b.word, nr(), make.num(b.other.into()));
        make.choose(make.bin(BinOp::Eq, nr(), b.nr.into()), named, otherwise)
    });
    make.call("__table", vec![make.string(PROBE_NAME_TABLE), number])
}

fn group_context(g: &SyscallGroup<'_>, m: &Mentions, ret: bool, span: Span) -> HandlerContext {
    let make = ExprBuilder(span);
    let single = match &*g.names {
        [one] => Some(*one),
        _ => None,
    };
    let mut predefined = vec![("name", call_name(g, single, &make))];
    if ret {
        let result = || make.call("__sys_ret", Vec::new());
        predefined.push(("retval", result()));
        predefined.push(("retstr", make.call("__sys_retstr", Vec::new())));
        if !m.writes.contains("errno") {
            predefined.push(("errno", make.call("__errno_of", vec![result()])));
        }
    } else {
        predefined.push(("argstr", make.call("__sys_argstr", Vec::new())));
    }
    let mut vars = context::read_vars(m, predefined);
    vars.extend(g.binds.iter().filter_map(|(name, b)| {
        let (name, init) = (name.clone(), make.value(b)?);
        Some(PlainVar { name, init })
    }));
    let keep = |t: &str| single.is_some() || m.all_targets || m.targets.contains(t);
    HandlerContext {
        vars,
        targets: context::call_targets(g.first, ret, keep),
        name: single.map(Arc::from),
        ..HandlerContext::empty(HandlerKind::of_syscalls(ret))
    }
}

/// Reports reads of variables whose text only `argstr` has.
fn report_text_only(
    g: &SyscallGroup<'_>,
    m: &Mentions,
    ret: bool,
    span: Span,
    diags: &mut Diagnostics,
) {
    for (name, b) in &g.binds {
        // Texts are made at the entry.
        let absent = *b == PlainBinding::TextOnly || ret && b.of_entry();
        if absent && !m.writes.contains(name) {
            let text = format!("`{name}` of `{}` is not available yet", g.first.probe);
            let d = Diagnostic::error(codes::TEXT_ONLY, text).at(span);
            diags.push(d.help("`argstr` has all arguments as text"));
        }
    }
}
