//! The pass over all units that builds an index.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use gimli::{AttributeSpecification, AttributeValue, DwAt, DwTag, EntriesRaw, UnitOffset};

use super::{
    INLINED, MAX_DEPTH, NONE, NameKind, PART, RawEntry, RawScope, ScanTables, StringRef, hash,
    place,
};
use crate::dwarf::{Die, Dwarf, Entry, MAX_CHAIN, R, Unit};

/// One thread's findings.
#[derive(Default)]
struct ThreadFindings {
    tables: ScanTables,
    /// For each scope a hash of the names from the outermost scope to it.
    paths: Vec<u64>,
    /// Types seen, by hash of name and scope, so that each is stored once.
    types: HashSet<(NameKind, u64)>,
}

/// Scans all units on all processors.
pub(super) fn scan(dwarf: &Dwarf) -> ScanTables {
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
        let mut batch = ThreadFindings::default();
        while let Some((part, units)) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
            for unit in units.clone() {
                scan_unit(dwarf, *part, unit, &mut batch);
            }
            dwarf.release_units(*part, units);
        }
        batch
    };
    let batches: Vec<ThreadFindings> = if chunks.len() < 2 {
        vec![work()]
    } else {
        std::thread::scope(|s| {
            let begin = |_| std::thread::Builder::new().spawn_scoped(s, work).ok();
            let others: Vec<_> = (1..threads).filter_map(begin).collect();
            // If no more threads can be made, this one does their work.
            let own = work();
            let others = others.into_iter().filter_map(|t| t.join().ok());
            others.chain([own]).collect()
        })
    };
    let mut all = ScanTables::default();
    for ThreadFindings { tables, .. } in batches {
        let base = all.scopes.len() as u32;
        let moved = |s: u32| if s == NONE { NONE } else { s + base };
        all.entries
            .extend(tables.entries.into_iter().map(|e| RawEntry {
                scope: moved(e.scope),
                ..e
            }));
        all.scopes
            .extend(tables.scopes.into_iter().map(|s| RawScope {
                outer: moved(s.outer),
                ..s
            }));
        all.code.extend(tables.code);
        all.inlined.extend(tables.inlined);
    }
    all.entries
        .sort_unstable_by_key(|e| (e.hash, e.kind, e.part, e.unit, e.offset));
    all.code.sort_unstable();
    all.inlined.sort_unstable();
    all
}

/// The attributes of an entry that the pass reads.
#[derive(Default)]
struct EntryAttrs {
    name: Option<R>,
    origin: Option<AttributeValue<R>>,
    sibling: Option<usize>,
    /// It has an address, of code or of dropped code.
    placed: bool,
    has_code: bool,
    declaration: bool,
    inlined: bool,
    located: bool,
}

