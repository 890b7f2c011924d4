//! The steps of CONTRIBUTING.md for common changes: they name few files, which exist and have the
//! example that the section names.

use std::path::Path;

use spile_testing::files::root;

/// Sections with numbered steps: heading, maximum number of files, and a word that each of these
/// files has.
const CHANGES: [(&str, usize, &[&str]); 4] = [
    ("Adding an event", 5, &["Netfilter", "netfilter"]),
    ("Adding an operator", 8, &["Mod", "Percent", "\"%\"", " % "]),
    (
        "Adding an instruction of the IR",
        6,
        &["TableGet", "= table t"],
    ),
    ("Adding an operation of LIR", 3, &["Smod"]),
];

/// A section, its example, the crates that could have to know it, and files of these that name it and are no step, each
/// with the reason.
struct Example {
    heading: &'static str,
    word: &'static str,
    crates: &'static [&'static str],
    optional: &'static [(&'static str, &'static str)],
}

const EXAMPLES: [Example; 2] = [
    Example {
        heading: "Adding an event",
        word: "Netfilter",
        crates: &[
            "ir", "sema", "layout", "bpf", "runtime", "kernel", "spile", "lsp",
        ],
        optional: &[
            (
                "crates/ir/src/intrinsics.rs",
                "refuses what the kernel forbids in these programs",
            ),
            (
                "crates/bpf/src/lower/handler/entry.rs",
                "counts own hits apart where interrupts bring them",
            ),
            (
                "crates/kernel/src/features.rs",
                "asks whether the kernel has it",
            ),
            ("crates/spile/src/check.rs", "says so in advance"),
        ],
    },
    Example {
        heading: "Adding an operation of LIR",
        word: "Smod",
        crates: &["lir", "ebpf", "bpf"],
        optional: &[
            (
                "crates/lir/src/tests/testgen.rs",
                "what older kernels have instead",
            ),
            (
                "crates/ebpf/src/isa/insn.rs",
                "the instructions of eBPF, which has it already",
            ),
        ],
    },
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

#[test]
fn no_other_file_has_to_know_the_example() {
    let text = std::fs::read_to_string(root().join("CONTRIBUTING.md")).expect("a guide");
    for example in EXAMPLES {
        let steps = section(&text, example.heading).lines().filter_map(file);
        let optional = example.optional.iter().map(|(file, _)| *file);
        let known: Vec<&str> = steps.chain(optional).collect();
        let mut named = Vec::new();
        for krate in example.crates {
            let sources = root().join("crates").join(krate).join("src");
            for path in spile_testing::files::below(&sources, &["rs"]) {
                let content = std::fs::read_to_string(&path).expect("a source");
                if content.contains(example.word) {
                    let name = path.strip_prefix(root()).expect("below the root");
                    named.push(name.display().to_string());
                }
            }
        }
        let wrong: Vec<_> = named.iter().filter(|n| !known.contains(&&***n)).collect();
        assert!(
            wrong.is_empty(),
            "{}: {wrong:?} name {}",
            example.heading,
            example.word
        );
        let mut stale = example
            .optional
            .iter()
            .filter(|(file, _)| !named.iter().any(|n| n == file));
        assert_eq!(stale.next(), None, "{}", example.heading);
    }
}
