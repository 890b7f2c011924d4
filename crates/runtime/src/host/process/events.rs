//! Events that a process does not see itself: samples of perf events, and the beginnings and ends of processes and
//! threads. The kernel tells them of one's own processes. Their handlers run in this process, in the image, on behalf of the
//! thread that the event is of: its memory is read from outside.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use spile_inject::{registers_of_sample, sampled_registers};
use spile_ir::{SamplingRate, TaskEvent};
use spile_kernel::bpf::Errno;
use spile_kernel::machine::{monotonic_ns, online_cpus};
use spile_kernel::perf::{EventSpec, PerfError, Sampling, TYPE_SOFTWARE};
use spile_kernel::perf_stream::{self, PerfRecord, PerfSample, PerfStream, StreamSpec};
use spile_kernel::process::{spawn_masked, threads};

use super::identity::Identities;
use super::targets::Targets;
use crate::error::Error;
use crate::io::output;

/// How long to wait for records before looking whether the session has ended.
const PATIENCE: Duration = Duration::from_millis(10);

/// No record comes later than this after its time, in nanoseconds.
const SETTLED: u64 = 2_000_000;

/// `PERF_COUNT_SW_DUMMY`: it has no hits, but tells of threads.
const DUMMY: EventSpec = EventSpec {
    ty: TYPE_SOFTWARE,
    config: 9,
};

/// The thread that runs these programs. It ends when this is dropped, with what happened until then.
pub(super) struct EventRunner {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    over: AtomicBool,
    lost: AtomicU64,
}

/// The streams of one event on all CPUs, and its program.
struct Source {
    streams: Vec<PerfStream>,
    program: Option<String>,
}

struct Runner {
    targets: Arc<Targets>,
    shared: Arc<Shared>,
    sources: Vec<Source>,
    identities: Identities,
    /// The number of threads of each process.
    alive: HashMap<u32, usize>,
    /// Records that are too young to be sure that no older one of another CPU is to come, by their time, each with the
    /// source that has it.
    young: Vec<(u64, usize, PerfRecord)>,
}

impl EventRunner {
    /// Opens the events of a process. `begins`: it has just executed its program, and stands. `None` if there is nothing
    /// to run.
    ///
    /// # Errors
    /// The kernel refuses an event.
    pub(super) fn new(
        targets: &Arc<Targets>,
        pid: u32,
        begins: bool,
    ) -> Result<Option<EventRunner>, Error> {
        if targets.events.is_empty() {
            return Ok(None);
        }
        let own = threads(pid);
        let mut sources = Vec::new();
        for (event, program) in &targets.events.sampled {
            let spec = EventSpec {
                ty: event.ty,
                config: event.config,
            };
            let sampling = match event.sample {
                SamplingRate::Period(n) => Sampling::Period(n),
                SamplingRate::Freq(n) => Sampling::Frequency(n),
            };
            let streams = open(targets, (spec, sampling), &own)?;
            let program = Some(program.clone());
            sources.push(Source { streams, program });
        }
        // Names and identities of threads come with it.
        let streams = open(targets, (DUMMY, Sampling::Count), &own)?;
        sources.push(Source {
            streams,
            program: None,
        });
        let shared = Arc::new(Shared::default());
        let mut runner = Runner {
            targets: Arc::clone(targets),
            shared: Arc::clone(&shared),
            sources,
            identities: Identities::default(),
            alive: HashMap::from([(pid, own.len())]),
            young: Vec::new(),
        };
        let all = runner.sources.iter().flat_map(|source| &source.streams);
        for stream in all {
            stream.enable().map_err(|e| refused(&e))?;
        }
        let thread = spawn_masked(move || {
            if begins {
                runner.step(TaskEvent::ProcessBegin, pid, pid);
            }
            runner.run_all();
        });
        Ok(Some(EventRunner { shared, thread }))
    }

    /// Runs what happened until now, and ends. Returns the number of events that were lost.
    pub(super) fn finish(mut self) -> u64 {
        self.end();
        self.lost()
    }

    fn end(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic of it was printed.
            let _ = thread.join();
        }
    }

    /// The number of events that were lost.
    pub(super) fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }
}

impl Drop for EventRunner {
    fn drop(&mut self) {
        self.end();
    }
}

fn refused(e: &PerfError) -> Error {
    Error::System(e.action, e.errno.into())
}

