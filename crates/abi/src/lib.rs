//! Processors as values. Everything that analysis, code generation and unwinding need to know about a
//! processor and its calling convention is in one [`Abi`], which the caller provides: no code depends on the
//! processor that spile itself is compiled for.
//!
//! | module | contents |
//! |---|---|
//! | `x86_64`, `aarch64` | the values |
//! | `names` | names of error numbers and signals, which are the same for all of them |
//!
//! Registers have DWARF's numbers. The tables of system calls are in `spile-syscalls`, by the name of the
//! processor; what decodes instructions is in `spile-debuginfo`, in a folder for each processor.

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

mod aarch64;
pub mod names;
#[cfg(test)]
mod tests;
mod x86_64;

pub use aarch64::AARCH64;
pub use x86_64::X86_64;

/// The smallest page of all processors in bytes: each page of memory consists of whole ones. A page is either
/// resident or not.
pub const PAGE: u32 = 4096;

/// All processors.
pub static ALL: [&Abi; 2] = [&X86_64, &AARCH64];

/// The processor of this machine. Of others than [`ALL`] nothing is known, and the first one stands for them.
pub static HOST: &Abi = if cfg!(target_arch = "aarch64") {
    &AARCH64
} else {
    &X86_64
};

/// A processor, the calling convention of its programs, and what Linux adds to it.
#[derive(Debug, PartialEq, Eq)]
pub struct Abi {
    /// Its name in `uname -m` and in Rust's `ARCH`.
    pub name: &'static str,
    /// Its name in the language's `arch`: that of the kernel's folder, except for x86.
    pub script_name: &'static str,
    /// Its number in the header of ELF files (`e_machine`).
    pub machine: u16,
    /// That of its 32-bit programs, whose registers have the same names in assembler text.
    pub compat_machine: Option<u16>,
    /// Its folder of libraries on systems of Debian.
    pub multiarch: &'static str,
    /// The first address of the kernel's image. Lower addresses of its file are not relocated with it.
    pub kernel_image: u64,

    /// The stack pointer.
    pub stack_pointer: u16,
    /// The frame pointer.
    pub frame_pointer: u16,
    /// The program counter, or the return address column that stands for it.
    pub program_counter: u16,
    /// The register that a call leaves the return address in; functions save it behind the caller's frame pointer.
    /// `None`: a call pushes the return address.
    pub link: Option<u16>,
    /// The goroutine in functions of Go (ABIInternal).
    pub goroutine: u16,
    /// The static link at the first instruction of a nested function.
    pub static_link: u16,
    /// Registers by their names in assembler text, with bits to skip.
    pub names: &'static [RegisterName],
    /// Names with a number.
    pub numbered: NumberedRegisters,

    /// The calling convention.
    pub calls: Convention,
    /// The registers that the kernel saves.
    pub saved: SavedRegisters,
    /// System calls.
    pub syscalls: SyscallConvention,
    /// Unwinding of stacks.
    pub unwind: UnwindPatterns,
    /// Types of relocations.
    pub relocations: Relocations,
    /// What generated code may rely on.
    pub kernel: KernelSupport,
}

/// A register in assembler text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisterName {
    /// Its names, from the whole register to its lowest byte.
    pub names: &'static [&'static str],
    /// DWARF's number.
    pub number: u16,
    /// Number of low bits to skip.
    pub shift: u8,
}

/// Registers in assembler text whose names contain their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberedRegisters {
    /// Letters in front of the number.
    pub prefixes: &'static [char],
    /// The first and the last number, which are DWARF's, too.
    pub numbers: (u16, u16),
    /// Letters of parts of the register, behind the number.
    pub parts: &'static [char],
}

/// How functions get arguments and give results.
#[derive(Debug, PartialEq, Eq)]
pub struct Convention {
    /// The registers of integer arguments, in order. Further ones are on the stack, in words.
    pub arguments: &'static [u16],
    /// The registers of a result, in order.
    pub results: [u16; 2],
    /// Number of bytes that a return pops: those of the return address, if a call pushes it.
    pub popped: i64,
    /// The largest structure in bytes that is passed and returned in registers.
    pub in_registers: u32,
    /// Whether a structure's words are classified one by one as integers or floating-point numbers, and the
    /// address of a larger result is the first argument.
    pub classifies_words: bool,
}

/// `struct pt_regs` of the kernel.
#[derive(Debug, PartialEq, Eq)]
pub struct SavedRegisters {
    /// Byte offsets by DWARF's number.
    pub offsets: &'static [i16],
    /// Offsets of further registers, with large numbers.
    pub more: &'static [(u16, i16)],
    /// The word with the processor's mode.
    pub mode: i16,
    /// The bits of the mode that hold the privilege level.
    pub level: i32,
    /// The privilege level of programs.
    pub user_level: i32,
    /// The low 16 bits of the mode in 32-bit programs, if these have the privilege level of programs.
    pub compat_mode: Option<i32>,
    /// The size of the registers that a perf event's context begins with (`bpf_user_pt_regs_t`).
    pub perf_size: i16,
}

