//! Draining per-CPU deltas: tests.

use spile_ir::Ty;
use spile_ir::stats::Stat;
use spile_layout::{AggLayout, Colocation, GlobalLayout};

use super::*;
use crate::shared::tests::PlainMap;

fn long(n: i64) -> Cell {
    Cell::Scalar(Value::Long(n))
}

fn layout(locations: &[GlobalLocation]) -> Layout {
    Layout {
        shared_size: spile_layout::shared::END,
        cpu_stride: 2048,
        cpus: 2,
        globals: locations
            .iter()
            .cloned()
            .map(|location| {
                Some(GlobalLayout {
                    lock: None,
                    location,
                })
            })
            .collect(),
        ..Layout::default()
    }
}

const G: GlobalId = GlobalId(0);

/// The deltas of the only global.
fn one(taken: io::Result<Vec<(GlobalId, GlobalDeltas)>>) -> GlobalDeltas {
    let mut taken = taken.unwrap();
    assert_eq!(taken.len(), 1);
    taken.remove(0).1
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
    let location = GlobalLocation::PerCpuScalar {
        offset: 64,
        gen_stride: 8,
        value,
    };
    let layout = layout(&[location]);
    let state = StateMemory::in_memory(&layout).unwrap();
    for (cpu, at, n) in [(0, 64, 5), (1, 64, 6), (0, 72, 100)] {
        state.cpu(cpu, at).store(n, Ordering::Relaxed);
    }
    let get = |generation| one(take(&state, &layout, G, (generation, false), None));
    assert_eq!(get(0), GlobalDeltas::Scalar(long(11)));
    assert_eq!(get(0), GlobalDeltas::Scalar(long(0)));
    assert_eq!(get(1), GlobalDeltas::Scalar(long(100)));
}

#[test]
fn empty_statistics_do_not_count() {
    let location = GlobalLocation::PerCpuScalar {
        offset: 64,
        gen_stride: 16,
        value: count_and_max(),
    };
    let layout = layout(&[location]);
    let state = StateMemory::in_memory(&layout).unwrap();
    // CPU 0 has no values: its zeroed maximum must not win over -3.
    state.cpu(1, 64).store(2, Ordering::Relaxed);
    state.cpu(1, 72).store(-3i64 as u64, Ordering::Relaxed);
    let GlobalDeltas::Scalar(Cell::Stats(s)) = one(take(&state, &layout, G, (0, false), None))
    else {
        panic!("no statistic")
    };
    assert_eq!((s.count, s.max), (2, -3));
}

