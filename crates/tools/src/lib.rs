//! Ready-made tools: each is a script of `tools/`, and a front end that takes its prints as rows of
//! typed values and shows them. Options of a tool set the script's globals (`-G`), which the optimiser folds.

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

pub mod profile;
pub mod profiles;
mod rows;
pub mod syscount;
mod system;

use std::ops::ControlFlow;
use std::time::Duration;

use spile_plain::messages::Failure;
use spile_runtime::io::rows::{Row, RowSink};
use spile_runtime::{ExternalSource, OnArmed, Outcome, TargetProcess};

/// The scripts, by the names of their files in `tools/`.
const SCRIPTS: [(&str, &str); 4] = [
    ("noise", include_str!("../../../tools/noise.stp")),
    ("profile", include_str!("../../../tools/profile.stp")),
    ("syscount", include_str!("../../../tools/syscount.stp")),
    ("system", include_str!("../../../tools/system.stp")),
];

/// The text of a tool's script; "" if there is none.
pub fn script(name: &str) -> &'static str {
    let found = SCRIPTS.iter().find(|(tool, _)| *tool == name);
    found.map_or("", |(_, text)| text)
}

/// Compiles the script of a run and runs it to the end, passing on its prints. The command line
/// gives the tools this function.
pub type Passes<'a> = &'a dyn Fn(ToolRun, RowSink) -> Result<Outcome, Failure>;

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
    /// The processes that the session is about: all of them, until it is ended, or one process,
    /// with which it ends.
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
    pub armed: Option<OnArmed>,
}

impl ToolRun {
    /// A run of a tool's script.
    fn new(tool: &'static str) -> ToolRun {
        ToolRun {
            tool,
            ..ToolRun::default()
        }
    }

    /// Sets a global of the script.
    fn set(&mut self, name: &'static str, value: impl ToString) {
        self.settings.push((name, value.to_string()));
    }

    /// Compiles the script and runs it to the end. `row` gets each print, and returns `Break` to
    /// end the session. Text that it adds to its second argument goes to standard output.
    fn run(
        self,
        passes: Passes<'_>,
        row: impl FnMut(&Row<'_>, &mut Vec<u8>) -> ControlFlow<()> + 'static,
    ) -> Result<Outcome, Failure> {
        passes(self, Box::new(row))
    }
}
