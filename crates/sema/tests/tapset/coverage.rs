//! Coverage of the library, measured: a case of `tests/cases` uses every public function, global, macro
//! and alias and every variable of an alias, and says where its expected values come from. A case uses what is left
//! of its scripts after analysis has removed what has no effect, so each value reaches output, a condition or a global.
//!
//! The table of all names and their cases is written to `library.tsv` in cargo's folder for tests, `target/tmp`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::{LazyLock, Mutex};

use serde::Deserialize;
use spile_sema::analyse::analyse_seen;
use spile_sema::types::dead_stores;
use spile_sema::types::hir::{self, GlobalIx, LValue, LocalIx, Tree, Unit, UnitIx, UnitKind};
use spile_syntax::ast::{Alias, ProbePoint, Span, StmtBlock};
use spile_syntax::visit::{Visitor, walk_expr};
use spile_testing::files::{self, Expects, root};
use spile_testing::rehearsal::{CaseCommands, Script, Stage};

use super::*;

/// Kind and name: `function name/parameters`, `global name`, `macro name`, `alias name`,
/// `variable alias variable`.
pub(super) type Name = (&'static str, String);

/// Names, and the cases that use and compare them.
pub(super) type Coverage = BTreeMap<Name, BTreeSet<String>>;

/// Aliases whose events no kernel reports that spile runs on. A case with `expects = "never"` shows that.
const NEVER: &[(&str, &str)] = &[(
    "ioblock_trace.bounce",
    "64-bit kernels do not copy requests below a limit of addresses: none has CONFIG_BOUNCE",
)];

/// Macros of limits, which are not in the library's files.
const LIMITS: [&str; 2] = ["MAXSTRINGLEN", "MAXBACKTRACE"];

/// Number of rehearsals at a time. They mostly wait.
const REHEARSALS: usize = 8;

#[derive(Deserialize)]
struct Case {
    name: String,
    expects: Option<Expects>,
    #[serde(flatten)]
    commands: CaseCommands,
    stdout: Option<String>,
    #[serde(default)]
    stdout_has: Vec<String>,
    #[serde(default)]
    scrape: Vec<String>,
}

impl Case {
    fn is_rehearsed(&self) -> bool {
        let CaseCommands { shell, file, .. } = &self.commands;
        let shell = shell.as_deref().unwrap_or_default();
        let shell = shell.replace("&&", "").replace(">&", "");
        let skipped = ["while ", "until ", "&", "EXAMPLES"];
        let skipped = skipped.iter().any(|word| shell.contains(word)) || file.is_some();
        self.expects.is_some() || self.compares() && !skipped
    }

    /// Whether it compares standard output or samples.
    fn compares(&self) -> bool {
        let stdout = self.stdout.as_ref().is_some_and(|s| !s.is_empty());
        stdout || !self.stdout_has.is_empty() || !self.scrape.is_empty()
    }
}

/// The variables that a block assigns to.
#[derive(Default)]
struct Assigned(BTreeSet<String>);

impl Visitor for Assigned {
    fn expr(&mut self, e: &Expr) {
        if let ExprKind::Assign { lhs, .. } = &e.kind
            && let ExprKind::Var(name) = &lhs.kind
        {
            self.0.insert(name.to_string());
        }
        walk_expr(self, e);
    }
}

fn variables(alias: &Alias) -> BTreeSet<String> {
    let mut found = Assigned::default();
    let blocks: Vec<&StmtBlock> = std::iter::once(&alias.body).chain(&alias.second).collect();
    blocks.into_iter().for_each(|b| found.block(b));
    found.0
}

/// The components of a point, joined by dots.
fn dotted(point: &ProbePoint) -> String {
    let parts: Vec<&str> = point.components.iter().map(|c| &*c.name).collect();
    parts.join(".")
}

/// The library as scripts see it.
struct Public<'a> {
    files: &'a [(String, String)],
    parsed: &'a Parsed,
    names: BTreeSet<Name>,
    /// The points that aliases stand for.
    below: BTreeMap<String, Vec<String>>,
}

impl<'a> Public<'a> {
    fn new(files: &'a [(String, String)], parsed: &'a Parsed) -> Self {
        let macros = parsed.macros.names().filter(|m| !LIMITS.contains(m));
        let mut names: BTreeSet<Name> = macros.map(|m| ("macro", m.to_owned())).collect();
        let mut below: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (_, item) in &parsed.items {
            match item {
                Item::Function(f) if !f.private => {
                    names.insert(("function", format!("{}/{}", f.name.name, f.params.len())));
                }
                Item::Global(g) if !g.private => {
                    names.extend(g.vars.iter().map(|v| ("global", v.name.name.to_string())));
                }
                Item::Alias(a) => {
                    for alias in a.names.iter().map(dotted) {
                        let all = variables(a).into_iter();
                        names.extend(all.map(|v| ("variable", format!("{alias} {v}"))));
                        let points = a.points.iter().map(dotted);
                        below.entry(alias.clone()).or_default().extend(points);
                        names.insert(("alias", alias));
                    }
                }
                _ => {}
            }
        }
        names.retain(|(_, name)| !name.split(' ').any(|word| word.starts_with("__")));
        Self {
            files,
            parsed,
            names,
            below,
        }
    }

