//! Reads of a program's memory against Rust, on random processes: pages that are in the page table or
//! not, mappings of all kinds, and page caches with folios of all sizes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use spile_lir::func::MemoryOperand;
use spile_lir::helpers::Helper;
use spile_lir::interp::{Host, Memory, RegionKind, Trap};
use spile_lir::library::mappings::{MappingOffsets, search};
use spile_lir::library::usermem::{PageOffsets, UsermemLayout, module, status};

use super::forms::{forms, properties};
use super::kernel::{tree, words};

const PAGE: u64 = 4096;
const MOST: usize = 5000;
const STAGING: usize = 64;
const COPY: usize = STAGING + MOST + 8;
const SEARCH: usize = COPY + MOST + 16;
const BLOCK: usize = SEARCH + search::BYTES as usize;
/// Words of the state.
const FIRST_PAGE: u32 = 8;
const DIRECT_MAP: u32 = 16;
/// Bytes of a `struct page`, and the largest number of pages in the cache.
const STRUCT_PAGE: u64 = 64;
const MACHINE: u64 = 700;
/// The program's memory begins here.
const START: u64 = 0x7000_0000_0000;

const OFFSETS: PageOffsets = PageOffsets {
    mapping: MappingOffsets {
        task_mm: 8,
        mm_root: 16,
        vma_start: 0,
        vma_end: 40,
    },
    vma_flags: 8,
    vma_pgoff: 16,
    vma_file: 24,
    vma_anon: 32,
    file_mapping: 8,
    mapping_head: 16,
    node_shift: 0,
    node_slots: 40,
    folio_flags: 0,
    folio_index: 32,
    uptodate: 3,
    page_size: STRUCT_PAGE as u32,
};

/// A mapping of four pages.
#[derive(Debug, Clone)]
struct Mapping {
    flags: u64,
    /// Its first page in the file.
    pgoff: u64,
    file: bool,
    anon: bool,
    /// Its pages that are in the page table.
    present: [bool; 4],
}

/// A piece of the page cache: `1 << order` pages.
#[derive(Debug, Clone)]
struct Folio {
    index: u64,
    order: u32,
    uptodate: bool,
    /// Whether only its shadow is there.
    shadow: bool,
}

impl Folio {
    /// The entry of the xarray.
    fn entry(&self, page: u64) -> u64 {
        match self.shadow {
            // One bit of the shadow belongs to its content.
            true => page | 1 | (self.index & 1) << 1,
            false => page,
        }
    }
}

/// What there is.
#[derive(Debug, Clone)]
struct World {
    /// Mappings, one behind the other; there is none where it is `None`.
    mappings: Vec<Option<Mapping>>,
    folios: Vec<Folio>,
    /// Whether the host knows the direct map.
    known: bool,
    /// Whether the page leaves the file while it is read.
    leaves: bool,
    /// The read of the kernel's memory that fails, if one does.
    fails: Option<usize>,
    /// One byte of this many is a NUL.
    nuls: u64,
}

impl World {
    /// The content of the file, or of other memory.
    fn byte(&self, at: u64) -> u8 {
        let n = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        match n.is_multiple_of(self.nuls) {
            true => 0,
            false => n as u8 | 1,
        }
    }

    fn mapping(&self, address: u64) -> Option<(usize, &Mapping)> {
        let n = address.checked_sub(START)? / (4 * PAGE);
        let mapping = self.mappings.get(n as usize)?.as_ref()?;
        Some((n as usize, mapping))
    }

    /// The location in the file of a byte of the program.
    fn in_file(&self, address: u64) -> Option<u64> {
        let (n, mapping) = self.mapping(address)?;
        let from = START + n as u64 * 4 * PAGE;
        Some(mapping.pgoff * PAGE + (address - from))
    }

    fn is_present(&self, address: u64) -> bool {
        self.mapping(address).is_some_and(|(_, mapping)| {
            let page = (address - START) / PAGE % 4;
            mapping.present[page as usize]
        })
    }

    fn cached(&self, index: u64) -> bool {
        let folio = self.folios.iter();
        let mut folio = folio.filter(|f| f.index <= index && index < f.index + (1 << f.order));
        folio.next().is_some_and(|f| f.uptodate && !f.shadow)
    }

    /// The status of a read from one page.
    fn status(&self, address: u64) -> i32 {
        let Some((_, mapping)) = self.mapping(address) else {
            return status::BAD;
        };
        let index = self.in_file(address).unwrap_or(0) / PAGE;
        let special = mapping.flags & 0x40_4400 != 0;
        let in_cache = mapping.file && !mapping.anon && !special && self.cached(index);
        match () {
            () if self.is_present(address) => status::READ,
            () if mapping.flags & 1 == 0 => status::BAD,
            () if in_cache && self.known && !self.leaves => status::READ,
            () => status::ABSENT,
        }
    }

