//! Which elements of arrays are a handler's own while it runs: those with the id of its thread, or
//! the number of its processor, as first key (see the parent module, rule 2).

use std::cell::OnceCell;

use crate::liveness::Liveness;
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
    known: Vec<[bool; OWNERS.len()]>,
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

/// The registers that only ever hold what an intrinsic gives. `undefined`: those that can be read
/// before they are written, found out where needed.
fn registers(body: &Body, of: Intrinsic, undefined: &OnceCell<Vec<Reg>>) -> Vec<bool> {
    let mut insts = body.insts();
    if !insts.any(|i| matches!(i, Inst::Intr { f, .. } if *f == of)) {
        return vec![false; body.regs.len()];
    }
    let mut holds = vec![true; body.regs.len()];
    let mut written = vec![false; body.regs.len()];
    // They read as 0.
    for r in undefined.get_or_init(|| Liveness::of(body).live_in(BlockId(0)).collect()) {
        holds[r.index()] = false;
    }
    let mut changed = true;
    while changed {
        changed = false;
        let mut write = |r: Reg, ok: bool| {
            if let (Some(h), Some(w)) = (holds.get_mut(r.index()), written.get_mut(r.index())) {
                changed |= *h && !ok;
                *h &= ok;
                *w = true;
            }
        };
        let mut copies = Vec::new();
        for block in &body.blocks {
            for (inst, _) in &block.insts {
                match inst {
                    Inst::Intr {
                        dst: Some(dst), f, ..
                    } if *f == of => write(*dst, true),
                    Inst::Copy {
                        dst,
                        src: Val::Reg(src),
                    } => copies.push((*dst, *src)),
                    _ => inst.dst().into_iter().for_each(|r| write(r, false)),
                }
            }
            block.term.for_each_dst(|r| write(r, false));
        }
        for (dst, src) in copies {
            let ok = holds.get(src.index()) == Some(&true);
            if let (Some(h), Some(w)) = (holds.get_mut(dst.index()), written.get_mut(dst.index())) {
                changed |= *h && !ok;
                *h &= ok;
                *w = true;
            }
        }
    }
    holds.iter().zip(written).map(|(h, w)| *h && w).collect()
}

/// By block and owner, whether the number is nobody else's when the block begins: it was from the
/// start, or on every way there stands a test that it is not 0.
fn not_zero(
    body: &Body,
    holds: &[Vec<bool>; OWNERS.len()],
    start: [bool; OWNERS.len()],
) -> Vec<[bool; OWNERS.len()]> {
    let tests = tests(body, holds);
    let mut known = vec![[true; OWNERS.len()]; body.blocks.len()];
    known[0] = start;
    let mut changed = true;
    while changed {
        changed = false;
        for (i, block) in body.blocks.iter().enumerate() {
            for to in block.successors() {
                let mut after = known[i];
                if let Some((owner, there)) = tests[i]
                    && there == to
                    && block.catch != Some(to)
                {
                    after[owner] = true;
                }
                for (owner, ok) in after.into_iter().enumerate() {
                    changed |= known[to.index()][owner] && !ok;
                    known[to.index()][owner] &= ok;
                }
            }
        }
    }
    known
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
