//! Ownership of array elements by handlers: a running handler owns the elements whose first key is
//! the id of its thread, or the number of its processor (see the parent module, rule 2).

use std::cell::OnceCell;

use crate::analysis::dataflow::{self, Direction, ExitFacts, Forward, InstOrTerm, Lattice};
use crate::analysis::liveness::Liveness;
use crate::*;

/// The intrinsics that give the number of an owner. The number stays the same while the handler
/// runs.
const OWNERS: [(Intrinsic, Owner); 3] = [
    (Intrinsic::Tid, Owner::Thread),
    (Intrinsic::NextTid, Owner::Thread),
    (Intrinsic::Cpu, Owner::Processor),
];

/// The owner that a key stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A thread.
    Thread,
    /// A processor.
    Processor,
    /// A call of a function or the system: for arrays with values of entries, whatever their keys.
    Call,
}

/// The ownership facts of a handler's body.
pub(super) struct Ownership {
    /// By owner, by register: whether it only ever holds the owner's number.
    holds: [Vec<bool>; OWNERS.len()],
    /// By block, by owner: whether the number is unique to the handler there. The idle threads of
    /// all processors share the id 0.
    unique: Vec<UniqueOwners>,
}

impl Ownership {
    /// Analyses the body of a handler of that event.
    pub(super) fn new(event: &Event, body: &Body) -> Ownership {
        let undefined = OnceCell::new();
        let holds = OWNERS.map(|(f, _)| registers(body, f, &undefined));
        // System calls and programs never run in an idle thread.
        let unique_thread =
            matches!(event, Event::SysEnter(_) | Event::SysExit(_)) || event.in_user_code();
        // A kernel handler stays on its processor, and no other one runs there meanwhile.
        let unique = unique_at_start(body, &holds, [unique_thread, false, event.is_compiled()]);
        Ownership { holds, unique }
    }

    /// The owner of elements with the first key `key` in that block.
    pub(super) fn holds(&self, block: usize, key: Val) -> Option<Owner> {
        let Val::Reg(r) = key else { return None };
        let is = |owner: usize| self.holds[owner].get(r.index()) == Some(&true);
        let owner = (0..OWNERS.len()).find(|owner| self.unique[block][*owner] && is(*owner))?;
        Some(OWNERS[owner].1)
    }
}

/// The registers of a body that hold a thread's id, whose elements belong to the handler.
pub struct ThreadIdRegs([Vec<bool>; ThreadIdRegs::COUNT]);

impl ThreadIdRegs {
    /// Number of threads whose elements a handler can own: the current one, and the next.
    pub const COUNT: usize = 2;

    /// Analyses a body.
    pub fn new(body: &Body) -> ThreadIdRegs {
        let undefined = OnceCell::new();
        ThreadIdRegs([Intrinsic::Tid, Intrinsic::NextTid].map(|f| registers(body, f, &undefined)))
    }

    /// The thread that has this id, in one run of the handler.
    pub fn thread_index(&self, key: Val) -> Option<usize> {
        let Val::Reg(r) = key else { return None };
        self.0.iter().position(|h| h.get(r.index()) == Some(&true))
    }
}

/// The writers of a register, with regard to one intrinsic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RegWriters {
    /// No writer so far.
    Unwritten,
    /// Only the intrinsic.
    Number,
    /// Another writer as well.
    Other,
}

impl Lattice for RegWriters {
    fn join(&mut self, other: &RegWriters) -> bool {
        let more = *other > *self;
        *self = (*self).max(*other);
        more
    }
}

