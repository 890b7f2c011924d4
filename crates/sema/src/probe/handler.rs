//! Handlers: probes after their points are resolved.

use std::sync::Arc;

use spile_ir::Event;
use spile_syntax::ast::{Expr, FileId, Name, Span, StmtBlock};

use crate::ctype::CTy;
use crate::facts::{COUNT_OF, ProbeModule, TracepointArg, VarKind, VarLocation};

/// A handler: its event, its bodies and its context.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeHandler {
    /// The event that it is attached to.
    pub event: Event,
    /// `pp()`: the probe point with aliases and wildcards resolved. A handler that serves
    /// several points has the pattern as written.
    pub point: Arc<str>,
    /// `pn()`: the probe point as the script's alias names it.
    pub name: Arc<str>,
    /// Conditions of the point and of its aliases; the handler runs only if all hold.
    pub conditions: Vec<(Arc<Expr>, FileId)>,
    /// The bodies in the order in which they run: prologues of aliases, the innermost alias first,
    /// then the script's body, then epilogues, the outermost alias first. All share one scope of
    /// local variables; each part resolves globals and functions for itself. `next` in any of them
    /// ends all.
    pub parts: Vec<HandlerPart>,
    /// The meaning of `$x` and of predefined variables.
    pub ctx: HandlerContext,
    /// The probe's point in the script.
    pub span: Span,
    /// Number of points that this handler serves.
    pub points: u32,
    /// The probe point as written, where the handler serves several.
    pub pattern: Arc<str>,
}

/// A body of a handler, and the file whose private names it sees.
#[derive(Debug, Clone, PartialEq)]
pub struct HandlerPart {
    /// The statements.
    pub body: Arc<StmtBlock>,
    /// The file.
    pub file: FileId,
}

/// The family of a handler's context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HandlerKind {
    /// In the controller: no context variables.
    Controller,
    /// A tracepoint.
    Tracepoint,
    /// Entry to a system call.
    SysEnter,
    /// Return from a system call.
    SysExit,
    /// A perf event.
    Perf,
    /// A netfilter or LSM hook.
    Hook,
    /// In the controller: `$value` can be set.
    ProcfsRead,
    /// In the controller: `$value` can be read.
    ProcfsWrite,
    /// In the controller: `$value` is the answer so far, which printing extends, too.
    Scrape,
    /// Code of the kernel.
    KernelCode,
    /// Code of a program.
    UserCode,
}

/// The meaning of names at a probe point.
#[derive(Debug, Clone, PartialEq)]
pub struct HandlerContext {
    /// The family.
    pub kind: HandlerKind,
    /// Predefined plain variables that the bodies mention, in the order in which they must be set.
    /// Analysis sets each before the first part runs: `name = init`. They are ordinary local
    /// variables, to which scripts may assign.
    pub vars: Vec<PlainVar>,
    /// The `$` variables. For tracepoints, and for handlers of several system calls, only if the
    /// bodies mention any.
    pub targets: Vec<TargetVar>,
    /// `$$name`: the name of the tracepoint, the system call, the function or the marker. For a
    /// counter: the program whose events it counts.
    pub name: Option<Arc<str>>,
    /// `$$system`: the tracepoint's subsystem, or the marker's provider.
    pub system: Option<Arc<str>>,
    /// For code probes whose bodies ask: the names of each location.
    pub sites: Option<Arc<SiteNames>>,
    /// For code probes: the module, if all locations are in one.
    pub module: Option<ProbeModule>,
    /// For code probes that run at the location itself: the numbers of the locations and their addresses
    /// as linked.
    pub addresses: Arc<[(u32, u64)]>,
    /// The reason why there are no `$` variables, where it is known.
    pub missing: Option<Arc<str>>,
}

/// Names of all locations of a probe point, by location number. Handlers of some of the locations share it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SiteNames {
    /// `pp()`
    pub points: Vec<Arc<str>>,
    /// `ppfunc()`, and `$$name`.
    pub functions: Vec<Arc<str>>,
    /// Length in bytes of the longest point and of the longest function. Thousands of handlers may
    /// share these names, so it is computed once.
    pub longest: [usize; 2],
}

