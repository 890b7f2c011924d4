//! Removes copies that register allocation leaves behind.
//!
//! The allocator splits the life of a value at each use that could be in another register, and
//! copies it there from the register that holds it across calls. In: the allocator's answer. Out:
//! the same instructions and copies by block, where an operand in any register reads the original
//! of a copy, and copies that nothing reads are gone.

use regalloc2::{
    Allocation, Block as BlockIndex, Edit, InstOrEdit, OperandConstraint, OperandKind, Output,
    PReg, PRegSet,
};
use spile_cast::Cast;

use super::select::{SelectedFunc, SelectedInst};
use crate::isa::insn::Reg;

/// An instruction or a copy.
#[derive(Debug, Clone)]
pub(super) enum InstOrCopy {
    /// A copy between registers and spill slots.
    Copy(Allocation, Allocation),
    /// The instruction of this index, with the registers of its operands.
    Inst(usize, Vec<Allocation>),
}

/// Number of registers that are allocated.
const REGS: usize = 10;

/// The items of each block.
pub(super) fn propagate(selected: &SelectedFunc, output: &Output) -> Vec<Vec<InstOrCopy>> {
    let mut blocks: Vec<Vec<InstOrCopy>> = (0..selected.blocks.len())
        .map(|b| {
            let items = output.block_insts_and_edits(selected, BlockIndex::new(b));
            items.map(|item| self::item(output, &item)).collect()
        })
        .collect();
    for block in &mut blocks {
        read_originals(selected, block);
    }
    remove_unread(selected, &mut blocks);
    blocks
}

fn item(output: &Output, item: &InstOrEdit<'_>) -> InstOrCopy {
    match item {
        InstOrEdit::Edit(Edit::Move { from, to }) => InstOrCopy::Copy(*from, *to),
        InstOrEdit::Inst(inst) => {
            InstOrCopy::Inst(inst.index(), output.inst_allocs(*inst).to_vec())
        }
    }
}

/// Number of the register, if it is one.
fn number(allocation: Allocation) -> Option<usize> {
    allocation.as_reg().map(|p| p.hw_enc())
}

/// The register of an operand.
pub(super) fn reg(allocation: Allocation) -> Reg {
    // All operands demand registers of the environment.
    let number = number(allocation).unwrap_or(0);
    Reg::new(number.fit::<u8>()).unwrap_or(Reg::R0)
}

/// The registers that an instruction reads, and those that it changes.
fn effects(inst: &SelectedInst, allocations: &[Allocation]) -> (PRegSet, PRegSet) {
    let (mut reads, mut changes) = (PRegSet::empty(), inst.clobbers);
    for (operand, allocation) in inst.operands.iter().zip(allocations) {
        let set = match operand.kind() {
            OperandKind::Use => &mut reads,
            OperandKind::Def => &mut changes,
        };
        allocation.as_reg().into_iter().for_each(|r| set.add(r));
    }
    (reads, changes)
}

/// Operands in any register read the original of a copy within the block.
fn read_originals(selected: &SelectedFunc, block: &mut [InstOrCopy]) {
    // For each register the one that has the same content and was written before it.
    let mut originals = [None::<PReg>; REGS];
    let forget = |originals: &mut [Option<PReg>; REGS], changed: PReg| {
        for (n, original) in originals.iter_mut().enumerate() {
            if n == changed.hw_enc() || *original == Some(changed) {
                *original = None;
            }
        }
    };
    for item in block {
        match item {
            InstOrCopy::Copy(from, to) => {
                let original = number(*from).and_then(|n| originals[n]).or(from.as_reg());
                if let (Some(original), true) = (original, to.as_reg().is_some()) {
                    *from = Allocation::reg(original);
                }
                let Some(to) = to.as_reg() else { continue };
                if original != Some(to) {
                    forget(&mut originals, to);
                    originals[to.hw_enc()] = original;
                }
            }
            InstOrCopy::Inst(index, allocations) => {
                let inst = &selected.insts[*index];
                let reused = inst.operands.iter().find_map(|o| match o.constraint() {
                    OperandConstraint::Reuse(n) => Some(n),
                    _ => None,
                });
                for (n, operand) in inst.operands.iter().enumerate() {
                    let free = operand.kind() == OperandKind::Use
                        && operand.constraint() == OperandConstraint::Reg
                        && reused != Some(n);
                    let original = number(allocations[n]).and_then(|r| originals[r]);
                    if let (true, Some(original)) = (free, original) {
                        allocations[n] = Allocation::reg(original);
                    }
                }
                let (_, changes) = effects(inst, allocations);
                for changed in &changes {
                    forget(&mut originals, changed);
                }
            }
        }
    }
}

/// Removes copies to registers that nothing reads afterwards.
fn remove_unread(selected: &SelectedFunc, blocks: &mut [Vec<InstOrCopy>]) {
    let mut live_in = vec![PRegSet::empty(); blocks.len()];
    // Blocks lie in front of their successors, so that without loops the first pass is right. A loop
    // needs passes until its header learns nothing new.
    loop {
        let mut again = false;
        for b in (0..blocks.len()).rev() {
            let (live, _) = backwards(selected, &blocks[b], live_out(selected, &live_in, b));
            if live != live_in[b] {
                live_in[b] = live;
                let succs = |b: usize| &selected.blocks[b].succs;
                again |= (b..blocks.len()).any(|from| succs(from).iter().any(|s| s.index() == b));
            }
        }
        if !again {
            break;
        }
    }
    for (b, block) in blocks.iter_mut().enumerate() {
        let (_, unread) = backwards(selected, block, live_out(selected, &live_in, b));
        let mut unread = unread.into_iter().rev();
        block.retain(|_| !unread.next().unwrap_or(false));
    }
}

/// The registers that the successors of a block read.
fn live_out(selected: &SelectedFunc, live_in: &[PRegSet], block: usize) -> PRegSet {
    let mut live = PRegSet::empty();
    for succ in &selected.blocks[block].succs {
        live.union_from(live_in[succ.index()]);
    }
    live
}

/// The registers that are read from the start of a block on, and for each of its items from the last
/// one on whether it is a copy that nothing reads.
fn backwards(
    selected: &SelectedFunc,
    block: &[InstOrCopy],
    mut live: PRegSet,
) -> (PRegSet, Vec<bool>) {
    let mut unread = Vec::with_capacity(block.len());
    for item in block.iter().rev() {
        let mut dead = false;
        match item {
            InstOrCopy::Copy(from, to) => {
                if let Some(to) = to.as_reg() {
                    dead = from.as_reg() == Some(to) || !live.contains(to);
                    if !dead {
                        live.remove(to);
                    }
                }
                if !dead {
                    from.as_reg().into_iter().for_each(|r| live.add(r));
                }
            }
            InstOrCopy::Inst(index, allocations) => {
                let (reads, changes) = effects(&selected.insts[*index], allocations);
                changes.into_iter().for_each(|r| live.remove(r));
                live.union_from(reads);
            }
        }
        unread.push(dead);
    }
    (live, unread)
}
