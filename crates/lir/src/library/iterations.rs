//! Callbacks of iterations over the elements of an array, whose key or part of it is given: those that remove
//! elements, find one, or copy them to the entries of a `foreach`; and the look-up of one element.
//!
//! In: the shape of the array ([`KeyFields`]). Out: functions, each made for one iteration.

use spile_cast::Cast;

use super::arithmetic::quotient;
use super::heap::node;
use crate::builder::{BlockExit, Builder, Scalar, build};
use crate::func::{MemoryOperand, Module};
use crate::helpers::Helper;
use crate::op::Size;

/// Up to this number of bytes, parts are copied word by word; a helper copies more.
const FEW_BYTES: u32 = 128;

/// The bit that makes numbers with signs order as those without.
const SIGN: u64 = 1 << 63;

const PARAMS: [&str; 4] = ["map", "key", "value", "context"];

/// The fields of an array's key: the bytes of each one, and whether the iteration is about the elements with a
/// given content of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFields(pub Vec<(u32, bool)>);

impl KeyFields {
    /// Goes to `other` if a given field of two keys differs.
    fn compare<'b>(&self, (a, b): (Scalar<'b>, Scalar<'b>), other: BlockExit<'b>) {
        let mut offset = 0;
        for (bytes, given) in &self.0 {
            let words = (offset..offset + bytes).step_by(8).filter(|_| *given);
            let words: Vec<i32> = words.map(u32::cast_signed).collect();
            offset += bytes;
            let Some((first, rest)) = words.split_first() else {
                continue;
            };
            let word = |key: Scalar<'b>, offset: i32| (key + offset).load_u64(0);
            other.leave_if(word(a, *first).ne(word(b, *first)));
            // One jump for the other words: the verifier limits the number of jumps.
            let differs = rest
                .iter()
                .map(|offset| word(a, *offset) ^ word(b, *offset));
            if let Some(differs) = differs.reduce(|any, one| any | one) {
                other.leave_if(differs.ne(0));
            }
        }
    }
}

/// The function `find`, with that name.
pub fn find(name: &str, map: &str) -> Module {
    let contract = "\
The address of an element of the map, or 0.
key: the address of its key.
Cost: a look-up.";
    Module::from(build(name, contract, ["key"], |f, [key]| {
        let map = f.addr(MemoryOperand::Map(map.to_owned()));
        f.ret(f.helper(Helper::MapLookup, &[map, key]));
    }))
}

/// What an iteration does with the elements that have the given fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slice {
    /// Removes them.
    Remove,
    /// Notes that there is one, and ends the iteration.
    Find,
}

/// The callback, with that name.
pub fn slice(name: &str, fields: &KeyFields, action: Slice) -> Module {
    let contract = match action {
        Slice::Remove => {
            "\
Removes an element if its key has the given fields; returns 0.
map: the array. key: the element's. value: not read. context: the address of the wanted key.
Cost: three instructions for each word of a given field, and the removal."
        }
        Slice::Find => {
            "\
Stores 1 and returns it if an element's key has the given fields, else returns 0.
map, value: not read. key: the element's. context: the address of the wanted key, a word for the answer.
Cost: three instructions for each word of a given field."
        }
    };
    Module::from(build(name, contract, PARAMS, |f, p| {
        let [map, key, _, context] = p;
        f.block(|other| {
            fields.compare((key, context.load_u64(0)), other);
            match action {
                Slice::Remove => drop(f.helper(Helper::MapDelete, &[map, key])),
                Slice::Find => {
                    context.store_u64(8, 1);
                    f.ret(1);
                }
            }
        });
        f.ret(0);
    }))
}

/// Offset of a part of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementOffset {
    /// In the key.
    Key(u32),
    /// In the value, which begins with its sequence number.
    Value(u32),
}

/// A part that is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopiedPart {
    /// Its location in the element.
    pub from: ElementOffset,
    /// Its offset in the entry.
    pub to: u32,
    /// Its bytes.
    pub bytes: u32,
}

/// What a statistic says. Offsets are those of its words in the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistic {
    /// A word of it, such as the sum.
    Word(u32),
    /// The sum, divided by the number.
    Average(u32),
    /// The variance: of the sum, and of the sum of squares.
    Variance(u32, u32),
}

