//! The rows of `tools/profile.stp`, and the account made from them.
//!
//! | row | fields |
//! |---|---|
//! | `begin` | monotonic clock, clock of the day |
//! | `start` | thread, process, parent, name |
//! | `exec` | thread, whether its times begin here, when, process, parent, thread number before, 1 if linked statically, name |
//! | `enters` | process that entered the recorded control group, when |
//! | `started` | thread, region; its time until it was in the program: sum, off its processor or taken, ready, taken |
//! | `exit` | thread, when, process, parent, exit code, name; the call that ended it, or `-`: call, region, sum, off its processor or taken, ready, taken |
//! | `moved` | thread that ends, how often it moved to another processor, 0; or one that lives, how often before its account, 1 |
//! | `cut` | thread, region, call that the thread's end cut short, when; sum, off its processor or taken, ready, taken |
//! | `event` | thread, region, call, beginning, end, result |
//! | `off` | thread, region, 1 if it could run, when it left its processor, for how long it was ready at last, when it came back |
//! | `wakeup` | thread that was woken, thread that woke it, when |
//! | `open` | thread, 0 program, 1 system call, below 0 not known; call; since, off its processor: before, and since when; taken; off its processor: region, 1 if it can run |
//! | `user` | thread, on a processor, ready, blocked |
//! | `call` | thread, region, call, count, sum, least, most, off its processor or taken, ready, taken, bytes |
//! | `error` | thread, region, call, error, count |
//! | `region` | process, number, the number around without the program's bits, kind, name, function and source line with a tab between, file and address there; or, by its kind, ranks that calls of MPI in the region around are for |
//! | `fault` | thread, region, 1 if major, count, time |
//! | `irq`, `softirq` | thread, region, count, time |
//! | `ready` | thread, region, time ready within faults |
//! | `part_off` | thread, region, 1 if it could run, time off its processor in the program itself; `user` has it too |
//! | `counts` | thread, the program's bits, name of the file and location there where it counts its times in regions |
//! | `changes` | thread: it has changes of regions to be taken |
//! | `times` | thread, region, call, N, the calls below 2^(N - 64) ns: a bucket of the histogram |
//! | `stack` | thread, region, call, count, sum, the frames: a line each, the innermost first |
//! | `sample` | thread, region, activity (0 in the program, 1 in a call, -1 at its start, -2 not known, -3 in a page fault), call, samples, the frames in the kernel, those of the program, its stack in an interpreter or 0 |
//! | `wait` | thread, region, call, futex or 0, what it waited for: a file or a variable; stacks, time blocked, the frames, the stack in an interpreter or 0 |
//! | `counted` | thread, region, period of a counted event, samples, the frames in the kernel, those of the program, its stack in an interpreter or 0 |
//! | `waker` | thread that was woken, thread that woke it or 0, futex or 0, program of the waker if it is not recorded; times, time blocked, the frames, the stack in an interpreter or 0 |
//! | `function` | stack in an interpreter, index of a function in it, number of the C function's call that executes it, both from the innermost; its class, name, file and first line |
//! | `futex` | process, address, region, waits, sum, most, the variable there |
//! | `wake` | process, address, region, waking thread's number, waiting thread, count, sum |
//! | `account` | monotonic clock, switches that nobody saw, switches to the recorder: ends an account, of all rows since the last |
//! | `end` | the next account is the last |
//!
//! Times are in nanoseconds. A thread key is the thread id in the low 22 bits, and above them its
//! start time since the beginning, in units of 1,024 ns; negative if before. A thread that ran at
//! the beginning, or whose start was not seen, has no `start`.

mod builder;
mod counts;
mod functions;
mod intervals;
mod lifetimes;
mod locations;
mod lock_sites;
mod migrations;
mod now;
mod samples;
mod unfinished;

use std::collections::HashMap;
use std::time::Duration;

use spile_cast::Cast;
use spile_profile::model::{
    Activity, BLOCKED, CallParts, CallTotals, Context, ContextKind, ContextTime, Frame, Futex, Ns,
    PREEMPTED, READY, ROOT, Sample, Snapshot, Stack, StackFrame, Thread, TimeParts, TimedEvent,
    Times, Wake, Waker,
};
use spile_runtime::io::rows::Row;

