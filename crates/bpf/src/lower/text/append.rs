//! Subprograms that append strings and numbers to the text being built, with C's widths, precisions
//! and flags. Padding is copied from runs of spaces and zeros.

use crate::isa::asm::{Asm, Function, Label, Section};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Reg, Size};
use crate::lower::pool::Pool;
use crate::plan::StateLayout;

/// Flags of `append_number`.
pub(in crate::lower) mod flag {
    pub(crate) const SIGNED: i32 = 1;
    pub(crate) const PLUS: i32 = 2;
    pub(crate) const SPACE: i32 = 4;
    pub(crate) const ZERO: i32 = 8;
    /// The alternate form (`#`): `0x`, or `0` in octal.
    pub(crate) const MARK: i32 = 32;
    pub(crate) const UPPER: i32 = 64;
}

/// The largest number of digits of a 64-bit number.
const DIGITS: i32 = 22;
/// Middle of the digit buffer: the digits end here.
pub(in crate::lower) const HALF: u32 = 64;

/// The generator of an appending subprogram, in which r6 is the CPU's block.
struct AppendSub<'a> {
    asm: Asm,
    plan: &'a StateLayout,
    end: Label,
    spaces: u32,
    zeros: u32,
}

impl AppendSub<'_> {
    /// `reg` = the position; leaves the subprogram if the text is full.
    fn pos(&mut self, reg: Reg) {
        self.asm
            .load(Size::DW, reg, R6, self.plan.scratch.text_pos as i16);
        self.asm
            .jump_if(Cond::Gt, reg, self.plan.max_string as i32, self.end);
    }

    fn set_pos(&mut self, reg: Reg) {
        self.asm
            .store(Size::DW, R6, self.plan.scratch.text_pos as i16, reg);
    }

    /// `to` = address of position `pos`, which is in another register.
    fn address_of(&mut self, to: Reg, pos: Reg) {
        self.asm.mov(to, R6);
        self.asm.add(to, self.plan.scratch.text as i32);
        self.asm.add(to, pos);
    }

    /// Copies r8 bytes of the text at r7 to the position: `r0` = bytes with the NUL. Leaves the
    /// subprogram if nothing was copied. Clobbers r1 to r5.
    fn copy_text(&mut self) {
        self.pos(R3);
        self.address_of(R1, R3);
        self.asm.mov(R2, R8);
        self.asm.mov(R3, R7);
        self.asm.call(Helper::ProbeReadKernelStr);
        self.asm.jump_if(Cond::Sle, R0, 0, self.end);
    }

    /// Appends `count` copies of a run's byte; the count may be 0 or negative. Clobbers r0 to r5.
    fn append_run(&mut self, run: u32, count: Reg) {
        let (none, fits) = (self.asm.label(), self.asm.label());
        self.asm.mov(R2, count);
        self.asm.jump_if(Cond::Sle, R2, 0, none);
        let most = self.plan.max_string as i32;
        self.asm.jump_if(Cond::Le, R2, most, fits);
        self.asm.mov(R2, most);
        self.asm.bind(fits);
        self.pos(R3);
        self.address_of(R1, R3);
        self.asm.add(R3, R2);
        self.set_pos(R3);
        self.asm.ld_data(R3, Section::Rodata, run);
        self.asm.call(Helper::ProbeReadKernel);
        self.asm.bind(none);
    }

    fn finish(mut self) -> Result<Function, String> {
        self.asm.bind(self.end);
        self.asm.mov(R0, 0);
        self.asm.exit();
        self.asm.finish().map_err(|e| e.to_string())
    }
}

fn sub<'a>(
    plan: &'a StateLayout,
    pool: &mut Pool,
    name: &str,
    params: &[&'static str],
) -> AppendSub<'a> {
    let mut s = bare_sub(plan, pool, name, params);
    s.asm.mov(R6, R1);
    s
}

fn bare_sub<'a>(
    plan: &'a StateLayout,
    pool: &mut Pool,
    name: &str,
    params: &[&'static str],
) -> AppendSub<'a> {
    let mut asm = Asm::new(name, params);
    let end = asm.label();
    AppendSub {
        asm,
        plan,
        end,
        spaces: pool.byte_run(b' '),
        zeros: pool.byte_run(b'0'),
    }
}

/// `append_text(block, text, size, width)`: the inline form's subprogram.
pub(in crate::lower) fn append_text(
    plan: &StateLayout,
    pool: &mut Pool,
) -> Result<Function, String> {
    let mut s = sub(
        plan,
        pool,
        "append_text",
        &["block", "text", "size", "width"],
    );
    s.asm.mov(R7, R2);
    s.asm.mov(R8, R3);
    s.asm.mov(R9, R4);
    append_body(s)
}

