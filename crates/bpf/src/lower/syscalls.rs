//! System calls: numbers, arguments, results, and their text.
//!
//! | file | what it lowers |
//! |---|---|
//! | `argstr` | arguments as text, by functions of the run-time library |
//! | `retstr` | results as text |

pub(crate) mod argstr;
pub(crate) mod retstr;

use spile_ir::intrinsics::{Intrinsic, IntrinsicClass, SyscallOp};
use spile_ir::{Event, NrSet, Reg as IrReg, Val};

use super::{CTX, HandlerCodegen, NR, Res, TASK};
use crate::isa::asm::{Asm, Label};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Reg, Size};
use crate::layout::shared;

/// Offsets in `struct pt_regs`, and bits of system-call numbers: x86-64.
pub(super) mod arch {
    /// Arguments of a native call: di, si, dx, r10, r8, r9.
    pub(crate) const ARGS: [i16; 6] = [112, 104, 96, 56, 72, 64];
    /// Arguments of a 32-bit call: bx, cx, dx, si, di, bp.
    pub(crate) const ARGS_COMPAT: [i16; 6] = [40, 88, 96, 104, 112, 32];
    /// The call's number.
    pub(crate) const NUMBER: i16 = 120;
    /// Bit of `thread_info.status`: in a 32-bit call.
    pub(crate) const TS_COMPAT: i32 = 2;
    /// Bit of the number: an x32 call.
    pub(crate) const X32: i32 = 0x4000_0000;
    /// `rt_sigreturn`, which leaves no call's registers at its end.
    pub(crate) const SIGRETURN: i32 = 15;
    /// `rt_sigreturn` in the 32-bit table.
    pub(crate) const SIGRETURN_COMPAT: i32 = 173;
}

/// Table ids that no constant table of a program has.
const NAMES: u32 = u32::MAX;
/// Bytes of a name in the table.
const NAME: u32 = 32;

/// Whether a block uses the system call's number.
pub(crate) fn reads_number(block: &spile_ir::Block) -> bool {
    let asks = |i: &spile_ir::Inst| matches!(i, spile_ir::Inst::Intr { f, .. } if of_number(*f));
    block.insts.iter().any(|(i, _)| asks(i))
}

/// Whether an intrinsic uses the system call's number.
pub(crate) fn of_number(f: Intrinsic) -> bool {
    matches!(f.class(), IntrinsicClass::Syscall(op) if op != SyscallOp::SysRet)
}

/// `to` = a copy of the system call's number, detached from the stack slot. Tests of the copy teach
/// the verifier nothing about the slot. Otherwise it would follow each result of a test to the end
/// of the program: hundreds of times for a search tree with hundreds of numbers.
pub(crate) fn unlinked_number(asm: &mut Asm, to: Reg) {
    asm.load(Size::DW, to, R10, NR);
    // Changes nothing, but detaches the copy.
    asm.alu(AluOp::And, to, -1);
}

