//! `spile`: SystemTap scripts as eBPF. The command line; everything else is in the crates.

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

mod attach;
mod check;
mod cli;
mod completions;
mod examples;
mod explain;
mod facts;
mod fmt;
mod interactive;
mod list;
mod lsp;
mod machine;
mod passes;
mod report;
mod stap;
mod staprun;
mod tapset;
mod tools;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;

use cli::Cli;
use report::{Failure, fail};
use spile_tools::{profile, profiles, syscount};
use stap::Companion;

/// The text that `--sdt-header` prints.
const SDT_HEADER: &str = include_str!("../../../include/spile/sdt.h");

#[global_allocator]
static HEAP: spile_kernel::resources::Heap = spile_kernel::resources::Heap;

fn main() -> ExitCode {
    spile_kernel::sigbus::end_with_a_message();
    spile_kernel::process::file_limit_is_an_error();
    spile_kernel::resources::handle_memory_panics();
    spile_kernel::resources::raise_open_files();
    let mut args = std::env::args_os();
    let passes = |run, rows| tools::run(run, rows, std::io::stderr().is_terminal());
    let program = args.next();
    if let Some(companion) = stap::companion(program.as_deref()) {
        return exit(run_companion(companion, args), false);
    }
    if stap::is_stap(program.as_deref()) {
        // There `fmt` is a file.
        return run();
    }
    match args.next().as_deref().and_then(|a| a.to_str()) {
        Some("fmt") => subcommand(|cli: cli::Fmt| fmt::run(&cli, std::io::stderr().is_terminal())),
        Some("lsp") => subcommand(|cli: cli::Lsp| lsp::run(&cli)),
        Some("attach") => subcommand(|cli: cli::Attach| attach::run(cli.pid, false)),
        Some("stop") => subcommand(|cli: cli::Stop| attach::run(cli.pid, true)),
        Some("report") => subcommand(|cli: profiles::Report| profiles::report(&cli)),
        Some("diff") => subcommand(|cli: profiles::Diff| profiles::diff(&cli)),
        Some("profile") => subcommand(|cli: profile::ProfileCommand| profile::run(&cli, &passes)),
        Some("syscount") => subcommand(|cli: syscount::Syscount| syscount::run(&cli, &passes)),
        _ => run(),
    }
}

/// The options of a command line, or the exit status of an error in them.
fn parse<C: Parser>(args: impl IntoIterator<Item = OsString>) -> Result<C, ExitCode> {
    C::try_parse_from(args).map_err(|e| {
        // Help goes to standard output and is a success.
        let wrong = e.use_stderr();
        let printed = match e.print() {
            Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe && !wrong => {
                fail(format_args!("cannot write to standard output: {e}")).print(false);
                false
            }
            _ => true,
        };
        ExitCode::from(u8::from(wrong || !printed))
    })
}

fn subcommand<C: Parser>(run: impl FnOnce(C) -> Result<u8, Failure>) -> ExitCode {
    match parse(std::env::args_os().skip(1)) {
        Ok(cli) => exit(run(cli), std::io::stderr().is_terminal()),
        Err(code) => code,
    }
}

fn exit(result: Result<u8, Failure>, color: bool) -> ExitCode {
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.print(color);
            ExitCode::FAILURE
        }
    }
}

/// The options of a run.
struct Options {
    cli: Cli,
    /// What `-v` says of options without effect.
    notes: Vec<String>,
    warnings: Vec<String>,
    /// The program was called as `stap`.
    stap: bool,
}

/// The options of a run, or the exit status.
fn options() -> Result<Options, ExitCode> {
    let failed = |failure: Failure| {
        failure.print(false);
        ExitCode::FAILURE
    };
    let mut args: Vec<OsString> = std::env::args_os().collect();
    let script_file = interactive::take_script(&mut args);
    let stap = stap::is_stap(args.first().map(|a| &**a));
    let more = stap::options_file().map_err(failed)?;
    let start = args.len().min(1);
    args.splice(start..start, more.words);
    let line = stap::rewrite(args).map_err(failed)?;
    line.set_limits().map_err(failed)?;
    if let Some(text) = line.done {
        return Err(exit(printed(format_args!("{text}\n")), false));
    }
    let mut cli: Cli = parse(line.args)?;
    cli.interactive = line.interactive && script_file.is_none();
    cli.script_file = script_file;
    passes::choose_runtime(&mut cli);
    Ok(Options {
        cli,
        notes: line.notes,
        warnings: more.warnings,
        stap,
    })
}

/// Does what is left of another program of SystemTap.
fn run_companion(
    (name, companion): (&str, Companion),
    args: impl Iterator<Item = OsString>,
) -> Result<u8, Failure> {
    match companion {
        Companion::NotNeeded(why) => printed(format_args!("{name} is not needed: {why}\n")),
        Companion::Runner => staprun::run(name, args),
        Companion::Report => {
            printed(stap::version())?;
            printed(check::table(&check::RunningMachine))
        }
    }
}

/// Prints a text to standard output; the result is the exit status.
fn printed(text: impl std::fmt::Display) -> Result<u8, Failure> {
    report::print_stdout(text).map(|()| 0)
}

/// The text that an option asks for instead of a session.
fn information(cli: &Cli) -> Option<Result<String, Failure>> {
    let text = if cli.version {
        format!(
            "spile {}, SystemTap language {}, {}\n",
            env!("CARGO_PKG_VERSION"),
            spile_syntax::preproc::SYSTEMTAP_VERSION,
            "MIT OR Apache-2.0, no warranty"
        )
    } else if cli.check {
        check::table(&check::RunningMachine)
    } else if let Some(code) = &cli.explain {
        return Some(explain::page(code));
    } else if cli.sdt_header {
        SDT_HEADER.to_owned()
    } else if cli.region_header {
        spile_context::HEADER.to_owned()
    } else {
        completions::script(cli.completions?)
    };
    Some(Ok(text))
}

fn run() -> ExitCode {
    let Options {
        mut cli,
        notes,
        mut warnings,
        stap,
    } = match options() {
        Ok(options) => options,
        Err(code) => return code,
    };
    if cli.version && stap {
        return exit(printed(stap::version()), false);
    }
    warnings.extend(stap::variables(&mut cli));
    if !cli.no_warnings {
        let warning = |text| report::print_stderr(format_args!("WARNING: {text}\n"));
        warnings.iter().for_each(warning);
    }
    if cli.is_verbose(1) {
        notes
            .iter()
            .for_each(|n| report::print_stderr(format_args!("{n}\n")));
    }
    if let Some(text) = information(&cli) {
        return exit(text.and_then(printed), false);
    }
    let color = match cli.color.as_str() {
        "always" => true,
        "never" => false,
        _ => std::io::stderr().is_terminal(),
    };
    let result = match cli.background && passes::is_session(&cli) {
        _ if cli.interactive => interactive::run(&cli, color),
        true => attach::start(&cli, color),
        false => passes::run(&cli, color, |_| {}),
    };
    exit(result, color)
}
