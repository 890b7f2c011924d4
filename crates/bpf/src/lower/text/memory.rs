//! `%m` and `%M`: memory that is read while the handler runs. For output the bytes go into the
//! record and the controller renders them; for strings they are appended here, up to a NUL.

use spile_ebpf::isa::asm::CallArg;
use spile_ebpf::isa::insn::{AluOp, Cond, Reg, Size};
use spile_ir::fmt::{MAX_MEM, TOO_MANY};
use spile_ir::{Ty, Val};
use spile_layout::ErrorKind;
use spile_lir::library::hex_bytes;

use super::append::APPEND_TEXT;
use super::fields::{FieldSpec, MemoryArg, OutputField, SizeOperand};
use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::operand::StrOperand;
use crate::lower::slots::{BLOCK, block_at};
use crate::lower::values::probe_read;

#[expect(
    clippy::cast_possible_truncation,
    reason = "no named conversion is constant"
)]
const MOST: i32 = MAX_MEM as i32;
/// Scratch word: number of bytes to read.
const LEN: u32 = 16;
/// Scratch word: length of the text before the bytes.
const BEFORE: u32 = 24;
/// Scratch word: columns, negative for padding on the right.
const COLUMNS: u32 = 32;

impl HandlerCodegen<'_> {
    /// The record field of an argument.
    pub(crate) fn print_field(&mut self, arg: Val, memory: Option<MemoryArg>) -> Res<OutputField> {
        Ok(match (memory, self.ty(arg)?) {
            (Some(memory), _) => OutputField::Memory(memory),
            (None, Ty::Long) => OutputField::Long(self.number(arg)?),
            (None, Ty::Str(_)) => OutputField::Text(self.text(arg)?),
        })
    }

    /// Appends bytes of memory at a position of the output buffer, and moves the position behind them.
    pub(crate) fn memory_field(&mut self, memory: &MemoryArg, position: Reg) -> Res {
        let (tmp, size) = (
            self.plan.scratch.tmp,
            self.plan.scratch.out_size.cast_signed(),
        );
        self.store(tmp, position);
        self.memory_len(memory.len)?;
        let bounded = self.block_word(tmp);
        self.check_bound(bounded, size);
        let to = self.cursor(bounded);
        self.asm.add(to, 8);
        self.read_memory(memory, to.into())?;
        let bytes = self.block_word(tmp + LEN);
        self.check_bound(bytes, MOST);
        self.end_field(position, bytes);
        Ok(())
    }

    /// Always true; bounds the register for the verifier.
    pub(crate) fn check_bound(&mut self, reg: Reg, most: i32) {
        self.asm.mov_unless(Cond::Le, reg, most, 0);
    }

    /// Stores the number of bytes to read in a scratch word; raises an error if it is too large.
    fn memory_len(&mut self, len: SizeOperand) -> Res {
        let word = self.plan.scratch.tmp + LEN;
        let bytes = match len {
            SizeOperand::Known(n) if n <= MOST => {
                self.store(word, n.max(1));
                return Ok(());
            }
            SizeOperand::Known(n) => self.asm.copy(n),
            SizeOperand::At(v) => self.unknown(v)?,
        };
        let fits = self.asm.label();
        self.asm.jump_if(Cond::Sle, bytes, MOST, fits);
        self.set_aux(bytes);
        let (off, width) = (self.plan.scratch.err_text, self.plan.max_string);
        self.build_count(off, width, TOO_MANY.as_bytes())?;
        self.fail_now(ErrorKind::Raised);
        self.asm.mov(bytes, 1);
        self.asm.bind(fits);
        self.asm.mov_unless(Cond::Sge, bytes, 1, 1);
        self.store(word, bytes);
        Ok(())
    }

    /// Reads the bytes to an address.
    fn read_memory(&mut self, memory: &MemoryArg, to: CallArg) -> Res {
        let bytes = self.block_word(self.plan.scratch.tmp + LEN);
        self.check_bound(bytes, MOST);
        let from = self.number(memory.addr)?;
        self.set_aux(from);
        let result = self
            .asm
            .call_with(probe_read(memory.space), &[to, bytes.into(), from.into()]);
        let fail = self.fail_label(ErrorKind::ReadFault);
        self.asm.jump_if(Cond::Ne, result, 0, fail);
        Ok(())
    }

    /// Appends memory to the text, raw or in hexadecimal.
    pub(crate) fn append_memory(&mut self, memory: &MemoryArg, hex: bool, shape: FieldSpec) -> Res {
        let (tmp, text, max) = (
            self.plan.scratch.tmp,
            self.plan.scratch.text,
            self.plan.max_string,
        );
        let bytes = self.plan.scratch.memory;
        self.memory_len(memory.len)?;
        self.read_memory(memory, block_at(bytes))?;
        let width = self.width_of(shape)?;
        self.store(tmp + COLUMNS, width);
        self.pad_memory(hex, false)?;
        let before = self.block_word(self.plan.scratch.text_pos);
        self.store(tmp + BEFORE, before);
        // Limited to what a text can hold.
        let (from, capacity, times) = match hex {
            true => (text + 3 * max, max / 2 + 8, 2),
            false => (bytes, max.min(MOST as u32), 1),
        };
        let count = self.block_word(tmp + LEN);
        self.asm.mov_unless(Cond::Le, count, capacity, capacity);
        if hex {
            let name = self.made(hex_bytes(capacity))?;
            self.store(tmp + LEN + 24, count);
            let args = [block_at(bytes), block_at(from), count.into()];
            self.asm.call_sub_with(name, &args);
            self.load(count, tmp + LEN + 24);
            self.check_bound(count, capacity.cast_signed());
            self.asm.alu(AluOp::Lsh, count, 1);
        }
        let end = self.block_address(from);
        self.asm.add(end, count);
        self.asm.store(Size::B, end, 0, 0);
        self.asm.add(count, 1);
        self.use_append_text()?;
        let args = [BLOCK.into(), block_at(from), count.into(), 0.into()];
        self.asm.call_sub_with(APPEND_TEXT, &args);
        if !hex {
            self.end_at_nul(capacity * times);
        }
        self.pad_memory(hex, true)
    }

    /// Ends the text at a NUL among the bytes, which shortens what was appended.
    fn end_at_nul(&mut self, capacity: u32) {
        let (tmp, pos) = (self.plan.scratch.tmp, self.plan.scratch.text_pos);
        let whole = self.asm.label();
        let [appended, before, length] =
            [pos, tmp + BEFORE, tmp + LEN].map(|offset| self.block_word(offset));
        self.asm.alu(AluOp::Sub, appended, before);
        self.asm.mov_unless(Cond::Le, length, capacity, capacity);
        self.asm.jump_if(Cond::Ge, appended, length, whole);
        self.store(pos, self.plan.max_string + 1);
        self.asm.bind(whole);
    }

    /// Appends spaces up to the width, on one side.
    fn pad_memory(&mut self, hex: bool, behind: bool) -> Res {
        let tmp = self.plan.scratch.tmp;
        let enough = self.asm.label();
        let none = StrOperand::literal("");
        self.use_append_text()?;
        let [columns, length] = [COLUMNS, LEN].map(|offset| self.block_word(tmp + offset));
        if behind {
            self.asm.neg(columns);
        }
        if hex {
            self.asm.alu(AluOp::Lsh, length, 1);
        }
        self.asm.alu(AluOp::Sub, columns, length);
        self.asm.jump_if(Cond::Sle, columns, 0, enough);
        let args = [BLOCK.into(), self.text_arg(&none), 8.into(), columns.into()];
        self.asm.call_sub_with(APPEND_TEXT, &args);
        self.asm.bind(enough);
        Ok(())
    }
}
