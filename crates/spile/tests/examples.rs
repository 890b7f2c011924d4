//! Each example script of SystemTap has a case in `tests/cases`, or a row in the table
//! `tests/examples.tsv` that says why no case runs it.
//!
//! A line of the table is `path <tab> kind <tab> text`; the kinds are in [`KINDS`]. The test runs the
//! rows whose reason is a message of spile, and demands the message.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::Deserialize;
use spile_testing::files::{below, examples, root};

/// Why no case runs an example.
const KINDS: [(&str, &str); 5] = [
    (
        "refused",
        "spile refuses it everywhere; the text is a part of its message",
    ),
    ("missing", "spile lacks what it uses, which the text names"),
    (
        "old",
        "it probes what kernels or programs no longer have, which the text names",
    ),
    (
        "program",
        "it probes a program that Debian does not have, or builds without what the text names",
    ),
    (
        "unwritten",
        "it compiles; nobody has written its case, and the text says what one needs",
    ),
];

#[derive(Deserialize)]
struct Case {
    shell: Option<String>,
    file: Option<String>,
}

struct Row {
    kind: String,
    text: String,
}

fn rows() -> BTreeMap<String, Row> {
    let table = std::fs::read_to_string(root().join("tests/examples.tsv")).expect("readable");
    let mut rows = BTreeMap::new();
    for line in table.lines().filter(|l| !l.starts_with('#')) {
        let cells: Vec<&str> = line.split('\t').collect();
        let [path, kind, text] = cells[..] else {
            panic!("tests/examples.tsv: not three cells: {line:?}");
        };
        let known = KINDS.iter().any(|(name, _)| *name == kind);
        assert!(known, "{path}: `{kind}` is not one of {KINDS:?}");
        let (kind, text) = (kind.to_owned(), text.to_owned());
        let before = rows.insert(path.to_owned(), Row { kind, text });
        assert!(before.is_none(), "two rows of {path}");
    }
    rows
}

/// The examples that cases run.
fn in_cases() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let cases = spile_testing::files::cases::<Case>();
    let cases = cases.iter().flat_map(|(_, cases)| cases);
    for text in cases.flat_map(|c| [&c.shell, &c.file]).flatten() {
        for named in text.split("EXAMPLES/").skip(1) {
            if let Some(end) = named.find(".stp") {
                found.insert(named[..end + 4].to_owned());
            }
        }
    }
    found
}

/// The installed examples, by their paths.
fn installed() -> BTreeMap<String, PathBuf> {
    let Some(dir) = examples() else {
        spile_testing::skip("the package systemtap-doc is not installed");
    };
    let name = |p: &PathBuf| p.strip_prefix(dir).map(|n| n.display().to_string());
    (below(dir, &["stp"]).into_iter())
        .filter_map(|p| Some((name(&p).ok()?, p)))
        .collect()
}

#[test]
fn every_example_has_a_case_or_a_reason() {
    let (rows, cases, installed) = (rows(), in_cases(), installed());
    let mut wrong = Vec::new();
    for name in installed.keys() {
        match (cases.contains(name), rows.contains_key(name)) {
            (false, false) => wrong.push(format!("{name}: no case, no row")),
            (true, true) => println!("{name} has a case: its row can go"),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let run = installed.keys().filter(|n| cases.contains(*n)).count();
    let count = |kind: &str| {
        let rows = rows.iter().filter(|(name, _)| !cases.contains(*name));
        rows.filter(|(_, r)| r.kind == kind).count()
    };
    let reasons: Vec<_> = KINDS
        .iter()
        .map(|(k, _)| format!("{} {k}", count(k)))
        .collect();
    println!(
        "{run} of {} examples have a case; {}",
        installed.len(),
        reasons.join(", ")
    );
}

#[test]
fn refused_examples_give_their_message() {
    let installed = installed();
    let mut wrong = Vec::new();
    for (name, row) in rows().iter().filter(|(_, r)| r.kind == "refused") {
        let Some(path) = installed.get(name) else {
            continue;
        };
        let out = Command::new(env!("CARGO_BIN_EXE_spile"))
            .args(["-g", "-p2"])
            .arg(path)
            .stdin(Stdio::null())
            .output()
            .expect("spile runs");
        let said = String::from_utf8_lossy(&out.stderr);
        if out.status.success() || !said.contains(&row.text) {
            wrong.push(format!("{name}: not refused by {:?}:\n{said}", row.text));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
