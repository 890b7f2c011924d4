//! Analyses a script on a made-up machine. Of the BPF compiler only the layout is taken.

use std::collections::BTreeMap;

use spile_bpf::target::{self, Features, KernelOffsets};
use spile_ir::Program;
use spile_layout::Layout;
use spile_sema::analyse::{AnalysisOptions, Inputs, analyse};
use spile_sema::fake::FakeMachine;
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
    let object = spile_bpf::compile(&program, &machine()).expect("a script that compiles");
    (program, object.layout)
}

fn machine() -> target::Target {
    target::Target {
        abi: &spile_abi::X86_64,
        cpus: 2,
        ring_bytes: 1 << 20,
        timing: false,
        lines: false,
        offsets: KernelOffsets::default(),
        features: Features::SINCE_6_9,
        syscalls: &[],
        functions: BTreeMap::new(),
        share: None,
        resident: false,
    }
}
