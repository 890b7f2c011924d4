//! Comparisons of wide strings, and of substrings. The first words are compared inline, the rest by
//! `bpf_loop`, whose callback the verifier follows once. Inline code needs a jump for each word,
//! and the verifier allows 8,192 jumps on a path.

use crate::isa::asm::{Asm, Function, Label};
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Reg, Size};
use crate::lower::pool::Pool;
use crate::lower::{HandlerCodegen, Res, StrOperand};

/// Number of words that one call of the callback compares.
const CHUNK: u32 = 4;
/// Up to this total number of words, a comparison is entirely inline.
pub(in crate::lower) const NARROW: u32 = 8;
/// Name of the subprogram.
const NAME: &str = "compare";

/// Stack slots of the subprogram that its callback reads.
mod slot {
    pub(super) const TEXT: i16 = 0;
    pub(super) const OTHER: i16 = 8;
    /// The scratch words.
    pub(super) const WORDS: i16 = 16;
    /// Number of chunks: a constant, which bounds the offsets for the verifier.
    pub(super) const CHUNKS: i16 = 24;
    pub(super) const SIZE: i16 = 32;
}

/// Offsets of scratch words: the first words that differ, and whether there are any.
mod word {
    pub(super) const TEXT: u32 = 0;
    pub(super) const OTHER: u32 = 8;
    pub(super) const DIFFER: u32 = 16;
}

/// Offset of the first scratch word that substring search leaves for comparisons.
const PART_WORDS: i16 = 24;

/// A word with `byte` in each of its bytes.
pub(in crate::lower) fn splat(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Splits `words` into words to compare inline and chunks for the callback.
fn split(words: u32) -> (u32, u32) {
    if words <= NARROW {
        return (words, 0);
    }
    let first = CHUNK + words % CHUNK;
    (first, (words - first) / CHUNK)
}

/// Defines the subprograms.
fn subprograms(pool: &mut Pool) -> Res {
    pool.sub("compare_at", |_| compare_at())?;
    pool.sub(NAME, |_| compare())
}

/// Defines the subprograms of [`same`] for substrings in slots of that width.
pub(in crate::lower) fn use_same(pool: &mut Pool, part_wide: u32) -> Res {
    match split(part_wide / 8) {
        (_, 0) => Ok(()),
        _ => subprograms(pool),
    }
}

/// Compares the r9 bytes at r8, a string in a slot of `part_wide` bytes, with those at r7. Memory
/// is readable behind both. Compares whole words; shifts out the last word's bytes behind the
/// substring. r6 is the address of the scratch words. Falls through to `yes`, or jumps to a label.
/// Clobbers r0 to r5 and r9.
pub(in crate::lower) fn compare_equal(asm: &mut Asm, part_wide: u32, yes: Label, no: Label) {
    let (first, chunks) = split(part_wide / 8);
    let (again, last) = (asm.label(), asm.label());
    asm.mov(R5, 0);
    asm.bind(again);
    asm.mov(R1, R7);
    asm.add(R1, R5);
    asm.load(Size::DW, R2, R1, 0);
    asm.mov(R1, R8);
    asm.add(R1, R5);
    asm.load(Size::DW, R3, R1, 0);
    asm.alu(AluOp::Xor, R2, R3);
    asm.jump_if(Cond::Slt, R9, 8, last);
    asm.jump_if(Cond::Ne, R2, 0, no);
    asm.add(R9, -8);
    asm.jump_if(Cond::Sle, R9, 0, yes);
    asm.add(R5, 8);
    asm.jump_if(Cond::Lt, R5, first as i32 * 8, again);
    if chunks > 0 {
        compare_equal_rest(asm, (first, chunks), yes, no);
    }
    asm.jump(yes);
    asm.bind(last);
    asm.mov(R3, 8);
    asm.alu(AluOp::Sub, R3, R9);
    asm.alu(AluOp::Lsh, R3, 3);
    asm.alu(AluOp::And, R3, 63);
    asm.alu(AluOp::Lsh, R2, R3);
    asm.jump_if(Cond::Ne, R2, 0, no);
}

/// Compares the words from `first` on. The substring ends at its first zero byte; words may differ
/// behind it.
fn compare_equal_rest(asm: &mut Asm, (first, chunks): (u32, u32), yes: Label, no: Label) {
    for (to, from) in [(R1, R7), (R2, R8)] {
        asm.mov(to, from);
        asm.add(to, first as i32 * 8);
    }
    asm.mov(R3, R6);
    asm.add(R3, i32::from(PART_WORDS));
    asm.mov(R4, chunks as i32);
    asm.call_sub(NAME);
    asm.jump_if(Cond::Eq, R0, 0, yes);
    asm.load(Size::DW, R2, R6, PART_WORDS + word::TEXT as i16);
    asm.load(Size::DW, R3, R6, PART_WORDS + word::OTHER as i16);
    asm.alu(AluOp::Xor, R2, R3);
    // A mask of the bytes in front of the first zero byte: the lowest bit of 0x80 in each zero
    // byte, then all bits below; all bits if no byte is zero.
    asm.ld_imm64(R4, splat(1));
    asm.ld_imm64(R5, splat(0x80));
    zero_bytes(asm, (R1, R3), (R4, R5));
    asm.mov(R3, R1);
    asm.neg(R3);
    asm.alu(AluOp::And, R1, R3);
    asm.alu(AluOp::Rsh, R1, 7);
    asm.add(R1, -1);
    asm.alu(AluOp::And, R2, R1);
    asm.jump_if(Cond::Ne, R2, 0, no);
}

/// `to` = 0 if the word has no zero byte; otherwise its lowest set bit is the top bit of the first
/// zero byte. The last two registers hold 0x01 and 0x80 in each byte. Clobbers the word.
pub(in crate::lower) fn zero_bytes(
    asm: &mut Asm,
    (to, word): (Reg, Reg),
    (ones, tops): (Reg, Reg),
) {
    asm.mov(to, word);
    asm.alu(AluOp::Sub, to, ones);
    asm.alu(AluOp::Xor, word, -1);
    asm.alu(AluOp::And, to, word);
    asm.alu(AluOp::And, to, tops);
}

impl HandlerCodegen<'_> {
    /// Splits a comparison of two strings into words to compare inline, and chunks for
    /// [`HandlerCodegen::compare_rest`].
    pub(in crate::lower) fn words_in_place(
        &self,
        a: &StrOperand,
        b: &StrOperand,
        words: u32,
    ) -> (u32, u32) {
        if words <= NARROW || !self.options.features.bpf_loop {
            return (words, 0);
        }
        // A string ends within its slot, so words behind the narrower slot decide nothing.
        let narrower = |text: &StrOperand| match text {
            StrOperand::Slot { width, .. } => width / 8,
            StrOperand::Const { .. } => words,
        };
        split(words.min(narrower(a)).min(narrower(b)))
    }

    /// Compares `chunks` chunks of two strings from a word on, and jumps to a label: to `differ`
    /// with the words in r1 and r2. Clobbers r0 to r5.
    pub(in crate::lower) fn compare_rest(
        &mut self,
        (a, b): (&StrOperand, &StrOperand),
        (first, chunks): (u32, u32),
        (equal, differ): (Label, Label),
    ) -> Res {
        subprograms(self.pool)?;
        let tmp = self.plan.scratch.tmp;
        self.text_addr(R1, a);
        self.asm.add(R1, first as i32 * 8);
        self.text_addr(R2, b);
        self.asm.add(R2, first as i32 * 8);
        self.block_addr(R3, tmp);
        self.asm.mov(R4, chunks as i32);
        self.asm.call_sub(NAME);
        self.asm.jump_if(Cond::Eq, R0, 0, equal);
        self.load(R1, tmp + word::TEXT);
        self.load(R2, tmp + word::OTHER);
        self.asm.jump(differ);
        Ok(())
    }
}

