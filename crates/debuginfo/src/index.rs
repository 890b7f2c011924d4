//! Which names are where: one pass over all units, kept in a file by build-id.
//!
//! The index holds functions, types and variables of file and class scope. It names strings
//! by their place in the DWARF, so it is small, and a mapped file is as good as one just made.
//! Layout, all little-endian words of 32 bits: header [`MAGIC`], [`VERSION`], length of
//! `.debug_info`, a checksum of the file's head, number of entries, number of scopes; entries of [`ENTRY`] words
//! (hash, name, unit, offset, scope, kind | section of the name << 8 | part << 16) in order of
//! hash; scopes of [`SCOPE`] words (name, section of the name | part << 16, outer scope).

use std::collections::HashSet;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use gimli::{AttributeValue, DwAt, DwTag, Section as _, UnitOffset};

use crate::dwarf::{Die, Dwarf, MAX_CHAIN, R, Unit};
use crate::map::{Blob, Map};

const MAGIC: u32 = 0x5844_4953;
const VERSION: u32 = 2;
const HEADER: usize = 6;
const ENTRY: usize = 6;
const SCOPE: usize = 3;
const NONE: u32 = u32::MAX;
/// A cache file pays from this size of `.debug_info` on.
const CACHE_FROM: usize = 1 << 20;
/// Deepest nesting of namespaces and classes that is followed.
const MAX_DEPTH: usize = 32;

/// What a name names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A function with code of its own.
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

const KINDS: [Kind; 8] = [
    Kind::Function,
    Kind::Inline,
    Kind::Variable,
    Kind::Struct,
    Kind::Union,
    Kind::Enum,
    Kind::Typedef,
    Kind::Base,
];

/// The index of a module's DWARF.
pub(crate) struct Index {
    blob: Blob,
    entries: usize,
    scopes: usize,
}

/// A name found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub die: Die,
    pub kind: Kind,
    pub name: &'static str,
    scope: u32,
}

/// A string's place: section (0 `.debug_str`, 1 `.debug_line_str`, 2 `.debug_info`, 3
/// `.debug_str` of the other part) and offset.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Name {
    section: u32,
    offset: u32,
}

#[derive(Clone, Copy)]
struct Raw {
    hash: u32,
    name: Name,
    unit: u32,
    offset: u32,
    scope: u32,
    kind: Kind,
    part: u8,
}

#[derive(Clone, Copy)]
struct RawScope {
    name: Name,
    outer: u32,
    part: u8,
}

impl Index {
    /// Reads the cached index or makes one.
    pub(crate) fn of(dwarf: &Dwarf) -> Index {
        let size = dwarf
            .parts()
            .iter()
            .map(|p| p.dwarf.debug_info.reader().len())
            .sum::<usize>();
        let stamp = [MAGIC, VERSION, size as u32, head(dwarf)];
        let path = dwarf.index_path.as_deref().filter(|_| size >= CACHE_FROM);
        if let Some(index) = path.and_then(|p| read(p, stamp)) {
            return index;
        }
        let (entries, scopes) = scan(dwarf);
        let counts = (entries.len(), scopes.len());
        let words = HEADER + counts.0 * ENTRY + counts.1 * SCOPE;
        let mut bytes: Vec<u8> = Vec::with_capacity(words * 4);
        let mut put = |words: &[u32]| bytes.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        put(&stamp);
        put(&[counts.0 as u32, counts.1 as u32]);
        for e in entries {
            let meta = e.kind as u32 | e.name.section << 8 | u32::from(e.part) << 16;
            put(&[e.hash, e.name.offset, e.unit, e.offset, e.scope, meta]);
        }
        for s in scopes {
            let section = s.name.section | u32::from(s.part) << 16;
            put(&[s.name.offset, section, s.outer]);
        }
        if let Some(path) = path {
            // A cache that cannot be written costs time the next time, nothing else.
            let _ = write(path, &bytes);
            if let Some(index) = read(path, stamp) {
                return index;
            }
        }
        Index {
            blob: Blob::Heap(bytes),
            entries: counts.0,
            scopes: counts.1,
        }
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = self.blob.bytes().get(at * 4..at * 4 + 4);
        bytes
            .and_then(|b| b.try_into().ok())
            .map_or(0, u32::from_le_bytes)
    }

