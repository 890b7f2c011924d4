//! Hexadecimal addresses in text, for stacks and for symbolic text that the controller renders. The
//! code has no loop; the verifier follows a tenth of what `append_number_16` costs.

use super::append::{HALF, flag};
use crate::isa::asm::{Asm, Function};
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Insn, Size, Swap};
use crate::lower::text::put::ArgAppender;
use crate::plan::StateLayout;

/// Name of the subprogram.
pub(in crate::lower) const APPEND_HEX: &str = "append_hex";
/// Digits of a 64-bit number.
const DIGITS: u32 = 16;

/// `append_hex(number, mark)`: appends a number, after `0x` if `mark` has [`flag::MARK`].
pub(in crate::lower) fn append_hex(plan: &StateLayout) -> Result<Function, String> {
    let mut p = ArgAppender::new(APPEND_HEX, &["number", "mark"], plan);
    let scratch = &plan.scratch;
    let (pos, last) = (
        scratch.text_pos as i16,
        (scratch.digits + HALF - DIGITS) as i16,
    );
    let asm = &mut p.asm;
    asm.load(Size::DW, R9, R6, pos);
    asm.jump_if(Cond::Gt, R9, plan.max_string as i32, p.end);
    asm.mov(R1, R6);
    asm.add(R1, scratch.text as i32);
    asm.add(R1, R9);
    asm.store(Size::B, R1, 0, i32::from(b'0'));
    asm.store(Size::B, R1, 1, i32::from(b'x'));
    // The two characters of the prefix are counted if it is present.
    asm.alu(AluOp::And, R8, flag::MARK);
    asm.alu(AluOp::Rsh, R8, flag::MARK.trailing_zeros() as i32 - 1);
    asm.add(R1, R8);
    asm.add(R9, R8);
    for (half, at) in [(32, last), (0, last + 8)] {
        asm.mov(R2, R7);
        asm.alu(AluOp::Rsh, R2, half);
        asm.mov32(R2, R2);
        eight_digits(asm, b'a');
        asm.store(Size::DW, R6, at, R2);
    }
    significant(asm);
    // Through memory: the verifier would follow the rest once for each count.
    asm.store(Size::DW, R6, scratch.tmp as i16, R3);
    asm.load(Size::DW, R3, R6, scratch.tmp as i16);
    asm.alu(AluOp::And, R3, DIGITS as i32 - 1);
    asm.add(R9, R3);
    asm.add(R9, 1);
    asm.store(Size::DW, R6, pos, R9);
    // The buffer is zero behind the digits.
    asm.mov(R4, DIGITS as i32 - 1);
    asm.alu(AluOp::Sub, R4, R3);
    asm.mov(R2, R6);
    asm.add(R2, R4);
    for i in 0..2 {
        asm.load(Size::DW, R4, R2, last + 8 * i);
        asm.store(Size::DW, R1, 8 * i, R4);
    }
    p.finish()
}

/// `r2` = the eight digits of the 32-bit number in r2, with the first digit in the lowest byte;
/// `ten` is the letter for 10. Clobbers r3 and r4.
pub(in crate::lower) fn eight_digits(asm: &mut Asm, ten: u8) {
    // Spreads the digits to a byte each.
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
    ] {
        asm.mov(R3, R2);
        asm.alu(AluOp::Lsh, R3, shift);
        asm.alu(AluOp::Or, R2, R3);
        asm.ld_imm64(R3, mask);
        asm.alu(AluOp::And, R2, R3);
    }
    // r3 = 1 in each byte above 9.
    asm.ld_imm64(R3, 0x0101_0101_0101_0101 * 6);
    asm.add(R3, R2);
    asm.alu(AluOp::Rsh, R3, 4);
    asm.ld_imm64(R4, 0x0101_0101_0101_0101);
    asm.alu(AluOp::And, R3, R4);
    asm.alu(AluOp::Mul, R3, i32::from(ten - b'0') - 10);
    asm.add(R2, R3);
    asm.ld_imm64(R3, 0x0101_0101_0101_0101 * u64::from(b'0'));
    asm.add(R2, R3);
    asm.emit(Insn::Swap {
        to: Swap::Be,
        size: Size::DW,
        dst: R2,
    });
}

/// `r3` = number of significant digits of r7, less one. Clobbers r2 and r7.
fn significant(asm: &mut Asm) {
    asm.mov(R3, 0);
    for digits in [8, 4, 2, 1] {
        let short = asm.label();
        asm.mov(R2, R7);
        asm.alu(AluOp::Rsh, R2, 4 * digits);
        asm.jump_if(Cond::Eq, R2, 0, short);
        asm.mov(R7, R2);
        asm.add(R3, digits);
        asm.bind(short);
    }
}
