//! User stacks: `user_walk` calls `user_frame` for one frame after the other.
//!
//! In: the registers of the interrupted program, and the tables that the controller has loaded.
//! Out: addresses with the numbers of their files. Names are given by the controller, or by
//! `names.rs` where a handler looks into the text.
//!
//! `user_map` looks each address up in the tree of the process's mappings, which gives the file and
//! the offset (see `crates/bpf/src/lower/event/unwind/mappings.rs`). It takes no lock: RCU keeps
//! the tree alive while a tracing program runs, and every value is checked. The map `FILES_MAP`
//! identifies a file by device and inode. It gives the file's number for the controller and, once
//! the controller has loaded them, the range of the file's unwind rows in the map `ROWS_MAP`. A new
//! file is announced to the controller at once, with the names of its path, so that programs that
//! end before they are printed have names too.
//!
//! `user_step` finds the row of the address, and with it the caller's registers. Without a row it
//! follows frame pointers, and counts the guess if the file may have rows. `user_return` restores
//! return addresses that return probes have replaced.
//!
//! Sources: `struct maple_range_64`, `struct maple_arange_64` and the tags in node pointers from
//! `include/linux/maple_tree.h` (6.1 and later, 64 bits); the signal frame from
//! `arch/x86/include/uapi/asm/ucontext.h`.

mod copies;
mod frames;
mod mappings;
pub(in crate::lower) mod names;
mod rest;
mod step;
pub(in crate::lower) mod walk_gen;

use frames::{append_each, append_frame, how};
use step::WANTS_COPY;
use walk_gen::{FILE_FIELDS, WalkGen, at, walks};

use crate::isa::asm::Function;
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size};
use crate::layout::{BEHIND, EXACT, SymbolicForm, percpu};
use crate::layout::{FILE_NAME, FILE_NAMES, RecordKind, RecordShape};
use crate::lower::text::hex::{APPEND_HEX, append_hex};
use crate::lower::text::put::ArgAppender;
use crate::lower::{HandlerCodegen, Pool, Res};
use crate::plan::StateLayout;
use crate::target::Options;
use spile_ir::{Reg as IrReg, Ty, Val};

/// The largest number of return-probed calls to search for a frame's return address.
const RETURNS: u32 = 64;
/// Argument of `user_walk` for a whole stack whose registers are already given. Frame indices are
/// -2 and above.
const GIVEN: i32 = -3;

/// Defines the subprograms.
fn use_walk(pool: &mut Pool, plan: &StateLayout, options: &Options) -> Res {
    let (room, base, offsets) = walks(plan, options)?;
    let new = |name| WalkGen {
        p: ArgAppender::new(name, &[], plan),
        base,
        room,
        o: offsets,
    };
    pool.sub("maple_down", |_| new("maple_down").maple_down())?;
    let words = RecordShape {
        what: RecordKind::File,
        fields: vec![Ty::Long; FILE_FIELDS + FILE_NAMES * FILE_NAME / 8],
        words: 0,
    };
    let shape = pool.record(words);
    pool.sub("user_file", |_| {
        let p = ArgAppender::new("user_file", &["file"], plan);
        new("user_file").generator(p).user_file(shape)
    })?;
    pool.sub("user_map", |_| new("user_map").user_map())?;
    let copy = pool.record(copies::shape());
    pool.sub("user_copy", |_| new("user_copy").user_copy(copy))?;
    pool.sub("user_step", |_| new("user_step").user_step())?;
    if let Some(returns) = offsets.returns {
        pool.sub("user_return", |_| new("user_return").user_return(returns))?;
    }
    pool.sub("user_frame", |_| new("user_frame").user_frame())?;
    pool.sub("user_walk", |_| {
        let p = ArgAppender::new("user_walk", &["most"], plan);
        new("user_walk").generator(p).user_walk()
    })
}

