//! The unwind: frame after frame, and single addresses.

use super::layout::{BEHIND, EXACT, GIVEN, UnwindLayout, at};
use super::step::WANTS_COPY;
use crate::func::LirFunc;
use crate::helpers::Helper;
use crate::library::area::{displacement, function};
use crate::op::Size;

/// The largest number of return-probed calls to search for a frame's return address.
const RETURNS: u32 = 64;

pub(super) fn user_unwind(layout: &UnwindLayout) -> LirFunc {
    let contract = "\
Fills the buffer with frames of the current program's stack.
most: the largest number of frames, or `GIVEN`: all, from the registers that the words have.
Cost: user_frame and user_return for each frame.";
    function(layout, ("user_unwind", contract), ["most"], |w, [most]| {
        let (f, o) = (w.f, &layout.offsets);
        for word in [layout.count, layout.first] {
            w.block.store_u64(displacement(word), 0);
        }
        w.set(at::MOST, w.cap());
        f.if_(most.lt(w.cap()), || w.set(at::MOST, most));
        for field in [at::N, at::START, at::END, at::EXACT, at::RETURN] {
            w.set(field, 0);
        }
        f.block(|user| {
            f.block(|kernel| {
                // As in `user_map`.
                let task = f.helper(Helper::TaskAddress, &[]);
                user.leave_if(w.word(task, o.mapping.task_mm, kernel).ne(0));
            });
            f.ret(0);
        });
        let task = f.helper(Helper::Task, &[]);
        let tgid = task.load_bytes(Size::U32, displacement(o.task_tgid));
        w.set(at::TGID, tgid);
        let registers = f.helper(Helper::Registers, &[task]);
        let abi = layout.abi;
        let mode = registers.load_u64(abi.saved.mode) & 0xffff;
        f.ret_if((mode & abi.saved.level).ne(abi.saved.user_level), 0);
        f.if_(most.ne(GIVEN), || {
            let fields = [
                (abi.program_counter, at::IP),
                (abi.stack_pointer, at::SP),
                (abi.frame_pointer, at::BP),
            ];
            for (register, field) in fields {
                let from = abi.offset(register).unwrap_or_default();
                w.set(field, registers.load_u64(from));
            }
        });
        if let Some(compat) = abi.saved.compat_mode {
            // Frames of 32-bit code are not followed.
            f.if_(mode.eq(compat), || w.set(at::SP, -1));
        }
        // One more call, which reports the end.
        f.repeat_inline(layout.most + 1, || {
            let stepped = f.call("user_frame", &[]);
            f.if_(stepped.ne(0), || {
                f.break_if(stepped.ne(WANTS_COPY));
                f.break_if(f.call("user_copy", &[]).ne(0));
                // Guesses from here on, without the facts about the previous mapping.
                for field in [at::COPY, at::ROWS, at::START, at::END] {
                    w.set(field, 0);
                }
                w.set(at::FILE, 1);
                f.break_if(f.call("user_step", &[]).ne(0));
            });
            if o.returns.is_some() {
                f.call("user_return", &[]);
            }
        });
    })
}

pub(super) fn user_frame(layout: &UnwindLayout) -> LirFunc {
    let contract = "\
Notes a frame and finds the next one; gives what user_step gives.
Cost: user_map for each new mapping, user_step.";
    function(layout, ("user_frame", contract), [], |w, []| {
        let f = w.f;
        f.block(|stop| {
            let ip = w.get(at::IP);
            stop.leave_if(ip.eq(0));
            let (n, most) = (w.get(at::N), w.get(at::MOST));
            f.if_(n.ge(most), || {
                f.if_(most.eq(w.cap()), || w.count(layout.cut_stacks));
                stop.leave();
            });
            let address = f.var("address", ip);
            f.block(|exact| {
                exact.leave_if(n.eq(0));
                exact.leave_if(w.get(at::EXACT).ne(0));
                address.set(ip - 1);
            });
            let address = address.get();
            w.set(at::ADDR, address);
            f.block(|known| {
                f.block(|look| {
                    look.leave_if(w.get(at::START).gt(address));
                    known.leave_if(w.get(at::END).gt(address));
                });
                f.call("user_map", &[]);
            });
            let n = w.get(at::N);
            stop.leave_if(n.ge(w.cap()));
            let (frame, [file, offset]) = (w.frame(n), w.file_and_offset());
            frame.store_u64(displacement(layout.frames), ip);
            frame.store_u64(file, w.get(at::FILE));
            let exact = w.get(at::EXACT) << EXACT.trailing_zeros().cast_signed();
            frame.store_u64(offset, (w.get(at::OFF) + ip) | exact);
            w.set(at::N, n + 1);
            w.block.store_u64(displacement(layout.count), (n + 1) << 3);
            f.ret(f.call("user_step", &[]));
        });
        f.ret(1);
    })
}

pub(super) fn user_return(layout: &UnwindLayout, offsets: [u32; 5]) -> LirFunc {
    let contract = "\
Replaces the last return address by the original one if a return probe has exchanged it. The kernel
identifies it by its position on the stack. Its list is ordered, so the search starts where the previous
one ended.
Cost: two reads for each element.";
    let [utask, first, stack, original, next] = offsets;
    function(layout, ("user_return", contract), [], |w, []| {
        let f = w.f;
        f.block(|end| {
            let location = w.get(at::SP) - 8;
            let element = f.var("element", w.get(at::RETURN));
            f.if_(element.eq(0), || {
                // As in `user_map`.
                let task = f.helper(Helper::TaskAddress, &[]);
                let utask = w.word(task, utask, end);
                end.leave_if(utask.eq(0));
                element.set(w.word(utask, first, end));
            });
            f.block(|search| {
                f.repeat(RETURNS, || {
                    end.leave_if(element.eq(0));
                    search.leave_if(w.word(element.get(), stack, end).eq(location));
                    element.set(w.word(element.get(), next, end));
                });
                end.leave();
            });
            w.set(at::RETURN, element);
            w.set(at::IP, w.word(element.get(), original, end));
        });
    })
}

pub(super) fn user_address(layout: &UnwindLayout) -> LirFunc {
    let contract = "\
Stores an address with its file as the frame behind all others.
address: of the current program.
Cost: user_map, outside of files twice.";
    let params = ["address"];
    let name = ("user_address", contract);
    function(layout, name, params, |w, [address]| {
        let f = w.f;
        let task = f.helper(Helper::Task, &[]);
        let tgid = displacement(layout.offsets.task_tgid);
        w.set(at::TGID, task.load_bytes(Size::U32, tgid));
        w.set(at::ADDR, address);
        let location = 8 * layout.most;
        w.block
            .store_u64(displacement(layout.frames + location), address);
        f.call("user_map", &[]);
        let behind = f.var("behind", 0);
        f.block(|known| {
            known.leave_if(w.get(at::FILE).ne(0));
            // Zero-initialised variables lie behind the mapping of their file.
            let start = w.get(at::START);
            known.leave_if(start.eq(0));
            w.set(at::ADDR, start - 1);
            f.call("user_map", &[]);
            behind.set(f.constant(BEHIND));
        });
        let file = w.get(at::FILE);
        w.set(at::FILES + location, file);
        f.ret_if(file.eq(0), 0);
        let offset = (w.get(at::OFF) + address) | behind;
        w.set(at::offsets(layout.most) + location, offset);
    })
}
