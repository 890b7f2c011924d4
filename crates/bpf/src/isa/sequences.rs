//! Register allocation within sequences.
//!
//! A *sequence* is code that computes in virtual registers: that of one instruction of the IR, or of a
//! whole subprogram. It may lie in several pieces, because code off the straight path follows behind the
//! handler. No virtual register lives beyond its sequence. A sequence names machine registers only for
//! arguments and results of calls, and for numbers that live longer.
//!
//! [`allocate`] gives each virtual register a machine register that is free wherever the virtual one is
//! live, if possible that of a move between them, which then disappears. A virtual register that finds
//! none gets a stack word.
//!
//! A machine register is busy where its value may be read: by an instruction, by a call behind a write
//! of it, or by code that the sequence jumps to. What follows a sequence reads none of its registers.

use std::ops::Range;

use super::insn::Reg::{R0, R1, R2, R3, R4, R5, R6, R8, R9};
use super::insn::{Access, AluOp, AtomicOp, Insn, Reg, Size, Src, Width};

/// Names a sequence of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SequenceId(pub(super) u32);

/// A set of machine registers, a bit for each.
pub(crate) type RegSet = u16;

/// The registers that a call clobbers.
pub(crate) const CALLER_SAVED: RegSet = 0b11_1111;
/// The registers of arguments.
const ARGUMENTS: RegSet = 0b11_1110;
/// The order in which registers are tried: results of calls are in r0.
const ORDER: [Reg; 9] = [R1, R2, R3, R4, R5, R0, R6, R8, R9];
/// Every machine register.
const MACHINE: RegSet = (1 << Reg::ALL.len()) - 1;
/// Number of the first virtual register among all registers.
const VIRTUAL: usize = 16;
/// Times that registers can be spilled before allocation gives up.
const ROUNDS: usize = 64;

/// A sequence of a function.
#[derive(Debug)]
pub(super) struct Sequence {
    /// The machine registers that hold no number at its beginning.
    pub free: RegSet,
    /// Those among them that hold one at its end.
    pub result: RegSet,
    /// Number of its virtual registers.
    pub virtuals: u16,
    /// Its pieces: ranges of instructions.
    pub pieces: Vec<Range<u32>>,
    /// Displacements of the stack words for its spilled registers.
    pub words: &'static [i16],
}

/// An instruction with the function's instruction that it belongs to: itself, or spill code around it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed {
    pub insn: Insn,
    /// Number of the function's instruction.
    pub origin: u32,
    /// Whether it is that instruction, and not spill code.
    pub own: bool,
}

/// The reason why a sequence has no allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// There are too few stack words.
    Words,
    /// Instructions need more registers at once than there are.
    Registers,
}

/// The instructions of a sequence in machine registers. `target` gives the instruction that a jump
/// leads to; the function has `params` parameters.
pub(super) fn allocate(
    sequence: &Sequence,
    insns: &[Insn],
    params: usize,
    target: &dyn Fn(u32) -> Option<u32>,
) -> Result<Vec<Placed>, Failure> {
    let mut allocator = Allocator::new(sequence, insns, params);
    for _ in 0..ROUNDS {
        let graph = Interference::new(&allocator, target);
        match graph.colors(&allocator) {
            Ok(colors) => return Ok(allocator.rewritten(&colors)),
            Err(v) => {
                let v = graph.easiest_to_spill(&allocator, v);
                allocator.spill(v.ok_or(Failure::Registers)?, &graph)?;
            }
        }
    }
    Err(Failure::Registers)
}

/// Number of a register among all.
fn index(reg: Reg) -> usize {
    match reg {
        Reg::Virtual(v) => VIRTUAL + usize::from(v),
        reg => usize::from(reg.number()),
    }
}

/// The set of one machine register.
pub(crate) fn set_of(reg: Reg) -> RegSet {
    1 << reg.number()
}

