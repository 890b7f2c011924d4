//! Formats of `print` and `sprint` instructions: parsed once by analysis, rendered here for
//! the controller and the interpreter, and by generated code in kernel handlers.

mod parse;
mod render;

pub use parse::FormatError;
pub use render::{
    MAX_MEM, ReadMemory, TOO_MANY, escape_byte, escape_char, escape_text, escape_within, render,
};

use crate::Bytes;

/// A format: literal text and conversions; each conversion takes one argument, one more for a
/// `*` width and one more for a `*` precision (before the value, in that order).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Format {
    /// In order of output.
    pub pieces: Vec<Piece>,
}

/// A part of a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text as it is.
    Lit(Bytes),
    /// A conversion.
    Conv(Conv),
}

/// A conversion, `%-08.3lld` and the like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conv {
    /// What is converted.
    pub kind: ConvKind,
    /// `-`
    pub left: bool,
    /// `+`
    pub plus: bool,
    /// Space.
    pub space: bool,
    /// `0`
    pub zero: bool,
    /// `#`
    pub alt: bool,
    /// Least columns.
    pub width: Count,
    /// Digits or most bytes.
    pub precision: Count,
}

/// A width or a precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Count {
    /// Not written.
    #[default]
    None,
    /// A number.
    Fixed(u32),
    /// `*`: from the arguments.
    Arg,
}

/// Conversion letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConvKind {
    /// `%d`, `%i`
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
    /// `%M`: the same, as hex digits
    MemHex,
}

impl ConvKind {
    /// Whether the argument is a string.
    pub fn takes_string(self) -> bool {
        self == ConvKind::Str
    }
}
