//! Compiles `context/` to a shared object that needs no library.

use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::DeflateEncoder;

#[path = "src/fingerprint.rs"]
mod fingerprint;

const SOURCES: [&str; 7] = [
    "context.c",
    "times.c",
    "ompt.c",
    "gomp.c",
    "calls.c",
    "calls.S",
    "peers.c",
];
const HEADERS: [&str; 2] = ["context.h", "calls.def"];

/// Compiler flags: no dependency on a library, and no vector registers, because these may hold
/// arguments of interposed functions.
const FLAGS: &[&str] = &[
    "-std=gnu11",
    "-O2",
    "-g0",
    "-Wall",
    "-Wextra",
    "-fPIC",
    "-ffreestanding",
    "-fvisibility=hidden",
    "-fno-stack-protector",
    "-fno-omit-frame-pointer",
    "-fno-plt",
    "-ftls-model=initial-exec",
    "-fasynchronous-unwind-tables",
    "-mgeneral-regs-only",
    "-shared",
    "-nostdlib",
    "-s",
    // Without an array of initialisers, which would be a mapping.
    "-Wl,-init,context_loaded",
    // Each separate mapping adds to the cost of every fork of the program.
    "-Wl,-z,nodelete,-z,relro,-z,noexecstack,-z,noseparate-code,--hash-style=both,-soname,libspile-context.so",
];

/// Puts the table in which symbols are looked up among the data that the dynamic linker has written. A
/// fork copies the entries of pages of such a mapping, and not those of code. In a new child the first
/// call of a function looks its symbol up here, which would be a page fault.
const LOOKUPS: &str = "SECTIONS { .gnu.hash : { *(.gnu.hash) } } INSERT AFTER .dynamic;\n";

fn main() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../context");
    for file in SOURCES.iter().chain(&HEADERS) {
        println!("cargo:rerun-if-changed={}", dir.join(file).display());
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo"));
    let out = out.join("context.so");
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("set by cargo");
    if !["x86_64", "aarch64"].contains(&arch.as_str()) {
        pack(&out, &[]);
        return;
    }
    let compiler = cc::Build::new().no_default_flags(true).get_compiler();
    let script = out.with_extension("ld");
    std::fs::write(&script, LOOKUPS).expect("writable");
    let built = |more: &[String]| {
        let mut command = compiler.to_command();
        command.args(FLAGS).args(more).arg("-o").arg(&out);
        command.args(SOURCES.map(|file| dir.join(file)));
        let status = command.status();
        match status.as_ref().is_ok_and(std::process::ExitStatus::success) {
            true => Ok(()),
            false => Err(format!("{command:?}: {status:?}")),
        }
    };
    // Some linkers have no such scripts.
    let done = built(&[format!("-Wl,-T,{}", script.display())]).or_else(|_| built(&[]));
    done.unwrap_or_else(|why| panic!("{why}"));
    pack(&out, &std::fs::read(&out).expect("readable"));
}

/// Writes the library as spile contains it: compressed, and its length and number. Few starts need its bytes.
fn pack(out: &Path, library: &[u8]) {
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
    packed.write_all(library).expect("memory");
    std::fs::write(out.with_extension("z"), packed.finish().expect("memory")).expect("writable");
    let mut number = fingerprint::Fingerprint::new();
    number.add(library);
    let text = format!("({}, {:#x})", library.len(), number.finish());
    std::fs::write(out.with_extension("rs"), text).expect("writable");
}