    /// The expected status, and the bytes.
    fn expected(&self, (capacity, address, raw): (u64, u64, bool)) -> (i32, Vec<u8>) {
        let mut bytes = Vec::new();
        if capacity == 0 || capacity >= MOST as u64 {
            return (status::BAD, bytes);
        }
        for at in address..address + capacity {
            if at == address || at.is_multiple_of(PAGE) {
                match self.status(at) {
                    status::READ => {}
                    other => return (other, bytes),
                }
            }
            bytes.push(self.byte(self.in_file(at).unwrap_or(0)));
            if !raw && bytes.last() == Some(&0) {
                return (status::READ, bytes);
            }
        }
        bytes.push(0);
        (status::READ, bytes)
    }
}

/// The host, whose kernel has the world's structures.
struct Kernel {
    world: World,
    block: u64,
    state: u64,
    direct_map: u64,
    /// The task.
    task: u64,
    /// The slots of the xarray that have folios.
    slots: Vec<u64>,
    /// Number of reads so far.
    reads: usize,
}

fn word(memory: &mut Memory, at: u64, value: u64) {
    memory.write(at, &value.to_le_bytes()).expect("a word");
}

/// Writes the node of the xarray at `shift` whose first index is `first`; returns its entry. `folios`
/// are those inside, with the addresses of their structures.
fn node(
    memory: &mut Memory,
    (shift, first): (u32, u64),
    folios: &[(Folio, u64)],
    slots: &mut Vec<u64>,
) -> u64 {
    let at = memory.add(vec![0; 40 + 64 * 8], RegionKind::Memory);
    // Other fields of the node follow the byte.
    word(memory, at, 0xa5a5_a500 | u64::from(shift));
    let slot = |n: u64| at + 40 + 8 * n;
    let mut below: BTreeSet<u64> = BTreeSet::new();
    for (folio, page) in folios {
        let n = (folio.index - first) >> shift;
        if folio.order < shift {
            below.insert(n);
            continue;
        }
        word(memory, slot(n), folio.entry(*page));
        slots.push(slot(n));
        for sibling in 1..1 << (folio.order - shift) {
            word(memory, slot(n + sibling), n << 2 | 2);
        }
    }
    for n in below {
        let start = first + (n << shift);
        let inside = |f: &Folio| f.index >= start && f.index < start + (1 << shift);
        let folios = folios.iter().filter(|(f, _)| inside(f));
        let folios: Vec<(Folio, u64)> = folios.cloned().collect();
        let entry = node(memory, (shift - 6, start), &folios, slots);
        word(memory, slot(n), entry);
    }
    at | 2
}

impl Kernel {
    fn new(memory: &mut Memory, world: &World) -> Kernel {
        let block = memory.add(vec![0xa5; BLOCK], RegionKind::Memory);
        let state = memory.add(vec![0; 64], RegionKind::Memory);
        let used = 1 + world.folios.iter().map(|f| 1 << f.order).sum::<u64>();
        let pages = memory.add(vec![0; (used * STRUCT_PAGE) as usize], RegionKind::Memory);
        let direct_map = memory.add(vec![0; (used * PAGE) as usize], RegionKind::Memory);
        if world.known {
            word(memory, state + u64::from(FIRST_PAGE), pages);
            word(memory, state + u64::from(DIRECT_MAP), direct_map);
        }
        let mut next = 1;
        let mut folios = Vec::new();
        for folio in &world.folios {
            let page = pages + next * STRUCT_PAGE;
            word(memory, page, u64::from(folio.uptodate) << 3 | 0x5501);
            word(memory, page + 32, folio.index);
            let mapped = |index: u64| {
                let mut mappings = world.mappings.iter().flatten();
                mappings.any(|m| (m.pgoff..m.pgoff + 4).contains(&index))
            };
            for n in (0..1 << folio.order).filter(|n| mapped(folio.index + n)) {
                let from = (folio.index + n) * PAGE;
                let bytes: Vec<u8> = (from..from + PAGE).map(|at| world.byte(at)).collect();
                let to = direct_map + (next + n) * PAGE;
                memory.write(to, &bytes).expect("a page");
            }
            next += 1 << folio.order;
            folios.push((folio.clone(), page));
        }
        let mut slots = Vec::new();
        let mapping = memory.add(vec![0; 24], RegionKind::Memory);
        let last = |f: &Folio| f.index + (1 << f.order) - 1;
        let last = world.folios.iter().map(last).max();
        let head = match (last, &*folios) {
            (None, _) => 0,
            (Some(0), [(folio, page)]) => {
                slots.push(mapping + 16);
                folio.entry(*page)
            }
            (Some(last), all) => {
                let mut shift = 0;
                while last >> shift > 63 {
                    shift += 6;
                }
                node(memory, (shift, 0), all, &mut slots)
            }
        };
        word(memory, mapping + 16, head);
        let file = memory.add(vec![0; 16], RegionKind::Memory);
        word(memory, file + 8, mapping);
        let mut entries = vec![(START - 1, 0)];
        for (mapping, start) in world
            .mappings
            .iter()
            .zip((START..).step_by(4 * PAGE as usize))
        {
            let end = start + 4 * PAGE;
            let vma = mapping.as_ref().map_or(0, |m| {
                let file = if m.file { file } else { 0 };
                words(memory, &[start, m.flags, m.pgoff, file, m.anon.into(), end])
            });
            entries.push((end - 1, vma));
        }
        entries.push((u64::MAX, 0));
        let root = tree(memory, 16, &entries);
        let mm = words(memory, &[0, 0, root]);
        let task = words(memory, &[0, mm]);
        Kernel {
            world: world.clone(),
            block,
            state,
            direct_map,
            task,
            slots,
            reads: 0,
        }
    }

