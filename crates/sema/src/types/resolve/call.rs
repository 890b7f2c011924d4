//! Calls: functions of the script and of the library, and the library's internal operations.

use std::sync::Arc;

use spile_ir::intrinsics::{Intrinsic, ValueKind};
use spile_ir::{BinOp, Stream};
use spile_syntax::ast::{self, FileId, Span, TypeName};
use spile_syntax::diag::Diagnostic;
use spile_syntax::visit::each_stmt;

use super::{FnDecl, Resolver, SUGGESTIONS};
use crate::ids::IdMap;
use crate::probe::syscall_table;
use crate::types::codes;
use crate::types::hir::*;
use crate::types::unify::Base;

type FunctionDef = (FileId, Arc<ast::Function>);

impl Resolver<'_> {
    /// A call; `value` tells whether its value is used.
    pub(super) fn call(
        &mut self,
        name: &ast::Ident,
        args: &[ast::Expr],
        span: Span,
        value: bool,
    ) -> HirExpr {
        let built_in = name.span.file.is_built_in();
        // What a macro of the built-in library calls is the library's, in every file.
        let from = match built_in {
            true if !self.cur.file.is_built_in() => name.span.file,
            _ => self.cur.file,
        };
        let found = self.lib.functions(&name.name, from);
        if found.is_empty() {
            if built_in && name.name.starts_with("__") {
                return self.internal(name, args, span, value);
            }
            self.unknown_function(name);
            for a in args {
                self.expr(a);
            }
            return self.bad(span);
        }
        let mut fits: Vec<&FunctionDef> = found
            .iter()
            .filter(|(_, f)| f.params.len() == args.len())
            .collect();
        if fits.is_empty() {
            self.wrong_count(name, args.len(), &found);
            return self.bad(span);
        }
        // Bodies of one signature run by priority, then in source order.
        fits.sort_by_key(|(_, f)| f.priority.unwrap_or(0));
        let fits: Vec<FunctionDef> = fits.into_iter().cloned().collect();
        self.warn_unreached(&fits);
        let func = self.units_of(&fits);
        let args: Vec<HirExpr> = args.iter().map(|a| self.expr(a)).collect();
        let UnitKind::Func { params, ret, .. } = &self.tree.units[func.0].kind else {
            return self.bad(span);
        };
        let (params, ret) = (params.clone(), *ret);
        for (a, p) in args.iter().zip(params) {
            let ty = self.tree.units[func.0].locals[p.0].ty;
            self.unify(a.ty, ty, a.span);
        }
        if value {
            self.value_calls.push((func, span));
        }
        HirExpr {
            kind: HirExprKind::Call { func, args },
            ty: ret,
            span,
        }
    }

    /// Warns of the script's bodies behind one without `next`.
    fn warn_unreached(&mut self, bodies: &[FunctionDef]) {
        let goes_on = |f: &ast::Function| {
            let mut found = false;
            if let ast::FnBody::Block(b) = &f.body {
                each_stmt(b, |s| found |= matches!(s.kind, ast::StmtKind::Next));
            }
            found
        };
        let Some(last) = bodies.iter().position(|(_, f)| !goes_on(f)) else {
            return;
        };
        let (by, rest) = (bodies[last].1.name.span, &bodies[last + 1..]);
        for (_, f) in rest.iter().filter(|(file, _)| self.lib.is_user(*file)) {
            let text = format!("this body of `{}` is never reached", f.name.name);
            self.report(
                Diagnostic::warning(codes::UNREACHED, text)
                    .at(f.name.span)
                    .also(by, "this one has no `next`"),
            );
        }
    }

    /// The unit of the first of these bodies; `next` goes on with the others.
    fn units_of(&mut self, fits: &[FunctionDef]) -> UnitIx {
        let mut first: Option<UnitIx> = None;
        let mut last: Option<UnitIx> = None;
        for (file, f) in fits {
            let unit = self.unit_of(*file, f);
            if let Some(prev) = last
                && prev != unit
            {
                self.set_next_alternative(prev, unit);
            }
            first.get_or_insert(unit);
            last = Some(unit);
        }
        // `fits` is never empty.
        first.unwrap_or(UnitIx(0))
    }

    fn set_next_alternative(&mut self, prev: UnitIx, unit: UnitIx) {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for (u, out) in [(prev, &mut a), (unit, &mut b)] {
            if let UnitKind::Func { params, ret, .. } = &self.tree.units[u.0].kind {
                let locals = &self.tree.units[u.0].locals;
                out.extend(params.iter().map(|p| (locals[p.0].ty, locals[p.0].span)));
                out.push((*ret, self.tree.units[u.0].span));
            }
        }
        for ((a, _), (b, at)) in a.into_iter().zip(b) {
            self.unify(b, a, at);
        }
        if let UnitKind::Func { next_alt, .. } = &mut self.tree.units[prev.0].kind {
            *next_alt = Some(unit);
        }
    }

    fn unit_of(&mut self, file: FileId, f: &Arc<ast::Function>) -> UnitIx {
        let key = Arc::as_ptr(f) as usize;
        if let Some(d) = self.functions.get(&key) {
            return d.unit;
        }
        let tapset = !self.is_user(file);
        let base = |t: TypeName| match t {
            TypeName::Long => Base::Long,
            TypeName::String => Base::Str,
        };
        let ret = match f.ret {
            Some(t) => self.types.fresh_of(base(t), f.name.span),
            None => self.types.fresh(),
        };
        let mut locals: Vec<Local> = Vec::new();
        for (id, ty) in &f.params {
            let ty = match ty {
                Some(t) => self.types.fresh_of(base(*t), id.span),
                None => self.types.fresh(),
            };
            locals.push(Local {
                name: id.name.clone(),
                span: id.span,
                ty,
                param: true,
                read: false,
                written: true,
                bound: false,
            });
        }
        let unit = UnitIx(self.tree.units.len());
        let params = (0..locals.len()).map(LocalIx).collect();
        let has_value = f.ret.is_some();
        self.tree.units.push(Unit {
            name: f.name.name.clone(),
            span: f.name.span,
            user: !tapset,
            kind: UnitKind::Func {
                params,
                ret,
                has_value,
                next_alt: None,
            },
            locals,
            body: Vec::new(),
        });
        self.functions.insert(
            key,
            FnDecl {
                func: f.clone(),
                file,
                tapset,
                unit,
                results: Vec::new(),
            },
        );
        self.queue.push_back(key);
        self.pull(file);
        unit
    }

    fn unknown_function(&mut self, name: &ast::Ident) {
        if self.trial > 0 {
            self.trial_failed = true;
            return;
        }
        let names = match self.diags.error_count() {
            0..=SUGGESTIONS => self.lib.function_names(),
            _ => Vec::new(),
        };
        let text = format!("unresolved function `{}`", name.name);
        if let Some(why) = super::unavailable::reason(&name.name) {
            let d = Diagnostic::error(codes::UNKNOWN_FUNCTION, text).at(name.span);
            return self.report(d.help(why));
        }
        self.report(
            Diagnostic::error(codes::UNKNOWN_FUNCTION, text)
                .at(name.span)
                .did_you_mean(&name.name, names.iter().map(|n| &**n)),
        );
    }

    fn wrong_count(&mut self, name: &ast::Ident, n: usize, found: &[FunctionDef]) {
        let mut counts: Vec<usize> = found.iter().map(|(_, f)| f.params.len()).collect();
        counts.sort_unstable();
        counts.dedup();
        let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
        let text = format!(
            "`{}` takes {} arguments, not {n}",
            name.name,
            counts.join(" or ")
        );
        let mut d = Diagnostic::error(codes::ARGUMENT_COUNT, text).at(name.span);
        if let Some((file, f)) = found.first()
            && self.is_user(*file)
        {
            d = d.also(f.name.span, "defined here");
        }
        self.report(d);
    }

    /// The id in a user namespace for an id of the kernel. The code tests `id` against each range.
    fn map_id(&mut self, map: &IdMap, id: &HirExpr, span: Span) -> HirExpr {
        self.set_type(id.ty, Base::Long, id.span);
        let others = self.num(HirExprKind::Num(map.others.into()), span);
        map.ranges
            .iter()
            .rev()
            .fold(others, |others, (inside, outside, count)| {
                let mut with = |op, a: &HirExpr, n: i64| {
                    let n = self.num(HirExprKind::Num(n), span);
                    self.num(HirExprKind::Bin(op, Box::new(a.clone()), Box::new(n)), span)
                };
                let (first, count) = (i64::from(*outside), i64::from(*count));
                let above = with(BinOp::Ge, id, first);
                let below = with(BinOp::Lt, id, first + count);
                let there = with(BinOp::Add, id, i64::from(*inside) - first);
                let (a, b) = (Box::new(above), Box::new(below));
                let within = self.num(HirExprKind::Logic { and: true, a, b }, span);
                let (within, there) = (Box::new(within), Box::new(there));
                let kind = HirExprKind::Ternary(within, there, Box::new(others));
                self.num(kind, span)
            })
    }

    /// `__name(args)` in a library file.
    fn internal(
        &mut self,
        name: &ast::Ident,
        args: &[ast::Expr],
        span: Span,
        value: bool,
    ) -> HirExpr {
        let short = &name.name[2..];
        if short == "table" {
            return self.table_get(args, span);
        }
        let checked: Vec<HirExpr> = args.iter().map(|a| self.expr(a)).collect();
        if let Some(e) = self.session_value(short, &checked, span) {
            return e;
        }
        if let Some(kind) = self.statement(short, &checked, span) {
            return self.valueless(kind, span, value);
        }
        self.intrinsic(name, checked, span, value)
    }

    /// An internal operation whose value is known before the session starts.
    fn session_value(&mut self, short: &str, args: &[HirExpr], span: Span) -> Option<HirExpr> {
        Some(match (short, args) {
            ("pp" | "pn" | "ppfunc" | "probefunc" | "probe_type", []) => {
                let of = match short {
                    "pp" => NameFunction::Point,
                    "pn" => NameFunction::Alias,
                    "ppfunc" => NameFunction::Function,
                    "probefunc" => NameFunction::Interrupted,
                    _ => NameFunction::Kind,
                };
                self.str(HirExprKind::ProbeName { of }, span)
            }
            ("session_name", []) => {
                let name = self.options.session_name.as_bytes().into();
                self.str(HirExprKind::Str(name), span)
            }
            ("session_pid", []) => self.num(HirExprKind::Num(self.options.session_pid), span),
            ("target_pidns", []) => self.num(HirExprKind::Num(self.options.target_pidns), span),
            ("target_uid", [id]) => self.map_id(&self.options.target_users.users, id, span),
            ("target_gid", [id]) => self.map_id(&self.options.target_users.groups, id, span),
            ("session_uid", []) => self.num(HirExprKind::Num(self.options.session_uid), span),
            _ => return None,
        })
    }

    /// An internal operation that is a statement of the IR: an error, or output.
    fn statement(&mut self, short: &str, args: &[HirExpr], span: Span) -> Option<HirExprKind> {
        Some(match (short, args) {
            ("error" | "raise", [msg]) => {
                self.set_type(msg.ty, Base::Str, msg.span);
                HirExprKind::Raise(Box::new(msg.clone()))
            }
            ("abort", []) => {
                self.tree.aborts = true;
                let msg = self.str(HirExprKind::Str(ABORT.into()), span);
                HirExprKind::Raise(Box::new(msg))
            }
            ("warn" | "system", [msg]) => {
                self.set_type(msg.ty, Base::Str, msg.span);
                let stream = if short == "warn" {
                    Stream::Warn
                } else {
                    Stream::System
                };
                let form = PrintForm::Plain {
                    delim: None,
                    newline: false,
                };
                HirExprKind::Print {
                    stream,
                    to_string: false,
                    form,
                    args: args.to_vec(),
                }
            }
            ("next_file", []) => HirExprKind::Print {
                stream: Stream::NextFile,
                to_string: false,
                form: PrintForm::Plain {
                    delim: None,
                    newline: false,
                },
                // A record needs a text.
                args: vec![self.str(HirExprKind::Str(b" "[..].into()), span)],
            },
            _ => return None,
        })
    }

    /// An internal operation that is an intrinsic.
    fn intrinsic(
        &mut self,
        name: &ast::Ident,
        args: Vec<HirExpr>,
        span: Span,
        value: bool,
    ) -> HirExpr {
        let Some(f) = Intrinsic::by_name(&name.name[2..]) else {
            let text = format!("there is no internal operation `{}`", name.name);
            self.report(Diagnostic::error(codes::INTRINSIC, text).at(name.span));
            return self.bad(span);
        };
        let info = f.info();
        if info.params.len() != args.len() {
            let text = format!(
                "`{}` takes {} arguments, not {}",
                name.name,
                info.params.len(),
                args.len()
            );
            self.report(Diagnostic::error(codes::INTRINSIC, text).at(span));
            return self.bad(span);
        }
        for (a, kind) in args.iter().zip(info.params) {
            let base = if *kind == ValueKind::Long {
                Base::Long
            } else {
                Base::Str
            };
            self.set_type(a.ty, base, a.span);
        }
        let kind = HirExprKind::Intr { f, args };
        match info.ret {
            Some(ValueKind::Long) => self.num(kind, span),
            Some(ValueKind::Str) => self.str(kind, span),
            None => self.valueless(kind, span, value),
        }
    }

    /// An operation without a value.
    pub(super) fn valueless(&mut self, kind: HirExprKind, span: Span, value: bool) -> HirExpr {
        if value {
            self.report(Diagnostic::error(codes::NO_VALUE, "this gives no value").at(span));
        }
        let ty = self.types.fresh();
        HirExpr { kind, ty, span }
    }

    fn table_get(&mut self, args: &[ast::Expr], span: Span) -> HirExpr {
        let [name, idx] = args else {
            let text = "`__table` takes a name and a number";
            self.report(Diagnostic::error(codes::INTRINSIC, text).at(span));
            return self.bad(span);
        };
        let name = match &name.kind {
            ast::ExprKind::Str(s) => String::from_utf8_lossy(s).into_owned(),
            _ => String::new(),
        };
        let table = match self.tables.get(&name) {
            Some(t) => *t,
            None => {
                let own = syscall_table(self.facts, &name);
                let Some(entries) = own.or_else(|| (self.settings.inputs.tables)(&name)) else {
                    let text = format!("there is no table `{name}`");
                    self.report(Diagnostic::error(codes::INTRINSIC, text).at(span));
                    return self.bad(span);
                };
                self.tree.tables.push((name.as_str().into(), entries));
                self.tables.insert(name, self.tree.tables.len() - 1);
                self.tree.tables.len() - 1
            }
        };
        let idx = Box::new(self.number(idx));
        self.str(HirExprKind::Table { table, idx }, span)
    }
}
