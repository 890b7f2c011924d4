//! `spile profile`: where the time of an application goes.
//!
//! In: options, and the rows that `tools/profile.stp` prints. Out: a model of [`spile_profile`] in
//! a file, and its report. The script counts; what is not in its rows is not known here. Reports
//! and other formats are made by [`spile_profile`].

mod changes;
mod events;
mod interpreters;
mod java;
mod live;
mod program;
mod ranks;
mod recording_file;
mod regions;
mod repeat;
mod rows;
mod running;
mod times;
mod waiting;

use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use clap::Parser;
use spile_kernel::features::{self, Availability, Feature};
use spile_kernel::process;
use spile_profile::model::{
    Header, Options, Profile as Account, RecordingEnd, SampleRate, Snapshot, Thread,
};
use spile_profile::{Run as Ranks, json, report as text};
use spile_runtime::Outcome;
use spile_runtime::TargetProcess;
use spile_runtime::machine::pid_namespace::PidMap;

use self::events::SamplingEvent;
use self::interpreters::Reading;
use self::live::LiveProfile;
use self::recording_file::RecordingFile;
pub(crate) use self::repeat::exit_code;
use self::rows::{ProfileBuilder, ThreadIdentity};
use self::running::Running;
use self::times::CountFolder;
use self::waiting::FRAMES;
use super::{Passes, ToolRun, UNFINISHED, add_losses, script};
use crate::profiles::width;
use spile_plain::messages::{Failure, fail, print_stderr, print_stdout};

/// Says where the time of a command goes: of each of its threads, in every system call.
#[derive(Debug, Parser, Default)]
#[command(
    name = "spile profile",
    bin_name = "spile profile",
    override_usage = "spile profile [OPTIONS] [--] CMD [ARGS]...\n       spile profile [OPTIONS] -p PID | --cgroup GROUP | --container NAME|ID\n       spile profile --system [-d SECS] [--] [CMD]...\n       spile profile --noise [-d SECS] [--cpus LIST]",
    after_help = "The summary goes to standard error when the command ends, or at Ctrl-C. Under mpirun, mpiexec \
                  and srun each rank writes a file instead; `spile report DIR` merges the files."
)]
pub struct ProfileCommand {
    /// Profile the running process PID and its descendants
    #[arg(
        short = 'p',
        long = "pid",
        value_name = "PID",
        conflicts_with = "command"
    )]
    pub(crate) pid: Option<u32>,
    /// Profile the processes of control group GROUP: a folder, a path below the root of control groups, or its end
    #[arg(long, value_name = "GROUP", conflicts_with_all = ["command", "pid", "system", "noise"])]
    cgroup: Option<String>,
    /// Profile the processes of a container, given by name or by the beginning of its id
    #[arg(long, value_name = "NAME|ID", conflicts_with_all = ["command", "pid", "cgroup", "system", "noise"])]
    container: Option<String>,
    /// Show tables of the last second meanwhile: threads, functions, waits; keys switch and sort them
    #[arg(long, conflicts_with_all = ["system", "noise", "repeat", "threads", "json", "no_samples"])]
    live: bool,
    /// Refresh the tables of --live every SECS seconds
    #[arg(long, value_name = "SECS", requires = "live", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=3600))]
    interval: u32,
    /// Write the profile to this file, or into this folder
    #[arg(short = 'o', long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Run the command N times, and write a profile of each run into the folder of -o, for `spile diff`
    #[arg(short = 'r', long, value_name = "N", requires = "output",
          value_parser = clap::value_parser!(u32).range(1..=10_000),
          conflicts_with_all = ["pid", "cgroup", "container", "threads", "system", "noise", "json"])]
    repeat: Option<u32>,
    /// Write a checkpoint to the file after SECS seconds, then at growing intervals; 0: only at the end
    #[arg(long, value_name = "SECS", default_value_t = 5)]
    checkpoint: u32,
    /// Print a table of calls for each thread instead of the summary
    #[arg(long)]
    threads: bool,
    /// Print at most N rows of each table
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) top: usize,
    #[command(flatten)]
    view: crate::profiles::ViewOptions,
    /// End after SECS seconds
    #[arg(short = 'd', long, value_name = "SECS", value_parser = super::syscount::seconds)]
    pub(crate) duration: Option<Duration>,
    /// Sample running threads N times a second
    #[arg(long, value_name = "N", default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..=10_000),
          conflicts_with = "noise")]
    freq: u32,
    /// Sample at the first of these events of the kernel or the processor, and count the others by function and region
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST", default_value = "cpu-clock",
          conflicts_with_all = ["system", "noise"])]
    event: Vec<SamplingEvent>,
    /// Do not sample: the report has no functions
    #[arg(long, conflicts_with_all = ["noise", "freq", "event"])]
    no_samples: bool,
    /// Whether stacks have the functions of programs in Python, Ruby and PHP
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Reading::Auto,
          conflicts_with_all = ["system", "noise", "no_samples"])]
    interpreters: Reading,
    /// Ask Java for the names of the functions that it compiled
    #[arg(long, conflicts_with_all = ["system", "noise", "no_samples"])]
    java: bool,
    /// Name locks that are in no variable by where the program made them
    #[arg(long, conflicts_with_all = ["system", "noise", "no_samples", "cgroup", "container"])]
    lock_sites: bool,
    /// Record the call paths from which the program makes system calls
    #[arg(long, conflicts_with_all = ["system", "noise"])]
    stacks: bool,
    /// Print histograms of the durations of calls
    #[arg(long, conflicts_with_all = ["system", "noise"])]
    latency: bool,
    /// Report which futexes threads wait for, and which thread wakes which
    #[arg(long, conflicts_with_all = ["system", "noise"])]
    futexes: bool,
    /// Write each call, each time off a processor and each time in a region to the file, for time lines
    #[arg(long)]
    trace: bool,
    /// Do not load the library that reports parallel regions, barriers and MPI calls
    #[arg(long)]
    no_regions: bool,
    #[command(flatten)]
    pub(crate) machine: super::system::MachineOptions,
    /// Print the script and exit
    #[arg(long)]
    pub(crate) print_script: bool,
    /// Print details of the script's compilation
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

