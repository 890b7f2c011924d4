//! Copies, comparisons and substrings.

use spile_ir::{CmpOp, Reg as IrReg, TableId, Ty, Val};

use crate::isa::asm::{Label, Section};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Reg, Size, Src, Swap};
use crate::layout::percpu;
use crate::lower::pool::RUN;
use crate::lower::{HandlerCodegen, Res, StrOperand, TMP, UNROLL};

impl HandlerCodegen<'_> {
    /// `reg` = address of a string.
    pub(in crate::lower) fn text_addr(&mut self, reg: Reg, text: &StrOperand) {
        match text {
            StrOperand::Slot { off, .. } => self.block_addr(reg, *off),
            StrOperand::Const { bytes } => {
                let off = self.pool.constant(bytes);
                self.asm.ld_data(reg, Section::Rodata, off);
            }
        }
    }

    /// Word `i` of a string in its cheapest form: an immediate, or in `reg`.
    pub(in crate::lower) fn text_word(&mut self, reg: Reg, text: &StrOperand, i: u32) -> Src {
        match text {
            StrOperand::Slot { off, width } if i * 8 < *width => {
                self.load(reg, off + i * 8);
                Src::Reg(reg)
            }
            StrOperand::Slot { .. } => Src::Imm(0),
            StrOperand::Const { bytes } => {
                let word = StrOperand::const_word(bytes, i) as i64;
                match i32::try_from(word) {
                    Ok(n) => Src::Imm(n),
                    Err(_) => {
                        self.asm.imm(reg, word);
                        Src::Reg(reg)
                    }
                }
            }
        }
    }

    /// Zeroes bytes of the CPU's block. Clobbers r0 to r5 if there are many.
    pub(in crate::lower) fn fill_zero(&mut self, off: u32, bytes: u32) {
        if bytes <= UNROLL * 8 {
            let (base, disp) = self.block_operand(R2, off, bytes);
            for i in 0..bytes / 8 {
                self.asm.store(Size::DW, base, disp + 8 * i as i16, 0);
            }
            return;
        }
        let zeros = self.pool.byte_run(0);
        for at in (0..bytes).step_by(RUN as usize) {
            self.block_addr(R1, off + at);
            self.asm.mov(R2, (bytes - at).min(RUN) as i32);
            self.asm.ld_data(R3, Section::Rodata, zeros);
            self.asm.call(Helper::ProbeReadKernel);
        }
    }

    /// Copies a string into a slot, truncated to its width. Clobbers r0 to r5.
    pub(in crate::lower) fn copy_text(&mut self, off: u32, width: u32, text: &StrOperand) -> Res {
        if matches!(text, StrOperand::Slot { off: from, .. } if *from == off) {
            return Ok(());
        }
        let bytes = width.min(text.width());
        if bytes <= UNROLL * 8 {
            let (to, disp) = self.block_operand(R2, off, bytes);
            let from = match text {
                StrOperand::Slot { off, .. } => Some(self.block_operand(R3, *off, bytes)),
                StrOperand::Const { .. } => None,
            };
            for i in 0..bytes / 8 {
                let src = match from {
                    Some((base, at)) => {
                        self.asm.load(Size::DW, R1, base, at + 8 * i as i16);
                        Src::Reg(R1)
                    }
                    None => self.text_word(R1, text, i),
                };
                self.asm.store(Size::DW, to, disp + 8 * i as i16, src);
            }
        } else {
            self.block_addr(R1, off);
            self.asm.mov(R2, bytes as i32);
            self.text_addr(R3, text);
            self.asm.call(Helper::ProbeReadKernel);
        }
        if text.width() > width {
            self.truncate(off, width);
        }
        if width > bytes {
            self.fill_zero(off + bytes, width - bytes);
        }
        Ok(())
    }

    /// Terminates a string that fills its slot to the last byte, and counts the truncation.
    pub(in crate::lower) fn truncate(&mut self, off: u32, width: u32) {
        let fits = self.asm.label();
        let (base, disp) = self.block_operand(R2, off + width - 1, 1);
        self.asm.load(Size::B, R1, base, disp);
        self.asm.jump_if(Cond::Eq, R1, 0, fits);
        self.asm.store(Size::B, base, disp, 0);
        self.count(percpu::TRUNCATED);
        self.asm.bind(fits);
    }

    pub(in crate::lower) fn str_cmp(&mut self, dst: IrReg, op: CmpOp, a: Val, b: Val) -> Res {
        let (a, b) = (self.text(a)?, self.text(b)?);
        let (yes, no, end) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.compare_texts(op, &a, &b, yes, no)?;
        self.asm.bind(no);
        self.asm.mov(R0, 0);
        self.asm.jump(end);
        self.asm.bind(yes);
        self.asm.mov(R0, 1);
        self.asm.bind(end);
        self.def_int(dst, R0)
    }

    /// Compares two strings and jumps to one of the labels in every case.
    pub(in crate::lower) fn compare_texts(
        &mut self,
        op: CmpOp,
        a: &StrOperand,
        b: &StrOperand,
        yes: Label,
        no: Label,
    ) -> Res {
        let (a, b, op) = match (a, b) {
            (StrOperand::Const { bytes: x }, StrOperand::Const { bytes: y }) => {
                let holds = match op {
                    CmpOp::Eq => x == y,
                    CmpOp::Ne => x != y,
                    CmpOp::Lt => x < y,
                    CmpOp::Le => x <= y,
                    CmpOp::Gt => x > y,
                    CmpOp::Ge => x >= y,
                };
                // Both targets must stay reachable for the verifier.
                self.asm.mov(R0, i32::from(holds));
                self.asm.jump_if(Cond::Ne, R0, 0, yes);
                self.asm.jump(no);
                return Ok(());
            }
            (StrOperand::Const { .. }, _) => (b, a, swapped(op)),
            _ => (a, b, op),
        };
        let (equal, differ) = match op {
            CmpOp::Eq => (yes, no),
            CmpOp::Ne => (no, yes),
            CmpOp::Le | CmpOp::Ge => (yes, self.asm.label()),
            CmpOp::Lt | CmpOp::Gt => (no, self.asm.label()),
        };
        let words = match b {
            // The comparison is decided by the word in which the constant ends at the latest.
            StrOperand::Const { bytes } => bytes.len() as u32 / 8 + 1,
            StrOperand::Slot { .. } => a.width().max(b.width()) / 8,
        };
        let (words, chunks) = self.words_in_place(a, b, words);
        let early = words > 4 || chunks > 0;
        for i in 0..words {
            self.compare_word(op, (a, b), (i, differ));
            if early && (i + 1 < words || chunks > 0) {
                // r1 is the word of both.
                self.asm.jump_if(Cond::Eq, R1, 0, equal);
            }
        }
        if chunks > 0 {
            self.compare_rest((a, b), (words, chunks))?;
            self.asm.jump_if(Cond::Eq, R0, 0, equal);
            match signed_order(op) {
                None => self.asm.jump(differ),
                Some(cond) => {
                    self.asm.jump_if(cond, R0, 0, yes);
                    self.asm.jump(no);
                }
            }
        } else {
            self.asm.jump(equal);
        }
        if let Some(cond) = order(op) {
            // A byte-wise order is that of big-endian words.
            self.asm.bind(differ);
            self.asm.swap(Swap::Be, Size::DW, R1);
            self.asm.swap(Swap::Be, Size::DW, R2);
            self.asm.jump_if(cond, R1, R2, yes);
            self.asm.jump(no);
        }
        Ok(())
    }

    /// `r1` = word `i` of both strings; goes to a label with the words in r1 and r2 if they differ.
    fn compare_word(
        &mut self,
        op: CmpOp,
        (a, b): (&StrOperand, &StrOperand),
        (i, differ): (u32, Label),
    ) {
        if let Src::Imm(n) = self.text_word(R1, a, i) {
            self.asm.mov(R1, n);
        }
        let y = match (self.text_word(R2, b, i), order(op)) {
            (y, None) => y,
            (Src::Imm(n), _) => {
                self.asm.mov(R2, n);
                Src::Reg(R2)
            }
            (y, _) => y,
        };
        self.asm.jump_if(Cond::Ne, R1, y, differ);
    }

    /// `r0` = length of a string. Clobbers r0 to r5.
    pub(in crate::lower) fn strlen(&mut self, text: &StrOperand) {
        match text {
            StrOperand::Const { bytes } => self.asm.mov(R0, bytes.len() as i32),
            StrOperand::Slot { width, .. } => {
                // The copying helper returns the length, and is faster than a loop here.
                let to = self.plan.scratch.text + 3 * self.plan.max_string;
                self.block_addr(R1, to);
                self.asm.mov(R2, *width as i32);
                self.text_addr(R3, text);
                self.asm.call(Helper::ProbeReadKernelStr);
                self.asm.add(R0, -1);
            }
        }
    }

    pub(in crate::lower) fn table_get(&mut self, dst: IrReg, table: TableId, idx: Val) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        let table_ref = self
            .program
            .tables
            .get(table.index())
            .ok_or("no such table")?;
        let longest = table_ref.entries.iter().map(|e| e.len()).max().unwrap_or(0);
        let stride = Ty::str_for_len(longest).size();
        let rows = table_ref.entries.len() as u32;
        let entries = table_ref.entries.iter().map(|e| &**e);
        let base = self.pool.table(table.0, stride, entries);
        self.use_in(idx, R1)?;
        self.table_row(off, width, base, stride, rows)
    }

    /// Copies row `r1` of a table in `.rodata` to a slot; "" if there is no such row.
    pub(in crate::lower) fn table_row(
        &mut self,
        off: u32,
        width: u32,
        base: u32,
        stride: u32,
        rows: u32,
    ) -> Res {
        let (none, end) = (self.asm.label(), self.asm.label());
        if rows > 0 {
            self.asm.jump_if(Cond::Ge, R1, rows as i32, none);
            self.asm.alu(AluOp::Mul, R1, stride as i32);
            self.asm.ld_data(R3, Section::Rodata, base);
            self.asm.add(R3, R1);
            self.fill_from_r3(off, width, stride);
            self.asm.jump(end);
        }
        self.asm.bind(none);
        self.fill_zero(off, width);
        self.asm.bind(end);
        Ok(())
    }

    /// `dst` = bytes start..start+len of a string, limited to its end.
    pub(in crate::lower) fn substr(&mut self, dst: IrReg, s: Val, start: Val, len: Val) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        let mut text = self.text(s)?;
        if matches!(text, StrOperand::Slot { off: from, .. } if from == off) {
            // `dst` can be the source: the slot is cleared below.
            let (off, width) = (self.plan.scratch.text, text.width());
            self.copy_text(off, width, &text)?;
            text = StrOperand::Slot { off, width };
        }
        let end = self.asm.label();
        self.strlen(&text);
        self.asm.store(Size::DW, R10, TMP[0], R0);
        self.fill_zero(off, width);
        self.use_in(start, R1)?;
        self.use_in(len, R2)?;
        self.asm.load(Size::DW, R0, R10, TMP[0]);
        self.substr_range(text.width(), width, end);
        // r1 start, r2 length: both in bounds.
        self.text_addr(R3, &text);
        self.asm.add(R3, R1);
        self.block_addr(R1, off);
        self.asm.call(Helper::ProbeReadKernel);
        self.asm.bind(end);
        Ok(())
    }

    /// Takes start r1, length r2 and string length r0. Computes the first byte r1 and the number of
    /// bytes r2 > 0, bounded for the verifier; goes to `none` if the range is empty.
    fn substr_range(&mut self, text_width: u32, width: u32, none: Label) {
        let asm = &mut *self.asm;
        let (short, fits) = (asm.label(), asm.label());
        asm.jump_if(Cond::Sle, R2, 0, none);
        asm.jump_if(Cond::Slt, R1, 0, none);
        asm.jump_if(Cond::Sge, R1, R0, none);
        asm.jump_if(Cond::Ge, R1, text_width as i32, none);
        asm.alu(AluOp::Sub, R0, R1);
        asm.jump_if(Cond::Sle, R2, R0, short);
        asm.mov(R2, R0);
        asm.bind(short);
        asm.jump_if(Cond::Sle, R2, width as i32 - 1, fits);
        asm.mov(R2, width as i32 - 1);
        self.count_keeping_r1();
        let asm = &mut *self.asm;
        asm.bind(fits);
        asm.jump_if(Cond::Sle, R2, 0, none);
    }

    /// Counts a truncated string, and preserves r1. Clobbers r3.
    fn count_keeping_r1(&mut self) {
        self.asm.load(Size::DW, R3, R7, percpu::TRUNCATED as i16);
        self.asm.add(R3, 1);
        self.asm.store(Size::DW, R7, percpu::TRUNCATED as i16, R3);
    }

    /// `dst` = byte of a string at a position, 0 if it is out of range.
    pub(in crate::lower) fn stringat(&mut self, dst: IrReg, s: Val, pos: Val) -> Res {
        let text = self.text(s)?;
        let end = self.asm.label();
        self.use_in(pos, R1)?;
        self.asm.mov(R0, 0);
        self.asm.jump_if(Cond::Ge, R1, text.width() as i32, end);
        self.text_addr(R2, &text);
        self.asm.add(R2, R1);
        self.asm.load(Size::B, R0, R2, 0);
        self.asm.bind(end);
        self.def_int(dst, R0)
    }
}

/// The condition of words that differ; `None` for a test of equality.
fn order(op: CmpOp) -> Option<Cond> {
    match op {
        CmpOp::Eq | CmpOp::Ne => None,
        CmpOp::Lt | CmpOp::Le => Some(Cond::Lt),
        CmpOp::Gt | CmpOp::Ge => Some(Cond::Gt),
    }
}

/// The same for an order that is -1 or 1.
fn signed_order(op: CmpOp) -> Option<Cond> {
    order(op).map(|cond| match cond {
        Cond::Lt => Cond::Slt,
        _ => Cond::Sgt,
    })
}

/// The comparison for exchanged operands.
fn swapped(op: CmpOp) -> CmpOp {
    match op {
        CmpOp::Eq | CmpOp::Ne => op,
        CmpOp::Lt => CmpOp::Gt,
        CmpOp::Le => CmpOp::Ge,
        CmpOp::Gt => CmpOp::Lt,
        CmpOp::Ge => CmpOp::Le,
    }
}
