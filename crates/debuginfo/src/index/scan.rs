//! The pass over all units that builds an index.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use gimli::{AttributeSpecification, AttributeValue, DwAt, DwTag, EntriesRaw, UnitOffset};
use spile_cast::Cast;

use super::{
    INLINED, NONE, NameKind, PART, RawEntry, RawScope, ScanTables, StringRef, hash, location,
};
use crate::dwarf::Dwarf;
use crate::unit::{Die, Entry, MAX_CHAIN, R, Unit};

/// One thread's findings.
#[derive(Default)]
struct ThreadFindings {
    tables: ScanTables,
    /// For each scope a hash of the names from the outermost scope to it.
    paths: Vec<u64>,
    /// Entries whose origin is in another unit, with it: their scope is known when all are scanned.
    foreign: Vec<(usize, Die)>,
    /// The scopes of what partial units declare for others.
    shared: Vec<(Die, u32)>,
    /// Types seen, by hash of name and scope, so that each is stored once.
    types: HashSet<(NameKind, u64)>,
}

/// Scans all units on all processors.
pub(super) fn scan(dwarf: &Dwarf) -> ScanTables {
    let parts = 0..dwarf.parts().len().fit::<u8>();
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
            let batch = work();
            let others = others.into_iter().filter_map(|t| t.join().ok());
            others.chain([batch]).collect()
        })
    };
    let mut merged = ScanTables::default();
    let (mut foreign, mut shared) = (Vec::new(), Vec::new());
    for batch in batches {
        let tables = batch.tables;
        let first = merged.entries.len();
        let base = merged.scopes.len().fit::<u32>();
        let moved = |s: u32| if s == NONE { NONE } else { s + base };
        merged
            .entries
            .extend(tables.entries.into_iter().map(|e| RawEntry {
                scope: moved(e.scope),
                ..e
            }));
        merged
            .scopes
            .extend(tables.scopes.into_iter().map(|s| RawScope {
                outer: moved(s.outer),
                ..s
            }));
        foreign.extend(
            batch
                .foreign
                .into_iter()
                .map(|(i, origin)| (first + i, origin)),
        );
        shared.extend(batch.shared.into_iter().map(|(die, s)| (die, moved(s))));
        merged.code.extend(tables.code);
        merged.inlined.extend(tables.inlined);
    }
    set_scopes(dwarf, &foreign, shared, &mut merged.entries);
    merged
        .entries
        .sort_unstable_by_key(|e| (e.hash, e.kind, e.part, e.unit, e.offset));
    merged.code.sort_unstable();
    merged.inlined.sort_unstable();
    merged
}

/// Gives entries the scopes of their origins in other units: link-time optimisation and `dwz` take
/// declarations and code apart.
fn set_scopes(
    dwarf: &Dwarf,
    foreign: &[(usize, Die)],
    shared: Vec<(Die, u32)>,
    entries: &mut [RawEntry],
) {
    if foreign.is_empty() {
        return;
    }
    let mut scopes: HashMap<Die, u32> = shared.into_iter().collect();
    for e in entries.iter().filter(|e| e.kind == NameKind::Inline) {
        let die = Die {
            part: e.part,
            ..Die::of_file(e.unit, e.offset as usize)
        };
        scopes.insert(die, e.scope);
    }
    for &(i, origin) in foreign {
        let mut known = dwarf.origins(origin).filter_map(|die| scopes.get(&die));
        if let Some(scope) = known.find(|scope| **scope != NONE) {
            entries[i].scope = *scope;
        }
    }
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
    /// It has the attribute of abstract entries, whatever its value: constructors are "not inlined"
    /// where they are described, and inlined all the same.
    inline: bool,
    artificial: bool,
    located: bool,
}

