//! Whether a recording reads the functions of programs in Python, Ruby and PHP.
//!
//! The kernel needs some 20 milliseconds to check the handlers with the code that reads those of one interpreter, which
//! every start would take. So it is left out where the recorded program is not of that interpreter and does not look like
//! one that starts it. Samples in an interpreter without its functions are then counted as losses.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::Path;

use clap::ValueEnum;
use spile_kernel::process;
use spile_profile::interpreter::Interpreter;
use spile_profile::model::{Frame, Snapshot};

use super::program;
use crate::add_losses;

/// The choice of the option `--interpreters`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Reading {
    /// If the program is of the interpreter, or a script, a shell or a build tool, or its arguments name the interpreter
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

/// Number of samples without functions, below which nothing is said of the interpreter's version: it may have begun only.
const FEW: u64 = 20;

impl Reading {
    /// The interpreters whose functions are read in a command, or in these running processes.
    pub(super) fn read(
        self,
        running: Option<BTreeSet<u32>>,
        command: &[String],
    ) -> Vec<Interpreter> {
        match (self, running) {
            (Reading::Always, _) => Interpreter::ALL.to_vec(),
            (Reading::Never, _) => Vec::new(),
            (Reading::Auto, Some(running)) => mapped(&running),
            (Reading::Auto, None) => may_start(command),
        }
    }
}

/// The interpreters as the bits of `__interpreters` in the library.
pub(super) fn bits(interpreters: &[Interpreter]) -> u32 {
    let all = Interpreter::ALL.iter().zip(0..);
    let read = all.filter(|(interpreter, _)| interpreters.contains(interpreter));
    read.map(|(_, bit)| 1 << bit).sum()
}

/// The interpreters whose files are mapped in one of these processes.
fn mapped(running: &BTreeSet<u32>) -> Vec<Interpreter> {
    let mut found = HashSet::new();
    for pid in running {
        let mappings = process::mappings(*pid).unwrap_or_default();
        let files = mappings.iter().map(|m| Path::new(&m.path).file_name());
        let names = files.flatten().map(|name| name.to_string_lossy());
        found.extend(names.filter_map(|name| Interpreter::of_module(&name)));
    }
    let mut all = Interpreter::ALL.to_vec();
    all.retain(|interpreter| found.contains(interpreter));
    all
}

/// The interpreters that a command is or may start.
fn may_start(command: &[String]) -> Vec<Interpreter> {
    let Some(word) = command.first() else {
        return Vec::new();
    };
    let name = Path::new(word).file_name().unwrap_or_default();
    let starts = match program::file_of(word) {
        _ if STARTERS.iter().any(|starter| name == *starter) => [Starts::Perhaps; 3],
        Some(file) => starts(&file).unwrap_or([Starts::Perhaps; 3]),
        None => [Starts::No; 3],
    };
    let is_named = |interpreter: Interpreter| {
        command.iter().any(|word| {
            word.contains(interpreter.program()) || word.ends_with(extension(interpreter))
        })
    };
    // Most programs in the other two are started by name.
    let is_there = |interpreter: Interpreter| {
        interpreter == Interpreter::Python || program::file_of(interpreter.program()).is_some()
    };
    let all = Interpreter::ALL.into_iter().zip(starts);
    let read = all.filter(|(interpreter, starts)| {
        is_named(*interpreter)
            || *starts == Starts::Yes
            || *starts == Starts::Perhaps && is_there(*interpreter)
    });
    read.map(|(interpreter, _)| interpreter).collect()
}

/// Whether a program starts an interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Starts {
    Yes,
    No,
    Perhaps,
}

/// How names of programs in the language end.
fn extension(interpreter: Interpreter) -> &'static str {
    match interpreter {
        Interpreter::Python => ".py",
        Interpreter::Ruby => ".rb",
        Interpreter::Php => ".php",
    }
}

/// What the file of a program has in it that contains the interpreter or is linked with it.
fn in_files(interpreter: Interpreter) -> [&'static [u8]; 2] {
    match interpreter {
        Interpreter::Python => [b"_PyRuntime", b"libpython"],
        Interpreter::Ruby => [b"ruby_current_ec", b"libruby"],
        Interpreter::Php => [b"executor_globals", b"libphp"],
    }
}

