//! String widths: the maximum number of bytes that each local, result, key and value of type string
//! can hold. Widths only grow from assignments, so they reach a fixpoint. A width that still grows
//! after a few rounds (`s = s . "x"`) becomes MAXSTRINGLEN. Narrow widths matter: a key of
//! `a[execname()]` takes 16 bytes instead of 520.

use spile_ir::Ty;
use spile_ir::fmt::{Conv, ConvKind, Count, Format, Piece};
use spile_ir::intrinsics::Intrinsic;
use spile_syntax::ast::Literal;

use super::hir::*;
use super::unify::{Base, TyVar, Types};

/// Number of rounds after which a growing width counts as unbounded.
const ROUNDS: usize = 6;

/// The widths, in bytes without the NUL.
#[derive(Debug)]
pub struct Widths<'a> {
    tree: &'a Tree,
    types: &'a Types,
    locals: Vec<Vec<usize>>,
    results: Vec<usize>,
    keys: Vec<Vec<usize>>,
    values: Vec<usize>,
    growth: Growth,
}

/// How widths grow in a round.
#[derive(Debug)]
struct Growth {
    max: usize,
    changed: bool,
    unbounded: bool,
}

impl Growth {
    fn grow(&mut self, slot: &mut usize, len: usize) {
        let len = len.min(self.max);
        if len > *slot {
            *slot = if self.unbounded { self.max } else { len };
            self.changed = true;
        }
    }
}

/// The context in which an expression is evaluated: a unit, or a small function as if it were
/// inlined at the call, so that `substr(s, 0, 8)` is 8 bytes wide whatever other calls pass.
#[derive(Clone, Copy)]
struct EvalContext<'a> {
    unit: usize,
    call: Option<(&'a [HirExpr], &'a EvalContext<'a>)>,
    depth: u32,
}

impl EvalContext<'_> {
    /// The argument of a parameter. A function of one `return` can change its parameters only in
    /// that expression, which is then not a plain read.
    fn argument(&self, p: &LValue) -> Option<&HirExpr> {
        match (p, self.call) {
            (LValue::Local(l), Some((args, _))) => args.get(l.0),
            _ => None,
        }
    }

    /// The constant value of an expression.
    fn constant(&self, e: &HirExpr) -> Option<i64> {
        match (&e.kind, self.call) {
            (HirExprKind::Num(n), _) => Some(*n),
            (HirExprKind::Read(p), Some((_, caller))) => caller.constant(self.argument(p)?),
            _ => None,
        }
    }
}

/// The expression of a function that consists of one `return`.
fn single_return(u: &Unit) -> Option<&HirExpr> {
    match (u.body.as_slice(), &u.kind) {
        (
            [
                HirStmt {
                    kind: HirStmtKind::Return(Some(e)),
                    ..
                },
            ],
            UnitKind::Func { next_alt: None, .. },
        ) => Some(e),
        _ => None,
    }
}

/// Computes all widths; `max` is MAXSTRINGLEN.
pub fn widths<'a>(tree: &'a Tree, types: &'a Types, max: usize) -> Widths<'a> {
    let mut w = Widths {
        tree,
        types,
        locals: tree.units.iter().map(|u| vec![0; u.locals.len()]).collect(),
        results: vec![0; tree.units.len()],
        keys: tree
            .globals
            .iter()
            .map(|g| vec![0; g.keys.iter().flatten().count()])
            .collect(),
        values: tree.globals.iter().map(init_len).collect(),
        growth: Growth {
            max,
            changed: true,
            unbounded: false,
        },
    };
    let mut round = 0;
    while w.growth.changed {
        w.growth.changed = false;
        w.growth.unbounded = round >= ROUNDS;
        // Arguments flow to functions, which stand later; results flow back.
        let units = 0..tree.units.len();
        match round % 2 {
            0 => units.for_each(|unit| w.unit(unit)),
            _ => units.rev().for_each(|unit| w.unit(unit)),
        }
        round += 1;
    }
    w
}

