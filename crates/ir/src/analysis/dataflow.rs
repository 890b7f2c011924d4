//! The fixpoint engine for analyses of a body.
//!
//! An analysis defines its facts (a [`Lattice`]), the effect of a block on them, and the direction
//! in which they flow:
//!
//! - [`Forward`]: facts that hold at a location on every path there from the body's entry;
//! - [`Backward`]: facts that matter at a location for some path on from there;
//! - [`registers`]: facts that hold for a register in the whole body, whatever the order of
//!   instructions.
//!
//! **The rule for catch blocks**: control can leave a block for its catch block *before any* of its
//! instructions or its terminator, since each of them can fail. So a fact holds at the start of the
//! catch block if it holds at *every* location in the block ([`ExitFacts::anywhere`]), and a fact that
//! matters at its start matters at every location in the block, including its start.
//!
//! Facts change only in one direction, by [`Lattice::join`], so each fixpoint ends: a lattice must
//! be of finite height for a given body.

use super::order::{backwards, reverse_post_order};
use crate::*;

/// Facts that can be joined where paths meet.
pub trait Lattice: Clone {
    /// Sets the fact to what is true on both paths; returns whether that changed it.
    fn join(&mut self, other: &Self) -> bool;
}

/// The facts at the exits of a block.
#[derive(Debug, Clone)]
pub struct ExitFacts<F> {
    /// The fact after its terminator's operands are read, for its jumps.
    pub end: F,
    /// The fact that holds at every location in it, for its catch block.
    pub anywhere: F,
}

/// An analysis of facts that hold at the starts of blocks.
pub trait Forward {
    /// The facts of the analysis.
    type Fact: Lattice;
    /// The fact at the body's entry.
    fn entry(&self) -> Self::Fact;
    /// The facts at a block's exits, from the fact at its start.
    fn block(&self, id: BlockId, start: &Self::Fact) -> ExitFacts<Self::Fact>;
    /// Adds what a jump from the block to `to` implies, such as the outcome of a test.
    fn jump(&self, id: BlockId, to: BlockId, fact: &mut Self::Fact) {
        let _ = (id, to, fact);
    }
}

/// The fact at the start of each block; `None` for unreachable blocks.
pub fn forward<A: Forward>(body: &Body, analysis: &A) -> Vec<Option<A::Fact>> {
    let mut starts: Vec<Option<A::Fact>> = vec![None; body.blocks.len()];
    let Some(first) = starts.first_mut() else {
        return starts;
    };
    *first = Some(analysis.entry());
    let order = reverse_post_order(body);
    let mut stale = vec![true; body.blocks.len()];
    let mut again = true;
    while std::mem::take(&mut again) {
        for &id in &order {
            let Some(start) = &starts[id.index()] else {
                continue;
            };
            if !std::mem::take(&mut stale[id.index()]) {
                continue;
            }
            let block = &body.blocks[id.index()];
            let ExitFacts { end, anywhere } = analysis.block(id, start);
            let mut flow = |to: BlockId, fact: A::Fact| {
                let changed = match &mut starts[to.index()] {
                    Some(known) => known.join(&fact),
                    none => none.replace(fact).is_none(),
                };
                if changed {
                    stale[to.index()] = true;
                    again = true;
                }
            };
            block.term.for_each_target(|to| {
                let mut fact = end.clone();
                // If the catch block is the same block, the jump's implication does not hold there.
                if block.catch != Some(to) {
                    analysis.jump(id, to, &mut fact);
                }
                flow(to, fact);
            });
            if let Some(catch) = block.catch {
                flow(catch, anywhere);
            }
        }
    }
    starts
}

/// An analysis of facts that matter for the paths on from a location.
pub trait Backward {
    /// The facts of the analysis.
    type Fact: Lattice;
    /// The fact at the body's end: usually the empty one.
    fn end_fact(&self) -> Self::Fact;
    /// Adds the fact at the start of `to`, seen from the end of the block.
    fn jump(&self, id: BlockId, to: BlockId, start: &Self::Fact, end: &mut Self::Fact) {
        let _ = (id, to);
        end.join(start);
    }
    /// Goes back through a block, including its terminator: turns the fact after it into the fact
    /// before it.
    fn block(&self, id: BlockId, fact: &mut Self::Fact);
}

/// The fact at the start of each block.
pub fn backward<A: Backward>(body: &Body, analysis: &A) -> Vec<A::Fact> {
    let mut starts = vec![analysis.end_fact(); body.blocks.len()];
    let nothing = analysis.end_fact();
    let mut fact = nothing.clone();
    // A block is visited again only if a fact that it reads has changed since.
    let (mut clock, mut visited, mut changed) =
        (0u32, vec![0; body.blocks.len()], vec![0; body.blocks.len()]);
    let order = backwards(body);
    let mut again = true;
    while std::mem::take(&mut again) {
        for &id in &order {
            let block = &body.blocks[id.index()];
            let last = visited[id.index()];
            if last != 0 && block.successors().all(|to| changed[to.index()] < last) {
                continue;
            }
            clock += 1;
            visited[id.index()] = clock;
            fact.clone_from(&nothing);
            block
                .term
                .for_each_target(|to| analysis.jump(id, to, &starts[to.index()], &mut fact));
            if let Some(catch) = block.catch {
                fact.join(&starts[catch.index()]);
            }
            analysis.block(id, &mut fact);
            if let Some(catch) = block.catch {
                fact.join(&starts[catch.index()]);
            }
            if starts[id.index()].join(&fact) {
                changed[id.index()] = clock;
                again = true;
            }
        }
    }
    starts
}