pub(super) use self::builder::{ProfileBuilder, ThreadIdentity};
use self::builder::{REUSED, SingleCall, TimeOwner, call_parts, is_own, own_cpu_time};
pub(super) use self::locations::ends_path;
use self::locations::{in_file, reaches_beginning, variable};
pub(super) use self::migrations::migrations_in;
pub(super) use self::now::{ThreadNow, ThreadTimes, ThreadsNow, WaitNow, on_cpu};
use crate::add_losses;
use crate::rows::Fields;

/// Rows that report single events, and belong to no account.
const LIVES: [&str; 16] = [
    "start", "exec", "enters", "started", "exit", "cut", "region", "counts", "changes", "event",
    "off", "wakeup", "function", "made", "moved", "nodes",
];

/// Kinds of regions, by number (docs/profile-context.md).
const KINDS: [ContextKind; 5] = [
    ContextKind::Mark,
    ContextKind::OmpRegion,
    ContextKind::OmpBarrier,
    ContextKind::OmpTask,
    ContextKind::Mpi,
];

/// The number after those of kinds: the ranks that calls of MPI are for.
const PEERS: usize = KINDS.len();

/// A number of events and their time.
fn times(f: &mut Fields<'_>) -> Option<Times> {
    Some(Times {
        count: f.integer()?,
        ns: f.ns()?,
    })
}

/// The address of a futex; `Some(None)` if the field is 0.
fn futex_address(f: &mut Fields<'_>) -> Option<Option<u64>> {
    let address = f.integer::<i64>()?.cast_unsigned();
    Some((address != 0).then_some(address))
}

impl ProfileBuilder {
    /// Without rows. `who` identifies a thread without `start`; `trace`: events are kept.
    pub(super) fn new(
        identify: Option<fn(u32) -> Option<ThreadIdentity>>,
        trace: bool,
    ) -> ProfileBuilder {
        ProfileBuilder {
            identify,
            trace,
            ..ProfileBuilder::default()
        }
    }

    /// Whether a row of that name is part of an account.
    pub(super) fn is_of_account(name: &str) -> bool {
        name != "begin" && !LIVES.contains(&name)
    }

    /// The threads that have not ended, each with its process.
    pub(super) fn live_threads(&self) -> impl Iterator<Item = (u32, u32)> {
        let live = self
            .snapshot
            .threads
            .iter()
            .filter(|t| t.ended_ns.is_none());
        live.map(|t| (t.pid, t.tid % REUSED))
    }

    /// Processes a row and returns whether it ends an account. Malformed rows are counted.
    pub(super) fn row(&mut self, row: &Row<'_>) -> bool {
        if self.complete && Self::is_of_account(row.name) {
            self.clear();
        }
        if self.take(row.name, &mut Fields::new(row)).is_none() {
            self.malformed += 1;
        }
        self.complete && row.name == "account"
    }

    /// Drops the sums of the account before.
    fn clear(&mut self) {
        self.complete = false;
        for thread in &mut self.snapshot.threads {
            *thread = Thread {
                tid: thread.tid,
                pid: thread.pid,
                name: std::mem::take(&mut thread.name),
                started_ns: thread.started_ns,
                ended_ns: thread.ended_ns,
                migrations: thread.migrations,
                node_pages: thread.node_pages,
                ..Thread::default()
            };
        }
        self.snapshot.calls.clear();
        self.calls.clear();
        self.snapshot.context_times.clear();
        self.in_contexts.clear();
        self.snapshot.stacks.clear();
        self.snapshot.samples.clear();
        self.placed.clear();
        self.unplaced = 0;
        self.snapshot.event_counts.clear();
        self.snapshot.wakers.clear();
        self.snapshot.futexes.clear();
        self.futexes.clear();
    }

