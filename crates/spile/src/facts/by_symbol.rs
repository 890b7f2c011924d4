//! Functions of programs by their symbols: names with several symbols, versions, indirect functions.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use spile_debuginfo::relocations::{self, VersionedSymbol};
use spile_debuginfo::{Binding, DebugFile as File, ElfSymbol, ElfSymbols, SymbolKind, demangle};
use spile_glob as glob;
use spile_ir::CodeLocation;
use spile_sema::facts::{FoundLocation, FunctionKind};

use super::ifunc::{Choices, Implementations, IndirectFunctions};

/// Maximum number of implementations that a warning names.
const MOST_SHOWN: usize = 8;

/// A search for functions by their symbols.
pub(super) struct SymbolSearch<'a> {
    path: &'a Arc<str>,
    file: &'a File,
    kind: &'a FunctionKind,
    indirect: &'a IndirectFunctions,
    choices: OnceCell<Choices>,
    seen: BTreeSet<u64>,
    /// What was found.
    pub locations: Vec<FoundLocation>,
    /// Why a symbol that matches has no location.
    pub refused: Option<String>,
    /// Resolvers of indirect functions that match, with the implementations.
    indirect_found: BTreeMap<u64, (String, BTreeSet<u64>)>,
    /// Indirect functions of which all implementations are meant.
    unknown: BTreeMap<String, BTreeSet<u64>>,
}

impl<'a> SymbolSearch<'a> {
    /// A search in a file.
    pub(super) fn new(
        (path, file): (&'a Arc<str>, &'a File),
        kind: &'a FunctionKind,
        indirect: &'a IndirectFunctions,
    ) -> SymbolSearch<'a> {
        SymbolSearch {
            path,
            file,
            kind,
            indirect,
            choices: OnceCell::new(),
            seen: BTreeSet::new(),
            locations: Vec::new(),
            refused: None,
            indirect_found: BTreeMap::new(),
            unknown: BTreeMap::new(),
        }
    }

    /// Adds the functions of a name.
    pub(super) fn named(&mut self, name: &str) {
        for s in self.file.symbols().named(name) {
            self.add(name, s);
        }
    }

    /// Adds the functions whose names, mangled or not, match.
    pub(super) fn matching(&mut self, pattern: &str) {
        if !glob::is_pattern(pattern) {
            self.named(pattern);
        }
        for s in self.file.symbols().all() {
            // Cold parts that the compiler moved away are not functions.
            if s.name.contains(".cold") || s.name.contains(".part.") {
                continue;
            }
            match demangle::short_name(s.name) {
                Some(name) if matches_scoped(pattern, &name) => self.add(&name, s),
                _ if glob::matches(pattern, s.name) => self.add(s.name, s),
                _ => {}
            }
        }
        self.locations
            .sort_by(|a, b| (&a.name, a.address).cmp(&(&b.name, b.address)));
    }

    /// Adds exported functions whose names match. Mangled names do not.
    pub(super) fn exported(&mut self, pattern: &str) {
        // Not all symbols: a large program has hundreds of thousands.
        let exported = ElfSymbols::exported(self.file.image());
        let plain = |s: &&ElfSymbol<'_>| {
            !["_Z", "_R"].iter().any(|m| s.name.starts_with(m)) && glob::matches(pattern, s.name)
        };
        for s in exported.all().iter().filter(plain) {
            self.add(s.name, s);
        }
    }

    /// Adds the functions of a name and a version, `VERSION` or `@VERSION` (the one that programs get
    /// when they are linked today). Returns false if the file has no such version.
    ///
    /// # Errors
    /// When the name has other versions only: which.
    pub(super) fn of_version(&mut self, name: &str, version: &str) -> Result<bool, String> {
        let versions = relocations::versioned(self.file.image());
        let (version, default) = match version.strip_prefix('@') {
            Some(version) => (version, true),
            None => (version, false),
        };
        if !default && !versions.iter().any(|v| v.version == version) {
            return Ok(false);
        }
        let of_name = |v: &&VersionedSymbol<'_>| glob::matches(name, v.name);
        let wanted = |v: &&VersionedSymbol<'_>| v.version == version && (v.default || !default);
        for v in versions.iter().filter(of_name).filter(wanted) {
            let before = self.locations.len();
            let mut symbols = self.file.symbols().starting_at(v.address);
            if let Some(s) = symbols.find(|s| s.name == v.name) {
                self.add(v.name, s);
            }
            for location in &mut self.locations[before..] {
                location.file = Some(version.into());
            }
        }
        let others = versions.iter().filter(of_name).map(|v| match v.default {
            true => format!("`{}@@{}`", v.name, v.version),
            false => format!("`{}@{}`", v.name, v.version),
        });
        let others: Vec<String> = others.take(MOST_SHOWN).collect();
        match self.locations.is_empty() && self.refused.is_none() && !others.is_empty() {
            true => Err(format!("it has no such version, but {}", others.join(", "))),
            false => Ok(true),
        }
    }

    /// Adds the locations of a symbol that a name or a pattern matched.
    fn add(&mut self, name: &str, s: &ElfSymbol<'_>) {
        let exported = s.binding != Binding::Local;
        if *self.kind == FunctionKind::Exported && !exported {
            return;
        }
        match s.kind {
            SymbolKind::Func => self.location(name, s.address),
            SymbolKind::IFunc => self.add_indirect(name, s.address),
            _ => {}
        }
    }

    fn location(&mut self, name: &str, address: u64) {
        let image = self.file.image();
        if let Some(offset) = image.file_offset(address)
            && image.is_code(address)
            && self.seen.insert(address)
        {
            self.locations
                .push(location(self.path, name, address, offset));
        }
    }

    fn choices(&self) -> &Choices {
        self.choices.get_or_init(|| {
            let path = Path::new(&**self.path);
            self.indirect.choices(path, self.file)
        })
    }

    /// Adds the implementations of an indirect function.
    fn add_indirect(&mut self, name: &str, resolver: u64) {
        let code = match self.choices().of(self.file, resolver) {
            Implementations::Chosen(code) => code,
            Implementations::Possible(possible) if !possible.is_empty() => {
                self.unknown.insert(name.into(), possible.clone());
                possible
            }
            Implementations::Possible(_) => {
                self.refused.get_or_insert_with(|| unknown_message(name));
                return;
            }
            Implementations::Vdso => {
                self.refused.get_or_insert_with(|| vdso_message(name));
                return;
            }
        };
        for address in &code {
            self.location(name, *address);
        }
        self.indirect_found.insert(resolver, (name.into(), code));
    }

    /// What a user should know about the indirect functions that were found.
    pub(super) fn warnings(&self, pattern: bool) -> Vec<String> {
        let mut texts = Vec::new();
        if let Some((name, code)) = self.unknown.first_key_value() {
            let shown = code.iter().take(MOST_SHOWN).map(|a| self.shown(*a));
            let shown: Vec<String> = shown.collect();
            let more = match self.unknown.len() {
                1 => format!("`{name}` is an indirect function"),
                n => format!("`{name}` and {} more are indirect functions", n - 1),
            };
            texts.push(format!(
                "{more}, and no running process shows which implementation is called: all that the \
                 resolver can return are probed ({}{})",
                shown.join(", "),
                if code.len() > MOST_SHOWN { ", ..." } else { "" }
            ));
        }
        if !pattern {
            texts.extend(self.shared());
        }
        texts
    }

    /// The warning about functions of other names with the same implementation.
    fn shared(&self) -> Option<String> {
        let functions = || self.indirect_found.values();
        let mut others = BTreeSet::new();
        let symbols = self.file.symbols().all().iter();
        for s in symbols.filter(|s| s.kind == SymbolKind::IFunc) {
            if self.indirect_found.contains_key(&s.address) || s.binding == Binding::Local {
                continue;
            }
            if let Implementations::Chosen(implementations)
            | Implementations::Possible(implementations) =
                self.choices().of(self.file, s.address)
                && functions().any(|(_, probed)| !probed.is_disjoint(&implementations))
            {
                others.insert(format!("`{}`", s.name));
            }
        }
        let (name, _) = functions().next()?;
        let others: Vec<String> = others.into_iter().collect();
        (!others.is_empty()).then(|| {
            format!(
                "`{name}` has the same code as {}: calls of all of them are hits",
                others.join(", ")
            )
        })
    }

    fn shown(&self, address: u64) -> String {
        let mut symbols = self.file.symbols().starting_at(address);
        match symbols.find(|s| s.kind == SymbolKind::Func) {
            Some(s) => format!("`{}`", s.name),
            None => format!("{address:#x}"),
        }
    }
}

