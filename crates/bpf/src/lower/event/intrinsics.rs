//! Dispatch of intrinsics: the event, the current task, time, memory, strings.

use spile_cast::Cast;
use spile_ebpf::isa::asm::CallArg;
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::insn::Reg::R10;
use spile_ebpf::isa::insn::{AluOp, Cond, Reg, Size, Src};
use spile_ir::intrinsics::{
    ClockOp, ContextOp, EventOp, Intrinsic, IntrinsicClass, MemoryOp, RunOp, SessionOp, SymbolOp,
    SyscallOp, TaskNumber, TaskOp, TextOp,
};
use spile_ir::{Event, IntTy, Reg as IrReg, Space, Ty, Val};
use spile_layout::{ErrorKind, Quote, shared};

use crate::attach::attachment::Hook;
use crate::error::{LowerError, Res};
use crate::lower::codegen::HandlerCodegen;
use crate::lower::slots::{CTX, TMP, block_at};
use crate::lower::values::{probe_read, string_fault};
use crate::programs::process_tree;
use crate::target::CastKfunc;

/// The largest number of arguments of a raw tracepoint.
const CTX_ARGS: i64 = 12;
/// Offset of the third argument of `sched_switch`: the next task of the processor.
const NEXT: i16 = 16;

/// The error for an operation that handlers of this host do not have.
fn unsupported(f: impl Into<Intrinsic>) -> Res {
    Err(LowerError::unsupported(format!(
        "{} in a compiled handler",
        f.into().info().name
    )))
}

