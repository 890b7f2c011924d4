//! The resolved tree: the result of name resolution and type inference, and the input of lowering.
//! Names are indexes, `$variables` are loads, and dead branches are gone.

use std::sync::Arc;

use spile_ir::fmt::{Conv, ConvKind, Count, Format};
use spile_ir::intrinsics::{Intrinsic, IntrinsicClass};
use spile_ir::{BinOp, CmpOp, Event, Extract, SortSpec, Space, StatsSpec, Stream, UnOp};
use spile_syntax::ast::{Literal, LiteralBytes, Name, Span};

use super::unify::TyVar;
use crate::probe::SiteNames;

/// Index into [`Tree::globals`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GlobalIx(pub usize);
/// Index into [`Tree::units`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UnitIx(pub usize);
/// Index into [`Unit::locals`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocalIx(pub usize);

/// A resolved script.
#[derive(Debug, Default)]
pub struct Tree {
    /// The user's globals, then library and synthesised globals in the order of their first use.
    pub globals: Vec<HirGlobal>,
    /// Functions and handlers.
    pub units: Vec<Unit>,
    /// Formats.
    pub formats: Vec<Format>,
    /// Regular expressions.
    pub regexes: Vec<ScriptRegex>,
    /// Constant tables: name and entries.
    pub tables: Vec<(Arc<str>, Vec<LiteralBytes>)>,
    /// Whether a statement ends handlers by [`ABORT`].
    pub aborts: bool,
}

/// The message of `abort()`: an error that no `catch` of a script catches, and that is not
/// reported.
pub const ABORT: &[u8] = b"\x01abort";

/// A regular expression of the script.
#[derive(Debug)]
pub struct ScriptRegex {
    /// The pattern with escapes replaced.
    pub pattern: LiteralBytes,
    /// The literal.
    pub span: Span,
    /// The compiled tables, set after resolution.
    pub compiled: Option<spile_ir::regex::Regex>,
}

/// A global variable.
#[derive(Debug)]
pub struct HirGlobal {
    /// Name as written.
    pub name: Name,
    /// Name in the program; differs for private ones.
    pub unique: Name,
    /// The declaration.
    pub span: Span,
    /// Declared in the user's script.
    pub user: bool,
    /// Made by analysis (`@entry`).
    pub synthetic: bool,
    /// `%`
    pub wrap: bool,
    /// `[N]`
    pub max: Option<i64>,
    /// Initial value.
    pub init: Option<Literal>,
    /// Types of the keys; `None` until the first use decides their number.
    pub keys: Option<Vec<TyVar>>,
    /// The use that decided the number of keys.
    pub keys_at: Span,
    /// Type of the scalar or of the elements.
    pub value: TyVar,
    /// Some code reads it.
    pub read: bool,
    /// Some code writes it.
    pub written: bool,
    /// The values that the script extracts, if it is a statistic.
    pub stats: StatsSpec,
    /// The first use of its histogram.
    pub hist_at: Span,
}

/// A local variable or parameter.
#[derive(Debug, Clone)]
pub struct Local {
    /// Name.
    pub name: Name,
    /// First use.
    pub span: Span,
    /// Type.
    pub ty: TyVar,
    /// Whether it is a parameter.
    pub param: bool,
    /// Some code reads it.
    pub read: bool,
    /// Some code writes it.
    pub written: bool,
    /// A `foreach` or `catch` sets it, or analysis made it: no warning if nothing reads it.
    pub bound: bool,
}

/// A function or a handler.
#[derive(Debug, Clone)]
pub enum UnitKind {
    /// A function.
    Func {
        /// Parameters in order.
        params: Vec<LocalIx>,
        /// Type of the result.
        ret: TyVar,
        /// Some `return` has a value, or the script declares the type.
        has_value: bool,
        /// The body that `next` goes on with.
        next_alt: Option<UnitIx>,
    },
    /// A handler.
    Handler {
        /// `pp()`
        point: Arc<str>,
        /// `pn()`
        name: Arc<str>,
        /// Number of points that it serves.
        points: u32,
        /// The probe point as written, where the handler serves several.
        pattern: Arc<str>,
        /// The event.
        event: Event,
        /// For code probes where it matters: the names of the locations.
        sites: Option<Arc<SiteNames>>,
    },
}

/// A function that names the probe point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NameFunction {
    /// `pp()`
    Point,
    /// `pn()`
    Alias,
    /// `ppfunc()`: "" where the event is not at code.
    Function,
    /// `probefunc()`: where the event is not at code, the interrupted function.
    Interrupted,
    /// `probe_type()`
    Kind,
}

