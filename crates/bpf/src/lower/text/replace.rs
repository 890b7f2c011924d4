//! Replacing in strings, and cutting them into tokens: byte by byte by `bpf_loop`, whose
//! callback the verifier follows once.

use spile_ir::{Reg as IrReg, Val, intrinsics::Intrinsic};

use super::compare::{NARROW, every, same, use_same, zero_bytes};
use super::search::{ends, finish};
use crate::isa::asm::{Asm, Function};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size};
use crate::lower::{Gen, Res, Text};

/// Slots of a subprogram's stack that its callback is given: addresses.
mod slot {
    /// The string.
    pub const TEXT: i16 = 0;
    /// What is looked for; the delimiters.
    pub const PART: i16 = 8;
    /// What comes instead.
    pub const NEW: i16 = 16;
    /// The text being built.
    pub const OUT: i16 = 24;
    /// The scratch words.
    pub const WORDS: i16 = 32;
    /// Bytes of them all.
    pub const SIZE: i16 = 40;
}

/// Scratch words of `replace`.
mod word {
    /// Bytes of the part.
    pub const LENGTH: i16 = 0;
    /// The first position behind the last part found.
    pub const NEXT: i16 = 8;
    /// Bytes in the text.
    pub const POS: i16 = 16;
}

/// Scratch words of `token`.
mod token {
    /// Where to begin.
    pub const FROM: i16 = 0;
    /// First byte of the token; -1 while there is none.
    pub const START: i16 = 8;
    /// The byte behind it.
    pub const END: i16 = 16;
    /// Where the next call begins; the position at hand until then.
    pub const NEXT: i16 = 24;
    /// The byte at hand, eight times.
    pub const BYTE: i16 = 32;
    /// Whether it is among the delimiters that are not compared in place.
    pub const AMONG: i16 = 40;
}

/// Slots of `token_at`'s stack that its callback is given: addresses.
mod among {
    /// The delimiters that are not compared in place.
    pub const DELIMS: i16 = 0;
    /// The scratch words.
    pub const WORDS: i16 = 8;
    /// Bytes of them all.
    pub const SIZE: i16 = 16;
}

/// Bytes of delimiters that are compared in place.
const IN_PLACE: u32 = NARROW * 8;

