//! `spile profile --noise`: a thread on each processor reads the clock in a loop. Where the clock
//! jumps, something else had the processor; the script knows what.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::thread::sched_setaffinity;
use spile_kernel::resources::error_text;
use spile_kernel::{machine, process};
use spile_profile::noise::{CauseKind, Noise, NoiseEvent, Source, account};
use spile_profile::report;
use spile_profile::system::InterruptKind as Interrupt;

use super::profile::{self, ProfileCommand};
use super::{marks, rows};
use crate::profiles::width;
use crate::rows::Fields;
use crate::{FromRows, MALFORMED, Passes, ToolRun, add_losses, print_json, script};
use spile_plain::messages::{Failure, fail, print_stdout};

/// The default duration.
const USUAL: Duration = Duration::from_secs(10);
/// Maximum number of gaps that a thread stores; further gaps are only counted.
const MOST: usize = 1 << 20;
/// The script's number of thread 0.
const THREAD: u64 = 1 << 40;

/// A list of processors.
#[derive(Debug, Clone, Default)]
pub(super) struct CpuList(Vec<u32>);

/// Parses a list such as `0-3,8`.
pub(super) fn list(text: &str) -> Result<CpuList, String> {
    let list = machine::parse_cpus(text).ok_or("not a list of processors, such as 0-3,8")?;
    let online = machine::online_cpus();
    match list.iter().find(|c| !online.contains(c)) {
        Some(cpu) => Err(format!("there is no processor {cpu}")),
        None => Ok(CpuList(list)),
    }
}

/// The measurements of a thread.
#[derive(Default)]
struct ThreadMeasurement {
    cpu: u32,
    gaps: Vec<(u64, u64)>,
    left_out: u64,
    wall: u64,
    passes: u64,
    shortest: u64,
    threshold: u64,
}

/// Runs the command; the result is the exit status.
pub(super) fn run(cli: &ProfileCommand, passes: Passes<'_>) -> Result<u8, Failure> {
    if cli.print_script {
        print_stdout(script("noise"))?;
        return Ok(0);
    }
    let mut cpus = cli
        .machine
        .cpus
        .clone()
        .map_or_else(machine::online_cpus, |l| l.0);
    cpus.sort_unstable();
    cpus.dedup();
    let duration = cli.duration.unwrap_or(USUAL);
    let threshold = cli.machine.threshold;
    let mut tool = ToolRun::recording("noise", cli.verbose);
    tool.set("token", marks::token());
    let measurements = Measurements::default();
    let stop = Arc::new(AtomicBool::new(false));
    let (shared, ended) = (measurements.clone(), Arc::clone(&stop));
    let (armed, outside) =
        marks::run_on_thread(move || measure(&cpus, duration, threshold, &ended, &shared))
            .map_err(|e| fail(format_args!("a pipe: {e}")))?;
    tool.armed = Some(armed);
    tool.outside = Some(outside);
    let built = tool.build::<NoiseBuilder>(passes);
    stop.store(true, Ordering::Relaxed);
    let (rows, outcome) = built?;
    let malformed = rows.malformed;
    let rows = rows.state()?;
    let header = profile::header(cli)?;
    let mut noise = Noise {
        host: header.host,
        kernel: header.kernel,
        threshold_ns: threshold,
        ..Noise::default()
    };
    let left_out = add_up(&mut noise, &measurements, &rows)?;
    let account = &outcome.losses;
    add_losses(
        &mut noise.lost,
        [
            (account.errors, "events: there was no space for them"),
            (
                account.skipped.total(),
                "events that hit while another was handled",
            ),
            (account.lost_output, "rows: the buffer was full"),
            (left_out, "gaps: there were too many"),
            (malformed, MALFORMED),
        ],
    );
    if cli.machine.json {
        print_json(serde_json::to_string(&noise))?;
    } else {
        print_stdout(report::noise(&noise, width(std::io::stdout()), cli.top))?;
    }
    Ok(0)
}

/// The results of the threads, shared with them.
type Measurements = Arc<Mutex<Vec<Result<ThreadMeasurement, String>>>>;

/// Computes on all of these processors at once, each in a thread of its own.
fn measure(
    cpus: &[u32],
    duration: Duration,
    threshold: u64,
    stop: &Arc<AtomicBool>,
    results: &Measurements,
) {
    let threads = cpus.iter().map(|cpu| {
        let (cpu, stop) = (*cpu, Arc::clone(stop));
        std::thread::Builder::new().spawn(move || compute(cpu, duration, threshold, &stop))
    });
    for thread in threads.collect::<Vec<_>>() {
        let result = match thread {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|_| Err("a thread failed".to_owned())),
            Err(e) => Err(format!("no thread can be created: {}", error_text(&e))),
        };
        results
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .push(result);
    }
}

/// Explains the gaps of all threads by the events of the script; returns the number of gaps that were not
/// stored.
fn add_up(
    noise: &mut Noise,
    measurements: &Measurements,
    rows: &NoiseBuilder,
) -> Result<u64, Failure> {
    let mut left_out = 0;
    let mut results = measurements.lock().unwrap_or_else(|e| e.into_inner());
    for seen in results.drain(..) {
        let seen = seen.map_err(fail)?;
        left_out += seen.left_out;
        noise.threshold_ns = noise.threshold_ns.max(seen.threshold);
        let mut cpu = account(&seen.gaps, rows.events(seen.cpu), &rows.sources);
        cpu.cpu = seen.cpu;
        cpu.wall = seen.wall;
        cpu.passes = seen.passes;
        cpu.shortest = seen.shortest;
        noise.cpus.push(cpu);
    }
    if noise.cpus.is_empty() {
        return Err(fail("it ended before there was anything to report"));
    }
    Ok(left_out)
}

