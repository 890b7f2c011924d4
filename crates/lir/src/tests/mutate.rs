//! Mutations of a function for tests of tests: each one changes one operation. A test that finds no
//! difference has a gap, or the two functions mean the same.

use std::collections::HashMap;

use crate::func::{LirFunc, LirInst, LirTerm, Operand, Value};
use crate::op::{AluOp, AtomicOp, Cond, ExtOp, Size};

/// A change of one operation.
#[derive(Debug, Clone)]
pub struct Mutation {
    block: usize,
    change: Change,
}

#[derive(Debug, Clone)]
enum Change {
    /// Another instruction at that index, or none.
    Inst(usize, Option<LirInst>),
    /// Another end of the block.
    Term(LirTerm),
    /// Another bound of the loop.
    Bound(u32),
}

impl Mutation {
    /// The changed function. It need not be valid.
    pub fn apply(&self, func: &LirFunc) -> LirFunc {
        let mut mutant = func.clone();
        let block = &mut mutant.blocks[self.block];
        match &self.change {
            Change::Inst(at, Some(new)) => block.insts[*at] = new.clone(),
            Change::Inst(at, None) => drop(block.insts.remove(*at)),
            Change::Term(new) => block.term = new.clone(),
            Change::Bound(new) => {
                if let Some(bound) = &mut block.bound {
                    bound.max = *new;
                }
            }
        }
        mutant
    }

    /// Whether the result is another one.
    pub fn changes_result(&self) -> bool {
        matches!(self.change, Change::Term(LirTerm::Ret(_)))
    }

    /// The location and the change.
    pub fn describe(&self, func: &LirFunc) -> String {
        let block = &func.blocks[self.block];
        let (old, new) = match &self.change {
            Change::Inst(at, new) => {
                let new = new.as_ref().map_or("nothing".into(), |i| func.show(i));
                (func.show(&block.insts[*at]), new)
            }
            Change::Term(new) => (func.show_term(&block.term), func.show_term(new)),
            Change::Bound(new) => {
                let old = block.bound.as_ref().map_or(0, |bound| bound.max);
                (format!("loop {old}"), format!("loop {new}"))
            }
        };
        format!("@{} {}: {old} -> {new}", func.name, block.name)
    }
}

/// All mutations of a function: another operation, condition or size, a constant one larger or smaller,
/// operands in the other order, a store left out, an iteration less. Functions that differ in numbers
/// only have the same mutations in the same order.
pub fn mutations(func: &LirFunc) -> Vec<Mutation> {
    let mut all = Vec::new();
    let insts_of = func.blocks.iter().flat_map(|b| &b.insts);
    let constants: HashMap<Value, i64> = insts_of
        .filter_map(|inst| match inst {
            LirInst::Const { dst, imm } => Some((*dst, *imm)),
            _ => None,
        })
        .collect();
    for (b, block) in func.blocks.iter().enumerate() {
        let mut add = |change| all.push(Mutation { block: b, change });
        let constant = |v: &Value| constants.get(v).copied();
        for (at, inst) in block.insts.iter().enumerate() {
            insts(inst)
                .into_iter()
                .for_each(|new| add(Change::Inst(at, new)));
        }
        terms(&block.term, constant)
            .into_iter()
            .for_each(|new| add(Change::Term(new)));
        if let Some(bound) = block.bound.as_ref().filter(|b| b.max > 1) {
            add(Change::Bound(bound.max - 1));
        }
    }
    all
}

fn another_op(op: AluOp) -> AluOp {
    match op {
        AluOp::Add => AluOp::Sub,
        AluOp::Sub | AluOp::Mul | AluOp::Xor => AluOp::Add,
        AluOp::Div => AluOp::Mod,
        AluOp::Mod => AluOp::Div,
        AluOp::Sdiv => AluOp::Div,
        AluOp::Smod => AluOp::Mod,
        AluOp::And => AluOp::Or,
        AluOp::Or => AluOp::And,
        AluOp::Lsh => AluOp::Rsh,
        AluOp::Rsh => AluOp::Lsh,
        AluOp::Arsh => AluOp::Rsh,
    }
}

