//! Fuses read-modify-write sequences: `a = g; b = a + c; g = b` becomes `a = (g += c); b = a + c`,
//! for scalars and for elements with the same keys. Only pure instructions that do not touch the
//! registers involved may stand between the three.

use crate::*;

/// Runs the pass.
pub fn run(program: &Program, body: &mut Body) {
    for block in &mut body.blocks {
        let mut i = 0;
        while i < block.insts.len() {
            if let Some((add, store)) = find(program, &block.insts[i..]) {
                rewrite(block, i, i + add, i + store);
            }
            i += 1;
        }
    }
}

/// The register, global and keys of a load.
fn load(inst: &Inst) -> Option<(Reg, GlobalId, &[Val])> {
    match inst {
        Inst::GLoad { dst, g } => Some((*dst, *g, &[])),
        Inst::AGet { dst, g, keys } => Some((*dst, *g, keys)),
        _ => None,
    }
}

/// The result register, and the value added to `a`.
fn addend(inst: &Inst, a: Reg) -> Option<(Reg, Val)> {
    let Inst::Bin {
        dst,
        op,
        a: x,
        b: y,
    } = inst
    else {
        return None;
    };
    match (op, x, y) {
        (BinOp::Add, Val::Reg(r), c) | (BinOp::Add, c, Val::Reg(r)) if *r == a => Some((*dst, *c)),
        (BinOp::Sub, Val::Reg(r), Val::Imm(n)) if *r == a => {
            Some((*dst, Val::Imm(n.wrapping_neg())))
        }
        _ => None,
    }
}

/// Positions of the addition and the store that belong to the load at position 0.
fn find(program: &Program, insts: &[(Inst, SiteId)]) -> Option<(usize, usize)> {
    let (a, g, keys) = load(&insts.first()?.0)?;
    let number = Some(Ty::Long);
    if program.kind(g)?.scalar() != number || keys.contains(&Val::Reg(a)) {
        return None;
    }
    let mut sum: Option<(usize, Reg, Val)> = None;
    for (k, (inst, _)) in insts.iter().enumerate().skip(1) {
        let stored = match inst {
            Inst::GStore { g: h, val } if *h == g => Some((*val, true)),
            Inst::ASet { g: h, keys: k, val } if *h == g => Some((*val, k[..] == *keys)),
            _ => None,
        };
        if let Some((val, same)) = stored {
            let (j, b, c) = sum?;
            let good = same && val == Val::Reg(b) && b != a && c != Val::Reg(a);
            return (good && !keys.contains(&Val::Reg(b))).then_some((j, k));
        }
        if !inst.pure_(program) {
            return None;
        }
        if sum.is_none()
            && let Some((b, c)) = addend(inst, a)
        {
            sum = Some((k, b, c));
            continue;
        }
        // Any other instruction must leave the registers alone.
        let (b, c) = sum.map_or((None, None), |(_, b, c)| (Some(b), Some(c)));
        let mut clash = false;
        inst.for_each_use(|v| clash |= v == Val::Reg(a) || b.is_some_and(|b| v == Val::Reg(b)));
        if let Some(dst) = inst.dst() {
            let v = Val::Reg(dst);
            clash |= dst == a || Some(dst) == b || Some(v) == c || keys.contains(&v);
        }
        if clash {
            return None;
        }
    }
    None
}

fn rewrite(block: &mut Block, load_at: usize, add_at: usize, store_at: usize) {
    let Some((a, _, _)) = load(&block.insts[load_at].0) else {
        return;
    };
    let Some((_, val)) = addend(&block.insts[add_at].0, a) else {
        return;
    };
    let add = block.insts[add_at].clone();
    let fused = match &block.insts[store_at].0 {
        Inst::ASet { g, keys, .. } => Inst::AAdd {
            g: *g,
            keys: keys.clone(),
            val,
            old: Some(a),
        },
        Inst::GStore { g, .. } => Inst::GAdd {
            g: *g,
            val,
            old: Some(a),
        },
        _ => return,
    };
    block.insts[store_at].0 = fused;
    block.insts.insert(store_at + 1, add);
    block.insts.remove(add_at);
    block.insts.remove(load_at);
}
