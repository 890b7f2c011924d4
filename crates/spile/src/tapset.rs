//! The tapset library: the files built into the binary, each of which is read when a name that it
//! defines is looked up, and the files of `-I` folders.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flate2::read::DeflateDecoder;
use spile_plain::files;
use spile_sema::library::{FileReader, Library, NameKind};
use spile_sema::missing::Missing;
use spile_syntax::ast::{self, FileId};
use spile_syntax::diag::Diagnostics;
use spile_syntax::parser::{parse_file, parse_library_file, parse_macros};
use spile_syntax::preproc::{Arguments, MacroLibrary, PreprocEnv};
use spile_syntax::source::Sources;

use crate::passes::script::define;
use crate::report::{Failure, fail};

/// A file of the tapset.
struct TapsetFile {
    name: &'static str,
    /// The text, compressed by the build script.
    packed: &'static [u8],
}

/// The text of a file of the tapset, by its number in the table.
fn text(number: usize) -> String {
    let mut text = String::new();
    if let Some(file) = built_in::FILES.get(number) {
        // The build script wrote it.
        let _ = DeflateDecoder::new(file.packed).read_to_string(&mut text);
    }
    text
}

mod built_in {
    use spile_syntax::preproc::NameIndex as Index;

    use super::TapsetFile;

    include!(concat!(env!("OUT_DIR"), "/tapset.rs"));
}

/// Names of SystemTap's library that this tapset lacks.
pub(crate) static MISSING: Missing = Missing::new(include_str!("../../../tapset/missing.tsv"));

/// Limits (`-D`) that files can use as macros, with their defaults.
const LIMITS: &[(&str, u32)] = &[("MAXSTRINGLEN", 512), ("MAXBACKTRACE", 20)];

/// A tapset with its macros.
pub(crate) struct Tapset {
    /// The public macros of all `.stpm` files.
    pub macros: MacroLibrary,
    /// The scripts of `-I` folders.
    scripts: Vec<FileId>,
    /// The built-in files, in the order of the table.
    built_in: Vec<FileId>,
}

/// The `.stp` and `.stpm` files below a folder, by name.
fn files_below(dir: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let unreadable = |e| unreadable(dir, e);
    let entries = std::fs::read_dir(dir).map_err(unreadable)?;
    let paths = entries.map(|entry| entry.map(|e| e.path()));
    let mut paths: Vec<PathBuf> = paths.collect::<Result<_, _>>().map_err(unreadable)?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            files_below(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "stp" || e == "stpm") {
            files.push(path);
        }
    }
    Ok(())
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    files::open(path)?.read_to_end(&mut text)?;
    Ok(text)
}

/// The error for a folder of `-I`, or a file in it, that cannot be read.
fn unreadable(path: &Path, e: std::io::Error) -> Failure {
    fail(format_args!("{}: {e}", path.display()))
}

/// Opens the tapset and parses the macros of `-I` folders, which every file may use. Built-in macros
/// are parsed when they are used. Files of `-I` folders come before the built-in ones, and so replace
/// them. `defines` are those of `-D`.
pub(crate) fn open(
    sources: &mut Sources,
    env: &PreprocEnv,
    include: &[PathBuf],
    defines: &[String],
    diags: &mut Diagnostics,
) -> Result<Tapset, Failure> {
    let mut tapset = Tapset {
        macros: MacroLibrary::new(),
        scripts: Vec::new(),
        built_in: Vec::new(),
    };
    let mut paths = Vec::new();
    for dir in include {
        files_below(dir, &mut paths)?;
    }
    for path in paths {
        let text = read(&path).map_err(|e| unreadable(&path, e))?;
        let name = path.display().to_string();
        let is_macros = name.ends_with(".stpm");
        let file = sources.add(name, text);
        match is_macros {
            true => tapset.add_macros(sources, file, env, diags),
            false => tapset.scripts.push(file),
        }
    }
    for (number, file) in built_in::FILES.iter().enumerate() {
        let id = sources.add_packed(format!("tapset/{}", file.name), text, number);
        tapset.built_in.push(id);
    }
    let limits: String = LIMITS
        .iter()
        .map(|(name, usual)| {
            let value = define(defines, name).unwrap_or(*usual);
            format!("@define {name} %( {value} %)\n")
        })
        .collect();
    let limits = sources.add_built_in("tapset/limits.stpm", limits.into_bytes());
    tapset.add_macros(sources, limits, env, diags);
    tapset
        .macros
        .add_on_demand(built_in::MACROS, &tapset.built_in);
    Ok(tapset)
}