fn another_atomic(op: AtomicOp) -> AtomicOp {
    match op {
        AtomicOp::Add => AtomicOp::Xor,
        AtomicOp::Or | AtomicOp::And | AtomicOp::Xor => AtomicOp::Add,
        AtomicOp::FetchAdd => AtomicOp::Xchg,
        AtomicOp::FetchOr | AtomicOp::FetchAnd | AtomicOp::FetchXor => AtomicOp::FetchAdd,
        AtomicOp::Xchg | AtomicOp::CmpXchg => AtomicOp::FetchAdd,
    }
}

fn commutes(op: AluOp) -> bool {
    matches!(
        op,
        AluOp::Add | AluOp::Mul | AluOp::And | AluOp::Or | AluOp::Xor
    )
}

/// The opposite condition, and one that differs for equal numbers or for large ones.
fn other_conditions(cond: Cond) -> [Cond; 2] {
    match cond {
        Cond::Eq => [Cond::Ne, Cond::Ge],
        Cond::Ne => [Cond::Eq, Cond::Gt],
        Cond::Gt => [Cond::Le, Cond::Ge],
        Cond::Ge => [Cond::Lt, Cond::Gt],
        Cond::Lt => [Cond::Ge, Cond::Le],
        Cond::Le => [Cond::Gt, Cond::Lt],
        Cond::Sgt => [Cond::Sle, Cond::Gt],
        Cond::Sge => [Cond::Slt, Cond::Ge],
        Cond::Slt => [Cond::Sge, Cond::Lt],
        Cond::Sle => [Cond::Sgt, Cond::Le],
        Cond::Set => [Cond::Eq, Cond::Ne],
    }
}

fn smaller(size: Size) -> Size {
    match size {
        Size::U64 => Size::U32,
        Size::U32 => Size::U16,
        Size::U16 => Size::U8,
        Size::U8 => Size::U16,
    }
}

/// One more and one less.
fn neighbours(operand: &Operand) -> Vec<Operand> {
    match operand {
        Operand::Value(_) => Vec::new(),
        Operand::Imm(n) => [n.checked_add(1), n.checked_sub(1)]
            .into_iter()
            .flatten()
            .map(Operand::Imm)
            .collect(),
    }
}

/// The changes of arithmetic.
fn alu(inst: &LirInst) -> Vec<LirInst> {
    let LirInst::Alu {
        dst,
        width,
        op,
        a,
        b,
    } = inst
    else {
        return Vec::new();
    };
    let with = |op, a, b| LirInst::Alu {
        dst: *dst,
        width: *width,
        op,
        a,
        b,
    };
    let mut all = Vec::new();
    // Most operations with 0 change nothing.
    if *b != Operand::Imm(0) || matches!(op, AluOp::And | AluOp::Mul) {
        all.push(with(another_op(*op), *a, *b));
    }
    all.extend(neighbours(b).into_iter().map(|n| with(*op, *a, n)));
    if let Operand::Value(b) = b
        && !commutes(*op)
    {
        all.push(with(*op, *b, Operand::Value(*a)));
    }
    all
}