fn scan_unit(dwarf: &Dwarf, part: u8, unit: u32, batch: &mut ThreadFindings) {
    let Some(&header) = dwarf.headers(part).get(unit as usize) else {
        return;
    };
    // Bypasses the cache of units: a pass over all units would flush it.
    let Ok(parsed) = dwarf.part(part).dwarf.unit(header) else {
        return;
    };
    let mut pass = ScanPass {
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

struct ScanPass<'a> {
    dwarf: &'a Dwarf,
    part: u8,
    unit: u32,
    parsed: &'a Unit,
    batch: &'a mut ThreadFindings,
    /// Offsets of named functions and variables, with name and scope, in order.
    declared: Vec<(usize, R, u32)>,
    /// Definitions that take their name from another entry of the unit.
    later: Vec<(usize, AttributeValue<R>, Option<NameKind>)>,
}

impl ScanPass<'_> {
    /// Walks over the entries: namespaces and classes for their names, bodies of functions for
    /// inlined instances.
    fn walk(&mut self) -> Option<()> {
        let parsed = self.parsed;
        let mut raw = parsed.entries_raw(None).ok()?;
        // The depth at which the reader started.
        let mut base = 0;
        // The scope at each depth that is entered.
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
            let tag = abbrev.tag();
            let function = tag == gimli::DW_TAG_subprogram;
            let (wanted, opens) = tag_interest(tag);
            if tag == gimli::DW_TAG_inlined_subroutine {
                self.instance(&mut raw, specs, offset).ok()?;
                continue;
            }
            // Inside an entry that is not entered.
            let inside = scopes.len() < depth;
            if inside && !function || !wanted {
                raw.skip_attributes(specs).ok()?;
                continue;
            }
            let mut seen = EntryAttrs::default();
            for spec in specs {
                if read_attr(spec.name()) {
                    let attr = raw.read_attribute(*spec).ok()?;
                    self.take(&mut seen, attr.name(), attr.value());
                } else {
                    raw.skip_attributes(std::slice::from_ref(spec)).ok()?;
                }
            }
            let body = function && seen.placed;
            if body && self.part == 0 {
                let _ = self.code(offset);
            }
            if inside {
                continue;
            }
            let scope = scopes[depth - 1];
            let own = self.record(tag, offset, &seen, scope);
            if abbrev.has_children() && opens && depth < MAX_DEPTH {
                scopes.push(own.unwrap_or(scope));
            } else if let Some(to) = seen.sibling.filter(|_| abbrev.has_children() && !body)
                && to > raw.next_offset().0
            {
                raw = parsed.entries_raw(Some(UnitOffset(to))).ok()?;
                base = depth as isize;
            }
        }
        Some(())
    }

    /// Records the origin of an inlined instance.
    fn instance(
        &mut self,
        raw: &mut EntriesRaw<'_, R>,
        specs: &[AttributeSpecification],
        offset: usize,
    ) -> gimli::Result<()> {
        let wanted = |s: &AttributeSpecification| s.name() == gimli::DW_AT_abstract_origin;
        let Some(at) = specs.iter().position(wanted).filter(|_| self.part == 0) else {
            return raw.skip_attributes(specs);
        };
        raw.skip_attributes(&specs[..at])?;
        let value = raw.read_attribute(specs[at])?.value();
        raw.skip_attributes(&specs[at + 1..])?;
        let here = Die {
            part: self.part,
            unit: self.unit,
            offset,
        };
        if let Some(origin) = self.dwarf.refer(here, value)
            && let (Ok(of), Ok(offset)) = (u32::try_from(origin.offset), u32::try_from(offset))
        {
            let unit = origin.unit | if origin.part == 0 { 0 } else { PART };
            let row: [u32; INLINED] = [unit, of, self.unit, offset];
            self.batch.tables.inlined.push(row);
        }
        Ok(())
    }

    /// Records the code of a function.
    fn code(&mut self, at: usize) -> Option<()> {
        let mut entry = Entry::null();
        let mut raw = self.parsed.entries_raw(Some(UnitOffset(at))).ok()?;
        raw.read_entry(&mut entry).ok()?;
        let (unit, offset) = (self.unit, u32::try_from(at).ok()?);
        let die = Die {
            part: self.part,
            unit,
            offset: at,
        };
        let code = self.dwarf.code(die, self.parsed, &entry).into_iter();
        let rows = code.map(|(start, end)| (start, end, unit, offset));
        self.batch.tables.code.extend(rows);
        Some(())
    }

    fn take(&self, seen: &mut EntryAttrs, name: DwAt, value: AttributeValue<R>) {
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

    /// Records an entry; returns the scope that it opens.
    fn record(&mut self, tag: DwTag, offset: usize, seen: &EntryAttrs, scope: u32) -> Option<u32> {
        let kind = match tag {
            gimli::DW_TAG_namespace | gimli::DW_TAG_module => return self.open(seen.name, scope),
            gimli::DW_TAG_subprogram if seen.inlined => NameKind::Inline,
            // Link-time optimisation describes functions without an inline attribute.
            gimli::DW_TAG_subprogram
                if !seen.placed && !seen.declaration && seen.name.is_some() =>
            {
                NameKind::Inline
            }
            gimli::DW_TAG_subprogram => NameKind::Function,
            gimli::DW_TAG_variable | gimli::DW_TAG_member => NameKind::Variable,
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type => NameKind::Struct,
            gimli::DW_TAG_union_type => NameKind::Union,
            gimli::DW_TAG_enumeration_type => NameKind::Enum,
            gimli::DW_TAG_typedef => NameKind::Typedef,
            _ => NameKind::Base,
        };
        match kind {
            NameKind::Function | NameKind::Inline | NameKind::Variable => {
                let defined = match kind {
                    NameKind::Variable => seen.located,
                    NameKind::Inline => true,
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
                let opens = matches!(kind, NameKind::Struct | NameKind::Union);
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
            None => StringRef {
                section: u32::from(u8::MAX),
                offset: 0,
            },
        };
        self.batch.paths.push(mix(around, text));
        self.batch.tables.scopes.push(RawScope {
            name,
            outer,
            part: self.part,
        });
        Some(self.batch.tables.scopes.len() as u32 - 1)
    }

    fn add(&mut self, name: R, offset: usize, scope: u32, kind: NameKind) {
        let (Some(at), Ok(offset)) = (place(self.dwarf, self.part, name), u32::try_from(offset))
        else {
            return;
        };
        self.batch.tables.entries.push(RawEntry {
            hash: hash(name.slice()),
            name: at,
            unit: self.unit,
            offset,
            scope,
            kind,
            part: self.part,
        });
    }

    /// Finds the names of definitions with a separate declaration.
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
        later: &[(usize, AttributeValue<R>, Option<NameKind>)],
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

/// Whether entries with a tag are recorded, and whether their children are scanned.
fn tag_interest(tag: DwTag) -> (bool, bool) {
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
