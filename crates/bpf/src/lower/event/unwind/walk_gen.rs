//! The state of a walk, and the generator of its subprograms.

use crate::isa::asm::{Asm, Function, Label};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Reg, Size, Src};
use crate::layout::{FILE_NAME, FILE_NAMES};
use crate::lower::Res;
use crate::lower::text::put::ArgAppender;
use crate::plan::{StackRoom, StateLayout};
use crate::target::{Options, UnwindOffsets};

/// Numbers in a record of a new file, in front of its names.
pub(super) const FILE_FIELDS: usize = 6;
/// Words of a walk in a CPU's block, as offsets from [`StackRoom::user`].
pub(super) mod at {
    use super::{FILE_FIELDS, FILE_NAME, FILE_NAMES};
    pub(crate) const IP: u32 = 0;
    pub(crate) const SP: u32 = 8;
    pub(crate) const BP: u32 = 16;
    /// Whether the frame was interrupted, rather than making a call.
    pub(crate) const EXACT: u32 = 24;
    /// Number of frames so far.
    pub(crate) const N: u32 = 32;
    /// The address to look up: that of the call, not the return address.
    pub(crate) const ADDR: u32 = 40;
    /// The address range of the mapping, and the difference between addresses and file offsets.
    pub(crate) const START: u32 = 48;
    pub(crate) const END: u32 = 56;
    pub(crate) const OFF: u32 = 64;
    /// The file's number, its first row, the number of rows.
    pub(crate) const FILE: u32 = 72;
    pub(crate) const FIRST: u32 = 80;
    pub(crate) const ROWS: u32 = 88;
    /// Entry of the tree.
    pub(crate) const ENTRY: u32 = 96;
    pub(crate) const LO: u32 = 104;
    pub(crate) const HI: u32 = 112;
    pub(crate) const MID: u32 = 120;
    /// Key and value of a file in the map.
    pub(crate) const KEY: u32 = 128;
    pub(crate) const VALUE: u32 = 144;
    /// Buffer for memory that is read.
    pub(crate) const READ: u32 = 168;
    pub(crate) const TGID: u32 = 184;
    pub(crate) const VDSO: u32 = 192;
    /// The largest number of frames for this walk.
    pub(crate) const MOST: u32 = 200;
    /// The position of the search for replaced return addresses.
    pub(crate) const RETURN: u32 = 208;
    /// Nonzero if the controller may complete the stack.
    pub(crate) const COPY: u32 = 216;
    /// The last address of the mapping or gap that was looked up.
    pub(crate) const LAST: u32 = 224;
    /// Flags of the mapping.
    pub(crate) const FLAGS: u32 = 232;
    /// Number of mappings in the copy, and the next address to look up.
    pub(crate) const MAPPINGS: u32 = 240;
    pub(crate) const NEXT: u32 = 248;
    pub(crate) const NODE: u32 = 256;
    pub(crate) const RECORD: u32 = NODE + 256;
    pub(crate) const RECORD_SIZE: u32 =
        16 + 8 * FILE_FIELDS as u32 + (FILE_NAMES * FILE_NAME) as u32;
    /// Files and offsets of frames, with an extra entry for a single address.
    pub(crate) const FILES: u32 = RECORD + RECORD_SIZE;
    pub(crate) const fn offsets(frames: u32) -> u32 {
        FILES + 8 * (frames + 1)
    }
}

/// Bytes in each CPU's block for walks of this number of frames.
pub(crate) const fn room(frames: u32) -> u32 {
    at::offsets(frames) + 8 * (frames + 1)
}

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

/// The generator of a walk's subprogram: r6 is the CPU's block.
pub(super) struct WalkGen<'a> {
    pub(super) p: ArgAppender<'a>,
    pub(super) base: i16,
    pub(super) room: &'a StackRoom,
    pub(super) o: &'a UnwindOffsets,
}

impl<'a> WalkGen<'a> {
    pub(super) fn generator(self, p: ArgAppender<'a>) -> WalkGen<'a> {
        WalkGen { p, ..self }
    }

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

    /// `to` = word at `base + off` in kernel memory. Clobbers r0 to r5.
    pub(super) fn word(&mut self, to: Reg, base: Reg, off: u32, fail: Label) {
        self.p.asm.mov(R3, base);
        self.p.asm.add(R3, off as i32);
        self.addr(R1, at::READ);
        self.p.asm.mov(R2, 8);
        self.p.asm.call(Helper::ProbeReadKernel);
        self.p.asm.jump_if(Cond::Ne, R0, 0, fail);
        self.load_field(to, at::READ);
    }

    /// Reads `bytes` bytes at r3 of the program's memory. Clobbers r0 to r5.
    pub(super) fn user(&mut self, bytes: i32, fail: Label) {
        self.addr(R1, at::READ);
        self.p.asm.mov(R2, bytes);
        self.p.asm.call(Helper::ProbeReadUser);
        self.p.asm.jump_if(Cond::Ne, R0, 0, fail);
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
