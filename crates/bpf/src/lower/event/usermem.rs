//! User memory that is not mapped: read from the page cache.
//!
//! The kernel lets a tracing program read only pages that are in the process's page table. A string
//! constant of a new program, or a file that was just mapped, causes a fault. Most such pages are
//! nevertheless in memory, in the page cache of the file. If a read faults, `user_text` therefore
//! looks for the mapping (`bpf_find_vma`, with the callback `user_vma`). `user_page` then finds the
//! page in the file's page cache (an xarray), and reads it through the kernel's direct map.
//! Afterwards it checks that the page still belongs to the file.
//!
//! Only pages without a possible private copy are read this way: nothing was ever written to the
//! mapping (`anon_vma` is null), or the mapping is shared. The loader determines the start of the
//! direct map, in words of the shared block that are 0 if it could not. Without it, and for all
//! other pages, the read fails.

use crate::isa::asm::{Asm, Function, Label, Section};
use crate::isa::helpers::Helper;
use crate::isa::helpers::errno::ENOENT;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Reg, Size};
use crate::layout::{self, shared};
use crate::lower::{HandlerCodegen, Res};
use crate::plan::StateLayout;
use crate::target::{Options, PageOffsets};

/// Results of `user_text`.
mod status {
    /// The bytes were read.
    pub(super) const READ: i32 = 0;
    /// The address may be valid, but the memory is not resident.
    pub(super) const ABSENT: i32 = 1;
    /// The address is invalid.
    pub(super) const BAD: i32 = 2;
}

/// Result of `user_text` for an address that may be valid, in memory that is not resident.
pub(in crate::lower) const ABSENT: i32 = status::ABSENT;

/// Stack slots of `user_text` that its callback reads.
mod slot {
    /// The address.
    pub(super) const ADDR: i16 = 0;
    /// Number of bytes, all in one page.
    pub(super) const LEN: i16 = 8;
    /// Number of bytes that were read before.
    pub(super) const DONE: i16 = 16;
    /// The CPU's block.
    pub(super) const BLOCK: i16 = 24;
    /// Size of the slots in bytes.
    pub(super) const SIZE: i16 = 32;
}

/// Results of the callback, in words of the CPU's block. On the stack each value would be another
/// path for the verifier.
mod found {
    /// The [`status`].
    pub(super) const STATUS: u32 = 0;
    /// Address of the head of the file's xarray.
    pub(super) const HEAD: u32 = 8;
    /// The page's index in the file.
    pub(super) const INDEX: u32 = 16;
}

/// Names of the subprograms; the first one needs the words.
pub(crate) const USER_TEXT: &str = "user_text";
const USER_PAGE: &str = "user_page";
const PAGE: i32 = layout::PAGE as i32;
/// Bits of `vm_flags`: the mapping is readable; its pages do not come from a page cache
/// (`VM_PFNMAP`, `VM_IO`, `VM_HUGETLB`).
const VM_READ: i32 = 1;
const VM_SPECIAL: i32 = 0x40_4400;
/// The largest number of xarray levels to descend, of 64 entries each.
const LEVELS: u32 = 5;
/// Internal entries of an xarray below `NODES` are not nodes; those below `SIBLINGS` refer to
/// another slot.
const NODES: i32 = 4096;
const SIBLINGS: i32 = 256;
/// The largest number of pages in a folio.
const MOST_PAGES: i32 = 1 << 20;

/// Offset in a CPU's block of the bytes that were read.
pub(in crate::lower) fn staging_area(plan: &StateLayout) -> u32 {
    plan.scratch.text + 2 * plan.max_string
}

/// Defines `user_text(room, address, raw)`, which reads up to `room` bytes into the [`staging_area`]
/// area and terminates them with a NUL. Unless `raw` is set, it stops at a NUL.
pub(in crate::lower) fn use_user_text(
    pool: &mut crate::lower::Pool,
    plan: &StateLayout,
    options: &Options,
) -> Result<(), String> {
    let pages = options.offsets.pages;
    pool.sub(USER_TEXT, |_| user_text(plan, pages.is_some()))?;
    if let Some(pages) = pages {
        pool.sub("user_vma", |_| user_vma(plan, &pages))?;
        pool.sub(USER_PAGE, |_| user_page(plan, &pages))?;
    }
    Ok(())
}

