//! Static markers of an ELF file: the records in `.note.stapsdt`.
//!
//! The format is that of SystemTap's `sys/sdt.h`, which all tools read: a note named
//! `stapsdt` of type 3 whose content is three addresses (the marker, the linker's
//! `.stapsdt.base`, the semaphore) and three strings (provider, name, arguments). When a
//! file was moved after linking (prelink), the difference of `.stapsdt.base` in the file
//! and in the note is by how much.

use std::collections::HashMap;

use object::read::elf::NoteIterator;
use object::{Endianness, Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags, elf};
use spile_abi::Abi;

use crate::image::Image;
use crate::processors::operand_reader;

pub(crate) mod marker;
pub(crate) mod operand;

pub use marker::Marker;
pub use operand::{ArgLocation, MarkerArg};

/// Number of the note type (`NT_STAPSDT`).
const NOTE_TYPE: u32 = 3;

/// The reason why an ELF file could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(pub String);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}

/// Reads all markers of the ELF file with these bytes, in the order of the notes.
///
/// Damaged notes, and those of code that the linker dropped, are left out.
///
/// # Errors
///
/// When the bytes are not an ELF file.
pub fn markers(data: &[u8]) -> Result<Vec<Marker>, Malformed> {
    let file = object::File::parse(data).map_err(|e| Malformed(e.to_string()))?;
    let machine = data.get(18..20).and_then(|n| n.first_chunk());
    let abi = machine.and_then(|n| Abi::of_code(u16::from_le_bytes(*n)));
    let read = abi.and_then(operand_reader);
    let reader = Reader {
        wide: file.is_64(),
        little: file.is_little_endian(),
    };
    let base = file
        .section_by_name(".stapsdt.base")
        .map_or(0, |s| s.address());
    let segments = segments(&file);
    let mut symbols: Option<HashMap<String, u64>> = None;
    let mut markers = Vec::new();
    for section in file.sections() {
        if section.name() != Ok(".note.stapsdt") {
            continue;
        }
        let Ok(notes) = section.data() else { continue };
        for raw in reader.notes(notes) {
            let moved = if base == 0 || raw.base == 0 {
                0
            } else {
                base.wrapping_sub(raw.base)
            };
            let address = raw.site.wrapping_add(moved);
            let Some(offset) = offset_of(&segments, address, true) else {
                continue;
            };
            let semaphore = match raw.semaphore {
                0 => 0,
                semaphore => {
                    offset_of(&segments, semaphore.wrapping_add(moved), false).unwrap_or(0)
                }
            };
            let mut symbol = |name: &str| {
                let table = symbols.get_or_insert_with(|| symbol_table(&file));
                table.get(name).copied()
            };
            let args = operand::split(&raw.args)
                .map(|text| MarkerArg::parse(text, read, &mut symbol))
                .collect();
            markers.push(Marker {
                provider: raw.provider,
                name: raw.name,
                address,
                offset,
                semaphore,
                args,
            });
        }
    }
    Ok(markers)
}

impl Image {
    /// All markers of this file, in the order of the notes.
    #[must_use]
    pub fn markers(&self) -> Vec<Marker> {
        markers(self.elf().data()).unwrap_or_default()
    }
}

/// A loaded part of the file: address, file offset, bytes in the file, whether it is code.
type Segment = (u64, u64, u64, bool);

fn segments(file: &object::File<'_>) -> Vec<Segment> {
    file.segments()
        .map(|s| {
            let (offset, size) = s.file_range();
            let code = match s.flags() {
                SegmentFlags::Elf { p_flags, .. } => p_flags.0 & elf::PF_X.0 != 0,
                _ => true,
            };
            (s.address(), offset, size, code)
        })
        .collect()
}

fn offset_of(segments: &[Segment], address: u64, code: bool) -> Option<u64> {
    let (start, offset, ..) = segments.iter().find(|(start, _, size, x)| {
        (*x || !code) && address.checked_sub(*start).is_some_and(|d| d < *size)
    })?;
    offset.checked_add(address - start)
}

fn symbol_table(file: &object::File<'_>) -> HashMap<String, u64> {
    file.symbols()
        .chain(file.dynamic_symbols())
        .filter(|s| s.is_definition())
        .filter_map(|s| Some((s.name().ok()?.to_owned(), s.address())))
        .collect()
}

/// A note as in the file.
struct RawNote {
    site: u64,
    base: u64,
    semaphore: u64,
    provider: String,
    name: String,
    args: String,
}

/// Byte order and width of addresses.
#[derive(Clone, Copy)]
struct Reader {
    wide: bool,
    little: bool,
}

impl Reader {
    fn number(self, bytes: &[u8]) -> u64 {
        let join = |acc: u64, b: &u8| acc << 8 | u64::from(*b);
        match self.little {
            true => bytes.iter().rev().fold(0, join),
            false => bytes.iter().fold(0, join),
        }
    }

    /// The notes of a section without damaged ones; ends where the sizes make no sense.
    fn notes(self, data: &[u8]) -> Vec<RawNote> {
        let endian = match self.little {
            true => Endianness::Little,
            false => Endianness::Big,
        };
        let notes = NoteIterator::<elf::FileHeader32<Endianness>>::new(endian, 4, data);
        let notes = notes.into_iter().flatten().flatten();
        let markers =
            notes.filter(|n| n.name_bytes() == b"stapsdt\0" && n.n_type(endian).0 == NOTE_TYPE);
        markers.filter_map(|n| self.note(n.desc())).collect()
    }

    fn note(self, desc: &[u8]) -> Option<RawNote> {
        let width = if self.wide { 8 } else { 4 };
        let (addresses, strings) = desc.split_at_checked(3 * width)?;
        let mut numbers = addresses.chunks_exact(width).map(|b| self.number(b));
        let mut texts = strings.split(|b| *b == 0);
        let mut text = || Some(std::str::from_utf8(texts.next()?).ok()?.to_owned());
        Some(RawNote {
            site: numbers.next()?,
            base: numbers.next()?,
            semaphore: numbers.next()?,
            provider: text()?,
            name: text()?,
            args: text()?,
        })
    }
}

#[cfg(test)]
mod tests;