fn scan_unit(dwarf: &Dwarf, part: u8, unit: u32, batch: &mut ThreadFindings) {
    let Some(parsed) = dwarf.parse(part, unit) else {
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
    pass.scan();
    pass.complete();
}

/// Maximum depth of entries up to which the pass tells what is around.
const MAX_LEVELS: usize = 1024;

/// What the pass knows of an entry that it is inside of.
#[derive(Clone, Copy)]
struct Level {
    opened: Opened,
    /// Inside a function, or in an entry that has no names of the file's scope.
    local: bool,
    /// It is a namespace, module or class, not code.
    class: bool,
    /// The abstract entry of the function or inlined instance whose code this is.
    origin: Option<Die>,
}

impl Level {
    const UNIT: Level = Level {
        opened: Opened::Scope(NONE),
        local: false,
        class: true,
        origin: None,
    };
}

/// The scope that an entry opens for those inside.
#[derive(Clone, Copy)]
enum Opened {
    Nothing,
    Scope(u32),
    /// That of a function, by its name or by the entry that it completes, until something is found
    /// inside.
    Function(Option<R>, Option<AttributeValue<R>>),
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
    /// Reads all entries: functions count wherever they are (in functions, blocks, classes and
    /// inlined instances too), types and variables only outside functions.
    fn scan(&mut self) -> Option<()> {
        let parsed = self.parsed;
        let mut raw = parsed.entries_raw(None).ok()?;
        // The depth at which the reader started.
        let mut base = 0;
        // What the entries around are, outermost first.
        let mut around: Vec<Level> = Vec::new();
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
                around = vec![Level::UNIT];
                continue;
            }
            // Of entries that are nested too deeply, all have the last level as theirs.
            around.truncate(depth.min(MAX_LEVELS));
            let tag = abbrev.tag();
            let role = match tag {
                // A static member of a class with a constant, before DWARF 5.
                gimli::DW_TAG_member if has_constant(specs) => Role::Name,
                tag => role(tag),
            };
            let outer = *around.last()?;
            let mut level = Level {
                opened: Opened::Nothing,
                local: true,
                ..outer
            };
            if tag == gimli::DW_TAG_inlined_subroutine {
                level.origin = self.instance(&mut raw, specs, offset, outer).ok()?;
            } else if role == Role::None || outer.local && role == Role::Name {
                raw.skip_attributes(specs).ok()?;
            } else {
                let seen = self.read(&mut raw, specs).ok()?;
                level = self.enter(tag, offset, &seen, &mut around);
                let empty = match role {
                    // It has only parameters.
                    Role::Function => seen.declaration,
                    role => role == Role::Name,
                };
                if let Some(to) = seen.sibling.filter(|_| empty && abbrev.has_children())
                    && to > raw.next_offset().0
                {
                    raw = parsed.entries_raw(Some(UnitOffset(to))).ok()?;
                    base = depth.cast_signed();
                    continue;
                }
            }
            if abbrev.has_children() && around.len() < MAX_LEVELS {
                around.push(level);
            }
        }
        Some(())
    }

    /// Reads the attributes of an entry.
    fn read(
        &self,
        raw: &mut EntriesRaw<'_, R>,
        specs: &[AttributeSpecification],
    ) -> gimli::Result<EntryAttrs> {
        let mut seen = EntryAttrs::default();
        for spec in specs {
            if read_attr(spec.name()) {
                let attr = raw.read_attribute(*spec)?;
                self.take(&mut seen, attr.name(), attr.value());
            } else {
                raw.skip_attributes(std::slice::from_ref(spec))?;
            }
        }
        Ok(seen)
    }

    /// Records an entry; returns the level that its children are at.
    fn enter(
        &mut self,
        tag: DwTag,
        offset: usize,
        seen: &EntryAttrs,
        around: &mut [Level],
    ) -> Level {
        let outer = around.last().copied().unwrap_or(Level::UNIT);
        if tag == gimli::DW_TAG_subprogram {
            if seen.placed && self.part == 0 {
                let _ = self.code(offset);
            }
            // What a compiler made of a part of a function has a name of its own.
            let scope = match outer.local && seen.artificial && !outer.class {
                true => NONE,
                false => self.scope(around),
            };
            self.record(tag, offset, seen, scope);
            let die = self.die(offset);
            return Level {
                opened: Opened::Function(seen.name, seen.origin),
                local: true,
                class: false,
                origin: seen.origin.and_then(|o| self.dwarf.refer(die, o)),
            };
        }
        let scope = self.scope(around);
        let opened = match outer.local {
            // Types in functions are not recorded, but functions in them are.
            true => seen.name.and_then(|name| self.open(Some(name), scope)),
            false => self.record(tag, offset, seen, scope),
        };
        Level {
            opened: opened.map_or(Opened::Nothing, Opened::Scope),
            local: outer.local || role(tag) != Role::Scope,
            class: true,
            ..outer
        }
    }

    /// The scope of an entry by the levels around. That of a function is only made when there is
    /// something in it.
    fn scope(&mut self, around: &mut [Level]) -> u32 {
        let mut index = around.len();
        let mut functions = Vec::new();
        let mut scope = NONE;
        while let Some(i) = index.checked_sub(1) {
            index = i;
            match around[i].opened {
                Opened::Nothing => {}
                Opened::Scope(opened) => {
                    scope = opened;
                    break;
                }
                Opened::Function(..) => functions.push(i),
            }
        }
        for i in functions.into_iter().rev() {
            let Opened::Function(name, origin) = around[i].opened else {
                continue;
            };
            let named = match (name, origin) {
                (Some(name), _) => Some((name, Some(scope))),
                (None, origin) => origin.and_then(|o| self.name_of(o)),
            };
            if let Some((name, outer)) = named
                && let Some(opened) = self.open(Some(name), outer.unwrap_or(NONE))
            {
                scope = opened;
            }
            around[i].opened = Opened::Scope(scope);
        }
        scope
    }

    /// Records the origin of an inlined instance, and returns it.
    fn instance(
        &mut self,
        raw: &mut EntriesRaw<'_, R>,
        specs: &[AttributeSpecification],
        offset: usize,
        outer: Level,
    ) -> gimli::Result<Option<Die>> {
        let wanted = |s: &AttributeSpecification| s.name() == gimli::DW_AT_abstract_origin;
        let Some(position) = specs.iter().position(wanted).filter(|_| self.part == 0) else {
            raw.skip_attributes(specs)?;
            return Ok(None);
        };
        raw.skip_attributes(&specs[..position])?;
        let value = raw.read_attribute(specs[position])?.value();
        raw.skip_attributes(&specs[position + 1..])?;
        let die = self.die(offset);
        let Some(origin) = self.dwarf.refer(die, value) else {
            return Ok(None);
        };
        if outer.origin == Some(origin)
            && let Ok(entry) = self.parsed.entry(UnitOffset(offset))
            && self.dwarf.continues(&entry, origin)
        {
            return Ok(Some(origin));
        }
        if let (Ok(origin_offset), Ok(offset)) =
            (u32::try_from(origin.offset), u32::try_from(offset))
        {
            let unit = origin.unit | if origin.part == 0 { 0 } else { PART };
            let row: [u32; INLINED] = [unit, origin_offset, self.unit, offset];
            self.batch.tables.inlined.push(row);
        }
        Ok(Some(origin))
    }

    fn die(&self, offset: usize) -> Die {
        Die {
            part: self.part,
            unit: self.unit,
            offset,
        }
    }

    /// Records the code of a function.
    fn code(&mut self, start: usize) -> Option<()> {
        let mut entry = Entry::null();
        let mut raw = self.parsed.entries_raw(Some(UnitOffset(start))).ok()?;
        raw.read_entry(&mut entry).ok()?;
        let (unit, offset) = (self.unit, u32::try_from(start).ok()?);
        let code = self
            .dwarf
            .code(self.die(start), self.parsed, &entry)
            .into_iter();
        let rows = code.map(|(start, end)| (start, end, unit, offset));
        self.batch.tables.code.extend(rows);
        Some(())
    }

    fn take(&self, seen: &mut EntryAttrs, name: DwAt, value: AttributeValue<R>) {
        let dwarf = self.dwarf.forms(self.part, self.unit);
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
            // A type whose name is only in its type unit.
            gimli::DW_AT_signature if seen.name.is_none() => {
                let unit = self.dwarf.refer(self.die(0), value);
                seen.name = unit.and_then(|die| self.dwarf.name_text(die));
            }
            gimli::DW_AT_inline => seen.inline = true,
            gimli::DW_AT_artificial => seen.artificial = true,
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
            // Link-time optimisation describes functions without an inline attribute.
            gimli::DW_TAG_subprogram if !seen.placed && (seen.inline || !seen.declaration) => {
                NameKind::Inline
            }
            gimli::DW_TAG_subprogram => NameKind::Function,
            gimli::DW_TAG_variable | gimli::DW_TAG_member => NameKind::Variable,
            tag => NameKind::of_type(tag)?,
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
                let opened = seen
                    .name
                    .filter(|_| opens)
                    .and_then(|n| self.open(Some(n), scope));
                if let Some(name) = seen.name.filter(|_| !seen.declaration) {
                    let around = self.batch.paths.get(scope as usize).copied().unwrap_or(0);
                    if self.batch.types.insert((kind, mix(around, name.slice()))) {
                        self.add(name, offset, scope, kind);
                    }
                }
                opened
            }
        }
    }

    fn open(&mut self, name: Option<R>, outer: u32) -> Option<u32> {
        let text = name.map_or(&[][..], |n| n.slice());
        let around = self.batch.paths.get(outer as usize).copied().unwrap_or(0);
        let name = match name {
            Some(n) => location(self.dwarf, (self.part, self.unit), n)?,
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
            unit: self.unit,
        });
        Some(self.batch.tables.scopes.len().fit::<u32>() - 1)
    }

    fn add(&mut self, name: R, offset: usize, scope: u32, kind: NameKind) -> bool {
        let reference = location(self.dwarf, (self.part, self.unit), name);
        let (Some(reference), Ok(offset)) = (reference, u32::try_from(offset)) else {
            return false;
        };
        self.batch.tables.entries.push(RawEntry {
            hash: hash(name.slice()),
            name: reference,
            unit: self.unit,
            offset,
            scope,
            kind,
            part: self.part,
        });
        true
    }

    /// Finds the names of definitions with a separate declaration.
    fn complete(&mut self) {
        for i in 0..self.later.len() {
            let (offset, origin, kind) = self.later[i];
            let Some(kind) = kind else { continue };
            if let Some((name, scope)) = self.name_of(origin)
                && !(kind == NameKind::Function
                    && self.dwarf.is_part(self.die(offset), self.parsed, name))
                && self.add(name, offset, scope.unwrap_or(NONE), kind)
                && scope.is_none()
                && let Some(completed) = self.dwarf.refer(self.die(offset), origin)
            {
                let last = self.batch.tables.entries.len() - 1;
                self.batch.foreign.push((last, completed));
            }
        }
        if self.parsed.header.type_() == gimli::UnitType::Partial {
            let scoped = self.declared.iter().filter(|d| d.2 != NONE);
            let shared: Vec<_> = scoped.map(|d| (self.die(d.0), d.2)).collect();
            self.batch.shared.extend(shared);
        }
    }

    /// The name of an entry that is completed, and its scope if it is in this unit.
    fn name_of(&self, mut origin: AttributeValue<R>) -> Option<(R, Option<u32>)> {
        for _ in 0..MAX_CHAIN {
            let AttributeValue::UnitRef(UnitOffset(offset)) = origin else {
                break;
            };
            if let Ok(i) = self.declared.binary_search_by_key(&offset, |d| d.0) {
                return Some((self.declared[i].1, Some(self.declared[i].2)));
            }
            let Ok(i) = self.later.binary_search_by_key(&offset, |l| l.0) else {
                break;
            };
            origin = self.later[i].1;
        }
        // In another unit: link-time optimisation, or a part that dwz shares.
        let die = self.dwarf.refer(self.die(0), origin)?;
        Some((self.dwarf.name_text(die)?, None))
    }
}

/// What the pass does with an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Records it wherever it is, and what is inside.
    Function,
    /// Opens a scope for what is inside.
    Scope,
    /// Records it outside functions.
    Name,
    None,
}

/// Whether entries of an abbreviation are constants.
fn has_constant(specs: &[gimli::AttributeSpecification]) -> bool {
    specs.iter().any(|s| s.name() == gimli::DW_AT_const_value)
}

fn role(tag: DwTag) -> Role {
    match tag {
        gimli::DW_TAG_subprogram => Role::Function,
        gimli::DW_TAG_namespace
        | gimli::DW_TAG_module
        | gimli::DW_TAG_structure_type
        | gimli::DW_TAG_class_type
        | gimli::DW_TAG_union_type => Role::Scope,
        gimli::DW_TAG_variable
        | gimli::DW_TAG_enumeration_type
        | gimli::DW_TAG_typedef
        | gimli::DW_TAG_base_type => Role::Name,
        _ => Role::None,
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
            | gimli::DW_AT_signature
            | gimli::DW_AT_inline
            | gimli::DW_AT_artificial
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
