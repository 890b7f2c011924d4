//! Escaped text of limited length, with or without quotes: `text_strn` and similar functions.

use spile_ir::{Reg as IrReg, Space, Val};

use super::callback::{ends, finish};
use super::escapes::{ESCAPE, escapes};
use super::hex::eight_digits;
use crate::isa::asm::{Asm, Function, Label, Section};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Reg, Size};
use crate::layout::ErrorKind;
use crate::lower::{HandlerCodegen, Pool, Res};

/// Stack slots of the subprogram that its callback reads: addresses.
mod slot {
    /// The source bytes.
    pub(super) const TEXT: i16 = 0;
    /// The text being built.
    pub(super) const OUT: i16 = 8;
    /// The scratch words.
    pub(super) const WORDS: i16 = 16;
    /// Size of the slots in bytes.
    pub(super) const SIZE: i16 = 24;
}

/// Offsets of scratch words.
mod word {
    /// Number of source bytes.
    pub(super) const COUNT: i16 = 0;
    /// Limit on the text's length.
    pub(super) const LIMIT: i16 = 8;
    /// Length of the text so far.
    pub(super) const POS: i16 = 16;
    /// Whether something did not fit.
    pub(super) const CUT: i16 = 24;
    /// Whether the text is quoted.
    pub(super) const QUOTED: i16 = 32;
    /// Index of the first source byte that is not processed yet.
    pub(super) const NEXT: i16 = 40;
    /// Length of the text that leaves room for the truncation mark.
    pub(super) const KEPT: i16 = 48;
}

/// The truncation mark `"...` as a word.
const CUT_END: i32 = i32::from_ne_bytes(*b"\"...");
const QUOTE: i32 = b'"' as i32;

