//! The command line of SystemTap's `stap`: what each of its options does here, its file of options
//! and its variables.
//!
//! [`rewrite`] runs before [`crate::cli`]: it takes out the options that have no effect here, and
//! refuses those that spile lacks. The other options are those of [`crate::cli::Cli`].

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit};

use spile_abi::HOST;
use spile_debuginfo::trust;

use crate::cli::Cli;
use crate::report::{Failure, fail};

/// The argument of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arg {
    /// None.
    No,
    /// The rest of the word, or the next word.
    Needed,
    /// Behind `=` in the same word, or none.
    Optional,
}

/// What an option does here.
#[derive(Debug, Clone, Copy)]
enum Meaning {
    /// What it does in SystemTap: [`Cli`] has it.
    Same,
    /// Nothing, because of this.
    NoEffect(&'static str),
    /// Nothing, because of this, without an argument or with one of these; others are errors.
    Choice(&'static [&'static str], &'static str),
    /// Nothing with one of these arguments; other arguments are refused because of this.
    Only(&'static [&'static str], &'static str),
    /// The session ends with success and this text.
    Done(&'static str),
    /// It is refused, with this way out.
    Refused(&'static str),
    /// It limits a resource of spile's process.
    Limit(Resource),
    /// Scripts are written and run at a prompt; see [`crate::interactive`].
    Interactive,
}

/// An option of `stap`.
#[derive(Debug, Clone, Copy)]
struct StapOption {
    name: &'static str,
    arg: Arg,
    meaning: Meaning,
}

const NO_SERVER: &str = "compiling takes milliseconds; there is no server";
const NO_CACHE: &str = "nothing is cached, because compiling takes milliseconds";
const LOCATIONS: &str = "locations of variables come from the debugging information";
const NO_BUILD: &str = "there is no kernel module to build";
const PRIVILEGES: &str =
    "the kernel decides what a user may do: CAP_BPF and CAP_PERFMON are needed";
const ELSEWHERE: &str =
    "it compiles for the running kernel, or with -r for a kernel of the same architecture";

/// The way out of `--remote`.
pub(crate) const NO_REMOTE: &str = "run it on that machine: `ssh HOST spile ...`";
/// The way out of `--monitor`.
pub(crate) const NO_MONITOR: &str =
    "print the values in a `probe timer.s(1)`, or read them with --prometheus";

/// Every option of `stap`: those of one meaning and one kind of argument in a row.
#[rustfmt::skip]
const OPTIONS: &[(&str, Arg, Meaning)] = {
    use Arg::*;
    use Meaning::*;
    &[
        ("-h --help -V --version -v -k -g -u -w -W -t -F", No, Same),
        ("--skip-badvars --suppress-handler-errors", No, Same),
        ("--suppress-time-limits --check-version", No, Same),
        ("--dump-probe-types --dump-probe-aliases", No, Same),
        ("--dump-functions --no-global-var-display", No, Same),
        ("--example", No, Same),
        ("-p -s -I -D -G -r -m -d -o -c -x", Needed, Same),
        ("-e -E -l -L -S -T --vp --compatible", Needed, Same),
        ("--sysroot --target-namespaces", Needed, Same),
        ("--color --colour", Optional, Same),
        ("-i --interactive", No, Interactive),
        ("-P", No, NoEffect(LOCATIONS)),
        ("--prologue-searching", Optional, Choice(&["always", "auto", "never"], LOCATIONS)),
        ("-b", No, NoEffect("one buffer of all processors carries the output, in order")),
        ("-B --modinfo", Needed, NoEffect(NO_BUILD)),
        ("--debug --save-uprobes", No, NoEffect(NO_BUILD)),
        ("--sign-module --build-as", Optional, NoEffect(NO_BUILD)),
        ("-a", Needed, Only(&OWN_NAMES, ELSEWHERE)),
        ("--sysenv", Needed, Refused(ELSEWHERE)),
        ("-R", Needed, NoEffect("the runtime is part of spile; -I adds a library")),
        ("--ldd", No, NoEffect("symbols of libraries are found when they are needed")),
        ("--all-modules", No, NoEffect("symbols of all loaded modules are available")),
        ("--clean-cache", No, Done(NO_CACHE)),
        ("--disable-cache --poison-cache", No, NoEffect(NO_CACHE)),
        ("--privilege", Needed, Only(&["stapdev"], PRIVILEGES)),
        ("--unprivileged", No, Refused(PRIVILEGES)),
        ("--semantic-keep-going", No, NoEffect("pass 2 always goes on, and shows all errors")),
        ("--use-server --use-server-on-error", Optional, NoEffect(NO_SERVER)),
        ("--use-http-server", Needed, NoEffect(NO_SERVER)),
        ("--client-options", No, NoEffect(NO_SERVER)),
        ("--list-servers", Optional, Done(NO_SERVER)),
        ("--trust-servers", Optional, Refused(NO_SERVER)),
        ("--remote", Needed, Refused(NO_REMOTE)),
        ("--remote-prefix", No, NoEffect("there is no --remote")),
        (
            "--download-debuginfo",
            Optional,
            NoEffect("servers of DEBUGINFOD_URLS are asked when something is missing"),
        ),
        ("--rlimit-as", Needed, Limit(Resource::As)),
        ("--rlimit-cpu", Needed, Limit(Resource::Cpu)),
        ("--rlimit-nproc", Needed, Limit(Resource::Nproc)),
        ("--rlimit-stack", Needed, Limit(Resource::Stack)),
        ("--rlimit-fsize", Needed, Limit(Resource::Fsize)),
        ("--runtime", Needed, Same),
        ("--bpf", No, NoEffect("handlers in the kernel are eBPF, with the whole language")),
        ("--dyninst", No, Refused("handlers in the kernel, which are eBPF, probe programs as well")),
        ("--monitor", Optional, Refused(NO_MONITOR)),
        ("--language-server", No, Refused("the language server is `spile lsp`")),
        ("--tmpdir", Needed, NoEffect("there are no temporary files")),
        ("-q", No, NoEffect("it measures the library of stap itself")),
        ("--benchmark-sdt", No, Refused("it measures stap itself; `spile -t` measures probes")),
        ("--benchmark-sdt-loops --benchmark-sdt-threads", Needed, NoEffect("it belongs to --benchmark-sdt")),
    ]
};

/// The options of [`OPTIONS`], one by one.
fn options() -> impl Iterator<Item = StapOption> {
    OPTIONS.iter().flat_map(|&(names, arg, meaning)| {
        let names = names.split(' ');
        names.map(move |name| StapOption { name, arg, meaning })
    })
}

/// The option of that name, dashes included.
fn find(name: &str) -> Option<StapOption> {
    options().find(|option| option.name == name)
}

/// The names of the processor, in SystemTap's spelling and in that of `uname`.
static OWN_NAMES: [&str; 2] = [HOST.script_name, HOST.name];

/// A command line without the options that only `stap` has.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Rewritten {
    /// The arguments, the program's name first.
    pub args: Vec<OsString>,
    /// What `-v` says of options without effect.
    pub notes: Vec<String>,
    /// The text of an option that ends the session with success.
    pub done: Option<&'static str>,
    /// Whether `-i` was among them.
    pub interactive: bool,
    /// The limits of this process.
    limits: Vec<ProcessLimit>,
}

/// A limit of this process.
#[derive(Debug, PartialEq)]
struct ProcessLimit {
    /// The option that names it.
    option: &'static str,
    resource: Resource,
    value: u64,
}

/// Applies [`OPTIONS`] to a command line.
///
/// # Errors
/// An option that spile lacks, or a limit that cannot be set.
pub(crate) fn rewrite(args: impl IntoIterator<Item = OsString>) -> Result<Rewritten, Failure> {
    let mut words = args.into_iter();
    let mut out = Rewritten {
        args: words.next().into_iter().collect(),
        ..Rewritten::default()
    };
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or("").to_owned();
        if text == "--" {
            out.args.push(word);
            out.args.extend(words);
            break;
        }
        if text.starts_with("--") {
            let (name, mut value) = match text.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (&*text, None),
            };
            let Some(option) = find(name) else {
                out.args.push(word);
                continue;
            };
            let mut kept = vec![word];
            if option.arg == Arg::Needed && value.is_none() {
                let next = words.next();
                value = next.as_ref().map(|n| n.to_string_lossy().into_owned());
                kept.extend(next);
            }
            if out.apply(option, value)? {
                out.args.extend(kept);
            }
        } else if text.len() > 1 && text.starts_with('-') {
            out.short(&text[1..], word, &mut words)?;
        } else {
            out.args.push(word);
        }
    }
    Ok(out)
}

