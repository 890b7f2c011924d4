//! Name resolution and type inference in one walk: the syntax tree of handlers and functions
//! becomes the resolved [`Tree`]. Functions and globals of the library come in when they are first
//! named, and with them the probes of their file, until nothing new comes.
//!
//! In: probe handlers with their contexts, the library, [`crate::facts::Facts`]. Out: a tree in
//! which every name is a local, a global or a function, every `$variable` is loads of memory, and
//! every type is known. It never fails: after an error, which is in the diagnostics, it goes on
//! with values of any type. String widths, unused stores and refusals by location are the work of
//! later passes.

mod autocast;
mod call;
mod counted;
mod counters;
mod embedded;
mod entry;
mod expr;
mod finish;
mod memory;
mod operators;
mod pretty;
mod print;
mod register_members;
mod rules;
mod stmt;
mod target;
pub(crate) mod unavailable;
mod unused;
mod value;
mod variants;
mod wide;
mod write;

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use spile_ir::Event;
use spile_syntax::ast::{self, FileId, Name, Span};
use spile_syntax::diag::{Diagnostic, Diagnostics};

pub use self::autocast::ElementTypes;
use self::autocast::Origin;
use super::codes;
use super::dead_stores::RemovedStmt;
use super::hir::*;
use super::unify::{Base, TyVar, Types};
use crate::facts::{CTypeId, Facts};
use crate::inputs::{AnalysisOptions, Inputs, ResolvePoints};
use crate::library::Library;
use crate::probe::{HandlerContext, ProbeHandler};

/// The input of one resolution.
#[derive(Clone, Copy)]
pub struct RunSettings<'a> {
    /// The files, the machine and the settings from the command line.
    pub inputs: &'a Inputs<'a>,
    /// Statements whose values nobody uses are resolved, too.
    pub keep_unused: bool,
    /// C types of elements of arrays that a resolution before found.
    pub elements: &'a ElementTypes,
}

/// Number of errors from which on similar names are not searched, which takes long.
const SUGGESTIONS: usize = 50;

/// The meaning of a variable's name.
#[derive(Debug, Clone, Copy)]
pub(super) enum VarMeaning {
    Local(LocalIx),
    Global(GlobalIx),
}

/// A resolved function, and its unit once it is queued.
struct FnDecl {
    func: Arc<ast::Function>,
    file: FileId,
    tapset: bool,
    unit: UnitIx,
    /// What may give its result a C type, once the body is resolved.
    results: Vec<Origin>,
}

/// State of the unit that is being resolved.
#[derive(Default)]
struct UnitState {
    locals: Vec<Local>,
    by_name: FxHashMap<Name, LocalIx>,
    /// C types of locals that hold pointers.
    ctypes: FxHashMap<LocalIx, Vec<Origin>>,
    /// What may give the function's result its C type.
    results: Vec<Origin>,
    file: FileId,
    tapset: bool,
    /// Type of the result, in functions.
    ret: Option<TyVar>,
    has_value: bool,
    loops: usize,
    /// The handler's context; `None` in functions.
    ctx: Option<Arc<HandlerContext>>,
    event: Option<Event>,
    /// The value of the next expression is unused.
    discard: bool,
    /// The `@entry` expressions so far.
    entries: entry::EntryExprs,
    /// What is left out.
    unused: unused::Unused,
}

