//! The DWARF of a module: its units, read when a query needs them.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use gimli::{
    AttributeValue, EndianSlice, LittleEndian, Section as _, SectionId, UnitHeader, UnitOffset,
};

use crate::image::Image;
use crate::lines::LineTable;

pub(crate) type R = EndianSlice<'static, LittleEndian>;
pub(crate) type Unit = gimli::Unit<R>;
pub(crate) type Entry = gimli::DebuggingInformationEntry<R>;

/// Maximum length of a chain of references between entries.
pub(crate) const MAX_CHAIN: usize = 16;
/// Number of bytes of `.debug_info` after which a pass over all of it releases the memory.
pub(crate) const CHUNK: usize = 1 << 20;
/// Maximum number of parsed units in the cache.
const MAX_UNITS_KEPT: usize = 256;
/// Maximum number of file paths in the cache.
const MAX_FILES_KEPT: usize = 4096;

/// An entry of the DWARF of one module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Die {
    /// 0 for the file itself, 1 for the part that dwz moved out.
    pub(crate) part: u8,
    pub(crate) unit: u32,
    pub(crate) offset: usize,
}

/// One file with DWARF.
pub(crate) struct DwarfPart {
    // Points into `owned` and `image`; declared first, so dropped first.
    pub(crate) dwarf: gimli::Dwarf<R>,
    sections: gimli::DwarfSections<R>,
    headers: Vec<UnitHeader<R>>,
    owned: Vec<Box<[u8]>>,
    pub(crate) image: Arc<Image>,
}

/// The DWARF of a module.
pub struct Dwarf {
    parsed: Mutex<HashMap<(u8, u32), Arc<Unit>>>,
    /// The position of a caller that asks for variables place by place: a part, and its first unit
    /// whose memory was not released.
    looked: Mutex<(u8, u32)>,
    lines: Mutex<LineTables>,
    ranges: OnceLock<Vec<UnitRange>>,
    signatures: OnceLock<HashMap<u64, Die>>,
    /// The cached index.
    pub(crate) kept: OnceLock<Option<crate::index::Index>>,
    /// The new index, where none was cached.
    pub(crate) index: OnceLock<crate::index::Index>,
    pub(crate) index_path: Option<std::path::PathBuf>,
    pub(crate) tables: crate::scopes::FunctionTables,
    pub(crate) chains: crate::scopes::ScopeChains,
    pub(crate) nested: crate::enclosing::NestedFunctions,
    /// Where the parts of split functions begin.
    pub(crate) split: OnceLock<HashSet<u64>>,
    files: Mutex<FilePaths>,
    pub(crate) types: crate::types::TypeNumbers,
    parts: Vec<DwarfPart>,
    pub(crate) main: Arc<Image>,
}

/// File paths by unit and DWARF's number.
type FilePaths = HashMap<(u8, u32, u64), Option<Arc<str>>>;

/// Line tables of units; `None` for damaged ones.
type LineTables = HashMap<(u8, u32), Option<Arc<LineTable>>>;

/// Code of a unit. `reach` is the largest end so far, in order of starts.
struct UnitRange {
    start: u64,
    end: u64,
    reach: u64,
    unit: u32,
}

