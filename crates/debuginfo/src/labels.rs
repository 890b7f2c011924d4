//! Labels in functions.

use std::sync::Arc;

use crate::dwarf::Dwarf;
use crate::functions::Pattern;
use crate::unit::Die;

/// A label that has an address. Compilers drop labels that no code needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelLocation {
    /// Its name in the source.
    pub name: Arc<str>,
    /// The address of the first instruction behind it.
    pub address: u64,
}

impl Dwarf {
    /// The labels in the code of a function and of what is inlined into it, in order of address.
    #[must_use]
    pub fn labels(&self, function: Die, name: Pattern<'_>) -> Vec<LabelLocation> {
        let mut found = Vec::new();
        let _ = self.list_labels(function, name, &mut found);
        found.sort_by_key(|label| label.address);
        found
    }

    fn list_labels(
        &self,
        function: Die,
        name: Pattern<'_>,
        found: &mut Vec<LabelLocation>,
    ) -> Option<()> {
        let unit = self.unit(function.part, function.unit)?;
        let dwarf = self.forms(function.part, function.unit);
        let first = gimli::UnitOffset(function.offset);
        let mut raw = unit.entries_raw(Some(first)).ok()?;
        let mut entry = gimli::DebuggingInformationEntry::null();
        // The depth of a nested function, whose labels are its own.
        let mut passed = None;
        loop {
            let (offset, depth) = (raw.next_offset(), raw.next_depth());
            let any = raw.read_entry(&mut entry).ok()?;
            if passed.is_some_and(|p| depth <= p) {
                passed = None;
            }
            if any && passed.is_none() && entry.tag() == gimli::DW_TAG_subprogram {
                passed = Some(depth).filter(|_| offset.0 != function.offset);
            }
            if any && passed.is_none() && entry.tag() == gimli::DW_TAG_label {
                let die = Die {
                    offset: offset.0,
                    ..function
                };
                let address = entry
                    .attr_value(gimli::DW_AT_low_pc)
                    .and_then(|v| dwarf.attr_address(&unit, v).ok().flatten());
                let label = self.name(die, &entry).filter(|label| name.matches(label));
                if let (Some(address), Some(label)) = (address, label) {
                    found.push(LabelLocation {
                        name: label.into(),
                        address,
                    });
                }
            }
            if raw.next_depth() <= 0 || raw.is_empty() {
                return Some(());
            }
        }
    }
}
