//! The files of a run, indexed: functions, globals, aliases and probes by name.
//!
//! User files see their own items and the library's public ones; library files see their own
//! and the library's public ones, never the user's. A user's function hides the library's of
//! the same name and number of parameters. Private items are visible in their own file only.
//!
//! Files of the library can be read on demand ([`FileReader`]): the first look-up of a name that a file
//! defines reads it, and queries for all names (for listings and for suggestions) read all files.

use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use rustc_hash::{FxHashMap, FxHashSet};
use spile_cast::Cast;
use spile_syntax::ast::{
    self, Alias, AliasKind, Expr, FileId, Function, GlobalVar, Item, Name, ProbePoint, StmtBlock,
};
use spile_syntax::diag::Diagnostics;

use crate::missing::Missing;
use crate::probe::handler::HandlerPart;
use crate::probe::mentions::point_functions;

/// All files, indexed.
#[derive(Debug, Clone, Default)]
pub struct Library {
    files: Vec<LibFile>,
    by_id: FxHashMap<FileId, usize>,
    /// The added files by the names that they define; for aliases by the first component.
    names: [FxHashMap<Name, Vec<usize>>; 3],
    on_demand: Option<OnDemand>,
    /// See [`Library::shows_point`].
    point_functions: OnceLock<FxHashSet<Name>>,
    missing: Option<&'static Missing>,
}

/// The kind of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    /// A function.
    Function,
    /// A global variable.
    Global,
    /// An alias, by its first component.
    Alias,
}

/// Files that are read when a name that they define is looked up.
pub trait FileReader {
    /// Which of the files define a name, in ascending order.
    fn files_defining(&self, kind: NameKind, name: &str) -> &[usize];
    /// Reads one, and says what is wrong with it.
    fn read(&self, file: usize) -> (ast::File, Diagnostics);
}

#[derive(Clone)]
struct OnDemand {
    /// Location of the first of them in [`Library::files`].
    first: usize,
    reader: Rc<dyn FileReader>,
}

impl fmt::Debug for OnDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OnDemand({}..)", self.first)
    }
}

#[derive(Debug, Clone)]
struct LibFile {
    id: FileId,
    user: bool,
    /// Its contents, once known.
    contents: OnceLock<FileContents>,
}

/// The contents of a file.
#[derive(Debug, Clone, Default)]
struct FileContents {
    probes: Vec<ProbeEntry>,
    functions: FxHashMap<Name, Vec<Arc<Function>>>,
    /// With whether they are private.
    globals: FxHashMap<Name, Vec<(bool, GlobalVar)>>,
    aliases: Vec<AliasEntry>,
    /// The first alias of each name.
    alias_names: FxHashMap<Box<str>, usize>,
    /// Its diagnostics.
    diags: Diagnostics,
}

/// A function of a file.
#[derive(Clone, Copy)]
struct FnEntry<'a> {
    file: FileId,
    user: bool,
    func: &'a Arc<Function>,
}

/// An alias: its file, and its index there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AliasId(u32, u32);

/// A probe of a file, ready for resolution.
#[derive(Debug, Clone)]
pub(crate) struct ProbeEntry {
    pub points: Vec<PointEntry>,
    pub part: HandlerPart,
}

/// A probe point whose condition can be shared.
#[derive(Debug, Clone)]
pub(crate) struct PointEntry {
    pub point: ProbePoint,
    pub condition: Option<Arc<Expr>>,
}

/// One name of an alias.
#[derive(Debug, Clone)]
pub(crate) struct AliasEntry {
    /// The components, joined by dots.
    pub name: Box<str>,
    /// Number of components.
    pub len: usize,
    pub user: bool,
    pub body: Arc<AliasBody>,
}

/// The points and bodies of an alias; shared by its names.
#[derive(Debug)]
pub(crate) struct AliasBody {
    pub points: Vec<PointEntry>,
    pub before: Option<HandlerPart>,
    pub after: Option<HandlerPart>,
    pub file: FileId,
    pub span: ast::Span,
}

impl Library {
    /// An empty library.
    pub fn new() -> Library {
        Library::default()
    }

