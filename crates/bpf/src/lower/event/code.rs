//! The context of probes in code: registers, arguments, results, probe addresses.

use spile_ir::intrinsics::{ContextOp, Intrinsic};
use spile_ir::{Event, Reg as IrReg, Space, Val};

use super::pt_regs::Registers;
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size};
use crate::lower::{CTX, HandlerCodegen, Res, TMP};

fn constant(n: Val) -> Result<i64, String> {
    match n {
        Val::Imm(n) => Ok(n),
        Val::Reg(_) | Val::Str(_) => Err("the number of a register is not a constant".into()),
    }
}

impl HandlerCodegen<'_> {
    /// `r0` = the intrinsic's value; serves the arguments of tracepoints as well. Clobbers r1 to
    /// r5.
    pub(in crate::lower) fn of_code(&mut self, op: ContextOp, args: &[Val]) -> Res {
        let Event::Code(probe) = self.event() else {
            return match op {
                ContextOp::CtxArg => self.ctx_arg(args[0]),
                ContextOp::CtxReg if self.has_registers() => self.register(constant(args[0])?),
                ContextOp::CtxReg
                | ContextOp::CtxRegNow
                | ContextOp::CtxRet
                | ContextOp::CtxSite => {
                    let name = Intrinsic::from(op).info().name;
                    Err(format!("{name} in an event that is not at code"))
                }
            };
        };
        if self.plan.attach.on_trampoline(self.handler) {
            return self.of_trampoline(op, args);
        }
        match op {
            ContextOp::CtxArg => self.register_arg(args[0], 0),
            ContextOp::CtxReg | ContextOp::CtxRegNow => self.register(constant(args[0])?),
            ContextOp::CtxRet if probe.ret => self.register(self.registers().ret.into()),
            ContextOp::CtxRet => Err("the result of a function before it returns".into()),
            ContextOp::CtxSite => {
                match *probe.sites {
                    [ref one] => self.asm.mov(R0, one.number as i32),
                    _ => {
                        let exits = probe.at_exits();
                        self.asm.load(Size::DW, R1, R10, CTX);
                        self.asm.call(Helper::GetAttachCookie);
                        if exits {
                            self.asm.alu32(AluOp::Mov, R0, R0);
                        }
                    }
                }
                Ok(())
            }
        }
    }

    /// Sets a register of the probed program.
    pub(in crate::lower) fn set_register(&mut self, number: Val, value: Val) -> Res {
        let number = constant(number)?;
        let offset = self.registers().offset(number);
        let offset = offset.ok_or_else(|| format!("register {number} is not there"))?;
        self.use_in(value, R2)?;
        self.asm.load(Size::DW, R1, R10, CTX);
        self.asm.store(Size::DW, R1, offset, R2);
        Ok(())
    }

    /// `r0` = the intrinsic's value on a trampoline. Helpers return plain numbers; a load from the
    /// context would give the verifier a pointer to a structure, which does not allow arithmetic.
    fn of_trampoline(&mut self, op: ContextOp, args: &[Val]) -> Res {
        let value = TMP[0];
        let helper = match op {
            ContextOp::CtxArg => {
                self.asm.mov(R2, constant(args[0])? as i32);
                Helper::GetFuncArg
            }
            ContextOp::CtxRet => Helper::GetFuncRet,
            ContextOp::CtxSite => {
                let number = match self.event() {
                    Event::Code(probe) => probe.sites.first().map_or(0, |s| s.number),
                    _ => 0,
                };
                self.asm.mov(R0, number as i32);
                return Ok(());
            }
            ContextOp::CtxReg | ContextOp::CtxRegNow => {
                return Err("a register on a trampoline".into());
            }
        };
        let into = match helper {
            Helper::GetFuncArg => R3,
            _ => R2,
        };
        self.asm.store(Size::DW, R10, value, 0);
        self.asm.mov(into, R10);
        self.asm.add(into, i32::from(value));
        self.asm.load(Size::DW, R1, R10, CTX);
        self.asm.call(helper);
        self.asm.load(Size::DW, R0, R10, value);
        Ok(())
    }

    /// `r0` = an identifier of this call of the function: the address of the eight bytes that the
    /// kernel keeps for the call. Clobbers r1 to r5.
    pub(in crate::lower) fn call_of_function(&mut self) -> Res {
        let Some(session) = self.options.features.kprobe_session else {
            return self.of_code(ContextOp::CtxSite, &[]);
        };
        let word = self.plan.scratch.tmp;
        self.asm.load(Size::DW, R1, R10, CTX);
        self.asm.call_kfunc(session.cookie);
        // Goes through memory, which turns the address into a number.
        self.store(word, R0);
        self.load(R0, word);
        Ok(())
    }

    /// Where the processor that the object is for has its registers.
    fn registers(&self) -> &'static Registers {
        Registers::for_arch(self.options.arch)
    }

    /// Whether the context contains the registers of the interrupted code. In a perf event's
    /// context they are laid out like `struct pt_regs`.
    fn has_registers(&self) -> bool {
        let event = self.event();
        matches!(event, Event::Code(_) | Event::Perf { .. } | Event::Watch(_))
    }

    /// `r0` = address of the interrupted instruction.
    pub(in crate::lower) fn interrupted_at(&mut self) -> Res {
        if self.has_registers() {
            return self.register(self.registers().pc.into());
        }
        self.asm.mov(R0, 0);
        Ok(())
    }

    /// `r0` = address of the function whose return is probed, in the given address space. The
    /// helper knows functions of the kernel on all kernels with return probes, and those of
    /// programs since 6.6; before, the result is 0. Clobbers r1 to r5.
    pub(in crate::lower) fn returning_from(&mut self, space: Val) {
        let wanted = if space == Val::Imm(0) {
            Space::Kernel
        } else {
            Space::User
        };
        match self.event() {
            Event::Code(probe) if probe.at_exits() && probe.space == wanted => {
                // The cookie's upper half holds the distance to the function's start.
                self.asm.load(Size::DW, R1, R10, CTX);
                self.asm.call(Helper::GetAttachCookie);
                self.asm.alu(AluOp::Arsh, R0, 32);
                self.asm.load(Size::DW, R1, R10, CTX);
                if let Some(pc) = self.registers().offset(self.registers().pc.into()) {
                    self.asm.load(Size::DW, R1, R1, pc);
                }
                self.asm.alu(AluOp::Sub, R1, R0);
                self.asm.mov(R0, R1);
            }
            Event::Code(probe) if probe.ret && probe.space == wanted => {
                self.asm.load(Size::DW, R1, R10, CTX);
                self.asm.call(Helper::GetFuncIp);
            }
            _ => self.asm.mov(R0, 0),
        }
    }

    /// `r0` = an address on the kernel's stack, where contexts lie. Clobbers r1.
    pub(in crate::lower) fn place_on_stack(&mut self) {
        let word = self.plan.scratch.tmp;
        self.asm.load(Size::DW, R1, R10, CTX);
        // Goes through memory, which turns the address into a number.
        self.store(word, R1);
        self.load(R0, word);
    }

    /// `dst` = name of the interrupted function.
    pub(in crate::lower) fn interrupted(&mut self, dst: IrReg) -> Res {
        let [kernel, end] = std::array::from_fn(|_| self.asm.label());
        self.user_mode();
        self.asm.jump_if(Cond::Eq, R0, 0, kernel);
        self.interrupted_at()?;
        self.user_name(dst)?;
        self.asm.jump(end);
        self.asm.bind(kernel);
        self.interrupted_at()?;
        self.symbol_at(dst, false)?;
        self.asm.bind(end);
        Ok(())
    }

    /// `r0` = argument n, counted from `first`, by the calling convention's registers.
    pub(in crate::lower) fn register_arg(&mut self, n: Val, first: i64) -> Res {
        let Val::Imm(n) = n else {
            return Err("the number of an argument is not a constant".into());
        };
        if self.plan.attach.on_trampoline(self.handler) {
            return self.of_trampoline(ContextOp::CtxArg, &[Val::Imm(n - first)]);
        }
        let args = self.registers().args;
        let number = usize::try_from(n - first).ok().and_then(|n| args.get(n));
        let number = number.ok_or_else(|| format!("argument {n} is in no register"))?;
        self.register((*number).into())
    }

    /// Whether the event is at a return instruction. Handlers see the registers as they are behind
    /// that instruction, where the kernel's own return probes hit.
    fn at_exit(&self) -> bool {
        matches!(self.event(), Event::Code(probe) if probe.at_exits())
    }

    fn register(&mut self, number: i64) -> Res {
        let registers = self.registers();
        let at = |number| {
            let offset = registers.offset(number);
            offset.ok_or_else(|| format!("register {number} is not there"))
        };
        let [pc, sp] = [registers.pc, registers.sp].map(i64::from);
        self.asm.load(Size::DW, R1, R10, CTX);
        if number == pc && self.at_exit() {
            let value = TMP[0];
            self.asm.store(Size::DW, R10, value, 0);
            self.asm.load(Size::DW, R3, R1, at(sp)?);
            self.asm.mov(R1, R10);
            self.asm.add(R1, i32::from(value));
            self.asm.mov(R2, 8);
            self.asm.call(Helper::ProbeReadUser);
            self.asm.load(Size::DW, R0, R10, value);
            return Ok(());
        }
        self.asm.load(Size::DW, R0, R1, at(number)?);
        if number == sp && self.at_exit() {
            self.asm.add(R0, 8);
        }
        Ok(())
    }

    /// Stores the program counter, stack pointer and frame pointer behind the return instruction in
    /// these words of the block, for a walk of the current program's stack. Returns false if the
    /// event is not at a return instruction.
    pub(in crate::lower) fn stack_behind_return(&mut self, words: [u32; 3]) -> Res<bool> {
        if !self.at_exit() {
            return Ok(false);
        }
        let registers = self.registers();
        const FRAME: u16 = 6;
        let numbers = [registers.pc, registers.sp, FRAME].map(i64::from);
        for (word, number) in words.into_iter().zip(numbers) {
            self.register(number)?;
            self.store(word, R0);
        }
        Ok(true)
    }
}
