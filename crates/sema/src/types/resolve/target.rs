//! `$variables`, `@cast` and the other `@`-operators: loads, constants, hidden arrays.

use std::sync::Arc;

use spile_cast::Cast;
use spile_ir::intrinsics::Intrinsic;
use spile_ir::{BinOp, Event, Space};
use spile_syntax::ast::{self, Access, AtOp, Pretty, Span};
use spile_syntax::codes::LITERAL_WANTED;
use spile_syntax::diag::Diagnostic;

use super::Resolver;
use super::pretty::ShownForm;
use crate::codes as probe_codes;
use crate::ctype::{self, CBase, CTy, FinalAccess, MemberWalk, WalkBase, WalkStep};
use crate::facts::VarKind;
use crate::probe::{HandlerContext, HandlerKind, TargetSource, TargetVar};
use crate::types::codes;
use crate::types::hir::*;

type Typed = (HirExpr, Option<CTy>);

/// What is written around the name of a variable.
#[derive(Clone, Copy)]
pub(super) struct Suffix<'a> {
    /// `->a[1]`
    pub access: &'a [Access],
    /// `&` in front.
    pub addr_of: bool,
    /// `$` or `$$` behind.
    pub pretty: Pretty,
}

impl<'a> Suffix<'a> {
    fn new(access: &'a [Access], addr_of: bool, pretty: Pretty) -> Suffix<'a> {
        Suffix {
            access,
            addr_of,
            pretty,
        }
    }
}

/// The error of `->`, `[` or `$` after a value whose C type is not known, or of `&` before it.
fn untyped(access: &[Access], addr_of: bool, why: &str, span: Span) -> Diagnostic {
    let text = match access.first() {
        Some(Access::Member(name)) => {
            format!("unable to find member `{}`: {why}", name.name)
        }
        Some(Access::Index(_)) => format!("cannot index this value: {why}"),
        None if addr_of => {
            let text = "`&` needs a target variable or a structure member";
            let d = Diagnostic::error(probe_codes::BAD_ADDRESS, text);
            return d.label(span, "has no address");
        }
        None => format!("`$` cannot show this value: {why}"),
    };
    let d = Diagnostic::error(codes::TYPED_OPERAND, text).at(span);
    d.help("name the type: `@cast(x, \"struct task_struct\")->pid`")
}

/// The memory that addresses in a variable refer to.
fn space_of(source: &TargetSource, ctx: &HandlerContext) -> Space {
    match (source, ctx.kind) {
        (TargetSource::SysArg(_), _) | (_, HandlerKind::UserCode) => Space::User,
        _ => Space::Kernel,
    }
}

impl Resolver<'_> {
    /// The three forms that walk structures, and the `@` operators.
    pub(super) fn target_expr(&mut self, e: &ast::Expr) -> Option<Typed> {
        let span = e.span;
        if let Some(nothing) = self.stand_in(e) {
            return Some((nothing, None));
        }
        match &e.kind {
            ast::ExprKind::Target {
                name,
                addr_of,
                access,
                pretty,
            } => match self.at_entry(name) {
                true => self.entry(e, span),
                false => self.target(name, Suffix::new(access, *addr_of, *pretty), span),
            },
            ast::ExprKind::At {
                op,
                args,
                addr_of,
                access,
                pretty,
            } => {
                let suffix = Suffix::new(access, *addr_of, *pretty);
                match (op, &args[..]) {
                    (AtOp::Cast, _) => self.cast(args, suffix, span),
                    (AtOp::Var, _) => self.module_var(args, suffix, span),
                    (AtOp::Entry, [e]) => {
                        let typed = self.entry(e, span)?;
                        Some(self.pretty_text(typed, Space::Kernel, *pretty, span))
                    }
                    _ => Some((self.operator(*op, args, span)?, None)),
                }
            }
            ast::ExprKind::Arrow {
                base,
                addr_of,
                access,
                pretty,
            } => {
                let (base, cty) = self.typed_expr(base);
                let cty = match self.type_of_value(&base, cty) {
                    Ok(cty) => cty,
                    Err(why) => {
                        let why = why.reason(self.facts);
                        self.report(untyped(access, *addr_of, &why, base.span));
                        return None;
                    }
                };
                let space = self.space_of_type(cty);
                let suffix = Suffix::new(access, *addr_of, *pretty);
                self.walk(base, WalkBase::Value(cty), suffix, space, span)
            }
            _ => None,
        }
    }

