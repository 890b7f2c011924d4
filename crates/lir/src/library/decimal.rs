//! Decimal text to a floating-point number, correctly rounded.
//!
//! The method needs no tables, and hard cases need no special treatment. The digits become a
//! fixed-point number in limbs of nine digits, with the decimal point between two limbs. Repeatedly
//! dividing the integer part by 2^32 gives its binary words, lowest first. Repeatedly multiplying
//! the fraction by 2^32 gives the words behind the point, highest first. The three highest words,
//! and one sticky bit for everything below, decide the rounding. A short number takes a few
//! iterations, the longest some thousands.

use crate::builder::{Builder, Comparison, Scalar, Var, build};
use crate::func::LirFunc;
use crate::op::{AluOp, ExtOp, Size, Width};

/// Digits of a limb, and the radix of limbs.
const LIMB: i32 = 9;
const BASE: i32 = 1_000_000_000;
/// Index of the units' limb: 309 digits can precede the point.
const UNITS: i32 = 34;
/// Number of limbs, which leaves 1,100 digits for the fraction. The smallest number's first digit
/// is the 324th, and a midpoint between two numbers has at most 767 digits.
const LIMBS: i32 = 158;
/// Place of the first digit from which a number is infinite, or 0.
const TOO_LARGE: i32 = 310;
const TOO_SMALL: i32 = -326;
/// Bound on exponents: no string has this number of digits.
const MAX_EXPONENT: i32 = 99_999;
/// Bound on iterations over the limbs: each integer word takes a pass over the integer part, each
/// fraction word a pass over all limbs.
const ROUNDS: u32 = 34 * LIMBS as u32;

/// Offsets in the work area: the three highest words, a word that is nonzero if anything below is
/// not zero, then the limbs of 4 bytes.
const WORDS: i16 = 0;
const REST: i16 = 24;
const FIRST_LIMB: i16 = 32;
/// Size of the work area in bytes.
pub const AREA: u32 = FIRST_LIMB as u32 + 4 * LIMBS as u32;

const INFINITY: u64 = 0x7ff0_0000_0000_0000;
const NAN: u64 = 0xfff8_0000_0000_0000;

/// `string_to_fp`, for a text in a slot of `most` bytes.
pub fn string_to_fp(most: u32) -> LirFunc {
    let contract = "\
The floating-point number at the beginning of a text, as the C library's strtod finds it, without
hexadecimal forms: blanks, a sign, digits with a point, an exponent; `inf`, `nan`; 0 for no number.
text: a slot with 4 more readable bytes. area: the work area.
Cost: an iteration for each byte, for each digit, and for each limb and word of the number.";
    build("string_to_fp", contract, ["text", "area"], |f, p| {
        let [text, area] = p;
        let scan = DecimalText { f, text, most };
        let position = f.var("at", 0);
        f.if_(is_blank(f, scan.byte(position.get())).ne(0), || {
            f.repeat(most, || {
                position.set(position + 1);
                f.break_if(is_blank(f, scan.byte(position.get())).eq(0));
            });
        });
        let sign = f.var("sign", 0);
        scan.sign(position, sign);
        let sign = (sign << 63).opaque();
        f.if_(scan.byte(position.get()).gt(i32::from(b'9')), || {
            scan.names(position.get(), sign);
        });
        let digits = scan.digits(position);
        f.ret_if(digits.count.eq(0), 0);
        let end = position.get().opaque();
        let place = digits.place + scan.exponent(position);
        f.ret_if(digits.first.eq(0), sign);
        f.ret_if(place.sge(TOO_LARGE), sign | f.constant(INFINITY));
        f.ret_if(place.sle(TOO_SMALL), sign);
        for word in [WORDS, WORDS + 8, WORDS + 16, REST] {
            area.store_u64(word, 0);
        }
        let number = DecimalNumber {
            place,
            first: digits.first - 1,
            end,
        };
        let limbs = scan.fill(area, number);
        let scale = to_words(f, area, limbs);
        round(f, area, scale, sign);
    })
}

/// 1 for a space and the bytes 9 to 13, else 0.
fn is_blank<'b>(f: &'b Builder, byte: Scalar<'b>) -> Scalar<'b> {
    let blank = f.var("blank", 0);
    f.if_(byte.eq(i32::from(b' ')), || blank.set(1));
    f.if_((byte - 9).lt(5), || blank.set(1));
    blank.get().opaque()
}

