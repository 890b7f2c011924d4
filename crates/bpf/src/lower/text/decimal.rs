//! Conversion of decimal text to a floating-point number, correctly rounded.
//!
//! The method needs no tables, and hard cases need no special treatment. The digits become a
//! fixed-point number in limbs of nine digits, with the decimal point between two limbs. Repeatedly
//! dividing the integer part by 2^32 gives its binary words, lowest first. Repeatedly multiplying
//! the fraction by 2^32 gives the words behind the point, highest first. The three highest words,
//! and one sticky bit for everything below, decide the rounding. A short number takes a few
//! iterations, the longest some thousands.

use spile_ir::interp::string_to_fp;
use spile_ir::intrinsics::Intrinsic;
use spile_ir::{Inst, Reg as IrReg, Val};

use super::callback::{ends, finish};
use crate::isa::asm::{Asm, Function, Label};
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Reg, Size};
use crate::lower::{HandlerCodegen, Res, StrOperand};
use crate::plan::StateLayout;

/// Name of the subprogram.
const NAME: &str = "string_to_fp";
/// Digits of a limb, and the radix of limbs.
const LIMB: i32 = 9;
const BASE: i32 = 1_000_000_000;
/// Index of the units' limb: 309 digits can precede the point.
const UNITS: i32 = 34;
/// Number of limbs, which leaves 1,100 digits for the fraction. The smallest number's first digit
/// is the 324th, and a midpoint between two numbers has at most 767 digits.
const LIMBS: i32 = 158;
/// Place of the first digit from which a number is infinite, or 0.
const TOO_LARGE: i32 = 310;
const TOO_SMALL: i32 = -326;
/// Bound on exponents: no string has this number of digits.
const MAX_EXPONENT: i32 = 99_999;
/// Bound on iterations over the limbs: each integer word takes a pass over the integer part, each
/// fraction word a pass over all limbs.
const ROUNDS: i32 = 34 * LIMBS;

/// Offsets of the work area's words, starting with the parser's state.
mod word {
    pub(super) const PHASE: i16 = 0;
    pub(super) const NEGATIVE: i16 = 8;
    /// Whether the text has a digit.
    pub(super) const SEEN: i16 = 16;
    /// Whether the decimal point was passed.
    pub(super) const POINT: i16 = 24;
    /// Position of the first nonzero digit, plus one; 0 for none.
    pub(super) const FIRST: i16 = 32;
    /// Decimal place of that digit: 0 for units, -1 for tenths.
    pub(super) const PLACE: i16 = 40;
    pub(super) const EXPONENT: i16 = 48;
    pub(super) const EXPONENT_NEGATIVE: i16 = 56;
    /// The decimal place of the current digit.
    pub(super) const AT: i16 = 64;
    /// Position of the next digit in the text.
    pub(super) const NEXT: i16 = 72;
    /// The current limb's value so far.
    pub(super) const LIMB: i16 = 80;
    /// Nonzero if any bit below the words is set.
    pub(super) const REST: i16 = 88;
    /// Nonzero if the number has a fraction.
    pub(super) const FRACTION: i16 = 96;
    /// The first nonzero limb, and the one behind the last.
    pub(super) const TOP: i16 = 104;
    pub(super) const END: i16 = 112;
    /// The current limb, and the carry into it.
    pub(super) const INDEX: i16 = 120;
    pub(super) const CARRY: i16 = 128;
    /// The three highest words, highest first; the number of words; the scale. The value is below
    /// 2^32 to the power of the scale, and at least 2^32 to the power of the scale minus one.
    pub(super) const HIGH: i16 = 136;
    pub(super) const MIDDLE: i16 = 144;
    pub(super) const LOW: i16 = 152;
    pub(super) const WORDS: i16 = 160;
    pub(super) const SCALE: i16 = 168;
    /// Number of digits that are left.
    pub(super) const LEFT: i16 = 176;
    /// The limbs, 4 bytes each.
    pub(super) const LIMBS: i16 = 184;
    /// Size of the work area in bytes.
    pub(super) const SIZE: u32 = 184 + 4 * super::LIMBS as u32;
}

