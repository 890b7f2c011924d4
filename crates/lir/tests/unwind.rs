//! Walks of user stacks against Rust, on random processes: trees of mappings, tables of unwind rows,
//! stacks of random words, and return probes. The functions run as they are written and with their
//! loops as callbacks.

#[path = "common/kernel.rs"]
mod kernel;

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use kernel::{tree, words};
use proptest::collection::vec;
use proptest::prelude::*;
use spile_lir::Module;
use spile_lir::counted::count;
use spile_lir::func::MemoryPlace;
use spile_lir::helpers::Helper;
use spile_lir::interp::{Fault, Host, Machine, Memory, RegionKind};
use spile_lir::library::unwind::row::{self, kind};
use spile_lir::library::unwind::{
    BEHIND, COPIED, EXACT, FILE_NAME, GIVEN, UnwindLayout, UnwindOffsets, VDSO, at, copy, module,
    room,
};
use spile_lir::repeat::outline;
use spile_lir::verify::verify;

const MOST: u32 = 8;
const FRAMES: usize = 32;
const BASE: usize = FRAMES + 8 * (MOST as usize + 1);
/// Counters.
const GUESSED: u32 = 0;
const CUT: u32 = 8;
const COUNT: u32 = 16;
const FIRST: u32 = 24;
const PAGE: u64 = 4096;
const STACK: u64 = 0x7ffe_0000_0000;
const CODE: u64 = 0x5555_0000_0000;
/// The task, behind which the maps have their addresses.
const TASK: u64 = 0xffff_8880_0000_0000;

const OFFSETS: UnwindOffsets = UnwindOffsets {
    task_mm: 0,
    task_tgid: 8,
    mm_root: 8,
    mm_vdso: 16,
    vma_start: 0,
    vma_end: 8,
    vma_pgoff: 16,
    vma_file: 24,
    vma_flags: 32,
    file_inode: 0,
    file_dentry: 8,
    inode_ino: 0,
    inode_sb: 8,
    sb_dev: 0,
    dentry_parent: 0,
    dentry_name: 8,
    returns: Some([16, 0, 0, 8, 16]),
    regs_ip: 0,
    regs_sp: 8,
    regs_bp: 16,
    regs_cs: 24,
};

fn layout() -> UnwindLayout {
    UnwindLayout {
        base: BASE as u32,
        most: MOST,
        frames: FRAMES as u32,
        count: COUNT,
        first: FIRST,
        next_file: 0,
        offsets: OFFSETS,
        files: "files",
        rows: "rows",
        copies: "copies",
        ring: "ring",
        file_record: 5,
        copy_record: 6,
        wakeup: 2,
        guessed: GUESSED,
        cut_stacks: CUT,
        lost_output: GUESSED,
        no_memory: GUESSED,
    }
}

static MODULES: LazyLock<[Module; 2]> = LazyLock::new(|| {
    let written = module(&layout());
    let mut outlined = written.clone();
    outline(&mut outlined).unwrap_or_else(|e| panic!("{e}"));
    for module in [&written, &outlined] {
        verify(module).unwrap_or_else(|e| panic!("{e}"));
    }
    outlined.funcs.iter_mut().for_each(count);
    [written, outlined]
});

/// A row: first offset, rule, distance in words, words to the saved rbp.
type Row = (u32, u8, i16, u8);

/// A mapping of a file, of four pages.
#[derive(Debug, Clone)]
struct Mapping {
    /// Pages of the gap in front of it.
    gap: u64,
    pgoff: u64,
    executable: bool,
    /// The file: none for anonymous memory.
    file: Option<usize>,
}

/// How a file stands in the map.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Table {
    /// Not known yet.
    New,
    /// Known, without rows so far.
    Loading,
    /// It has no rows and gets none.
    None,
    Rows(Vec<Row>),
}