/// `text_append(text, size, width)`: a global subprogram. The text is an offset in the CPU's block,
/// or the offset of a constant with that bit set.
pub(in crate::lower) fn append_text_global(
    plan: &StateLayout,
    pool: &mut Pool,
    constant: i32,
) -> Result<Function, String> {
    let mut s = bare_sub(plan, pool, "text_append", &["text", "size", "width"]);
    s.asm.mark_separate();
    let (found, slot) = (s.asm.label(), s.asm.label());
    s.asm.mov(R7, R1);
    s.asm.mov(R8, R2);
    s.asm.mov(R9, R3);
    let end = s.end;
    s.asm.jump_if(Cond::Gt, R8, plan.max_string as i32, end);
    plan.cpu_block(&mut s.asm, R6, end);
    s.asm.jump_if(Cond::Lt, R7, constant, slot);
    s.asm.alu(AluOp::And, R7, (1 << 28) - 1);
    s.asm.ld_data(R1, Section::Rodata, 0);
    s.asm.add(R7, R1);
    s.asm.jump(found);
    s.asm.bind(slot);
    s.asm.jump_if(Cond::Gt, R7, plan.scratch.out as i32, end);
    s.asm.add(R7, R6);
    s.asm.bind(found);
    append_body(s)
}

/// The body: r7 is the text, r8 its size, r9 the width.
fn append_body(mut s: AppendSub<'_>) -> Result<Function, String> {
    let (copy, left) = (s.asm.label(), s.asm.label());
    s.asm.jump_if(Cond::Sle, R9, 0, copy);
    // The text is copied first to measure it; padding then overwrites the copy.
    s.copy_text();
    s.asm.alu(AluOp::Sub, R9, R0);
    s.asm.add(R9, 1);
    let spaces = s.spaces;
    s.append_run(spaces, R9);
    s.asm.mov(R9, 0);
    s.asm.bind(copy);
    s.copy_text();
    s.asm.add(R0, -1);
    s.asm.load(Size::DW, R3, R6, s.plan.scratch.text_pos as i16);
    s.asm.add(R3, R0);
    s.set_pos(R3);
    s.asm.jump_if(Cond::Eq, R9, 0, s.end);
    s.asm.bind(left);
    s.asm.neg(R9);
    s.asm.alu(AluOp::Sub, R9, R0);
    s.append_run(spaces, R9);
    s.finish()
}

/// `append_bytes(block, value, size, width)`: the lowest bytes of the value. The first zero byte
/// ends the text; so does a zero byte that fills up to the width, on the right if the width is
/// negative.
pub(in crate::lower) fn append_bytes(
    plan: &StateLayout,
    pool: &mut Pool,
) -> Result<Function, String> {
    let params = ["block", "value", "size", "width"];
    let mut s = sub(plan, pool, "append_bytes", &params);
    let (again, last, ends) = (s.asm.label(), s.asm.label(), s.asm.label());
    s.asm.alu(AluOp::And, R3, 15);
    s.asm.mov(R7, R3);
    s.asm.jump_if(Cond::Sgt, R4, R3, ends);
    // The number of fill bytes on the right; positive if there are any.
    s.asm.mov(R8, R4);
    s.asm.neg(R8);
    s.asm.alu(AluOp::Sub, R8, R3);
    s.pos(R3);
    s.address_of(R1, R3);
    s.asm.mov(R4, 8);
    s.asm.bind(again);
    s.asm.jump_if(Cond::Eq, R7, 0, last);
    s.asm.mov(R5, R2);
    s.asm.alu(AluOp::And, R5, 255);
    s.asm.jump_if(Cond::Eq, R5, 0, ends);
    s.asm.store(Size::B, R1, 0, R5);
    s.asm.add(R1, 1);
    s.asm.add(R3, 1);
    s.set_pos(R3);
    s.asm.alu(AluOp::Rsh, R2, 8);
    s.asm.add(R7, -1);
    s.asm.add(R4, -1);
    s.asm.jump_if(Cond::Ne, R4, 0, again);
    s.asm.bind(last);
    let end = s.end;
    s.asm.jump_if(Cond::Sle, R8, 0, end);
    s.asm.bind(ends);
    let full = s.plan.max_string as i32 + 1;
    s.asm
        .store(Size::DW, R6, s.plan.scratch.text_pos as i16, full);
    s.finish()
}

