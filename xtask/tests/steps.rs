//! The steps of CONTRIBUTING.md for common changes: they name few files, which exist and have the
//! example that the section names.

use std::path::Path;

use spile_testing::files::root;

/// Sections with numbered steps: heading, maximum number of files, and a word that each of these
/// files has.
const CHANGES: [(&str, usize, &[&str]); 3] = [
    ("Adding an operator", 8, &["Mod", "Percent", "\"%\"", " % "]),
    (
        "Adding an instruction of the IR",
        6,
        &["TableGet", "= table t"],
    ),
    ("Adding an operation of LIR", 3, &["Smod"]),
];

/// The section below a heading.
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let (_, rest) = text
        .split_once(&format!("## {heading}\n"))
        .unwrap_or_else(|| panic!("CONTRIBUTING.md has no section {heading}"));
    rest.split_once("\n## ")
        .map_or(rest, |(section, _)| section)
}

/// The file that a step begins with.
fn file(step: &str) -> Option<&str> {
    let (number, rest) = step.split_once(". `")?;
    number.parse::<u32>().ok()?;
    Some(rest.split_once('`')?.0)
}

#[test]
fn steps_name_few_files_that_have_the_example() {
    let text = std::fs::read_to_string(root().join("CONTRIBUTING.md")).expect("a guide");
    for (heading, most, words) in CHANGES {
        let files: Vec<&str> = section(&text, heading).lines().filter_map(file).collect();
        assert!(
            !files.is_empty() && files.len() <= most,
            "{heading}: {files:?}"
        );
        for file in files {
            let content = std::fs::read_to_string(root().join(Path::new(file)));
            let content = content.unwrap_or_else(|e| panic!("{heading}: {file}: {e}"));
            let has = words.iter().any(|w| content.contains(w));
            assert!(has, "{heading}: {file} has none of {words:?}");
        }
    }
}

/// Files of these crates that name the example and are no step: they know it for the sake of better code.
#[test]
fn no_other_file_has_to_know_the_example() {
    let text = std::fs::read_to_string(root().join("CONTRIBUTING.md")).expect("a guide");
    let steps: Vec<&str> = section(&text, "Adding an operation of LIR")
        .lines()
        .filter_map(file)
        .collect();
    let optional = [
        // What older kernels have instead.
        "crates/lir/src/testgen.rs",
        // The instructions of eBPF, which has it already.
        "crates/ebpf/src/isa/insn.rs",
    ];
    for krate in ["crates/lir/src", "crates/ebpf/src", "crates/bpf/src"] {
        for path in spile_testing::files::below(&root().join(krate), &["rs"]) {
            let name = path
                .strip_prefix(root())
                .expect("below the root")
                .display()
                .to_string();
            let known = steps.contains(&&*name) || optional.contains(&&*name);
            let content = std::fs::read_to_string(&path).expect("a source");
            assert!(
                known || !content.contains("Smod"),
                "{name} has to know operations of LIR"
            );
        }
    }
}
