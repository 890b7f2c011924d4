//! Text to tokens, in one pass over the bytes.
//!
//! Command line arguments, macros and conditionals become tokens of their own, which
//! [`crate::preproc`] resolves; those in branches not taken are never examined.

use spile_cast::Cast;

use crate::ast::{FileId, LiteralBytes, Span};
use crate::codes;
use crate::diag::{Diagnostic, Diagnostics};
use crate::source::{BAD_BYTE, MAX_SOURCE, Sources};
use crate::token::{Tok, Token};

/// Splits a file into tokens, without an end-of-file token. A file that cannot be text (too large,
/// NUL bytes) gives one error and no tokens.
pub fn lex(sources: &Sources, file: FileId, diags: &mut Diagnostics) -> Vec<Token> {
    let text = sources.text(file);
    let bad_utf8 = sources.get(file).is_some_and(|f| f.has_bad_utf8());
    if text.len() > MAX_SOURCE {
        let message = format!("{} is too large: {} bytes", sources.name(file), text.len());
        let d = Diagnostic::error(codes::TOO_LARGE, message);
        diags.push(d.note(format!("the limit is {MAX_SOURCE} bytes")));
        return Vec::new();
    }
    if let Some(offset) = text.bytes().position(|b| b == 0) {
        let span = Span::new(file, offset.fit::<u32>(), offset.fit::<u32>() + 1);
        let d = Diagnostic::error(codes::NUL_BYTE, "the file contains a NUL byte");
        diags.push(
            d.at(span)
                .help("is this a script? Inside a string, write `\\0`"),
        );
        return Vec::new();
    }
    let mut lexer = Lexer {
        text,
        bytes: text.as_bytes(),
        pos: 0,
        file,
        bad_utf8,
        diags,
        out: Vec::with_capacity(text.len() / 5),
    };
    lexer.run();
    lexer.out
}

const NO_OPERATOR: u8 = u8::MAX;
/// For each first byte the indexes into [`Tok::OPERATORS`], in its order.
static BY_FIRST: [[u8; 8]; 128] = {
    let mut table = [[NO_OPERATOR; 8]; 128];
    let mut i = 0;
    while i < Tok::OPERATORS.len() {
        let slots = &mut table[Tok::OPERATORS[i].1.as_bytes()[0] as usize];
        let mut free = 0;
        while slots[free] != NO_OPERATOR {
            free += 1;
        }
        slots[free] = spile_cast::u8_of(i);
        i += 1;
    }
    table
};

struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    pos: usize,
    file: FileId,
    bad_utf8: bool,
    diags: &'a mut Diagnostics,
    out: Vec<Token>,
}

fn is_ident_start(b: u8) -> bool {
    b.is_ascii_alphabetic() || b == b'_' || b == b'$'
}

