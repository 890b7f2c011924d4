//! Relocations of a file: what the loader writes into its memory.

use object::read::elf::{Rela, SectionHeader, Sym};
use object::{LittleEndian, elf};

use crate::image::Image;

/// A word that the loader writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relocation<'a> {
    /// Linked address of the word.
    pub slot: u64,
    /// What it becomes.
    pub value: SlotValue<'a>,
}

/// What the loader writes into a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotValue<'a> {
    /// The address of a symbol.
    Symbol {
        /// Its name.
        name: &'a str,
        /// Its version, if the reference has one.
        version: Option<&'a str>,
    },
    /// The address in memory of this linked address.
    Own(u64),
    /// The address that the function at this linked address returns (indirect functions).
    Chosen(u64),
}

/// The relocations of a file that the loader applies, those of static programs included. Packed ones
/// (`SHT_RELR`) are missing: their values are in the file itself.
#[must_use]
pub fn of(image: &Image) -> Vec<Relocation<'_>> {
    let e = LittleEndian;
    let data = image.elf().data();
    let sections = image.elf().elf_section_table();
    let mut relocations = Vec::new();
    let Some(abi) = image.abi() else {
        return relocations;
    };
    let types = &abi.relocations;
    let versions = sections.versions(e, data).ok().flatten();
    for section in sections.iter() {
        if !section.sh_flags(e).contains(elf::SHF_ALLOC) {
            continue;
        }
        let Ok(Some((entries, link))) = section.rela(e, data) else {
            continue;
        };
        let symbols = sections.symbol_table_by_index(e, data, link).ok();
        let symbol = |index| {
            let table = symbols.as_ref()?;
            let name = table.symbol(index).ok()?.name(e, table.strings()).ok()?;
            let version = versions.as_ref().and_then(|v| {
                let version = v.version(v.version_index(e, index).index()).ok()??;
                std::str::from_utf8(version.name()).ok()
            });
            let name = std::str::from_utf8(name).ok().filter(|n| !n.is_empty())?;
            Some(SlotValue::Symbol { name, version })
        };
        for entry in entries {
            let (kind, addend) = (entry.r_type(e, false).0, entry.r_addend(e));
            let value = match kind {
                _ if kind == types.relative => Some(SlotValue::Own(addend.cast_unsigned())),
                _ if kind == types.chosen => Some(SlotValue::Chosen(addend.cast_unsigned())),
                _ if types.symbol.contains(&kind) => entry.symbol(e, false).and_then(symbol),
                _ => None,
            };
            let slot = entry.r_offset(e);
            relocations.extend(value.map(|value| Relocation { slot, value }));
        }
    }
    relocations
}

/// A symbol that a file exports, with its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionedSymbol<'a> {
    /// Its name without the version.
    pub name: &'a str,
    /// Its linked address.
    pub address: u64,
    /// Its version, as in `name@VERSION`.
    pub version: &'a str,
    /// The version that programs get when they are linked today (`name@@VERSION`).
    pub default: bool,
}

/// The exported symbols that have a version.
#[must_use]
pub fn versioned(image: &Image) -> Vec<VersionedSymbol<'_>> {
    let e = LittleEndian;
    let table = image.elf().elf_dynamic_symbol_table();
    let sections = image.elf().elf_section_table();
    let Ok(Some(versions)) = sections.versions(e, image.elf().data()) else {
        return Vec::new();
    };
    let one = |(index, symbol): (_, &elf::Sym64<LittleEndian>)| {
        let version_index = versions.version_index(e, index);
        let version = versions.version(version_index.index()).ok()??;
        let name = symbol.name(e, table.strings()).ok()?;
        Some(VersionedSymbol {
            name: std::str::from_utf8(name).ok()?,
            address: image.symbol_address(symbol),
            version: std::str::from_utf8(version.name()).ok()?,
            default: !version_index.is_hidden(),
        })
    };
    let defined = table.enumerate().filter(|(_, s)| !s.is_undefined(e));
    defined.filter_map(one).collect()
}
