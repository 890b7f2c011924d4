//! Labels in functions.

use std::sync::Arc;

use crate::dwarf::Dwarf;
use crate::entries::Next;
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
        let mut labels = Vec::new();
        let _ = self.list_labels(function, name, &mut labels);
        labels.sort_by_key(|label| label.address);
        labels
    }

    fn list_labels(
        &self,
        function: Die,
        name: Pattern<'_>,
        labels: &mut Vec<LabelLocation>,
    ) -> Option<()> {
        let unit = self.unit(function.part, function.unit)?;
        self.visit(function, |_, die, entry| {
            // The labels of a nested function are its own.
            if entry.tag() == gimli::DW_TAG_subprogram && die != function {
                return Next::Behind;
            }
            if entry.tag() == gimli::DW_TAG_label {
                let address = self.address(die, &unit, entry, gimli::DW_AT_low_pc);
                let label = self.name(die, entry).filter(|label| name.matches(label));
                labels.extend(address.zip(label).map(|(address, label)| LabelLocation {
                    name: label.into(),
                    address,
                }));
            }
            Next::Inside
        })
    }
}