impl HandlerCodegen<'_> {
    /// `r0` = 1 in a 32-bit call, else 0 (a word with one bit). Clobbers r1 to r5.
    fn compat(&mut self) {
        match self
            .options
            .offsets
            .task_ti_status
            .and_then(|o| i16::try_from(o).ok())
        {
            Some(off) => {
                self.task();
                self.asm.load(Size::W, R0, R0, off);
                self.asm.alu(AluOp::And, R0, arch::TS_COMPAT);
            }
            None => self.asm.mov(R0, 0),
        }
    }

    /// `r0` = address of the current task's registers, for loads.
    pub(super) fn regs(&mut self) -> Res {
        if !self.options.features.task_pt_regs {
            return Err("arguments of system calls need bpf_task_pt_regs (Linux 5.15)".into());
        }
        self.task();
        self.asm.mov(R1, R0);
        self.asm.call(Helper::TaskPtRegs);
        Ok(())
    }

    /// `r0` = number of the current task's system call.
    pub(super) fn call_of_task(&mut self) -> Res {
        self.regs()?;
        self.asm.load(Size::DW, R0, R0, arch::NUMBER);
        Ok(())
    }

    /// Stores the call's number as in `NrSet`, or -1 for a number of no table, and the current task
    /// on the stack.
    ///
    /// The verifier follows the fall-through path of a jump first. The first path has an unknown
    /// number, so that its state covers the later paths.
    pub(crate) fn store_number(&mut self, entry: bool) -> Res {
        let [native, small, unknown, end] = [(); 4].map(|()| self.asm.label());
        if !entry || self.options.offsets.task_ti_status.is_some() {
            self.save_task();
        }
        if entry {
            self.asm.load(Size::DW, R1, R10, CTX);
            self.asm.load(Size::DW, R1, R1, 8);
        } else {
            self.regs()?;
            self.asm.load(Size::DW, R1, R0, arch::NUMBER);
        }
        self.asm.store(Size::DW, R10, NR, R1);
        self.compat();
        self.asm.load(Size::DW, R1, R10, NR);
        self.asm.jump_if(Cond::Eq, R0, 0, native);
        self.asm.mov32(R1, R1);
        if !entry {
            self.sigreturn(arch::SIGRETURN_COMPAT);
        }
        self.asm.jump_if(Cond::Lt, R1, NrSet::COMPAT as i32, small);
        self.asm.jump(unknown);
        self.asm.bind(small);
        self.asm.add(R1, NrSet::COMPAT as i32);
        self.asm.jump(end);
        self.asm.bind(native);
        self.asm.mov32(R1, R1);
        if !entry {
            self.sigreturn(arch::SIGRETURN);
        }
        self.asm.alu(AluOp::And, R1, !arch::X32);
        self.asm.mov32(R1, R1);
        self.asm.jump_if(Cond::Lt, R1, NrSet::COMPAT as i32, end);
        self.asm.bind(unknown);
        self.unknown_number(-1);
        self.asm.bind(end);
        self.asm.store(Size::DW, R10, NR, R1);
        Ok(())
    }

    /// Stores the current task on the stack, unless it is there.
    pub(crate) fn save_task(&mut self) {
        if !self.task_saved {
            self.task();
            self.asm.store(Size::DW, R10, TASK, R0);
            self.task_saved = true;
        }
    }

    /// `r1` = `number` if r1 is -1, which is how the registers look after a return from a signal.
    fn sigreturn(&mut self, number: i32) {
        let other = self.asm.label();
        self.asm.jump_if32(Cond::Ne, R1, -1, other);
        self.unknown_number(number);
        self.asm.bind(other);
    }

    /// `r1` = `number`, as a value that the verifier does not know.
    fn unknown_number(&mut self, number: i32) {
        self.shared(R1, shared::ZERO);
        self.asm.load(Size::DW, R1, R1, 0);
        self.asm.add(R1, number);
    }

    /// Falls through if the number on the stack is in the set, else goes to the label.
    pub(crate) fn dispatch(&mut self, set: &NrSet, out: Label) {
        let NrSet::List(list) = set else { return };
        self.call_number(R1);
        let hit = self.asm.label();
        match &list[..] {
            [] => self.asm.mov(R1, -1),
            [.., last] if list.len() <= 4 => {
                for nr in &list[..list.len() - 1] {
                    self.asm.jump_if(Cond::Eq, R1, *nr as i32, hit);
                }
                self.asm.jump_if(Cond::Ne, R1, *last as i32, out);
            }
            [.., last] => {
                let words = *last as usize / 64 + 1;
                let mut bits = vec![0u64; words];
                list.iter()
                    .for_each(|nr| bits[*nr as usize / 64] |= 1 << (nr % 64));
                let bytes: Vec<u8> = bits.iter().flat_map(|w| w.to_ne_bytes()).collect();
                let off = self.pool.constant(&bytes);
                self.asm.jump_if(Cond::Ge, R1, words as i32 * 64, out);
                self.asm.mov(R2, R1);
                self.asm.alu(AluOp::Rsh, R2, 6);
                self.asm.alu(AluOp::Lsh, R2, 3);
                self.asm.ld_data(R3, crate::isa::asm::Section::Rodata, off);
                self.asm.add(R3, R2);
                self.asm.load(Size::DW, R3, R3, 0);
                self.asm.alu(AluOp::And, R1, 63);
                self.asm.alu(AluOp::Rsh, R3, R1);
                self.asm.alu(AluOp::And, R3, 1);
                self.asm.jump_if(Cond::Eq, R3, 0, out);
            }
        }
        if list.is_empty() {
            self.asm.jump_if(Cond::Eq, R1, -1, out);
        }
        self.asm.bind(hit);
    }

    /// `to` = the number as a detached copy, see [`unlinked_number`].
    pub(super) fn call_number(&mut self, to: Reg) {
        unlinked_number(self.asm, to);
    }

    pub(super) fn event(&self) -> &Event {
        &self.program.handlers[self.handler.index()].event
    }

    /// `r0` = argument n of the system call, counted from `first`.
    pub(super) fn sys_arg(&mut self, n: Val, first: i64) -> Res {
        if !matches!(self.event(), Event::SysEnter(_) | Event::SysExit(_)) {
            return Err("arguments of a system call in another event".into());
        }
        let Val::Imm(n) = n else {
            return Err("the number of a system call's argument is not a constant".into());
        };
        let n = usize::try_from(n - first).ok().filter(|n| *n < 6);
        let n = n.ok_or("a system call has six arguments")?;
        self.read_arg(n, R0)
    }

    /// `to` = argument n (0 to 5). Clobbers r0 to r5.
    pub(super) fn read_arg(&mut self, n: usize, to: Reg) -> Res {
        let (small, end) = (self.asm.label(), self.asm.label());
        self.regs()?;
        self.call_number(R1);
        self.asm.jump_if(Cond::Sge, R1, NrSet::COMPAT as i32, small);
        // The verifier follows this path first; it leaves the argument less constrained than the
        // other.
        self.asm.load(Size::DW, to, R0, arch::ARGS[n]);
        self.asm.jump(end);
        self.asm.bind(small);
        self.asm.load(Size::W, to, R0, arch::ARGS_COMPAT[n]);
        self.asm.bind(end);
        Ok(())
    }

    pub(super) fn sys_ret(&mut self) -> Res {
        if !matches!(self.event(), Event::SysExit(_)) {
            return Err("the result of a system call in another event".into());
        }
        // At a raw tracepoint this word is the registers' address, and the number follows.
        let at = match self.plan.attach.syscall_events {
            Some(_) => 16,
            None => 8,
        };
        self.asm.load(Size::DW, R1, R10, CTX);
        self.asm.load(Size::DW, R0, R1, at);
        Ok(())
    }

    pub(super) fn sys_name(&mut self, dst: IrReg) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        let rows = self
            .options
            .syscalls
            .iter()
            .map(|s| s.nr + 1)
            .max()
            .unwrap_or(0);
        let rows = rows.min(4 * NrSet::COMPAT);
        let mut names: Vec<&[u8]> = vec![b""; rows as usize];
        for s in self.options.syscalls.iter() {
            if let Some(name) = names.get_mut(s.nr as usize) {
                *name = s.name.as_bytes();
            }
        }
        let base = self.pool.table(NAMES, NAME, names.into_iter());
        self.call_number(R1);
        self.table_row(off, width, base, NAME, rows)?;
        // A number without a name.
        let named = self.asm.label();
        let (r, disp) = self.block_operand(R1, off, 8);
        self.asm.load(Size::B, R1, r, disp);
        self.asm.jump_if(Cond::Ne, R1, 0, named);
        self.unnamed(off, width)?;
        self.asm.bind(named);
        Ok(())
    }
}
