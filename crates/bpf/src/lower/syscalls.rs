//! System calls: numbers, arguments, results, and their text.
//!
//! | file | what it lowers |
//! |---|---|
//! | `argstr` | arguments as text, by functions of the run-time library |
//! | `parts` | the calls that `socketcall` and `ipc` of 32-bit programs stand for |
//! | `retstr` | results as text |

pub(crate) mod argstr;
pub(crate) mod parts;
pub(crate) mod retstr;

use spile_cast::Cast;
use spile_ebpf::isa::asm::{Asm, CallArg, Label};
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::insn::Reg::R10;
use spile_ebpf::isa::insn::{AluOp, Cond, Reg, Size};
use spile_ir::intrinsics::{Intrinsic, IntrinsicClass, SyscallOp};
use spile_ir::{Event, NrSet, Reg as IrReg, Val};
use spile_layout::shared;

use crate::error::{LowerError, Res};
use crate::lower::codegen::HandlerCodegen;
use crate::lower::slots::{CTX, NR, TASK};

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

/// A copy of the system call's number, detached from the stack slot. Tests of the copy teach
/// the verifier nothing about the slot. Otherwise it would follow each result of a test to the end
/// of the program: hundreds of times for a search tree with hundreds of numbers.
pub(crate) fn unlinked_number(asm: &mut Asm) -> Reg {
    let number = asm.word(R10, NR);
    // Changes nothing, but detaches the copy.
    asm.alu(AluOp::And, number, -1);
    number
}

