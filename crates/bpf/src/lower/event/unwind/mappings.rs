//! Mappings of a process: the search from an address to its file, and the records that announce
//! files to the controller.

use super::walk_gen::{FILE_FIELDS, WalkGen, at};
use crate::isa::asm::{Function, Label, Section};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, AtomicOp, Cond, Size};
use crate::layout::{FILE_NAME, FILE_NAMES, FILES_MAP, RING, VDSO, percpu, shared};
use crate::lower::Res;

/// The layout of nodes in the kernel's maple tree (`include/linux/maple_tree.h`). Leaves and ranges
/// have types 1 and 2. The pivots follow the node's first word, and the slots follow the pivots.
const ARANGE: i32 = 3;
const ARANGE_PIVOTS: u32 = 9;
const RANGE_PIVOTS: u32 = 15;

/// The largest number of tree levels to descend.
const LEVELS: u32 = 8;

impl WalkGen<'_> {
    /// `maple_down()`: descends from a node of the tree to the entry for the address. Returns
    /// nonzero if the entry is not a node. The type in a node's pointer marks leaves.
    pub(super) fn maple_down(mut self) -> Res<Function> {
        let [leaf, none, range, found] = std::array::from_fn(|_| self.p.asm.label());
        self.load_field(R7, at::ENTRY);
        self.asm().mov(R8, R7);
        self.asm().alu(AluOp::Rsh, R8, 3);
        self.asm().alu(AluOp::And, R8, 15);
        self.asm().alu(AluOp::And, R7, -256);
        self.addr(R1, at::NODE);
        self.asm().mov(R2, 256);
        self.asm().mov(R3, R7);
        self.asm().call(Helper::ProbeReadKernel);
        self.asm().jump_if(Cond::Ne, R0, 0, none);
        // Pivots are the last addresses of whole pages, and 0 behind the last pivot. Page numbers
        // start at -1, so that 0 becomes the largest.
        self.load_field(R9, at::ADDR);
        self.asm().alu(AluOp::Rsh, R9, 12);
        self.asm().add(R9, -1);
        self.asm().ld_imm64(R3, (1 << 52) - 1);
        self.asm().jump_if(Cond::Eq, R8, 0, none);
        self.asm().jump_if(Cond::Gt, R8, ARANGE, none);
        self.asm().mov(R1, 0);
        self.count_pivots_before(0..ARANGE_PIVOTS);
        self.asm().jump_if(Cond::Ne, R8, ARANGE, range);
        self.asm().add(R1, ARANGE_PIVOTS as i32);
        self.asm().jump(found);
        self.asm().bind(range);
        self.count_pivots_before(ARANGE_PIVOTS..RANGE_PIVOTS);
        self.asm().add(R1, RANGE_PIVOTS as i32);
        self.asm().bind(found);
        // The slots follow the pivots.
        self.asm().alu(AluOp::And, R1, 31);
        self.asm().alu(AluOp::Lsh, R1, 3);
        self.asm().add(R1, R6);
        self.note_pivot();
        let slots = self.base + at::NODE as i16 + 8;
        self.asm().load(Size::DW, R2, R1, slots);
        self.store_field(at::ENTRY, R2);
        self.asm().jump_if(Cond::Eq, R8, 1, leaf);
        self.asm().mov(R0, 0);
        self.asm().exit();
        self.asm().bind(none);
        self.store_field(at::ENTRY, 0);
        self.asm().bind(leaf);
        self.asm().mov(R0, 1);
        self.asm().exit();
        self.p.finish()
    }

    /// Notes the pivot of the slot at r1, an index behind the pivots of a node of type r8. The last
    /// slot has no pivot: it ends where its parent's slot ends.
    fn note_pivot(&mut self) {
        let [arange, found, none] = std::array::from_fn(|_| self.p.asm.label());
        let before = |pivots: u32| (8 * pivots) as i16;
        let first = self.base + at::NODE as i16 + 8;
        self.asm().jump_if(Cond::Eq, R8, ARANGE, arange);
        self.asm()
            .load(Size::DW, R2, R1, first - before(RANGE_PIVOTS));
        self.asm().mov(R3, R6);
        self.asm().add(R3, 8 * (2 * RANGE_PIVOTS as i32));
        self.asm().jump(found);
        self.asm().bind(arange);
        self.asm()
            .load(Size::DW, R2, R1, first - before(ARANGE_PIVOTS));
        self.asm().mov(R3, R6);
        self.asm().add(R3, 8 * (2 * ARANGE_PIVOTS as i32));
        self.asm().bind(found);
        self.asm().mov(R4, R1);
        self.asm().alu(AluOp::Sub, R4, R3);
        self.asm().jump_if(Cond::Sge, R4, 0, none);
        self.asm().jump_if(Cond::Eq, R2, 0, none);
        self.store_field(at::LAST, R2);
        self.asm().bind(none);
    }

    /// Adds to r1 the number of these pivots that precede page r9. r3: the page mask.
    fn count_pivots_before(&mut self, pivots: std::ops::Range<u32>) {
        for i in pivots {
            self.load_field(R2, at::NODE + 8 + 8 * i);
            self.asm().alu(AluOp::Rsh, R2, 12);
            self.asm().add(R2, -1);
            self.asm().alu(AluOp::And, R2, R3);
            self.asm().alu(AluOp::Sub, R2, R9);
            self.asm().alu(AluOp::Rsh, R2, 63);
            self.asm().add(R1, R2);
        }
    }

    /// `user_map()`: finds the mapping and the file of the address; leaves zeros if there is none.
    pub(super) fn user_map(mut self) -> Res<Function> {
        let [found, named, fresh, full] = std::array::from_fn(|_| self.p.asm.label());
        let (o, end) = (self.o, self.p.end);
        for field in [at::START, at::END, at::OFF, at::FILE, at::FIRST, at::ROWS] {
            self.store_field(field, 0);
        }
        // (Loading a pointer through a typed one takes the verifier a millisecond.)
        self.asm().call(Helper::GetCurrentTask);
        self.asm().mov(R7, R0);
        self.word(R7, R7, o.task_mm, end);
        self.asm().jump_if(Cond::Eq, R7, 0, end);
        self.word(R8, R7, o.mm_root, end);
        self.store_field(at::ENTRY, R8);
        // The low bits of the root tell that it is a node.
        self.asm().alu(AluOp::And, R8, 3);
        self.asm().jump_if(Cond::Ne, R8, 2, end);
        self.word(R8, R7, o.mm_vdso, end);
        self.store_field(at::VDSO, R8);
        for _ in 0..LEVELS {
            self.asm().call_sub("maple_down");
            self.asm().jump_if(Cond::Ne, R0, 0, found);
        }
        self.asm().jump(end);
        self.asm().bind(found);
        self.load_field(R7, at::ENTRY);
        self.asm().jump_if(Cond::Eq, R7, 0, end);
        self.word(R9, R7, o.vma_start, end);
        self.word(R8, R7, o.vma_end, end);
        self.load_field(R1, at::ADDR);
        self.asm().jump_if(Cond::Gt, R9, R1, end);
        self.asm().jump_if(Cond::Le, R8, R1, end);
        self.store_field(at::START, R9);
        self.store_field(at::END, R8);
        self.word(R8, R7, o.vma_flags, end);
        self.store_field(at::FLAGS, R8);
        self.word(R8, R7, o.vma_pgoff, end);
        self.asm().alu(AluOp::Lsh, R8, 12);
        self.asm().alu(AluOp::Sub, R8, R9);
        self.store_field(at::OFF, R8);
        self.word(R7, R7, o.vma_file, end);
        let file = self.asm().label();
        self.asm().jump_if(Cond::Ne, R7, 0, file);
        self.vdso(named);
        self.asm().bind(file);
        self.word(R8, R7, o.file_inode, end);
        self.word(R9, R8, o.inode_ino, end);
        self.store_field(at::KEY + 8, R9);
        self.word(R9, R8, o.inode_sb, end);
        self.word(R9, R9, o.sb_dev, end);
        self.asm().mov32(R9, R9);
        self.store_field(at::KEY, R9);
        self.look_up(named);
        self.new_file(fresh);
        // Another processor was faster, or the map is full.
        self.look_up(named);
        self.asm().jump(full);
        self.asm().bind(fresh);
        self.store_field(at::FILE, R8);
        self.asm().mov(R1, R7);
        self.asm().call_sub("user_file");
        self.asm().jump(end);
        self.asm().bind(full);
        self.count(percpu::NO_MEMORY);
        self.asm().jump(end);
        self.asm().bind(named);
        for (from, field) in [(0, at::FILE), (8, at::FIRST), (16, at::ROWS)] {
            self.asm().load(Size::DW, R1, R0, from);
            self.store_field(field, R1);
        }
        self.p.finish()
    }

    /// Looks up the vDSO, the only mapping without a file; r9 is the start of the mapping.
    fn vdso(&mut self, named: Label) {
        let end = self.p.end;
        self.load_field(R1, at::VDSO);
        self.asm().jump_if(Cond::Ne, R1, R9, end);
        self.store_field(at::FILE, VDSO as i32);
        self.store_field(at::KEY, 0);
        self.store_field(at::KEY + 8, 0);
        self.asm().neg(R9);
        self.store_field(at::OFF, R9);
        self.look_up(named);
        self.asm().jump(end);
    }

    /// `r8` = the next file number, which the new file of the key gets; goes to `fresh` if the map
    /// has room for it and no entry yet.
    fn new_file(&mut self, fresh: Label) {
        let next = self.room.next_file;
        self.asm().ld_data(R1, Section::Bss, next);
        self.asm().mov(R8, 1);
        self.asm().atomic(AtomicOp::FetchAdd, R1, 0, R8);
        self.asm().add(R8, 1);
        self.store_field(at::VALUE, R8);
        self.store_field(at::VALUE + 8, 0);
        self.store_field(at::VALUE + 16, 0);
        self.asm().ld_map(R1, FILES_MAP);
        self.addr(R2, at::KEY);
        self.addr(R3, at::VALUE);
        self.asm().mov(R4, 1);
        self.asm().call(Helper::MapUpdateElem);
        self.asm().jump_if(Cond::Eq, R0, 0, fresh);
    }

    fn look_up(&mut self, found: Label) {
        self.asm().ld_map(R1, FILES_MAP);
        self.addr(R2, at::KEY);
        self.asm().call(Helper::MapLookupElem);
        self.asm().jump_if(Cond::Ne, R0, 0, found);
    }

    /// Appends the name of a file or directory to the record, and goes on to its parent directory;
    /// goes to `last` at the root. Not a subprogram: in a handler's loop, the call depth here
    /// already is the kernel's limit of eight frames.
    fn file_name(&mut self, place: u32, last: Label) {
        let o = self.o;
        self.load_field(R9, at::ENTRY);
        // The root is its own parent.
        self.word(R8, R9, o.dentry_parent, last);
        self.asm().jump_if(Cond::Eq, R8, R9, last);
        self.store_field(at::ENTRY, R8);
        self.word(R9, R9, o.dentry_name, last);
        self.addr(R1, place);
        self.asm().mov(R2, FILE_NAME as i32);
        self.asm().mov(R3, R9);
        self.asm().call(Helper::ProbeReadKernelStr);
    }

    /// `user_file(file)`: announces a file to the controller.
    pub(super) fn user_file(mut self, shape: u32) -> Res<Function> {
        let [send, sent] = std::array::from_fn(|_| self.p.asm.label());
        let o = self.o;
        let field = |n: u32| at::RECORD + 16 + 8 * n;
        let base = self.base;
        let header = base + at::RECORD as i16;
        self.asm().store(Size::W, R6, header, 0);
        self.asm()
            .store(Size::W, R6, header + 4, at::RECORD_SIZE as i32);
        self.store_field(at::RECORD + 8, shape as i32);
        let fields = [at::FILE, at::TGID, at::START, at::END, at::KEY, at::KEY + 8];
        for (i, from) in fields.into_iter().enumerate() {
            self.load_field(R1, from);
            self.store_field(field(i as u32), R1);
        }
        let name = |i: usize| field(FILE_FIELDS as u32) + (i * FILE_NAME) as u32;
        for i in 0..FILE_NAMES {
            self.store_field(name(i), 0);
        }
        self.word(R7, R7, o.file_dentry, send);
        self.store_field(at::ENTRY, R7);
        for i in 0..FILE_NAMES {
            self.file_name(name(i), send);
        }
        self.asm().bind(send);
        self.asm().ld_map(R1, RING);
        self.addr(R2, at::RECORD);
        self.asm().mov(R3, at::RECORD_SIZE as i32);
        self.asm().mov(R4, shared::FORCE_WAKEUP);
        self.asm().call(Helper::RingbufOutput);
        self.asm().jump_if(Cond::Eq, R0, 0, sent);
        self.count(percpu::LOST_OUTPUT);
        self.asm().bind(sent);
        self.p.finish()
    }
}
