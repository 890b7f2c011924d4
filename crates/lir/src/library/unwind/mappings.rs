//! The files of mappings: the search from an address to its file, and the records that announce
//! files to the controller.

use spile_cast::Cast;

use super::layout::{FILE_FIELDS, FILE_NAME, FILE_NAMES, UnwindLayout, VDSO, at};
use super::unwinder::Unwinder;
use crate::builder::{BlockExit, Scalar};
use crate::func::{LirFunc, MemoryOperand};
use crate::helpers::Helper;
use crate::library::area::{displacement, function};
use crate::library::mappings::{MappingSearch, search};
use crate::op::{ExtOp, Size};

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
            let mm = w.word(task, o.mapping.task_mm, end);
            end.leave_if(mm.eq(0));
            w.set(at::VDSO, w.word(mm, o.mm_vdso, end));
            let search = MappingSearch {
                f,
                layout: &layout.mapping(),
                block: w.block,
            };
            search.set(search::ADDRESS, w.get(at::ADDR));
            let vma = search.mapping(mm, end);
            end.leave_if(vma.eq(0));
            let range = [o.mapping.vma_start, o.mapping.vma_end];
            let [from, to] = range.map(|field| w.word(vma, field, end));
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
