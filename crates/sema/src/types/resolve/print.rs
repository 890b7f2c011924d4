//! `print` and its family; formats are parsed and checked here, once.

use spile_ir::Stream;
use spile_ir::fmt::Format;
use spile_ir::intrinsics::ValueKind;
use spile_syntax::ast::{self, PrintOp, Span};
use spile_syntax::diag::Diagnostic;

use super::Resolver;
use crate::types::codes;
use crate::types::hir::*;
use crate::types::unify::Base;

impl Resolver<'_> {
    /// A print call. A call that writes has the value 0.
    pub(super) fn print(&mut self, op: PrintOp, args: &[ast::Expr], span: Span) -> HirExpr {
        if let [
            arg @ ast::Expr {
                kind: ast::ExprKind::Hist { .. },
                ..
            },
        ] = args
        {
            let Some(lvalue) = self.histogram(arg) else {
                return self.bad(span);
            };
            let kind = HirExprKind::PrintHist {
                lvalue,
                newline: op.newline,
                to_string: op.to_string,
            };
            return self.text_or_zero(op, kind, span);
        }
        let (form, rest) = if op.format {
            match self.format(args, span) {
                Some(found) => found,
                None => return self.bad(span),
            }
        } else {
            self.plain_print(op, args, span)
        };
        let kind = HirExprKind::Print {
            stream: Stream::Out,
            to_string: op.to_string,
            form,
            args: rest,
        };
        self.text_or_zero(op, kind, span)
    }

    /// A print call's expression: its text, or 0 if it writes the text.
    fn text_or_zero(&mut self, op: PrintOp, kind: HirExprKind, span: Span) -> HirExpr {
        match op.to_string {
            true => self.str(kind, span),
            false => self.num(kind, span),
        }
    }

    fn plain_print(
        &mut self,
        op: PrintOp,
        args: &[ast::Expr],
        span: Span,
    ) -> (PrintForm, Vec<HirExpr>) {
        if op.char {
            let args = args.iter().map(|a| self.number(a)).collect();
            return (PrintForm::Char, args);
        }
        let (delim, rest) = match args {
            [first, rest @ ..] if op.delim => match &first.kind {
                ast::ExprKind::Str(s) => (Some(s.clone()), rest),
                _ => {
                    let text = "the delimiter has to be a string literal";
                    self.report(Diagnostic::error(codes::BAD_OPERAND, text).at(first.span));
                    (None, rest)
                }
            },
            all => (None, all),
        };
        if rest.is_empty() && !op.newline {
            let text = "there is nothing to print";
            self.report(Diagnostic::error(codes::ARGUMENT_COUNT, text).at(span));
        }
        let rest = rest.iter().map(|a| self.expr(a)).collect();
        (
            PrintForm::Plain {
                delim,
                newline: op.newline,
            },
            rest,
        )
    }

    fn format(&mut self, args: &[ast::Expr], span: Span) -> Option<(PrintForm, Vec<HirExpr>)> {
        let Some((
            ast::Expr {
                kind: ast::ExprKind::Str(text),
                span: fspan,
            },
            rest,
        )) = args.split_first()
        else {
            let text = "the format has to be a string literal";
            self.report(Diagnostic::error(codes::BAD_FORMAT, text).at(span));
            return None;
        };
        let format = match Format::parse(text) {
            Ok(f) => f,
            Err(e) => {
                self.report(Diagnostic::error(codes::BAD_FORMAT, e.message).at(*fspan));
                return None;
            }
        };
        let wanted = format.arg_kinds();
        if wanted.len() != rest.len() {
            let plural = |n: usize| if n == 1 { "" } else { "s" };
            let text = format!(
                "the format takes {} argument{}, and there {} {}",
                wanted.len(),
                plural(wanted.len()),
                if rest.len() == 1 { "is" } else { "are" },
                rest.len()
            );
            let d = Diagnostic::error(codes::FORMAT_ARGUMENTS, text).at(*fspan);
            let d = match rest.get(wanted.len()) {
                Some(extra) => d.also(extra.span, "not used by the format"),
                None => d,
            };
            self.report(d);
            return None;
        }
        let mut args = Vec::new();
        for (a, kind) in rest.iter().zip(wanted) {
            let base = match kind {
                ValueKind::Long => Base::Long,
                ValueKind::Str => Base::Str,
            };
            let v = self.expr(a);
            self.set_type(v.ty, base, v.span);
            args.push(v);
        }
        self.tree.formats.push(format);
        Some((PrintForm::Format(self.tree.formats.len() - 1), args))
    }
}
