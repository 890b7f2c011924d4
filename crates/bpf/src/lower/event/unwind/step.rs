//! A step of a walk: the caller's registers, by unwind rows or frame pointers.

use super::frames::CODE;
use super::walk_gen::{WalkGen, at};
use crate::isa::asm::{Function, Label};
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size};
use crate::layout::{EXACT, ROWS_MAP, VDSO, percpu, unwind_row};
use crate::lower::Res;

/// Steps of a binary search among the [`crate::layout::MAX_ROWS`] rows of a file.
const HALVINGS: u32 = 22;

/// Result of `user_step` if the file's rows are still being loaded.
pub(super) const WANTS_COPY: i32 = 2;

impl WalkGen<'_> {
    /// `user_step()`: computes the caller's registers. Returns 1 at the end of the stack,
    /// [`WANTS_COPY`] if the rows are still being loaded.
    pub(super) fn user_step(mut self) -> Res<Function> {
        let [stop, guess, chain, taken] = std::array::from_fn(|_| self.p.asm.label());
        self.load_field(R1, at::ROWS);
        self.asm().jump_if(Cond::Eq, R1, 0, guess);
        self.load_field(R2, at::FIRST);
        self.store_field(at::LO, R2);
        self.asm().add(R1, R2);
        self.store_field(at::HI, R1);
        self.load_field(R7, at::ADDR);
        self.load_field(R1, at::OFF);
        self.asm().add(R7, R1);
        self.search((ROWS_MAP, HALVINGS), unwind_row::START, chain);
        self.follow(chain, stop, taken);
        self.asm().bind(guess);
        // The rows may still arrive.
        self.load_field(R1, at::FILE);
        self.asm().jump_if(Cond::Eq, R1, 0, chain);
        self.asm().jump_if(Cond::Eq, R1, VDSO as i32, chain);
        let guessed = self.asm().label();
        self.load_field(R1, at::COPY);
        self.asm().jump_if(Cond::Eq, R1, 0, guessed);
        self.load_field(R1, at::FIRST);
        self.asm().jump_if(Cond::Ne, R1, 0, guessed);
        self.asm().mov(R0, WANTS_COPY);
        self.asm().exit();
        self.asm().bind(guessed);
        self.count(percpu::GUESSED);
        self.asm().bind(chain);
        self.frame_pointers(stop);
        self.asm().bind(taken);
        self.finish_with_flag(stop)
    }

    /// Follows the row at r0.
    fn follow(&mut self, chain: Label, stop: Label, taken: Label) {
        use unwind_row::kind;
        let [bp, rsp, plt, signal, deref, cfa, same] = std::array::from_fn(|_| self.p.asm.label());
        self.asm().load(Size::B, R8, R0, unwind_row::KIND);
        self.asm().load(Size::B, R7, R0, unwind_row::RBP);
        self.asm().load(Size::H, R9, R0, unwind_row::CFA);
        self.asm().alu(AluOp::Lsh, R9, 48);
        self.asm().alu(AluOp::Arsh, R9, 48);
        self.asm()
            .jump_if(Cond::Eq, R8, i32::from(kind::NONE), chain);
        self.asm().jump_if(Cond::Eq, R8, i32::from(kind::END), stop);
        self.asm()
            .jump_if(Cond::Eq, R8, i32::from(kind::SIGNAL), signal);
        self.asm().jump_if(Cond::Eq, R8, i32::from(kind::PLT), plt);
        self.asm().alu(AluOp::Lsh, R9, 3);
        self.asm().jump_if(Cond::Eq, R8, i32::from(kind::RBP), bp);
        self.asm()
            .jump_if(Cond::Eq, R8, i32::from(kind::AT_RBP), bp);
        self.load_field(R1, at::SP);
        self.asm().jump(rsp);
        self.asm().bind(bp);
        self.load_field(R1, at::BP);
        self.asm().bind(rsp);
        self.asm().add(R9, R1);
        self.asm()
            .jump_if(Cond::Eq, R8, i32::from(kind::AT_RBP), deref);
        self.asm()
            .jump_if(Cond::Ne, R8, i32::from(kind::AT_RSP), cfa);
        self.asm().bind(deref);
        self.asm().mov(R3, R9);
        self.user(8, stop);
        self.load_field(R9, at::READ);
        self.asm().jump(cfa);
        self.asm().bind(plt);
        self.frame_of_plt();
        self.asm().bind(cfa);
        // Callers have higher stack pointers.
        self.load_field(R1, at::SP);
        self.asm().jump_if(Cond::Le, R9, R1, stop);
        self.asm().jump_if(Cond::Eq, R7, 0, same);
        self.asm().alu(AluOp::Lsh, R7, 3);
        self.asm().mov(R3, R9);
        self.asm().alu(AluOp::Sub, R3, R7);
        self.user(8, stop);
        self.load_field(R1, at::READ);
        self.store_field(at::BP, R1);
        self.asm().bind(same);
        self.asm().mov(R3, R9);
        self.asm().add(R3, -8);
        self.user(8, stop);
        self.store_field(at::SP, R9);
        self.load_field(R1, at::READ);
        self.store_field(at::IP, R1);
        self.store_field(at::EXACT, 0);
        self.asm().jump(taken);
        self.asm().bind(signal);
        self.signal_frame(stop);
        self.asm().jump(taken);
    }

    /// `r9` = the frame of a PLT entry, whose length on the stack depends on the position in the
    /// entry.
    fn frame_of_plt(&mut self) {
        let later = self.asm().label();
        self.load_field(R1, at::IP);
        self.asm().alu(AluOp::And, R1, 15);
        self.load_field(R2, at::SP);
        self.asm().add(R2, 8);
        self.asm().jump_if(Cond::Lt, R1, R9, later);
        self.asm().add(R2, 8);
        self.asm().bind(later);
        self.asm().mov(R9, R2);
    }

    /// Follows a signal frame, which no call has made: it contains the interrupted registers.
    fn signal_frame(&mut self, stop: Label) {
        let (noted, most) = (self.asm().label(), self.room.most);
        let offsets = self.base + at::offsets(most) as i16;
        self.load_field(R1, at::N);
        self.asm().jump_if(Cond::Eq, R1, 0, noted);
        self.asm().jump_if(Cond::Gt, R1, most as i32, noted);
        self.asm().alu(AluOp::Lsh, R1, 3);
        self.asm().add(R1, R6);
        self.asm().load(Size::DW, R2, R1, offsets - 8);
        self.asm().ld_imm64(R3, EXACT);
        self.asm().alu(AluOp::Or, R2, R3);
        self.asm().store(Size::DW, R1, offsets - 8, R2);
        self.asm().bind(noted);
        for (off, field) in [(120, at::BP), (168, at::IP), (160, at::SP)] {
            self.load_field(R3, at::SP);
            self.asm().add(R3, off);
            self.user(8, stop);
            self.load_field(R1, at::READ);
            self.store_field(field, R1);
        }
        self.store_field(at::EXACT, 1);
    }

    /// Follows frame pointers. The first function may not have set up its frame yet.
    fn frame_pointers(&mut self, stop: Label) {
        let [made, entry, pushed, end] = std::array::from_fn(|_| self.p.asm.label());
        let innermost = self.asm().label();
        self.load_field(R1, at::N);
        self.asm().jump_if(Cond::Eq, R1, 1, innermost);
        self.load_field(R1, at::EXACT);
        self.asm().jump_if(Cond::Eq, R1, 0, made);
        self.asm().bind(innermost);
        self.load_field(R3, at::IP);
        self.user(5, made);
        self.load_field(R7, at::READ);
        for (mask, code, label) in CODE {
            self.asm().mov(R1, R7);
            self.asm().mov32(R1, R1);
            self.asm().alu32(AluOp::And, R1, mask as i32);
            self.asm().mov32(R2, code as i32);
            self.asm()
                .jump_if(Cond::Eq, R1, R2, if label { pushed } else { entry });
        }
        self.asm().bind(made);
        self.load_field(R7, at::BP);
        self.load_field(R1, at::SP);
        self.asm().jump_if(Cond::Lt, R7, R1, stop);
        self.asm().mov(R1, R7);
        self.asm().alu(AluOp::And, R1, 7);
        self.asm().jump_if(Cond::Ne, R1, 0, stop);
        self.asm().jump(end);
        self.asm().bind(pushed);
        self.load_field(R7, at::SP);
        self.asm().bind(end);
        self.asm().mov(R3, R7);
        self.user(16, stop);
        self.asm().add(R7, 16);
        self.store_field(at::SP, R7);
        self.load_field(R1, at::READ);
        self.store_field(at::BP, R1);
        self.load_field(R1, at::READ + 8);
        self.store_field(at::IP, R1);
        let done = self.asm().label();
        self.asm().jump(done);
        self.asm().bind(entry);
        self.load_field(R7, at::SP);
        self.asm().mov(R3, R7);
        self.user(8, stop);
        self.asm().add(R7, 8);
        self.store_field(at::SP, R7);
        self.load_field(R1, at::READ);
        self.store_field(at::IP, R1);
        self.asm().bind(done);
        self.store_field(at::EXACT, 0);
    }
}
