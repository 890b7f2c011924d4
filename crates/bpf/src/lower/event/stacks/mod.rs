//! Kernel stacks, and names of kernel addresses.
//!
//! In: the context of an event. Out: addresses in a buffer of the per-CPU area, or text. Stacks
//! of programs are in [`super::unwind`].
//!
//! `bpf_get_stack` writes the addresses to a buffer of the per-CPU area. In front of the probed code
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

use spile_cast::Cast;
use spile_ebpf::isa::asm::CallArg;
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::insn::Reg::R10;
use spile_ebpf::isa::insn::{AluOp, Cond, Reg, Size};
use spile_ir::{Reg as IrReg, Val};
use spile_layout::plan::{StackBuffer, stack_point};
use spile_layout::{SymbolicForm, shared, stack_words};
use spile_lir::library::stacks::address;

use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::slots::{BLOCK, CTX, TMP, block_at};
use crate::lower::text::append::{APPEND_TEXT, flag};

/// The suffix of a symbol that is in no module.
const KERNEL: &[u8; 9] = b" [kernel]";

impl HandlerCodegen<'_> {
    fn buffer(&self) -> Res<&StackBuffer> {
        let buffer = self.plan.stacks.as_ref();
        buffer.ok_or_else(|| "a stack that was not planned for".into())
    }

    /// Fills the buffer with the kernel's stack; scratch word [`StackBuffer::first`] = offset of the first
    /// frame of probed code.
    fn take_kernel_stack(&mut self) -> Res {
        let buffer = self.buffer()?.clone();
        let plan = self.plan;
        let context = self.asm.word(R10, CTX);
        let size = CallArg::from(buffer.bytes());
        let args = [context.into(), block_at(buffer.frames), size, 0.into()];
        let bytes = self.asm.call_with(Helper::GetStack, &args);
        self.asm.mov_unless(Cond::Sge, bytes, 0, 0);
        self.store(buffer.count, bytes);
        let point = stack_point(self.event());
        let index = point.and_then(|p| buffer.words.points.iter().position(|q| q == p));
        match index {
            Some(index) => {
                let words = buffer.words.offset
                    + stack_words::POINTS
                    + index.fit::<u32>() * stack_words::POINT;
                self.pool.use_stack_text("stack_first", plan)?;
                let words = CallArg::from(words);
                self.asm.call_sub_with("stack_first", &[words]);
            }
            None => self.store(buffer.first, 0),
        }
        Ok(())
    }

    /// `dst` = the first `n` addresses, or all.
    pub(crate) fn kernel_stack(&mut self, dst: IrReg, n: Val) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        self.take_kernel_stack()?;
        self.begin_stack_text(n, width)?;
        self.end_text(off, width);
        Ok(())
    }

    /// Starts a text with the addresses in the buffer, at most `n`.
    pub(crate) fn begin_stack_text(&mut self, n: Val, width: u32) -> Res {
        let how = match n {
            Val::Imm(-2) => address::BEHIND,
            _ => address::BETWEEN,
        };
        self.use_append_stack()?;
        self.begin_text(width);
        let n = self.unknown(n)?;
        let args = [(flag::MARK | how).into(), 0.into(), n.into()];
        self.asm.call_sub_with("append_stack", &args);
        Ok(())
    }

    fn use_append_stack(&mut self) -> Res {
        let (plan, pool) = (self.plan, &mut *self.pool);
        pool.use_stack_text("append_address", plan)?;
        pool.use_stack_text("append_stack", plan)
    }

    /// `dst` = a mark for a part of the kernel's stack.
    pub(crate) fn kernel_symbolic(&mut self, dst: IrReg, form: Val, first: Val) -> Res {
        let Some(slot) = self.slot(dst)? else {
            return Ok(());
        };
        let form = symbolic_form(form);
        self.take_kernel_stack()?;
        if self.makes_text(dst) {
            return self.write_text(slot, |g| g.append_kernel_lines(form, first));
        }
        self.use_append_stack()?;
        self.write_mark(slot, form, |g| {
            let first = g.unknown(first)?;
            let args = [address::BETWEEN.into(), first.into(), form.piece().into()];
            g.asm.call_sub_with("append_stack", &args);
            Ok(())
        })
    }

    /// Address `n` of the kernel's stack, or 0.
    pub(crate) fn kernel_frame(&mut self, n: Val) -> Res<Reg> {
        self.take_kernel_stack()?;
        self.frame_of_buffer(n)
    }

    /// Address `n` of the buffer, or 0.
    pub(crate) fn frame_of_buffer(&mut self, n: Val) -> Res<Reg> {
        let buffer = self.buffer()?.clone();
        let end = self.asm.label();
        let offset = self.unknown(n)?;
        let frame = self.asm.copy(0);
        self.asm.jump_if(Cond::Ge, offset, buffer.most, end);
        self.asm.alu(AluOp::Lsh, offset, 3);
        let first = self.block_word(buffer.first);
        self.asm.add(offset, first);
        let count = self.block_word(buffer.count);
        self.asm.jump_if(Cond::Ge, offset, count, end);
        self.asm.jump_if(Cond::Gt, offset, buffer.bytes() - 8, end);
        let frames = self.block_address(buffer.frames);
        self.asm.add(frames, offset);
        self.asm.load(Size::DW, frame, frames, 0);
        self.asm.bind(end);
        Ok(frame)
    }

    /// `dst` = name of a kernel address, with offset, size and module if `data` is set.
    pub(crate) fn symbol(&mut self, dst: IrReg, addr: Val, data: bool) -> Res {
        let addr = self.unknown(addr)?;
        self.symbol_at(dst, addr, data)
    }

    /// The same for an address in a register.
    pub(crate) fn symbol_at(&mut self, dst: IrReg, addr: Reg, data: bool) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        self.asm.store(Size::DW, R10, TMP[0], addr);
        self.fill_zero(off, width);
        let format = CallArg::Constant(self.pool.constant(if data { b"%pS" } else { b"%ps" }));
        let size = CallArg::from(width);
        let args = [block_at(off), size, format, CallArg::Word(TMP[0]), 8.into()];
        let length = self.asm.call_with(Helper::Snprintf, &args);
        let [end, fits] = self.asm.labels();
        self.asm.jump_if(Cond::Sle, length, 2, end);
        self.asm.jump_if(Cond::Sle, length, width, fits);
        self.count(spile_layout::percpu::TRUNCATED);
        self.asm.jump(end);
        self.asm.bind(fits);
        if data {
            let buffer = width.cast_signed() - KERNEL.len().fit::<i32>();
            self.asm.jump_if(Cond::Gt, length, buffer, end);
            // No name begins with a digit: a bare address has no module.
            let text = self.block_address(off);
            let first = self.asm.read(Size::B, text, 0);
            self.asm.jump_if(Cond::Eq, first, i32::from(b'0'), end);
            self.asm.add(text, length);
            let last = self.asm.read(Size::B, text, -2);
            self.asm.jump_if(Cond::Eq, last, i32::from(b']'), end);
            for (i, byte) in KERNEL.iter().enumerate() {
                self.asm
                    .store(Size::B, text, i.fit::<i16>() - 1, i32::from(*byte));
            }
        }
        self.asm.bind(end);
        Ok(())
    }

    /// `dst` = a mark for a text of that form.
    pub(crate) fn symbolic(&mut self, dst: IrReg, form: Val, addresses: Val) -> Res {
        let Some(slot) = self.slot(dst)? else {
            return Ok(());
        };
        let form = symbolic_form(form);
        let addresses = self.text(addresses)?;
        if self.makes_text(dst) {
            let addresses = self.copy_into_block(addresses)?;
            return self.write_text(slot, |g| g.append_lines_of(form, &addresses));
        }
        self.write_mark(slot, form, |g| g.append_text(&addresses))
    }

    /// Writes a mark with the data that the code appends.
    pub(crate) fn write_mark(
        &mut self,
        slot: (u32, u32),
        form: SymbolicForm,
        data: impl FnOnce(&mut Self) -> Res,
    ) -> Res {
        self.write_text(slot, |g| {
            g.begin_mark(form)?;
            data(g)?;
            g.append_literal(";")
        })
    }

    /// Appends the session's word and the form's letter.
    pub(crate) fn begin_mark(&mut self, form: SymbolicForm) -> Res {
        self.use_append_text()?;
        let args = [
            BLOCK.into(),
            CallArg::Shared(shared::MARK),
            17.into(),
            0.into(),
        ];
        self.asm.call_sub_with(APPEND_TEXT, &args);
        self.append_literal([form.letter()])
    }
}

/// The form with that number.
pub(crate) fn symbolic_form(form: Val) -> SymbolicForm {
    let form = match form {
        Val::Imm(n) => SymbolicForm::by_number(n),
        _ => None,
    };
    form.unwrap_or(SymbolicForm::KernelLines)
}
