//! The interrupted code's mode, and the current process's command line.

use spile_ir::{Event, Reg as IrReg};

use crate::isa::asm::{Asm, Function};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Reg, Size};
use crate::layout::{self, percpu};
use crate::lower::text::callback;
use crate::lower::{CTX, HandlerCodegen, Res, TMP};

/// The processor mode in the registers of a perf event (`struct bpf_perf_event_data`): x86-64.
mod arch {
    /// Offset of `cs`.
    pub(super) const MODE: i16 = 136;
    /// Bits of `cs` that hold the privilege level.
    pub(super) const MASK: i32 = 3;
    /// The privilege level of user mode.
    pub(super) const USER: i32 = 3;
}

const PAGE: i32 = layout::PAGE as i32;

impl HandlerCodegen<'_> {
    /// `dst` = the field at that offset.
    pub(in crate::lower) fn task_field_load(
        &mut self,
        dst: IrReg,
        at: i16,
        (size, signed): (u8, bool),
    ) -> Res {
        let access = Size::from_bytes(size.into()).ok_or("an access of that size")?;
        let task = self.task();
        let field = self.asm.read(access, task, at);
        self.extend_into(dst, field, (size, signed))
    }

    /// 1 if a perf event interrupted user mode, and at probes in user code. Other events,
    /// including system calls, come from kernel code; as in SystemTap they give 0.
    pub(in crate::lower) fn user_mode(&mut self) -> Reg {
        let event = &self.program.handlers[self.handler.index()].event;
        let perf = matches!(event, Event::Perf { .. } | Event::Watch(_));
        let user = self.asm.copy(i32::from(event.in_user_code()));
        if perf {
            let kernel = self.asm.label();
            let mode = self.asm.word(R10, CTX);
            self.asm.load(Size::DW, mode, mode, arch::MODE);
            self.asm.alu(AluOp::And, mode, arch::MASK);
            self.asm.jump_if(Cond::Ne, mode, arch::USER, kernel);
            self.asm.mov(user, 1);
            self.asm.bind(kernel);
        }
        user
    }

    /// `dst` = the current process's arguments, joined by spaces, with empty ones as `""`; "" for
    /// kernel threads. Memory that is not resident cannot be read here: the command line then ends
    /// at its page's end, or is empty.
    pub(in crate::lower) fn cmdline(&mut self, dst: IrReg) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        let o = &self.options.offsets;
        let fields = [o.task_mm, o.mm_arg_start, o.mm_arg_end];
        let [Some(mm), Some(start), Some(end)] =
            fields.map(|f| f.and_then(|f| i16::try_from(f).ok()))
        else {
            return Err("cmdline_str() needs fields that this kernel's BTF does not have".into());
        };
        self.needs_loop("cmdline_str()")?;
        let most = self.plan.max_string;
        self.pool.sub("join_args", |_| join_args())?;
        self.pool.sub("join_args_at", |_| join_args_at(most))?;
        let (fits, read, done) = (self.asm.label(), self.asm.label(), self.asm.label());
        let (length, from, got) = (TMP[0], TMP[1], TMP[2]);
        self.fill_zero(off, width);
        let task = self.task();
        self.asm.load(Size::DW, R1, task, mm);
        self.asm.jump_if(Cond::Eq, R1, 0, done);
        self.asm.load(Size::DW, R3, R1, start);
        self.asm.load(Size::DW, R2, R1, end);
        self.asm.alu(AluOp::Sub, R2, R3);
        self.asm.jump_if(Cond::Sle, R2, 0, done);
        self.asm.store(Size::DW, R10, length, R2);
        self.asm.store(Size::DW, R10, from, R3);
        self.asm.jump_if(Cond::Le, R2, width as i32, fits);
        self.asm.mov(R2, width as i32 - 1);
        self.asm.bind(fits);
        self.asm.store(Size::DW, R10, got, R2);
        self.block_addr(R1, off);
        self.asm.call(Helper::ProbeReadUser);
        self.asm.jump_if(Cond::Eq, R0, 0, read);
        // Reads the first page alone: the second one may not be resident.
        self.asm.load(Size::DW, R3, R10, from);
        self.asm.mov(R2, R3);
        self.asm.neg(R2);
        self.asm.alu(AluOp::And, R2, PAGE - 1);
        self.asm.jump_if(Cond::Eq, R2, 0, done);
        let (short, inside) = (self.asm.label(), self.asm.label());
        self.asm.load(Size::DW, R1, R10, length);
        self.asm.jump_if(Cond::Le, R2, R1, short);
        self.asm.mov(R2, R1);
        self.asm.bind(short);
        self.asm.jump_if(Cond::Le, R2, width as i32 - 1, inside);
        self.asm.mov(R2, width as i32 - 1);
        self.asm.bind(inside);
        self.asm.store(Size::DW, R10, got, R2);
        self.block_addr(R1, off);
        self.asm.call(Helper::ProbeReadUser);
        self.asm.jump_if(Cond::Ne, R0, 0, done);
        self.asm.bind(read);
        self.block_addr(R1, off);
        self.asm.mov(R2, width as i32 / 8);
        self.block_addr(R3, self.plan.scratch.tmp);
        self.asm.call_sub("join_args");
        self.empty_args(off, width, (got, from))?;
        self.truncate(off, width);
        self.asm.load(Size::DW, R1, R10, length);
        self.asm.jump_if(Cond::Le, R1, width as i32, done);
        self.count(percpu::TRUNCATED);
        self.asm.bind(done);
        Ok(())
    }

    /// Builds the command line again if r0 reports empty arguments, or if the last arguments are
    /// empty. `got` holds the number of bytes read, `from` their address.
    fn empty_args(&mut self, off: u32, width: u32, (got, from): (i16, i16)) -> Res {
        let (max, tmp) = (self.plan.max_string, self.plan.scratch.tmp);
        if width > max || width < 8 {
            return Ok(());
        }
        let [anew, none] = std::array::from_fn(|_| self.asm.label());
        self.asm.jump_if(Cond::Ne, R0, 0, anew);
        // Empty arguments at the end have left zero bytes in front of the last one.
        self.asm.load(Size::DW, R1, R10, got);
        self.asm.jump_if(Cond::Lt, R1, 2, none);
        self.asm.jump_if(Cond::Gt, R1, width as i32, none);
        self.block_addr(R2, off);
        self.asm.add(R2, R1);
        self.asm.load(Size::B, R1, R2, -2);
        self.asm.jump_if(Cond::Ne, R1, 0, none);
        self.asm.bind(anew);
        self.asm.load(Size::DW, R2, R10, got);
        self.asm.jump_if(Cond::Gt, R2, width as i32, none);
        self.asm.load(Size::DW, R3, R10, from);
        self.block_addr(R1, self.plan.scratch.text);
        self.asm.call(Helper::ProbeReadUser);
        self.asm.jump_if(Cond::Ne, R0, 0, none);
        let name = format!("args_{width}");
        self.pool
            .sub(&format!("{name}_at"), |_| args_at(&name, width))?;
        self.pool.sub(&name, |_| args_sub(&name, width))?;
        self.fill_zero(off, width);
        self.asm.load(Size::DW, R1, R10, got);
        self.store(tmp + args::COUNT as u32, R1);
        self.store(tmp + args::POS as u32, 0);
        self.store(tmp + args::CUT as u32, 0);
        self.block_addr(R1, self.plan.scratch.text);
        self.block_addr(R2, off);
        self.block_addr(R3, tmp);
        self.asm.call_sub(name);
        let (base, disp) = self.block_operand(tmp + args::CUT as u32, 8);
        self.asm.load(Size::DW, R1, base, disp);
        self.asm.jump_if(Cond::Eq, R1, 0, none);
        self.count(percpu::TRUNCATED);
        self.asm.bind(none);
        Ok(())
    }
}

