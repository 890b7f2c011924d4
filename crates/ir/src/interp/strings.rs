//! The intrinsics that depend on their operands only.

use spile_cast::Cast;

use super::value::Value;
use crate::fmt::escape_within;
use crate::intrinsics::TextOp;

/// Runs an operation on strings.
pub fn evaluate(op: TextOp, args: &[Value]) -> Value {
    let string = |i: usize| args.get(i).map_or(&b""[..], |v| v.as_bytes());
    let num = |i: usize| args.get(i).map_or(0, Value::as_long);
    match op {
        TextOp::Strlen => Value::Long(string(0).len().fit()),
        TextOp::Substr => Value::from(substr(string(0), num(1), num(2))),
        TextOp::Stringat => {
            let byte = usize::try_from(num(1)).ok().and_then(|i| string(0).get(i));
            Value::Long(byte.map_or(0, |b| i64::from(*b)))
        }
        TextOp::Isinstr => Value::Long(i64::from(find(string(0), string(1)).is_some())),
        TextOp::Strpos => Value::Long(find(string(0), string(1)).map_or(-1, |p| p.fit::<i64>())),
        TextOp::StrReplace => Value::from(&replace(string(0), string(1), string(2))[..]),
        TextOp::Strtol => Value::Long(strtol(string(0), num(1))),
        TextOp::StrToFp => Value::Long(string_to_fp(string(0))),
        TextOp::TextStrn => {
            let capacity = usize::try_from(num(1)).unwrap_or(0);
            Value::from(&escape_within(string(0), capacity, num(2) != 0)[..])
        }
        TextOp::MetricText => {
            let mut out = Vec::new();
            for b in string(0) {
                match b {
                    b'\n' => out.extend(b"\\n"),
                    b'"' | b'\\' => out.extend([b'\\', *b]),
                    _ => out.push(*b),
                }
            }
            Value::from(&out[..])
        }
    }
}

/// The bytes `start..start + len` as far as they exist; "" for a negative start or length.
pub fn substr(string: &[u8], start: i64, len: i64) -> &[u8] {
    let (Ok(start), Ok(len)) = (usize::try_from(start), usize::try_from(len)) else {
        return b"";
    };
    let rest = string.get(start..).unwrap_or(b"");
    &rest[..len.min(rest.len())]
}

fn find(string: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return Some(0);
    }
    string.windows(part.len()).position(|w| w == part)
}

fn replace(mut string: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    if !old.is_empty() {
        while let Some(position) = find(string, old) {
            out.extend_from_slice(&string[..position]);
            out.extend_from_slice(new);
            string = &string[position + old.len()..];
        }
    }
    out.extend_from_slice(string);
    out
}

/// The integer at the start of a string, modulo 2^64 (addresses of the kernel are such numbers). The
/// grammar is that of the kernel's `simple_strtol`, which SystemTap uses: a minus, `0x` or `0` by
/// the base, digits up to `f`; no blanks and no plus. The base is a C `unsigned int`.
pub fn strtol(string: &[u8], base: i64) -> i64 {
    let negative = string.first() == Some(&b'-');
    let mut string = &string[usize::from(negative)..];
    let byte = |i: usize| string.get(i).copied().unwrap_or(0);
    let marked = byte(0) == b'0' && byte(1) | 0x20 == b'x';
    let base = match base.low32() {
        0 if marked && byte(2).is_ascii_hexdigit() => 16,
        0 if byte(0) == b'0' => 8,
        0 => 10,
        base => base,
    };
    if base == 16 && marked {
        string = &string[2..];
    }
    let digit = |b: &u8| char::from(*b).to_digit(16).filter(|d| *d < base);
    let mut n: u64 = 0;
    for d in string.iter().map_while(digit) {
        n = n.wrapping_mul(u64::from(base)).wrapping_add(u64::from(d));
    }
    let n = n.cast_signed();
    if negative { n.wrapping_neg() } else { n }
}

/// The error message of a text that is not valid UTF-16 (`unit` 2) or UTF-32 (`unit` 4). The caller
/// appends the address.
pub fn invalid_unicode(unit: i32) -> String {
    format!("invalid UTF-{} at 0x", 8 * unit)
}

