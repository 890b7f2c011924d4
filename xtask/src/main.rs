//! Chores of the project: `cargo xtask bench [PART]...`, `cargo xtask dist`, `cargo xtask soak`, `cargo xtask fuzz`,
//! `cargo xtask test`, `cargo xtask vm`, `cargo xtask programs`, `cargo xtask recording`, `cargo xtask performance`,
//! `cargo xtask reference`.

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

use std::process::{Command, ExitCode};

mod counts;
mod dist;
mod fuzz;
mod performance;
mod recording;
mod soak;

const USAGE: &str = "\
usage: cargo xtask bench [start] [hits] [calls] [exact] [stress] [markers] [keys] [process] [nginx] [profile] [samples] [floor] [system]
       cargo xtask dist [--no-packages] [--vm] [--in FOLDER]...
       cargo xtask fuzz [--debuginfo] [--minutes N | --seconds N] [--seed S]
       cargo xtask performance
       cargo xtask programs
       cargo xtask recording
       cargo xtask reference
       cargo xtask soak [--cases N] [--timers N] [--mutants N] [--seed S]
       cargo xtask test [ARGUMENT OF CARGO TEST]...
       cargo xtask vm [--kernel 6.1,6.12,newest] [--all] [--bench] [--debuginfo] [--programs] [--scripts N]
                      [--seed S] [--sh COMMAND [--spile PROGRAM]] [--mirror URI] [TEST...]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rest = args.get(1..).unwrap_or_default();
    match args.first().map(String::as_str) {
        Some("bench") => spile_bench::run(rest),
        Some("dist") => return dist::run(rest),
        Some("fuzz") => fuzz::run(rest),
        Some("performance") => return performance::run(),
        Some("programs") => return spile_guests::programs::run(),
        Some("recording") => return recording::run(),
        Some("reference") => return reference(),
        Some("soak") => soak::run(rest),
        Some("test") => counts::run(rest),
        Some("vm") => spile_guests::run(rest),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// Writes `docs/library`, by the test that otherwise compares it with the comments in the library.
fn reference() -> ExitCode {
    let mut cargo = cargo();
    cargo.args(["test", "-q", "-p", "spile-sema", "--test", "tapset"]);
    cargo.args(["--", "reference_is_current"]).env("BLESS", "1");
    match status_of(&mut cargo) {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// The number behind an option.
fn value(args: &[String], option: &str) -> Option<u64> {
    let index = args.iter().position(|a| a == option)?;
    args.get(index + 1)?.parse().ok()
}

fn cargo() -> Command {
    Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
}

/// Runs cargo; the status is 1 if it cannot be started or is killed.
fn status_of(cargo: &mut Command) -> i32 {
    match cargo.status() {
        Ok(status) => status.code().unwrap_or(1),
        Err(e) => {
            eprintln!("cargo: {e}");
            1
        }
    }
}