impl NameFunction {
    /// Number of variants.
    pub const COUNT: usize = 5;

    /// All variants, each at its own index.
    pub const ALL: [NameFunction; NameFunction::COUNT] = [
        NameFunction::Point,
        NameFunction::Alias,
        NameFunction::Function,
        NameFunction::Interrupted,
        NameFunction::Kind,
    ];
}

/// The text of SystemTap's `probe_type()` for an event.
pub fn event_kind(event: &Event, point: &str) -> &'static str {
    let of_process = point.starts_with("process");
    match event {
        Event::Tracepoint(_) | Event::TraceEvent(_) if of_process => "utrace",
        Event::SysEnter(_) | Event::SysExit(_) if of_process => "utrace_syscall",
        Event::Perf { .. } if point.starts_with("timer.profile") => "profile_timer",
        Event::Code(probe) => match (probe.space, probe.ret) {
            (Space::Kernel, false) => "kprobe",
            (Space::Kernel, true) => "kretprobe",
            (Space::User, false) => "uprobe",
            (Space::User, true) => "uretprobe",
        },
        event => event.kind(),
    }
}

impl UnitKind {
    /// Whether the event interrupts arbitrary functions, whose name only the hit knows.
    pub fn interrupts(&self) -> bool {
        matches!(self, UnitKind::Handler { event, .. } if matches!(event, Event::Perf { .. } | Event::Watch(_)))
    }

    /// Length in bytes of the longest of [`UnitKind::names`].
    pub fn longest_name(&self, function: NameFunction) -> usize {
        match (self, function) {
            (UnitKind::Handler { sites: Some(s), .. }, NameFunction::Point) => s.longest[0],
            (
                UnitKind::Handler { sites: Some(s), .. },
                NameFunction::Function | NameFunction::Interrupted,
            ) => s.longest[1],
            _ => self
                .names(function)
                .iter()
                .map(|n| n.len())
                .max()
                .unwrap_or(0),
        }
    }

    /// The texts of a name of a handler's point: one for each location, or one for all.
    pub fn names(&self, function: NameFunction) -> &[Arc<str>] {
        let UnitKind::Handler {
            point, name, sites, ..
        } = self
        else {
            return &[];
        };
        match (function, sites) {
            (NameFunction::Alias, _) => std::slice::from_ref(name),
            (NameFunction::Point, Some(sites)) => &sites.points,
            (NameFunction::Point, None) => std::slice::from_ref(point),
            (NameFunction::Function | NameFunction::Interrupted, Some(sites)) => &sites.functions,
            (NameFunction::Function | NameFunction::Interrupted, None)
            | (NameFunction::Kind, _) => &[],
        }
    }
}

/// A function body or a handler.
#[derive(Debug, Clone)]
pub struct Unit {
    /// Name of the function, text of the probe point.
    pub name: Name,
    /// The item's location in the script.
    pub span: Span,
    /// From the user's script.
    pub user: bool,
    /// Function or handler.
    pub kind: UnitKind,
    /// Local variables.
    pub locals: Vec<Local>,
    /// The code.
    pub body: Vec<HirStmt>,
}

impl Unit {
    /// Whether its own code changes memory or registers of a process, or sends a signal.
    pub fn changes_process(&self) -> bool {
        any_expr_in(
            &self.body,
            |e| matches!(&e.kind, HirExprKind::Intr { f, .. } if matches!(f.class(), IntrinsicClass::Act(_))),
        )
    }

    /// The body that `next` goes on with, in functions.
    pub fn next_alternative(&self) -> Option<UnitIx> {
        match self.kind {
            UnitKind::Func { next_alt, .. } => next_alt,
            UnitKind::Handler { .. } => None,
        }
    }

    /// Whether it is a compiled handler.
    pub fn is_compiled(&self) -> bool {
        matches!(&self.kind, UnitKind::Handler { event, .. } if event.is_compiled())
    }
}

/// A statement.
#[derive(Debug, Clone)]
pub struct HirStmt {
    /// The statement itself.
    pub kind: HirStmtKind,
    /// Its location in the script.
    pub span: Span,
}