/// A move between whole registers: to, from.
fn moved(insn: &Insn) -> Option<(Reg, Reg)> {
    match *insn {
        Insn::Alu {
            width: Width::W64,
            op: AluOp::Mov,
            dst,
            src: Src::Reg(src),
        } => Some((dst, src)),
        _ => None,
    }
}

/// What an instruction does with registers, by their numbers among all.
struct Effect {
    /// Its operands. No instruction has more.
    operands: [Option<(usize, Access)>; 3],
    /// The registers that it reads and clobbers without naming them.
    reads: RegSet,
    clobbers: RegSet,
    calls: bool,
    /// A move: to, from.
    moved: Option<(usize, usize)>,
}

impl Effect {
    fn new(insn: &Insn) -> Effect {
        let mut operands = [None; 3];
        let mut n = 0;
        let mut copy = *insn;
        copy.for_each_operand(&mut |reg, access| {
            operands[n] = Some((index(*reg), access));
            n += 1;
        });
        let calls = matches!(insn, Insn::Call { .. });
        let (reads, clobbers) = match insn {
            Insn::Call { .. } => (ARGUMENTS, CALLER_SAVED),
            Insn::Exit {} => (set_of(R0), 0),
            Insn::Atomic {
                op: AtomicOp::CmpXchg,
                ..
            } => (set_of(R0), set_of(R0)),
            _ => (0, 0),
        };
        Effect {
            operands,
            reads,
            clobbers,
            calls,
            moved: moved(insn).map(|(to, from)| (index(to), index(from))),
        }
    }

    fn reads(&self) -> impl Iterator<Item = usize> + '_ {
        let operands = self.operands.iter().flatten();
        operands.filter(|o| o.1 != Access::Write).map(|o| o.0)
    }

    fn writes(&self) -> impl Iterator<Item = usize> + '_ {
        let operands = self.operands.iter().flatten();
        operands.filter(|o| o.1 != Access::Read).map(|o| o.0)
    }
}

struct Allocator {
    free: RegSet,
    result: RegSet,
    /// The registers of the function's parameters.
    given: RegSet,
    code: Vec<Placed>,
    /// Number of virtual registers, with those of spill code.
    virtuals: usize,
    /// Number of the first virtual register of spill code.
    first_short: usize,
    /// The stack words for spilled registers.
    words: Vec<i16>,
    spilled: Vec<Spilled>,
}

/// A spilled register.
struct Spilled {
    reg: usize,
    word: i16,
    /// The registers that were live at the same time, as a set.
    neighbours: Vec<u64>,
}

impl Allocator {
    fn new(sequence: &Sequence, insns: &[Insn], params: usize) -> Allocator {
        let all = sequence.pieces.iter().cloned().flatten();
        let place = |origin: u32| Placed {
            insn: insns[origin as usize],
            origin,
            own: true,
        };
        let virtuals = usize::from(sequence.virtuals);
        let code: Vec<Placed> = all.map(place).collect();
        Allocator {
            free: sequence.free,
            result: sequence.result,
            given: ARGUMENTS & ((2 << params) - 1),
            virtuals,
            first_short: virtuals,
            words: Allocator::free_words(sequence, &code),
            code,
            spilled: Vec::new(),
        }
    }

    /// Those of the sequence's stack words that its code does not use.
    fn free_words(sequence: &Sequence, code: &[Placed]) -> Vec<i16> {
        let mut lowest_address = 0;
        let mut named = Vec::new();
        for (i, Placed { insn, .. }) in code.iter().enumerate() {
            match *insn {
                Insn::Load {
                    base: Reg::R10,
                    off,
                    ..
                }
                | Insn::Store {
                    base: Reg::R10,
                    off,
                    ..
                }
                | Insn::Atomic {
                    base: Reg::R10,
                    off,
                    ..
                } => named.push(off & !7),
                // Code that takes a word's address may use all words from there on.
                Insn::Alu {
                    op: AluOp::Mov,
                    src: Src::Reg(Reg::R10),
                    dst,
                    ..
                } => {
                    let behind = code.get(i + 1).map(|next| next.insn);
                    lowest_address = lowest_address.min(match behind {
                        Some(Insn::Alu {
                            op: AluOp::Add,
                            dst: to,
                            src: Src::Imm(by),
                            ..
                        }) if to == dst => by,
                        _ => i32::from(i16::MIN),
                    });
                }
                _ => {}
            }
        }
        let free = |word: &i16| i32::from(*word) < lowest_address && !named.contains(word);
        sequence.words.iter().copied().filter(free).collect()
    }

