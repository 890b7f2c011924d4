//! Changes of the current process: writes to its memory, and signals. The account has their number.

use spile_ir::Val;
use spile_ir::intrinsics::ActOp;

use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{Cond, Size};
use crate::layout::{ErrorKind, LOWEST_ERROR};
use crate::lower::{HandlerCodegen, Res, TMP};

impl HandlerCodegen<'_> {
    pub(in crate::lower) fn act(&mut self, op: ActOp, args: &[Val]) -> Res {
        if op == ActOp::RegisterStore && !self.options.features.write_registers {
            return Err(
                "this kernel lets no BPF program set registers of programs, and the variable is in \
                 one here; at another statement it may be in memory"
                    .into(),
            );
        }
        let memory = matches!(op, ActOp::UserStore | ActOp::UserStoreText);
        if memory && !self.options.features.write_user {
            return Err(
                "the kernel lets no BPF program write to memory of programs: it is locked down \
                 (see kernel_lockdown(7), and the kernel's option `lockdown=`)"
                    .into(),
            );
        }
        let counter = self.plan.acts.ok_or("no counter of changes")?;
        match op {
            ActOp::UserStore => self.user_store(args)?,
            ActOp::UserStoreText => self.user_store_text(args[0], args[1])?,
            ActOp::DecisionSet => {
                let fail = self.fail_label(ErrorKind::Decision);
                self.use_in(args[0], R1)?;
                self.asm.jump_if(Cond::Sgt, R1, 0, fail);
                self.asm.jump_if(Cond::Slt, R1, LOWEST_ERROR, fail);
                self.store(self.plan.scratch.verdict, R1);
            }
            ActOp::RegisterStore => self.set_register(args[0], args[1])?,
            ActOp::SendSignal => {
                let fail = self.fail_label(ErrorKind::Signal);
                self.use_in(args[0], R1)?;
                // The kernel takes any 32 bits, and 0 sends nothing.
                self.asm.jump_if(Cond::Sle, R1, 0, fail);
                self.asm.jump_if(Cond::Gt, R1, MOST_SIGNALS, fail);
                self.asm.call(Helper::SendSignalThread);
                self.asm.jump_if(Cond::Ne, R0, 0, fail);
            }
        }
        self.load(R1, counter);
        self.asm.add(R1, 1);
        self.store(counter, R1);
        Ok(())
    }

    fn user_store(&mut self, args: &[Val]) -> Res {
        let Val::Imm(n @ (1 | 2 | 4 | 8)) = args[0] else {
            return Err("a write of that size".into());
        };
        let size = Size::from_bytes(n as u32).ok_or("a write of that size")?;
        self.use_in(args[2], R2)?;
        self.asm.store(size, R10, TMP[0], R2);
        self.use_in(args[1], R1)?;
        self.set_aux(R1);
        self.asm.mov(R2, R10);
        self.asm.add(R2, i32::from(TMP[0]));
        self.asm.mov(R3, n as i32);
        self.write_user();
        Ok(())
    }

    fn user_store_text(&mut self, addr: Val, text: Val) -> Res {
        let text = self.text(text)?;
        let empty = self.asm.label();
        self.strlen(&text);
        self.asm.mov(R3, R0);
        // A helper's length must not be 0 for older kernels, and has the slot's width as its bound.
        self.asm.jump_if(Cond::Sle, R3, 0, empty);
        self.asm.jump_if(Cond::Gt, R3, text.width() as i32, empty);
        self.use_in(addr, R1)?;
        self.set_aux(R1);
        self.text_addr(R2, &text);
        self.write_user();
        self.asm.bind(empty);
        Ok(())
    }

    /// Writes r3 bytes at r2 to the user address r1.
    fn write_user(&mut self) {
        let fail = self.fail_label(ErrorKind::WriteFault);
        self.asm.call(Helper::ProbeWriteUser);
        self.asm.jump_if(Cond::Ne, R0, 0, fail);
    }
}

/// The largest signal.
const MOST_SIGNALS: i32 = 64;
