//! The rest of a stack in texts of addresses. A mark as the last word stands for the frames that
//! only the controller can find, in a copy (`copies.rs`).

use spile_ir::{Reg as IrReg, Val};
use spile_lir::library::unwind::at;

use super::walks;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size};
use crate::layout::{COPIED, SymbolicForm, percpu, shared};
use crate::lower::text::append::APPEND_HEX;
use crate::lower::{HandlerCodegen, Res, StrOperand};

/// Bytes of the session's word at the start of a mark.
const MARK_BYTES: u32 = 16;
/// The largest size of a mark for the rest of a stack: word, letter, three numbers, separators, and
/// a NUL.
const REST_BYTES: u32 = MARK_BYTES + 40;

impl HandlerCodegen<'_> {
    /// `dst` = the first `n` addresses of the current program's stack.
    pub(in crate::lower) fn user_stack(&mut self, dst: IrReg, n: Val) -> Res {
        let Some(slot) = self.slot(dst)? else {
            return Ok(());
        };
        self.use_in(n, R1)?;
        self.forget_bounds(R1);
        let whole = self.makes_text(dst);
        self.take_user_stack(None, !whole)?;
        self.begin_stack_text(n, slot.1)?;
        if !whole {
            self.append_rest(n == Val::Imm(-2), slot.1)?;
        }
        self.end_text(slot.0, slot.1);
        Ok(())
    }

    /// Appends a mark for the rest of the stack if a copy went to the controller, as a word with a
    /// space behind or in front. A mark that does not fit in `width` bytes is omitted and counted,
    /// because a part of it would be meaningless.
    fn append_rest(&mut self, behind: bool, width: u32) -> Res {
        let (plan, options) = (self.plan, self.options);
        let (room, base, _) = walks(plan, options)?;
        let [none, fits] = std::array::from_fn(|_| self.asm.label());
        self.load(R1, base as u32 + at::N);
        self.asm.jump_if(Cond::Eq, R1, 0, none);
        self.asm.jump_if(Cond::Gt, R1, room.most as i32, none);
        self.asm.add(R1, -1);
        self.store(base as u32 + at::LO, R1);
        self.asm.alu(AluOp::Lsh, R1, 3);
        self.block_addr(R2, base as u32);
        self.asm.add(R2, R1);
        let offset = at::offsets(room.most) as i16;
        self.asm.load(Size::DW, R1, R2, at::FILES as i16);
        self.asm.load(Size::DW, R3, R2, offset);
        self.store(base as u32 + at::HI, R3);
        self.asm.jump_if(Cond::Ne, R1, COPIED as i32, none);
        self.load(R1, plan.scratch.text_pos);
        let room = width.saturating_sub(REST_BYTES) as i32;
        self.asm.jump_if(Cond::Le, R1, room, fits);
        self.count(percpu::TRUNCATED);
        self.asm.jump(none);
        self.asm.bind(fits);
        let literal = crate::lower::event::stacks::literal;
        if !behind {
            self.append_text(&literal(" "), 0, None)?;
        }
        self.begin_mark(SymbolicForm::UserAddresses)?;
        for field in [at::LO, at::HI] {
            self.load(R1, base as u32 + field);
            self.asm.mov(R2, 0);
            self.asm.call_sub(APPEND_HEX);
            let next = match field {
                at::LO => format!(".{COPIED:x}."),
                _ if behind => "; ".to_owned(),
                _ => ";".to_owned(),
            };
            self.append_text(&literal(&next), 0, None)?;
        }
        self.asm.bind(none);
        Ok(())
    }

    /// `r0` = 1 if a word of such a text is a mark.
    pub(in crate::lower) fn stack_mark(&mut self, word: Val) -> Res {
        let no = self.asm.label();
        let text = self.text(word)?;
        let StrOperand::Slot { width, .. } = text else {
            self.asm.mov(R0, 0);
            return Ok(());
        };
        self.asm.mov(R0, 0);
        if width <= MARK_BYTES {
            return Ok(());
        }
        self.text_addr(R1, &text);
        self.shared(R2, shared::MARK);
        for at in (0..MARK_BYTES as i16).step_by(8) {
            self.asm.load(Size::DW, R3, R1, at);
            self.asm.load(Size::DW, R4, R2, at);
            self.asm.jump_if(Cond::Ne, R3, R4, no);
        }
        self.asm.mov(R0, 1);
        self.asm.bind(no);
        Ok(())
    }

    /// `dst` = the mark for the lines of the frames that this word's mark stands for.
    pub(in crate::lower) fn stack_rest(&mut self, dst: IrReg, word: Val) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        let text = self.text(word)?;
        self.begin_text(width);
        self.append_text(&text, 0, None)?;
        let letter = i32::from(SymbolicForm::UserAddressLines.letter());
        self.block_addr(R1, self.plan.scratch.text + MARK_BYTES);
        self.asm.store(Size::B, R1, 0, letter);
        self.end_text(off, width);
        Ok(())
    }
}
