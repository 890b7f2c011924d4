//! The index of a module's DWARF: names, code of functions, and inlined instances. One pass over
//! all units ([`scan`]), kept in a file by build-id.
//!
//! The names are those of all functions, and of types and variables of file and class scope. Strings are named
//! by their location in the DWARF, so the index is small, and a mapped file is as good as one just
//! made. Layout, all little-endian words of 32 bits: header [`MAGIC`], [`VERSION`], length of
//! `.debug_info`, a checksum of the file's head, the numbers of what follows; entries of [`ENTRY`]
//! words (hash, name, unit, offset, scope, kind | section of the name << 8 | part << 16) in order
//! of hash; scopes of [`SCOPE`] words (name, section of the name | part << 16, outer scope, unit of the name); code of
//! functions of [`CODE`] words (start and end, each low half first, unit, offset) in order of start;
//! inlined instances of [`INLINED`] words (unit of the abstract entry | its part << 31, its offset,
//! unit, offset) in order.

mod scan;

use std::io::{self, Write};
use std::path::Path;

use gimli::Section as _;
use spile_cast::Cast;

use crate::caches::{Index, first_index};
use crate::dwarf::{Dwarf, DwarfPart};
use crate::map::{Blob, MappedFile, write_whole};
use crate::split::SplitFiles;
use crate::unit::{Die, R};

const MAGIC: u32 = 0x5844_4953;
const VERSION: u32 = 7;
const HEADER: usize = 8;
const ENTRY: usize = 6;
const SCOPE: usize = 4;
const CODE: usize = 6;
const INLINED: usize = 4;
/// Number of words of a row of each table.
const WIDTHS: [usize; 4] = [ENTRY, SCOPE, CODE, INLINED];
/// The tables.
const ENTRIES: usize = 0;
const SCOPES: usize = 1;
const FUNCTIONS: usize = 2;
const INSTANCES: usize = 3;
/// Flag in the unit number of an abstract entry: it is in the other part.
const PART: u32 = 1 << 31;
/// Maximum number of function ranges examined below an address. Ranges that begin between the
/// address and the start of its function belong only to nested functions.
const MAX_NESTED: usize = 64;
const NONE: u32 = u32::MAX;
/// Size of `.debug_info` from which on a cache file pays.
const CACHE_FROM: usize = 1 << 20;
/// The name of an anonymous namespace.
pub(crate) const ANONYMOUS: &str = "(anonymous namespace)";
/// Maximum nesting of scopes whose names are told.
const MAX_DEPTH: usize = 32;

/// The kind of a named entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum NameKind {
    /// An out-of-line function.
    Function,
    /// A function that is inlined somewhere.
    Inline,
    Variable,
    Struct,
    Union,
    Enum,
    Typedef,
    Base,
}

impl NameKind {
    /// The kind of types with a tag; `None` for types that have no name of their own.
    pub(crate) fn of_type(tag: gimli::DwTag) -> Option<NameKind> {
        Some(match tag {
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type => NameKind::Struct,
            gimli::DW_TAG_union_type => NameKind::Union,
            gimli::DW_TAG_enumeration_type => NameKind::Enum,
            gimli::DW_TAG_typedef => NameKind::Typedef,
            gimli::DW_TAG_base_type => NameKind::Base,
            _ => return None,
        })
    }
}

const KINDS: [NameKind; 8] = [
    NameKind::Function,
    NameKind::Inline,
    NameKind::Variable,
    NameKind::Struct,
    NameKind::Union,
    NameKind::Enum,
    NameKind::Typedef,
    NameKind::Base,
];

/// The findings of the pass, in the order of the tables.
#[derive(Default)]
struct ScanTables {
    entries: Vec<RawEntry>,
    scopes: Vec<RawScope>,
    /// Start, end, unit, offset of the entry.
    code: Vec<(u64, u64, u32, u32)>,
    /// Words as in the file.
    inlined: Vec<[u32; INLINED]>,
}

impl ScanTables {
    fn put(&self, stamp: [u32; 4], out: &mut dyn Write) -> io::Result<()> {
        let mut put = |words: &[u32]| {
            let mut words = words.iter();
            words.try_for_each(|w| out.write_all(&w.to_le_bytes()))
        };
        put(&stamp)?;
        put(&[
            self.entries.len(),
            self.scopes.len(),
            self.code.len(),
            self.inlined.len(),
        ]
        .map(|n| n.fit::<u32>()))?;
        for e in &self.entries {
            let meta = e.kind as u32 | e.name.section << 8 | u32::from(e.part) << 16;
            put(&[e.hash, e.name.offset, e.unit, e.offset, e.scope, meta])?;
        }
        for s in &self.scopes {
            let section = s.name.section | u32::from(s.part) << 16;
            put(&[s.name.offset, section, s.outer, s.unit])?;
        }
        for &(start, end, unit, offset) in &self.code {
            let halves = |n: u64| [n.low32(), (n >> 32) as u32];
            put(&halves(start))?;
            put(&halves(end))?;
            put(&[unit, offset])?;
        }
        self.inlined.iter().try_for_each(|i| put(i))
    }
}

