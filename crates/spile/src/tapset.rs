//! The tapset library: the files built into the binary, of which a script gets those that it needs,
//! and those of `-I` folders.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use spile_sema::missing::Missing;
use spile_syntax::ast::{self, FileId};
use spile_syntax::diag::Diagnostics;
use spile_syntax::parser::{parse_file, parse_macros};
use spile_syntax::preproc::{MacroLibrary, PreprocEnv};
use spile_syntax::source::Sources;

use crate::passes::define;

pub use index::words;

mod index;

/// A file of the tapset.
struct File {
    name: &'static str,
    text: &'static str,
    /// See [`index::defined`].
    defines: &'static [&'static str],
    /// The files that it leads to, itself among them.
    needs: &'static [usize],
}

mod built_in {
    use super::File;

    include!(concat!(env!("OUT_DIR"), "/tapset.rs"));
}

/// Names of SystemTap's library that are not in the tapset.
pub const MISSING: Missing = Missing::new(include_str!("../../../tapset/missing.tsv"));

/// Limits (`-D`) that files can ask for as macros, with what they are without the option.
const LIMITS: &[(&str, u32)] = &[("MAXSTRINGLEN", 512), ("MAXBACKTRACE", 20)];

/// A tapset with its macros parsed.
pub struct Tapset {
    /// The public macros of all `.stpm` files.
    pub macros: MacroLibrary,
    /// The scripts of `-I` folders.
    own: Vec<FileId>,
    /// The built-in scripts, with their places in the table.
    built_in: Vec<(FileId, usize)>,
    /// What the files of `-I` folders name.
    words: HashSet<Vec<u8>>,
}

/// A folder of `-I`, or a file in it, cannot be read.
#[derive(Debug)]
pub struct Unreadable {
    /// Which.
    pub path: PathBuf,
    /// Why.
    pub error: std::io::Error,
}

/// The `.stp` and `.stpm` files below a folder, by name.
fn files_below(dir: &Path, found: &mut Vec<PathBuf>) -> Result<(), Unreadable> {
    let fail = |error| Unreadable {
        path: dir.into(),
        error,
    };
    let mut entries: Vec<_> = std::fs::read_dir(dir)
        .map_err(fail)?
        .collect::<Result<Vec<_>, _>>()
        .map_err(fail)?
        .into_iter()
        .map(|e| e.path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files_below(&path, found)?;
        } else if path.extension().is_some_and(|e| e == "stp" || e == "stpm") {
            found.push(path);
        }
    }
    Ok(())
}

/// Reads the tapset and parses its macros, which every file may use; files of `-I` folders come
/// before the built-in ones and so take their place. `defines` are those of `-D`.
pub fn open(
    sources: &mut Sources,
    env: &PreprocEnv,
    include: &[PathBuf],
    defines: &[String],
    diags: &mut Diagnostics,
) -> Result<Tapset, Unreadable> {
    let mut tapset = Tapset {
        macros: MacroLibrary::new(),
        own: Vec::new(),
        built_in: Vec::new(),
        words: HashSet::new(),
    };
    let mut paths = Vec::new();
    for dir in include {
        files_below(dir, &mut paths)?;
    }
    for path in paths {
        let text = std::fs::read(&path).map_err(|error| Unreadable {
            path: path.clone(),
            error,
        })?;
        tapset.words.extend(words(&text).map(<[u8]>::to_vec));
        let name = path.display().to_string();
        let is_macros = name.ends_with(".stpm");
        let file = sources.add(name, text);
        match is_macros {
            true => tapset.add_macros(sources, file, env, diags),
            false => tapset.own.push(file),
        }
    }
    for (at, file) in built_in::FILES.iter().enumerate() {
        let id = sources.add(format!("tapset/{}", file.name), file.text.as_bytes());
        match file.name.ends_with(".stpm") {
            true => tapset.add_macros(sources, id, env, diags),
            false => tapset.built_in.push((id, at)),
        }
    }
    let limits: String = LIMITS
        .iter()
        .map(|(name, usual)| {
            let value = define(defines, name).unwrap_or(*usual);
            format!("@define {name} %( {value} %)\n")
        })
        .collect();
    let limits = sources.add("tapset/limits.stpm".to_owned(), limits.into_bytes());
    tapset.add_macros(sources, limits, env, diags);
    Ok(tapset)
}

impl Tapset {
    fn add_macros(
        &mut self,
        sources: &mut Sources,
        file: FileId,
        env: &PreprocEnv,
        diags: &mut Diagnostics,
    ) {
        let mut found = parse_macros(sources, file, env, diags);
        found.extend(std::mem::take(&mut self.macros));
        self.macros = found;
    }

