//! User stacks. The run-time library unwinds them and looks addresses up
//! ([`spile_lir::library::unwind`]); marks of frames are made here.
//!
//! In: the registers of the interrupted program, and the tables that the controller has loaded.
//! Out: addresses with the numbers of their files. Names are given by the controller, or by
//! `names.rs` where a handler looks into the text.

mod names;
mod remaining_frames;

use spile_ebpf::isa::insn::{Cond, Reg, Src};
use spile_ir::{Reg as IrReg, Ty, Val};
use spile_layout::COPIES_MAP;
use spile_layout::plan::{StackBuffer, StateLayout};
use spile_layout::{
    FILE_NAME, FILE_NAMES, FILES_MAP, ROWS_MAP, RecordKind, RecordShape, SymbolicForm, copy, percpu,
};
use spile_lir::library::routine::Routine;
use spile_lir::library::stacks::frame;
use spile_lir::library::unwind::{FILE_FIELDS, GIVEN, UnwindLayout, at};

use crate::compiled::{FORCE_WAKEUP, RING};
use crate::error::{LowerError, Res};
use crate::lower::codegen::HandlerCodegen;
use crate::lower::pool::Pool;
use crate::target::{Target, UnwindOffsets};

/// The flag of frames with all that a form of text needs.
fn full(form: SymbolicForm) -> i32 {
    if form.full() { frame::FULL } else { 0 }
}

/// The buffer of stacks, in which unwinds have their part, and the offsets that they read.
fn unwinds<'a>(
    plan: &'a StateLayout,
    options: &'a Target,
) -> Res<(&'a StackBuffer, u32, &'a UnwindOffsets)> {
    let buffer = plan.stacks.as_ref().and_then(|r| Some((r, r.user?)));
    match (buffer, &options.offsets.unwind) {
        (Some((buffer, base)), Some(offsets)) => Ok((buffer, base, offsets)),
        _ => Err(LowerError::unsupported(
            "stacks of programs need fields that this kernel's BTF does not have",
        )),
    }
}

/// Defines the functions of unwinds, or only those that look addresses up if nothing unwinds.
fn use_unwind(pool: &mut Pool, plan: &StateLayout, options: &Target) -> Res {
    let (buffer, base, offsets) = unwinds(plan, options)?;
    pool.routine("user_address", Some(plan), |pool| {
        let file_record = pool.record(RecordShape::new(
            RecordKind::File,
            vec![Ty::Long; FILE_FIELDS + FILE_NAMES * FILE_NAME / 8],
        ));
        let copy_record = pool.record(RecordShape {
            what: RecordKind::Copy,
            fields: vec![Ty::Long; copy::FIELDS],
            words: (copy::BYTES - copy::HEAD) / 8,
        });
        let layout = UnwindLayout {
            abi: options.abi,
            base,
            search: plan.scratch.search,
            most: buffer.most,
            frames: buffer.frames,
            count: buffer.count,
            first: buffer.first,
            next_file: buffer.next_file,
            offsets: *offsets,
            files: FILES_MAP,
            rows: ROWS_MAP,
            copies: COPIES_MAP,
            ring: RING,
            file_record,
            copy_record,
            wakeup: FORCE_WAKEUP,
            guessed: percpu::GUESSED,
            cut_stacks: percpu::CUT_STACKS,
            lost_output: percpu::LOST_OUTPUT,
            no_memory: percpu::NO_MEMORY,
        };
        Ok(match buffer.words.rows {
            true => Routine::Unwind(layout),
            false => Routine::Addresses(layout),
        })
    })
}