impl Gen<'_> {
    /// `dst` = the string with every part replaced.
    pub(in crate::lower) fn str_replace(&mut self, dst: IrReg, args: &[Val]) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        self.needs_loop("str_replace()")?;
        let scratch = self.plan.scratch;
        let max = self.plan.max_string;
        let (text, part, new) = (
            self.text(args[0])?,
            self.text(args[1])?,
            self.text(args[2])?,
        );
        let text = self.in_block(text)?;
        let widths = (text.width(), part.width(), new.width().min(max + 1));
        let name = format!("replace_{}_{}_{}", widths.0, widths.1, widths.2);
        use_same(self.pool, widths.1)?;
        self.pool
            .sub(&format!("{name}_at"), |_| replace_at(&name, widths, max))?;
        self.pool.sub(&name, |_| replace_sub(&name, widths.0))?;
        self.strlen(&part);
        self.store(scratch.tmp + word::LENGTH as u32, R0);
        self.begin_text(width);
        self.text_addr(R1, &text);
        self.text_addr(R2, &part);
        self.text_addr(R3, &new);
        self.addr(R4, scratch.text);
        self.addr(R5, scratch.tmp);
        self.asm.call_sub(name);
        self.end_text(off, width);
        Ok(())
    }

    /// The next token. Without a register for it the place in the text still moves on.
    pub(in crate::lower) fn tokenize(&mut self, dst: Option<IrReg>, text: Val, delims: Val) -> Res {
        self.needs_loop("tokenize()")?;
        let (scratch, max) = (self.plan.scratch, self.plan.max_string);
        let kept = scratch.tokens + 8;
        let (text, delims) = (self.text(text)?, self.text(delims)?);
        let same_text = self.asm.label();
        match &text {
            Text::Const { bytes } if bytes.is_empty() => {}
            Text::Const { .. } => self.new_tokens(&text)?,
            Text::Slot { off, .. } => {
                let (base, disp) = self.at(R1, *off, 1);
                self.asm.load(Size::B, R1, base, disp);
                self.asm.jump_if(Cond::Eq, R1, 0, same_text);
                self.new_tokens(&text)?;
            }
        }
        self.asm.bind(same_text);
        let wide = delims.width();
        let name = format!("token_{wide}");
        if wide > IN_PLACE {
            self.pool
                .sub(&format!("{name}_among"), |_| token_among(&name, wide))?;
        }
        self.pool
            .sub(&format!("{name}_at"), |_| token_at(&name, wide, max))?;
        self.pool.sub(&name, |_| token_sub(&name, max))?;
        self.load(R1, scratch.tokens);
        self.store(scratch.tmp + token::FROM as u32, R1);
        self.addr(R1, kept);
        self.text_addr(R2, &delims);
        self.addr(R3, scratch.tmp);
        self.asm.call_sub(name);
        self.load(R1, scratch.tmp + token::NEXT as u32);
        self.store(scratch.tokens, R1);
        let Some((off, width)) = dst.map(|d| self.slot(d)).transpose()?.flatten() else {
            return Ok(());
        };
        self.fill_zero(off, width);
        let (none, fits) = (self.asm.label(), self.asm.label());
        self.load(R3, scratch.tmp + token::START as u32);
        self.asm.jump_if(Cond::Ge, R3, max as i32, none);
        self.load(R2, scratch.tmp + token::END as u32);
        self.asm.alu(AluOp::Sub, R2, R3);
        self.asm.jump_if(Cond::Sle, R2, 0, none);
        self.asm.jump_if(Cond::Sle, R2, width as i32 - 1, fits);
        self.asm.mov(R2, width as i32 - 1);
        self.count(crate::layout::percpu::TRUNCATED);
        self.asm.bind(fits);
        self.addr(R1, kept);
        self.asm.add(R3, R1);
        self.addr(R1, off);
        self.asm.call(Helper::ProbeReadKernel);
        self.asm.bind(none);
        Ok(())
    }

    /// Keeps a text for the calls to come.
    fn new_tokens(&mut self, text: &Text) -> Res {
        let tokens = self.plan.scratch.tokens;
        self.copy_text(tokens + 8, self.plan.max_string, text)?;
        self.store(tokens, 0);
        Ok(())
    }

    /// No text is kept from one run of a handler to the next.
    pub(in crate::lower) fn clear_tokens(&mut self) {
        if self.facts.uses(Intrinsic::Tokenize) {
            self.store(self.plan.scratch.tokens, 0);
            self.store(self.plan.scratch.tokens + 8, 0);
        }
    }
}

/// `replace(text, part, new, out, words)`.
fn replace_sub(name: &str, wide: u32) -> Result<Function, String> {
    let mut asm = Asm::new(name, &["text", "part", "new", "out", "words"]);
    asm.store(Size::DW, R5, word::NEXT, 0);
    asm.store(Size::DW, R5, word::POS, 0);
    let slots = [
        (slot::TEXT, R1),
        (slot::PART, R2),
        (slot::NEW, R3),
        (slot::OUT, R4),
        (slot::WORDS, R5),
    ];
    for (slot, reg) in slots {
        asm.store(Size::DW, R10, slot - slot::SIZE, reg);
    }
    each(&mut asm, name, wide);
    asm.mov(R0, 0);
    asm.exit();
    finish(asm)
}

/// Calls `NAME_at` up to so many times.
fn each(asm: &mut Asm, name: &str, times: u32) {
    asm.mov(R1, times as i32);
    asm.each(format!("{name}_at"), -slot::SIZE);
}

