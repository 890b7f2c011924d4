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
//! that would inspect a mark; there the handler makes the text itself (`lines.rs` for the kernel's
//! stacks, `places.rs` for positions in the kernel's source, `names.rs` for programs).

mod lines;
mod places;

use spile_ir::{Event, Reg as IrReg, Val};

use crate::isa::asm::{Function, Label, Section};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Reg, Size, Src};
use crate::layout::{SymbolicForm, percpu, shared, stack_words};
use crate::lower::text::append::APPEND_HEX;
use crate::lower::text::append::flag;
use crate::lower::text::put::ArgAppender;
use crate::lower::{CTX, HandlerCodegen, Res, StrOperand, TMP};
use crate::plan::{OWN_FRAMES, StackRoom};

/// The number of frames that a tracepoint may have behind it.
const BETWEEN: usize = 2;
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
                self.pool.sub("stack_first", |_| {
                    stack_first(ArgAppender::new("stack_first", &["words"], plan), &room)
                })?;
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
        let how = if behind { how::BEHIND } else { how::BETWEEN };
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
        let room = self.room()?.clone();
        let plan = self.plan;
        self.pool.use_append_hex(plan)?;
        self.pool.sub("append_address", |_| {
            let p = ArgAppender::new("append_address", &["index", "how"], plan);
            append_address(p, &room)
        })?;
        self.pool.sub("append_stack", |_| {
            let p = ArgAppender::new("append_stack", &["how", "first", "most"], plan);
            append_stack(p, &room, "append_address")
        })
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
        self.asm.mov(R1, how::BETWEEN);
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
            match form.by_kernel_lines() {
                true => self.append_places_of(form, &of)?,
                false => self.append_lines_of(form, &of)?,
            }
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

/// `stack_first(words)`: finds the first frame that is not the probe's own. `words` is the offset
/// of a tracepoint's ranges in the shared block.
fn stack_first(mut p: ArgAppender<'_>, room: &StackRoom) -> Res<Function> {
    let asm = &mut p.asm;
    let first = room.first as i16;
    asm.store(Size::DW, R6, first, 0);
    asm.ld_data(R8, Section::Bss, room.words);
    let scanned = asm.label();
    asm.load(Size::DW, R2, R6, room.count as i16);
    asm.load(Size::DW, R3, R8, stack_words::RUN as i16);
    asm.load(Size::DW, R4, R8, stack_words::RUN as i16 + 8);
    for i in 0..OWN_FRAMES {
        let next = asm.label();
        asm.jump_if(Cond::Le, R2, 8 * i as i32, scanned);
        asm.load(Size::DW, R1, R6, (room.frames + 8 * i) as i16);
        asm.jump_if(Cond::Lt, R1, R3, next);
        asm.jump_if(Cond::Ge, R1, R4, next);
        asm.store(Size::DW, R6, first, 8 * (i as i32 + 1));
        asm.bind(next);
    }
    asm.bind(scanned);
    asm.jump_if(Cond::Gt, R7, room.words as i32 + 8192, p.end);
    asm.ld_data(R8, Section::Bss, 0);
    asm.add(R8, R7);
    for _ in 0..BETWEEN {
        asm.load(Size::DW, R1, R6, first);
        asm.jump_if(Cond::Gt, R1, room.bytes() as i32 - 8, p.end);
        asm.load(Size::DW, R2, R6, room.count as i16);
        asm.jump_if(Cond::Ge, R1, R2, p.end);
        asm.mov(R3, R6);
        asm.add(R3, R1);
        asm.add(R3, room.frames as i32);
        asm.load(Size::DW, R3, R3, 0);
        let (own, next) = (asm.label(), asm.label());
        for pair in 0..stack_words::PAIRS {
            let other = asm.label();
            asm.load(Size::DW, R4, R8, 16 * pair as i16);
            asm.jump_if(Cond::Lt, R3, R4, other);
            asm.load(Size::DW, R4, R8, 16 * pair as i16 + 8);
            asm.jump_if(Cond::Lt, R3, R4, own);
            asm.bind(other);
        }
        asm.jump(next);
        asm.bind(own);
        asm.add(R1, 8);
        asm.store(Size::DW, R6, first, R1);
        asm.bind(next);
    }
    p.finish()
}

/// How addresses are appended, in addition to [`flag::MARK`].
mod how {
    /// With a space in front, except for the first address.
    pub(super) const BETWEEN: i32 = 0x100;
    /// With a space behind.
    pub(super) const BEHIND: i32 = 0x200;
    /// The first address.
    pub(super) const FIRST: i32 = 0x400;
}

