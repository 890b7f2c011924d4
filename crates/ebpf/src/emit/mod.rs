//! LIR to eBPF: the registers of each value, and the instructions.
//!
//! ```text
//! lir::Module ──repeat, counted──► no bounds ──prepare──► constants at their uses ──select──► machine
//!   instructions over values ──allocate (regalloc2)──► registers, moves, spills ──code──► Function
//! ```
//! In: a verified module, and where its constants and the processors' blocks lie. Out: a function of
//! the assembler for each function, and for each loop. Functions of the run-time
//! library are made this way.
//!
//! - *Registers*. r0 to r9 are allocated. Calls have their arguments in r1 to r5 and their result in
//!   r0, and clobber r0 to r5; what lives longer is in r6 to r9 or spilled. r10 is the frame.
//! - *Frame*. Stack slots of the function, then the word of `opaque`, then spilled values.
//! - *Constants* and addresses of locations are made again in front of their uses: one or two
//!   instructions instead of a register. Small constants become immediates.
//! - *Kernels*. Sign extension is two shifts and a swap is `be`, which all kernels have. Signed
//!   division needs Linux 6.6.
//!
//! Not done here: spills to the per-CPU area. A function that needs more than the 512 bytes of a
//! frame is an error.
//!
//! | module | its one job |
//! |---|---|
//! | `prepare` | expands the per-CPU area, makes constants at their uses |
//! | `select` | machine instructions, with the registers that they demand |
//! | `copies` | no copies without use, after allocation |
//! | `code` | the assembler's instructions, after allocation |

mod code;
mod copies;
mod prepare;
mod select;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;

use regalloc2::{
    Algorithm, Ctx, MachineEnv, PReg, PRegSet, RegAllocError, RegClass, RegallocOptions,
};
use rustc_hash::FxHashMap;
use spile_cast::Cast;
use spile_lir::verify::HostLimits;
use spile_lir::{LirFunc, Module, counted, library, repeat};

pub use self::code::symbol;
use crate::isa::asm::{AsmError, AsmFunction};

/// The kernel's limits: bytes of a frame, registers with arguments, `BPF_MAX_LOOPS`.
pub const LIMITS: HostLimits = HostLimits {
    stack: 512,
    params: 5,
    iterations: 1 << 23,
};

const _: () = assert!(library::NO_BOUND <= LIMITS.iterations);

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
pub struct ObjectSymbols {
    /// Offsets of the module's data in `.rodata`.
    pub data: FxHashMap<String, u32>,
    /// The processors' blocks, if there are any.
    pub cpu_blocks: Option<CpuBlocks>,
    /// Functions of the kernel that the module declares, with their ids in the kernel's BTF.
    pub kfuncs: FxHashMap<String, u32>,
    /// Whether the kernel stops open loops itself (`may_goto`, Linux 6.9).
    pub may_goto: bool,
}