    fn entry(&self, dwarf: &Dwarf, i: usize) -> Option<Found> {
        let at = HEADER + i * ENTRY;
        let meta = self.word(at + 5);
        let part = (meta >> 16) as u8;
        let section = meta >> 8 & 0xff;
        Some(Found {
            die: Die {
                part,
                unit: self.word(at + 2),
                offset: self.word(at + 3) as usize,
            },
            kind: *KINDS.get((meta & 0xff) as usize)?,
            name: string(
                dwarf,
                part,
                Name {
                    section,
                    offset: self.word(at + 1),
                },
            )?,
            scope: self.word(at + 4),
        })
    }

    /// Everything of exactly that name.
    pub(crate) fn named<'a>(
        &'a self,
        dwarf: &'a Dwarf,
        name: &'a str,
    ) -> impl Iterator<Item = Found> + 'a {
        let wanted = hash(name.as_bytes());
        let (mut low, mut high) = (0, self.entries);
        while low < high {
            let middle = (low + high) / 2;
            if self.word(HEADER + middle * ENTRY) < wanted {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low..self.entries)
            .take_while(move |&i| self.word(HEADER + i * ENTRY) == wanted)
            .filter_map(move |i| self.entry(dwarf, i))
            .filter(move |f| f.name == name)
    }

    /// Everything of a kind that satisfies the filter.
    pub(crate) fn all<'a>(
        &'a self,
        dwarf: &'a Dwarf,
        kinds: &'a [Kind],
    ) -> impl Iterator<Item = Found> + 'a {
        (0..self.entries)
            .filter(move |i| {
                let kind = KINDS.get((self.word(HEADER + i * ENTRY + 5) & 0xff) as usize);
                kind.is_some_and(|k| kinds.contains(k))
            })
            .filter_map(move |i| self.entry(dwarf, i))
    }

    /// The names of the scopes around, innermost first.
    pub(crate) fn scopes(&self, dwarf: &Dwarf, found: &Found) -> Vec<&'static str> {
        let mut names = Vec::new();
        let mut at = found.scope;
        while (at as usize) < self.scopes && names.len() < MAX_DEPTH {
            let word = HEADER + self.entries * ENTRY + at as usize * SCOPE;
            let meta = self.word(word + 1);
            let name = Name {
                section: meta & 0xffff,
                offset: self.word(word),
            };
            names.push(string(dwarf, (meta >> 16) as u8, name).unwrap_or(""));
            at = self.word(word + 2);
        }
        names
    }
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |h, &b| {
        (h ^ u32::from(b)).wrapping_mul(0x0100_0193)
    })
}

/// Tells two files with equal build-ids apart: a hash of the heads of the parts.
fn head(dwarf: &Dwarf) -> u32 {
    let heads = dwarf
        .parts()
        .iter()
        .map(|p| hash(p.image.bytes().get(..64).unwrap_or(&[])));
    heads.fold(dwarf.headers(0).len() as u32, |a, b| a.rotate_left(7) ^ b)
}

fn read(path: &Path, stamp: [u32; 4]) -> Option<Index> {
    let blob = Blob::Map(Map::open(path).ok()?);
    let mut index = Index {
        blob,
        entries: 0,
        scopes: 0,
    };
    if !(0..4).all(|i| index.word(i) == stamp[i]) {
        return None;
    }
    let (entries, scopes) = (index.word(4) as usize, index.word(5) as usize);
    let words = HEADER + entries * ENTRY + scopes * SCOPE;
    if index.blob.bytes().len() != words * 4 {
        return None;
    }
    (index.entries, index.scopes) = (entries, scopes);
    Some(index)
}

fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let part = path.with_extension(format!("part{}", std::process::id()));
    let written = fs::write(&part, bytes).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

/// The sections that names lie in.
fn section(dwarf: &Dwarf, part: u8, section: u32) -> Option<R> {
    let d = &dwarf.part(part).dwarf;
    Some(match section {
        0 => *d.debug_str.reader(),
        1 => *d.debug_line_str.reader(),
        2 => *d.debug_info.reader(),
        3 => *dwarf.parts().get(1)?.dwarf.debug_str.reader(),
        4 => *d.debug_types.reader(),
        _ => return None,
    })
}

