//! `cargo xtask fuzz`: the long runs of two tests. One takes damaged scripts through the front end
//! (`crates/sema/tests/fuzz.rs`), the other takes damaged programs through the readers of debugging
//! information (`crates/debuginfo/tests/it/damage.rs`).

use crate::{cargo, status_of, value};

/// Seconds of a run that is given neither `--seconds` nor `--minutes`.
const SECONDS: u64 = 600;

/// Runs the fuzz test; the status is that of the test.
pub(crate) fn run(args: &[String]) {
    let [seconds, minutes, seed] =
        ["--seconds", "--minutes", "--seed"].map(|name| value(args, name));
    let debuginfo = args.iter().any(|a| a == "--debuginfo");
    let values = [seconds, minutes, seed].iter().flatten().count();
    if args.len() != 2 * values + usize::from(debuginfo) || seconds.and(minutes).is_some() {
        eprintln!("usage: cargo xtask fuzz [--debuginfo] [--minutes N | --seconds N] [--seed S]");
        std::process::exit(2);
    }
    let seconds = seconds.or(minutes.map(|m| 60 * m)).unwrap_or(SECONDS);
    let test: &[&str] = match debuginfo {
        true => &["-p", "spile-debuginfo", "--test", "it", "--", "long_run"],
        false => &["-p", "spile-sema", "--test", "fuzz", "--"],
    };
    // No release build, because the test relies on debug assertions.
    let mut cargo = cargo();
    cargo.arg("test").args(test).arg("--nocapture");
    cargo.env("SPILE_FUZZ_SECONDS", seconds.to_string());
    cargo.env("SPILE_SEED", seed.unwrap_or(1).to_string());
    std::process::exit(status_of(&mut cargo));
}