impl DwarfPart {
    /// The DWARF of a file; `alt` is the part that dwz moved out of it.
    fn new(image: &Arc<Image>, alt: Option<&DwarfPart>) -> DwarfPart {
        let mut owned: Vec<Box<[u8]>> = Vec::new();
        let mut load = |id: SectionId| -> Result<R, std::convert::Infallible> {
            let bytes = match image.section(id.name()) {
                None => &[][..],
                Some(std::borrow::Cow::Borrowed(b)) => b,
                Some(std::borrow::Cow::Owned(v)) => {
                    owned.push(v.into_boxed_slice());
                    let last: &[u8] = owned.last().map_or(&[], |b| b);
                    // SAFETY: a box's bytes do not move when the vector grows, and the part
                    // keeps the boxes for as long as what points into them.
                    unsafe { std::slice::from_raw_parts(last.as_ptr(), last.len()) }
                }
            };
            Ok(EndianSlice::new(bytes, LittleEndian))
        };
        let sections = match gimli::DwarfSections::load(&mut load) {
            Ok(s) => s,
            Err(e) => match e {},
        };
        let dwarf = sections.borrow_with_sup(alt.map(|a| &a.sections), |r| *r);
        let mut headers: Vec<UnitHeader<R>> = Vec::new();
        let mut units = dwarf.units();
        let whole = dwarf.debug_info.reader().slice();
        // Reading every header makes the kernel map the pages around it.
        let mut kept = 0;
        while let Ok(Some(h)) = units.next() {
            let at = h.debug_info_offset().map_or(0, |o| o.0);
            if owned.is_empty() && at - kept.min(at) >= CHUNK {
                image.release(whole.get(kept..at).unwrap_or(&[]));
                kept = at;
            }
            headers.push(h);
        }
        let mut units = dwarf.type_units();
        while let Ok(Some(h)) = units.next() {
            headers.push(h);
        }
        DwarfPart {
            dwarf,
            sections,
            headers,
            owned,
            image: image.clone(),
        }
    }

    /// Releases the memory of a mapped part of a section.
    pub(crate) fn release(&self, bytes: &[u8]) {
        if self.owned.is_empty() {
            self.image.release(bytes);
        }
    }
}

impl Dwarf {
    pub(crate) fn new(
        main: &Arc<Image>,
        image: &Arc<Image>,
        alt: Option<&Arc<Image>>,
        index_path: Option<std::path::PathBuf>,
    ) -> Dwarf {
        let alt = alt.map(|a| DwarfPart::new(a, None));
        let mut parts = vec![DwarfPart::new(image, alt.as_ref())];
        parts.extend(alt);
        Dwarf {
            parsed: Mutex::default(),
            looked: Mutex::default(),
            lines: Mutex::default(),
            ranges: OnceLock::new(),
            signatures: OnceLock::new(),
            kept: OnceLock::new(),
            index: OnceLock::new(),
            index_path,
            tables: crate::scopes::FunctionTables::default(),
            chains: crate::scopes::ScopeChains::default(),
            nested: crate::enclosing::NestedFunctions::default(),
            split: OnceLock::new(),
            files: Mutex::default(),
            types: crate::types::TypeNumbers::default(),
            parts,
            main: main.clone(),
        }
    }

    pub(crate) fn parts(&self) -> &[DwarfPart] {
        &self.parts
    }

    pub(crate) fn part(&self, part: u8) -> &DwarfPart {
        &self.parts[usize::from(part).min(self.parts.len() - 1)]
    }

    pub(crate) fn headers(&self, part: u8) -> &[UnitHeader<R>] {
        &self.part(part).headers
    }

    /// Ranges of consecutive units of about [`CHUNK`] bytes.
    pub(crate) fn chunks(&self, part: u8) -> Vec<Range<u32>> {
        let (mut all, mut start, mut bytes) = (Vec::new(), 0, 0usize);
        for (unit, header) in (0..).zip(self.headers(part)) {
            bytes = bytes.saturating_add(header.length_including_self());
            if bytes >= CHUNK {
                all.push(start..unit + 1);
                (start, bytes) = (unit + 1, 0);
            }
        }
        all.push(start..self.headers(part).len() as u32);
        all
    }

    /// Releases the memory of units that a pass is done with.
    pub(crate) fn release_units(&self, part: u8, units: &Range<u32>) {
        let headers = self.headers(part);
        let at = |unit: u32| Some(headers.get(unit as usize)?.debug_info_offset()?.0);
        let Some(from) = at(units.start) else {
            return;
        };
        let whole = self.part(part).dwarf.debug_info.reader().slice();
        let to = at(units.end).unwrap_or(whole.len());
        self.part(part).release(whole.get(from..to).unwrap_or(&[]));
    }

