//! The last match of a handler's run, which `matched()` and similar functions report.

use spile_cast::Cast;

use super::value::Value;
use crate::regex::{Match, Regex};

/// The result of the last regular expression.
#[derive(Debug, Clone, Default)]
pub(super) enum LastMatch {
    /// No expression was matched yet.
    #[default]
    Never,
    /// The last expression did not match.
    Failed,
    /// The string at the time of the match, and the match.
    Found(Value, Match),
}

impl LastMatch {
    /// Matches a string and remembers the result.
    pub(super) fn find(&mut self, re: &Regex, string: Value) -> bool {
        *self = match re.find(string.as_bytes()) {
            Some(m) => LastMatch::Found(string, m),
            None => LastMatch::Failed,
        };
        matches!(self, LastMatch::Found(..))
    }

    /// Number of groups; -1 without a match, -2 when no expression was matched yet.
    pub(super) fn groups(&self) -> i64 {
        match self {
            LastMatch::Never => -2,
            LastMatch::Failed => -1,
            LastMatch::Found(_, m) => m.groups.len().fit::<i64>(),
        }
    }

    /// The text of a group; group 0 is the whole match.
    pub(super) fn group(&self, n: i64) -> &[u8] {
        let LastMatch::Found(string, m) = self else {
            return b"";
        };
        let span = match usize::try_from(n) {
            Ok(0) => Some(m.whole),
            Ok(n) => m.groups.get(n - 1).copied().flatten(),
            Err(_) => None,
        };
        span.and_then(|(a, b)| string.as_bytes().get(a..b))
            .unwrap_or(b"")
    }
}
