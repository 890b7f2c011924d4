//! From probe points to [`ResolvedPoint`] events: aliases, families, wildcards, `?`, `!`, `if`.
//!
//! A point is looked up in this order: the longest alias of exactly its name, the built-in
//! families, then shorter aliases, which pass the rest of the point on to their own points. A point
//! with wildcards takes all aliases and families that match. Points below a wildcard that fail are
//! left out, as long as one is left. Where nothing matches, wildcards may also stand for what follows
//! an alias.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use spile_ir::{Event, HostKind, Space, TaskEvent};
use spile_syntax::ast::{Component, Expr, FileId, Literal, Span};
use spile_syntax::diag::{DiagResult, Diagnostic, suggest};
use spile_syntax::pretty::point_text;

use super::handler::HandlerPart;
use crate::codes;
use crate::facts::Facts;
use crate::families::{
    ABSENT, ArgSpec, ComponentSpec, EventMaker, FAMILIES, Family, FamilyMatch, PointMatch, perf,
};
use crate::library::{AliasId, Library, PointEntry};
use spile_glob::{is_pattern, matches_point};

/// Maximum number of events of one script; more are a mistake.
const MAX_FOUND: usize = 50_000;
/// The alias of the library that `process(...).begin` uses.
const FILTERED: &str = "__process_begin";
/// Aliases that also run for existing processes or threads (`true`) at the start of the session.
const PRESENT: [(&str, bool); 2] = [(FILTERED, false), ("__thread_begin", true)];
/// Maximum number of aliases on the way from a point to its event.
const MAX_DEPTH: usize = 64;

/// The aliases between a script's probe and the event.
#[derive(Debug, Clone, Default)]
pub(crate) struct AliasLayer {
    pub conditions: Vec<(Arc<Expr>, FileId)>,
    /// Bodies in the order in which they run.
    pub parts: Vec<HandlerPart>,
    /// The outermost alias, as the script names it.
    pub alias: Option<Arc<str>>,
    /// The point itself, where it is an event of the library without a name of its own.
    pub shown: Option<Arc<str>>,
    /// The point in the script.
    pub span: Span,
    /// The aliases on the way, the outermost first.
    pub stack: Vec<AliasId>,
    /// The point is optional: no error if it does not exist.
    pub lenient: bool,
    /// The errors of the point are not shown, or stand for many: it is optional, or a pattern
    /// matches it.
    pub quiet: bool,
}

/// An event that a point resolves to.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedPoint {
    pub hit: PointMatch,
    /// The innermost point, as written.
    pub point: String,
    /// First component of the innermost point, which names the family.
    pub family: String,
    pub layer: AliasLayer,
}

/// The state of one resolution.
pub(crate) struct PointSearch<'a> {
    pub lib: &'a Library,
    pub facts: &'a dyn Facts,
    pub points: Vec<ResolvedPoint>,
    pub warnings: Vec<Diagnostic>,
    /// The optional points without an event.
    pub unmatched: Vec<String>,
    steps: usize,
    /// Names that kernels no longer have stand for those of today.
    renames: bool,
}

type Errors = Vec<Diagnostic>;

