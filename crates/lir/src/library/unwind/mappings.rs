//! Mappings of a process: the search from an address to its file, and the records that announce
//! files to the controller.
//!
//! Sources: `struct maple_range_64`, `struct maple_arange_64` and the tags in node pointers from
//! `include/linux/maple_tree.h` (6.1 and later, 64 bits).

use spile_cast::Cast;

use super::layout::{FILE_FIELDS, FILE_NAME, FILE_NAMES, UnwindLayout, VDSO, at};
use super::unwinder::Unwinder;
use crate::builder::{BlockExit, Scalar};
use crate::func::{LirFunc, MemoryOperand};
use crate::helpers::Helper;
use crate::library::area::{displacement, function};
use crate::op::{ExtOp, Size};

/// The layout of nodes in the kernel's maple tree. Leaves and ranges have types 1 and 2. The pivots
/// follow the node's first word, and the slots follow the pivots.
const LEAF: i32 = 1;
const ARANGE: i32 = 3;
const ARANGE_PIVOTS: u32 = 9;
const RANGE_PIVOTS: u32 = 15;
/// Bytes of a node.
const NODE: i32 = 256;

/// The largest number of tree levels to descend.
const LEVELS: u32 = 8;

pub(super) fn maple_down(layout: &UnwindLayout) -> LirFunc {
    let contract = "\
Descends from a node of the tree to the entry for the address; 1 if the entry is not a node. The type in
a node's pointer marks leaves.
Cost: a read and some 120 instructions.";
    function(layout, ("maple_down", contract), [], |w, []| {
        let f = w.f;
        let entry = w.get(at::ENTRY);
        let kind = (entry >> 3) & 15;
        f.block(|none| {
            let args = [w.addr(at::NODE), w.f.number(NODE), entry & -NODE];
            none.leave_if(f.helper(Helper::Read, &args).ne(0));
            none.leave_if(kind.eq(0));
            none.leave_if(kind.gt(ARANGE));
            let few = pivots_before(&w, 0..ARANGE_PIVOTS);
            let slot = f.var("slot", few);
            let pivots = f.var("pivots", ARANGE_PIVOTS.cast_signed());
            f.if_(kind.ne(ARANGE), || {
                slot.set(slot + pivots_before(&w, ARANGE_PIVOTS..RANGE_PIVOTS));
                pivots.set(RANGE_PIVOTS.cast_signed());
            });
            let first = displacement(layout.base + at::NODE + 8);
            // The slots follow the pivots.
            let pivot = (w.block + ((slot & 15) << 3)).load_u64(first);
            let below = (w.block + (((slot + pivots) & 31) << 3)).load_u64(first);
            // The last slot has no pivot: it ends where its parent's slot ends.
            f.if_(slot.lt(pivots), || {
                f.if_(pivot.ne(0), || w.set(at::LAST, pivot));
            });
            w.set(at::ENTRY, below);
            f.ret_if(kind.eq(LEAF), 1);
            f.ret(0);
        });
        w.set(at::ENTRY, 0);
        f.ret(1);
    })
}

/// The number of these pivots that precede the address. Pivots are the last addresses of whole pages,
/// and 0 behind the last pivot. Page numbers start at -1, so that 0 becomes the largest.
fn pivots_before<'b>(w: &Unwinder<'_, 'b>, pivots: std::ops::Range<u32>) -> Scalar<'b> {
    let page = (w.get(at::ADDR) >> 12) - 1;
    let mask = w.f.constant((1 << 52) - 1);
    // No comparison: the kernel's verifier would follow the rest once for each outcome.
    let before = |i: u32| {
        let last = ((w.get(at::NODE + 8 + 8 * i) >> 12) - 1) & mask;
        (last - page) >> 63
    };
    pivots.map(before).fold(w.f.number(0), |sum, one| sum + one)
}

pub(super) fn user_map(layout: &UnwindLayout) -> LirFunc {
    let contract = "\
Finds the mapping and the file of the address, and announces a new file; leaves zeros if there is none.
Cost: 14 reads, a look-up, and maple_down for each level of the tree.";
    function(layout, ("user_map", contract), [], |w, []| {
        let f = w.f;
        let o = &layout.offsets;
        for field in [at::START, at::END, at::OFF, at::FILE, at::FIRST, at::ROWS] {
            w.set(field, 0);
        }
        f.block(|end| {
            // (Loading a pointer through a typed one takes the kernel's verifier a millisecond.)
            let task = f.helper(Helper::TaskAddress, &[]);
            let mm = w.word(task, o.task_mm, end);
            end.leave_if(mm.eq(0));
            let root = w.word(mm, o.mm_root, end);
            w.set(at::ENTRY, root);
            // The low bits of the root tell that it is a node.
            end.leave_if((root & 3).ne(2));
            w.set(at::VDSO, w.word(mm, o.mm_vdso, end));
            f.block(|descent| {
                for _ in 0..LEVELS {
                    descent.leave_if(f.call("maple_down", &[]).ne(0));
                }
                end.leave();
            });
            let vma = w.get(at::ENTRY);
            end.leave_if(vma.eq(0));
            let [from, to] = [o.vma_start, o.vma_end].map(|field| w.word(vma, field, end));
            let address = w.get(at::ADDR);
            end.leave_if(from.gt(address));
            end.leave_if(to.le(address));
            w.set(at::START, from);
            w.set(at::END, to);
            w.set(at::FLAGS, w.word(vma, o.vma_flags, end));
            w.set(at::OFF, (w.word(vma, o.vma_pgoff, end) << 12) - from);
            let file = w.word(vma, o.vma_file, end);
            f.if_(file.eq(0), || vdso(&w, from, end));
            file_of(&w, file, end);
        });
    })
}