fn string(dwarf: &Dwarf, part: u8, name: Name) -> Option<&'static str> {
    let bytes = section(dwarf, part, name.section)?.slice();
    let rest = bytes.get(name.offset as usize..)?;
    let end = rest.iter().position(|&b| b == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

/// Where a string lies.
fn place(dwarf: &Dwarf, part: u8, text: R) -> Option<Name> {
    let at = text.slice().as_ptr() as usize;
    (0..5).find_map(|s| {
        let all = section(dwarf, part, s)?.slice();
        let offset = at.checked_sub(all.as_ptr() as usize)?;
        (offset < all.len()).then_some(Name {
            section: s,
            offset: u32::try_from(offset).ok()?,
        })
    })
}

/// One thread's findings.
#[derive(Default)]
struct Batch {
    entries: Vec<Raw>,
    scopes: Vec<RawScope>,
    /// A hash of the names from the outermost scope in, for each scope.
    paths: Vec<u64>,
    /// Types seen by hash of name and scope, so that each is kept once.
    types: HashSet<(Kind, u64)>,
}

/// Looks through all units on all processors.
fn scan(dwarf: &Dwarf) -> (Vec<Raw>, Vec<RawScope>) {
    let parts = 0..dwarf.parts().len() as u8;
    let chunks: Vec<(u8, Range<u32>)> = parts
        .flat_map(|part| {
            dwarf
                .chunks(part)
                .into_iter()
                .map(move |units| (part, units))
        })
        .collect();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get().min(8));
    let work = || {
        let mut batch = Batch::default();
        while let Some((part, units)) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
            for unit in units.clone() {
                scan_unit(dwarf, *part, unit, &mut batch);
            }
            dwarf.forget(*part, units);
        }
        batch
    };
    let batches: Vec<Batch> = if chunks.len() < 2 {
        vec![work()]
    } else {
        std::thread::scope(|s| {
            let threads: Vec<_> = (0..threads).map(|_| s.spawn(work)).collect();
            threads.into_iter().filter_map(|t| t.join().ok()).collect()
        })
    };
    let mut entries = Vec::new();
    let mut scopes = Vec::new();
    for batch in batches {
        let base = scopes.len() as u32;
        let moved = |s: u32| if s == NONE { NONE } else { s + base };
        entries.extend(batch.entries.into_iter().map(|e| Raw {
            scope: moved(e.scope),
            ..e
        }));
        scopes.extend(batch.scopes.into_iter().map(|s| RawScope {
            outer: moved(s.outer),
            ..s
        }));
    }
    entries.sort_unstable_by_key(|e| (e.hash, e.kind, e.part, e.unit, e.offset));
    (entries, scopes)
}

/// What the pass reads of an entry.
#[derive(Default)]
struct Seen {
    name: Option<R>,
    origin: Option<AttributeValue<R>>,
    sibling: Option<usize>,
    /// Has an address, of code or of what the linker dropped.
    placed: bool,
    has_code: bool,
    declaration: bool,
    inlined: bool,
    located: bool,
}

fn scan_unit(dwarf: &Dwarf, part: u8, unit: u32, batch: &mut Batch) {
    let Some(&header) = dwarf.headers(part).get(unit as usize) else {
        return;
    };
    // Not through the cache of units: all would pass through it.
    let Ok(parsed) = dwarf.part(part).dwarf.unit(header) else {
        return;
    };
    let mut pass = Pass {
        dwarf,
        part,
        unit,
        parsed: &parsed,
        batch,
        declared: Vec::new(),
        later: Vec::new(),
    };
    pass.walk();
    pass.complete();
}

struct Pass<'a> {
    dwarf: &'a Dwarf,
    part: u8,
    unit: u32,
    parsed: &'a Unit,
    batch: &'a mut Batch,
    /// Offsets of functions and variables that have a name, with it and their scope, in order.
    declared: Vec<(usize, R, u32)>,
    /// Definitions that take their name from another entry of the unit.
    later: Vec<(usize, AttributeValue<R>, Option<Kind>)>,
}

