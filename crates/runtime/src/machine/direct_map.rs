//! The addresses of the kernel's direct map and of its array of `struct page`, with which kernel
//! handlers read pages of files that a process has not mapped yet. Both are randomised at boot, and
//! not every kernel exposes its symbols. The search creates a page with known bytes, asks for its
//! number, and looks for its descriptor and its bytes in kernel memory. A result is correct because
//! the bytes are there.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use spile_kernel::btf::Btf;

use crate::machine::clock;
use crate::machine::kernel_memory::KernelMemory;

/// Page size in bytes, on all processors where kernel handlers look up pages.
const PAGE: usize = spile_abi::PAGE as usize;
/// Alignment of the direct map.
const ALIGN: u64 = 1 << 30;
/// Limit of the search in units of [`ALIGN`]: 4 TB.
const MOST: u64 = 4096;

/// The two addresses.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DirectMap {
    /// Address of the first `struct page`.
    pub pages: u64,
    /// Address of the first byte of memory.
    pub memory: u64,
}

/// Finds the addresses; `None` if this kernel, or this process's privileges, do not allow it.
pub fn find() -> Option<DirectMap> {
    let file = File::from(memfd_create("spile", MemfdFlags::CLOEXEC).ok()?);
    let marks: [u64; PAGE / 8] = std::array::from_fn(|i| {
        (clock::mono_ns().cast_unsigned() ^ (i as u64) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    let bytes: Vec<u8> = marks.iter().flat_map(|m| m.to_ne_bytes()).collect();
    file.write_all_at(&bytes, 0).ok()?;
    let number = page_number(&file)?;
    let kernel = KernelMemory::open().ok()?;
    let btf = Btf::vmlinux().ok()?;
    let offset = |structure, member| btf.offset_of(structure, member);
    // The descriptor's file, and the only page in its page cache.
    let task = kernel.current_task().ok()?;
    let files = kernel.word(task + offset("task_struct", "files")?)?;
    let table = kernel.word(files + offset("files_struct", "fdt")?)?;
    let list = kernel.word(table + offset("fdtable", "fd")?)?;
    let open = kernel.word(list + 8 * u64::try_from(file.as_raw_fd()).ok()?)?;
    let mapping = kernel.word(open + offset("file", "f_mapping")?)?;
    let pages = btf.member(btf.find_struct("address_space")?, "i_pages")?;
    let head = pages.bit_offset + btf.member(pages.ty, "xa_head")?.bit_offset;
    let page = kernel.word(mapping + u64::from(head / 8))?;
    let size = btf.size_of(btf.find_struct("page")?)?;
    let pages = page.checked_sub(number.checked_mul(size)?)?;
    // The task is also in the direct map, which therefore starts at or below it.
    let top = task & !(ALIGN - 1);
    let memory = (0..MOST).find_map(|n| {
        let base = top.checked_sub(n * ALIGN)?;
        let mut content = [0; PAGE];
        let is_read = kernel.read(base.checked_add(number * PAGE as u64)?, &mut content);
        (is_read.is_ok_and(|is_read| is_read) && content[..] == bytes[..]).then_some(base)
    })?;
    Some(DirectMap { pages, memory })
}

/// The number of the only page of a file, from this process's page table.
fn page_number(file: &File) -> Option<u64> {
    let flags = MapFlags::SHARED | MapFlags::POPULATE;
    // SAFETY: a new mapping at a location that the kernel chooses; nothing refers to it.
    let address = unsafe { mmap(ptr::null_mut(), PAGE, ProtFlags::READ, flags, file, 0) }.ok()?;
    let mut entry = [0; 8];
    let read = File::open("/proc/self/pagemap")
        .and_then(|map| map.read_exact_at(&mut entry, address as u64 / PAGE as u64 * 8));
    // SAFETY: the mapping made above, which nothing refers to.
    let unmapped = unsafe { munmap(address, PAGE) };
    let entry = u64::from_ne_bytes(entry);
    let present = entry >> 63 == 1;
    let number = entry & ((1 << 55) - 1);
    (read.is_ok() && unmapped.is_ok() && present && number != 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_direct_map_is_found_at_the_same_address() {
        let Some(first) = find() else {
            spile_testing::skip!("pages cannot be looked up here");
        };
        assert_eq!(first.memory % ALIGN, 0);
        assert_eq!(find(), Some(first));
    }
}
