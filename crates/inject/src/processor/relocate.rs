//! The instructions that a jump at the beginning of a function replaces, and their copy elsewhere.

use iced_x86::code_asm::{CodeAssembler, qword_ptr, rax, rsp};
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, FlowControl, IcedError,
    Instruction, InstructionBlock, Mnemonic, OpKind, Register,
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

/// How far a short jump reaches, and in how many bytes decoding falls into step.
const NEAR: u64 = 136;
const IN_STEP: u64 = 64;

/// Bytes of a table of jumps that are read.
const TABLE: u64 = 8192;

/// Code of functions is read no further.
pub(crate) const READ: u64 = 1 << 20;

/// The instructions that a jump replaces.
#[derive(Debug, Clone)]
pub(crate) struct Displaced {
    /// Where the jump stands.
    pub(crate) at: u64,
    /// The instructions' bytes.
    pub(crate) bytes: Vec<u8>,
    /// Addresses to which nothing may jump.
    pub(crate) inner: Range<u64>,
    instructions: Vec<Instruction>,
    /// The instructions in front of which handlers run, in order. The last can be the one behind all.
    places: Vec<u64>,
    /// The call behind these instructions, which is the last that the jump replaces.
    call: Option<DisplacedCall>,
}

/// A call that a jump replaces. Its function returns to behind the call itself, where unwinders know the caller.
#[derive(Debug, Clone, Copy)]
struct DisplacedCall {
    at: u64,
    function: u64,
}

/// Where displaced instructions were, and where their copies are.
pub(crate) type Moves = Vec<(u64, u64)>;

/// A copy of displaced instructions.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    pub(crate) code: Vec<u8>,
    /// For each but the first.
    pub(crate) moves: Moves,
}

/// Reads the process's memory, by its address and the number of bytes.
pub(crate) type Read<'a> = &'a dyn Fn(u64, u64) -> Vec<u8>;

/// A place in a function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FunctionPlace {
    /// The function's address.
    pub(crate) address: u64,
    /// Its length in bytes.
    pub(crate) size: u64,
    /// The place's distance from its first instruction.
    pub(crate) offset: u64,
    pub(crate) kind: RelocationKind,
}

/// Which jumps to a place count as hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RelocationKind {
    /// All.
    Instruction,
    /// All, at a system call, which should not be moved.
    Call,
    /// None, behind a system call.
    Return,
    /// All, at the call of a function that makes a system call.
    Through,
}

/// What a jump replaces, so that a handler runs in front of the instruction at a place. `code` begins with the function
/// and is as long, or a few bytes longer if it is short.
///
/// The jump stands at the place, if there is space behind it, or else in front of it: a return instruction is often
/// followed by another function. A system call is replaced, too, where nothing else can be: a thread that is in it goes on
/// behind its copy, and when the jump is taken back, behind the call itself.
pub(crate) fn displaced(
    place: FunctionPlace,
    code: &[u8],
    read: Read,
) -> Result<Displaced, Refusal> {
    let FunctionPlace {
        address,
        size,
        offset,
        kind,
    } = place;
    if code.is_empty() {
        return Err(Refusal::NoCode);
    }
    let decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let near = address + offset + SHORT;
    let all: Vec<Instruction> = decoder.into_iter().take_while(|i| i.ip() < near).collect();
    let first = all.iter().position(|i| i.ip() == address + offset);
    let first = first.ok_or(Refusal::Invalid)?;
    if kind != RelocationKind::Instruction && uses_flags(&all[first..]) {
        return Err(Refusal::Flags);
    }
    let behind = address + size.max(1);
    let function = code.get(..size.max(1).fit::<usize>()).unwrap_or(code);
    let whole = |(begin, end): (usize, usize)| {
        let (at, to) = (all[begin].ip(), all[end - 1].next_ip());
        // Whoever jumps back to a first instruction behind `endbr64` does not call the function, and whoever jumps to the
        // instruction behind a system call did not make it.
        let counts = begin == first && kind != RelocationKind::Return;
        let from = if counts || begin < first { at + 1 } else { at };
        // A jump to a system call behind our jump would miss the handler.
        let missed = (kind == RelocationKind::Call).then_some(address + offset + 1);
        let inner = from..to.max(missed.unwrap_or(0));
        if jumps_into(address, function, &inner, read) {
            return Err(Refusal::JumpedTo);
        }
        // Behind `endbr64`, the handler runs where the jump stands.
        let handled = if begin > first { at } else { address + offset };
        Ok(Displaced {
            at,
            bytes: code[(at - address).fit()..(to - address).fit()].to_vec(),
            inner,
            instructions: all[begin..end]
                .iter()
                .copied()
                .filter(|i| !i.is_call_near())
                .collect(),
            places: vec![handled],
            call: all[end - 1].is_call_near().then(|| DisplacedCall {
                at: all[end - 1].ip(),
                function: all[end - 1].near_branch_target(),
            }),
        })
    };
    let from_here = || forward(&all, first, (offset == 0, behind)).and_then(whole);
    let before = |own| backward(&all, first, behind, own).and_then(whole);
    match kind {
        RelocationKind::Instruction if offset == 0 => from_here(),
        RelocationKind::Instruction => from_here().or_else(|_| before(true)),
        RelocationKind::Call => before(false).or_else(|_| around_call(&all, first, behind, whole)),
        RelocationKind::Through => {
            let call = &all[first];
            match call.is_call_near() && call.len() as u64 >= JUMP {
                true => whole((first, first + 1)),
                false => Err(Refusal::Invalid),
            }
        }
        RelocationKind::Return => from_here()
            .or_else(|_| before(true))
            .or_else(|_| before(false)),
    }
}