impl HandlerCodegen<'_> {
    /// Fills the room with at most `most` frames of the current program's stack; r1 holds the
    /// number for `None`.
    fn take_user_stack(&mut self, most: Option<i32>, marks: bool) -> Res {
        use_walk(self.pool, self.plan, self.options)?;
        let (_, base, _) = walks(self.plan, self.options)?;
        self.store(base as u32 + at::COPY, i32::from(marks));
        let begin = [at::IP, at::SP, at::BP].map(|field| base as u32 + field);
        if most != Some(GIVEN) && self.stack_behind_return(begin)? {
            self.asm.mov(R1, GIVEN);
        } else if let Some(most) = most {
            self.asm.mov(R1, most);
        }
        self.asm.call_sub("user_walk");
        Ok(())
    }

    /// `r0` = address `n` of the current program's stack, or 0.
    pub(in crate::lower) fn user_frame(&mut self, n: Val) -> Res {
        self.use_in(n, R1)?;
        self.forget_bounds(R1);
        self.asm.add(R1, 1);
        self.take_user_stack(None, false)?;
        self.frame_of_room(n)
    }

    /// `dst` = a mark for the current program's stack, or for an address. With `given`, the stack
    /// starts at these three registers: address, stack pointer, frame pointer.
    pub(in crate::lower) fn user_symbolic(
        &mut self,
        dst: IrReg,
        form: Val,
        of: Val,
        given: &[Val],
    ) -> Res {
        let form = super::stacks::symbolic_form(form);
        if !form.of_stack() {
            self.use_in(of, R0)?;
            self.forget_bounds(R0);
            return self.user_place(dst, form);
        }
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        let (plan, options) = (self.plan, self.options);
        self.use_append_frame()?;
        let (room, base, _) = walks(plan, options)?;
        self.pool.sub("append_frames", |_| {
            let p = ArgAppender::new("append_frames", &["how", "first", "most"], plan);
            append_each(p, base, room, "append_frame", how::SPACE)
        })?;
        for (value, field) in given.iter().zip([at::IP, at::SP, at::BP]) {
            self.use_in(*value, R1)?;
            self.forget_bounds(R1);
            self.store(base as u32 + field, R1);
        }
        let marks = !self.makes_text(dst);
        if given.is_empty() {
            self.walk_whole(of, base, room.most, marks)?;
        } else {
            self.take_user_stack(Some(GIVEN), marks)?;
        }
        self.begin_text(width);
        if self.makes_text(dst) {
            self.append_symbols(form, of)?;
            self.end_text(off, width);
            return Ok(());
        }
        self.begin_mark(form)?;
        self.use_in(of, R2)?;
        self.forget_bounds(R2);
        self.asm.mov(R1, if form.full() { how::FULL } else { 0 });
        self.asm.mov(R3, form.piece());
        self.asm.call_sub("append_frames");
        self.append_text(&super::stacks::literal(";"), 0, None)?;
        self.end_text(off, width);
        Ok(())
    }

    /// `dst` = a mark for the name at address r0 of the current program.
    pub(in crate::lower) fn user_name(&mut self, dst: IrReg) -> Res {
        self.user_place(dst, SymbolicForm::UserName)
    }

    /// `dst` = a mark for address r0 of the current program.
    fn user_place(&mut self, dst: IrReg, form: SymbolicForm) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        let (plan, options) = (self.plan, self.options);
        self.use_append_frame()?;
        let (room, base, offsets) = walks(plan, options)?;
        self.pool.sub("user_address", |_| {
            let w = WalkGen {
                p: ArgAppender::new("user_address", &["address"], plan),
                base,
                room,
                o: offsets,
            };
            w.user_address()
        })?;
        self.asm.mov(R1, R0);
        self.asm.call_sub("user_address");
        self.begin_text(width);
        if self.makes_text(dst) {
            self.append_symbol(form, room.most)?;
            self.end_text(off, width);
            return Ok(());
        }
        self.begin_mark(form)?;
        self.asm.mov(R1, room.most as i32);
        self.asm.mov(R2, if form.full() { how::FULL } else { 0 });
        self.asm.call_sub("append_frame");
        self.append_text(&super::stacks::literal(";"), 0, None)?;
        self.end_text(off, width);
        Ok(())
    }

    fn use_append_frame(&mut self) -> Res {
        let (plan, options) = (self.plan, self.options);
        use_walk(self.pool, plan, options)?;
        let (room, base, _) = walks(plan, options)?;
        self.pool.sub(APPEND_HEX, |_| append_hex(plan))?;
        self.pool.sub("append_frame", |_| {
            let p = ArgAppender::new("append_frame", &["index", "how"], plan);
            append_frame(p, base, room)
        })
    }

    /// Walks the whole stack. A later part of it needs a walk only if the last walk was a different
    /// one.
    fn walk_whole(&mut self, first: Val, base: i16, most: u32, marks: bool) -> Res {
        let walked = self.asm.label();
        if first != Val::Imm(0) {
            self.load(R1, base as u32 + at::MOST);
            self.asm.jump_if(Cond::Eq, R1, most as i32, walked);
        }
        self.take_user_stack(Some(-1), marks)?;
        self.asm.bind(walked);
        Ok(())
    }
}

