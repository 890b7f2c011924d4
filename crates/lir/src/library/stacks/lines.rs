//! Lines of kernel addresses. The kernel writes a symbol with its offset, size and module; the code
//! removes what the controller would not write.

use spile_cast::Cast;

use super::texts::{HEX, StackLayout, StackTexts};
use crate::builder::{BlockExit, Scalar};
use crate::func::Module;
use crate::helpers::Helper;
use crate::library::area::function;
use crate::library::quote::{first_mark, in_front_of_mark, zero_marks};
use crate::library::strings::every;

/// How lines are appended.
pub mod line {
    /// With the address in front.
    pub const LINE: i32 = 1;
}

/// The suffix of a symbol that is in no module.
const KERNEL: &str = " [kernel]";
/// The format of a symbol.
const FORMAT: &str = "symbol_format";
/// The largest length of a symbol's name (`KSYM_NAME_LEN`), of its size in hex, and of a module's
/// name in brackets.
const NAME: u32 = 512;
/// See [`NAME`].
const SIZE: u32 = 20;
/// See [`NAME`].
const MODULE: i32 = 64;
/// Bytes from which a number in a text is parsed, including its terminator.
const NUMBER: i32 = 24;
/// The largest number of bytes that are searched for addresses.
const SEARCHED: u32 = 8192;

const SPACE: i32 = b' ' as i32;

/// `kernel_line`.
pub(super) fn kernel_line(layout: &StackLayout) -> Module {
    let contract = "\
Appends the line of an address: the symbol with its offset and module, in full with its size too.
address: the address. how: bits of `line`; 0 for a line without address and size.
Cost: a format, and some instructions for each character.";
    let name = ("kernel_line", contract);
    let func = function(layout, name, ["address", "how"], |t, [address, how]| {
        let (f, most) = (t.f, layout.text.most);
        t.if_any(how, line::LINE, || {
            t.literal(" ");
            t.marked_hex(address);
            t.literal(" : ");
        });
        t.set(layout.words, address);
        let length = t.length();
        let symbol = t.block + layout.text.text + length;
        let [limit, bytes] = [most, 8].map(|n| f.number(n));
        let args = [symbol, limit, f.data(FORMAT), t.addr(layout.words), bytes];
        let with_nul = f.helper(Helper::Format, &args);
        f.ret_if(with_nul.sle(2), 0);
        f.if_(with_nul.gt(most), || {
            // One byte more than the longest text, so that a truncation is noticed.
            t.set_length(f.number(most + 1));
            f.if_(length.eq(0), || t.count(layout.truncated));
            f.ret(0);
        });
        t.set_length(length + (with_nul - 1));
        f.block(|ends| {
            // No name begins with a digit: a bare address has no module.
            ends.leave_if(symbol.load_u8(0).eq(i32::from(b'0')));
            f.if_else(
                how.has(line::LINE),
                || ends.leave_if((symbol + with_nul).load_u8(-2).eq(i32::from(b']'))),
                || without_size(&t, symbol, ends),
            );
            t.literal(KERNEL);
        });
        t.literal("\n");
    });
    Module::from(func)
        .with_data(FORMAT, *b"%pS\0")
        .with_externs(&[HEX])
}

/// Removes the size from `NAME+OFFSET/SIZE [MODULE]`; goes to `ends` if a module follows.
fn without_size<'b>(t: &StackTexts<'_, 'b>, symbol: Scalar<'b>, ends: BlockExit<'b>) {
    let f = t.f;
    let length = f.var("length", 0);
    f.block(|search| {
        f.repeat(NAME / 8, || {
            let word = (symbol + length.get().bound(NAME - 1)).load_u64(0);
            let slashes = zero_marks(f, word ^ f.constant(every(b'/')));
            let first = first_mark(f, slashes | zero_marks(f, word));
            f.if_(first.ne(0), || {
                f.ret_if((slashes & first).eq(0), 0);
                length.set(length + in_front_of_mark(f, first));
                search.leave();
            });
            length.set(length + 8);
        });
        f.ret(0);
    });
    let slash = symbol + length.get().bound(NAME - 1);
    let end_of_size = f.var("at", slash);
    f.repeat_inline(SIZE, || {
        f.break_if(end_of_size.get().load_u8(0).le(SPACE));
        end_of_size.set(end_of_size + 1);
    });
    // Copies forwards byte by byte, so that the ranges may overlap.
    let args = [slash, f.number(MODULE), end_of_size.get()];
    let with_nul = f.helper(Helper::ReadText, &args);
    f.ret_if(with_nul.sle(0), 0);
    // Zeros follow the text, up to where it ended.
    let end = slash + with_nul;
    for word in 0..SIZE.div_ceil(8).fit::<i16>() {
        end.store_u64(8 * word - 1, 0);
    }
    // The length is the distance from the text's beginning.
    let text = t.block + t.layout.text.text;
    t.set_length((slash - text) + (with_nul - 1));
    ends.leave_if(with_nul.ne(1));
}