    /// An alias with all those that it stands for.
    fn aliases_below(&self, name: &str) -> BTreeSet<String> {
        let (mut found, mut todo) = (BTreeSet::new(), vec![name]);
        while let Some(name) = todo.pop() {
            if found.insert(name.to_owned()) {
                todo.extend(self.below.get(name).into_iter().flatten().map(|b| &**b));
            }
        }
        found
    }

    /// The aliases of a script's points that go on behind the alias, as `timer.profile.freq.hz(100)` does.
    fn with_more(&self, item: &Item) -> BTreeSet<Name> {
        let Item::Probe(probe) = item else {
            return BTreeSet::new();
        };
        let alias = |point: &ProbePoint| {
            let point = dotted(point);
            let ends = point.match_indices('.').map(|(at, _)| at);
            let ends = ends.chain([point.len()]).collect::<Vec<_>>();
            let names = ends.into_iter().rev().map(|at| point[..at].to_owned());
            let mut names = names.map(|n| ("alias", n));
            names.find(|n| self.names.contains(n))
        };
        probe.points.iter().filter_map(alias).collect()
    }

    /// The names that a script uses, and what analysis says. Errors do not matter: the machine
    /// here is not that of the case, which has to succeed.
    fn used(&self, script: &Script) -> (BTreeSet<Name>, String) {
        let (mut sources, mut library) = (self.parsed.sources.clone(), self.parsed.library.clone());
        let mut diags = Diagnostics::new();
        // It has the variables that the script mentions.
        let case = ("case.stp".into(), script.text.clone());
        let facts = machine(&[self.files, &[case]].concat());
        let id = sources.add("case.stp", script.text.as_bytes().to_vec());
        let mut environment = environment();
        environment.args = script.args.clone();
        environment.guru = true;
        let macros = &self.parsed.macros;
        let file = parse_file(&mut sources, id, &environment, macros, &mut diags);
        let mut used: BTreeSet<Name> = file.items.iter().flat_map(|i| self.with_more(i)).collect();
        library.add(id, file, true);
        let inputs = Inputs {
            library: &library,
            sources: &sources,
            facts: &facts,
            tables: &|_| Some(vec![b"".as_slice().into(), b"ONE".as_slice().into()]),
            options: &AnalysisOptions {
                guru: true,
                ..AnalysisOptions::default()
            },
        };
        let _ = analyse_seen(&inputs, &mut diags, &mut |tree, _| {
            let mut left = Tree {
                units: tree.units.clone(),
                ..Tree::default()
            };
            dead_stores::prune(&mut left);
            let mut uses = Uses {
                public: self,
                tree,
                script: id,
                units: &left.units,
                used: BTreeSet::new(),
                seen: BTreeSet::new(),
                aliases: BTreeSet::new(),
            };
            uses.handlers();
            used.append(&mut uses.used);
        });
        let macros = self.names.iter().filter(|(kind, _)| *kind == "macro");
        used.extend(macros.filter(|(_, m)| expands(&script.text, m)).cloned());
        used.retain(|name| self.names.contains(name));
        (used, diags.render(&sources, false))
    }
}

/// Whether a script names a macro, of which nothing is left after parsing.
fn expands(text: &str, name: &str) -> bool {
    let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let mut names = text.split('@').skip(1);
    names.any(|rest| rest.starts_with(name) && !word(rest[name.len()..].chars().next()))
}

/// Collects what the handlers of a script and its own functions use.
struct Uses<'a> {
    public: &'a Public<'a>,
    tree: &'a Tree,
    script: FileId,
    /// What is left of those of the tree.
    units: &'a [Unit],
    used: BTreeSet<Name>,
    /// Visited units.
    seen: BTreeSet<usize>,
    /// Those of the handler.
    aliases: BTreeSet<String>,
}

