//! The generator of subprograms that append to the text being built.

use crate::isa::asm::{Asm, Function, Label};
use crate::isa::insn::Reg::*;
use crate::lower::text::append::APPEND_TEXT;
use crate::plan::StateLayout;

/// The generator of a subprogram that appends: r6 is the CPU's block, r7 to r9 its parameters.
pub(in crate::lower) struct ArgAppender<'a> {
    pub asm: Asm,
    pub plan: &'a StateLayout,
    pub end: Label,
}

impl<'a> ArgAppender<'a> {
    pub(crate) fn new(
        name: &str,
        params: &[&'static str],
        plan: &'a StateLayout,
    ) -> ArgAppender<'a> {
        let mut asm = Asm::new(name, params);
        let end = asm.label();
        for (to, from) in [(R7, R1), (R8, R2), (R9, R3)]
            .into_iter()
            .take(params.len())
        {
            asm.mov(to, from);
        }
        plan.cpu_block(&mut asm, R6, end);
        ArgAppender { asm, plan, end }
    }

    pub(crate) fn finish(mut self) -> Result<Function, String> {
        self.asm.bind(self.end);
        self.asm.mov(R0, 0);
        self.asm.exit();
        self.asm.mark_separate();
        self.asm.finish().map_err(|e| e.to_string())
    }

    /// Appends the text at r2 of `size` bytes.
    pub(crate) fn text(&mut self, size: i32) {
        self.asm.mov(R1, R6);
        self.asm.mov(R3, size);
        self.asm.mov(R4, 0);
        self.asm.call_sub(APPEND_TEXT);
    }
}
