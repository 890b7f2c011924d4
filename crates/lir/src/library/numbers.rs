//! Numbers: their digits, and numbers of digits.

use spile_cast::Cast;

use super::strings::{MAX_SLOT, every};
use crate::builder::{Builder, Scalar, build};
use crate::func::LirFunc;
use crate::op::{ExtOp, Size};

pub(super) fn decimal() -> LirFunc {
    let contract = "\
Writes the decimal digits of a number without sign; returns how many there are.
buffer: 24 bytes. The digits are at its end, with digits 0 in front of them.
Cost: about 60 instructions, 120 for numbers from 10^8 on, no loop.";
    build("decimal", contract, ["buffer", "number"], |f, p| {
        let [buffer, number] = p;
        f.ret(write_decimal(f, buffer, number));
    })
}

/// What `decimal` does.
pub(super) fn write_decimal<'b>(
    f: &'b Builder,
    buffer: Scalar<'b>,
    number: Scalar<'b>,
) -> Scalar<'b> {
    let [top, middle] = ["top", "middle"].map(|name| f.var(name, 0));
    let low = f.var("low", number);
    // Most numbers are small, and a division takes as long as ten other instructions.
    f.if_(number.ge(100_000_000), || {
        let high = f.constant(10_000_000_000_000_000);
        let first = number / high;
        let rest = number - first * high;
        let second = rest / 100_000_000;
        low.set(rest - second * 100_000_000);
        top.set(eight_decimal(f, first));
        middle.set(eight_decimal(f, second));
    });
    let words = [top.get(), middle.get(), eight_decimal(f, low.get())];
    write_words(f, buffer, words)
}

/// Writes the octal digits of a number to the end of 24 bytes, with digits 0 in front of them; gives how
/// many there are.
pub(super) fn write_octal<'b>(
    f: &'b Builder,
    buffer: Scalar<'b>,
    number: Scalar<'b>,
) -> Scalar<'b> {
    let words = [number >> 48, (number >> 24) & 0xff_ffff, number & 0xff_ffff];
    write_words(f, buffer, words.map(|n| eight_octal(f, n)))
}

/// Writes digits from 0 to 9 in three words as characters; gives the number of significant ones.
fn write_words<'b>(f: &'b Builder, buffer: Scalar<'b>, words: [Scalar<'b>; 3]) -> Scalar<'b> {
    for (i, word) in words.iter().enumerate() {
        buffer.store_u64(8 * i.fit::<i16>(), *word + every(b'0'));
    }
    let (first, digits) = (f.var("first", words[2]), f.var("digits", 8));
    for (i, word) in [(1, words[1]), (2, words[0])] {
        f.if_(word.ne(0), || {
            first.set(word);
            digits.set(8 * (i + 1));
        });
    }
    // The first digit of a word is in its lowest byte; the last of all counts even if it is 0.
    for (digits_of, mask) in [(4, u64::from(u32::MAX)), (2, 0xffff), (1, 0xff)] {
        f.if_((first & mask).eq(0), || {
            first.set(first >> (8 * digits_of));
            digits.set(digits - digits_of);
        });
    }
    digits.get().opaque()
}

/// The eight digits of a number of 24 bits, as numbers from 0 to 7, the first one in the lowest byte.
fn eight_octal<'b>(f: &'b Builder, n: Scalar<'b>) -> Scalar<'b> {
    let x = (n >> 12) | ((n & 0o7777) << 32);
    let low = f.constant(0x0000_003f_0000_003f);
    let x = ((x >> 6) & low) | ((x & low) << 16);
    let low = f.constant(0x0007_0007_0007_0007);
    ((x >> 3) & low) | ((x & low) << 8)
}

/// The eight digits of a number below 10^8, as numbers from 0 to 9, the first one in the lowest
/// byte. Each step divides all parts of the word at once, by multiplying with a reciprocal.
fn eight_decimal<'b>(f: &'b Builder, n: Scalar<'b>) -> Scalar<'b> {
    let four = n / 10_000;
    let x = four | ((n - four * 10_000) << 32);
    let two = ((x * 10_486) >> 20) & f.constant(0x0000_007f_0000_007f);
    let x = two | ((x - two * 100) << 16);
    let one = ((x * 103) >> 10) & f.constant(0x000f_000f_000f_000f);
    one | ((x - one * 10) << 8)
}

