//! Random programs, in the kernel and in the interpreter. `SPILE_SOAK=N` runs N more seeds,
//! starting at `SPILE_SEED`. A failing program is shrunk by removing instructions; the result
//! belongs in `tests/exact/cases`.

use std::time::{Duration, Instant};

use spile_bpf::target::Target;
use spile_ir::storage::Storage;
use spile_ir::testgen::{self, Config};
use spile_ir::{GlobalKind, Inst, Program, Term, opt, reader, verify};

use crate::machine::{Contents, HostKind, Kernel, Outcome, kept, options};
use crate::world::World;

/// Runs of each program.
const RUNS: u64 = 6;
/// Limit on the time for shrinking.
const SHRINK: Duration = Duration::from_secs(60);

/// A program of kernel handlers.
pub(crate) fn generate(seed: u64, size: u32) -> Program {
    testgen::program(seed, Config { kernel: true, size })
}

/// The result of a comparison.
enum Verdict {
    Same,
    /// The compiler refused, with this reason.
    Refused(String),
    /// A difference, or the verifier's refusal.
    Wrong(String),
}

/// The event's arguments in run `n`.
fn args(n: u64) -> [u64; 2] {
    [n, [3, 0, u64::MAX, 1 << 63, 64, 5][n as usize % 6]]
}

/// Reduces an outcome to what the specification keeps.
pub(crate) fn comparable(program: &Program, mut outcome: Outcome) -> Outcome {
    for (global, contents) in program.globals.iter().zip(&mut outcome.globals) {
        *contents = contents.take().map(|c| match c {
            Contents::One(cell) => Contents::One(kept(global, &cell)),
            Contents::Elements(all) => Contents::Elements(
                all.into_iter()
                    .map(|(k, c)| (k, kept(global, &c)))
                    .collect(),
            ),
        });
    }
    outcome
}

/// Compares all hosts with the interpreter.
fn compare(program: &Program, share: Option<bool>) -> Verdict {
    for host in HostKind::ALL {
        match compare_in(host, program, share) {
            Verdict::Same => {}
            Verdict::Wrong(why) => return Verdict::Wrong(format!("{host:?}: {why}")),
            refused @ Verdict::Refused(_) => return refused,
        }
    }
    Verdict::Same
}

fn compare_in(host: HostKind, program: &Program, share: Option<bool>) -> Verdict {
    let options = Target { share, ..options() };
    let mut kernel = match Kernel::in_host(host, program, &options) {
        Ok(kernel) => kernel,
        Err(e) if e.starts_with("compiler") => return Verdict::Refused(e),
        Err(e) => return Verdict::Wrong(e),
    };
    let mut world = World::new(program);
    for n in 0..RUNS {
        host.go_to(n);
        kernel.run(&args(n));
        world.run(&args(n));
    }
    let failed = world.globals.failed;
    let got = comparable(program, kernel.outcome());
    let mut want = comparable(program, world.outcome());
    if (want.cuts.saturating_sub(failed)..want.cuts).contains(&got.cuts) {
        want.cuts = got.cuts;
    }
    let mut got = got;
    for (i, global) in program.globals.iter().enumerate() {
        // A wrapping per-CPU array evicts elements when it is drained.
        let per_cpu = matches!(global.storage, Storage::PerCpu { .. });
        if per_cpu && matches!(global.kind, GlobalKind::Array { wrap: true, .. }) {
            got.globals[i] = None;
        }
        if got.globals[i].is_none() {
            want.globals[i] = None;
        }
    }
    let errors = kernel.errors();
    if got == want && errors == want.errors.len() as u64 {
        return Verdict::Same;
    }
    let no_memory = kernel.header(spile_layout::percpu::NO_MEMORY);
    let why = difference(&got, &want, errors);
    Verdict::Wrong(format!("{why}no memory {no_memory}\n"))
}

pub(crate) fn difference(got: &Outcome, want: &Outcome, errors: u64) -> String {
    let mut text = String::new();
    if got.out != want.out {
        text += &format!("output\n{}\n--- wanted\n{}\n", got.out, want.out);
    }
    if got.errors != want.errors || errors != want.errors.len() as u64 {
        text += &format!(
            "errors ({errors}) {:?}\nwanted {:?}\n",
            got.errors, want.errors
        );
    }
    if got.cuts != want.cuts {
        text += &format!("cuts {}, wanted {}\n", got.cuts, want.cuts);
    }
    for (i, (got, want)) in got.globals.iter().zip(&want.globals).enumerate() {
        if got != want {
            text += &format!("g{i} {got:?}\nwanted {want:?}\n");
        }
    }
    text
}