/// The text.
#[derive(Clone, Copy)]
struct DecimalText<'b> {
    f: &'b Builder,
    text: Scalar<'b>,
    most: u32,
}

/// The digits of a number.
struct DecimalDigits<'b> {
    /// How many there are.
    count: Scalar<'b>,
    /// Position of the first one that is not zero, plus 1; 0 for none.
    first: Scalar<'b>,
    /// Its decimal place: 0 for units, -1 for tenths.
    place: Scalar<'b>,
}

/// A number to store in limbs.
struct DecimalNumber<'b> {
    /// Decimal place of the first digit, with the exponent.
    place: Scalar<'b>,
    /// Its position, and the one behind the last digit.
    first: Scalar<'b>,
    end: Scalar<'b>,
}

/// The number in limbs: the first one, and the one behind the last.
struct LimbArray<'b> {
    top: Scalar<'b>,
    end: Scalar<'b>,
}

impl<'b> DecimalText<'b> {
    /// A byte of the text; 0 behind its end.
    fn byte(&self, position: Scalar<'b>) -> Scalar<'b> {
        let byte = self.f.var("byte", 0);
        self.f.if_(position.lt(self.most.cast_signed()), || {
            byte.set((self.text + position).load_u8(0));
        });
        byte.get()
    }

    /// Steps over a sign; `negative` = 1 for a minus.
    fn sign(&self, position: Var<'b>, negative: Var<'b>) {
        let f = self.f;
        let byte = self.byte(position.get());
        f.if_(byte.eq(i32::from(b'+')), || position.set(position + 1));
        f.if_(byte.eq(i32::from(b'-')), || {
            negative.set(1);
            position.set(position + 1);
        });
        position.set(position.get().opaque());
    }

    /// Returns what `inf` or `nan` stands for, or 0.
    fn names(&self, position: Scalar<'b>, sign: Scalar<'b>) {
        let f = self.f;
        let word = |bytes: [u8; 4]| f.constant(u32::from_ne_bytes(bytes).into());
        f.ret_if(position.ge(self.most.cast_signed()), 0);
        let name = (self.text + position).load_bytes(Size::U32, 0);
        let name = (name & word([0xff, 0xff, 0xff, 0])) | word([0x20, 0x20, 0x20, 0]);
        f.ret_if(name.eq(word(*b"inf\0")), sign | f.constant(INFINITY));
        f.ret_if(name.eq(word(*b"nan\0")), f.constant(NAN));
        f.ret(0);
    }

    /// Scans the digits, with a point among them.
    fn digits(&self, position: Var<'b>) -> DecimalDigits<'b> {
        let f = self.f;
        let start = position.get();
        // Positions plus 1; 0 for none.
        let [first, point] = ["first", "point"].map(|n| f.var(n, 0));
        f.repeat(self.most, || {
            f.break_if(position.ge(self.most.cast_signed()));
            let byte = (self.text + position).load_u8(0);
            let digit = byte - i32::from(b'0');
            f.if_(digit.gt(9), || {
                f.break_if(byte.ne(i32::from(b'.')));
                f.break_if(point.ne(0));
                point.set(position + 1);
                position.set(position + 1);
                f.continue_();
            });
            f.if_(first.eq(0), || {
                f.if_(digit.ne(0), || first.set(position + 1));
            });
            position.set(position + 1);
        });
        let count = f.var("count", position - start);
        // The position of the point, or where it would be.
        let units = f.var("units", position);
        f.if_(point.ne(0), || {
            count.set(count - 1);
            units.set(point - 1);
        });
        let place = f.var("place", units - first);
        f.if_(first.gt(units), || place.set(place + 1));
        DecimalDigits {
            count: count.get().opaque(),
            first: first.get().opaque(),
            place: place.get().opaque(),
        }
    }

    /// The exponent behind the digits; 0 if there is none.
    fn exponent(&self, position: Var<'b>) -> Scalar<'b> {
        let f = self.f;
        let [exponent, negative] = ["exponent", "negative"].map(|n| f.var(n, 0));
        let mark = self.byte(position.get()) | 0x20;
        f.if_(mark.eq(i32::from(b'e')), || {
            position.set(position + 1);
            self.sign(position, negative);
            f.repeat(self.most, || {
                let digit = self.byte(position.get()) - i32::from(b'0');
                f.break_if(digit.gt(9));
                let next = exponent * 10 + digit;
                f.if_(next.le(MAX_EXPONENT), || exponent.set(next));
                position.set(position + 1);
            });
            f.if_(negative.ne(0), || {
                exponent.set(f.constant(0) - exponent);
            });
        });
        exponent.get().opaque()
    }

    /// Stores the digits in limbs.
    fn fill(&self, area: Scalar<'b>, number: DecimalNumber<'b>) -> LimbArray<'b> {
        let DecimalNumber { place, first, end } = number;
        let f = self.f;
        // A number without an integer part starts at the first digit of its fraction.
        let place_of_digit = f.var("digit", place | place.alu(Width::W64, AluOp::Arsh, 63));
        let top = (f.constant(UNITS as u64 + 1) - (place_of_digit + LIMB) / LIMB).opaque();
        let (next, index) = (f.var("next", first), f.var("index", top));
        let limb = f.var("limb", 0);
        f.repeat(3 * self.most + 1000, || {
            let digit = f.var("value", 0);
            f.if_(place.sge(place_of_digit), || {
                f.if_(next.lt(end), || {
                    f.break_if(next.ge(self.most.cast_signed()));
                    let byte = (self.text + next).load_u8(0);
                    next.set(next + 1);
                    f.if_(byte.eq(i32::from(b'.')), || f.continue_());
                    digit.set(byte & 15);
                });
            });
            let value = limb * 10 + digit;
            limb.set(value);
            // A limb ends at each ninth place; the added thousands make the place positive.
            f.if_(((place_of_digit + 1000 * LIMB) % LIMB).eq(0), || {
                f.if_else(
                    index.lt(LIMBS),
                    || {
                        limb_at(area, index.get()).store_bytes(Size::U32, FIRST_LIMB, value);
                        index.set(index + 1);
                    },
                    || add_rest(area, value),
                );
                limb.set(0);
                f.if_(place_of_digit.sle(0), || f.break_if(next.ge(end)));
            });
            place_of_digit.set(place_of_digit - 1);
        });
        LimbArray {
            top,
            end: index.get(),
        }
    }
}

/// Adds to what is below the words.
fn add_rest<'b>(area: Scalar<'b>, value: Scalar<'b>) {
    area.store_u64(REST, area.load_u64(REST) | value);
}

/// The address at which [`FIRST_LIMB`] is a limb.
fn limb_at<'b>(area: Scalar<'b>, index: Scalar<'b>) -> Scalar<'b> {
    area + (index << 2)
}

/// Converts limbs to binary words; returns the scale: the value is below 2^32 to the power of it, and
/// at least 2^32 to the power of it minus 1.
fn to_words<'b>(f: &'b Builder, area: Scalar<'b>, limbs: LimbArray<'b>) -> Scalar<'b> {
    let words = f.var("words", 0);
    whole_words(f, area, limbs.top, words);
    let scale = f.var("scale", words);
    f.if_else(
        words.ge(3),
        || {
            let index = f.var("index", UNITS + 1);
            f.repeat(LIMBS as u32, || {
                f.break_if(index.ge(limbs.end));
                f.break_if(index.ge(LIMBS));
                add_rest(
                    area,
                    limb_at(area, index.get()).load_bytes(Size::U32, FIRST_LIMB),
                );
                index.set(index + 1);
            });
        },
        || fraction_words(f, area, limbs.end, (words, scale)),
    );
    scale.get().opaque()
}

