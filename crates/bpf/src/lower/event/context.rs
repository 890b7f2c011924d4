//! The interrupted code's mode, and the current process's command line.

use spile_ebpf::isa::insn::Reg::R10;
use spile_ebpf::isa::insn::{AluOp, Cond, Reg, Size};
use spile_ir::{Event, IntTy, Reg as IrReg};
use spile_layout::percpu;
use spile_lir::library::cmdline::{CmdlineLayout, cmdline};

use crate::error::{LowerError, Res};
use crate::lower::codegen::HandlerCodegen;
use crate::lower::slots::{CTX, block_at};

impl HandlerCodegen<'_> {
    /// `dst` = the field at that offset.
    pub(crate) fn task_field_load(&mut self, dst: IrReg, offset: i16, ty: IntTy) -> Res {
        let access = Size::from_bytes(ty.size.into()).ok_or("an access of that size")?;
        let task = self.task();
        let field = self.asm.read(access, task, offset);
        self.extend_into(dst, field, ty)
    }

    /// 1 if a perf event interrupted user mode, and at probes in user code. Other events,
    /// including system calls, come from kernel code; as in SystemTap they give 0.
    pub(crate) fn user_mode(&mut self) -> Reg {
        let event = self.ctx.event();
        let perf = matches!(event, Event::Perf { .. } | Event::Watch(_));
        let user = self.asm.copy(i32::from(event.in_user_code()));
        if perf {
            let kernel = self.asm.label();
            let saved = &self.options.abi.saved;
            let mode = self.asm.word(R10, CTX);
            self.asm.load(Size::DW, mode, mode, saved.mode);
            self.asm.alu(AluOp::And, mode, saved.level);
            self.asm.jump_if(Cond::Ne, mode, saved.user_level, kernel);
            self.asm.mov(user, 1);
            self.asm.bind(kernel);
        }
        user
    }

    /// `dst` = the current process's arguments, joined by spaces, with empty ones as `""`; "" for
    /// kernel threads.
    pub(crate) fn cmdline(&mut self, dst: IrReg) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        let o = &self.options.offsets;
        let fields = [o.task_mm, o.mm_arg_start, o.mm_arg_end];
        let [Some(mm), Some(start), Some(end)] = fields else {
            return Err(LowerError::unsupported(
                "cmdline_str() needs fields that this kernel's BTF does not have",
            ));
        };
        self.needs_loop("cmdline_str()")?;
        let layout = CmdlineLayout {
            wide: width,
            task_mm: mm,
            arg_start: start,
            arg_end: end,
        };
        let name = layout.name();
        self.pool.define_once(&name, None, || cmdline(&layout))?;
        let whole = self.asm.label();
        self.fill_zero(off, width);
        let args = [block_at(off), block_at(self.plan.scratch.text)];
        let cut = self.asm.call_sub_with(name, &args);
        self.asm.jump_if(Cond::Eq, cut, 0, whole);
        self.count(percpu::TRUNCATED);
        self.asm.bind(whole);
        Ok(())
    }
}
