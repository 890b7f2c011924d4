//! What matters most in a run, in sentences: the places with most of the whole time of its threads.

use std::collections::{HashMap, HashSet};

use crate::interpreter::Interpreter;
use crate::model::{Ns, Profile, TimePart};
use crate::paths::{LocationKind, PathLocation, PathSample, ThreadPaths, function, threads};
use crate::run::{Run, function_of_parallel, last};
use crate::sleeping_threads::sleeping_threads;
use crate::waits::WaitKind;

/// The beginning of the place where a lock was made, in place of its name.
const MADE: &str = "made in ";

/// Minimum share of a place in the whole time, in percent.
const LEAST: u128 = 5;

/// What makes a place: time with the same one is one row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum By {
    /// The function.
    #[default]
    Function,
    /// The line in the source.
    Line,
    /// The program or library.
    Module,
    /// The thread.
    Thread,
    /// The innermost region.
    Region,
    /// The rank or recording.
    Rank,
}

impl By {
    /// All of them, with their names on the command line.
    pub const ALL: [(By, &'static str); 6] = [
        (By::Function, "function"),
        (By::Line, "line"),
        (By::Module, "module"),
        (By::Thread, "thread"),
        (By::Region, "region"),
        (By::Rank, "rank"),
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        let named = By::ALL.iter().find(|(by, _)| *by == self);
        named.map_or("", |(_, name)| name)
    }
}

/// A place of the program, and what its threads did there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What they did.
    pub part: TimePart,
    /// The system call that they were in, if in one.
    pub call: Option<String>,
    /// The function; empty if it has no name, or if no stack is known.
    pub function: String,
    /// Its file and line with most of the time, or its program or library.
    pub location: Option<String>,
    /// The function of the program that called it, if the function is one of a system library.
    pub caller: Option<String>,
    /// What they waited for; at a barrier and in MPI they may also have been on the processor.
    pub wait: Option<WaitKind>,
    /// What they waited for, see [`crate::model::Sample::object`].
    pub object: Option<String>,
    /// The function that ended most of the waits for a lock, a condition or a semaphore, with its line.
    pub holder: Option<String>,
    /// Their time there.
    pub ns: Ns,
    /// Number of threads.
    pub threads: u64,
}

/// What identifies a finding.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Place {
    part: TimePart,
    wait: Option<WaitKind>,
    call: Option<String>,
    function: String,
    module: Option<String>,
    caller: Option<String>,
    object: Option<String>,
}

impl Place {
    /// The same activity under another name, without what belongs to a function only.
    fn named(self, name: Option<String>) -> Place {
        Place {
            function: name.unwrap_or_default(),
            module: None,
            caller: None,
            ..self
        }
    }
}

/// The time and the threads of a place.
#[derive(Debug, Default)]
struct Sum {
    ns: Ns,
    threads: u64,
    /// The last one.
    last_thread: Option<u32>,
    lines: HashMap<String, Ns>,
    /// The functions that woke threads from waits for its locks, with their lines and the time that the threads
    /// had been blocked.
    released: HashMap<String, Ns>,
}

/// The places of a run where its threads spent their time, the longest time first, and behind them those where they were
/// idle; empty without samples. Threads that only sleep are left out.
pub fn findings(run: &Run, by: By) -> Vec<Finding> {
    findings_without(run, by, sleeping_threads)
}

/// Like [`findings`] by function, with the threads that only sleep.
pub fn findings_of_all(run: &Run) -> Vec<Finding> {
    findings_without(run, By::Function, |_| HashSet::new())
}

/// The findings, without the threads that `left_out` gives for a profile.
fn findings_without(
    run: &Run,
    by: By,
    left_out: impl Fn(&Profile) -> HashSet<u32>,
) -> Vec<Finding> {
    let mut places = Places::default();
    let sampled = |p: &&Profile| p.header.options.samples.is_some();
    for profile in run.profiles.iter().filter(sampled) {
        let threads = threads(profile);
        places.join(Places::of(profile, &threads, &left_out(profile), by));
    }
    places.finish()
}

