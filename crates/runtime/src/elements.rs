//! The elements of large arrays (see [`Large`]), in memory that handlers of the kernel write and the
//! controller maps. The caller of [`LargeElements::take`] has made sure that no handler uses it any more.

use std::cell::OnceCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use spile_bpf::layout::{Large, PerCpuArray, ValueLayout};
use spile_ir::interp::Cell;

use crate::state::{Memory, State, read_cell};

/// The elements of one generation of an array.
pub struct LargeElements {
    map: Option<OwnedFd>,
    bytes: usize,
    memory: OnceCell<Memory>,
}

impl LargeElements {
    /// Those in this map, whose memory is mapped when it is needed.
    pub fn new(map: OwnedFd, large: &Large) -> LargeElements {
        LargeElements {
            map: Some(map),
            bytes: large.size() as usize,
            memory: OnceCell::new(),
        }
    }

    /// Plain memory, all zero.
    #[cfg(test)]
    fn plain(large: &Large) -> LargeElements {
        let words = (0..large.size() / 8).map(|_| AtomicU64::new(0)).collect();
        LargeElements {
            map: None,
            bytes: large.size() as usize,
            memory: OnceCell::from(Memory::Owned(words)),
        }
    }

    fn memory(&self) -> io::Result<&[AtomicU64]> {
        if let (None, Some(map)) = (self.memory.get(), &self.map) {
            let bytes = self.bytes.next_multiple_of(rustix::param::page_size());
            let memory = Memory::map(map.as_fd(), 0, bytes)?;
            let _ = self.memory.set(memory);
        }
        let memory = self.memory.get().ok_or(io::ErrorKind::NotFound)?;
        Ok(memory.words())
    }

    /// Gives each key and its delta, in the order in which the keys were put in, and leaves zeros; not
    /// where no handler runs any more (`last`).
    pub fn take(
        &self,
        state: &State,
        array: &PerCpuArray,
        (generation, last): (u32, bool),
        mut visit: impl FnMut(&[u8], Cell),
    ) -> io::Result<()> {
        let Some(large) = &array.large else {
            return Ok(());
        };
        let view = View {
            words: self.memory()?,
            large,
            key_size: array.key_size,
        };
        let given = view.word(Large::GIVEN).load(Ordering::Acquire);
        let given = given.min(large.rooms.into()) as u32;
        // No slot of a cache was taken before a room was given out.
        if given == 0 {
            return Ok(());
        }
        take_caches(state, array, generation, &view, &mut visit);
        let spare = |cpu| state.cpu(cpu, large.spare + 8 * generation);
        let spares: Vec<u64> = (0..state.cpus())
            .map(|cpu| spare(cpu).swap(0, Ordering::Relaxed))
            .collect();
        let mut key = vec![0; array.key_size as usize];
        for room in (1..=given).filter(|room| !spares.contains(&u64::from(*room))) {
            view.key(room, &mut key);
            visit(&key, view.cell(room, &array.value));
        }
        if !last {
            view.clear(given);
        }
        Ok(())
    }
}

/// Moves what the caches have to the elements of the same keys.
fn take_caches(
    state: &State,
    array: &PerCpuArray,
    generation: u32,
    view: &View<'_>,
    visit: &mut impl FnMut(&[u8], Cell),
) {
    let first = array.cache + generation * array.gen_stride;
    let size = array.value.size();
    for cpu in 0..state.cpus() {
        for slot in 0..array.slots {
            let at = first + slot * array.slot_size;
            if state.cpu(cpu, at).load(Ordering::Relaxed) == 0 {
                continue;
            }
            let key = |i: u32| state.cpu(cpu, at + 8 + 8 * i).load(Ordering::Relaxed);
            let value = at + 8 + array.key_size;
            match view.find(key) {
                Some(room) => {
                    for o in (0..size).step_by(8) {
                        let delta = state.cpu(cpu, value + o).load(Ordering::Relaxed);
                        view.word(view.value(room) + o)
                            .fetch_add(delta, Ordering::Relaxed);
                    }
                }
                // Its chain is so long that handlers do not look there either.
                None => visit(
                    &state.bytes(cpu, at + 8, array.key_size),
                    state.take(cpu, value, &array.value),
                ),
            }
            state.zero(cpu, at, array.slot_size);
        }
    }
}

/// The memory of one generation.
struct View<'m> {
    words: &'m [AtomicU64],
    large: &'m Large,
    key_size: u32,
}