impl HandlerCodegen<'_> {
    /// Reads memory that a helper could not: up to `room` (in r1) bytes at the address in r2. `r0`
    /// is nonzero if that fails too. Clobbers r1 to r5.
    pub(in crate::lower) fn read_absent(&mut self, raw: bool) -> Res {
        use_user_text(self.pool, self.plan, self.options)?;
        self.asm.mov(R3, i32::from(raw));
        self.asm.call_sub(USER_TEXT);
        Ok(())
    }
}

/// `r1` = destination of the next bytes, `r2` = their number, both bounded, from the slots below
/// `slots`.
fn destination(asm: &mut Asm, plan: &StateLayout, block: Reg, slots: (Reg, i16), out: Label) {
    let most = plan.max_string as i32;
    let (base, at) = slots;
    asm.load(Size::DW, R1, base, at + slot::DONE);
    asm.jump_if(Cond::Gt, R1, most, out);
    asm.load(Size::DW, R2, base, at + slot::LEN);
    asm.jump_if(Cond::Gt, R2, most, out);
    asm.jump_if(Cond::Eq, R2, 0, out);
    asm.add(R1, block);
    asm.add(R1, staging_area(plan) as i32);
}

/// Limits r2, the number of bytes to read, to the end of the address's page. Clobbers r1 and r3.
fn to_end_of_page(asm: &mut Asm) {
    let (here, short) = (-slot::SIZE, asm.label());
    asm.load(Size::DW, R3, R10, here + slot::ADDR);
    asm.alu(AluOp::And, R3, PAGE - 1);
    asm.mov(R1, PAGE);
    asm.alu(AluOp::Sub, R1, R3);
    asm.jump_if(Cond::Le, R2, R1, short);
    asm.mov(R2, R1);
    asm.bind(short);
}

/// Reads a page that is not mapped, from the page cache. Goes to the labels if there is no such
/// memory, if the page is not in memory, and if the status is final.
fn absent_page(asm: &mut Asm, plan: &StateLayout, [bad, failed, out]: [Label; 3]) {
    let here = -slot::SIZE;
    let word = |word: u32| (plan.scratch.page + word) as i16;
    asm.store(Size::DW, R8, word(found::STATUS), status::ABSENT);
    asm.store(Size::DW, R10, here + slot::BLOCK, R8);
    asm.call(Helper::GetCurrentTaskBtf);
    asm.mov(R1, R0);
    asm.load(Size::DW, R2, R10, here + slot::ADDR);
    asm.ld_func(R3, "user_vma");
    asm.mov(R4, R10);
    asm.add(R4, i32::from(here));
    asm.mov(R5, 0);
    asm.call(Helper::FindVma);
    asm.jump_if(Cond::Eq, R0, ENOENT, bad);
    asm.jump_if(Cond::Ne, R0, 0, failed);
    asm.load(Size::DW, R0, R8, word(found::STATUS));
    asm.jump_if(Cond::Ne, R0, status::READ, out);
    asm.load(Size::DW, R1, R8, word(found::HEAD));
    asm.load(Size::DW, R2, R8, word(found::INDEX));
    let given = [(R3, slot::ADDR), (R4, slot::LEN), (R5, slot::DONE)];
    for (reg, slot) in given {
        asm.load(Size::DW, reg, R10, here + slot);
    }
    asm.call_sub(USER_PAGE);
    asm.jump_if(Cond::Ne, R0, 0, failed);
}

