//! Statistics: the variance and the sum of squares, the buckets of a histogram.

use crate::builder::{Scalar, build};
use crate::func::LirFunc;
use crate::op::{AluOp, ExtOp, Size, Width};

/// Bits of a quotient that fits into a number with a sign.
const BITS: u32 = 63;

pub(super) fn variance() -> LirFunc {
    let contract = "\
The variance of numbers: (count * squares - sum²) / (count * (count - 1)), without rounding before
the division; 0 for one number, the largest number where it does not fit.
count: how many there are. sum: their sum, with its sign. low, high: the halves of the sum of their
squares.
Cost: 130 instructions; if a word is not enough for the numerator, 63 iterations.";
    let params = ["count", "sum", "low", "high"];
    build("variance", contract, params, |f, p| {
        let [count, sum, low, high] = p;
        let largest = f.constant(i64::MAX.cast_unsigned());
        f.ret_if(count.lt(2), 0);
        let sign = sum.alu(Width::W64, AluOp::Arsh, 63);
        let magnitude = (sum ^ sign) - sign;
        // The numerator has three words.
        let [n, root] = [count, magnitude].map(halves);
        let ([n0, part], [more, n2]) = (multiply(n, halves(low)), multiply(n, halves(high)));
        let n1 = part + more;
        let n2 = n2 + (below(n1, more, part) >> 63);
        let [s0, s1] = multiply(root, root);
        let ([n0, n1], taken) = subtract([n0, n1], [s0, s1]);
        f.ret_if(n2.lt(taken), 0);
        let n2 = n2 - taken;
        let by = multiply(n, halves(count - 1));
        f.if_((n1 | n2 | by[1]).eq(0), || {
            let quotient = n0 / by[0];
            f.ret_if(quotient.gt(largest), largest);
            f.ret(quotient);
        });
        // The remainder starts as the numerator without its last bits. If it is not below the
        // divisor, the quotient has more of them.
        f.ret_if((n2 >> BITS.cast_signed()).ne(0), largest);
        let rest = [(n1 << 1) | (n0 >> 63), (n2 << 1) | (n1 >> 63)];
        f.ret_if(subtract(rest, by).1.eq(0), largest);
        let (bits, quotient) = (f.var("bits", n0 << 1), f.var("quotient", 0));
        let [low, high] = [("low", rest[0]), ("high", rest[1])].map(|(name, v)| f.var(name, v));
        f.repeat(BITS, || {
            let above = high >> 63;
            high.set((high << 1) | (low >> 63));
            low.set((low << 1) | (bits >> 63));
            bits.set(bits << 1);
            quotient.set(quotient << 1);
            let (rest, taken) = subtract([low.get(), high.get()], by);
            f.if_(above.ge(taken), || {
                low.set(rest[0]);
                high.set(rest[1]);
                quotient.set(quotient + 1);
            });
        });
        f.ret(quotient);
    })
}

pub(super) fn add_square() -> LirFunc {
    let contract = "\
Adds the square of a number to a sum of two words; returns 0.
sum: the words, low word first. v: the number, with its sign.
Cost: 45 instructions.";
    build("add_square", contract, ["sum", "v"], |f, [sum, v]| {
        let sign = v.alu(Width::W64, AluOp::Arsh, 63);
        let root = halves((v ^ sign) - sign);
        let [low, high] = multiply(root, root);
        let before = sum.load_u64(0);
        let after = before + low;
        // The highest bit of a sum says that it was carried on.
        let carry = ((before & low) | ((before | low) & (after ^ -1))) >> 63;
        sum.store_u64(0, after);
        sum.store_u64(8, sum.load_u64(8) + high + carry);
        f.ret(0);
    })
}

pub(super) fn log_bucket() -> LirFunc {
    let contract = "\
The bucket of a number in a logarithmic histogram: 64, plus the number of its bits, or minus those of its
magnitude if it is negative.
v: the number, with its sign.
Cost: up to 40 instructions.";
    build("log_bucket", contract, ["v"], |f, [v]| {
        let sign = v.alu(Width::W64, AluOp::Arsh, 63);
        let rest = f.var("rest", (v ^ sign) - sign);
        let bits = f.var("bits", 0);
        for shift in [32, 16, 8, 4, 2, 1] {
            let high = rest >> shift;
            f.if_(high.ne(0), || {
                rest.set(high);
                bits.set(bits + shift);
            });
        }
        // The rest is 0 or 1. Without bounds the verifier's 64 paths become one.
        let bits = (bits + rest).opaque();
        f.ret(((bits ^ sign) - sign) + 64);
    })
}

/// Offsets of the words of `next_bucket`.
pub mod bucket {
    /// The bucket from which the search starts; afterwards the one behind the bucket that was found.
    pub const NEXT: i16 = 0;
    /// The content of the bucket that was found, 0 if there is none.
    pub const COUNT: i16 = 8;
}

/// The largest number of buckets.
const BUCKETS: u32 = 1 << 13;

pub(super) fn next_bucket() -> LirFunc {
    let contract = "\
Finds the first bucket from NEXT on that is not empty; returns 0.
buckets: words. count: how many there are, a constant of the caller up to 8192. words: NEXT and COUNT.
Cost: an iteration for each bucket.";
    let params = ["buckets", "count", "words"];
    build("next_bucket", contract, params, |f, p| {
        let [buckets, count, words] = p;
        let index = f.var("at", words.load_u64(bucket::NEXT));
        let content_found = f.var("found", 0);
        f.repeat(BUCKETS, || {
            f.break_if(index.ge(count));
            let content = (buckets + (index << 3)).load_u64(0);
            index.set(index + 1);
            f.if_(content.ne(0), || {
                content_found.set(content);
                f.break_();
            });
        });
        words.store_u64(bucket::NEXT, index);
        words.store_u64(bucket::COUNT, content_found);
        f.ret(0);
    })
}

/// The halves of a word, low half first.
fn halves(v: Scalar<'_>) -> [Scalar<'_>; 2] {
    [v.ext(ExtOp::Zext, Size::U32), v >> 32]
}

/// The product of two words, given by their halves; low word first.
fn multiply<'b>([a0, a1]: [Scalar<'b>; 2], [b0, b1]: [Scalar<'b>; 2]) -> [Scalar<'b>; 2] {
    let lowest = a0 * b0;
    // Neither sum overflows: a product of halves is at most 2^64 - 2^33 + 1.
    let [middle, more] = halves(a1 * b0 + (lowest >> 32));
    let upper = a0 * b1 + middle;
    let low = (upper << 32) | lowest.ext(ExtOp::Zext, Size::U32);
    [low, a1 * b1 + more + (upper >> 32)]
}

/// A word whose highest bit says that `a - b`, which is `difference`, is below zero. No comparison: the
/// kernel's verifier would follow the rest once for each outcome.
fn below<'b>(a: Scalar<'b>, b: Scalar<'b>, difference: Scalar<'b>) -> Scalar<'b> {
    a ^ ((a ^ b) | (a ^ difference))
}

/// The difference of two numbers of two words, low word first, and 1 if it is below zero.
fn subtract<'b>(a: [Scalar<'b>; 2], b: [Scalar<'b>; 2]) -> ([Scalar<'b>; 2], Scalar<'b>) {
    let low = a[0] - b[0];
    let taken = below(a[0], b[0], low) >> 63;
    let rest = a[1] - b[1];
    let high = rest - taken;
    // Taking one from a word leaves less than zero if it sets the highest bit.
    let negative = below(a[1], b[1], rest) | ((rest ^ -1) & high);
    ([low, high], negative >> 63)
}