impl Rewritten {
    /// A word of options of one letter each, of which the last one can have an argument.
    fn short(
        &mut self,
        letters: &str,
        word: OsString,
        words: &mut impl Iterator<Item = OsString>,
    ) -> Result<(), Failure> {
        let mut kept = String::new();
        for (offset, letter) in letters.char_indices() {
            let rest = &letters[offset + letter.len_utf8()..];
            let Some(option) = find(&format!("-{letter}")) else {
                // An error of the command line's parser, which sees the whole word.
                self.args.push(word);
                return Ok(());
            };
            if option.arg == Arg::No {
                if self.apply(option, None)? {
                    kept.push(letter);
                }
                continue;
            }
            let next = if rest.is_empty() { words.next() } else { None };
            let value = match &next {
                Some(next) => next.to_string_lossy().into_owned(),
                None => rest.to_owned(),
            };
            if self.apply(option, Some(value))? {
                kept.push(letter);
                kept.push_str(rest);
                self.args.push(format!("-{kept}").into());
                self.args.extend(next);
                return Ok(());
            }
            break;
        }
        if !kept.is_empty() {
            self.args.push(format!("-{kept}").into());
        }
        Ok(())
    }

    /// Sets both limits of each resource that an option names, as `stap` does.
    pub(crate) fn set_limits(&self) -> Result<(), Failure> {
        for limit in &self.limits {
            let both = Rlimit {
                current: Some(limit.value),
                maximum: Some(limit.value),
            };
            let failed = |e| fail(format_args!("{} {}: {e}", limit.option, limit.value));
            rustix::process::setrlimit(limit.resource, both).map_err(failed)?;
        }
        Ok(())
    }