#[derive(Debug, Clone)]
struct World {
    mappings: Vec<Mapping>,
    files: Vec<Table>,
    /// The mapping that is the vDSO, if it is anonymous.
    vdso: Option<usize>,
    /// Slots of a node of the tree: the tree is deeper if they are few.
    slots: usize,
    stack: Vec<u64>,
    /// The bytes at each address of code.
    code: u64,
    ip: u64,
    sp: u64,
    bp: u64,
    compat: bool,
    /// Places of replaced return addresses, in order, with the original ones.
    returns: Vec<(u64, u64)>,
    /// Whether the controller may complete the stack.
    copies: bool,
    most: i64,
}

impl World {
    /// The addresses of a mapping.
    fn range(&self, n: usize) -> (u64, u64) {
        let pages: u64 = self.mappings[..n].iter().map(|m| m.gap + 4).sum();
        let from = CODE + (pages + self.mappings[n].gap) * PAGE;
        (from, from + 4 * PAGE)
    }

    /// A program's word, if it can be read.
    fn word(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = self.byte(at.wrapping_add(i as u64))?;
        }
        Some(u64::from_le_bytes(bytes))
    }

    fn byte(&self, at: u64) -> Option<u8> {
        if let Some(off) = at.checked_sub(STACK)
            && let Some(word) = self.stack.get(off as usize / 8)
        {
            return Some(word.to_le_bytes()[off as usize % 8]);
        }
        let mapped = (0..self.mappings.len()).any(|n| {
            let (from, to) = self.range(n);
            (from..to).contains(&at)
        });
        let codes: [&[u8]; 5] = [
            &[0x55, 0x48, 0x89, 0xe5, 0x90],
            &[0xf3, 0x0f, 0x1e, 0xfa, 0x90],
            &[0xc3, 0x90, 0x90, 0x90, 0x90],
            &[0x48, 0x89, 0xe5, 0x90, 0x90],
            &[0x90, 0x90, 0x90, 0x90, 0x90],
        ];
        // The same instruction at each fifth address, so that any address begins one.
        let n = (self.code.wrapping_add(at / 5) % 5) as usize;
        mapped.then(|| codes[n][(at % 5) as usize])
    }
}

/// What is found for an address: file number, first row plus one, rows, and the range.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    start: u64,
    end: u64,
    off: u64,
    file: u64,
    first: u64,
    rows: u64,
}

/// The reference: the same walk in Rust.
struct Reference<'a> {
    world: &'a World,
    numbers: HashMap<usize, u64>,
    next: u64,
    now: Found,
    frames: Vec<(u64, u64, u64)>,
    registers: [u64; 3],
    exact: bool,
    copies: bool,
    guessed: u64,
    cut: u64,
    returned: usize,
}

/// The start of each file's rows in the map.
fn first_rows(files: &[Table]) -> Vec<u64> {
    let mut next = 1;
    let first = |table: &Table| {
        let first = next;
        if let Table::Rows(rows) = table {
            next += rows.len() as u64;
        }
        first
    };
    files.iter().map(first).collect()
}

/// File numbers that the controller has given, by file.
fn known(world: &World) -> HashMap<usize, u64> {
    let files = world.files.iter().enumerate();
    let known = files.filter(|(_, t)| **t != Table::New);
    known.map(|(n, _)| (n, 100 + n as u64)).collect()
}