/// States of the text scanner.
mod phase {
    // 0: spaces before the number.
    pub(super) const START: i32 = 1;
    pub(super) const DIGITS: i32 = 2;
    pub(super) const EXPONENT_SIGN: i32 = 3;
    pub(super) const EXPONENT: i32 = 4;
    /// A name such as `inf` instead of digits.
    pub(super) const INFINITE: i32 = 5;
    pub(super) const NO_NUMBER: i32 = 6;
}

/// Stack slots that the callbacks read: addresses of the text and of the work area.
mod slot {
    pub(super) const TEXT: i16 = 0;
    pub(super) const ROOM: i16 = 8;
    pub(super) const SIZE: i16 = 16;
}

const INFINITY: u64 = 0x7ff0_0000_0000_0000;
const NAN: u64 = 0xfff8_0000_0000_0000;

/// Bytes of each CPU's block that the program needs for conversions.
pub(crate) fn room<'i>(mut insts: impl Iterator<Item = &'i Inst>) -> u32 {
    let f = Intrinsic::StrToFp;
    match insts.any(|i| matches!(i, Inst::Intr { f: x, .. } if *x == f)) {
        true => word::SIZE,
        false => 0,
    }
}

impl HandlerCodegen<'_> {
    /// `dst` = the floating-point number that a text represents.
    pub(in crate::lower) fn string_to_fp(&mut self, dst: IrReg, text: Val) -> Res {
        let text = self.text(text)?;
        if let StrOperand::Const { bytes } = &text {
            self.asm.imm(R0, string_to_fp(bytes));
            return self.def_int(dst, R0);
        }
        self.needs_loop("string_to_fp()")?;
        let plan = self.plan;
        let (off, width) = (place(plan), text.width().min(plan.max_string));
        self.copy_text(off, width, &text)?;
        self.pool
            .sub("decimal_scan", |_| scan_at(plan.max_string))?;
        self.pool
            .sub("decimal_fill", |_| fill_at(plan.max_string))?;
        self.pool.sub("decimal_whole", |_| whole_at())?;
        self.pool.sub("decimal_behind", |_| behind_at())?;
        self.pool.sub(NAME, |_| string_to_fp_sub(plan))?;
        self.asm.mov(R1, width as i32);
        self.asm.call_sub(NAME);
        self.def_int(dst, R0)
    }
}

/// Offset of the text in the CPU's block.
fn place(plan: &StateLayout) -> u32 {
    plan.scratch.text + 2 * plan.max_string
}

