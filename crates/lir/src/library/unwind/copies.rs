//! Copies of user stacks for the controller. When a handler meets the first frame in a library that
//! was just loaded, the library has no unwind rows yet, and no handler can wait for them. The rest
//! of the stack therefore goes to the controller, with the registers. The controller has the file's
//! tables, and continues the unwind in the copy.

use spile_cast::Cast;

use super::layout::copy::{BYTES, HEAD, MAPPED, MAPPING, MAPPINGS, PAGES};
use super::layout::{COPIED, UnwindLayout, at};
use super::unwinder::Unwinder;
use crate::builder::Scalar;
use crate::func::LirFunc;
use crate::helpers::Helper;
use crate::library::PAGE;
use crate::library::area::{displacement, function};
use crate::library::mappings::search;
use crate::op::Size;

/// The largest number of mappings and gaps of a process to look at.
const LOOKED_AT: u32 = 400;
/// The kernel's `VM_EXEC`.
const EXECUTABLE: i32 = 4;
/// A copy is made only if fewer bytes wait in the ring, so that copies do not displace output.
const WAITING: i32 = 512 << 10;
/// Position of the processor's number within the copy's number.
const CPU_BITS: i32 = 10;

/// Displacement of a field of a copy.
fn field(n: i16) -> i16 {
    16 + 8 * n
}

pub(super) fn user_copy(layout: &UnwindLayout) -> LirFunc {
    let contract = "\
Sends the rest of the stack, and notes the copy as the next frame; 1 on success.
Cost: up to 8 reads of pages, 400 times user_map, and a record of 37,000 bytes.";
    function(layout, ("user_copy", contract), [], |w, []| {
        let f = w.f;
        f.block(|none| {
            let ring = || w.map(layout.ring);
            let waiting = f.helper(Helper::Waiting, &[ring(), w.f.number(0)]);
            none.leave_if(waiting.gt(WAITING));
            none.leave_if(w.get(at::N).ge(w.cap()));
            let cpu = f.helper(Helper::Cpu, &[]);
            let copy = w.table(layout.copies, at::MID).row(cpu, none);
            let number = (f.helper(Helper::TimeNs, &[]) << CPU_BITS) | cpu;
            copy.store_bytes(Size::U32, 0, 0);
            copy.store_bytes(Size::U32, 4, BYTES.cast_signed());
            copy.store_u64(8, layout.copy_record.cast_signed());
            copy.store_u64(field(0), number);
            let fields = [at::TGID, at::IP, at::ADDR, at::SP, at::BP];
            for (from, to) in fields.into_iter().zip(1..) {
                copy.store_u64(field(to), w.get(from));
            }
            copy.store_u64(field(6), 0);
            let stack = w.get(at::SP) & -PAGE;
            f.block(|read| {
                for page in 0..PAGES.fit::<i32>() {
                    let to = copy + (HEAD.cast_signed() + page * PAGE);
                    let args = [to, w.f.number(PAGE), stack + page * PAGE];
                    read.leave_if(f.helper(Helper::ReadUser, &args).ne(0));
                    copy.store_u64(field(6), page + 1);
                }
            });
            code_mappings(&w, copy);
            copy.store_u64(field(7), w.get(at::MAPPINGS));
            let [bytes, flags] = [BYTES.cast_signed(), layout.wakeup].map(|n| w.f.number(n));
            let sent = f.helper(Helper::Output, &[ring(), copy, bytes, flags]);
            f.if_(sent.ne(0), || {
                w.count(layout.lost_output);
                none.leave();
            });
            let n = w.get(at::N);
            none.leave_if(n.ge(w.cap()));
            w.set(at::N, n + 1);
            let (frame, [file, offset]) = (w.frame(n), w.file_and_offset());
            frame.store_u64(displacement(layout.frames), 0);
            frame.store_u64(file, COPIED.cast_signed());
            frame.store_u64(offset, number);
            f.ret(1);
        });
    })
}

/// Appends the executable mappings to a copy. Overwrites the unwind's facts about the frame's mapping.
fn code_mappings<'b>(w: &Unwinder<'_, 'b>, copy: Scalar<'b>) {
    let f = w.f;
    for field in [at::MAPPINGS, at::NEXT] {
        w.set(field, 0);
    }
    f.repeat(LOOKED_AT, || {
        w.set(at::ADDR, w.get(at::NEXT));
        f.call("user_map", &[]);
        f.block(|next| {
            next.leave_if((w.get(at::FLAGS) & EXECUTABLE).eq(0));
            next.leave_if(w.get(at::FILE).eq(0));
            let n = w.get(at::MAPPINGS);
            f.break_if(n.ge(MAPPINGS.fit::<i32>()));
            w.set(at::MAPPINGS, n + 1);
            let to = copy + (n << MAPPING.trailing_zeros().cast_signed()) + MAPPED.cast_signed();
            let fields = [at::START, at::END, at::OFF, at::FILE];
            for (from, word) in fields.into_iter().zip(0..) {
                to.store_u64(8 * word, w.get(from));
            }
        });
        // Continues behind the last range of the tree, up to the tree's end.
        let last = w
            .block
            .load_u64(displacement(w.layout.search + search::LAST));
        f.break_if(last.lt(w.get(at::NEXT)));
        f.break_if((last + 1).eq(0));
        w.set(at::NEXT, last + 1);
    });
}
