//! Rows: the prints of a script as typed values, for a program that embeds spile.
//!
//! Each `printf` is one row. The literal text of its format up to the first tab, newline or
//! conversion is the row's name, and the arguments are its values. No text is made.

use std::ops::ControlFlow;

use spile_cast::Cast;
use spile_ir::fmt::{Format, Piece};
use spile_ir::interp::Value;
use spile_ir::{FormatId, Program};

use crate::shared::ring_record::FieldValue;

/// A print of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row<'a> {
    /// The literal text at the beginning of the format; "" for other output than that of `printf`.
    pub name: &'a str,
    /// The arguments.
    pub values: &'a [FieldValue<'a>],
}

/// Receives rows in the order of the script's output. The bytes that it adds to the second argument
/// go to standard output. `Break` ends the session.
pub type RowSink = Box<dyn FnMut(&Row<'_>, &mut Vec<u8>) -> ControlFlow<()>>;

/// The names of rows, by format.
pub(crate) fn names(program: &Program) -> Vec<Box<str>> {
    program.formats.iter().map(name).collect()
}

fn name(format: &Format) -> Box<str> {
    let literal = match format.pieces.first() {
        Some(Piece::Lit(text)) => &**text,
        _ => b"",
    };
    let end = literal.iter().position(|b| b"\t\n".contains(b));
    String::from_utf8_lossy(&literal[..end.unwrap_or(literal.len())]).into()
}

/// Rows of a running handler, which are delivered when it has ended. They are packed, because a
/// handler can print millions: each value has a byte with its kind, then a number's bytes up to the
/// last one that is not 0, or the length and the bytes of a string.
#[derive(Debug, Default)]
pub(crate) struct PackedRows {
    bytes: Vec<u8>,
}

/// The kind of a string; a number has the number of its bytes, 0 to 8.
const STRING: u8 = 9;

impl PackedRows {
    /// Adds a row.
    pub(crate) fn push(&mut self, format: FormatId, values: &[Value]) {
        self.length(format.index());
        self.length(values.len());
        for value in values {
            match value {
                Value::Long(n) => {
                    let n = (n << 1 ^ n >> 63).to_le_bytes();
                    let used = 8 - n.iter().rev().take_while(|b| **b == 0).count();
                    self.bytes.push(used.fit::<u8>());
                    self.bytes.extend_from_slice(&n[..used]);
                }
                Value::Str(text) => {
                    self.bytes.push(STRING);
                    self.length(text.len());
                    self.bytes.extend_from_slice(text);
                }
            }
        }
    }

    fn length(&mut self, n: usize) {
        // Lengths are bounded by the program's.
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(&n.to_le_bytes());
    }

    /// Calls `row` with each row's format and values.
    pub(crate) fn each(&self, mut row: impl FnMut(usize, &[FieldValue<'_>])) {
        let mut rest = Packed(&self.bytes);
        let mut values = Vec::new();
        while let (Some(format), Some(count)) = (rest.length(), rest.length()) {
            values.extend((0..count).map_while(|_| rest.value()));
            row(format, &values);
            values.clear();
        }
    }
}

/// The unread rest of packed rows.
struct Packed<'a>(&'a [u8]);

impl<'a> Packed<'a> {
    fn length(&mut self) -> Option<usize> {
        let bytes = self.take(4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes) as usize)
    }

    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn value(&mut self) -> Option<FieldValue<'a>> {
        let used = match *self.take(1)? {
            [STRING] => {
                let length = self.length()?;
                return self.take(length).map(FieldValue::Str);
            }
            [used] => usize::from(used),
            _ => return None,
        };
        let mut n = [0; 8];
        n.get_mut(..used)?.copy_from_slice(self.take(used)?);
        let n = u64::from_le_bytes(n);
        Some(FieldValue::Long(
            (n >> 1).cast_signed() ^ -(n & 1).cast_signed(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_the_first_words_of_formats() {
        for (text, expected) in [
            ("row\t%d\t%s\n", "row"),
            ("end\n", "end"),
            ("a b%d", "a b"),
            ("%d\n", ""),
            ("", ""),
        ] {
            let format = Format::parse(text.as_bytes()).unwrap();
            assert_eq!(&*name(&format), expected);
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<i64>().prop_map(Value::Long),
            (-300i64..300).prop_map(Value::Long),
            proptest::collection::vec(any::<u8>(), 0..300).prop_map(|b| Value::Str(b.into())),
        ]
    }

    proptest! {
        #[test]
        fn values_come_back(rows in proptest::collection::vec(
            (0u32..9, proptest::collection::vec(value(), 0..5)), 0..9)) {
            let mut packed = PackedRows::default();
            for (format, values) in &rows {
                packed.push(FormatId(*format), values);
            }
            let mut back = Vec::new();
            packed.each(|format, values| {
                let values: Vec<Value> = values.iter().map(|v| match v {
                    FieldValue::Long(n) => Value::Long(*n),
                    FieldValue::Str(s) => Value::from(*s),
                }).collect();
                back.push((format as u32, values));
            });
            prop_assert_eq!(back, rows);
        }
    }
}
