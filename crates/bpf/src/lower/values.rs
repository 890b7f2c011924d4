//! Operands of the IR in virtual registers, and copies of memory.

use spile_cast::Cast;
use spile_ebpf::isa::asm::CallArg;
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::insn::{Reg, Src};
use spile_ir::{Space, Val};
use spile_layout::ErrorKind;

use super::codegen::HandlerCodegen;
use super::operand::StrOperand;
use super::slots::{BLOCK, REACH};
use crate::error::Res;
use crate::lower::slots::block_at;

impl HandlerCodegen<'_> {
    /// A number in a register, which stays as it is.
    pub(crate) fn number_in_reg(&mut self, v: Val) -> Res<Reg> {
        match self.number(v)? {
            Src::Reg(reg) => Ok(reg),
            src => Ok(self.asm.copy(src)),
        }
    }

    /// A copy of a number, which may change.
    pub(crate) fn number_copy(&mut self, v: Val) -> Res<Reg> {
        let reg = self.asm.new_reg();
        self.use_in(v, reg)?;
        Ok(reg)
    }

    /// The word at an offset of the per-CPU area.
    pub(crate) fn block_word(&mut self, off: u32) -> Reg {
        let reg = self.asm.new_reg();
        self.load(reg, off);
        reg
    }

    /// The address of an offset of the per-CPU area.
    pub(crate) fn block_address(&mut self, off: u32) -> Reg {
        self.asm.address_of(&block_at(off))
    }

    /// The address of an offset of the shared area.
    pub(crate) fn shared_address(&mut self, off: u32) -> Reg {
        self.asm.address_of(&CallArg::Shared(off))
    }

    /// Copies memory that may be read.
    pub(crate) fn copy_memory(&mut self, to: CallArg, bytes: u32, from: CallArg) -> Reg {
        let bytes = CallArg::from(bytes);
        self.asm
            .call_with(Helper::ProbeReadKernel, &[to, bytes, from])
    }

    /// Zeroes memory.
    pub(crate) fn zero_memory(&mut self, to: CallArg, bytes: u32) {
        let zeros = CallArg::Constant(self.pool.zeros(bytes));
        self.copy_memory(to, bytes, zeros);
    }

    /// The address of a string.
    pub(crate) fn text_arg(&mut self, text: &StrOperand) -> CallArg {
        match text {
            StrOperand::Slot { off, .. } => block_at(*off),
            StrOperand::Const { bytes } => CallArg::Constant(self.pool.constant(bytes)),
        }
    }

    /// Base and displacement of `len` bytes at an offset of the per-CPU area.
    pub(crate) fn block_operand(&mut self, off: u32, len: u32) -> (Reg, i16) {
        match off + len <= REACH {
            true => (BLOCK, off.fit::<i16>()),
            false => (self.block_address(off), 0),
        }
    }
}

/// The helper that reads memory of a space.
pub(crate) fn probe_read(space: Space) -> Helper {
    match space {
        Space::Kernel => Helper::ProbeReadKernel,
        Space::User => Helper::ProbeReadUser,
    }
}

/// The error of a string that cannot be read from a space.
pub(crate) fn string_fault(space: Space) -> ErrorKind {
    match space {
        Space::Kernel => ErrorKind::KernelStrFault,
        Space::User => ErrorKind::UserStrFault,
    }
}
