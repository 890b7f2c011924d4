//! Where stopped threads stand, and where signals interrupted them: code at these addresses will run.

use crate::error::Error;
use crate::process::{Mapping, Memory};
use crate::ptrace;

/// How much of a stack is read.
const DEEP: u64 = 1 << 20;

/// How many stacks a thread can be on, one signal upon the other.
const STACKS: usize = 8;

/// The word of a signal's frame with the selectors of code and stack; before it come flags, rip and rsp.
const SELECTORS: u64 = 0x002b_0000_0000_0033;

/// Words of a frame up to this one. The first is the address of the stack for signals, the third its length.
const FRAME: usize = 21;

/// An address at which a thread goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resumes {
    /// Now.
    Register,
    /// When a signal's handler returns: the address of the word that says so.
    Frame(u64),
}

/// The addresses at which a thread goes on. `top` gives the end of a stack that does not end where its mapping does.
pub(crate) fn resumes(
    tid: u32,
    maps: &[Mapping],
    memory: &Memory,
    top: impl Fn(u64) -> Option<u64>,
) -> Result<Vec<(Resumes, u64)>, Error> {
    let registers = ptrace::registers(tid).map_err(Error::system("read a thread's registers"))?;
    let mut all = vec![(Resumes::Register, registers.rip)];
    let mut stacks: Vec<(u64, u64)> = Vec::new();
    let mut next = Some(registers.rsp & !7);
    while let Some(from) = next.take() {
        let Some(mapping) = maps.iter().find(|m| (m.start..m.end).contains(&from)) else {
            break;
        };
        let end = top(from).unwrap_or(mapping.end).min(from + DEEP);
        stacks.push((from, end));
        let bytes = memory.read(from, end - from);
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: usize| u64::from_le_bytes(words[at]);
        for at in (FRAME..words.len()).filter(|at| word(*at) == SELECTORS) {
            let (stack, rip) = (word(at - 3), word(at - 2));
            let frame = from + (at as u64) * 8;
            // A frame on a stack for signals is of a thread that is there, too. Others are left from before.
            let signals = word(at - FRAME)..word(at - FRAME).saturating_add(word(at - FRAME + 2));
            if signals.contains(&frame) && !signals.contains(&from) {
                continue;
            }
            all.push((Resumes::Frame(frame - 2 * 8), rip));
            let known = stacks
                .iter()
                .any(|(from, end)| (*from..*end).contains(&stack));
            if !known && stacks.len() < STACKS {
                next = Some(stack & !7);
            }
        }
    }
    Ok(all)
}

/// Lets a thread go on elsewhere.
pub(crate) fn move_to(
    tid: u32,
    memory: &Memory,
    which: Resumes,
    address: u64,
) -> Result<(), Error> {
    match which {
        Resumes::Frame(at) => memory.write(at, &address.to_le_bytes()),
        Resumes::Register => {
            let error = Error::system("move a thread");
            let mut registers = ptrace::registers(tid).map_err(&error)?;
            registers.rip = address;
            ptrace::set_registers(tid, &registers).map_err(&error)
        }
    }
}
