//! The rest of a stack in texts of addresses. A mark as the last word stands for the frames that
//! only the controller can find, in a copy (`copies.rs`).

use spile_cast::Cast;
use spile_ebpf::isa::insn::{AluOp, Cond, Reg, Size};
use spile_ir::{Reg as IrReg, Val};
use spile_layout::{COPIED, SymbolicForm, percpu, shared};
use spile_lir::library::unwind::at;

use super::unwinds;
use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::operand::StrOperand;
use crate::lower::text::append::APPEND_HEX;

/// Bytes of the session's word at the start of a mark.
const MARK_BYTES: u32 = 16;
/// The largest size of a mark for the rest of a stack: word, letter, three numbers, separators, and
/// a NUL.
const REST_BYTES: u32 = MARK_BYTES + 40;

impl HandlerCodegen<'_> {
    /// `dst` = the first `n` addresses of the current program's stack.
    pub(crate) fn user_stack(&mut self, dst: IrReg, n: Val) -> Res {
        let Some(slot) = self.slot(dst)? else {
            return Ok(());
        };
        let most = self.unknown(n)?;
        let whole = self.makes_text(dst);
        self.take_user_stack(most, !whole)?;
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
        let (buffer, base, _) = unwinds(plan, options)?;
        let [none, fits] = self.asm.labels();
        let last = self.block_word(base + at::N);
        // One comparison for 0 as well: before Linux 6.8 the verifier learns nothing from `!= 0`.
        self.asm.add(last, -1);
        self.asm.jump_if(Cond::Ge, last, buffer.most, none);
        self.store(base + at::LO, last);
        self.asm.alu(AluOp::Lsh, last, 3);
        let frame = self.block_address(base);
        self.asm.add(frame, last);
        let file = self.asm.word(frame, at::FILES.fit());
        let offset = self.asm.word(frame, at::offsets(buffer.most).fit::<i16>());
        self.store(base + at::HI, offset);
        self.asm.jump_if(Cond::Ne, file, COPIED, none);
        let length = self.block_word(plan.scratch.text_pos);
        let buffer = width.saturating_sub(REST_BYTES).cast_signed();
        self.asm.jump_if(Cond::Le, length, buffer, fits);
        self.count(percpu::TRUNCATED);
        self.asm.jump(none);
        self.asm.bind(fits);
        if !behind {
            self.append_literal(" ")?;
        }
        self.begin_mark(SymbolicForm::UserAddresses)?;
        for field in [at::LO, at::HI] {
            let number = self.block_word(base + field);
            self.asm
                .call_sub_with(APPEND_HEX, &[number.into(), 0.into()]);
            let next = match field {
                at::LO => format!(".{COPIED:x}."),
                _ if behind => "; ".to_owned(),
                _ => ";".to_owned(),
            };
            self.append_literal(&next)?;
        }
        self.asm.bind(none);
        Ok(())
    }

    /// 1 if a word of such a text is a mark, else 0.
    pub(crate) fn stack_mark(&mut self, word: Val) -> Res<Reg> {
        let no = self.asm.label();
        let text = self.text(word)?;
        let is_mark = self.asm.copy(0);
        let (StrOperand::Slot { off, .. }, MARK_BYTES..) = (&text, text.width() - 1) else {
            return Ok(is_mark);
        };
        let [text, mark] = [self.block_address(*off), self.shared_address(shared::MARK)];
        for offset in (0..MARK_BYTES.fit::<i16>()).step_by(8) {
            let [a, b] = [text, mark].map(|from| self.asm.word(from, offset));
            self.asm.jump_if(Cond::Ne, a, b, no);
        }
        self.asm.mov(is_mark, 1);
        self.asm.bind(no);
        Ok(is_mark)
    }

    /// `dst` = the mark for the lines of the frames that this word's mark stands for.
    pub(crate) fn stack_rest(&mut self, dst: IrReg, word: Val) -> Res {
        self.text_result(dst, |g| {
            let text = g.text(word)?;
            g.append_text(&text)?;
            let letter = i32::from(SymbolicForm::UserAddressLines.letter());
            let mark = g.block_address(g.plan.scratch.text + MARK_BYTES);
            g.asm.store(Size::B, mark, 0, letter);
            Ok(())
        })
    }
}