impl Pass<'_> {
    /// Goes through the entries of namespaces and classes, past bodies of functions.
    fn walk(&mut self) -> Option<()> {
        let parsed = self.parsed;
        let mut raw = parsed.entries_raw(None).ok()?;
        // Where the reader began to count depths.
        let mut base = 0;
        // The scope at each depth that is looked into.
        let mut scopes: Vec<u32> = Vec::new();
        while !raw.is_empty() {
            let depth = base + raw.next_depth();
            let offset = raw.next_offset().0;
            let Some(abbrev) = raw.read_abbreviation().ok()? else {
                continue;
            };
            let specs = abbrev.attributes();
            let depth = usize::try_from(depth).ok()?;
            if depth == 0 {
                raw.skip_attributes(specs).ok()?;
                scopes = vec![NONE];
                continue;
            }
            scopes.truncate(depth);
            let (wanted, opens) = interest(abbrev.tag());
            // Inside something that is not looked into.
            if scopes.len() < depth || !wanted {
                raw.skip_attributes(specs).ok()?;
                continue;
            }
            let mut seen = Seen::default();
            for spec in specs {
                if read_attr(spec.name()) {
                    let attr = raw.read_attribute(*spec).ok()?;
                    self.take(&mut seen, attr.name(), attr.value());
                } else {
                    raw.skip_attributes(std::slice::from_ref(spec)).ok()?;
                }
            }
            let scope = scopes[depth - 1];
            let own = self.record(abbrev.tag(), offset, &seen, scope);
            if abbrev.has_children() && opens && depth < MAX_DEPTH {
                scopes.push(own.unwrap_or(scope));
            } else if let Some(to) = seen.sibling.filter(|_| abbrev.has_children())
                && to > raw.next_offset().0
            {
                raw = parsed.entries_raw(Some(UnitOffset(to))).ok()?;
                base = depth as isize;
            }
        }
        Some(())
    }

    fn take(&self, seen: &mut Seen, name: DwAt, value: AttributeValue<R>) {
        let dwarf = &self.dwarf.part(self.part).dwarf;
        match name {
            gimli::DW_AT_name => seen.name = dwarf.attr_string(self.parsed, value).ok(),
            gimli::DW_AT_specification | gimli::DW_AT_abstract_origin => seen.origin = Some(value),
            gimli::DW_AT_low_pc => {
                seen.placed = true;
                let address = dwarf.attr_address(self.parsed, value).ok().flatten();
                seen.has_code |= address.is_some_and(|a| self.dwarf.main.is_code(a));
            }
            gimli::DW_AT_ranges => (seen.placed, seen.has_code) = (true, true),
            gimli::DW_AT_declaration => seen.declaration = true,
            gimli::DW_AT_inline => {
                let inlined = [gimli::DW_INL_inlined, gimli::DW_INL_declared_inlined];
                seen.inlined = matches!(value, AttributeValue::Inline(i) if inlined.contains(&i));
            }
            gimli::DW_AT_location | gimli::DW_AT_const_value => seen.located = true,
            gimli::DW_AT_sibling => {
                if let AttributeValue::UnitRef(UnitOffset(o)) = value {
                    seen.sibling = Some(o);
                }
            }
            _ => {}
        }
    }

    /// Notes an entry; gives the scope that it opens.
    fn record(&mut self, tag: DwTag, offset: usize, seen: &Seen, scope: u32) -> Option<u32> {
        let kind = match tag {
            gimli::DW_TAG_namespace | gimli::DW_TAG_module => return self.open(seen.name, scope),
            gimli::DW_TAG_subprogram if seen.inlined => Kind::Inline,
            // Link-time optimisation describes functions without saying whether they are
            // inlined.
            gimli::DW_TAG_subprogram
                if !seen.placed && !seen.declaration && seen.name.is_some() =>
            {
                Kind::Inline
            }
            gimli::DW_TAG_subprogram => Kind::Function,
            gimli::DW_TAG_variable | gimli::DW_TAG_member => Kind::Variable,
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type => Kind::Struct,
            gimli::DW_TAG_union_type => Kind::Union,
            gimli::DW_TAG_enumeration_type => Kind::Enum,
            gimli::DW_TAG_typedef => Kind::Typedef,
            _ => Kind::Base,
        };
        match kind {
            Kind::Function | Kind::Inline | Kind::Variable => {
                let defined = match kind {
                    Kind::Variable => seen.located,
                    Kind::Inline => true,
                    _ => seen.has_code,
                };
                match (seen.name, seen.origin) {
                    (Some(name), _) => {
                        self.declared.push((offset, name, scope));
                        if defined {
                            self.add(name, offset, scope, kind);
                        }
                    }
                    (None, Some(origin)) => {
                        self.later.push((offset, origin, defined.then_some(kind)))
                    }
                    (None, None) => {}
                }
                None
            }
            _ => {
                let opens = matches!(kind, Kind::Struct | Kind::Union);
                let own = seen
                    .name
                    .filter(|_| opens)
                    .and_then(|n| self.open(Some(n), scope));
                if let Some(name) = seen.name.filter(|_| !seen.declaration) {
                    let around = self.batch.paths.get(scope as usize).copied().unwrap_or(0);
                    if self.batch.types.insert((kind, mix(around, name.slice()))) {
                        self.add(name, offset, scope, kind);
                    }
                }
                own
            }
        }
    }

    fn open(&mut self, name: Option<R>, outer: u32) -> Option<u32> {
        let text = name.map_or(&[][..], |n| n.slice());
        let around = self.batch.paths.get(outer as usize).copied().unwrap_or(0);
        let name = match name {
            Some(n) => place(self.dwarf, self.part, n)?,
            None => Name {
                section: u32::from(u8::MAX),
                offset: 0,
            },
        };
        self.batch.paths.push(mix(around, text));
        self.batch.scopes.push(RawScope {
            name,
            outer,
            part: self.part,
        });
        Some(self.batch.scopes.len() as u32 - 1)
    }

    fn add(&mut self, name: R, offset: usize, scope: u32, kind: Kind) {
        let (Some(at), Ok(offset)) = (place(self.dwarf, self.part, name), u32::try_from(offset))
        else {
            return;
        };
        self.batch.entries.push(Raw {
            hash: hash(name.slice()),
            name: at,
            unit: self.unit,
            offset,
            scope,
            kind,
            part: self.part,
        });
    }

    /// Finds the names of definitions that stand elsewhere.
    fn complete(&mut self) {
        let later = std::mem::take(&mut self.later);
        for &(offset, origin, kind) in &later {
            let Some(kind) = kind else { continue };
            if let Some((name, scope)) = self.name_of(origin, &later) {
                self.add(name, offset, scope, kind);
            }
        }
    }

    fn name_of(
        &self,
        mut origin: AttributeValue<R>,
        later: &[(usize, AttributeValue<R>, Option<Kind>)],
    ) -> Option<(R, u32)> {
        for _ in 0..MAX_CHAIN {
            let AttributeValue::UnitRef(UnitOffset(at)) = origin else {
                break;
            };
            if let Ok(i) = self.declared.binary_search_by_key(&at, |d| d.0) {
                return Some((self.declared[i].1, self.declared[i].2));
            }
            origin = later[later.binary_search_by_key(&at, |l| l.0).ok()?].1;
        }
        // In another unit: link-time optimisation, or a part that dwz shares.
        let here = Die {
            part: self.part,
            unit: self.unit,
            offset: 0,
        };
        let die = self.dwarf.refer(here, origin)?;
        let (_, entry) = self.dwarf.entry(die)?;
        let (at, value) = self.dwarf.attr(die, &entry, gimli::DW_AT_name)?;
        let unit = self.dwarf.unit(at.part, at.unit)?;
        let name = self
            .dwarf
            .part(at.part)
            .dwarf
            .attr_string(&unit, value)
            .ok()?;
        Some((name, NONE))
    }
}

