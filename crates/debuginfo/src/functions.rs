//! Functions by name and their inlined instances, with the addresses to probe.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::caches::Index;
use crate::caches::ScopeKind;
use crate::copies::{CopyStarts, Inexact, InlinedCopy};
use crate::dwarf::Dwarf;
use crate::index::{ANONYMOUS, NameKind, NamedEntry};
use crate::lines::path_matches;
use crate::unit::{Die, Entry, Unit, contains, number_of};

/// A name or pattern.
#[derive(Clone, Copy)]
pub struct Pattern<'a> {
    /// The text. Components between `::` name the scopes around; the last one is the name itself.
    pub text: &'a str,
    /// The matcher of a pattern against a name. `None` compares for equality.
    pub glob: Option<fn(&str, &str) -> bool>,
}

impl<'a> Pattern<'a> {
    /// This name and no other.
    #[must_use]
    pub fn exact(text: &'a str) -> Pattern<'a> {
        Pattern { text, glob: None }
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        self.matches_one(self.text, name)
    }

    fn matches_one(&self, pattern: &str, name: &str) -> bool {
        match self.glob {
            Some(glob) => glob(pattern, name),
            None => pattern == name,
        }
    }

    /// Whether the pattern matches an entry of that name inside these scopes (innermost first).
    /// Outer scopes that the pattern omits are allowed.
    pub(crate) fn matches_in(
        &self,
        name: &str,
        scopes: impl FnOnce() -> Vec<&'static str>,
    ) -> bool {
        let mut parts = self.text.rsplit("::");
        let last = parts.next().unwrap_or("");
        if last.len() == self.text.len() {
            return self.matches_one(last, name);
        }
        if !self.matches_one(last, name) && self.glob.is_none() {
            return false;
        }
        let scopes = scopes();
        let mut around = scopes.iter().peekable();
        let by_part = self.matches_one(last, name)
            && parts.all(|p| {
                // As in the source, an anonymous namespace can be left out.
                while around
                    .next_if(|s| **s == ANONYMOUS && p != ANONYMOUS)
                    .is_some()
                {}
                match around.next() {
                    Some(s) => self.matches_one(p, s),
                    // After a leading `::` there is no outer scope.
                    None => p.is_empty(),
                }
            });
        // A `*` can also match several scopes.
        by_part
            || self.glob.is_some() && {
                let outer = scopes.iter().rev().copied();
                self.matches_one(
                    self.text,
                    &outer.chain([name]).collect::<Vec<_>>().join("::"),
                )
            }
    }
}

/// A location where a function begins: the function itself or an inlined instance.
#[derive(Debug, Clone)]
pub struct FunctionLocation {
    /// Its name in the source.
    pub name: Arc<str>,
    /// Its name with the scopes around (`ns::Class::name`).
    pub qualified: Arc<str>,
    /// The entry with the code.
    pub die: Die,
    /// Address of the first instruction.
    pub entry: u64,
    /// Address where parameters can be read: after the prologue in code that stores them first,
    /// otherwise the first instruction.
    pub body: u64,
    /// Whether it is an inlined instance.
    pub inlined: bool,
    /// Source file of the declaration, whole path.
    pub file: Option<Arc<str>>,
    /// Line of the declaration; 0 when unknown.
    pub line: u32,
    /// Whether it has external linkage.
    pub external: bool,
    /// Why hits there are not exactly the calls: compilers change loops around inlined copies.
    pub inexact: Option<Inexact>,
}

/// The kinds of locations wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocationKinds {
    /// Out-of-line functions.
    pub outline: bool,
    /// Inlined instances.
    pub inlined: bool,
}

impl Dwarf {
    pub(crate) fn index(&self) -> &Index {
        match self.kept_index() {
            Some(index) => index,
            None => self.caches.index.get_or_init(|| Index::build(self)),
        }
    }

    fn kept_index(&self) -> Option<&Index> {
        self.caches
            .kept
            .get_or_init(|| Index::cached(self))
            .as_ref()
    }

