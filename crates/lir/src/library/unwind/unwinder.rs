//! What the functions that unwind have in common.

use spile_cast::Cast;

use super::layout::{UnwindLayout, at};
use crate::builder::{BlockExit, Builder, IntoOperand, Scalar, build};
use crate::func::{LirFunc, MemoryOperand};
use crate::helpers::Helper;
use crate::library::tables::RowTable;

/// Parts of a function.
pub(super) struct Unwinder<'a, 'b> {
    pub(super) f: &'b Builder,
    pub(super) at: &'a UnwindLayout,
    pub(super) block: Scalar<'b>,
}

/// Builds a function; `code` gets its parameters.
pub(super) fn unwind<const N: usize>(
    layout: &UnwindLayout,
    (name, contract): (&str, &str),
    params: [&str; N],
    code: impl for<'b> FnOnce(Unwinder<'_, 'b>, [Scalar<'b>; N]),
) -> LirFunc {
    build(name, contract, params, |f, p| {
        let block = f.addr(MemoryOperand::Cpu(0));
        let at = layout;
        code(Unwinder { f, at, block }, p);
    })
}

/// A displacement.
pub(super) fn displacement(off: u32) -> i16 {
    off.fit::<i16>()
}

impl<'b> Unwinder<'_, 'b> {
    /// The content of a word.
    pub(super) fn get(&self, field: u32) -> Scalar<'b> {
        self.block.load_u64(displacement(self.at.base + field))
    }

    pub(super) fn set(&self, field: u32, v: impl IntoOperand<'b>) {
        self.block.store_u64(displacement(self.at.base + field), v);
    }

    /// The address of a word.
    pub(super) fn addr(&self, field: u32) -> Scalar<'b> {
        self.block + (self.at.base + field).cast_signed()
    }

    /// Increments a counter.
    pub(super) fn count(&self, counter: u32) {
        let off = displacement(counter);
        self.block.store_u64(off, self.block.load_u64(off) + 1);
    }

    pub(super) fn map(&self, name: &str) -> Scalar<'b> {
        self.f.addr(MemoryOperand::Map(name.to_owned()))
    }

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

    /// A map of rows by index.
    pub(super) fn table<'m>(&self, map: &'m str) -> RowTable<'m, 'b> {
        RowTable {
            f: self.f,
            map,
            block: self.block,
            index: self.at.base + at::MID,
        }
    }

    /// The address of the words of frame `n`, to which offsets of the block are added. The caller has
    /// compared it with the limit.
    pub(super) fn frame(&self, n: Scalar<'b>) -> Scalar<'b> {
        self.block + (n << 3)
    }

    /// Displacements of the file and the offset of the first frame.
    pub(super) fn file_and_offset(&self) -> [i16; 2] {
        let base = self.at.base;
        [at::FILES, at::offsets(self.at.most)].map(|field| displacement(base + field))
    }

    /// The limit on the frames.
    pub(super) fn cap(&self) -> i32 {
        self.at.most.cast_signed()
    }
}
