//! Expressions with their tables.

use std::sync::Arc;

use super::error::Error;
use super::nfa;
use super::parser::parse;
use super::scan::{self, Scanner};
use super::tagged::{self, Finder};
use crate::program::types::Bytes;

/// Maximum number of groups, if groups are read.
pub const MAX_GROUPS: u32 = 31;

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
            let e = Error::large("it has more than 31 groups, and `matched()` is used");
            return Err(e.help("split it into several"));
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
