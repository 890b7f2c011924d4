//! `spile syscount`: counts and times system calls.
//!
//! In: options, and the rows that `tools/syscount.stp` prints. Out: tables, JSON, or a live view of
//! the terminal. Nothing is counted here.

mod filter;
mod live;
mod rows;
mod show;

use std::cell::RefCell;
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use spile_cast::Cast;
use spile_runtime::Outcome;
use spile_runtime::TargetProcess;
use spile_runtime::io::rows::Row;

use self::live::ViewState;
use self::rows::{Reader, Report};
use self::show::{PrintState, ReportFormat, ReportShape};
use super::screen::{Live, ascii_only, keyboard_source};
use super::{Passes, ToolRun};
use spile_plain::messages::{Failure, fail, print_stderr, print_stdout};

/// Counts and times system calls.
#[derive(Debug, Parser, Default)]
#[command(
    name = "spile syscount",
    bin_name = "spile syscount",
    after_help = "spile counts calls until Ctrl-C, until -d SECS have passed, or until the process of -p, the \
                  thread of -t or the command of -c ends."
)]
pub struct Syscount {
    /// Group calls by these keys
    #[arg(
        long,
        value_name = "KEY,...",
        value_delimiter = ',',
        default_value = "name"
    )]
    by: Vec<Key>,
    /// Count only calls of process PID
    #[arg(short = 'p', long = "pid", value_name = "PID")]
    pid: Option<u32>,
    /// Count only calls of thread TID
    #[arg(short = 't', long = "tid", value_name = "TID")]
    tid: Option<u32>,
    /// Count only calls of threads named NAME
    #[arg(long, value_name = "NAME")]
    comm: Option<String>,
    /// Start CMD, and count its calls and those of its descendants
    #[arg(short = 'c', long = "command", value_name = "CMD", conflicts_with_all = ["pid", "tid", "live"])]
    command: Option<String>,
    /// Count only calls of processes in this control group (version 2) or below it
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,
    /// Time the calls: sum, mean, maximum and a histogram
    #[arg(short = 'L', long)]
    latency: bool,
    /// Count only calls that fail
    #[arg(short = 'x', long)]
    failures: bool,
    /// Report every SECS seconds
    #[arg(short = 'i', long, value_name = "SECS", value_parser = seconds)]
    interval: Option<Duration>,
    /// End after SECS seconds
    #[arg(short = 'd', long, value_name = "SECS", value_parser = seconds)]
    duration: Option<Duration>,
    /// Show the first N groups, 0 for all [default: 20; all with --json and --csv]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Print JSON, one line for each report
    #[arg(long, conflicts_with_all = ["csv", "live"])]
    json: bool,
    /// Print comma-separated values
    #[arg(long, conflicts_with = "live")]
    csv: bool,
    /// Show a live table; without a terminal, print as usual
    #[arg(long)]
    live: bool,
    /// Print the script and exit
    #[arg(long)]
    print_script: bool,
    /// Print details: passes with their times, storage of globals
    #[arg(short = 'v', action = clap::ArgAction::Count)]
    verbose: u8,
}

/// A key by which calls are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Key {
    /// No grouping: one sum
    All,
    /// The call
    Name,
    /// The process
    Process,
    /// The thread
    Thread,
    /// The error that the call returns
    Error,
}

/// A time in seconds, of at least a millisecond.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let secs: f64 = text.parse().map_err(|_| "not a number of seconds")?;
    let time = Duration::try_from_secs_f64(secs).map_err(|e| e.to_string())?;
    match time.as_millis() {
        0 => Err("less than a millisecond".into()),
        1..=2_000_000_000 => Ok(time),
        _ => Err("too long".into()),
    }
}

impl Syscount {
    fn by(&self, key: Key) -> bool {
        self.by.contains(&key)
    }

    /// The shape of reports.
    fn shape(&self) -> ReportShape {
        let form = match (self.json, self.csv) {
            (true, _) => ReportFormat::Json,
            (_, true) => ReportFormat::Csv,
            _ => ReportFormat::Text,
        };
        let usual = match form {
            ReportFormat::Text => 20,
            ReportFormat::Json | ReportFormat::Csv => 0,
        };
        ReportShape {
            form,
            name: self.by(Key::Name),
            error: self.by(Key::Error),
            process: self.by(Key::Process) || self.by(Key::Thread),
            thread: self.by(Key::Thread),
            timed: self.latency,
            top: match self.top.unwrap_or(usual) {
                0 => usize::MAX,
                n => n,
            },
            intervals: self.interval.is_some() || self.live,
        }
    }
}

/// Runs the command; the result is the exit status.
pub fn run(cli: &Syscount, passes: Passes<'_>) -> Result<u8, Failure> {
    if cli.print_script {
        print_stdout(super::script("syscount"))?;
        return Ok(0);
    }
    if cli.by(Key::All) && cli.by.len() > 1 {
        return Err(fail("--by all excludes other keys"));
    }
    let run = prepare(cli)?;
    match cli.live && std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
        true => watch(cli, run, passes),
        false => print_reports(cli, run, passes),
    }
}