    /// Does what an option means; `true` if it stays on the command line.
    fn apply(&mut self, option: StapOption, value: Option<String>) -> Result<bool, Failure> {
        let name = option.name;
        let refused = |value: &str, why: &str| {
            Err(fail(format_args!(
                "{name}{value} is an option of stap that spile lacks: {why}"
            )))
        };
        match option.meaning {
            Meaning::Same => return Ok(true),
            Meaning::NoEffect(why) | Meaning::Choice(_, why) => {
                if let (Meaning::Choice(values, _), Some(value)) = (option.meaning, value)
                    && !values.contains(&value.as_str())
                {
                    let values = values.join(", ");
                    return Err(fail(format_args!(
                        "{name}={value}: expected one of {values}"
                    )));
                }
                self.notes.push(format!("{name} has no effect: {why}"));
            }
            Meaning::Only(values, why) => match value {
                Some(v) if values.contains(&v.as_str()) => {}
                Some(v) => return refused(&format!(" {v}"), why),
                None => return refused("", why),
            },
            Meaning::Done(text) => self.done = Some(text),
            Meaning::Refused(why) => return refused("", why),
            Meaning::Limit(resource) => {
                self.limits.push(ProcessLimit {
                    value: limit(name, value.as_deref())?,
                    option: name,
                    resource,
                });
            }
            Meaning::Interactive => self.interactive = true,
        }
        Ok(false)
    }
}

/// The value of a limit.
fn limit(name: &str, value: Option<&str>) -> Result<u64, Failure> {
    let text = value.unwrap_or("");
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
    .ok_or_else(|| fail(format_args!("{name} {text}: not a number")))
}

fn file_name(program: Option<&OsStr>) -> Option<&OsStr> {
    program.and_then(|p| Path::new(p).file_name())
}

/// Whether the program was called by the name `stap`.
pub(crate) fn is_stap(program: Option<&OsStr>) -> bool {
    file_name(program) == Some(OsStr::new("stap"))
}

/// What a program of SystemTap other than `stap` does here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Companion {
    /// Nothing is left to do, because of this.
    NotNeeded(&'static str),
    /// It runs a module.
    Runner,
    /// It reports on the machine.
    Report,
}

