//! Texts, vectors, times and bytes in the program's memory.

use super::super::quote;
use super::{ArgumentLayout, BUFFER, MAX_ARGV, function, kind, time};
use crate::builder::Scalar;
use crate::func::LirFunc;
use crate::helpers::Helper;

pub(super) fn put_escaped(layout: &ArgumentLayout) -> LirFunc {
    let contract = "\
Appends the staged text with escapes.
from: its first byte in the staging area, 0 or 1.
Cost: those of the escapes and of append_text.";
    function(layout, ("put_escaped", contract), ["from"], |t, [from]| {
        let to = t.block + layout.quoted;
        let most = layout.most.cast_unsigned();
        // Not a call: the kernel allows eight frames, which a text of a vector needs.
        quote::write_escaped(t.f, (t.staged(0) + from.bound(1), to), (most, most));
        t.text(to, layout.most);
    })
}

pub(super) fn put_user(layout: &ArgumentLayout) -> LirFunc {
    let contract = "\
Appends a text of the program in quotes, or its address if it cannot be read.
address: of the text; 0 is written as 0x0.
Cost: a read of up to the longest text, and put_escaped.";
    let name = ("put_user", contract);
    function(layout, name, ["address"], |t, [address]| {
        let f = t.f;
        let bad = || {
            t.put(kind::HEX, address);
            f.ret(0);
        };
        f.if_(address.eq(0), bad);
        // A text that is full needs no read.
        f.ret_if((t.block + layout.length).load_u64(0).gt(layout.most), 0);
        let args = [t.staged(0), t.f.number(layout.most), address];
        let length = f.helper(Helper::ReadUserText, &args);
        f.if_(length.slt(0), || {
            let capacity = t.f.number(layout.most - 1);
            let status = f.call("user_text", &[capacity, address, t.f.number(0)]);
            f.if_(status.ne(0), || {
                if let Some(defer) = &layout.defer {
                    f.if_(status.eq(defer.absent), || {
                        let allowed = (t.block + defer.allowed).load_u64(0);
                        f.if_(allowed.ne(0), || {
                            let args = [address, capacity, t.f.number(defer.quoted)];
                            f.ret_if(f.call("user_defer", &args).eq(0), 0);
                        });
                    });
                }
                bad();
            });
        });
        t.literal("\"");
        f.call("put_escaped", &[t.f.number(0)]);
        t.literal("\"");
    })
}

pub(super) fn put_vector(layout: &ArgumentLayout) -> LirFunc {
    let contract = "\
Appends the texts of a vector of addresses that ends with 0, at most 16 of them. An element that cannot
be read is written as its address and ends the list.
address: of the vector. narrow: 1 for addresses of 32 bits, else 0.
Cost: put_user for each text.";
    let params = ["address", "narrow"];
    let name = ("put_vector", contract);
    function(layout, name, params, |t, [address, narrow]| {
        let f = t.f;
        let narrow = narrow & 1;
        // The kernel's verifier learns no range from a shift by a variable.
        let bytes = t.f.number(8) - (narrow << 2);
        t.literal("[");
        f.if_(address.eq(0), || {
            t.literal("]");
            f.ret(0);
        });
        let element = f.var("at", address);
        let count = f.var("count", 0);
        f.repeat(MAX_ARGV, || {
            let bytes = bytes.bound(8);
            let args = [t.staged(0), bytes, element.get()];
            f.if_(f.helper(Helper::ReadUser, &args).ne(0), || {
                let status = f.call("user_text", &[bytes, element.get(), t.f.number(1)]);
                f.if_(status.ne(0), || {
                    f.if_(count.ne(0), || t.literal(", "));
                    t.put(kind::HEX, element.get());
                    f.break_();
                });
            });
            let unused = narrow << 5;
            let text = (t.staged(0).load_u64(0) << unused) >> unused;
            f.break_if(text.eq(0));
            f.if_(count.ne(0), || t.literal(", "));
            f.call("put_user", &[text]);
            element.set(element + bytes);
            count.set(count + 1);
        });
        f.if_(count.eq(MAX_ARGV.cast_signed()), || t.literal(", ..."));
        t.literal("]");
    })
}

pub(super) fn put_moment(layout: &ArgumentLayout) -> LirFunc {
    let contract = "\
Appends a staged time in seconds, with the digits of its fraction.
from: byte of the staging area, at most 16. bits: those of the descriptor.
Cost: two numbers.";
    let name = ("put_moment", contract);
    function(layout, name, ["from", "bits"], |t, [from, bits]| {
        let f = t.f;
        let moment = t.staged(0) + from.bound(31);
        let [seconds, fraction] = ["seconds", "fraction"].map(|name| f.var(name, 0));
        f.if_else(
            (bits & i32::from(time::NARROW)).ne(0),
            || {
                seconds.set(moment.load_s32(0));
                fraction.set(moment.load_s32(4));
            },
            || {
                seconds.set(moment.load_u64(0));
                fraction.set(moment.load_u64(8));
            },
        );
        let fraction = fraction.get();
        t.put(kind::SIGNED, seconds.get());
        t.literal(".");
        f.if_else(
            (bits & i32::from(time::MICRO | time::TIMER)).ne(0),
            || t.padded(10, fraction, 6),
            || t.padded(10, fraction, 9),
        );
    })
}

