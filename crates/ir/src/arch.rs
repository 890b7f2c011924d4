//! Processors that programs are for. What analysis and code generation depend on of one is a value, given by
//! who knows the machine: nothing here asks for which one this is compiled.

/// A processor's architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arch {
    /// x86-64, with programs of 32 bits beside.
    #[default]
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

impl Arch {
    /// The one of that name, as `uname -m`, the language's `arch` and Rust's `ARCH` have it.
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

    /// DWARF's number of the program counter, or of what stands for it: the column of the return address.
    pub const fn program_counter(self) -> u16 {
        match self {
            Arch::X86_64 => 16,
            Arch::Aarch64 => 32,
        }
    }

    /// Bytes that a return takes off the stack: x86-64 pushes the return address, aarch64 has it in a
    /// register.
    pub const fn return_address(self) -> i64 {
        match self {
            Arch::X86_64 => 8,
            Arch::Aarch64 => 0,
        }
    }
}