impl HandlerCodegen<'_> {
    /// 0, or in a 32-bit call a word with one bit.
    fn compat(&mut self) -> Reg {
        let status = self.options.offsets.task_ti_status;
        let status = status.and_then(|o| i16::try_from(o).ok());
        match status.zip(self.options.abi.syscalls.compat.as_ref()) {
            Some((off, compat)) => {
                let task = self.task();
                let status = self.asm.read(Size::W, task, off);
                self.asm.alu(AluOp::And, status, compat.status);
                status
            }
            None => self.asm.copy(0),
        }
    }

    /// Offsets of the arguments of 32-bit calls. Where there are none, nothing gets to their code.
    pub(super) fn compat_arguments(&self) -> [i16; 6] {
        let calls = &self.options.abi.syscalls;
        let compat = calls.compat.as_ref();
        compat.map_or(calls.arguments, |compat| compat.arguments)
    }

    /// The address of the current task's registers, for loads.
    pub(super) fn regs(&mut self) -> Res<Reg> {
        if !self.options.features.task_pt_regs {
            return Err(LowerError::unsupported(
                "arguments of system calls need bpf_task_pt_regs (Linux 5.15)",
            ));
        }
        let task = self.task();
        Ok(self.asm.call_with(Helper::TaskPtRegs, &[task.into()]))
    }

    /// The number of the current task's system call.
    pub(super) fn call_of_task(&mut self) -> Res<Reg> {
        let regs = self.regs()?;
        Ok(self.asm.word(regs, self.options.abi.syscalls.number))
    }

    /// Stores the call's number as in `NrSet`, or -1 for a number of no table, and the current task
    /// on the stack.
    ///
    /// The verifier follows the fall-through path of a jump first. The first path has an unknown
    /// number, so that its state covers the later paths.
    pub(crate) fn store_number(&mut self, entry: bool) -> Res {
        let [native, small, unknown, end] = self.asm.labels();
        let calls = &self.options.abi.syscalls;
        if !entry || self.options.offsets.task_ti_status.is_some() {
            self.save_task();
        }
        let number = match entry {
            true => {
                let context = self.asm.word(R10, CTX);
                self.asm.word(context, 8)
            }
            false => self.call_of_task()?,
        };
        self.asm.store(Size::DW, R10, NR, number);
        let compat = self.compat();
        let number = self.asm.word(R10, NR);
        self.asm.jump_if(Cond::Eq, compat, 0, native);
        self.asm.mov32(number, number);
        if let Some(compat) = calls.compat.as_ref().filter(|_| !entry) {
            self.sigreturn(number, compat.sigreturn);
        }
        self.asm.jump_if(Cond::Lt, number, NrSet::COMPAT, small);
        self.asm.jump(unknown);
        self.asm.bind(small);
        self.asm.add(number, NrSet::COMPAT);
        if self.ctx.tells_parts {
            self.part_of_call(number)?;
        }
        self.asm.jump(end);
        self.asm.bind(native);
        self.asm.mov32(number, number);
        if !entry {
            self.sigreturn(number, calls.sigreturn);
        }
        self.asm.alu(AluOp::And, number, !calls.other_abi);
        self.asm.mov32(number, number);
        self.asm.jump_if(Cond::Lt, number, NrSet::COMPAT, end);
        self.asm.bind(unknown);
        self.unknown_number(number, -1);
        self.asm.bind(end);
        self.asm.store(Size::DW, R10, NR, number);
        Ok(())
    }

    /// Stores the current task on the stack, unless it is there.
    pub(crate) fn save_task(&mut self) {
        if !self.task_saved {
            let task = self.task();
            self.asm.store(Size::DW, R10, TASK, task);
            self.task_saved = true;
        }
    }

    /// `reg` = `number` if it is -1, which is how the registers look after a return from a signal.
    fn sigreturn(&mut self, reg: Reg, number: i32) {
        let other = self.asm.label();
        self.asm.jump_if32(Cond::Ne, reg, -1, other);
        self.unknown_number(reg, number);
        self.asm.bind(other);
    }

    /// `reg` = `number`, as a value that the verifier does not know.
    fn unknown_number(&mut self, reg: Reg, number: i32) {
        self.asm.set(reg, &CallArg::Shared(shared::ZERO));
        self.asm.load(Size::DW, reg, reg, 0);
        self.asm.add(reg, number);
    }

    /// Falls through if the handler's call is in the set, else goes to the label.
    pub(crate) fn dispatch(&mut self, set: &NrSet, out: Label) {
        if *set != NrSet::All {
            let number = self.call_number();
            self.dispatch_number(number, set, out);
        }
    }

    /// Falls through if the number is in the set, else goes to the label.
    pub(crate) fn dispatch_number(&mut self, number: Reg, set: &NrSet, out: Label) {
        let NrSet::List(list) = set else { return };
        let hit = self.asm.label();
        match &list[..] {
            [] => self.asm.mov(number, -1),
            [.., last] if list.len() <= 4 => {
                for nr in &list[..list.len() - 1] {
                    self.asm.jump_if(Cond::Eq, number, *nr, hit);
                }
                self.asm.jump_if(Cond::Ne, number, *last, out);
            }
            [.., last] => {
                let words = *last as usize / 64 + 1;
                let mut bits = vec![0u64; words];
                list.iter()
                    .for_each(|nr| bits[*nr as usize / 64] |= 1 << (nr % 64));
                let bytes: Vec<u8> = bits.iter().flat_map(|w| w.to_ne_bytes()).collect();
                let off = self.pool.constant(&bytes);
                self.asm
                    .jump_if(Cond::Ge, number, words.fit::<i32>() * 64, out);
                let offset = self.asm.alu_of(AluOp::Rsh, number, 6);
                self.asm.alu(AluOp::Lsh, offset, 3);
                let word = self.asm.address_of(&CallArg::Constant(off));
                self.asm.add(word, offset);
                self.asm.load(Size::DW, word, word, 0);
                self.asm.alu(AluOp::And, number, 63);
                self.asm.alu(AluOp::Rsh, word, number);
                self.asm.alu(AluOp::And, word, 1);
                self.asm.jump_if(Cond::Eq, word, 0, out);
            }
        }
        if list.is_empty() {
            self.asm.jump_if(Cond::Eq, number, -1, out);
        }
        self.asm.bind(hit);
    }

    /// The number of the call that the handler sees, as a detached copy, see [`unlinked_number`].
    pub(super) fn call_number(&mut self) -> Reg {
        let number = unlinked_number(self.asm);
        self.whole_of_part(number);
        number
    }

    /// Argument n of the system call, counted from `first`.
    pub(super) fn sys_arg(&mut self, n: Val, first: i64) -> Res<Reg> {
        if !matches!(self.event(), Event::SysEnter(_) | Event::SysExit(_)) {
            return Err("arguments of a system call in another event".into());
        }
        let Val::Imm(n) = n else {
            return Err("the number of a system call's argument is not a constant".into());
        };
        let n = usize::try_from(n - first).ok().filter(|n| *n < 6);
        let n = n.ok_or("a system call has six arguments")?;
        let [small, end] = self.asm.labels();
        let arg = self.regs()?;
        let number = self.call_number();
        self.asm.jump_if(Cond::Sge, number, NrSet::COMPAT, small);
        // The verifier follows this path first; it leaves the argument less constrained than the
        // other.
        let offset = self.options.abi.syscalls.arguments[n];
        self.asm.load(Size::DW, arg, arg, offset);
        self.asm.jump(end);
        self.asm.bind(small);
        match self.sees_parts() {
            true => self.compat_word(number, arg, n),
            false => self.asm.load(Size::W, arg, arg, self.compat_arguments()[n]),
        }
        self.asm.bind(end);
        Ok(arg)
    }

    pub(super) fn sys_ret(&mut self) -> Res<Reg> {
        if !matches!(self.event(), Event::SysExit(_)) {
            return Err("the result of a system call in another event".into());
        }
        // At a raw tracepoint this word is the registers' address, and the number follows.
        let offset = match self.plan.attach.syscall_events {
            Some(_) => 16,
            None => 8,
        };
        let context = self.asm.word(R10, CTX);
        Ok(self.asm.word(context, offset))
    }

    pub(super) fn sys_name(&mut self, dst: IrReg) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        let rows = self.options.syscalls.iter().map(|s| s.nr + 1).max();
        let rows = rows.unwrap_or(0).min(4 * NrSet::COMPAT);
        let mut names: Vec<&[u8]> = vec![b""; rows as usize];
        for s in self.options.syscalls.iter() {
            if let Some(name) = names.get_mut(s.nr as usize) {
                *name = s.name.as_bytes();
            }
        }
        let base = self.pool.table(NAMES, NAME, names.into_iter());
        let row = self.call_number();
        self.table_row(row, (off, width), base, NAME, rows)?;
        // A number without a name.
        let named = self.asm.label();
        let (r, disp) = self.block_operand(off, 8);
        let first = self.asm.read(Size::B, r, disp);
        self.asm.jump_if(Cond::Ne, first, 0, named);
        self.unnamed(off, width)?;
        self.asm.bind(named);
        Ok(())
    }
}
