//! Cancellable system calls. C libraries make them in one function, and cancel a thread only if a signal finds it there:
//! between the first instruction, which tests whether the thread is cancelled, and the instruction of the call. So nothing
//! is replaced in this function. Handlers run in front of calls of the function, and behind them.
//!
//! The function is in musl and in glibc from 2.41 on. Its parameters are the address of what it tests, the number of the
//! call, and the six arguments of the call.

use iced_x86::IcedError;
use iced_x86::code_asm::{CodeAssembler, qword_ptr, rcx, rsp};
use spile_cast::{Cast, i32_of};

use crate::processor::assembly::word;
use crate::processor::registers::PtRegs;

/// How the function ends: `mov %r11,8(%rsp)`, `syscall`, `ret`.
const END: [u8; 8] = [0x4c, 0x89, 0x5c, 0x24, 0x08, 0x0f, 0x05, 0xc3];
/// Where in it the call is.
const CALL: u64 = 5;
/// The function is no longer than this.
const LONGEST: u64 = 80;

/// The opcode of a near call, and the length of the instruction.
const NEAR_CALL: u8 = 0xe8;
pub(crate) const NEAR_CALL_LENGTH: u64 = 5;

/// The instructions of cancellable calls in code at an address, each with the addresses at which its function is called.
pub(crate) fn cancellable(code: &[u8], base: u64) -> Vec<(u64, Vec<u64>)> {
    let ends = code.windows(END.len()).enumerate();
    let ends = ends.filter(|(_, bytes)| *bytes == END);
    let calls: Vec<u64> = ends.map(|(at, _)| base + at as u64 + CALL).collect();
    calls
        .into_iter()
        .map(|call| {
            let near = near_calls(code, base).filter(|(_, to)| (call - LONGEST..call).contains(to));
            let near: Vec<(u64, u64)> = near.collect();
            // The nearest function in front of the call.
            let function = near.iter().map(|(_, to)| *to).max();
            let callers = near.iter().filter(|(_, to)| Some(*to) == function);
            let callers = callers.map(|(at, _)| *at).collect();
            (call, callers)
        })
        .collect()
}

/// What may be near calls in code, with the addresses that they call.
fn near_calls(code: &[u8], base: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
    let all = code.windows(NEAR_CALL_LENGTH.fit()).enumerate();
    let calls = all.filter(|(_, bytes)| bytes[0] == NEAR_CALL);
    calls.map(move |(offset, bytes)| {
        let at = base + offset as u64;
        let distance = i32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
        let to = (at + NEAR_CALL_LENGTH).wrapping_add_signed(distance.into());
        (at, to)
    })
}

/// Registers in which handlers get the arguments, and where these are at a call of the function.
const ARGUMENTS: [(PtRegs, PtRegs); 5] = [
    (PtRegs::OrigRax, PtRegs::Rsi),
    (PtRegs::Rdi, PtRegs::Rdx),
    (PtRegs::Rsi, PtRegs::Rcx),
    (PtRegs::Rdx, PtRegs::R8),
    (PtRegs::R10, PtRegs::R9),
];
/// The same for those that are on the program's stack.
const ON_STACK: [(PtRegs, i32); 2] = [(PtRegs::R8, 0), (PtRegs::R9, 8)];

/// Registers that are changed, and their number on the stack of the record.
const KEPT: [PtRegs; 6] = [
    PtRegs::Rdi,
    PtRegs::Rsi,
    PtRegs::Rdx,
    PtRegs::R10,
    PtRegs::R8,
    PtRegs::R9,
];
/// Bytes below the registers in which they are kept.
pub(super) const KEPT_BYTES: i32 = i32_of(KEPT.len() * 8);

/// Makes the registers, which the stack pointer is at, what they are at the call itself. They are kept below.
pub(super) fn to_call(a: &mut CodeAssembler) -> Result<(), IcedError> {
    for (number, register) in (1..).zip(KEPT) {
        a.mov(rcx, word(register))?;
        a.mov(qword_ptr(rsp - 8 * number), rcx)?;
    }
    for (to, from) in ARGUMENTS {
        a.mov(rcx, word(from))?;
        a.mov(word(to), rcx)?;
    }
    for (to, from) in ON_STACK {
        a.mov(rcx, word(PtRegs::Rsp))?;
        a.mov(rcx, qword_ptr(rcx + from))?;
        a.mov(word(to), rcx)?;
    }
    Ok(())
}

/// Takes [`to_call`] back.
pub(super) fn back(a: &mut CodeAssembler) -> Result<(), IcedError> {
    for (number, register) in (1..).zip(KEPT) {
        a.mov(rcx, qword_ptr(rsp - 8 * number))?;
        a.mov(word(register), rcx)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_found() {
        let mut code = vec![0x90; 256];
        // A function that another one behind it calls.
        code[64..66].copy_from_slice(&[0x8b, 0x07]);
        code[80..88].copy_from_slice(&END);
        // call 0x1040, from 0x1080; call 0x1000, which is another function
        code[128..133].copy_from_slice(&[0xe8, 0xbb, 0xff, 0xff, 0xff]);
        code[160..165].copy_from_slice(&[0xe8, 0x5b, 0xff, 0xff, 0xff]);
        let found = cancellable(&code, 0x1000);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, 0x1055);
        assert_eq!(found[0].1, [0x1080]);
        assert!(cancellable(&code[..80], 0x1000).is_empty());
    }
}
