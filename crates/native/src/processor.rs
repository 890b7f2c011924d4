//! What code of an image takes from the processor, x86-64: how a handler is entered, and system calls.
//!
//! A handler has the C convention, with its context as the only argument and the thread's record in r15. It changes no
//! vector register.

use spile_lir::library::host::SystemCalls;

/// Numbers of system calls.
pub(crate) const SYSTEM_CALLS: SystemCalls = SystemCalls {
    sched_yield: 24,
    futex: 202,
    clock_gettime: 228,
    process_vm_readv: 310,
};

/// A system call, in the C convention: its number, and the address of six words.
///
/// ```text
/// mov %rdi,%rax; mov %rsi,%r11; mov (%r11),%rdi; mov 8(%r11),%rsi; mov 16(%r11),%rdx
/// mov 24(%r11),%r10; mov 32(%r11),%r8; mov 40(%r11),%r9; syscall; ret
/// ```
#[rustfmt::skip]
pub(crate) const SYSTEM_CALL: [u8; 32] = [
    0x48, 0x89, 0xf8, 0x49, 0x89, 0xf3, 0x49, 0x8b, 0x3b, 0x49, 0x8b, 0x73, 0x08, 0x49, 0x8b, 0x53, 0x10,
    0x4d, 0x8b, 0x53, 0x18, 0x4d, 0x8b, 0x43, 0x20, 0x4d, 0x8b, 0x4b, 0x28, 0x0f, 0x05, 0xc3,
];

/// Runs a function of an image that is mapped in this process, as a site of a probed process would.
///
/// # Safety
/// `code` is the address of a handler, `record` that of a record of the same mapping that no other thread uses, and the
/// handler's loads from `context` are within it.
#[cfg(target_arch = "x86_64")]
pub unsafe fn enter(code: usize, record: usize, context: *mut u64) -> u64 {
    let result;
    // SAFETY: the caller's promise; the code has the C convention, and r15, which has the record, is put back.
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
