//! Programs and libraries: which files a script means, which places in them.

use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use spile_debuginfo::{Binding, Module as File, Search, Symbol, SymbolKind, demangle};
use spile_ir::CodePlace;
use spile_kernel::{glob, process};
use spile_sema::facts::{
    CTypeId, CodeQuery, FoundModule, FoundPlace, FunctionKind, Lines, Module, ModuleQuery, Variable,
};

use super::dwarf::{self, Asked};
use super::marks;

/// What `process` without a name means.
#[derive(Debug, Clone, Default)]
pub enum Target {
    /// Nothing.
    #[default]
    None,
    /// The program of this command (`-c`).
    Command(String),
    /// This process (`-x`).
    Pid(u32),
}

/// Files with code.
pub struct Programs {
    target: Target,
    search: Search,
    files: Mutex<HashMap<Arc<str>, Arc<File>>>,
    /// Numbers of their types and places.
    pub known: dwarf::Known,
}

impl Programs {
    /// For a run with that target.
    pub fn new(target: Target) -> Programs {
        Programs {
            target,
            search: Search::from_env(),
            files: Mutex::default(),
            known: dwarf::Known::default(),
        }
    }

    /// The file of that path, opened once.
    fn file(&self, path: &Arc<str>) -> Result<Arc<File>, String> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(path) {
            return Ok(file.clone());
        }
        let file = File::open(Path::new(&**path), &self.search).map_err(|e| e.to_string())?;
        let file = Arc::new(file);
        files.insert(path.clone(), file.clone());
        Ok(file)
    }

    /// As [`spile_sema::facts::Facts::modules`], for programs.
    pub fn modules(&self, query: &ModuleQuery) -> Result<Vec<FoundModule>, String> {
        let plain = |path: PathBuf| FoundModule {
            module: Module::File(path.to_string_lossy().into()),
            pid: None,
        };
        match query {
            ModuleQuery::Path(name) => Ok(named(name)?.into_iter().map(plain).collect()),
            ModuleQuery::Pid(pid) => of_process(*pid),
            ModuleQuery::Target => match &self.target {
                Target::None => Err("`process` without a name is the one of -c or -x".into()),
                Target::Pid(pid) => of_process(*pid),
                Target::Command(command) => {
                    let word = command.split_whitespace().next().unwrap_or("");
                    Ok(named(word)?.into_iter().map(plain).collect())
                }
            },
            ModuleQuery::Library { name, .. } => Ok(named(name)?.into_iter().map(plain).collect()),
            ModuleQuery::KernelModule(name) => Err(format!("{name} is a module of the kernel")),
        }
    }

    /// As [`spile_sema::facts::Facts::places`], for files.
    pub fn places(&self, path: &Arc<str>, query: &CodeQuery) -> Result<Vec<FoundPlace>, String> {
        let file = &self.file(path)?;
        let known = &self.known;
        let asked = Asked { path, file, known };
        match query {
            CodeQuery::Function {
                name,
                file: source,
                lines,
                kind,
                callee,
            } => {
                let source = source.as_deref();
                if let Some(callee) = callee {
                    return asked.callees(name, source, callee);
                }
                let by_symbol =
                    *lines == Lines::Any && source.is_none() && *kind != FunctionKind::Inline;
                match asked.functions(name, source, lines, kind) {
                    Ok(found) if !found.is_empty() || !by_symbol => Ok(found),
                    Err(why) if !by_symbol => Err(why),
                    _ => Ok(functions(path, file, name, kind)),
                }
            }
            CodeQuery::Statement {
                name,
                file,
                lines,
                nearest,
            } => asked.statements(name, file.as_deref(), lines, *nearest),
            CodeQuery::Address { address, .. } => match file.image().file_offset(*address) {
                Some(offset) if file.image().is_code(*address) => {
                    let named = file.symbols().function_at(*address);
                    let name = named.map_or("", |(s, _)| s.name);
                    Ok(vec![asked.describe(place(path, name, *address, offset))])
                }
                _ => Err(format!("{path} has no code at {address:#x}")),
            },
            CodeQuery::Plt(name) => Ok(asked.stubs(name)),
            CodeQuery::Mark { provider, name } => {
                let provider = provider.as_deref();
                Ok(marks::places(path, file.markers(), provider, name))
            }
        }
    }

    /// As [`spile_sema::facts::Facts::place_variables`], for files.
    pub fn variables(&self, path: &Arc<str>, id: u64, ret: bool) -> Result<Vec<Variable>, String> {
        let file = &self.file(path)?;
        if id & marks::MARK != 0 {
            let index = usize::try_from(id & !marks::MARK).unwrap_or(usize::MAX);
            let marker = file.markers().get(index);
            return Ok(marker.map(marks::variables).unwrap_or_default());
        }
        let known = &self.known;
        Asked { path, file, known }.variables(id, ret)
    }

    /// As [`spile_sema::facts::Facts::module_variable`], for files.
    pub fn global(&self, path: &Arc<str>, name: &str, unit: Option<&str>) -> Option<Variable> {
        let file = &self.file(path).ok()?;
        let known = &self.known;
        Asked { path, file, known }.global(name, unit)
    }

    /// As [`spile_sema::facts::Facts::module_type`], for files.
    pub fn type_named(&self, path: &Arc<str>, name: &str) -> Option<CTypeId> {
        let file = &self.file(path).ok()?;
        let known = &self.known;
        Asked { path, file, known }.type_named(name)
    }
}

