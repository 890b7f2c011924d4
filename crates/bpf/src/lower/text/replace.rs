//! String replacement and tokenising, byte by byte. The loop is `bpf_loop`, whose callback the
//! verifier follows once.

use spile_ir::{Reg as IrReg, Val, intrinsics::Intrinsic};

use super::callback::{ends, finish};
use super::compare::{NARROW, compare_equal, splat, use_same, zero_bytes};
use crate::isa::asm::{Asm, Function};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size};
use crate::lower::{HandlerCodegen, Res, StrOperand};

/// Stack slots of a subprogram that its callback reads: addresses.
mod slot {
    /// The string.
    pub(super) const TEXT: i16 = 0;
    /// The substring to replace, or the delimiters.
    pub(super) const PART: i16 = 8;
    /// The replacement.
    pub(super) const NEW: i16 = 16;
    /// The text being built.
    pub(super) const OUT: i16 = 24;
    /// The scratch words.
    pub(super) const WORDS: i16 = 32;
    /// Size of the slots in bytes.
    pub(super) const SIZE: i16 = 40;
}

/// Offsets of the scratch words of `replace`.
mod word {
    /// Length of the substring.
    pub(super) const LENGTH: i16 = 0;
    /// First position behind the last occurrence.
    pub(super) const NEXT: i16 = 8;
    /// Length of the text so far.
    pub(super) const POS: i16 = 16;
}

/// Offsets of the scratch words of `token`.
mod token {
    /// Start of the search.
    pub(super) const FROM: i16 = 0;
    /// Position of the token's first byte; -1 before it is found.
    pub(super) const START: i16 = 8;
    /// Position behind the token.
    pub(super) const END: i16 = 16;
    /// Start of the next call; the current position until then.
    pub(super) const NEXT: i16 = 24;
    /// The current byte, repeated eight times.
    pub(super) const BYTE: i16 = 32;
    /// Whether the byte is a delimiter that is not compared inline.
    pub(super) const AMONG: i16 = 40;
}

/// Stack slots of `token_at` that its callback reads: addresses.
mod among {
    /// The delimiters that are not compared inline.
    pub(super) const DELIMS: i16 = 0;
    /// The scratch words.
    pub(super) const WORDS: i16 = 8;
    /// Size of the slots in bytes.
    pub(super) const SIZE: i16 = 16;
}

/// Bytes of delimiters that are compared inline.
const IN_PLACE: u32 = NARROW * 8;

/// Bytes of the slots of a replacement's strings.
struct Widths {
    text: u32,
    /// The string to search for.
    part: u32,
    /// Its replacement.
    new: u32,
}

impl HandlerCodegen<'_> {
    /// `dst` = the string with every occurrence replaced.
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
        let text = self.copy_into_block(text)?;
        let widths = Widths {
            text: text.width(),
            part: part.width(),
            new: new.width().min(max + 1),
        };
        let name = format!("replace_{}_{}_{}", widths.text, widths.part, widths.new);
        use_same(self.pool, widths.part)?;
        self.pool
            .sub(&format!("{name}_at"), |_| replace_at(&name, &widths, max))?;
        self.pool.sub(&name, |_| replace_sub(&name, widths.text))?;
        self.strlen(&part);
        self.store(scratch.tmp + word::LENGTH as u32, R0);
        self.begin_text(width);
        self.text_addr(R1, &text);
        self.text_addr(R2, &part);
        self.text_addr(R3, &new);
        self.block_addr(R4, scratch.text);
        self.block_addr(R5, scratch.tmp);
        self.asm.call_sub(name);
        self.end_text(off, width);
        Ok(())
    }

    /// Fetches the next token. Without `dst` the position in the text still advances.
    pub(in crate::lower) fn tokenize(&mut self, dst: Option<IrReg>, text: Val, delims: Val) -> Res {
        self.needs_loop("tokenize()")?;
        let (scratch, max) = (self.plan.scratch, self.plan.max_string);
        let kept = scratch.tokens + 8;
        let (text, delims) = (self.text(text)?, self.text(delims)?);
        let same_text = self.asm.label();
        match &text {
            StrOperand::Const { bytes } if bytes.is_empty() => {}
            StrOperand::Const { .. } => self.new_tokens(&text)?,
            StrOperand::Slot { off, .. } => {
                let (base, disp) = self.block_operand(R1, *off, 1);
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
        self.block_addr(R1, kept);
        self.text_addr(R2, &delims);
        self.block_addr(R3, scratch.tmp);
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
        self.block_addr(R1, kept);
        self.asm.add(R3, R1);
        self.block_addr(R1, off);
        self.asm.call(Helper::ProbeReadKernel);
        self.asm.bind(none);
        Ok(())
    }

    /// Saves a text for later calls.
    fn new_tokens(&mut self, text: &StrOperand) -> Res {
        let tokens = self.plan.scratch.tokens;
        self.copy_text(tokens + 8, self.plan.max_string, text)?;
        self.store(tokens, 0);
        Ok(())
    }

    /// Discards the text: it does not outlive a run of the handler.
    pub(in crate::lower) fn clear_tokens(&mut self) {
        if self.facts.uses(Intrinsic::Tokenize) {
            self.store(self.plan.scratch.tokens, 0);
            self.store(self.plan.scratch.tokens + 8, 0);
        }
    }
}

/// `replace(text, part, new, out, words)`: returns the text's length.
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
    loop_callback(&mut asm, name, wide);
    asm.mov(R0, 0);
    asm.exit();
    finish(asm)
}

