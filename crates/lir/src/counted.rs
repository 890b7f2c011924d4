//! Turns inline and open loops into jumps back with a counter, as the kernel runs them where a callback needs a
//! frame too many, or costs more than it saves.
//!
//! ```text
//!   jump loop(%a)                            jump loop(%a, 0)
//! loop(%i): loop 9 inline else end(%i) ──► loop(%i, %n): if ge %n, 9 then end(%i) else loop_body
//!   ...                                    loop_body: %next = add %n, 1; ...
//!   jump loop(%j)                            jump loop(%j, %next)
//! ```

use spile_cast::Cast;

use crate::cfg::{Cfg, CfgNode};
use crate::func::{BlockId, JumpTarget, LirBlock, LirFunc, LirInst, LirTerm, LoopForm, Operand};
use crate::op::{AluOp, Cond, Width};

/// Turns all loops of a function that still have a bound into jumps back with a counter.
pub fn count(func: &mut LirFunc) {
    count_if(func, |_| true);
}

/// The same without open loops, for a host that stops them itself.
pub fn count_closed(func: &mut LirFunc) {
    count_if(func, |form| form != LoopForm::Open);
}

fn count_if(func: &mut LirFunc, counts: impl Fn(LoopForm) -> bool) {
    let counts = |b: &LirBlock| b.bound.as_ref().is_some_and(|bound| counts(bound.form));
    while let Some(header) = func.blocks.iter().position(counts) {
        counted(func, header);
    }
}

fn counted(func: &mut LirFunc, header: usize) {
    let latches: Vec<CfgNode> = Cfg::new(func).latches(header).collect();
    let Some(bound) = func.blocks[header].bound.take() else {
        return;
    };
    let [zero, n, next] =
        ["zero", "n", "next"].map(|name| func.value(format!("{name}.{}", func.values.len())));
    for (i, block) in func.blocks.iter_mut().enumerate() {
        let count = |from| if latches.contains(&from) { next } else { zero };
        let targets = block.term.targets_mut().into_iter();
        let exhausted = block.bound.iter_mut().map(|b| &mut b.exhausted);
        let edges = targets.map(|t| (t, CfgNode::body(i)));
        let edges = edges.chain(exhausted.map(|t| (t, CfgNode::entry(i))));
        for (target, from) in edges.filter(|(t, _)| t.block.index() == header) {
            target.args.push(count(from));
        }
    }
    let body = JumpTarget {
        block: BlockId(func.blocks.len().fit()),
        args: Vec::new(),
    };
    let block = &mut func.blocks[header];
    block.params.push(n);
    let check = LirTerm::Branch {
        cond: Cond::Ge,
        width: Width::W64,
        a: n,
        b: Operand::Imm(bound.max.cast_signed()),
        then: bound.exhausted,
        els: body,
    };
    let mut insts = vec![LirInst::Alu {
        dst: next,
        width: Width::W64,
        op: AluOp::Add,
        a: n,
        b: Operand::Imm(1),
    }];
    insts.append(&mut block.insts);
    let body = LirBlock {
        name: format!("{}_body", block.name),
        params: Vec::new(),
        bound: None,
        insts,
        term: std::mem::replace(&mut block.term, check),
    };
    func.blocks.push(body);
    if let Some(entry) = func.blocks.first_mut() {
        entry.insts.insert(0, LirInst::Const { dst: zero, imm: 0 });
    }
}
