//! Indirect functions (`STT_GNU_IFUNC`): the implementation that a program calls.
//!
//! The loader runs a function's resolver once for each word through which a file calls it, and writes
//! the address of the implementation there. The words of running processes thus show the choice, which
//! depends on the processor. Where no process has the file, all implementations are meant.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File as OsFile;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use spile_debuginfo::relocations::{self, SlotValue, VersionedSymbol};
use spile_debuginfo::{DebugFile as File, Image, SymbolKind, ifunc};
use spile_kernel::process::{self, Mapping};

use super::paths;

/// What is known about indirect functions so far.
#[derive(Default)]
pub(super) struct IndirectFunctions {
    /// By file: the processes that the script names.
    processes: Mutex<BTreeMap<PathBuf, BTreeSet<u32>>>,
    /// By file.
    choices: Mutex<HashMap<PathBuf, Choices>>,
}

/// The choices of a file's resolvers, by the resolvers' addresses.
#[derive(Debug, Clone, Default)]
pub(super) struct Choices {
    /// Linked addresses of implementations, as running processes show them.
    chosen: BTreeMap<u64, BTreeSet<u64>>,
    /// Resolvers whose choice is code of the kernel.
    vdso: BTreeSet<u64>,
}

/// The implementations of an indirect function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Implementations {
    /// Those that running processes call.
    Chosen(BTreeSet<u64>),
    /// All that its resolver can return; the choice is not known.
    Possible(BTreeSet<u64>),
    /// Code of the kernel (vDSO), which cannot be probed.
    Vdso,
}

impl Choices {
    /// The implementations of one resolver.
    pub(super) fn of(&self, file: &File, resolver: u64) -> Implementations {
        match self.chosen.get(&resolver) {
            Some(chosen) => Implementations::Chosen(chosen.clone()),
            None if self.vdso.contains(&resolver) => Implementations::Vdso,
            None => {
                let addresses = ifunc::implementations(file, resolver);
                Implementations::Possible(addresses.into_iter().collect())
            }
        }
    }
}

impl IndirectFunctions {
    /// Notes that the script means this process where it names a file.
    pub(super) fn runs_in(&self, file: &Path, pid: u32) {
        let mut processes = self.processes.lock();
        let processes = processes.as_mut().unwrap_or_else(|e| e.get_mut());
        processes.entry(file.to_owned()).or_default().insert(pid);
    }

    /// The choices of a file's resolvers in the processes that the script names, or else in any process.
    pub(super) fn choices(&self, path: &Path, file: &File) -> Choices {
        let mut known = self.choices.lock().unwrap_or_else(PoisonError::into_inner);
        let choices = known.entry(path.to_owned());
        choices.or_insert_with(|| self.read(path, file)).clone()
    }

    fn read(&self, path: &Path, file: &File) -> Choices {
        let named = self
            .processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let named = named.get(path).cloned().unwrap_or_default();
        let Some(mut search) = ChoiceSearch::new(path, file) else {
            return Choices::default();
        };
        for pid in &named {
            search.process(*pid);
        }
        for pid in process::all() {
            if search.is_complete() {
                break;
            }
            if !named.contains(&pid) {
                search.process(pid);
            }
        }
        search.choices
    }
}

/// The names of an indirect function: (name, version).
type Names<'a> = HashMap<&'a str, Vec<(u64, Option<&'a str>)>>;

/// A search for the choices of a file's resolvers.
struct ChoiceSearch<'a> {
    file: &'a File,
    name: &'a str,
    identity: (u64, u64),
    /// Resolvers by the names of their functions.
    names: Names<'a>,
    resolvers: BTreeSet<u64>,
    /// By mapped file: the words that hold an implementation, with the resolver.
    words: HashMap<PathBuf, Vec<(u64, u64)>>,
    choices: Choices,
}

