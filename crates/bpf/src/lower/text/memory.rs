//! `%m` and `%M`: memory that is read while the handler runs. For output the bytes go into the
//! record and the controller renders them; for strings they are appended here, up to a NUL.

use spile_ir::fmt::{MAX_MEM, TOO_MANY};
use spile_ir::{Space, Ty, Val};
use spile_lir::library::hex_bytes;

use super::append::APPEND_TEXT;
use super::fields::{FieldSpec, MemoryArg, OutputField, SizeOperand};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size};
use crate::layout::ErrorKind;
use crate::lower::{HandlerCodegen, Res, StrOperand};

const MOST: i32 = MAX_MEM as i32;
/// Scratch word: number of bytes to read.
const LEN: u32 = 16;
/// Scratch word: length of the text before the bytes.
const BEFORE: u32 = 24;
/// Scratch word: columns, negative for padding on the right.
const COLUMNS: u32 = 32;

impl HandlerCodegen<'_> {
    /// The record field of an argument.
    pub(in crate::lower) fn print_field(
        &mut self,
        arg: Val,
        memory: Option<MemoryArg>,
    ) -> Res<OutputField> {
        Ok(match (memory, self.ty(arg)?) {
            (Some(memory), _) => OutputField::Memory(memory),
            (None, Ty::Long) => OutputField::Long(self.use_int(arg, R1)?),
            (None, Ty::Str(_)) => OutputField::Text(self.text(arg)?),
        })
    }

    /// Appends bytes of memory at position r4 of the output buffer, and moves r4 behind them.
    pub(in crate::lower) fn memory_field(&mut self, memory: &MemoryArg) -> Res {
        let (tmp, size) = (self.plan.scratch.tmp, self.plan.scratch.out_size as i32);
        self.store(tmp, R4);
        self.memory_len(memory.len)?;
        self.load(R4, tmp);
        self.check_bound(R4, size);
        self.cursor();
        self.asm.mov(R1, R5);
        self.asm.add(R1, 8);
        self.read_memory(memory)?;
        self.load(R0, tmp + LEN);
        self.check_bound(R0, MOST);
        self.load(R4, tmp);
        self.check_bound(R4, size);
        self.cursor();
        self.asm.store(Size::DW, R5, 0, R0);
        self.asm.add(R0, 15);
        self.asm.alu(AluOp::And, R0, -8);
        self.asm.add(R4, R0);
        self.check_bound(R4, size);
        Ok(())
    }

    /// Always true; bounds the register for the verifier.
    fn check_bound(&mut self, reg: crate::isa::insn::Reg, most: i32) {
        let inside = self.asm.label();
        self.asm.jump_if(Cond::Le, reg, most, inside);
        self.asm.mov(reg, 0);
        self.asm.bind(inside);
    }

    /// Stores the number of bytes to read in a scratch word; raises an error if it is too large.
    fn memory_len(&mut self, len: SizeOperand) -> Res {
        let word = self.plan.scratch.tmp + LEN;
        match len {
            SizeOperand::Known(n) if n <= MOST => {
                self.store(word, n.max(1));
                return Ok(());
            }
            SizeOperand::Known(n) => self.asm.mov(R1, n),
            SizeOperand::At(v) => {
                self.use_in(v, R1)?;
                self.forget_bounds(R1);
            }
        }
        let (fits, some) = (self.asm.label(), self.asm.label());
        self.asm.jump_if(Cond::Sle, R1, MOST, fits);
        self.store(self.plan.scratch.err_aux, R1);
        let (off, width) = (self.plan.scratch.err_text, self.plan.max_string);
        self.build_count(off, width, TOO_MANY.as_bytes())?;
        self.fail_now(ErrorKind::Raised);
        self.asm.mov(R1, 1);
        self.asm.bind(fits);
        self.asm.jump_if(Cond::Sge, R1, 1, some);
        self.asm.mov(R1, 1);
        self.asm.bind(some);
        self.store(word, R1);
        Ok(())
    }

    /// Reads the bytes to r1.
    fn read_memory(&mut self, memory: &MemoryArg) -> Res {
        self.load(R2, self.plan.scratch.tmp + LEN);
        self.check_bound(R2, MOST);
        self.use_in(memory.addr, R3)?;
        self.set_aux(R3);
        self.asm.call(match memory.space {
            Space::Kernel => Helper::ProbeReadKernel,
            Space::User => Helper::ProbeReadUser,
        });
        let fail = self.fail_label(ErrorKind::ReadFault);
        self.asm.jump_if(Cond::Ne, R0, 0, fail);
        Ok(())
    }

    /// Appends memory to the text, raw or in hexadecimal.
    pub(in crate::lower) fn append_memory(
        &mut self,
        memory: &MemoryArg,
        hex: bool,
        shape: FieldSpec,
    ) -> Res {
        let (tmp, text, max) = (
            self.plan.scratch.tmp,
            self.plan.scratch.text,
            self.plan.max_string,
        );
        let bytes = self.plan.scratch.memory;
        self.memory_len(memory.len)?;
        self.block_addr(R1, bytes);
        self.read_memory(memory)?;
        self.width_into(shape, R4)?;
        self.store(tmp + COLUMNS, R4);
        self.pad_memory(hex, false)?;
        self.load(R1, self.plan.scratch.text_pos);
        self.store(tmp + BEFORE, R1);
        // Limited to what a text can hold.
        let (from, room, times) = match hex {
            true => (text + 3 * max, max / 2 + 8, 2),
            false => (bytes, max.min(MOST as u32), 1),
        };
        let fits = self.asm.label();
        self.load(R3, tmp + LEN);
        self.asm.jump_if(Cond::Le, R3, room as i32, fits);
        self.asm.mov(R3, room as i32);
        self.asm.bind(fits);
        if hex {
            let name = self.made(hex_bytes(room))?;
            self.store(tmp + LEN + 24, R3);
            self.block_addr(R1, bytes);
            self.block_addr(R2, from);
            self.asm.call_sub(name);
            self.load(R3, tmp + LEN + 24);
            self.check_bound(R3, room as i32);
            self.asm.alu(AluOp::Lsh, R3, 1);
        }
        self.block_addr(R2, from);
        self.asm.mov(R1, R2);
        self.asm.add(R1, R3);
        self.asm.store(Size::B, R1, 0, 0);
        self.asm.add(R3, 1);
        self.use_append_text()?;
        self.asm.mov(R4, 0);
        self.asm.mov(R1, R7);
        self.asm.call_sub(APPEND_TEXT);
        if !hex {
            self.end_at_nul(room * times);
        }
        self.pad_memory(hex, true)
    }

    /// Ends the text at a NUL among the bytes, which shortens what was appended.
    fn end_at_nul(&mut self, room: u32) {
        let (tmp, pos) = (self.plan.scratch.tmp, self.plan.scratch.text_pos);
        let (short, whole) = (self.asm.label(), self.asm.label());
        self.load(R1, pos);
        self.load(R2, tmp + BEFORE);
        self.asm.alu(AluOp::Sub, R1, R2);
        self.load(R2, tmp + LEN);
        self.asm.jump_if(Cond::Le, R2, room as i32, short);
        self.asm.mov(R2, room as i32);
        self.asm.bind(short);
        self.asm.jump_if(Cond::Ge, R1, R2, whole);
        self.store(pos, self.plan.max_string as i32 + 1);
        self.asm.bind(whole);
    }

    /// Appends spaces up to the width, on one side.
    fn pad_memory(&mut self, hex: bool, behind: bool) -> Res {
        let tmp = self.plan.scratch.tmp;
        let enough = self.asm.label();
        let none = StrOperand::Const {
            bytes: (*b"").into(),
        };
        self.use_append_text()?;
        self.load(R4, tmp + COLUMNS);
        if behind {
            self.asm.neg(R4);
        }
        self.load(R3, tmp + LEN);
        if hex {
            self.asm.alu(AluOp::Lsh, R3, 1);
        }
        self.asm.alu(AluOp::Sub, R4, R3);
        self.asm.jump_if(Cond::Sle, R4, 0, enough);
        self.text_addr(R2, &none);
        self.asm.mov(R3, 8);
        self.asm.mov(R1, R7);
        self.asm.call_sub(APPEND_TEXT);
        self.asm.bind(enough);
        Ok(())
    }
}