    /// Adds a parsed file; `user` for the script itself, otherwise it belongs to the library.
    /// Of two files that define the same alias, the one added first counts, but a user's file
    /// counts before any of the library. Files that are read on demand come last.
    pub fn add(&mut self, id: FileId, file: ast::File, user: bool) {
        let index = self.files.len();
        let contents = FileContents::new(id, file, user);
        let mut note = |kind: NameKind, name: &str| {
            let files = self.names[kind as usize].entry(name.into()).or_default();
            if files.last() != Some(&index) {
                files.push(index);
            }
        };
        contents
            .functions
            .keys()
            .for_each(|n| note(NameKind::Function, n));
        contents
            .globals
            .keys()
            .for_each(|n| note(NameKind::Global, n));
        for alias in &contents.aliases {
            note(NameKind::Alias, first_component(&alias.name));
        }
        self.by_id.insert(id, index);
        self.files.push(LibFile {
            id,
            user,
            contents: OnceLock::from(contents),
        });
    }

    /// Adds files of the library that are read when they are needed, in the reader's order.
    pub fn add_on_demand(
        &mut self,
        ids: impl IntoIterator<Item = FileId>,
        reader: Rc<dyn FileReader>,
    ) {
        let first = self.files.len();
        for id in ids {
            self.by_id.insert(id, self.files.len());
            self.files.push(LibFile {
                id,
                user: false,
                contents: OnceLock::new(),
            });
        }
        self.on_demand = Some(OnDemand { first, reader });
    }

    /// Reads all files.
    pub fn read_all(&self) {
        (0..self.files.len()).for_each(|index| _ = self.contents(index));
    }

    /// Number of library files that were read.
    pub fn files_read(&self) -> usize {
        let read = |f: &&LibFile| !f.user && f.contents.get().is_some();
        self.files.iter().filter(read).count()
    }

    /// The diagnostics of files that were read on demand.
    pub fn read_errors(&self) -> Diagnostics {
        let mut errors = Diagnostics::new();
        for contents in self.files.iter().filter_map(|f| f.contents.get()) {
            errors.append(contents.diags.clone());
        }
        errors
    }

    fn contents(&self, index: usize) -> &FileContents {
        let file = &self.files[index];
        file.contents.get_or_init(|| {
            let Some(OnDemand { first, reader }) = &self.on_demand else {
                return FileContents::default();
            };
            let (tree, diags) = reader.read(index - first);
            FileContents {
                diags,
                ..FileContents::new(file.id, tree, file.user)
            }
        })
    }

    /// The files that define a name, in the order in which they were added.
    fn defining(
        &self,
        kind: NameKind,
        name: &str,
    ) -> impl Iterator<Item = (&LibFile, &FileContents)> {
        let added = self.names[kind as usize].get(name).into_iter().flatten();
        let others = self.on_demand.iter().flat_map(move |o| {
            let files = o.reader.files_defining(kind, name).iter();
            files.map(move |index| o.first + index)
        });
        let indexes = added.copied().chain(others);
        indexes.map(|index| (&self.files[index], self.contents(index)))
    }

    /// All files with their contents.
    fn all(&self) -> impl Iterator<Item = (&LibFile, &FileContents)> {
        let files = self.files.iter().enumerate();
        files.map(|(index, file)| (file, self.contents(index)))
    }

    /// The user's files with their contents.
    fn user_files(&self) -> impl Iterator<Item = (&LibFile, &FileContents)> {
        let files = self.files.iter().filter(|f| f.user);
        files.filter_map(|f| Some((f, f.contents.get()?)))
    }

    /// Sets the names of SystemTap's library that this one lacks.
    pub fn set_missing(&mut self, missing: &'static Missing) {
        self.missing = Some(missing);
    }

