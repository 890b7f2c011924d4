//! Results of system calls as text.

use spile_abi::names;
use spile_cast::Cast;
use spile_ebpf::isa::asm::CallArg;
use spile_ebpf::isa::insn::{AluOp, Cond};
use spile_ir::{NrSet, Reg as IrReg};

use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::slots::BLOCK;
use crate::lower::text::append::{APPEND_TEXT, flag};

/// Bytes of a name.
const NAME: usize = 32;
/// The largest error number.
const MAX_ERRNO: i32 = 4095;

impl HandlerCodegen<'_> {
    /// `dst` = the result as text: `-2 (ENOENT)`, or a number in the base that the table specifies.
    pub(crate) fn sys_retstr(&mut self, dst: IrReg) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        let last = names::all_errors().map(|(number, _)| number);
        let last = last.filter(|number| *number < names::KERNEL_ERRORS).max();
        let names = (0..=last.unwrap_or_default()).map(names::errno_name);
        let names: Vec<&[u8]> = names.map(|n| n.unwrap_or_default().as_bytes()).collect();
        let rows = names.len().fit::<u32>();
        let base = self
            .pool
            .table(u32::MAX - 1, NAME.fit::<u32>(), names.into_iter());
        let others = [8, 16].map(|base: u8| {
            let calls = self.options.syscalls.iter();
            let calls = calls.filter(|s| s.ret.base() == base);
            (base, calls.map(|s| s.nr).collect::<Vec<u32>>())
        });
        // Needed here even if other texts are appended by a global subprogram.
        self.use_append_text()?;
        let [number, end] = self.asm.labels();
        let unnamed = self.asm.label();
        self.begin_text(width);
        let result = self.sys_ret()?;
        self.asm.jump_if(Cond::Slt, result, -MAX_ERRNO, number);
        self.asm.jump_if(Cond::Sge, result, 0, number);
        self.append_value(result, 10, flag::SIGNED)?;
        let error = self.sys_ret()?;
        self.asm.neg(error);
        self.asm.jump_if(Cond::Ge, error, rows, unnamed);
        self.append_literal(" (")?;
        let error = self.sys_ret()?;
        self.asm.neg(error);
        self.asm.jump_if(Cond::Ge, error, rows, unnamed);
        self.asm.alu(AluOp::Mul, error, NAME.fit::<i32>());
        let name = self.asm.address_of(&CallArg::Constant(base));
        self.asm.add(name, error);
        let args = [
            BLOCK.into(),
            name.into(),
            NAME.fit::<i32>().into(),
            0.into(),
        ];
        self.asm.call_sub_with(APPEND_TEXT, &args);
        self.append_literal(")")?;
        self.asm.bind(unnamed);
        self.asm.jump(end);
        self.asm.bind(number);
        for (base, calls) in others.into_iter().filter(|(_, calls)| !calls.is_empty()) {
            let other = self.asm.label();
            self.dispatch(&NrSet::List(calls), other);
            let result = self.sys_ret()?;
            self.append_value(result, base.into(), flag::MARK)?;
            self.asm.jump(end);
            self.asm.bind(other);
        }
        let result = self.sys_ret()?;
        self.append_value(result, 10, flag::SIGNED)?;
        self.asm.bind(end);
        self.end_text(off, width);
        Ok(())
    }
}