/// A name found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamedEntry {
    pub die: Die,
    pub kind: NameKind,
    pub name: &'static str,
    scope: u32,
}

/// The location of a string: section (0 `.debug_str`, 1 `.debug_line_str`, 2 `.debug_info`, 3
/// `.debug_str` of the other part) and offset.
#[derive(Clone, Copy, PartialEq, Eq)]
struct StringRef {
    section: u32,
    offset: u32,
}

#[derive(Clone, Copy)]
struct RawEntry {
    hash: u32,
    name: StringRef,
    unit: u32,
    offset: u32,
    scope: u32,
    kind: NameKind,
    part: u8,
}

#[derive(Clone, Copy)]
struct RawScope {
    name: StringRef,
    outer: u32,
    part: u8,
    unit: u32,
}

impl Index {
    /// The cached index of a file.
    pub(crate) fn cached(dwarf: &Dwarf) -> Option<Index> {
        let (stamp, path) = cache_stamp(dwarf);
        Index::read(Blob::Map(MappedFile::open(path?).ok()?), stamp)
    }

    /// Makes an index, and caches it where that pays.
    pub(crate) fn build(dwarf: &Dwarf) -> Index {
        let (stamp, path) = cache_stamp(dwarf);
        let tables = scan::scan(dwarf);
        if let Some(path) = path
            // A file that cannot be written only costs time at the next start.
            && write(path, |out| tables.put(stamp, out)).is_ok()
            && let Some(index) = Index::cached(dwarf)
        {
            return index;
        }
        let mut bytes = Vec::new();
        // Writing to memory does not fail.
        let _ = tables.put(stamp, &mut bytes);
        Index::read(Blob::Heap(bytes), stamp).unwrap_or(Index {
            blob: Blob::Heap(Vec::new()),
            rows: [0; 4],
        })
    }

    fn read(blob: Blob, stamp: [u32; 4]) -> Option<Index> {
        let rows = [0; 4];
        let mut index = Index { blob, rows };
        if !(0..4).all(|i| index.word(i) == stamp[i]) {
            return None;
        }
        index.rows = [4, 5, 6, 7].map(|i| index.word(i) as usize);
        if index.blob.bytes().len() != index.start(WIDTHS.len()) * 4 {
            return None;
        }
        Some(index)
    }

    /// The first word of a table; of one past the last the end.
    fn start(&self, table: usize) -> usize {
        let before = self.rows.iter().zip(WIDTHS).take(table);
        before.fold(HEADER, |sum, (rows, width)| sum + rows * width)
    }

    /// The first word of a row.
    fn position(&self, table: usize, row: usize) -> usize {
        self.start(table) + row * WIDTHS[table]
    }

    fn word(&self, n: usize) -> u32 {
        let bytes = self.blob.bytes().get(n * 4..n * 4 + 4);
        bytes
            .and_then(|b| b.try_into().ok())
            .map_or(0, u32::from_le_bytes)
    }

    fn entry(&self, dwarf: &Dwarf, i: usize) -> Option<NamedEntry> {
        let first = self.position(ENTRIES, i);
        let meta = self.word(first + 5);
        let part = (meta >> 16).low8();
        let section = meta >> 8 & 0xff;
        let unit = self.word(first + 2);
        let name = StringRef {
            section,
            offset: self.word(first + 1),
        };
        Some(NamedEntry {
            die: Die {
                part,
                ..Die::of_file(unit, self.word(first + 3) as usize)
            },
            kind: *KINDS.get((meta & 0xff) as usize)?,
            name: string(dwarf, (part, unit), name)?,
            scope: self.word(first + 4),
        })
    }

    /// All entries with exactly that name.
    pub(crate) fn named<'a>(
        &'a self,
        dwarf: &'a Dwarf,
        name: &'a str,
    ) -> impl Iterator<Item = NamedEntry> + 'a {
        let wanted = hash(name.as_bytes());
        let hash_of = |i: usize| self.word(self.position(ENTRIES, i));
        let low = first_index(self.rows[ENTRIES], |i| hash_of(i) >= wanted);
        (low..self.rows[ENTRIES])
            .take_while(move |&i| hash_of(i) == wanted)
            .filter_map(move |i| self.entry(dwarf, i))
            .filter(move |f| f.name == name)
    }

    /// All entries of a kind that satisfy the filter.
    pub(crate) fn all<'a>(
        &'a self,
        dwarf: &'a Dwarf,
        kinds: &'a [NameKind],
    ) -> impl Iterator<Item = NamedEntry> + 'a {
        (0..self.rows[ENTRIES])
            .filter(move |i| {
                let meta = self.word(self.position(ENTRIES, *i) + 5);
                let kind = KINDS.get((meta & 0xff) as usize);
                kind.is_some_and(|k| kinds.contains(k))
            })
            .filter_map(move |i| self.entry(dwarf, i))
    }

    /// The names of the scopes around, innermost first.
    pub(crate) fn scopes(&self, dwarf: &Dwarf, named: &NamedEntry) -> Vec<&'static str> {
        let mut names = Vec::new();
        let mut scope = named.scope as usize;
        while scope < self.rows[SCOPES] && names.len() < MAX_DEPTH {
            let word = self.position(SCOPES, scope);
            let meta = self.word(word + 1);
            let name = StringRef {
                section: meta & 0xffff,
                offset: self.word(word),
            };
            let unnamed = name.section == u32::from(u8::MAX);
            let unit = ((meta >> 16).low8(), self.word(word + 3));
            let text = (!unnamed).then(|| string(dwarf, unit, name));
            names.push(text.flatten().unwrap_or(ANONYMOUS));
            scope = self.word(word + 2) as usize;
        }
        names
    }
}

