//! Helpers that the tests of `spile profile` share: programs of `tests/programs`, and runs of the
//! tool.

// Each test uses only a part of it.
#![allow(dead_code)]

pub(crate) mod mpi;
pub(crate) mod regions;

use std::path::{Path, PathBuf};
use std::process::Command;

/// A program of `tests/programs`, compiled under that name.
pub(crate) fn compiled(program: &str, name: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/programs")
        .join(format!("{program}.c"));
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let done = Command::new("cc")
        .args(["-O2", "-Wall", "-Werror", "-pthread"])
        .args(options)
        .arg("-o")
        .args([&binary, &source])
        .status();
    assert!(done.unwrap().success());
    binary
}

/// Compiles a program of `tests/programs`, of C if it has no extension, to `binary` with a compiler that `make deps` installs.
pub(crate) fn compiled_by(compiler: &str, program: &str, binary: &Path, options: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/programs")
        .join(match program.contains('.') {
            true => program.to_owned(),
            false => format!("{program}.c"),
        });
    let done = Command::new(compiler)
        // Fortran's compiler leaves modules here.
        .current_dir(binary.parent().unwrap())
        .args(["-g", "-O1", "-Wall", "-Werror", "-o"])
        .args([binary, &source])
        .args(options)
        .status();
    let done = done.unwrap_or_else(|e| panic!("{compiler} (`make deps` installs it): {e}"));
    assert!(done.success());
}

/// Runs `spile profile MODE` with these arguments: its status, its output, and its messages.
pub(crate) fn profile(mode: &str, args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["profile", mode])
        .args(args)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}
