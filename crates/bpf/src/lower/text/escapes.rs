//! The tables of escapes.

use spile_cast::Cast;
use spile_lir::func::ConstantData;
use spile_lir::library::quote;

/// Bytes of a row of a table of escapes: four bytes of text, then its length.
pub(crate) const ESCAPE: i32 = 8;

/// The table of the escapes in texts.
pub(crate) fn escapes() -> Vec<u8> {
    table(spile_ir::fmt::escape_byte)
}

/// The table of [`escapes`] as a constant of the run-time library.
pub(crate) fn escape_table() -> ConstantData {
    ConstantData {
        name: quote::ESCAPES.into(),
        bytes: escapes(),
    }
}

pub(crate) fn table(escape: fn(u8) -> Vec<u8>) -> Vec<u8> {
    let mut table = Vec::new();
    for byte in 0..=255 {
        let text = escape(byte);
        let mut row = [0; ESCAPE as usize];
        row[..text.len()].copy_from_slice(&text);
        row[4] = text.len().fit::<u8>();
        table.extend(row);
    }
    table
}