/// The state of the whole walk.
pub struct Resolver<'a> {
    facts: &'a dyn Facts,
    lib: &'a Library,
    options: &'a AnalysisOptions,
    settings: RunSettings<'a>,
    /// The probes of a library file; called once for each file, when one of its items is first used.
    derive: &'a mut ResolvePoints<'a>,
    diags: &'a mut Diagnostics,
    pub(super) types: Types,
    pub(super) tree: Tree,
    /// Names of globals that the program has.
    names: FxHashSet<Name>,
    /// Globals by the file of the declaration and the name.
    globals: FxHashMap<(FileId, Name), GlobalIx>,
    /// C types of the elements of arrays.
    global_ctypes: FxHashMap<GlobalIx, Vec<Origin>>,
    /// These types where they were first asked for.
    elements_asked: FxHashMap<GlobalIx, Vec<Origin>>,
    /// Functions by the address of the syntax tree's node, which the Arc keeps alive.
    functions: FxHashMap<usize, FnDecl>,
    queue: VecDeque<usize>,
    pulled: FxHashSet<FileId>,
    /// Probes of pulled files, not yet resolved.
    waiting: Vec<ProbeHandler>,
    reported: FxHashSet<(&'static str, Span, String)>,
    /// Depth of `@defined`, and whether a resolution in it failed.
    trial: usize,
    trial_failed: bool,
    /// Value variables of `foreach`, each with the array's element type.
    foreach_values: Vec<(TyVar, TyVar, Span)>,
    /// Calls whose value is used.
    value_calls: Vec<(UnitIx, Span)>,
    tables: FxHashMap<String, usize>,
    entries: usize,
    /// The perf events that `@perf` can read.
    counters: counters::NamedCounters,
    /// Conditions of probe points.
    conditions: Vec<HirExpr>,
    /// Statements that were left out.
    removed: Vec<RemovedStmt>,
    /// Hidden functions that make texts of structures, by type and depth.
    pretty_units: FxHashMap<(CTypeId, u8), UnitIx>,
    cur: UnitState,
}

/// The result of resolution.
pub struct Resolved {
    /// The tree.
    pub tree: Tree,
    /// Types of everything in it.
    pub types: Types,
    /// Statements that were left out.
    pub removed: Vec<RemovedStmt>,
    /// The C types of elements of arrays, if a handler needed one that was not known yet.
    pub late: Option<ElementTypes>,
}

impl<'a> Resolver<'a> {
    /// Resolves all handlers and the functions they use. Errors go to `diags`.
    pub fn run(
        settings: RunSettings<'a>,
        derive: &'a mut ResolvePoints<'a>,
        diags: &'a mut Diagnostics,
        handlers: &[ProbeHandler],
    ) -> Resolved {
        let mut r = Resolver {
            facts: settings.inputs.facts,
            lib: settings.inputs.library,
            options: settings.inputs.options,
            settings,
            derive,
            diags,
            types: Types::default(),
            tree: Tree::default(),
            names: FxHashSet::default(),
            globals: FxHashMap::default(),
            global_ctypes: FxHashMap::default(),
            elements_asked: FxHashMap::default(),
            functions: FxHashMap::default(),
            queue: VecDeque::new(),
            pulled: FxHashSet::default(),
            waiting: Vec::new(),
            reported: FxHashSet::default(),
            trial: 0,
            trial_failed: false,
            foreach_values: Vec::new(),
            value_calls: Vec::new(),
            tables: FxHashMap::default(),
            entries: 0,
            counters: counters::counters(handlers),
            conditions: Vec::new(),
            removed: Vec::new(),
            pretty_units: FxHashMap::default(),
            cur: UnitState::default(),
        };
        r.declare();
        for d in handlers {
            r.handler(d, true);
        }
        r.drain();
        r.finish();
        Resolved {
            late: r.late_elements(),
            tree: r.tree,
            types: r.types,
            removed: r.removed,
        }
    }

    /// Resolves queued functions and probes of pulled files until none are left.
    fn drain(&mut self) {
        loop {
            if let Some(key) = self.queue.pop_front() {
                self.function(key);
            } else if let Some(d) = self.waiting.pop() {
                self.handler(&d, false);
            } else {
                break;
            }
        }
    }

    fn is_user(&self, file: FileId) -> bool {
        self.lib.is_user(file)
    }

    /// Passes a diagnostic on; inside `@defined` it only counts. Copies of one body that serve
    /// several points report an error once.
    fn report(&mut self, d: Diagnostic) {
        if self.trial > 0 {
            self.trial_failed |= d.severity == spile_syntax::diag::Severity::Error;
            return;
        }
        let span = d.primary.as_ref().map(|l| l.span).unwrap_or_default();
        if self.reported.insert((d.code, span, d.message.clone())) {
            self.diags.push(d);
        }
    }

