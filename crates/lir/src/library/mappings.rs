//! The mapping of the current program at an address, from the kernel's tree of mappings.
//!
//! The search takes no lock, so it also works in interrupts, any number of times, where `bpf_find_vma` works once. RCU
//! keeps the tree alive while a tracing program runs. Mappings can change at the same time, so who reads the description
//! of one checks its range.
//!
//! In: where the host has what the search needs ([`MappingLayout`]). Out: `maple_down`, one level of the search; the
//! code of a search, which other modules put into their functions.
//!
//! Sources: `struct maple_range_64`, `struct maple_arange_64` and the tags in node pointers from
//! `include/linux/maple_tree.h` (6.1 and later, 64 bits).

use super::area::{AreaCode, AreaLayout, displacement, function};
use crate::builder::{BlockExit, Scalar};
use crate::func::LirFunc;
use crate::helpers::Helper;

/// The layout of nodes in the kernel's maple tree. Leaves and ranges have types 1 and 2. The pivots
/// follow the node's first word, and the slots follow the pivots.
const LEAF: i32 = 1;
const ARANGE: i32 = 3;
const ARANGE_PIVOTS: u32 = 9;
const RANGE_PIVOTS: u32 = 15;
/// Bytes of a node.
const NODE: i32 = 256;

/// The largest number of tree levels to descend.
const LEVELS: u32 = 8;

/// Words of a search in a per-CPU area, as offsets from [`MappingLayout::words`].
pub mod search {
    /// The address to look up.
    pub const ADDRESS: u32 = 0;
    /// Entry of the tree.
    pub const ENTRY: u32 = 8;
    /// The last address of the mapping or gap that was looked up.
    pub const LAST: u32 = 16;
    /// A node of the tree.
    pub const NODE: u32 = 24;
    /// Bytes of all.
    pub const BYTES: u32 = NODE + 256;
}

/// Offsets in the kernel's structures, on the path from the task to the range of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct MappingOffsets {
    pub task_mm: u32,
    /// Root of the tree of mappings in `struct mm_struct`.
    pub mm_root: u32,
    /// In `struct vm_area_struct`.
    pub vma_start: u32,
    pub vma_end: u32,
}

/// Where the host has what the search needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappingLayout {
    /// The words of a search ([`search`]) in the per-CPU area.
    pub words: u32,
    /// In the kernel's structures.
    pub offsets: MappingOffsets,
}

impl AreaLayout for MappingLayout {
    fn base(&self) -> u32 {
        self.words
    }
}

/// What searches are written with.
pub(super) type MappingSearch<'a, 'b> = AreaCode<'a, 'b, MappingLayout>;

impl<'b> MappingSearch<'_, 'b> {
    /// The word at `base + off` in the kernel's memory.
    pub(super) fn word(&self, base: Scalar<'b>, off: u32, fail: BlockExit<'b>) -> Scalar<'b> {
        let from = base + off.cast_signed();
        let args = [self.addr(search::NODE), self.f.number(8), from];
        fail.leave_if(self.f.helper(Helper::Read, &args).ne(0));
        self.get(search::NODE)
    }

    /// The description of the mapping with the address, which `mm` has; 0 if there is none.
    pub(super) fn mapping(&self, mm: Scalar<'b>, fail: BlockExit<'b>) -> Scalar<'b> {
        let root = self.word(mm, self.layout.offsets.mm_root, fail);
        // The low bits of the root tell that it is a node.
        fail.leave_if((root & 3).ne(2));
        self.set(search::ENTRY, root);
        self.f.block(|descent| {
            for _ in 0..LEVELS {
                descent.leave_if(self.f.call("maple_down", &[]).ne(0));
            }
            fail.leave();
        });
        let entry = self.get(search::ENTRY);
        // A node that could not be read.
        fail.leave_if((entry & 3).ne(0));
        entry
    }
}

pub(super) fn maple_down(layout: &MappingLayout) -> LirFunc {
    let contract = "\
Descends from a node of the tree to the entry for the address; 1 if the entry is not a node, or the node cannot be
read. The type in a node's pointer marks leaves.
Cost: a read and some 120 instructions.";
    function(layout, ("maple_down", contract), [], |s, []| {
        let f = s.f;
        let entry = s.get(search::ENTRY);
        let kind = (entry >> 3) & 15;
        let args = [s.addr(search::NODE), f.number(NODE), entry & -NODE];
        f.ret_if(f.helper(Helper::Read, &args).ne(0), 1);
        f.ret_if(kind.eq(0), 1);
        f.ret_if(kind.gt(ARANGE), 1);
        let few = pivots_before(&s, 0..ARANGE_PIVOTS);
        let slot = f.var("slot", few);
        let pivots = f.var("pivots", ARANGE_PIVOTS.cast_signed());
        f.if_(kind.ne(ARANGE), || {
            slot.set(slot + pivots_before(&s, ARANGE_PIVOTS..RANGE_PIVOTS));
            pivots.set(RANGE_PIVOTS.cast_signed());
        });
        let first = displacement(layout.words + search::NODE + 8);
        // The slots follow the pivots.
        let pivot = (s.block + ((slot & 15) << 3)).load_u64(first);
        let below = (s.block + (((slot + pivots) & 31) << 3)).load_u64(first);
        // The last slot has no pivot: it ends where its parent's slot ends.
        f.if_(slot.lt(pivots), || {
            f.if_(pivot.ne(0), || s.set(search::LAST, pivot));
        });
        s.set(search::ENTRY, below);
        f.ret_if(kind.eq(LEAF), 1);
        f.ret(0);
    })
}

/// The number of these pivots that precede the address. Pivots are the last addresses of whole pages,
/// and 0 behind the last pivot. Page numbers start at -1, so that 0 becomes the largest.
fn pivots_before<'b>(s: &MappingSearch<'_, 'b>, pivots: std::ops::Range<u32>) -> Scalar<'b> {
    let page = (s.get(search::ADDRESS) >> 12) - 1;
    let mask = s.f.constant((1 << 52) - 1);
    // No comparison: the kernel's verifier would follow the rest once for each outcome.
    let before = |i: u32| {
        let last = ((s.get(search::NODE + 8 + 8 * i) >> 12) - 1) & mask;
        (last - page) >> 63
    };
    pivots.map(before).fold(s.f.number(0), |sum, one| sum + one)
}