fn is_ident(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b == b'$'
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.pos + ahead).copied().unwrap_or(0)
    }

    fn span(&self, start: usize) -> Span {
        Span::new(self.file, start.fit::<u32>(), self.pos.fit::<u32>())
    }

    fn push(&mut self, kind: Tok, start: usize) {
        let span = self.span(start);
        self.out.push(Token {
            kind,
            span,
            expansion: 0,
        });
    }

    fn run(&mut self) {
        // A `#!` line is a `#` comment like any other.
        while let Some(&b) = self.bytes.get(self.pos) {
            let start = self.pos;
            match b {
                b' ' | b'\t' | b'\n' | b'\r' | b'\x0b' | b'\x0c' => self.pos += 1,
                b'#' => self.line_comment(),
                b'/' if self.peek(1) == b'/' => self.line_comment(),
                b'/' if self.peek(1) == b'*' => self.block_comment(),
                b'"' => self.string(),
                b'0'..=b'9' => self.number(),
                b'$' if self.peek(1) == b'#' => self.fixed(Tok::ArgCount, 2),
                b'@' if self.peek(1) == b'#' => self.fixed(Tok::ArgCountQuoted, 2),
                b'$' if self.peek(1).is_ascii_digit() => self.argument(Tok::Arg),
                b'@' if self.peek(1).is_ascii_digit() => self.argument(Tok::ArgQuoted),
                b'@' if is_ident_start(self.peek(1)) => {
                    self.pos += 1;
                    self.take_while(is_ident);
                    self.push(Tok::AtIdent, start);
                }
                b if is_ident_start(b) => {
                    self.take_while(is_ident);
                    let kind = Tok::keyword(&self.text[start..self.pos]).unwrap_or(Tok::Ident);
                    self.push(kind, start);
                }
                b'%' if self.peek(1) == b'{' => self.embedded(),
                _ => self.operator(),
            }
        }
    }

    fn take_while(&mut self, f: impl Fn(u8) -> bool) {
        let rest = &self.bytes[self.pos..];
        self.pos += rest.iter().position(|b| !f(*b)).unwrap_or(rest.len());
    }

    fn fixed(&mut self, kind: Tok, len: usize) {
        let start = self.pos;
        self.pos += len;
        self.push(kind, start);
    }

    fn line_comment(&mut self) {
        self.take_while(|b| b != b'\n');
    }

    /// Goes past the mark of two characters that closes the one here; without one, to the end, with an error.
    fn take_closed(&mut self, close: &str, code: &'static str, what: &str) -> bool {
        let start = self.pos;
        let inner = self.text[start + 2..].find(close);
        self.pos = inner.map_or(self.bytes.len(), |n| start + n + 4);
        if inner.is_none() {
            let open = Span::new(self.file, start.fit::<u32>(), start.fit::<u32>() + 2);
            let d = Diagnostic::error(code, format!("{what} is never closed"));
            let label = format!("no `{close}` after this");
            self.diags.push(d.label(open, label));
        }
        inner.is_some()
    }

    fn block_comment(&mut self) {
        self.take_closed("*/", codes::UNTERMINATED_COMMENT, "this comment");
    }

    fn embedded(&mut self) {
        let start = self.pos;
        if self.take_closed("%}", codes::UNTERMINATED_EMBEDDED, "embedded code") {
            self.push(Tok::Embedded, start);
        }
    }

    fn string(&mut self) {
        let start = self.pos;
        self.pos += 1;
        loop {
            match self.bytes.get(self.pos) {
                Some(b'"') => break,
                Some(b'\\') if self.peek(1) != b'\n' => self.pos += 2,
                Some(&BAD_BYTE) if self.bad_utf8 => {
                    self.pos += 1;
                    self.bad_utf8_error(self.pos - 1);
                }
                None | Some(b'\n' | b'\\') => {
                    self.pos = self.pos.min(self.bytes.len());
                    let span = self.span(start);
                    let d = Diagnostic::error(
                        codes::UNTERMINATED_STRING,
                        "this string is not closed on its line",
                    );
                    let help = "end it with `\"`; for a line break write `\\n`; \
                                strings that stand side by side are joined";
                    self.diags.push(d.label(span, "no closing `\"`").help(help));
                    // Replaces the string, so that the parser does not report it again.
                    self.push(Tok::ArgStr, start);
                    return;
                }
                Some(_) => self.pos += 1,
            }
        }
        self.pos += 1;
        self.push(Tok::Str, start);
    }

    fn number(&mut self) {
        let start = self.pos;
        self.take_while(|b| b.is_ascii_alphanumeric() || b == b'_');
        if self.peek(0) == b'.' && self.peek(1).is_ascii_digit() {
            self.pos += 1;
            self.take_while(is_ident);
            let span = self.span(start);
            let d = Diagnostic::error(codes::FLOAT_LITERAL, "there are no floating-point literals");
            let d = d.label(span, "not a whole number");
            self.diags
                .push(d.help("use a smaller unit, or `string_to_fp(\"1.5\")`"));
        }
        // The parser checks its digits: in a probe point it can be part of a name.
        self.push(Tok::Num, start);
    }

    fn argument(&mut self, kind: Tok) {
        let start = self.pos;
        self.pos += 1;
        self.take_while(|b| b.is_ascii_digit());
        self.push(kind, start);
    }

    fn operator(&mut self) {
        let rest = &self.bytes[self.pos..];
        let candidates = BY_FIRST.get(rest[0] as usize).map_or(&[][..], |c| &c[..]);
        for &i in candidates.iter().take_while(|i| **i != NO_OPERATOR) {
            let (kind, text) = Tok::OPERATORS[i as usize];
            if rest.starts_with(text.as_bytes()) {
                return self.fixed(kind, text.len());
            }
        }
        self.bad_char();
    }

    fn bad_utf8_error(&mut self, offset: usize) {
        let span = Span::new(self.file, offset.fit::<u32>(), offset.fit::<u32>() + 1);
        let d = Diagnostic::error(codes::BAD_UTF8, "the script is not valid UTF-8 here");
        self.diags.push(
            d.label(span, "this byte")
                .help("save it as UTF-8, or write the byte as `\\x..`"),
        );
    }

    /// Reports one error for a run of bad characters.
    fn bad_char(&mut self) {
        let start = self.pos;
        if self.bad_utf8 && self.bytes[start] == BAD_BYTE {
            self.take_while(|b| b == BAD_BYTE);
            return self.bad_utf8_error(start);
        }
        let c = self.text[start..].chars().next().unwrap_or('?');
        self.pos += c.len_utf8();
        let more = |b: u8| !b.is_ascii() || (b.is_ascii_control() && !b.is_ascii_whitespace());
        if more(self.bytes[start]) {
            self.take_while(|b| more(b) && b != BAD_BYTE);
        }
        let shown = match c.is_control() {
            true => c.escape_default().to_string(),
            false => c.to_string(),
        };
        let message = format!("no token begins with `{shown}`");
        let span = self.span(start);
        let d = Diagnostic::error(codes::BAD_CHAR, message).at(span);
        let hint = match c {
            '\'' => Some("strings are written with `\"`"),
            '\u{201c}' | '\u{201d}' | '\u{201e}' => {
                Some("a typographic quotation mark; write `\"`")
            }
            '\u{2013}' | '\u{2014}' | '\u{2212}' => Some("a typographic dash; write `-`"),
            '@' => Some("an operator or a macro follows `@`, without a space"),
            _ => None,
        };
        self.diags.push(d.help_if(hint));
    }
}

