//! A step of an unwind: the caller's registers, by unwind rows or frame pointers. The code is for processors whose
//! calls push the return address.

use super::layout::row::{self, kind};
use super::layout::{EXACT, UnwindLayout, VDSO, at};
use super::unwinder::Unwinder;
use crate::builder::{BlockExit, Scalar};
use crate::func::LirFunc;
use crate::library::area::function;
use crate::op::{AluOp, Size, Width};

/// Steps of a binary search among the rows of a file, at most 2^20.
const HALVINGS: u32 = 22;

/// Result of `user_step` if the file's rows are still being loaded.
pub(super) const WANTS_COPY: i32 = 2;

pub(super) fn user_step(layout: &UnwindLayout) -> LirFunc {
    let contract = "\
Computes the caller's registers; 1 at the end of the stack, 2 if the rows are still being loaded.
Cost: up to 23 look-ups and two reads.";
    function(layout, ("user_step", contract), [], |w, []| {
        let f = w.f;
        f.block(|stop| {
            f.block(|chain| {
                let rows = w.get(at::ROWS);
                f.if_(rows.ne(0), || {
                    let first = w.get(at::FIRST);
                    let key = w.get(at::ADDR) + w.get(at::OFF);
                    let table = w.table(layout.rows, at::MID);
                    let row = table.search(HALVINGS, (first, first + rows), (key, chain));
                    follow(&w, row, [chain, stop]);
                });
                // The rows may still arrive.
                let file = w.get(at::FILE);
                chain.leave_if(file.eq(0));
                chain.leave_if(file.eq(VDSO.cast_signed()));
                f.if_(w.get(at::COPY).ne(0), || {
                    f.ret_if(w.get(at::FIRST).eq(0), WANTS_COPY);
                });
                w.count(layout.guessed);
            });
            frame_pointers(&w, stop);
            w.set(at::EXACT, 0);
            f.ret(0);
        });
        f.ret(1);
    })
}

/// Follows a row, and returns. Goes to `chain` if it gives no rule, to `stop` at the end of the stack.
fn follow<'b>(w: &Unwinder<'_, 'b>, row: Scalar<'b>, [chain, stop]: [BlockExit<'b>; 2]) {
    let f = w.f;
    let rule = row.load_u8(row::KIND);
    let saved = row.load_u8(row::SAVED);
    let distance = row.load_signed(Size::U16, row::CFA);
    let is = |kind: u8| rule.eq(i32::from(kind));
    chain.leave_if(is(kind::NONE));
    stop.leave_if(is(kind::END));
    f.if_(is(kind::SIGNAL), || {
        signal_frame(w, stop);
        f.ret(0);
    });
    let frame = f.var("frame", w.get(at::SP));
    f.block(|plain| {
        f.if_(is(kind::PLT), || {
            // The length of its frame depends on the position in the entry.
            let position = w.get(at::IP) & 15;
            f.if_(position.ge(distance), || frame.set(frame + 8));
            frame.set(frame + 8);
            plain.leave();
        });
        f.block(|stack| {
            f.block(|pointer| {
                pointer.leave_if(is(kind::FRAME));
                pointer.leave_if(is(kind::AT_FRAME));
                stack.leave();
            });
            frame.set(w.get(at::BP));
        });
        frame.set((distance << 3) + frame);
        f.block(|deref| {
            deref.leave_if(is(kind::AT_FRAME));
            deref.leave_if(is(kind::AT_STACK));
            plain.leave();
        });
        frame.set(w.user(8, frame.get(), stop));
    });
    let frame = frame.get();
    // Callers have higher stack pointers.
    stop.leave_if(frame.le(w.get(at::SP)));
    f.if_(saved.ne(0), || {
        w.set(at::BP, w.user(8, frame - (saved << 3), stop));
    });
    let ip = w.user(8, frame - 8, stop);
    w.set(at::SP, frame);
    w.set(at::IP, ip);
    w.set(at::EXACT, 0);
    f.ret(0);
}

/// Follows a signal frame, which no call has made: it contains the interrupted registers.
fn signal_frame<'b>(w: &Unwinder<'_, 'b>, stop: BlockExit<'b>) {
    let f = w.f;
    let n = w.get(at::N);
    f.block(|noted| {
        noted.leave_if(n.eq(0));
        noted.leave_if(n.gt(w.cap()));
        let (frame, [_, offset]) = (w.frame(n), w.file_and_offset());
        let exact = frame.load_u64(offset - 8) | f.constant(EXACT);
        frame.store_u64(offset - 8, exact);
    });
    let frame = w.layout.abi.unwind.signal_frame;
    let registers = [
        (frame.frame_pointer, at::BP),
        (frame.program_counter, at::IP),
        (frame.stack_pointer, at::SP),
    ];
    for (off, field) in registers {
        w.set(field, w.user(8, w.get(at::SP) + off, stop));
    }
    w.set(at::EXACT, 1);
}

/// Follows frame pointers. The first function may not have set up its frame yet.
fn frame_pointers<'b>(w: &Unwinder<'_, 'b>, stop: BlockExit<'b>) {
    let f = w.f;
    let frame = f.var("frame", w.get(at::SP));
    f.block(|end| {
        f.block(|follow| {
            f.block(|entry| {
                f.block(|made| {
                    f.block(|innermost| {
                        innermost.leave_if(w.get(at::N).eq(1));
                        made.leave_if(w.get(at::EXACT).eq(0));
                    });
                    let patterns = &w.layout.abi.unwind;
                    let code = w.user(patterns.entry_bytes, w.get(at::IP), made);
                    for known in patterns.entry {
                        let first = code.alu(Width::W32, AluOp::And, known.mask.cast_signed());
                        let to = if known.pushed { follow } else { entry };
                        to.leave_if(first.eq(f.constant(known.code.into())));
                    }
                });
                let bp = w.get(at::BP);
                stop.leave_if(bp.lt(frame));
                stop.leave_if((bp & 7).ne(0));
                frame.set(bp);
                follow.leave();
            });
            let ip = w.user(8, frame.get(), stop);
            w.set(at::SP, frame + 8);
            w.set(at::IP, ip);
            end.leave();
        });
        let bp = w.user(16, frame.get(), stop);
        w.set(at::SP, frame + 16);
        w.set(at::BP, bp);
        w.set(at::IP, w.get(at::READ + 8));
    });
}
