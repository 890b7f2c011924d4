//! The table of the families.

use spile_ir::{Event, TaskEvent};

use super::kinds::{ArgSpec, ComponentName, ComponentSpec, EventMaker, Family, SeenBy};
use super::{data, hooks, perf, procfs};
use crate::probe::handler::HandlerKind;

const fn w(word: &'static str) -> ComponentSpec {
    ComponentSpec(ComponentName::Is(word), ArgSpec::None)
}
const fn n(word: &'static str) -> ComponentSpec {
    ComponentSpec(ComponentName::Is(word), ArgSpec::Num)
}
const fn o(word: &'static str) -> ComponentSpec {
    ComponentSpec(ComponentName::Is(word), ArgSpec::OptNum)
}
const fn s(word: &'static str) -> ComponentSpec {
    ComponentSpec(ComponentName::Is(word), ArgSpec::Str)
}
const CALL: ComponentSpec = ComponentSpec(ComponentName::Syscall, ArgSpec::None);
const PERF: ComponentSpec = ComponentSpec(ComponentName::PerfEvent, ArgSpec::None);
const RANDOM: &[ComponentSpec] = &[n("randomize")];
const PROCESS: ComponentSpec = ComponentSpec(ComponentName::Is("process"), ArgSpec::Any);
const MODULE: ComponentSpec = s("module");
const MAXACTIVE: &[ComponentSpec] = &[n("maxactive")];
const LIBRARY: ComponentSpec = s("library");
const PROVIDER: ComponentSpec = s("provider");
const MARK: ComponentSpec = s("mark");
const STATEMENT: ComponentSpec = ComponentSpec(ComponentName::Is("statement"), ArgSpec::StrOrNum);
const FUNCTION: ComponentSpec = ComponentSpec(ComponentName::Is("function"), ArgSpec::StrOrNum);
const DATA: ComponentSpec = ComponentSpec(ComponentName::Is("data"), ArgSpec::StrOrNum);
const PLT: ComponentSpec = ComponentSpec(ComponentName::Is("plt"), ArgSpec::OptStr);
const OF_FUNCTION: &[ComponentSpec] = &[
    w("call"),
    w("return"),
    w("exported"),
    w("inline"),
    o("callees"),
    s("label"),
];
const OF_CALLEE: &[ComponentSpec] = &[w("call"), w("return")];
const OF_STATEMENT: &[ComponentSpec] = &[w("nearest"), w("absolute")];
const OF_PERF: &[ComponentSpec] = &[n("sample"), n("hz"), PROCESS, s("counter")];
const OF_PROCESS: &[ComponentSpec] = &[s("counter")];
const OF_SAMPLE: &[ComponentSpec] = &[PROCESS];
const PROCFS: ComponentSpec = ComponentSpec(ComponentName::Is("procfs"), ArgSpec::OptStr);
const PRIORITY: &[ComponentSpec] = &[ComponentSpec(
    ComponentName::Is("priority"),
    ArgSpec::StrOrNum,
)];
const MAXSIZE: &[ComponentSpec] = &[n("maxsize")];

const NS: u64 = 1;
const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// Nanoseconds of a second.
pub(super) const S: u64 = 1_000_000_000;

macro_rules! families {
    (
        calls [$($name:literal),*];
        $([$($comp:expr),*] $options:expr, $make:expr, $ctx:ident, $seen:ident, $doc:literal;)*
    ) => {
        /// The first words of points at system calls; all mean the same.
        pub(crate) const CALL_FAMILIES: &[&str] = &[$($name),*];

        /// All families.
        pub static FAMILIES: &[Family] = &[
            $(
                Family {
                    comps: &[w($name), CALL],
                    options: &[],
                    make: EventMaker::Syscall(false),
                    context: HandlerKind::SysEnter,
                    seen: SeenBy::Both,
                    doc: "entry to a system call",
                },
                Family {
                    comps: &[w($name), CALL, w("return")],
                    options: MAXACTIVE,
                    make: EventMaker::Syscall(true),
                    context: HandlerKind::SysExit,
                    seen: SeenBy::Both,
                    doc: "return from a system call",
                },
            )*
            $(Family {
                comps: &[$($comp),*],
                options: $options,
                make: $make,
                context: HandlerKind::$ctx,
                seen: SeenBy::$seen,
                doc: $doc,
            }),*
        ];
    };
}

