//! Where arrays live: hash maps, fields of records, caches with the maps behind them, and which lie
//! side by side.

use spile_ir::storage::{Storage, beside};
use spile_ir::{Global, GlobalId, GlobalKind, Program, Ty};

use super::{Bump, MMAPABLE, element};
use crate::layout::{Beside, Field, Front, GlobalLayout, Large, PerCpuArray, Place, ValueLayout};
use crate::object::elf::{MapSpec, MapType};
use crate::target::Options;

/// `BPF_F_NO_PREALLOC`.
const NO_PREALLOC: u32 = 1;
/// Above so many bytes a hash map's elements are allocated when they are needed: filling the
/// free list of a big one would cost more at the start than the rest of loading.
const PREALLOC_BYTES: u64 = 1 << 20;
/// Most bytes of one generation of a cache in one CPU's block.
const CACHE_BYTES: u32 = 64 << 10;
/// The same where there are many CPUs.
const CACHE_BYTES_MANY: u32 = 16 << 10;
/// Most slots of a cache.
const CACHE_SLOTS: u32 = 1024;
/// Keys of more bytes have no use of the cache: code that goes through their words would soon
/// be longer than a jump.
pub const CACHED: u32 = 256;
/// Most bytes of elements that lie side by side: there are fewer slots the larger they are.
const TOGETHER: u32 = 256;
/// Most bytes of a value with an element for each CPU in a plain hash map. The kernel has memory for these
/// at hand sooner than for those of per-CPU maps.
const LANES: u32 = 8192;
/// Where there are more CPUs, only elements of so many bytes: those of several CPUs in a cache line would let
/// these wait for each other.
const FEW_CPUS: u32 = 16;
const LINE: u32 = 64;
/// Bytes of the sequence number that a value begins with.
pub const SEQUENCE: u32 = 8;
/// A full wrapping array loses one element in so many, the oldest, and one more.
pub const EVICT: u32 = 64;
/// Arrays of more elements are large: their elements have memory from the start, and hits need no helper.
const FEW_ELEMENTS: u32 = 4096;
/// Most bytes of a large array's elements: offsets of the kernel's verifier end at twice as much.
const LARGE_BYTES: u64 = 256 << 20;
/// Most bytes of a key of a large array.
const LARGE_KEY: u32 = 64;
/// Most slots of records, and fewest: arrays with room for fewer elements have none.
const MOST_SLOTS: u32 = 4096;
const FEWEST_SLOTS: u32 = 1024;
/// Name of the map of records.
const RECORDS: &str = "threads";

/// Which arrays have their elements beside those of another.
#[derive(Debug)]
pub struct Together {
    /// Per global.
    parts: Vec<Option<Beside>>,
    /// Per global beside whose elements others lie: the word of the CPU's block that has its slot last
    /// added to, or a number that no slot has.
    words: Vec<Option<u32>>,
}

impl Together {
    pub(super) fn new(program: &Program, cpu: &mut Bump) -> Together {
        let n = program.globals.len();
        let (mut parts, mut words) = (vec![None; n], vec![None; n]);
        let mut sizes: Vec<u32> = program.globals.iter().map(element_size).collect();
        for (i, of) in beside(program).into_iter().enumerate() {
            let Some(to) = of else { continue };
            let (at, size) = (sizes[to.index()], sizes[i]);
            if at + size > TOGETHER || key_size(&program.globals[i]) > CACHED {
                continue;
            }
            sizes[to.index()] += size;
            parts[i] = Some(Beside { of, at, size: 0 });
            words[to.index()].get_or_insert_with(|| cpu.take(8));
        }
        for i in 0..n {
            match &mut parts[i] {
                Some(Beside {
                    of: Some(to), size, ..
                }) => *size = sizes[to.index()],
                part => {
                    *part = Some(Beside {
                        of: None,
                        at: 0,
                        size: sizes[i],
                    });
                }
            }
        }
        Together { parts, words }
    }

    /// Where an array's elements lie.
    fn part(&self, g: usize) -> Option<Beside> {
        self.parts.get(g).copied().flatten()
    }

