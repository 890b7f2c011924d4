//! The passes of a run.
//!
//! | module | its passes |
//! |---|---|
//! | `script` | the script and its options, which come before the first pass |
//! | `parse` | 1 |
//! | `analyse` | 2 |
//! | `compile` | 3 (translate) and 4 (compile) |
//! | `execute` | 5 (run) |

pub(crate) mod analyse;
mod compile;
mod execute;
pub(crate) mod parse;
pub(crate) mod script;

use std::path::Path;
use std::rc::Rc;

use spile_bpf::object::elf::MapSpec;
use spile_cast::Cast;
use spile_ir::{HostKind, ProgramFacts};
use spile_kernel::features::{self, Availability, Feature};
use spile_kernel::{process, resources};
use spile_runtime::io::child::WatchedProcess;
use spile_runtime::load::map_prealloc::PremadeMaps;
use spile_runtime::session;

use crate::cli::{Cli, Runtime};
use crate::report::{Failure, Stopwatch, fail, print_stderr, print_stdout};
use crate::{list, machine};
use analyse::{analyse, check_types, counts, report_unused_parts};
use compile::{compile, dump, translate, write_object};
use execute::execute;
use parse::{Frontend, parse};
use script::{ScriptInput, script};

/// The outcome of the passes.
pub(crate) enum PassesOutcome {
    /// No session: a listing or the output of a pass was printed; with the exit status.
    Shown(u8),
    /// A session ran.
    Ran(Box<session::Outcome>),
}

impl PassesOutcome {
    /// The exit status.
    pub(crate) fn code(&self) -> u8 {
        match self {
            PassesOutcome::Shown(code) => *code,
            PassesOutcome::Ran(outcome) => outcome.exit_code.clamp(0, 255).fit::<u8>(),
        }
    }
}

/// Runs the command; the result is the exit status. `change` can modify the session's options.
pub(crate) fn run(
    cli: &Cli,
    color: bool,
    change: impl FnOnce(&mut spile_runtime::SessionOptions),
) -> Result<u8, Failure> {
    let script = (!list::is_requested(cli))
        .then(|| script(cli))
        .transpose()?;
    Ok(run_script(cli, script, color, change)?.code())
}

/// Runs the passes over a script, or makes a listing without one. `change` can modify the session's
/// options at the end.
pub(crate) fn run_script(
    cli: &Cli,
    script: Option<ScriptInput>,
    color: bool,
    change: impl FnOnce(&mut spile_runtime::SessionOptions),
) -> Result<PassesOutcome, Failure> {
    let mut watch = Stopwatch::start([1, 2, 3, 4, 5].map(|pass| cli.is_verbose(pass)));
    resources::check().map_err(fail)?;
    check_temporary_folder()?;
    let held = (script.is_some() && cli.pass != Some(1))
        .then(|| begin_early(cli))
        .flatten();
    if list::is_requested(cli) {
        return run_list(cli, &mut watch, color).map(PassesOutcome::Shown);
    }
    let mut front = parse(cli, script)?;
    watch.pass(1, "parsed user script");
    let last = last_pass(cli, &front);
    front
        .report(cli, color)
        .inspect_err(print_failed("Pass 1: parse"))?;
    if last == 1 {
        return shown(&front.pretty);
    }
    let analysis = analyse(cli, &mut front)?;
    check_types(cli, &mut front, color)?;
    front
        .report(cli, color)
        .inspect_err(print_failed("Pass 2: analysis"))?;
    let analysis = analysis.ok_or(Failure::Reported)?;
    watch.pass(2, counts(&analysis.program, &front));
    report_unused_parts(cli, &analysis, &front);
    if last == 2 {
        return shown(&analysis.dump);
    }
    front.facts.analysed();
    let mut program = analysis.program;
    let explanation = translate(cli, &mut program)?;
    watch.pass(
        3,
        format_args!("translated {} handler(s)", program.handlers.len()),
    );
    if cli.is_verbose(3) {
        print_stderr(&explanation);
    }
    if last == 3 {
        return shown(&program);
    }
    let facts = Rc::new(ProgramFacts::new(&program));
    let mut ahead = None;
    let planned = |maps: &[MapSpec], state| {
        ahead = (last == 5 && is_in_kernel(cli)).then(|| PremadeMaps::begin(maps, state));
    };
    let compiled = compile(cli, &program, &facts, planned)?;
    let object = compiled.as_ref().map(|(object, _)| object);
    let size = object.map(|o| format!("compiled to eBPF: {} instructions", o.spec.slots()));
    let nothing = || "nothing to compile: no handler runs in the kernel".to_owned();
    watch.pass(4, size.unwrap_or_else(nothing));
    if let Some(stage) = cli.dump {
        return dump(object, stage).map(|()| PassesOutcome::Shown(0));
    }
    if last == 4 || cli.keep {
        write_object(cli, object, last == 4)?;
    }
    if last == 4 {
        return Ok(PassesOutcome::Shown(0));
    }
    let read_files = front.facts.read_files();
    let change = |options: &mut spile_runtime::SessionOptions| {
        (options.suspended_child, options.ahead) = (held, ahead);
        options.facts = Some(facts);
        change(options);
    };
    let outcome = execute(cli, program, compiled, read_files, change)?;
    watch.pass(5, "run completed");
    // The process is about to end: freeing the trees would take a millisecond for nothing. The same
    // holds for the session's data.
    std::mem::forget(front);
    Ok(PassesOutcome::Ran(Box::new(outcome)))
}