/// Divides the integer part by 2^32 again and again; each remainder is the next word.
fn whole_words<'b>(f: &'b Builder, area: Scalar<'b>, top: Scalar<'b>, words: Var<'b>) {
    let (index, carry, top) = (f.var("index", top), f.var("carry", 0), f.var("top", top));
    f.repeat(ROUNDS, || {
        f.break_if(top.gt(UNITS));
        f.break_if(index.gt(UNITS));
        let limb = limb_at(area, index.get());
        let value = carry * BASE + limb.load_bytes(Size::U32, FIRST_LIMB);
        let quotient = value >> 32;
        limb.store_bytes(Size::U32, FIRST_LIMB, quotient);
        let remainder = value.ext(ExtOp::Zext, Size::U32);
        f.if_(quotient.eq(0), || {
            f.if_(index.eq(top), || top.set(top + 1));
        });
        f.if_(index.ne(UNITS), || {
            carry.set(remainder);
            index.set(index + 1);
            f.continue_();
        });
        add_rest(area, area.load_u64(WORDS + 16));
        area.store_u64(WORDS + 16, area.load_u64(WORDS + 8));
        area.store_u64(WORDS + 8, area.load_u64(WORDS));
        area.store_u64(WORDS, remainder);
        carry.set(0);
        index.set(top);
        words.set(words + 1);
    });
}

