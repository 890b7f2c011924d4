//! Mutants of a function for tests of tests: each one differs from it in one operation. A test that
//! finds no difference between the two has a gap, or the two mean the same.

use crate::func::{Func, Inst, Operand, Term};
use crate::op::{AluOp, Cond, ExtOp, Size};

/// A function with one change.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// The place and the change.
    pub change: String,
    /// The changed function. It need not be valid.
    pub func: Func,
}

/// An instruction, none where it is left out, or the end of a block.
enum MutatedPart {
    Inst(Option<Inst>),
    Term(Term),
}

/// All mutants of a function: another operation, condition or size, a constant one larger or smaller,
/// operands in the other order, a store left out, an iteration less.
pub fn mutants(func: &Func) -> Vec<Mutant> {
    let mut all = Vec::new();
    for (b, block) in func.blocks.iter().enumerate() {
        let mut add = |at: usize, changed: MutatedPart| {
            let mut mutant = func.clone();
            let block = &mut mutant.blocks[b];
            let (old, new) = match changed {
                MutatedPart::Inst(new) => {
                    let old = func.show(&block.insts[at]);
                    let text = new.as_ref().map_or("nothing".into(), |i| func.show(i));
                    match new {
                        Some(new) => block.insts[at] = new,
                        None => drop(block.insts.remove(at)),
                    }
                    (old, text)
                }
                MutatedPart::Term(new) => {
                    let old = func.show_term(&block.term);
                    block.term = new;
                    (old, func.show_term(&block.term))
                }
            };
            let change = format!("@{} {}: {old} -> {new}", func.name, block.name);
            all.push(Mutant {
                change,
                func: mutant,
            });
        };
        for (at, inst) in block.insts.iter().enumerate() {
            for new in insts(inst) {
                add(at, MutatedPart::Inst(new));
            }
        }
        for new in terms(&block.term) {
            add(0, MutatedPart::Term(new));
        }
        if let Some(bound) = block.bound.as_ref().filter(|b| b.max > 1) {
            let mut mutant = func.clone();
            if let Some(bound) = &mut mutant.blocks[b].bound {
                bound.max -= 1;
            }
            let (max, less) = (bound.max, bound.max - 1);
            let change = format!("@{} {}: loop {max} -> loop {less}", func.name, block.name);
            all.push(Mutant {
                change,
                func: mutant,
            });
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

/// The changes of an instruction.
fn insts(inst: &Inst) -> Vec<Option<Inst>> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Inst)| {
        let mut new = inst.clone();
        change(&mut new);
        all.push(Some(new));
    };
    match inst {
        Inst::Const { imm, .. } => {
            for n in [imm.wrapping_add(1), imm.wrapping_sub(1)] {
                with(&|i| set_imm(i, n));
            }
        }
        Inst::Alu {
            a,
            b,
            op,
            width,
            dst,
        } => {
            let alu = |a, b, op, width| {
                let dst = *dst;
                Inst::Alu {
                    dst,
                    width,
                    op,
                    a,
                    b,
                }
            };
            with(&|i| *i = alu(*a, *b, another_op(*op), *width));
            for n in neighbours(b) {
                with(&|i| *i = alu(*a, n, *op, *width));
            }
            if let Operand::Value(b) = b
                && !commutes(*op)
            {
                with(&|i| *i = alu(*b, Operand::Value(*a), *op, *width));
            }
        }
        Inst::Ext { op, size, .. } => {
            let (other_op, other_size) = match op {
                ExtOp::Zext => (ExtOp::Sext, smaller(*size)),
                ExtOp::Sext | ExtOp::Swap => (ExtOp::Zext, smaller(*size)),
            };
            with(&|i| set_ext(i, other_op, *size));
            with(&|i| set_ext(i, *op, other_size));
        }
        Inst::Load { size, off, .. } => {
            let (size, off) = (*size, *off);
            with(&|i| set_access(i, smaller(size), off));
            for off in [off.checked_add(1), off.checked_sub(1)]
                .into_iter()
                .flatten()
            {
                with(&|i| set_access(i, size, off));
            }
        }
        Inst::Store { size, off, src, .. } => {
            let (size, off) = (*size, *off);
            with(&|i| set_access(i, smaller(size), off));
            for n in neighbours(src) {
                with(&|i| set_source(i, n));
            }
            all.push(None);
        }
        Inst::Atomic { .. }
        | Inst::Bound { .. }
        | Inst::Opaque { .. }
        | Inst::Addr { .. }
        | Inst::Helper { .. }
        | Inst::Call { .. }
        | Inst::Repeat { .. } => {}
    }
    all
}

fn set_imm(inst: &mut Inst, n: i64) {
    if let Inst::Const { imm, .. } = inst {
        *imm = n;
    }
}

fn set_ext(inst: &mut Inst, to: ExtOp, bytes: Size) {
    if let Inst::Ext { op, size, .. } = inst {
        (*op, *size) = (to, bytes);
    }
}

fn set_access(inst: &mut Inst, bytes: Size, at: i16) {
    if let Inst::Load { size, off, .. } | Inst::Store { size, off, .. } = inst {
        (*size, *off) = (bytes, at);
    }
}

fn set_source(inst: &mut Inst, to: Operand) {
    if let Inst::Store { src, .. } = inst {
        *src = to;
    }
}

/// The changes of a block's end.
fn terms(term: &Term) -> Vec<Term> {
    match term {
        Term::Jump(to) => {
            let swapped = to.args.windows(2).enumerate().filter(|(_, w)| w[0] != w[1]);
            swapped
                .map(|(i, _)| {
                    let mut to = to.clone();
                    to.args.swap(i, i + 1);
                    Term::Jump(to)
                })
                .collect()
        }
        Term::Ret(v) => neighbours(v).into_iter().map(Term::Ret).collect(),
        Term::Branch { cond, b, .. } => {
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
fn branch(term: &Term, to: Cond, operand: Operand) -> Term {
    let mut new = term.clone();
    if let Term::Branch { cond, b, .. } = &mut new {
        (*cond, *b) = (to, operand);
    }
    new
}