    /// The word that has the slot of the array `g`, if others need it.
    pub fn word(&self, g: GlobalId) -> Option<u32> {
        self.words.get(g.index()).copied().flatten()
    }

    /// The array whose elements those of `g` lie beside.
    pub fn other(&self, g: usize) -> Option<GlobalId> {
        self.part(g)?.of
    }

    /// The place of an array beside another, which has its own already.
    pub(super) fn place(
        &self,
        global: &Global,
        g: usize,
        other: &GlobalLayout,
    ) -> Option<GlobalLayout> {
        let GlobalKind::Array { value: elem, .. } = &global.kind else {
            return None;
        };
        let mut layout = other.clone();
        if let Place::PerCpuArray(array) = &mut layout.place {
            array.value = element(elem);
            array.beside = self.part(g)?;
        }
        Some(layout)
    }
}

/// Bytes of a value with an element of so many bytes for each CPU, one behind the other, where arrays' maps
/// are plain hash maps with such values; `None` where they are per-CPU maps, which know no oldest element.
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

/// A map name from a global's: letters, digits and `_`, made unique by the index.
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

/// The arrays that are fields of records.
pub(super) struct Records {
    fields: Vec<GlobalId>,
    front: Option<Front>,
}

impl Records {
    pub(super) fn new(
        program: &Program,
        options: &Options,
        (shared, cpu): (&mut Bump, &mut Bump),
    ) -> Records {
        let fields = spile_ir::storage::records(program);
        let max = |g: &GlobalId| match &program.globals[g.index()].kind {
            GlobalKind::Array { max, .. } => *max,
            _ => 0,
        };
        let max = fields.first().map_or(0, max);
        let slots = max.min(MOST_SLOTS).checked_ilog2().map_or(0, |n| 1 << n);
        let front = (slots >= FEWEST_SLOTS).then(|| {
            let stride = 8 + 8 + 8 * fields.len() as u32;
            let mut front = Front {
                at: 0,
                slots,
                stride,
                spilt: shared.take(8),
                lent: cpu.take(8 * Front::ROOMS),
            };
            front.at = shared.take(front.all(options.cpus) * stride);
            front
        });
        Records { fields, front }
    }

    pub(super) fn field(&self, g: usize) -> Option<Field> {
        let n = self.fields.iter().position(|f| f.index() == g)? as u32;
        Some(Field {
            at: 8 + 8 * n,
            bit: n,
            record: 8 + 8 * self.fields.len() as u32,
            front: self.front,
        })
    }
}

