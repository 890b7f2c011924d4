//! The target machine as values: the compiler asks no system. The caller fills this in
//! (`crates/spile/src/machine.rs` for the running kernel). Where processes are the host, it is [`Target::process`]. The
//! object and its contract with the loader are in [`crate::compiled`].

use std::collections::{BTreeMap, HashMap};
use std::mem::offset_of;

use spile_abi::Abi;
use spile_cast::Cast;
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::insn::Size;
use spile_ir::HostKind;
use spile_ir::intrinsics::TaskNumber;
use spile_layout::{THREAD_RECORDS, ThreadRecord};
pub use spile_lir::library::mappings::MappingOffsets;
pub use spile_lir::library::unwind::UnwindOffsets;
pub use spile_lir::library::usermem::PageOffsets;
use spile_syscalls::Syscall;

/// Properties of the machine that the object is for, and compiler options.
#[derive(Debug, Clone)]
pub struct Target {
    /// What runs the handlers.
    pub host: HostKind,
    /// The processor.
    pub abi: &'static Abi,
    /// Number of possible CPUs (highest number plus one); in a process that of [`THREAD_RECORDS`].
    pub cpus: u32,
    /// Size of the ring buffer in bytes, a power of two and whole pages.
    pub ring_bytes: u32,
    /// Whether run times are recorded for each handler (`-t`).
    pub timing: bool,
    /// Whether instructions carry their script lines, which the verifier's log then shows.
    pub lines: bool,
    /// Byte offsets of kernel structure fields that generated code reads.
    pub offsets: KernelOffsets,
    /// What code can use there.
    pub features: Features,
    /// The system calls, in the order of numbers.
    pub syscalls: &'static [Syscall],
    /// Functions of the kernel that fentry and fexit can attach to, by name.
    pub functions: BTreeMap<String, TypedFunction>,
    /// Whether handlers share subprograms, which load faster and add some nanoseconds to each hit.
    /// `None`: if there are many handlers or much code.
    pub share: Option<bool>,
    /// Whether user memory is read only if it is mapped: code that reads the page cache, or defers
    /// to the controller, takes the kernel milliseconds to check.
    pub resident: bool,
}

impl Target {
    /// The target's processes, with a ring of that size.
    pub fn process(abi: &'static Abi, syscalls: &'static [Syscall], ring_bytes: u32) -> Target {
        Target {
            host: HostKind::Process,
            abi,
            cpus: THREAD_RECORDS,
            ring_bytes,
            timing: false,
            lines: false,
            offsets: KernelOffsets::process(),
            features: Features::PROCESS,
            syscalls,
            functions: BTreeMap::new(),
            share: None,
            // A process reads its own memory, and so makes it resident.
            resident: true,
        }
    }

    /// The helper that gives the number of the processor.
    pub(crate) fn processor(&self) -> Helper {
        match self.host {
            HostKind::Kernel => Helper::GetSmpProcessorId,
            HostKind::Process => Helper::Processor,
        }
    }
}

/// Offsets of fields that generated code reads through the current task's pointer, from the
/// kernel's BTF. With `None`, intrinsics that need the field use a helper, or are refused.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct KernelOffsets {
    pub task_pid: Option<u32>,
    /// Offset and size in bytes of each numeric field of `task_struct`, in order; filled in if
    /// scripts read fields of the current task.
    pub task_numbers: Vec<(u32, u32)>,
    pub task_tgid: Option<u32>,
    /// `utask`: what the kernel keeps of a thread that has hit a uprobe; null for others.
    pub task_utask: Option<u32>,
    /// `perf_event_ctxp`: the perf events of a thread, since 6.2; null for none.
    pub task_perf_events: Option<u32>,
    pub task_comm: Option<u32>,
    pub task_mm: Option<u32>,
    /// `start_boottime`, and `self_exec_id`, which counts a task's `execve` calls.
    pub task_start: Option<u32>,
    pub task_exec_id: Option<u32>,
    pub mm_arg_start: Option<u32>,
    pub mm_arg_end: Option<u32>,
    /// The ways to numbers of the current task, other than its own ids. [`KernelOffsets::number`] gives both.
    pub numbers: HashMap<TaskNumber, NumberPath>,
    /// `thread_info.status` in task_struct, if the processor has 32-bit system calls that it marks there.
    pub task_ti_status: Option<u32>,
    /// Offsets for the cookie of the location that was hit, in trace events.
    pub uprobe: Option<UprobeOffsets>,
    /// Offsets for the search for a page in its file.
    pub pages: Option<PageOffsets>,
    /// Offsets for unwinds of user stacks.
    pub unwind: Option<UnwindOffsets>,
}