/// `string_to_fp(width)`: converts the text; a global subprogram. r6: the work area.
fn string_to_fp_sub(plan: &StateLayout) -> Result<Function, String> {
    let mut asm = Asm::new(NAME, &["width"]);
    asm.mark_separate();
    let [zero, infinite, nan, signed] = [(); 4].map(|()| asm.label());
    asm.mov(R8, R1);
    plan.cpu_block(&mut asm, R7, zero);
    asm.mov(R6, R7);
    asm.add(R6, plan.scratch.decimal as i32);
    asm.add(R7, place(plan) as i32);
    asm.store(Size::DW, R10, slot::TEXT - slot::SIZE, R7);
    asm.store(Size::DW, R10, slot::ROOM - slot::SIZE, R6);
    for at in (0..word::LIMBS).step_by(8) {
        asm.store(Size::DW, R6, at, 0);
    }
    asm.mov(R1, R8);
    asm.loop_call("decimal_scan", -slot::SIZE);
    asm.load(Size::DW, R1, R6, word::PHASE);
    asm.jump_if(Cond::Eq, R1, phase::INFINITE, infinite);
    asm.jump_if(Cond::Eq, R1, phase::NO_NUMBER, nan);
    asm.load(Size::DW, R1, R6, word::SEEN);
    asm.jump_if(Cond::Eq, R1, 0, zero);
    asm.mov(R0, 0);
    asm.load(Size::DW, R1, R6, word::FIRST);
    asm.jump_if(Cond::Eq, R1, 0, signed);
    first_place(&mut asm, infinite, signed);
    asm.mov(R1, 3 * plan.max_string as i32 + 1000);
    asm.loop_call("decimal_fill", -slot::SIZE);
    limbs_to_words(&mut asm);
    round(&mut asm, infinite);
    asm.jump(signed);
    asm.bind(infinite);
    asm.ld_imm64(R0, INFINITY);
    asm.bind(signed);
    asm.load(Size::DW, R1, R6, word::NEGATIVE);
    asm.alu(AluOp::Lsh, R1, 63);
    asm.alu(AluOp::Or, R0, R1);
    asm.exit();
    asm.bind(nan);
    asm.ld_imm64(R0, NAN);
    asm.exit();
    asm.bind(zero);
    asm.mov(R0, 0);
    asm.exit();
    finish(asm)
}

/// Adds the exponent to the first digit's place; goes to `signed` with r0 = 0 for zero.
fn first_place(asm: &mut Asm, infinite: Label, signed: Label) {
    let (positive, whole) = (asm.label(), asm.label());
    asm.load(Size::DW, R2, R6, word::EXPONENT);
    asm.load(Size::DW, R1, R6, word::EXPONENT_NEGATIVE);
    asm.jump_if(Cond::Eq, R1, 0, positive);
    asm.neg(R2);
    asm.bind(positive);
    asm.load(Size::DW, R1, R6, word::PLACE);
    asm.add(R1, R2);
    asm.store(Size::DW, R6, word::PLACE, R1);
    asm.load(Size::DW, R1, R6, word::PLACE);
    asm.jump_if(Cond::Sgt, R1, TOO_LARGE - 1, infinite);
    asm.jump_if(Cond::Slt, R1, TOO_SMALL + 1, signed);
    asm.load(Size::DW, R2, R6, word::FIRST);
    asm.add(R2, -1);
    asm.store(Size::DW, R6, word::NEXT, R2);
    // A number without an integer part starts at the first digit of its fraction.
    asm.jump_if(Cond::Sge, R1, 0, whole);
    asm.mov(R1, -1);
    asm.bind(whole);
    asm.store(Size::DW, R6, word::AT, R1);
    asm.add(R1, LIMB);
    asm.alu(AluOp::Div, R1, LIMB);
    asm.mov(R2, UNITS + 1);
    asm.alu(AluOp::Sub, R2, R1);
    asm.store(Size::DW, R6, word::TOP, R2);
    asm.store(Size::DW, R6, word::INDEX, R2);
}

/// Converts limbs to binary words.
fn limbs_to_words(asm: &mut Asm) {
    let (enough, none) = (asm.label(), asm.label());
    asm.load(Size::DW, R1, R6, word::INDEX);
    asm.store(Size::DW, R6, word::END, R1);
    asm.load(Size::DW, R1, R6, word::TOP);
    asm.store(Size::DW, R6, word::INDEX, R1);
    asm.mov(R1, ROUNDS);
    asm.loop_call("decimal_whole", -slot::SIZE);
    asm.load(Size::DW, R1, R6, word::WORDS);
    asm.store(Size::DW, R6, word::SCALE, R1);
    asm.load(Size::DW, R2, R6, word::FRACTION);
    asm.jump_if(Cond::Ge, R1, 3, enough);
    asm.load(Size::DW, R1, R6, word::END);
    asm.add(R1, -1);
    asm.store(Size::DW, R6, word::INDEX, R1);
    asm.store(Size::DW, R6, word::CARRY, 0);
    asm.mov(R1, ROUNDS);
    asm.loop_call("decimal_behind", -slot::SIZE);
    asm.mov(R2, 0);
    asm.load(Size::DW, R1, R6, word::END);
    asm.jump_if(Cond::Le, R1, UNITS + 1, none);
    asm.mov(R2, 1);
    asm.bind(none);
    asm.bind(enough);
    asm.load(Size::DW, R1, R6, word::REST);
    asm.alu(AluOp::Or, R1, R2);
    asm.store(Size::DW, R6, word::REST, R1);
}