impl ProfileCommand {
    /// What it records, if that runs already.
    fn running(&self) -> Result<Option<Running>, Failure> {
        Running::of(self.pid, self.cgroup.as_deref(), self.container.as_deref())
    }

    /// Whether what it records runs already.
    fn attaches(&self) -> bool {
        self.pid.is_some() || self.cgroup.is_some() || self.container.is_some()
    }
}

/// Number of events of a trace that are written at once.
const EVENTS: usize = 1000;
/// Size of the row buffer in megabytes, for rows while spile does not run: enough for 10,000
/// threads that begin or end. One of 4 MB takes a millisecond more to make, map and free.
const ROWS_MB: u32 = 2;
/// Size of the trace buffer in megabytes, for events while spile does not run.
const TRACE_MB: u32 = 64;
/// How long spile sleeps between two reads of the trace. A program that keeps all processors busy loses one
/// to each read. The buffer has space for the events of ten such times, and a thread's ring
/// for 1,600,000 changes of region a second.
const TRACE_REST: Duration = Duration::from_millis(20);

impl ProfileCommand {
    /// How often a second running threads are sampled; `None` if they are not.
    pub(crate) fn samples(&self) -> Option<u32> {
        (!self.no_samples).then_some(self.freq)
    }
}

/// Runs the command; the result is its exit status.
pub fn run(cli: &ProfileCommand, passes: Passes<'_>) -> Result<u8, Failure> {
    if cli.machine.is_requested() {
        return super::system::run(cli, passes);
    }
    if cli.print_script {
        print_stdout(script("profile"))?;
        return Ok(0);
    }
    // Before the region library is written: the cache folder is not the trouble.
    if matches!(features::has(Feature::Bpf), Availability::Unknown(_)) {
        return Err(fail(spile_runtime::Error::Privileges));
    }
    if !cli.no_samples {
        events::check(&cli.event)?;
    }
    let header = header(cli)?;
    if cli.machine.json && header.rank.is_some() {
        return Err(fail(
            "ranks write files and print nothing: omit --json, and run `spile report --json` on their folder",
        ));
    }
    if cli.live && header.rank.is_some() {
        return Err(fail(
            "--live is for one recorder: under a launcher there is one for each rank",
        ));
    }
    if let Some(runs) = cli.repeat {
        return repeat::run(cli.output.as_deref(), runs, header, &mut |header, to| {
            let (profile, written) = recorded(cli, header, Some(to), passes)?;
            written.map(|()| profile)
        });
    }
    let to = destination(cli, &header);
    let (profile, written) = recorded(cli, header, to.as_deref(), passes)?;
    let status = profile.end.as_ref().and_then(|end| end.status);
    let of_launcher = profile.header.rank.is_some();
    if !of_launcher || cli.threads {
        show(cli, profile);
    }
    written?;
    let signal = status.map_or(0, |status| status & 0x7f);
    if of_launcher && signal != 0 {
        // Launchers end the other ranks when one ends by a signal, and wait otherwise.
        process::end_by(signal);
    }
    Ok(match cli.attaches() {
        true => 0,
        false => exit_code(status),
    })
}

