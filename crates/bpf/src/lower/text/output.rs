//! Output records: a handler collects them in the CPU's output buffer and sends the buffer at its
//! end.

use spile_cast::Cast;
use spile_ebpf::isa::asm::CallArg;
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::insn::{AluOp, Cond, Reg, Size, Src};
use spile_ir::{FormatId, Hist, Stream, Ty, Val};
use spile_layout::{RecordKind, RecordShape, percpu, shared};

use super::fields::{self, OutputField, piece_size};
use crate::compiled::RING;
use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::operand::StrOperand;

/// Bytes of the header of a buffer in the ring.
const HEADER: i32 = 8;

impl HandlerCodegen<'_> {
    pub(crate) fn print(&mut self, stream: Stream, fmt: FormatId, args: &[Val]) -> Res {
        let format = self
            .program
            .formats
            .get(fmt.index())
            .ok_or("no such format")?;
        let memory = fields::of_args(format, args);
        for arg in args {
            self.ty(*arg)?;
        }
        let types = |a| self.ty(a).unwrap_or(Ty::Long);
        let shape = RecordShape::new(
            RecordKind::Print { stream, fmt },
            fields::field_types(self.program, fmt, args, types),
        );
        self.piece(shape, &mut |g, i| g.print_field(args[i], memory[i]))
    }

    /// Appends an output record, after sending a buffer without space for it.
    pub(crate) fn piece(
        &mut self,
        shape: RecordShape,
        field: &mut dyn FnMut(&mut Self, usize) -> Res<OutputField>,
    ) -> Res {
        let fields = shape.fields.clone();
        let words = shape.words;
        let record = self.pool.record(shape);
        self.piece_of((record.into(), words), &fields, field)
    }

    /// Appends an output record with this shape number, number of words and fields.
    pub(crate) fn piece_of(
        &mut self,
        (record, words): (Src, u32),
        fields: &[Ty],
        field: &mut dyn FnMut(&mut Self, usize) -> Res<OutputField>,
    ) -> Res {
        let (position, mut offset) = self.begin(record, piece_size(fields, words).cast_signed())?;
        // The address of the position, if it is known.
        let mut cursor = None;
        for (i, ty) in fields.iter().enumerate() {
            match (ty, field(self, i)?) {
                (Ty::Long, OutputField::Long(src)) => {
                    let to = *cursor.get_or_insert_with(|| self.cursor(position));
                    self.asm.store(Size::DW, to, offset, src);
                    offset += 8;
                }
                (Ty::Str(_), OutputField::Text(text)) => {
                    self.text_field(&text, position, offset)?;
                    (offset, cursor) = (0, None);
                }
                (Ty::Str(_), OutputField::Memory(memory)) => {
                    self.asm.add(position, i32::from(offset));
                    self.memory_field(&memory, position)?;
                    (offset, cursor) = (0, None);
                }
                _ => return Err("an argument of the wrong type".into()),
            }
            if offset > 30_000 {
                self.asm.add(position, i32::from(offset));
                (offset, cursor) = (0, None);
            }
        }
        self.asm.add(position, i32::from(offset));
        self.store(self.plan.scratch.out_pos, position);
        Ok(())
    }

    /// Writes a record's number. Sends the buffer first if a record of at most `capacity` bytes does
    /// not fit. The record continues at the returned position plus a displacement.
    fn begin(&mut self, record: Src, capacity: i32) -> Res<(Reg, i16)> {
        let pos = self.plan.scratch.out_pos;
        let size = self.plan.scratch.out_size.cast_signed();
        if capacity + HEADER > size {
            return Err("a piece of output that is larger than the buffer".into());
        }
        if let (Src::Imm(record), true) = (record, self.outlined()) {
            return Ok((self.begin_global(record.cast_unsigned(), capacity)?, 0));
        }
        let fits = self.asm.label();
        let position = self.block_word(pos);
        self.asm.jump_if(Cond::Le, position, size - capacity, fits);
        self.flush();
        self.asm.mov(position, 0);
        self.asm.bind(fits);
        self.piece_number(position, record);
        Ok((position, 8))
    }

    /// Writes a record's number at a position, or behind the header if nothing is there yet.
    pub(crate) fn piece_number(&mut self, position: Reg, record: Src) {
        self.asm.mov_unless(Cond::Ge, position, HEADER, HEADER);
        let to = self.cursor(position);
        self.asm.store(Size::DW, to, 0, record);
    }

    /// Appends the buckets of a histogram, which start `off` bytes behind an address.
    pub(crate) fn buckets_piece(&mut self, hist: Hist, statistic: Reg, off: u32) -> Res {
        let words = hist.buckets();
        let record = self.pool.record(RecordShape {
            what: RecordKind::Hist(hist),
            fields: Vec::new(),
            words,
        });
        let (position, offset) = self.begin(record.into(), piece_size(&[], words).cast_signed())?;
        self.asm.add(position, i32::from(offset));
        let to = self.cursor(position);
        self.asm.add(position, 8 * words);
        self.store(self.plan.scratch.out_pos, position);
        let from = self.asm.alu_of(AluOp::Add, statistic, off);
        self.copy_memory(to.into(), 8 * words, from.into());
        Ok(())
    }

    /// The address of a position in the output buffer.
    pub(crate) fn cursor(&mut self, position: Reg) -> Reg {
        let to = self.block_address(self.plan.scratch.out);
        self.asm.add(to, position);
        to
    }

    /// Appends a string `offset` bytes behind a position, as its length and bytes; moves the position behind
    /// them.
    fn text_field(&mut self, text: &StrOperand, position: Reg, offset: i16) -> Res {
        if offset != 0 {
            self.asm.add(position, i32::from(offset));
        }
        if let StrOperand::Const { bytes } = text {
            let to = self.cursor(position);
            self.asm.store(Size::DW, to, 0, bytes.len().fit::<i32>());
            if bytes.len() <= 128 {
                for i in 0..bytes.len().div_ceil(8).fit::<u32>() {
                    let src = self.text_word(text, i);
                    self.asm.store(Size::DW, to, 8 + 8 * i.fit::<i16>(), src);
                }
                let bytes = 8 + bytes.len().next_multiple_of(8).fit::<i32>();
                self.asm.add(position, bytes);
                return Ok(());
            }
        }
        if self.outlined() && self.put_global(text, position)? {
            return Ok(());
        }
        self.store(self.plan.scratch.tmp, position);
        let to = self.cursor(position);
        self.asm.add(to, 8);
        let args = [to.into(), text.width().into(), self.text_arg(text)];
        // With the NUL; at least 1, because the source is our own memory.
        let bytes = self.asm.call_with(Helper::ProbeReadKernelStr, &args);
        self.asm.add(bytes, -1);
        self.asm.alu(AluOp::And, bytes, 0x1fff);
        self.end_field(position, bytes);
        Ok(())
    }

    /// Writes the length of a field, whose bytes are there. `position` = the position behind the field; that
    /// of its beginning is in the first scratch word.
    pub(crate) fn end_field(&mut self, position: Reg, bytes: Reg) {
        let size = self.plan.scratch.out_size.cast_signed();
        self.load(position, self.plan.scratch.tmp);
        self.check_bound(position, size);
        let length = self.cursor(position);
        self.asm.store(Size::DW, length, 0, bytes);
        self.asm.add(bytes, 15);
        self.asm.alu(AluOp::And, bytes, -8);
        self.asm.add(position, bytes);
        self.check_bound(position, size);
    }

    /// Sends the output buffer.
    pub(crate) fn flush(&mut self) {
        if self.plan.outlining.is_large() {
            return self.flush_outlined();
        }
        let end = self.asm.label();
        let pos = self.plan.scratch.out_pos;
        let size = self.plan.scratch.out_size.cast_signed();
        let bytes = self.block_word(pos);
        self.asm.jump_if(Cond::Eq, bytes, 0, end);
        self.asm.jump_if(Cond::Gt, bytes, size, end);
        let buffer = self.block_address(self.plan.scratch.out);
        self.asm.store(Size::W, buffer, 0, self.handler.0);
        self.asm.store(Size::W, buffer, 4, bytes);
        let wake = self.shared_address(shared::WAKE);
        self.asm.load(Size::DW, wake, wake, 0);
        let args = [
            CallArg::Map(RING.into()),
            buffer.into(),
            bytes.into(),
            wake.into(),
        ];
        let result = self.asm.call_with(Helper::RingbufOutput, &args);
        self.store(pos, 0);
        self.asm.jump_if(Cond::Eq, result, 0, end);
        self.count(percpu::LOST_OUTPUT);
        self.asm.bind(end);
    }
}
