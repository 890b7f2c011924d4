//! Order in the tree: every source file has a header and a bounded length, every `unsafe` has its
//! reason, and the documents name only files that exist.

use std::path::{Path, PathBuf};

use spile_testing::files::root;

/// Maximum length of a source file in lines.
const MAX_LINES: usize = 800;

fn walk(dir: &Path, ends: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("readable").flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.starts_with('.') && !name.starts_with("target") {
                walk(&path, ends, found);
            }
        } else if name.ends_with(ends) {
            found.push(path);
        }
    }
}

fn files(ends: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    walk(&root(), ends, &mut found);
    found.sort();
    found
        .into_iter()
        .map(|p| (p.clone(), std::fs::read_to_string(p).expect("text")))
        .collect()
}

fn report(what: &str, bad: &[String]) {
    assert!(bad.is_empty(), "{what}:\n{}", bad.join("\n"));
}

#[test]
fn every_source_file_has_a_header() {
    let bad: Vec<_> = files(".rs")
        .iter()
        .filter(|(_, t)| !t.lines().take(5).any(|l| l.starts_with("//!")))
        .map(|(p, _)| p.display().to_string())
        .collect();
    report("no //! header", &bad);
}

#[test]
fn no_source_file_is_too_long() {
    let bad: Vec<_> = files(".rs")
        .iter()
        .filter(|(_, t)| t.lines().count() > MAX_LINES)
        .map(|(p, t)| format!("{}: {} lines", p.display(), t.lines().count()))
        .collect();
    report("too long", &bad);
}

#[test]
fn no_file_has_marks_of_a_conflict() {
    let mut bad = Vec::new();
    for ends in [".rs", ".md", ".toml", ".stp", ".tsv", ".c", ".py", ".1"] {
        for (path, text) in files(ends) {
            for (i, line) in text.lines().enumerate() {
                if line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ") {
                    bad.push(format!("{}:{}", path.display(), i + 1));
                }
            }
        }
    }
    report("left by a merge", &bad);
}

#[test]
fn every_unsafe_has_its_reason() {
    let mut bad = Vec::new();
    for (path, text) in files(".rs") {
        let lines: Vec<_> = text.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            let opens = ["unsafe {", "unsafe impl"].iter().any(|u| code.contains(u));
            let quoted = code.contains("\"unsafe");
            let reason = lines[i.saturating_sub(4)..=i]
                .iter()
                .any(|l| l.contains("SAFETY"));
            if opens && !quoted && !reason {
                bad.push(format!("{}:{}", path.display(), i + 1));
            }
        }
    }
    report("unsafe without SAFETY", &bad);
}

#[test]
fn documents_name_files_that_exist() {
    let tops = [
        "crates/",
        "docs/",
        "tapset/",
        "tests/",
        "xtask/",
        "examples/",
        ".ci/",
    ];
    let mut bad = Vec::new();
    for (path, text) in files(".md") {
        for quoted in text.split('`').skip(1).step_by(2) {
            let is_path = tops.iter().any(|t| quoted.starts_with(t))
                && !quoted.contains([' ', '*', '\n', '<', '…']);
            let file = quoted.split(':').next().unwrap_or(quoted);
            if is_path && !root().join(file).exists() {
                bad.push(format!("{}: {quoted}", path.display()));
            }
        }
        for link in text.split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap_or("");
            let local = !target.is_empty() && !target.contains("://");
            if local && !path.parent().expect("a folder").join(target).exists() {
                bad.push(format!("{}: link to {target}", path.display()));
            }
        }
    }
    report("not there", &bad);
}

/// Sections of manifests that name libraries, and what marks them in the document.
const SECTIONS: [(&str, &str); 3] = [
    ("[dependencies]", ""),
    ("[dev-dependencies]", " (tests)"),
    ("[build-dependencies]", " (build)"),
];

/// The libraries that a manifest names, without our own crates.
fn libraries(manifest: &str, section: &str) -> Vec<String> {
    let lines = manifest.lines().skip_while(|l| *l != section).skip(1);
    lines
        .take_while(|l| !l.starts_with('['))
        .filter_map(|l| l.split_once([' ', '.', '=']))
        .map(|(name, _)| name.to_owned())
        .filter(|name| !name.is_empty() && name != "#" && !name.starts_with("spile-"))
        .collect()
}

#[test]
fn every_library_has_its_reason() {
    let text = std::fs::read_to_string(root().join("docs/dependencies.md")).expect("text");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|l| l.starts_with("| `"))
        .map(|l| l.split('|').map(str::trim).collect())
        .collect();
    let mut wanted = Vec::new();
    let dirs = std::fs::read_dir(root().join("crates")).expect("crates");
    let mut dirs: Vec<_> = dirs.flatten().map(|e| e.path()).collect();
    let others = [
        "xtask",
        "tests/bench",
        "tests/guests",
        "tests/machine",
        "tests/testing",
        "tests/testing-macros",
        "tests/workloads",
    ];
    dirs.extend(others.map(|d| root().join(d)));
    for dir in dirs {
        let name = dir
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let manifest = std::fs::read_to_string(dir.join("Cargo.toml")).expect("a manifest");
        let mut seen = Vec::new();
        for (section, mark) in SECTIONS {
            for library in libraries(&manifest, section) {
                if !seen.contains(&library) {
                    wanted.push((format!("`{library}`"), format!("{name}{mark}")));
                    seen.push(library);
                }
            }
        }
    }
    let named = |(library, user): &(String, String)| {
        rows.iter()
            .any(|r| r[1] == library && r[2].split(", ").any(|u| u == user))
    };
    let missing: Vec<_> = wanted
        .iter()
        .filter(|w| !named(w))
        .map(|(l, u)| format!("{l}, used by {u}"))
        .collect();
    report("not in docs/dependencies.md", &missing);
    let mut gone = Vec::new();
    for row in &rows {
        for user in row[2].split(", ") {
            if !wanted.iter().any(|(l, u)| l == row[1] && u == user) {
                gone.push(format!("{}, used by {user}", row[1]));
            }
        }
    }
    report("in docs/dependencies.md and not used", &gone);
}