/// `append_number_BASE(precision, value, flags, width)`: a global subprogram, which finds the CPU's
/// block itself. Registers: r7 the sign (0 for none), r8 the flags, r9 the number of digits.
pub(in crate::lower) fn append_number(
    plan: &StateLayout,
    pool: &mut Pool,
    base: i32,
) -> Result<Function, String> {
    let params = ["precision", "value", "flags", "width"];
    let mut s = bare_sub(plan, pool, &format!("append_number_{base}"), &params);
    s.asm.mark_separate();
    // Stored in front of the digits, so that the verifier keeps no path for each value.
    let word = |n: u32| (plan.scratch.digits + 8 * n) as i16;
    let (width, precision, signed) = (word(0), word(1), word(2));
    let given = [(-8, R1), (-16, R4)];
    for (slot, reg) in given {
        s.asm.store(Size::DW, R10, slot, reg);
    }
    s.asm.mov(R9, R2);
    s.asm.mov(R8, R3);
    plan.cpu_block(&mut s.asm, R6, s.end);
    for ((slot, _), word) in given.into_iter().zip([precision, width]) {
        s.asm.load(Size::DW, R1, R10, slot);
        s.asm.store(Size::DW, R6, word, R1);
    }
    s.asm.mov(R2, R9);
    sign(&mut s);
    s.asm.store(Size::DW, R6, signed, R7);
    digits(&mut s, base);
    s.asm.load(Size::DW, R7, R6, signed);
    // Zeros that the precision asks for: precision - digits.
    let enough = s.asm.label();
    s.asm.load(Size::DW, R1, R6, precision);
    s.asm.alu(AluOp::Sub, R1, R9);
    s.asm.jump_if(Cond::Sge, R1, 0, enough);
    s.asm.mov(R1, 0);
    s.asm.bind(enough);
    s.asm.store(Size::DW, R6, precision, R1);
    fill_before(&mut s, width, precision, base);
    marks(&mut s, base);
    s.asm.load(Size::DW, R1, R6, precision);
    let zeros = s.zeros;
    s.append_run(zeros, R1);
    put_digits(&mut s);
    // The rest of the width is padding on the right, as a negative number.
    s.asm.load(Size::DW, R1, R6, width);
    s.asm.neg(R1);
    let spaces = s.spaces;
    s.append_run(spaces, R1);
    s.finish()
}

/// Takes the value r2 and the flags r8: r2 = |value|, r7 = sign character or 0.
fn sign(s: &mut AppendSub<'_>) {
    let done = s.asm.label();
    let positive = s.asm.label();
    s.asm.mov(R7, 0);
    s.asm.mov(R1, R8);
    s.asm.alu(AluOp::And, R1, flag::SIGNED);
    s.asm.jump_if(Cond::Eq, R1, 0, done);
    s.asm.jump_if(Cond::Sge, R2, 0, positive);
    s.asm.neg(R2);
    s.asm.mov(R7, i32::from(b'-'));
    s.asm.jump(done);
    s.asm.bind(positive);
    for (bit, sign) in [(flag::PLUS, b'+'), (flag::SPACE, b' ')] {
        let no = s.asm.label();
        s.asm.mov(R1, R8);
        s.asm.alu(AluOp::And, R1, bit);
        s.asm.jump_if(Cond::Eq, R1, 0, no);
        s.asm.mov(R7, i32::from(sign));
        s.asm.bind(no);
    }
    s.asm.bind(done);
}

/// Writes the digits of r2 to the end of the buffer's first half; r9 = their number.
fn digits(s: &mut AppendSub<'_>, base: i32) {
    // Also stored in front of the digits.
    let tmp = s.plan.scratch.digits as i16 + 24;
    let last = (s.plan.scratch.digits + HALF) as i16 - 1;
    let done = s.asm.label();
    // After the way through memory the verifier knows nothing about it, and merges the paths.
    s.asm.store(Size::DW, R6, tmp + 8, R2);
    s.asm.load(Size::DW, R2, R6, tmp + 8);
    if base == 16 {
        // Added for letters: 'a' - '0' - 10, or 32 less for 'A'.
        s.asm.mov(R1, R8);
        s.asm.alu(AluOp::And, R1, flag::UPPER);
        s.asm
            .alu(AluOp::Rsh, R1, flag::UPPER.trailing_zeros() as i32 - 5);
        s.asm.mov(R5, 39);
        s.asm.alu(AluOp::Sub, R5, R1);
    }
    let most = match base {
        8 => DIGITS,
        16 => 16,
        _ => 20,
    };
    for i in 0..most {
        s.asm.mov(R3, R2);
        if base == 10 {
            s.asm.alu(AluOp::Mod, R3, base);
            s.asm.alu(AluOp::Div, R2, base);
        } else {
            s.asm.alu(AluOp::And, R3, base - 1);
            s.asm.alu(AluOp::Rsh, R2, base.ilog2() as i32);
        }
        if base == 16 {
            // r4 = 1 if the digit is a letter. A sign mask would make the verifier follow both
            // cases.
            s.asm.mov(R4, 9);
            s.asm.alu(AluOp::Sub, R4, R3);
            s.asm.alu(AluOp::Rsh, R4, 63);
            s.asm.alu(AluOp::Mul, R4, R5);
            s.asm.add(R3, R4);
        }
        s.asm.add(R3, i32::from(b'0'));
        s.asm.store(Size::B, R6, last - i as i16, R3);
        s.asm.store(Size::DW, R6, tmp, i + 1);
        s.asm.jump_if(Cond::Eq, R2, 0, done);
    }
    s.asm.bind(done);
    s.asm.load(Size::DW, R9, R6, tmp);
    // Always true; bounds the number for the verifier.
    s.asm.alu(AluOp::And, R9, 31);
}