/// The kinds of statements.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub enum HirStmtKind {
    Expr(HirExpr),
    Block(Vec<HirStmt>),
    If {
        cond: HirExpr,
        then: Vec<HirStmt>,
        els: Vec<HirStmt>,
    },
    /// All loops except `foreach`; `continue` goes to `step`.
    Loop {
        cond: Option<HirExpr>,
        step: Option<HirExpr>,
        body: Vec<HirStmt>,
    },
    Foreach(Box<HirForeach>),
    Break,
    Continue,
    Return(Option<HirExpr>),
    Next,
    Try {
        body: Vec<HirStmt>,
        var: Option<LocalIx>,
        handler: Vec<HirStmt>,
    },
    /// `delete` of a local: it becomes 0 or "".
    DeleteLocal(LocalIx),
    /// `delete` of a whole global.
    DeleteAll(GlobalIx),
    /// `delete` of an element or slice.
    DeleteElem(GlobalIx, Vec<Option<HirExpr>>),
}

/// `foreach`
#[derive(Debug, Clone)]
pub struct HirForeach {
    /// Key variables.
    pub keys: Vec<LocalIx>,
    /// Value variable.
    pub value: Option<LocalIx>,
    /// The array, or the array or scalar whose histogram is walked.
    pub global: GlobalIx,
    /// `Some`: walks the histogram of this element.
    pub hist: Option<Vec<HirExpr>>,
    /// Slice; empty for all.
    pub slice: Vec<Option<HirExpr>>,
    /// Sort order.
    pub sort: Option<SortSpec>,
    /// Maximum number of elements.
    pub limit: Option<HirExpr>,
    /// Body.
    pub body: Vec<HirStmt>,
}

/// An assignable location.
#[derive(Debug, Clone)]
pub enum LValue {
    /// A local variable.
    Local(LocalIx),
    /// A global scalar.
    Scalar(GlobalIx),
    /// An element of a global array.
    Elem(GlobalIx, Vec<HirExpr>),
}

/// An expression.
#[derive(Debug, Clone)]
pub struct HirExpr {
    /// The expression itself.
    pub kind: HirExprKind,
    /// Its type.
    pub ty: TyVar,
    /// Its location in the script.
    pub span: Span,
}

/// The operator of a compound assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssignOp {
    /// An arithmetic operation.
    Num(BinOp),
    /// `.=`
    Concat,
}

/// The way in which a print call makes its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrintForm {
    /// `printf`
    Format(usize),
    /// `print`, `println`, `printd`: a conversion by type for each argument.
    Plain {
        /// Between the arguments.
        delim: Option<LiteralBytes>,
        /// At the end.
        newline: bool,
    },
    /// `print_char`
    Char,
}

/// A conversion of a format without flags, width and precision.
pub(crate) fn plain_conversion(kind: ConvKind) -> Conv {
    Conv {
        kind,
        left: false,
        plus: false,
        space: false,
        zero: false,
        alt: false,
        width: Count::None,
        precision: Count::None,
    }
}

/// The kinds of expressions.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub enum HirExprKind {
    Num(i64),
    Str(LiteralBytes),
    /// A name of the probe point.
    ProbeName {
        function: NameFunction,
    },
    Read(LValue),
    Call {
        func: UnitIx,
        args: Vec<HirExpr>,
    },
    Intr {
        f: Intrinsic,
        args: Vec<HirExpr>,
    },
    Table {
        table: usize,
        idx: Box<HirExpr>,
    },
    /// Fails with the given message.
    Raise(Box<HirExpr>),
    Un(UnOp, Box<HirExpr>),
    /// On numbers.
    Bin(BinOp, Box<HirExpr>, Box<HirExpr>),
    /// On numbers or strings.
    Cmp(CmpOp, Box<HirExpr>, Box<HirExpr>),
    Concat(Box<HirExpr>, Box<HirExpr>),
    /// `string =~ "..."`
    Match {
        re: usize,
        string: Box<HirExpr>,
    },
    /// `&&` and `||`
    Logic {
        and: bool,
        a: Box<HirExpr>,
        b: Box<HirExpr>,
    },
    Ternary(Box<HirExpr>, Box<HirExpr>, Box<HirExpr>),
    Assign {
        lvalue: LValue,
        op: Option<AssignOp>,
        rhs: Box<HirExpr>,
    },
    IncDec {
        lvalue: LValue,
        prefix: bool,
        inc: bool,
    },
    StatAdd {
        lvalue: LValue,
        rhs: Box<HirExpr>,
    },
    In {
        g: GlobalIx,
        keys: Vec<Option<HirExpr>>,
    },
    Stat {
        lvalue: LValue,
        what: Extract,
        shift: u8,
    },
    HistGet {
        lvalue: LValue,
        idx: Box<HirExpr>,
    },
    Load {
        space: Space,
        addr: Box<HirExpr>,
        size: u8,
        signed: bool,
    },
    /// `print` and its family; with `to_string` the text is the value.
    Print {
        stream: Stream,
        to_string: bool,
        form: PrintForm,
        args: Vec<HirExpr>,
    },
    /// `print(@hist_log(x))`; with `to_string` the text is the value.
    PrintHist {
        lvalue: LValue,
        newline: bool,
        to_string: bool,
    },
}