#[test]
fn every_example_says_what_it_is_for_and_runs_in_a_case() {
    let mut cases = String::new();
    for (_, text) in files(".toml") {
        cases.push_str(&text);
    }
    let mut bad = Vec::new();
    let mut count = 0;
    for (path, text) in files(".stp") {
        if path.parent().and_then(Path::file_name) != Some("examples".as_ref()) {
            continue;
        }
        count += 1;
        let name = path.file_name().expect("a name").to_string_lossy();
        let mut lines = text.lines();
        if lines.next() != Some("#! /usr/bin/env spile") {
            bad.push(format!(
                "{name}: begins with another line than `#! /usr/bin/env spile`"
            ));
        }
        let says: String = lines.take_while(|l| l.starts_with("# ")).collect();
        if !says.contains(&format!("`spile examples/{name}")) {
            bad.push(format!("{name}: does not say how to run it"));
        }
        if !cases.contains(&format!("file = \"examples/{name}\"")) {
            bad.push(format!("{name}: no case in tests/cases runs it"));
        }
    }
    report("examples", &bad);
    assert!(count >= 10, "only {count} examples");
}

/// The options in a source file of clap's: `-x` and `--name`.
fn options(source: &str) -> Vec<String> {
    let lines: Vec<_> = source.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for (i, line) in lines
        .iter()
        .enumerate()
        .filter(|(_, l)| l.starts_with("#[arg("))
    {
        if let Some((_, rest)) = line.split_once("short = '") {
            found.extend(rest.chars().next().map(|c| format!("Fl {c}")));
        }
        if let Some((_, rest)) = line.split_once("long = \"") {
            found.extend(rest.split('"').next().map(|name| format!("Fl -{name}")));
        } else if line.contains("(long") {
            let field = lines[i + 1..].iter().find_map(|l| l.strip_prefix("pub "));
            let name = field.and_then(|f| f.split(':').next()).unwrap_or_default();
            found.push(format!("Fl -{}", name.replace('_', "-")));
        }
    }
    found
}

#[test]
fn the_manual_page_has_every_option() {
    let source = std::fs::read_to_string(root().join("crates/spile/src/cli.rs")).expect("text");
    let page = std::fs::read_to_string(root().join("docs/spile.1")).expect("text");
    let described: Vec<_> = page.lines().filter(|l| l.starts_with(".It Fl ")).collect();
    let options = options(&source);
    assert!(options.len() > 20, "{options:?}");
    let bad: Vec<_> = options
        .into_iter()
        .filter(|o| {
            !described.iter().any(|l| {
                l.split(" , ").any(|f| {
                    let f = f.trim_start_matches(".It ");
                    f == o || f.starts_with(&format!("{o} "))
                })
            })
        })
        .collect();
    report("not in docs/spile.1", &bad);
}

/// A test program needs either `spile_testing::main!` or Rust's own harness; the wrong combination
/// would silently leave its tests out.
#[test]
fn tests_that_can_be_skipped_are_run() {
    let mut bad = Vec::new();
    for (path, text) in files(".rs") {
        if !text.contains("\nspile_testing::main!();") {
            continue;
        }
        let parts: Vec<_> = path.iter().map(|p| p.to_string_lossy()).collect();
        let Some(at) = parts.iter().rposition(|p| *p == "tests" || *p == "src") else {
            continue;
        };
        let top: PathBuf = parts[..at].iter().map(|p| &**p).collect();
        let manifest = std::fs::read_to_string(top.join("Cargo.toml")).expect("a manifest");
        let wanted = match &*parts[at] {
            "src" => "[lib]".to_owned(),
            _ => format!("name = \"{}\"", parts[at + 1].trim_end_matches(".rs")),
        };
        let section = manifest.split("\n\n").find(|s| {
            s.lines().any(|l| l == wanted) && (wanted == "[lib]" || s.contains("[[test]]"))
        });
        if !section.is_some_and(|s| s.contains("harness = false")) {
            bad.push(format!("{}: no `harness = false`", path.display()));
        }
        if !text.contains("#[macro_use]\nextern crate spile_testing;") {
            bad.push(format!(
                "{}: no `#[macro_use] extern crate spile_testing;`",
                path.display()
            ));
        }
    }
    report("tests that would not run", &bad);
    let marks = [
        "println!(\"skip",
        "println!(\"left out",
        "println!(\"not run",
    ];
    let silent = files(".rs")
        .into_iter()
        .filter(|(path, _)| !path.ends_with("tidy.rs"));
    let silent: Vec<_> = silent
        .filter(|(path, _)| !path.components().any(|c| c.as_os_str() == "testing"))
        .filter(|(_, text)| marks.iter().any(|m| text.contains(m)))
        .map(|(path, _)| path.display().to_string())
        .collect();
    report("`spile_testing::skip` says that a test is skipped", &silent);
}