impl Tapset {
    /// Adds the macros of a file, where none of that name is there; none if it does not parse.
    fn add_macros(
        &mut self,
        sources: &mut Sources,
        file: FileId,
        env: &PreprocEnv,
        diags: &mut Diagnostics,
    ) {
        let mut file_diags = Diagnostics::new();
        let mut macros = parse_macros(sources, file, env, &mut file_diags);
        if diags.append_library(sources.name(file), file_diags) {
            return;
        }
        macros.extend(std::mem::take(&mut self.macros));
        self.macros = macros;
    }

    /// Adds the scripts to a library: those of `-I` folders, and the built-in ones to be read on demand.
    pub(crate) fn add_to(
        self,
        library: &mut Library,
        sources: &mut Sources,
        env: PreprocEnv,
        diags: &mut Diagnostics,
    ) {
        for file in self.scripts {
            let mut file_diags = Diagnostics::new();
            let tree = parse_file(sources, file, &env, &self.macros, &mut file_diags);
            if !diags.append_library(sources.name(file), file_diags) {
                library.add(file, tree, false);
            }
        }
        library.set_missing(&MISSING);
        let args = Arguments::quoted(sources, &env);
        let reader = BuiltIn {
            args,
            files: self.built_in.clone(),
            sources: sources.clone(),
            env,
            macros: self.macros,
        };
        library.add_on_demand(self.built_in, Rc::new(reader));
    }
}

/// The environment for reading built-in files.
struct BuiltIn {
    /// The files in the order of the table.
    files: Vec<FileId>,
    sources: Sources,
    args: Arguments,
    env: PreprocEnv,
    macros: MacroLibrary,
}

impl FileReader for BuiltIn {
    fn files_defining(&self, kind: NameKind, name: &str) -> &[usize] {
        let index = match kind {
            NameKind::Function => built_in::FUNCTIONS,
            NameKind::Global => built_in::GLOBALS,
            NameKind::Alias => built_in::ALIASES,
        };
        let entry = index.binary_search_by_key(&name, |(name, _)| name);
        entry.map_or(&[], |entry| index[entry].1)
    }

