//! Memory of the program that is not mapped: read from the page cache.
//!
//! The kernel lets a tracing program read only pages that are in the process's page table. A string
//! constant of a new program, or a file that was just mapped, causes a fault. Most such pages are
//! nevertheless in memory, in the page cache of the file. If a read faults, `user_text` therefore
//! looks for the mapping ([`super::mappings`]). `user_page` then finds the page in the
//! file's page cache (an xarray), and reads it through the kernel's direct map. Afterwards it checks
//! that the page still belongs to the file.
//!
//! Only pages without a possible private copy are read this way: nothing was ever written to the
//! mapping (`anon_vma` is null), or the mapping is shared. Two words of the state have the start of
//! the direct map, or 0 if it is not known. Without it, and for all other pages, the read fails.
//!
//! In: where the host has what the functions need ([`UsermemLayout`]). Out: a module; its `user_text` is
//! what the host calls.

use super::PAGE;
use super::mappings::{MappingLayout, MappingOffsets, MappingSearch, maple_down, search};
use crate::builder::{BlockExit, Builder, Scalar, Var, build};
use crate::func::{LirFunc, MemoryOperand, Module};
use crate::helpers::Helper;

/// Results of `user_text`.
pub mod status {
    /// The bytes were read.
    pub const READ: i32 = 0;
    /// The address may be valid, but the memory is not resident.
    pub const ABSENT: i32 = 1;
    /// The address is invalid.
    pub const BAD: i32 = 2;
}

const PAGE_BITS: i32 = PAGE.trailing_zeros().cast_signed();
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
/// Where the host has what the functions need. Offsets are those of bytes in the per-CPU area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsermemLayout {
    /// The largest number of bytes to read, with the NUL.
    pub most: i32,
    /// The staging area, where the bytes go: `most` bytes, and a word behind.
    pub staging: i32,
    /// Memory for a copy of the bytes of one page: `most` bytes, and 16 more.
    pub copy: i32,
    /// The words of searches for mappings.
    pub search: u32,
    /// How the page cache is found, if the host can look into it.
    pub pages: Option<PageOffsets>,
    /// Words of the state: the address of the first `struct page`, and of the direct map; both are
    /// zero if they are not known.
    pub first_page: u32,
    /// See `first_page`.
    pub direct_map: u32,
}

/// Offsets on the path from a mapping of a process to the page of its file in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct PageOffsets {
    pub mapping: MappingOffsets,
    /// In `struct vm_area_struct`.
    pub vma_flags: u32,
    pub vma_pgoff: u32,
    pub vma_file: u32,
    pub vma_anon: u32,
    /// `f_mapping` in `struct file`.
    pub file_mapping: u32,
    /// `i_pages.xa_head` in `struct address_space`.
    pub mapping_head: u32,
    /// In `struct xa_node`.
    pub node_shift: u32,
    pub node_slots: u32,
    /// In `struct folio`.
    pub folio_flags: u32,
    pub folio_index: u32,
    /// Bit of the folio's flags: the content is up to date.
    pub uptodate: u32,
    /// Bytes of a `struct page`.
    pub page_size: u32,
}

/// The functions.
pub fn module(layout: &UsermemLayout) -> Module {
    let mut funcs = vec![user_text(layout)];
    if let Some(pages) = &layout.pages {
        funcs.extend([
            user_page(layout, pages),
            maple_down(&mapping(layout, pages)),
        ]);
    }
    Module::from(funcs)
}

/// What searches for mappings need.
fn mapping(layout: &UsermemLayout, pages: &PageOffsets) -> MappingLayout {
    MappingLayout {
        words: layout.search,
        offsets: pages.mapping,
    }
}

/// Parts of a function.
struct PageCacheReader<'a, 'b> {
    f: &'b Builder,
    layout: &'a UsermemLayout,
    /// A word of the stack for what is read of the kernel's memory.
    word: Scalar<'b>,
}

