//! Random processes, and the unwind in Rust.

use std::collections::HashMap;
use std::rc::Rc;

use spile_lir::interp::Memory;
use spile_lir::library::mappings::MappingOffsets;
use spile_lir::library::unwind::row::kind;
use spile_lir::library::unwind::{
    COPIED, EXACT, UnwindLayout, UnwindOffsets, VDSO, buffer, copy, module,
};

use super::super::forms::{Forms, forms};
use super::super::kernel::words;

pub(super) const MOST: u32 = 8;
pub(super) const FRAMES: usize = 48;
pub(super) const BASE: usize = FRAMES + 8 * (MOST as usize + 1);
pub(super) const SEARCH: usize = BASE + buffer(MOST) as usize;
/// Counters.
pub(super) const GUESSED: u32 = 0;
pub(super) const CUT: u32 = 8;
pub(super) const COUNT: u32 = 16;
pub(super) const FIRST: u32 = 24;
pub(super) const LOST: u32 = 32;
pub(super) const NO_MEMORY: u32 = 40;
/// The processor.
pub(super) const CPU: u64 = 3;
/// Bytes in the ring above which no copy is made.
pub(super) const WAITING: u64 = 512 << 10;
pub(super) const PAGE: u64 = 4096;
pub(super) const STACK: u64 = 0x7ffe_0000_0000;
pub(super) const CODE: u64 = 0x5555_0000_0000;
/// The task, behind which the maps have their addresses.
pub(super) const TASK: u64 = 0xffff_8880_0000_0000;

pub(super) const OFFSETS: UnwindOffsets = UnwindOffsets {
    mapping: MappingOffsets {
        task_mm: 8,
        mm_root: 8,
        vma_start: 8,
        vma_end: 16,
    },
    task_tgid: 16,
    mm_vdso: 16,
    vma_pgoff: 24,
    vma_file: 32,
    vma_flags: 40,
    file_inode: 8,
    file_dentry: 16,
    inode_ino: 8,
    inode_sb: 16,
    sb_dev: 8,
    dentry_parent: 8,
    dentry_name: 16,
    returns: Some([24, 8, 8, 16, 24]),
};

/// A structure, whose first word is none of its fields.
pub(super) fn structure(memory: &mut Memory, fields: &[u64]) -> u64 {
    words(memory, &[&[0xbad_bad_bad], fields].concat())
}

pub(super) fn layout() -> UnwindLayout {
    UnwindLayout {
        abi: &spile_abi::X86_64,
        base: BASE as u32,
        search: SEARCH as u32,
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
        lost_output: LOST,
        no_memory: NO_MEMORY,
    }
}

pub(super) fn functions() -> Rc<Forms> {
    forms("unwind", || module(&layout()))
}

/// A row: first offset, rule, distance in words, words to the saved rbp.
pub(super) type Row = (u32, u8, i16, u8);

/// A mapping of a file, of four pages.
#[derive(Debug, Clone)]
pub(super) struct Mapping {
    /// Pages of the gap in front of it.
    pub(super) gap: u64,
    pub(super) pgoff: u64,
    pub(super) executable: bool,
    /// The file: none for anonymous memory.
    pub(super) file: Option<usize>,
}

/// How a file stands in the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Table {
    /// Not known yet.
    New,
    /// Known, without rows so far.
    Loading,
    /// It has no rows and gets none.
    None,
    Rows(Vec<Row>),
}

#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) mappings: Vec<Mapping>,
    pub(super) files: Vec<Table>,
    /// The mapping that is the vDSO, if it is anonymous.
    pub(super) vdso: Option<usize>,
    /// Slots of a node of the tree: the tree is deeper if they are few.
    pub(super) slots: usize,
    pub(super) stack: Vec<u64>,
    /// The bytes at each address of code.
    pub(super) code: u64,
    pub(super) ip: u64,
    pub(super) sp: u64,
    pub(super) bp: u64,
    pub(super) compat: bool,
    /// Locations of replaced return addresses, in order, with the original ones.
    pub(super) returns: Vec<(u64, u64)>,
    /// Whether the controller may complete the stack.
    pub(super) copies: bool,
    pub(super) most: i64,
    /// Components of the files' paths.
    pub(super) depth: usize,
    /// Whether the ring has no space, and what waits in it.
    pub(super) full: bool,
    pub(super) waiting: u64,
    /// Whether the processor has a buffer for copies.
    pub(super) buffer: bool,
    pub(super) update: Update,
    /// Whether the vDSO has the rows of the first file.
    pub(super) vdso_rows: bool,
    /// Whether the map of rows has none.
    pub(super) no_rows: bool,
}

/// What happens when a new file comes into the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Update {
    Done,
    /// The map is full.
    Full,
    /// Another processor was faster.
    Raced,
}

impl World {
    /// The name of a component of a file's path, the last one first.
    pub(super) fn name(file: usize, component: usize) -> String {
        format!("{component}of{file}")
    }

    /// Pages of the stack that can be read from a stack pointer's page on.
    pub(super) fn pages(&self, sp: u64) -> usize {
        let from = sp & PAGE.wrapping_neg();
        let readable = |page: u64| {
            (0..PAGE / 8).all(|n| self.word(from.wrapping_add(page * PAGE + 8 * n)).is_some())
        };
        (0..copy::PAGES as u64)
            .take_while(|page| readable(*page))
            .count()
    }

