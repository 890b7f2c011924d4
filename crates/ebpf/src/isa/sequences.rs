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

use spile_cast::Cast;

use super::insn::Reg::{R0, R1, R2, R3, R4, R5, R6, R8, R9};
use super::insn::{Access, AluOp, AtomicOp, Insn, Reg, Size, Src, Width};

/// Names a sequence of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceId(pub(super) u32);

/// A set of machine registers, a bit for each.
pub type RegMask = u16;

/// The registers that a call clobbers.
pub const CALLER_SAVED: RegMask = 0b11_1111;
/// The registers of arguments.
const ARGUMENTS: RegMask = 0b11_1110;
/// The order in which registers are tried: results of calls are in r0.
const ORDER: [Reg; 9] = [R1, R2, R3, R4, R5, R0, R6, R8, R9];
/// Every machine register.
const MACHINE: RegMask = (1 << Reg::ALL.len()) - 1;
/// Number of the first virtual register among all registers.
const FIRST_VIRTUAL: u16 = 16;
/// The same as an index.
const VIRTUAL: usize = FIRST_VIRTUAL as usize;
/// Times that registers can be spilled before allocation gives up.
const ROUNDS: usize = 64;

/// A sequence of a function.
#[derive(Debug)]
pub(super) struct Sequence {
    /// The machine registers that hold no number at its beginning.
    pub free: RegMask,
    /// Those among them that hold one at its end.
    pub result: RegMask,
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
    pub is_original: bool,
}

/// The reason why a sequence has no allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// There are too few stack words.
    Words,
    /// Instructions need more registers at once than there are.
    Registers,
}

/// Number of a register among all.
fn index(reg: Reg) -> u16 {
    match reg {
        Reg::Virtual(v) => FIRST_VIRTUAL + v,
        reg => u16::from(reg.number()),
    }
}

/// The set of one machine register.
pub fn set_of(reg: Reg) -> RegMask {
    1 << reg.number()
}

/// What an instruction does with registers, by their numbers among all.
struct Effect {
    /// Its operands. No instruction has more.
    operands: [Option<(u16, Access)>; 3],
    /// The registers that it reads and clobbers without naming them.
    reads: RegMask,
    clobbers: RegMask,
    calls: bool,
    /// A move: to, from.
    moved: Option<(u16, u16)>,
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
            moved: insn.moved().map(|(to, from)| (index(to), index(from))),
        }
    }

    fn reads(&self) -> impl Iterator<Item = usize> + '_ {
        let operands = self.operands.iter().flatten();
        operands
            .filter(|o| o.1 != Access::Write)
            .map(|o| usize::from(o.0))
    }

    fn writes(&self) -> impl Iterator<Item = usize> + '_ {
        let operands = self.operands.iter().flatten();
        operands
            .filter(|o| o.1 != Access::Read)
            .map(|o| usize::from(o.0))
    }
}

/// Allocates one sequence after the other, in the same memory.
#[derive(Default)]
pub(super) struct Allocator {
    free: RegMask,
    result: RegMask,
    /// The registers of the function's parameters.
    given: RegMask,
    code: Vec<Placed>,
    /// Number of virtual registers, with those of spill code.
    virtuals: usize,
    /// Number of the first virtual register of spill code.
    first_short: usize,
    spilled: Vec<Spilled>,
    steps: Vec<Step>,
    graph: Interference,
    /// The machine registers of the virtual ones, while they are chosen.
    colors: Vec<Option<Reg>>,
}

/// A spilled register.
struct Spilled {
    reg: usize,
    word: i16,
    /// The registers that were live at the same time, as a set.
    neighbours: Vec<u64>,
}

impl Allocator {
    /// The instructions of a sequence in machine registers. `target` gives the instruction that a jump
    /// leads to; the function has `params` parameters.
    pub(super) fn allocate(
        &mut self,
        sequence: &Sequence,
        insns: &[Insn],
        params: usize,
        target: &dyn Fn(u32) -> Option<u32>,
    ) -> Result<&[Placed], Failure> {
        self.begin(sequence, insns, params);
        let mut words = None;
        for _ in 0..ROUNDS {
            let loops = self.find_steps(target);
            self.graph.find(&self.steps, self.virtuals, loops);
            let Err(v) = self.choose_colors() else {
                self.rewrite();
                return Ok(&self.code);
            };
            let v = self.easiest_to_spill(v).ok_or(Failure::Registers)?;
            let words = words.get_or_insert_with(|| free_words(sequence, &self.code));
            // The kernel's verifier loses track of a word that is read behind a path without a write.
            debug_assert!(
                !self.graph.lives_from_start(v),
                "v{v} is read before a write"
            );
            self.spill(v, words)?;
        }
        Err(Failure::Registers)
    }