/// `args(text, out, words)`: turns consecutive arguments into a command line.
fn args_sub(name: &str, wide: u32) -> Result<Function, String> {
    let mut asm = Asm::new(name, &["text", "out", "words"]);
    for (slot, reg) in [(args::TEXT, R1), (args::OUT, R2), (args::WORDS, R3)] {
        asm.store(Size::DW, R10, slot - args::SIZE, reg);
    }
    asm.mov(R1, wide as i32);
    asm.loop_call(format!("{name}_at"), -args::SIZE);
    asm.mov(R0, 0);
    asm.exit();
    asm.finish().map_err(|e| e.to_string())
}

/// The callback that takes one byte for [`args_sub`].
fn args_at(name: &str, wide: u32) -> Result<Function, String> {
    let mut asm = Asm::new(format!("{name}_at"), &["index", "slots"]);
    let [go_on, stop, cut, space, put] = std::array::from_fn(|_| asm.label());
    asm.jump_if(Cond::Ge, R1, wide as i32, stop);
    asm.load(Size::DW, R6, R2, args::WORDS);
    asm.load(Size::DW, R7, R6, args::COUNT);
    asm.jump_if(Cond::Ge, R1, R7, stop);
    asm.load(Size::DW, R3, R2, args::TEXT);
    asm.add(R3, R1);
    asm.load(Size::DW, R5, R6, args::POS);
    // Leaves room for `""`, a space and the NUL.
    asm.jump_if(Cond::Gt, R5, wide as i32 - 4, cut);
    asm.load(Size::DW, R4, R2, args::OUT);
    asm.add(R4, R5);
    asm.load(Size::B, R8, R3, 0);
    asm.jump_if(Cond::Ne, R8, 0, put);
    asm.jump_if(Cond::Eq, R1, 0, space);
    asm.load(Size::B, R2, R3, -1);
    asm.jump_if(Cond::Ne, R2, 0, space);
    asm.store(Size::H, R4, 0, i32::from(u16::from_ne_bytes(*b"\"\"")));
    asm.add(R4, 2);
    asm.add(R5, 2);
    asm.store(Size::DW, R6, args::POS, R5);
    asm.bind(space);
    // No space follows the last argument.
    asm.add(R1, 1);
    asm.jump_if(Cond::Ge, R1, R7, stop);
    asm.mov(R8, i32::from(b' '));
    asm.bind(put);
    asm.store(Size::B, R4, 0, R8);
    asm.add(R5, 1);
    asm.store(Size::DW, R6, args::POS, R5);
    asm.jump(go_on);
    asm.bind(cut);
    asm.store(Size::DW, R6, args::CUT, 1);
    asm.jump(stop);
    asm.bind(go_on);
    callback::end(&mut asm, stop);
    asm.finish().map_err(|e| e.to_string())
}