    fn take(&mut self, name: &str, f: &mut Fields<'_>) -> Option<()> {
        match name {
            "begin" => {
                self.origin = f.integer()?;
                self.started_unix_ns = f.integer()?;
                self.used_before = own_cpu_time();
            }
            "start" => self.starts(f)?,
            "exec" => self.executes(f)?,
            "enters" => self.enters(f)?,
            "started" => {
                let thread = self.thread(f.integer()?);
                self.single_call(thread, "(start)", f)?;
            }
            "exit" => self.exits(f)?,
            "moved" => self.moved(f)?,
            "nodes" => self.node_pages(f)?,
            "open" => self.is_open(f)?,
            "cut" => self.is_cut(f)?,
            "user" => {
                let thread = self.thread(f.integer()?);
                let [user, ready, blocked] = [f.ns()?, f.ns()?, f.ns()?];
                let parts = &mut self.snapshot.threads.get_mut(thread)?.parts;
                parts.user += user;
                parts.runnable += ready;
                parts.blocked += blocked;
            }
            "part_off" => {
                let owner = self.owner(f)?;
                let part: fn(&mut TimeParts) -> &mut Ns = match f.flag()? {
                    true => |parts| &mut parts.runnable,
                    false => |parts| &mut parts.blocked,
                };
                let ns = f.ns()?;
                self.in_context(owner, |parts| *part(parts) += ns)?;
            }
            "counts" => self.counts(f)?,
            "changes" => self.changes(f)?,
            "region" => self.region(f)?,
            "call" => self.calls(f)?,
            "event" => self.event(f)?,
            "off" => self.off_cpu(f)?,
            "wakeup" => self.wakeup(f)?,
            "error" => self.fails(f)?,
            "times" => self.histogram(f)?,
            "stack" => self.stack(f)?,
            "sample" => self.sample(f)?,
            "taken" => self.taken(f)?,
            "wait" => self.wait(f)?,
            "counted" => self.counted_events(f)?,
            "waker" => self.waker(f)?,
            "function" => self.functions.learn(f)?,
            "made" => {
                let (pid, address) = (f.integer()?, f.integer::<i64>()?.cast_unsigned());
                let frames = self.frames(&f.string()?);
                self.lock_sites.learn(pid, address, &frames);
            }
            "futex" => self.futex(f)?,
            "wake" => self.wake(f)?,
            "fault" => {
                let owner = self.owner(f)?;
                match f.flag()? {
                    true => self.times(owner, f, |parts| &mut parts.fault_major)?,
                    false => self.times(owner, f, |parts| &mut parts.fault_minor)?,
                }
            }
            "irq" => {
                let owner = self.owner(f)?;
                self.times(owner, f, |parts| &mut parts.irq)?;
            }
            "softirq" => {
                let owner = self.owner(f)?;
                self.times(owner, f, |parts| &mut parts.softirq)?;
            }
            "ready" => self.off_in_faults(f, |parts| &mut parts.runnable)?,
            "waited" => self.off_in_faults(f, |parts| &mut parts.blocked)?,
            "end" => self.ended = true,
            "account" => {
                self.add_cuts();
                self.add_single_calls();
                self.take_changes();
                self.snapshot.at_ns = self.since(f.integer()?);
                let unseen: u64 = f.integer()?;
                self.snapshot.recorder.displaced = f.integer()?;
                self.snapshot.recorder.cpu = own_cpu_time().saturating_sub(self.used_before);
                let what = "switches to a thread that the kernel did not show; the scheduler's own times replace them";
                add_losses(&mut self.snapshot.lost, [(unseen, what)]);
                self.complete = true;
            }
            _ => return None,
        }
        Some(())
    }

    /// The time of a row on the monotonic clock.
    fn since(&self, clock: i64) -> Ns {
        clock.saturating_sub(self.origin).max(0).cast_unsigned()
    }

    /// The thread and the region that a row begins with.
    fn owner(&mut self, f: &mut Fields<'_>) -> Option<TimeOwner> {
        let (key, region) = (f.integer()?, f.integer()?);
        let thread = self.thread(key);
        Some(TimeOwner { thread, region })
    }

    /// The numbers of a thread and of its region in the account.
    fn numbers(&mut self, owner: TimeOwner) -> Option<(u32, u32)> {
        let thread = self.snapshot.threads.get(owner.thread)?;
        let (tid, pid) = (thread.tid, thread.pid);
        Some((tid, self.context(pid, owner.region)))
    }

