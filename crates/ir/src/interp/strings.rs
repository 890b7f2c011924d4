//! The intrinsics that only work on their arguments.

use super::Value;
use crate::fmt::escape_within;
use crate::intrinsics::Intrinsic;

/// Runs an intrinsic of this group; `None` when it is not one of them.
pub fn pure(f: Intrinsic, args: &[Value]) -> Option<Value> {
    let text = |i: usize| args.get(i).map_or(&b""[..], |v| v.as_bytes());
    let num = |i: usize| args.get(i).map_or(0, Value::as_long);
    Some(match f {
        Intrinsic::Strlen => Value::Long(text(0).len() as i64),
        Intrinsic::Substr => Value::from(substr(text(0), num(1), num(2))),
        Intrinsic::Stringat => {
            let at = usize::try_from(num(1)).ok().and_then(|i| text(0).get(i));
            Value::Long(at.map_or(0, |b| i64::from(*b)))
        }
        Intrinsic::Isinstr => Value::Long(i64::from(find(text(0), text(1)).is_some())),
        Intrinsic::Strpos => Value::Long(find(text(0), text(1)).map_or(-1, |p| p as i64)),
        Intrinsic::StrReplace => Value::from(&replace(text(0), text(1), text(2))[..]),
        Intrinsic::Strtol => Value::Long(strtol(text(0), num(1))),
        Intrinsic::TextStrn => {
            let room = usize::try_from(num(1)).unwrap_or(0);
            Value::from(&escape_within(text(0), room, num(2) != 0)[..])
        }
        Intrinsic::MetricText => {
            let mut out = Vec::new();
            for b in text(0) {
                match b {
                    b'\n' => out.extend(b"\\n"),
                    b'"' | b'\\' => out.extend([b'\\', *b]),
                    _ => out.push(*b),
                }
            }
            Value::from(&out[..])
        }
        _ => return None,
    })
}

/// Bytes `start..start + len`, as far as they exist; nothing for a negative start or length.
pub fn substr(text: &[u8], start: i64, len: i64) -> &[u8] {
    let (Ok(start), Ok(len)) = (usize::try_from(start), usize::try_from(len)) else {
        return b"";
    };
    let rest = text.get(start..).unwrap_or(b"");
    &rest[..len.min(rest.len())]
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return Some(0);
    }
    text.windows(part.len()).position(|w| w == part)
}

fn replace(mut text: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    if !old.is_empty() {
        while let Some(at) = find(text, old) {
            out.extend_from_slice(&text[..at]);
            out.extend_from_slice(new);
            text = &text[at + old.len()..];
        }
    }
    out.extend_from_slice(text);
    out
}

