//! Strings of 16-bit and 32-bit units in memory, converted to UTF-8.

use spile_cast::Cast;

use crate::builder::{Builder, Scalar, Var, build};
use crate::func::LirFunc;
use crate::helpers::Helper;
use crate::op::Size;

/// Results of a conversion.
pub mod status {
    /// The text is whole, or cut where there was no more space.
    pub const READ: i32 = 0;
    /// A unit cannot be read.
    pub const FAULT: i32 = 1;
    /// A unit is no character.
    pub const INVALID: i32 = 2;
}

/// The first high surrogate; the low ones follow 0x400 units later.
const SURROGATES: i32 = 0xd800;

/// `NAME`, with a helper that reads memory, for units of a size and a text of less than `capacity` bytes.
pub fn utf(name: &str, helper: Helper, unit: Size, capacity: u32) -> LirFunc {
    let contract = "\
Converts a string in memory up to a unit 0; returns a status. Each unit is read by itself, so that
no memory behind the end is accessed.
address: of the string. to: zeros, as many bytes as fit.
Cost: an iteration for each unit.";
    build(name, contract, ["address", "to"], |f, p| {
        let [address, to] = p;
        let cell = f.slot(8);
        let (from, length) = (f.var("from", address), f.var("length", 0));
        // A high surrogate that waits for the low one, or 0.
        let high = f.var("high", 0);
        let result = f.var("result", status::READ);
        f.repeat(capacity, || {
            let fails = |test, status: i32| {
                f.if_(test, || {
                    result.set(status);
                    f.break_();
                });
            };
            let bytes = unit.bytes().cast_signed();
            cell.store_u64(0, 0);
            let size = f.constant(unit.bytes().into());
            let read = f.helper(helper, &[cell, size, from.get()]);
            fails(read.ne(0), status::FAULT);
            from.set(from + bytes);
            let code = f.var("code", cell.load_bytes(unit, 0));
            f.break_if(code.eq(0));
            let surrogate = code - SURROGATES;
            if unit == Size::U16 {
                f.if_else(
                    high.ne(0),
                    || {
                        let low = surrogate - 0x400;
                        fails(low.gt(0x3ff), status::INVALID);
                        code.set((high << 10) + low + (0x1_0000 - (SURROGATES << 10)));
                        high.set(0);
                    },
                    || {
                        f.if_(surrogate.le(0x3ff), || {
                            high.set(code);
                            f.continue_();
                        });
                        fails(surrogate.le(0x7ff), status::INVALID);
                    },
                );
            } else {
                fails(code.gt(0x10_ffff), status::INVALID);
                fails(surrogate.le(0x7ff), status::INVALID);
            }
            encode(f, to, code.get(), (length, capacity));
        });
        f.ret_if(result.ne(status::READ), result);
        // A high surrogate alone at the end; a full text hides it.
        f.ret_if(high.eq(0), status::READ);
        f.ret_if(length.ge(capacity.cast_signed() - 4), status::READ);
        f.ret(status::INVALID);
    })
}

/// Appends a character, or leaves the loop if there is no space.
fn encode<'b>(
    f: &'b Builder,
    to: Scalar<'b>,
    code: Scalar<'b>,
    (length, capacity): (Var<'b>, u32),
) {
    // The limit of each form, and the mark of its first byte.
    let forms = [(0x80, 0), (0x800, 0xc0), (0x1_0000, 0xe0), (i32::MAX, 0xf0)];
    for ((above, mark), bytes) in forms.into_iter().zip(1i32..) {
        f.if_(code.lt(above), || {
            f.break_if(length.sge(capacity.cast_signed() - bytes));
            f.break_if(length.ge(capacity.cast_signed()));
            let to = to + length;
            for index in 0..bytes {
                let mut byte = code >> (6 * (bytes - 1 - index));
                if index > 0 {
                    byte = byte & 0x3f;
                }
                to.store_u8(index.fit(), byte | if index > 0 { 0x80 } else { mark });
            }
            length.set(length + bytes);
            f.continue_();
        });
    }
}
