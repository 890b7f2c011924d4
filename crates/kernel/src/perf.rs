//! Events of `perf_event_open(2)`: timers on each CPU, counters, and their names in scripts.

use std::ffi::CString;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use spile_cast::Cast;

use crate::bpf::last_errno;
use crate::machine::{self, Version};
use crate::perf_stream::StreamSpec;

/// An event: the `type` and `config` of `struct perf_event_attr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventSpec {
    /// `PERF_TYPE_...`
    pub ty: u32,
    /// The event within that type.
    pub config: u64,
}

/// `PERF_TYPE_HARDWARE`
pub const TYPE_HARDWARE: u32 = 0;
/// `PERF_TYPE_SOFTWARE`
pub const TYPE_SOFTWARE: u32 = 1;
/// `PERF_TYPE_TRACEPOINT`
pub const TYPE_TRACEPOINT: u32 = 2;
/// `PERF_TYPE_HW_CACHE`
pub const TYPE_HW_CACHE: u32 = 3;
/// `PERF_TYPE_BREAKPOINT`
pub const TYPE_BREAKPOINT: u32 = 5;

/// The software clock that runs on every machine: one event for each nanosecond of CPU time.
pub const CPU_CLOCK: EventSpec = EventSpec {
    ty: TYPE_SOFTWARE,
    config: 0,
};

/// `PERF_COUNT_SW_TASK_CLOCK`; the clocks are the first two software events.
const TASK_CLOCK: u64 = 1;
/// Nanoseconds in a second.
const NANOSECONDS: u64 = 1_000_000_000;

/// Events by name, with the synonyms of perf's own list.
const EVENTS: [(&str, EventSpec); 25] = [
    ("cpu_clock", CPU_CLOCK),
    ("task_clock", sw(1)),
    ("page_faults", sw(2)),
    ("faults", sw(2)),
    ("context_switches", sw(3)),
    ("cs", sw(3)),
    ("cpu_migrations", sw(4)),
    ("migrations", sw(4)),
    ("page_faults_min", sw(5)),
    ("minor_faults", sw(5)),
    ("page_faults_maj", sw(6)),
    ("major_faults", sw(6)),
    ("alignment_faults", sw(7)),
    ("emulation_faults", sw(8)),
    ("dummy", sw(9)),
    ("cpu_cycles", hw(0)),
    ("instructions", hw(1)),
    ("cache_references", hw(2)),
    ("cache_misses", hw(3)),
    ("branch_instructions", hw(4)),
    ("branch_misses", hw(5)),
    ("bus_cycles", hw(6)),
    ("stalled_cycles_frontend", hw(7)),
    ("stalled_cycles_backend", hw(8)),
    ("ref_cpu_cycles", hw(9)),
];

const fn sw(config: u64) -> EventSpec {
    EventSpec {
        ty: TYPE_SOFTWARE,
        config,
    }
}

const fn hw(config: u64) -> EventSpec {
    EventSpec {
        ty: TYPE_HARDWARE,
        config,
    }
}

/// The event of that name; `-` and `_` are equal in it.
#[must_use]
pub fn event(name: &str) -> Option<EventSpec> {
    let name = name.replace('-', "_");
    EVENTS
        .iter()
        .find(|entry| entry.0 == name)
        .map(|entry| entry.1)
}

/// The names of all events of a type ([`TYPE_SOFTWARE`], [`TYPE_HARDWARE`]).
pub fn event_names(ty: u32) -> impl Iterator<Item = &'static str> {
    EVENTS
        .iter()
        .filter(move |entry| entry.1.ty == ty)
        .map(|entry| entry.0)
}

/// The rate at which an event runs its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// Never: it only counts.
    Count,
    /// Once for this number of events (for a clock: nanoseconds).
    Period(u64),
    /// This number of times a second.
    Frequency(u64),
}

/// The CPU or the task whose events count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PerfTarget {
    /// All tasks on that CPU (needs CAP_PERFMON).
    Cpu(u32),
    /// That task on every CPU, and its children from then on.
    Task(u32),
}

/// Memory that is watched by a debug register of the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watchpoint {
    /// Its address.
    pub address: u64,
    /// Length in bytes: 1, 2, 4 or 8. The address is a multiple of it.
    pub length: u8,
    /// Reads hit too, not only writes.
    pub reads: bool,
}

/// A location in code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeLocation<'a> {
    /// An instruction of a program.
    File {
        /// The ELF file.
        path: &'a str,
        /// File offset.
        offset: u64,
        /// File offset of the marker's semaphore; 0 for none.
        semaphore: u64,
    },
    /// A function of the kernel, and an offset in it.
    Function {
        /// `name`, or `module:name`.
        name: &'a str,
        /// Offset in bytes.
        offset: u64,
    },
    /// An address in the kernel.
    Address(u64),
}

