//! Text built from formats: `sprintf` in kernel handlers, concatenation, short messages.
//!
//! Text grows in the CPU's text buffer; the position is a scratch word. Subprograms append strings
//! and numbers with C's widths, precisions and flags. These are constant arguments, so that the
//! verifier follows only the relevant branches. Padding is copied from runs of spaces and zeros. At
//! the end the text is copied to its slot, and a truncation is counted.

use spile_cast::Cast;
use spile_ebpf::isa::asm::CallArg;
use spile_ebpf::isa::insn::Reg::R10;
use spile_ebpf::isa::insn::{AluOp, Cond, Reg, Size, Src};
use spile_ir::fmt::{Conv, ConvKind, Count, Piece};
use spile_ir::{FormatId, Reg as IrReg, Val};

use super::append::{APPEND_BYTES, APPEND_TEXT, MAX_COUNT, append_number, flag};
use super::fields::{FieldSpec, MemoryArg, SizeOperand};
use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::operand::StrOperand;
use crate::lower::slots::{BLOCK, NR, block_at};

impl HandlerCodegen<'_> {
    pub(crate) fn concat(&mut self, dst: IrReg, a: Val, b: Val) -> Res {
        self.text_result(dst, |g| {
            for text in [a, b] {
                let text = g.text(text)?;
                g.append_text(&text)?;
            }
            Ok(())
        })
    }

    pub(crate) fn sprint(&mut self, dst: IrReg, fmt: FormatId, args: &[Val]) -> Res {
        self.text_result(dst, |g| {
            let format = g.program.formats.get(fmt.index());
            let mut args = args.iter().copied();
            for piece in &format.ok_or("no such format")?.pieces {
                match piece {
                    Piece::Lit(bytes) => g.append_literal(bytes)?,
                    Piece::Conv(conv) => g.conversion(conv, &mut args)?,
                }
            }
            Ok(())
        })
    }

    /// `dst` = the text that the code appends, if there is a slot for it.
    pub(crate) fn text_result(&mut self, dst: IrReg, code: impl FnOnce(&mut Self) -> Res) -> Res {
        match self.slot(dst)? {
            Some(slot) => self.write_text(slot, code),
            None => Ok(()),
        }
    }

    /// Writes the text that the code appends to a slot: its offset and width.
    pub(crate) fn write_text(
        &mut self,
        (off, width): (u32, u32),
        code: impl FnOnce(&mut Self) -> Res,
    ) -> Res {
        self.begin_text(width);
        code(self)?;
        self.end_text(off, width);
        Ok(())
    }

    fn conversion(&mut self, c: &Conv, args: &mut impl Iterator<Item = Val>) -> Res {
        let mut next = || args.next().ok_or("a format with too few arguments");
        let width = match c.width {
            Count::None => SizeOperand::Known(0),
            Count::Fixed(n) => SizeOperand::Known(n.min(MAX_COUNT as u32).cast_signed()),
            Count::Arg => SizeOperand::At(next()?),
        };
        let precision = match c.precision {
            Count::None => SizeOperand::Known(-1),
            Count::Fixed(n) => SizeOperand::Known(n.min(MAX_COUNT as u32).cast_signed()),
            Count::Arg => SizeOperand::At(next()?),
        };
        let value = next()?;
        let field = FieldSpec {
            width,
            precision,
            left: c.left,
        };
        match c.kind {
            ConvKind::Str => {
                let text = self.text(value)?;
                let text = if c.alt { self.escaped(&text)? } else { text };
                self.append_field(&text, field)
            }
            ConvKind::Char => self.append_char(c, value, field),
            ConvKind::Binary => self.append_bytes(value, field),
            ConvKind::Mem | ConvKind::MemHex => {
                let memory = MemoryArg::new(c, value, precision);
                self.append_memory(&memory, c.kind == ConvKind::MemHex, field)
            }
            _ => self.append_number(c, value, field),
        }
    }

    /// A width; negative for padding on the right.
    pub(crate) fn width_of(&mut self, field: FieldSpec) -> Res<Src> {
        match field.width {
            SizeOperand::Known(n) => Ok(Src::Imm(if field.left { -n } else { n })),
            SizeOperand::At(v) => {
                let reg = self.unknown(v)?;
                for (cond, bound) in [(Cond::Sle, MAX_COUNT), (Cond::Sge, -MAX_COUNT)] {
                    self.asm.mov_unless(cond, reg, bound, bound);
                }
                if field.left {
                    let negative = self.asm.label();
                    self.asm.jump_if(Cond::Sle, reg, 0, negative);
                    self.asm.neg(reg);
                    self.asm.bind(negative);
                }
                self.forget_bounds(reg);
                Ok(reg.into())
            }
        }
    }

    /// Sends a number through a scratch word. This merges the verifier's paths. It also detaches
    /// the number from the register that it came from, about which the verifier would otherwise
    /// learn facts that multiply paths in the rest of the handler.
    pub(crate) fn forget_bounds(&mut self, reg: Reg) {
        let word = self.plan.scratch.tmp.fit::<i16>() + 56;
        self.asm.store(Size::DW, BLOCK, word, reg);
        self.asm.load(Size::DW, reg, BLOCK, word);
    }

    /// A copy of a number of which the verifier knows nothing (see [`HandlerCodegen::forget_bounds`]).
    pub(crate) fn unknown(&mut self, n: Val) -> Res<Reg> {
        let n = self.number_copy(n)?;
        self.forget_bounds(n);
        Ok(n)
    }

    /// Appends a string with width and precision.
    fn append_field(&mut self, text: &StrOperand, field: FieldSpec) -> Res {
        let size = text.width().cast_signed();
        let bytes = match field.precision {
            SizeOperand::Known(p @ 0..) => Src::Imm(size.min(p.saturating_add(1))),
            SizeOperand::Known(_) => Src::Imm(size),
            SizeOperand::At(v) => {
                // A negative precision is none; the size has space for the NUL.
                let [none, fits] = self.asm.labels();
                let bytes = self.unknown(v)?;
                self.asm.jump_if(Cond::Slt, bytes, 0, none);
                self.asm.jump_if(Cond::Sge, bytes, size, none);
                self.asm.add(bytes, 1);
                self.asm.jump(fits);
                self.asm.bind(none);
                self.asm.mov(bytes, size);
                self.asm.bind(fits);
                self.forget_bounds(bytes);
                // Always true; bounds the size for the verifier.
                self.asm.mov_unless(Cond::Le, bytes, size, size);
                bytes.into()
            }
        };
        let width = self.width_of(field)?;
        self.append_sized(text, bytes, width)
    }

    /// Appends a string of at most `size` bytes with its NUL, padded to a width.
    fn append_sized(&mut self, text: &StrOperand, size: Src, width: Src) -> Res {
        if self.outlined()
            && let Some(text) = self.text_number(text)
        {
            return self.append_global(text, size, width);
        }
        self.use_append_text()?;
        let text = self.text_arg(text);
        let args = [BLOCK.into(), text, size.into(), width.into()];
        self.asm.call_sub_with(APPEND_TEXT, &args);
        Ok(())
    }

    /// Starts a text for a slot of that width.
    pub(crate) fn begin_text(&mut self, width: u32) {
        if self.outlined() && width <= self.plan.max_string {
            // The subprogram is constant and always assembles.
            let made = self.begin_text_global(width);
            debug_assert!(made.is_ok(), "{made:?}");
            return;
        }
        self.fill_zero(self.plan.scratch.text, width);
        self.store(self.plan.scratch.text_pos, 0);
    }

    /// Copies the finished text to its slot.
    pub(crate) fn end_text(&mut self, off: u32, width: u32) {
        let text = StrOperand::Slot {
            off: self.plan.scratch.text,
            width,
        };
        if self.outlined() {
            let made = self.end_text_global(off, width);
            debug_assert!(made.is_ok(), "{made:?}");
            if matches!(made, Ok(true)) {
                return;
            }
        }
        // Cannot fail: the widths are equal.
        let _ = self.copy_text(off, width, &text);
        self.truncate(off, width);
    }

    pub(crate) fn use_append_text(&mut self) -> Res {
        self.pool.use_append_text(self.plan)
    }

    /// Appends a string.
    pub(crate) fn append_text(&mut self, text: &StrOperand) -> Res {
        self.append_sized(text, text.width().into(), Src::Imm(0))
    }

    /// Appends a constant.
    pub(crate) fn append_literal(&mut self, text: impl AsRef<[u8]>) -> Res {
        self.append_text(&StrOperand::literal(text))
    }

    /// `%c`. A NUL ends the text, as it ends a string in C.
    fn append_char(&mut self, c: &Conv, value: Val, field: FieldSpec) -> Res {
        let tmp = self.plan.scratch.tmp;
        let byte = StrOperand::Slot { off: tmp, width: 8 };
        let field = FieldSpec {
            precision: SizeOperand::Known(-1),
            ..field
        };
        let code = self.unknown(value)?;
        if c.alt {
            self.escaped_char(code, tmp);
            return self.append_field(&byte, field);
        }
        let [some, end] = self.asm.labels();
        self.asm.alu(AluOp::And, code, 255);
        self.store(tmp, code);
        self.asm.jump_if(Cond::Ne, code, 0, some);
        // The NUL takes one column, and with padding on the right it comes first.
        if let (SizeOperand::Known(2..) | SizeOperand::At(_), false) = (field.width, field.left) {
            let narrow = self.asm.label();
            self.use_append_text()?;
            let columns = self.width_of(field)?;
            let columns = self.asm.alu_of(AluOp::Add, columns, -1);
            self.asm.jump_if(Cond::Sle, columns, 0, narrow);
            let args = [BLOCK.into(), block_at(tmp), 8.into(), columns.into()];
            self.asm.call_sub_with(APPEND_TEXT, &args);
            self.asm.bind(narrow);
        }
        self.store(self.plan.scratch.text_pos, self.plan.max_string + 1);
        self.asm.jump(end);
        self.asm.bind(some);
        self.append_field(&byte, field)?;
        self.asm.bind(end);
        Ok(())
    }

    /// `%b`: raw bytes.
    fn append_bytes(&mut self, value: Val, field: FieldSpec) -> Res {
        self.pool.use_append_bytes(self.plan)?;
        let width = self.width_of(field)?;
        let precision = self.precision_of(field)?;
        let args = [self.number(value)?, precision, width].map(CallArg::from);
        self.asm.call_sub_with(APPEND_BYTES, &args);
        Ok(())
    }

    fn append_number(&mut self, c: &Conv, value: Val, field: FieldSpec) -> Res {
        let base = match c.kind {
            ConvKind::Octal => 8,
            ConvKind::Hex | ConvKind::HexUpper | ConvKind::Pointer => 16,
            _ => 10,
        };
        let signed = c.kind == ConvKind::Dec;
        let sign = |sign: u8| i32::from(sign) << flag::SIGN_SHIFT;
        let flags = [
            (signed, flag::SIGNED),
            (signed && c.plus, sign(b'+')),
            (signed && c.space && !c.plus, sign(b' ')),
            (c.zero && !c.left, flag::ZERO),
            (
                base != 10 && (c.alt || c.kind == ConvKind::Pointer),
                flag::MARK,
            ),
            (c.kind == ConvKind::HexUpper, flag::UPPER),
        ];
        let flags: i32 = flags.iter().filter(|f| f.0).map(|f| f.1).sum();
        self.pool.use_append_number(self.plan, base)?;
        let width = self.width_of(field)?;
        let precision = self.precision_of(field)?;
        let args = [precision, self.number(value)?, flags.into(), width].map(CallArg::from);
        self.asm.call_sub_with(append_number(base), &args);
        Ok(())
    }

    /// A precision; negative for none.
    fn precision_of(&mut self, field: FieldSpec) -> Res<Src> {
        match field.precision {
            SizeOperand::Known(n) => Ok(Src::Imm(n)),
            SizeOperand::At(v) => self.number(v),
        }
    }

    /// Builds a message that ends with the address in `err_aux`, in hexadecimal.
    pub(crate) fn build_message(&mut self, off: u32, width: u32, text: &[u8]) -> Res {
        self.write_text((off, width), |g| {
            g.append_literal(text)?;
            let address = g.block_word(g.plan.scratch.err_aux);
            g.append_value(address, 16, 0)
        })
    }

    /// Builds a message that starts with the number in `err_aux`.
    pub(crate) fn build_count(&mut self, off: u32, width: u32, text: &[u8]) -> Res {
        self.write_text((off, width), |g| {
            let count = g.block_word(g.plan.scratch.err_aux);
            g.append_value(count, 10, flag::SIGNED)?;
            g.append_literal(text)
        })
    }

    /// Appends a number in a base.
    pub(crate) fn append_value(&mut self, value: Reg, base: u32, flags: i32) -> Res {
        self.pool.use_append_number(self.plan, base)?;
        let args = [(-1).into(), value.into(), flags.into(), 0.into()];
        self.asm.call_sub_with(append_number(base), &args);
        Ok(())
    }

    /// Builds `syscall_N` for a number without a name.
    pub(crate) fn unnamed(&mut self, off: u32, width: u32) -> Res {
        self.write_text((off, width), |g| {
            g.append_literal("syscall_")?;
            let number = g.asm.word(R10, NR);
            g.append_value(number, 10, flag::SIGNED)
        })
    }
}