    /// With `--skip-badvars`: the stand-in for a variable that does not exist.
    fn stand_in(&mut self, e: &ast::Expr) -> Option<HirExpr> {
        let (name, pretty) = match &e.kind {
            ast::ExprKind::Target { name, pretty, .. } => (&**name, *pretty),
            ast::ExprKind::At {
                op: AtOp::Var,
                pretty,
                ..
            } => ("@var", *pretty),
            _ => return None,
        };
        if !self.options.skip_badvars || self.trial > 0 || self.is_defined(e) {
            return None;
        }
        let text = format!("`{name}` is not available here and is replaced by 0");
        self.report(Diagnostic::warning(codes::BAD_VARIABLE, text).at(e.span));
        Some(match pretty {
            Pretty::None => self.imm(0, e.span),
            _ => self.string_imm(b"", e.span),
        })
    }

    /// The text of a value, where `$` or `$$` requests it.
    pub(super) fn pretty_text(
        &mut self,
        typed: Typed,
        space: Space,
        pretty: Pretty,
        span: Span,
    ) -> Typed {
        match typed {
            (value, Some(cty)) if pretty != Pretty::None => {
                (self.pretty(value, cty, space, pretty, span), None)
            }
            typed => typed,
        }
    }

    fn target(&mut self, name: &str, suffix: Suffix<'_>, span: Span) -> Option<Typed> {
        let Suffix {
            access,
            addr_of,
            pretty,
        } = suffix;
        if self.has_value() {
            let plain = !addr_of && access.is_empty() && pretty == Pretty::None;
            return Some((self.value(name, plain, span)?, None));
        }
        let ctx = match &self.cur.ctx {
            Some(c) if c.kind != HandlerKind::Controller => c.clone(),
            _ => return self.without_context(name, span),
        };
        if let Some(e) = self.collective(name, &ctx, pretty, span) {
            return Some((e, None));
        }
        let short = name.trim_start_matches('$');
        let by_number = || ctx.numbered_argument(short);
        let named = ctx.target(short).or_else(by_number);
        let Some(t) = named.filter(|_| !name.starts_with("$$")) else {
            if let Some(located) = self.global(short, &ctx) {
                let space = self.space_of_type(CTy::id(located.ty));
                return self.variable(&located, suffix, space, span);
            }
            return self.unknown_target(name, &ctx, span);
        };
        let space = space_of(&t.source, &ctx);
        if pretty != Pretty::None
            && access.is_empty()
            && let Some((pieces, ty)) = self.shown_in_pieces(&t.source, t.ty)
        {
            let text = self.pretty_in_pieces(pieces, ty, space, pretty, span);
            return Some((text, None));
        }
        let in_pieces = self.member_in_pieces(&t.source, t.ty, access, space, span);
        let located = in_pieces.unwrap_or_else(|| {
            let whole = self.source(&t.source, t.ty, space, span);
            whole.map(|base| (base, access))
        });
        let ((base, from), access) = match located {
            Ok(located) => located,
            Err(why) => return self.absent(&format!("`{name}`"), &why, span),
        };
        self.walk(base, from, Suffix { access, ..suffix }, space, span)
    }

    /// The error of a `$` variable where there are none.
    fn without_context<T>(&mut self, name: &str, span: Span) -> Option<T> {
        let location = match self.cur.ret {
            Some(_) => "function",
            None => "probe",
        };
        let text = "unresolved target-symbol expression: there is no";
        let text = format!("{text} `{name}` in this {location}");
        let d = Diagnostic::error(probe_codes::NO_CONTEXT, text).at(span);
        self.report(d.help(
            "context variables exist in probes of kernel events; \
             pass them to functions as arguments",
        ));
        None
    }

