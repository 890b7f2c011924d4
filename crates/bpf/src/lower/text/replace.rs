//! String replacement and tokenising, by functions of the run-time library.

use spile_ir::{Reg as IrReg, Val, intrinsics::Intrinsic};
use spile_lir::library::search::{self, Replace, token};

use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size};
use crate::lower::{HandlerCodegen, Res, StrOperand};

impl HandlerCodegen<'_> {
    /// `dst` = the string with every occurrence replaced.
    pub(in crate::lower) fn str_replace(&mut self, dst: IrReg, args: &[Val]) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        self.needs_loop("str_replace()")?;
        let scratch = self.plan.scratch;
        let max = self.plan.max_string;
        let (text, part, new) = (
            self.text(args[0])?,
            self.text(args[1])?,
            self.text(args[2])?,
        );
        let text = self.copy_into_block(text)?;
        let name = self.made(search::replace(Replace {
            text: text.width(),
            part: part.width(),
            new: new.width().min(max + 1),
            room: max,
        }))?;
        self.strlen(&part);
        self.store(scratch.tmp, R0);
        self.begin_text(width);
        self.text_addr(R1, &text);
        self.text_addr(R2, &part);
        self.load(R3, scratch.tmp);
        self.text_addr(R4, &new);
        self.block_addr(R5, scratch.text);
        self.asm.call_sub(name);
        self.end_text(off, width);
        Ok(())
    }

    /// Fetches the next token. Without `dst` the position in the text still advances.
    pub(in crate::lower) fn tokenize(&mut self, dst: Option<IrReg>, text: Val, delims: Val) -> Res {
        self.needs_loop("tokenize()")?;
        let (scratch, max) = (self.plan.scratch, self.plan.max_string);
        let kept = scratch.tokens + 8;
        let (text, delims) = (self.text(text)?, self.text(delims)?);
        let same_text = self.asm.label();
        match &text {
            StrOperand::Const { bytes } if bytes.is_empty() => {}
            StrOperand::Const { .. } => self.new_tokens(&text)?,
            StrOperand::Slot { off, .. } => {
                let (base, disp) = self.block_operand(R1, *off, 1);
                self.asm.load(Size::B, R1, base, disp);
                self.asm.jump_if(Cond::Eq, R1, 0, same_text);
                self.new_tokens(&text)?;
            }
        }
        self.asm.bind(same_text);
        let name = self.made(search::next_token(delims.width(), max))?;
        self.load(R1, scratch.tokens);
        self.store(scratch.tmp + token::FROM as u32, R1);
        self.block_addr(R1, kept);
        self.text_addr(R2, &delims);
        self.block_addr(R3, scratch.tmp);
        self.asm.call_sub(name);
        self.load(R1, scratch.tmp + token::NEXT as u32);
        self.store(scratch.tokens, R1);
        let Some((off, width)) = dst.map(|d| self.slot(d)).transpose()?.flatten() else {
            return Ok(());
        };
        self.fill_zero(off, width);
        let (none, fits) = (self.asm.label(), self.asm.label());
        self.load(R3, scratch.tmp + token::START as u32);
        self.asm.jump_if(Cond::Ge, R3, max as i32, none);
        self.load(R2, scratch.tmp + token::END as u32);
        self.asm.alu(AluOp::Sub, R2, R3);
        self.asm.jump_if(Cond::Sle, R2, 0, none);
        self.asm.jump_if(Cond::Sle, R2, width as i32 - 1, fits);
        self.asm.mov(R2, width as i32 - 1);
        self.count(crate::layout::percpu::TRUNCATED);
        self.asm.bind(fits);
        self.block_addr(R1, kept);
        self.asm.add(R3, R1);
        self.block_addr(R1, off);
        self.asm.call(Helper::ProbeReadKernel);
        self.asm.bind(none);
        Ok(())
    }

    /// Saves a text for later calls.
    fn new_tokens(&mut self, text: &StrOperand) -> Res {
        let tokens = self.plan.scratch.tokens;
        self.copy_text(tokens + 8, self.plan.max_string, text)?;
        self.store(tokens, 0);
        Ok(())
    }

    /// Discards the text: it does not outlive a run of the handler.
    pub(in crate::lower) fn clear_tokens(&mut self) {
        if self.facts.uses(Intrinsic::Tokenize) {
            self.store(self.plan.scratch.tokens, 0);
            self.store(self.plan.scratch.tokens + 8, 0);
        }
    }
}
