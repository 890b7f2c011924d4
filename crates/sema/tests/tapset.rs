//! The library itself: every function compiles in a kernel handler or in a controller handler, or
//! is refused with a location; every alias sets all its variables.
//!
//! The machine has every structure with every member, so only the library is tested.

#[path = "tapset/constructs.rs"]
mod constructs;
#[path = "tapset/coverage.rs"]
mod coverage;
#[path = "tapset/in_process.rs"]
mod in_process;
#[path = "tapset/reference.rs"]
mod reference;
mod support;

use std::collections::BTreeSet;

use spile_ir::intrinsics::IntrinsicClass;
use spile_ir::{Body, Inst};
use spile_machine::{ANY_PTR, FakeCode, FakeMachine};
use spile_sema::analyse::{Analysis, AnalysisOptions, Inputs, analyse};
use spile_sema::facts::*;
use spile_sema::library::Library;
use spile_sema::missing::Missing;
use spile_syntax::ast::{Expr, ExprKind, FileId, Function, Item, Stmt, StmtKind, TypeName};
use spile_syntax::diag::Diagnostics;
use spile_syntax::parser::{parse_file, parse_macros};
use spile_syntax::preproc::{MacroLibrary, PreprocEnv};
use spile_syntax::source::Sources;
use support::bpf_options;

static MISSING: Missing = Missing::new(include_str!("../../../tapset/missing.tsv"));

/// Programs and arguments with the variables that the library's files mention.
struct Mentioned {
    files: Vec<(String, String)>,
}

impl Mentioned {
    /// The names after `$` in all files.
    fn mentioned(&self) -> BTreeSet<&str> {
        self.files.iter().flat_map(|f| targets(&f.1)).collect()
    }
}

impl FakeCode for Mentioned {
    fn modules(&self, query: &ModuleQuery) -> Result<Vec<FoundModule>, String> {
        let module = match query {
            ModuleQuery::Path(path) => ProbeModule::File(path.clone()),
            ModuleQuery::KernelModule(_) => ProbeModule::Kernel,
            _ => return Err("no such".into()),
        };
        Ok(vec![FoundModule { module, pid: None }])
    }
    fn locations(&self, query: &CodeQuery) -> Result<Vec<FoundLocation>, String> {
        let (name, provider) = match query {
            CodeQuery::Function { name, .. } | CodeQuery::Statement { name, .. } => (name, None),
            CodeQuery::Mark { name, .. } => (name, Some("program".into())),
            CodeQuery::Address { .. } | CodeQuery::Plt(_) => return Ok(Vec::new()),
        };
        let code = spile_ir::CodeLocation::File {
            path: "/x".into(),
            offset: 64,
        };
        Ok(vec![FoundLocation {
            provider,
            ..FoundLocation::new(0, name.clone(), code, 64)
        }])
    }
    /// The variables that the library's probes mention, at every location.
    fn variables(&self, _: u64, ret: bool) -> Vec<Variable> {
        let names = self.mentioned().into_iter();
        let wanted = names.filter(|n| ret || *n != "return");
        let variable = |name: &str| Variable {
            name: name.into(),
            ty: ANY_PTR,
            kind: match name {
                "return" => VarKind::Return,
                _ => VarKind::Parameter,
            },
            loc: VarLocation::Value(vec![match name {
                "return" => LocOp::Ret,
                _ => LocOp::Arg(0),
            }]),
        };
        wanted.map(variable).collect()
    }
    fn global(&self, _: &str) -> Option<Variable> {
        None
    }
    /// The arguments that probes of a point mention.
    fn arguments(&self, point: &str) -> Vec<TracepointArg> {
        let mut names: BTreeSet<&str> = BTreeSet::new();
        for (_, text) in &self.files {
            for (start, _) in text.match_indices(point) {
                let rest = &text[start..];
                let body = &rest[..rest.find("\n}").unwrap_or(rest.len())];
                names.extend(targets(body));
                // Parts of a body can be macros.
                for (_, macros) in self.files.iter().filter(|(n, _)| n.ends_with(".stpm")) {
                    for definition in macros.split("@define ").skip(1) {
                        let name = definition.split(['(', ' ']).next().unwrap_or_default();
                        if body.contains(&format!("@{name}")) {
                            names.extend(targets(definition));
                        }
                    }
                }
            }
        }
        let arg = |n: &str| TracepointArg {
            name: n.into(),
            ty: ANY_PTR,
        };
        names.into_iter().map(arg).collect()
    }
}

/// The library's files, by name.
fn files() -> Vec<(String, String)> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tapset");
    let mut files: Vec<(String, String)> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .map(|p| {
            let name = p.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&p).unwrap())
        })
        .collect();
    files.sort();
    let limit = "@define MAXSTRINGLEN %( 512 %)\n@define MAXBACKTRACE %( 20 %)\n".to_owned();
    files.push(("limits.stpm".into(), limit));
    files
}

