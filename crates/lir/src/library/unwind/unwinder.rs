//! What the functions that unwind have in common.

use super::layout::{UnwindLayout, at};
use crate::builder::{BlockExit, Scalar};
use crate::helpers::Helper;
use crate::library::area::{AreaCode, AreaLayout, displacement};

impl AreaLayout for UnwindLayout {
    fn base(&self) -> u32 {
        self.base
    }
}

/// What the functions are written with.
pub(super) type Unwinder<'a, 'b> = AreaCode<'a, 'b, UnwindLayout>;

impl<'b> Unwinder<'_, 'b> {
    /// The word at `base + off` in the kernel's memory.
    pub(super) fn word(&self, base: Scalar<'b>, off: u32, fail: BlockExit<'b>) -> Scalar<'b> {
        let from = base + off.cast_signed();
        let args = [self.addr(at::READ), self.f.number(8), from];
        fail.leave_if(self.f.helper(Helper::Read, &args).ne(0));
        self.get(at::READ)
    }

    /// Reads bytes of the program's memory; gives the first word of them.
    pub(super) fn user(&self, bytes: i32, from: Scalar<'b>, fail: BlockExit<'b>) -> Scalar<'b> {
        let args = [self.addr(at::READ), self.f.number(bytes), from];
        fail.leave_if(self.f.helper(Helper::ReadUser, &args).ne(0));
        self.get(at::READ)
    }

    /// The address of the words of frame `n`, to which offsets of the block are added. The caller has
    /// compared it with the limit.
    pub(super) fn frame(&self, n: Scalar<'b>) -> Scalar<'b> {
        self.block + (n << 3)
    }

    /// Displacements of the file and the offset of the first frame.
    pub(super) fn file_and_offset(&self) -> [i16; 2] {
        let base = self.layout.base;
        [at::FILES, at::offsets(self.layout.most)].map(|field| displacement(base + field))
    }

    /// The limit on the frames.
    pub(super) fn cap(&self) -> i32 {
        self.layout.most.cast_signed()
    }
}
