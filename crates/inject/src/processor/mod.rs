//! What is of one kind of processor, `x86_64`.
//!
//! In: addresses, hooks, bytes of functions. Out: code at these addresses, and where stopped threads stand.
//!
//! | module | its one job |
//! |---|---|
//! | `registers` | registers of threads and of handlers |
//! | `relocate` | the instructions that a jump replaces, and their copy |
//! | `assembly` | what all entry code is written with |
//! | `entry` | what a hooked function jumps to |
//! | `calls` | what handlers get at system calls |
//! | `cancellable` | the function of a C library that makes cancellable calls |
//! | `requests` | what threads ask spile for |
//! | `sites` | where code calls the kernel |
//! | `find` | the record of the thread that hits |
//! | `frames` | where threads stand, and where signals interrupted them |

mod assembly;
pub(crate) mod calls;
pub(crate) mod cancellable;
pub(crate) mod entry;
pub(crate) mod find;
pub(crate) mod frames;
pub(crate) mod registers;
pub(crate) mod relocate;
mod requests;
pub(crate) mod sites;

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;

/// Whether programs can read the address of their thread structure (`rdfsbase`).
pub(crate) fn base_readable() -> bool {
    // SAFETY: reads a word of this process's start.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & 2 != 0 }
}

/// End of the address space of a program, as the kernel has it.
pub(crate) const TASK_SIZE: u64 = (1 << 47) - PAGE;
