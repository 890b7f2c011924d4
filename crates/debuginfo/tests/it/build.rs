//! Builds small programs for tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A temporary directory.
pub(crate) struct Dir(tempfile::TempDir);

impl Dir {
    pub(crate) fn new() -> Dir {
        Dir(tempfile::tempdir().expect("a directory"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Compiles a text with the compiler of its language: `.c`, `.cc`, `.f90` or `.rs`.
    pub(crate) fn compile(&self, name: &str, text: &str, flags: &[&str]) -> PathBuf {
        let compiler = match name.rsplit_once('.') {
            Some((_, "c")) => "gcc",
            Some((_, "f90")) => "gfortran",
            Some((_, "rs")) => "rustc",
            _ => "g++",
        };
        self.compile_by(compiler, name, text, flags)
    }

    /// Compiles a text with a given compiler.
    pub(crate) fn compile_by(
        &self,
        compiler: &str,
        name: &str,
        text: &str,
        flags: &[&str],
    ) -> PathBuf {
        let source = self.path().join(name);
        std::fs::write(&source, text).expect("written");
        let out = source.with_extension("");
        run(Command::new(compiler)
            .current_dir(self.path())
            .args(flags)
            .arg(name)
            .arg("-o")
            .arg(&out));
        out
    }
}

/// Runs a command that must succeed; returns its output.
pub(crate) fn run(command: &mut Command) -> String {
    let out = command.output().expect("started");
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}: {error}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}
