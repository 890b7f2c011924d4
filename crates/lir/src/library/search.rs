//! Texts: find, replace, the next token. Each function is made for the widths of its slots, which
//! bound its accesses.

use spile_cast::Cast;

use super::strings::every;
use crate::builder::{Builder, Scalar, Var, build};
use crate::func::LirFunc;
use crate::helpers::Helper;

/// Words of a part, or of delimiters, that are compared without a loop.
const IN_POSITION: u32 = 4;

/// Offsets of the words through which `token` gets and gives positions.
pub mod token {
    /// Where the search starts.
    pub const FROM: i16 = 0;
    /// The token's first byte; -1 if there is no token.
    pub const START: i16 = 8;
    /// The byte behind the token.
    pub const END: i16 = 16;
    /// Where the next search starts.
    pub const NEXT: i16 = 24;
}

/// `find_WIDE_PART`, for a text in a slot of `wide` bytes and a part in one of `part_wide` bytes.
pub fn find(wide: u32, part_wide: u32) -> LirFunc {
    let contract = "\
The first position of a text in another one, plus 1; 0 if there is none. The empty text is at 0.
text: a slot, with as many readable bytes behind it as the part has; length: of that text, not known
to the verifier. part, part_length: the same for the text to find.
Cost: an iteration for each position, and one for each further word of the part that is equal there.";
    let params = ["text", "length", "part", "part_length"];
    let name = format!("find_{wide}_{part_wide}");
    build(&name, contract, params, |f, p| {
        let [text, length, part, part_length] = p;
        f.ret_if(part_length.eq(0), 1);
        f.ret_if(part_length.gt(length), 0);
        let last = length - part_length;
        let part = SlotText {
            address: part,
            length: part_length,
            wide: part_wide,
        };
        let position = f.var("position", 0);
        f.repeat(wide, || {
            f.break_if(position.gt(last));
            f.break_if(position.ge(wide.cast_signed()));
            let same = begins(f, text + position, part);
            f.break_if(same.ne(0));
            position.set(position + 1);
        });
        f.ret_if(position.gt(last), 0);
        f.ret(position + 1);
    })
}

/// A text in a slot, at its address: its length, which is not 0, and the slot's bytes.
#[derive(Clone, Copy)]
struct SlotText<'b> {
    address: Scalar<'b>,
    length: Scalar<'b>,
    wide: u32,
}

/// Whether the text at `here` begins with a part. The first words are compared without a loop.
fn begins<'b>(f: &'b Builder, text: Scalar<'b>, part: SlotText<'b>) -> Var<'b> {
    let same = f.var("same", 0);
    begins_from(f, text, part, (0, same));
    same
}

/// Compares from a word on.
fn begins_from<'b>(
    f: &'b Builder,
    text: Scalar<'b>,
    part: SlotText<'b>,
    (word, same): (u32, Var<'b>),
) {
    // The bytes of the last word behind the part do not count.
    let last = |differ: Scalar<'b>, left: Scalar<'b>| {
        let unused = ((f.constant(8) - left) << 3) & 63;
        f.if_((differ << unused).eq(0), || same.set(1));
    };
    let offset = 8 * word.cast_signed();
    if word == IN_POSITION {
        let offset = f.var("at", offset);
        f.repeat(part.wide / 8, || {
            f.break_if(offset.gt(part.wide.cast_signed() - 8));
            let differ = (text + offset).load_u64(0) ^ (part.address + offset).load_u64(0);
            let left = part.length - offset;
            f.if_(left.gt(8), || {
                f.break_if(differ.ne(0));
                offset.set(offset + 8);
                f.continue_();
            });
            last(differ, left);
            f.break_();
        });
        return;
    }
    let differ = text.load_u64(offset.fit()) ^ part.address.load_u64(offset.fit());
    if 8 * (word + 1) == part.wide {
        last(differ, part.length - offset);
        return;
    }
    f.if_else(
        part.length.gt(offset + 8),
        || {
            f.if_(differ.eq(0), || {
                begins_from(f, text, part, (word + 1, same));
            });
        },
        || last(differ, part.length - offset),
    );
}

/// The widths of the slots of `replace`.
#[derive(Debug, Clone, Copy)]
pub struct Replace {
    /// The text.
    pub text: u32,
    /// The part to search for.
    pub part: u32,
    /// What replaces it.
    pub new: u32,
    /// The length of the result from which nothing more is appended.
    pub capacity: u32,
}

