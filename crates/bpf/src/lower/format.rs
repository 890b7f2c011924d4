//! Text built from formats: `sprintf` in kernel handlers, concatenation, short messages.
//!
//! Text grows in the CPU's text buffer; the position is a scratch word. Two subprograms append
//! strings and numbers with C's widths, precisions and flags, which they get as constants, so
//! that the verifier follows only the branches that matter. Padding is copied from runs of
//! spaces and zeros. At the end the result's width is copied out, and counted if cut.

use spile_ir::fmt::{Conv, ConvKind, Count, Piece};
use spile_ir::{FormatId, Reg as IrReg, Val};

use super::memory::Memory;
use super::pool::Pool;
use super::{Gen, NR, Res, Text};
use crate::asm::{Asm, Function, Label, Section};
use crate::helpers::Helper;
use crate::insn::{AluOp, Cond, Reg, Reg::*, Size};
use crate::plan::Plan;

/// Flags given to `append_number`.
pub(super) mod flag {
    pub const SIGNED: i32 = 1;
    pub const PLUS: i32 = 2;
    pub const SPACE: i32 = 4;
    pub const ZERO: i32 = 8;
    /// `0x`, or `0` in octal.
    pub const MARK: i32 = 32;
    pub const UPPER: i32 = 64;
}

/// Most digits of a 64-bit number.
const DIGITS: i32 = 22;
/// Middle of the digits' buffer, where they end.
const HALF: u32 = 64;

/// Widths and precisions are cut to this; all strings are shorter.
const MAX_COUNT: i32 = 65_536;

/// A width or precision: a number, or an argument.
#[derive(Clone, Copy)]
pub(super) enum Amount {
    Known(i32),
    At(Val),
}

/// Width (at least 0 when known), precision (below 0 for none), the side of the text.
#[derive(Clone, Copy)]
pub(super) struct Field {
    width: Amount,
    precision: Amount,
    left: bool,
}

