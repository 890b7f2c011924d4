//! Collecting what kernel handlers added up on each CPU: the deltas of one generation are read
//! and zeroed. The caller has made sure (see [`crate::grace`]) that no handler still writes to
//! that generation.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::Ordering;

use spile_bpf::layout::{Place, ValueLayout};
use spile_ir::interp::{Cell, Value};

use crate::maps::Table;
use crate::state::{State, read_cell, word_of};

/// The deltas of one global, all CPUs together.
#[derive(Debug, PartialEq)]
pub enum Deltas {
    /// Of a number or statistic.
    Scalar(Cell),
    /// Of an array: key bytes and delta, in no order that means anything.
    Array(Vec<(Vec<u8>, Cell)>),
}

/// Adds a delta to a sum of deltas.
fn add(to: &mut Cell, delta: Cell) {
    match (to, delta) {
        (Cell::Scalar(Value::Long(a)), Cell::Scalar(Value::Long(b))) => *a = a.wrapping_add(b),
        (Cell::Stats(a), Cell::Stats(b)) => a.merge(&b),
        // A text has no deltas.
        _ => {}
    }
}

/// Elements in the order in which they were found, with an index by key.
#[derive(Default)]
struct Sums {
    elements: Vec<(Vec<u8>, Cell)>,
    index: HashMap<Vec<u8>, usize>,
}

impl Sums {
    fn add(&mut self, key: Vec<u8>, delta: Cell) {
        match self.index.get(&key) {
            Some(&at) => add(&mut self.elements[at].1, delta),
            None => {
                self.index.insert(key.clone(), self.elements.len());
                self.elements.push((key, delta));
            }
        }
    }
}