/// `r0` = the number that the three words and the sticky word represent.
fn round(asm: &mut Asm, infinite: Label) {
    let [exact, normal, far, even, up, down] = [(); 6].map(|()| asm.label());
    // r1: 64 bits, r2: the bits below, r3: the number of leading zeros.
    asm.load(Size::DW, R1, R6, word::HIGH);
    asm.mov(R3, 0);
    asm.mov(R4, R1);
    for n in [16, 8, 4, 2, 1] {
        let high = asm.label();
        asm.mov(R5, R4);
        asm.alu(AluOp::Rsh, R5, 32 - n);
        asm.jump_if(Cond::Ne, R5, 0, high);
        asm.add(R3, n);
        asm.alu(AluOp::Lsh, R4, n);
        asm.bind(high);
    }
    // Through memory, which merges the verifier's paths.
    asm.store(Size::DW, R6, word::CARRY, R3);
    asm.load(Size::DW, R3, R6, word::CARRY);
    asm.alu(AluOp::And, R3, 31);
    asm.load(Size::DW, R2, R6, word::MIDDLE);
    asm.alu(AluOp::Lsh, R1, 32);
    asm.alu(AluOp::Or, R1, R2);
    asm.load(Size::DW, R2, R6, word::LOW);
    asm.alu(AluOp::Lsh, R1, R3);
    asm.alu(AluOp::Lsh, R2, R3);
    asm.mov(R4, R2);
    asm.alu(AluOp::Rsh, R4, 32);
    asm.alu(AluOp::Or, R1, R4);
    asm.mov32(R2, R2);
    asm.load(Size::DW, R4, R6, word::REST);
    asm.alu(AluOp::Or, R2, R4);
    // The lowest bit becomes the sticky bit.
    asm.mov(R4, R1);
    asm.alu(AluOp::And, R4, 1);
    asm.alu(AluOp::Or, R2, R4);
    asm.alu(AluOp::Rsh, R1, 1);
    asm.jump_if(Cond::Eq, R2, 0, exact);
    asm.alu(AluOp::Or, R1, 1);
    asm.bind(exact);
    // r4: the biased exponent.
    asm.load(Size::DW, R4, R6, word::SCALE);
    asm.alu(AluOp::Mul, R4, 32);
    asm.alu(AluOp::Sub, R4, R3);
    asm.add(R4, 1022);
    asm.jump_if(Cond::Sgt, R4, 2046, infinite);
    asm.jump_if(Cond::Sge, R4, 1, normal);
    // A subnormal number has fewer bits.
    asm.mov(R3, 1);
    asm.alu(AluOp::Sub, R3, R4);
    asm.mov(R4, 1);
    asm.jump_if(Cond::Gt, R3, 62, far);
    asm.mov(R2, 1);
    asm.alu(AluOp::Lsh, R2, R3);
    asm.add(R2, -1);
    asm.alu(AluOp::And, R2, R1);
    asm.alu(AluOp::Rsh, R1, R3);
    asm.jump_if(Cond::Eq, R2, 0, normal);
    asm.alu(AluOp::Or, R1, 1);
    asm.jump(normal);
    asm.bind(far);
    asm.mov(R1, 1);
    asm.bind(normal);
    asm.mov(R2, R1);
    asm.alu(AluOp::And, R2, 0x3ff);
    asm.alu(AluOp::Rsh, R1, 10);
    asm.jump_if(Cond::Gt, R2, 0x200, up);
    asm.jump_if(Cond::Eq, R2, 0x200, even);
    asm.jump(down);
    asm.bind(even);
    asm.mov(R2, R1);
    asm.alu(AluOp::And, R2, 1);
    asm.jump_if(Cond::Eq, R2, 0, down);
    asm.bind(up);
    asm.add(R1, 1);
    asm.bind(down);
    asm.add(R4, -1);
    asm.alu(AluOp::Lsh, R4, 52);
    asm.mov(R0, R1);
    asm.add(R0, R4);
}

