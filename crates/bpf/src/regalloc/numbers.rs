//! Machine registers for the numbers of a handler's body, once it is known how the code of each
//! instruction uses registers.
//!
//! In: a body, the locations that [`super::allocate`] gave its registers, and the shape of each
//! instruction. Out: better locations, and temporary registers for each instruction.
//!
//! - *Shapes*. The code of most instructions needs few registers. Numbers can be in any other but r7.
//!   A [`Shape::Sequence`] needs all that calls may change: numbers that live across it or that it reads
//!   are in r6, r8, r9 or in memory.
//! - *Temporary registers* are those that no number has at the instruction: its virtual registers get
//!   them. Most instructions need them only for numbers in memory.
//! - *Copies*. A number prefers the register of the number that it is computed from and that ends there.
//! - *Memory*. Numbers that are live at the start stay where the leading tests leave them. Those that
//!   outlive a step of a resumable loop stay in the frame.
//!
//! A number has one location, so errors and edges between blocks need no moves. Measured with
//! `tools/profile.stp`, in instructions of handlers and in millions of instructions that compile it: 6,542
//! and 114.5 without this step, 6,170 and 116.9 with it, 6,053 and 127.7 with regalloc2, which also splits
//! the life of a number.

use std::collections::BTreeMap;

use spile_ebpf::isa::insn::Reg;
use spile_ebpf::isa::sequences::{RegMask, set_of};
use spile_ir::{Block, BlockId, Body, Inst, Reg as IrReg, Term, Ty, Val};

use super::{
    Allocation, FrameRange, Interval, Location, MemoryWords, POOL, STACK_TOP, intervals,
    straight_line_end,
};

/// The registers that calls may change.
const CLOBBERED: [Reg; 6] = [Reg::R0, Reg::R1, Reg::R2, Reg::R3, Reg::R4, Reg::R5];
/// Number of machine registers.
const REGS: usize = 10;

/// How the code of an instruction uses registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// No code.
    Nothing,
    /// Instructions that may change all registers that calls may.
    Sequence,
    /// `dst = a`.
    Copy,
    /// The result is computed in its own register, from the first operand.
    InPlace {
        /// Temporary registers besides those for the result and the second operand.
        temps: u8,
    },
    /// The result is written before the operands are read for the last time.
    Apart {
        /// Temporary registers besides those for the result and the operands.
        temps: u8,
    },
    /// The result depends on no operand.
    Value,
    /// There is no result, and the last operand only is read.
    Store {
        /// Temporary registers besides that for the operand.
        temps: u8,
    },
}

/// The locations of the numbers of a body.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// The location of each register.
    pub locations: Vec<Location>,
    /// For each block, the temporary registers of its instructions and of its terminator; `None` for
    /// those that may change all registers that calls may.
    pub temps: Vec<Vec<Option<RegMask>>>,
}

/// A body, and what is known about it.
pub(crate) struct Input<'a> {
    pub body: &'a Body,
    pub alloc: &'a Allocation,
    /// The blocks that are emitted, in order.
    pub order: &'a [BlockId],
    /// The shapes of a block's instructions.
    pub shapes: &'a dyn Fn(BlockId) -> Vec<Shape>,
    /// Whether the last instruction of a block is part of its branch.
    pub fused: &'a dyn Fn(&Block) -> bool,
}

/// Finds the locations of a body's numbers. `None` if there is not enough memory for them.
pub(crate) fn allocate(input: &Input<'_>) -> Option<Numbers> {
    let mut numbers = Builder::new(input)?;
    numbers.registers();
    let temps = loop {
        match numbers.temps() {
            Ok(temps) => break temps,
            // Its register becomes a temporary one.
            Err(number) => numbers.spill(number),
        }
    };
    let locations = numbers.memory()?;
    Some(Numbers { locations, temps })
}