impl View<'_> {
    fn word(&self, at: u32) -> &AtomicU64 {
        &self.words[at as usize / 8]
    }

    /// Half of a word.
    fn half(&self, at: u32) -> u32 {
        let bytes = self.word(at).load(Ordering::Relaxed).to_ne_bytes();
        let [a, b, c, d, e, f, g, h] = bytes;
        u32::from_ne_bytes(if at % 8 < 4 {
            [a, b, c, d]
        } else {
            [e, f, g, h]
        })
    }

    fn room(&self, number: u32) -> u32 {
        self.large.rooms_at() + (number - 1) * self.large.room
    }

    fn value(&self, number: u32) -> u32 {
        self.room(number) + Large::KEY + self.key_size
    }

    fn key_word(&self, number: u32, i: u32) -> u64 {
        self.word(self.room(number) + Large::KEY + 8 * i)
            .load(Ordering::Relaxed)
    }

    fn key(&self, number: u32, to: &mut [u8]) {
        for (i, word) in to.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&self.key_word(number, i as u32).to_ne_bytes());
        }
    }

    fn cell(&self, number: u32, layout: &ValueLayout) -> Cell {
        let value = self.value(number);
        read_cell(layout, |o| self.word(value + o).load(Ordering::Relaxed))
    }

    fn head(&self, chain: u32) -> u32 {
        Large::HEADS + 4 * chain
    }

    /// The room of a key.
    fn find(&self, key: impl Fn(u32) -> u64) -> Option<u32> {
        let words = self.key_size / 8;
        let mut room = self.half(self.head(self.large.chain((0..words).map(&key))));
        // There are no circles; but the memory is not only ours.
        for _ in 0..self.large.rooms {
            if room == 0 || room > self.large.rooms {
                return None;
            }
            if (0..words).all(|i| self.key_word(room, i) == key(i)) {
                return Some(room);
            }
            room = self.half(self.room(room));
        }
        None
    }

    /// Leaves zeros where so many rooms were given out.
    fn clear(&self, given: u32) {
        let zero = |from: u32, to: u32| {
            for word in &self.words[from as usize / 8..(to as usize).div_ceil(8)] {
                word.store(0, Ordering::Relaxed);
            }
        };
        if given > 1 << self.large.bits.saturating_sub(4) {
            zero(Large::HEADS, self.large.rooms_at());
        } else {
            let words = self.key_size / 8;
            for room in 1..=given {
                let keys = (0..words).map(|i| self.key_word(room, i));
                let head = self.head(self.large.chain(keys));
                // The other half is the end of a chain of another key, which goes as well, or is zero.
                let mut bytes = self.word(head).load(Ordering::Relaxed).to_ne_bytes();
                let at = head as usize % 8;
                bytes[at..at + 4].fill(0);
                let word = u64::from_ne_bytes(bytes);
                self.word(head).store(word, Ordering::Relaxed);
            }
        }
        zero(self.room(1), self.room(given + 1));
        self.word(Large::GIVEN).store(0, Ordering::Relaxed);
        self.word(Large::LIVE).store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spile_bpf::layout::{Beside, GlobalLayout, Layout, Place};
    use spile_ir::Ty;
    use spile_ir::interp::Value;

    const CACHE: u32 = 256;

    fn array(large: Large) -> PerCpuArray {
        PerCpuArray {
            cache: CACHE,
            gen_stride: 0,
            slots: 2,
            slot_size: 24,
            maps: vec!["g_a_0".into()],
            key_size: 8,
            keys: vec![Ty::Long],
            value: ValueLayout::Scalar(Ty::Long),
            beside: Beside {
                of: None,
                at: 0,
                size: 8,
            },
            spilt: None,
            max: 100,
            wraps: false,
            large: Some(large),
        }
    }

    fn state(array: &PerCpuArray) -> State {
        let place = Place::PerCpuArray(array.clone());
        State::plain(&Layout {
            shared_size: 128,
            cpu_stride: 1024,
            cpus: 2,
            globals: vec![Some(GlobalLayout { lock: None, place })],
            handlers: vec![],
            programs: vec![],
            records: vec![],
            stacks: None,
            tree: None,
            pages: false,
        })
        .expect("a layout that fits")
    }

    /// Puts in a key as handlers do.
    fn put(view: &View<'_>, key: u64, value: u64) {
        let room = view.word(Large::GIVEN).fetch_add(1, Ordering::Relaxed) as u32 + 1;
        view.word(Large::LIVE).fetch_add(1, Ordering::Relaxed);
        let head = view.head(view.large.chain([key]));
        let old = view.half(head);
        let at = view.room(room);
        let word = |low: u32| {
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&low.to_ne_bytes());
            u64::from_ne_bytes(bytes)
        };
        view.word(at).store(word(old), Ordering::Relaxed);
        view.word(at + 8).store(key, Ordering::Relaxed);
        view.word(at + 16).store(value, Ordering::Relaxed);
        let mut bytes = view.word(head).load(Ordering::Relaxed).to_ne_bytes();
        bytes[head as usize % 8..][..4].copy_from_slice(&room.to_ne_bytes());
        view.word(head)
            .store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
    }

    #[test]
    fn elements_are_taken_in_order_and_cleared() {
        // Few chains, so that they are long, and so many that those of few keys are cleared one by one.
        for (bits, keys) in [(2, 100), (10, 100), (10, 3)] {
            let large = Large {
                bits,
                rooms: 102,
                room: 24,
                spare: 512,
            };
            let array = array(large);
            let state = state(&array);
            let elements = LargeElements::plain(&large);
            let view = View {
                words: elements.memory().expect("memory"),
                large: &large,
                key_size: 8,
            };
            for _ in 0..2 {
                for n in 0..keys {
                    put(&view, n << 20, n);
                }
                // A room that processor 1 did not use, and a slot of processor 0's cache.
                put(&view, 7 << 40, 0);
                state.cpu(1, 512).store(keys + 1, Ordering::Relaxed);
                for (i, word) in [1, 2 << 20, 1000].into_iter().enumerate() {
                    let at = CACHE + 24 + 8 * i as u32;
                    state.cpu(0, at).store(word, Ordering::Relaxed);
                }
                let mut got = Vec::new();
                let add = |key: &[u8], delta: Cell| {
                    let key = u64::from_ne_bytes(key.try_into().expect("8 bytes"));
                    got.push((key, delta.value()));
                };
                elements.take(&state, &array, (0, false), add).unwrap();
                let with = |n| if n == 2 { 1002 } else { n as i64 };
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