/// Records once, also to the file or folder `to`; the second result is why that could not be written.
fn recorded(
    cli: &ProfileCommand,
    mut header: Header,
    to: Option<&Path>,
    passes: Passes<'_>,
) -> Result<(Account, Result<(), Failure>), Failure> {
    let running = cli.running()?.map(Rc::new);
    let (mut tool, folder) = prepare(cli, running.as_ref(), &mut header)?;
    let file = to.map(|to| RecordingFile::new(to, &header)).transpose()?;
    if cli.trace && file.is_none() {
        return Err(fail("--trace needs a file: -o FILE"));
    }
    if file.is_some() && !cli.live {
        tool.set("checkpoint", cli.checkpoint);
    }
    let live = match cli.live {
        true => Some(LiveProfile::prepare(
            cli.interval,
            cli.top,
            running.as_ref(),
            &header,
            &mut tool,
        )?),
        false => None,
    };
    let output = Rc::new(RefCell::new(RecordingOutput {
        file,
        live,
        next: Duration::from_secs(cli.checkpoint.into()),
    }));
    let looked_at = running.clone();
    let looked_at = looked_at.filter(|_| !cli.no_samples && PidMap::match_handlers());
    if let Some(running) = &looked_at {
        running.look(passes);
    }
    let recorded = record(cli, tool, folder, &output, passes);
    let RecordingOutput { file, live, .. } = output.take();
    if let Some(live) = live {
        live.end()?;
    }
    let (mut rows, outcome) = recorded?;
    let now = running
        .as_ref()
        .map(|r| r.threads(rows.entered_processes()));
    let now = now.unwrap_or_default();
    if cli.java {
        java::request_names(now.iter().map(|(pid, _)| *pid).collect());
    }
    let mut profile = account(header, &mut rows, &now, &outcome);
    if let Some(running) = looked_at {
        running.add_waiting(&mut profile.data, passes);
    }
    let written = file.map_or(Ok(()), |mut file| {
        file.events(&mut rows);
        file.end(&profile)
    });
    Ok((profile, written))
}

