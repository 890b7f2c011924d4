//! Documents in the protocol's terms: lines, positions, edits.

use lsp_types::{Position, Range, TextDocumentContentChangeEvent};
use spile_cast::Cast;
use spile_syntax::ast::Span;

/// The unit of the protocol's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Bytes.
    Utf8,
    /// UTF-16 code units, which every client supports.
    Utf16,
}

/// A text with the starts of its lines.
#[derive(Debug, Clone)]
pub(crate) struct DocText {
    text: String,
    starts: Vec<usize>,
}

impl DocText {
    pub(crate) fn new(text: String) -> DocText {
        let newlines = text.bytes().enumerate().filter(|(_, b)| *b == b'\n');
        let starts = std::iter::once(0)
            .chain(newlines.map(|(i, _)| i + 1))
            .collect();
        DocText { text, starts }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The byte offset of a position; a position outside the text is moved to the nearest one
    /// inside.
    pub(crate) fn offset(&self, at: Position, encoding: Encoding) -> usize {
        let Some(start) = self.starts.get(at.line as usize).copied() else {
            return self.text.len();
        };
        let end = self
            .starts
            .get(at.line as usize + 1)
            .copied()
            .unwrap_or(self.text.len());
        let line = self.text[start..end].trim_end_matches(['\n', '\r']);
        let mut units = at.character as usize;
        for (i, c) in line.char_indices() {
            let width = match encoding {
                Encoding::Utf8 => c.len_utf8(),
                Encoding::Utf16 => c.len_utf16(),
            };
            if units < width {
                return start + i;
            }
            units -= width;
        }
        start + line.len()
    }

    /// The position of a byte offset.
    pub(crate) fn position(&self, offset: usize, encoding: Encoding) -> Position {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let line = self.starts.partition_point(|s| *s <= offset).max(1) - 1;
        let before = &self.text[self.starts[line]..offset];
        let character = match encoding {
            Encoding::Utf8 => before.len(),
            Encoding::Utf16 => before.chars().map(char::len_utf16).sum(),
        };
        Position::new(line.fit::<u32>(), character.fit::<u32>())
    }

    pub(crate) fn range(&self, start: usize, end: usize, encoding: Encoding) -> Range {
        Range::new(self.position(start, encoding), self.position(end, encoding))
    }

    /// The range of a span, in whichever file.
    pub(crate) fn span(&self, span: Span, encoding: Encoding) -> Range {
        self.range(span.start as usize, span.end as usize, encoding)
    }

    /// Applies an edit; one without a range replaces the whole text.
    pub(crate) fn edit(&mut self, change: TextDocumentContentChangeEvent, encoding: Encoding) {
        let text = match change.range {
            None => change.text,
            Some(range) => {
                let a = self.offset(range.start, encoding);
                let b = self.offset(range.end, encoding).max(a);
                let mut text = std::mem::take(&mut self.text);
                text.replace_range(a..b, &change.text);
                text
            }
        };
        *self = DocText::new(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_become_positions_and_offsets_again() {
        let t = DocText::new("a\u{e9}\u{1f600}b\r\nx\n".into());
        for (encoding, col) in [(Encoding::Utf8, 7), (Encoding::Utf16, 4)] {
            let at = Position::new(0, col);
            assert_eq!(t.offset(at, encoding), 7);
            assert_eq!(t.position(7, encoding), at);
        }
        // Inside a character, past the line, past the text.
        assert_eq!(t.offset(Position::new(0, 3), Encoding::Utf16), 3);
        assert_eq!(t.offset(Position::new(0, 99), Encoding::Utf16), 8);
        assert_eq!(
            t.offset(Position::new(9, 0), Encoding::Utf16),
            t.as_str().len()
        );
        assert_eq!(t.position(999, Encoding::Utf8), Position::new(2, 0));
    }

    #[test]
    fn edits_change_the_text_in_their_ranges() {
        let mut t = DocText::new("one\ntwo\n".into());
        let change =
            |range: Option<((u32, u32), (u32, u32))>, text: &str| TextDocumentContentChangeEvent {
                range: range
                    .map(|(a, b)| Range::new(Position::new(a.0, a.1), Position::new(b.0, b.1))),
                range_length: None,
                text: text.into(),
            };
        t.edit(change(Some(((0, 1), (1, 1))), "X"), Encoding::Utf16);
        assert_eq!(t.as_str(), "oXwo\n");
        t.edit(change(Some(((3, 0), (1, 1))), "end"), Encoding::Utf16);
        assert_eq!(t.as_str(), "oXwo\nend");
        t.edit(change(None, "new"), Encoding::Utf16);
        assert_eq!(t.as_str(), "new");
    }
}