/// The changes of an instruction.
fn insts(inst: &LirInst) -> Vec<Option<LirInst>> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut LirInst)| {
        let mut new = inst.clone();
        change(&mut new);
        all.push(Some(new));
    };
    match inst {
        LirInst::Const { imm, .. } => {
            for n in [imm.wrapping_add(1), imm.wrapping_sub(1)] {
                with(&|i| set_imm(i, n));
            }
        }
        LirInst::Alu { .. } => all.extend(alu(inst).into_iter().map(Some)),
        LirInst::Ext { op, size, .. } => {
            let (other_op, other_size) = match op {
                ExtOp::Zext => (ExtOp::Sext, smaller(*size)),
                ExtOp::Sext | ExtOp::Swap => (ExtOp::Zext, smaller(*size)),
            };
            with(&|i| set_ext(i, other_op, *size));
            with(&|i| set_ext(i, *op, other_size));
        }
        LirInst::Load { size, off, .. } => {
            let (size, off) = (*size, *off);
            with(&|i| set_access(i, smaller(size), off));
            for off in [off.checked_add(1), off.checked_sub(1)]
                .into_iter()
                .flatten()
            {
                with(&|i| set_access(i, size, off));
            }
        }
        LirInst::Store { size, off, src, .. } => {
            let (size, off) = (*size, *off);
            with(&|i| set_access(i, smaller(size), off));
            for n in neighbours(src) {
                with(&|i| set_source(i, n));
            }
            all.push(None);
        }
        LirInst::Atomic { op, .. } => {
            let other = another_atomic(*op);
            with(&|i| {
                if let LirInst::Atomic { op, .. } = i {
                    *op = other;
                }
            });
        }
        LirInst::Bound { .. }
        | LirInst::Opaque { .. }
        | LirInst::Addr { .. }
        | LirInst::Helper { .. }
        | LirInst::Call { .. }
        | LirInst::Repeat { .. } => {}
    }
    all
}

fn set_imm(inst: &mut LirInst, n: i64) {
    if let LirInst::Const { imm, .. } = inst {
        *imm = n;
    }
}

fn set_ext(inst: &mut LirInst, to: ExtOp, bytes: Size) {
    if let LirInst::Ext { op, size, .. } = inst {
        (*op, *size) = (to, bytes);
    }
}

fn set_access(inst: &mut LirInst, bytes: Size, at: i16) {
    if let LirInst::Load { size, off, .. } | LirInst::Store { size, off, .. } = inst {
        (*size, *off) = (bytes, at);
    }
}

fn set_source(inst: &mut LirInst, to: Operand) {
    if let LirInst::Store { src, .. } = inst {
        *src = to;
    }
}

/// The changes of a block's end.
fn terms(term: &LirTerm, constant: impl Fn(&Value) -> Option<i64>) -> Vec<LirTerm> {
    match term {
        LirTerm::Jump(to) => {
            let differ = |w: &[Value]| {
                w[0] != w[1] && (constant(&w[0]).is_none() || constant(&w[0]) != constant(&w[1]))
            };
            let swapped = to.args.windows(2).enumerate().filter(|(_, w)| differ(w));
            swapped
                .map(|(i, _)| {
                    let mut to = to.clone();
                    to.args.swap(i, i + 1);
                    LirTerm::Jump(to)
                })
                .collect()
        }
        // Most results say only whether they are 0.
        LirTerm::Ret(Operand::Imm(0)) => vec![LirTerm::Ret(Operand::Imm(1))],
        LirTerm::Ret(Operand::Imm(1)) => vec![LirTerm::Ret(Operand::Imm(0))],
        LirTerm::Ret(v) => neighbours(v).into_iter().map(LirTerm::Ret).collect(),
        LirTerm::Branch { cond, b, .. } => {
            let mut all = Vec::new();
            let zero = *b == Operand::Imm(0) && *cond == Cond::Ne;
            for other in other_conditions(*cond) {
                // Above zero is other than zero.
                if !(zero && other == Cond::Gt) {
                    all.push(branch(term, other, *b));
                }
            }
            for n in neighbours(b) {
                all.push(branch(term, *cond, n));
            }
            all
        }
    }
}

/// A branch with another condition and operand.
fn branch(term: &LirTerm, to: Cond, operand: Operand) -> LirTerm {
    let mut new = term.clone();
    if let LirTerm::Branch { cond, b, .. } = &mut new {
        (*cond, *b) = (to, operand);
    }
    new
}