    /// The error of a `$` variable that the context lacks.
    fn unknown_target<T>(&mut self, name: &str, ctx: &HandlerContext, span: Span) -> Option<T> {
        let short = name.trim_start_matches('$');
        let shown = ctx.targets.iter().filter(|t| !t.name.starts_with('('));
        let names: Vec<String> = shown.map(|t| format!("${}", t.name)).collect();
        let text = format!("unable to find local `{short}`: this probe has no variable `{name}`");
        let mut d = Diagnostic::error(probe_codes::NO_TARGET, text)
            .at(span)
            .did_you_mean(name, names.iter().map(String::as_str));
        if !names.is_empty() {
            d = d.note(format!("it has {}", names.join(", ")));
        }
        if let Some(why) = &ctx.missing {
            d = d.note(&**why);
        }
        self.report(d);
        None
    }

    /// Whether a variable in a handler of a function's return means its value at the entry.
    fn at_entry(&self, name: &str) -> bool {
        let Some(ctx) = &self.cur.ctx else {
            return false;
        };
        let ret = matches!(&self.cur.event, Some(Event::Code(probe)) if probe.ret);
        let short = name.trim_start_matches('$');
        let of_return = |t: &TargetVar| matches!(t.kind, VarKind::Return | VarKind::Global);
        match name {
            "$$vars" | "$$parms" | "$$locals" => ret,
            _ if name.starts_with("$$") => false,
            _ => ret && ctx.target(short).is_some_and(|t| !of_return(t)),
        }
    }

    /// The base of a walk: the variable's value, or its object's address.
    pub(super) fn source(
        &mut self,
        source: &TargetSource,
        ty: CTy,
        space: Space,
        span: Span,
    ) -> Result<(HirExpr, WalkBase), Arc<str>> {
        let (f, n) = match source {
            TargetSource::CtxArg(n) => (Intrinsic::CtxArg, Some(*n)),
            TargetSource::SysArg(n) => (Intrinsic::SysArg, Some(*n)),
            TargetSource::SysRet => (Intrinsic::SysRet, None),
            TargetSource::Verdict => (Intrinsic::Verdict, None),
            TargetSource::Decision => (Intrinsic::Decision, None),
            TargetSource::SysNr => {
                let nr = self.intrinsic_of(Intrinsic::SysNr, None, span);
                let native_bits = i64::from(spile_ir::NrSet::COMPAT) - 1;
                return Ok((
                    self.op_imm(BinOp::And, nr, native_bits, span),
                    WalkBase::Value(ty),
                ));
            }
            TargetSource::Loc(loc) => return self.location(loc, ty, space, span),
        };
        let value = self.intrinsic_of(f, n.map(i64::from), span);
        Ok((value, WalkBase::Value(ty)))
    }