/// The names after `$` in a text.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    text.split('$').skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        &rest[..end.unwrap_or(rest.len())]
    })
}

fn machine(files: &[(String, String)]) -> FakeMachine {
    let files = files.to_vec();
    FakeMachine::with_every_name(Mentioned { files })
}

fn environment() -> PreprocEnv {
    PreprocEnv::new("6.12.0", "x86_64")
}

/// The public macros.
fn macros(
    files: &[(String, String)],
    sources: &mut Sources,
    diags: &mut Diagnostics,
) -> MacroLibrary {
    let mut macros = MacroLibrary::new();
    for (name, text) in files.iter().filter(|(n, _)| n.ends_with(".stpm")) {
        let id = sources.add_built_in(name.as_str(), text.clone().into_bytes());
        macros.extend(parse_macros(sources, id, &environment(), diags));
    }
    macros
}

/// The items of all files with the files' texts.
fn items(files: &[(String, String)]) -> Vec<(String, Item)> {
    let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
    let macros = macros(files, &mut sources, &mut diags);
    let mut out = Vec::new();
    for (name, text) in files.iter().filter(|(n, _)| n.ends_with(".stp")) {
        let id = sources.add_built_in(name.as_str(), text.clone().into_bytes());
        let file = parse_file(&mut sources, id, &environment(), &macros, &mut diags);
        out.extend(file.items.into_iter().map(|i| (text.clone(), i)));
    }
    assert!(diags.is_empty(), "{}", diags.render(&sources, false));
    out
}

/// The library, parsed.
struct Parsed {
    sources: Sources,
    library: Library,
    macros: MacroLibrary,
    items: Vec<(FileId, Item)>,
}

fn parsed(files: &[(String, String)]) -> Parsed {
    parsed_in(files, &environment())
}

/// The library, parsed for an environment.
fn parsed_in(files: &[(String, String)], env: &PreprocEnv) -> Parsed {
    let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
    let macros = macros(files, &mut sources, &mut diags);
    let mut library = Library::new();
    library.set_missing(&MISSING);
    let mut items = Vec::new();
    for (name, text) in files.iter().filter(|(n, _)| n.ends_with(".stp")) {
        let id = sources.add_built_in(name.as_str(), text.clone().into_bytes());
        let file = parse_file(&mut sources, id, env, &macros, &mut diags);
        items.extend(file.items.iter().map(|item| (id, item.clone())));
        library.add(id, file, false);
    }
    Parsed {
        sources,
        library,
        macros,
        items,
    }
}

/// Analyses a script with the real library, in guru mode, so that functions that change processes are
/// analysed as well.
fn run(parsed: &Parsed, facts: &FakeMachine, script: &str) -> Result<Analysis, String> {
    run_in_mode(parsed, facts, script, true)
}

fn run_in_mode(
    parsed: &Parsed,
    facts: &FakeMachine,
    script: &str,
    guru: bool,
) -> Result<Analysis, String> {
    let (mut sources, mut library) = (parsed.sources.clone(), parsed.library.clone());
    let mut diags = Diagnostics::new();
    let id = sources.add("test.stp", script.as_bytes().to_vec());
    let macros = &parsed.macros;
    let file = parse_file(&mut sources, id, &environment(), macros, &mut diags);
    library.add(id, file, true);
    let inputs = Inputs {
        library: &library,
        sources: &sources,
        facts,
        // The caller of the analysis knows the tables; here each has the same content.
        tables: &|_| Some(vec![b"".as_slice().into(), b"ONE".as_slice().into()]),
        options: &AnalysisOptions {
            guru,
            ..AnalysisOptions::default()
        },
    };
    match analyse(&inputs, &mut diags) {
        Ok(a) => Ok(a),
        Err(_) if diags.iter().all(|d| d.primary.is_some()) => Err(diags.render(&sources, false)),
        Err(_) => panic!(
            "refused without a location: {}",
            diags.render(&sources, false)
        ),
    }
}

/// Asserts that an accepted script compiles.
fn compile(a: Analysis, script: &str) {
    let mut p = a.program;
    spile_ir::opt::optimise(&mut p, true);
    spile_ir::storage::classify(&mut p);
    spile_ir::verify::verify(&p).unwrap_or_else(|e| panic!("{script}: {e:?}"));
    if p.handlers.iter().any(|h| h.event.is_compiled()) {
        spile_bpf::compile(&p, &bpf_options()).unwrap_or_else(|e| panic!("{script}: {e}"));
    }
}

/// Locations in which functions are tried.
const POINTS: [&str; 4] = [
    "begin",
    "syscall.read.return",
    "kernel.trace(\"x\")",
    "process(\"/x\").function(\"f\").return",
];

