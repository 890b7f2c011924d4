//! Changes of the current process: writes to its memory, and signals. The account has their number.

use spile_cast::Cast;
use spile_ebpf::isa::asm::CallArg;
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::insn::Reg::R10;
use spile_ebpf::isa::insn::{Cond, Size, Src};
use spile_ir::Val;
use spile_ir::intrinsics::ActOp;
use spile_layout::{ErrorKind, LOWEST_ERROR};

use crate::error::{LowerError, Res};
use crate::lower::codegen::HandlerCodegen;
use crate::lower::slots::TMP;

impl HandlerCodegen<'_> {
    pub(crate) fn act(&mut self, op: ActOp, args: &[Val]) -> Res {
        if op == ActOp::RegisterStore && !self.options.features.write_registers {
            return Err(LowerError::unsupported(
                "this kernel lets no BPF program set registers of programs (those after Linux 6.18 do), and the \
                 variable or argument is in one here; at another statement a variable may be in memory",
            ));
        }
        let memory = matches!(op, ActOp::UserStore | ActOp::UserStoreText);
        if memory && !self.options.features.write_user {
            return Err(LowerError::unsupported(
                "the kernel lets no BPF program write to memory of programs: it is locked down \
                 (see kernel_lockdown(7), and the kernel's option `lockdown=`)",
            ));
        }
        let counter = self.plan.layout.acts.ok_or("no counter of changes")?;
        match op {
            ActOp::UserStore => self.user_store(args)?,
            ActOp::UserStoreText => self.user_store_text(args[0], args[1])?,
            ActOp::DecisionSet => {
                let fail = self.fail_label(ErrorKind::Decision);
                let decision = self.number_copy(args[0])?;
                self.asm.jump_if(Cond::Sgt, decision, 0, fail);
                self.asm.jump_if(Cond::Slt, decision, LOWEST_ERROR, fail);
                self.store(self.plan.scratch.verdict, decision);
            }
            ActOp::RegisterStore => self.set_register(args[0], args[1])?,
            ActOp::SendSignal => {
                let fail = self.fail_label(ErrorKind::Signal);
                let signal = self.number_copy(args[0])?;
                // The kernel takes any 32 bits, and 0 sends nothing.
                self.asm.jump_if(Cond::Sle, signal, 0, fail);
                self.asm.jump_if(Cond::Gt, signal, MOST_SIGNALS, fail);
                let result = self
                    .asm
                    .call_with(Helper::SendSignalThread, &[signal.into()]);
                self.asm.jump_if(Cond::Ne, result, 0, fail);
            }
        }
        let changes = self.block_word(counter);
        self.asm.add(changes, 1);
        self.store(counter, changes);
        Ok(())
    }

    fn user_store(&mut self, args: &[Val]) -> Res {
        let Val::Imm(n @ (1 | 2 | 4 | 8)) = args[0] else {
            return Err("a write of that size".into());
        };
        let size = Size::from_bytes(n.fit::<u32>()).ok_or("a write of that size")?;
        let value = self.number(args[2])?;
        self.asm.store(size, R10, TMP[0], value);
        let to = self.number(args[1])?;
        self.write_user(to, [CallArg::Word(TMP[0]), n.fit::<i32>().into()]);
        Ok(())
    }

    fn user_store_text(&mut self, addr: Val, text: Val) -> Res {
        let text = self.text(text)?;
        let empty = self.asm.label();
        let length = self.strlen(&text);
        // A helper's length must not be 0 for older kernels, and has the slot's width as its bound.
        self.asm.jump_if(Cond::Sle, length, 0, empty);
        self.asm.jump_if(Cond::Gt, length, text.width(), empty);
        let to = self.number(addr)?;
        let from = self.text_arg(&text);
        self.write_user(to, [from, length.into()]);
        self.asm.bind(empty);
        Ok(())
    }

    /// Writes memory, given by its address and length, to a user address.
    fn write_user(&mut self, to: Src, [from, length]: [CallArg; 2]) {
        let fail = self.fail_label(ErrorKind::WriteFault);
        self.set_aux(to);
        let args = [to.into(), from, length];
        let result = self.asm.call_with(Helper::ProbeWriteUser, &args);
        self.asm.jump_if(Cond::Ne, result, 0, fail);
    }
}

/// The largest signal.
const MOST_SIGNALS: i32 = 64;