    /// `$$name`, `$$system`, `$$vars` and the other `$$` variables.
    fn collective(
        &mut self,
        name: &str,
        ctx: &Arc<HandlerContext>,
        pretty: Pretty,
        span: Span,
    ) -> Option<HirExpr> {
        let text = |s: &Option<Arc<str>>| s.as_deref().unwrap_or("").as_bytes().into();
        let kind = |kind: VarKind| ctx.targets.iter().filter(move |t| t.kind == kind);
        let listed: Vec<&TargetVar> = match name {
            "$$name" if ctx.sites.as_ref().is_some_and(|s| s.functions.len() > 1) => {
                let function = NameFunction::Function;
                return Some(self.str(HirExprKind::ProbeName { function }, span));
            }
            "$$name" => return Some(self.str(HirExprKind::Str(text(&ctx.name)), span)),
            "$$system" | "$$provider" => {
                return Some(self.str(HirExprKind::Str(text(&ctx.system)), span));
            }
            "$$vars" => kind(VarKind::Parameter)
                .chain(kind(VarKind::Local))
                .collect(),
            "$$parms" => kind(VarKind::Parameter).collect(),
            "$$locals" => kind(VarKind::Local).collect(),
            "$$return" => kind(VarKind::Return).collect(),
            _ => return None,
        };
        let mut list = Vec::new();
        for t in listed {
            let space = space_of(&t.source, ctx);
            // A variable that does not exist is shown as such, as in SystemTap.
            let Ok((base, from)) = self.source(&t.source, t.ty, space, span) else {
                let shown = match self.shown_in_pieces(&t.source, t.ty) {
                    Some((pieces, ty)) if pretty != Pretty::None => {
                        ShownForm::Text(self.pretty_in_pieces(pieces, ty, space, pretty, span))
                    }
                    _ => ShownForm::Nothing,
                };
                list.push((t.name.clone(), shown, t.ty, space));
                continue;
            };
            // A structure passed by value is shown by its address, and a number that a word does not
            // hold as text.
            let shown = match ctype::walk(self.facts, from, &[], false, span) {
                Ok(w) if matches!(w.last, FinalAccess::Wide(_)) => {
                    ShownForm::Text(self.wide_object(base, w, t.ty, space, span))
                }
                Ok(w) => {
                    let whole = Suffix::new(&[], false, pretty);
                    match self.counted_text((&base, from), &w, whole, space, span) {
                        Some(text) => ShownForm::Text(text),
                        None => ShownForm::Value(self.apply(base, w, space, span)),
                    }
                }
                Err(_) => ShownForm::Nothing,
            };
            list.push((t.name.clone(), shown, t.ty, space));
        }
        Some(self.pretty_list(list, pretty, span))
    }

    pub(super) fn walk(
        &mut self,
        base: HirExpr,
        from: WalkBase,
        suffix: Suffix<'_>,
        space: Space,
        span: Span,
    ) -> Option<Typed> {
        match ctype::walk(self.facts, from, suffix.access, suffix.addr_of, span) {
            Ok(w) if suffix.pretty != Pretty::None && matches!(w.last, FinalAccess::Wide(_)) => {
                let shown = w.shown;
                let text = self.wide_object(base, w, shown, space, span);
                Some((text, None))
            }
            Ok(w) => {
                if let Some(text) = self.counted_text((&base, from), &w, suffix, space, span) {
                    return Some((text, None));
                }
                let ty = match suffix.pretty {
                    Pretty::None => w.ty,
                    _ => w.shown,
                };
                // A structure as a value is its address, but `@defined` says no, as in SystemTap.
                self.trial_failed |= self.trial > 0
                    && (w.last == FinalAccess::Address && !suffix.addr_of)
                    && suffix.pretty == Pretty::None
                    && matches!(w.shown.shape(self.facts), ctype::TypeShape::Struct(..));
                let value = self.apply(base, w, space, span);
                Some(self.pretty_text((value, Some(ty)), space, suffix.pretty, span))
            }
            Err(d) => {
                self.report(*d);
                None
            }
        }
    }