/// The registers that only ever hold the intrinsic's result. `undefined`: those that can be read
/// before they are written, computed on demand.
fn registers(body: &Body, intrinsic: Intrinsic, undefined: &OnceCell<Vec<Reg>>) -> Vec<bool> {
    let mut insts = body.insts();
    if !insts.any(|i| matches!(i, Inst::Intr { f, .. } if *f == intrinsic)) {
        return vec![false; body.regs.len()];
    }
    let mut start = vec![RegWriters::Unwritten; body.regs.len()];
    // These read as 0.
    for r in undefined.get_or_init(|| Liveness::new(body).live_in(BlockId(0)).collect()) {
        start[r.index()] = RegWriters::Other;
    }
    let holds = dataflow::registers(body, Direction::Forwards, start, |step, known| match step {
        InstOrTerm::Inst(Inst::Intr {
            dst: Some(dst), f, ..
        }) if *f == intrinsic => known.join(*dst, &RegWriters::Number),
        InstOrTerm::Inst(Inst::Copy {
            dst,
            src: Val::Reg(src),
        }) => {
            let src = known.get(*src).copied();
            known.join(*dst, &src.unwrap_or(RegWriters::Other));
        }
        InstOrTerm::Inst(inst) => {
            let dst = inst.dst().into_iter();
            dst.for_each(|r| known.join(r, &RegWriters::Other));
        }
        InstOrTerm::Term(term) => term.for_each_dst(|r| known.join(r, &RegWriters::Other)),
    });
    holds.into_iter().map(|h| h == RegWriters::Number).collect()
}

/// For each owner, whether its number is unique to the handler.
type UniqueOwners = [bool; OWNERS.len()];

impl Lattice for UniqueOwners {
    fn join(&mut self, other: &UniqueOwners) -> bool {
        let before = *self;
        self.iter_mut().zip(other).for_each(|(a, b)| *a &= b);
        *self != before
    }
}

struct UniquenessAnalysis<'a> {
    start: UniqueOwners,
    tests: &'a [Option<(usize, BlockId)>],
}

impl Forward for UniquenessAnalysis<'_> {
    type Fact = UniqueOwners;

    fn entry(&self) -> UniqueOwners {
        self.start
    }

    fn block(&self, _: BlockId, start: &UniqueOwners) -> ExitFacts<UniqueOwners> {
        ExitFacts {
            end: *start,
            anywhere: *start,
        }
    }

    fn jump(&self, id: BlockId, to: BlockId, fact: &mut UniqueOwners) {
        if let Some((owner, target)) = self.tests[id.index()]
            && target == to
        {
            fact[owner] = true;
        }
    }
}

/// By block: whether the numbers are unique when it begins. They are from the start, or a test on
/// every path excludes 0.
fn unique_at_start(
    body: &Body,
    holds: &[Vec<bool>; OWNERS.len()],
    start: UniqueOwners,
) -> Vec<UniqueOwners> {
    let tests = tests(body, holds);
    let tests = &tests[..];
    let starts = dataflow::forward(body, &UniquenessAnalysis { start, tests });
    let nowhere = [true; OWNERS.len()];
    starts.into_iter().map(|c| c.unwrap_or(nowhere)).collect()
}

/// By block: the owner whose number its branch tests, and the target if it is not 0.
fn tests(body: &Body, holds: &[Vec<bool>; OWNERS.len()]) -> Vec<Option<(usize, BlockId)>> {
    let mut defs: Vec<Option<Option<&Inst>>> = vec![None; body.regs.len()];
    let mut define = |r: Reg, inst| {
        if let Some(def) = defs.get_mut(r.index()) {
            *def = Some(if def.is_none() { inst } else { None });
        }
    };
    for block in &body.blocks {
        for (inst, _) in &block.insts {
            inst.dst().into_iter().for_each(|r| define(r, Some(inst)));
        }
        block.term.for_each_dst(|r| define(r, None));
    }
    let owner = |v: Val| match v {
        Val::Reg(r) => (0..OWNERS.len()).find(|o| holds[*o].get(r.index()) == Some(&true)),
        _ => None,
    };
    let tested = |block: &Block| {
        let Term::Branch { cond, then, els } = block.term else {
            return None;
        };
        if then == els {
            return None;
        }
        if let Some(owner) = owner(cond) {
            return Some((owner, then));
        }
        let Val::Reg(r) = cond else { return None };
        match defs.get(r.index()).copied().flatten().flatten()? {
            Inst::Un {
                op: UnOp::Not, a, ..
            } => owner(*a).map(|o| (o, els)),
            Inst::Bin {
                op,
                a,
                b: Val::Imm(0),
                ..
            } => match op {
                BinOp::Ne | BinOp::Gt => owner(*a).map(|o| (o, then)),
                BinOp::Eq | BinOp::Le => owner(*a).map(|o| (o, els)),
                _ => None,
            },
            _ => None,
        }
    };
    body.blocks.iter().map(tested).collect()
}
