//! The DWARF of a module: its units, read when a query needs them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use gimli::{AttributeValue, Section as _, SectionId, UnitHeader, UnitOffset, UnitType};
use spile_cast::Cast;

use crate::caches::{Caches, UnitRange};
use crate::find::SearchPaths;
use crate::image::Image;
use crate::lines::LineTable;
use crate::split::{MissingUnits, SplitFiles};
use crate::unit::{Die, Entry, MAX_CHAIN, R, SectionLoader, Unit, root};

/// Number of bytes of `.debug_info` after which a pass over all of it releases the memory.
pub(crate) const CHUNK: usize = 1 << 20;

/// One file with DWARF.
pub(crate) struct DwarfPart {
    // Points into `owned` and `image`; declared first, so dropped first.
    pub(crate) dwarf: gimli::Dwarf<R>,
    sections: gimli::DwarfSections<R>,
    headers: Vec<UnitHeader<R>>,
    /// The number of units in the file itself.
    own_units: usize,
    /// The files that units were split off to.
    pub(crate) split: Option<SplitFiles>,
    file: SectionLoader,
    pub(crate) image: Arc<Image>,
}

/// The DWARF of a module.
pub struct Dwarf {
    // Points into the parts; declared first, so dropped first.
    pub(crate) caches: Caches,
    pub(crate) index_path: Option<std::path::PathBuf>,
    parts: Vec<DwarfPart>,
    pub(crate) main: Arc<Image>,
}

impl DwarfPart {
    /// The DWARF of a file; `alt` is the part that dwz moved out of it.
    fn new(image: &Arc<Image>, alt: Option<&DwarfPart>) -> DwarfPart {
        let mut file = SectionLoader::new(image);
        let load =
            |id: SectionId| -> Result<R, std::convert::Infallible> { Ok(file.load(id.name())) };
        let sections = match gimli::DwarfSections::load(load) {
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
            let offset = h.debug_info_offset().map_or(0, |o| o.0);
            if offset - kept.min(offset) >= CHUNK {
                file.release(whole.get(kept..offset).unwrap_or(&[]));
                kept = offset;
            }
            headers.push(h);
        }
        let mut units = dwarf.type_units();
        headers.extend(std::iter::from_fn(|| units.next().ok().flatten()));
        DwarfPart {
            dwarf,
            sections,
            own_units: headers.len(),
            headers,
            split: None,
            file,
            image: image.clone(),
        }
    }

    /// Takes the units that were split off to other files.
    fn with_split(mut self, main: &Image, search: &SearchPaths) -> DwarfPart {
        let images = (main, &*self.image);
        self.split = SplitFiles::load(&self.dwarf, &mut self.headers, images, search);
        self
    }

    /// Releases the memory of a mapped part of a section.
    pub(crate) fn release(&self, bytes: &[u8]) {
        self.file.release(bytes);
    }

    /// The header of a unit of the file itself, which may be a skeleton.
    fn own_header(&self, unit: u32) -> Option<UnitHeader<R>> {
        let split = self.split.as_ref();
        let skeleton = split.and_then(|s| s.skeleton(unit));
        let header = || self.headers[..self.own_units].get(unit as usize).copied();
        skeleton.or_else(header)
    }
}

