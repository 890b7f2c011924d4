//! Processors that programs are compiled for. The properties of a processor that analysis and code
//! generation depend on are values, which the caller provides: nothing here depends
//! on the processor that spile itself is compiled for.

/// A processor's architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arch {
    /// x86-64, including 32-bit programs.
    #[default]
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

impl Arch {
    /// The architecture of that name: a name as in `uname -m`, in the language's `arch`, or in
    /// Rust's `ARCH`.
    pub fn named(name: &str) -> Option<Arch> {
        match name {
            "x86_64" => Some(Arch::X86_64),
            "aarch64" | "arm64" => Some(Arch::Aarch64),
            _ => None,
        }
    }

    /// DWARF's number of the stack pointer.
    pub const fn stack_pointer(self) -> u16 {
        match self {
            Arch::X86_64 => 7,
            Arch::Aarch64 => 31,
        }
    }

    /// DWARF's number of the program counter, or of the return address column that stands for it.
    pub const fn program_counter(self) -> u16 {
        match self {
            Arch::X86_64 => 16,
            Arch::Aarch64 => 32,
        }
    }

    /// Number of bytes that a return pops: x86-64 pushes the return address, aarch64 has it in a
    /// register.
    pub const fn return_address(self) -> i64 {
        match self {
            Arch::X86_64 => 8,
            Arch::Aarch64 => 0,
        }
    }
}