impl HandlerCodegen<'_> {
    /// Emits an intrinsic. If the result is unused, it emits nothing unless the intrinsic has an
    /// effect or can fail.
    pub(crate) fn intrinsic(&mut self, dst: Option<IrReg>, f: Intrinsic, args: &[Val]) -> Res {
        let info = f.info();
        if args.len() != info.params.len() {
            return Err(LowerError::malformed(format!(
                "{} with {} arguments",
                info.name,
                args.len()
            )));
        }
        if !info.executors.contains(self.options.host.executor()) {
            return unsupported(f);
        }
        if dst.is_some() && info.ret.is_none() {
            return Err(LowerError::malformed(format!(
                "{} has no result",
                info.name
            )));
        }
        if dst.is_none() && !info.fails && !info.effect {
            return Ok(());
        }
        let result =
            || dst.ok_or_else(|| LowerError::malformed(format!("{} without a result", info.name)));
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
                let value = self.of_code(op, args)?;
                self.def_int(result()?, value)
            }
            IntrinsicClass::TaskNumber(which) => self.task_number(result()?, which),
            IntrinsicClass::Syscall(op) => self.syscall_op(result()?, op, args),
            IntrinsicClass::Task(op) => self.task_op(result()?, op, args),
            IntrinsicClass::Clock(op) => self.clock_op(result()?, op),
            IntrinsicClass::Text(op) => self.text_op(result()?, op, args),
            IntrinsicClass::Symbol(op) => self.symbol_op(result()?, op, args),
        }
    }

    /// Defines the result, if anything uses it.
    fn def_used(&mut self, dst: Option<IrReg>, value: impl Into<Src>) -> Res {
        dst.map_or(Ok(()), |dst| self.def_int(dst, value))
    }

    fn memory_op(&mut self, dst: Option<IrReg>, op: MemoryOp, args: &[Val]) -> Res {
        let space = op.space();
        match op {
            MemoryOp::KernelStr | MemoryOp::UserStr | MemoryOp::KernelBuf | MemoryOp::UserBuf => {
                let slot = dst.map(|dst| self.slot(dst)).transpose()?.flatten();
                let slot = slot.unwrap_or(self.unused_capacity());
                let quote = dst.and_then(|dst| Some((self.deferrable(dst)?, dst)));
                self.read_string(slot, space, (args[0], args[1]), quote)
            }
            MemoryOp::KernelUtf | MemoryOp::UserUtf => self.unicode(dst, space, args),
            MemoryOp::KernelQuoted | MemoryOp::UserQuoted => self.memory_quoted(dst, space, args),
        }
    }

    fn event_op(&mut self, dst: Option<IrReg>, op: EventOp, args: &[Val]) -> Res {
        let value = match op {
            EventOp::PerfCount => return self.perf_count(dst, args),
            EventOp::VerdictSet => return self.set_verdict(args[0]),
            EventOp::Verdict | EventOp::Decision => self.block_word(self.plan.scratch.verdict),
            EventOp::CtxActivation => self.call_of_function()?,
            EventOp::CtxAddr => self.interrupted_at()?,
            EventOp::CtxEntry => self.returning_from(args[0]),
            EventOp::CtxRecord | EventOp::CtxStackAddress => self.context_address(),
            EventOp::NextTid => self.next_task_number(self.options.offsets.task_pid)?,
            EventOp::NextPid => self.next_task_number(self.options.offsets.task_tgid)?,
            EventOp::UserMode => self.user_mode(),
        };
        self.def_used(dst, value)
    }

    fn session_op(&mut self, dst: Option<IrReg>, op: SessionOp, args: &[Val]) -> Res {
        let value = match op {
            SessionOp::Exit => return self.exit_session(),
            SessionOp::Target => return self.session_number(dst, shared::TARGET),
            SessionOp::DirectMap => return self.session_number(dst, shared::MEMORY),
            SessionOp::PageArray => return self.session_number(dst, shared::PAGES),
            SessionOp::InTree => return dst.map_or(Ok(()), |dst| self.in_tree(dst, args[0])),
            SessionOp::TreeAdd => return self.tree_add(args[0]),
            SessionOp::Rand => self.asm.call_with(Helper::GetPrandomU32, &[]),
            SessionOp::InputText
            | SessionOp::ValueText
            | SessionOp::ValueSet
            | SessionOp::ValueAppend
            | SessionOp::Ftrace => return unsupported(op),
        };
        self.def_used(dst, value)
    }

    fn run_op(&mut self, dst: Option<IrReg>, op: RunOp, args: &[Val]) -> Res {
        match (op, dst) {
            (RunOp::Tokenize, dst) => self.tokenize(dst, args[0], args[1]),
            (RunOp::MatchGroup | RunOp::MatchGroups, None) => Ok(()),
            (RunOp::MatchGroup, Some(dst)) => self.match_group(dst, args[0]),
            (RunOp::MatchGroups, Some(dst)) => {
                let groups = self.match_groups();
                self.def_int(dst, groups)
            }
        }
    }

    fn syscall_op(&mut self, dst: IrReg, op: SyscallOp, args: &[Val]) -> Res {
        let at_code = matches!(self.event(), Event::Code(_));
        let value = match op {
            SyscallOp::SysName => return self.sys_name(dst),
            SyscallOp::SysRetstr => return self.sys_retstr(dst),
            SyscallOp::SysArgstr => return self.sys_argstr(dst),
            SyscallOp::SysArgtext => return self.sys_argtext(dst, args[0]),
            SyscallOp::SysArg => self.sys_arg(args[0], 0)?,
            // At a return, SystemTap's first argument is the result, and scripts print it as such.
            SyscallOp::RegArg
                if matches!(self.event(), Event::SysExit(_)) && args[0] == Val::Imm(1) =>
            {
                self.sys_ret()?
            }
            SyscallOp::RegArg if at_code => self.register_arg(args[0], 1)?,
            SyscallOp::RegArg => self.sys_arg(args[0], 1)?,
            SyscallOp::SysNr => {
                if self.late_number {
                    self.store_number(false)?;
                }
                self.call_number()
            }
            SyscallOp::SysRet if at_code => self.of_code(ContextOp::CtxRet, &[])?,
            SyscallOp::SysRet => self.sys_ret()?,
        };
        self.def_int(dst, value)
    }

    fn task_op(&mut self, dst: IrReg, op: TaskOp, args: &[Val]) -> Res {
        let helper = match op {
            TaskOp::Execname => return self.execname(dst),
            TaskOp::Cmdline => return self.cmdline(dst),
            TaskOp::InCall => {
                let number = self.call_of_task()?;
                return self.def_int(dst, number);
            }
            TaskOp::TaskCurrent | TaskOp::TaskHere => Helper::GetCurrentTask,
            TaskOp::CgroupId => Helper::GetCurrentCgroupId,
            TaskOp::CgroupAncestor => Helper::GetCurrentAncestorCgroupId,
            TaskOp::Cpu => self.options.processor(),
        };
        let arg = match args {
            [] => None,
            [arg, ..] => Some(self.number(*arg)?.into()),
        };
        let value = self.asm.call_with(helper, arg.as_slice());
        self.def_int(dst, value)
    }

    fn clock_op(&mut self, dst: IrReg, op: ClockOp) -> Res {
        let now = match op {
            ClockOp::RealNs => {
                let now = self.asm.call_with(Helper::KtimeGetNs, &[]);
                let offset = self.shared_address(shared::CLOCK_OFFSET);
                self.asm.load(Size::DW, offset, offset, 0);
                self.asm.add(now, offset);
                now
            }
            // BPF has no instruction to read the cycle counter; the clock counts one cycle per
            // nanosecond.
            ClockOp::MonoNs | ClockOp::CpuClock | ClockOp::Cycles => {
                self.asm.call_with(Helper::KtimeGetNs, &[])
            }
            ClockOp::Jiffies => self.asm.call_with(Helper::Jiffies64, &[]),
            ClockOp::TzOffset => return self.session_number(Some(dst), shared::TZ_OFFSET),
            ClockOp::TzName => return self.tz_name(dst),
        };
        self.def_int(dst, now)
    }

    fn text_op(&mut self, dst: IrReg, op: TextOp, args: &[Val]) -> Res {
        match op {
            TextOp::Strlen => {
                let text = self.text(args[0])?;
                let length = self.strlen(&text);
                self.def_int(dst, length)
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
        let value = match op {
            SymbolOp::SymName => return self.symbol(dst, args[0], false),
            SymbolOp::SymData => return self.symbol(dst, args[0], true),
            SymbolOp::KernelStack => return self.kernel_stack(dst, args[0]),
            SymbolOp::SymbolicForm => return self.symbolic(dst, args[0], args[1]),
            SymbolOp::KernelSymbolic => return self.kernel_symbolic(dst, args[0], args[1]),
            SymbolOp::UserStack => return self.user_stack(dst, args[0]),
            SymbolOp::UserSymbolic => return self.user_symbolic(dst, args[0], args[1], &[]),
            SymbolOp::UserSymbolicFrom => {
                return self.user_symbolic(dst, args[0], args[1], &args[2..]);
            }
            SymbolOp::StackWords => return self.copy(dst, args[0]),
            SymbolOp::StackRest => return self.stack_rest(dst, args[0]),
            SymbolOp::Interrupted => return self.interrupted(dst),
            SymbolOp::StackMark => self.stack_mark(args[0])?,
            SymbolOp::KernelFrame => self.kernel_frame(args[0])?,
            SymbolOp::UserFrame => self.user_frame(args[0])?,
        };
        self.def_int(dst, value)
    }

    /// A number of the next task at `sched_switch`.
    fn next_task_number(&mut self, offset: Option<u32>) -> Res<Reg> {
        let offset = offset.and_then(|o| i32::try_from(o).ok());
        let offset = offset.ok_or(LowerError::unsupported(
            "this kernel has no type information about tasks",
        ))?;
        let task = self.asm.word(R10, CTX);
        self.asm.load(Size::DW, task, task, NEXT);
        if let (Ok(offset), true) = (i16::try_from(offset), self.loads_kernel_memory()) {
            let task = self.cast(task, |cast| cast.task);
            return Ok(self.asm.read(Size::W, task, offset));
        }
        self.asm.add(task, offset);
        self.copy_memory(CallArg::Word(TMP[0]), 4, task.into());
        Ok(self.asm.read(Size::W, R10, TMP[0]))
    }

    /// `dst` = whether a process descends from the target process: its bit in the table of them.
    fn in_tree(&mut self, dst: IrReg, pid: Val) -> Res {
        let table = self.plan.layout.tree.ok_or("no processes are followed")?;
        let pid = self.number_in_reg(pid)?;
        let bit = process_tree::bit(self.asm, table, pid);
        self.def_int(dst, bit)
    }

    /// Marks a process as followed: its bit in the table of processes.
    fn tree_add(&mut self, pid: Val) -> Res {
        let table = self.plan.layout.tree.ok_or("no processes are followed")?;
        let pid = self.number_in_reg(pid)?;
        process_tree::set_bit(self.asm, table, pid);
        Ok(())
    }

    /// Sets the verdict on the packet. The kernel allows programs only these two values.
    fn set_verdict(&mut self, n: Val) -> Res {
        let fail = self.fail_label(ErrorKind::Verdict);
        let n = self.number_copy(n)?;
        self.asm.jump_if(Cond::Gt, n, 1, fail);
        self.store(self.plan.scratch.verdict, n);
        Ok(())
    }

    /// `dst` = a word of the session's shared area.
    fn session_number(&mut self, dst: Option<IrReg>, off: u32) -> Res {
        let Some(dst) = dst else { return Ok(()) };
        let word = self.shared_address(off);
        self.asm.load(Size::DW, word, word, 0);
        self.def_int(dst, word)
    }

    fn exit_session(&mut self) -> Res {
        let state = self.shared_address(0);
        self.end_session(state);
        Ok(())
    }

    /// Ends the session, whose words are at an address.
    pub(crate) fn end_session(&mut self, state: Reg) {
        self.asm.store(Size::DW, state, shared::EXIT.fit(), 1);
        self.asm.store(Size::DW, state, shared::RUNNING.fit(), 0);
    }

    /// `dst` = an argument of a tracepoint.
    fn loaded_argument(&mut self, dst: IrReg, n: Val) -> Res {
        let argument = self.argument(n)?;
        self.def_int(dst, argument)
    }

    fn argument(&mut self, n: Val) -> Res<Reg> {
        let Val::Imm(n @ 0..CTX_ARGS) = n else {
            return Err("the number of a tracepoint argument is not a small constant".into());
        };
        let first = match self.event() {
            Event::Perf { .. } => self.options.abi.saved.perf_size,
            _ => 0,
        };
        let context = self.asm.word(R10, CTX);
        Ok(self.asm.word(context, first + 8 * n.fit::<i16>()))
    }

    pub(crate) fn ctx_arg(&mut self, n: Val) -> Res<Reg> {
        let argument = self.argument(n)?;
        Ok(match Hook::of(self.event()) {
            // The verifier restricts operations on the pointer.
            Some(_) => self.as_number(argument),
            None => argument,
        })
    }

    /// A pointer as an integer. The verifier forgets that it is a pointer, because it is stored and loaded again.
    pub(crate) fn as_number(&mut self, pointer: Reg) -> Reg {
        let word = self.plan.scratch.tmp;
        self.store(word, pointer);
        self.block_word(word)
    }

    /// The current task, as a pointer for loads.
    pub(crate) fn task(&mut self) -> Reg {
        match self.task_saved {
            true => self.asm.word(R10, crate::lower::slots::TASK),
            false => self.asm.call_with(Helper::GetCurrentTaskBtf, &[]),
        }
    }

    /// `dst` = a number of the current task, loaded through its pointer or with a helper.
    fn task_number(&mut self, dst: IrReg, which: TaskNumber) -> Res {
        let Some((offsets, number)) = self.options.offsets.number(which) else {
            let number = self.task_number_by_helper(which)?;
            return self.def_int(dst, number);
        };
        let mut value = self.task();
        if offsets.len() > 1 {
            value = self.cast(value, |cast| cast.task);
        }
        for (i, off) in offsets.iter().enumerate() {
            let last = i + 1 == offsets.len();
            let size = if last { number } else { Size::DW };
            value = self.asm.read(size, value, *off);
        }
        self.def_int(dst, value)
    }

    fn task_number_by_helper(&mut self, which: TaskNumber) -> Res<Reg> {
        let (helper, upper) = match which {
            TaskNumber::Pid => (Helper::GetCurrentPidTgid, true),
            TaskNumber::Gid => (Helper::GetCurrentUidGid, true),
            TaskNumber::Tid => (Helper::GetCurrentPidTgid, false),
            TaskNumber::Uid => (Helper::GetCurrentUidGid, false),
            TaskNumber::Ppid
            | TaskNumber::Pgrp
            | TaskNumber::Sid
            | TaskNumber::Euid
            | TaskNumber::Egid
            | TaskNumber::TaskSpace
            | TaskNumber::UserNsLevel
            | TaskNumber::ExeDevice
            | TaskNumber::ExeInode => {
                return Err(LowerError::unsupported(format!(
                    "{} needs a field of a kernel structure that this kernel does not have",
                    Intrinsic::from(which).info().name
                )));
            }
        };
        let number = self.asm.call_with(helper, &[]);
        match upper {
            true => self.asm.alu(AluOp::Rsh, number, 32),
            false => self.asm.mov32(number, number),
        }
        Ok(number)
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
        if self.outlined() && self.execname_global(off, width)? {
            return Ok(());
        }
        self.execname_to(|c| c.block_operand(off, 16));
        if width > 16 {
            self.fill_zero(off + 16, width - 16);
        }
        Ok(())
    }

    /// 16 bytes = the task's name. `to` gives their base and displacement.
    pub(crate) fn execname_to(&mut self, to: impl Fn(&mut Self) -> (Reg, i16)) {
        let Some(comm) = self.comm() else {
            let (base, disp) = to(self);
            self.asm.store(Size::DW, base, disp, 0);
            self.asm.store(Size::DW, base, disp + 8, 0);
            let name = self.asm.new_reg();
            self.asm.sum(name, base, disp.into());
            self.asm
                .call_with(Helper::GetCurrentComm, &[name.into(), 16.into()]);
            return;
        };
        let words = self.name_words(comm);
        let (base, disp) = to(self);
        for (i, word) in words.into_iter().enumerate() {
            self.asm
                .store(Size::DW, base, disp + 8 * i.fit::<i16>(), word);
        }
    }

    /// Offset of the name in the task's structure.
    fn comm(&self) -> Option<i16> {
        let comm = self.options.offsets.task_comm;
        comm.and_then(|o| i16::try_from(o).ok())
    }

    /// The two words of the task's name.
    fn name_words(&mut self, comm: i16) -> [Reg; 2] {
        let task = self.task();
        let [first, second] = [comm, comm + 8].map(|offset| self.asm.word(task, offset));
        let patterns = self.byte_patterns();
        let [long, end] = self.asm.labels();
        let zeros = self.zero_bytes(first, patterns);
        self.asm.jump_if(Cond::Eq, zeros, 0, long);
        self.clear_from_zero_byte(first, zeros);
        self.asm.mov(second, 0);
        self.asm.jump(end);
        self.asm.bind(long);
        let zeros = self.zero_bytes(second, patterns);
        self.clear_from_zero_byte(second, zeros);
        self.asm.bind(end);
        [first, second]
    }

    /// The words of 0x01 and of 0x80 in each byte.
    fn byte_patterns(&mut self) -> [Reg; 2] {
        [0x0101_0101_0101_0101, 0x8080_8080_8080_8080].map(|pattern| {
            let reg = self.asm.new_reg();
            self.asm.ld_imm64(reg, pattern);
            reg
        })
    }

    /// Stores the task's name in a slot of 8 bytes.
    fn short_execname(&mut self, off: u32, width: u32, comm: Option<i16>) {
        let Some(comm) = comm else {
            // Uses two adjacent scratch words.
            let args = [CallArg::Word(TMP[1]), 16.into()];
            self.asm.call_with(Helper::GetCurrentComm, &args);
            let word = self.asm.word(R10, TMP[1]);
            return self.store_short(word, (off, width));
        };
        let task = self.task();
        let word = self.asm.word(task, comm);
        self.store_short(word, (off, width));
    }

    /// Stores a word up to its first zero byte.
    fn store_short(&mut self, word: Reg, (off, width): (u32, u32)) {
        let long = self.asm.label();
        let patterns = self.byte_patterns();
        let zeros = self.zero_bytes(word, patterns);
        self.asm.jump_if(Cond::Eq, zeros, 0, long);
        self.clear_from_zero_byte(word, zeros);
        self.asm.bind(long);
        self.store(off, word);
        self.truncate(off, width);
    }

    /// The top bit of each zero byte of a word. Only the lowest mark is reliable.
    fn zero_bytes(&mut self, word: Reg, [ones, tops]: [Reg; 2]) -> Reg {
        let zeros = self.asm.alu_of(AluOp::Sub, word, ones);
        let inverse = self.asm.alu_of(AluOp::Xor, word, -1);
        self.asm.alu(AluOp::And, zeros, inverse);
        self.asm.alu(AluOp::And, zeros, tops);
        zeros
    }

    /// Clears a word from its lowest zero byte on. Changes the marks of zero bytes.
    fn clear_from_zero_byte(&mut self, word: Reg, zeros: Reg) {
        let lowest = self.asm.copy(zeros);
        self.asm.neg(lowest);
        self.asm.alu(AluOp::And, zeros, lowest);
        self.asm.add(zeros, -1);
        self.asm.alu(AluOp::Rsh, zeros, 7);
        self.asm.alu(AluOp::And, word, zeros);
    }

    fn tz_name(&mut self, dst: IrReg) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        let name = self.shared_address(shared::TZ_NAME);
        for i in (0..width.min(16)).step_by(8) {
            let word = self.asm.word(name, i.fit());
            self.store(off + i, word);
        }
        if width > 16 {
            self.fill_zero(off + 16, width - 16);
        } else {
            self.truncate(off, width);
        }
        Ok(())
    }

    /// Offset and width of a buffer for a string that is not used, of the largest width.
    fn unused_capacity(&self) -> (u32, u32) {
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
        self.fill_zero(off, width);
        let capacity = self.text_capacity(n, width)?;
        let from = self.number(addr)?;
        self.set_aux(from);
        let helper = match user {
            true => Helper::ProbeReadUserStr,
            false => Helper::ProbeReadKernelStr,
        };
        let args = [block_at(off), capacity.into(), from.into()];
        let result = self.asm.call_with(helper, &args);
        let fail = self.fail_label(string_fault(space));
        if !user || self.options.resident {
            self.asm.jump_if(Cond::Slt, result, 0, fail);
            return Ok(());
        }
        let read = self.asm.label();
        self.asm.jump_if(Cond::Sge, result, 0, read);
        let capacity = self.text_capacity(n, width)?;
        let bytes = self.asm.alu_of(AluOp::Add, capacity, -1);
        let result = self.read_absent(bytes.into(), false)?;
        let copy = self.asm.label();
        self.asm.jump_if(Cond::Eq, result, 0, copy);
        match quote {
            Some(quote) => self.defer(result, (off, width), n, quote, (read, fail))?,
            None => self.asm.jump(fail),
        }
        self.asm.bind(copy);
        let capacity = self.text_capacity(n, width)?;
        let staging = block_at(super::usermem::staging_area(self.plan));
        let args = [block_at(off), capacity.into(), staging];
        self.asm.call_with(Helper::ProbeReadKernelStr, &args);
        self.asm.bind(read);
        Ok(())
    }

    /// The number of bytes to read for `n` bytes of text: helpers count the NUL.
    pub(crate) fn text_capacity(&mut self, n: Val, width: u32) -> Res<Src> {
        let Val::Imm(n) = n else {
            let capacity = self.number_copy(n)?;
            self.asm.mov_unless(Cond::Sge, capacity, 0, 0);
            self.asm.mov_unless(Cond::Lt, capacity, width, width - 1);
            self.asm.add(capacity, 1);
            return Ok(capacity.into());
        };
        let capacity = n.clamp(0, i64::from(width) - 1) + 1;
        Ok(Src::Imm(capacity.fit()))
    }

    pub(crate) fn memory_load(&mut self, dst: IrReg, space: Space, addr: Val, ty: IntTy) -> Res {
        let access = Size::from_bytes(ty.size.into()).ok_or("an access of that size")?;
        let done = self.asm.label();
        let value = self.asm.new_reg();
        if space == Space::Kernel && self.loads_kernel_memory() {
            let from = self.number_in_reg(addr)?;
            let word = self.cast(from, |cast| cast.word);
            self.asm.load(access, value, word, 0);
            // A load from an address that cannot be read gives 0, too. The helper tells which it was.
            self.asm.jump_if(Cond::Ne, value, 0, done);
        }
        let from = self.number(addr)?;
        self.set_aux(from);
        let bytes = Src::Imm(ty.size.into());
        let args = [CallArg::Word(TMP[0]), bytes.into(), from.into()];
        let result = self.asm.call_with(probe_read(space), &args);
        let fail = self.fail_label(ErrorKind::ReadFault);
        if space == Space::User && !self.options.resident {
            let read = self.asm.label();
            self.asm.jump_if(Cond::Eq, result, 0, read);
            let result = self.read_absent(bytes, true)?;
            self.asm.jump_if(Cond::Ne, result, 0, fail);
            let word = self.block_word(super::usermem::staging_area(self.plan));
            self.asm.store(Size::DW, R10, TMP[0], word);
            self.asm.bind(read);
        } else {
            self.asm.jump_if(Cond::Ne, result, 0, fail);
        }
        self.asm.load(access, value, R10, TMP[0]);
        self.asm.bind(done);
        self.extend_into(dst, value, ty)
    }

    /// Whether loads through a cast pointer cannot reach memory of programs.
    fn loads_kernel_memory(&self) -> bool {
        self.options.abi.kernel.checks_casts && self.options.features.cast.is_some()
    }

    /// An address as a pointer to a structure of the kernel. Without casts it stays what it is.
    fn cast(&mut self, from: Reg, to: fn(CastKfunc) -> u32) -> Reg {
        match self.options.features.cast {
            None => from,
            Some(cast) => {
                let args = [from.into(), to(cast).into()];
                self.asm.call_kfunc_with(cast.function, &args)
            }
        }
    }

    /// The eight bytes at an address of the kernel that can be read.
    pub(crate) fn kernel_word(&mut self, from: Reg) -> Reg {
        if self.loads_kernel_memory() {
            let word = self.cast(from, |cast| cast.word);
            return self.asm.read(Size::DW, word, 0);
        }
        self.copy_memory(CallArg::Word(TMP[0]), 8, from.into());
        self.asm.word(R10, TMP[0])
    }

    /// `dst` = sign or zero extension of a number of `size` bytes, whose upper bits are zero. Changes
    /// `value`.
    pub(crate) fn extend_into(&mut self, dst: IrReg, value: Reg, ty: IntTy) -> Res {
        if ty.signed && ty.size < 8 {
            let shift = 64 - 8 * i32::from(ty.size);
            self.asm.alu(AluOp::Lsh, value, shift);
            self.asm.alu(AluOp::Arsh, value, shift);
        }
        debug_assert!(matches!(self.body.regs[dst.index()], Ty::Long));
        self.def_int(dst, value)
    }
}
