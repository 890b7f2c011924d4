//! The scripts that an end-to-end case runs, found without running them: the case's shell runs, and a
//! recorder stands in for spile. Python programs and pipes make their scripts as they would for a session.
//!
//! A rehearsal has no privileges, whatever the case does: it runs as nobody if the test runs as root.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::files::{examples, root};

/// The members of a case that say which scripts it runs.
#[derive(Deserialize, Clone, Debug)]
pub struct CaseCommands {
    /// A shell's command line.
    pub shell: Option<String>,
    /// A script.
    pub script: Option<String>,
    /// A file with a script.
    pub file: Option<String>,
    /// Options and arguments behind the script.
    #[serde(default)]
    pub args: Vec<String>,
}

/// A script with its arguments.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Script {
    /// The text.
    pub text: String,
    /// Its arguments, `$1` first.
    pub args: Vec<String>,
}

/// The user and the group nobody.
const NOBODY: u32 = 65534;
/// Time limit of a shell. One that waits for spile's output waits in vain, and is ended.
const PATIENCE: Duration = Duration::from_secs(60);
/// Programs that do nothing in a rehearsal, and succeed.
const STAND_INS: &[(&str, &str)] = &[
    // Those of guests, and those that need privileges.
    ("nfs rare mount umount insmod modprobe rmmod ip sleep", ""),
    ("losetup", "echo /dev/loop0"),
    (
        "unshare",
        "while [ \"${1#-}\" != \"$1\" ]; do shift; done; exec \"$@\"",
    ),
    // What is not run need not be built.
    ("cc gcc g++ gfortran clang rustc go mpicc mpirun", ""),
    // Only guests have all files that cases copy.
    ("cp", "/bin/cp \"$@\"; true"),
];
/// Options of spile with a value; the value is the rest of the word or the next word.
const WITH_VALUE: &str = "eEcxToSplLGDIsrdmaRB";

/// The stage of rehearsals: copies of the folders that commands of cases use. Everybody can read them, also
/// where only the owner of the repository can enter it.
pub struct Stage(tempfile::TempDir);

impl Stage {
    /// Copies the folders.
    ///
    /// # Errors
    ///
    /// When one cannot be copied.
    pub fn new() -> std::io::Result<Stage> {
        let stage = tempfile::tempdir()?;
        let done = |command: &mut Command| match command.status()?.success() {
            true => Ok(()),
            false => Err(std::io::Error::other(format!("{command:?} failed"))),
        };
        for name in ["tests", "examples", "tools", "tapset", "include"] {
            done(
                Command::new("cp")
                    .args(["-RL"])
                    .arg(root().join(name))
                    .arg(stage.path()),
            )?;
        }
        done(
            Command::new("chmod")
                .args(["-R", "go+rX"])
                .arg(stage.path()),
        )?;
        Ok(Stage(stage))
    }

