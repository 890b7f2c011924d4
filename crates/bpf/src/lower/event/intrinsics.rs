//! Dispatch of intrinsics: the event, the current task, time, memory, strings.

use spile_ir::intrinsics::{
    ClockOp, ContextOp, EventOp, Intrinsic, IntrinsicClass, MemoryOp, RunOp, SessionOp, SymbolOp,
    SyscallOp, TaskNumber, TaskOp, TextOp,
};
use spile_ir::{Arch, Event, Reg as IrReg, Space, Ty, Val};

use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Reg, Size, Src};
use crate::layout::{ErrorKind, Quote, shared};
use crate::lower::{CTX, HandlerCodegen, Res, TMP};
use crate::plan::outlining::Op;
use crate::programs::process_tree;
use crate::target::CastKfunc;

/// The largest number of arguments of a raw tracepoint.
const CTX_ARGS: i64 = 12;
/// Offset of the third argument of `sched_switch`: the next task of the processor.
const NEXT: i16 = 16;

/// The error for an operation that kernel handlers do not have.
fn unsupported(f: impl Into<Intrinsic>) -> Res {
    Err(format!("{} in a kernel handler", f.into().info().name))
}

impl HandlerCodegen<'_> {
    /// Emits an intrinsic. If the result is unused, it emits nothing unless the intrinsic has an
    /// effect or can fail.
    pub(in crate::lower) fn intrinsic(
        &mut self,
        dst: Option<IrReg>,
        f: Intrinsic,
        args: &[Val],
    ) -> Res {
        let info = f.info();
        if args.len() != info.params.len() {
            return Err(format!("{} with {} arguments", info.name, args.len()));
        }
        if !info.executors.kernel {
            return unsupported(f);
        }
        if dst.is_some() && info.ret.is_none() {
            return Err(format!("{} has no result", info.name));
        }
        if dst.is_none() && !info.fails && !info.effect {
            return Ok(());
        }
        let result = || dst.ok_or_else(|| format!("{} without a result", info.name));
        match f.class() {
            IntrinsicClass::Memory(op) => self.memory_op(dst, op, args),
            IntrinsicClass::Event(op) => self.event_op(dst, op, args),
            IntrinsicClass::Session(op) => self.session_op(dst, op, args),
            IntrinsicClass::Run(op) => self.run_op(dst, op, args),
            IntrinsicClass::Act(op) => self.act(op, args),
            IntrinsicClass::Context(ContextOp::CtxArg) if self.ctx.loads_arguments() => {
                self.loaded_argument(result()?, args[0])
            }
            IntrinsicClass::Context(op) => {
                self.of_code(op, args)?;
                self.def_int(result()?, R0)
            }
            IntrinsicClass::TaskNumber(which) => self.task_number(result()?, which),
            IntrinsicClass::Syscall(op) => self.syscall_op(result()?, op, args),
            IntrinsicClass::Task(op) => self.task_op(result()?, op, args),
            IntrinsicClass::Clock(op) => self.clock_op(result()?, op),
            IntrinsicClass::Text(op) => self.text_op(result()?, op, args),
            IntrinsicClass::Symbol(op) => self.symbol_op(result()?, op, args),
        }
    }

    /// The result is in r0, if anything uses it.
    fn def_used(&mut self, dst: Option<IrReg>) -> Res {
        dst.map_or(Ok(()), |dst| self.def_int(dst, R0))
    }

    fn memory_op(&mut self, dst: Option<IrReg>, op: MemoryOp, args: &[Val]) -> Res {
        let space = op.space();
        match op {
            MemoryOp::KernelStr | MemoryOp::UserStr | MemoryOp::KernelBuf | MemoryOp::UserBuf => {
                let slot = dst.map(|dst| self.slot(dst)).transpose()?.flatten();
                let slot = slot.unwrap_or(self.unused_room());
                let quote = dst.and_then(|dst| Some((self.deferrable(dst)?, dst)));
                self.read_string(slot, space, (args[0], args[1]), quote)
            }
            MemoryOp::KernelUtf | MemoryOp::UserUtf => self.unicode(dst, space, args),
            MemoryOp::KernelQuoted | MemoryOp::UserQuoted => self.memory_quoted(dst, space, args),
        }
    }

    fn event_op(&mut self, dst: Option<IrReg>, op: EventOp, args: &[Val]) -> Res {
        match op {
            EventOp::PerfCount => return self.perf_count(dst, args),
            EventOp::VerdictSet => return self.set_verdict(args[0]),
            EventOp::Verdict | EventOp::Decision => self.load(R0, self.plan.scratch.verdict),
            EventOp::CtxActivation => self.call_of_function()?,
            EventOp::CtxAddr => self.interrupted_at()?,
            EventOp::CtxEntry => self.returning_from(args[0]),
            EventOp::CtxRecord => self.event_record(),
            EventOp::CtxPlace => self.place_on_stack(),
            EventOp::NextTid => self.next_task_number(self.options.offsets.task_pid)?,
            EventOp::NextPid => self.next_task_number(self.options.offsets.task_tgid)?,
            EventOp::UserMode => self.user_mode(),
        }
        self.def_used(dst)
    }

    fn session_op(&mut self, dst: Option<IrReg>, op: SessionOp, args: &[Val]) -> Res {
        match op {
            SessionOp::Exit => return self.exit_session(),
            SessionOp::Target => {
                return dst.map_or(Ok(()), |dst| self.session_number(dst, shared::TARGET));
            }
            SessionOp::InTree => return dst.map_or(Ok(()), |dst| self.in_tree(dst, args[0])),
            SessionOp::Rand => self.asm.call(Helper::GetPrandomU32),
            SessionOp::InputText
            | SessionOp::ValueText
            | SessionOp::ValueSet
            | SessionOp::ValueAppend
            | SessionOp::Ftrace => return unsupported(op),
        }
        self.def_used(dst)
    }

    fn run_op(&mut self, dst: Option<IrReg>, op: RunOp, args: &[Val]) -> Res {
        match (op, dst) {
            (RunOp::Tokenize, dst) => self.tokenize(dst, args[0], args[1]),
            (RunOp::MatchGroup | RunOp::MatchGroups, None) => Ok(()),
            (RunOp::MatchGroup, Some(dst)) => self.match_group(dst, args[0]),
            (RunOp::MatchGroups, Some(dst)) => {
                self.match_groups();
                self.def_int(dst, R0)
            }
        }
    }

    fn syscall_op(&mut self, dst: IrReg, op: SyscallOp, args: &[Val]) -> Res {
        let at_code = matches!(self.event(), Event::Code(_));
        match op {
            SyscallOp::SysName => return self.sys_name(dst),
            SyscallOp::SysRetstr => return self.sys_retstr(dst),
            SyscallOp::SysArgstr => return self.sys_argstr(dst),
            SyscallOp::SysArgtext => return self.sys_argtext(dst, args[0]),
            SyscallOp::SysArg => self.sys_arg(args[0], 0)?,
            // At a return, SystemTap's first argument is the result, and scripts print it as such.
            SyscallOp::RegArg
                if matches!(self.event(), Event::SysExit(_)) && args[0] == Val::Imm(1) =>
            {
                self.sys_ret()?;
            }
            SyscallOp::RegArg if at_code => self.register_arg(args[0], 1)?,
            SyscallOp::RegArg => self.sys_arg(args[0], 1)?,
            SyscallOp::SysNr => {
                if self.late_number {
                    self.store_number(false)?;
                }
                self.call_number(R0);
            }
            SyscallOp::SysRet if at_code => self.of_code(ContextOp::CtxRet, &[])?,
            SyscallOp::SysRet => self.sys_ret()?,
        }
        self.def_int(dst, R0)
    }

    fn task_op(&mut self, dst: IrReg, op: TaskOp, args: &[Val]) -> Res {
        match op {
            TaskOp::Execname => return self.execname(dst),
            TaskOp::Cmdline => return self.cmdline(dst),
            TaskOp::TaskCurrent | TaskOp::TaskHere => self.asm.call(Helper::GetCurrentTask),
            TaskOp::InCall => self.call_of_task()?,
            TaskOp::CgroupId => self.asm.call(Helper::GetCurrentCgroupId),
            TaskOp::CgroupAncestor => {
                self.use_in(args[0], R1)?;
                self.asm.call(Helper::GetCurrentAncestorCgroupId);
            }
            TaskOp::Cpu => self.asm.call(Helper::GetSmpProcessorId),
        }
        self.def_int(dst, R0)
    }

    fn clock_op(&mut self, dst: IrReg, op: ClockOp) -> Res {
        match op {
            ClockOp::RealNs => {
                self.asm.call(Helper::KtimeGetNs);
                self.shared(R1, shared::CLOCK_OFFSET);
                self.asm.load(Size::DW, R1, R1, 0);
                self.asm.add(R0, R1);
            }
            // BPF has no instruction to read the cycle counter; the clock counts one cycle per
            // nanosecond.
            ClockOp::MonoNs | ClockOp::CpuClock | ClockOp::Cycles => {
                self.asm.call(Helper::KtimeGetNs);
            }
            ClockOp::Jiffies => self.asm.call(Helper::Jiffies64),
            ClockOp::TzOffset => return self.session_number(dst, shared::TZ_OFFSET),
            ClockOp::TzName => return self.tz_name(dst),
        }
        self.def_int(dst, R0)
    }

    fn text_op(&mut self, dst: IrReg, op: TextOp, args: &[Val]) -> Res {
        match op {
            TextOp::Strlen => {
                let text = self.text(args[0])?;
                self.strlen(&text);
                self.def_int(dst, R0)
            }
            TextOp::Substr => self.substr(dst, args[0], args[1], args[2]),
            TextOp::Stringat => self.stringat(dst, args[0], args[1]),
            TextOp::Isinstr => self.isinstr(dst, args[0], args[1]),
            TextOp::Strpos => self.strpos(dst, args[0], args[1]),
            TextOp::StrReplace => self.str_replace(dst, args),
            TextOp::TextStrn => self.text_strn(dst, args[0], args[1], args[2]),
            TextOp::Strtol => self.strtol(dst, args[0], args[1]),
            TextOp::StrToFp => self.string_to_fp(dst, args[0]),
            TextOp::MetricText => unsupported(op),
        }
    }

    fn symbol_op(&mut self, dst: IrReg, op: SymbolOp, args: &[Val]) -> Res {
        match op {
            SymbolOp::SymName => self.symbol(dst, args[0], false),
            SymbolOp::SymData => self.symbol(dst, args[0], true),
            SymbolOp::KernelStack => self.kernel_stack(dst, args[0]),
            SymbolOp::SymbolicForm => self.symbolic(dst, args[0], args[1]),
            SymbolOp::KernelSymbolic => self.kernel_symbolic(dst, args[0], args[1]),
            SymbolOp::UserStack => self.user_stack(dst, args[0]),
            SymbolOp::UserSymbolic => self.user_symbolic(dst, args[0], args[1], &[]),
            SymbolOp::UserSymbolicFrom => self.user_symbolic(dst, args[0], args[1], &args[2..]),
            SymbolOp::StackWords => self.copy(dst, args[0]),
            SymbolOp::StackRest => self.stack_rest(dst, args[0]),
            SymbolOp::Interrupted => self.interrupted(dst),
            SymbolOp::StackMark => {
                self.stack_mark(args[0])?;
                self.def_int(dst, R0)
            }
            SymbolOp::KernelFrame => {
                self.kernel_frame(args[0])?;
                self.def_int(dst, R0)
            }
            SymbolOp::UserFrame => {
                self.user_frame(args[0])?;
                self.def_int(dst, R0)
            }
        }
    }

    /// `r0` = a number of the next task at `sched_switch`.
    fn next_task_number(&mut self, offset: Option<u32>) -> Res {
        let offset = offset.and_then(|o| i32::try_from(o).ok());
        let offset = offset.ok_or("this kernel has no type information about tasks")?;
        self.asm.load(Size::DW, R3, R10, CTX);
        self.asm.load(Size::DW, R3, R3, NEXT);
        if let (Ok(offset), true) = (i16::try_from(offset), self.loads_kernel_memory()) {
            self.cast(R3, |cast| cast.task);
            self.asm.load(Size::W, R0, R0, offset);
            return Ok(());
        }
        self.asm.add(R3, offset);
        self.asm.mov(R1, R10);
        self.asm.add(R1, i32::from(crate::lower::TMP[0]));
        self.asm.mov(R2, 4);
        self.asm.call(Helper::ProbeReadKernel);
        self.asm.load(Size::W, R0, R10, crate::lower::TMP[0]);
        Ok(())
    }

    /// `dst` = whether a process descends from the target process: its bit in the table of them.
    fn in_tree(&mut self, dst: IrReg, pid: Val) -> Res {
        let at = self.plan.tree.ok_or("no processes are followed")?;
        let pid = self.use_in_temp(pid, 1)?;
        let (result, word) = (self.result(dst, Src::Reg(pid)), self.temp(2));
        self.asm.mov(result, pid);
        process_tree::word(self.asm, at, result, word);
        self.asm.load(Size::DW, result, word, 0);
        self.asm.mov(word, pid);
        self.asm.alu(AluOp::And, word, 63);
        self.asm.alu(AluOp::Rsh, result, word);
        self.asm.alu(AluOp::And, result, 1);
        self.def_int(dst, result)
    }

    /// Sets the verdict on the packet. The kernel allows programs only these two values.
    fn set_verdict(&mut self, n: Val) -> Res {
        let fail = self.fail_label(ErrorKind::Verdict);
        self.use_in(n, R0)?;
        self.asm.jump_if(Cond::Gt, R0, 1, fail);
        self.store(self.plan.scratch.verdict, R0);
        Ok(())
    }

    /// `dst` = a word of the session's shared block.
    fn session_number(&mut self, dst: IrReg, off: u32) -> Res {
        let result = self.result(dst, Src::Imm(0));
        self.shared(result, off);
        self.asm.load(Size::DW, result, result, 0);
        self.def_int(dst, result)
    }

    fn exit_session(&mut self) -> Res {
        self.shared(R1, 0);
        self.asm.store(Size::DW, R1, shared::EXIT as i16, 1);
        self.asm.store(Size::DW, R1, shared::RUNNING as i16, 0);
        Ok(())
    }

    /// `dst` = an argument of a tracepoint.
    fn loaded_argument(&mut self, dst: IrReg, n: Val) -> Res {
        let result = self.result(dst, Src::Imm(0));
        self.argument_in(result, n)?;
        self.def_int(dst, result)
    }

    fn argument_in(&mut self, to: Reg, n: Val) -> Res {
        let Val::Imm(n @ 0..CTX_ARGS) = n else {
            return Err("the number of a tracepoint argument is not a small constant".into());
        };
        self.asm.load(Size::DW, to, R10, CTX);
        self.asm.load(Size::DW, to, to, 8 * n as i16);
        Ok(())
    }

    pub(in crate::lower) fn ctx_arg(&mut self, n: Val) -> Res {
        self.argument_in(R0, n)?;
        if matches!(self.event(), Event::Netfilter(_) | Event::Lsm(_)) {
            // The verifier restricts operations on the pointer; the way through memory turns it
            // into a number.
            self.store(self.plan.scratch.tmp, R0);
            self.load(R0, self.plan.scratch.tmp);
        }
        Ok(())
    }

    /// `r0` = the current task, as a pointer for loads.
    pub(in crate::lower) fn task(&mut self) {
        self.task_in(R0);
    }

    /// The register for the current task's address: r0, unless the address is saved.
    pub(in crate::lower) fn task_register(&self, dst: IrReg) -> Reg {
        match self.task_saved {
            true => self.result(dst, Src::Imm(0)),
            false => R0,
        }
    }

    /// `to` = the current task, as a pointer for loads. If it is not saved, `to` is r0.
    pub(in crate::lower) fn task_in(&mut self, to: Reg) {
        if self.task_saved {
            self.asm.load(Size::DW, to, R10, crate::lower::TASK);
            return;
        }
        debug_assert_eq!(to, R0);
        self.asm.call(Helper::GetCurrentTaskBtf);
    }

    /// `dst` = a number of the current task, loaded through its pointer or with a helper.
    fn task_number(&mut self, dst: IrReg, which: TaskNumber) -> Res {
        let o = &self.options.offsets;
        // Pointers to follow, then the number; all but the last are 8 bytes.
        let path: &[Option<u32>] = match which {
            TaskNumber::Pid => &[o.task_tgid],
            TaskNumber::Tid => &[o.task_pid],
            TaskNumber::Ppid => &[o.task_real_parent, o.task_tgid],
            TaskNumber::Pgrp => &[o.task_signal, o.signal_pgrp, o.pid_nr],
            TaskNumber::Sid => &[o.task_signal, o.signal_session, o.pid_nr],
            TaskNumber::Uid => &[o.task_cred, o.cred_uid],
            TaskNumber::Euid => &[o.task_cred, o.cred_euid],
            TaskNumber::Gid => &[o.task_cred, o.cred_gid],
            TaskNumber::Egid => &[o.task_cred, o.cred_egid],
            TaskNumber::UserNsLevel => &[o.task_cred, o.cred_user_ns, o.user_ns_level],
            TaskNumber::TaskSpace => &[o.task_mm, o.mm_task_size],
        };
        let whole: Option<Vec<i16>> = path
            .iter()
            .map(|o| o.and_then(|o| i16::try_from(o).ok()))
            .collect();
        let Some(offsets) = whole else {
            self.task_number_by_helper(which)?;
            return self.def_int(dst, R0);
        };
        if let [offset] = *offsets
            && which != TaskNumber::TaskSpace
        {
            let result = self.task_register(dst);
            self.task_in(result);
            self.asm.load(Size::W, result, result, offset);
            return self.def_int(dst, result);
        }
        self.task();
        self.cast(R0, |cast| cast.task);
        for (i, off) in offsets.iter().enumerate() {
            let last = i + 1 == offsets.len();
            let size = if last && which != TaskNumber::TaskSpace {
                Size::W
            } else {
                Size::DW
            };
            self.asm.load(size, R0, R0, *off);
        }
        self.def_int(dst, R0)
    }

    fn task_number_by_helper(&mut self, which: TaskNumber) -> Res {
        match which {
            TaskNumber::Pid | TaskNumber::Gid => {
                self.asm.call(if which == TaskNumber::Pid {
                    Helper::GetCurrentPidTgid
                } else {
                    Helper::GetCurrentUidGid
                });
                self.asm.alu(AluOp::Rsh, R0, 32);
            }
            TaskNumber::Tid | TaskNumber::Uid => {
                self.asm.call(if which == TaskNumber::Tid {
                    Helper::GetCurrentPidTgid
                } else {
                    Helper::GetCurrentUidGid
                });
                self.asm.mov32(R0, R0);
            }
            TaskNumber::Ppid
            | TaskNumber::Pgrp
            | TaskNumber::Sid
            | TaskNumber::Euid
            | TaskNumber::Egid
            | TaskNumber::TaskSpace
            | TaskNumber::UserNsLevel => {
                return Err(format!(
                    "{} needs a field of a kernel structure that this kernel does not have",
                    Intrinsic::from(which).info().name
                ));
            }
        }
        Ok(())
    }

    /// `dst` = the task's name. Clears remains of an older, longer name behind the end of the 16
    /// bytes.
    fn execname(&mut self, dst: IrReg) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        let comm = self.comm();
        if width < 16 {
            self.short_execname(off, width, comm);
            return Ok(());
        }
        if self.outlined(Op::TaskName) && self.execname_global(off, width)? {
            return Ok(());
        }
        self.execname_to(|c| c.block_operand(R3, off, 16));
        if width > 16 {
            self.fill_zero(off + 16, width - 16);
        }
        Ok(())
    }

    /// 16 bytes = the task's name. `to` gives their base and displacement, and may use r3.
    pub(in crate::lower) fn execname_to(&mut self, to: impl Fn(&mut Self) -> (Reg, i16)) {
        let Some(comm) = self.comm() else {
            let (base, disp) = to(self);
            self.asm.store(Size::DW, base, disp, 0);
            self.asm.store(Size::DW, base, disp + 8, 0);
            self.asm.mov(R1, base);
            self.asm.add(R1, i32::from(disp));
            self.asm.mov(R2, 16);
            self.asm.call(Helper::GetCurrentComm);
            return;
        };
        self.name_words(comm);
        let (base, disp) = to(self);
        self.asm.store(Size::DW, base, disp, R1);
        self.asm.store(Size::DW, base, disp + 8, R2);
    }

    /// Offset of the name in the task's structure.
    fn comm(&self) -> Option<i16> {
        let comm = self.options.offsets.task_comm;
        comm.and_then(|o| i16::try_from(o).ok())
    }

    /// `r1` and `r2` = the two words of the task's name.
    fn name_words(&mut self, comm: i16) {
        self.task();
        self.asm.load(Size::DW, R1, R0, comm);
        self.asm.load(Size::DW, R2, R0, comm + 8);
        self.asm.ld_imm64(R4, 0x0101_0101_0101_0101);
        self.asm.ld_imm64(R5, 0x8080_8080_8080_8080);
        let (long, end) = (self.asm.label(), self.asm.label());
        self.zero_bytes(R1);
        self.asm.jump_if(Cond::Eq, R3, 0, long);
        self.clear_from_zero_byte(R1);
        self.asm.mov(R2, 0);
        self.asm.jump(end);
        self.asm.bind(long);
        self.zero_bytes(R2);
        self.clear_from_zero_byte(R2);
        self.asm.bind(end);
    }

    /// Stores the task's name in a slot of 8 bytes.
    fn short_execname(&mut self, off: u32, width: u32, comm: Option<i16>) {
        let Some(comm) = comm else {
            // Uses two adjacent scratch words.
            self.asm.mov(R1, R10);
            self.asm.add(R1, i32::from(TMP[1]));
            self.asm.mov(R2, 16);
            self.asm.call(Helper::GetCurrentComm);
            self.asm.load(Size::DW, R1, R10, TMP[1]);
            return self.store_short(off, width);
        };
        self.task();
        self.asm.load(Size::DW, R1, R0, comm);
        self.store_short(off, width);
    }

    /// Stores the word r1 up to its first zero byte.
    fn store_short(&mut self, off: u32, width: u32) {
        let long = self.asm.label();
        self.asm.ld_imm64(R4, 0x0101_0101_0101_0101);
        self.asm.ld_imm64(R5, 0x8080_8080_8080_8080);
        self.zero_bytes(R1);
        self.asm.jump_if(Cond::Eq, R3, 0, long);
        self.clear_from_zero_byte(R1);
        self.asm.bind(long);
        let (base, disp) = self.block_operand(R3, off, 8);
        self.asm.store(Size::DW, base, disp, R1);
        self.truncate(off, width);
    }

    /// `r3` = top bit of each zero byte of a word, with r4 all 0x01 and r5 all 0x80. Only the
    /// lowest mark is reliable. Clobbers r0.
    fn zero_bytes(&mut self, word: crate::isa::insn::Reg) {
        self.asm.mov(R3, word);
        self.asm.alu(AluOp::Sub, R3, R4);
        self.asm.mov(R0, word);
        self.asm.alu(AluOp::Xor, R0, -1);
        self.asm.alu(AluOp::And, R3, R0);
        self.asm.alu(AluOp::And, R3, R5);
    }

    /// Clears a word from its lowest zero byte on, which r3 marks.
    fn clear_from_zero_byte(&mut self, word: crate::isa::insn::Reg) {
        self.asm.mov(R0, R3);
        self.asm.neg(R0);
        self.asm.alu(AluOp::And, R3, R0);
        self.asm.add(R3, -1);
        self.asm.alu(AluOp::Rsh, R3, 7);
        self.asm.alu(AluOp::And, word, R3);
    }

    fn tz_name(&mut self, dst: IrReg) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        self.shared(R3, shared::TZ_NAME);
        for i in (0..width.min(16)).step_by(8) {
            self.asm.load(Size::DW, R1, R3, i as i16);
            let (base, disp) = self.block_operand(R2, off + i, 8);
            self.asm.store(Size::DW, base, disp, R1);
        }
        if width > 16 {
            self.fill_zero(off + 16, width - 16);
        } else {
            self.truncate(off, width);
        }
        Ok(())
    }

    /// Offset and width of a buffer for a string that is not used, of the largest width.
    fn unused_room(&self) -> (u32, u32) {
        let width = self.plan.max_string;
        (self.plan.scratch.text + 2 * width, width)
    }

    /// A slot = string or bytes at an address.
    fn read_string(
        &mut self,
        (off, width): (u32, u32),
        space: Space,
        (addr, n): (Val, Val),
        quote: Option<(Quote, IrReg)>,
    ) -> Res {
        let user = space == Space::User;
        let kind = if user {
            ErrorKind::UserStrFault
        } else {
            ErrorKind::KernelStrFault
        };
        self.fill_zero(off, width);
        self.room_into(n, width)?;
        self.use_in(addr, R3)?;
        self.set_aux(R3);
        self.block_addr(R1, off);
        self.asm.call(if user {
            Helper::ProbeReadUserStr
        } else {
            Helper::ProbeReadKernelStr
        });
        let fail = self.fail_label(kind);
        if !user || self.options.resident {
            self.asm.jump_if(Cond::Slt, R0, 0, fail);
            return Ok(());
        }
        let read = self.asm.label();
        self.asm.jump_if(Cond::Sge, R0, 0, read);
        self.room_into(n, width)?;
        self.asm.add(R2, -1);
        self.asm.mov(R1, R2);
        self.load(R2, self.plan.scratch.err_aux);
        self.read_absent(false)?;
        let copy = self.asm.label();
        self.asm.jump_if(Cond::Eq, R0, 0, copy);
        match quote {
            Some(quote) => self.defer((off, width), n, quote, (read, fail))?,
            None => self.asm.jump(fail),
        }
        self.asm.bind(copy);
        self.room_into(n, width)?;
        self.block_addr(R1, off);
        self.block_addr(R3, super::usermem::staging_area(self.plan));
        self.asm.call(Helper::ProbeReadKernelStr);
        self.asm.bind(read);
        Ok(())
    }

    /// `r2` = number of bytes to read for `n` bytes of text: helpers count the NUL.
    pub(in crate::lower) fn room_into(&mut self, n: Val, width: u32) -> Res {
        let Val::Imm(n) = n else {
            let (some, fits) = (self.asm.label(), self.asm.label());
            self.use_in(n, R2)?;
            self.asm.jump_if(Cond::Sge, R2, 0, some);
            self.asm.mov(R2, 0);
            self.asm.bind(some);
            self.asm.jump_if(Cond::Lt, R2, width as i32, fits);
            self.asm.mov(R2, width as i32 - 1);
            self.asm.bind(fits);
            self.asm.add(R2, 1);
            return Ok(());
        };
        let room = n.clamp(0, i64::from(width) - 1) + 1;
        self.asm.mov(R2, room as i32);
        Ok(())
    }

    pub(in crate::lower) fn memory_load(
        &mut self,
        dst: IrReg,
        space: Space,
        addr: Val,
        size: u8,
        signed: bool,
    ) -> Res {
        let access = Size::from_bytes(size.into()).ok_or("an access of that size")?;
        let done = self.asm.label();
        if space == Space::Kernel && self.loads_kernel_memory() {
            self.use_in(addr, R1)?;
            self.cast(R1, |cast| cast.word);
            self.asm.load(access, R0, R0, 0);
            // A load from an address that cannot be read gives 0, too. The helper tells which it was.
            self.asm.jump_if(Cond::Ne, R0, 0, done);
        }
        self.use_in(addr, R3)?;
        self.set_aux(R3);
        self.asm.mov(R1, R10);
        self.asm.add(R1, i32::from(TMP[0]));
        self.asm.mov(R2, i32::from(size));
        self.asm.call(match space {
            Space::Kernel => Helper::ProbeReadKernel,
            Space::User => Helper::ProbeReadUser,
        });
        let fail = self.fail_label(ErrorKind::ReadFault);
        if space == Space::User && !self.options.resident {
            let read = self.asm.label();
            self.asm.jump_if(Cond::Eq, R0, 0, read);
            self.asm.mov(R1, i32::from(size));
            self.load(R2, self.plan.scratch.err_aux);
            self.read_absent(true)?;
            self.asm.jump_if(Cond::Ne, R0, 0, fail);
            self.load(R1, super::usermem::staging_area(self.plan));
            self.asm.store(Size::DW, R10, TMP[0], R1);
            self.asm.bind(read);
        } else {
            self.asm.jump_if(Cond::Ne, R0, 0, fail);
        }
        self.asm.load(access, R0, R10, TMP[0]);
        self.asm.bind(done);
        self.extend_into(dst, R0, (size, signed))
    }

    /// Whether loads through a cast pointer cannot reach memory of programs. On x86 they compare each
    /// address with the limits of the kernel's.
    fn loads_kernel_memory(&self) -> bool {
        self.options.arch == Arch::X86_64 && self.options.features.cast.is_some()
    }

    /// `r0` = the address in a register as a pointer to a structure of the kernel. Without casts `r0` stays.
    fn cast(&mut self, from: Reg, to: fn(CastKfunc) -> u32) {
        if let Some(cast) = self.options.features.cast {
            if from != R1 {
                self.asm.mov(R1, from);
            }
            self.asm.mov(R2, to(cast).cast_signed());
            self.asm.call_kfunc(cast.function);
        }
    }

    /// `dst` = sign or zero extension of the `size`-byte number in r0, whose upper bits are zero.
    pub(in crate::lower) fn extend_into(
        &mut self,
        dst: IrReg,
        value: Reg,
        (size, signed): (u8, bool),
    ) -> Res {
        if signed && size < 8 {
            let shift = 64 - 8 * i32::from(size);
            self.asm.alu(AluOp::Lsh, value, shift);
            self.asm.alu(AluOp::Arsh, value, shift);
        }
        debug_assert!(matches!(self.body.regs[dst.index()], Ty::Long));
        self.def_int(dst, value)
    }
}