impl<'b> PageCacheReader<'_, 'b> {
    /// The word at an address of the kernel; returns `bad` if it cannot be read.
    fn word(&self, address: Scalar<'b>, bad: i32) -> Scalar<'b> {
        let f = self.f;
        let read = f.helper(Helper::Read, &[self.word, f.constant(8), address]);
        f.ret_if(read.ne(0), bad);
        self.word.load_u64(0)
    }

    /// The entry of a slot, and its address.
    fn take(&self, slots: Scalar<'b>, slot: Scalar<'b>, (entry, slot_address): (Var<'b>, Var<'b>)) {
        slot_address.set(slots + (slot << 3));
        entry.set(self.word(slot_address.get(), 1));
    }

    /// A number of bytes that is at most [`UsermemLayout::most`].
    fn bounded(&self, n: Scalar<'b>) -> Scalar<'b> {
        let most = self.layout.most.cast_unsigned();
        n.bound((most + 1).next_power_of_two() - 1)
    }

    /// The address of a byte of the staging area.
    fn staged(&self, block: Scalar<'b>, byte: Scalar<'b>) -> Scalar<'b> {
        block + self.bounded(byte) + self.layout.staging
    }
}

fn offset(n: u32) -> i32 {
    n.cast_signed()
}

fn user_text(layout: &UsermemLayout) -> LirFunc {
    let contract = "\
Reads bytes of the program into the staging area, with a NUL behind; returns a status.
capacity: the largest number of bytes, below `most`; 0 is an invalid address. address: of the first one.
raw: 0 stops at a NUL.
Cost: two reads for each page, and those of user_page for each page that is not mapped.";
    let params = ["capacity", "address", "raw"];
    build("user_text", contract, params, |f, p| {
        let [capacity, address, raw] = p;
        let r = PageCacheReader {
            f,
            layout,
            word: f.slot(16),
        };
        let block = f.addr(MemoryOperand::Cpu(0));
        f.ret_if((capacity - 1).ge(layout.most - 1), status::BAD);
        let done = f.var("done", 0);
        // A text of up to a page touches two.
        let pages = (layout.most - 1).cast_unsigned().div_ceil(PAGE as u32) + 1;
        f.block(|full| {
            for _ in 0..pages {
                let (start, left) = (address + done, capacity - done);
                full.leave_if(left.eq(0));
                let len = f.var("len", f.number(PAGE) - (start & (PAGE - 1)));
                f.if_(left.lt(len), || len.set(left));
                let len = r.bounded(len.get());
                let to = r.staged(block, done.get());
                let read = f.helper(Helper::ReadUser, &[to, len, start]);
                f.if_(read.ne(0), || {
                    absent_page(&r, [block, start, len, done.get()])
                });
                // Continues behind the page only if these bytes contain no NUL.
                f.if_(raw.opaque().eq(0), || {
                    let (copy, from) = (block + layout.copy, r.staged(block, done.get()));
                    let text = f.helper(Helper::ReadText, &[copy, len + 1, from]);
                    f.ret_if(text.le(len), status::READ);
                });
                done.set(done + len);
            }
        });
        r.staged(block, done.get()).store_u8(0, 0);
        f.ret(status::READ);
    })
}

/// Reads bytes of a page that is not mapped, from the page cache. Returns if it cannot.
fn absent_page<'b>(r: &PageCacheReader<'_, 'b>, [block, address, len, done]: [Scalar<'b>; 4]) {
    let f = r.f;
    f.block(|read| {
        if let Some(pages) = &r.layout.pages {
            f.block(|absent| {
                let (head, index) = file_page(r, pages, (block, address), absent);
                let failed = f.call("user_page", &[head, index, address, len, done]);
                read.leave_if(failed.eq(0));
            });
        }
        f.ret(status::ABSENT);
    });
}

