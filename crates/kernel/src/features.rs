//! BPF features of the running kernel.
//!
//! Versions alone do not decide: distributions backport features, and lockdown takes some away.
//! Each feature is probed, mostly by loading a program of a few instructions, and the answer is
//! cached. A failure that says nothing about the feature, for example for lack of privileges, is
//! [`Availability::Unknown`], never "no".
//!
//! Helpers and kfuncs are probed as libbpf does: the program calls the function without setting up
//! arguments. The verifier rejects it either way, and its log says whether the function or its
//! arguments are at fault.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use spile_cast::Cast;

use crate::bpf::{
    self, BpfError, Errno, MapAttr, ProgSpec, attach_type, insn, map_type, prog_type,
};
use crate::btf::Btf;
use crate::perf::{self, PerfEvent, PerfTarget, Sampling};

/// Whether the kernel has a feature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// It has the feature.
    Yes,
    /// It lacks the feature.
    No,
    /// The probe failed for another reason, which is given.
    Unknown(String),
}

impl Availability {
    /// Whether the answer is a certain yes.
    #[must_use]
    pub fn is_available(&self) -> bool {
        *self == Availability::Yes
    }

    /// Whether the answer is a certain no.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        *self == Availability::No
    }
}

impl fmt::Display for Availability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Availability::Yes => f.write_str("yes"),
            Availability::No => f.write_str("no"),
            Availability::Unknown(why) => write!(f, "could not tell: {why}"),
        }
    }
}

/// A feature that a kernel may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Feature {
    /// `bpf(2)` itself, with the privilege to load tracing programs. No: the kernel is built
    /// without it. Unknown: this process may not use it.
    Bpf,
    /// BTF of the kernel itself (`CONFIG_DEBUG_INFO_BTF`).
    Btf,
    /// Programs of a type ([`prog_type`]).
    ProgType(u32),
    /// Maps of a type ([`map_type`]).
    MapType(u32),
    /// A helper ([`helper`]) in programs of a type.
    Helper(u32, u32),
    /// A kfunc by name in programs of a type.
    Kfunc(u32, &'static str),
    /// The bounded-loop instruction (6.9).
    MayGoto,
    /// Atomic instructions with a result: `xchg`, `cmpxchg`, fetching `add` (5.12).
    Atomics,
    /// Loops that the verifier follows to their end (5.3).
    BoundedLoops,
    /// Running a raw tracepoint program on demand (5.10).
    TestRunRawTracepoint,
    /// Run times and counts of programs (5.8).
    Stats,
    /// `perf_event_open` with the software clock.
    PerfClock,
    /// `perf_event_open` with hardware counters (cycles).
    PerfHardware,
    /// Probes on kernel functions through perf events (`CONFIG_KPROBE_EVENTS`).
    Kprobes,
    /// Probes on user-space code through perf events (`CONFIG_UPROBE_EVENTS`).
    Uprobes,
    /// Programs on trampolines at kernel functions and at their returns: fentry and fexit.
    Fentry,
    /// Watchpoints by debug registers of the processor, through perf events
    /// (`CONFIG_HAVE_HW_BREAKPOINT`).
    Breakpoints,
    /// Programs at netfilter hooks (6.4, `CONFIG_NETFILTER_BPF_LINK`).
    Netfilter,
    /// Programs at LSM hooks (`CONFIG_BPF_LSM`, and `bpf` among the active modules).
    Lsm,
    /// Programs at code of processes may set its registers (after 6.18).
    WriteRegisters,
    /// One link for many kernel functions (5.18, `CONFIG_FPROBE`).
    KprobeMulti,
    /// One link for many locations in a file (6.6).
    UprobeMulti,
    /// `membarrier(MEMBARRIER_CMD_GLOBAL)`: waits until all CPUs have passed
    /// through a grace period.
    MembarrierGlobal,
}