impl<'a> PointSearch<'a> {
    pub(crate) fn new(lib: &'a Library, facts: &'a dyn Facts) -> PointSearch<'a> {
        PointSearch {
            lib,
            facts,
            points: Vec::new(),
            warnings: Vec::new(),
            unmatched: Vec::new(),
            steps: 0,
            renames: false,
        }
    }

    /// Resolves the points of a probe. If that fails, it tries the names that the kernel has today.
    pub(crate) fn probe_of_any_release(
        &mut self,
        points: &[PointEntry],
        part: &HandlerPart,
    ) -> Errors {
        let errors = self.probe(points, part);
        if errors.is_empty() {
            return errors;
        }
        let mut again = PointSearch {
            renames: true,
            ..PointSearch::new(self.lib, self.facts)
        };
        if !again.probe(points, part).is_empty() {
            return errors;
        }
        *self = again;
        Vec::new()
    }

    /// Resolves the points of a probe; the layer's span is set for each.
    pub(crate) fn probe(&mut self, points: &[PointEntry], part: &HandlerPart) -> Errors {
        let layer = AliasLayer {
            parts: vec![part.clone()],
            ..AliasLayer::default()
        };
        self.points(points, &[], &layer, part.file)
    }

    /// Resolves a list of points, each followed by `suffix`.
    fn points(
        &mut self,
        points: &[PointEntry],
        suffix: &[Component],
        layer: &AliasLayer,
        file: FileId,
    ) -> Errors {
        let mut errors = Vec::new();
        let start = self.points.len();
        let mut passed = Vec::new();
        for p in points {
            let mut layer = layer.clone();
            if layer.stack.is_empty() {
                layer.span = p.point.span;
            }
            if let Some(c) = &p.condition {
                layer.conditions.push((c.clone(), file));
            }
            let mut comps = p.point.components.clone();
            comps.extend_from_slice(suffix);
            let lenient = p.point.optional || p.point.sufficient;
            layer.lenient |= lenient;
            layer.quiet |= lenient;
            let before = self.points.len();
            let failed = self.point(&comps, &layer);
            if lenient && (!failed.is_empty() || self.points.len() == before) {
                self.unmatched.push(point_text(&comps));
            }
            if failed.is_empty() {
                if p.point.sufficient && self.points.len() > before {
                    if self.is_probeable(before) {
                        break;
                    }
                    // Another point may resolve; otherwise these errors say why none does.
                    passed.extend(self.points.drain(before..));
                }
            } else if lenient {
                self.points.truncate(before);
            } else {
                errors.extend(failed);
            }
        }
        if self.points.len() == start && !passed.is_empty() {
            self.points.extend(passed);
            errors.clear();
        }
        errors
    }

    /// Whether the running kernel can probe the points found from index `from` on.
    fn is_probeable(&self, from: usize) -> bool {
        let function =
            |f: &ResolvedPoint| matches!(&f.hit, PointMatch::Code(c) if c.space == Space::Kernel);
        !self.points[from..].iter().any(function) || self.facts.probes_kernel()
    }

    fn point(&mut self, comps: &[Component], layer: &AliasLayer) -> Errors {
        self.steps += 1;
        if self.steps > MAX_FOUND || self.points.len() > MAX_FOUND {
            let text = "this probe expands to too many points";
            return vec![Diagnostic::error(codes::TOO_MANY_PROBES, text).at(layer.span)];
        }
        if comps.iter().any(|c| is_pattern(&c.name)) {
            return self.pattern(comps, layer);
        }
        if let Some(ix) = self.exact_alias(comps, comps.len()) {
            return self.alias(ix, comps, layer);
        }
        let error = match self.families(comps, layer) {
            Ok(true) => return Vec::new(),
            Ok(false) => None,
            Err(_) if self.renamed(comps, layer) => return Vec::new(),
            Err(d) => Some(*d),
        };
        if let Some(d) = self.gone(comps, layer) {
            return vec![d];
        }
        for len in (1..comps.len()).rev() {
            if let Some(ix) = self.exact_alias(comps, len) {
                return self.alias(ix, comps, layer);
            }
        }
        vec![error.unwrap_or_else(|| self.unknown(comps, layer))]
    }

    /// Resolves a point by the name that its function or tracepoint has today.
    fn renamed(&mut self, comps: &[Component], layer: &AliasLayer) -> bool {
        if !self.renames {
            return false;
        }
        for today in super::renamed::of_today(comps) {
            if let Ok(true) = self.families(&today.comps, layer) {
                let (old, now, since) = (today.old, today.now, today.since);
                let text = format!(
                    "`{now}` is probed, which does the work of `{old}` since Linux {since}"
                );
                let d = Diagnostic::warning(codes::RENAMED, text).at(layer.span);
                self.warnings.push(d);
                return true;
            }
        }
        false
    }

    /// The error for an alias of SystemTap over what no kernel has any more.
    fn gone(&self, comps: &[Component], layer: &AliasLayer) -> Option<Diagnostic> {
        let name = point_text(comps);
        let why = self.lib.missing().gone(&name)?;
        let text = format!("the probe point `{name}` is not available");
        let d = Diagnostic::error(codes::FAMILY_NOT_THERE, text).at(layer.span);
        Some(d.help(why))
    }

    /// The alias whose name is exactly the first `len` components, none of which has an argument.
    fn exact_alias(&self, comps: &[Component], len: usize) -> Option<AliasId> {
        let head = comps.get(..len)?;
        if head.iter().any(|c| c.arg.is_some()) {
            return None;
        }
        let names: Vec<&str> = head.iter().map(|c| &*c.name).collect();
        self.lib.alias(&names.join("."))
    }

    fn alias(&mut self, ix: AliasId, comps: &[Component], layer: &AliasLayer) -> Errors {
        let entry = self.lib.alias_entry(ix);
        let again = layer.stack.contains(&ix);
        // `probe syscall.open = syscall.open { ... }` adds to a family's point.
        if again && matches!(self.families(comps, layer), Ok(true)) {
            return Vec::new();
        }
        if again || layer.stack.len() >= MAX_DEPTH {
            let text = format!("the alias `{}` is defined by itself", entry.name);
            let d = Diagnostic::error(codes::ALIAS_LOOP, text)
                .at(layer.span)
                .also(entry.body.span, "defined here");
            return vec![d];
        }
        let body = entry.body.clone();
        let suffix = &comps[entry.len.min(comps.len())..];
        let mut inner = layer.clone();
        inner.stack.push(ix);
        if inner.alias.is_none() {
            let mut name = entry.name.to_string();
            if !suffix.is_empty() {
                name = format!("{name}.{}", point_text(suffix));
            }
            inner.alias = Some(name.into());
        }
        // The body of the alias nearest to the event runs first.
        inner.parts.splice(0..0, body.before.iter().cloned());
        inner.parts.extend(body.after.iter().cloned());
        let errors = self.points(&body.points, suffix, &inner, body.file);
        let user = self.lib.is_user(body.file);
        // Locations in the library do not help the user; the probe's own location does.
        errors
            .into_iter()
            .map(|mut d| {
                if !user && d.primary.as_ref().is_some_and(|l| l.span.file == body.file) {
                    d = d.label(layer.span, format!("needed for `{}`", entry.name));
                }
                d
            })
            .collect()
    }

    /// Tries the families. `false` when no family is similar.
    fn families(&mut self, comps: &[Component], layer: &AliasLayer) -> DiagResult<bool> {
        let mut error = None;
        for f in FAMILIES {
            match f.matches(comps) {
                FamilyMatch::Yes(option) => {
                    self.resolve_in_family(f, comps, option, layer)?;
                    return Ok(true);
                }
                FamilyMatch::BadArg(c, want) => {
                    error = Some(wrong_argument(c, want, f));
                }
                FamilyMatch::Extra(c) => {
                    error.get_or_insert_with(|| extra_component(f, c, comps));
                }
                FamilyMatch::No => {}
            }
        }
        error.map_or(Ok(false), Diagnostic::err)
    }

    /// Resolves a point of a family.
    fn resolve_in_family(
        &mut self,
        family: &Family,
        comps: &[Component],
        option: Option<&Component>,
        layer: &AliasLayer,
    ) -> DiagResult<()> {
        let shown = family.canonical(comps);
        if let Some(d) = family.unseen(self.facts, &shown) {
            return d.at(layer.span).err();
        }
        if let EventMaker::Process(alias, step) = family.make {
            let step = step.filter(|_| self.facts.host() == HostKind::Process);
            return self.process(family, (alias, step), &shown, layer);
        }
        let hits = family.resolve(self.facts, &shown, option, !layer.quiet);
        let texts = self.facts.take_warnings();
        let hits = hits?;
        let warning = |text| Diagnostic::warning(codes::OTHER_LOCATION, text).at(layer.span);
        self.warnings.extend(texts.into_iter().map(warning));
        let program = match shown.first() {
            Some(first) if &*first.name == "perf" => perf::program(&shown),
            _ => self.library_user(&shown, layer),
        };
        let mut layer = layer.clone();
        if let (Some(program), Some(ix)) = (program, self.lib.alias(FILTERED)) {
            let file = self.lib.alias_entry(ix).body.file;
            let body = Arc::new(super::process::filter(self.facts, program)?);
            layer.parts.insert(0, HandlerPart { body, file });
        }
        self.add_match(family, hits, &shown, &layer);
        Ok(())
    }

    /// The program whose library is probed, in whose processes the handler runs. If the session has a
    /// target, the kernel limits the breakpoints to it instead.
    fn library_user<'c>(
        &mut self,
        comps: &'c [Component],
        layer: &AliasLayer,
    ) -> Option<&'c Component> {
        let named = |c: &&Component| matches!(c.arg, Some(Literal::Str(_)));
        let program = comps
            .first()
            .filter(|c| &*c.name == "process")
            .filter(named)?;
        let library = comps.get(1).filter(|c| &*c.name == "library")?;
        if self.facts.has_target() {
            return None;
        }
        if !layer.quiet {
            let text = "all processes that use this library stop at its breakpoints";
            let d = Diagnostic::warning(codes::ALL_PROCESSES, text).at(library.span);
            let way_out = "with `-c COMMAND` or `-x PID` only processes of the target do";
            self.warnings.push(d.help(way_out));
        }
        Some(program)
    }

    /// `process(...).begin` and similar points: an alias of the library with a filter in front.
    fn process(
        &mut self,
        family: &Family,
        (alias, step): (&str, Option<TaskEvent>),
        comps: &[Component],
        layer: &AliasLayer,
    ) -> DiagResult<()> {
        let (Some(first), Some(ix)) = (comps.first(), self.lib.alias(alias)) else {
            return Ok(());
        };
        let filter = super::process::filter(self.facts, first)?;
        let mut inner = layer.clone();
        let file = self.lib.alias_entry(ix).body.file;
        let body = Arc::new(filter);
        inner.parts.insert(0, HandlerPart { body, file });
        let text: Arc<str> = point_text(comps).into();
        inner.alias.get_or_insert_with(|| text.clone());
        inner.shown = Some(text.clone());
        if let Some(step) = step {
            let hit = PointMatch::plain(Event::Task(step), text.to_string(), family.context);
            self.add_match(family, hit, comps, &inner);
            return Ok(());
        }
        if let Some((_, threads)) = PRESENT.iter().find(|(name, _)| *name == alias) {
            let event = Event::Present { threads: *threads };
            let present = PointMatch::plain(event, text.to_string(), family.context);
            self.add_match(family, present, comps, &inner);
        }
        let errors = self.alias(ix, &components(alias, first.span), &inner);
        errors.into_iter().next().map_or(Ok(()), Diagnostic::err)
    }

    fn add_match(
        &mut self,
        family: &Family,
        hits: Vec<PointMatch>,
        comps: &[Component],
        layer: &AliasLayer,
    ) {
        let first = family.comps.first().and_then(ComponentSpec::word);
        let point = point_text(comps);
        self.points
            .extend(hits.into_iter().map(|hit| ResolvedPoint {
                hit,
                point: point.clone(),
                family: first.unwrap_or_default().to_owned(),
                layer: layer.clone(),
            }));
    }

    /// Resolves a point with wildcards.
    fn pattern(&mut self, comps: &[Component], layer: &AliasLayer) -> Errors {
        let before = self.points.len();
        let mut failed = Vec::new();
        let quiet = AliasLayer {
            quiet: true,
            ..layer.clone()
        };
        let mut matched = self.aliases(self.matching_aliases(comps, false), &quiet, &mut failed);
        let across = comps.iter().any(|c| c.name.contains("**"));
        if across && comps.iter().any(|c| c.arg.is_some()) {
            for (f, point) in FAMILIES.iter().flat_map(|f| f.spelled(comps)) {
                self.try_family(f, &point, layer, &mut failed);
            }
        } else if across {
            for point in super::list::family_points(self.facts) {
                if comps.iter().all(|c| c.arg.is_none())
                    && matches_point(&point_text(comps), &point)
                {
                    let plain = components(&point, comps.first().map_or(layer.span, |c| c.span));
                    if let Err(d) = self.families(&plain, layer) {
                        failed.push(*d);
                    }
                }
            }
        } else {
            for f in FAMILIES {
                if let FamilyMatch::BadArg(c, want) = f.matches(comps) {
                    failed.push(wrong_argument(c, want, f));
                }
                self.try_family(f, comps, layer, &mut failed);
            }
        }
        if !matched && self.points.len() == before {
            for (f, point) in FAMILIES.iter().flat_map(|f| f.with_options(comps)) {
                self.try_family(f, &point, &quiet, &mut failed);
            }
            matched = self.aliases(self.matching_aliases(comps, true), &quiet, &mut failed);
        }
        if matched || self.points.len() > before {
            return Vec::new();
        }
        if failed.is_empty() {
            let text = format!(
                "probe point mismatch: no probe point matches `{}`",
                point_text(comps)
            );
            let d = Diagnostic::error(codes::NO_MATCH, text).at(layer.span);
            failed.push(absent(comps, layer).unwrap_or(d));
        }
        failed.truncate(1);
        failed
    }

    /// Resolves a point of a family, if it is one.
    fn try_family(
        &mut self,
        family: &Family,
        comps: &[Component],
        layer: &AliasLayer,
        failed: &mut Errors,
    ) {
        if let FamilyMatch::Yes(option) = family.matches(comps)
            && let Err(d) = self.resolve_in_family(family, comps, option, layer)
        {
            failed.push(*d);
        }
    }

    /// Resolves aliases that a pattern matches. Returns whether one has no errors, which may still
    /// have no event: its points can be optional.
    fn aliases(
        &mut self,
        aliases: Vec<(AliasId, Vec<Component>)>,
        layer: &AliasLayer,
        failed: &mut Errors,
    ) -> bool {
        let mut matched = false;
        for (ix, named) in aliases {
            let start = self.points.len();
            let errors = self.alias(ix, &named, layer);
            matched |= errors.is_empty();
            if !errors.is_empty() {
                self.points.truncate(start);
                failed.extend(errors);
            }
        }
        matched
    }

    /// The aliases that match, each with the point in which the alias's own name replaces the
    /// wildcards, sorted by name. Of `a.b` with a suffix and `a.b.c` the longer one counts. The
    /// components that an alias passes on have wildcards in all results, or (without `passed`) in none.
    fn matching_aliases(
        &self,
        comps: &[Component],
        passed: bool,
    ) -> Vec<(AliasId, Vec<Component>)> {
        let across = comps.iter().any(|c| c.name.contains("**"));
        let mut aliases: Vec<(&str, AliasId, Vec<Component>)> = Vec::new();
        let first = comps.first().map_or("", |c| &*c.name);
        let (some, every) = match is_pattern(first) {
            true => (None, Some(self.lib.aliases())),
            false => (Some(self.lib.aliases_below(first)), None),
        };
        let candidates = some.into_iter().flatten();
        for (ix, entry) in candidates.chain(every.into_iter().flatten()) {
            if across {
                if !passed
                    && comps.iter().all(|c| c.arg.is_none())
                    && matches_point(&point_text(comps), &entry.name)
                    && let Some(first) = comps.first()
                {
                    aliases.push((&entry.name, ix, components(&entry.name, first.span)));
                }
                continue;
            }
            let Some(head) = comps.get(..entry.len) else {
                continue;
            };
            let words: Vec<&str> = entry.name.split('.').collect();
            let fits = |(c, w): (&Component, &&str)| c.arg.is_none() && matches_point(&c.name, w);
            if !head.iter().zip(&words).all(fits) {
                continue;
            }
            if comps[entry.len..].iter().any(|c| is_pattern(&c.name)) != passed {
                continue;
            }
            let mut named = comps.to_vec();
            for (c, w) in named.iter_mut().zip(&words) {
                c.name = (*w).into();
            }
            aliases.push((&entry.name, ix, named));
        }
        aliases.sort_by_key(|(name, ..)| *name);
        let names: FxHashSet<&str> = aliases.iter().map(|(name, ..)| *name).collect();
        let full = |named: &[Component]| point_text(named);
        aliases
            .iter()
            .filter(|(name, _, named)| {
                let text = full(named);
                text == **name || !longer_prefixes(name, &text).any(|p| names.contains(p))
            })
            .map(|(_, ix, named)| (*ix, named.clone()))
            .collect()
    }

    /// The error for an unknown point.
    fn unknown(&self, comps: &[Component], layer: &AliasLayer) -> Diagnostic {
        let text = point_text(comps);
        if let Some(d) = absent(comps, layer) {
            return d;
        }
        let span = layer.span;
        let message = format!("probe point mismatch: there is no probe point `{text}`");
        let d = Diagnostic::error(codes::NO_SUCH_POINT, message).at(span);
        let bare: Vec<&str> = comps.iter().map(|c| &*c.name).collect();
        let bare = bare.join(".");
        match self.most_similar(&bare) {
            Some(near) => d.help(format!("did you mean `{near}`?")),
            None => match self.points_below(&bare) {
                list if list.is_empty() => d,
                list => d.note(format!("there are {}", list.join(", "))),
            },
        }
    }

    /// The known point whose name is most similar.
    fn most_similar(&self, name: &str) -> Option<String> {
        let points = super::list::family_points(self.facts);
        let words = FAMILIES.iter().map(bare_text).collect::<Vec<_>>();
        let aliases = self.lib.aliases().map(|(_, a)| &*a.name);
        let others = words.iter().chain(&points).map(String::as_str);
        suggest(name, aliases.chain(others)).map(str::to_owned)
    }

    /// Some points that begin with the name's first component.
    fn points_below(&self, name: &str) -> Vec<String> {
        let first = name.split('.').next().unwrap_or("");
        let starts = |n: &str| n.split('.').next() == Some(first);
        let aliases = self.lib.aliases_below(first);
        let families = FAMILIES.iter().filter(|f| starts(&bare_text(f)));
        let mut list: Vec<String> = aliases
            .map(|(_, a)| format!("`{}`", a.name))
            .chain(families.map(|f| format!("`{}`", f.text())))
            .collect();
        list.sort();
        list.dedup();
        if list.len() > 8 {
            list.truncate(8);
            list.push("others".to_owned());
        }
        list
    }
}