    /// Whether a read has failed.
    fn failed(&self) -> bool {
        self.world.fails.is_some_and(|n| n < self.reads)
    }

    fn read(&mut self, memory: &mut Memory, to: u64, size: u64, from: u64) -> Result<u64, Trap> {
        let fails = self.world.fails == Some(self.reads);
        self.reads += 1;
        if fails {
            memory.write(to, &vec![0xff; size as usize])?;
            return Ok((-14i64).cast_unsigned());
        }
        let bytes = memory.read(from, size as usize).map(<[u8]>::to_vec);
        let ok = bytes.is_ok();
        let range = self.direct_map..self.direct_map + MACHINE * PAGE;
        if self.world.leaves && range.contains(&from) {
            for slot in &self.slots {
                word(memory, *slot, 0);
            }
        }
        memory.write(to, &bytes.unwrap_or_else(|_| vec![0; size as usize]))?;
        Ok(if ok { 0 } else { (-14i64).cast_unsigned() })
    }
}

impl Host for Kernel {
    fn helper(&mut self, memory: &mut Memory, helper: Helper, args: &[u64]) -> Result<u64, Trap> {
        match (helper, args) {
            (Helper::TaskAddress, []) => Ok(self.task),
            (Helper::Read, [to, size, from]) => self.read(memory, *to, *size, *from),
            (Helper::ReadUser, [to, size, from]) => {
                let range = *from..from + size;
                if !range.clone().all(|at| self.world.is_present(at)) {
                    memory.write(*to, &vec![0; *size as usize])?;
                    return Ok((-14i64).cast_unsigned());
                }
                let byte = |at| self.world.byte(self.world.in_file(at).unwrap_or(0));
                memory.write(*to, &range.map(byte).collect::<Vec<u8>>())?;
                Ok(0)
            }
            (Helper::ReadText, [to, size, from]) => {
                let bytes = memory.read(*from, *size as usize - 1)?;
                let text = bytes.split(|b| *b == 0).next().unwrap_or_default();
                let text = [text, &[0]].concat();
                memory.write(*to, &text)?;
                Ok(text.len() as u64)
            }
            other => Err(Trap::Helper(format!("{other:?}"))),
        }
    }

    fn location(&mut self, of: &MemoryOperand) -> Option<u64> {
        match of {
            MemoryOperand::Cpu(off) => Some(self.block + u64::from(*off)),
            MemoryOperand::State(off) => Some(self.state + u64::from(*off)),
            _ => None,
        }
    }
}

fn layout(pages: bool) -> UsermemLayout {
    UsermemLayout {
        most: MOST as i32,
        staging: STAGING as i32,
        copy: COPY as i32,
        search: SEARCH as u32,
        pages: pages.then_some(OFFSETS),
        first_page: FIRST_PAGE,
        direct_map: DIRECT_MAP,
    }
}

fn mapping() -> impl Strategy<Value = Option<Mapping>> {
    let flags =
        prop_oneof![12 => Just(0x75u64), 1 => Just(0x74), 1 => Just(0x475), 1 => Just(0x40_0075)];
    let pgoff = prop_oneof![
        Just(0u64),
        Just(1),
        Just(61),
        Just(64),
        0..300u64,
        Just(4094),
        Just(262_143),
        Just(16_777_215)
    ];
    let file = prop_oneof![12 => Just(true), 1 => Just(false)];
    let anon = prop_oneof![12 => Just(false), 1 => Just(true)];
    let some = (flags, pgoff, file, anon, any::<[bool; 4]>());
    let some = some.prop_map(|(flags, pgoff, file, anon, present)| Mapping {
        flags,
        pgoff,
        file,
        anon,
        present,
    });
    prop_oneof![6 => some.prop_map(Some), 1 => Just(None)]
}