    /// Reports an error at a location.
    fn error(&mut self, code: &'static str, span: Span, text: impl Into<String>) {
        self.report(Diagnostic::error(code, text).at(span));
    }

    /// Reports an error at a location, where nothing else comes of what is resolved.
    fn refuse<T>(&mut self, code: &'static str, span: Span, text: impl Into<String>) -> Option<T> {
        self.error(code, span, text);
        None
    }

    /// Declares the script's globals, used or not, with the values that `-G` gives.
    fn declare(&mut self) {
        let lib = self.lib;
        let mut public: FxHashMap<Name, Span> = FxHashMap::default();
        for (file, private, v) in lib.user_globals() {
            let key = (file, v.name.name.clone());
            let before = match self.globals.get(&key) {
                Some(ix) => Some(self.tree.globals[ix.0].span),
                None if private => None,
                None => public.get(&v.name.name).copied(),
            };
            if let Some(span) = before {
                let text = format!("global variable `{}` is declared twice", v.name.name);
                let d = Diagnostic::error(codes::DUPLICATE_GLOBAL, text).at(v.name.span);
                self.report(d.also(span, "declared here first"));
                continue;
            }
            if !private {
                public.insert(v.name.name.clone(), v.name.span);
            }
            self.declare_global(file, v, true);
        }
        for (name, value) in &self.options.globals {
            self.override_global(name, value);
        }
    }

    fn declare_global(&mut self, file: FileId, v: &ast::GlobalVar, user: bool) -> GlobalIx {
        let taken = !self.names.insert(v.name.name.clone());
        let unique = match taken {
            true => format!("{}@{}", v.name.name, file.number()).into(),
            false => v.name.name.clone(),
        };
        let ix = self.add_global(v, unique, user);
        self.globals.insert((file, v.name.name.clone()), ix);
        ix
    }

    fn add_global(&mut self, v: &ast::GlobalVar, unique: Name, user: bool) -> GlobalIx {
        let ix = GlobalIx(self.tree.globals.len());
        let value = self.types.fresh();
        self.tree.globals.push(HirGlobal {
            name: v.name.name.clone(),
            unique,
            span: v.name.span,
            user,
            synthetic: false,
            wrap: v.wrap,
            max: v.max,
            init: v.init.clone(),
            keys: None,
            keys_at: v.name.span,
            value,
            read: false,
            written: false,
            stats: Default::default(),
            hist_at: v.name.span,
        });
        if let Some(n) = v.max.filter(|n| !(1..=1 << 24).contains(n)) {
            let text = format!("an array cannot have {n} elements, but 1 to {}", 1 << 24);
            let d = Diagnostic::error(codes::BAD_OPERAND, text).at(v.name.span);
            let name = &v.name.name;
            self.report(d.help(format!(
                "`global {name}%[{}]` drops the oldest elements where there are more; without a number \
                 an array has MAXMAPENTRIES elements (-D MAXMAPENTRIES=N)",
                1 << 24
            )));
        }
        match &v.init {
            Some(ast::Literal::Num(_)) => self.scalar_init(ix, Base::Long),
            Some(ast::Literal::Str(_)) => self.scalar_init(ix, Base::Str),
            None => {}
        }
        ix
    }

    fn scalar_init(&mut self, g: GlobalIx, base: Base) {
        let span = self.tree.globals[g.0].span;
        self.global_keys(g, 0, span);
        self.set_type(self.tree.globals[g.0].value, base, span);
    }

