//! Instructions whose result nobody reads: dropped when they do nothing else, otherwise they
//! lose the result.

use crate::liveness::Liveness;
use crate::*;

/// Runs the pass.
pub fn run(program: &Program, body: &mut Body) {
    let live = Liveness::of(body);
    for i in 0..body.blocks.len() {
        let Some(mut set) = live.live_out_set(BlockId(i as u32)).cloned() else {
            continue;
        };
        let insts = std::mem::take(&mut body.blocks[i].insts);
        let block = &body.blocks[i];
        live.step_term(block, &mut set);
        let mut kept = Vec::with_capacity(insts.len());
        for (mut inst, site) in insts.into_iter().rev() {
            let dead = inst.dst().is_none_or(|r| !set.contains(r));
            let idle = matches!(inst, Inst::Copy { dst, src: Val::Reg(src) } if dst == src);
            if idle || dead && inst.removable(program) {
                continue;
            }
            if dead {
                forget_result(&mut inst);
            }
            live.step(block, &inst, &mut set);
            kept.push((inst, site));
        }
        kept.reverse();
        body.blocks[i].insts = kept;
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
