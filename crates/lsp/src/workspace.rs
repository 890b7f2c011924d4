//! The server's environment.

use std::path::PathBuf;

use spile_sema::analyse::AnalysisOptions;
use spile_sema::facts::Facts;
use spile_sema::library::Library;
use spile_syntax::ast::LiteralBytes;
use spile_syntax::preproc::{MacroLibrary, PreprocEnv};
use spile_syntax::source::Sources;

/// The constant tables of tapset functions, by name.
pub type ConstTables = dyn Fn(&str) -> Option<Vec<LiteralBytes>>;

/// Everything except the documents. Each analysis works on copies of `sources` and `library`, with
/// the document added.
pub struct Workspace {
    /// The texts of the tapset.
    pub sources: Sources,
    /// The tapset, indexed.
    pub library: Library,
    /// Its macros.
    pub macros: MacroLibrary,
    /// Makes the environment of the preprocessor's conditions for these arguments of the script.
    pub env: Box<dyn Fn(Vec<String>) -> PreprocEnv>,
    /// The machine.
    pub facts: Box<dyn Facts>,
    /// The constant tables of tapset functions.
    pub tables: Box<ConstTables>,
    /// Settings of the run, such as `-D`.
    pub options: AnalysisOptions,
    /// The locations of the tapset's files.
    pub locations: Box<dyn TapsetLocations>,
    /// The reason why only the syntax is checked, if the kernel's types are unavailable.
    pub blind: Option<String>,
}

/// The locations of the built-in tapset's files.
pub trait TapsetLocations {
    /// The path that a file has or would have, by its name in `sources`.
    fn path(&self, name: &str) -> Option<PathBuf>;
    /// Makes sure that a file with this text exists; returns its path.
    fn provide(&self, name: &str, text: &str) -> Option<PathBuf>;
}
