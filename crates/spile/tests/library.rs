//! The table `tests/library.tsv`: how each public name of the library was checked against what
//! SystemTap means by it. Each name has a row, each row has an existing name, and the test that a
//! row names exists and contains the name.
//!
//! A line is `kind <tab> name <tab> expected <tab> place`:
//!
//! - kind and name: `function name/parameters`, `global name`, `macro name`, `alias name`,
//!   `variable alias variable`;
//! - expected: the source of the value that the test expects, see [`SOURCES`];
//! - place: `case FILE::NAME` of `tests/cases`, or `test PATH::FUNCTION` of Rust.
//!
//! The variables of system calls have tables of their own, `tests/syscalls.tsv` and, for 32-bit programs,
//! `tests/syscalls-32.tsv`, which say what they hold.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use spile_ir::NrSet;
use spile_syntax::ast::{Expr, ExprKind, Item, ProbePoint, StmtBlock};
use spile_syntax::diag::Diagnostics;
use spile_syntax::parser::{parse_file, parse_macros};
use spile_syntax::preproc::{MacroLibrary, PreprocEnv};
use spile_syntax::source::Sources;
use spile_syntax::visit::{Visitor, walk_expr};
use spile_syscalls::{ArgForm, Syscall};

/// Where an expected value can come from.
const SOURCES: &[(&str, &str)] = &[
    (
        "definition",
        "fixed by what the name means, written by hand",
    ),
    (
        "workload",
        "what the program did that was probed, or says of itself",
    ),
    ("python", "computed by Python"),
    ("c", "computed by C, or by the C library"),
    ("proc", "read from /proc or /sys"),
    ("tool", "said by another program, such as ps, gdb, readelf"),
    (
        "never",
        "no kernel that spile runs on reports the event, which the test shows",
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Files of a folder whose names have that ending, with their texts, in order.
fn files(dir: &str, end: &str) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = std::fs::read_dir(root().join(dir))
        .unwrap_or_else(|e| panic!("{dir}: {e}"))
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(end))
        .map(|name| (name.clone(), read(&format!("{dir}/{name}"))))
        .collect();
    files.sort();
    files
}

/// The variables that a block assigns to.
#[derive(Default)]
struct Assigned(BTreeSet<String>);

impl Visitor for Assigned {
    fn expr(&mut self, e: &Expr) {
        if let ExprKind::Assign { lhs, .. } = &e.kind
            && let ExprKind::Var(name) = &lhs.kind
        {
            self.0.insert(name.to_string());
        }
        walk_expr(self, e);
    }
}

fn assigned(blocks: &[&StmtBlock]) -> BTreeSet<String> {
    let mut found = Assigned::default();
    for b in blocks {
        found.block(b);
    }
    found.0
}

/// The items of the library's files, and the names of its macros.
fn library() -> (Vec<Item>, Vec<String>) {
    let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
    let environment = PreprocEnv::new("6.12.0", "x86_64");
    let limits = "@define MAXSTRINGLEN %( 512 %)\n@define MAXBACKTRACE %( 20 %)\n";
    let id = sources.add_built_in("limits.stpm", limits.as_bytes().to_vec());
    let mut macros: MacroLibrary = parse_macros(&mut sources, id, &environment, &mut diags);
    let (mut items, mut macro_names) = (Vec::new(), Vec::new());
    for (file, text) in files("tapset", ".stpm") {
        let id = sources.add_built_in(file.as_str(), text.into_bytes());
        let found = parse_macros(&mut sources, id, &environment, &mut diags);
        macro_names.extend(found.names().map(str::to_owned));
        macros.extend(found);
    }
    for (file, text) in files("tapset", ".stp") {
        let id = sources.add_built_in(file.as_str(), text.into_bytes());
        items.extend(parse_file(&mut sources, id, &environment, &macros, &mut diags).items);
    }
    assert!(diags.is_empty(), "{}", diags.render(&sources, false));
    (items, macro_names)
}

