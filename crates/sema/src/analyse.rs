//! The second half of analysis as one call: from resolved probes to a program.

use rustc_hash::FxHashSet;
use spile_ir::{Limits, Program};
use spile_syntax::ast::Span;
use spile_syntax::diag::{Diagnostic, Diagnostics};
use spile_syntax::source::Sources;

use crate::check;
use crate::dump;
pub use crate::inputs::{AnalysisOptions, Inputs, ResolvePoints};
use crate::lower::{LoweringOptions, lower};
use crate::probe::{ProbeHandler, resolve_file, resolve_script};
use crate::types::absent;
use crate::types::codes;
use crate::types::dead_stores;
use crate::types::hir::{Tree, Unit, UnitKind};
use crate::types::regexes;
use crate::types::resolve::unavailable::reason;
use crate::types::resolve::{ElementTypes, Resolved, Resolver, RunSettings};
use crate::types::sink;
use crate::types::unify::Types;

/// Maximum depth of nested calls, whatever the script sets.
const MAX_NESTING: u32 = 1000;
/// Maximum number of frames of a stack.
const MAX_BACKTRACE: u32 = 512;

/// The result of analysis.
#[derive(Debug)]
pub struct Analysis {
    /// The program; storage classes are not decided yet.
    pub program: Program,
    /// The text of `-p2`: globals, functions and probes with their types.
    pub dump: String,
    /// The removed statements, one on each line, for `-v`.
    pub removed: String,
}

/// The diagnostics contain errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnalysisFailed;

/// From the script's files to the program: probe points, names, types, checks, lowering.
///
/// # Errors
/// When `diags` has errors, new or older ones; analysis reports as many as it can find.
pub fn analyse(inputs: &Inputs, diags: &mut Diagnostics) -> Result<Analysis, AnalysisFailed> {
    analyse_seen(inputs, diags, &mut |_, _| {})
}

/// Analyses as [`analyse`] does. `seen` gets the resolved tree and its types before anything is
/// removed from it, even if there are errors: editors ask it for the meaning of names.
///
/// # Errors
/// As [`analyse`].
pub fn analyse_seen(
    inputs: &Inputs,
    diags: &mut Diagnostics,
    seen: &mut dyn FnMut(&Tree, &Types),
) -> Result<Analysis, AnalysisFailed> {
    let handlers = resolve_script(inputs.library, inputs.facts, diags);
    let mut derive =
        |file, diags: &mut Diagnostics| resolve_file(inputs.library, inputs.facts, file, diags);
    bodies(inputs, handlers, &mut derive, diags, seen)
}

/// From the script's resolved probes to the program. `derive` resolves the probes of library files
/// that are pulled in on the way.
///
/// # Errors
/// When `diags` has errors, new or older ones; analysis reports as many as it can find.
pub fn analyse_bodies(
    inputs: &Inputs,
    handlers: Vec<ProbeHandler>,
    derive: &mut ResolvePoints,
    diags: &mut Diagnostics,
) -> Result<Analysis, AnalysisFailed> {
    bodies(inputs, handlers, derive, diags, &mut |_, _| {})
}

