//! The verifier: what every program satisfies between passes.
//!
//! # Invariants
//! 1. Every body has a block 0; jump targets and catch blocks exist.
//! 2. Registers, globals, functions, formats, strings, tables, sites, regular
//!    expressions and iterators that an instruction names exist. Site 0 (unknown) may be missing.
//! 3. Operands and results have the type that the instruction asks for: integers or strings of
//!    any width. A string operand is a string register or a string constant.
//! 4. Register and key widths are multiples of 8 from 8 to 4,104; arrays have 1 to 8 keys and
//!    space for at least one element; a linear histogram has a positive step.
//! 5. Operations fit the kind of their global: scalar, statistic, array of scalars, array of
//!    statistics; additions only on numbers; as many keys as the array has. Histogram
//!    operations only on statistics with a histogram. Extractors other than the count only on
//!    statistics that keep the values they need. Initial values have the scalar's type.
//! 6. A format has the arguments that it needs, in number and type.
//! 7. Intrinsics have the table's parameters and results, and run only in the locations that the
//!    table allows. Functions are checked against the handlers that reach them. A constant
//!    parameter, such as that of `ctx_arg`, is an immediate.
//! 8. Calls pass one argument of the right type for each parameter, and take a result only
//!    from a function that has one. `ret` in a function gives a value of its type, or nothing;
//!    `ret` in a handler gives nothing.
//! 9. `next` only fetches from iterators, into one register of the key's type for each key of
//!    the array (one register for a histogram). An iterator is of one array throughout.
//! 10. A match is captured only by a regular expression that was compiled with captures.
//! 11. `load` has a size of 1, 2, 4 or 8. `catch_msg` writes a string.

use std::collections::BTreeSet;

use spile_cast::Cast;

use crate::intrinsics::ValueKind;
use crate::*;

/// A violated invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyError {
    /// The body: a handler's probe point or a function's name; "" for the program itself.
    pub body: String,
    /// The block, where the violation is in one.
    pub block: Option<BlockId>,
    /// The instruction in text form, and the violation.
    pub message: String,
}

impl std::fmt::Display for VerifyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let block = self.block.map_or(String::new(), |b| format!(" {b}"));
        write!(f, "{}{block}: {}", self.body, self.message)
    }
}

impl std::error::Error for VerifyError {}

type CheckResult = Result<(), String>;

fn ensure(ok: bool, message: &str) -> CheckResult {
    if ok { Ok(()) } else { Err(message.to_string()) }
}

/// Checks a program.
///
/// # Errors
/// All violations found, at most one for each instruction.
pub fn verify(program: &Program) -> Result<(), Vec<VerifyError>> {
    let mut errors = Vec::new();
    for g in &program.globals {
        if let Err(message) = global(g) {
            let message = format!("global {}: {message}", g.name);
            errors.push(VerifyError {
                body: String::new(),
                block: None,
                message,
            });
        }
    }
    for (f, executors) in program.funcs.iter().zip(func_executors(program)) {
        let mut c = Checker {
            program,
            body: &f.body,
            executors,
            ret: Some(f.ret),
            errors: Vec::new(),
        };
        for p in &f.params {
            c.report(None, c.reg(*p).map(|_| ()), &"parameter");
        }
        c.check(&f.name, &mut errors);
    }
    for h in &program.handlers {
        let mut c = Checker {
            program,
            body: &h.body,
            executors: [h.event.executors()].into(),
            ret: None,
            errors: Vec::new(),
        };
        c.report(None, c.site(h.site), &"handler");
        c.check(&h.point, &mut errors);
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors)
    }
}

/// By function: for each handler that reaches it, the executors that can run that handler.
fn func_executors(program: &Program) -> Vec<BTreeSet<ExecutorSet>> {
    let mut sets = vec![BTreeSet::default(); program.funcs.len()];
    for h in &program.handlers {
        let mut stack = vec![&h.body];
        while let Some(body) = stack.pop() {
            for inst in body.insts() {
                if let Inst::Call { func, .. } = inst
                    && let Some(f) = program.funcs.get(func.index())
                    && sets[func.index()].insert(h.event.executors())
                {
                    stack.push(&f.body);
                }
            }
        }
    }
    sets
}