/// The text for messages: the missing feature, and the release of Linux that introduced it.
impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |table: &[(u32, &'static str)], number: u32| {
            let row = table.iter().find(|row| row.0 == number);
            row.map_or("unnamed", |row| row.1)
        };
        let program = |number| named(&PROGRAMS, number);
        f.write_str(match *self {
            Feature::ProgType(ty) => {
                return write!(f, "BPF programs of type {} ({ty})", program(ty));
            }
            Feature::MapType(ty) => {
                return write!(f, "BPF maps of type {} ({ty})", named(&MAPS, ty));
            }
            Feature::Helper(ty, number) => {
                let (name, program) = (named(&HELPERS, number), program(ty));
                return write!(f, "the BPF helper {name} ({number}) in {program} programs");
            }
            Feature::Kfunc(ty, name) => {
                return write!(f, "the BPF kfunc {name} in {} programs", program(ty));
            }
            Feature::Bpf => "BPF (CONFIG_BPF_SYSCALL)",
            Feature::Btf => "the kernel's BTF (CONFIG_DEBUG_INFO_BTF)",
            Feature::MayGoto => "BPF's may_goto (Linux 6.9)",
            Feature::Atomics => "BPF's atomic instructions (Linux 5.12)",
            Feature::BoundedLoops => "bounded loops in BPF (Linux 5.3)",
            Feature::TestRunRawTracepoint => "test runs of raw tracepoint programs (Linux 5.10)",
            Feature::Stats => "statistics of BPF programs (Linux 5.8)",
            Feature::PerfClock => "perf's software clock (CONFIG_PERF_EVENTS)",
            Feature::PerfHardware => "hardware performance counters",
            Feature::Kprobes => "kernel probes (CONFIG_KPROBE_EVENTS)",
            Feature::Uprobes => "user-space probes (CONFIG_UPROBE_EVENTS)",
            Feature::Fentry => "fentry (CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS)",
            Feature::Breakpoints => "debug registers (CONFIG_HAVE_HW_BREAKPOINT)",
            Feature::Netfilter => "BPF links to netfilter hooks (Linux 6.4)",
            Feature::Lsm => "BPF programs at security hooks (CONFIG_BPF_LSM)",
            Feature::WriteRegisters => {
                "BPF programs that set registers of processes (after Linux 6.18)"
            }
            Feature::KprobeMulti => "BPF links to many functions (Linux 5.18)",
            Feature::UprobeMulti => "BPF links to many locations in programs (Linux 6.6)",
            Feature::MembarrierGlobal => "membarrier (CONFIG_MEMBARRIER)",
        })
    }
}

const PROGRAMS: [(u32, &str); 7] = [
    (prog_type::SOCKET_FILTER, "socket filter"),
    (prog_type::KPROBE, "kprobe and uprobe"),
    (prog_type::TRACEPOINT, "tracepoint"),
    (prog_type::PERF_EVENT, "perf event"),
    (prog_type::RAW_TRACEPOINT, "raw tracepoint"),
    (prog_type::TRACING, "tracing"),
    (prog_type::SYSCALL, "syscall"),
];

const MAPS: [(u32, &str); 8] = [
    (map_type::HASH, "hash"),
    (map_type::ARRAY, "array"),
    (map_type::PERCPU_HASH, "per-CPU hash"),
    (map_type::PERCPU_ARRAY, "per-CPU array"),
    (map_type::LRU_PERCPU_HASH, "LRU per-CPU hash"),
    (map_type::PERCPU_CGROUP_STORAGE, "per-CPU cgroup storage"),
    (map_type::RINGBUF, "ring buffer, Linux 5.8"),
    (map_type::TASK_STORAGE, "task storage, Linux 5.11"),
];

/// Names and numbers of helpers, from the kernel's `linux/bpf.h`: constants, and a table for messages.
macro_rules! helpers {
    ($($name:ident $text:literal $number:literal)*) => {
        /// Numbers of helpers, from the kernel's `linux/bpf.h`.
        #[allow(missing_docs)]
        pub mod helper {
            $(pub const $name: u32 = $number;)*
        }

        const HELPERS: [(u32, &str); [$($number),*].len()] = [$(($number, $text)),*];
    };
}

