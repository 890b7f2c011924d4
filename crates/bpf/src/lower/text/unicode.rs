//! Strings of 16-bit and 32-bit units in memory, converted to UTF-8 by the run-time library.

use spile_cast::Cast;
use spile_ebpf::isa::insn::Cond;
use spile_ir::{Reg as IrReg, Space, Val};
use spile_layout::ErrorKind;
use spile_lir::helpers::Helper;
use spile_lir::library::unicode::{self, status};
use spile_lir::op::Size;

use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::slots::block_at;

impl HandlerCodegen<'_> {
    /// `dst` = the text at an address. Errors are raised even if the result is unused.
    pub(crate) fn unicode(&mut self, dst: Option<IrReg>, space: Space, args: &[Val]) -> Res {
        self.needs_loop("reading UTF-16 and UTF-32")?;
        let (addr, unit, bits, capacity) = match *args {
            [addr, Val::Imm(2), Val::Imm(n)] => (addr, Size::U16, 16, n),
            [addr, Val::Imm(4), Val::Imm(n)] => (addr, Size::U32, 32, n),
            _ => return Err("units of another size than 2 and 4 bytes".into()),
        };
        let (space, helper, kind) = match space {
            Space::User => ("user", Helper::ReadUser, ErrorKind::UserStrFault),
            Space::Kernel => ("kernel", Helper::Read, ErrorKind::KernelStrFault),
        };
        let max = self.plan.max_string;
        let capacity = capacity.clamp(1, max.into()).fit::<u32>();
        let name = format!("{space}_utf{bits}_{capacity}");
        self.made(unicode::utf(&name, helper, unit, capacity))?;
        self.begin_text(max);
        let addr = self.number(addr)?;
        self.set_aux(addr);
        let args = [addr.into(), block_at(self.plan.scratch.text)];
        let result = self.asm.call_sub_with(name, &args);
        let [read, invalid] = self.asm.labels();
        let fail = self.fail_label(kind);
        self.asm.jump_if(Cond::Eq, result, status::READ, read);
        self.asm.jump_if(Cond::Eq, result, status::INVALID, invalid);
        self.jump_opaque(fail);
        self.asm.bind(invalid);
        let off = self.plan.scratch.err_text;
        let text = spile_ir::interp::invalid_unicode(bits / 8);
        self.build_message(off, max, text.as_bytes())?;
        self.fail_now(ErrorKind::Raised);
        self.asm.bind(read);
        if let Some((off, width)) = dst.map(|d| self.slot(d)).transpose()?.flatten() {
            self.end_text(off, width);
        }
        Ok(())
    }
}
