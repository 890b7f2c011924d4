//! The files of a run, indexed: functions, globals, aliases and probes by name.
//!
//! User files see their own items and the library's public ones; library files see their own
//! and the library's public ones, never the user's. A user's function hides the library's of
//! the same name and number of parameters. Private items are seen in their own file only.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use spile_syntax::ast::{
    self, Alias, AliasKind, Block, Expr, FileId, Function, GlobalVar, Item, Name, ProbePoint,
};

use crate::missing::Missing;
use crate::probe::HandlerPart;
use crate::probe::mentions::point_functions;

/// All files, indexed.
#[derive(Debug, Clone, Default)]
pub struct Library {
    files: Vec<LibFile>,
    by_id: HashMap<FileId, usize>,
    functions: HashMap<Name, Vec<FnEntry>>,
    globals: HashMap<Name, Vec<GlobalEntry>>,
    aliases: Vec<AliasEntry>,
    alias_names: HashMap<Box<str>, Vec<usize>>,
    /// See [`Library::shows_point`].
    point_functions: OnceLock<HashSet<Name>>,
    /// Names of files that were left out, and those of them that were looked for.
    elsewhere: HashSet<&'static str>,
    wanted: Arc<Mutex<BTreeSet<&'static str>>>,
    missing: Missing,
}

#[derive(Debug, Clone)]
struct LibFile {
    id: FileId,
    user: bool,
    probes: Vec<ProbeEntry>,
}

#[derive(Debug, Clone)]
struct FnEntry {
    file: FileId,
    user: bool,
    func: Arc<Function>,
}

#[derive(Debug, Clone)]
struct GlobalEntry {
    file: FileId,
    user: bool,
    private: bool,
    var: GlobalVar,
}

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
    /// How many components.
    pub len: usize,
    pub user: bool,
    pub body: Arc<AliasBody>,
}