helpers! {
    GET_CURRENT_TASK_BTF "get_current_task_btf" 158
    TASK_PT_REGS "task_pt_regs" 175
    LOOP "loop" 181
    PROBE_WRITE_USER "probe_write_user" 36
    FOR_EACH_MAP_ELEM "for_each_map_elem" 164
    RINGBUF_OUTPUT "ringbuf_output" 130
    RINGBUF_RESERVE "ringbuf_reserve" 131
    PROBE_READ_KERNEL "probe_read_kernel" 113
    PROBE_READ_USER "probe_read_user" 112
    PROBE_READ_USER_STR "probe_read_user_str" 114
    PROBE_READ_KERNEL_STR "probe_read_kernel_str" 115
    GET_NS_CURRENT_PID_TGID "get_ns_current_pid_tgid" 120
    KTIME_GET_BOOT_NS "ktime_get_boot_ns" 125
    MAP_LOOKUP_PERCPU_ELEM "map_lookup_percpu_elem" 195
    GET_STACKID "get_stackid" 27
    GET_STACK "get_stack" 67
    GET_FUNC_IP "get_func_ip" 173
    COPY_FROM_USER "copy_from_user" 148
    D_PATH "d_path" 147
    STRNCMP "strncmp" 182
}

/// Whether the running kernel has the feature. The first query costs up to some 0.1 ms, more where
/// BTF is not open yet; the answer is cached.
#[must_use]
pub fn has(feature: Feature) -> Availability {
    static KNOWN: Mutex<Option<HashMap<Feature, Availability>>> = Mutex::new(None);
    if let Ok(mut known) = KNOWN.lock()
        && let Some(answer) = known.get_or_insert_default().get(&feature)
    {
        return answer.clone();
    }
    let answer = run_probe(feature);
    if let Ok(mut known) = KNOWN.lock() {
        known
            .get_or_insert_default()
            .insert(feature, answer.clone());
    }
    answer
}

fn run_probe(feature: Feature) -> Availability {
    const RAW: u32 = prog_type::RAW_TRACEPOINT;
    match feature {
        Feature::Bpf => bpf_itself(),
        Feature::Btf => match Btf::vmlinux() {
            Ok(_) => Availability::Yes,
            Err(crate::btf::BtfError::Io(path, _)) if !path.exists() => Availability::No,
            Err(why) => unknown(why),
        },
        Feature::ProgType(ty) => program_type(ty),
        Feature::MapType(ty) => map_of_type(ty),
        Feature::Helper(ty, number) => helper_in(ty, number),
        Feature::Kfunc(ty, name) => kfunc_in(ty, name),
        Feature::MayGoto => accepted(load(RAW, &[MOV_R0_0, insn(0xe5, 0, 0, 0, 0), EXIT])),
        Feature::Atomics => accepted(load(
            RAW,
            &[
                MOV_R0_0,
                insn(0x7b, 10, 0, -8, 0),    // *(u64 *)(r10 - 8) = r0
                insn(0xb7, 1, 0, 0, 1),      // r1 = 1
                insn(0xdb, 10, 1, -8, 0xf1), // r0 = cmpxchg(r10 - 8, r0, r1)
                MOV_R0_0,
                EXIT,
            ],
        )),
        Feature::BoundedLoops => accepted(load(
            RAW,
            &[
                insn(0xb7, 0, 0, 0, 10), // r0 = 10
                insn(0x07, 0, 0, 0, -1), // r0 += -1
                insn(0x55, 0, 0, -2, 0), // if r0 != 0 goto -2
                EXIT,
            ],
        )),
        Feature::TestRunRawTracepoint => match load(RAW, &[MOV_R0_0, EXIT]) {
            Ok(prog) => answer(bpf::test_run(prog.as_fd(), &mut [], None)),
            Err(why) => unknown(why),
        },
        Feature::Stats => answer(bpf::enable_stats()),
        Feature::PerfClock => perf_event(perf::CPU_CLOCK),
        Feature::PerfHardware => perf_event(perf::EventSpec {
            ty: perf::TYPE_HARDWARE,
            config: 0,
        }),
        Feature::Kprobes => event_source("kprobe"),
        Feature::Uprobes => event_source("uprobe"),
        Feature::Fentry => fentry(),
        Feature::Breakpoints => event_source("breakpoint"),
        Feature::Netfilter => in_btf("bpf_nf_link_attach"),
        Feature::Lsm => match crate::tracepoints::security_modules() {
            Some(active) if active.iter().all(|name| name != "bpf") => Availability::No,
            _ => lsm(),
        },
        Feature::WriteRegisters => accepted(load(
            prog_type::KPROBE,
            &[
                MOV_R0_0,
                insn(0x7b, 1, 0, 0, 0), // *(u64 *)(r1 + 0) = r0
                EXIT,
            ],
        )),
        // BTF is faster to ask, where it has the function behind these links.
        Feature::KprobeMulti => match in_btf("register_fprobe_ips") {
            Availability::Yes => Availability::Yes,
            _ => many(attach_type::KPROBE_MULTI, bpf::unreadable_kprobe_multi),
        },
        // A directory has no code.
        Feature::UprobeMulti => many(attach_type::UPROBE_MULTI, |prog| {
            let spec = bpf::UprobeMulti {
                path: "/",
                offsets: &[0],
                cookies: &[0],
                ..Default::default()
            };
            bpf::uprobe_multi(prog, &spec)
        }),
        Feature::MembarrierGlobal => membarrier_global(),
    }
}