/// Whether a function can be probed by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeCheck {
    /// It can, and its name is unique.
    Sound,
    /// It is forbidden, not traced, or several functions have the name.
    Refused,
    /// The kernel gives no answer.
    Unknown,
}

/// The `type` of the events of a source with a dynamic type.
fn source_type(source: &str) -> Result<u32, Errno> {
    let path = format!("/sys/bus/event_source/devices/{source}/type");
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    text.trim().parse().map_err(|_| Errno::INVAL)
}

/// A request that the kernel refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerfError {
    /// The call or ioctl.
    pub action: &'static str,
    /// The reason: `ENOENT` for events that this machine does not have, `EPERM` or `EACCES` without
    /// privileges, `EOPNOTSUPP` without interrupts.
    pub errno: Errno,
}

impl fmt::Display for PerfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}",
            self.action,
            crate::errno::describe_errno(self.errno)
        )
    }
}

impl std::error::Error for PerfError {}

/// An open event; it ends when dropped.
#[derive(Debug)]
pub struct PerfEvent(OwnedFd);

const ATTR_LEN: usize = 112;
/// `struct perf_event_attr` in words.
type PerfAttr = [u64; ATTR_LEN / 8];
/// Its flags of an event that does not count yet, and of one that later children of its task get as well.
const DISABLED: u64 = 1 << 0;
const INHERIT: u64 = 1 << 1;

/// The attribute of an event of that type.
fn attr_of_type(ty: u32) -> PerfAttr {
    let head = [ty, ATTR_LEN.fit::<u32>()].map(u32::to_ne_bytes);
    let mut attr = [0; ATTR_LEN / 8];
    attr[0] = u64::from_ne_bytes(*head.as_flattened().first_chunk().unwrap_or(&[0; 8]));
    attr
}

/// The attribute of a sampled event.
fn attr_of(event: EventSpec, sampling: Sampling) -> PerfAttr {
    const FREQUENCY: u64 = 1 << 10;
    let clock = event.ty == TYPE_SOFTWARE && event.config <= TASK_CLOCK;
    let (sample, flags) = match sampling {
        // The kernel lowers its maximum frequency when interrupts take long. A clock's period
        // has the same effect and no such limit.
        Sampling::Frequency(hz) if clock => (NANOSECONDS / hz.max(1), 0),
        Sampling::Count => (0, 0),
        Sampling::Period(period) => (period, 0),
        Sampling::Frequency(hz) => (hz, FREQUENCY),
    };
    let mut attr = attr_of_type(event.ty);
    attr[1] = event.config;
    attr[2] = sample;
    attr[5] = flags;
    attr
}

/// Opens an event whose records are read ([`crate::perf_stream`]), of a thread on a CPU. `sample` is the `sample_type`.
pub(crate) fn open_stream(
    spec: &StreamSpec,
    sample: u64,
    thread: u32,
    cpu: u32,
) -> Result<PerfEvent, PerfError> {
    const EXCLUDE_KERNEL: u64 = 1 << 5;
    const EXCLUDE_HV: u64 = 1 << 6;
    const COMM: u64 = 1 << 9;
    const TASK: u64 = 1 << 13;
    const SAMPLE_ID_ALL: u64 = 1 << 18;
    const COMM_EXEC: u64 = 1 << 24;
    const USE_CLOCK: u64 = 1 << 25;
    let mut attr = attr_of(spec.event, spec.sampling);
    attr[3] = sample;
    attr[5] |= DISABLED | INHERIT | COMM | TASK | SAMPLE_ID_ALL | COMM_EXEC | USE_CLOCK;
    if !spec.in_kernel {
        attr[5] |= EXCLUDE_KERNEL | EXCLUDE_HV;
    }
    // `wakeup_events`
    attr[6] = 1;
    attr[10] = spec.registers;
    // `clockid`
    attr[11] = u64::from(libc::CLOCK_MONOTONIC.cast_unsigned()) << 32;
    open_attr(
        &attr,
        thread.cast_signed(),
        cpu.cast_signed(),
        "perf_event_open",
    )
}

/// Lets the records of an event go to those of another one.
pub(crate) fn redirect(event: &PerfEvent, to: &PerfEvent) -> Result<(), PerfError> {
    const SET_OUTPUT: u64 = 0x2405;
    event.ioctl("PERF_EVENT_IOC_SET_OUTPUT", SET_OUTPUT, to.0.as_raw_fd())
}

/// Opens an event that does not count yet, on a CPU or for a task and its later children.
fn open_disabled(
    mut attr: PerfAttr,
    target: PerfTarget,
    action: &'static str,
) -> Result<PerfEvent, PerfError> {
    attr[5] |= DISABLED;
    match target {
        PerfTarget::Cpu(cpu) => open_attr(&attr, -1, cpu.cast_signed(), action),
        PerfTarget::Task(pid) => {
            attr[5] |= INHERIT;
            open_attr(&attr, pid.cast_signed(), -1, action)
        }
    }
}

