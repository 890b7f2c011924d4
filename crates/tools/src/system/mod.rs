//! `spile profile --system`: what the whole machine does. `spile profile --noise`: what interrupts a
//! program that only computes.
//!
//! In: options, and the rows of a script of `tools/`. Out: a model of [`spile_profile`] as text or
//! JSON. Nothing is counted here, except by the thread of `--noise` that only reads the clock.

mod marks;
mod noise;
mod rows;

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;

use clap::Args;
use spile_kernel::machine;
use spile_profile::report;
use spile_profile::system::System;
use spile_runtime::Outcome;

use self::marks::{Work, begin};
use self::rows::MachineBuilder;
use super::profile::{self, ProfileCommand};
use super::{Passes, ToolRun, script};
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
    let mut tool = ToolRun::new("system");
    tool.verbose = cli.verbose;
    tool.quiet = true;
    tool.limits = vec!["MAXSKIPPED=1000000000".into(), "MAXERRORS=1000000".into()];
    let cpus = machine::online_cpus();
    let (armed, outside, told) = begin(
        cpus,
        Work {
            command: cli.command.clone(),
            duration: cli.duration,
        },
    )
    .map_err(|e| fail(format_args!("a pipe: {e}")))?;
    tool.set("token", marks::token());
    tool.armed = Some(armed);
    tool.outside = Some(outside);
    let rows = Rc::new(RefCell::new(MachineBuilder::default()));
    let taken = Rc::clone(&rows);
    let outcome = tool.run(passes, move |row, _| {
        taken.borrow_mut().row(row);
        ControlFlow::Continue(())
    })?;
    let work = told.take();
    if let Some(wrong) = work.wrong {
        return Err(fail(wrong));
    }
    for cpu in work.unreached {
        print_stderr(format_args!(
            "WARNING: processor {cpu} is left out: spile may not run there\n"
        ));
    }
    let rows = rows.take();
    if !rows.ended {
        return Err(fail("the recording ended before its account"));
    }
    let header = profile::header(cli)?;
    let mut system = rows.finish();
    system.host = header.host;
    system.kernel = header.kernel;
    system.command.clone_from(&cli.command);
    system.status = work.status;
    losses(&outcome, &mut system);
    match cli.machine.json {
        true => {
            let text = serde_json::to_string(&system);
            print_stdout(format_args!("{}\n", text.map_err(|e| fail(e.to_string()))?))?;
        }
        false if cli.command.is_empty() => {
            print_stdout(report::system(&system, width(std::io::stdout()), cli.top))?;
        }
        // Standard output belongs to the command.
        false => print_stderr(report::system(&system, width(std::io::stderr()), cli.top)),
    }
    Ok(profile::exit_code(work.status))
}

/// The losses of the session.
fn losses(outcome: &Outcome, system: &mut System) {
    let account = &outcome.losses;
    for (count, what) in [
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
    ] {
        if count > 0 {
            system.lost.insert(what.to_owned(), count);
        }
    }
}
