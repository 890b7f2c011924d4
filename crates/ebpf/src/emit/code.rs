//! The assembler's instructions, from machine instructions and the allocator's answer.

use regalloc2::{Allocation, Output};
use spile_cast::Cast;
use spile_lir::LirFunc;
use spile_lir::func::MemoryOperand;
use spile_lir::helpers::Helper as LirHelper;
use spile_lir::op::{self, Width as LirWidth};

use super::copies::{InstOrCopy, propagate, reg};
use super::select::{MachineOp, SelectedFunc};
use super::{EmitError, LIMITS, ObjectSymbols};
use crate::isa::asm::{Asm, AsmFunction, Label, Section};
use crate::isa::helpers::Helper;
use crate::isa::insn::{AluOp, AtomicOp, Cond, Insn, Reg, Size, Src, Swap, Width};

/// Names of parameters in listings.
const PARAMS: [&str; LIMITS.params] = ["a", "b", "c", "d", "e"];

/// Writes a function.
pub(super) fn code(
    func: &LirFunc,
    selected: &SelectedFunc,
    output: &Output,
    around: &ObjectSymbols,
) -> Result<AsmFunction, EmitError> {
    let params = &PARAMS[..func.params().len().min(PARAMS.len())];
    let mut asm = Asm::new(symbol(&func.name), params);
    let labels = selected.blocks.iter().map(|_| asm.label()).collect();
    let blocks = propagate(selected, output);
    let mut writer = CodeWriter {
        func,
        selected,
        around,
        asm,
        labels,
        lead: jump_destinations(selected, &blocks),
    };
    for (b, items) in blocks.iter().enumerate() {
        if writer.lead[b] != b {
            continue;
        }
        let label = writer.labels[b];
        writer.asm.bind(label);
        for item in items {
            match item {
                InstOrCopy::Copy(from, to) => writer.move_(*from, *to),
                InstOrCopy::Inst(inst, allocations) => {
                    let regs = allocations.iter().map(|a| reg(*a)).collect::<Vec<_>>();
                    writer.inst(&selected.insts[*inst].op, &regs, b)?;
                }
            }
        }
    }
    writer.asm.finish().map_err(EmitError::Asm)
}

/// For each block, the block that a jump to it reaches: another one if the block only jumps on. An
/// edge's
/// block has no instructions if its values need no moves.
fn jump_destinations(selected: &SelectedFunc, blocks: &[Vec<InstOrCopy>]) -> Vec<usize> {
    let mut lead: Vec<usize> = (0..selected.blocks.len()).collect();
    // Blocks lie in front of their successors.
    for b in (1..selected.blocks.len()).rev() {
        let stays = |item: &InstOrCopy| match item {
            InstOrCopy::Copy(from, to) => from != to,
            InstOrCopy::Inst(inst, _) => selected.insts[*inst].op != MachineOp::Jump,
        };
        if !blocks[b].iter().any(stays) {
            lead[b] = lead[selected.blocks[b].succs[0].index()];
        }
    }
    lead
}

/// The function's symbol: a C identifier.
pub fn symbol(name: &str) -> String {
    name.replace('.', "_")
}

/// Conversions of operations that LIR and eBPF both have, by the names of the variants.
macro_rules! same_names {
    ($($name:ident: $ty:ident { $($variant:ident)* })*) => {$(
        fn $name(operation: op::$ty) -> $ty {
            match operation { $(op::$ty::$variant => $ty::$variant),* }
        }
    )*};
}

same_names! {
    width: Width { W32 W64 }
    alu: AluOp { Add Sub Mul Div Sdiv Mod Smod And Or Xor Lsh Rsh Arsh }
    cond: Cond { Eq Ne Gt Ge Lt Le Sgt Sge Slt Sle Set }
    atomic: AtomicOp { Add Or And Xor FetchAdd FetchOr FetchAnd FetchXor Xchg CmpXchg }
}

fn size(s: op::Size) -> Size {
    match s {
        op::Size::U8 => Size::B,
        op::Size::U16 => Size::H,
        op::Size::U32 => Size::W,
        op::Size::U64 => Size::DW,
    }
}

/// The helper of eBPF for one of LIR, and whether its result is an int, of which kernels before 6.4
/// leave the upper half zero.
fn helper(helper: LirHelper) -> (Helper, bool) {
    match helper {
        LirHelper::MapLookup => (Helper::MapLookupElem, false),
        LirHelper::MapUpdate => (Helper::MapUpdateElem, true),
        LirHelper::MapDelete => (Helper::MapDeleteElem, true),
        LirHelper::TimeNs => (Helper::KtimeGetNs, false),
        LirHelper::Cpu => (Helper::GetSmpProcessorId, false),
        LirHelper::PidTgid => (Helper::GetCurrentPidTgid, false),
        LirHelper::UidGid => (Helper::GetCurrentUidGid, false),
        LirHelper::Task => (Helper::GetCurrentTaskBtf, false),
        LirHelper::TaskAddress => (Helper::GetCurrentTask, false),
        LirHelper::Registers => (Helper::TaskPtRegs, false),
        LirHelper::ForEach => (Helper::ForEachMapElem, true),
        LirHelper::TaskStorage => (Helper::TaskStorageGet, false),
        LirHelper::EventCount => (Helper::PerfEventRead, false),
        LirHelper::Read => (Helper::ProbeReadKernel, false),
        LirHelper::ReadUser => (Helper::ProbeReadUser, false),
        LirHelper::ReadText => (Helper::ProbeReadKernelStr, false),
        LirHelper::ReadUserText => (Helper::ProbeReadUserStr, false),
        LirHelper::Format => (Helper::Snprintf, false),
        LirHelper::ParseNumber => (Helper::Strtoul, false),
        LirHelper::Output => (Helper::RingbufOutput, false),
        LirHelper::Waiting => (Helper::RingbufQuery, false),
        LirHelper::Yield => (Helper::Yield, false),
    }
}

