//! Programs and libraries: the files that a script names, and the locations in them.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use spile_debuginfo::copies::{BEGINS_WITH_LOOP, begins_with_loop};
use spile_debuginfo::go_entry;
use spile_debuginfo::{DebugFile as File, ElfSymbol, SearchPaths};
use spile_glob as glob;
use spile_runtime::{FileState, TargetProcess};
use spile_sema::facts::{
    CodeQuery, FoundLocation, FoundModule, FunctionKind, LinePattern, ModuleQuery, ProbeModule,
    Variable,
};

use super::breakpoints::BreakpointDecisions;
use super::by_symbol::{SymbolSearch, add_missing, location};
use super::code_owner::CodeOwner;
use super::dwarf::{FileTable, OpenedFile, QueriedFile};
use super::ifunc::IndirectFunctions;
use super::location_notes::LocationNotes;
use super::marks;
use super::paths;
use super::returns::ReturnDecisions;
use super::types::similar_type;

/// A file, and its state when it was opened.
type Opened = (Arc<OpenedFile>, Option<FileState>);

/// A root directory other than this process's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Root {
    /// The directory, as this process sees it.
    folder: PathBuf,
    /// It is that of another system, with its own libraries and debugging information.
    whole: bool,
}

impl Root {
    /// The root directory of a process.
    pub(crate) fn of_process(pid: u32) -> Root {
        Root {
            folder: PathBuf::from(format!("/proc/{pid}/root")),
            whole: false,
        }
    }

    /// The root directory of another system.
    pub(crate) fn system(folder: PathBuf) -> Root {
        Root {
            folder,
            whole: true,
        }
    }
}

/// Files with code.
pub(crate) struct Programs {
    target: TargetProcess,
    /// The root directory of paths, if it is not this process's.
    root: Option<Root>,
    search: SearchPaths,
    files: Mutex<HashMap<Arc<str>, Opened>>,
    /// Ids of their types and locations.
    pub file_table: FileTable,
    /// The decisions about probes at returns.
    pub returns: ReturnDecisions,
    /// The decisions about breakpoints.
    pub breakpoints: BreakpointDecisions,
    indirect: IndirectFunctions,
    /// Functions whose hits are not exactly their calls.
    pub inexact: LocationNotes,
    /// Warnings about the latest answers.
    warnings: Mutex<Vec<String>>,
    /// Programs with lost debugging information that a warning told of.
    told: Mutex<HashSet<Arc<str>>>,
}

impl Programs {
    /// For a run with that target on the kernel of that release. Paths are resolved below `root`.
    pub(crate) fn new(target: TargetProcess, root: Option<Root>, release: &str) -> Programs {
        let mut search = SearchPaths::from_env();
        let system = root.as_ref().filter(|r| r.whole);
        search.roots.extend(system.map(|r| r.folder.clone()));
        Programs {
            target,
            root,
            search,
            files: Mutex::default(),
            file_table: FileTable::default(),
            returns: ReturnDecisions::default(),
            breakpoints: BreakpointDecisions::new(release),
            indirect: IndirectFunctions::default(),
            inexact: LocationNotes::default(),
            warnings: Mutex::default(),
            told: Mutex::default(),
        }
    }

    fn root_folder(&self) -> Option<&Path> {
        self.root.as_ref().map(|r| &*r.folder)
    }

    /// See [`spile_sema::facts::SessionFacts::has_target`].
    pub(crate) fn has_target(&self) -> bool {
        !matches!(self.target, TargetProcess::None)
    }

