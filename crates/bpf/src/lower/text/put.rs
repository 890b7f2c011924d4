//! The generator of subprograms that append to the text being built.

use crate::isa::asm::{Asm, Function, Label};
use crate::isa::insn::Reg;
use crate::isa::insn::Reg::*;
use crate::plan::StateLayout;

/// Kinds of descriptors, in the low byte.
pub(in crate::lower) mod kind {
    pub(crate) const SIGNED: i32 = 1;
    pub(crate) const UNSIGNED: i32 = 2;
    pub(crate) const HEX: i32 = 3;
    pub(crate) const OCTAL: i32 = 4;
    pub(crate) const USER_STR: i32 = 5;
    pub(crate) const DIRFD: i32 = 6;
    pub(crate) const FLAGS: i32 = 7;
    pub(crate) const ENUM: i32 = 8;
    pub(crate) const ARGV: i32 = 9;
    pub(crate) const OPEN_MODE: i32 = 10;
    /// The second word of a pair, which is printed with the first.
    pub(crate) const SHOWN: i32 = 11;
    pub(crate) const PAIR: i32 = 12;
    /// As ENUM, unsigned.
    pub(crate) const CHOICE: i32 = 13;
    pub(crate) const TIME: i32 = 14;
    pub(crate) const BUFFER: i32 = 15;
    pub(crate) const SOCKADDR: i32 = 16;
    /// As ARGV, with 32-bit pointers.
    pub(crate) const ARGV_4: i32 = 17;
}

/// Scratch word behind the six arguments of a system call: the bits that no name covers yet.
pub(in crate::lower) const REST: u32 = 64;

/// The texts between names and strings, in `.rodata`; a mask bounds the index.
#[rustfmt::skip]
pub(in crate::lower) const LITERALS: [&str; 32] = [
    ", ", "|", "\"", "[", "]", ", ...", "AT_FDCWD", "NULL", ".", ":", "}", "{AF_INET, ",
    "{AF_INET6, ", "{AF_UNIX, ", "{...}", "\\000", ",", "{unknown address family (", ")}", "", "", "",
    "", "", "", "", "", "", "", "", "", "",
];

/// The index of a literal.
fn literal(text: &str) -> i32 {
    let at = LITERALS.iter().position(|l| *l == text);
    at.unwrap_or(LITERALS.len() - 1) as i32
}

/// Bytes of a literal with its NUL, padded.
pub(in crate::lower) const LITERAL: i32 = 32;

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

    pub(crate) fn literal(&mut self, text: &str) {
        self.asm.mov(R1, literal(text));
        self.asm.call_sub("put_literal");
    }

    /// Appends a number in the format of that kind.
    pub(crate) fn number(&mut self, value: Reg, kind: i32) {
        self.asm.mov(R1, kind);
        self.asm.mov(R2, value);
        self.asm.call_sub("put_number");
    }

    /// Appends the text at r2 of `size` bytes.
    pub(crate) fn text(&mut self, size: i32) {
        self.asm.mov(R1, R6);
        self.asm.mov(R3, size);
        self.asm.mov(R4, 0);
        self.asm.call_sub("append_text");
    }
}
