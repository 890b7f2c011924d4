//! Comparisons of wide strings: the first words in place, the rest by `bpf_loop`, whose
//! callback the verifier follows once. Word by word in place, each one would be another jump,
//! and the verifier takes 8,192 of them on a path.

use super::{Gen, Res, Text};
use crate::asm::{Asm, Function, Label};
use crate::helpers::Helper;
use crate::insn::{AluOp, Cond, Reg::*, Size};

/// Words that one call of the callback compares.
const CHUNK: u32 = 4;
/// Comparisons of so many words are made in place altogether.
const NARROW: u32 = 8;
/// The subprogram.
const NAME: &str = "compare";

/// Slots of the subprogram's stack that its callback is given.
mod slot {
    pub const TEXT: i16 = 0;
    pub const OTHER: i16 = 8;
    /// The scratch words.
    pub const WORDS: i16 = 16;
    /// How many chunks there are: a constant, which bounds the offsets for the verifier.
    pub const CHUNKS: i16 = 24;
    pub const SIZE: i16 = 32;
}

/// Scratch words: the first words that differ, and whether there are any.
mod word {
    pub const TEXT: u32 = 0;
    pub const OTHER: u32 = 8;
    pub const DIFFER: u32 = 16;
}

impl Gen<'_> {
    /// How many of the `words` of two strings are compared in place; the rest, if any, is
    /// [`Gen::compare_rest`]'s.
    pub(super) fn words_in_place(&self, a: &Text, b: &Text, words: u32) -> (u32, u32) {
        if words <= NARROW || !self.options.features.bpf_loop {
            return (words, 0);
        }
        // A string ends in its slot: what follows in the wider one decides nothing.
        let narrower = |text: &Text| match text {
            Text::Slot { width, .. } => width / 8,
            Text::Const { .. } => words,
        };
        let words = words.min(narrower(a)).min(narrower(b));
        if words <= NARROW {
            return (words, 0);
        }
        let first = CHUNK + words % CHUNK;
        (first, (words - first) / CHUNK)
    }

    /// Compares `chunks` of two strings from a word on; goes to one of the labels, to `differ`
    /// with the words in r1 and r2. Loses r0-r5.
    pub(super) fn compare_rest(
        &mut self,
        (a, b): (&Text, &Text),
        (first, chunks): (u32, u32),
        (equal, differ): (Label, Label),
    ) -> Res {
        self.pool.sub("compare_at", |_| compare_at())?;
        self.pool.sub(NAME, |_| compare())?;
        let tmp = self.plan.scratch.tmp;
        self.text_addr(R1, a);
        self.asm.add(R1, first as i32 * 8);
        self.text_addr(R2, b);
        self.asm.add(R2, first as i32 * 8);
        self.addr(R3, tmp);
        self.asm.mov(R4, chunks as i32);
        self.asm.call_sub(NAME);
        self.asm.jump_if(Cond::Eq, R0, 0, equal);
        self.load(R1, tmp + word::TEXT);
        self.load(R2, tmp + word::OTHER);
        self.asm.jump(differ);
        Ok(())
    }
}

/// `compare(text, other, words, chunks)`: 1 where they differ, or 0.
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
    asm.ld_func(R2, "compare_at");
    asm.mov(R3, R10);
    asm.add(R3, -i32::from(slot::SIZE));
    asm.mov(R4, 0);
    asm.call(Helper::Loop);
    asm.load(Size::DW, R0, R6, word::DIFFER as i16);
    asm.exit();
    asm.finish().map_err(|e| e.to_string())
}

/// Compares one chunk; stops at a difference and at the end of the strings.
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
