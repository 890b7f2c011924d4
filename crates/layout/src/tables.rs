//! Tables that the controller fills in for handlers: their names, and the form of their rows.

pub use spile_lir::library::stacks::rows::{kernel_row, stack_words, symbol_row};
pub use spile_lir::library::unwind::{
    BEHIND, COPIED, EXACT, FILE_NAME, FILE_NAMES, VDSO, copy, row as unwind_row,
};

/// Instead of a file's first row: the file has no rows and will get none.
pub const NO_ROWS: u64 = 1 << 32;
/// Map of files by device and inode (64 bits each). The value: number, first row, number of rows.
pub const FILES_MAP: &str = "stack_files";
/// Map with copies of stacks, one for each CPU: a [`crate::RecordKind::Copy`] each.
pub const COPIES_MAP: &str = "stack_copies";
/// Map of unwind rows, see [`unwind_row`].
pub const ROWS_MAP: &str = "stack_rows";
/// Limit on the unwind rows of all files together.
pub const MAX_ROWS: u32 = 1 << 20;

/// Map of the symbols of files, with the value's fields in [`symbol_row`].
pub const SYMBOLS_MAP: &str = "stack_symbols";
/// Map of rows of symbols, see [`symbol_row`].
pub const SYMBOL_ROWS_MAP: &str = "symbol_rows";
/// Map of names of symbols and files, see [`symbol_row`].
pub const NAMES_MAP: &str = "symbol_names";
/// Map of rows of line tables, see [`symbol_row`].
pub const LINE_ROWS_MAP: &str = "line_rows";
/// Map of the lines of the kernel and its modules, see [`kernel_row`]. The loader creates it in the
/// size that they need.
pub const KERNEL_LINES_MAP: &str = "kernel_lines";