    /// For a pass over entries in order: releases the memory of the units before this one, once
    /// they are many. `from` is the first that was not released.
    pub(crate) fn release_passed(&self, die: Die, from: &mut (u8, u32)) {
        let start = |unit: u32| {
            Some(
                self.headers(die.part)
                    .get(unit as usize)?
                    .debug_info_offset()?
                    .0,
            )
        };
        if from.0 != die.part {
            *from = (die.part, die.unit);
        } else if let (Some(a), Some(b)) = (start(from.1), start(die.unit))
            && b.saturating_sub(a) >= CHUNK
        {
            self.release_units(die.part, &(from.1..die.unit));
            from.1 = die.unit;
        }
    }

    /// For queries on one place after the other: see [`Dwarf::passed`].
    pub(crate) fn release_visited(&self, die: Die) {
        let mut from = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        self.release_passed(die, &mut from);
    }

    /// A unit; `None` if it is damaged.
    pub(crate) fn unit(&self, part: u8, unit: u32) -> Option<Arc<Unit>> {
        let mut parsed = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(u) = parsed.get(&(part, unit)) {
            return Some(u.clone());
        }
        let header = *self.headers(part).get(unit as usize)?;
        let u = Arc::new(self.part(part).dwarf.unit(header).ok()?);
        if parsed.len() >= MAX_UNITS_KEPT {
            parsed.clear();
        }
        parsed.insert((part, unit), u.clone());
        Some(u)
    }

    /// The line table of a unit.
    pub(crate) fn lines(&self, part: u8, unit: u32) -> Option<Arc<LineTable>> {
        let mut all = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(l) = all.get(&(part, unit)) {
            return l.clone();
        }
        let lines = self
            .unit(part, unit)
            .map(|u| Arc::new(LineTable::read(&self.part(part).dwarf, &u)));
        if all.len() >= MAX_UNITS_KEPT {
            all.clear();
        }
        all.insert((part, unit), lines.clone());
        lines
    }

    /// The path of a file by DWARF's number in the unit.
    pub(crate) fn file_name(&self, die: Die, number: u64) -> Option<Arc<str>> {
        let lock = || self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (die.part, die.unit, number);
        if let Some(path) = lock().get(&key) {
            return path.clone();
        }
        let unit = self.unit(die.part, die.unit)?;
        let path = crate::lines::file(&self.part(die.part).dwarf, &unit, number);
        let path: Option<Arc<str>> = path.filter(|p| !p.is_empty()).map(Into::into);
        let mut all = lock();
        if all.len() >= MAX_FILES_KEPT {
            all.clear();
        }
        all.insert(key, path.clone());
        path
    }

    /// Calls `f` for each entry of a unit of part 0 that has the tag. `None` where the rest of the
    /// unit is unreadable.
    pub(crate) fn each_tagged(
        unit: u32,
        parsed: &Unit,
        tag: gimli::DwTag,
        mut each: impl FnMut(Die, &Entry),
    ) -> Option<()> {
        let mut raw = parsed.entries_raw(None).ok()?;
        let mut entry = gimli::DebuggingInformationEntry::null();
        while !raw.is_empty() {
            let offset = raw.next_offset();
            let Some(abbrev) = raw.read_abbreviation().ok()? else {
                continue;
            };
            raw.skip_attributes(abbrev.attributes()).ok()?;
            if abbrev.tag() != tag {
                continue;
            }
            let mut again = parsed.entries_raw(Some(offset)).ok()?;
            again.read_entry(&mut entry).ok()?;
            let die = Die {
                part: 0,
                unit,
                offset: offset.0,
            };
            each(die, &entry);
        }
        Some(())
    }

    /// An entry and its unit.
    pub(crate) fn entry(&self, die: Die) -> Option<(Arc<Unit>, Entry)> {
        let unit = self.unit(die.part, die.unit)?;
        let entry = unit.entry(UnitOffset(die.offset)).ok()?;
        Some((unit, entry))
    }