    /// Time off a processor within page faults.
    fn off_in_faults(
        &mut self,
        f: &mut Fields<'_>,
        part: fn(&mut TimeParts) -> &mut Ns,
    ) -> Option<()> {
        let owner = self.owner(f)?;
        let ns = f.ns()?;
        self.add_time(owner, |parts| *part(parts) += ns)
    }

    fn times(
        &mut self,
        owner: TimeOwner,
        f: &mut Fields<'_>,
        part: fn(&mut TimeParts) -> &mut Times,
    ) -> Option<()> {
        let times = times(f)?;
        self.add_time(owner, |parts| {
            part(parts).count += times.count;
            part(parts).ns += times.ns;
        })
    }

    /// Adds to the parts of a thread's time, and to those of its time in a region.
    fn add_time(&mut self, owner: TimeOwner, add: impl Fn(&mut TimeParts)) -> Option<()> {
        add(&mut self.snapshot.threads.get_mut(owner.thread)?.parts);
        self.in_context(owner, add)
    }

    /// Adds to the parts of a thread's time in a region; does nothing if it is in none.
    fn in_context(&mut self, owner: TimeOwner, add: impl Fn(&mut TimeParts)) -> Option<()> {
        let (tid, context) = self.numbers(owner)?;
        if context != ROOT {
            add(&mut self.of_context(tid, context).parts);
        }
        Some(())
    }

    /// The row of a thread's time in a context.
    fn of_context(&mut self, tid: u32, context: u32) -> &mut ContextTime {
        let rows = &mut self.snapshot.context_times;
        let index = *self.in_contexts.entry((tid, context)).or_insert_with(|| {
            rows.push(ContextTime {
                tid,
                context,
                ..ContextTime::default()
            });
            rows.len() - 1
        });
        &mut self.snapshot.context_times[index]
    }

    fn region(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let (pid, number): (u32, u64) = (f.integer()?, f.integer()?);
        let parent: u64 = f.integer()?;
        let kind = f.integer::<usize>()?;
        let (name, location) = (f.string()?.into_owned(), f.string()?);
        let program = number & !u64::from(u32::MAX);
        if kind == PEERS {
            let ranks: Result<_, _> = name.split(' ').map(str::parse).collect();
            self.peers
                .insert((pid, number), (program | parent, ranks.ok()?));
            return Some(());
        }
        let kind = *KINDS.get(kind)?;
        let (function, location) = location.split_once('\t')?;
        let (module, address) = in_file(&f.string()?);
        let id = self.context(pid, number);
        let parent = (parent != 0).then(|| self.context(pid, program | parent));
        let location = location.rsplit_once(':');
        // Compilers make the body of a parallel region a function of its own, named after the
        // enclosing one.
        let function = function.split("._omp_fn").next().unwrap_or(function);
        let named = matches!(kind, ContextKind::OmpRegion | ContextKind::OmpTask)
            && !function.starts_with("0x")
            && !function.is_empty();
        let context = self.snapshot.contexts.iter_mut().find(|c| c.id == id)?;
        *context = Context {
            id,
            parent,
            kind,
            name: if named { function.to_owned() } else { name },
            file: location.map(|(file, _)| file.to_owned()),
            line: location.and_then(|(_, line)| line.parse().ok()),
            module,
            address,
        };
        Some(())
    }

    /// The number of a region in the account, 0 for none.
    fn context(&mut self, pid: u32, number: u64) -> u32 {
        if number == 0 || is_own(number) {
            return ROOT;
        }
        let next = self.snapshot.contexts.len().fit::<u32>() + 1;
        *self.contexts.entry((pid, number)).or_insert_with(|| {
            self.snapshot.contexts.push(Context {
                id: next,
                name: "(not announced)".to_owned(),
                ..Context::default()
            });
            next
        })
    }

