//! Text of kernel stacks for handlers that inspect it. `bpf_snprintf` writes a symbol with its
//! offset, size and module; the code removes what the controller would not write.

use spile_ir::Val;

use super::{KERNEL, address_of_room, append_stack, finish_addresses, put_byte, put_hex_as};
use crate::isa::asm::{Function, Label, Section};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size};
use crate::layout::{SymbolicForm, percpu};
use crate::lower::text::append::flag;
use crate::lower::text::put::ArgAppender;
use crate::lower::{HandlerCodegen, Res, StrOperand};
use crate::plan::StackRoom;

/// The parts to write for an address.
mod how {
    /// The address in front.
    pub(super) const LINE: i32 = 1;
}

/// The largest length of a symbol's name (`KSYM_NAME_LEN`), of its size in hex, and of a module's
/// name in brackets.
const NAME: i32 = 512;
const SIZE: i32 = 20;
const MODULE: i32 = 64;
/// Bytes from which a number in a text is parsed, including its terminator.
const NUMBER: i32 = 24;
/// The largest number of bytes that are searched for addresses.
const MOST: u32 = 8192;

fn form_flags(form: SymbolicForm) -> i32 {
    if form == SymbolicForm::KernelSimple {
        0
    } else {
        how::LINE
    }
}

impl HandlerCodegen<'_> {
    /// Appends the frames in the room from `first` on, with the text that a mark stands for.
    pub(super) fn append_kernel_lines(&mut self, form: SymbolicForm, first: Val) -> Res {
        self.use_kernel_line()?;
        let room = self.room()?.clone();
        let plan = self.plan;
        self.pool.sub("kernel_frame_line", |_| {
            let p = ArgAppender::new("kernel_frame_line", &["index", "how"], plan);
            kernel_frame_line(p, &room)
        })?;
        self.pool.sub("kernel_frame_lines", |_| {
            let p = ArgAppender::new("kernel_frame_lines", &["how", "first", "most"], plan);
            append_stack(p, &room, "kernel_frame_line")
        })?;
        self.use_in(first, R2)?;
        self.forget_bounds(R2);
        self.asm.mov(R1, form_flags(form));
        self.asm.mov(R3, form.piece());
        self.asm.call_sub("kernel_frame_lines");
        Ok(())
    }

    /// Appends the lines of the addresses in a text of the block.
    pub(super) fn append_lines_of(&mut self, form: SymbolicForm, of: &StrOperand) -> Res {
        self.use_kernel_line()?;
        self.append_each_of("kernel_line", form_flags(form), of)
    }

    /// Calls `one(address, how)` for each address in a text of the block.
    pub(super) fn append_each_of(&mut self, one: &'static str, how: i32, of: &StrOperand) -> Res {
        let StrOperand::Slot { off, width } = of else {
            return Err("a text that is not in the block".into());
        };
        let plan = self.plan;
        let word = format!("{one}_of_word");
        self.pool.sub(&word, |_| {
            let p = ArgAppender::new(&word, &["at", "first", "how"], plan);
            for_word_sub(p, one)
        })?;
        let name = format!("{one}s_of_{width}");
        let bytes = (*width).min(MOST);
        self.pool.sub(&name, |_| {
            let p = ArgAppender::new(&name, &["text", "how"], plan);
            for_text_sub(p, bytes, word)
        })?;
        self.asm.mov(R1, *off as i32);
        self.asm.mov(R2, how);
        self.asm.call_sub(name);
        Ok(())
    }

    fn use_kernel_line(&mut self) -> Res {
        let plan = self.plan;
        self.pool.use_append_hex(plan)?;
        self.pool.sub("kernel_line", |pool| {
            let format = pool.constant(b"%pS");
            let p = ArgAppender::new("kernel_line", &["address", "how"], plan);
            kernel_line(p, format)
        })
    }
}

/// `kernel_frame_line(index, how)`: appends the line of a frame in the room; returns nonzero behind
/// the last.
fn kernel_frame_line(mut p: ArgAppender<'_>, room: &StackRoom) -> Res<Function> {
    let [last, cut] = std::array::from_fn(|_| p.asm.label());
    address_of_room(&mut p, room, last, cut);
    p.asm.mov(R1, R9);
    p.asm.mov(R2, R8);
    p.asm.alu(AluOp::And, R2, how::LINE);
    p.asm.call_sub("kernel_line");
    finish_addresses(p, last, cut)
}