/// The run that the options ask for.
fn prepare(cli: &Syscount) -> Result<ToolRun, Failure> {
    let mut run = ToolRun::new("syscount");
    run.verbose = cli.verbose;
    run.in_process = cli.cgroup.is_none();
    for (name, on) in [
        ("by_name", cli.by(Key::Name)),
        ("by_process", cli.by(Key::Process)),
        ("by_thread", cli.by(Key::Thread)),
        ("by_error", cli.by(Key::Error)),
        ("timed", cli.latency),
        ("failures", cli.failures),
    ] {
        run.set(name, u8::from(on));
    }
    if let Some(pid) = cli.pid {
        run.set("only_pid", filter::process(pid)?);
        run.target = TargetProcess::Pid(pid);
    }
    if let Some(tid) = cli.tid {
        let (tid, pid) = filter::thread(tid, cli.pid)?;
        run.set("only_tid", tid);
        run.target = TargetProcess::Pid(pid);
    }
    if let Some(comm) = &cli.comm {
        run.set("only_comm", filter::comm(comm)?);
    }
    if let Some(path) = &cli.cgroup {
        let (id, level) = filter::cgroup(path)?;
        run.set("only_cgroup", id);
        run.set("cgroup_level", level);
    }
    if let Some(command) = &cli.command {
        run.set("only_tree", 1);
        run.target = TargetProcess::Command(command.clone());
    }
    let interval = cli.interval.or(cli.live.then_some(Duration::from_secs(1)));
    run.timeout = cli.duration;
    if let Some(interval) = interval {
        let ms = interval.as_millis();
        let whole = cli.duration.map_or(0, |d| d.as_millis());
        // If the duration is a multiple of the interval, the script ends itself, with its last
        // report.
        let reports = match whole % ms {
            0 => whole / ms,
            _ => 0,
        };
        if reports > 0 {
            run.timeout = None;
        }
        run.args = vec![ms.to_string(), reports.to_string()];
    }
    Ok(run)
}

/// Prints the rows of a session.
struct Printer {
    shape: ReportShape,
    reader: Reader,
    /// The last report is printed after the session, together with the account.
    last: Option<Report>,
    shown: PrintState,
    failed: Option<Failure>,
}

impl Printer {
    fn row(&mut self, row: &Row<'_>, out: &mut Vec<u8>) -> ControlFlow<()> {
        match self.reader.row(row) {
            Ok(None) => {}
            Ok(Some(report)) if report.last => self.last = Some(report),
            Ok(Some(report)) => out.extend(self.text(&report, None).into_bytes()),
            Err(e) => {
                self.failed = Some(fail(e));
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn text(&mut self, report: &Report, outcome: Option<&Outcome>) -> String {
        self.shown.report(&self.shape, report, outcome)
    }
}

/// Shows reports in place.
fn watch(cli: &Syscount, mut run: ToolRun, passes: Passes<'_>) -> Result<u8, Failure> {
    let shape = ReportShape {
        top: cli.top.filter(|n| *n > 0).unwrap_or(usize::MAX),
        ..cli.shape()
    };
    let view = Rc::new(RefCell::new(ViewState::new(shape, ascii_only())));
    let live = Live::new(view.clone());
    let outside = keyboard_source(&live).map_err(|e| fail(format_args!("--live: {e}")))?;
    run.outside = Some(outside);
    // Printed lines would disturb the view.
    run.quiet = true;
    let (opening, rows) = (Rc::clone(&live), Rc::clone(&live));
    run.armed = Some(Box::new(move |_| opening.borrow_mut().open()));
    let mut reader = Reader::default();
    let outcome = run.run(passes, move |row, _| {
        let mut live = rows.borrow_mut();
        match reader.row(row) {
            Ok(Some(report)) => {
                view.borrow_mut().report(report);
                live.draw()
            }
            Ok(None) => ControlFlow::Continue(()),
            Err(e) => live.fails(fail(e)),
        }
    });
    let failed = live.borrow_mut().close();
    let outcome = outcome?;
    if let Some(failed) = failed {
        return Err(failed);
    }
    print_stderr(outcome.losses.text(false));
    Ok(outcome.exit_code.clamp(0, 255).fit::<u8>())
}

/// Prints reports as they come.
fn print_reports(cli: &Syscount, mut run: ToolRun, passes: Passes<'_>) -> Result<u8, Failure> {
    let printer = Rc::new(RefCell::new(Printer {
        shape: cli.shape(),
        reader: Reader::default(),
        last: None,
        shown: PrintState::default(),
        failed: None,
    }));
    if cli.duration.is_none() && cli.command.is_none() && std::io::stderr().is_terminal() {
        run.armed = Some(Box::new(|_| {
            print_stderr("Counting system calls; Ctrl-C ends it.\n")
        }));
    }
    let rows = Rc::clone(&printer);
    let outcome = run.run(passes, move |row, out| rows.borrow_mut().row(row, out))?;
    let mut printer = printer.borrow_mut();
    if let Some(failed) = printer.failed.take() {
        return Err(failed);
    }
    if let Some(last) = printer.last.take() {
        print_stdout(printer.text(&last, Some(&outcome)))?;
    }
    Ok(outcome.exit_code.clamp(0, 255).fit::<u8>())
}