    /// The row of a thread's calls in a region.
    fn of_calls(&mut self, tid: u32, context: u32, call: &str) -> &mut CallTotals {
        let key = (tid, context, call.to_owned());
        let rows = &mut self.snapshot.calls;
        let index = *self.calls.entry(key).or_insert_with(|| {
            rows.push(CallTotals {
                tid,
                context,
                call: call.to_owned(),
                ..CallTotals::default()
            });
            rows.len() - 1
        });
        &mut self.snapshot.calls[index]
    }

    fn calls(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let owner = self.owner(f)?;
        let (name, count) = (f.string()?, f.integer()?);
        let [total, min, max] = [f.ns()?, f.ns()?, f.ns()?];
        let parts = call_parts(total, f)?;
        let bytes = f.integer()?;
        self.add_calls(owner, &name, parts, |call| {
            (call.count, call.total, call.min, call.max) = (count, total, min, max);
            call.bytes = bytes;
        })
    }

    /// Adds calls that have ended. `set` completes their row.
    fn add_calls(
        &mut self,
        owner: TimeOwner,
        name: &str,
        parts: CallParts,
        set: impl FnOnce(&mut CallTotals),
    ) -> Option<()> {
        if is_own(owner.region) {
            // Calls of the library that reports regions are not the program's: they count as its user
            // code.
            let sums = &mut self.snapshot.threads.get_mut(owner.thread)?.parts;
            CallParts { cpu: 0, ..parts }.add_to(sums);
            sums.user += parts.cpu;
            return Some(());
        }
        let call = self.with_time(owner, name, parts)?;
        (call.cpu, call.blocked, call.runnable) = (parts.cpu, parts.blocked, parts.runnable);
        set(call);
        Some(())
    }

    /// Adds the time of calls to their thread and to their region; gives the row of the calls.
    fn with_time(
        &mut self,
        owner: TimeOwner,
        name: &str,
        parts: CallParts,
    ) -> Option<&mut CallTotals> {
        self.add_time(owner, |sums| parts.add_to(sums))?;
        let (tid, context) = self.numbers(owner)?;
        Some(self.of_calls(tid, context, name))
    }

    /// Notes a call that its thread makes once.
    fn single_call(&mut self, thread: usize, name: &str, f: &mut Fields<'_>) -> Option<()> {
        let region = f.integer()?;
        let total = f.ns()?;
        self.single_calls.push(SingleCall {
            owner: TimeOwner { thread, region },
            name: name.to_owned(),
            total,
            parts: call_parts(total, f)?,
        });
        Some(())
    }

    /// Adds these calls to an account.
    fn add_single_calls(&mut self) {
        let calls = std::mem::take(&mut self.single_calls);
        for c in &calls {
            self.add_calls(c.owner, &c.name, c.parts, |call| {
                call.count = 1;
                (call.total, call.min, call.max) = (c.total, c.total, c.total);
            });
        }
        self.single_calls = calls;
    }

    fn histogram(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let owner = self.owner(f)?;
        let name = f.string()?;
        if is_own(owner.region) {
            return Some(());
        }
        let (tid, context) = self.numbers(owner)?;
        let call = self.of_calls(tid, context, &name);
        let histogram = call.histogram.get_or_insert_default();
        // Bucket 64 has calls of 0 ns, which are shown with those of 1 ns.
        let bucket = f.integer::<usize>()?.saturating_sub(65).min(63);
        if histogram.len() <= bucket {
            histogram.resize(bucket + 1, 0);
        }
        histogram[bucket] += f.integer::<u64>()?;
        Some(())
    }

    fn stack(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let owner = self.owner(f)?;
        let call = f.string()?.into_owned();
        let (count, ns, path) = (f.integer()?, f.ns()?, f.string()?);
        // It returns to another program than it was called by.
        if call.starts_with("exec") {
            return Some(());
        }
        let frames = self.frames(&path);
        let (tid, context) = self.numbers(owner)?;
        self.snapshot.stacks.push(Stack {
            tid,
            context,
            call,
            frames,
            count,
            ns,
        });
        Some(())
    }