impl HandlerCodegen<'_> {
    /// `dst` = the text escaped, in at most `room` bytes.
    pub(in crate::lower) fn text_strn(
        &mut self,
        dst: IrReg,
        text: Val,
        room: Val,
        quoted: Val,
    ) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        let text = self.text(text)?;
        let text = self.copy_into_block(text)?;
        self.strlen(&text);
        self.store(self.plan.scratch.tmp + word::COUNT as u32, R0);
        let wide = text.width();
        self.quote_room(room, quoted)?;
        let name = self.quote_subs(wide)?;
        self.begin_text(width);
        self.text_addr(R1, &text);
        self.block_addr(R2, self.plan.scratch.text);
        self.block_addr(R3, self.plan.scratch.tmp);
        self.asm.call_sub(name);
        self.end_text(off, width);
        Ok(())
    }

    /// Fills a slot with escaped bytes of memory, in quotes. Reading can fail.
    pub(in crate::lower) fn memory_quoted(
        &mut self,
        dst: Option<IrReg>,
        space: Space,
        args: &[Val],
    ) -> Res {
        let (tmp, max) = (self.plan.scratch.tmp, self.plan.max_string);
        let bytes = self.plan.scratch.memory;
        let [some, fits, empty] = std::array::from_fn(|_| self.asm.label());
        self.use_in(args[1], R2)?;
        self.forget_bounds(R2);
        self.asm.jump_if(Cond::Sge, R2, 0, some);
        self.asm.mov(R2, 0);
        self.asm.bind(some);
        self.asm.jump_if(Cond::Sle, R2, max as i32, fits);
        self.asm.mov(R2, max as i32);
        self.asm.bind(fits);
        self.store(tmp + word::COUNT as u32, R2);
        self.asm.jump_if(Cond::Eq, R2, 0, empty);
        self.use_in(args[0], R3)?;
        self.set_aux(R3);
        self.block_addr(R1, bytes);
        let (helper, kind) = match space {
            Space::User => (Helper::ProbeReadUser, ErrorKind::UserStrFault),
            Space::Kernel => (Helper::ProbeReadKernel, ErrorKind::KernelStrFault),
        };
        self.asm.call(helper);
        let fail = self.fail_label(kind);
        self.asm.jump_if(Cond::Ne, R0, 0, fail);
        self.asm.bind(empty);
        let Some((off, width)) = dst.map(|d| self.slot(d)).transpose()?.flatten() else {
            return Ok(());
        };
        self.quote_room(args[2], Val::Imm(1))?;
        let name = self.quote_subs(max)?;
        self.begin_text(width);
        self.block_addr(R1, bytes);
        self.block_addr(R2, self.plan.scratch.text);
        self.block_addr(R3, tmp);
        self.asm.call_sub(name);
        self.end_text(off, width);
        Ok(())
    }

    /// Stores the limit and the quoting flag in the scratch words.
    fn quote_room(&mut self, room: Val, quoted: Val) -> Res {
        let tmp = self.plan.scratch.tmp;
        let max = self.plan.max_string as i32;
        if let (Val::Imm(room), Val::Imm(quoted)) = (room, quoted) {
            let (room, quotes) = (room.clamp(0, i64::from(max)) as i32, i32::from(quoted != 0));
            let limit = if quoted != 0 { room.max(5) - 1 } else { room };
            for (at, word) in [
                (word::QUOTED, quotes),
                (word::POS, quotes),
                (word::LIMIT, limit),
                (word::CUT, 0),
                (word::NEXT, 0),
                (word::KEPT, 1),
            ] {
                self.store(tmp + at as u32, word);
            }
            return Ok(());
        }
        let [some, fits, plain, end, large] = std::array::from_fn(|_| self.asm.label());
        self.use_in(quoted, R2)?;
        self.use_in(room, R1)?;
        // Facts that the verifier learns about the copies must not reach the originals.
        for (reg, at) in [(R1, word::LIMIT), (R2, word::QUOTED)] {
            let (base, disp) = self.block_operand(R5, tmp + at as u32, 8);
            self.asm.store(Size::DW, base, disp, reg);
            self.asm.load(Size::DW, reg, base, disp);
        }
        self.asm.jump_if(Cond::Sge, R1, 0, some);
        self.asm.mov(R1, 0);
        self.asm.bind(some);
        self.asm.jump_if(Cond::Sle, R1, max, fits);
        self.asm.mov(R1, max);
        self.asm.bind(fits);
        self.asm.jump_if(Cond::Eq, R2, 0, plain);
        self.asm.jump_if(Cond::Sge, R1, 5, large);
        self.asm.mov(R1, 5);
        self.asm.bind(large);
        // The opening quote takes one byte.
        self.asm.add(R1, -1);
        self.store(tmp + word::POS as u32, 1);
        self.asm.jump(end);
        self.asm.bind(plain);
        self.store(tmp + word::POS as u32, 0);
        self.asm.bind(end);
        self.store(tmp + word::LIMIT as u32, R1);
        for (at, word) in [(word::CUT, 0), (word::NEXT, 0), (word::KEPT, 1)] {
            self.store(tmp + at as u32, word);
        }
        Ok(())
    }

    /// Defines the subprograms for bytes in a slot of that width, and returns the name.
    fn quote_subs(&mut self, wide: u32) -> Res<String> {
        self.needs_loop("text_strn()")?;
        let max = self.plan.max_string;
        define_sub(self.pool, wide, max)
    }
}

/// Defines `quote_MAX(text, out, words)` for bytes in a slot of the largest width.
pub(in crate::lower) fn subs(pool: &mut Pool, max: u32) -> Result<String, String> {
    define_sub(pool, max, max)
}

fn define_sub(pool: &mut Pool, wide: u32, max: u32) -> Result<String, String> {
    let table = escapes(pool);
    let name = format!("quote_{wide}");
    pool.sub(&format!("{name}_at"), |_| quote_at(&name, wide, max, table))?;
    pool.sub(&name, |_| quote_sub(&name, wide, max))?;
    Ok(name)
}

