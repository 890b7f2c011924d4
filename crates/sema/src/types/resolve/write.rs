//! Guru mode: assignments to variables and memory of programs.

use spile_ir::intrinsics::Intrinsic;
use spile_ir::{BinOp, Event, Space};
use spile_syntax::ast::{self, AtOp, Span};
use spile_syntax::diag::Diagnostic;

use super::Resolver;
use super::operators::num_op;
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
    ) -> Option<HirExpr> {
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
        let rhs = self.integer(rhs);
        if before != (self.diags.error_count(), self.trial_failed) {
            return Some(self.bad(span));
        }
        let decision = |e: &HirExpr| {
            let f = Intrinsic::Decision;
            matches!(&e.kind, HirExprKind::Intr { f: is, .. } if *is == f)
        };
        if any_expr(&old, decision) {
            return Some(self.set_decision((op, old, rhs), lhs.span, (span, used)));
        }
        let of_program = matches!(&self.cur.event, Some(Event::Code(p)) if p.space == Space::User);
        if of_program && let Some(register) = register_of(lhs, &old) {
            return Some(self.set_register(register, (op, old, rhs), lhs.span, (span, used)));
        }
        let HirExprKind::Load {
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
        if op.is_some() && has_effect(&addr) {
            let text = "the address is computed twice here, and has an effect";
            let d = Diagnostic::error(codes::BAD_OPERAND, text).at(lhs.span);
            self.report(d.help("assign with `=`"));
        }
        let value = self.assigned((op, old, rhs), span)?;
        let size = self.imm(size, span);
        Some(self.intr(Intrinsic::UserStore, vec![size, addr, value], span))
    }

    /// The value of an assignment, which may have an operator.
    fn assigned(&mut self, (op, old, rhs): Assigned, span: Span) -> Option<HirExpr> {
        let Some(op) = op else {
            return Some(rhs);
        };
        let Some(op) = num_op(op) else {
            let text = "only numbers can be written to variables of a program";
            self.error(codes::BAD_OPERAND, span, text);
            return Some(self.bad(span));
        };
        Some(self.bin(op, old, rhs, span))
    }

    /// An assignment to a variable in a register, or to a function's result.
    fn set_register(
        &mut self,
        register: RegisterVariable,
        assigned: Assigned,
        lhs_span: Span,
        (span, used): (Span, bool),
    ) -> HirExpr {
        self.needs_guru(WRITE, CHANGES, lhs_span);
        if used {
            let text = "an assignment to a variable of a program has no value of its own";
            let d = Diagnostic::error(codes::NO_VALUE, text).at(span);
            self.report(d.help("assign to a script's variable first, and that to this one"));
        }
        let Some(mut value) = self.assigned(assigned, span) else {
            return self.bad(span);
        };
        if register.bits < 64 {
            let unused = 64 - register.bits;
            let back = match register.signed {
                true => BinOp::Shr,
                false => BinOp::UShr,
            };
            value = self.op_imm(BinOp::Shl, value, unused, span);
            value = self.op_imm(back, value, unused, span);
        }
        let number = self.imm(register.number, span);
        self.intr(Intrinsic::RegisterStore, vec![number, value], span)
    }

    /// `$return = n` at a security hook.
    fn set_decision(
        &mut self,
        (op, _, rhs): Assigned,
        lhs_span: Span,
        (span, used): (Span, bool),
    ) -> HirExpr {
        self.needs_guru(WRITE, "decide for the security modules", lhs_span);
        let wrong = match op {
            Some(_) => Some("a decision can be set with `=` only"),
            None if used => Some("an assignment to a decision has no value of its own"),
            None => match rhs.kind {
                HirExprKind::Num(n) if !(LOWEST_ERROR..=0).contains(&n) => {
                    Some("a decision is 0 (allowed) or a negative error number (denied)")
                }
                _ => None,
            },
        };
        if let Some(text) = wrong {
            self.error(codes::BAD_OPERAND, span, text);
        }
        self.intr(Intrinsic::DecisionSet, vec![rhs], span)
    }

    /// The error for something that is not memory of a program.
    fn not_written(&mut self, lhs: &ast::Expr, old: &HirExpr) -> HirExpr {
        let in_program = matches!(&lhs.kind, ast::ExprKind::Target { .. }) && self.in_user_code();
        let d = match &old.kind {
            // The value of an array or a structure is its address.
            HirExprKind::Bin(BinOp::Add, ..) if in_program && reads_memory(old) => {
                let text = "an array or a structure cannot be written as a whole";
                let d = Diagnostic::error(codes::NOT_SUPPORTED, text);
                d.help("write one element of the array, or one member of the structure")
            }
            HirExprKind::Bin(..) if in_program && reads_memory(old) => {
                let text = "a bit field of a program cannot be written";
                let d = Diagnostic::error(codes::NOT_SUPPORTED, text);
                d.help("write the whole number that has it, with `set_user_int()` or a similar function")
            }
            HirExprKind::Load { .. } => return self.kernel_is_read(lhs),
            HirExprKind::Read(_) if in_program => {
                let text = "this is the value at the entry of the function, which has returned";
                let d = Diagnostic::error(codes::NOT_SUPPORTED, text);
                d.help("write it in a probe of the entry (without `.return`)")
            }
            _ if in_program => {
                let text = "this value is computed from others here: it has no location of its own";
                let d = Diagnostic::error(codes::NOT_SUPPORTED, text);
                d.help("at another statement the variable may have one")
            }
            _ => return self.kernel_is_read(lhs),
        };
        self.report(d.at(lhs.span));
        self.bad(lhs.span)
    }

    fn kernel_is_read(&mut self, lhs: &ast::Expr) -> HirExpr {
        if let ast::ExprKind::Target { name, access, .. } = &lhs.kind
            && (&**name, access.is_empty()) == ("$return", true)
        {
            let d = self.result_of_kernel().at(lhs.span);
            self.report(d);
            return self.bad(lhs.span);
        }
        self.report_unwritable(lhs);
        self.bad(lhs.span)
    }

    /// The error for an assignment to the result of a kernel function or a system call.
    fn result_of_kernel(&self) -> Diagnostic {
        let text = "the result of the kernel's functions and system calls cannot be set";
        let d = Diagnostic::error(codes::NOT_SUPPORTED, text).note(
            "eBPF programs can put a result in a function's location (`bpf_override_return`, which \
             distributions leave out), but not change it after the function has run",
        );
        let name = self.cur.ctx.as_ref().and_then(|ctx| ctx.name.clone());
        let prefixes = ["security_", "cap_"];
        let hook = name.as_deref().and_then(|n| {
            let hooks = prefixes.iter().filter_map(|prefix| n.strip_prefix(prefix));
            hooks.into_iter().next()
        });
        match hook.filter(|hook| self.facts.lsm_hook(hook).is_some_and(|h| h.decides)) {
            Some(hook) => d.help(format!(
                "write `probe kernel.lsm(\"{hook}\") {{ $return = ... }}`, which decides for it"
            )),
            None => d.help(
                "`probe kernel.lsm(\"HOOK\") { $return = ... }` sets the decision of a security hook",
            ),
        }
    }

    /// Reports an operation outside guru mode, which lets a script do `what_for`.
    pub(super) fn needs_guru(&mut self, what: &str, what_for: &str, span: Span) {
        if !self.options.guru {
            let text = format!("{what}; need `-g`");
            let d = Diagnostic::error(codes::NEEDS_GURU, text).at(span);
            self.report(d.help(format!("guru mode lets a script {what_for}: `spile -g`")));
        }
    }
}