    /// The frames of a stack of the program, the innermost first.
    fn frames(&mut self, stack: &str) -> Vec<Frame> {
        let mut frames = self.lines.frames(stack, &mut self.shared);
        // Functions of our library are on the path, and not part of the program.
        let library = self.library.get_or_insert_with(spile_context::file_name);
        frames.retain(|f| f.module.as_ref() != Some(library));
        ends_path(&mut frames);
        frames
    }

    /// The frames of a stack, with those of an interpreter's functions.
    fn mixed_frames(&mut self, f: &mut Fields<'_>) -> Option<Vec<Frame>> {
        let (path, functions) = (f.string()?, f.integer()?);
        let native = self.frames(&path);
        if functions == 0 {
            return Some(native);
        }
        let native = native.iter().map(|frame| StackFrame::clone(frame));
        let cut = !reaches_beginning(&path);
        let frames = self.functions.merge(functions, native.collect(), cut);
        Some(self.shared.stack(frames))
    }

    /// The time that a thread was blocked in calls of one place.
    fn wait(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let owner = self.owner(f)?;
        let call = f.string()?.into_owned();
        let (futex, object) = (futex_address(f)?, f.string()?);
        let object = match futex {
            Some(futex) => variable(&object).or_else(|| {
                let pid = self.snapshot.threads.get(owner.thread)?.pid;
                self.lock_sites.site(pid, futex).cloned()
            }),
            None => Some(object.into_owned()).filter(|o| !["", "<unknown>"].contains(&&**o)),
        };
        let times = times(f)?;
        let frames = self.mixed_frames(f)?;
        self.add_sample(
            owner,
            Sample {
                activity: Activity::Blocked,
                call,
                futex,
                object,
                frames,
                count: times.count,
                ns: times.ns,
                ..Sample::default()
            },
        )
    }

    /// The threads that woke another one.
    fn waker(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let (woken, waker) = (f.integer()?, f.integer::<i64>()?);
        let woken = self.thread(woken);
        let tid_of =
            |rows: &ProfileBuilder, index: usize| Some(rows.snapshot.threads.get(index)?.tid);
        let tid = tid_of(self, woken)?;
        let waker = match waker {
            0 => None,
            key => {
                let index = self.thread(key);
                tid_of(self, index)
            }
        };
        let (futex, program) = (futex_address(f)?, f.string()?.into_owned());
        let times = times(f)?;
        let frames = self.mixed_frames(f)?;
        self.snapshot.wakers.push(Waker {
            tid,
            waker,
            program,
            futex,
            frames,
            count: times.count,
            ns: times.ns,
        });
        Some(())
    }

    fn add_sample(&mut self, owner: TimeOwner, sample: Sample) -> Option<()> {
        let (tid, context) = self.numbers(owner)?;
        self.snapshot.samples.push(Sample {
            tid,
            context,
            ..sample
        });
        Some(())
    }

    /// The row of a futex.
    fn of_futex(&mut self, f: &mut Fields<'_>) -> Option<&mut Futex> {
        let (pid, address, region) = (
            f.integer()?,
            f.integer::<i64>()?.cast_unsigned(),
            f.integer()?,
        );
        let context = self.context(pid, region);
        let rows = &mut self.snapshot.futexes;
        let index = *self
            .futexes
            .entry((pid, address, context))
            .or_insert_with(|| {
                rows.push(Futex {
                    pid,
                    address,
                    context,
                    ..Futex::default()
                });
                rows.len() - 1
            });
        rows.get_mut(index)
    }

    fn futex(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let futex = self.of_futex(f)?;
        futex.waits += f.integer::<u64>()?;
        futex.ns += f.ns()?;
        futex.max = futex.max.max(f.ns()?);
        futex.name = variable(&f.string()?);
        Some(())
    }

    fn wake(&mut self, f: &mut Fields<'_>) -> Option<()> {
        // Both are fields after those of the futex.
        let mut rest = f.clone();
        let _futex: (i64, i64, i64) = (rest.integer()?, rest.integer()?, rest.integer()?);
        let (waker, woken): (u32, i64) = (rest.integer()?, rest.integer()?);
        let times = times(&mut rest)?;
        let woken = self.thread(woken);
        let woken = self.snapshot.threads.get(woken)?.tid;
        // The last thread that had the id.
        let again = self
            .earlier_threads
            .get(&waker)
            .map_or(0, |n| n.saturating_sub(1));
        let wake = Wake {
            waker: waker.saturating_add(again.saturating_mul(REUSED)),
            woken,
            count: times.count,
            ns: times.ns,
        };
        self.of_futex(f)?.wakes.push(wake);
        Some(())
    }

