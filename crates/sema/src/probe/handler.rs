//! A probe after its points are resolved.

use std::sync::Arc;

use spile_ir::Event;
use spile_syntax::ast::{Block, Expr, FileId, Name, Span};

use crate::ctype::CTy;
use crate::facts::{Loc, Module, VarKind};

/// One handler: what it is attached to and what it runs.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeHandler {
    /// What makes it run.
    pub event: Event,
    /// `pp()`: the probe point with aliases and wildcards resolved. A handler that serves
    /// several points has the pattern as written.
    pub point: Arc<str>,
    /// `pn()`: the probe point as the script's alias names it.
    pub name: Arc<str>,
    /// Conditions of the point and of the aliases on the way; all must hold, or nothing runs.
    pub conditions: Vec<(Arc<Expr>, FileId)>,
    /// The bodies in the order in which they run: prologues of aliases, the last alias on the
    /// way first, then the script's body, then epilogues, the first alias first. All share one
    /// scope of local variables; globals and functions resolve per part. `next` in any of them
    /// ends all.
    pub parts: Vec<HandlerPart>,
    /// What `$x` and predefined variables mean.
    pub ctx: Context,
    /// The probe's point in the script.
    pub span: Span,
    /// How many points this handler serves.
    pub points: u32,
    /// The probe point as a handler of several has it.
    pub pattern: Arc<str>,
}

/// A piece of a handler, and the file whose private names it sees.
#[derive(Debug, Clone, PartialEq)]
pub struct HandlerPart {
    /// The statements.
    pub body: Arc<Block>,
    /// The file.
    pub file: FileId,
}

/// Which family of contexts a handler runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContextKind {
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
    /// A hook of the network or of security modules.
    Hook,
    /// In the controller: `$value` can be set.
    ProcfsRead,
    /// In the controller: `$value` can be read.
    ProcfsWrite,
    /// Code of the kernel.
    KernelCode,
    /// Code of a program.
    UserCode,
}

/// What names mean at a probe point.
#[derive(Debug, Clone, PartialEq)]
pub struct Context {
    /// The family.
    pub kind: ContextKind,
    /// Predefined plain variables that the bodies mention, in the order in which they must be
    /// set. Analysis sets each before the first part runs: `name = init`. They are ordinary
    /// local variables, scripts may assign to them.
    pub vars: Vec<PlainVar>,
    /// The `$` variables; those of tracepoints and of handlers for several system calls only
    /// where the bodies mention any.
    pub targets: Vec<TargetVar>,
    /// `$$name`: the name of the tracepoint, the system call, the function or the marker.
    pub name: Option<Arc<str>>,
    /// `$$system`: the tracepoint's system, the marker's provider.
    pub system: Option<Arc<str>>,
    /// At code, for bodies that ask: the names of each place.
    pub sites: Option<Arc<SiteNames>>,
    /// At code: the module, where all places are in one.
    pub module: Option<Module>,
    /// At code that runs where it was probed: the numbers of the places and their addresses as
    /// linked.
    pub addresses: Arc<[(u32, u64)]>,
    /// Why there are no `$` variables, where that is known.
    pub missing: Option<Arc<str>>,
}

/// Names of all places of a probe point, by their numbers. Handlers of some of them share it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SiteNames {
    /// `pp()`
    pub points: Vec<Arc<str>>,
    /// `ppfunc()`, and `$$name`.
    pub functions: Vec<Arc<str>>,
    /// Bytes of the longest of each: thousands of handlers may share these names.
    pub longest: [usize; 2],
}

impl SiteNames {
    /// The names of points and of functions.
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
    /// Its value: calls of `__intrinsics` and of public tapset functions, literals, and
    /// variables that stand earlier in the list.
    pub init: Expr,
}

/// A `$` variable.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetVar {
    /// Its name without the `$`.
    pub name: Arc<str>,
    /// Where its value comes from.
    pub source: TargetSource,
    /// Its C type.
    pub ty: CTy,
    /// What it is.
    pub kind: VarKind,
}

/// Where the value of a `$` variable comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TargetSource {
    /// Argument n of the raw tracepoint, from 0 (intrinsic `ctx_arg`).
    CtxArg(u8),
    /// Argument n of the system call, from 0 (intrinsic `sys_arg`).
    SysArg(u8),
    /// The system call's result (intrinsic `sys_ret`).
    SysRet,
    /// Its number in its own table.
    SysNr,
    /// What becomes of the packet (intrinsic `verdict`).
    Verdict,
    /// What a location program leaves, at code.
    Loc(Arc<Loc>),
}

impl ContextKind {
    /// Whether it has a `$value`, which is a text.
    pub fn has_value(self) -> bool {
        matches!(self, ContextKind::ProcfsRead | ContextKind::ProcfsWrite)
    }
}

impl Context {
    /// A context without any variables.
    pub fn empty(kind: ContextKind) -> Context {
        Context {
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
}