/// Where the kernel has the numbers and arguments of system calls, as offsets in `struct pt_regs`.
#[derive(Debug, PartialEq, Eq)]
pub struct SyscallConvention {
    /// The arguments.
    pub arguments: [i16; 6],
    /// The number.
    pub number: i16,
    /// `rt_sigreturn`, which leaves no call's registers at its end.
    pub sigreturn: i32,
    /// Bits of the number that tell another ABI with the same calls, such as x32.
    pub other_abi: i32,
    /// Calls of 32-bit programs, if they are known.
    pub compat: Option<CompatCalls>,
}

/// System calls of 32-bit programs.
#[derive(Debug, PartialEq, Eq)]
pub struct CompatCalls {
    /// The arguments.
    pub arguments: [i16; 6],
    /// Bit of `thread_info.status`: the thread is in such a call.
    pub status: i32,
    /// `rt_sigreturn`.
    pub sigreturn: i32,
}

/// What unwinders know besides debugging information.
#[derive(Debug, PartialEq, Eq)]
pub struct UnwindPatterns {
    /// The frame that the kernel makes for a signal handler.
    pub signal_frame: SignalFrame,
    /// The code to which signal handlers return.
    pub signal_return: &'static [u8],
    /// The C library's name of that code.
    pub signal_return_name: &'static str,
    /// First instructions of functions, which run before there is a frame.
    pub entry: &'static [EntryCode],
    /// Number of bytes of code that tell [`UnwindPatterns::entry`].
    pub entry_bytes: i32,
}

/// The registers in a signal frame, as offsets from the stack pointer where the handler returns to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalFrame {
    /// The frame pointer.
    pub frame_pointer: i32,
    /// The stack pointer.
    pub stack_pointer: i32,
    /// The program counter.
    pub program_counter: i32,
    /// [`Abi::link`].
    pub link: Option<i32>,
}

/// An instruction with which a function begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryCode {
    /// The bits of the first word that say which instruction it is.
    pub mask: u32,
    /// Their values.
    pub code: u32,
    /// Whether the frame pointer and the return address are on top of the stack.
    pub pushed: bool,
}

/// Types of relocations that the loader applies.
#[derive(Debug, PartialEq, Eq)]
pub struct Relocations {
    /// The address of a symbol: absolute, for data, for calls.
    pub symbol: [u32; 3],
    /// An address of the file itself.
    pub relative: u32,
    /// The address that a function of the file returns.
    pub chosen: u32,
    /// The number of a module with thread-local variables.
    pub tls_module: u32,
    /// A variable's distance from the thread pointer.
    pub tls_distance: u32,
}

/// What handlers in the kernel may do on this processor.
#[derive(Debug, PartialEq, Eq)]
pub struct KernelSupport {
    /// They unwind stacks and read page caches of programs: the code for it is tested there.
    pub reads_programs: bool,
    /// Loads through a cast pointer cannot reach memory of programs, because the kernel compares each address
    /// with its own limits.
    pub checks_casts: bool,
    /// The path in `task_struct` to the thread pointer of a running program, if the kernel has it in memory.
    pub thread_pointer: Option<&'static [&'static str]>,
    /// Tracepoints that are hit only in interrupts of the processor, with interrupts off, without `_entry` and
    /// `_exit`.
    pub interrupts: &'static [&'static str],
}

impl Abi {
    /// The processor of that name: a name as in `uname -m`, in the language's `arch`, or in Rust's `ARCH`.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Abi> {
        ALL.into_iter()
            .find(|abi| [abi.name, abi.script_name].contains(&name))
    }

    /// The processor that ELF files name by this number.
    #[must_use]
    pub fn of_machine(machine: u16) -> Option<&'static Abi> {
        ALL.into_iter().find(|abi| abi.machine == machine)
    }

    /// The processor of that number, or with 32-bit programs of that number.
    #[must_use]
    pub fn of_code(machine: u16) -> Option<&'static Abi> {
        let compat = |abi: &&Abi| abi.compat_machine == Some(machine);
        Abi::of_machine(machine).or_else(|| ALL.into_iter().find(compat))
    }

    /// Byte offset of a register in `struct pt_regs`.
    #[must_use]
    pub fn offset(&self, register: u16) -> Option<i16> {
        let saved = &self.saved;
        let more = || saved.more.iter().find(|m| m.0 == register).map(|m| m.1);
        let known = saved.offsets.get(usize::from(register));
        known.copied().or_else(more)
    }

    /// The register of a name in assembler text: DWARF's number, and the number of low bits to skip.
    #[must_use]
    pub fn register(&self, name: &str) -> Option<(u16, u8)> {
        if let Some(register) = self.names.iter().find(|r| r.names.contains(&name)) {
            return Some((register.number, register.shift));
        }
        let number = name.strip_prefix(self.numbered.prefixes)?;
        let number = number.strip_suffix(self.numbered.parts).unwrap_or(number);
        let number: u16 = number.parse().ok()?;
        let (first, last) = self.numbered.numbers;
        (first..=last).contains(&number).then_some((number, 0))
    }
}

const fn register(number: u16, shift: u8, names: &'static [&'static str]) -> RegisterName {
    RegisterName {
        names,
        number,
        shift,
    }
}

const fn entry(mask: u32, code: u32, pushed: bool) -> EntryCode {
    EntryCode { mask, code, pushed }
}