    /// Moves a virtual register to a stack word.
    fn spill(&mut self, v: usize, graph: &Interference) -> Result<(), Failure> {
        // An earlier one is no longer in the code, but knows its neighbours from the time when it was.
        let clashes = |word: i16| {
            let mut there = self.spilled.iter().filter(|s| s.word == word);
            there.any(|s| members(&s.neighbours).any(|other| other == v))
        };
        let free = self.words.iter().copied().find(|word| !clashes(*word));
        let word = free.ok_or(Failure::Words)?;
        self.spilled.push(Spilled {
            reg: v,
            word,
            neighbours: graph.of(v).to_vec(),
        });
        let spilled = Reg::Virtual((v - VIRTUAL) as u16);
        let old = std::mem::take(&mut self.code);
        for placed in old {
            self.respell(placed, spilled, word);
        }
        Ok(())
    }

    /// Appends an instruction with the spilled register in its stack word.
    fn respell(&mut self, mut placed: Placed, spilled: Reg, word: i16) {
        let load = |dst| Insn::Load {
            size: Size::DW,
            dst,
            base: Reg::R10,
            off: word,
        };
        let store = |src| Insn::Store {
            size: Size::DW,
            base: Reg::R10,
            off: word,
            src,
        };
        match placed.insn {
            Insn::Alu {
                width: Width::W64,
                op: AluOp::Mov,
                dst,
                src,
            } if dst == spilled && src != Src::Reg(spilled) => {
                placed.insn = store(src);
                self.code.push(placed);
                return;
            }
            Insn::Alu {
                width: Width::W64,
                op: AluOp::Mov,
                dst,
                src: Src::Reg(src),
            } if src == spilled => {
                placed.insn = load(dst);
                self.code.push(placed);
                return;
            }
            _ => {}
        }
        let short = Reg::Virtual((self.virtuals) as u16);
        let (mut reads, mut writes) = (false, false);
        placed.insn.for_each_operand(&mut |reg, access| {
            if *reg == spilled {
                *reg = short;
                reads |= access != Access::Write;
                writes |= access != Access::Read;
            }
        });
        self.virtuals += usize::from(reads || writes);
        let around = |insn| Placed {
            insn,
            own: false,
            ..placed
        };
        if reads {
            self.code.push(around(load(short)));
        }
        self.code.push(placed);
        if writes {
            self.code.push(around(store(Src::Reg(short))));
        }
    }

    /// The code in the machine registers of this allocation, without moves that do nothing.
    fn rewritten(mut self, colors: &[Option<Reg>]) -> Vec<Placed> {
        for placed in &mut self.code {
            placed.insn.for_each_operand(&mut |reg, _| {
                if let Reg::Virtual(v) = *reg {
                    let color = colors.get(usize::from(v)).copied().flatten();
                    debug_assert!(color.is_some(), "v{v} is of another sequence");
                    *reg = color.unwrap_or(*reg);
                }
            });
        }
        self.code
            .retain(|placed| moved(&placed.insn).is_none_or(|(to, from)| to != from));
        self.code
    }
}

/// Which registers are live at the same time.
struct Interference {
    /// Number of 64-bit words of each set.
    width: usize,
    /// The neighbours of each register, as a set.
    neighbours: Vec<u64>,
    /// The virtual registers that are live across a call, sorted.
    across_calls: Vec<usize>,
    /// The moves between different registers: to, from.
    moves: Vec<(usize, usize)>,
}