/// `quote(text, out, words)`: returns the text's length.
fn quote_sub(name: &str, wide: u32, max: u32) -> Result<Function, String> {
    let mut asm = Asm::new(name, &["text", "out", "words"]);
    let [plain, whole, done] = std::array::from_fn(|_| asm.label());
    for (slot, reg) in [(slot::TEXT, R1), (slot::OUT, R2), (slot::WORDS, R3)] {
        asm.store(Size::DW, R10, slot - slot::SIZE, reg);
    }
    asm.mov(R6, R3);
    asm.mov(R7, R2);
    asm.load(Size::DW, R1, R6, word::QUOTED);
    asm.jump_if(Cond::Eq, R1, 0, plain);
    asm.store(Size::B, R7, 0, QUOTE);
    asm.bind(plain);
    asm.mov(R1, wide as i32);
    asm.loop_call(format!("{name}_at"), -slot::SIZE);
    asm.load(Size::DW, R1, R6, word::QUOTED);
    asm.jump_if(Cond::Eq, R1, 0, done);
    asm.load(Size::DW, R1, R6, word::CUT);
    asm.load(Size::DW, R2, R6, word::POS);
    asm.jump_if(Cond::Eq, R1, 0, whole);
    asm.load(Size::DW, R2, R6, word::KEPT);
    asm.jump_if(Cond::Gt, R2, max as i32, done);
    asm.add(R7, R2);
    asm.store(Size::W, R7, 0, CUT_END);
    // Clears the text behind: fewer than 3 bytes and an escape.
    asm.store(Size::DW, R7, 4, 0);
    asm.jump(done);
    asm.bind(whole);
    asm.jump_if(Cond::Gt, R2, max as i32, done);
    asm.add(R7, R2);
    asm.store(Size::B, R7, 0, QUOTE);
    asm.bind(done);
    asm.mov(R0, 0);
    asm.exit();
    finish(asm)
}

/// Appends the escape of one byte, or of the character that starts with it, if it fits. A table row
/// is stored as four bytes, with zeros behind the escape.
fn quote_at(name: &str, wide: u32, max: u32, table: u32) -> Result<Function, String> {
    let mut asm = Asm::new(format!("{name}_at"), &["index", "slots"]);
    let [go_on, stop, cut, byte] = std::array::from_fn(|_| asm.label());
    asm.jump_if(Cond::Ge, R1, wide as i32, stop);
    asm.load(Size::DW, R6, R2, slot::WORDS);
    asm.load(Size::DW, R3, R6, word::NEXT);
    asm.jump_if(Cond::Lt, R1, R3, go_on);
    asm.load(Size::DW, R7, R6, word::COUNT);
    asm.jump_if(Cond::Ge, R1, R7, stop);
    asm.mov(R8, R1);
    asm.alu(AluOp::Sub, R7, R8);
    asm.load(Size::DW, R3, R2, slot::TEXT);
    asm.add(R3, R1);
    asm.load(Size::B, R1, R3, 0);
    asm.load(Size::DW, R5, R6, word::POS);
    asm.jump_if(Cond::Gt, R5, max as i32, cut);
    asm.load(Size::DW, R4, R2, slot::OUT);
    asm.add(R4, R5);
    load_character(&mut asm, byte);
    asm.add(R8, R0);
    asm.store(Size::DW, R6, word::NEXT, R8);
    character_length(&mut asm);
    check_fits(&mut asm, R0, cut);
    put_character(&mut asm);
    asm.jump(go_on);
    asm.bind(byte);
    asm.alu(AluOp::Mul, R1, ESCAPE);
    asm.ld_data(R3, Section::Rodata, table);
    asm.add(R3, R1);
    asm.load(Size::B, R0, R3, 4);
    check_fits(&mut asm, R0, cut);
    asm.load(Size::W, R1, R3, 0);
    asm.store(Size::W, R4, 0, R1);
    asm.jump(go_on);
    asm.bind(cut);
    asm.store(Size::DW, R6, word::CUT, 1);
    asm.jump(stop);
    ends(&mut asm, go_on, stop);
    finish(asm)
}

