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
    pub(super) fn target_expr(&mut self, e: &ast::Expr) -> Typed {
        let span = e.span;
        if let Some(nothing) = self.stand_in(e) {
            return (nothing, None);
        }
        match &e.kind {
            ast::ExprKind::Target {
                name,
                addr_of,
                access,
                pretty,
            } => match self.at_entry(name) {
                true => self.entry(e, span),
                false => {
                    let suffix = Suffix {
                        access,
                        addr_of: *addr_of,
                        pretty: *pretty,
                    };
                    self.target(name, suffix, span)
                }
            },
            ast::ExprKind::At {
                op,
                args,
                addr_of,
                access,
                pretty,
            } => {
                let suffix = Suffix {
                    access,
                    addr_of: *addr_of,
                    pretty: *pretty,
                };
                match op {
                    AtOp::Cast => self.cast(args, suffix, span),
                    AtOp::Var => self.module_var(args, suffix, span),
                    AtOp::Entry => match args.as_slice() {
                        [e] => {
                            let typed = self.entry(e, span);
                            self.pretty_text(typed, Space::Kernel, *pretty, span)
                        }
                        _ => (self.bad(span), None),
                    },
                    _ => (self.operator(*op, args, span), None),
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
                        return (self.bad(span), None);
                    }
                };
                let space = self.space_of_type(cty);
                let suffix = Suffix {
                    access,
                    addr_of: *addr_of,
                    pretty: *pretty,
                };
                self.walk(base, WalkBase::Value(cty), suffix, space, span)
            }
            _ => (self.bad(span), None),
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

    fn target(&mut self, name: &str, suffix: Suffix<'_>, span: Span) -> Typed {
        let Suffix {
            access,
            addr_of,
            pretty,
        } = suffix;
        if self.has_value() {
            let plain = !addr_of && access.is_empty() && pretty == Pretty::None;
            return (self.value(name, plain, span), None);
        }
        let ctx = match &self.cur.ctx {
            Some(c) if c.kind != HandlerKind::Controller => c.clone(),
            _ => return (self.without_context(name, span), None),
        };
        if let Some(e) = self.collective(name, &ctx, pretty, span) {
            return (e, None);
        }
        let short = name.trim_start_matches('$');
        let by_number = || ctx.numbered_argument(short);
        let named = ctx.target(short).or_else(by_number);
        let Some(t) = named.filter(|_| !name.starts_with("$$")) else {
            if let Some(found) = self.global(short, &ctx) {
                let space = self.space_of_type(CTy::id(found.ty));
                return self.variable(&found, suffix, space, span);
            }
            return (self.unknown_target(name, &ctx, span), None);
        };
        let space = space_of(&t.source, &ctx);
        if pretty != Pretty::None
            && access.is_empty()
            && let Some((pieces, ty)) = self.shown_in_pieces(&t.source, t.ty)
        {
            let text = self.pretty_in_pieces(pieces, ty, space, pretty, span);
            return (text, None);
        }
        let found = match self.member_in_pieces(&t.source, t.ty, access, space, span) {
            Some(found) => found,
            None => self
                .source(&t.source, t.ty, space, span)
                .map(|f| (f, access)),
        };
        let ((base, from), access) = match found {
            Ok(found) => found,
            Err(why) => {
                let text = format!("`{name}` is not available here: {why}");
                let d = Diagnostic::error(probe_codes::ABSENT_VALUE, text).at(span);
                self.report(d.help("`@defined` tests whether it is"));
                return (self.bad(span), None);
            }
        };
        self.walk(base, from, Suffix { access, ..suffix }, space, span)
    }

    /// The error of a `$` variable where there are none.
    fn without_context(&mut self, name: &str, span: Span) -> HirExpr {
        let location = if self.cur.ret.is_some() {
            "function"
        } else {
            "probe"
        };
        let text = "unresolved target-symbol expression: there is no";
        let text = format!("{text} `{name}` in this {location}");
        let d = Diagnostic::error(probe_codes::NO_CONTEXT, text).at(span);
        self.report(d.help(
            "context variables exist in probes of kernel events; \
             pass them to functions as arguments",
        ));
        self.bad(span)
    }

    /// The error of a `$` variable that the context lacks.
    fn unknown_target(&mut self, name: &str, ctx: &HandlerContext, span: Span) -> HirExpr {
        let short = name.trim_start_matches('$');
        let own = ctx.targets.iter().filter(|t| !t.name.starts_with('('));
        let names: Vec<String> = own.map(|t| format!("${}", t.name)).collect();
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
        self.bad(span)
    }

    /// Whether a variable in a handler of a function's return means its value at the entry.
    fn at_entry(&self, name: &str) -> bool {
        let Some(ctx) = &self.cur.ctx else {
            return false;
        };
        let ret = matches!(&self.cur.event, Some(Event::Code(probe)) if probe.ret);
        let short = name.trim_start_matches('$');
        let own = |t: &TargetVar| matches!(t.kind, VarKind::Return | VarKind::Global);
        match name {
            "$$vars" | "$$parms" | "$$locals" => ret,
            _ if name.starts_with("$$") => false,
            _ => ret && ctx.target(short).is_some_and(|t| !own(t)),
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
                let own = i64::from(spile_ir::NrSet::COMPAT) - 1;
                return Ok((self.op_imm(BinOp::And, nr, own, span), WalkBase::Value(ty)));
            }
            TargetSource::Loc(loc) => return self.location(loc, ty, space, span),
        };
        Ok((
            self.intrinsic_of(f, n.map(i64::from), span),
            WalkBase::Value(ty),
        ))
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
                let of = NameFunction::Function;
                return Some(self.str(HirExprKind::ProbeName { of }, span));
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
                    let all = Suffix {
                        access: &[],
                        addr_of: false,
                        pretty,
                    };
                    match self.counted_text((&base, from), &w, all, space, span) {
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
    ) -> Typed {
        match ctype::walk(self.facts, from, suffix.access, suffix.addr_of, span) {
            Ok(w) if suffix.pretty != Pretty::None && matches!(w.last, FinalAccess::Wide(_)) => {
                let shown = w.shown;
                let text = self.wide_object(base, w, shown, space, span);
                (text, None)
            }
            Ok(w) => {
                if let Some(text) = self.counted_text((&base, from), &w, suffix, space, span) {
                    return (text, None);
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
                self.pretty_text((value, Some(ty)), space, suffix.pretty, span)
            }
            Err(d) => {
                self.report(*d);
                (self.bad(span), None)
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
                    let i = self.number(&expr);
                    let i = self.op_imm(BinOp::Mul, i, scale.into(), span);
                    self.bin(BinOp::Add, v, i, span)
                }
                WalkStep::Deref => self.load(space, v, 8, false, span),
                WalkStep::Strided { data, terms, of } => {
                    let object = (&v, of);
                    let mut at = self.of_object(&data, object, space, span);
                    for (index, stride) in terms {
                        let index = self.number(&index);
                        let stride = self.of_object(&stride, object, space, span);
                        let step = self.bin(BinOp::Mul, index, stride, span);
                        at = self.bin(BinOp::Add, at, step, span);
                    }
                    at
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
        self.num(
            HirExprKind::Load {
                space,
                addr: Box::new(addr),
                size,
                signed,
            },
            span,
        )
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
        let n = Box::new(self.imm(n, span));
        self.num(HirExprKind::Bin(op, Box::new(v), n), span)
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
        self.error(LITERAL_WANTED, span, text);
        None
    }

    fn operator(&mut self, op: AtOp, args: &[ast::Expr], span: Span) -> HirExpr {
        match op {
            AtOp::Defined => {
                let defined = args.iter().all(|a| self.is_defined(a));
                self.imm(defined.into(), span)
            }
            AtOp::ProbeWrite => self.imm(0, span),
            AtOp::Enum | AtOp::Const => {
                let Some(name) = self.literal(args, 0, "the constant", span) else {
                    return self.bad(span);
                };
                match self
                    .facts
                    .enum_constant(&name)
                    .or_else(|| super::parse_number(&name))
                {
                    Some(n) => self.imm(n, span),
                    None => {
                        let text = format!("the kernel has no enumeration constant `{name}`");
                        self.report(
                            Diagnostic::error(probe_codes::NO_CONSTANT, text)
                                .at(span)
                                .note(
                                    "names from `#define` are not in the kernel's type information",
                                ),
                        );
                        self.bad(span)
                    }
                }
            }
            AtOp::EnumName => self.enum_name(args, span),
            AtOp::KDeref | AtOp::UDeref => self.deref(op, args, span),
            AtOp::Perf => self.perf_count(args, span),
            AtOp::KRegister | AtOp::URegister => match args.first().map(|a| &a.kind) {
                Some(ast::ExprKind::Num(n)) => self.intrinsic_of(Intrinsic::CtxReg, Some(*n), span),
                _ => self.unsupported(
                    "the number of a register has to be a constant",
                    "numbers are DWARF's",
                    span,
                ),
            },
            AtOp::Cast | AtOp::Var | AtOp::Entry => self.bad(span),
        }
    }

    fn unsupported(&mut self, text: &str, help: &str, span: Span) -> HirExpr {
        self.report(
            Diagnostic::error(codes::NOT_SUPPORTED, text)
                .at(span)
                .help(help),
        );
        self.bad(span)
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

    fn deref(&mut self, op: AtOp, args: &[ast::Expr], span: Span) -> HirExpr {
        let [size, addr] = args else {
            return self.bad(span);
        };
        let (size, addr) = (self.number(size), self.number(addr));
        let HirExprKind::Num(n @ (1 | 2 | 4 | 8)) = size.kind else {
            let text = "the size has to be 1, 2, 4 or 8";
            self.error(codes::BAD_OPERAND, size.span, text);
            return self.bad(span);
        };
        let space = if op == AtOp::KDeref {
            Space::Kernel
        } else {
            Space::User
        };
        self.load(space, addr, n.fit::<u8>(), false, span)
    }

    /// `@enumname(e, "type")`: the constant's name, or the number.
    fn enum_name(&mut self, args: &[ast::Expr], span: Span) -> HirExpr {
        let Some(first) = args.first() else {
            return self.bad(span);
        };
        let (value, cty) = self.typed_expr(first);
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
            self.report(
                Diagnostic::error(probe_codes::NO_TYPE, text)
                    .at(span)
                    .help("name it: `@enumname(x, \"enum pid_type\")`"),
            );
            return self.bad(span);
        }
        let mut entries: Vec<ast::LiteralBytes> = vec![Vec::new().into(); last.fit::<usize>() + 1];
        for (name, n) in &values {
            if let Some(slot) = usize::try_from(*n).ok().and_then(|n| entries.get_mut(n)) {
                *slot = name.as_bytes().into();
            }
        }
        self.tree
            .tables
            .push((format!("enum@{}", self.tree.tables.len()).into(), entries));
        let table = self.tree.tables.len() - 1;
        self.str(
            HirExprKind::Table {
                table,
                idx: Box::new(value),
            },
            span,
        )
    }
}
