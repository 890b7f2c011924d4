//! What instructions store in frames.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    Register, UsedRegister,
};

use spile_cast::Cast;

use crate::code::FrameStore;

/// See [`crate::code::Instructions::frame_stores`].
pub(super) fn find(code: &[u8], address: u64, passed: &dyn Fn(u64) -> bool) -> Vec<FrameStore> {
    let decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let straight = |i: &Instruction| match i.flow_control() {
        FlowControl::Next => !i.is_invalid(),
        FlowControl::Call => passed(i.near_branch_target()),
        _ => false,
    };
    let mut info = InstructionInfoFactory::new();
    let mut copies = Copies::default();
    let mut stores = Vec::new();
    for i in decoder.into_iter().take_while(straight) {
        let info = info.info(&i);
        for memory in info.used_memory() {
            let location = copies.location(memory.base(), memory.displacement().cast_signed());
            if memory.index() == Register::None
                && matches!(memory.access(), OpAccess::Write | OpAccess::ReadWrite)
                && let Some((register, offset)) = location
            {
                stores.push(FrameStore {
                    address: i.ip(),
                    next: i.next_ip(),
                    register,
                    offset,
                    size: memory.memory_size().size().fit(),
                });
            }
        }
        copies.step(&i, info.used_registers());
    }
    stores
}

/// The registers that hold addresses in the frame: their distances from registers of the frame, by DWARF's numbers.
#[derive(Default)]
struct Copies(Vec<(Register, (u16, i64))>);

impl Copies {
    /// A register of the frame, and the distance from it, for a distance from a register.
    fn location(&self, base: Register, displacement: i64) -> Option<(u16, i64)> {
        let copy = self.0.iter().find(|(register, _)| *register == base);
        let (register, offset) = copy.map(|c| c.1).or_else(|| Some((number(base)?, 0)))?;
        Some((register, offset.wrapping_add(displacement)))
    }

    fn step(&mut self, i: &Instruction, used: &[UsedRegister]) {
        let taken = match i.mnemonic() {
            Mnemonic::Lea if i.memory_index() == Register::None => {
                self.location(i.memory_base(), i.memory_displacement64().cast_signed())
            }
            // The frame pointer, which prologues set so, is a register of the frame itself.
            Mnemonic::Mov
                if i.op1_register() == Register::RSP && i.op0_register() != Register::RBP =>
            {
                self.location(Register::RSP, 0)
            }
            _ => None,
        };
        let reads = |u: &UsedRegister| matches!(u.access(), OpAccess::Read | OpAccess::CondRead);
        for written in used.iter().filter(|u| !reads(u)) {
            let written = written.register().full_register();
            self.0.retain(|(register, _)| *register != written);
        }
        if let Some(location) = taken {
            self.0.push((i.op0_register(), location));
        }
    }
}

/// DWARF's number of a register that compilers take for the frame's address.
fn number(register: Register) -> Option<u16> {
    let number = match register {
        Register::RBX => gimli::X86_64::RBX,
        Register::RBP => gimli::X86_64::RBP,
        Register::RSP => gimli::X86_64::RSP,
        _ => return None,
    };
    Some(number.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_up_to_the_first_branch() {
        // push rbx; sub rsp, 16; mov [rsp], rdi; mov [rbp-4], eax; mov [rdi], rax; movups [rsp+16], xmm0;
        // add [rbp-24], rax; mov rax, [rsp]; cmp [rsp], rax; jne +0; mov [rsp+8], rdi
        let code =
            b"\x53\x48\x83\xec\x10\x48\x89\x3c\x24\x89\x45\xfc\x48\x89\x07\x0f\x11\x44\x24\x10\
            \x48\x01\x45\xe8\x48\x8b\x04\x24\x48\x39\x04\x24\x75\x00\x48\x89\x7c\x24\x08";
        let stores = find(code, 0x1000, &|_| false);
        let stores = stores.iter();
        let stores: Vec<_> = stores
            .map(|s| (s.next, s.register, s.offset, s.size))
            .collect();
        assert_eq!(
            stores,
            [
                (0x1001, 7, -8, 8),
                (0x1009, 7, 0, 8),
                (0x100c, 6, -4, 4),
                (0x1014, 7, 16, 16),
                (0x1018, 6, -24, 8)
            ]
        );
    }

    #[test]
    fn stores_through_copies_of_addresses() {
        // lea rbx, [rbp-56]; mov [rbx], r12; mov [rbx+8], r15; mov rbx, rsp; mov [rbx], r14; mov rbx, r15; mov [rbx], r14
        let code = b"\x48\x8d\x5d\xc8\x4c\x89\x23\x4c\x89\x7b\x08\x48\x89\xe3\x4c\x89\x33\x4c\x89\xfb\x4c\x89\x33";
        let stores = find(code, 0, &|_| false);
        let stores: Vec<_> = stores.iter().map(|s| (s.register, s.offset)).collect();
        assert_eq!(stores, [(6, -56), (6, -48), (7, 0), (3, 0)]);
    }
}