impl<'a> ChoiceSearch<'a> {
    /// `None` if the file has no indirect functions.
    fn new(path: &'a Path, file: &'a File) -> Option<ChoiceSearch<'a>> {
        let versions = relocations::versioned(file.image());
        let mut names = Names::new();
        let mut resolvers = BTreeSet::new();
        let symbols = file.symbols().all().iter();
        for s in symbols.filter(|s| s.kind == SymbolKind::IFunc) {
            resolvers.insert(s.address);
            let same = |v: &&VersionedSymbol<'_>| v.name == s.name && v.address == s.address;
            let mut versions = versions.iter().filter(same).map(|v| v.version).peekable();
            let resolvers_of_name = names.entry(s.name).or_default();
            if versions.peek().is_none() {
                resolvers_of_name.push((s.address, None));
            }
            resolvers_of_name.extend(versions.map(|v| (s.address, Some(v))));
        }
        let search = ChoiceSearch {
            file,
            name: path.file_name()?.to_str()?,
            identity: process::file_identity(path)?,
            names,
            resolvers,
            words: HashMap::new(),
            choices: Choices::default(),
        };
        (!search.resolvers.is_empty()).then_some(search)
    }

    /// Whether all resolvers' choices are known.
    fn is_complete(&self) -> bool {
        let known = |r: &u64| self.choices.chosen.contains_key(r) || self.choices.vdso.contains(r);
        self.resolvers.iter().all(known)
    }

    /// Reads the choices that a process shows, if it has the file.
    fn process(&mut self, pid: u32) -> Option<()> {
        let mappings = process::mappings(pid).ok()?;
        let code: Vec<&Mapping> = mappings.iter().filter(|m| m.executable).collect();
        let named = |m: &&&Mapping| m.path.rsplit('/').next() == Some(self.name);
        let mapping = code.iter().find(|m| {
            named(m)
                && process::file_identity(&paths::seen_by(pid, Path::new(&m.path)))
                    == Some(self.identity)
        })?;
        let own_bias = bias(self.file.image(), mapping)?;
        let own_path = mapping.path.clone();
        let vdso = code.iter().find(|m| m.path == "[vdso]");
        let memory = OsFile::open(format!("/proc/{pid}/mem")).ok()?;
        for m in code.iter().filter(|m| m.path.starts_with('/')) {
            let path = paths::seen_by(pid, Path::new(&m.path));
            let Ok(image) = Image::open(&path) else {
                continue;
            };
            let Some(bias) = bias(&image, m) else {
                continue;
            };
            if !self.words.contains_key(&path) {
                let words = self.words_of(&image, m.path == own_path);
                self.words.insert(path.clone(), words);
            }
            for (slot, resolver) in self.words.get(&path).into_iter().flatten() {
                let mut word = [0; 8];
                if memory
                    .read_exact_at(&mut word, bias.wrapping_add(*slot))
                    .is_err()
                {
                    continue;
                }
                let address = u64::from_le_bytes(word);
                if vdso.is_some_and(|m| (m.start..m.end).contains(&address)) {
                    self.choices.vdso.insert(*resolver);
                    continue;
                }
                // A word of a function that was not called yet leads to a stub, one of a function that
                // another file replaces to that file.
                let address = address.wrapping_sub(own_bias);
                if address != *resolver && ifunc::begins_function(self.file, address) {
                    let chosen = self.choices.chosen.entry(*resolver).or_default();
                    chosen.insert(address);
                }
            }
        }
        Some(())
    }

    /// The words of a file that hold an implementation, with the resolver.
    fn words_of(&self, image: &Image, searched: bool) -> Vec<(u64, u64)> {
        let mut words = Vec::new();
        for r in relocations::of(image) {
            match r.value {
                SlotValue::Chosen(resolver) if searched && self.resolvers.contains(&resolver) => {
                    words.push((r.slot, resolver));
                }
                SlotValue::Symbol { name, version } => {
                    let resolvers = self.names.get(name).into_iter().flatten();
                    let same = |v: &Option<&str>| v.is_none() || version.is_none() || *v == version;
                    let resolvers = resolvers.filter(|(_, v)| same(v));
                    words.extend(resolvers.map(|(resolver, _)| (r.slot, *resolver)));
                }
                _ => {}
            }
        }
        words
    }
}

/// The distance from linked addresses to those in memory, by the mapping of a file's code.
fn bias(image: &Image, m: &Mapping) -> Option<u64> {
    let length = m.end.checked_sub(m.start)?;
    let in_code = |offset: u64| offset.checked_sub(m.offset).is_some_and(|d| d < length);
    let mut code = image.segments().iter().filter(|s| s.executable);
    let code = code.find(|s| in_code(s.offset))?;
    let address = m.start.wrapping_add(code.offset - m.offset);
    Some(address.wrapping_sub(code.address))
}