impl PerfEvent {
    /// Opens an event, not yet counting: see [`PerfEvent::enable`].
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn open(
        event: EventSpec,
        target: PerfTarget,
        sampling: Sampling,
    ) -> Result<PerfEvent, PerfError> {
        open_disabled(attr_of(event, sampling), target, "perf_event_open")
    }

    /// Opens a watch on memory, not yet enabled: every access hits.
    ///
    /// # Errors
    /// [`PerfError`]: `ENOSPC` when the processor's debug registers are all in use.
    pub fn open_watch(watch: &Watchpoint, target: PerfTarget) -> Result<PerfEvent, PerfError> {
        // Another program has different contents at the address.
        const REMOVE_ON_EXEC: u64 = 1 << 36;
        const READ: u64 = 1;
        const WRITE: u64 = 2;
        let mut attr = attr_of_type(TYPE_BREAKPOINT);
        attr[2] = 1;
        if let PerfTarget::Task(_) = target {
            attr[5] = REMOVE_ON_EXEC;
        }
        // `bp_type` is the second half of its word.
        let access = if watch.reads { READ | WRITE } else { WRITE };
        attr[6] = access << 32;
        attr[7] = watch.address;
        attr[8] = u64::from(watch.length);
        open_disabled(attr, target, "watch memory")
    }

    /// Opens an event at a location in code; a program is attached to it with
    /// [`crate::bpf::perf_link`]. Without a task it hits on all CPUs.
    ///
    /// # Errors
    /// [`PerfError`]: `ENOENT` where the kernel has no such probes.
    pub fn open_at(
        location: &ProbeLocation<'_>,
        ret: bool,
        task: Option<u32>,
    ) -> Result<PerfEvent, PerfError> {
        const SEMAPHORE: u32 = 32;
        let refused = |action, errno| PerfError { action, errno };
        let source = match location {
            ProbeLocation::File { .. } => "uprobe",
            ProbeLocation::Function { .. } | ProbeLocation::Address(_) => "kprobe",
        };
        let ty = source_type(source).map_err(|e| refused("look up perf's probes", e))?;
        let (name, number, semaphore) = match *location {
            ProbeLocation::File {
                path,
                offset,
                semaphore,
            } => (Some(path), offset, semaphore),
            ProbeLocation::Function { name, offset } => (Some(name), offset, 0),
            ProbeLocation::Address(address) => (None, address, 0),
        };
        let name = name.map(CString::new).transpose();
        let name = name.map_err(|_| refused("open a perf probe", Errno::INVAL))?;
        let mut attr = attr_of_type(ty);
        attr[1] = u64::from(ret) | semaphore << SEMAPHORE;
        // `config1`, `config2`
        attr[7] = name.as_ref().map_or(0, |n| n.as_ptr() as u64);
        attr[8] = number;
        let (pid, cpu) = task.map_or((-1, 0), |pid| (pid.cast_signed(), -1));
        open_attr(&attr, pid, cpu, "open a perf probe")
    }

    /// Opens an event of a trace event, by its number in tracefs, that lets probes in programs hit in the
    /// memory of a task, and of its later threads and children if it is inherited. It does not count.
    ///
    /// # Errors
    /// [`PerfError`]: `EINVAL` before Linux 6.13 if it is inherited.
    pub fn open_in(id: u64, task: u32, inherited: bool) -> Result<PerfEvent, PerfError> {
        const SAMPLE_TID: u64 = 1 << 1;
        const SAMPLE_READ: u64 = 1 << 4;
        let mut attr = attr_of_type(TYPE_TRACEPOINT);
        attr[1] = id;
        attr[2] = 1;
        attr[3] = SAMPLE_TID | SAMPLE_READ;
        attr[5] = DISABLED | if inherited { INHERIT } else { 0 };
        open_attr(&attr, task.cast_signed(), -1, "open an event of a task")
    }

    /// Asks the kernel whether it accepts a kprobe at a function, without creating one: the
    /// requested offset is within the first instruction, which the kernel checks last
    /// (`create_local_trace_kprobe`, `register_kprobe`). Costs a few microseconds.
    #[must_use]
    pub fn kprobe_verdict(name: &str) -> ProbeCheck {
        /// From this version on the kernel checks whether the name is unique.
        const SHARED: Version = Version::new(6, 7);
        let location = ProbeLocation::Function { name, offset: 1 };
        match PerfEvent::open_at(&location, false, None).map_err(|e| e.errno) {
            Err(Errno::ILSEQ) if machine::version() >= SHARED => ProbeCheck::Sound,
            Err(Errno::INVAL | Errno::ADDRNOTAVAIL) => ProbeCheck::Refused,
            _ => ProbeCheck::Unknown,
        }
    }

