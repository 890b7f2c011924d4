//! User stacks: `user_walk` calls `user_frame` for one frame after the other.
//!
//! In: the registers of the interrupted program, and the tables that the controller has loaded.
//! Out: addresses with the numbers of their files, in the per-CPU area ([`at`]).
//!
//! `user_map` looks each address up in the tree of the process's mappings, which gives the file and
//! the offset (`mappings.rs`). It takes no lock: RCU keeps the tree alive while a tracing program
//! runs, and every value is checked. A map identifies a file by device and inode. It gives the file's
//! number for the controller and, once the controller has loaded them, the range of the file's unwind
//! rows ([`row`]). A new file is announced to the controller at once, with the names of its path, so
//! that programs that end before they are printed have names too.
//!
//! `user_step` finds the row of the address, and with it the caller's registers (`step.rs`). Without a
//! row it follows frame pointers, and counts the guess if the file may have rows. `user_return`
//! restores return addresses that return probes have replaced. `user_copy` sends what only the
//! controller can walk (`copies.rs`).
//!
//! Each function finds the block itself and has numbers as parameters, so that a host can make them
//! global: the kernel's verifier then follows each one once. The kernel allows eight frames, and a
//! handler's loop in front of a walk leaves five to it: `user_walk`, `user_copy`, its loop, `user_map`
//! and `user_file`.

mod copies;
mod mappings;
mod step;
mod walk;

use spile_abi::Abi;

use super::PAGE;
use super::tables::RowTable;
use crate::builder::{BlockExit, Builder, IntoOperand, Val, build};
use crate::func::{Func, MemoryPlace, Module};
use crate::helpers::Helper;

/// The file number of the vDSO, the kernel's own code in programs.
pub const VDSO: u32 = 0xffff;
/// In place of a frame's file: the controller has all frames from there on, in the copy of the
/// stack whose number is in place of the offset.
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
/// Argument of `user_walk` for a whole stack whose registers are already given. Frame indices are
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
    pub const HEAD: u32 = 16 + 8 * FIELDS as u32;
    /// Bytes of a mapping in a copy.
    pub const MAPPING: u32 = 32;
    /// Offset of the mappings in a copy.
    pub const MAPPED: u32 = HEAD + PAGES as u32 * super::PAGE as u32;
    /// Size of a copy in bytes.
    pub const BYTES: u32 = MAPPED + MAPPINGS as u32 * MAPPING;
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

/// Words of a walk in a per-CPU area, as offsets from [`UnwindLayout::base`].
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
    /// Entry of the tree.
    pub const ENTRY: u32 = 96;
    /// A number for a moment, and another one.
    pub const LO: u32 = 104;
    /// See [`LO`].
    pub const HI: u32 = 112;
    /// The index of a row.
    pub const MID: u32 = 120;
    /// Key and value of a file in the map.
    pub const KEY: u32 = 128;
    /// See [`KEY`].
    pub const VALUE: u32 = 144;
    /// Buffer for memory that is read.
    pub const READ: u32 = 168;
    /// The process.
    pub const TGID: u32 = 184;
    /// The address of its vDSO.
    pub const VDSO: u32 = 192;
    /// The largest number of frames for this walk.
    pub const MOST: u32 = 200;
    /// The position of the search for replaced return addresses.
    pub const RETURN: u32 = 208;
    /// Nonzero if the controller may complete the stack.
    pub const COPY: u32 = 216;
    /// The last address of the mapping or gap that was looked up.
    pub const LAST: u32 = 224;
    /// Flags of the mapping.
    pub const FLAGS: u32 = 232;
    /// Number of mappings in the copy, and the next address to look up.
    pub const MAPPINGS: u32 = 240;
    /// See [`MAPPINGS`].
    pub const NEXT: u32 = 248;
    /// A node of the tree.
    pub const NODE: u32 = 256;
    /// The record of a new file.
    pub const RECORD: u32 = NODE + 256;
    /// Its size in bytes.
    pub const RECORD_SIZE: u32 = 16 + 8 * FILE_FIELDS as u32 + (FILE_NAMES * FILE_NAME) as u32;
    /// Files and offsets of frames, with an extra entry for a single address.
    pub const FILES: u32 = RECORD + RECORD_SIZE;
    /// The offsets for walks of this number of frames.
    pub const fn offsets(frames: u32) -> u32 {
        FILES + 8 * (frames + 1)
    }
}

/// Bytes in each per-CPU area for walks of this number of frames.
pub const fn room(frames: u32) -> u32 {
    at::offsets(frames) + 8 * (frames + 1)
}