fn width(ty: Ty) -> CheckResult {
    let ok = match ty {
        Ty::Long => true,
        Ty::Str(w) => (8..=4104).contains(&w) && w % 8 == 0,
    };
    ensure(ok, "string width is not a multiple of 8 from 8 to 4104")
}

fn global(g: &Global) -> CheckResult {
    if let Some(Hist::Linear { step, .. }) = g.kind.stats().and_then(|s| s.hist) {
        ensure(step > 0, "histogram step is not positive")?;
    }
    match &g.kind {
        GlobalKind::Scalar(ty) => {
            width(*ty)?;
            let ok = matches!(
                (&g.init, ty),
                (None, _) | (Some(Init::Long(_)), Ty::Long) | (Some(Init::Str(_)), Ty::Str(_))
            );
            return ensure(ok, "initial value of another type");
        }
        GlobalKind::Stats(_) => {}
        GlobalKind::Array {
            keys, value, max, ..
        } => {
            ensure((1..=MAX_KEYS).contains(&keys.len()), "not 1 to 9 keys")?;
            ensure(*max > 0, "space for no element")?;
            keys.iter().try_for_each(|k| width(*k))?;
            if let ElemTy::Scalar(ty) = value {
                width(*ty)?;
            }
        }
    }
    ensure(
        g.init.is_none(),
        "initial value of something other than a scalar",
    )
}

struct Checker<'p> {
    program: &'p Program,
    body: &'p Body,
    /// For each handler that reaches the body, the executors that can run that handler.
    executors: BTreeSet<ExecutorSet>,
    /// Result type of a function; `None` in a handler.
    ret: Option<Option<Ty>>,
    errors: Vec<(Option<BlockId>, String)>,
}

fn is_str(ty: Ty) -> bool {
    matches!(ty, Ty::Str(_))
}