/// The places of some profiles. Those of one are added to those of the others, in any order.
#[derive(Debug, Default)]
pub(crate) struct Places(HashMap<Place, Sum>);

impl Places {
    /// The places of a profile with the paths of its threads, without the threads that are left out.
    pub(crate) fn of(
        profile: &Profile,
        threads: &[ThreadPaths<'_>],
        left_out: &HashSet<u32>,
        by: By,
    ) -> Places {
        let mut sums: HashMap<Place, (Sum, HashSet<u64>)> = HashMap::new();
        for thread in threads.iter().filter(|t| !left_out.contains(&t.tid)) {
            for sample in &thread.samples {
                let (place, line) = place(sample);
                let place = match by {
                    By::Function => place,
                    By::Line => place.named(line.clone()),
                    By::Module => {
                        let module = match sample.wait {
                            Some(WaitKind::Barrier | WaitKind::Mpi) => sample.inner_module(),
                            _ => None,
                        };
                        let module = module.or(place.module.clone());
                        place.named(module)
                    }
                    By::Thread => place.named(Some(thread.title())),
                    By::Region => place.named(sample.region()),
                    By::Rank => place.named(Some(profile.title())),
                };
                let (sum, futexes) = sums.entry(place).or_default();
                sum.ns = sum.ns.saturating_add(sample.ns);
                if sum.last_thread.replace(thread.tid) != Some(thread.tid) {
                    sum.threads += 1;
                }
                futexes.extend(sample.futex);
                if let Some(line) = line.filter(|_| by == By::Function) {
                    let ns = sum.lines.entry(line).or_default();
                    *ns = ns.saturating_add(sample.ns);
                }
            }
        }
        let holders = holders(profile);
        let sum = |(place, (mut sum, futexes)): (Place, (Sum, HashSet<u64>))| {
            let locks = futexes
                .iter()
                .filter(|_| place.wait.is_some_and(WaitKind::has_waker));
            for (name, ns) in locks.filter_map(|futex| holders.get(futex)).flatten() {
                add(&mut sum.released, name, *ns);
            }
            (place, sum)
        };
        Places(sums.into_iter().map(sum).collect())
    }

    /// Adds the places of another profile.
    pub(crate) fn join(&mut self, other: Places) {
        for (place, other) in other.0 {
            let sum = self.0.entry(place).or_default();
            sum.ns = sum.ns.saturating_add(other.ns);
            sum.threads += other.threads;
            for (name, ns) in other.lines {
                add(&mut sum.lines, &name, ns);
            }
            for (name, ns) in other.released {
                add(&mut sum.released, &name, ns);
            }
        }
    }

    /// The places, the longest time first, and behind them the idle ones.
    pub(crate) fn finish(self) -> Vec<Finding> {
        let mut sums: Vec<(Place, Sum)> = self.0.into_iter().collect();
        let key = |place: &Place, ns: Ns| {
            let idle = is_idle(place.part, place.wait);
            (idle, std::cmp::Reverse(ns))
        };
        sums.sort_by(|a, b| (key(&a.0, a.1.ns), &a.0).cmp(&(key(&b.0, b.1.ns), &b.0)));
        let sums = sums.into_iter();
        sums.map(|(place, sum)| finding(place, sum)).collect()
    }
}

/// Adds to the time of that name.
fn add(times: &mut HashMap<String, Ns>, name: &str, ns: Ns) {
    match times.get_mut(name) {
        Some(sum) => *sum = sum.saturating_add(ns),
        None => {
            times.insert(name.to_owned(), ns);
        }
    }
}

/// By futex: the functions that woke threads from waits for it, with their lines and the time that the
/// threads had been blocked.
fn holders(profile: &Profile) -> HashMap<u64, HashMap<String, Ns>> {
    let mut holders: HashMap<u64, HashMap<String, Ns>> = HashMap::new();
    for waker in &profile.data.wakers {
        let Some(futex) = waker.futex else { continue };
        let frames = waker.frames.iter();
        let frames: Vec<PathLocation> = frames
            .map(|f| function(f, LocationKind::Function))
            .collect();
        let Some(at) = own_function(frames.iter()) else {
            continue;
        };
        let name = match at.file_and_line() {
            Some(line) => format!("`{}` ({line})", at.name()),
            None => format!("`{}`", at.name()),
        };
        add(holders.entry(futex).or_default(), &name, waker.ns);
    }
    holders
}

/// The name with most of the time; of equal ones, the first.
fn longest(times: impl IntoIterator<Item = (String, Ns)>) -> Option<String> {
    let longest = times
        .into_iter()
        .max_by(|a, b| (a.1, &b.0).cmp(&(b.1, &a.0)));
    longest.map(|(name, _)| name)
}

fn finding(place: Place, sum: Sum) -> Finding {
    Finding {
        part: place.part,
        call: place.call,
        function: place.function,
        location: longest(sum.lines).or(place.module),
        caller: place.caller,
        holder: longest(sum.released),
        wait: place.wait,
        object: place.object,
        ns: sum.ns,
        threads: sum.threads,
    }
}

/// The place of a path, and its line in the source.
fn place(sample: &PathSample) -> (Place, Option<String>) {
    let part = sample.part.unwrap_or(TimePart::User);
    let functions = || {
        let path = sample.path.iter().rev();
        path.filter(|at| at.kind == LocationKind::Function)
    };
    let own = own_function(functions());
    let inner = functions().next();
    let call = sample.path.iter().find(|at| at.kind == LocationKind::Call);
    // Calls are made by wrappers of the C library, which say nothing.
    let own_code = own.filter(|own| own.module.is_none() && own.file.is_some());
    let mut regions = sample.path.iter().rev();
    let region_with_function = regions.find(|at| region_function(at, sample.wait).is_some());
    let own = match sample.wait {
        Some(WaitKind::Mpi) => functions()
            .skip_while(|at| !is_mpi(at.name()))
            .find(|at| !is_mpi(at.name())),
        _ => own,
    };
    let at = if sample.wait == Some(WaitKind::Mpi) {
        region_with_function
    } else if sample.wait == Some(WaitKind::Barrier) {
        // A thread of the pool that waits at its region's end has no function of the program.
        own.or(region_with_function).or(inner)
    } else if call.is_some() {
        own.or(inner)
    } else if inner.is_some_and(in_interpreter) {
        own_code.or(inner)
    } else {
        inner
    };
    let name = |at: Option<&PathLocation>| {
        let at = at?;
        Some(
            region_function(at, sample.wait)
                .unwrap_or(at.name())
                .to_owned(),
        )
    };
    let caller = own.filter(|own| Some(*own) != at);
    let region = || {
        sample
            .path
            .iter()
            .rev()
            .find(|at| at.kind == LocationKind::Region)
    };
    let at = at.or_else(region);
    let place = Place {
        part,
        wait: sample.wait,
        call: name(call),
        // Addresses without a name are one place for each program or library.
        function: name(at)
            .filter(|name| !name.starts_with("0x"))
            .unwrap_or_default(),
        module: at.and_then(|at| at.module.clone()),
        caller: match name(caller) {
            Some(address) if address.starts_with("0x") => caller
                .and_then(|at| at.module.as_deref())
                .map(|module| last(module).to_owned()),
            name => name,
        },
        object: sample.object.clone(),
    };
    (place, at.or(caller).and_then(PathLocation::file_and_line))
}

/// The function that stands for waits in a region, because functions of the libraries of OpenMP and MPI
/// say nothing.
fn region_function(at: &PathLocation, wait: Option<WaitKind>) -> Option<&str> {
    let region = Some(at).filter(|at| at.kind == LocationKind::Region)?;
    match wait? {
        WaitKind::Barrier => function_of_parallel(region.name()),
        WaitKind::Mpi => region.name().split(" (").next(),
        _ => None,
    }
}

/// Whether a function has a name of MPI, in C or Fortran.
fn is_mpi(name: &str) -> bool {
    let name = name.strip_prefix(['P', 'p']).unwrap_or(name);
    name.starts_with("MPI_") || name.starts_with("mpi_")
}

/// The innermost function of the program on a stack: neither of a library nor of an interpreter or a run-time system, if
/// there is such a one.
fn own_function<'a>(
    functions: impl Iterator<Item = &'a PathLocation> + Clone,
) -> Option<&'a PathLocation> {
    let own = functions.filter(|at| !at.in_library());
    let first = |is: fn(&&PathLocation) -> bool| own.clone().find(is);
    first(|at| !in_interpreter(at) && !in_runtime(at))
        .or_else(|| first(|at| !in_interpreter(at)))
        .or_else(|| first(|_| true))
}