    /// The index, if it was made or cached.
    pub(crate) fn ready_index(&self) -> Option<&Index> {
        self.kept_index().or_else(|| self.caches.index.get())
    }

    /// Functions by name and by a pattern for (an end of) the path of their source file, in order
    /// of address.
    #[must_use]
    pub fn functions(
        &self,
        name: Pattern<'_>,
        file: Option<Pattern<'_>>,
        kinds: LocationKinds,
    ) -> Vec<FunctionLocation> {
        let mut locations = Vec::new();
        // Abstract entries whose instances are wanted.
        let mut inlines: HashMap<Die, Arc<FunctionLocation>> = HashMap::new();
        let mut entries = self.find_functions(name);
        // Unit by unit, so that each is parsed once.
        entries.sort_by_key(|f| f.die);
        let index = self.index();
        let mut files = HashMap::new();
        let mut from = (0, 0);
        let units = file.map(|f| self.units_with(f));
        for entry in entries {
            let in_unit = |units: &Vec<bool>| {
                entry.die.part != 0 || units.get(entry.die.unit as usize).is_some_and(|u| *u)
            };
            if units.as_ref().is_some_and(|u| !in_unit(u)) {
                continue;
            }
            self.release_passed(entry.die, &mut from);
            let outline = kinds.outline && entry.kind == NameKind::Function;
            let inlined = kinds.inlined && index.instances(entry.die).next().is_some();
            if !outline && !inlined {
                continue;
            }
            if file.is_some_and(|f| !self.in_file(entry.die, f, &mut files)) {
                continue;
            }
            let Some(location) = self.function(&entry) else {
                continue;
            };
            if inlined {
                inlines.insert(entry.die, Arc::new(location.clone()));
            }
            if outline {
                locations.push(location);
            }
        }
        if !inlines.is_empty() {
            self.instances(&inlines, &mut locations);
        }
        self.keep_haskell_entries(&mut locations);
        locations.sort_by_key(|p| (p.entry, p.inlined, p.die));
        locations
    }

    /// For each unit of the file itself, whether it has a source file that matches the pattern.
    pub(crate) fn units_with(&self, file: Pattern<'_>) -> Vec<bool> {
        let last = file.text.rsplit('/').next().unwrap_or("");
        let (any, end) = match last.strip_prefix('*') {
            Some(end) if file.glob.is_some() => (true, end),
            _ => (false, last),
        };
        let certain = file.glob.is_none() || !end.contains(['*', '?', '[', '\\']);
        // Most files already differ in the last part of the path.
        let may_be = |name: &str| match (certain, any) {
            (false, _) => true,
            (true, true) => name.ends_with(end),
            (true, false) => name == end,
        };
        let whole = |path: &str| path_matches(path, &|p| file.matches(p));
        let dwarf = &self.part(0).dwarf;
        let mut matching = vec![false; self.headers(0).len()];
        for units in self.chunks(0) {
            for unit in units.clone() {
                let parsed = self.parse_own(unit);
                matching[unit as usize] =
                    parsed.is_some_and(|u| crate::lines::has_file(dwarf, &u, &may_be, &whole));
            }
            self.release_units(0, &units);
        }
        matching
    }

    /// Whether an entry is declared in a file that matches the pattern. `known` caches the answers
    /// by unit and file number.
    fn in_file(
        &self,
        die: Die,
        file: Pattern<'_>,
        known: &mut HashMap<(u8, u32, u64), bool>,
    ) -> bool {
        let matches = |path: &str| path_matches(path, &|p| file.matches(p));
        let Some((_, entry)) = self.entry(die) else {
            return false;
        };
        let Some((holder, number)) = self.declaring_file(die, &entry) else {
            let (file, _) = self.function_location(die, &entry);
            return matches(file.as_deref().unwrap_or(""));
        };
        let key = (holder.part, holder.unit, number);
        *known.entry(key).or_insert_with(|| {
            let path = self.file_name(holder, number);
            matches(path.as_deref().unwrap_or(""))
        })
    }