    fn read(&self, file: usize) -> (ast::File, Diagnostics) {
        let mut diags = Diagnostics::new();
        let tree = match built_in::FILES[file].name.ends_with(".stpm") {
            // It has only macros, which the preprocessor reads.
            true => ast::File::default(),
            false => {
                let (id, env) = (self.files[file], &self.env);
                let (args, macros) = (&self.args, &self.macros);
                parse_library_file(&self.sources, id, args, env, macros, &mut diags)
            }
        };
        (tree, diags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library() -> (Library, Sources) {
        let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
        let env = crate::passes::parse::preproc_env("6.18.0");
        let tapset = open(&mut sources, &env, &[], &[], &mut diags).expect("no folders");
        let mut library = Library::new();
        tapset.add_to(&mut library, &mut sources, env, &mut diags);
        assert!(!diags.has_errors(), "{}", diags.render(&sources, false));
        (library, sources)
    }

    /// The index alone finds each name that parsing gives.
    #[test]
    fn the_index_has_all_names() {
        let (all, sources) = library();
        all.read_all();
        let problems = all.read_errors();
        assert!(problems.is_empty(), "{}", problems.render(&sources, false));
        assert_eq!(all.files_read(), built_in::FILES.len());
        let (on_demand, _) = library();
        let anyone = FileId::ANYONE;
        let mut names = 0;
        for (file, f) in all.all_functions() {
            let found = on_demand.functions(&f.name.name, file);
            assert!(found.iter().any(|(_, g)| **g == **f), "{}", f.name.name);
            names += 1;
        }
        for name in all.global_names(anyone) {
            assert!(on_demand.global(&name, anyone).is_some(), "{name}");
            names += 1;
        }
        for name in all.alias_names() {
            assert!(on_demand.alias_definition(name).is_some(), "{name}");
            names += 1;
        }
        assert!(names > 500, "{names}");
    }

    /// Each built-in file of macros is right, and the index has all its names.
    #[test]
    fn the_index_has_all_macros() {
        let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
        let env = crate::passes::parse::preproc_env("6.18.0");
        let mut names = Vec::new();
        for (number, file) in built_in::FILES.iter().enumerate() {
            if file.name.ends_with(".stpm") {
                let id = sources.add_packed(file.name, text, number);
                let macros = parse_macros(&mut sources, id, &env, &mut diags);
                names.extend(macros.names().map(str::to_owned));
            }
        }
        assert!(diags.is_empty(), "{}", diags.render(&sources, false));
        names.sort_unstable();
        let index: Vec<&str> = built_in::MACROS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, index);
        let one_file = |(_, files): &(&str, &[usize])| files.len() == 1;
        assert!(built_in::MACROS.iter().all(one_file));
    }

    #[test]
    fn only_the_macros_that_are_used_are_read() {
        let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
        let env = crate::passes::parse::preproc_env("6.18.0");
        let Ok(tapset) = open(&mut sources, &env, &[], &[], &mut diags) else {
            panic!("no folders are read");
        };
        let macros = tapset.macros;
        assert!(macros.get("task").is_none() && macros.get("MAXSTRINGLEN").is_some());
        let text = "probe begin { println(@offsetof(\"list_head\", next)) }";
        let script = sources.add("x.stp".to_owned(), text.as_bytes());
        parse_file(&mut sources, script, &env, &macros, &mut diags);
        assert!(diags.is_empty(), "{}", diags.render(&sources, false));
        // The same file defines both.
        assert!(macros.get("task").is_some() && macros.get("this1").is_none());
        macros.read_all(&sources, &env);
        assert!(macros.names().all(|name| macros.get(name).is_some()));
    }

    /// For system calls too, the table of missing names has only missing ones.
    #[test]
    fn variables_in_the_table_of_missing_names_are_missing() {
        let facts = crate::facts::KernelFacts::new("6.18.0");
        let env = crate::passes::parse::preproc_env("6.18.0");
        let mut count = 0;
        for (call, vars) in MISSING.variables() {
            if !call.starts_with("syscall.") {
                continue;
            }
            for var in vars {
                let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
                let script = format!("probe {call} {{ println({var}) }}");
                let file = sources.add("x.stp".to_owned(), script.clone().into_bytes());
                let tree = parse_file(&mut sources, file, &env, &MacroLibrary::new(), &mut diags);
                let mut library = spile_sema::library::Library::new();
                library.set_missing(&MISSING);
                library.add(file, tree, true);
                spile_sema::probe::resolve_script(&library, &facts, &mut diags);
                let codes: Vec<_> = diags.iter().map(|d| d.code).collect();
                assert_eq!(codes, ["E0326"], "{script}");
                count += 1;
            }
        }
        assert!(count > 0);
    }

    #[test]
    fn only_what_is_needed_is_read() {
        let (library, _) = library();
        let script = FileId::ANYONE;
        assert!(library.functions("exit_of_mine", script).is_empty());
        assert!(library.global("cpu", script).is_none() && library.files_read() == 0);
        assert!(!library.functions("cpu", script).is_empty());
        assert_eq!(library.files_read(), 1);
    }
}
