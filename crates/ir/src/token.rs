//! Words, numbers, strings and punctuation of the text form, and a cursor over them.

use std::fmt::{self, Formatter};

use spile_cast::Cast;

/// A syntax error and its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadError {
    /// Line number, from 1.
    pub line: usize,
    /// The expected element.
    pub message: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ReadError {}

pub(crate) type Res<T> = Result<T, ReadError>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    /// Letters, digits, `_` and `@`, not starting with a digit.
    Word(String),
    /// A number with its sign.
    Num(i128),
    Str(Vec<u8>),
    Punct(char),
}

/// Splits a text into tokens, each with its line number.
pub(crate) fn tokens(text: &str) -> Res<Vec<(Token, usize)>> {
    let mut out = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let number = i + 1;
        let error = |message: &str| {
            Err(ReadError {
                line: number,
                message: message.to_string(),
            })
        };
        let mut rest = line.as_bytes();
        while let Some(&c) = rest.first() {
            match c {
                b' ' | b'\t' | b'\r' => rest = &rest[1..],
                b';' => break,
                b'"' => {
                    let Some((s, tail)) = string(&rest[1..]) else {
                        return error("string without an end or with a bad escape");
                    };
                    out.push((Token::Str(s), number));
                    rest = tail;
                }
                b'-' | b'0'..=b'9' => {
                    let len = 1 + rest[1..].iter().take_while(|b| b.is_ascii_digit()).count();
                    let n = std::str::from_utf8(&rest[..len])
                        .ok()
                        .and_then(|n| n.parse().ok());
                    let Some(n) = n else {
                        return error("bad number");
                    };
                    out.push((Token::Num(n), number));
                    rest = &rest[len..];
                }
                b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'@' => {
                    let part = |b: &&u8| b.is_ascii_alphanumeric() || **b == b'_' || **b == b'@';
                    let len = rest.iter().take_while(part).count();
                    let word = String::from_utf8_lossy(&rest[..len]).into_owned();
                    out.push((Token::Word(word), number));
                    rest = &rest[len..];
                }
                _ if c.is_ascii() => {
                    out.push((Token::Punct(char::from(c)), number));
                    rest = &rest[1..];
                }
                _ => return error("byte outside ASCII"),
            }
        }
    }
    Ok(out)
}

/// The string after its opening quote, and the rest of the text after it.
fn string(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut out = Vec::new();
    loop {
        let (&c, tail) = rest.split_first()?;
        rest = tail;
        match c {
            b'"' => return Some((out, rest)),
            b'\\' => {
                let (&e, tail) = rest.split_first()?;
                rest = tail;
                out.push(match e {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'"' | b'\\' => e,
                    b'x' => {
                        let hex = std::str::from_utf8(rest.get(..2)?).ok()?;
                        rest = &rest[2..];
                        u8::from_str_radix(hex, 16).ok()?
                    }
                    _ => return None,
                });
            }
            _ => out.push(c),
        }
    }
}

/// The tokens of a text, each with its line, and the position of the next one.
pub(crate) struct Reader {
    tokens: Vec<(Token, usize)>,
    pos: usize,
}

impl Reader {
    pub(crate) fn new(text: &str) -> Res<Reader> {
        let tokens = tokens(text)?;
        Ok(Reader { tokens, pos: 0 })
    }

    pub(crate) fn peek(&self) -> Option<&Token> {
        self.peek_at(0)
    }

    /// The token after the `n` next ones.
    pub(crate) fn peek_at(&self, n: usize) -> Option<&Token> {
        self.tokens.get(self.pos + n).map(|(t, _)| t)
    }

    pub(crate) fn error<T>(&self, expected: &str) -> Res<T> {
        let line = self
            .tokens
            .get(self.pos)
            .or(self.tokens.last())
            .map_or(1, |(_, l)| *l);
        let next = self
            .peek()
            .map_or("the end".to_string(), |t| format!("{t:?}"));
        Err(ReadError {
            line,
            message: format!("expected {expected}, found {next}"),
        })
    }

    /// An error at the token before.
    pub(crate) fn error_before<T>(&mut self, expected: &str) -> Res<T> {
        self.pos -= 1;
        self.error(expected)
    }

    /// Takes the next token if it is a word for which `find` has a value.
    pub(crate) fn opt_by<T>(&mut self, find: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let Some(Token::Word(w)) = self.peek() else {
            return None;
        };
        let value = find(w)?;
        self.pos += 1;
        Some(value)
    }

    pub(crate) fn opt_word(&mut self) -> Option<String> {
        self.opt_by(|w| Some(w.to_string()))
    }

    /// Takes the word, the punctuation or the empty string (`""` in quotes) `want` if it comes next; "" always
    /// does.
    pub(crate) fn opt(&mut self, want: &str) -> bool {
        let want = want.trim_start();
        let next = match self.peek() {
            Some(Token::Word(word)) => word == want,
            Some(Token::Punct(c)) => want.chars().eq([*c]),
            Some(Token::Str(bytes)) => bytes.is_empty() && want == r#""""#,
            _ => false,
        };
        self.pos += usize::from(next);
        next || want.is_empty()
    }

    /// Whether this punctuation comes next.
    pub(crate) fn at(&self, punct: char) -> bool {
        self.peek() == Some(&Token::Punct(punct))
    }

    pub(crate) fn want(&mut self, want: &str) -> Res<()> {
        match self.opt(want) {
            true => Ok(()),
            false => self.error(&format!("`{}`", want.trim_start())),
        }
    }

    pub(crate) fn number<T: TryFrom<i128>>(&mut self) -> Res<T> {
        if let Some(Token::Num(n)) = self.peek()
            && let Ok(n) = T::try_from(*n)
        {
            self.pos += 1;
            return Ok(n);
        }
        self.error("a number in range")
    }

    pub(crate) fn bytes(&mut self) -> Res<Vec<u8>> {
        match self.peek() {
            Some(Token::Str(s)) => {
                let s = s.clone();
                self.pos += 1;
                Ok(s)
            }
            _ => self.error("a string"),
        }
    }

    pub(crate) fn text(&mut self) -> Res<String> {
        match String::from_utf8(self.bytes()?) {
            Ok(s) => Ok(s),
            Err(_) => self.error("UTF-8 in the string before"),
        }
    }

    /// An id: its letters and a number.
    pub(crate) fn opt_id(&mut self, prefix: &str) -> Option<u32> {
        self.opt_by(|w| {
            let digits = w.strip_prefix(prefix)?;
            let is_number = digits.starts_with(|c: char| c.is_ascii_digit());
            digits.parse().ok().filter(|_| is_number)
        })
    }

    /// The id of an entry; entries must come in the order of their numbers.
    pub(crate) fn index(&mut self, prefix: &str, next: usize) -> Res<()> {
        if self.opt_id(prefix) == Some(next.fit::<u32>()) {
            return Ok(());
        }
        self.error(&format!("`{prefix}{next}`"))
    }
}
