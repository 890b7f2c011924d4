//! Helpers that the tests share.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};

use spile_syntax::ast::File;
use spile_syntax::diag::Diagnostics;
use spile_syntax::parser::{parse_file, parse_macros};
use spile_syntax::preproc::PreprocEnv;
use spile_syntax::source::Sources;

/// Macros that scripts expect.
const LIBRARY: &str = include_str!("library.stpm");

/// Every installed example script; the test is skipped where there is none.
pub(crate) fn example_scripts() -> Vec<PathBuf> {
    let scripts = spile_testing::files::example_files(&["stp"]);
    if scripts.is_empty() {
        spile_testing::skip("the package systemtap-doc is not installed");
    }
    scripts
}

/// A template with gaps instead of a script: `probe X.Y.Z if(c) {...}`.
pub(crate) const TEMPLATE: &str = "security-bandaid-template.stp";

/// Arguments for a script: numbers, except that one script calls its third as a function.
pub(crate) fn dummy_args(path: &Path) -> Vec<String> {
    let third = if path.ends_with("measureinterval.stp") {
        "@count"
    } else {
        "3"
    };
    ["1", "2", third, "4"].map(str::to_owned).to_vec()
}

/// A fixed environment.
pub(crate) fn env(args: Vec<String>) -> PreprocEnv {
    let config = |name: &str| match name {
        "CONFIG_HZ" => Some("250".to_owned()),
        "CONFIG_NR_CPUS" => Some("0x40".to_owned()),
        "CONFIG_MOD" => Some("m".to_owned()),
        _ => None,
    };
    let mut env = PreprocEnv::new("6.12.0-1-amd64", "x86_64")
        .with_args(args)
        .with_config(config);
    env.guru = true;
    env
}

/// Parses; returns the errors and warnings rendered without colour.
pub(crate) fn parse(name: &str, text: Vec<u8>, args: Vec<String>) -> (File, String) {
    let mut sources = Sources::new();
    let mut diags = Diagnostics::new();
    let env = env(args);
    let library = sources.add("library.stpm", LIBRARY.as_bytes());
    let library = parse_macros(&mut sources, library, &env, &mut diags);
    let file = sources.add(name, text);
    let ast = parse_file(&mut sources, file, &env, &library, &mut diags);
    (ast, diags.render(&sources, false))
}

/// The tree as text without its spans.
pub(crate) fn shape(ast: &File) -> String {
    let text = format!("{ast:?}");
    let mut parts = text.split("Span { file");
    let mut out = parts.next().unwrap_or("").to_owned();
    for part in parts {
        out.push_str(part.split_once('}').map_or("", |p| p.1));
    }
    out
}

/// Asserts that pretty-printing and parsing again gives the same tree.
pub(crate) fn assert_round_trip(ast: &File) {
    let text = spile_syntax::pretty::file(ast);
    let (again, out) = parse("pretty", text.clone().into_bytes(), Vec::new());
    assert!(out.is_empty(), "{out}\n{text}");
    let (a, b) = (shape(ast), shape(&again));
    if a != b {
        let at = a
            .bytes()
            .zip(b.bytes())
            .position(|(x, y)| x != y)
            .unwrap_or(0);
        let near = |s: &str| {
            s.chars()
                .skip(at.saturating_sub(80))
                .take(160)
                .collect::<String>()
        };
        panic!("{text}\nbefore: {}\nafter:  {}", near(&a), near(&b));
    }
}
