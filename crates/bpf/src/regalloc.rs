//! Register allocation: the location of each register of a handler's body.
//!
//! This is done twice. [`allocate_all`] runs before memory is planned. It decides how much of the frame a body
//! needs, and the locations of numbers in the leading tests. [`numbers`] runs when each instruction's use
//! of registers is known. It decides the locations of numbers behind the leading tests.
//!
//! Blocks are laid out in reverse post-order. A register that is live around a loop is live in all
//! of its blocks, so one interval from its first to its last live position is exact enough.
//! Callee-saved machine registers go to the numbers with the most uses for the length of their
//! interval. Other numbers get a word of the frame, whose content the verifier does not track:
//! tracked stack words would make paths differ in the rest of the handler. Numbers of the leading
//! tests, which run before the frame exists, get stack words. Strings get frame slots. Registers
//! that are not live together share slots.
//!
//! A body with loops is a resumable loop (see [`crate::lower`]): a step starts at the entry or at
//! the target of a back edge. Registers that are live there are in the frame, which outlives the
//! step.

use std::collections::BTreeMap;
use std::rc::Rc;

use spile_cast::Cast;
use spile_ebpf::isa::insn::Reg;
use spile_ir::analysis::liveness::{Liveness, RegSet};
use spile_ir::analysis::order::reverse_post_order;
use spile_ir::{BlockId, Body, Ty, Val};

pub(crate) mod numbers;

/// Callee-saved machine registers for numbers. r7 is the per-CPU area, r10 the stack.
const POOL: [Reg; 3] = [Reg::R6, Reg::R8, Reg::R9];
/// Offset of the first spilled number, below the code generator's own slots.
const STACK_TOP: i16 = -72;
/// End of the spilled numbers; only [`crate::lower::slots::THREAD_RECORDS`] and the verdict follow. Before
/// 6.13 all frames share 512 bytes, and subprograms need the rest.
const STACK_END: i16 = -240;
/// End of the spilled numbers where a handler has a loop. Handlers of an event are one program, which
/// has a frame beside that of the resumable loop.
const STACK_END_LOOPS: i16 = -160;

/// Bytes of the frame for numbers that [`numbers`] spills, besides those that have words already.
const SPILLED: u32 = 32;

/// The location of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
    /// No location: the register is never read.
    None,
    /// A number in a machine register.
    Reg(Reg),
    /// A number on the stack, at this displacement from r10.
    Stack(i16),
    /// A frame slot at this offset.
    Frame(u32),
}

/// The allocation of one body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// The location of each register.
    pub locations: Vec<Location>,
    /// Reachable blocks, in their layout order.
    pub order: Vec<BlockId>,
    /// Registers that may be read before they are written.
    pub undefined: Vec<spile_ir::Reg>,
    /// Bytes of frame in use.
    pub frame: u32,
    /// Bytes at the frame's start for numbers: those in use, and some for [`numbers`].
    pub number_bytes: u32,
    /// The registers that are live at the start of each block.
    pub live: Rc<Liveness>,
    /// The interval of each register.
    pub intervals: Vec<Option<Interval>>,
    /// End of the spilled numbers on the stack.
    pub stack_end: i16,
    /// The resume points, starting with the entry; empty without loops.
    pub resume: Vec<BlockId>,
    /// The index of each block in `order`.
    pub layout_index: Vec<usize>,
    /// Whether some register is live at the start of each block.
    pub has_live_in: Vec<bool>,
}

impl Allocation {
    /// The locations with the machine registers replaced by these stack slots, for code that should not
    /// save registers.
    pub(crate) fn on_stack(&self, slots: [i16; POOL.len()]) -> Vec<Location> {
        let on_stack = |location: &Location| match *location {
            Location::Reg(reg) => {
                let slot = POOL.iter().position(|r| *r == reg);
                slot.map_or(*location, |i| Location::Stack(slots[i]))
            }
            location => location,
        };
        self.locations.iter().map(on_stack).collect()
    }
}

/// A body before its registers have locations: its order and what is live.
pub(crate) struct Unallocated<'a> {
    body: &'a Body,
    order: Vec<BlockId>,
    layout_index: Vec<usize>,
    resume: Vec<BlockId>,
    live: Liveness,
}

impl<'a> Unallocated<'a> {
    /// `None` if the body names registers or blocks that do not exist.
    pub(crate) fn new(body: &'a Body) -> Option<Self> {
        if body.blocks.is_empty() || !well_formed(body) {
            return None;
        }
        let order = reverse_post_order(body);
        let mut layout_index = vec![usize::MAX; body.blocks.len()];
        for (i, b) in order.iter().enumerate() {
            layout_index[b.index()] = i;
        }
        Some(Unallocated {
            body,
            resume: steps(body, &order, &layout_index),
            live: Liveness::new(body),
            order,
            layout_index,
        })
    }

