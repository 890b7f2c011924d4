//! Escapes, as in C source: whole texts, and texts of limited length with or without quotes.

use super::numbers::eight_hex;
use super::strings::every;
use crate::builder::{Builder, Scalar, build};
use crate::func::Module;
use crate::helpers::Helper;
use crate::op::Size;

/// Name of the table of escapes, which the caller gives: a row of 8 bytes for each byte, of four
/// bytes of text, zeros behind it, and then its length.
pub const ESCAPES: &str = "escapes";
/// The truncation mark `"...`.
const CUT: i32 = i32::from_ne_bytes(*b"\"...");
const QUOTE: i32 = b'"' as i32;

/// `escape_WIDE`, for texts in slots of `wide` bytes.
pub fn escape(wide: u32, capacity: u32, table: &[u8]) -> Module {
    let contract = "\
Writes a text with its bytes and multi-byte characters escaped; the last escape can pass the capacity.
text: a slot, with 8 more readable bytes. to: capacity and 16 bytes, and no less than the slot.
Cost: a text without escapes an iteration for each word, any other one for each byte as well.";
    let name = format!("escape_{wide}");
    let func = build(&name, contract, ["text", "to"], |f, p| {
        let [text, to] = p;
        write_escaped(f, (text, to), (wide, capacity));
    });
    Module::from(func).with_data(ESCAPES, table)
}

/// What `escape_WIDE` does, for functions that have one frame less than a call needs. Their module
/// has the table of escapes ([`ESCAPES`]).
pub(super) fn write_escaped<'b>(
    f: &'b Builder,
    (text, to): (Scalar<'b>, Scalar<'b>),
    (wide, capacity): (u32, u32),
) {
    let (word_at, special) = (f.var("word", 0), f.var("special", 0));
    f.repeat(wide / 8, || {
        f.break_if(word_at.gt(wide.cast_signed() - 8));
        let word = (text + word_at).load_u64(0);
        let zero = zero_marks(f, word);
        // The marks in front of the first zero byte: all bits below its mark.
        let in_front = (zero & (f.constant(0) - zero)) - 1;
        special.set(special_marks(f, word) & in_front);
        f.break_if(special.ne(0));
        f.break_if(zero.ne(0));
        word_at.set(word_at + 8);
    });
    let copy = || {
        f.helper(Helper::ReadText, &[to, f.constant(wide.into()), text]);
    };
    f.if_else(special.eq(0), copy, || {
        let (index, length) = (f.var("at", 0), f.var("length", 0));
        f.repeat(wide, || {
            f.break_if(index.ge(wide.cast_signed()));
            f.break_if(length.gt(capacity.cast_signed()));
            let (address, to) = (text + index, to + length);
            let byte = address.load_u8(0);
            f.break_if(byte.eq(0));
            let left = f.constant(wide.into()) - index;
            character(f, address, byte, left, |code, bytes| {
                index.set(index + bytes);
                length.set(length + escaped_length(f, code));
                put(f, to, code);
                f.continue_();
            });
            let row = f.data(ESCAPES) + (byte << 3);
            to.store_u64(0, row.load_bytes(Size::U32, 0));
            length.set(length + row.load_u8(4));
            index.set(index + 1);
        });
    });
}

/// `quote_WIDE`, for bytes in slots of `wide` bytes.
pub fn quote(wide: u32, most: u32, table: &[u8]) -> Module {
    let contract = "\
Writes bytes escaped, up to a limit, in quotes if `quoted` is 1. A quoted text that does not fit ends
with `...` behind its quote; whole escapes make space for that.
text: a slot, with 8 more readable bytes; count: of its bytes. out: zeros, 16 bytes more than the largest length `most`.
limit: of the length without the closing quote, not known to the verifier.
Cost: an iteration for eight bytes without an escape, otherwise for each byte.";
    let params = ["text", "out", "count", "limit", "quoted"];
    let func = build(&format!("quote_{wide}"), contract, params, |f, p| {
        let [text, out, count, limit, quoted] = p;
        // Without a branch: the verifier would follow the rest twice.
        out.store_u8(0, quoted * QUOTE);
        let (index, length) = (f.var("at", 0), f.var("length", quoted));
        // The length that leaves space for the truncation mark.
        let kept = f.var("kept", 1);
        f.repeat(wide, || {
            f.break_if(index.ge(count));
            f.break_if(index.ge(wide.cast_signed()));
            f.break_if(length.gt(most.cast_signed()));
            let (address, to) = (text + index, out + length);
            let word = address.load_u64(0);
            let byte = word & 0xff;
            let shorter = limit - 3;
            // Eight bytes at once, if none needs an escape and all fit: one test, because the verifier
            // would follow the rest for each.
            let eight = special_marks(f, word) | less(count, index + 8) | less(shorter, length + 8);
            f.if_(eight.eq(0), || {
                to.store_u64(0, word);
                length.set(length + 8);
                kept.set(length);
                index.set(index + 8);
                f.continue_();
            });
            let advance = |bytes: Scalar<'_>, more: Scalar<'_>| {
                let longer = length + more;
                f.break_if(longer.gt(limit));
                length.set(longer);
                let stays = f.constant(0) - less(shorter, longer);
                kept.set((kept & stays) | (longer & (stays ^ -1)));
                index.set(index + bytes);
            };
            character(f, address, byte, count - index, |code, bytes| {
                advance(bytes, escaped_length(f, code));
                put(f, to, code);
                f.continue_();
            });
            let row = row(f, address);
            advance(f.constant(1), row.load_u8(4));
            to.store_bytes(Size::U32, 0, row.load_bytes(Size::U32, 0));
        });
        f.ret_if(quoted.eq(0), 0);
        let cut = f.var("cut", 0);
        f.if_(index.lt(count), || {
            cut.set(1);
            length.set(kept);
        });
        f.ret_if(length.gt(most.cast_signed()), 0);
        let end = out + length;
        f.if_else(
            cut.ne(0),
            || {
                end.store_bytes(Size::U32, 0, CUT);
                // Clears the text behind: fewer than 3 bytes and an escape.
                end.store_u64(4, 0);
            },
            || end.store_u8(0, QUOTE),
        );
        f.ret(0);
    });
    Module::from(func).with_data(ESCAPES, table)
}