fn init_len(g: &HirGlobal) -> usize {
    match &g.init {
        Some(Literal::Str(s)) => s.len(),
        _ => 0,
    }
}

impl Widths<'_> {
    fn is_str(&self, v: TyVar) -> bool {
        self.types.get(v) == Some(Base::Str)
    }

    /// Type of a local.
    pub fn local(&self, unit: UnitIx, l: LocalIx) -> Ty {
        let local = &self.tree.units[unit.0].locals[l.0];
        self.ty(local.ty, self.locals[unit.0][l.0])
    }

    /// Length in bytes of the longest of these names, for `pp()` and similar functions in functions.
    pub fn probe_name(&self, function: NameFunction) -> usize {
        self.name_len(function).min(self.growth.max)
    }

    fn name_len(&self, function: NameFunction) -> usize {
        let names = self
            .tree
            .units
            .iter()
            .map(|u| self.unit_name_len(&u.kind, function));
        names.max().unwrap_or(0)
    }

    /// Length of the longest of these names of a handler's point.
    fn unit_name_len(&self, unit: &UnitKind, function: NameFunction) -> usize {
        match function {
            NameFunction::Kind => LONGEST_KIND,
            NameFunction::Interrupted if unit.interrupts() => self.growth.max,
            _ => unit.longest_name(function),
        }
    }

    /// Type of a function's result.
    pub fn result(&self, ret: TyVar, unit: UnitIx) -> Ty {
        self.ty(ret, self.results[unit.0])
    }

    /// Type of a key.
    pub fn key(&self, v: TyVar, g: GlobalIx, n: usize) -> Ty {
        self.ty(v, self.key_len(g, n))
    }

    /// Type of a global scalar or element that is not a statistic.
    pub fn value(&self, g: GlobalIx) -> Ty {
        self.ty(self.tree.globals[g.0].value, self.values[g.0])
    }

    fn key_len(&self, g: GlobalIx, n: usize) -> usize {
        self.keys[g.0].get(n).copied().unwrap_or(0)
    }

    fn ty(&self, v: TyVar, len: usize) -> Ty {
        match self.is_str(v) {
            true => Ty::str_for_len(len.min(self.growth.max)),
            false => Ty::Long,
        }
    }

    /// Type of an expression's value.
    pub fn expr(&self, unit: UnitIx, e: &HirExpr) -> Ty {
        self.ty(e.ty, self.len(unit.0, e))
    }

    fn grow_local(&mut self, unit: usize, l: LocalIx, len: usize) {
        self.growth.grow(&mut self.locals[unit][l.0], len);
    }

    fn grow_result(&mut self, unit: usize, len: usize) {
        self.growth.grow(&mut self.results[unit], len);
    }

    fn grow_lvalue(&mut self, unit: usize, lvalue: &LValue, len: usize) {
        match lvalue {
            LValue::Local(l) => self.grow_local(unit, *l, len),
            LValue::Scalar(g) | LValue::Elem(g, _) => {
                self.growth.grow(&mut self.values[g.0], len);
            }
        }
    }

    /// Keys that are read count like keys that are written: cut to a narrower width, a long key
    /// could equal another one.
    fn grow_keys<'k>(
        &mut self,
        unit: usize,
        g: GlobalIx,
        keys: impl Iterator<Item = Option<&'k HirExpr>>,
    ) {
        for (n, k) in keys.enumerate() {
            if let Some(k) = k.filter(|k| self.is_str(k.ty)) {
                let len = self.len(unit, k);
                if let Some(slot) = self.keys[g.0].get_mut(n) {
                    self.growth.grow(slot, len);
                }
            }
        }
    }

    fn lvalue_keys(&mut self, unit: usize, lvalue: &LValue) {
        if let LValue::Elem(g, keys) = lvalue {
            self.grow_keys(unit, *g, keys.iter().map(Some));
        }
    }

    fn unit(&mut self, unit: usize) {
        let u = &self.tree.units[unit];
        walk_stmts(&u.body, &mut |s| match &s.kind {
            HirStmtKind::Return(Some(e)) if self.is_str(e.ty) => {
                let len = self.len(unit, e);
                self.grow_result(unit, len);
            }
            HirStmtKind::Try { var: Some(v), .. } => self.grow_local(unit, *v, self.growth.max),
            HirStmtKind::Foreach(f) => {
                self.grow_keys(unit, f.global, f.slice.iter().map(Option::as_ref));
                for (n, k) in f.keys.iter().enumerate() {
                    self.grow_local(unit, *k, self.key_len(f.global, n));
                }
                if let Some(v) = f.value {
                    self.grow_local(unit, v, self.values[f.global.0]);
                }
            }
            HirStmtKind::DeleteElem(g, keys) => {
                self.grow_keys(unit, *g, keys.iter().map(Option::as_ref));
            }
            _ => {}
        });
        walk_exprs(&u.body, &mut |e| match &e.kind {
            HirExprKind::Assign { lvalue, rhs, op } => {
                let before = match op {
                    Some(AssignOp::Concat) => self.lvalue_len(unit, lvalue),
                    _ => 0,
                };
                if self.is_str(rhs.ty) {
                    let len = self.len(unit, rhs) + before;
                    self.grow_lvalue(unit, lvalue, len);
                }
                self.lvalue_keys(unit, lvalue);
            }
            HirExprKind::Read(lvalue)
            | HirExprKind::StatAdd { lvalue, .. }
            | HirExprKind::IncDec { lvalue, .. }
            | HirExprKind::Stat { lvalue, .. }
            | HirExprKind::PrintHist { lvalue, .. }
            | HirExprKind::HistGet { lvalue, .. } => self.lvalue_keys(unit, lvalue),
            HirExprKind::In { g, keys } => {
                self.grow_keys(unit, *g, keys.iter().map(Option::as_ref));
            }
            HirExprKind::Call { func, args } => self.arguments(unit, *func, args),
            _ => {}
        });
        if let UnitKind::Func {
            next_alt: Some(alt),
            params,
            ..
        } = &u.kind
        {
            // `next` passes the arguments on and the result back.
            for (n, p) in params.iter().enumerate() {
                let len = self.locals[unit][p.0];
                self.grow_local(alt.0, LocalIx(n), len);
            }
            self.grow_result(unit, self.results[alt.0]);
        }
    }

    fn arguments(&mut self, unit: usize, func: UnitIx, args: &[HirExpr]) {
        for (n, a) in args.iter().enumerate() {
            if self.is_str(a.ty) {
                let len = self.len(unit, a);
                self.grow_local(func.0, LocalIx(n), len);
            }
        }
    }

    fn lvalue_len(&self, unit: usize, p: &LValue) -> usize {
        match p {
            LValue::Local(l) => self.locals[unit][l.0],
            LValue::Scalar(g) | LValue::Elem(g, _) => self.values[g.0],
        }
    }

    /// The maximum length of a string expression in bytes.
    fn len(&self, unit: usize, e: &HirExpr) -> usize {
        let (call, depth) = (None, 0);
        self.len_in(&EvalContext { unit, call, depth }, e)
    }

    fn len_in(&self, f: &EvalContext, e: &HirExpr) -> usize {
        let len = match &e.kind {
            HirExprKind::Str(s) => s.len(),
            HirExprKind::ProbeName { function } => match &self.tree.units[f.unit].kind {
                unit @ UnitKind::Handler { .. } => self.unit_name_len(unit, *function),
                UnitKind::Func { .. } => self.name_len(*function),
            },
            HirExprKind::Read(p) => match (f.argument(p), f.call) {
                (Some(a), Some((_, caller))) => self.len_in(caller, a),
                _ => self.lvalue_len(f.unit, p),
            },
            HirExprKind::Call { func, args } => self.call_len(f, *func, args),
            HirExprKind::Intr { f: i, args } => self.intrinsic_len(f, *i, args),
            HirExprKind::Table { table, .. } => {
                let entries = self.tree.tables[*table].1.iter();
                entries.map(|e| e.len()).max().unwrap_or(0)
            }
            HirExprKind::Concat(a, b) => self.len_in(f, a) + self.len_in(f, b),
            HirExprKind::Ternary(_, a, b) => self.len_in(f, a).max(self.len_in(f, b)),
            HirExprKind::Assign {
                lvalue,
                op: Some(_),
                ..
            } => self.lvalue_len(f.unit, lvalue),
            HirExprKind::Assign { rhs, .. } => self.len_in(f, rhs),
            HirExprKind::Print { form, args, .. } => self.print_len(f, form, args),
            HirExprKind::PrintHist { .. } => self.growth.max,
            _ => 0,
        };
        len.min(self.growth.max)
    }

    fn call_len(&self, f: &EvalContext, func: UnitIx, args: &[HirExpr]) -> usize {
        let general = self.results[func.0];
        match single_return(&self.tree.units[func.0]) {
            Some(e) if f.depth < 4 => {
                let inner = EvalContext {
                    unit: func.0,
                    call: Some((args, f)),
                    depth: f.depth + 1,
                };
                self.len_in(&inner, e).min(general)
            }
            _ => general,
        }
    }

    fn intrinsic_len(&self, f: &EvalContext, i: Intrinsic, args: &[HirExpr]) -> usize {
        let constant = |n: usize| f.constant(args.get(n)?);
        let len = |n: usize| Some(self.len_in(f, args.get(n)?));
        i.max_len(constant, len).unwrap_or(self.growth.max)
    }

    fn print_len(&self, f: &EvalContext, form: &PrintForm, args: &[HirExpr]) -> usize {
        let value = |a: &HirExpr| match self.is_str(a.ty) {
            true => self.len_in(f, a),
            false => 20,
        };
        match form {
            PrintForm::Char => 1,
            PrintForm::Plain { delim, newline } => {
                let delims = args.len().saturating_sub(1) * delim.as_ref().map_or(0, |d| d.len());
                args.iter().map(value).sum::<usize>() + delims + usize::from(*newline)
            }
            PrintForm::Format(n) => {
                let lens: Vec<usize> = args.iter().map(value).collect();
                format_len(&self.tree.formats[*n], &lens, self.growth.max)
            }
        }
    }
}