    /// Allocates locations, with numbers on the stack down to that offset.
    fn allocate(self, stack_end: i16) -> Allocation {
        let Unallocated { body, live, .. } = self;
        let mut alloc = Allocation {
            locations: vec![Location::None; body.regs.len()],
            undefined: live.live_in(BlockId(0)).collect(),
            resume: self.resume,
            has_live_in: (0..body.blocks.len().fit::<u32>())
                .map(|b| live.live_in(BlockId(b)).next().is_some())
                .collect(),
            order: self.order,
            layout_index: self.layout_index,
            frame: 0,
            number_bytes: 0,
            stack_end,
            live: Rc::default(),
            intervals: Vec::new(),
        };
        assign(body, &mut alloc, &live);
        alloc.live = Rc::new(live);
        alloc
    }
}

/// Allocates the locations of bodies that can become one program; others stay `None`.
pub(crate) fn allocate_all(bodies: Vec<Option<Unallocated<'_>>>) -> Vec<Option<Allocation>> {
    let loops = bodies.iter().flatten().any(|b| !b.resume.is_empty());
    let end = if loops { STACK_END_LOOPS } else { STACK_END };
    let allocated = bodies.into_iter().map(|b| Some(b?.allocate(end)));
    allocated.collect()
}

fn well_formed(body: &Body) -> bool {
    let mut ok = true;
    let n = body.regs.len();
    for block in &body.blocks {
        for b in block.successors() {
            ok &= b.index() < body.blocks.len();
        }
        let mut reg = |r: spile_ir::Reg| ok &= r.index() < n;
        for (inst, _) in &block.insts {
            inst.dst().into_iter().for_each(&mut reg);
            inst.for_each_use(|v| uses(v).into_iter().for_each(&mut reg));
        }
        block
            .term
            .for_each_use(|v| uses(v).into_iter().for_each(&mut reg));
        block.term.for_each_dst(&mut reg);
    }
    ok
}

fn uses(v: Val) -> Option<spile_ir::Reg> {
    match v {
        Val::Reg(r) => Some(r),
        _ => None,
    }
}

/// The resume points: the entry and the targets of back edges, if there are any.
fn steps(body: &Body, order: &[BlockId], layout_index: &[usize]) -> Vec<BlockId> {
    let mut begins = vec![false; body.blocks.len()];
    for b in order {
        for next in body.blocks[b.index()].successors() {
            begins[next.index()] |= layout_index[next.index()] <= layout_index[b.index()];
        }
    }
    if begins.contains(&true) {
        begins[0] = true;
    }
    order
        .iter()
        .copied()
        .filter(|b| begins[b.index()])
        .collect()
}

/// The positions between which a register is live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interval {
    start: u32,
    end: u32,
    /// Instructions that read or write the register.
    uses: u32,
}

impl Interval {
    fn span(&self) -> (u32, u32) {
        (self.start, self.end)
    }

    /// The benefit of a machine register for this interval: uses for its length, in fixed point.
    fn benefit(&self) -> u64 {
        (u64::from(self.uses) << 32) / u64::from(self.end - self.start + 1)
    }
}

/// The interval of each register. An instruction reads at its even position and writes at the odd
/// one; a string result never shares the slot of a string operand.
fn intervals(body: &Body, order: &[BlockId], live: &Liveness) -> Vec<Option<Interval>> {
    let mut spans: Vec<Option<Interval>> = vec![None; body.regs.len()];
    let mut position = 0;
    let mut cover = |r: usize, position: u32, used: u32| {
        let span = spans[r].get_or_insert(Interval {
            start: position,
            end: position,
            uses: 0,
        });
        span.start = span.start.min(position);
        span.end = span.end.max(position);
        span.uses += used;
    };
    for id in order {
        let block = &body.blocks[id.index()];
        live.live_in(*id)
            .for_each(|r| cover(r.index(), position, 0));
        for (inst, _) in &block.insts {
            position += 2;
            inst.for_each_use(|v| {
                uses(v)
                    .into_iter()
                    .for_each(|r| cover(r.index(), position, 1))
            });
            inst.dst()
                .into_iter()
                .for_each(|r| cover(r.index(), position + 1, 1));
        }
        position += 2;
        block.term.for_each_use(|v| {
            uses(v)
                .into_iter()
                .for_each(|r| cover(r.index(), position, 1))
        });
        block
            .term
            .for_each_dst(|r| cover(r.index(), position + 1, 1));
        let end = position + 1;
        block
            .term
            .for_each_target(|t| live.live_in(t).for_each(|r| cover(r.index(), end, 0)));
        if let Some(catch) = block.catch {
            live.live_in(catch).for_each(|r| cover(r.index(), end, 0));
        }
        position += 2;
    }
    spans
}

