//! The record of a thread: who it is, for handlers that run in a process. Entry code finds or makes it, in the memory
//! that all processes of a session share, and handlers get its address.

/// A thread. Its `owner` is the only lock: whoever puts [`ThreadRecord::CLAIMED`] there by compare-and-exchange fills
/// in the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(256))]
pub struct ThreadRecord {
    /// 0: free; [`ThreadRecord::CLAIMED`]; otherwise the thread's key: the address of its thread structure plus 1, or
    /// its number.
    pub owner: u64,
    /// Not 0 while a handler runs: hits within it are skipped. In the overflow record, the number of the thread
    /// that holds it.
    pub busy: u64,
    /// Top of the stack on which its handlers run, in the address space of its process.
    pub stack: u64,
    /// Address of a word that is equal to `tid` as long as the record tells the truth.
    pub proof: u64,
    /// Number of the record, in place of a processor's.
    pub slot: u32,
    /// Number of the thread.
    pub tid: u32,
    /// Number of its process.
    pub tgid: u32,
    /// Number of the process's parent.
    pub ppid: u32,
    /// Real user.
    pub uid: u32,
    /// Effective user.
    pub euid: u32,
    /// Real group.
    pub gid: u32,
    /// Effective group.
    pub egid: u32,
    /// Process group.
    pub pgrp: u32,
    /// Session.
    pub session: u32,
    /// Name of the thread, up to 15 bytes and a NUL.
    pub comm: [u8; 16],
    /// When the thread started, on the clock of `CLOCK_BOOTTIME`; 0 if nobody looked it up.
    pub start: u64,
    /// The number that the hit place was hooked with.
    pub cookie: u64,
    /// State of the generator of random numbers, not 0.
    pub random: u64,
    /// Hits that were skipped because a handler was running.
    pub skipped: u64,
}

impl ThreadRecord {
    /// The owner of a record while it is filled in.
    pub const CLAIMED: u64 = 2;
    /// Binary logarithm of the size.
    pub const SIZE_BITS: u32 = size_of::<ThreadRecord>().trailing_zeros();
}

// Entry code finds a record by a shift.
const _: () = assert!(size_of::<ThreadRecord>() == 1 << ThreadRecord::SIZE_BITS);
