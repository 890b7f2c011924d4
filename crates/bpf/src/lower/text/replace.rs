//! String replacement and tokenising, by functions of the run-time library.

use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::insn::{AluOp, Cond, Size};
use spile_ir::{Reg as IrReg, Val, intrinsics::Intrinsic};
use spile_lir::library::search::{self, Replace, token};

use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::operand::StrOperand;
use crate::lower::slots::block_at;

impl HandlerCodegen<'_> {
    /// `dst` = the string with every occurrence replaced.
    pub(crate) fn str_replace(&mut self, dst: IrReg, args: &[Val]) -> Res {
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
            capacity: max,
        }))?;
        let length = self.strlen(&part);
        self.store(scratch.tmp, length);
        self.begin_text(width);
        let length = self.block_word(scratch.tmp);
        let [text, part, new] = [&text, &part, &new].map(|text| self.text_arg(text));
        let args = [text, part, length.into(), new, block_at(scratch.text)];
        self.asm.call_sub_with(name, &args);
        self.end_text(off, width);
        Ok(())
    }

    /// Fetches the next token. Without `dst` the position in the text still advances.
    pub(crate) fn tokenize(&mut self, dst: Option<IrReg>, text: Val, delims: Val) -> Res {
        self.needs_loop("tokenize()")?;
        let (scratch, max) = (self.plan.scratch, self.plan.max_string);
        let kept = scratch.tokens + 8;
        let (text, delims) = (self.text(text)?, self.text(delims)?);
        let same_text = self.asm.label();
        match &text {
            StrOperand::Const { bytes } if bytes.is_empty() => {}
            StrOperand::Const { .. } => self.new_tokens(&text)?,
            StrOperand::Slot { off, .. } => {
                let (base, disp) = self.block_operand(*off, 1);
                let first = self.asm.read(Size::B, base, disp);
                self.asm.jump_if(Cond::Eq, first, 0, same_text);
                self.new_tokens(&text)?;
            }
        }
        self.asm.bind(same_text);
        let name = self.made(search::next_token(delims.width(), max))?;
        let from = self.block_word(scratch.tokens);
        self.store(scratch.tmp + token::FROM as u32, from);
        let delims = self.text_arg(&delims);
        let args = [block_at(kept), delims, block_at(scratch.tmp)];
        self.asm.call_sub_with(name, &args);
        let next = self.block_word(scratch.tmp + token::NEXT as u32);
        self.store(scratch.tokens, next);
        let Some((off, width)) = dst.map(|d| self.slot(d)).transpose()?.flatten() else {
            return Ok(());
        };
        self.fill_zero(off, width);
        let none = self.asm.label();
        let start = self.block_word(scratch.tmp + token::START as u32);
        self.asm.jump_if(Cond::Ge, start, max, none);
        let bytes = self.block_word(scratch.tmp + token::END as u32);
        self.asm.alu(AluOp::Sub, bytes, start);
        self.asm.jump_if(Cond::Sle, bytes, 0, none);
        self.truncate_length(bytes, width);
        let kept = self.block_address(kept);
        self.asm.add(start, kept);
        let args = [block_at(off), bytes.into(), start.into()];
        self.asm.call_with(Helper::ProbeReadKernel, &args);
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
    pub(crate) fn clear_tokens(&mut self) {
        if self.facts.uses(Intrinsic::Tokenize) {
            self.store(self.plan.scratch.tokens, 0);
            self.store(self.plan.scratch.tokens + 8, 0);
        }
    }
}
