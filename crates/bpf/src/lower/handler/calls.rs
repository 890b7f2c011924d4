//! Activations of recursive functions, and errors that pass through calls (see
//! [`spile_ir::opt::flatten`]).

use spile_cast::Cast;
use spile_ebpf::isa::insn::{AluOp, Cond, Reg, Size};
use spile_ir::{Inst, MAX_CALLERS, Ty, Val};
use spile_layout::plan::rethrown_fields;
use spile_layout::{ErrorKind, RecordKind, RecordShape};

use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::operand::StrOperand;
use crate::lower::slots::{BLOCK, block_at};
use crate::lower::text::fields::OutputField;

impl HandlerCodegen<'_> {
    /// MAXNESTING as an immediate operand.
    pub(crate) fn nesting(&self) -> i32 {
        i32::try_from(self.program.limits.maxnesting).unwrap_or(i32::MAX)
    }

    pub(crate) fn activation(&mut self, inst: &Inst) -> Res {
        let depth = self.plan.scratch.depth;
        match inst {
            Inst::Enter => {
                let fail = self.fail_label(ErrorKind::MaxNesting);
                let level = self.block_word(depth);
                self.asm.jump_if(Cond::Ge, level, self.nesting(), fail);
                self.asm.add(level, 1);
                self.store(depth, level);
                self.save_iterators(false);
                Ok(())
            }
            Inst::Leave => {
                self.save_iterators(true);
                let level = self.block_word(depth);
                self.asm.add(level, -1);
                self.store(depth, level);
                Ok(())
            }
            Inst::Save { src, offset } => self.save(*src, *offset),
            Inst::Restore { dst, offset } => self.restore(*dst, *offset),
            _ => Err("not about activations".into()),
        }
    }

    /// The address of byte `offset` of the last activation's saved data.
    pub(crate) fn saved_addr(&mut self, offset: u32) -> Reg {
        let scratch = self.plan.scratch;
        let reg = self.block_word(scratch.depth);
        self.asm.add(reg, -1);
        // Always false; bounds the index for the verifier.
        self.asm.jump_if(Cond::Ge, reg, self.nesting(), self.done);
        self.asm.alu(AluOp::Mul, reg, scratch.saved_size);
        self.asm.add(reg, scratch.saved + offset);
        self.asm.add(reg, BLOCK);
        reg
    }

    fn save(&mut self, src: Val, offset: u32) -> Res {
        if self.ty(src)? == Ty::Long {
            let to = self.saved_addr(offset);
            let value = self.number(src)?;
            self.asm.store(Size::DW, to, 0, value);
            return Ok(());
        }
        let text = self.text(src)?;
        let to = self.saved_addr(offset);
        let from = self.text_arg(&text);
        self.copy_memory(to.into(), text.width(), from);
        Ok(())
    }

    fn restore(&mut self, dst: spile_ir::Reg, offset: u32) -> Res {
        if self.body.regs[dst.index()] == Ty::Long {
            let from = self.saved_addr(offset);
            let number = self.asm.word(from, 0);
            return self.def_int(dst, number);
        }
        if let Some((off, width)) = self.slot(dst)? {
            let from = self.saved_addr(offset);
            self.copy_memory(block_at(off), width, from.into());
        }
        Ok(())
    }

    /// Appends a caller to the current error, which then goes to the next catch block or ends the
    /// handler.
    pub(crate) fn rethrow(&mut self) -> Res {
        let scratch = self.plan.scratch;
        let full = self.asm.label();
        let callers = self.block_word(scratch.err_callers);
        self.asm
            .jump_if(Cond::Ge, callers, MAX_CALLERS.fit::<i32>(), full);
        let entry = self.asm.alu_of(AluOp::Lsh, callers, 3);
        self.asm.add(entry, scratch.err_callers + 8);
        self.asm.add(entry, BLOCK);
        self.asm.store(Size::DW, entry, 0, self.site.0);
        self.asm.add(callers, 1);
        self.store(scratch.err_callers, callers);
        self.asm.bind(full);
        if let Some(catch) = self.catch {
            let label = self.branch_target(catch);
            self.jump_opaque(label);
            return Ok(());
        }
        let max = self.plan.max_string;
        let shape = RecordShape::new(
            RecordKind::Rethrown {
                kinds: self.ctx.error_kinds().to_vec(),
                handler: self.handler,
            },
            rethrown_fields(Ty::Str(max.fit())),
        );
        self.piece(shape, &mut |g, i| {
            let word = match i {
                0 => scratch.err_id,
                1 => scratch.err_site,
                2 => scratch.err_callers,
                i if i < 3 + MAX_CALLERS => scratch.err_callers + 8 * (i.fit::<u32>() - 2),
                i if i == 3 + MAX_CALLERS => scratch.err_aux,
                _ => {
                    let off = scratch.err_text;
                    return Ok(OutputField::Text(StrOperand::Slot { off, width: max }));
                }
            };
            let value = g.block_word(word);
            if i == 0 {
                g.asm.add(value, -1);
            }
            Ok(OutputField::Long(value.into()))
        })?;
        self.count_error();
        let done = self.done;
        self.jump_opaque(done);
        Ok(())
    }
}
