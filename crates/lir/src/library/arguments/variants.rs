//! Descriptors that depend on the value of an argument.

use spile_cast::Cast;

use super::{ARGS, ArgumentLayout, ENTRY, NAMES, function, variant};
use crate::func::LirFunc;

pub(super) fn variant_row(layout: &ArgumentLayout, last: i32) -> LirFunc {
    let contract = "\
Finds the descriptors of a call that has others for some values of one of its arguments.
cases: the offset of the list of values, with the number of its entries, and the argument, see `variant`. mask:
the bits of the argument that count. row: the result for other values.
Returns the row of the value.
Cost: an iteration for each value.";
    let params = ["cases", "mask", "row"];
    let name = ("variant_row", contract);
    function(layout, name, params, |t, [cases, mask, row]| {
        let f = t.f;
        let index = (cases >> variant::WORD.cast_signed()) & 7;
        f.ret_if(index.ge(ARGS.fit::<i32>()), row);
        let word = (t.block + (index << 3) + layout.arguments).load_u64(0) & mask;
        let entry = f.var("entry", cases & variant::LIST);
        let count = (cases >> variant::COUNT.cast_signed()) & 0xff;
        let end = entry + count * ENTRY.cast_signed();
        let result = f.var("found", row);
        f.repeat(variant::MAX_VALUES, || {
            f.break_if(entry.ge(end));
            f.break_if(entry.gt(last));
            let case = f.data(NAMES) + entry;
            let (value, row) = (case.load_u64(0), case.load_u64(8));
            f.if_(value.eq(word), || {
                result.set(row);
                f.break_();
            });
            entry.set(entry + ENTRY.cast_signed());
        });
        f.ret(result);
    })
}