    /// The names of SystemTap's library that this one lacks.
    pub fn missing(&self) -> &'static Missing {
        static NONE: Missing = Missing::new("");
        self.missing.unwrap_or(&NONE)
    }

    /// The functions of that name that are visible in `from`, in the order of files. A private one
    /// of `from` itself hides public ones with as many parameters; a user's hides the library's, also
    /// for files of the user's library. Calls inside of the built-in library stay there.
    pub fn functions(&self, name: &str, from: FileId) -> Vec<(FileId, Arc<Function>)> {
        let user = !from.is_built_in();
        let functions = self.defining(NameKind::Function, name);
        let functions = functions.flat_map(|(file, contents)| {
            let named = contents.functions.get(name).into_iter().flatten();
            named.map(|func| FnEntry {
                file: file.id,
                user: file.user,
                func,
            })
        });
        let seen = |f: &FnEntry| match f.func.private {
            true => f.file == from,
            false => user || !f.user,
        };
        let visible: Vec<FnEntry> = functions.filter(seen).collect();
        let rank = |f: &FnEntry| (f.func.private, f.user);
        visible
            .iter()
            .filter(|f| {
                let same = |o: &&FnEntry| o.func.params.len() == f.func.params.len();
                visible.iter().filter(same).all(|o| rank(o) <= rank(f))
            })
            .map(|f| (f.file, f.func.clone()))
            .collect()
    }

    /// The global of that name that is visible in `from`.
    pub fn global(&self, name: &str, from: FileId) -> Option<(FileId, &GlobalVar)> {
        let user = self.is_user(from);
        let files = self.defining(NameKind::Global, name);
        files
            .flat_map(|(file, contents)| {
                let named = contents.globals.get(name).into_iter().flatten();
                named.map(move |(private, var)| (file, *private, var))
            })
            .filter(|(file, private, _)| match private {
                true => file.id == from,
                false => user || !file.user,
            })
            .max_by_key(|(file, ..)| (file.id == from, file.user))
            .map(|(file, _, var)| (file.id, var))
    }

    /// Whether the file is the user's. Unknown files are the library's.
    pub fn is_user(&self, file: FileId) -> bool {
        let index = self.by_id.get(&file);
        index.is_some_and(|index| self.files[*index].user)
    }

    /// The global variables of the user's files in source order: file, whether private, variable.
    pub fn user_globals(&self) -> Vec<(FileId, bool, &GlobalVar)> {
        let globals_of_files = self.user_files().flat_map(|(file, contents)| {
            let globals = contents.globals.values().flatten();
            globals.map(|(private, var)| (file.id, *private, var))
        });
        let mut out: Vec<_> = globals_of_files.collect();
        out.sort_by_key(|(file, _, v)| (*file, v.name.span.start));
        out
    }

    /// Whether a function's result can depend on the probe point: `pp()` and similar functions, and the
    /// user's functions that call one of them.
    pub(crate) fn shows_point(&self, name: &str) -> bool {
        let point_functions = self
            .point_functions
            .get_or_init(|| point_functions(self.user_functions().map(|f| &**f)));
        point_functions.contains(name)
    }

    /// The functions of the user's files, private ones too, unsorted.
    pub fn user_functions(&self) -> impl Iterator<Item = &Arc<Function>> {
        self.user_files()
            .flat_map(|(_, contents)| contents.functions.values().flatten())
    }

    /// The names of all public functions.
    pub fn function_names(&self) -> Vec<Name> {
        let public = self.all_functions().into_iter();
        let mut names: Vec<Name> = public
            .map(|(_, f)| f.name.name.clone())
            .filter(|n| !n.starts_with("__"))
            .collect();
        names.dedup();
        names
    }

    /// All public functions with their file, sorted by name and number of parameters.
    pub fn all_functions(&self) -> Vec<(FileId, &Arc<Function>)> {
        let public = self.all().flat_map(|(file, contents)| {
            let functions = contents.functions.values().flatten();
            functions.map(|f| (file.id, f))
        });
        let mut public: Vec<_> = public.filter(|(_, f)| !f.private).collect();
        public.sort_by(|a, b| {
            let key = |f: &Function| (f.name.name.clone(), f.params.len());
            key(a.1).cmp(&key(b.1))
        });
        public
    }

    /// The files in the order in which they were added, each with whether it is the user's.
    pub fn file_ids(&self) -> impl Iterator<Item = (FileId, bool)> {
        self.files.iter().map(|f| (f.id, f.user))
    }

    pub(crate) fn probes(&self, file: FileId) -> &[ProbeEntry] {
        let index = self.by_id.get(&file);
        index.map_or(&[], |index| &self.contents(*index).probes)
    }

    /// The alias of exactly that name; a user's first.
    pub(crate) fn alias(&self, name: &str) -> Option<AliasId> {
        let mut alias = None;
        for (file, contents) in self.defining(NameKind::Alias, first_component(name)) {
            let index = contents.alias_names.get(name);
            let id = index.and_then(|index| self.alias_id(file, *index));
            match id {
                Some(id) if file.user => return Some(id),
                _ => alias = alias.or(id),
            }
        }
        alias
    }

    fn alias_id(&self, file: &LibFile, index: usize) -> Option<AliasId> {
        Some(AliasId(self.by_id.get(&file.id)?.fit(), index.fit()))
    }

    /// The file of an alias, its location, and its points.
    pub fn alias_definition(&self, name: &str) -> Option<(FileId, ast::Span, Vec<&ProbePoint>)> {
        let body = &self.alias_entry(self.alias(name)?).body;
        let points = body.points.iter().map(|p| &p.point).collect();
        Some((body.file, body.span, points))
    }

    /// The names of all aliases, unsorted.
    pub fn alias_names(&self) -> impl Iterator<Item = &str> {
        self.aliases().map(|(_, a)| &*a.name)
    }

    /// The names of the globals that a file sees, sorted.
    pub fn global_names(&self, from: FileId) -> Vec<Name> {
        let names = self.all().flat_map(|(_, contents)| contents.globals.keys());
        let mut seen: Vec<Name> = names
            .filter(|n| self.global(n, from).is_some())
            .cloned()
            .collect();
        seen.sort_unstable();
        seen.dedup();
        seen
    }

    pub(crate) fn alias_entry(&self, AliasId(file, index): AliasId) -> &AliasEntry {
        &self.contents(file as usize).aliases[index as usize]
    }

    /// All alias names in effect, unsorted.
    pub(crate) fn aliases(&self) -> impl Iterator<Item = (AliasId, &AliasEntry)> {
        self.effective_aliases(self.all())
    }

    /// Those of the user's files.
    pub(crate) fn user_aliases(&self) -> impl Iterator<Item = (AliasId, &AliasEntry)> {
        self.effective_aliases(self.user_files())
    }

    /// Those that begin with a component; no other files are read.
    pub(crate) fn aliases_below<'a>(
        &'a self,
        first: &'a str,
    ) -> impl Iterator<Item = (AliasId, &'a AliasEntry)> {
        let aliases = self.effective_aliases(self.defining(NameKind::Alias, first));
        aliases.filter(move |(_, a)| first_component(&a.name) == first)
    }

    fn effective_aliases<'a>(
        &'a self,
        files: impl Iterator<Item = (&'a LibFile, &'a FileContents)>,
    ) -> impl Iterator<Item = (AliasId, &'a AliasEntry)> {
        let aliases_of_files = files.flat_map(move |(file, contents)| {
            let aliases = contents.aliases.iter().enumerate();
            aliases.filter_map(move |(index, a)| Some((self.alias_id(file, index)?, a)))
        });
        aliases_of_files.filter(move |(id, a)| self.alias(&a.name) == Some(*id))
    }
}

