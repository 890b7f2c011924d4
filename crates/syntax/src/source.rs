//! The source files of a run: their text, and the starts of their lines.
//!
//! In a file that is not UTF-8, each bad byte is replaced by [`BAD_BYTE`], one for one, so that
//! every span is a byte offset in the original file as well.

use std::borrow::Cow;
use std::sync::OnceLock;

use spile_cast::Cast;

pub use crate::ast::{FileId, Span};

/// Size in bytes of the largest file that the lexer accepts (8 MiB); the largest known tapset file
/// is under 1 MiB. Larger files get `E0109`.
pub const MAX_SOURCE: usize = 8 << 20;

/// The replacement for a byte that is not valid UTF-8 (ASCII SUBSTITUTE).
pub const BAD_BYTE: u8 = 0x1a;

impl Span {
    /// A span in `file` from byte `start` up to byte `end`.
    pub fn new(file: FileId, start: u32, end: u32) -> Self {
        Self { file, start, end }
    }

    /// From the start of `self` to the end of `other`; `self` alone if a macro makes the two lie in
    /// different locations.
    pub fn to(self, other: Span) -> Self {
        if self.file == other.file && self.start <= other.start && self.end <= other.end {
            Self {
                end: other.end,
                ..self
            }
        } else {
            self
        }
    }

    /// The empty span right after `self`.
    pub fn after(self) -> Self {
        Self {
            start: self.end,
            ..self
        }
    }

    /// Length in bytes.
    pub fn len(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }

    /// Whether it is empty.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// The text of a built-in file that is unpacked when it is first read: a function and its argument, the file's number.
type Unpack = (fn(usize) -> String, usize);

/// One source file.
#[derive(Debug, Clone)]
pub struct SourceFile {
    name: String,
    built_in: bool,
    text: OnceLock<Cow<'static, str>>,
    unpack: Unpack,
    bad_utf8: bool,
    lines: OnceLock<Vec<u32>>,
}

/// A position for people: line and column from 1, the column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineCol {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub col: u32,
}

impl SourceFile {
    /// The name shown to the user.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text; bytes that are not UTF-8 are [`BAD_BYTE`].
    pub fn text(&self) -> &str {
        let (unpack, number) = self.unpack;
        self.text.get_or_init(|| Cow::Owned(unpack(number)))
    }

    /// Whether some bytes were replaced by [`BAD_BYTE`].
    pub fn has_bad_utf8(&self) -> bool {
        self.bad_utf8
    }

    /// Offsets of the first byte of each line.
    pub fn line_starts(&self) -> &[u32] {
        self.lines.get_or_init(|| {
            let newlines = self.text().bytes().enumerate().filter(|(_, b)| *b == b'\n');
            std::iter::once(0)
                .chain(newlines.map(|(i, _)| i.fit::<u32>() + 1))
                .collect()
        })
    }

    /// Line of a byte offset, from 1; cheaper than [`Self::line_col`] on long lines.
    pub fn line(&self, offset: u32) -> u32 {
        self.line_starts()
            .partition_point(|&s| s <= offset)
            .max(1)
            .fit::<u32>()
    }

    /// Line and column of a byte offset; an offset past the end is taken as the end.
    pub fn line_col(&self, offset: u32) -> LineCol {
        let offset = self.floor_char(offset as usize);
        let starts = self.line_starts();
        let line = starts.partition_point(|&s| s as usize <= offset).max(1);
        let col = self.text()[starts[line - 1] as usize..offset]
            .chars()
            .count();
        LineCol {
            line: line.fit(),
            col: col.fit::<u32>() + 1,
        }
    }

    /// The nearest character boundary at or before `offset`.
    pub fn floor_char(&self, offset: usize) -> usize {
        let text = self.text();
        let mut boundary = offset.min(text.len());
        while !text.is_char_boundary(boundary) {
            boundary -= 1;
        }
        boundary
    }
}

/// All source files of a run. Only grows: a [`FileId`] stays valid.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    files: Vec<SourceFile>,
}