impl Uses<'_> {
    fn handlers(&mut self) {
        for (i, unit) in self.units.iter().enumerate() {
            if let UnitKind::Handler { name, .. } = &unit.kind
                && unit.user
                && !unit.body.is_empty()
            {
                self.aliases = self.public.aliases_below(name);
                let aliases = self.aliases.iter().map(|a| ("alias", a.clone()));
                self.used.extend(aliases);
                self.unit(i);
            }
        }
    }

    fn unit(&mut self, i: usize) {
        if !self.seen.insert(i) {
            return;
        }
        let unit = &self.units[i];
        let (mut read, mut exprs) = (BTreeSet::new(), Vec::new());
        hir::walk_exprs(&unit.body, &mut |e| {
            if let hir::HirExprKind::Read(LValue::Local(ix)) = &e.kind {
                read.insert(*ix);
            }
            exprs.push(e);
        });
        exprs.iter().for_each(|e| self.expr(unit, e, &read));
        hir::walk_stmts(&unit.body, &mut |s| match &s.kind {
            hir::HirStmtKind::Foreach(f) => self.global(s.span, f.global),
            hir::HirStmtKind::DeleteAll(g) | hir::HirStmtKind::DeleteElem(g, _) => {
                self.global(s.span, *g);
            }
            _ => {}
        });
    }

    fn global(&mut self, span: Span, global: GlobalIx) {
        let global = &self.tree.globals[global.0];
        if span.file == self.script && !global.user {
            self.used.insert(("global", global.name.to_string()));
        }
    }

    fn expr(&mut self, unit: &Unit, e: &hir::HirExpr, read: &BTreeSet<LocalIx>) {
        use hir::HirExprKind as E;
        match &e.kind {
            E::Call { func, .. } if e.span.file == self.script => self.call(*func),
            // The library sets a variable that is read: one of the handler's alias, or of one below it.
            E::Assign {
                lvalue: LValue::Local(ix),
                ..
            } if read.contains(ix) && e.span.file != self.script => {
                let variable = &unit.locals[ix.0].name;
                let names = self.aliases.iter().map(|a| format!("{a} {variable}"));
                self.used.extend(names.map(|n| ("variable", n)));
            }
            E::In { g, .. } => self.global(e.span, *g),
            E::Read(lvalue)
            | E::Assign { lvalue, .. }
            | E::IncDec { lvalue, .. }
            | E::StatAdd { lvalue, .. }
            | E::Stat { lvalue, .. }
            | E::HistGet { lvalue, .. }
            | E::PrintHist { lvalue, .. } => {
                if let Some((g, _)) = lvalue.global() {
                    self.global(e.span, g);
                }
            }
            _ => {}
        }
    }

    /// Only what the script itself calls counts, not what the library calls for that.
    fn call(&mut self, UnitIx(func): UnitIx) {
        let unit = &self.units[func];
        match &unit.kind {
            _ if unit.user => self.unit(func),
            UnitKind::Func { params, .. } => {
                let name = format!("{}/{}", unit.name, params.len());
                self.used.insert(("function", name));
            }
            UnitKind::Handler { .. } => {}
        }
    }
}

/// The scripts of all cases that compare output. Left out are examples of SystemTap, which not every machine has, and
/// shells that may wait for output (loops, background), unless the library's coverage needs them.
pub(super) static REHEARSED: LazyLock<BTreeSet<(String, Option<Expects>, Script)>> =
    LazyLock::new(|| {
        let mut cases = Vec::new();
        // Those of harm make one script of thousands of points.
        let files = files::cases::<Case>().into_iter();
        for (stem, list) in files.filter(|(stem, _)| !stem.starts_with("harm")) {
            let list = list.into_iter().filter(Case::is_rehearsed);
            cases.extend(list.map(|c| (format!("{stem}::{}", c.name), c)));
        }
        rehearsals(cases)
    });

/// The scripts of cases, by the cases' names.
fn rehearsals(cases: Vec<(String, Case)>) -> BTreeSet<(String, Option<Expects>, Script)> {
    let todo = Mutex::new(cases);
    let found = Mutex::new(BTreeSet::new());
    let stage = Stage::new().unwrap();
    let work = || {
        while let Some((key, case)) = { todo.lock().unwrap().pop() } {
            let scripts = stage
                .scripts(&case.commands)
                .unwrap_or_else(|e| panic!("{key}: {e}"));
            let scripts = scripts.into_iter().map(|s| (key.clone(), case.expects, s));
            found.lock().unwrap().extend(scripts);
        }
    };
    std::thread::scope(|s| (0..REHEARSALS).for_each(|_| drop(s.spawn(work))));
    found.into_inner().unwrap()
}

/// Whether a case with `expects = "never"` speaks of that name.
fn is_never((_, name): &Name) -> bool {
    let alias = name.split(' ').next();
    NEVER.iter().any(|(never, _)| alias == Some(never))
}