#[test]
fn caches_and_maps_of_all_cpus_add_up() {
    let location = GlobalLocation::PerCpuArray(PerCpuArray {
        cache: 64,
        gen_stride: 512,
        slots: 4,
        slot_size: 32,
        maps: vec!["g_a_0".into(), "g_a_1".into()],
        key_size: 8,
        keys: vec![Ty::Long],
        value: count_and_max(),
        colocated: Colocation {
            host: None,
            offset: 0,
            size: 16,
        },
        spilt: None,
        max: 10,
        wraps: false,
        large: None,
    });
    let layout = layout(&[location]);
    let state = StateMemory::in_memory(&layout).unwrap();
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
    let GlobalDeltas::Array(mut got) = one(take(&state, &layout, G, (0, false), Some(&mut map)))
    else {
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
    // A key that was only inserted into the map is an element, too.
    assert_eq!(got[1], (8u64.to_ne_bytes().to_vec(), stat(0, i64::MIN)));
    assert!(map.elements.is_empty());
    assert_eq!(
        one(take(&state, &layout, G, (0, false), None)),
        GlobalDeltas::Array(vec![])
    );
    let GlobalDeltas::Array(other) = one(take(&state, &layout, G, (1, false), None)) else {
        panic!("no array")
    };
    assert_eq!(other.len(), 1);
}

#[test]
fn arrays_side_by_side_are_taken_together() {
    let part = |host, offset, value| {
        GlobalLocation::PerCpuArray(PerCpuArray {
            cache: 64,
            gen_stride: 0,
            slots: 2,
            slot_size: 40,
            maps: vec!["g_a_0".into()],
            key_size: 8,
            keys: vec![Ty::Long],
            value,
            colocated: Colocation {
                host,
                offset,
                size: 24,
            },
            spilt: Some(144),
            max: 100,
            wraps: false,
            large: None,
        })
    };
    let number = ValueLayout::Scalar(Ty::Long);
    let layout = layout(&[part(None, 0, number), part(Some(G), 8, count_and_max())]);
    let state = StateMemory::in_memory(&layout).unwrap();
    // Key 7 belongs to both arrays, key 8 only to the host.
    for (at, words) in [(64, [1, 7, 5, 2, 30]), (104, [1, 8, 6, 0, 0])] {
        for (i, word) in words.into_iter().enumerate() {
            let word_at = at + 8 * i as u32;
            state.cpu(0, word_at).store(word, Ordering::Relaxed);
        }
    }
    let mut map = PlainMap {
        max: 10,
        ..PlainMap::default()
    };
    let bytes = |words: [u64; 6]| words.map(u64::to_ne_bytes).concat();
    map.set(&9u64.to_ne_bytes(), &bytes([0, 0, 0, 1, 1, 3]))
        .unwrap();
    // Elements in the map count only if a CPU's word reports them.
    state.cpu(1, 144).store(1, Ordering::Relaxed);
    let second = take(&state, &layout, GlobalId(1), (0, false), None).unwrap();
    assert!(second.is_empty(), "{second:?}");
    let taken = take(&state, &layout, G, (0, false), Some(&mut map)).unwrap();
    let [
        (G, GlobalDeltas::Array(first)),
        (GlobalId(1), GlobalDeltas::Array(second)),
    ] = &taken[..]
    else {
        panic!("{taken:?}")
    };
    let key = |n: u64| n.to_ne_bytes().to_vec();
    let with = |n, cell| (key(n), cell);
    assert_eq!(
        *first,
        [with(7, long(5)), with(8, long(6)), with(9, long(1))]
    );
    let maxima = second.iter().map(|(k, cell)| match cell {
        Cell::Stats(s) => (k.clone(), s.count, s.max),
        Cell::Scalar(_) => panic!("no statistic"),
    });
    assert_eq!(
        maxima.collect::<Vec<_>>(),
        [(key(7), 2, 30), (key(9), 1, 3)]
    );
    // Keys in the map are removed one by one, except at the end.
    for (last, left) in [(false, 0), (true, 1)] {
        map.set(&7u64.to_ne_bytes(), &[0; 48]).unwrap();
        state.cpu(1, 64).store(1, Ordering::Relaxed);
        state.cpu(1, 72).store(7, Ordering::Relaxed);
        let taken = take(&state, &layout, G, (0, last), Some(&mut map)).unwrap();
        assert_eq!(taken[0].1, GlobalDeltas::Array(vec![with(7, long(0))]));
        assert_eq!(map.elements.len(), left);
    }
}

#[test]
fn a_wrapping_array_is_taken_from_its_oldest_element_on() {
    let number = ValueLayout::Scalar(Ty::Long);
    let layout = layout(&[GlobalLocation::PerCpuArray(PerCpuArray {
        cache: 64,
        gen_stride: 0,
        slots: 0,
        slot_size: 24,
        maps: vec!["g_a_0".into()],
        key_size: 8,
        keys: vec![Ty::Long],
        value: number,
        colocated: Colocation {
            host: None,
            offset: 0,
            size: 8,
        },
        spilt: None,
        max: 4,
        wraps: true,
        large: None,
    })]);
    let state = StateMemory::in_memory(&layout).unwrap();
    let mut map = PlainMap {
        max: 4,
        ..PlainMap::default()
    };
    for (key, words) in [(8u64, [3u64, 0, 0]), (9, [1, 1, 2]), (10, [2, 0, 4])] {
        map.set(&key.to_ne_bytes(), &words.map(u64::to_ne_bytes).concat())
            .unwrap();
    }
    let GlobalDeltas::Array(got) = one(take(&state, &layout, G, (0, false), Some(&mut map))) else {
        panic!("no array")
    };
    let with = |n: u64, delta| (n.to_ne_bytes().to_vec(), long(delta));
    assert_eq!(got, [with(9, 3), with(10, 4), with(8, 0)]);
    assert!(map.elements.is_empty());
}
