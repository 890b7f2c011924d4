//! Texts that grow: strings, numbers and bytes with C's widths, precisions and flags.
//!
//! In: where the host has the text ([`AppendLayout`]). Out: functions, each made by itself, since a host takes
//! those that it calls. They append to the text in the per-CPU area; a text that is longer than the
//! longest one is full, and takes nothing more.
//!
//! A width is a number of columns, negative for padding on the right. Padding is copied from runs of
//! spaces and zeros, so no function has a loop.

use super::numbers::{eight_hex, significant_hex, write_decimal, write_octal};
use super::quote::in_front_of_zero;
use super::strings::MAX_SLOT;
use crate::builder::{Builder, Scalar, Var, build};
use crate::func::{LirFunc, MemoryOperand, Module};
use crate::helpers::Helper;
use crate::op::{AluOp, ExtOp, Size, Width};

/// Flags of `append_number_BASE`. The byte above them is the sign of numbers that are not negative:
/// 0, a plus or a space.
pub mod flag {
    /// The number has a sign.
    pub const SIGNED: i32 = 1;
    /// Zeros fill up to the width.
    pub const ZERO: i32 = 8;
    /// The alternate form (`#`): `0x`, or `0` in octal.
    pub const MARK: i32 = 32;
    /// Capital letters.
    pub const UPPER: i32 = 64;
    /// Bit of the lowest bit of the sign.
    pub const SIGN_SHIFT: i32 = 8;
}

/// Bound on widths and precisions; all strings are shorter.
pub const MAX_COUNT: i32 = 65_536;

/// Bytes of the memory for digits.
pub const DIGITS: u32 = 48;
/// Bytes of the longest number's digits. Zeros follow, so that whole words can be copied.
const NUMBER: i32 = 24;

/// Where the host has what the functions need. Offsets are those of bytes in the per-CPU area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendLayout {
    /// The word with the length of the text so far.
    pub length: i32,
    /// The text, with memory behind it: three times the longest one.
    pub text: i32,
    /// Bytes of the longest text with its NUL.
    pub most: i32,
    /// Memory for digits, [`DIGITS`] bytes. The second half stays zero.
    pub digits: i32,
}

/// What the functions are written with.
#[derive(Clone, Copy)]
pub(super) struct TextAppender<'b> {
    f: &'b Builder,
    layout: AppendLayout,
    block: Scalar<'b>,
    /// The length.
    pub(super) length: Var<'b>,
}

impl<'b> TextAppender<'b> {
    /// Loads the length; returns if the text is full.
    pub(super) fn new(f: &'b Builder, layout: AppendLayout, block: Scalar<'b>) -> TextAppender<'b> {
        let length = (block + layout.length).load_u64(0);
        f.ret_if(length.gt(layout.most), 0);
        let length = f.var("length", length);
        TextAppender {
            f,
            layout,
            block,
            length,
        }
    }

    /// The address behind the text.
    pub(super) fn end(&self) -> Scalar<'b> {
        self.block + self.layout.text + self.length.get()
    }

    /// Stores the length.
    pub(super) fn store_length(&self) {
        (self.block + self.layout.length).store_u64(0, self.length);
    }

    /// Adds to the length; returns if the text is full.
    fn grow(&self, bytes: Scalar<'b>) {
        self.length.set(self.length + bytes);
        self.f.if_(self.length.gt(self.layout.most), || {
            self.store_length();
            self.f.ret(0);
        });
    }

    /// Appends this number of bytes of a run, none if the number is negative.
    fn run(&self, run: &str, count: Scalar<'b>) {
        let f = self.f;
        f.if_(count.sgt(0), || {
            let bytes = f.at_most(count, self.layout.most);
            f.helper(Helper::Read, &[self.end(), bytes, f.data(run)]);
            self.grow(bytes);
        });
    }

    /// Copies a text of less than `size` bytes to the end; gives its length. Returns if it cannot be
    /// read.
    fn copy(&self, from: Scalar<'b>, size: Scalar<'b>) -> Scalar<'b> {
        let with_nul = self.f.helper(Helper::ReadText, &[self.end(), size, from]);
        self.f.ret_if(with_nul.sle(0), 0);
        with_nul - 1
    }
}

/// The runs that functions copy from.
fn runs(names: &[(&str, u8)], func: LirFunc) -> Module {
    names
        .iter()
        .fold(Module::from(func), |module, (name, byte)| {
            module.with_data(name, vec![*byte; MAX_SLOT as usize])
        })
}

