//! Copies of memory. What is the handler's own is there. What may not be there is read by `process_vm_readv` of the process itself, which never faults.

use super::ring::copy as copy_bytes;
use super::{COPY, COPY_TEXT, HostFacts, IMAGE, READ, READ_TEXT, THREAD, errno, system_call};
use crate::builder::{BlockExit, Builder, Scalar, build};
use crate::func::LirFunc;
use crate::library::{NO_BOUND, PAGE};
use crate::op::Size;

/// Bytes of a text that one system call reads.
const PIECE: i32 = 256;

/// Returns the result of another function unless memory is the handler's own: in the image, or in the used part of
/// the handlers' stack.
fn only_own<'b>(host: &HostFacts, [to, size, from]: [Scalar<'b>; 3], f: &'b Builder, other: &str) {
    let is_in = |start: Scalar<'b>, bytes: Scalar<'b>, own: BlockExit<'b>| {
        let offset = from - start;
        f.if_(offset.lt(bytes), || own.leave_if((bytes - offset).ge(size)));
    };
    f.block(|own| {
        let image = f.call(IMAGE, &[]);
        is_in(image + image.load_u64(0), image.load_u64(8), own);
        let (frame, end) = (f.slot(8), f.call(THREAD, &[]).load_u64(host.record.stack));
        f.if_(frame.lt(end), || is_in(frame, end - frame, own));
        f.ret(f.call(other, &[to, size, from]));
    });
}

pub(super) fn copy(host: &HostFacts) -> LirFunc {
    let contract = "\
Copies memory of the handler's own, or other memory as `host_read` does: 0, or `EFAULT`.
Cost: about 25 instructions, and 4 for each word.";
    build(COPY, contract, ["to", "size", "from"], |f, args| {
        let [to, size, from] = args;
        only_own(host, args, f, READ);
        copy_bytes(f, to, from, size);
        f.ret(0);
    })
}

pub(super) fn copy_text(host: &HostFacts) -> LirFunc {
    let contract = "\
Copies a text of the handler's own, or another one as `host_read_text` does, at most `size` bytes with its NUL, which is
always written; the number of bytes, or `EFAULT`.";
    build(COPY_TEXT, contract, ["to", "size", "from"], |f, args| {
        let [to, size, from] = args;
        f.ret_if(size.eq(0), 0);
        only_own(host, args, f, READ_TEXT);
        let (last, done) = (size - 1, f.var("done", 0));
        f.repeat_open(NO_BOUND, || {
            f.break_if(done.ge(last));
            let byte = (from + done).load_u8(0);
            f.break_if(byte.eq(0));
            (to + done).store_u8(0, byte);
            done.set(done + 1);
        });
        (to + done).store_u8(0, 0);
        f.ret(done + 1);
    })
}

/// The space for a call of `process_vm_readv`: two vectors, and six words.
struct Reader<'b> {
    f: &'b Builder,
    /// The number of the system call.
    number: i32,
    process: Scalar<'b>,
    vectors: Scalar<'b>,
    words: Scalar<'b>,
}

impl<'b> Reader<'b> {
    fn new(f: &'b Builder, host: &HostFacts) -> Reader<'b> {
        Reader {
            f,
            number: host.calls.process_vm_readv,
            process: f
                .call(THREAD, &[])
                .load_bytes(Size::U32, host.record.process),
            vectors: f.slot(32),
            words: f.slot(48),
        }
    }

    /// Reads `size` bytes; gives how many there are, or a negative errno.
    fn read(&self, to: Scalar<'b>, size: Scalar<'b>, from: Scalar<'b>) -> Scalar<'b> {
        let (f, vectors) = (self.f, self.vectors);
        for (offset, word) in [(0, to), (8, size), (16, from), (24, size)] {
            vectors.store_u64(offset, word);
        }
        let one = f.number(1);
        let args = [self.process, vectors, one, vectors + 16, one, f.number(0)];
        system_call(f, self.words, self.number, &args)
    }
}

/// Fills memory with zeros, and returns the error.
fn fault<'b>(f: &'b Builder, to: Scalar<'b>, size: Scalar<'b>) {
    let done = f.var("done", 0);
    f.repeat_open(NO_BOUND, || {
        f.break_if(done.ge(size));
        (to + done).store_u8(0, 0);
        done.set(done + 1);
    });
    f.ret(errno::EFAULT);
}

pub(super) fn read(host: &HostFacts) -> LirFunc {
    let contract = "\
Copies memory that may not be there: 0, or `EFAULT`, and `to` is zeros then.
Cost: a system call.";
    build(
        READ,
        contract,
        ["to", "size", "from"],
        |f, [to, size, from]| {
            f.ret_if(size.eq(0), 0);
            let read = Reader::new(f, host).read(to, size, from);
            f.ret_if(read.eq(size), 0);
            fault(f, to, size);
        },
    )
}

pub(super) fn read_text(host: &HostFacts) -> LirFunc {
    let contract = "\
Copies a text that may not be there, at most `size` bytes with its NUL, which is always written; the number of bytes,
or `EFAULT`, and `to` is zeros then. Bytes behind the NUL stay.
Cost: a system call for each 256 bytes, and for each page.";
    build(
        READ_TEXT,
        contract,
        ["to", "size", "from"],
        |f, [to, size, from]| {
            f.ret_if(size.eq(0), 0);
            let (reader, piece) = (Reader::new(f, host), f.slot(PIECE.cast_unsigned()));
            let done = f.var("done", 0);
            f.block(|failed| {
                f.repeat_open(NO_BOUND, || {
                    f.break_if(done.ge(size));
                    let at = from + done;
                    let length = f.at_most(size - done, PIECE);
                    let page = f.number(PAGE) - (at & (PAGE - 1));
                    let length = f.var("length", length);
                    f.if_(length.gt(page), || length.set(page));
                    failed.leave_if(reader.read(piece, length.get(), at).ne(length));
                    let n = f.var("n", 0);
                    f.repeat_open(NO_BOUND, || {
                        f.break_if(n.ge(length));
                        let byte = (piece + n).load_u8(0);
                        (to + done + n).store_u8(0, byte);
                        n.set(n + 1);
                        f.ret_if(byte.eq(0), done + n.get());
                    });
                    done.set(done + n.get());
                });
                (to + size).store_u8(-1, 0);
                f.ret(size);
            });
            fault(f, to, size);
        },
    )
}