const MOV_R0_0: u64 = insn(0xb7, 0, 0, 0, 0);
const EXIT: u64 = insn(0x95, 0, 0, 0, 0);

type LoadResult = Result<OwnedFd, BpfError>;

/// Loads a program of that type, with the additional fields that the type needs.
fn load(ty: u32, insns: &[u64]) -> LoadResult {
    const TRACE_RAW_TP: u32 = 23;
    const SLEEPABLE: u32 = 1 << 4;
    let mut spec = ProgSpec {
        ty,
        insns,
        name: "probe",
        ..ProgSpec::default()
    };
    if ty == prog_type::TRACING {
        spec.attach_type = TRACE_RAW_TP;
        let target = Btf::vmlinux()
            .ok()
            .and_then(|btf| btf.find_typedef("btf_trace_sched_switch"));
        spec.attach_btf_id = target.unwrap_or(0);
    }
    if ty == prog_type::SYSCALL {
        spec.flags = SLEEPABLE;
    }
    bpf::load(&spec)
}

/// The answer of a probe that failed for another reason than a missing feature.
fn unknown(why: impl fmt::Display) -> Availability {
    Availability::Unknown(why.to_string())
}

/// Yes for a success, no for a failure that says that the feature is missing.
fn unless<T, E: fmt::Display>(
    result: Result<T, E>,
    missing: impl FnOnce(&E) -> bool,
) -> Availability {
    match result {
        Ok(_) => Availability::Yes,
        Err(why) if missing(&why) => Availability::No,
        Err(why) => unknown(why),
    }
}

/// The answer of a program that the verifier accepts if and only if the feature exists.
fn accepted(loaded: LoadResult) -> Availability {
    unless(
        loaded,
        |why| matches!(why, BpfError::Rejected { errno, .. } if *errno == Errno::INVAL),
    )
}