/// For each interpreter, whether a file is a program with it inside, its script, or a script of what may start it.
fn starts(file: &Path) -> std::io::Result<[Starts; 3]> {
    let mut file = BufReader::new(File::open(file)?);
    let mut magic = [0; 4];
    file.read_exact(&mut magic)?;
    file.rewind()?;
    let mut bytes = Vec::new();
    if &magic == b"\x7fELF" {
        file.read_to_end(&mut bytes)?;
        let has = |interpreter| program::contains(&bytes, &in_files(interpreter));
        return Ok(Interpreter::ALL.map(|interpreter| match has(interpreter) {
            true => Starts::Yes,
            false => Starts::No,
        }));
    }
    file.take(LINE).read_until(b'\n', &mut bytes)?;
    let line = String::from_utf8_lossy(&bytes);
    let named =
        |interpreter: &Interpreter| line.starts_with("#!") && line.contains(interpreter.program());
    let named = Interpreter::ALL.into_iter().find(named);
    Ok(Interpreter::ALL.map(|interpreter| match named {
        Some(named) if named == interpreter => Starts::Yes,
        Some(_) => Starts::No,
        None => Starts::Perhaps,
    }))
}

/// The kernel's limit on the first line of a script.
const LINE: u64 = 256;

/// Counts the samples in interpreters whose functions were not read, or could not be.
pub(super) fn losses(read: &[Interpreter], data: &mut Snapshot) {
    for interpreter in Interpreter::ALL {
        let inside = |frame: &Frame| frame.interpreter() == Some(interpreter);
        let of_program = |frame: &Frame| frame.module.is_none() && frame.file.is_some();
        let samples = data.samples.iter().filter(|s| s.frames.iter().any(inside));
        let (named, others): (Vec<_>, Vec<_>) =
            samples.partition(|s| s.frames.iter().any(of_program));
        let count = others.iter().map(|sample| sample.count).sum();
        let language = interpreter.language();
        let lost = if !read.contains(&interpreter) {
            (
                count,
                format!(
                    "samples in {language}, whose functions are not read: --interpreters always"
                ),
            )
        } else if named.is_empty() && count >= FEW {
            (
                count,
                format!("samples in {language}, of whose version no functions can be read"),
            )
        } else {
            continue;
        };
        add_losses(&mut data.lost, [(lost.0, &*lost.1)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_may_start_an_interpreter_are_recognised() {
        let may = |words: &str| {
            let words: Vec<_> = words.split(' ').map(str::to_owned).collect();
            bits(&Reading::Auto.read(None, &words))
        };
        // The others are not on each machine.
        assert_eq!(may("sh -c x") & 1, 1);
        assert_eq!(may("/usr/bin/make all") & 1, 1);
        assert_eq!(may("mpirun -n 4 python3 x"), 1);
        assert_eq!(may("env ./run.py"), 1);
        assert_eq!(may("env ./run.rb"), 2);
        assert_eq!(may("env php8.2 x"), 4);
        assert_eq!(may("true"), 0);
    }

    #[test]
    fn scripts_and_programs_with_an_interpreter_are_recognised_by_their_files() {
        use Starts::{No, Perhaps, Yes};
        let folder = tempfile::tempdir().unwrap();
        let starts = |name: &str, content: &[u8]| {
            let file = folder.path().join(name);
            std::fs::write(&file, content).unwrap();
            super::starts(&file).unwrap()
        };
        assert_eq!(starts("script", b"#!/usr/bin/perl\n"), [Perhaps; 3]);
        assert_eq!(
            starts("linked", b"\x7fELF...libpython3.11.so.1.0\0"),
            [Yes, No, No]
        );
        assert_eq!(starts("static", b"\x7fELF..._PyRuntime\0"), [Yes, No, No]);
        assert_eq!(
            starts("ruby", b"#!/usr/bin/env ruby\nputs 1\n"),
            [No, Yes, No]
        );
        assert_eq!(
            starts("php", b"\x7fELF...executor_globals\0"),
            [No, No, Yes]
        );
        assert_eq!(starts("other", b"\x7fELF...libc.so.6\0"), [No; 3]);
    }

    #[test]
    fn samples_without_functions_are_losses() {
        let frame = |function: &str, module: Option<&str>| {
            Frame::new(spile_profile::model::StackFrame {
                function: function.into(),
                module: module.map(str::to_owned),
                file: module.is_none().then(|| "a.rb".into()),
                ..Default::default()
            })
        };
        let lost = |read: &[Interpreter], functions: bool| {
            let mut data = Snapshot::default();
            let mut frames = vec![frame("0x12", Some("/usr/lib/libruby-3.1.so.3.1"))];
            frames.extend(functions.then(|| frame("f", None)));
            data.samples.push(spile_profile::model::Sample {
                count: 30,
                frames,
                ..Default::default()
            });
            losses(read, &mut data);
            data.lost
                .into_iter()
                .map(|(what, n)| format!("{n} {what}"))
                .collect::<Vec<_>>()
        };
        let not_read = "30 samples in Ruby, whose functions are not read: --interpreters always";
        assert_eq!(lost(&[], false), [not_read]);
        let no_layout = "30 samples in Ruby, of whose version no functions can be read";
        assert_eq!(lost(&[Interpreter::Ruby], false), [no_layout]);
        assert!(lost(&[Interpreter::Ruby], true).is_empty());
    }
}