/// An instruction or a branch that needs registers.
struct Item<'a> {
    block: BlockId,
    /// The instruction, or the location behind the last one.
    index: usize,
    position: u32,
    shape: Shape,
    inst: Option<&'a Inst>,
    /// The condition of a branch without a comparison.
    cond: Option<Val>,
    /// Whether it is part of a branch, so that there is no result.
    fused: bool,
}

struct Builder<'a> {
    input: &'a Input<'a>,
    items: Vec<Item<'a>>,
    intervals: Vec<Option<Interval>>,
    /// The positions of sequences, in order.
    sequences: Vec<u32>,
    locations: Vec<Location>,
    /// Whether a number has its location from the start.
    fixed: Vec<bool>,
    /// For each machine register, the intervals in which it is taken: start, then end and number.
    taken: [BTreeMap<u32, (u32, usize)>; REGS],
    /// For each number, those whose registers it prefers.
    prefers: Vec<[Option<IrReg>; 2]>,
    /// Numbers that a sequence leaves in r0.
    results: Vec<bool>,
}

impl<'a> Builder<'a> {
    fn new(input: &'a Input<'a>) -> Option<Builder<'a>> {
        let (body, alloc) = (input.body, input.alloc);
        let n = body.regs.len();
        let mut builder = Builder {
            input,
            items: Vec::new(),
            intervals: match input.order == alloc.order {
                true => alloc.intervals.clone(),
                false => intervals(body, input.order, &alloc.live),
            },
            sequences: Vec::new(),
            locations: alloc.locations.clone(),
            fixed: body.regs.iter().map(|ty| *ty != Ty::Long).collect(),
            taken: Default::default(),
            prefers: vec![[None; 2]; n],
            results: vec![false; n],
        };
        builder.items();
        let starts = input.order.first().into_iter().chain(&alloc.resume);
        for r in starts.flat_map(|b| alloc.live.live_in(*b)) {
            let r = r.index();
            if !std::mem::replace(&mut builder.fixed[r], true)
                && let (Location::Reg(reg), Some(Interval { start, end, .. })) =
                    (alloc.locations[r], builder.intervals[r])
            {
                builder.taken[usize::from(reg.number())].insert(start, (end, r));
            }
        }
        Some(builder)
    }

    /// Lists the instructions, with the positions of [`intervals`].
    fn items(&mut self) {
        let Input { body, order, .. } = *self.input;
        let mut position = 0;
        for b in order {
            let block = &body.blocks[b.index()];
            let fused = (self.input.fused)(block);
            let shapes = (self.input.shapes)(*b);
            let last = block.insts.len();
            for (i, ((inst, _), shape)) in block.insts.iter().zip(shapes).enumerate() {
                position += 2;
                let fused = fused && i + 1 == last;
                if let (true, Some(dst)) = (fused || shape == Shape::Nothing, inst.dst()) {
                    self.intervals[dst.index()] = None;
                }
                self.note(inst, shape, position);
                self.items.push(Item {
                    block: *b,
                    index: if fused { last } else { i },
                    position,
                    shape,
                    inst: Some(inst),
                    cond: None,
                    fused,
                });
            }
            position += 2;
            let (shape, cond) = match block.term {
                Term::Branch { cond, .. } => (Shape::Apart { temps: 0 }, Some(cond)),
                Term::IterNext { .. } => (Shape::Sequence, None),
                _ => (Shape::Nothing, None),
            };
            if shape == Shape::Sequence {
                // Its results are not written at its end.
                self.sequences.extend([position, position + 1]);
            }
            if !fused {
                self.items.push(Item {
                    block: *b,
                    index: last,
                    position,
                    shape,
                    inst: None,
                    cond,
                    fused: true,
                });
            }
            position += 2;
        }
    }

    /// Notes what an instruction means for the choice of registers.
    fn note(&mut self, inst: &Inst, shape: Shape, position: u32) {
        let number = |r: &IrReg| self.input.body.regs[r.index()] == Ty::Long;
        let dst = inst.dst().filter(number);
        match (shape, dst) {
            (Shape::Sequence, dst) => {
                self.sequences.push(position);
                dst.into_iter()
                    .for_each(|dst| self.results[dst.index()] = true);
            }
            (Shape::Copy | Shape::InPlace { .. }, Some(dst)) => {
                let mut first = None;
                inst.for_each_use(|v| first = first.or(Some(v)));
                if let Some(Val::Reg(a)) = first {
                    for (reg, other) in [(dst, a), (a, dst)] {
                        let [one, two] = &mut self.prefers[reg.index()];
                        if one.is_none() {
                            *one = Some(other);
                        } else {
                            *two = Some(other);
                        }
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether a sequence clobbers what lives in an interval.
    fn is_clobbered(&self, (start, end): (u32, u32)) -> bool {
        let next = self.sequences.partition_point(|position| *position < start);
        self.sequences
            .get(next)
            .is_some_and(|position| *position <= end)
    }

    /// The number that has a register somewhere in an interval.
    fn holder(&self, reg: Reg, (start, end): (u32, u32)) -> Option<usize> {
        let before = self.taken[usize::from(reg.number())]
            .range(..=end)
            .next_back();
        before
            .filter(|(_, (until, _))| *until >= start)
            .map(|(_, (_, r))| *r)
    }

    /// Gives machine registers to numbers. Those with the most uses for the length of their interval
    /// come first.
    fn registers(&mut self) {
        let known = self.intervals.iter().enumerate();
        let open = known.filter_map(|(r, i)| Some((r, (*i).filter(|_| !self.fixed[r])?)));
        let mut by_worth: Vec<(usize, Interval)> = open.collect();
        by_worth.sort_by_key(|(r, i)| (std::cmp::Reverse(i.benefit()), i.start, *r));
        for (r, interval) in by_worth {
            let span = interval.span();
            let anywhere = !self.is_clobbered(span);
            let preferred = self.prefers[r].into_iter().flatten();
            let preferred = preferred.filter_map(|other| match self.locations[other.index()] {
                Location::Reg(reg) => Some(reg).filter(|reg| anywhere || POOL.contains(reg)),
                _ => None,
            });
            let result = self.results[r].then_some(Reg::R0);
            let result = result.filter(|_| anywhere);
            let scratch = CLOBBERED.iter().rev().copied().filter(|_| anywhere);
            let mut choice = preferred.chain(result).chain(scratch).chain(POOL);
            let free = choice.find(|reg| self.holder(*reg, span).is_none());
            self.locations[r] = free.map_or(Location::None, Location::Reg);
            if let Some(reg) = free {
                self.taken[usize::from(reg.number())].insert(span.0, (span.1, r));
            }
        }
    }

    /// Takes the register of a number away.
    fn spill(&mut self, number: usize) {
        debug_assert!(!self.fixed[number]);
        if let (Location::Reg(reg), Some(interval)) =
            (self.locations[number], self.intervals[number])
        {
            self.taken[usize::from(reg.number())].remove(&interval.start);
        }
        self.locations[number] = Location::None;
    }

    /// The register of an operand.
    fn register(&self, v: Val) -> Option<Reg> {
        match v {
            Val::Reg(r) => match self.locations[r.index()] {
                Location::Reg(reg) => Some(reg),
                _ => None,
            },
            _ => None,
        }
    }

    /// The temporary registers of all instructions; the number whose register is needed if there are not
    /// enough.
    fn temps(&self) -> Result<Vec<Vec<Option<RegMask>>>, usize> {
        let blocks = self.input.body.blocks.iter();
        let mut masks: Vec<_> = blocks.map(|b| vec![None; b.insts.len() + 1]).collect();
        let mut values = Vec::new();
        for item in self
            .items
            .iter()
            .filter(|item| item.shape != Shape::Sequence)
        {
            values.clear();
            if let Some(inst) = item.inst {
                inst.for_each_use(|v| values.push(v));
            }
            values.extend(item.cond);
            let dst = item.inst.and_then(Inst::dst).filter(|_| !item.fused);
            let wanted = self.wanted(item.shape, &values, dst);
            let span = (item.position, item.position + 1);
            let mut temps = 0;
            for _ in 0..wanted {
                let other = |reg: &Reg| temps & set_of(*reg) == 0;
                let choice = || CLOBBERED.into_iter().filter(other);
                let free = choice().find(|reg| self.holder(*reg, span).is_none());
                match free {
                    Some(reg) => temps |= set_of(reg),
                    None => {
                        let holders = choice().filter_map(|reg| self.holder(reg, span));
                        // A long life is spilled for many instructions.
                        let length = |r: &usize| self.intervals[*r].map_or(0, |i| i.end - i.start);
                        return Err(holders.max_by_key(length).unwrap_or_default());
                    }
                }
            }
            masks[item.block.index()][item.index] = Some(temps);
        }
        Ok(masks)
    }

    /// The number of temporary registers that an instruction needs.
    fn wanted(&self, shape: Shape, values: &[Val], dst: Option<IrReg>) -> u8 {
        let immediate = |v: Val| matches!(v, Val::Imm(n) if i32::try_from(n).is_ok());
        let first = values.first().copied();
        let second = values.get(1).copied();
        let outside = |v: Option<Val>| v.is_some_and(|v| self.register(v).is_none());
        let loaded = |v: Option<Val>| v.is_some_and(|v| !immediate(v)) && outside(v);
        let target = dst.and_then(|dst| self.register(Val::Reg(dst)));
        let shared =
            |v: Option<Val>| target.is_some() && v.and_then(|v| self.register(v)) == target;
        let count = |needs: &[bool]| needs.iter().map(|needed| u8::from(*needed)).sum::<u8>();
        match shape {
            Shape::Nothing | Shape::Sequence => 0,
            Shape::Copy => count(&[target.is_none() && outside(first)]),
            Shape::InPlace { temps } => {
                temps + count(&[target.is_none() || shared(second), loaded(second)])
            }
            Shape::Apart { temps } => {
                let apart = target.is_none() || shared(first) || shared(second);
                temps + count(&[dst.is_some() && apart, outside(first), loaded(second)])
            }
            Shape::Value => count(&[target.is_none()]),
            Shape::Store { temps } => temps + count(&[loaded(values.last().copied())]),
        }
    }

    /// The locations, with words of memory for the numbers without a register.
    fn memory(mut self) -> Option<Vec<Location>> {
        let mut open: Vec<(usize, Interval)> = (0..self.fixed.len())
            .filter(|r| !self.fixed[*r] && !matches!(self.locations[*r], Location::Reg(_)))
            .filter_map(|r| Some((r, self.intervals[r]?)))
            .collect();
        if open.is_empty() {
            return Some(self.locations);
        }
        open.sort_by_key(|(r, i)| (i.span(), *r));
        let alloc = self.input.alloc;
        let early = straight_line_end(self.input.body, self.input.order);
        let fixed = alloc.locations.iter().zip(&self.fixed);
        let fixed = fixed.filter_map(|(location, fixed)| fixed.then_some(*location));
        let fixed: Vec<Location> = fixed.collect();
        let stack = (1..=(STACK_TOP - alloc.stack_end) / 8)
            .map(|i| Location::Stack(STACK_TOP - 8 * i))
            .map(|location| fixed.contains(&location).then_some(u32::MAX));
        let frame = (0..alloc.number_bytes)
            .step_by(8)
            .filter(|offset| !fixed.contains(&Location::Frame(*offset)))
            .map(|offset| FrameRange {
                offset,
                size: 8,
                until: 0,
            });
        let mut words = MemoryWords {
            stack: stack.collect(),
            frame: frame.collect(),
            top: alloc.number_bytes,
        };
        for (r, interval) in open {
            self.locations[r] = words.take_word(interval, interval.start < early);
        }
        (words.top == alloc.number_bytes).then_some(self.locations)
    }
}
