//! The instructions that a jump at the beginning of a function replaces, and their copy elsewhere.

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, FlowControl, Instruction,
    InstructionBlock, Mnemonic, OpKind, Register,
};
use std::ops::Range;

use spile_cast::Cast;

use crate::error::Refusal;

/// Length of `jmp rel32`.
pub(crate) const JUMP: u64 = 5;

/// The opcode of the jump.
const JMP: u8 = 0xe9;
/// Stops who runs where nothing is.
pub(crate) const INT3: u8 = 0xcc;

/// Longer than any instructions that a jump displaces, with what stands before them.
pub(crate) const SHORT: u64 = 2 * JUMP + 4 + 15;

/// Bytes of a table of jumps that are read.
const TABLE: u64 = 8192;

/// Code of functions is read no further.
pub(crate) const READ: u64 = 1 << 20;

/// The instructions that a jump replaces.
#[derive(Debug)]
pub(crate) struct Displaced {
    /// Where the jump goes: the function, or behind its `endbr64`.
    pub(crate) at: u64,
    /// The instructions' bytes.
    pub(crate) bytes: Vec<u8>,
    instructions: Vec<Instruction>,
}

/// Where displaced instructions were, and where their copies are.
pub(crate) type Moves = Vec<(u64, u64)>;

/// A copy of displaced instructions.
#[derive(Debug)]
pub(crate) struct Copied {
    pub(crate) code: Vec<u8>,
    /// For each but the first.
    pub(crate) moves: Moves,
}

/// Reads the process's memory: so many bytes from an address on.
pub(crate) type Read<'a> = &'a dyn Fn(u64, u64) -> Vec<u8>;

/// What a jump at the beginning of a function replaces. `code` begins there and is as long as the function, or a few
/// bytes longer if it is short.
pub(crate) fn displaced(
    address: u64,
    size: u64,
    code: &[u8],
    read: Read,
) -> Result<Displaced, Refusal> {
    if code.is_empty() {
        return Err(Refusal::NoCode);
    }
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut instructions: Vec<Instruction> = Vec::new();
    let (mut at, mut end) = (address, address);
    while end < at + JUMP {
        let Some(next) = decoder.iter().next() else {
            return Err(Refusal::Short);
        };
        if next.is_invalid() {
            return Err(Refusal::Invalid);
        }
        // Behind the function: only what nobody runs.
        if next.ip() >= address + size.max(1) && !is_padding(&next) {
            return Err(Refusal::Short);
        }
        end = next.next_ip();
        if next.ip() == address && next.mnemonic() == Mnemonic::Endbr64 {
            at = end;
            continue;
        }
        may_move(&next)?;
        instructions.push(next);
    }
    let function = code.get(..size.max(1).fit::<usize>()).unwrap_or(code);
    // A jump back to a first instruction behind `endbr64` is no call of the function.
    let inner = if at == address { at + 1..end } else { at..end };
    if jumps_into(address, function, &inner, read) {
        return Err(Refusal::JumpedTo);
    }
    let bytes = code[(at - address).fit()..(end - address).fit()].to_vec();
    Ok(Displaced {
        at,
        bytes,
        instructions,
    })
}

fn is_padding(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
}

fn may_move(instruction: &Instruction) -> Result<(), Refusal> {
    match instruction.flow_control() {
        FlowControl::Call | FlowControl::IndirectCall => {
            let calls_kernel =
                [Mnemonic::Syscall, Mnemonic::Sysenter].contains(&instruction.mnemonic());
            Err(if calls_kernel {
                Refusal::SystemCall
            } else {
                Refusal::Call
            })
        }
        FlowControl::Interrupt if instruction.mnemonic() != Mnemonic::Int3 => {
            Err(Refusal::SystemCall)
        }
        FlowControl::XbeginXabortXend => Err(Refusal::Immovable),
        _ => Ok(()),
    }
}

