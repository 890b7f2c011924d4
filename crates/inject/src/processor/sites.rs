//! The instructions of system calls in code, and the numbers that the code in front of them loads.

use std::collections::HashMap;
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use spile_cast::Cast;

use crate::image::CallNumber;
use crate::processor::cancellable::{NEAR_CALL_LENGTH, cancellable};
use crate::processor::registers::KERNEL_CALL;
use crate::processor::relocate::{Read, jumps_into};

/// How far in front of an instruction decoding begins where no function is known, and in how many bytes it falls into step.
const WINDOW: u64 = 96;
const STARTS: u64 = 16;
/// How many of these beginnings have to lead to the instruction.
const AGREEING: usize = 12;
/// What follows an instruction belongs to the window, too.
const BEHIND: u64 = 32;

/// The instruction of a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallSite {
    /// Address of the function.
    pub function: u64,
    /// Its length in bytes.
    pub size: u64,
    /// Distance of the instruction from its first byte.
    pub offset: u64,
    /// The number of its calls.
    pub number: CallNumber,
    /// What becomes of the thread.
    pub fate: Fate,
    /// Whether it is the call of a function that makes a cancellable system call: in this function nothing may be replaced.
    pub through: bool,
}

/// What becomes of a thread at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It returns.
    Returns,
    /// It does not come back to this place.
    Leaves,
    /// It ends.
    Ends,
    /// It has no stack when it returns, and ends.
    LosesStack,
}

/// How close the end of a thread follows the call that unmaps its stack.
const END: u64 = 24;

impl CallSite {
    /// Address of the instruction.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.function + self.offset
    }

    /// Distance of the instruction behind it from the function's first byte.
    #[must_use]
    pub fn behind(&self) -> u64 {
        let length = match self.through {
            true => NEAR_CALL_LENGTH,
            false => KERNEL_CALL.len() as u64,
        };
        self.offset + length
    }
}

/// The sites in code at an address. `bounds` gives the function at an address, from its start to its end.
pub(crate) fn sites(
    code: &[u8],
    base: u64,
    bounds: impl Fn(u64) -> Option<Range<u64>>,
    read: Read,
) -> Vec<CallSite> {
    let cancellable: HashMap<u64, Vec<u64>> = cancellable(code, base).into_iter().collect();
    let found = code.windows(KERNEL_CALL.len()).enumerate();
    let found = found.filter(|(_, bytes)| *bytes == KERNEL_CALL);
    let site = |at: u64, through: bool| {
        let range = bounds(at).or_else(|| window(code, base, at))?;
        let bytes = code.get((range.start.checked_sub(base)?).fit()..)?;
        let bytes = &bytes[..bytes.len().min((range.end - range.start).fit())];
        let all = decoded(bytes, range.start);
        let index = all.iter().position(|i| i.ip() == at)?;
        let is_meant = match through {
            true => all[index].is_call_near(),
            false => all[index].mnemonic() == Mnemonic::Syscall,
        };
        is_meant.then(|| CallSite {
            function: range.start,
            size: range.end - range.start,
            offset: at - range.start,
            number: match through {
                true => CallNumber::InRegister,
                false => number(&all[..index], at, (range.start, bytes), read),
            },
            fate: Fate::Returns,
            through,
        })
    };
    let mut sites: Vec<CallSite> = Vec::new();
    for (offset, _) in found {
        let at = base + offset as u64;
        match cancellable.get(&at) {
            Some(callers) => sites.extend(callers.iter().filter_map(|at| site(*at, true))),
            None => sites.extend(site(at, false)),
        }
    }
    sites.sort_by_key(CallSite::at);
    let is = |site: &CallSite, number: i64| matches!(site.number, CallNumber::Is(n) if i64::from(n) == number);
    for index in 0..sites.len() {
        let this = sites[index];
        let next = sites.get(index + 1);
        let next = next.filter(|next| next.at() - this.at() <= END);
        let ends_next = next.is_some_and(|next| is(next, libc::SYS_exit));
        let leaves = [libc::SYS_exit_group, libc::SYS_rt_sigreturn];
        sites[index].fate = if is(&this, libc::SYS_exit) {
            Fate::Ends
        } else if leaves.iter().any(|number| is(&this, *number)) {
            Fate::Leaves
        } else if is(&this, libc::SYS_munmap) && ends_next {
            Fate::LosesStack
        } else {
            Fate::Returns
        };
    }
    sites
}

fn decoded(code: &[u8], at: u64) -> Vec<Instruction> {
    let decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
    decoder.into_iter().collect()
}

/// What surrounds an instruction whose function is not known, from the beginning of an instruction on.
fn window(code: &[u8], base: u64, at: u64) -> Option<Range<u64>> {
    let end = (at + BEHIND).min(base + code.len() as u64);
    let leads = |from: &u64| {
        let bytes = &code[(from - base).fit()..(end - base).fit()];
        decoded(bytes, *from).iter().any(|i| i.ip() == at)
    };
    let first = at
        .checked_sub(WINDOW + STARTS)
        .filter(|from| *from >= base)?;
    let leading: Vec<u64> = (first..first + STARTS).filter(leads).collect();
    // The last of them that the others agree with.
    let from = *leading.last()?;
    (leading.len() >= AGREEING).then_some(from..end)
}

