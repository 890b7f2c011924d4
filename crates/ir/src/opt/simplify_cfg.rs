//! Simplifies the control-flow graph: jumps over empty blocks, decided branches, merged chains of
//! blocks, unreachable blocks, and `catch` where nothing can fail.

use crate::*;

/// Runs the pass.
pub fn run(program: &Program, body: &mut Body) {
    for block in &mut body.blocks {
        if !block.insts.iter().any(|(i, _)| i.fallible(program)) {
            block.catch = None;
        }
    }
    skip_empty(body);
    for block in &mut body.blocks {
        if let Term::Branch { cond, then, els } = block.term {
            match cond {
                Val::Imm(n) => block.term = Term::Jump(if n != 0 { then } else { els }),
                _ if then == els => block.term = Term::Jump(then),
                _ => {}
            }
        }
    }
    drop_unreachable(body);
    merge(program, body);
    drop_unreachable(body);
}

/// Redirects jumps to an empty block that only jumps to that block's target.
fn skip_empty(body: &mut Body) {
    let next: Vec<Option<BlockId>> = body
        .blocks
        .iter()
        .map(|b| match b.term {
            Term::Jump(to) if b.insts.is_empty() => Some(to),
            _ => None,
        })
        .collect();
    for block in &mut body.blocks {
        let end = |b: &mut BlockId| {
            // A cycle of empty blocks has no end; stop after one round.
            for _ in 0..next.len() {
                match next.get(b.index()).copied().flatten() {
                    Some(to) => *b = to,
                    None => break,
                }
            }
        };
        block.term.targets_mut(end);
        block.catch.iter_mut().for_each(end);
    }
}

/// Merges a block into its only predecessor, where that has no other successor.
fn merge(program: &Program, body: &mut Body) {
    let fails = |b: &Block| b.insts.iter().any(|(i, _)| i.fallible(program));
    let mut count = vec![0usize; body.blocks.len()];
    for block in &body.blocks {
        for s in block.successors() {
            count[s.index()] += 1;
        }
    }
    for b in 0..body.blocks.len() {
        while let Term::Jump(to) = body.blocks[b].term {
            let (first, second) = (&body.blocks[b], &body.blocks[to.index()]);
            // A block that cannot fail may be in any `catch`.
            let same = first.catch == second.catch || !fails(first) || !fails(second);
            if to.index() == b || to.0 == 0 || count[to.index()] != 1 || !same {
                break;
            }
            let idle = Block {
                insts: Vec::new(),
                term: Term::Jump(to),
                catch: None,
            };
            let second = std::mem::replace(&mut body.blocks[to.index()], idle);
            // The emptied block leads to itself and is dropped as unreachable.
            count[to.index()] = 2;
            let first = &mut body.blocks[b];
            if !fails(first) {
                first.catch = second.catch;
            }
            first.insts.extend(second.insts);
            first.term = second.term;
        }
    }
}

fn drop_unreachable(body: &mut Body) {
    let mut seen = vec![false; body.blocks.len()];
    let mut stack = vec![BlockId(0)];
    while let Some(b) = stack.pop() {
        if b.index() < seen.len() && !std::mem::replace(&mut seen[b.index()], true) {
            stack.extend(body.blocks[b.index()].successors());
        }
    }
    let mut new_id = vec![BlockId(0); seen.len()];
    let mut next = 0;
    for (id, seen) in new_id.iter_mut().zip(&seen) {
        *id = BlockId(next);
        next += u32::from(*seen);
    }
    let mut i = 0;
    body.blocks.retain(|_| {
        i += 1;
        seen[i - 1]
    });
    for block in &mut body.blocks {
        block.term.targets_mut(|b| *b = new_id[b.index()]);
        block.catch.iter_mut().for_each(|b| *b = new_id[b.index()]);
    }
}