/// C's `strtol`: spaces, a sign, `0x` or `0` by the base, digits; clamped to 64 bits.
pub fn strtol(text: &[u8], base: i64) -> i64 {
    let spaces = text
        .iter()
        .take_while(|b| matches!(b, b' ' | 9..=13))
        .count();
    let mut text = &text[spaces..];
    let negative = text.first() == Some(&b'-');
    if matches!(text.first(), Some(b'+' | b'-')) {
        text = &text[1..];
    }
    let hex =
        text.len() > 2 && text[0] == b'0' && text[1] | 0x20 == b'x' && text[2].is_ascii_hexdigit();
    let base = match base {
        0 | 16 if hex => {
            text = &text[2..];
            16
        }
        0 if text.first() == Some(&b'0') => 8,
        0 => 10,
        2..=36 => base as u32,
        _ => return 0,
    };
    let mut n: i128 = 0;
    for d in text.iter().map_while(|b| char::from(*b).to_digit(base)) {
        n = (n * i128::from(base) + i128::from(d)).min(1 << 64);
    }
    let n = if negative { -n } else { n };
    n.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// What `tokenize` keeps from call to call within one run of a handler.
#[derive(Debug, Clone, Default)]
pub struct Tokens {
    text: Vec<u8>,
    pos: usize,
}

impl Tokens {
    /// The next token: of `text`, or of the text before when `text` is empty. Empty tokens
    /// are passed over; "" means there are no more.
    pub fn next(&mut self, text: &[u8], delims: &[u8]) -> &[u8] {
        if !text.is_empty() {
            (self.text, self.pos) = (text.to_vec(), 0);
        }
        let rest = &self.text[self.pos..];
        let skip = rest.iter().take_while(|b| delims.contains(b)).count();
        let len = rest[skip..]
            .iter()
            .take_while(|b| !delims.contains(b))
            .count();
        let start = self.pos + skip;
        self.pos = (start + len + 1).min(self.text.len());
        &self.text[start..start + len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn substr_gives_what_exists() {
        for (start, len, want) in [
            (0, 3, "abc"),
            (2, 9, "cdef"),
            (6, 1, ""),
            (9, 1, ""),
            (-1, 3, ""),
            (1, -1, ""),
            (0, i64::MAX, "abcdef"),
        ] {
            assert_eq!(substr(b"abcdef", start, len), want.as_bytes());
        }
    }

    #[test]
    fn strtol_as_in_c() {
        for (text, base, want) in [
            ("12", 10, 12),
            ("  -12x", 10, -12),
            ("+7", 10, 7),
            ("0x1f", 16, 31),
            ("0x1f", 0, 31),
            ("0X1F", 0, 31),
            ("1f", 16, 31),
            ("010", 0, 8),
            ("010", 10, 10),
            ("0x", 0, 0),
            ("", 10, 0),
            ("99999999999999999999999999999999999999999999", 10, i64::MAX),
            ("-99999999999999999999", 10, i64::MIN),
            ("z", 36, 35),
            ("5", 1, 0),
        ] {
            assert_eq!(strtol(text.as_bytes(), base), want, "{text} {base}");
        }
    }

    #[test]
    fn tokens_pass_over_empty_ones() {
        let mut t = Tokens::default();
        assert_eq!(t.next(b"", b","), b"");
        assert_eq!(t.next(b",,a,b c,", b", "), b"a");
        assert_eq!(t.next(b"", b", "), b"b");
        assert_eq!(t.next(b"", b", "), b"c");
        assert_eq!(t.next(b"", b", "), b"");
        assert_eq!(t.next(b"", b", "), b"");
    }

    #[test]
    fn text_functions() {
        let run = |f, args: &[&str]| {
            let args: Vec<Value> = args.iter().map(|a| Value::from(*a)).collect();
            pure(f, &args).unwrap()
        };
        assert_eq!(
            run(Intrinsic::StrReplace, &["aXbXc", "X", "--"]),
            "a--b--c".into()
        );
        assert_eq!(run(Intrinsic::StrReplace, &["abc", "", "-"]), "abc".into());
        assert_eq!(run(Intrinsic::Isinstr, &["abc", "bc"]), 1.into());
        assert_eq!(run(Intrinsic::Isinstr, &["abc", "cb"]), 0.into());
        assert_eq!(run(Intrinsic::Strpos, &["abc", "c"]), 2.into());
        assert_eq!(run(Intrinsic::Strpos, &["abc", "x"]), (-1).into());
        for (room, quoted, want) in [
            (100, 1, r#""a\n\"\001""#),
            (100, 0, r#"a\n\"\001"#),
            (8, 0, r#"a\n\""#),
            (4, 0, r"a\n"),
            (0, 0, ""),
            (11, 1, r#""a\n\"\001""#),
            (10, 1, r#""a\n\""..."#),
            (7, 1, r#""a\"..."#),
            (-3, 1, r#"""..."#),
        ] {
            let args = ["a\n\"\u{1}".into(), room.into(), quoted.into()];
            assert_eq!(
                pure(Intrinsic::TextStrn, &args),
                Some(want.into()),
                "{room}"
            );
        }
        assert_eq!(
            run(Intrinsic::MetricText, &["a\n\"\\"]),
            "a\\n\\\"\\\\".into()
        );
        assert_eq!(
            pure(Intrinsic::Stringat, &["ab".into(), 1.into()]),
            Some(98.into())
        );
        assert_eq!(
            pure(Intrinsic::Stringat, &["ab".into(), 2.into()]),
            Some(0.into())
        );
        assert_eq!(pure(Intrinsic::Pid, &[]), None);
    }
}