    /// `-G NAME=VALUE`: a new initial value, of the type that its text has. Of the library's globals, only
    /// constants of its own (`__NAME`) can get one.
    fn override_global(&mut self, name: &str, value: &str) {
        let named = |g: &HirGlobal| *g.name == *name && g.user;
        let own = |r: &mut Self| match name.starts_with("__") {
            true => r.find_global(&name.into()),
            false => None,
        };
        let ix = self.tree.globals.iter().position(named).map(GlobalIx);
        let Some(ix) = ix.or_else(|| own(self)) else {
            let text = format!("-G {name}: the script has no such global variable");
            let names = self.global_names();
            let d = Diagnostic::error(codes::UNKNOWN_OPTION, text);
            return self.report(d.did_you_mean(name, names.iter().map(|n| &**n)));
        };
        let was_string = matches!(self.tree.globals[ix.0].init, Some(ast::Literal::Str(_)));
        let (init, base) = match parse_number(value) {
            Some(n) if !was_string => (ast::Literal::Num(n), Base::Long),
            _ => (ast::Literal::Str(value.as_bytes().into()), Base::Str),
        };
        self.tree.globals[ix.0].init = Some(init);
        self.scalar_init(ix, base);
    }

    /// Sets the type of `v` to `base`, decided at `span`.
    fn set_type(&mut self, v: TyVar, base: Base, span: Span) {
        if let Err(c) = self.types.set(v, base, span) {
            self.mismatch(c, span);
        }
    }

    /// Unifies `a`, the newer one, at `span`, with `b`.
    fn unify(&mut self, a: TyVar, b: TyVar, span: Span) {
        if let Err(c) = self.types.unify(a, b) {
            self.mismatch(c, span);
        }
    }

    fn mismatch(&mut self, c: super::unify::Conflict, span: Span) {
        let (before, here) = (c.before.name(), c.here.name());
        let at_one_place = c.before_at == span;
        let (text, label) = match at_one_place {
            true => (
                format!("type mismatch: {before} where {here} is needed"),
                format!("{here} is needed here"),
            ),
            false => (
                format!("type mismatch: {before} and {here}"),
                format!("{here} here"),
            ),
        };
        let mut d = Diagnostic::error(codes::TYPE_MISMATCH, text).label(span, label);
        if !at_one_place {
            d = d.also(c.before_at, format!("{before} because of this"));
        }
        if c.here_at != span && c.here_at != c.before_at {
            d = d.also(c.here_at, format!("{here} because of this"));
        }
        if c.before == Base::Stats || c.here == Base::Stats {
            d = d.help("read a statistic with @count, @sum, @min, @max or @avg");
        }
        self.report(d);
    }

    /// The local of that name, which the first use makes.
    fn local(&mut self, name: &Name, span: Span) -> LocalIx {
        if let Some(ix) = self.cur.by_name.get(name) {
            return *ix;
        }
        let ty = self.types.fresh();
        let ix = LocalIx(self.cur.locals.len());
        self.cur.locals.push(Local {
            name: name.clone(),
            span,
            ty,
            param: false,
            read: false,
            written: false,
            bound: false,
        });
        self.cur.by_name.insert(name.clone(), ix);
        ix
    }

    /// The meaning of a name: a parameter, a visible global, or else a local.
    fn var(&mut self, name: &Name, span: Span) -> VarMeaning {
        if let Some(ix) = self.cur.by_name.get(name)
            && (self.cur.locals[ix.0].param || self.cur.tapset)
        {
            return VarMeaning::Local(*ix);
        }
        match self.find_global(name) {
            Some(g) => VarMeaning::Global(g),
            None => VarMeaning::Local(self.local(name, span)),
        }
    }

    /// Candidates for suggestions; empty where there are too many errors for that.
    fn global_names(&self) -> Vec<Name> {
        if self.diags.error_count() > SUGGESTIONS {
            return Vec::new();
        }
        let users = self.tree.globals.iter().filter(|g| g.user);
        users.map(|g| g.name.clone()).collect()
    }

    fn find_global(&mut self, name: &Name) -> Option<GlobalIx> {
        let lib = self.lib;
        let (from, var) = lib.global(name, self.cur.file)?;
        if let Some(g) = self.globals.get(&(from, name.clone())) {
            return Some(*g);
        }
        let g = self.declare_global(from, var, self.is_user(from));
        self.pull(from);
        Some(g)
    }

    /// Queues the probes of a library file when one of its items is first used.
    fn pull(&mut self, file: FileId) {
        if !self.is_user(file) && self.pulled.insert(file) {
            let mut probes = (self.derive)(file, self.diags);
            probes.reverse();
            self.waiting.splice(0..0, probes);
        }
    }