/// Whether flags that are set in front of these instructions are used by them, up to the first branch.
fn uses_flags(all: &[Instruction]) -> bool {
    // A system call reads them, and gives them back.
    for instruction in all.iter().filter(|i| i.mnemonic() != Mnemonic::Syscall) {
        if instruction.rflags_read() != 0 {
            return true;
        }
        let goes_on = [FlowControl::Next, FlowControl::Call].contains(&instruction.flow_control());
        if instruction.rflags_modified() != 0 || !goes_on {
            break;
        }
    }
    false
}

/// The fewest instructions with a system call that a jump can replace.
fn around_call(
    all: &[Instruction],
    call: usize,
    behind: u64,
    whole: impl Fn((usize, usize)) -> Result<Displaced, Refusal>,
) -> Result<Displaced, Refusal> {
    let mut refused = Refusal::Short;
    for begin in (0..=call).rev() {
        let moved = |i: &Instruction| match i.ip() < behind || !is_padding(i) {
            true => may_move(i),
            false => Ok(()),
        };
        if begin < call {
            moved(&all[begin])?;
        }
        let fits = |end: &usize| all[end - 1].next_ip() >= all[begin].ip() + JUMP;
        let Some(end) = (call + 1..=all.len()).find(fits) else {
            break;
        };
        let is_inside = all[end - 1].ip() < behind || is_padding(&all[end - 1]);
        let movable = all[call + 1..end].iter().try_for_each(moved);
        match movable.and_then(|()| whole((begin, end))) {
            Ok(found) if is_inside => return Ok(found),
            Ok(_) => refused = Refusal::Short,
            Err(why) => refused = why,
        }
        // Enough stands in front of it, and that was tried before.
        if all[call].next_ip() - all[begin].ip() >= 2 * JUMP {
            break;
        }
    }
    Err(refused)
}

/// The instructions from the place on that a jump replaces; behind its `endbr64`, if it is the beginning of a function.
/// Behind the function only what nobody runs is replaced.
fn forward(
    all: &[Instruction],
    first: usize,
    (entry, behind): (bool, u64),
) -> Result<(usize, usize), Refusal> {
    let lands = entry && all[first].mnemonic() == Mnemonic::Endbr64;
    let begin = first + usize::from(lands);
    for (index, next) in all.iter().enumerate().skip(begin) {
        if next.is_invalid() {
            return Err(Refusal::Invalid);
        }
        let is_enough = next.next_ip() >= all[begin].ip() + JUMP;
        match (next.ip() < behind, is_padding(next)) {
            (false, false) => return Err(Refusal::Short),
            (false, true) => {}
            // A call is the last, because it returns behind all.
            (true, _) if next.is_call_near() && is_enough => {}
            (true, _) => may_move(next)?,
        }
        if is_enough {
            return Ok((begin, index + 1));
        }
    }
    Err(Refusal::Short)
}

