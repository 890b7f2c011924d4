//! String functions that work byte by byte: search, numbers in text, escapes. The loop is
//! `bpf_loop`, whose callback the verifier follows once for any length.

use spile_ir::interp::strtol;
use spile_ir::{Reg as IrReg, Val};
use spile_lir::Func;
use spile_lir::library::{self, search};

use super::callback::{ends, finish};
use super::escapes::{ESCAPE, escapes, table};
use super::quote::{load_character, put_character};
use crate::isa::asm::{Asm, Function, Section};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Reg, Size};
use crate::lower::pool::Pool;
use crate::lower::{HandlerCodegen, Res, StrOperand, TMP};
use crate::plan::StateLayout;

/// Stack slots of a subprogram that its callback reads: addresses. Numbers are in scratch words of
/// the CPU's block, where the verifier does not track them.
mod slot {
    /// The string.
    pub(super) const TEXT: i16 = 0;
    /// The other string.
    pub(super) const OTHER: i16 = 8;
    /// The scratch words.
    pub(super) const WORDS: i16 = 16;
    /// Size of the slots in bytes.
    pub(super) const SIZE: i16 = 24;
}

/// Offsets of the scratch words of `escape`.
mod escape {
    /// Length of the text so far.
    pub(super) const POS: i16 = 0;
    /// Index of the first byte of the text that is not processed yet.
    pub(super) const NEXT: i16 = 8;
}

impl HandlerCodegen<'_> {
    pub(in crate::lower) fn needs_loop(&self, what: &str) -> Res {
        if self.options.features.bpf_loop {
            Ok(())
        } else {
            Err(format!(
                "{what} in a kernel handler needs bpf_loop (Linux 5.17)"
            ))
        }
    }

    /// Defines a function that is made for this call, and returns its name.
    pub(in crate::lower) fn made(&mut self, func: Func) -> Res<String> {
        let name = func.name.clone();
        self.pool.lir(&name, || Ok(library::module_with(func)))?;
        Ok(name)
    }

    /// A string in the CPU's block with readable memory behind it: constants are copied to the copy
    /// buffer.
    pub(in crate::lower) fn copy_into_block(&mut self, text: StrOperand) -> Res<StrOperand> {
        match text {
            StrOperand::Slot { .. } => Ok(text),
            StrOperand::Const { .. } => {
                let width = text.width().min(self.plan.max_string);
                let off = self.plan.scratch.text + 2 * self.plan.max_string;
                self.copy_text(off, width, &text)?;
                Ok(StrOperand::Slot { off, width })
            }
        }
    }

    /// `dst` = 1 if the first string contains the second.
    pub(in crate::lower) fn isinstr(&mut self, dst: IrReg, text: Val, part: Val) -> Res {
        if let Some(at) = self.find(text, part)? {
            return self.def_int(dst, i32::from(at > 0));
        }
        let absent = self.asm.label();
        self.asm.jump_if(Cond::Eq, R0, 0, absent);
        self.asm.mov(R0, 1);
        self.asm.bind(absent);
        self.def_int(dst, R0)
    }

    /// `dst` = position of the second string in the first, or -1.
    pub(in crate::lower) fn strpos(&mut self, dst: IrReg, text: Val, part: Val) -> Res {
        if let Some(at) = self.find(text, part)? {
            return self.def_int(dst, at - 1);
        }
        self.asm.add(R0, -1);
        self.def_int(dst, R0)
    }

    /// `r0` = position of the second string in the first, plus one, or 0 if it does not occur.
    /// Returns that number instead if it is known at compile time.
    fn find(&mut self, text: Val, part: Val) -> Res<Option<i32>> {
        let (text, part) = (self.text(text)?, self.text(part)?);
        if let (StrOperand::Const { bytes: a }, StrOperand::Const { bytes: b }) = (&text, &part) {
            let at = match b.is_empty() {
                true => Some(0),
                false => a.windows(b.len()).position(|w| w == &**b),
            };
            return Ok(Some(at.map_or(0, |at| at as i32 + 1)));
        }
        self.needs_loop("searching in a string")?;
        let text = self.copy_into_block(text)?;
        let name = self.made(search::find(text.width(), part.width()))?;
        self.strlen(&part);
        self.asm.store(Size::DW, R10, TMP[0], R0);
        self.strlen(&text);
        self.asm.mov(R2, R0);
        self.text_addr(R1, &text);
        self.text_addr(R3, &part);
        self.asm.load(Size::DW, R4, R10, TMP[0]);
        self.asm.call_sub(name);
        Ok(None)
    }

    /// `dst` = the number at the start of a string.
    pub(in crate::lower) fn strtol(&mut self, dst: IrReg, text: Val, base: Val) -> Res {
        let text = self.text(text)?;
        if let (StrOperand::Const { bytes }, Val::Imm(base)) = (&text, base) {
            self.asm.imm(R0, strtol(bytes, base));
            return self.def_int(dst, R0);
        }
        self.needs_loop("strtol()")?;
        self.pool.library("strtol")?;
        self.use_in(base, R3)?;
        self.text_addr(R1, &text);
        self.asm.mov(R2, text.width() as i32);
        self.asm.call_sub("strtol");
        self.def_int(dst, R0)
    }

    /// A copy of a string with its bytes escaped as in C source, in the copy buffer.
    pub(in crate::lower) fn escaped(&mut self, text: &StrOperand) -> Res<StrOperand> {
        let width = self.plan.max_string;
        if let StrOperand::Const { bytes } = text {
            let bytes = spile_ir::fmt::escape_text(bytes);
            let keep = bytes.len().min(width as usize);
            return Ok(StrOperand::Const {
                bytes: bytes[..keep].into(),
            });
        }
        self.needs_loop("%#s")?;
        let name = use_escape(self.pool, self.plan, text.width())?;
        let off = self.plan.scratch.text + 3 * self.plan.max_string;
        self.text_addr(R1, text);
        self.block_addr(R2, off);
        self.block_addr(R3, self.plan.scratch.tmp);
        self.asm.call_sub(name);
        // Wider than the limit, so that a truncation is detected and counted.
        let width = width + 16;
        Ok(StrOperand::Slot { off, width })
    }

    /// Word at `tmp` = the escape of byte r1. Clobbers r1 and r2.
    pub(in crate::lower) fn escaped_char(&mut self, tmp: u32) {
        let table = table(self.pool, spile_ir::fmt::escape_char);
        self.asm.alu(AluOp::And, R1, 255);
        self.asm.alu(AluOp::Mul, R1, ESCAPE);
        self.asm.ld_data(R2, Section::Rodata, table);
        self.asm.add(R2, R1);
        self.asm.load(Size::W, R1, R2, 0);
        self.store(tmp, R1);
    }
}

