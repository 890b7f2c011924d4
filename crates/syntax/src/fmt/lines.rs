//! The output, line by line, and the columns of comments at line ends.

/// Columns between code and the comment that ends its line.
const BEFORE_COMMENT: usize = 2;
/// Width of a tab stop.
const TAB: usize = 8;

/// One line of output.
#[derive(Debug, Default)]
struct OutputLine {
    text: Vec<u8>,
    /// Columns of `text`.
    width: usize,
    /// A comment at its end, and the column where the author had it.
    trailing: Option<(Vec<u8>, usize)>,
}

/// All lines so far; the last one is being written.
#[derive(Debug, Default)]
pub(super) struct OutputLines {
    lines: Vec<OutputLine>,
    /// Indentation of the last line in columns.
    indent: usize,
}

/// The columns that a text takes when it starts at column `from`.
pub(super) fn columns(text: &str, from: usize) -> usize {
    text.chars().fold(from, |col, c| match c {
        '\t' => (col / TAB + 1) * TAB,
        _ => col + 1,
    })
}

impl OutputLines {
    /// Ends the line and begins one with this indentation, after an empty line if `blank`.
    pub(super) fn start(&mut self, indent: usize, blank: bool) {
        if blank && !self.lines.is_empty() {
            self.lines.push(OutputLine::default());
        }
        let text = vec![b' '; indent];
        self.lines.push(OutputLine {
            text,
            width: indent,
            trailing: None,
        });
        self.indent = indent;
    }

    /// Whether nothing was written on this line.
    pub(super) fn at_start(&self) -> bool {
        self.lines
            .last()
            .is_none_or(|l| l.text.len() == self.indent && l.trailing.is_none())
    }

    /// Whether the line is complete because a comment ended it.
    pub(super) fn ended(&self) -> bool {
        self.lines.last().is_none_or(|l| l.trailing.is_some())
    }

    /// The column of the next text.
    pub(super) fn column(&self) -> usize {
        self.lines.last().map_or(0, |l| l.width)
    }

    /// The indentation of the current line.
    pub(super) fn indent(&self) -> usize {
        self.indent
    }

    /// Writes a piece, which can span lines; `shown` is the same as text, for its width.
    pub(super) fn push(&mut self, bytes: &[u8], shown: &str) {
        if self.lines.is_empty() {
            self.start(0, false);
        }
        if let Some(line) = self.lines.last_mut() {
            line.text.extend_from_slice(bytes);
            line.width = match shown.rfind('\n') {
                Some(newline) => columns(&shown[newline + 1..], 0),
                None => columns(shown, line.width),
            };
        }
    }

    /// Ends the line with a comment that the author had at column `col`.
    pub(super) fn trailing(&mut self, comment: &[u8], col: usize) {
        if let Some(line) = self.lines.last_mut() {
            line.trailing = Some((comment.to_vec(), col));
        }
    }

    /// The text. Comments of adjacent lines that were aligned stay aligned.
    pub(super) fn finish(self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut lines = &self.lines[..];
        while let Some(first) = lines.first() {
            let column = |l: &OutputLine| l.trailing.as_ref().map(|t| t.1);
            let run = match column(first) {
                None => 1,
                col => lines.iter().take_while(|l| column(l) == col).count(),
            };
            let (group, rest) = lines.split_at(run);
            let width = group.iter().map(|l| l.width).max().unwrap_or(0);
            for line in group {
                out.extend_from_slice(&line.text);
                if let Some((comment, _)) = &line.trailing {
                    let blanks = width - line.width + BEFORE_COMMENT;
                    out.resize(out.len() + blanks, b' ');
                    out.extend_from_slice(comment);
                }
                let used = out.trim_ascii_end().len();
                // A piece over several lines keeps its inner ones; only this line is trimmed.
                let line_start = out.iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
                out.truncate(used.max(line_start));
                out.push(b'\n');
            }
            lines = rest;
        }
        out
    }
}
