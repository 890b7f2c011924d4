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
        union(&mut self.0, &other.0)
    }

    /// The registers in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Reg> + '_ {
        registers(&self.0)
    }
}

/// The registers of a set as words, in ascending order.
fn registers(words: &[u64]) -> impl Iterator<Item = Reg> + '_ {
    words.iter().enumerate().flat_map(|(i, w)| {
        let rest = |w: &u64| Some(w & (w - 1)).filter(|w| *w != 0);
        let bits = std::iter::successors(Some(*w).filter(|w| *w != 0), rest);
        bits.map(move |w| Reg(i as u32 * 64 + w.trailing_zeros()))
    })
}

/// Adds all of a set to another, both as words; tells whether that changed anything.
fn union(to: &mut [u64], from: &[u64]) -> bool {
    let mut new = 0;
    for (a, b) in to.iter_mut().zip(from) {
        new |= b & !*a;
        *a |= b;
    }
    new != 0
}

/// A set of registers for each block, one behind the other.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sets {
    /// Words of a set.
    size: usize,
    words: Vec<u64>,
}

impl Sets {
    /// Empty ones.
    fn new(body: &Body) -> Sets {
        let size = body.regs.len().div_ceil(64);
        Sets {
            size,
            words: vec![0; size * body.blocks.len()],
        }
    }

    fn get(&self, block: usize) -> Option<&[u64]> {
        self.words.get(block * self.size..(block + 1) * self.size)
    }

    fn get_mut(&mut self, block: usize) -> &mut [u64] {
        &mut self.words[block * self.size..(block + 1) * self.size]
    }
}

/// The live registers of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Liveness {
    ins: Sets,
    outs: Sets,
}

impl Liveness {
    /// Computes it.
    pub fn of(body: &Body) -> Liveness {
        let (read, written) = effects(body);
        let mut live = Liveness {
            ins: Sets::new(body),
            outs: Sets::new(body),
        };
        let mut set = RegSet::new(body.regs.len());
        let mut changed = true;
        while changed {
            changed = false;
            for (i, block) in body.blocks.iter().enumerate().rev() {
                let out = live.outs.get_mut(i);
                for s in block.successors() {
                    union(out, live.ins.get(s.index()).unwrap_or_default());
                }
                set.0.copy_from_slice(out);
                live.leave(block, &mut set);
                let effect = read.get(i).into_iter().flatten();
                let effect = effect.zip(written.get(i).into_iter().flatten());
                for (live, (read, written)) in set.0.iter_mut().zip(effect) {
                    *live = *live & !written | read;
                }
                live.keep_for_catch(block, &mut set);
                changed |= union(live.ins.get_mut(i), &set.0);
            }
        }
        live
    }

    /// What the terminator fetches is live-in of its targets, but not before it.
    fn leave(&self, block: &Block, set: &mut RegSet) {
        if let Term::IterNext { done, .. } = block.term {
            // Only the way to the body writes the registers.
            block.term.for_each_dst(|r| set.remove(r));
            union(&mut set.0, self.ins.get(done.index()).unwrap_or_default());
        }
    }

    /// Goes back over a block's terminator: from what is live after it to before it.
    pub fn step_term(&self, block: &Block, set: &mut RegSet) {
        self.leave(block, set);
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
        if let Some(c) = block.catch {
            union(&mut set.0, self.ins.get(c.index()).unwrap_or_default());
        }
    }

    /// The registers live before a block.
    pub fn live_in(&self, b: BlockId) -> impl Iterator<Item = Reg> + '_ {
        registers(self.ins.get(b.index()).unwrap_or_default())
    }

    /// The set of registers live after a block: in some target or in its catch block. What an
    /// `IterNext` writes is in it when its body reads it.
    pub fn live_out_set(&self, b: BlockId) -> Option<RegSet> {
        Some(RegSet(self.outs.get(b.index())?.to_vec()))
    }
}

/// What blocks do to what is live after them, but for what their terminators write: the registers
/// that each reads before it writes them, and those that its instructions write.
fn effects(body: &Body) -> (Sets, Sets) {
    let (mut all_read, mut all_written) = (Sets::new(body), Sets::new(body));
    for (i, block) in body.blocks.iter().enumerate() {
        let (read, written) = (all_read.get_mut(i), all_written.get_mut(i));
        let bit = |r: Reg| (r.index() / 64, 1u64 << (r.0 % 64));
        let put = |words: &mut [u64], v: Val| {
            if let Val::Reg(r) = v
                && let Some(word) = words.get_mut(bit(r).0)
            {
                *word |= bit(r).1;
            }
        };
        block.term.for_each_use(|v| put(read, v));
        for (inst, _) in block.insts.iter().rev() {
            if let Some(dst) = inst.dst() {
                put(written, Val::Reg(dst));
                if let Some(word) = read.get_mut(bit(dst).0) {
                    *word &= !bit(dst).1;
                }
            }
            inst.for_each_use(|v| put(read, v));
        }
    }
    (all_read, all_written)
}

fn insert(set: &mut RegSet, v: Val) {
    if let Val::Reg(r) = v {
        set.insert(r);
    }
}