/// The public names of the library: kind and name, as in the table.
fn names() -> BTreeSet<(String, String)> {
    let (items, macros) = library();
    let macros = macros.into_iter().map(|name| ("macro".to_owned(), name));
    let mut names: BTreeSet<(String, String)> = macros.collect();
    for item in items {
        add_item(&mut names, item);
    }
    names.retain(|(_, name)| !name.split(' ').any(|word| word.starts_with("__")));
    names
}

/// The components of a point, joined by dots.
fn dotted(point: &ProbePoint) -> String {
    let parts: Vec<&str> = point.components.iter().map(|c| &*c.name).collect();
    parts.join(".")
}

/// The variables of each alias, with those of the aliases that it is over.
fn alias_variables() -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, (BTreeSet<String>, Vec<String>)> = BTreeMap::new();
    for item in library().0 {
        let Item::Alias(a) = item else { continue };
        let blocks: Vec<&StmtBlock> = std::iter::once(&a.body).chain(&a.second).collect();
        let below: Vec<String> = a.points.iter().map(dotted).collect();
        for point in &a.names {
            all.insert(dotted(point), (assigned(&blocks), below.clone()));
        }
    }
    let collect = |alias: &String| {
        let (mut found, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut todo = vec![alias.clone()];
        while let Some(name) = todo.pop() {
            if name.starts_with("syscall.") {
                found.extend(["name", "argstr", "retstr"].map(str::to_owned));
            }
            if let Some((own, below)) = all.get(&name).filter(|_| seen.insert(name.clone())) {
                found.extend(own.iter().cloned());
                todo.extend(below.iter().cloned());
            }
        }
        (alias.clone(), found)
    };
    all.keys().map(collect).collect()
}

fn add_item(names: &mut BTreeSet<(String, String)>, item: Item) {
    let mut add = |kind: &str, name: String| {
        names.insert((kind.to_owned(), name));
    };
    match item {
        Item::Function(f) if !f.private => {
            add("function", format!("{}/{}", f.name.name, f.params.len()));
        }
        Item::Global(g) if !g.private => {
            for var in g.vars {
                add("global", var.name.name.to_string());
            }
        }
        Item::Alias(a) => {
            let blocks: Vec<&StmtBlock> = std::iter::once(&a.body).chain(&a.second).collect();
            let variables = assigned(&blocks);
            for point in &a.names {
                let alias = dotted(point);
                for variable in &variables {
                    add("variable", format!("{alias} {variable}"));
                }
                add("alias", alias);
            }
        }
        _ => {}
    }
}

/// A row of the table.
struct Row {
    kind: String,
    name: String,
    expected: String,
    place: String,
}

fn rows() -> Vec<Row> {
    let line = |text: &str| {
        let cells: Vec<&str> = text.split('\t').collect();
        let [kind, name, expected, place] = cells[..] else {
            panic!("tests/library.tsv: not four cells: {text:?}");
        };
        let owned = [kind, name, expected, place].map(str::to_owned);
        let [kind, name, expected, place] = owned;
        Row {
            kind,
            name,
            expected,
            place,
        }
    };
    read("tests/library.tsv")
        .lines()
        .filter(|l| !l.starts_with('#'))
        .map(line)
        .collect()
}

#[derive(Deserialize)]
struct Case {
    name: String,
    shell: Option<String>,
    script: Option<String>,
    file: Option<String>,
}

/// The text of every end-to-end case, with the files that it names.
fn cases() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for (stem, cases) in spile_testing::files::cases::<Case>() {
        for case in cases {
            let mut text = [case.shell, case.script].concat_texts();
            if let Some(path) = case.file
                && let Ok(script) = std::fs::read_to_string(root().join(path))
            {
                text.push_str(&script);
            }
            for named in text.clone().split("PROGRAMS/").skip(1) {
                let end = named.find(|c: char| !c.is_alphanumeric() && !"-_.".contains(c));
                let path = format!("tests/programs/{}", &named[..end.unwrap_or(named.len())]);
                if root().join(&path).is_file() {
                    text.push_str(&read(&path));
                }
            }
            all.insert(format!("{stem}::{}", case.name), text);
        }
    }
    all
}

