//! The descendants of the session's target process, as one bit for each process number.
//!
//! A program at `sched_process_fork` gives every new process its parent's bit. The bits are
//! therefore correct for reused numbers, need no removal, and miss no process, even if its
//! ancestors have ended. The program runs whether or not handlers may. The loader sets the bits of
//! the target and of its existing descendants.

use crate::isa::asm::{Asm, Label, Section};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, AtomicOp, Cond, Reg, Size};
use crate::layout::{Attach, ProgramInfo, TREE_BYTES};
use crate::object::elf::ProgramSpec;
use crate::target::KernelOffsets;

/// The tracepoint; its arguments are the tasks of the parent, which is the current task, and of the
/// child.
const FORK: &str = "sched_process_fork";

/// The program that keeps the bits at `at` of the shared block.
///
/// # Errors
/// The reason, where the kernel does not tell how its tasks look.
pub(crate) fn fork_tracker(
    at: u32,
    offsets: &KernelOffsets,
) -> Result<(ProgramSpec, ProgramInfo), String> {
    let tgid = offsets.task_tgid.and_then(|o| i32::try_from(o).ok());
    let tgid = tgid.ok_or("children of the target cannot be followed on this kernel")?;
    let name = "p_tree";
    let mut asm = Asm::new(name, &["ctx"]);
    let [clear, out] = std::array::from_fn(|_| asm.label());
    asm.load(Size::DW, R6, R1, 8);
    asm.call(Helper::GetCurrentPidTgid);
    asm.mov(R7, R0);
    asm.alu(AluOp::Rsh, R7, 32);
    asm.mov(R3, R6);
    asm.add(R3, tgid);
    asm.mov(R1, R10);
    asm.add(R1, -8);
    asm.mov(R2, 4);
    asm.call(Helper::ProbeReadKernel);
    asm.load(Size::W, R6, R10, -8);
    // A new thread, not a process.
    asm.jump_if(Cond::Eq, R6, R7, out);
    asm.mov(R0, R7);
    bit(&mut asm, at);
    asm.mov(R7, R0);
    asm.mov(R0, R6);
    word(&mut asm, at, R0, R2);
    asm.alu(AluOp::And, R6, 63);
    asm.mov(R3, 1);
    asm.alu(AluOp::Lsh, R3, R6);
    asm.jump_if(Cond::Eq, R7, 0, clear);
    asm.atomic(AtomicOp::Or, R2, 0, R3);
    asm.jump(out);
    asm.bind(clear);
    asm.alu(AluOp::Xor, R3, -1);
    asm.atomic(AtomicOp::And, R2, 0, R3);
    asm.bind(out);
    asm.mov(R0, 0);
    asm.exit();
    let function = asm.finish().map_err(|e| e.to_string())?;
    let spec = ProgramSpec {
        section: format!("raw_tp/{FORK}"),
        function,
    };
    let info = ProgramInfo {
        name: name.into(),
        attach: Attach::RawTracepoint(vec![FORK.into()]),
        handlers: Vec::new(),
        idle: false,
    };
    Ok((spec, info))
}

/// Goes to `out` in processes that do not descend from the target.
pub(crate) fn only_within(asm: &mut Asm, at: u32, out: Label) {
    asm.call(Helper::GetCurrentPidTgid);
    asm.alu(AluOp::Rsh, R0, 32);
    bit(asm, at);
    asm.jump_if(Cond::Eq, R0, 0, out);
}

/// `r0` = the bit of process number `r0`. Clobbers `r1` and `r2`.
fn bit(asm: &mut Asm, at: u32) {
    asm.mov(R1, R0);
    word(asm, at, R0, R2);
    asm.load(Size::DW, R0, R2, 0);
    asm.alu(AluOp::And, R1, 63);
    asm.alu(AluOp::Rsh, R0, R1);
    asm.alu(AluOp::And, R0, 1);
}

/// `to` = address of the word with the bit of process `number`; `number` becomes the bit's offset.
pub(crate) fn word(asm: &mut Asm, at: u32, number: Reg, to: Reg) {
    asm.alu(AluOp::Rsh, number, 3);
    asm.alu(AluOp::And, number, (TREE_BYTES - 8) as i32);
    asm.ld_data(to, Section::Bss, at);
    asm.add(to, number);
}
