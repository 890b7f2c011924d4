//! The locations of arrays: hash maps, fields of thread records, caches with maps behind them, and
//! co-located elements.

use spile_cast::Cast;
use spile_ir::storage::{Storage, colocated};
use spile_ir::{Global, GlobalId, GlobalKind, Program, Ty};

use super::allocator::{Areas, BumpAllocator};
use super::host::{PlanError, Res};
use super::spec::{TableKind, TableSpec};
use super::values::element;
use crate::{
    Colocation, GlobalLayout, GlobalLocation, LargeLayout, PerCpuArray, SEQUENCE, ThreadField,
    ThreadSlots, ValueLayout,
};

/// Limit on the bytes of one generation of a cache in one per-CPU area.
const CACHE_BYTES: u32 = 64 << 10;
/// The same limit for machines with many CPUs.
const CACHE_BYTES_MANY: u32 = 16 << 10;
/// Limit on the slots of a cache.
const CACHE_SLOTS: u32 = 1024;
/// Keys above this size in bytes bypass the cache: the code that goes through their words would
/// soon exceed the range of a jump.
const CACHED: u32 = 256;
/// Limit on the bytes of co-located elements: larger elements leave fewer slots.
const COLOCATED_BYTES: u32 = 256;
/// Limit on the bytes of a hash-map value with one element for each CPU. The kernel preallocates
/// memory for such values earlier than for those of per-CPU maps.
const LANES: u32 = 8192;
/// On machines with more CPUs, only elements of at least a cache line: CPUs whose elements share a
/// line would delay each other.
const FEW_CPUS: u32 = 16;
const LINE: u32 = 64;
/// A full wrapping array evicts this fraction of its elements, the oldest, plus one.
pub const EVICT: u32 = 64;
/// Arrays with more elements are large: their memory is allocated at the start, and hits need no
/// helper.
const FEW_ELEMENTS: u32 = 4096;
/// Limit on the bytes of a large array's elements; the verifier's range of offsets is twice as
/// large.
const LARGE_BYTES: u64 = 256 << 20;
/// Limit on the bytes of a large array's key.
const LARGE_KEY: u32 = 64;
/// Limits on the number of thread-record slots; smaller arrays have no slots.
const MOST_SLOTS: u32 = 4096;
const FEWEST_SLOTS: u32 = 1024;
/// Name of the map of thread records.
const THREAD_RECORDS: &str = "threads";

/// The arrays whose elements are co-located with those of another array, their host.
#[derive(Debug)]
pub struct Colocations {
    /// For each global, its part of the host's values.
    parts: Vec<Option<Colocation>>,
    /// For each host, the word of the per-CPU area with the slot of its last addition, or with a
    /// number beyond all slots.
    words: Vec<Option<u32>>,
}

impl Colocations {
    pub(super) fn new(program: &Program, cpu: &mut BumpAllocator) -> Colocations {
        let n = program.globals.len();
        let (mut parts, mut words) = (vec![None; n], vec![None; n]);
        let mut sizes: Vec<u32> = program.globals.iter().map(element_size).collect();
        for (i, host) in colocated(program).into_iter().enumerate() {
            let Some(to) = host else { continue };
            let (offset, size) = (sizes[to.index()], sizes[i]);
            if offset + size > COLOCATED_BYTES || key_size(&program.globals[i]) > CACHED {
                continue;
            }
            sizes[to.index()] += size;
            parts[i] = Some(Colocation {
                host,
                offset,
                size: 0,
            });
            words[to.index()].get_or_insert_with(|| cpu.alloc(8));
        }
        for i in 0..n {
            match &mut parts[i] {
                Some(Colocation {
                    host: Some(to),
                    size,
                    ..
                }) => *size = sizes[to.index()],
                part => {
                    *part = Some(Colocation {
                        host: None,
                        offset: 0,
                        size: sizes[i],
                    });
                }
            }
        }
        Colocations { parts, words }
    }

    /// The part of the host's values that an array uses.
    fn host_part(&self, g: usize) -> Option<Colocation> {
        self.parts.get(g).copied().flatten()
    }

    /// The word with the last slot of array `g`, if it is a host.
    pub fn word(&self, g: GlobalId) -> Option<u32> {
        self.words.get(g.index()).copied().flatten()
    }

    /// The host of array `g`.
    pub fn host(&self, g: usize) -> Option<GlobalId> {
        self.host_part(g)?.host
    }

    /// The location of a co-located array, once its host has one.
    pub(super) fn location(
        &self,
        global: &Global,
        g: usize,
        other: &GlobalLayout,
    ) -> Option<GlobalLayout> {
        let GlobalKind::Array { value: elem, .. } = &global.kind else {
            return None;
        };
        let mut layout = other.clone();
        if let GlobalLocation::PerCpuArray(array) = &mut layout.location {
            array.value = element(elem);
            array.colocated = self.host_part(g)?;
        }
        Some(layout)
    }
}