/// `ONEs_of(text, how)`: calls `word` for each address in the text at that offset of the block.
fn for_text_sub(mut p: ArgAppender<'_>, bytes: u32, word: String) -> Res<Function> {
    let again = p.asm.label();
    let next = p.plan.scratch.tmp as i16 + 16;
    p.asm.store(Size::DW, R6, next, R7);
    p.asm.mov(R9, bytes as i32);
    p.asm.bind(again);
    p.asm.load(Size::DW, R1, R6, next);
    p.asm.mov(R2, R7);
    p.asm.mov(R3, R8);
    p.asm.call_sub(word);
    p.asm.jump_if(Cond::Eq, R0, 0, p.end);
    p.asm.store(Size::DW, R6, next, R0);
    p.asm.add(R9, -1);
    p.asm.jump_if(Cond::Ne, R9, 0, again);
    p.finish()
}

/// `ONE_of_word(at, first, how)`: calls `one(address, how)` for the address at offset `at` of the
/// block, in a text that begins at `first`. Returns the offset to continue from, or 0 at the text's
/// end. Skips words that are not addresses.
fn for_word_sub(mut p: ArgAppender<'_>, one: &'static str) -> Res<Function> {
    let [begins, next, found] = std::array::from_fn(|_| p.asm.label());
    let scratch = &p.plan.scratch;
    let (most, value) = (scratch.out as i32, scratch.tmp as i16 + 24);
    let end = p.end;
    let asm = &mut p.asm;
    asm.jump_if(Cond::Eq, R7, 0, end);
    asm.jump_if(Cond::Gt, R7, most, end);
    asm.mov(R5, R6);
    asm.add(R5, R7);
    asm.load(Size::B, R1, R5, 0);
    asm.jump_if(Cond::Eq, R1, 0, end);
    asm.jump_if(Cond::Le, R1, i32::from(b' '), next);
    // An address begins the text or follows a space.
    asm.jump_if(Cond::Eq, R7, R8, begins);
    asm.load(Size::B, R1, R5, -1);
    asm.jump_if(Cond::Gt, R1, i32::from(b' '), next);
    asm.bind(begins);
    asm.mov(R1, R5);
    asm.mov(R2, NUMBER);
    asm.mov(R3, 16);
    asm.mov(R4, R6);
    asm.add(R4, i32::from(value));
    asm.call(Helper::Strtoul);
    asm.jump_if(Cond::Sle, R0, 0, next);
    asm.jump_if(Cond::Sgt, R0, NUMBER, next);
    asm.mov(R8, R7);
    asm.add(R8, R0);
    asm.mov(R1, R6);
    asm.add(R1, R8);
    asm.load(Size::B, R1, R1, 0);
    asm.jump_if(Cond::Le, R1, i32::from(b' '), found);
    asm.bind(next);
    asm.mov(R0, R7);
    asm.add(R0, 1);
    asm.exit();
    asm.bind(found);
    asm.load(Size::DW, R1, R6, value);
    asm.mov(R2, R9);
    asm.call_sub(one);
    asm.mov(R0, R8);
    asm.exit();
    p.finish()
}

