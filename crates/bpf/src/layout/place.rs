//! Where each global lives: in the state memory, in hash maps, or both.

use spile_ir::{GlobalId, Ty};

use super::Large;

/// Where a global lives.
#[derive(Debug, Clone)]
pub struct GlobalLayout {
    /// Offset of its lock word in the shared block: 0 free, otherwise held (CPU + 1, or
    /// 0xffff_ffff for the controller).
    pub lock: Option<u32>,
    /// The place.
    pub place: Place,
}

/// Where a global's value is.
#[derive(Debug, Clone)]
pub enum Place {
    /// A number or string in the shared block.
    Scalar {
        /// Offset in the shared block.
        offset: u32,
        /// Its type.
        ty: Ty,
    },
    /// A statistic in the shared block, updated under the lock.
    Stats {
        /// Offset in the shared block.
        offset: u32,
        /// Its words.
        agg: AggLayout,
    },
    /// A hash map: key fields one after the other, each a multiple of 8 bytes; the value is
    /// 8 bytes of insertion sequence (wrapping arrays, and those that a `foreach` walks), then
    /// the element.
    Hash {
        /// Name of the map.
        map: String,
        /// Bytes of a key.
        key_size: u32,
        /// Types of the key's fields.
        keys: Vec<Ty>,
        /// Values begin with the insertion sequence.
        seq: bool,
        /// The oldest element makes room, no overflow error; `seq` as well.
        wrap: bool,
        /// The element.
        value: ValueLayout,
        /// Most elements.
        max: u32,
        /// The map is one of records, of which the element is a field.
        field: Option<Field>,
    },
    /// Deltas of a number (8 bytes) or statistic in each CPU's block, at this offset plus
    /// `generation * gen_stride`.
    PerCpuScalar {
        /// Offset in each CPU's block.
        offset: u32,
        /// Bytes from one generation to the next; 0 with one generation.
        gen_stride: u32,
        /// The value.
        value: ValueLayout,
    },
    /// Deltas of an array.
    PerCpuArray(PerCpuArray),
}

/// Where the deltas of an array are: in each CPU's block a direct-mapped cache of `slots` slots at
/// `cache + generation * gen_stride`, each `slot_size` bytes: a used word (0 = empty), the key, the
/// element; behind it one hash map a generation, with an element for each CPU one behind the other (a
/// per-CPU map, or a plain one with such values). A key can be in the cache and in the map; its delta is
/// the sum over all CPUs of both. Elements of several arrays can lie side by side ([`Beside`]). Elements
/// of a large array are not in hash maps but in memory that the controller maps ([`Large`]).
#[derive(Debug, Clone)]
pub struct PerCpuArray {
    /// Offset of the cache in each CPU's block.
    pub cache: u32,
    /// Bytes from one generation's cache to the next; 0 where there is one, or no cache.
    pub gen_stride: u32,
    /// Slots of a cache, a power of two; 0 where there is none.
    pub slots: u32,
    /// Bytes of a slot.
    pub slot_size: u32,
    /// Names of the maps, one a generation; of a large array one with an element a generation.
    pub maps: Vec<String>,
    /// Bytes of a key.
    pub key_size: u32,
    /// Types of the key's fields.
    pub keys: Vec<Ty>,
    /// The element.
    pub value: ValueLayout,
    /// What else lies there.
    pub beside: Beside,
    /// Offset in each CPU's block of a word for each generation: not 0 where a delta is in the map
    /// and not in the cache. `None` where there is none.
    pub spilt: Option<u32>,
    /// Most elements; the maps of wrapping arrays have room for as many more as are dropped at once.
    pub max: u32,
    /// A full map loses its oldest elements. Its values (of a plain map) begin with a sequence number, or 0
    /// while one is put in.
    pub wraps: bool,
    /// How the elements behind the cache lie where they are in no hash map.
    pub large: Option<Large>,
}

impl PerCpuArray {
    /// Whether there are two generations.
    #[must_use]
    pub fn double(&self) -> bool {
        self.gen_stride > 0 || self.maps.len() > 1
    }
}

/// Which part of the values in a cache and its maps is an array's element (see
/// `spile_ir::storage::beside`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beside {
    /// The array whose keys these are, where it is another. An element of this one is there only where
    /// its statistic has a value.
    pub of: Option<GlobalId>,
    /// Offset of the element in such a value.
    pub at: u32,
    /// Bytes of such a value, of all elements.
    pub size: u32,
}

/// An element that is a field of a record: the first word of a record says which of its fields are
/// there, the others are 0. A record without any is in no map and no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Offset of its word.
    pub at: u32,
    /// Its bit of the first word.
    pub bit: u32,
    /// Bytes of a record.
    pub record: u32,
    /// Where most records are; `None` where all are in the map.
    pub front: Option<Front>,
}

/// Where records are found without a look-up: in the shared block, each thread's in the slot of its
/// number, behind it a word with its owner ([`Front::owner`]) or 0. The record of a thread whose slot
/// another one has is in the hash map; a handler that wants it works on a copy in a room of its
/// processor's behind the slots, which goes back to the map when the handler ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Front {
    /// Offset of the first slot in the shared block.
    pub at: u32,
    /// How many there are, a power of two.
    pub slots: u32,
    /// Bytes of a slot.
    pub stride: u32,
    /// Offset in the shared block of the number of records in the hash map.
    pub spilt: u32,
    /// Offset in each CPU's block of a word for each of its rooms: whose record it has, or 0.
    pub lent: u32,
}

impl Front {
    /// What stands in the word of a thread's slot.
    #[must_use]
    pub fn owner(thread: u64) -> u64 {
        thread.wrapping_add(1)
    }

    /// The rooms of each processor: a handler can want as many threads' records.
    pub const ROOMS: u32 = spile_ir::storage::Threads::COUNT as u32;

    /// Slots and rooms.
    #[must_use]
    pub fn all(&self, cpus: u32) -> u32 {
        self.slots + Front::ROOMS * cpus
    }

    /// Offset of a slot in the shared block.
    #[must_use]
    pub fn slot(&self, thread: u64) -> u32 {
        self.at + (thread % u64::from(self.slots)) as u32 * self.stride
    }
}

/// The layout of an element.
#[derive(Debug, Clone)]
pub enum ValueLayout {
    /// A number or a string.
    Scalar(Ty),
    /// A statistic.
    Stats(AggLayout),
}

impl ValueLayout {
    /// Size in bytes.
    pub fn size(&self) -> u32 {
        match self {
            ValueLayout::Scalar(ty) => ty.size(),
            ValueLayout::Stats(a) => a.size,
        }
    }
}

/// The layout of a statistic: byte offsets of its 64-bit words. All zero means empty; `min`
/// and `max` mean something only where `count` is not 0.
#[derive(Debug, Clone)]
pub struct AggLayout {
    /// How many values.
    pub count: u32,
    /// Their sum (wraps).
    pub sum: Option<u32>,
    /// Smallest.
    pub min: Option<u32>,
    /// Largest.
    pub max: Option<u32>,
    /// Sum of squares, 128 bits, low word first.
    pub sumsq: Option<u32>,
    /// First bucket and how many.
    pub hist: Option<(u32, u32)>,
    /// Size in bytes.
    pub size: u32,
}
