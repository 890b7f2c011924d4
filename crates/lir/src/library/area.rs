//! What functions are written with that work in the per-CPU area: the builder, where the host has what they need,
//! and the area.

use spile_cast::Cast;

use super::tables::RowTable;
use crate::builder::{Builder, IntoOperand, Scalar, build};
use crate::func::{LirFunc, MemoryOperand};

/// Where a host has what functions need.
pub(super) trait AreaLayout {
    /// Offset in the per-CPU area from which the functions count their words.
    fn base(&self) -> u32 {
        0
    }
}

/// Parts of a function.
pub(super) struct AreaCode<'a, 'b, L> {
    pub(super) f: &'b Builder,
    pub(super) layout: &'a L,
    pub(super) block: Scalar<'b>,
}

/// Builds a function; `code` gets its parameters.
pub(super) fn function<L: AreaLayout, const N: usize>(
    layout: &L,
    (name, contract): (&str, &str),
    params: [&str; N],
    code: impl for<'b> FnOnce(AreaCode<'_, 'b, L>, [Scalar<'b>; N]),
) -> LirFunc {
    build(name, contract, params, |f, p| {
        let block = f.addr(MemoryOperand::Cpu(0));
        code(AreaCode { f, layout, block }, p);
    })
}

/// A displacement.
pub(super) fn displacement(off: u32) -> i16 {
    off.fit::<i16>()
}

impl<'b, L: AreaLayout> AreaCode<'_, 'b, L> {
    /// The content of a word.
    pub(super) fn get(&self, word: u32) -> Scalar<'b> {
        self.block.load_u64(displacement(self.layout.base() + word))
    }

    pub(super) fn set(&self, word: u32, v: impl IntoOperand<'b>) {
        let off = displacement(self.layout.base() + word);
        self.block.store_u64(off, v);
    }

    /// The address of a word.
    pub(super) fn addr(&self, word: u32) -> Scalar<'b> {
        self.block + (self.layout.base() + word).cast_signed()
    }

    /// Increments a counter, whose offset counts from the start of the area.
    pub(super) fn count(&self, counter: u32) {
        let off = displacement(counter);
        self.block.store_u64(off, self.block.load_u64(off) + 1);
    }

    /// The address of a map.
    pub(super) fn map(&self, name: &str) -> Scalar<'b> {
        self.f.addr(MemoryOperand::Map(name.to_owned()))
    }

    /// A map of rows by index, with that word for the index.
    pub(super) fn table<'m>(&self, map: &'m str, index: u32) -> RowTable<'m, 'b> {
        RowTable {
            f: self.f,
            map,
            block: self.block,
            index: self.layout.base() + index,
        }
    }
}
