//! Formatting real scripts keeps their tokens and comments, and formatting the result changes
//! nothing; our own tapset and examples are formatted.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

mod common;

use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;
use spile_syntax::fmt::{FormatRefusal, format};
use spile_syntax::pretty;
use spile_testing::files::example_files;

/// Formats, and asserts that formatting the result changes nothing. [`format`] itself compares
/// tokens and comments.
fn formatted(text: &[u8]) -> Result<Vec<u8>, FormatRefusal> {
    let out = format(text)?;
    let again = format(&out).expect("what was formatted can be");
    if out != again {
        let show = |t: &[u8]| String::from_utf8_lossy(t).into_owned();
        panic!(
            "not idempotent:\n{}\n---\n{}\n---\n{}",
            show(text),
            show(&out),
            show(&again)
        );
    }
    Ok(out)
}

#[test]
fn example_scripts_keep_their_trees() {
    let scripts = common::example_scripts();
    for path in &scripts {
        let text = std::fs::read(path).expect("readable");
        let out = formatted(&text).unwrap_or_else(|e| panic!("{}: {e:?}", path.display()));
        if path.ends_with(common::TEMPLATE) {
            continue;
        }
        let tree = |text| {
            let (ast, said) = common::parse("script", text, common::dummy_args(path));
            assert!(said.is_empty(), "{}: {said}", path.display());
            pretty::file(&ast)
        };
        assert_eq!(tree(text), tree(out), "{}", path.display());
    }
}

#[test]
fn an_untidy_script_is_formatted_as_blessed() {
    let text = std::fs::read(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/common/untidy.stp"
    ));
    let out = formatted(&text.expect("readable")).expect("a script");
    insta::assert_snapshot!(String::from_utf8_lossy(&out));
}

/// Our own scripts below a folder of the repository.
fn own(folder: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(folder);
    let entries = std::fs::read_dir(dir)
        .expect("a folder")
        .flatten()
        .map(|e| e.path());
    let is_script = |p: &PathBuf| p.extension().is_some_and(|e| e == "stp" || e == "stpm");
    entries.filter(is_script).collect()
}

#[test]
fn own_scripts_are_formatted() {
    let bad: Vec<_> = ["tapset", "examples"]
        .iter()
        .flat_map(|f| own(f))
        .filter(|p| {
            let text = std::fs::read(p).expect("readable");
            formatted(&text).ok() != Some(text)
        })
        .map(|p| p.display().to_string())
        .collect();
    assert!(
        bad.is_empty(),
        "run `spile fmt` on these:\n{}",
        bad.join("\n")
    );
}

/// Pieces of scripts, for random sequences in which any two can be adjacent.
const PIECES: &[&str] = &[
    "probe ",
    "global ",
    "function ",
    "if ",
    "else ",
    "for ",
    "foreach ",
    " in ",
    "return ",
    "next ",
    "try ",
    "catch ",
    "begin ",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ",",
    ";",
    ":",
    "?",
    "!",
    "%",
    "%(",
    "%)",
    "%?",
    "%:",
    "%{ a\n b %}",
    "$1",
    "@2",
    "$#",
    "@define ",
    "@m ",
    "@count(",
    "$x",
    "->",
    "&",
    "=",
    "<<<",
    "+",
    "-",
    "++",
    "--",
    "*",
    ".",
    "\"a\"",
    "017",
    "x ",
    "/* c */",
    "/* d\n   e */",
    "# f\n",
    "// g\n",
    "\n",
    "\n\n\n",
    "\r\n",
    "\t",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn soups_of_tokens_keep_them(picks in vec(0..PIECES.len(), 0..60)) {
        let text: String = picks.iter().map(|i| PIECES[*i]).collect();
        let result = formatted(text.as_bytes());
        prop_assert!(result != Err(FormatRefusal::Changed), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn broken_lines_keep_scripts(
        script in any::<prop::sample::Index>(),
        breaks in vec((any::<prop::sample::Index>(), 0..4usize), 1..20),
    ) {
        let scripts = [own("tapset"), own("examples"), example_files(&["stp"])].concat();
        let mut text = std::fs::read(script.get(&scripts)).expect("readable");
        for (at, what) in breaks {
            let at = at.index(text.len() + 1);
            text.splice(at..at, ["\n", " ", "\n\n\n", " /* x */ "][what].bytes());
        }
        let result = formatted(&text);
        prop_assert!(result != Err(FormatRefusal::Changed));
    }
}