/// `r8` = byte r1 of the text; goes to `stop` behind the end. r6 is the work area.
fn byte(asm: &mut Asm, most: u32, stop: Label) {
    asm.jump_if(Cond::Ge, R1, most as i32, stop);
    asm.load(Size::DW, R6, R2, slot::ROOM);
    asm.load(Size::DW, R7, R2, slot::TEXT);
    asm.add(R7, R1);
    asm.load(Size::B, R8, R7, 0);
}

/// `word += n`. Clobbers r3.
fn add_to_word(asm: &mut Asm, word: i16, n: i32) {
    asm.load(Size::DW, R3, R6, word);
    asm.add(R3, n);
    asm.store(Size::DW, R6, word, R3);
}

/// Scans one byte of the text.
fn scan_at(most: u32) -> Result<Function, String> {
    let mut asm = Asm::new("decimal_scan", &["index", "slots"]);
    let (go_on, stop) = (asm.label(), asm.label());
    let [
        digit,
        exponent,
        exponent_sign,
        start,
        minus,
        sign,
        name,
        point,
    ] = [(); 8].map(|()| asm.label());
    byte(&mut asm, most, stop);
    asm.mov(R9, R1);
    asm.load(Size::DW, R1, R6, word::PHASE);
    asm.jump_if(Cond::Eq, R1, phase::DIGITS, digit);
    asm.jump_if(Cond::Eq, R1, phase::EXPONENT, exponent);
    asm.jump_if(Cond::Eq, R1, phase::EXPONENT_SIGN, exponent_sign);
    asm.jump_if(Cond::Eq, R1, phase::START, start);
    asm.jump_if(Cond::Eq, R8, i32::from(b' '), go_on);
    asm.jump_if(Cond::Lt, R8, 9, sign);
    asm.jump_if(Cond::Le, R8, 13, go_on);
    asm.bind(sign);
    asm.store(Size::DW, R6, word::PHASE, phase::START);
    asm.jump_if(Cond::Eq, R8, i32::from(b'+'), go_on);
    asm.jump_if(Cond::Eq, R8, i32::from(b'-'), minus);
    asm.jump(start);
    asm.bind(minus);
    asm.store(Size::DW, R6, word::NEGATIVE, 1);
    asm.jump(go_on);
    asm.bind(start);
    asm.jump_if(Cond::Gt, R8, i32::from(b'9'), name);
    asm.store(Size::DW, R6, word::PHASE, phase::DIGITS);
    asm.bind(digit);
    asm.jump_if(Cond::Eq, R8, i32::from(b'.'), point);
    take_digit(&mut asm, go_on, stop);
    asm.bind(point);
    asm.load(Size::DW, R1, R6, word::POINT);
    asm.jump_if(Cond::Ne, R1, 0, stop);
    asm.store(Size::DW, R6, word::POINT, 1);
    asm.jump(go_on);
    asm.bind(name);
    match_names(&mut asm, stop);
    asm.bind(exponent_sign);
    asm.store(Size::DW, R6, word::PHASE, phase::EXPONENT);
    asm.jump_if(Cond::Eq, R8, i32::from(b'+'), go_on);
    asm.jump_if(Cond::Ne, R8, i32::from(b'-'), exponent);
    asm.store(Size::DW, R6, word::EXPONENT_NEGATIVE, 1);
    asm.jump(go_on);
    asm.bind(exponent);
    asm.add(R8, -i32::from(b'0'));
    asm.jump_if(Cond::Gt, R8, 9, stop);
    asm.load(Size::DW, R1, R6, word::EXPONENT);
    asm.alu(AluOp::Mul, R1, 10);
    asm.add(R1, R8);
    asm.jump_if(Cond::Gt, R1, MAX_EXPONENT, go_on);
    asm.store(Size::DW, R6, word::EXPONENT, R1);
    ends(&mut asm, go_on, stop);
    finish(asm)
}

