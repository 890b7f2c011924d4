//! Tables in maps: rows by index, and the search for a row among ordered ones.

use spile_cast::Cast;

use crate::builder::{BlockExit, Builder, IntoOperand, Scalar};
use crate::func::MemoryOperand;
use crate::helpers::Helper;
use crate::op::Size;

/// A map of rows by index.
#[derive(Clone, Copy)]
pub(super) struct RowTable<'a, 'b> {
    pub(super) f: &'b Builder,
    pub(super) map: &'a str,
    /// The per-CPU area, and the offset of a word in it for the index. The address is computed at each
    /// use, which costs less than keeping it.
    pub(super) block: Scalar<'b>,
    pub(super) index: u32,
}

impl<'b> RowTable<'_, 'b> {
    /// The row with that index; goes to `none` if there is none.
    pub(super) fn row(&self, index: impl IntoOperand<'b>, none: BlockExit<'b>) -> Scalar<'b> {
        self.block.store_u64(self.index.fit(), index);
        let key = self.block + self.index.cast_signed();
        element(self.f, self.map, key, none)
    }

    /// The last row from index `low` to in front of `high` that starts at or before a key, by its first
    /// 32 bits; goes to `none` if there is none. A binary search of up to `halvings` steps.
    pub(super) fn search(
        &self,
        halvings: u32,
        (low, high): (Scalar<'b>, Scalar<'b>),
        (key, none): (Scalar<'b>, BlockExit<'b>),
    ) -> Scalar<'b> {
        let f = self.f;
        let starts_behind = |row: Scalar<'b>| row.load_bytes(Size::U32, 0).gt(key);
        let (low, left) = (f.var("low", low), f.var("left", high - low));
        f.repeat_inline(halvings, || {
            f.break_if(left.sle(1));
            let half = left >> 1;
            let middle = low + half;
            let row = self.row(middle, none);
            f.if_else(starts_behind(row), || {}, || low.set(middle));
            // In both cases, so that they look equal to the verifier.
            left.set(left - half);
        });
        let row = self.row(low, none);
        none.leave_if(starts_behind(row));
        row
    }
}

/// The element of a map with the key at that address; goes to `none` if there is none.
pub(super) fn element<'b>(
    f: &'b Builder,
    map: &str,
    key: Scalar<'b>,
    none: BlockExit<'b>,
) -> Scalar<'b> {
    let map = f.addr(MemoryOperand::Map(map.to_owned()));
    let element = f.helper(Helper::MapLookup, &[map, key]);
    none.leave_if(element.eq(0));
    element
}
