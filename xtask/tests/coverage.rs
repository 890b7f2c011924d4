//! The tables of `docs/language-coverage.md` with tests by name: every named test exists and compares something, and no
//! keyword, option or limit is missing. `crates/sema/tests/tapset/constructs.rs` measures the rest.

use std::collections::BTreeSet;

use spile_testing::files::{self, below, root};

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// A row of the table: its section, the construct, the tests.
struct Row {
    section: String,
    construct: String,
    tests: Vec<String>,
}

fn rows() -> Vec<Row> {
    let mut section = String::new();
    let mut rows = Vec::new();
    let text = read("docs/language-coverage.md");
    let (by_name, _) = text.split_once("\n## Measured\n").expect("a measured part");
    for line in by_name.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title.to_owned();
        }
        let Some(cells) = line.strip_prefix("| ").and_then(|l| l.strip_suffix(" |")) else {
            continue;
        };
        let Some((construct, tests)) = cells.rsplit_once(" | ") else {
            continue;
        };
        if construct == "construct" {
            continue;
        }
        let tests = tests
            .split(';')
            .map(|t| t.trim().trim_matches('`').to_owned());
        rows.push(Row {
            section: section.clone(),
            construct: construct.to_owned(),
            tests: tests.collect(),
        });
    }
    rows
}

/// What a case compares.
const COMPARES: [&str; 8] = [
    "stdout",
    "stdout_has",
    "stdout_lacks",
    "stderr_has",
    "stderr_lacks",
    "scrape",
    "status",
    "lines",
];

/// The cases that compare something, as `file::case`.
fn cases() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (stem, list) in files::cases::<toml::Table>() {
        let compare = |case: &&toml::Table| COMPARES.iter().any(|c| case.contains_key(*c));
        let own = list
            .iter()
            .filter(compare)
            .filter_map(|c| c["name"].as_str());
        names.extend(own.map(|name| format!("{stem}::{name}")));
    }
    names
}

/// `crate::function`, a test of that crate.
fn exists(test: &str) -> bool {
    let Some((location, name)) = test.split_once("::") else {
        return false;
    };
    let folders = ["src", "tests"].map(|part| root().join("crates").join(location).join(part));
    let files = folders.iter().flat_map(|folder| below(folder, &["rs"]));
    let text: String = files.flat_map(std::fs::read_to_string).collect();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_name && text.contains(&format!("fn {name}("))
}

#[test]
fn every_named_test_is_there() {
    let rows = rows();
    assert!(rows.len() > 150, "the table cannot be read");
    let names: BTreeSet<_> = rows.iter().map(|r| (&r.section, &r.construct)).collect();
    assert_eq!(rows.len(), names.len(), "a construct stands twice");
    let cases = cases();
    let mut missing = String::new();
    for row in &rows {
        for test in row
            .tests
            .iter()
            .filter(|t| !cases.contains(*t) && !exists(t))
        {
            missing.push_str(&format!("{}: {}: {test}\n", row.section, row.construct));
        }
    }
    assert!(
        missing.is_empty(),
        "no such test, or it compares nothing:\n{missing}"
    );
}

/// The quoted words after `from` up to `to`.
fn quoted(text: &str, from: &str, to: &str) -> Vec<String> {
    let part = text.split_once(from).map_or("", |(_, rest)| rest);
    let part = part.split_once(to).map_or("", |(part, _)| part);
    part.split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

#[test]
fn keywords_options_and_limits_are_in_the_table() {
    let doc = read("docs/language-coverage.md");
    let keywords = quoted(
        &read("crates/syntax/src/token.rs"),
        "    keywords {\n",
        "    }",
    );
    let limits = quoted(&read("crates/sema/src/analyse.rs"), "let limits = [", "]");
    let cli = read("crates/spile/src/cli.rs");
    let mut options = Vec::new();
    for line in cli
        .lines()
        .map(str::trim)
        .filter(|l| l.starts_with("#[arg("))
    {
        if let Some((_, rest)) = line.split_once("short = '") {
            options.push(format!("-{}", &rest[..1]));
        }
    }
    assert!(keywords.len() > 15 && limits.len() > 5 && options.len() > 20);
    let wanted = keywords.into_iter().chain(limits).chain(options);
    let missing: Vec<_> = wanted.filter(|w| !doc.contains(&format!("`{w}"))).collect();
    assert!(missing.is_empty(), "not in the table: {missing:?}");
}
