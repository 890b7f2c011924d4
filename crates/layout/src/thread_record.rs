//! The record of a thread, where handlers run in processes: it takes the place of the kernel's `task_struct` and of a
//! processor's number. Entry code finds or makes it, in the memory that all processes of a session share, and handlers
//! get its address.

/// Threads that have a record of their own at the same time; a power of two.
pub const THREAD_SLOTS: u32 = 64;

/// All records. Threads without one of their own take turns at the last one. Each has an area in the place of a
/// processor's ([`crate::Layout::cpus`]).
pub const THREAD_RECORDS: u32 = THREAD_SLOTS + 1;

/// Bytes of the registers of a hit (`struct pt_regs`), which stand at the top of the stack of its record.
pub const HIT_REGISTERS: u64 = 176;

/// A thread. Its `owner` is the only lock: whoever puts [`ThreadRecord::CLAIMED`] there by compare-and-exchange fills
/// in the rest. Ids are those that the process itself sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C, align(256))]
pub struct ThreadRecord {
    /// 0: free; [`ThreadRecord::CLAIMED`]; otherwise the thread's key: the address of its thread structure plus 1, or
    /// its number and the highest bit.
    pub owner: u64,
    /// Not 0 while a handler runs: hits within it are skipped. In the overflow record, the number of the thread
    /// that holds it.
    pub busy: u64,
    /// Top of the stack on which its handlers run, in the address space of its process.
    pub stack: u64,
    /// Address of a word that is equal to `tid` as long as the record tells the truth.
    pub proof: u64,
    /// Address of the record itself, in the address space of its process.
    pub own: u64,
    /// Number of the record, in place of a processor's.
    pub slot: u32,
    /// Number of the process's parent.
    pub ppid: u32,
    /// Number of the thread.
    pub tid: u32,
    /// Number of its process. `tid` and this are read as one word.
    pub tgid: u32,
    /// Real user.
    pub uid: u32,
    /// Real group. `uid` and this are read as one word.
    pub gid: u32,
    /// Effective user.
    pub euid: u32,
    /// Effective group.
    pub egid: u32,
    /// Process group.
    pub pgrp: u32,
    /// Session.
    pub session: u32,
    /// Name of the thread, up to 15 bytes and a NUL.
    pub comm: [u8; 16],
    /// The thread's number while it waits to be followed into another program, or with [`ThreadRecord::MAPPED`] for hooks
    /// in code that it has mapped.
    pub request: u32,
    /// In the overflow record, the number of all requests so far, and [`ThreadRecord::UNANSWERED`].
    pub requests: u32,
    /// The number that the hit place was hooked with.
    pub cookie: u64,
    /// State of the generator of random numbers, not 0.
    pub random: u64,
    /// Hits that were skipped because a handler was running.
    pub skipped: u64,
    /// Address of the vDSO's `clock_gettime` in the thread's process, or 0 to call the kernel.
    pub clock: u64,
    /// End of the address space of the process.
    pub task_size: u64,
    /// Where the arguments of the command line begin and end.
    pub arguments: [u64; 2],
    /// The file that the process runs: its device in the kernel's form, and its inode.
    pub program: [u64; 2],
    /// System calls that the thread is in, and whose numbers the places of their returns do not tell.
    pub calls: [OpenCall; 4],
    /// Registers that entry code uses itself.
    pub saved: [u64; 2],
}

/// A system call that has not returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct OpenCall {
    /// The stack pointer at the call; 0 for none so far, 1 for none any more.
    pub stack: u64,
    /// Number of the call.
    pub number: u64,
}

impl ThreadRecord {
    /// In a request, that the thread has mapped code.
    pub const MAPPED: u32 = 1 << 31;
    /// In the number of requests, that one was not answered: spile was killed, or is very slow. Threads then do not wait.
    pub const UNANSWERED: u32 = 1 << 31;
    /// The owner of a record while it is filled in.
    pub const CLAIMED: u64 = 2;
    /// Binary logarithm of the size.
    pub const SIZE_BITS: u32 = size_of::<ThreadRecord>().trailing_zeros();
}

// Entry code finds a record by a shift.
const _: () = assert!(size_of::<ThreadRecord>() == 1 << ThreadRecord::SIZE_BITS);
