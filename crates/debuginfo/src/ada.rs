//! Types as GNAT describes them: arrays behind a pair of pointers, and ranges of integers.

use std::sync::Arc;

use gimli::AttributeValue;
use spile_ctype::ObjectOp;

use crate::dwarf::Dwarf;
use crate::types::CType;
use crate::unit::{Die, Entry, MAX_CHAIN, constant, number_of};

/// The attribute of a range whose values are stored as the distance from a bias.
const GNU_BIAS: gimli::DwAt = gimli::DwAt(0x2305);

/// Where an unconstrained array has its first element: behind the first of its two pointers.
pub(crate) const ELEMENTS_OF_PAIR: [ObjectOp; 2] = [
    ObjectOp::Object,
    ObjectOp::Load {
        size: 8,
        signed: false,
    },
];

impl Dwarf {
    /// The array that an unconstrained array, or an access to one, means. GNAT's structure has two
    /// pointers: `P_ARRAY` to the elements, and `P_BOUNDS`. The array type behind the first has its
    /// bounds as expressions about the structure.
    pub(crate) fn array_of_pair(&self, die: Die, entry: &Entry) -> Option<(Die, Entry)> {
        // The size tells most structures apart without a look at their members.
        let two_pointers = number_of(entry, gimli::DW_AT_byte_size) == Some(16);
        if entry.tag() != gimli::DW_TAG_structure_type || !two_pointers {
            return None;
        }
        let children = self.child_entries(die);
        let mut members = children.filter(|(_, e)| e.tag() == gimli::DW_TAG_member);
        let (first, second) = (members.next()?, members.next()?);
        let named = |(die, e): &(Die, Entry), name| self.name(*die, e) == Some(name);
        if !named(&first, "P_ARRAY") || !named(&second, "P_BOUNDS") || members.next().is_some() {
            return None;
        }
        let (pointer, e) = self.strip(self.type_die(first.0, &first.1)?)?;
        let (array, e) = self.strip(self.type_die(pointer, &e)?)?;
        (e.tag() == gimli::DW_TAG_array_type).then_some((array, e))
    }

    /// A range of integers: the type of its base, in the size of its own. Values of a range that begins
    /// at 0 or above have no sign.
    pub(crate) fn range(&self, die: Die, entry: &Entry) -> Option<CType> {
        if entry.has_attr(GNU_BIAS) {
            return None;
        }
        let CType::Int { size, signed, char } = self.base_of_range(die)? else {
            return None;
        };
        let byte_size = number_of(entry, gimli::DW_AT_byte_size);
        let low = entry.attr_value(gimli::DW_AT_lower_bound);
        let negative = match low {
            Some(AttributeValue::Exprloc(_)) | None => signed,
            Some(low) => constant(&low).is_some_and(|n| n < 0),
        };
        Some(CType::Int {
            size: byte_size.map_or(Some(size), |n| u8::try_from(n).ok())?,
            signed: signed && negative,
            char,
        })
    }

    /// The type of a range's values: that of its base, which can be a range itself.
    fn base_of_range(&self, mut die: Die) -> Option<CType> {
        for _ in 0..MAX_CHAIN {
            let (_, entry) = self.entry(die)?;
            let (base, e) = self.strip(self.type_die(die, &entry)?)?;
            if e.tag() != gimli::DW_TAG_subrange_type {
                return self.describe(base, &e);
            }
            die = base;
        }
        None
    }

    /// A program about an object whose loads have the sign of a dimension's index type: GNAT's bounds
    /// load 32 bits of an index that may be negative.
    pub(crate) fn with_sign_of_index(
        &self,
        program: Arc<[ObjectOp]>,
        dimension: Die,
    ) -> Arc<[ObjectOp]> {
        match self.base_of_range(dimension) {
            Some(CType::Int { signed: true, .. }) => {}
            _ => return program,
        }
        let signed = |op: &ObjectOp| match *op {
            ObjectOp::Load { size, .. } => ObjectOp::Load { size, signed: true },
            op => op,
        };
        program.iter().map(signed).collect()
    }
}
