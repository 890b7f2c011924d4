//! Instructions that switch stacks, or make system calls themselves.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, Register};

/// The first of them in code at an address, and what it does.
pub(super) fn first(code: &[u8], address: u64) -> Option<(u64, &'static str)> {
    let decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut instructions = decoder.into_iter();
    instructions.find_map(|i| Some((i.ip(), does(&i)?)))
}

fn does(i: &Instruction) -> Option<&'static str> {
    if matches!(i.mnemonic(), Mnemonic::Syscall | Mnemonic::Sysenter)
        || (i.mnemonic() == Mnemonic::Int && i.flow_control() == FlowControl::Interrupt)
    {
        return Some("makes a system call itself");
    }
    let second = i.mnemonic() == Mnemonic::Xchg && i.op1_register() == Register::RSP;
    if i.op0_register() != Register::RSP && !second {
        return None;
    }
    let within = |r: Register| matches!(r, Register::RSP | Register::RBP);
    let same_stack = match i.mnemonic() {
        Mnemonic::Add | Mnemonic::Sub | Mnemonic::And | Mnemonic::Or => true,
        Mnemonic::Push | Mnemonic::Cmp | Mnemonic::Test => true,
        Mnemonic::Mov => within(i.op1_register()),
        Mnemonic::Lea => within(i.memory_base()),
        _ => false,
    };
    (!same_stack).then_some("sets the stack pointer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_that_switch_stacks_are_told_from_those_of_frames() {
        let what = |bytes: &[u8]| {
            does(&Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE).decode()).is_some()
        };
        // mov rsp, rdi; pop rsp; xchg rax, rsp; lea rsp, [r10-8]; syscall; int 0x80
        let switches: [&[u8]; 6] = [
            &[0x48, 0x89, 0xfc],
            &[0x5c],
            &[0x48, 0x94],
            &[0x49, 0x8d, 0x62, 0xf8],
            &[0x0f, 0x05],
            &[0xcd, 0x80],
        ];
        // mov rsp, rbp; sub rsp, 16; lea rsp, [rbp-40]; leave; push rsp; mov rbp, rsp; int3
        let frames: [&[u8]; 7] = [
            &[0x48, 0x89, 0xec],
            &[0x48, 0x83, 0xec, 0x10],
            &[0x48, 0x8d, 0x65, 0xd8],
            &[0xc9],
            &[0x54],
            &[0x48, 0x89, 0xe5],
            &[0xcc],
        ];
        assert!(switches.iter().all(|i| what(i)));
        assert!(!frames.iter().any(|i| what(i)));
    }
}