/// Takes the deltas of one generation. `map` is that generation's hash map of an array. `None`
/// for a place that has no deltas.
pub fn take(
    state: &State,
    place: &Place,
    generation: u32,
    map: Option<&mut (dyn Table + '_)>,
) -> io::Result<Option<Deltas>> {
    match place {
        Place::PerCpuScalar {
            offset,
            gen_stride,
            value,
        } => {
            let at = offset + generation * gen_stride;
            let sum = (0..state.cpus())
                .map(|cpu| state.take(cpu, at, value))
                .reduce(|mut sum, delta| {
                    add(&mut sum, delta);
                    sum
                });
            Ok(sum.map(Deltas::Scalar))
        }
        Place::PerCpuArray {
            cache,
            gen_stride,
            slots,
            slot_size,
            key_size,
            value,
            ..
        } => {
            let mut sums = Sums::default();
            let first = cache + generation * gen_stride;
            for cpu in 0..state.cpus() {
                for slot in 0..*slots {
                    let at = first + slot * slot_size;
                    if state.cpu(cpu, at).load(Ordering::Relaxed) == 0 {
                        continue;
                    }
                    let key = state.bytes(cpu, at + 8, *key_size);
                    sums.add(key, state.take(cpu, at + 8 + key_size, value));
                    state.zero(cpu, at, *slot_size);
                }
            }
            if let Some(map) = map {
                for (key, copies) in map.drain()? {
                    for copy in copies.chunks_exact(value.size().max(8) as usize) {
                        sums.add(key.clone(), delta(value, copy));
                    }
                }
            }
            Ok(Some(Deltas::Array(sums.elements)))
        }
        Place::Scalar { .. } | Place::Stats { .. } | Place::Hash { .. } => Ok(None),
    }
}

fn delta(layout: &ValueLayout, bytes: &[u8]) -> Cell {
    read_cell(layout, |o| word_of(bytes, o))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::PlainMap;
    use spile_bpf::layout::{AggLayout, GlobalLayout, Layout};
    use spile_ir::Ty;
    use spile_ir::stats::Stat;

    fn long(n: i64) -> Cell {
        Cell::Scalar(Value::Long(n))
    }

    fn layout(place: &Place) -> Layout {
        Layout {
            shared_size: 128,
            cpu_stride: 2048,
            cpus: 2,
            globals: vec![Some(GlobalLayout {
                lock: None,
                place: place.clone(),
            })],
            handlers: vec![],
            programs: vec![],
            records: vec![],
            stacks: None,
            tree: None,
        }
    }

    fn count_and_max() -> ValueLayout {
        ValueLayout::Stats(AggLayout {
            count: 0,
            sum: None,
            min: None,
            max: Some(8),
            sumsq: None,
            hist: None,
            size: 16,
        })
    }

    #[test]
    fn numbers_add_up_and_are_zeroed() {
        let value = ValueLayout::Scalar(Ty::Long);
        let place = Place::PerCpuScalar {
            offset: 64,
            gen_stride: 8,
            value,
        };
        let state = State::plain(&layout(&place)).unwrap();
        for (cpu, at, n) in [(0, 64, 5), (1, 64, 6), (0, 72, 100)] {
            state.cpu(cpu, at).store(n, Ordering::Relaxed);
        }
        let get = |g| take(&state, &place, g, None).unwrap().unwrap();
        assert_eq!(get(0), Deltas::Scalar(long(11)));
        assert_eq!(get(0), Deltas::Scalar(long(0)));
        assert_eq!(get(1), Deltas::Scalar(long(100)));
    }

    #[test]
    fn empty_statistics_do_not_count() {
        let place = Place::PerCpuScalar {
            offset: 64,
            gen_stride: 16,
            value: count_and_max(),
        };
        let state = State::plain(&layout(&place)).unwrap();
        // CPU 0 has nothing: its greatest value of 0 must not win over -3.
        state.cpu(1, 64).store(2, Ordering::Relaxed);
        state.cpu(1, 72).store(-3i64 as u64, Ordering::Relaxed);
        let Some(Deltas::Scalar(Cell::Stats(s))) = take(&state, &place, 0, None).unwrap() else {
            panic!("no statistic")
        };
        assert_eq!((s.count, s.max), (2, -3));
    }

    #[test]
    fn caches_and_maps_of_all_cpus_add_up() {
        let place = Place::PerCpuArray {
            cache: 64,
            gen_stride: 512,
            slots: 4,
            slot_size: 32,
            maps: vec!["g_a_0".into(), "g_a_1".into()],
            key_size: 8,
            keys: vec![Ty::Long],
            value: count_and_max(),
            max: 10,
        };
        let state = State::plain(&layout(&place)).unwrap();
        let slot = |cpu, at: u32, key: u64, count: u64, max: u64| {
            for (i, word) in [1, key, count, max].into_iter().enumerate() {
                state
                    .cpu(cpu, at + 8 * i as u32)
                    .store(word, Ordering::Relaxed);
            }
        };
        slot(0, 64, 7, 3, 30);
        slot(1, 64 + 32, 7, 1, 40);
        slot(1, 64 + 512, 9, 1, 1); // the other generation
        let mut map = PlainMap {
            max: 10,
            ..PlainMap::default()
        };
        let copies = |words: [u64; 4]| {
            words
                .iter()
                .flat_map(|w| w.to_ne_bytes())
                .collect::<Vec<_>>()
        };
        map.set(&7u64.to_ne_bytes(), &copies([0, 0, 1, 50]))
            .unwrap();
        map.set(&8u64.to_ne_bytes(), &copies([0, 0, 0, 0])).unwrap();
        let Some(Deltas::Array(mut got)) = take(&state, &place, 0, Some(&mut map)).unwrap() else {
            panic!("no array")
        };
        got.sort_by(|a, b| a.0.cmp(&b.0));
        let stat = |count, max| {
            Cell::Stats(Stat {
                count,
                max,
                ..Stat::default()
            })
        };
        assert_eq!(got[0].0, 7u64.to_ne_bytes());
        let Cell::Stats(seven) = &got[0].1 else {
            panic!("no statistic")
        };
        assert_eq!((seven.count, seven.max), (5, 50));
        // A key that was only put into the map is an element all the same.
        assert_eq!(got[1], (8u64.to_ne_bytes().to_vec(), stat(0, i64::MIN)));
        assert!(map.elements.is_empty());
        assert_eq!(
            take(&state, &place, 0, None).unwrap(),
            Some(Deltas::Array(vec![]))
        );
        let Some(Deltas::Array(other)) = take(&state, &place, 1, None).unwrap() else {
            panic!("no array")
        };
        assert_eq!(other.len(), 1);
    }
}
