//! The tapset library: the files built into the binary, and those of `-I` folders.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use spile_syntax::ast::{self, FileId};
use spile_syntax::diag::Diagnostics;
use spile_syntax::parser::{parse_file, parse_macros};
use spile_syntax::preproc::{MacroLibrary, PreprocEnv};
use spile_syntax::source::Sources;

use crate::passes::define;

mod built_in {
    include!(concat!(env!("OUT_DIR"), "/tapset.rs"));
}

/// Limits (`-D`) that files can ask for as macros, with what they are without the option.
const LIMITS: &[(&str, u32)] = &[("MAXSTRINGLEN", 512), ("MAXBACKTRACE", 20)];

/// A tapset, parsed.
pub struct Tapset {
    /// The files with their trees.
    pub files: Vec<(FileId, ast::File)>,
    /// The public macros of all `.stpm` files.
    pub macros: MacroLibrary,
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

/// Parses the whole tapset. Macros come first, because every file may use them; files of `-I`
/// folders come before the built-in ones and so take their place. `defines` are those of `-D`.
pub fn load(
    sources: &mut Sources,
    env: &PreprocEnv,
    include: &[PathBuf],
    defines: &[String],
    diags: &mut Diagnostics,
) -> Result<Tapset, Unreadable> {
    let mut texts: Vec<(String, Cow<'static, [u8]>)> = Vec::new();
    let mut paths = Vec::new();
    for dir in include {
        files_below(dir, &mut paths)?;
    }
    for path in paths {
        let text = std::fs::read(&path).map_err(|error| Unreadable {
            path: path.clone(),
            error,
        })?;
        texts.push((path.display().to_string(), text.into()));
    }
    for (name, text) in built_in::FILES {
        texts.push((format!("tapset/{name}"), Cow::Borrowed(text.as_bytes())));
    }
    let limits: String = LIMITS
        .iter()
        .map(|(name, usual)| {
            let value = define(defines, name).unwrap_or(*usual);
            format!("@define {name} %( {value} %)\n")
        })
        .collect();
    texts.push(("tapset/limits.stpm".into(), limits.into_bytes().into()));

    let mut macros = MacroLibrary::new();
    let mut scripts = Vec::new();
    for (name, text) in texts {
        let is_macros = name.ends_with(".stpm");
        let file = sources.add(name, text);
        if is_macros {
            let mut found = parse_macros(sources, file, env, diags);
            found.extend(macros);
            macros = found;
        } else {
            scripts.push(file);
        }
    }
    let files = scripts
        .into_iter()
        .map(|file| (file, parse_file(sources, file, env, &macros, diags)))
        .collect();
    Ok(Tapset { files, macros })
}
