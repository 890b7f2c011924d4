//! Files for tests: those of the repository, and SystemTap's examples.

use std::path::{Path, PathBuf};

/// The folders in which Debian and Fedora install SystemTap's examples.
const EXAMPLES: [&str; 2] = [
    "/usr/share/systemtap/examples",
    "/usr/share/doc/systemtap-client/examples",
];

/// The root folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
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

/// SystemTap's example files with one of these extensions. Empty where they are not installed.
pub fn example_files(extensions: &[&str]) -> Vec<PathBuf> {
    examples().map_or_else(Vec::new, |dir| below(dir, extensions))
}