fn bodies(
    inputs: &Inputs,
    handlers: Vec<ProbeHandler>,
    derive: &mut ResolvePoints,
    diags: &mut Diagnostics,
    seen: &mut dyn FnMut(&Tree, &Types),
) -> Result<Analysis, AnalysisFailed> {
    let options = inputs.options;
    let mut limits = limits(options, diags);
    let is_user = |span: Span| inputs.library.is_user(span.file);
    let Resolved {
        mut tree,
        types,
        removed: mut left_out,
        ..
    } = resolve(inputs, derive, &handlers, diags);
    seen(&tree, &types);
    if diags.has_errors() {
        return Err(AnalysisFailed);
    }
    dead_stores::warn(&tree, inputs.facts, diags, &is_user);
    warn_uncalled(&tree, inputs, diags);
    let dump = dump::dump(&tree, &types);
    left_out.extend(dead_stores::prune(&mut tree));
    if !options.keep_unused && !options.counts_hits {
        warn_empty(&tree, diags);
    }
    if options.check_version {
        warn_deprecated(&tree, inputs.sources, diags);
    }
    sink::sink(&mut tree);
    regexes::compile(&mut tree, diags);
    check::check(&mut tree, inputs.facts.host(), diags, &is_user);
    absent::replace(&mut tree);
    if diags.has_errors() {
        return Err(AnalysisFailed);
    }
    if !options.defines.iter().any(|(name, _)| name == "MAXNESTING") {
        // As deep as the calls can nest, plus the default if a function calls itself.
        let (depth, recursive) = check::nesting(&tree);
        let more = if recursive { limits.maxnesting } else { 1 };
        limits.maxnesting = (depth + more).min(MAX_NESTING);
    }
    let in_script = |file| inputs.library.is_user(file);
    let how = LoweringOptions {
        limits,
        display: options.display,
        faults_are_nothing: options.skip_badvars,
    };
    let program = lower(&tree, &types, (inputs.sources, &in_script), how);
    let removed = removed_text(left_out, inputs, &is_user);
    Ok(Analysis {
        program,
        dump,
        removed,
    })
}

/// Names and types of the bodies. Where only a statement that is left out decides a type, nothing is
/// left out.
fn resolve(
    inputs: &Inputs,
    derive: &mut ResolvePoints,
    handlers: &[ProbeHandler],
    diags: &mut Diagnostics,
) -> Resolved {
    // The elements of an array can have the types of elements of another one.
    const MOST_RUNS: usize = 8;
    let mut run = |keep_unused: bool, diags: &mut Diagnostics| {
        let mut elements = ElementTypes::default();
        let mut runs = 0;
        loop {
            let mut reported = Diagnostics::new();
            let settings = RunSettings {
                inputs,
                keep_unused,
                elements: &elements,
            };
            let resolved = Resolver::run(settings, derive, &mut reported, handlers);
            runs += 1;
            match resolved.late {
                Some(late) if runs < MOST_RUNS => elements = late,
                _ => {
                    diags.append(reported);
                    return resolved;
                }
            }
        }
    };
    // After other errors, undecided types are only consequences.
    if inputs.options.keep_unused || diags.has_errors() {
        return run(inputs.options.keep_unused, diags);
    }
    let mut reported = Diagnostics::new();
    let mut resolved = run(false, &mut reported);
    if reported.iter().any(|d| d.code == codes::UNRESOLVED_TYPE) {
        let mut with_all = Diagnostics::new();
        let again = run(true, &mut with_all);
        if !with_all.has_errors() {
            (resolved, reported) = (again, with_all);
        }
    }
    diags.append(reported);
    resolved
}

/// Warns about functions of the script that nothing calls.
fn warn_uncalled(tree: &Tree, inputs: &Inputs, diags: &mut Diagnostics) {
    let functions = inputs.library.user_functions();
    let mut public: Vec<_> = functions.filter(|f| !f.private).collect();
    public.sort_by_key(|f| (f.name.name.clone(), f.params.len()));
    let called: FxHashSet<Span> = tree.units.iter().map(|u| u.span).collect();
    for f in public {
        if !called.contains(&f.name.span) {
            let text = format!("function `{}` is never called", f.name.name);
            diags.push(Diagnostic::warning(codes::UNUSED_FUNCTION, text).at(f.name.span));
        }
    }
}

/// Warns of the script's probes in whose handlers nothing is left to do.
fn warn_empty(tree: &Tree, diags: &mut Diagnostics) {
    let handler = |u: &&Unit| u.user && matches!(u.kind, UnitKind::Handler { .. });
    let mut known = FxHashSet::default();
    for u in tree.units.iter().filter(handler) {
        // A wildcard has a unit for each of its points.
        if u.body.is_empty() && known.insert(u.span) {
            let text = format!("the probe `{}` does nothing", u.name);
            let d = Diagnostic::warning(codes::EMPTY_PROBE, text).at(u.span);
            diags.push(d.help("-t counts its hits"));
        }
    }
}