/// The run of the script that the options ask for, and the folder in which programs count their
/// times in regions. Why there is no region library goes to the header.
fn prepare(
    cli: &ProfileCommand,
    running: Option<&Rc<Running>>,
    header: &mut Header,
) -> Result<(ToolRun, Option<CountFolder>), Failure> {
    // Losses are reported in the account and do not end the run.
    let mut tool = ToolRun::recording("profile", cli.verbose);
    // The libraries' words, and the names that they announce.
    tool.resident = true;
    tool.buffer_mb = Some(if cli.trace { TRACE_MB } else { ROWS_MB });
    tool.rest = cli.trace.then_some(TRACE_REST);
    tool.timeout = cli.duration;
    if cli.stacks || !cli.no_samples {
        tool.limits.push(format!("MAXBACKTRACE={FRAMES}"));
    }
    if !cli.no_samples {
        tool.set("sampled", 1);
        let running = running.map(|r| r.processes());
        header.options.interpreters = cli.interpreters.read(running, &cli.command);
        if !header.options.interpreters.is_empty() {
            // A forked process has not used what is in files of the interpreter.
            tool.resident = false;
            // Deep stacks take some statements for each function.
            tool.limits.push("MAXACTION=10000".into());
        }
        tool.args = events::arguments(cli.freq, &cli.event);
        if cli.lock_sites {
            tool.beside.push("lock-sites");
        }
    }
    if balances_nodes() {
        tool.beside.push("numa-faults");
    }
    tool.set(
        "__interpreters",
        interpreters::bits(&header.options.interpreters),
    );
    tool.set("recorder", std::process::id());
    for (name, wanted) in [
        ("stacks", cli.stacks),
        ("latency", cli.latency),
        ("futexes", cli.futexes),
        ("trace", cli.trace),
    ] {
        if wanted {
            tool.set(name, 1);
        }
    }
    let mut folder = None;
    match running {
        Some(running) => running.prepare(cli.no_regions, header, &mut tool)?,
        None => {
            let words = command(&cli.command)?;
            tool.target = TargetProcess::Command(match cli.java {
                true => command(&java::with_options(&cli.command))?,
                false => words,
            });
            let name = cli.command.first().and_then(|c| Path::new(c).file_name());
            if name.is_some_and(|name| name == "srun") {
                print_stderr(
                    "WARNING: Slurm's daemon starts the programs of srun, so they are not recorded: \
                     srun -n 2 spile profile ./app\n",
                );
            }
            if !cli.no_regions {
                match regions::load(cli.trace) {
                    Ok((times, library)) => {
                        folder = times;
                        tool.set("library", library);
                    }
                    Err(why) => header.regions_missing = Some(why),
                }
            }
        }
    }
    Ok((tool, folder))
}

/// Where rows go while they come.
#[derive(Default)]
struct RecordingOutput {
    file: Option<RecordingFile>,
    live: Option<LiveProfile>,
    /// When the next account goes to the file, if all accounts are shown.
    next: Duration,
}

impl RecordingOutput {
    /// Takes what was recorded after a row, which may end an account.
    fn take(
        &mut self,
        rows: &mut ProfileBuilder,
        account: bool,
        out: &mut Vec<u8>,
    ) -> ControlFlow<()> {
        let account_goes_on = account && !rows.ended;
        let written = account_goes_on && (self.live.is_none() || self.is_due(rows.elapsed()));
        if let Some(file) = &mut self.file {
            if rows.events.len() >= EVENTS || account && !rows.events.is_empty() {
                file.events(rows);
            }
            if written {
                file.account(rows);
            }
        }
        match &mut self.live {
            Some(live) if account_goes_on => live.account(rows, out),
            _ => ControlFlow::Continue(()),
        }
    }

    /// Whether the file gets an account, as the script decides without `--live`.
    fn is_due(&mut self, elapsed: Duration) -> bool {
        let due = !self.next.is_zero() && elapsed >= self.next;
        if due {
            self.next = elapsed + (elapsed / 8).max(Duration::from_secs(1));
        }
        due
    }
}

