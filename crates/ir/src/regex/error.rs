//! Why an expression cannot be compiled.

use std::borrow::Cow;

/// The reason why an expression cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Offset in the expression; `None` for the whole.
    pub offset: Option<usize>,
    /// The error message.
    pub message: String,
    help: Cow<'static, str>,
}

impl Error {
    pub(super) fn new(offset: usize, message: impl Into<String>) -> Error {
        Error {
            offset: Some(offset),
            message: message.into(),
            help: "".into(),
        }
    }

    pub(super) fn large(why: &str) -> Error {
        Error {
            offset: None,
            message: format!("this regular expression is too large: {why}"),
            help: "split it into several, or make intervals smaller".into(),
        }
    }

    pub(super) fn help(mut self, help: impl Into<Cow<'static, str>>) -> Error {
        self.help = help.into();
        self
    }

    /// Whether the expression is valid, but too large.
    pub fn too_large(&self) -> bool {
        self.offset.is_none()
    }

    /// The way out; "" if there is none.
    pub fn remedy(&self) -> &str {
        &self.help
    }
}