impl<'a> Reference<'a> {
    fn new(world: &'a World) -> Reference<'a> {
        Reference {
            numbers: known(world),
            next: 1,
            now: Found::default(),
            frames: Vec::new(),
            registers: [world.ip, world.sp, world.bp],
            exact: false,
            copies: world.copies,
            guessed: 0,
            cut: 0,
            returned: 0,
            world,
        }
    }

    fn map(&mut self, address: u64) {
        self.now = Found::default();
        let world = self.world;
        let inside = |n: &usize| {
            let (from, to) = world.range(*n);
            (from..to).contains(&address)
        };
        let Some(n) = (0..world.mappings.len()).find(inside) else {
            return;
        };
        let mapping = &world.mappings[n];
        (self.now.start, self.now.end) = world.range(n);
        self.now.off = (mapping.pgoff * PAGE).wrapping_sub(self.now.start);
        let Some(file) = mapping.file else {
            if world.vdso == Some(n) {
                self.now.file = VDSO.into();
                self.now.off = self.now.start.wrapping_neg();
            }
            return;
        };
        let next = self.next;
        let number = *self.numbers.entry(file).or_insert_with(|| {
            self.next += 1;
            next
        });
        self.now.file = number;
        match &world.files[file] {
            Table::Rows(rows) => {
                self.now.first = first_rows(&world.files)[file];
                self.now.rows = rows.len() as u64;
            }
            Table::None => self.now.first = 1 << 32,
            Table::New | Table::Loading => {}
        }
    }

    /// Whether the walk goes on; none if it wants a copy.
    fn step(&mut self, address: u64, innermost: bool) -> Option<bool> {
        let world = self.world;
        if self.now.rows != 0 {
            let key = address.wrapping_add(self.now.off);
            let numbers = self.numbers.iter();
            let (file, _) = numbers.clone().find(|(_, n)| **n == self.now.file)?;
            let Table::Rows(rows) = &world.files[*file] else {
                return Some(false);
            };
            let row = rows.iter().rfind(|r| u64::from(r.0) <= key);
            if let Some(row) = row.filter(|r| r.1 != kind::NONE) {
                return Some(self.follow(*row).is_some());
            }
        } else if self.now.file != 0 && self.now.file != u64::from(VDSO) {
            if self.copies && self.now.first == 0 {
                return None;
            }
            self.guessed += 1;
        }
        let went = self.frame_pointers(innermost);
        Some(went.is_some())
    }

    fn follow(&mut self, (_, rule, distance, saved): Row) -> Option<()> {
        let [ip, sp, bp] = self.registers;
        let bytes = 8 * i64::from(distance);
        let word = |at: u64| self.world.word(at);
        let frame = match rule {
            kind::END => return None,
            kind::SIGNAL => {
                if let Some(last) = self.frames.last_mut() {
                    last.2 |= EXACT;
                }
                let bp = word(sp.wrapping_add(120))?;
                self.registers[2] = bp;
                self.registers[0] = word(sp.wrapping_add(168))?;
                self.registers[1] = word(sp.wrapping_add(160))?;
                self.exact = true;
                return Some(());
            }
            kind::PLT if (ip & 15) < i64::from(distance).cast_unsigned() => sp.wrapping_add(8),
            kind::PLT => sp.wrapping_add(16),
            kind::RBP => bp.wrapping_add_signed(bytes),
            kind::AT_RBP => word(bp.wrapping_add_signed(bytes))?,
            kind::AT_RSP => word(sp.wrapping_add_signed(bytes))?,
            _ => sp.wrapping_add_signed(bytes),
        };
        if frame <= sp {
            return None;
        }
        if saved != 0 {
            self.registers[2] = word(frame.wrapping_sub(8 * u64::from(saved)))?;
        }
        let ip = word(frame.wrapping_sub(8))?;
        (self.registers[0], self.registers[1], self.exact) = (ip, frame, false);
        Some(())
    }

    fn frame_pointers(&mut self, innermost: bool) -> Option<()> {
        let [ip, sp, bp] = self.registers;
        let code: Option<Vec<u8>> = (0..5)
            .map(|i| self.world.byte(ip.wrapping_add(i)))
            .collect();
        let code = code.filter(|_| innermost || self.exact);
        let is = |bytes: &[u8]| code.as_ref().is_some_and(|c| c.starts_with(bytes));
        let frame = if is(&[0x55]) || is(&[0xf3, 0x0f, 0x1e, 0xfa]) || is(&[0xc3]) {
            self.registers[0] = self.world.word(sp)?;
            self.registers[1] = sp.wrapping_add(8);
            self.exact = false;
            return Some(());
        } else if is(&[0x48, 0x89, 0xe5]) {
            sp
        } else if bp < sp || bp % 8 != 0 {
            return None;
        } else {
            bp
        };
        let (saved, ip) = (
            self.world.word(frame)?,
            self.world.word(frame.wrapping_add(8))?,
        );
        self.registers = [ip, frame.wrapping_add(16), saved];
        self.exact = false;
        Some(())
    }

    fn run(&mut self, most: usize) {
        loop {
            let ip = self.registers[0];
            if ip == 0 {
                return;
            }
            let n = self.frames.len();
            if n >= most {
                self.cut += u64::from(most == MOST as usize);
                return;
            }
            let address = ip.wrapping_sub(u64::from(n != 0 && !self.exact));
            if self.now.start > address || self.now.end <= address {
                self.map(address);
            }
            let exact = if self.exact { EXACT } else { 0 };
            let offset = self.now.off.wrapping_add(ip) | exact;
            self.frames.push((ip, self.now.file, offset));
            match self.step(address, n == 0) {
                Some(true) => {}
                Some(false) => return,
                None if n + 1 < MOST as usize => {
                    self.frames.push((0, COPIED.into(), 0));
                    return;
                }
                None => {
                    self.copies = false;
                    self.now = Found {
                        file: 1,
                        ..Found::default()
                    };
                    match self.step(address, n == 0) {
                        Some(true) => {}
                        _ => return,
                    }
                }
            }
            let place = self.registers[1].wrapping_sub(8);
            let returns = self.world.returns.iter().enumerate().skip(self.returned);
            if let Some((i, (_, original))) = returns.clone().find(|(_, r)| r.0 == place) {
                self.returned = i;
                self.registers[0] = *original;
            }
        }
    }
}

/// The host, whose kernel has the world's structures.
struct Kernel<'a> {
    world: &'a World,
    block: u64,
    state: u64,
    task: u64,
    registers: u64,
    /// Values of the map of files, by key.
    files: BTreeMap<Vec<u8>, u64>,
    rows: Vec<u64>,
    copy: u64,
    records: Vec<Vec<u8>>,
}

