//! Objects in memory that scripts name by type, by module or by location: `@cast`, `@var`,
//! variables of functions.

use std::sync::Arc;

use spile_ir::intrinsics::Intrinsic;
use spile_ir::{BinOp, Event, Space, UnOp, WatchOwner};
use spile_syntax::ast::{self, Span};
use spile_syntax::diag::Diagnostic;

use super::Resolver;
use super::target::Suffix;
use crate::codes;
use crate::ctype::{self, CBase, CTy, WalkBase};
use crate::facts::{LocOp, ModuleQuery, ProbeModule, VarKind, VarLocation, Variable};
use crate::probe::{HandlerContext, HandlerKind};
use crate::types::hir::*;

type Typed = (HirExpr, Option<CTy>);

/// Maximum number of parts of an expression made from a location program.
const MOST_PARTS: usize = 2000;
/// Maximum number of locations of a handler whose own addresses are looked up.
const MOST_SITES: usize = 64;

/// Why a variable of a position-independent module has no value.
const UNKNOWN_BIAS: &str = "the address of its module is unknown here";

/// The memory of a module's objects.
fn space_of_module(module: &ProbeModule) -> Space {
    match module {
        ProbeModule::File(_) => Space::User,
        _ => Space::Kernel,
    }
}

/// The parts of `name@file`.
fn name_and_file(name: &str) -> (&str, Option<&str>) {
    match name.split_once('@') {
        Some((name, file)) => (name, Some(file)),
        None => (name, None),
    }
}

