//! The end of callbacks of `bpf_loop`.

use crate::isa::asm::{Asm, Label};
use crate::isa::insn::Reg::*;

/// Ends a callback: returns 0, which continues the loop, or at `stop` 1, which ends it.
pub(in crate::lower) fn end(asm: &mut Asm, stop: Label) {
    asm.mov(R0, 0);
    asm.exit();
    asm.bind(stop);
    asm.mov(R0, 1);
    asm.exit();
}
