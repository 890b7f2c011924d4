//! The resolved tree to IR.
//!
//! In: the resolved tree, which has no errors. Out: an [`spile_ir::Program`] that keeps the
//! invariants of [`spile_ir::verify`]. Nothing fails here, and nothing is optimised, except that
//! handlers of the same code become one.
//!
//! | file | what |
//! |---|---|
//! | `builder` | blocks, registers, instructions of one body |
//! | `expr`, `stmt` | the walk over expressions and statements |
//! | `print` | print calls |
//! | `merge` | handlers that came out the same |
//! | `sites` | the locations that run-time errors name |

mod builder;
mod expr;
mod merge;
mod print;
mod sites;
mod stmt;

use std::collections::VecDeque;
use std::ptr;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use spile_cast::Cast;
use spile_ir::fmt::Format;
use spile_ir::{
    Body, Bytes, ConstTable, ElemTy, FormatId, Func, FuncId, Global, GlobalId, GlobalKind, Handler,
    Init, Limits, Program, RegexId, StatsSpec, StrId, TableId, Term, Ty, Val,
};
use spile_syntax::ast::Literal;
use spile_syntax::source::{FileId, Sources};

use crate::probe::SiteNames;
use crate::types::hir::{self, GlobalIx, HirExprKind, NameFunction, Tree, Unit, UnitIx, UnitKind};
use crate::types::unify::{Base, Types};
use crate::types::width::{Widths, widths};
use builder::Builder;
use sites::Sites;

/// Settings of the run for lowering.
#[derive(Debug, Clone)]
pub(crate) struct LoweringOptions {
    /// The limits.
    pub limits: Limits,
    /// Globals that are written and never read print themselves at the end.
    pub display: bool,
    /// Unreadable memory is 0 or "" instead of an error.
    pub faults_are_nothing: bool,
}

/// The state that bodies share while they are lowered.
pub(crate) struct Lower<'a> {
    tree: &'a Tree,
    types: &'a Types,
    how: LoweringOptions,
    widths: Widths<'a>,
    sites: Sites<'a>,
    program: Program,
    globals: Vec<Option<GlobalId>>,
    funcs: FxHashMap<UnitIx, FuncId>,
    queue: VecDeque<UnitIx>,
    strings: FxHashMap<Bytes, StrId>,
    formats: FxHashMap<String, FormatId>,
    tables: FxHashMap<usize, TableId>,
    /// By unit: the names that it takes as hidden parameters.
    names: Vec<[bool; NameFunction::COUNT]>,
    /// Tables of names of handlers' locations, which handlers of one probe share.
    name_tables: FxHashMap<(*const SiteNames, NameFunction), TableId>,
    /// The point of each handler where it serves several.
    patterns: Vec<Arc<str>>,
}

/// Lowers all handlers, and the functions that they call. `is_user` accepts the script's files.
pub(crate) fn lower(
    tree: &Tree,
    types: &Types,
    (sources, is_user): (&Sources, &dyn Fn(FileId) -> bool),
    how: LoweringOptions,
) -> Program {
    let widths = widths(tree, types, how.limits.maxstringlen as usize);
    let mut l = Lower {
        tree,
        types,
        widths,
        sites: Sites::new(sources, is_user),
        program: Program {
            limits: how.limits.clone(),
            ..Program::default()
        },
        how,
        globals: Vec::new(),
        funcs: FxHashMap::default(),
        queue: VecDeque::new(),
        strings: FxHashMap::default(),
        formats: FxHashMap::default(),
        tables: FxHashMap::default(),
        names: probe_names(tree),
        name_tables: FxHashMap::default(),
        patterns: Vec::new(),
    };
    for g in 0..tree.globals.len() {
        let id = l.global(GlobalIx(g));
        l.globals.push(id);
    }
    // The library's handlers first: they store the values that the script's functions read.
    let handlers = |user: bool| {
        tree.units
            .iter()
            .enumerate()
            .filter(move |(_, u)| u.user == user && matches!(u.kind, UnitKind::Handler { .. }))
            .map(|(i, _)| UnitIx(i))
    };
    for unit in handlers(false).chain(handlers(true)) {
        l.handler(unit);
    }
    while let Some(unit) = l.queue.pop_front() {
        l.func(unit);
    }
    merge::run(&mut l.program, &l.patterns);
    l.program.sites = l.sites.finish();
    spile_ir::opt::inline::mark_recursive(&mut l.program);
    l.program
}

/// By unit: the names of the probe point (`pp()` and similar functions) that it uses, directly or through
/// calls.
fn probe_names(tree: &Tree) -> Vec<[bool; NameFunction::COUNT]> {
    let of_unit = |u: &Unit| {
        let mut names = [false; NameFunction::COUNT];
        hir::walk_exprs(&u.body, &mut |e| {
            if let HirExprKind::ProbeName { function } = e.kind {
                names[function as usize] = true;
            }
        });
        names
    };
    hir::reached(tree, of_unit, |names, called| {
        std::array::from_fn(|n| names[n] || called[n])
    })
}

