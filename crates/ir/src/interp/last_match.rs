//! The last match of a handler's run: what `matched()` and its kin tell of.

use super::Value;
use crate::regex::{Match, Regex};

/// The last match, or that there was none.
#[derive(Debug, Clone, Default)]
pub enum LastMatch {
    /// Nothing was matched yet.
    #[default]
    Never,
    /// The last text had no match.
    Failed,
    /// The text as it was then, and the match.
    Found(Value, Match),
}

impl LastMatch {
    /// Matches and remembers.
    pub fn find(&mut self, re: &Regex, text: Value) -> bool {
        *self = match re.find(text.as_bytes()) {
            Some(m) => LastMatch::Found(text, m),
            None => LastMatch::Failed,
        };
        matches!(self, LastMatch::Found(..))
    }

    /// How many groups there were; -1 without a match, -2 when nothing was matched.
    pub fn groups(&self) -> i64 {
        match self {
            LastMatch::Never => -2,
            LastMatch::Failed => -1,
            LastMatch::Found(_, m) => m.groups.len() as i64,
        }
    }

    /// Text of a group, 0 for the whole match.
    pub fn group(&self, n: i64) -> &[u8] {
        let LastMatch::Found(text, m) = self else {
            return b"";
        };
        let span = match usize::try_from(n) {
            Ok(0) => Some(m.whole),
            Ok(n) => m.groups.get(n - 1).copied().flatten(),
            Err(_) => None,
        };
        span.and_then(|(a, b)| text.as_bytes().get(a..b))
            .unwrap_or(b"")
    }
}