/// The answer of a request that has error numbers of its own for a missing feature.
fn answer<T>(result: Result<T, BpfError>) -> Availability {
    /// An error number of the kernel without a name in user space.
    const ENOTSUPP: i32 = 524;
    unless(result, |why| match why.errno() {
        Some(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => true,
        errno => errno.is_some_and(|errno| errno.raw_os_error() == ENOTSUPP),
    })
}

fn bpf_itself() -> Availability {
    match load(prog_type::RAW_TRACEPOINT, &[MOV_R0_0, EXIT]) {
        Err(why) if matches!(why.errno(), Some(Errno::PERM | Errno::ACCESS)) => {
            unknown("loading is not permitted: run as root, or with CAP_BPF and CAP_PERFMON")
        }
        loaded => unless(loaded, |why| why.errno() == Some(Errno::NOSYS)),
    }
}

fn program_type(ty: u32) -> Availability {
    unless(
        load(ty, &[MOV_R0_0, EXIT]),
        |why| matches!(why, BpfError::Call { errno, .. } if *errno == Errno::INVAL),
    )
}

fn map_of_type(ty: u32) -> Availability {
    let page = crate::machine::page_size().fit::<u32>();
    let spec = match ty {
        map_type::RINGBUF => MapAttr {
            ty,
            max_entries: page,
            ..MapAttr::default()
        },
        // Local storage requires BTF of its value, which is not loaded here.
        map_type::TASK_STORAGE => {
            return has(Feature::Helper(prog_type::RAW_TRACEPOINT, 156));
        }
        _ => MapAttr {
            ty,
            key_size: 4,
            value_size: 8,
            max_entries: 1,
            ..MapAttr::default()
        },
    };
    answer(bpf::map_create(&spec))
}

/// Messages of the verifiers of 5.10 to 6.18 for a helper that cannot be called here.
const HELPER_REFUSED: [&str; 5] = [
    "unknown func",
    "invalid func ",
    "program of this type cannot use helper",
    "not supported for program type",
    "might sleep in a non-sleepable prog",
];

fn helper_in(ty: u32, number: u32) -> Availability {
    let loaded = load(ty, &[insn(0x85, 0, 0, 0, number.cast_signed()), EXIT]);
    // Messages of kernels from 5.10 to now, in this order.
    call_result(loaded, &HELPER_REFUSED)
}

/// Messages of the verifiers for a kfunc that cannot be called here.
const KFUNC_REFUSED: [&str; 3] = [
    "is not allowed",
    "calling kernel function is not supported",
    "program must be sleepable",
];

fn kfunc_in(ty: u32, name: &str) -> Availability {
    const PSEUDO_KFUNC_CALL: u8 = 2;
    with_function(name, |id| {
        let call = insn(0x85, 0, PSEUDO_KFUNC_CALL, 0, id.cast_signed());
        call_result(load(ty, &[call, EXIT]), &KFUNC_REFUSED)
    })
}

/// No if the kernel has no such function, by its BTF; otherwise the answer of a probe with the function's number.
fn with_function(name: &str, probe: impl FnOnce(u32) -> Availability) -> Availability {
    match Btf::vmlinux().map(|btf| btf.find_func(name)) {
        Ok(Some(id)) => probe(id),
        Ok(None) => Availability::No,
        Err(why) => unknown(why),
    }
}

/// Whether a call was rejected because of the function itself.
fn call_result(loaded: LoadResult, refusals: &[&str]) -> Availability {
    match loaded {
        Err(BpfError::Rejected { log, .. }) => {
            match refusals.iter().any(|refusal| log.contains(refusal)) {
                true => Availability::No,
                false => Availability::Yes,
            }
        }
        loaded => unless(loaded, |_| false),
    }
}

/// Whether links of a kind exist: a request that cannot succeed is refused in one way where they do
/// (`EFAULT` for unreadable functions, `EBADF` for no file), and in another where they do not.
fn many(
    attach_type: u32,
    link: impl FnOnce(BorrowedFd<'_>) -> Result<OwnedFd, BpfError>,
) -> Availability {
    let spec = ProgSpec {
        ty: prog_type::KPROBE,
        insns: &[MOV_R0_0, EXIT],
        name: "probe",
        attach_type,
        ..ProgSpec::default()
    };
    // Kernels without the kind accept the program: they know no attach types of its type.
    match bpf::load(&spec).and_then(|prog| link(prog.as_fd())) {
        Err(why) if matches!(why.errno(), Some(Errno::FAULT | Errno::BADF)) => Availability::Yes,
        linked => unless(linked, |why| {
            matches!(
                why.errno(),
                Some(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS)
            )
        }),
    }
}

fn perf_event(event: perf::EventSpec) -> Availability {
    let cpu = crate::machine::online_cpus().first().copied().unwrap_or(0);
    let opened = PerfEvent::open(event, PerfTarget::Cpu(cpu), Sampling::Period(1_000_000_000));
    unless(opened, |e| {
        matches!(e.errno, Errno::NOENT | Errno::NOSYS | Errno::OPNOTSUPP)
    })
}

/// Whether the kernel has a function, by its BTF.
fn in_btf(name: &str) -> Availability {
    with_function(name, |_| Availability::Yes)
}

/// Probes by attaching to a function that the kernel has for its own tests.
fn fentry() -> Availability {
    const TRACE_FENTRY: u32 = 24;
    const TEST: &str = "bpf_fentry_test1";
    if in_btf(TEST).is_unavailable() {
        return unknown(format!("the kernel has no {TEST}"));
    }
    with_function(TEST, |id| {
        let loaded = at_function(prog_type::TRACING, TRACE_FENTRY, id);
        accepted_by_kernel(loaded.and_then(|prog| bpf::raw_tracepoint_open(None, prog.as_fd())))
    })
}

/// Probes by loading only: attaching would affect the whole machine.
fn lsm() -> Availability {
    const LSM: u32 = 29;
    const LSM_MAC: u32 = 27;
    with_function("bpf_lsm_file_open", |id| {
        accepted_by_kernel(at_function(LSM, LSM_MAC, id))
    })
}

fn at_function(ty: u32, attach_type: u32, id: u32) -> LoadResult {
    bpf::load(&ProgSpec {
        ty,
        attach_type,
        attach_btf_id: id,
        insns: &[MOV_R0_0, EXIT],
        name: "probe",
        ..ProgSpec::default()
    })
}

/// Whether the kernel accepted a program at a function of its own.
fn accepted_by_kernel(result: LoadResult) -> Availability {
    match result {
        Err(why) if matches!(why.errno(), Some(Errno::PERM | Errno::ACCESS)) => {
            unknown("the kernel refuses such programs (EPERM)")
        }
        result => unless(result, |why| why.errno().is_some()),
    }
}

fn event_source(name: &str) -> Availability {
    let sources = std::path::Path::new("/sys/bus/event_source/devices");
    match sources.try_exists() {
        Ok(true) if sources.join(name).exists() => Availability::Yes,
        Ok(true) => Availability::No,
        _ => unknown(format!("{} cannot be read", sources.display())),
    }
}

fn membarrier_global() -> Availability {
    const QUERY: i32 = 0;
    const GLOBAL: i64 = 1;
    // SAFETY: takes and gives plain numbers.
    let commands = unsafe { libc::syscall(libc::SYS_membarrier, QUERY, 0, 0) };
    match commands {
        0.. if commands & GLOBAL != 0 => Availability::Yes,
        0.. => Availability::No,
        _ => match crate::bpf::last_errno() {
            Errno::NOSYS => Availability::No,
            errno => unknown(format!("membarrier: {errno}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prog_type::{KPROBE, PERF_EVENT, RAW_TRACEPOINT, TRACEPOINT, TRACING};

    #[test]
    fn rejections_are_read_right() {
        let rejected = |log: &str| {
            Err(BpfError::Rejected {
                errno: Errno::INVAL,
                log: log.to_owned(),
            })
        };
        let refusals = &["unknown func"];
        assert!(call_result(rejected("0: (85) call unknown func#999"), refusals).is_unavailable());
        assert!(call_result(rejected("R1 !read_ok"), refusals).is_available());
        let denied = BpfError::Call {
            command: bpf::Command::ProgLoad,
            errno: Errno::PERM,
        };
        assert!(matches!(
            call_result(Err(denied.clone()), refusals),
            Availability::Unknown(_)
        ));
        assert!(matches!(accepted(Err(denied)), Availability::Unknown(_)));
        assert!(accepted(rejected("unknown opcode e5")).is_unavailable());
    }

    #[test]
    fn features_are_named() {
        let loops = Feature::Helper(RAW_TRACEPOINT, helper::LOOP).to_string();
        assert_eq!(
            loops,
            "the BPF helper loop (181) in raw tracepoint programs"
        );
        assert_eq!(
            Feature::MapType(27).to_string(),
            "BPF maps of type ring buffer, Linux 5.8 (27)"
        );
        assert_eq!(Feature::MayGoto.to_string(), "BPF's may_goto (Linux 6.9)");
    }

    /// The names of helpers agree with the running kernel's enumeration.
    #[test]
    fn helpers_have_the_kernels_numbers() {
        let Ok(btf) = Btf::vmlinux() else {
            spile_testing::skip!("no BTF");
        };
        for (number, name) in HELPERS {
            let in_btf = btf.enum_value(&format!("BPF_FUNC_{name}"));
            assert_eq!(in_btf, Some(i64::from(number)), "{name}");
        }
        for (number, name) in [
            (prog_type::TRACING, "TRACING"),
            (prog_type::SYSCALL, "SYSCALL"),
        ] {
            let in_btf = btf.enum_value(&format!("BPF_PROG_TYPE_{name}"));
            assert_eq!(in_btf, Some(i64::from(number)), "{name}");
        }
    }

    /// The answers of BTF and of a refused request are the same.
    #[test]
    fn links_to_many_functions_are_found_without_btf() {
        let bpf = has(Feature::Bpf);
        if !bpf.is_available() {
            spile_testing::skip!("BPF: {bpf}");
        }
        let asked = many(attach_type::KPROBE_MULTI, bpf::unreadable_kprobe_multi);
        assert_eq!(asked, in_btf("register_fprobe_ips"));
        // A request that no kernel knows, as this one before Linux 5.18.
        let unknown = many(attach_type::NETFILTER, bpf::unreadable_kprobe_multi);
        assert_eq!(unknown, Availability::No);
    }

    #[test]
    fn the_running_kernel_has_the_required_features() {
        let bpf = has(Feature::Bpf);
        if !bpf.is_available() {
            spile_testing::skip!("BPF: {bpf}");
        }
        // All supported kernels have these.
        for feature in [
            Feature::BoundedLoops,
            Feature::Atomics,
            Feature::TestRunRawTracepoint,
            Feature::Stats,
            Feature::PerfClock,
            Feature::ProgType(RAW_TRACEPOINT),
            Feature::ProgType(KPROBE),
            Feature::ProgType(TRACEPOINT),
            Feature::ProgType(PERF_EVENT),
            Feature::MapType(map_type::PERCPU_HASH),
            Feature::MapType(map_type::RINGBUF),
            Feature::MapType(map_type::TASK_STORAGE),
        ] {
            assert_eq!(has(feature), Availability::Yes, "{feature:?}");
        }
        for ty in [RAW_TRACEPOINT, KPROBE, TRACEPOINT, PERF_EVENT] {
            for number in [
                helper::GET_CURRENT_TASK_BTF,
                helper::TASK_PT_REGS,
                helper::LOOP,
                helper::FOR_EACH_MAP_ELEM,
                helper::RINGBUF_OUTPUT,
                helper::PROBE_READ_USER_STR,
            ] {
                assert_eq!(
                    has(Feature::Helper(ty, number)),
                    Availability::Yes,
                    "{ty} {number}"
                );
            }
            assert_eq!(has(Feature::Helper(ty, 9999)), Availability::No);
            assert_eq!(has(Feature::Helper(ty, helper::D_PATH)), Availability::No);
        }
        let func_ip = |ty| has(Feature::Helper(ty, helper::GET_FUNC_IP));
        assert_eq!(
            (func_ip(KPROBE), func_ip(RAW_TRACEPOINT)),
            (Availability::Yes, Availability::No)
        );
        assert_eq!(
            has(Feature::Helper(RAW_TRACEPOINT, helper::COPY_FROM_USER)),
            Availability::No
        );
        assert_eq!(has(Feature::ProgType(9999)), Availability::No);
        assert_eq!(has(Feature::MapType(9999)), Availability::No);
        assert_eq!(
            has(Feature::Kfunc(RAW_TRACEPOINT, "no_such_kfunc")),
            Availability::No
        );
        println!("may_goto {}", has(Feature::MayGoto));
        println!("kprobes {}", has(Feature::Kprobes));
        println!("uprobes {}", has(Feature::Uprobes));
        println!("membarrier {}", has(Feature::MembarrierGlobal));
        println!("hardware counters {}", has(Feature::PerfHardware));
        println!("tracing programs {}", has(Feature::ProgType(TRACING)));
        for ty in [RAW_TRACEPOINT, KPROBE, TRACEPOINT, PERF_EVENT, TRACING] {
            for name in [
                "bpf_iter_num_new",
                "bpf_task_from_pid",
                "bpf_strlen",
                "bpf_throw",
            ] {
                println!("{ty} {name} {}", has(Feature::Kfunc(ty, name)));
            }
            println!(
                "{ty} get_func_ip {}",
                has(Feature::Helper(ty, helper::GET_FUNC_IP))
            );
        }
    }
}