impl HirExpr {
    /// The local that the expression itself changes.
    pub fn changed_local(&self) -> Option<LocalIx> {
        match self.kind {
            HirExprKind::Assign {
                lvalue: LValue::Local(l),
                ..
            }
            | HirExprKind::IncDec {
                lvalue: LValue::Local(l),
                ..
            } => Some(l),
            _ => None,
        }
    }
}

impl LValue {
    /// The expression that reads it.
    pub fn read(self, ty: TyVar, span: Span) -> HirExpr {
        let kind = HirExprKind::Read(self);
        HirExpr { kind, ty, span }
    }

    /// The global of the location, with its keys.
    pub fn global(&self) -> Option<(GlobalIx, &[HirExpr])> {
        match self {
            LValue::Local(_) => None,
            LValue::Scalar(g) => Some((*g, &[])),
            LValue::Elem(g, keys) => Some((*g, keys)),
        }
    }
}

/// The direct operands of an expression, for reading (`iter`) and for changing (`iter_mut`).
macro_rules! children {
    ($kind:expr, $f:expr, $iter:ident) => {{
        let f = $f;
        macro_rules! lvalue {
            ($p:expr) => {
                if let LValue::Elem(_, keys) = $p {
                    keys.$iter().for_each(&mut *f);
                }
            };
        }
        match $kind {
            HirExprKind::Num(_) | HirExprKind::Str(_) | HirExprKind::ProbeName { .. } => {}
            HirExprKind::Read(p) | HirExprKind::IncDec { lvalue: p, .. } => lvalue!(p),
            HirExprKind::Stat { lvalue: p, .. } | HirExprKind::PrintHist { lvalue: p, .. } => {
                lvalue!(p)
            }
            HirExprKind::Call { args, .. }
            | HirExprKind::Intr { args, .. }
            | HirExprKind::Print { args, .. } => args.$iter().for_each(f),
            HirExprKind::Table { idx: a, .. }
            | HirExprKind::Match { string: a, .. }
            | HirExprKind::Raise(a)
            | HirExprKind::Un(_, a)
            | HirExprKind::Load { addr: a, .. } => f(a),
            HirExprKind::Bin(_, a, b)
            | HirExprKind::Cmp(_, a, b)
            | HirExprKind::Concat(a, b)
            | HirExprKind::Logic { a, b, .. } => {
                f(a);
                f(b);
            }
            HirExprKind::Ternary(a, b, c) => {
                f(a);
                f(b);
                f(c);
            }
            HirExprKind::Assign { lvalue: p, rhs, .. }
            | HirExprKind::StatAdd { lvalue: p, rhs } => {
                lvalue!(p);
                f(rhs);
            }
            HirExprKind::In { keys, .. } => keys.$iter().flatten().for_each(f),
            HirExprKind::HistGet { lvalue: p, idx } => {
                lvalue!(p);
                f(idx);
            }
        }
    }};
}

/// Calls `f` on the direct operands of `e`.
pub fn children<'a>(e: &'a HirExpr, f: &mut dyn FnMut(&'a HirExpr)) {
    children!(&e.kind, f, iter)
}

/// Calls `f` on `e` and everything in it, operands first.
pub fn walk_expr<'a>(e: &'a HirExpr, f: &mut dyn FnMut(&'a HirExpr)) {
    children(e, &mut |c| walk_expr(c, f));
    f(e);
}

/// The expressions of a statement itself, for reading (`iter`) and for changing (`iter_mut`).
macro_rules! own_exprs {
    ($kind:expr, $f:expr, $iter:ident) => {{
        let f = $f;
        match $kind {
            HirStmtKind::Expr(e)
            | HirStmtKind::If { cond: e, .. }
            | HirStmtKind::Return(Some(e)) => f(e),
            HirStmtKind::Loop { cond, step, .. } => cond.$iter().chain(step).for_each(f),
            HirStmtKind::Foreach(fe) => {
                fe.hist.$iter().flatten().for_each(&mut *f);
                fe.slice.$iter().flatten().for_each(&mut *f);
                fe.limit.$iter().for_each(f);
            }
            HirStmtKind::DeleteElem(_, keys) => keys.$iter().flatten().for_each(f),
            _ => {}
        }
    }};
}