/// Adds r`more` bytes to the text's length in the words at r6, or goes to `cut`. Clobbers r1 and
/// r5.
fn check_fits(asm: &mut Asm, more: Reg, cut: Label) {
    let end = asm.label();
    asm.load(Size::DW, R5, R6, word::POS);
    asm.add(R5, more);
    asm.load(Size::DW, R1, R6, word::LIMIT);
    asm.jump_if(Cond::Gt, R5, R1, cut);
    asm.store(Size::DW, R6, word::POS, R5);
    asm.add(R1, -3);
    asm.jump_if(Cond::Sgt, R5, R1, end);
    asm.store(Size::DW, R6, word::KEPT, R5);
    asm.bind(end);
}

/// `r9` = the multi-byte UTF-8 character at r3, `r0` = its length; goes to `byte` if there is none.
/// `r1` is its first byte, preserved in that case, and r7 the number of readable bytes. Clobbers
/// r5.
pub(in crate::lower) fn load_character(asm: &mut Asm, byte: Label) {
    let [have, done] = std::array::from_fn(|_| asm.label());
    asm.jump_if(Cond::Lt, R1, 0xc2, byte);
    asm.jump_if(Cond::Gt, R1, 0xf4, byte);
    for (n, mask, next) in [(2, 0x1f, 0xe0), (3, 0xf, 0xf0), (4, 7, 0)] {
        asm.mov(R0, n);
        asm.mov(R9, R1);
        asm.alu(AluOp::And, R9, mask);
        if next > 0 {
            asm.jump_if(Cond::Lt, R1, next, have);
        }
    }
    asm.bind(have);
    asm.jump_if(Cond::Gt, R0, R7, byte);
    for i in 1..4 {
        if i > 1 {
            asm.jump_if(Cond::Le, R0, i, done);
        }
        asm.load(Size::B, R5, R3, i as i16);
        // A continuation byte is 0x80 plus six bits.
        asm.alu(AluOp::Xor, R5, 0x80);
        asm.jump_if(Cond::Gt, R5, 0x3f, byte);
        asm.alu(AluOp::Lsh, R9, 6);
        asm.alu(AluOp::Or, R9, R5);
    }
    asm.bind(done);
    // Refuses overlong forms, surrogates and values out of range.
    for (n, least) in [(3, 0x800), (4, 0x1_0000)] {
        let other = asm.label();
        asm.jump_if(Cond::Ne, R0, n, other);
        asm.jump_if(Cond::Lt, R9, least, byte);
        asm.bind(other);
    }
    asm.mov(R5, R9);
    asm.alu(AluOp::Rsh, R5, 11);
    asm.jump_if(Cond::Eq, R5, 0xd800 >> 11, byte);
    asm.jump_if(Cond::Gt, R9, 0x10_ffff, byte);
}

/// `r0` = length of the escape of character r9. Clobbers r5.
fn character_length(asm: &mut Asm) {
    let short = asm.label();
    asm.mov(R0, 6);
    asm.jump_if(Cond::Le, R9, 0xffff, short);
    asm.mov(R0, 10);
    asm.bind(short);
}

/// Writes the escape of character r9 to r4, and a NUL; `r0` = its length. Clobbers r2 to r5.
pub(in crate::lower) fn put_character(asm: &mut Asm) {
    let [long, end] = std::array::from_fn(|_| asm.label());
    asm.mov(R5, R4);
    asm.mov(R2, R9);
    eight_digits(asm, b'A');
    asm.jump_if(Cond::Gt, R9, 0xffff, long);
    asm.store(Size::H, R5, 0, i32::from(u16::from_ne_bytes(*b"\\u")));
    asm.alu(AluOp::Rsh, R2, 32);
    asm.store(Size::W, R5, 2, R2);
    asm.store(Size::B, R5, 6, 0);
    asm.mov(R0, 6);
    asm.jump(end);
    asm.bind(long);
    asm.store(Size::H, R5, 0, i32::from(u16::from_ne_bytes(*b"\\U")));
    asm.store(Size::DW, R5, 2, R2);
    asm.store(Size::B, R5, 10, 0);
    asm.mov(R0, 10);
    asm.bind(end);
}
