//! Frames in marks for user stacks: the file and offset of each frame.

use spile_lir::library::unwind::at;

use crate::isa::asm::Function;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size};
use crate::layout::EXACT;
use crate::lower::Res;
use crate::lower::event::stacks::{put_byte, put_hex};
use crate::lower::text::put::ArgAppender;
use crate::plan::StackRoom;

/// How frames are appended.
pub(super) mod how {
    /// With their addresses.
    pub(crate) const FULL: i32 = 1;
    /// With a space in front.
    pub(crate) const SPACE: i32 = 2;
}

/// `NAME(how, first, most)`: appends up to `most` frames from `first` on, by a call of `one(index,
/// how)` for each. `joined` holds the bits of `how` for the second and later frames.
pub(super) fn append_each(
    mut p: ArgAppender<'_>,
    base: i16,
    room: &StackRoom,
    one: &'static str,
    joined: i32,
) -> Res<Function> {
    for _ in 0..room.most {
        p.asm.jump_if(Cond::Eq, R9, 0, p.end);
        p.asm.load(Size::DW, R1, R6, base + at::N as i16);
        p.asm.jump_if(Cond::Ge, R8, R1, p.end);
        p.asm.mov(R1, R8);
        p.asm.mov(R2, R7);
        p.asm.call_sub(one);
        if joined != 0 {
            p.asm.alu(AluOp::Or, R7, joined);
        }
        p.asm.add(R8, 1);
        p.asm.add(R9, -1);
    }
    p.finish()
}

/// `append_frame(index, how)`: appends a frame as `FILE.OFFSET`, in the full form with the address
/// in front. A frame outside of files is its address, 0 and the process. All numbers are
/// hexadecimal.
pub(super) fn append_frame(mut p: ArgAppender<'_>, base: i16, room: &StackRoom) -> Res<Function> {
    let [bare, full, file, anonymous, process] = std::array::from_fn(|_| p.asm.label());
    let (files, offsets) = (
        base + at::FILES as i16,
        base + at::offsets(room.most) as i16,
    );
    p.asm.jump_if(Cond::Gt, R7, room.most as i32, p.end);
    p.asm.mov(R9, R7);
    p.asm.alu(AluOp::Lsh, R9, 3);
    p.asm.add(R9, R6);
    p.asm.jump_if(Cond::Le, R8, how::FULL, bare);
    put_byte(&mut p, b' ');
    p.asm.bind(bare);
    p.asm.load(Size::DW, R7, R9, files);
    p.asm.jump_if(Cond::Eq, R7, 0, full);
    p.asm.alu(AluOp::And, R8, how::FULL);
    p.asm.jump_if(Cond::Eq, R8, 0, file);
    p.asm.bind(full);
    p.asm.load(Size::DW, R2, R9, room.frames as i16);
    put_hex(&mut p, R2);
    put_byte(&mut p, b'.');
    p.asm.bind(file);
    put_hex(&mut p, R7);
    put_byte(&mut p, b'.');
    p.asm.jump_if(Cond::Eq, R7, 0, process);
    p.asm.load(Size::DW, R2, R9, offsets);
    p.asm.jump(anonymous);
    p.asm.bind(process);
    p.asm.load(Size::DW, R1, R9, offsets);
    p.asm.ld_imm64(R2, EXACT);
    p.asm.alu(AluOp::And, R1, R2);
    p.asm.load(Size::DW, R2, R6, base + at::TGID as i16);
    p.asm.alu(AluOp::Or, R2, R1);
    p.asm.bind(anonymous);
    put_hex(&mut p, R2);
    p.finish()
}