/// The reasons why a function cannot be emitted.
#[derive(Debug, Clone)]
pub enum EmitError {
    /// A loop cannot become a callback.
    Loop(String),
    /// The object lacks a location that the function refers to: function, location.
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
            EmitError::Missing(function, location) => {
                write!(f, "@{function}: there is no {location}")
            }
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
const PARALLEL: usize = 4;

/// Emits the functions of a verified module, in its order, each with those of its loops behind.
///
/// # Errors
/// A location that the object lacks, a frame that is too large, or an error of an allocator or assembler.
pub fn emit(module: &Module, around: &ObjectSymbols) -> Result<Vec<AsmFunction>, EmitError> {
    let jobs: Vec<_> = module.funcs.iter().map(|f| (f, around)).collect();
    emit_all(&jobs)
}

/// Emits functions as [`emit`] does, each with the object around it.
///
/// # Errors
/// As [`emit`].
pub fn emit_all(jobs: &[(&LirFunc, &ObjectSymbols)]) -> Result<Vec<AsmFunction>, EmitError> {
    // No function depends on the code of another one, so two processors share the work.
    let taken = AtomicUsize::new(0);
    let work = || {
        let mut done: Vec<(usize, Vec<AsmFunction>)> = Vec::new();
        let mut memory = Ctx::default();
        loop {
            let job = taken.fetch_add(1, Ordering::Relaxed);
            let Some((func, around)) = jobs.get(job) else {
                return Ok::<_, EmitError>(done);
            };
            done.push((job, with_loops(func, around, &mut memory)?));
        }
    };
    let mut done = if jobs.len() < PARALLEL {
        work()?
    } else {
        let (one, other) = std::thread::scope(|scope| {
            // Without another thread, this one does all of the work.
            let other = std::thread::Builder::new().spawn_scoped(scope, work).ok();
            let one = work();
            let join = |thread: ScopedJoinHandle<'_, _>| thread.join();
            (one, other.map(join))
        });
        let mut done = one?;
        if let Some(other) = other {
            done.extend(other.unwrap_or_else(|e| std::panic::resume_unwind(e))?);
        }
        done
    };
    done.sort_unstable_by_key(|(job, _)| *job);
    Ok(done
        .into_iter()
        .flat_map(|(_, functions)| functions)
        .collect())
}

/// Emits a function, and those of its loops, with memory that the allocator uses again.
fn with_loops(
    func: &LirFunc,
    around: &ObjectSymbols,
    memory: &mut Ctx,
) -> Result<Vec<AsmFunction>, EmitError> {
    let mut module = Module::from(func.clone());
    repeat::outline(&mut module, &LIMITS).map_err(EmitError::Loop)?;
    module.funcs.iter_mut().for_each(match around.may_goto {
        true => counted::count_closed,
        false => counted::count,
    });
    let registers = environment(CLOBBERED..10);
    let mut emit = |f| allocated(f, around, &registers, memory).map(|(code, _)| code);
    module.funcs.into_iter().map(&mut emit).collect()
}

/// Emits a function whose code is inserted instead of calls ([`Asm::insert`]). It has no loop and no
/// stack, and uses r0 to r5 only.
///
/// # Errors
/// Those of [`emit`]; a function that needs more registers.
///
/// [`Asm::insert`]: crate::isa::asm::Asm::insert
pub fn emit_inline(func: &LirFunc) -> Result<AsmFunction, EmitError> {
    let around = ObjectSymbols::default();
    let registers = environment(CLOBBERED..CLOBBERED);
    let (code, frame) = allocated(func.clone(), &around, &registers, &mut Ctx::default())?;
    match frame {
        0 => Ok(code),
        bytes => Err(EmitError::Frame(func.name.clone(), bytes)),
    }
}

/// The code of a function, and the bytes of its frame.
fn allocated(
    func: LirFunc,
    around: &ObjectSymbols,
    registers: &MachineEnv,
    memory: &mut Ctx,
) -> Result<(AsmFunction, u32), EmitError> {
    let func = prepare::prepare(func, around)?;
    let selected = select::select(&func);
    let options = RegallocOptions {
        algorithm: Algorithm::Ion,
        ..RegallocOptions::default()
    };
    let output = regalloc2::run_with_ctx(&selected, registers, &options, memory)
        .map_err(|e| EmitError::Registers(func.name.clone(), e))?;
    let frame = selected.frame + 8 * output.num_spillslots.fit::<u32>();
    if frame > LIMITS.stack {
        return Err(EmitError::Frame(func.name.clone(), frame));
    }
    Ok((code::code(&func, &selected, output, around)?, frame))
}

/// Number of registers that a call clobbers.
const CLOBBERED: usize = 6;

/// The registers. A callee preserves r6 to r9 by pushing them, so these come second, as far as a function
/// may use them.
fn environment(preserved: std::ops::Range<usize>) -> MachineEnv {
    let set = |range: std::ops::Range<usize>| -> PRegSet {
        range.map(|n| PReg::new(n, RegClass::Int)).collect()
    };
    let none = PRegSet::empty();
    MachineEnv {
        preferred_regs_by_class: [set(0..CLOBBERED), none, none],
        non_preferred_regs_by_class: [set(preserved), none, none],
        scratch_by_class: [None; 3],
        fixed_stack_slots: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use spile_lir::builder::build;
    use spile_lir::func::ConstantData;
    use spile_lir::library::{arguments, quote};
    use spile_lir::verify::verify;

    use super::*;
    use crate::isa::asm::Asm;
    use crate::isa::insn::Insn;
    use crate::prebuilt::samples::samples;

    #[test]
    fn the_library_keeps_the_limits() {
        let given = [quote::ESCAPES, arguments::NAMES].map(|name| ConstantData {
            name: name.into(),
            bytes: vec![0; 4096],
        });
        let mut functions = 0;
        for routine in samples() {
            let mut module = routine.module(&given);
            verify(&module, &LIMITS).unwrap_or_else(|e| panic!("{e}\n{module}"));
            repeat::outline(&mut module, &LIMITS).unwrap_or_else(|e| panic!("{e}"));
            verify(&module, &LIMITS).unwrap_or_else(|e| panic!("{e}\n{module}"));
            functions += module.funcs.len();
        }
        assert!(functions > 100, "{functions}");
    }

    #[test]
    fn inserted_code_goes_on_behind_itself() {
        let pick = build("pick", "", ["a", "b"], |f, p| {
            let [a, b] = p;
            f.ret_if(a.eq(0), 1);
            f.ret_if(a.eq(7), b);
            f.ret(a + b);
        });
        let code = emit_inline(&pick).expect("it needs few registers");
        let mut asm = Asm::new("program", &[]);
        asm.insert(&code);
        asm.insert(&code);
        asm.exit();
        let program = asm.finish().expect("all jumps have targets");
        let exits = |f: &AsmFunction| f.insns.iter().filter(|i| **i == Insn::Exit {}).count();
        assert_eq!((exits(&code), exits(&program)), (3, 1));
        // The last return of each copy is no instruction.
        assert_eq!(program.slots(), 2 * (code.slots() - 1) + 1);
    }

    #[test]
    fn inserted_code_has_no_frame() {
        let func = build("spills", "", ["a"], |f, p| {
            let [a] = p;
            let words = [0; 9].map(|_| a.load_u64(0));
            words.iter().for_each(|w| a.store_u64(0, *w));
            let sum = words.into_iter().reduce(|sum, w| sum + w);
            f.ret(sum.unwrap_or(f.constant(0)));
        });
        assert!(matches!(emit_inline(&func), Err(EmitError::Frame(..))));
    }
}
