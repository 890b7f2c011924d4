//! Strings of 16-bit and 32-bit units in memory, converted to UTF-8. Each unit is read separately,
//! so that no memory behind the end is accessed.

use spile_ir::{Reg as IrReg, Space, Val};

use super::callback::{ends, finish};
use crate::isa::asm::{Asm, Function};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size};
use crate::layout::ErrorKind;
use crate::lower::{HandlerCodegen, Res};

/// Offsets of scratch words.
mod word {
    /// Address of the next unit.
    pub(super) const ADDR: i16 = 0;
    /// Length of the text so far.
    pub(super) const POS: i16 = 8;
    /// A high surrogate that waits for the low one, or 0.
    pub(super) const HIGH: i16 = 16;
    /// The [`status`] at the end.
    pub(super) const STATUS: i16 = 24;
}

/// Results of a conversion.
mod status {
    pub(super) const READ: i32 = 0;
    pub(super) const FAULT: i32 = 1;
    pub(super) const INVALID: i32 = 2;
}

/// Stack slots that the callback reads: addresses.
mod slot {
    pub(super) const TO: i16 = 0;
    pub(super) const WORDS: i16 = 8;
    pub(super) const SIZE: i16 = 16;
}

impl HandlerCodegen<'_> {
    /// `dst` = the text at an address. Errors are raised even if the result is unused.
    pub(in crate::lower) fn unicode(
        &mut self,
        dst: Option<IrReg>,
        space: Space,
        args: &[Val],
    ) -> Res {
        self.needs_loop("reading UTF-16 and UTF-32")?;
        let (addr, unit, bits, room) = match *args {
            [addr, Val::Imm(2), Val::Imm(n)] => (addr, Size::H, 16, n),
            [addr, Val::Imm(4), Val::Imm(n)] => (addr, Size::W, 32, n),
            _ => return Err("units of another size than 2 and 4 bytes".into()),
        };
        let (space, helper, kind) = match space {
            Space::User => ("user", Helper::ProbeReadUser, ErrorKind::UserStrFault),
            Space::Kernel => ("kernel", Helper::ProbeReadKernel, ErrorKind::KernelStrFault),
        };
        let max = self.plan.max_string;
        let room = room.clamp(1, max.into()) as i32;
        let name = format!("{space}_utf{bits}_{room}");
        self.pool.sub(&format!("{name}_at"), |_| {
            unicode_at(&name, unit, helper, room)
        })?;
        self.pool.sub(&name, |_| unicode_sub(&name, room))?;
        self.begin_text(max);
        self.use_in(addr, R1)?;
        self.set_aux(R1);
        self.block_addr(R2, self.plan.scratch.text);
        self.block_addr(R3, self.plan.scratch.tmp);
        self.asm.call_sub(name);
        let (read, invalid) = (self.asm.label(), self.asm.label());
        let fail = self.fail_label(kind);
        self.asm.jump_if(Cond::Eq, R0, status::READ, read);
        self.asm.jump_if(Cond::Eq, R0, status::INVALID, invalid);
        self.jump_opaque(fail);
        self.asm.bind(invalid);
        let off = self.plan.scratch.err_text;
        let text = spile_ir::interp::invalid_unicode(bits / 8);
        self.build_message(off, max, text.as_bytes())?;
        self.fail_now(ErrorKind::Raised);
        self.asm.bind(read);
        if let Some((off, width)) = dst.map(|d| self.slot(d)).transpose()?.flatten() {
            self.end_text(off, width);
        }
        Ok(())
    }
}

/// `NAME(address, to, words)`: returns a [`status`].
fn unicode_sub(name: &str, room: i32) -> Result<Function, String> {
    let mut asm = Asm::new(name, &["address", "to", "words"]);
    let whole = asm.label();
    asm.mov(R6, R3);
    asm.store(Size::DW, R6, word::ADDR, R1);
    for (word, value) in [
        (word::POS, 0),
        (word::HIGH, 0),
        (word::STATUS, status::READ),
    ] {
        asm.store(Size::DW, R6, word, value);
    }
    asm.store(Size::DW, R10, slot::TO - slot::SIZE, R2);
    asm.store(Size::DW, R10, slot::WORDS - slot::SIZE, R6);
    asm.mov(R1, room);
    asm.loop_call(format!("{name}_at"), -slot::SIZE);
    asm.load(Size::DW, R0, R6, word::STATUS);
    asm.jump_if(Cond::Ne, R0, status::READ, whole);
    // A high surrogate alone at the end; a full text hides it.
    asm.load(Size::DW, R1, R6, word::HIGH);
    asm.jump_if(Cond::Eq, R1, 0, whole);
    asm.load(Size::DW, R1, R6, word::POS);
    asm.jump_if(Cond::Ge, R1, room - 4, whole);
    asm.mov(R0, status::INVALID);
    asm.bind(whole);
    asm.exit();
    finish(asm)
}

