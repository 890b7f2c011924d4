//! The long run of random scripts (`crates/spile/tests/differential`), in a release build.

use std::process::Command;

/// Scripts of a run without `--cases`.
const CASES: u64 = 20_000;

/// Runs the scripts; the status is that of the test.
pub fn run(args: &[String]) {
    let value = |name: &str| {
        let at = args.iter().position(|a| a == name)?;
        args.get(at + 1)?.parse::<u64>().ok()
    };
    let (cases, seed) = (value("--cases"), value("--seed"));
    let known = 2 * (usize::from(cases.is_some()) + usize::from(seed.is_some()));
    if args.len() != known {
        eprintln!("usage: cargo xtask soak [--cases N] [--seed S]");
        std::process::exit(2);
    }
    let status = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .args(["test", "--release", "-p", "spile", "--test", "differential"])
        .env("SPILE_SOAK", cases.unwrap_or(CASES).to_string())
        .env("SPILE_SEED", seed.unwrap_or(0).to_string())
        .status();
    std::process::exit(match status {
        Ok(status) => status.code().unwrap_or(1),
        Err(e) => {
            eprintln!("cargo: {e}");
            1
        }
    });
}