fn row_word((start, rule, distance, saved): Row) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&start.to_le_bytes());
    bytes[row::CFA as usize..][..2].copy_from_slice(&distance.to_le_bytes());
    bytes[row::RBP as usize] = saved;
    bytes[row::KIND as usize] = rule;
    u64::from_le_bytes(bytes)
}

impl<'a> Kernel<'a> {
    fn new(memory: &mut Memory, world: &'a World) -> Kernel<'a> {
        let block = memory.add(vec![0; BASE + room(MOST) as usize + 64], RegionKind::Memory);
        let mut kernel = Kernel {
            world,
            block,
            state: words(memory, &[0; 4]),
            task: 0,
            registers: 0,
            files: BTreeMap::new(),
            rows: vec![0],
            copy: memory.add(vec![0; copy::BYTES as usize + 64], RegionKind::Memory),
            records: Vec::new(),
        };
        let superblock = words(memory, &[0xffff_0000_0000_0007]);
        let name = memory.add(b"name\0".to_vec(), RegionKind::Memory);
        let root = words(memory, &[0, name]);
        let at_root = root.to_le_bytes();
        memory.write(root, &at_root).expect("the root");
        let first = first_rows(&world.files);
        let mut files = Vec::new();
        for (n, table) in world.files.iter().enumerate() {
            let inode = words(memory, &[1000 + n as u64, superblock]);
            let entry = words(memory, &[root, name]);
            files.push(words(memory, &[inode, entry]));
            let value = match table {
                Table::New => continue,
                Table::Loading => [100 + n as u64, 0, 0],
                Table::None => [100 + n as u64, 1 << 32, 0],
                Table::Rows(rows) => {
                    for row in rows {
                        kernel.rows.push(words(memory, &[row_word(*row)]));
                    }
                    [100 + n as u64, first[n], rows.len() as u64]
                }
            };
            let key = [7u64, 1000 + n as u64].map(u64::to_le_bytes).concat();
            kernel.files.insert(key, words(memory, &value));
        }
        let mut entries = Vec::new();
        for (n, mapping) in world.mappings.iter().enumerate() {
            let (from, to) = world.range(n);
            if mapping.gap != 0 || n == 0 {
                entries.push((from - 1, 0));
            }
            let file = mapping.file.map_or(0, |f| files[f]);
            let flags = if mapping.executable { 5 } else { 1 };
            entries.push((
                to - 1,
                words(memory, &[from, to, mapping.pgoff, file, flags]),
            ));
        }
        entries.push((u64::MAX, 0));
        let top = tree(memory, world.slots, &entries);
        let vdso = world.vdso.map_or(0, |n| world.range(n).0);
        let mm = words(memory, &[0, top, vdso]);
        let mut returns = 0;
        for (place, original) in world.returns.iter().rev() {
            returns = words(memory, &[*place, *original, returns]);
        }
        let utask = words(memory, &[returns]);
        kernel.task = words(memory, &[mm, 0xdead_0000_0000 | 77, utask]);
        let selector = if world.compat { 0x23 } else { 0x33 };
        let registers = [world.ip, world.sp, world.bp, selector];
        kernel.registers = words(memory, &registers);
        kernel
    }
}

impl Host for Kernel<'_> {
    fn helper(&mut self, memory: &mut Memory, helper: Helper, args: &[u64]) -> Result<u64, Fault> {
        let fault = (-14i64).cast_unsigned();
        Ok(match (helper, args) {
            (Helper::Task | Helper::TaskAddress, []) => self.task,
            (Helper::Registers, [task]) if *task == self.task => self.registers,
            (Helper::Cpu, []) => 0,
            (Helper::TimeNs, []) => 9,
            (Helper::Waiting, [_, 0]) => 0,
            (Helper::Read, [to, size, from]) => {
                let bytes = memory.read(*from, *size as usize).map(<[u8]>::to_vec);
                let ok = bytes.is_ok();
                memory.write(*to, &bytes.unwrap_or_else(|_| vec![0; *size as usize]))?;
                if ok { 0 } else { fault }
            }
            (Helper::ReadText, [to, size, from]) if *size == FILE_NAME as u64 => {
                let bytes = memory.read(*from, 5)?.to_vec();
                memory.write(*to, &bytes)?;
                5
            }
            (Helper::ReadUser, [to, size, from]) => {
                let byte = |i| self.world.byte(from.wrapping_add(i));
                let bytes: Option<Vec<u8>> = (0..*size).map(byte).collect();
                let ok = bytes.is_some();
                memory.write(*to, &bytes.unwrap_or_else(|| vec![0; *size as usize]))?;
                if ok { 0 } else { fault }
            }
            (Helper::MapLookup, [map, key]) if *map == TASK + 1 => {
                let key = memory.read(*key, 16)?;
                self.files.get(key).copied().unwrap_or(0)
            }
            (Helper::MapLookup, [map, key]) if *map == TASK + 2 => {
                let key = memory.read(*key, 4)?;
                let n = u32::from_le_bytes(key.try_into().unwrap_or_default());
                self.rows.get(n as usize).copied().unwrap_or(0)
            }
            (Helper::MapLookup, _) => self.copy,
            (Helper::MapUpdate, [_, key, value, 1]) => {
                let key = memory.read(*key, 16)?.to_vec();
                let value = memory.read(*value, 24)?.to_vec();
                if self.files.contains_key(&key) {
                    return Ok((-17i64).cast_unsigned());
                }
                self.files
                    .insert(key, memory.add(value, RegionKind::Memory));
                0
            }
            (Helper::Output, [_, record, size, 2]) => {
                self.records
                    .push(memory.read(*record, *size as usize)?.to_vec());
                0
            }
            other => return Err(Fault::Helper(format!("{other:?}"))),
        })
    }

