//! The reference of the library, `docs/library`: a page for each file of `tapset/`, made of the
//! comments in it, and an index. `BLESS=1 cargo test -p spile-sema --test tapset reference` (or
//! `cargo xtask reference`) writes it anew.
//!
//! The examples are end-to-end cases: that of `tests/cases/reference.toml` with the page's name, or
//! the shortest script of a case that compares a name of the page.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::LazyLock;

use serde::Deserialize;
use spile_sema::probe::list;
use spile_syntax::ast::{Alias, GlobalVar};
use spile_syntax::parser::{doc_comment, parse_probe_points};
use spile_syntax::pretty;
use spile_testing::files::root;

use super::coverage::{Coverage, Name, of_scripts};
use super::*;

/// Maximum number of lines of an example from another test.
const MAX_LINES: usize = 12;

/// A public name of the library.
struct Entry {
    name: String,
    /// `function`, `alias` and so on.
    kind: &'static str,
    /// What the heading leads to: code, comment, further paragraphs.
    text: String,
    documented: bool,
}

/// A page: the file's name without its ending, what it is about, its names.
struct Page {
    stem: String,
    about: String,
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    script: Option<String>,
    stdout: Option<String>,
}

/// The lines of a comment as one paragraph.
fn paragraph(doc: &str) -> String {
    doc.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The first comment of a file, if a blank line separates it from what follows.
fn about(text: &str) -> Option<String> {
    let lines = text.lines().take_while(|l| l.starts_with("//"));
    let doc: Vec<&str> = lines.map(|l| l.trim_start_matches('/').trim()).collect();
    let blank = text.lines().nth(doc.len()).is_none_or(str::is_empty);
    (blank && !doc.is_empty()).then(|| doc.join(" "))
}

/// The comment of an item that may be one of several on lines below one comment.
fn shared_comment(text: &str, at: usize, start: &str) -> Option<String> {
    let mut at = text[..at].rfind('\n').map_or(0, |n| n + 1);
    loop {
        if let Some(doc) = doc_comment(text, at) {
            return Some(doc);
        }
        let before = text[..at.checked_sub(1)?].rfind('\n').map_or(0, |n| n + 1);
        if !text[before..at].starts_with(start) {
            return None;
        }
        at = before;
    }
}

/// Which handlers can call a function.
fn callers(found: &[(&'static str, Option<String>); 4]) -> String {
    let names = [
        "handlers of the controller",
        "at system calls",
        "at tracepoints",
        "at functions of programs",
    ];
    let runs: Vec<bool> = found.iter().map(|(_, refused)| refused.is_none()).collect();
    match runs[..] {
        [true, true, true, true] => "all handlers".into(),
        [false, true, true, true] => "kernel handlers".into(),
        [true, false, false, false] => "handlers of the controller".into(),
        _ => {
            let kernel = (names.iter().zip(&runs).skip(1)).filter(|(_, runs)| **runs);
            let kernel: Vec<&str> = kernel.map(|(name, _)| *name).collect();
            let first = if runs[0] {
                "handlers of the controller; "
            } else {
                ""
            };
            format!("{first}kernel handlers {}", kernel.join(" and "))
        }
    }
}

fn function(parsed: &Parsed, facts: &FakeMachine, f: &Function) -> Entry {
    let call = sample_call(f);
    let found = POINTS.map(|point| {
        let script = format!("probe {point} {{ {call} }}");
        (point, run(parsed, facts, &script).err())
    });
    let doc = f.doc.as_deref().map(paragraph);
    let ty = |t: &Option<TypeName>| match t {
        Some(TypeName::Long) => ":long",
        Some(TypeName::String) => ":string",
        None => "",
    };
    let params: Vec<String> =
        (f.params.iter().map(|(n, t)| format!("{}{}", n.name, ty(t)))).collect();
    Entry {
        name: f.name.name.to_string(),
        kind: "function",
        text: format!(
            "```systemtap\nfunction {}{}({})\n```\n\n{}\n\nCalled in: {}.\n",
            f.name.name,
            ty(&f.ret),
            params.join(", "),
            doc.as_deref().unwrap_or_default(),
            callers(&found)
        ),
        documented: doc.is_some(),
    }
}

fn alias(parsed: &Parsed, facts: &FakeMachine, a: &Alias, name: String) -> Entry {
    let (mut sources, mut diags) = (parsed.sources.clone(), Diagnostics::new());
    let points = parse_probe_points(&mut sources, "<page>", &name, &mut diags);
    let listed = list::list(&parsed.library, facts, &points, false, &mut diags);
    let mut variables: BTreeMap<String, &str> = BTreeMap::new();
    for point in listed {
        variables.extend(point.vars.into_iter().filter(|(v, _)| !v.starts_with("__")));
    }
    let doc = a.doc.as_deref().map(paragraph);
    let over: Vec<String> = a.points.iter().map(pretty::probe_point).collect();
    // A helper's name tells a reader nothing.
    let over: Vec<&String> = over.iter().filter(|p| !p.starts_with("__")).collect();
    let mut text = format!(
        "```systemtap\nprobe {name}\n```\n\n{}\n",
        doc.as_deref().unwrap_or_default()
    );
    if !variables.is_empty() {
        let each: Vec<String> = variables
            .iter()
            .map(|(v, ty)| format!("`{v}` ({ty})"))
            .collect();
        let _ = write!(text, "\nVariables: {}.\n", each.join(", "));
    }
    if !over.is_empty() {
        let each: Vec<String> = over.iter().map(|p| format!("`{p}`")).collect();
        let _ = write!(text, "\nIt stands for {}.\n", each.join(", "));
    }
    Entry {
        name,
        kind: "probe alias",
        text,
        documented: doc.is_some(),
    }
}

fn global(text: &str, var: &GlobalVar) -> Entry {
    let doc = shared_comment(text, var.name.span.start as usize, "global").map(|d| paragraph(&d));
    let value = var
        .init
        .as_ref()
        .map(|l| format!(" = {}", pretty::literal(l)));
    Entry {
        name: var.name.name.to_string(),
        kind: "global",
        text: format!(
            "```systemtap\nglobal {}{}\n```\n\n{}\n",
            var.name.name,
            value.unwrap_or_default(),
            doc.as_deref().unwrap_or_default()
        ),
        documented: doc.is_some(),
    }
}

/// The macros of a file of macros, which have no syntax tree.
fn macros_of(text: &str) -> Vec<Entry> {
    let mut found = Vec::new();
    for (at, _) in text
        .match_indices("@define ")
        .filter(|(at, _)| *at == 0 || text[..*at].ends_with('\n'))
    {
        let head = text[at + 8..].split("%(").next().unwrap_or_default().trim();
        let name = head.split('(').next().unwrap_or_default();
        if name.starts_with("__") {
            continue;
        }
        let doc = shared_comment(text, at, "@define").map(|d| paragraph(&d));
        found.push(Entry {
            name: name.to_owned(),
            kind: "macro",
            text: format!(
                "```systemtap\n@{head}\n```\n\n{}\n",
                doc.as_deref().unwrap_or_default()
            ),
            documented: doc.is_some(),
        });
    }
    found
}

static PAGES: LazyLock<Vec<Page>> = LazyLock::new(pages);

fn pages() -> Vec<Page> {
    let files = files();
    let (facts, parsed) = (machine(&files), parsed(&files));
    let mut pages: BTreeMap<String, Page> = BTreeMap::new();
    for (name, text) in files.iter().filter(|(n, _)| n != "limits.stpm") {
        let Some((stem, end)) = name.split_once(".stp") else {
            continue;
        };
        // Files that differ in a number are one page.
        let stem = stem.trim_end_matches(|c: char| c.is_ascii_digit());
        let page = pages.entry(stem.to_owned()).or_insert_with(|| Page {
            stem: stem.to_owned(),
            about: String::new(),
            entries: Vec::new(),
        });
        if page.about.is_empty() {
            page.about = about(text).unwrap_or_default();
        }
        match end {
            "" => page.entries.extend(entries(&parsed, &facts, name, text)),
            _ => page.entries.extend(macros_of(text)),
        }
    }
    pages
        .into_values()
        .filter(|p| !p.entries.is_empty())
        .collect()
}

/// The public names of a file of scripts.
fn entries(parsed: &Parsed, facts: &FakeMachine, name: &str, text: &str) -> Vec<Entry> {
    let (mut sources, mut diags) = (parsed.sources.clone(), Diagnostics::new());
    let id = sources.add_built_in(name, text.to_owned().into_bytes());
    let file = parse_file(&mut sources, id, &environment(), &parsed.macros, &mut diags);
    let public = |n: &str| !n.starts_with("__");
    let mut found = Vec::new();
    for item in &file.items {
        match item {
            Item::Function(f) if !f.private && public(&f.name.name) => {
                found.push(function(parsed, facts, f));
            }
            Item::Global(g) if !g.private => {
                let vars = g.vars.iter().filter(|v| public(&v.name.name));
                found.extend(vars.map(|v| global(text, v)));
            }
            Item::Alias(a) => {
                let names = a
                    .names
                    .iter()
                    .map(pretty::probe_point)
                    .filter(|n| public(n));
                found.extend(names.map(|n| alias(parsed, facts, a, n)));
            }
            _ => {}
        }
    }
    found
}

/// The cases with scripts, by file and name.
fn cases() -> BTreeMap<String, Case> {
    let named = |(stem, cases): (String, Vec<Case>)| {
        let scripts = cases.into_iter().filter(|c| c.script.is_some());
        scripts.map(move |c| (format!("{stem}::{}", c.name), c))
    };
    spile_testing::files::cases()
        .into_iter()
        .flat_map(named)
        .collect()
}

/// The example of a page.
fn example(page: &Page, cases: &BTreeMap<String, Case>, coverage: &Coverage) -> Option<String> {
    let own = format!("reference::{}", page.stem);
    let of_page = |(_, name): &Name| {
        let name = name.split('/').next();
        page.entries.iter().any(|e| name == Some(&e.name))
    };
    let of_page = coverage.iter().filter(|(name, _)| of_page(name));
    // A function shows more than a constant.
    let keys =
        of_page.flat_map(|((kind, _), keys)| keys.iter().map(move |k| (*kind == "global", k)));
    let mut of_tests: Vec<(bool, &String)> = keys
        .filter(|(_, key)| {
            let script = cases.get(*key).and_then(|c| c.script.as_ref());
            script.is_some_and(|s| s.lines().count() <= MAX_LINES)
        })
        .collect();
    of_tests.sort_by_key(|(constant, key)| {
        (
            *constant,
            cases[*key].stdout.is_none(),
            cases[*key].script.as_ref().map(String::len),
            *key,
        )
    });
    let key = cases
        .get_key_value(&own)
        .map(|(k, _)| k)
        .or(of_tests.first().map(|(_, key)| *key))?;
    let case = &cases[key];
    let script = case.script.as_deref()?.trim();
    let mut text = format!(
        "\n## Example\n\nThe test `{key}` runs this script:\n\n```systemtap\n{script}\n```\n"
    );
    if let Some(out) = case.stdout.as_deref().filter(|o| !o.trim().is_empty()) {
        let _ = write!(text, "\nIt prints:\n\n```text\n{}\n```\n", out.trim_end());
    }
    Some(text)
}

/// A text that Markdown does not read as markup.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    let mut in_code = false;
    for c in text.chars() {
        in_code ^= c == '`';
        if !in_code && "*<>[]|".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

const MADE: &str =
    "<!-- Written by `cargo xtask reference` from the comments in tapset/: change these. -->\n";

/// The files of the reference, by name.
fn reference() -> BTreeMap<String, String> {
    let cases = cases();
    let coverage = of_scripts();
    let mut files = BTreeMap::new();
    let mut index: BTreeMap<String, (String, &str)> = BTreeMap::new();
    let mut families = String::new();
    for page in &*PAGES {
        let mut text = format!("# {}\n\n{MADE}\n{}\n", page.stem, escaped(&page.about));
        let mut last = "";
        for e in &page.entries {
            if e.name != last {
                let _ = write!(text, "\n## {}\n\n", escaped(&e.name));
            } else {
                text.push('\n');
            }
            last = &e.name;
            text.push_str(&prose_escaped(&e.text));
            index.insert(e.name.clone(), (page.stem.clone(), e.kind));
        }
        text.push_str(&example(page, &cases, &coverage).unwrap_or_default());
        let n = page.entries.len();
        let about = escaped(&page.about);
        let _ = writeln!(families, "| [{0}]({0}.md) | {n} | {about} |", page.stem);
        files.insert(format!("{}.md", page.stem), text);
    }
    let mut names = String::new();
    for (name, (stem, kind)) in &index {
        let anchor: String = (name.to_lowercase().chars())
            .filter(|c| c.is_alphanumeric() || "_-".contains(*c))
            .collect();
        let _ = writeln!(names, "- [{}]({stem}.md#{anchor}) {kind}", escaped(name));
    }
    let head = format!(
        "# The library\n\n{MADE}\nFunctions, probe aliases, macros and globals that every script can use. Names, arguments, \
         types and units are SystemTap's. System calls (`spile -L 'syscall.*'`) and probe points \
         (`spile --dump-probe-types`) are built in.\n\n## Families\n\n| page | names | about |\n|---|---|---|\n"
    );
    let readme = format!("{head}{families}\n## All names\n\n{names}");
    files.insert("README.md".into(), readme);
    files
}

/// Escapes outside of blocks of code.
fn prose_escaped(text: &str) -> String {
    let mut in_block = false;
    let mut out = String::new();
    for line in text.lines() {
        let fence = line.starts_with("```");
        in_block ^= fence;
        match in_block || fence {
            true => out.push_str(line),
            false => out.push_str(&escaped(line)),
        }
        out.push('\n');
    }
    out
}

#[test]
fn reference_is_current() {
    let dir = root().join("docs/library");
    let files = reference();
    let bless = std::env::var_os("BLESS").is_some();
    if bless {
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        for (name, text) in &files {
            std::fs::write(dir.join(name), text).unwrap();
        }
    }
    let there = std::fs::read_dir(&dir).unwrap().count();
    let differ = |(name, text): &(&String, &String)| {
        std::fs::read_to_string(dir.join(name)).ok().as_ref() != Some(*text)
    };
    let old: Vec<&String> = files.iter().filter(differ).map(|(n, _)| n).collect();
    assert!(
        old.is_empty() && there == files.len(),
        "not as the library's comments say: {old:?}; run `cargo xtask reference`"
    );
}

#[test]
fn every_public_name_and_family_has_a_comment() {
    let mut bad = Vec::new();
    for page in &*PAGES {
        if page.about.is_empty() {
            bad.push(format!(
                "tapset/{}.stp begins with no comment of its own",
                page.stem
            ));
        }
        let without = page.entries.iter().filter(|e| !e.documented);
        bad.extend(without.map(|e| format!("{}: {} {}", page.stem, e.kind, e.name)));
    }
    assert!(bad.is_empty(), "without a comment:\n{}", bad.join("\n"));
}
