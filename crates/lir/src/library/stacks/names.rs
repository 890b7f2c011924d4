//! User symbols: the text for a frame of the buffer, from tables that the controller loads with the
//! frame's file ([`symbol_row`]).

use super::rows::symbol_row;
use super::texts::{DECIMAL, HEX, StackLayout, StackTexts};
use crate::builder::{BlockExit, Scalar};
use crate::func::Module;
use crate::helpers::Helper;
use crate::library::area::function;
use crate::library::tables::element;
use crate::library::unwind::{EXACT, VDSO, at};
use crate::op::Size;

/// Steps of a binary search among the [`symbol_row::MAX`] rows of a file.
const HALVINGS: u32 = symbol_row::MAX.trailing_zeros();
/// The largest position in a file that a row can have; the bit above it stands for the memory behind.
const POSITIONS: i32 = i32::MAX;

/// The parts to write for a frame.
pub mod part {
    /// A line of its own, with the address in front.
    pub const LINE: i32 = 1;
    /// The distance from the symbol.
    pub const OFFSET: i32 = 2;
    /// The size of the symbol or of the file.
    pub const SIZE: i32 = 4;
    /// The file's path.
    pub const MODULE: i32 = 8;
    /// The last component of the file's path.
    pub const BASE: i32 = 16;
    /// The end of a line.
    pub const END: i32 = 32;
    /// Nothing except the file.
    pub const ONLY: i32 = 64;
    /// A stack: frames behind the first are return addresses.
    pub const STACK: i32 = 128;
    /// The position in the source, behind the position in the code.
    pub const AT: i32 = 256;
    /// The source file.
    pub const FILE: i32 = 512;
    /// The line number, or the address if the position is unknown.
    pub const NUMBER: i32 = 1024;
    /// A tab and the position in the source, behind the name.
    pub const LOCATION: i32 = 2048;
}

/// What `find_symbol` finds, in words that an unwind uses only for one frame.
mod word {
    use super::at;
    /// Key of the file.
    pub(super) const FILE: u32 = at::KEY;
    /// Address of the symbol's name, 0 for none.
    pub(super) const NAME: u32 = at::VALUE;
    /// Position of the file's name in the map of names; 0 for none.
    pub(super) const MODULE: u32 = at::VALUE + 8;
    /// The position in the file.
    pub(super) const LOCATION: u32 = at::VALUE + 16;
    /// The two words in front of a name.
    pub(super) const BASE: u32 = at::READ;
    pub(super) const SIZE: u32 = at::READ + 8;
    /// The position to look up in the file's tables; -1 for one that they cannot have.
    pub(super) const KEY: u32 = at::MAPPINGS;
}

impl<'b> StackTexts<'_, 'b> {
    /// The last of a map's rows in front of that position.
    fn row(
        &self,
        map: &str,
        (first, count): (Scalar<'b>, Scalar<'b>),
        (key, none): (Scalar<'b>, BlockExit<'b>),
    ) -> Scalar<'b> {
        let table = self.table(map, self.layout.unwind + at::MID);
        table.search(HALVINGS, (first, first + count), (key, none))
    }

    /// The file's element.
    fn file(&self, none: BlockExit<'b>) -> Scalar<'b> {
        let key = self.addr(self.layout.unwind + word::FILE);
        element(self.f, self.layout.symbols, key, none)
    }

    /// The address of the name at that position of the names, which counts words.
    fn name(&self, position: Scalar<'b>, none: BlockExit<'b>) -> Scalar<'b> {
        let page = symbol_row::NAMES_VALUE;
        let table = self.table(self.layout.names, self.layout.unwind + at::MID);
        let words = (page / 8).trailing_zeros();
        let names = table.row(position >> words.cast_signed(), none);
        names + ((position << 3) & (page - 1).cast_signed()) + 16
    }

    /// Reads the two words in front of a name.
    fn two_words(&self, name: Scalar<'b>, none: BlockExit<'b>) {
        let to = self.addr(self.layout.unwind + word::BASE);
        let args = [to, self.f.number(16), name - 16];
        none.leave_if(self.f.helper(Helper::Read, &args).ne(0));
    }
}

