//! Warnings where an operator binds differently than it looks, like those of C compilers: `flags &
//! 7 == 0` is `flags & (7 == 0)`.

use super::Parser;
use crate::ast::{BinOp, Expr, ExprKind, Span};
use crate::codes;
use crate::diag::Diagnostic;
use crate::token::{Tok, Token};

/// The operator outside all brackets of an expression; `None` if it is closed.
pub(super) type OutermostOp = Option<Token>;

/// An operand: its outermost operator and its location.
pub(super) struct Operand {
    pub top: OutermostOp,
    pub span: Span,
    /// Whether its value is 0 or 1, with or without brackets.
    pub truth: bool,
}

impl Operand {
    pub(super) fn new(e: &Expr, top: OutermostOp) -> Self {
        use BinOp::*;
        let truth = match &e.kind {
            ExprKind::Binary(op, ..) => matches!(op, Lt | Le | Gt | Ge | Eq | Ne | LogAnd | LogOr),
            ExprKind::Unary(op, _) => *op == crate::ast::UnOp::Not,
            ExprKind::In { .. } | ExprKind::Match { .. } => true,
            _ => false,
        };
        Self {
            top,
            span: e.span,
            truth,
        }
    }

    fn is(&self, kinds: &[Tok]) -> bool {
        self.top.is_some_and(|t| kinds.contains(&t.kind))
    }
}

const COMPARE: &[Tok] = &[
    Tok::Lt,
    Tok::Le,
    Tok::Gt,
    Tok::Ge,
    Tok::EqEq,
    Tok::Ne,
    Tok::Match,
    Tok::NoMatch,
];
const BITS: &[Tok] = &[Tok::Amp, Tok::Pipe, Tok::Caret];
const SHIFTS: &[Tok] = &[Tok::Shl, Tok::Shr, Tok::UShr];
const SUMS: &[Tok] = &[Tok::Plus, Tok::Minus];

impl Parser<'_> {
    /// Checks `left op right`; `right` is `None` if it is not an expression.
    pub(super) fn precedence(&mut self, left: &Operand, op: Token, right: Option<&Operand>) {
        let compares = COMPARE.contains(&op.kind);
        let inner = if BITS.contains(&op.kind) {
            // `a in b & c` has only one reading, `a & b in c` has two.
            let second = right.filter(|r| r.is(COMPARE) || r.is(&[Tok::KwIn]));
            Some(left).filter(|l| l.is(COMPARE)).or(second)
        } else if SHIFTS.contains(&op.kind) {
            [Some(left), right]
                .into_iter()
                .flatten()
                .find(|o| o.is(SUMS))
        } else if compares && left.is(COMPARE) {
            // Once for each chain.
            let chain = self.chain.replace(left.span.start);
            Some(left).filter(|_| chain != Some(left.span.start))
        } else {
            None
        };
        if let Some(inner) = inner {
            return self.binds_first(inner, op);
        }
        let negates = compares || op.kind == Tok::KwIn || BITS.contains(&op.kind);
        if negates && left.is(&[Tok::Bang]) && !right.is_some_and(|r| r.truth) {
            self.binds_first(left, op);
        }
    }

    #[inline(never)]
    fn binds_first(&mut self, inner: &Operand, op: Token) {
        let Some(first) = inner.top else { return };
        let (first, then) = (self.text(first), self.text(op));
        let message = format!("`{first}` binds tighter than the `{then}` next to it");
        let d = Diagnostic::warning(codes::PRECEDENCE, message);
        let d = d
            .label(inner.span, "this is one operand")
            .also(op.span, "of this operator");
        let d = d.help("put parentheses around the operands that belong together");
        self.diags.push(d);
    }
}
