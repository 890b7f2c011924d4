//! The descendants of the session's target process, as one bit for each process number.
//!
//! A program at `sched_process_fork` gives every new process its parent's bit. The bits are
//! therefore correct for reused numbers, need no removal, and miss no process, even if its
//! ancestors have ended. The program runs whether or not handlers may. The loader sets the bits of
//! the target and of its existing descendants.

use spile_ebpf::isa::asm::{Asm, CallArg, Label};
use spile_ebpf::isa::helpers::Helper as BpfHelper;
use spile_ebpf::isa::insn::{AluOp, AtomicOp as InsnAtomic, Cond, Reg, Size as Bytes};
use spile_layout::TREE_BYTES;
use spile_lir::LirFunc;
use spile_lir::builder::{Builder, Scalar, build};
use spile_lir::func::MemoryOperand;
use spile_lir::helpers::Helper;
use spile_lir::op::{AtomicOp, Size};

use crate::error::{LowerError, Res};
use crate::target::KernelOffsets;

/// Name of the program.
const PROGRAM: &str = "p_tree";

/// The program that keeps the bits at offset `table` of the shared area.
///
/// # Errors
/// The reason, where the kernel does not tell how its tasks look.
pub(crate) fn fork_tracker(table: u32, offsets: &KernelOffsets) -> Res<LirFunc> {
    let tgid = offsets.task_tgid.and_then(|o| i32::try_from(o).ok());
    let tgid = tgid.ok_or(LowerError::unsupported(
        "children of the target cannot be followed on this kernel",
    ))?;
    let contract = "\
Gives a new process the bit of its parent.
ctx: the tasks of the parent and of the child. New threads change nothing.";
    Ok(build(PROGRAM, contract, ["ctx"], |f, [ctx]| {
        let child = ctx.load_u64(8);
        let parent = f.helper(Helper::PidTgid, &[]) >> 32;
        let read = f.slot(8);
        f.helper(Helper::Read, &[read, f.number(4), child + tgid]);
        let process = read.load_bytes(Size::U32, 0);
        f.ret_if(process.eq(parent), 0);
        let [(parents, parent), (bits, bit)] =
            [parent, process].map(|number| location(f, table, number));
        let inside = parents.load_u64(0) & parent;
        f.if_else(
            inside.ne(0),
            || bits.atomic(AtomicOp::Or, 0, bit),
            || bits.atomic(AtomicOp::And, 0, bit ^ -1),
        );
    }))
}

/// The address of the word with a process's bit, and the bit.
pub(crate) fn location<'b>(
    f: &'b Builder,
    table: u32,
    process: Scalar<'b>,
) -> (Scalar<'b>, Scalar<'b>) {
    let offset = (process >> 3) & (TREE_BYTES - 8).cast_signed();
    let word = f.addr(MemoryOperand::State(table)) + offset;
    (word, f.constant(1) << (process & 63))
}

/// Goes to `out` in processes that do not descend from the target.
pub(crate) fn only_within(asm: &mut Asm, table: u32, out: Label) {
    let process = asm.call_with(BpfHelper::GetCurrentPidTgid, &[]);
    asm.alu(AluOp::Rsh, process, 32);
    let bit = bit(asm, table, process);
    asm.jump_if(Cond::Eq, bit, 0, out);
}

/// The bit of a process, by its number.
pub(crate) fn bit(asm: &mut Asm, table: u32, process: Reg) -> Reg {
    let word = word_of(asm, table, process);
    asm.load(Bytes::DW, word, word, 0);
    let location = asm.alu_of(AluOp::And, process, 63);
    asm.alu(AluOp::Rsh, word, location);
    asm.alu(AluOp::And, word, 1);
    word
}

/// Sets the bit of a process.
pub(crate) fn set_bit(asm: &mut Asm, table: u32, process: Reg) {
    let word = word_of(asm, table, process);
    let location = asm.alu_of(AluOp::And, process, 63);
    let bit = asm.alu_of(AluOp::Lsh, 1, location);
    asm.atomic(InsnAtomic::Or, word, 0, bit);
}

/// The address of the word with a process's bit.
fn word_of(asm: &mut Asm, table: u32, process: Reg) -> Reg {
    let offset = asm.alu_of(AluOp::Rsh, process, 3);
    asm.alu(AluOp::And, offset, TREE_BYTES - 8);
    let word = asm.address_of(&CallArg::Shared(table));
    asm.add(word, offset);
    word
}
