//! Copies of user stacks for the controller. When a handler meets the first frame in a library that
//! was just loaded, the library has no unwind rows yet, and no handler can wait for them. The rest
//! of the stack therefore goes to the controller, with the registers. The controller has the file's
//! tables, and continues the walk in the copy.

use spile_ir::Ty;

use super::walk_gen::{WalkGen, at};
use crate::isa::asm::Function;
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size};
use crate::layout::{
    self, COPIED, COPIES_MAP, COPY_BYTES, COPY_FIELDS, COPY_HEAD, COPY_MAPPED, COPY_MAPPING,
    COPY_MAPPINGS, COPY_PAGES, RING, RecordKind, RecordShape, percpu, shared,
};
use crate::lower::Res;

const PAGE: i32 = layout::PAGE as i32;
const HEAD: i32 = COPY_HEAD as i32;
const MAPPED: i32 = COPY_MAPPED as i32;
const MAPPING: i32 = COPY_MAPPING as i32;
/// The largest number of mappings and gaps of a process to look at.
const LOOKED_AT: i32 = 400;
/// The kernel's `VM_EXEC`.
const EXECUTABLE: i32 = 4;
/// Flag of `bpf_ringbuf_query`: number of bytes that wait in the ring buffer.
const AVAIL_DATA: i32 = 0;
/// A copy is made only if fewer bytes wait, so that copies do not displace output.
const WAITING: i32 = 512 << 10;
/// Position of the processor's number within the copy's number.
const CPU_BITS: i32 = 10;

/// The shape of a copy's record.
pub(super) fn shape() -> RecordShape {
    RecordShape {
        what: RecordKind::Copy,
        fields: vec![Ty::Long; COPY_FIELDS],
        words: ((COPY_BYTES as i32 - HEAD) / 8) as u32,
    }
}