/// Converts a text in units of `unit` bytes (2 or 4) to UTF-8 of less than `capacity` bytes. `read`
/// gives the unit at an offset in bytes; a unit of 0 ends the text.
///
/// # Errors
/// The errors of `read`; `Ok(None)` where the units are not valid text.
pub fn unicode<E>(
    unit: u64,
    capacity: usize,
    mut read: impl FnMut(u64) -> Result<u32, E>,
) -> Result<Option<Vec<u8>>, E> {
    let mut out = Vec::new();
    let mut high = 0;
    for index in 0..capacity as u64 {
        let mut code = read(index * unit)?;
        if code == 0 {
            break;
        }
        if high != 0 {
            if !matches!(code, 0xdc00..=0xdfff) {
                return Ok(None);
            }
            code = 0x1_0000 + ((high - 0xd800) << 10) + (code - 0xdc00);
            high = 0;
        } else if unit == 2 && matches!(code, 0xd800..=0xdbff) {
            high = code;
            continue;
        }
        let Some(c) = char::from_u32(code) else {
            return Ok(None);
        };
        if out.len() + c.len_utf8() >= capacity {
            return Ok(Some(out));
        }
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
    // A high surrogate alone at the end, which is no error where the result is full.
    Ok((high == 0 || out.len() + 4 >= capacity).then_some(out))
}

/// The bits of the floating-point number (IEEE 754, 64 bits) at the start of a string, as C's
/// `strtod` reads it without hexadecimal forms; 0 where there is none. A NaN is negative and quiet.
pub fn string_to_fp(string: &[u8]) -> i64 {
    let count = |string: &[u8]| string.iter().take_while(|b| b.is_ascii_digit()).count();
    let spaces = string.iter().take_while(|b| matches!(b, b' ' | 9..=13));
    let string = &string[spaces.count()..];
    let negative = string.first() == Some(&b'-');
    let string = &string[usize::from(matches!(string.first(), Some(b'+' | b'-')))..];
    let name = string.get(..3).unwrap_or_default();
    let magnitude = if name.eq_ignore_ascii_case(b"inf") {
        f64::INFINITY
    } else if name.eq_ignore_ascii_case(b"nan") {
        return 0xfff8_0000_0000_0000_u64.cast_signed();
    } else {
        let whole = count(string);
        let fraction = match string.get(whole) {
            Some(b'.') => count(&string[whole + 1..]),
            _ => 0,
        };
        if whole + fraction == 0 {
            return 0;
        }
        let mut end = whole;
        if fraction > 0 {
            end += 1 + fraction;
        } else if string.get(whole) == Some(&b'.') {
            end += 1;
        }
        if let Some(b'e' | b'E') = string.get(end) {
            let sign = usize::from(matches!(string.get(end + 1), Some(b'+' | b'-')));
            let digits = count(&string[end + 1 + sign..]);
            if digits > 0 {
                end += 1 + sign + digits;
            }
        }
        let number = std::str::from_utf8(&string[..end]).unwrap_or_default();
        number.parse::<f64>().unwrap_or_default()
    };
    (magnitude.to_bits() | u64::from(negative) << 63).cast_signed()
}

/// The state of `tokenize` between the calls of one run of a handler.
#[derive(Debug, Clone, Default)]
pub struct TokenizeState {
    string: Vec<u8>,
    pos: usize,
}

impl TokenizeState {
    /// The next token of `string`, or of that of the call before when `string` is empty. Empty
    /// tokens are skipped; "" means that no token is left.
    pub fn next(&mut self, string: &[u8], delims: &[u8]) -> &[u8] {
        if !string.is_empty() {
            (self.string, self.pos) = (string.to_vec(), 0);
        }
        let rest = &self.string[self.pos..];
        let skip = rest.iter().take_while(|b| delims.contains(b)).count();
        let len = rest[skip..]
            .iter()
            .take_while(|b| !delims.contains(b))
            .count();
        let start = self.pos + skip;
        self.pos = (start + len + 1).min(self.string.len());
        &self.string[start..start + len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_result_is_longer_than_the_table_says() {
        use crate::intrinsics::Intrinsic;
        let numbers = [i64::MIN, -1, 0, 1, 4, 5, 6, 9, 600];
        for (op, text) in [
            (TextOp::Substr, "a\n\"b"),
            (TextOp::TextStrn, ""),
            (TextOp::TextStrn, "a\n\"\u{1}"),
            (TextOp::TextStrn, "plain text"),
        ] {
            for (a, b) in numbers.iter().flat_map(|a| numbers.map(|b| (*a, b))) {
                let args: [Value; 3] = [text.into(), a.into(), b.into()];
                let constant = |n: usize| Some(args[n].as_long());
                let bound = Intrinsic::from(op).max_len(constant, |_| Some(text.len()));
                let result = evaluate(op, &args);
                let len = result.as_bytes().len();
                assert!(
                    bound.is_some_and(|n| len <= n),
                    "{op:?} {args:?}: {result:?}"
                );
            }
        }
    }

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
    fn strtol_agrees_with_the_kernel() {
        for (text, base, want) in [
            ("12", 10, 12),
            ("-12x", 10, -12),
            (" 12", 10, 0),
            ("+7", 10, 0),
            ("--7", 10, 0),
            ("- 7", 10, 0),
            ("0x1f", 16, 31),
            ("0x1f", 0, 31),
            ("0X1F", 0, 31),
            ("-0x10", 16, -16),
            ("1f", 16, 31),
            ("0x1f", 10, 0),
            ("010", 0, 8),
            ("010", 10, 10),
            ("0x", 0, 0),
            ("0xg", 16, 0),
            ("", 10, 0),
            ("0xffffffff81000000", 16, -0x7f00_0000),
            ("18446744073709551617", 10, 1),
            ("-18446744073709551617", 10, -1),
            ("z", 36, 0),
            ("fz", 36, 15),
            ("10", 100, 100),
            ("5", 1, 0),
            ("11", -1, (1 << 32) - 1 + 1),
            ("12", (1 << 32) + 10, 12),
        ] {
            assert_eq!(strtol(text.as_bytes(), base), want, "{text} {base}");
        }
    }

    #[test]
    fn tokens_pass_over_empty_ones() {
        let mut t = TokenizeState::default();
        assert_eq!(t.next(b"", b","), b"");
        assert_eq!(t.next(b",,a,b c,", b", "), b"a");
        assert_eq!(t.next(b"", b", "), b"b");
        assert_eq!(t.next(b"", b", "), b"c");
        assert_eq!(t.next(b"", b", "), b"");
        assert_eq!(t.next(b"", b", "), b"");
    }

    #[test]
    fn text_functions_give_documented_results() {
        let run = |f, args: &[&str]| {
            let args: Vec<Value> = args.iter().map(|a| Value::from(*a)).collect();
            evaluate(f, &args)
        };
        assert_eq!(
            run(TextOp::StrReplace, &["aXbXc", "X", "--"]),
            "a--b--c".into()
        );
        assert_eq!(run(TextOp::StrReplace, &["abc", "", "-"]), "abc".into());
        assert_eq!(run(TextOp::Isinstr, &["abc", "bc"]), 1.into());
        assert_eq!(run(TextOp::Isinstr, &["abc", "cb"]), 0.into());
        assert_eq!(run(TextOp::Strpos, &["abc", "c"]), 2.into());
        assert_eq!(run(TextOp::Strpos, &["abc", "x"]), (-1).into());
        for (capacity, quoted, want) in [
            (100, 1, r#""a\n\"\001""#),
            (100, 0, r#"a\n\"\001"#),
            (8, 0, r#"a\n\""#),
            (4, 0, r"a\n"),
            (0, 0, ""),
            (11, 1, r#""a\n\"\001""#),
            (10, 1, r#""a\n\""..."#),
            // No space for half an escape.
            (7, 1, r#""a"..."#),
            (-3, 1, r#"""..."#),
        ] {
            let args = ["a\n\"\u{1}".into(), capacity.into(), quoted.into()];
            assert_eq!(
                evaluate(TextOp::TextStrn, &args),
                Value::from(want),
                "{capacity}"
            );
        }
        for (text, want) in [
            ("é€😀\u{7f}", r"\u00E9\u20AC\U0001F600\177"),
            (
                "\u{80}\u{7ff}\u{ffff}\u{10ffff}",
                r"\u0080\u07FF\uFFFF\U0010FFFF",
            ),
        ] {
            let args = [text.into(), 100.into(), 0.into()];
            assert_eq!(evaluate(TextOp::TextStrn, &args), Value::from(want));
        }
        assert_eq!(run(TextOp::MetricText, &["a\n\"\\"]), "a\\n\\\"\\\\".into());
        assert_eq!(
            evaluate(TextOp::Stringat, &["ab".into(), 1.into()]),
            Value::Long(98)
        );
        assert_eq!(
            evaluate(TextOp::Stringat, &["ab".into(), 2.into()]),
            Value::Long(0)
        );
    }
}
