//! The locations of globals: state memory, hash tables, or both.

use spile_cast::Cast;
use spile_ir::{GlobalId, Ty};

use crate::LargeLayout;

/// The location of a global, and its lock.
#[derive(Debug, Clone)]
pub struct GlobalLayout {
    /// Offset of its lock word in the shared area. 0: free. Otherwise the holder: a small number
    /// for a handler; the controller's process number in the upper half for the controller.
    pub lock: Option<u32>,
    /// The location.
    pub location: GlobalLocation,
}

/// The location of a global's value.
#[derive(Debug, Clone)]
pub enum GlobalLocation {
    /// A number or string in the shared area.
    Scalar {
        /// Offset in the shared area.
        offset: u32,
        /// Its type.
        ty: Ty,
    },
    /// A statistic in the shared area, updated under the lock.
    Stats {
        /// Offset in the shared area.
        offset: u32,
        /// Layout of the statistic.
        agg: AggLayout,
    },
    /// A hash map. Its key has the key fields one after the other, each a multiple of 8 bytes. Its
    /// value has 8 bytes of insertion sequence (in wrapping arrays, and those that a `foreach`
    /// iterations), then the element.
    Hash {
        /// Name of the map.
        map: String,
        /// Bytes of a key.
        key_size: u32,
        /// Types of the key's fields.
        keys: Vec<Ty>,
        /// Whether values begin with the insertion sequence.
        seq: bool,
        /// Whether a full array evicts its oldest element instead of raising an overflow error;
        /// implies `seq`.
        wrap: bool,
        /// Layout of the element.
        value: ValueLayout,
        /// Limit on the number of elements.
        max: u32,
        /// The element's field, if the map is the one of thread records.
        field: Option<ThreadField>,
    },
    /// Deltas of a number (8 bytes) or statistic in each per-CPU area, at this offset plus
    /// `generation * gen_stride`.
    PerCpuScalar {
        /// Offset in each per-CPU area.
        offset: u32,
        /// Bytes from one generation to the next; 0 with one generation.
        gen_stride: u32,
        /// Layout of the value.
        value: ValueLayout,
    },
    /// Deltas of an array.
    PerCpuArray(PerCpuArray),
}

/// The location of an array's deltas.
///
/// Each per-CPU area has a direct-mapped cache of `slots` slots at `cache + generation *
/// gen_stride`. A slot has `slot_size` bytes: a used word (0 = empty), the key, the element. Behind
/// the cache is one hash map for each generation, with an element for each CPU: a per-CPU map, or a
/// plain map whose values contain one element after the other. A key can be in the cache and in the
/// map; its delta is the sum of both over all CPUs.
///
/// Elements of several arrays can be co-located ([`Colocation`]). Elements of a large array are not
/// in hash maps, but in memory that the controller maps ([`LargeLayout`]).
#[derive(Debug, Clone)]
pub struct PerCpuArray {
    /// Offset of the cache in each per-CPU area.
    pub cache: u32,
    /// Bytes from one generation's cache to the next; 0 with one generation, or without a cache.
    pub gen_stride: u32,
    /// Number of slots of a cache, a power of two; 0 without a cache.
    pub slots: u32,
    /// Bytes of a slot.
    pub slot_size: u32,
    /// Names of the maps, one for each generation. A large array has one map, with an element for
    /// each generation.
    pub maps: Vec<String>,
    /// Bytes of a key.
    pub key_size: u32,
    /// Types of the key's fields.
    pub keys: Vec<Ty>,
    /// Layout of the element.
    pub value: ValueLayout,
    /// The part of the values that is this array's.
    pub colocated: Colocation,
    /// Offset in each per-CPU area of a word for each generation: nonzero if a delta is in the map
    /// and not in the cache. `None` if the array has no such word.
    pub spilt: Option<u32>,
    /// Limit on the number of elements; the maps of wrapping arrays have additional space for the
    /// elements of one eviction.
    pub max: u32,
    /// Whether a full map evicts its oldest elements. Values (of a plain map) then begin with a
    /// sequence number, which is 0 during an insertion.
    pub wraps: bool,
    /// The layout of a large array's elements.
    pub large: Option<LargeLayout>,
}

impl PerCpuArray {
    /// Whether the array has two generations.
    #[must_use]
    pub fn double(&self) -> bool {
        self.gen_stride > 0 || self.maps.len() > 1
    }
}

/// The part of the values in a cache and its maps that is an array's element (see
/// `spile_ir::storage::colocated`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Colocation {
    /// The host, if the keys are those of another array. An element of this array exists only if
    /// its statistic has a value.
    pub host: Option<GlobalId>,
    /// Offset of the element in such a value.
    pub offset: u32,
    /// Bytes of such a value, with all elements.
    pub size: u32,
}

/// An element that is a field of a thread record. The first word of a record has a bit for each
/// present field; the other fields are 0. A record without any field is in no map and no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadField {
    /// Offset of the field's word.
    pub offset: u32,
    /// Its bit of the first word.
    pub bit: u32,
    /// Bytes of a record.
    pub record: u32,
    /// The location of most records; `None` if all are in the map.
    pub front: Option<ThreadSlots>,
}

/// Slots for thread records in the shared area, which need no look-up. A thread's record is in the
/// slot of the thread's number; the word behind it holds the owner ([`ThreadSlots::owner`]) or 0.
/// If another thread occupies the slot, the record is in the hash map. A handler then works on a
/// copy in one of its processor's buffers behind the slots, and writes it back to the map at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadSlots {
    /// Offset of the first slot in the shared area.
    pub offset: u32,
    /// Number of slots, a power of two.
    pub slots: u32,
    /// Bytes of a slot.
    pub stride: u32,
    /// Offset in the shared area of the number of records in the hash map.
    pub spilt: u32,
    /// Offset in each per-CPU area of a word for each of its buffers: the owner of the record in it,
    /// or 0.
    pub lent: u32,
}

impl ThreadSlots {
    /// The value of the owner word of a thread's slot.
    #[must_use]
    pub fn owner(thread: u64) -> u64 {
        thread.wrapping_add(1)
    }

    /// Number of buffers of each processor: the number of threads whose records a handler can access.
    pub const BUFFERS: u32 = spile_cast::u32_of(spile_ir::storage::ThreadIdRegs::COUNT);

    /// Number of slots and buffers.
    #[must_use]
    pub fn all(&self, cpus: u32) -> u32 {
        self.slots + ThreadSlots::BUFFERS * cpus
    }

    /// Offset of a slot in the shared area.
    #[must_use]
    pub fn slot(&self, thread: u64) -> u32 {
        self.offset + (thread % u64::from(self.slots)).fit::<u32>() * self.stride
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

/// The layout of a statistic: byte offsets of its 64-bit words. All zeros mean empty; `min` and
/// `max` are valid only if `count` is not 0.
#[derive(Debug, Clone)]
pub struct AggLayout {
    /// Number of values.
    pub count: u32,
    /// Sum of the values (wraps).
    pub sum: Option<u32>,
    /// Smallest value.
    pub min: Option<u32>,
    /// Largest value.
    pub max: Option<u32>,
    /// Sum of squares, 128 bits, low word first.
    pub sumsq: Option<u32>,
    /// Offset of the first bucket, and number of buckets.
    pub hist: Option<(u32, u32)>,
    /// Size in bytes.
    pub size: u32,
}
