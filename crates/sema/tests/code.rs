//! Locations in code: those that share a handler, and the code for variables.

use spile_ir::{BinOp, CodeLocation, Event, Program};
use spile_machine::{FakeCode, FakeMachine, INT, TASK_PTR, TWIN};
use spile_sema::analyse::{AnalysisOptions, Inputs, analyse};
use spile_sema::facts::*;
use spile_sema::library::Library;
use spile_syntax::diag::Diagnostics;
use spile_syntax::parser::parse_file;
use spile_syntax::preproc::{MacroLibrary, PreprocEnv};
use spile_syntax::source::Sources;

const TAPSET: &str = "function pp:string() { return __pp() }
function ppfunc:string() { return __ppfunc() }
function pid:long() { return __pid() }";

/// The program `/demo`.
struct Demo;

/// The functions, each with the location of `a`.
fn functions() -> Vec<(&'static str, VarLocation)> {
    let shifted = vec![LocOp::Reg(7), LocOp::Const(8), LocOp::Bin(BinOp::Add)];
    vec![
        ("alpha", VarLocation::Value(vec![LocOp::Reg(5)])),
        ("beta", VarLocation::Value(vec![LocOp::Reg(5)])),
        ("delta", VarLocation::Absent("optimised out".into())),
        ("gamma", VarLocation::Address(shifted)),
    ]
}

impl FakeCode for Demo {
    fn modules(&self, query: &ModuleQuery) -> Result<Vec<FoundModule>, String> {
        match query {
            ModuleQuery::Path(path) if &**path == "/demo" => Ok(vec![FoundModule {
                module: ProbeModule::File(path.clone()),
                pid: None,
            }]),
            ModuleQuery::Pid(pid) => Err(format!("there is no process {pid}")),
            _ => Err("no such program".into()),
        }
    }
    fn locations(&self, query: &CodeQuery) -> Result<Vec<FoundLocation>, String> {
        let CodeQuery::Function { name, .. } = query else {
            return Err("no line numbers".into());
        };
        let found = functions().into_iter().zip(0u64..);
        let fits = |name: &str, n: &str| spile_glob::matches(name, n);
        let found = found.filter(|((n, _), _)| fits(name, n));
        Ok(found
            .map(|((n, _), id)| FoundLocation {
                id,
                name: n.into(),
                file: Some("demo.c".into()),
                line: 10 + id as u32,
                provider: None,
                label: None,
                inlined: false,
                location: CodeLocation::File {
                    path: "/demo".into(),
                    offset: 16 * id,
                },
                address: 0x1000 + 16 * id,
                semaphore: 0,
                exits: None,
                callers: None,
                inexact: None,
            })
            .collect())
    }
    fn variables(&self, id: u64, ret: bool) -> Vec<Variable> {
        let variable = |name: &str, ty, kind, loc| Variable {
            name: name.into(),
            ty,
            kind,
            loc,
        };
        let a = functions()[id as usize].1.clone();
        let task = VarLocation::Value(vec![LocOp::Reg(4)]);
        let mut all = vec![
            variable("a", if id == 1 { TWIN } else { INT }, VarKind::Parameter, a),
            variable("task", TASK_PTR, VarKind::Parameter, task),
        ];
        if ret {
            let loc = VarLocation::Value(vec![LocOp::Ret]);
            all.push(variable("return", INT, VarKind::Return, loc));
        }
        all
    }
    fn global(&self, name: &str) -> Option<Variable> {
        (name == "counter").then(|| Variable {
            name: name.into(),
            ty: INT,
            kind: VarKind::Global,
            loc: VarLocation::Address(vec![
                LocOp::Bias(16),
                LocOp::Const(0x4000),
                LocOp::Bin(BinOp::Add),
            ]),
        })
    }
}

