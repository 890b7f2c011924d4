//! How the elements of a large array lie in the memory of its map.

/// Where the elements of one generation of a large array are: in the one element of an array map,
/// which the controller maps.
///
/// ```text
/// LIVE     low half: how many elements there are; high half: how many of them are just being put in
///          (atomic)
/// ZERO     a word that is always 0
/// GIVEN    how many rooms for elements were given out (atomic)
/// HEADS    1 << bits numbers of 32 bits: the first room of a chain, counted from 1, or 0
/// rooms()  room after room of `room` bytes: the next room of the chain (32 bits), 32 bits of nothing,
///          the key, the element
/// ```
///
/// A key's chain is the one of [`Large::chain`]. A room is written before its chain has it, and stays in
/// it. Processors add to an element atomically. A room that is in no chain, or a key that has two, is
/// part of the sum as all others are; `spare` keeps the room that a processor was given for a key that
/// another one put in just then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Large {
    /// Binary logarithm of the number of chains.
    pub bits: u32,
    /// How many rooms there are.
    pub rooms: u32,
    /// Bytes of a room.
    pub room: u32,
    /// Offset in each CPU's block of a word for each generation: a room that it was given and that is not
    /// used, or 0.
    pub spare: u32,
}

/// 2^64 divided by the golden ratio: multiplying by it spreads keys over the high bits.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The words of a key as one, whose high bits number slots of caches.
#[must_use]
pub fn product(words: impl IntoIterator<Item = u64>) -> u64 {
    let mut words = words.into_iter();
    let mut sum = words.next().unwrap_or(0);
    for word in words {
        sum = sum.wrapping_mul(GOLDEN);
        sum ^= sum >> 29;
        sum ^= word;
    }
    sum.wrapping_mul(GOLDEN)
}

impl Large {
    /// Offset of the number of elements.
    pub const LIVE: u32 = 0;
    /// Offset of a word that nobody writes: zero.
    pub const ZERO: u32 = 8;
    /// Offset of the number of rooms given out; in another cache line.
    pub const GIVEN: u32 = 64;
    /// Offset of the chains.
    pub const HEADS: u32 = 128;
    /// An element that is being put in, in the number of elements.
    pub const NEW: u64 = Large::UNSETTLED + 1;
    /// That part of it that goes when it is in.
    pub const UNSETTLED: u64 = 1 << 32;
    /// Bytes of a room before the key.
    pub const KEY: u32 = 8;

    /// Offset of the first room.
    #[must_use]
    pub fn rooms_at(&self) -> u32 {
        Large::HEADS + (4 << self.bits)
    }

    /// Bytes of all.
    #[must_use]
    pub fn size(&self) -> u64 {
        u64::from(self.rooms_at()) + u64::from(self.room) * u64::from(self.rooms)
    }

    /// The chain of a key.
    #[must_use]
    pub fn chain(&self, words: impl IntoIterator<Item = u64>) -> u32 {
        let sum = product(words);
        let mixed = (sum ^ (sum >> 32)).wrapping_mul(GOLDEN);
        (mixed >> (64 - self.bits)) as u32
    }
}