/// Functions whose names match, by name.
fn functions(path: &Arc<str>, file: &File, pattern: &str, kind: &FunctionKind) -> Vec<FoundPlace> {
    let (image, symbols) = (file.image(), file.symbols());
    let wanted = |s: &&Symbol<'_>| {
        s.kind == SymbolKind::Func
            && (*kind != FunctionKind::Exported || s.binding != Binding::Local)
    };
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    let mut add = |name: &str, s: &Symbol<'_>| {
        if let Some(offset) = image.file_offset(s.address)
            && image.is_code(s.address)
            && seen.insert(s.address)
        {
            found.push(place(path, name, s.address, offset));
        }
    };
    if !glob::is_pattern(pattern) {
        symbols
            .named(pattern)
            .filter(wanted)
            .for_each(|s| add(pattern, s));
    }
    for s in symbols.all().iter().filter(wanted) {
        // Parts of functions that the compiler moved away are no functions.
        if s.name.contains(".cold") || s.name.contains(".part.") {
            continue;
        }
        match demangle::short(s.name) {
            Some(name) if glob::matches(pattern, &name) => add(&name, s),
            _ if glob::matches(pattern, s.name) => add(s.name, s),
            _ => {}
        }
    }
    found.sort_by(|a, b| (&a.name, a.address).cmp(&(&b.name, b.address)));
    found
}

fn place(path: &Arc<str>, name: &str, address: u64, offset: u64) -> FoundPlace {
    FoundPlace {
        id: address,
        name: name.into(),
        file: None,
        line: 0,
        provider: None,
        inlined: false,
        place: CodePlace::File {
            path: path.clone(),
            offset,
        },
        address,
        semaphore: 0,
    }
}

/// The program of a process.
fn of_process(pid: u32) -> Result<Vec<FoundModule>, String> {
    if !process::exists(pid) {
        return Err(format!("there is no process {pid}"));
    }
    let own = PathBuf::from(format!("/proc/{pid}/exe"));
    let path = process::executable(pid)
        .ok_or_else(|| format!("process {pid} has no program, or it may not be read"))?;
    // In another mount namespace the path is another file or none; that of a deleted file too.
    let same = |path: &Path| {
        let (a, b) = (path.metadata().ok()?, own.metadata().ok()?);
        Some((a.dev(), a.ino()) == (b.dev(), b.ino()))
    };
    let inside =
        PathBuf::from(format!("/proc/{pid}/root")).join(path.strip_prefix("/").unwrap_or(&path));
    let path = [path, inside]
        .into_iter()
        .find(|p| same(p) == Some(true))
        .unwrap_or(own);
    Ok(vec![FoundModule {
        module: Module::File(path.to_string_lossy().into()),
        pid: Some(pid),
    }])
}

