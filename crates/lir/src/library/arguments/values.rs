//! Numbers, names and the around them.

use super::{
    ArgumentLayout, DECIMAL, ENTRY, LITERAL, LOCATIONS, MAX_NAMES, NAME, NAMES, function, kind,
};
use crate::func::LirFunc;

pub(super) fn put_literal(layout: &ArgumentLayout) -> LirFunc {
    let contract = "\
Appends a text that surrounds values.
which: its index.
Cost: that of append_text for 32 bytes.";
    let name = ("put_literal", contract);
    function(layout, name, ["which"], |t, [which]| {
        let index = which & (LOCATIONS - 1);
        t.text(t.f.data("literals") + (index * LITERAL), LITERAL);
    })
}

pub(super) fn put_number(layout: &ArgumentLayout) -> LirFunc {
    let contract = "\
Appends a number.
kind: how, as in a descriptor; decimal with sign for other kinds. value: the number.
Cost: that of append_number.";
    let name = ("put_number", contract);
    function(layout, name, ["kind", "value"], |t, [kind, value]| {
        let append = |base: i32, flags: i32| {
            let [precision, flags, width] = [-1, flags, 0].map(|n| t.f.number(n));
            let args = [precision, value, flags, width];
            t.f.call(&format!("append_number_{base}"), &args);
        };
        let kinds = [
            (kind::UNSIGNED, 10, 0),
            (kind::HEX, 16, layout.mark),
            (kind::OCTAL, 8, layout.mark),
        ];
        for (code, base, flags) in kinds {
            t.f.if_(kind.eq(code), || {
                append(base, flags);
                t.f.ret(0);
            });
        }
        append(10, layout.signed);
    })
}

pub(super) fn put_name(layout: &ArgumentLayout, last: i32) -> LirFunc {
    let contract = "\
Appends the name of an entry.
entry: its offset in the lists.
Cost: that of append_text for 56 bytes.";
    function(layout, ("put_name", contract), ["entry"], |t, [entry]| {
        t.f.ret_if(entry.gt(last), 0);
        t.text(t.f.data(NAMES) + entry + 16, NAME.cast_signed());
    })
}

pub(super) fn put_names(layout: &ArgumentLayout, last: i32) -> LirFunc {
    let contract = "\
Appends the names of a value, with what no name covers: a choice in its base, flags in hexadecimal,
permissions among them in octal, a number among them in decimal.
descriptor: has the offset of the list from bit 16 on. value: the value.
Cost: an iteration for each name of the list.";
    let params = ["descriptor", "value"];
    let name = ("put_names", contract);
    function(layout, name, params, |t, [descriptor, value]| {
        let f = t.f;
        let rest = f.var("rest", value);
        let named = f.var("named", 0);
        let entry = f.var("entry", descriptor >> 16);
        f.repeat(MAX_NAMES + 1, || {
            f.break_if(entry.gt(last));
            let row = f.data(NAMES) + entry;
            let (mask, bits) = (row.load_u64(0), row.load_u64(8));
            f.break_if(mask.eq(0));
            // Bits that an earlier name covers are not named again.
            f.if_((value & mask).eq(bits), || {
                f.if_((rest & bits).eq(bits), || {
                    rest.set(rest & (mask ^ -1));
                    f.if_(named.ne(0), || t.literal("|"));
                    named.set(1);
                    f.call("put_name", &[entry.get()]);
                });
            });
            entry.set(entry + ENTRY.cast_signed());
        });
        // The loop has ended at the list's last entry, unless there is no list.
        let octal = f.var("octal", 0);
        f.if_(entry.le(last), || {
            octal.set((f.data(NAMES) + entry).load_u64(8));
        });
        let separate = || f.if_(named.ne(0), || t.literal("|"));
        f.if_(octal.ne(0), || {
            let others = octal & f.constant(!DECIMAL);
            let permissions = rest & others;
            let high = rest & (others ^ -1);
            f.if_(high.ne(0), || {
                separate();
                t.put(kind::HEX, high);
                named.set(1);
            });
            f.if_(octal.slt(0), || {
                separate();
                t.put(kind::SIGNED, permissions);
                f.ret(0);
            });
            f.if_((permissions | (named ^ 1)).ne(0), || {
                separate();
                t.put(kind::OCTAL, permissions);
            });
            f.ret(0);
        });
        f.if_(named.eq(0), || {
            let decimal = (descriptor & 255).eq(kind::ENUM);
            f.if_else(
                decimal,
                || t.put(kind::SIGNED, value),
                || t.put(kind::HEX, value),
            );
            f.ret(0);
        });
        f.ret_if(rest.eq(0), 0);
        t.literal("|");
        t.put(kind::HEX, rest.get());
    })
}
