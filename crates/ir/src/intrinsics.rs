//! The table of intrinsics, the operations that tapset functions are made of: name, parameters,
//! result, the places where each may run, what it needs of the event, and how passes may treat it.
//! The enum, the text form, the type rules, the checks of events and of constants, and the classes
//! for analysis and code generation come from this table. The operations are implemented in the
//! interpreter, the controller's host and the code generator.

use std::ops::RangeInclusive;

use crate::event::Event;

/// The type of a parameter or a result in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An integer.
    Long,
    /// A string.
    Str,
}

/// The executors that may run an intrinsic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// Kernel handlers; [`Info::of`] and the doc text can narrow them.
    pub kernel: bool,
    /// Controller handlers.
    pub controller: bool,
}

/// A property of the event that an intrinsic depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Arguments, as tracepoints, hooks and functions have them.
    Argument,
    /// The registers of the interrupted code.
    Registers,
    /// A place in code.
    CodePlace,
    /// The thread that the processor switches to.
    NextTask,
    /// The return of a function.
    FunctionReturn,
    /// Arguments in the calling convention of a function or a system call.
    CallArgument,
    /// A system call's entry or return.
    SystemCall,
    /// The entry to a system call.
    SystemCallEntry,
    /// The return from a system call.
    SystemCallReturn,
    /// The return from a function or a system call.
    CallReturn,
    /// Memory of the current process.
    UserMemory,
    /// A packet that can be dropped.
    Packet,
    /// The current task's structure in the kernel.
    TaskStruct,
    /// The system call that the current thread is in.
    CallInProgress,
    /// A stack of the kernel or of the current program.
    Stack,
    /// A counter of the current thread's events.
    ThreadCounter,
    /// The current task's control group.
    ControlGroup,
}

impl Need {
    /// The missing property, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Need::Argument => "argument of a tracepoint",
            Need::Registers => "register",
            Need::CodePlace => "place in code",
            Need::NextTask => "thread that the processor goes on with",
            Need::FunctionReturn => "return of a function",
            Need::CallArgument => "function or system call",
            Need::SystemCall => "system call",
            Need::SystemCallEntry => "entry to a system call",
            Need::SystemCallReturn => "return from a system call",
            Need::CallReturn => "return from a function or a system call",
            Need::UserMemory => "memory of the current process",
            Need::Packet => "verdict on a packet",
            Need::TaskStruct => "current task of the kernel",
            Need::CallInProgress => "system call of the current thread",
            Need::Stack => "stack",
            Need::ThreadCounter => "counter of a thread",
            Need::ControlGroup => "control group of a task",
        }
    }

    /// Whether an event of the kernel has the property.
    pub fn in_kernel(self, event: &Event) -> bool {
        match self {
            Need::Argument => matches!(
                event,
                Event::Tracepoint(_) | Event::Code(_) | Event::Netfilter(_) | Event::Lsm(_)
            ),
            Need::Registers => {
                matches!(event, Event::Code(_) | Event::Perf { .. } | Event::Watch(_))
            }
            Need::CodePlace => matches!(event, Event::Code(_)),
            Need::NextTask => {
                matches!(event, Event::Tracepoint(name) if &**name == "sched_switch")
            }
            Need::FunctionReturn => matches!(event, Event::Code(probe) if probe.ret),
            Need::CallArgument => matches!(
                event,
                Event::SysEnter(_) | Event::SysExit(_) | Event::Code(_)
            ),
            Need::SystemCall => matches!(event, Event::SysEnter(_) | Event::SysExit(_)),
            Need::SystemCallEntry => matches!(event, Event::SysEnter(_)),
            Need::SystemCallReturn => matches!(event, Event::SysExit(_)),
            Need::CallReturn => match event {
                Event::Code(probe) => probe.ret,
                event => matches!(event, Event::SysExit(_)),
            },
            Need::Packet => matches!(event, Event::Netfilter(_)),
            // The kernel does not allow these helpers in programs at packets.
            Need::CallInProgress | Need::Stack | Need::ThreadCounter | Need::ControlGroup => {
                !matches!(event, Event::Netfilter(_))
            }
            Need::UserMemory | Need::TaskStruct => true,
        }
    }

    /// Whether an event of the controller has the property.
    pub fn in_controller(self, event: &Event) -> bool {
        match self {
            Need::UserMemory | Need::TaskStruct => matches!(event, Event::Present { .. }),
            _ => true,
        }
    }
}

