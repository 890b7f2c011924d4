//! Ready-made tools: each is a script of `tools/`, and a front end that takes its prints as rows of
//! typed values and shows them. Options of a tool set the script's globals (`-G`), which the optimiser folds.

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

mod groups;
pub mod profile;
pub mod profiles;
mod rows;
mod screen;
pub mod syscount;
mod system;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use spile_plain::messages::{Failure, fail, print_stdout};
use spile_runtime::io::rows::{Row, RowSink};
use spile_runtime::{ExternalSource, OnArmed, Outcome, TargetProcess};

use self::rows::Fields;

/// The scripts, by the names of their files in `tools/`.
const SCRIPTS: [(&str, &str); 8] = [
    ("lock-sites", include_str!("../../../tools/lock-sites.stp")),
    (
        "numa-faults",
        include_str!("../../../tools/numa-faults.stp"),
    ),
    ("noise", include_str!("../../../tools/noise.stp")),
    ("profile", include_str!("../../../tools/profile.stp")),
    ("registers", include_str!("../../../tools/registers.stp")),
    ("syscount", include_str!("../../../tools/syscount.stp")),
    ("system", include_str!("../../../tools/system.stp")),
    (
        "system-samples",
        include_str!("../../../tools/system-samples.stp"),
    ),
];

/// The text of a tool's script; "" if there is none.
pub fn script(name: &str) -> &'static str {
    let script = SCRIPTS.iter().find(|(tool, _)| *tool == name);
    script.map_or("", |(_, text)| text)
}

/// Compiles the script of a run and runs it to the end, passing on its prints. The command line
/// gives the tools this function.
pub type Passes<'a> = &'a dyn Fn(ToolRun, RowSink) -> Result<Outcome, Failure>;

/// A run of a tool's script.
#[derive(Default)]
pub struct ToolRun {
    /// Name of the script in `tools/`, without `.stp`.
    pub tool: &'static str,
    /// Names of further scripts in `tools/` that run beside it.
    pub beside: Vec<&'static str>,
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
    /// The folder of a control group whose processes the session is about.
    pub group: Option<PathBuf>,
    /// The session ends after this time.
    pub timeout: Option<Duration>,
    /// Whether handlers may run in the target, where the user may not load BPF programs.
    pub in_process: bool,
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

    /// A run whose losses are a part of its result, and do not end it.
    fn recording(tool: &'static str, verbose: u8) -> ToolRun {
        ToolRun {
            verbose,
            quiet: true,
            limits: vec!["MAXSKIPPED=1000000000".into(), "MAXERRORS=1000000".into()],
            ..ToolRun::new(tool)
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

    /// Compiles the script and runs it to the end; builds up a state from its rows.
    fn build<B: FromRows>(self, passes: Passes<'_>) -> Result<(Built<B>, Outcome), Failure> {
        let built = Rc::new(RefCell::new(Built::default()));
        let taken = Rc::clone(&built);
        let outcome = self.run(passes, move |row, _| {
            taken.borrow_mut().row(row);
            ControlFlow::Continue(())
        })?;
        Ok((built.take(), outcome))
    }
}

/// The error of a run whose last row did not come.
const UNFINISHED: &str = "the recording ended before its account";

/// A state that the rows of a script build up.
trait FromRows: Default + 'static {
    /// Takes the row of that name; `None` if it is malformed.
    fn take(&mut self, name: &str, f: &mut Fields<'_>) -> Option<()>;
}

/// A state, and what the rows were like.
#[derive(Default)]
struct Built<B> {
    state: B,
    /// Number of rows that were malformed.
    malformed: u64,
    /// Whether the last row came, `end`.
    ended: bool,
}

impl<B: FromRows> Built<B> {
    fn row(&mut self, row: &Row<'_>) {
        match self.state.take(row.name, &mut Fields::new(row)) {
            Some(()) => self.ended |= row.name == "end",
            None => self.malformed += 1,
        }
    }

    /// The state after the last row.
    fn state(self) -> Result<B, Failure> {
        match self.ended {
            true => Ok(self.state),
            false => Err(fail(UNFINISHED)),
        }
    }
}

/// What is lost where rows are malformed.
const MALFORMED: &str = "rows of the recording: they were malformed";

/// Adds what was lost to an account: numbers, each with what it counts.
fn add_losses<'a>(
    lost: &mut BTreeMap<String, u64>,
    counts: impl IntoIterator<Item = (u64, &'a str)>,
) {
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    lost.extend(counts.map(|(count, kind)| (kind.to_owned(), count)));
}

/// Prints a line of JSON.
fn print_json(text: serde_json::Result<String>) -> Result<(), Failure> {
    print_stdout(format_args!("{}\n", text.map_err(fail)?))
}