/// Virtual machines beside the interpreters, by the beginnings of their names.
const MACHINES: [&str; 3] = ["libjvm", "libnode", "node"];

/// The standard libraries of languages that are linked into programs, by the beginnings of their functions' names: of C++
/// and Rust, and of Java.
const STANDARD: [&str; 10] = [
    "std::",
    "core::",
    "alloc::",
    "<std::",
    "<core::",
    "<alloc::",
    "__gnu_cxx::",
    "java.",
    "jdk.",
    "sun.",
];
/// The same of Go, in files of Go only: functions of C have names like `io.part.0`.
const GO: [&str; 9] = [
    "bufio.",
    "internal/",
    "io.",
    "net.",
    "os.",
    "runtime.",
    "sync.",
    "syscall.",
    "time.",
];

/// Whether a function belongs to a language's standard library, as its name tells. Python's is told by its file.
fn in_runtime(at: &PathLocation) -> bool {
    let begins = |names: &[&str]| names.iter().any(|name| at.name().starts_with(name));
    let file = at.file.as_deref().unwrap_or_default();
    let installed = file.ends_with(".py") && file.contains("/lib/python3");
    let python = installed && !file.contains("-packages/") || file.starts_with("<frozen ");
    begins(&STANDARD) || python || file.ends_with(".go") && begins(&GO)
}