/// The error for a family that only SystemTap has.
fn absent(comps: &[Component], layer: &AliasLayer) -> Option<Diagnostic> {
    let starts = |words: &[&str]| {
        comps.len() >= words.len() && comps.iter().zip(words).all(|(c, w)| *c.name == **w)
    };
    let (_, remark) = ABSENT.iter().find(|(words, _)| starts(words))?;
    let text = format!("the probe point `{}` is not available", point_text(comps));
    let d = Diagnostic::error(codes::FAMILY_NOT_THERE, text).at(layer.span);
    Some(d.help(*remark))
}

/// The dotted prefixes of `text` that are longer than `name`.
fn longer_prefixes<'t>(name: &str, text: &'t str) -> impl Iterator<Item = &'t str> {
    let from = name.len() + 1;
    text.match_indices('.')
        .map(|(i, _)| i)
        .chain([text.len()])
        .filter(move |i| *i > from)
        .map(move |i| &text[..i])
}

fn bare_text(f: &Family) -> String {
    let words: Vec<&str> = f.comps.iter().map(|c| c.word().unwrap_or("*")).collect();
    words.join(".")
}

/// Components without arguments.
fn components(dotted: &str, span: Span) -> Vec<Component> {
    dotted
        .split('.')
        .map(|w| Component {
            name: w.into(),
            arg: None,
            span,
        })
        .collect()
}

/// The error for a component that a point of a family does not take.
fn extra_component(f: &Family, c: &Component, comps: &[Component]) -> Diagnostic {
    let last = |n: usize| comps.iter().rev().nth(n).map_or("", |c| &*c.name);
    if let ("inline", "return") = (last(1), last(0)) {
        let text = "an inlined copy of a function has no return";
        let d = Diagnostic::error(codes::BAD_SUFFIX, text).at(c.span);
        return d.help(
            "`.statement(\"CALLER@FILE:LINE\")` probes a line behind the call; with `-fno-inline` the \
             function has a return",
        );
    }
    let text = format!("`{}` does not take `.{}`", f.text(), c.name);
    Diagnostic::error(codes::BAD_SUFFIX, text).at(c.span)
}

fn wrong_argument(c: &Component, want: ArgSpec, f: &Family) -> Diagnostic {
    let text = format!("`{}` {}", c.name, want.rule());
    let d = Diagnostic::error(codes::BAD_ARGUMENT, text).at(c.span);
    d.help(format!("write it as `{}`", f.text()))
}