/// The way from the current task's structure to a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberPath {
    /// Offsets: of pointers to follow, and of the number.
    pub steps: Vec<u32>,
    /// Size of the number in bytes: 4 or 8.
    pub bytes: u8,
}

impl KernelOffsets {
    /// Offsets in the record that a process keeps of each thread.
    pub fn process() -> KernelOffsets {
        let at = |offset: usize| Some(offset.fit::<u32>());
        let [arguments, program] = [
            offset_of!(ThreadRecord, arguments),
            offset_of!(ThreadRecord, program),
        ];
        let number = |which, offset: usize, bytes| {
            let steps = vec![offset.fit::<u32>()];
            (which, NumberPath { steps, bytes })
        };
        KernelOffsets {
            task_pid: at(offset_of!(ThreadRecord, tid)),
            task_tgid: at(offset_of!(ThreadRecord, tgid)),
            task_comm: at(offset_of!(ThreadRecord, comm)),
            // The record is its own description of memory.
            task_mm: at(offset_of!(ThreadRecord, own)),
            mm_arg_start: at(arguments),
            mm_arg_end: at(arguments + 8),
            numbers: HashMap::from([
                number(TaskNumber::Ppid, offset_of!(ThreadRecord, ppid), 4),
                number(TaskNumber::Pgrp, offset_of!(ThreadRecord, pgrp), 4),
                number(TaskNumber::Sid, offset_of!(ThreadRecord, session), 4),
                number(TaskNumber::Uid, offset_of!(ThreadRecord, uid), 4),
                number(TaskNumber::Euid, offset_of!(ThreadRecord, euid), 4),
                number(TaskNumber::Gid, offset_of!(ThreadRecord, gid), 4),
                number(TaskNumber::Egid, offset_of!(ThreadRecord, egid), 4),
                number(
                    TaskNumber::TaskSpace,
                    offset_of!(ThreadRecord, task_size),
                    8,
                ),
                number(TaskNumber::ExeDevice, program, 8),
                number(TaskNumber::ExeInode, program + 8, 8),
            ]),
            ..KernelOffsets::default()
        }
    }

    /// The way to a number of the current task; `None` if it is not known or out of a load's reach.
    pub(crate) fn number(&self, which: TaskNumber) -> Option<(Vec<i16>, Size)> {
        let own = |offset: Option<u32>| Some((vec![offset?], 4));
        let (steps, bytes) = match which {
            TaskNumber::Pid => own(self.task_tgid)?,
            TaskNumber::Tid => own(self.task_pid)?,
            _ => {
                let path = self.numbers.get(&which)?;
                (path.steps.clone(), path.bytes)
            }
        };
        let steps = steps.into_iter().map(|step| i16::try_from(step).ok());
        Some((
            steps.collect::<Option<_>>()?,
            Size::from_bytes(bytes.into())?,
        ))
    }
}

/// The path from the current task to the location of a trace event that was hit, and to the value of the
/// location's first argument, a constant. All are offsets in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UprobeOffsets {
    /// `utask` in `struct task_struct`.
    pub task_utask: u32,
    /// `vaddr` in `struct uprobe_task`: during a hit, the address of a `struct uprobe_dispatch_data`.
    pub utask_vaddr: u32,
    /// `tu` in `struct uprobe_dispatch_data`.
    pub hit_location: u32,
    /// `tp.args[0].code` in `struct trace_uprobe`.
    pub location_argument: u32,
    /// `immediate` in `struct fetch_insn`.
    pub argument_value: u32,
}

