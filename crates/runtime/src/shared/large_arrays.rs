//! The elements of large arrays (see [`LargeLayout`]), in memory that kernel handlers write and the
//! controller maps. The caller of [`LargeElements::take`] ensures that no handler uses it any more.

use std::cell::OnceCell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use spile_cast::Cast;
use spile_ir::interp::Cell;
use spile_layout::{LargeLayout, PerCpuArray, ValueLayout};

use crate::shared::state::{HostMemory, StateMemory, WordMemory, read_cell};

/// If at most one of this many groups of cells has a key, cells are cleared one by one.
const FEW: u32 = 8;

/// The elements of one array.
pub struct LargeElements {
    map: HostMemory,
    /// Bytes of one generation, and of all.
    size: usize,
    bytes: usize,
    memory: OnceCell<WordMemory>,
}

impl LargeElements {
    /// The elements in this memory, which is mapped when it is first needed; `double` means two
    /// generations.
    pub fn new(map: HostMemory, large: &LargeLayout, double: bool) -> LargeElements {
        let size = large.size().fit::<usize>();
        LargeElements {
            map,
            size,
            bytes: if double { 2 * size } else { size },
            memory: OnceCell::new(),
        }
    }

    fn memory(&self) -> io::Result<&[AtomicU64]> {
        let memory = match self.memory.get() {
            Some(memory) => memory,
            None => {
                let bytes = self.bytes.next_multiple_of(rustix::param::page_size());
                let memory = self.map.map(0, bytes)?;
                self.memory.get_or_init(|| memory)
            }
        };
        Ok(memory.words())
    }

    /// The memory of the first generation up to the last slot that was given out: to map a page takes as long as to
    /// read it, and most arrays have few elements.
    fn map_used(&self, large: &LargeLayout) -> io::Result<WordMemory> {
        let page = rustix::param::page_size();
        let head = self.map.map(0, page)?;
        let given = head.words()[LargeLayout::GIVEN as usize / 8].load(Ordering::Acquire);
        let given = given.min(large.slots.into()).fit::<usize>();
        let bytes = large.slots_offset() as usize + given * large.slot_size as usize;
        self.map
            .map(0, bytes.min(self.bytes).next_multiple_of(page))
    }

    /// Calls back with each key and its delta, in the order of insertion, and zeroes them unless no
    /// handler runs any more (`last`).
    pub fn take(
        &self,
        state: &StateMemory,
        array: &PerCpuArray,
        (generation, last): (u32, bool),
        mut visit: impl FnMut(&[u8], Cell),
    ) -> io::Result<()> {
        let Some(large) = &array.large else {
            return Ok(());
        };
        let spare = |cpu| state.cpu(cpu, large.spare + 8 * generation);
        let spares: Vec<u64> = (0..state.cpus())
            .map(|cpu| spare(cpu).swap(0, Ordering::Acquire))
            .collect();
        // Without insertions no slot of a cache was taken either.
        if spares.iter().all(|spare| *spare == 0) {
            return Ok(());
        }
        let used;
        let words = if last && generation == 0 && self.memory.get().is_none() {
            used = self.map_used(large)?;
            used.words()
        } else {
            &self.memory()?[generation as usize * self.size / 8..]
        };
        let view = GenerationView {
            words,
            large,
            key_size: array.key_size,
        };
        let given = view.word(LargeLayout::GIVEN).load(Ordering::Acquire);
        let given = given.min(large.slots.into()).fit::<u32>();
        take_caches(state, array, generation, &view, &mut visit);
        let mut key = vec![0; array.key_size as usize];
        for slot in (1..=given).filter(|slot| spares.iter().all(|s| s.low32() != *slot)) {
            view.key(slot, &mut key);
            visit(&key, view.cell(slot, &array.value));
        }
        if !last {
            view.clear(given);
        }
        Ok(())
    }
}

/// Adds the deltas in the caches to the elements of the same keys.
fn take_caches(
    state: &StateMemory,
    array: &PerCpuArray,
    generation: u32,
    view: &GenerationView<'_>,
    visit: &mut impl FnMut(&[u8], Cell),
) {
    let first = array.cache + generation * array.gen_stride;
    let size = array.value.size();
    for cpu in 0..state.cpus() {
        for slot in 0..array.slots {
            let offset = first + slot * array.slot_size;
            if state.cpu(cpu, offset).load(Ordering::Relaxed) == 0 {
                continue;
            }
            let key: Vec<u64> = (0..array.key_size / 8)
                .map(|i| state.cpu(cpu, offset + 8 + 8 * i).load(Ordering::Relaxed))
                .collect();
            let value = offset + 8 + array.key_size;
            match view.find(&key) {
                Some(slot) => {
                    for o in (0..size).step_by(8) {
                        let delta = state.cpu(cpu, value + o).load(Ordering::Relaxed);
                        view.word(view.value(slot) + o)
                            .fetch_add(delta, Ordering::Relaxed);
                    }
                }
                // The key's slot is in no cell.
                None => visit(
                    &state.bytes(cpu, offset + 8, array.key_size),
                    state.take(cpu, value, &array.value),
                ),
            }
            state.zero(cpu, offset, array.slot_size);
        }
    }
}