struct CodeWriter<'a> {
    func: &'a LirFunc,
    selected: &'a SelectedFunc,
    around: &'a ObjectSymbols,
    asm: Asm,
    labels: Vec<Label>,
    /// See [`lead`].
    lead: Vec<usize>,
}

impl CodeWriter<'_> {
    fn spill(&self, allocation: Allocation) -> Option<i16> {
        let slot = allocation.as_stack()?;
        Some(-self.selected.frame.fit::<i16>() - 8 * (slot.index().fit::<i16>() + 1))
    }

    fn move_(&mut self, from: Allocation, to: Allocation) {
        match (self.spill(from), self.spill(to)) {
            (None, None) if reg(from) == reg(to) => {}
            (None, Some(off)) => self.asm.store(Size::DW, Reg::R10, off, reg(from)),
            (Some(off), _) => self.asm.load(Size::DW, reg(to), Reg::R10, off),
            (None, None) => self.asm.mov(reg(to), reg(from)),
        }
    }

    /// The block of a successor, and whether it is the next one.
    fn succ(&self, block: usize, succ: usize) -> (usize, bool) {
        let to = self.lead[self.selected.blocks[block].succs[succ].index()];
        let next = (block + 1..self.lead.len()).find(|b| self.lead[*b] == *b);
        (to, next == Some(to))
    }

    /// Jumps to a successor unless it is the next block.
    fn jump_unless_next(&mut self, block: usize, succ: usize) {
        if let (to, false) = self.succ(block, succ) {
            self.asm.jump(self.labels[to]);
        }
    }

    fn inst(&mut self, op: &MachineOp, regs: &[Reg], block: usize) -> Result<(), EmitError> {
        // The first operands are read, the last one is defined.
        let [a, b, dst] = [regs.first(), regs.get(1), regs.last()].map(|r| *r.unwrap_or(&Reg::R0));
        match op {
            MachineOp::Params => {}
            MachineOp::Jump => self.jump_unless_next(block, 0),
            MachineOp::MayGoto => {
                let (stop, _) = self.succ(block, 1);
                self.asm.may_goto(self.labels[stop]);
                self.jump_unless_next(block, 0);
            }
            MachineOp::Branch {
                cond,
                width,
                b: imm,
            } => self.branch(block, (*cond, *width), a, imm.map_or(b.into(), Src::Imm)),
            MachineOp::Ret(imm) => {
                if let Some(imm) = imm {
                    self.asm.mov(Reg::R0, *imm);
                }
                self.asm.exit();
            }
            MachineOp::Const(imm) => self.asm.imm(dst, *imm),
            MachineOp::Addr(operand) => self.addr(dst, operand)?,
            MachineOp::Move(LirWidth::W32) => self.asm.mov32(dst, a),
            MachineOp::Move(LirWidth::W64) => {
                if dst != a {
                    self.asm.mov(dst, a);
                }
            }
            MachineOp::Alu { width, op, b: imm } => match imm {
                Some(imm) => self.alu_imm((*op, *width), dst, *imm),
                None => self.alu(*width, alu(*op), dst, b),
            },
            MachineOp::Extend { size, signed } => self.extend(dst, *size, *signed),
            MachineOp::Swap(s) => self.asm.swap(Swap::Be, size(*s), dst),
            MachineOp::Load {
                size: s,
                signed,
                frame,
                off,
            } => {
                let (base, off) = frame.map_or((a, *off), |f| (Reg::R10, f + off));
                self.asm.load(size(*s), dst, base, off);
                if *signed {
                    self.extend(dst, *s, true);
                }
            }
            MachineOp::Store {
                size: s,
                frame,
                off,
                src,
            } => {
                let (base, off) = frame.map_or((a, *off), |f| (Reg::R10, f + off));
                let src = src.map_or(Src::Reg(dst), Src::Imm);
                self.asm.store(size(*s), base, off, src);
            }
            MachineOp::Atomic { op, width: w, off } => self.asm.emit(Insn::Atomic {
                width: width(*w),
                op: atomic(*op),
                base: a,
                off: *off,
                src: b,
            }),
            MachineOp::Bound(max) => self.bound(dst, *max),
            MachineOp::Opaque => {
                let off = self.selected.scratch.unwrap_or(0);
                self.asm.store(Size::DW, Reg::R10, off, a);
                // A byte of its own makes the word one that the verifier does not track.
                self.asm.store(Size::B, Reg::R10, off, a);
                self.asm.load(Size::DW, dst, Reg::R10, off);
            }
            MachineOp::Helper(h) => {
                let (helper, narrow) = helper(*h);
                self.asm.call(helper);
                if narrow {
                    self.extend(Reg::R0, op::Size::U32, true);
                }
            }
            MachineOp::Call(name) => match self.around.kfuncs.get(name) {
                Some(id) => self.asm.call_kfunc(*id),
                None => self.asm.call_sub(symbol(name)),
            },
            MachineOp::Repeat(name) => {
                self.asm.ld_func(Reg::R2, symbol(name));
                self.asm.mov(Reg::R4, 0);
                self.asm.call(Helper::Loop);
            }
        }
        Ok(())
    }

    fn alu(&mut self, w: LirWidth, op: AluOp, dst: Reg, src: impl Into<Src>) {
        match w {
            LirWidth::W32 => self.asm.alu32(op, dst, src),
            LirWidth::W64 => self.asm.alu(op, dst, src),
        }
    }

    /// Arithmetic with a constant. The kernel refuses constant divisors of zero, and amounts of
    /// shifts beyond the width.
    fn alu_imm(&mut self, (op, w): (op::AluOp, LirWidth), dst: Reg, imm: i32) {
        use op::AluOp::{Arsh, Div, Lsh, Mod, Rsh, Sdiv, Smod};
        match op {
            Div | Sdiv if imm == 0 => self.asm.mov(dst, 0),
            Mod | Smod if imm == 0 => {
                if w == LirWidth::W32 {
                    self.asm.mov32(dst, dst);
                }
            }
            Lsh | Rsh | Arsh => {
                let bits = 8 * w.size().bytes().cast_signed();
                self.alu(w, alu(op), dst, imm & (bits - 1));
            }
            _ => self.alu(w, alu(op), dst, imm),
        }
    }

    fn branch(&mut self, block: usize, (c, w): (op::Cond, LirWidth), a: Reg, b: Src) {
        let [(then, next), (els, _)] = [0, 1].map(|i| self.succ(block, i));
        let (c, to, other) = match cond(c).inverse() {
            Some(inverse) if next => (inverse, els, 0),
            _ => (cond(c), then, 1),
        };
        let label = self.labels[to];
        match w {
            LirWidth::W32 => self.asm.jump_if32(c, a, b, label),
            LirWidth::W64 => self.asm.jump_if(c, a, b, label),
        }
        self.jump_unless_next(block, other);
    }

    fn extend(&mut self, dst: Reg, s: op::Size, signed: bool) {
        match (s, signed) {
            (op::Size::U8, false) => self.asm.alu(AluOp::And, dst, 0xff),
            (op::Size::U16, false) => self.asm.alu(AluOp::And, dst, 0xffff),
            (op::Size::U64, _) => {}
            (s, _) => {
                let unused = 64 - 8 * s.bytes().cast_signed();
                self.asm.alu(AluOp::Lsh, dst, unused);
                let right = if signed { AluOp::Arsh } else { AluOp::Rsh };
                self.asm.alu(right, dst, unused);
            }
        }
    }

    /// Teaches the verifier a bound by an operation that changes nothing where the promise holds.
    fn bound(&mut self, dst: Reg, max: u32) {
        match i32::try_from(max) {
            Ok(max) if (max + 1).cast_unsigned().is_power_of_two() => {
                self.asm.alu(AluOp::And, dst, max);
            }
            Ok(max) => self.asm.mov_unless(Cond::Le, dst, max, max),
            Err(_) => {
                let inside = self.asm.label();
                self.asm.mov32(dst, dst);
                self.asm.jump_if32(Cond::Le, dst, max.cast_signed(), inside);
                self.asm.mov32(dst, max.cast_signed());
                self.asm.bind(inside);
            }
        }
    }

    fn addr(&mut self, dst: Reg, operand: &MemoryOperand) -> Result<(), EmitError> {
        let missing = || EmitError::Missing(self.func.name.clone(), operand.to_string());
        match operand {
            MemoryOperand::Slot(slot, off) => {
                let offset = self.selected.slots.get(slot.index()).ok_or_else(missing)?;
                let offset = i32::from(*offset) + off.cast_signed();
                self.asm.mov(dst, Reg::R10);
                self.asm.add(dst, offset);
            }
            MemoryOperand::State(off) => self.asm.ld_data(dst, Section::Bss, *off),
            MemoryOperand::Data(name, off) => {
                let offset = self.around.data.get(name).ok_or_else(missing)?;
                self.asm.ld_data(dst, Section::Rodata, offset + off);
            }
            MemoryOperand::Map(name) => self.asm.ld_map(dst, &**name),
            MemoryOperand::Func(name) => self.asm.ld_func(dst, symbol(name)),
            MemoryOperand::Cpu(_) => return Err(missing()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_have_the_same_arguments() {
        for h in LirHelper::ALL {
            let info = helper(*h).0.info();
            assert_eq!(h.info().args, usize::from(info.args), "{}", h.name());
        }
    }
}
