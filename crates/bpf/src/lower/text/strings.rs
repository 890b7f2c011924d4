//! Copies, comparisons and substrings.

use spile_cast::Cast;
use spile_ebpf::isa::asm::{Label, Section};
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::insn::{AluOp, Cond, Reg, Size, Src, Swap};
use spile_ir::{CmpOp, Reg as IrReg, TableId, Ty, Val};
use spile_layout::percpu;

use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::operand::StrOperand;
use crate::lower::pool::RUN;
use crate::lower::slots::{UNROLL, block_at};

impl HandlerCodegen<'_> {
    /// Word `i` of a string in its cheapest form.
    pub(crate) fn text_word(&mut self, text: &StrOperand, i: u32) -> Src {
        match text {
            StrOperand::Slot { off, width } if i * 8 < *width => {
                self.block_word(off + i * 8).into()
            }
            StrOperand::Slot { .. } => Src::Imm(0),
            StrOperand::Const { bytes } => {
                let word = StrOperand::const_word(bytes, i).cast_signed();
                self.asm.constant(word)
            }
        }
    }

    /// Zeroes bytes of the per-CPU area.
    pub(crate) fn fill_zero(&mut self, off: u32, bytes: u32) {
        if bytes <= UNROLL * 8 {
            let (base, disp) = self.block_operand(off, bytes);
            for i in 0..bytes / 8 {
                self.asm.store(Size::DW, base, disp + 8 * i.fit::<i16>(), 0);
            }
            return;
        }
        for start in (0..bytes).step_by(RUN as usize) {
            self.zero_memory(block_at(off + start), (bytes - start).min(RUN));
        }
    }

    /// Copies a string into a slot, truncated to its width.
    pub(crate) fn copy_text(&mut self, off: u32, width: u32, text: &StrOperand) -> Res {
        if matches!(text, StrOperand::Slot { off: from, .. } if *from == off) {
            return Ok(());
        }
        let bytes = width.min(text.width());
        if bytes <= UNROLL * 8 {
            let (to, disp) = self.block_operand(off, bytes);
            let from = match text {
                StrOperand::Slot { off, .. } => Some(self.block_operand(*off, bytes)),
                StrOperand::Const { .. } => None,
            };
            for i in 0..bytes / 8 {
                let src = match from {
                    Some((base, disp)) => self.asm.word(base, disp + 8 * i.fit::<i16>()).into(),
                    None => self.text_word(text, i),
                };
                self.asm.store(Size::DW, to, disp + 8 * i.fit::<i16>(), src);
            }
        } else {
            let from = self.text_arg(text);
            self.copy_memory(block_at(off), bytes, from);
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
    pub(crate) fn truncate(&mut self, off: u32, width: u32) {
        let fits = self.asm.label();
        let (base, disp) = self.block_operand(off + width - 1, 1);
        let last = self.asm.read(Size::B, base, disp);
        self.asm.jump_if(Cond::Eq, last, 0, fits);
        self.asm.store(Size::B, base, disp, 0);
        self.count(percpu::TRUNCATED);
        self.asm.bind(fits);
    }

    pub(crate) fn str_cmp(&mut self, dst: IrReg, op: CmpOp, a: Val, b: Val) -> Res {
        let (a, b) = (self.text(a)?, self.text(b)?);
        let [yes, no, end] = self.asm.labels();
        self.compare_texts(op, &a, &b, yes, no)?;
        let holds = self.asm.new_reg();
        self.asm.bind(no);
        self.asm.mov(holds, 0);
        self.asm.jump(end);
        self.asm.bind(yes);
        self.asm.mov(holds, 1);
        self.asm.bind(end);
        self.def_int(dst, holds)
    }

    /// Compares two strings and jumps to one of the labels in every case.
    pub(crate) fn compare_texts(
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
                let holds = self.asm.copy(i32::from(holds));
                self.asm.jump_if(Cond::Ne, holds, 0, yes);
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
            StrOperand::Const { bytes } => bytes.len().fit::<u32>() / 8 + 1,
            StrOperand::Slot { .. } => a.width().max(b.width()) / 8,
        };
        let (words, chunks) = self.words_in_location(a, b, words);
        let early = words > 4 || chunks > 0;
        let pair = [(); 2].map(|()| self.asm.new_reg());
        for i in 0..words {
            self.compare_word(op, (a, b), (i, differ), pair);
            if early && (i + 1 < words || chunks > 0) {
                // This is the word of both.
                self.asm.jump_if(Cond::Eq, pair[0], 0, equal);
            }
        }
        if chunks > 0 {
            let result = self.compare_rest((a, b), (words, chunks))?;
            self.asm.jump_if(Cond::Eq, result, 0, equal);
            match signed_order(op) {
                None => self.asm.jump(differ),
                Some(cond) => {
                    self.asm.jump_if(cond, result, 0, yes);
                    self.asm.jump(no);
                }
            }
        } else {
            self.asm.jump(equal);
        }
        if let Some(cond) = order(op) {
            // A byte-wise order is that of big-endian words.
            self.asm.bind(differ);
            for word in pair {
                self.asm.swap(Swap::Be, Size::DW, word);
            }
            self.asm.jump_if(cond, pair[0], pair[1], yes);
            self.asm.jump(no);
        }
        Ok(())
    }

    /// Compares word `i` of both strings; goes to a label with the words in `pair` if they differ. The
    /// first one is there in any case.
    fn compare_word(
        &mut self,
        op: CmpOp,
        (a, b): (&StrOperand, &StrOperand),
        (i, differ): (u32, Label),
        pair: [Reg; 2],
    ) {
        let x = self.text_word(a, i);
        self.asm.mov(pair[0], x);
        let mut y = self.text_word(b, i);
        if order(op).is_some() {
            self.asm.mov(pair[1], y);
            y = pair[1].into();
        }
        self.asm.jump_if(Cond::Ne, pair[0], y, differ);
    }

    /// The length of a string.
    #[must_use]
    pub(crate) fn strlen(&mut self, text: &StrOperand) -> Reg {
        match text {
            StrOperand::Const { bytes } => self.asm.copy(bytes.len().fit::<i32>()),
            StrOperand::Slot { width, .. } => {
                // The copying helper returns the length, and is faster than a loop here.
                let to = block_at(self.plan.scratch.text + 3 * self.plan.max_string);
                let args = [to, (*width).into(), self.text_arg(text)];
                let bytes = self.asm.call_with(Helper::ProbeReadKernelStr, &args);
                self.asm.add(bytes, -1);
                bytes
            }
        }
    }

    pub(crate) fn table_get(&mut self, dst: IrReg, table: TableId, idx: Val) -> Res {
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
        let rows = table_ref.entries.len().fit::<u32>();
        let entries = table_ref.entries.iter().map(|e| &**e);
        let base = self.pool.table(table.0, stride, entries);
        let row = self.number_copy(idx)?;
        self.table_row(row, (off, width), base, stride, rows)
    }

    /// Copies a row of a table in `.rodata` to a slot; "" if there is no such row.
    pub(crate) fn table_row(
        &mut self,
        row: Reg,
        (off, width): (u32, u32),
        base: u32,
        stride: u32,
        rows: u32,
    ) -> Res {
        let [none, end] = self.asm.labels();
        if rows > 0 {
            self.asm.jump_if(Cond::Ge, row, rows, none);
            self.asm.alu(AluOp::Mul, row, stride);
            let from = self.asm.new_reg();
            self.asm.ld_data(from, Section::Rodata, base);
            self.asm.add(from, row);
            self.fill_from(off, width, (from, stride));
            self.asm.jump(end);
        }
        self.asm.bind(none);
        self.fill_zero(off, width);
        self.asm.bind(end);
        Ok(())
    }

    /// `dst` = bytes start..start+len of a string, limited to its end.
    pub(crate) fn substr(&mut self, dst: IrReg, s: Val, start: Val, len: Val) -> Res {
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
        let whole = self.strlen(&text);
        self.fill_zero(off, width);
        let (first, bytes) = (self.number_copy(start)?, self.number_copy(len)?);
        let left = self.asm.copy(whole);
        self.substr_range([first, bytes, left], text.width(), width, end);
        let from = self.text_arg(&text);
        let from = self.asm.address_of(&from);
        self.asm.add(from, first);
        let args = [block_at(off), bytes.into(), from.into()];
        self.asm.call_with(Helper::ProbeReadKernel, &args);
        self.asm.bind(end);
        Ok(())
    }

    /// Computes the number of bytes > 0 of a substring, from its first byte, its length and the string's
    /// length, which it changes. All is bounded for the verifier; goes to `none` if the range is empty.
    fn substr_range(
        &mut self,
        [first, bytes, left]: [Reg; 3],
        text_width: u32,
        width: u32,
        none: Label,
    ) {
        let asm = &mut *self.asm;
        asm.jump_if(Cond::Sle, bytes, 0, none);
        asm.jump_if(Cond::Slt, first, 0, none);
        asm.jump_if(Cond::Sge, first, left, none);
        asm.jump_if(Cond::Ge, first, text_width, none);
        asm.alu(AluOp::Sub, left, first);
        asm.mov_unless(Cond::Sle, bytes, left, left);
        self.truncate_length(bytes, width);
        self.asm.jump_if(Cond::Sle, bytes, 0, none);
    }

    /// Limits the length of a text to what fits in `width` bytes, and counts a truncation.
    pub(crate) fn truncate_length(&mut self, length: Reg, width: u32) {
        let fits = self.asm.label();
        self.asm.jump_if(Cond::Sle, length, width - 1, fits);
        self.asm.mov(length, width - 1);
        self.count(percpu::TRUNCATED);
        self.asm.bind(fits);
    }

    /// `dst` = byte of a string at a position, 0 if it is out of range.
    pub(crate) fn stringat(&mut self, dst: IrReg, s: Val, pos: Val) -> Res {
        let text = self.text(s)?;
        let end = self.asm.label();
        let (index, byte) = (self.number_copy(pos)?, self.asm.copy(0));
        self.asm.jump_if(Cond::Ge, index, text.width(), end);
        let text = self.text_arg(&text);
        let from = self.asm.address_of(&text);
        self.asm.add(from, index);
        self.asm.load(Size::B, byte, from, 0);
        self.asm.bind(end);
        self.def_int(dst, byte)
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
