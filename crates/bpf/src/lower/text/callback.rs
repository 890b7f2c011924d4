//! The ends of callbacks of `bpf_loop`.

use crate::isa::asm::{Asm, Label};
use crate::isa::insn::Reg::*;

/// Ends a callback: 0 continues the loop, 1 stops it.
pub(in crate::lower) fn ends(asm: &mut Asm, go_on: Label, stop: Label) {
    asm.bind(go_on);
    asm.mov(R0, 0);
    asm.exit();
    asm.bind(stop);
    asm.mov(R0, 1);
    asm.exit();
}