/// `find_symbol`.
pub(super) fn find_symbol(layout: &StackLayout) -> Module {
    let contract = "\
Finds the file and the symbol of a frame, and leaves them in words of the unwind.
index: of the frame. how: `part::STACK` if frames behind the first one are return addresses.
Cost: up to 22 look-ups.";
    let name = ("find_symbol", contract);
    let func = function(layout, name, ["index", "how"], |t, [index, how]| {
        let f = t.f;
        t.set_unwind(word::KEY, -1);
        let words = [word::FILE, word::NAME, word::MODULE, word::LOCATION];
        for field in words.into_iter().chain([word::BASE, word::SIZE]) {
            t.set_unwind(field, 0);
        }
        let [_, file, offset] = t.user_frame(index);
        f.ret_if(file.eq(0), 0);
        t.set_unwind(word::FILE, file);
        let position = offset & f.constant(EXACT - 1);
        t.set_unwind(word::LOCATION, position);
        f.block(|none| {
            f.block(|unnamed| {
                unnamed.leave_if(position.gt(POSITIONS));
                // A return address belongs to the instruction in front of it.
                let before = f.var("before", 0);
                f.if_(index.ne(0), || {
                    let exact = offset >> EXACT.trailing_zeros().cast_signed();
                    let stack = how >> part::STACK.trailing_zeros().cast_signed();
                    before.set(stack & (exact ^ 1) & 1);
                });
                let behind_file = (offset >> 63) << 31;
                let key = ((position - before) & POSITIONS) | behind_file;
                t.set_unwind(word::KEY, key);
                let file = t.file(unnamed);
                t.set_unwind(word::MODULE, file.load_u64(symbol_row::NAME));
                let rows = [symbol_row::FIRST, symbol_row::COUNT].map(|off| file.load_u64(off));
                f.ret_if(rows[1].eq(0), 0);
                let row = t.row(layout.symbol_rows, (rows[0], rows[1]), (key, none));
                let name = t.name(row.load_bytes(Size::U32, 4), none);
                t.set_unwind(word::NAME, name);
                t.two_words(name, none);
                f.ret(0);
            });
            // A file without a symbol for the address is no loss, nor is code outside of files.
            none.leave_if(file.eq(VDSO.cast_signed()));
            t.count(layout.unnamed);
        });
    });
    Module::from(func)
}

/// `append_file`.
pub(super) fn append_file(layout: &StackLayout) -> Module {
    let contract = "\
Appends the name of the file that find_symbol found.
how: `part::BASE` for its last component only.
Cost: a look-up, a read and a copy.";
    let func = function(layout, ("append_file", contract), ["how"], |t, [how]| {
        let f = t.f;
        f.block(|end| {
            let position = t.unwind(word::MODULE);
            end.leave_if(position.eq(0));
            let name = t.name(position, end);
            t.two_words(name, end);
            // The verifier knows no bound of the component's location: only the kernel reads there.
            t.set_unwind(at::LO, name);
            let from = f.var("from", t.unwind(at::LO));
            t.if_any(how, part::BASE, || from.set(from + t.unwind(word::BASE)));
            t.copy(from.get(), end);
        });
    });
    Module::from(func)
}

/// `append_location`.
pub(super) fn append_location(layout: &StackLayout) -> Module {
    let contract = "\
Appends the position in the source of what find_symbol found; 1 if it is unknown.
how: `part::AT`, `part::FILE`, `part::NUMBER`.
Cost: up to 23 look-ups, a copy and a number.";
    let name = ("append_location", contract);
    let func = function(layout, name, ["how"], |t, [how]| {
        let f = t.f;
        f.block(|unknown| {
            let file = t.file(unknown);
            let rows = [symbol_row::FIRST_LINE, symbol_row::LINES].map(|off| file.load_u64(off));
            unknown.leave_if(rows[1].eq(0));
            let key = t.unwind(word::KEY);
            unknown.leave_if(key.eq(-1));
            let row = t.row(layout.line_rows, (rows[0], rows[1]), (key, unknown));
            let line = row.load_bytes(Size::U32, 8);
            let name = row.load_bytes(Size::U32, 4);
            unknown.leave_if(name.eq(0));
            let name = t.name(name, unknown);
            t.if_any(how, part::AT, || t.literal(" at "));
            f.block(|end| {
                t.if_any(how, part::FILE, || {
                    t.copy(name, end);
                    t.if_any(how, part::NUMBER, || t.literal(":"));
                });
                t.if_any(how, part::NUMBER, || t.decimal(line));
            });
            f.ret(0);
        });
        f.ret(1);
    });
    Module::from(func).with_externs(&[DECIMAL])
}

