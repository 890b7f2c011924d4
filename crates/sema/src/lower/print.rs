//! Print calls.

use spile_ir::fmt::{ConvKind, Format, Piece};
use spile_ir::{FormatId, Inst, Reg, Stream, Val};
use spile_syntax::ast::Span;

use super::builder::Builder;
use crate::types::hir::*;
use crate::types::unify::Base;

/// Adds text, joined to a literal at the end.
fn literal(pieces: &mut Vec<Piece>, text: &[u8]) {
    match pieces.last_mut() {
        _ if text.is_empty() => {}
        Some(Piece::Lit(before)) => *before = [&**before, text].concat().into(),
        _ => pieces.push(Piece::Lit(text.into())),
    }
}

impl Builder<'_, '_> {
    /// A print that writes its text.
    pub(super) fn print(&mut self, stream: Stream, form: &PrintForm, args: &[HirExpr], span: Span) {
        let (fmt, args) = self.form(form, args);
        self.emit(Inst::Print { stream, fmt, args }, span);
    }

    /// A print whose text is the value.
    pub(super) fn sprint(&mut self, dst: Reg, form: &PrintForm, args: &[HirExpr], span: Span) {
        let (fmt, args) = self.form(form, args);
        self.emit(Inst::Sprint { dst, fmt, args }, span);
    }

    /// `print(@hist_log(x))`, or `sprint` with its result's register.
    pub(super) fn print_hist(
        &mut self,
        dst: Option<Reg>,
        lvalue: &LValue,
        newline: bool,
        span: Span,
    ) {
        let Some((g, keys)) = self.statistic(lvalue) else {
            return;
        };
        self.emit(Inst::PrintHist { dst, g, keys }, span);
        if !newline {
            return;
        }
        let end = match dst {
            Some(dst) => {
                let (a, b) = (Val::Reg(dst), self.l.string(b"\n"));
                Inst::Concat { dst, a, b }
            }
            None => Inst::Print {
                stream: Stream::Out,
                fmt: self.l.format(Format {
                    pieces: vec![Piece::Lit(b"\n".as_slice().into())],
                }),
                args: Vec::new(),
            },
        };
        self.emit(end, span);
    }

    fn form(&mut self, form: &PrintForm, args: &[HirExpr]) -> (FormatId, Vec<Val>) {
        match form {
            PrintForm::Format(f) => {
                let f = self.l.tree.formats[*f].clone();
                let args = self.operands(args);
                (self.l.format(f), args)
            }
            PrintForm::Char => {
                let args = self.operands(args);
                let pieces = args
                    .iter()
                    .map(|_| Piece::Conv(plain_conversion(ConvKind::Char)))
                    .collect();
                (self.l.format(Format { pieces }), args)
            }
            PrintForm::Plain { delim, newline } => {
                let mut pieces = Vec::new();
                let mut rest = Vec::new();
                for (n, a) in args.iter().enumerate() {
                    if n > 0 {
                        literal(&mut pieces, delim.as_deref().unwrap_or_default());
                    }
                    match &a.kind {
                        HirExprKind::Str(s) => literal(&mut pieces, s),
                        _ => {
                            let string = self.l.types.get(a.ty) == Some(Base::Str);
                            let kind = if string { ConvKind::Str } else { ConvKind::Dec };
                            pieces.push(Piece::Conv(plain_conversion(kind)));
                            rest.push(a.clone());
                        }
                    }
                }
                if *newline {
                    literal(&mut pieces, b"\n");
                }
                let args = self.operands(&rest);
                (self.l.format(Format { pieces }), args)
            }
        }
    }
}
