//! Brings a function into the form that instructions are selected from: the address of the
//! processor's block is computed, and constants and addresses are made in front of their uses.

use rustc_hash::FxHashMap;
use spile_lir::LirFunc;
use spile_lir::func::{LirBlock, LirInst, LirTerm, LoopForm, MemoryOperand, Operand, Value};
use spile_lir::helpers::Helper;
use spile_lir::op::{AluOp, ExtOp, Size, Width};
use spile_lir::simplify::simplify;

use super::{CpuBlocks, EmitError, ObjectSymbols};

/// Prepares a function.
pub(super) fn prepare(mut func: LirFunc, around: &ObjectSymbols) -> Result<LirFunc, EmitError> {
    for i in 0..func.blocks.len() {
        let insts = std::mem::take(&mut func.blocks[i].insts);
        let mut new = Vec::with_capacity(insts.len());
        for inst in insts {
            match inst {
                LirInst::Addr {
                    dst,
                    location: MemoryOperand::Cpu(off),
                } => {
                    let missing = || EmitError::Missing(func.name.clone(), format!("cpu {off}"));
                    let blocks = around.cpu_blocks.ok_or_else(missing)?;
                    cpu_block(&mut func, &mut new, blocks, (dst, off));
                }
                inst => new.push(inst),
            }
        }
        func.blocks[i].insts = new;
    }
    let made: FxHashMap<Value, LirInst> = func
        .blocks
        .iter()
        .flat_map(|b| &b.insts)
        .filter(|i| matches!(i, LirInst::Const { .. } | LirInst::Addr { .. }))
        .filter_map(|i| Some((i.dst()?, i.clone())))
        .collect();
    for i in 0..func.blocks.len() {
        at_uses(&mut func, i, &made);
    }
    simplify(&mut func);
    if func.blocks.iter().any(is_open) {
        copy_params(&mut func);
    }
    Ok(func)
}

/// Whether an open loop begins with this block.
fn is_open(block: &LirBlock) -> bool {
    let bound = block.bound.as_ref();
    bound.is_some_and(|bound| bound.form == LoopForm::Open)
}

/// Copies the parameters. The allocator splits a value where the register of a parameter is needed
/// otherwise, and parts of it that meet in a loop change locations there.
fn copy_params(func: &mut LirFunc) {
    let params = func.params().to_vec();
    let copies: Vec<Value> = params.iter().map(|_| fresh(func)).collect();
    let rename = |v: &mut Value| {
        if let Some(index) = params.iter().position(|param| param == v) {
            *v = copies[index];
        }
    };
    for block in &mut func.blocks {
        block.for_each_use_mut(rename);
    }
    let insts = params
        .iter()
        .zip(&copies)
        .rev()
        .map(|(a, dst)| LirInst::Ext {
            dst: *dst,
            op: ExtOp::Zext,
            size: Size::U64,
            a: *a,
        });
    func.blocks[0].insts.splice(0..0, insts);
}

/// `dst` = the address of byte `off` of the per-CPU area. The bound is always true.
fn cpu_block(
    func: &mut LirFunc,
    insts: &mut Vec<LirInst>,
    blocks: CpuBlocks,
    (dst, off): (Value, u32),
) {
    let [cpu, bounded, offset, first] = std::array::from_fn(|_| fresh(func));
    insts.extend([
        LirInst::Helper {
            dst: Some(cpu),
            helper: Helper::Cpu,
            args: Vec::new(),
        },
        LirInst::Bound {
            dst: bounded,
            a: cpu,
            max: blocks.count.saturating_sub(1),
        },
        LirInst::Alu {
            dst: offset,
            width: Width::W64,
            op: AluOp::Mul,
            a: bounded,
            b: Operand::Imm(blocks.stride.cast_signed()),
        },
        LirInst::Addr {
            dst: first,
            location: MemoryOperand::State(blocks.first + off),
        },
        LirInst::Alu {
            dst,
            width: Width::W64,
            op: AluOp::Add,
            a: first,
            b: Operand::Value(offset),
        },
    ]);
}

fn fresh(func: &mut LirFunc) -> Value {
    let name = format!("p.{}", func.values.len());
    func.value(name)
}

/// Makes each constant and address of a block in front of its first use there, and again after each
/// call, which would cost a preserved register otherwise. Small constants become immediates.
fn at_uses(func: &mut LirFunc, block: usize, made: &FxHashMap<Value, LirInst>) {
    let mut copies: FxHashMap<Value, Value> = FxHashMap::default();
    let mut new = Vec::new();
    for mut inst in std::mem::take(&mut func.blocks[block].insts) {
        match &mut inst {
            LirInst::Alu { b, .. } => small(b, made),
            LirInst::Store { src, .. } => small(src, made),
            _ => {}
        }
        // The address of the frame needs no register in a load or store: no other use shares it.
        if let LirInst::Load { base, .. } | LirInst::Store { base, .. } = &mut inst
            && let Some(
                original @ LirInst::Addr {
                    location: MemoryOperand::Slot(..),
                    ..
                },
            ) = made.get(base)
        {
            *base = rematerialize(func, &mut new, original);
        }
        let mut copy = |v: &mut Value| {
            if let Some(original) = made.get(v) {
                *v = *copies
                    .entry(*v)
                    .or_insert_with(|| rematerialize(func, &mut new, original));
            }
        };
        inst.for_each_use_mut(&mut copy);
        let calls = matches!(
            inst,
            LirInst::Helper { .. } | LirInst::Call { .. } | LirInst::Repeat { .. }
        );
        new.push(inst);
        if calls {
            copies.clear();
        }
    }
    let mut end = std::mem::replace(&mut func.blocks[block].term, LirTerm::Ret(Operand::Imm(0)));
    match &mut end {
        LirTerm::Branch { b, .. } => small(b, made),
        LirTerm::Ret(v) => small(v, made),
        LirTerm::Jump(_) => {}
    }
    let mut copy = |v: &mut Value| {
        if let Some(original) = made.get(v) {
            *v = *copies
                .entry(*v)
                .or_insert_with(|| rematerialize(func, &mut new, original));
        }
    };
    end.for_each_use_mut(&mut copy);
    let args = end.targets_mut().into_iter().flat_map(|t| &mut t.args);
    args.for_each(copy);
    let LirBlock { insts, term, .. } = &mut func.blocks[block];
    (*insts, *term) = (new, end);
}

/// Makes a constant or address once more.
fn rematerialize(func: &mut LirFunc, insts: &mut Vec<LirInst>, original: &LirInst) -> Value {
    let value = fresh(func);
    let mut inst = original.clone();
    if let Some(dst) = inst.dst_mut() {
        *dst = value;
    }
    insts.push(inst);
    value
}

/// A small constant as an immediate.
fn small(operand: &mut Operand, made: &FxHashMap<Value, LirInst>) {
    if let Operand::Value(v) = operand
        && let Some(LirInst::Const { imm, .. }) = made.get(v)
        && let Ok(n) = i32::try_from(*imm)
    {
        *operand = Operand::Imm(n);
    }
}
