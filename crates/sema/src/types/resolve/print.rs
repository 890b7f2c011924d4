//! `print` and its family; formats are parsed and checked here, once.

use spile_ir::Stream;
use spile_ir::fmt::Format;
use spile_syntax::ast::{self, PrintOp, Span};
use spile_syntax::diag::Diagnostic;

use super::Resolver;
use crate::types::codes;
use crate::types::hir::*;

impl Resolver<'_> {
    /// A print call. A call that writes has the value 0.
    pub(super) fn print(&mut self, op: PrintOp, args: &[ast::Expr], span: Span) -> Option<HirExpr> {
        let to_string = op.to_string;
        let kind = match args {
            [arg] if matches!(arg.kind, ast::ExprKind::Hist { .. }) => HirExprKind::PrintHist {
                lvalue: self.histogram(arg)?,
                newline: op.newline,
                to_string,
            },
            _ => {
                let (form, args) = match op.format {
                    true => self.format(args, span)?,
                    false => self.plain_print(op, args, span),
                };
                HirExprKind::Print {
                    stream: Stream::Out,
                    to_string,
                    form,
                    args,
                }
            }
        };
        Some(match to_string {
            true => self.str(kind, span),
            false => self.int(kind, span),
        })
    }

    fn plain_print(
        &mut self,
        op: PrintOp,
        args: &[ast::Expr],
        span: Span,
    ) -> (PrintForm, Vec<HirExpr>) {
        if op.char {
            let args = args.iter().map(|a| self.integer(a)).collect();
            return (PrintForm::Char, args);
        }
        let (delim, rest) = match args {
            [first, rest @ ..] if op.delim => match &first.kind {
                ast::ExprKind::Str(s) => (Some(s.clone()), rest),
                _ => {
                    let text = "the delimiter has to be a string literal";
                    self.error(codes::BAD_OPERAND, first.span, text);
                    (None, rest)
                }
            },
            operands => (None, operands),
        };
        if rest.is_empty() && !op.newline {
            let text = "there is nothing to print";
            self.error(codes::ARGUMENT_COUNT, span, text);
        }
        let rest = rest.iter().map(|a| self.expr(a)).collect();
        let newline = op.newline;
        (PrintForm::Plain { delim, newline }, rest)
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
            return self.refuse(codes::BAD_FORMAT, span, text);
        };
        let format = match Format::parse(text) {
            Ok(f) => f,
            Err(e) => return self.refuse(codes::BAD_FORMAT, *fspan, e.message),
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
            let v = self.expr(a);
            self.set_type(v.ty, kind.into(), v.span);
            args.push(v);
        }
        self.tree.formats.push(format);
        Some((PrintForm::Format(self.tree.formats.len() - 1), args))
    }
}