/// The head of the page cache of the file that is mapped at an address, and the page's index in it. Goes to `absent`
/// for memory that the page cache does not have; returns for addresses without memory.
fn file_page<'b>(
    r: &PageCacheReader<'_, 'b>,
    pages: &PageOffsets,
    (block, address): (Scalar<'b>, Scalar<'b>),
    absent: BlockExit<'b>,
) -> (Scalar<'b>, Scalar<'b>) {
    let f = r.f;
    let search = MappingSearch {
        f,
        layout: &mapping(r.layout, pages),
        block,
    };
    let word = |base: Scalar<'b>, off: u32| search.word(base, off, absent);
    let at = pages.mapping;
    search.set(search::ADDRESS, address);
    let mm = word(f.helper(Helper::TaskAddress, &[]), at.task_mm);
    absent.leave_if(mm.eq(0));
    let vma = search.mapping(mm, absent);
    f.ret_if(vma.eq(0), status::BAD);
    let flags = word(vma, pages.vma_flags);
    f.ret_if((flags & VM_READ).eq(0), status::BAD);
    absent.leave_if((flags & VM_SPECIAL).ne(0));
    // A private mapping with pages of its own, which the page cache does not have.
    absent.leave_if(word(vma, pages.vma_anon).ne(0));
    let first = word(vma, pages.vma_pgoff);
    let file = word(vma, pages.vma_file);
    // Behind the other fields, which may be those of a mapping that has come in the place of this one.
    let [start, end] = [at.vma_start, at.vma_end].map(|field| word(vma, field));
    absent.leave_if(start.gt(address));
    absent.leave_if(end.le(address));
    absent.leave_if(file.eq(0));
    let cache = word(file, pages.file_mapping);
    absent.leave_if(cache.eq(0));
    let index = ((address - start) >> PAGE_BITS) + first;
    (cache + offset(pages.mapping_head), index)
}

fn user_page(layout: &UsermemLayout, pages: &PageOffsets) -> LirFunc {
    let contract = "\
Reads bytes of a page in the page cache, and stores them behind those that were staged before; nonzero
if it cannot.
head: address of the xarray's head. index: of the page. address: of the first byte. bytes: how many, all
in one page. done: how many were staged before.
Cost: two or three reads for each level of the xarray, and five.";
    // A function of its own with numbers as parameters, so that the kernel's verifier follows it
    // once. RCU, under which handlers run, frees the structures that it reads.
    let params = ["head", "index", "address", "bytes", "done"];
    build("user_page", contract, params, |f, p| {
        let [head, index, address, bytes, done] = p;
        let r = PageCacheReader {
            f,
            layout,
            word: f.slot(8),
        };
        let (entry, slot_address) = (f.var("entry", r.word(head, 1)), f.var("slot_address", head));
        f.block(|folio| {
            for level in 0..LEVELS {
                f.if_((entry & 3).ne(2), || {
                    // For a file of one page the head itself is the entry.
                    if level == 0 {
                        f.ret_if(index.ne(0), 1);
                    }
                    folio.leave();
                });
                f.ret_if(entry.le(NODES), 1);
                let node = entry - 2;
                let slot = index >> (r.word(node + offset(pages.node_shift), 1) & 63);
                if level == 0 {
                    f.ret_if(slot.gt(63), 1);
                }
                let slots = node + offset(pages.node_slots);
                r.take(slots, slot & 63, (entry, slot_address));
                // A large folio has its entry in another slot.
                f.block(|single: BlockExit<'_>| {
                    single.leave_if((entry & 3).ne(2));
                    single.leave_if(entry.ge(SIBLINGS));
                    r.take(slots, entry >> 2, (entry, slot_address));
                });
            }
            f.ret_if((entry & 3).eq(2), 1);
        });
        // The entry is neither empty nor a shadow entry.
        let folio = entry.get();
        f.ret_if((folio & 3).ne(0), 1);
        f.ret_if(folio.eq(0), 1);
        let flags = r.word(folio + offset(pages.folio_flags), 1);
        f.ret_if(((flags >> offset(pages.uptodate)) & 1).eq(0), 1);
        let nth = index - r.word(folio + offset(pages.folio_index), 1);
        f.ret_if(nth.gt(MOST_PAGES), 1);
        let first_page = f.addr(MemoryOperand::State(layout.first_page)).load_u64(0);
        f.ret_if(first_page.eq(0), 1);
        let direct_map = f.addr(MemoryOperand::State(layout.direct_map)).load_u64(0);
        let page = (folio - first_page) / offset(pages.page_size) + nth;
        let from = page * PAGE + direct_map + (address & (PAGE - 1));
        let to = r.staged(f.addr(MemoryOperand::Cpu(0)), done);
        let read = f.helper(Helper::Read, &[to, r.bounded(bytes), from]);
        f.ret_if(read.ne(0), 1);
        // Checks that the page still belongs to the file.
        f.ret_if(r.word(slot_address.get(), 1).ne(folio), 1);
        f.ret(0);
    })
}
