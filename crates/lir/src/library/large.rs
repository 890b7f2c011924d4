//! Large arrays: the layout of their elements in the memory of a map, and the function that adds to an
//! element.

use spile_cast::Cast;

use crate::builder::{BlockExit, Builder, Scalar, Var, build};
use crate::func::{MemoryOperand, Module};
use crate::helpers::Helper;
use crate::op::{AluOp, AtomicOp, Size, Width};

/// The layout of one generation of a large array: an element of an array map, which the controller
/// maps.
///
/// ```text
/// LIVE     number of elements (atomic)
/// GIVEN    number of slots that were given out (atomic)
/// ZERO     a word that is always 0, in a cache line that is never written
/// CELLS    groups of GROUP cells of 32 bits, and WINDOW more: the number of a slot, counted from 1, under
///          the key's tag (TAG), or 0
/// slots()  slot after slot of `slot_size` bytes: the key, the element
/// ```
///
/// This is a hash table with open addressing: [`LargeLayout::probe_cells`] gives the cells where a key may be.
/// A key is in the first of them that was free at its insertion; a cell never changes its slot.
/// Keys with consecutive last words have consecutive cells, and share a cache line.
///
/// To insert a key, a processor writes key and element into a slot, and then the slot's number into
/// a free cell, if that is still free. If not, it saves the slot in `spare` for its next key.
/// Additions to an element are atomic. If all cells of a key are taken, the insertion stops at the
/// last one. The sum is unaffected by a slot that is in no cell, or by a key that has two slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LargeLayout {
    /// Number of groups of cells.
    pub groups: u32,
    /// Number of slots.
    pub slots: u32,
    /// Bytes of a slot.
    pub slot_size: u32,
    /// Offset in each per-CPU area of a word for each generation. Its low half is a slot that was
    /// given out but not used, or 0. Its high half is nonzero if the CPU has inserted a key.
    pub spare: u32,
}

/// 2^64 divided by the golden ratio: multiplication by it spreads keys over the high bits.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl LargeLayout {
    /// Offset of the number of elements.
    pub const LIVE: u32 = 0;
    /// Offset of the number of slots given out.
    pub const GIVEN: u32 = 8;
    /// Offset of a word that is always zero.
    pub const ZERO: u32 = 64;
    /// Offset of the cells.
    pub const CELLS: u32 = 128;
    /// Cells of a group, a power of two.
    pub const GROUP: u32 = 4;
    /// Binary logarithm of [`LargeLayout::GROUP`].
    pub const GROUP_BITS: u32 = LargeLayout::GROUP.ilog2();
    /// Number of consecutive cells to probe in one window, a power of two.
    pub const WINDOW: u32 = 8;
    /// Number of windows to probe.
    pub const WINDOWS: u32 = 8;
    /// The bits of a cell that hold the tag; the others hold the slot.
    pub const TAG: u32 = 0xff00_0000;
    /// Number of bits below the tag.
    pub const TAG_BITS: u32 = LargeLayout::TAG.trailing_zeros();
    /// Position of the bits of a key's hash that select a cell of a group.
    pub const CELL_BITS: u32 = 20;

    /// Number of groups for a number of elements: half of the cells stay free.
    #[must_use]
    pub fn groups(max: u32) -> Option<u32> {
        Some(max.checked_mul(2)?.div_ceil(LargeLayout::GROUP))
    }

    /// Offset of the first slot.
    #[must_use]
    pub fn slots_offset(&self) -> u32 {
        let cells = LargeLayout::GROUP * self.groups + LargeLayout::WINDOW;
        (LargeLayout::CELLS + 4 * cells).next_multiple_of(64)
    }

    /// Size of a generation in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        u64::from(self.slots_offset()) + u64::from(self.slot_size) * u64::from(self.slots)
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
            .take(LargeLayout::WINDOWS as usize)
            .flat_map(move |hash| {
                let group = ((hash >> 32) * groups) >> 32;
                let cell =
                    ((hash >> LargeLayout::CELL_BITS) ^ last) % u64::from(LargeLayout::GROUP);
                let first = group as u32 * LargeLayout::GROUP + cell.fit::<u32>();
                let tag = (hash ^ (last << LargeLayout::TAG_BITS)).low32() & LargeLayout::TAG;
                (first..first + LargeLayout::WINDOW).map(move |cell| (cell, tag))
            })
    }
}

