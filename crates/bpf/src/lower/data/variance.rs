//! `@variance`: `(n * sumsq - sum²) / (n * (n - 1))`, without rounding before the division, as in
//! `crates/ir/src/stats.rs`: a 192-bit numerator divided by a 128-bit divisor.

use crate::isa::asm::{Asm, Function};
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Reg, Size};
use crate::layout::AggLayout;

/// Name of the subprogram.
pub(in crate::lower) const NAME: &str = "variance";

/// Offsets of scratch words: first the products, then the operands of the division.
mod word {
    /// n * low half of the sum of squares.
    pub(super) const LOW: i16 = 0;
    /// n * high half of the sum of squares.
    pub(super) const HIGH: i16 = 16;
    /// Square of the sum.
    pub(super) const SQUARE: i16 = 32;
    /// The divisor, n * (n - 1).
    pub(super) const BY: i16 = 48;
    /// Dividend bits that are left, highest first.
    pub(super) const BITS: i16 = 0;
    /// The remainder, low half first.
    pub(super) const REST: i16 = 8;
    pub(super) const QUOTIENT: i16 = 24;
}

/// A function that assembles a subprogram.
type AssembleFn = fn() -> Result<Function, String>;

/// All subprograms, by name.
pub(in crate::lower) fn subs() -> [(&'static str, AssembleFn); 3] {
    [
        ("multiply", multiply),
        ("variance_bit", bit),
        (NAME, variance),
    ]
}

/// Loads the words of the statistic at r1 into r1 to r4, the first arguments of [`NAME`]. The
/// caller puts the address of the scratch words into r5.
pub(in crate::lower) fn load_arguments(asm: &mut Asm, agg: &AggLayout) -> Result<(), String> {
    let (Some(sum), Some(squares)) = (agg.sum, agg.sumsq) else {
        return Err("a statistic that keeps no squares".into());
    };
    asm.load(Size::DW, R2, R1, sum as i16);
    asm.load(Size::DW, R3, R1, squares as i16);
    asm.load(Size::DW, R4, R1, squares as i16 + 8);
    asm.load(Size::DW, R1, R1, agg.count as i16);
    Ok(())
}

/// `multiply(a, b, to)`: the 128-bit unsigned product.
fn multiply() -> Result<Function, String> {
    let mut asm = Asm::new("multiply", &["a", "b", "to"]);
    // Halves: r1 low and r4 high of a, r2 low and r5 high of b.
    asm.mov(R4, R1);
    asm.alu(AluOp::Rsh, R4, 32);
    asm.mov32(R1, R1);
    asm.mov(R5, R2);
    asm.alu(AluOp::Rsh, R5, 32);
    asm.mov32(R2, R2);
    asm.mov(R6, R1);
    asm.alu(AluOp::Mul, R6, R2); // low * low
    asm.mov(R7, R4);
    asm.alu(AluOp::Mul, R7, R2); // high * low
    asm.alu(AluOp::Mul, R1, R5); // low * high
    asm.alu(AluOp::Mul, R4, R5); // high * high
    // The middle: the carry of the lowest product, and the low half of a middle product.
    asm.mov(R0, R6);
    asm.alu(AluOp::Rsh, R0, 32);
    asm.add(R7, R0);
    asm.mov32(R0, R7);
    asm.add(R1, R0);
    asm.alu(AluOp::Rsh, R7, 32);
    asm.add(R4, R7);
    asm.mov(R0, R1);
    asm.alu(AluOp::Rsh, R0, 32);
    asm.add(R4, R0);
    asm.alu(AluOp::Lsh, R1, 32);
    asm.mov32(R6, R6);
    asm.alu(AluOp::Or, R1, R6);
    asm.store(Size::DW, R3, 0, R1);
    asm.store(Size::DW, R3, 8, R4);
    asm.mov(R0, 0);
    asm.exit();
    asm.finish().map_err(|e| e.to_string())
}

/// Multiplies r1 and r2 into the scratch word at offset `to` of r6.
fn product(asm: &mut Asm, to: i16) {
    asm.mov(R3, R6);
    asm.add(R3, i32::from(to));
    asm.call_sub("multiply");
}

/// `variance(count, sum, low, high, words)`.
fn variance() -> Result<Function, String> {
    let mut asm = Asm::new(NAME, &["count", "sum", "low", "high", "words"]);
    let [none, small, most, borrowed, carried, divide] = std::array::from_fn(|_| asm.label());
    asm.jump_if(Cond::Lt, R1, 2, none);
    asm.mov(R6, R5);
    asm.mov(R7, R1);
    asm.mov(R8, R2);
    asm.mov(R9, R4);
    asm.mov(R2, R3);
    product(&mut asm, word::LOW);
    asm.mov(R1, R7);
    asm.mov(R2, R9);
    product(&mut asm, word::HIGH);
    asm.mov(R1, R8);
    asm.mov(R2, R8);
    asm.alu(AluOp::Arsh, R8, 63);
    for reg in [R1, R2] {
        asm.alu(AluOp::Xor, reg, R8);
        asm.alu(AluOp::Sub, reg, R8);
    }
    product(&mut asm, word::SQUARE);
    asm.mov(R1, R7);
    asm.mov(R2, R7);
    asm.add(R2, -1);
    product(&mut asm, word::BY);
    // r1, r2, r3: the three words of the numerator, low first.
    asm.load(Size::DW, R1, R6, word::LOW);
    asm.load(Size::DW, R2, R6, word::LOW + 8);
    asm.load(Size::DW, R4, R6, word::HIGH);
    asm.load(Size::DW, R3, R6, word::HIGH + 8);
    asm.add(R2, R4);
    asm.jump_if(Cond::Ge, R2, R4, carried);
    asm.add(R3, 1);
    asm.bind(carried);
    subtract(&mut asm, R1, R2, R3, word::SQUARE, none);
    asm.load(Size::DW, R4, R6, word::BY);
    asm.load(Size::DW, R5, R6, word::BY + 8);
    // The common case: one word divided by one word.
    asm.mov(R0, R2);
    asm.alu(AluOp::Or, R0, R3);
    asm.alu(AluOp::Or, R0, R5);
    asm.jump_if(Cond::Eq, R0, 0, small);
    // The remainder starts as the numerator without its last 63 bits. If it is not below the
    // divisor, the quotient has more than 63 bits.
    asm.mov(R0, R3);
    asm.alu(AluOp::Rsh, R0, 63);
    asm.jump_if(Cond::Ne, R0, 0, most);
    for (to, from) in [(R3, R2), (R2, R1)] {
        asm.alu(AluOp::Lsh, to, 1);
        asm.mov(R0, from);
        asm.alu(AluOp::Rsh, R0, 63);
        asm.alu(AluOp::Or, to, R0);
    }
    asm.alu(AluOp::Lsh, R1, 1);
    asm.jump_if(Cond::Gt, R3, R5, most);
    asm.jump_if(Cond::Lt, R3, R5, divide);
    asm.jump_if(Cond::Ge, R2, R4, most);
    asm.bind(divide);
    asm.store(Size::DW, R6, word::BITS, R1);
    asm.store(Size::DW, R6, word::REST, R2);
    asm.store(Size::DW, R6, word::REST + 8, R3);
    asm.store(Size::DW, R6, word::QUOTIENT, 0);
    asm.store(Size::DW, R10, -8, R6);
    asm.mov(R1, 63);
    asm.loop_call("variance_bit", -8);
    asm.load(Size::DW, R0, R6, word::QUOTIENT);
    asm.exit();
    asm.bind(small);
    asm.mov(R0, R1);
    asm.alu(AluOp::Div, R0, R4);
    asm.jump_if(Cond::Sge, R0, 0, borrowed);
    asm.bind(most);
    asm.ld_imm64(R0, i64::MAX as u64);
    asm.bind(borrowed);
    asm.exit();
    asm.bind(none);
    asm.mov(R0, 0);
    asm.exit();
    asm.finish().map_err(|e| e.to_string())
}

/// Subtracts the two scratch words at `at` from the number of three words; goes to `negative` if the result
/// is below zero. Clobbers r0, r4, r5.
fn subtract(
    asm: &mut Asm,
    low: Reg,
    middle: Reg,
    high: Reg,
    at: i16,
    negative: crate::isa::asm::Label,
) {
    let [no_low, no_middle, no_borrow, end] = std::array::from_fn(|_| asm.label());
    asm.load(Size::DW, R4, R6, at);
    asm.load(Size::DW, R5, R6, at + 8);
    asm.mov(R0, 0);
    asm.jump_if(Cond::Ge, low, R4, no_low);
    asm.mov(R0, 1);
    asm.bind(no_low);
    asm.alu(AluOp::Sub, low, R4);
    // r4: the borrow out of the middle word, from its square part and from the borrow into it.
    asm.mov(R4, 0);
    asm.jump_if(Cond::Ge, middle, R5, no_middle);
    asm.mov(R4, 1);
    asm.bind(no_middle);
    asm.alu(AluOp::Sub, middle, R5);
    asm.jump_if(Cond::Ge, middle, R0, no_borrow);
    asm.mov(R4, 1);
    asm.bind(no_borrow);
    asm.alu(AluOp::Sub, middle, R0);
    asm.jump_if(Cond::Eq, R4, 0, end);
    asm.jump_if(Cond::Eq, high, 0, negative);
    asm.add(high, -1);
    asm.bind(end);
}

/// The callback that computes one bit of the quotient.
fn bit() -> Result<Function, String> {
    let mut asm = Asm::new("variance_bit", &["index", "slot"]);
    let [fits, fits_not, less] = std::array::from_fn(|_| asm.label());
    asm.load(Size::DW, R6, R2, 0);
    asm.load(Size::DW, R1, R6, word::BITS);
    asm.load(Size::DW, R2, R6, word::REST);
    asm.load(Size::DW, R3, R6, word::REST + 8);
    asm.load(Size::DW, R7, R6, word::QUOTIENT);
    asm.alu(AluOp::Lsh, R7, 1);
    asm.mov(R4, R3);
    asm.alu(AluOp::Rsh, R4, 63);
    for (to, from) in [(R3, R2), (R2, R1)] {
        asm.alu(AluOp::Lsh, to, 1);
        asm.mov(R0, from);
        asm.alu(AluOp::Rsh, R0, 63);
        asm.alu(AluOp::Or, to, R0);
    }
    asm.alu(AluOp::Lsh, R1, 1);
    asm.store(Size::DW, R6, word::BITS, R1);
    asm.load(Size::DW, R1, R6, word::BY);
    asm.load(Size::DW, R5, R6, word::BY + 8);
    asm.jump_if(Cond::Ne, R4, 0, fits);
    asm.jump_if(Cond::Gt, R3, R5, fits);
    asm.jump_if(Cond::Lt, R3, R5, fits_not);
    asm.jump_if(Cond::Lt, R2, R1, fits_not);
    asm.bind(fits);
    asm.alu(AluOp::Or, R7, 1);
    asm.alu(AluOp::Sub, R3, R5);
    asm.jump_if(Cond::Ge, R2, R1, less);
    asm.add(R3, -1);
    asm.bind(less);
    asm.alu(AluOp::Sub, R2, R1);
    asm.bind(fits_not);
    asm.store(Size::DW, R6, word::QUOTIENT, R7);
    asm.store(Size::DW, R6, word::REST, R2);
    asm.store(Size::DW, R6, word::REST + 8, R3);
    asm.mov(R0, 0);
    asm.exit();
    asm.finish().map_err(|e| e.to_string())
}
