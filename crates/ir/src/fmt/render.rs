//! Rendering of formats, as C's `printf` does with 64-bit integers.
//!
//! Departures from C, all SystemTap's:
//! - `%p` is `%#x`.
//! - `#` marks 0 too (`0x0`, `00`), and a number always has a digit.
//! - `0` fills up to the width whatever the precision is.
//! - `%b` writes raw bytes. The precision or else the width is their number; NULs fill up to the
//!   width.
//! - `%m` and `%M` read memory. A string argument holds the bytes of memory that was read before.
//! - `%#s` and `%#c` escape as C source does.

use spile_cast::Cast;

use super::format::{Conv, ConvKind, Count, Format, Piece};
use crate::Space;
use crate::interp::value::{Fault, Value};

/// Reads memory for `%m` and `%M`: fills the buffer from the address.
pub type ReadMemory<'a> = dyn FnMut(Space, u64, &mut [u8]) -> Result<(), Fault> + 'a;

/// Maximum number of bytes that one `%m` or `%M` reads: a page.
pub const MAX_MEM: i64 = 4096;
/// Maximum of a width or a precision that comes from an argument.
const MAX_ARG: i64 = 65_536;

/// Appends the rendered format to `out`. Missing arguments read as 0 or "".
///
/// # Errors
/// The errors of `memory`.
pub fn render(
    format: &Format,
    args: &[Value],
    memory: &mut ReadMemory<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let mut args = args.iter();
    for piece in &format.pieces {
        match piece {
            Piece::Lit(text) => out.extend_from_slice(text),
            Piece::Conv(c) => conversion(c, &mut args, memory, out)?,
        }
    }
    Ok(())
}

fn conversion<'v>(
    c: &Conv,
    args: &mut impl Iterator<Item = &'v Value>,
    memory: &mut ReadMemory<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let layout = Layout::new(c, args);
    let (left, precision) = (layout.left, layout.precision);
    let columns = layout.width.unwrap_or(0);
    let value = args.next();
    let n = value.map_or(0, Value::as_long);
    match c.kind {
        ConvKind::Str => {
            let text = value.map_or(&b""[..], |v| v.as_bytes());
            let escaped = if c.alt { escape_text(text) } else { Vec::new() };
            let text = if c.alt { &escaped[..] } else { text };
            let text = &text[..precision.unwrap_or(text.len()).min(text.len())];
            pad(out, text, columns, left);
        }
        ConvKind::Char => {
            let byte = [n.low8()];
            if c.alt {
                pad(out, &escape_char(byte[0]), columns, left);
            } else {
                pad(out, &byte, columns, left);
            }
        }
        ConvKind::Binary => {
            let size = [precision, layout.width]
                .into_iter()
                .flatten()
                .find(|n| matches!(n, 1 | 2 | 4 | 8))
                .unwrap_or(8);
            let bytes = match cfg!(target_endian = "little") {
                true => &n.to_le_bytes()[..size],
                false => &n.to_be_bytes()[8 - size..],
            };
            append_aligned(out, bytes, columns, left, 0);
        }
        ConvKind::Mem | ConvKind::MemHex => {
            let bytes = match value {
                Some(Value::Str(bytes)) => bytes.to_vec(),
                _ => {
                    let mut bytes = vec![0; memory_len(layout.asked_precision)?];
                    let space = if c.alt { Space::User } else { Space::Kernel };
                    memory(space, n.cast_unsigned(), &mut bytes)?;
                    bytes
                }
            };
            let bytes = match c.kind {
                ConvKind::MemHex => hex(&bytes),
                _ => bytes,
            };
            pad(out, &bytes, columns, left);
        }
        _ => integer(c, n, layout, out),
    }
    Ok(())
}

/// Width, alignment and precision of one conversion, with `*` replaced by the arguments.
#[derive(Clone, Copy)]
struct Layout {
    left: bool,
    width: Option<usize>,
    /// The precision as given; negative for none.
    asked_precision: i64,
    precision: Option<usize>,
}

impl Layout {
    /// Takes the arguments of `*`.
    fn new<'v>(c: &Conv, args: &mut impl Iterator<Item = &'v Value>) -> Layout {
        let mut left = c.left;
        let mut number = || args.next().map_or(0, Value::as_long);
        let width = match c.width {
            Count::None => None,
            Count::Fixed(n) => Some(n as usize),
            Count::Arg => {
                // A negative width means `-`.
                let w = number();
                left |= w < 0;
                Some(w.unsigned_abs().min(MAX_ARG as u64).fit::<usize>())
            }
        };
        let asked_precision = match c.precision {
            Count::None => -1,
            Count::Fixed(n) => i64::from(n),
            Count::Arg => number(),
        };
        Layout {
            left,
            width,
            asked_precision,
            // A negative precision counts as none.
            precision: usize::try_from(asked_precision.min(MAX_ARG)).ok(),
        }
    }
}

fn hex(bytes: &[u8]) -> Vec<u8> {
    let digits: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    digits.into_bytes()
}

/// The number of bytes that `%m` reads for a precision: from 1 to a page.
fn memory_len(precision: i64) -> Result<usize, Fault> {
    match precision {
        ..=1 => Ok(1),
        2..=MAX_MEM => Ok(precision.fit::<usize>()),
        _ => Err(format!("{precision}{TOO_MANY}").into()),
    }
}