    fn place(&mut self, of: &MemoryPlace) -> Option<u64> {
        Some(match of {
            MemoryPlace::Cpu(off) => self.block + u64::from(*off),
            MemoryPlace::State(off) => self.state + u64::from(*off),
            MemoryPlace::Map(name) => match &**name {
                "files" => TASK + 1,
                "rows" => TASK + 2,
                "copies" => TASK + 3,
                _ => TASK + 4,
            },
            _ => return None,
        })
    }
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let rule = prop_oneof![
        1 => Just(kind::NONE), 8 => Just(kind::RSP), 4 => Just(kind::RBP), 1 => Just(kind::AT_RSP),
        1 => Just(kind::AT_RBP), 2 => Just(kind::PLT), 1 => Just(kind::END), 1 => Just(kind::SIGNAL),
    ];
    let distance = prop_oneof![9 => 1..12i16, 1 => -2..20i16];
    vec((0..0x8000u32, rule, distance, 0..5u8), 1..30).prop_map(|mut rows| {
        rows.sort_by_key(|r| r.0);
        rows.dedup_by_key(|r| r.0);
        rows
    })
}

fn table() -> impl Strategy<Value = Table> {
    prop_oneof![
        1 => Just(Table::New), 1 => Just(Table::Loading), 1 => Just(Table::None),
        8 => rows().prop_map(Table::Rows),
    ]
}

