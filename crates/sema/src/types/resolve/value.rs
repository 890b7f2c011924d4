//! Constructs that only some events have: `$value` of `procfs` files, and the counters of `@perf`.

use spile_ir::intrinsics::Intrinsic;
use spile_syntax::ast::{self, Pretty, Span};
use spile_syntax::diag::Diagnostic;

use super::Resolver;
use super::counters::Counter;
use super::write::WRITE;
use crate::codes as probe_codes;
use crate::facts::{ModuleQuery, ProbeModule};
use crate::probe::{HandlerKind, TargetSource};
use crate::types::codes;
use crate::types::hir::*;

impl Resolver<'_> {
    /// Whether the handler is a procfs file's, which has a `$value`.
    pub(super) fn has_value(&self) -> bool {
        let ctx = self.cur.ctx.as_ref();
        ctx.is_some_and(|c| c.kind.has_value())
    }

    /// Whether the handler's context is of that family.
    fn is_in(&self, kind: HandlerKind) -> bool {
        self.cur.ctx.as_ref().is_some_and(|c| c.kind == kind)
    }

    /// A read of `$value`.
    pub(super) fn value(&mut self, name: &str, plain: bool, span: Span) -> Option<HirExpr> {
        if name != "$value" || !plain {
            let text =
                format!("unresolved target-symbol expression: this probe has no variable `{name}`");
            let d = Diagnostic::error(probe_codes::NO_TARGET, text).at(span);
            self.report(d.note("it has $value, a string"));
            return None;
        }
        if self.is_in(HandlerKind::ProcfsRead) {
            let text = "procfs `$value` variable cannot be read in a procfs read probe";
            let d = Diagnostic::error(codes::NOT_SUPPORTED, text).at(span);
            self.report(d.help(
                "compute the text in a variable, and set it at the end: `$value = text`; `$value .= text` extends it",
            ));
        }
        let (f, args) = (Intrinsic::ValueText, Vec::new());
        Some(self.str(HirExprKind::Intr { f, args }, span))
    }

    /// `$value = text` and `$value .= text`; `None` for any other assignment.
    pub(super) fn set_value(
        &mut self,
        op: Option<ast::BinOp>,
        lhs: &ast::Expr,
        rhs: &ast::Expr,
        (span, used): (Span, bool),
    ) -> Option<HirExpr> {
        if !self.has_value() || plain_target(lhs) != Some("$value") {
            return None;
        }
        let f = match op {
            None => Intrinsic::ValueSet,
            Some(ast::BinOp::Concat) => Intrinsic::ValueAppend,
            Some(_) => {
                let text = "`$value` is a string: it can be set, and extended with `.=`";
                self.error(codes::BAD_OPERAND, span, text);
                return Some(self.bad(span));
            }
        };
        if self.is_in(HandlerKind::ProcfsWrite) {
            let text = "`$value` of a write probe is the written text and cannot be set";
            let d = Diagnostic::error(codes::NOT_SUPPORTED, text).at(lhs.span);
            self.report(d.help("a read probe of the same file sets the text for readers"));
        }
        if used {
            let text = "an assignment to `$value` has no value of its own";
            self.error(codes::NO_VALUE, span, text);
        }
        let rhs = self.string(rhs);
        Some(self.intr(f, vec![rhs], span))
    }

    /// `$verdict = n`; `None` for any other assignment.
    pub(super) fn set_verdict(
        &mut self,
        op: Option<ast::BinOp>,
        lhs: &ast::Expr,
        rhs: &ast::Expr,
        (span, used): (Span, bool),
    ) -> Option<HirExpr> {
        let verdict = self.cur.ctx.as_ref()?.target("verdict")?;
        let of_packet = matches!(verdict.source, TargetSource::Verdict);
        if plain_target(lhs) != Some("$verdict") || !of_packet {
            return None;
        }
        self.needs_guru(WRITE, "decide about packets", lhs.span);
        let rhs = self.integer(rhs);
        let wrong = match op {
            Some(_) => Some("`$verdict` can be set with `=` only"),
            None if used => Some("an assignment to `$verdict` has no value of its own"),
            None => match rhs.kind {
                HirExprKind::Num(0 | 1) => None,
                HirExprKind::Num(_) => Some("a packet can be dropped (0) or accepted (1)"),
                _ => None,
            },
        };
        if let Some(text) = wrong {
            self.error(codes::BAD_OPERAND, span, text);
        }
        Some(self.intr(Intrinsic::VerdictSet, vec![rhs], span))
    }

    /// `@perf("NAME")`
    pub(super) fn perf_count(&mut self, args: &[ast::Expr], span: Span) -> Option<HirExpr> {
        let name = self.literal(args, 0, "the counter", span)?;
        let Some(Counter { ty, config, .. }) = self.counters.get(&name) else {
            let counters: Vec<String> = self.counters.keys().cloned().collect();
            let text = format!("no probe defines the counter `{name}`");
            let d = Diagnostic::error(probe_codes::NO_COUNTER, text).at(span);
            let d = d.did_you_mean(&name, counters.iter().map(String::as_str));
            let example = format!("`probe perf.sw.page_faults.counter(\"{name}\") {{ }}` does");
            self.report(d.help(example));
            return None;
        };
        let args = [i64::from(*ty), config.cast_signed()];
        self.check_program_of(&name, span);
        let args = args.map(|n| self.imm(n, span)).into();
        Some(self.intr(Intrinsic::PerfCount, args, span))
    }

    /// Refuses a counter of one program in the code of another, where it never counts.
    fn check_program_of(&mut self, counter: &str, span: Span) {
        let counted = self.counters.get(counter).and_then(|c| c.program.clone());
        let here = self.cur.ctx.as_ref().and_then(|c| c.module.clone());
        let (Some(program), Some(here @ ProbeModule::File(_))) = (counted, here) else {
            return;
        };
        let matching = |query| self.facts.modules(&query).unwrap_or_default();
        let programs = matching(ModuleQuery::Path(program.clone()));
        let uses = |module: &ProbeModule| {
            let path = here.to_string();
            let query = ModuleQuery::Library {
                program: module.clone(),
                pid: None,
                name: path.rsplit('/').next().unwrap_or_default().into(),
            };
            matching(query).iter().any(|m| m.module == here)
        };
        let is_its_code = |m: &ProbeModule| *m == here || uses(m);
        if programs.is_empty() || programs.iter().any(|m| is_its_code(&m.module)) {
            return;
        }
        let text = format!(
            "the counter `{counter}` counts events of {program}, and this is a probe of {here}"
        );
        let d = Diagnostic::error(probe_codes::NO_COUNTER, text).at(span);
        self.report(d.help(format!(
            "define one for this program: `.process(\"{here}\").counter(...)`"
        )));
    }
}

/// The target variable's name, if the expression is nothing else.
fn plain_target(expr: &ast::Expr) -> Option<&str> {
    match &expr.kind {
        ast::ExprKind::Target {
            name,
            addr_of: false,
            access,
            pretty: Pretty::None,
        } if access.is_empty() => Some(name),
        _ => None,
    }
}
