//! Units and entries of DWARF, and the sections that they are in.

use std::sync::Arc;

use gimli::{AttributeValue, EndianSlice, LittleEndian};

use crate::image::Image;

pub(crate) type R = EndianSlice<'static, LittleEndian>;
pub(crate) type Unit = gimli::Unit<R>;
pub(crate) type Entry = gimli::DebuggingInformationEntry<R>;

/// Maximum length of a chain of references between entries.
pub(crate) const MAX_CHAIN: usize = 16;
/// An entry of the DWARF of one module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Die {
    /// 0 for the file itself, 1 for the part that dwz moved out.
    pub(crate) part: u8,
    pub(crate) unit: u32,
    pub(crate) offset: usize,
}

impl Die {
    /// An entry of the file itself.
    pub(crate) fn of_file(unit: u32, offset: usize) -> Die {
        let part = 0;
        Die { part, unit, offset }
    }

    /// Another entry of the same unit.
    pub(crate) fn with_offset(self, offset: usize) -> Die {
        Die { offset, ..self }
    }
}

/// Loads the sections of a file, and keeps the bytes of compressed ones.
pub(crate) struct SectionLoader {
    owned: Vec<Box<[u8]>>,
    pub(crate) image: Arc<Image>,
}

impl SectionLoader {
    pub(crate) fn new(image: &Arc<Image>) -> SectionLoader {
        SectionLoader {
            owned: Vec::new(),
            image: image.clone(),
        }
    }

    /// A section; empty if there is none. It must not outlive the loader.
    pub(crate) fn load(&mut self, name: &str) -> R {
        let bytes = match self.image.joined_sections(name) {
            None => &[][..],
            Some(std::borrow::Cow::Borrowed(b)) => b,
            Some(std::borrow::Cow::Owned(v)) => {
                self.owned.push(v.into_boxed_slice());
                let last: &[u8] = self.owned.last().map_or(&[], |b| b);
                // SAFETY: a box's bytes do not move when the vector grows, and the loader
                // keeps the boxes for as long as what points into them.
                unsafe { std::slice::from_raw_parts(last.as_ptr(), last.len()) }
            }
        };
        EndianSlice::new(bytes, LittleEndian)
    }

    /// Releases the memory of a mapped part of a section.
    pub(crate) fn release(&self, bytes: &[u8]) {
        if self.owned.is_empty() {
            self.image.release(bytes);
        }
    }

    /// Releases the memory of the whole file.
    pub(crate) fn release_all(&self) {
        self.image.release(self.image.bytes());
    }
}

/// The first entry of a unit, in which all others are.
pub(crate) fn root(unit: &Unit) -> Option<Entry> {
    let mut entries = unit.entries();
    entries.next_entry().ok()?;
    entries.current().cloned()
}

/// A small unsigned number, in any form.
pub(crate) fn number(value: AttributeValue<R>) -> Option<u64> {
    value
        .udata_value()
        .or_else(|| value.sdata_value().map(|v| v.cast_unsigned()))
}

/// A constant that can be negative. Producers write negative ones with a sign (`DW_FORM_sdata`), and
/// `DW_FORM_data1` to `data8` only for others, as gcc does: `data1` of 200 is not -56.
pub(crate) fn constant(value: &AttributeValue<R>) -> Option<i64> {
    match value {
        AttributeValue::Sdata(n) => Some(*n),
        value => value.udata_value().map(u64::cast_signed),
    }
}

/// The value of a number attribute.
pub(crate) fn number_of(entry: &Entry, name: gimli::DwAt) -> Option<u64> {
    entry.attr_value(name).and_then(number)
}

/// Whether a flag is set.
pub(crate) fn flag(entry: &Entry, name: gimli::DwAt) -> bool {
    matches!(entry.attr_value(name), Some(AttributeValue::Flag(true)))
}

/// Whether one of these ranges of addresses contains an address.
pub(crate) fn contains(ranges: &[(u64, u64)], address: u64) -> bool {
    ranges.iter().any(|r| (r.0..r.1).contains(&address))
}
