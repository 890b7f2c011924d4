//! Tokens with the comments and line breaks between them, which the lexer drops.

use std::ops::Range;

use crate::token::{Tok, Token};

/// A comment, as a range of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Comment {
    /// Its text; line comments without the newline and trailing blanks.
    pub range: Range<usize>,
    /// `#` or `//`: it ends its line.
    pub line: bool,
    /// Number of newlines before it.
    pub newlines: usize,
}

/// A token and the gap before it.
#[derive(Debug, Clone)]
pub(super) struct SpacedToken {
    /// Its kind; [`Tok::Eof`] for the last.
    pub kind: Tok,
    /// Its text.
    pub range: Range<usize>,
    /// Comments since the token before.
    pub comments: Vec<Comment>,
    /// Number of newlines between the last comment, or else the token before, and this token.
    pub newlines: usize,
    /// Whether nothing separates it from the last token.
    pub adjacent: bool,
    /// Whether more than one character separates it from the last token.
    pub wide: bool,
}

impl SpacedToken {
    /// Whether it was first on its line.
    pub(super) fn is_first_on_line(&self) -> bool {
        self.newlines > 0
    }

    /// Whether the gap before it contains a line break.
    pub(super) fn broken(&self) -> bool {
        self.is_first_on_line() || self.comments.iter().any(|c| c.newlines > 0 || c.line)
    }
}

/// The tokens of a text with their gaps, and an end-of-file element.
pub(super) fn elements(text: &str, tokens: &[Token]) -> Vec<SpacedToken> {
    let mut out = Vec::with_capacity(tokens.len() + 1);
    let mut end = 0;
    let spans = tokens
        .iter()
        .map(|t| (t.kind, t.span.start as usize..t.span.end as usize));
    let last = (Tok::Eof, text.len()..text.len());
    for (kind, range) in spans.chain([last]) {
        let adjacent = range.start == end;
        let wide = range.start > end + 1;
        let (comments, newlines) = gap(text, end..range.start);
        end = range.end;
        out.push(SpacedToken {
            kind,
            range,
            comments,
            newlines,
            adjacent,
            wide,
        });
    }
    out
}

/// The comments of a gap, and the number of newlines after the last one.
fn gap(text: &str, range: Range<usize>) -> (Vec<Comment>, usize) {
    let bytes = text.as_bytes();
    let (mut comments, mut newlines, mut offset) = (Vec::new(), 0, range.start);
    while offset < range.end {
        let rest = &bytes[offset..range.end];
        let (len, line) = match rest {
            [b'#', ..] | [b'/', b'/', ..] => {
                let len = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
                (len, true)
            }
            [b'/', b'*', inner @ ..] => {
                let close = inner.windows(2).position(|w| w == b"*/");
                (close.map_or(rest.len(), |n| n + 4), false)
            }
            [b, ..] => {
                newlines += usize::from(*b == b'\n');
                offset += 1;
                continue;
            }
            [] => break,
        };
        let end = match line {
            true => offset + rest[..len].trim_ascii_end().len(),
            false => offset + len,
        };
        comments.push(Comment {
            range: offset..end,
            line,
            newlines,
        });
        newlines = 0;
        offset += len;
    }
    (comments, newlines)
}
