//! Regular expressions: POSIX extended ones, compiled to tables that the interpreter and the
//! generated code walk in the same way.
//!
//! | file | what |
//! |---|---|
//! | `parser` | the expression as a tree |
//! | `nfa` | the tree as an automaton with marks for groups and parts |
//! | `scan` | tables that only tell whether, or where, a match begins |
//! | `tagged` | tables that find a match and its groups |
//! | `exec` | walking them |
//!
//! # Which match
//! The leftmost match, and of those the longest. Then each part of the expression, from left to
//! right and outer ones first, takes as much as it can ("subpatterns" of POSIX). Of two ways with
//! the same lengths, the first alternative wins, and a round of a repetition wins over none. A
//! round is empty only if it must be, or if it is the only one. A group reports its last round, and
//! nothing if the last round of the enclosing part skipped it. This is the order of Okui and Suzuki
//! ("Disambiguation in regular expression matching via position automata with augmented
//! transitions"). glibc departs from it in groups; `crates/ir/tests/regex.rs` has the cases.
//!
//! # How groups are found
//! Online tagged automata copy registers at every byte. Here each transition instead has, for each
//! path in its target, the best predecessor and the tags on the way. Matching records the
//! transitions taken; when the match's end is known, one walk back over them meets every tag's last
//! value first.
//!
//! 1. Backwards over the string: the first position where a match begins (`Finder::reverse`;
//!    left out where only position 0 can be).
//! 2. Forwards from there: the longest match, noting transitions.
//! 3. Back over the notes: the groups (left out where there are none).
//!
//! Where nobody reads the match, one forward scan that stops at the first end is enough
//! (`Compiled::test`).

mod exec;
mod nfa;
mod parser;
mod scan;
mod tagged;

use std::sync::Arc;

pub use exec::Match;
pub use parser::{Ast, ByteSet, parse};
pub use scan::Scanner;
pub use tagged::{Finder, NO_SLOT, Op};

use crate::Bytes;

/// Maximum number of groups, if groups are read.
pub const MAX_GROUPS: u32 = 31;

/// The reason why an expression cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Offset in the expression; `None` for the whole.
    pub at: Option<usize>,
    /// The error message.
    pub message: String,
    /// The way out; "" if there is none.
    pub help: &'static str,
    help_text: Option<String>,
}

impl Error {
    fn new(at: usize, message: impl Into<String>) -> Error {
        Error {
            at: Some(at),
            message: message.into(),
            help: "",
            help_text: None,
        }
    }

    fn large(why: &str) -> Error {
        Error {
            at: None,
            message: format!("this regular expression is too large: {why}"),
            help: "split it into several, or make intervals smaller",
            help_text: None,
        }
    }

    fn help(mut self, text: impl Into<String>) -> Error {
        self.help_text = Some(text.into());
        self
    }

    /// Whether the expression is valid, but too large.
    pub fn too_large(&self) -> bool {
        self.at.is_none()
    }

    /// The way out; "" if there is none.
    pub fn way_out(&self) -> &str {
        self.help_text.as_deref().unwrap_or(self.help)
    }
}

/// A compiled expression.
#[derive(Debug, PartialEq, Eq)]
pub struct Compiled {
    /// Class of each byte.
    pub classes: [u8; 256],
    /// Forward scanner: an accepting state means that there is a match.
    pub test: Scanner,
    /// Finds the match; only if the script reads it.
    pub find: Option<Finder>,
}

/// A regular expression of a program.
#[derive(Debug, Clone)]
pub struct Regex {
    /// The expression.
    pub pattern: Bytes,
    /// Number of groups in it.
    pub groups: u32,
    /// The tables.
    pub compiled: Arc<Compiled>,
}

/// The tables follow from the expression.
impl PartialEq for Regex {
    fn eq(&self, other: &Regex) -> bool {
        self.pattern == other.pattern && self.finds() == other.finds()
    }
}

impl Regex {
    /// Compiles an expression; with `find` also to find the match and its groups.
    ///
    /// # Errors
    /// An invalid expression, or tables that would be too large.
    pub fn new(pattern: &[u8], find: bool) -> Result<Regex, Error> {
        let (ast, groups) = parse(pattern)?;
        if find && groups > MAX_GROUPS {
            let mut e = Error::large("it has more than 31 groups, and `matched()` is used");
            e.help = "split it into several";
            return Err(e);
        }
        let nfa = nfa::build(&ast)?;
        let test = scan::forward(&nfa)?;
        let find = match find {
            true => Some(tagged::finder(&nfa, groups)?),
            false => None,
        };
        Ok(Regex {
            pattern: pattern.into(),
            groups,
            compiled: Arc::new(Compiled {
                classes: nfa.classes,
                test,
                find,
            }),
        })
    }

    /// Whether it can find the position of the match.
    pub fn finds(&self) -> bool {
        self.compiled.find.is_some()
    }
}