    /// Sets the program of type `PERF_EVENT` (or, for tracepoints and probes, `TRACEPOINT` and
    /// `KPROBE`) that the event runs.
    ///
    /// # Errors
    /// [`PerfError`]: `EEXIST` if it has one.
    pub fn set_bpf(&self, prog: BorrowedFd<'_>) -> Result<(), PerfError> {
        const SET_BPF: u64 = 0x4004_2408;
        self.ioctl("PERF_EVENT_IOC_SET_BPF", SET_BPF, prog.as_raw_fd())
    }

    /// Starts the event.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn enable(&self) -> Result<(), PerfError> {
        const ENABLE: u64 = 0x2400;
        self.ioctl("PERF_EVENT_IOC_ENABLE", ENABLE, 0)
    }

    /// Stops the event; it can be started again.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn disable(&self) -> Result<(), PerfError> {
        const DISABLE: u64 = 0x2401;
        self.ioctl("PERF_EVENT_IOC_DISABLE", DISABLE, 0)
    }

    /// The number of events so far.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn count(&self) -> Result<u64, PerfError> {
        let mut bytes = [0; 8];
        match rustix::io::read(&self.0, &mut bytes) {
            Ok(_) => Ok(u64::from_ne_bytes(bytes)),
            Err(errno) => Err(PerfError {
                action: "read a perf event",
                errno,
            }),
        }
    }

    fn ioctl(&self, action: &'static str, request: u64, argument: i32) -> Result<(), PerfError> {
        // SAFETY: these requests take a plain number.
        let ret = unsafe { libc::ioctl(self.0.as_raw_fd(), request as _, argument) };
        if ret < 0 {
            Err(PerfError {
                action,
                errno: last_errno(),
            })
        } else {
            Ok(())
        }
    }
}

/// The system call. Addresses in the attribute have to be valid until it is done.
fn open_attr(
    attr: &PerfAttr,
    pid: i32,
    cpu: i32,
    action: &'static str,
) -> Result<PerfEvent, PerfError> {
    const CLOEXEC: u64 = 1 << 3;
    // SAFETY: the attribute is as long as its size field says; the one address that an attribute
    // can have is of a name that ends with NUL, which the caller keeps.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attr.as_ptr(),
            pid,
            cpu,
            -1,
            CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(PerfError {
            action,
            errno: last_errno(),
        });
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(PerfEvent(unsafe { OwnedFd::from_raw_fd(fd.fit::<i32>()) }))
}

impl AsFd for PerfEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<PerfEvent> for OwnedFd {
    fn from(event: PerfEvent) -> OwnedFd {
        event.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::{self, insn, prog_type};

    #[test]
    fn names_of_events_are_known() {
        assert_eq!(event("cpu-clock"), Some(CPU_CLOCK));
        assert_eq!(event("page_faults_maj"), Some(sw(6)));
        assert_eq!(event("instructions"), Some(hw(1)));
        assert_eq!(event("nosuch"), None);
        assert_eq!(event("ref-cpu-cycles"), Some(hw(9)));
        // PERF_COUNT_HW_CPU_CYCLES to PERF_COUNT_HW_REF_CPU_CYCLES.
        assert_eq!(event_names(TYPE_HARDWARE).count(), 10);
    }

    #[test]
    fn a_clock_runs_a_program() {
        let spec = bpf::ProgSpec {
            ty: prog_type::PERF_EVENT,
            insns: &[insn(0xb7, 0, 0, 0, 0), insn(0x95, 0, 0, 0, 0)],
            name: "tick",
            ..Default::default()
        };
        let prog = match bpf::load(&spec) {
            Ok(prog) => prog,
            Err(why) => spile_testing::skip!("{why}"),
        };
        let cpu = crate::machine::online_cpus()[0];
        let tick = PerfEvent::open(CPU_CLOCK, PerfTarget::Cpu(cpu), Sampling::Period(1_000_000))
            .expect("a software event");
        tick.set_bpf(prog.as_fd()).expect("attached");
        let stats = bpf::enable_stats().expect("statistics");
        tick.enable().expect("enabled");
        let runs = || bpf::prog_info(prog.as_fd()).expect("info").run_count;
        for _ in 0..10_000 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            if runs() > 0 {
                break;
            }
        }
        tick.disable().expect("disabled");
        assert!(runs() > 0);
        drop(stats);
        assert!(tick.count().expect("count") > 0);
    }

    #[test]
    fn refusals_are_reported() {
        let nowhere = PerfEvent::open(CPU_CLOCK, PerfTarget::Cpu(1 << 20), Sampling::Count);
        assert!(nowhere.is_err_and(|e| e.action == "perf_event_open"));
    }
}