families! {
    calls ["syscall", "nd_syscall", "nd1_syscall", "nd2_syscall", "dw_syscall", "tp_syscall"];
    [o("begin")] &[], EventMaker::Ordered(Event::Begin), Controller, Session, "at the start, in ascending order of N";
    [o("end")] &[], EventMaker::Ordered(Event::End), Controller, Session, "at the end, in ascending order of N";
    [o("error")] &[], EventMaker::Ordered(Event::Error), Controller, Session, "at the end, if an error ended the session";
    [w("never")] &[], EventMaker::Plain(|| Event::Never), Controller, Session, "never: the handler is checked, but does not run";
    [w("prometheus")] &[], EventMaker::Plain(|| Event::Prometheus), Scrape, Session, "at each request for metrics";
    [w("input"), w("char")] &[], EventMaker::Plain(|| Event::InputChar), Controller, Session, "a character of standard input";
    [w("input"), w("line")] &[], EventMaker::Plain(|| Event::InputLine), Controller, Session, "a line of standard input";
    [PROCFS, w("read")] MAXSIZE, EventMaker::Points(procfs::resolve), ProcfsRead, Session, "a process reads a file in the session's directory";
    [PROCFS, w("write")] &[], EventMaker::Points(procfs::resolve), ProcfsWrite, Session, "a process writes to a file in the session's directory";
    [PROCFS, n("umask"), w("read")] MAXSIZE, EventMaker::Points(procfs::resolve), ProcfsRead, Session, "a process reads a file with this mode";
    [PROCFS, n("umask"), w("write")] &[], EventMaker::Points(procfs::resolve), ProcfsWrite, Session, "a process writes to a file with this mode";
    [w("timer"), n("s")] RANDOM, EventMaker::Timer(S), Controller, Session, "every N seconds";
    [w("timer"), n("sec")] RANDOM, EventMaker::Timer(S), Controller, Session, "every N seconds";
    [w("timer"), n("ms")] RANDOM, EventMaker::Timer(MS), Controller, Session, "every N milliseconds";
    [w("timer"), n("msec")] RANDOM, EventMaker::Timer(MS), Controller, Session, "every N milliseconds";
    [w("timer"), n("us")] RANDOM, EventMaker::Timer(US), Controller, Session, "every N microseconds";
    [w("timer"), n("usec")] RANDOM, EventMaker::Timer(US), Controller, Session, "every N microseconds";
    [w("timer"), n("ns")] RANDOM, EventMaker::Timer(NS), Controller, Session, "every N nanoseconds";
    [w("timer"), n("nsec")] RANDOM, EventMaker::Timer(NS), Controller, Session, "every N nanoseconds";
    [w("timer"), n("jiffies")] RANDOM, EventMaker::Jiffies, Controller, Session, "every N kernel ticks";
    [w("timer"), n("hz")] &[], EventMaker::Hz, Controller, Session, "N times a second";
    [w("timer"), w("profile")] &[], EventMaker::Tick, Perf, Both, "on every CPU, at the kernel's tick rate";
    [w("timer"), w("profile"), w("tick")] &[], EventMaker::Tick, Perf, Both, "on every CPU, at the kernel's tick rate";
    [w("timer"), w("profile"), w("freq"), n("hz")] &[], EventMaker::ProfileHz, Perf, Both, "on every CPU, N times a second";
    [w("perf"), n("type"), n("config")] OF_PERF, EventMaker::Points(perf::resolve_raw), Perf, Named, "a perf event by its numbers";
    [w("perf"), n("type"), n("config"), PROCESS] OF_PROCESS, EventMaker::Points(perf::resolve_raw), Perf, Both, "a perf event by its numbers, in a program";
    [w("perf"), n("type"), n("config"), n("sample")] OF_SAMPLE, EventMaker::Points(perf::resolve_raw), Perf, Named, "a perf event by its numbers, in a program";
    [w("perf"), n("type"), n("config"), n("hz")] OF_SAMPLE, EventMaker::Points(perf::resolve_raw), Perf, Named, "a perf event by its numbers, in a program";
    [w("perf"), w("sw"), PERF] OF_PERF, EventMaker::Points(perf::resolve_named), Perf, Named, "a software perf event";
    [w("perf"), w("sw"), PERF, PROCESS] OF_PROCESS, EventMaker::Points(perf::resolve_named), Perf, Both, "a software perf event, in a program";
    [w("perf"), w("sw"), PERF, n("sample")] OF_SAMPLE, EventMaker::Points(perf::resolve_named), Perf, Named, "a software perf event, in a program";
    [w("perf"), w("sw"), PERF, n("hz")] OF_SAMPLE, EventMaker::Points(perf::resolve_named), Perf, Named, "a software perf event, in a program";
    [w("perf"), w("hw"), PERF] OF_PERF, EventMaker::Points(perf::resolve_named), Perf, Named, "a hardware perf event";
    [w("perf"), w("hw"), PERF, PROCESS] OF_PROCESS, EventMaker::Points(perf::resolve_named), Perf, Both, "a hardware perf event, in a program";
    [w("perf"), w("hw"), PERF, n("sample")] OF_SAMPLE, EventMaker::Points(perf::resolve_named), Perf, Named, "a hardware perf event, in a program";
    [w("perf"), w("hw"), PERF, n("hz")] OF_SAMPLE, EventMaker::Points(perf::resolve_named), Perf, Named, "a hardware perf event, in a program";
    [w("netfilter"), s("hook"), s("pf")] PRIORITY, EventMaker::Points(hooks::netfilter), Hook, Kernel, "a packet at a netfilter hook";
    [w("netfilter"), s("pf"), s("hook")] PRIORITY, EventMaker::Points(hooks::netfilter), Hook, Kernel, "a packet at a netfilter hook";
    [s("lsm")] &[], EventMaker::Points(hooks::lsm), Hook, Kernel, "a decision of the security modules, by the hook's name";
    [w("kernel"), s("lsm")] &[], EventMaker::Points(hooks::lsm), Hook, Kernel, "a decision of the security modules, by the hook's name";
    [w("kernel"), s("trace")] &[], EventMaker::Trace, Tracepoint, Kernel, "a tracepoint, by NAME or SYSTEM:NAME";
    [w("kernel"), s("tracepoint")] &[], EventMaker::Trace, Tracepoint, Kernel, "a tracepoint, by NAME or SYSTEM:NAME";
    [MODULE, s("tracepoint")] &[], EventMaker::Trace, Tracepoint, Kernel, "a tracepoint of a kernel module";
    [MODULE, s("trace")] &[], EventMaker::Trace, Tracepoint, Kernel, "a tracepoint of a kernel module";
    [w("syscall_any")] &[], EventMaker::SyscallAny(false), SysEnter, Both, "entry to any system call";
    [w("syscall_any"), w("return")] MAXACTIVE, EventMaker::SyscallAny(true), SysExit, Both, "return from any system call";
    [w("kernel"), FUNCTION] OF_FUNCTION, EventMaker::Code, KernelCode, Kernel, "a kernel function, by NAME or NAME@FILE:LINE";
    [w("kernel"), FUNCTION, w("return")] MAXACTIVE, EventMaker::Code, KernelCode, Kernel, "the return of a kernel function";
    [w("kernel"), FUNCTION, s("callee")] OF_CALLEE, EventMaker::Code, KernelCode, Kernel, "a function that a kernel function calls";
    [w("kernel"), STATEMENT] OF_STATEMENT, EventMaker::Code, KernelCode, Kernel, "a source line of the kernel, by NAME@FILE:LINE, or an address";
    [MODULE, FUNCTION] OF_FUNCTION, EventMaker::Code, KernelCode, Kernel, "a function of a kernel module";
    [MODULE, FUNCTION, w("return")] MAXACTIVE, EventMaker::Code, KernelCode, Kernel, "the return of a function of a kernel module";
    [MODULE, FUNCTION, s("callee")] OF_CALLEE, EventMaker::Code, KernelCode, Kernel, "a function that a module's function calls";
    [MODULE, STATEMENT] OF_STATEMENT, EventMaker::Code, KernelCode, Kernel, "a source line of a kernel module, or an address";
    [w("kprobe"), s("function")] &[w("call")], EventMaker::Code, KernelCode, Kernel, "a kernel function, by name";
    [w("kprobe"), s("function"), w("return")] MAXACTIVE, EventMaker::Code, KernelCode, Kernel, "its return";
    [w("kprobe"), MODULE, s("function")] &[w("call")], EventMaker::Code, KernelCode, Kernel, "a function of a kernel module, by name";
    [w("kprobe"), MODULE, s("function"), w("return")] MAXACTIVE, EventMaker::Code, KernelCode, Kernel, "its return";
    [w("kprobe"), STATEMENT, w("absolute")] &[], EventMaker::Code, KernelCode, Kernel, "an address in the kernel";
    [PROCESS, FUNCTION] OF_FUNCTION, EventMaker::Code, UserCode, Both, "a function of a program, by NAME or NAME@FILE:LINE";
    [PROCESS, LIBRARY, FUNCTION] OF_FUNCTION, EventMaker::Code, UserCode, Both, "a function of a program's library";
    [PROCESS, FUNCTION, w("return")] MAXACTIVE, EventMaker::Code, UserCode, Both, "the return of a function of a program";
    [PROCESS, LIBRARY, FUNCTION, w("return")] MAXACTIVE, EventMaker::Code, UserCode, Both, "the return of a function of a program's library";
    [PROCESS, FUNCTION, s("callee")] OF_CALLEE, EventMaker::Code, UserCode, Both, "a function that a program's function calls";
    [PROCESS, LIBRARY, FUNCTION, s("callee")] OF_CALLEE, EventMaker::Code, UserCode, Both, "a function that a library's function calls";
    [PROCESS, STATEMENT] OF_STATEMENT, EventMaker::Code, UserCode, Both, "a source line of a program, by NAME@FILE:LINE, or an address";
    [PROCESS, LIBRARY, STATEMENT] OF_STATEMENT, EventMaker::Code, UserCode, Both, "a source line of a program's library";
    [PROCESS, MARK] &[], EventMaker::Code, UserCode, Both, "a static marker of a program";
    [PROCESS, PROVIDER, MARK] &[], EventMaker::Code, UserCode, Both, "a static marker of a provider in a program";
    [PROCESS, LIBRARY, MARK] &[], EventMaker::Code, UserCode, Both, "a static marker of a program's library";
    [PROCESS, LIBRARY, PROVIDER, MARK] &[], EventMaker::Code, UserCode, Both, "a static marker of a provider in a program's library";
    [PROCESS, PLT] &[w("return")], EventMaker::Code, UserCode, Both, "a program's calls into its libraries";
    [PROCESS, LIBRARY, PLT] &[w("return")], EventMaker::Code, UserCode, Both, "a library's calls into other libraries";
    [w("kernel"), DATA, w("write")] &[], EventMaker::Points(data::resolve), Perf, Kernel, "writes to kernel memory, by address or name";
    [w("kernel"), DATA, w("rw")] &[], EventMaker::Points(data::resolve), Perf, Kernel, "reads and writes of kernel memory";
    [w("kernel"), DATA, n("length"), w("write")] &[], EventMaker::Points(data::resolve), Perf, Kernel, "writes to N bytes of kernel memory";
    [w("kernel"), DATA, n("length"), w("rw")] &[], EventMaker::Points(data::resolve), Perf, Kernel, "reads and writes of N bytes of kernel memory";
    [n("process"), DATA, w("write")] &[], EventMaker::Points(data::resolve), Perf, Kernel, "writes to a process's memory, by address or name";
    [n("process"), DATA, w("rw")] &[], EventMaker::Points(data::resolve), Perf, Kernel, "reads and writes of a process's memory";
    [n("process"), DATA, n("length"), w("write")] &[], EventMaker::Points(data::resolve), Perf, Kernel, "writes to N bytes of a process's memory";
    [n("process"), DATA, n("length"), w("rw")] &[], EventMaker::Points(data::resolve), Perf, Kernel, "reads and writes of N bytes of a process's memory";
    [s("process"), s("data"), w("write")] &[], EventMaker::Points(data::resolve), Perf, Kernel, "writes to a program's variable, in all its processes";
    [s("process"), s("data"), w("rw")] &[], EventMaker::Points(data::resolve), Perf, Kernel, "reads and writes of a program's variable";
    [s("process"), s("data"), n("length"), w("write")] &[], EventMaker::Points(data::resolve), Perf, Kernel, "writes to N bytes of a program's variable";
    [s("process"), s("data"), n("length"), w("rw")] &[], EventMaker::Points(data::resolve), Perf, Kernel, "reads and writes of N bytes of a program's variable";
    [PROCESS, w("begin")] &[], EventMaker::Process("__process_begin", Some(TaskEvent::ProcessBegin)), Tracepoint, Both, "a process begins, by fork or by executing a program";
    [PROCESS, w("end")] &[], EventMaker::Process("__process_end", Some(TaskEvent::ProcessEnd)), Tracepoint, Both, "a process ends";
    [PROCESS, w("thread"), w("begin")] &[], EventMaker::Process("__thread_begin", Some(TaskEvent::ThreadBegin)), SysExit, Both, "a thread begins";
    [PROCESS, w("thread"), w("end")] &[], EventMaker::Process("__thread_end", Some(TaskEvent::ThreadEnd)), Tracepoint, Both, "a thread ends";
    [PROCESS, w("syscall")] &[], EventMaker::Process("__process_syscall", None), SysEnter, Both, "entry to any system call";
    [PROCESS, w("syscall"), w("return")] &[], EventMaker::Process("__process_syscall_return", None), SysExit, Both, "return from any system call";
}