/// Bytes of a value with one element of `size` bytes for each CPU, if the array's map is a plain
/// hash map with such values. `None` for a per-CPU map, which cannot find its oldest element.
pub fn lanes(cpus: u32, size: u32, wraps: bool) -> Option<u32> {
    let bytes = size.checked_mul(cpus)?;
    match wraps {
        true => bytes.checked_add(SEQUENCE),
        false => (bytes <= LANES && (cpus <= FEW_CPUS || size >= LINE)).then_some(bytes),
    }
}

fn element_size(global: &Global) -> u32 {
    match &global.kind {
        GlobalKind::Array { value, .. } => element(value).size(),
        _ => 0,
    }
}

fn key_size(global: &Global) -> u32 {
    match &global.kind {
        GlobalKind::Array { keys, .. } => keys.iter().map(|k| k.size()).sum(),
        _ => 0,
    }
}

/// The name of a global's map: letters, digits and `_`, unique by the index.
pub(super) fn map_name(index: usize, global: &Global, generation: Option<u32>) -> String {
    let clean: String = global
        .name
        .chars()
        .take_while(|c| *c != '@')
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .take(24)
        .collect();
    match generation {
        None => format!("g_{clean}_{index}"),
        Some(n) => format!("g_{clean}_{index}_{n}"),
    }
}

/// The arrays that are fields of thread records.
pub(super) struct ThreadRecordFields {
    fields: Vec<GlobalId>,
    front: Option<ThreadSlots>,
}

impl ThreadRecordFields {
    pub(super) fn new(program: &Program, cpus: u32, areas: &mut Areas) -> ThreadRecordFields {
        let fields = spile_ir::storage::thread_records(program);
        let max = |g: &GlobalId| match &program.globals[g.index()].kind {
            GlobalKind::Array { max, .. } => *max,
            _ => 0,
        };
        let max = fields.first().map_or(0, max);
        let slots = max.min(MOST_SLOTS).checked_ilog2().map_or(0, |n| 1 << n);
        let front = (slots >= FEWEST_SLOTS).then(|| {
            let stride = 8 + 8 + 8 * fields.len().fit::<u32>();
            let mut front = ThreadSlots {
                offset: 0,
                slots,
                stride,
                spilt: areas.shared.alloc(8),
                lent: areas.cpu.alloc(8 * ThreadSlots::BUFFERS),
            };
            front.offset = areas.shared.alloc(front.all(cpus) * stride);
            front
        });
        ThreadRecordFields { fields, front }
    }

    pub(super) fn field(&self, g: usize) -> Option<ThreadField> {
        let n = self
            .fields
            .iter()
            .position(|f| f.index() == g)?
            .fit::<u32>();
        Some(ThreadField {
            offset: 8 + 8 * n,
            bit: n,
            record: 8 + 8 * self.fields.len().fit::<u32>(),
            front: self.front,
        })
    }
}

/// Lays out a field of the thread records; the first one creates their map.
pub(super) fn field_location(
    global: &Global,
    field: ThreadField,
    maps: &mut Vec<TableSpec>,
) -> Option<GlobalLayout> {
    let GlobalKind::Array { keys, max, .. } = &global.kind else {
        return None;
    };
    let max = (*max).max(1);
    if field.bit == 0 {
        maps.push(TableSpec::hash(THREAD_RECORDS, 8, field.record, max));
    }
    Some(GlobalLayout {
        lock: None,
        location: GlobalLocation::Hash {
            map: THREAD_RECORDS.into(),
            key_size: 8,
            keys: keys.clone(),
            seq: false,
            wrap: false,
            value: ValueLayout::Scalar(Ty::Long),
            max,
            field: Some(field),
        },
    })
}

/// Whether processors can add to an element atomically, without one element for each.
fn atomic(value: &ValueLayout) -> bool {
    match value {
        ValueLayout::Scalar(ty) => *ty == Ty::Long,
        ValueLayout::Stats(agg) => {
            let more = [agg.min, agg.max, agg.sumsq];
            more.iter().all(Option::is_none) && agg.hist.is_none()
        }
    }
}

/// The layout of a large array's elements, or `None` for other arrays; without its location in the
/// CPUs' blocks. `key` and `value` are sizes in bytes.
fn large(key: u32, value: u32, max: u32, cpus: u32) -> Option<LargeLayout> {
    let large = LargeLayout {
        groups: LargeLayout::groups(max)?,
        // Each CPU can hold one unused slot, and insert one more while another CPU fills the array.
        slots: max.checked_add(2 * cpus)?,
        slot_size: key + value,
        spare: 0,
    };
    let fits = key <= LARGE_KEY && large.slots < 1 << LargeLayout::TAG_BITS;
    (max > FEW_ELEMENTS && fits && large.size() <= LARGE_BYTES).then_some(large)
}

/// An array with a map of its own, and the parts of its declaration.
pub(super) struct UnplacedArray<'a> {
    /// The number of the global.
    index: usize,
    global: &'a Global,
    /// Whether the order of insertion is recorded.
    iterated: bool,
    keys: &'a [Ty],
    /// Bytes of a key.
    key_size: u32,
    value: ValueLayout,
    /// Limit on the number of elements.
    max: u32,
    /// Whether a full array evicts its oldest elements.
    wrap: bool,
}