    /// The scripts of a case, in the order in which it runs them. Empty where it runs none, and where
    /// files of SystemTap's examples are missing.
    ///
    /// # Errors
    ///
    /// When the files of a rehearsal cannot be written.
    pub fn scripts(&self, case: &CaseCommands) -> std::io::Result<Vec<Script>> {
        let Some(shell) = &case.shell else {
            let (option, script) = match (&case.script, &case.file) {
                (Some(script), _) => ("-e", script.clone()),
                (None, Some(file)) => ("", fill(file, &root(), Path::new("/nowhere"), "spile")),
                (None, None) => return Ok(Vec::new()),
            };
            let words = [option.to_owned(), script];
            let words = words.into_iter().filter(|w| !w.is_empty());
            let words: Vec<String> = words.chain(case.args.iter().cloned()).collect();
            return Ok(script_of(&words, &root()).into_iter().collect());
        };
        let folder = tempfile::tempdir()?;
        let (dir, record) = (folder.path().join("dir"), folder.path().join("record"));
        for path in [folder.path(), &dir, &record] {
            fs::create_dir_all(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
        }
        let bin = folder.path().join("bin");
        fs::create_dir(&bin)?;
        fs::set_permissions(&bin, fs::Permissions::from_mode(0o755))?;
        let record_call = format!("printf '%s\\0' \"$PWD\" \"$@\" >{}/$$", record.display());
        program(&bin, "spile", &record_call)?;
        for (names, line) in STAND_INS {
            for name in names.split(' ') {
                program(&bin, name, line)?;
            }
        }
        self.rehearse(shell, &dir, &bin)?;
        let mut calls: Vec<(std::time::SystemTime, Vec<String>)> = Vec::new();
        for file in fs::read_dir(&record)? {
            let file = file?;
            let words = fs::read(file.path())?;
            let words = words.split(|b| *b == 0).map(String::from_utf8_lossy);
            let mut words: Vec<String> = words.map(std::borrow::Cow::into_owned).collect();
            words.pop();
            calls.push((file.metadata()?.modified()?, words));
        }
        calls.sort();
        let script = |(_, words): &(_, Vec<String>)| {
            let (at, words) = words.split_first()?;
            script_of(words, Path::new(at))
        };
        Ok(calls.iter().filter_map(script).collect())
    }

    /// Runs a shell until it ends or [`PATIENCE`] does, with all processes that it starts.
    fn rehearse(&self, line: &str, dir: &Path, bin: &Path) -> std::io::Result<()> {
        let line = fill(
            line,
            self.0.path(),
            dir,
            &bin.join("spile").display().to_string(),
        );
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &line]).current_dir(self.0.path());
        let path = std::env::var("PATH").unwrap_or_default();
        shell.env("PATH", format!("{}:{path}", bin.display()));
        shell.env("TZ", "UTC").env("HOME", dir).env("TMPDIR", dir);
        shell.env("PYTHONDONTWRITEBYTECODE", "1");
        shell.stdin(Stdio::null());
        shell.stdout(Stdio::null()).stderr(Stdio::null());
        if fs::metadata("/proc/self")?.uid() == 0 {
            shell.uid(NOBODY).gid(NOBODY);
        }
        let mut child = shell.process_group(0).spawn()?;
        let start = Instant::now();
        while child.try_wait()?.is_none() && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(2));
        }
        end_group(&mut child)
    }
}

/// Replaces the words that stand for paths, as the end-to-end tests do.
fn fill(text: &str, root: &Path, dir: &Path, spile: &str) -> String {
    let examples = examples().unwrap_or(Path::new("/EXAMPLES"));
    let programs = root.join("tests/programs");
    text.replace("SPILE", spile)
        .replace("LOAD", "true")
        .replace("EXAMPLES", &examples.display().to_string())
        .replace("PROGRAMS", &programs.display().to_string())
        .replace("BUILT", "/nowhere")
        .replace("DIR", &dir.display().to_string())
}

/// Makes a shell script that is a program.
fn program(bin: &Path, name: &str, line: &str) -> std::io::Result<()> {
    let path = bin.join(name);
    fs::write(&path, format!("#!/bin/sh\n{line}\n"))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
}

fn end_group(child: &mut Child) -> std::io::Result<()> {
    let group = format!("-{}", child.id());
    let mut kill = Command::new("kill");
    kill.args(["-KILL", "--", &group]).stderr(Stdio::null());
    // Mostly nothing of the group is left.
    kill.status()?;
    child.wait()?;
    Ok(())
}

/// The script of a command line; `None` if it runs none, as with `-l`.
fn script_of(words: &[String], at: &Path) -> Option<Script> {
    let mut texts: Vec<String> = Vec::new();
    let mut args: Vec<String> = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let Some(letters) = word.strip_prefix('-').filter(|l| !l.is_empty()) else {
            args.push(word.clone());
            continue;
        };
        if word.starts_with("--") {
            continue;
        }
        let Some(n) = letters.find(|c| WITH_VALUE.contains(c)) else {
            continue;
        };
        let value = match &letters[n + 1..] {
            "" => rest.next()?.clone(),
            value => value.to_owned(),
        };
        match &letters[n..=n] {
            "e" | "E" => texts.push(value),
            "l" | "L" => return None,
            _ => {}
        }
    }
    if texts.is_empty() {
        if args.is_empty() {
            return None;
        }
        let path: PathBuf = at.join(args.remove(0));
        texts.push(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned());
    }
    Some(Script {
        text: texts.join("\n"),
        args,
    })
}