/// The number of a call, if the instructions in front of it load a constant, and nothing jumps in between.
fn number(before: &[Instruction], at: u64, (start, code): (u64, &[u8]), read: Read) -> CallNumber {
    let mut low = None;
    for instruction in before.iter().rev() {
        let writes = instruction.op_count() > 0
            && instruction.op0_kind() == OpKind::Register
            && instruction.op0_register().full_register() == Register::RAX;
        let is_low = instruction.op_count() > 1
            && instruction.op0_register() == Register::AL
            && (instruction.mnemonic(), instruction.op1_kind())
                == (Mnemonic::Mov, OpKind::Immediate8);
        if is_low && low.is_none() {
            low = Some(instruction.immediate(1));
            continue;
        }
        if writes {
            let constant = match (instruction.mnemonic(), instruction.op1_kind()) {
                (Mnemonic::Mov, OpKind::Immediate32 | OpKind::Immediate32to64) if low.is_none() => {
                    Some(instruction.immediate(1))
                }
                (Mnemonic::Xor, OpKind::Register)
                    if instruction.op1_register() == instruction.op0_register() =>
                {
                    Some(low.unwrap_or(0))
                }
                _ => None,
            };
            let number = constant.and_then(|number| u32::try_from(number).ok());
            let between = instruction.next_ip()..at + 1;
            return match number.filter(|_| !jumps_into(start, code, &between, read)) {
                Some(number) => CallNumber::Is(number),
                None => CallNumber::InRegister,
            };
        }
        let keeps = matches!(
            instruction.mnemonic(),
            Mnemonic::Mov
                | Mnemonic::Movsxd
                | Mnemonic::Movsx
                | Mnemonic::Movzx
                | Mnemonic::Lea
                | Mnemonic::Xor
                | Mnemonic::And
                | Mnemonic::Or
                | Mnemonic::Add
                | Mnemonic::Sub
                | Mnemonic::Push
                | Mnemonic::Pop
                | Mnemonic::Nop
                | Mnemonic::Test
                | Mnemonic::Cmp
                | Mnemonic::Movaps
                | Mnemonic::Movups
                | Mnemonic::Movq
        );
        if !keeps {
            break;
        }
    }
    CallNumber::InRegister
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &[u8], bounds: Option<Range<u64>>) -> Vec<CallSite> {
        sites(code, 0x1000, |_| bounds.clone(), &|_, _| Vec::new())
    }

    fn numbers(code: &[u8]) -> Vec<CallNumber> {
        let all = found(code, Some(0x1000..0x1000 + code.len() as u64));
        all.iter().map(|site| site.number).collect()
    }

    #[test]
    fn numbers_are_constants_in_front_of_the_call() {
        // mov $39,%eax; syscall; ret
        assert_eq!(
            numbers(&[0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3]),
            [CallNumber::Is(39)]
        );
        // xor %eax,%eax; mov %edx,%edi; syscall
        assert_eq!(
            numbers(&[0x31, 0xc0, 0x89, 0xd7, 0x0f, 0x05]),
            [CallNumber::Is(0)]
        );
        // xor %eax,%eax; mov $56,%al; syscall
        assert_eq!(
            numbers(&[0x31, 0xc0, 0xb0, 56, 0x0f, 0x05]),
            [CallNumber::Is(56)]
        );
        // mov $15,%rax; syscall
        assert_eq!(
            numbers(&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05]),
            [CallNumber::Is(15)]
        );
        // mov $1,%eax; cmovbe %ecx,%eax; syscall
        assert_eq!(
            numbers(&[0xb8, 1, 0, 0, 0, 0x0f, 0x46, 0xc1, 0x0f, 0x05]),
            [CallNumber::InRegister]
        );
        // mov $1,%eax; mul %ecx; syscall
        assert_eq!(
            numbers(&[0xb8, 1, 0, 0, 0, 0xf7, 0xe1, 0x0f, 0x05]),
            [CallNumber::InRegister]
        );
        // mov $1,%eax; syscall; jmp back to the syscall
        assert_eq!(
            numbers(&[0xb8, 1, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xfc]),
            [CallNumber::InRegister]
        );
    }

    #[test]
    fn bytes_within_an_instruction_are_no_call() {
        // mov $0x050f,%ecx; ret
        assert!(numbers(&[0xb9, 0x0f, 0x05, 0, 0, 0xc3]).is_empty());
    }

    #[test]
    fn a_function_that_is_not_known() {
        let mut code = vec![0x90; 200];
        code[150..157].copy_from_slice(&[0xb8, 39, 0, 0, 0, 0x0f, 0x05]);
        let all = found(&code, None);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].function + all[0].offset, 0x1000 + 155);
        assert_eq!(all[0].behind(), all[0].offset + 2);
        assert_eq!(all[0].number, CallNumber::Is(39));
        // At the beginning of a mapping there is too little.
        assert!(found(&code[150..], None).is_empty());
    }
}