/// `append_text`.
pub fn append_text(layout: AppendLayout) -> Module {
    let contract = "\
Appends a text, padded with spaces to a width.
block: the processor's. text: a slot of `size` bytes, of which the last one counts as NUL. width: columns.
Cost: a copy; with a width at most three.";
    let params = ["block", "text", "size", "width"];
    let func = build("append_text", contract, params, |f, p| {
        let [block, text, size, width] = p;
        let t = TextAppender::new(f, layout, block);
        f.if_(width.sgt(0), || {
            // The text is copied first to measure it; padding then overwrites the copy.
            let length = t.copy(text, size);
            t.run("spaces", width - length);
        });
        let length = t.copy(text, size);
        t.length.set(t.length + length);
        t.store_length();
        f.if_(width.slt(0), || {
            let width = f.at_most(f.constant(0) - width, MAX_COUNT);
            f.if_(width.gt(length), || {
                f.ret_if(t.length.gt(layout.most), 0);
                t.run("spaces", width - length);
                t.store_length();
            });
        });
        f.ret(0);
    });
    runs(&[("spaces", b' ')], func)
}

/// `append_bytes`.
pub fn append_bytes(layout: AppendLayout) -> Module {
    let contract = "\
Appends the lowest bytes of a word, first the lowest one. A zero among them ends the text, and so do the
zeros that fill up to the width.
value: the word. precision, width: the first of them that is 1, 2, 4 or 8 is the number of bytes, else it
is 8. A negative width fills on the right.
Cost: about 60 instructions.";
    let params = ["value", "precision", "width"];
    let func = build("append_bytes", contract, params, |f, p| {
        let [value, precision, width] = p;
        let block = f.addr(MemoryOperand::Cpu(0));
        let t = TextAppender::new(f, layout, block);
        let size = f.var("size", 8);
        let sign = width.alu(Width::W64, AluOp::Arsh, 63);
        for amount in [(width ^ sign) - sign, precision] {
            for bytes in [1, 2, 4, 8] {
                f.if_(amount.eq(bytes), || size.set(bytes));
            }
        }
        let size = size.get().opaque();
        let unused = f.constant(64) - (size << 3);
        let word = (value << unused) >> unused;
        let fill = (f.constant(0) - width).alu(Width::W64, AluOp::Sub, size);
        let full = f.var("full", 1);
        f.if_(width.sle(size), || {
            t.end().store_u64(0, word);
            let count = in_front_of_zero(f, word).bound(15);
            f.if_else(
                count.lt(size),
                || t.length.set(t.length + count),
                || {
                    t.length.set(t.length + size.bound(15));
                    f.if_(fill.sle(0), || full.set(0));
                },
            );
        });
        f.if_(full.ne(0), || t.length.set(layout.most + 1));
        t.store_length();
        f.ret(0);
    });
    Module::from(func)
}

/// `append_number_BASE`.
pub fn append_number(layout: AppendLayout, base: u32) -> Module {
    let contract = "\
Appends a number.
precision: the smallest number of digits; value: the number; flags: those of `flag`; width: columns. A
sign belongs to decimal numbers, a mark and capital letters to others.
Cost: about 160 instructions, 240 for large decimal numbers; a copy for each side that is padded.";
    let params = ["precision", "value", "flags", "width"];
    let func = build(
        &format!("append_number_{base}"),
        contract,
        params,
        |f, p| {
            let [precision, value, flags, width] = p;
            let block = f.addr(MemoryOperand::Cpu(0));
            let t = TextAppender::new(f, layout, block);
            let buffer = block + layout.digits;
            let (digits, prefix) = match base {
                8 => {
                    let mark = (flags >> flag::MARK.trailing_zeros().cast_signed()) & 1;
                    let prefix = (mark * i32::from(b'0'), mark);
                    (write_octal(f, buffer, value), prefix)
                }
                16 => hexadecimal(f, (buffer, value), flags),
                _ => decimal(f, (buffer, value), flags),
            };
            let digits = digits.bound(31);
            let (zeros, behind) = (f.var("zeros", 0), f.var("behind", 0));
            f.if_(precision.sgt(digits), || {
                zeros.set(f.at_most(precision, MAX_COUNT) - digits);
            });
            f.if_(width.ne(0), || {
                let columns = digits + zeros.get() + prefix.1;
                f.if_else(
                    width.slt(0),
                    || {
                        let opposite = f.constant(0) - width;
                        behind.set(f.at_most(opposite, MAX_COUNT) - columns);
                    },
                    || {
                        let missing = f.at_most(width, MAX_COUNT) - columns;
                        f.if_(missing.sgt(0), || {
                            f.if_else(
                                flags.has(flag::ZERO),
                                || zeros.set(zeros + missing),
                                || t.run("spaces", missing),
                            );
                        });
                    },
                );
            });
            // The verifier would follow the rest once for each way to get here.
            let (zeros, behind) = (zeros.get().opaque(), behind.get().opaque());
            t.end().store_bytes(Size::U32, 0, prefix.0);
            t.length.set(t.length + prefix.1.bound(3));
            t.run("zeros", zeros);
            let end = t.end();
            let from = first(f, buffer, digits);
            for i in 0..3 {
                end.store_u64(8 * i, from.load_u64(8 * i));
            }
            t.grow(digits);
            t.run("spaces", behind);
            t.store_length();
            f.ret(0);
        },
    );
    runs(&[("spaces", b' '), ("zeros", b'0')], func)
}