impl WalkGen<'_> {
    /// `user_walk(most)`: fills the room with at most `most` frames.
    fn user_walk(mut self) -> Res<Function> {
        let (count, first) = (self.room.count as i16, self.room.first as i16);
        let end = self.p.end;
        let native = self.asm().label();
        let o = self.o;
        self.asm().store(Size::DW, R6, count, 0);
        self.asm().store(Size::DW, R6, first, 0);
        let fits = self.asm().label();
        let most = self.room.most as i32;
        self.asm().mov(R8, R7);
        self.store_field(at::MOST, most);
        self.asm().jump_if(Cond::Ge, R7, most, fits);
        self.store_field(at::MOST, R7);
        self.asm().bind(fits);
        for field in [at::N, at::START, at::END, at::EXACT, at::RETURN] {
            self.store_field(field, 0);
        }
        self.asm().call(Helper::GetCurrentTaskBtf);
        self.asm().mov(R7, R0);
        self.asm().load(Size::DW, R1, R7, o.task_mm as i16);
        self.asm().jump_if(Cond::Eq, R1, 0, end);
        self.asm().load(Size::W, R1, R7, o.task_tgid as i16);
        self.store_field(at::TGID, R1);
        self.asm().mov(R1, R7);
        self.asm().call(Helper::TaskPtRegs);
        self.asm().mov(R7, R0);
        self.asm().load(Size::DW, R1, R7, o.regs_cs as i16);
        self.asm().alu(AluOp::And, R1, 0xffff);
        self.asm().mov(R2, R1);
        self.asm().alu(AluOp::And, R2, 3);
        self.asm().jump_if(Cond::Ne, R2, 3, end);
        let given = self.asm().label();
        self.asm().jump_if(Cond::Eq, R8, GIVEN, given);
        for (off, field) in [
            (o.regs_ip, at::IP),
            (o.regs_sp, at::SP),
            (o.regs_bp, at::BP),
        ] {
            self.asm().load(Size::DW, R2, R7, off as i16);
            self.store_field(field, R2);
        }
        self.asm().bind(given);
        // The selector of 32-bit code, whose frames are not followed.
        self.asm().jump_if(Cond::Ne, R1, 0x23, native);
        self.store_field(at::SP, -1);
        self.asm().bind(native);
        // One more call, which reports the end.
        for _ in 0..=self.room.most {
            self.asm().call_sub("user_frame");
            self.asm().jump_if(Cond::Ne, R0, 0, end);
        }
        self.p.finish()
    }

    /// `user_frame()`: notes a frame and finds the next one; returns nonzero at the end.
    fn user_frame(mut self) -> Res<Function> {
        let [stop, exact, look, known, most] = std::array::from_fn(|_| self.p.asm.label());
        let cap = self.room.most as i32;
        let (frames, count) = (self.room.frames, self.room.count as i16);
        self.load_field(R7, at::IP);
        self.asm().jump_if(Cond::Eq, R7, 0, stop);
        self.asm().mov(R8, R7);
        self.load_field(R1, at::N);
        self.load_field(R2, at::MOST);
        self.asm().jump_if(Cond::Ge, R1, R2, most);
        self.asm().jump_if(Cond::Eq, R1, 0, exact);
        self.load_field(R1, at::EXACT);
        self.asm().jump_if(Cond::Ne, R1, 0, exact);
        self.asm().add(R8, -1);
        self.asm().bind(exact);
        self.store_field(at::ADDR, R8);
        self.load_field(R1, at::START);
        self.asm().jump_if(Cond::Gt, R1, R8, look);
        self.load_field(R1, at::END);
        self.asm().jump_if(Cond::Gt, R1, R8, known);
        self.asm().bind(look);
        self.asm().call_sub("user_map");
        self.asm().bind(known);
        self.load_field(R1, at::N);
        self.asm().jump_if(Cond::Ge, R1, cap, stop);
        self.asm().mov(R3, R1);
        self.asm().alu(AluOp::Lsh, R3, 3);
        self.asm().add(R3, R6);
        self.asm().store(Size::DW, R3, frames as i16, R7);
        self.load_field(R4, at::FILE);
        let (files, offsets) = (at::FILES as i16, at::offsets(self.room.most) as i16);
        let base = self.base;
        self.asm().store(Size::DW, R3, base + files, R4);
        self.load_field(R4, at::OFF);
        self.asm().add(R4, R7);
        self.load_field(R2, at::EXACT);
        self.asm()
            .alu(AluOp::Lsh, R2, EXACT.trailing_zeros() as i32);
        self.asm().alu(AluOp::Or, R4, R2);
        self.asm().store(Size::DW, R3, base + offsets, R4);
        self.asm().add(R1, 1);
        self.store_field(at::N, R1);
        self.asm().alu(AluOp::Lsh, R1, 3);
        self.asm().store(Size::DW, R6, count, R1);
        self.asm().call_sub("user_step");
        let stepped = self.asm().label();
        self.asm().jump_if(Cond::Eq, R0, 0, stepped);
        self.asm().jump_if(Cond::Ne, R0, WANTS_COPY, stop);
        self.asm().call_sub("user_copy");
        self.asm().jump_if(Cond::Ne, R0, 0, stop);
        // Guesses from here on, without the facts about the previous mapping.
        for field in [at::COPY, at::ROWS, at::START, at::END] {
            self.store_field(field, 0);
        }
        self.store_field(at::FILE, 1);
        self.asm().call_sub("user_step");
        self.asm().jump_if(Cond::Ne, R0, 0, stop);
        self.asm().bind(stepped);
        let end = self.p.end;
        if let Some([utask, ..]) = self.o.returns {
            self.asm().call(Helper::GetCurrentTaskBtf);
            self.asm().load(Size::DW, R1, R0, utask as i16);
            self.asm().jump_if(Cond::Eq, R1, 0, end);
            self.asm().call_sub("user_return");
        }
        self.asm().jump(end);
        self.asm().bind(most);
        self.asm().jump_if(Cond::Ne, R2, cap, stop);
        self.count(percpu::CUT_STACKS);
        self.finish_with_flag(stop)
    }

    /// `user_address(address)`: stores the address as the frame behind all others.
    fn user_address(mut self) -> Res<Function> {
        let place = 8 * self.room.most;
        self.asm().call(Helper::GetCurrentTaskBtf);
        let tgid = self.o.task_tgid as i16;
        self.asm().load(Size::W, R1, R0, tgid);
        self.store_field(at::TGID, R1);
        self.store_field(at::ADDR, R7);
        let frame = (self.room.frames + place) as i16;
        self.asm().store(Size::DW, R6, frame, R7);
        self.asm().call_sub("user_map");
        let [known, bare] = std::array::from_fn(|_| self.asm().label());
        self.asm().mov(R8, 0);
        self.load_field(R1, at::FILE);
        self.asm().jump_if(Cond::Ne, R1, 0, known);
        // Zero-initialised variables lie behind the mapping of their file.
        self.load_field(R1, at::START);
        self.asm().jump_if(Cond::Eq, R1, 0, known);
        self.asm().add(R1, -1);
        self.store_field(at::ADDR, R1);
        self.asm().call_sub("user_map");
        self.asm().ld_imm64(R8, BEHIND);
        self.asm().bind(known);
        self.load_field(R1, at::FILE);
        self.store_field(at::FILES + place, R1);
        self.asm().jump_if(Cond::Eq, R1, 0, bare);
        self.load_field(R1, at::OFF);
        self.asm().add(R1, R7);
        self.asm().alu(AluOp::Or, R1, R8);
        self.store_field(at::offsets(self.room.most) + place, R1);
        self.asm().bind(bare);
        self.p.finish()
    }

    /// `user_return()`: replaces the last return address by the original one if a return probe has
    /// exchanged it. The kernel identifies it by its position on the stack. Its list is ordered, so
    /// the search starts where the previous one ended.
    fn user_return(mut self, [utask, first, stack, original, next]: [u32; 5]) -> Res<Function> {
        let [found, begun] = std::array::from_fn(|_| self.p.asm.label());
        let end = self.p.end;
        self.load_field(R8, at::SP);
        self.asm().add(R8, -8);
        self.load_field(R7, at::RETURN);
        self.asm().jump_if(Cond::Ne, R7, 0, begun);
        self.asm().call(Helper::GetCurrentTaskBtf);
        self.asm().load(Size::DW, R7, R0, utask as i16);
        self.word(R7, R7, first, end);
        self.asm().bind(begun);
        for _ in 0..RETURNS {
            self.asm().jump_if(Cond::Eq, R7, 0, end);
            self.word(R9, R7, stack, end);
            self.asm().jump_if(Cond::Eq, R9, R8, found);
            self.word(R7, R7, next, end);
        }
        self.asm().jump(end);
        self.asm().bind(found);
        self.store_field(at::RETURN, R7);
        self.word(R9, R7, original, end);
        self.store_field(at::IP, R9);
        self.p.finish()
    }
}
