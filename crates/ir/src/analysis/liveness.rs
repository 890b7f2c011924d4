//! Liveness: the registers whose value is still read, at the borders of each block.
//!
//! A register is live at the end of a block when some path from there reads it before writing it.
//! Registers live at the start of a block's catch block are live all through the block (the rule
//! for catch blocks of [`dataflow`]).

use spile_cast::Cast;

use super::dataflow::{self, Lattice};
use crate::*;

/// A set of registers.
#[derive(Debug, PartialEq, Eq)]
pub struct RegSet(Vec<u64>);

impl RegSet {
    /// An empty set with space for `n` registers.
    pub fn new(n: usize) -> RegSet {
        RegSet(vec![0; n.div_ceil(64)])
    }

    /// Whether it is in the set.
    pub fn contains(&self, r: Reg) -> bool {
        self.0
            .get(r.index() / 64)
            .is_some_and(|w| w >> (r.0 % 64) & 1 != 0)
    }

    /// Adds a register.
    pub fn insert(&mut self, r: Reg) {
        if let Some(w) = self.0.get_mut(r.index() / 64) {
            *w |= 1 << (r.0 % 64);
        }
    }

    /// Removes a register.
    pub fn remove(&mut self, r: Reg) {
        if let Some(w) = self.0.get_mut(r.index() / 64) {
            *w &= !(1 << (r.0 % 64));
        }
    }

    /// The registers in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Reg> + '_ {
        self.0.iter().enumerate().flat_map(|(i, w)| {
            let rest = |w: &u64| Some(w & (w - 1)).filter(|w| *w != 0);
            let bits = std::iter::successors(Some(*w).filter(|w| *w != 0), rest);
            bits.map(move |w| Reg(i.fit::<u32>() * 64 + w.trailing_zeros()))
        })
    }
}

impl Clone for RegSet {
    fn clone(&self) -> RegSet {
        RegSet(self.0.clone())
    }

    fn clone_from(&mut self, from: &RegSet) {
        self.0.clone_from(&from.0);
    }
}

impl Lattice for RegSet {
    /// Adds all registers of another set.
    fn join(&mut self, other: &RegSet) -> bool {
        let mut new = 0;
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            new |= b & !*a;
            *a |= b;
        }
        new != 0
    }
}

/// The live registers of a body: for each block, those live at its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Liveness(Vec<RegSet>);

impl Liveness {
    /// Computes the liveness of a body.
    pub fn new(body: &Body) -> Liveness {
        let analysis = LiveAnalysis {
            body,
            effects: effects(body),
        };
        Liveness(dataflow::backward(body, &analysis))
    }

    /// The sets of registers live before a block; empty if there is no such block.
    fn start(&self, b: BlockId) -> impl Iterator<Item = &RegSet> {
        self.0.get(b.index()).into_iter()
    }

    /// Steps backwards over a block's terminator, from [`Liveness::live_out`] to the registers live
    /// before it.
    pub fn step_term(&self, block: &Block, set: &mut RegSet) {
        if let Term::IterNext { done, .. } = block.term {
            // The loop body reads the fetched registers, but only the path to it writes them.
            block.term.for_each_dst(|r| set.remove(r));
            self.start(done).for_each(|s| _ = set.join(s));
        }
        block.term.for_each_use(|v| insert(set, v));
        self.keep_for_catch(block, set);
    }

    /// Steps backwards over an instruction of a block, from the registers live after it to those
    /// live before it.
    pub fn step(&self, block: &Block, inst: &Inst, set: &mut RegSet) {
        if let Some(dst) = inst.dst() {
            set.remove(dst);
        }
        inst.for_each_use(|v| insert(set, v));
        self.keep_for_catch(block, set);
    }

    fn keep_for_catch(&self, block: &Block, set: &mut RegSet) {
        let catch = block.catch.into_iter();
        catch
            .flat_map(|c| self.start(c))
            .for_each(|s| _ = set.join(s));
    }

    /// The registers live before a block.
    pub fn live_in(&self, b: BlockId) -> impl Iterator<Item = Reg> + '_ {
        self.start(b).flat_map(RegSet::iter)
    }

    /// The registers live after a block of the body: in some target or in its catch block.
    /// Registers that an `IterNext` writes are included if its body reads them.
    pub fn live_out(&self, block: &Block) -> RegSet {
        let mut live: Option<RegSet> = None;
        for start in block.successors().flat_map(|to| self.start(to)) {
            match &mut live {
                Some(live) => _ = live.join(start),
                none => *none = Some(start.clone()),
            }
        }
        let empty = || RegSet(vec![0; self.0.first().map_or(0, |set| set.0.len())]);
        live.unwrap_or_else(empty)
    }
}

/// The effects of all blocks on the registers live after them, one block behind the other. Each pair has
/// one bit for a register in both words. The first word marks registers whose value at the block's start
/// is read. The second word marks registers that the block's instructions write.
fn effects(body: &Body) -> Vec<(u64, u64)> {
    let [mut read, mut written] = [(); 2].map(|()| RegSet::new(body.regs.len()));
    let mut words = Vec::with_capacity(read.0.len() * body.blocks.len());
    for block in &body.blocks {
        read.0.fill(0);
        written.0.fill(0);
        block.term.for_each_use(|v| insert(&mut read, v));
        for (inst, _) in block.insts.iter().rev() {
            if let Some(dst) = inst.dst() {
                written.insert(dst);
                read.remove(dst);
            }
            inst.for_each_use(|v| insert(&mut read, v));
        }
        words.extend(read.0.iter().copied().zip(written.0.iter().copied()));
    }
    words
}

struct LiveAnalysis<'a> {
    body: &'a Body,
    /// See [`effects`].
    effects: Vec<(u64, u64)>,
}

impl dataflow::Backward for LiveAnalysis<'_> {
    type Fact = RegSet;

    fn end_fact(&self) -> RegSet {
        RegSet::new(self.body.regs.len())
    }

    fn jump(&self, id: BlockId, to: BlockId, start: &RegSet, end: &mut RegSet) {
        match &self.body.blocks[id.index()].term {
            // Only the path to the loop body writes the registers.
            term @ Term::IterNext { body, done, .. } if *body == to && *done != to => {
                let mut start = start.clone();
                term.for_each_dst(|r| start.remove(r));
                end.join(&start);
            }
            _ => _ = end.join(start),
        }
    }

    fn block(&self, id: BlockId, fact: &mut RegSet) {
        let words = fact.0.len();
        let effects = &self.effects[id.index() * words..][..words];
        for (live, (read, written)) in fact.0.iter_mut().zip(effects) {
            *live = *live & !written | read;
        }
    }
}

fn insert(set: &mut RegSet, v: Val) {
    if let Val::Reg(r) = v {
        set.insert(r);
    }
}