/// Defines `escape(text, to, words)` for texts of that width, and returns its name.
fn use_escape(pool: &mut Pool, plan: &StateLayout, wide: u32) -> Result<String, String> {
    let name = use_escape_steps(pool, plan, wide)?;
    pool.sub(&name, |_| escape_sub(&name, wide))?;
    Ok(name)
}

/// Defines the callbacks of [`escape_code`], and returns the name for it.
pub(in crate::lower) fn use_escape_steps(
    pool: &mut Pool,
    plan: &StateLayout,
    wide: u32,
) -> Result<String, String> {
    let table = escapes(pool);
    let name = format!("escape_{wide}");
    pool.sub(&format!("{name}_at"), |_| {
        escape_at(&name, wide, plan.max_string, table)
    })?;
    pool.sub(&plain_name(wide), |_| plain_at(wide))?;
    Ok(name)
}

/// Fills the slots: the string is r1, the other string r2, the scratch words `words`.
fn fill_slots(asm: &mut Asm, words: Reg) {
    for (slot, reg) in [(slot::TEXT, R1), (slot::OTHER, R2), (slot::WORDS, words)] {
        asm.store(Size::DW, R10, slot - slot::SIZE, reg);
    }
}

/// Calls the callback `NAME_at` up to r1 times; `r6` = the scratch words afterwards.
fn loop_callback(asm: &mut Asm, name: &str) {
    asm.loop_call(format!("{name}_at"), -slot::SIZE);
    asm.load(Size::DW, R6, R10, slot::WORDS - slot::SIZE);
}

/// `escape(text, to, words)`. Most texts need no escape and are copied.
fn escape_sub(name: &str, wide: u32) -> Result<Function, String> {
    let mut asm = Asm::new(name, &["text", "to", "words"]);
    escape_code(&mut asm, name, wide);
    asm.mov(R0, 0);
    asm.exit();
    finish(asm)
}

/// Escapes the text at r1 to r2, with the scratch words at r3, by callbacks. Clobbers r0 to r8 and
/// the first words of the stack.
pub(in crate::lower) fn escape_code(asm: &mut Asm, name: &str, wide: u32) {
    let [special, end] = std::array::from_fn(|_| asm.label());
    asm.mov(R6, R1);
    asm.mov(R7, R2);
    asm.mov(R8, R3);
    fill_slots(asm, R8);
    asm.store(Size::DW, R8, escape::POS, 0);
    asm.mov(R1, wide.div_ceil(8) as i32);
    asm.loop_call(plain_name(wide), -slot::SIZE);
    asm.load(Size::DW, R1, R8, escape::POS);
    asm.jump_if(Cond::Ne, R1, 0, special);
    asm.mov(R1, R7);
    asm.mov(R2, wide as i32);
    asm.mov(R3, R6);
    asm.call(Helper::ProbeReadKernelStr);
    asm.jump(end);
    asm.bind(special);
    asm.store(Size::DW, R8, escape::POS, 0);
    asm.store(Size::DW, R8, escape::NEXT, 0);
    asm.mov(R1, wide as i32);
    loop_callback(asm, name);
    asm.bind(end);
}

/// Name of the callback [`plain_at`].
fn plain_name(wide: u32) -> String {
    format!("plain_{wide}")
}