    pub(super) fn apply(
        &mut self,
        base: HirExpr,
        w: MemberWalk,
        space: Space,
        span: Span,
    ) -> HirExpr {
        let mut v = base;
        for step in w.steps {
            v = match step {
                WalkStep::Add(n) => self.op_imm(BinOp::Add, v, n, span),
                WalkStep::Index { expr, scale } => {
                    let i = self.integer(&expr);
                    let i = self.op_imm(BinOp::Mul, i, scale.into(), span);
                    self.bin(BinOp::Add, v, i, span)
                }
                WalkStep::Deref => self.load(space, v, 8, false, span),
                WalkStep::Strided { data, terms, array } => {
                    let object = (&v, array);
                    let mut address = self.of_object(&data, object, space, span);
                    for (index, stride) in terms {
                        let index = self.integer(&index);
                        let stride = self.of_object(&stride, object, space, span);
                        let step = self.bin(BinOp::Mul, index, stride, span);
                        address = self.bin(BinOp::Add, address, step, span);
                    }
                    address
                }
            };
        }
        match w.last {
            FinalAccess::Address | FinalAccess::Value { size: 8, .. } => v,
            FinalAccess::Value { size, signed } => {
                self.extend(v, 0, size.saturating_mul(8), signed, span)
            }
            FinalAccess::Load { size, signed } => self.load(space, v, size, signed, span),
            FinalAccess::CrossingField {
                shift,
                width,
                signed,
            } => self.crossing_field(&v, (shift, width), signed, space, span),
            FinalAccess::Wide(kind) => {
                let high = self.op_imm(BinOp::Add, v.clone(), 8, span);
                let high = self.load(space, high, 8, false, span);
                let low = self.load(space, v, 8, false, span);
                self.word_of(kind, (low, high), span)
            }
            FinalAccess::BitField {
                size,
                shift,
                width,
                signed,
            } => {
                let word = self.load(space, v, size, false, span);
                self.extend(word, shift, width, signed, span)
            }
        }
    }

    pub(super) fn load(
        &mut self,
        space: Space,
        addr: HirExpr,
        size: u8,
        signed: bool,
        span: Span,
    ) -> HirExpr {
        let kind = HirExprKind::Load {
            space,
            addr: Box::new(addr),
            size,
            signed,
        };
        self.int(kind, span)
    }

    /// Bits `shift .. shift + width` of a number, extended.
    pub(super) fn extend(
        &mut self,
        v: HirExpr,
        shift: u8,
        width: u8,
        signed: bool,
        span: Span,
    ) -> HirExpr {
        let (shift, width) = (i64::from(shift), i64::from(width.clamp(1, 64)));
        if signed {
            let v = self.op_imm(BinOp::Shl, v, 64 - shift - width, span);
            self.op_imm(BinOp::Shr, v, 64 - width, span)
        } else {
            let v = self.op_imm(BinOp::UShr, v, shift, span);
            let mask = (u64::MAX >> (64 - width)).cast_signed();
            self.op_imm(BinOp::And, v, mask, span)
        }
    }

    /// An operation with a constant; left out where it changes nothing.
    pub(super) fn op_imm(&mut self, op: BinOp, v: HirExpr, n: i64, span: Span) -> HirExpr {
        match (op, n, &v.kind) {
            (BinOp::Add | BinOp::Shl | BinOp::Shr | BinOp::UShr, 0, _)
            | (BinOp::Mul, 1, _)
            | (BinOp::And, -1, _) => return v,
            (BinOp::Add, _, HirExprKind::Num(m)) => {
                return self.imm(m.wrapping_add(n), span);
            }
            (BinOp::Mul, _, HirExprKind::Num(m)) => {
                return self.imm(m.wrapping_mul(n), span);
            }
            _ => {}
        }
        let n = self.imm(n, span);
        self.bin(op, v, n, span)
    }

    /// The literal operand of an operator at this position.
    pub(super) fn literal(
        &mut self,
        args: &[ast::Expr],
        n: usize,
        what: &str,
        span: Span,
    ) -> Option<String> {
        if let Some(ast::ExprKind::Str(s)) = args.get(n).map(|a| &a.kind) {
            return Some(String::from_utf8_lossy(s).into_owned());
        }
        let text = format!("{what} has to be written as a string literal");
        self.refuse(LITERAL_WANTED, span, text)
    }