impl WalkGen<'_> {
    /// `user_copy()`: sends the rest of the stack, and notes the copy as the next frame. Returns 1
    /// on success.
    pub(super) fn user_copy(mut self, shape: u32) -> Res<Function> {
        let [none, read, done] = std::array::from_fn(|_| self.p.asm.label());
        let most = self.room.most;
        self.asm().ld_map(R1, RING);
        self.asm().mov(R2, AVAIL_DATA);
        self.asm().call(Helper::RingbufQuery);
        self.asm().jump_if(Cond::Gt, R0, WAITING, none);
        self.load_field(R1, at::N);
        self.asm().jump_if(Cond::Ge, R1, most as i32, none);
        self.asm().call(Helper::GetSmpProcessorId);
        self.asm().mov(R9, R0);
        self.store_field(at::MID, R9);
        self.element(COPIES_MAP, at::MID, none);
        self.asm().mov(R7, R0);
        self.asm().call(Helper::KtimeGetNs);
        self.asm().alu(AluOp::Lsh, R0, CPU_BITS);
        self.asm().alu(AluOp::Or, R9, R0);
        let field = |n: i16| 16 + 8 * n;
        self.asm().store(Size::W, R7, 0, 0);
        self.asm().store(Size::W, R7, 4, COPY_BYTES as i32);
        self.asm().store(Size::DW, R7, 8, shape as i32);
        self.asm().store(Size::DW, R7, field(0), R9);
        let fields = [at::TGID, at::IP, at::ADDR, at::SP, at::BP];
        for (i, from) in fields.into_iter().enumerate() {
            self.load_field(R1, from);
            self.asm().store(Size::DW, R7, field(i as i16 + 1), R1);
        }
        self.load_field(R8, at::SP);
        self.asm().alu(AluOp::And, R8, -PAGE);
        self.asm().store(Size::DW, R7, field(6), 0);
        for page in 0..COPY_PAGES as i32 {
            self.asm().mov(R1, R7);
            self.asm().add(R1, HEAD + page * PAGE);
            self.asm().mov(R2, PAGE);
            self.asm().mov(R3, R8);
            self.asm().call(Helper::ProbeReadUser);
            self.asm().jump_if(Cond::Ne, R0, 0, read);
            self.asm().store(Size::DW, R7, field(6), page + 1);
            self.asm().add(R8, PAGE);
        }
        self.asm().bind(read);
        self.code_mappings();
        self.load_field(R1, at::MAPPINGS);
        self.asm().store(Size::DW, R7, field(7), R1);
        self.asm().ld_map(R1, RING);
        self.asm().mov(R2, R7);
        self.asm().mov(R3, COPY_BYTES as i32);
        self.asm().mov(R4, shared::FORCE_WAKEUP);
        self.asm().call(Helper::RingbufOutput);
        self.asm().jump_if(Cond::Eq, R0, 0, done);
        self.count(percpu::LOST_OUTPUT);
        self.asm().jump(none);
        self.asm().bind(done);
        self.load_field(R1, at::N);
        self.asm().jump_if(Cond::Ge, R1, most as i32, none);
        self.asm().mov(R2, R1);
        self.asm().add(R2, 1);
        self.store_field(at::N, R2);
        self.asm().alu(AluOp::Lsh, R1, 3);
        self.asm().add(R1, R6);
        let (frames, base) = (self.room.frames as i16, self.base);
        self.asm().store(Size::DW, R1, frames, 0);
        self.asm()
            .store(Size::DW, R1, base + at::FILES as i16, COPIED as i32);
        self.asm()
            .store(Size::DW, R1, base + at::offsets(most) as i16, R9);
        self.finish_with_flag_at(none)
    }

    /// Appends the executable mappings to the copy at r7. Overwrites the walk's facts about the
    /// frame's mapping.
    fn code_mappings(&mut self) {
        let [again, next, end] = std::array::from_fn(|_| self.p.asm.label());
        for field in [at::MAPPINGS, at::NEXT] {
            self.store_field(field, 0);
        }
        self.asm().mov(R8, LOOKED_AT);
        self.asm().bind(again);
        self.load_field(R1, at::NEXT);
        self.store_field(at::ADDR, R1);
        self.asm().call_sub("user_map");
        self.load_field(R1, at::FLAGS);
        self.asm().alu(AluOp::And, R1, EXECUTABLE);
        self.asm().jump_if(Cond::Eq, R1, 0, next);
        self.load_field(R1, at::FILE);
        self.asm().jump_if(Cond::Eq, R1, 0, next);
        self.load_field(R1, at::MAPPINGS);
        self.asm().jump_if(Cond::Ge, R1, COPY_MAPPINGS as i32, end);
        self.asm().mov(R2, R1);
        self.asm().add(R2, 1);
        self.store_field(at::MAPPINGS, R2);
        self.asm()
            .alu(AluOp::Lsh, R1, MAPPING.trailing_zeros() as i32);
        self.asm().add(R1, R7);
        self.asm().add(R1, MAPPED);
        let fields = [at::START, at::END, at::OFF, at::FILE];
        for (i, from) in fields.into_iter().enumerate() {
            self.load_field(R2, from);
            self.asm().store(Size::DW, R1, 8 * i as i16, R2);
        }
        self.asm().bind(next);
        // Continues behind the last range of the tree, up to the tree's end.
        self.load_field(R1, at::LAST);
        self.load_field(R2, at::NEXT);
        self.asm().jump_if(Cond::Lt, R1, R2, end);
        self.asm().add(R1, 1);
        self.asm().jump_if(Cond::Eq, R1, 0, end);
        self.store_field(at::NEXT, R1);
        self.asm().add(R8, -1);
        self.asm().jump_if(Cond::Ne, R8, 0, again);
        self.asm().bind(end);
    }

    /// Ends with 1, and at the label with 0.
    fn finish_with_flag_at(mut self, zero: crate::isa::asm::Label) -> Res<Function> {
        self.asm().mov(R0, 1);
        self.asm().exit();
        self.asm().bind(zero);
        self.p.finish()
    }
}
