//! Guru mode: assignments to variables and memory of programs.

use spile_ir::Space;
use spile_ir::intrinsics::Intrinsic;
use spile_syntax::ast::{self, AtOp, Span};
use spile_syntax::diag::Diagnostic;

use super::Resolver;
use super::expr::num_op;
use crate::types::codes;
use crate::types::hir::*;

/// The message about an assignment to a variable that only guru mode permits.
pub(super) const WRITE: &str = "write to target variable not permitted";
/// The purpose of guru mode for processes, in messages.
pub(super) const CHANGES: &str = "change the programs that it probes";

impl Resolver<'_> {
    /// An assignment to a `$variable` or to memory behind one; `None` for any other.
    pub(super) fn set_memory(
        &mut self,
        op: Option<ast::BinOp>,
        lhs: &ast::Expr,
        rhs: &ast::Expr,
        (span, used): (Span, bool),
    ) -> Option<Expr> {
        match &lhs.kind {
            ast::ExprKind::Target { .. } | ast::ExprKind::Arrow { .. } => {}
            ast::ExprKind::At {
                op: AtOp::Cast | AtOp::Var,
                ..
            } => {}
            _ => return None,
        }
        let before = (self.diags.error_count(), self.trial_failed);
        let (old, _) = self.typed_expr(lhs);
        let rhs = self.number(rhs);
        if before != (self.diags.error_count(), self.trial_failed) {
            return Some(self.bad(span));
        }
        let ExprKind::Load {
            space: Space::User,
            addr,
            size,
            ..
        } = &old.kind
        else {
            return Some(self.not_written(lhs, &old));
        };
        let (addr, size) = ((**addr).clone(), i64::from(*size));
        self.needs_guru(WRITE, CHANGES, lhs.span);
        if used {
            let text = "an assignment to memory of a program has no value of its own";
            let d = Diagnostic::error(codes::NO_VALUE, text).at(span);
            self.report(d.help("assign to a variable first, and the variable to the memory"));
        }
        let value = match op {
            None => rhs,
            Some(op) => {
                let Some(op) = num_op(op) else {
                    let text = "only numbers can be written to memory of a program";
                    self.report(Diagnostic::error(codes::BAD_OPERAND, text).at(span));
                    return Some(self.bad(span));
                };
                if has_effect(&addr) {
                    let text = "the address is computed twice here, and has an effect";
                    let d = Diagnostic::error(codes::BAD_OPERAND, text).at(lhs.span);
                    self.report(d.help("assign with `=`"));
                }
                let kind = ExprKind::Bin(op, Box::new(old), Box::new(rhs));
                self.num(kind, span)
            }
        };
        let size = self.num(ExprKind::Num(size), span);
        let (f, args) = (Intrinsic::UserStore, vec![size, addr, value]);
        Some(self.num(ExprKind::Intr { f, args }, span))
    }

    /// The error for something that is not memory of a program.
    fn not_written(&mut self, lhs: &ast::Expr, old: &Expr) -> Expr {
        let in_program = matches!(&lhs.kind, ast::ExprKind::Target { .. }) && self.in_user_code();
        let d = match &old.kind {
            ExprKind::Bin(..) if in_program && reads_memory(old) => {
                let text = "a bit field of a program cannot be written";
                let d = Diagnostic::error(codes::NOT_SUPPORTED, text);
                d.help("write the whole number that has it, with `set_user_int()` or its kin")
            }
            ExprKind::Load { .. } => return self.kernel_is_read(lhs),
            _ if in_program => {
                let text = "this variable is in a register here, which no BPF program can write";
                let d = Diagnostic::error(codes::NOT_SUPPORTED, text);
                d.help("at another statement the variable may be in memory; `-L` shows where it is")
            }
            _ => return self.kernel_is_read(lhs),
        };
        self.report(d.at(lhs.span));
        self.bad(lhs.span)
    }

    fn kernel_is_read(&mut self, lhs: &ast::Expr) -> Expr {
        self.report_unwritable(lhs);
        self.bad(lhs.span)
    }

    /// Reports an operation outside guru mode, which lets a script do `what_for`.
    pub(super) fn needs_guru(&mut self, what: &str, what_for: &str, span: Span) {
        if !self.input.guru {
            let text = format!("{what}; need `-g`");
            let d = Diagnostic::error(codes::NEEDS_GURU, text).at(span);
            self.report(d.help(format!("guru mode lets a script {what_for}: `spile -g`")));
        }
    }
}

fn reads_memory(e: &Expr) -> bool {
    any_expr(e, |e| matches!(e.kind, ExprKind::Load { .. }))
}

/// Whether an expression does more than to compute a value.
fn has_effect(e: &Expr) -> bool {
    any_expr(e, |e| {
        matches!(
            e.kind,
            ExprKind::Assign { .. } | ExprKind::IncDec { .. } | ExprKind::Call { .. }
        )
    })
}
