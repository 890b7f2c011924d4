//! What the server is given.

use std::path::PathBuf;

use spile_sema::analyse::Options;
use spile_sema::facts::Facts;
use spile_sema::library::Library;
use spile_syntax::ast::Bytes;
use spile_syntax::preproc::{MacroLibrary, PreprocEnv};
use spile_syntax::source::Sources;

/// The constant tables of tapset functions, by name.
pub type Tables = dyn Fn(&str) -> Option<Vec<Bytes>>;

/// Everything but the documents. Each analysis works on copies of `sources` and `library`, with
/// the document added.
pub struct World {
    /// The texts of the tapset.
    pub sources: Sources,
    /// The tapset, indexed.
    pub library: Library,
    /// Its macros.
    pub macros: MacroLibrary,
    /// What the preprocessor's conditions see, with these arguments of the script.
    pub env: Box<dyn Fn(Vec<String>) -> PreprocEnv>,
    /// The machine.
    pub facts: Box<dyn Facts>,
    /// Tables for tapset functions.
    pub tables: Box<Tables>,
    /// `-D` and the like.
    pub options: Options,
    /// Where an editor finds the tapset's files.
    pub places: Box<dyn Places>,
    /// Why only the syntax is checked, where nothing is known about the kernel's types.
    pub blind: Option<String>,
}

/// Where the files of the tapset are, which is built into the program.
pub trait Places {
    /// The path that a file has or would have, by its name in `sources`.
    fn path(&self, name: &str) -> Option<PathBuf>;
    /// Makes sure that a file with this text is there; its path.
    fn provide(&self, name: &str, text: &str) -> Option<PathBuf>;
}
