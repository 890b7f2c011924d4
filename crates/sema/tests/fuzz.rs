//! No input makes the front end panic, hang or use unbounded memory. Arbitrary bytes, random
//! tokens, and damaged real scripts go through lexer, preprocessor, parser, pretty-printer and the
//! whole of analysis, over a fake machine. `cargo test` does a short run; `cargo xtask fuzz
//! --minutes N` does a long one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spile_ir::testgen::Rng;
use spile_machine::FakeMachine;
use spile_sema::analyse::{AnalysisOptions, Inputs, analyse};
use spile_sema::library::Library;
use spile_syntax::ast::{self, FileId};
use spile_syntax::diag::Diagnostics;
use spile_syntax::parser::{parse_file, parse_macros};
use spile_syntax::preproc::{MacroLibrary, PreprocEnv};
use spile_syntax::pretty;
use spile_syntax::source::Sources;
use spile_testing::files::{below, example_files, root};

/// Number of inputs of a run under `cargo test`.
const SHORT: u64 = 400;
/// Time after which an input counts as hanging.
const HANG: Duration = Duration::from_secs(60);
/// Maximum memory of the process, in KB.
const MEMORY: u64 = 2 << 20;
/// Length of the longest input.
const LONGEST: usize = 20_000;

/// Tokens of the grammar that damage scripts.
const PIECES: &[&str] = &[
    "probe ",
    "global ",
    "function f(a) ",
    "private ",
    "if (",
    "else ",
    "for (;;) ",
    "foreach (k in a) ",
    "in ",
    "limit 3 ",
    "return ",
    "delete ",
    "while (1) ",
    "break ",
    "next ",
    "try { ",
    "} catch (e) { ",
    "begin ",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ",",
    ";",
    ":",
    "?",
    "!",
    "%",
    "%( 1 == 1 %? ",
    "%: ",
    "%) ",
    "%{",
    "%}",
    "$1",
    "@2",
    "$#",
    "@#",
    "@define m(x) %( @x %) ",
    "@m(1) ",
    "@count(s)",
    "@hist_log(s)",
    "@hist_linear(s, 0, 9, 1)",
    "@cast(p, \"task_struct\")",
    "@entry(",
    "@defined(",
    "$prev",
    "$x$$",
    "->pid",
    "&",
    "=",
    "==",
    "<<< 1",
    "<<",
    ">>>",
    "+",
    "-",
    "++",
    "--",
    "*",
    ".",
    "=~ \"a(b|c)*\"",
    "\"",
    "\"a\\n\"",
    "0x1f",
    "99999999999999999999",
    "-1",
    "9223372036854775807",
    "x ",
    "a[1, *]",
    "&&",
    "||",
    "/*",
    "*/",
    "#",
    "\n",
    "\0",
    "\u{e9}",
    "printf(\"%d %s\", ",
    "print(",
    "sprintf(\"%*x\", ",
    ":string ",
    ":long ",
    "kernel.trace(\"sched_switch\") ",
    "timer.ms(5) ",
    "syscall.* ",
    "syscall.{a,b}.return? ",
    "execname()",
    "tokenize(",
    "substr(",
    "error(\"x\")",
    "s",
    "a",
    "f(",
    "global a, s, g = 5, w%[3] ",
];

/// Real scripts: those installed with SystemTap, the library, the examples, and the cases.
fn seeds() -> Vec<Vec<u8>> {
    let mut paths = example_files(&["stp"]);
    paths.extend(below(&root().join("tapset"), &["stp", "stpm"]));
    paths.extend(below(&root().join("examples"), &["stp"]));
    let mut seeds: Vec<Vec<u8>> = paths.iter().filter_map(|p| std::fs::read(p).ok()).collect();
    for path in below(&root().join("tests/cases"), &["toml"]) {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        for part in text.split("script = ").skip(1) {
            let quote = ["'''", "\"\"\"", "'", "\""]
                .into_iter()
                .find(|q| part.starts_with(q));
            let script = quote.and_then(|q| part[q.len()..].split(q).next());
            seeds.extend(script.map(|s| s.as_bytes().to_vec()));
        }
    }
    seeds.retain(|s| s.len() <= LONGEST);
    seeds
}

/// Makes one input.
fn input(rng: &mut Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut below = |n: usize| rng.below(n as u32) as usize;
    match below(20) {
        0 => {
            let n = below(400);
            return (0..n).map(|_| below(256) as u8).collect();
        }
        1 | 2 => {
            let n = below(60);
            let soup: String = (0..n).map(|_| PIECES[below(PIECES.len())]).collect();
            return format!("global a, s probe begin {{ {soup} }}").into_bytes();
        }
        _ => {}
    }
    let mut text = seeds[below(seeds.len())].clone();
    for _ in 0..below(8) {
        let at = below(text.len() + 1);
        let end = (at + below(30)).min(text.len());
        match below(8) {
            0 | 1 => drop(text.splice(at..at, PIECES[below(PIECES.len())].bytes())),
            2 => drop(text.splice(at..end, PIECES[below(PIECES.len())].bytes())),
            3 => drop(text.drain(at..end)),
            4 => {
                let piece = text[at..end].to_vec();
                let to = below(text.len() + 1);
                drop(text.splice(to..to, piece));
            }
            5 => {
                let other = &seeds[below(seeds.len())];
                let from = below(other.len());
                let piece = &other[from..(from + below(300)).min(other.len())];
                drop(text.splice(at..at, piece.iter().copied()));
            }
            6 if at < text.len() => text[at] = below(256) as u8,
            _ => text.truncate(text.len() - text.len().min(below(40))),
        }
    }
    text
}