/// What entries are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortWord {
    /// The sequence number.
    Sequence,
    /// A number with a sign.
    Number(ElementOffset),
    /// The beginning of a text.
    Text(ElementOffset),
    /// A statistic's value, 0 if the number at the first offset is 0.
    Statistic(u32, Statistic),
}

/// An iteration that copies elements. Offsets are those of bytes in the per-CPU area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyLayout {
    /// The function's name.
    pub name: String,
    /// The fields of the key.
    pub fields: KeyFields,
    /// The wanted key.
    pub key: u32,
    /// The word with the index of the first entry.
    pub base: u32,
    /// The word with the number of entries.
    pub size: u32,
    /// The map of the entries.
    pub map: String,
    /// The largest number of entries.
    pub entries: u32,
    /// What is copied.
    pub parts: Vec<CopiedPart>,
    /// What entries are sorted by.
    pub word: SortWord,
    /// Whether the largest one comes first.
    pub descending: bool,
}

/// The callback.
pub fn copy(layout: &CopyLayout) -> Module {
    let contract = "\
Copies an element to the next entry if its key has the given fields; returns 0.
map: not read. key, value: the element's. context: the address of the processor's block.
Cost: a look-up, about 25 instructions, two for each word that is copied, and a call for the variance.";
    let func = build(&layout.name, contract, PARAMS, |f, p| {
        let [_, key, value, context] = p;
        let block = context.load_u64(0);
        let of_block = |offset: u32| block + offset.cast_signed();
        let part = |part: ElementOffset| match part {
            ElementOffset::Key(offset) => key + offset.cast_signed(),
            ElementOffset::Value(offset) => value + offset.cast_signed(),
        };
        f.block(|other| {
            layout.fields.compare((key, of_block(layout.key)), other);
            let size = of_block(layout.size).load_u64(0);
            // There are at most as many elements as the array holds.
            other.leave_if(size.ge(layout.entries.cast_signed()));
            let index = f.slot(8);
            index.store_bytes(Size::U32, 0, size + of_block(layout.base).load_u64(0));
            let map = f.addr(MemoryOperand::Map(layout.map.clone()));
            let entry = f.helper(Helper::MapLookup, &[map, index]);
            other.leave_if(entry.eq(0));
            for copied in &layout.parts {
                let (to, from) = (entry + copied.to.cast_signed(), part(copied.from));
                if copied.bytes > FEW_BYTES {
                    let bytes = f.constant(copied.bytes.into());
                    f.helper(Helper::Read, &[to, bytes, from]);
                    continue;
                }
                for word in (0..copied.bytes.fit::<i16>()).step_by(8) {
                    to.store_u64(word, from.load_u64(word));
                }
            }
            let word = match layout.word {
                SortWord::Sequence => value.load_u64(0),
                SortWord::Text(text) => part(text).load_u64(0).swap(),
                SortWord::Number(number) => part(number).load_u64(0) ^ SIGN,
                SortWord::Statistic(count, what) => statistic(f, value, count, what) ^ SIGN,
            };
            let word = if layout.descending { word ^ -1 } else { word };
            entry.store_u64(node::WORD, word);
            entry.store_u64(node::SEQ, value.load_u64(0));
            let size = of_block(layout.size).load_u64(0);
            entry.store_u64(node::ENTRY, size);
            of_block(layout.size).store_u64(0, size + 1);
        });
        f.ret(0);
    });
    let calls = matches!(layout.word, SortWord::Statistic(_, Statistic::Variance(..)));
    let variance = calls.then_some(("variance", 4));
    Module::from(func).with_externs(variance.as_slice())
}

/// What a statistic says, or 0 if it is empty.
fn statistic<'b>(f: &'b Builder, value: Scalar<'b>, count: u32, part: Statistic) -> Scalar<'b> {
    let word = |offset: u32| (value + offset.cast_signed()).load_u64(0);
    let count = word(count);
    let result = f.var("result", 0);
    f.if_(count.ne(0), || {
        result.set(match part {
            Statistic::Word(offset) => word(offset),
            Statistic::Average(sum) => quotient(word(sum), count),
            Statistic::Variance(sum, squares) => {
                let args = [count, word(sum), word(squares), word(squares + 8)];
                f.call("variance", &args)
            }
        });
    });
    result.get()
}
