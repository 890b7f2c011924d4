//! The results of operators: one definition for the interpreter and for constant folding.

use crate::{BinOp, CmpOp, ElemTy, GlobalKind, StatsSpec, UnOp};

impl UnOp {
    /// The result of the operator.
    pub(crate) fn eval(self, a: i64) -> i64 {
        match self {
            UnOp::Neg => a.wrapping_neg(),
            UnOp::Not => i64::from(a == 0),
            UnOp::BitNot => !a,
        }
    }
}

impl BinOp {
    /// The result of the operator; `None` for a division by 0.
    pub(crate) fn eval(self, a: i64, b: i64) -> Option<i64> {
        Some(match self {
            BinOp::Add => a.wrapping_add(b),
            BinOp::Sub => a.wrapping_sub(b),
            BinOp::Mul => a.wrapping_mul(b),
            BinOp::Div | BinOp::Mod if b == 0 => return None,
            BinOp::Div => a.wrapping_div(b),
            BinOp::Mod => a.wrapping_rem(b),
            BinOp::And => a & b,
            BinOp::Or => a | b,
            BinOp::Xor => a ^ b,
            BinOp::Shl => a.wrapping_shl(b as u32),
            BinOp::Shr => a.wrapping_shr(b as u32),
            BinOp::UShr => (a as u64).wrapping_shr(b as u32) as i64,
            BinOp::Eq => i64::from(a == b),
            BinOp::Ne => i64::from(a != b),
            BinOp::Lt => i64::from(a < b),
            BinOp::Le => i64::from(a <= b),
            BinOp::Gt => i64::from(a > b),
            BinOp::Ge => i64::from(a >= b),
        })
    }
}

impl CmpOp {
    /// The result of the comparison.
    pub(crate) fn eval(self, a: &[u8], b: &[u8]) -> bool {
        match self {
            CmpOp::Eq => a == b,
            CmpOp::Ne => a != b,
            CmpOp::Lt => a < b,
            CmpOp::Le => a <= b,
            CmpOp::Gt => a > b,
            CmpOp::Ge => a >= b,
        }
    }
}

impl GlobalKind {
    /// The layout of its statistic, or of its elements' statistics.
    pub fn stats(&self) -> Option<&StatsSpec> {
        match self {
            GlobalKind::Stats(s)
            | GlobalKind::Array {
                value: ElemTy::Stats(s),
                ..
            } => Some(s),
            _ => None,
        }
    }

    /// The types of the keys; empty for a scalar.
    pub fn keys(&self) -> &[crate::Ty] {
        match self {
            GlobalKind::Array { keys, .. } => keys,
            _ => &[],
        }
    }
}