/// Result of [`put`] if the array has no slot for the key.
pub const FULL: i32 = 1;

/// An array, and where the host has what [`put`] needs. Offsets are those of bytes in the processor's
/// block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutLayout {
    /// The function's name.
    pub name: String,
    /// The map with the memory of each generation.
    pub map: String,
    /// Whether there are two generations.
    pub double: bool,
    /// The memory.
    pub large: LargeLayout,
    /// Number of elements that the array may have.
    pub max: u32,
    /// The key to look for.
    pub key: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// The last slot of the processor's cache. A slot is a word that says whether it is taken, a key and an
    /// element.
    pub last_slot: u32,
    /// Bytes of an element.
    pub value_size: u32,
    /// Offset in an element of the number of additions, if it has one.
    pub count: Option<u32>,
    /// The same of their sum.
    pub sum: Option<u32>,
    /// Offset of the number of sums that passed 64 bits, if they are counted.
    pub wraps: Option<u32>,
}

impl PutLayout {
    /// Offsets of the words of a key.
    fn words(&self) -> impl DoubleEndedIterator<Item = i16> {
        (0..self.key_size.fit::<i16>()).step_by(8)
    }
}

/// The function `put`, named by the layout.
pub fn put(layout: &PutLayout) -> Module {
    let contract = "\
Adds to the element of the key in the processor's block: in a slot of the cache, which the key then takes,
or in the memory, into which it inserts the key if it is not there. `FULL` if there is no slot.
value: to add. generation: the lowest bit counts. slot: offset of a free slot in the block, or 0.
Cost: a look-up of the memory, about 60 instructions if the key's first cell has it, about 12 for each
further one.";
    let params = ["value", "generation", "slot"];
    Module::from(build(&layout.name, contract, params, |f, p| {
        let [value, generation, slot] = p;
        let block = f.addr(MemoryOperand::Cpu(0));
        let generation = match layout.double {
            true => generation & 1,
            false => f.constant(0),
        };
        let index = f.slot(8);
        index.store_u64(0, generation);
        let map = f.addr(MemoryOperand::Map(layout.map.clone()));
        let memory = f.helper(Helper::MapLookup, &[map, index]);
        f.ret_if(memory.eq(0), 0);
        let table = Table {
            f,
            layout,
            memory,
            block,
            generation: index,
        };
        let element = table.element();
        f.if_else(
            slot.eq(0),
            || table.add(element, value),
            || {
                f.ret_if(slot.gt(layout.last_slot.cast_signed()), 0);
                table.take_slot(block + slot, value);
            },
        );
        f.ret(0);
    }))
}

/// What the code of [`put`] has.
struct Table<'a, 'b> {
    f: &'b Builder,
    layout: &'a PutLayout,
    memory: Scalar<'b>,
    block: Scalar<'b>,
    /// The address of the generation's number. What few keys need is loaded where they need it.
    generation: Scalar<'b>,
}

/// A cell of a key.
struct Cell<'b> {
    /// The address, without [`LargeLayout::CELLS`].
    address: Scalar<'b>,
    /// The key's tag there.
    tag: Scalar<'b>,
}

const CELLS: i16 = spile_cast::i16_of(LargeLayout::CELLS as usize);

impl<'b> Cell<'b> {
    fn content(&self) -> Scalar<'b> {
        self.address.load_bytes(Size::U32, CELLS)
    }
}