/// A row of the table.
#[derive(Debug)]
pub struct Info {
    /// Name in the text form; tapset files write it as `__name`.
    pub name: &'static str,
    /// Types of the parameters.
    pub params: &'static [Kind],
    /// Type of the result.
    pub ret: Option<Kind>,
    /// Maximum length of a string result in bytes; 0 means MAXSTRINGLEN.
    pub max_len: u16,
    /// The executors that may run it.
    pub places: Places,
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
    /// It reads registers of the place that was hit, which a trampoline does not have.
    pub registers: bool,
    /// It depends on its operands alone.
    pub operands: bool,
    /// The property of the event that it needs.
    pub of: Option<Need>,
    /// The values of its first operand, where that is a constant in a kernel handler's code.
    pub constant: Option<RangeInclusive<i64>>,
    /// Description.
    pub doc: &'static str,
}

const K: Places = Places {
    kernel: true,
    controller: false,
};
const C: Places = Places {
    kernel: false,
    controller: true,
};
const KC: Places = Places {
    kernel: true,
    controller: true,
};

macro_rules! intrinsics {
    ($($var:ident $name:literal ($($p:ident),*) $(-> $r:ident $([$len:literal])?)?, $places:ident $(, $flag:ident)* $(of $need:ident)? $(const $range:expr)?; $doc:literal)*) => {
        /// An intrinsic operation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Intrinsic {
            $(#[doc = $doc] $var,)*
        }

        impl Intrinsic {
            /// All intrinsics, in table order.
            pub const ALL: &'static [Intrinsic] = &[$(Intrinsic::$var),*];

            /// Its row in the table.
            pub fn info(self) -> &'static Info {
                &TABLE[self as usize]
            }

            /// Whether its first operand is a constant in a kernel handler's code.
            pub fn wants_constant(self) -> bool {
                self.info().constant.is_some()
            }

            /// Whether its result in a kernel handler contains a mark for a text that only the
            /// controller can make.
            pub fn is_symbolic(self) -> bool {
                self.info().symbolic
            }

            /// The intrinsic of that name in the text form.
            pub fn by_name(name: &str) -> Option<Intrinsic> {
                Self::ALL.iter().copied().find(|i| i.info().name == name)
            }
        }

        static TABLE: &[Info] = &[$(
            Info {
                name: $name,
                params: &[$(Kind::$p),*],
                ret: intrinsics!(@ret $($r)?),
                max_len: intrinsics!(@len $($($len)?)?),
                places: $places,
                fails: has(&[$(stringify!($flag)),*], "fails"),
                pure_: has(&[$(stringify!($flag)),*], "pure"),
                early: has(&[$(stringify!($flag)),*], "early"),
                task: has(&[$(stringify!($flag)),*], "task"),
                effect: has(&[$(stringify!($flag)),*], "effect"),
                symbolic: has(&[$(stringify!($flag)),*], "symbolic"),
                stack_marks: has(&[$(stringify!($flag)),*], "stack_marks"),
                registers: has(&[$(stringify!($flag)),*], "registers"),
                operands: has(&[$(stringify!($flag)),*], "operands"),
                of: intrinsics!(@need $($need)?),
                constant: intrinsics!(@constant $($range)?),
                doc: $doc,
            }
        ),*];
    };
    (@ret) => { None };
    (@ret $r:ident) => { Some(Kind::$r) };
    (@len) => { 0 };
    (@len $l:literal) => { $l };
    (@need) => { None };
    (@need $need:ident) => { Some(Need::$need) };
    (@constant) => { None };
    (@constant $range:expr) => { Some($range) };
}

