//! The table of `docs/language-coverage.md`: every construct of the language has a named test,
//! every named test exists, and no construct in `tests/constructs.txt`, keyword, option or limit is
//! missing.

use std::collections::BTreeSet;

use spile_testing::files::{below, root};

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
    for line in read("docs/language-coverage.md").lines() {
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

/// `file::case` of `tests/cases/file.toml`, or `crate::function`, a test of that crate.
fn exists(test: &str) -> bool {
    let Some((location, name)) = test.split_once("::") else {
        return false;
    };
    let cases = root().join("tests/cases").join(format!("{location}.toml"));
    let cases = std::fs::read_to_string(cases).unwrap_or_default();
    let quoted = [format!("name = \"{name}\""), format!("name = '{name}'")];
    if cases.lines().any(|l| quoted.iter().any(|q| l.trim() == q)) {
        return true;
    }
    let folders = ["src", "tests"].map(|part| root().join("crates").join(location).join(part));
    let files = folders.iter().flat_map(|folder| below(folder, &["rs"]));
    let text: String = files.flat_map(std::fs::read_to_string).collect();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_name && text.contains(&format!("fn {name}("))
}

#[test]
fn every_named_test_is_there() {
    let rows = rows();
    assert!(rows.len() > 200, "the table cannot be read");
    let mut missing = String::new();
    for row in &rows {
        for test in row.tests.iter().filter(|t| !exists(t)) {
            missing.push_str(&format!("{}: {}: {test}\n", row.section, row.construct));
        }
    }
    assert!(missing.is_empty(), "no such test:\n{missing}");
}

#[test]
fn every_construct_is_in_the_table() {
    let name = |section: &str, construct: &str| format!("{section}: {construct}");
    let listed: Vec<String> = read("tests/constructs.txt")
        .lines()
        .map(str::to_owned)
        .collect();
    let listed: BTreeSet<String> = listed.into_iter().filter(|l| !l.starts_with('#')).collect();
    let rows = rows();
    let table: BTreeSet<_> = rows
        .iter()
        .map(|r| name(&r.section, &r.construct))
        .collect();
    let missing: Vec<_> = listed.difference(&table).collect();
    let unknown: Vec<_> = table.difference(&listed).collect();
    assert!(missing.is_empty(), "not in the table: {missing:#?}");
    assert!(
        unknown.is_empty(),
        "not in tests/constructs.txt: {unknown:#?}"
    );
    assert_eq!(rows.len(), table.len(), "a construct stands twice");
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