/// SystemTap's other programs, by the names of links to spile.
const COMPANIONS: &[(&str, Companion)] = &[
    ("staprun", Companion::Runner),
    ("stapio", Companion::Runner),
    (
        "stap-merge",
        Companion::NotNeeded("the output of spile is one file, in order, also with -b"),
    ),
    ("stap-prep", Companion::Report),
    ("stap-report", Companion::Report),
];

/// The program of SystemTap, other than `stap`, that this one was called as.
pub(crate) fn companion(program: Option<&OsStr>) -> Option<(&'static str, Companion)> {
    let called = file_name(program)?;
    COMPANIONS.iter().find(|(name, _)| called == *name).copied()
}

/// What the environment adds to a command line.
#[derive(Default)]
pub(crate) struct FromEnvironment {
    /// Words that come before those of the command line.
    pub words: Vec<OsString>,
    /// Why something is left out.
    pub warnings: Vec<String>,
}

/// The words of the user's file of options, which come before those of the command line:
/// `$SYSTEMTAP_DIR/rc`, or `~/.systemtap/rc`. A file that others can change is left out.
///
/// # Errors
/// A file that cannot be read, or a line with an open quote.
pub(crate) fn options_file() -> Result<FromEnvironment, Failure> {
    let named = std::env::var_os("SYSTEMTAP_DIR").map(PathBuf::from);
    let given = named.is_some();
    let default = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".systemtap"));
    let mut out = FromEnvironment::default();
    let Some(folder) = named.or_else(default) else {
        return Ok(out);
    };
    let named = folder.join("rc");
    let nothing = |e: &io::Error| !given || e.kind() == io::ErrorKind::NotFound;
    let path = match trust::own_tree(&named) {
        Ok(path) => path,
        // The system's refusal: another user's home can be closed to this one.
        Err(e) if e.raw_os_error().is_some() && nothing(&e) => return Ok(out),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            out.warnings.push(format!(
                "{e}, so the options of {} are not used (SYSTEMTAP_DIR can name another folder)",
                named.display()
            ));
            return Ok(out);
        }
        Err(e) => return Err(fail(format_args!("{}: {e}", named.display()))),
    };
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(e) if nothing(&e) => return Ok(out),
        Err(e) => return Err(fail(format_args!("{}: {e}", path.display()))),
    };
    for (n, line) in String::from_utf8_lossy(&text).lines().enumerate() {
        let words = shlex::split(line)
            .ok_or_else(|| fail(format_args!("{}:{}: an open quote", path.display(), n + 1)))?;
        out.words.extend(words.into_iter().map(OsString::from));
    }
    Ok(out)
}

/// Adds what SystemTap's variables say where no option does: `$SYSTEMTAP_RELEASE` is that of `-r`,
/// and `$SYSTEMTAP_TAPSET` a folder of library files behind those of `-I`. A folder that others can
/// change is left out, with a warning.
pub(crate) fn variables(cli: &mut Cli) -> Option<String> {
    let set = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    if cli.release.is_none() {
        cli.release = set("SYSTEMTAP_RELEASE");
    }
    let folder = set("SYSTEMTAP_TAPSET").map(PathBuf::from)?;
    match trust::own_tree(&folder) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            let folder = folder.display();
            return Some(format!(
                "{e}, so SYSTEMTAP_TAPSET={folder} is not used (-I {folder} uses it)"
            ));
        }
        // A folder that cannot be read is an error where the library is read.
        path => cli.include.push(path.unwrap_or(folder)),
    }
    None
}

