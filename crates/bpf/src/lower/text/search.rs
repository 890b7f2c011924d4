//! String functions that work byte by byte: search, numbers in text, escapes. The run-time library has
//! their loops.

use spile_cast::Cast;
use spile_ebpf::isa::asm::CallArg;
use spile_ebpf::isa::insn::{AluOp, Cond, Reg, Size, Src};
use spile_ir::interp::strtol;
use spile_ir::{Reg as IrReg, Val};
use spile_layout::plan::StateLayout;
use spile_lir::func::{LirFunc, Module};
use spile_lir::library::{quote, search};

use super::escapes::{ESCAPE, escapes, table};
use crate::error::{LowerError, Res};
use crate::lower::codegen::HandlerCodegen;
use crate::lower::operand::StrOperand;
use crate::lower::pool::Pool;
use crate::lower::slots::block_at;

impl HandlerCodegen<'_> {
    pub(crate) fn needs_loop(&self, what: &str) -> Res {
        if self.options.features.bpf_loop {
            Ok(())
        } else {
            Err(LowerError::unsupported(format!(
                "{what} in a kernel handler needs bpf_loop (Linux 5.17)"
            )))
        }
    }

    /// Defines a function that is made for this call, and returns its name.
    pub(crate) fn made(&mut self, func: LirFunc) -> Res<String> {
        self.pool.define_module(Module::from(func))
    }

    /// A string in the per-CPU area with readable memory behind it: constants are copied to the copy
    /// buffer.
    pub(crate) fn copy_into_block(&mut self, text: StrOperand) -> Res<StrOperand> {
        match text {
            StrOperand::Slot { .. } => Ok(text),
            StrOperand::Const { .. } => {
                let width = text.width().min(self.plan.max_string);
                let off = self.plan.scratch.text + 2 * self.plan.max_string;
                self.copy_text(off, width, &text)?;
                Ok(StrOperand::Slot { off, width })
            }
        }
    }

    /// `dst` = 1 if the first string contains the second.
    pub(crate) fn isinstr(&mut self, dst: IrReg, text: Val, part: Val) -> Res {
        let position = match self.find(text, part)? {
            Src::Imm(position) => return self.def_int(dst, i32::from(position > 0)),
            Src::Reg(position) => position,
        };
        self.asm.mov_unless(Cond::Eq, position, 0, 1);
        self.def_int(dst, position)
    }

    /// `dst` = position of the second string in the first, or -1.
    pub(crate) fn strpos(&mut self, dst: IrReg, text: Val, part: Val) -> Res {
        match self.find(text, part)? {
            Src::Imm(position) => self.def_int(dst, position - 1),
            Src::Reg(position) => {
                self.asm.add(position, -1);
                self.def_int(dst, position)
            }
        }
    }

    /// The position of the second string in the first, plus one, or 0 if it does not occur.
    fn find(&mut self, text: Val, part: Val) -> Res<Src> {
        let (text, part) = (self.text(text)?, self.text(part)?);
        if let (StrOperand::Const { bytes: a }, StrOperand::Const { bytes: b }) = (&text, &part) {
            let index = match b.is_empty() {
                true => Some(0),
                false => a.windows(b.len()).position(|w| w == &**b),
            };
            return Ok(Src::Imm(index.map_or(0, |index| index.fit::<i32>() + 1)));
        }
        self.needs_loop("searching in a string")?;
        let text = self.copy_into_block(text)?;
        let name = self.made(search::find(text.width(), part.width()))?;
        let [part_length, length] = [&part, &text].map(|text| self.strlen(text));
        let [text, part] = [&text, &part].map(|text| self.text_arg(text));
        let args = [text, length.into(), part, part_length.into()];
        Ok(self.asm.call_sub_with(name, &args).into())
    }

    /// `dst` = the number at the start of a string.
    pub(crate) fn strtol(&mut self, dst: IrReg, text: Val, base: Val) -> Res {
        let text = self.text(text)?;
        if let (StrOperand::Const { bytes }, Val::Imm(base)) = (&text, base) {
            let number = self.asm.constant(strtol(bytes, base));
            return self.def_int(dst, number);
        }
        self.needs_loop("strtol()")?;
        self.pool.library("strtol")?;
        let base = self.number(base)?;
        let width = CallArg::from(text.width());
        let args = [self.text_arg(&text), width, base.into()];
        let number = self.asm.call_sub_with("strtol", &args);
        self.def_int(dst, number)
    }

    /// A copy of a string with its bytes escaped as in C source, in the copy buffer.
    pub(crate) fn escaped(&mut self, text: &StrOperand) -> Res<StrOperand> {
        let width = self.plan.max_string;
        if let StrOperand::Const { bytes } = text {
            let bytes = spile_ir::fmt::escape_text(bytes);
            let keep = bytes.len().min(width as usize);
            return Ok(StrOperand::literal(&bytes[..keep]));
        }
        self.needs_loop("%#s")?;
        let name = use_escape(self.pool, self.plan, text.width())?;
        let off = self.plan.scratch.text + 3 * self.plan.max_string;
        let args = [self.text_arg(text), block_at(off)];
        self.asm.call_sub_with(name, &args);
        // Wider than the limit, so that a truncation is detected and counted.
        let width = width + 16;
        Ok(StrOperand::Slot { off, width })
    }

    /// Word at `tmp` = the escape of a byte. Changes `code`.
    pub(crate) fn escaped_char(&mut self, code: Reg, tmp: u32) {
        let table = self.pool.constant(&table(spile_ir::fmt::escape_char));
        let escape = self.asm.address_of(&CallArg::Constant(table));
        self.asm.alu(AluOp::And, code, 255);
        self.asm.alu(AluOp::Mul, code, ESCAPE);
        self.asm.add(escape, code);
        self.asm.load(Size::W, escape, escape, 0);
        self.store(tmp, escape);
    }
}

/// Defines `escape(text, to)` for texts of that width, and returns its name.
pub(crate) fn use_escape(pool: &mut Pool, plan: &StateLayout, wide: u32) -> Res<String> {
    pool.define_module(quote::escape(wide, plan.max_string, &escapes()))
}