/// What cases use that say where their values come from, and what analysis says of them. With `rehearse`
/// also cases whose shell has to make the scripts.
fn measure(public: &Public, rehearse: bool) -> (Coverage, String) {
    let (mut coverage, mut said) = (Coverage::new(), String::new());
    let mut cases = Vec::new();
    for (stem, list) in files::cases::<Case>() {
        let list = list.into_iter().filter(|c| c.expects.is_some());
        cases.extend(list.map(|c| (format!("{stem}::{}", c.name), c)));
    }
    for (key, case) in &cases {
        assert!(
            case.compares(),
            "{key}: it expects values and compares none"
        );
    }
    let scripts = if rehearse {
        REHEARSED.clone()
    } else {
        cases.retain(|(_, case)| case.commands.shell.is_none());
        rehearsals(cases)
    };
    for (key, expects, script) in scripts.into_iter().filter(|(_, e, _)| e.is_some()) {
        let (used, why) = public.used(&script);
        for name in used {
            if is_never(&name) == (expects == Some(Expects::Never)) {
                coverage.entry(name).or_default().insert(key.clone());
            }
        }
        let errors = why.split("\n\n").filter(|w| w.starts_with("error"));
        for error in errors {
            let _ = writeln!(said, "{key}: {error}");
        }
    }
    (coverage, said)
}

/// What cases with a script of their own use.
pub(super) fn of_scripts() -> Coverage {
    let files = files();
    let parsed = parsed(&files);
    measure(&Public::new(&files, &parsed), false).0
}

#[test]
fn every_public_name_is_used_by_a_case_that_compares_it() {
    let files = files();
    let parsed = parsed(&files);
    let public = Public::new(&files, &parsed);
    let (coverage, said) = measure(&public, true);
    let mut table = String::new();
    for ((kind, name), cases) in &coverage {
        let cases: Vec<&str> = cases.iter().map(|c| &**c).collect();
        let _ = writeln!(table, "{kind}\t{name}\t{}", cases.join("\t"));
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("library.tsv");
    std::fs::write(path, table).unwrap();
    let without = public.names.iter().filter(|n| !coverage.contains_key(n));
    let without: Vec<String> = without.map(|(kind, n)| format!("{kind} {n}")).collect();
    assert!(
        without.is_empty(),
        "no case with `expects` uses and compares these names of the library, see CONTRIBUTING.md:\n{}\n\n\
         Analysis of cases found:\n{said}",
        without.join("\n"),
    );
}

/// Every alias of SystemTap is there with all its variables, or has a row that says why not.
#[test]
fn every_alias_of_systemtap_is_there_or_has_its_reason() {
    let files = files();
    let parsed = parsed(&files);
    let public = Public::new(&files, &parsed);
    let mut own: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (_, item) in &parsed.items {
        let Item::Alias(a) = item else { continue };
        for alias in a.names.iter().map(dotted) {
            own.insert(alias, variables(a));
        }
    }
    let has = |alias: &str, variable: &str| {
        let of_calls = ["name", "argstr", "retstr"].contains(&variable);
        public.aliases_below(alias).iter().any(|below| {
            own.get(below).is_some_and(|v| v.contains(variable))
                || (below.starts_with("syscall.") && of_calls)
        })
    };
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let missing = read("tapset/missing.tsv");
    let missing: BTreeMap<&str, (&str, &str)> = missing
        .lines()
        .filter(|l| !l.starts_with('#'))
        .map(|l| {
            let mut cells = l.split('\t');
            let mut next = || cells.next().unwrap_or_default();
            (next(), (next(), next()))
        })
        .collect();
    let mut wrong = Vec::new();
    let mut check = |alias: &str, variables: &str, left_out: &str| match own.get(alias) {
        None => wrong.push(format!("{alias}: no definition")),
        Some(_) => {
            let known = |v: &&str| has(alias, v) || left_out.split(' ').any(|l| l == *v);
            let lacking = variables.split_ascii_whitespace().filter(|v| !known(v));
            wrong.extend(lacking.map(|v| format!("{alias}: no variable {v}")));
        }
    };
    for line in read("tests/aliases.tsv").lines() {
        let Some((alias, variables)) = line.split_once('\t').filter(|_| !line.starts_with('#'))
        else {
            continue;
        };
        match missing.get(alias) {
            Some(("gone", _)) => {}
            Some((left_out, _)) => check(alias, variables, left_out),
            // The kernel's own table has the named events.
            None if alias.starts_with("perf.hw.") => {}
            None => check(alias, variables, ""),
        }
    }
    let reasonless = missing.iter().filter(|(_, (_, why))| why.is_empty());
    wrong.extend(reasonless.map(|(alias, _)| format!("{alias}: a row without a reason")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