/// Whether code jumps to one of these addresses, directly or by a table, or keeps one.
fn jumps_into(address: u64, code: &[u8], to: &Range<u64>, read: Read) -> bool {
    let all: Vec<Instruction> = Decoder::with_ip(64, code, address, DecoderOptions::NONE)
        .iter()
        .collect();
    let direct = |i: &Instruction| {
        let near = [
            OpKind::NearBranch64,
            OpKind::NearBranch32,
            OpKind::NearBranch16,
        ];
        i.op_count() > 0 && near.contains(&i.op0_kind()) && to.contains(&i.near_branch_target())
    };
    // Position-independent code loads a table's address; other code has it in the jump.
    let by_table = all
        .iter()
        .any(|i| i.flow_control() == FlowControl::IndirectBranch);
    let used = |i: &Instruction| {
        let at = i.memory_displacement64();
        match i.mnemonic() {
            Mnemonic::Lea if i.is_ip_rel_memory_operand() => {
                to.contains(&at) || (by_table && of_distances(at, address, code, to, read))
            }
            Mnemonic::Jmp if i.memory_index() != Register::None => {
                of_addresses(at, address, code, to, read)
            }
            _ => false,
        }
    };
    all.iter().any(|i| direct(i) || used(i))
}

/// Entries of a table lead into the function: the table ends where they no longer do.
fn leads(entries: impl Iterator<Item = u64>, address: u64, code: &[u8], to: &Range<u64>) -> bool {
    let function = address..address + code.len() as u64;
    let mut entries = entries.take_while(|e| function.contains(e));
    entries.any(|e| to.contains(&e))
}

fn of_distances(at: u64, address: u64, code: &[u8], to: &Range<u64>, read: Read) -> bool {
    let bytes = read(at, TABLE);
    let (words, _) = bytes.as_chunks::<4>();
    let entries = words
        .iter()
        .map(|w| at.wrapping_add_signed(i32::from_le_bytes(*w).into()));
    leads(entries, address, code, to)
}

fn of_addresses(at: u64, address: u64, code: &[u8], to: &Range<u64>, read: Read) -> bool {
    let bytes = read(at, TABLE);
    let (words, _) = bytes.as_chunks::<8>();
    leads(
        words.iter().map(|w| u64::from_le_bytes(*w)),
        address,
        code,
        to,
    )
}

impl Displaced {
    /// The address behind them.
    pub(crate) fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    /// What stands there instead: a jump to an address within reach.
    pub(crate) fn jump(&self, to: u64) -> Vec<u8> {
        let distance = to.wrapping_sub(self.at + JUMP).low32().to_le_bytes();
        let mut bytes = vec![JMP];
        bytes.extend(distance);
        // Nothing leads there.
        bytes.resize(self.bytes.len(), INT3);
        bytes
    }

