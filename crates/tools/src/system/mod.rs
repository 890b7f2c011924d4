//! `spile profile --system`: what the whole machine does. `spile profile --noise`: what interrupts a
//! program that only computes.
//!
//! In: options, and the rows of a script of `tools/`. Out: a model of [`spile_profile`] as text or
//! JSON. Nothing is counted here, except by the thread of `--noise` that only reads the clock.

pub(crate) mod marks;
mod noise;
mod rows;

use clap::Args;
use spile_kernel::machine;
use spile_profile::report;

use self::marks::{Work, begin};
use self::rows::MachineBuilder;
use super::profile::{self, ProfileCommand};
use super::{MALFORMED, Passes, ToolRun, add_losses, print_json, script};
use crate::profiles::width;
use spile_plain::messages::{Failure, fail, print_stderr, print_stdout};

/// Options of `spile profile` about the machine.
#[derive(Debug, Args, Default)]
pub(crate) struct MachineOptions {
    /// Profile the whole machine, by processor, interrupt and process, until CMD or -d SECS end, or Ctrl-C
    #[arg(long, conflicts_with_all = ["pid", "output", "threads"])]
    system: bool,
    /// Measure what interrupts a computing thread on each processor, for -d SECS (10)
    #[arg(long, conflicts_with_all = ["pid", "output", "threads", "system", "command"])]
    noise: bool,
    /// Measure --noise on these processors, such as 0-3,8 [default: all]
    #[arg(long, value_name = "LIST", requires = "noise", value_parser = noise::list)]
    cpus: Option<noise::CpuList>,
    /// Count gaps of at least NS nanoseconds as noise
    #[arg(long, value_name = "NS", requires = "noise", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    threshold: u64,
    /// Print one line of JSON instead of the summary
    #[arg(long, conflicts_with = "threads")]
    pub json: bool,
}

impl MachineOptions {
    /// Whether one of the machine-wide modes is requested.
    pub(crate) fn is_requested(&self) -> bool {
        self.system || self.noise
    }
}

/// Runs the command; the result is its exit status.
pub(crate) fn run(cli: &ProfileCommand, passes: Passes<'_>) -> Result<u8, Failure> {
    if cli.machine.noise {
        return noise::run(cli, passes);
    }
    if cli.print_script {
        print_stdout(script("system"))?;
        return Ok(0);
    }
    if !cli.command.is_empty() {
        profile::command(&cli.command)?;
    }
    let mut tool = ToolRun::recording("system", cli.verbose);
    if let Some(freq) = cli.samples() {
        tool.beside.push("system-samples");
        tool.args = vec![freq.to_string()];
    }
    let cpus = machine::online_cpus();
    let work = Work {
        command: cli.command.clone(),
        duration: cli.duration,
    };
    let begun = begin(cpus, work).map_err(|e| fail(format_args!("a pipe: {e}")));
    let (armed, outside, told) = begun?;
    tool.set("token", marks::token());
    tool.armed = Some(armed);
    tool.outside = Some(outside);
    let (rows, outcome) = tool.build::<MachineBuilder>(passes)?;
    let work = told.take();
    if let Some(wrong) = work.wrong {
        return Err(fail(wrong));
    }
    for cpu in work.unreached {
        print_stderr(format_args!(
            "WARNING: processor {cpu} is left out: spile may not run there\n"
        ));
    }
    let malformed = rows.malformed;
    let mut system = rows.state()?.finish();
    let header = profile::header(cli)?;
    system.host = header.host;
    system.kernel = header.kernel;
    system.command.clone_from(&cli.command);
    system.status = work.status;
    let account = &outcome.losses;
    add_losses(
        &mut system.lost,
        [
            (malformed, MALFORMED),
            (account.errors, "events: their handlers failed"),
            (
                account.skipped.total(),
                "events that hit while another was handled; their time counts where they hit",
            ),
            (
                account.lost_output,
                "names of processes: the buffer was full",
            ),
            (account.overflows, "sums that did not fit in the tables"),
        ],
    );
    match cli.machine.json {
        true => print_json(serde_json::to_string(&system))?,
        false if cli.command.is_empty() => {
            print_stdout(report::system(&system, width(std::io::stdout()), cli.top))?;
        }
        // Standard output belongs to the command.
        false => print_stderr(report::system(&system, width(std::io::stderr()), cli.top)),
    }
    Ok(profile::exit_code(work.status))
}
