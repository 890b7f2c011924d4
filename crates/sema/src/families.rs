//! The built-in probe families, as one table: the form of their points, their documentation, their
//! events and their variables.
//!
//! Resolution ([`crate::probe::resolve`]), listings and `--dump-probe-types` all read it.

use std::sync::Arc;

use spile_ir::{Event, HostKind};
use spile_syntax::ast::Component;
use spile_syntax::diag::{DiagResult, Diagnostic};
use spile_syntax::pretty::point_text;
use spile_syscalls::Syscall;

pub(crate) use code::{CodeMatch, MatchedLocation};
pub use kinds::{ArgSpec, ComponentName, ComponentSpec, Family, SeenBy};
pub(crate) use kinds::{EventMaker, PointMatch};
pub(crate) use table::CALL_FAMILIES;
pub use table::FAMILIES;
use table::S;

use crate::codes;
use crate::facts::{Facts, MachineFacts, ModuleQuery, ProbeModule};
use crate::probe::point::{bad_argument, modules, number_in, number_of, positive, string_of};
use spile_glob::{is_pattern, matches, matches_point};

mod code;
mod data;
mod hooks;
mod kinds;
pub(crate) mod perf;
mod procfs;
mod table;

/// The way out for what only the kernel has, in a session that runs in its target's processes.
pub(crate) const ONLY_KERNEL: &str = "run as root, with --runtime=kernel";

/// Maximum of `.maxactive`.
const MAX_ACTIVE: i64 = 65_535;

/// The way out for probes of Python's functions.
const PYTHON: &str = "`python.function.entry` and `python.function.return` have funcname, filename and lineno of each function \
                      that a Python with markers runs; test these for one function";

/// Families that only SystemTap has, by their first words, and the way out.
pub(crate) static ABSENT: &[(&[&str], &str)] = &[
    (
        &["kernel", "inline"],
        "probes of inlined functions are not available yet",
    ),
    (
        &["process"],
        "the probes of processes are `.function`, `.statement`, `.mark`, `.plt`, `.begin`, `.end`, `.thread`, `.syscall` and `.data`",
    ),
    (&["python2"], PYTHON),
    (&["python3"], PYTHON),
    (
        &["java"],
        "the markers of a JVM have the names of its methods: `process(\"/PATH/libjvm.so\").mark(\"method__entry\")`, with \
         `java -XX:+DTraceMethodProbes`",
    ),
    (
        &["netfilter"],
        "the netfilter probes are `.hook(\"NAME\").pf(\"NAME\")`, and aliases such as `netfilter.ipv4.local_in`",
    ),
    (&["lsm"], "name the hook, as in `lsm(\"file_open\")`"),
];

