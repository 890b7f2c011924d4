//! Whether a recording reads the functions of Python programs.
//!
//! The kernel needs some 20 milliseconds to check the handlers with the code that reads them, which every start would
//! take. So it is left out where the recorded program is not Python and does not look like one that starts Python. Samples
//! in Python without its functions are then counted as losses.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use clap::ValueEnum;
use spile_kernel::process;
use spile_profile::model::Snapshot;

use super::program;

/// The choice of the option `--python`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Python {
    /// If the program is Python, or a script, a shell or a build tool, or its arguments name Python
    #[default]
    Auto,
    /// In every program
    Always,
    /// In none
    Never,
}

/// Programs that start others, which their files do not tell.
const STARTERS: [&str; 9] = [
    "sh", "bash", "dash", "ksh", "zsh", "fish", "busybox", "make", "ninja",
];
/// What the file of a program has in it that contains CPython or is linked with it.
const IN_FILES: [&[u8]; 2] = [b"_PyRuntime", b"libpython"];

impl Python {
    /// Whether the functions of a command, or of these running processes, are read.
    pub(super) fn is_read(self, running: Option<BTreeSet<u32>>, command: &[String]) -> bool {
        match (self, running) {
            (Python::Always, _) => true,
            (Python::Never, _) => false,
            (Python::Auto, Some(running)) => running.into_iter().any(maps_python),
            (Python::Auto, None) => may_start_python(command),
        }
    }
}

/// Whether a file of Python's interpreter is mapped in a process.
fn maps_python(pid: u32) -> bool {
    let mappings = process::mappings(pid).unwrap_or_default();
    mappings.iter().any(|m| is_interpreter(Path::new(&m.path)))
}

/// Whether a file is a program or library of Python, by its name.
fn is_interpreter(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().as_encoded_bytes();
    name.starts_with(b"python") || name.starts_with(b"libpython")
}

fn may_start_python(command: &[String]) -> bool {
    let named = |word: &String| word.contains("python") || word.ends_with(".py");
    let Some(word) = command.first() else {
        return false;
    };
    let name = Path::new(word).file_name().unwrap_or_default();
    STARTERS.iter().any(|starter| name == *starter)
        || command.iter().any(named)
        || program::file_of(word).is_some_and(|file| starts_python(&file).unwrap_or(true))
}

/// Whether a file is a script, or a program with Python in it.
fn starts_python(file: &Path) -> std::io::Result<bool> {
    let mut file = File::open(file)?;
    let mut magic = [0; 4];
    file.read_exact(&mut magic)?;
    if &magic != b"\x7fELF" {
        return Ok(true);
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(program::contains(&bytes, &IN_FILES))
}

/// The samples in the interpreter.
pub(super) fn samples(data: &Snapshot) -> u64 {
    let inside = |module: &String| is_interpreter(Path::new(module));
    let of_python = data.samples.iter().filter(|sample| {
        let mut modules = sample.frames.iter().filter_map(|f| f.module.as_ref());
        modules.any(inside)
    });
    of_python.map(|sample| sample.count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_may_start_python_are_recognised() {
        let may = |words: &str| {
            may_start_python(&words.split(' ').map(str::to_owned).collect::<Vec<_>>())
        };
        assert!(may("sh -c x"));
        assert!(may("/usr/bin/make all"));
        assert!(may("mpirun -n 4 python3 x"));
        assert!(may("env ./run.py"));
        assert!(!may("true"));
    }

    #[test]
    fn scripts_and_programs_with_python_are_recognised_by_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let starts = |name: &str, content: &[u8]| {
            let file = folder.path().join(name);
            std::fs::write(&file, content).unwrap();
            starts_python(&file).unwrap()
        };
        assert!(starts("script", b"#!/usr/bin/perl\n"));
        assert!(starts("linked", b"\x7fELF...libpython3.11.so.1.0\0"));
        assert!(starts("static", b"\x7fELF..._PyRuntime\0"));
        assert!(!starts("other", b"\x7fELF...libc.so.6\0"));
    }
}