/// Folios near the mappings' pages that do not overlap.
fn folios(mappings: &[Option<Mapping>], wanted: &[(u64, u32, bool)]) -> Vec<Folio> {
    let starts: Vec<u64> = mappings.iter().flatten().map(|m| m.pgoff).collect();
    let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
    let mut folios = Vec::new();
    let mut capacity = MACHINE - 1;
    for (i, (page, order, uptodate)) in wanted.iter().enumerate() {
        let near = starts.get(i % starts.len().max(1)).copied().unwrap_or(0);
        let index = (near + page) >> order << order;
        let end = index + (1 << order);
        let free = taken.iter().all(|(from, to)| end <= *from || *to <= index);
        if !free || capacity < 1 << order {
            continue;
        }
        capacity -= 1 << order;
        taken.insert(index, end);
        folios.push(Folio {
            index,
            order: *order,
            uptodate: *uptodate,
            // A shadow is one of a page that was evicted.
            shadow: i % 7 == 6,
        });
    }
    folios
}

fn world() -> impl Strategy<Value = World> {
    let order = prop_oneof![6 => Just(0u32), 2 => 1..6u32, 1 => 6..8u32];
    let uptodate = prop_oneof![9 => Just(true), 1 => Just(false)];
    let wanted = vec((0..6u64, order, uptodate), 0..12);
    let nuls = prop_oneof![Just(50u64), Just(3000), Just(u64::MAX)];
    let known = prop_oneof![9 => Just(true), 1 => Just(false)];
    let leaves = prop_oneof![9 => Just(false), 1 => Just(true)];
    let fails = proptest::option::weighted(0.2, 0..20usize);
    (vec(mapping(), 1..4), wanted, known, leaves, nuls, fails).prop_map(
        |(mappings, wanted, known, leaves, nuls, fails)| World {
            fails,
            folios: folios(&mappings, &wanted),
            mappings,
            known,
            leaves,
            nuls,
        },
    )
}

/// Where a read begins, its length, and whether it stops at a NUL.
fn read() -> impl Strategy<Value = (u64, u64, bool)> {
    let address = prop_oneof![9 => 0..12 * PAGE, 1 => (0..12u64).prop_map(|page| page * PAGE), 1 => Just(20 * PAGE)];
    let capacity = prop_oneof![4 => 1..300u64, 4 => 1..MOST as u64, 1 => Just(0), 1 => MOST as u64 - 2..MOST as u64 + 3];
    (capacity, address, any::<bool>())
        .prop_map(|(capacity, address, raw)| (capacity, START + address, raw))
}

properties! {
    1000 cases: fn reads_find_pages_in_the_page_cache(world in world(), reads in vec(read(), 1..6)) {
        let forms = forms("usermem", || module(&layout(true)));
        for ((capacity, address, raw), mut machine) in reads.into_iter().flat_map(|read| forms.machines(100_000).map(move |m| (read, m))) {
            let mut kernel = Kernel::new(&mut machine.memory, &world);
            let args = [capacity, address, u64::from(raw)];
            let result = machine.run("user_text", &args, &mut kernel);
            let (status, bytes) = world.expected((capacity, address, raw));
            // A page whose structures cannot be read is absent.
            if kernel.failed() {
                prop_assert_eq!(result, Ok(status::ABSENT as u64));
                continue;
            }
            prop_assert_eq!(result, Ok(status as u64), "{:?}", args);
            let block = machine.memory.region(kernel.block).expect("the block");
            prop_assert_eq!(&block[STAGING..STAGING + bytes.len()], &bytes);
        }
    }

    1000 cases: fn without_offsets_only_present_pages_are_read(world in world(), (capacity, address, raw) in read()) {
        let forms = forms("usermem without offsets", || module(&layout(false)));
        let result = forms.same(100_000, |mut machine| {
            let mut kernel = Kernel::new(&mut machine.memory, &world);
            machine.run("user_text", &[capacity, address, u64::from(raw)], &mut kernel)
        });
        let unknown = World { known: false, ..world };
        let expected = match unknown.expected((capacity, address, raw)).0 {
            status::BAD if capacity != 0 && capacity < MOST as u64 => status::ABSENT,
            other => other,
        };
        prop_assert_eq!(result, Ok(expected as u64));
    }
}
