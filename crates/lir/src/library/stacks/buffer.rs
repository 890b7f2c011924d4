//! The frames of the kernel's stack in the buffer: which are the probe's own, and their addresses as text.

use spile_cast::Cast;

use super::rows::stack_words;
use super::texts::{HEX, OWN_FRAMES, StackLayout, StackTexts};
use crate::builder::Scalar;
use crate::func::{MemoryOperand, Module};
use crate::library::append::flag;
use crate::library::area::function;

/// The number of frames that a tracepoint may have behind it.
const BETWEEN: usize = 2;
/// Bytes behind the first range within which all ranges are.
const RANGES: u32 = 8192;

/// How addresses are appended, in addition to [`flag::MARK`].
pub mod address {
    /// With a space in front, except for the first address.
    pub const BETWEEN: i32 = 0x100;
    /// With a space behind.
    pub const BEHIND: i32 = 0x200;
    /// The first address.
    pub(super) const FIRST: i32 = 0x400;
}

/// `stack_first`.
pub(super) fn stack_first(layout: &StackLayout) -> Module {
    let contract = "\
Finds the first frame of the buffer that is not the probe's own, and notes its offset.
words: the offset of the tracepoint's ranges in the state.
Cost: about 120 instructions.";
    let name = ("stack_first", contract);
    let func = function(layout, name, ["words"], |t, [words]| {
        let f = t.f;
        t.set(layout.first, 0);
        let count = t.get(layout.count);
        let run = f.addr(MemoryOperand::State(layout.ranges + stack_words::RUN));
        let [from, to] = [0, 8].map(|off| run.load_u64(off));
        f.block(|scanned| {
            for i in 0..OWN_FRAMES {
                scanned.leave_if(count.le(8 * i.cast_signed()));
                let address = t.get(layout.frames + 8 * i);
                f.if_(address.ge(from), || {
                    f.if_(address.lt(to), || {
                        t.set(layout.first, 8 * (i.cast_signed() + 1));
                    });
                });
            }
        });
        f.ret_if(words.gt((layout.ranges + RANGES).cast_signed()), 0);
        let ranges = f.addr(MemoryOperand::State(0)) + words;
        for _ in 0..BETWEEN {
            let first = t.get(layout.first);
            f.ret_if(first.gt(layout.bytes() - 8), 0);
            f.ret_if(first.ge(t.get(layout.count)), 0);
            let address = (t.block + first).load_u64(layout.frames.fit());
            f.block(|next| {
                f.block(|own_frame| {
                    for pair in 0..stack_words::PAIRS.fit::<i16>() {
                        let [from, to] = [0, 8].map(|off| ranges.load_u64(16 * pair + off));
                        f.if_(address.ge(from), || own_frame.leave_if(address.lt(to)));
                    }
                    next.leave();
                });
                t.set(layout.first, first + 8);
            });
        }
    });
    Module::from(func)
}

impl<'b> StackTexts<'_, 'b> {
    /// The address in the buffer with that index; behind the last one, the function returns 1.
    pub(super) fn address(&self, index: Scalar<'b>) -> Scalar<'b> {
        let (f, layout) = (self.f, self.layout);
        let off = self.get(layout.first) + (index << 3);
        f.ret_if(off.ge(self.get(layout.count)), 1);
        f.ret_if(off.gt(layout.bytes() - 8), 1);
        let address = (self.block + off).load_u64(layout.frames.fit());
        // A null entry ends a chain.
        f.ret_if(address.eq(0), 1);
        f.if_(index.ge(layout.most.cast_signed()), || {
            self.count(layout.cut_stacks);
            f.ret(1);
        });
        address
    }

    /// Calls `one(index, how)` for up to `most` indices from `first` on, until it gives something else
    /// than 0.
    pub(super) fn addresses(
        &self,
        one: &str,
        (first, most): (Scalar<'b>, Scalar<'b>),
        how: impl Fn() -> Scalar<'b>,
    ) {
        // One more call, which reports the end.
        self.indices((first, most), self.layout.most + 1, |index| {
            let last = self.f.call(one, &[index, how()]);
            self.f.break_if(last.ne(0));
        });
    }
}

/// `append_address`.
pub(super) fn append_address(layout: &StackLayout) -> Module {
    let contract = "\
Appends an address in the buffer; 1 behind the last one.
index: of the address. how: bits of `address`, `flag::MARK`.
Cost: a number.";
    let name = ("append_address", contract);
    let func = function(layout, name, ["index", "how"], |t, [index, how]| {
        let f = t.f;
        let number = t.address(index);
        let between = how & (address::BETWEEN | address::FIRST);
        f.if_(between.eq(address::BETWEEN), || t.literal(" "));
        f.call(HEX.0, &[number, how & flag::MARK]);
        t.if_any(how, address::BEHIND, || t.literal(" "));
    });
    Module::from(func).with_externs(&[HEX])
}

/// `append_stack`.
pub(super) fn append_stack(layout: &StackLayout) -> Module {
    let contract = "\
Appends up to `most` addresses in the buffer from `first` on, as append_address does.
how: bits of `address`, `flag::MARK`.
Cost: append_address for each one.";
    let (name, params) = (("append_stack", contract), ["how", "first", "most"]);
    let func = function(layout, name, params, |t, [how, first, most]| {
        let state = t.f.var("state", how | address::FIRST);
        let how = || {
            let now = state.get();
            state.set(now & (address::FIRST - 1));
            now
        };
        t.addresses("append_address", (first, most), how);
    });
    Module::from(func).with_externs(&[("append_address", 2)])
}
