//! Structures in the program's memory.

use super::{ArgumentLayout, ENTRY, NAMES, function, kind, structure};
use crate::func::LirFunc;

pub(super) fn put_struct(layout: &ArgumentLayout, last: i32) -> LirFunc {
    let contract = "\
Appends the fields of a structure with the texts around them, or its address if it cannot be read.
descriptor: has the list of the fields and the size, see `structure`. address: of the structure; of the kind
`PACKED` its bytes.
Cost: a read, and a text and a value for each field.";
    let params = ["descriptor", "address"];
    let name = ("put_struct", contract);
    function(layout, name, params, |t, [descriptor, address]| {
        let f = t.f;
        let bad = || {
            t.put(kind::HEX, address);
            f.ret(0);
        };
        let most = structure::MOST.cast_signed();
        f.if_else(
            (descriptor & 255).eq(kind::PACKED),
            || t.staged(0).store_u64(0, address),
            || {
                f.if_(address.eq(0), || {
                    let null = (descriptor >> structure::NULL.cast_signed()) & 1;
                    t.literal_if(null.ne(0), "NULL");
                    bad();
                });
                let size = (descriptor >> structure::SIZE.cast_signed()) & most;
                let size = size.bound(structure::MOST);
                f.if_(size.gt(layout.most), bad);
                t.read(size, address, bad);
            },
        );
        let entry = f.var("entry", (descriptor >> 16) & structure::LIST);
        // No callback: fields with names need the frames.
        f.repeat_inline(structure::MAX_FIELDS, || {
            f.break_if(entry.gt(last));
            // Linux 6.1 forgets what a comparison says of a number that is in the frame.
            let row = f.data(NAMES) + entry.get().bound(last.cast_unsigned());
            let (field, location) = (row.load_u64(0), row.load_u64(8));
            let word = (t.staged(0) + (location & most).bound(structure::MOST)).load_u64(0);
            let kind = field & 255;
            let word = word >> ((location >> structure::SHIFT.cast_signed()) & 63);
            let value = t.sized(field, kind, word);
            f.if_else(
                kind.eq(structure::TEST),
                || {
                    f.if_(value.ne(row.load_u64(16)), || {
                        let skip = (location >> structure::SKIP.cast_signed()) & structure::LIST;
                        entry.set(entry + skip);
                    });
                },
                || {
                    f.call("put_name", &[entry.get()]);
                    f.ret_if(field.eq(0), 0);
                    // Names need a frame less, which put_field has.
                    f.if_else(
                        t.named(kind).ne(0),
                        || {
                            f.call("put_names", &[field, value]);
                        },
                        || {
                            f.if_(kind.ne(kind::SHOWN), || {
                                f.call("put_field", &[field, value]);
                            });
                        },
                    );
                },
            );
            entry.set(entry + ENTRY.cast_signed());
        });
    })
}

pub(super) fn put_field(layout: &ArgumentLayout) -> LirFunc {
    let contract = "\
Appends a value that is no address and has no names.
descriptor: how. value: the value, in its size.
Cost: that of put_number.";
    let params = ["descriptor", "value"];
    let name = ("put_field", contract);
    function(layout, name, params, |t, [descriptor, value]| {
        let kind = descriptor & 255;
        t.f.if_(kind.eq(kind::DATE), || {
            t.f.call("put_date", &[value]);
            t.f.ret(0);
        });
        t.number(kind, value);
    })
}