/// The callback that searches for a byte that needs an escape, in front of the NUL, eight bytes at
/// a time. It marks bytes in their top bits: a set top bit, a value below the space, or one of
/// three others. POS becomes nonzero if there is one. The verifier would follow each iteration of
/// an inline loop.
fn plain_at(wide: u32) -> Result<Function, String> {
    const TOP: u64 = 0x8080_8080_8080_8080;
    const LOW: u64 = !TOP;
    let every = |byte: u8| u64::from_ne_bytes([byte; 8]);
    let mut asm = Asm::new(plain_name(wide), &["index", "slots"]);
    let [go_on, stop, none] = std::array::from_fn(|_| asm.label());
    asm.jump_if(Cond::Ge, R1, wide.div_ceil(8) as i32, stop);
    asm.alu(AluOp::Lsh, R1, 3);
    asm.load(Size::DW, R3, R2, slot::TEXT);
    asm.add(R3, R1);
    asm.load(Size::DW, R0, R3, 0);
    asm.load(Size::DW, R9, R2, slot::WORDS);
    asm.ld_imm64(R7, TOP);
    asm.ld_imm64(R8, LOW);
    // `to` = marks of the bytes of r3 that are not zero, with other bits below. Clobbers r3.
    let not_zero = |asm: &mut Asm, to: Reg| {
        asm.mov(to, R3);
        asm.alu(AluOp::And, to, R8);
        asm.add(to, R8);
        asm.alu(AluOp::Or, to, R3);
    };
    asm.mov(R3, R0);
    not_zero(&mut asm, R6);
    // r2: marks, including those of zero bytes.
    asm.mov(R2, R0);
    asm.alu(AluOp::Or, R2, R7);
    asm.ld_imm64(R4, every(b' '));
    asm.alu(AluOp::Sub, R2, R4);
    asm.alu(AluOp::Xor, R2, -1);
    asm.alu(AluOp::Or, R2, R0);
    for byte in [b'"', b'\\', 0x7f] {
        asm.ld_imm64(R4, every(byte));
        asm.mov(R3, R0);
        asm.alu(AluOp::Xor, R3, R4);
        not_zero(&mut asm, R5);
        asm.alu(AluOp::Xor, R5, -1);
        asm.alu(AluOp::Or, R2, R5);
    }
    // Keeps the marks in front of the first zero byte: all bits below its mark.
    asm.alu(AluOp::Xor, R6, -1);
    asm.alu(AluOp::And, R6, R7);
    asm.mov(R3, R6);
    asm.neg(R3);
    asm.alu(AluOp::And, R3, R6);
    asm.add(R3, -1);
    asm.alu(AluOp::And, R2, R7);
    asm.alu(AluOp::And, R2, R3);
    asm.jump_if(Cond::Eq, R2, 0, none);
    asm.store(Size::DW, R9, escape::POS, 1);
    asm.jump(stop);
    asm.bind(none);
    asm.jump_if(Cond::Ne, R6, 0, stop);
    ends(&mut asm, go_on, stop);
    finish(asm)
}

/// Appends the escape of one byte, or of the character that starts with it, and a NUL. Stops at the
/// end of the text, or of the buffer, which has some bytes more than `room`.
fn escape_at(name: &str, wide: u32, room: u32, table: u32) -> Result<Function, String> {
    let mut asm = Asm::new(format!("{name}_at"), &["index", "slots"]);
    let [go_on, stop, byte] = std::array::from_fn(|_| asm.label());
    asm.jump_if(Cond::Ge, R1, wide as i32, stop);
    asm.load(Size::DW, R6, R2, slot::WORDS);
    asm.load(Size::DW, R3, R6, escape::NEXT);
    asm.jump_if(Cond::Lt, R1, R3, go_on);
    asm.mov(R8, R1);
    asm.mov(R7, wide as i32);
    asm.alu(AluOp::Sub, R7, R8);
    asm.load(Size::DW, R3, R2, slot::TEXT);
    asm.add(R3, R1);
    asm.load(Size::B, R1, R3, 0);
    asm.jump_if(Cond::Eq, R1, 0, stop);
    asm.load(Size::DW, R5, R6, escape::POS);
    asm.jump_if(Cond::Gt, R5, room as i32, stop);
    asm.load(Size::DW, R4, R2, slot::OTHER);
    asm.add(R4, R5);
    load_character(&mut asm, byte);
    asm.add(R8, R0);
    asm.store(Size::DW, R6, escape::NEXT, R8);
    put_character(&mut asm);
    asm.load(Size::DW, R5, R6, escape::POS);
    asm.add(R5, R0);
    asm.store(Size::DW, R6, escape::POS, R5);
    asm.jump(go_on);
    asm.bind(byte);
    asm.alu(AluOp::Mul, R1, ESCAPE);
    asm.ld_data(R3, Section::Rodata, table);
    asm.add(R3, R1);
    asm.load(Size::W, R1, R3, 0);
    asm.store(Size::DW, R4, 0, R1);
    asm.load(Size::B, R1, R3, 4);
    asm.load(Size::DW, R5, R6, escape::POS);
    asm.add(R5, R1);
    asm.store(Size::DW, R6, escape::POS, R5);
    ends(&mut asm, go_on, stop);
    finish(asm)
}
