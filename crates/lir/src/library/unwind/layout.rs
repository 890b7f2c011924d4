//! Where functions that unwind have their data: numbers of files, records, rows, words of the per-CPU area.

use spile_abi::Abi;

use crate::library::PAGE;
use crate::library::mappings::{MappingLayout, MappingOffsets};

/// The file number of the vDSO, the kernel's own code in programs.
pub const VDSO: u32 = 0xffff;
/// Instead of a frame's file: the controller has all frames from there on, in the copy of the
/// stack whose number is instead of the offset.
pub const COPIED: u32 = 0xfffe;
/// In a file offset: the address is in memory right behind a mapping of the file.
pub const BEHIND: u64 = 1 << 63;
/// In a file offset: the frame was interrupted there by a signal, or is the return of a signal
/// frame; it is not a return address.
pub const EXACT: u64 = 1 << 62;
/// Limit on the names of a file's path in its record, and bytes of each.
pub const FILE_NAMES: usize = 12;
/// Bytes of a name, see [`FILE_NAMES`].
pub const FILE_NAME: usize = 64;
/// Numbers in a record of a new file, in front of its names.
pub const FILE_FIELDS: usize = 6;
/// Argument of `user_unwind` for a whole stack whose registers are already given. Frame indices are
/// -2 and above.
pub const GIVEN: i32 = -3;

/// A copy of a stack, as a record for the controller.
pub mod copy {
    /// Fields of a copy: number; process; of the frame that was found last, the address, the address
    /// to look up, the stack pointer and the frame pointer; the number of stack pages that follow,
    /// starting with the stack pointer's page; the number of executable mappings behind [`PAGES`].
    /// A mapping has four words: start, end, the difference between address and file offset, the
    /// file's number.
    pub const FIELDS: usize = 8;
    /// Limit on the mappings in a copy.
    pub const MAPPINGS: usize = 128;
    /// Limit on the pages of a copy.
    pub const PAGES: usize = 8;
    /// Bytes of a copy's header, shape and fields, in front of the pages.
    pub const HEAD: u32 = 16 + 8 * spile_cast::u32_of(FIELDS);
    /// Bytes of a mapping in a copy.
    pub const MAPPING: u32 = 32;
    /// Offset of the mappings in a copy.
    pub const MAPPED: u32 = HEAD + spile_cast::u32_of(PAGES) * super::PAGE as u32;
    /// Size of a copy in bytes.
    pub const BYTES: u32 = MAPPED + spile_cast::u32_of(MAPPINGS) * MAPPING;
}

/// An unwind row of 8 bytes, which describes how to find the caller's registers: offsets of its
/// fields. The rows of a file are in order of their offsets in the file.
pub mod row {
    /// 32 bits: the row's first offset in the file.
    pub const START: i16 = 0;
    /// 16 bits, signed: the value in words to add to the register for the CFA; in PLT stubs the
    /// byte of each 16 from which it is one word more.
    pub const CFA: i16 = 4;
    /// 8 bits: words from the saved frame pointer to the CFA, 0 if it is unchanged.
    pub const SAVED: i16 = 6;
    /// 8 bits: [`kind`].
    pub const KIND: i16 = 7;

    /// The rule for the CFA. The return address is one word below it.
    pub mod kind {
        /// Unknown.
        pub const NONE: u8 = 0;
        /// The stack pointer plus the offset.
        pub const STACK: u8 = 1;
        /// The frame pointer plus the offset.
        pub const FRAME: u8 = 2;
        /// The word at the stack pointer plus the offset.
        pub const AT_STACK: u8 = 3;
        /// The word at the frame pointer plus the offset.
        pub const AT_FRAME: u8 = 4;
        /// Stubs of the procedure linkage table.
        pub const PLT: u8 = 5;
        /// The outermost frame.
        pub const END: u8 = 6;
        /// A signal frame.
        pub const SIGNAL: u8 = 7;
    }
}