fn mapping() -> impl Strategy<Value = Mapping> {
    let gap = prop_oneof![Just(0u64), 1..9u64];
    let file = prop_oneof![9 => (0..3usize).prop_map(Some), 1 => Just(None)];
    (gap, 0..4u64, any::<bool>(), file).prop_map(|(gap, pgoff, executable, file)| Mapping {
        gap,
        pgoff,
        executable,
        file,
    })
}

fn world() -> impl Strategy<Value = World> {
    let mappings = vec(mapping(), 1..40);
    let files = [table(), table(), table()];
    // A word of the stack: an address of code, one of the stack, or anything.
    let word = (0..3u8, any::<u32>());
    let slots = prop_oneof![Just(3usize), Just(10), Just(16)];
    let some = (any::<u32>(), 0..400u64, any::<bool>(), 0..5u64);
    let more = (
        prop_oneof![9 => Just(false), 1 => Just(true)],
        vec((0..500u64, any::<u32>()), 0..4),
        any::<bool>(),
        prop_oneof![3 => Just(-1i64), 1 => 0..10i64],
    );
    (mappings, files, vec(word, 600), slots, some, more).prop_map(
        |(mappings, files, kinds, slots, (ip, sp, bp, code), (compat, returns, copies, most))| {
            let vdso = mappings.iter().position(|m| m.file.is_none());
            let mut world = World {
                vdso,
                mappings,
                files: files.into(),
                slots,
                stack: Vec::new(),
                code,
                ip: 0,
                sp: STACK + 8 * sp,
                bp: STACK + 8 * (sp + 20) + u64::from(bp) * 4,
                compat,
                returns: Vec::new(),
                copies,
                most,
            };
            let code = |n: u32| {
                let (from, _) = world.range(n as usize % world.mappings.len());
                from + u64::from(n >> 8) % (4 * PAGE)
            };
            let word = |(i, (kind, n)): (usize, &(u8, u32))| match kind {
                0 => STACK + 8 * (i as u64 + u64::from(n % 40)),
                1 if n % 11 == 0 => u64::from(*n),
                _ => code(*n),
            };
            let stack: Vec<u64> = kinds.iter().enumerate().map(word).collect();
            let ip = code(ip);
            let mut places: Vec<(u64, u64)> = returns
                .iter()
                .map(|(at, n)| (STACK + 8 * at, code(*n)))
                .collect();
            places.sort_unstable();
            places.dedup_by_key(|p| p.0);
            (world.stack, world.ip, world.returns) = (stack, ip, places);
            world
        },
    )
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let word = bytes[at..at + 8].try_into();
    u64::from_le_bytes(word.unwrap_or_default())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn walks_agree_with_rust(world in world(), given in any::<bool>()) {
        let mut reference = Reference::new(&world);
        if world.compat {
            reference.registers[1] = u64::MAX;
        }
        let most = if given { GIVEN.into() } else { world.most };
        reference.run(usize::try_from(most).map_or(MOST as usize, |m| m.min(MOST as usize)));
        for module in &*MODULES {
            let mut machine = Machine::new(module, 10_000_000);
            let mut kernel = Kernel::new(&mut machine.memory, &world);
            let mut set = |field: u32, n: u64| {
                let to = kernel.block + BASE as u64 + u64::from(field);
                machine.memory.write(to, &n.to_le_bytes()).expect("a word");
            };
            set(at::COPY, world.copies.into());
            if given {
                for (field, n) in [(at::IP, world.ip), (at::SP, world.sp), (at::BP, world.bp)] {
                    set(field, n);
                }
                machine.memory.write(kernel.registers, &[0xee; 24]).expect("registers");
            }
            let result = machine.run("user_walk", &[most.cast_unsigned()], &mut kernel);
            prop_assert_eq!(result, Ok(0));
            let block = machine.memory.region(kernel.block).expect("the block");
            let frames = number(block, COUNT as usize) as usize / 8;
            let copied = reference.frames.last().is_some_and(|f| f.1 == u64::from(COPIED));
            prop_assert_eq!(frames + usize::from(copied), reference.frames.len());
            for (n, (ip, file, offset)) in reference.frames.iter().enumerate() {
                let field = |field: u32| number(block, BASE + field as usize + 8 * n);
                let found = (number(block, FRAMES + 8 * n), field(at::FILES));
                prop_assert_eq!(found, (*ip, *file), "frame {}", n);
                if *file != u64::from(COPIED) {
                    prop_assert_eq!(field(at::offsets(MOST)), *offset, "frame {}", n);
                }
            }
            prop_assert_eq!(number(block, GUESSED as usize), reference.guessed);
            prop_assert_eq!(number(block, CUT as usize), reference.cut);
            check_records(&world, &kernel, &reference)?;
        }
    }

    #[test]
    fn addresses_agree_with_rust(world in world(), address in 0..400 * PAGE) {
        let address = CODE + address;
        let mut reference = Reference::new(&world);
        reference.map(address);
        let mut behind = 0;
        if reference.now.file == 0 && reference.now.start != 0 {
            let start = reference.now.start;
            reference.map(start - 1);
            behind = BEHIND;
        }
        for module in &*MODULES {
            let mut machine = Machine::new(module, 1_000_000);
            let mut kernel = Kernel::new(&mut machine.memory, &world);
            prop_assert_eq!(machine.run("user_address", &[address], &mut kernel), Ok(0));
            let block = machine.memory.region(kernel.block).expect("the block");
            let field = |field: u32| number(block, BASE + (field + 8 * MOST) as usize);
            prop_assert_eq!(field(at::FILES), reference.now.file);
            if reference.now.file != 0 {
                let offset = reference.now.off.wrapping_add(address) | behind;
                prop_assert_eq!(field(at::offsets(MOST)), offset);
            }
            prop_assert_eq!(number(block, FRAMES + 8 * MOST as usize), address);
            prop_assert_eq!(number(block, BASE + at::TGID as usize), 77);
        }
    }
}

