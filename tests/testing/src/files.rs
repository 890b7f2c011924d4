//! Files for tests: those of the repository, and SystemTap's examples.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The folders in which Debian and Fedora install SystemTap's examples.
const EXAMPLES: [&str; 2] = [
    "/usr/share/systemtap/examples",
    "/usr/share/doc/systemtap-client/examples",
];

/// Where the values come from that an end-to-end case expects: `expects` in `tests/cases`.
#[derive(Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Expects {
    /// The meaning of the names fixes them; they are written by hand.
    Definition,
    /// The probed program did it, or says it of itself.
    Workload,
    /// Python computes them.
    Python,
    /// C, or the C library, computes them.
    C,
    /// They are read from `/proc` or `/sys`.
    Proc,
    /// Another program says them, such as ps, gdb, readelf.
    Tool,
    /// No kernel that spile runs on reports the event, which the case shows.
    Never,
}

/// The root folder of the repository. Guests with other kernels have it, but not all folders in it.
pub fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own).to_path_buf()
}

/// The folder of SystemTap's examples; `None` where they are not installed.
pub fn examples() -> Option<&'static Path> {
    EXAMPLES.into_iter().map(Path::new).find(|dir| dir.is_dir())
}

/// All files below a folder with one of these extensions, in order. Empty if there is no such
/// folder.
pub fn below(dir: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(below(&path, extensions));
        } else if path
            .extension()
            .is_some_and(|e| extensions.iter().any(|x| e == *x))
        {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The end-to-end cases in `tests/cases`: the name of each file without its ending, and its cases. `T`
/// has the members of a case that the caller needs.
///
/// # Panics
///
/// Panics if a file cannot be read as `T`.
pub fn cases<T: DeserializeOwned>() -> Vec<(String, Vec<T>)> {
    #[derive(Deserialize)]
    struct CaseFile<T> {
        case: Vec<T>,
    }
    let read = |file: PathBuf| {
        let text = std::fs::read_to_string(&file);
        let text = text.unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let cases: Result<CaseFile<T>, _> = toml::from_str(&text);
        let cases = cases.unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let stem = file.file_stem().unwrap_or_default();
        (stem.to_string_lossy().into_owned(), cases.case)
    };
    let files = below(&root().join("tests/cases"), &["toml"]);
    files.into_iter().map(read).collect()
}

/// SystemTap's example files with one of these extensions. Empty where they are not installed.
pub fn example_files(extensions: &[&str]) -> Vec<PathBuf> {
    examples().map_or_else(Vec::new, |dir| below(dir, extensions))
}
