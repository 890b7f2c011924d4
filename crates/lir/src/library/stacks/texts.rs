//! What the functions are written with: where the host has what they need, literals, numbers and texts at
//! the end of the text, words of the block.

use spile_cast::Cast;

use crate::builder::{BlockExit, IntoOperand, Scalar};
use crate::helpers::Helper;
use crate::library::append::{self, flag};
use crate::library::area::{AreaCode, AreaLayout};
use crate::library::unwind::at;
use crate::op::Size;

/// The number of the probe's frames that are searched for `bpf_trace_runN`.
pub const OWN_FRAMES: u32 = 12;

/// Where the host has what the functions need. Offsets are those of bytes in the per-CPU area,
/// unless something else is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackLayout {
    /// The text.
    pub text: append::AppendLayout,
    /// Limit on the frames of a stack.
    pub most: u32,
    /// The addresses of frames: `most`, those of the probe, and two more.
    pub frames: u32,
    /// The word with the bytes of these addresses.
    pub count: u32,
    /// The word with the offset of the first frame of probed code.
    pub first: u32,
    /// The words of unwinds of user stacks ([`at`]), if there are any.
    pub unwind: u32,
    /// Two words for functions that write kernel addresses.
    pub words: u32,
    /// The first offset behind all texts.
    pub texts: u32,
    /// In the state: address ranges ([`super::rows::stack_words`]).
    pub ranges: u32,
    /// Whether texts of user symbols contain positions in the source.
    pub lines: bool,
    /// Maps: symbols of files, rows of symbols, names, rows of lines; lines of the kernel.
    pub symbols: &'static str,
    /// See `symbols`.
    pub symbol_rows: &'static str,
    /// See `symbols`.
    pub names: &'static str,
    /// See `symbols`.
    pub line_rows: &'static str,
    /// See `symbols`.
    pub kernel_lines: &'static str,
    /// Counters: cut stacks, truncated texts, addresses without a name.
    pub cut_stacks: u32,
    /// See `cut_stacks`.
    pub truncated: u32,
    /// See `cut_stacks`.
    pub unnamed: u32,
}

impl StackLayout {
    /// Bytes of all addresses of a stack.
    pub(super) fn bytes(&self) -> i32 {
        8 * (self.most + OWN_FRAMES + 2).cast_signed()
    }
}

/// The functions that append numbers.
pub(super) const HEX: (&str, usize) = ("append_hex", 2);
pub(super) const DECIMAL: (&str, usize) = ("append_number_10", 4);

impl AreaLayout for StackLayout {}

/// What the functions are written with.
pub(super) type StackTexts<'a, 'b> = AreaCode<'a, 'b, StackLayout>;

impl<'b> StackTexts<'_, 'b> {
    /// The length of the text; returns if the text is full.
    pub(super) fn length(&self) -> Scalar<'b> {
        let length = self.get(self.layout.text.length.cast_unsigned());
        self.f.ret_if(length.gt(self.layout.text.most), 0);
        length
    }

    pub(super) fn set_length(&self, length: Scalar<'b>) {
        self.set(self.layout.text.length.cast_unsigned(), length);
    }

    /// Appends a literal; returns if the text is full.
    pub(super) fn literal(&self, text: &str) {
        let length = self.length();
        let end = self.block + self.layout.text.text + length;
        let mut off = 0;
        for bytes in text.as_bytes().chunks(4) {
            let mut word = [0; 4];
            word[..bytes.len()].copy_from_slice(bytes);
            // A NUL too many is in front of the text's end.
            let size = match bytes.len() {
                1 => Size::U8,
                2 => Size::U16,
                _ => Size::U32,
            };
            end.store_bytes(size, off, i32::from_le_bytes(word));
            off += 4;
        }
        self.set_length(length + text.len().fit::<i32>());
    }

    /// Appends a number in hexadecimal.
    pub(super) fn hex(&self, number: Scalar<'b>) {
        self.f.call(HEX.0, &[number, self.f.number(0)]);
    }

    /// Appends a number in hexadecimal, with `0x`.
    pub(super) fn marked_hex(&self, number: Scalar<'b>) {
        self.f.call(HEX.0, &[number, self.f.number(flag::MARK)]);
    }

    /// Appends a number in decimal.
    pub(super) fn decimal(&self, number: Scalar<'b>) {
        let [digits, flags, width] = [-1, 0, 0].map(|n| self.f.number(n));
        self.f.call(DECIMAL.0, &[digits, number, flags, width]);
    }

    /// Appends the text at an address; goes to `fail` if it cannot be read. Returns if the text is full.
    pub(super) fn copy(&self, from: Scalar<'b>, fail: BlockExit<'b>) {
        let length = self.length();
        let end = self.block + self.layout.text.text + length;
        // A byte more than the longest text has space for, so that a cut text is noticed.
        let args = [end, self.f.number(self.layout.text.most + 1), from];
        let with_nul = self.f.helper(Helper::ReadText, &args);
        fail.leave_if(with_nul.sle(0));
        self.set_length(length + (with_nul - 1));
    }

    /// Runs code if one of these bits is set.
    pub(super) fn if_any(&self, how: Scalar<'b>, bits: i32, code: impl FnOnce()) {
        self.f.if_(how.has(bits), code);
    }

    /// Runs code for up to `most` indices from `first` on, at most `times` times.
    pub(super) fn indices(
        &self,
        (first, most): (Scalar<'b>, Scalar<'b>),
        times: u32,
        code: impl FnOnce(Scalar<'b>),
    ) {
        let f = self.f;
        let (index, left) = (f.var("index", first), f.var("left", most));
        f.repeat(times, || {
            f.break_if(left.eq(0));
            code(index.get());
            index.set(index + 1);
            left.set(left - 1);
        });
    }
}

/// Words of unwinds.
impl<'b> StackTexts<'_, 'b> {
    pub(super) fn unwind(&self, field: u32) -> Scalar<'b> {
        self.get(self.layout.unwind + field)
    }

    pub(super) fn set_unwind(&self, field: u32, v: impl IntoOperand<'b>) {
        self.set(self.layout.unwind + field, v);
    }

    /// The address, the file and the offset of a user frame; returns if there is no such index.
    pub(super) fn user_frame(&self, index: Scalar<'b>) -> [Scalar<'b>; 3] {
        self.f.ret_if(index.gt(self.layout.most.cast_signed()), 0);
        let words = self.block + (index << 3);
        let (files, offsets) = (at::FILES, at::offsets(self.layout.most));
        let locations = [
            self.layout.frames,
            self.layout.unwind + files,
            self.layout.unwind + offsets,
        ];
        locations.map(|location| words.load_u64(location.fit()))
    }
}
