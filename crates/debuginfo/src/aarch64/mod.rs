//! 64-bit ARM. Its instructions are not decoded yet.
//!
//! In: assembler text. Out: locations of arguments (`operand`).

pub(crate) mod operand;