    fn operator(&mut self, op: AtOp, args: &[ast::Expr], span: Span) -> Option<HirExpr> {
        match op {
            AtOp::Defined => {
                let defined = args.iter().all(|a| self.is_defined(a));
                Some(self.imm(defined.into(), span))
            }
            AtOp::ProbeWrite => Some(self.imm(0, span)),
            AtOp::Enum | AtOp::Const => {
                let name = self.literal(args, 0, "the constant", span)?;
                let known = self.facts.enum_constant(&name);
                if let Some(n) = known.or_else(|| super::parse_number(&name)) {
                    return Some(self.imm(n, span));
                }
                let text = format!("the kernel has no enumeration constant `{name}`");
                let d = Diagnostic::error(probe_codes::NO_CONSTANT, text).at(span);
                self.report(
                    d.note("names from `#define` are not in the kernel's type information"),
                );
                None
            }
            AtOp::EnumName => self.enum_name(args, span),
            AtOp::KDeref | AtOp::UDeref => self.deref(op, args, span),
            AtOp::Perf => self.perf_count(args, span),
            AtOp::KRegister | AtOp::URegister => {
                if let Some(ast::ExprKind::Num(n)) = args.first().map(|a| &a.kind) {
                    return Some(self.intrinsic_of(Intrinsic::CtxReg, Some(*n), span));
                }
                let text = "the number of a register has to be a constant";
                let d = Diagnostic::error(codes::NOT_SUPPORTED, text).at(span);
                self.report(d.help("numbers are DWARF's"));
                None
            }
            AtOp::Cast | AtOp::Var | AtOp::Entry => None,
        }
    }

    /// Whether an expression resolves; the attempt leaves no trace.
    fn is_defined(&mut self, e: &ast::Expr) -> bool {
        let outer = std::mem::replace(&mut self.trial_failed, false);
        let locals = self.cur.locals.len();
        self.trial += 1;
        self.typed_expr(e);
        self.trial -= 1;
        let failed = std::mem::replace(&mut self.trial_failed, outer);
        self.cur.locals.truncate(locals);
        self.cur.by_name.retain(|_, ix| ix.0 < locals);
        !failed
    }

    fn deref(&mut self, op: AtOp, args: &[ast::Expr], span: Span) -> Option<HirExpr> {
        let [size, addr] = args else {
            return None;
        };
        let (size, addr) = (self.integer(size), self.integer(addr));
        let HirExprKind::Num(n @ (1 | 2 | 4 | 8)) = size.kind else {
            let text = "the size has to be 1, 2, 4 or 8";
            return self.refuse(codes::BAD_OPERAND, size.span, text);
        };
        let space = match op {
            AtOp::KDeref => Space::Kernel,
            _ => Space::User,
        };
        Some(self.load(space, addr, n.fit::<u8>(), false, span))
    }

    /// `@enumname(e, "type")`: the constant's name, or the number.
    fn enum_name(&mut self, args: &[ast::Expr], span: Span) -> Option<HirExpr> {
        let (value, cty) = self.typed_expr(args.first()?);
        self.set_type(value.ty, crate::types::unify::Base::Long, value.span);
        let id = match args.get(1) {
            Some(_) => self
                .literal(args, 1, "the enumeration", span)
                .and_then(|n| self.facts.type_by_name(&n)),
            None => cty.and_then(|c| match c.base {
                CBase::Id(id) if c.ptrs == 0 => Some(id),
                _ => None,
            }),
        };
        let values = id.map(|id| self.facts.enum_values(id)).unwrap_or_default();
        let last = values.iter().map(|(_, n)| *n).max().unwrap_or(-1);
        if values.is_empty() || !(0..4096).contains(&last) {
            let text = "no enumeration is known for this value";
            let d = Diagnostic::error(probe_codes::NO_TYPE, text).at(span);
            self.report(d.help("name it: `@enumname(x, \"enum pid_type\")`"));
            return None;
        }
        let mut entries: Vec<ast::LiteralBytes> = vec![Vec::new().into(); last.fit::<usize>() + 1];
        for (name, n) in &values {
            if let Some(slot) = usize::try_from(*n).ok().and_then(|n| entries.get_mut(n)) {
                *slot = name.as_bytes().into();
            }
        }
        let (table, idx) = (self.tree.tables.len(), Box::new(value));
        let name = format!("enum@{table}").into();
        self.tree.tables.push((name, entries));
        Some(self.str(HirExprKind::Table { table, idx }, span))
    }
}