/// The result of comparing a point's components with a family.
pub(crate) enum FamilyMatch<'a> {
    /// They match; the option that follows, if any.
    Yes(Option<&'a Component>),
    /// They match up to this component, which has a wrong argument.
    BadArg(&'a Component, ArgSpec),
    /// They match, but this component follows.
    Extra(&'a Component),
    /// They do not match.
    No,
}

impl Family {
    /// `timer.ms(N)`, as the documentation writes it.
    pub fn text(&self) -> String {
        let comps: Vec<String> = self.comps.iter().map(ComponentSpec::text).collect();
        let mut text = comps.join(".");
        let options: Vec<String> = self.options.iter().map(ComponentSpec::text).collect();
        if !options.is_empty() {
            text.push_str(&format!("[.{}]", options.join("|.")));
        }
        text
    }

    /// Compares a point's components with the family. Wildcards match words that need no argument.
    pub(crate) fn matches<'a>(&self, comps: &'a [Component]) -> FamilyMatch<'a> {
        if comps.len() < self.comps.len() {
            return FamilyMatch::No;
        }
        let (head, tail) = comps.split_at(self.comps.len());
        for (have, want) in head.iter().zip(self.comps) {
            let fits = |word: &str| {
                *have.name == *word || is_pattern(&have.name) && matches_point(&have.name, word)
            };
            if !want.word().is_none_or(fits) {
                return FamilyMatch::No;
            }
        }
        for (have, want) in head.iter().zip(self.comps) {
            if !want.1.fits(have) {
                return match is_pattern(&have.name) {
                    true => FamilyMatch::No,
                    false => FamilyMatch::BadArg(have, want.1),
                };
            }
        }
        match tail {
            [] => FamilyMatch::Yes(None),
            [c] => match self.options.iter().find(|o| o.word() == Some(&*c.name)) {
                Some(o) if o.1.fits(c) => FamilyMatch::Yes(Some(c)),
                Some(o) => FamilyMatch::BadArg(c, o.1),
                None => FamilyMatch::Extra(c),
            },
            [c, ..] => FamilyMatch::Extra(c),
        }
    }

    /// The error of a point of the family whose events nobody sees in this session.
    pub(crate) fn unseen(&self, facts: &dyn Facts, comps: &[Component]) -> Option<Diagnostic> {
        if facts.host() == HostKind::Kernel || self.seen == SeenBy::Session {
            return None;
        }
        let text = point_text(comps);
        let seen = match self.seen {
            SeenBy::Session | SeenBy::Both => true,
            SeenBy::Named => comps.iter().any(|c| &*c.name == "process"),
            SeenBy::Kernel => false,
        };
        let (message, help) = match (seen, facts.has_target()) {
            (true, true) => return None,
            (true, false) => (
                format!("`{text}` is seen by the target's processes, and there is no target"),
                "name it with `-c COMMAND` or `-x PID`; root sees all processes, with --runtime=kernel",
            ),
            (false, _) if self.seen == SeenBy::Named => (
                format!("`{text}` of all processes is only seen by the kernel"),
                "add `.process`, or run as root, with --runtime=kernel",
            ),
            (false, _) => (format!("`{text}` is only seen by the kernel"), ONLY_KERNEL),
        };
        Some(Diagnostic::error(codes::UNSEEN, message).help(help))
    }

    /// The points of the family, of its own words and with one option, that a pattern with `**`
    /// matches. Of the words that a `**` stands for, the last one has the argument.
    pub(crate) fn spelled(
        &'static self,
        pattern: &[Component],
    ) -> Vec<(&'static Family, Vec<Component>)> {
        let words = self.comps.iter().map(ComponentSpec::word);
        let Some(words) = words.collect::<Option<Vec<_>>>() else {
            return Vec::new();
        };
        let with = self.options.iter().filter_map(ComponentSpec::word);
        let longer = with.map(|o| [&words[..], &[o]].concat());
        std::iter::once(words.clone())
            .chain(longer)
            .filter_map(|words| Some((self, spell(pattern, &words)?)))
            .collect()
    }

    /// The points of the family with one of its options where the pattern has wildcards for it.
    pub(crate) fn with_options(
        &'static self,
        pattern: &[Component],
    ) -> Vec<(&'static Family, Vec<Component>)> {
        let Some((last, head)) = pattern.split_last() else {
            return Vec::new();
        };
        if head.len() != self.comps.len() || !is_pattern(&last.name) {
            return Vec::new();
        }
        let words = self.options.iter().filter_map(ComponentSpec::word);
        let words = words.filter(|word| matches_point(&last.name, word));
        let with = |word: &str| {
            let mut point = pattern.to_vec();
            point[head.len()].name = word.into();
            (self, point)
        };
        words.map(with).collect()
    }

    /// The components with the family's words instead of wildcards; wildcards for names stay.
    pub(crate) fn canonical(&self, comps: &[Component]) -> Vec<Component> {
        let mut shown = comps.to_vec();
        for (c, want) in shown.iter_mut().zip(self.comps) {
            if let Some(word) = want.word() {
                c.name = word.into();
            }
        }
        shown
    }

    /// Every way to write a point of the family, with the types of its literals.
    pub(crate) fn typed_points(&self) -> Vec<String> {
        let mut points = vec![String::new()];
        for c in self.comps {
            let words = c.typed();
            let longer = |p: &String| -> Vec<String> {
                let dot = if p.is_empty() { "" } else { "." };
                words.iter().map(|w| format!("{p}{dot}{w}")).collect()
            };
            points = points.iter().flat_map(longer).collect();
        }
        let options: Vec<String> = self.options.iter().flat_map(ComponentSpec::typed).collect();
        let with: Vec<String> = points
            .iter()
            .flat_map(|p| options.iter().map(move |o| format!("{p}.{o}")))
            .collect();
        points.extend(with);
        points
    }

    /// The meanings of a point of this family; the components are as [`Family::shown`] returns
    /// them. An error names a similar object only if `suggest` is set, because the search takes long.
    ///
    /// # Errors
    /// A diagnostic when a named object does not exist or a number is out of range.
    pub(crate) fn resolve(
        &self,
        facts: &dyn Facts,
        comps: &[Component],
        option: Option<&Component>,
        suggest: bool,
    ) -> DiagResult<Vec<PointMatch>> {
        let Some(last) = comps.get(self.comps.len() - 1) else {
            return Ok(Vec::new());
        };
        if let Some(c) = option.filter(|c| &*c.name == "maxactive") {
            number_in(c, 0..=MAX_ACTIVE, "a number from 0 to 65535")?;
        }
        let event = |event| Ok(PointMatch::plain(event, point_text(comps), self.context));
        match self.make {
            EventMaker::Ordered(f) => event(f(number_of(last).unwrap_or(0))),
            EventMaker::Plain(f) => event(f()),
            EventMaker::Timer(unit) => event(timer(last, unit, option)?),
            EventMaker::Jiffies => event(timer(last, S / facts.hz().max(1), option)?),
            EventMaker::Hz => {
                let hz = positive(last)?;
                event(Event::Timer {
                    period_ns: (S / hz).max(1),
                    randomize_ns: 0,
                })
            }
            EventMaker::Tick => event(perf::cpu_clock(facts, facts.hz().max(1))),
            EventMaker::ProfileHz => event(perf::cpu_clock(facts, positive(last)?)),
            EventMaker::Points(f) => f(facts, comps),
            EventMaker::Trace => tracepoints(facts, comps, last),
            EventMaker::Code => code::resolve(facts, comps, suggest),
            // Resolution takes the alias instead.
            EventMaker::Process(..) => Ok(Vec::new()),
            EventMaker::SyscallAny(ret) => Ok(vec![PointMatch::SyscallAny { ret }]),
            EventMaker::Syscall(ret) => {
                let Some(name) = comps.get(1) else {
                    return Ok(Vec::new());
                };
                Ok(vec![PointMatch::Syscalls {
                    calls: syscalls(facts, name)?,
                    ret,
                }])
            }
        }
    }
}