impl Resolver<'_> {
    /// An intrinsic with at most one operand, a constant.
    pub(super) fn intrinsic_of(&mut self, f: Intrinsic, n: Option<i64>, span: Span) -> HirExpr {
        let args = n.map(|n| self.imm(n, span));
        self.intr(f, args.into_iter().collect(), span)
    }

    /// The memory that objects of a type are in, as far as it is known.
    pub(super) fn space_of_type(&self, ty: CTy) -> Space {
        match ty.base {
            CBase::Id(id) => self.facts.type_space(id),
            CBase::Int { .. } if self.in_user_code() => Space::User,
            CBase::Int { .. } => Space::Kernel,
        }
    }

    pub(super) fn in_user_code(&self) -> bool {
        let ctx = self.cur.ctx.as_ref();
        ctx.is_some_and(|c| c.kind == HandlerKind::UserCode)
    }

    /// The module of the probed code, where it belongs to a program.
    fn own_module(&self) -> Option<ProbeModule> {
        self.cur.ctx.as_ref()?.module.clone()
    }

    /// The module that a script names.
    fn find_module(&self, name: &str) -> Result<Option<ProbeModule>, String> {
        if name == "kernel" || name.starts_with("kernel<") {
            return Ok(Some(ProbeModule::Kernel));
        }
        let headers = name.strip_prefix('<').and_then(|n| n.strip_suffix('>'));
        let query = match headers {
            Some(headers) => ModuleQuery::Headers(headers.split("><").map(Arc::from).collect()),
            None if name.contains('/') => ModuleQuery::Path(name.into()),
            None => ModuleQuery::KernelModule(name.into()),
        };
        let modules = self.facts.modules(&query).or_else(|why| match query {
            ModuleQuery::Path(_) | ModuleQuery::Headers(_) => Err(why),
            _ => self.facts.modules(&ModuleQuery::Path(name.into())),
        })?;
        Ok(modules.into_iter().next().map(|f| f.module))
    }

    /// The module that a script names; an error where there is none.
    fn named_module(&mut self, name: &str, span: Span) -> Option<ProbeModule> {
        let module = self.find_module(name);
        module.unwrap_or_else(|why| self.refuse(codes::NO_MODULE, span, why))
    }

    /// The modules that a script names, separated by colons; those that do not exist are passed
    /// over. An error where none exists.
    fn search_modules(&mut self, names: &str, span: Span) -> Vec<ProbeModule> {
        let mut modules = Vec::new();
        let mut missing = Vec::new();
        for name in names.split(':') {
            match self.find_module(name) {
                Ok(module) => modules.extend(module),
                Err(why) => missing.push(why),
            }
        }
        if modules.is_empty() {
            for why in missing {
                self.error(codes::NO_MODULE, span, why);
            }
        }
        modules
    }

    /// `@cast(address, "type", "module")`
    pub(super) fn cast(
        &mut self,
        args: &[ast::Expr],
        suffix: Suffix<'_>,
        span: Span,
    ) -> Option<Typed> {
        let base = self.integer(args.first()?);
        let name = self.literal(args, 1, "the type of `@cast`", span)?;
        let type_span = args.get(1).map_or(span, |a| a.span);
        let modules = match args.get(2) {
            Some(_) => {
                let named = self.literal(args, 2, "the module of `@cast`", span);
                // The first that has the type counts.
                named.map_or(Vec::new(), |names| self.search_modules(&names, type_span))
            }
            None => {
                let probed = self.own_module().into_iter();
                probed.chain([ProbeModule::Kernel]).collect()
            }
        };
        // Without a module the reason was reported.
        let first = modules.first()?;
        let definition = modules.iter().find_map(|module| {
            let ty = ctype::parse_type_with(&name, |n| self.facts.module_type(module, n))?;
            Some((module, ty))
        });
        let Some((module, ty)) = definition else {
            // A file of the cache means nothing to the reader.
            let named = args.get(2).and_then(|a| match &a.kind {
                ast::ExprKind::Str(s) if s.starts_with(b"<") => {
                    Some(String::from_utf8_lossy(s).into_owned())
                }
                _ => None,
            });
            let place = named.unwrap_or_else(|| first.to_string());
            let text = format!("type definition `{name}` not found in {place}");
            let d = Diagnostic::error(codes::NO_TYPE, text).at(type_span);
            let mut similar = modules.iter();
            let similar = similar.find_map(|m| self.facts.similar_type(m, &name));
            self.report(d.help_if(similar.map(|near| format!("did you mean `{near}`?"))));
            return None;
        };
        let space = space_of_module(module);
        if suffix.access.is_empty() && !suffix.addr_of {
            return Some(self.pretty_text((base, Some(ty.pointer())), space, suffix.pretty, span));
        }
        self.walk(base, WalkBase::Objects(ty), suffix, space, span)
    }

    /// `@var("name@file", "module")`
    pub(super) fn module_var(
        &mut self,
        args: &[ast::Expr],
        suffix: Suffix<'_>,
        span: Span,
    ) -> Option<Typed> {
        let name = self.literal(args, 0, "the name of the variable", span)?;
        let module = match args.get(1) {
            Some(_) => {
                let named = self.literal(args, 1, "the module of `@var`", span)?;
                self.named_module(&named, span)?
            }
            None => self.own_module().unwrap_or(ProbeModule::Kernel),
        };
        let (short, file) = name_and_file(&name);
        let variable = match module {
            ProbeModule::Kernel if file.is_none() => self.facts.variable(short).map(|v| Variable {
                name: short.into(),
                ty: v.ty,
                kind: VarKind::Global,
                loc: VarLocation::Address(v.location()),
            }),
            _ => None,
        };
        let variable = variable.or_else(|| self.facts.module_variable(&module, short, file));
        if let Some(variable) = variable {
            return self.variable(&variable, suffix, space_of_module(&module), span);
        }
        // The address alone needs no type.
        if let (ProbeModule::Kernel, true, []) = (&module, suffix.addr_of, suffix.access)
            && let Ok(location) = self.facts.data_location(&WatchOwner::Kernel, short)
        {
            let address = self.imm(location.address.cast_signed(), span);
            return Some((address, None));
        }
        let text = match module {
            ProbeModule::Kernel => {
                format!("unable to find global `{short}`: nothing is known about it")
            }
            _ => format!("unable to find global `{short}` in {module}"),
        };
        let mut d = Diagnostic::error(codes::NO_VARIABLE, text).at(span);
        if let Some(why) = self.facts.no_debuginfo(&module) {
            d = d.note(why);
        }
        self.report(d);
        None
    }

    /// A global variable of the probed code's module, by `$name`.
    pub(super) fn global(&self, name: &str, ctx: &HandlerContext) -> Option<Variable> {
        let module = ctx.module.as_ref()?;
        let (name, file) = name_and_file(name);
        self.facts.module_variable(module, name, file)
    }

    /// Walks from a variable through member accesses.
    pub(super) fn variable(
        &mut self,
        variable: &Variable,
        suffix: Suffix<'_>,
        space: Space,
        span: Span,
    ) -> Option<Typed> {
        match self.location(&variable.loc, CTy::id(variable.ty), space, span) {
            Ok((base, from)) => self.walk(base, from, suffix, space, span),
            Err(why) => {
                let text = format!("`{}` is not available here: {why}", variable.name);
                let d = Diagnostic::error(codes::ABSENT_VALUE, text).at(span);
                let d = match &*why == UNKNOWN_BIAS {
                    true => d
                        .note("the module can be at another address in each process, and this probe is not in the module")
                        .help(format!(
                            "keep `&@var(\"{}\", ...)` of a probe in the module in a global, and read it here by `@cast`",
                            variable.name
                        )),
                    false => d,
                };
                self.report(d.help("`@defined` tests whether it is"));
                None
            }
        }
    }

    /// The error for something whose value does not exist here.
    pub(super) fn absent<T>(&mut self, what: &str, why: &str, span: Span) -> Option<T> {
        let text = format!("{what} is not available here: {why}");
        let d = Diagnostic::error(codes::ABSENT_VALUE, text).at(span);
        self.report(d.help("`@defined` tests whether it is"));
        None
    }

    /// The value of a location program.
    pub(super) fn location(
        &mut self,
        loc: &VarLocation,
        ty: CTy,
        space: Space,
        span: Span,
    ) -> Result<(HirExpr, WalkBase), Arc<str>> {
        let (ops, from) = match loc {
            VarLocation::Value(ops) => (ops, WalkBase::Value(ty)),
            VarLocation::Address(ops) => (ops, WalkBase::Object(ty)),
            VarLocation::Pieces(_) => return Err("it is in registers: name a member of it".into()),
            VarLocation::Pointee(_) => {
                let why = "not accessible at this address: only what it points to is kept, which `->` and `[0]` read";
                return Err(why.into());
            }
            VarLocation::Absent(why) => return Err(why.clone()),
        };
        let left = self.evaluate_location(ops, space, span);
        let moved = ops.iter().any(|op| matches!(op, LocOp::Bias(_)));
        let left = left.ok_or(match moved {
            true => UNKNOWN_BIAS,
            false => "its location is too complex",
        })?;
        Ok((left, from))
    }

    /// The load bias of the probed code, and the number of parts of the expression: the program
    /// counter less the location's address as linked.
    pub(super) fn bias(&mut self, pc: u16, span: Span) -> Option<(HirExpr, usize)> {
        if matches!(&self.cur.event, Some(Event::Code(probe)) if probe.ret) {
            return Some((self.entry_bias(pc, span)?, 1));
        }
        let addresses = self.cur.ctx.as_ref()?.addresses.clone();
        let (last, others) = addresses.split_last()?;
        if addresses.len() > MOST_SITES {
            return None;
        }
        let mut linked = self.imm(last.1.cast_signed(), span);
        for (site, address) in others.iter().rev() {
            let site_hit = self.intrinsic_of(Intrinsic::CtxSite, None, span);
            let number = self.imm(i64::from(*site), span);
            let equal = self.bin(BinOp::Eq, site_hit, number, span);
            let address = self.imm(address.cast_signed(), span);
            linked = self.choose(equal, [address, linked], span);
        }
        let pc = self.intrinsic_of(Intrinsic::CtxReg, Some(pc.into()), span);
        let distance = self.bin(BinOp::Sub, pc, linked, span);
        Some((distance, 2 + 4 * addresses.len()))
    }

    /// Whether the handler may assign to registers of a program, so that they can change while it runs.
    fn may_change(&self) -> bool {
        self.options.guru
            && matches!(&self.cur.event, Some(Event::Code(probe)) if probe.space == Space::User)
    }

    /// A register at the location that was hit.
    fn register(&mut self, number: i64, span: Span) -> HirExpr {
        let f = match self.may_change() {
            true => Intrinsic::CtxRegNow,
            false => Intrinsic::CtxReg,
        };
        self.intrinsic_of(f, Some(number), span)
    }

    /// Runs a location program symbolically, on expressions; `None` where it is malformed or too
    /// large.
    pub(super) fn evaluate_location(
        &mut self,
        ops: &[LocOp],
        space: Space,
        span: Span,
    ) -> Option<HirExpr> {
        let of_event =
            |r: &mut Self, f, n: Option<u8>| (r.intrinsic_of(f, n.map(i64::from), span), 1);
        // Each with the number of its parts.
        let mut stack: Vec<(HirExpr, usize)> = Vec::new();
        for op in ops {
            let top = stack.len();
            let made = match *op {
                LocOp::Reg(n) => (self.register(n.into(), span), 1),
                LocOp::Arg(n) => of_event(self, Intrinsic::CtxArg, Some(n)),
                LocOp::Record => of_event(self, Intrinsic::CtxRecord, None),
                LocOp::Cpu => of_event(self, Intrinsic::Cpu, None),
                LocOp::Frame(n) => match space {
                    Space::User => of_event(self, Intrinsic::UserFrame, Some(n)),
                    Space::Kernel => of_event(self, Intrinsic::KernelFrame, Some(n)),
                },
                // The first register of results is 0 in all tables of DWARF's numbers here.
                LocOp::Ret if self.may_change() => (self.register(0, span), 1),
                LocOp::Ret => of_event(self, Intrinsic::CtxRet, None),
                LocOp::Bias(pc) => self.bias(pc, span)?,
                LocOp::ThreadPointer(offset) => {
                    let task = self.intrinsic_of(Intrinsic::TaskCurrent, None, span);
                    let address = self.op_imm(BinOp::Add, task, offset.into(), span);
                    (self.load(Space::Kernel, address, 8, false, span), 3)
                }
                LocOp::Const(n) => (self.imm(n, span), 1),
                LocOp::Load { size, signed } => {
                    let (addr, parts) = stack.pop()?;
                    (self.load(space, addr, size, signed, span), parts + 1)
                }
                LocOp::Bin(op) => {
                    let ((b, m), (a, n)) = (stack.pop()?, stack.pop()?);
                    let folded = match b.kind {
                        HirExprKind::Num(k) => self.op_imm(op, a, k, span),
                        _ => self.bin(op, a, b, span),
                    };
                    (folded, m + n + 1)
                }
                LocOp::Neg | LocOp::Not => {
                    let (a, n) = stack.pop()?;
                    let op = match op {
                        LocOp::Neg => UnOp::Neg,
                        _ => UnOp::BitNot,
                    };
                    (self.int(HirExprKind::Un(op, Box::new(a)), span), n + 1)
                }
                LocOp::Pick(n) => {
                    let index = top.checked_sub(1 + usize::from(n))?;
                    stack.get(index)?.clone()
                }
                LocOp::Drop => {
                    stack.pop()?;
                    continue;
                }
                LocOp::Swap => {
                    stack.swap(top.checked_sub(1)?, top.checked_sub(2)?);
                    continue;
                }
                LocOp::Rot => {
                    stack.get_mut(top.checked_sub(3)?..)?.rotate_right(1);
                    continue;
                }
            };
            if made.1 > MOST_PARTS {
                return None;
            }
            stack.push(made);
        }
        stack.pop().map(|(e, _)| e)
    }
}
