//! Writes the tables of system calls as Rust, so that no start reads their files.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "the crate has uses for all of these"
)]

use std::error::Error;
use std::path::Path;

#[path = "src/model.rs"]
mod model;
#[path = "src/parse.rs"]
mod parse;
#[path = "src/source.rs"]
mod source;

fn main() -> Result<(), Box<dyn Error>> {
    for path in ["build.rs", "data", "src"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let source = source::source(&parse::tables()?);
    let folder = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    std::fs::write(Path::new(&folder).join("syscalls.rs"), source)?;
    Ok(())
}