/// The streams of an event on all CPUs; without hits in the kernel, if the user may not see these.
fn open(
    targets: &Targets,
    (event, sampling): (EventSpec, Sampling),
    threads: &[u32],
) -> Result<Vec<PerfStream>, Error> {
    let with = |in_kernel| {
        let spec = StreamSpec {
            event,
            sampling,
            registers: sampled_registers(),
            in_kernel,
        };
        let cpus = online_cpus().into_iter();
        let streams = cpus.map(|cpu| PerfStream::open(&spec, threads, cpu));
        streams.collect::<Result<Vec<PerfStream>, PerfError>>()
    };
    match with(true) {
        Err(e) if matches!(e.errno, Errno::ACCESS | Errno::PERM) => {
            if !targets.quiet && event != DUMMY {
                output::warn(
                    "only the time in the program itself is sampled: kernel.perf_event_paranoid does not let this user \
                     see the kernel's",
                );
            }
            with(false).map_err(|e| refused(&e))
        }
        all => all.map_err(|e| refused(&e)),
    }
}

impl Runner {
    fn run_all(&mut self) {
        loop {
            // What comes before the end of the session is run.
            let is_over = self.shared.over.load(Ordering::Acquire);
            let until = match is_over {
                true => u64::MAX,
                false => monotonic_ns().cast_unsigned().saturating_sub(SETTLED),
            };
            for (index, source) in self.sources.iter_mut().enumerate() {
                let records = source.streams.iter_mut().flat_map(PerfStream::take);
                let records = records.map(|(time, record)| (time, index, record));
                self.young.extend(records);
            }
            self.young.sort_by_key(|(time, ..)| *time);
            let old = self.young.partition_point(|(time, ..)| *time <= until);
            let old: Vec<(u64, usize, PerfRecord)> = self.young.drain(..old).collect();
            for (_, index, record) in old {
                let program = self.sources[index].program.clone();
                self.record(record, program.as_deref());
            }
            if is_over {
                return;
            }
            match self.young.is_empty() {
                true => {
                    let all = self.sources.iter().flat_map(|source| &source.streams);
                    perf_stream::wait(all, PATIENCE);
                }
                false => std::thread::sleep(Duration::from_nanos(SETTLED)),
            }
        }
    }

    /// Runs what a record asks for. Each source tells of threads; only the one without a program counts.
    fn record(&mut self, record: PerfRecord, program: Option<&str>) {
        match (record, program) {
            (PerfRecord::Lost(n), _) => {
                self.shared.lost.fetch_add(n, Ordering::Relaxed);
            }
            (PerfRecord::Sample(sample), Some(program)) => self.sample(&sample, program),
            (PerfRecord::Begin(task), None) => {
                let is_first = task.process != task.parent;
                *self.alive.entry(task.process).or_default() += 1;
                self.identities.begin(&task);
                let step = match is_first {
                    true => TaskEvent::ProcessBegin,
                    false => TaskEvent::ThreadBegin,
                };
                self.step(step, task.process, task.thread);
            }
            (PerfRecord::End(task), None) => {
                if task.thread != task.process {
                    self.step(TaskEvent::ThreadEnd, task.process, task.thread);
                }
                let left = self.alive.entry(task.process).or_insert(1);
                *left = left.saturating_sub(1);
                if *left == 0 {
                    self.alive.remove(&task.process);
                    self.step(TaskEvent::ProcessEnd, task.process, task.process);
                    self.identities.forget(task.process);
                }
            }
            (
                PerfRecord::Name {
                    process,
                    thread,
                    name,
                    executed,
                },
                None,
            ) => {
                self.identities.rename(process, thread, name, executed);
                if executed {
                    // Its other threads have ended.
                    self.alive.insert(process, 1);
                    self.step(TaskEvent::ProcessBegin, process, thread);
                }
            }
            _ => {}
        }
    }

    fn step(&mut self, step: TaskEvent, process: u32, thread: u32) {
        let programs = self.targets.events.tasks.iter();
        let programs = programs.filter(|(of, _)| *of == step);
        let programs: Vec<String> = programs.map(|(_, program)| program.clone()).collect();
        for program in programs {
            self.run(&program, (process, thread), &[]);
        }
    }

    /// The context is `struct bpf_perf_event_data`: the registers, the period, the address.
    fn sample(&mut self, sample: &PerfSample, program: &str) {
        let mut context = registers_of_sample(&sample.registers).to_vec();
        context.extend([sample.period, sample.address]);
        self.run(program, (sample.process, sample.thread), &context);
    }

    fn run(&mut self, program: &str, (process, thread): (u32, u32), context: &[u64]) {
        let image = &self.targets.image;
        self.identities
            .run_as(process, thread, context, |record, words| {
                image.run_for(program, record, words);
            });
    }
}