/// Stack slots and scratch words of [`args_sub`].
mod args {
    /// Slot: the arguments.
    pub(super) const TEXT: i16 = 0;
    /// Slot: the command line.
    pub(super) const OUT: i16 = 8;
    /// Slot: the scratch words.
    pub(super) const WORDS: i16 = 16;
    /// Size of the slots in bytes.
    pub(super) const SIZE: i16 = 24;
    /// Word: length of the arguments.
    pub(super) const COUNT: i16 = 0;
    /// Word: length of the command line.
    pub(super) const POS: i16 = 8;
    /// Word: whether something did not fit.
    pub(super) const CUT: i16 = 16;
}

/// `join_args(text, words, scratch)`: replaces the zero bytes of a text by spaces, except for those
/// at its end. Returns nonzero if two of them were adjacent.
fn join_args() -> Result<Function, String> {
    let mut asm = Asm::new("join_args", &["text", "words", "scratch"]);
    let here = -slot::SIZE;
    for at in [0, slot::ZEROS, slot::PAIRS] {
        asm.store(Size::DW, R3, at, 0);
    }
    for (slot, reg) in [(slot::TEXT, R1), (slot::WORDS, R2), (slot::ABOVE, R3)] {
        asm.store(Size::DW, R10, here + slot, reg);
    }
    asm.mov(R1, R2);
    asm.loop_call("join_args_at", here);
    asm.load(Size::DW, R1, R10, here + slot::ABOVE);
    asm.load(Size::DW, R0, R1, slot::PAIRS);
    asm.exit();
    asm.finish().map_err(|e| e.to_string())
}

