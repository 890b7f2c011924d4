//! Kernel stacks, and names of kernel addresses.
//!
//! In: the context of an event. Out: addresses in a room of the processor's block, or text. Stacks
//! of programs are in [`super::unwind`].
//!
//! `bpf_get_stack` writes the addresses to a room of the CPU's block. In front of the probed code
//! stand frames of the probe itself: BPF programs, `bpf_trace_runN`, and the functions through
//! which a tracepoint calls its probes. `stack_first` skips them, by address ranges that the loader
//! takes from the kernel's symbols. The kernel itself names its addresses (`bpf_snprintf` with
//! `%ps`, `%pS`). Names and addresses are therefore real text: keys and comparisons see what is
//! printed.
//!
//! A stack as text with symbols is a mark, which the controller renders: the session's word, a
//! letter for the form, the data of the frames, a semicolon. [`spile_ir::marks`] finds the code
//! that would inspect a mark; there the handler makes the text itself, by functions of
//! the run-time library (`texts.rs`).

mod lines;
mod texts;

use spile_ir::{Event, Reg as IrReg, Val};
use spile_lir::library::stacks::address;

use crate::isa::asm::Section;
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size};
use crate::layout::{SymbolicForm, shared, stack_words};
use crate::lower::text::append::flag;
use crate::lower::{CTX, HandlerCodegen, Res, StrOperand, TMP};
use crate::plan::StackRoom;

/// The suffix of a symbol that is in no module.
const KERNEL: &[u8; 9] = b" [kernel]";

