//! Fields of the current task, `@cast(task_current(), "task_struct")->x`. A field that the
//! verifier knows as a number is loaded through the task's typed pointer. Such a load takes 1 ns
//! and cannot fail. A read with the kernel's helper takes ten times as long, and gives the verifier
//! a failure path to follow.

use std::collections::BTreeMap;

use spile_cast::Cast;
use spile_ir::intrinsics::Intrinsic;
use spile_ir::{BinOp, Body, Inst, Reg as IrReg, Space, Val};

/// The loads of a body that read fields of the current task.
#[derive(Debug, Default)]
pub(crate) struct TaskFields {
    /// Registers that hold a field's address, with the field's offset.
    pub(crate) offsets: BTreeMap<IrReg, i16>,
    /// Registers without any other use; the instructions that define them are omitted.
    pub(crate) folded: Vec<bool>,
}

impl TaskFields {
    /// Analyses a body. `several` tells for each register whether it has several definitions;
    /// `known` lists the readable fields by offset and size.
    pub(crate) fn new(body: &Body, several: &[bool], known: &[(u32, u32)]) -> TaskFields {
        let mut fields = TaskFields {
            offsets: BTreeMap::new(),
            folded: vec![false; body.regs.len()],
        };
        if known.is_empty() {
            return fields;
        }
        let insts = || body.insts();
        let once = |r: IrReg| several.get(r.index()) == Some(&false);
        let mut tasks = vec![false; body.regs.len()];
        for inst in insts() {
            if let Inst::Intr {
                dst: Some(dst),
                f: Intrinsic::TaskCurrent,
                ..
            } = inst
                && once(*dst)
            {
                tasks[dst.index()] = true;
            }
        }
        for inst in insts() {
            if let Inst::Bin {
                dst,
                op: BinOp::Add,
                a: Val::Reg(a),
                b: Val::Imm(n),
            } = inst
                && once(*dst)
                && tasks[a.index()]
                && let Ok(n) = i16::try_from(*n)
            {
                fields.offsets.insert(*dst, n);
            }
        }
        fields.folded = fields.unneeded(body, &tasks, known);
        fields.offsets.retain(|r, _| fields.folded[r.index()]);
        fields
    }

    /// The addresses that only loads of known fields use, and the task pointers that only these
    /// addresses use.
    fn unneeded(&self, body: &Body, tasks: &[bool], known: &[(u32, u32)]) -> Vec<bool> {
        let mut wanted = vec![false; body.regs.len()];
        let mut want = |v: Val| {
            if let Val::Reg(r) = v {
                wanted[r.index()] = true;
            }
        };
        let insts = || body.insts();
        for inst in insts() {
            let field = match inst {
                Inst::Load {
                    space: Space::Kernel,
                    addr: Val::Reg(r),
                    ty,
                    ..
                } => self.offsets.get(r).is_some_and(|offset| {
                    let field = (i32::from(*offset).cast_unsigned(), u32::from(ty.size));
                    known.binary_search(&field).is_ok()
                }),
                Inst::Bin { dst, .. } => self.offsets.contains_key(dst),
                _ => false,
            };
            if !field {
                inst.for_each_use(&mut want);
            }
        }
        body.blocks
            .iter()
            .for_each(|b| b.term.for_each_use(&mut want));
        // An address with another use is computed, which needs its task pointer.
        for inst in insts() {
            if let Inst::Bin { dst, a, .. } = inst
                && self.offsets.contains_key(dst)
                && wanted[dst.index()]
                && let Val::Reg(task) = a
            {
                wanted[task.index()] = true;
            }
        }
        let folded = |r: usize| {
            let made = tasks[r] || self.offsets.contains_key(&IrReg(r.fit()));
            made && !wanted[r]
        };
        (0..body.regs.len()).map(folded).collect()
    }
}
