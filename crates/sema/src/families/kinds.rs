//! What a family of probe points is, and what a matched point means.

use std::sync::Arc;

use spile_ir::Event;
use spile_syntax::ast::Component;
use spile_syntax::diag::DiagResult;

use super::code::CodeMatch;
use crate::facts::Facts;
use crate::probe::handler::{HandlerKind, TargetVar};

/// The argument of a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgSpec {
    /// Nothing.
    None,
    /// A number or nothing.
    OptNum,
    /// A number.
    Num,
    /// A string.
    Str,
    /// A string or nothing.
    OptStr,
    /// A string or a number.
    StrOrNum,
    /// A string, a number or nothing.
    Any,
}

/// The name of a component in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComponentName {
    /// This word.
    Is(&'static str),
    /// The name of a system call.
    Syscall,
    /// The name of a perf event, in the group that the component before names.
    PerfEvent,
}

/// A component: its name and its argument.
#[derive(Debug, Clone, Copy)]
pub struct ComponentSpec(pub ComponentName, pub ArgSpec);

/// A family of probe points.
#[derive(Debug)]
pub struct Family {
    /// The components.
    pub comps: &'static [ComponentSpec],
    /// Components that can follow; a point has at most one of them.
    pub options: &'static [ComponentSpec],
    /// The way to make the event.
    pub(crate) make: EventMaker,
    /// The location where its handlers run, and their variables.
    pub context: HandlerKind,
    /// One line for `--dump-probe-types`.
    pub doc: &'static str,
}

/// The way to make an event from a point.
#[derive(Debug, Clone, Copy)]
pub(crate) enum EventMaker {
    /// `begin`, `end`, `error` with a sequence number.
    Ordered(fn(i64) -> Event),
    /// An event without arguments.
    Plain(fn() -> Event),
    /// `timer.UNIT(N)`: nanoseconds of a unit.
    Timer(u64),
    /// `timer.jiffies(N)`
    Jiffies,
    /// `timer.hz(N)`
    Hz,
    /// A tick on every CPU, CONFIG_HZ times a second.
    Tick,
    /// `timer.profile.freq.hz(N)`
    ProfileHz,
    /// The points that all components mean together.
    Points(fn(&dyn Facts, &[Component]) -> DiagResult<Vec<PointMatch>>),
    /// `kernel.trace("name")`
    Trace,
    /// System calls by name; `true` for their return.
    Syscall(bool),
    /// All system calls; `true` for their return.
    SyscallAny(bool),
    /// Locations in code: made from all components.
    Code,
    /// Events of processes: this alias of the library, in the processes that the first component
    /// names.
    Process(&'static str),
}

/// The meaning of a matched point.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PointMatch {
    /// One event and its point.
    Event {
        event: Event,
        point: String,
        kind: HandlerKind,
    },
    /// A counter of `@perf`, and the program whose events it counts, as the script names it.
    Counter {
        event: Event,
        point: String,
        program: Option<Arc<str>>,
    },
    /// A location where the kernel calls BPF programs, with the arguments it passes.
    Hook {
        event: Event,
        point: String,
        name: Arc<str>,
        targets: Vec<TargetVar>,
    },
    /// A tracepoint.
    Trace {
        name: Arc<str>,
        /// `Some` where the script gives the subsystem, also as a pattern.
        system: Option<Arc<str>>,
    },
    /// System calls: indexes into [`crate::facts::MachineFacts::syscalls`].
    Syscalls { calls: Vec<usize>, ret: bool },
    /// All system calls.
    SyscallAny { ret: bool },
    /// Locations in code.
    Code(CodeMatch),
}
