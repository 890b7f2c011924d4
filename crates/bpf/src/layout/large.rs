//! The layout of a large array's elements in the memory of its map.

/// The layout of one generation of a large array: an element of an array map, which the controller
/// maps.
///
/// ```text
/// LIVE     number of elements (atomic)
/// GIVEN    number of rooms that were given out (atomic)
/// ZERO     a word that is always 0, in a cache line that is never written
/// CELLS    groups of GROUP cells of 32 bits, and WINDOW more: the number of a room, counted from 1, under
///          the key's tag (TAG), or 0
/// rooms()  room after room of `room` bytes: the key, the element
/// ```
///
/// This is a hash table with open addressing: [`LargeLayout::probe_cells`] gives the cells where a key may be.
/// A key is in the first of them that was free at its insertion; a cell never changes its room.
/// Keys with consecutive last words have consecutive cells, and share a cache line.
///
/// To insert a key, a processor writes key and element into a room, and then the room's number into
/// a free cell, if that is still free. If not, it saves the room in `spare` for its next key.
/// Additions to an element are atomic. If all cells of a key are taken, the insertion stops at the
/// last one. The sum is unaffected by a room that is in no cell, or by a key that has two rooms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LargeLayout {
    /// Number of groups of cells.
    pub groups: u32,
    /// Number of rooms.
    pub rooms: u32,
    /// Bytes of a room.
    pub room: u32,
    /// Offset in each CPU's block of a word for each generation. Its low half is a room that was
    /// given out but not used, or 0. Its high half is nonzero if the CPU has inserted a key.
    pub spare: u32,
}

/// 2^64 divided by the golden ratio: multiplication by it spreads keys over the high bits.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl LargeLayout {
    /// Offset of the number of elements.
    pub const LIVE: u32 = 0;
    /// Offset of the number of rooms given out.
    pub const GIVEN: u32 = 8;
    /// Offset of a word that is always zero.
    pub const ZERO: u32 = 64;
    /// Offset of the cells.
    pub const CELLS: u32 = 128;
    /// Cells of a group, a power of two.
    pub const GROUP: u32 = 4;
    /// Binary logarithm of [`LargeLayout::GROUP`].
    pub(crate) const GROUP_BITS: u32 = LargeLayout::GROUP.ilog2();
    /// Number of consecutive cells to probe in one place, a power of two.
    pub const WINDOW: u32 = 8;
    /// Number of places to probe.
    pub const PLACES: u32 = 8;
    /// The bits of a cell that hold the tag; the others hold the room.
    pub const TAG: u32 = 0xff00_0000;
    /// Number of bits below the tag.
    pub(crate) const TAG_BITS: u32 = LargeLayout::TAG.trailing_zeros();
    /// Position of the bits of a key's hash that select a cell of a group.
    pub(crate) const CELL_BITS: u32 = 20;

    /// Number of groups for a number of elements: half of the cells stay free.
    #[must_use]
    pub fn groups(max: u32) -> Option<u32> {
        Some(max.checked_mul(2)?.div_ceil(LargeLayout::GROUP))
    }

    /// Offset of the first room.
    #[must_use]
    pub fn rooms_offset(&self) -> u32 {
        let cells = LargeLayout::GROUP * self.groups + LargeLayout::WINDOW;
        (LargeLayout::CELLS + 4 * cells).next_multiple_of(64)
    }

    /// Size of a generation in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        u64::from(self.rooms_offset()) + u64::from(self.room) * u64::from(self.rooms)
    }

    /// The cells to probe for a key of these words, with the key's tag in each.
    pub fn probe_cells(&self, words: &[u64]) -> impl Iterator<Item = (u32, u32)> + use<> {
        let (last, first) = words.split_last().unwrap_or((&0, &[]));
        let last = *last;
        let mixed = first.iter().fold(0, |sum: u64, word| {
            let sum = (sum ^ word).wrapping_mul(GOLDEN);
            sum ^ (sum >> 29)
        });
        let hash = (mixed ^ (last >> LargeLayout::GROUP_BITS)).wrapping_mul(GOLDEN);
        let again = move |hash: &u64| {
            let mixed = (hash ^ (hash >> 32)).wrapping_add(last);
            Some(mixed.wrapping_mul(GOLDEN))
        };
        let groups = u64::from(self.groups);
        std::iter::successors(Some(hash), again)
            .take(LargeLayout::PLACES as usize)
            .flat_map(move |hash| {
                let group = ((hash >> 32) * groups) >> 32;
                let cell =
                    ((hash >> LargeLayout::CELL_BITS) ^ last) % u64::from(LargeLayout::GROUP);
                let first = group as u32 * LargeLayout::GROUP + cell as u32;
                let tag = (hash ^ (last << LargeLayout::TAG_BITS)) as u32 & LargeLayout::TAG;
                (first..first + LargeLayout::WINDOW).map(move |cell| (cell, tag))
            })
    }
}