    /// The entry at an offset in `.debug_info` of a part.
    pub(crate) fn die_at(&self, part: u8, offset: usize) -> Option<Die> {
        let headers = self.headers(part);
        let start = |h: &UnitHeader<R>| h.debug_info_offset().map_or(usize::MAX, |o| o.0);
        let i = headers
            .partition_point(|h| start(h) <= offset)
            .checked_sub(1)?;
        let within = offset.checked_sub(start(&headers[i]))?;
        (within < headers[i].length_including_self()).then_some(Die {
            part,
            unit: i as u32,
            offset: within,
        })
    }

    /// The entry that a reference attribute of `from`'s unit points to.
    pub(crate) fn refer(&self, from: Die, value: AttributeValue<R>) -> Option<Die> {
        match value {
            AttributeValue::UnitRef(o) => Some(Die {
                offset: o.0,
                ..from
            }),
            AttributeValue::DebugInfoRef(o) => self.die_at(from.part, o.0),
            AttributeValue::DebugInfoRefSup(o) if self.parts.len() > 1 => self.die_at(1, o.0),
            AttributeValue::DebugTypesRef(s) => self.signatures().get(&s.0).copied(),
            _ => None,
        }
    }

    fn signatures(&self) -> &HashMap<u64, Die> {
        self.signatures.get_or_init(|| {
            let headers = self.headers(0).iter().enumerate();
            let all = headers.filter_map(|(i, h)| match h.type_() {
                gimli::UnitType::Type {
                    type_signature,
                    type_offset,
                } => Some((
                    type_signature.0,
                    Die {
                        part: 0,
                        unit: i as u32,
                        offset: type_offset.0,
                    },
                )),
                _ => None,
            });
            all.collect()
        })
    }

    /// An attribute of an entry, or of the entry that it completes (`abstract_origin`,
    /// `specification`), with the entry that has it.
    pub(crate) fn attr(
        &self,
        die: Die,
        entry: &Entry,
        name: gimli::DwAt,
    ) -> Option<(Die, AttributeValue<R>)> {
        if let Some(v) = entry.attr_value(name) {
            return Some((die, v));
        }
        let mut at = origin(self, die, entry)?;
        for _ in 0..MAX_CHAIN {
            let (_, entry) = self.entry(at)?;
            if let Some(v) = entry.attr_value(name) {
                return Some((at, v));
            }
            at = origin(self, at, &entry)?;
        }
        None
    }