/// `user_text(room, address, raw)`: returns a [`status`].
fn user_text(plan: &StateLayout, cache: bool) -> Result<Function, String> {
    let most = plan.max_string as i32;
    let mut asm = Asm::new(USER_TEXT, &["room", "address", "raw"]);
    let (bad, done, failed, out) = (asm.label(), asm.label(), asm.label(), asm.label());
    let here = -slot::SIZE;
    asm.mov(R6, R1);
    asm.mov(R7, R3);
    asm.store(Size::DW, R10, here + slot::ADDR, R2);
    asm.store(Size::DW, R10, here + slot::DONE, 0);
    plan.cpu_block(&mut asm, R8, bad);
    asm.jump_if(Cond::Gt, R6, most - 1, bad);
    asm.jump_if(Cond::Eq, R6, 0, bad);
    let pages = if most <= PAGE { 2 } else { 3 };
    for _ in 0..pages {
        let next = asm.label();
        asm.load(Size::DW, R1, R10, here + slot::DONE);
        asm.mov(R2, R6);
        asm.alu(AluOp::Sub, R2, R1);
        asm.jump_if(Cond::Sle, R2, 0, done);
        to_end_of_page(&mut asm);
        asm.store(Size::DW, R10, here + slot::LEN, R2);
        destination(&mut asm, plan, R8, (R10, here), bad);
        asm.load(Size::DW, R3, R10, here + slot::ADDR);
        asm.call(Helper::ProbeReadUser);
        asm.jump_if(Cond::Eq, R0, 0, next);
        if cache {
            absent_page(&mut asm, plan, [bad, failed, out]);
        } else {
            asm.jump(failed);
        }
        asm.bind(next);
        // Continues behind the page only if these bytes contain no NUL.
        let all = asm.label();
        // A copy, so that facts about it do not multiply the verifier's paths.
        asm.mov(R1, R7);
        asm.alu(AluOp::And, R1, -1);
        asm.jump_if(Cond::Ne, R1, 0, all);
        destination(&mut asm, plan, R8, (R10, here), bad);
        asm.mov(R3, R1);
        asm.mov(R1, R8);
        asm.add(R1, (plan.scratch.text + 3 * plan.max_string) as i32);
        asm.add(R2, 1);
        asm.call(Helper::ProbeReadKernelStr);
        asm.load(Size::DW, R2, R10, here + slot::LEN);
        let ended = asm.label();
        asm.jump_if(Cond::Gt, R0, R2, all);
        asm.jump(ended);
        asm.bind(all);
        for (at, by) in [(slot::DONE, R1), (slot::ADDR, R1)] {
            asm.load(Size::DW, by, R10, here + at);
            asm.load(Size::DW, R2, R10, here + slot::LEN);
            asm.add(by, R2);
            asm.store(Size::DW, R10, here + at, by);
        }
        let go_on = asm.label();
        asm.jump(go_on);
        asm.bind(ended);
        asm.mov(R0, status::READ);
        asm.exit();
        asm.bind(go_on);
    }
    asm.bind(done);
    asm.load(Size::DW, R1, R10, here + slot::DONE);
    asm.jump_if(Cond::Gt, R1, most, bad);
    asm.add(R8, R1);
    asm.add(R8, staging_area(plan) as i32);
    asm.store(Size::B, R8, 0, 0);
    asm.mov(R0, status::READ);
    asm.jump(out);
    asm.bind(failed);
    asm.mov(R0, status::ABSENT);
    asm.jump(out);
    asm.bind(bad);
    asm.mov(R0, status::BAD);
    asm.bind(out);
    asm.exit();
    asm.mark_separate();
    asm.finish().map_err(|e| e.to_string())
}

/// Code that follows kernel pointers: r6 is the slots' address, r8 the page's index in its file.
struct PageCacheWalk<'a> {
    asm: Asm,
    pages: &'a PageOffsets,
    out: Label,
}

