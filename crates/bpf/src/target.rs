//! The target machine as values: the compiler asks no system. The caller fills this in
//! (`crates/spile/src/machine.rs` for the running kernel). The object and its contract with the
//! loader are in [`crate::layout`].

use std::collections::BTreeMap;
use std::sync::Arc;

use spile_ir::Arch;
pub use spile_lir::library::unwind::UnwindOffsets;
pub use spile_lir::library::usermem::PageOffsets;

/// Properties of the machine that the object is for, and compiler options.
#[derive(Debug, Clone)]
pub struct Options {
    /// The processor architecture.
    pub arch: Arch,
    /// Number of possible CPUs (highest number plus one).
    pub cpus: u32,
    /// Size of the ring buffer in bytes, a power of two and whole pages.
    pub ring_bytes: u32,
    /// Whether run times are recorded for each handler (`-t`).
    pub timing: bool,
    /// Whether instructions carry their script lines, which the verifier's log then shows.
    pub lines: bool,
    /// Byte offsets of kernel structure fields that generated code reads.
    pub offsets: KernelOffsets,
    /// Features of the kernel's BPF.
    pub features: Features,
    /// How arguments of system calls are printed, by number as in `NrSet`.
    pub syscalls: Arc<[SyscallDesc]>,
    /// Functions of the kernel that fentry and fexit can attach to, by name.
    pub functions: BTreeMap<String, TypedFunction>,
    /// Whether handlers share subprograms, which load faster and add some nanoseconds to each hit.
    /// `None`: if there are many handlers or much code.
    pub share: Option<bool>,
    /// Whether user memory is read only if it is mapped: code that reads the page cache, or defers
    /// to the controller, takes the kernel milliseconds to check.
    pub resident: bool,
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
    pub task_real_parent: Option<u32>,
    pub task_cred: Option<u32>,
    pub task_mm: Option<u32>,
    pub task_signal: Option<u32>,
    /// `start_boottime`, and `self_exec_id`, which counts a task's `execve` calls.
    pub task_start: Option<u32>,
    pub task_exec_id: Option<u32>,
    pub mm_arg_start: Option<u32>,
    pub mm_arg_end: Option<u32>,
    pub mm_task_size: Option<u32>,
    /// `uid`, `gid`, `euid`, `egid` in `struct cred` (32-bit each).
    pub cred_uid: Option<u32>,
    pub cred_gid: Option<u32>,
    pub cred_euid: Option<u32>,
    pub cred_egid: Option<u32>,
    /// `user_ns` in `struct cred`, and `level` in `struct user_namespace`.
    pub cred_user_ns: Option<u32>,
    pub user_ns_level: Option<u32>,
    /// `thread_info.status` in task_struct (x86: bit 1 marks a 32-bit system call).
    pub task_ti_status: Option<u32>,
    /// `signal_struct.pids[PIDTYPE_PGID]`, `[PIDTYPE_SID]`, and `struct pid.numbers[0].nr`.
    pub signal_pgrp: Option<u32>,
    pub signal_session: Option<u32>,
    pub pid_nr: Option<u32>,
    /// Offsets for finding the place of the uprobe that was hit.
    pub uprobe: Option<UprobeOffsets>,
    /// Offsets for the search for a page in its file, if the kernel has `bpf_find_vma` (5.17).
    pub pages: Option<PageOffsets>,
    /// Offsets for walks of user stacks.
    pub unwind: Option<UnwindOffsets>,
}

/// Where the kernel keeps the uprobe that the current thread has hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UprobeOffsets {
    /// `utask` in `struct task_struct`.
    pub task_utask: u32,
    /// `auprobe` in `struct uprobe_task` (6.12): the address of `arch` in a `struct uprobe`.
    pub utask_auprobe: u32,
    /// From `arch` to `offset`, the offset of the place in its file, in `struct uprobe`.
    pub auprobe_place: i32,
}

/// BPF features of the running kernel that generated code can use.
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
    /// One link for many places of a file (6.6).
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
    /// Whether entries are seen even without room for their returns (since 6.14). Before, a call is
    /// not seen at all if the kernel has no room to wait for its return.
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

/// How the arguments of one system call are printed.
#[derive(Debug, Clone)]
pub struct SyscallDesc {
    /// Number as in `NrSet`.
    pub nr: u32,
    /// Its name.
    pub name: String,
    /// Up to six arguments.
    pub args: Vec<ArgDesc>,
    /// Other forms of the arguments, by the value of one of them.
    pub variants: Option<ArgVariants>,
    /// The base in which the result is printed: 8, 10 or 16.
    pub ret_base: u8,
}

