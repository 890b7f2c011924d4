//! LIR to eBPF: the registers of each value, and the instructions.
//!
//! ```text
//! lir::Module ──repeat──► no loops ──prepare──► constants at their uses ──select──► machine
//!   instructions over values ──allocate (regalloc2)──► registers, moves, spills ──code──► Function
//! ```
//! In: a verified module, and where its constants and the processors' blocks lie. Out: a function of
//! the assembler for each function, and for each loop. Functions of the run-time
//! library are made this way ([`crate::lower`] still writes its own registers by hand).
//!
//! - *Registers*. r0 to r9 are allocated. Calls have their arguments in r1 to r5 and their result in
//!   r0, and clobber r0 to r5; what lives longer is in r6 to r9 or spilled. r10 is the frame.
//! - *Frame*. Stack slots of the function, then the word of `opaque`, then spilled values.
//! - *Constants* and addresses of places are made again in front of their uses: one or two
//!   instructions instead of a register. Small constants become immediates.
//! - *Kernels*. Sign extension is two shifts and a swap is `be`, which all kernels have. Signed
//!   division needs Linux 6.6.
//!
//! Not done here: spills to the processor's block. A function that needs more than the 512 bytes of a
//! frame is an error.
//!
//! | module | its one job |
//! |---|---|
//! | `prepare` | expands the processor's block, makes constants at their uses |
//! | `select` | machine instructions, with the registers that they demand |
//! | `copies` | no copies without use, after allocation |
//! | `code` | the assembler's instructions, after allocation |

mod code;
mod copies;
mod prepare;
mod select;

use std::collections::HashMap;
use std::fmt;

use regalloc2::{Algorithm, MachineEnv, PReg, PRegSet, RegAllocError, RegClass, RegallocOptions};
use spile_lir::{Func, Module, repeat};

use crate::isa::asm::{AsmError, Function};

/// Where the processors' blocks lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuBlocks {
    /// Offset of the first one in the state memory.
    pub first: u32,
    /// Bytes of a block.
    pub stride: u32,
    /// Number of blocks.
    pub count: u32,
}

/// The object around the code.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Offsets of the module's data in `.rodata`.
    pub data: HashMap<String, u32>,
    /// The processors' blocks, if there are any.
    pub cpu_blocks: Option<CpuBlocks>,
}

/// The reasons why a function cannot be emitted.
#[derive(Debug, Clone)]
pub enum EmitError {
    /// A loop cannot become a callback.
    Loop(String),
    /// The object lacks a place that the function refers to: function, place.
    Missing(String, String),
    /// The frame is larger than 512 bytes: function, bytes.
    Frame(String, u32),
    /// An error of the register allocator: function, error.
    Registers(String, RegAllocError),
    /// An error of the assembler.
    Asm(AsmError),
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EmitError::Loop(message) => f.write_str(message),
            EmitError::Missing(function, place) => write!(f, "@{function}: there is no {place}"),
            EmitError::Frame(function, bytes) => {
                write!(f, "@{function}: a frame of {bytes} bytes")
            }
            EmitError::Registers(function, error) => write!(f, "@{function}: {error}"),
            EmitError::Asm(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for EmitError {}

/// Number of functions from which on two threads emit them.
const PARALLEL: usize = 6;

/// Emits the functions of a verified module, in its order, with those of loops behind.
///
/// # Errors A place that the object lacks, a frame that is too large, or an error of an allocator
/// or assembler.
pub fn emit(module: &Module, around: &Surroundings) -> Result<Vec<Function>, EmitError> {
    let mut module = module.clone();
    repeat::outline(&mut module).map_err(EmitError::Loop)?;
    let all = &*module.funcs;
    if all.len() < PARALLEL {
        return all.iter().map(|f| function(f, around)).collect();
    }
    // No function depends on the code of another one, so two processors share the work.
    let (first, second) = all.split_at(all.len() / 2);
    std::thread::scope(|scope| {
        let emit = |funcs: &[Func]| funcs.iter().map(|f| function(f, around)).collect();
        let other = scope.spawn(move || -> Result<Vec<Function>, EmitError> { emit(second) });
        let first: Result<Vec<Function>, EmitError> = emit(first);
        let second = other
            .join()
            .unwrap_or_else(|e| std::panic::resume_unwind(e));
        Ok([first?, second?].concat())
    })
}

fn function(func: &Func, around: &Surroundings) -> Result<Function, EmitError> {
    let func = prepare::prepare(func, around)?;
    let selected = select::select(&func);
    let options = RegallocOptions {
        algorithm: Algorithm::Ion,
        ..RegallocOptions::default()
    };
    let output = regalloc2::run(&selected, &environment(), &options)
        .map_err(|e| EmitError::Registers(func.name.clone(), e))?;
    code::code(&func, &selected, &output, around)
}

/// The registers. A callee preserves r6 to r9 by pushing them, so they come second.
fn environment() -> MachineEnv {
    let set = |range: std::ops::Range<usize>| -> PRegSet {
        range.map(|n| PReg::new(n, RegClass::Int)).collect()
    };
    let none = PRegSet::empty();
    MachineEnv {
        preferred_regs_by_class: [set(0..6), none, none],
        non_preferred_regs_by_class: [set(6..10), none, none],
        scratch_by_class: [None; 3],
        fixed_stack_slots: Vec::new(),
    }
}