/// Looks up the vDSO, the only mapping without a file, which begins at `from`.
fn vdso<'b>(w: &Unwinder<'_, 'b>, from: Scalar<'b>, end: BlockExit<'b>) {
    end.leave_if(w.get(at::VDSO).ne(from));
    w.set(at::FILE, VDSO.cast_signed());
    w.set(at::KEY, 0);
    w.set(at::KEY + 8, 0);
    w.set(at::OFF, w.f.number(0) - from);
    known_file(w, end);
    end.leave();
}

/// Finds the number and the rows of a file, or announces it.
fn file_of<'b>(w: &Unwinder<'_, 'b>, file: Scalar<'b>, end: BlockExit<'b>) {
    let (f, o) = (w.f, &w.layout.offsets);
    let inode = w.word(file, o.file_inode, end);
    w.set(at::KEY + 8, w.word(inode, o.inode_ino, end));
    let superblock = w.word(inode, o.inode_sb, end);
    let device = w.word(superblock, o.sb_dev, end);
    w.set(at::KEY, device.ext(ExtOp::Zext, Size::U32));
    known_file(w, end);
    let last = f.addr(MemoryOperand::State(w.layout.next_file));
    let number = last.fetch_add(0, 1) + 1;
    w.set(at::VALUE, number);
    w.set(at::VALUE + 8, 0);
    w.set(at::VALUE + 16, 0);
    let [key, value] = [at::KEY, at::VALUE].map(|field| w.addr(field));
    // Only if the map has no such file yet.
    let args = [w.map(w.layout.files), key, value, w.f.number(1)];
    f.if_(f.helper(Helper::MapUpdate, &args).eq(0), || {
        w.set(at::FILE, number);
        f.call("user_file", &[file]);
        end.leave();
    });
    // Another processor was faster, or the map is full.
    known_file(w, end);
    w.count(w.layout.no_memory);
}

/// Notes number and rows of the file with the key, if it is known, and goes to `end`.
fn known_file<'b>(w: &Unwinder<'_, 'b>, end: BlockExit<'b>) {
    let args = [w.map(w.layout.files), w.addr(at::KEY)];
    let value = w.f.helper(Helper::MapLookup, &args);
    w.f.if_(value.ne(0), || {
        for (from, field) in [(0, at::FILE), (8, at::FIRST), (16, at::ROWS)] {
            w.set(field, value.load_u64(from));
        }
        end.leave();
    });
}

pub(super) fn user_file(layout: &UnwindLayout) -> LirFunc {
    let contract = "\
Announces a file to the controller, with the names of its path.
file: its `struct file`.
Cost: a record, and three reads for each name.";
    function(layout, ("user_file", contract), ["file"], |w, [file]| {
        let (f, o) = (w.f, &layout.offsets);
        let header = displacement(layout.base + at::RECORD);
        w.block.store_bytes(Size::U32, header, 0);
        let size = at::RECORD_SIZE.cast_signed();
        w.block.store_bytes(Size::U32, header + 4, size);
        w.set(at::RECORD + 8, layout.file_record.cast_signed());
        let field = |n: u32| at::RECORD + 16 + 8 * n;
        let fields = [at::TGID, at::START, at::END, at::KEY, at::KEY + 8];
        for (from, to) in [at::FILE].into_iter().chain(fields).zip(0..) {
            w.set(field(to), w.get(from));
        }
        let name = |i: usize| field(FILE_FIELDS.fit::<u32>()) + (i * FILE_NAME).fit::<u32>();
        for i in 0..FILE_NAMES {
            w.set(name(i), 0);
        }
        f.block(|send| {
            let mut entry = w.word(file, o.file_dentry, send);
            for i in 0..FILE_NAMES {
                // The root is its own parent, and so are files without a path, such as those of memfd_create(2).
                let parent = w.word(entry, o.dentry_parent, send);
                if i > 0 {
                    send.leave_if(parent.eq(entry));
                }
                let text = w.word(entry, o.dentry_name, send);
                let args = [w.addr(name(i)), w.f.number(FILE_NAME.fit::<i32>()), text];
                f.helper(Helper::ReadText, &args);
                entry = parent;
            }
        });
        let args = [
            w.addr(at::RECORD),
            w.f.number(size),
            w.f.number(layout.wakeup),
        ];
        let [record, size, flags] = args;
        let args = [w.map(layout.ring), record, size, flags];
        f.if_(f.helper(Helper::Output, &args).ne(0), || {
            w.count(layout.lost_output);
        });
    })
}
