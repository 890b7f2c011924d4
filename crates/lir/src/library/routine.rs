//! What a host asks the library for, as values.
//!
//! In: nothing. Out: [`Routine::module`] builds the functions of a request. [`Routine::free`] gives access to
//! the request's immediates: the integers that the code contains unchanged, such as offsets. A host can
//! thus keep the code of a request and replace the immediates in it ([`Routine::shape`]).
//!
//! The name of a map in the code can be replaced in the same way ([`Routine::name`]).
//!
//! A function that is made for the widths of one call (`find`, `replace`) has no request: its caller
//! builds it.

use std::ops::RangeInclusive;

use super::append;
use super::arguments::{self, DeferredReads};
use super::defer::{self, DeferLayout};
use super::heap::{self, HeapLayout};
use super::mappings::MappingOffsets;
use super::output::{self, FlushLayout};
use super::quote;
use super::regex;
use super::stacks::{StackLayout, StackText};
use super::unwind::{self, UnwindOffsets};
use super::usermem::{self, PageOffsets};
use super::{FUNCTIONS, only};
use crate::func::{ConstantData, Module};

/// A request. Requests are equal if their code is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Routine {
    /// A function that is the same for all callers, by its name.
    Common(&'static str),
    /// [`append::append_text`].
    AppendText(append::AppendLayout),
    /// [`append::append_bytes`].
    AppendBytes(append::AppendLayout),
    /// [`append::append_hex`].
    AppendHex(append::AppendLayout),
    /// [`append::append_number`] in a base.
    AppendNumber(append::AppendLayout, u32),
    /// [`quote::quote`] for a width, with the largest length.
    Quote(u32, u32),
    /// [`arguments::module`] with lists of names of this many bytes.
    Arguments(arguments::ArgumentLayout, i32),
    /// [`usermem::module`].
    UserMemory(usermem::UsermemLayout),
    /// [`defer::user_defer`].
    Defer(DeferLayout),
    /// [`unwind::addresses`].
    Addresses(unwind::UnwindLayout),
    /// [`unwind::module`].
    Unwind(unwind::UnwindLayout),
    /// A text of a stack.
    StackText(StackText),
    /// [`heap::module`].
    Heap(HeapLayout),
    /// [`output::flush`].
    Flush(FlushLayout),
    /// [`regex::find_steps`].
    FindSteps,
}

/// What a name contains in a shape, and nothing else does.
pub const NAME: &str = "NAME";

/// A number of a request.
#[derive(Debug)]
pub enum Number<'a> {
    /// With a sign.
    Signed(&'a mut i32),
    /// Without a sign.
    Unsigned(&'a mut u32),
}

impl Number<'_> {
    /// The number.
    pub fn get(&self) -> i32 {
        match self {
            Number::Signed(n) => **n,
            Number::Unsigned(n) => n.cast_signed(),
        }
    }

    /// Changes the number.
    pub fn set(&mut self, to: i32) {
        match self {
            Number::Signed(n) => **n = to,
            Number::Unsigned(n) => **n = to.cast_unsigned(),
        }
    }
}

impl<'a> From<&'a mut i32> for Number<'a> {
    fn from(n: &'a mut i32) -> Number<'a> {
        Number::Signed(n)
    }
}

impl<'a> From<&'a mut u32> for Number<'a> {
    fn from(n: &'a mut u32) -> Number<'a> {
        Number::Unsigned(n)
    }
}

/// The values of a number with which functions differ in that number only.
pub type Values = RangeInclusive<i32>;

/// An offset that is added to an address. The addition of 0 is no instruction, and sums beyond 16 bits
/// are no displacement.
const OFFSET: Values = 1..=16_000;
/// An offset in the state memory, or a number that is stored, handed on or compared.
const ANY: Values = 0..=1 << 30;
/// Bytes of lists of names, more than one.
const NAMES: Values = 2 * arguments::ENTRY.cast_signed()..=1 << 20;