impl HandlerCodegen<'_> {
    fn room(&self) -> Res<&StackRoom> {
        let room = self.plan.stacks.as_ref();
        room.ok_or_else(|| "a stack that was not planned for".into())
    }

    /// Fills the room with the kernel's stack. `r0` = number of bytes; scratch word
    /// [`StackRoom::first`] = offset of the first frame of probed code.
    fn take_kernel_stack(&mut self) -> Res {
        let room = self.room()?.clone();
        let plan = self.plan;
        self.asm.load(Size::DW, R1, R10, CTX);
        self.block_addr(R2, room.frames);
        self.asm.mov(R3, room.bytes() as i32);
        self.asm.mov(R4, 0);
        self.asm.call(Helper::GetStack);
        let some = self.asm.label();
        self.asm.jump_if(Cond::Sge, R0, 0, some);
        self.asm.mov(R0, 0);
        self.asm.bind(some);
        self.store(room.count, R0);
        let point = match self.event() {
            Event::Tracepoint(name) => Some(&**name),
            Event::TraceEvent(event) => Some(&*event.name),
            Event::SysEnter(_) => Some("sys_enter"),
            Event::SysExit(_) => Some("sys_exit"),
            _ => None,
        };
        let at = point.and_then(|p| room.points.iter().position(|q| q == p));
        match at {
            Some(at) => {
                let words = room.words + stack_words::POINTS + at as u32 * stack_words::POINT;
                self.pool.use_stack_text("stack_first", plan)?;
                self.asm.mov(R1, words as i32);
                self.asm.call_sub("stack_first");
            }
            None => self.store(room.first, 0),
        }
        Ok(())
    }

    /// `dst` = the first `n` addresses, or all.
    pub(in crate::lower) fn kernel_stack(&mut self, dst: IrReg, n: Val) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        self.take_kernel_stack()?;
        self.begin_stack_text(n, width)?;
        self.end_text(off, width);
        Ok(())
    }

    /// Starts a text with the addresses in the room, at most `n`.
    pub(in crate::lower) fn begin_stack_text(&mut self, n: Val, width: u32) -> Res {
        let behind = n == Val::Imm(-2);
        let how = if behind {
            address::BEHIND
        } else {
            address::BETWEEN
        };
        self.use_append_stack()?;
        self.begin_text(width);
        self.use_in(n, R3)?;
        self.forget_bounds(R3);
        self.asm.mov(R1, flag::MARK | how);
        self.asm.mov(R2, 0);
        self.asm.call_sub("append_stack");
        Ok(())
    }

    fn use_append_stack(&mut self) -> Res {
        let (plan, pool) = (self.plan, &mut *self.pool);
        pool.use_stack_text("append_address", plan)?;
        pool.use_stack_text("append_stack", plan)
    }

    /// `dst` = a mark for a part of the kernel's stack.
    pub(in crate::lower) fn kernel_symbolic(&mut self, dst: IrReg, form: Val, first: Val) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        let form = symbolic_form(form);
        self.take_kernel_stack()?;
        if self.makes_text(dst) {
            self.begin_text(width);
            self.append_kernel_lines(form, first)?;
            self.end_text(off, width);
            return Ok(());
        }
        self.use_append_stack()?;
        self.begin_text(width);
        self.begin_mark(form)?;
        self.use_in(first, R2)?;
        self.forget_bounds(R2);
        self.asm.mov(R1, address::BETWEEN);
        self.asm.mov(R3, form.piece());
        self.asm.call_sub("append_stack");
        self.append_text(&literal(";"), 0, None)?;
        self.end_text(off, width);
        Ok(())
    }

    /// `r0` = address `n` of the kernel's stack, or 0.
    pub(in crate::lower) fn kernel_frame(&mut self, n: Val) -> Res {
        self.take_kernel_stack()?;
        self.frame_of_room(n)
    }

    /// `r0` = address `n` of the room.
    pub(in crate::lower) fn frame_of_room(&mut self, n: Val) -> Res {
        let room = self.room()?.clone();
        let end = self.asm.label();
        self.use_in(n, R1)?;
        self.forget_bounds(R1);
        self.asm.mov(R0, 0);
        self.asm.jump_if(Cond::Ge, R1, room.most as i32, end);
        self.asm.alu(AluOp::Lsh, R1, 3);
        self.load(R2, room.first);
        self.asm.add(R1, R2);
        self.load(R2, room.count);
        self.asm.jump_if(Cond::Ge, R1, R2, end);
        self.asm.jump_if(Cond::Gt, R1, room.bytes() as i32 - 8, end);
        self.block_addr(R2, room.frames);
        self.asm.add(R2, R1);
        self.asm.load(Size::DW, R0, R2, 0);
        self.asm.bind(end);
        Ok(())
    }

    /// `dst` = name of a kernel address, with offset, size and module if `data` is set.
    pub(in crate::lower) fn symbol(&mut self, dst: IrReg, addr: Val, data: bool) -> Res {
        self.use_in(addr, R0)?;
        self.forget_bounds(R0);
        self.symbol_at(dst, data)
    }

    /// `dst` = name of the kernel address in r0, with the same details.
    pub(in crate::lower) fn symbol_at(&mut self, dst: IrReg, data: bool) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        self.asm.store(Size::DW, R10, TMP[0], R0);
        self.fill_zero(off, width);
        let format = self.pool.constant(if data { b"%pS" } else { b"%ps" });
        self.block_addr(R1, off);
        self.asm.mov(R2, width as i32);
        self.asm.ld_data(R3, Section::Rodata, format);
        self.asm.mov(R4, R10);
        self.asm.add(R4, i32::from(TMP[0]));
        self.asm.mov(R5, 8);
        self.asm.call(Helper::Snprintf);
        let (end, fits) = (self.asm.label(), self.asm.label());
        self.asm.jump_if(Cond::Sle, R0, 2, end);
        self.asm.jump_if(Cond::Sle, R0, width as i32, fits);
        self.count(crate::layout::percpu::TRUNCATED);
        self.asm.jump(end);
        self.asm.bind(fits);
        if data {
            let room = width as i32 - KERNEL.len() as i32;
            self.asm.jump_if(Cond::Gt, R0, room, end);
            // No name begins with a digit: a bare address has no module.
            self.block_addr(R2, off);
            self.asm.load(Size::B, R1, R2, 0);
            self.asm.jump_if(Cond::Eq, R1, i32::from(b'0'), end);
            self.asm.add(R2, R0);
            self.asm.load(Size::B, R1, R2, -2);
            self.asm.jump_if(Cond::Eq, R1, i32::from(b']'), end);
            for (i, byte) in KERNEL.iter().enumerate() {
                self.asm.store(Size::B, R2, i as i16 - 1, i32::from(*byte));
            }
        }
        self.asm.bind(end);
        Ok(())
    }

    /// `dst` = a mark for a text of that form.
    pub(in crate::lower) fn symbolic(&mut self, dst: IrReg, form: Val, of: Val) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        let form = symbolic_form(form);
        let of = self.text(of)?;
        if self.makes_text(dst) {
            let of = self.copy_into_block(of)?;
            self.begin_text(width);
            self.append_lines_of(form, &of)?;
            self.end_text(off, width);
            return Ok(());
        }
        self.begin_text(width);
        self.begin_mark(form)?;
        self.append_text(&of, 0, None)?;
        self.append_text(&literal(";"), 0, None)?;
        self.end_text(off, width);
        Ok(())
    }

    /// Appends the session's word and the form's letter.
    pub(in crate::lower) fn begin_mark(&mut self, form: SymbolicForm) -> Res {
        self.use_append_text()?;
        self.shared(R2, shared::MARK);
        self.asm.mov(R1, R7);
        self.asm.mov(R3, 17);
        self.asm.mov(R4, 0);
        self.asm.call_sub("append_text");
        let letter = char::from(form.letter()).to_string();
        self.append_text(&literal(&letter), 0, None)
    }
}

/// The form with that number.
pub(in crate::lower) fn symbolic_form(form: Val) -> SymbolicForm {
    let form = match form {
        Val::Imm(n) => SymbolicForm::by_number(n),
        _ => None,
    };
    form.unwrap_or(SymbolicForm::KernelLines)
}

pub(in crate::lower) fn literal(text: &str) -> StrOperand {
    StrOperand::Const {
        bytes: text.as_bytes().into(),
    }
}