pub(super) fn hex() -> LirFunc {
    let contract = "\
Writes the hexadecimal digits of a number; returns how many there are.
buffer: 16 bytes. The digits are at its end, with digits 0 in front of them. ten: the letter for 10.
Cost: about 70 instructions, no loop.";
    build("hex", contract, ["buffer", "number", "ten"], |f, p| {
        let [buffer, number, ten] = p;
        let letters = ten - i32::from(b'0') - 10;
        for (half, offset) in [(number >> 32, 0), (number.ext(ExtOp::Zext, Size::U32), 8)] {
            buffer.store_u64(offset, eight_hex(f, half, letters));
        }
        f.ret(significant_hex(f, number));
    })
}

/// The number of hexadecimal digits of a number.
pub(super) fn significant_hex<'b>(f: &'b Builder, number: Scalar<'b>) -> Scalar<'b> {
    let (rest, digits) = (f.var("rest", number), f.var("digits", 1));
    for more in [8, 4, 2, 1] {
        let high = rest >> (4 * more);
        f.if_(high.ne(0), || {
            rest.set(high);
            digits.set(digits + more);
        });
    }
    digits.get().opaque()
}

/// The eight digits of a number of 32 bits, the first one in the lowest byte.
pub(super) fn eight_hex<'b>(f: &'b Builder, n: Scalar<'b>, letters: Scalar<'b>) -> Scalar<'b> {
    let mut x = n;
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, every(0x0f)),
    ] {
        x = (x | (x << shift)) & f.constant(mask);
    }
    let above_nine = ((x + every(6)) >> 4) & every(1);
    (x + above_nine * letters + every(b'0')).swap()
}

/// `hex_bytes`, for at most `most` bytes, a multiple of 4.
pub fn hex_bytes(most: u32) -> LirFunc {
    let contract = "\
Writes two hexadecimal digits for each byte.
bytes, to: areas of `most` bytes and twice as many. count: of the bytes, not known to the verifier.
Cost: an iteration for each four bytes.";
    build("hex_bytes", contract, ["bytes", "to", "count"], |f, p| {
        let [bytes, to, count] = p;
        let position = f.var("at", 0);
        f.repeat(most / 4, || {
            f.break_if(position.ge(count));
            f.break_if(position.gt(most.cast_signed() - 4));
            let four = (bytes + position).load_bytes(Size::U32, 0);
            let letters = f.constant(u64::from(b'a' - b'0' - 10));
            let digits = eight_hex(f, four.ext(ExtOp::Swap, Size::U32), letters);
            (to + (position << 1)).store_u64(0, digits);
            position.set(position + 4);
        });
        f.ret(0);
    })
}

pub(super) fn strtol() -> LirFunc {
    let contract = "\
The number at the beginning of a text, modulo 2^64, by the grammar of the kernel's simple_strtol: a
minus, `0x` or `0` by the base, digits up to `f`; no blanks and no plus; 0 without digits.
text: a slot of `size` bytes. size: a constant of the caller, from 8 to 4104. base: 32 bits; 0 for
that of the text.
Cost: an iteration for each digit.";
    build("strtol", contract, ["text", "size", "base"], |f, p| {
        let [text, size, base] = p;
        // Without branches, and with a base that the verifier forgets: it would follow the rest
        // once for each path.
        let negative = is(text.load_u8(0), b'-');
        let start = text + negative;
        let zero = is(start.load_u8(0), b'0');
        let marked = zero & is(start.load_u8(1) | 0x20, b'x');
        let base = base.ext(ExtOp::Zext, Size::U32);
        // simple_strtol looks for a digit behind the mark. Without one the number is 0 in each base.
        let of_text = (marked << 3) - (zero << 1) + 10;
        let radix = (base + is(base, 0) * of_text).opaque();
        let position = f.var("at", negative + ((marked & is(radix, 16)) << 1));
        let value = f.var("value", 0);
        f.repeat(MAX_SLOT, || {
            f.break_if(position.ge(size));
            let byte = (text + position).load_u8(0);
            // Behind the digits letters follow, in lower case by one bit.
            let letter = (f.constant(u64::from(b'9')) - byte) >> 63;
            let first = letter * i32::from(b'a' - b'0') + i32::from(b'0');
            let low = (byte | (letter << 5)) - first;
            f.break_if(low.ge(10));
            let digit = low + letter * 10;
            f.break_if(digit.ge(16));
            f.break_if(digit.ge(radix));
            value.set(value * radix + digit);
            position.set(position + 1);
        });
        // The value's complement plus 1 if it is negative.
        f.ret((value ^ (f.constant(0) - negative)) + negative);
    })
}

/// 1 if a number of less than 64 bits has this value, else 0.
fn is(number: Scalar<'_>, value: u8) -> Scalar<'_> {
    ((number ^ i32::from(value)) - 1) >> 63
}
