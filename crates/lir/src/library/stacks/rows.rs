//! Rows of the tables that the functions search, and words that the controller writes for them.

/// Symbols, in the form that kernel handlers search.
///
/// Rows have 8 bytes: 32 bits are the first position of a symbol or of a gap between symbols, 32
/// bits the index in words of its name in the map of names. A position is an offset in the file
/// below 2 GB; bit 31 stands for [`BEHIND`](crate::library::unwind::BEHIND).
///
/// A name is a NUL-terminated text behind two words: the position from which its offsets count, and
/// the symbol's size. A gap has no text, and offsets in it are link-time addresses. The two words
/// in front of a file's name are the index of its last path component, and the file's size in
/// memory.
///
/// Rows of line tables have 16 bytes: 32 bits are the first position of a line or of a gap, 32 bits
/// the index of the source file's name, 0 in a gap, and 32 bits the line.
pub mod symbol_row {
    /// Limit on the rows of all files together.
    pub const MAX: u32 = 1 << 20;
    /// Bytes of names.
    pub const NAMES: u32 = 16 << 20;
    /// Bytes of an element of the map of names.
    pub const NAMES_VALUE: u32 = 4096;
    /// In a file's element: its first row, the number of rows, the index of its name (in words); 0
    /// and 0 if they are not loaded.
    pub const FIRST: i16 = 0;
    /// The number of rows, see [`FIRST`].
    pub const COUNT: i16 = 8;
    /// The index of the name, see [`FIRST`].
    pub const NAME: i16 = 16;
    /// The first line row, and the number of line rows.
    pub const FIRST_LINE: i16 = 24;
    /// The number of line rows, see [`FIRST_LINE`].
    pub const LINES: i16 = 32;
    /// Bytes of the element.
    pub const FILE: i16 = 40;
    /// Limit on the line rows of all files together.
    pub const MAX_LINES: u32 = 1 << 20;
    /// Bytes of a row of lines.
    pub const LINE_ROW: u32 = 16;
}

/// Lines of the code of the kernel and its modules, by address, in elements of 16 bytes. The first
/// element has two words: the address from which positions count, and the number of rows that
/// follow. A row has the first position of a line or of a gap, the element of the source file's
/// name, and the line, 32 bits each. Names follow the rows: NUL-terminated texts, each at the start
/// of an element.
pub mod kernel_row {
    /// Bytes of an element.
    pub const BYTES: u32 = 16;
    /// In the first element: the address from which positions count.
    pub const BASE: i16 = 0;
    /// In the first element: the number of rows.
    pub const COUNT: i16 = 8;
    /// In a row: the position.
    pub const START: i16 = 0;
    /// In a row: the element of the source file's name, 0 in a gap.
    pub const FILE: i16 = 4;
    /// In a row: the line.
    pub const LINE: i16 = 8;
    /// Limit on the rows: a binary search takes 24 steps. A kernel has some millions.
    pub const MAX: u32 = 1 << 24;
}

/// Words of the state, as offsets in bytes from [`super::StackLayout::ranges`]: address ranges that are
/// skipped in kernel stacks, each with its first address and the one behind its last. The loader
/// sets them before it attaches anything; a range of zeros skips nothing.
pub mod stack_words {
    /// The functions `bpf_trace_runN`: frames in front of theirs belong to the probe.
    pub const RUN: u32 = 0;
    /// The ranges of each tracepoint, one after the other.
    pub const POINTS: u32 = 16;
    /// Ranges of a tracepoint: `__bpf_trace_NAME`, `__traceiter_NAME`.
    pub const PAIRS: usize = 2;
    /// Bytes of a tracepoint's ranges.
    pub const POINT: u32 = 16 * spile_cast::u32_of(PAIRS);
}
