//! Additions to large arrays against a table in Rust, with another processor in between.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use spile_lir::func::MemoryOperand;
use spile_lir::helpers::Helper;
use spile_lir::interp::{Host, Memory, RegionKind, Trap};
use spile_lir::library::large::{FULL, LargeLayout, PutLayout, put};

use super::forms::{forms, properties};

/// Offsets in the per-CPU area.
const SPARE: u32 = 16;
const KEY: u32 = 64;
const SLOTS: u32 = 128;
const WRAPS: u32 = 480;
const BLOCK: usize = 512;
const ARRAY: u64 = 77;

/// The elements that arrays have: their size, the offsets of the count and of the sum.
const VALUES: &[(u32, Option<u32>, Option<u32>)] = &[
    (8, None, Some(0)),
    (8, Some(0), None),
    (24, Some(8), Some(16)),
];

fn layout(groups: u32, max: u32, words: u32, value: usize, double: bool) -> PutLayout {
    let (value_size, count, sum) = VALUES[value];
    PutLayout {
        name: "put_0".into(),
        map: "array".into(),
        double,
        large: LargeLayout {
            groups,
            slots: max + 2,
            slot_size: 8 * words + value_size,
            spare: SPARE,
        },
        max,
        key: KEY,
        key_size: 8 * words,
        last_slot: SLOTS + 64,
        value_size,
        count,
        sum,
        wraps: count.map(|_| WRAPS),
    }
}

/// One addition.
#[derive(Debug, Clone)]
struct Addition {
    key: Vec<u64>,
    value: u64,
    generation: u64,
    /// Offset of the slot, or 0.
    slot: u64,
    /// The key that another processor puts into the cell that this one wants.
    other: Option<Vec<u64>>,
}

/// The table, written for reading.
#[derive(Debug, Clone)]
struct Model {
    at: PutLayout,
    live: u64,
    given: u64,
    cells: Vec<u32>,
    /// Key, and the words of the element.
    slots: Vec<(Vec<u64>, Vec<u64>)>,
    /// The spare slot, and whether a key was inserted.
    spare: [u32; 2],
}

impl Model {
    fn new(at: &PutLayout) -> Model {
        let word = |bytes: u32| bytes as usize / 8;
        let slot = (vec![0; word(at.key_size)], vec![0; word(at.value_size)]);
        Model {
            at: at.clone(),
            live: 0,
            given: 0,
            cells: vec![0; (LargeLayout::GROUP * at.large.groups + LargeLayout::WINDOW) as usize],
            slots: vec![slot; at.large.slots as usize],
            spare: [0; 2],
        }
    }

    /// Takes a cell; whether that is so.
    fn take(&mut self, cell: u32, tag: u32, key: &[u64], slot: u32) {
        self.slots[slot as usize - 1].0 = key.to_vec();
        self.cells[cell as usize] = slot | tag;
        self.live += 1;
    }

    /// The key's slot; `None` if there is none left.
    fn slot(&mut self, key: &[u64], mut other: Option<&[u64]>) -> Option<u32> {
        let all: Vec<(u32, u32)> = self.at.large.probe_cells(key).collect();
        for (nth, (cell, tag)) in all.iter().enumerate() {
            let found = |model: &Model| {
                let slot = model.cells[*cell as usize] ^ tag;
                let known = (1..=model.at.large.slots).contains(&slot);
                (known && model.slots[slot as usize - 1].0 == key).then_some(slot)
            };
            if let Some(slot) = found(self) {
                return Some(slot);
            }
            let last = nth + 1 == all.len();
            if self.cells[*cell as usize] != 0 && !last {
                continue;
            }
            let slot = self.reserve()?;
            self.slots[slot as usize - 1].0 = key.to_vec();
            if let Some(other) = other.take().filter(|_| self.cells[*cell as usize] == 0) {
                let tags: Vec<(u32, u32)> = self.at.large.probe_cells(other).collect();
                if let Some((_, tag)) = tags.iter().find(|(at, _)| at == cell) {
                    self.given += 1;
                    if let Ok(theirs @ 1..) = u32::try_from(self.given)
                        && theirs <= self.at.large.slots
                    {
                        self.take(*cell, *tag, other, theirs);
                        match found(self) {
                            Some(slot) => return Some(slot),
                            None if last => {}
                            None => continue,
                        }
                    }
                }
            }
            self.take(*cell, *tag, key, slot);
            self.spare[0] = 0;
            return Some(slot);
        }
        None
    }