impl PageCacheWalk<'_> {
    /// `to` = word at `base + off` in kernel memory. Clobbers r0 to r5.
    fn word(&mut self, to: Reg, base: Reg, off: u32) {
        let asm = &mut self.asm;
        asm.mov(R3, base);
        asm.add(R3, off as i32);
        asm.mov(R1, R10);
        asm.add(R1, -8);
        asm.mov(R2, 8);
        asm.call(Helper::ProbeReadKernel);
        asm.jump_if(Cond::Ne, R0, 0, self.out);
        asm.load(Size::DW, to, R10, -8);
    }

    /// `r9` = the entry in slot r1 of node r7; its address is saved at -16.
    fn entry(&mut self) {
        self.asm.alu(AluOp::Lsh, R1, 3);
        self.asm.add(R1, R7);
        self.asm.add(R1, self.pages.node_slots as i32);
        self.asm.store(Size::DW, R10, -16, R1);
        self.asm.mov(R9, R1);
        self.word(R9, R9, 0);
    }

    /// Descends from the xarray's head in r9 to the page's folio in r9.
    fn descend(&mut self, folio: Label) {
        for level in 0..LEVELS {
            let (node, single) = (self.asm.label(), self.asm.label());
            let asm = &mut self.asm;
            asm.mov(R1, R9);
            asm.alu(AluOp::And, R1, 3);
            asm.jump_if(Cond::Eq, R1, 2, node);
            // For a file of one page the head itself is the entry.
            if level == 0 {
                asm.jump_if(Cond::Ne, R8, 0, self.out);
            }
            asm.jump(folio);
            asm.bind(node);
            asm.jump_if(Cond::Le, R9, NODES, self.out);
            asm.mov(R7, R9);
            asm.add(R7, -2);
            self.word(R2, R7, self.pages.node_shift);
            let asm = &mut self.asm;
            asm.alu(AluOp::And, R2, 63);
            asm.mov(R1, R8);
            asm.alu(AluOp::Rsh, R1, R2);
            if level == 0 {
                asm.jump_if(Cond::Gt, R1, 63, self.out);
            }
            asm.alu(AluOp::And, R1, 63);
            self.entry();
            // A large folio has its entry in another slot.
            let asm = &mut self.asm;
            asm.mov(R1, R9);
            asm.alu(AluOp::And, R1, 3);
            asm.jump_if(Cond::Ne, R1, 2, single);
            asm.jump_if(Cond::Ge, R9, SIBLINGS, single);
            asm.mov(R1, R9);
            asm.alu(AluOp::Rsh, R1, 2);
            self.entry();
            self.asm.bind(single);
            // Loads it again, so that facts about it do not multiply the verifier's paths.
            self.asm.load(Size::DW, R9, R10, -16);
            self.word(R9, R9, 0);
        }
        self.asm.mov(R1, R9);
        self.asm.alu(AluOp::And, R1, 3);
        self.asm.jump_if(Cond::Eq, R1, 2, self.out);
    }

    /// `r9` = address of the wanted bytes, from the folio in r9.
    fn address(&mut self) {
        let out = self.out;
        let asm = &mut self.asm;
        // The entry is neither empty nor a shadow entry.
        asm.mov(R1, R9);
        asm.alu(AluOp::And, R1, 3);
        asm.jump_if(Cond::Ne, R1, 0, out);
        asm.jump_if(Cond::Eq, R9, 0, out);
        asm.store(Size::DW, R10, -24, R9);
        self.word(R1, R9, self.pages.folio_flags);
        self.asm.alu(AluOp::Rsh, R1, self.pages.uptodate as i32);
        self.asm.alu(AluOp::And, R1, 1);
        self.asm.jump_if(Cond::Eq, R1, 0, out);
        self.word(R1, R9, self.pages.folio_index);
        let asm = &mut self.asm;
        asm.alu(AluOp::Sub, R8, R1);
        asm.jump_if(Cond::Gt, R8, MOST_PAGES, out);
        asm.ld_data(R2, Section::Bss, 0);
        asm.load(Size::DW, R1, R2, shared::PAGES as i16);
        asm.load(Size::DW, R2, R2, shared::MEMORY as i16);
        asm.jump_if(Cond::Eq, R1, 0, out);
        asm.alu(AluOp::Sub, R9, R1);
        asm.alu(AluOp::Div, R9, self.pages.page_size as i32);
        asm.add(R9, R8);
        asm.alu(AluOp::Mul, R9, PAGE);
        asm.add(R9, R2);
        asm.load(Size::DW, R1, R6, slot::ADDR);
        asm.alu(AluOp::And, R1, PAGE - 1);
        asm.add(R9, R1);
    }
}