/// Takes one byte of the string, or the part that begins there; stops at the end of the string,
/// or of the room. Behind the room is as much again.
fn replace_at(
    name: &str,
    (wide, part, new): (u32, u32, u32),
    room: u32,
) -> Result<Function, String> {
    let mut asm = Asm::new(format!("{name}_at"), &["index", "slots"]);
    let [go_on, stop, copy, found] = std::array::from_fn(|_| asm.label());
    asm.jump_if(Cond::Ge, R1, wide as i32, stop);
    asm.load(Size::DW, R6, R2, slot::WORDS);
    asm.load(Size::DW, R3, R6, word::NEXT);
    asm.jump_if(Cond::Lt, R1, R3, go_on);
    asm.load(Size::DW, R7, R2, slot::TEXT);
    asm.add(R7, R1);
    asm.load(Size::B, R3, R7, 0);
    asm.jump_if(Cond::Eq, R3, 0, stop);
    asm.store(Size::DW, R10, -8, R1);
    asm.store(Size::DW, R10, -16, R2);
    asm.load(Size::DW, R8, R2, slot::PART);
    asm.load(Size::DW, R9, R6, word::LENGTH);
    asm.jump_if(Cond::Sle, R9, 0, copy);
    same(&mut asm, part, found, copy);
    asm.bind(found);
    asm.load(Size::DW, R1, R10, -8);
    asm.load(Size::DW, R3, R6, word::LENGTH);
    asm.add(R1, R3);
    asm.store(Size::DW, R6, word::NEXT, R1);
    asm.load(Size::DW, R4, R6, word::POS);
    asm.jump_if(Cond::Ge, R4, room as i32, stop);
    asm.load(Size::DW, R5, R10, -16);
    asm.load(Size::DW, R1, R5, slot::OUT);
    asm.add(R1, R4);
    asm.mov(R2, new as i32);
    asm.load(Size::DW, R3, R5, slot::NEW);
    asm.call(Helper::ProbeReadKernelStr);
    asm.jump_if(Cond::Sle, R0, 0, go_on);
    asm.load(Size::DW, R4, R6, word::POS);
    asm.add(R4, R0);
    asm.add(R4, -1);
    asm.store(Size::DW, R6, word::POS, R4);
    asm.jump(go_on);
    asm.bind(copy);
    asm.load(Size::DW, R4, R6, word::POS);
    asm.jump_if(Cond::Ge, R4, room as i32, stop);
    asm.load(Size::DW, R5, R10, -16);
    asm.load(Size::DW, R1, R5, slot::OUT);
    asm.add(R1, R4);
    asm.load(Size::B, R3, R7, 0);
    asm.store(Size::B, R1, 0, R3);
    asm.add(R4, 1);
    asm.store(Size::DW, R6, word::POS, R4);
    ends(&mut asm, go_on, stop);
    finish(asm)
}

/// `token(text, delimiters, words)`.
fn token_sub(name: &str, max: u32) -> Result<Function, String> {
    let mut asm = Asm::new(name, &["text", "delimiters", "words"]);
    asm.store(Size::DW, R3, token::START, -1);
    asm.store(Size::DW, R3, token::END, 0);
    for (slot, reg) in [(slot::TEXT, R1), (slot::PART, R2), (slot::WORDS, R3)] {
        asm.store(Size::DW, R10, slot - slot::SIZE, reg);
    }
    each(&mut asm, name, max);
    asm.mov(R0, 0);
    asm.exit();
    finish(asm)
}

