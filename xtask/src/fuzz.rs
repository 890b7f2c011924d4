//! The long run of damaged scripts through the front end (`crates/sema/tests/fuzz.rs`).

use std::process::Command;

/// Minutes of a run without `--minutes`.
const MINUTES: u64 = 10;

/// Runs it; the status is that of the test.
pub fn run(args: &[String]) {
    let value = |name: &str| {
        let at = args.iter().position(|a| a == name)?;
        args.get(at + 1)?.parse::<u64>().ok()
    };
    let (minutes, seed) = (value("--minutes"), value("--seed"));
    let known = 2 * (usize::from(minutes.is_some()) + usize::from(seed.is_some()));
    if args.len() != known {
        eprintln!("usage: cargo xtask fuzz [--minutes N] [--seed S]");
        std::process::exit(2);
    }
    // Debug assertions are what it is for: no release build.
    let status = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .args([
            "test",
            "-p",
            "spile-sema",
            "--test",
            "fuzz",
            "--",
            "--nocapture",
        ])
        .env("SPILE_FUZZ_MINUTES", minutes.unwrap_or(MINUTES).to_string())
        .env("SPILE_SEED", seed.unwrap_or(1).to_string())
        .status();
    std::process::exit(match status {
        Ok(status) => status.code().unwrap_or(1),
        Err(e) => {
            eprintln!("cargo: {e}");
            1
        }
    });
}
