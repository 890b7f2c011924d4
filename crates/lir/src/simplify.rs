//! Tidies a function: removes unreachable blocks, parameters that always get the same value, equal
//! returns, and values that nobody reads; constant parts of addresses become displacements.

use spile_cast::Cast;

use crate::cfg::Cfg;
use crate::func::{BlockId, JumpTarget, LirBlock, LirFunc, LirInst, LirTerm, Operand, Value};
use crate::op::{AluOp, Width};

/// Tidies a function. Its invariants hold afterwards if they hold before.
pub fn simplify(func: &mut LirFunc) {
    unreachable(func);
    no_loop(func);
    while drop_constant_params(func) || empty_jump(func) {}
    share_returns(func);
    same_targets(func);
    displacements(func);
    remove_unused(func);
    unreachable(func);
    compact(func);
}

/// Removes unreachable blocks.
fn unreachable(func: &mut LirFunc) {
    let mut keep = vec![false; func.blocks.len()];
    let mut work: Vec<usize> = (0..keep.len().min(1)).collect();
    while let Some(block) = work.pop() {
        if !std::mem::replace(&mut keep[block], true) {
            let edges = func.blocks[block].edges();
            work.extend(edges.iter().map(|t| t.block.index()));
        }
    }
    if keep.iter().all(|k| *k) {
        return;
    }
    let mut new = Vec::with_capacity(keep.len());
    let mut count = 0;
    for keep in &keep {
        new.push(BlockId(count));
        count += u32::from(*keep);
    }
    let mut keep = keep.into_iter();
    func.blocks.retain(|_| keep.next().unwrap_or(false));
    for target in func.blocks.iter_mut().flat_map(LirBlock::edges_mut) {
        target.block = new[target.block.index()];
    }
}

/// Removes the bounds of blocks to which no jump leads back.
fn no_loop(func: &mut LirFunc) {
    if func.blocks.iter().all(|b| b.bound.is_none()) {
        return;
    }
    let cfg = Cfg::new(func);
    for (i, block) in func.blocks.iter_mut().enumerate() {
        if cfg.latches(i).next().is_none() {
            block.bound = None;
        }
    }
    unreachable(func);
}

/// What the parameters of a block get, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Incoming {
    Nothing,
    One(Value),
    Several,
}

/// For each value, the values that it gets on the edges, if it is a parameter.
fn incoming(func: &LirFunc) -> Vec<Incoming> {
    let mut incoming = vec![Incoming::Nothing; func.values.len()];
    for target in func.blocks.iter().flat_map(LirBlock::edges) {
        let params = &func.blocks[target.block.index()].params;
        for (param, arg) in params.iter().zip(&target.args) {
            let known = &mut incoming[param.index()];
            *known = match *known {
                known if arg == param => known,
                Incoming::Nothing => Incoming::One(*arg),
                Incoming::One(one) if one == *arg => Incoming::One(one),
                _ => Incoming::Several,
            };
        }
    }
    incoming
}

/// Removes parameters that always get the same value. Returns whether there was one.
fn drop_constant_params(func: &mut LirFunc) -> bool {
    let incoming = incoming(func);
    if !incoming.iter().any(|g| matches!(g, Incoming::One(_))) {
        return false;
    }
    let stays: Vec<Vec<bool>> = func
        .blocks
        .iter()
        .map(|b| {
            let params = b.params.iter();
            params
                .map(|p| !matches!(incoming[p.index()], Incoming::One(_)))
                .collect()
        })
        .collect();
    let retain = |values: &mut Vec<Value>, block: usize| {
        let mut stays = stays[block].iter();
        values.retain(|_| stays.next().copied().unwrap_or(true));
    };
    // A parameter's value can be a parameter that goes, too.
    let swap = |v: &mut Value| {
        for _ in 0..incoming.len() {
            let Incoming::One(one) = incoming[v.index()] else {
                return;
            };
            *v = one;
        }
    };
    for (i, block) in func.blocks.iter_mut().enumerate() {
        retain(&mut block.params, i);
        for target in block.edges_mut() {
            retain(&mut target.args, target.block.index());
        }
        block.for_each_use_mut(swap);
    }
    true
}

/// Removes a parameter of a block and its arguments.
fn remove_param(func: &mut LirFunc, block: usize, index: usize) {
    func.blocks[block].params.remove(index);
    for target in func.blocks.iter_mut().flat_map(LirBlock::edges_mut) {
        if target.block.index() == block {
            target.args.remove(index);
        }
    }
}

/// Redirects jumps past blocks that only jump on. Returns whether there was one.
fn empty_jump(func: &mut LirFunc) -> bool {
    let past = |(i, b): (usize, &LirBlock)| {
        let empty = b.params.is_empty() && b.insts.is_empty() && b.bound.is_none();
        match &b.term {
            LirTerm::Jump(to) if i > 0 && empty && to.block.index() != i => Some(to.clone()),
            _ => None,
        }
    };
    let past: Vec<Option<JumpTarget>> = func.blocks.iter().enumerate().map(past).collect();
    let mut changed = false;
    for target in func.blocks.iter_mut().flat_map(LirBlock::edges_mut) {
        // Blocks that jump in a circle have no end.
        for _ in 0..past.len() {
            let Some(to) = &past[target.block.index()] else {
                break;
            };
            *target = to.clone();
            changed = true;
        }
    }
    if changed {
        unreachable(func);
    }
    changed
}

