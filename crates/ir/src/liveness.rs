//! Which registers hold a value that is still read, at the borders of each block.
//!
//! A register is live at the end of a block when some way from there reads it before writing
//! it. Every block with a `catch` can leave for it before any of its instructions, so what is
//! live at the start of the catch block is live all through the block.

use crate::*;

/// A set of registers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RegSet(Vec<u64>);

impl RegSet {
    /// An empty set with room for `n` registers.
    pub fn new(n: usize) -> RegSet {
        RegSet(vec![0; n.div_ceil(64)])
    }

    /// Whether it is in the set.
    pub fn contains(&self, r: Reg) -> bool {
        self.0
            .get(r.index() / 64)
            .is_some_and(|w| w >> (r.0 % 64) & 1 != 0)
    }

    /// Adds one.
    pub fn insert(&mut self, r: Reg) {
        if let Some(w) = self.0.get_mut(r.index() / 64) {
            *w |= 1 << (r.0 % 64);
        }
    }

    /// Takes one out.
    pub fn remove(&mut self, r: Reg) {
        if let Some(w) = self.0.get_mut(r.index() / 64) {
            *w &= !(1 << (r.0 % 64));
        }
    }

    /// Adds all of another; tells whether that changed anything.
    pub fn union(&mut self, other: &RegSet) -> bool {
        let mut changed = false;
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            changed |= *b & !*a != 0;
            *a |= b;
        }
        changed
    }

    /// The registers in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Reg> + '_ {
        self.0.iter().enumerate().flat_map(|(i, w)| {
            (0..64)
                .filter(move |b| w >> b & 1 != 0)
                .map(move |b| Reg(i as u32 * 64 + b))
        })
    }
}

/// The live registers of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Liveness {
    ins: Vec<RegSet>,
    outs: Vec<RegSet>,
}

impl Liveness {
    /// Computes it.
    pub fn of(body: &Body) -> Liveness {
        let empty = RegSet::new(body.regs.len());
        let n = body.blocks.len();
        let mut live = Liveness {
            ins: vec![empty.clone(); n],
            outs: vec![empty.clone(); n],
        };
        let mut changed = true;
        while changed {
            changed = false;
            for (i, block) in body.blocks.iter().enumerate().rev() {
                let mut out = empty.clone();
                for s in block.successors() {
                    if let Some(set) = live.ins.get(s.index()) {
                        out.union(set);
                    }
                }
                // What the terminator fetches is live-in of its targets, but not before it.
                let mut set = out.clone();
                live.outs[i] = out;
                live.step_term(block, &mut set);
                for (inst, _) in block.insts.iter().rev() {
                    live.step(block, inst, &mut set);
                }
                changed |= live.ins[i].union(&set);
            }
        }
        live
    }

    /// Goes back over a block's terminator: from what is live after it to before it.
    pub fn step_term(&self, block: &Block, set: &mut RegSet) {
        if let Term::IterNext { done, .. } = block.term {
            // Only the way to the body writes the registers.
            block.term.for_each_dst(|r| set.remove(r));
            if let Some(ins) = self.ins.get(done.index()) {
                set.union(ins);
            }
        }
        block.term.for_each_use(|v| insert(set, v));
        self.keep_for_catch(block, set);
    }

    /// Goes back over an instruction of a block: from what is live after it to before it.
    pub fn step(&self, block: &Block, inst: &Inst, set: &mut RegSet) {
        if let Some(dst) = inst.dst() {
            set.remove(dst);
        }
        inst.for_each_use(|v| insert(set, v));
        self.keep_for_catch(block, set);
    }

    fn keep_for_catch(&self, block: &Block, set: &mut RegSet) {
        if let Some(c) = block.catch.and_then(|c| self.ins.get(c.index())) {
            set.union(c);
        }
    }

    /// The registers live before a block.
    pub fn live_in(&self, b: BlockId) -> impl Iterator<Item = Reg> + '_ {
        self.ins.get(b.index()).into_iter().flat_map(RegSet::iter)
    }

    /// The set of registers live before a block, as [`Liveness::live_in`].
    pub fn live_in_set(&self, b: BlockId) -> Option<&RegSet> {
        self.ins.get(b.index())
    }

    /// The set of registers live after a block: in some target or in its catch block. What an
    /// `IterNext` writes is in it when its body reads it.
    pub fn live_out_set(&self, b: BlockId) -> Option<&RegSet> {
        self.outs.get(b.index())
    }
}

fn insert(set: &mut RegSet, v: Val) {
    if let Val::Reg(r) = v {
        set.insert(r);
    }
}