/// Looks at one byte: passes over delimiters, then over the token, and stops behind it. The
/// delimiters are compared eight at a time, the first in place.
fn token_at(name: &str, wide: u32, max: u32) -> Result<Function, String> {
    let mut asm = Asm::new(format!("{name}_at"), &["index", "slots"]);
    let [go_on, stop, again, delim, plain, end] = std::array::from_fn(|_| asm.label());
    asm.load(Size::DW, R6, R2, slot::WORDS);
    asm.load(Size::DW, R3, R6, token::FROM);
    asm.add(R1, R3);
    asm.jump_if(Cond::Ge, R1, max as i32, stop);
    asm.load(Size::DW, R7, R2, slot::TEXT);
    asm.add(R7, R1);
    asm.load(Size::B, R8, R7, 0);
    asm.store(Size::DW, R6, token::NEXT, R1);
    asm.jump_if(Cond::Eq, R8, 0, end);
    asm.load(Size::DW, R4, R2, slot::PART);
    asm.ld_imm64(R5, every(1));
    asm.ld_imm64(R7, every(0x80));
    asm.alu(AluOp::Mul, R8, R5);
    asm.mov(R9, 0);
    asm.bind(again);
    asm.mov(R2, R4);
    asm.add(R2, R9);
    asm.load(Size::DW, R2, R2, 0);
    // Where a byte is equal, the difference has a zero byte.
    asm.mov(R3, R2);
    asm.alu(AluOp::Xor, R3, R8);
    zero_bytes(&mut asm, (R0, R3), (R5, R7));
    asm.jump_if(Cond::Ne, R0, 0, delim);
    asm.alu(AluOp::Rsh, R2, 56);
    asm.jump_if(Cond::Eq, R2, 0, plain);
    asm.add(R9, 8);
    asm.jump_if(Cond::Lt, R9, wide.min(IN_PLACE) as i32, again);
    if wide > IN_PLACE {
        each_among(&mut asm, name, wide);
        asm.jump_if(Cond::Ne, R0, 0, delim);
    }
    asm.bind(plain);
    asm.load(Size::DW, R2, R6, token::START);
    asm.jump_if(Cond::Sge, R2, 0, go_on);
    asm.store(Size::DW, R6, token::START, R1);
    asm.jump(go_on);
    asm.bind(delim);
    asm.load(Size::DW, R2, R6, token::START);
    asm.jump_if(Cond::Slt, R2, 0, go_on);
    asm.mov(R2, R1);
    asm.add(R2, 1);
    asm.store(Size::DW, R6, token::NEXT, R2);
    asm.bind(end);
    asm.store(Size::DW, R6, token::END, R1);
    asm.jump(stop);
    ends(&mut asm, go_on, stop);
    finish(asm)
}

/// From the place of the delimiters in r4, the byte eight times in r8 and the scratch words in
/// r6: r0 = whether it is among those that are not compared in place, r1 = the position.
fn each_among(asm: &mut Asm, name: &str, wide: u32) {
    asm.store(Size::DW, R6, token::BYTE, R8);
    asm.store(Size::DW, R6, token::AMONG, 0);
    asm.add(R4, IN_PLACE as i32);
    asm.store(Size::DW, R10, among::DELIMS - among::SIZE, R4);
    asm.store(Size::DW, R10, among::WORDS - among::SIZE, R6);
    asm.mov(R1, ((wide - IN_PLACE) / 8) as i32);
    asm.each(format!("{name}_among"), -among::SIZE);
    asm.load(Size::DW, R1, R6, token::NEXT);
    asm.load(Size::DW, R0, R6, token::AMONG);
}

/// Whether the byte is among eight delimiters; stops if so, and at their end.
fn token_among(name: &str, wide: u32) -> Result<Function, String> {
    let mut asm = Asm::new(format!("{name}_among"), &["index", "slots"]);
    let [go_on, stop, found] = std::array::from_fn(|_| asm.label());
    asm.jump_if(Cond::Ge, R1, ((wide - IN_PLACE) / 8) as i32, stop);
    asm.load(Size::DW, R6, R2, among::WORDS);
    asm.load(Size::DW, R7, R2, among::DELIMS);
    asm.alu(AluOp::Lsh, R1, 3);
    asm.add(R7, R1);
    asm.load(Size::DW, R2, R7, 0);
    asm.load(Size::DW, R3, R6, token::BYTE);
    asm.alu(AluOp::Xor, R3, R2);
    asm.ld_imm64(R4, every(1));
    asm.ld_imm64(R5, every(0x80));
    zero_bytes(&mut asm, (R0, R3), (R4, R5));
    asm.jump_if(Cond::Ne, R0, 0, found);
    asm.alu(AluOp::Rsh, R2, 56);
    asm.jump_if(Cond::Eq, R2, 0, stop);
    asm.jump(go_on);
    asm.bind(found);
    asm.store(Size::DW, R6, token::AMONG, 1);
    asm.jump(stop);
    ends(&mut asm, go_on, stop);
    finish(asm)
}