/// Whether a location is in an interpreter or virtual machine itself, or in a module of CPython's, which works for the
/// functions of a program.
fn in_interpreter(at: &PathLocation) -> bool {
    let module = at.module.as_deref().unwrap_or_default();
    Interpreter::of_module(module).is_some()
        || MACHINES.iter().any(|name| module.starts_with(name))
        || module.contains(".cpython-")
}

/// The findings with at least 5 % of `whole`, the time of all threads, without the idle ones.
pub fn largest(findings: &[Finding], whole: Ns) -> impl Iterator<Item = &Finding> {
    let share = move |f: &&Finding| matters(f.ns, whole) && !f.is_idle();
    findings.iter().take_while(share)
}

/// Whether a thread with that activity waits for work or events.
fn is_idle(part: TimePart, wait: Option<WaitKind>) -> bool {
    part == TimePart::Blocked && wait.is_some_and(WaitKind::is_idle)
}

/// The time of the idle findings, if it is at least 5 % of `whole`.
pub(crate) fn idle(findings: &[Finding], whole: Ns) -> Option<Ns> {
    let idle = findings.iter().filter(|f| f.is_idle());
    let idle = idle.fold(0, |sum: Ns, f| sum.saturating_add(f.ns));
    matters(idle, whole).then_some(idle).filter(|ns| *ns > 0)
}

/// Whether a time is a share of the whole that a report names first.
pub(crate) fn matters(ns: Ns, whole: Ns) -> bool {
    u128::from(ns) * 100 >= u128::from(whole) * LEAST
}

impl Finding {
    /// Whether the threads waited for a lock.
    pub(crate) fn is_lock(&self) -> bool {
        self.wait == Some(WaitKind::Lock)
    }

