//! The arguments of markers: assembler operands such as `-4@%edi` or `8@[sp, 16]`.
//!
//! `SIZE@OPERAND`: the size in bytes, negative if signed, followed by an `f` for a floating-point
//! number; then an operand as the compiler printed it for the assembler. Registers get DWARF's
//! numbers of the 64-bit processor.

/// An argument of a marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkerArg {
    /// Size in bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// Whether the number is signed.
    pub signed: bool,
    /// Whether it is a floating-point number.
    pub float: bool,
    /// Its location.
    pub location: ArgLocation,
}

/// The location of an argument at the marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgLocation {
    /// A number in the note.
    Constant(i64),
    /// A register, from bit `shift` on (8 for `%ah`).
    Register {
        /// DWARF's number.
        number: u16,
        /// Number of low bits to skip.
        shift: u8,
    },
    /// Memory at `base + index * scale + displacement`.
    Memory {
        /// DWARF's number of the base register.
        base: Option<u16>,
        /// DWARF's number of the index register, and its scale.
        index: Option<(u16, u8)>,
        /// Bytes to add.
        displacement: i64,
    },
    /// Memory at this address of the file as linked.
    Linked(u64),
    /// The number is this address of the file as linked, plus the load bias.
    LinkedAddress(u64),
    /// Not understood, or in a register that is not saved: the operand's text.
    Unreadable(String),
}

/// Splits a note's text into operands: at spaces outside brackets.
pub(super) fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |c: char| {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            _ => {}
        }
        c.is_whitespace() && depth <= 0
    })
    .filter(|part| !part.is_empty())
}

/// Reads an operand in the syntax of a processor.
pub(crate) type ReadOperand = fn(&str, Symbols<'_>) -> Option<ArgLocation>;

/// Looks up the address of a symbol.
pub(crate) type Symbols<'a> = &'a mut dyn FnMut(&str) -> Option<u64>;

impl MarkerArg {
    /// Parses one operand in the syntax of a processor; `symbols` looks up symbols of the file.
    pub(crate) fn parse(text: &str, read: Option<ReadOperand>, symbols: Symbols<'_>) -> MarkerArg {
        let (size, body) = text.split_once('@').unwrap_or(("-8", text));
        let (number, float) = match size.strip_suffix('f') {
            Some(number) => (number, true),
            None => (size, false),
        };
        let width = number.parse::<i8>().unwrap_or(0);
        let valid_width = matches!(width.unsigned_abs(), 1 | 2 | 4 | 8);
        let read = read.filter(|_| valid_width);
        let location = read.and_then(|read| read(body, symbols));
        MarkerArg {
            size: if valid_width { width.unsigned_abs() } else { 8 },
            signed: width < 0,
            float,
            location: location.unwrap_or_else(|| ArgLocation::Unreadable(text.to_owned())),
        }
    }
}

/// A number as compilers print it: decimal or hexadecimal, possibly negative. Unsigned
/// constants of 64 bits wrap.
pub(crate) fn number(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None if digits.starts_with(['-', '+']) => return None,
        None => digits.parse::<u64>().ok()?,
    };
    let value = value.cast_signed();
    Some(if negative {
        value.wrapping_neg()
    } else {
        value
    })
}

/// The sum of numbers and at most one symbol, as in `4+table-8`: symbol's address, sum.
pub(crate) fn sum(text: &str, symbols: Symbols<'_>) -> Option<(Option<u64>, i64)> {
    let (mut symbol, mut total) = (None, 0_i64);
    let starts = text
        .char_indices()
        .filter(|(i, c)| *i > 0 && matches!(c, '+' | '-'));
    let mut ends: Vec<usize> = starts.map(|(i, _)| i).collect();
    ends.push(text.len());
    let mut start = 0;
    for end in ends {
        let term = &text[start..end];
        start = end;
        match number(term) {
            Some(n) => total = total.wrapping_add(n),
            None if symbol.is_none() && !term.starts_with('-') => {
                let name = term.trim_start_matches('+');
                let name = name.split_once('@').map_or(name, |(n, _)| n);
                symbol = Some(symbols(name)?);
            }
            None => return None,
        }
    }
    Some((symbol, total))
}

/// The address of an optional symbol plus a number, without registers.
pub(crate) fn constant_address(symbol: Option<u64>, add: i64) -> Option<u64> {
    symbol.map(|address| address.wrapping_add_signed(add))
}
