//! Mutants of the library's functions, which their tests must find.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use spile_lir::func::{LirInst, Module, Value};
use spile_lir::mutate::{Mutation, mutations};
use spile_lir::verify::{HostLimits, verify};

use super::forms::{Mutant, Recorded, Shape, Test, is_mutating, recorded, with_mutant};
use super::{
    append, arguments, defer, generated, heap, iterations, large, process, regex, shared, stacks,
    unwind, usermem,
};

/// All tests that mutants run against.
const TESTS: &[&[Test]] = &[
    append::TESTS,
    arguments::TESTS,
    defer::TESTS,
    generated::TESTS,
    heap::TESTS,
    large::TESTS,
    process::TESTS,
    regex::TESTS,
    shared::TESTS,
    stacks::TESTS,
    unwind::TESTS,
    usermem::TESTS,
    iterations::TESTS,
];

/// A function with the tests that run it, the shortest first.
struct Subject {
    recorded: Recorded,
    tests: Vec<(Duration, fn())>,
    /// Whether it is the same for all callers or a heap's: fewer of its mutants may live.
    strict: bool,
}

/// Runs something for each item, on all processors; gives the results in their order.
fn on_all_processors<T: Sync, R: Send>(items: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(BTreeMap::new());
    let work = || {
        while let Some((i, item)) = {
            let i = next.fetch_add(1, Ordering::Relaxed);
            items.get(i).map(|item| (i, item))
        } {
            let result = run(item);
            results.lock().expect("no panic").insert(i, result);
        }
    };
    std::thread::scope(|threads| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            threads.spawn(work);
        }
    });
    let results = results.into_inner().expect("no panic");
    results.into_values().collect()
}

/// Runs all tests, and finds the functions that each one runs.
fn subjects() -> BTreeMap<Shape, Subject> {
    let tests = TESTS.concat();
    let found = on_all_processors(&tests, |(name, test)| {
        let start = Instant::now();
        let found = recorded(*test);
        (start.elapsed(), *name, *test, found)
    });
    let mut all: BTreeMap<Shape, Subject> = BTreeMap::new();
    for (time, name, test, functions) in found {
        let strict = ["::shared::", "::heap::"]
            .iter()
            .any(|part| name.contains(part));
        for (shape, recorded) in functions {
            let subject = all.entry(shape).or_insert_with(|| Subject {
                recorded,
                tests: Vec::new(),
                strict: false,
            });
            subject.strict |= strict;
            subject.tests.push((time, test));
        }
    }
    for subject in all.values_mut() {
        subject.tests.sort_by_key(|(time, _)| *time);
    }
    all
}