impl<'a> UnplacedArray<'a> {
    /// The global with this number, if it is an array.
    pub(super) fn new(index: usize, global: &'a Global, iterated: bool) -> Option<Self> {
        let GlobalKind::Array {
            keys,
            value,
            max,
            wrap,
        } = &global.kind
        else {
            return None;
        };
        Some(UnplacedArray {
            index,
            global,
            iterated,
            keys,
            key_size: key_size(global),
            value: element(value),
            max: (*max).max(1),
            wrap: *wrap,
        })
    }

    pub(super) fn location(
        self,
        cpus: u32,
        colocations: &Colocations,
        areas: &mut Areas,
    ) -> Res<Option<GlobalLayout>> {
        if self.value.size() > 32 << 10 {
            return Err(PlanError::TooLarge(format!(
                "an element of `{}` takes more than 32 KB",
                self.global.name
            )));
        }
        match self.global.storage {
            Storage::Controller => Ok(None),
            Storage::Shared { lock } => Ok(Some(self.shared(lock, areas))),
            Storage::PerCpu { double } => {
                let colocated = colocations.host_part(self.index);
                let colocated = colocated.ok_or("an array without a location")?;
                Ok(Some(self.per_cpu(double, colocated, cpus, areas)))
            }
        }
    }

    /// An array in a hash map.
    fn shared(self, lock: bool, areas: &mut Areas) -> GlobalLayout {
        let map = map_name(self.index, self.global, None);
        let seq = self.wrap || self.iterated;
        let value_size = self.value.size() + if seq { SEQUENCE } else { 0 };
        let table = TableSpec::hash(&map, self.key_size, value_size, self.max);
        areas.tables.push(table);
        GlobalLayout {
            lock: lock.then(|| areas.shared.alloc(8)),
            location: GlobalLocation::Hash {
                map,
                key_size: self.key_size,
                keys: self.keys.to_vec(),
                seq,
                wrap: self.wrap,
                value: self.value,
                max: self.max,
                field: None,
            },
        }
    }

    /// An array of per-CPU deltas: a cache in each per-CPU area, and maps behind it.
    fn per_cpu(
        self,
        double: bool,
        colocated: Colocation,
        cpus: u32,
        areas: &mut Areas,
    ) -> GlobalLayout {
        let UnplacedArray { key_size, max, .. } = self;
        let slot_size = 8 + key_size + colocated.size;
        // A cache would keep elements that the map evicts.
        let cached = key_size <= CACHED && !self.wrap;
        let slots = if cached {
            cache_slots(slot_size, max, cpus)
        } else {
            0
        };
        let generations = if double { 2 } else { 1 };
        let alone = colocated.host.is_none() && colocated.size == self.value.size();
        let large = (cached && alone && atomic(&self.value))
            .then(|| large(key_size, self.value.size(), max, cpus))
            .flatten();
        let large = large.map(|large| LargeLayout {
            spare: areas.cpu.alloc(8 * generations),
            ..large
        });
        let first = areas.tables.len();
        match &large {
            Some(large) => areas.tables.push(TableSpec::mapped(
                &map_name(self.index, self.global, None),
                large.size().fit(),
                generations,
            )),
            None => {
                let on_demand = TableKind::Hash {
                    preallocated: false,
                };
                let lanes = lanes(cpus, colocated.size, self.wrap);
                areas.tables.extend((0..generations).map(|n| TableSpec {
                    name: map_name(self.index, self.global, Some(n)),
                    kind: lanes.map_or(TableKind::PerCpuHash, |_| on_demand),
                    key_size,
                    value_size: lanes.unwrap_or(colocated.size),
                    max_entries: max.saturating_add(if self.wrap { max / EVICT } else { 0 }),
                }));
            }
        }
        let maps = areas.tables[first..].iter().map(|map| map.name.clone());
        GlobalLayout {
            lock: None,
            location: GlobalLocation::PerCpuArray(PerCpuArray {
                cache: areas.cpu.alloc(slots * slot_size * generations),
                gen_stride: if double { slots * slot_size } else { 0 },
                slots,
                slot_size,
                maps: maps.collect(),
                key_size,
                keys: self.keys.to_vec(),
                value: self.value,
                colocated,
                spilt: (cached && large.is_none()).then(|| areas.cpu.alloc(8 * generations)),
                max,
                wraps: self.wrap,
                large,
            }),
        }
    }
}

/// The number of a cache's slots, a power of two.
fn cache_slots(slot_size: u32, max: u32, cpus: u32) -> u32 {
    let limit = if cpus > 32 {
        CACHE_BYTES_MANY
    } else {
        CACHE_BYTES
    };
    let fit = (limit / slot_size).max(1);
    (max.saturating_mul(2).next_power_of_two())
        .min(CACHE_SLOTS)
        .min(1 << fit.ilog2())
}
