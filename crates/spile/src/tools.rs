//! Runs the scripts of ready-made tools through the passes.

use spile_runtime::io::output::OutputTarget;
use spile_runtime::io::rows::RowSink;
use spile_runtime::{Outcome, TargetProcess};
use spile_tools::ToolRun;

use crate::cli::Cli;
use crate::passes::script::ScriptInput;
use crate::passes::{self, PassesOutcome};
use crate::report::{Failure, fail};

/// Compiles a tool's script and runs it to the end. `rows` gets its prints.
pub(crate) fn run(run: ToolRun, rows: RowSink, color: bool) -> Result<Outcome, Failure> {
    let name = run.tool;
    let globals = run.settings.iter().map(|(n, v)| format!("{n}={v}"));
    let mut cli = Cli {
        globals: globals.collect(),
        verbose: run.verbose,
        no_warnings: run.quiet,
        timeout: run.timeout.map(|t| t.as_secs_f64()),
        buffer_mb: run.buffer_mb,
        defines: run.limits,
        resident: run.resident,
        rest_between: run.rest,
        no_global_var_display: true,
        suppress_time_limits: true,
        // Losses are reported at the end, and do not end the session.
        suppress_handler_errors: true,
        ..Cli::default()
    };
    match run.target {
        TargetProcess::None => {}
        TargetProcess::Pid(pid) => cli.pid = Some(pid),
        TargetProcess::Command(command) => cli.command = Some(command),
    }
    if run.in_process {
        passes::choose_runtime(&mut cli);
    }
    let texts = std::iter::once(name).chain(run.beside).map(|name| {
        let text = spile_tools::script(name).as_bytes().to_vec();
        (format!("tools/{name}.stp"), text)
    });
    let script = ScriptInput {
        texts: texts.collect(),
        args: run.args,
    };
    let (outside, armed, group) = (run.outside, run.armed, run.group);
    let counts = run.quiet;
    let ended = passes::run_script(&cli, Some(script), color, |options| {
        options.output = OutputTarget::Rows(rows);
        options.outside = outside;
        options.group = group;
        options.ends_with_process = true;
        options.whole_keys = true;
        // Handler errors are reported, and count for the exit status.
        options.suppress_errors = false;
        options.suppress_overflows = counts;
        options.armed = match (options.armed.take(), armed) {
            (Some(usual), Some(own)) => Some(Box::new(move |kinds| {
                usual(kinds);
                own(kinds);
            })),
            (usual, own) => own.or(usual),
        };
    })?;
    match ended {
        PassesOutcome::Ran(outcome) => Ok(*outcome),
        PassesOutcome::Shown(_) => Err(fail(format_args!("{name}: the script did not run"))),
    }
}
