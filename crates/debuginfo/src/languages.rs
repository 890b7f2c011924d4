//! The languages of units.

use gimli::AttributeValue;
use spile_cast::Cast;

use crate::caches::Importers;
use crate::dwarf::Dwarf;
use crate::unit::{Die, number_of, root};

/// Maximum number of units that import one another.
const MAX_IMPORTS: usize = 8;

impl Dwarf {
    /// The language of an entry's unit. dwz moves entries that several units have to units without a
    /// language, which these import.
    pub(crate) fn language(&self, die: Die) -> Option<gimli::DwLang> {
        let mut unit = (die.part, die.unit);
        for _ in 0..MAX_IMPORTS {
            if let Some(language) = self.own_language(unit.0, unit.1) {
                return Some(language);
            }
            unit = *self
                .caches
                .importers
                .get_or_init(|| self.imports())
                .get(&unit)?;
        }
        None
    }

    fn own_language(&self, part: u8, unit: u32) -> Option<gimli::DwLang> {
        let entry = root(&*self.unit(part, unit)?)?;
        match entry.attr_value(gimli::DW_AT_language)? {
            AttributeValue::Language(l) => Some(l),
            _ => number_of(&entry, gimli::DW_AT_language)
                .and_then(|n| u16::try_from(n).ok())
                .map(gimli::DwLang),
        }
    }

    fn imports(&self) -> Importers {
        let mut importers = Importers::new();
        for part in 0..self.parts().len().min(2).fit::<u8>() {
            for number in 0..self.headers(part).len().fit::<u32>() {
                let Some(unit) = self.unit(part, number) else {
                    continue;
                };
                let mut entries = unit.entries();
                let _ = entries.next_entry();
                // The imports come first.
                while let Ok(true) = entries.next_entry() {
                    let Some(entry) = entries.current() else {
                        break;
                    };
                    if entry.tag() != gimli::DW_TAG_imported_unit {
                        break;
                    }
                    let offset = entry.offset().0;
                    let unit = number;
                    let from = Die { part, unit, offset };
                    let to = entry.attr_value(gimli::DW_AT_import);
                    if let Some(to) = to.and_then(|to| self.refer(from, to)) {
                        importers
                            .entry((to.part, to.unit))
                            .or_insert((part, number));
                    }
                }
            }
        }
        importers
    }
}