/// Refuses a TMPDIR that is no folder, as SystemTap does: the C compiler of `@cast`, and what `-c`
/// starts, would fail later.
fn check_temporary_folder() -> Result<(), Failure> {
    let set = std::env::var_os("TMPDIR").filter(|name| !name.is_empty());
    let Some(name) = set.filter(|name| !Path::new(name).is_dir()) else {
        return Ok(());
    };
    Err(fail(format_args!(
        "TMPDIR={}: not a folder; unset it, or name one",
        Path::new(&name).display()
    )))
}

/// Makes a listing.
fn run_list(cli: &Cli, watch: &mut Stopwatch, color: bool) -> Result<u8, Failure> {
    process::large_heap();
    list::begin_early(cli);
    let mut front = parse(cli, None)?;
    watch.pass(1, "parsed user script");
    let status = list::run(cli, &mut front, color)?;
    // As at the end of a run.
    std::mem::forget(front);
    Ok(status)
}

/// Prints which pass failed, after its errors.
fn print_failed(pass: &'static str) -> impl FnOnce(&Failure) {
    move |_| print_stderr(format_args!("{pass} failed.\n"))
}

/// The end of a run whose last pass prints its output.
fn shown(output: impl std::fmt::Display) -> Result<PassesOutcome, Failure> {
    print_stdout(output)?;
    Ok(PassesOutcome::Shown(0))
}

/// Begins work that needs no script: reading the kernel's types, and the command of `-c`, which stops
/// before its `execve`.
fn begin_early(cli: &Cli) -> Option<WatchedProcess> {
    // The command forks before there is memory that it would share.
    let held = match (is_session(cli), &cli.release, &cli.command) {
        (true, None, Some(command)) => WatchedProcess::start(command).ok(),
        _ => None,
    };
    process::large_heap();
    // With -r, types of another kernel are needed, and in processes none.
    if cli.release.is_none() && is_in_kernel(cli) {
        process::spawn_masked(machine::preread);
    }
    held
}

/// Decides what runs the handlers of a session with a target, if the command line does not.
pub(crate) fn choose_runtime(cli: &mut Cli) {
    let has_target = cli.command.is_some() || cli.pid.is_some();
    // Who may not use BPF may not ask what it can do.
    if cli.runtime == Runtime::Auto
        && has_target
        && is_session(cli)
        && matches!(features::has(Feature::Bpf), Availability::Unknown(_))
    {
        cli.runtime = Runtime::Process;
    }
}

/// Whether compiled handlers run in the kernel.
fn is_in_kernel(cli: &Cli) -> bool {
    cli.runtime.host() == HostKind::Kernel
}

/// Whether the command line asks for a session.
pub(crate) fn is_session(cli: &Cli) -> bool {
    !list::is_requested(cli) && cli.dump.is_none() && matches!(cli.pass, None | Some(5))
}

/// The last pass of the run.
fn last_pass(cli: &Cli, front: &Frontend) -> u8 {
    let last = cli.pass.unwrap_or(if cli.dump.is_some() { 4 } else { 5 });
    if front.other && last > 4 {
        print_stderr("the kernel of -r is not running: the last pass is 4\n");
        return 4;
    }
    last
}