/// Words of an unwind in a per-CPU area, as offsets from [`UnwindLayout::base`].
pub mod at {
    use super::{FILE_FIELDS, FILE_NAME, FILE_NAMES};
    /// The registers of the frame.
    pub const IP: u32 = 0;
    /// See [`IP`].
    pub const SP: u32 = 8;
    /// See [`IP`].
    pub const BP: u32 = 16;
    /// Whether the frame was interrupted, rather than making a call.
    pub const EXACT: u32 = 24;
    /// Number of frames so far.
    pub const N: u32 = 32;
    /// The address to look up: that of the call, not the return address.
    pub const ADDR: u32 = 40;
    /// The address range of the mapping, and the difference between addresses and file offsets.
    pub const START: u32 = 48;
    /// See [`START`].
    pub const END: u32 = 56;
    /// See [`START`].
    pub const OFF: u32 = 64;
    /// The file's number, its first row, the number of rows.
    pub const FILE: u32 = 72;
    /// See [`FILE`].
    pub const FIRST: u32 = 80;
    /// See [`FILE`].
    pub const ROWS: u32 = 88;
    /// A number for a moment, and another one.
    pub const LO: u32 = 96;
    /// See [`LO`].
    pub const HI: u32 = 104;
    /// The index of a row.
    pub const MID: u32 = 112;
    /// Key and value of a file in the map.
    pub const KEY: u32 = 120;
    /// See [`KEY`].
    pub const VALUE: u32 = 136;
    /// Buffer for memory that is read.
    pub const READ: u32 = 160;
    /// The process.
    pub const TGID: u32 = 176;
    /// The address of its vDSO.
    pub const VDSO: u32 = 184;
    /// The largest number of frames for this unwind.
    pub const MOST: u32 = 192;
    /// The position of the search for replaced return addresses.
    pub const RETURN: u32 = 200;
    /// Nonzero if the controller may complete the stack.
    pub const COPY: u32 = 208;
    /// Flags of the mapping.
    pub const FLAGS: u32 = 216;
    /// Number of mappings in the copy, and the next address to look up.
    pub const MAPPINGS: u32 = 224;
    /// See [`MAPPINGS`].
    pub const NEXT: u32 = 232;
    /// The record of a new file.
    pub const RECORD: u32 = 240;
    /// Its size in bytes.
    pub const RECORD_SIZE: u32 =
        16 + 8 * spile_cast::u32_of(FILE_FIELDS) + spile_cast::u32_of(FILE_NAMES * FILE_NAME);
    /// Files and offsets of frames, with an extra entry for a single address.
    pub const FILES: u32 = RECORD + RECORD_SIZE;
    /// The offsets for unwinds of this number of frames.
    pub const fn offsets(frames: u32) -> u32 {
        FILES + 8 * (frames + 1)
    }
}

/// Bytes in each per-CPU area for unwinds of this number of frames.
pub const fn buffer(frames: u32) -> u32 {
    at::offsets(frames) + 8 * (frames + 1)
}

/// Offsets in the kernel's structures, on the path from the task to the names of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct UnwindOffsets {
    pub mapping: MappingOffsets,
    pub task_tgid: u32,
    /// The vDSO's address in `struct mm_struct`.
    pub mm_vdso: u32,
    /// In `struct vm_area_struct`.
    pub vma_pgoff: u32,
    pub vma_file: u32,
    pub vma_flags: u32,
    /// In `struct file`: `f_inode`, `f_path.dentry`.
    pub file_inode: u32,
    pub file_dentry: u32,
    pub inode_ino: u32,
    pub inode_sb: u32,
    /// `s_dev` in `struct super_block`.
    pub sb_dev: u32,
    /// In `struct dentry`: `d_parent`, `d_name.name`.
    pub dentry_parent: u32,
    pub dentry_name: u32,
    /// Offsets for original return addresses, which return probes replace: `utask` in `struct
    /// task_struct`; `return_instances` in `struct uprobe_task`; `stack`, `orig_ret_vaddr`, `next`
    /// in `struct return_instance`.
    pub returns: Option<[u32; 5]>,
}

/// Where the host has what the functions need. Offsets are those of bytes in the per-CPU area,
/// unless something else is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnwindLayout {
    /// The processor.
    pub abi: &'static Abi,
    /// The words of unwinds ([`at`]).
    pub base: u32,
    /// The words of searches for mappings.
    pub search: u32,
    /// Limit on the frames of a stack.
    pub most: u32,
    /// The addresses of frames, with an extra one; their number in bytes; the offset of the first.
    pub frames: u32,
    /// See `frames`.
    pub count: u32,
    /// See `frames`.
    pub first: u32,
    /// In the state: the last file number.
    pub next_file: u32,
    /// Offsets in the kernel's structures.
    pub offsets: UnwindOffsets,
    /// Maps: files by device and inode, unwind rows, buffers for copies by processor; the ring.
    pub files: &'static str,
    /// See `files`.
    pub rows: &'static str,
    /// See `files`.
    pub copies: &'static str,
    /// See `files`.
    pub ring: &'static str,
    /// Numbers of the records of files and of copies.
    pub file_record: u32,
    /// See `file_record`.
    pub copy_record: u32,
    /// The flag with which a record wakes the controller.
    pub wakeup: i32,
    /// Counters: guessed frames, cut stacks, lost records, full maps.
    pub guessed: u32,
    /// See `guessed`.
    pub cut_stacks: u32,
    /// See `guessed`.
    pub lost_output: u32,
    /// See `guessed`.
    pub no_memory: u32,
}

impl UnwindLayout {
    /// What searches for mappings need.
    pub(super) fn mapping(&self) -> MappingLayout {
        MappingLayout {
            words: self.search,
            offsets: self.offsets.mapping,
        }
    }
}
