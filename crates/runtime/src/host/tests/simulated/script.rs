//! Analyses a script on a made-up machine, and lays out its memory.

use spile_ir::marks::Marks;
use spile_ir::{HandlerId, Inst, Program, ProgramFacts, SiteId, Ty};
use spile_layout::fields::field_types;
use spile_layout::plan::{HostParams, StateLayout};
use spile_layout::{ErrorKind, Layout, RecordKind, RecordShape, SymbolicForm};
use spile_machine::FakeMachine;
use spile_sema::analyse::{AnalysisOptions, Inputs, analyse};
use spile_sema::library::Library;
use spile_syntax::diag::Diagnostics;
use spile_syntax::parser::parse_file;
use spile_syntax::preproc::{MacroLibrary, PreprocEnv};
use spile_syntax::source::Sources;

/// The library of these scripts.
const TAPSET: &str = "
    function exit() { __exit() }
    function pid:long() { return __pid() }
    function execname:string() { return __execname() }
    function error(text:string) { __raise(text) }
";

/// Analyses, optimises and compiles a script, as the command line does.
///
/// # Panics
/// Panics if the script has an error.
pub(super) fn compile(script: &str) -> (Program, Layout) {
    let mut sources = Sources::new();
    let mut diags = Diagnostics::new();
    let env = PreprocEnv::new("6.12.0", "x86_64");
    let macros = MacroLibrary::new();
    let mut library = Library::new();
    for (name, text, user) in [("script.stp", script, true), ("tapset.stp", TAPSET, false)] {
        let bytes = text.as_bytes().to_vec();
        let id = match user {
            true => sources.add(name, bytes),
            false => sources.add_built_in(name, bytes),
        };
        let file = parse_file(&mut sources, id, &env, &macros, &mut diags);
        library.add(id, file, user);
    }
    let facts = FakeMachine::new();
    let inputs = Inputs {
        library: &library,
        sources: &sources,
        facts: &facts,
        tables: &|_| None,
        options: &AnalysisOptions::default(),
    };
    let analysis = analyse(&inputs, &mut diags);
    assert!(!diags.has_errors(), "{}", diags.render(&sources, false));
    let mut program = analysis.expect("no errors").program;
    spile_ir::opt::optimise(&mut program, true);
    spile_ir::opt::trim_stats::run(&mut program);
    spile_ir::storage::classify(&mut program);
    let facts = ProgramFacts::new(&program);
    let marks = Marks::new(&program, &facts, &SymbolicForm::made_in_kernel);
    let host = HostParams {
        cpus: 2,
        timing: false,
        frame: 0,
        critical: None,
    };
    let plan = StateLayout::new(&program, &facts, &marks, &host).expect("a script with a layout");
    let records = records(&program);
    let layout = Layout {
        records,
        ..plan.layout
    };
    (program, layout)
}

/// The shapes of what handlers send: their output, and errors with their message at each location of the script.
fn records(program: &Program) -> Vec<RecordShape> {
    let text = Ty::str_for_len(program.limits.maxstringlen as usize);
    let shape = |what, fields| RecordShape {
        what,
        fields,
        words: 0,
    };
    let mut shapes = Vec::new();
    for handler in program.kernel_handlers() {
        for inst in handler.body.insts() {
            let Inst::Print { stream, fmt, args } = inst else {
                continue;
            };
            let types = |arg| program.type_of(&handler.body, arg).unwrap_or(text);
            let what = RecordKind::Print {
                stream: *stream,
                fmt: *fmt,
            };
            shapes.push(shape(what, field_types(program, *fmt, args, types)));
        }
    }
    for handler in (0..program.handlers.len() as u32).map(HandlerId) {
        for site in (0..program.sites.len() as u32).map(SiteId) {
            let kind = ErrorKind::Raised;
            let what = RecordKind::Error {
                kind,
                site,
                handler,
            };
            shapes.push(shape(what, vec![text]));
        }
    }
    shapes
}