/// The row of the byte at an address. The byte is read again: the verifier knows different things about
/// the first one, depending on whether it could begin a character.
fn row<'b>(f: &'b Builder, address: Scalar<'b>) -> Scalar<'b> {
    f.data(ESCAPES) + (address.load_u8(0) << 3)
}

/// The top bits of the bytes that are zero.
pub(super) fn zero_marks<'b>(f: &'b Builder, word: Scalar<'b>) -> Scalar<'b> {
    (not_zero(f, word) ^ -1) & f.constant(every(0x80))
}

/// The number of bytes of a word in front of its first zero.
pub(super) fn in_front_of_zero<'b>(f: &'b Builder, word: Scalar<'b>) -> Scalar<'b> {
    in_front_of_mark(f, first_mark(f, zero_marks(f, word)))
}

/// The first one of marks, or 0.
pub(super) fn first_mark<'b>(f: &'b Builder, marks: Scalar<'b>) -> Scalar<'b> {
    marks & (f.constant(0) - marks)
}

/// The number of bytes of a word in front of the one with this mark.
pub(super) fn in_front_of_mark<'b>(f: &'b Builder, mark: Scalar<'b>) -> Scalar<'b> {
    ((((mark - 1) & f.constant(every(0x80))) >> 7) * f.constant(every(1))) >> 56
}

/// Top bits of the bytes that are not zero, and other bits below.
fn not_zero<'b>(f: &'b Builder, word: Scalar<'b>) -> Scalar<'b> {
    let low = f.constant(every(0x7f));
    ((word & low) + low) | word
}

/// The top bits of the bytes that need an escape, and of zeros: a set top bit, a value below the
/// space, or one of three others.
fn special_marks<'b>(f: &'b Builder, word: Scalar<'b>) -> Scalar<'b> {
    let top = f.constant(every(0x80));
    let below_space = ((word | top) - f.constant(every(b' '))) ^ -1;
    let mut marks = below_space | word;
    for byte in [b'"', b'\\', 0x7f] {
        marks = marks | (not_zero(f, word ^ f.constant(every(byte))) ^ -1);
    }
    marks & top
}

/// Runs code with the multi-byte UTF-8 character at an address and its number of bytes, if there is
/// one: not an overlong form, a surrogate or a value out of range.
fn character<'b>(
    f: &'b Builder,
    address: Scalar<'b>,
    first: Scalar<'b>,
    left: Scalar<'b>,
    code: impl FnOnce(Scalar<'b>, Scalar<'b>),
) {
    f.if_(first.ge(0xc2), || {
        let (value, bytes) = decode(f, address, first, left);
        f.if_(bytes.ne(0), || code(value, bytes));
    });
}

/// 1 if a number is less than another one, else 0; both have a sign and less than 63 bits.
fn less<'b>(a: Scalar<'b>, b: Scalar<'b>) -> Scalar<'b> {
    (a - b) >> 63
}

/// A character and its number of bytes, 0 if there is none. All bytes that it could have are read, and
/// nothing branches: the verifier would follow the rest for each length and each fault.
fn decode<'b>(
    f: &'b Builder,
    address: Scalar<'b>,
    first: Scalar<'b>,
    left: Scalar<'b>,
) -> (Scalar<'b>, Scalar<'b>) {
    let number = |n: u64| f.constant(n);
    let length = less(number(0xdf), first) + less(number(0xef), first) + 2;
    // A continuation byte is 0x80 plus six bits.
    let next = [1, 2, 3].map(|offset| address.load_u8(offset) ^ 0x80);
    let bits = first & (number(0x7f) >> length);
    let join = |code: Scalar<'b>, next: &Scalar<'b>| (code << 6) | (*next & 0x3f);
    let joined = next.iter().fold(bits, join);
    let code = joined >> ((number(4) - length) * 6);
    let marks = (next[0] >> 6) | ((next[1] >> 6) << 8) | ((next[2] >> 6) << 16);
    let wrong = marks & ((number(1) << ((length - 1) << 3)) - 1)
        | less(number(0xf4), first)
        | less(left, length)
        | less(code, number(1) << (length * 5 - 4))
        | less((code >> 11) ^ (0xd800 >> 11), number(1))
        | less(number(0x10_ffff), code);
    // All bits if nothing is wrong.
    let valid = number(0) - less(wrong, number(1));
    (code, length & valid)
}

/// The length of the escape of a character.
fn escaped_length<'b>(f: &'b Builder, code: Scalar<'b>) -> Scalar<'b> {
    (less(f.constant(0xffff), code) << 2) + 6
}

/// Writes the escape of a character, `\uXXXX` or `\UXXXXXXXX`, and a NUL.
fn put<'b>(f: &'b Builder, to: Scalar<'b>, code: Scalar<'b>) {
    let digits = eight_hex(f, code, f.constant(u64::from(b'A' - b'0' - 10)));
    let long = f.constant(u16::from_ne_bytes(*b"\\U").into());
    let short = less(code, f.constant(0x1_0000));
    // The letter for four digits is that in lower case.
    to.store_bytes(Size::U16, 0, long | (short << (8 + 5)));
    to.store_u64(2, digits >> (short << 5));
    to.store_u8(10, 0);
}
