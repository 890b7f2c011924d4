//! What decodes the instructions of processors, as tables of functions. What the functions find is in terms that
//! all processors have; the instructions themselves are in a folder for each processor.

use crate::exits::FunctionExits;
use crate::module::DebugFile;
use crate::uprobes::{KernelVersion, Verdict};

type FindExits = fn(&DebugFile, u64, &[(u64, u64)]) -> Result<FunctionExits, String>;
type FindHazard = fn(&[u8], u64) -> Option<(u64, &'static str)>;

type FindStores = fn(&[u8], u64, &dyn Fn(u64) -> bool) -> Vec<FrameStore>;

/// The functions for the instructions of a processor.
pub(crate) struct Instructions {
    /// Decodes code at an address, up to a number of instructions.
    pub(crate) decode: fn(&[u8], u64, usize) -> Vec<Instruction>,
    /// Says of the instruction at an address what a breakpoint there does.
    pub(crate) examine: fn(&[u8], u64, KernelVersion) -> Option<ProbedInstruction>,
    /// The longest instruction in bytes.
    pub(crate) longest: u64,
    /// What a kernel does with a breakpoint on an instruction.
    pub(crate) verdict: fn(&[u8], KernelVersion) -> Verdict,
    /// The sizes of direct jumps that end functions.
    pub(crate) jumps: &'static [u64],
    /// The exits of the function at an address, with its ranges.
    pub(crate) exits: FindExits,
    /// The address behind the stack check of a function of Go.
    pub(crate) behind_stack_check: fn(&DebugFile, u64) -> u64,
    /// What code at an address refers to, in a number of instructions.
    pub(crate) references: fn(&[u8], u64, usize) -> Vec<Reference>,
    /// What code at an address stores in memory at constant distances from registers, up to its first branch, or call of
    /// a function that is not among some.
    pub(crate) frame_stores: FindStores,
    /// The first instruction in code at an address that leaves the stack or the program, and what it does.
    pub(crate) hazard: FindHazard,
    /// Sections with stubs of the linkage table, and the size of a stub in bytes.
    pub(crate) stubs: &'static [(&'static str, usize)],
    /// The slot that the stub at an offset of a section at an address jumps through.
    pub(crate) stub_slot: fn(u64, &[u8], usize) -> Option<u64>,
}

/// An instruction, as far as ways through code depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) address: u64,
    /// The address behind it.
    pub(crate) next: u64,
    pub(crate) control: Control,
    pub(crate) nop: bool,
    /// Whether it calculates with all elements of vector registers.
    pub(crate) packed: bool,
}

/// What is executed after an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    Next,
    /// A function, if it is known, and then the next one.
    Call(Option<u64>),
    /// The next one or another one.
    Branch(u64),
    /// The next one; if a transaction fails another one.
    Transaction(u64),
    Jump(u64),
    /// One at a computed address.
    Computed,
    /// None that is known: it returns, or enters the kernel.
    Stop,
    /// These bytes are no instruction.
    Invalid,
}

impl Control {
    /// The address that the instruction names.
    pub(crate) fn target(self) -> Option<u64> {
        match self {
            Control::Call(to) => to,
            Control::Branch(to) | Control::Transaction(to) | Control::Jump(to) => Some(to),
            Control::Next | Control::Computed | Control::Stop | Control::Invalid => None,
        }
    }
}

/// An instruction under a breakpoint.
pub(crate) struct ProbedInstruction {
    pub(crate) instruction: Instruction,
    pub(crate) verdict: Verdict,
    /// Whether it changes only registers that handlers cannot read.
    pub(crate) leaves_arguments: bool,
    pub(crate) name: String,
}

/// What an instruction stores.
pub(crate) struct FrameStore {
    pub(crate) address: u64,
    /// The address behind the instruction.
    pub(crate) next: u64,
    /// DWARF's number of the register.
    pub(crate) register: u16,
    /// Distance of the first byte from the register.
    pub(crate) offset: i64,
    /// Number of bytes.
    pub(crate) size: i64,
}

/// What an instruction refers to.
pub(crate) enum Reference {
    /// It takes this address.
    Address(u64),
    /// It loads the word at this address.
    Word(u64),
    /// It calls or jumps to this address.
    Code(u64),
}
