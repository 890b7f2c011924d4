//! Output records: a handler collects them in the CPU's output buffer and sends the buffer at its
//! end.

use spile_ir::{FormatId, Hist, Stream, Ty, Val};

use super::fields::{self, OutputField, piece_size};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size, Src};
use crate::layout::{RING, RecordKind, RecordShape, percpu, shared};
use crate::lower::{HandlerCodegen, Res, StrOperand};
use crate::plan::outlining::Op;

/// Bytes of the header of a buffer in the ring.
const HEADER: i32 = 8;

impl HandlerCodegen<'_> {
    pub(in crate::lower) fn print(&mut self, stream: Stream, fmt: FormatId, args: &[Val]) -> Res {
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
        let shape = RecordShape {
            what: RecordKind::Print { stream, fmt },
            fields: fields::field_types(self.program, fmt, args, types),
            words: 0,
        };
        self.piece(shape, &mut |g, i| g.print_field(args[i], memory[i]))
    }

    /// Appends an output record, after sending a buffer without room for it.
    pub(in crate::lower) fn piece(
        &mut self,
        shape: RecordShape,
        field: &mut dyn FnMut(&mut Self, usize) -> Res<OutputField>,
    ) -> Res {
        let fields = shape.fields.clone();
        let words = shape.words;
        let record = self.pool.record(shape);
        self.piece_of((Src::Imm(record as i32), words), &fields, field)
    }

    /// Appends an output record with this shape number, number of words and fields.
    pub(in crate::lower) fn piece_of(
        &mut self,
        (record, words): (Src, u32),
        fields: &[Ty],
        field: &mut dyn FnMut(&mut Self, usize) -> Res<OutputField>,
    ) -> Res {
        let mut at = self.begin(record, piece_size(fields, words) as i32)?;
        let pos = self.plan.scratch.out_pos;
        // Whether r5 is the address of the position.
        let mut here = false;
        for (i, ty) in fields.iter().enumerate() {
            match (ty, field(self, i)?) {
                (Ty::Long, OutputField::Long(src)) => {
                    if !std::mem::replace(&mut here, true) {
                        self.cursor();
                    }
                    self.asm.store(Size::DW, R5, at, src);
                    at += 8;
                }
                (Ty::Str(_), OutputField::Text(text)) => {
                    self.text_field(&text, at)?;
                    (at, here) = (0, false);
                }
                (Ty::Str(_), OutputField::Memory(memory)) => {
                    self.asm.add(R4, i32::from(at));
                    self.memory_field(&memory)?;
                    (at, here) = (0, false);
                }
                _ => return Err("an argument of the wrong type".into()),
            }
            if at > 30_000 {
                self.asm.add(R4, i32::from(at));
                (at, here) = (0, false);
            }
        }
        self.asm.add(R4, i32::from(at));
        let (base, disp) = self.block_operand(R5, pos, 8);
        self.asm.store(Size::DW, base, disp, R4);
        Ok(())
    }

    /// Writes a record's number. Sends the buffer first if a record of at most `room` bytes does
    /// not fit. The record continues at position r4 plus the returned displacement.
    fn begin(&mut self, record: Src, room: i32) -> Res<i16> {
        let pos = self.plan.scratch.out_pos;
        let size = self.plan.scratch.out_size as i32;
        if room + HEADER > size {
            return Err("a piece of output that is larger than the buffer".into());
        }
        if let (Src::Imm(record), true) = (record, self.outlined(Op::Record)) {
            self.begin_global(record as u32, room)?;
            return Ok(0);
        }
        let fits = self.asm.label();
        self.load(R4, pos);
        self.asm.jump_if(Cond::Le, R4, size - room, fits);
        self.flush();
        self.asm.mov(R4, 0);
        self.asm.bind(fits);
        self.piece_number(record);
        Ok(8)
    }

    /// Writes a record's number at position r4, aligned; r5 is its address.
    pub(in crate::lower) fn piece_number(&mut self, record: Src) {
        let started = self.asm.label();
        self.asm.jump_if(Cond::Ge, R4, HEADER, started);
        self.asm.mov(R4, HEADER);
        self.asm.bind(started);
        self.cursor();
        self.asm.store(Size::DW, R5, 0, record);
    }

    /// Appends the buckets of a histogram, which start `off` bytes behind the address in stack slot
    /// `slot`.
    pub(in crate::lower) fn buckets_piece(&mut self, hist: Hist, slot: i16, off: u32) -> Res {
        let words = hist.buckets();
        let record = self.pool.record(RecordShape {
            what: RecordKind::Hist(hist),
            fields: Vec::new(),
            words,
        });
        let at = self.begin(Src::Imm(record as i32), piece_size(&[], words) as i32)?;
        let pos = self.plan.scratch.out_pos;
        self.asm.add(R4, i32::from(at));
        self.cursor();
        // Computes the position behind the buckets first: r4 does not survive the call.
        self.asm.mov(R1, R5);
        self.asm.add(R4, 8 * words as i32);
        self.store(pos, R4);
        self.asm.mov(R2, 8 * words as i32);
        self.asm.load(Size::DW, R3, R10, slot);
        self.asm.add(R3, off as i32);
        self.asm.call(Helper::ProbeReadKernel);
        Ok(())
    }

    /// `r5` = address of position r4 in the output buffer.
    pub(in crate::lower) fn cursor(&mut self) {
        self.block_addr(R5, self.plan.scratch.out);
        self.asm.add(R5, R4);
    }

    /// Appends a string at r4 + at, as its length and bytes; moves r4 behind them.
    fn text_field(&mut self, text: &StrOperand, at: i16) -> Res {
        let tmp = self.plan.scratch.tmp;
        let size = self.plan.scratch.out_size as i32;
        if at != 0 {
            self.asm.add(R4, i32::from(at));
        }
        if let StrOperand::Const { bytes } = text {
            self.cursor();
            self.asm.store(Size::DW, R5, 0, bytes.len() as i32);
            if bytes.len() <= 128 {
                for i in 0..bytes.len().div_ceil(8) as u32 {
                    let src = self.text_word(R1, text, i);
                    self.asm.store(Size::DW, R5, 8 + 8 * i as i16, src);
                }
                self.asm.add(R4, 8 + bytes.len().next_multiple_of(8) as i32);
                return Ok(());
            }
        }
        if self.outlined(Op::Field) && self.put_global(text)? {
            return Ok(());
        }
        let (base, disp) = self.block_operand(R5, tmp, 8);
        self.asm.store(Size::DW, base, disp, R4);
        self.cursor();
        self.asm.mov(R1, R5);
        self.asm.add(R1, 8);
        self.asm.mov(R2, text.width() as i32);
        self.text_addr(R3, text);
        self.asm.call(Helper::ProbeReadKernelStr);
        // r0: bytes with the NUL; at least 1, because the source is our own memory.
        self.asm.add(R0, -1);
        self.asm.alu(AluOp::And, R0, 0x1fff);
        self.load(R4, tmp);
        // Always true; bounds the length for the verifier.
        let bounded = self.asm.label();
        self.asm.jump_if(Cond::Le, R4, size, bounded);
        self.asm.mov(R4, 0);
        self.asm.bind(bounded);
        self.cursor();
        self.asm.store(Size::DW, R5, 0, R0);
        self.asm.add(R0, 15);
        self.asm.alu(AluOp::And, R0, -8);
        self.asm.add(R4, R0);
        let inside = self.asm.label();
        self.asm.jump_if(Cond::Le, R4, size, inside);
        self.asm.mov(R4, 0);
        self.asm.bind(inside);
        Ok(())
    }

    /// Sends the output buffer. Clobbers r0 to r5.
    pub(in crate::lower) fn flush(&mut self) {
        if self.plan.outlining.shares(Op::Flush, None) {
            return self.flush_outlined();
        }
        let end = self.asm.label();
        let pos = self.plan.scratch.out_pos;
        let size = self.plan.scratch.out_size as i32;
        self.load(R3, pos);
        self.asm.jump_if(Cond::Eq, R3, 0, end);
        self.asm.jump_if(Cond::Gt, R3, size, end);
        self.block_addr(R2, self.plan.scratch.out);
        self.asm.store(Size::W, R2, 0, self.handler.0 as i32);
        self.asm.store(Size::W, R2, 4, R3);
        self.shared(R4, shared::WAKE);
        self.asm.load(Size::DW, R4, R4, 0);
        self.asm.ld_map(R1, RING);
        self.asm.call(Helper::RingbufOutput);
        self.store(pos, 0);
        self.asm.jump_if(Cond::Eq, R0, 0, end);
        self.count(percpu::LOST_OUTPUT);
        self.asm.bind(end);
    }
}