/// Appends the spaces in front of a number that is narrower than its width, or adds zeros to the
/// precision. Leaves the padding on the right in `width`, negative.
fn fill_before(s: &mut AppendSub<'_>, width: i16, precision: i16, base: i32) {
    let (left, none, spaces, end) = (s.asm.label(), s.asm.label(), s.asm.label(), s.asm.label());
    // r1 = columns in use: zeros, digits, sign, prefix.
    s.asm.add(R1, R9);
    let (unsigned, unmarked) = (s.asm.label(), s.asm.label());
    s.asm.jump_if(Cond::Eq, R7, 0, unsigned);
    s.asm.add(R1, 1);
    s.asm.bind(unsigned);
    s.asm.mov(R2, R8);
    s.asm.alu(AluOp::And, R2, flag::MARK);
    s.asm.jump_if(Cond::Eq, R2, 0, unmarked);
    s.asm.add(R1, if base == 8 { 1 } else { 2 });
    s.asm.bind(unmarked);
    s.asm.load(Size::DW, R2, R6, width);
    s.asm.jump_if(Cond::Slt, R2, 0, left);
    s.asm.store(Size::DW, R6, width, 0);
    s.asm.alu(AluOp::Sub, R2, R1);
    s.asm.jump_if(Cond::Sle, R2, 0, end);
    s.asm.mov(R3, R8);
    s.asm.alu(AluOp::And, R3, flag::ZERO);
    s.asm.jump_if(Cond::Eq, R3, 0, spaces);
    s.asm.load(Size::DW, R3, R6, precision);
    s.asm.add(R3, R2);
    s.asm.store(Size::DW, R6, precision, R3);
    s.asm.jump(end);
    s.asm.bind(spaces);
    let run = s.spaces;
    s.asm.mov(R1, R2);
    s.append_run(run, R1);
    s.asm.jump(end);
    s.asm.bind(left);
    s.asm.add(R2, R1);
    s.asm.jump_if(Cond::Slt, R2, 0, none);
    s.asm.mov(R2, 0);
    s.asm.bind(none);
    s.asm.store(Size::DW, R6, width, R2);
    s.asm.bind(end);
}

/// Appends the sign r7 and the prefix, `0x` or `0`.
fn marks(s: &mut AppendSub<'_>, base: i32) {
    let (unsigned, unmarked, lower) = (s.asm.label(), s.asm.label(), s.asm.label());
    s.asm.jump_if(Cond::Eq, R7, 0, unsigned);
    s.pos(R2);
    s.address_of(R1, R2);
    s.asm.store(Size::B, R1, 0, R7);
    s.asm.add(R2, 1);
    s.set_pos(R2);
    s.asm.bind(unsigned);
    s.asm.mov(R1, R8);
    s.asm.alu(AluOp::And, R1, flag::MARK);
    s.asm.jump_if(Cond::Eq, R1, 0, unmarked);
    s.pos(R2);
    s.address_of(R1, R2);
    s.asm.store(Size::B, R1, 0, i32::from(b'0'));
    if base == 8 {
        s.asm.add(R2, 1);
        s.set_pos(R2);
        s.asm.bind(unmarked);
        return;
    }
    s.asm.mov(R3, i32::from(b'x'));
    s.asm.mov(R4, R8);
    s.asm.alu(AluOp::And, R4, flag::UPPER);
    s.asm.jump_if(Cond::Eq, R4, 0, lower);
    s.asm.mov(R3, i32::from(b'X'));
    s.asm.bind(lower);
    s.asm.store(Size::B, R1, 1, R3);
    s.asm.add(R2, 2);
    s.set_pos(R2);
    s.asm.bind(unmarked);
}

/// Copies r9 digits as three words; the buffer is zero behind the digits.
fn put_digits(s: &mut AppendSub<'_>) {
    s.pos(R2);
    s.address_of(R1, R2);
    s.asm.mov(R3, R6);
    // Not the end minus the digits: the verifier refuses subtraction from this pointer.
    s.asm.add(R3, (s.plan.scratch.digits + HALF - 31) as i32);
    s.asm.mov(R4, 31);
    s.asm.alu(AluOp::Sub, R4, R9);
    s.asm.add(R3, R4);
    for i in 0..3 {
        s.asm.load(Size::DW, R4, R3, 8 * i);
        s.asm.store(Size::DW, R1, 8 * i, R4);
    }
    s.asm.add(R2, R9);
    s.set_pos(R2);
}
