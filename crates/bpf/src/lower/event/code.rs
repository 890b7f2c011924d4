//! The context of probes in code: registers, arguments, results, probe addresses.

use spile_cast::Cast;
use spile_ebpf::isa::asm::CallArg;
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::insn::Reg::R10;
use spile_ebpf::isa::insn::{AluOp, Cond, Reg, Size};
use spile_ir::intrinsics::{ContextOp, Intrinsic};
use spile_ir::{Event, Reg as IrReg, Space, Val};

use crate::compiled::{FOLLOWED, can_follow};
use crate::error::{LowerError, Res};
use crate::lower::codegen::HandlerCodegen;
use crate::lower::slots::{CTX, TMP};

fn constant(n: Val) -> Res<i64> {
    match n {
        Val::Imm(n) => Ok(n),
        Val::Reg(_) | Val::Str(_) => Err("the number of a register is not a constant".into()),
    }
}

impl HandlerCodegen<'_> {
    /// The intrinsic's value; serves the arguments of tracepoints as well.
    pub(crate) fn of_code(&mut self, op: ContextOp, args: &[Val]) -> Res<Reg> {
        let Event::Code(probe) = self.event() else {
            return match op {
                ContextOp::CtxArg => self.ctx_arg(args[0]),
                ContextOp::CtxReg if self.has_registers() => self.register(constant(args[0])?),
                ContextOp::CtxReg
                | ContextOp::CtxRegNow
                | ContextOp::CtxRet
                | ContextOp::CtxSite => {
                    let name = Intrinsic::from(op).info().name;
                    Err(LowerError::malformed(format!(
                        "{name} in an event that is not at code"
                    )))
                }
            };
        };
        if self.plan.attach.on_trampoline(self.handler) {
            return self.of_trampoline(op, args);
        }
        match op {
            ContextOp::CtxArg => self.register_arg(args[0], 0),
            ContextOp::CtxReg | ContextOp::CtxRegNow => self.register(constant(args[0])?),
            ContextOp::CtxRet if probe.ret => {
                self.register(self.options.abi.calls.results[0].into())
            }
            ContextOp::CtxRet => Err("the result of a function before it returns".into()),
            ContextOp::CtxSite => match *probe.sites {
                [ref one] => Ok(self.asm.copy(one.number.cast_signed())),
                _ => {
                    let exits = probe.at_exits();
                    let cookie = self.location_cookie();
                    if exits {
                        self.asm.mov32(cookie, cookie);
                    }
                    Ok(cookie)
                }
            },
        }
    }

    /// The cookie of the location that was hit. An attachment that follows processes has the cookie in the
    /// trace event's description of the location.
    fn location_cookie(&mut self) -> Reg {
        let cookie = self.call_with_context(Helper::GetAttachCookie);
        let uprobe = self.options.offsets.uprobe;
        let (Event::Code(probe), Some(uprobe)) = (self.event(), uprobe) else {
            return cookie;
        };
        if !can_follow(probe) {
            return cookie;
        }
        let known = self.asm.label();
        self.asm
            .jump_if(Cond::Ne, cookie, FOLLOWED.low32().cast_signed(), known);
        let task = self.task();
        let utask = self.asm.read(Size::DW, task, uprobe.task_utask.fit());
        let mut word = self.asm.read(Size::DW, utask, uprobe.utask_vaddr.fit());
        for offset in [
            uprobe.hit_location,
            uprobe.location_argument,
            uprobe.argument_value,
        ] {
            self.asm.add(word, offset);
            word = self.kernel_word(word);
        }
        self.asm.mov(cookie, word);
        self.asm.bind(known);
        cookie
    }

    /// Sets a register of the probed program.
    pub(crate) fn set_register(&mut self, number: Val, value: Val) -> Res {
        let number = constant(number)?;
        let offset = self.saved_register(number)?;
        let value = self.number_in_reg(value)?;
        let context = self.asm.word(R10, CTX);
        self.asm.store(Size::DW, context, offset, value);
        Ok(())
    }

    /// Calls a helper that takes the context.
    fn call_with_context(&mut self, helper: Helper) -> Reg {
        let context = self.asm.word(R10, CTX);
        self.asm.call_with(helper, &[context.into()])
    }

    /// The intrinsic's value on a trampoline. Helpers return plain numbers; a load from the
    /// context would give the verifier a pointer to a structure, which does not allow arithmetic.
    fn of_trampoline(&mut self, op: ContextOp, args: &[Val]) -> Res<Reg> {
        let value = TMP[0];
        let (helper, number) = match op {
            ContextOp::CtxArg => (Helper::GetFuncArg, Some(constant(args[0])?.fit::<i32>())),
            ContextOp::CtxRet => (Helper::GetFuncRet, None),
            ContextOp::CtxSite => {
                let number = match self.event() {
                    Event::Code(probe) => probe.sites.first().map_or(0, |s| s.number),
                    _ => 0,
                };
                return Ok(self.asm.copy(number.cast_signed()));
            }
            ContextOp::CtxReg | ContextOp::CtxRegNow => {
                return Err("a register on a trampoline".into());
            }
        };
        self.asm.store(Size::DW, R10, value, 0);
        let context = CallArg::from(self.asm.word(R10, CTX));
        let args = [
            Some(context),
            number.map(CallArg::from),
            Some(CallArg::Word(value)),
        ];
        let args: Vec<CallArg> = args.into_iter().flatten().collect();
        self.asm.call_with(helper, &args);
        Ok(self.asm.word(R10, value))
    }

    /// An identifier of this call of the function: the address of the eight bytes that the
    /// kernel keeps for the call.
    pub(crate) fn call_of_function(&mut self) -> Res<Reg> {
        let Some(session) = self.options.features.kprobe_session else {
            return self.of_code(ContextOp::CtxSite, &[]);
        };
        let context = self.asm.word(R10, CTX);
        let cookie = self.asm.call_kfunc_with(session.cookie, &[context.into()]);
        Ok(self.as_number(cookie))
    }

    /// Offset of a register among those that the kernel saves.
    fn saved_register(&self, number: i64) -> Res<i16> {
        let register = u16::try_from(number).ok();
        let offset = register.and_then(|register| self.options.abi.offset(register));
        offset.ok_or_else(|| LowerError::malformed(format!("register {number} is not there")))
    }

    /// Whether the context contains the registers of the interrupted code. In a perf event's
    /// context they are laid out like `struct pt_regs`.
    fn has_registers(&self) -> bool {
        let event = self.event();
        matches!(event, Event::Code(_) | Event::Perf { .. } | Event::Watch(_))
    }

    /// The address of the interrupted instruction.
    pub(crate) fn interrupted_at(&mut self) -> Res<Reg> {
        if self.has_registers() {
            return self.register(self.options.abi.program_counter.into());
        }
        Ok(self.asm.copy(0))
    }

    /// The address of the function whose return is probed, in the given address space. The
    /// helper knows functions of the kernel on all kernels with return probes, and those of
    /// programs since 6.6; before, the result is 0.
    pub(crate) fn returning_from(&mut self, space: Val) -> Reg {
        let wanted = if space == Val::Imm(0) {
            Space::Kernel
        } else {
            Space::User
        };
        match self.event() {
            Event::Code(probe) if probe.at_exits() && probe.space == wanted => {
                // The cookie's upper half holds the distance to the function's start.
                let distance = self.location_cookie();
                self.asm.alu(AluOp::Arsh, distance, 32);
                let address = self.asm.word(R10, CTX);
                if let Some(pc) = self.options.abi.offset(self.options.abi.program_counter) {
                    self.asm.load(Size::DW, address, address, pc);
                }
                self.asm.alu(AluOp::Sub, address, distance);
                address
            }
            Event::Code(probe) if probe.ret && probe.space == wanted => {
                self.call_with_context(Helper::GetFuncIp)
            }
            _ => self.asm.copy(0),
        }
    }

    /// The address of the context as a number: that of a trace event's record, and one on the kernel's
    /// stack elsewhere.
    pub(crate) fn context_address(&mut self) -> Reg {
        let context = self.asm.word(R10, CTX);
        self.as_number(context)
    }

    /// `dst` = name of the interrupted function.
    pub(crate) fn interrupted(&mut self, dst: IrReg) -> Res {
        let [kernel, end] = self.asm.labels();
        let user = self.user_mode();
        self.asm.jump_if(Cond::Eq, user, 0, kernel);
        let address = self.interrupted_at()?;
        self.user_name(dst, address)?;
        self.asm.jump(end);
        self.asm.bind(kernel);
        let address = self.interrupted_at()?;
        self.symbol_at(dst, address, false)?;
        self.asm.bind(end);
        Ok(())
    }

    /// Argument n, counted from `first`, by the calling convention's registers.
    pub(crate) fn register_arg(&mut self, n: Val, first: i64) -> Res<Reg> {
        let Val::Imm(n) = n else {
            return Err("the number of an argument is not a constant".into());
        };
        if self.plan.attach.on_trampoline(self.handler) {
            return self.of_trampoline(ContextOp::CtxArg, &[Val::Imm(n - first)]);
        }
        let args = self.options.abi.calls.arguments;
        let number = usize::try_from(n - first).ok().and_then(|n| args.get(n));
        let number = number
            .ok_or_else(|| LowerError::malformed(format!("argument {n} is in no register")))?;
        self.register((*number).into())
    }

    /// Whether the event is at a return instruction. Handlers see the registers as they are behind
    /// that instruction, where the kernel's own return probes hit.
    fn at_exit(&self) -> bool {
        matches!(self.event(), Event::Code(probe) if probe.at_exits())
    }

    /// A register of the interrupted code, by its DWARF number.
    fn register(&mut self, number: i64) -> Res<Reg> {
        let abi = self.options.abi;
        let [pc, sp] = [abi.program_counter, abi.stack_pointer].map(i64::from);
        let context = self.asm.word(R10, CTX);
        if number == pc && self.at_exit() {
            let value = TMP[0];
            self.asm.store(Size::DW, R10, value, 0);
            let top = self.asm.word(context, self.saved_register(sp)?);
            let args = [CallArg::Word(value), 8.into(), top.into()];
            self.asm.call_with(Helper::ProbeReadUser, &args);
            return Ok(self.asm.word(R10, value));
        }
        let register = self.asm.word(context, self.saved_register(number)?);
        if number == sp && self.at_exit() {
            self.asm.add(register, abi.calls.popped.fit::<i32>());
        }
        Ok(register)
    }

    /// Stores the program counter, stack pointer and frame pointer behind the return instruction in
    /// these words of the block, for an unwind of the current program's stack. Returns false if the
    /// event is not at a return instruction.
    pub(crate) fn stack_behind_return(&mut self, words: [u32; 3]) -> Res<bool> {
        if !self.at_exit() {
            return Ok(false);
        }
        let abi = self.options.abi;
        let numbers = [abi.program_counter, abi.stack_pointer, abi.frame_pointer].map(i64::from);
        for (word, number) in words.into_iter().zip(numbers) {
            let register = self.register(number)?;
            self.store(word, register);
        }
        Ok(true)
    }
}
