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

/// A text with the starts of its lines, and the unit of its columns.
#[derive(Debug, Clone)]
pub(crate) struct DocText {
    text: String,
    starts: Vec<usize>,
    encoding: Encoding,
}

impl DocText {
    pub(crate) fn new(text: String, encoding: Encoding) -> DocText {
        let newlines = text.bytes().enumerate().filter(|(_, b)| *b == b'\n');
        let starts = std::iter::once(0)
            .chain(newlines.map(|(i, _)| i + 1))
            .collect();
        DocText {
            text,
            starts,
            encoding,
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The byte offset of a position; a position outside the text is moved to the nearest one
    /// inside.
    pub(crate) fn offset(&self, position: Position) -> usize {
        let line = position.line as usize;
        let Some(start) = self.starts.get(line).copied() else {
            return self.text.len();
        };
        let end = self.starts.get(line + 1).copied();
        let line = &self.text[start..end.unwrap_or(self.text.len())];
        let line = line.trim_end_matches(['\n', '\r']);
        let mut units = position.character as usize;
        for (i, c) in line.char_indices() {
            let width = match self.encoding {
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
    pub(crate) fn position(&self, offset: usize) -> Position {
        let offset = self.text.floor_char_boundary(offset);
        let line = self.starts.partition_point(|s| *s <= offset).max(1) - 1;
        let before = &self.text[self.starts[line]..offset];
        let character = match self.encoding {
            Encoding::Utf8 => before.len(),
            Encoding::Utf16 => before.chars().map(char::len_utf16).sum(),
        };
        Position::new(line.fit::<u32>(), character.fit::<u32>())
    }

    pub(crate) fn range(&self, start: usize, end: usize) -> Range {
        Range::new(self.position(start), self.position(end))
    }

    /// The range of a span, in whichever file.
    pub(crate) fn span(&self, span: Span) -> Range {
        self.range(span.start as usize, span.end as usize)
    }

    /// Applies an edit; one without a range replaces the whole text.
    pub(crate) fn edit(&mut self, change: TextDocumentContentChangeEvent) {
        let text = match change.range {
            None => change.text,
            Some(range) => {
                let start = self.offset(range.start);
                let end = self.offset(range.end).max(start);
                let mut text = std::mem::take(&mut self.text);
                text.replace_range(start..end, &change.text);
                text
            }
        };
        *self = DocText::new(text, self.encoding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_become_positions_and_offsets_again() {
        let [utf8, utf16] = [Encoding::Utf8, Encoding::Utf16]
            .map(|encoding| DocText::new("a\u{e9}\u{1f600}b\r\nx\n".into(), encoding));
        for (text, column) in [(&utf8, 7), (&utf16, 4)] {
            let position = Position::new(0, column);
            assert_eq!(text.offset(position), 7);
            assert_eq!(text.position(7), position);
        }
        // Inside a character, past the line, past the text.
        assert_eq!(utf16.offset(Position::new(0, 3)), 3);
        assert_eq!(utf16.offset(Position::new(0, 99)), 8);
        assert_eq!(utf16.offset(Position::new(9, 0)), utf16.as_str().len());
        assert_eq!(utf8.position(999), Position::new(2, 0));
    }

    #[test]
    fn edits_change_the_text_in_their_ranges() {
        let mut t = DocText::new("one\ntwo\n".into(), Encoding::Utf16);
        let change =
            |range: Option<((u32, u32), (u32, u32))>, text: &str| TextDocumentContentChangeEvent {
                range: range
                    .map(|(a, b)| Range::new(Position::new(a.0, a.1), Position::new(b.0, b.1))),
                range_length: None,
                text: text.into(),
            };
        t.edit(change(Some(((0, 1), (1, 1))), "X"));
        assert_eq!(t.as_str(), "oXwo\n");
        t.edit(change(Some(((3, 0), (1, 1))), "end"));
        assert_eq!(t.as_str(), "oXwo\nend");
        t.edit(change(None, "new"));
        assert_eq!(t.as_str(), "new");
    }
}
