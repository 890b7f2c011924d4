//! Builds the table of tapset files: every `.stp` and `.stpm` below `tapset/`, by name.

use std::fmt::Write as _;
use std::path::Path;

fn main() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tapset");
    let dir = dir.canonicalize().expect("the tapset folder");
    println!("cargo:rerun-if-changed={}", dir.display());
    let mut names: Vec<_> = std::fs::read_dir(&dir)
        .expect("the tapset folder")
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
    std::fs::write(Path::new(&out).join("tapset.rs"), text).expect("writable");
}
