//! Relocatable files, such as kernel modules: assigns addresses to their sections, and applies
//! their relocations.

use std::borrow::Cow;

use object::read::elf::{ElfSection64, Sym};
use object::{
    LittleEndian, Object, ObjectSection, ObjectSymbol, RelocationKind, RelocationTarget,
    SectionFlags, elf,
};

use crate::image::{Elf, Segment};

/// The first address; address 0 has a special meaning in too many cases.
const FIRST: u64 = spile_abi::PAGE as u64;
/// Sections begin at multiples of this, or of their own larger alignment.
const ALIGNED: u64 = FIRST;
/// Maximum plausible alignment.
const MAX_ALIGNED: u64 = 1 << 20;

/// A loaded section and its assigned address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedSection {
    /// Its name, such as `.text`.
    pub name: String,
    /// Its first address.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
    index: usize,
    offset: u64,
    in_file: bool,
    code: bool,
}

/// The assigned addresses of all sections.
pub(crate) struct SectionLayout {
    pub(crate) sections: Vec<PlacedSection>,
}

impl SectionLayout {
    pub(crate) fn new(elf: &Elf) -> SectionLayout {
        let mut next = FIRST;
        let mut sections = Vec::new();
        for section in elf.sections() {
            let SectionFlags::Elf { sh_flags, .. } = section.flags() else {
                continue;
            };
            let has = |flag| sh_flags.contains(flag);
            if !has(elf::SHF_ALLOC) || section.size() == 0 {
                continue;
            }
            let aligned = section.align().clamp(ALIGNED, MAX_ALIGNED);
            let Some(address) = next.checked_next_multiple_of(aligned) else {
                break;
            };
            let Some(end) = address.checked_add(section.size()) else {
                break;
            };
            let range = section.file_range();
            sections.push(PlacedSection {
                name: section.name().unwrap_or("").to_owned(),
                address,
                size: section.size(),
                index: section.index().0,
                offset: range.map_or(0, |r| r.0),
                in_file: range.is_some_and(|r| r.1 == section.size()),
                code: has(elf::SHF_EXECINSTR),
            });
            next = end;
        }
        SectionLayout { sections }
    }

    pub(crate) fn segments(&self) -> Vec<Segment> {
        let segment = |p: &PlacedSection| Segment {
            address: p.address,
            offset: p.offset,
            file_size: if p.in_file { p.size } else { 0 },
            mem_size: p.size,
            executable: p.code,
        };
        self.sections.iter().map(segment).collect()
    }

    fn section(&self, index: usize) -> Option<&PlacedSection> {
        let position = self.sections.binary_search_by_key(&index, |p| p.index);
        self.sections.get(position.ok()?)
    }

    /// The address of a symbol of a loaded section.
    pub(crate) fn symbol(&self, symbol: &elf::Sym64<LittleEndian>) -> Option<u64> {
        let index = symbol.st_shndx(LittleEndian);
        let section = self.section(usize::from(index.0))?;
        section.address.checked_add(symbol.st_value(LittleEndian))
    }

    /// The bytes of a section with its relocations applied; references to sections that are not
    /// loaded become offsets in them.
    pub(crate) fn relocated(
        &self,
        elf: &Elf,
        section: &ElfSection64<'static, '_, LittleEndian>,
        bytes: Cow<'static, [u8]>,
    ) -> Cow<'static, [u8]> {
        let mut relocations = section.relocations().peekable();
        if relocations.peek().is_none() {
            return bytes;
        }
        let mut bytes = bytes.into_owned();
        for (offset, r) in relocations {
            let RelocationTarget::Symbol(target) = r.target() else {
                continue;
            };
            let Ok(symbol) = elf.symbol_by_index(target) else {
                continue;
            };
            let base = symbol
                .section_index()
                .and_then(|i| Some(self.section(i.0)?.address));
            let base = base.unwrap_or(0).wrapping_add(symbol.address());
            let value = match r.kind() {
                RelocationKind::Absolute => base.wrapping_add_signed(r.addend()),
                _ => continue,
            };
            let size = usize::from(r.size() / 8);
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let to = start
                .checked_add(size)
                .and_then(|end| bytes.get_mut(start..end));
            if let (Some(to), true) = (to, size <= 8) {
                to.copy_from_slice(&value.to_le_bytes()[..size]);
            }
        }
        Cow::Owned(bytes)
    }
}