impl Dwarf {
    pub(crate) fn new(
        main: &Arc<Image>,
        image: &Arc<Image>,
        alt: Option<&Arc<Image>>,
        search: &SearchPaths,
    ) -> Dwarf {
        let alt = alt.map(|a| DwarfPart::new(a, None));
        let file = DwarfPart::new(image, alt.as_ref()).with_split(main, search);
        let mut parts = vec![file];
        parts.extend(alt);
        Dwarf {
            caches: Caches::default(),
            index_path: search.index_path(image),
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

    /// The number of units of the file itself; others are type units of files that were split off.
    pub(crate) fn own_units(&self) -> u32 {
        self.part(0).own_units.fit::<u32>()
    }

    /// Whether a unit may describe code. A type unit does not, though it has the line table of a unit
    /// that does.
    pub(crate) fn has_code(&self, unit: u32) -> bool {
        let header = self.headers(0).get(unit as usize);
        let types = |h: &UnitHeader<R>| {
            matches!(
                h.type_(),
                UnitType::Type { .. } | UnitType::SplitType { .. }
            )
        };
        header.is_some_and(|h| !types(h))
    }

    /// The units whose entries are in files that were not found.
    #[must_use]
    pub fn missing_units(&self) -> Option<&MissingUnits> {
        self.part(0).split.as_ref()?.missing()
    }

    /// The DWARF that the forms of a unit's entries belong to.
    pub(crate) fn forms(&self, part: u8, unit: u32) -> &gimli::Dwarf<R> {
        let part = self.part(part);
        let split = part.split.as_ref();
        split.and_then(|s| s.source(unit)).unwrap_or(&part.dwarf)
    }

    /// The DWARF that the forms of a unit's line table belong to.
    fn line_forms(&self, part: u8, unit: u32) -> &gimli::Dwarf<R> {
        match (unit as usize) < self.part(part).own_units {
            true => &self.part(part).dwarf,
            false => self.forms(part, unit),
        }
    }

    /// Parses a unit. A pass over all units uses this, as it would flush the cache.
    pub(crate) fn parse(&self, part: u8, unit: u32) -> Option<Unit> {
        let header = *self.headers(part).get(unit as usize)?;
        let mut parsed = self.forms(part, unit).unit(header).ok()?;
        let split = self.part(part).split.as_ref();
        if let Some(header) = split.and_then(|s| s.skeleton(unit)) {
            crate::split::complete(&mut parsed, &self.part(part).dwarf.unit(header).ok()?);
        }
        Some(parsed)
    }

    /// Parses a unit as it is in the file itself, with line table and addresses.
    pub(crate) fn parse_own(&self, unit: u32) -> Option<Unit> {
        let part = self.part(0);
        part.dwarf.unit(part.own_header(unit)?).ok()
    }

    /// Ranges of consecutive units of about [`CHUNK`] bytes.
    pub(crate) fn chunks(&self, part: u8) -> Vec<Range<u32>> {
        let (mut ranges, mut start, mut bytes) = (Vec::new(), 0, 0usize);
        for (unit, header) in (0..).zip(self.headers(part)) {
            bytes = bytes.saturating_add(header.length_including_self());
            if bytes >= CHUNK {
                ranges.push(start..unit + 1);
                (start, bytes) = (unit + 1, 0);
            }
        }
        ranges.push(start..self.headers(part).len().fit::<u32>());
        ranges
    }

    /// Releases the memory of units that a pass is done with.
    pub(crate) fn release_units(&self, part: u8, units: &Range<u32>) {
        let part = self.part(part);
        let offset_of = |unit: u32| Some(part.own_header(unit)?.debug_info_offset()?.0);
        if let Some(split) = &part.split {
            units.clone().for_each(|unit| split.release(unit));
        }
        let Some(from) = offset_of(units.start) else {
            return;
        };
        let whole = part.dwarf.debug_info.reader().slice();
        let to = offset_of(units.end).unwrap_or(whole.len());
        part.release(whole.get(from..to).unwrap_or(&[]));
    }

    /// For a pass over entries in order: releases the memory of the units before this one, once
    /// they are many. `from` is the first that was not released.
    pub(crate) fn release_passed(&self, die: Die, from: &mut (u8, u32)) {
        if from.0 != die.part {
            *from = (die.part, die.unit);
            return;
        }
        let passed = self
            .headers(die.part)
            .get(from.1 as usize..die.unit as usize);
        let mut sizes = passed
            .unwrap_or(&[])
            .iter()
            .map(UnitHeader::length_including_self);
        let enough = |sum: usize, size| Some(sum.saturating_add(size)).filter(|sum| *sum < CHUNK);
        if sizes.try_fold(0, enough).is_none() {
            self.release_units(die.part, &(from.1..die.unit));
            from.1 = die.unit;
        }
    }

    /// For queries on one location after the other: see [`Dwarf::passed`].
    pub(crate) fn release_visited(&self, die: Die) {
        let looked = self.caches.looked.lock();
        let mut from = looked.unwrap_or_else(PoisonError::into_inner);
        self.release_passed(die, &mut from);
    }

    /// A unit; `None` if it is damaged.
    pub(crate) fn unit(&self, part: u8, unit: u32) -> Option<Arc<Unit>> {
        let parse = || Some(Arc::new(self.parse(part, unit)?));
        self.caches.units.get_or_make((part, unit), parse)
    }

    /// The line table of a unit.
    pub(crate) fn lines(&self, part: u8, unit: u32) -> Option<Arc<LineTable>> {
        let read = |u: Arc<Unit>| Arc::new(LineTable::read(self.line_forms(part, unit), &u));
        let table = || Some(self.unit(part, unit).map(read));
        self.caches.lines.get_or_make((part, unit), table)?
    }

    /// The path of a file by DWARF's number in the unit.
    pub(crate) fn file_name(&self, die: Die, number: u64) -> Option<Arc<str>> {
        let key = (die.part, die.unit, number);
        let path = || {
            let unit = self.unit(die.part, die.unit)?;
            let path = crate::lines::file(self.line_forms(die.part, die.unit), &unit, number);
            Some(path.filter(|p| !p.is_empty()).map(Into::into))
        };
        self.caches.files.get_or_make(key, path)?
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
            each(Die::of_file(unit, offset.0), &entry);
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
        let file = self.part(part);
        let start = |h: &UnitHeader<R>| h.debug_info_offset().map_or(usize::MAX, |o| o.0);
        let is_behind = |unit: usize| {
            file.own_header(unit.fit::<u32>())
                .is_none_or(|h| start(&h) > offset)
        };
        let unit = crate::caches::first_index(file.own_units, is_behind)
            .checked_sub(1)?
            .fit::<u32>();
        within(&file.own_header(unit)?, offset).map(|offset| Die { part, unit, offset })
    }

    /// The entry at an offset in the `.debug_info` that a unit is in.
    fn die_near(&self, from: Die, offset: usize) -> Option<Die> {
        let part = self.part(from.part);
        let split = part
            .split
            .as_ref()
            .filter(|s| s.source(from.unit).is_some());
        let Some(split) = split else {
            return self.die_at(from.part, offset);
        };
        split.neighbours(from.unit).iter().find_map(|&unit| {
            let offset = within(part.headers.get(unit as usize)?, offset)?;
            let part = from.part;
            Some(Die { part, unit, offset })
        })
    }

    /// The entry that a reference attribute of `from`'s unit points to.
    pub(crate) fn refer(&self, from: Die, value: AttributeValue<R>) -> Option<Die> {
        match value {
            AttributeValue::UnitRef(o) => Some(from.with_offset(o.0)),
            AttributeValue::DebugInfoRef(o) => self.die_near(from, o.0),
            AttributeValue::DebugInfoRefSup(o) if self.parts.len() > 1 => self.die_at(1, o.0),
            AttributeValue::DebugTypesRef(s) => self.signatures().get(&s.0).copied(),
            _ => None,
        }
    }

    fn signatures(&self) -> &HashMap<u64, Die> {
        self.caches.signatures.get_or_init(|| {
            let headers = self.headers(0).iter().enumerate();
            let known = headers.filter_map(|(i, h)| match h.type_() {
                UnitType::Type {
                    type_signature,
                    type_offset,
                }
                | UnitType::SplitType {
                    type_signature,
                    type_offset,
                } => Some((type_signature.0, Die::of_file(i.fit(), type_offset.0))),
                _ => None,
            });
            known.collect()
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
        let mut holder = self.origin(die, entry)?;
        for _ in 0..MAX_CHAIN {
            let (_, entry) = self.entry(holder)?;
            if let Some(v) = entry.attr_value(name) {
                return Some((holder, v));
            }
            holder = self.origin(holder, &entry)?;
        }
        None
    }

    /// A string attribute in the unit of `die`, as a part of its section.
    fn string(&self, die: Die, value: AttributeValue<R>) -> Option<R> {
        let unit = self.unit(die.part, die.unit)?;
        let forms = self.forms(die.part, die.unit);
        forms.attr_string(&unit, value).ok()
    }

    /// A string attribute's text in the unit of `die`.
    pub(crate) fn text(&self, die: Die, value: AttributeValue<R>) -> Option<&'static str> {
        std::str::from_utf8(self.string(die, value)?.slice()).ok()
    }

    /// An attribute of an entry that is an address.
    pub(crate) fn address(
        &self,
        die: Die,
        unit: &Unit,
        entry: &Entry,
        name: gimli::DwAt,
    ) -> Option<u64> {
        let forms = self.forms(die.part, die.unit);
        forms.attr_address(unit, entry.attr_value(name)?).ok()?
    }

    /// The name of an entry, or of the entry that it completes.
    pub(crate) fn name(&self, die: Die, entry: &Entry) -> Option<&'static str> {
        let (holder, value) = self.name_attr(die, entry)?;
        self.text(holder, value)
    }

    fn name_attr(&self, die: Die, entry: &Entry) -> Option<(Die, AttributeValue<R>)> {
        self.attr(die, entry, gimli::DW_AT_name).or_else(|| {
            // A type whose name is only in its type unit.
            let whole = self.refer(die, entry.attr_value(gimli::DW_AT_signature)?)?;
            self.attr(whole, &self.entry(whole)?.1, gimli::DW_AT_name)
        })
    }

    /// The name of an entry as a part of its section.
    pub(crate) fn name_text(&self, die: Die) -> Option<R> {
        let (_, entry) = self.entry(die)?;
        let (holder, value) = self.name_attr(die, &entry)?;
        self.string(holder, value)
    }

    /// The unit whose code contains an address.
    pub(crate) fn unit_at(&self, address: u64) -> Option<u32> {
        let ranges = self.caches.ranges.get_or_init(|| self.unit_ranges());
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
        let mut unit_ranges = Vec::new();
        let mut covered = vec![false; part.own_units];
        let mut push = |unit: u32, start: u64, end: u64| {
            if start != 0 && start < end {
                unit_ranges.push(UnitRange {
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
            let parsed = self.parse_own(unit.fit::<u32>());
            let Some(mut ranges) = parsed.and_then(|u| ranges_of(&part.dwarf, &u)) else {
                continue;
            };
            while let Ok(Some(r)) = ranges.next() {
                push(unit.fit::<u32>(), r.begin, r.end);
            }
        }
        unit_ranges.sort_by_key(|r| r.start);
        let mut reach = 0;
        for r in &mut unit_ranges {
            reach = reach.max(r.end);
            r.reach = reach;
        }
        unit_ranges
    }

    /// The code of an entry as address ranges; empty when it has none or the linker dropped it.
    #[must_use]
    pub fn code_of(&self, die: Die) -> Vec<(u64, u64)> {
        let entry = self.entry(die);
        entry.map_or_else(Vec::new, |(unit, entry)| self.code(die, &unit, &entry))
    }

    /// The code of an entry that was read.
    pub(crate) fn code(&self, die: Die, unit: &Unit, entry: &Entry) -> Vec<(u64, u64)> {
        let mut code = Vec::new();
        let dwarf = self.forms(die.part, die.unit);
        if ends(dwarf, unit, entry)
            && let Ok(mut ranges) = dwarf.die_ranges(unit, entry)
        {
            while let Ok(Some(r)) = ranges.next() {
                if r.begin < r.end && self.main.is_code(r.begin) {
                    code.push((r.begin, r.end));
                }
            }
        }
        code
    }
}

/// The offset within a unit of an offset in its section.
fn within(header: &UnitHeader<R>, offset: usize) -> Option<usize> {
    let within = offset.checked_sub(header.debug_info_offset()?.0)?;
    (within < header.length_including_self()).then_some(within)
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
    ends(dwarf, unit, &root(unit)?).then_some(())?;
    dwarf.unit_ranges(unit).ok()
}
