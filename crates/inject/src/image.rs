//! What is put into a process: the areas of a file in memory, and the places that lead there.

use std::os::fd::BorrowedFd;

/// How an area is mapped. None is written and executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AreaAccess {
    /// Read and executed.
    Code,
    /// Read.
    Constants,
    /// Read and written by all processes that map it.
    Shared,
}

/// A part of an image, of whole pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageArea {
    /// Offset from the beginning of the file, and of the image in memory.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// How it is mapped.
    pub access: AreaAccess,
}

/// The records of threads ([`ThreadRecord`](spile_layout::thread_record::ThreadRecord)) and their stacks, in a shared
/// area of an image. One more than `slots` is the overflow record: threads without a record of their own take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordSlots {
    /// Offset of the first record in the image, a multiple of its size.
    pub records: u64,
    /// Number of records, a power of two.
    pub slots: u32,
    /// Offset of the first stack in the image, a multiple of 16.
    pub stacks: u64,
    /// Length of a stack, a multiple of 16. A signal may run its handler there.
    pub stack: u64,
}

/// Code and data that go into a process.
#[derive(Debug, Clone, Copy)]
pub struct ProcessImage<'a> {
    /// A file in memory.
    pub file: BorrowedFd<'a>,
    /// Its areas, one behind the other from 0 on.
    pub areas: &'a [ImageArea],
    /// Where it has the records of threads.
    pub threads: RecordSlots,
    /// Offset of `clock_gettime` in the vDSO, if handlers may call it.
    pub clock: Option<u64>,
    /// Whether each hit asks the kernel which thread it is. Otherwise a word of the C library tells, which is wrong in
    /// a child of `vfork` before its `execve`.
    pub exact: bool,
}

impl ProcessImage<'_> {
    /// Bytes of all areas.
    pub(crate) fn length(&self) -> u64 {
        let ends = self.areas.iter().map(|a| a.offset + a.length);
        ends.max().unwrap_or(0)
    }
}

/// A place in a function that leads to a handler. Several handlers of one place run in the order of their hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionHook {
    /// Address of the function in the process.
    pub address: u64,
    /// Its length in bytes.
    pub size: u64,
    /// Distance of the place from its first instruction: 0 for an entry.
    pub offset: u64,
    /// Offset of the handler in the image.
    pub handler: u64,
    /// What the record of the thread has as `cookie` while the handler runs.
    pub cookie: u64,
    /// The registers that the handler reads, a bit for each word of [`PtRegs`](crate::PtRegs).
    pub reads: u32,
}

impl FunctionHook {
    /// Address of the place in the process.
    #[must_use]
    pub fn place(&self) -> u64 {
        self.address + self.offset
    }
}
