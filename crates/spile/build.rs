//! Builds the tables of scripts that are in the binary, by name: the files of `tapset/` and those of
//! `tools/`.

use std::fmt::Write as _;
use std::path::Path;

fn main() {
    table("tapset");
    table("tools");
}

/// Writes the table of one folder's files to `NAME.rs`.
fn table(folder: &str) {
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
    let mut text =
        String::from("/// Name and text of each file.\npub static FILES: &[(&str, &str)] = &[\n");
    for name in names {
        let path = dir.join(&name);
        println!("cargo:rerun-if-changed={}", path.display());
        writeln!(
            text,
            "    ({name:?}, include_str!({:?})),",
            path.display().to_string()
        )
        .expect("a string");
    }
    text.push_str("];\n");
    let out = std::env::var("OUT_DIR").expect("set by cargo");
    std::fs::write(Path::new(&out).join(format!("{folder}.rs")), text).expect("writable");
}