    /// A string attribute's text in the unit of `die`.
    pub(crate) fn text(&self, die: Die, value: AttributeValue<R>) -> Option<&'static str> {
        let unit = self.unit(die.part, die.unit)?;
        let text = self.part(die.part).dwarf.attr_string(&unit, value).ok()?;
        std::str::from_utf8(text.slice()).ok()
    }

    /// The name of an entry, or of the entry that it completes.
    pub(crate) fn name(&self, die: Die, entry: &Entry) -> Option<&'static str> {
        let (at, value) = self.attr(die, entry, gimli::DW_AT_name)?;
        self.text(at, value)
    }

    /// The unit whose code contains an address.
    pub(crate) fn unit_at(&self, address: u64) -> Option<u32> {
        let ranges = self.ranges.get_or_init(|| self.unit_ranges());
        let mut i = ranges.partition_point(|r| r.start <= address);
        while let Some(before) = i.checked_sub(1) {
            i = before;
            let r = &ranges[i];
            if address < r.end {
                return Some(r.unit);
            }
            if r.reach <= address {
                return None;
            }
        }
        None
    }

    /// The code of units: from `.debug_aranges` where that covers a unit, otherwise from the units
    /// themselves.
    fn unit_ranges(&self) -> Vec<UnitRange> {
        let part = self.part(0);
        let mut found = Vec::new();
        let mut covered = vec![false; part.headers.len()];
        let mut push = |unit: u32, start: u64, end: u64| {
            if start != 0 && start < end {
                found.push(UnitRange {
                    start,
                    end,
                    reach: 0,
                    unit,
                });
            }
        };
        let mut sets = part.dwarf.debug_aranges.headers();
        while let Ok(Some(set)) = sets.next() {
            let Some(die) = self.die_at(0, set.debug_info_offset().0) else {
                continue;
            };
            let mut entries = set.entries();
            while let Ok(Some(e)) = entries.next() {
                push(
                    die.unit,
                    e.address(),
                    e.address().saturating_add(e.length()),
                );
                covered[die.unit as usize] = true;
            }
        }
        for unit in (0..covered.len()).filter(|&u| !covered[u]) {
            // Bypasses the cache: a pass over all units would flush it.
            let Ok(u) = part.dwarf.unit(part.headers[unit]) else {
                continue;
            };
            let Some(mut ranges) = ranges_of(&part.dwarf, &u) else {
                continue;
            };
            while let Ok(Some(r)) = ranges.next() {
                push(unit as u32, r.begin, r.end);
            }
        }
        found.sort_by_key(|r| r.start);
        let mut reach = 0;
        for r in &mut found {
            reach = reach.max(r.end);
            r.reach = reach;
        }
        found
    }

    /// The code of an entry as address ranges; empty when it has none or the linker dropped it.
    #[must_use]
    pub fn code_of(&self, die: Die) -> Vec<(u64, u64)> {
        match self.entry(die) {
            Some((unit, entry)) => self.code(die, &unit, &entry),
            None => Vec::new(),
        }
    }

    /// The code of an entry that was read.
    pub(crate) fn code(&self, die: Die, unit: &Unit, entry: &Entry) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        let dwarf = &self.part(die.part).dwarf;
        if ends(dwarf, unit, entry)
            && let Ok(mut ranges) = dwarf.die_ranges(unit, entry)
        {
            while let Ok(Some(r)) = ranges.next() {
                if r.begin < r.end && self.main.is_code(r.begin) {
                    found.push((r.begin, r.end));
                }
            }
        }
        found
    }
}

/// Whether an entry's code, given as start and size, ends within the address space; the library
/// adds them unchecked.
fn ends(dwarf: &gimli::Dwarf<R>, unit: &Unit, entry: &Entry) -> bool {
    let low = entry.attr_value(gimli::DW_AT_low_pc);
    let low = low.and_then(|v| dwarf.attr_address(unit, v).ok().flatten());
    let size = entry.attr_value(gimli::DW_AT_high_pc);
    let size = size.and_then(|v| v.udata_value());
    low.zip(size)
        .is_none_or(|(low, size)| low.checked_add(size).is_some())
}

/// The code of a unit.
pub(crate) fn ranges_of(dwarf: &gimli::Dwarf<R>, unit: &Unit) -> Option<gimli::RangeIter<R>> {
    let mut entries = unit.entries();
    entries.next_entry().ok()?;
    ends(dwarf, unit, entries.current()?).then_some(())?;
    dwarf.unit_ranges(unit).ok()
}

/// The entry that this one completes.
pub(crate) fn origin(dwarf: &Dwarf, die: Die, entry: &Entry) -> Option<Die> {
    let value = entry
        .attr_value(gimli::DW_AT_abstract_origin)
        .or_else(|| entry.attr_value(gimli::DW_AT_specification))?;
    dwarf.refer(die, value)
}

/// A small unsigned number, in any form.
pub(crate) fn number(value: AttributeValue<R>) -> Option<u64> {
    value
        .udata_value()
        .or_else(|| value.sdata_value().map(|v| v as u64))
}

/// The value of a number attribute.
pub(crate) fn number_of(entry: &Entry, name: gimli::DwAt) -> Option<u64> {
    entry.attr_value(name).and_then(number)
}

/// Whether a flag is set.
pub(crate) fn flag(entry: &Entry, name: gimli::DwAt) -> bool {
    matches!(entry.attr_value(name), Some(AttributeValue::Flag(true)))
}