/// The library, parsed once.
struct Tapset {
    sources: Sources,
    macros: MacroLibrary,
    files: Vec<(FileId, ast::File)>,
}

fn environment() -> PreprocEnv {
    let args = ["7", "a b", "2", "3", "4"];
    PreprocEnv::new("6.12.0-1-amd64", "x86_64").with_args(args)
}

fn tapset() -> Tapset {
    let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
    let env = environment();
    let mut macros = MacroLibrary::new();
    macros.define(&mut sources, "MAXSTRINGLEN", "512", &mut diags);
    macros.define(&mut sources, "MAXBACKTRACE", "20", &mut diags);
    let paths = below(&root().join("tapset"), &["stp", "stpm"]);
    let mut scripts = Vec::new();
    for path in paths {
        let text = std::fs::read(&path).expect("readable");
        let file = sources.add_built_in(path.display().to_string(), text);
        match path.extension().is_some_and(|e| e == "stpm") {
            true => macros.extend(parse_macros(&mut sources, file, &env, &mut diags)),
            false => scripts.push(file),
        }
    }
    let mut files = Vec::new();
    for file in scripts {
        files.push((
            file,
            parse_file(&mut sources, file, &env, &macros, &mut diags),
        ));
    }
    assert!(!diags.has_errors(), "{}", diags.render(&sources, false));
    Tapset {
        sources,
        macros,
        files,
    }
}

/// Runs the whole front end on one input; returns whether it is a script.
fn front_end(text: &[u8], tapset: &Tapset, facts: &FakeMachine) -> bool {
    let mut sources = tapset.sources.clone();
    let mut diags = Diagnostics::new();
    let env = environment();
    let file = sources.add("input.stp", text.to_vec());
    let tree = parse_file(&mut sources, file, &env, &tapset.macros, &mut diags);
    let good = !diags.has_errors();
    if good {
        let _ = pretty::file(&tree);
    }
    let mut library = Library::new();
    library.add(file, tree, true);
    for (id, tree) in &tapset.files {
        library.add(*id, tree.clone(), false);
    }
    let tables = |_: &str| Some(vec![ast::LiteralBytes::from(&b"one"[..])]);
    let inputs = Inputs {
        library: &library,
        sources: &sources,
        facts,
        tables: &tables,
        options: &AnalysisOptions::default(),
    };
    // Analysis also gets the tree that is left after syntax errors.
    let program = analyse(&inputs, &mut diags);
    let _ = diags.render(&sources, text.len().is_multiple_of(2));
    if let Ok(analysis) = program {
        let mut program = analysis.program;
        for on in [false, true] {
            spile_ir::opt::optimise(&mut program, on);
        }
        spile_ir::storage::classify(&mut program);
        let wrong = spile_ir::verify::verify(&program);
        assert!(wrong.is_ok(), "{wrong:?}");
        return good;
    }
    false
}

/// The peak memory of this process, in KB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let number = line.and_then(|l| l.split_whitespace().next()?.parse().ok());
    number.unwrap_or(0)
}

/// Time at which the current input was begun, in milliseconds; 0 between inputs.
static BEGUN: AtomicU64 = AtomicU64::new(0);

#[test]
fn no_panic_no_hang_bounded_memory() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let seconds = number("SPILE_FUZZ_SECONDS");
    let seed = number("SPILE_SEED").unwrap_or(1);
    let start = Instant::now();
    // The current input is in a file: a stack overflow leaves nothing else.
    let current = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz-input.stp");
    let shown = current.display().to_string();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let begun = BEGUN.load(Ordering::Relaxed);
            let now = start.elapsed().as_millis() as u64;
            if begun != 0 && now.saturating_sub(begun) > HANG.as_millis() as u64 {
                eprintln!("an input hangs: {shown}");
                std::process::exit(1);
            }
        }
    });
    let (seeds, tapset, facts) = (seeds(), tapset(), FakeMachine::new());
    let (mut inputs, mut scripts, mut slowest) = (0u64, 0u64, Duration::ZERO);
    let goes_on = |inputs: u64| match seconds {
        Some(s) => start.elapsed() < Duration::from_secs(s),
        None => inputs < SHORT,
    };
    while goes_on(inputs) {
        let mut rng = Rng::new(seed.wrapping_mul(1 << 32).wrapping_add(inputs));
        let text = input(&mut rng, &seeds);
        std::fs::write(&current, &text).expect("writable");
        let one = Instant::now();
        BEGUN.store(start.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
        let done = catch_unwind(AssertUnwindSafe(|| front_end(&text, &tapset, &facts)));
        BEGUN.store(0, Ordering::Relaxed);
        slowest = slowest.max(one.elapsed());
        match done {
            Ok(is_script) => scripts += u64::from(is_script),
            Err(_) => panic!(
                "input {inputs} of seed {seed} panics; it is {}:\n{}",
                current.display(),
                String::from_utf8_lossy(&text)
            ),
        }
        inputs += 1;
        assert!(peak() < MEMORY, "{} KB with {}", peak(), current.display());
    }
    eprintln!(
        "{inputs} inputs, of which {scripts} are scripts; slowest {slowest:?}, at most {} KB",
        peak()
    );
    assert!(scripts > 0, "no input was a script");
}