impl Gen<'_> {
    pub(super) fn concat(&mut self, dst: IrReg, a: Val, b: Val) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        let (a, b) = (self.text(a)?, self.text(b)?);
        self.begin_text(width);
        for text in [&a, &b] {
            self.append_text(text, 0, None)?;
        }
        self.end_text(off, width);
        Ok(())
    }

    pub(super) fn sprint(&mut self, dst: IrReg, fmt: FormatId, args: &[Val]) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        let format = self
            .program
            .formats
            .get(fmt.index())
            .ok_or("no such format")?;
        let mut args = args.iter().copied();
        self.begin_text(width);
        for piece in &format.pieces {
            match piece {
                Piece::Lit(bytes) => {
                    let text = Text::Const {
                        bytes: bytes.clone(),
                    };
                    self.append_text(&text, 0, None)?;
                }
                Piece::Conv(conv) => self.conversion(conv, &mut args)?,
            }
        }
        self.end_text(off, width);
        Ok(())
    }

    fn conversion(&mut self, c: &Conv, args: &mut impl Iterator<Item = Val>) -> Res {
        let mut next = || args.next().ok_or("a format with too few arguments");
        let width = match c.width {
            Count::None => Amount::Known(0),
            Count::Fixed(n) => Amount::Known(n.min(MAX_COUNT as u32) as i32),
            Count::Arg => Amount::At(next()?),
        };
        let precision = match c.precision {
            Count::None => Amount::Known(-1),
            Count::Fixed(n) => Amount::Known(n.min(MAX_COUNT as u32) as i32),
            Count::Arg => Amount::At(next()?),
        };
        let value = next()?;
        let field = Field {
            width,
            precision,
            left: c.left,
        };
        match c.kind {
            ConvKind::Str => {
                let text = self.text(value)?;
                let text = if c.alt { self.escaped(&text)? } else { text };
                self.append_field(&text, field)
            }
            ConvKind::Char => self.append_char(c, value, field),
            ConvKind::Binary => self.append_bytes(value, field),
            ConvKind::Mem | ConvKind::MemHex => {
                let memory = Memory::new(c, value, precision);
                self.append_memory(&memory, c.kind == ConvKind::MemHex, field)
            }
            _ => self.append_number(c, value, field),
        }
    }

    /// `reg` = a width; negative where the padding goes to the right.
    pub(super) fn width_into(&mut self, field: Field, reg: Reg) -> Res {
        match field.width {
            Amount::Known(n) => self.asm.mov(reg, if field.left { -n } else { n }),
            Amount::At(v) => {
                self.long_into(v, reg)?;
                self.forget(reg);
                for (cond, bound) in [(Cond::Sle, MAX_COUNT), (Cond::Sge, -MAX_COUNT)] {
                    let inside = self.asm.label();
                    self.asm.jump_if(cond, reg, bound, inside);
                    self.asm.mov(reg, bound);
                    self.asm.bind(inside);
                }
                if field.left {
                    let negative = self.asm.label();
                    self.asm.jump_if(Cond::Sle, reg, 0, negative);
                    self.asm.neg(reg);
                    self.asm.bind(negative);
                }
                self.forget(reg);
            }
        }
        Ok(())
    }

    /// Sends a number through a scratch word. To the verifier the paths to here become one,
    /// and what it learns of the number it does not learn of the register it came from, which
    /// would make paths that differ for all of the handler.
    pub(super) fn forget(&mut self, reg: Reg) {
        let word = self.plan.scratch.tmp as i16 + 56;
        self.asm.store(Size::DW, R7, word, reg);
        self.asm.load(Size::DW, reg, R7, word);
    }

    /// Appends a string with width and precision.
    fn append_field(&mut self, text: &Text, field: Field) -> Res {
        self.use_append_text()?;
        let size = text.width() as i32;
        match field.precision {
            Amount::Known(p @ 0..) => self.asm.mov(R3, size.min(p.saturating_add(1))),
            Amount::Known(_) => self.asm.mov(R3, size),
            Amount::At(v) => {
                // Below 0 is none; the size has room for the NUL.
                let (none, fits) = (self.asm.label(), self.asm.label());
                self.long_into(v, R3)?;
                self.forget(R3);
                self.asm.jump_if(Cond::Slt, R3, 0, none);
                self.asm.jump_if(Cond::Sge, R3, size, none);
                self.asm.add(R3, 1);
                self.asm.jump(fits);
                self.asm.bind(none);
                self.asm.mov(R3, size);
                self.asm.bind(fits);
                self.forget(R3);
                // True always; tells the verifier.
                let bounded = self.asm.label();
                self.asm.jump_if(Cond::Le, R3, size, bounded);
                self.asm.mov(R3, size);
                self.asm.bind(bounded);
            }
        }
        self.width_into(field, R4)?;
        self.text_addr(R2, text);
        self.asm.mov(R1, R7);
        self.asm.call_sub("append_text");
        Ok(())
    }

    /// Starts a text for a slot of that width.
    pub(super) fn begin_text(&mut self, width: u32) {
        self.fill_zero(self.plan.scratch.text, width);
        self.store(self.plan.scratch.text_pos, 0);
    }

    /// Puts the text into its slot.
    pub(super) fn end_text(&mut self, off: u32, width: u32) {
        let text = Text::Slot {
            off: self.plan.scratch.text,
            width,
        };
        // The widths are equal, so this cannot fail.
        let _ = self.copy_text(off, width, &text);
        self.cut(off, width);
    }

    pub(super) fn use_append_text(&mut self) -> Res {
        let plan = self.plan;
        self.pool.sub("append_text", |pool| append_text(plan, pool))
    }

    /// Appends a string; a negative width pads on the right.
    pub(super) fn append_text(&mut self, text: &Text, width: i32, precision: Option<u32>) -> Res {
        self.use_append_text()?;
        self.text_addr(R2, text);
        self.asm.mov(R1, R7);
        let size = precision.map_or(text.width(), |p| text.width().min(p.saturating_add(1)));
        self.asm.mov(R3, size as i32);
        self.asm.mov(R4, width);
        self.asm.call_sub("append_text");
        Ok(())
    }

    /// `%c`. A NUL ends the text, as it ends a string in C.
    fn append_char(&mut self, c: &Conv, value: Val, field: Field) -> Res {
        let tmp = self.plan.scratch.tmp;
        let byte = Text::Slot { off: tmp, width: 8 };
        let field = Field {
            precision: Amount::Known(-1),
            ..field
        };
        self.long_into(value, R1)?;
        self.forget(R1);
        if c.alt {
            self.escaped_char(tmp);
            return self.append_field(&byte, field);
        }
        let (some, end) = (self.asm.label(), self.asm.label());
        self.asm.alu(AluOp::And, R1, 255);
        self.store(tmp, R1);
        self.asm.jump_if(Cond::Ne, R1, 0, some);
        // One column is the NUL's. On the left it comes first.
        if let (Amount::Known(2..) | Amount::At(_), false) = (field.width, field.left) {
            let narrow = self.asm.label();
            self.use_append_text()?;
            self.width_into(field, R4)?;
            self.asm.add(R4, -1);
            self.asm.jump_if(Cond::Sle, R4, 0, narrow);
            self.text_addr(R2, &byte);
            self.asm.mov(R3, 8);
            self.asm.mov(R1, R7);
            self.asm.call_sub("append_text");
            self.asm.bind(narrow);
        }
        self.store(self.plan.scratch.text_pos, self.plan.max_string as i32 + 1);
        self.asm.jump(end);
        self.asm.bind(some);
        self.append_field(&byte, field)?;
        self.asm.bind(end);
        Ok(())
    }

    /// `%b`: raw bytes, of which a NUL ends the text, as do those that fill up to the width.
    fn append_bytes(&mut self, value: Val, field: Field) -> Res {
        let plan = self.plan;
        self.pool
            .sub("append_bytes", |pool| append_bytes(plan, pool))?;
        let known = self.asm.label();
        let mut otherwise = 8;
        for amount in [field.precision, field.width] {
            match amount {
                Amount::Known(n @ (1 | 2 | 4 | 8)) => {
                    otherwise = n;
                    break;
                }
                Amount::Known(_) => {}
                Amount::At(v) => {
                    let positive = self.asm.label();
                    self.long_into(v, R3)?;
                    self.forget(R3);
                    self.asm.jump_if(Cond::Sge, R3, 0, positive);
                    self.asm.neg(R3);
                    self.asm.bind(positive);
                    for n in [1, 2, 4, 8] {
                        self.asm.jump_if(Cond::Eq, R3, n, known);
                    }
                }
            }
        }
        self.asm.mov(R3, otherwise);
        self.asm.bind(known);
        self.forget(R3);
        self.width_into(field, R4)?;
        self.long_into(value, R2)?;
        self.forget(R2);
        self.asm.mov(R1, R7);
        self.asm.call_sub("append_bytes");
        Ok(())
    }

    fn append_number(&mut self, c: &Conv, value: Val, field: Field) -> Res {
        let base = match c.kind {
            ConvKind::Octal => 8,
            ConvKind::Hex | ConvKind::HexUpper | ConvKind::Pointer => 16,
            _ => 10,
        };
        let signed = c.kind == ConvKind::Dec;
        let flags = [
            (signed, flag::SIGNED),
            (signed && c.plus, flag::PLUS),
            (signed && c.space && !c.plus, flag::SPACE),
            (c.zero && !c.left, flag::ZERO),
            (
                base != 10 && (c.alt || c.kind == ConvKind::Pointer),
                flag::MARK,
            ),
            (c.kind == ConvKind::HexUpper, flag::UPPER),
        ];
        let flags: i32 = flags.iter().filter(|f| f.0).map(|f| f.1).sum();
        let plan = self.plan;
        let name = format!("append_number_{base}");
        self.pool
            .sub(&name, |pool| append_number(plan, pool, base))?;
        self.long_into(value, R2)?;
        self.forget(R2);
        self.asm.mov(R3, flags);
        match field.precision {
            Amount::Known(n) => self.asm.mov(R5, n),
            Amount::At(v) => {
                let (none, inside, end) = (self.asm.label(), self.asm.label(), self.asm.label());
                self.long_into(v, R5)?;
                self.forget(R5);
                self.asm.jump_if(Cond::Slt, R5, 0, none);
                self.asm.jump_if(Cond::Sle, R5, MAX_COUNT, inside);
                self.asm.mov(R5, MAX_COUNT);
                self.asm.bind(inside);
                self.asm.jump(end);
                self.asm.bind(none);
                self.asm.mov(R5, -1);
                self.asm.bind(end);
                self.forget(R5);
            }
        }
        self.width_into(field, R4)?;
        self.asm.mov(R1, R5);
        self.asm.call_sub(name);
        Ok(())
    }

    /// A message that ends with the address in `err_aux`, in hex.
    pub(super) fn build_message(&mut self, off: u32, width: u32, text: &[u8]) -> Res {
        let text = Text::Const { bytes: text.into() };
        self.begin_text(width);
        self.append_text(&text, 0, None)?;
        let plan = self.plan;
        self.pool
            .sub("append_number_16", |pool| append_number(plan, pool, 16))?;
        self.load(R2, plan.scratch.err_aux);
        self.number_in_r2("append_number_16", 0);
        self.end_text(off, width);
        Ok(())
    }

    /// A message that begins with the number in `err_aux`.
    pub(super) fn build_count(&mut self, off: u32, width: u32, text: &[u8]) -> Res {
        let text = Text::Const { bytes: text.into() };
        let plan = self.plan;
        self.begin_text(width);
        self.pool
            .sub("append_number_10", |pool| append_number(plan, pool, 10))?;
        self.load(R2, plan.scratch.err_aux);
        self.number_in_r2("append_number_10", flag::SIGNED);
        self.append_text(&text, 0, None)?;
        self.end_text(off, width);
        Ok(())
    }

    fn number_in_r2(&mut self, name: &str, flags: i32) {
        self.asm.mov(R1, -1);
        self.asm.mov(R3, flags);
        self.asm.mov(R4, 0);
        self.asm.call_sub(name);
    }

    /// `syscall_N` for a number without a name.
    pub(super) fn unnamed(&mut self, off: u32, width: u32) -> Res {
        let plan = self.plan;
        let text = Text::Const {
            bytes: (*b"syscall_").into(),
        };
        self.begin_text(width);
        self.append_text(&text, 0, None)?;
        self.pool
            .sub("append_number_10", |pool| append_number(plan, pool, 10))?;
        self.asm.load(Size::DW, R2, R10, NR);
        self.number_in_r2("append_number_10", flag::SIGNED);
        self.end_text(off, width);
        Ok(())
    }
}

