//! The current process's command line.

use super::PAGE;
use super::strings::{MAX_SLOT, every};
use crate::builder::{Builder, Scalar, build};
use crate::func::Module;
use crate::helpers::Helper;

/// The width of the result, and where the kernel has what the function reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CmdlineLayout {
    /// Bytes of the slot, a multiple of 8.
    pub wide: u32,
    /// Offset of the description of the memory in a task's description.
    pub task_mm: u32,
    /// Offset of the address of the arguments in the description of the memory.
    pub arg_start: u32,
    /// Offset of the address behind them.
    pub arg_end: u32,
}

impl CmdlineLayout {
    /// The function's name.
    pub fn name(&self) -> String {
        format!("cmdline_{}", self.wide)
    }
}

/// The function `cmdline`, named by its width.
pub fn cmdline(layout: &CmdlineLayout) -> Module {
    let contract = "\
Writes the arguments of the current process, joined by spaces, with empty ones as `\"\"`. Returns whether
they are cut.
to: a slot full of zeros. spare: memory of the same size.
A kernel thread has none. Memory that is not resident cannot be read: the text then ends with the first
page, or is empty.
Cost: a read, and about 40 instructions for each word; if an argument is empty, a second read and about 25
for each byte.";
    let wide = layout.wide.cast_signed();
    let (name, params) = (layout.name(), ["to", "spare"]);
    let func = build(&name, contract, params, |f, [to, spare]| {
        let mm = (f.helper(Helper::Task, &[]) + layout.task_mm.cast_signed()).load_u64(0);
        f.ret_if(mm.eq(0), 0);
        let from = (mm + layout.arg_start.cast_signed()).load_u64(0);
        let length = (mm + layout.arg_end.cast_signed()).load_u64(0) - from;
        f.ret_if(length.sle(0), 0);
        let got = f.var("got", length);
        f.if_(length.gt(wide), || got.set(wide - 1));
        let read = |to, bytes| f.helper(Helper::ReadUser, &[to, bytes, from]);
        let fault = read(to, got.get().bound(layout.wide));
        f.if_(fault.ne(0), || {
            let first_page = (f.constant(0) - from) & (PAGE - 1);
            f.ret_if(first_page.eq(0), 0);
            got.set(f.at_most(first_page, wide - 1));
            f.if_(got.gt(length), || got.set(length));
            f.ret_if(read(to, got.get().bound(layout.wide)).ne(0), 0);
        });
        let got = got.get().bound(layout.wide);
        let empty = join(f, to, layout.wide);
        let cut = f.var("cut", 0);
        f.block(|joined| {
            f.block(|anew| {
                anew.leave_if(empty.ne(0));
                // Empty arguments at the end have left zero bytes in front of the last one.
                joined.leave_if(got.lt(2));
                joined.leave_if((to + got).load_u8(-2).ne(0));
            });
            joined.leave_if(read(spare, got).ne(0));
            let bytes = f.number(wide);
            f.helper(Helper::Read, &[to, bytes, f.data("zeros")]);
            cut.set(with_empty(f, (spare, got), to, layout.wide));
        });
        // A text that fills its last byte is cut.
        let last = to + (wide - 1);
        f.if_(last.load_u8(0).ne(0), || {
            last.store_u8(0, 0);
            cut.set(1);
        });
        f.if_(length.gt(wide), || cut.set(1));
        f.ret(cut);
    });
    Module::from(func).with_data("zeros", vec![0; MAX_SLOT as usize])
}

/// The highest bit of each byte of a word that is not zero; the other bits are set.
fn nonzero(word: Scalar<'_>) -> Scalar<'_> {
    let low = every(0x7f);
    ((word & low) + low) | word | low
}

/// Replaces the zero bytes of a text by spaces, except for those at its end. Gives nonzero if two of them
/// were adjacent.
fn join<'b>(f: &'b Builder, to: Scalar<'b>, wide: u32) -> Scalar<'b> {
    let words = wide / 8;
    let left = f.var("left", words.cast_signed());
    // The top byte is nonzero if a later byte of the text is.
    let later = f.var("later", 0);
    // The marks of the spaces in the next word, and those of adjacent ones.
    let (next, pairs) = (f.var("next", 0), f.var("pairs", 0));
    f.repeat(words, || {
        f.break_if(left.eq(0));
        left.set(left - 1);
        let address = to + (left.get().bound(words - 1) << 3);
        let word = address.load_u64(0);
        // Bytes that are not zero, or in front of such a byte.
        let inside = [8, 16, 32]
            .into_iter()
            .fold(word | later, |inside, shift| inside | (inside >> shift));
        let spaces = (nonzero(word) ^ -1) & nonzero(inside);
        // A space whose next byte is one, too; it may be in the next word.
        pairs.set(pairs | (((next << 56) | (spaces >> 8)) & spaces));
        next.set(spaces);
        // 0x80 becomes a space.
        address.store_u64(0, word | (spaces >> 2));
        later.set(inside << 56);
    });
    pairs.get()
}

/// Writes arguments of `got` bytes into a slot of zeros, as [`cmdline`] does, with empty ones. Gives whether
/// they are cut.
fn with_empty<'b>(
    f: &'b Builder,
    (from, got): (Scalar<'b>, Scalar<'b>),
    to: Scalar<'b>,
    wide: u32,
) -> Scalar<'b> {
    // Leaves space for `""`, a space and the NUL.
    let capacity = wide - 4;
    let (index, length, cut) = (f.var("at", 0), f.var("length", 0), f.var("cut", 0));
    f.repeat(wide, || {
        f.break_if(index.ge(got));
        f.if_(length.gt(capacity.cast_signed()), || {
            cut.set(1);
            f.break_();
        });
        let address = from + index.get().bound(wide - 1);
        let byte = f.var("byte", address.load_u8(0));
        let end = to + length.get().bound(capacity);
        f.if_(byte.eq(0), || {
            // A space stands for the first argument if it is empty.
            let previous = f.var("previous", 1);
            f.if_(index.ne(0), || previous.set(address.load_u8(-1)));
            f.if_(previous.eq(0), || {
                end.store_u8(0, i32::from(b'"'));
                end.store_u8(1, i32::from(b'"'));
                length.set(length + 2);
            });
            // No space follows the last argument.
            f.break_if((index + 1).ge(got));
            byte.set(i32::from(b' '));
        });
        (to + length.get().bound(capacity + 2)).store_u8(0, byte);
        length.set(length + 1);
        index.set(index + 1);
    });
    cut.get()
}