/// The instructions in front of the place, and the one there if it can be moved and is wanted. A system call right in
/// front of it can be moved, see [`displaced`].
fn backward(
    all: &[Instruction],
    first: usize,
    behind: u64,
    own: bool,
) -> Result<(usize, usize), Refusal> {
    let end = first + usize::from(own && may_move(&all[first]).is_ok());
    // Padding behind it needs not stay.
    let padding = all[end..]
        .iter()
        .take_while(|i| i.ip() >= behind && is_padding(i));
    let end = end + padding.count();
    for begin in (0..first).rev() {
        // The first instruction of a function may be one where calls land.
        if all[begin].is_invalid() || all[begin].mnemonic() == Mnemonic::Endbr64 {
            break;
        }
        let is_call = begin + 1 == first && all[begin].mnemonic() == Mnemonic::Syscall;
        if !is_call {
            may_move(&all[begin])?;
        }
        if all[end - 1].next_ip() >= all[begin].ip() + JUMP {
            return Ok((begin, end));
        }
    }
    Err(Refusal::Short)
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
        // It replaces another instruction, and whoever set it knows this address only.
        FlowControl::Interrupt if instruction.mnemonic() == Mnemonic::Int3 => {
            Err(Refusal::Breakpoint)
        }
        FlowControl::Interrupt => Err(Refusal::SystemCall),
        FlowControl::XbeginXabortXend => Err(Refusal::Immovable),
        _ => Ok(()),
    }
}

