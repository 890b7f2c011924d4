//! Formats of `print` and `sprint` instructions. Analysis parses each once. This module renders
//! them for the controller and the interpreter; kernel handlers render them by generated code.

pub(crate) mod format;
mod parse;
mod render;

pub use format::{Conv, ConvKind, Count, Format, Piece};
pub use parse::FormatError;
pub use render::{
    MAX_MEM, ReadMemory, TOO_MANY, escape_byte, escape_char, escape_text, escape_within, render,
};