/// The files that a name or a pattern means: a path, or a name that `$PATH` has.
fn named(name: &str) -> Result<Vec<PathBuf>, String> {
    let found: Vec<PathBuf> = match (glob::is_pattern(name), name.contains('/')) {
        (true, true) => matching(name),
        (true, false) => search_path()
            .flat_map(|d| matching(&format!("{d}/{name}")))
            .collect(),
        (false, true) => vec![PathBuf::from(name)],
        (false, false) => search_path()
            .map(|d| Path::new(&d).join(name))
            .filter(|p| {
                p.metadata()
                    .is_ok_and(|m| m.is_file() && m.mode() & 0o111 != 0)
            })
            .take(1)
            .collect(),
    };
    let mut files = BTreeSet::new();
    let mut why = None;
    for path in found {
        match path.canonicalize() {
            Ok(path) if path.is_file() => {
                files.insert(interpreter(&path).unwrap_or(path));
            }
            Ok(_) => why = Some("it is not a file".to_owned()),
            Err(e) => why = Some(e.to_string()),
        }
    }
    if !files.is_empty() {
        return Ok(files.into_iter().collect());
    }
    Err(match (why, name.contains('/')) {
        (Some(why), _) => format!("cannot find the program `{name}`: {why}"),
        (None, true) => format!("no program matches `{name}`"),
        (None, false) => format!("there is no program `{name}` in $PATH"),
    })
}

/// The program that runs a script, which has no code of its own.
fn interpreter(path: &Path) -> Option<PathBuf> {
    use std::io::Read;
    let mut head = [0; 256];
    let n = std::fs::File::open(path).ok()?.read(&mut head).ok()?;
    let line = head.get(..n)?.strip_prefix(b"#!")?;
    let line = String::from_utf8_lossy(line.split(|b| *b == b'\n').next()?);
    let mut words = line.split_whitespace();
    let first = words.next()?;
    // `#!/usr/bin/env python3`
    let name = match Path::new(first).file_name() {
        Some(env) if env == "env" => words.find(|w| !w.starts_with('-'))?,
        _ => first,
    };
    let path = match name.contains('/') {
        true => PathBuf::from(name),
        false => search_path()
            .map(|d| Path::new(&d).join(name))
            .find(|p| p.is_file())?,
    };
    path.canonicalize().ok()
}

fn search_path() -> impl Iterator<Item = String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders: Vec<String> = path.split(':').map(str::to_owned).collect();
    folders.into_iter().filter(|d| !d.is_empty())
}

/// Programs whose paths match, component by component.
fn matching(pattern: &str) -> Vec<PathBuf> {
    let start = if pattern.starts_with('/') { "/" } else { "." };
    let mut found = vec![PathBuf::from(start)];
    for part in pattern.split('/').filter(|p| !p.is_empty()) {
        found = if glob::is_pattern(part) {
            let entries = |folder: PathBuf| std::fs::read_dir(folder).ok();
            found
                .into_iter()
                .filter_map(entries)
                .flat_map(|entries| entries.filter_map(Result::ok))
                .filter(|e| glob::matches(part, &e.file_name().to_string_lossy()))
                .map(|e| e.path())
                .collect()
        } else {
            found.into_iter().map(|p| p.join(part)).collect()
        };
    }
    let program = |p: &PathBuf| {
        p.metadata()
            .is_ok_and(|m| m.is_file() && m.mode() & 0o111 != 0)
    };
    found.retain(program);
    found.retain(|p| {
        use std::io::Read;
        let mut magic = [0; 4];
        let read = std::fs::File::open(p).and_then(|mut f| f.read_exact(&mut magic));
        read.is_ok() && magic == *b"\x7fELF"
    });
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_for() {
        let shell = named("sh").expect("a shell");
        assert!(shell[0].is_absolute());
        assert_eq!(named("/bin/sh").expect("a shell"), shell);
        assert!(!named("/bin/s[h]").expect("a shell").is_empty());
        assert!(named("no-such-program-at-all").is_err());
        assert!(named("/no/such/*").is_err());
        assert!(of_process(0).is_err());
        let own = of_process(std::process::id()).expect("this");
        assert_eq!(own[0].pid, Some(std::process::id()));
    }

    #[test]
    fn functions_of_this_program() {
        let programs = Programs::new(Target::Pid(std::process::id()));
        let found = programs.modules(&ModuleQuery::Target).expect("this");
        let Module::File(path) = &found[0].module else {
            panic!("{found:?}");
        };
        let query = |name: &str| CodeQuery::Function {
            name: name.into(),
            file: None,
            lines: Lines::Any,
            kind: FunctionKind::Call,
            callee: None,
        };
        let main = programs.places(path, &query("main")).expect("a main");
        assert_eq!(main.len(), 1);
        let here = programs.places(path, &query("*functions_of_this_program*"));
        assert!(!here.expect("this").is_empty());
        assert!(
            programs
                .places(path, &query("nosuch"))
                .expect("none")
                .is_empty()
        );
    }
}