/// Whether entries with a tag are recorded, and whether those within are looked at.
fn interest(tag: DwTag) -> (bool, bool) {
    match tag {
        gimli::DW_TAG_namespace
        | gimli::DW_TAG_module
        | gimli::DW_TAG_structure_type
        | gimli::DW_TAG_class_type
        | gimli::DW_TAG_union_type => (true, true),
        gimli::DW_TAG_subprogram
        | gimli::DW_TAG_variable
        | gimli::DW_TAG_enumeration_type
        | gimli::DW_TAG_typedef
        | gimli::DW_TAG_base_type => (true, false),
        _ => (false, false),
    }
}

/// Whether the pass reads an attribute.
fn read_attr(name: DwAt) -> bool {
    matches!(
        name,
        gimli::DW_AT_name
            | gimli::DW_AT_specification
            | gimli::DW_AT_abstract_origin
            | gimli::DW_AT_low_pc
            | gimli::DW_AT_ranges
            | gimli::DW_AT_declaration
            | gimli::DW_AT_inline
            | gimli::DW_AT_location
            | gimli::DW_AT_const_value
            | gimli::DW_AT_sibling
    )
}

/// A hash of a name within a scope.
fn mix(around: u64, name: &[u8]) -> u64 {
    let step = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3);
    name.iter()
        .fold(around.rotate_left(23) ^ 0xcbf2_9ce4_8422_2325, step)
}