/// Bytes of the longest text of [`event_kind`](crate::types::hir::event_kind).
const LONGEST_KIND: usize = "hardware_data_breakpoint".len();

/// The maximum length of a format's result for arguments of these lengths.
pub fn format_len(f: &Format, args: &[usize], max: usize) -> usize {
    let mut args = args.iter();
    let mut len = 0;
    for p in &f.pieces {
        len += match p {
            Piece::Lit(s) => s.len(),
            Piece::Conv(c) => {
                let star = |count: Count| count == Count::Arg;
                let stars = usize::from(star(c.width)) + usize::from(star(c.precision));
                args.by_ref().take(stars).for_each(drop);
                conversion_len(c, args.next().copied().unwrap_or(0), max)
            }
        };
    }
    len.min(max)
}

fn conversion_len(c: &Conv, arg: usize, max: usize) -> usize {
    let fixed = |count: Count| match count {
        Count::None => 0,
        Count::Fixed(n) => n as usize,
        Count::Arg => max,
    };
    let (width, precision) = (fixed(c.width), fixed(c.precision));
    let limited = c.precision != Count::None;
    let body = match c.kind {
        ConvKind::Str if limited => arg.min(precision),
        // `%#s` escapes, at most four bytes for one.
        ConvKind::Str if c.alt => arg * 4,
        ConvKind::Str => arg,
        ConvKind::Char => 4,
        ConvKind::Binary => 8,
        ConvKind::Mem => precision.max(1),
        ConvKind::MemHex => precision.max(1) * 2,
        ConvKind::Dec | ConvKind::Unsigned => precision.max(20) + 1,
        ConvKind::Octal => precision.max(22) + 2,
        ConvKind::Hex | ConvKind::HexUpper | ConvKind::Pointer => precision.max(16) + 2,
    };
    body.max(width)
}
