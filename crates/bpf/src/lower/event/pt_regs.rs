//! The registers of interrupted code (`struct pt_regs`), by architecture.
//!
//! Source of facts: `arch/x86/include/asm/ptrace.h`, the System V ABI's table of DWARF register
//! numbers for x86-64 and its calling convention; `arch/arm64/include/uapi/asm/ptrace.h` and the
//! procedure call standard for aarch64.

use spile_ir::Arch;

/// The layout of one architecture's registers.
#[derive(Debug)]
pub(crate) struct Registers {
    /// Byte offset in `struct pt_regs` by DWARF number; `None` for registers that are not saved.
    offsets: &'static [Option<i16>],
    /// Offsets of further registers with large DWARF numbers.
    more: &'static [(usize, i16)],
    /// DWARF numbers of the registers that integer arguments are passed in, in order.
    pub(crate) args: &'static [u16],
    /// DWARF number of the register with a function's result.
    pub(crate) ret: u16,
    /// DWARF number that [`Registers::offset`] uses for the program counter.
    pub(crate) pc: u16,
    /// DWARF number of the stack pointer.
    pub(crate) sp: u16,
}

/// x86-64. Number 16 is the return address column and stands for the program counter.
static X86_64: Registers = Registers {
    offsets: &[
        Some(80),
        Some(96),
        Some(88),
        Some(40),
        Some(104),
        Some(112),
        Some(32),
        Some(152),
        Some(72),
        Some(64),
        Some(56),
        Some(48),
        Some(24),
        Some(16),
        Some(8),
        Some(0),
        Some(128),
    ],
    // Flags, cs, ss; 63 is our own number for the value of rax before a system call.
    more: &[(49, 144), (51, 136), (52, 160), (63, 120)],
    args: &[5, 4, 1, 2, 8, 9],
    ret: 0,
    pc: Arch::X86_64.program_counter(),
    sp: Arch::X86_64.stack_pointer(),
};

/// aarch64: x0 to x30, the stack pointer, the program counter.
static AARCH64: Registers = Registers {
    offsets: &{
        let mut offsets = [None; 33];
        let mut n = 0;
        while n < 33 {
            offsets[n] = Some(8 * n as i16);
            n += 1;
        }
        offsets
    },
    more: &[],
    args: &[0, 1, 2, 3, 4, 5, 6, 7],
    ret: 0,
    pc: Arch::Aarch64.program_counter(),
    sp: Arch::Aarch64.stack_pointer(),
};

impl Registers {
    /// The registers of an architecture.
    pub(crate) fn for_arch(arch: Arch) -> &'static Registers {
        match arch {
            Arch::Aarch64 => &AARCH64,
            Arch::X86_64 => &X86_64,
        }
    }

    /// Byte offset of a register in `struct pt_regs` by its DWARF number.
    pub(crate) fn offset(&self, number: i64) -> Option<i16> {
        let number = usize::try_from(number).ok()?;
        let more = || self.more.iter().find(|m| m.0 == number).map(|m| m.1);
        self.offsets.get(number).copied().flatten().or_else(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dwarf_numbers_give_offsets_in_pt_regs() {
        // rdi, rsp, rip; x1, sp.
        assert_eq!(X86_64.offset(5), Some(112));
        assert_eq!(X86_64.offset(X86_64.sp.into()), Some(152));
        assert_eq!(X86_64.offset(X86_64.pc.into()), Some(128));
        assert_eq!(X86_64.offset(17), None);
        assert_eq!(X86_64.offset(49), Some(144));
        assert_eq!(X86_64.offset(-1), None);
        assert_eq!(AARCH64.offset(1), Some(8));
        assert_eq!(AARCH64.offset(AARCH64.sp.into()), Some(248));
        for regs in [&X86_64, &AARCH64] {
            assert!(regs.args.iter().all(|n| regs.offset((*n).into()).is_some()));
        }
    }
}
