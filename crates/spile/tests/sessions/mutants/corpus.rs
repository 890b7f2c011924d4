//! Scripts to mutate: the end-to-end cases, our examples and those of SystemTap.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use spile_syntax::ast::{File, Name};
use spile_syntax::diag::Diagnostics;
use spile_syntax::parser::{parse_file, parse_macros};
use spile_syntax::preproc::PreprocEnv;
use spile_syntax::pretty;
use spile_syntax::source::Sources;
use spile_testing::files::{below, cases, example_files};

use super::types::{Signature, signatures};
use crate::session::{self, Run};

/// A script, and the options of its session.
pub(crate) struct Item {
    pub name: String,
    pub file: File,
    pub args: Vec<String>,
    runs: OnceLock<bool>,
}

/// All scripts, and the library's functions.
pub(crate) struct Corpus {
    pub items: Vec<Item>,
    pub library: HashMap<Name, Signature>,
}

/// Options that cases may have, with their number of words: cases with others are not ordinary
/// sessions.
const OPTIONS: &[(&str, usize)] = &[
    ("-c", 2),
    ("-D", 2),
    ("-G", 2),
    ("-s", 2),
    ("-T", 2),
    ("-u", 1),
    ("-w", 1),
    ("-t", 1),
    ("-v", 1),
    ("--suppress-handler-errors", 1),
    ("--suppress-time-limits", 1),
    ("--skip-badvars", 1),
];

/// Scripts that call these are left out: mutated commands and files could do anything.
const UNSAFE: &[&str] = &[
    "system(",
    "procfs(",
    "%{",
    "@probewrite",
    "netfilter",
    "raise(",
];

/// The workload of cases without a command.
const WORK: &str = "sh -c 'LOAD errors 60; LOAD calls 2 300; LOAD forks 6; LOAD signals 9; \
                    LOAD names 12; LOAD naps 9 4; cat /proc/self/stat | wc -c'";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A script parsed with the library's macros.
fn parse(text: &str, macros: &str) -> Option<File> {
    let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
    let env = PreprocEnv::new("6.12.0", std::env::consts::ARCH);
    let id = sources.add("macros.stpm", macros.as_bytes().to_vec());
    let macros = parse_macros(&mut sources, id, &env, &mut diags);
    let id = sources.add("script.stp", text.as_bytes().to_vec());
    let file = parse_file(&mut sources, id, &env, &macros, &mut diags);
    (!diags.has_errors()).then_some(file)
}

/// The options of a case for a session; `None` if it is not an ordinary session.
fn options(args: &[String]) -> Option<Vec<String>> {
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(arg) = args.get(at) {
        let (name, words) = OPTIONS.iter().find(|(name, _)| name == arg)?;
        let option = args.get(at..at + words)?;
        if option.iter().any(|w| {
            ["PROGRAMS", "EXAMPLES", "DIR", "SPILE", "/"]
                .iter()
                .any(|p| w.contains(p))
        }) {
            return None;
        }
        if *name != "-T" {
            out.extend_from_slice(option);
        }
        at += words;
    }
    Some(out)
}

/// The scripts of end-to-end cases that need nothing but the script and its arguments: name, script
/// and arguments of each.
fn scripts_of_cases() -> Vec<(String, String, Vec<String>)> {
    let mut out = Vec::new();
    let files = cases::<toml::Table>().into_iter();
    for case in files.flat_map(|(_, cases)| cases) {
        let text = |name: &str| case.get(name).and_then(|v| v.as_str());
        let other = ["stdin", "signal_after", "scrape", "needs", "shell", "file"];
        if other.iter().any(|f| case.contains_key(*f)) {
            continue;
        }
        let status = case.get("status").and_then(toml::Value::as_integer);
        let args = case.get("args").and_then(|a| a.as_array());
        let args = args.into_iter().flatten();
        let args: Vec<String> = args.filter_map(|a| Some(a.as_str()?.into())).collect();
        if let (Some(name), Some(script), None | Some(0), Some(args)) =
            (text("name"), text("script"), status, options(&args))
        {
            out.push((name.into(), script.into(), args));
        }
    }
    out
}

impl Corpus {
    /// Reads all scripts, except those that do not parse without arguments.
    pub(crate) fn read() -> Corpus {
        let text = |p: &PathBuf| std::fs::read_to_string(p).unwrap_or_default();
        let tapset = root().join("tapset");
        let macros: String = below(&tapset, &["stpm"]).iter().map(text).collect();
        let mut library = HashMap::new();
        for path in below(&tapset, &["stp"]) {
            if let Some(file) = parse(&text(&path), &macros) {
                library.extend(signatures(&file).filter(|(n, _)| !n.starts_with('_')));
            }
        }
        let mut scripts = scripts_of_cases();
        let ours = below(&root().join("examples"), &["stp"]);
        for path in ours.into_iter().chain(example_files(&["stp"])) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            scripts.push((name.into_owned(), text(&path), Vec::new()));
        }
        let mut items = Vec::new();
        for (name, script, mut args) in scripts {
            let file = match parse(&script, &macros) {
                Some(file) if !UNSAFE.iter().any(|u| script.contains(u)) => file,
                _ => continue,
            };
            if !args.iter().any(|a| a == "-c") {
                args.extend(["-c".into(), WORK.into()]);
            }
            items.push(Item {
                name,
                file,
                args,
                runs: OnceLock::new(),
            });
        }
        Corpus { items, library }
    }
}

impl Item {
    /// Whether it can run on this machine.
    pub(crate) fn runs(&self) -> bool {
        *self.runs.get_or_init(|| {
            let mut args = self.args.clone();
            args.extend(["-T".into(), "2".into(), "-w".into()]);
            let script = pretty::file(&self.file);
            session::run(&Run { script, args }).status == Some(0)
        })
    }
}