/// The control flow of a sequence's code.
struct Flow {
    /// Whether the next instruction of the code follows each one.
    next: Vec<bool>,
    /// The instruction that each one jumps to, if it is in the sequence.
    jump: Vec<Option<usize>>,
    /// Whether each one ends a piece, so that another sequence may follow.
    ends: Vec<bool>,
    /// Whether each one jumps out of the sequence.
    leaves: Vec<bool>,
    /// Whether some jump leads back.
    back: bool,
}

impl Flow {
    fn new(code: &[Placed], target: &dyn Fn(u32) -> Option<u32>) -> Flow {
        let n = code.len();
        let mut flow = Flow {
            next: vec![false; n],
            jump: vec![None; n],
            ends: vec![false; n],
            leaves: vec![false; n],
            back: false,
        };
        for (i, placed) in code.iter().enumerate() {
            let jumps = matches!(
                placed.insn,
                Insn::Goto { .. } | Insn::Jump { .. } | Insn::MayGoto { .. }
            );
            let goes_on = !matches!(placed.insn, Insn::Goto { .. } | Insn::Exit {});
            let follows = code
                .get(i + 1)
                .is_some_and(|next| (placed.origin..placed.origin + 2).contains(&next.origin));
            flow.next[i] = goes_on && follows;
            flow.ends[i] = goes_on && !follows;
            if jumps {
                let to = target(placed.origin);
                // Pieces are sorted, as is the spill code around an instruction.
                let at = to.map(|to| code.partition_point(|p| p.origin < to));
                flow.jump[i] = at.filter(|at| code.get(*at).map(|p| p.origin) == to);
                // A label at the end of a piece is bound to what follows it.
                let behind = |at: usize| at.checked_sub(1).map(|last| code[last].origin + 1) == to;
                let ends = flow.jump[i].is_none() && at.is_some_and(behind);
                flow.ends[i] |= ends;
                flow.leaves[i] = flow.jump[i].is_none() && !ends;
                flow.back |= flow.jump[i].is_some_and(|to| to <= i);
            }
        }
        flow
    }
}

impl Interference {
    fn new(allocator: &Allocator, target: &dyn Fn(u32) -> Option<u32>) -> Interference {
        let facts = Facts::new(allocator, target);
        let registers = VIRTUAL + allocator.virtuals;
        let width = registers.div_ceil(64);
        let mut graph = Interference {
            width,
            neighbours: vec![0; registers * width],
            across_calls: Vec::new(),
            moves: Vec::new(),
        };
        let live_in = graph.live_in(&facts);
        let mut out = vec![0; width];
        for (i, effect) in facts.effects.iter().enumerate() {
            facts.live_out(&mut out, &live_in, i);
            graph.add(effect, &out);
        }
        graph.across_calls.sort_unstable();
        graph.across_calls.dedup();
        graph
    }

    /// The registers that are live in front of each instruction.
    fn live_in(&self, facts: &Facts) -> Vec<u64> {
        let mut live_in = vec![0; facts.effects.len() * self.width];
        let mut live = vec![0; self.width];
        loop {
            let mut changed = false;
            for (i, effect) in facts.effects.iter().enumerate().rev() {
                facts.live_out(&mut live, &live_in, i);
                for reg in effect.writes() {
                    live[reg / 64] &= !(1 << (reg % 64));
                }
                live[0] &= !u64::from(effect.clobbers);
                let held = facts.held[i][0];
                live[0] |= u64::from(match effect.calls {
                    true => effect.reads & (held.written | held.given),
                    false => effect.reads,
                });
                for reg in effect.reads() {
                    live[reg / 64] |= 1 << (reg % 64);
                }
                let row = &mut live_in[i * self.width..][..self.width];
                changed |= row != live;
                row.copy_from_slice(&live);
            }
            if !(changed && facts.flow.back) {
                return live_in;
            }
        }
    }

