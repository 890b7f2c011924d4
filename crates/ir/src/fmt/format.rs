//! The definition of a format.

use crate::program::types::Bytes;

/// A format: literal text and conversions. Each conversion takes one argument, preceded by one for
/// a `*` width and one for a `*` precision, in that order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Format {
    /// Literal text and conversions in order of output.
    pub pieces: Vec<Piece>,
}

/// A part of a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Literal text.
    Lit(Bytes),
    /// A conversion of an argument.
    Conv(Conv),
}

/// A conversion, for example `%-08.3lld`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conv {
    /// The conversion letter.
    pub kind: ConvKind,
    /// `-`: left-aligned.
    pub left: bool,
    /// `+`: a sign before positive numbers too.
    pub plus: bool,
    /// Space: a blank before positive numbers.
    pub space: bool,
    /// `0`: padded with zeros.
    pub zero: bool,
    /// `#`: the alternative form.
    pub alt: bool,
    /// Minimum number of columns.
    pub width: Count,
    /// Number of digits, or maximum number of bytes.
    pub precision: Count,
}

/// A width or a precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Count {
    /// None written.
    #[default]
    None,
    /// A constant.
    Fixed(u32),
    /// `*`: taken from the arguments.
    Arg,
}

/// Conversion letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ConvKind {
    /// `%d`, `%i`
    #[default]
    Dec,
    /// `%u`
    Unsigned,
    /// `%o`
    Octal,
    /// `%x`
    Hex,
    /// `%X`
    HexUpper,
    /// `%p`: as `%#x`
    Pointer,
    /// `%s`
    Str,
    /// `%c`
    Char,
    /// `%b`: 1, 2, 4 or 8 raw bytes
    Binary,
    /// `%m`: raw bytes of kernel memory (`#`: user memory); the precision is the length
    Mem,
    /// `%M`: like [`ConvKind::Mem`], as hexadecimal digits
    MemHex,
}

impl ConvKind {
    /// Whether the argument is a string.
    pub(crate) fn takes_string(self) -> bool {
        self == ConvKind::Str
    }
}