/// The expressions of a statement itself, without those of the statements in it.
pub fn own_exprs<'a>(s: &'a HirStmt, f: &mut dyn FnMut(&'a HirExpr)) {
    own_exprs!(&s.kind, f, iter)
}

/// Calls `f` on each statement, outer ones first.
pub fn walk_stmts<'a>(list: &'a [HirStmt], f: &mut dyn FnMut(&'a HirStmt)) {
    for s in list {
        f(s);
        inner_blocks(s, &mut |block| walk_stmts(block, f));
    }
}

/// Calls `f` on every expression of these statements, operands first.
pub fn walk_exprs<'a>(list: &'a [HirStmt], f: &mut dyn FnMut(&'a HirExpr)) {
    walk_stmts(list, &mut |s| own_exprs(s, &mut |e| walk_expr(e, f)));
}

/// Whether a test holds for an expression, or for one in it.
pub fn any_expr(e: &HirExpr, test: impl Fn(&HirExpr) -> bool) -> bool {
    let mut holds = false;
    walk_expr(e, &mut |e| holds = holds || test(e));
    holds
}

/// Whether a test holds for an expression of these statements.
pub fn any_expr_in(list: &[HirStmt], test: impl Fn(&HirExpr) -> bool) -> bool {
    let mut holds = false;
    walk_exprs(list, &mut |e| holds = holds || test(e));
    holds
}

/// The lists of statements directly inside a statement.
pub fn inner_blocks<'a>(s: &'a HirStmt, f: &mut dyn FnMut(&'a [HirStmt])) {
    match &s.kind {
        HirStmtKind::Block(b) | HirStmtKind::Loop { body: b, .. } => f(b),
        HirStmtKind::If { then, els, .. } => {
            f(then);
            f(els);
        }
        HirStmtKind::Foreach(fe) => f(&fe.body),
        HirStmtKind::Try { body, handler, .. } => {
            f(body);
            f(handler);
        }
        _ => {}
    }
}

/// Calls `f` on the direct operands of `e`.
pub fn children_mut(e: &mut HirExpr, f: &mut dyn FnMut(&mut HirExpr)) {
    children!(&mut e.kind, f, iter_mut)
}

/// Calls `f` on the outermost expressions of a statement and of all statements in it.
pub fn stmt_exprs_mut(s: &mut HirStmt, f: &mut dyn FnMut(&mut HirExpr)) {
    own_exprs!(&mut s.kind, &mut *f, iter_mut);
    let (first, second): (&mut [HirStmt], &mut [HirStmt]) = match &mut s.kind {
        HirStmtKind::Block(b) | HirStmtKind::Loop { body: b, .. } => (b, &mut []),
        HirStmtKind::If { then, els, .. } => (then, els),
        HirStmtKind::Foreach(fe) => (&mut fe.body, &mut []),
        HirStmtKind::Try { body, handler, .. } => (body, handler),
        _ => return,
    };
    first
        .iter_mut()
        .chain(second)
        .for_each(|s| stmt_exprs_mut(s, f));
}

/// The functions that each unit calls or goes on with.
pub fn callees(tree: &Tree) -> Vec<Vec<UnitIx>> {
    let of_unit = |u: &Unit| {
        let mut called = Vec::new();
        walk_exprs(&u.body, &mut |e| {
            if let HirExprKind::Call { func, .. } = e.kind {
                called.push(func);
            }
        });
        called.extend(u.next_alternative());
        called
    };
    tree.units.iter().map(of_unit).collect()
}

/// For each unit what holds for it or for a function that it calls: `of_unit` is what holds for a unit itself.
pub fn reached<T: Clone + PartialEq>(
    tree: &Tree,
    of_unit: impl Fn(&Unit) -> T,
    join: impl Fn(T, &T) -> T,
) -> Vec<T> {
    let callees = callees(tree);
    let mut out: Vec<T> = tree.units.iter().map(of_unit).collect();
    loop {
        let before = out.clone();
        // Callers stand before callees, so going backwards decides most units in one round.
        for (n, called) in callees.iter().enumerate().rev() {
            out[n] = called
                .iter()
                .fold(out[n].clone(), |joined, func| join(joined, &out[func.0]));
        }
        if out == before {
            return out;
        }
    }
}

/// For each unit, whether a condition holds for it or for a function that it calls.
pub fn reaching(tree: &Tree, of_unit: impl Fn(&Unit) -> bool) -> Vec<bool> {
    reached(tree, of_unit, |holds, called| holds || *called)
}