    /// Adds the neighbours that an instruction's writes make, with the registers live behind it.
    fn add(&mut self, effect: &Effect, out: &[u64]) {
        self.moves.extend(effect.moved);
        let from = effect.moved.map(|(_, from)| from);
        for reg in effect.writes() {
            for other in members(out).filter(|other| Some(*other) != from && *other != reg) {
                self.connect(reg, other);
            }
        }
        if effect.clobbers == 0 {
            return;
        }
        for other in members(out).filter(|other| *other >= VIRTUAL) {
            members(&[effect.clobbers.into()]).for_each(|reg| self.connect(reg, other));
            if effect.calls {
                self.across_calls.push(other);
            }
        }
    }

    fn connect(&mut self, a: usize, b: usize) {
        self.neighbours[a * self.width + b / 64] |= 1 << (b % 64);
        self.neighbours[b * self.width + a / 64] |= 1 << (a % 64);
    }

    fn of(&self, reg: usize) -> &[u64] {
        &self.neighbours[reg * self.width..][..self.width]
    }

    /// A machine register for each virtual one, or the first one without.
    fn colors(&self, allocator: &Allocator) -> Result<Vec<Option<Reg>>, usize> {
        let mut colors = vec![None; allocator.virtuals];
        // Those that need a register that calls preserve choose first, then those that are moved to or
        // from a machine register.
        let mut rank = vec![2_u8; allocator.virtuals];
        for (to, from) in &self.moves {
            match (to.checked_sub(VIRTUAL), from.checked_sub(VIRTUAL)) {
                (Some(v), None) | (None, Some(v)) => rank[v] = 1,
                _ => {}
            }
        }
        self.across_calls.iter().for_each(|v| rank[v - VIRTUAL] = 0);
        let mut order: Vec<usize> = (VIRTUAL..VIRTUAL + allocator.virtuals).collect();
        order.sort_by_key(|v| rank[v - VIRTUAL]);
        for v in order {
            let mut busy = (self.of(v)[0] as RegSet) & MACHINE;
            for other in members(self.of(v)).filter(|other| *other >= VIRTUAL) {
                busy |= colors[other - VIRTUAL].map_or(0, set_of);
            }
            let color = |reg: usize| match reg.checked_sub(VIRTUAL) {
                None => Reg::new(reg as u8),
                Some(v) => colors[v],
            };
            let partner = |(to, from): &(usize, usize)| match (*to == v, *from == v) {
                (true, false) => Some(*from),
                (false, true) => Some(*to),
                _ => None,
            };
            let wanted = self.moves.iter().filter_map(partner).filter_map(color);
            let wanted = wanted
                .rev()
                .find(|reg| *reg != Reg::R10 && busy & set_of(*reg) == 0);
            let any = || {
                ORDER
                    .into_iter()
                    .find(|reg| allocator.free & !busy & set_of(*reg) != 0)
            };
            colors[v - VIRTUAL] = Some(wanted.or_else(any).ok_or(v)?);
        }
        Ok(colors)
    }

    /// The virtual register to spill for one that finds no machine register: itself if it is live across a
    /// call, otherwise that one of its neighbours and itself that has the most neighbours. Those of spill
    /// code stay.
    fn easiest_to_spill(&self, allocator: &Allocator, v: usize) -> Option<usize> {
        if self.across_calls.binary_search(&v).is_ok() && v < VIRTUAL + allocator.first_short {
            return Some(v);
        }
        let around = members(self.of(v)).chain([v]);
        let around = around.filter(|v| (VIRTUAL..VIRTUAL + allocator.first_short).contains(v));
        let around = around.filter(|v| !allocator.spilled.iter().any(|s| s.reg == *v));
        around.max_by_key(|v| (members(self.of(*v)).count(), *v))
    }
}

/// Machine registers that may hold values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Held {
    /// Those that the sequence wrote, and numbers from outside.
    written: RegSet,
    /// Parameters of the function, as they came.
    given: RegSet,
}