/// How the arguments of a system call are printed that depend on the value of one of them.
#[derive(Debug, Clone)]
pub struct ArgVariants {
    /// The word of this argument.
    pub word: u8,
    /// Its bits that count.
    pub mask: u64,
    /// The arguments for some values.
    pub cases: Vec<ArgCase>,
}

/// How the arguments of a system call are printed for some values of one of them.
#[derive(Debug, Clone)]
pub struct ArgCase {
    /// The values.
    pub values: Vec<u64>,
    /// The arguments.
    pub args: Vec<ArgDesc>,
    /// Other forms of these arguments, by the value of a second one.
    pub variants: Option<ArgVariants>,
}

/// How a number is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberBase {
    /// In decimal, with a sign.
    Signed,
    /// In decimal, without a sign.
    Unsigned,
    /// In hexadecimal.
    Hex,
}

/// A structure in user space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StructDesc {
    /// Name for messages.
    pub name: &'static str,
    /// Whether a null pointer is printed as `NULL`.
    pub null: bool,
    /// Bytes to read.
    pub size: u8,
    /// The texts that it may have: the first whose tests hold.
    pub texts: Vec<StructText>,
}

/// The text of a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StructText {
    /// Fields, and the values that they must have.
    pub when: Vec<(FieldPlace, u64)>,
    /// Texts, and the fields behind them.
    pub fields: Vec<(&'static str, FieldPlace, ArgDesc)>,
    /// The text at the end.
    pub end: &'static str,
}

/// Where a structure has a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldPlace {
    /// Offset in bytes.
    pub offset: u8,
    /// The bits below it, if it is a bit field.
    pub shift: u8,
    /// Its bits.
    pub bits: u8,
}

/// How one argument is printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgDesc {
    /// Signed number, with this many bytes.
    Int(u8),
    /// Unsigned number, with this many bytes.
    Uint(u8),
    /// Hexadecimal number `0x...`, with this many bytes.
    Hex(u8),
    /// Octal mode.
    Octal,
    /// Octal mode behind the flags of `open`; printed only if the flags use it.
    OpenMode,
    /// Quoted user string.
    UserStr,
    /// Directory descriptor: `AT_FDCWD` or a number.
    Dirfd,
    /// Signal number by name.
    Signal,
    /// The names of set bits, joined by `|`, and the remaining bits in hex. The width of the value
    /// is in bytes.
    Flags(&'static FlagTable, u8),
    /// The name of a value, or its number if it has none. The width is in bytes; the flag selects
    /// signed decimal numbers instead of hexadecimal ones.
    Enum(&'static FlagTable, u8, bool),
    /// Flags, or one of several values, of an `int` whose sign extends to 64 bits.
    Wide(&'static FlagTable, bool),
    /// A 64-bit number in this 32-bit word (low) and the next.
    Pair(NumberBase),
    /// A number of blocks of 4096 bytes with this many bytes; printed in bytes.
    Blocks(u8),
    /// Not printed.
    Unseen,
    /// NULL-terminated vector of user strings: `["a", "b"]`. The width of a pointer is in bytes.
    Argv(u8),
    /// Bytes in user space, quoted; the index of the argument word with their number.
    Buffer(u8),
    /// Bytes in user space with hexadecimal escapes; the index of the argument word with their number.
    Bytes(u8),
    /// A structure in user space.
    Struct(&'static StructDesc),
    /// The same with braces around it in the text of all arguments.
    Braced(&'static StructDesc),
    /// A number whose bits are the fields of a structure.
    Packed(&'static StructDesc),
    /// A hexadecimal number in brackets, with this many bytes.
    Result(u8),
    /// A fraction of a second with this many bytes: six digits, or nine.
    Fraction(u8, bool),
    /// A number of seconds since 1970 with this many bytes, as date and time in UTC.
    Date(u8),
    /// A `struct sockaddr` in user space; the index of the argument word with its length.
    Sockaddr(u8),
    /// A time in user space.
    Time {
        /// Whether its fields have 32 bits.
        narrow: bool,
        /// Whether the fraction is in microseconds rather than nanoseconds.
        micro: bool,
        /// Whether it is a timer, with interval and value.
        pair: bool,
    },
}

/// Names of flag bits or values.
#[derive(Debug, PartialEq, Eq)]
pub struct FlagTable {
    /// Name for messages.
    pub name: &'static str,
    /// The entries, in order of output.
    pub entries: &'static [Flag],
    /// In a set: the bits that are shown in octal if they have no name, such as permissions.
    pub octal: u64,
    /// In a set: the bits that are always shown, in decimal.
    pub number: u64,
}

/// A named flag or value: it is set if the bits of `mask` equal those of `bits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flag {
    /// The bits to compare; nonzero in sets of flags.
    pub mask: u64,
    /// The expected value of these bits.
    pub bits: u64,
    /// Name, at most 55 bytes.
    pub name: &'static str,
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
