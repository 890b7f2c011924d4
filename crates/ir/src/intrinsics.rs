//! The table of intrinsics, the operations that tapset functions are made of: name, parameters,
//! result, the executors that have each, what it needs of the event, and how passes may treat it.
//! The enum, the text form, the type rules, the checks of events and of constants, the lengths of
//! results, and the classes for analysis and code generation come from this table. The operations
//! are implemented in the interpreter, the controller's host and the code generator: each serves
//! the classes ([`IntrinsicClass`]) by a match over all operations of the class, so that a new row
//! does not compile until every executor has it.

use std::fmt;
use std::ops::RangeInclusive;

use crate::event::{C, Event, ExecutorSet, K, KC, KP, KPC, P};
use crate::form::{Form, Printer};
use crate::program::types::Space;
use crate::token::{Reader, Res};

/// The type of a parameter or a result in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// An integer.
    Long,
    /// A string.
    Str,
}

/// Defines the properties of events from rows `NAME "the missing property"`.
macro_rules! needs {
    ($($(#[$doc:meta])* $need:ident $name:literal,)*) => {
        /// A property of the event that an intrinsic depends on.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum EventNeed {
            $($(#[$doc])* $need,)*
        }

        impl EventNeed {
            /// The missing property, for messages.
            pub fn name(self) -> &'static str {
                match self { $(EventNeed::$need => $name,)* }
            }
        }
    };
}

needs! {
    /// Arguments, as tracepoints, hooks and functions have them.
    Argument "argument of an event",
    /// The registers of the interrupted code.
    Registers "register",
    /// The record of a trace event.
    Record "record of a trace event",
    /// A location in code.
    CodeLocation "location in code",
    /// The thread that the processor switches to.
    NextTask "thread that the processor goes on with",
    /// The return of a function.
    FunctionReturn "return of a function",
    /// Arguments in the calling convention of a function or a system call.
    CallArgument "function or system call",
    /// A system call's entry or return.
    SystemCall "system call",
    /// The entry to a system call.
    SystemCallEntry "entry to a system call",
    /// The return from a system call.
    SystemCallReturn "return from a system call",
    /// The return from a function or a system call.
    CallReturn "return from a function or a system call",
    /// Memory of the current process.
    UserMemory "memory of the current process",
    /// A current process that a program may change.
    Process "current process that a handler can change",
    /// The registers of a program at a location in its code.
    ProgramRegisters "location in a program's code",
    /// A packet that can be dropped.
    Packet "verdict on a packet",
    /// A decision of the security modules.
    Decision "decision of security modules",
    /// The current task's structure in the kernel.
    TaskStruct "current task of the kernel",
    /// The system call that the current thread is in.
    CallInProgress "system call of the current thread",
    /// A stack of the kernel or of the current program.
    Stack "stack",
    /// A counter of the current thread's events.
    ThreadCounter "counter of a thread",
    /// The current task's control group.
    ControlGroup "control group of a task",
}

impl EventNeed {
    /// Whether an event has the property.
    pub fn is_met(self, event: &Event) -> bool {
        if !event.is_compiled() {
            // Stacks of existing processes are not read. Other handlers of the controller stand at
            // no location in code, and their stacks are empty.
            return self != EventNeed::Stack || !matches!(event, Event::Present { .. });
        }
        let returns = matches!(event, Event::Code(probe) if probe.ret);
        match self {
            EventNeed::NextTask => {
                matches!(event, Event::Tracepoint(name) if &**name == "sched_switch")
            }
            EventNeed::ProgramRegisters => event.in_user_code(),
            // The kernel does not allow these helpers in programs at packets.
            EventNeed::CallInProgress
            | EventNeed::Process
            | EventNeed::Stack
            | EventNeed::ThreadCounter
            | EventNeed::ControlGroup => !matches!(event, Event::Netfilter(_)),
            EventNeed::UserMemory | EventNeed::TaskStruct => true,
            EventNeed::FunctionReturn => returns,
            EventNeed::CallReturn if returns => true,
            need => event.offers().contains(&need),
        }
    }
}

/// A row of the table.
#[derive(Debug)]
pub struct IntrinsicInfo {
    /// Name in the text form; tapset files write it as `__name`.
    pub name: &'static str,
    /// Types of the parameters.
    pub params: &'static [ValueKind],
    /// Type of the result.
    pub ret: Option<ValueKind>,
    /// The maximum length of a string result.
    pub len: ResultLen,
    /// The executors that may run it; [`IntrinsicInfo::need`] and the doc text can narrow them.
    pub executors: ExecutorSet,
    /// It can fail with an error.
    pub fails: bool,
    /// It has no effect, and the same operands give the same result within one run of a handler.
    pub pure_: bool,
    /// It needs no CPU block and cannot fail, so a prefilter can use it before the handler is
    /// entered.
    pub early: bool,
    /// In the kernel it reads through the current task's structure.
    pub task: bool,
    /// It has an effect other than its result, so it stays when the result is unused.
    pub effect: bool,
    /// In a kernel handler its result contains a mark for a text that only the controller can make.
    pub symbolic: bool,
    /// It accepts a mark for the rest of a stack as an operand.
    pub stack_marks: bool,
    /// It reads registers of the location that was hit, which a trampoline does not have.
    pub registers: bool,
    /// The property of the event that it needs.
    pub need: Option<EventNeed>,
    /// The values of its first operand, where that is a constant in a kernel handler's code.
    pub constant: Option<RangeInclusive<i64>>,
    /// Description.
    pub doc: &'static str,
}

/// A row without a result, flags and needs.
const PLAIN: IntrinsicInfo = IntrinsicInfo {
    name: "",
    params: &[],
    ret: None,
    len: ResultLen::MaxString,
    executors: KPC,
    fails: false,
    pure_: false,
    early: false,
    task: false,
    effect: false,
    symbolic: false,
    stack_marks: false,
    registers: false,
    need: None,
    constant: None,
    doc: "",
};

/// The maximum length of a string result in bytes. Operands count from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultLen {
    /// MAXSTRINGLEN.
    MaxString,
    /// This number.
    AtMost(u16),
    /// The value of this operand.
    Operand(usize),
    /// The length of operand 0, and the value of this operand.
    Part(usize),
    /// The length of operand 0 if all its bytes are escaped and it is quoted; and the value of this
    /// operand, or that of an empty text in quotes with dots.
    Escaped(usize),
    /// The value of this operand, or the length of an empty text in quotes with dots.
    Quoted(usize),
}

impl Form for Intrinsic {
    fn print(&self, _: &[&str], p: &mut Printer<'_, '_>) -> fmt::Result {
        p.word(self.info().name)
    }

    fn opt(_: &[&str], r: &mut Reader) -> Res<Option<Self>> {
        Ok(r.opt_by(Intrinsic::by_name))
    }

    fn expected(_: &[&str]) -> String {
        "an intrinsic".into()
    }
}

/// The length of `""...`.
const CUT_QUOTES: usize = 5;

impl Intrinsic {
    /// Whether handlers of an event can run it, in some host.
    pub fn is_available(self, event: &Event) -> bool {
        let info = self.info();
        info.executors.meets(event.executors()) && info.need.is_none_or(|n| n.is_met(event))
    }

    /// Whether its first operand is a constant in a kernel handler's code.
    pub(crate) fn wants_constant(self) -> bool {
        self.info().constant.is_some()
    }

    /// Whether its result in a kernel handler contains a mark for a text that only the controller
    /// can make.
    pub fn is_symbolic(self) -> bool {
        self.info().symbolic
    }

    /// The intrinsic of that name in the text form.
    pub fn by_name(name: &str) -> Option<Intrinsic> {
        Self::ALL.iter().copied().find(|i| i.info().name == name)
    }

    /// The maximum length of its string result in bytes; `None` if only MAXSTRINGLEN bounds it.
    /// `constant` gives the value of an operand that is a constant, `len` the maximum length of a
    /// string operand.
    pub fn max_len(
        self,
        constant: impl Fn(usize) -> Option<i64>,
        len: impl Fn(usize) -> Option<usize>,
    ) -> Option<usize> {
        let constant = |n| Some(usize::try_from(constant(n)?).unwrap_or(0));
        let smaller = |a: Option<usize>, b: Option<usize>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let quoted = |n| constant(n).map(|n| n.max(CUT_QUOTES));
        match self.info().len {
            ResultLen::MaxString => None,
            ResultLen::AtMost(n) => Some(n.into()),
            ResultLen::Operand(n) => constant(n),
            ResultLen::Part(n) => smaller(len(0), constant(n)),
            ResultLen::Escaped(n) => {
                let escaped = |len: usize| len.saturating_mul(4).saturating_add(2);
                smaller(len(0).map(escaped), quoted(n))
            }
            ResultLen::Quoted(n) => quoted(n),
        }
    }
}

impl MemoryOp {
    /// The memory that it reads.
    pub fn space(self) -> Space {
        match self {
            MemoryOp::KernelStr
            | MemoryOp::KernelBuf
            | MemoryOp::KernelQuoted
            | MemoryOp::KernelUtf => Space::Kernel,
            MemoryOp::UserStr | MemoryOp::UserBuf | MemoryOp::UserQuoted | MemoryOp::UserUtf => {
                Space::User
            }
        }
    }
}

macro_rules! intrinsics {
    ($($class:ident $op:ident $about:literal {$(
        $var:ident $name:literal ($($p:ident),*) $(-> $r:ident $([$($len:tt)+])?)?, $executors:ident
            $(, $flag:ident)* $(of $need:ident)? $(const $range:expr)?; $doc:literal
    )*})*) => {
        /// An intrinsic operation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Intrinsic {
            $($(#[doc = $doc] $var,)*)*
        }

        /// An intrinsic by its class. Each class has an enum of its own, so that the code that
        /// serves a class covers all its operations.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum IntrinsicClass {
            $(#[doc = $about] $class($op),)*
        }

        $(
            #[doc = $about]
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            pub enum $op {
                $(#[doc = $doc] $var,)*
            }

            impl From<$op> for Intrinsic {
                fn from(op: $op) -> Intrinsic {
                    match op {
                        $($op::$var => Intrinsic::$var,)*
                    }
                }
            }
        )*

        impl Intrinsic {
            /// All intrinsics, in table order.
            pub const ALL: &'static [Intrinsic] = &[$($(Intrinsic::$var),*),*];

            /// Its row in the table.
            pub fn info(self) -> &'static IntrinsicInfo {
                &TABLE[self as usize]
            }

            /// Its class.
            pub fn class(self) -> IntrinsicClass {
                match self {
                    $($(Intrinsic::$var => IntrinsicClass::$class($op::$var),)*)*
                }
            }
        }

        static TABLE: &[IntrinsicInfo] = &[$($(
            IntrinsicInfo {
                name: $name,
                params: &[$(ValueKind::$p),*],
                $(ret: Some(ValueKind::$r), $(len: intrinsics!(@len $($len)+),)?)?
                executors: $executors,
                $($flag: true,)*
                $(need: Some(EventNeed::$need),)?
                $(constant: Some($range),)?
                doc: $doc,
                ..PLAIN
            }
        ),*),*];
    };
    (@len $l:literal) => { ResultLen::AtMost($l) };
    (@len operand $n:literal) => { ResultLen::Operand($n) };
    (@len part $n:literal) => { ResultLen::Part($n) };
    (@len escaped $n:literal) => { ResultLen::Escaped($n) };
    (@len quoted $n:literal) => { ResultLen::Quoted($n) };
}

intrinsics! {
    Context ContextOp "Arguments, results, registers and the number of the location that was hit." {
        CtxArg "ctx_arg" (Long) -> Long, KP, pure_, early of Argument const 0..=11; "Argument n (constant, from 0) of a raw tracepoint, as the kernel passes it (64 bits); of a perf event's sample, its period and its address; or of the probed function, if the argument is in a register."
        CtxRet "ctx_ret" () -> Long, KP, pure_, early of FunctionReturn; "The function's return value. Returns of functions only."
        CtxReg "ctx_reg" (Long) -> Long, KP, pure_, early, registers of Registers const 0..=64; "Register n (constant, DWARF number) at the probed location. Code, perf events and watched memory only."
        CtxRegNow "ctx_reg_now" (Long) -> Long, KP, registers of ProgramRegisters const 0..=64; "Register n (constant, DWARF number) at the probed location of a program, which the handler may have changed."
        CtxSite "ctx_site" () -> Long, KP, pure_, early of CodeLocation; "Number of the location that was hit. Code only."
    }
    Event EventOp "Other properties of the event." {
        CtxActivation "ctx_activation" () -> Long, K, pure_, registers of CodeLocation; "A number that identifies one call of a kernel function: it is equal at the call's entry and return, and differs between concurrent calls of a thread. If the kernel has no such number, the same as `ctx_site`. Only for a probe with handlers at both."
        CtxAddr "ctx_addr" () -> Long, KPC, pure_, registers; "Address of the interrupted instruction, from the event's registers. At probes in code it is the probed instruction or the one after it. 0 in events without registers."
        CtxEntry "ctx_entry" (Long) -> Long, KPC, pure_, registers; "Address of the function whose return is probed, if it belongs to the kernel (0, a constant) or to a program (1). 0 in all other events, and if the kernel does not provide it."
        CtxRecord "ctx_record" () -> Long, K, pure_ of Record; "Address of the record that the kernel has written for a trace event. Its first eight bytes are not those of the record."
        CtxStackAddress "ctx_stack_address" () -> Long, K, pure_, registers of Stack; "An address on the kernel's stack, close to the current stack pointer."
        NextTid "next_tid" () -> Long, K, pure_, early of NextTask; "Thread id of the task that is switched to. `Tracepoint` `sched_switch` only."
        NextPid "next_pid" () -> Long, K, pure_, early of NextTask; "Process id of the task that is switched to. `Tracepoint` `sched_switch` only."
        PerfCount "perf_count" (Long, Long) -> Long, K, fails of ThreadCounter; "Number of occurrences of a perf event (type and config, constants) in the current thread since the session began."
        UserMode "user_mode" () -> Long, KP, pure_, early; "1 if a perf event interrupted user mode; 0 otherwise, and in other events."
        Verdict "verdict" () -> Long, K of Packet; "1 if the packet is accepted, 0 if it is dropped. `Netfilter` only."
        VerdictSet "verdict_set" (Long), K, fails, effect of Packet; "Drops (0) or accepts (1) the packet when the handler ends; any other value fails. `Netfilter` only."
        Decision "decision" () -> Long, K of Decision; "The decision of the security hook so far: 0 allows."
    }
    Syscall SyscallOp "System calls, and arguments by their convention." {
        SysNr "sys_nr" () -> Long, KP, pure_, early of SystemCall; "System call number as in `NrSet`: the native number, or COMPAT plus the 32-bit number. System call events only."
        SysArg "sys_arg" (Long) -> Long, KP, pure_, early, task of SystemCall const 0..=11; "Argument n (constant, 0 to 5) of the system call, at its entry and return. 32-bit calls: zero-extended."
        SysRet "sys_ret" () -> Long, KP, pure_, early of CallReturn; "Return value of the system call or function. Returns only."
        SysName "sys_name" () -> Str[31], KP, pure_ of SystemCall; "Name of the system call; `syscall_N` if the table has none."
        SysArgstr "sys_argstr" () -> Str, KP, task of SystemCallEntry; "The system call's arguments as text, decoded by the system call table. `SysEnter` only, because it reads user memory."
        SysArgtext "sys_argtext" (Long) -> Str, KP, task of SystemCallEntry; "Argument n (constant, 0 to 5) of the system call, as text like in `sys_argstr`. `SysEnter` only."
        SysRetstr "sys_retstr" () -> Str[47], KP, pure_ of SystemCallReturn; "The system call's return value as text: a number, hex, or `-2 (ENOENT)`. `SysExit` only."
        RegArg "reg_arg" (Long) -> Long, KP, pure_, early, task of CallArgument const 1..=6; "Register argument n (constant, from 1) by the calling convention of system calls or functions, for `int_arg(n)`. At a system call's return, 1 is the return value. System call events and code only."
    }
    TaskNumber TaskNumber "Numbers in the structures of the current task." {
        Pid "pid" () -> Long, KPC, pure_, early, task; "Process id (thread group id) in the initial namespace. In the controller: its own."
        Tid "tid" () -> Long, KPC, pure_, early, task; "Thread id."
        Ppid "ppid" () -> Long, KPC, pure_, early, task; "Parent's process id."
        Pgrp "pgrp" () -> Long, KPC, pure_, early, task; "Process group id."
        Sid "sid" () -> Long, KPC, pure_, early, task; "Session id."
        Uid "uid" () -> Long, KPC, pure_, early, task; "Real user id."
        Euid "euid" () -> Long, KPC, pure_, early, task; "Effective user id."
        Gid "gid" () -> Long, KPC, pure_, early, task; "Real group id."
        Egid "egid" () -> Long, KPC, pure_, early, task; "Effective group id."
        TaskSpace "task_space" () -> Long, KPC, pure_, early, task; "End of the current process's address space: at most 4 GB for 32-bit programs. 0 in kernel threads, and in the controller for itself."
        UserNsLevel "user_ns_level" () -> Long, KC, pure_, early, task; "Depth of the current task's user namespace below the initial one. In the controller 0 for itself, because its user ids are those of its own namespace."
        ExeDevice "exe_device" () -> Long, P, pure_, early; "Device of the file that the current process runs, in the kernel's own form."
        ExeInode "exe_inode" () -> Long, P, pure_, early; "Inode number of the file that the current process runs."
    }
    Task TaskOp "The current task and its processor." {
        Execname "execname" () -> Str[15], KPC, pure_, task; "Name of the current task (comm)."
        Cmdline "cmdline" () -> Str, KPC; "Command line of the current process, arguments separated by spaces. Kernel handlers read only resident pages: \"\" if the first page is not resident."
        TaskCurrent "task_current" () -> Long, KC, pure_, early of TaskStruct; "Address of the current task_struct; in the controller that of the process that the handler runs for, or its own."
        TaskHere "task_here" () -> Long, KC, pure_, early; "Address of the current task_struct; the controller's own if no other process is current."
        InCall "in_call" () -> Long, K, pure_, early of CallInProgress; "Number of the current thread's system call; negative if an interrupt or a fault entered the kernel. For kernel threads 0."
        CgroupId "cgroup_id" () -> Long, K, pure_, early of ControlGroup; "Id of the current task's control group (v2), which is the inode number of its directory."
        CgroupAncestor "cgroup_ancestor" (Long) -> Long, K, pure_, early of ControlGroup; "Id of the ancestor of the current task's control group (v2) at level n below the root, or of the group itself; 0 if the group's level is lower."
        Cpu "cpu" () -> Long, KPC, pure_, early; "Current CPU."
    }
    Clock ClockOp "Clocks and the time zone." {
        RealNs "real_ns" () -> Long, KPC; "Wall-clock time, nanoseconds since 1970."
        MonoNs "mono_ns" () -> Long, KPC; "CLOCK_MONOTONIC in nanoseconds."
        CpuClock "cpu_clock" (Long) -> Long, KPC; "Scheduler clock of a CPU in nanoseconds (here the monotonic clock)."
        Jiffies "jiffies" () -> Long, KPC; "The kernel's jiffies counter."
        Cycles "cycles" () -> Long, KPC; "A counter of processor cycles for time differences. Kernel handlers have no instruction that reads it, so both executors return the monotonic clock: one cycle is one nanosecond."
        TzOffset "tz_offset" () -> Long, KPC, pure_, early; "Seconds WEST of UTC of the controller's time zone at start."
        TzName "tz_name" () -> Str[15], KPC, pure_; "Abbreviation of the controller's time zone at start."
    }
    Session SessionOp "The session, its input and its output." {
        Exit "exit" (), KPC, effect; "Asks the session to end after this handler."
        Target "target" () -> Long, KPC, pure_, early; "Process id given with -x or started with -c; otherwise 0."
        InTree "in_tree" (Long) -> Long, KPC, pure_, early; "Whether the process with this id is the target or one of its descendants; 0 if there is no target."
        TreeAdd "tree_add" (Long), KP, effect; "Makes the process with this id one that `in_tree` is true for, and its later descendants."
        InputText "input_text" () -> Str, C, pure_; "The line or character of an input probe."
        ValueText "value_text" () -> Str, C; "What was written to the file of a `procfs` probe, or the text for its reader so far."
        ValueSet "value_set" (Str), C, effect; "Sets the text for the reader of the file."
        ValueAppend "value_append" (Str), C, effect; "Appends to the text for the reader of the file, up to the probe's size."
        Rand "rand" () -> Long, KPC; "Random 32-bit number."
        DirectMap "direct_map" () -> Long, KC, pure_, early; "Address where the kernel has all memory; 0 if the session could not find it."
        PageArray "page_array" () -> Long, KC, pure_, early; "Address of the kernel's array of `struct page`; 0 if the session could not find it."
        Ftrace "ftrace" (Str), C, effect; "Writes to the kernel's trace buffer."
    }
    Memory MemoryOp "Texts in memory." {
        KernelStr "kernel_str" (Long, Long) -> Str[operand 1], KC, fails; "String at a kernel address, cut to n bytes (constant); fails on a bad address."
        UserStr "user_str" (Long, Long) -> Str[operand 1], KPC, fails of UserMemory; "String at a user address of the current task, cut to n bytes (constant); fails on a bad address."
        KernelBuf "kernel_buf" (Long, Long) -> Str[operand 1], K, fails; "Bytes at a kernel address, up to n bytes or a NUL."
        UserBuf "user_buf" (Long, Long) -> Str[operand 1], KPC, fails of UserMemory; "Bytes at a user address, up to n bytes or a NUL."
        KernelQuoted "kernel_quoted" (Long, Long, Long) -> Str[quoted 2], KC, fails; "n bytes at a kernel address, including NULs, escaped and quoted, in at most as many bytes as the third argument says."
        UserQuoted "user_quoted" (Long, Long, Long) -> Str[quoted 2], KPC, fails of UserMemory; "As `kernel_quoted`, at a user address of the current task."
        KernelUtf "kernel_utf" (Long, Long, Long) -> Str, KC, fails; "Text in units of n bytes (constant, 2 or 4) at a kernel address, up to a unit of 0, as UTF-8 of fewer bytes than the third argument (constant). Fails on a bad address and on invalid text."
        UserUtf "user_utf" (Long, Long, Long) -> Str, KPC, fails of UserMemory; "As `kernel_utf`, at a user address of the current task."
    }
    Act ActOp "Changes of the current process, in guru mode." {
        UserStore "user_store" (Long, Long, Long), KP, fails, effect of Process const 1..=8; "Writes n bytes (constant: 1, 2, 4 or 8) at a user address of the current process; fails where the page is not writable and in memory."
        UserStoreText "user_store_text" (Long, Str), KP, fails, effect of Process; "Writes the bytes of a string, without a NUL, at a user address of the current process; fails as `user_store`."
        DecisionSet "decision_set" (Long), K, fails, effect of Decision; "Sets the decision of a security hook: 0 allows, a negative error number denies; fails for other numbers."
        RegisterStore "register_store" (Long, Long), K, effect, registers of ProgramRegisters const 0..=64; "Sets register n (constant, DWARF number) of the program at the probed location. It goes on with that value."
        SendSignal "send_signal" (Long), KP, fails, effect of Process; "Sends a signal to the current thread; fails if there is no such signal, and for kernel threads."
    }
    Text TextOp "Operations on texts, which depend on the operands alone." {
        Strlen "strlen" (Str) -> Long, KPC, pure_; "Length in bytes."
        Substr "substr" (Str, Long, Long) -> Str[part 2], KPC, pure_; "Bytes start..start+len; of a range that is partly outside, the part inside."
        Stringat "stringat" (Str, Long) -> Long, KPC, pure_; "Byte at a position, as a number; 0 past the end."
        Isinstr "isinstr" (Str, Str) -> Long, KPC, pure_; "1 if the second string occurs in the first, otherwise 0."
        Strpos "strpos" (Str, Str) -> Long, KPC, pure_; "Position of the second string in the first; -1 if it does not occur."
        StrReplace "str_replace" (Str, Str, Str) -> Str, KPC, pure_; "The first string, with each occurrence of the second replaced by the third."
        Strtol "strtol" (Str, Long) -> Long, KPC, pure_; "Number at the start of a string in a base, modulo 2^64, by the rules of the kernel's simple_strtol: no blanks, no plus sign, digits up to f."
        StrToFp "str_to_fp" (Str) -> Long, KPC, pure_; "The bits of the floating-point number at the start of a string, correctly rounded: spaces, a sign, then `inf`, `nan`, or digits with a point and an exponent. Otherwise 0."
        TextStrn "text_strn" (Str, Long, Long) -> Str[escaped 1], KPC, pure_; "The string with unprintable bytes escaped as in C, in at most n bytes; quoted if the third argument is not 0, and then followed by `...` if it does not fit."
        MetricText "metric_text" (Str) -> Str, C, pure_; "Escapes a label value of the Prometheus text format (backslash, quote, newline)."
    }
    Run RunOp "The state of the run of a handler: the text that is split into tokens, and the last match." {
        Tokenize "tokenize" (Str, Str) -> Str, KPC, effect; "Next token of the first string (if it is empty, of the previous call's string), delimited by any byte of the second."
        MatchGroups "match_groups" () -> Long, KPC; "Number of groups of the last match with `keep` in this run of the handler; -1 if the regular expression did not match, -2 if there was no match with `keep`."
        MatchGroup "match_group" (Long) -> Str, KPC; "Text of group n of the last match, 0 for the whole match; \"\" if the group took no part or does not exist."
    }
    Symbol SymbolOp "Symbols of addresses, and stacks." {
        SymName "sym_name" (Long) -> Str, KC, pure_; "Kernel symbol of an address, or the address in hex."
        SymData "sym_data" (Long) -> Str, KC, pure_; "`name+0xoff/0xsize [module]` of a kernel address, `[kernel]` for the kernel image; or the address in hex."
        KernelStack "kernel_stack" (Long) -> Str, KC, pure_, registers of Stack; "Addresses of the kernel stack at the event, in hex with `0x`, separated by spaces: at most n; all if -1; all, each followed by a space, if -2. Frames of the probe's own machinery are left out."
        KernelFrame "kernel_frame" (Long) -> Long, KC, pure_, registers of Stack; "Address n of the kernel stack at the event, from 0; 0 past its end."
        UserStack "user_stack" (Long) -> Str, KC, pure_, symbolic, registers of Stack; "Addresses of the current program's stack, in the forms of `kernel_stack`. Empty if there is no program. A part that only the controller can unwind is a mark."
        UserFrame "user_frame" (Long) -> Long, KC, pure_, registers of Stack; "Address n of the current program's stack, from 0; 0 past its end."
        StackWords "stack_words" (Str) -> Str, KPC, pure_, stack_marks; "A text of addresses, for uses that accept a mark for the rest of the stack as its last word."
        StackMark "stack_mark" (Str) -> Long, KPC, pure_, stack_marks; "Whether a word of a text of addresses is a mark for the rest of the stack."
        StackRest "stack_rest" (Str, Str) -> Str, KPC, pure_, stack_marks; "For such a mark, the first argument, in the text given second: the mark for one line for each further address, with its symbol."
        UserSymbolic "user_symbolic" (Long, Long) -> Str, KC, pure_, symbolic, registers of Stack; "Symbolic text of the current program's stack: from frame n, at most 16 frames, in a form that lists frames; or of frame n alone (the form is a constant, see `spile_layout::SymbolicForm`). A mark, as `symbolic` makes it."
        UserSymbolicFrom "user_symbolic_from" (Long, Long, Long, Long, Long) -> Str, KC, pure_, symbolic, registers of Stack; "As `user_symbolic`, for forms that list frames, with the program counter, stack pointer and frame pointer given as third to fifth argument."
        KernelSymbolic "kernel_symbolic" (Long, Long) -> Str, KC, pure_, symbolic, registers of Stack; "Symbolic text of the kernel stack from frame n, at most 16 frames, in a form (constant, see `spile_layout::SymbolicForm`). A mark, as `symbolic` makes it."
        SymbolicForm "symbolic" (Long, Str) -> Str, KC, pure_, symbolic, registers; "Text of a stack that only the controller can produce: a form (constant, see `spile_layout::SymbolicForm`) and the addresses. In kernel handlers it is a mark; equal stacks have equal marks."
        Interrupted "interrupted" () -> Str, K, pure_, symbolic; "Name of the function that a perf event or a watched memory access interrupted: a kernel function as text, a program's function as a mark. The address in hex if there is no symbol."
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Executor;

    #[test]
    fn a_process_has_no_operation_of_the_kernel() {
        let of_kernel = |need| {
            use EventNeed::*;
            let own = [NextTask, Packet, Decision, TaskStruct, Record];
            own.contains(&need)
        };
        for info in Intrinsic::ALL.iter().map(|f| f.info()) {
            let kernel = info.name.starts_with("kernel_") || info.need.is_some_and(of_kernel);
            let process = info.executors.contains(Executor::Process);
            assert!(!(kernel && process), "{}", info.name);
        }
    }
}