/// The library's file of functions that earlier releases of SystemTap had.
const DEPRECATED: &str = "deprecated.stp";

/// Warns of functions that `--compatible` keeps.
fn warn_deprecated(tree: &Tree, sources: &Sources, diags: &mut Diagnostics) {
    for u in &tree.units {
        if u.span.file.is_built_in() && sources.name(u.span.file).ends_with(DEPRECATED) {
            let text = format!("`{}` is a function of earlier releases only", u.name);
            let d = Diagnostic::warning(codes::DEPRECATED, text);
            diags.push(d.help_if(reason(&u.name)));
        }
    }
}

/// Lists the script's own statements one by one and counts the library's: aliases set variables for
/// everybody, and most are removed.
fn removed_text(
    mut removed: Vec<dead_stores::RemovedStmt>,
    inputs: &Inputs,
    is_user: &dyn Fn(Span) -> bool,
) -> String {
    let total = removed.len();
    removed.retain(|r| is_user(r.span));
    removed.sort_by_key(|r| (r.span.file, r.span.start));
    // Copies of a body that serves several points lose the same statements.
    let library = total - removed.len();
    removed.dedup();
    let mut text = String::new();
    for r in &removed {
        let location = inputs.sources.location(r.span);
        text.push_str(&format!("eliding {} at {location}\n", r.what));
    }
    if library > 0 {
        text.push_str(&format!("eliding {library} statement(s) of the library\n"));
    }
    text
}

/// The limits after `-D`. Names without a meaning here are reported and have no effect.
fn limits(options: &AnalysisOptions, diags: &mut Diagnostics) -> Limits {
    let mut l = Limits::default();
    let mut interruptible = None;
    for (name, value) in &options.defines {
        let Some(n) = number(value) else {
            let text = format!("-D {name}={value}: not a number");
            diags.push(Diagnostic::error(codes::UNKNOWN_OPTION, text));
            continue;
        };
        let mut short = |low: u32, high: u32| {
            let taken = u32::try_from(n).unwrap_or(high).clamp(low, high);
            if u64::from(taken) != n {
                let text =
                    format!("-D {name}={value} is taken as {taken}: {low} to {high} are allowed");
                diags.push(Diagnostic::warning(codes::OPTION_WITHOUT_EFFECT, text));
            }
            taken
        };
        match name.as_str() {
            "MAXACTION" => l.maxaction = n,
            "MAXACTION_INTERRUPTIBLE" => interruptible = Some(n),
            // Buffers are whole words; SystemTap's number counts the NUL.
            "MAXSTRINGLEN" => l.maxstringlen = short(8, 4096).next_multiple_of(8) - 1,
            "MAXMAPENTRIES" => l.maxmapentries = short(1, 1 << 24),
            "MAXERRORS" => l.maxerrors = n,
            "MAXSKIPPED" => l.maxskipped = n,
            "MAXNESTING" => l.maxnesting = short(1, MAX_NESTING),
            "MAXTRYLOCK" => l.maxtrylock = short(0, 1_000_000),
            "MAXBACKTRACE" => l.maxbacktrace = short(1, MAX_BACKTRACE),
            // Limits of SystemTap that have no counterpart here.
            _ => {
                let limits = [
                    "MAXACTION",
                    "MAXACTION_INTERRUPTIBLE",
                    "MAXSTRINGLEN",
                    "MAXMAPENTRIES",
                    "MAXERRORS",
                    "MAXSKIPPED",
                    "MAXNESTING",
                    "MAXTRYLOCK",
                    "MAXBACKTRACE",
                ];
                let text = format!("-D {name} has no effect");
                let d = Diagnostic::warning(codes::OPTION_WITHOUT_EFFECT, text);
                diags.push(d.did_you_mean(name, limits));
            }
        }
    }
    l.maxaction_interruptible = interruptible.unwrap_or_else(|| l.maxaction.saturating_mul(10));
    if options.no_time_limits {
        (l.maxaction, l.maxaction_interruptible) = (u64::MAX, u64::MAX);
    }
    l
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}
