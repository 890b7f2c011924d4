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

/// What a place is, which decides on the context that its handler gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceKind {
    /// An instruction. The context is the registers in front of it, as `struct pt_regs`.
    Instruction,
    /// The instruction of a system call. The context is two words: the address of the registers, as the kernel has them
    /// at the entry of the call; and the call's number.
    Call(CallNumber),
    /// The same without a handler, so that [`PlaceKind::Return`] knows the number.
    CallOnly,
    /// The same where the call may execute another program. Without a handler: the thread asks to be followed
    /// ([`crate::follow`]), by its number in `request` of its record, and waits for a moment.
    Execute(CallNumber),
    /// The instruction behind a call that maps memory. Without a handler: if a file's code was mapped, the thread asks for
    /// hooks there, by its number and [`ThreadRecord::MAPPED`](spile_layout::thread_record::ThreadRecord::MAPPED) in
    /// `request` of its record, and waits for a moment.
    Mapped(CallNumber),
    /// The instruction behind a system call. The context is two words: the address of the registers, as the kernel has
    /// them at the return from the call; and its result. A return without a number is skipped.
    Return(CallNumber),
}

/// The number of a place's system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallNumber {
    /// Always this one.
    Is(u32),
    /// The one that is in the register at the call. It is kept for the return.
    InRegister,
}

impl CallNumber {
    /// Whether the call may execute another program.
    #[must_use]
    pub fn may_execute(self) -> bool {
        let executes = |number: i64| EXECUTES.contains(&number);
        !matches!(self, CallNumber::Is(number) if !executes(number.into()))
    }

    /// Whether the call maps memory.
    #[must_use]
    pub fn maps(self) -> bool {
        matches!(self, CallNumber::Is(number) if i64::from(number) == libc::SYS_mmap)
    }
}

/// Numbers of the calls that execute another program.
pub(crate) const EXECUTES: [i64; 2] = [libc::SYS_execve, libc::SYS_execveat];

/// A place in a function that leads to a handler. Several handlers of one place run in the order of their hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionHook {
    /// Address of the function in the process.
    pub address: u64,
    /// Its length in bytes.
    pub size: u64,
    /// Distance of the place from its first instruction: 0 for an entry.
    pub offset: u64,
    /// What the place is.
    pub kind: PlaceKind,
    /// Whether the system call is made by a function that is called here ([`crate::CallSite::through`]).
    pub through: bool,
    /// Whether the thread ends there, at a system call with a known number: it may have no stack and no structure any more.
    /// A hit of a thread that has no record of its own is skipped.
    pub ends: bool,
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