impl Index {
    /// The function whose code contains an address; of several the one that begins last.
    pub(crate) fn function_at(&self, address: u64) -> Option<Die> {
        let row = |i: usize| self.position(FUNCTIONS, i);
        let wide = |w: usize| u64::from(self.word(w)) | u64::from(self.word(w + 1)) << 32;
        let after = first_index(self.rows[FUNCTIONS], |i| wide(row(i)) > address);
        let below = (0..after).rev().take(MAX_NESTED);
        let i = below.into_iter().find(|&i| address < wide(row(i) + 2))?;
        Some(Die::of_file(
            self.word(row(i) + 4),
            self.word(row(i) + 5) as usize,
        ))
    }

    /// The inlined instances of an abstract entry, in order.
    pub(crate) fn instances(&self, origin: Die) -> impl Iterator<Item = Die> {
        let row = move |i: usize| self.position(INSTANCES, i);
        let wanted = (
            origin.unit | if origin.part == 0 { 0 } else { PART },
            u32::try_from(origin.offset).unwrap_or(NONE),
        );
        let key = move |i: usize| (self.word(row(i)), self.word(row(i) + 1));
        let start = first_index(self.rows[INSTANCES], |i| key(i) >= wanted);
        (start..self.rows[INSTANCES])
            .take_while(move |&i| key(i) == wanted)
            .map(move |i| Die::of_file(self.word(row(i) + 2), self.word(row(i) + 3) as usize))
    }
}

/// The words that a valid cached index begins with, and its path.
fn cache_stamp(dwarf: &Dwarf) -> ([u32; 4], Option<&Path>) {
    let parts = dwarf.parts().iter();
    let split = |p: &DwarfPart| p.split.as_ref().map_or(0, SplitFiles::size);
    let size: usize = parts
        .map(|p| p.dwarf.debug_info.reader().len() + split(p))
        .sum();
    let path = dwarf.index_path.as_deref().filter(|_| size >= CACHE_FROM);
    ([MAGIC, VERSION, size.low32(), head(dwarf)], path)
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |h, &b| {
        (h ^ u32::from(b)).wrapping_mul(0x0100_0193)
    })
}

/// A hash of the start of each part, which distinguishes files with equal build-ids, and of the
/// states of the files that units were split off to.
fn head(dwarf: &Dwarf) -> u32 {
    let heads = dwarf
        .parts()
        .iter()
        .flat_map(|p| {
            let split = p.split.as_ref().map(|s| hash(&s.stamp()));
            [Some(hash(p.image.bytes().get(..64).unwrap_or(&[]))), split]
        })
        .flatten();
    heads.fold(dwarf.headers(0).len().fit::<u32>(), |a, b| {
        a.rotate_left(7) ^ b
    })
}

fn write(path: &Path, put: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        crate::trust::own_folder(dir)?;
    }
    write_whole(path, put)
}

/// The section with a string.
fn section(dwarf: &Dwarf, (part, unit): (u8, u32), section: u32) -> Option<R> {
    let d = dwarf.forms(part, unit);
    Some(match section {
        0 => *d.debug_str.reader(),
        1 => *d.debug_line_str.reader(),
        2 => *d.debug_info.reader(),
        3 => *dwarf.parts().get(1)?.dwarf.debug_str.reader(),
        4 => *d.debug_types.reader(),
        _ => return None,
    })
}

fn string(dwarf: &Dwarf, unit: (u8, u32), name: StringRef) -> Option<&'static str> {
    let bytes = section(dwarf, unit, name.section)?.slice();
    let rest = bytes.get(name.offset as usize..)?;
    let end = rest.iter().position(|&b| b == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

/// The location of a string.
fn location(dwarf: &Dwarf, unit: (u8, u32), text: R) -> Option<StringRef> {
    let address = text.slice().as_ptr() as usize;
    (0..5).find_map(|s| {
        let bytes = section(dwarf, unit, s)?.slice();
        let offset = address.checked_sub(bytes.as_ptr() as usize)?;
        (offset < bytes.len()).then_some(StringRef {
            section: s,
            offset: u32::try_from(offset).ok()?,
        })
    })
}