/// Appends one unit; stops at the end, without room, or at an invalid unit.
fn unicode_at(name: &str, unit: Size, helper: Helper, room: i32) -> Result<Function, String> {
    let mut asm = Asm::new(format!("{name}_at"), &["index", "slots"]);
    let [go_on, stop, fault, invalid, plain] = [(); 5].map(|()| asm.label());
    asm.load(Size::DW, R6, R2, slot::WORDS);
    asm.load(Size::DW, R7, R2, slot::TO);
    asm.load(Size::DW, R3, R6, word::ADDR);
    asm.mov(R1, R10);
    asm.add(R1, -8);
    asm.mov(R2, if unit == Size::H { 2 } else { 4 });
    asm.mov(R4, R3);
    asm.add(R4, R2);
    asm.store(Size::DW, R6, word::ADDR, R4);
    asm.call(helper);
    asm.jump_if(Cond::Ne, R0, 0, fault);
    asm.load(unit, R8, R10, -8);
    asm.jump_if(Cond::Eq, R8, 0, stop);
    // r2: the unit's distance from the first surrogate.
    asm.mov(R2, R8);
    asm.add(R2, -0xd800);
    if unit == Size::H {
        let (first, single) = (asm.label(), asm.label());
        asm.load(Size::DW, R3, R6, word::HIGH);
        asm.jump_if(Cond::Eq, R3, 0, single);
        asm.store(Size::DW, R6, word::HIGH, 0);
        asm.add(R2, -0x400);
        asm.jump_if(Cond::Gt, R2, 0x3ff, invalid);
        asm.mov(R8, R3);
        asm.alu(AluOp::Lsh, R8, 10);
        asm.add(R8, R2);
        asm.add(R8, 0x1_0000 - (0xd800 << 10));
        asm.jump(plain);
        asm.bind(first);
        asm.store(Size::DW, R6, word::HIGH, R8);
        asm.jump(go_on);
        asm.bind(single);
        asm.jump_if(Cond::Le, R2, 0x3ff, first);
    } else {
        asm.jump_if(Cond::Gt, R8, 0x10_ffff, invalid);
    }
    asm.jump_if(Cond::Le, R2, 0x7ff, invalid);
    asm.bind(plain);
    encode(&mut asm, room, stop);
    asm.jump(go_on);
    for (label, value) in [(fault, status::FAULT), (invalid, status::INVALID)] {
        asm.bind(label);
        asm.store(Size::DW, R6, word::STATUS, value);
        asm.jump(stop);
    }
    ends(&mut asm, go_on, stop);
    finish(asm)
}

/// Appends character r8 at r7, or goes to `stop`.
fn encode(asm: &mut Asm, room: i32, stop: crate::isa::asm::Label) {
    let end = asm.label();
    // The limit of each form, and the mark of its first byte.
    let forms = [
        (0x80, 0),
        (0x800, 0xc0),
        (0x1_0000, 0xe0),
        (0x11_0000, 0xf0),
    ];
    asm.load(Size::DW, R1, R6, word::POS);
    for (bytes, (above, mark)) in forms.into_iter().enumerate() {
        let (longer, bytes) = (asm.label(), bytes as i32 + 1);
        if bytes < 4 {
            asm.jump_if(Cond::Ge, R8, above, longer);
        }
        asm.jump_if(Cond::Ge, R1, room - bytes, stop);
        asm.add(R7, R1);
        for at in 0..bytes {
            asm.mov(R3, R8);
            asm.alu(AluOp::Rsh, R3, 6 * (bytes - 1 - at));
            if at > 0 {
                asm.alu(AluOp::And, R3, 0x3f);
            }
            asm.alu(AluOp::Or, R3, if at > 0 { 0x80 } else { mark });
            asm.store(Size::B, R7, at as i16, R3);
        }
        asm.add(R1, bytes);
        asm.jump(end);
        asm.bind(longer);
    }
    asm.bind(end);
    asm.store(Size::DW, R6, word::POS, R1);
}