/// Runs the script; writes checkpoints and events to the file, if there is one.
fn record(
    cli: &ProfileCommand,
    tool: ToolRun,
    folder: Option<CountFolder>,
    output: &Rc<RefCell<RecordingOutput>>,
    passes: Passes<'_>,
) -> Result<(ProfileBuilder, Outcome), Failure> {
    let who =
        PidMap::match_handlers().then_some(thread_identity as fn(u32) -> Option<ThreadIdentity>);
    let mut rows = ProfileBuilder::new(who, cli.trace);
    rows.counted = events::counted(&cli.event);
    rows.folder = folder;
    let rows = Rc::new(RefCell::new(rows));
    let (taken, output) = (Rc::clone(&rows), Rc::clone(output));
    let outcome = tool.run(passes, move |row, out| {
        let (mut rows, mut output) = (taken.borrow_mut(), output.borrow_mut());
        if let Some(live) = &mut output.live {
            live.row(row.name, &rows);
        }
        let account = rows.row(row);
        output.take(&mut rows, account, out)
    })?;
    let rows = rows.take();
    if !rows.ended {
        return Err(fail(UNFINISHED));
    }
    Ok((rows, outcome))
}

/// The account of the whole recording.
fn account(
    mut header: Header,
    rows: &mut ProfileBuilder,
    now: &[(u32, u32)],
    outcome: &Outcome,
) -> Account {
    header.started_unix_ns = rows.started_unix_ns;
    let attaches = header.pid.is_some() || header.group.is_some();
    header.pid = header
        .pid
        .or_else(|| rows.first_process().filter(|_| !attaches));
    // Elsewhere the numbers below `/proc` are not those of the rows.
    let same = PidMap::match_handlers();
    let leader = header.pid.filter(|_| same || !attaches);
    if let (Some(pid), Some(status)) = (leader, outcome.status) {
        rows.process_ended(pid, status);
    }
    let known: &[_] = if same { now } else { &[] };
    let at_end = |pid, tid| same.then(|| in_call(pid, tid)).flatten();
    rows.complete_migrations(|pid, tid| same.then(|| migrations(pid, tid)).flatten());
    let mut data = rows.finish(known, at_end);
    if !same {
        unlisted(now.len(), &mut data);
    }
    losses(outcome, &mut data);
    interpreters::losses(&header.options.interpreters, &mut data);
    let [of_java, others] = java::unnamed(&data);
    let hints = [
        (
            of_java,
            "samples in functions that Java compiled, whose names are missing: --java",
        ),
        (
            others,
            "samples in generated code, whose names its program did not write",
        ),
    ];
    add_losses(&mut data.lost, hints);
    let leader = data.processes.iter().find(|p| Some(p.pid) == leader);
    let status = outcome.status.or_else(|| leader.and_then(|p| p.status));
    let end = Some(RecordingEnd {
        at_ns: data.at_ns,
        status,
    });
    Account {
        header,
        data,
        events: Vec::new(),
        end,
    }
}

/// Counts threads of the recorded process, of `now` in all, that had no event and whose numbers are not
/// known in this PID namespace.
fn unlisted(now: usize, data: &mut Snapshot) {
    let before: HashSet<u32> = data
        .processes
        .iter()
        .filter(|p| p.started_ns == 0)
        .map(|p| p.pid)
        .collect();
    let lives = |t: &&Thread| t.ended_ns.is_none() && before.contains(&t.pid);
    let listed = data.threads.iter().filter(lives).count();
    let missing = now.saturating_sub(listed);
    let what = "threads that only slept: their numbers are not known in this PID namespace";
    add_losses(&mut data.lost, [(missing as u64, what)]);
}

/// The identity of a thread now; `None` if it has ended.
fn thread_identity(tid: u32) -> Option<ThreadIdentity> {
    let name = process::stat(tid)?.comm;
    let pid = process::of_thread(tid)?;
    let leader = process::stat(pid)?;
    Some(ThreadIdentity {
        pid,
        ppid: leader.ppid,
        name,
        process: leader.comm,
    })
}

