//! Emits the run-time library: [`prebuilt`] says how objects take its code.
//!
//! The emitter is the one of the crate, whose files the script contains.

#![allow(dead_code, unexpected_cfgs, unreachable_pub, unused_imports)]

use std::error::Error;
use std::path::Path;

#[path = "src/emit/mod.rs"]
mod emit;
#[path = "src/isa/mod.rs"]
mod isa;
#[path = "src/prebuilt/mod.rs"]
mod prebuilt;

fn main() -> Result<(), Box<dyn Error>> {
    for folder in ["src/emit", "src/isa", "src/prebuilt"] {
        println!("cargo::rerun-if-changed={folder}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(built)");
    println!("cargo::rustc-cfg=built");
    let templates = prebuilt::write::templates()?;
    let source = prebuilt::write::source(&templates);
    let folder = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    std::fs::write(Path::new(&folder).join("library.rs"), source)?;
    Ok(())
}