/// New files are announced once, and copies have the executable mappings of files.
fn check_records(
    world: &World,
    kernel: &Kernel<'_>,
    reference: &Reference<'_>,
) -> Result<(), TestCaseError> {
    let (files, copies): (Vec<_>, Vec<_>) = kernel.records.iter().partition(|r| number(r, 8) == 5);
    let copied = reference
        .frames
        .last()
        .is_some_and(|f| f.1 == u64::from(COPIED));
    prop_assert_eq!(copies.len(), usize::from(copied));
    let mut announced: Vec<u64> = files.iter().map(|r| number(r, 16)).collect();
    announced.sort_unstable();
    prop_assert_eq!(&announced, &(1..=files.len() as u64).collect::<Vec<_>>());
    if !copied {
        prop_assert_eq!(files.len() as u64, reference.next - 1);
    }
    for record in &files {
        prop_assert_eq!(&record[16 + 48..][..5], b"name\0");
        prop_assert_eq!(number(record, 24), 77);
    }
    let mappings = world.mappings.iter().enumerate();
    let file = |n: usize, m: &Mapping| m.file.is_some() || world.vdso == Some(n);
    let code = mappings
        .filter(|(n, m)| m.executable && file(*n, m))
        .count();
    for record in copies {
        let from = copy::HEAD as usize - 8;
        prop_assert_eq!(number(record, from) as usize, code.min(copy::MAPPINGS));
    }
    Ok(())
}
