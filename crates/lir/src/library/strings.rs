//! Texts: compare, copy, length.

use spile_cast::Cast;

use crate::builder::{Builder, Scalar, build};
use crate::func::LirFunc;

/// Number of words that `compare` compares in one iteration, which the kernel runs as a callback.
pub const CHUNK: u32 = 4;

/// The largest slot of a text in bytes.
pub const MAX_SLOT: u32 = 4104;

/// A word with this byte repeated.
pub(super) fn every(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

pub(super) fn compare() -> LirFunc {
    let contract = "\
The order of two texts: -1, 0 or 1, as bytes without sign.
a, b: slots of at least 32 * chunks bytes. chunks: a constant of the caller, from 1 to 129.
Cost: an iteration for each 32 bytes up to the first difference or the end of the texts.";
    build("compare", contract, ["a", "b", "chunks"], |f, p| {
        let [a, b, chunks] = p;
        let i = f.var("i", 0);
        let (x, y) = (f.var("x", 0), f.var("y", 0));
        f.repeat(MAX_SLOT.div_ceil(8 * CHUNK), || {
            f.break_if(i.ge(chunks));
            let offset = i * (8 * CHUNK.cast_signed());
            let (a, b) = (a + offset, b + offset);
            let mut last = a;
            for n in 0..CHUNK.fit::<i16>() {
                last = a.load_u64(8 * n);
                let other = b.load_u64(8 * n);
                f.if_(last.ne(other), || {
                    x.set(last);
                    y.set(other);
                    f.break_();
                });
            }
            f.break_if(last.eq(0));
            i.set(i + 1);
        });
        f.ret_if(x.eq(y), 0);
        // The first byte has the lowest address, and decides most.
        f.ret_if(x.get().swap().lt(y.get().swap()), -1);
        f.ret(1);
    })
}

pub(super) fn copy() -> LirFunc {
    let contract = "\
Copies a text into a slot, as much as fits; 1 if the text was cut, else 0.
to: a slot of `size` bytes. from: a slot of `have` bytes. size, have: constants of the caller,
multiples of 8 up to 4104. All bytes of the slot are written.
Cost: an iteration for each word of the slot.";
    build("copy", contract, ["to", "size", "from", "have"], |f, p| {
        let [to, size, from, have] = p;
        let offset = f.var("at", 0);
        f.repeat(MAX_SLOT / 8, || {
            f.break_if(offset.ge(size));
            let word = f.var("word", 0);
            f.if_(offset.lt(have), || word.set((from + offset).load_u64(0)));
            (to + offset).store_u64(0, word);
            offset.set(offset + 8);
        });
        f.ret_if(have.le(size), 0);
        let last = to + size;
        f.ret_if(last.load_u8(-1).eq(0), 0);
        last.store_u8(-1, 0);
        f.ret(1);
    })
}

pub(super) fn length() -> LirFunc {
    let contract = "\
The number of bytes of a text.
text: a slot of `size` bytes. size: a constant of the caller, a multiple of 8 up to 4104.
Cost: an iteration for each word of the text.";
    build("length", contract, ["text", "size"], |f, p| {
        let [text, size] = p;
        let offset = f.var("at", 0);
        f.repeat(MAX_SLOT / 8, || {
            f.break_if(offset.ge(size));
            let word = (text + offset).load_u64(0);
            offset.set(offset + 8);
            // The top byte of a word is its last one.
            f.if_((word >> 56).eq(0), || {
                offset.set(offset - 8 + bytes(f, word));
                f.break_();
            });
        });
        f.ret(offset);
    })
}

/// The number of bytes of a word up to the last one that is not zero.
fn bytes<'b>(f: &'b Builder, word: Scalar<'b>) -> Scalar<'b> {
    let (rest, count) = (f.var("rest", word), f.var("count", 0));
    for half in [4, 2, 1] {
        let high = rest >> (8 * half);
        f.if_(high.ne(0), || {
            rest.set(high);
            count.set(count + half);
        });
    }
    f.if_(rest.ne(0), || count.set(count + 1));
    count.get()
}