/// Whether code jumps to one of these addresses, directly or by a table, or keeps one.
pub(crate) fn jumps_into(address: u64, code: &[u8], to: &Range<u64>, read: Read) -> bool {
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

/// Those of `inner`, which is sorted, into which code jumps from anywhere: hand-written functions share parts. Short jumps
/// are looked for around each, others everywhere. A distance of 32 bits that is none fits by chance hardly ever, so
/// that these need no decoding.
pub(crate) fn jumped_into(code: &[u8], base: u64, inner: &[Range<u64>]) -> Vec<bool> {
    let mut found = vec![false; inner.len()];
    for (at, window) in code.windows(5).enumerate() {
        // call, jmp, and conditional jumps, which have two bytes
        match window[0] {
            0xe8 | 0xe9 => {}
            0x80..=0x8f if at > 0 && code[at - 1] == 0x0f => {}
            _ => continue,
        }
        let distance = i32::from_le_bytes([window[1], window[2], window[3], window[4]]);
        let target = (base + at as u64 + JUMP).wrapping_add_signed(distance.into());
        let next = inner.partition_point(|r| r.end <= target);
        if inner.get(next).is_some_and(|r| r.contains(&target)) {
            found[next] = true;
        }
    }
    for (range, found) in inner.iter().zip(&mut found) {
        // Decoding falls into step within a few instructions.
        let from = range.start.saturating_sub(NEAR + IN_STEP).max(base);
        let to = (range.end + NEAR).min(base + code.len() as u64);
        let Some(near) = code.get((from - base).fit()..(to.max(from) - base).fit()) else {
            continue;
        };
        let all = Decoder::with_ip(64, near, from, DecoderOptions::NONE);
        *found |= all.into_iter().any(|i| {
            i.is_jmp_short_or_near() || i.is_jcc_short_or_near() || i.is_jcx_short() || i.is_loop() || i.is_loopcc()
        } && range.contains(&i.near_branch_target()));
    }
    found
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

    /// Adds what another jump replaces, so that one jump replaces both. `None` if that begins elsewhere, or if code jumps
    /// to where the other jump would stand.
    pub(crate) fn join(
        &self,
        other: &Displaced,
        code: (&[u8], u64),
        read: Read,
    ) -> Option<Displaced> {
        if other.at < self.at || self.call.is_some() || other.call.is_some() {
            return None;
        }
        let known = self.end().checked_sub(other.at)?.fit::<usize>();
        let first = other.instructions.iter().find(|i| i.ip() >= self.end());
        let aligned = first.map_or(other.end() <= self.end(), |i| i.ip() == self.end());
        if !aligned {
            return None;
        }
        let new = other.instructions.iter().filter(|i| i.ip() >= self.end());
        let mut joined = self.clone();
        joined
            .bytes
            .extend(other.bytes.get(known..).unwrap_or_default());
        joined.instructions.extend(new);
        joined.inner.end = joined.end();
        joined.places.extend(&other.places);
        joined.places.sort_unstable();
        joined.places.dedup();
        let (bytes, address) = code;
        let free = !jumps_into(address, bytes, &joined.inner, read);
        free.then_some(joined)
    }

    /// The places in front of which handlers run, in order.
    pub(crate) fn places(&self) -> &[u64] {
        &self.places
    }

    /// Copies for an address, with a jump back behind them. In front of the copy of each place stands `entry`, the code of
    /// which is asked for by the place and its address.
    pub(crate) fn around(
        &self,
        to: u64,
        mut entry: impl FnMut(u64, u64) -> Result<Vec<u8>, Refusal>,
    ) -> Result<Copied, Refusal> {
        let mut whole = Copied::default();
        let mut rest = &self.instructions[..];
        for place in &self.places {
            let before = rest.partition_point(|i| i.ip() < *place);
            whole.append(copied(&rest[..before], to + whole.length())?);
            rest = &rest[before..];
            let at = to + whole.length();
            if *place != self.at {
                whole.moves.push((*place, at));
            }
            whole.code.extend(entry(*place, at)?);
        }
        if let Some(call) = self.call {
            whole.append(copied(rest, to + whole.length())?);
            let at = to + whole.length();
            if call.at != self.at && !self.places.contains(&call.at) {
                whole.moves.push((call.at, at));
            }
            let code = calling(call.function, self.end(), at);
            whole.code.extend(code.map_err(|_| Refusal::Far)?);
            return Ok(whole);
        }
        let back = Instruction::with_branch(Code::Jmp_rel32_64, self.end());
        let mut rest = rest.to_vec();
        rest.push(back.map_err(|_| Refusal::Immovable)?);
        let mut rest = copied(&rest, to + whole.length())?;
        // The jump back is no copy.
        rest.moves.pop();
        whole.append(rest);
        Ok(whole)
    }
}

/// What stands in place of a call at an address: it returns to `behind`.
fn calling(function: u64, behind: u64, at: u64) -> Result<Vec<u8>, IcedError> {
    let mut code = CodeAssembler::new(64)?;
    code.push(rax)?;
    code.mov(rax, behind)?;
    code.xchg(qword_ptr(rsp), rax)?;
    code.jmp(function)?;
    code.assemble(at)
}

impl Copied {
    fn length(&self) -> u64 {
        self.code.len() as u64
    }

    fn append(&mut self, other: Copied) {
        self.code.extend(other.code);
        self.moves.extend(other.moves);
    }
}

/// A copy of instructions for another address.
fn copied(all: &[Instruction], to: u64) -> Result<Copied, Refusal> {
    if all.is_empty() {
        return Ok(Copied::default());
    }
    let block = InstructionBlock::new(all, to);
    let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
    let result = BlockEncoder::encode(64, block, options).map_err(|_| Refusal::Far)?;
    // The encoder writes a branch to far away in another way.
    if result.new_instruction_offsets.contains(&u32::MAX) {
        return Err(Refusal::Far);
    }
    let moves = all.iter().zip(&result.new_instruction_offsets);
    let moves = moves.map(|(i, o)| (i.ip(), to + u64::from(*o)));
    Ok(Copied {
        code: result.code_buffer,
        moves: moves.skip(1).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn displaced(address: u64, size: u64, code: &[u8]) -> Result<Displaced, Refusal> {
        displaced_at((address, size, 0), code)
    }

    fn displaced_at(place: (u64, u64, u64), code: &[u8]) -> Result<Displaced, Refusal> {
        let (address, size, offset) = place;
        let place = FunctionPlace {
            address,
            size,
            offset,
            kind: RelocationKind::Instruction,
        };
        super::displaced(place, code, &|_, _| Vec::new())
    }

    impl Displaced {
        /// A copy without code of an entry.
        fn copied(&self, to: u64) -> Result<Copied, Refusal> {
            self.around(to, |_, _| Ok(Vec::new()))
        }
    }

    #[test]
    fn breakpoints_stay_where_they_are() {
        // int3 in place of push %rbp; mov %rsp,%rbp; sub $16,%rsp
        let code = [0xcc, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0xc3];
        assert_eq!(refusal(&code), Some(Refusal::Breakpoint));
        // Behind a function it is padding.
        let code = [0x31, 0xc0, 0xc3, 0xcc, 0xcc, 0xcc];
        assert_eq!(displaced(0x1000, 3, &code).unwrap().end(), 0x1005);
    }

    #[test]
    fn a_jump_in_front_of_a_return_instruction() {
        // xor %eax,%eax; add $1,%rax; ret, and the next function
        let code = [
            0x31, 0xc0, 0x48, 0x83, 0xc0, 0x01, 0xc3, 0x55, 0x55, 0x55, 0x55, 0x55,
        ];
        let found = displaced_at((0x1000, 7, 6), &code).unwrap();
        assert_eq!((found.at, found.end()), (0x1002, 0x1007));
        assert_eq!(found.inner, 0x1003..0x1007);
        let copy = found.around(0x9000, |_, at| {
            assert_eq!(at, 0x9004);
            Ok(vec![0x90; 3])
        });
        let copy = copy.unwrap();
        assert_eq!(
            copy.code[..8],
            [0x48, 0x83, 0xc0, 0x01, 0x90, 0x90, 0x90, 0xc3]
        );
        assert_eq!(copy.moves, [(0x1006, 0x9004)]);
        // jmp to the return instruction
        let code = [0xeb, 0x04, 0x48, 0x83, 0xc0, 0x01, 0xc3, 0x55, 0x55, 0x55];
        let refused = displaced_at((0x1000, 7, 6), &code).unwrap_err();
        assert_eq!(refused, Refusal::JumpedTo);
        // A place within an instruction.
        assert_eq!(
            displaced_at((0x1000, 7, 3), &code).unwrap_err(),
            Refusal::Invalid
        );
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
    fn a_call_at_the_end_returns_to_where_it_was() {
        // push %rbx; mov %rdi,%rbx; call 0x1030; cltq; ret
        let code = [
            0x53, 0x48, 0x89, 0xfb, 0xe8, 0x27, 0, 0, 0, 0x48, 0x98, 0xc3,
        ];
        let found = displaced(0x1000, 12, &code).unwrap();
        assert_eq!((found.at, found.end()), (0x1000, 0x1009));
        let copy = found.copied(0x9000).unwrap();
        assert_eq!(copy.code[..4], code[..4]);
        // push %rax; mov $0x1009,%rax; xchg %rax,(%rsp); jmp 0x1030
        assert_eq!(copy.code[4..7], [0x50, 0x48, 0xb8]);
        assert_eq!(copy.moves, [(0x1001, 0x9001), (0x1004, 0x9004)]);
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
        // push %rbx; call *%rax
        assert_eq!(
            refusal(&[0x53, 0xff, 0xd0, 0x90, 0x90, 0x90, 0xc3]),
            Some(Refusal::Call)
        );
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
            let place = FunctionPlace {
                address: 0x1000,
                size: code.len() as u64,
                offset: 0,
                kind: RelocationKind::Instruction,
            };
            super::displaced(place, code, &read).err()
        };
        for code in [&relative[..], &absolute] {
            assert_eq!(table(0x1002, code), Some(Refusal::JumpedTo));
            assert_eq!(table(0x1005, code), None);
            // Behind the table's end.
            assert_eq!(table(0x5002, code), None);
        }
    }

    #[test]
    fn jumps_from_other_functions() {
        let mut code = vec![0x90; 4096];
        let inner = [0x1100..0x1105, 0x1801..0x1808];
        assert_eq!(jumped_into(&code, 0x1000, &inner), [false, false]);
        // jmp 0x1803, from 0x1010
        code[0x10..0x15].copy_from_slice(&[0xe9, 0xee, 0x07, 0, 0]);
        assert_eq!(jumped_into(&code, 0x1000, &inner), [false, true]);
        // jmp 0x1800 is none
        code[0x11] = 0xeb;
        assert_eq!(jumped_into(&code, 0x1000, &inner), [false, false]);
        // je 0x1104, from 0x1180
        code[0x180..0x182].copy_from_slice(&[0x74, 0x82]);
        assert_eq!(jumped_into(&code, 0x1000, &inner), [true, false]);
    }
}
