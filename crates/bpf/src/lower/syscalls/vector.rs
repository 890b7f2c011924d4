//! Vectors of strings, such as the arguments of `execve`, as text; and loops of the appending
//! subprograms.

use crate::isa::asm::{Asm, Function, Label};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size};
use crate::lower::event::usermem::{USER_TEXT, staging_area};
use crate::lower::text::put::{ArgAppender, REST, kind};

/// The largest number of strings of a vector to show.
const MAX_ARGV: i32 = 16;

/// The counter of a subprogram's loop, in r9. With unbounded loops it goes through a word of the
/// CPU's block: each iteration then looks equal to the verifier, and it follows the loop once.
pub(in crate::lower) struct LoopCounter {
    pub may_goto: bool,
    pub word: i16,
}

impl LoopCounter {
    pub(crate) fn init(&self, asm: &mut Asm) {
        match self.may_goto {
            true => asm.store(Size::DW, R6, self.word, 0),
            false => asm.mov(R9, 0),
        }
    }

    pub(crate) fn load(&self, asm: &mut Asm) {
        if self.may_goto {
            asm.load(Size::DW, R9, R6, self.word);
        }
    }

    /// Adds `by` to the counter, and goes to `again` up to `most`, else to `last`. Clobbers r1.
    pub(crate) fn next(&self, asm: &mut Asm, by: i32, most: i32, (again, last): (Label, Label)) {
        asm.add(R9, by);
        if self.may_goto {
            asm.store(Size::DW, R6, self.word, R9);
            asm.jump_if(Cond::Gt, R9, most, last);
            asm.may_goto(last);
            asm.jump(again);
            return;
        }
        asm.jump_if(Cond::Le, R9, most, again);
        asm.jump(last);
    }
}

/// `put_vector(address, narrow)`: appends the strings of a vector of pointers, which are 32 bits
/// wide if `narrow` is set. If an element cannot be read, its address ends the list.
pub(in crate::lower) fn put_vector(
    mut p: ArgAppender<'_>,
    may_goto: bool,
) -> Result<Function, String> {
    const POINTER: i16 = -8;
    const BYTES: i16 = -16;
    // Slot: the number of bits of the word that are not the pointer's.
    const OTHERS: i16 = -24;
    let [close, more, first, read, bad, begun, last] = std::array::from_fn(|_| p.asm.label());
    let round = LoopCounter {
        may_goto,
        word: (p.plan.scratch.tmp + REST) as i16,
    };
    let asm = &mut p.asm;
    asm.alu(AluOp::And, R8, 1);
    // 8 or 4, computed so that the verifier knows the bounds.
    asm.mov(R9, R8);
    asm.alu(AluOp::Xor, R9, 1);
    asm.alu(AluOp::Lsh, R9, 2);
    asm.add(R9, 4);
    asm.alu(AluOp::Lsh, R8, 5);
    asm.store(Size::DW, R10, BYTES, R9);
    asm.store(Size::DW, R10, OTHERS, R8);
    p.literal("[");
    round.init(&mut p.asm);
    p.asm.jump_if(Cond::Eq, R7, 0, close);
    p.asm.bind(more);
    let asm = &mut p.asm;
    asm.store(Size::DW, R10, POINTER, 0);
    asm.mov(R1, R10);
    asm.add(R1, i32::from(POINTER));
    asm.load(Size::DW, R2, R10, BYTES);
    asm.mov(R3, R7);
    asm.call(Helper::ProbeReadUser);
    asm.jump_if(Cond::Eq, R0, 0, read);
    asm.load(Size::DW, R1, R10, BYTES);
    asm.mov(R2, R7);
    asm.mov(R3, 1);
    asm.call_sub(USER_TEXT);
    asm.jump_if(Cond::Ne, R0, 0, bad);
    let from = staging_area(p.plan);
    asm.mov(R1, R6);
    asm.add(R1, from as i32);
    asm.load(Size::DW, R1, R1, 0);
    asm.load(Size::DW, R2, R10, OTHERS);
    asm.alu(AluOp::Lsh, R1, R2);
    asm.alu(AluOp::Rsh, R1, R2);
    asm.store(Size::DW, R10, POINTER, R1);
    asm.bind(read);
    asm.load(Size::DW, R8, R10, POINTER);
    asm.jump_if(Cond::Eq, R8, 0, close);
    round.load(asm);
    asm.jump_if(Cond::Eq, R9, 0, first);
    p.literal(", ");
    p.asm.bind(first);
    p.asm.mov(R1, R8);
    p.asm.call_sub("put_user");
    p.asm.load(Size::DW, R1, R10, BYTES);
    p.asm.add(R7, R1);
    round.load(&mut p.asm);
    round.next(&mut p.asm, 1, MAX_ARGV - 1, (more, last));
    p.asm.bind(last);
    p.literal(", ...");
    p.asm.jump(close);
    p.asm.bind(bad);
    round.load(&mut p.asm);
    p.asm.jump_if(Cond::Eq, R9, 0, begun);
    p.literal(", ");
    p.asm.bind(begun);
    p.number(R7, kind::HEX);
    p.asm.bind(close);
    p.literal("]");
    p.finish()
}
