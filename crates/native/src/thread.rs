//! The record of a thread: what handlers know of the thread that they run in.
//!
//! It takes the place of the kernel's task: `current` is its address, and fields of the task are fields of it. Its
//! address is in r15 while a handler runs. Who fills records in is not decided here.

use std::mem::offset_of;

use spile_lir::library::host::RecordOffsets;

/// A thread's record. Numbers are those that the controller sees, not those in a namespace of processes, unless they
/// say so.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadRecord {
    /// Who has the record: 0 for nobody. Claimed by an exchange.
    pub owner: u64,
    /// The record's number, in place of a processor's.
    pub slot: u32,
    /// The parent's number.
    pub ppid: u32,
    /// The thread's number.
    pub tid: u32,
    /// The process's number.
    pub tgid: u32,
    /// The real user.
    pub uid: u32,
    /// The real group.
    pub gid: u32,
    /// The effective user.
    pub euid: u32,
    /// The effective group.
    pub egid: u32,
    /// The group of processes.
    pub pgrp: u32,
    /// The session.
    pub session: u32,
    /// The name, with a NUL.
    pub comm: [u8; 16],
    /// When the process began, in nanoseconds of the monotonic clock.
    pub start: u64,
    /// Guards against a handler within a handler.
    pub depth: u64,
    /// What the site of the event has for its handler.
    pub cookie: u64,
    /// The state of random numbers, never 0.
    pub random: u64,
    /// The upper end of the handlers' own stack.
    pub stack: u64,
    /// The process's number as the process itself knows it.
    pub own_tgid: u32,
    /// Fills the word.
    pub unused: u32,
    /// The address of the vDSO's `clock_gettime` in the thread's process, or 0 to call the kernel.
    pub clock: u64,
}

/// Offsets of a record's fields, as code has them.
pub(crate) mod at {
    use super::{ThreadRecord, offset_of};

    /// The upper half of the word is the process's number.
    pub(crate) const TID: i32 = offset_of!(ThreadRecord, tid) as i32;
    /// The upper half of the word is the group.
    pub(crate) const UID: i32 = offset_of!(ThreadRecord, uid) as i32;
    pub(crate) const SLOT: i32 = offset_of!(ThreadRecord, slot) as i32;
    pub(crate) const COMM: i32 = offset_of!(ThreadRecord, comm) as i32;
    pub(crate) const COOKIE: i32 = offset_of!(ThreadRecord, cookie) as i32;
}

const _: () = {
    assert!(at::TID % 8 == 0 && offset_of!(ThreadRecord, tgid) as i32 == at::TID + 4);
    assert!(at::UID % 8 == 0 && offset_of!(ThreadRecord, gid) as i32 == at::UID + 4);
    assert!(size_of::<ThreadRecord>() == 128);
};

/// What the run-time library needs of a record.
pub(crate) const OFFSETS: RecordOffsets = RecordOffsets {
    thread: offset_of!(ThreadRecord, tid) as i16,
    slot: offset_of!(ThreadRecord, slot) as i16,
    process: offset_of!(ThreadRecord, own_tgid) as i16,
    random: offset_of!(ThreadRecord, random) as i16,
    clock: offset_of!(ThreadRecord, clock) as i16,
};

/// Runs a function of an image that is mapped in this process, as a site of a probed process would.
///
/// # Safety
/// `code` is the address of a handler, `record` that of a record of the same mapping that no other thread uses, and the
/// handler's loads from `context` are within it.
#[cfg(target_arch = "x86_64")]
pub unsafe fn enter(code: usize, record: usize, context: *mut u64) -> u64 {
    let result;
    // SAFETY: the caller's promise; the code has the C convention but for r15, which is put back.
    unsafe {
        std::arch::asm!(
            "xchg r15, r13",
            "call r12",
            "xchg r15, r13",
            inout("r13") record => _,
            in("r12") code,
            in("rdi") context,
            lateout("rax") result,
            clobber_abi("sysv64"),
        );
    }
    result
}
