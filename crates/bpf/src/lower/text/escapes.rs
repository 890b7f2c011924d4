//! The table of escapes.

use crate::lower::pool::Pool;

/// Bytes of a row of the escape table: four bytes of text, then its length.
pub(in crate::lower) const ESCAPE: i32 = 8;

/// Offset in `.rodata` of the table of escapes.
pub(in crate::lower) fn escapes(pool: &mut Pool) -> u32 {
    table(pool, spile_ir::fmt::escape_byte)
}

pub(in crate::lower) fn table(pool: &mut Pool, escape: fn(u8) -> Vec<u8>) -> u32 {
    let mut table = Vec::new();
    for byte in 0..=255 {
        let text = escape(byte);
        let mut row = [0; ESCAPE as usize];
        row[..text.len()].copy_from_slice(&text);
        row[4] = text.len() as u8;
        table.extend(row);
    }
    pool.constant(&table)
}