/// What the sources say about their functions: the first line of each contract, and each cost.
fn contracts(folder: &Path, all: &mut BTreeSet<String>) {
    let files = std::fs::read_dir(folder).expect("the library's sources");
    for file in files {
        let path = file.expect("a file").path();
        if path.is_dir() {
            // What processes answer needs their memory: tests of images run it.
            if !path.ends_with("host") {
                contracts(&path, all);
            }
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a source");
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let code: Vec<&str> = code.collect();
        // Up to the end of the literal, or an escape in it.
        let literal = |line: &str| {
            line.split(['"', '\\'])
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        let first = code.windows(2).filter(|w| w[0].contains("contract = \"\\"));
        all.extend(first.map(|w| literal(w[1])));
        let costs = code.iter().filter_map(|line| line.split_once("Cost: "));
        all.extend(costs.map(|(_, cost)| literal(cost)));
    }
}

/// Each function has a test: what its source says is in the contract of a function that ran.
fn check_all_run(subjects: &BTreeMap<Shape, Subject>) {
    let mut wanted = BTreeSet::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/library");
    contracts(&folder, &mut wanted);
    let ran = subjects.values().map(|s| &s.recorded);
    let ran: Vec<&str> = ran.map(|r| &*r.module.funcs[r.index].contract).collect();
    wanted.retain(|text| !ran.iter().any(|contract| contract.contains(text)));
    assert!(wanted.is_empty(), "no test runs: {wanted:#?}");
}

/// Whether anything reads the result of a function: a caller in the module, or the host.
fn result_is_read(module: &Module, name: &str) -> bool {
    let mut called = false;
    for func in &module.funcs {
        let mut results = BTreeSet::new();
        let insts = func.blocks.iter().flat_map(|b| &b.insts);
        for inst in insts.clone() {
            match inst {
                LirInst::Call { dst, func, .. } if func == name => drop(results.insert(*dst)),
                LirInst::Repeat { func, .. } if func == name => return true,
                _ => {}
            }
        }
        called |= !results.is_empty();
        let mut read = false;
        let mut use_of = |v: &Value| read |= results.contains(v);
        insts.for_each(|inst| inst.for_each_use(&mut use_of));
        for block in &func.blocks {
            block.term.for_each_use(&mut use_of);
            let args = block.term.targets().into_iter().flat_map(|to| &to.args);
            args.for_each(&mut use_of);
        }
        if read {
            return true;
        }
    }
    !called
}

/// A mutant, its description, and the subject that it changes.
type Choice<'s> = (Mutant, String, &'s Subject);

/// A number that follows a seed and a text (FNV-1a).
fn hash(seed: u64, text: &str) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed;
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.bytes().fold(start, step);
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Chooses mutants of subjects at random; also gives how many there are. The choice of a mutant follows
/// from its text, so that a change of one function chooses no others of the rest.
fn choose<'s>(
    subjects: impl Iterator<Item = (&'s Shape, &'s Subject)>,
    count: usize,
    seed: u64,
) -> (Vec<Choice<'s>>, usize) {
    let mut all = Vec::new();
    for (shape, subject) in subjects {
        let Recorded { module, index } = &subject.recorded;
        let func = &module.funcs[*index];
        for (mutation, change) in mutations(func).into_iter().enumerate() {
            let text = change.describe(func);
            all.push((hash(seed, &text), mutation, change, text, shape, subject));
        }
    }
    let number = all.len();
    all.sort_by_key(|mutant| mutant.0);
    // Shapes of one function have the same changes.
    all.dedup_by(|a, b| a.3 == b.3);
    let valid =
        |(_, mutation, change, text, shape, subject): (_, _, Mutation, _, &Shape, &'s Subject)| {
            let Recorded { module, index } = &subject.recorded;
            let func = &module.funcs[*index];
            let mut changed = (**module).clone();
            changed.funcs[*index] = change.apply(func);
            let matters = !change.changes_result() || result_is_read(module, &func.name);
            let shape = shape.clone();
            (matters && verify(&changed, &HostLimits::NONE).is_ok()).then_some((
                Mutant { shape, mutation },
                text,
                subject,
            ))
        };
    (
        all.into_iter().filter_map(valid).take(count).collect(),
        number,
    )
}

/// Changes single operations of the library. The tests that run the function must find the change:
/// `MUTANTS=200 cargo test -p spile-lir --test library mutants -- --nocapture` tries 200 changes and prints
/// those that no test finds. `SEED=N` chooses others, `MUTANTS_OF=NAME` those of one function.
///
/// Most changes that live mean the same: guards that only the kernel's verifier needs, limits that no input
/// reaches, exits that only save iterations, and accesses to the lower half of words whose upper half is
/// zero.
#[test]
fn mutants_are_found() {
    let number = |name: &str| {
        let value = std::env::var(name).ok();
        value.map(|v| v.parse::<u64>().expect("a number"))
    };
    let (count, seed) = (number("MUTANTS"), number("SEED").unwrap_or(1));
    let subjects = subjects();
    check_all_run(&subjects);
    let only = std::env::var("MUTANTS_OF").ok();
    // Panics of mutants are expected; those of other tests are printed.
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !is_mutating() {
            print(panic);
        }
    }));
    let mut bad = Vec::new();
    // Of how many mutants one may live.
    for (strict, usual, one_of) in [(true, 30, 10), (false, 40, 4)] {
        let of_group = subjects.iter().filter(|(shape, subject)| {
            subject.strict == strict && only.as_ref().is_none_or(|name| *name == shape.0)
        });
        let (chosen, all) = choose(of_group, count.unwrap_or(usual) as usize, seed);
        let alive = on_all_processors(&chosen, |(mutant, change, subject)| {
            let passes = |test: &(Duration, fn())| catch_unwind(AssertUnwindSafe(test.1)).is_ok();
            with_mutant(mutant, || subject.tests.iter().all(passes)).then(|| change.clone())
        });
        let alive: Vec<String> = alive.into_iter().flatten().collect();
        let tried = chosen.len();
        println!("{tried} of {all} mutants, {} live", alive.len());
        alive.iter().for_each(|change| println!("  {change}"));
        if one_of * alive.len() > tried {
            bad.push(format!("more than one of {one_of} lives"));
        }
    }
    drop(std::panic::take_hook());
    assert!(bad.is_empty(), "{bad:?}");
}