    /// Their copy for another address, and a jump back.
    pub(crate) fn copied(&self, to: u64) -> Result<Copied, Refusal> {
        let mut all = self.instructions.clone();
        let back = Instruction::with_branch(Code::Jmp_rel32_64, self.end());
        all.push(back.map_err(|_| Refusal::Immovable)?);
        let block = InstructionBlock::new(&all, to);
        let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
        let result = BlockEncoder::encode(64, block, options).map_err(|_| Refusal::Far)?;
        let offsets = &result.new_instruction_offsets[..self.instructions.len()];
        // The encoder writes a branch to far away in another way.
        if offsets.contains(&u32::MAX) {
            return Err(Refusal::Far);
        }
        let moves = self.instructions.iter().zip(offsets);
        let moves = moves.map(|(i, o)| (i.ip(), to + u64::from(*o)));
        Ok(Copied {
            code: result.code_buffer,
            moves: moves.skip(1).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn displaced(address: u64, size: u64, code: &[u8]) -> Result<Displaced, Refusal> {
        super::displaced(address, size, code, &|_, _| Vec::new())
    }

    fn refusal(code: &[u8]) -> Option<Refusal> {
        displaced(0x1000, code.len() as u64, code).err()
    }

    #[test]
    fn whole_instructions_are_displaced() {
        // endbr64; push %rbp; mov %rsp,%rbp; sub $16,%rsp; ret
        let code = [
            0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0xc3,
        ];
        let found = displaced(0x1000, 13, &code).unwrap();
        assert_eq!((found.at, found.end()), (0x1004, 0x100c));
        let copy = found.copied(0x9000).unwrap();
        assert_eq!(copy.code[..8], code[4..12]);
        // jmp 0x100c, from 0x900d
        assert_eq!(copy.code[8..], [0xe9, 0xff, 0x7f, 0xff, 0xff]);
        assert_eq!(copy.moves, [(0x1005, 0x9001), (0x1008, 0x9004)]);
    }

    #[test]
    fn addresses_in_copies_are_the_same() {
        // lea 0x10(%rip),%rax; je 0x1002+7; ret
        let code = [0x48, 0x8d, 0x05, 0x10, 0, 0, 0, 0x74, 0x00, 0xc3];
        let found = displaced(0x1000, 10, &code).unwrap();
        assert_eq!(found.bytes.len(), 7);
        let copy = found.copied(0x2000).unwrap();
        // lea 0xfffff010(%rip)
        assert_eq!(copy.code[..7], [0x48, 0x8d, 0x05, 0x10, 0xf0, 0xff, 0xff]);
        // jrcxz and short branches
        let code = [0x31, 0xc0, 0x74, 0x10, 0x90, 0xc3];
        let copy = displaced(0x1000, 6, &code).unwrap().copied(0x5000).unwrap();
        assert_eq!(copy.code[2..4], [0x0f, 0x84]);
        assert_eq!(copy.moves, [(0x1002, 0x5002), (0x1004, 0x5008)]);
        assert!(
            displaced(0x1000, 6, &code)
                .unwrap()
                .copied(1 << 40)
                .is_err()
        );
    }

    #[test]
    fn padding_behind_a_short_function_is_used() {
        let nops = [0xc3, 0x90, 0x90, 0x90, 0x90, 0x90];
        assert_eq!(displaced(0x1000, 1, &nops).unwrap().bytes.len(), 5);
        assert_eq!(
            displaced(0x1000, 1, &[0xc3, 0x55, 0x55, 0x55, 0x55]).unwrap_err(),
            Refusal::Short
        );
        assert_eq!(refusal(&[0xc3]), Some(Refusal::Short));
        assert_eq!(refusal(&[]), Some(Refusal::NoCode));
        assert_eq!(refusal(&[0x06, 0, 0, 0, 0, 0]), Some(Refusal::Invalid));
    }

    #[test]
    fn what_cannot_be_displaced() {
        // A loop to the second instruction.
        let code = [0x31, 0xc0, 0xff, 0xc0, 0x90, 0x75, 0xfb, 0xc3];
        assert_eq!(refusal(&code), Some(Refusal::JumpedTo));
        // A loop to the first one is a hit like for the kernel's probes, but not behind endbr64.
        let code = [0x31, 0xc0, 0xff, 0xc0, 0x90, 0x75, 0xf9, 0xc3];
        assert_eq!(refusal(&code), None);
        let code = [&[0xf3, 0x0f, 0x1e, 0xfa][..], &code].concat();
        assert_eq!(refusal(&code), Some(Refusal::JumpedTo));
        assert_eq!(refusal(&[0xe8, 0, 0, 0, 0, 0xc3]), Some(Refusal::Call));
        assert_eq!(
            refusal(&[0x90, 0x90, 0x0f, 0x05, 0x90, 0xc3]),
            Some(Refusal::SystemCall)
        );
        assert_eq!(
            refusal(&[0xcd, 0x80, 0x90, 0x90, 0x90, 0xc3]),
            Some(Refusal::SystemCall)
        );
    }

    #[test]
    fn tables_of_jumps() {
        // nop; nop; xor %eax,%eax; nop; nop; lea 0x2000(%rip),%rdx; jmp *%rax
        let relative = [
            0x90, 0x90, 0x31, 0xc0, 0x90, 0x90, 0x48, 0x8d, 0x15, 0xf3, 0x0f, 0, 0, 0xff, 0xe0,
        ];
        // The same with jmp *0x2000(,%rax,8)
        let absolute = [
            0x90, 0x90, 0x31, 0xc0, 0x90, 0x90, 0xff, 0x24, 0xc5, 0, 0x20, 0, 0,
        ];
        let table = |entry: u64, code: &[u8]| {
            let read = |at: u64, _| match (at, code.len()) {
                (0x2000, 13) => [0x1006, entry, 0].map(u64::to_le_bytes).concat(),
                (0x2000, _) => [0x1006, entry, 0]
                    .map(|e: u64| e.wrapping_sub(0x2000).low32().to_le_bytes())
                    .concat(),
                _ => Vec::new(),
            };
            super::displaced(0x1000, code.len() as u64, code, &read).err()
        };
        for code in [&relative[..], &absolute] {
            assert_eq!(table(0x1002, code), Some(Refusal::JumpedTo));
            assert_eq!(table(0x1005, code), None);
            // Behind the table's end.
            assert_eq!(table(0x5002, code), None);
        }
    }
}