/// The optimised program, or the errors.
fn program(script: &str) -> Result<Program, String> {
    let mut sources = Sources::new();
    let mut diags = Diagnostics::new();
    let env = PreprocEnv::new("6.12.0", "x86_64");
    let macros = MacroLibrary::new();
    let mut library = Library::new();
    for (name, text, user) in [("lib.stp", TAPSET, false), ("test.stp", script, true)] {
        let content = text.as_bytes().to_vec();
        let id = match user {
            true => sources.add(name, content),
            false => sources.add_built_in(name, content),
        };
        let file = parse_file(&mut sources, id, &env, &macros, &mut diags);
        library.add(id, file, user);
    }
    let inputs = Inputs {
        library: &library,
        sources: &sources,
        facts: &FakeMachine::with_code(Demo),
        tables: &|_| None,
        options: &AnalysisOptions::default(),
    };
    let found = analyse(&inputs, &mut diags);
    let mut program = found.map_err(|_| diags.render(&sources, false))?.program;
    spile_ir::opt::optimise(&mut program, true);
    spile_ir::storage::classify(&mut program);
    let text = program.to_string();
    spile_ir::verify::verify(&program).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let again: Program = spile_ir::reader::read(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(again.to_string(), text);
    Ok(program)
}

/// The number of locations of each handler.
fn sites(script: &str) -> Vec<usize> {
    let program = program(script).unwrap_or_else(|e| panic!("{e}"));
    let count = |h: &spile_ir::Handler| match &h.event {
        Event::Code(probe) => probe.sites.len(),
        _ => 0,
    };
    program.handlers.iter().map(count).collect()
}

#[test]
fn locations_share_a_handler_where_variables_are_the_same() {
    let all = r#"process("/demo").function("*")"#;
    assert_eq!(sites(&format!("probe {all} {{ println(pid()) }}")), [4]);
    // One table of names for all.
    let named = program(&format!("probe {all} {{ println(ppfunc(), pp()) }}")).expect("fine");
    assert_eq!(named.handlers.len(), 1);
    let names: Vec<usize> = named.tables.iter().map(|t| t.entries.len()).collect();
    assert_eq!(names, [4, 4]);
    let point = String::from_utf8_lossy(&named.tables[1].entries[0]).into_owned();
    assert_eq!(point, r#"process("/demo").function("alpha@demo.c:10")"#);
    let a = format!("probe {all} {{ println(@defined($a) ? $a : -1) }}");
    // Identical types of two units make no difference in the end.
    assert_eq!(sites(&a), [2, 1, 1]);
    let both = format!("probe {all} {{ println(ppfunc(), @defined($a) ? $a : -1) }}");
    let both = program(&both).expect("fine");
    assert_eq!((both.handlers.len(), both.tables.len()), (3, 1));
    assert_eq!(both.tables[0].entries.len(), 4);
    let Event::Code(last) = &both.handlers[2].event else {
        panic!("no code")
    };
    assert_eq!(last.sites[0].number, 3);
    let named: Vec<_> = both
        .handlers
        .iter()
        .map(|h| (&*h.point, h.points))
        .collect();
    let one = |name: &str| format!(r#"process("/demo").function("{name}")"#);
    let (delta, gamma) = (one("delta@demo.c:12"), one("gamma@demo.c:13"));
    assert_eq!(named, [(all, 2), (&delta, 1), (&gamma, 1)]);
    assert_eq!(
        sites(&format!("probe {all} {{ println($task->pid) }}")),
        [4]
    );
    // The load address comes from the location itself.
    assert_eq!(sites(&format!("probe {all} {{ println($counter) }}")), [4]);
}

#[test]
fn returns_take_values_from_the_entry() {
    let point = r#"process("/demo").function("alpha").return"#;
    let script = format!("probe {point} {{ println($a, $return, $$parms, @entry($task->pid)) }}");
    let program = program(&script).expect("fine");
    let rets: Vec<bool> = program
        .handlers
        .iter()
        .map(|h| matches!(&h.event, Event::Code(probe) if probe.ret))
        .collect();
    // Hidden handlers come first.
    assert_eq!(rets, [false, true]);
    // Each value has thread and stack pointer as keys.
    let two = |g: &spile_ir::Global| matches!(&g.kind, spile_ir::GlobalKind::Array { keys, .. } if keys.len() == 2);
    let arrays: Vec<_> = program
        .globals
        .iter()
        .filter(|g| g.saves_entry_values())
        .collect();
    assert_eq!(arrays.len(), 3);
    assert!(arrays.into_iter().all(two));
    // Returns without values are counted.
    let counter = |g: &&spile_ir::Global| &*g.name == spile_ir::UNSEEN_ENTRIES;
    assert_eq!(program.globals.iter().filter(counter).count(), 1);
}

#[test]
fn unavailable_variables_are_reported() {
    let at = |what: &str, body: &str| {
        let script = format!(r#"probe process("/demo").{what} {{ {body} }}"#);
        program(&script).expect_err(&script)
    };
    let gone = at(r#"function("delta")"#, "println($a)");
    assert!(
        gone.contains("E0323") && gone.contains("optimised out"),
        "{gone}"
    );
    let none = at(r#"function("alph")"#, "");
    assert!(
        none.contains("E0312") && none.contains("did you mean `alpha`"),
        "{none}"
    );
    let lines = at(r#"statement("*@demo.c:3")"#, "");
    assert!(lines.contains("no line numbers"), "{lines}");
    let unknown = at(r#"function("alpha")"#, "println($b)");
    assert!(
        unknown.contains("E0320") && unknown.contains("$task"),
        "{unknown}"
    );
    let early = at(r#"function("alpha")"#, "println(@entry($a))");
    assert!(early.contains("E0322"), "{early}");
    let process = program("probe process(12).function(\"f\") {}").expect_err("no process");
    assert!(
        process.contains("E0313") && process.contains("no process 12"),
        "{process}"
    );
}