/// What an alias stands for; shared by its names.
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
    /// counts before any of the library.
    pub fn add(&mut self, id: FileId, file: ast::File, user: bool) {
        let mut probes = Vec::new();
        for item in file.items {
            match item {
                Item::Probe(p) => probes.push(ProbeEntry {
                    points: p.points.into_iter().map(point_entry).collect(),
                    part: HandlerPart {
                        body: Arc::new(p.body),
                        file: id,
                    },
                }),
                Item::Alias(a) => self.add_alias(id, a, user),
                Item::Function(f) => {
                    self.functions
                        .entry(f.name.name.clone())
                        .or_default()
                        .push(FnEntry {
                            file: id,
                            user,
                            func: Arc::new(f),
                        })
                }
                Item::Global(g) => {
                    for var in g.vars {
                        self.globals
                            .entry(var.name.name.clone())
                            .or_default()
                            .push(GlobalEntry {
                                file: id,
                                user,
                                private: g.private,
                                var,
                            });
                    }
                }
                Item::Embedded(_) => {}
            }
        }
        self.by_id.insert(id, self.files.len());
        self.files.push(LibFile { id, user, probes });
    }

    /// Names that files of the library define that are not here; of aliases the first component.
    pub fn leave_out(&mut self, names: impl IntoIterator<Item = &'static str>) {
        self.elsewhere.extend(names);
    }

    /// Of the names that were left out, those that were looked for: without their files what was
    /// found may be wrong.
    pub fn wanted(&self) -> BTreeSet<&'static str> {
        let wanted = self.wanted.lock();
        wanted.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the names of SystemTap's library that this one does not have.
    pub fn set_missing(&mut self, missing: Missing) {
        self.missing = missing;
    }

    /// The names of SystemTap's library that this one does not have.
    pub fn missing(&self) -> Missing {
        self.missing
    }

    /// Takes note that there is nothing of this name.
    fn miss(&self, name: &str) {
        if let Some(name) = self.elsewhere.get(name) {
            let wanted = self.wanted.lock();
            wanted.unwrap_or_else(PoisonError::into_inner).insert(name);
        }
    }

    fn add_alias(&mut self, file: FileId, a: Alias, user: bool) {
        let part = |b: Block| {
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
            let name = dotted(n);
            let ix = self.aliases.len();
            self.alias_names.entry(name.clone()).or_default().push(ix);
            self.aliases.push(AliasEntry {
                name,
                len: n.components.len(),
                user,
                body: body.clone(),
            });
        }
    }

    /// The functions of that name that `from` can see, in the order of files. A private one of
    /// `from` itself hides public ones with as many parameters, a user's hides the library's.
    pub fn functions(&self, name: &str, from: FileId) -> Vec<(FileId, Arc<Function>)> {
        let Some(all) = self.functions.get(name) else {
            self.miss(name);
            return Vec::new();
        };
        let user = self.is_user(from);
        let visible: Vec<&FnEntry> = all
            .iter()
            .filter(|f| {
                if f.func.private {
                    f.file == from
                } else {
                    user || !f.user
                }
            })
            .collect();
        let rank = |f: &FnEntry| (f.func.private, f.user);
        visible
            .iter()
            .filter(|f| {
                let same = |o: &&&FnEntry| o.func.params.len() == f.func.params.len();
                visible.iter().filter(same).all(|o| rank(o) <= rank(f))
            })
            .map(|f| (f.file, f.func.clone()))
            .collect()
    }

    /// The global of that name that `from` can see.
    pub fn global(&self, name: &str, from: FileId) -> Option<(FileId, &GlobalVar)> {
        let user = self.is_user(from);
        let Some(all) = self.globals.get(name) else {
            self.miss(name);
            return None;
        };
        all.iter()
            .filter(|g| {
                if g.private {
                    g.file == from
                } else {
                    user || !g.user
                }
            })
            .max_by_key(|g| (g.file == from, g.user))
            .map(|g| (g.file, &g.var))
    }

    /// Whether the file is the user's. Unknown files are the library's.
    pub fn is_user(&self, file: FileId) -> bool {
        self.file(file).is_some_and(|f| f.user)
    }

    /// The global variables of the user's files in source order: file, whether private, which.
    pub fn user_globals(&self) -> Vec<(FileId, bool, &GlobalVar)> {
        let all = self.globals.values().flatten().filter(|g| g.user);
        let mut out: Vec<_> = all.map(|g| (g.file, g.private, &g.var)).collect();
        out.sort_by_key(|(file, _, v)| (*file, v.name.span.start));
        out
    }

    /// Whether a function's result can depend on the probe point: `pp()` and its like, and the
    /// user's functions that lead to one of them.
    pub(crate) fn shows_point(&self, name: &str) -> bool {
        let found = self.point_functions.get_or_init(|| {
            let user = self.functions.values().flatten().filter(|f| f.user);
            point_functions(user.map(|f| &*f.func))
        });
        found.contains(name)
    }

    /// Names of all public functions.
    pub fn function_names(&self) -> Vec<Name> {
        let public = |f: &FnEntry| !f.func.private;
        let mut names: Vec<Name> = self
            .functions
            .iter()
            .filter(|(n, all)| !n.starts_with("__") && all.iter().any(public))
            .map(|(n, _)| n.clone())
            .collect();
        names.sort_unstable();
        names
    }

    /// All public functions with their file, sorted by name and number of parameters.
    pub fn all_functions(&self) -> Vec<(FileId, &Arc<Function>)> {
        let mut all: Vec<_> = self
            .functions
            .values()
            .flatten()
            .filter(|f| !f.func.private)
            .map(|f| (f.file, &f.func))
            .collect();
        all.sort_by(|a, b| {
            let key = |f: &Function| (f.name.name.clone(), f.params.len());
            key(a.1).cmp(&key(b.1))
        });
        all
    }

    /// The files with their kind, in the order in which they were added: `true` for the user's.
    pub fn file_ids(&self) -> impl Iterator<Item = (FileId, bool)> {
        self.files.iter().map(|f| (f.id, f.user))
    }

    fn file(&self, id: FileId) -> Option<&LibFile> {
        self.files.get(*self.by_id.get(&id)?)
    }

    pub(crate) fn probes(&self, file: FileId) -> &[ProbeEntry] {
        self.file(file).map_or(&[], |f| &f.probes)
    }

    /// The alias of that exact name; a user's first.
    pub(crate) fn alias(&self, name: &str) -> Option<usize> {
        let Some(all) = self.alias_names.get(name) else {
            self.miss(name.split('.').next().unwrap_or_default());
            return None;
        };
        let user = all.iter().find(|ix| self.aliases[**ix].user);
        user.or(all.first()).copied()
    }

    /// Where an alias is defined, and what it stands for.
    pub fn alias_definition(&self, name: &str) -> Option<(FileId, ast::Span, Vec<&ProbePoint>)> {
        let body = &self.aliases[self.alias(name)?].body;
        let points = body.points.iter().map(|p| &p.point).collect();
        Some((body.file, body.span, points))
    }

    /// The names of all aliases, unsorted.
    pub fn alias_names(&self) -> impl Iterator<Item = &str> {
        self.aliases().map(|(_, a)| &*a.name)
    }

    /// The names of the globals that a file sees, sorted.
    pub fn global_names(&self, from: FileId) -> Vec<Name> {
        let names = self.globals.keys();
        let mut seen: Vec<Name> = names
            .filter(|n| self.global(n, from).is_some())
            .cloned()
            .collect();
        seen.sort_unstable();
        seen
    }

    pub(crate) fn alias_entry(&self, ix: usize) -> &AliasEntry {
        &self.aliases[ix]
    }

    /// All alias names that count, unsorted.
    pub(crate) fn aliases(&self) -> impl Iterator<Item = (usize, &AliasEntry)> {
        let counts = |(ix, a): &(usize, &AliasEntry)| self.alias(&a.name) == Some(*ix);
        self.aliases.iter().enumerate().filter(counts)
    }
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
    use super::*;

    #[test]
    fn what_was_left_out_and_looked_for_is_known() {
        let mut library = Library::new();
        library.leave_out(["cpu", "__start", "scheduler", "never_asked"]);
        assert!(library.functions("cpu", FileId(0)).is_empty());
        assert!(library.functions("unknown", FileId(0)).is_empty());
        assert!(library.global("__start", FileId(0)).is_none());
        assert!(library.alias("scheduler.ctxswitch").is_none());
        let wanted: Vec<_> = library.wanted().into_iter().collect();
        assert_eq!(wanted, ["__start", "cpu", "scheduler"]);
    }
}
