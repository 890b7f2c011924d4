//! Records for the controller, in memory that processes share.
//!
//! # How the ring works
//! Positions count bytes and never go back. A record begins with a word: its length in the lower half, with `BUSY`
//! until it is complete, and its writer's thread in the upper half. A free word has the number of times that the ring
//! was filled before (the *lap* of its position) in the upper half, and zeros in the lower one. The reader writes it
//! before it gives space back.
//!
//! A writer claims space by an exchange of the free word at the producer's position for its header. Positions do not
//! repeat and neither do free words in one place: a claim that comes late fails. So space is never claimed without its
//! length and its owner. Whoever finds a header at the producer's position moves that position behind it, the owner or
//! another thread; nobody waits for anybody. After the death of a writer the controller makes the record one that is
//! discarded.
//!
//! Records are contiguous. In front of one that would pass the end, the rest of the ring is a discarded record.

use super::{
    HostFacts, OUTPUT, THREAD, WAITING, description as is, errno, load, ring_words as at,
    system_call,
};
use crate::builder::{Builder, Scalar, build};
use crate::func::LirFunc;
use crate::library::NO_BOUND;
use crate::op::Size;

/// Bytes of a header.
const HEADER: i32 = 8;
/// `BPF_RB_NO_WAKEUP`.
const NO_WAKEUP: i32 = 1;
/// Attempts to claim space. Each one that fails is another thread's success.
const ATTEMPTS: i32 = 1 << 16;
const LOWER: u64 = u32::MAX as u64;

pub(super) fn output(host: &HostFacts) -> LirFunc {
    let contract = "\
Puts a record into the ring: 0, `EAGAIN` if there is no space, `EINVAL` if it is empty. flags: 1 to not wake the reader.
Cost: about 40 instructions, three atomic operations and the copy.";
    let params = ["ring", "data", "size", "flags"];
    build(OUTPUT, contract, params, |f, [ring, data, size, flags]| {
        f.ret_if(size.eq(0), errno::EINVAL);
        let (bytes, shift) = (ring.load_u64(is::ENTRIES), ring.load_u64(is::SHIFT));
        f.ret_if(size.ge(bytes), errno::EAGAIN);
        let total = ((size + (HEADER - 1)) & -HEADER) + HEADER;
        f.ret_if(total.gt(bytes), errno::EAGAIN);
        let (words, space) = (
            ring + ring.load_u64(is::WORDS),
            ring + ring.load_u64(is::ELEMENTS),
        );
        let thread = f
            .call(THREAD, &[])
            .load_bytes(Size::U32, host.record.thread);
        let done = (thread << 32) | size;
        let (header, attempts) = (f.var("header", 0), f.var("attempts", 0));
        f.repeat_open(NO_BOUND, || {
            f.ret_if(attempts.eq(ATTEMPTS), errno::EAGAIN);
            attempts.set(attempts + 1);
            let position = load(f, words + i32::from(at::PRODUCER));
            let offset = position & (bytes - 1);
            let room = bytes - offset;
            let claim = f.var("claim", done | u64::from(at::BUSY));
            let length = f.var("length", total);
            let needed = f.var("needed", total);
            f.if_(room.lt(total), || {
                claim.set((room - HEADER) | u64::from(at::DISCARDED));
                length.set(room);
                needed.set(room + total);
            });
            let taken = position - load(f, words + i32::from(at::CONSUMER));
            f.ret_if((taken + needed).gt(bytes), errno::EAGAIN);
            header.set(space + offset);
            let free = (position >> shift) << 32;
            let was = header.get().compare_exchange(0, free, claim);
            let lower = was & LOWER;
            f.if_(was.ne(free), || {
                // Another thread's header, or the free word of a later lap.
                f.if_(lower.eq(0), || f.continue_());
                let size = was & u64::from(at::DISCARDED - 1);
                length.set(((size + (HEADER - 1)) & -HEADER) + HEADER);
            });
            words.compare_exchange(at::PRODUCER, position, position + length.get());
            f.if_(was.eq(free), || f.break_if(room.ge(total)));
        });
        let to = header + HEADER;
        copy(f, to, data, size);
        // An exchange, so that either this thread sees that the reader waits, or the reader sees the record.
        header.get().exchange(0, done);
        f.ret_if(flags.has(NO_WAKEUP), 0);
        let reader = words + i32::from(at::READER);
        f.ret_if(load(f, reader).eq(0), 0);
        f.if_(reader.exchange(0, 0).ne(0), || wake(f, reader, host));
        f.ret(0);
    })
}

fn wake<'b>(f: &'b Builder, word: Scalar<'b>, host: &HostFacts) {
    /// `FUTEX_WAKE`, and for one thread.
    const WAKE: i32 = 1;
    let args = [word, f.number(WAKE), f.number(1)];
    system_call(f, f.slot(48), host.calls.futex, &args);
}

/// Copies bytes that are there.
pub(super) fn copy<'b>(f: &'b Builder, to: Scalar<'b>, from: Scalar<'b>, size: Scalar<'b>) {
    let (whole, done) = (size & -8, f.var("done", 0));
    f.repeat_open(NO_BOUND, || {
        f.break_if(done.ge(whole));
        (to + done).store_u64(0, (from + done).load_u64(0));
        done.set(done + 8);
    });
    f.repeat_open(NO_BOUND, || {
        f.break_if(done.ge(size));
        (to + done).store_u8(0, (from + done).load_u8(0));
        done.set(done + 1);
    });
}

pub(super) fn waiting() -> LirFunc {
    let contract = "The number of bytes in the ring that the reader has not taken yet.";
    build(WAITING, contract, ["ring", "flags"], |f, [ring, _]| {
        let words = ring + ring.load_u64(is::WORDS);
        let consumer = load(f, words + i32::from(at::CONSUMER));
        f.ret(load(f, words + i32::from(at::PRODUCER)) - consumer);
    })
}
