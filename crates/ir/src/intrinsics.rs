//! The operations that tapset functions are made of, as one table: name, parameters, result,
//! where each may run, whether it can fail, whether calls with equal operands may be merged,
//! and what it does. The enum, the text form, the type rules, the interpreter's dispatch and
//! the generator's dispatch all come from this table.

/// Parameter and result kinds in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An integer.
    Long,
    /// A string.
    Str,
}

/// Where an intrinsic may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// In kernel handlers (which ones can be narrower, see the doc text).
    pub kernel: bool,
    /// In controller handlers.
    pub controller: bool,
}

/// One row.
#[derive(Debug)]
pub struct Info {
    /// Name in the text form and in tapset files (`__name`).
    pub name: &'static str,
    /// Parameters.
    pub params: &'static [Kind],
    /// Result.
    pub ret: Option<Kind>,
    /// Largest length in bytes of a string result, 0 = MAXSTRINGLEN.
    pub max_len: u16,
    /// Where.
    pub places: Places,
    /// Can fail with an error.
    pub fails: bool,
    /// No effect; the same operands give the same result within one run of a handler.
    pub pure_: bool,
    /// What it does.
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
    ($($var:ident $name:literal ($($p:ident),*) $(-> $r:ident $([$len:literal])?)?, $places:ident $(, $flag:ident)*; $doc:literal)*) => {
        /// An intrinsic operation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Intrinsic {
            $(#[doc = $doc] $var,)*
        }

        impl Intrinsic {
            /// All of them, in table order.
            pub const ALL: &'static [Intrinsic] = &[$(Intrinsic::$var),*];

            /// Its row.
            pub fn info(self) -> &'static Info {
                &TABLE[self as usize]
            }

            /// Whether its operand is part of the code that is generated for a kernel handler.
            pub fn wants_constant(self) -> bool {
                use Intrinsic::*;
                matches!(self, CtxArg | CtxReg | RegArg | SysArg)
            }

            /// Whether its result in a kernel handler is or has a mark for a text that only the
            /// controller can make.
            pub fn is_symbolic(self) -> bool {
                matches!(
                    self,
                    Intrinsic::Symbolic
                        | Intrinsic::KernelSymbolic
                        | Intrinsic::UserSymbolic
                        | Intrinsic::UserSymbolicFrom
                        | Intrinsic::UserStack
                        | Intrinsic::Interrupted
                )
            }

            /// Whether it makes something of a mark for the rest of a stack.
            pub fn knows_marks(self) -> bool {
                use Intrinsic::*;
                matches!(self, StackWords | StackMark | StackRest)
            }

            /// By name in the text form.
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
                fails: intrinsics!(@has fails $($flag)*),
                pure_: intrinsics!(@has pure $($flag)*),
                doc: $doc,
            }
        ),*];
    };
    (@ret) => { None };
    (@ret $r:ident) => { Some(Kind::$r) };
    (@len) => { 0 };
    (@len $l:literal) => { $l };
    (@has fails) => { false };
    (@has fails fails $($rest:ident)*) => { true };
    (@has fails $other:ident $($rest:ident)*) => { intrinsics!(@has fails $($rest)*) };
    (@has pure) => { false };
    (@has pure pure $($rest:ident)*) => { true };
    (@has pure $other:ident $($rest:ident)*) => { intrinsics!(@has pure $($rest)*) };
}