/// The clock of the script, in nanoseconds.
fn clock() -> u64 {
    spile_kernel::machine::monotonic_ns().cast_unsigned()
}

/// Computes on a processor for that time.
fn compute(
    cpu: u32,
    duration: Duration,
    threshold: u64,
    stop: &AtomicBool,
) -> Result<ThreadMeasurement, String> {
    let only = marks::cpu_set(cpu).map(|set| sched_setaffinity(None, &set));
    if !matches!(only, Some(Ok(()))) {
        return Err(format!("spile may not run on processor {cpu}"));
    }
    // Touched in advance, so that no page fault occurs later.
    let mut gaps = vec![(1, 1); MOST];
    gaps.clear();
    let mut seen = ThreadMeasurement {
        cpu,
        shortest: u64::MAX,
        ..ThreadMeasurement::default()
    };
    // Where reading the clock is slow, the reading alone is not a gap.
    let quickest = (0..1000).fold((u64::MAX, clock()), |(least, last), _| {
        let now = clock();
        (least.min(now.saturating_sub(last)), now)
    });
    seen.threshold = threshold.max(quickest.0.saturating_mul(3));
    marks::mark_here(true);
    let start = clock();
    let end = start.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    let mut last = start;
    while last < end && !stop.load(Ordering::Relaxed) {
        let now = clock();
        let passed = now.saturating_sub(last);
        seen.passes += 1;
        seen.shortest = seen.shortest.min(passed);
        if passed > seen.threshold {
            if gaps.len() < MOST {
                gaps.push((last, now));
            } else {
                seen.left_out += 1;
            }
        }
        last = now;
    }
    marks::mark_here(false);
    seen.wall = last - start;
    seen.gaps = gaps;
    Ok(seen)
}

/// The state that the script's rows built up.
#[derive(Default)]
struct NoiseBuilder {
    events: HashMap<u32, Vec<NoiseEvent>>,
    sources: Vec<Source>,
    source_index: HashMap<u64, usize>,
}

impl FromRows for NoiseBuilder {
    fn take(&mut self, name: &str, f: &mut Fields<'_>) -> Option<()> {
        match name {
            "log" => {
                let (cpu, start, number) = (f.integer()?, f.integer::<u64>()?, f.integer()?);
                let took: i64 = f.integer()?;
                let event = NoiseEvent {
                    start,
                    end: u64::try_from(took)
                        .ok()
                        .map(|took| start.saturating_add(took)),
                    source: self.source(number),
                };
                self.events.entry(cpu).or_default().push(event);
            }
            "name" => {
                let (tid, pid, name) = (f.integer::<u32>()?, f.integer()?, f.string()?);
                let source = self.source(THREAD + u64::from(tid));
                let source = self.sources.get_mut(source)?;
                source.pid = Some(pid);
                source.name = spile_plain::name(&name).into_owned();
            }
            "end" => {}
            _ => return None,
        }
        Some(())
    }
}

impl NoiseBuilder {
    /// The index of the source that a number of the script stands for.
    fn source(&mut self, number: u64) -> usize {
        if let Some(known) = self.source_index.get(&number) {
            return *known;
        }
        let (kind, name, tid) = match number.checked_sub(THREAD).map(u32::try_from) {
            Some(tid) => {
                let tid = tid.unwrap_or(u32::MAX);
                let name = process::stat(tid).map_or_else(|| "?".to_owned(), |s| s.comm);
                (CauseKind::Thread, name, Some(tid))
            }
            None => {
                let (kind, name) = rows::interrupt(number);
                let kind = match kind {
                    Interrupt::Device => CauseKind::Device,
                    Interrupt::Vector => CauseKind::Vector,
                    Interrupt::Softirq => CauseKind::Softirq,
                };
                (kind, name, None)
            }
        };
        let source = Source {
            kind,
            name,
            tid,
            pid: None,
        };
        self.sources.push(source);
        self.source_index.insert(number, self.sources.len() - 1);
        self.sources.len() - 1
    }

    fn events(&self, cpu: u32) -> Vec<NoiseEvent> {
        self.events.get(&cpu).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Built;
    use crate::rows::with_row;

    #[test]
    fn rows_become_events() {
        let mut rows = Built::<NoiseBuilder>::default();
        let thread = THREAD + 4_000_000;
        for row in [
            "log 1 500 100 20".to_owned(),
            format!("log 1 600 {thread} -1"),
            "name 4000000 77 \"a b\"".to_owned(),
            "log 1 x 100 20".to_owned(),
            "nothing".to_owned(),
            "end".to_owned(),
        ] {
            with_row(&row, |row| rows.row(row));
        }
        assert_eq!((rows.ended, rows.malformed), (true, 2));
        let rows = rows.state;
        let events = rows.events(1);
        assert_eq!((events[0].start, events[0].end), (500, Some(520)));
        assert_eq!((events[1].start, events[1].end), (600, None));
        let source = &rows.sources[events[1].source];
        assert_eq!((source.name.as_str(), source.pid), ("a b", Some(77)));
        assert_eq!(rows.sources[events[0].source].name, "local timer");
    }

    #[test]
    fn lists_of_processors_are_checked() {
        assert_eq!(list("0,0-0").unwrap().0, [0, 0]);
        assert!(list("").is_err());
        assert!(list("100000").is_err());
    }
}
