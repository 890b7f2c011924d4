//! Unwinds a stack that stands still, one frame after the other, by [`UnwindRow`]s.
//!
//! In: the registers of a thread, its memory, and the rows of its code. Out: the addresses of its
//! frames. (Handlers unwind in the kernel, by code of their own: see the crate `lir`.)

use spile_abi::Abi;

use crate::cfi::{Cfa, SavedRule, UnwindRow};

/// The registers from which a stack is unwound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackRegisters {
    /// The address of the next instruction.
    pub pc: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer, if known.
    pub fp: Option<u64>,
}

/// The memory and the code of a process.
pub trait StackSource {
    /// The word at an address; `None` if it cannot be read.
    fn word(&self, address: u64) -> Option<u64>;
    /// The row for the code at an address of the process; `None` if it is not described.
    fn row(&self, address: u64) -> Option<UnwindRow>;
}

/// A frame of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackLocation {
    /// An address in the instruction that the frame executes: for callers, in the call.
    pub address: u64,
}

/// The frames of a stack, the innermost first; `most` at most. Ends where a frame has no rule, or
/// its caller cannot be read.
#[must_use]
pub fn unwind(
    start: StackRegisters,
    abi: &Abi,
    source: &dyn StackSource,
    most: usize,
) -> Vec<StackLocation> {
    let mut frames = Vec::new();
    let mut registers = start;
    // A return address lies behind its call.
    let mut back = 0;
    while frames.len() < most && registers.pc != 0 {
        let address = registers.pc.saturating_sub(back);
        frames.push(StackLocation { address });
        let row = source.row(address);
        let caller = match row {
            Some(row) if row.cfa != Cfa::Unknown => by_row(&registers, &row, abi, source),
            _ => by_frame_pointer(&registers, source),
        };
        let Some(caller) = caller else { break };
        let signal = row.is_some_and(|row| row.signal);
        // A handler can have a stack of its own.
        if caller.sp <= registers.sp && !signal {
            break;
        }
        back = u64::from(!signal);
        registers = caller;
    }
    frames
}

/// The caller's registers by a row.
fn by_row(
    at: &StackRegisters,
    row: &UnwindRow,
    abi: &Abi,
    source: &dyn StackSource,
) -> Option<StackRegisters> {
    let value = |register: u16| match register {
        r if r == abi.stack_pointer => Some(at.sp),
        r if r == abi.frame_pointer => at.fp,
        _ => None,
    };
    let sum = |base: u64, offset: i32| base.wrapping_add_signed(offset.into());
    let cfa = match row.cfa {
        Cfa::Unknown => return None,
        Cfa::Register { register, offset } => sum(value(register)?, offset),
        Cfa::Deref { register, offset } => source.word(sum(value(register)?, offset))?,
        Cfa::Plt { byte } => {
            let pushed = u64::from(at.pc & 15 >= u64::from(byte));
            at.sp + 8 + (pushed << 3)
        }
    };
    let saved = |rule: SavedRule| match rule {
        SavedRule::AtCfa(offset) => source.word(sum(cfa, offset)),
        SavedRule::AtRegister { register, offset } => source.word(sum(value(register)?, offset)),
        SavedRule::Register(register) => value(register),
        SavedRule::Same | SavedRule::Undefined | SavedRule::Other => None,
    };
    let fp = match row.frame_pointer {
        SavedRule::Same => at.fp,
        rule => saved(rule),
    };
    Some(StackRegisters {
        pc: saved(row.ra)?,
        sp: cfa,
        fp,
    })
}

/// The caller's registers in code without rows, which keeps frame pointers or cannot be unwound.
fn by_frame_pointer(at: &StackRegisters, source: &dyn StackSource) -> Option<StackRegisters> {
    let fp = at.fp.filter(|fp| *fp >= at.sp)?;
    Some(StackRegisters {
        pc: source.word(fp.checked_add(8)?)?,
        sp: fp.checked_add(16)?,
        fp: source.word(fp),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    struct Made {
        words: HashMap<u64, u64>,
        rows: Vec<UnwindRow>,
    }

    impl StackSource for Made {
        fn word(&self, address: u64) -> Option<u64> {
            self.words.get(&address).copied()
        }

        fn row(&self, address: u64) -> Option<UnwindRow> {
            let rows = self.rows.iter().rev();
            rows.into_iter().find(|row| row.start <= address).copied()
        }
    }

    fn row(start: u64, register: u16, offset: i32, frame_pointer: SavedRule) -> UnwindRow {
        UnwindRow {
            start,
            cfa: Cfa::Register { register, offset },
            frame_pointer,
            ra: SavedRule::AtCfa(-8),
            signal: false,
        }
    }

    #[test]
    fn callers_are_found_by_rows_and_by_frame_pointers() {
        let abi = &spile_abi::X86_64;
        let (sp, fp) = (abi.stack_pointer, abi.frame_pointer);
        let source = Made {
            // A leaf that uses the stack pointer, a function with a frame pointer, one without rows,
            // and the outermost one.
            rows: vec![
                row(0x1000, sp, 16, SavedRule::Same),
                row(0x2000, fp, 16, SavedRule::AtCfa(-16)),
                UnwindRow {
                    cfa: Cfa::Unknown,
                    ..row(0x3000, sp, 0, SavedRule::Same)
                },
                UnwindRow {
                    ra: SavedRule::Undefined,
                    ..row(0x4000, sp, 8, SavedRule::Same)
                },
            ],
            words: HashMap::from([
                (108, 0x2010),
                (200, 300),
                (208, 0x3020),
                (300, 400),
                (308, 0x4030),
            ]),
        };
        let start = StackRegisters {
            pc: 0x1005,
            sp: 100,
            fp: Some(200),
        };
        let addresses = |most| -> Vec<u64> {
            let frames = unwind(start, abi, &source, most);
            frames.into_iter().map(|f| f.address).collect()
        };
        assert_eq!(addresses(9), [0x1005, 0x200f, 0x301f, 0x402f]);
        assert_eq!(addresses(2), [0x1005, 0x200f]);
        let without = StackRegisters { fp: None, ..start };
        assert_eq!(unwind(without, abi, &source, 9).len(), 2);
    }
}