/// The words as components, each with the argument of the pattern's component that stands for it;
/// `None` if the pattern does not match them.
fn spell(pattern: &[Component], words: &[&str]) -> Option<Vec<Component>> {
    let Some((first, rest)) = pattern.split_first() else {
        return words.is_empty().then(Vec::new);
    };
    let most = match first.name.contains("**") {
        true => words.len(),
        false => words.len().min(1),
    };
    (1..=most).find_map(|n| {
        let (mine, others) = words.split_at(n);
        if !matches_point(&first.name, &mine.join(".")) {
            return None;
        }
        let tail = spell(rest, others)?;
        let mut spelled: Vec<Component> = mine
            .iter()
            .map(|w| Component {
                name: (*w).into(),
                arg: None,
                span: first.span,
            })
            .collect();
        spelled.last_mut()?.arg = first.arg.clone();
        spelled.extend(tail);
        Some(spelled)
    })
}

fn timer(c: &Component, unit: u64, option: Option<&Component>) -> DiagResult<Event> {
    // More than a year would overflow elsewhere, and is a mistake.
    const MOST: u64 = 366 * 86_400 * S;
    let period_ns = positive(c)?
        .checked_mul(unit)
        .filter(|ns| *ns <= MOST)
        .ok_or_else(|| bad_argument(c, "a time of at most a year"))?;
    let randomize_ns = match option {
        None => 0,
        Some(r) => number_of::<u64>(r)
            .and_then(|n| n.checked_mul(unit))
            .filter(|ns| *ns <= period_ns)
            .ok_or_else(|| bad_argument(r, "a number from 0 up to the timer's own"))?,
    };
    Ok(Event::Timer {
        period_ns,
        randomize_ns,
    })
}

