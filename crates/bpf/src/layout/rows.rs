//! Rows of the tables that kernel handlers search.

/// Symbols as kernel handlers search them. Rows of 8 bytes: 32 bits are the first place of a symbol, or
/// of a gap without one, 32 bits where its name is in the map of names, in words. A place is an offset
/// in the file of less than 2 GB; bit 31 is for [`super::BEHIND`].
///
/// A name is a text with a NUL behind two words: the place that its offsets are counted from, and the
/// symbol's size. A gap has no text, and offsets in it are linked addresses. A file's name has in
/// front where its last part begins, and the bytes that the file takes in memory.
///
/// Rows of line tables have 16 bytes: 32 bits are the first place of a line or of a gap without one, 32
/// bits where the name of the source file is, 0 in a gap, and 32 bits the line.
pub mod symbol_row {
    /// Most rows of all files together.
    pub const MAX: u32 = 1 << 20;
    /// Bytes of names.
    pub const NAMES: u32 = 16 << 20;
    /// Bytes of an element of the map of names.
    pub const NAMES_PAGE: u32 = 4096;
    /// In a file's element: its first row, how many, where its name is (in words); 0 and 0 where
    /// they are not there.
    pub const FIRST: i16 = 0;
    /// See [`FIRST`].
    pub const COUNT: i16 = 8;
    /// See [`FIRST`].
    pub const NAME: i16 = 16;
    /// The same of lines: the first row, how many.
    pub const FIRST_LINE: i16 = 24;
    /// See [`FIRST_LINE`].
    pub const LINES: i16 = 32;
    /// Bytes of the element.
    pub const FILE: i16 = 40;
    /// Most rows of lines of all files together.
    pub const MAX_LINES: u32 = 1 << 20;
    /// Bytes of a row of lines.
    pub const LINE_ROW: u32 = 16;
}

/// Lines of the kernel's code and of its modules', by address, in elements of 16 bytes. The first has two
/// words: the address that places are counted from, and how many rows follow. A row has the first place of
/// a line or of a gap without one, where the source file's name is, and the line, 32 bits each. Behind
/// the rows are the names: texts with a NUL, each at the beginning of an element.
pub mod kernel_row {
    /// Bytes of an element.
    pub const BYTES: u32 = 16;
    /// In the first: what places are counted from.
    pub const BASE: i16 = 0;
    /// How many rows there are.
    pub const COUNT: i16 = 8;
    /// In a row: the place.
    pub const START: i16 = 0;
    /// The element of the source file's name, 0 in a gap.
    pub const FILE: i16 = 4;
    /// The line.
    pub const LINE: i16 = 8;
    /// Most rows: 24 halvings find one of them. A kernel has some millions.
    pub const MAX: u32 = 1 << 24;
}

/// A row of 8 bytes that says how the caller's registers are found: offsets of its fields. Rows
/// of a file are in order of their offsets in the file.
pub mod unwind_row {
    /// 32 bits: the first offset in the file.
    pub const START: i16 = 0;
    /// 16 bits, signed: what is added to the register for the CFA, in words; in stubs the byte
    /// of each 16 from which it is one word more.
    pub const CFA: i16 = 4;
    /// 8 bits: words from the saved rbp to the CFA, 0 where it is unchanged.
    pub const RBP: i16 = 6;
    /// 8 bits: [`kind`].
    pub const KIND: i16 = 7;

    /// What the CFA is. The return address lies a word below it.
    pub mod kind {
        /// Not known.
        pub const NONE: u8 = 0;
        /// rsp plus the offset.
        pub const RSP: u8 = 1;
        /// rbp plus the offset.
        pub const RBP: u8 = 2;
        /// What lies at rsp plus the offset.
        pub const AT_RSP: u8 = 3;
        /// What lies at rbp plus the offset.
        pub const AT_RBP: u8 = 4;
        /// Stubs of the procedure linkage table.
        pub const PLT: u8 = 5;
        /// The outermost frame.
        pub const END: u8 = 6;
        /// The frame of a signal.
        pub const SIGNAL: u8 = 7;
    }
}