/// `replace_TEXT_PART_NEW`.
pub fn replace(widths: Replace) -> LirFunc {
    let contract = "\
Writes a text with each occurrence of a part replaced; returns the length of the result.
text: a slot, with as many readable bytes behind it as the part has. part, part_length: the part, of
a length that the verifier does not know; the empty part does not occur. new: the replacement.
out: zeros; capacity and the width of the replacement behind it.
Cost: an iteration for each byte that stays and each occurrence.";
    let params = ["text", "part", "part_length", "new", "out"];
    let Replace {
        text: wide,
        part: part_wide,
        new: new_wide,
        capacity,
    } = widths;
    let name = format!("replace_{wide}_{part_wide}_{new_wide}");
    build(&name, contract, params, |f, p| {
        let [text, part, part_length, new, out] = p;
        let (position, length) = (f.var("at", 0), f.var("length", 0));
        f.repeat(wide, || {
            f.break_if(position.ge(wide.cast_signed()));
            f.break_if(length.ge(capacity.cast_signed()));
            let (text_rest, to) = (text + position, out + length);
            let byte = text_rest.load_u8(0);
            f.break_if(byte.eq(0));
            f.if_(part_length.ne(0), || {
                let same = begins(
                    f,
                    text_rest,
                    SlotText {
                        address: part,
                        length: part_length,
                        wide: part_wide,
                    },
                );
                f.if_(same.ne(0), || {
                    let size = f.constant(new_wide.into());
                    let copied = f.helper(Helper::ReadText, &[to, size, new]);
                    f.if_(copied.sgt(0), || length.set(length + copied - 1));
                    position.set(position + part_length);
                    f.continue_();
                });
            });
            to.store_u8(0, byte);
            position.set(position + 1);
            length.set(length + 1);
        });
        f.ret(length);
    })
}

/// `token_DELIMITERS`, for delimiters in a slot of `wide` bytes and a text in one of `most` bytes.
pub fn next_token(wide: u32, most: u32) -> LirFunc {
    let contract = "\
Finds the next token of a text: bytes that are no delimiters.
text, delimiters: slots. words: the position from which to search, and the positions that are found.
Cost: an iteration for each byte, and one for each further word of delimiters that does not have it.";
    let params = ["text", "delimiters", "words"];
    build(&format!("token_{wide}"), contract, params, |f, p| {
        let [text, delimiters, words] = p;
        let position = f.var("at", words.load_u64(token::FROM));
        let start = f.var("start", -1);
        f.repeat(most, || {
            f.break_if(position.ge(most.cast_signed()));
            let byte = (text + position).load_u8(0);
            f.break_if(byte.eq(0));
            let among = among(f, byte, (delimiters, wide));
            f.if_else(
                among.ne(0),
                || f.break_if(start.sge(0)),
                || f.if_(start.slt(0), || start.set(position)),
            );
            position.set(position + 1);
        });
        words.store_u64(token::START, start);
        words.store_u64(token::END, position);
        words.store_u64(token::NEXT, position);
        // The delimiter behind the token is skipped.
        f.ret_if(position.ge(most.cast_signed()), 0);
        f.ret_if((text + position).load_u8(0).eq(0), 0);
        words.store_u64(token::NEXT, position + 1);
        f.ret(0);
    })
}

/// Nonzero if a text in a slot of `wide` bytes has this byte, which is not zero.
fn among<'b>(f: &'b Builder, byte: Scalar<'b>, text: (Scalar<'b>, u32)) -> Var<'b> {
    let present = f.var("among", 0);
    among_from(f, byte * f.constant(every(1)), text, (0, present));
    present
}

/// Compares with the bytes from a word on.
fn among_from<'b>(
    f: &'b Builder,
    each: Scalar<'b>,
    (text, wide): (Scalar<'b>, u32),
    (n, marks): (u32, Var<'b>),
) {
    if n == IN_POSITION {
        let offset = f.var("next", 8 * n.cast_signed());
        f.repeat(wide / 8, || {
            f.break_if(offset.gt(wide.cast_signed() - 8));
            let word = (text + offset).load_u64(0);
            marks.set(zero_bytes(f, word ^ each));
            f.break_if(marks.ne(0));
            f.break_if((word >> 56).eq(0));
            offset.set(offset + 8);
        });
        return;
    }
    let word = text.load_u64(8 * n.fit::<i16>());
    marks.set(zero_bytes(f, word ^ each));
    if 8 * (n + 1) < wide {
        f.if_(marks.eq(0), || {
            f.if_((word >> 56).ne(0), || {
                among_from(f, each, (text, wide), (n + 1, marks));
            });
        });
    }
}

/// Nonzero if a byte of the word is zero; its lowest bit is then the top bit of the first one.
fn zero_bytes<'b>(f: &'b Builder, word: Scalar<'b>) -> Scalar<'b> {
    (word - f.constant(every(1))) & (word ^ -1) & f.constant(every(0x80))
}
