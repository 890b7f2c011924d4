//! Dispatch of intrinsics: the event, the current task, time, memory, strings.

use spile_ir::intrinsics::Intrinsic as I;
use spile_ir::{Event, Reg as IrReg, Space, Ty, Val};

use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size, Src};
use crate::layout::{ErrorKind, Quote, shared};
use crate::lower::{CTX, HandlerCodegen, Res, TMP};

/// The largest number of arguments of a raw tracepoint.
const CTX_ARGS: i64 = 12;
/// Offset of the third argument of `sched_switch`: the next task of the processor.
const NEXT: i16 = 16;

/// The error for an operation that kernel handlers do not have.
fn unsupported(f: I) -> Res {
    Err(format!("{} in a kernel handler", f.info().name))
}

impl HandlerCodegen<'_> {
    pub(in crate::lower) fn intrinsic(&mut self, dst: Option<IrReg>, f: I, args: &[Val]) -> Res {
        if args.len() != f.info().params.len() {
            return Err(format!("{} with {} arguments", f.info().name, args.len()));
        }
        if !f.info().executors.kernel {
            return Err(format!("{} in a kernel handler", f.info().name));
        }
        let Some(dst) = dst else {
            return self.emit_for_effect(f, args);
        };
        match f {
            I::Execname => return self.execname(dst),
            I::SysName => return self.sys_name(dst),
            I::SysRetstr => return self.sys_retstr(dst),
            I::SysArgstr => return self.sys_argstr(dst),
            I::SysArgtext => return self.sys_argtext(dst, args[0]),
            I::TzName => return self.tz_name(dst),
            I::KernelStr | I::UserStr | I::KernelBuf | I::UserBuf => {
                let slot = self.slot(dst)?.unwrap_or(self.unused_room());
                let quote = self.deferrable(dst).map(|quote| (quote, dst));
                return self.read_string(slot, f, (args[0], args[1]), quote);
            }
            I::KernelUtf | I::UserUtf => return self.unicode(Some(dst), f, args),
            I::Substr => return self.substr(dst, args[0], args[1], args[2]),
            I::Stringat => return self.stringat(dst, args[0], args[1]),
            I::Isinstr => return self.isinstr(dst, args[0], args[1]),
            I::Strpos => return self.strpos(dst, args[0], args[1]),
            I::StrReplace => return self.str_replace(dst, args),
            I::TextStrn => return self.text_strn(dst, args[0], args[1], args[2]),
            I::Strtol => return self.strtol(dst, args[0], args[1]),
            I::StrToFp => return self.string_to_fp(dst, args[0]),
            I::Cmdline => return self.cmdline(dst),
            I::SymName => return self.symbol(dst, args[0], false),
            I::SymData => return self.symbol(dst, args[0], true),
            I::KernelStack => return self.kernel_stack(dst, args[0]),
            I::SymbolicForm => return self.symbolic(dst, args[0], args[1]),
            I::KernelSymbolic => return self.kernel_symbolic(dst, args[0], args[1]),
            I::UserStack => return self.user_stack(dst, args[0]),
            I::StackWords => return self.copy(dst, args[0]),
            I::StackMark => self.stack_mark(args[0])?,
            I::StackRest => return self.stack_rest(dst, args[0]),
            I::UserSymbolic => return self.user_symbolic(dst, args[0], args[1], &[]),
            I::UserSymbolicFrom => {
                return self.user_symbolic(dst, args[0], args[1], &args[2..]);
            }
            I::KernelFrame => self.kernel_frame(args[0])?,
            I::UserFrame => self.user_frame(args[0])?,
            I::MatchGroup => return self.match_group(dst, args[0]),
            I::MatchGroups => self.match_groups(),
            I::Strlen => {
                let text = self.text(args[0])?;
                self.strlen(&text);
            }
            I::CtxArg | I::CtxRet | I::CtxReg | I::CtxSite => self.of_code(f, args)?,
            I::CtxActivation => self.call_of_function()?,
            I::CtxAddr => self.interrupted_at()?,
            I::CtxEntry => self.returning_from(args[0]),
            I::CtxPlace => self.place_on_stack(),
            I::Interrupted => return self.interrupted(dst),
            I::SysArg => self.sys_arg(args[0], 0)?,
            // At a return, SystemTap's first argument is the result, and scripts print it as such.
            I::RegArg if matches!(self.event(), Event::SysExit(_)) && args[0] == Val::Imm(1) => {
                self.sys_ret()?;
            }
            I::RegArg if matches!(self.event(), Event::Code(_)) => self.register_arg(args[0], 1)?,
            I::RegArg => self.sys_arg(args[0], 1)?,
            I::SysNr => {
                if self.late_number {
                    self.store_number(false)?;
                }
                self.call_number(R0)
            }
            I::SysRet if matches!(self.event(), Event::Code(_)) => self.of_code(I::CtxRet, &[])?,
            I::SysRet => self.sys_ret()?,
            I::Target => self.session_word(shared::TARGET),
            I::NextTid => self.next_task_number(self.options.offsets.task_pid)?,
            I::NextPid => self.next_task_number(self.options.offsets.task_tgid)?,
            I::InTree => self.in_tree(args[0])?,
            I::TzOffset => self.session_word(shared::TZ_OFFSET),
            I::RealNs => {
                self.asm.call(Helper::KtimeGetNs);
                self.shared(R1, shared::CLOCK_OFFSET);
                self.asm.load(Size::DW, R1, R1, 0);
                self.asm.add(R0, R1);
            }
            // BPF has no instruction to read the cycle counter; the clock counts one cycle per
            // nanosecond.
            I::MonoNs | I::CpuClock | I::Cycles => self.asm.call(Helper::KtimeGetNs),
            I::Jiffies => self.asm.call(Helper::Jiffies64),
            I::Cpu => self.asm.call(Helper::GetSmpProcessorId),
            I::Rand => self.asm.call(Helper::GetPrandomU32),
            I::UserMode => self.user_mode(),
            I::Verdict => self.load(R0, self.plan.scratch.verdict),
            I::InCall => self.call_of_task()?,
            I::CgroupId => self.asm.call(Helper::GetCurrentCgroupId),
            I::CgroupAncestor => {
                self.use_in(args[0], R1)?;
                self.asm.call(Helper::GetCurrentAncestorCgroupId);
            }
            I::PerfCount => return self.perf_count(Some(dst), args),
            I::Tokenize => return self.tokenize(Some(dst), args[0], args[1]),
            I::KernelQuoted | I::UserQuoted => return self.memory_quoted(Some(dst), f, args),
            I::TaskCurrent | I::TaskHere => self.asm.call(Helper::GetCurrentTask),
            I::Pid | I::Tid | I::Ppid | I::Pgrp | I::Sid => self.task_number(f)?,
            I::Uid | I::Euid | I::Gid | I::Egid => self.task_number(f)?,
            I::UserNsLevel | I::TaskSpace => self.task_number(f)?,
            I::Exit | I::VerdictSet => return Err(format!("{} has no result", f.info().name)),
            I::InputText | I::ValueText | I::ValueSet | I::ValueAppend => return unsupported(f),
            I::Ftrace | I::MetricText => return unsupported(f),
        }
        self.def_int(dst, R0)
    }

    /// Emits an operation whose result is unused, for its effect or its error.
    fn emit_for_effect(&mut self, f: I, args: &[Val]) -> Res {
        match f {
            I::Exit => self.exit_session(),
            I::VerdictSet => self.set_verdict(args[0]),
            I::PerfCount => self.perf_count(None, args),
            I::Tokenize => self.tokenize(None, args[0], args[1]),
            I::KernelQuoted | I::UserQuoted => self.memory_quoted(None, f, args),
            I::KernelStr | I::UserStr | I::KernelBuf | I::UserBuf => {
                let room = self.unused_room();
                self.read_string(room, f, (args[0], args[1]), None)
            }
            I::KernelUtf | I::UserUtf => self.unicode(None, f, args),
            f => {
                debug_assert!(!f.info().fails && !f.info().effect, "{f:?}");
                Ok(())
            }
        }
    }

    /// `r0` = a number of the next task at `sched_switch`.
    fn next_task_number(&mut self, offset: Option<u32>) -> Res {
        let offset = offset.and_then(|o| i32::try_from(o).ok());
        let offset = offset.ok_or("this kernel does not tell how its tasks look")?;
        self.asm.load(Size::DW, R3, R10, CTX);
        self.asm.load(Size::DW, R3, R3, NEXT);
        self.asm.add(R3, offset);
        self.asm.mov(R1, R10);
        self.asm.add(R1, i32::from(crate::lower::TMP[0]));
        self.asm.mov(R2, 4);
        self.asm.call(Helper::ProbeReadKernel);
        self.asm.load(Size::W, R0, R10, crate::lower::TMP[0]);
        Ok(())
    }

    /// `r0` = whether a process descends from the target process.
    fn in_tree(&mut self, pid: Val) -> Res {
        let at = self.plan.tree.ok_or("no processes are followed")?;
        self.use_in(pid, R0)?;
        crate::programs::process_tree::bit(self.asm, at);
        Ok(())
    }

    /// Sets the verdict on the packet. The kernel allows programs only these two values.
    fn set_verdict(&mut self, n: Val) -> Res {
        let fail = self.fail_label(ErrorKind::Verdict);
        self.use_in(n, R0)?;
        self.asm.jump_if(Cond::Gt, R0, 1, fail);
        self.store(self.plan.scratch.verdict, R0);
        Ok(())
    }

    /// `r0` = a word of the session's shared block.
    fn session_word(&mut self, off: u32) {
        self.shared(R1, off);
        self.asm.load(Size::DW, R0, R1, 0);
    }

    fn exit_session(&mut self) -> Res {
        self.shared(R1, 0);
        self.asm.store(Size::DW, R1, shared::EXIT as i16, 1);
        self.asm.store(Size::DW, R1, shared::RUNNING as i16, 0);
        Ok(())
    }

    pub(in crate::lower) fn ctx_arg(&mut self, n: Val) -> Res {
        let Val::Imm(n @ 0..CTX_ARGS) = n else {
            return Err("the number of a tracepoint argument is not a small constant".into());
        };
        self.asm.load(Size::DW, R1, R10, CTX);
        self.asm.load(Size::DW, R0, R1, 8 * n as i16);
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
        if self.task_saved {
            self.asm.load(Size::DW, R0, R10, crate::lower::TASK);
            return;
        }
        self.asm.call(Helper::GetCurrentTaskBtf);
    }

    /// `r0` = a number of the current task, loaded through its pointer or with a helper.
    fn task_number(&mut self, f: I) -> Res {
        let o = &self.options.offsets;
        // Pointers to follow, then the number; all but the last are 8 bytes.
        let path: &[Option<u32>] = match f {
            I::Pid => &[o.task_tgid],
            I::Tid => &[o.task_pid],
            I::Ppid => &[o.task_real_parent, o.task_tgid],
            I::Pgrp => &[o.task_signal, o.signal_pgrp, o.pid_nr],
            I::Sid => &[o.task_signal, o.signal_session, o.pid_nr],
            I::Uid => &[o.task_cred, o.cred_uid],
            I::Euid => &[o.task_cred, o.cred_euid],
            I::Gid => &[o.task_cred, o.cred_gid],
            I::Egid => &[o.task_cred, o.cred_egid],
            I::UserNsLevel => &[o.task_cred, o.cred_user_ns, o.user_ns_level],
            I::TaskSpace => &[o.task_mm, o.mm_task_size],
            _ => return unsupported(f),
        };
        let whole: Option<Vec<i16>> = path
            .iter()
            .map(|o| o.and_then(|o| i16::try_from(o).ok()))
            .collect();
        let Some(offsets) = whole else {
            return self.task_number_by_helper(f);
        };
        self.task();
        for (i, off) in offsets.iter().enumerate() {
            let last = i + 1 == offsets.len();
            let size = if last && f != I::TaskSpace {
                Size::W
            } else {
                Size::DW
            };
            self.asm.load(size, R0, R0, *off);
        }
        Ok(())
    }

    fn task_number_by_helper(&mut self, f: I) -> Res {
        match f {
            I::Pid | I::Gid => {
                self.asm.call(if f == I::Pid {
                    Helper::GetCurrentPidTgid
                } else {
                    Helper::GetCurrentUidGid
                });
                self.asm.alu(AluOp::Rsh, R0, 32);
            }
            I::Tid | I::Uid => {
                self.asm.call(if f == I::Tid {
                    Helper::GetCurrentPidTgid
                } else {
                    Helper::GetCurrentUidGid
                });
                self.asm.mov32(R0, R0);
            }
            _ => {
                return Err(format!(
                    "{} needs a field of a kernel structure that this kernel does not have",
                    f.info().name
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
        if self.uses_subprograms() && self.execname_global(off, width)? {
            return Ok(());
        }
        let Some(comm) = comm else {
            self.fill_zero(off, width);
            self.block_addr(R1, off);
            self.asm.mov(R2, 16);
            self.asm.call(Helper::GetCurrentComm);
            return Ok(());
        };
        self.name_words(comm);
        let (base, disp) = self.block_operand(R3, off, 16);
        self.asm.store(Size::DW, base, disp, R1);
        self.asm.store(Size::DW, base, disp + 8, R2);
        if width > 16 {
            self.fill_zero(off + 16, width - 16);
        }
        Ok(())
    }

    /// The 16 bytes at r6 = the task's name.
    pub(in crate::lower) fn execname_to_r6(&mut self) {
        let Some(comm) = self.comm() else {
            self.asm.store(Size::DW, R6, 0, 0);
            self.asm.store(Size::DW, R6, 8, 0);
            self.asm.mov(R1, R6);
            self.asm.mov(R2, 16);
            self.asm.call(Helper::GetCurrentComm);
            return;
        };
        self.name_words(comm);
        self.asm.store(Size::DW, R6, 0, R1);
        self.asm.store(Size::DW, R6, 8, R2);
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
        f: I,
        (addr, n): (Val, Val),
        quote: Option<(Quote, IrReg)>,
    ) -> Res {
        let user = matches!(f, I::UserStr | I::UserBuf);
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
        self.extend_into(dst, (size, signed))
    }

    /// `dst` = sign or zero extension of the `size`-byte number in r0, whose upper bits are zero.
    pub(in crate::lower) fn extend_into(&mut self, dst: IrReg, (size, signed): (u8, bool)) -> Res {
        if signed && size < 8 {
            let shift = 64 - 8 * i32::from(size);
            self.asm.alu(AluOp::Lsh, R0, shift);
            self.asm.alu(AluOp::Arsh, R0, shift);
        }
        debug_assert!(matches!(self.body.regs[dst.index()], Ty::Long));
        self.def_int(dst, Src::Reg(R0))
    }
}