/// Sends branches to blocks that only return the same constant to the first one.
fn share_returns(func: &mut LirFunc) {
    let mut first: Vec<(i32, BlockId)> = Vec::new();
    let mut shared = |(i, block): (usize, &LirBlock)| {
        let LirTerm::Ret(Operand::Imm(n)) = block.term else {
            return None;
        };
        if i == 0 || !(block.params.is_empty() && block.insts.is_empty()) {
            return None;
        }
        let known = first.iter().find(|(returned, _)| *returned == n);
        let to = known.map(|(_, to)| *to);
        if to.is_none() {
            first.push((n, BlockId(i.fit())));
        }
        to
    };
    let shared: Vec<Option<BlockId>> = func.blocks.iter().enumerate().map(&mut shared).collect();
    for target in func.blocks.iter_mut().flat_map(LirBlock::edges_mut) {
        if let Some(to) = shared[target.block.index()] {
            target.block = to;
        }
    }
}

/// Replaces a branch whose targets are equal.
fn same_targets(func: &mut LirFunc) {
    for block in &mut func.blocks {
        if let LirTerm::Branch { then, els, .. } = &block.term
            && then == els
        {
            block.term = LirTerm::Jump(then.clone());
        }
    }
}

/// Makes the constants that are added to addresses part of the loads and stores.
fn displacements(func: &mut LirFunc) {
    let mut sums: Vec<Option<(Value, i32)>> = vec![None; func.values.len()];
    for inst in func.blocks.iter().flat_map(|b| &b.insts) {
        if let LirInst::Alu {
            dst,
            width: Width::W64,
            op: AluOp::Add,
            a,
            b: Operand::Imm(n),
        } = inst
        {
            sums[dst.index()] = Some((*a, *n));
        }
    }
    for inst in func.blocks.iter_mut().flat_map(|b| &mut b.insts) {
        if let LirInst::Load { base, off, .. }
        | LirInst::Store { base, off, .. }
        | LirInst::Atomic { base, off, .. } = inst
        {
            while let Some((a, n)) = sums[base.index()]
                && let Ok(sum) = i16::try_from(n.saturating_add((*off).into()))
            {
                (*base, *off) = (a, sum);
            }
        }
    }
}

fn has_effect(inst: &LirInst) -> bool {
    matches!(
        inst,
        LirInst::Store { .. }
            | LirInst::Atomic { .. }
            | LirInst::Helper { .. }
            | LirInst::Call { .. }
            | LirInst::Repeat { .. }
    )
}

/// Removes instructions without effect, and parameters, that nobody reads.
fn remove_unused(func: &mut LirFunc) {
    let mut work = Vec::new();
    // Each value with one that it is made of, sorted below.
    let mut made_of: Vec<(Value, Value)> = Vec::new();
    for block in &func.blocks {
        for inst in &block.insts {
            match inst.dst() {
                Some(dst) if !has_effect(inst) => inst.for_each_use(|v| made_of.push((dst, *v))),
                _ => inst.for_each_use(|v| work.push(*v)),
            }
        }
        block.term.for_each_use(|v| work.push(*v));
        for target in block.edges() {
            let params = &func.blocks[target.block.index()].params;
            made_of.extend(params.iter().copied().zip(target.args.iter().copied()));
        }
    }
    made_of.sort_unstable_by_key(|(v, _)| v.index());
    let mut read = vec![false; func.values.len()];
    while let Some(v) = work.pop() {
        if !std::mem::replace(&mut read[v.index()], true) {
            let first = made_of.partition_point(|(value, _)| value.index() < v.index());
            let from = made_of[first..].iter().take_while(|(value, _)| *value == v);
            work.extend(from.map(|(_, from)| *from));
        }
    }
    for i in 0..func.blocks.len() {
        let used = |inst: &LirInst| inst.dst().is_none_or(|v| read[v.index()]);
        func.blocks[i]
            .insts
            .retain(|inst| has_effect(inst) || used(inst));
        for index in (0..func.blocks[i].params.len()).rev() {
            if i > 0 && !read[func.blocks[i].params[index].index()] {
                remove_param(func, i, index);
            }
        }
    }
}

/// Removes the names of values that are gone, and numbers the rest in their order of definition.
fn compact(func: &mut LirFunc) {
    let mut new: Vec<Option<Value>> = vec![None; func.values.len()];
    let mut names = Vec::new();
    for block in &func.blocks {
        let insts = block.insts.iter().filter_map(LirInst::dst);
        for v in block.params.iter().copied().chain(insts) {
            new[v.index()] = Some(Value(names.len().fit()));
            names.push(std::mem::take(&mut func.values[v.index()]));
        }
    }
    func.values = names;
    let renumber = |v: &mut Value| {
        if let Some(n) = new[v.index()] {
            *v = n;
        }
    };
    for block in &mut func.blocks {
        block.params.iter_mut().for_each(renumber);
        let insts = block.insts.iter_mut();
        insts.filter_map(LirInst::dst_mut).for_each(renumber);
        block.for_each_use_mut(renumber);
    }
}
