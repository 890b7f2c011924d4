//! `spile lsp`: gives the language server the tapset and the machine.
//!
//! The tapset is built into the program. When an editor goes to a definition in it, the file is
//! written to the user's cache, `$XDG_CACHE_HOME/spile/tapset`. Nothing else is ever written.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use spile_debuginfo::trust;
use spile_kernel::machine as host;
use spile_lsp::workspace::{TapsetLocations, Workspace};
use spile_sema::analyse::AnalysisOptions;
use spile_sema::library::Library;
use spile_syntax::diag::Diagnostics;
use spile_syntax::source::Sources;

use crate::cli::Lsp;
use crate::facts::KernelFacts;
use crate::passes::analyse::{kernel_types, table};
use crate::passes::parse::preproc_env;
use crate::passes::script::pairs;
use crate::report::{Failure, fail, print_stderr};
use crate::tapset;

/// Serves until the editor ends; the result is the exit status that the protocol requires.
pub(crate) fn run(cli: &Lsp) -> Result<u8, Failure> {
    let release = host::release();
    let (guru, kernel) = (cli.guru, release.clone());
    let env = move |args: Vec<String>| {
        let mut env = preproc_env(&kernel).with_args(args);
        env.guru = guru;
        env
    };
    let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
    // Absolute paths, which differ from the names of built-in files and mean the same to the
    // editor.
    let whole = |p: &PathBuf| p.canonicalize().unwrap_or_else(|_| p.clone());
    let include: Vec<PathBuf> = cli.include.iter().map(whole).collect();
    let plain = env(Vec::new());
    let lib = tapset::open(&mut sources, &plain, &include, &cli.defines, &mut diags)?;
    // Completion shows the parameters of all macros.
    lib.macros.read_all(&sources, &plain);
    let macros = lib.macros.clone();
    let mut library = Library::new();
    lib.add_to(&mut library, &mut sources, plain, &mut diags);
    // Documents have copies of the library.
    library.read_all();
    diags.append(library.read_errors());
    if !diags.is_empty() {
        // Editors write a server's standard error to a log.
        print_stderr(diags.render(&sources, false));
    }
    let blind = match kernel_types() {
        Err(Failure::Other(why)) => Some(why),
        _ => None,
    };
    let workspace = Workspace {
        sources,
        library,
        macros,
        env: Box::new(env),
        facts: Box::new(KernelFacts::new(&release)),
        tables: Box::new(table),
        options: AnalysisOptions {
            defines: pairs(&cli.defines, 'D')?,
            guru,
            keep_unused: true,
            ..AnalysisOptions::default()
        },
        locations: Box::new(TapsetFiles(cache_dir("tapset"))),
        blind,
    };
    let clean = spile_lsp::server::stdio(&workspace).map_err(fail)?;
    Ok(u8::from(!clean))
}

/// A directory of the user's cache, if the environment names the cache.
pub(crate) fn cache_dir(name: &str) -> Option<PathBuf> {
    let var = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let cache = var("XDG_CACHE_HOME").or_else(|| Some(var("HOME")?.join(".cache")))?;
    Some(cache.join("spile").join(name))
}

/// The locations of tapset files: those of `-I` directories where they are, the built-in ones in the
/// cache.
struct TapsetFiles(Option<PathBuf>);

impl TapsetLocations for TapsetFiles {
    fn path(&self, name: &str) -> Option<PathBuf> {
        match name.strip_prefix("tapset/") {
            Some(built_in) => Some(self.0.as_ref()?.join(built_in)),
            None => Some(name.into()),
        }
    }

    fn provide(&self, name: &str, text: &str) -> Option<PathBuf> {
        let path = self.path(name)?;
        if !name.starts_with("tapset/") {
            return Some(path);
        }
        let is_trusted = path.parent().is_some_and(trust::is_own);
        let is_written = is_trusted && std::fs::read(&path).is_ok_and(|t| t == text.as_bytes());
        if !is_written {
            write(&path, text).ok()?;
        }
        Some(path)
    }
}

/// Writes a file atomically, and read-only, because edits would have no effect.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let folder = &trust::own_folder(folder)?;
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    new.write_all(text.as_bytes())?;
    new.as_file()
        .set_permissions(std::fs::Permissions::from_mode(0o444))?;
    new.persist(path)?;
    Ok(())
}