/// The tracepoints of a name or pattern: of the kernel modules that a point names, or else of the
/// kernel and all modules.
fn known_tracepoints(
    facts: &dyn Facts,
    comps: &[Component],
    name: &str,
) -> DiagResult<Vec<Arc<str>>> {
    let of_module = comps.first().filter(|c| &*c.name == "module");
    let Some((c, pattern)) = of_module.and_then(|c| Some((c, string_of(c)?))) else {
        return Ok(facts.tracepoints(name));
    };
    let mut tracepoints = Vec::new();
    for in_module in modules(facts, &ModuleQuery::KernelModule(pattern), c)? {
        if let ProbeModule::KernelModule(module) = in_module.module {
            tracepoints.extend(facts.module_tracepoints(&module, name));
        }
    }
    Ok(tracepoints)
}

fn tracepoints(
    facts: &dyn Facts,
    comps: &[Component],
    c: &Component,
) -> DiagResult<Vec<PointMatch>> {
    let Some(text) = string_of(c) else {
        return Ok(Vec::new());
    };
    let (system, name) = match text.split_once(':') {
        Some((s, n)) => (Some(s), n),
        None => (None, &*text),
    };
    let tracepoints = known_tracepoints(facts, comps, name)?;
    // Some tracepoints have no subsystem. Their own name finds them in any subsystem.
    let any = system == Some("*") || !is_pattern(name) || !facts.has_subsystems();
    let hits: Vec<PointMatch> = tracepoints
        .into_iter()
        .map(|name| PointMatch::Trace {
            // Subsystems are expensive to look up; where the script gives none, a later use looks
            // it up.
            system: system.and_then(|given| {
                if !is_pattern(given) && facts.tracepoint_is_of(&name, given) {
                    return Some(given.into());
                }
                facts
                    .tracepoint_system(&name)
                    .or_else(|| (any && !is_pattern(given)).then(|| given.into()))
            }),
            name,
        })
        .filter(|hit| match (hit, system) {
            (
                PointMatch::Trace {
                    system: Some(have), ..
                },
                Some(want),
            ) => matches(want, have),
            (_, None) => true,
            // Where subsystems are unknown, the name alone decides.
            _ => any,
        })
        .collect();
    if hits.is_empty() {
        let message = format!("no match: the running kernel has no tracepoint `{text}`");
        let d = Diagnostic::error(codes::NO_TRACEPOINT, message).at(c.span);
        return no_such_name(d, &text, name, |pattern| facts.tracepoints(pattern));
    }
    Ok(hits)
}

/// The error for a name or pattern that nothing has. `matching` gives the names that match a pattern.
fn no_such_name<T>(
    d: Diagnostic,
    given: &str,
    name: &str,
    matching: impl FnOnce(&str) -> Vec<Arc<str>>,
) -> DiagResult<T> {
    if is_pattern(given) {
        return d.err();
    }
    // The start of a misspelt name is usually right.
    let start: String = name.chars().take(4).collect();
    let near = matching(&format!("{start}*"));
    d.did_you_mean(name, near.iter().map(|n| &**n)).err()
}

fn syscalls(facts: &dyn MachineFacts, c: &Component) -> DiagResult<Vec<usize>> {
    let table = facts.syscalls();
    let named = |want: &str, compat_only: bool| -> Vec<usize> {
        let fits = |(_, s): &(usize, &Syscall)| {
            [s.point, s.probe, s.name].contains(&want) && (!compat_only || s.is_compat())
        };
        let fitting = table.iter().enumerate().filter(fits);
        fitting.map(|(i, _)| i).collect()
    };
    let mut calls = if is_pattern(&c.name) {
        let fits = |i: &usize| {
            let call = &table[*i];
            matches_point(&c.name, call.probe) || matches_point(&c.name, call.point)
        };
        (0..table.len()).filter(fits).collect()
    } else {
        named(&c.name, false)
    };
    if calls.is_empty()
        && let Some(rest) = c.name.strip_prefix("compat_")
    {
        calls = named(rest.strip_prefix("sys_").unwrap_or(rest), true);
    }
    // SystemTap's other name for calls of 32-bit programs: `rt_sigaction32`.
    if calls.is_empty()
        && let Some(name) = c.name.strip_suffix("32")
    {
        calls = named(name, true);
    }
    if calls.is_empty() {
        let text = format!("this architecture has no system call `{}`", c.name);
        let d = Diagnostic::error(codes::NO_SYSCALL, text).at(c.span);
        return d.did_you_mean(&c.name, table.iter().map(|s| s.probe)).err();
    }
    Ok(calls)
}
