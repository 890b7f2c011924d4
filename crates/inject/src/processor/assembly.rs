//! What all entry code is written with.

use iced_x86::code_asm::{AsmMemoryOperand, AsmRegister64, CodeAssembler, qword_ptr, rsp};
use iced_x86::{Code, IcedError, Instruction, MemoryOperand, Register};

use crate::processor::registers::PtRegs;

/// Bytes below the stack pointer that belong to the function.
pub(super) const RED_ZONE: i32 = 128;

/// Offset of a field of a thread's record.
macro_rules! field {
    ($name:ident) => {
        spile_cast::i32_of(std::mem::offset_of!(ThreadRecord, $name))
    };
}
pub(crate) use field;

/// A word of the registers, which the stack pointer is at.
pub(super) fn word(register: PtRegs) -> AsmMemoryOperand {
    qword_ptr(rsp + register.offset())
}

/// Puts an address, by its distance from here, into a register.
pub(crate) fn address(
    a: &mut CodeAssembler,
    to: AsmRegister64,
    address: u64,
) -> Result<(), IcedError> {
    load(a, Code::Lea_r64_m, to.into(), address)
}

pub(super) fn load(
    a: &mut CodeAssembler,
    code: Code,
    to: Register,
    address: u64,
) -> Result<(), IcedError> {
    let from = MemoryOperand::with_base_displ(Register::RIP, address.cast_signed());
    a.add_instruction(Instruction::with2(code, to, from)?)
}
