//! The generator of subprograms that name the frames of a walk.

use spile_lir::library::unwind::at;

use crate::isa::asm::{Asm, Function, Label};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Reg, Size, Src};
use crate::lower::Res;
use crate::lower::text::put::ArgAppender;
use crate::plan::{StackRoom, StateLayout};
use crate::target::{Options, UnwindOffsets};

/// The room of stacks, in which walks have their part, and the offsets that they read.
pub(super) fn walks<'a>(
    plan: &'a StateLayout,
    options: &'a Options,
) -> Result<(&'a StackRoom, i16, &'a UnwindOffsets), String> {
    let room = plan.stacks.as_ref().and_then(|r| Some((r, r.user?)));
    match (room, &options.offsets.unwind) {
        (Some((room, base)), Some(offsets)) => Ok((room, base as i16, offsets)),
        _ => Err("stacks of programs need fields that this kernel's BTF does not have".into()),
    }
}

/// The generator of a subprogram for frames: r6 is the CPU's block.
pub(super) struct WalkGen<'a> {
    pub(super) p: ArgAppender<'a>,
    pub(super) base: i16,
    pub(super) room: &'a StackRoom,
}

impl WalkGen<'_> {
    pub(super) fn asm(&mut self) -> &mut Asm {
        &mut self.p.asm
    }

    pub(super) fn load_field(&mut self, to: Reg, field: u32) {
        let at = self.base + field as i16;
        self.p.asm.load(Size::DW, to, R6, at);
    }

    pub(super) fn store_field(&mut self, field: u32, src: impl Into<Src>) {
        let at = self.base + field as i16;
        self.p.asm.store(Size::DW, R6, at, src);
    }

    /// `to` = address of a field.
    pub(super) fn addr(&mut self, to: Reg, field: u32) {
        let at = i32::from(self.base) + field as i32;
        self.p.asm.mov(to, R6);
        self.p.asm.add(to, at);
    }

    /// Increments a counter.
    pub(super) fn count(&mut self, counter: u32) {
        self.asm().load(Size::DW, R1, R6, counter as i16);
        self.asm().add(R1, 1);
        self.asm().store(Size::DW, R6, counter as i16, R1);
    }

    /// Ends with 0, and at the label with 1.
    pub(super) fn finish_with_flag(mut self, one: Label) -> Res<Function> {
        let end = self.p.end;
        self.asm().jump(end);
        self.asm().bind(one);
        self.asm().mov(R0, 1);
        self.asm().exit();
        self.p.finish()
    }

    /// `r0` = the element of a map with the key in that field; goes to `none` if there is none.
    pub(super) fn element(&mut self, map: &'static str, key: u32, none: Label) {
        self.asm().ld_map(R1, map);
        self.addr(R2, key);
        self.asm().call(Helper::MapLookupElem);
        self.asm().jump_if(Cond::Eq, R0, 0, none);
    }

    /// `r0` = the last of a map's rows from [`at::LO`] to [`at::HI`] that starts at or before r7,
    /// by the word at offset `start`; goes to `none` if there is none. A binary search of up to
    /// `halvings` steps.
    pub(super) fn search(&mut self, (map, halvings): (&'static str, u32), start: i16, none: Label) {
        let found = self.asm().label();
        for _ in 0..halvings {
            let [high, next] = std::array::from_fn(|_| self.p.asm.label());
            self.load_field(R1, at::LO);
            self.load_field(R2, at::HI);
            self.asm().mov(R3, R1);
            self.asm().add(R3, 1);
            self.asm().jump_if(Cond::Ge, R3, R2, found);
            self.asm().add(R1, R2);
            self.asm().alu(AluOp::Rsh, R1, 1);
            self.store_field(at::MID, R1);
            self.element(map, at::MID, none);
            self.asm().load(Size::W, R1, R0, start);
            self.load_field(R2, at::MID);
            self.asm().jump_if(Cond::Gt, R1, R7, high);
            self.store_field(at::LO, R2);
            self.asm().jump(next);
            self.asm().bind(high);
            self.store_field(at::HI, R2);
            self.asm().bind(next);
        }
        self.asm().bind(found);
        self.element(map, at::LO, none);
        self.asm().load(Size::W, R1, R0, start);
        self.asm().jump_if(Cond::Gt, R1, R7, none);
    }
}
