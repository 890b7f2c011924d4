//! Selects code for arithmetic and comparisons of numbers.

use spile_ir::{BinOp, Reg as IrReg, UnOp, Val};

use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Src};
use crate::layout::ErrorKind;
use crate::lower::operand::condition;
use crate::lower::{HandlerCodegen, Res};
use crate::plan::outlining::Op;
use crate::regalloc::Location;

/// Maps an operation to its ALU instruction; `None` where no single instruction computes it.
fn operation(op: BinOp) -> Option<AluOp> {
    Some(match op {
        BinOp::Add => AluOp::Add,
        BinOp::Sub => AluOp::Sub,
        BinOp::Mul => AluOp::Mul,
        BinOp::And => AluOp::And,
        BinOp::Or => AluOp::Or,
        BinOp::Xor => AluOp::Xor,
        BinOp::Shl => AluOp::Lsh,
        BinOp::Shr => AluOp::Arsh,
        BinOp::UShr => AluOp::Rsh,
        _ => return None,
    })
}

impl HandlerCodegen<'_> {
    pub(in crate::lower) fn unary(&mut self, dst: IrReg, op: UnOp, a: Val) -> Res {
        self.use_in(a, R0)?;
        match op {
            UnOp::Neg => self.asm.neg(R0),
            UnOp::BitNot => self.asm.alu(AluOp::Xor, R0, -1),
            UnOp::Not => self.truth(Cond::Eq, Src::Imm(0)),
        }
        self.def_int(dst, R0)
    }

    /// `r0` = 1 if `r0 cond b` holds, else 0.
    fn truth(&mut self, cond: Cond, b: Src) {
        let yes = self.asm.label();
        let end = self.asm.label();
        self.asm.jump_if(cond, R0, b, yes);
        self.asm.mov(R0, 0);
        self.asm.jump(end);
        self.asm.bind(yes);
        self.asm.mov(R0, 1);
        self.asm.bind(end);
    }

    pub(in crate::lower) fn binary(&mut self, dst: IrReg, op: BinOp, a: Val, b: Val) -> Res {
        if let Some(cond) = condition(op) {
            self.use_in(a, R0)?;
            let b = self.use_int(b, R1)?;
            self.truth(cond, b);
            return self.def_int(dst, R0);
        }
        let alu = operation(op).ok_or("no such operation")?;
        // The verifier refuses constant shifts of 64 and more. Shifts by a register use its low six
        // bits, which is what the language asks for.
        let b = match (alu, b) {
            (AluOp::Lsh | AluOp::Rsh | AluOp::Arsh, Val::Imm(n)) => Val::Imm(n & 63),
            _ => b,
        };
        let b = self.use_int(b, R1)?;
        // Computes in the result's own register, unless that would overwrite the other operand.
        let target = match self.location(dst) {
            Location::Reg(r) if b != Src::Reg(r) => r,
            _ => R0,
        };
        self.use_in(a, target)?;
        if let (AluOp::Lsh | AluOp::Rsh | AluOp::Arsh, Src::Reg(r)) = (alu, b) {
            self.asm.mov(R2, r);
            self.asm.alu(AluOp::And, R2, 63);
            self.asm.alu(alu, target, R2);
        } else {
            self.asm.alu(alu, target, b);
        }
        self.def_int(dst, target)
    }

    /// Signed division by way of unsigned division: the signed instruction needs Linux 6.6.
    pub(in crate::lower) fn divide(&mut self, dst: IrReg, op: BinOp, a: Val, b: Val) -> Res {
        if b == Val::Imm(0) {
            self.fail_now(ErrorKind::DivisionByZero);
            return Ok(());
        }
        if let Val::Imm(n) = b
            && self.divide_by(dst, op, a, n)?
        {
            return Ok(());
        }
        self.use_in(a, R1)?;
        self.use_in(b, R2)?;
        if !matches!(b, Val::Imm(_)) {
            let fail = self.fail_label(ErrorKind::DivisionByZero);
            self.asm.jump_if(Cond::Eq, R2, 0, fail);
        }
        let name = if op == BinOp::Div { "divide" } else { "modulo" };
        self.run_library(Op::Divide, name)?;
        self.def_int(dst, R0)
    }

    /// Divides by a constant, without the comparison with 0. Returns false if the constant does not
    /// fit in 32 bits.
    fn divide_by(&mut self, dst: IrReg, op: BinOp, a: Val, b: i64) -> Res<bool> {
        let Ok(divisor @ 1..) = i32::try_from(b.unsigned_abs()) else {
            return Ok(false);
        };
        self.use_in(a, R0)?;
        self.asm.mov(R3, R0);
        self.asm.alu(AluOp::Arsh, R3, 63);
        self.asm.alu(AluOp::Xor, R0, R3);
        self.asm.alu(AluOp::Sub, R0, R3);
        if op == BinOp::Div {
            self.asm.alu(AluOp::Div, R0, divisor);
            if b < 0 {
                self.asm.alu(AluOp::Xor, R3, -1);
            }
        } else {
            self.asm.alu(AluOp::Mod, R0, divisor);
        }
        self.asm.alu(AluOp::Xor, R0, R3);
        self.asm.alu(AluOp::Sub, R0, R3);
        self.def_int(dst, R0)?;
        Ok(true)
    }
}
