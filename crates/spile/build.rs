//! Builds the library's table in the binary: the files of `tapset/`, compressed, and an index of the names that
//! they define. With it, spile reads only the files that a script needs.
//!
//! The index is made without parsing. It relies on the form that `spile fmt` gives files:
//! definitions begin
//! at the beginning of a line. A test holds it against what parsing gives (`crates/spile/src/tapset.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::DeflateEncoder;

fn main() {
    write("tapset", indexed(&scripts("tapset")));
    // Each start would relocate the tables of a position-independent executable: 30,000 addresses, 6% of
    // compiling a short script. The flag would undo that a static executable is static.
    let features = std::env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    if !features.split(',').any(|f| f == "crt-static") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}

/// The tables: the library's files, and for each name the files that define a function, a global or
/// an alias of that name.
fn indexed(files: &[(String, String)]) -> String {
    let mut table = String::from("/// The files.\npub(crate) static FILES: &[TapsetFile] = &[\n");
    for (name, text) in files {
        let row = format!(
            "    TapsetFile {{ name: {name:?}, packed: include_bytes!({:?}) }},",
            packed(name, text)
        );
        writeln!(table, "{row}").expect("a string");
    }
    for (n, (kind, what)) in KINDS.into_iter().enumerate() {
        let mut names: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for (at, (_, text)) in files.iter().enumerate() {
            for name in &defined(text)[n] {
                names.entry(name).or_default().insert(at);
            }
        }
        let head = format!("];\n\n/// {what}, in order.\npub(crate) static {kind}: Index = &[");
        writeln!(table, "{head}").expect("a string");
        for (name, files) in names {
            let files: Vec<usize> = files.into_iter().collect();
            writeln!(table, "    ({name:?}, &{files:?}),").expect("a string");
        }
    }
    table
}

/// The indexes, in the order of [`defined`].
const KINDS: [(&str, &str); 4] = [
    ("FUNCTIONS", "Functions"),
    ("GLOBALS", "Globals"),
    ("ALIASES", "First components of aliases"),
    ("MACROS", "Macros"),
];

/// The functions and globals that a file defines, the first components of its aliases, and its macros.
/// Words of a global's first value may be among them.
fn defined(text: &str) -> [Vec<&str>; 4] {
    let [mut functions, mut globals, mut aliases, mut macros] = [const { Vec::new() }; 4];
    let mut rest = text;
    while !rest.is_empty() {
        let line = rest.lines().next().unwrap_or_default();
        let item = line.strip_prefix("private ").unwrap_or(line);
        if let Some(function) = item.strip_prefix("function ") {
            functions.extend(words(function).next());
        } else if let Some(names) = item.strip_prefix("global ") {
            globals.extend(words(names));
        } else if let Some(text) = item.strip_prefix("@define ") {
            macros.extend(words(text).next());
        } else if let Some(points) = rest.strip_prefix("probe ") {
            // An alias has `=` before its body, a probe has not.
            let head = points.split('{').next().unwrap_or_default();
            if let Some((names, _)) = head.split_once('=') {
                aliases.extend(names.split(',').filter_map(|name| words(name).next()));
            }
        }
        rest = rest[line.len()..].trim_start_matches(['\r', '\n']);
    }
    [functions, globals, aliases, macros]
}

/// The words of a text that can be names.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|w| w.starts_with(|c: char| !c.is_ascii_digit()))
}

/// Compresses a file of the library; returns its path. Each start needs few of them.
fn packed(name: &str, text: &str) -> String {
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
    packed.write_all(text.as_bytes()).expect("memory");
    let out = std::env::var("OUT_DIR").expect("set by cargo");
    let path = Path::new(&out).join(format!("{name}.z"));
    std::fs::write(&path, packed.finish().expect("memory")).expect("writable");
    path.display().to_string()
}

/// The scripts of a folder: name and text.
fn scripts(folder: &str) -> Vec<(String, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(folder);
    let dir = dir.canonicalize().expect("the folder of scripts");
    println!("cargo:rerun-if-changed={}", dir.display());
    let mut names: Vec<_> = std::fs::read_dir(&dir)
        .expect("the folder of scripts")
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(|n| n.ends_with(".stp") || n.ends_with(".stpm"))
        .collect();
    names.sort();
    let read = |name: String| {
        let path = dir.join(&name);
        println!("cargo:rerun-if-changed={}", path.display());
        let text = std::fs::read_to_string(&path).expect("a script");
        (name, text)
    };
    names.into_iter().map(read).collect()
}

/// Writes a table to `NAME.rs`.
fn write(name: &str, mut table: String) {
    table.push_str("];\n");
    let out = std::env::var("OUT_DIR").expect("set by cargo");
    std::fs::write(Path::new(&out).join(format!("{name}.rs")), table).expect("writable");
}