/// `NAME(how, first, most)`: appends up to `most` addresses in the room, by a call of `one(index,
/// how)` for each.
fn append_stack(mut p: ArgAppender<'_>, room: &StackRoom, one: &'static str) -> Res<Function> {
    p.asm.alu(AluOp::Or, R7, how::FIRST);
    // One more call, which reports the end.
    for _ in 0..=room.most {
        p.asm.jump_if(Cond::Eq, R9, 0, p.end);
        p.asm.mov(R1, R8);
        p.asm.mov(R2, R7);
        p.asm.call_sub(one);
        p.asm.jump_if(Cond::Ne, R0, 0, p.end);
        p.asm.alu(AluOp::And, R7, how::FIRST - 1);
        p.asm.add(R8, 1);
        p.asm.add(R9, -1);
    }
    p.finish()
}

/// `append_address(index, how)`: appends an address in the room; returns nonzero behind the last.
fn append_address(mut p: ArgAppender<'_>, room: &StackRoom) -> Res<Function> {
    let [bare, last, cut, number] = std::array::from_fn(|_| p.asm.label());
    address_of_room(&mut p, room, last, cut);
    p.asm.mov(R1, R8);
    p.asm.alu(AluOp::And, R1, how::BETWEEN | how::FIRST);
    p.asm.jump_if(Cond::Ne, R1, how::BETWEEN, bare);
    put_byte(&mut p, b' ');
    p.asm.bind(bare);
    put_hex_as(&mut p, R9, R8);
    p.asm.alu(AluOp::And, R8, how::BEHIND);
    p.asm.jump_if(Cond::Eq, R8, 0, number);
    put_byte(&mut p, b' ');
    p.asm.bind(number);
    finish_addresses(p, last, cut)
}

/// `r9` = the address in the room with index r7; goes to `last` behind the last, to `cut` at the
/// limit.
fn address_of_room(p: &mut ArgAppender<'_>, room: &StackRoom, last: Label, cut: Label) {
    let asm = &mut p.asm;
    asm.mov(R1, R7);
    asm.alu(AluOp::Lsh, R1, 3);
    asm.load(Size::DW, R9, R6, room.first as i16);
    asm.add(R9, R1);
    asm.load(Size::DW, R1, R6, room.count as i16);
    asm.jump_if(Cond::Ge, R9, R1, last);
    asm.jump_if(Cond::Gt, R9, room.bytes() as i32 - 8, last);
    asm.add(R9, R6);
    asm.load(Size::DW, R9, R9, room.frames as i16);
    // A null entry ends a chain.
    asm.jump_if(Cond::Eq, R9, 0, last);
    asm.jump_if(Cond::Ge, R7, room.most as i32, cut);
}

/// Ends with 0; at the labels, where there are no more addresses, with 1.
fn finish_addresses(mut p: ArgAppender<'_>, last: Label, cut: Label) -> Res<Function> {
    let end = p.end;
    p.asm.jump(end);
    p.asm.bind(cut);
    p.asm.load(Size::DW, R1, R6, percpu::CUT_STACKS as i16);
    p.asm.add(R1, 1);
    p.asm.store(Size::DW, R6, percpu::CUT_STACKS as i16, R1);
    p.asm.bind(last);
    p.asm.mov(R0, 1);
    p.asm.exit();
    p.finish()
}

/// Appends a byte. Clobbers r1 to r3.
pub(in crate::lower) fn put_byte(p: &mut ArgAppender<'_>, byte: u8) {
    let scratch = &p.plan.scratch;
    let asm = &mut p.asm;
    asm.load(Size::DW, R1, R6, scratch.text_pos as i16);
    asm.jump_if(Cond::Gt, R1, p.plan.max_string as i32, p.end);
    asm.mov(R2, R6);
    asm.add(R2, scratch.text as i32);
    asm.add(R2, R1);
    asm.store(Size::B, R2, 0, i32::from(byte));
    asm.add(R1, 1);
    asm.store(Size::DW, R6, scratch.text_pos as i16, R1);
}

/// Appends a number in hex. Clobbers r0 to r5.
pub(in crate::lower) fn put_hex(p: &mut ArgAppender<'_>, number: Reg) {
    put_hex_as(p, number, 0);
}

/// Appends a number in hex, with `0x` if `how` has [`flag::MARK`].
fn put_hex_as(p: &mut ArgAppender<'_>, number: Reg, how: impl Into<Src>) {
    p.asm.mov(R1, number);
    p.asm.mov(R2, how);
    p.asm.call_sub(APPEND_HEX);
}
