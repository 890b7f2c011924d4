//! The floating-point number that a decimal text stands for, correctly rounded.
//!
//! There are no tables and no cases of their own for hard numbers: the digits become a
//! fixed-point number in limbs of nine digits, the point between two of them. Dividing its
//! whole part by 2^32 again and again gives the words of its binary form, lowest first, and
//! multiplying the rest by 2^32 those behind the point, highest first. The three highest words
//! and one bit for all below them decide the rounding. A short number takes a few rounds, the
//! longest some thousands.

use spile_ir::interp::string_to_fp;
use spile_ir::intrinsics::Intrinsic;
use spile_ir::{Inst, Reg as IrReg, Val};

use super::search::{ends, finish};
use crate::isa::asm::{Asm, Function, Label, Section};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Reg, Size};
use crate::lower::{Gen, Res, Text};
use crate::plan::Plan;

/// Name of the subprogram.
const NAME: &str = "string_to_fp";
/// Digits of a limb, and one more than its largest value.
const LIMB: i32 = 9;
const BASE: i32 = 1_000_000_000;
/// The limb of the units: 309 digits are before the point.
const UNITS: i32 = 34;
/// Limbs behind it take 1,100 digits: the smallest number's first digit is the 324th, and what
/// lies halfway between two numbers has at most 767.
const LIMBS: i32 = 158;
/// The first digit's place in numbers that are infinite from there on, or 0.
const TOO_LARGE: i32 = 310;
const TOO_SMALL: i32 = -326;
/// Written exponents are cut to this: no string has so many digits.
const MAX_EXPONENT: i32 = 99_999;
/// Most rounds over the limbs: each whole word passes over the whole part, each word behind
/// the point over all.
const ROUNDS: i32 = 34 * LIMBS;

/// Words of the room; what is found of the text first.
mod word {
    pub const PHASE: i16 = 0;
    pub const NEGATIVE: i16 = 8;
    /// Whether there is a digit.
    pub const SEEN: i16 = 16;
    /// Whether the point was passed.
    pub const POINT: i16 = 24;
    /// Where the first digit that counts stands, plus one; 0 for none.
    pub const FIRST: i16 = 32;
    /// Its place: 0 for units, -1 for tenths.
    pub const PLACE: i16 = 40;
    pub const EXPONENT: i16 = 48;
    pub const EXPONENT_NEGATIVE: i16 = 56;
    /// The place at hand.
    pub const AT: i16 = 64;
    /// Where the next digit stands in the text.
    pub const NEXT: i16 = 72;
    /// The limb's value so far.
    pub const LIMB: i16 = 80;
    /// Not 0 where something is below the words.
    pub const REST: i16 = 88;
    /// Not 0 where something is behind the point.
    pub const FRACTION: i16 = 96;
    /// The first limb that is not 0, and the one behind the last.
    pub const TOP: i16 = 104;
    pub const END: i16 = 112;
    /// The limb at hand, and what is carried to it.
    pub const INDEX: i16 = 120;
    pub const CARRY: i16 = 128;
    /// The three highest words, highest first; how many there are; the number is
    /// less than 2^32 to the power of the scale, and not less than that of one less.
    pub const HIGH: i16 = 136;
    pub const MIDDLE: i16 = 144;
    pub const LOW: i16 = 152;
    pub const WORDS: i16 = 160;
    pub const SCALE: i16 = 168;
    /// Digits from the next one on.
    pub const LEFT: i16 = 176;
    /// The limbs, 4 bytes each.
    pub const LIMBS: i16 = 184;
    /// Bytes of all.
    pub const SIZE: u32 = 184 + 4 * super::LIMBS as u32;
}

/// What the byte at hand can be.
mod phase {
    // 0: spaces before the number.
    pub const START: i32 = 1;
    pub const DIGITS: i32 = 2;
    pub const EXPONENT_SIGN: i32 = 3;
    pub const EXPONENT: i32 = 4;
    /// A name instead of digits.
    pub const INFINITE: i32 = 5;
    pub const NO_NUMBER: i32 = 6;
}

/// Slots that the callbacks are given: addresses of the text and the room.
mod slot {
    pub const TEXT: i16 = 0;
    pub const ROOM: i16 = 8;
    pub const SIZE: i16 = 16;
}