    /// A global that is used with indexes.
    fn array(&mut self, name: &Name, span: Span) -> Option<GlobalIx> {
        if let Some(g) = self.find_global(name) {
            return Some(g);
        }
        let names = self.global_names();
        let text = format!("unresolved global array `{name}`, missing global declaration?");
        let d = Diagnostic::error(codes::UNKNOWN_ARRAY, text)
            .at(span)
            .did_you_mean(name, names.iter().map(|n| &**n))
            .help(match unavailable::reason_of_global(name) {
                Some(why) => why.to_owned(),
                None => format!("arrays have to be declared: `global {name}`"),
            });
        self.report(d);
        None
    }

    /// The key types of a global that is used with `n` indexes (0 for a scalar).
    fn global_keys(&mut self, g: GlobalIx, n: usize, span: Span) -> Option<Vec<TyVar>> {
        if n > spile_ir::MAX_KEYS {
            let text = format!("an array has at most nine indexes, not {n}");
            return self.refuse(codes::TOO_MANY_KEYS, span, text);
        }
        if let Some(keys) = &self.tree.globals[g.0].keys {
            if keys.len() == n {
                return Some(keys.clone());
            }
            let global = &self.tree.globals[g.0];
            let (name, keys_at) = (global.name.clone(), global.keys_at);
            let shown = |n: usize| match n {
                0 => "no index".to_owned(),
                1 => "1 index".to_owned(),
                n => format!("{n} indexes"),
            };
            let (now, before) = (shown(n), shown(keys.len()));
            let text = format!("`{name}` is used with {now} and with {before}");
            let d = Diagnostic::error(codes::INDEX_COUNT, text);
            let d = d.label(span, format!("{now} here"));
            self.report(d.also(keys_at, format!("{before} here")));
            return None;
        }
        let keys: Vec<TyVar> = (0..n).map(|_| self.types.fresh()).collect();
        let global = &mut self.tree.globals[g.0];
        global.keys = Some(keys.clone());
        global.keys_at = span;
        if n == 0 && (global.wrap || global.max.is_some()) {
            let text = format!("`{}` is declared as an array", global.name);
            let d = Diagnostic::error(codes::INDEX_COUNT, text).also(global.span, "declared here");
            self.report(d.label(span, "used without an index"));
        }
        Some(keys)
    }

    /// Resolves one handler. Handlers of the library run before the script's.
    fn handler(&mut self, d: &ProbeHandler, user: bool) {
        self.cur = UnitState {
            ctx: Some(Arc::new(d.ctx.clone())),
            event: Some(d.event.clone()),
            ..UnitState::default()
        };
        let mut body = Vec::new();
        // Predefined variables are library code, which sees internal operations.
        self.cur.tapset = true;
        self.cur.file = FileId::COMPILER;
        let input = match d.event {
            Event::InputLine => Some("line"),
            Event::InputChar => Some("char"),
            _ => None,
        };
        if let Some(name) = input.filter(|n| d.ctx.vars.iter().all(|v| *v.name != **n)) {
            let (f, args) = (spile_ir::Intrinsic::InputText, Vec::new());
            let init = self.str(HirExprKind::Intr { f, args }, d.span);
            body.push(self.predefine(&name.into(), init));
        }
        for v in &d.ctx.vars {
            let init = self.expr(&v.init);
            body.push(self.predefine(&v.name, init));
        }
        for (cond, file) in &d.conditions {
            self.enter_file(*file);
            self.check_condition(cond);
            let cond = self.integer(cond);
            let span = cond.span;
            self.conditions.push(cond.clone());
            if let HirExprKind::Num(n) = cond.kind
                && n != 0
            {
                continue;
            }
            let kind = HirStmtKind::Next;
            let (then, els) = (Vec::new(), vec![HirStmt { kind, span }]);
            let kind = HirStmtKind::If { cond, then, els };
            body.push(HirStmt { kind, span });
        }
        self.cur.unused = self.find_unused(d);
        for p in &d.parts {
            self.enter_file(p.file);
            body.extend(self.block(&p.body));
        }
        let (preamble, at_entry) = self.finish_entries(d);
        let cur = std::mem::take(&mut self.cur);
        body.splice(0..0, preamble);
        self.tree.units.push(Unit {
            name: d.point.clone(),
            span: d.span,
            user,
            kind: UnitKind::Handler {
                point: d.point.clone(),
                name: d.name.clone(),
                points: d.points,
                pattern: d.pattern.clone(),
                event: d.event.clone(),
                sites: d.ctx.sites.clone(),
            },
            locals: cur.locals,
            body,
        });
        self.tree.units.extend(at_entry);
    }

