//! Draining: reads and zeroes the deltas of one generation that kernel handlers accumulated on each
//! CPU. The caller ensures (see [`crate::shared::grace`]) that no handler still writes to that
//! generation.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::Ordering;

use spile_cast::Cast;
use spile_ir::GlobalId;
use spile_ir::interp::{Cell, Value};
use spile_layout::{GlobalLocation, Layout, PerCpuArray, SEQUENCE, ValueLayout};

use crate::shared::maps::ByteTable;
use crate::shared::state::{StateMemory, read_cell, word_of};

/// The deltas of one global, summed over all CPUs.
#[derive(Debug, PartialEq)]
pub enum GlobalDeltas {
    /// The delta of a number or statistic.
    Scalar(Cell),
    /// The deltas of an array, as key bytes and delta. The order is arbitrary, except for a
    /// wrapping array, which starts with its oldest element.
    Array(Vec<(Vec<u8>, Cell)>),
}

/// Adds a delta to a sum.
fn add(to: &mut Cell, delta: Cell) {
    match (to, delta) {
        (Cell::Scalar(Value::Long(a)), Cell::Scalar(Value::Long(b))) => *a = a.wrapping_add(b),
        (Cell::Stats(a), Cell::Stats(b)) => a.merge(&b),
        // Strings have no deltas.
        _ => {}
    }
}

/// Sums in the order in which elements were found, with an index by key.
#[derive(Default)]
struct ElementSums {
    elements: Vec<(Vec<u8>, Cell)>,
    index: HashMap<Vec<u8>, usize>,
}

impl ElementSums {
    fn add(&mut self, key: Vec<u8>, delta: Cell) {
        match self.index.get(&key) {
            Some(&index) => add(&mut self.elements[index].1, delta),
            None => {
                self.index.insert(key.clone(), self.elements.len());
                self.elements.push((key, delta));
            }
        }
    }

    /// Adds a delta of array number `part` of co-located arrays; keys are those of the host.
    fn add_part(&mut self, part: usize, key: &[u8], delta: Cell) {
        if part == 0 || !matches!(&delta, Cell::Stats(s) if s.count == 0) {
            self.add(key.to_vec(), delta);
        }
    }
}

/// The keys of an array are taken from its map one by one if they are at most this fraction of its
/// size: an iteration over a large map takes milliseconds.
const FEW: usize = 16;

/// Takes the deltas of one generation of a global and of the arrays co-located with it. `map` is
/// that generation's hash map of an array. If no handler runs any more (`last`), keys without
/// deltas stay in it. `None` for a global without deltas, and for one that is co-located with
/// another.
pub fn take(
    state: &StateMemory,
    layout: &Layout,
    g: GlobalId,
    (generation, last): (u32, bool),
    map: Option<&mut (dyn ByteTable + '_)>,
) -> io::Result<Vec<(GlobalId, GlobalDeltas)>> {
    let global = layout.globals.get(g.index()).and_then(Option::as_ref);
    let Some(location) = global.map(|g| &g.location) else {
        return Ok(Vec::new());
    };
    match location {
        GlobalLocation::PerCpuScalar {
            offset,
            gen_stride,
            value,
        } => {
            let start = offset + generation * gen_stride;
            let sum = (0..state.cpus())
                .map(|cpu| state.take(cpu, start, value))
                .reduce(|mut sum, delta| {
                    add(&mut sum, delta);
                    sum
                });
            Ok(sum
                .map(|sum| (g, GlobalDeltas::Scalar(sum)))
                .into_iter()
                .collect())
        }
        GlobalLocation::PerCpuArray(array) if array.colocated.host.is_none() => {
            let parts = host_parts(layout, g);
            let sums = take_arrays(state, (array, &parts), (generation, last), map)?;
            let ids = parts.iter().map(|part| part.g);
            Ok(ids
                .zip(sums.into_iter().map(|s| GlobalDeltas::Array(s.elements)))
                .collect())
        }
        _ => Ok(Vec::new()),
    }
}

/// An array's part of the values in a cache and its maps.
struct HostPart<'l> {
    g: GlobalId,
    offset: u32,
    value: &'l ValueLayout,
}

/// A host array, and the arrays co-located with it.
fn host_parts(layout: &Layout, g: GlobalId) -> Vec<HostPart<'_>> {
    let arrays = layout.globals.iter().enumerate().filter_map(|(i, global)| {
        let GlobalLocation::PerCpuArray(array) = &global.as_ref()?.location else {
            return None;
        };
        let part = HostPart {
            g: GlobalId(i.fit()),
            offset: array.colocated.offset,
            value: &array.value,
        };
        (part.g == g || array.colocated.host == Some(g)).then_some(part)
    });
    let mut parts: Vec<_> = arrays.collect();
    parts.sort_by_key(|part| part.offset);
    parts
}

/// The deltas of co-located arrays, one for each array.
fn take_arrays(
    state: &StateMemory,
    (array, parts): (&PerCpuArray, &[HostPart<'_>]),
    (generation, last): (u32, bool),
    map: Option<&mut (dyn ByteTable + '_)>,
) -> io::Result<Vec<ElementSums>> {
    let mut sums: Vec<ElementSums> = parts.iter().map(|_| ElementSums::default()).collect();
    let PerCpuArray {
        cache,
        gen_stride,
        slots,
        slot_size,
        key_size,
        colocated,
        spilt,
        max,
        wraps,
        ..
    } = array;
    let first = cache + generation * gen_stride;
    for cpu in 0..state.cpus() {
        for slot in 0..*slots {
            let offset = first + slot * slot_size;
            if state.cpu(cpu, offset).load(Ordering::Relaxed) == 0 {
                continue;
            }
            let key = state.bytes(cpu, offset + 8, *key_size);
            for (i, part) in parts.iter().enumerate() {
                let delta = state.take(cpu, offset + 8 + key_size + part.offset, part.value);
                sums[i].add_part(i, &key, delta);
            }
            state.zero(cpu, offset, *slot_size);
        }
    }
    let spilt = spilt.is_none_or(|offset| {
        let take = |cpu| {
            state
                .cpu(cpu, offset + 8 * generation)
                .swap(0, Ordering::Relaxed)
        };
        (0..state.cpus()).map(take).fold(0, |any, word| any | word) != 0
    });
    let Some(map) = map else { return Ok(sums) };
    if !spilt && last {
        return Ok(sums);
    }
    if !spilt && sums[0].elements.len() * FEW <= *max as usize {
        for (key, _) in &sums[0].elements {
            map.remove(key)?;
        }
    } else {
        let mut order = HashMap::new();
        for (key, mut copies) in map.drain()? {
            if *wraps {
                order.insert(key.clone(), word_of(&copies, 0));
                copies.drain(..SEQUENCE as usize);
            }
            for copy in copies.chunks_exact(colocated.size.max(8) as usize) {
                for (i, part) in parts.iter().enumerate() {
                    let delta = delta(part.value, &copy[part.offset as usize..]);
                    sums[i].add_part(i, &key, delta);
                }
            }
        }
        for sums in sums.iter_mut().filter(|_| *wraps) {
            sums.elements.sort_by_key(|(key, _)| order.get(key));
        }
    }
    Ok(sums)
}

fn delta(layout: &ValueLayout, bytes: &[u8]) -> Cell {
    read_cell(layout, |o| word_of(bytes, o))
}

#[cfg(test)]
mod tests;