/// The value of a number literal: decimal, `0x` or octal with a leading 0; up to 2^64-1, values
/// past 2^63-1 wrap to negative ones.
pub fn parse_number(text: &str) -> Result<i64, String> {
    let (digits, radix, what) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16, "hexadecimal"),
        [b'0', _, ..] => (&text[1..], 8, "octal"),
        _ => (text, 10, "decimal"),
    };
    if digits.is_empty() {
        return Err(format!("`{text}` has no digits"));
    }
    if let Some(bad) = digits.chars().find(|c| !c.is_digit(radix)) {
        return Err(format!("`{bad}` is no {what} digit"));
    }
    match u64::from_str_radix(digits, radix) {
        Ok(n) => Ok(n.cast_signed()),
        Err(_) => Err(format!("`{text}` does not fit in 64 bits")),
    }
}

/// The bytes of a string token, `inner` being the text between its quotes, and the offsets in it of
/// backslashes that begin no escape (they are dropped).
pub fn unescape(inner: &str) -> (LiteralBytes, Vec<usize>) {
    if !inner.contains('\\') {
        return (inner.as_bytes().into(), Vec::new());
    }
    let s = inner.as_bytes();
    let mut out = Vec::with_capacity(s.len());
    let mut unknown = Vec::new();
    let mut i = 0;
    while i < s.len() {
        if s[i] != b'\\' || i + 1 == s.len() {
            out.push(s[i]);
            i += 1;
            continue;
        }
        let simple = SIMPLE_ESCAPES.iter().find(|(c, _)| *c == s[i + 1]);
        let (value, used) = match (simple, s[i + 1]) {
            (Some((_, v)), _) => (*v, 2),
            (None, b'0'..=b'7') => digits(&s[i + 1..], 3, 8, 1),
            (None, b'x') if s.get(i + 2).is_some_and(u8::is_ascii_hexdigit) => {
                digits(&s[i + 2..], 2, 16, 2)
            }
            (None, _) => {
                unknown.push(i);
                i += 1;
                // The character itself can be several bytes long; the loop copies it.
                if s[i].is_ascii() {
                    out.push(s[i]);
                    i += 1;
                }
                continue;
            }
        };
        out.push(value);
        i += used;
    }
    (out.into(), unknown)
}

const SIMPLE_ESCAPES: &[(u8, u8)] = &[
    (b'a', 7),
    (b'b', 8),
    (b't', b'\t'),
    (b'n', b'\n'),
    (b'v', 11),
    (b'f', 12),
    (b'r', b'\r'),
    (b'\\', b'\\'),
    (b'"', b'"'),
];

/// Parses up to `max` digits of `radix`; returns the low byte, and the number of bytes used
/// including `prefix`.
fn digits(s: &[u8], max: usize, radix: u32, prefix: usize) -> (u8, usize) {
    let taken = s
        .iter()
        .take(max)
        .map_while(|b| (*b as char).to_digit(radix));
    let (value, n) = taken.fold((0u32, 0), |(v, n), d| (v * radix + d, n + 1));
    (value.low8(), n + prefix)
}

/// A string literal for these bytes, with its quotes.
pub fn escape(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        // A fast path for names: listings have tens of thousands.
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"_.-/ ".contains(&b);
        if chunk.valid().bytes().all(plain) {
            out.push_str(chunk.valid());
        } else {
            chunk.valid().chars().for_each(|c| escape_char(c, &mut out));
        }
        for b in chunk.invalid() {
            let _ = write!(out, "\\{b:03o}");
        }
    }
    out.push('"');
    out
}

fn escape_char(c: char, out: &mut String) {
    let simple = SIMPLE_ESCAPES
        .iter()
        .find(|(_, v)| u32::from(*v) == u32::from(c));
    match simple {
        Some((e, _)) => out.extend(['\\', *e as char]),
        // Always three digits, because a digit may follow.
        None if c.is_ascii_control() => out.push_str(&format!("\\{:03o}", c as u32)),
        None => out.push(c),
    }
}