/// Calls the callback `NAME_at` up to `times` times.
fn loop_callback(asm: &mut Asm, name: &str, times: u32) {
    asm.mov(R1, times as i32);
    asm.loop_call(format!("{name}_at"), -slot::SIZE);
}

/// Takes one byte of the string, or the occurrence that begins there; stops at the end of the
/// string or of the buffer, which is twice as long as the limit.
fn replace_at(name: &str, widths: &Widths, room: u32) -> Result<Function, String> {
    let mut asm = Asm::new(format!("{name}_at"), &["index", "slots"]);
    let [go_on, stop, copy, found] = std::array::from_fn(|_| asm.label());
    asm.jump_if(Cond::Ge, R1, widths.text as i32, stop);
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
    compare_equal(&mut asm, widths.part, found, copy);
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
    asm.mov(R2, widths.new as i32);
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

/// `token(text, delimiters, words)`: finds the token's bounds.
fn token_sub(name: &str, max: u32) -> Result<Function, String> {
    let mut asm = Asm::new(name, &["text", "delimiters", "words"]);
    asm.store(Size::DW, R3, token::START, -1);
    asm.store(Size::DW, R3, token::END, 0);
    for (slot, reg) in [(slot::TEXT, R1), (slot::PART, R2), (slot::WORDS, R3)] {
        asm.store(Size::DW, R10, slot - slot::SIZE, reg);
    }
    loop_callback(&mut asm, name, max);
    asm.mov(R0, 0);
    asm.exit();
    finish(asm)
}

/// Processes one byte: skips delimiters, then the token, and stops behind it. Compares eight
/// delimiters at a time, the first ones inline.
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
    asm.ld_imm64(R5, splat(1));
    asm.ld_imm64(R7, splat(0x80));
    asm.alu(AluOp::Mul, R8, R5);
    asm.mov(R9, 0);
    asm.bind(again);
    asm.mov(R2, R4);
    asm.add(R2, R9);
    asm.load(Size::DW, R2, R2, 0);
    // An equal byte leaves a zero byte in the difference.
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

/// Tests the delimiters that are not compared inline: r0 = whether the byte is among them, r1 = the
/// position. r4 is the address of the delimiters' slot, r8 the byte repeated eight times, r6 the
/// scratch words.
fn each_among(asm: &mut Asm, name: &str, wide: u32) {
    asm.store(Size::DW, R6, token::BYTE, R8);
    asm.store(Size::DW, R6, token::AMONG, 0);
    asm.add(R4, IN_PLACE as i32);
    asm.store(Size::DW, R10, among::DELIMS - among::SIZE, R4);
    asm.store(Size::DW, R10, among::WORDS - among::SIZE, R6);
    asm.mov(R1, ((wide - IN_PLACE) / 8) as i32);
    asm.loop_call(format!("{name}_among"), -among::SIZE);
    asm.load(Size::DW, R1, R6, token::NEXT);
    asm.load(Size::DW, R0, R6, token::AMONG);
}

/// Compares the byte with eight delimiters; stops at a match, or behind the last delimiter.
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
    asm.ld_imm64(R4, splat(1));
    asm.ld_imm64(R5, splat(0x80));
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
