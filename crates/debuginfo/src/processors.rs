//! The processors whose instructions or operands are known.

use spile_abi::{AARCH64, Abi, X86_64};

use crate::code::Instructions;
use crate::image::Image;
use crate::sdt::operand::ReadOperand;
use crate::uprobes::{KernelVersion, Verdict};
use crate::{aarch64, x86_64};

/// What is known of a processor.
struct Processor {
    abi: &'static Abi,
    operand: ReadOperand,
    instructions: Option<&'static Instructions>,
}

static PROCESSORS: [Processor; 2] = [
    Processor {
        abi: &X86_64,
        operand: x86_64::operand::read,
        instructions: Some(&x86_64::INSTRUCTIONS),
    },
    Processor {
        abi: &AARCH64,
        operand: aarch64::operand::read,
        instructions: None,
    },
];

/// The functions for a processor's instructions, if they are known.
pub(crate) fn instructions(abi: &Abi) -> Option<&'static Instructions> {
    PROCESSORS.iter().find(|p| p.abi == abi)?.instructions
}

/// What reads operands in the syntax of a processor's assembler.
pub(crate) fn operand_reader(abi: &Abi) -> Option<ReadOperand> {
    let known = PROCESSORS.iter().find(|p| p.abi == abi)?;
    Some(known.operand)
}

impl Image {
    /// The functions for the file's instructions, if they are known.
    pub(crate) fn instructions(&self) -> Option<&'static Instructions> {
        instructions(self.abi()?)
    }
}

/// What a kernel does with a breakpoint on an instruction of a processor, given by all of its bytes. `None`: the
/// processor's instructions are not known.
#[must_use]
pub fn verdict(abi: &Abi, instruction: &[u8], kernel: KernelVersion) -> Option<Verdict> {
    let known = instructions(abi)?;
    Some((known.verdict)(instruction, kernel))
}