/// What generated code can use: features of the running kernel's BPF, or of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// `may_goto` (6.9).
    pub may_goto: bool,
    /// `bpf_for_each_map_elem` (5.13).
    pub for_each: bool,
    /// `bpf_loop` (5.17).
    pub bpf_loop: bool,
    /// Atomic fetch/xchg/cmpxchg (5.12).
    pub atomics: bool,
    /// `bpf_task_pt_regs` (5.15).
    pub task_pt_regs: bool,
    /// One link for many functions of the kernel (5.18).
    pub kprobe_multi: bool,
    /// One link for many locations of a file (6.6).
    pub uprobe_multi: bool,
    /// One link for many functions of the kernel and their returns (6.10).
    pub kprobe_session: Option<SessionKfuncs>,
    /// Kernel functions to disable preemption, if handlers may call them (6.15, see
    /// [`PreemptionKfuncs`]).
    pub preemption: Option<PreemptionKfuncs>,
    /// Kernel functions to turn off interrupts (6.14, see [`InterruptKfuncs`]).
    pub interrupts: Option<InterruptKfuncs>,
    /// The kernel function that gives a pointer a type (6.2, see [`CastKfunc`]).
    pub cast: Option<CastKfunc>,
    /// `bpf_probe_write_user`, which a locked down kernel denies.
    pub write_user: bool,
    /// Programs at code of processes may set its registers (6.18).
    pub write_registers: bool,
    /// Numbers in tracefs of the events `raw_syscalls/sys_enter` and `sys_exit`. They are used if
    /// programs at raw tracepoints are preemptible and those of trace events are not (6.19).
    pub syscall_events: Option<[u64; 2]>,
}

impl Features {
    /// What code in a process can use: no kernel function, and one link for all locations of a file, because the
    /// session sets breakpoints file by file.
    pub const PROCESS: Features = Features {
        kprobe_multi: false,
        write_registers: false,
        ..Features::SINCE_6_9
    };

    /// All features since Linux 6.9, except for those that contain numbers of one kernel.
    pub const SINCE_6_9: Features = Features {
        may_goto: true,
        for_each: true,
        bpf_loop: true,
        atomics: true,
        task_pt_regs: true,
        kprobe_multi: true,
        uprobe_multi: true,
        kprobe_session: None,
        preemption: None,
        interrupts: None,
        cast: None,
        write_user: true,
        write_registers: true,
        syscall_events: None,
    };
}

/// Kernel functions for programs at functions and their returns (kprobe.session), by their ids in
/// the kernel's BTF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionKfuncs {
    /// `bpf_session_is_return`.
    pub is_return: u32,
    /// `bpf_session_cookie`: eight bytes for each call.
    pub cookie: u32,
    /// Whether entries are seen even without space for their returns (since 6.14). Before, a call is
    /// not seen at all if the kernel has no space to wait for its return.
    pub all_entries: bool,
}

/// `bpf_rdonly_cast`, which makes a number a pointer to a structure for loads that cannot fail; all
/// are ids in the kernel's BTF. The verifier does not trust what is loaded through such a pointer. If
/// it does trust, it looks up each loaded pointer by name among all types, twice or more: 0.5 ms each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CastKfunc {
    /// `bpf_rdonly_cast`.
    pub function: u32,
    /// `task_struct`.
    pub task: u32,
    /// `timespec64`, which begins with 64 bits of a number: the type of memory whose type does not
    /// matter, for loads of at most 8 bytes.
    pub word: u32,
}

/// Kernel functions that disable and enable preemption, by their ids in the kernel's BTF. They
/// exist since 6.10; since 6.15 global subprograms may be called in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreemptionKfuncs {
    /// `bpf_preempt_disable`.
    pub off: u32,
    /// `bpf_preempt_enable`.
    pub on: u32,
}

/// Kernel functions that turn interrupts of the processor off and restore them, by their ids in the
/// kernel's BTF. They exist since 6.14.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterruptKfuncs {
    /// `bpf_local_irq_save`.
    pub save: u32,
    /// `bpf_local_irq_restore`.
    pub restore: u32,
}

/// A kernel function in BTF whose parameters are all numbers or pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypedFunction {
    /// Its id in BTF.
    pub id: u32,
    /// Number of parameters.
    pub params: u8,
    /// Whether it returns, so that fexit may attach.
    pub returns: bool,
}
