//! Globals that a handler takes: its only change to the global, on every path, is to empty it. What
//! the handler read before was the content when it began. Additions that come in the meantime stay
//! for its next run. So the handler needs the lock only while it takes the content, and not while
//! it runs.

use std::collections::BTreeSet;

use crate::{Body, FuncId, GlobalId, GlobalKind, Inst, Program, Term, Ty, Val};

/// Whether an instruction empties a global.
fn empties(program: &Program, inst: &Inst, global: GlobalId) -> bool {
    match inst {
        Inst::GClear { g } => *g == global,
        Inst::GStore {
            g,
            val: Val::Imm(0),
        } if *g == global => matches!(program.kind(*g), Some(GlobalKind::Scalar(Ty::Long))),
        _ => false,
    }
}

/// Whether a handler empties a global on each path to its end, and changes it in no other way.
/// Paths that end by an error do not count: the controller puts back what was taken.
pub fn takes(program: &Program, body: &Body, global: GlobalId) -> bool {
    let insts = || body.insts();
    let changes = |i: &Inst| i.writes_global() && i.global() == Some(global);
    insts().all(|i| !changes(i) || empties(program, i, global))
        && callees(program, insts()).iter().all(|f| {
            let blocks = || f.blocks.iter();
            blocks().all(|b| !matches!(b.term, Term::EndHandler))
                && blocks().all(|b| !b.insts.iter().any(|(i, _)| changes(i)))
        })
        && always_empties(program, body, global)
}

/// The globals that code touches and the globals that it changes, including those of functions that
/// it calls.
pub fn access_sets(program: &Program, body: &Body) -> (BTreeSet<GlobalId>, BTreeSet<GlobalId>) {
    let (mut globals, mut changed) = (BTreeSet::new(), BTreeSet::new());
    let insts = body.insts();
    let called = callees(program, body.insts());
    for inst in insts.chain(called.into_iter().flat_map(Body::insts)) {
        globals.extend(inst.global());
        changed.extend(inst.global().filter(|_| inst.writes_global()));
    }
    (globals, changed)
}

/// The functions that instructions call, directly or through others.
fn callees<'a>(program: &'a Program, insts: impl Iterator<Item = &'a Inst>) -> Vec<&'a Body> {
    let callee = |i: &Inst| match i {
        Inst::Call { func, .. } => Some(*func),
        _ => None,
    };
    let mut seen: BTreeSet<FuncId> = BTreeSet::new();
    let mut todo: Vec<FuncId> = insts.filter_map(callee).collect();
    let mut bodies = Vec::new();
    while let Some(func) = todo.pop() {
        if seen.insert(func)
            && let Some(func) = program.funcs.get(func.index())
        {
            let insts = func.body.insts();
            todo.extend(insts.filter_map(callee));
            bodies.push(&func.body);
        }
    }
    bodies
}

/// Whether each path from the first block to an end empties the global.
fn always_empties(program: &Program, body: &Body, global: GlobalId) -> bool {
    // By block: whether it can begin before the global was emptied.
    let mut full = vec![false; body.blocks.len()];
    let mut todo = vec![0];
    while let Some(n) = todo.pop() {
        let Some(block) = body.blocks.get(n) else {
            return false;
        };
        if std::mem::replace(&mut full[n], true) {
            continue;
        }
        let emptied = block.insts.iter().any(|(i, _)| empties(program, i, global));
        if !emptied && matches!(block.term, Term::Ret(_) | Term::EndHandler) {
            return false;
        }
        // An instruction can fail before the global is emptied.
        let next = block.successors();
        let next = next.filter(|b| !emptied || Some(*b) == block.catch);
        todo.extend(next.map(|b| b.index()));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Block, BlockId, Func, Global, Reg, SiteId, storage::Storage};

    const G: GlobalId = GlobalId(0);
    const CLEAR: Inst = Inst::GClear { g: G };
    const LOAD: Inst = Inst::GLoad { dst: Reg(0), g: G };

    fn block(insts: &[Inst], term: Term) -> Block {
        Block {
            insts: insts.iter().map(|i| (i.clone(), SiteId(0))).collect(),
            term,
            catch: None,
        }
    }

    fn program() -> Program {
        let global = Global {
            name: "g".into(),
            kind: GlobalKind::Scalar(Ty::Long),
            init: None,
            storage: Storage::Shared { lock: true },
            display: false,
            site: SiteId(0),
        };
        let func = |insts: &[Inst], term| Func {
            name: "f".into(),
            params: vec![],
            ret: None,
            recursive: false,
            body: Body {
                blocks: vec![block(insts, term)],
                ..Body::default()
            },
        };
        Program {
            globals: vec![global],
            funcs: vec![
                func(&[LOAD], Term::Ret(None)),
                func(&[CLEAR], Term::Ret(None)),
                func(&[], Term::EndHandler),
            ],
            ..Program::default()
        }
    }

    fn taken(blocks: Vec<Block>) -> bool {
        let body = Body {
            blocks,
            ..Body::default()
        };
        takes(&program(), &body, G)
    }

    #[test]
    fn globals_emptied_on_every_path_are_taken() {
        let ret = || Term::Ret(None);
        let branch = || Term::Branch {
            cond: Val::Reg(Reg(0)),
            then: BlockId(1),
            els: BlockId(2),
        };
        assert!(taken(vec![block(&[LOAD, CLEAR, LOAD], ret())]));
        assert!(!taken(vec![block(&[LOAD], ret())]));
        let both = |one: &[Inst], other: &[Inst]| {
            taken(vec![
                block(&[LOAD], branch()),
                block(one, ret()),
                block(other, ret()),
            ])
        };
        assert!(both(&[CLEAR], &[CLEAR]));
        assert!(!both(&[CLEAR], &[]));
        let end = |n| Inst::Call {
            dst: None,
            func: FuncId(n),
            args: vec![],
        };
        assert!(both(&[CLEAR], &[end(0), CLEAR]));
        assert!(!both(&[CLEAR], &[end(1), CLEAR]), "a function changes it");
        assert!(!both(&[CLEAR], &[end(2), CLEAR]), "it ends before");
    }

    #[test]
    fn other_changes_and_errors_prevent_taking() {
        let store = |n| Inst::GStore {
            g: G,
            val: Val::Imm(n),
        };
        let one = |insts: &[Inst]| taken(vec![block(insts, Term::Ret(None))]);
        assert!(one(&[LOAD, store(0)]));
        assert!(!one(&[store(1), CLEAR]));
        let catch = |insts: &[Inst]| {
            let mut first = block(&[LOAD, CLEAR], Term::Jump(BlockId(1)));
            first.catch = Some(BlockId(1));
            taken(vec![first, block(insts, Term::Ret(None))])
        };
        assert!(!catch(&[]));
        assert!(catch(&[CLEAR]));
    }
}