    fn begin(&mut self, sequence: &Sequence, insns: &[Insn], params: usize) {
        self.free = sequence.free;
        self.result = sequence.result;
        self.given = ARGUMENTS & ((2 << params) - 1);
        self.virtuals = usize::from(sequence.virtuals);
        self.first_short = self.virtuals;
        self.spilled.clear();
        self.code.clear();
        let origins = sequence.pieces.iter().cloned().flatten();
        self.code.extend(origins.map(|origin: u32| Placed {
            insn: insns[origin as usize],
            origin,
            is_original: true,
        }));
    }

    /// Moves a virtual register to one of these stack words.
    fn spill(&mut self, v: usize, words: &[i16]) -> Result<(), Failure> {
        // An earlier one is no longer in the code, but knows its neighbours from the time when it was.
        let clashes = |word: i16| {
            let mut in_word = self.spilled.iter().filter(|s| s.word == word);
            in_word.any(|s| members(&s.neighbours).any(|other| other == v))
        };
        let free = words.iter().copied().find(|word| !clashes(*word));
        let word = free.ok_or(Failure::Words)?;
        self.spilled.push(Spilled {
            reg: v,
            word,
            neighbours: self.graph.of(v).to_vec(),
        });
        let spilled = Reg::Virtual((v - VIRTUAL).fit::<u16>());
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
        let replaced = match placed.insn {
            Insn::Alu {
                width: Width::W64,
                op: AluOp::Mov,
                dst,
                src,
            } if dst == spilled && src != Src::Reg(spilled) => Some(store(src)),
            insn => insn
                .moved()
                .filter(|(_, from)| *from == spilled)
                .map(|(to, _)| load(to)),
        };
        if let Some(insn) = replaced {
            self.code.push(Placed { insn, ..placed });
            return;
        }
        let short = Reg::Virtual(self.virtuals.fit());
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
            is_original: false,
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

    /// Puts the chosen machine registers into the code, and removes moves that do nothing.
    fn rewrite(&mut self) {
        for placed in &mut self.code {
            placed.insn.for_each_operand(&mut |reg, _| {
                if let Reg::Virtual(v) = *reg {
                    let color = self.colors.get(usize::from(v)).copied().flatten();
                    debug_assert!(color.is_some(), "v{v} is of another sequence");
                    *reg = color.unwrap_or(*reg);
                }
            });
        }
        self.code
            .retain(|placed| placed.insn.moved().is_none_or(|(to, from)| to != from));
    }

    /// Chooses a machine register for each virtual one; the error is the first one without.
    fn choose_colors(&mut self) -> Result<(), usize> {
        let Allocator {
            free,
            virtuals,
            graph,
            colors,
            ..
        } = self;
        colors.clear();
        colors.resize(*virtuals, None);
        for rank in [Rank::AcrossCalls, Rank::Machine, Rank::Other] {
            let ranks = graph.ranks.iter().enumerate();
            for (v, _) in ranks.filter(|(_, r)| **r == rank) {
                let reg = VIRTUAL + v;
                let mut busy = graph.of(reg)[0].low16() & MACHINE;
                for other in members(graph.of(reg)).filter(|other| *other >= VIRTUAL) {
                    busy |= colors[other - VIRTUAL].map_or(0, set_of);
                }
                let wanted = graph.partners(reg).filter_map(|other| match other {
                    VIRTUAL.. => colors[other - VIRTUAL],
                    _ => Reg::new(other.fit::<u8>()),
                });
                let mut wanted = wanted.filter(|reg| *reg != Reg::R10 && busy & set_of(*reg) == 0);
                let any = || {
                    ORDER
                        .into_iter()
                        .find(|reg| *free & !busy & set_of(*reg) != 0)
                };
                colors[v] = Some(wanted.next().or_else(any).ok_or(reg)?);
            }
        }
        Ok(())
    }

    /// The virtual register to spill for one that finds no machine register: itself if it is live across a
    /// call, otherwise that one of its neighbours and itself that has the most neighbours. Those of spill
    /// code stay.
    fn easiest_to_spill(&self, v: usize) -> Option<usize> {
        let graph = &self.graph;
        let of_code = VIRTUAL..VIRTUAL + self.first_short;
        if graph.ranks[v - VIRTUAL] == Rank::AcrossCalls && of_code.contains(&v) {
            return Some(v);
        }
        let around = members(graph.of(v)).chain([v]);
        let around = around.filter(|v| of_code.contains(v));
        let around = around.filter(|v| !self.spilled.iter().any(|s| s.reg == *v));
        around.max_by_key(|v| (members(graph.of(*v)).count(), *v))
    }
    /// Finds what each instruction does, and where control goes from it; returns whether some jump leads
    /// back.
    fn find_steps(&mut self, target: &dyn Fn(u32) -> Option<u32>) -> bool {
        let code = &self.code;
        let outside = Held {
            written: MACHINE & !self.free,
            given: 0,
        };
        self.steps.clear();
        self.steps
            .extend((0..code.len()).map(|i| Step::new(code, i, target, outside)));
        let begins = code.first().is_some_and(|p| p.origin == 0);
        if let Some(first) = self.steps.first_mut().filter(|_| begins) {
            first.before.given = self.given;
        }
        let mut steps = self.steps.iter().enumerate();
        let loops = steps.any(|(i, step)| step.jump.is_some_and(|to| to <= i));
        find_held(&mut self.steps, loops);
        for step in &mut self.steps {
            step.outside = match (step.leaves, step.ends) {
                (true, _) => outside.written | step.behind.written,
                (false, true) => outside.written | self.result,
                (false, false) => 0,
            };
        }
        loops
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
                let following = code.get(i + 1).map(|next| next.insn);
                lowest_address = lowest_address.min(match following {
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

/// An instruction of a sequence, with what the liveness of registers follows from.
struct Step {
    effect: Effect,
    /// Whether the next instruction of the code follows.
    next: bool,
    /// The instruction that it jumps to, if that is in the sequence.
    jump: Option<usize>,
    /// Whether it ends a piece, so that another sequence may follow.
    ends: bool,
    /// Whether it jumps out of the sequence.
    leaves: bool,
    /// The machine registers that may hold values in front of it and behind it.
    before: Held,
    behind: Held,
    /// The machine registers that code outside of the sequence may read behind it.
    outside: RegMask,
}

impl Step {
    fn new(code: &[Placed], i: usize, target: &dyn Fn(u32) -> Option<u32>, held: Held) -> Step {
        let placed = &code[i];
        let goes_on = !matches!(placed.insn, Insn::Goto { .. } | Insn::Exit {});
        let follows = code
            .get(i + 1)
            .is_some_and(|next| (placed.origin..placed.origin + 2).contains(&next.origin));
        let mut step = Step {
            effect: Effect::new(&placed.insn),
            next: goes_on && follows,
            jump: None,
            ends: goes_on && !follows,
            leaves: false,
            before: held,
            behind: held,
            outside: 0,
        };
        if let Insn::Goto { .. } | Insn::Jump { .. } | Insn::MayGoto { .. } = placed.insn {
            let to = target(placed.origin);
            // Pieces are sorted, as is the spill code around an instruction.
            let index = to.map(|to| code.partition_point(|p| p.origin < to));
            step.jump = index.filter(|index| code.get(*index).map(|p| p.origin) == to);
            // A label at the end of a piece is bound to what follows it.
            let behind =
                |index: usize| index.checked_sub(1).map(|last| code[last].origin + 1) == to;
            let ends = step.jump.is_none() && index.is_some_and(behind);
            step.ends |= ends;
            step.leaves = step.jump.is_none() && !ends;
        }
        step
    }

    /// The instructions that may follow this one, which is the `i`th.
    fn successors(&self, i: usize) -> impl Iterator<Item = usize> + use<> {
        self.next.then_some(i + 1).into_iter().chain(self.jump)
    }
}

/// When a virtual register chooses its machine register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rank {
    /// First, because it needs a register that calls preserve.
    AcrossCalls,
    /// It is moved to or from a machine register.
    Machine,
    Other,
}

/// Which registers are live at the same time.
#[derive(Default)]
struct Interference {
    /// Number of 64-bit words of each set.
    width: usize,
    /// The neighbours of each register, as a set.
    neighbours: Vec<u64>,
    /// The rank of each virtual register.
    ranks: Vec<Rank>,
    /// The moves between different registers: to, from.
    moves: Vec<(u16, u16)>,
    /// The registers that are live in front of each instruction, as sets.
    live_in: Vec<u64>,
    /// Memory for one set.
    live: Vec<u64>,
}

impl Interference {
    /// Finds them for these instructions, which have this number of virtual registers, and loops or not.
    fn find(&mut self, steps: &[Step], virtuals: usize, loops: bool) {
        let registers = VIRTUAL + virtuals;
        self.width = registers.div_ceil(64);
        self.neighbours.clear();
        self.neighbours.resize(registers * self.width, 0);
        self.ranks.clear();
        self.ranks.resize(virtuals, Rank::Other);
        self.moves.clear();
        let mut live = std::mem::take(&mut self.live);
        live.resize(self.width, 0);
        self.find_live_in(steps, loops, &mut live);
        for (i, step) in steps.iter().enumerate() {
            self.live_out(&mut live, i, step);
            self.add(&step.effect, &live);
        }
        self.live = live;
    }

    /// Finds the registers that are live in front of each instruction; `live` is a set to work with.
    fn find_live_in(&mut self, steps: &[Step], loops: bool, live: &mut [u64]) {
        self.live_in.clear();
        self.live_in.resize(steps.len() * self.width, 0);
        loop {
            let mut changed = false;
            for (i, step) in steps.iter().enumerate().rev() {
                self.live_out(live, i, step);
                let effect = &step.effect;
                for reg in effect.writes() {
                    live[reg / 64] &= !(1 << (reg % 64));
                }
                live[0] &= !u64::from(effect.clobbers);
                live[0] |= u64::from(match effect.calls {
                    true => effect.reads & (step.before.written | step.before.given),
                    false => effect.reads,
                });
                for reg in effect.reads() {
                    live[reg / 64] |= 1 << (reg % 64);
                }
                let row = &mut self.live_in[i * self.width..][..self.width];
                changed |= row != live;
                row.copy_from_slice(live);
            }
            if !(changed && loops) {
                return;
            }
        }
    }

    /// `out` = the registers that are live behind an instruction.
    fn live_out(&self, out: &mut [u64], i: usize, step: &Step) {
        out.fill(0);
        out[0] = step.outside.into();
        for to in step.successors(i) {
            let live_in = &self.live_in[to * self.width..][..self.width];
            out.iter_mut()
                .zip(live_in)
                .for_each(|(out, live)| *out |= live);
        }
    }

    /// Adds the neighbours that an instruction's writes make, with the registers live behind it.
    fn add(&mut self, effect: &Effect, out: &[u64]) {
        if let Some((to, from)) = effect.moved {
            self.moves.push((to, from));
            for (reg, other) in [(to, from), (from, to)] {
                let machine = usize::from(other) < VIRTUAL;
                let v = usize::from(reg).checked_sub(VIRTUAL);
                if let Some(v) = v.filter(|v| machine && self.ranks[*v] == Rank::Other) {
                    self.ranks[v] = Rank::Machine;
                }
            }
        }
        let from = effect.moved.map(|(_, from)| usize::from(from));
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
                self.ranks[other - VIRTUAL] = Rank::AcrossCalls;
            }
        }
    }

    /// Whether a register is live in front of the first instruction.
    fn lives_from_start(&self, reg: usize) -> bool {
        self.live_in[reg / 64] >> (reg % 64) & 1 == 1
    }

    fn connect(&mut self, a: usize, b: usize) {
        self.neighbours[a * self.width + b / 64] |= 1 << (b % 64);
        self.neighbours[b * self.width + a / 64] |= 1 << (a % 64);
    }

    fn of(&self, reg: usize) -> &[u64] {
        &self.neighbours[reg * self.width..][..self.width]
    }

    /// The registers that a register is moved to or from, the last move first.
    fn partners(&self, reg: usize) -> impl Iterator<Item = usize> + '_ {
        self.moves.iter().rev().filter_map(move |&(to, from)| {
            let (to, from) = (usize::from(to), usize::from(from));
            match (to == reg, from == reg) {
                (true, false) => Some(from),
                (false, true) => Some(to),
                _ => None,
            }
        })
    }
}

/// Machine registers that may hold values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Held {
    /// Those that the sequence wrote, and numbers from outside.
    written: RegMask,
    /// Parameters of the function, as they came.
    given: RegMask,
}

impl Held {
    /// What holds behind an instruction, with the one in front of it.
    fn behind(mut self, effect: &Effect, before: Option<&Effect>) -> Held {
        if effect.calls {
            self.written = self.written & !CALLER_SAVED | set_of(R0);
            self.given = 0;
        }
        // A call's result that moves to a virtual register is not read where it was.
        if matches!(effect.moved, Some((FIRST_VIRTUAL.., 0))) && before.is_some_and(|b| b.calls) {
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

/// Finds the machine registers that may hold values in front of each instruction and behind it. Both
/// are those of other sequences at first.
fn find_held(steps: &mut [Step], loops: bool) {
    loop {
        let mut changed = false;
        for i in 0..steps.len() {
            let before = i.checked_sub(1).map(|before| &steps[before].effect);
            let step = &steps[i];
            let now = step.before.behind(&step.effect, before);
            changed |= step.behind != now;
            let successors = step.successors(i);
            steps[i].behind = now;
            for to in successors {
                let joined = steps[to].before.or(now);
                changed |= joined != steps[to].before;
                steps[to].before = joined;
            }
        }
        if !(changed && loops) {
            return;
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