/// Takes byte r8 at position r9, which is a digit or the `e` behind the digits.
fn take_digit(asm: &mut Asm, go_on: Label, stop: Label) {
    let [digit, behind, zero, whole] = [(); 4].map(|()| asm.label());
    asm.load(Size::DW, R4, R6, word::SEEN);
    asm.load(Size::DW, R5, R6, word::POINT);
    asm.mov(R1, R8);
    asm.add(R1, -i32::from(b'0'));
    asm.jump_if(Cond::Le, R1, 9, digit);
    asm.alu(AluOp::Or, R8, 0x20);
    asm.jump_if(Cond::Ne, R8, i32::from(b'e'), stop);
    asm.jump_if(Cond::Eq, R4, 0, stop);
    asm.store(Size::DW, R6, word::PHASE, phase::EXPONENT_SIGN);
    asm.jump(go_on);
    asm.bind(digit);
    asm.store(Size::DW, R6, word::SEEN, 1);
    asm.load(Size::DW, R4, R6, word::FIRST);
    asm.jump_if(Cond::Ne, R4, 0, behind);
    asm.jump_if(Cond::Eq, R1, 0, zero);
    asm.add(R9, 1);
    asm.store(Size::DW, R6, word::FIRST, R9);
    asm.store(Size::DW, R6, word::LEFT, 1);
    asm.bind(zero);
    asm.jump_if(Cond::Eq, R5, 0, go_on);
    add_to_word(asm, word::PLACE, -1);
    asm.jump(go_on);
    asm.bind(behind);
    add_to_word(asm, word::LEFT, 1);
    asm.jump_if(Cond::Eq, R5, 0, whole);
    asm.jump(go_on);
    asm.bind(whole);
    add_to_word(asm, word::PLACE, 1);
    asm.jump(go_on);
}

/// Recognises `inf` or `nan` at r7; goes to `stop`.
fn match_names(asm: &mut Asm, stop: Label) {
    let word = |bytes: [u8; 4]| i64::from(u32::from_ne_bytes(bytes));
    let names = [(*b"inf\0", phase::INFINITE), (*b"nan\0", phase::NO_NUMBER)];
    asm.load(Size::W, R8, R7, 0);
    asm.imm(R1, word([0xff, 0xff, 0xff, 0]));
    asm.alu(AluOp::And, R8, R1);
    asm.imm(R1, word([0x20, 0x20, 0x20, 0]));
    asm.alu(AluOp::Or, R8, R1);
    for (name, phase) in names {
        let other = asm.label();
        asm.imm(R1, word(name));
        asm.jump_if(Cond::Ne, R8, R1, other);
        asm.store(Size::DW, R6, word::PHASE, phase);
        asm.bind(other);
    }
    asm.jump(stop);
}