/// The system call that a thread is in now; `None` if it runs or has ended.
fn in_call(pid: u32, tid: u32) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    let nr: u32 = text.split(' ').next()?.parse().ok()?;
    let call = spile_syscalls::by_nr(nr);
    Some(call.map_or_else(|| nr.to_string(), |c| c.name.to_owned()))
}

/// Whether the kernel learns from page faults which node's memory threads use.
fn balances_nodes() -> bool {
    let setting = std::fs::read_to_string("/proc/sys/kernel/numa_balancing");
    setting.is_ok_and(|setting| setting.trim() != "0")
}

/// How often a thread has moved to another processor; `None` if it has ended, or the kernel does not tell.
fn migrations(pid: u32, tid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/sched")).ok()?;
    rows::migrations_in(&text)
}

/// The summary, or the tables of threads.
fn show(cli: &ProfileCommand, profile: Account) {
    let left = match cli.attaches() {
        true => String::new(),
        false => running_on(&profile),
    };
    let run = Ranks::new(vec![profile]);
    if cli.machine.json {
        print_stderr(json::json(&run));
        return;
    }
    print_stderr(if cli.threads {
        text::threads(&run)
    } else {
        text::text(&run, &cli.view.view(width(std::io::stderr()), cli.top))
    });
    print_stderr(left);
}

/// The message about processes that outlive their command, as daemons do.
fn running_on(profile: &Account) -> String {
    let left = profile
        .data
        .processes
        .iter()
        .filter(|p| p.ended_ns.is_none() && Some(p.pid) != profile.header.pid);
    let left: Vec<String> = left.map(|p| format!("{} {}", p.pid, p.comm)).collect();
    match left.len() {
        0 => String::new(),
        _ => text::paragraph(
            &format!(
                "The command has ended, and with it the recording; these processes still run: {} \
                 (spile profile -p PID)",
                left.join(", ")
            ),
            "  ",
            width(std::io::stderr()),
        ),
    }
}

/// The command as one text, words quoted where necessary. A command that cannot be found is refused
/// before probes are armed.
pub(crate) fn command(words: &[String]) -> Result<String, Failure> {
    let Some(program) = words.first() else {
        return Err(fail(
            "no command: give one, as in `spile profile ./app`, or -p PID",
        ));
    };
    if program::file_of(program).is_none() {
        return Err(fail(format_args!(
            "{program}: there is no such program{}",
            if Path::new(program).exists() {
                " that can be run"
            } else {
                ""
            }
        )));
    }
    shlex::try_join(words.iter().map(String::as_str))
        .map_err(|_| fail("the command contains a NUL byte"))
}

/// The facts that are known before the recording begins.
pub(crate) fn header(cli: &ProfileCommand) -> Result<Header, Failure> {
    let system = rustix::system::uname();
    let text = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
    let rank = ranks::rank(|name| std::env::var(name).ok());
    let host = text(system.nodename());
    let job = rank.as_ref().and_then(|r| r.job.clone());
    let run = std::env::var("SPILE_RUN")
        .ok()
        .or(job)
        .unwrap_or_else(|| match &rank {
            // Ranks of one node have one parent.
            Some(_) => format!("{host}-{}", std::os::unix::process::parent_id()),
            None => format!("{host}-{}", std::process::id()),
        });
    let cpus = spile_kernel::machine::online_cpus().len();
    Ok(Header {
        run,
        host,
        kernel: text(system.release()),
        arch: text(system.machine()),
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        spile: env!("CARGO_PKG_VERSION").to_owned(),
        command: cli.command.clone(),
        pid: cli.pid,
        rank,
        options: Options {
            stacks: cli.stacks,
            histograms: cli.latency,
            futexes: cli.futexes,
            trace: cli.trace,
            samples: (!cli.no_samples).then(|| SampleRate {
                event: cli
                    .event
                    .first()
                    .copied()
                    .unwrap_or_default()
                    .name()
                    .to_owned(),
                hz: cli.freq,
            }),
            counted: events::counted(&cli.event),
            no_regions: cli.no_regions,
            ..Options::default()
        },
        ..Header::default()
    })
}