/// Offsets in the kernel's structures, on the path from the task to the names of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct UnwindOffsets {
    pub task_mm: u32,
    pub task_tgid: u32,
    /// Root of the tree of mappings in `struct mm_struct`, and the vDSO's address.
    pub mm_root: u32,
    pub mm_vdso: u32,
    /// In `struct vm_area_struct`.
    pub vma_start: u32,
    pub vma_end: u32,
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
    /// The words of walks ([`at`]).
    pub base: u32,
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
    /// Maps: files by device and inode, unwind rows, rooms for copies by processor; the ring.
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

/// The functions that look addresses up: `user_address` is what the host calls.
pub fn addresses(layout: &UnwindLayout) -> Module {
    Module::from(vec![
        walk::user_address(layout),
        mappings::user_map(layout),
        mappings::user_file(layout),
        mappings::maple_down(layout),
    ])
}

/// All functions: `user_walk` and `user_address` are what the host calls.
pub fn module(layout: &UnwindLayout) -> Module {
    let mut module = addresses(layout);
    module.funcs.extend([
        walk::user_walk(layout),
        walk::user_frame(layout),
        step::user_step(layout),
        copies::user_copy(layout),
    ]);
    let returns = layout.offsets.returns.map(|r| walk::user_return(layout, r));
    module.funcs.extend(returns);
    module
}

/// Parts of a function.
struct StackWalker<'a, 'b> {
    f: &'b Builder,
    at: &'a UnwindLayout,
    block: Val<'b>,
}

/// Builds a function; `code` gets its parameters.
fn walk<const N: usize>(
    layout: &UnwindLayout,
    (name, contract): (&str, &str),
    params: [&str; N],
    code: impl for<'b> FnOnce(StackWalker<'_, 'b>, [Val<'b>; N]),
) -> Func {
    build(name, contract, params, |f, p| {
        let block = f.addr(MemoryPlace::Cpu(0));
        let at = layout;
        code(StackWalker { f, at, block }, p);
    })
}

/// A displacement.
fn displacement(off: u32) -> i16 {
    off as i16
}

impl<'b> StackWalker<'_, 'b> {
    /// The content of a word.
    fn get(&self, field: u32) -> Val<'b> {
        self.block.load_u64(displacement(self.at.base + field))
    }

    fn set(&self, field: u32, v: impl IntoOperand<'b>) {
        self.block.store_u64(displacement(self.at.base + field), v);
    }

    /// The address of a word.
    fn addr(&self, field: u32) -> Val<'b> {
        self.block + (self.at.base + field).cast_signed()
    }

    /// Increments a counter.
    fn count(&self, counter: u32) {
        let off = displacement(counter);
        self.block.store_u64(off, self.block.load_u64(off) + 1);
    }

    fn map(&self, name: &str) -> Val<'b> {
        self.f.addr(MemoryPlace::Map(name.to_owned()))
    }

    /// The word at `base + off` in the kernel's memory.
    fn word(&self, base: Val<'b>, off: u32, fail: BlockExit<'b>) -> Val<'b> {
        let from = base + off.cast_signed();
        let args = [self.addr(at::READ), self.f.number(8), from];
        fail.leave_if(self.f.helper(Helper::Read, &args).ne(0));
        self.get(at::READ)
    }

    /// Reads bytes of the program's memory; gives the first word of them.
    fn user(&self, bytes: i32, from: Val<'b>, fail: BlockExit<'b>) -> Val<'b> {
        let args = [self.addr(at::READ), self.f.number(bytes), from];
        fail.leave_if(self.f.helper(Helper::ReadUser, &args).ne(0));
        self.get(at::READ)
    }

    /// A map of rows by index.
    fn table<'m>(&self, map: &'m str) -> RowTable<'m, 'b> {
        RowTable {
            f: self.f,
            map,
            block: self.block,
            index: self.at.base + at::MID,
        }
    }

    /// The address of the words of frame `n`, to which offsets of the block are added. The caller has
    /// compared it with the limit.
    fn frame(&self, n: Val<'b>) -> Val<'b> {
        self.block + (n << 3)
    }

    /// Displacements of the file and the offset of the first frame.
    fn file_and_offset(&self) -> [i16; 2] {
        let base = self.at.base;
        [at::FILES, at::offsets(self.at.most)].map(|field| displacement(base + field))
    }

    /// The limit on the frames.
    fn cap(&self) -> i32 {
        self.at.most.cast_signed()
    }
}