/// Adds the locations of symbols to those that debugging information gave, where it has none of the same
/// function.
pub(super) fn add_missing(
    locations: &mut Vec<FoundLocation>,
    file: &File,
    more: Vec<FoundLocation>,
    alias: impl Fn(FoundLocation) -> Option<FoundLocation>,
) {
    let mut addresses: BTreeSet<u64> = locations.iter().map(|p| p.address).collect();
    for location in more {
        // At its start or after its prologue.
        let symbols = file.symbols().starting_at(location.address);
        let size = symbols.map(|s| s.size).max().unwrap_or(0).max(1);
        let end = location.address.saturating_add(size);
        if addresses.range(location.address..end).next().is_some() {
            continue;
        }
        if let Some(location) = alias(location)
            && addresses.insert(location.address)
        {
            locations.push(location);
        }
    }
}

fn unknown_message(name: &str) -> String {
    format!(
        "its code is chosen among several when a program starts (STT_GNU_IFUNC), no running process shows \
         which, and its resolver is not understood; probe the implementations, as \
         `function(\"__{name}_*\")`, or a running program (-x PID)"
    )
}

fn vdso_message(name: &str) -> String {
    format!(
        "programs call code of the kernel for it (vDSO), which cannot be probed; probe the call in the \
         program: `process(\"PROGRAM\").plt(\"{name}\")`"
    )
}

/// Whether a name matches, with all its scopes or only the inner ones.
fn matches_scoped(pattern: &str, name: &str) -> bool {
    let inner = name.match_indices("::").map(|(i, _)| &name[i + 2..]);
    std::iter::once(name)
        .chain(inner)
        .any(|n| glob::matches(pattern, n))
}

/// A location in a program.
pub(super) fn location(path: &Arc<str>, name: &str, address: u64, offset: u64) -> FoundLocation {
    let path = path.clone();
    let location = CodeLocation::File { path, offset };
    FoundLocation::new(address, name.into(), location, address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scoped_names_match() {
        assert!(matches_scoped("b::c", "a::b::c"));
        assert!(matches_scoped("a::*", "a::b::c"));
        assert!(!matches_scoped("b", "a::b::c"));
    }
}
