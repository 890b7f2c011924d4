//! Registers of stopped threads, and those that handlers get.

use std::io;

use spile_cast::Cast;

pub(crate) use libc::user_regs_struct as Registers;

/// The instruction that calls the kernel.
pub(crate) const KERNEL_CALL: [u8; 2] = [0x0f, 0x05];

/// The highest error number of the kernel.
const ERRORS: u64 = 4095;

/// A thread's registers for a system call by the instruction `at`.
pub(crate) fn calling(before: &Registers, at: u64, number: i64, args: [u64; 6]) -> Registers {
    let mut now = *before;
    // Not a system call to be restarted.
    now.orig_rax = u64::MAX;
    now.rax = number.cast_unsigned();
    now.rip = at;
    [now.rdi, now.rsi, now.rdx, now.r10, now.r8, now.r9] = args;
    now
}

/// The number of the system call that a thread is in.
pub(crate) fn call(registers: &Registers) -> i64 {
    registers.orig_rax.cast_signed()
}

/// The number of the system call that a thread returns from, at a stop of [`crate::ptrace::to_call`].
pub(crate) fn returned(registers: &Registers) -> Option<i64> {
    let begins = registers.rax == i64::from(-libc::ENOSYS).cast_unsigned();
    (!begins).then(|| call(registers))
}

/// The folder and the name of the program that a thread executes, in front of the call: the number of an open file, unless
/// it is the current folder; the address of a text.
pub(crate) fn executed(registers: &Registers) -> (Option<i32>, u64) {
    match call(registers) {
        libc::SYS_execveat => {
            let folder = registers.rdi.low32().cast_signed();
            ((folder != libc::AT_FDCWD).then_some(folder), registers.rsi)
        }
        _ => (None, registers.rdi),
    }
}

/// The result of a system call.
pub(crate) fn result(after: &Registers) -> io::Result<u64> {
    match after.rax.wrapping_neg() {
        e @ 1..=ERRORS => Err(io::Error::from_raw_os_error(e.fit())),
        _ => Ok(after.rax),
    }
}

/// Words of `struct pt_regs`, as handlers get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum PtRegs {
    R15,
    R14,
    R13,
    R12,
    Rbp,
    Rbx,
    R11,
    R10,
    R9,
    R8,
    Rax,
    Rcx,
    Rdx,
    Rsi,
    Rdi,
    OrigRax,
    Rip,
    Cs,
    Eflags,
    Rsp,
    Ss,
}

/// The registers of samples, in the order in which the kernel numbers them for perf, with these numbers.
const SAMPLED: [(u8, PtRegs); 20] = [
    (0, PtRegs::Rax),
    (1, PtRegs::Rbx),
    (2, PtRegs::Rcx),
    (3, PtRegs::Rdx),
    (4, PtRegs::Rsi),
    (5, PtRegs::Rdi),
    (6, PtRegs::Rbp),
    (7, PtRegs::Rsp),
    (8, PtRegs::Rip),
    (9, PtRegs::Eflags),
    (10, PtRegs::Cs),
    (11, PtRegs::Ss),
    (16, PtRegs::R8),
    (17, PtRegs::R9),
    (18, PtRegs::R10),
    (19, PtRegs::R11),
    (20, PtRegs::R12),
    (21, PtRegs::R13),
    (22, PtRegs::R14),
    (23, PtRegs::R15),
];

/// The registers of a sample that handlers can read, a bit for each as the kernel numbers them for perf.
#[must_use]
pub fn sampled_registers() -> u64 {
    SAMPLED.iter().fold(0, |all, (bit, _)| all | 1 << bit)
}

/// The registers of a sample as `struct pt_regs`. Those that are missing are 0.
#[must_use]
pub fn registers_of_sample(sampled: &[u64]) -> [u64; PtRegs::WORDS] {
    let mut words = [0; PtRegs::WORDS];
    for ((_, register), value) in SAMPLED.iter().zip(sampled) {
        words[*register as usize] = *value;
    }
    words[PtRegs::OrigRax as usize] = u64::MAX;
    words
}

impl PtRegs {
    /// Number of words.
    pub const WORDS: usize = 21;
    /// [`FunctionHook::reads`] of a handler that reads all.
    pub const ALL: u32 = (1 << Self::WORDS) - 1;

    /// [`FunctionHook::reads`] of a handler at a system call that reads no registers: its number and its result come by one.
    pub const OF_CALL: u32 = 1 << PtRegs::Rax as u32;

    /// Its bit in [`FunctionHook::reads`].
    #[must_use]
    pub fn bit(self) -> u32 {
        1 << self as u8
    }

    /// Offset in bytes.
    pub(crate) fn offset(self) -> i32 {
        i32::from(self as u8) * 8
    }
}
