//! The reader of format strings, `printf`'s and the `sprintf` family's.
//!
//! `%[flags][width][.precision][l]letter`, where flags are any of `0 + - space #`, width and
//! precision are numbers or `*`, any number of `l` is accepted and means nothing, and a `.`
//! with nothing after it is precision 0.

use super::format::{Conv, ConvKind, Count, Format, Piece};
use crate::intrinsics::ValueKind;

/// Widths and precisions above this are refused; no string of the language is longer.
const MAX_COUNT: u32 = 65_536;

/// An error in a format string, and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatError {
    /// Byte position in the format, counted after its escapes were replaced.
    pub pos: usize,
    /// A sentence without a full stop.
    pub message: String,
}

impl std::fmt::Display for FormatError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at byte {}", self.message, self.pos)
    }
}

impl std::error::Error for FormatError {}

/// Conversion letters.
const LETTERS: &[(u8, ConvKind)] = &[
    (b'd', ConvKind::Dec),
    (b'i', ConvKind::Dec),
    (b'u', ConvKind::Unsigned),
    (b'o', ConvKind::Octal),
    (b'x', ConvKind::Hex),
    (b'X', ConvKind::HexUpper),
    (b'p', ConvKind::Pointer),
    (b's', ConvKind::Str),
    (b'c', ConvKind::Char),
    (b'b', ConvKind::Binary),
    (b'm', ConvKind::Mem),
    (b'M', ConvKind::MemHex),
];

impl ConvKind {
    /// The conversion letter in the text form.
    pub fn letter(self) -> char {
        LETTERS
            .iter()
            .find(|(_, k)| *k == self)
            .map_or('d', |(l, _)| char::from(*l))
    }
}

impl Format {
    /// Reads a format.
    ///
    /// # Errors
    /// An unknown letter, an unfinished conversion, a width or a precision that is too large.
    pub fn parse(text: &[u8]) -> Result<Format, FormatError> {
        let mut p = Parser { text, pos: 0 };
        let mut pieces = Vec::new();
        let mut lit = Vec::new();
        while let Some(c) = p.next() {
            if c != b'%' {
                lit.push(c);
                continue;
            }
            if p.eat(b'%') {
                lit.push(b'%');
                continue;
            }
            let conv = p.conversion()?;
            if !lit.is_empty() {
                pieces.push(Piece::Lit(std::mem::take(&mut lit).into()));
            }
            pieces.push(Piece::Conv(conv));
        }
        if !lit.is_empty() {
            pieces.push(Piece::Lit(lit.into()));
        }
        Ok(Format { pieces })
    }

    /// The types of the arguments in order: for each conversion the `*` width, the `*` precision
    /// and the value.
    pub fn arg_kinds(&self) -> Vec<ValueKind> {
        let mut kinds = Vec::new();
        for piece in &self.pieces {
            let Piece::Conv(c) = piece else { continue };
            for count in [c.width, c.precision] {
                if count == Count::Arg {
                    kinds.push(ValueKind::Long);
                }
            }
            kinds.push(if c.kind.takes_string() {
                ValueKind::Str
            } else {
                ValueKind::Long
            });
        }
        kinds
    }
}

struct Parser<'a> {
    text: &'a [u8],
    pos: usize,
}

impl Parser<'_> {
    fn next(&mut self) -> Option<u8> {
        let c = self.text.get(self.pos).copied();
        self.pos += usize::from(c.is_some());
        c
    }

    fn eat(&mut self, want: u8) -> bool {
        let yes = self.text.get(self.pos) == Some(&want);
        self.pos += usize::from(yes);
        yes
    }

    fn error<T>(&self, pos: usize, message: impl Into<String>) -> Result<T, FormatError> {
        Err(FormatError {
            pos,
            message: message.into(),
        })
    }

    /// Parses a conversion after its `%`.
    fn conversion(&mut self) -> Result<Conv, FormatError> {
        let start = self.pos - 1;
        let mut c = Conv::default();
        while let Some(next) = self.text.get(self.pos)
            && let Some((_, on)) = c.flags().into_iter().find(|(flag, _)| flag == next)
        {
            *on = true;
            self.pos += 1;
        }
        c.width = self.count()?;
        if self.eat(b'.') {
            c.precision = match self.count()? {
                Count::None => Count::Fixed(0),
                count => count,
            };
        }
        while self.eat(b'l') {}
        let position = self.pos;
        let Some(letter) = self.next() else {
            return self.error(start, "unfinished conversion");
        };
        let Some((_, kind)) = LETTERS.iter().find(|(l, _)| *l == letter) else {
            let shown = letter.escape_ascii();
            return self.error(position, format!("unknown conversion letter `{shown}`"));
        };
        c.kind = *kind;
        Ok(c)
    }

    /// Parses a number, `*`, or nothing.
    fn count(&mut self) -> Result<Count, FormatError> {
        if self.eat(b'*') {
            return Ok(Count::Arg);
        }
        let start = self.pos;
        let mut n = 0u32;
        while let Some(d) = self.text.get(self.pos).filter(|d| d.is_ascii_digit()) {
            n = n.saturating_mul(10).saturating_add(u32::from(d - b'0'));
            self.pos += 1;
        }
        if n > MAX_COUNT {
            return self.error(start, format!("number above {MAX_COUNT}"));
        }
        Ok(if self.pos == start {
            Count::None
        } else {
            Count::Fixed(n)
        })
    }
}

impl Conv {
    /// The flags with their characters.
    fn flags(&mut self) -> [(u8, &mut bool); 5] {
        [
            (b'-', &mut self.left),
            (b'+', &mut self.plus),
            (b' ', &mut self.space),
            (b'0', &mut self.zero),
            (b'#', &mut self.alt),
        ]
    }
}

impl std::fmt::Display for Conv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("%")?;
        for (flag, on) in self.clone().flags() {
            if *on {
                write!(f, "{}", char::from(flag))?;
            }
        }
        match self.width {
            Count::None => {}
            Count::Fixed(n) => write!(f, "{n}")?,
            Count::Arg => f.write_str("*")?,
        }
        match self.precision {
            Count::None => {}
            Count::Fixed(n) => write!(f, ".{n}")?,
            Count::Arg => f.write_str(".*")?,
        }
        write!(f, "{}", self.kind.letter())
    }
}

impl Format {
    /// The format string, for the text form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Lit(text) => {
                    for b in text.iter() {
                        out.extend(std::iter::repeat_n(*b, 1 + usize::from(*b == b'%')));
                    }
                }
                Piece::Conv(c) => out.extend(c.to_string().bytes()),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_pieces_and_argument_kinds() {
        let f = Format::parse(b"100%% %-*.3lls|%#p %.*d %c\n").unwrap();
        assert_eq!(f.pieces.len(), 9);
        assert_eq!(f.pieces[0], Piece::Lit(b"100% ".as_slice().into()));
        use ValueKind::{Long, Str};
        assert_eq!(f.arg_kinds(), [Long, Str, Long, Long, Long, Long]);
        assert_eq!(f.to_bytes(), b"100%% %-*.3s|%#p %.*d %c\n");
    }

    #[test]
    fn errors_have_locations() {
        for (text, pos, part) in [
            ("ab%q", 3, "letter `q`"),
            ("ab%-5", 2, "unfinished"),
            ("%", 0, "unfinished"),
            ("%99999999999d", 1, "above"),
            ("%hd", 1, "letter `h`"),
        ] {
            let e = Format::parse(text.as_bytes()).unwrap_err();
            assert_eq!(e.pos, pos, "{text}");
            assert!(e.message.contains(part), "{e}");
        }
    }
}
