//! How the elements of a large array lie in the memory of its map.

/// Where the elements of one generation of a large array are: in an element of an array map, which the
/// controller maps.
///
/// ```text
/// LIVE     how many elements there are (atomic)
/// GIVEN    how many rooms for elements were given out (atomic)
/// ZERO     a word that is always 0, in a cache line that nobody writes
/// CELLS    groups of GROUP cells of 32 bits, and WINDOW more: the number of a room, counted from 1, under
///          the key's tag (TAG), or 0
/// rooms()  room after room of `room` bytes: the key, the element
/// ```
///
/// A hash table with open addressing: [`Large::looks`] gives the cells where a key may be. It is in the
/// first one that was free when it was put in; a cell keeps its room. Keys whose last words follow one
/// another have cells that do so too, and share a cache line. Whoever finds a free cell
/// writes key and element into a room and then puts the room into the cell, if that is still free; if not,
/// the room is kept in `spare` for the next key. Processors add to an element atomically. Where all
/// cells of a key are taken it takes the last one's: a room that is in no cell, or a key that has two, is
/// part of the sum as all others are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Large {
    /// How many groups of cells there are.
    pub groups: u32,
    /// How many rooms there are.
    pub rooms: u32,
    /// Bytes of a room.
    pub room: u32,
    /// Offset in each CPU's block of a word for each generation: its low half is a room that was given
    /// out and is not used, or 0; its high half is not 0 where the CPU has put in a key.
    pub spare: u32,
}

/// 2^64 divided by the golden ratio: multiplying by it spreads keys over the high bits.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Large {
    /// Offset of the number of elements.
    pub const LIVE: u32 = 0;
    /// Offset of the number of rooms given out.
    pub const GIVEN: u32 = 8;
    /// Offset of a word that nobody writes: zero.
    pub const ZERO: u32 = 64;
    /// Offset of the cells.
    pub const CELLS: u32 = 128;
    /// Cells of a group, a power of two.
    pub const GROUP: u32 = 4;
    /// Binary logarithm of that.
    pub const GROUP_BITS: u32 = Large::GROUP.ilog2();
    /// The number of cells one behind the other that are looked at in one place, a power of two.
    pub const WINDOW: u32 = 8;
    /// The number of places that are looked at.
    pub const PLACES: u32 = 8;
    /// The bits of a cell that are the tag; the others are the room.
    pub const TAG: u32 = 0xff00_0000;
    /// Bits to the tag.
    pub const TAG_BITS: u32 = Large::TAG.trailing_zeros();
    /// Bits of a key's hash that choose a cell of a group, from here on.
    pub const CELL_BITS: u32 = 20;

    /// The number of groups for a number of elements: half of the cells stay free.
    #[must_use]
    pub fn groups(max: u32) -> Option<u32> {
        Some(max.checked_mul(2)?.div_ceil(Large::GROUP))
    }

    /// Offset of the first room.
    #[must_use]
    pub fn rooms_at(&self) -> u32 {
        let cells = Large::GROUP * self.groups + Large::WINDOW;
        (Large::CELLS + 4 * cells).next_multiple_of(64)
    }

    /// Bytes of all.
    #[must_use]
    pub fn size(&self) -> u64 {
        u64::from(self.rooms_at()) + u64::from(self.room) * u64::from(self.rooms)
    }

    /// Where a key of these words may be: the numbers of cells, with the tag that it has there.
    pub fn looks(&self, words: &[u64]) -> impl Iterator<Item = (u32, u32)> + use<> {
        let (last, first) = words.split_last().unwrap_or((&0, &[]));
        let last = *last;
        let mixed = first.iter().fold(0, |sum: u64, word| {
            let sum = (sum ^ word).wrapping_mul(GOLDEN);
            sum ^ (sum >> 29)
        });
        let hash = (mixed ^ (last >> Large::GROUP_BITS)).wrapping_mul(GOLDEN);
        let again = move |hash: &u64| {
            let mixed = (hash ^ (hash >> 32)).wrapping_add(last);
            Some(mixed.wrapping_mul(GOLDEN))
        };
        let groups = u64::from(self.groups);
        std::iter::successors(Some(hash), again)
            .take(Large::PLACES as usize)
            .flat_map(move |hash| {
                let group = ((hash >> 32) * groups) >> 32;
                let cell = ((hash >> Large::CELL_BITS) ^ last) % u64::from(Large::GROUP);
                let first = group as u32 * Large::GROUP + cell as u32;
                let tag = (hash ^ (last << Large::TAG_BITS)) as u32 & Large::TAG;
                (first..first + Large::WINDOW).map(move |cell| (cell, tag))
            })
    }
}