    /// Whether the threads were in a call of MPI.
    pub(crate) fn is_mpi(&self) -> bool {
        self.wait == Some(WaitKind::Mpi)
    }

    /// Whether the threads waited in page faults: outside of calls, only these waits have stacks.
    pub(crate) fn is_fault(&self) -> bool {
        let known = !self.function.is_empty() || self.location.is_some();
        self.part == TimePart::Blocked && self.call.is_none() && known
    }

    /// What the threads waited for, if neither a partner nor a file.
    pub(crate) fn own_wait(&self) -> Option<WaitKind> {
        self.wait.filter(|kind| !kind.is_for_partners())
    }

    /// Whether the threads waited for work or events.
    pub(crate) fn is_idle(&self) -> bool {
        is_idle(self.part, self.wait)
    }

    /// Whether the threads waited at a barrier.
    pub(crate) fn is_barrier(&self) -> bool {
        self.wait == Some(WaitKind::Barrier)
    }

    /// What the threads waited for, with its name if that is known.
    fn awaited(&self, kind: WaitKind) -> String {
        match &self.object {
            None => kind.noun().to_owned(),
            Some(site) if site.starts_with(MADE) => format!("{}, {site},", kind.noun()),
            Some(name) if kind == WaitKind::Lock => format!("`{name}`"),
            Some(name) => format!("{}, `{name}`,", kind.noun()),
        }
    }

    /// What the threads did there, as the end of a sentence: "`crunch` (busy.c:5), on the
    /// processor".
    pub fn sentence(&self) -> String {
        let mut place = match (&*self.function, &self.location) {
            ("", None) => String::new(),
            ("", Some(module)) => format!("{module} (no symbols)"),
            (name, Some(location)) => format!("`{name}` ({location})"),
            (name, None) => format!("`{name}`"),
        };
        if let Some(caller) = &self.caller {
            place += &format!(", called by `{caller}`");
        }
        let call = self.call.as_deref().unwrap_or_default();
        let in_place = |start: String| match place.is_empty() {
            true => start,
            false => format!("{start} in {place}"),
        };
        let ended = |kind: WaitKind, how: &str| {
            let waits = in_place(format!("waiting for {}", self.awaited(kind)));
            match &self.holder {
                Some(holder) => format!("{waits}, {how} by {holder}"),
                None => waits,
            }
        };
        match self.part {
            TimePart::User if self.is_barrier() => {
                format!(
                    "{}, spinning on the processor",
                    in_place("waiting at a barrier".to_owned())
                )
            }
            TimePart::SyscallCpu if self.is_barrier() => {
                let start = format!("waiting at a barrier, the kernel works for {call}");
                in_place(start)
            }
            TimePart::Blocked if self.is_barrier() => in_place("waiting at a barrier".to_owned()),
            TimePart::User if place.is_empty() => {
                "on the processor, in no sampled function".to_owned()
            }
            TimePart::User => format!("{place}, on the processor"),
            TimePart::SyscallCpu => in_place(format!("the kernel works for {call}")),
            TimePart::Blocked if self.is_lock() => ended(WaitKind::Lock, "released"),
            TimePart::Blocked if self.is_fault() => match &self.object {
                Some(object) => in_place(format!("waiting in page faults of {object}")),
                None => in_place("waiting in page faults".to_owned()),
            },
            TimePart::Blocked if call.is_empty() => in_place("stopped".to_owned()),
            TimePart::Blocked if let Some(kind) = self.own_wait() => ended(kind, "signalled"),
            TimePart::Blocked => match &self.object {
                Some(object) => in_place(format!("waiting in {call} of {object}")),
                None => in_place(format!("waiting in {call}")),
            },
            TimePart::Runnable => "ready, and waiting for a processor".to_owned(),
            TimePart::FaultMinor | TimePart::FaultMajor => in_place(self.part.name().to_owned()),
            TimePart::Irq | TimePart::Softirq => self.part.name().to_owned(),
        }
    }
}
