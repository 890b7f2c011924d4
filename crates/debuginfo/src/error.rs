//! Errors of files.

use std::fmt;
use std::path::{Path, PathBuf};

/// The reason why a file could not be used.
#[derive(Debug)]
pub struct Error {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

impl Error {
    pub(crate) fn new(path: &Path, reason: impl fmt::Display) -> Error {
        Error {
            path: path.into(),
            reason: reason.to_string(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.reason)
    }
}

impl std::error::Error for Error {}
