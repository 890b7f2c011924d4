//! The part of a handler's stack that has fixed slots, the register of the per-CPU area, and limits
//! of the code generator.

use spile_ebpf::isa::asm::CallArg;
use spile_ebpf::isa::insn::Reg;

/// The address of this CPU's area while a handler's body runs.
pub(crate) const BLOCK: Reg = Reg::R7;

/// The address of an offset of this CPU's area.
pub(crate) fn block_at(off: u32) -> CallArg {
    CallArg::At(BLOCK, off.cast_signed())
}

/// Stack slot of the context.
pub(crate) const CTX: i16 = -8;
/// Stack slot of the generation, 0 or 1.
pub(crate) const GEN: i16 = -16;
/// Stack slot of the system call's number.
pub(crate) const NR: i16 = -24;
/// The slots whose values a program passes to the functions of its handlers: the context, and the system
/// call's number where they use it.
pub(crate) fn passed(number: bool) -> impl Iterator<Item = i16> {
    [Some(CTX), number.then_some(NR)].into_iter().flatten()
}
/// Scratch stack slots.
pub(crate) const TMP: [i16; 5] = [-32, -40, -48, -56, -64];
/// Stack slot of the current task, where the handler saves it.
pub(crate) const TASK: i16 = -72;
/// Stack slots of the addresses of thread records, below those of numbers.
pub(crate) const THREAD_RECORDS: [i16; spile_ir::storage::ThreadIdRegs::COUNT] = [-248, -256];
/// Stack slot of the verdict on a packet, for handlers that decide. A hit that is turned away
/// leaves the earlier verdict.
pub(crate) const VERDICT: i16 = -264;
/// Displacements below this limit fit in an instruction.
pub(crate) const REACH: u32 = 32_000;
/// Loops over at most this number of words are unrolled without an early exit.
pub(crate) const UNROLL: u32 = 16;
