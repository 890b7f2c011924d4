//! Random sessions of the program on the live kernel: scripts whose timers take the values that
//! handlers of system calls collect (`timers.rs`), and mutants of working scripts (`mutants`).
//! `SPILE_TIMERS=N` and `SPILE_MUTANTS=N` set the numbers, `SPILE_SEED` the first seed (`cargo
//! xtask soak`). A failing script is shrunk; the result belongs into `cases`, which always run.
//! Scripts and messages of failures, original and shrunk, are saved in `target/tmp/failures` or the
//! folder in `SPILE_FAILURES`. `SPILE_SHOW=FILE` writes each mutant's script and messages there.

#[path = "../e2e/leaks.rs"]
mod leaks;
mod mutants;
mod session;
#[path = "../differential/shrink.rs"]
mod shrink;
mod timers;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libtest_mimic::{Arguments, Failed, Trial};

use session::Run;

/// Number of timer scripts of an ordinary run.
const TIMERS: u64 = 40;
/// Number of mutants of an ordinary run.
const MUTANTS: u64 = 40;
/// Number of scripts of one trial.
const CHUNK: u64 = 20;
/// Number of attempts to reproduce a failure: other processes can have a part in it.
const TRIES: usize = 5;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The results of the sessions of a run.
#[derive(Default)]
struct Counts {
    timers: AtomicU64,
    skipping: AtomicU64,
    mutants: AtomicU64,
    refused: AtomicU64,
}

/// Saves a failure as first seen, the script in one file and its messages in another: the output of
/// a long run can be cut off, and the same seed need not fail again.
fn kept(what: &str, run: &Run, why: &str) -> String {
    let case = run.as_case();
    let folder = match std::env::var_os("SPILE_FAILURES") {
        Some(folder) => folder.into(),
        None => Path::new(env!("CARGO_TARGET_TMPDIR")).join("failures"),
    };
    let path = folder.join(format!("{}.stp", what.replace(' ', "_")));
    let written = std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(&path, &case))
        .and_then(|()| std::fs::write(path.with_extension("txt"), why));
    let kept = match written {
        Ok(()) => format!("kept in {}", path.display()),
        Err(e) => format!("not kept: {e}"),
    };
    format!("{what}: {why}\n{case}\n{kept}")
}

/// A timer script; a failure is reduced to the fewest parts that still fail.
fn timed(seed: u64, counts: &Counts) -> Result<(), String> {
    let mut without = BTreeSet::new();
    let whole = timers::script(seed, &without);
    let (mut run, mut why) = match whole.check() {
        Ok(skipped) => {
            counts.timers.fetch_add(1, Ordering::Relaxed);
            counts
                .skipping
                .fetch_add(u64::from(skipped > 0), Ordering::Relaxed);
            return Ok(());
        }
        Err(why) => (whole.run, why),
    };
    kept(&format!("timers {seed} first"), &run, &why);
    for part in 0..whole.parts {
        without.insert(part);
        let fewer = timers::script(seed, &without);
        match (0..TRIES).find_map(|_| fewer.check().err()) {
            Some(still) => (run, why) = (fewer.run, still),
            None => _ = without.remove(&part),
        }
    }
    Err(kept(&format!("timers {seed}"), &run, &why))
}

/// The mutant of a seed.
fn mutant(seed: u64, counts: &Counts) -> Result<(), String> {
    match mutants::check(seed) {
        mutants::Verdict::Ran => _ = counts.mutants.fetch_add(1, Ordering::Relaxed),
        mutants::Verdict::Refused => _ = counts.refused.fetch_add(1, Ordering::Relaxed),
        mutants::Verdict::Wrong(run, why) => {
            return Err(kept(&format!("mutant {seed}"), &run, &why));
        }
    }
    Ok(())
}

fn chunk(
    seeds: std::ops::Range<u64>,
    one: impl Fn(u64) -> Result<(), String>,
) -> Result<(), Failed> {
    let failures: Vec<String> = seeds.filter_map(|s| one(s).err()).collect();
    match failures.is_empty() {
        true => Ok(()),
        false => Err(failures.join("\n").into()),
    }
}

fn case(path: &Path) -> Result<(), Failed> {
    let run = Run::from_case(&std::fs::read_to_string(path)?);
    if timers::is_one(&run) {
        timers::judge(&run, None)?;
        return Ok(());
    }
    let done = session::run(&run);
    match done.wrong {
        None => Ok(()),
        Some(why) => Err(format!("{why}\n{}", done.err).into()),
    }
}

fn main() {
    let args = Arguments::from_args();
    let counts = Arc::new(Counts::default());
    let first = number("SPILE_SEED").unwrap_or(0);
    let count = number("SPILE_TIMERS").unwrap_or(TIMERS);
    // SAFETY: geteuid has no preconditions.
    let root = unsafe { libc::geteuid() } == 0;
    let mut trials = Vec::new();
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sessions/cases");
    for entry in std::fs::read_dir(cases).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        trials.push(Trial::test(format!("case::{name}"), move || case(&path)));
    }
    for from in (first..first + count).step_by(CHUNK as usize) {
        let counts = counts.clone();
        let seeds = from..(from + CHUNK).min(first + count);
        trials.push(Trial::test(format!("timers::{from}"), move || {
            chunk(seeds, |seed| timed(seed, &counts))
        }));
    }
    let mutants = number("SPILE_MUTANTS").unwrap_or(MUTANTS);
    for from in (first..first + mutants).step_by(CHUNK as usize) {
        let counts = counts.clone();
        let seeds = from..(from + CHUNK).min(first + mutants);
        trials.push(Trial::test(format!("mutants::{from}"), move || {
            chunk(seeds, |seed| mutant(seed, &counts))
        }));
    }
    if !root {
        let skip = || spile_testing::skip("only root runs sessions here");
        trials = trials
            .iter()
            .map(|t| spile_testing::trial(t.name(), skip))
            .collect();
    }
    let before = leaks::loaded();
    let result = libtest_mimic::run(&args, trials);
    if !args.list && root {
        let number = |n: &AtomicU64| n.load(Ordering::Relaxed);
        println!(
            "{} scripts of timers from seed {first} on keep their sums, {} of them with skipped hits",
            number(&counts.timers),
            number(&counts.skipping),
        );
        println!(
            "{} mutants from seed {first} on end as they may; {} were refused",
            number(&counts.mutants),
            number(&counts.refused),
        );
        if let Err(left) = leaks::none_left(&before) {
            eprintln!("{left}");
            std::process::exit(101);
        }
    }
    result.exit();
}
