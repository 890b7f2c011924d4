//! Random scripts in the interpreter, in the kernel and as machine code, optimised and not: all have the same
//! behaviour, and the verifier accepts every one. `SPILE_SOAK=N` runs N scripts from the seed
//! `SPILE_SEED` on (`cargo xtask soak`). A failing script is shrunk; the result belongs into
//! `cases`, which always run.

mod check;
mod expressions;
mod generate;
#[allow(dead_code, reason = "what only the code generator's own tests use")]
#[path = "../../../bpf/tests/exact/machine.rs"]
mod machine;
#[path = "../../../bpf/tests/common/process.rs"]
mod process;
mod shrink;
mod statements;
mod switches;
#[path = "../../../bpf/tests/exact/world.rs"]
mod world;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libtest_mimic::{Arguments, Failed, Trial};
use spile_testing::trial;

use check::{Verdict, check, printed};
use generate::Script;
use switches::Switches;

/// Number of scripts of an ordinary run.
const CASES: u64 = 240;
/// Number of scripts of one trial: small enough for guests on a busy machine to report progress in
/// time.
const CHUNK: u64 = 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The script of a seed, as the pretty-printer writes it.
fn script(seed: u64, on: &Switches) -> Script {
    let mut script = generate::script(seed, on);
    script.text = printed(&script.text)
        .unwrap_or_else(|e| panic!("seed {seed} does not parse: {e}\n{}", script.text));
    script
}

/// A script with its limits in the first line.
fn as_case(script: &Script) -> String {
    let defines = script.defines.iter().map(|(n, v)| format!(" {n}={v}"));
    format!("//{}\n{}", defines.collect::<String>(), script.text)
}

fn from_case(text: &str) -> Script {
    let first = text.lines().next().and_then(|l| l.strip_prefix("//"));
    let words = first.unwrap_or_default().split_whitespace();
    let defines = words.filter_map(|w| w.split_once('='));
    Script {
        text: text.into(),
        defines: defines.map(|(n, v)| (n.into(), v.into())).collect(),
    }
}

fn fail(what: &str, script: Script, kind: check::FailureKind, why: String) -> Failed {
    let defines = script.defines.clone();
    let same = |text: &str| {
        let (text, defines) = (text.to_owned(), defines.clone());
        match check(&Script { text, defines }) {
            Verdict::Wrong(k, why) if k == kind => Some(why),
            _ => None,
        }
    };
    // A refused script is not shrunk: parts of it would be refused for other reasons.
    let smaller = match kind {
        check::FailureKind::Refused => None,
        _ => shrink::shrink(&script.text, &same),
    };
    let (text, why) = smaller.unwrap_or((script.text, why));
    let small = Script { text, defines };
    let case = as_case(&small);
    let name = format!("{}.stp", what.replace([' ', ':'], "_"));
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let kept = match std::fs::write(&path, &case) {
        Ok(()) => format!("kept in {}", path.display()),
        Err(e) => format!("not kept: {e}"),
    };
    format!("{what}: {kind:?}: {why}\n{case}\n{kept}").into()
}

/// Checks the scripts of these seeds; stops at the first failure, unless there are many scripts.
fn chunk(seeds: std::ops::Range<u64>, on: &Switches, done: &AtomicU64) -> Result<(), Failed> {
    let mut failures: Vec<String> = Vec::new();
    for seed in seeds {
        let script = script(seed, on);
        match check(&script) {
            Verdict::Same => {
                done.fetch_add(1, Ordering::Relaxed);
            }
            Verdict::Wrong(kind, why) => {
                let failed = fail(&format!("seed {seed}"), script, kind, why);
                failures.push(failed.message().unwrap_or_default().to_owned());
            }
        }
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(failures.join("\n").into()),
    }
}

fn kept(path: &Path) -> Result<(), Failed> {
    let text = std::fs::read_to_string(path)?;
    match check(&from_case(&text)) {
        Verdict::Same => Ok(()),
        Verdict::Wrong(kind, why) => Err(format!("{kind:?}: {why}").into()),
    }
}

fn main() {
    let args = Arguments::from_args();
    let on = Arc::new(Switches::ask());
    let done = Arc::new(AtomicU64::new(0));
    let first = number("SPILE_SEED").unwrap_or(0);
    let count = number("SPILE_SOAK").unwrap_or(CASES);
    let mut trials = Vec::new();
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential/cases");
    for entry in std::fs::read_dir(cases).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        trials.push(trial(format!("case::{name}"), move || kept(&path)));
    }
    let switches = on.clone();
    trials.push(Trial::test(
        "no construct is left out",
        move || match switches.off() {
            [] => Ok(()),
            off => Err(format!("{off:?}").into()),
        },
    ));
    for from in (first..first + count).step_by(CHUNK as usize) {
        let (on, done) = (on.clone(), done.clone());
        let seeds = from..(from + CHUNK).min(first + count);
        let name = format!("seeds::{from}");
        trials.push(trial(name, move || chunk(seeds.clone(), &on, &done)));
    }
    let result = libtest_mimic::run(&args, trials);
    if !args.list {
        let done = done.load(Ordering::Relaxed);
        println!("{done} random scripts from seed {first} on are the same everywhere");
    }
    result.exit();
}