    fn find_unused(&self, d: &ProbeHandler) -> unused::Unused {
        let parts = d.parts.iter();
        let bodies: Vec<_> = parts.map(|p| (&*p.body, self.is_user(p.file))).collect();
        if self.settings.keep_unused || bodies.iter().all(|b| !b.1) {
            return unused::Unused::default();
        }
        let global = |name: &Name, file| self.lib.global(name, file).is_some();
        let local = |name: &Name| d.parts.iter().all(|p| !global(name, p.file));
        unused::find(&bodies, &local)
    }

    /// The statement `name = init` ahead of the body.
    fn predefine(&mut self, name: &Name, init: HirExpr) -> HirStmt {
        let span = init.span;
        let ix = self.local(name, span);
        let local = &mut self.cur.locals[ix.0];
        (local.written, local.bound) = (true, true);
        let ty = local.ty;
        self.unify(init.ty, ty, span);
        entry::set(LValue::Local(ix), init, ty, span)
    }

    fn enter_file(&mut self, file: FileId) {
        self.cur.file = file;
        self.cur.tapset = !self.is_user(file);
    }

    /// Resolves a queued function.
    fn function(&mut self, key: usize) {
        let Some(decl) = self.functions.get(&key) else {
            return;
        };
        let (f, unit, tapset, file) = (decl.func.clone(), decl.unit, decl.tapset, decl.file);
        let UnitKind::Func {
            params,
            ret,
            has_value,
            ..
        } = &self.tree.units[unit.0].kind
        else {
            return;
        };
        let (ret, has_value, params) = (*ret, *has_value, params.clone());
        let locals = self.tree.units[unit.0].locals.clone();
        let named = params.iter().map(|p| (locals[p.0].name.clone(), *p));
        let by_name = named.collect();
        self.cur = UnitState {
            locals,
            by_name,
            file,
            tapset,
            ret: Some(ret),
            has_value,
            ..UnitState::default()
        };
        let body = match &f.body {
            ast::FnBody::Block(b) => {
                if !tapset && !self.settings.keep_unused {
                    let is_param = |n: &Name| f.params.iter().any(|p| p.0.name == *n);
                    let local = |n: &Name| !is_param(n) && self.lib.global(n, file).is_none();
                    self.cur.unused = unused::find(&[(b, true)], &local);
                }
                self.block(b)
            }
            ast::FnBody::Embedded(e) => {
                self.embedded(e);
                Vec::new()
            }
        };
        let cur = std::mem::take(&mut self.cur);
        if let Some(decl) = self.functions.get_mut(&key) {
            decl.results = cur.results;
        }
        let u = &mut self.tree.units[unit.0];
        u.locals = cur.locals;
        u.body = body;
        if let UnitKind::Func { has_value, .. } = &mut u.kind {
            *has_value |= cur.has_value;
        }
    }
}

/// Parses a number as the language writes it, with an optional minus.
fn parse_number(text: &str) -> Option<i64> {
    let (neg, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let n = if let Some(hex) = digits.strip_prefix("0x") {
        u64::from_str_radix(hex, 16)
    } else if digits.len() > 1 && digits.starts_with('0') {
        u64::from_str_radix(&digits[1..], 8)
    } else {
        digits.parse()
    };
    let n = n.ok()?.cast_signed();
    Some(if neg { n.wrapping_neg() } else { n })
}