/// Multiplies the fraction by 2^32 again and again; each carry is the next word, up to the third.
fn fraction_words<'b>(
    f: &'b Builder,
    area: Scalar<'b>,
    end: Scalar<'b>,
    (words, scale): (Var<'b>, Var<'b>),
) {
    let (index, carry, end) = (
        f.var("index", end - 1),
        f.var("carry", 0),
        f.var("end", end),
    );
    f.repeat(ROUNDS, || {
        f.break_if(end.le(UNITS + 1));
        f.break_if(words.ge(3));
        f.break_if(index.ge(LIMBS));
        let limb = limb_at(area, index.get());
        let value = (limb.load_bytes(Size::U32, FIRST_LIMB) << 32) + carry;
        let remainder = value % BASE;
        let quotient = value / BASE;
        limb.store_bytes(Size::U32, FIRST_LIMB, remainder);
        f.if_(remainder.eq(0), || {
            f.if_((index + 1).eq(end), || end.set(index));
        });
        f.if_(index.gt(UNITS + 1), || {
            carry.set(quotient);
            index.set(index - 1);
            f.continue_();
        });
        f.if_else(
            (words | quotient).eq(0),
            || scale.set(scale - 1),
            || {
                (area + (words << 3)).store_u64(WORDS, quotient);
                words.set(words + 1);
            },
        );
        carry.set(0);
        index.set(end - 1);
    });
    f.if_(end.gt(UNITS + 1), || area.store_u64(REST, 1));
}

/// Returns the number that the three words and the sticky word represent.
fn round<'b>(f: &'b Builder, area: Scalar<'b>, scale: Scalar<'b>, sign: Scalar<'b>) {
    let [high, middle, low] = [0, 8, 16].map(|offset| area.load_u64(WORDS + offset));
    // Leading zeros of 32 bits, without branches.
    let (mut zeros, mut rest) = (f.constant(0), high);
    for n in [16, 8, 4, 2, 1] {
        let some = (((rest >> (32 - n)) - 1) >> 63) * n;
        zeros = zeros + some;
        rest = rest << some;
    }
    let below = low << zeros;
    let bits = (((high << 32) | middle) << zeros) | (below >> 32);
    // The lowest bit becomes the sticky bit.
    let below = below.ext(ExtOp::Zext, Size::U32) | area.load_u64(REST) | (bits & 1);
    let bits = f.var("bits", bits >> 1);
    sticky(f, below.ne(0), bits);
    let exponent = f.var("exponent", (scale << 5) - zeros + 1022);
    f.ret_if(exponent.sgt(2046), sign | f.constant(INFINITY));
    // A subnormal number has fewer bits.
    f.if_(exponent.slt(1), || {
        let shift = f.constant(1) - exponent;
        exponent.set(1);
        f.if_else(
            shift.gt(62),
            || bits.set(1),
            || {
                let lost = bits & ((f.constant(1) << shift) - 1);
                bits.set(bits >> shift);
                sticky(f, lost.ne(0), bits);
            },
        );
    });
    let bits = bits.get();
    // Up if the bits behind are more than half, or half behind an odd number.
    let (behind, kept) = (bits & 0x3ff, bits >> 10);
    let up = (f.constant(0x200) - (behind + (kept & 1))) >> 63;
    f.ret(sign | (kept + up + ((exponent - 1) << 52)));
}

/// Sets the lowest bit if a test holds.
fn sticky<'b>(f: &'b Builder, test: Comparison<'b>, bits: Var<'b>) {
    f.if_(test, || bits.set(bits | 1));
    bits.set(bits.get().opaque());
}