intrinsics! {
    // The event.
    CtxArg "ctx_arg" (Long) -> Long, K, pure; "Argument n (constant, from 0) of a raw tracepoint, as the kernel passes it (64 bits), or of the probed function, where it is in a register."
    CtxRet "ctx_ret" () -> Long, K, pure; "What the function returns. Returns of functions only."
    CtxReg "ctx_reg" (Long) -> Long, K, pure; "Register n (constant, DWARF's number) at the probed place. Events at code, perf events and watched memory only."
    CtxAddr "ctx_addr" () -> Long, KC, pure; "Where the code was that the event interrupted, by its registers: at code the place, or close behind it. 0 in events that have no registers."
    CtxEntry "ctx_entry" (Long) -> Long, KC, pure; "Address of the function whose return is probed, where it is one of the kernel (0, a constant) or of a program (1). 0 in all other events, and where the kernel does not say."
    CtxPlace "ctx_place" () -> Long, K, pure; "An address on the kernel's stack, close to where it is used up to."
    NextTid "next_tid" () -> Long, K, pure; "Id of the thread that the processor goes on with. `Tracepoint` `sched_switch` only."
    NextPid "next_pid" () -> Long, K, pure; "Id of that thread's process. `Tracepoint` `sched_switch` only."
    CtxSite "ctx_site" () -> Long, K, pure; "The number of the place that was hit. Events at code only."
    CtxActivation "ctx_activation" () -> Long, K, pure; "The same at the entry and at the return of one call of a function of the kernel, and another in all other calls that the thread is in. Where the kernel has no such thing: as `ctx_site`. Handlers of one probe at both."
    SysNr "sys_nr" () -> Long, K, pure; "System-call number as in `NrSet`: native, or COMPAT + 32-bit number. System-call events only."
    SysArg "sys_arg" (Long) -> Long, K, pure; "Argument n (constant, 0 to 5) of the system call, on entry and on return. 32-bit calls: zero-extended."
    SysRet "sys_ret" () -> Long, K, pure; "Result of the system call, or of the function. Returns only."
    SysName "sys_name" () -> Str[31], K, pure; "Name of the system call; `syscall_N` where the table has none."
    SysArgstr "sys_argstr" () -> Str, K; "The system call's arguments as text, decoded by the system-call table. `SysEnter` only: user memory is read now."
    SysArgtext "sys_argtext" (Long) -> Str, K; "Argument word n (constant, 0 to 5) of the system call as `sys_argstr` has it. `SysEnter` only."
    SysRetstr "sys_retstr" () -> Str[47], K, pure; "The system call's result as text: number, hex, or `-2 (ENOENT)`. `SysExit` only."
    RegArg "reg_arg" (Long) -> Long, K, pure; "Register argument n (constant, from 1) by the convention of system calls or functions, as `int_arg(n)` reads it; at a system call's return, 1 is the result. System-call events and code only."
    PerfCount "perf_count" (Long, Long) -> Long, K, fails; "How many events of a perf event (its type and config, constants) the current thread has had since the session began."
    UserMode "user_mode" () -> Long, K, pure; "1 when the interrupted context was user mode (perf events), 0 in other events."
    Verdict "verdict" () -> Long, K; "Whether the packet goes on: 1, or 0 where it is dropped. `Netfilter` only."
    VerdictSet "verdict_set" (Long), K, fails; "Drops the packet (0), or lets it go on (1), when the handler ends; anything else fails. `Netfilter` only."
    // The current task.
    Pid "pid" () -> Long, KC, pure; "Process id (thread group), in the initial namespace. In the controller: its own."
    Tid "tid" () -> Long, KC, pure; "Thread id."
    Ppid "ppid" () -> Long, KC, pure; "Parent's process id."
    Pgrp "pgrp" () -> Long, KC, pure; "Process group id."
    Sid "sid" () -> Long, KC, pure; "Session id."
    Uid "uid" () -> Long, KC, pure; "Real user id."
    Euid "euid" () -> Long, KC, pure; "Effective user id."
    Gid "gid" () -> Long, KC, pure; "Real group id."
    Egid "egid" () -> Long, KC, pure; "Effective group id."
    Execname "execname" () -> Str[15], KC, pure; "Name of the current task (comm)."
    TaskCurrent "task_current" () -> Long, KC, pure; "Address of the current task_struct. In the controller only where a process that is there is the current one, as all that reads user memory."
    InCall "in_call" () -> Long, K, pure; "Number of the system call that the current thread is in; below 0 where an interrupt or a fault has brought it into the kernel. A thread of the kernel's own is in call 0."
    CgroupId "cgroup_id" () -> Long, K, pure; "Number of the current task's control group (v2), the inode of its folder."
    CgroupAncestor "cgroup_ancestor" (Long) -> Long, K, pure; "Number of the control group (v2) that the current task's is in or is itself, so many steps below the root; 0 where its own is higher."
    Cmdline "cmdline" () -> Str, KC; "Command line of the current process, arguments joined by spaces. In kernel handlers only what is in memory: \"\" where its first page is not."
    Cpu "cpu" () -> Long, KC, pure; "Current CPU."
    // Time.
    RealNs "real_ns" () -> Long, KC; "Wall-clock time, nanoseconds since 1970."
    MonoNs "mono_ns" () -> Long, KC; "CLOCK_MONOTONIC in nanoseconds."
    CpuClock "cpu_clock" (Long) -> Long, KC; "Scheduler clock of a CPU in nanoseconds (monotonic clock here)."
    Jiffies "jiffies" () -> Long, KC; "The kernel's jiffies counter."
    Cycles "cycles" () -> Long, KC; "A counter of processor cycles for differences of times. Kernel handlers have no instruction for it: both executors give the monotonic clock, a cycle a nanosecond."
    TzOffset "tz_offset" () -> Long, KC, pure; "Seconds WEST of UTC of the controller's time zone at start."
    TzName "tz_name" () -> Str[15], KC, pure; "Abbreviation of the controller's time zone at start."
    // The session.
    Exit "exit" (), KC; "Asks the session to end after this handler."
    Target "target" () -> Long, KC, pure; "Pid given with -x or started with -c, or 0."
    InputText "input_text" () -> Str, C, pure; "The line or character of an input probe."
    InTree "in_tree" (Long) -> Long, KC, pure; "Whether a process, by its number, is the target or descends from it; 0 where there is no target."
    ValueText "value_text" () -> Str, C; "What was written to the file of a `procfs` probe, or what its reader will get so far."
    ValueSet "value_set" (Str), C; "What the reader of the file will get."
    ValueAppend "value_append" (Str), C; "More that the reader of the file will get, up to the probe's size."
    Rand "rand" () -> Long, KC; "Random 32-bit number."
    Ftrace "ftrace" (Str), C; "Writes to the kernel's trace buffer."
    // Memory.
    KernelStr "kernel_str" (Long, Long) -> Str, KC, fails; "String at a kernel address, at most n bytes (constant) kept; fails on a bad address."
    UserStr "user_str" (Long, Long) -> Str, KC, fails; "String at a user address of the current task, at most n bytes (constant) kept; fails on a bad address."
    KernelBuf "kernel_buf" (Long, Long) -> Str, K, fails; "Bytes at a kernel address up to n or a NUL."
    UserBuf "user_buf" (Long, Long) -> Str, KC, fails; "Bytes at a user address up to n or a NUL."
    KernelQuoted "kernel_quoted" (Long, Long, Long) -> Str, KC, fails; "n bytes at a kernel address, NULs among them, escaped and in quotes, in at most so many bytes as the third says."
    UserQuoted "user_quoted" (Long, Long, Long) -> Str, KC, fails; "The same at a user address of the current task."
    KernelUtf "kernel_utf" (Long, Long, Long) -> Str, KC, fails; "Text in units of n bytes (constant, 2 or 4) at a kernel address, up to a unit of 0, as UTF-8 of less bytes than the third (constant) says; fails on a bad address, and where the units are no text."
    UserUtf "user_utf" (Long, Long, Long) -> Str, KC, fails; "The same at a user address of the current task."
    // Strings.
    Strlen "strlen" (Str) -> Long, KC, pure; "Length in bytes."
    Substr "substr" (Str, Long, Long) -> Str, KC, pure; "Bytes start..start+len; out of range gives the part that exists."
    Stringat "stringat" (Str, Long) -> Long, KC, pure; "Byte at a position as a number; 0 past the end."
    Isinstr "isinstr" (Str, Str) -> Long, KC, pure; "1 when the second occurs in the first."
    Strpos "strpos" (Str, Str) -> Long, KC, pure; "Position of the second in the first, -1 when absent."
    StrReplace "str_replace" (Str, Str, Str) -> Str, KC, pure; "All occurrences of the second in the first replaced by the third."
    Strtol "strtol" (Str, Long) -> Long, KC, pure; "Number at the start of a string, modulo 2^64; as the kernel's simple_strtol: no blanks, no plus, digits up to f."
    StrToFp "str_to_fp" (Str) -> Long, KC, pure; "The bits of the floating-point number that the text begins with, correctly rounded: spaces, a sign, `inf`, `nan` or digits with a point and an exponent; otherwise 0."
    Tokenize "tokenize" (Str, Str) -> Str, KC; "Next token of the string given first (or of the one before, when empty), split at any byte of the second."
    TextStrn "text_strn" (Str, Long, Long) -> Str, KC, pure; "Unprintable bytes escaped as in C, in at most so many bytes; in quotes where the third is not 0, with `...` behind them where it does not fit."
    // The last match.
    MatchGroups "match_groups" () -> Long, KC; "Groups of the last regular expression that was matched with `keep` in this run of the handler; -1 when it did not match, -2 when there was none yet."
    MatchGroup "match_group" (Long) -> Str, KC; "The text of group n of the last match, 0 for all of it; nothing where the group took no part or there is no such group."
    // Symbols.
    SymName "sym_name" (Long) -> Str, KC, pure; "Kernel symbol of an address, or the address in hex."
    SymData "sym_data" (Long) -> Str, KC, pure; "`name+0xoff/0xsize [module]` of a kernel address, `[kernel]` for the kernel itself; or the address in hex."
    KernelStack "kernel_stack" (Long) -> Str, K, pure; "Addresses of the kernel's stack at the event, `0x` and hex, with spaces between; at most so many, all where -1, all with a space behind each where -2. The machinery of the probe is left out."
    KernelFrame "kernel_frame" (Long) -> Long, K, pure; "Address n of the kernel's stack at the event, from 0; 0 where it is not that deep."
    UserStack "user_stack" (Long) -> Str, K, pure; "Addresses of the current program's stack, `0x` and hex, with spaces between; at most so many, all where -1, all with a space behind each where -2. Nothing where there is no program. The rest of a stack that only the controller can walk is a mark."
    StackWords "stack_words" (Str) -> Str, K, pure; "A text of addresses, for who knows that the last word can be a mark for the rest of the stack."
    StackMark "stack_mark" (Str) -> Long, K, pure; "Whether a word of a text of addresses is such a mark."
    StackRest "stack_rest" (Str, Str) -> Str, K, pure; "Of such a word, from the text given second, the mark for a line of each address, with its symbol."
    UserFrame "user_frame" (Long) -> Long, K, pure; "Address n of the current program's stack, from 0; 0 where it is not that deep."
    UserSymbolic "user_symbolic" (Long, Long) -> Str, K, pure; "The text of the current program's stack from frame n on, in forms with addresses 16 of them, or of address n in it, in a form (constant, see `spile_bpf::layout::Symbolic`); a mark as `symbolic` makes it."
    UserSymbolicFrom "user_symbolic_from" (Long, Long, Long, Long, Long) -> Str, K, pure; "The same of the stack only, in the forms of stacks, as it is where the program is at the third and has the fourth as stack pointer, the fifth as frame pointer."
    Interrupted "interrupted" () -> Str, K, pure; "Name of the function that a perf event or an access to watched memory interrupted: of the kernel as text, of a program as a mark. Address in hex where there is none."
    KernelSymbolic "kernel_symbolic" (Long, Long) -> Str, K, pure; "The text of the kernel's stack from frame n on, 16 of them, in a form (constant, see `spile_bpf::layout::Symbolic`); a mark as `symbolic` makes it."
    Symbolic "symbolic" (Long, Str) -> Str, KC, pure; "The text of a stack, which only the controller can make: a form (constant, see `spile_bpf::layout::Symbolic`) and what it is made of. In kernel handlers a mark that stands for it, equal for what is equal."
    // More of the current task.
    TaskHere "task_here" () -> Long, KC, pure; "Address of the current task_struct; of the controller's own where no other process is the current one."
    TaskSpace "task_space" () -> Long, KC, pure; "Where the addresses end that the current process can have: at most 4 GB in 32-bit programs. 0 in threads of the kernel, and in the controller for itself."
    UserNsLevel "user_ns_level" () -> Long, KC, pure; "How far the current task's user namespace is below the initial one. In the controller for itself 0: its numbers of users are those of its own."
    // Output of whole structures.
    MetricText "metric_text" (Str) -> Str, C, pure; "Escapes a label value of the Prometheus text format (backslash, quote, newline)."
}