/// A field of the records, whose map comes with the first.
pub(super) fn place_field(
    global: &Global,
    field: Field,
    maps: &mut Vec<MapSpec>,
) -> Option<GlobalLayout> {
    let GlobalKind::Array { keys, max, .. } = &global.kind else {
        return None;
    };
    let max = (*max).max(1);
    if field.bit == 0 {
        maps.push(MapSpec {
            name: RECORDS.into(),
            ty: MapType::Hash,
            key_size: 8,
            value_size: field.record,
            max_entries: max,
            flags: hash_flags(8 + field.record, max),
        });
    }
    Some(GlobalLayout {
        lock: None,
        place: Place::Hash {
            map: RECORDS.into(),
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

/// Flags of a hash map with that many elements of so many bytes.
fn hash_flags(bytes: u32, max: u32) -> u32 {
    match u64::from(bytes + 64) * u64::from(max) > PREALLOC_BYTES {
        true => NO_PREALLOC,
        false => 0,
    }
}

/// Whether processors can add to an element without one that each has for itself.
fn atomic(value: &ValueLayout) -> bool {
    match value {
        ValueLayout::Scalar(ty) => *ty == Ty::Long,
        ValueLayout::Stats(agg) => {
            let more = [agg.min, agg.max, agg.sumsq];
            more.iter().all(Option::is_none) && agg.hist.is_none()
        }
    }
}

/// How the elements of an array with keys and values of so many bytes lie, if it is large; without its
/// place in the CPUs' blocks.
fn large((key, value, max): (u32, u32, u32), cpus: u32) -> Option<Large> {
    let large = Large {
        groups: Large::groups(max)?,
        // Each CPU can keep one that it does not use, and put in one while another fills the array.
        rooms: max.checked_add(2 * cpus)?,
        room: key + value,
        spare: 0,
    };
    let fits = key <= LARGE_KEY && large.rooms < 1 << Large::TAG_BITS;
    (max > FEW_ELEMENTS && fits && large.size() <= LARGE_BYTES).then_some(large)
}

pub(super) fn place_array(
    index: usize,
    (global, iterated): (&Global, bool),
    (options, together): (&Options, &Together),
    (shared, cpu, maps): (&mut Bump, &mut Bump, &mut Vec<MapSpec>),
) -> Result<Option<GlobalLayout>, String> {
    let GlobalKind::Array {
        keys,
        value,
        max,
        wrap,
    } = &global.kind
    else {
        return Ok(None);
    };
    let value = element(value);
    let key_size = key_size(global);
    let max = (*max).max(1);
    if value.size() > 32 << 10 {
        return Err(format!(
            "an element of `{}` takes more than 32 KB",
            global.name
        ));
    }
    match global.storage {
        Storage::Controller => Ok(None),
        Storage::Shared { lock } => {
            let name = map_name(index, global, None);
            let seq = *wrap || iterated;
            let value_size = value.size() + if seq { 8 } else { 0 };
            maps.push(MapSpec {
                name: name.clone(),
                ty: MapType::Hash,
                key_size,
                value_size,
                max_entries: max,
                flags: hash_flags(key_size + value_size, max),
            });
            Ok(Some(GlobalLayout {
                lock: lock.then(|| shared.take(8)),
                place: Place::Hash {
                    map: name,
                    key_size,
                    keys: keys.clone(),
                    seq,
                    wrap: *wrap,
                    value,
                    max,
                    field: None,
                },
            }))
        }
        Storage::PerCpu { double } => {
            let beside = together.part(index).ok_or("an array without a place")?;
            let slot_size = 8 + key_size + beside.size;
            let limit = if options.cpus > 32 {
                CACHE_BYTES_MANY
            } else {
                CACHE_BYTES
            };
            let fit = (limit / slot_size).max(1);
            // What a map drops a cache would keep.
            let cached = key_size <= CACHED && !*wrap;
            let slots = (max.saturating_mul(2).next_power_of_two())
                .min(CACHE_SLOTS)
                .min(1 << fit.ilog2());
            let slots = if cached { slots } else { 0 };
            let generations = if double { 2 } else { 1 };
            let entries = max.saturating_add(if *wrap { max / EVICT } else { 0 });
            let lanes = lanes(options.cpus, beside.size, *wrap);
            let alone = beside.of.is_none() && beside.size == value.size();
            let large = (cached && alone && atomic(&value))
                .then(|| large((key_size, value.size(), max), options.cpus))
                .flatten();
            let large = large.map(|large| Large {
                spare: cpu.take(8 * generations),
                ..large
            });
            let first = maps.len();
            match &large {
                Some(large) => maps.push(MapSpec {
                    name: map_name(index, global, None),
                    ty: MapType::Array,
                    key_size: 4,
                    value_size: large.size() as u32,
                    max_entries: generations,
                    flags: MMAPABLE,
                }),
                None => maps.extend((0..generations).map(|n| MapSpec {
                    name: map_name(index, global, Some(n)),
                    ty: lanes.map_or(MapType::PercpuHash, |_| MapType::Hash),
                    key_size,
                    value_size: lanes.unwrap_or(beside.size),
                    max_entries: entries,
                    flags: NO_PREALLOC,
                })),
            }
            let names = maps[first..].iter().map(|map| map.name.clone()).collect();
            Ok(Some(GlobalLayout {
                lock: None,
                place: Place::PerCpuArray(PerCpuArray {
                    cache: cpu.take(slots * slot_size * generations),
                    gen_stride: if double { slots * slot_size } else { 0 },
                    slots,
                    slot_size,
                    maps: names,
                    key_size,
                    keys: keys.clone(),
                    value,
                    beside,
                    spilt: (cached && large.is_none()).then(|| cpu.take(8 * generations)),
                    max,
                    wraps: *wrap,
                    large,
                }),
            }))
        }
    }
}
