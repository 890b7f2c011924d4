//! Pass 5: the session and its options.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use spile_bpf::compiled::Object;
use spile_ir::{HostKind, Program};
use spile_runtime::io::output;
use spile_runtime::session;

use super::compile::CompiledObject;
use super::script::{session_name, target};
use crate::cli::Cli;
use crate::report::{Failure, fail, print_stderr, print_stderr_lines};

/// The files of `-d`; kernel modules are searched without being named.
fn objects(cli: &Cli) -> Result<Vec<PathBuf>, Failure> {
    let file = |path: &PathBuf| match path.canonicalize() {
        Ok(path) => Some(Ok(path)),
        Err(_) if path.components().count() == 1 => None,
        Err(e) => Some(Err(fail(format_args!("-d {}: {e}", path.display())))),
    };
    cli.objects.iter().filter_map(file).collect()
}

/// The host of a session with an object.
fn host<'o>(cli: &Cli, object: &'o Object) -> spile_runtime::SessionHost<'o> {
    match cli.runtime.host() {
        HostKind::Kernel => spile_runtime::SessionHost::kernel(object),
        HostKind::Process => spile_runtime::SessionHost::process(object),
    }
}

pub(super) fn execute(
    cli: &Cli,
    program: Program,
    compiled: Option<CompiledObject>,
    read_files: Vec<(PathBuf, spile_runtime::FileState)>,
    change: impl FnOnce(&mut spile_runtime::SessionOptions),
) -> Result<session::Outcome, Failure> {
    let seconds = |secs| {
        let timeout = Duration::try_from_secs_f64(secs);
        timeout.map_err(|e| fail(format_args!("-T {secs}: {e}")))
    };
    let timeout = cli.timeout.map(seconds).transpose()?;
    let verbose = cli.is_verbose(5);
    let (object, machine) = compiled.unzip();
    let machine = machine.map(Rc::new);
    let otherwise = |change: fn(&mut spile_bpf::target::Target)| {
        let machine = machine.clone()?;
        let again = move |program: &Program| {
            let mut machine = (*machine).clone();
            change(&mut machine);
            spile_bpf::compile(program, &machine).ok()
        };
        Some(Box::new(again) as session::CompileFn)
    };
    let mut options = spile_runtime::SessionOptions {
        target: target(cli)?,
        output: match &cli.output {
            Some(file) => output::OutputTarget::File(file.clone(), cli.series),
            None => output::OutputTarget::Stdout,
        },
        looked_at: read_files,
        timeout,
        rest: cli.rest_between,
        name: session_name(cli),
        objects: objects(cli)?,
        prometheus: cli.prometheus.clone(),
        timing: cli.timing,
        quiet: cli.no_warnings,
        suppress_errors: cli.suppress_handler_errors,
        display_globals: !cli.no_global_var_display,
        armed: verbose.then(|| -> spile_runtime::OnArmed {
            Box::new(|late| {
                print_stderr_lines(late);
                print_stderr("Pass 5: starting run.\n");
            })
        }),
        with_lines: otherwise(|machine| machine.lines = true),
        fallback: otherwise(|machine| {
            machine.functions.clear();
            machine.features.kprobe_session = None;
        }),
        ..spile_runtime::SessionOptions::default()
    };
    change(&mut options);
    let host = object.as_ref().map(|object| host(cli, object));
    let mut session = session::Session::new(program, host, options).map_err(fail)?;
    if verbose {
        print_stderr_lines(session.attach_kinds());
    }
    if let (true, Some(path)) = (verbose, session.files_path()) {
        print_stderr(format_args!("Files are in {path}\n"));
    }
    if let (Some(asked), Some(addr)) = (&cli.prometheus, session.prometheus_addr())
        && (verbose || asked.ends_with(":0"))
    {
        print_stderr(format_args!("Metrics are at http://{addr}/metrics\n"));
    }
    let outcome = session.run().map_err(fail)?;
    session.leak();
    std::mem::forget((object, machine));
    Ok(outcome)
}
