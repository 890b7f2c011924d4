//! Conversion of decimal text to a floating-point number, by the run-time library.

use spile_ir::interp::string_to_fp;
use spile_ir::{Reg as IrReg, Val};
use spile_lir::library::decimal;

use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::operand::StrOperand;
use crate::lower::slots::block_at;

impl HandlerCodegen<'_> {
    /// `dst` = the floating-point number that a text represents.
    pub(crate) fn string_to_fp(&mut self, dst: IrReg, text: Val) -> Res {
        let text = self.text(text)?;
        if let StrOperand::Const { bytes } = &text {
            let number = self.asm.new_reg();
            self.asm.imm(number, string_to_fp(bytes));
            return self.def_int(dst, number);
        }
        self.needs_loop("string_to_fp()")?;
        let max = self.plan.max_string;
        let place = self.plan.scratch.text + 2 * max;
        self.copy_text(place, text.width().min(max), &text)?;
        let convert = self.made(decimal::string_to_fp(max))?;
        // The verifier follows the conversion once for all calls.
        let name = "string_to_fp_at";
        self.define_global(name, [], |g, []| {
            let args = [place, g.plan.scratch.decimal].map(block_at);
            let number = g.asm.call_sub_with(convert, &args);
            g.asm.ret(number);
            Ok(())
        })?;
        let number = self.asm.call_sub_with(name, &[]);
        self.def_int(dst, number)
    }
}