/// A call of a function, with constants for operands that have to be one.
fn sample_call(f: &Function) -> String {
    let args = f.params.iter().map(|(_, ty)| match ty {
        Some(TypeName::String) => "execname()",
        _ => "2",
    });
    let call = format!("{}({})", f.name.name, args.collect::<Vec<_>>().join(", "));
    match f.ret {
        Some(_) => format!("println({call})"),
        None => call,
    }
}

/// The locations where a function may run, and the errors where it may not.
fn locations(
    parsed: &Parsed,
    facts: &FakeMachine,
    call: &str,
) -> [(&'static str, Option<String>); 4] {
    POINTS.map(|point| {
        let script = format!("probe {point} {{ {call} }}");
        let a = match run(parsed, facts, &script) {
            Ok(a) => a,
            Err(text) => return (point, Some(text)),
        };
        compile(a, &script);
        (point, None)
    })
}

#[test]
fn functions_of_the_tapset_are_analysed() {
    let files = files();
    let (facts, parsed) = (machine(&files), parsed(&files));
    let mut wrong = Vec::new();
    let mut count = 0;
    for (_, item) in items(&files) {
        let Item::Function(f) = item else { continue };
        if f.name.name.starts_with("__") {
            continue;
        }
        let call = sample_call(&f);
        let found = locations(&parsed, &facts, &call);
        count += 1;
        if found.iter().all(|(_, refused)| refused.is_some()) {
            wrong.push(format!("{call} runs nowhere: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 150, "{count}");
}

#[test]
fn functions_that_change_processes_need_guru_mode() {
    let files = files();
    let (facts, parsed) = (machine(&files), parsed(&files));
    let mut changing = 0;
    for (_, item) in items(&files) {
        let Item::Function(f) = item else { continue };
        if f.name.name.starts_with("__") {
            continue;
        }
        let script = format!("probe {} {{ {} }}", POINTS[3], sample_call(&f));
        let Ok(analysis) = run(&parsed, &facts, &script) else {
            continue;
        };
        let acts = |inst: &Inst| matches!(inst, Inst::Intr { f, .. } if matches!(f.class(), IntrinsicClass::Act(_)));
        let bodies = analysis.program.bodies();
        if bodies.flat_map(Body::insts).any(acts) {
            let refused = run_in_mode(&parsed, &facts, &script, false).err();
            assert!(
                refused.is_some_and(|text| text.contains("E0531")),
                "{script}"
            );
            changing += 1;
        }
    }
    assert!(changing >= 9, "{changing}");
}

/// The variable to which a statement assigns a value.
fn assigned(s: &Stmt) -> Option<&str> {
    let StmtKind::Expr(Expr {
        kind: ExprKind::Assign { op: None, lhs, .. },
        ..
    }) = &s.kind
    else {
        return None;
    };
    match &lhs.kind {
        ExprKind::Var(name) => Some(name),
        _ => None,
    }
}

/// Variables that only handlers in user space can compute.
const NOT_IN_KERNEL: &[&str] = &[];

#[test]
fn aliases_of_the_tapset_are_analysed() {
    let files = files();
    let (facts, parsed) = (machine(&files), parsed(&files));
    let mut count = 0;
    for (_, item) in items(&files) {
        let Item::Alias(a) = item else { continue };
        let words: Vec<&str> = a.names[0].components.iter().map(|c| &*c.name).collect();
        // Those of the library are analysed where public ones use them.
        if words[0].starts_with("__") {
            continue;
        }
        let point = words.join(".");
        let vars = a.body.stmts.iter().filter_map(assigned);
        let vars = vars.filter(|v| !NOT_IN_KERNEL.contains(v));
        let prints: Vec<String> = vars.map(|v| format!("println({v})")).collect();
        let script = format!("probe {point} {{ println(pn()) {} }}", prints.join(" "));
        match run(&parsed, &facts, &script) {
            Ok(a) => compile(a, &script),
            Err(text) => panic!("{script}\n{text}"),
        }
        count += 1;
    }
    assert!(count > 25, "{count}");
}

/// Every name in the table of missing names is missing, and reading it is an error.
#[test]
fn names_that_are_missing_have_substitutes() {
    let files = files();
    let (facts, parsed) = (machine(&files), parsed(&files));
    let mut count = 0;
    for (alias, vars) in MISSING.variables() {
        if alias.starts_with("syscall.") {
            continue;
        }
        for var in vars {
            let script = format!("probe {alias} {{ println({var}) }}");
            let text = run(&parsed, &facts, &script).err().unwrap_or_default();
            assert!(text.contains("E0326"), "{script}: {text}");
            count += 1;
        }
    }
    assert!(count > 5, "{count}");
}