/// End of the blocks that run in sequence from the entry, as a position of [`intervals`].
fn straight_line_end(body: &Body, order: &[BlockId]) -> u32 {
    let predecessors = body.predecessors();
    let alone = |i: &usize| *i == 0 || predecessors[order[*i]].len() == 1;
    let chain = (0..order.len()).take_while(alone);
    let insts = chain.map(|i| body.blocks[order[i].index()].insts.len().fit::<u32>());
    insts.map(|n| 2 * n + 4).sum()
}

/// A range of frame or stack, in use up to a position.
struct FrameRange {
    offset: u32,
    size: u32,
    until: u32,
}

/// Words of memory for values.
#[derive(Default)]
struct MemoryWords {
    /// For each word of the stack, the position up to which it is in use.
    stack: Vec<Option<u32>>,
    frame: Vec<FrameRange>,
    /// Bytes of the frame.
    top: u32,
}

impl MemoryWords {
    /// A free word for a number: of the stack, if that is allowed and one is free.
    fn take_word(&mut self, interval: Interval, on_stack: bool) -> Location {
        let free = |until: &Option<u32>| until.is_none_or(|u| u < interval.start);
        if on_stack && let Some(i) = self.stack.iter().position(free) {
            self.stack[i] = Some(interval.end);
            return Location::Stack(STACK_TOP - 8 - 8 * i.fit::<i16>());
        }
        Location::Frame(self.take_slot(8, interval))
    }

    /// A free slot of that size in the frame, or a new one.
    fn take_slot(&mut self, size: u32, Interval { start, end, .. }: Interval) -> u32 {
        let mut slots = self.frame.iter_mut();
        if let Some(slot) = slots.find(|s| s.size == size && s.until + 1 < start) {
            slot.until = end;
            return slot.offset;
        }
        let offset = self.top;
        self.top += size;
        self.frame.push(FrameRange {
            offset,
            size,
            until: end,
        });
        offset
    }
}

/// Gives machine registers to numbers. Those with the most uses for the length of their interval come
/// first: a number that lives long between few uses leaves its register to many short ones.
fn assign_registers(alloc: &mut Allocation, numbers: &[(usize, Interval)]) {
    let mut by_worth = numbers.to_vec();
    by_worth.sort_by_key(|(r, i)| (std::cmp::Reverse(i.benefit()), i.start, *r));
    let mut taken: [BTreeMap<u32, u32>; POOL.len()] = Default::default();
    for (r, Interval { start, end, .. }) in by_worth {
        let free =
            |t: &BTreeMap<u32, u32>| t.range(..=end).next_back().is_none_or(|l| *l.1 < start);
        if let Some(i) = taken.iter().position(free) {
            taken[i].insert(start, end);
            alloc.locations[r] = Location::Reg(POOL[i]);
        }
    }
}

fn assign(body: &Body, alloc: &mut Allocation, live: &Liveness) {
    let intervals = intervals(body, &alloc.order, live);
    let live_ones = intervals.iter().enumerate();
    let mut by_start: Vec<(usize, Interval)> =
        live_ones.filter_map(|(r, i)| Some((r, (*i)?))).collect();
    // Small slots come first, because displacements reach them.
    by_start.sort_by_key(|(r, i)| (i.span(), *r));
    let mut outlives = RegSet::new(body.regs.len());
    for b in &alloc.resume {
        live.live_in(*b).for_each(|r| outlives.insert(r));
    }
    let stays = |r: usize| outlives.contains(spile_ir::Reg(r.fit()));
    let mut words = MemoryWords {
        stack: vec![None; ((STACK_TOP - alloc.stack_end) / 8).fit::<usize>()],
        ..MemoryWords::default()
    };
    let early = straight_line_end(body, &alloc.order);
    let numbers = by_start
        .iter()
        .copied()
        .filter(|(r, _)| body.regs[*r] == Ty::Long);
    let numbers: Vec<(usize, Interval)> = numbers.collect();
    let in_step: Vec<_> = numbers
        .iter()
        .copied()
        .filter(|(r, _)| !stays(*r))
        .collect();
    assign_registers(alloc, &in_step);
    for (r, interval) in numbers {
        if alloc.locations[r] == Location::None {
            alloc.locations[r] = words.take_word(interval, !stays(r) && interval.start < early);
        }
    }
    if in_step.len() > POOL.len() {
        words.top += SPILLED;
    }
    alloc.number_bytes = words.top;
    let mut widths: Vec<u32> = body.regs.iter().map(|t| t.size()).collect();
    widths.sort_unstable();
    widths.dedup();
    for width in widths {
        let mine = |r: usize| body.regs[r] != Ty::Long && body.regs[r].size() == width;
        for (r, i) in by_start.iter().filter(|(r, _)| mine(*r)) {
            alloc.locations[*r] = Location::Frame(words.take_slot(width, *i));
        }
    }
    alloc.frame = words.top;
    alloc.intervals = intervals;
}

#[cfg(test)]
mod tests;