/// The appending subprograms' view: r6 is the CPU's block.
struct Sub<'a> {
    asm: Asm,
    plan: &'a Plan,
    end: Label,
    spaces: u32,
    zeros: u32,
}

impl Sub<'_> {
    /// `reg` = the position, given up at where the text is full.
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

    /// `to` = address of position `pos` (another register).
    fn at(&mut self, to: Reg, pos: Reg) {
        self.asm.mov(to, R6);
        self.asm.add(to, self.plan.scratch.text as i32);
        self.asm.add(to, pos);
    }

    /// Appends `count` copies of a byte of a run; the count may be 0 or less. Loses r0-r5.
    fn fill(&mut self, run: u32, count: Reg) {
        let (none, fits) = (self.asm.label(), self.asm.label());
        self.asm.mov(R2, count);
        self.asm.jump_if(Cond::Sle, R2, 0, none);
        let most = self.plan.max_string as i32;
        self.asm.jump_if(Cond::Le, R2, most, fits);
        self.asm.mov(R2, most);
        self.asm.bind(fits);
        self.pos(R3);
        self.at(R1, R3);
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

fn sub<'a>(plan: &'a Plan, pool: &mut Pool, name: &str, params: &[&'static str]) -> Sub<'a> {
    let mut s = bare_sub(plan, pool, name, params);
    s.asm.mov(R6, R1);
    s
}

fn bare_sub<'a>(plan: &'a Plan, pool: &mut Pool, name: &str, params: &[&'static str]) -> Sub<'a> {
    let mut asm = Asm::new(name, params);
    let end = asm.label();
    Sub {
        asm,
        plan,
        end,
        spaces: pool.run(b' '),
        zeros: pool.run(b'0'),
    }
}

/// `append_text(block, text, size, width)`.
pub(super) fn append_text(plan: &Plan, pool: &mut Pool) -> Result<Function, String> {
    let mut s = sub(
        plan,
        pool,
        "append_text",
        &["block", "text", "size", "width"],
    );
    s.asm.mov(R7, R2);
    s.asm.mov(R8, R3);
    s.asm.mov(R9, R4);
    let (copy, left) = (s.asm.label(), s.asm.label());
    s.asm.jump_if(Cond::Sle, R9, 0, copy);
    // Padding goes first: the length comes from a copy that the padding overwrites.
    s.pos(R3);
    s.at(R1, R3);
    s.asm.mov(R2, R8);
    s.asm.mov(R3, R7);
    s.asm.call(Helper::ProbeReadKernelStr);
    s.asm.jump_if(Cond::Sle, R0, 0, s.end);
    s.asm.alu(AluOp::Sub, R9, R0);
    s.asm.add(R9, 1);
    let spaces = s.spaces;
    s.fill(spaces, R9);
    s.asm.mov(R9, 0);
    s.asm.bind(copy);
    s.pos(R3);
    s.at(R1, R3);
    s.asm.mov(R2, R8);
    s.asm.mov(R3, R7);
    s.asm.call(Helper::ProbeReadKernelStr);
    s.asm.jump_if(Cond::Sle, R0, 0, s.end);
    s.asm.add(R0, -1);
    s.asm.load(Size::DW, R3, R6, s.plan.scratch.text_pos as i16);
    s.asm.add(R3, R0);
    s.set_pos(R3);
    s.asm.jump_if(Cond::Eq, R9, 0, s.end);
    s.asm.bind(left);
    s.asm.neg(R9);
    s.asm.alu(AluOp::Sub, R9, R0);
    s.fill(spaces, R9);
    s.finish()
}

/// `append_bytes(block, value, size, width)`: the lowest bytes of the value, up to a zero one,
/// which ends the text. So does one that fills up to the width, on the right where that is
/// negative.
fn append_bytes(plan: &Plan, pool: &mut Pool) -> Result<Function, String> {
    let params = ["block", "value", "size", "width"];
    let mut s = sub(plan, pool, "append_bytes", &params);
    let (again, last, ends) = (s.asm.label(), s.asm.label(), s.asm.label());
    s.asm.alu(AluOp::And, R3, 15);
    s.asm.mov(R7, R3);
    s.asm.jump_if(Cond::Sgt, R4, R3, ends);
    // What there is on the right, above 0 where there is something.
    s.asm.mov(R8, R4);
    s.asm.neg(R8);
    s.asm.alu(AluOp::Sub, R8, R3);
    s.pos(R3);
    s.at(R1, R3);
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

/// `append_number_BASE(precision, value, flags, width)`: verified once, and so it finds the
/// CPU's block itself. Registers: r7 the sign (0 for none), r8 flags, r9 how many digits.
pub(super) fn append_number(plan: &Plan, pool: &mut Pool, base: i32) -> Result<Function, String> {
    let params = ["precision", "value", "flags", "width"];
    let mut s = bare_sub(plan, pool, &format!("append_number_{base}"), &params);
    s.asm.separate();
    let (width, precision) = (-8, -16);
    s.asm.store(Size::DW, R10, precision, R1);
    s.asm.mov(R9, R2);
    s.asm.mov(R8, R3);
    s.asm.store(Size::DW, R10, width, R4);
    s.asm.call(Helper::GetSmpProcessorId);
    s.asm.jump_if(Cond::Ge, R0, plan.cpus as i32, s.end);
    s.asm.alu(AluOp::Mul, R0, plan.stride as i32);
    s.asm.ld_data(R6, Section::Bss, plan.shared_size);
    s.asm.add(R6, R0);
    s.asm.mov(R2, R9);
    sign(&mut s);
    digits(&mut s, base);
    // Zeros that the precision asks for: precision - digits.
    let enough = s.asm.label();
    s.asm.load(Size::DW, R1, R10, precision);
    s.asm.alu(AluOp::Sub, R1, R9);
    s.asm.jump_if(Cond::Sge, R1, 0, enough);
    s.asm.mov(R1, 0);
    s.asm.bind(enough);
    s.asm.store(Size::DW, R10, precision, R1);
    fill_before(&mut s, width, precision, base);
    marks(&mut s, base);
    s.asm.load(Size::DW, R1, R10, precision);
    let zeros = s.zeros;
    s.fill(zeros, R1);
    put_digits(&mut s);
    // What is left of the width stands behind, as a negative number.
    s.asm.load(Size::DW, R1, R10, width);
    s.asm.neg(R1);
    let spaces = s.spaces;
    s.fill(spaces, R1);
    s.finish()
}

/// From the value r2 and flags r8: r2 = |value|, r7 = sign character or 0.
fn sign(s: &mut Sub<'_>) {
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

/// Writes the digits of r2 to the end of the buffer's first half; r9 = how many. The value
/// goes to the second scratch word.
fn digits(s: &mut Sub<'_>, base: i32) {
    let tmp = s.plan.scratch.tmp as i16;
    let last = (s.plan.scratch.digits + HALF) as i16 - 1;
    let done = s.asm.label();
    s.asm.store(Size::DW, R6, tmp + 8, R2);
    // Letters after 9: 'a' - '0' - 10, or of 'A'.
    s.asm.mov(R5, 39);
    if base == 16 {
        let lower = s.asm.label();
        s.asm.mov(R1, R8);
        s.asm.alu(AluOp::And, R1, flag::UPPER);
        s.asm.jump_if(Cond::Eq, R1, 0, lower);
        s.asm.mov(R5, 7);
        s.asm.bind(lower);
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
            // r4 = all ones where the digit is a letter.
            s.asm.mov(R4, 9);
            s.asm.alu(AluOp::Sub, R4, R3);
            s.asm.alu(AluOp::Arsh, R4, 63);
            s.asm.alu(AluOp::And, R4, R5);
            s.asm.add(R3, R4);
        }
        s.asm.add(R3, i32::from(b'0'));
        s.asm.store(Size::B, R6, last - i as i16, R3);
        s.asm.store(Size::DW, R6, tmp, i + 1);
        s.asm.jump_if(Cond::Eq, R2, 0, done);
    }
    s.asm.bind(done);
    s.asm.load(Size::DW, R9, R6, tmp);
    // True always; tells the verifier.
    s.asm.alu(AluOp::And, R9, 31);
}

/// Spaces before a number that is narrower than its width, or zeros added to the precision.
/// Leaves in `width` what has to stand behind, negative.
fn fill_before(s: &mut Sub<'_>, width: i16, precision: i16, base: i32) {
    let (left, none, spaces, end) = (s.asm.label(), s.asm.label(), s.asm.label(), s.asm.label());
    // r1 = columns in use: zeros, digits, sign, mark.
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
    s.asm.load(Size::DW, R2, R10, width);
    s.asm.jump_if(Cond::Slt, R2, 0, left);
    s.asm.store(Size::DW, R10, width, 0);
    s.asm.alu(AluOp::Sub, R2, R1);
    s.asm.jump_if(Cond::Sle, R2, 0, end);
    s.asm.mov(R3, R8);
    s.asm.alu(AluOp::And, R3, flag::ZERO);
    s.asm.jump_if(Cond::Eq, R3, 0, spaces);
    s.asm.load(Size::DW, R3, R10, precision);
    s.asm.add(R3, R2);
    s.asm.store(Size::DW, R10, precision, R3);
    s.asm.jump(end);
    s.asm.bind(spaces);
    let run = s.spaces;
    s.asm.mov(R1, R2);
    s.fill(run, R1);
    s.asm.jump(end);
    s.asm.bind(left);
    s.asm.add(R2, R1);
    s.asm.jump_if(Cond::Slt, R2, 0, none);
    s.asm.mov(R2, 0);
    s.asm.bind(none);
    s.asm.store(Size::DW, R10, width, R2);
    s.asm.bind(end);
}

/// The sign r7 and the mark, `0x` or `0`.
fn marks(s: &mut Sub<'_>, base: i32) {
    let (unsigned, unmarked, lower) = (s.asm.label(), s.asm.label(), s.asm.label());
    s.asm.jump_if(Cond::Eq, R7, 0, unsigned);
    s.pos(R2);
    s.at(R1, R2);
    s.asm.store(Size::B, R1, 0, R7);
    s.asm.add(R2, 1);
    s.set_pos(R2);
    s.asm.bind(unsigned);
    s.asm.mov(R1, R8);
    s.asm.alu(AluOp::And, R1, flag::MARK);
    s.asm.jump_if(Cond::Eq, R1, 0, unmarked);
    s.pos(R2);
    s.at(R1, R2);
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

/// Copies r9 digits, as three words: what stands behind them in the buffer is zero.
fn put_digits(s: &mut Sub<'_>) {
    s.pos(R2);
    s.at(R1, R2);
    s.asm.mov(R3, R6);
    // Not the end less the digits: the verifier does not like pointers less something.
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