/// A part of a request that contains numbers.
trait Numbers {
    /// Adds the immediates of this part, each with the range of values for which the rest of the code is the
    /// same. All other integers of a request select the code.
    fn add<'a>(&'a mut self, numbers: &mut Vec<(Number<'a>, Values)>);
}

impl<T: Numbers> Numbers for Option<T> {
    fn add<'a>(&'a mut self, numbers: &mut Vec<(Number<'a>, Values)>) {
        if let Some(part) = self {
            part.add(numbers);
        }
    }
}

impl<const N: usize> Numbers for [u32; N] {
    fn add<'a>(&'a mut self, numbers: &mut Vec<(Number<'a>, Values)>) {
        numbers.extend(self.iter_mut().map(|n| (n.into(), OFFSET)));
    }
}

/// Says of each field of a type what it is: `code` decides which code there is, `parts` have numbers of
/// their own, and the others are numbers, by their values. A field that is not named is an error.
macro_rules! numbers {
    ($type:path { code: $($code:ident),*; parts: $($part:ident),*; $($values:ident: $($number:ident),+;)* }) => {
        impl Numbers for $type {
            fn add<'a>(&'a mut self, numbers: &mut Vec<(Number<'a>, Values)>) {
                let Self { $($($number,)+)* $($part,)* $($code: _,)* } = self;
                $($(numbers.push(($number.into(), $values));)+)*
                $($part.add(numbers);)*
            }
        }
    };
}

numbers! { append::AppendLayout {
    code: most;
    parts: ;
    OFFSET: length, text, digits;
} }

numbers! { arguments::ArgumentLayout {
    code: most, quote, signed, mark;
    parts: defer;
    OFFSET: length, arguments, staging, quoted;
} }

numbers! { DeferredReads {
    code: ;
    parts: ;
    OFFSET: allowed;
    ANY: absent, quoted;
} }

numbers! { usermem::UsermemLayout {
    code: most;
    parts: pages;
    OFFSET: staging, copy, search;
    ANY: first_page, direct_map;
} }

numbers! { DeferLayout {
    code: ring;
    parts: text;
    OFFSET: record, count, task_id, task_start, task_program;
    ANY: mark, shape, wakeup;
} }

numbers! { FlushLayout {
    code: running, ring;
    parts: ;
    OFFSET: position, buffer, lost;
    ANY: size, wake;
} }

numbers! { MappingOffsets {
    code: ;
    parts: ;
    OFFSET: task_mm, mm_root, vma_start, vma_end;
} }

numbers! { PageOffsets {
    code: uptodate, page_size;
    parts: mapping;
    OFFSET: vma_flags, vma_pgoff, vma_file, vma_anon, file_mapping, mapping_head, node_shift,
        node_slots, folio_flags, folio_index;
} }

numbers! { unwind::UnwindLayout {
    code: abi, most, files, rows, copies, ring;
    parts: offsets;
    OFFSET: base, search, frames, count, first, guessed, cut_stacks, lost_output, no_memory;
    ANY: next_file, file_record, copy_record, wakeup;
} }

numbers! { StackLayout {
    code: most, lines, symbols, symbol_rows, names, line_rows, kernel_lines;
    parts: text;
    OFFSET: frames, count, first, unwind, words, cut_stacks, truncated, unnamed;
    ANY: texts, ranges;
} }

numbers! { UnwindOffsets {
    code: ;
    parts: mapping, returns;
    OFFSET: task_tgid, mm_vdso, vma_pgoff, vma_file, vma_flags, file_inode,
        file_dentry, inode_ino, inode_sb, sb_dev, dentry_parent, dentry_name;
} }

impl Routine {
    /// The request for a function that is the same for all callers.
    pub fn common(name: &str) -> Option<Routine> {
        let (name, _) = FUNCTIONS.iter().find(|(n, _)| *n == name)?;
        Some(Routine::Common(name))
    }

    /// The requests for the functions that are the same for all callers.
    pub fn all_common() -> impl Iterator<Item = Routine> {
        FUNCTIONS.iter().map(|(name, _)| Routine::Common(name))
    }

    /// The functions. `given` are the constants that only the caller has: `names` and `escapes`.
    pub fn module(&self, given: &[ConstantData]) -> Module {
        let bytes = |name: &str| {
            let data = given.iter().find(|d| d.name == name);
            data.map_or(&[][..], |d| &d.bytes)
        };
        match self {
            Routine::Common(name) => only(name).unwrap_or_default(),
            Routine::AppendText(layout) => append::append_text(*layout),
            Routine::AppendBytes(layout) => append::append_bytes(*layout),
            Routine::AppendHex(layout) => append::append_hex(*layout),
            Routine::AppendNumber(layout, base) => append::append_number(*layout, *base),
            Routine::Quote(wide, most) => quote::quote(*wide, *most, bytes(quote::ESCAPES)),
            Routine::Arguments(layout, size) => {
                let mut names = bytes(arguments::NAMES).to_vec();
                names.resize(usize::try_from(*size).unwrap_or(0), 0);
                arguments::module(layout, names, bytes(quote::ESCAPES))
            }
            Routine::UserMemory(layout) => usermem::module(layout),
            Routine::Defer(layout) => defer::user_defer(layout),
            Routine::Addresses(layout) => unwind::addresses(layout),
            Routine::Unwind(layout) => unwind::module(layout),
            Routine::StackText(text) => text.module(),
            Routine::Heap(layout) => heap::module(layout),
            Routine::Flush(layout) => output::flush(layout),
            Routine::FindSteps => regex::find_steps(),
        }
    }

    fn numbers(&mut self) -> Vec<(Number<'_>, Values)> {
        let mut numbers = Vec::new();
        match self {
            Routine::Common(_) | Routine::Quote(..) | Routine::Heap(_) | Routine::FindSteps => {}
            Routine::AppendText(layout)
            | Routine::AppendBytes(layout)
            | Routine::AppendHex(layout)
            | Routine::AppendNumber(layout, _) => layout.add(&mut numbers),
            Routine::Arguments(layout, names) => {
                layout.add(&mut numbers);
                numbers.push((names.into(), NAMES));
            }
            Routine::UserMemory(layout) => layout.add(&mut numbers),
            Routine::Defer(layout) => layout.add(&mut numbers),
            Routine::Flush(layout) => layout.add(&mut numbers),
            Routine::Addresses(layout) | Routine::Unwind(layout) => layout.add(&mut numbers),
            Routine::StackText(text) => text.layout.add(&mut numbers),
        }
        numbers
    }

    /// The numbers of the request whose values contain them.
    pub fn free(&mut self) -> Vec<(Number<'_>, Values)> {
        let mut numbers = self.numbers();
        numbers.retain(|(number, values)| values.contains(&number.get()));
        numbers
    }

    /// The name of the request that names in code contain as it is, if it has one.
    pub fn name(&mut self) -> Option<&mut String> {
        match self {
            Routine::Heap(layout) => Some(&mut layout.map),
            _ => None,
        }
    }

    /// The request with the least value of its range for each immediate, and [`NAME`] for the name. Requests
    /// of one shape have functions that differ only in their immediates and the name.
    pub fn shape(&self) -> Routine {
        let mut shape = self.clone();
        if let Some(name) = shape.name() {
            *name = NAME.into();
        }
        for (mut number, values) in shape.free() {
            number.set(*values.start());
        }
        shape
    }
}
