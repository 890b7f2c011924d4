//! Debugging information that the compiler split off to other files (`-gsplit-dwarf`). They are not
//! read; the file's own part says that they exist.

use crate::dwarf::{Die, Dwarf};

/// Maximum number of units that are asked.
const MAX_UNITS: u32 = 64;

/// Units whose entries are in files of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitUnits {
    /// The file of the first one, as its unit names it.
    pub file: String,
    /// Whether no unit has entries in the file itself.
    pub all: bool,
}

impl Dwarf {
    /// The units that were split off, if there are any among the first ones.
    #[must_use]
    pub fn split_units(&self) -> Option<SplitUnits> {
        let units = 0..(self.headers(0).len() as u32).min(MAX_UNITS);
        let (mut file, mut all) = (None, true);
        for unit in units {
            match self.split_file(unit) {
                Some(name) => file = file.or(Some(name)),
                None => all = false,
            }
        }
        file.map(|file| SplitUnits { file, all })
    }

    /// The file that a unit of the file itself names.
    fn split_file(&self, unit: u32) -> Option<String> {
        let parsed = self.unit(0, unit)?;
        let mut entries = parsed.entries();
        entries.next_entry().ok()?;
        let entry = entries.current()?;
        let name = entry
            .attr_value(gimli::DW_AT_dwo_name)
            .or_else(|| entry.attr_value(gimli::DW_AT_GNU_dwo_name))?;
        let root = Die {
            part: 0,
            unit,
            offset: entry.offset().0,
        };
        self.text(root, name).map(str::to_owned)
    }
}