impl Sources {
    /// No files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file of the user. `name` is its name in diagnostics. Static text is not copied.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        content: impl Into<Cow<'static, [u8]>>,
    ) -> FileId {
        self.add_from(name.into(), content.into(), false)
    }

    /// As [`Self::add`] for text of the program itself, which has the privileges of the library.
    pub fn add_built_in(
        &mut self,
        name: impl Into<String>,
        content: impl Into<Cow<'static, [u8]>>,
    ) -> FileId {
        self.add_from(name.into(), content.into(), true)
    }

    fn add_from(&mut self, name: String, content: Cow<'static, [u8]>, built_in: bool) -> FileId {
        let (text, bad_utf8) = match content {
            Cow::Borrowed(b) => match std::str::from_utf8(b) {
                Ok(s) => (Cow::Borrowed(s), false),
                Err(_) => (Cow::Owned(replace_bad(b)), true),
            },
            Cow::Owned(b) => match String::from_utf8(b) {
                Ok(s) => (Cow::Owned(s), false),
                Err(e) => (Cow::Owned(replace_bad(e.as_bytes())), true),
            },
        };
        let unpack: Unpack = (|_| String::new(), 0);
        self.add_file(name, (text.into(), unpack), bad_utf8, built_in)
    }

    /// As [`Self::add_built_in`] for a file whose text `unpack` gives, from the number, when it is first read.
    pub fn add_packed(
        &mut self,
        name: impl Into<String>,
        unpack: fn(usize) -> String,
        number: usize,
    ) -> FileId {
        let text = (OnceLock::new(), (unpack, number));
        self.add_file(name.into(), text, false, true)
    }

    fn add_file(
        &mut self,
        name: String,
        (text, unpack): (OnceLock<Cow<'static, str>>, Unpack),
        bad_utf8: bool,
        built_in: bool,
    ) -> FileId {
        self.files.push(SourceFile {
            name,
            built_in,
            text,
            unpack,
            bad_utf8,
            lines: OnceLock::new(),
        });
        FileId::new(self.files.len() - 1, built_in)
    }

    /// The file, or `None` if the id belongs to another [`Sources`].
    pub fn get(&self, id: FileId) -> Option<&SourceFile> {
        self.files.get(id.index())
    }

    /// Name of a file; `?` for an unknown one.
    pub fn name(&self, id: FileId) -> &str {
        self.get(id).map_or("?", SourceFile::name)
    }

    /// Text of a file; empty for an unknown one.
    pub fn text(&self, id: FileId) -> &str {
        self.get(id).map_or("", SourceFile::text)
    }

    /// The text of a span; empty if the span is not on character boundaries.
    pub fn slice(&self, span: Span) -> &str {
        self.text(span.file)
            .get(span.start as usize..span.end as usize)
            .unwrap_or("")
    }

    /// Line and column of a span's start.
    pub fn line_col(&self, span: Span) -> LineCol {
        self.get(span.file)
            .map_or(LineCol { line: 1, col: 1 }, |f| f.line_col(span.start))
    }

    /// `name:line:col`, the way SystemTap's run-time errors name a token.
    pub fn location(&self, span: Span) -> String {
        let LineCol { line, col } = self.line_col(span);
        format!("{}:{line}:{col}", self.name(span.file))
    }

    /// All files with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (FileId, &SourceFile)> {
        self.files
            .iter()
            .enumerate()
            .map(|(i, f)| (FileId::new(i, f.built_in), f))
    }
}

/// `bytes` as text of the same length, with [`BAD_BYTE`] for every byte outside valid UTF-8.
fn replace_bad(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| BAD_BYTE as char));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_have_lines_and_columns() {
        let mut s = Sources::new();
        let f = s.add("a", b"ab\n\xc3\xa9x\r\n".to_vec());
        assert_eq!(s.line_col(Span::new(f, 0, 1)), LineCol { line: 1, col: 1 });
        assert_eq!(s.line_col(Span::new(f, 5, 6)), LineCol { line: 2, col: 2 });
        assert_eq!(
            s.line_col(Span::new(f, 99, 99)),
            LineCol { line: 3, col: 1 }
        );
        assert_eq!(s.location(Span::new(f, 3, 4)), "a:2:1");
    }

    #[test]
    fn files_keep_their_origin() {
        let mut s = Sources::new();
        let files = [s.add("a", &b"1"[..]), s.add_built_in("b", &b"2"[..])];
        assert_eq!(files.map(FileId::is_built_in), [false, true]);
        assert_eq!(files.map(|f| s.text(f).to_owned()), ["1", "2"]);
        assert!(s.iter().map(|(id, _)| id).eq(files));
        assert!(!FileId::default().is_built_in() && !FileId::ANYONE.is_built_in());
        assert!(FileId::COMPILER.is_built_in());
    }

    #[test]
    fn bad_bytes_keep_offsets() {
        let mut s = Sources::new();
        let f = s.add("a", b"x\xff\xc3y".to_vec());
        assert_eq!(s.text(f), "x\u{1a}\u{1a}y");
        assert!(s.get(f).is_some_and(SourceFile::has_bad_utf8));
    }
}
