//! Comparisons of wide strings. The first words are compared inline, the rest by the run-time library,
//! in a loop whose callback the verifier follows once. Inline code needs a jump for each word,
//! and the verifier allows 8,192 jumps on a path.

use spile_ebpf::isa::insn::Reg;
use spile_lir::library::CHUNK;

use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::operand::StrOperand;

/// Up to this total number of words, a comparison is entirely inline.
const NARROW: u32 = 8;
/// Name of the function.
const NAME: &str = "compare";

/// Splits `words` into words to compare inline and chunks for the callback.
fn split(words: u32) -> (u32, u32) {
    if words <= NARROW {
        return (words, 0);
    }
    let first = CHUNK + words % CHUNK;
    (first, (words - first) / CHUNK)
}

impl HandlerCodegen<'_> {
    /// Splits a comparison of two strings into words to compare inline, and chunks for
    /// [`HandlerCodegen::compare_rest`].
    pub(crate) fn words_in_location(
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

    /// The order of two strings from a word on, which have `chunks` chunks there.
    pub(crate) fn compare_rest(
        &mut self,
        (a, b): (&StrOperand, &StrOperand),
        (first, chunks): (u32, u32),
    ) -> Res<Reg> {
        self.pool.library(NAME)?;
        let [a, b] = [a, b].map(|text| self.text_arg(text).plus(first * 8));
        let args = [a, b, chunks.into()];
        Ok(self.asm.call_sub_with(NAME, &args))
    }
}
