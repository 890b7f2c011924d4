//! Words, numbers, strings and punctuation of the text form.

use super::{ReadError, Res};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// Letters, digits, `_` and `@`, not starting with a digit.
    Word(String),
    /// A number with its sign.
    Num(i128),
    Str(Vec<u8>),
    Punct(char),
}

/// Splits a text into tokens, each with its line number.
pub(super) fn tokens(text: &str) -> Res<Vec<(Token, usize)>> {
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
