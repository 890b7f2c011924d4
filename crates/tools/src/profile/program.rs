//! The files of programs.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use memchr::memmem;

/// The file that the first word of a command names, if it can be run.
pub(super) fn file_of(word: &str) -> Option<PathBuf> {
    let runs = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    if word.contains('/') {
        return Some(PathBuf::from(word)).filter(runs);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&path).map(|dir| dir.join(word));
    files.find(runs)
}

/// Whether one of the parts is in the content of a file.
pub(super) fn contains(bytes: &[u8], parts: &[&[u8]]) -> bool {
    parts.iter().any(|part| memmem::find(bytes, part).is_some())
}