const INFINITY: u64 = 0x7ff0_0000_0000_0000;
const NAN: u64 = 0xfff8_0000_0000_0000;

/// Bytes that the program needs in each CPU's block.
pub(crate) fn room<'i>(mut insts: impl Iterator<Item = &'i Inst>) -> u32 {
    let f = Intrinsic::StrToFp;
    match insts.any(|i| matches!(i, Inst::Intr { f: x, .. } if *x == f)) {
        true => word::SIZE,
        false => 0,
    }
}

impl Gen<'_> {
    /// `dst` = the floating-point number that a text stands for.
    pub(in crate::lower) fn string_to_fp(&mut self, dst: IrReg, text: Val) -> Res {
        let text = self.text(text)?;
        if let Text::Const { bytes } = &text {
            self.asm.imm(R0, string_to_fp(bytes));
            return self.set_long(dst, R0);
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
        self.set_long(dst, R0)
    }
}

/// Where the text stands.
fn place(plan: &Plan) -> u32 {
    plan.scratch.text + 2 * plan.max_string
}

/// `string_to_fp(width)`: of the text in its place; verified once. r6: the room.
fn string_to_fp_sub(plan: &Plan) -> Result<Function, String> {
    let mut asm = Asm::new(NAME, &["width"]);
    asm.separate();
    let [zero, infinite, nan, signed] = [(); 4].map(|()| asm.label());
    asm.mov(R8, R1);
    asm.call(Helper::GetSmpProcessorId);
    asm.jump_if(Cond::Ge, R0, plan.cpus as i32, zero);
    asm.alu(AluOp::Mul, R0, plan.stride as i32);
    asm.ld_data(R7, Section::Bss, plan.shared_size);
    asm.add(R7, R0);
    asm.mov(R6, R7);
    asm.add(R6, plan.scratch.decimal as i32);
    asm.add(R7, place(plan) as i32);
    asm.store(Size::DW, R10, slot::TEXT - slot::SIZE, R7);
    asm.store(Size::DW, R10, slot::ROOM - slot::SIZE, R6);
    for at in (0..word::LIMBS).step_by(8) {
        asm.store(Size::DW, R6, at, 0);
    }
    asm.mov(R1, R8);
    asm.each("decimal_scan", -slot::SIZE);
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
    asm.each("decimal_fill", -slot::SIZE);
    words(&mut asm);
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

/// The first digit's place with the exponent; `signed` with r0 = 0 where the number is 0.
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
    // Without a whole part the places behind the point are gone through from the first on.
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

/// The limbs become words.
fn words(asm: &mut Asm) {
    let (enough, none) = (asm.label(), asm.label());
    asm.load(Size::DW, R1, R6, word::INDEX);
    asm.store(Size::DW, R6, word::END, R1);
    asm.load(Size::DW, R1, R6, word::TOP);
    asm.store(Size::DW, R6, word::INDEX, R1);
    asm.mov(R1, ROUNDS);
    asm.each("decimal_whole", -slot::SIZE);
    asm.load(Size::DW, R1, R6, word::WORDS);
    asm.store(Size::DW, R6, word::SCALE, R1);
    asm.load(Size::DW, R2, R6, word::FRACTION);
    asm.jump_if(Cond::Ge, R1, 3, enough);
    asm.load(Size::DW, R1, R6, word::END);
    asm.add(R1, -1);
    asm.store(Size::DW, R6, word::INDEX, R1);
    asm.store(Size::DW, R6, word::CARRY, 0);
    asm.mov(R1, ROUNDS);
    asm.each("decimal_behind", -slot::SIZE);
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

/// `r0` = the number of the three words and the rest.
fn round(asm: &mut Asm, infinite: Label) {
    let [exact, normal, far, even, up, down] = [(); 6].map(|()| asm.label());
    // r1: 64 bits, r2: what is below them, r3: how many of the highest are 0.
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
    // Through memory: to the verifier the ways here become one.
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
    // The lowest bit is 1 if any below it is.
    asm.mov(R4, R1);
    asm.alu(AluOp::And, R4, 1);
    asm.alu(AluOp::Or, R2, R4);
    asm.alu(AluOp::Rsh, R1, 1);
    asm.jump_if(Cond::Eq, R2, 0, exact);
    asm.alu(AluOp::Or, R1, 1);
    asm.bind(exact);
    // r4: the exponent as it is kept.
    asm.load(Size::DW, R4, R6, word::SCALE);
    asm.alu(AluOp::Mul, R4, 32);
    asm.alu(AluOp::Sub, R4, R3);
    asm.add(R4, 1022);
    asm.jump_if(Cond::Sgt, R4, 2046, infinite);
    asm.jump_if(Cond::Sge, R4, 1, normal);
    // One that is too small for the exponent has fewer bits.
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

/// `r8` = byte at r1 of the text, in the text; `stop` behind its end. r6 is the room.
fn byte(asm: &mut Asm, most: u32, stop: Label) {
    asm.jump_if(Cond::Ge, R1, most as i32, stop);
    asm.load(Size::DW, R6, R2, slot::ROOM);
    asm.load(Size::DW, R7, R2, slot::TEXT);
    asm.add(R7, R1);
    asm.load(Size::B, R8, R7, 0);
}

/// `word += n`; loses r3.
fn bump(asm: &mut Asm, word: i16, n: i32) {
    asm.load(Size::DW, R3, R6, word);
    asm.add(R3, n);
    asm.store(Size::DW, R6, word, R3);
}

/// Takes one byte of the text.
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
    names(&mut asm, stop);
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

/// The byte r8, number r9 of the text, of the digits, or the `e` behind them.
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
    bump(asm, word::PLACE, -1);
    asm.jump(go_on);
    asm.bind(behind);
    bump(asm, word::LEFT, 1);
    asm.jump_if(Cond::Eq, R5, 0, whole);
    asm.jump(go_on);
    asm.bind(whole);
    bump(asm, word::PLACE, 1);
    asm.jump(go_on);
}

/// `inf` or `nan` at r7; goes to `stop`.
fn names(asm: &mut Asm, stop: Label) {
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

/// Puts one digit into its limb.
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
    bump(&mut asm, word::NEXT, 1);
    asm.jump_if(Cond::Eq, R8, i32::from(b'.'), go_on);
    asm.alu(AluOp::And, R8, 15);
    bump(&mut asm, word::LEFT, -1);
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
    // A limb ends with each ninth place; some thousands more make it a positive number.
    asm.mov(R1, R9);
    asm.add(R1, 1000 * LIMB);
    asm.alu(AluOp::Mod, R1, LIMB);
    asm.jump_if(Cond::Ne, R1, 0, next);
    asm.store(Size::DW, R6, word::LIMB, 0);
    asm.load(Size::DW, R1, R6, word::INDEX);
    asm.jump_if(Cond::Ge, R1, LIMBS, below);
    limb(&mut asm, R4, R1);
    asm.store(Size::W, R4, word::LIMBS, R3);
    bump(&mut asm, word::INDEX, 1);
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

/// `to` = address from which [`word::LIMBS`] is limb `index`, which is in bounds.
fn limb(asm: &mut Asm, to: Reg, index: Reg) {
    asm.mov(to, index);
    asm.alu(AluOp::Lsh, to, 2);
    asm.add(to, R6);
}

/// Divides one limb of the whole part by 2^32; at the last one the remainder is the next word.
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
    bump(&mut asm, word::WORDS, 1);
    ends(&mut asm, go_on, stop);
    finish(asm)
}

/// Multiplies one limb behind the point by 2^32; what the first one carries is the next word.
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
    // r1: the words there are already, less than 3.
    asm.mov(R2, R1);
    asm.alu(AluOp::Or, R2, R4);
    asm.jump_if(Cond::Eq, R2, 0, leading);
    asm.alu(AluOp::Lsh, R1, 3);
    asm.add(R1, R6);
    asm.store(Size::DW, R1, word::HIGH, R4);
    bump(&mut asm, word::WORDS, 1);
    asm.jump(again);
    asm.bind(leading);
    bump(&mut asm, word::SCALE, -1);
    asm.bind(again);
    asm.store(Size::DW, R6, word::CARRY, 0);
    asm.load(Size::DW, R1, R6, word::END);
    asm.add(R1, -1);
    asm.store(Size::DW, R6, word::INDEX, R1);
    ends(&mut asm, go_on, stop);
    finish(asm)
}