/// `kernel_line(address, how)`: appends the line of an address.
fn kernel_line(mut p: ArgAppender<'_>, format: u32) -> Res<Function> {
    let [symbol, simple, fits, known, ends] = std::array::from_fn(|_| p.asm.label());
    let scratch = &p.plan.scratch;
    let (pos, text, value) = (
        scratch.text_pos as i16,
        scratch.text as i32,
        scratch.tmp as i16 + 8,
    );
    let (most, end) = (p.plan.max_string as i32, p.end);
    p.asm.jump_if(Cond::Eq, R8, 0, symbol);
    put_byte(&mut p, b' ');
    put_hex_as(&mut p, R7, flag::MARK);
    for byte in b" : " {
        put_byte(&mut p, *byte);
    }
    p.asm.bind(symbol);
    let asm = &mut p.asm;
    asm.store(Size::DW, R6, value, R7);
    asm.load(Size::DW, R7, R6, pos);
    asm.jump_if(Cond::Gt, R7, most, end);
    // r9 = destination of the symbol.
    asm.mov(R9, R6);
    asm.add(R9, text);
    asm.add(R9, R7);
    asm.mov(R1, R9);
    asm.mov(R2, most);
    asm.ld_data(R3, Section::Rodata, format);
    asm.mov(R4, R6);
    asm.add(R4, i32::from(value));
    asm.mov(R5, 8);
    asm.call(Helper::Snprintf);
    asm.jump_if(Cond::Sle, R0, 2, end);
    asm.jump_if(Cond::Le, R0, most, fits);
    // Writes one byte more than the string's width, so that a truncation is noticed.
    asm.mov(R1, most + 1);
    asm.store(Size::DW, R6, pos, R1);
    asm.jump_if(Cond::Ne, R7, 0, end);
    asm.load(Size::DW, R1, R6, percpu::TRUNCATED as i16);
    asm.add(R1, 1);
    asm.store(Size::DW, R6, percpu::TRUNCATED as i16, R1);
    asm.jump(end);
    asm.bind(fits);
    asm.add(R0, -1);
    asm.add(R7, R0);
    asm.store(Size::DW, R6, pos, R7);
    // No name begins with a digit: a bare address has no module.
    asm.load(Size::B, R1, R9, 0);
    asm.jump_if(Cond::Eq, R1, i32::from(b'0'), ends);
    asm.jump_if(Cond::Eq, R8, 0, simple);
    asm.add(R9, R0);
    asm.load(Size::B, R1, R9, -1);
    asm.jump_if(Cond::Eq, R1, i32::from(b']'), ends);
    asm.bind(known);
    for byte in &KERNEL[..KERNEL.len()] {
        put_byte(&mut p, *byte);
    }
    p.asm.bind(ends);
    put_byte(&mut p, b'\n');
    p.asm.jump(end);
    p.asm.bind(simple);
    without_size(&mut p, known, ends);
    p.finish()
}

/// Removes the size from the symbol at r9, `NAME+OFFSET/SIZE [MODULE]`. Goes to `known` if no
/// module follows, else to `ends`.
fn without_size(p: &mut ArgAppender<'_>, known: Label, ends: Label) {
    let scratch = &p.plan.scratch;
    let (pos, text) = (scratch.text_pos as i16, scratch.text as i32);
    let end = p.end;
    let asm = &mut p.asm;
    let [again, slash, module, behind, last] = std::array::from_fn(|_| asm.label());
    asm.mov(R2, NAME);
    asm.bind(again);
    asm.load(Size::B, R1, R9, 0);
    asm.jump_if(Cond::Eq, R1, i32::from(b'/'), slash);
    asm.jump_if(Cond::Eq, R1, 0, end);
    asm.add(R9, 1);
    asm.add(R2, -1);
    asm.jump_if(Cond::Ne, R2, 0, again);
    asm.jump(end);
    asm.bind(slash);
    asm.mov(R7, R9);
    asm.mov(R2, SIZE);
    asm.bind(module);
    asm.load(Size::B, R1, R9, 0);
    asm.jump_if(Cond::Le, R1, i32::from(b' '), behind);
    asm.add(R9, 1);
    asm.add(R2, -1);
    asm.jump_if(Cond::Ne, R2, 0, module);
    asm.bind(behind);
    // Copies forwards byte by byte, so that the ranges may overlap.
    asm.mov(R1, R7);
    asm.mov(R2, MODULE);
    asm.mov(R3, R9);
    asm.call(Helper::ProbeReadKernelStr);
    asm.jump_if(Cond::Sle, R0, 0, end);
    // The position is the distance from the text's beginning.
    asm.mov(R1, R7);
    asm.alu(AluOp::Sub, R1, R6);
    asm.add(R1, R0);
    asm.add(R1, -1 - text);
    asm.store(Size::DW, R6, pos, R1);
    asm.jump_if(Cond::Eq, R0, 1, last);
    asm.jump(ends);
    asm.bind(last);
    asm.jump(known);
}