/// The text of `-V` for a program called `stap`, as scripts expect it.
pub(crate) fn version() -> String {
    format!(
        "Systemtap translator/driver (version {}/{}, spile {})\n\
         This is spile, which compiles the language of SystemTap to eBPF.\n\
         MIT OR Apache-2.0, no warranty\n\
         enabled features: BPF DEBUGINFOD\n",
        spile_syntax::preproc::SYSTEMTAP_VERSION,
        env!("CARGO_PKG_VERSION"),
        env!("CARGO_PKG_VERSION"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn words(line: &[&str]) -> Vec<OsString> {
        line.iter().map(OsString::from).collect()
    }

    /// Goes through the table: each option that keeps its meaning is one of the command line's, with an
    /// argument or without; each other one is none, and does what its row says.
    #[test]
    fn each_option_has_its_meaning() {
        let command = Cli::command();
        for option in options() {
            let name = option.name;
            let own = command.get_arguments().find(|a| {
                let letter = a.get_short().map(String::from);
                let longs = a.get_long_and_visible_aliases().unwrap_or_default();
                let all = a.get_all_aliases().unwrap_or_default();
                match name.strip_prefix("--") {
                    None => letter.as_deref() == Some(&name[1..]),
                    Some(long) => longs.contains(&long) || all.contains(&long),
                }
            });
            let built_in = matches!(name, "-h" | "--help");
            let same = matches!(option.meaning, Meaning::Same | Meaning::Interactive);
            assert_eq!(own.is_some() || built_in, same, "{name}");
            if let Some(own) = own {
                let takes = own.get_action().takes_values();
                assert_eq!(takes, option.arg != Arg::No, "{name}");
            }
            if matches!(option.meaning, Meaning::Limit(_)) {
                assert!(rewrite(words(&["spile", name, "many"])).is_err(), "{name}");
                continue;
            }
            let line = match option.arg {
                Arg::Needed => vec!["spile", name, "value", "file"],
                Arg::No | Arg::Optional => vec!["spile", name, "file"],
            };
            match (option.meaning, rewrite(words(&line))) {
                (Meaning::Same, Ok(found)) => assert_eq!(found.args, words(&line), "{name}"),
                (Meaning::NoEffect(why) | Meaning::Choice(_, why), Ok(found)) => {
                    assert_eq!(found.args, words(&["spile", "file"]), "{name}");
                    assert!(found.notes.iter().any(|n| n.contains(why)), "{name}");
                }
                (Meaning::Done(text), Ok(found)) => assert_eq!(found.done, Some(text), "{name}"),
                (Meaning::Refused(_) | Meaning::Only(..), Err(_)) => {}
                (Meaning::Interactive, Ok(found)) => {
                    assert_eq!(found.args, words(&["spile", "file"]), "{name}");
                    assert!(found.interactive, "{name}");
                }
                (_, found) => panic!("{name}: {found:?}"),
            }
        }
    }

    #[test]
    fn letters_in_one_word() {
        let same = |line: &[&str]| rewrite(words(line)).map(|r| r.args).ok();
        assert_eq!(
            same(&["s", "-gbvp4", "f"]),
            Some(words(&["s", "-gvp4", "f"]))
        );
        assert_eq!(same(&["s", "-b", "-R/x", "f"]), Some(words(&["s", "f"])));
        assert_eq!(same(&["s", "-bR", "/x", "f"]), Some(words(&["s", "f"])));
        assert_eq!(
            same(&["s", "-e", "--ldd", "-vD", "A=1"]),
            Some(words(&["s", "-e", "--ldd", "-vD", "A=1"]))
        );
        assert_eq!(
            same(&["s", "f", "--", "--ldd"]),
            Some(words(&["s", "f", "--", "--ldd"]))
        );
        assert_eq!(
            same(&["s", "--use-server=x", "--runtime=bpf", "-"]),
            Some(words(&["s", "--runtime=bpf", "-"]))
        );
        assert_eq!(
            same(&["s", "-a", HOST.script_name, "-ZÄ", "f"]),
            Some(words(&["s", "-ZÄ", "f"]))
        );
        assert_eq!(same(&["s", "-a", "vax"]), None);
        let searching = |value: &str| same(&["s", &format!("--prologue-searching{value}")]);
        for value in ["", "=always", "=auto", "=never"] {
            assert_eq!(searching(value), Some(words(&["s"])), "{value}");
        }
        assert_eq!((searching("="), searching("=blah")), (None, None));
        assert_eq!(
            same(&["s", "--color", "f"]),
            Some(words(&["s", "--color", "f"]))
        );
        assert_eq!(same(&["s", "-gi", "f"]), Some(words(&["s", "-g", "f"])));
    }

    #[test]
    fn names_of_the_program() {
        let named = |name: &str| companion(Some(OsStr::new(name))).map(|(name, _)| name);
        assert_eq!(named("/usr/bin/staprun"), Some("staprun"));
        assert_eq!(named("stap"), None);
        assert!(is_stap(Some(OsStr::new("/usr/bin/stap"))));
        assert!(!is_stap(Some(OsStr::new("staprun"))) && !is_stap(None));
    }
}