/// The flags of rows. A misspelt flag does not compile.
const FLAGS: [&str; 9] = [
    "fails",
    "pure",
    "early",
    "task",
    "effect",
    "symbolic",
    "stack_marks",
    "registers",
    "operands",
];

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

const fn contains(flags: &[&str], flag: &str) -> bool {
    let mut at = 0;
    while at < flags.len() {
        if same(flags[at], flag) {
            return true;
        }
        at += 1;
    }
    false
}

const fn has(flags: &[&str], flag: &str) -> bool {
    let mut at = 0;
    while at < flags.len() {
        assert!(contains(&FLAGS, flags[at]), "no such flag");
        at += 1;
    }
    contains(flags, flag)
}

intrinsics! {
    // The event.
    CtxArg "ctx_arg" (Long) -> Long, K, pure, early of Argument const 0..=11; "Argument n (constant, from 0) of a raw tracepoint, as the kernel passes it (64 bits), or of the probed function, where it is in a register."
    CtxRet "ctx_ret" () -> Long, K, pure, early of FunctionReturn; "What the function returns. Returns of functions only."
    CtxReg "ctx_reg" (Long) -> Long, K, pure, early, registers of Registers const 0..=64; "Register n (constant, DWARF's number) at the probed place. Events at code, perf events and watched memory only."
    CtxAddr "ctx_addr" () -> Long, KC, pure, registers; "Where the code was that the event interrupted, by its registers: at code the place, or close behind it. 0 in events that have no registers."
    CtxEntry "ctx_entry" (Long) -> Long, KC, pure, registers; "Address of the function whose return is probed, where it is one of the kernel (0, a constant) or of a program (1). 0 in all other events, and where the kernel does not say."
    CtxPlace "ctx_place" () -> Long, K, pure, registers of Stack; "An address on the kernel's stack, close to where it is used up to."
    NextTid "next_tid" () -> Long, K, pure, early of NextTask; "Id of the thread that the processor goes on with. `Tracepoint` `sched_switch` only."
    NextPid "next_pid" () -> Long, K, pure, early of NextTask; "Id of that thread's process. `Tracepoint` `sched_switch` only."
    CtxSite "ctx_site" () -> Long, K, pure, early of CodePlace; "The number of the place that was hit. Events at code only."
    CtxActivation "ctx_activation" () -> Long, K, pure, registers of CodePlace; "The same at the entry and at the return of one call of a function of the kernel, and another in all other calls that the thread is in. Where the kernel has no such thing: as `ctx_site`. Handlers of one probe at both."
    SysNr "sys_nr" () -> Long, K, pure, early of SystemCall; "System-call number as in `NrSet`: native, or COMPAT + 32-bit number. System-call events only."
    SysArg "sys_arg" (Long) -> Long, K, pure, early, task of SystemCall const 0..=11; "Argument n (constant, 0 to 5) of the system call, on entry and on return. 32-bit calls: zero-extended."
    SysRet "sys_ret" () -> Long, K, pure, early of CallReturn; "Result of the system call, or of the function. Returns only."
    SysName "sys_name" () -> Str[31], K, pure of SystemCall; "Name of the system call; `syscall_N` where the table has none."
    SysArgstr "sys_argstr" () -> Str, K, task of SystemCallEntry; "The system call's arguments as text, decoded by the system-call table. `SysEnter` only: user memory is read now."
    SysArgtext "sys_argtext" (Long) -> Str, K, task of SystemCallEntry; "Argument word n (constant, 0 to 5) of the system call as `sys_argstr` has it. `SysEnter` only."
    SysRetstr "sys_retstr" () -> Str[47], K, pure of SystemCallReturn; "The system call's result as text: number, hex, or `-2 (ENOENT)`. `SysExit` only."
    RegArg "reg_arg" (Long) -> Long, K, pure, early, task of CallArgument const 1..=6; "Register argument n (constant, from 1) by the convention of system calls or functions, as `int_arg(n)` reads it; at a system call's return, 1 is the result. System-call events and code only."
    PerfCount "perf_count" (Long, Long) -> Long, K, fails of ThreadCounter; "How many events of a perf event (its type and config, constants) the current thread has had since the session began."
    UserMode "user_mode" () -> Long, K, pure, early; "1 when the interrupted context was user mode (perf events), 0 in other events."
    Verdict "verdict" () -> Long, K of Packet; "Whether the packet goes on: 1, or 0 where it is dropped. `Netfilter` only."
    VerdictSet "verdict_set" (Long), K, fails, effect of Packet; "Drops the packet (0), or lets it go on (1), when the handler ends; anything else fails. `Netfilter` only."
    // The current task.
    Pid "pid" () -> Long, KC, pure, early, task; "Process id (thread group), in the initial namespace. In the controller: its own."
    Tid "tid" () -> Long, KC, pure, early, task; "Thread id."
    Ppid "ppid" () -> Long, KC, pure, early, task; "Parent's process id."
    Pgrp "pgrp" () -> Long, KC, pure, early, task; "Process group id."
    Sid "sid" () -> Long, KC, pure, early, task; "Session id."
    Uid "uid" () -> Long, KC, pure, early, task; "Real user id."
    Euid "euid" () -> Long, KC, pure, early, task; "Effective user id."
    Gid "gid" () -> Long, KC, pure, early, task; "Real group id."
    Egid "egid" () -> Long, KC, pure, early, task; "Effective group id."
    Execname "execname" () -> Str[15], KC, pure, task; "Name of the current task (comm)."
    TaskCurrent "task_current" () -> Long, KC, pure, early of TaskStruct; "Address of the current task_struct. In the controller only where a process that is there is the current one, as all that reads user memory."
    InCall "in_call" () -> Long, K, pure, early of CallInProgress; "Number of the system call that the current thread is in; below 0 where an interrupt or a fault has brought it into the kernel. A thread of the kernel's own is in call 0."
    CgroupId "cgroup_id" () -> Long, K, pure, early of ControlGroup; "Number of the current task's control group (v2), the inode of its folder."
    CgroupAncestor "cgroup_ancestor" (Long) -> Long, K, pure, early of ControlGroup; "Number of the control group (v2) that the current task's is in or is itself, so many steps below the root; 0 where its own is higher."
    Cmdline "cmdline" () -> Str, KC; "Command line of the current process, arguments joined by spaces. In kernel handlers only what is in memory: \"\" where its first page is not."
    Cpu "cpu" () -> Long, KC, pure, early; "Current CPU."
    // Time.
    RealNs "real_ns" () -> Long, KC; "Wall-clock time, nanoseconds since 1970."
    MonoNs "mono_ns" () -> Long, KC; "CLOCK_MONOTONIC in nanoseconds."
    CpuClock "cpu_clock" (Long) -> Long, KC; "Scheduler clock of a CPU in nanoseconds (monotonic clock here)."
    Jiffies "jiffies" () -> Long, KC; "The kernel's jiffies counter."
    Cycles "cycles" () -> Long, KC; "A counter of processor cycles for differences of times. Kernel handlers have no instruction for it: both executors give the monotonic clock, a cycle a nanosecond."
    TzOffset "tz_offset" () -> Long, KC, pure, early; "Seconds WEST of UTC of the controller's time zone at start."
    TzName "tz_name" () -> Str[15], KC, pure; "Abbreviation of the controller's time zone at start."
    // The session.
    Exit "exit" (), KC, effect; "Asks the session to end after this handler."
    Target "target" () -> Long, KC, pure, early; "Pid given with -x or started with -c, or 0."
    InputText "input_text" () -> Str, C, pure; "The line or character of an input probe."
    InTree "in_tree" (Long) -> Long, KC, pure, early; "Whether a process, by its number, is the target or descends from it; 0 where there is no target."
    ValueText "value_text" () -> Str, C; "What was written to the file of a `procfs` probe, or what its reader will get so far."
    ValueSet "value_set" (Str), C, effect; "What the reader of the file will get."
    ValueAppend "value_append" (Str), C, effect; "More that the reader of the file will get, up to the probe's size."
    Rand "rand" () -> Long, KC; "Random 32-bit number."
    Ftrace "ftrace" (Str), C, effect; "Writes to the kernel's trace buffer."
    // Memory.
    KernelStr "kernel_str" (Long, Long) -> Str, KC, fails; "String at a kernel address, at most n bytes (constant) kept; fails on a bad address."
    UserStr "user_str" (Long, Long) -> Str, KC, fails of UserMemory; "String at a user address of the current task, at most n bytes (constant) kept; fails on a bad address."
    KernelBuf "kernel_buf" (Long, Long) -> Str, K, fails; "Bytes at a kernel address up to n or a NUL."
    UserBuf "user_buf" (Long, Long) -> Str, KC, fails of UserMemory; "Bytes at a user address up to n or a NUL."
    KernelQuoted "kernel_quoted" (Long, Long, Long) -> Str, KC, fails; "n bytes at a kernel address, NULs among them, escaped and in quotes, in at most so many bytes as the third says."
    UserQuoted "user_quoted" (Long, Long, Long) -> Str, KC, fails of UserMemory; "The same at a user address of the current task."
    KernelUtf "kernel_utf" (Long, Long, Long) -> Str, KC, fails; "Text in units of n bytes (constant, 2 or 4) at a kernel address, up to a unit of 0, as UTF-8 of less bytes than the third (constant) says; fails on a bad address, and where the units are no text."
    UserUtf "user_utf" (Long, Long, Long) -> Str, KC, fails of UserMemory; "The same at a user address of the current task."
    // Strings.
    Strlen "strlen" (Str) -> Long, KC, pure, operands; "Length in bytes."
    Substr "substr" (Str, Long, Long) -> Str, KC, pure, operands; "Bytes start..start+len; out of range gives the part that exists."
    Stringat "stringat" (Str, Long) -> Long, KC, pure, operands; "Byte at a position as a number; 0 past the end."
    Isinstr "isinstr" (Str, Str) -> Long, KC, pure, operands; "1 when the second occurs in the first."
    Strpos "strpos" (Str, Str) -> Long, KC, pure, operands; "Position of the second in the first, -1 when absent."
    StrReplace "str_replace" (Str, Str, Str) -> Str, KC, pure, operands; "All occurrences of the second in the first replaced by the third."
    Strtol "strtol" (Str, Long) -> Long, KC, pure, operands; "Number at the start of a string, modulo 2^64; as the kernel's simple_strtol: no blanks, no plus, digits up to f."
    StrToFp "str_to_fp" (Str) -> Long, KC, pure, operands; "The bits of the floating-point number that the text begins with, correctly rounded: spaces, a sign, `inf`, `nan` or digits with a point and an exponent; otherwise 0."
    Tokenize "tokenize" (Str, Str) -> Str, KC, effect; "Next token of the string given first (or of the one before, when empty), split at any byte of the second."
    TextStrn "text_strn" (Str, Long, Long) -> Str, KC, pure, operands; "Unprintable bytes escaped as in C, in at most so many bytes; in quotes where the third is not 0, with `...` behind them where it does not fit."
    // The last match.
    MatchGroups "match_groups" () -> Long, KC; "Groups of the last regular expression that was matched with `keep` in this run of the handler; -1 when it did not match, -2 when there was none yet."
    MatchGroup "match_group" (Long) -> Str, KC; "The text of group n of the last match, 0 for all of it; nothing where the group took no part or there is no such group."
    // Symbols.
    SymName "sym_name" (Long) -> Str, KC, pure; "Kernel symbol of an address, or the address in hex."
    SymData "sym_data" (Long) -> Str, KC, pure; "`name+0xoff/0xsize [module]` of a kernel address, `[kernel]` for the kernel itself; or the address in hex."
    KernelStack "kernel_stack" (Long) -> Str, K, pure, registers of Stack; "Addresses of the kernel's stack at the event, `0x` and hex, with spaces between; at most so many, all where -1, all with a space behind each where -2. The machinery of the probe is left out."
    KernelFrame "kernel_frame" (Long) -> Long, K, pure, registers of Stack; "Address n of the kernel's stack at the event, from 0; 0 where it is not that deep."
    UserStack "user_stack" (Long) -> Str, K, pure, symbolic, registers of Stack; "Addresses of the current program's stack, `0x` and hex, with spaces between; at most so many, all where -1, all with a space behind each where -2. Nothing where there is no program. The rest of a stack that only the controller can walk is a mark."
    StackWords "stack_words" (Str) -> Str, K, pure, stack_marks; "A text of addresses, for who knows that the last word can be a mark for the rest of the stack."
    StackMark "stack_mark" (Str) -> Long, K, pure, stack_marks; "Whether a word of a text of addresses is such a mark."
    StackRest "stack_rest" (Str, Str) -> Str, K, pure, stack_marks; "Of such a word, from the text given second, the mark for a line of each address, with its symbol."
    UserFrame "user_frame" (Long) -> Long, K, pure, registers of Stack; "Address n of the current program's stack, from 0; 0 where it is not that deep."
    UserSymbolic "user_symbolic" (Long, Long) -> Str, K, pure, symbolic, registers of Stack; "The text of the current program's stack from frame n on, in forms with addresses 16 of them, or of address n in it, in a form (constant, see `spile_bpf::layout::Symbolic`); a mark as `symbolic` makes it."
    UserSymbolicFrom "user_symbolic_from" (Long, Long, Long, Long, Long) -> Str, K, pure, symbolic, registers of Stack; "The same of the stack only, in the forms of stacks, as it is where the program is at the third and has the fourth as stack pointer, the fifth as frame pointer."
    Interrupted "interrupted" () -> Str, K, pure, symbolic; "Name of the function that a perf event or an access to watched memory interrupted: of the kernel as text, of a program as a mark. Address in hex where there is none."
    KernelSymbolic "kernel_symbolic" (Long, Long) -> Str, K, pure, symbolic, registers of Stack; "The text of the kernel's stack from frame n on, 16 of them, in a form (constant, see `spile_bpf::layout::Symbolic`); a mark as `symbolic` makes it."
    Symbolic "symbolic" (Long, Str) -> Str, KC, pure, symbolic, registers; "The text of a stack, which only the controller can make: a form (constant, see `spile_bpf::layout::Symbolic`) and what it is made of. In kernel handlers a mark that stands for it, equal for what is equal."
    // More of the current task.
    TaskHere "task_here" () -> Long, KC, pure, early; "Address of the current task_struct; of the controller's own where no other process is the current one."
    TaskSpace "task_space" () -> Long, KC, pure, early, task; "Where the addresses end that the current process can have: at most 4 GB in 32-bit programs. 0 in threads of the kernel, and in the controller for itself."
    UserNsLevel "user_ns_level" () -> Long, KC, pure, early, task; "How far the current task's user namespace is below the initial one. In the controller for itself 0: its numbers of users are those of its own."
    // Output of whole structures.
    MetricText "metric_text" (Str) -> Str, C, pure, operands; "Escapes a label value of the Prometheus text format (backslash, quote, newline)."
}
