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
    ) -> Option<HirExpr> {
        let built_in = name.span.file.is_built_in();
        // What a macro of the built-in library calls is the library's, in every file.
        let from = match built_in {
            true if !self.cur.file.is_built_in() => name.span.file,
            _ => self.cur.file,
        };
        let functions = self.lib.functions(&name.name, from);
        if functions.is_empty() {
            if built_in && name.name.starts_with("__") {
                return self.internal(name, args, span, value);
            }
            self.unknown_function(name);
            for a in args {
                self.expr(a);
            }
            return None;
        }
        let mut fits: Vec<&FunctionDef> = functions
            .iter()
            .filter(|(_, f)| f.params.len() == args.len())
            .collect();
        if fits.is_empty() {
            self.wrong_count(name, args.len(), &functions);
            return None;
        }
        // Bodies of one signature run by priority, then in source order.
        fits.sort_by_key(|(_, f)| f.priority.unwrap_or(0));
        let fits: Vec<FunctionDef> = fits.into_iter().cloned().collect();
        self.warn_unreached(&fits);
        let func = self.units_of(&fits);
        let args: Vec<HirExpr> = args.iter().map(|a| self.expr(a)).collect();
        let UnitKind::Func { params, ret, .. } = &self.tree.units[func.0].kind else {
            return None;
        };
        let (params, ret) = (params.clone(), *ret);
        for (a, p) in args.iter().zip(params) {
            let ty = self.tree.units[func.0].locals[p.0].ty;
            self.unify(a.ty, ty, a.span);
        }
        if value {
            self.value_calls.push((func, span));
        }
        let (kind, ty) = (HirExprKind::Call { func, args }, ret);
        Some(HirExpr { kind, ty, span })
    }

    /// Warns of the script's bodies behind one without `next`.
    fn warn_unreached(&mut self, bodies: &[FunctionDef]) {
        let goes_on = |f: &ast::Function| {
            let mut has_next = false;
            if let ast::FnBody::Block(b) = &f.body {
                each_stmt(b, |s| has_next |= matches!(s.kind, ast::StmtKind::Next));
            }
            has_next
        };
        let Some(last) = bodies.iter().position(|(_, f)| !goes_on(f)) else {
            return;
        };
        let (by, rest) = (bodies[last].1.name.span, &bodies[last + 1..]);
        for (_, f) in rest.iter().filter(|(file, _)| self.lib.is_user(*file)) {
            let text = format!("this body of `{}` is never reached", f.name.name);
            let d = Diagnostic::warning(codes::UNREACHED, text).at(f.name.span);
            self.report(d.also(by, "this one has no `next`"));
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
        for ((a, _), (b, span)) in a.into_iter().zip(b) {
            self.unify(b, a, span);
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
        let mut written = |ty: Option<TypeName>, span: Span| match ty {
            Some(TypeName::Long) => self.types.fresh_of(Base::Long, span),
            Some(TypeName::String) => self.types.fresh_of(Base::Str, span),
            None => self.types.fresh(),
        };
        let ret = written(f.ret, f.name.span);
        let parameter = |(id, ty): &(ast::Ident, Option<TypeName>)| Local {
            name: id.name.clone(),
            span: id.span,
            ty: written(*ty, id.span),
            param: true,
            read: false,
            written: true,
            bound: false,
        };
        let locals: Vec<Local> = f.params.iter().map(parameter).collect();
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
        let declared = FnDecl {
            func: f.clone(),
            file,
            tapset,
            unit,
            results: Vec::new(),
        };
        self.functions.insert(key, declared);
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
        let d = Diagnostic::error(codes::UNKNOWN_FUNCTION, text).at(name.span);
        self.report(match super::unavailable::reason(&name.name) {
            Some(why) => d.help(why),
            None => d.did_you_mean(&name.name, names.iter().map(|n| &**n)),
        });
    }

    fn wrong_count(&mut self, name: &ast::Ident, n: usize, functions: &[FunctionDef]) {
        let mut counts: Vec<usize> = functions.iter().map(|(_, f)| f.params.len()).collect();
        counts.sort_unstable();
        counts.dedup();
        let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
        let counts = counts.join(" or ");
        let text = format!("`{}` takes {counts} arguments, not {n}", name.name);
        let mut d = Diagnostic::error(codes::ARGUMENT_COUNT, text).at(name.span);
        if let Some((file, f)) = functions.first()
            && self.is_user(*file)
        {
            d = d.also(f.name.span, "defined here");
        }
        self.report(d);
    }

    /// The id in a user namespace for an id of the kernel. The code tests `id` against each range.
    fn map_id(&mut self, map: &IdMap, id: &HirExpr, span: Span) -> HirExpr {
        self.set_type(id.ty, Base::Long, id.span);
        let others = self.imm(map.others.into(), span);
        map.ranges
            .iter()
            .rev()
            .fold(others, |others, (inside, outside, count)| {
                let mut with = |op, a: &HirExpr, n: i64| {
                    let n = self.imm(n, span);
                    self.bin(op, a.clone(), n, span)
                };
                let (first, count) = (i64::from(*outside), i64::from(*count));
                let above = with(BinOp::Ge, id, first);
                let below = with(BinOp::Lt, id, first + count);
                let inner = with(BinOp::Add, id, i64::from(*inside) - first);
                let (a, b) = (Box::new(above), Box::new(below));
                let within = self.int(HirExprKind::Logic { and: true, a, b }, span);
                self.choose(within, [inner, others], span)
            })
    }

    /// `__name(args)` in a library file.
    fn internal(
        &mut self,
        name: &ast::Ident,
        args: &[ast::Expr],
        span: Span,
        value: bool,
    ) -> Option<HirExpr> {
        let short = &name.name[2..];
        if short == "table" {
            return self.table_get(args, span);
        }
        let checked: Vec<HirExpr> = args.iter().map(|a| self.expr(a)).collect();
        if let Some(e) = self.session_value(short, &checked, span) {
            return Some(e);
        }
        if let Some(kind) = self.statement(short, &checked, span) {
            return Some(self.valueless(kind, span, value));
        }
        self.intrinsic(name, checked, span, value)
    }

    /// An internal operation whose value is known before the session starts.
    fn session_value(&mut self, short: &str, args: &[HirExpr], span: Span) -> Option<HirExpr> {
        Some(match (short, args) {
            ("pp" | "pn" | "ppfunc" | "probefunc" | "probe_type", []) => {
                let function = match short {
                    "pp" => NameFunction::Point,
                    "pn" => NameFunction::Alias,
                    "ppfunc" => NameFunction::Function,
                    "probefunc" => NameFunction::Interrupted,
                    _ => NameFunction::Kind,
                };
                self.str(HirExprKind::ProbeName { function }, span)
            }
            ("session_name", []) => self.string_imm(self.options.session_name.as_bytes(), span),
            ("session_pid", []) => self.imm(self.options.session_pid, span),
            ("target_pidns", []) => self.imm(self.options.target_pidns, span),
            ("target_uid", [id]) => self.map_id(&self.options.target_users.users, id, span),
            ("target_gid", [id]) => self.map_id(&self.options.target_users.groups, id, span),
            ("session_uid", []) => self.imm(self.options.session_uid, span),
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
                HirExprKind::Raise(Box::new(self.string_imm(ABORT, span)))
            }
            ("warn" | "system" | "next_file", _) => {
                let (stream, args) = match (short, args) {
                    ("warn", [_]) => (Stream::Warn, args.to_vec()),
                    ("system", [_]) => (Stream::System, args.to_vec()),
                    // A record needs a text.
                    ("next_file", []) => (Stream::NextFile, vec![self.string_imm(b" ", span)]),
                    _ => return None,
                };
                args.iter()
                    .for_each(|msg| self.set_type(msg.ty, Base::Str, msg.span));
                let form = PrintForm::Plain {
                    delim: None,
                    newline: false,
                };
                HirExprKind::Print {
                    stream,
                    to_string: false,
                    form,
                    args,
                }
            }
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
    ) -> Option<HirExpr> {
        let Some(f) = Intrinsic::by_name(&name.name[2..]) else {
            let text = format!("there is no internal operation `{}`", name.name);
            return self.refuse(codes::INTRINSIC, name.span, text);
        };
        let info = f.info();
        let (takes, given) = (info.params.len(), args.len());
        if takes != given {
            let text = format!("`{}` takes {takes} arguments, not {given}", name.name);
            return self.refuse(codes::INTRINSIC, span, text);
        }
        for (a, kind) in args.iter().zip(info.params) {
            self.set_type(a.ty, (*kind).into(), a.span);
        }
        let kind = HirExprKind::Intr { f, args };
        Some(match info.ret {
            Some(ValueKind::Long) => self.int(kind, span),
            Some(ValueKind::Str) => self.str(kind, span),
            None => self.valueless(kind, span, value),
        })
    }

    /// An operation without a value.
    pub(super) fn valueless(&mut self, kind: HirExprKind, span: Span, value: bool) -> HirExpr {
        if value {
            self.error(codes::NO_VALUE, span, "this gives no value");
        }
        let ty = self.types.fresh();
        HirExpr { kind, ty, span }
    }

    fn table_get(&mut self, args: &[ast::Expr], span: Span) -> Option<HirExpr> {
        let [name, idx] = args else {
            let text = "`__table` takes a name and a number";
            return self.refuse(codes::INTRINSIC, span, text);
        };
        let name = match &name.kind {
            ast::ExprKind::Str(s) => String::from_utf8_lossy(s).into_owned(),
            _ => String::new(),
        };
        let table = match self.tables.get(&name) {
            Some(t) => *t,
            None => {
                let of_machine = syscall_table(self.facts, &name);
                let Some(entries) = of_machine.or_else(|| (self.settings.inputs.tables)(&name))
                else {
                    let text = format!("there is no table `{name}`");
                    return self.refuse(codes::INTRINSIC, span, text);
                };
                self.tree.tables.push((name.as_str().into(), entries));
                self.tables.insert(name, self.tree.tables.len() - 1);
                self.tree.tables.len() - 1
            }
        };
        let idx = Box::new(self.integer(idx));
        Some(self.str(HirExprKind::Table { table, idx }, span))
    }
}
