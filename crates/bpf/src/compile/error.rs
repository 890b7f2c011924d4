//! The error of a compilation.

use std::fmt;

/// The reason why a program cannot be compiled to BPF. Analysis refuses what kernel handlers cannot
/// do, with a better message; this error names what analysis missed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError {
    /// The handler's probe point; empty if the error concerns the whole script.
    pub handler: String,
    /// The position in the script.
    pub site: String,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot compile")?;
        if !self.handler.is_empty() {
            write!(f, " the handler of {}", self.handler)?;
        }
        write!(f, ": {}", self.reason)?;
        if !self.site.is_empty() {
            write!(f, ", near {}", self.site)?;
        }
        Ok(())
    }
}

impl std::error::Error for CompileError {}

/// An error that concerns the whole script.
pub(super) fn program_error(reason: impl Into<String>) -> CompileError {
    CompileError {
        handler: String::new(),
        site: String::new(),
        reason: reason.into(),
    }
}