    /// Adds a call to the trace.
    fn event(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let owner = self.owner(f)?;
        let call = f.string()?;
        let (start, end) = (f.integer()?, f.integer()?);
        let span = (self.since(start), self.since(end));
        let event = self.add_event(owner, &call, span)?;
        event.ret = f.integer()?;
        Some(())
    }

    /// Adds a time off the processor to the trace: the thread waited for an event until it was
    /// ready, and then for a processor.
    fn off_cpu(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let wakeup = self.wakeups.remove(&f.clone().integer()?);
        let owner = self.owner(f)?;
        let runs = f.flag()?;
        let (left, ready, back) = (f.integer()?, f.ns()?, f.integer()?);
        let (left, back) = (self.since(left), self.since(back));
        if runs {
            self.add_event(owner, PREEMPTED, (left, back))?;
            return Some(());
        }
        let woken = back.saturating_sub(ready).max(left);
        // A thread can also be woken before it leaves its processor.
        let wakeup = wakeup.filter(|(_, when)| (left..=back).contains(when));
        self.add_event(owner, BLOCKED, (left, woken))?.waker = wakeup.map(|(waker, _)| waker);
        if woken < back {
            self.add_event(owner, READY, (woken, back))?;
        }
        Some(())
    }

    fn add_event(
        &mut self,
        owner: TimeOwner,
        call: &str,
        (start_ns, end_ns): (Ns, Ns),
    ) -> Option<&mut TimedEvent> {
        let (tid, context) = self.numbers(owner)?;
        let event = TimedEvent {
            tid,
            context,
            call: call.to_owned(),
            start_ns,
            end_ns: end_ns.max(start_ns),
            ..TimedEvent::default()
        };
        self.events.push(event);
        self.events.last_mut()
    }

    fn fails(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let owner = self.owner(f)?;
        let call = f.string()?;
        let (tid, context) = self.numbers(owner)?;
        let (error, count) = (f.string()?, f.integer()?);
        // It returns the result of the call that the signal interrupted.
        if call == "rt_sigreturn" {
            return Some(());
        }
        let errors = &mut self.of_calls(tid, context, &call).errors;
        errors.insert(error.into_owned(), count);
        Some(())
    }

    /// A process has ended with that wait status. Its last threads may still be exiting: their
    /// states end with the account.
    pub(super) fn process_ended(&mut self, pid: u32, status: i32) {
        self.ended_process = Some(pid);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.status = process.status.or(Some(status));
            process.ended_ns = process.ended_ns.or(Some(self.snapshot.at_ns));
        }
    }

    /// The process that ran a program first, which is the command's.
    pub(super) fn first_process(&self) -> Option<u32> {
        self.first
    }

    /// For how long the recording goes on, at the last account.
    pub(super) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.snapshot.at_ns)
    }

    /// The account so far, between two rows. States in progress are not in it.
    pub(super) fn snapshot(&self) -> Snapshot {
        let mut snapshot = self.snapshot.clone();
        self.sort(&mut snapshot);
        snapshot
    }

    /// Sorts processes and contexts.
    fn sort(&self, snapshot: &mut Snapshot) {
        let contexts = snapshot.contexts.iter();
        let parents: HashMap<u32, u32> = contexts.filter_map(|c| Some((c.id, c.parent?))).collect();
        // Parents come first. The walk ends even if a context announces itself as its own ancestor.
        let depth = |id: u32| {
            let above = |id: &u32| parents.get(id).copied();
            let way = std::iter::successors(Some(id), above);
            way.take(parents.len() + 1).count()
        };
        snapshot.contexts.sort_by_key(|c| depth(c.id));
        self.count(snapshot);
        snapshot.processes = self.processes.values().cloned().collect();
    }
}

#[cfg(test)]
mod tests;