trait Texts {
    fn concat_texts(self) -> String;
}

impl<const N: usize> Texts for [Option<String>; N] {
    fn concat_texts(self) -> String {
        self.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }
}

/// Whether a text contains a name as a whole word.
fn mentions(text: &str, name: &str) -> bool {
    let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(name).any(|(at, _)| {
        !word(text[..at].chars().next_back()) && !word(text[at + name.len()..].chars().next())
    })
}

#[test]
fn every_name_has_a_row_and_every_row_a_name() {
    let names = names();
    let mut seen = BTreeSet::new();
    for row in rows() {
        let twice = format!("two rows of {} {}", row.kind, row.name);
        assert!(seen.insert((row.kind, row.name)), "{twice}");
    }
    let without: Vec<_> = names.difference(&seen).collect();
    assert!(without.is_empty(), "not in tests/library.tsv: {without:#?}");
    let unknown: Vec<_> = seen.difference(&names).collect();
    assert!(
        unknown.is_empty(),
        "in tests/library.tsv and not in the library: {unknown:#?}"
    );
}

#[test]
fn the_test_of_a_row_exists_and_has_the_name() {
    let cases = cases();
    let mut wrong = Vec::new();
    for row in rows() {
        let mut say = |what: &str| wrong.push(format!("{} {}: {what}", row.kind, row.name));
        if !SOURCES.iter().any(|(word, _)| *word == row.expected) {
            say(&format!("`{}` is not one of {SOURCES:?}", row.expected));
        }
        let text = match row.place.split_once(' ') {
            Some(("case", case)) => cases.get(case).cloned(),
            Some(("test", test)) => test.rsplit_once("::").and_then(|(path, function)| {
                let text = std::fs::read_to_string(root().join(path)).ok()?;
                text.contains(&format!("fn {function}(")).then_some(text)
            }),
            _ => None,
        };
        let Some(text) = text else {
            say(&format!("there is no `{}`", row.place));
            continue;
        };
        // Of `name/parameters` and `alias variable` the last word, which a script writes.
        let bare = row.name.split('/').next().unwrap_or_default();
        let word = bare.rsplit(' ').next().unwrap_or_default();
        if !mentions(&text, word) {
            say(&format!("`{word}` is not in `{}`", row.place));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every alias of SystemTap is there with all its variables, or has a row that says why not.
#[test]
fn every_alias_of_systemtap_is_there_or_has_its_reason() {
    let aliases = alias_variables();
    let missing = read("tapset/missing.tsv");
    let missing: BTreeMap<&str, (&str, &str)> = missing
        .lines()
        .filter(|l| !l.starts_with('#'))
        .map(|l| {
            let mut cells = l.split('\t');
            let mut next = || cells.next().unwrap_or_default();
            (next(), (next(), next()))
        })
        .collect();
    let mut wrong = Vec::new();
    let mut check = |alias: &str, variables: &str, left_out: &str| match aliases.get(alias) {
        None => wrong.push(format!("{alias}: no definition")),
        Some(all) => {
            let known = |v: &&str| !all.contains(*v) && !left_out.split(' ').any(|l| l == *v);
            let lacking = variables.split_ascii_whitespace().filter(known);
            wrong.extend(lacking.map(|v| format!("{alias}: no variable {v}")));
        }
    };
    for line in read("tests/aliases.tsv").lines() {
        let Some((alias, variables)) = line.split_once('\t').filter(|_| !line.starts_with('#'))
        else {
            continue;
        };
        match missing.get(alias) {
            Some(("gone", _)) => {}
            Some((left_out, _)) => check(alias, variables, left_out),
            // The kernel's own table has the named events.
            None if alias.starts_with("perf.hw.") => {}
            None => check(alias, variables, ""),
        }
    }
    let reasonless = missing.iter().filter(|(_, (_, why))| why.is_empty());
    wrong.extend(reasonless.map(|(alias, _)| format!("{alias}: a row without a reason")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A row of the tables of system calls: how it was checked, and variables.
type CallRow = (String, BTreeSet<String>);

/// The rows of a table of system calls by name and number.
fn call_rows(file: &str, first: u32) -> BTreeMap<(String, u32), CallRow> {
    let text = read(file);
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let cells: Vec<&str> = line.split('\t').collect();
        let [name, .., number, how, _, args] = cells[..] else {
            panic!("{file}: too few cells: {line:?}");
        };
        let variables = args.split(' ').filter_map(|a| a.split_once(':'));
        let variables = variables.flat_map(|(_, names)| names.split(','));
        let variables = variables.map(|name| name.trim_start_matches('#'));
        let row = (how.to_owned(), variables.map(str::to_owned).collect());
        let (base, digits) = match number.split_at(1) {
            ("s", digits) => (NrSet::PARTS, digits),
            ("i", digits) => (NrSet::IPC_PARTS, digits),
            _ => (first, number),
        };
        let key = (name.to_owned(), base + digits.parse::<u32>().expect(line));
        assert!(
            rows.insert(key, row).is_none(),
            "{file}: two rows of {name}"
        );
    }
    rows
}

/// The variables that scripts can read at a call besides those that all calls have.
fn variables_of_call(call: &Syscall) -> BTreeSet<String> {
    let endings = ["", "_str", "_unquoted", "_str_unquoted", "_uaddr", "_name"];
    let mut names = BTreeSet::new();
    for arg in call.args {
        let base = arg.name.strip_suffix("_uaddr").unwrap_or(arg.name);
        let base = base.strip_suffix("_str").unwrap_or(base);
        let all = endings.iter().map(|end| format!("{base}{end}"));
        let ours = |name: &String| {
            call.variable(name)
                .is_some_and(|(_, form)| form != ArgForm::TextOnly)
        };
        names.extend(all.filter(ours));
    }
    // All calls have it, and no argument hides it.
    names.remove("name");
    names.extend(call.variables.iter().map(|v| v.name.to_owned()));
    names
}

/// The faults of a table of system calls, and the number of calls that no test makes. `name` gives
/// the name that a call has in the table.
fn compare_calls(file: &str, compat: bool, name: fn(&Syscall) -> &str) -> (Vec<String>, usize) {
    let mut rows = call_rows(file, if compat { NrSet::COMPAT } else { 0 });
    let (mut wrong, mut left) = (Vec::new(), 0);
    let calls = spile_syscalls::of(spile_abi::HOST).iter();
    for call in calls.filter(|call| call.is_compat() == compat) {
        let name = name(call);
        let Some((how, there)) = rows.remove(&(name.to_owned(), call.nr)) else {
            wrong.push(format!("{file}: {name} {} has no row", call.nr));
            continue;
        };
        match how.strip_prefix("not called: ") {
            Some(reason) => left += usize::from(!reason.is_empty()),
            None if how == "called" => {}
            None => wrong.push(format!("{file}: {name}: `{how}`")),
        }
        let variables = variables_of_call(call);
        if variables != there {
            let without: Vec<_> = variables.difference(&there).collect();
            let unknown: Vec<_> = there.difference(&variables).collect();
            wrong.push(format!(
                "{file}: {name}: without {without:?}, unknown {unknown:?}"
            ));
        }
    }
    let unknown = rows.keys();
    wrong.extend(unknown.map(|(name, nr)| format!("{file}: no call {name} {nr}")));
    (wrong, left)
}

// The bounds only go down.

#[test]
fn every_variable_of_a_system_call_has_a_place() {
    let (wrong, left) = compare_calls("tests/syscalls.tsv", false, |c| c.probe);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(left <= 1, "{left} calls are not called");
}

#[test]
fn every_variable_of_a_32_bit_system_call_has_a_place() {
    let (wrong, left) = compare_calls("tests/syscalls-32.tsv", true, |c| c.name);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(left <= 3, "{left} calls are not called");
}