/// Removes handlers, instructions and jumps while the program still fails.
fn shrink(mut program: Program, share: Option<bool>) -> Program {
    let end = Instant::now() + SHRINK;
    let wrong =
        |p: &Program| verify::verify(p).is_ok() && matches!(compare(p, share), Verdict::Wrong(_));
    loop {
        let before = program.clone();
        for h in (0..program.handlers.len()).rev() {
            let mut smaller = program.clone();
            smaller.handlers.remove(h);
            if !smaller.handlers.is_empty() && wrong(&smaller) {
                program = smaller;
                continue;
            }
            for b in (0..program.handlers[h].body.blocks.len()).rev() {
                let block = &program.handlers[h].body.blocks[b];
                let mut tries: Vec<Program> = Vec::new();
                let mut edit = |f: &dyn Fn(&mut spile_ir::Block)| {
                    let mut smaller = program.clone();
                    f(&mut smaller.handlers[h].body.blocks[b]);
                    tries.push(smaller);
                };
                if let Term::Branch { then, els, .. } = block.term {
                    edit(&|b| b.term = Term::Jump(then));
                    edit(&|b| b.term = Term::Jump(els));
                }
                if block.catch.is_some() {
                    edit(&|b| b.catch = None);
                }
                if block.insts.len() > 1 {
                    edit(&|b| b.insts.clear());
                }
                for i in (0..block.insts.len()).rev() {
                    edit(&|b| drop(b.insts.remove(i)));
                }
                for smaller in tries {
                    if Instant::now() > end {
                        return program;
                    }
                    // Later edits may no longer apply; each is tested by itself.
                    let mut merged = smaller;
                    if merged.handlers[h].body.blocks[b].insts.len()
                        > program.handlers[h].body.blocks[b].insts.len()
                    {
                        continue;
                    }
                    for (other, block) in program.handlers[h].body.blocks.iter().enumerate() {
                        if other != b {
                            merged.handlers[h].body.blocks[other] = block.clone();
                        }
                    }
                    if wrong(&merged) {
                        program = merged;
                    }
                }
            }
        }
        if program == before {
            return program;
        }
    }
}

fn fail(what: &str, program: Program, share: Option<bool>, why: &str) -> ! {
    let small = shrink(program, share);
    let why = match compare(&small, share) {
        Verdict::Wrong(why) => why,
        _ => why.to_string(),
    };
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("failure.ir");
    std::fs::write(&path, small.to_string()).expect("written");
    panic!(
        "{what}, share {share:?}: {why}\n{small}\nkept in {}",
        path.display()
    );
}

/// Compares the programs of these seeds, unoptimised and optimised, one of them with and one
/// without shared subprograms; returns the compiler's refusals.
fn all(seeds: std::ops::Range<u64>) -> Vec<String> {
    let mut refused = Vec::new();
    for seed in seeds {
        let size = 10 + (seed % 8) as u32 * 10;
        let plain = generate(seed, size);
        verify::verify(&plain).unwrap_or_else(|e| panic!("seed {seed}: {e:?}\n{plain}"));
        let mut optimised = plain.clone();
        opt::optimise(&mut optimised, true);
        let shares = [Some(true), None];
        let of = |n: u64| shares[((seed + n) % 2) as usize];
        for (what, program, share) in [("plain", plain, of(0)), ("optimised", optimised, of(1))] {
            match compare(&program, share) {
                Verdict::Same => {}
                Verdict::Refused(e) => refused.push(format!("seed {seed} {what}: {e}")),
                Verdict::Wrong(why) => {
                    fail(&format!("seed {seed} {what}"), program, share, &why);
                }
            }
        }
    }
    refused
}

#[test]
fn random_programs_equal_the_interpreter() {
    let number = |name| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let first = number("SPILE_SEED").unwrap_or(0);
    let refused = all(first..first + number("SPILE_SOAK").unwrap_or(150));
    assert!(
        refused.is_empty(),
        "{} refused:\n{}",
        refused.len(),
        refused.join("\n")
    );
}

/// Programs that failed once, and others worth keeping.
#[test]
fn kept_cases_equal_the_interpreter() {
    let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/exact/cases");
    let mut n = 0;
    for entry in std::fs::read_dir(cases).expect("cases").flatten() {
        let text = std::fs::read_to_string(entry.path()).expect("a case");
        let program = reader::read(&text).unwrap_or_else(|e| panic!("{:?}: {e}", entry.path()));
        for share in [None, Some(true)] {
            match compare(&program, share) {
                Verdict::Same => n += 1,
                Verdict::Refused(why) | Verdict::Wrong(why) => {
                    panic!("{:?}, share {share:?}: {why}", entry.path());
                }
            }
        }
    }
    assert!(n > 0, "no cases");
}

/// Every instruction of kernel handlers occurs in some program.
#[test]
fn programs_have_all_instructions() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..150 {
        let program = generate(seed, 40);
        for block in program.handlers.iter().flat_map(|h| &h.body.blocks) {
            seen.extend(block.insts.iter().map(|(i, _)| name(i)));
        }
        seen.extend(program.globals.iter().map(|g| format!("{:?}", g.storage)));
    }
    for wanted in [
        "Print",
        "Sprint",
        "Raise",
        "CatchMsg",
        "Load",
        "ADel",
        "AHas",
        "StatAdd",
        "StatGet",
        "GClear",
        "IterNew",
        "IterHist",
        "HistGet",
        "PrintHist",
        "AAdd",
        "ASet",
        "Tick",
        "TableGet",
        "PerCpu { double: false }",
        "PerCpu { double: true }",
        "Shared { lock: true }",
        "Shared { lock: false }",
    ] {
        assert!(seen.contains(wanted), "no {wanted} in {seen:?}");
    }
}

fn name(inst: &Inst) -> String {
    let text = format!("{inst:?}");
    text.split([' ', '{'])
        .next()
        .unwrap_or_default()
        .to_string()
}
