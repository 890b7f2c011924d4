//! Emits the run-time library: [`spile_ebpf::prebuilt`] says how objects take its code.

use std::error::Error;
use std::path::Path;

use spile_ebpf::prebuilt::write;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let source = write::source(&write::templates()?);
    let folder = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    std::fs::write(Path::new(&folder).join("library.rs"), source)?;
    Ok(())
}
