//! What a handler at code asks of its event: registers, arguments, the result, which place.

use spile_ir::intrinsics::Intrinsic as I;
use spile_ir::{Event, Val};

use super::{CTX, Gen, Res};
use crate::helpers::Helper;
use crate::insn::{Reg::*, Size};
use crate::regs::Registers;

impl Gen<'_> {
    /// `r0` = what the intrinsic gives; tracepoints have arguments as well. Loses r1-r5.
    pub(super) fn of_code(&mut self, f: I, args: &[Val]) -> Res {
        let Event::Code(probe) = self.event() else {
            return match (f, args) {
                (I::CtxArg, [n]) => self.ctx_arg(*n),
                _ => Err(format!("{} in an event that is not at code", f.info().name)),
            };
        };
        match (f, args) {
            (I::CtxArg, [n]) => self.register_arg(*n, 0),
            (I::CtxReg, [Val::Imm(n)]) => self.register(*n),
            (I::CtxRet, []) if probe.ret => self.register(Registers::host().ret.into()),
            (I::CtxSite, []) if probe.sites.len() == 1 => {
                self.asm.mov(R0, 0);
                Ok(())
            }
            (I::CtxSite, []) => {
                self.asm.load(Size::DW, R1, R10, CTX);
                self.asm.call(Helper::GetAttachCookie);
                Ok(())
            }
            (I::CtxRet, _) => Err("the result of a function before it returns".into()),
            _ => Err("the number of a register is not a constant".into()),
        }
    }

    /// `r0` = argument n, counted from `first`, where functions have it in a register.
    pub(super) fn register_arg(&mut self, n: Val, first: i64) -> Res {
        let Val::Imm(n) = n else {
            return Err("the number of an argument is not a constant".into());
        };
        let args = Registers::host().args;
        let number = usize::try_from(n - first).ok().and_then(|n| args.get(n));
        let number = number.ok_or_else(|| format!("argument {n} is in no register"))?;
        self.register((*number).into())
    }

    fn register(&mut self, number: i64) -> Res {
        let offset = Registers::host().offset(number);
        let offset = offset.ok_or_else(|| format!("register {number} is not there"))?;
        self.asm.load(Size::DW, R1, R10, CTX);
        self.asm.load(Size::DW, R0, R1, offset);
        Ok(())
    }
}