/// The memory of one generation.
struct GenerationView<'m> {
    words: &'m [AtomicU64],
    large: &'m LargeLayout,
    key_size: u32,
}

impl GenerationView<'_> {
    fn word(&self, offset: u32) -> &AtomicU64 {
        &self.words[offset as usize / 8]
    }

    /// A 32-bit half of a word.
    fn u32_at(&self, offset: u32) -> u32 {
        let bytes = self.word(offset).load(Ordering::Relaxed).to_ne_bytes();
        let [a, b, c, d, e, f, g, h] = bytes;
        u32::from_ne_bytes(if offset % 8 < 4 {
            [a, b, c, d]
        } else {
            [e, f, g, h]
        })
    }

    fn slot(&self, number: u32) -> u32 {
        self.large.slots_offset() + (number - 1) * self.large.slot_size
    }

    fn value(&self, number: u32) -> u32 {
        self.slot(number) + self.key_size
    }

    fn key_word(&self, number: u32, i: u32) -> u64 {
        self.word(self.slot(number) + 8 * i).load(Ordering::Relaxed)
    }

    fn key(&self, number: u32, to: &mut [u8]) {
        for (i, word) in to.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&self.key_word(number, i.fit::<u32>()).to_ne_bytes());
        }
    }

    fn cell(&self, number: u32, layout: &ValueLayout) -> Cell {
        let value = self.value(number);
        read_cell(layout, |o| self.word(value + o).load(Ordering::Relaxed))
    }

    fn keys(&self, number: u32) -> Vec<u64> {
        let words = self.key_size / 8;
        (0..words).map(|i| self.key_word(number, i)).collect()
    }

    fn cell_at(cell: u32) -> u32 {
        LargeLayout::CELLS + 4 * cell
    }

    /// The slots of a key's cells with matching tags, up to the first free cell, with the cells.
    fn slots<'v>(&'v self, key: &[u64]) -> impl Iterator<Item = (u32, u32)> + use<'v> {
        self.large
            .probe_cells(key)
            .map(|(cell, tag)| (cell, tag, self.u32_at(GenerationView::cell_at(cell))))
            .take_while(|(_, _, content)| *content != 0)
            .filter(|(_, tag, content)| content & LargeLayout::TAG == *tag)
            .map(|(cell, _, content)| (cell, content & !LargeLayout::TAG))
            // Programs write this memory too, so the number is checked.
            .filter(|(_, slot)| (1..=self.large.slots).contains(slot))
    }

    /// The slot of a key.
    fn find(&self, key: &[u64]) -> Option<u32> {
        let same = |slot: &u32| (0..).zip(key).all(|(i, w)| self.key_word(*slot, i) == *w);
        self.slots(key).map(|(_, slot)| slot).find(same)
    }

    /// Zeroes the memory, of which `given` slots were given out.
    fn clear(&self, given: u32) {
        let zero = |from: u32, to: u32| {
            for word in &self.words[from as usize / 8..to as usize / 8] {
                word.store(0, Ordering::Relaxed);
            }
        };
        if given > self.large.groups / FEW {
            zero(LargeLayout::CELLS, self.large.slots_offset());
        } else {
            // Each slot leads to its cells while all of them are present.
            let cells: Vec<u32> = (1..=given)
                .filter_map(|slot| {
                    let keys = self.keys(slot);
                    let cell = self.slots(&keys).find(|(_, held)| *held == slot)?;
                    Some(GenerationView::cell_at(cell.0))
                })
                .collect();
            for cell in cells {
                let mut bytes = self.word(cell).load(Ordering::Relaxed).to_ne_bytes();
                let half = cell as usize % 8;
                bytes[half..half + 4].fill(0);
                let word = u64::from_ne_bytes(bytes);
                self.word(cell).store(word, Ordering::Relaxed);
            }
        }
        zero(self.slot(1), self.slot(given + 1));
        self.word(LargeLayout::GIVEN).store(0, Ordering::Relaxed);
        self.word(LargeLayout::LIVE).store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spile_ir::Ty;
    use spile_ir::interp::Value;
    use spile_layout::{Colocation, GlobalLayout, GlobalLocation, Layout};

    const CACHE: u32 = 256;

    fn array(large: LargeLayout) -> PerCpuArray {
        PerCpuArray {
            cache: CACHE,
            gen_stride: 0,
            slots: 2,
            slot_size: 24,
            maps: vec!["g_a_0".into()],
            key_size: 8,
            keys: vec![Ty::Long],
            value: ValueLayout::Scalar(Ty::Long),
            colocated: Colocation {
                host: None,
                offset: 0,
                size: 8,
            },
            spilt: None,
            max: 100,
            wraps: false,
            large: Some(large),
        }
    }

    fn state(array: &PerCpuArray) -> StateMemory {
        let location = GlobalLocation::PerCpuArray(array.clone());
        StateMemory::in_memory(&Layout {
            shared_size: spile_layout::shared::END,
            cpu_stride: 1024,
            cpus: 2,
            globals: vec![Some(GlobalLayout {
                lock: None,
                location,
            })],
            ..Layout::default()
        })
        .expect("a layout that fits")
    }

    /// Inserts a key as handlers do, into a cell or not.
    fn put(view: &GenerationView<'_>, key: u64, value: u64, linked: bool) {
        let slot = view
            .word(LargeLayout::GIVEN)
            .fetch_add(1, Ordering::Relaxed) as u32
            + 1;
        view.word(LargeLayout::LIVE).fetch_add(1, Ordering::Relaxed);
        let at = view.slot(slot);
        view.word(at).store(key, Ordering::Relaxed);
        view.word(at + 8).store(value, Ordering::Relaxed);
        if !linked {
            return;
        }
        let cells: Vec<_> = view.large.probe_cells(&[key]).collect();
        let free = |(cell, _): &&(u32, u32)| view.u32_at(GenerationView::cell_at(*cell)) == 0;
        let (cell, tag) = cells.iter().find(free).or(cells.last()).expect("cells");
        let at = GenerationView::cell_at(*cell);
        let mut bytes = view.word(at).load(Ordering::Relaxed).to_ne_bytes();
        bytes[at as usize % 8..][..4].copy_from_slice(&(tag | slot).to_ne_bytes());
        view.word(at)
            .store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
    }

    #[test]
    fn elements_are_taken_in_order_and_cleared() {
        // Sizes with few cells, where keys collide, and with many cells, where those of few keys
        // are cleared one by one.
        for (groups, keys) in [(2, 100), (60, 100), (1000, 100), (60, 3)] {
            let large = LargeLayout {
                groups,
                slots: 102,
                slot_size: 16,
                spare: 512,
            };
            let array = array(large);
            let state = state(&array);
            let elements = LargeElements::in_memory(&large);
            let view = GenerationView {
                words: elements.memory().expect("memory"),
                large: &large,
                key_size: 8,
            };
            for _ in 0..2 {
                for n in 0..keys {
                    put(&view, n << 20, n, true);
                }
                // A slot that processor 1 did not use, and a slot of processor 0's cache with the
                // last key.
                put(&view, 7 << 40, 0, false);
                let used = 1 << 32;
                state.cpu(0, 512).store(used, Ordering::Relaxed);
                state
                    .cpu(1, 512)
                    .store(used | (keys + 1), Ordering::Relaxed);
                for (i, word) in [1, (keys - 1) << 20, 1000].into_iter().enumerate() {
                    let at = CACHE + 24 + 8 * i as u32;
                    state.cpu(0, at).store(word, Ordering::Relaxed);
                }
                let mut got = Vec::new();
                let add = |key: &[u8], delta: Cell| {
                    let key = u64::from_ne_bytes(key.try_into().expect("8 bytes"));
                    got.push((key, delta.value()));
                };
                elements.take(&state, &array, (0, false), add).unwrap();
                let with = |n| {
                    if n == keys - 1 {
                        n as i64 + 1000
                    } else {
                        n as i64
                    }
                };
                let wanted = (0..keys).map(|n| (n << 20, Value::Long(with(n))));
                assert_eq!(got, wanted.collect::<Vec<_>>());
                let words = elements.memory().expect("memory").iter();
                assert!(words.into_iter().all(|w| w.load(Ordering::Relaxed) == 0));
                assert_eq!(state.cpu(0, CACHE + 24).load(Ordering::Relaxed), 0);
                assert_eq!(state.cpu(1, 512).load(Ordering::Relaxed), 0);
            }
            let nothing = |_: &[u8], _| panic!("an element");
            elements.take(&state, &array, (0, true), nothing).unwrap();
        }
    }
}