impl Checker<'_> {
    fn report(&mut self, block: Option<BlockId>, check: CheckResult, what: &dyn std::fmt::Display) {
        if let Err(message) = check {
            self.errors.push((block, format!("`{what}`: {message}")));
        }
    }

    fn check(mut self, name: &str, out: &mut Vec<VerifyError>) {
        self.report(
            None,
            ensure(!self.body.blocks.is_empty(), "no block 0"),
            &"body",
        );
        for ty in &self.body.regs {
            self.report(None, width(*ty), ty);
        }
        let iters = self.iterators();
        for (i, block) in self.body.blocks.iter().enumerate() {
            let id = Some(BlockId(i.fit()));
            if let Some(c) = block.catch {
                self.report(id, self.block(c), &"catch");
            }
            for (inst, site) in &block.insts {
                let check = self.site(*site).and_then(|()| self.inst(inst, &iters));
                self.report(id, check, inst);
            }
            self.report(id, self.term(&block.term, &iters), &block.term);
        }
        out.extend(self.errors.into_iter().map(|(block, message)| VerifyError {
            body: name.to_string(),
            block,
            message,
        }));
    }

    /// The key types of each iterator.
    fn iterators(&self) -> Vec<Option<Vec<Ty>>> {
        let mut out = vec![None; self.body.iters as usize];
        for inst in self.body.insts() {
            let (it, keys) = match inst {
                Inst::IterNew { it, g, .. } => {
                    let kind = self.program.kind(*g);
                    (it, kind.map_or(Vec::new(), |k| k.keys().to_vec()))
                }
                Inst::IterHist { it, .. } => (it, vec![Ty::Long]),
                _ => continue,
            };
            if let Some(location) = out.get_mut(it.index()) {
                location.get_or_insert(keys);
            }
        }
        out
    }

    fn site(&self, s: SiteId) -> CheckResult {
        ensure(
            s.0 == 0 || s.index() < self.program.sites.len(),
            "no such site",
        )
    }

    fn block(&self, b: BlockId) -> CheckResult {
        ensure(b.index() < self.body.blocks.len(), "no such block")
    }

    fn reg(&self, r: Reg) -> Result<Ty, String> {
        self.body
            .regs
            .get(r.index())
            .copied()
            .ok_or_else(|| format!("no register {r}"))
    }

    fn ty(&self, v: Val) -> Result<Ty, String> {
        self.program
            .type_of(self.body, v)
            .ok_or_else(|| format!("no operand {v}"))
    }

    fn expect(&self, v: Val, string: bool) -> CheckResult {
        let ok = is_str(self.ty(v)?) == string;
        ensure(
            ok,
            &format!("{v} is not a {}", if string { "string" } else { "number" }),
        )
    }

    fn dst(&self, r: Reg, string: bool) -> CheckResult {
        self.reg(r).and_then(|_| self.expect(Val::Reg(r), string))
    }

    /// Checks that all operands are strings, or none, and so the result.
    fn operands(&self, inst: &Inst, strings: bool, result: bool) -> CheckResult {
        let mut check = Ok(());
        inst.for_each_use(|v| {
            if check.is_ok() {
                check = self.expect(v, strings);
            }
        });
        check?;
        inst.dst().map_or(Ok(()), |dst| self.dst(dst, result))
    }

    fn expect_type(&self, v: Val, ty: Ty) -> CheckResult {
        self.expect(v, is_str(ty))
    }

    fn kind(&self, g: GlobalId) -> Result<&GlobalKind, String> {
        Ok(self.program.kind(g).ok_or("no such global")?)
    }

    /// The element type of an array, after a check of the keys.
    fn element(
        &self,
        g: GlobalId,
        keys: impl ExactSizeIterator<Item = Option<Val>>,
    ) -> Result<&ElemTy, String> {
        let GlobalKind::Array {
            keys: types, value, ..
        } = self.kind(g)?
        else {
            return Err("not an array".into());
        };
        ensure(types.len() == keys.len(), "wrong number of keys")?;
        for (k, ty) in keys.zip(types) {
            k.map_or(Ok(()), |k| self.expect_type(k, *ty))?;
        }
        Ok(value)
    }

    fn scalar_element(&self, g: GlobalId, keys: &[Val]) -> Result<Ty, String> {
        match self.element(g, keys.iter().copied().map(Some))? {
            ElemTy::Scalar(ty) => Ok(*ty),
            ElemTy::Stats(_) => Err("an array of statistics".into()),
        }
    }

    fn scalar(&self, g: GlobalId) -> Result<Ty, String> {
        match self.kind(g)? {
            GlobalKind::Scalar(ty) => Ok(*ty),
            _ => Err("not a scalar".into()),
        }
    }

    fn stats(&self, g: GlobalId, keys: &[Val]) -> Result<&StatsSpec, String> {
        if let GlobalKind::Stats(spec) = self.kind(g)? {
            ensure(keys.is_empty(), "keys of a scalar")?;
            return Ok(spec);
        }
        match self.element(g, keys.iter().copied().map(Some))? {
            ElemTy::Stats(spec) => Ok(spec),
            ElemTy::Scalar(_) => Err("not a statistic".into()),
        }
    }

    fn format(&self, f: FormatId, args: &[Val]) -> CheckResult {
        let format = self
            .program
            .formats
            .get(f.index())
            .ok_or("no such format")?;
        let kinds = format.arg_kinds();
        ensure(
            kinds.len() == args.len(),
            "wrong number of arguments for the format",
        )?;
        kinds
            .iter()
            .zip(args)
            .try_for_each(|(k, a)| self.expect(*a, *k == ValueKind::Str))
    }

    fn iter(&self, it: IterId) -> CheckResult {
        ensure(it.0 < self.body.iters, "no such iterator")
    }

    fn term(&self, term: &Term, iters: &[Option<Vec<Ty>>]) -> CheckResult {
        let mut check = Ok(());
        term.for_each_target(|b| {
            if check.is_ok() {
                check = self.block(b);
            }
        });
        check?;
        match term {
            Term::Branch { cond, .. } => self.expect(*cond, false),
            Term::IterNext {
                it, keys, value, ..
            } => {
                self.iter(*it)?;
                let Some(Some(types)) = iters.get(it.index()) else {
                    return Err("iterator is never started".into());
                };
                ensure(types.len() == keys.len(), "wrong number of keys")?;
                for (k, ty) in keys.iter().zip(types) {
                    self.dst(*k, is_str(*ty))?;
                }
                value.map_or(Ok(()), |v| self.reg(v).map(|_| ()))
            }
            Term::Ret(v) => match (self.ret, v) {
                (_, None) => Ok(()),
                (Some(Some(ty)), Some(v)) => self.expect_type(*v, ty),
                _ => Err("result where there is none".into()),
            },
            Term::Jump(_) | Term::EndHandler => Ok(()),
        }
    }

    fn inst(&self, inst: &Inst, iters: &[Option<Vec<Ty>>]) -> CheckResult {
        match inst {
            Inst::Copy { dst, src } => self.dst(*dst, is_str(self.ty(*src)?)),
            Inst::Un { .. } | Inst::Bin { .. } => self.operands(inst, false, false),
            Inst::StrCmp { .. } => self.operands(inst, true, false),
            Inst::Concat { .. } | Inst::Raise { .. } | Inst::CatchMsg { .. } => {
                self.operands(inst, true, true)
            }
            Inst::TableGet { table, .. } => {
                ensure(table.index() < self.program.tables.len(), "no such table")?;
                self.operands(inst, false, true)
            }
            Inst::Regex { re, keep, .. } => {
                let re = self.program.regexes.get(re.index());
                let re = re.ok_or("no such regular expression")?;
                ensure(re.finds() || !keep, "it cannot tell where the match is")?;
                self.operands(inst, true, false)
            }
            Inst::Sprint { dst, fmt, args } => {
                self.format(*fmt, args)?;
                self.dst(*dst, true)
            }
            Inst::Print { fmt, args, .. } => self.format(*fmt, args),
            Inst::Intr { dst, f, args } => self.intrinsic(*dst, *f, args),
            Inst::Load { ty, .. } => {
                ensure(matches!(ty.size, 1 | 2 | 4 | 8), "bad size")?;
                self.operands(inst, false, false)
            }
            Inst::Call { dst, func, args } => {
                let f = self
                    .program
                    .funcs
                    .get(func.index())
                    .ok_or("no such function")?;
                ensure(f.params.len() == args.len(), "wrong number of arguments")?;
                for (p, a) in f.params.iter().zip(args) {
                    let ty = f.body.regs.get(p.index()).ok_or("no such parameter")?;
                    self.expect_type(*a, *ty)?;
                }
                match (dst, f.ret) {
                    (None, _) => Ok(()),
                    (Some(dst), Some(ty)) => self.dst(*dst, is_str(ty)),
                    (Some(_), None) => Err("result of a function without one".into()),
                }
            }
            Inst::Save { src, .. } => ensure(matches!(src, Val::Reg(_)), "not a register")
                .and_then(|()| self.ty(*src).map(|_| ())),
            Inst::Restore { dst, .. } => self.reg(*dst).map(|_| ()),
            Inst::Tick { .. } | Inst::Enter | Inst::Leave | Inst::Rethrow => Ok(()),
            _ => self.on_global(inst, iters),
        }
    }

    fn intrinsic(&self, dst: Option<Reg>, f: Intrinsic, args: &[Val]) -> CheckResult {
        let info = f.info();
        let runs = |e: Executor| self.executors.iter().any(|set| set.contains(e));
        if let Some(set) = self
            .executors
            .iter()
            .find(|set| !info.executors.meets(**set))
        {
            let lacking = Executor::ALL.into_iter().find(|e| set.contains(*e));
            return Err(format!(
                "not in {} handlers",
                lacking.map_or("", Executor::name)
            ));
        }
        ensure(info.params.len() == args.len(), "wrong number of arguments")?;
        for (k, a) in info.params.iter().zip(args) {
            self.expect(*a, *k == ValueKind::Str)?;
        }
        if f.wants_constant() {
            let ok = matches!(args.first(), Some(Val::Imm(_)));
            let compiled = runs(Executor::Kernel) || runs(Executor::Process);
            ensure(ok || !compiled, "argument is not a constant")?;
        }
        match (dst, info.ret) {
            (None, _) => Ok(()),
            (Some(dst), Some(kind)) => self.dst(dst, kind == ValueKind::Str),
            (Some(_), None) => Err("result of an intrinsic without one".into()),
        }
    }

    fn on_global(&self, inst: &Inst, iters: &[Option<Vec<Ty>>]) -> CheckResult {
        let number = |ty: Ty| ensure(ty == Ty::Long, "adding to something other than a number");
        match inst {
            Inst::GLoad { dst, g } => self.dst(*dst, is_str(self.scalar(*g)?)),
            Inst::GStore { g, val } => self.expect_type(*val, self.scalar(*g)?),
            Inst::GAdd { g, .. } => {
                number(self.scalar(*g)?)?;
                self.operands(inst, false, false)
            }
            Inst::AGet { dst, g, keys } => self.dst(*dst, is_str(self.scalar_element(*g, keys)?)),
            Inst::ASet { g, keys, val } => self.expect_type(*val, self.scalar_element(*g, keys)?),
            Inst::AAdd { g, keys, val, old } => {
                number(self.scalar_element(*g, keys)?)?;
                self.expect(*val, false)?;
                old.map_or(Ok(()), |o| self.dst(o, false))
            }
            Inst::AHas { dst, g, keys } => {
                self.element(*g, keys.iter().copied())?;
                self.dst(*dst, false)
            }
            Inst::ADel { g, keys } => self.element(*g, keys.iter().copied()).map(|_| ()),
            Inst::GClear { g } => self.kind(*g).map(|_| ()),
            Inst::StatAdd { g, keys, val } => {
                self.stats(*g, keys)?;
                self.expect(*val, false)
            }
            Inst::StatGet {
                dst,
                g,
                keys,
                what,
                shift,
            } => {
                let s = self.stats(*g, keys)?;
                let kept = match what {
                    Extract::Count => true,
                    Extract::Sum | Extract::Avg => s.keeps_sum(),
                    Extract::Min => s.min,
                    Extract::Max => s.max,
                    Extract::Variance => s.variance,
                };
                ensure(kept, "the statistic does not keep that")?;
                ensure(*shift <= 62, "shift above 62")?;
                self.dst(*dst, false)
            }
            Inst::HistGet { dst, g, keys, idx } => {
                ensure(self.stats(*g, keys)?.hist.is_some(), "no histogram")?;
                self.expect(*idx, false)?;
                self.dst(*dst, false)
            }
            Inst::PrintHist { dst, g, keys } => {
                ensure(self.stats(*g, keys)?.hist.is_some(), "no histogram")?;
                dst.map_or(Ok(()), |dst| self.dst(dst, true))
            }
            Inst::IterNew { .. } | Inst::IterHist { .. } => self.on_iterator(inst, iters),
            _ => Err("not checked".into()),
        }
    }

    fn on_iterator(&self, inst: &Inst, iters: &[Option<Vec<Ty>>]) -> CheckResult {
        match inst {
            Inst::IterNew {
                it,
                g,
                slice,
                sort,
                limit,
            } => {
                self.iter(*it)?;
                let keys = self.kind(*g)?.keys();
                ensure(!keys.is_empty(), "not an array")?;
                if !slice.is_empty() {
                    self.element(*g, slice.iter().copied())?;
                }
                ensure(
                    iters[it.index()].as_deref() == Some(keys),
                    "iterator of another array",
                )?;
                match sort.map(|s| s.by) {
                    Some(SortKey::Key(k)) => ensure((k as usize) < keys.len(), "no such key")?,
                    Some(SortKey::Stat(_)) => {
                        ensure(self.kind(*g)?.stats().is_some(), "not statistics")?;
                    }
                    _ => {}
                }
                limit.map_or(Ok(()), |l| self.expect(l, false))
            }
            Inst::IterHist { it, g, keys } => {
                self.iter(*it)?;
                ensure(self.stats(*g, keys)?.hist.is_some(), "no histogram")?;
                ensure(
                    iters[it.index()].as_deref() == Some(&[Ty::Long]),
                    "iterator of something else",
                )
            }
            _ => Err("not checked".into()),
        }
    }
}
