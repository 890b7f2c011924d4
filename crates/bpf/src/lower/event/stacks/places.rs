//! Positions in the kernel's source, for handlers that inspect their text. `kernel_place` finds an
//! address among the lines that the loader puts into a map (see [`kernel_row`]), and writes the
//! same text as the controller.

use super::{put_byte, put_hex_as};
use crate::isa::asm::{Function, Label};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size};
use crate::layout::{KERNEL_LINES_MAP, SymbolicForm, kernel_row};
use crate::lower::event::unwind::names::{append_kernel_text, put_decimal};
use crate::lower::text::append::flag;
use crate::lower::text::put::ArgAppender;
use crate::lower::{HandlerCodegen, Res, StrOperand};

/// The parts to write for a position.
mod how {
    /// The source file.
    pub(super) const FILE: i32 = 1;
    /// The line number, or the address if the position is unknown.
    pub(super) const NUMBER: i32 = 2;
}

/// Steps of a binary search among [`kernel_row::MAX`] rows.
const HALVINGS: u32 = kernel_row::MAX.trailing_zeros();

/// Scratch words of a search.
#[derive(Clone, Copy)]
struct SearchWords {
    low: i16,
    high: i16,
    middle: i16,
}

impl HandlerCodegen<'_> {
    /// Appends the positions of the addresses in a text of the block.
    pub(super) fn append_places_of(&mut self, form: SymbolicForm, of: &StrOperand) -> Res {
        let how = match form {
            SymbolicForm::KernelFile => how::FILE,
            SymbolicForm::KernelLine => how::NUMBER,
            _ => how::FILE | how::NUMBER,
        };
        let plan = self.plan;
        self.pool.use_append_hex(plan)?;
        self.pool.use_append_number(plan, 10)?;
        self.pool.sub("kernel_place", |_| {
            kernel_place(ArgAppender::new("kernel_place", &["address", "how"], plan))
        })?;
        self.append_each_of("kernel_place", how, of)
    }
}

/// `kernel_place(address, how)`: appends the position of an address.
fn kernel_place(mut p: ArgAppender<'_>) -> Res<Function> {
    let [unknown, line] = std::array::from_fn(|_| p.asm.label());
    let end = p.end;
    let tmp = p.plan.scratch.tmp as i16;
    let words = SearchWords {
        low: tmp + 32,
        high: tmp + 40,
        middle: tmp + 48,
    };
    // r9 = the position.
    p.asm.store(Size::DW, R6, words.low, 0);
    element(&mut p, words.low, unknown);
    p.asm.load(Size::DW, R1, R0, kernel_row::BASE);
    p.asm.load(Size::DW, R2, R0, kernel_row::COUNT);
    p.asm.jump_if(Cond::Eq, R2, 0, unknown);
    p.asm.mov(R9, R7);
    p.asm.alu(AluOp::Sub, R9, R1);
    // An address below the first row gives a large number, too.
    p.asm.ld_imm64(R1, u64::from(u32::MAX));
    p.asm.jump_if(Cond::Gt, R9, R1, unknown);
    p.asm.store(Size::DW, R6, words.low, 1);
    p.asm.add(R2, 1);
    p.asm.store(Size::DW, R6, words.high, R2);
    search(&mut p, words, unknown);
    p.asm.load(Size::W, R9, R0, kernel_row::LINE);
    p.asm.load(Size::W, R1, R0, kernel_row::FILE);
    p.asm.jump_if(Cond::Eq, R1, 0, unknown);
    p.asm.store(Size::DW, R6, words.middle, R1);
    p.asm.mov(R1, R8);
    p.asm.alu(AluOp::And, R1, how::FILE);
    p.asm.jump_if(Cond::Eq, R1, 0, line);
    element(&mut p, words.middle, unknown);
    // Goes through memory, which turns the pointer into a number.
    p.asm.store(Size::DW, R6, words.low, R0);
    p.asm.load(Size::DW, R3, R6, words.low);
    append_kernel_text(&mut p, end);
    p.asm.alu(AluOp::And, R8, how::NUMBER);
    p.asm.jump_if(Cond::Eq, R8, 0, end);
    put_byte(&mut p, b':');
    p.asm.bind(line);
    put_decimal(&mut p);
    p.asm.jump(end);
    p.asm.bind(unknown);
    put_hex_as(&mut p, R7, flag::MARK);
    p.finish()
}

/// `r0` = the element whose index is in a word.
fn element(p: &mut ArgAppender<'_>, word: i16, none: Label) {
    p.asm.ld_map(R1, KERNEL_LINES_MAP);
    p.asm.mov(R2, R6);
    p.asm.add(R2, i32::from(word));
    p.asm.call(Helper::MapLookupElem);
    p.asm.jump_if(Cond::Eq, R0, 0, none);
}

/// `r0` = the last row that starts at or before r9; goes to `none` if there is none.
fn search(p: &mut ArgAppender<'_>, words: SearchWords, none: Label) {
    let found = p.asm.label();
    for _ in 0..HALVINGS {
        let [high, next] = std::array::from_fn(|_| p.asm.label());
        p.asm.load(Size::DW, R1, R6, words.low);
        p.asm.load(Size::DW, R2, R6, words.high);
        p.asm.mov(R3, R1);
        p.asm.add(R3, 1);
        p.asm.jump_if(Cond::Ge, R3, R2, found);
        p.asm.add(R1, R2);
        p.asm.alu(AluOp::Rsh, R1, 1);
        p.asm.store(Size::DW, R6, words.middle, R1);
        element(p, words.middle, none);
        p.asm.load(Size::W, R1, R0, kernel_row::START);
        p.asm.load(Size::DW, R2, R6, words.middle);
        p.asm.jump_if(Cond::Gt, R1, R9, high);
        p.asm.store(Size::DW, R6, words.low, R2);
        p.asm.jump(next);
        p.asm.bind(high);
        p.asm.store(Size::DW, R6, words.high, R2);
        p.asm.bind(next);
    }
    p.asm.bind(found);
    element(p, words.low, none);
    p.asm.load(Size::W, R1, R0, kernel_row::START);
    p.asm.jump_if(Cond::Gt, R1, R9, none);
}