    /// The number of the file of a declaration, and an entry of the unit that the number belongs
    /// to.
    fn declaring_file(&self, die: Die, entry: &Entry) -> Option<(Die, u64)> {
        let (holder, value) = self.attr(die, entry, gimli::DW_AT_decl_file)?;
        let number = match value {
            gimli::AttributeValue::FileIndex(i) => i,
            v => v.udata_value()?,
        };
        Some((holder, number))
    }

    fn find_functions(&self, name: Pattern<'_>) -> Vec<NamedEntry> {
        let index = self.index();
        let kinds = [NameKind::Function, NameKind::Inline];
        if name.glob.is_none() {
            return self.named(name.text, &kinds);
        }
        // Equal names are adjacent.
        let mut last = ("", name.matches(""));
        let simple = !name.text.contains("::");
        let fits = |f: &NamedEntry| {
            if simple && last.0 != f.name {
                last = (f.name, name.matches(f.name));
            }
            match simple {
                true => last.1,
                false => name.matches_in(f.name, || index.scopes(self, f)),
            }
        };
        index.all(self, &kinds).filter(fits).collect()
    }

    /// The entries of a name, which may name scopes around them, too.
    pub(crate) fn named(&self, name: &str, kinds: &[NameKind]) -> Vec<NamedEntry> {
        let (index, pattern) = (self.index(), Pattern::exact(name));
        let last = name.rsplit("::").next().unwrap_or("");
        let fits = |f: &NamedEntry| {
            kinds.contains(&f.kind) && pattern.matches_in(f.name, || index.scopes(self, f))
        };
        index.named(self, last).filter(fits).collect()
    }

    /// A function of the index. Its addresses are 0 if it has no out-of-line code.
    fn function(&self, named: &NamedEntry) -> Option<FunctionLocation> {
        let location = self.locate_code(named.die, named.name, self.index().scopes(self, named))?;
        (named.kind != NameKind::Function || location.entry != 0).then_some(location)
    }

