//! Mutants of working scripts: types are kept, while operators, expressions, constants, keys, probe
//! points, orders, limits and the shape of handlers change. Analysis may refuse a mutant. One that
//! it accepts has to compile, to pass the verifier, and to end with a clean account or a run-time
//! error of the language.

mod corpus;
mod edit;
mod handlers;
mod keys;
mod points;
mod tree;
mod types;
mod walk;

use std::io::Write;
use std::sync::OnceLock;

use spile_ir::testgen::Rng;
use spile_syntax::pretty;

use crate::session::{self, Done, Run};
use crate::shrink::shrink;

pub(crate) use corpus::Corpus;

/// Number of mutants of a seed that are tried until analysis accepts one.
const ATTEMPTS: u64 = 12;
/// Duration limit of a session in seconds; its command mostly ends before.
const SECONDS: &str = "3";

/// The result for the mutant of a seed.
pub(crate) enum Verdict {
    Ran,
    /// All attempts were refused.
    Refused,
    Wrong(Run, String),
}

fn corpus() -> &'static Corpus {
    static CORPUS: OnceLock<Corpus> = OnceLock::new();
    CORPUS.get_or_init(Corpus::read)
}

/// The mutant of a seed at this attempt, and the name of the original script; `None` if that one
/// cannot run here.
pub(crate) fn mutant(seed: u64, attempt: u64) -> Option<(Run, &'static str)> {
    let corpus = corpus();
    let mut rng = Rng::new(seed.wrapping_mul(ATTEMPTS + 1).wrapping_add(attempt) ^ 0x6d75_7461);
    let item = &corpus.items[rng.below(corpus.items.len() as u32) as usize];
    if !item.runs() {
        return None;
    }
    let mut file = item.file.clone();
    edit::mutate(&mut file, &mut rng, &corpus.library);
    let mut args = item.args.clone();
    edit::limits(&mut args, &mut rng);
    args.extend(["-T".into(), SECONDS.into(), "-w".into()]);
    let script = pretty::file(&file);
    Some((Run { script, args }, &item.name))
}

/// Runs the mutant of a seed.
pub(crate) fn check(seed: u64) -> Verdict {
    for attempt in 0..ATTEMPTS {
        let Some((run, name)) = mutant(seed, attempt) else {
            continue;
        };
        let done = session::run(&run);
        show(seed, attempt, name, &run, &done);
        match &done.wrong {
            None if done.refused() => continue,
            None => return Verdict::Ran,
            Some(why) => {
                let what = format!("of {name:?}: {why}\n{}", done.err);
                crate::kept(&format!("mutant {seed} first"), &run, &what);
                return smaller(run, why, what);
            }
        }
    }
    Verdict::Refused
}

/// Appends a session to the file that `SPILE_SHOW` names, if there is one.
fn show(seed: u64, attempt: u64, name: &str, run: &Run, done: &Done) {
    let Some(path) = std::env::var_os("SPILE_SHOW") else {
        return;
    };
    let text = format!(
        "==== {seed} {attempt} {name:?} {:?} {}\n{}---- messages\n{}",
        done.status,
        if done.refused() { "refused" } else { "" },
        run.as_case(),
        done.err
    );
    let file = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path);
    if let Err(e) = file.and_then(|mut f| f.write_all(text.as_bytes())) {
        eprintln!("SPILE_SHOW: {e}");
    }
}

/// Shrinks a failing mutant: the same message means the same failure.
fn smaller(run: Run, why: &str, what: String) -> Verdict {
    let kind = kind(why);
    let wrong = |text: &str| {
        let run = Run {
            script: text.into(),
            args: run.args.clone(),
        };
        let done = session::run(&run);
        let why = done.wrong.filter(|w| self::kind(w) == kind)?;
        Some(format!("{why}\n{}", done.err))
    };
    let small = match kind.starts_with("it hangs") {
        true => None,
        false => shrink(&run.script, &wrong),
    };
    match small {
        Some((script, why)) => {
            let args = run.args;
            Verdict::Wrong(Run { script, args }, why)
        }
        None => Verdict::Wrong(run, what),
    }
}

/// A message without the parts that differ from script to script.
fn kind(why: &str) -> String {
    let words = why.split_whitespace().take(6);
    let plain = words.filter(|w| w.chars().all(|c| c.is_alphabetic() || "':.".contains(c)));
    plain.collect::<Vec<_>>().join(" ")
}