pub(super) fn put_time(layout: &ArgumentLayout) -> LirFunc {
    let contract = "\
Appends `[1.000000002]`, or interval and value of a timer.
descriptor: has the bits of `time` from bit 16 on. address: of the time.
Cost: a read and two numbers, for a timer four.";
    let params = ["descriptor", "address"];
    let name = ("put_time", contract);
    function(layout, name, params, |t, [descriptor, address]| {
        let f = t.f;
        t.literal_if(address.eq(0), "NULL");
        let bits = descriptor >> 16;
        let moment = t.f.number(16) - ((bits & i32::from(time::NARROW)) << 3);
        let timer = (bits >> 2) & 1;
        let bad = || t.put(kind::HEX, address);
        t.read((moment << timer).bound(63), address, bad);
        t.literal("[");
        f.call("put_moment", &[t.f.number(0), bits]);
        f.if_(timer.ne(0), || {
            t.literal(",");
            f.call("put_moment", &[moment, bits]);
        });
        t.literal("]");
    })
}

pub(super) fn put_buffer(layout: &ArgumentLayout) -> LirFunc {
    let contract = "\
Appends bytes of the program in quotes, cut to 50 characters, or their address if they cannot be read.
address, length: of the bytes.
Cost: a read of up to 50 bytes and their quoting.";
    let params = ["address", "length"];
    let name = ("put_buffer", contract);
    function(layout, name, params, |t, [address, length]| {
        let f = t.f;
        let bad = || t.put(kind::HEX, address);
        f.if_(address.eq(0), || {
            bad();
            f.ret(0);
        });
        let count = t.at_most(length, BUFFER);
        f.if_(count.ne(0), || t.read(count, address, bad));
        let quoted = t.block + layout.quoted;
        for word in 0..8 {
            quoted.store_u64(8 * word, 0);
        }
        let [limit, marks] = [BUFFER - 1, 1].map(|n| t.f.number(n));
        let args = [t.staged(0), quoted, count, limit, marks];
        f.call(&layout.quote, &args);
        t.text(quoted, BUFFER + 8);
    })
}

pub(super) fn put_bytes(layout: &ArgumentLayout) -> LirFunc {
    let contract = "\
Appends up to 50 bytes of the program in quotes, others than printable ones as `\\xef`, without the NUL that
ends a text; or their address if they cannot be read.
address, length: of the bytes.
Cost: a read of up to 50 bytes, and an iteration for each.";
    let params = ["address", "length"];
    let name = ("put_bytes", contract);
    function(layout, name, params, |t, [address, length]| {
        let f = t.f;
        let bad = || {
            t.put(kind::HEX, address);
            f.ret(0);
        };
        f.if_(address.eq(0), bad);
        let count = t.at_most(length, BUFFER);
        f.if_(count.eq(0), bad);
        f.if_(count.gt(layout.most), bad);
        t.read(count, address, bad);
        let quoted = t.block + layout.quoted;
        let printable = |byte: Scalar<'_>, yes: &dyn Fn(), no: &dyn Fn()| {
            f.if_else((byte - i32::from(b' ')).le(0x7e - 0x20), yes, no);
        };
        quoted.store_u8(0, i32::from(b'"'));
        let index = f.var("at", 0);
        let length = f.var("length", 1);
        // Where a text ends whose NUL is the last byte.
        let end = f.var("end", 0);
        f.repeat(BUFFER.cast_unsigned(), || {
            f.break_if(index.ge(count));
            f.break_if(length.gt(layout.most - 8));
            let byte = (t.staged(0) + index.get().bound(63)).load_u8(0);
            let to = quoted + length.get().bound(255);
            printable(
                byte,
                &|| {
                    to.store_u8(0, byte);
                    length.set(length + 1);
                    end.set(0);
                },
                &|| {
                    to.store_u8(0, i32::from(b'\\'));
                    to.store_u8(1, i32::from(b'x'));
                    for (i, shift) in [(2, 4), (3, 0)] {
                        let digit = (byte >> shift) & 15;
                        let letter = ((digit + 6) >> 4) * 39;
                        to.store_u8(i, digit + letter + i32::from(b'0'));
                    }
                    end.set(0);
                    f.if_(byte.eq(0), || end.set(length));
                    length.set(length + 4);
                },
            );
            index.set(index + 1);
        });
        // A NUL alone is written, and one behind another escape.
        f.if_(end.gt(1), || {
            let before = (t.staged(0) + (index - 2).bound(63)).load_u8(0);
            printable(before, &|| length.set(end), &|| ());
        });
        let to = quoted + length.get().bound(255);
        to.store_u8(0, i32::from(b'"'));
        to.store_u8(1, 0);
        t.text(quoted, layout.most);
    })
}