impl Held {
    /// What holds behind an instruction, with the one in front of it.
    fn behind(mut self, effect: &Effect, before: Option<&Effect>) -> Held {
        if effect.calls {
            self.written = self.written & !CALLER_SAVED | set_of(R0);
            self.given = 0;
        }
        // A call's result that moves to a virtual register is not read where it was.
        if matches!(effect.moved, Some((VIRTUAL.., 0))) && before.is_some_and(|b| b.calls) {
            self.written &= !set_of(R0);
        }
        for reg in effect.writes().filter(|reg| *reg < VIRTUAL) {
            self.written |= 1 << reg;
            self.given &= !(1 << reg);
        }
        self
    }

    /// What may hold where two paths meet.
    fn or(self, other: Held) -> Held {
        Held {
            written: self.written | other.written,
            given: self.given | other.given,
        }
    }
}

/// For each instruction, the machine registers that may hold values in front of it and behind it.
fn held(effects: &[Effect], flow: &Flow, allocator: &Allocator) -> Vec<[Held; 2]> {
    let outside = Held {
        written: MACHINE & !allocator.free,
        given: 0,
    };
    let mut all = vec![[outside; 2]; effects.len()];
    let begins = allocator.code.first().is_some_and(|p| p.origin == 0);
    if let Some(first) = all.first_mut().filter(|_| begins) {
        first[0].given = allocator.given;
    }
    loop {
        let mut changed = false;
        for (i, effect) in effects.iter().enumerate() {
            let before = i.checked_sub(1).map(|before| &effects[before]);
            let now = all[i][0].behind(effect, before);
            changed |= all[i][1] != now;
            all[i][1] = now;
            let next = flow.next[i].then_some(i + 1);
            for to in next.into_iter().chain(flow.jump[i]) {
                let there = all[to][0].or(now);
                changed |= there != all[to][0];
                all[to][0] = there;
            }
        }
        if !(changed && flow.back) {
            return all;
        }
    }
}

/// What the liveness of registers follows from.
struct Facts {
    effects: Vec<Effect>,
    flow: Flow,
    /// See [`held`].
    held: Vec<[Held; 2]>,
    /// The machine registers that code outside of the sequence may read behind each instruction.
    outside: Vec<RegSet>,
}

impl Facts {
    fn new(allocator: &Allocator, target: &dyn Fn(u32) -> Option<u32>) -> Facts {
        let code = &allocator.code;
        let effects: Vec<Effect> = code.iter().map(|p| Effect::new(&p.insn)).collect();
        let flow = Flow::new(code, target);
        let numbers = MACHINE & !allocator.free;
        let held = held(&effects, &flow, allocator);
        let outside = |i: usize| match (flow.leaves[i], flow.ends[i]) {
            (true, _) => numbers | held[i][1].written,
            (false, true) => numbers | allocator.result,
            (false, false) => 0,
        };
        Facts {
            outside: (0..code.len()).map(outside).collect(),
            effects,
            flow,
            held,
        }
    }

    /// `out` = the registers that are live behind an instruction.
    fn live_out(&self, out: &mut [u64], live_in: &[u64], i: usize) {
        let width = out.len();
        out.fill(0);
        out[0] = self.outside[i].into();
        let next = self.flow.next[i].then_some(i + 1);
        for to in next.into_iter().chain(self.flow.jump[i]) {
            let there = &live_in[to * width..][..width];
            out.iter_mut()
                .zip(there)
                .for_each(|(out, live)| *out |= live);
        }
    }
}

/// The members of a set.
fn members(set: &[u64]) -> impl Iterator<Item = usize> + '_ {
    set.iter().enumerate().flat_map(|(i, word)| {
        let mut left = *word;
        std::iter::from_fn(move || {
            let n = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            (n < 64).then_some(64 * i + n as usize)
        })
    })
}

#[cfg(test)]
mod tests;