impl<'a> Lower<'a> {
    fn global(&mut self, ix: GlobalIx) -> Option<GlobalId> {
        let g = &self.tree.globals[ix.0];
        if !(g.read || g.written) {
            return None;
        }
        let keys = g.keys.as_ref()?;
        self.types.get(g.value)?;
        let display = self.how.display && g.user && g.written && !g.read;
        let is_stats = self.types.get(g.value) == Some(Base::Stats);
        let mut spec: StatsSpec = g.stats.clone();
        if display {
            (spec.sum, spec.min, spec.max) = (true, true, true);
        }
        let scalar = self.widths.value(ix);
        let kind = match (keys.is_empty(), is_stats) {
            (true, true) => GlobalKind::Stats(spec),
            (true, false) => GlobalKind::Scalar(scalar),
            (false, _) => GlobalKind::Array {
                keys: (0..keys.len())
                    .map(|n| self.widths.key(keys[n], ix, n))
                    .collect(),
                value: match is_stats {
                    true => ElemTy::Stats(spec),
                    false => ElemTy::Scalar(scalar),
                },
                max: g
                    .max
                    .and_then(|n| u32::try_from(n).ok())
                    .unwrap_or(self.program.limits.maxmapentries)
                    .max(1),
                wrap: g.wrap,
            },
        };
        let init = g.init.as_ref().map(|i| match i {
            Literal::Num(n) => Init::Long(*n),
            Literal::Str(s) => Init::Str(s.clone()),
        });
        let site = self.sites.at(g.span);
        self.program.globals.push(Global {
            name: g.unique.clone(),
            kind,
            init,
            storage: Default::default(),
            display,
            site,
        });
        Some(GlobalId(self.program.globals.len().fit::<u32>() - 1))
    }

    fn handler(&mut self, unit: UnitIx) {
        let u = &self.tree.units[unit.0];
        let UnitKind::Handler {
            point,
            points,
            pattern,
            event,
            ..
        } = &u.kind
        else {
            return;
        };
        if u.body.is_empty() && !u.user {
            // The rest of a library file's probe whose variables nobody reads.
            return;
        }
        let site = self.sites.at(u.span);
        let mut b = Builder::new(self, unit);
        b.handler_stmts(&u.body, u.span);
        let body: Body = b.finish();
        self.program.handlers.push(Handler {
            point: point.clone(),
            points: *points,
            event: event.clone(),
            body,
            site,
        });
        self.patterns.push(pattern.clone());
    }

    /// The function of a unit; its body is lowered later.
    fn func_id(&mut self, unit: UnitIx) -> FuncId {
        if let Some(id) = self.funcs.get(&unit) {
            return *id;
        }
        let u = &self.tree.units[unit.0];
        let id = FuncId(self.program.funcs.len().fit());
        self.program.funcs.push(Func {
            name: u.name.clone(),
            params: Vec::new(),
            ret: self.result(unit),
            recursive: false,
            body: Body::default(),
        });
        self.funcs.insert(unit, id);
        self.queue.push_back(unit);
        id
    }

    /// Type of a function's result.
    fn result(&self, unit: UnitIx) -> Option<Ty> {
        match self.tree.units[unit.0].kind {
            UnitKind::Func {
                ret,
                has_value: true,
                ..
            } => Some(self.widths.result(ret, unit)),
            _ => None,
        }
    }

    fn func(&mut self, unit: UnitIx) {
        let id = self.func_id(unit);
        let u = &self.tree.units[unit.0];
        let fall = match self.result(unit) {
            None => Term::Ret(None),
            Some(Ty::Long) => Term::Ret(Some(Val::Imm(0))),
            Some(Ty::Str(_)) => Term::Ret(Some(self.string(&[]))),
        };
        let mut b = Builder::new(self, unit);
        b.save_arguments();
        b.stmts(&u.body);
        b.end(fall);
        let params = b.params();
        let body = b.finish();
        let f = &mut self.program.funcs[id.index()];
        f.params = params;
        f.body = body;
    }

    fn string(&mut self, s: &[u8]) -> Val {
        if let Some(id) = self.strings.get(s) {
            return Val::Str(*id);
        }
        let bytes: Bytes = s.into();
        let id = StrId(self.program.strings.len().fit());
        self.program.strings.push(bytes.clone());
        self.strings.insert(bytes, id);
        Val::Str(id)
    }

    fn format(&mut self, f: Format) -> FormatId {
        // Formats are few and short: their text form is a good enough key.
        let key = format!("{f:?}");
        if let Some(id) = self.formats.get(&key) {
            return *id;
        }
        let id = FormatId(self.program.formats.len().fit());
        self.formats.insert(key, id);
        self.program.formats.push(f);
        id
    }

    /// A regular expression, and whether the script reads its groups.
    fn regex(&mut self, ix: usize) -> Option<(RegexId, bool)> {
        let re = self.tree.regexes.get(ix)?.compiled.clone()?;
        let keep = re.finds();
        Some((self.program.intern_regex(re), keep))
    }

    /// The table of names of a handler's locations, by location number.
    fn name_table(&mut self, unit: UnitIx, function: NameFunction) -> TableId {
        let kind = &self.tree.units[unit.0].kind;
        let shared = match kind {
            UnitKind::Handler { sites, .. } => sites.as_ref().map_or(ptr::null(), Arc::as_ptr),
            UnitKind::Func { .. } => ptr::null(),
        };
        if let Some(id) = self.name_tables.get(&(shared, function)) {
            return *id;
        }
        let names = kind.names(function);
        let entries = names.iter().map(|n| n.as_bytes().into()).collect();
        let name = format!("names@{}", self.program.tables.len()).into();
        let id = self.add_table(name, entries);
        self.name_tables.insert((shared, function), id);
        id
    }

    fn table(&mut self, ix: usize) -> TableId {
        if let Some(id) = self.tables.get(&ix) {
            return *id;
        }
        let (name, entries) = &self.tree.tables[ix];
        let id = self.add_table(name.clone(), entries.clone());
        self.tables.insert(ix, id);
        id
    }

    fn add_table(&mut self, name: Arc<str>, entries: Vec<Bytes>) -> TableId {
        self.program.tables.push(ConstTable { name, entries });
        TableId(self.program.tables.len().fit::<u32>() - 1)
    }
}