impl<'b> Table<'_, 'b> {
    /// The address of the key's slot, which is inserted if absent.
    fn element(&self) -> Scalar<'b> {
        let (f, large) = (self.f, self.layout.large);
        let last = || self.key(self.layout.key_size.fit::<i16>() - 8);
        let hash = f.var("hash", self.hash());
        let slot = f.var("slot", 0);
        // A word that the verifier does not know: all iterations look equal to it then.
        let probed = f.var("probed", self.memory.load_u64(LargeLayout::ZERO.fit()));
        f.block(|search| {
            f.repeat_open(LargeLayout::WINDOWS, || {
                let h = hash.get();
                let last_word = last();
                let tag = ((last_word << LargeLayout::TAG_BITS.cast_signed()) ^ h).alu(
                    Width::W32,
                    AluOp::And,
                    LargeLayout::TAG.cast_signed(),
                );
                let group = ((h >> 32) * large.groups.cast_signed()) >> 32;
                let cell = ((h >> LargeLayout::CELL_BITS.cast_signed()) ^ last_word)
                    & (LargeLayout::GROUP.cast_signed() - 1);
                let first = self.memory
                    + (group << (LargeLayout::GROUP_BITS.cast_signed() + 2))
                    + (cell << 2);
                f.repeat_open(LargeLayout::WINDOW, || {
                    let nth = probed & (LargeLayout::WINDOW.cast_signed() - 1);
                    let cell = Cell {
                        address: first + (nth << 2),
                        tag,
                    };
                    self.probe(&cell, (slot, search));
                    probed.set(probed + 1);
                    let nth = probed & (LargeLayout::WINDOW.cast_signed() - 1);
                    f.break_if(nth.eq(0));
                });
                let cells = LargeLayout::WINDOW * LargeLayout::WINDOWS;
                let cells_left = (probed >> cells.ilog2().cast_signed()).eq(0);
                f.if_else(
                    cells_left,
                    || hash.set(((h ^ (h >> 32)) + last()) * GOLDEN),
                    || {
                        // The last cell loses its key.
                        let cell = Cell {
                            address: first + ((LargeLayout::WINDOW.cast_signed() - 1) << 2),
                            tag,
                        };
                        let content = cell.content();
                        self.insert(&cell, content, None, (slot, search));
                    },
                );
            });
            f.ret(FULL);
        });
        slot.get()
    }

    /// A word of the key.
    fn key(&self, offset: i16) -> Scalar<'b> {
        (self.block + self.layout.key.cast_signed()).load_u64(offset)
    }

    /// The first hash of the key ([`LargeLayout::probe_cells`]).
    fn hash(&self) -> Scalar<'b> {
        let mut words = self.layout.words().rev().map(|offset| self.key(offset));
        let last = words.next().unwrap_or(self.f.constant(0));
        let last = last >> LargeLayout::GROUP_BITS.cast_signed();
        let mixed = words.rev().fold(None, |sum: Option<Scalar<'b>>, word| {
            let sum = sum.map_or(word, |sum| sum ^ word) * GOLDEN;
            Some(sum ^ (sum >> 29))
        });
        mixed.map_or(last, |mixed| mixed ^ last) * GOLDEN
    }

    /// The address of a slot.
    fn slot(&self, number: Scalar<'b>) -> Scalar<'b> {
        let large = self.layout.large;
        let first = large.slots_offset() - large.slot_size;
        self.memory + (number * large.slot_size.cast_signed()) + first.cast_signed()
    }

    /// Leaves with the key's slot if the cell has it, or if it is free.
    fn probe(&self, cell: &Cell<'b>, (slot, search): (Var<'b>, BlockExit<'b>)) {
        let f = self.f;
        let content = f.var("content", cell.content());
        f.block(|taken| {
            taken.leave_if(content.ne(0));
            self.insert(cell, f.constant(0), Some((content, taken)), (slot, search));
        });
        f.block(|other| {
            let number = content ^ cell.tag;
            // So is a number under another tag.
            other.leave_if(number.gt(self.layout.large.slots.cast_signed()));
            let address = self.slot(number);
            for offset in self.layout.words() {
                other.leave_if(address.load_u64(offset).ne(self.key(offset)));
            }
            slot.set(address);
            search.leave();
        });
    }

    /// Inserts the key into a cell, and leaves with its slot. If another processor has changed the cell,
    /// perhaps for the same key, goes to `raced` with the new content; without it, the slot stays in no cell.
    fn insert(
        &self,
        cell: &Cell<'b>,
        content: Scalar<'b>,
        raced: Option<(Var<'b>, BlockExit<'b>)>,
        (slot, search): (Var<'b>, BlockExit<'b>),
    ) {
        let (f, memory) = (self.f, self.memory);
        let retry = |changed: Scalar<'b>| {
            if let Some((content, raced)) = raced {
                content.set(changed);
                raced.leave();
            }
        };
        let live = memory.load_u64(LargeLayout::LIVE.fit());
        f.if_(live.ge(self.layout.max.cast_signed()), || {
            // Unless the last slot was given to this key.
            if raced.is_some() {
                let now = cell.content();
                f.if_(now.ne(content), || retry(now));
            }
            f.ret(FULL);
        });
        // Older verifiers forget a word that a helper was given.
        let generation = match self.layout.double {
            true => self.generation.load_u64(0) & 1,
            false => f.constant(0),
        };
        let spare = self.block + self.layout.large.spare.cast_signed() + (generation << 3);
        let number = f.var("number", spare.load_bytes(Size::U32, 0));
        f.if_(number.eq(0), || {
            let given = memory.fetch_add(LargeLayout::GIVEN.fit(), 1) + 1;
            spare.store_bytes(Size::U32, 0, given);
            spare.store_bytes(Size::U32, 4, 1);
            number.set(given);
        });
        f.ret_if(number.gt(self.layout.large.slots.cast_signed()), FULL);
        let address = self.slot(number.get());
        for offset in self.layout.words() {
            address.store_u64(offset, self.key(offset));
        }
        let was = cell
            .address
            .compare_exchange_u32(CELLS, content, number | cell.tag);
        if raced.is_some() {
            f.if_(was.ne(content), || retry(was));
        }
        spare.store_bytes(Size::U32, 0, 0);
        memory.atomic(AtomicOp::Add, LargeLayout::LIVE.fit(), 1);
        slot.set(address);
        search.leave();
    }

    /// Adds to the element in a slot. Other processors add to it, too.
    fn add(&self, slot: Scalar<'b>, value: Scalar<'b>) {
        let displacement = |offset: u32| (self.layout.key_size + offset).fit::<i16>();
        if let Some(count) = self.layout.count {
            slot.atomic(AtomicOp::Add, displacement(count), 1);
        }
        match (self.layout.sum, self.layout.wraps) {
            (Some(sum), Some(wraps)) => {
                let before = slot.fetch_add(displacement(sum), value);
                let after = before + value;
                self.f.if_(((before ^ after) & (value ^ after)).slt(0), || {
                    let count = self.block + wraps.cast_signed();
                    count.store_u64(0, count.load_u64(0) + 1);
                });
            }
            (Some(sum), None) => slot.atomic(AtomicOp::Add, displacement(sum), value),
            (None, _) => {}
        }
    }

    /// Makes a free slot the element's, with one addition.
    fn take_slot(&self, slot: Scalar<'b>, value: Scalar<'b>) {
        let element = 8 + self.layout.key_size.fit::<i16>();
        for offset in self.layout.words() {
            slot.store_u64(8 + offset, self.key(offset));
        }
        slot.store_u64(0, 1);
        for offset in (0..self.layout.value_size).step_by(8) {
            let to = element + offset.fit::<i16>();
            match Some(offset) {
                offset if offset == self.layout.count => slot.store_u64(to, 1),
                offset if offset == self.layout.sum => slot.store_u64(to, value),
                _ => slot.store_u64(to, 0),
            }
        }
    }
}