/// Stores one digit in its limb.
fn fill_at(most: u32) -> Result<Function, String> {
    let mut asm = Asm::new("decimal_fill", &["index", "slots"]);
    let [go_on, stop, none, whole, next, below, stored] = [(); 7].map(|()| asm.label());
    asm.load(Size::DW, R6, R2, slot::ROOM);
    asm.load(Size::DW, R9, R6, word::AT);
    asm.mov(R8, 0);
    asm.load(Size::DW, R1, R6, word::PLACE);
    asm.jump_if(Cond::Slt, R1, R9, none);
    asm.load(Size::DW, R1, R6, word::LEFT);
    asm.jump_if(Cond::Eq, R1, 0, none);
    asm.load(Size::DW, R1, R6, word::NEXT);
    byte(&mut asm, most, stop);
    add_to_word(&mut asm, word::NEXT, 1);
    asm.jump_if(Cond::Eq, R8, i32::from(b'.'), go_on);
    asm.alu(AluOp::And, R8, 15);
    add_to_word(&mut asm, word::LEFT, -1);
    asm.bind(none);
    asm.load(Size::DW, R3, R6, word::LIMB);
    asm.alu(AluOp::Mul, R3, 10);
    asm.add(R3, R8);
    asm.store(Size::DW, R6, word::LIMB, R3);
    asm.jump_if(Cond::Sge, R9, 0, whole);
    asm.load(Size::DW, R1, R6, word::FRACTION);
    asm.alu(AluOp::Or, R1, R8);
    asm.store(Size::DW, R6, word::FRACTION, R1);
    asm.bind(whole);
    // A limb ends at each ninth place; the added thousands make the place positive.
    asm.mov(R1, R9);
    asm.add(R1, 1000 * LIMB);
    asm.alu(AluOp::Mod, R1, LIMB);
    asm.jump_if(Cond::Ne, R1, 0, next);
    asm.store(Size::DW, R6, word::LIMB, 0);
    asm.load(Size::DW, R1, R6, word::INDEX);
    asm.jump_if(Cond::Ge, R1, LIMBS, below);
    limb(&mut asm, R4, R1);
    asm.store(Size::W, R4, word::LIMBS, R3);
    add_to_word(&mut asm, word::INDEX, 1);
    asm.jump(stored);
    asm.bind(below);
    asm.load(Size::DW, R1, R6, word::REST);
    asm.alu(AluOp::Or, R1, R3);
    asm.store(Size::DW, R6, word::REST, R1);
    asm.bind(stored);
    asm.jump_if(Cond::Sgt, R9, 0, next);
    asm.load(Size::DW, R1, R6, word::LEFT);
    asm.jump_if(Cond::Eq, R1, 0, stop);
    asm.bind(next);
    asm.add(R9, -1);
    asm.store(Size::DW, R6, word::AT, R9);
    ends(&mut asm, go_on, stop);
    finish(asm)
}

/// `to` = address at which [`word::LIMBS`] is limb `index`; the index is in bounds.
fn limb(asm: &mut Asm, to: Reg, index: Reg) {
    asm.mov(to, index);
    asm.alu(AluOp::Lsh, to, 2);
    asm.add(to, R6);
}

/// Divides one limb of the integer part by 2^32; the last remainder is the next word.
fn whole_at() -> Result<Function, String> {
    let mut asm = Asm::new("decimal_whole", &["index", "slots"]);
    let [go_on, stop, high, last] = [(); 4].map(|()| asm.label());
    asm.load(Size::DW, R6, R2, slot::ROOM);
    asm.load(Size::DW, R7, R6, word::TOP);
    asm.jump_if(Cond::Gt, R7, UNITS, stop);
    asm.load(Size::DW, R8, R6, word::INDEX);
    asm.jump_if(Cond::Gt, R8, UNITS, stop);
    limb(&mut asm, R9, R8);
    asm.load(Size::W, R3, R9, word::LIMBS);
    asm.load(Size::DW, R4, R6, word::CARRY);
    asm.alu(AluOp::Mul, R4, BASE);
    asm.add(R4, R3);
    asm.mov(R5, R4);
    asm.alu(AluOp::Rsh, R5, 32);
    asm.store(Size::W, R9, word::LIMBS, R5);
    asm.mov32(R4, R4);
    asm.store(Size::DW, R6, word::CARRY, R4);
    asm.jump_if(Cond::Ne, R5, 0, high);
    asm.jump_if(Cond::Ne, R8, R7, high);
    asm.add(R7, 1);
    asm.store(Size::DW, R6, word::TOP, R7);
    asm.bind(high);
    asm.jump_if(Cond::Eq, R8, UNITS, last);
    asm.add(R8, 1);
    asm.store(Size::DW, R6, word::INDEX, R8);
    asm.jump(go_on);
    asm.bind(last);
    asm.load(Size::DW, R1, R6, word::LOW);
    asm.load(Size::DW, R2, R6, word::REST);
    asm.alu(AluOp::Or, R1, R2);
    asm.store(Size::DW, R6, word::REST, R1);
    for (from, to) in [(word::MIDDLE, word::LOW), (word::HIGH, word::MIDDLE)] {
        asm.load(Size::DW, R1, R6, from);
        asm.store(Size::DW, R6, to, R1);
    }
    asm.store(Size::DW, R6, word::HIGH, R4);
    asm.store(Size::DW, R6, word::CARRY, 0);
    asm.store(Size::DW, R6, word::INDEX, R7);
    add_to_word(&mut asm, word::WORDS, 1);
    ends(&mut asm, go_on, stop);
    finish(asm)
}