/// The address of the first of the digits. The verifier knows of at most 31.
fn first<'b>(f: &'b Builder, buffer: Scalar<'b>, digits: Scalar<'b>) -> Scalar<'b> {
    buffer + (f.constant(31) - digits) + (NUMBER - 31)
}

/// Writes decimal digits of a number that may have a sign; gives their number, and the sign with its
/// number of characters.
fn decimal<'b>(
    f: &'b Builder,
    (buffer, value): (Scalar<'b>, Scalar<'b>),
    flags: Scalar<'b>,
) -> (Scalar<'b>, (Scalar<'b>, Scalar<'b>)) {
    let negative = (value >> 63) & flags & flag::SIGNED;
    let negative_mask = f.constant(0) - negative;
    let digits = write_decimal(f, buffer, (value ^ negative_mask) + negative);
    let positive = (flags >> flag::SIGN_SHIFT) & 0xff;
    let sign = positive ^ ((positive ^ i32::from(b'-')) & negative_mask);
    (digits, (sign, (f.constant(0) - sign) >> 63))
}

/// Writes hexadecimal digits; gives their number, and the mark with its number of characters.
fn hexadecimal<'b>(
    f: &'b Builder,
    (buffer, value): (Scalar<'b>, Scalar<'b>),
    flags: Scalar<'b>,
) -> (Scalar<'b>, (Scalar<'b>, Scalar<'b>)) {
    // Letters and the mark's x are this much below the small ones.
    let case = (flags & flag::UPPER) >> 1;
    let letters = f.constant(u64::from(b'a' - b'0' - 10)) - case;
    let last = buffer + (NUMBER - 16);
    for (half, offset) in [(value >> 32, 0), (value.ext(ExtOp::Zext, Size::U32), 8)] {
        last.store_u64(offset, eight_hex(f, half, letters));
    }
    let mark = (flags >> flag::MARK.trailing_zeros().cast_signed()) & 1;
    let text = f.constant(u64::from(u16::from_le_bytes(*b"0x"))) - (case << 8);
    (significant_hex(f, value), (mark * text, mark << 1))
}

/// `append_hex`.
pub fn append_hex(layout: AppendLayout) -> Module {
    let contract = "\
Appends a number in hexadecimal.
number: the number. mark: `0x` comes first if it has `flag::MARK`.
Cost: about 90 instructions.";
    let func = build("append_hex", contract, ["number", "mark"], |f, p| {
        let [number, mark] = p;
        let block = f.addr(MemoryOperand::Cpu(0));
        let t = TextAppender::new(f, layout, block);
        let buffer = block + layout.digits;
        let (digits, (text, bytes)) = hexadecimal(f, (buffer, number), mark & flag::MARK);
        t.end().store_bytes(Size::U16, 0, text);
        t.length.set(t.length + bytes.bound(3));
        let digits = digits.bound(31);
        let from = first(f, buffer, digits);
        let end = t.end();
        for i in 0..2 {
            end.store_u64(8 * i, from.load_u64(8 * i));
        }
        t.length.set(t.length + digits);
        t.store_length();
        f.ret(0);
    });
    Module::from(func)
}