    /// A slot that is nobody's.
    fn reserve(&mut self) -> Option<u32> {
        if self.live >= self.at.max.into() {
            return None;
        }
        if self.spare[0] == 0 {
            self.given += 1;
            self.spare = [self.given as u32, 1];
        }
        (self.spare[0] <= self.at.large.slots).then_some(self.spare[0])
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.at.large.size() as usize];
        let mut set = |at: usize, new: &[u8]| bytes[at..at + new.len()].copy_from_slice(new);
        set(LargeLayout::LIVE as usize, &self.live.to_le_bytes());
        set(LargeLayout::GIVEN as usize, &self.given.to_le_bytes());
        for (i, cell) in self.cells.iter().enumerate() {
            set(LargeLayout::CELLS as usize + 4 * i, &cell.to_le_bytes());
        }
        for (i, (key, element)) in self.slots.iter().enumerate() {
            let at = self.at.large.slots_offset() + i as u32 * self.at.large.slot_size;
            let words = key.iter().chain(element);
            set(
                at as usize,
                &words.flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>(),
            );
        }
        bytes
    }
}

/// Adds to the words of an element.
fn add(at: &PutLayout, element: &mut [u64], value: u64) {
    let mut add = |offset: Option<u32>, by: u64| {
        if let Some(word) = offset.map(|o| &mut element[o as usize / 8]) {
            *word = word.wrapping_add(by);
        }
    };
    add(at.count, 1);
    add(at.sum, value);
}

/// Whether an addition makes the sum of a statistic pass 64 bits.
fn wraps(at: &PutLayout, element: &[u64], value: u64) -> bool {
    let sum = at.sum.filter(|_| at.wraps.is_some());
    let sum = sum.map(|o| element[o as usize / 8].cast_signed());
    sum.is_some_and(|sum| sum.checked_add(value.cast_signed()).is_none())
}

struct Kernel<'a> {
    block: u64,
    generations: &'a [u64],
    /// The table before the addition, and what another processor wants.
    other: Option<(&'a Model, &'a [u64])>,
}

impl Host for Kernel<'_> {
    fn helper(&mut self, memory: &mut Memory, helper: Helper, args: &[u64]) -> Result<u64, Trap> {
        let (Helper::MapLookup, [ARRAY, key]) = (helper, args) else {
            return Err(Trap::Helper(helper.name().into()));
        };
        let index = u64::from_le_bytes(memory.read(*key, 8)?.try_into().expect("8 bytes"));
        Ok(self.generations.get(index as usize).copied().unwrap_or(0))
    }

    fn location(&mut self, of: &MemoryOperand) -> Option<u64> {
        match of {
            MemoryOperand::Cpu(off) => Some(self.block + u64::from(*off)),
            MemoryOperand::Map(name) if name == "array" => Some(ARRAY),
            _ => None,
        }
    }

    /// Puts the other key into the cell that is wanted.
    fn before_atomic(&mut self, memory: &mut Memory, at: u64) -> Result<(), Trap> {
        let base = self.generations[0];
        let Some((model, key)) = self.other else {
            return Ok(());
        };
        let first = base + u64::from(LargeLayout::CELLS);
        if !(first..first + 4 * model.cells.len() as u64).contains(&at) {
            return Ok(());
        }
        self.other = None;
        let cell = ((at - first) / 4) as u32;
        let mut tags = model.at.large.probe_cells(key);
        let tag = tags.find(|(at, _)| *at == cell);
        let (Some((_, tag)), [0, 0, 0, 0]) = (tag, memory.read(at, 4)?) else {
            return Ok(());
        };
        let word = |memory: &mut Memory, offset: u32, by: u64| {
            let at = base + u64::from(offset);
            let old = u64::from_le_bytes(memory.read(at, 8)?.try_into().expect("8 bytes"));
            memory.write(at, &(old + by).to_le_bytes())?;
            Ok::<_, Trap>(old + by)
        };
        let slot = word(memory, LargeLayout::GIVEN, 1)?;
        if slot > model.at.large.slots.into() {
            return Ok(());
        }
        word(memory, LargeLayout::LIVE, 1)?;
        let to = base
            + u64::from(model.at.large.slots_offset())
            + (slot - 1) * u64::from(model.at.large.slot_size);
        memory.write(
            to,
            &key.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>(),
        )?;
        memory.write(at, &(slot as u32 | tag).to_le_bytes())
    }
}

