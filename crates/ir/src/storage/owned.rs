//! Which elements of arrays are a handler's own while it runs: those with the id of its thread, or
//! the number of its processor, as first key (see the parent module, rule 2).

use std::cell::OnceCell;

use crate::analysis::dataflow::{self, Direction, Exit, Forward, Lattice, Step};
use crate::analysis::liveness::Liveness;
use crate::*;

/// Whose elements a handler has for itself: the intrinsics that give the number. It is the same for
/// as long as the handler runs.
const OWNERS: [(Intrinsic, Owner); 3] = [
    (Intrinsic::Tid, Owner::Thread),
    (Intrinsic::NextTid, Owner::Thread),
    (Intrinsic::Cpu, Owner::Processor),
];

/// Whose number a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A thread's.
    Thread,
    /// A processor's.
    Processor,
    /// A call's, of a function or the system: of arrays with values of entries, whatever their keys
    /// look like.
    Call,
}

/// Whether analysis made the array for values of entries (`@entry`): its elements belong to one call
/// each. Names of scripts have no `@`.
pub(super) fn of_calls(global: &Global) -> bool {
    global.name.starts_with("@entry")
}

/// What is known of a handler's body.
pub(super) struct Owned {
    /// By owner, by register: whether it only ever holds the owner's number.
    holds: [Vec<bool>; OWNERS.len()],
    /// By block, by owner: whether the number is nobody else's there. The idle threads of all
    /// processors have the id 0.
    known: Vec<Certain>,
}

impl Owned {
    /// Looks through the body of a handler of that event.
    pub(super) fn of(event: &Event, body: &Body) -> Owned {
        let undefined = OnceCell::new();
        let holds = OWNERS.map(|(f, _)| registers(body, f, &undefined));
        // System calls and programs are never those of an idle thread.
        let own = matches!(event, Event::SysEnter(_) | Event::SysExit(_)) || event.in_user_code();
        // A handler of the kernel stays on its processor, and no other runs there meanwhile.
        let known = not_zero(body, &holds, [own, false, event.in_kernel()]);
        Owned { holds, known }
    }

    /// Whose own elements with the first key `key` are in that block.
    pub(super) fn holds(&self, block: usize, key: Val) -> Option<Owner> {
        let Val::Reg(r) = key else { return None };
        let is = |owner: usize| self.holds[owner].get(r.index()) == Some(&true);
        let owner = (0..OWNERS.len()).find(|owner| self.known[block][*owner] && is(*owner))?;
        Some(OWNERS[owner].1)
    }
}

/// Which registers of a body hold a thread's id, whose elements are a handler's own.
pub struct Threads([Vec<bool>; Threads::COUNT]);

impl Threads {
    /// How many threads a handler can have elements of: the current one, and the next.
    pub const COUNT: usize = 2;

    /// Looks through a body.
    pub fn of(body: &Body) -> Threads {
        let undefined = OnceCell::new();
        Threads([Intrinsic::Tid, Intrinsic::NextTid].map(|f| registers(body, f, &undefined)))
    }

    /// Which of them has this id, in one run of the handler.
    pub fn which(&self, key: Val) -> Option<usize> {
        let Val::Reg(r) = key else { return None };
        self.0.iter().position(|h| h.get(r.index()) == Some(&true))
    }
}

/// What writes a register, as far as one intrinsic is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Holds {
    /// Nothing so far.
    Unwritten,
    /// What the intrinsic gives.
    Number,
    /// Something else, too.
    Other,
}

impl Lattice for Holds {
    fn join(&mut self, other: &Holds) -> bool {
        let more = *other > *self;
        *self = (*self).max(*other);
        more
    }
}

/// The registers that only ever hold what an intrinsic gives. `undefined`: those that can be read
/// before they are written, found out where needed.
fn registers(body: &Body, of: Intrinsic, undefined: &OnceCell<Vec<Reg>>) -> Vec<bool> {
    let mut insts = body.insts();
    if !insts.any(|i| matches!(i, Inst::Intr { f, .. } if *f == of)) {
        return vec![false; body.regs.len()];
    }
    let mut start = vec![Holds::Unwritten; body.regs.len()];
    // They read as 0.
    for r in undefined.get_or_init(|| Liveness::of(body).live_in(BlockId(0)).collect()) {
        start[r.index()] = Holds::Other;
    }
    let holds = dataflow::registers(body, Direction::Forwards, start, |step, known| match step {
        Step::Inst(Inst::Intr {
            dst: Some(dst), f, ..
        }) if *f == of => known.join(*dst, &Holds::Number),
        Step::Inst(Inst::Copy {
            dst,
            src: Val::Reg(src),
        }) => {
            let src = known.get(*src).copied();
            known.join(*dst, &src.unwrap_or(Holds::Other));
        }
        Step::Inst(inst) => {
            let dst = inst.dst().into_iter();
            dst.for_each(|r| known.join(r, &Holds::Other));
        }
        Step::Term(term) => term.for_each_dst(|r| known.join(r, &Holds::Other)),
    });
    holds.into_iter().map(|h| h == Holds::Number).collect()
}

/// Whether the number of each owner is nobody else's.
type Certain = [bool; OWNERS.len()];

impl Lattice for Certain {
    fn join(&mut self, other: &Certain) -> bool {
        let before = *self;
        self.iter_mut().zip(other).for_each(|(a, b)| *a &= b);
        *self != before
    }
}

struct NotZero<'a> {
    start: Certain,
    tests: &'a [Option<(usize, BlockId)>],
}

impl Forward for NotZero<'_> {
    type Fact = Certain;

    fn entry(&self) -> Certain {
        self.start
    }

    fn block(&self, _: BlockId, start: &Certain) -> Exit<Certain> {
        Exit {
            end: *start,
            anywhere: *start,
        }
    }

    fn jump(&self, id: BlockId, to: BlockId, fact: &mut Certain) {
        if let Some((owner, there)) = self.tests[id.index()]
            && there == to
        {
            fact[owner] = true;
        }
    }
}

/// By block, whether the numbers are nobody else's when it begins: they were from the start, or on
/// every way there stands a test that they are not 0.
fn not_zero(body: &Body, holds: &[Vec<bool>; OWNERS.len()], start: Certain) -> Vec<Certain> {
    let tests = tests(body, holds);
    let tests = &tests[..];
    let found = dataflow::forward(body, &NotZero { start, tests });
    let nowhere = [true; OWNERS.len()];
    found.into_iter().map(|c| c.unwrap_or(nowhere)).collect()
}

/// By block: whose number its branch tests, and where that goes on if it is not 0.
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
