//! The long runs in a release build: random scripts (`crates/spile/tests/differential`), and random
//! sessions with timers and mutants (`crates/spile/tests/sessions`).

use crate::{cargo, status_of, value};

/// Default number of scripts.
const CASES: u64 = 20_000;

/// The kinds of tests: the option, the test, and the variable with the number.
const KINDS: [(&str, &str, &str); 3] = [
    ("--cases", "differential", "SPILE_SOAK"),
    ("--timers", "sessions", "SPILE_TIMERS"),
    ("--mutants", "sessions", "SPILE_MUTANTS"),
];

/// Runs the scripts; the status is that of the tests.
pub(crate) fn run(args: &[String]) {
    let mut wanted = KINDS.map(|(option, ..)| value(args, option));
    let seed = value(args, "--seed");
    let used = 2 * (wanted.iter().flatten().count() + seed.iter().count());
    if args.len() != used {
        eprintln!("usage: cargo xtask soak [--cases N] [--timers N] [--mutants N] [--seed S]");
        std::process::exit(2);
    }
    if wanted == [None; 3] {
        wanted[0] = Some(CASES);
    }
    // The workload of sessions with timers.
    let mut worst = status_of(cargo().args(["build", "--release", "-p", "spile-workloads"]));
    for test in ["differential", "sessions"] {
        let of_test = || KINDS.iter().zip(wanted).filter(|(kind, _)| kind.1 == test);
        if of_test().all(|(_, n)| n.is_none()) {
            continue;
        }
        let mut cargo = cargo();
        cargo
            .args(["test", "--release", "-p", "spile", "--test", test])
            .env("SPILE_SEED", seed.unwrap_or(0).to_string());
        for ((_, _, variable), n) in of_test() {
            cargo.env(variable, n.unwrap_or(0).to_string());
        }
        worst = worst.max(status_of(&mut cargo));
    }
    std::process::exit(worst);
}