impl FileContents {
    fn new(id: FileId, file: ast::File, user: bool) -> FileContents {
        let mut contents = FileContents::default();
        for item in file.items {
            match item {
                Item::Probe(p) => contents.probes.push(ProbeEntry {
                    points: p.points.into_iter().map(point_entry).collect(),
                    part: HandlerPart {
                        body: Arc::new(p.body),
                        file: id,
                    },
                }),
                Item::Alias(a) => contents.add_alias(id, a, user),
                Item::Function(f) => {
                    let same = contents.functions.entry(f.name.name.clone());
                    same.or_default().push(Arc::new(f));
                }
                Item::Global(g) => {
                    for var in g.vars {
                        let same = contents.globals.entry(var.name.name.clone());
                        same.or_default().push((g.private, var));
                    }
                }
                Item::Embedded(_) => {}
            }
        }
        contents
    }

    fn add_alias(&mut self, file: FileId, a: Alias, user: bool) {
        let part = |b: StmtBlock| {
            let empty = b.stmts.is_empty();
            (!empty).then(|| HandlerPart {
                body: Arc::new(b),
                file,
            })
        };
        let (before, after) = match a.kind {
            AliasKind::Prologue => (part(a.body), a.second.and_then(part)),
            AliasKind::Epilogue => (None, part(a.body)),
        };
        let body = Arc::new(AliasBody {
            points: a.points.into_iter().map(point_entry).collect(),
            before,
            after,
            file,
            span: a.span,
        });
        for n in &a.names {
            let (name, index) = (dotted(n), self.aliases.len());
            self.alias_names.entry(name.clone()).or_insert(index);
            self.aliases.push(AliasEntry {
                name,
                len: n.components.len(),
                user,
                body: body.clone(),
            });
        }
    }
}

