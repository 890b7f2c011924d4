//! Chores of the project: `cargo xtask bench [PART]...`, `cargo xtask dist`, `cargo xtask soak`,
//! `cargo xtask fuzz`, `cargo xtask test`, `cargo xtask vm`.

mod bench;
mod counts;
mod dist;
mod fuzz;
mod keys;
mod markers;
mod nginx;
mod peers;
mod profile;
mod soak;
mod stress;
mod system;
mod vm;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("bench") => bench::run(&args[1..]),
        Some("dist") => return dist::run(&args[1..]),
        Some("fuzz") => fuzz::run(&args[1..]),
        Some("soak") => soak::run(&args[1..]),
        Some("test") => counts::run(&args[1..]),
        Some("vm") => vm::run(&args[1..]),
        _ => {
            eprintln!(
                "usage: cargo xtask bench [start] [hits] [exact] [stress] [markers] [keys] [nginx] [profile] [system]"
            );
            eprintln!("       cargo xtask dist [--no-packages] [--vm] [--in FOLDER]...");
            eprintln!("       cargo xtask fuzz [--debuginfo] [--minutes N] [--seed S]");
            eprintln!("       cargo xtask soak [--cases N] [--seed S]");
            eprintln!("       cargo xtask test [ARGUMENT OF CARGO TEST]...");
            eprintln!(
                "       cargo xtask vm [--kernel 6.1,6.12,newest] [--all] [--bench] [TEST]..."
            );
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