/// The path of the profile, if one is written: ranks always write one.
fn destination(cli: &ProfileCommand, header: &Header) -> Option<PathBuf> {
    let of_ranks = || format!("spile-{}", header.run.replace('/', "_")).into();
    let shared = header.rank.is_some().then(of_ranks);
    cli.output.clone().or(shared)
}

/// The losses of the session in the account's terms.
fn losses(outcome: &Outcome, data: &mut Snapshot) {
    let account = &outcome.losses;
    let counts = [
        (
            account.errors,
            "events whose handlers failed or found a table full",
        ),
        (
            account.skipped.reentrancy,
            "events that hit while another was handled, mostly interrupts; their time counts where they hit",
        ),
        (
            account.skipped.kernel_recursion,
            "events that the kernel turned away",
        ),
        (
            account.skipped.no_memory,
            "events: the kernel had no memory",
        ),
        (
            account.lost_output,
            "rows of threads and of the trace: the buffer was full",
        ),
        (account.overflows, "sums that did not fit in the tables"),
        (
            account.cut_stacks,
            "stacks deeper than the limit: their outermost functions",
        ),
        (
            account.guessed,
            "frames in files that were not read yet: such stacks may end early",
        ),
    ];
    add_losses(&mut data.lost, counts);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_statuses_become_exit_codes() {
        assert_eq!(exit_code(Some(0)), 0);
        assert_eq!(exit_code(Some(3 << 8)), 3);
        assert_eq!(exit_code(Some(9)), 137);
        assert_eq!(exit_code(Some(0x80 | 11)), 139);
        assert_eq!(exit_code(None), 0);
    }

    #[test]
    fn a_mistyped_option_is_no_command() {
        use clap::Parser;
        fn said<C: Parser>(args: &[&str]) -> String {
            let parsed = C::try_parse_from([&["spile"], args].concat());
            parsed.err().map_or_else(String::new, |e| e.to_string())
        }
        let profile = said::<ProfileCommand>;
        for (said, wrong, near) in [
            (profile(&["--systm", "ls"]), "--systm", "'--system'"),
            (
                profile(&["--freqq", "5", "--", "true"]),
                "--freqq",
                "'--freq'",
            ),
            (profile(&["--cgrup", "a"]), "--cgrup", "'--cgroup'"),
            (profile(&["-pp", "1"]), "'p'", "'--pid <PID>'"),
            (profile(&["-x", "ls"]), "'-x'", "unexpected argument"),
            (
                said::<crate::profiles::Report>(&["--jsn", "a"]),
                "--jsn",
                "'--json'",
            ),
            (
                said::<crate::profiles::Diff>(&["--topp", "3", "a", "b"]),
                "--topp",
                "'--top'",
            ),
        ] {
            assert!(said.contains(wrong) && said.contains(near), "{said}");
        }
        for own in [&["ls", "-l", "--system"][..], &["ls", "--", "--systm"]] {
            let parsed = ProfileCommand::try_parse_from(["profile"].iter().chain(own));
            let command = parsed.ok().map(|p| p.command).unwrap_or_default();
            assert_eq!(command, own);
        }
    }

    #[test]
    fn commands_are_quoted_and_must_exist() {
        let of =
            |words: &[&str]| command(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["true", "a b", "$x"]).unwrap(), "true 'a b' '$x'");
        assert!(of(&["/no/such/program"]).is_err());
        assert!(of(&["no-such-program-at-all"]).is_err());
        assert!(of(&["/etc/passwd"]).is_err());
        assert!(of(&[]).is_err());
    }
}