/// `kernel_frame_line`.
pub(super) fn kernel_frame_line(layout: &StackLayout) -> Module {
    let contract = "\
Appends the line of a frame in the buffer; 1 behind the last one.
index: of the frame. how: as for kernel_line.
Cost: kernel_line.";
    let name = ("kernel_frame_line", contract);
    let func = function(layout, name, ["index", "how"], |t, [index, how]| {
        let address = t.address(index);
        t.f.call("kernel_line", &[address, how]);
    });
    Module::from(func).with_externs(&[("kernel_line", 2)])
}

/// `kernel_frame_lines`.
pub(super) fn kernel_frame_lines(layout: &StackLayout) -> Module {
    let contract = "\
Appends the lines of up to `most` frames of the buffer from `first` on.
how: as for kernel_line.
Cost: kernel_line for each frame.";
    let name = ("kernel_frame_lines", contract);
    let params = ["how", "first", "most"];
    let func = function(layout, name, params, |t, [how, first, most]| {
        t.addresses("kernel_frame_line", (first, most), || how);
    });
    Module::from(func).with_externs(&[("kernel_frame_line", 2)])
}

/// `ONE_of_word`, for a function `one(address, how)`.
pub(super) fn of_word(layout: &StackLayout, one: &str) -> Module {
    let contract = "\
Calls the function for the address at an offset of the block, in a text that begins at `first`. Gives the
offset to continue from, or 0 at the text's end. Skips words that are not addresses.
at: the offset. first: of the text. how: for the function.
Cost: the function.";
    let word = format!("{one}_of_word");
    let (name, params) = ((&*word, contract), ["at", "first", "how"]);
    let func = function(layout, name, params, |t, [offset, first, how]| {
        let f = t.f;
        f.ret_if(offset.eq(0), 0);
        f.ret_if(offset.gt(layout.texts.cast_signed()), 0);
        let address = t.block + offset;
        let byte = address.load_u8(0);
        f.ret_if(byte.eq(0), 0);
        f.block(|next| {
            next.leave_if(byte.le(SPACE));
            // An address begins the text or follows a space.
            f.if_(offset.ne(first), || {
                next.leave_if(address.load_u8(-1).gt(SPACE))
            });
            let value = layout.words + 8;
            let [limit, base] = [NUMBER, 16].map(|n| f.number(n));
            let args = [address, limit, base, t.addr(value)];
            let digits = f.helper(Helper::ParseNumber, &args);
            next.leave_if(digits.sle(0));
            next.leave_if(digits.sgt(NUMBER));
            next.leave_if((address + digits).load_u8(0).gt(SPACE));
            f.call(one, &[t.get(value), how]);
            f.ret(offset + digits);
        });
        f.ret(offset + 1);
    });
    Module::from(func).with_externs(&[(one, 2)])
}

/// `ONEs_of_WIDTH`, for a function `one(address, how)` and texts in slots of that width.
pub fn of_text(layout: &StackLayout, one: &str, width: u32) -> Module {
    let contract = "\
Calls the function for each address in a text.
text: its offset in the block. how: for the function.
Cost: some instructions for each character, and the function for each address.";
    let (name, word) = (format!("{one}s_of_{width}"), format!("{one}_of_word"));
    let name = (&*name, contract);
    let func = function(layout, name, ["text", "how"], |t, [text, how]| {
        let f = t.f;
        let offset = f.var("at", text);
        f.repeat(width.min(SEARCHED), || {
            let next = f.call(&word, &[offset.get(), text, how]);
            f.break_if(next.eq(0));
            offset.set(next);
        });
    });
    Module::from(func).with_externs(&[(&word, 3)])
}