    /// The code of a function or of an inlined instance, with its scopes, innermost first. Its
    /// addresses are 0 if it has none.
    pub(crate) fn locate_code<'n>(
        &self,
        die: Die,
        name: &'n str,
        mut scopes: Vec<&'n str>,
    ) -> Option<FunctionLocation> {
        let (unit, entry) = self.entry(die)?;
        let code = self.code(die, &unit, &entry);
        let start = self.entry_pc(die, &unit, &entry, &code);
        let body = match start {
            Some(start) if entry.tag() == gimli::DW_TAG_subprogram => {
                self.after_prologue(die, &unit, &entry, start, &code)
            }
            start => start.unwrap_or(0),
        };
        scopes.reverse();
        scopes.push(name);
        let (file, line) = self.function_location(die, &entry);
        let external = self.attr(die, &entry, gimli::DW_AT_external);
        Some(FunctionLocation {
            name: name.into(),
            qualified: scopes.join("::").into(),
            die,
            entry: start.unwrap_or(0),
            body,
            inlined: entry.tag() == gimli::DW_TAG_inlined_subroutine,
            file,
            line,
            external: external.is_some_and(|(_, v)| v == gimli::AttributeValue::Flag(true)),
            inexact: None,
        })
    }

    /// The function that begins at an address, whatever the symbol there is called.
    #[must_use]
    pub fn function_starting_at(&self, address: u64) -> Option<FunctionLocation> {
        let scopes = self.scopes_at(address);
        let scope = scopes.iter().find(|s| s.kind == ScopeKind::Function)?;
        let name = self.name(scope.die, &self.entry(scope.die)?.1)?;
        let mut location = self.locate_code(scope.die, name, Vec::new())?;
        location.external = true;
        (location.entry == address).then_some(location)
    }

    /// The first instruction of an entry's code that is executed.
    pub(crate) fn start_of(&self, die: Die) -> Option<u64> {
        let (unit, entry) = self.entry(die)?;
        self.entry_pc(die, &unit, &entry, &self.code(die, &unit, &entry))
    }

    /// The first instruction that is executed.
    pub(crate) fn entry_pc(
        &self,
        die: Die,
        unit: &Unit,
        entry: &Entry,
        code: &[(u64, u64)],
    ) -> Option<u64> {
        let first = code.first()?.0;
        let address = |name| self.address(die, unit, entry, name);
        let given = address(gimli::DW_AT_entry_pc).or_else(|| {
            // DWARF 5: relative to the entry's first address.
            let distance = entry.attr_value(gimli::DW_AT_entry_pc)?.udata_value()?;
            let base = match entry.has_attr(gimli::DW_AT_low_pc) {
                true => address(gimli::DW_AT_low_pc)?,
                false => first,
            };
            base.checked_add(distance)
        });
        let inside = |a: &u64| contains(code, *a);
        Some(given.filter(inside).unwrap_or(first))
    }

    /// File and line of a declaration.
    pub(crate) fn declaration_location(&self, die: Die, entry: &Entry) -> (Option<Arc<str>>, u32) {
        let file = self
            .declaring_file(die, entry)
            .and_then(|(holder, number)| self.file_name(holder, number));
        let line = self
            .attr(die, entry, gimli::DW_AT_decl_line)
            .and_then(|(_, v)| v.udata_value())
            .and_then(|l| u32::try_from(l).ok());
        (file, line.unwrap_or(0))
    }

    /// File and line of a function: of its declaration or else of its first instruction. What
    /// compilers make, as the bodies of lambdas and of parallel regions, has no declaration.
    pub(crate) fn function_location(&self, die: Die, entry: &Entry) -> (Option<Arc<str>>, u32) {
        let declared = self.declaration_location(die, entry);
        if declared.0.is_some() {
            return declared;
        }
        let first = |die: Die| {
            let (unit, entry) = self.entry(die)?;
            let code = self.code(die, &unit, &entry);
            let start = self.entry_pc(die, &unit, &entry, &code)?;
            let end = code.iter().find(|r| (r.0..r.1).contains(&start))?.1;
            let table = self.lines(die.part, die.unit)?;
            let row = *table.row_at(start)?;
            let rows = std::iter::once(&row).chain(table.within(start, end));
            let row = rows.into_iter().find(|r| r.line != 0 && !r.end)?;
            Some((Some(table.file(u64::from(row.file))?.clone()), row.line))
        };
        let copy = || self.index().instances(die).next();
        let location = first(die).or_else(|| first(copy()?));
        location.unwrap_or(declared)
    }

    /// The inlined instances of abstract entries.
    fn instances(
        &self,
        wanted: &HashMap<Die, Arc<FunctionLocation>>,
        locations: &mut Vec<FunctionLocation>,
    ) {
        let index = self.index();
        let mut instances: Vec<(Die, &Arc<FunctionLocation>)> = Vec::new();
        for (origin, function) in wanted {
            instances.extend(index.instances(*origin).map(|die| (die, function)));
        }
        // Unit by unit, so that each is parsed once.
        instances.sort_by_key(|i| i.0);
        let mut from = (0, 0);
        let mut groups: BTreeMap<(u64, Die), Vec<InlinedCopy>> = BTreeMap::new();
        for (die, function) in instances {
            self.release_passed(die, &mut from);
            if let Some(copy) = self.copy(die, function.clone()) {
                let key = (copy.around, function.die);
                groups.entry(key).or_default().push(copy);
            }
        }
        // In order of the functions around, each of which is decoded once.
        let mut starts = CopyStarts::new(self);
        for group in groups.values() {
            starts.add(group, locations);
        }
    }

    /// File and line of the call that an inlined instance replaces.
    pub(crate) fn call_location(&self, die: Die, entry: &Entry) -> (Option<Arc<str>>, u32) {
        let file = match entry.attr_value(gimli::DW_AT_call_file) {
            Some(gimli::AttributeValue::FileIndex(i)) => Some(i),
            v => v.and_then(|v| v.udata_value()),
        };
        let file = file.and_then(|f| self.file_name(die, f));
        let line = number_of(entry, gimli::DW_AT_call_line).and_then(|l| u32::try_from(l).ok());
        (file, line.unwrap_or(0))
    }
}
