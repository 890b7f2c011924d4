//! Ready-made tools: each is a script of `tools/`, and a front end that takes its prints as rows of
//! typed values and shows them. Options of a tool set the script's globals (`-G`), which the optimiser folds.

pub mod profile;
pub mod rows;
pub mod syscount;
pub mod system;

use std::ops::ControlFlow;
use std::time::Duration;

use spile_runtime::TargetProcess;
use spile_runtime::io::output::OutputTarget;
use spile_runtime::io::rows::Row;
use spile_runtime::{ExternalSource, Outcome, session};

use crate::cli::Cli;
use crate::passes::{self, PassesOutcome, ScriptInput};
use crate::report::{Failure, fail};

mod built_in {
    include!(concat!(env!("OUT_DIR"), "/tools.rs"));
}

/// The text of a tool's script.
pub fn script(name: &str) -> Option<&'static str> {
    let file = built_in::FILES
        .iter()
        .find(|(file, _)| file.strip_suffix(".stp") == Some(name));
    Some(file?.1)
}

/// A run of a tool's script.
#[derive(Default)]
pub struct ToolRun {
    /// Name of the script in `tools/`, without `.stp`.
    pub tool: &'static str,
    /// `$1`, `@1`, ...
    pub args: Vec<String>,
    /// Values of the script's globals.
    pub settings: Vec<(&'static str, String)>,
    /// Size of the output buffer in megabytes, if not the default.
    pub buffer_mb: Option<u32>,
    /// Handlers read only process memory that is resident, because the process wrote it.
    pub resident: bool,
    /// How long the session sleeps between two rounds of records.
    pub rest: Option<Duration>,
    /// Limits, as for `-D`.
    pub limits: Vec<String>,
    /// Whose handlers run: everybody's until the session is ended, or those of a process, with which it ends.
    pub target: TargetProcess,
    /// The session ends after this time.
    pub timeout: Option<Duration>,
    /// An additional event source of the session.
    pub outside: Option<ExternalSource>,
    /// Print neither warnings nor the account: the tool reports them from the outcome.
    pub quiet: bool,
    /// Verbosity, as for `-v`.
    pub verbose: u8,
    /// Called when the probes are armed.
    pub armed: Option<session::OnArmed>,
}

impl ToolRun {
    /// A run of a tool's script.
    pub fn of(tool: &'static str) -> ToolRun {
        ToolRun {
            tool,
            ..ToolRun::default()
        }
    }

    /// Sets a global of the script.
    pub fn set(&mut self, name: &'static str, value: impl ToString) {
        self.settings.push((name, value.to_string()));
    }

    /// Compiles the script and runs it to the end. `row` gets each print, and returns `Break` to
    /// end the session. Text that it adds to its second argument goes to standard output.
    pub fn run(
        self,
        color: bool,
        row: impl FnMut(&Row<'_>, &mut Vec<u8>) -> ControlFlow<()> + 'static,
    ) -> Result<Outcome, Failure> {
        let name = self.tool;
        let text = script(name).ok_or_else(|| fail(format_args!("{name}: no such tool")))?;
        let mut cli = Cli {
            verbose: self.verbose,
            no_warnings: self.quiet,
            timeout: self.timeout.map(|t| t.as_secs_f64()),
            buffer_mb: self.buffer_mb,
            defines: self.limits,
            resident: self.resident,
            rest_between: self.rest,
            no_global_var_display: true,
            suppress_time_limits: true,
            // Losses are reported at the end, and do not end the session.
            suppress_handler_errors: true,
            ..Cli::default()
        };
        cli.globals = self
            .settings
            .iter()
            .map(|(n, v)| format!("{n}={v}"))
            .collect();
        match self.target {
            TargetProcess::None => {}
            TargetProcess::Pid(pid) => cli.pid = Some(pid),
            TargetProcess::Command(command) => cli.command = Some(command),
        }
        let script = ScriptInput {
            texts: vec![(format!("tools/{name}.stp"), text.as_bytes().to_vec())],
            args: self.args,
        };
        let (outside, armed) = (self.outside, self.armed);
        let ended = passes::drive(&cli, Some(script), color, |options| {
            options.output = OutputTarget::Rows(Box::new(row));
            options.outside = outside;
            options.ends_with_process = true;
            // Handler errors are reported, and count for the exit status.
            options.suppress_errors = false;
            options.armed = armed.or(options.armed.take());
        })?;
        match ended {
            PassesOutcome::Ran(outcome) => Ok(*outcome),
            PassesOutcome::Shown(_) => Err(fail(format_args!("{name}: the script did not run"))),
        }
    }
}
