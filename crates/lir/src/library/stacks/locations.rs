//! Positions in the kernel's source, from the lines that the loader puts into a map ([`kernel_row`]).

use super::rows::kernel_row;
use super::texts::{DECIMAL, HEX, StackLayout};
use crate::func::Module;
use crate::library::area::function;
use crate::op::Size;

/// The parts to write for a position.
pub mod location {
    /// The source file.
    pub const FILE: i32 = 1;
    /// The line number, or the address if the position is unknown.
    pub const NUMBER: i32 = 2;
}

/// Steps of a binary search among [`kernel_row::MAX`] rows.
const HALVINGS: u32 = kernel_row::MAX.trailing_zeros();

/// `kernel_location`.
pub(super) fn kernel_location(layout: &StackLayout) -> Module {
    let contract = "\
Appends the position of an address in the kernel's source, or the address if it is unknown.
address: the address. how: bits of `location`.
Cost: up to 27 look-ups, a copy and a number.";
    let name = ("kernel_location", contract);
    let func = function(layout, name, ["address", "how"], |t, [address, how]| {
        let f = t.f;
        let table = t.table(layout.kernel_lines, layout.words);
        f.block(|unknown| {
            let head = table.row(0, unknown);
            let (base, count) = (
                head.load_u64(kernel_row::BASE),
                head.load_u64(kernel_row::COUNT),
            );
            unknown.leave_if(count.eq(0));
            // An address below the first row gives a large number, too.
            let position = address - base;
            unknown.leave_if(position.gt(f.constant(u32::MAX.into())));
            let rows = (f.number(1), count + 1);
            let row = table.search(HALVINGS, rows, (position, unknown));
            let [file, line] =
                [kernel_row::FILE, kernel_row::LINE].map(|off| row.load_bytes(Size::U32, off));
            unknown.leave_if(file.eq(0));
            f.block(|end| {
                t.if_any(how, location::FILE, || {
                    t.copy(table.row(file, unknown), end);
                    end.leave_if((how & location::NUMBER).eq(0));
                    t.literal(":");
                });
                t.decimal(line);
            });
            f.ret(0);
        });
        t.marked_hex(address);
    });
    Module::from(func).with_externs(&[HEX, DECIMAL])
}