impl HandlerCodegen<'_> {
    /// Fills the buffer with at most `most` frames of the current program's stack.
    fn take_user_stack(&mut self, most: impl Into<Src>, marks: bool) -> Res {
        let mut most = most.into();
        use_unwind(self.pool, self.plan, self.options)?;
        let (_, base, _) = unwinds(self.plan, self.options)?;
        self.store(base + at::COPY, i32::from(marks));
        let begin = [at::IP, at::SP, at::BP].map(|field| base + field);
        if most != Src::Imm(GIVEN) && self.stack_behind_return(begin)? {
            most = Src::Imm(GIVEN);
        }
        self.asm.call_sub_with("user_unwind", &[most.into()]);
        Ok(())
    }

    /// Address `n` of the current program's stack, or 0.
    pub(crate) fn user_frame(&mut self, n: Val) -> Res<Reg> {
        let most = self.unknown(n)?;
        self.asm.add(most, 1);
        self.take_user_stack(most, false)?;
        self.frame_of_buffer(n)
    }

    /// `dst` = a mark for the current program's stack, or for an address. With `given`, the stack
    /// starts at these three registers: address, stack pointer, frame pointer.
    pub(crate) fn user_symbolic(
        &mut self,
        dst: IrReg,
        form: Val,
        operand: Val,
        given: &[Val],
    ) -> Res {
        let form = super::stacks::symbolic_form(form);
        if !form.of_stack() {
            let address = self.unknown(operand)?;
            return self.user_location(dst, address, form);
        }
        let Some(slot) = self.slot(dst)? else {
            return Ok(());
        };
        let (plan, options) = (self.plan, self.options);
        self.use_append_frame()?;
        let (buffer, base, _) = unwinds(plan, options)?;
        self.pool.use_stack_text("append_frames", plan)?;
        for (value, field) in given.iter().zip([at::IP, at::SP, at::BP]) {
            let value = self.unknown(*value)?;
            self.store(base + field, value);
        }
        let marks = !self.makes_text(dst);
        if given.is_empty() {
            self.unwind_whole(operand, base, buffer.most, marks)?;
        } else {
            self.take_user_stack(GIVEN, marks)?;
        }
        if self.makes_text(dst) {
            return self.write_text(slot, |g| g.append_symbols(form, operand));
        }
        self.write_mark(slot, form, |g| {
            let first = g.unknown(operand)?;
            let args = [full(form).into(), first.into(), form.piece().into()];
            g.asm.call_sub_with("append_frames", &args);
            Ok(())
        })
    }

    /// `dst` = a mark for the name at an address of the current program.
    pub(crate) fn user_name(&mut self, dst: IrReg, address: Reg) -> Res {
        self.user_location(dst, address, SymbolicForm::UserName)
    }

    /// `dst` = a mark for an address of the current program.
    fn user_location(&mut self, dst: IrReg, address: Reg, form: SymbolicForm) -> Res {
        let Some(slot) = self.slot(dst)? else {
            return Ok(());
        };
        let (plan, options) = (self.plan, self.options);
        self.use_append_frame()?;
        let (buffer, ..) = unwinds(plan, options)?;
        self.asm.call_sub_with("user_address", &[address.into()]);
        if self.makes_text(dst) {
            return self.write_text(slot, |g| g.append_symbol(form, buffer.most));
        }
        self.write_mark(slot, form, |g| {
            let args = [buffer.most.into(), full(form).into()];
            g.asm.call_sub_with("append_frame", &args);
            Ok(())
        })
    }

    fn use_append_frame(&mut self) -> Res {
        let (plan, options) = (self.plan, self.options);
        use_unwind(self.pool, plan, options)?;
        self.pool.use_stack_text("append_frame", plan)
    }

    /// Unwinds the whole stack. A later part of it needs an unwind only if the last unwind was a different
    /// one.
    fn unwind_whole(&mut self, first: Val, base: u32, most: u32, marks: bool) -> Res {
        let unwound = self.asm.label();
        if first != Val::Imm(0) {
            let before = self.block_word(base + at::MOST);
            self.asm.jump_if(Cond::Eq, before, most, unwound);
        }
        self.take_user_stack(-1, marks)?;
        self.asm.bind(unwound);
        Ok(())
    }
}
