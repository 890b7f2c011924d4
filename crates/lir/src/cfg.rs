//! Control flow: predecessors, dominators, loops, liveness.
//!
//! A block is two *nodes*, because the edge of a loop's bound leaves a header in front of its
//! instructions: the entry, which has the parameters, and the body, which has the instructions.

use std::collections::BTreeSet;

use crate::func::{BlockId, LirFunc, Value};

/// A block's entry or body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CfgNode(usize);

impl CfgNode {
    /// The node of the parameters.
    pub fn entry(block: usize) -> CfgNode {
        CfgNode(2 * block)
    }

    /// The node of the instructions.
    pub fn body(block: usize) -> CfgNode {
        CfgNode(2 * block + 1)
    }

    /// The block.
    pub fn block(self) -> usize {
        self.0 / 2
    }
}

/// The control flow of a function whose targets exist.
#[derive(Debug)]
pub struct Cfg {
    preds: Vec<Vec<CfgNode>>,
    /// The location of each node in reverse post-order; none if it is unreachable.
    location: Vec<Option<usize>>,
    order: Vec<CfgNode>,
    /// The immediate dominator of each reachable node; of the first one itself.
    idom: Vec<CfgNode>,
}

fn successors(func: &LirFunc, node: CfgNode) -> Vec<CfgNode> {
    let Some(block) = func.blocks.get(node.block()) else {
        return Vec::new();
    };
    let entries = |b: &BlockId| CfgNode::entry(b.index());
    if node != CfgNode::entry(node.block()) {
        let targets = block.term.targets();
        return targets.iter().map(|t| entries(&t.block)).collect();
    }
    let mut to = vec![CfgNode::body(node.block())];
    to.extend(block.bound.iter().map(|b| entries(&b.exhausted.block)));
    to
}

impl Cfg {
    /// Analyses a function.
    pub fn new(func: &LirFunc) -> Cfg {
        let count = 2 * func.blocks.len();
        let succs: Vec<_> = (0..count).map(|n| successors(func, CfgNode(n))).collect();
        let mut preds = vec![Vec::new(); count];
        for (from, to) in succs.iter().enumerate() {
            for to in to.iter().filter(|t| t.0 < count) {
                preds[to.0].push(CfgNode(from));
            }
        }
        let mut cfg = Cfg {
            preds,
            location: vec![None; count],
            order: post_order(&succs),
            idom: (0..count).map(CfgNode).collect(),
        };
        cfg.order.reverse();
        for (i, node) in cfg.order.iter().enumerate() {
            cfg.location[node.0] = Some(i);
        }
        cfg.dominators();
        cfg
    }

    /// The algorithm of Cooper, Harvey and Kennedy ("A Simple, Fast Dominance Algorithm").
    fn dominators(&mut self) {
        let Some(first) = self.order.first().copied() else {
            return;
        };
        let mut reached = vec![false; self.preds.len()];
        reached[first.0] = true;
        let mut changed = true;
        while changed {
            changed = false;
            for i in 1..self.order.len() {
                let node = self.order[i];
                let preds = self.preds[node.0].iter().filter(|p| reached[p.0]);
                let new = preds.copied().reduce(|a, b| self.common(a, b));
                if let Some(new) = new
                    && (!reached[node.0] || self.idom[node.0] != new)
                {
                    self.idom[node.0] = new;
                    reached[node.0] = true;
                    changed = true;
                }
            }
        }
    }

    fn common(&self, mut a: CfgNode, mut b: CfgNode) -> CfgNode {
        while a != b {
            match self.location[a.0] > self.location[b.0] {
                true => a = self.idom[a.0],
                false => b = self.idom[b.0],
            }
        }
        a
    }

    /// Whether a block is reachable.
    pub fn reachable(&self, block: usize) -> bool {
        self.location.get(2 * block).copied().flatten().is_some()
    }

    /// Reachable blocks in reverse post-order.
    pub fn blocks(&self) -> impl DoubleEndedIterator<Item = usize> {
        let entries = self.order.iter().filter(|n| n.0 % 2 == 0);
        entries.map(|n| n.block())
    }

    /// Whether all paths to `b` lead through `a`.
    pub fn dominates(&self, a: CfgNode, mut b: CfgNode) -> bool {
        if self.location[a.0].is_none() || self.location[b.0].is_none() {
            return false;
        }
        loop {
            if a == b {
                return true;
            }
            let up = self.idom[b.0];
            if up == b {
                return false;
            }
            b = up;
        }
    }

    /// The nodes with an edge to a block's entry.
    pub fn preds(&self, block: usize) -> &[CfgNode] {
        &self.preds[2 * block]
    }

    /// The nodes with a jump back to a header.
    pub fn latches(&self, header: usize) -> impl Iterator<Item = CfgNode> {
        let entry = CfgNode::entry(header);
        let preds = self.preds[entry.0].iter().copied();
        preds.filter(move |from| self.dominates(entry, *from))
    }

    /// The nodes of a header's loop; empty if the block is no header. Only for reducible graphs.
    pub fn body(&self, header: usize) -> BTreeSet<CfgNode> {
        let mut work: Vec<CfgNode> = self.latches(header).collect();
        let mut nodes = BTreeSet::new();
        if work.is_empty() {
            return nodes;
        }
        nodes.insert(CfgNode::entry(header));
        while let Some(node) = work.pop() {
            if nodes.insert(node) {
                work.extend(
                    self.preds[node.0]
                        .iter()
                        .filter(|p| self.location[p.0].is_some()),
                );
            }
        }
        nodes
    }
}

/// For each block, the values that are live at its start, without its parameters.
pub fn live_in(func: &LirFunc) -> Vec<BTreeSet<Value>> {
    let mut live = vec![BTreeSet::new(); func.blocks.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for (i, block) in func.blocks.iter().enumerate().rev() {
            let mut now = BTreeSet::new();
            for target in block.term.targets() {
                now.extend(&target.args);
                now.extend(live.get(target.block.index()).into_iter().flatten());
            }
            block.term.for_each_use(|v| {
                now.insert(*v);
            });
            for inst in block.insts.iter().rev() {
                inst.dst().iter().for_each(|v| {
                    now.remove(v);
                });
                inst.for_each_use(|v| {
                    now.insert(*v);
                });
            }
            if let Some(bound) = &block.bound {
                now.extend(&bound.exhausted.args);
                now.extend(
                    live.get(bound.exhausted.block.index())
                        .into_iter()
                        .flatten(),
                );
            }
            block.params.iter().for_each(|v| {
                now.remove(v);
            });
            changed |= now != live[i];
            live[i] = now;
        }
    }
    live
}

fn post_order(succs: &[Vec<CfgNode>]) -> Vec<CfgNode> {
    let mut order = Vec::new();
    let mut seen = vec![false; succs.len()];
    let mut stack = Vec::new();
    if let Some(first) = seen.first_mut() {
        *first = true;
        stack.push((CfgNode(0), 0));
    }
    while let Some((node, next)) = stack.last_mut() {
        match succs[node.0].get(*next) {
            Some(to) => {
                *next += 1;
                if to.0 < seen.len() && !seen[to.0] {
                    seen[to.0] = true;
                    let to = *to;
                    stack.push((to, 0));
                }
            }
            None => {
                order.push(*node);
                stack.pop();
            }
        }
    }
    order
}