fn first_component(dotted: &str) -> &str {
    dotted.split('.').next().unwrap_or_default()
}

fn point_entry(mut p: ProbePoint) -> PointEntry {
    let condition = p.condition.take().map(|c| Arc::new(*c));
    PointEntry {
        point: p,
        condition,
    }
}

/// The names of the components, joined by dots.
pub(crate) fn dotted(p: &ProbePoint) -> Box<str> {
    let names: Vec<&str> = p.components.iter().map(|c| &*c.name).collect();
    names.join(".").into()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use spile_syntax::parser::parse_library_file;
    use spile_syntax::preproc::{Arguments, MacroLibrary, PreprocEnv};
    use spile_syntax::source::Sources;

    use super::*;

    /// Three files: a function, a global, an alias.
    struct ThreeFiles {
        sources: Sources,
        read: RefCell<Vec<usize>>,
    }

    impl FileReader for ThreeFiles {
        fn files_defining(&self, kind: NameKind, name: &str) -> &[usize] {
            match (kind, name) {
                (NameKind::Function, "f") => &[0],
                (NameKind::Global, "g") => &[1],
                (NameKind::Alias, "a") => &[2],
                _ => &[],
            }
        }

        fn read(&self, file: usize) -> (ast::File, Diagnostics) {
            self.read.borrow_mut().push(file);
            let mut diags = Diagnostics::new();
            let (env, none) = (PreprocEnv::new("6.12.0", "x86_64"), MacroLibrary::new());
            let id = self.sources.iter().nth(file).map(|(id, _)| id).unwrap();
            let args = Arguments::default();
            let tree = parse_library_file(&self.sources, id, &args, &env, &none, &mut diags);
            (tree, diags)
        }
    }

    #[test]
    fn files_are_read_when_their_names_are_looked_up() {
        let mut sources = Sources::new();
        let texts = ["function f() { }", "global g", "probe a.b = begin { }"];
        let ids = texts.map(|text| sources.add_built_in("x", text.as_bytes().to_vec()));
        let three = Rc::new(ThreeFiles {
            sources,
            read: RefCell::default(),
        });
        let mut library = Library::new();
        library.add_on_demand(ids, three.clone());
        let from = FileId::ANYONE;
        assert!(library.functions("g", from).is_empty() && library.alias("b").is_none());
        assert!(library.user_globals().is_empty() && library.files_read() == 0);
        assert!(library.alias("a").is_none() && library.alias("a.b").is_some());
        assert_eq!(*three.read.borrow(), [2]);
        assert_eq!(library.functions("f", from).len(), 1);
        assert_eq!(library.functions("f", from).len(), 1);
        assert_eq!(*three.read.borrow(), [2, 0]);
        assert_eq!(
            library.global("g", from).map(|(file, _)| file),
            Some(ids[1])
        );
        library.read_all();
        assert_eq!(*three.read.borrow(), [2, 0, 1]);
        assert!(library.read_errors().is_empty());
    }
}