/// An assignment's operator, the variable's value before, and the right side.
type Assigned = (Option<ast::BinOp>, HirExpr, HirExpr);

/// The lowest error number (`MAX_ERRNO`), negated.
const LOWEST_ERROR: i64 = -4095;

/// A variable of a program that is in a register.
struct RegisterVariable {
    /// DWARF's number of the register.
    number: i64,
    bits: i64,
    signed: bool,
}

/// The register that a variable is in as a whole, from the expression of its value.
fn register_of(lhs: &ast::Expr, value: &HirExpr) -> Option<RegisterVariable> {
    match &lhs.kind {
        ast::ExprKind::Target {
            access,
            addr_of: false,
            ..
        } if access.is_empty() => {}
        _ => return None,
    }
    let (mut value, mut bits, mut signed) = (value, 64, false);
    // Its extension to 64 bits, from its location and from its type.
    while let Some((inner, narrow, by_sign)) = extended(value) {
        value = inner;
        if narrow < bits {
            (bits, signed) = (narrow, by_sign);
        }
    }
    let HirExprKind::Intr { f, args } = &value.kind else {
        return None;
    };
    let number = match (f, args.first().map(|n| &n.kind)) {
        (Intrinsic::CtxReg | Intrinsic::CtxRegNow, Some(HirExprKind::Num(n))) => *n,
        // Outside guru mode, where the assignment is refused.
        (Intrinsic::CtxRet, _) => 0,
        _ => return None,
    };
    Some(RegisterVariable {
        number,
        bits,
        signed,
    })
}

/// The value that is extended to 64 bits, its bits, and whether by its sign.
fn extended(value: &HirExpr) -> Option<(&HirExpr, i64, bool)> {
    let HirExprKind::Bin(op, inner, by) = &value.kind else {
        return None;
    };
    let HirExprKind::Num(by) = by.kind else {
        return None;
    };
    match (op, &inner.kind) {
        (BinOp::Shr | BinOp::UShr, HirExprKind::Bin(BinOp::Shl, inner, up)) if matches!(up.kind, HirExprKind::Num(up) if up == by) => {
            Some((&**inner, 64 - by, *op == BinOp::Shr))
        }
        (BinOp::And, _) => match by {
            0xff => Some((&**inner, 8, false)),
            0xffff => Some((&**inner, 16, false)),
            0xffff_ffff => Some((&**inner, 32, false)),
            _ => None,
        },
        _ => None,
    }
}

fn reads_memory(e: &HirExpr) -> bool {
    any_expr(e, |e| matches!(e.kind, HirExprKind::Load { .. }))
}

/// Whether an expression does more than to compute a value.
fn has_effect(e: &HirExpr) -> bool {
    any_expr(e, |e| {
        matches!(
            e.kind,
            HirExprKind::Assign { .. } | HirExprKind::IncDec { .. } | HirExprKind::Call { .. }
        )
    })
}