impl SiteNames {
    /// Makes the value from the names of points and of functions.
    pub fn new(points: Vec<Arc<str>>, functions: Vec<Arc<str>>) -> SiteNames {
        let longest = |names: &[Arc<str>]| names.iter().map(|n| n.len()).max().unwrap_or(0);
        SiteNames {
            longest: [longest(&points), longest(&functions)],
            points,
            functions,
        }
    }
}

/// A predefined plain variable.
#[derive(Debug, Clone, PartialEq)]
pub struct PlainVar {
    /// Its name.
    pub name: Name,
    /// Its initial value: calls of `__intrinsics` and of public tapset functions, literals, and
    /// variables that stand earlier in the list.
    pub init: Expr,
}

/// A `$` variable.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetVar {
    /// Its name without the `$`.
    pub name: Arc<str>,
    /// The source of its value.
    pub source: TargetSource,
    /// Its C type.
    pub ty: CTy,
    /// Its kind.
    pub kind: VarKind,
}

impl TargetVar {
    /// A parameter of the function, or an argument of the event.
    pub fn parameter(name: Arc<str>, source: TargetSource, ty: CTy) -> TargetVar {
        TargetVar {
            name,
            source,
            ty,
            kind: VarKind::Parameter,
        }
    }

    /// The arguments that the kernel passes.
    pub(crate) fn arguments(args: Vec<TracepointArg>) -> Vec<TargetVar> {
        let numbered = args.into_iter().zip(0..=u8::MAX);
        numbered
            .map(|(a, n)| TargetVar::parameter(a.name, TargetSource::CtxArg(n), CTy::id(a.ty)))
            .collect()
    }

    /// Whether it is the number of elements of an array that is the type of another variable, or in it.
    pub fn is_count(&self) -> bool {
        self.name.starts_with(COUNT_OF)
    }
}

/// The source of a `$` variable's value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TargetSource {
    /// Argument n of the raw tracepoint, from 0 (intrinsic `ctx_arg`).
    CtxArg(u8),
    /// Argument n of the system call, from 0 (intrinsic `sys_arg`).
    SysArg(u8),
    /// The system call's result (intrinsic `sys_ret`).
    SysRet,
    /// The system call's number in its own table.
    SysNr,
    /// The verdict on the packet (intrinsic `verdict`).
    Verdict,
    /// The decision of a security hook (intrinsic `decision`).
    Decision,
    /// A location program, at code.
    Loc(Arc<VarLocation>),
}

impl HandlerKind {
    /// That of system calls, at their entry or their return.
    pub(crate) fn of_syscalls(ret: bool) -> HandlerKind {
        match ret {
            true => HandlerKind::SysExit,
            false => HandlerKind::SysEnter,
        }
    }

    /// Whether it has a `$value`, a string.
    pub fn has_value(self) -> bool {
        use HandlerKind::{ProcfsRead, ProcfsWrite, Scrape};
        matches!(self, ProcfsRead | ProcfsWrite | Scrape)
    }
}

impl HandlerContext {
    /// A context without any variables.
    pub fn empty(kind: HandlerKind) -> HandlerContext {
        HandlerContext {
            kind,
            vars: Vec::new(),
            targets: Vec::new(),
            name: None,
            system: None,
            sites: None,
            module: None,
            addresses: Arc::new([]),
            missing: None,
        }
    }

    /// The `$` variable of that name (given without `$`).
    pub fn target(&self, name: &str) -> Option<&TargetVar> {
        self.targets.iter().find(|t| &*t.name == name)
    }

    /// The argument of a tracepoint that `argN` counts, from `arg1` on.
    pub(crate) fn numbered_argument(&self, name: &str) -> Option<&TargetVar> {
        let n: u8 = name.strip_prefix("arg")?.parse().ok()?;
        let source = TargetSource::CtxArg(n.checked_sub(1)?);
        let tracepoint = self.kind == HandlerKind::Tracepoint;
        self.targets
            .iter()
            .find(|t| tracepoint && t.source == source)
    }
}
