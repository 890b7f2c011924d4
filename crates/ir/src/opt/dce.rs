//! Dead code elimination: an instruction whose result nobody reads is removed if it has no effect;
//! otherwise it loses the result.

use crate::analysis::liveness::Liveness;
use crate::*;

/// Runs the pass.
pub fn run(program: &Program, body: &mut Body) {
    let live = Liveness::new(body);
    for i in 0..body.blocks.len() {
        let mut set = live.live_out(&body.blocks[i]);
        let mut insts = std::mem::take(&mut body.blocks[i].insts);
        let block = &body.blocks[i];
        live.step_term(block, &mut set);
        // Instructions that stay move to the end.
        let mut kept = insts.len();
        for index in (0..insts.len()).rev() {
            let inst = &mut insts[index].0;
            let dead = inst.dst().is_none_or(|r| !set.contains(r));
            let idle = matches!(inst, Inst::Copy { dst, src: Val::Reg(src) } if dst == src);
            if idle || dead && inst.removable(program) {
                continue;
            }
            if dead {
                forget_result(inst);
            }
            live.step(block, inst, &mut set);
            kept -= 1;
            insts.swap(index, kept);
        }
        insts.drain(..kept);
        body.blocks[i].insts = insts;
    }
}

fn forget_result(inst: &mut Inst) {
    if let Inst::GAdd { old: dst, .. }
    | Inst::AAdd { old: dst, .. }
    | Inst::Intr { dst, .. }
    | Inst::Call { dst, .. } = inst
    {
        *dst = None;
    }
}