/// The order in which [`registers`] visits the blocks; it affects only the speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Facts of results follow from facts of operands.
    Forwards,
    /// Facts of operands follow from facts of results.
    Backwards,
}

/// The facts of all registers.
#[derive(Debug, Clone)]
pub struct RegisterFacts<F> {
    facts: Vec<F>,
    changed: bool,
}

impl<F: Lattice> RegisterFacts<F> {
    /// The fact of a register; `None` for a register that does not exist.
    pub fn get(&self, r: Reg) -> Option<&F> {
        self.facts.get(r.index())
    }

    /// Joins a fact into that of a register.
    pub fn join(&mut self, r: Reg, fact: &F) {
        if let Some(known) = self.facts.get_mut(r.index()) {
            self.changed |= known.join(fact);
        }
    }
}

/// An instruction, or the end of a block.
#[derive(Debug, Clone, Copy)]
pub enum InstOrTerm<'a> {
    /// An instruction.
    Inst(&'a Inst),
    /// A terminator.
    Term(&'a Term),
}

/// Facts that hold for each register whatever the order of instructions: `visit` joins the facts of
/// each instruction and terminator, until nothing changes. `start` has the initial fact of each register.
pub fn registers<F: Lattice>(
    body: &Body,
    direction: Direction,
    start: Vec<F>,
    mut visit: impl FnMut(InstOrTerm<'_>, &mut RegisterFacts<F>),
) -> Vec<F> {
    let mut at_entry = RegisterFacts {
        facts: start,
        changed: true,
    };
    while std::mem::take(&mut at_entry.changed) {
        match direction {
            Direction::Forwards => {
                for block in &body.blocks {
                    let insts = block.insts.iter();
                    insts.for_each(|(inst, _)| visit(InstOrTerm::Inst(inst), &mut at_entry));
                    visit(InstOrTerm::Term(&block.term), &mut at_entry);
                }
            }
            Direction::Backwards => {
                for block in body.blocks.iter().rev() {
                    visit(InstOrTerm::Term(&block.term), &mut at_entry);
                    let insts = block.insts.iter().rev();
                    insts.for_each(|(inst, _)| visit(InstOrTerm::Inst(inst), &mut at_entry));
                }
            }
        }
    }
    at_entry.facts
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Registers that were written on every path.
    #[derive(Debug, Clone, PartialEq, Eq)]
    struct WrittenRegs(BTreeSet<Reg>);

    impl Lattice for WrittenRegs {
        fn join(&mut self, other: &WrittenRegs) -> bool {
            let before = self.0.len();
            self.0.retain(|r| other.0.contains(r));
            self.0.len() != before
        }
    }

    struct DefiniteAssignment<'a>(&'a Body);

    impl Forward for DefiniteAssignment<'_> {
        type Fact = WrittenRegs;

        fn entry(&self) -> WrittenRegs {
            WrittenRegs(BTreeSet::new())
        }

        fn block(&self, id: BlockId, start: &WrittenRegs) -> ExitFacts<WrittenRegs> {
            let mut end = start.clone();
            let insts = &self.0.blocks[id.index()].insts;
            end.0.extend(insts.iter().filter_map(|(i, _)| i.dst()));
            ExitFacts {
                end,
                anywhere: start.clone(),
            }
        }
    }

    fn assigned(code: &str) -> Vec<Option<Vec<u32>>> {
        let text = format!(
            "site @0 \"\"\nhandler \"k\" points 1 sys_enter(all) @0 \
             {{ regs r0: long, r1: long, r2: long {code} }}\n"
        );
        let program = reader::read(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let body = &program.handlers[0].body;
        let found = forward(body, &DefiniteAssignment(body)).into_iter();
        found
            .map(|f| f.map(|f| f.0.into_iter().map(|r| r.0).collect()))
            .collect()
    }

    #[test]
    fn facts_hold_on_every_path() {
        let found = assigned(
            "b0: r0 = copy 1 branch r0, b1, b2 b1: r1 = copy 1 jump b3 b2: r2 = copy 1 r1 = copy 2 \
             jump b3 b3: branch r0, b0, b4 b4: ret b5: ret",
        );
        let expected = [
            Some(vec![]),
            Some(vec![0]),
            Some(vec![0]),
            Some(vec![0, 1]),
            Some(vec![0, 1]),
            None,
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn every_location_of_a_block_leads_to_its_catch_block() {
        let found = assigned(
            "b0: r0 = copy 1 jump b1 b1: catch b2 r1 = copy 1 r2 = load kernel u64 r0 jump b3 b2: jump b3 b3: ret",
        );
        assert_eq!(found[2], Some(vec![0]));
        assert_eq!(found[3], Some(vec![0]));
    }
}