/// Multiplies one limb of the fraction by 2^32; the first limb's carry is the next word.
fn behind_at() -> Result<Function, String> {
    let mut asm = Asm::new("decimal_behind", &["index", "slots"]);
    let [go_on, stop, inner, first, leading, again] = [(); 6].map(|()| asm.label());
    asm.load(Size::DW, R6, R2, slot::ROOM);
    asm.load(Size::DW, R7, R6, word::END);
    asm.jump_if(Cond::Le, R7, UNITS + 1, stop);
    asm.load(Size::DW, R1, R6, word::WORDS);
    asm.jump_if(Cond::Ge, R1, 3, stop);
    asm.load(Size::DW, R8, R6, word::INDEX);
    asm.jump_if(Cond::Ge, R8, LIMBS, stop);
    limb(&mut asm, R9, R8);
    asm.load(Size::W, R3, R9, word::LIMBS);
    asm.load(Size::DW, R4, R6, word::CARRY);
    asm.alu(AluOp::Lsh, R3, 32);
    asm.add(R3, R4);
    asm.mov(R4, R3);
    asm.alu(AluOp::Div, R4, BASE);
    asm.alu(AluOp::Mod, R3, BASE);
    asm.store(Size::W, R9, word::LIMBS, R3);
    asm.store(Size::DW, R6, word::CARRY, R4);
    asm.add(R7, -1);
    asm.jump_if(Cond::Ne, R3, 0, inner);
    asm.jump_if(Cond::Ne, R8, R7, inner);
    asm.store(Size::DW, R6, word::END, R8);
    asm.bind(inner);
    asm.jump_if(Cond::Le, R8, UNITS + 1, first);
    asm.add(R8, -1);
    asm.store(Size::DW, R6, word::INDEX, R8);
    asm.jump(go_on);
    asm.bind(first);
    // r1: number of words so far, less than 3.
    asm.mov(R2, R1);
    asm.alu(AluOp::Or, R2, R4);
    asm.jump_if(Cond::Eq, R2, 0, leading);
    asm.alu(AluOp::Lsh, R1, 3);
    asm.add(R1, R6);
    asm.store(Size::DW, R1, word::HIGH, R4);
    add_to_word(&mut asm, word::WORDS, 1);
    asm.jump(again);
    asm.bind(leading);
    add_to_word(&mut asm, word::SCALE, -1);
    asm.bind(again);
    asm.store(Size::DW, R6, word::CARRY, 0);
    asm.load(Size::DW, R1, R6, word::END);
    asm.add(R1, -1);
    asm.store(Size::DW, R6, word::INDEX, R1);
    ends(&mut asm, go_on, stop);
    finish(asm)
}