/// Runs additions in the code and in the model, which must agree at each step.
fn check(at: &PutLayout, additions: &[Addition]) {
    let forms = forms(&format!("{at:?}"), || put(at));
    forms.same(3_000_000, |mut machine| {
        let generations = if at.double { 2 } else { 1 };
        let mut models = vec![Model::new(at); generations];
        let mut block = vec![0u8; BLOCK];
        let home = machine.memory.add(block.clone(), RegionKind::Memory);
        let mut at_memory = |model: &Model| machine.memory.add(model.bytes(), RegionKind::Memory);
        let memories: Vec<u64> = models.iter().map(&mut at_memory).collect();
        for addition in additions {
            let generation = addition.generation as usize & (generations - 1);
            // What another processor does is simulated in the first generation.
            let other = addition.other.as_deref().filter(|_| generation == 0);
            let before = models[generation].clone();
            let key: Vec<u8> = addition.key.iter().flat_map(|w| w.to_le_bytes()).collect();
            block[KEY as usize..][..key.len()].copy_from_slice(&key);
            machine
                .memory
                .write(home + u64::from(KEY), &key)
                .expect("inside");
            let mut host = Kernel {
                block: home,
                generations: &memories,
                other: other.map(|key| (&before, key)),
            };
            let args = [addition.value, addition.generation, addition.slot];
            let result = machine.run("put_0", &args, &mut host).expect("it runs");
            let model = &mut models[generation];
            let slot = model.slot(&addition.key, other);
            assert_eq!(result, if slot.is_none() { FULL as u64 } else { 0 });
            let mut element = vec![0; at.value_size as usize / 8];
            match (slot, addition.slot) {
                (Some(slot), 0) => {
                    let element = &mut model.slots[slot as usize - 1].1;
                    if wraps(at, element, addition.value) {
                        block[WRAPS as usize] += 1;
                    }
                    add(at, element, addition.value);
                }
                (Some(_), slot) if slot <= at.last_slot.into() => {
                    add(at, &mut element, addition.value);
                    let words = [&[1], &*addition.key, &*element].concat();
                    let words: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
                    block[slot as usize..][..words.len()].copy_from_slice(&words);
                }
                _ => {}
            }
            for (half, to) in model.spare.iter().zip([0, 4]) {
                let to = SPARE as usize + 8 * generation + to;
                block[to..to + 4].copy_from_slice(&half.to_le_bytes());
            }
            for (model, memory) in models.iter().zip(&memories) {
                assert!(
                    machine.memory.region(*memory) == Some(&model.bytes()),
                    "the memory"
                );
            }
            assert_eq!(machine.memory.region(home), Some(&*block), "the block");
        }
    });
}

fn key(words: usize) -> impl Strategy<Value = Vec<u64>> {
    let word = prop_oneof![
        4 => 0..12u64,
        2 => (0..6u64, select(vec![2, 6, 20, 40])).prop_map(|(n, shift)| n << shift),
        1 => any::<u64>(),
    ];
    vec(word, words)
}

fn addition(words: usize) -> impl Strategy<Value = Addition> {
    let slot = prop_oneof![4 => Just(0u64), 1 => select(vec![128, 192, 193u64])];
    let other = prop_oneof![
        3 => Just(None),
        1 => key(words).prop_map(Some),
        1 => Just(Some(Vec::new())),
    ];
    (key(words), any::<u64>(), 0..4u64, slot, other).prop_map(
        |(key, value, generation, slot, other)| Addition {
            // No words: the same key.
            other: other.map(|o| if o.is_empty() { key.clone() } else { o }),
            key,
            value,
            generation,
            slot,
        },
    )
}

/// Another key with the same first cell and tag, which differs in one word.
fn twin(large: &LargeLayout, key: &[u64], word: usize) -> Option<Vec<u64>> {
    let first = large.probe_cells(key).next();
    let others = (1..40_000u64).map(|n| {
        let mut other = key.to_vec();
        other[word] ^= n << 8;
        other
    });
    others
        .into_iter()
        .find(|other| large.probe_cells(other).next() == first)
}

/// The memory is missing.
#[test]
fn an_array_without_memory_takes_nothing() {
    let at = layout(1, 5, 1, 0, true);
    let forms = forms(&format!("{at:?}"), || put(&at));
    let result = forms.same(3_000, |mut machine| {
        let block = machine.memory.add(vec![0; BLOCK], RegionKind::Memory);
        let mut host = Kernel {
            block,
            generations: &[],
            other: None,
        };
        machine.run("put_0", &[1, 1, 0], &mut host)
    });
    assert_eq!(result, Ok(0));
}

properties! {
    also an_array_without_memory_takes_nothing;

    300 cases: fn additions_are_where_the_layout_says(
        groups in 1..4u32,
        max in select(vec![1u32, 3, 9, 40]),
        value in 0..VALUES.len(),
        double in any::<bool>(),
        additions in prop_oneof![
            vec(addition(1), 1..70),
            vec(addition(2), 1..70),
            vec(addition(3), 1..30),
        ],
    ) {
        let words = additions[0].key.len();
        let at = layout(groups, max, words as u32, value, double);
        let twins = additions.iter().take(words).enumerate().filter_map(|(word, addition)| {
            let key = twin(&at.large, &addition.key, word)?;
            Some(Addition { key, ..addition.clone() })
        });
        let twins: Vec<Addition> = twins.collect();
        let all = [&twins, &additions[..], &twins].concat();
        check(&at, &all);
    }
}