/// `compare(text, other, words, chunks)`: returns 1 if they differ, or 0.
fn compare() -> Result<Function, String> {
    let mut asm = Asm::new(NAME, &["text", "other", "words", "chunks"]);
    let slots = [
        (slot::TEXT, R1),
        (slot::OTHER, R2),
        (slot::WORDS, R3),
        (slot::CHUNKS, R4),
    ];
    for (slot, reg) in slots {
        asm.store(Size::DW, R10, slot - slot::SIZE, reg);
    }
    asm.mov(R6, R3);
    asm.store(Size::DW, R6, word::DIFFER as i16, 0);
    asm.mov(R1, R4);
    asm.loop_call("compare_at", -slot::SIZE);
    asm.load(Size::DW, R0, R6, word::DIFFER as i16);
    asm.exit();
    asm.finish().map_err(|e| e.to_string())
}

/// Compares one chunk; stops at a difference or at the end of the strings.
fn compare_at() -> Result<Function, String> {
    let mut asm = Asm::new("compare_at", &["index", "slots"]);
    let (differ, stop) = (asm.label(), asm.label());
    asm.load(Size::DW, R3, R2, slot::CHUNKS);
    asm.jump_if(Cond::Ge, R1, R3, stop);
    asm.alu(AluOp::Mul, R1, CHUNK as i32 * 8);
    asm.load(Size::DW, R6, R2, slot::TEXT);
    asm.add(R6, R1);
    asm.load(Size::DW, R7, R2, slot::OTHER);
    asm.add(R7, R1);
    asm.load(Size::DW, R8, R2, slot::WORDS);
    for i in 0..CHUNK as i16 {
        asm.load(Size::DW, R1, R6, 8 * i);
        asm.load(Size::DW, R2, R7, 8 * i);
        asm.jump_if(Cond::Ne, R1, R2, differ);
    }
    asm.jump_if(Cond::Eq, R1, 0, stop);
    asm.mov(R0, 0);
    asm.exit();
    asm.bind(differ);
    asm.store(Size::DW, R8, word::TEXT as i16, R1);
    asm.store(Size::DW, R8, word::OTHER as i16, R2);
    asm.store(Size::DW, R8, word::DIFFER as i16, 1);
    asm.bind(stop);
    asm.mov(R0, 1);
    asm.exit();
    asm.finish().map_err(|e| e.to_string())
}
