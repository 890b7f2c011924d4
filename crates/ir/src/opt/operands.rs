//! Replaces operands that are part of the generated code by constants. In the script they can be
//! parameters of functions. Inlining turns these into copies, which this pass follows; it runs even
//! without optimisation.

use crate::*;

/// Runs the pass.
pub fn run(program: &mut Program) {
    program.bodies_mut().for_each(constant);
}

/// The single source that a register is copied from.
#[derive(Clone, Copy)]
enum Source {
    Nothing,
    One(Val),
    /// Several sources, or not a copy.
    Other,
}

fn constant(body: &mut Body) {
    let wants = |i: &Inst| matches!(i, Inst::Intr { f, .. } if f.wants_constant());
    if !body.insts().any(wants) {
        return;
    }
    let mut from = vec![Source::Nothing; body.regs.len()];
    let mut set = |dst: Reg, new: Source| {
        if let Some(source) = from.get_mut(dst.index()) {
            *source = match source {
                Source::Nothing => new,
                _ => Source::Other,
            };
        }
    };
    for inst in body.insts() {
        match inst {
            Inst::Copy { dst, src } => set(*dst, Source::One(*src)),
            _ => inst.dst().into_iter().for_each(|d| set(d, Source::Other)),
        }
    }
    for block in &body.blocks {
        block.term.for_each_dst(|d| set(d, Source::Other));
    }
    let resolve = |mut v: Val| {
        // A chain is no longer than the number of registers.
        for _ in 0..from.len() {
            v = match v {
                Val::Reg(r) => match from.get(r.index()) {
                    Some(Source::One(v)) => *v,
                    _ => return None,
                },
                Val::Imm(_) => return Some(v),
                Val::Str(_) => return None,
            };
        }
        None
    };
    for inst in body.insts_mut() {
        if wants(inst) {
            inst.uses_mut(|v| *v = resolve(*v).unwrap_or(*v));
        }
    }
}