    /// Parses the scripts: all, or of the built-in ones those that texts with these words, and the
    /// files of `-I` folders, can lead to. Also gives the names that the others define.
    pub fn scripts(
        &self,
        sources: &mut Sources,
        env: &PreprocEnv,
        needed: Option<&HashSet<&[u8]>>,
        diags: &mut Diagnostics,
    ) -> (Vec<(FileId, ast::File)>, Vec<&'static str>) {
        let mut parse = |file: FileId| (file, parse_file(sources, file, env, &self.macros, diags));
        let mut files: Vec<_> = self.own.iter().map(|file| parse(*file)).collect();
        let needed = needed.filter(|_| !files.iter().any(|(_, tree)| has_patterns(tree)));
        let named = |name: &&str| {
            let name = name.as_bytes();
            needed.is_none_or(|words| words.contains(name)) || self.words.contains(name)
        };
        let wanted: HashSet<usize> = built_in::FILES
            .iter()
            .filter(|file| needed.is_none() || file.defines.iter().any(named))
            .flat_map(|file| file.needs.iter().copied())
            .collect();
        let built_in = self.built_in.iter().filter(|(_, at)| wanted.contains(at));
        files.extend(built_in.map(|(file, _)| parse(*file)));
        let all = built_in::FILES.iter().enumerate();
        let others = all.filter(|(at, _)| !wanted.contains(at));
        let names = others.flat_map(|(_, file)| file.defines.iter().copied());
        (files, names.collect())
    }
}

/// Whether a file has probe points that begin with a pattern, which any alias may match.
pub fn has_patterns(file: &ast::File) -> bool {
    let pattern = |p: &ast::ProbePoint| {
        let first = p.components.first().map_or("", |c| &*c.name);
        words(first.as_bytes()).next() != Some(first.as_bytes())
    };
    file.items.iter().any(|item| match item {
        ast::Item::Probe(p) => p.points.iter().any(pattern),
        ast::Item::Alias(a) => a.points.iter().any(pattern),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the table says of each file holds what parsing it gives.
    #[test]
    fn the_index_has_all_names() {
        let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
        let env = crate::passes::preproc_env("6.18.0");
        let tapset = open(&mut sources, &env, &[], &[], &mut diags).unwrap_or_else(|u| {
            panic!("{}: {}", u.path.display(), u.error);
        });
        let (trees, left) = tapset.scripts(&mut sources, &env, None, &mut diags);
        assert!(!diags.has_errors(), "{}", diags.render(&sources, false));
        assert_eq!((trees.len(), left.len()), (tapset.built_in.len(), 0));
        let mut names = 0;
        for ((_, tree), (_, at)) in trees.into_iter().zip(&tapset.built_in) {
            let file = &built_in::FILES[*at];
            assert!(
                file.needs.contains(at) && !has_patterns(&tree),
                "{}",
                file.name
            );
            let mut defines = |name: &str| {
                names += 1;
                assert!(file.defines.contains(&name), "{name} of {}", file.name);
            };
            for item in &tree.items {
                match item {
                    ast::Item::Function(f) => defines(&f.name.name),
                    ast::Item::Global(g) => g.vars.iter().for_each(|v| defines(&v.name.name)),
                    ast::Item::Alias(a) => {
                        let first = a.names.iter().filter_map(|n| n.components.first());
                        first.for_each(|c| defines(&c.name));
                    }
                    ast::Item::Probe(_) | ast::Item::Embedded(_) => {}
                }
            }
        }
        assert!(names > 500, "{names}");
        for name in tapset.macros.names() {
            let known = |f: &File| f.defines.contains(&name);
            let limit = LIMITS.iter().any(|(n, _)| *n == name);
            assert!(limit || built_in::FILES.iter().any(known), "@{name}");
        }
    }

    /// Of system calls, too, the table of missing names has only what is missing.
    #[test]
    fn missing_variables_of_system_calls() {
        let facts = crate::facts::KernelFacts::new("6.18.0");
        let env = crate::passes::preproc_env("6.18.0");
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
                library.set_missing(MISSING);
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
    fn only_what_is_needed_is_parsed() {
        let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
        let env = crate::passes::preproc_env("6.18.0");
        let Ok(tapset) = open(&mut sources, &env, &[], &[], &mut diags) else {
            panic!("nothing is read from files");
        };
        let mut count = |text: &[u8]| {
            let words = words(text).collect();
            let (files, _) = tapset.scripts(&mut sources, &env, Some(&words), &mut diags);
            files.len()
        };
        assert_eq!(count(b"probe begin { exit_of_mine() }"), 0);
        let one = count(b"probe begin { println(cpu()) }");
        assert!(one > 0 && one < 8, "{one}");
    }
}
