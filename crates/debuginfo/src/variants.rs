//! Structures of which one of several variants is there, as Rust's enumerations are.

use crate::caches::TypeId;
use crate::dwarf::Dwarf;
use crate::unit::{Die, Entry, constant};

/// The variants of a structure.
pub type Variants = spile_ctype::Variants<TypeId>;

impl Dwarf {
    /// The variants of a structure that consists of them alone; `None` for any other type.
    #[must_use]
    pub fn variants(&self, id: TypeId) -> Option<Variants> {
        let (whole, _) = self.definition_of(id)?;
        let children: Vec<_> = self.child_entries(whole).collect();
        let named =
            |(d, e): &(Die, Entry)| e.tag() == gimli::DW_TAG_member && self.name(*d, e).is_some();
        if children.iter().any(named) {
            return None;
        }
        let is_part = |(_, e): &&(Die, Entry)| e.tag() == gimli::DW_TAG_variant_part;
        let (part, entry) = children.iter().find(is_part)?;
        let discriminant = match self.attr(*part, entry, gimli::DW_AT_discr) {
            Some((holder, value)) => {
                let die = self.refer(holder, value)?;
                let (_, entry) = self.entry(die)?;
                Some(self.member(die, &entry, 0)?)
            }
            None => None,
        };
        let mut variants = Vec::new();
        for (die, entry) in self.child_entries(*part) {
            if entry.tag() != gimli::DW_TAG_variant {
                continue;
            }
            // Several values of one variant: no compiler of Rust has them.
            if entry.has_attr(gimli::DW_AT_discr_list) {
                return None;
            }
            let mut members = Vec::new();
            self.add_members(die, 0, 0, &mut members);
            variants.push(spile_ctype::Variant {
                value: match entry.attr_value(gimli::DW_AT_discr_value) {
                    Some(value) => Some(constant(&value)?),
                    None => None,
                },
                members,
            });
        }
        Some(Variants {
            discriminant,
            variants,
        })
    }
}