    /// The addresses of a mapping.
    pub(super) fn range(&self, n: usize) -> (u64, u64) {
        let pages: u64 = self.mappings[..n].iter().map(|m| m.gap + 4).sum();
        let from = CODE + (pages + self.mappings[n].gap) * PAGE;
        (from, from + 4 * PAGE)
    }

    /// A program's word, if it can be read.
    pub(super) fn word(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = self.byte(at.wrapping_add(i as u64))?;
        }
        Some(u64::from_le_bytes(bytes))
    }

    pub(super) fn byte(&self, at: u64) -> Option<u8> {
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
pub(super) struct Found {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) off: u64,
    pub(super) file: u64,
    pub(super) first: u64,
    pub(super) rows: u64,
}

/// The reference: the same unwind in Rust.
pub(super) struct Reference<'a> {
    pub(super) world: &'a World,
    pub(super) numbers: HashMap<usize, u64>,
    pub(super) next: u64,
    pub(super) now: Found,
    pub(super) frames: Vec<(u64, u64, u64)>,
    pub(super) registers: [u64; 3],
    pub(super) exact: bool,
    pub(super) copies: bool,
    pub(super) guessed: u64,
    pub(super) cut: u64,
    /// Files for which the map has no space.
    pub(super) unknown: u64,
    pub(super) returned: usize,
    /// For a copy: what is looked up, and the registers.
    pub(super) copied: [u64; 4],
}

/// The start of each file's rows in the map.
pub(super) fn first_rows(files: &[Table]) -> Vec<u64> {
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
pub(super) fn known(world: &World) -> HashMap<usize, u64> {
    let files = world.files.iter().enumerate();
    let known = files.filter(|(_, t)| **t != Table::New);
    known.map(|(n, _)| (n, 100 + n as u64)).collect()
}

impl<'a> Reference<'a> {
    pub(super) fn new(world: &'a World) -> Reference<'a> {
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
            unknown: 0,
            returned: 0,
            copied: [0; 4],
            world,
        }
    }

    pub(super) fn can_copy(&self) -> bool {
        !self.world.full && self.reaches_output()
    }

    /// Whether a copy is made, which a full ring buffer refuses.
    fn reaches_output(&self) -> bool {
        self.world.waiting <= WAITING && self.world.buffer
    }

    /// Announces the files that a copy lists.
    fn map_code(&mut self) {
        let mut listed = 0;
        for n in 0..self.world.mappings.len() {
            self.map(self.world.range(n).0);
            if self.world.mappings[n].executable && self.now.file != 0 {
                if listed == copy::MAPPINGS {
                    return;
                }
                listed += 1;
            }
        }
    }

    pub(super) fn map(&mut self, address: u64) {
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
                if let (true, Table::Rows(rows)) = (world.vdso_rows, &world.files[0]) {
                    self.now.first = first_rows(&world.files)[0];
                    self.now.rows = rows.len() as u64;
                }
                self.now.off = self.now.start.wrapping_neg();
            }
            return;
        };
        if !self.numbers.contains_key(&file) {
            let number = match world.update {
                Update::Done => self.next,
                Update::Raced => 700 + file as u64,
                Update::Full => 0,
            };
            self.next += 1;
            if world.update == Update::Full {
                self.unknown += 1;
                return;
            }
            self.numbers.insert(file, number);
        }
        self.now.file = self.numbers[&file];
        match &world.files[file] {
            Table::Rows(rows) => {
                self.now.first = first_rows(&world.files)[file];
                self.now.rows = rows.len() as u64;
            }
            Table::None => self.now.first = 1 << 32,
            Table::New | Table::Loading => {}
        }
    }

    /// Whether the unwind goes on; none if it wants a copy.
    pub(super) fn step(&mut self, address: u64, innermost: bool) -> Option<bool> {
        let world = self.world;
        if self.now.rows != 0 {
            let key = address.wrapping_add(self.now.off);
            let mut numbers = self.numbers.iter();
            let file = match self.now.file == u64::from(VDSO) {
                true => 0,
                false => *numbers.find(|(_, n)| **n == self.now.file)?.0,
            };
            let Table::Rows(rows) = &world.files[file] else {
                return Some(false);
            };
            let rows: &[Row] = if world.no_rows { &[] } else { rows };
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

    pub(super) fn follow(&mut self, (_, rule, distance, saved): Row) -> Option<()> {
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
            kind::FRAME => bp.wrapping_add_signed(bytes),
            kind::AT_FRAME => word(bp.wrapping_add_signed(bytes))?,
            kind::AT_STACK => word(sp.wrapping_add_signed(bytes))?,
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

    pub(super) fn frame_pointers(&mut self, innermost: bool) -> Option<()> {
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

    pub(super) fn run(&mut self, most: usize) {
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
                None if n + 1 < MOST as usize && self.can_copy() => {
                    let [ip, sp, bp] = self.registers;
                    self.copied = [ip, address, sp, bp];
                    self.frames.push((0, COPIED.into(), 0));
                    return;
                }
                None => {
                    if n + 1 < MOST as usize && self.reaches_output() {
                        self.map_code();
                    }
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
            let location = self.registers[1].wrapping_sub(8);
            let returns = self.world.returns.iter().enumerate().skip(self.returned);
            if let Some((i, (_, original))) = returns.clone().find(|(_, r)| r.0 == location) {
                self.returned = i;
                self.registers[0] = *original;
            }
        }
    }
}