/// Stack slots that the callback of `join_args` reads.
mod slot {
    /// The text.
    pub(super) const TEXT: i16 = 0;
    /// Number of words in the text.
    pub(super) const WORDS: i16 = 8;
    /// A scratch word; its top byte is nonzero if a later byte is nonzero.
    pub(super) const ABOVE: i16 = 16;
    /// Size of the slots in bytes.
    pub(super) const SIZE: i16 = 24;
    /// The scratch word behind: marks of the spaces in the next word.
    pub(super) const ZEROS: i16 = 8;
    /// The scratch word behind that: marks of adjacent spaces.
    pub(super) const PAIRS: i16 = 16;
}

/// Takes eight bytes, from the last word down. The verifier would follow each iteration of an
/// inline loop.
fn join_args_at(most: u32) -> Result<Function, String> {
    let mut asm = Asm::new("join_args_at", &["index", "slots"]);
    let stop = asm.label();
    asm.load(Size::DW, R4, R2, slot::WORDS);
    asm.add(R4, -1);
    asm.alu(AluOp::Sub, R4, R1);
    asm.jump_if(Cond::Ge, R4, most as i32 / 8, stop);
    asm.alu(AluOp::Lsh, R4, 3);
    asm.load(Size::DW, R1, R2, slot::TEXT);
    asm.add(R4, R1);
    asm.load(Size::DW, R2, R2, slot::ABOVE);
    asm.load(Size::DW, R3, R2, 0);
    asm.ld_imm64(R6, 0x7f7f_7f7f_7f7f_7f7f);
    asm.load(Size::DW, R0, R4, 0);
    // r3: bytes that are nonzero or precede a nonzero byte.
    asm.alu(AluOp::Or, R3, R0);
    for shift in [8, 16, 32] {
        asm.mov(R5, R3);
        asm.alu(AluOp::Rsh, R5, shift);
        asm.alu(AluOp::Or, R3, R5);
    }
    // Top bits of the nonzero bytes: r7 for r3, r8 for the word.
    for (mark, word) in [(R7, R3), (R8, R0)] {
        asm.mov(mark, word);
        asm.alu(AluOp::And, mark, R6);
        asm.add(mark, R6);
        asm.alu(AluOp::Or, mark, word);
        asm.alu(AluOp::Or, mark, R6);
    }
    asm.alu(AluOp::Xor, R8, -1);
    asm.alu(AluOp::And, R8, R7);
    // Spaces whose next byte is also a space; it may be in the next word.
    asm.load(Size::DW, R7, R2, slot::ZEROS);
    asm.store(Size::DW, R2, slot::ZEROS, R8);
    asm.alu(AluOp::Lsh, R7, 56);
    asm.mov(R5, R8);
    asm.alu(AluOp::Rsh, R5, 8);
    asm.alu(AluOp::Or, R7, R5);
    asm.alu(AluOp::And, R7, R8);
    asm.load(Size::DW, R5, R2, slot::PAIRS);
    asm.alu(AluOp::Or, R5, R7);
    asm.store(Size::DW, R2, slot::PAIRS, R5);
    // 0x80 becomes a space.
    asm.alu(AluOp::Rsh, R8, 2);
    asm.alu(AluOp::Or, R0, R8);
    asm.store(Size::DW, R4, 0, R0);
    asm.alu(AluOp::Lsh, R3, 56);
    asm.store(Size::DW, R2, 0, R3);
    callback::end(&mut asm, stop);
    asm.finish().map_err(|e| e.to_string())
}
