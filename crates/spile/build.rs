//! Builds the tables of scripts in the binary: the files of `tapset/`, each with the names that it
//! defines and the files that it needs, and those of `tools/`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

#[path = "src/tapset/index.rs"]
mod index;

fn main() {
    println!("cargo:rerun-if-changed=src/tapset/index.rs");
    let tools = scripts("tools");
    let mut table =
        String::from("/// Name and text of each file.\npub static FILES: &[(&str, &str)] = &[\n");
    for (name, path, _) in &tools {
        writeln!(table, "    ({name:?}, include_str!({path:?})),").expect("a string");
    }
    write("tools", table);
    write("tapset", indexed(&scripts("tapset")));
}

/// The table of a library's files.
fn indexed(files: &[(String, String, String)]) -> String {
    let defined: Vec<Vec<&str>> = files.iter().map(|f| index::defined(&f.2)).collect();
    let needed: Vec<BTreeSet<usize>> = (0..files.len())
        .map(|n| reach(n, files, &defined))
        .collect();
    let mut table = String::from("/// The files.\npub static FILES: &[File] = &[\n");
    for ((name, path, _), (defines, needs)) in files.iter().zip(defined.iter().zip(needed)) {
        writeln!(
            table,
            "    File {{ name: {name:?}, text: include_str!({path:?}), defines: &{defines:?}, \
             needs: &{:?} }},",
            needs.into_iter().collect::<Vec<_>>()
        )
        .expect("a string");
    }
    table
}

/// The indexes of the files that one of them needs, itself included.
fn reach(
    from: usize,
    files: &[(String, String, String)],
    defined: &[Vec<&str>],
) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(n) = open.pop() {
        if reached.insert(n) {
            let words: BTreeSet<&[u8]> = index::words(files[n].2.as_bytes()).collect();
            let named = |names: &Vec<&str>| names.iter().any(|n| words.contains(n.as_bytes()));
            open.extend((0..files.len()).filter(|m| named(&defined[*m])));
        }
    }
    reached
}

/// The scripts of a folder: name, path, text.
fn scripts(folder: &str) -> Vec<(String, String, String)> {
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
        (name, path.display().to_string(), text)
    };
    names.into_iter().map(read).collect()
}

/// Writes a table to `NAME.rs`.
fn write(name: &str, mut table: String) {
    table.push_str("];\n");
    let out = std::env::var("OUT_DIR").expect("set by cargo");
    std::fs::write(Path::new(&out).join(format!("{name}.rs")), table).expect("writable");
}
