//! What a family of probe points is, and what a matched point means.

use std::sync::Arc;

use spile_ir::{Event, TaskEvent};
use spile_syntax::ast::{Component, Literal};
use spile_syntax::diag::DiagResult;

use super::code::CodeMatch;
use crate::facts::Facts;
use crate::probe::handler::{HandlerContext, HandlerKind};

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

impl ArgSpec {
    /// The argument as the documentation writes it, the literals with their types, and the rule in messages.
    fn forms(self) -> (&'static str, &'static [&'static str], &'static str) {
        match self {
            ArgSpec::None => ("", &[""], "takes no argument"),
            ArgSpec::OptNum => ("[(N)]", &["", NUM], "takes a number or nothing"),
            ArgSpec::Num => ("(N)", &[NUM], "needs a number"),
            ArgSpec::Str => ("(\"NAME\")", &[STR], "needs a string"),
            ArgSpec::OptStr => ("[(\"NAME\")]", &["", STR], "takes a string or nothing"),
            ArgSpec::StrOrNum => ("(\"NAME\"|N)", &[STR, NUM], "needs a string or a number"),
            ArgSpec::Any => {
                let rule = "takes a string, a number or nothing";
                ("[(\"NAME\"|N)]", &["", STR, NUM], rule)
            }
        }
    }

    /// The rule that a wrong argument breaks, for messages.
    pub(crate) fn rule(self) -> &'static str {
        self.forms().2
    }

    /// Whether the argument of a component fits.
    pub(super) fn fits(self, c: &Component) -> bool {
        let literal = match c.arg {
            None => "",
            Some(Literal::Num(_)) => NUM,
            Some(Literal::Str(_)) => STR,
        };
        self.forms().1.contains(&literal)
    }
}

const NUM: &str = "(number)";
const STR: &str = "(string)";

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

impl ComponentSpec {
    /// Its word; `None` where several names stand for it.
    pub(crate) fn word(&self) -> Option<&'static str> {
        match self.0 {
            ComponentName::Is(word) => Some(word),
            ComponentName::Syscall | ComponentName::PerfEvent => None,
        }
    }

    /// The component as the documentation writes it.
    pub(super) fn text(&self) -> String {
        [self.word().unwrap_or("NAME"), self.1.forms().0].concat()
    }

    /// The component with each type of literal that it takes.
    pub(super) fn typed(&self) -> Vec<String> {
        let word = self.word().unwrap_or("NAME");
        let literals = self.1.forms().1.iter();
        literals.map(|literal| format!("{word}{literal}")).collect()
    }
}

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
    /// What sees its events.
    pub seen: SeenBy,
    /// One line for `--dump-probe-types`.
    pub doc: &'static str,
}

/// What sees the events of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeenBy {
    /// The session itself, whatever the host of its handlers.
    Session,
    /// The kernel, and the target's processes for themselves.
    Both,
    /// The kernel; processes for themselves, where the point names a process.
    Named,
    /// The kernel.
    Kernel,
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
    /// names. Where processes are the host, the event itself, if there is one.
    Process(&'static str, Option<TaskEvent>),
}

/// The meaning of a matched point.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PointMatch {
    /// One event, its point, and the meaning of names there.
    Event {
        event: Event,
        point: String,
        ctx: HandlerContext,
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

impl PointMatch {
    /// An event without any variables.
    pub(crate) fn plain(event: Event, point: String, kind: HandlerKind) -> Vec<PointMatch> {
        let ctx = HandlerContext::empty(kind);
        vec![PointMatch::Event { event, point, ctx }]
    }
}
