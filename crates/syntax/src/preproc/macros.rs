//! Libraries of macros: files that are read at once, and files that are read when a name is looked up
//! that they define.

use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;
use spile_cast::Cast;

use super::{Arguments, Preproc, PreprocEnv};
use crate::ast::{FileId, Name, Span};
use crate::codes;
use crate::diag::{Diagnostic, Diagnostics};
use crate::lexer::lex;
use crate::source::Sources;
use crate::token::Token;

/// One `@define`.
#[derive(Debug, Clone)]
pub struct Macro {
    /// Its name without `@`.
    pub name: Name,
    /// Parameter names.
    pub params: Vec<Name>,
    /// Its body.
    pub body: Arc<[Token]>,
    /// The location of its name.
    pub span: Span,
}

/// Names in ascending order, each with the files that define it.
pub type NameIndex = &'static [(&'static str, &'static [usize])];

/// Public macros, from `.stpm` files.
#[derive(Debug, Clone, Default)]
pub struct MacroLibrary {
    /// Those of the user's files.
    user: Macros,
    /// Built-in ones that are read at once.
    built_in: Macros,
    on_demand: OnDemandMacros,
}

/// Files of macros that are read when a name is looked up that they define.
#[derive(Debug, Clone, Default)]
struct OnDemandMacros {
    index: NameIndex,
    /// The files in the order of the index, with their macros once they are read.
    files: Vec<MacroFile>,
}

/// A file of macros, and its macros once they are read.
type MacroFile = (FileId, OnceLock<Macros>);

/// Macros by their names.
pub(crate) type Macros = FxHashMap<Name, Arc<Macro>>;

impl OnDemandMacros {
    fn file_defining(&self, name: &str) -> Option<&MacroFile> {
        let position = self.index.binary_search_by_key(&name, |(name, _)| name);
        self.files.get(*self.index[position.ok()?].1.first()?)
    }

    fn find(&self, name: &str, sources: &Sources, env: &PreprocEnv) -> Option<&Arc<Macro>> {
        let (id, macros) = self.file_defining(name)?;
        let read = || {
            // A test holds that the files have no errors.
            let mut diags = Diagnostics::new();
            let tokens = lex(sources, *id, &mut diags);
            defined_macros(sources, tokens, Arguments::default(), env, &mut diags)
        };
        macros.get_or_init(read).get(name)
    }
}

impl MacroLibrary {
    /// An empty library.
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks a macro up by its name without `@`, among those that are read.
    pub fn get(&self, name: &str) -> Option<&Arc<Macro>> {
        let on_demand = || self.on_demand.file_defining(name)?.1.get()?.get(name);
        let read = self.user.get(name).or_else(|| self.built_in.get(name));
        read.or_else(on_demand)
    }

    /// Looks up the macro that text of the file `origin` means, and reads the file of `sources` that
    /// defines it. A user's macro hides a built-in one of that name, but not from the built-in library.
    pub fn find(
        &self,
        name: &str,
        origin: FileId,
        sources: &Sources,
        env: &PreprocEnv,
    ) -> Option<&Arc<Macro>> {
        let user = || self.user.get(name).filter(|_| !origin.is_built_in());
        let built_in = || self.built_in.get(name);
        let on_demand = || self.on_demand.find(name, sources, env);
        user().or_else(built_in).or_else(on_demand)
    }

    /// Reads all files that are read on demand.
    pub fn read_all(&self, sources: &Sources, env: &PreprocEnv) {
        for (name, _) in self.on_demand.index {
            self.on_demand.find(name, sources, env);
        }
    }

    /// The names, in no particular order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let on_demand = self.on_demand.index.iter().map(|(name, _)| *name);
        let read = self.user.keys().chain(self.built_in.keys());
        read.map(|n| &**n).chain(on_demand)
    }

    /// Adds files to read on demand. They contain only `@define`s, and use no arguments of the
    /// command line. Macros that are there take precedence. `index` gives locations in `files`.
    pub fn add_on_demand(&mut self, index: NameIndex, files: &[FileId]) {
        let files = files.iter().map(|id| (*id, OnceLock::new())).collect();
        self.on_demand = OnDemandMacros { index, files };
    }

    /// Defines a built-in macro without parameters, such as `@MAXSTRINGLEN`; replaces an existing one.
    pub fn define(
        &mut self,
        sources: &mut Sources,
        name: &str,
        text: &str,
        diags: &mut Diagnostics,
    ) {
        let file =
            sources.add_built_in(format!("<definition of {name}>"), text.as_bytes().to_vec());
        let body = lex(sources, file, diags).into();
        let span = Span::new(file, 0, text.len().fit::<u32>());
        let name: Name = name.into();
        let m = Macro {
            name: name.clone(),
            params: Vec::new(),
            body,
            span,
        };
        self.built_in.insert(name, Arc::new(m));
    }

    /// Adds the macros of another library; those of `other` take precedence.
    pub fn extend(&mut self, other: MacroLibrary) {
        self.user.extend(other.user);
        self.built_in.extend(other.built_in);
    }

    /// Whether it has no macros.
    pub fn is_empty(&self) -> bool {
        self.user.is_empty() && self.built_in.is_empty() && self.on_demand.index.is_empty()
    }
}

/// Lexes and preprocesses a `.stpm` file, which contains only `@define`s.
pub fn macro_file(
    sources: &mut Sources,
    file: FileId,
    env: &PreprocEnv,
    diags: &mut Diagnostics,
) -> MacroLibrary {
    let tokens = lex(sources, file, diags);
    let args = Arguments::collect(sources, &tokens, env, diags);
    let macros = defined_macros(sources, tokens, args, env, diags);
    let mut library = MacroLibrary::new();
    match file.is_built_in() {
        true => library.built_in = macros,
        false => library.user = macros,
    }
    library
}

fn defined_macros(
    sources: &Sources,
    tokens: Vec<Token>,
    args: Arguments,
    env: &PreprocEnv,
    diags: &mut Diagnostics,
) -> Macros {
    let none = MacroLibrary::new();
    let mut local = Macros::default();
    let mut p = Preproc::new(sources, args, env, &none, &mut local, diags);
    p.push_file(tokens);
    p.run();
    if let Some(first) = p.out.first() {
        let d = Diagnostic::error(codes::NOT_A_DEFINE, "a macro library only holds `@define`");
        let label = format!("{} is not part of a macro", first.kind.describe());
        diags.push(d.label(first.span, label));
    }
    local
}