/// `user_vma(task, vma, slots)`: finds the head and the page's index in the mapped file's page
/// cache.
fn user_vma(plan: &StateLayout, pages: &PageOffsets) -> Result<Function, String> {
    let mut asm = Asm::new("user_vma", &["task", "vma", "slots"]);
    let (out, readable) = (asm.label(), asm.label());
    let word = |word: u32| (plan.scratch.page + word) as i16;
    asm.mov(R6, R3);
    asm.mov(R7, R2);
    let mut w = PageCacheWalk { asm, pages, out };
    w.word(R1, R7, pages.vma_flags);
    w.asm.mov(R2, R1);
    w.asm.alu(AluOp::And, R2, VM_READ);
    w.asm.jump_if(Cond::Ne, R2, 0, readable);
    w.asm.load(Size::DW, R1, R6, slot::BLOCK);
    w.asm.store(Size::DW, R1, word(found::STATUS), status::BAD);
    w.asm.jump(out);
    w.asm.bind(readable);
    w.asm.alu(AluOp::And, R1, VM_SPECIAL);
    w.asm.jump_if(Cond::Ne, R1, 0, out);
    // A private mapping with pages of its own, which the page cache does not have.
    w.word(R1, R7, pages.vma_anon);
    w.asm.jump_if(Cond::Ne, R1, 0, out);
    // The page's index in the file.
    w.word(R1, R7, pages.vma_start);
    w.asm.load(Size::DW, R8, R6, slot::ADDR);
    w.asm.alu(AluOp::Sub, R8, R1);
    w.asm.alu(AluOp::Rsh, R8, PAGE.trailing_zeros() as i32);
    w.word(R1, R7, pages.vma_pgoff);
    w.asm.add(R8, R1);
    w.word(R9, R7, pages.vma_file);
    w.asm.jump_if(Cond::Eq, R9, 0, out);
    w.word(R9, R9, pages.file_mapping);
    w.asm.jump_if(Cond::Eq, R9, 0, out);
    w.asm.add(R9, pages.mapping_head as i32);
    w.asm.load(Size::DW, R1, R6, slot::BLOCK);
    w.asm.store(Size::DW, R1, word(found::HEAD), R9);
    w.asm.store(Size::DW, R1, word(found::INDEX), R8);
    w.asm.store(Size::DW, R1, word(found::STATUS), status::READ);
    let mut asm = w.asm;
    asm.bind(out);
    asm.mov(R0, 0);
    asm.exit();
    asm.finish().map_err(|e| e.to_string())
}

/// `user_page(head, index, address, bytes, done)`: reads bytes of a page in the page cache, and
/// stores them behind the first `done` bytes. Returns nonzero if it could not. A global subprogram,
/// because its parameters are numbers. The structures that it reads are freed by RCU, which tracing
/// programs run under.
fn user_page(plan: &StateLayout, pages: &PageOffsets) -> Result<Function, String> {
    let names = ["head", "index", "address", "bytes", "done"];
    let mut asm = Asm::new(USER_PAGE, &names);
    let (out, folio) = (asm.label(), asm.label());
    // The callback's slots, below the words that the walk saves.
    let here = -24 - slot::SIZE;
    let given = [(slot::ADDR, R3), (slot::LEN, R4), (slot::DONE, R5)];
    for (slot, reg) in given {
        asm.store(Size::DW, R10, here + slot, reg);
    }
    asm.mov(R6, R10);
    asm.add(R6, i32::from(here));
    asm.mov(R9, R1);
    asm.mov(R8, R2);
    let mut w = PageCacheWalk { asm, pages, out };
    w.asm.store(Size::DW, R10, -16, R9);
    w.word(R9, R9, 0);
    w.descend(folio);
    w.asm.bind(folio);
    w.address();
    plan.cpu_block(&mut w.asm, R7, out);
    destination(&mut w.asm, plan, R7, (R6, 0), out);
    w.asm.mov(R3, R9);
    w.asm.call(Helper::ProbeReadKernel);
    w.asm.jump_if(Cond::Ne, R0, 0, out);
    // Checks that the page still belongs to the file.
    w.asm.load(Size::DW, R9, R10, -16);
    w.word(R1, R9, 0);
    w.asm.load(Size::DW, R2, R10, -24);
    w.asm.jump_if(Cond::Ne, R1, R2, out);
    let mut asm = w.asm;
    asm.mov(R0, 0);
    asm.exit();
    asm.bind(out);
    asm.mov(R0, 1);
    asm.exit();
    asm.mark_separate();
    asm.finish().map_err(|e| e.to_string())
}
