//! One script in all executors: unoptimised and optimised, each in the interpreter and in the
//! kernel, and without inlining, which only the interpreter supports. Outputs, errors and globals
//! have to be equal everywhere.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use spile_ir::storage;
use spile_ir::{Bytes, Program, SiteId, opt, verify};
use spile_machine::FakeMachine;
use spile_sema::analyse::{self, AnalysisOptions, Inputs};
use spile_sema::library::Library;
use spile_syntax::diag::Diagnostics;
use spile_syntax::parser::{parse_file, parse_macros};
use spile_syntax::preproc::PreprocEnv;
use spile_syntax::pretty;
use spile_syntax::source::Sources;

use crate::generate::Script;
use crate::machine::{Contents, HostKind, Kernel, Outcome, kept, options};
use crate::shrink::parse;
use crate::world::World;

/// Number of runs of each script.
const RUNS: u64 = 4;

/// The part of the library that random scripts use.
const LIBRARY: &[(&str, &str)] = &[
    (
        "strings.stp",
        include_str!("../../../../tapset/strings.stp"),
    ),
    (
        "logging.stp",
        include_str!("../../../../tapset/logging.stp"),
    ),
    ("regex.stp", include_str!("../../../../tapset/regex.stp")),
    ("errno.stp", include_str!("../../../../tapset/errno.stp")),
];

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Same,
    Wrong(FailureKind, String),
}

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// Analysis or the code generator refuse it.
    Refused,
    /// The verifier refuses it.
    Rejected,
    /// A panic.
    Panic,
    /// The kernel's behaviour differs from the interpreter's.
    Kernel,
    /// The optimised program's behaviour differs.
    Optimiser,
}

/// A script in the pretty-printer's form.
pub(crate) fn printed(text: &str) -> Result<String, String> {
    Ok(pretty::file(&parse(text)?))
}

fn tables(name: &str) -> Option<Vec<Bytes>> {
    let names = ["", "EPERM", "ENOENT", "ESRCH", "EINTR"];
    (name == "errno").then(|| names.map(|s| s.as_bytes().into()).to_vec())
}

/// The program of a script before optimisation.
pub(crate) fn analyse(script: &Script) -> Result<Program, String> {
    let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
    let env = PreprocEnv::new("6.12.0", "x86_64");
    let len = script.defines.iter().find(|(n, _)| n == "MAXSTRINGLEN");
    let len = len.map_or("512", |(_, v)| v);
    let limits = format!("@define MAXSTRINGLEN %( {len} %)\n@define MAXBACKTRACE %( 20 %)\n");
    let id = sources.add_built_in("limits.stpm", limits.into_bytes());
    let macros = parse_macros(&mut sources, id, &env, &mut diags);
    let mut library = Library::new();
    let files = LIBRARY
        .iter()
        .map(|(n, t)| (*n, t.as_bytes().to_vec(), false));
    let user = ("script.stp", script.text.as_bytes().to_vec(), true);
    for (name, text, user) in std::iter::once(user).chain(files) {
        let id = match user {
            true => sources.add(name, text),
            false => sources.add_built_in(name, text),
        };
        let file = parse_file(&mut sources, id, &env, &macros, &mut diags);
        library.add(id, file, user);
    }
    let options = AnalysisOptions {
        defines: script.defines.clone(),
        ..AnalysisOptions::default()
    };
    let inputs = Inputs {
        library: &library,
        sources: &sources,
        facts: &FakeMachine::new(),
        tables: &tables,
        options: &options,
    };
    let found = analyse::analyse(&inputs, &mut diags);
    diags.drop_warnings();
    match found {
        Ok(analysis) if !diags.has_errors() => Ok(analysis.program),
        _ => Err(diags.render(&sources, false)),
    }
}

/// Optimises if `optimised`, and classifies the storage of globals; only kernel handlers stay.
fn translate(mut program: Program, optimised: bool) -> Program {
    opt::optimise(&mut program, optimised);
    storage::classify(&mut program);
    program.handlers.retain(|h| h.event.is_compiled());
    program
}

/// The event's arguments in run `n`.
fn args(n: u64) -> [u64; 2] {
    [n, [3, u64::MAX, 1 << 63, 64, 0, 5][n as usize % 6]]
}

/// The interpreter's outcome, and the number of its string cuts that the kernel may not have.
fn interpret(program: &Program) -> (Outcome, u64) {
    let mut world = World::new(program);
    for n in 0..RUNS {
        world.run(&args(n));
    }
    let failed = world.globals.failed;
    (world.outcome(), failed)
}

/// Keeps only the values that both executors have.
fn comparable(program: &Program, outcome: &mut Outcome) {
    for (global, contents) in program.globals.iter().zip(&mut outcome.globals) {
        *contents = contents.take().map(|c| match c {
            Contents::One(cell) => Contents::One(kept(global, &cell)),
            Contents::Elements(all) => {
                let all = all.into_iter().map(|(k, c)| (k, kept(global, &c)));
                Contents::Elements(all.collect())
            }
        });
    }
}

/// The errors as messages show them.
fn told(program: &Program, outcome: &Outcome) -> Vec<String> {
    let errors = outcome.errors.iter().zip(&outcome.callers);
    let line = |((message, site), callers): (&(String, SiteId), &Vec<SiteId>)| {
        let trace = program.trace(*site, callers);
        let locations: Vec<&str> = trace.iter().map(|s| &*s.near).collect();
        format!("{message} near {}", locations.join(" called from "))
    };
    errors.map(line).collect()
}

