//! Selects code for arithmetic and comparisons of numbers.

use spile_ebpf::isa::insn::{AluOp, Cond, Src};
use spile_ir::{BinOp, Reg as IrReg, UnOp, Val};
use spile_layout::ErrorKind;

use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::operand::condition;

/// The verifier remembers a number as another one plus a constant. It refuses to add the number to an
/// address if the constant is as large (`BPF_MAX_VAR_OFF`), whatever the number is. It remembers only one
/// constant, so two halves make it forget both.
const MAX_VAR_OFF: u32 = 1 << 29;

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
    pub(crate) fn unary(&mut self, dst: IrReg, op: UnOp, a: Val) -> Res {
        if op == UnOp::Not {
            return self.truth(dst, Cond::Eq, a, Val::Imm(0));
        }
        let result = self.number_copy(a)?;
        match op {
            UnOp::Neg => self.asm.neg(result),
            _ => self.asm.alu(AluOp::Xor, result, -1),
        }
        self.def_int(dst, result)
    }

    /// `dst` = 1 if `a cond b` holds, else 0.
    fn truth(&mut self, dst: IrReg, cond: Cond, a: Val, b: Val) -> Res {
        let (a, b) = (self.number_in_reg(a)?, self.number(b)?);
        let end = self.asm.label();
        let result = self.asm.copy(1);
        self.asm.jump_if(cond, a, b, end);
        self.asm.mov(result, 0);
        self.asm.bind(end);
        self.def_int(dst, result)
    }

    pub(crate) fn binary(&mut self, dst: IrReg, op: BinOp, a: Val, b: Val) -> Res {
        if let Some(cond) = condition(op) {
            return self.truth(dst, cond, a, b);
        }
        let alu = operation(op).ok_or("no such operation")?;
        // The verifier refuses constant shifts of 64 and more. Shifts by a register use its low six
        // bits, which is what the language asks for.
        let b = match (alu, b) {
            (AluOp::Lsh | AluOp::Rsh | AluOp::Arsh, Val::Imm(n)) => Val::Imm(n & 63),
            _ => b,
        };
        let b = self.number(b)?;
        let result = self.number_copy(a)?;
        match (alu, b) {
            (AluOp::Lsh | AluOp::Rsh | AluOp::Arsh, Src::Reg(_)) => {
                let count = self.asm.alu_of(AluOp::And, b, 63);
                self.asm.alu(alu, result, count);
            }
            (AluOp::Add | AluOp::Sub, Src::Imm(n)) if n.unsigned_abs() >= MAX_VAR_OFF => {
                self.asm.alu(alu, result, n / 2);
                self.asm.alu(alu, result, n - n / 2);
            }
            _ => self.asm.alu(alu, result, b),
        }
        self.def_int(dst, result)
    }

    /// Signed division by way of unsigned division: the signed instruction needs Linux 6.6.
    pub(crate) fn divide(&mut self, dst: IrReg, op: BinOp, a: Val, b: Val) -> Res {
        if b == Val::Imm(0) {
            self.fail_now(ErrorKind::DivisionByZero);
            return Ok(());
        }
        if let Val::Imm(n) = b
            && self.divide_by(dst, op, a, n)?
        {
            return Ok(());
        }
        let a = self.number(a)?;
        let divisor = self.number(b)?;
        if let (Val::Reg(_), Src::Reg(divisor)) = (b, divisor) {
            let fail = self.fail_label(ErrorKind::DivisionByZero);
            self.asm.jump_if(Cond::Eq, divisor, 0, fail);
        }
        let name = if op == BinOp::Div { "divide" } else { "modulo" };
        let result = self.run_library(name, &[a.into(), divisor.into()])?;
        self.def_int(dst, result)
    }

    /// Divides by a constant, without the comparison with 0. Returns false if the constant does not
    /// fit in 32 bits.
    fn divide_by(&mut self, dst: IrReg, op: BinOp, a: Val, b: i64) -> Res<bool> {
        let Ok(divisor @ 1..) = i32::try_from(b.unsigned_abs()) else {
            return Ok(false);
        };
        let result = self.number_copy(a)?;
        let sign = self.asm.alu_of(AluOp::Arsh, result, 63);
        self.asm.alu(AluOp::Xor, result, sign);
        self.asm.alu(AluOp::Sub, result, sign);
        if op == BinOp::Div {
            self.asm.alu(AluOp::Div, result, divisor);
            if b < 0 {
                self.asm.alu(AluOp::Xor, sign, -1);
            }
        } else {
            self.asm.alu(AluOp::Mod, result, divisor);
        }
        self.asm.alu(AluOp::Xor, result, sign);
        self.asm.alu(AluOp::Sub, result, sign);
        self.def_int(dst, result)?;
        Ok(true)
    }
}