    /// The files that were read, with their state at that time.
    pub(crate) fn read_files(&self) -> Vec<(PathBuf, FileState)> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let state =
            |(path, (_, state)): (&Arc<str>, &Opened)| Some((PathBuf::from(&**path), (*state)?));
        files.iter().filter_map(state).collect()
    }

    /// The file of that path, opened once.
    pub(super) fn opened(&self, path: &Arc<str>) -> Result<Arc<OpenedFile>, String> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((file, _)) = files.get(path) {
            return Ok(file.clone());
        }
        let state = FileState::read(Path::new(&**path));
        let file = File::open(Path::new(&**path), &self.search).map_err(|e| e.to_string())?;
        let opened = Arc::new(OpenedFile {
            file: Arc::new(file),
            home: CodeOwner::Program(path.clone()),
        });
        files.insert(path.clone(), (opened.clone(), state));
        Ok(opened)
    }

    /// See [`spile_sema::facts::CodeFacts::modules`], for programs.
    pub(crate) fn modules(&self, query: &ModuleQuery) -> Result<Vec<FoundModule>, String> {
        let modules = self.find(query)?;
        for FoundModule { module, pid } in &modules {
            let ProbeModule::File(path) = module else {
                continue;
            };
            let path = Path::new(&**path);
            self.returns.runs_in(path, *pid);
            if let Some(pid) = pid {
                self.indirect.runs_in(path, *pid);
            }
        }
        Ok(modules)
    }

    fn find(&self, query: &ModuleQuery) -> Result<Vec<FoundModule>, String> {
        let module = |path: &Path, pid| FoundModule {
            module: ProbeModule::File(path.to_string_lossy().into()),
            pid,
        };
        let named = |name: &str| -> Result<Vec<FoundModule>, String> {
            let root = self.root_folder();
            let paths = paths::find_by_name(name, root).or_else(|why| {
                let loaded = paths::loaded_by_name(name, root);
                self.instead_of(name, loaded).ok_or(why)
            })?;
            let paths = self.with_functions(paths);
            // With -x every point is about one process.
            let pid = match self.target {
                TargetProcess::Pid(pid) => Some(pid),
                _ => None,
            };
            Ok(paths.iter().map(|p| module(p, pid)).collect())
        };
        let process = |pid| Ok(vec![module(&paths::of_process(pid)?, Some(pid))]);
        match query {
            ModuleQuery::Path(name) => named(name),
            ModuleQuery::Pid(pid) => process(*pid),
            ModuleQuery::Target => match &self.target {
                TargetProcess::None => {
                    Err("`process` without a name means the process of -c or -x".into())
                }
                TargetProcess::Pid(pid) => process(*pid),
                TargetProcess::Command(command) => {
                    named(command.split_whitespace().next().unwrap_or(""))
                }
            },
            ModuleQuery::Library {
                program: ProbeModule::File(path),
                pid,
                name,
            } => {
                let system = self.root.as_ref().filter(|r| r.whole);
                let root = system.map(|r| &*r.folder);
                let libraries = |name: &str| paths::libraries(Path::new(&**path), *pid, name, root);
                let paths = libraries(name).or_else(|why| {
                    let loaded = paths::system_library(name).and_then(|n| libraries(n).ok());
                    let loaded = loaded.and_then(|paths| self.instead_of(name, paths));
                    loaded.ok_or(why)
                })?;
                let paths = self.with_functions(paths);
                Ok(paths.iter().map(|p| module(p, *pid)).collect())
            }
            ModuleQuery::Library { program, .. } => Err(format!("{program} has no libraries")),
            ModuleQuery::Headers(names) => Err(format!("<{}> is a header", names.join("><"))),
            ModuleQuery::KernelModule(name) => Err(format!("{name} is a module of the kernel")),
        }
    }

    /// Libraries that stand for a name that matches no file, with a warning; `None` if there are none.
    fn instead_of(&self, name: &str, libraries: Vec<PathBuf>) -> Option<Vec<PathBuf>> {
        let shown: Vec<String> = libraries.iter().map(|p| p.display().to_string()).collect();
        let shown = shown.first().map(|_| shown.join("`, `"))?;
        self.warn(vec![format!(
            "`{name}` matches no file: `{shown}` is probed, which programs load by that name"
        )]);
        Some(libraries)
    }

    /// Libraries with the C library instead of those whose functions moved there, with a warning.
    fn with_functions(&self, libraries: Vec<PathBuf>) -> Vec<PathBuf> {
        let instead = |path: PathBuf| match paths::moved_to_libc(&path) {
            Some(libc) => {
                self.warn(vec![format!(
                    "`{}` has no functions since glibc 2.34: `{}` is probed, which has them now",
                    path.display(),
                    libc.display()
                )]);
                libc
            }
            None => path,
        };
        let mut libraries: Vec<PathBuf> = libraries.into_iter().map(instead).collect();
        libraries.dedup();
        libraries
    }

    /// See [`spile_sema::facts::CodeFacts::locations`], for files.
    pub(crate) fn locations(
        &self,
        path: &Arc<str>,
        query: &CodeQuery,
    ) -> Result<Vec<FoundLocation>, String> {
        let opened = self.opened(path)?;
        let asked = opened.queried(&self.file_table);
        let file = asked.file;
        let locations = self.matching(path, &asked, query)?;
        let moved = |location, to| asked.moved(location, to);
        let harmless = &self.breakpoints;
        let locations = harmless.harmless(Path::new(&**path), file, query, locations, moved)?;
        if let CodeQuery::Function {
            kind, part: None, ..
        } = query
        {
            let returns = *kind == FunctionKind::Return;
            self.note_inexact(
                path,
                file,
                locations.iter().filter(|p| p.inlined || !returns),
            );
        }
        Ok(locations)
    }

    /// Notes functions whose hits are not exactly their calls.
    fn note_inexact<'f>(
        &self,
        path: &str,
        file: &File,
        locations: impl Iterator<Item = &'f FoundLocation>,
    ) {
        self.inexact.add(locations.filter_map(|location| {
            let why = match &location.inexact {
                Some(why) => why,
                None if !location.inlined && begins_with_loop(file, location.address) => {
                    BEGINS_WITH_LOOP
                }
                None => return None,
            };
            Some(format!("{} in {path}: {why}", location.name))
        }));
    }

    /// The locations that a query matches.
    fn matching(
        &self,
        path: &Arc<str>,
        asked: &QueriedFile<'_>,
        query: &CodeQuery,
    ) -> Result<Vec<FoundLocation>, String> {
        let file = asked.file;
        if let CodeQuery::Function { .. } | CodeQuery::Statement { .. } = query {
            self.warn_of_missing(path, file);
        }
        match query {
            CodeQuery::Function { kind, .. } => {
                let mut locations = self.functions(path, asked, query)?;
                if *kind == FunctionKind::Return {
                    locations = self
                        .returns
                        .safe_returns(Path::new(&**path), file, locations)?;
                }
                if file.image().is_go() {
                    locations
                        .iter_mut()
                        .for_each(|f| behind_stack_check(file, f));
                }
                Ok(locations)
            }
            CodeQuery::Statement { .. } => asked.locations(query),
            CodeQuery::Address { address, .. } => match file.image().file_offset(*address) {
                Some(offset) if file.image().is_code(*address) => {
                    let named = file.symbols().function_at(*address);
                    let name = named.map_or("", |(s, _)| s.name);
                    Ok(vec![asked.describe(location(path, name, *address, offset))])
                }
                _ => Err(format!("{path} has no code at {address:#x}")),
            },
            CodeQuery::Plt(name) => Ok(asked.stubs(name)),
            CodeQuery::Mark { provider, name } => {
                let provider = provider.as_deref();
                Ok(marks::locations(path, file.markers(), provider, name))
            }
        }
    }

    /// Functions by debugging information and by symbols: a name means all functions that have it.
    fn functions(
        &self,
        path: &Arc<str>,
        asked: &QueriedFile<'_>,
        query: &CodeQuery,
    ) -> Result<Vec<FoundLocation>, String> {
        let CodeQuery::Function {
            name,
            file: source,
            lines,
            kind,
            part,
        } = query
        else {
            return Ok(Vec::new());
        };
        let file = asked.file;
        if *lines != LinePattern::Any || part.is_some() || *kind == FunctionKind::Inline {
            return asked.locations(query);
        }
        let mut search = SymbolSearch::new((path, file), kind, &self.indirect);
        let alias = |location| asked.by_alias(location, kind);
        let pattern = glob::is_pattern(name);
        let by_debuginfo = match source {
            Some(version) if search.of_version(name, version)? => None,
            Some(_) => return asked.locations(query),
            None => Some(asked.locations(query)),
        };
        let mut locations = Vec::new();
        let mut why = None;
        match by_debuginfo {
            None => {}
            Some(Ok(by_debuginfo)) if !by_debuginfo.is_empty() => {
                locations = by_debuginfo;
                match pattern {
                    true => search.exported(name),
                    false => search.named(name),
                }
            }
            Some(other) => {
                // An error of the search for debugging information may be the reason.
                why = other.err().filter(|_| !file.notes().is_empty());
                search.matching(name);
            }
        }
        let more = std::mem::take(&mut search.locations);
        let described = !locations.is_empty();
        add_missing(&mut locations, file, more, |location| {
            let address = location.address;
            let location = alias(location);
            // A pattern does not match code without debugging information in a file that has some.
            (!(pattern && described) || location.id != address).then_some(location)
        });
        if locations.is_empty() {
            let why = why.map(|why| format!("no symbol `{name}`, and {why}"));
            if let Some(why) = search.refused.take().or(why) {
                return Err(why);
            }
        }
        self.warn(search.warnings(pattern));
        Ok(locations)
    }

    /// Warns once of debugging information that was split off and is lost. Where all of it is, errors
    /// say so.
    fn warn_of_missing(&self, path: &Arc<str>, file: &File) {
        let Some(missing) = file.dwarf().and_then(|d| d.missing_units()) else {
            return;
        };
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if !missing.every_unit && told.insert(path.clone()) {
            self.warn(vec![format!("{path}: {missing}")]);
        }
    }

    /// Keeps warnings for [`spile_sema::facts::SessionFacts::take_warnings`].
    fn warn(&self, texts: Vec<String>) {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        warnings.extend(texts);
    }

    /// See [`spile_sema::facts::SessionFacts::take_warnings`].
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// See [`spile_sema::facts::CodeFacts::location_variables`], for files.
    pub(crate) fn variables(
        &self,
        path: &Arc<str>,
        id: u64,
        ret: bool,
    ) -> Result<Vec<Variable>, String> {
        let opened = self.opened(path)?;
        if id & marks::MARK != 0 {
            let index = usize::try_from(id & !marks::MARK).unwrap_or(usize::MAX);
            let marker = opened.file.markers().get(index);
            return Ok(marker.map(marks::variables).unwrap_or_default());
        }
        opened.queried(&self.file_table).variables(id, ret)
    }

    /// See [`spile_sema::facts::TypeFacts::similar_type`].
    pub(crate) fn similar_type(&self, path: &Arc<str>, name: &str) -> Option<String> {
        let opened = self.opened(path).ok()?;
        let names = opened.file.dwarf()?.type_names();
        similar_type(name, names.iter().map(|n| &**n))
    }

    /// See [`spile_sema::facts::CodeFacts::is_stripped`].
    pub(crate) fn is_stripped(&self, path: &Arc<str>) -> bool {
        let Ok(opened) = self.opened(path) else {
            return false;
        };
        let file = &opened.file;
        // Symbols for the linker stay in a stripped program.
        let is_static = |s: &ElfSymbol<'_>| !s.dynamic;
        file.dwarf().is_none() && !file.symbols().functions().any(is_static)
    }
}

/// Moves a function of Go behind its stack check, where a call arrives once.
fn behind_stack_check(file: &File, function: &mut FoundLocation) {
    let address = go_entry::behind_stack_check(file, function.address);
    if let spile_ir::CodeLocation::File { offset, .. } = &mut function.location {
        *offset += address - function.address;
        function.address = address;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_this_program_are_found() {
        let programs = Programs::new(TargetProcess::Pid(std::process::id()), None, "6.18");
        let found = programs.modules(&ModuleQuery::Target).expect("this");
        let ProbeModule::File(path) = &found[0].module else {
            panic!("{found:?}");
        };
        let query = |name: &str| CodeQuery::Function {
            name: name.into(),
            file: None,
            lines: LinePattern::Any,
            kind: FunctionKind::Call,
            part: None,
        };
        let main = programs.locations(path, &query("main")).expect("a main");
        assert!(main.iter().any(|p| &*p.name == "main"), "{main:?}");
        let here = programs.locations(path, &query("*functions_of_this_program*"));
        assert!(!here.expect("this").is_empty());
        assert!(
            programs
                .locations(path, &query("nosuch"))
                .expect("none")
                .is_empty()
        );
    }
}