/// The text after the number in the error of a `%m` that would read more than [`MAX_MEM`].
pub const TOO_MANY: &str = " is too many bytes for a memory dump";

fn integer(c: &Conv, n: i64, layout: Layout, out: &mut Vec<u8>) {
    let signed = c.kind == ConvKind::Dec;
    let bits = n.cast_unsigned();
    let (digits, mark) = match c.kind {
        ConvKind::Dec => (n.unsigned_abs().to_string(), ""),
        ConvKind::Octal => (format!("{bits:o}"), if c.alt { "0" } else { "" }),
        ConvKind::Hex => (format!("{bits:x}"), if c.alt { "0x" } else { "" }),
        ConvKind::HexUpper => (format!("{bits:X}"), if c.alt { "0X" } else { "" }),
        ConvKind::Pointer => (format!("{bits:x}"), "0x"),
        _ => (bits.to_string(), ""),
    };
    let mut zeros = layout.precision.unwrap_or(0).saturating_sub(digits.len());
    let sign = match () {
        () if signed && n < 0 => "-",
        () if signed && c.plus => "+",
        () if signed && c.space => " ",
        () => "",
    };
    let used = sign.len() + mark.len() + zeros + digits.len();
    let missing = layout.width.unwrap_or(0).saturating_sub(used);
    if c.zero && !layout.left {
        zeros += missing;
    } else if !layout.left {
        out.extend(std::iter::repeat_n(b' ', missing));
    }
    out.extend_from_slice(sign.as_bytes());
    out.extend_from_slice(mark.as_bytes());
    out.extend(std::iter::repeat_n(b'0', zeros));
    out.extend_from_slice(digits.as_bytes());
    if layout.left {
        out.extend(std::iter::repeat_n(b' ', missing));
    }
}

fn pad(out: &mut Vec<u8>, text: &[u8], columns: usize, left: bool) {
    append_aligned(out, text, columns, left, b' ');
}

fn append_aligned(out: &mut Vec<u8>, text: &[u8], columns: usize, left: bool, with: u8) {
    let fill = std::iter::repeat_n(with, columns.saturating_sub(text.len()));
    if left {
        out.extend_from_slice(text);
        out.extend(fill);
    } else {
        out.extend(fill);
        out.extend_from_slice(text);
    }
}

/// A text with everything but plain ASCII escaped as in C source: `\n`, `\"`, `\\`, `\033`, and characters
/// of UTF-8 as `\u00E9` or `\U0001F600`.
pub fn escape_text(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for (_, escape) in escapes(text) {
        out.extend_from_slice(&escape);
    }
    out
}

/// The units that an escape shows as a whole: the length of each in bytes, and its escape.
fn escapes(text: &[u8]) -> impl Iterator<Item = (usize, Vec<u8>)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = *rest.first()?;
        let (taken, escape) = match character(rest) {
            Some(c) if c.len_utf8() > 1 => {
                let code = u32::from(c);
                let escape = match code {
                    ..0x1_0000 => format!("\\u{code:04X}"),
                    _ => format!("\\U{code:08X}"),
                };
                (c.len_utf8(), escape.into_bytes())
            }
            _ => (1, escape_byte(first)),
        };
        rest = &rest[taken..];
        Some((taken, escape))
    })
}

/// The UTF-8 character at the start of a text.
fn character(text: &[u8]) -> Option<char> {
    let len = match text.first()? {
        ..0x80 => 1,
        ..0xe0 => 2,
        ..0xf0 => 3,
        _ => 4,
    };
    std::str::from_utf8(text.get(..len)?).ok()?.chars().next()
}

/// The escape of one byte in a C string.
pub fn escape_byte(byte: u8) -> Vec<u8> {
    let letter = match byte {
        b'"' | b'\\' => byte,
        0x07 => b'a',
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0b => b'v',
        0x0c => b'f',
        b'\r' => b'r',
        b' '..=b'~' => return vec![byte],
        _ => return format!("\\{byte:03o}").into_bytes(),
    };
    vec![b'\\', letter]
}

/// The escape of one byte for `%#c`: single quotes are escaped, double quotes are not.
pub fn escape_char(byte: u8) -> Vec<u8> {
    match byte {
        b'"' => vec![byte],
        b'\'' => vec![b'\\', byte],
        _ => escape_byte(byte),
    }
}

/// Escapes a text into at most `capacity` bytes, in quotes (which count) if `quoted`. The text ends
/// before an escape that does not fit. A quoted text that was cut has `...` after it; whole escapes
/// make space for the dots.
pub fn escape_within(text: &[u8], capacity: usize, quoted: bool) -> Vec<u8> {
    let capacity = if quoted {
        capacity.max(5) - 2
    } else {
        capacity
    };
    let mut out = Vec::new();
    let mut kept = 0;
    let mut whole = true;
    for (_, escape) in escapes(text) {
        whole = out.len() + escape.len() <= capacity;
        if !whole {
            break;
        }
        out.extend(escape);
        if quoted && out.len() <= capacity - 3 {
            kept = out.len();
        }
    }
    if !quoted {
        return out;
    }
    if !whole {
        out.truncate(kept);
    }
    let end: &[u8] = if whole { b"\"" } else { b"\"..." };
    [b"\"", &out[..], end].concat()
}

#[cfg(test)]
mod tests;