/// `append_symbol`.
pub(super) fn append_symbol(layout: &StackLayout) -> Module {
    let contract = "\
Appends the text for a frame.
index: of the frame. how: bits of `part`.
Cost: find_symbol, append_location, append_file, three numbers and a copy.";
    let name = ("append_symbol", contract);
    let func = function(layout, name, ["index", "how"], |t, [index, how]| {
        let f = t.f;
        f.call("find_symbol", &[index, how]);
        let [address, ..] = t.user_frame(index);
        t.if_any(how, part::ONLY, || {
            f.if_(t.unwind(word::MODULE).eq(0), || {
                t.literal("<unknown>");
                f.ret(0);
            });
            f.call("append_file", &[how]);
            f.ret(0);
        });
        let location = part::FILE | part::NUMBER;
        if layout.lines {
            t.if_any(how, location, || {
                location_or_address(&t, how, address);
                f.ret(0);
            });
        }
        t.if_any(how, part::LINE, || t.literal(" "));
        f.block(|ends| {
            f.block(|unnamed| {
                let name = t.unwind(word::NAME);
                unnamed.leave_if(name.eq(0));
                // A missing name has length 0.
                let first = t.addr(layout.unwind + at::LO);
                let args = [first, f.number(1), name];
                unnamed.leave_if(f.helper(Helper::Read, &args).ne(0));
                unnamed.leave_if(first.load_u8(0).eq(0));
                named(&t, how, address, ends);
                ends.leave();
            });
            unnamed(&t, how, address, ends);
        });
        if layout.lines {
            t.if_any(how, part::LOCATION, || {
                t.literal("\t");
                location_or_address(&t, f.number(location), address);
            });
        }
        t.if_any(how, part::END, || t.literal("\n"));
    });
    let externs = [
        HEX,
        ("find_symbol", 2),
        ("append_file", 1),
        ("append_location", 1),
    ];
    let lines = usize::from(!layout.lines);
    Module::from(func).with_externs(&externs[..externs.len() - lines])
}

/// Appends the position in the source, or the address.
fn location_or_address<'b>(t: &StackTexts<'_, 'b>, how: Scalar<'b>, address: Scalar<'b>) {
    let unknown = t.f.call("append_location", &[how]);
    t.f.if_(unknown.ne(0), || t.marked_hex(address));
}

/// Appends the position in the source if it is wanted behind the one in the code.
fn append_at<'b>(t: &StackTexts<'_, 'b>, how: Scalar<'b>) {
    if t.layout.lines {
        let parts = part::AT | part::FILE | part::NUMBER;
        t.if_any(how, part::AT, || {
            t.f.call("append_location", &[t.f.number(parts)]);
        });
    }
}

/// Goes to `ends` unless the file is wanted and known.
fn without_file<'b>(t: &StackTexts<'_, 'b>, how: Scalar<'b>, ends: BlockExit<'b>) {
    ends.leave_if((how & (part::MODULE | part::BASE)).eq(0));
    ends.leave_if(t.unwind(word::MODULE).eq(0));
}

/// A frame with a symbol.
fn named<'b>(t: &StackTexts<'_, 'b>, how: Scalar<'b>, address: Scalar<'b>, ends: BlockExit<'b>) {
    let f = t.f;
    t.if_any(how, part::LINE, || {
        t.marked_hex(address);
        t.literal(" : ");
    });
    t.copy(t.unwind(word::NAME), ends);
    ends.leave_if((how & part::OFFSET).eq(0));
    t.literal("+");
    t.marked_hex(t.unwind(word::LOCATION) - t.unwind(word::BASE));
    t.if_any(how, part::SIZE, || {
        t.literal("/");
        t.marked_hex(t.unwind(word::SIZE));
    });
    append_at(t, how);
    without_file(t, how, ends);
    t.literal(" [");
    f.call("append_file", &[how]);
    t.literal("]");
}

/// A frame without a symbol: its address, and its offset in the file.
fn unnamed<'b>(t: &StackTexts<'_, 'b>, how: Scalar<'b>, address: Scalar<'b>, ends: BlockExit<'b>) {
    let f = t.f;
    t.marked_hex(address);
    without_file(t, how, ends);
    t.literal(" [");
    let distance = t.unwind(word::LOCATION) - t.unwind(word::BASE);
    f.call("append_file", &[how]);
    t.literal("+");
    t.marked_hex(distance);
    t.if_any(how, part::SIZE, || {
        t.literal("/");
        // The file's size follows the beginning of its name.
        t.marked_hex(t.unwind(word::SIZE));
    });
    t.literal("]");
    append_at(t, how);
}

/// `append_symbols`.
pub(super) fn append_symbols(layout: &StackLayout) -> Module {
    let contract = "\
Appends up to `most` frames from `first` on, as append_symbol does.
how: bits of `part`.
Cost: append_symbol for each frame.";
    let (name, params) = (("append_symbols", contract), ["how", "first", "most"]);
    let func = function(layout, name, params, |t, [how, first, most]| {
        let f = t.f;
        t.indices((first, most), layout.most, |index| {
            f.break_if(index.ge(t.unwind(at::N)));
            f.call("append_symbol", &[index, how]);
        });
    });
    Module::from(func).with_externs(&[("append_symbol", 2)])
}