/// The difference of two outcomes, for people.
fn difference(program: &Program, got: &Outcome, want: &Outcome) -> String {
    let mut text = String::new();
    if got.out != want.out {
        text += &format!("output:\n{}\n--- wanted:\n{}\n---\n", got.out, want.out);
    }
    let (told, wanted) = (told(program, got), told(program, want));
    if told != wanted {
        text += &format!("errors: {told:#?}\nwanted: {wanted:#?}\n");
    }
    if got.cuts != want.cuts {
        text += &format!("strings cut: {}, wanted {}\n", got.cuts, want.cuts);
    }
    for (global, (got, want)) in program
        .globals
        .iter()
        .zip(got.globals.iter().zip(&want.globals))
    {
        if got != want {
            text += &format!("{}: {got:?}\nwanted: {want:?}\n", global.name);
        }
    }
    text
}

/// Runs in each host and in the interpreter; returns the interpreter's outcome.
fn both(program: &Program) -> Result<Outcome, Verdict> {
    let (mut want, failed) = interpret(program);
    comparable(program, &mut want);
    for host in HostKind::ALL {
        in_host(host, program, (&want, failed))?;
    }
    Ok(want)
}

/// Compares the outcome in a host with the interpreter's. A host may lack up to `failed` of its string cuts.
fn in_host(
    host: HostKind,
    program: &Program,
    (want, failed): (&Outcome, u64),
) -> Result<(), Verdict> {
    let wrong = |kind, text: String| Err(Verdict::Wrong(kind, text));
    let mut kernel = match Kernel::in_host(host, program, &options()) {
        Ok(kernel) => kernel,
        Err(e) if e.starts_with("compiler") => return wrong(FailureKind::Refused, e),
        Err(e) => return wrong(FailureKind::Rejected, e),
    };
    for n in 0..RUNS {
        host.go_to(n);
        kernel.run(&args(n));
    }
    let mut got = kernel.outcome();
    comparable(program, &mut got);
    if (want.cuts.saturating_sub(failed)..want.cuts).contains(&got.cuts) {
        got.cuts = want.cuts;
    }
    let mut seen = want.clone();
    for (got, want) in got.globals.iter().zip(&mut seen.globals) {
        if got.is_none() {
            *want = None;
        }
    }
    for (seen, got) in seen.globals.iter().zip(&mut got.globals) {
        if seen.is_none() {
            *got = None;
        }
    }
    let errors = kernel.errors();
    if got != seen || errors != want.errors.len() as u64 {
        let text = difference(program, &got, &seen);
        let told = told(program, want);
        return wrong(
            FailureKind::Kernel,
            format!("{host:?}: {text}{errors} errors counted, wanted {told:#?}\n"),
        );
    }
    Ok(())
}

/// Compares the outcomes of two programs of one script. Only the number of string cuts may differ
/// after optimisation.
fn same(a: &Program, mut want: Outcome, b: &Program, got: &mut Outcome) -> Result<(), Verdict> {
    want.cuts = got.cuts;
    for (want, got) in want.globals.iter_mut().zip(&mut got.globals) {
        if want.is_none() || got.is_none() {
            (*want, *got) = (None, None);
        }
    }
    let (told_want, told_got) = (told(a, &want), told(b, got));
    if got.out == want.out && got.globals == want.globals && told_got == told_want {
        return Ok(());
    }
    let mut text = difference(b, got, &want);
    if told_got != told_want {
        text += &format!("errors: {told_got:#?}\nwanted: {told_want:#?}\n");
    }
    Err(Verdict::Wrong(FailureKind::Optimiser, text))
}

fn in_all(script: &Script) -> Result<(), Verdict> {
    let wrong = |kind, text: String| Err(Verdict::Wrong(kind, text));
    let program = match analyse(script) {
        Ok(program) => program,
        Err(e) => return wrong(FailureKind::Refused, e),
    };
    let mut raw = program.clone();
    raw.handlers.retain(|h| h.event.is_compiled());
    if raw.handlers.is_empty() {
        return wrong(FailureKind::Refused, "no handler runs in the kernel".into());
    }
    let plain = translate(program.clone(), false);
    let optimised = translate(program, true);
    for program in [&plain, &optimised] {
        if let Err(e) = verify::verify(program) {
            return wrong(FailureKind::Panic, format!("invalid program: {e:?}"));
        }
    }
    let mark = |what: &'static str| {
        move |v| match v {
            Verdict::Wrong(kind, text) => Verdict::Wrong(kind, format!("{what}: {text}")),
            v => v,
        }
    };
    let mut want = both(&plain).map_err(mark("unoptimised"))?;
    let mut got = both(&optimised).map_err(mark("optimised"))?;
    let (mut calls, _) = interpret(&raw);
    comparable(&raw, &mut calls);
    same(&raw, calls, &plain, &mut want)?;
    same(&plain, want, &optimised, &mut got)?;
    Ok(())
}

/// Compares a script in all executors.
pub(crate) fn check(script: &Script) -> Verdict {
    match catch_unwind(AssertUnwindSafe(|| in_all(script))) {
        Ok(Ok(())) => Verdict::Same,
        Ok(Err(verdict)) => verdict,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            match text {
                Some(text) => Verdict::Wrong(FailureKind::Panic, text),
                // The test is skipped.
                None => resume_unwind(panic),
            }
        }
    }
}
